//! What calls answer: small enums that hand back what they refused.

use core::error::Error;
use core::fmt;

use crate::position::Pos;

/// A safe "next offset to consume": everything below it is finished.
///
/// RocketMQ: what `removeMessage` returns, without its -1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Next(pub(crate) u64);

impl Next {
    /// The offset to consume next, exclusive: persist this.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The last offset below which, inclusive, everything is finished; none at the log's start.
    pub const fn last_finished(self) -> Option<u64> {
        self.0.checked_sub(1)
    }
}

impl fmt::Display for Next {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What a call that finishes several messages did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The watermark after the call's own slide.
    pub next: Next,
    /// Messages that this call finished.
    pub applied: usize,
    /// Messages that somebody else had finished or taken away before.
    pub gone: usize,
    /// The call gave messages back to an idle window: as in [`Put::dispatch`].
    pub dispatch: bool,
}

/// What a put did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Put {
    /// The window was idle and this put ended that: a scheduler should start a consumer. True
    /// once per idle period, which begins at assign or with a take that found nothing.
    pub dispatch: bool,
    /// Where the message is.
    pub ticket: Ticket,
}

/// Where a message is in its window, for as long as it is there: it is then found without a search,
/// also in a window that is numbered by arrival. See
/// [`Assignment::remove_ticket`](crate::Assignment::remove_ticket).
///
/// No message ever gets the ticket of another one of the same window, also not in a later
/// assignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub(crate) Pos);

/// What a batch put did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BatchPut {
    /// Messages that are new in the window.
    pub admitted: usize,
    /// Messages that are waiting or held already; their values were dropped.
    pub duplicates: usize,
    /// Messages that are finished, sealed, or below the watermark; their values were dropped.
    pub passed: usize,
    /// As in [`Put::dispatch`].
    pub dispatch: bool,
}

/// What a batch remove did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BatchRemove {
    /// The watermark after the call's own slide.
    pub next: Next,
    /// Offsets that this call finished.
    pub applied: usize,
    /// Offsets that were finished or sealed before.
    pub passed: usize,
    /// Offsets that are lent or being revoked; *not* recorded.
    pub held: usize,
    /// Offsets that were never admitted.
    pub unknown: usize,
}

/// What raising the floor did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Floor {
    /// The watermark then.
    pub next: Next,
    /// Messages that were waiting or held, and were dropped.
    pub dropped: usize,
    /// Messages that lending leases have still; those leases will count them as `gone`.
    pub lent: usize,
}

/// Why a message is given up: see [`Assignment::skip`](crate::Assignment::skip).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SkipReason {
    /// No handler can do it.
    Poison,
    /// It was tried often enough, and put aside.
    DeadLetter,
    /// It came too late to matter.
    Expired,
    /// Any other.
    Other,
}

impl SkipReason {
    pub(crate) const COUNT: usize = 4;
}

/// The assignment has ended: a later one of the same window is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stale;

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the assignment has ended")
    }
}

impl Error for Stale {}

/// Why a message was not admitted, without the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PutErrorKind {
    /// No room: the offset lies a whole window beyond the watermark, its slot is not free yet, or
    /// the counters are at their limit. Put it again when messages have been finished.
    Full,
    /// Waiting or held already.
    Duplicate,
    /// Finished, sealed or given up already, above the watermark.
    Passed,
    /// Below the watermark.
    BelowWatermark,
    /// The offset is `u64::MAX` or too far beyond the watermark for this window, or the size is
    /// too large to count. Putting it again does not help.
    OutOfRange,
    /// The assignment has ended.
    Stale,
    /// The window is closed.
    Closed,
    /// The window's share of its budget is used up, or too little is left of it for a message of
    /// this size. Put it again when messages have been finished. Not in a window without a budget.
    OverBudget,
}

impl fmt::Display for PutErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "the window is full",
            Self::Duplicate => "the offset is waiting or held already",
            Self::Passed => "the offset is finished or sealed already",
            Self::BelowWatermark => "the offset is below the watermark",
            Self::OutOfRange => "the offset or size is out of range",
            Self::Stale => "the assignment has ended",
            Self::Closed => "the window is closed",
            Self::OverBudget => "the budget has no room for the message",
        })
    }
}

impl Error for PutErrorKind {}

/// A message was not admitted; here it is again.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PutError<T> {
    /// See [`PutErrorKind::Full`].
    Full(T),
    /// See [`PutErrorKind::Duplicate`].
    Duplicate(T),
    /// See [`PutErrorKind::Passed`].
    Passed(T),
    /// See [`PutErrorKind::BelowWatermark`].
    BelowWatermark(T),
    /// See [`PutErrorKind::OutOfRange`].
    OutOfRange(T),
    /// See [`PutErrorKind::Stale`].
    Stale(T),
    /// See [`PutErrorKind::Closed`].
    Closed(T),
    /// See [`PutErrorKind::OverBudget`].
    OverBudget(T),
}

impl<T> PutError<T> {
    pub(crate) fn new(kind: PutErrorKind, value: T) -> Self {
        match kind {
            PutErrorKind::Full => Self::Full(value),
            PutErrorKind::Duplicate => Self::Duplicate(value),
            PutErrorKind::Passed => Self::Passed(value),
            PutErrorKind::BelowWatermark => Self::BelowWatermark(value),
            PutErrorKind::OutOfRange => Self::OutOfRange(value),
            PutErrorKind::Stale => Self::Stale(value),
            PutErrorKind::Closed => Self::Closed(value),
            PutErrorKind::OverBudget => Self::OverBudget(value),
        }
    }

    /// Why, without the message.
    pub const fn kind(&self) -> PutErrorKind {
        match self {
            Self::Full(_) => PutErrorKind::Full,
            Self::Duplicate(_) => PutErrorKind::Duplicate,
            Self::Passed(_) => PutErrorKind::Passed,
            Self::BelowWatermark(_) => PutErrorKind::BelowWatermark,
            Self::OutOfRange(_) => PutErrorKind::OutOfRange,
            Self::Stale(_) => PutErrorKind::Stale,
            Self::Closed(_) => PutErrorKind::Closed,
            Self::OverBudget(_) => PutErrorKind::OverBudget,
        }
    }

    /// The message.
    pub fn into_inner(self) -> T {
        match self {
            Self::Full(value)
            | Self::Duplicate(value)
            | Self::Passed(value)
            | Self::BelowWatermark(value)
            | Self::OutOfRange(value)
            | Self::Stale(value)
            | Self::Closed(value)
            | Self::OverBudget(value) => value,
        }
    }
}

impl<T> fmt::Debug for PutError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}(..)", self.kind())
    }
}

impl<T> fmt::Display for PutError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind().fmt(f)
    }
}

impl<T> Error for PutError<T> {}

/// A batch put stopped; the refused message is here, and the iterator has the rest.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct BatchPutError<T> {
    /// Why: never [`PutErrorKind::Duplicate`], `Passed` or `BelowWatermark`, which do not stop a batch.
    pub error: PutErrorKind,
    /// The offset refused.
    pub offset: u64,
    /// The message refused.
    pub value: T,
    /// What the batch did before.
    pub so_far: BatchPut,
}

impl<T> fmt::Debug for BatchPutError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchPutError")
            .field("error", &self.error)
            .field("offset", &self.offset)
            .field("so_far", &self.so_far)
            .finish_non_exhaustive()
    }
}

impl<T> fmt::Display for BatchPutError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "offset {} of the batch: {}", self.offset, self.error)
    }
}

impl<T> Error for BatchPutError<T> {}

/// Why nothing was reserved, of a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReserveError {
    /// Not enough is left now: so much is missing, of what is short. Try again when messages have
    /// been finished.
    Short {
        /// Messages missing.
        messages: usize,
        /// Bytes missing.
        bytes: u64,
    },
    /// More than can ever be reserved: so much is, when nothing else is in flight.
    TooMuch {
        /// Messages at most.
        messages: usize,
        /// Bytes at most.
        bytes: u64,
    },
    /// The assignment has ended.
    Stale,
    /// The window is closed.
    Closed,
}

impl fmt::Display for ReserveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short { messages, bytes } => {
                write!(f, "the budget is short of {messages} messages and {bytes} bytes")
            }
            Self::TooMuch { messages, bytes } => {
                write!(f, "never more than {messages} messages and {bytes} bytes can be reserved")
            }
            Self::Stale => f.write_str("the assignment has ended"),
            Self::Closed => f.write_str("the window is closed"),
        }
    }
}

impl Error for ReserveError {}

/// Why a take gave nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TakeError {
    /// Nothing is ready (or none was asked for).
    Empty,
    /// The assignment has ended.
    Stale,
    /// The window is closed and nothing is left unfinished: nothing will ever be ready again.
    Closed,
}

impl fmt::Display for TakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "nothing is ready",
            Self::Stale => "the assignment has ended",
            Self::Closed => "the window is closed and empty",
        })
    }
}

impl Error for TakeError {}

/// Why waiting gave nothing.
#[cfg(feature = "async")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitError {
    /// The assignment has ended.
    Stale,
    /// The window is closed: for a putter at once, for a taker when nothing is left unfinished.
    Closed,
    /// Eight wait on this window already; to reserve, on this budget.
    WaitersFull,
    /// None was asked for.
    Nothing,
    /// More was asked for than a budget ever has.
    TooMuch,
    /// The time is up (blocking calls with a limit).
    TimedOut,
}

#[cfg(feature = "async")]
impl fmt::Display for WaitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stale => "the assignment has ended",
            Self::Closed => "the window is closed",
            Self::WaitersFull => "eight wait on this window, or this budget, already",
            Self::Nothing => "no message was asked for",
            Self::TooMuch => "so much is never in the budget",
            Self::TimedOut => "the time is up",
        })
    }
}

#[cfg(feature = "async")]
impl Error for WaitError {}

/// Why an offset was not removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RemoveError {
    /// Finished or sealed before: nothing is left to do.
    Passed,
    /// Lent, or being revoked. This completion is **not recorded**: when the holder gives the
    /// message back, it is delivered again.
    Held,
    /// Never admitted.
    Unknown,
    /// The assignment has ended.
    Stale,
}

impl fmt::Display for RemoveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Passed => "the offset was finished before",
            Self::Held => "the offset is lent or being revoked; the completion is not recorded",
            Self::Unknown => "the offset was never admitted",
            Self::Stale => "the assignment has ended",
        })
    }
}

impl Error for RemoveError {}

/// Why a message could not be revoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RevokeError {
    /// Not held: it is waiting.
    Waiting,
    /// In a lending lease, or another revoke has it.
    Held,
    /// Finished or sealed before.
    Passed,
    /// Never admitted.
    Unknown,
    /// Revoked as often as can be told apart (2,047 times; 511 on 32 bits). It can still be removed.
    Exhausted,
    /// The assignment has ended.
    Stale,
}

impl fmt::Display for RevokeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Waiting => "the offset is waiting, nobody holds it",
            Self::Held => "the offset is lent, or being revoked already",
            Self::Passed => "the offset was finished before",
            Self::Unknown => "the offset was never admitted",
            Self::Exhausted => "the offset was revoked too often",
            Self::Stale => "the assignment has ended",
        })
    }
}

impl Error for RevokeError {}

/// Why the window was not advanced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AdvanceError {
    /// Too far beyond the watermark for this window.
    OutOfRange,
    /// The window is numbered by arrival and a put is running beside this.
    Busy,
    /// The assignment has ended.
    Stale,
}

impl fmt::Display for AdvanceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OutOfRange => "the offset is too far beyond the watermark",
            Self::Busy => "a put is running beside this",
            Self::Stale => "the assignment has ended",
        })
    }
}

impl Error for AdvanceError {}
