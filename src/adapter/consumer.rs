//! [`Consumer`]: the handle on a running consumer: how far it is, and how it is stopped.

use std::boxed::Box;
use std::error::Error;
use std::fmt;
use std::string::String;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use std::vec::Vec;

use super::builder::Builder;
use super::machine::Machine;
use super::source::{Partition, Source};
use super::store::{OffsetStore, StoreError};
use super::table::AssignError;
use crate::look::Look;

/// A running consumer: pulls messages of all partitions of a source, lets a pool of workers handle
/// them in any order, and publishes the watermarks.
///
/// At least once: a message is finished only when its handler said so. After a crash everything
/// from the published watermark on is handled again.
///
/// Dropped without [`Consumer::shutdown`], it stops as by a crash: handlers that run go on to
/// their end, nothing is waited for and nothing more is published.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use inflight::consumer::{
///     Batch, Consumer, Fetched, Limits, MemoryStore, OffsetStore, Outcome, Partition,
///     PullRequest, Pulled, Source, SourceError,
/// };
///
/// /// A log of one thousand numbers.
/// struct Numbers;
///
/// impl Source for Numbers {
///     type Message = u64;
///
///     fn partitions(&self) -> Result<Vec<Partition>, SourceError> {
///         Ok(vec![Partition::new(0, "numbers")])
///     }
///
///     fn pull(&self, _: &Partition, request: &PullRequest) -> Result<Pulled<u64>, SourceError> {
///         let next = 1000.min(request.from + request.messages as u64);
///         if next == request.from {
///             return Ok(Pulled::NothingNew);
///         }
///         let messages = (request.from..next).map(|n| Fetched::new(n, 8, n * n)).collect();
///         Ok(Pulled::Found { messages, next })
///     }
/// }
///
/// let store = Arc::new(MemoryStore::default());
/// let consumer = Consumer::builder(Numbers, store.clone())
///     .workers(4)
///     .batch(16)
///     .limits(Limits::default().count(100))
///     .concurrent(|batch: &Batch<u64>| -> Outcome {
///         assert!(batch.iter().all(|(offset, square)| offset * offset == *square));
///         Outcome::Done
///     })
///     .start()?;
/// assert!(consumer.wait_caught_up(Duration::from_secs(10)));
/// let report = consumer.shutdown(Duration::from_secs(10))?;
/// assert_eq!((report.left(), store.load("numbers")?), (0, Some(1000)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Consumer {
    machine: Arc<dyn Machine>,
    pub(crate) threads: Option<Threads>,
}

/// The threads of a consumer.
#[derive(Default)]
pub(crate) struct Threads {
    pub(crate) workers: Vec<JoinHandle<()>>,
    pub(crate) clock: Option<JoinHandle<()>>,
}

impl Consumer {
    /// A consumer of this source that keeps its watermarks in this store.
    pub fn builder<S: Source>(source: S, store: impl OffsetStore) -> Builder<S> {
        Builder::new(source, Box::new(store))
    }

    pub(crate) fn new(machine: Arc<dyn Machine>) -> Self {
        Self { machine, threads: Some(Threads::default()) }
    }

    /// How far each partition is. O(partitions and their spans).
    pub fn progress(&self) -> Progress {
        self.machine.progress()
    }

    /// A picture of a partition's window for people, at most `width` places of it from the watermark
    /// on: see [`Assignment::picture`](crate::Assignment::picture). None when there is no such
    /// partition; `stale` while it begins anew. Changes nothing. O(partitions and `width`).
    ///
    /// ```
    /// # use inflight::consumer::Consumer;
    /// # fn show(consumer: &Consumer) {
    /// // 4711 |hhh.hwwwww| +12
    /// println!("{}", consumer.picture("orders-0", 60).unwrap_or_default());
    /// # }
    /// ```
    pub fn picture(&self, partition: &str, width: usize) -> Option<String> {
        self.machine.picture(partition, width)
    }

    /// Publishes now what [`Builder::publish_every`] would publish later.
    ///
    /// # Errors
    /// The store's; the next publish carries what this one did not.
    pub fn publish(&self) -> Result<(), StoreError> {
        self.machine.publish()
    }

    /// Waits until everything that the source had when it was last asked, or that it rang for
    /// before this call, is finished, in all partitions at once; false when the timeout came first.
    /// Afterwards [`Consumer::progress`] has counted all of it.
    pub fn wait_caught_up(&self, timeout: Duration) -> bool {
        self.machine.wait_caught_up(self.machine.deadline(timeout))
    }

    /// Asks the source for its partitions again, and goes on with those: see
    /// [`Consumer::assign`]. RocketMQ: `doRebalance`.
    ///
    /// # Errors
    /// [`AssignError`].
    pub fn rebalance(&self, drain: Duration) -> Result<Vec<PartitionReport>, AssignError> {
        Arc::clone(&self.machine).rebalance(None, drain)
    }

    /// Sets which partitions are consumed. New ones begin at their stored offsets. Those that are
    /// not named any more are fenced (no pull and no handler call of theirs begins), the handlers
    /// that have messages of them are waited for up to the deadline, then their watermarks are
    /// published and their locks given back. Nothing of them is published after this has returned,
    /// whatever a handler still finishes. The report says how each ended. RocketMQ:
    /// `updateProcessQueueTableInRebalance`.
    ///
    /// # Errors
    /// [`AssignError`]; nothing was changed, unless a thread could not be started.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use inflight::consumer::{AssignError, Consumer, Partition};
    /// # fn set(consumer: &Consumer) -> Result<(), AssignError> {
    /// let mine = vec![Partition::new(0, "orders-0"), Partition::new(3, "orders-3")];
    /// for ended in consumer.assign(mine, Duration::from_secs(5))? {
    ///     println!("{} ended at {}, {} left", ended.name, ended.published, ended.left);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn assign(
        &self,
        partitions: Vec<Partition>,
        drain: Duration,
    ) -> Result<Vec<PartitionReport>, AssignError> {
        Arc::clone(&self.machine).rebalance(Some(partitions), drain)
    }

    /// Suspends a partition: no pull and no handler call of it begins until it is resumed; those
    /// that run go on, and what they finish is published. False when there is no such partition.
    pub fn suspend(&self, partition: &str) -> bool {
        self.machine.suspend(Some(partition), true)
    }

    /// Ends [`Consumer::suspend`], and [`Consumer::suspend_all`] for this partition.
    pub fn resume(&self, partition: &str) -> bool {
        self.machine.suspend(Some(partition), false)
    }

    /// Suspends all partitions, also those that are assigned later. RocketMQ: `suspend`.
    pub fn suspend_all(&self) {
        self.machine.suspend(None, true);
    }

    /// Resumes all partitions. RocketMQ: `resume`.
    pub fn resume_all(&self) {
        self.machine.suspend(None, false);
    }

    /// Stops the intake for good and waits until everything that was admitted is finished, what
    /// waits to be retried too; false when the timeout came first. To be followed by
    /// [`Consumer::shutdown`].
    pub fn drain(&self, timeout: Duration) -> bool {
        self.machine.stop_intake();
        self.machine.wait_drained(self.machine.deadline(timeout))
    }

    /// Stops: no more pulls, no more handler calls; waits for the handlers that run, and for pulls
    /// under way, until the timeout; publishes the watermarks; reports what was left. Messages
    /// that wait, for a worker or to be retried, are left. RocketMQ: `shutdown(awaitTerminate)`.
    ///
    /// A handler that still runs at the timeout goes on in its thread, but nothing that it
    /// finishes is published any more. A store that hangs is waited for.
    ///
    /// # Errors
    /// [`ShutdownError::Store`] when the last publish failed, twice; with the report.
    pub fn shutdown(mut self, timeout: Duration) -> Result<ShutdownReport, ShutdownError> {
        let until = self.machine.deadline(timeout);
        self.machine.stop_intake();
        self.machine.stop_workers();
        let calm = self.machine.wait_calm(until);
        let pulled = self.machine.wait_pullers(until);
        self.machine.stop_clock();
        if let Some(threads) = self.threads.take() {
            // Those that are at their end. A panic of theirs is a defect of this module.
            let done = threads.clock.into_iter();
            let done = done.chain(threads.workers.into_iter().filter(|_| calm));
            let pullers = self.machine.puller_threads();
            let done = done.chain(pullers.into_iter().filter(|_| pulled));
            for thread in done {
                let ended = thread.join();
                debug_assert!(ended.is_ok(), "a thread of the consumer panicked");
            }
        }
        let (partitions, published) = self.machine.end_all();
        let report = ShutdownReport { partitions, handlers_ended: calm };
        match published {
            Ok(()) => Ok(report),
            Err(error) => Err(ShutdownError::Store { error, report }),
        }
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.machine.stop_intake();
        self.machine.stop_workers();
        self.machine.stop_clock();
    }
}

impl fmt::Debug for Consumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer").field("progress", &self.progress()).finish()
    }
}

/// How far a consumer is.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Progress {
    /// When this was: since the start. The times of the partitions are on the same clock.
    pub now: Duration,
    /// Each partition, in the source's order.
    pub partitions: Vec<PartitionProgress>,
    /// How often the store failed.
    pub store_errors: u64,
    /// What it said last.
    pub last_store_error: Option<String>,
}

/// How far a partition is. Numbers of events count from the consumer's start.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PartitionProgress {
    /// Its name.
    pub name: String,
    /// Everything below is finished.
    pub watermark: u64,
    /// The stored offset.
    pub published: u64,
    /// The highest offset admitted or skipped to, plus one.
    pub end: u64,
    /// `end - watermark`; in a window numbered by arrival the messages between the two, finished
    /// or not.
    pub span: u64,
    /// Messages waiting and held.
    pub count: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Offsets of the log from `end` to its own end, when the source knows: messages that were not
    /// pulled yet, where every offset has one.
    pub backlog: Option<u64>,
    /// The lowest offset waiting or held. RocketMQ: `cachedMsgMinOffset`.
    pub first: Option<u64>,
    /// The highest. RocketMQ: `cachedMsgMaxOffset`.
    pub last: Option<u64>,
    /// Messages held: with a handler, or set aside to be retried.
    pub held: usize,
    /// The lowest offset of those. RocketMQ: `transactionMsgMinOffset`.
    pub held_first: Option<u64>,
    /// The highest. RocketMQ: `transactionMsgMaxOffset`.
    pub held_last: Option<u64>,
    /// Which offset holds the watermark, and what it is doing. Ticks are milliseconds since start;
    /// one that lies ahead is when the message is tried again.
    pub head: Option<Look>,
    /// Is it suspended?
    pub suspended: bool,
    /// May it be consumed? Always, where there are no locks. RocketMQ: `locked`.
    pub locked: bool,
    /// Is it being released? RocketMQ: `dropped`.
    pub dropped: bool,
    /// How often giving the lock back was tried. RocketMQ: `tryUnlockTimes`.
    pub unlock_tries: u32,
    /// When the lock was renewed last. RocketMQ: `lastLockTimestamp`.
    pub last_lock: Option<Duration>,
    /// When the last pull was begun. RocketMQ: `lastPullTimestamp`.
    pub last_pull: Option<Duration>,
    /// When a handler was called last. RocketMQ: `lastConsumeTimestamp`.
    pub last_consume: Option<Duration>,
    /// Messages finished.
    pub finished: u64,
    /// Messages that [`Builder::filter`] kept out.
    pub filtered: u64,
    /// Messages that failed and were set aside to be retried; each time counts.
    pub retried: u64,
    /// Messages that were sent back, and finished.
    pub sent_back: u64,
    /// Messages that were given up after too many attempts, and finished.
    pub given_up: u64,
    /// Messages that failed in the broadcast model, and were reported and finished.
    pub reported: u64,
    /// Messages that were held too long and taken away; each time counts.
    pub expired: u64,
    /// Handler calls that panicked.
    pub panics: u64,
    /// Pulls begun.
    pub pulls: u64,
    /// Pulls that failed.
    pub pull_errors: u64,
    /// How often the source corrected an illegal offset.
    pub resets: u64,
    /// 1 when it was begun anew because a pull did not come back.
    pub rebuilt: u64,
    /// What the last failed pull said.
    pub last_error: Option<String>,
}

/// How a consumer ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// Each partition, in the source's order.
    pub partitions: Vec<PartitionReport>,
    /// All handlers had returned in time.
    pub handlers_ended: bool,
}

impl ShutdownReport {
    /// Messages that were admitted and not finished, in all partitions.
    pub fn left(&self) -> usize {
        self.partitions.iter().map(|partition| partition.left).sum()
    }
}

/// How a partition ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartitionReport {
    /// Its name.
    pub name: String,
    /// Everything below is finished.
    pub watermark: u64,
    /// The highest offset admitted or skipped to, plus one.
    pub end: u64,
    /// Messages that were admitted and not finished.
    pub left: usize,
    /// The offset that is stored: where the next consumer begins.
    pub published: u64,
    /// How often giving the lock back was tried; none when the watermark was not published.
    pub unlock_tries: u32,
}

/// Why a shutdown was not clean.
#[derive(Debug)]
#[non_exhaustive]
pub enum ShutdownError {
    /// The last watermarks could not be published: what is between the stored ones and these is
    /// handled again by the next consumer. Nothing is lost.
    Store {
        /// The store's error.
        error: StoreError,
        /// How the consumer ended all the same.
        report: ShutdownReport,
    },
}

impl fmt::Display for ShutdownError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Store { error, .. } = self;
        write!(f, "the last watermarks were not published: {error}")
    }
}

impl Error for ShutdownError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        let Self::Store { error, .. } = self;
        Some(error)
    }
}
