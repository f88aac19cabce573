//! All parts of a consumer together: what its threads share, publishing, and waiting for an end.

use std::boxed::Box;
use std::string::{String, ToString};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};
use std::vec::Vec;

use super::assigned::{Assigned, count};
use super::clock::Clock;
use super::failed::{Failed, SendBack};
use super::keeper::Keeper;
use super::limits::Limits;
use super::lock::PartitionLock;
use super::outcome::{Backoff, Batch, Ordered, Outcome};
use super::pool::RunQueue;
use super::pull::Puller;
use super::source::{Listener, Partition, Source, SourceError};
use super::store::{OffsetStore, StoreError};
use super::time::Time;
use crate::assignment::Assignment;
use crate::window::Window;

/// What is called for a batch.
pub(crate) type Handler<T, A> = Box<dyn Fn(&Batch<'_, T>) -> A + Send + Sync>;
/// What is called for a message that failed too often.
pub(crate) type GiveUp<T> = Box<dyn Fn(&Failed<'_, T>) -> Result<(), SourceError> + Send + Sync>;
/// What is told of a message that failed.
pub(crate) type Report<T> = Box<dyn Fn(&Failed<'_, T>) + Send + Sync>;
/// Says something of a message.
pub(crate) type Of<T, A> = Box<dyn Fn(&T) -> A + Send + Sync>;
/// Makes a partition's window.
pub(crate) type MakeWindow<W> = Box<dyn Fn(&Partition) -> Box<W> + Send + Sync>;

/// How a handler is called.
pub(crate) enum Call<T, A = Outcome> {
    /// It answers when it returns.
    Now(Handler<T, A>),
    /// It answers by a future.
    #[cfg(feature = "async")]
    Later(super::tasks::LaterHandler<T>),
}

impl<T, A> Call<T, A> {
    /// The handler, if it answers when it returns. (Workers that call it run only then.)
    pub(crate) fn now(&self) -> Option<&Handler<T, A>> {
        match self {
            Self::Now(handler) => Some(handler),
            #[cfg(feature = "async")]
            Self::Later(_) => None,
        }
    }
}

/// What a handler answered.
#[cfg(feature = "async")]
pub(crate) enum Answer {
    Any(Outcome),
    /// Of a service in order.
    Ordered(Ordered),
}

/// How batches are handed out.
pub(crate) enum Service<T> {
    /// In parallel, in any order.
    Concurrent(Call<T>),
    /// One at a time for each partition.
    Orderly { handler: Call<T, Ordered>, manual: bool },
    /// One at a time for each key.
    Keyed { handler: Call<T>, key: Of<T, u64> },
    /// In numbered batches with a part for each free worker.
    Batched(Call<T>),
}

impl<T> Service<T> {
    /// The handler, if it answers by futures.
    #[cfg(feature = "async")]
    pub(crate) fn later(&self) -> Option<&super::tasks::LaterHandler<T>> {
        match self {
            Self::Concurrent(Call::Later(handler)) | Self::Batched(Call::Later(handler)) => {
                Some(handler)
            }
            Self::Keyed { handler: Call::Later(handler), .. } => Some(handler),
            Self::Orderly { handler: Call::Later(handler), .. } => Some(handler),
            _ => None,
        }
    }

    /// What a handler counts as having answered that panicked.
    #[cfg(feature = "async")]
    pub(crate) fn panicked(&self) -> Answer {
        match self {
            Self::Orderly { .. } => Answer::Ordered(Ordered::Suspend(None)),
            _ => Answer::Any(Outcome::Retry),
        }
    }

    /// Does it have to be awaited?
    pub(crate) fn is_later(&self) -> bool {
        #[cfg(feature = "async")]
        return self.later().is_some();
        #[cfg(not(feature = "async"))]
        false
    }
}

/// A lock, and for how long it is believed.
pub(crate) struct Locking {
    pub(crate) lock: Box<dyn PartitionLock>,
    pub(crate) lease: Duration,
}

pub(crate) struct Settings<T> {
    pub(crate) workers: usize,
    pub(crate) batch: usize,
    pub(crate) limits: Limits,
    pub(crate) backoff: Backoff,
    pub(crate) suspend_for: Duration,
    pub(crate) max_attempts: u32,
    pub(crate) give_up: Option<GiveUp<T>>,
    pub(crate) send_back: Option<Box<dyn SendBack<T>>>,
    pub(crate) resend_after: Duration,
    pub(crate) broadcast: Option<Report<T>>,
    pub(crate) filter: Option<Of<T, bool>>,
    pub(crate) not_before: Option<Of<T, Option<SystemTime>>>,
    pub(crate) attempts: Option<Of<T, u32>>,
    pub(crate) expire: Option<Duration>,
    pub(crate) lock: Option<Locking>,
    pub(crate) rebuild_after: Duration,
    pub(crate) pull_batch: usize,
    pub(crate) pull_interval: Duration,
    pub(crate) pull_idle: Duration,
    pub(crate) pull_retry: Duration,
}

/// What the threads of a consumer share.
pub(crate) struct Running<S: Source, W: Window<Value = S::Message>> {
    pub(crate) source: S,
    pub(crate) store: Box<dyn OffsetStore>,
    pub(crate) make_window: MakeWindow<W>,
    pub(crate) queue: RunQueue<W>,
    pub(crate) clock: Clock<W>,
    pub(crate) keeper: Keeper,
    pub(crate) service: Service<S::Message>,
    pub(crate) settings: Settings<S::Message>,
    /// The partitions that are assigned to this consumer.
    pub(crate) table: RwLock<Vec<Arc<Assigned<W>>>>,
    /// Locked while the table is changed by others than the keeper.
    pub(crate) rebalancing: Mutex<()>,
    /// Locked while watermarks are read and published, and while a partition is assigned anew:
    /// nothing of an assignment is published after a later one has begun.
    publishing: Mutex<()>,
    pub(crate) store_errors: AtomicU64,
    pub(crate) last_store_error: Mutex<Option<String>>,
    /// The source rings when there is news.
    rings: AtomicBool,
    /// No more pulls, of partitions that come later either.
    pub(crate) intake_stopped: AtomicBool,
    /// All partitions are suspended, those that come later too.
    pub(crate) suspended: AtomicBool,
    pub(crate) pullers: AtomicUsize,
    /// Pullers that wait for a budget which other partitions share.
    pub(crate) short: AtomicUsize,
    pub(crate) puller_threads: Mutex<Vec<JoinHandle<()>>>,
    /// Threads that wait for something to end.
    waiting: AtomicUsize,
    ending: Mutex<()>,
    ended: Condvar,
}

impl<S, W> Running<S, W>
where
    S: Source,
    W: Window<Value = S::Message> + Send + Sync + 'static,
{
    pub(crate) fn new(
        source: S,
        store: Box<dyn OffsetStore>,
        make_window: MakeWindow<W>,
        clock: Clock<W>,
        keeper: Keeper,
        service: Service<S::Message>,
        settings: Settings<S::Message>,
    ) -> Self {
        let exclusive = matches!(service, Service::Orderly { .. });
        Self {
            source,
            store,
            make_window,
            queue: RunQueue::new(exclusive),
            clock,
            keeper,
            service,
            settings,
            table: RwLock::default(),
            rebalancing: Mutex::default(),
            publishing: Mutex::default(),
            store_errors: AtomicU64::new(0),
            last_store_error: Mutex::default(),
            rings: AtomicBool::new(false),
            intake_stopped: AtomicBool::new(false),
            suspended: AtomicBool::new(false),
            pullers: AtomicUsize::new(0),
            short: AtomicUsize::new(0),
            puller_threads: Mutex::default(),
            waiting: AtomicUsize::new(0),
            ending: Mutex::default(),
            ended: Condvar::new(),
        }
    }

    pub(crate) fn time(&self) -> &Time {
        &self.clock.time
    }

    /// The partitions that are assigned now.
    pub(crate) fn assigned(&self) -> Vec<Arc<Assigned<W>>> {
        self.table.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn rings(&self) -> bool {
        self.rings.load(Ordering::Acquire)
    }

    pub(crate) fn set_rings(&self, rings: bool) {
        self.rings.store(rings, Ordering::Release);
    }

    /// Has this consumer the lock of the partition, if there are locks?
    pub(crate) fn is_locked(&self, assigned: &Assigned<W>) -> bool {
        let Some(lock) = &self.settings.lock else { return true };
        let now = self.time().now();
        assigned.lock().holds(now, lock.lease)
    }

    /// Publishes every watermark that is above what is stored.
    pub(crate) fn publish(&self) -> Result<(), StoreError> {
        let publishing = self.publishing.lock().unwrap_or_else(PoisonError::into_inner);
        self.publish_these(&self.assigned())?;
        drop(publishing);
        Ok(())
    }

    /// The same of some partitions; by whoever has locked publishing.
    fn publish_these(&self, these: &[Arc<Assigned<W>>]) -> Result<(), StoreError> {
        let mut raised = Vec::new();
        for assigned in these {
            // What another may own by now is no more ours to say.
            let locked = self.is_locked(assigned);
            if let Some(next) = assigned.current().safe()
                && next > assigned.published()
                && locked
                && !assigned.is_released()
            {
                raised.push((assigned, next));
            }
        }
        if raised.is_empty() {
            return Ok(());
        }
        let named = raised.iter().map(|(assigned, next)| (assigned.partition.name(), *next));
        let offsets: Vec<_> = named.collect();
        self.stored(|store| store.publish(&offsets))?;
        for (assigned, next) in raised {
            assigned.set_published(next);
            assigned.made_room(&|| self.clock.publish_soon());
        }
        Ok(())
    }

    /// Begins a partition anew, in the store too: the log said so. From then on nothing of the old
    /// assignment is published, and nothing that it finishes changes anything.
    pub(crate) fn reset(
        &self,
        assigned: &Assigned<W>,
        part: &Assignment<Arc<W>>,
        offset: u64,
    ) -> Result<(), StoreError> {
        let _publishing = self.publishing.lock().unwrap_or_else(PoisonError::into_inner);
        if assigned.is_released() || part.watermark().is_err() || !self.is_locked(assigned) {
            // The log said so to an assignment that is over.
            return Ok(());
        }
        self.stored(|store| store.reset(assigned.partition.name(), offset))?;
        assigned.set_published(offset);
        count(&assigned.counts.resets, 1);
        assigned.reassign(offset);
        self.freed_budget(assigned);
        Ok(())
    }

    /// Begins a partition anew where the store says, which another consumer may have moved.
    pub(crate) fn begin_at_stored(&self, assigned: &Assigned<W>) -> Result<(), StoreError> {
        let _publishing = self.publishing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut offset = assigned.partition.first();
        self.stored(|store| {
            offset = store.load(assigned.partition.name())?.unwrap_or(offset);
            Ok(())
        })?;
        assigned.set_published(offset);
        assigned.reassign(offset);
        assigned.left_tail();
        assigned.began_anew();
        self.freed_budget(assigned);
        Ok(())
    }

    /// The last words on a partition: publishes, unless it was `published` just now (or that
    /// failed), and ends it. Nothing of it is published when this has returned, whatever is
    /// finished later. The watermark; and whether it was published.
    pub(crate) fn end_assignment(
        &self,
        assigned: &Arc<Assigned<W>>,
        published: Option<bool>,
    ) -> (u64, bool) {
        let _publishing = self.publishing.lock().unwrap_or_else(PoisonError::into_inner);
        let publish = || self.publish_these(&[Arc::clone(assigned)]);
        let published = published.unwrap_or_else(|| publish().or_else(|_| publish()).is_ok());
        assigned.set_released();
        // The lowest open batch may have begun below what was published while none was open.
        (assigned.current().safe().unwrap_or(0).max(assigned.published()), published)
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

    /// Something may have been finished: wakes the partition's puller, and those of others that
    /// share its budget.
    pub(crate) fn made_room(&self, assigned: &Assigned<W>) {
        assigned.made_room(&|| self.clock.publish_soon());
        self.freed_budget(assigned);
    }

    /// Something of the partition's budget may be free again.
    pub(crate) fn freed_budget(&self, assigned: &Assigned<W>) {
        // Pairs with the fence of a puller that begins to wait, after it has counted itself: either
        // this sees it counted, or it sees what was given back.
        fence(Ordering::SeqCst);
        if self.short.load(Ordering::Relaxed) == 0 {
            return;
        }
        for other in self.assigned() {
            if !std::ptr::eq(&*other, assigned) {
                other.look_again();
            }
        }
    }

    /// A partition may have become empty: wakes who waits for it.
    pub(crate) fn something_ended(&self, assigned: &Assigned<W>) {
        // Pairs with the fence of the one who waits.
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) > 0 && assigned.window.is_empty() {
            self.wake_waiting();
        }
    }

    pub(crate) fn wake_waiting(&self) {
        drop(self.ending.lock().unwrap_or_else(PoisonError::into_inner));
        self.ended.notify_all();
    }

    pub(crate) fn puller_ended(&self) {
        self.pullers.fetch_sub(1, Ordering::AcqRel);
        self.wake_waiting();
    }

    /// Waits until it holds; false when the deadline came first.
    pub(crate) fn wait(&self, until: Option<Duration>, done: impl Fn() -> bool) -> bool {
        let mut ending = self.ending.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiting.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let done = loop {
            if done() {
                break true;
            }
            ending = match until.map(|until| self.time().left(until)) {
                Some(None) => break false,
                Some(Some(left)) => {
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
        for assigned in &self.assigned() {
            if id.is_none_or(|id| assigned.partition.id() == id) {
                assigned.ring();
            }
        }
    }
}

/// Starts the thread that pulls a partition.
pub(crate) fn spawn_puller<S, W>(
    running: &Arc<Running<S, W>>,
    assigned: Arc<Assigned<W>>,
) -> std::io::Result<()>
where
    S: Source,
    W: Window<Value = S::Message> + Send + Sync + 'static,
{
    let name = std::format!("inflight-pull-{}", assigned.partition.id());
    let shared = Arc::clone(running);
    running.pullers.fetch_add(1, Ordering::AcqRel);
    let spawned = thread::Builder::new().name(name).spawn(move || {
        Puller::new(Arc::clone(&shared), assigned).run();
        shared.puller_ended();
    });
    match spawned {
        Ok(thread) => {
            let mut threads = running.puller_threads.lock().unwrap_or_else(PoisonError::into_inner);
            // Those of partitions that went long ago.
            threads.retain(|thread| !thread.is_finished());
            threads.push(thread);
            Ok(())
        }
        Err(error) => {
            running.puller_ended();
            Err(error)
        }
    }
}
