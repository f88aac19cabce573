//! What happens at a time: retries that come due, partitions that have rested, publishing.
//!
//! One thread, which sleeps until the next due time and is woken when an earlier one is set.

use std::cmp::Ordering as Order;
use std::collections::BinaryHeap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::assigned::Assigned;
#[cfg(feature = "metrics")]
use super::machine::Machine;
use super::pool::Prepared;
use super::running::Running;
use super::source::Source;
use super::time::{Time, YEARS};
use crate::detached::Detached;
use crate::window::Window;

/// Messages that wait for the time of their next try, held, without a clone of them. Dropped,
/// wherever that is, it gives them back.
pub(crate) struct Retry<W: Window>(Option<Detached<Arc<W>>>);

impl<W: Window> Drop for Retry<W> {
    fn drop(&mut self) {
        if let Some(detached) = self.0.take() {
            // When the partition has begun anew, the messages will come again.
            let _ = detached.give_back();
        }
    }
}

/// What to do with a partition at a time.
pub(crate) enum What<W: Window> {
    /// These messages are ready again.
    GiveBack(Arc<Assigned<W>>, Retry<W>),
    /// These messages are to be handled.
    Run(Prepared<W>),
    /// It has rested.
    Wake(Arc<Assigned<W>>),
}

struct Due<W: Window> {
    at: Duration,
    /// Of two with one time the older comes first.
    number: u64,
    what: What<W>,
}

impl<W: Window> Due<W> {
    fn key(&self) -> (Duration, u64) {
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
    /// Somebody cannot wait for the next time to publish ...
    publish: bool,
    /// ... which is this.
    publish_at: Duration,
    stopped: bool,
}

/// The alarms of a consumer.
pub(crate) struct Clock<W: Window> {
    pub(crate) time: Time,
    publish_every: Duration,
    alarms: Mutex<Alarms<W>>,
    changed: Condvar,
}

/// What an alarm is for.
pub(crate) enum Alarm<W: Window> {
    Publish,
    Due(What<W>),
}

pub(crate) struct Stopped;

impl<W: Window> Clock<W> {
    pub(crate) fn new(time: Time, publish_every: Duration) -> Self {
        let alarms = Alarms {
            due: BinaryHeap::new(),
            number: 0,
            publish: false,
            publish_at: time.deadline(publish_every),
            stopped: false,
        };
        Self { time, publish_every, alarms: Mutex::new(alarms), changed: Condvar::new() }
    }

    fn alarms(&self) -> MutexGuard<'_, Alarms<W>> {
        self.alarms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the messages back then.
    pub(crate) fn give_back_at(
        &self,
        at: Duration,
        assigned: &Arc<Assigned<W>>,
        detached: Detached<Arc<W>>,
    ) {
        self.set(at, What::GiveBack(Arc::clone(assigned), Retry(Some(detached))));
    }

    /// Has the messages handled then.
    pub(crate) fn run_at(&self, at: Duration, prepared: Prepared<W>) {
        self.set(at, What::Run(prepared));
    }

    /// Puts the partition back into the run queue then.
    pub(crate) fn wake_at(&self, at: Duration, assigned: &Arc<Assigned<W>>) {
        self.set(at, What::Wake(Arc::clone(assigned)));
    }

    fn set(&self, at: Duration, what: What<W>) {
        let mut alarms = self.alarms();
        if alarms.stopped {
            // `what` is dropped without the lock, and gives its messages back.
            drop(alarms);
            return;
        }
        alarms.number += 1;
        let number = alarms.number;
        let earliest = alarms.due.peek().is_none_or(|first| at < first.at);
        alarms.due.push(Due { at, number, what });
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

    /// What is due; or the time when something will be.
    fn due(&self, alarms: &mut Alarms<W>) -> Result<Alarm<W>, Duration> {
        let now = self.time.now();
        // First: retries that always are due must not put off publishing for ever.
        if std::mem::take(&mut alarms.publish) || now >= alarms.publish_at {
            alarms.publish_at = now.saturating_add(self.publish_every);
            return Ok(Alarm::Publish);
        }
        match alarms.due.peek() {
            Some(first) if now >= first.at => {
                alarms.due.pop().map(|due| Alarm::Due(due.what)).ok_or(alarms.publish_at)
            }
            Some(first) => Err(first.at.min(alarms.publish_at)),
            None => Err(alarms.publish_at),
        }
    }

    /// What is due, without waiting; or the time when something will be.
    pub(crate) fn poll(&self) -> Result<Alarm<W>, Duration> {
        self.due(&mut self.alarms())
    }

    /// When something is due.
    pub(crate) fn next(&self) -> Duration {
        let alarms = self.alarms();
        match alarms.due.peek() {
            _ if alarms.publish => self.time.now(),
            Some(first) => first.at.min(alarms.publish_at),
            None => alarms.publish_at,
        }
    }

    fn wait(&self) -> Result<Alarm<W>, Stopped> {
        let mut alarms = self.alarms();
        loop {
            if alarms.stopped {
                return Err(Stopped);
            }
            match self.due(&mut alarms) {
                Ok(alarm) => return Ok(alarm),
                Err(until) => {
                    let left = self.time.left(until).unwrap_or_default().min(YEARS);
                    let waited = self.changed.wait_timeout(alarms, left);
                    alarms = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
            }
        }
    }

    /// Gives back everything that still waits.
    pub(crate) fn clear(&self) {
        loop {
            let due = self.alarms().due.pop();
            let Some(due) = due else { return };
            let _ = catch_unwind(AssertUnwindSafe(|| drop(due.what)));
        }
    }
}

impl<S, W> Running<S, W>
where
    S: Source,
    W: Window<Value = S::Message> + Send + Sync + 'static,
{
    /// Does what an alarm is for.
    pub(crate) fn ring(&self, alarm: Alarm<W>) {
        match alarm {
            Alarm::Publish => {
                // A failure is counted and shown; the next publish carries what this did not.
                let _ = self.publish();
                #[cfg(feature = "metrics")]
                {
                    // What the source says of its end is user code, and so is a recorder.
                    let record = || super::observe::record(&Machine::progress(self));
                    let _ = catch_unwind(AssertUnwindSafe(record));
                }
            }
            Alarm::Due(What::GiveBack(assigned, retry)) => {
                drop(retry);
                self.queue.add(&assigned);
            }
            Alarm::Due(What::Run(prepared)) => self.queue.run(prepared),
            Alarm::Due(What::Wake(assigned)) => self.queue.add(&assigned),
        }
    }
}

/// The clock's thread, until it is stopped.
pub(crate) fn run<S, W>(running: &Arc<Running<S, W>>)
where
    S: Source,
    W: Window<Value = S::Message> + Send + Sync + 'static,
{
    while let Ok(alarm) = running.clock.wait() {
        running.ring(alarm);
    }
    running.clock.clear();
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;
    use crate::RingWindow;
    use crate::adapter::{Limits, Partition};

    const HOUR: Duration = Duration::from_secs(3600);

    type Waiting = Arc<Assigned<RingWindow<u8, 8>>>;

    /// A partition of two messages, the first of them with the clock.
    fn waiting(clock: &Clock<RingWindow<u8, 8>>) -> Waiting {
        let window = Arc::new(RingWindow::new());
        let partition = Partition::new(0, "p0");
        let assigned = Arc::new(Assigned::new(partition, window, 0, Limits::default(), None));
        let part = assigned.current().part.clone();
        part.put_batch(&mut (0..2).map(|n| (n, 0))).unwrap();
        let detached = part.take_shared(1).unwrap().into_detached();
        clock.give_back_at(HOUR, &assigned, detached);
        assigned
    }

    fn ready(assigned: &Waiting) -> Vec<u64> {
        let lease = assigned.current().part.take(8).unwrap();
        lease.iter().map(|(offset, _)| offset).collect()
    }

    #[test]
    fn what_waits_when_the_clock_is_cleared_is_given_back() {
        let clock = Clock::new(Time::by_hand(), HOUR);
        let assigned = waiting(&clock);
        assert_eq!(ready(&assigned), [1]);
        clock.stop();
        clock.clear();
        assert_eq!(ready(&assigned), [0, 1]);
    }

    #[test]
    fn what_comes_to_a_stopped_clock_is_given_back_at_once() {
        let clock = Clock::new(Time::by_hand(), HOUR);
        clock.stop();
        assert_eq!(ready(&waiting(&clock)), [0, 1]);
    }
}
