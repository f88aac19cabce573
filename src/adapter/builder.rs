//! [`Builder`]: everything that can be set, and the start.

use std::boxed::Box;
use std::error::Error;
use std::fmt;
use std::format;
use std::hash::{BuildHasher, Hash};
use std::io;
use std::string::String;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, SystemTime};
#[cfg(feature = "async")]
use std::{future::Future, vec::Vec};

use super::clock::{self, Clock};
use super::consumer::Consumer;
use super::failed::{Failed, SendBack};
use super::keeper::{self, Keeper};
use super::limits::Limits;
use super::lock::PartitionLock;
use super::outcome::{Backoff, Batch, MOST, Ordered, Outcome};
use super::pool;
#[cfg(feature = "async")]
use super::running::Answer;
use super::running::{Call, Locking, MakeWindow, Running, Service, Settings, spawn_puller};
use super::source::{Listener, News, Partition, Source, SourceError};
use super::stepped::Stepped;
use super::store::{OffsetStore, StoreError};
use super::table::AssignError;
#[cfg(feature = "async")]
use super::tasks::{OwnedBatch, Worker};
use super::time::Time;
use crate::ring::RingWindow;
use crate::window::Window;

/// The window of a partition unless [`Builder::window`] sets another.
pub type DefaultWindow<T> = RingWindow<T, 4096>;

/// The settings of a consumer, made by [`Consumer::builder`]. All have defaults, except the
/// handler.
///
/// ```
/// use std::time::Duration;
/// use inflight::consumer::{Backoff, Builder, Limits, Source};
///
/// fn set<S: Source>(builder: Builder<S>) -> Builder<S> {
///     builder
///         .workers(8)
///         .batch(32)
///         .limits(Limits::default().count(500).replay(10_000))
///         .backoff(Backoff::new(Duration::from_millis(100), Duration::from_secs(30)))
///         .pull_batch(256)
///         .publish_every(Duration::from_secs(1))
/// }
/// ```
#[must_use = "nothing runs before `start`"]
pub struct Builder<S: Source, W = DefaultWindow<<S as Source>::Message>> {
    source: S,
    store: Box<dyn OffsetStore>,
    window: MakeWindow<W>,
    service: Option<Service<S::Message>>,
    settings: Settings<S::Message>,
    manual_commit: bool,
    publish_every: Duration,
    expire_every: Duration,
    lock_every: Duration,
}

impl<S: Source> Builder<S> {
    pub(crate) fn new(source: S, store: Box<dyn OffsetStore>) -> Self {
        Self {
            source,
            store,
            window: Box::new(|_| RingWindow::boxed()),
            service: None,
            settings: Settings {
                workers: 20,
                batch: 1,
                limits: Limits::default(),
                backoff: Backoff::default(),
                suspend_for: Duration::from_secs(1),
                max_attempts: 16,
                give_up: None,
                send_back: None,
                resend_after: Duration::from_secs(5),
                broadcast: None,
                filter: None,
                not_before: None,
                attempts: None,
                expire: Some(Duration::from_secs(15 * 60)),
                lock: None,
                rebuild_after: Duration::from_secs(120),
                pull_batch: 32,
                pull_interval: Duration::ZERO,
                pull_idle: Duration::from_secs(1),
                pull_retry: Duration::from_secs(3),
            },
            manual_commit: false,
            publish_every: Duration::from_secs(5),
            expire_every: Duration::from_secs(60),
            lock_every: Duration::from_secs(20),
        }
    }
}

impl<S: Source, W> Builder<S, W> {
    /// How each partition's window is made, for another kind or capacity than
    /// [`DefaultWindow`]: an empty window of its own, which the consumer alone puts into.
    ///
    /// ```
    /// # use inflight::RingWindow;
    /// # use inflight::consumer::{Builder, Limits, Source};
    /// # fn set<S: Source>(builder: Builder<S>) {
    /// builder
    ///     .window(|_| RingWindow::<_, 65_536>::boxed())
    ///     .limits(Limits::default().count(50_000).span(60_000));
    /// # }
    /// ```
    ///
    /// A sparse log (byte positions, LSNs) goes through a window numbered by arrival; its span is
    /// then counted in messages. `SkipWindow::numbered()` bounds it by nothing but the limits.
    ///
    /// ```
    /// # #[cfg(target_pointer_width = "64")]
    /// # mod wide {
    /// # use inflight::{RingWindow, SkipWindow};
    /// # use inflight::consumer::{Builder, Limits, Source};
    /// # fn ring<S: Source>(builder: Builder<S>) {
    /// builder.window(|_| RingWindow::<_, 4096>::boxed_numbered());
    /// # }
    /// # fn skip<S: Source>(builder: Builder<S>) {
    /// builder
    ///     .window(|_| Box::new(SkipWindow::numbered()))
    ///     .limits(Limits::default().span(u64::MAX));
    /// # }
    /// # }
    /// ```
    ///
    /// Partitions share one limit through windows that are [`Budgeted`](crate::Budgeted), each with
    /// a floor if they are to have one. Every pull then reserves what it may bring before it begins,
    /// so that together they never have more, and a partition that is short goes on when another
    /// has finished something, ended, or begun anew. (What another consumer gives back to the same
    /// budget is seen after [`Builder::pull_retry`] at the latest. A pull that waits for
    /// messages holds what it has reserved meanwhile; a message larger than the budget is an error
    /// that shows in the progress.)
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use inflight::consumer::{Builder, Source};
    /// use inflight::{Budget, Budgeted, RingWindow, Share};
    ///
    /// # fn set<S: Source>(builder: Builder<S>) {
    /// let budget = Arc::new(Budget::new(10_000, 1 << 30));
    /// builder.window(move |_| {
    ///     let share = Share::with_floor(Arc::clone(&budget), 100, 1 << 20);
    ///     let share = share.unwrap_or_else(|_| Share::new(Arc::clone(&budget)));
    ///     Box::new(Budgeted::new(RingWindow::<_, 4096>::boxed(), share))
    /// });
    /// # }
    /// ```
    pub fn window<V>(
        self,
        make: impl Fn(&Partition) -> Box<V> + Send + Sync + 'static,
    ) -> Builder<S, V>
    where
        V: Window<Value = S::Message> + Send + Sync + 'static,
    {
        let Self { source, store, window: _, service, settings, manual_commit, .. } = self;
        let Self { publish_every, expire_every, lock_every, .. } = self;
        Builder {
            source,
            store,
            window: Box::new(make),
            service,
            settings,
            manual_commit,
            publish_every,
            expire_every,
            lock_every,
        }
    }

    /// Threads that call handlers, for all partitions together. Default 20. RocketMQ:
    /// `consumeThreadMin`, `consumeThreadMax`.
    pub fn workers(mut self, threads: usize) -> Self {
        self.settings.workers = threads;
        self
    }

    /// The most messages of one handler call, 1 to 1024. Default 1. RocketMQ:
    /// `consumeMessageBatchMaxSize`.
    pub fn batch(mut self, messages: usize) -> Self {
        self.settings.batch = messages;
        self
    }

    /// How much of each partition may be in flight: see [`Limits`].
    pub fn limits(mut self, limits: Limits) -> Self {
        self.settings.limits = limits;
        self
    }

    /// How long a failed message waits before it is handled again: see [`Backoff`].
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.settings.backoff = backoff;
        self
    }

    /// How often a message is tried before it goes to the dead letters, if there are any:
    /// [`Builder::send_back`] or [`Builder::give_up_after`]. Default 16. RocketMQ:
    /// `maxReconsumeTimes`.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.settings.max_attempts = attempts;
        self
    }

    /// What to do with a message that failed in its `attempts`th delivery: `give_up` gets it, and
    /// when that returns `Ok` the message counts as finished. When it fails or panics, the message
    /// is retried after [`Builder::resend_after`], and given to it again after the next failure.
    ///
    /// Default: never; without this and [`Builder::send_back`] a message is retried until it
    /// succeeds. Attempts are counted from the consumer's start, unless [`Builder::attempts`] says
    /// more. RocketMQ: `maxReconsumeTimes` (16) and the dead letter topic.
    ///
    /// ```
    /// # use inflight::consumer::{Builder, Failed, Source};
    /// # fn set<S: Source<Message = String>>(builder: Builder<S>) {
    /// builder.give_up_after(16, |failed: &Failed<String>| {
    ///     eprintln!("{} {}: {}", failed.partition(), failed.offset(), failed.value());
    ///     Ok(())
    /// });
    /// # }
    /// ```
    pub fn give_up_after(
        mut self,
        attempts: u32,
        give_up: impl Fn(&Failed<'_, S::Message>) -> Result<(), SourceError> + Send + Sync + 'static,
    ) -> Self {
        self.settings.max_attempts = attempts;
        self.settings.give_up = Some(Box::new(give_up));
        self
    }

    /// Where messages go that a handler answers [`SendBack`](super::Verdict::SendBack) for, that
    /// expired, or that were tried too often (unless [`Builder::give_up_after`] takes those).
    /// RocketMQ: `sendMessageBack`.
    pub fn send_back(mut self, back: impl SendBack<S::Message>) -> Self {
        self.settings.send_back = Some(Box::new(back));
        self
    }

    /// How long after sending back, or giving up, failed the message is tried again. It stays
    /// in the window until then. Default 5 s, as RocketMQ's.
    pub fn resend_after(mut self, wait: Duration) -> Self {
        self.settings.resend_after = wait;
        self
    }

    /// The broadcast model: every consumer gets every message, so one that fails is not retried
    /// or sent anywhere, but reported, and finished. A panic of `report` makes it be tried again.
    /// RocketMQ: `MessageModel.BROADCASTING`, with a store of this machine's own ([`FileStore`]).
    ///
    /// [`FileStore`]: super::FileStore
    pub fn broadcast(
        mut self,
        report: impl Fn(&Failed<'_, S::Message>) + Send + Sync + 'static,
    ) -> Self {
        self.settings.broadcast = Some(Box::new(report));
        self
    }

    /// Which messages this consumer wants. The others count as finished, and never are in the
    /// window. RocketMQ: the filter by tags on the client.
    pub fn filter(mut self, wanted: impl Fn(&S::Message) -> bool + Send + Sync + 'static) -> Self {
        self.settings.filter = Some(Box::new(wanted));
        self
    }

    /// Before which time a message is not handled, if there is one. It waits in the window; in
    /// [`Builder::orderly`] and for its key in [`Builder::keyed`] what comes after it waits too.
    pub fn not_before(
        mut self,
        time: impl Fn(&S::Message) -> Option<SystemTime> + Send + Sync + 'static,
    ) -> Self {
        self.settings.not_before = Some(Box::new(time));
        self
    }

    /// How often a message was tried before it came here, as its broker says. RocketMQ:
    /// `reconsumeTimes`.
    ///
    /// ```
    /// # use std::time::{Duration, SystemTime};
    /// # use inflight::consumer::{Builder, Source};
    /// #[derive(Clone)]
    /// struct Message {
    ///     tag: &'static str,
    ///     retries: u32,
    ///     deliver_at: Option<SystemTime>,
    /// }
    ///
    /// # fn set<S: Source<Message = Message>>(builder: Builder<S>) -> Builder<S> {
    /// builder
    ///     .filter(|message| message.tag == "paid")
    ///     .attempts(|message| message.retries)
    ///     .not_before(|message| message.deliver_at)
    /// # }
    /// ```
    pub fn attempts(mut self, before: impl Fn(&S::Message) -> u32 + Send + Sync + 'static) -> Self {
        self.settings.attempts = Some(Box::new(before));
        self
    }

    /// How long a handler may hold a message: then it is taken away, and sent back
    /// ([`Builder::send_back`]) or, without that, given to another worker; what the first one
    /// still says of it changes nothing. At most 16 messages of a partition in each pass, a
    /// failed one is tried again in the next. Default 15 minutes; in [`Builder::concurrent`] only.
    /// RocketMQ: `consumeTimeout`.
    pub fn expire_after(mut self, timeout: Duration) -> Self {
        self.settings.expire = Some(timeout);
        self
    }

    /// How often expired messages are looked for. Default one minute. (RocketMQ: as often as the
    /// timeout is long, so that it takes up to twice that.)
    pub fn expire_every(mut self, interval: Duration) -> Self {
        self.expire_every = interval;
        self
    }

    /// A partition is consumed only while this consumer has its lock. The lock is renewed every
    /// [`Builder::lock_every`] and believed for [`Builder::lock_lease`]; when it was taken, the
    /// partition begins at the stored offset, which an owner before may have moved; it is given
    /// back after the watermark is published, never before. RocketMQ: `lockMQPeriodically`.
    pub fn lock(mut self, lock: impl PartitionLock) -> Self {
        let lease = self.settings.lock.map_or(Duration::from_secs(30), |locking| locking.lease);
        self.settings.lock = Some(Locking { lock: Box::new(lock), lease });
        self
    }

    /// How long a lock is believed after it was renewed; after [`Builder::lock`]. Default 30 s.
    pub fn lock_lease(mut self, lease: Duration) -> Self {
        if let Some(locking) = &mut self.settings.lock {
            locking.lease = lease;
        }
        self
    }

    /// How often locks are taken and renewed. Default 20 s.
    pub fn lock_every(mut self, interval: Duration) -> Self {
        self.lock_every = interval;
        self
    }

    /// How long a pull may take before its partition is given up and begun anew at its watermark,
    /// with another thread. Default 120 s. A puller that waits, for news, for room or because it
    /// is suspended, does not pull. RocketMQ: `isPullExpired`.
    pub fn rebuild_after(mut self, timeout: Duration) -> Self {
        self.settings.rebuild_after = timeout;
        self
    }

    /// How long after a pull of a partition began the next one may begin. Default none. RocketMQ:
    /// `pullInterval`.
    pub fn pull_interval(mut self, interval: Duration) -> Self {
        self.settings.pull_interval = interval;
        self
    }

    /// How long a partition is suspended in [`Builder::orderly`] when a handler does not say; from
    /// 10 ms to 30 s. Default 1 s. RocketMQ: `suspendCurrentQueueTimeMillis`.
    pub fn suspend_for(mut self, wait: Duration) -> Self {
        self.settings.suspend_for = wait;
        self
    }

    /// In [`Builder::orderly`], [`Ordered::Success`] keeps the messages until a later batch says
    /// [`Ordered::Commit`] or [`Ordered::Rollback`]. They count in [`Limits`]: when nothing more
    /// fits, nobody is asked any more. RocketMQ: `setAutoCommit(false)`.
    pub fn manual_commit(mut self) -> Self {
        self.manual_commit = true;
        self
    }

    /// The most messages of one pull. Default 32. RocketMQ: `pullBatchSize`.
    pub fn pull_batch(mut self, messages: usize) -> Self {
        self.settings.pull_batch = messages;
        self
    }

    /// How long after a pull that found nothing new the source is asked again, when it does not
    /// ring ([`Source::subscribe`]). Default 1 s.
    pub fn pull_idle(mut self, wait: Duration) -> Self {
        self.settings.pull_idle = wait;
        self
    }

    /// How long after a pull that failed the source is asked again. Default 3 s. RocketMQ:
    /// `pullTimeDelayMillsWhenException`.
    pub fn pull_retry(mut self, wait: Duration) -> Self {
        self.settings.pull_retry = wait;
        self
    }

    /// How often watermarks are published, and, with the feature `metrics`, the numbers of
    /// [`Consumer::progress`] recorded. Default 5 s. RocketMQ:
    /// `persistConsumerOffsetInterval`.
    pub fn publish_every(mut self, interval: Duration) -> Self {
        self.publish_every = interval;
        self
    }

    /// Handles batches of a partition in parallel and in any order. RocketMQ:
    /// `MessageListenerConcurrently`.
    ///
    /// The handler says what became of the messages: any subset may have succeeded. When it
    /// panics, the panic is contained and counted, and all messages of the batch are retried.
    pub fn concurrent(
        mut self,
        handler: impl Fn(&Batch<'_, S::Message>) -> Outcome + Send + Sync + 'static,
    ) -> Self {
        self.service = Some(Service::Concurrent(Call::Now(Box::new(handler))));
        self
    }

    /// Handles the batches of a partition one after the other, in order; those of different
    /// partitions in parallel. RocketMQ: `MessageListenerOrderly`.
    ///
    /// After each batch the partition goes behind all others that have something, so none holds a
    /// worker for longer than one call. (RocketMQ: up to 60 s.) With a dead letter place
    /// ([`Builder::send_back`], [`Builder::give_up_after`]) messages of a suspended batch that were
    /// tried too often go there; without one the partition waits for them for ever.
    ///
    /// ```
    /// # use inflight::consumer::{Batch, Builder, Ordered, Source};
    /// # fn set<S: Source<Message = u64>>(builder: Builder<S>) -> Builder<S> {
    /// builder.batch(8).orderly(|batch: &Batch<u64>| -> Ordered {
    ///     match batch.iter().all(|(_, number)| *number > 0) {
    ///         true => Ordered::Success,
    ///         false => Ordered::Suspend(None),
    ///     }
    /// })
    /// # }
    /// ```
    pub fn orderly(
        mut self,
        handler: impl Fn(&Batch<'_, S::Message>) -> Ordered + Send + Sync + 'static,
    ) -> Self {
        let handler = Call::Now(Box::new(handler));
        self.service = Some(Service::Orderly { handler, manual: false });
        self
    }

    /// Handles the messages of one key one after the other, in order, those of different keys in
    /// parallel, within each partition. A batch has messages of one key. What fails is tried again
    /// before later messages of its key.
    ///
    /// ```
    /// # use inflight::consumer::{Batch, Builder, Outcome, Source};
    /// # fn set<S: Source<Message = (String, u64)>>(builder: Builder<S>) -> Builder<S> {
    /// builder.keyed(
    ///     |(customer, _)| customer.clone(),
    ///     |batch: &Batch<(String, u64)>| -> Outcome { Outcome::Done },
    /// )
    /// # }
    /// ```
    pub fn keyed<K: Hash>(
        mut self,
        key: impl Fn(&S::Message) -> K + Send + Sync + 'static,
        handler: impl Fn(&Batch<'_, S::Message>) -> Outcome + Send + Sync + 'static,
    ) -> Self {
        let key = hashed(key);
        self.service = Some(Service::Keyed { handler: Call::Now(Box::new(handler)), key });
        self
    }

    /// As [`Builder::concurrent`], by a handler that answers with a future; started by
    /// [`Builder::start_tasks`]. Feature `async`. A future that is dropped, with the task that its
    /// worker is in, gives its messages back.
    #[cfg(feature = "async")]
    pub fn concurrent_async<F>(
        mut self,
        handler: impl Fn(OwnedBatch<S::Message>) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Outcome> + Send + 'static,
    {
        self.service = Some(Service::Concurrent(later(handler, Answer::Any)));
        self
    }

    /// As [`Builder::keyed`], by a handler that answers with a future; started by
    /// [`Builder::start_tasks`]. Feature `async`. With one key for all, the batches of a partition
    /// are handled one after the other.
    #[cfg(feature = "async")]
    pub fn keyed_async<K: Hash, F>(
        mut self,
        key: impl Fn(&S::Message) -> K + Send + Sync + 'static,
        handler: impl Fn(OwnedBatch<S::Message>) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Outcome> + Send + 'static,
    {
        let handler = later(handler, Answer::Any);
        self.service = Some(Service::Keyed { handler, key: hashed(key) });
        self
    }

    /// As [`Builder::orderly`], by a handler that answers with a future; started by
    /// [`Builder::start_tasks`]. Feature `async`. A future that is dropped, with the task that its
    /// worker is in, gives its messages back, and another worker goes on with them.
    ///
    /// ```
    /// # use inflight::consumer::{Builder, Ordered, OwnedBatch, Source};
    /// # async fn write(_: &[inflight::consumer::Owned<u64>]) -> bool { true }
    /// # fn set<S: Source<Message = u64>>(builder: Builder<S>) -> Builder<S> {
    /// builder.batch(8).orderly_async(|batch: OwnedBatch<u64>| async move {
    ///     match write(batch.messages()).await {
    ///         true => Ordered::Success,
    ///         false => Ordered::Suspend(None),
    ///     }
    /// })
    /// # }
    /// ```
    #[cfg(feature = "async")]
    pub fn orderly_async<F>(
        mut self,
        handler: impl Fn(OwnedBatch<S::Message>) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Ordered> + Send + 'static,
    {
        let handler = later(handler, Answer::Ordered);
        self.service = Some(Service::Orderly { handler, manual: false });
        self
    }

    /// As [`Builder::batched`], by a handler that answers with a future; started by
    /// [`Builder::start_tasks`]. Feature `async`. A part whose future is dropped, with the task that
    /// its worker is in, goes to another worker.
    ///
    /// ```
    /// # use inflight::consumer::{Builder, Outcome, OwnedBatch, Source};
    /// # async fn write(_: &[inflight::consumer::Owned<u64>]) {}
    /// # fn set<S: Source<Message = u64>>(builder: Builder<S>) -> Builder<S> {
    /// builder.workers(8).batch(50).batched_async(|part: OwnedBatch<u64>| async move {
    ///     write(part.messages()).await;
    ///     Outcome::Done
    /// })
    /// # }
    /// ```
    #[cfg(feature = "async")]
    pub fn batched_async<F>(
        mut self,
        handler: impl Fn(OwnedBatch<S::Message>) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Outcome> + Send + 'static,
    {
        self.service = Some(Service::Batched(later(handler, Answer::Any)));
        self
    }

    /// Handles numbered batches, each with a part for every worker that is free, and publishes
    /// what the lowest complete batches say ([`BatchWatermark`](crate::BatchWatermark)). A slow
    /// batch holds up what is published, not the batches after it. What fails of a part is tried
    /// again by itself until the part is done. PMQ: the batch recorder and its executor.
    ///
    /// ```
    /// # use inflight::consumer::{Batch, Builder, Outcome, Source};
    /// # fn set<S: Source<Message = u64>>(builder: Builder<S>) -> Builder<S> {
    /// builder.workers(8).batch(50).batched(|part: &Batch<u64>| -> Outcome { Outcome::Done })
    /// # }
    /// ```
    pub fn batched(
        mut self,
        handler: impl Fn(&Batch<'_, S::Message>) -> Outcome + Send + Sync + 'static,
    ) -> Self {
        self.service = Some(Service::Batched(Call::Now(Box::new(handler))));
        self
    }
}

impl<S, W> Builder<S, W>
where
    S: Source,
    W: Window<Value = S::Message> + Send + Sync + 'static,
{
    /// Reads the stored offsets and starts.
    ///
    /// # Errors
    /// [`StartError`]; then nothing runs.
    pub fn start(self) -> Result<Consumer, StartError> {
        let workers = self.settings.workers;
        check("start", !self.is_later(), "start_tasks, for a handler that answers with a future")?;
        Self::run(self.prepare(Time::real())?, workers)
    }

    /// Reads the stored offsets and starts, with workers that are futures: [`Builder::workers`] of
    /// them, each to be given to an executor as a task. They end when the consumer is stopped. What
    /// may block (source, store, locks, sending back) keeps its threads; waiting for the end by
    /// [`Consumer::shutdown`] blocks too.
    ///
    /// # Errors
    /// [`StartError`]; then nothing runs.
    ///
    /// ```
    /// use std::time::Duration;
    /// use inflight::consumer::{
    ///     Consumer, Fetched, MemoryStore, Outcome, OwnedBatch, Partition, PullRequest, Pulled,
    ///     Source, SourceError,
    /// };
    ///
    /// /// A log of one hundred numbers.
    /// struct Numbers;
    ///
    /// impl Source for Numbers {
    ///     type Message = u64;
    ///
    ///     fn partitions(&self) -> Result<Vec<Partition>, SourceError> {
    ///         Ok(vec![Partition::new(0, "numbers")])
    ///     }
    ///
    ///     fn pull(&self, _: &Partition, ask: &PullRequest) -> Result<Pulled<u64>, SourceError> {
    ///         let next = 100.min(ask.from + ask.messages as u64);
    ///         if next == ask.from {
    ///             return Ok(Pulled::NothingNew);
    ///         }
    ///         let messages = (ask.from..next).map(|n| Fetched::new(n, 8, n)).collect();
    ///         Ok(Pulled::Found { messages, next })
    ///     }
    /// }
    ///
    /// let runtime = tokio::runtime::Builder::new_multi_thread().enable_time().build()?;
    /// let (consumer, workers) = Consumer::builder(Numbers, MemoryStore::default())
    ///     .workers(8)
    ///     .concurrent_async(|batch: OwnedBatch<u64>| async move {
    ///         tokio::time::sleep(Duration::from_micros(batch.messages()[0].value)).await;
    ///         Outcome::Done
    ///     })
    ///     .start_tasks()?;
    /// workers.into_iter().for_each(|worker| drop(runtime.spawn(worker)));
    /// assert!(consumer.wait_caught_up(Duration::from_secs(10)));
    /// assert_eq!(consumer.shutdown(Duration::from_secs(10))?.left(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "async")]
    pub fn start_tasks(self) -> Result<(Consumer, Vec<Worker>), StartError> {
        let workers = self.settings.workers;
        check("start_tasks", self.is_later(), "start, for a handler that answers at once")?;
        let running = self.prepare(Time::real())?;
        let tasks = (0..workers).map(|_| super::tasks::worker(Arc::clone(&running))).collect();
        Ok((Self::run(running, 0)?, tasks))
    }

    fn is_later(&self) -> bool {
        self.service.as_ref().is_some_and(Service::is_later)
    }

    /// Starts the threads.
    fn run(running: Arc<Running<S, W>>, workers: usize) -> Result<Consumer, StartError> {
        // Dropped by a failing spawn, it stops the threads that run already.
        let mut consumer = Consumer::new(running.clone());
        if let Some(threads) = &mut consumer.threads {
            let shared = Arc::clone(&running);
            threads.clock = Some(spawn("inflight-clock".into(), move || clock::run(&shared))?);
            let names = ["inflight-keeper", "inflight-locks"];
            for (name, duties) in names.into_iter().zip(keeper::THREADS) {
                let shared = Arc::clone(&running);
                // Not waited for at the end: it may hang in somebody's lock or send-back.
                drop(spawn(name.into(), move || keeper::run(&shared, duties))?);
            }
            for number in 0..workers {
                let shared = Arc::clone(&running);
                let name = format!("inflight-worker-{number}");
                threads.workers.push(spawn(name, move || pool::work(&shared))?);
            }
            for assigned in running.assigned() {
                spawn_puller(&running, assigned).map_err(StartError::Thread)?;
            }
        }
        Ok(consumer)
    }

    /// Reads the stored offsets, and makes a consumer without threads, whose clock is moved by
    /// hand: every step of it is a call. For tests that want to choose what happens when.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn stepped(self) -> Result<Stepped<S, W>, StartError> {
        check("stepped", !self.is_later(), "for a handler that answers at once")?;
        self.prepare(Time::by_hand()).map(Stepped::new)
    }

    fn prepare(mut self, time: Time) -> Result<Arc<Running<S, W>>, StartError> {
        let mut service = self.service.take().ok_or(StartError::Invalid {
            setting: "concurrent",
            why: "a consumer needs a handler",
        })?;
        if let Service::Orderly { manual, .. } = &mut service {
            *manual = self.manual_commit;
        }
        let settings = self.settings;
        let limits = settings.limits;
        check("workers", settings.workers > 0, "at least 1")?;
        check("batch", (1..=MOST).contains(&settings.batch), "from 1 to 1024")?;
        check("pull_batch", settings.pull_batch > 0, "at least 1")?;
        check("limits.count", limits.count > 0, "at least 1")?;
        check("limits.bytes", limits.bytes > 0, "at least 1")?;
        check("limits.span", limits.span > 0, "at least 1")?;
        check("limits.replay", limits.replay > 0, "at least 1")?;
        check("max_attempts", settings.max_attempts > 0, "at least 1")?;
        check("expire_every", !self.expire_every.is_zero(), "more than nothing")?;
        check("rebuild_after", !settings.rebuild_after.is_zero(), "more than nothing")?;
        let renewed = !self.lock_every.is_zero()
            && settings.lock.as_ref().is_none_or(|lock| self.lock_every <= lock.lease);
        check("lock_every", renewed, "more than nothing, and no longer than the lease")?;

        #[cfg(feature = "metrics")]
        super::observe::describe();
        let now = time.now();
        // A hanging pull is seen at most a quarter of its time late.
        let rebuild_every = settings.rebuild_after / 4;
        let expires = matches!(service, Service::Concurrent(_)) && settings.expire.is_some();
        let every = [
            expires.then_some(self.expire_every),
            settings.lock.as_ref().map(|_| self.lock_every),
            Some(rebuild_every),
        ];
        let partitions = self.source.partitions().map_err(StartError::Source)?;
        let running = Arc::new(Running::new(
            self.source,
            self.store,
            self.window,
            Clock::new(time, self.publish_every),
            Keeper::new(every, now),
            service,
            settings,
        ));
        running.assign(partitions, Duration::ZERO).map_err(StartError::from)?;
        let listener: Weak<dyn Listener> = Arc::downgrade(&running) as _;
        running.set_rings(running.source.subscribe(News::new(listener)));
        Ok(running)
    }
}

/// A key as a number. Two keys of one number only wait for each other.
fn hashed<T: 'static, K: Hash>(
    key: impl Fn(&T) -> K + Send + Sync + 'static,
) -> super::running::Of<T, u64> {
    let hasher = std::hash::RandomState::new();
    Box::new(move |value| hasher.hash_one(key(value)))
}

#[cfg(feature = "async")]
fn later<T, F>(
    handler: impl Fn(OwnedBatch<T>) -> F + Send + Sync + 'static,
    answer: fn(F::Output) -> Answer,
) -> Call<T, F::Output>
where
    T: 'static,
    F: Future + Send + 'static,
{
    Call::Later(Box::new(move |batch| {
        let later = handler(batch);
        Box::pin(async move { answer(later.await) })
    }))
}

impl From<AssignError> for StartError {
    fn from(error: AssignError) -> Self {
        match error {
            AssignError::Source(error) => Self::Source(error),
            AssignError::TwiceNamed(name) => Self::TwiceNamed(name),
            AssignError::Store(error) => Self::Store(error),
            AssignError::Thread(_, error) => Self::Thread(error),
            AssignError::Span(_) | AssignError::Stopped => Self::Invalid {
                setting: "limits.span",
                why: "no larger than the window's capacity; Builder::window sets a larger one",
            },
        }
    }
}

fn check(setting: &'static str, holds: bool, why: &'static str) -> Result<(), StartError> {
    if holds { Ok(()) } else { Err(StartError::Invalid { setting, why }) }
}

fn spawn(
    name: String,
    run: impl FnOnce() + Send + 'static,
) -> Result<thread::JoinHandle<()>, StartError> {
    thread::Builder::new().name(name).spawn(run).map_err(StartError::Thread)
}

impl<S: Source, W> fmt::Debug for Builder<S, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("workers", &self.settings.workers)
            .field("batch", &self.settings.batch)
            .field("limits", &self.settings.limits)
            .field("backoff", &self.settings.backoff)
            .field("pull_batch", &self.settings.pull_batch)
            .field("publish_every", &self.publish_every)
            .finish_non_exhaustive()
    }
}

/// Why a consumer did not start.
///
/// ```
/// use inflight::consumer::{Builder, Source, StartError};
///
/// fn start<S: Source>(builder: Builder<S>) {
///     match builder.workers(0).start() {
///         Err(StartError::Invalid { setting, why }) => eprintln!("{setting}: {why}"),
///         Err(error) => eprintln!("{error}"),
///         Ok(_) => unreachable!(),
///     }
/// }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// A setting is out of range.
    Invalid {
        /// The builder's method.
        setting: &'static str,
        /// What it must be.
        why: &'static str,
    },
    /// The source could not say its partitions.
    Source(SourceError),
    /// Two partitions have this name.
    TwiceNamed(String),
    /// The store could not say where to begin. Nothing starts from zero by itself.
    Store(StoreError),
    /// A thread could not be started.
    Thread(io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid { setting, why } => write!(f, "{setting}: {why}"),
            Self::Source(error) => write!(f, "the source has no partitions to say: {error}"),
            Self::TwiceNamed(name) => write!(f, "two partitions are named {name:?}"),
            Self::Store(error) => error.fmt(f),
            Self::Thread(error) => write!(f, "a thread could not be started: {error}"),
        }
    }
}

impl Error for StartError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Invalid { .. } | Self::TwiceNamed(_) => None,
            Self::Source(error) => Some(&**error),
            Self::Store(error) => Some(error),
            Self::Thread(error) => Some(error),
        }
    }
}
