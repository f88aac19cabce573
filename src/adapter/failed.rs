//! What becomes of a message that no handler could deal with: [`SendBack`], the dead letters, and
//! what they are told ([`Failed`]).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::source::SourceError;
use crate::shelf::Held;

/// A message that failed, expired, or is given up.
pub struct Failed<'a, T> {
    pub(crate) partition: &'a str,
    pub(crate) offset: u64,
    pub(crate) attempts: u32,
    pub(crate) value: &'a T,
}

impl<'a, T> Failed<'a, T> {
    pub(crate) fn new(partition: &'a str, held: &'a Held<T>, attempts: u32) -> Self {
        Self { partition, offset: held.offset(), attempts, value: held.value() }
    }

    /// The name of its partition.
    pub fn partition(&self) -> &'a str {
        self.partition
    }

    /// Its offset.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// How often it was tried: in this consumer since its start, and before as
    /// [`Builder::attempts`](super::Builder::attempts) says.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// The message.
    pub fn value(&self) -> &'a T {
        self.value
    }
}

impl<T: fmt::Debug> fmt::Debug for Failed<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Failed")
            .field("partition", &self.partition)
            .field("offset", &self.offset)
            .field("attempts", &self.attempts)
            .field("value", &self.value)
            .finish()
    }
}

/// How long a broker keeps a message that was sent back before it delivers it again.
///
/// ```
/// use std::time::Duration;
/// use inflight::consumer::DelayLevel;
///
/// assert_eq!(DelayLevel::AUTO.duration(2), Duration::from_secs(60)); // level 3 + 2
/// assert_eq!(DelayLevel::new(3).duration(2), Duration::from_secs(10));
/// assert_eq!(DelayLevel::new(99), DelayLevel::new(18));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DelayLevel(u8);

/// RocketMQ: `messageDelayLevel`, in seconds.
const LEVELS: [u64; 18] =
    [1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200];

impl DelayLevel {
    /// The longer, the more often the message was tried: level 3 and one more for each attempt.
    pub const AUTO: Self = Self(0);

    /// A level: 1 (a second) to 18 (two hours); higher ones count as 18, 0 is [`DelayLevel::AUTO`].
    pub const fn new(level: u8) -> Self {
        Self(if level > 18 { 18 } else { level })
    }

    /// The level, 1 to 18, of a message that was tried so often.
    pub const fn level(self, attempts: u32) -> u8 {
        match self.0 {
            0 if attempts > 15 => 18,
            0 => 3 + attempts as u8,
            level => level,
        }
    }

    /// How long that is, by RocketMQ's table.
    pub const fn duration(self, attempts: u32) -> Duration {
        Duration::from_secs(LEVELS[self.level(attempts) as usize - 1])
    }
}

/// Where messages go that this consumer cannot deal with. RocketMQ: `sendMessageBack`.
///
/// Called by workers, and by the thread that looks for expired messages; for several messages at
/// the same time. When it answers `Ok`, the message is finished here; when it fails or panics, the
/// message stays, and is tried again.
///
/// ```
/// use std::sync::Mutex;
/// use inflight::consumer::{DelayLevel, Failed, SendBack, SourceError};
///
/// /// A retry topic in memory.
/// #[derive(Default)]
/// struct Retries(Mutex<Vec<(String, u8)>>);
///
/// impl SendBack<String> for Retries {
///     fn send_back(
///         &self,
///         failed: &Failed<'_, String>,
///         delay: DelayLevel,
///     ) -> Result<(), SourceError> {
///         let level = delay.level(failed.attempts());
///         self.0.lock().unwrap().push((failed.value().clone(), level));
///         Ok(())
///     }
///
///     fn dead_letter(&self, failed: &Failed<'_, String>) -> Result<(), SourceError> {
///         eprintln!("{} {}: given up", failed.partition(), failed.offset());
///         Ok(())
///     }
/// }
/// ```
pub trait SendBack<T>: Send + Sync + 'static {
    /// Sends a message back, to be delivered again after a delay: as a new message.
    ///
    /// # Errors
    /// Any; the message stays here and is tried again after
    /// [`Builder::resend_after`](super::Builder::resend_after).
    fn send_back(&self, failed: &Failed<'_, T>, delay: DelayLevel) -> Result<(), SourceError>;

    /// Puts a message aside that was tried too often.
    ///
    /// # Errors
    /// As [`SendBack::send_back`].
    fn dead_letter(&self, failed: &Failed<'_, T>) -> Result<(), SourceError>;
}

impl<T, B: SendBack<T> + ?Sized> SendBack<T> for Arc<B> {
    fn send_back(&self, failed: &Failed<'_, T>, delay: DelayLevel) -> Result<(), SourceError> {
        (**self).send_back(failed, delay)
    }

    fn dead_letter(&self, failed: &Failed<'_, T>) -> Result<(), SourceError> {
        (**self).dead_letter(failed)
    }
}
