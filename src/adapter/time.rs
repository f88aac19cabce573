//! Time as the consumer sees it: since its start. Its own clock goes with the system's, or is
//! moved by hand.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// Longer than anybody waits, and short enough for every system's clock.
pub(crate) const YEARS: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// A clock.
#[derive(Debug)]
pub(crate) enum Time {
    /// The system's, from this start on.
    Real(Instant),
    /// Nanoseconds; moves when it is told to.
    ByHand(AtomicU64),
}

impl Time {
    pub(crate) fn real() -> Self {
        Self::Real(Instant::now())
    }

    pub(crate) fn by_hand() -> Self {
        Self::ByHand(AtomicU64::new(0))
    }

    /// Since the start.
    pub(crate) fn now(&self) -> Duration {
        match self {
            Self::Real(start) => start.elapsed(),
            Self::ByHand(nanos) => Duration::from_nanos(nanos.load(Ordering::SeqCst)),
        }
    }

    /// What a calendar says. By hand the start is the Unix epoch.
    pub(crate) fn calendar(&self) -> SystemTime {
        match self {
            Self::Real(_) => SystemTime::now(),
            Self::ByHand(_) => SystemTime::UNIX_EPOCH + self.now(),
        }
    }

    /// Moves a clock that goes by hand.
    pub(crate) fn advance(&self, by: Duration) {
        if let Self::ByHand(nanos) = self {
            let by = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
            let add = |now: u64| Some(now.saturating_add(by));
            let _ = nanos.fetch_update(Ordering::SeqCst, Ordering::SeqCst, add);
        }
    }

    /// The deadline of a wait that begins now.
    pub(crate) fn deadline(&self, wait: Duration) -> Duration {
        self.now().saturating_add(wait)
    }

    /// How long until then; none when it is over.
    pub(crate) fn left(&self, until: Duration) -> Option<Duration> {
        let left = until.saturating_sub(self.now());
        (!left.is_zero()).then_some(left.min(YEARS))
    }
}

/// Milliseconds: the ticks that the messages in the windows are stamped with.
pub(crate) fn tick(at: Duration) -> u64 {
    u64::try_from(at.as_millis()).unwrap_or(u64::MAX)
}
