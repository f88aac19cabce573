//! The same by threads that sleep.

use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use crate::assignment::Assignment;
use crate::budget::{Budget, Budgeted, Permit};
use crate::error::WaitError;
use crate::lease::Lease;
use crate::window::{Window, WindowRef};

/// Wakes a thread that is parked, or about to be.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls the future on this thread, which sleeps meanwhile, at most for so long.
fn run<T>(
    mut future: impl Future<Output = Result<T, WaitError>> + Unpin,
    limit: Option<Duration>,
) -> Result<T, WaitError> {
    // A limit that no clock can tell is none.
    let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = Pin::new(&mut future).poll(&mut context) {
            return output;
        }
        match deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())) {
            None => thread::park(),
            Some(Duration::ZERO) => return Err(WaitError::TimedOut),
            Some(left) => thread::park_timeout(left),
        }
    }
}

/// Waiting, by the thread.
impl<R: WindowRef> Assignment<R> {
    /// As [`Assignment::take_async`]; the thread sleeps until then.
    ///
    /// # Errors
    /// As there.
    pub fn take_blocking(&self, n: usize) -> Result<Lease<R>, WaitError> {
        run(self.take_async(n), None)
    }

    /// As [`Assignment::take_blocking`], at most for `limit`.
    ///
    /// # Errors
    /// As there; [`WaitError::TimedOut`].
    pub fn take_timeout(&self, n: usize, limit: Duration) -> Result<Lease<R>, WaitError> {
        run(self.take_async(n), Some(limit))
    }

    /// As [`Assignment::space_async`]; the thread sleeps until then.
    ///
    /// # Errors
    /// As there.
    pub fn space_blocking(&self) -> Result<(), WaitError> {
        run(self.space_async(), None)
    }

    /// As [`Assignment::space_blocking`], at most for `limit`.
    ///
    /// # Errors
    /// As there; [`WaitError::TimedOut`].
    pub fn space_timeout(&self, limit: Duration) -> Result<(), WaitError> {
        run(self.space_async(), Some(limit))
    }

    /// As [`Assignment::space_for_async`]; the thread sleeps until then.
    ///
    /// # Errors
    /// As there.
    pub fn space_for_blocking(&self, offset: u64) -> Result<(), WaitError> {
        run(self.space_for_async(offset), None)
    }

    /// As [`Assignment::space_for_blocking`], at most for `limit`.
    ///
    /// # Errors
    /// As there; [`WaitError::TimedOut`].
    pub fn space_for_timeout(&self, offset: u64, limit: Duration) -> Result<(), WaitError> {
        run(self.space_for_async(offset), Some(limit))
    }
}

/// Waiting for a budget, by the thread.
impl<W, B, R> Assignment<R>
where
    W: Window,
    B: Deref<Target = Budget>,
    R: WindowRef<Window = Budgeted<W, B>>,
{
    /// As [`Assignment::reserve_async`]; the thread sleeps until then.
    ///
    /// # Errors
    /// As there.
    pub fn reserve_blocking(
        &self,
        messages: usize,
        max_bytes: u64,
    ) -> Result<Permit<R>, WaitError> {
        run(self.reserve_async(messages, max_bytes), None)
    }

    /// As [`Assignment::reserve_blocking`], at most for `limit`.
    ///
    /// # Errors
    /// As there; [`WaitError::TimedOut`].
    pub fn reserve_timeout(
        &self,
        messages: usize,
        max_bytes: u64,
        limit: Duration,
    ) -> Result<Permit<R>, WaitError> {
        run(self.reserve_async(messages, max_bytes), Some(limit))
    }
}
