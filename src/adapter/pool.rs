//! The workers: one pool for all partitions, which take turns.
//!
//! The run queue holds partitions, each at most once. A worker takes the partition at the front,
//! takes a batch from its window, and puts the partition back behind all others if it got a full
//! batch; then it handles. So a partition with a million waiting messages gets one batch before
//! every other partition with something ready gets one. (What is queued beside partitions are
//! batches that were taken and put off: they have had their turn.)
//!
//! Whoever makes a message ready adds its partition *afterwards*. A worker removes the partition
//! from the queue *before* it takes. So after a take that got less than a full batch, whatever it
//! missed will be followed by an add.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::assigned::{Assigned, Current, count};
use super::running::Running;
use super::source::Source;
use super::time::Time;
use crate::batch::BatchId;
use crate::shared::SharedLease;
use crate::window::Window;

/// What the run queue knows of a partition. Changed only under its lock.
#[derive(Debug, Default)]
pub(crate) struct TurnState {
    queued: AtomicBool,
    /// Workers that are dealing with it.
    busy: AtomicUsize,
    /// Asked for while its only turn was running.
    again: AtomicBool,
}

/// What a lease belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Nothing: what fails is given back.
    Plain,
    /// The messages of one key, which others may wait for.
    Lane { key: u64 },
    /// A part of a batch, which ends before `next`.
    Part { batch: BatchId, next: u64 },
}

/// Messages that were taken, to be handled.
pub(crate) struct Prepared<W: Window> {
    pub(crate) assigned: Arc<Assigned<W>>,
    pub(crate) current: Arc<Current<W>>,
    pub(crate) lease: SharedLease<Arc<W>>,
    pub(crate) kind: Kind,
    /// How often they failed since they were taken.
    pub(crate) failed: u32,
}

/// Something for a worker.
pub(crate) enum Task<W: Window> {
    /// This partition may have something ready.
    Partition(Arc<Assigned<W>>),
    /// These messages are to be handled.
    Run(Prepared<W>),
}

impl<W: Window> Task<W> {
    fn assigned(&self) -> &Arc<Assigned<W>> {
        match self {
            Self::Partition(assigned) => assigned,
            Self::Run(prepared) => &prepared.assigned,
        }
    }
}

struct Turns<W: Window> {
    waiting: VecDeque<Task<W>>,
    asleep: usize,
    /// Workers that are dealing with something.
    busy: usize,
    stopped: bool,
    /// Workers that are futures and wait, each with its ticket.
    #[cfg(feature = "async")]
    wakers: VecDeque<(u64, std::task::Waker)>,
    #[cfg(feature = "async")]
    tickets: u64,
}

/// What there is to do, in turn.
pub(crate) struct RunQueue<W: Window> {
    turns: Mutex<Turns<W>>,
    /// A partition has one turn at a time.
    exclusive: bool,
    added: Condvar,
    calm: Condvar,
}

impl<W: Window> RunQueue<W> {
    pub(crate) fn new(exclusive: bool) -> Self {
        let turns = Turns {
            waiting: VecDeque::new(),
            asleep: 0,
            busy: 0,
            stopped: false,
            #[cfg(feature = "async")]
            wakers: VecDeque::new(),
            #[cfg(feature = "async")]
            tickets: 0,
        };
        Self { turns: Mutex::new(turns), exclusive, added: Condvar::new(), calm: Condvar::new() }
    }

    fn turns(&self) -> MutexGuard<'_, Turns<W>> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This partition has something ready.
    pub(crate) fn add(&self, assigned: &Arc<Assigned<W>>) {
        let mut turns = self.turns();
        let turn = &assigned.turn;
        if self.exclusive && turn.busy.load(Ordering::Relaxed) > 0 {
            turn.again.store(true, Ordering::Relaxed);
        } else if !turn.queued.swap(true, Ordering::Relaxed) {
            self.push(&mut turns, Task::Partition(Arc::clone(assigned)));
        }
    }

    /// These messages are to be handled, by whoever is free.
    pub(crate) fn run(&self, prepared: Prepared<W>) {
        let mut turns = self.turns();
        if turns.stopped {
            // Given back without the lock.
            drop(turns);
            let _ = catch_unwind(AssertUnwindSafe(|| drop(prepared)));
        } else {
            self.push(&mut turns, Task::Run(prepared));
        }
    }

    fn push(&self, turns: &mut Turns<W>, task: Task<W>) {
        turns.waiting.push_back(task);
        if turns.asleep > 0 {
            self.added.notify_one();
        }
        #[cfg(feature = "async")]
        if let Some((_, waker)) = turns.wakers.pop_front() {
            waker.wake();
        }
    }

    /// The next task for a worker that is a future; it is woken when there is one.
    #[cfg(feature = "async")]
    pub(crate) fn poll_next(
        &self,
        ticket: &mut Option<u64>,
        waker: &std::task::Waker,
    ) -> std::task::Poll<Option<Task<W>>> {
        let mut turns = self.turns();
        let task = if turns.stopped { None } else { Self::pop(&mut turns) };
        if task.is_some() || turns.stopped {
            if let Some(ticket) = ticket.take() {
                turns.wakers.retain(|(other, _)| *other != ticket);
            }
            return std::task::Poll::Ready(task);
        }
        let known = turns.wakers.iter_mut().find(|(other, _)| Some(*other) == *ticket);
        match known {
            Some((_, known)) => known.clone_from(waker),
            None => {
                turns.tickets += 1;
                *ticket = Some(turns.tickets);
                let place = (turns.tickets, waker.clone());
                turns.wakers.push_back(place);
            }
        }
        std::task::Poll::Pending
    }

    /// A worker does not wait any more. If it was woken, another is instead.
    #[cfg(feature = "async")]
    pub(crate) fn give_up(&self, ticket: u64) {
        let mut turns = self.turns();
        let before = turns.wakers.len();
        turns.wakers.retain(|(other, _)| *other != ticket);
        if turns.wakers.len() == before
            && !turns.waiting.is_empty()
            && let Some((_, waker)) = turns.wakers.pop_front()
        {
            waker.wake();
        }
    }

    fn pop(turns: &mut Turns<W>) -> Option<Task<W>> {
        let task = turns.waiting.pop_front()?;
        let turn = &task.assigned().turn;
        if matches!(task, Task::Partition(_)) {
            turn.queued.store(false, Ordering::Relaxed);
        }
        turn.busy.fetch_add(1, Ordering::Relaxed);
        turns.busy += 1;
        Some(task)
    }

    /// The next task; none when the pool is stopped.
    pub(crate) fn next(&self) -> Option<Task<W>> {
        let mut turns = self.turns();
        while !turns.stopped {
            if let Some(task) = Self::pop(&mut turns) {
                return Some(task);
            }
            turns.asleep += 1;
            turns = self.added.wait(turns).unwrap_or_else(PoisonError::into_inner);
            turns.asleep -= 1;
        }
        None
    }

    /// As `next`, without waiting.
    pub(crate) fn try_next(&self) -> Option<Task<W>> {
        let mut turns = self.turns();
        if turns.stopped { None } else { Self::pop(&mut turns) }
    }

    /// A task has come to its end.
    fn end(&self, assigned: &Arc<Assigned<W>>) {
        let mut turns = self.turns();
        turns.busy -= 1;
        let left = assigned.turn.busy.fetch_sub(1, Ordering::Relaxed) - 1;
        if left == 0 && assigned.turn.again.swap(false, Ordering::Relaxed) {
            let queued = assigned.turn.queued.swap(true, Ordering::Relaxed);
            if !queued {
                self.push(&mut turns, Task::Partition(Arc::clone(assigned)));
            }
        }
        if turns.busy == 0 && turns.stopped || left == 0 && assigned.is_fenced() {
            self.calm.notify_all();
        }
    }

    /// How many of so many workers are free, the one that asks included.
    pub(crate) fn free(&self, workers: usize) -> usize {
        workers.saturating_sub(self.turns().busy) + 1
    }

    /// No worker begins anything more.
    pub(crate) fn stop(&self) {
        let mut turns = self.turns();
        turns.stopped = true;
        let waiting = std::mem::take(&mut turns.waiting);
        #[cfg(feature = "async")]
        for (_, waker) in std::mem::take(&mut turns.wakers) {
            waker.wake();
        }
        drop(turns);
        self.added.notify_all();
        for task in waiting {
            let _ = catch_unwind(AssertUnwindSafe(|| drop(task)));
        }
    }

    /// Waits until no worker is at work; false when the deadline came first.
    pub(crate) fn wait_calm(&self, until: Option<Duration>, time: &Time) -> bool {
        self.wait_until(until, time, |turns| turns.busy == 0)
    }

    /// Waits until no worker is at work for this partition.
    pub(crate) fn wait_idle(
        &self,
        assigned: &Assigned<W>,
        until: Option<Duration>,
        time: &Time,
    ) -> bool {
        self.wait_until(until, time, |_| assigned.turn.busy.load(Ordering::Relaxed) == 0)
    }

    fn wait_until(
        &self,
        until: Option<Duration>,
        time: &Time,
        done: impl Fn(&Turns<W>) -> bool,
    ) -> bool {
        let mut turns = self.turns();
        while !done(&turns) {
            turns = match until.map(|until| time.left(until)) {
                Some(None) => return false,
                Some(Some(left)) => {
                    self.calm.wait_timeout(turns, left).unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.calm.wait(turns).unwrap_or_else(PoisonError::into_inner),
            };
        }
        true
    }
}

/// A worker's turn with a partition.
struct Turn<S: Source, W: Window<Value = S::Message> + Send + Sync + 'static> {
    running: Arc<Running<S, W>>,
    assigned: Arc<Assigned<W>>,
}

impl<S, W> Drop for Turn<S, W>
where
    S: Source,
    W: Window<Value = S::Message> + Send + Sync + 'static,
{
    fn drop(&mut self) {
        let Self { running, assigned } = self;
        running.queue.end(assigned);
        // Also when nothing was finished: an ended assignment's slots may have become free.
        running.made_room(assigned);
        running.something_ended(assigned);
    }
}

/// How long a partition rests whose messages panic when they are cloned or dropped.
pub(crate) const REST: Duration = Duration::from_secs(1);

/// A turn that has messages to handle. Dropped without having run, it gives them back.
pub(crate) struct Work<S: Source, W: Window<Value = S::Message> + Send + Sync + 'static> {
    prepared: Option<Prepared<W>>,
    turn: Turn<S, W>,
}

impl<S, W> Work<S, W>
where
    S: Source,
    W: Window<Value = S::Message> + Send + Sync + 'static,
{
    /// Begins a task: takes messages; none when there is nothing to handle.
    pub(crate) fn begin(running: &Arc<Running<S, W>>, task: Task<W>) -> Option<Self> {
        let (assigned, prepared) = match task {
            Task::Partition(assigned) => (assigned, None),
            Task::Run(prepared) => (Arc::clone(&prepared.assigned), Some(prepared)),
        };
        let turn = Turn { running: Arc::clone(running), assigned };
        let assigned = &turn.assigned;
        // `Clone` and `Drop` of the message, and what the hooks say of it, are user code.
        let prepare = || match prepared {
            None => running.prepare(assigned),
            Some(prepared) => running.prepare_again(prepared),
        };
        match catch_unwind(AssertUnwindSafe(prepare)) {
            Ok(prepared) => prepared.map(|prepared| Self { prepared: Some(prepared), turn }),
            Err(_) => {
                count(&assigned.counts.panics, 1);
                running.rest(assigned, REST);
                None
            }
        }
    }

    pub(crate) fn prepared(&self) -> Option<&Prepared<W>> {
        self.prepared.as_ref()
    }

    /// Lets the handler deal with them, and does what it says.
    pub(crate) fn run(self) {
        self.end(|running, prepared| running.deal(prepared));
    }

    /// Does what a handler said.
    #[cfg(feature = "async")]
    pub(crate) fn settle(self, answer: super::running::Answer) {
        self.end(|running, prepared| running.settle_later(prepared, answer));
    }

    fn end(mut self, deal: impl FnOnce(&Running<S, W>, Prepared<W>)) {
        let Some(prepared) = self.prepared.take() else { return };
        let Turn { running, assigned } = &self.turn;
        if catch_unwind(AssertUnwindSafe(|| deal(running, prepared))).is_err() {
            count(&assigned.counts.panics, 1);
            running.rest(assigned, REST);
        }
    }

    #[cfg(feature = "async")]
    pub(crate) fn assigned(&self, see: impl FnOnce(&Assigned<W>)) {
        see(&self.turn.assigned);
    }
}

impl<S, W> Drop for Work<S, W>
where
    S: Source,
    W: Window<Value = S::Message> + Send + Sync + 'static,
{
    fn drop(&mut self) {
        let Some(prepared) = self.prepared.take() else { return };
        let running = &self.turn.running;
        match prepared.kind {
            Kind::Plain => {
                let _ = catch_unwind(AssertUnwindSafe(|| drop(prepared)));
                running.queue.add(&self.turn.assigned);
            }
            // Their order, or their batch, needs them as they are.
            Kind::Lane { .. } | Kind::Part { .. } => running.queue.run(prepared),
        }
    }
}

/// One worker, until the pool is stopped.
pub(crate) fn work<S, W>(running: &Arc<Running<S, W>>)
where
    S: Source,
    W: Window<Value = S::Message> + Send + Sync + 'static,
{
    while let Some(task) = running.queue.next() {
        if let Some(work) = Work::begin(running, task) {
            work.run();
        }
    }
}
