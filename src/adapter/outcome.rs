//! What a handler is given, and what it answers. How long a retry waits.

use std::fmt;
use std::time::Duration;
use std::vec::Vec;

use super::failed::DelayLevel;
use crate::shelf::Held;

/// Messages of one partition for a handler to deal with, ascending.
pub struct Batch<'a, T> {
    partition: &'a str,
    messages: &'a [Held<T>],
    failed: u32,
}

impl<'a, T> Batch<'a, T> {
    pub(crate) fn new(partition: &'a str, messages: &'a [Held<T>], failed: u32) -> Self {
        Self { partition, messages, failed }
    }

    /// The name of the partition.
    pub fn partition(&self) -> &'a str {
        self.partition
    }

    /// The messages, each with its offset and how often it was delivered. At least one.
    pub fn messages(&self) -> &'a [Held<T>] {
        self.messages
    }

    /// How often one of its messages was tried by this consumer, this time included: its
    /// deliveries, and the failures since the last of them, where what fails stays taken
    /// ([`Builder::keyed`](super::Builder::keyed), [`Builder::batched`](super::Builder::batched)).
    pub fn attempts(&self, message: &Held<T>) -> u32 {
        message.deliveries().saturating_add(self.failed)
    }

    /// The messages with their offsets.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (u64, &'a T)> + use<'a, T> {
        self.messages.iter().map(|held| (held.offset(), held.value()))
    }

    /// How many messages.
    #[allow(clippy::len_without_is_empty)] // never empty
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// Asks `handle` about each message in turn. When that panics, all messages of the batch are
    /// retried, those it has dealt with too.
    ///
    /// ```
    /// use inflight::consumer::{Batch, Outcome};
    ///
    /// fn handler(batch: &Batch<String>) -> Outcome {
    ///     // `Ok` is done, `Err` is to be retried.
    ///     batch.each(|message| message.value().parse::<u32>().map(drop).into())
    /// }
    /// ```
    pub fn each(&self, handle: impl FnMut(&Held<T>) -> Verdict) -> Outcome {
        Outcome::Each(self.messages.iter().map(handle).collect())
    }
}

impl<T> fmt::Debug for Batch<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch")
            .field("partition", &self.partition)
            .field("offsets", &self.messages.iter().map(Held::offset).collect::<Vec<_>>())
            .finish()
    }
}

/// What became of one message.
///
/// ```
/// use std::time::Duration;
/// use inflight::consumer::Verdict;
///
/// let verdict = |answer: Result<u32, u64>| match answer {
///     Ok(_) => Verdict::Done,
///     Err(seconds) => Verdict::RetryAfter(Duration::from_secs(seconds)),
/// };
/// assert_eq!(verdict(Ok(7)), Verdict::Done);
/// assert_eq!(verdict(Err(5)), Verdict::RetryAfter(Duration::from_secs(5)));
/// assert_eq!(Verdict::from(Err::<(), _>("busy")), Verdict::Retry);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// Dealt with: it is finished. RocketMQ: `CONSUME_SUCCESS`.
    Done,
    /// Not now: again after the back-off, by this consumer.
    Retry,
    /// Again after this delay.
    RetryAfter(Duration),
    /// Back to where it came from, which delivers it again after a delay; see
    /// [`Builder::send_back`](super::Builder::send_back), without which this is `Retry`. RocketMQ:
    /// `RECONSUME_LATER`, `setDelayLevelWhenNextConsume`.
    SendBack(DelayLevel),
    /// Never again: to the dead letters at once, however often it was tried; without any, this is
    /// `Retry`. RocketMQ: a delay level of -1.
    GiveUp,
}

impl<E> From<Result<(), E>> for Verdict {
    fn from(result: Result<(), E>) -> Self {
        if result.is_ok() { Self::Done } else { Self::Retry }
    }
}

/// What became of a batch. Any subset may have succeeded.
///
/// ```
/// use inflight::consumer::{Outcome, Verdict};
///
/// // Of three messages the second failed.
/// let outcome = Outcome::Each(vec![Verdict::Done, Verdict::Retry, Verdict::Done]);
/// # assert_ne!(outcome, Outcome::Done);
/// // All or nothing.
/// assert_eq!(Outcome::from(Ok::<(), ()>(())), Outcome::Done);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// All done.
    Done,
    /// All again after the back-off.
    Retry,
    /// All again after this delay.
    RetryAfter(Duration),
    /// All back to where they came from: [`Verdict::SendBack`].
    SendBack(DelayLevel),
    /// One verdict for each message, in the batch's order. Messages without one are retried.
    Each(Vec<Verdict>),
}

impl Outcome {
    pub(crate) fn verdict(&self, index: usize) -> Verdict {
        match self {
            Self::Done => Verdict::Done,
            Self::Retry => Verdict::Retry,
            Self::RetryAfter(delay) => Verdict::RetryAfter(*delay),
            Self::SendBack(delay) => Verdict::SendBack(*delay),
            Self::Each(verdicts) => verdicts.get(index).copied().unwrap_or(Verdict::Retry),
        }
    }
}

impl From<Verdict> for Outcome {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Done => Self::Done,
            Verdict::Retry => Self::Retry,
            Verdict::RetryAfter(delay) => Self::RetryAfter(delay),
            Verdict::SendBack(delay) => Self::SendBack(delay),
            // Messages are never more than a batch may have.
            Verdict::GiveUp => Self::Each(std::vec![Verdict::GiveUp; MOST]),
        }
    }
}

impl<E> From<Result<(), E>> for Outcome {
    fn from(result: Result<(), E>) -> Self {
        Verdict::from(result).into()
    }
}

/// What became of a batch of [`Builder::orderly`](super::Builder::orderly). RocketMQ:
/// `ConsumeOrderlyStatus`.
///
/// ```
/// use std::time::Duration;
/// use inflight::consumer::Ordered;
///
/// let answer = |result: Result<(), &str>| match result {
///     Ok(()) => Ordered::Success,
///     Err("locked") => Ordered::Suspend(Some(Duration::from_millis(50))),
///     Err(_) => Ordered::Suspend(None),
/// };
/// assert_eq!(answer(Ok(())), Ordered::Success);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ordered {
    /// Dealt with: finished; by [`Builder::manual_commit`](super::Builder::manual_commit) kept
    /// until a later batch says `Commit` or `Rollback`.
    Success,
    /// Dealt with, and all that is kept: finished.
    Commit,
    /// This batch, and all that is kept, again after
    /// [`Builder::suspend_for`](super::Builder::suspend_for).
    Rollback,
    /// This batch again after this time, 10 ms to 30 s, or after
    /// [`Builder::suspend_for`](super::Builder::suspend_for). A panic counts as this.
    Suspend(Option<Duration>),
}

/// The most messages of one handler call.
pub(crate) const MOST: usize = 1024;

/// How long a failed message waits: doubled with every delivery, up to a longest wait.
///
/// Default 1 s, at most 60 s. RocketMQ: `suspendCurrentQueueTimeMillis` and the delay levels.
///
/// ```
/// use std::time::Duration;
/// use inflight::consumer::Backoff;
///
/// let backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1));
/// assert_eq!(backoff.after(1), Duration::from_millis(100));
/// assert_eq!(backoff.after(3), Duration::from_millis(400));
/// assert_eq!(backoff.after(1000), Duration::from_secs(1));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self::new(Duration::from_secs(1), Duration::from_secs(60))
    }
}

impl Backoff {
    /// Waits `first` after the first failure, and never longer than `longest`.
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest }
    }

    /// The wait of a message that failed in its `deliveries`th delivery, counted from 1.
    pub fn after(&self, deliveries: u32) -> Duration {
        let doublings = deliveries.saturating_sub(1).min(31);
        self.first.saturating_mul(1 << doublings).min(self.longest)
    }
}
