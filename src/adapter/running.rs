//! All parts of a consumer together: what its threads share, publishing, and waiting for an end.

use std::boxed::Box;
use std::string::{String, ToString};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::vec::Vec;

use super::assigned::{Assigned, count};
use super::clock::Clock;
use super::consumer::{PartitionProgress, PartitionReport, Progress};
use super::outcome::{Backoff, Batch, Outcome};
use super::pool::RunQueue;
use super::source::{Listener, Source, SourceError};
use super::store::{OffsetStore, StoreError};
use crate::assignment::Assignment;
use crate::shared::Held;
use crate::window::Window;

/// What is called for a batch.
pub(crate) type Handler<T> = Box<dyn Fn(&Batch<'_, T>) -> Outcome + Send + Sync>;
/// What is called for a message that failed too often.
pub(crate) type GiveUp<T> = Box<dyn Fn(&str, &Held<T>) -> Result<(), SourceError> + Send + Sync>;

pub(crate) struct LastResort<T> {
    pub(crate) attempts: u32,
    pub(crate) give_up: GiveUp<T>,
}

pub(crate) struct Settings<T> {
    pub(crate) batch: usize,
    pub(crate) backoff: Backoff,
    pub(crate) last_resort: Option<LastResort<T>>,
    pub(crate) handler: Handler<T>,
    pub(crate) pull_batch: usize,
    pub(crate) pull_idle: Duration,
    pub(crate) pull_retry: Duration,
    pub(crate) publish_every: Duration,
}

/// What the threads of a consumer share.
pub(crate) struct Running<S: Source, W: Window<Value = S::Message>> {
    pub(crate) source: S,
    pub(crate) assigned: Vec<Assigned<W>>,
    pub(crate) queue: RunQueue,
    pub(crate) clock: Clock<W>,
    pub(crate) settings: Settings<S::Message>,
    store: Box<dyn OffsetStore>,
    /// Locked while watermarks are read and published, and while a partition is assigned anew:
    /// nothing of an assignment is published after a later one has begun.
    publishing: Mutex<()>,
    store_errors: AtomicU64,
    last_store_error: Mutex<Option<String>>,
    /// The source rings when there is news.
    rings: AtomicBool,
    pullers: AtomicUsize,
    /// Threads that wait for something to end.
    waiting: AtomicUsize,
    ending: Mutex<()>,
    ended: Condvar,
}

/// The deadline of a wait that begins now; none when it is too far to express.
pub(crate) fn deadline(timeout: Duration) -> Option<Instant> {
    Instant::now().checked_add(timeout)
}

impl<S, W> Running<S, W>
where
    S: Source,
    W: Window<Value = S::Message> + Send + Sync + 'static,
{
    pub(crate) fn new(
        source: S,
        store: Box<dyn OffsetStore>,
        assigned: Vec<Assigned<W>>,
        settings: Settings<S::Message>,
    ) -> Self {
        Self {
            source,
            queue: RunQueue::new(assigned.len()),
            pullers: AtomicUsize::new(assigned.len()),
            assigned,
            clock: Clock::new(),
            settings,
            store,
            publishing: Mutex::default(),
            store_errors: AtomicU64::new(0),
            last_store_error: Mutex::default(),
            rings: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            ending: Mutex::default(),
            ended: Condvar::new(),
        }
    }

    pub(crate) fn rings(&self) -> bool {
        self.rings.load(Ordering::Acquire)
    }

    pub(crate) fn set_rings(&self, rings: bool) {
        self.rings.store(rings, Ordering::Release);
    }

    /// Publishes every watermark that is above what is stored.
    pub(crate) fn publish(&self) -> Result<(), StoreError> {
        let publishing = self.publishing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut raised = Vec::new();
        for assigned in &self.assigned {
            if let Ok(next) = assigned.assignment().min_offset()
                && next.get() > assigned.published()
            {
                raised.push((assigned, next.get()));
            }
        }
        if raised.is_empty() {
            return Ok(());
        }
        let named = raised.iter().map(|(assigned, next)| (assigned.partition.name(), *next));
        let offsets: Vec<_> = named.collect();
        self.stored(|store| store.publish(&offsets))?;
        for (assigned, next) in &raised {
            assigned.set_published(*next);
        }
        drop(publishing);
        for (assigned, _) in raised {
            assigned.made_room(&|| self.clock.publish_soon());
        }
        Ok(())
    }

    /// Begins a partition anew, in the store too.
    pub(crate) fn reset(
        &self,
        index: usize,
        offset: u64,
    ) -> Result<Assignment<Arc<W>>, StoreError> {
        let _publishing = self.publishing.lock().unwrap_or_else(PoisonError::into_inner);
        let assigned = &self.assigned[index];
        self.stored(|store| store.reset(assigned.partition.name(), offset))?;
        assigned.set_published(offset);
        count(&assigned.counts.resets, 1);
        Ok(assigned.reassign(offset))
    }

    /// Asks the store for something, and keeps note of how that went.
    fn stored(
        &self,
        ask: impl FnOnce(&dyn OffsetStore) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let store = &*self.store;
        let asked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| ask(store)));
        let result = asked.unwrap_or_else(|panic| {
            Err(StoreError::Other(super::pull::panic_text(&*panic).into()))
        });
        if let Err(error) = &result {
            count(&self.store_errors, 1);
            let mut last = self.last_store_error.lock().unwrap_or_else(PoisonError::into_inner);
            *last = Some(error.to_string());
        }
        result
    }

    /// A partition may have become empty, or a puller has come to an end: wakes who waits for it.
    pub(crate) fn something_ended(&self, index: usize) {
        // Pairs with the fence of the one who waits.
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) > 0 && self.assigned[index].window.is_empty() {
            self.wake_waiting();
        }
    }

    fn wake_waiting(&self) {
        drop(self.ending.lock().unwrap_or_else(PoisonError::into_inner));
        self.ended.notify_all();
    }

    pub(crate) fn puller_ended(&self) {
        self.pullers.fetch_sub(1, Ordering::AcqRel);
        self.wake_waiting();
    }

    fn wait(&self, until: Option<Instant>, done: impl Fn() -> bool) -> bool {
        let mut ending = self.ending.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiting.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let done = loop {
            if done() {
                break true;
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            ending = match left {
                Some(left) if left.is_zero() => break false,
                Some(left) => {
                    let waited = self.ended.wait_timeout(ending, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.ended.wait(ending).unwrap_or_else(PoisonError::into_inner),
            };
        };
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        done
    }
}

impl<S, W> Listener for Running<S, W>
where
    S: Source,
    W: Window<Value = S::Message> + Send + Sync + 'static,
{
    fn news(&self, id: Option<usize>) {
        for assigned in &self.assigned {
            if id.is_none_or(|id| assigned.partition.id() == id) {
                assigned.ring();
            }
        }
    }
}

/// What a handle on a consumer needs of it, whatever its messages and windows are.
pub(crate) trait Machine: Send + Sync {
    fn stop_intake(&self);
    fn stop_workers(&self);
    fn stop_clock(&self);
    /// Waits until no handler runs.
    fn wait_calm(&self, until: Option<Instant>) -> bool;
    /// Waits until no puller runs.
    fn wait_pullers(&self, until: Option<Instant>) -> bool;
    /// Waits until nothing is unfinished, with the intake stopped.
    fn wait_drained(&self, until: Option<Instant>) -> bool;
    /// Waits until everything that the log had is finished.
    fn wait_caught_up(&self, until: Option<Instant>) -> bool;
    fn publish(&self) -> Result<(), StoreError>;
    fn progress(&self) -> Progress;
    fn report(&self) -> Vec<PartitionReport>;
}

impl<S, W> Machine for Running<S, W>
where
    S: Source,
    W: Window<Value = S::Message> + Send + Sync + 'static,
{
    fn stop_intake(&self) {
        self.assigned.iter().for_each(Assigned::stop_intake);
    }

    fn stop_workers(&self) {
        self.queue.stop();
    }

    fn stop_clock(&self) {
        self.clock.stop();
    }

    fn wait_calm(&self, until: Option<Instant>) -> bool {
        self.queue.wait_calm(until)
    }

    fn wait_pullers(&self, until: Option<Instant>) -> bool {
        self.wait(until, || self.pullers.load(Ordering::Acquire) == 0)
    }

    fn wait_drained(&self, until: Option<Instant>) -> bool {
        self.wait(until, || {
            self.pullers.load(Ordering::Acquire) == 0
                && self.assigned.iter().all(|assigned| assigned.window.is_empty())
        })
    }

    fn wait_caught_up(&self, until: Option<Instant>) -> bool {
        self.wait(until, || self.assigned.iter().all(Assigned::caught_up))
    }

    fn publish(&self) -> Result<(), StoreError> {
        self.publish()
    }

    fn progress(&self) -> Progress {
        let partitions = self.assigned.iter().map(|assigned| {
            let part = assigned.assignment();
            // The end first: what is shown as the span is never more than there was.
            let end = part.end().unwrap_or(0);
            let watermark = part.min_offset().map_or(0, |next| next.get());
            let end = end.max(watermark);
            let numbered = assigned.spans_messages(&part);
            let span = if numbered { part.span().unwrap_or(0) } else { end - watermark };
            let usage = assigned.window.usage();
            let head = part.head().ok().flatten();
            let counts = &assigned.counts;
            let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
            PartitionProgress {
                name: assigned.partition.name().into(),
                watermark,
                end,
                span,
                count: usage.count,
                bytes: usage.bytes,
                backlog: self
                    .source
                    .end(&assigned.partition)
                    .map(|log_end| log_end.saturating_sub(end)),
                head,
                finished: get(&counts.finished),
                retried: get(&counts.retried),
                given_up: get(&counts.given_up),
                panics: get(&counts.panics),
                pulls: get(&counts.pulls),
                pull_errors: get(&counts.pull_errors),
                resets: get(&counts.resets),
                last_error: assigned.last_error(),
            }
        });
        Progress {
            partitions: partitions.collect(),
            store_errors: self.store_errors.load(Ordering::Relaxed),
            last_store_error: self
                .last_store_error
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone(),
        }
    }

    fn report(&self) -> Vec<PartitionReport> {
        let reports = self.assigned.iter().map(|assigned| {
            let part = assigned.assignment();
            let watermark = part.min_offset().map_or(0, |next| next.get());
            PartitionReport {
                name: assigned.partition.name().into(),
                watermark,
                end: part.end().unwrap_or(watermark),
                left: assigned.window.count(),
                published: assigned.published(),
            }
        });
        reports.collect()
    }
}
