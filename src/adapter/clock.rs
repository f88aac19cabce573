//! What happens at a time: retries that come due, partitions that have rested, publishing.
//!
//! One thread, which sleeps until the next due time and is woken when an earlier one is set.

use std::cmp::Ordering as Order;
use std::collections::BinaryHeap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::running::Running;
use super::source::Source;
use crate::shared::SharedLease;
use crate::window::Window;

/// Something to do with a partition at a time.
struct Due<W: Window> {
    at: Instant,
    /// Of two with one time the older comes first.
    number: u64,
    index: usize,
    /// Messages that are retried then; none for a partition that rests.
    lease: Option<SharedLease<Arc<W>>>,
}

impl<W: Window> Due<W> {
    fn key(&self) -> (Instant, u64) {
        (self.at, self.number)
    }
}

impl<W: Window> PartialEq for Due<W> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}
impl<W: Window> Eq for Due<W> {}
impl<W: Window> PartialOrd for Due<W> {
    fn partial_cmp(&self, other: &Self) -> Option<Order> {
        Some(self.cmp(other))
    }
}
impl<W: Window> Ord for Due<W> {
    /// Reversed: the heap's greatest is the earliest.
    fn cmp(&self, other: &Self) -> Order {
        other.key().cmp(&self.key())
    }
}

struct Alarms<W: Window> {
    due: BinaryHeap<Due<W>>,
    number: u64,
    /// Somebody cannot wait for the next time to publish.
    publish: bool,
    stopped: bool,
}

/// The alarms of a consumer.
pub(crate) struct Clock<W: Window> {
    started: Instant,
    alarms: Mutex<Alarms<W>>,
    changed: Condvar,
}

/// Far enough: a due time that the system's clock cannot express.
const YEARS: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

fn later(now: Instant, delay: Duration) -> Instant {
    now.checked_add(delay).or_else(|| now.checked_add(YEARS)).unwrap_or(now)
}

impl<W: Window> Clock<W> {
    pub(crate) fn new() -> Self {
        Self {
            started: Instant::now(),
            alarms: Mutex::new(Alarms {
                due: BinaryHeap::new(),
                number: 0,
                publish: false,
                stopped: false,
            }),
            changed: Condvar::new(),
        }
    }

    /// Milliseconds since the start: the tick that takes are stamped with.
    pub(crate) fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn alarms(&self) -> MutexGuard<'_, Alarms<W>> {
        self.alarms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the messages back after the delay.
    pub(crate) fn retry(
        &self,
        index: usize,
        now: Instant,
        delay: Duration,
        lease: SharedLease<Arc<W>>,
    ) {
        self.set(later(now, delay), index, Some(lease));
    }

    /// Puts the partition back into the run queue after the delay.
    pub(crate) fn rest(&self, index: usize, delay: Duration) {
        self.set(later(Instant::now(), delay), index, None);
    }

    fn set(&self, at: Instant, index: usize, lease: Option<SharedLease<Arc<W>>>) {
        let mut alarms = self.alarms();
        if alarms.stopped {
            // The lease is dropped without the lock, and gives its messages back.
            drop(alarms);
            return;
        }
        alarms.number += 1;
        let number = alarms.number;
        let earliest = alarms.due.peek().is_none_or(|first| at < first.at);
        alarms.due.push(Due { at, number, index, lease });
        if earliest {
            self.changed.notify_one();
        }
    }

    /// Publishes as soon as the clock gets to it.
    pub(crate) fn publish_soon(&self) {
        let mut alarms = self.alarms();
        if !alarms.publish {
            alarms.publish = true;
            self.changed.notify_one();
        }
    }

    /// Nothing comes due any more.
    pub(crate) fn stop(&self) {
        self.alarms().stopped = true;
        self.changed.notify_one();
    }

    /// What is due; none when it is time to publish.
    fn wait(&self, until: Instant) -> Result<Option<Due<W>>, Stopped> {
        let mut alarms = self.alarms();
        loop {
            if alarms.stopped {
                return Err(Stopped);
            }
            if std::mem::take(&mut alarms.publish) {
                return Ok(None);
            }
            let now = Instant::now();
            let next = alarms.due.peek().map_or(until, |first| first.at.min(until));
            if now < next {
                let waited = self.changed.wait_timeout(alarms, next - now);
                alarms = waited.unwrap_or_else(PoisonError::into_inner).0;
            } else if now >= until {
                // First: retries that always are due must not put off publishing for ever.
                return Ok(None);
            } else {
                return Ok(alarms.due.pop());
            }
        }
    }

    /// Gives back everything that still waits.
    pub(crate) fn clear(&self) {
        loop {
            let due = self.alarms().due.pop();
            let Some(due) = due else { return };
            let _ = catch_unwind(AssertUnwindSafe(|| drop(due.lease)));
        }
    }
}

struct Stopped;

/// The clock's thread, until it is stopped.
pub(crate) fn run<S, W>(running: &Arc<Running<S, W>>)
where
    S: Source,
    W: Window<Value = S::Message> + Send + Sync + 'static,
{
    let every = running.settings.publish_every;
    let mut publish = later(Instant::now(), every);
    loop {
        match running.clock.wait(publish) {
            Err(Stopped) => break,
            Ok(None) => {
                // A failure is counted and shown; the next publish carries what this did not.
                let _ = running.publish();
                publish = later(Instant::now(), every);
            }
            Ok(Some(due)) => {
                if let Some(lease) = due.lease {
                    // The drop of a clone is user code.
                    let _ = catch_unwind(AssertUnwindSafe(|| lease.rollback()));
                }
                running.queue.add(due.index);
            }
        }
    }
    running.clock.clear();
}
