//! The workers: one pool for all partitions, which take turns.
//!
//! The run queue holds partitions, each at most once, never messages. A worker takes the partition
//! at the front, takes a batch from its window, and puts the partition back behind all others if
//! it got a full batch; then it handles. So a partition with a million waiting messages gets one
//! batch before every other partition with something ready gets one.
//!
//! Whoever makes a message ready adds its partition *afterwards*. A worker removes the partition
//! from the queue *before* it takes. So after a take that got less than a full batch, whatever it
//! missed will be followed by an add.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::vec;
use std::vec::Vec;

use super::assigned::count;
use super::outcome::{Batch, Outcome, Verdict};
use super::running::Running;
use super::source::Source;
use crate::assignment::Assignment;
use crate::error::TakeError;
use crate::shared::SharedLease;
use crate::window::Window;

#[derive(Debug)]
struct Turns {
    waiting: VecDeque<usize>,
    queued: Vec<bool>,
    asleep: usize,
    /// Workers that are dealing with a partition.
    busy: usize,
    stopped: bool,
}

/// The partitions that may have something ready, in turn.
#[derive(Debug)]
pub(crate) struct RunQueue {
    turns: Mutex<Turns>,
    added: Condvar,
    calm: Condvar,
}

impl RunQueue {
    pub(crate) fn new(partitions: usize) -> Self {
        Self {
            turns: Mutex::new(Turns {
                waiting: VecDeque::with_capacity(partitions),
                queued: vec![false; partitions],
                asleep: 0,
                busy: 0,
                stopped: false,
            }),
            added: Condvar::new(),
            calm: Condvar::new(),
        }
    }

    fn turns(&self) -> MutexGuard<'_, Turns> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This partition has something ready.
    pub(crate) fn add(&self, index: usize) {
        let mut turns = self.turns();
        if !std::mem::replace(&mut turns.queued[index], true) {
            turns.waiting.push_back(index);
            if turns.asleep > 0 {
                self.added.notify_one();
            }
        }
    }

    /// The next partition; none when the pool is stopped.
    fn next(&self) -> Option<Turn<'_>> {
        let mut turns = self.turns();
        loop {
            if turns.stopped {
                return None;
            }
            if let Some(index) = turns.waiting.pop_front() {
                turns.queued[index] = false;
                turns.busy += 1;
                return Some(Turn { queue: self, index });
            }
            turns.asleep += 1;
            turns = self.added.wait(turns).unwrap_or_else(PoisonError::into_inner);
            turns.asleep -= 1;
        }
    }

    /// No worker begins anything more.
    pub(crate) fn stop(&self) {
        self.turns().stopped = true;
        self.added.notify_all();
    }

    /// Waits until no worker is at work; false when the deadline came first.
    pub(crate) fn wait_calm(&self, until: Option<Instant>) -> bool {
        let mut turns = self.turns();
        while turns.busy > 0 {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            turns = match left {
                Some(left) if left.is_zero() => return false,
                Some(left) => {
                    self.calm.wait_timeout(turns, left).unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.calm.wait(turns).unwrap_or_else(PoisonError::into_inner),
            };
        }
        true
    }
}

/// A worker's turn with a partition.
struct Turn<'a> {
    queue: &'a RunQueue,
    index: usize,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut turns = self.queue.turns();
        turns.busy -= 1;
        if turns.busy == 0 && turns.stopped {
            self.queue.calm.notify_all();
        }
    }
}

/// How long a partition rests whose messages panic when they are cloned or dropped.
const REST: Duration = Duration::from_secs(1);

/// One worker, until the pool is stopped.
pub(crate) fn work<S, W>(running: &Arc<Running<S, W>>)
where
    S: Source,
    W: Window<Value = S::Message> + Send + Sync + 'static,
{
    while let Some(turn) = running.queue.next() {
        let index = turn.index;
        let assigned = &running.assigned[index];
        let part = assigned.assignment();
        // Not the handler, which is looked after below: `Clone` and `Drop` of the message.
        if catch_unwind(AssertUnwindSafe(|| take_turn(running, index, &part))).is_err() {
            count(&assigned.counts.panics, 1);
            running.clock.rest(index, REST);
        }
        // Also when nothing was finished: an ended assignment's slots may have become free.
        assigned.made_room(&|| running.clock.publish_soon());
        running.something_ended(index);
    }
}

fn take_turn<S, W>(running: &Arc<Running<S, W>>, index: usize, part: &Assignment<Arc<W>>)
where
    S: Source,
    W: Window<Value = S::Message> + Send + Sync + 'static,
{
    let wanted = running.settings.batch;
    match part.at(running.clock.now()).take_shared(wanted) {
        Ok(lease) => {
            if lease.len() == wanted {
                running.queue.add(index);
            }
            handle(running, index, lease);
        }
        // Whoever reassigned it adds it when it has something.
        Err(TakeError::Empty | TakeError::Stale | TakeError::Closed) => {}
    }
}

/// Lets the handler deal with a batch and does what it says.
fn handle<S, W>(running: &Arc<Running<S, W>>, index: usize, mut lease: SharedLease<Arc<W>>)
where
    S: Source,
    W: Window<Value = S::Message> + Send + Sync + 'static,
{
    let assigned = &running.assigned[index];
    let outcome = {
        let batch = Batch::new(assigned.partition.name(), lease.messages());
        let handled = catch_unwind(AssertUnwindSafe(|| (running.settings.handler)(&batch)));
        handled.unwrap_or_else(|_| {
            count(&assigned.counts.panics, 1);
            Outcome::Retry
        })
    };
    if outcome != Outcome::Done {
        set_aside(running, index, &mut lease, &outcome);
    }
    if !lease.is_empty() {
        // Stale: the partition began anew, and these messages will come again.
        if let Ok(report) = lease.commit() {
            count(&assigned.counts.finished, report.applied);
        }
    }
}

/// Takes what has to be retried out of the lease, and hands it to the clock: one lease for each
/// due time. The lease itself waits, so that the window goes on knowing where each message is, and
/// a message that is taken away meanwhile is not given back a second time.
fn set_aside<S, W>(
    running: &Arc<Running<S, W>>,
    index: usize,
    lease: &mut SharedLease<Arc<W>>,
    outcome: &Outcome,
) where
    S: Source,
    W: Window<Value = S::Message> + Send + Sync + 'static,
{
    let assigned = &running.assigned[index];
    let settings = &running.settings;
    let mut delays: Vec<Option<Duration>> = Vec::with_capacity(lease.len());
    for (at, held) in lease.messages().iter().enumerate() {
        let mut delay = match outcome.verdict(at) {
            Verdict::Done => None,
            Verdict::Retry => Some(settings.backoff.after(held.deliveries())),
            Verdict::RetryAfter(delay) => Some(delay),
        };
        if delay.is_some()
            && let Some(last) = &settings.last_resort
            && held.deliveries() >= last.attempts
        {
            let give_up = || (last.give_up)(assigned.partition.name(), held);
            if matches!(catch_unwind(AssertUnwindSafe(give_up)), Ok(Ok(()))) {
                count(&assigned.counts.given_up, 1);
                delay = None;
            }
        }
        delays.push(delay);
    }
    let mut at = 0;
    let mut failed = lease.split(|_| {
        at += 1;
        delays.get(at - 1).is_some_and(Option::is_some)
    });
    let mut delays: Vec<Duration> = delays.into_iter().flatten().collect();
    count(&assigned.counts.retried, delays.len());
    let now = Instant::now();
    while let Some(&delay) = delays.first() {
        let mut at = 0;
        let same = failed.split(|_| {
            at += 1;
            delays.get(at - 1) == Some(&delay)
        });
        delays.retain(|other| *other != delay);
        running.clock.retry(index, now, delay, same);
    }
}
