//! [`Builder`]: everything that can be set, and the start.

use std::boxed::Box;
use std::collections::HashSet;
use std::error::Error;
use std::fmt;
use std::format;
use std::io;
use std::string::String;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;
use std::vec::Vec;

use super::assigned::Assigned;
use super::consumer::Consumer;
use super::limits::Limits;
use super::outcome::{Backoff, Batch, Outcome};
use super::pull::Puller;
use super::running::{Handler, LastResort, Running, Settings};
use super::source::{Listener, News, Partition, Source, SourceError};
use super::store::{OffsetStore, StoreError};
use super::{clock, pool};
use crate::ring::RingWindow;
use crate::shared::Held;
use crate::window::Window;

/// The window of a partition unless [`Builder::window`] sets another.
pub type DefaultWindow<T> = RingWindow<T, 4096>;

type MakeWindow<W> = Box<dyn Fn(&Partition) -> Box<W>>;

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
    workers: usize,
    batch: usize,
    limits: Limits,
    backoff: Backoff,
    last_resort: Option<LastResort<S::Message>>,
    handler: Option<Handler<S::Message>>,
    pull_batch: usize,
    pull_idle: Duration,
    pull_retry: Duration,
    publish_every: Duration,
}

impl<S: Source> Builder<S> {
    pub(crate) fn new(source: S, store: Box<dyn OffsetStore>) -> Self {
        Self {
            source,
            store,
            window: Box::new(|_| RingWindow::boxed()),
            workers: 20,
            batch: 1,
            limits: Limits::default(),
            backoff: Backoff::default(),
            last_resort: None,
            handler: None,
            pull_batch: 32,
            pull_idle: Duration::from_secs(1),
            pull_retry: Duration::from_secs(3),
            publish_every: Duration::from_secs(5),
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
    pub fn window<V>(self, make: impl Fn(&Partition) -> Box<V> + 'static) -> Builder<S, V>
    where
        V: Window<Value = S::Message> + Send + Sync + 'static,
    {
        let Self { source, store, window: _, workers, batch, limits, backoff, .. } = self;
        let Self { last_resort, handler, pull_batch, pull_idle, pull_retry, publish_every, .. } =
            self;
        Builder {
            source,
            store,
            window: Box::new(make),
            workers,
            batch,
            limits,
            backoff,
            last_resort,
            handler,
            pull_batch,
            pull_idle,
            pull_retry,
            publish_every,
        }
    }

    /// Threads that call handlers, for all partitions together. Default 20. RocketMQ:
    /// `consumeThreadMin`, `consumeThreadMax`.
    pub fn workers(mut self, threads: usize) -> Self {
        self.workers = threads;
        self
    }

    /// The most messages of one handler call, 1 to 1024. Default 1. RocketMQ:
    /// `consumeMessageBatchMaxSize`.
    pub fn batch(mut self, messages: usize) -> Self {
        self.batch = messages;
        self
    }

    /// How much of each partition may be in flight: see [`Limits`].
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// How long a failed message waits before it is handled again: see [`Backoff`].
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// What to do with a message that failed in its `attempts`th delivery: `give_up` gets it and
    /// its partition's name, and when that returns `Ok` the message counts as finished. When it
    /// fails or panics, the message is retried, and given to it again after the next failure.
    ///
    /// Default: never; a message is retried until it succeeds. Deliveries are counted from the
    /// consumer's start. RocketMQ: `maxReconsumeTimes` (16) and the dead letter topic.
    ///
    /// ```
    /// # use inflight::consumer::{Builder, Source};
    /// # fn set<S: Source<Message = String>>(builder: Builder<S>) {
    /// builder.give_up_after(16, |partition, message| {
    ///     eprintln!("{partition} {}: given up: {}", message.offset(), message.value());
    ///     Ok(())
    /// });
    /// # }
    /// ```
    pub fn give_up_after(
        mut self,
        attempts: u32,
        give_up: impl Fn(&str, &Held<S::Message>) -> Result<(), SourceError> + Send + Sync + 'static,
    ) -> Self {
        self.last_resort = Some(LastResort { attempts, give_up: Box::new(give_up) });
        self
    }

    /// The most messages of one pull. Default 32. RocketMQ: `pullBatchSize`.
    pub fn pull_batch(mut self, messages: usize) -> Self {
        self.pull_batch = messages;
        self
    }

    /// How long after a pull that found nothing new the source is asked again, when it does not
    /// ring ([`Source::subscribe`]). Default 1 s.
    pub fn pull_idle(mut self, wait: Duration) -> Self {
        self.pull_idle = wait;
        self
    }

    /// How long after a pull that failed the source is asked again. Default 3 s. RocketMQ:
    /// `pullTimeDelayMillsWhenException`.
    pub fn pull_retry(mut self, wait: Duration) -> Self {
        self.pull_retry = wait;
        self
    }

    /// How often watermarks are published. Default 5 s. RocketMQ:
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
        self.handler = Some(Box::new(handler));
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
        let handler = self.handler.ok_or(StartError::Invalid {
            setting: "concurrent",
            why: "a consumer needs a handler",
        })?;
        check("workers", self.workers > 0, "at least 1")?;
        check("batch", (1..=1024).contains(&self.batch), "from 1 to 1024")?;
        check("pull_batch", self.pull_batch > 0, "at least 1")?;
        check("limits.count", self.limits.count > 0, "at least 1")?;
        check("limits.bytes", self.limits.bytes > 0, "at least 1")?;
        check("limits.span", self.limits.span > 0, "at least 1")?;
        check("limits.replay", self.limits.replay > 0, "at least 1")?;
        let attempts = self.last_resort.as_ref().map_or(1, |last| last.attempts);
        check("give_up_after", attempts > 0, "at least 1 attempt")?;

        let partitions = self.source.partitions().map_err(StartError::Source)?;
        let mut names = HashSet::new();
        let mut assigned = Vec::with_capacity(partitions.len());
        for partition in partitions {
            if !names.insert(String::from(partition.name())) {
                return Err(StartError::TwiceNamed(partition.name().into()));
            }
            let stored = self.store.load(partition.name()).map_err(StartError::Store)?;
            let start = stored.unwrap_or(partition.first());
            let window: Arc<W> = Arc::from((self.window)(&partition));
            let capacity = window.capacity().map_or(u64::MAX, |capacity| capacity as u64);
            check(
                "limits.span",
                self.limits.span <= capacity,
                "no larger than the window's capacity; Builder::window sets a larger one",
            )?;
            assigned.push(Assigned::new(partition, window, start, self.limits));
        }

        let settings = Settings {
            batch: self.batch,
            backoff: self.backoff,
            last_resort: self.last_resort,
            handler,
            pull_batch: self.pull_batch,
            pull_idle: self.pull_idle,
            pull_retry: self.pull_retry,
            publish_every: self.publish_every,
        };
        let running = Arc::new(Running::new(self.source, self.store, assigned, settings));
        let listener: Weak<dyn Listener> = Arc::downgrade(&running) as _;
        running.set_rings(running.source.subscribe(News::new(listener)));

        // Dropped by a failing spawn, it stops the threads that run already.
        let mut consumer = Consumer::new(running.clone());
        if let Some(threads) = &mut consumer.threads {
            let shared = Arc::clone(&running);
            threads.clock = Some(spawn("inflight-clock".into(), move || clock::run(&shared))?);
            for number in 0..self.workers {
                let shared = Arc::clone(&running);
                let name = format!("inflight-worker-{number}");
                threads.workers.push(spawn(name, move || pool::work(&shared))?);
            }
            for index in 0..running.assigned.len() {
                let shared = Arc::clone(&running);
                threads.pullers.push(spawn(format!("inflight-pull-{index}"), move || {
                    Puller::new(Arc::clone(&shared), index).run();
                    shared.puller_ended();
                })?);
            }
        }
        Ok(consumer)
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
            .field("workers", &self.workers)
            .field("batch", &self.batch)
            .field("limits", &self.limits)
            .field("backoff", &self.backoff)
            .field("pull_batch", &self.pull_batch)
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
