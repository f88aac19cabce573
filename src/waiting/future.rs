//! The futures, and the calls that make them.

use core::fmt;
use core::future::Future;
use core::marker::PhantomData;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};

use crate::assignment::Assignment;
use crate::control::{Branch, Control, hit, weak};
use crate::engine::{Meter, Space};
use crate::error::{TakeError, WaitError};
use crate::lease::Lease;
use crate::shared::{SharedLease, SharedLeaseIn};
use crate::shelf::Shelf;
use crate::sync::Word;
use crate::waiting::{Disarmed, MESSAGES, OWNED, ROOM, Waiters};
use crate::window::{Value, Window, WindowRef};

/// One that waits, or does not yet, on the window of an assignment or on its budget.
pub(crate) struct Waiter<R: WindowRef> {
    part: Assignment<R>,
    /// Are the seats the budget's?
    on_budget: bool,
    seat: Option<usize>,
    /// Which waker is in the seat: its two addresses, kept to be compared and not to be followed.
    /// They tell wakers apart as long as the one in the seat is alive, which it is until somebody
    /// wakes it.
    waker: (usize, usize),
}

impl<R: WindowRef> Waiter<R> {
    fn new(part: &Assignment<R>) -> Self {
        Self { part: part.clone(), on_budget: false, seat: None, waker: (0, 0) }
    }

    pub(crate) fn on_budget(part: &Assignment<R>) -> Self {
        let mut waiter = Self::new(part);
        waiter.on_budget = true;
        waiter
    }

    fn waiters(&self) -> &Waiters {
        let space = self.part.window().space();
        let own = &space.words().waiters;
        if self.on_budget { space.meter().waiters().unwrap_or(own) } else { own }
    }

    /// Looks, by `look`, and sleeps when that gives nothing.
    pub(crate) fn poll<T>(
        &mut self,
        context: &Context<'_>,
        kind: Word,
        mut look: impl FnMut(&Assignment<R>) -> Option<Result<T, WaitError>>,
    ) -> Poll<Result<T, WaitError>> {
        let mut sure = self.will_be_woken(context.waker());
        loop {
            if let Some(found) = look(&self.part) {
                self.stand();
                return Poll::Ready(found);
            }
            if sure {
                return Poll::Pending;
            }
            if !self.arm(kind, context.waker()) {
                return Poll::Ready(Err(WaitError::WaitersFull));
            }
            if weak(Control::ArmedUnseen) {
                return Poll::Pending;
            }
            // Armed: once more, for what came between the look and that.
            sure = true;
        }
    }

    /// Is the seat armed with this waker, or has somebody claimed it and is about to wake it?
    fn will_be_woken(&self, waker: &Waker) -> bool {
        let same = self.waker == addresses(waker);
        same && self.seat.is_some_and(|seat| self.waiters().at(seat) != OWNED)
    }

    /// Arms a seat with this waker. False when there is none.
    fn arm(&mut self, kind: Word, waker: &Waker) -> bool {
        let seat = match self.seat {
            Some(seat) => match self.waiters().disarm(seat) {
                Disarmed::Mine(old) => {
                    drop(old);
                    Some(seat)
                }
                // Whoever has claimed it takes out a waker that is no longer the right one. Its
                // step is not waited for: it frees the seat, and this goes to another.
                Disarmed::Claimed => {
                    hit(Branch::ArmedWhileClaimed);
                    match self.waiters().sit() {
                        Some(other) => {
                            self.waiters().stand(seat);
                            Some(other)
                        }
                        None => {
                            // There is none: so ask again, when the executor comes round.
                            waker.wake_by_ref();
                            return true;
                        }
                    }
                }
            },
            None => self.waiters().sit(),
        };
        self.seat = seat;
        let Some(seat) = seat else { return false };
        self.waker = addresses(waker);
        self.waiters().arm(seat, kind, waker.clone());
        true
    }

    fn stand(&mut self) {
        if let Some(seat) = self.seat.take() {
            self.waiters().stand(seat);
        }
    }
}

fn addresses(waker: &Waker) -> (usize, usize) {
    (waker.data().addr(), core::ptr::from_ref(waker.vtable()).addr())
}

impl<R: WindowRef> Drop for Waiter<R> {
    fn drop(&mut self) {
        self.stand();
    }
}

/// What a take says to one that can wait: none when there is nothing yet.
fn taken<T>(taken: Result<T, TakeError>) -> Option<Result<T, WaitError>> {
    match taken {
        Ok(lease) => Some(Ok(lease)),
        Err(TakeError::Empty) => None,
        Err(TakeError::Stale) => Some(Err(WaitError::Stale)),
        Err(TakeError::Closed) => Some(Err(WaitError::Closed)),
    }
}

/// A lease to come: see [`Assignment::take_async`].
#[must_use = "a future does nothing unless it is polled"]
pub struct TakeFuture<R: WindowRef> {
    waiter: Waiter<R>,
    n: usize,
}

impl<R: WindowRef> Unpin for TakeFuture<R> {}

impl<R: WindowRef> Future for TakeFuture<R> {
    type Output = Result<Lease<R>, WaitError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let n = self.n;
        if n == 0 {
            return Poll::Ready(Err(WaitError::Nothing));
        }
        self.waiter.poll(context, MESSAGES, |part| taken(part.take(n)))
    }
}

impl<R: WindowRef> fmt::Debug for TakeFuture<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TakeFuture").field("n", &self.n).finish_non_exhaustive()
    }
}

/// A shared lease to come: see [`Assignment::take_shared_in_async`].
#[must_use = "a future does nothing unless it is polled"]
pub struct TakeSharedFuture<R: WindowRef, S> {
    waiter: Waiter<R>,
    n: usize,
    shelf: PhantomData<fn() -> S>,
}

impl<R: WindowRef, S> Unpin for TakeSharedFuture<R, S> {}

impl<R: WindowRef, S: Shelf<Value<R>>> Future for TakeSharedFuture<R, S>
where
    Value<R>: Clone,
{
    type Output = Result<SharedLease<R, S>, WaitError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let n = self.n.min(S::room());
        if n == 0 {
            return Poll::Ready(Err(WaitError::Nothing));
        }
        let take = |part: &Assignment<R>| taken(SharedLease::take(part.clone(), n, None));
        self.waiter.poll(context, MESSAGES, take)
    }
}

impl<R: WindowRef, S> fmt::Debug for TakeSharedFuture<R, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TakeSharedFuture").field("n", &self.n).finish_non_exhaustive()
    }
}

/// Room to come: see [`Assignment::space_async`].
#[must_use = "a future does nothing unless it is polled"]
pub struct SpaceFuture<R: WindowRef> {
    waiter: Waiter<R>,
    offset: Option<u64>,
}

impl<R: WindowRef> Unpin for SpaceFuture<R> {}

impl<R: WindowRef> Future for SpaceFuture<R> {
    type Output = Result<(), WaitError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let offset = self.offset;
        self.waiter.poll(context, ROOM, |part| match part.part().is_full(offset, &part.pin()) {
            Ok(true) => None,
            Ok(false) => Some(Ok(())),
            Err(error) => Some(Err(error)),
        })
    }
}

impl<R: WindowRef> fmt::Debug for SpaceFuture<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpaceFuture").field("offset", &self.offset).finish_non_exhaustive()
    }
}

/// Waiting, by any executor. A window wakes at most eight futures at a time.
///
/// Every waiter is woken, and those for whom nothing is left wait again. So a future that is
/// dropped, at whatever point, takes no message and no wake-up with it; its place is free at
/// once. (One that is forgotten keeps its place.)
impl<R: WindowRef> Assignment<R> {
    /// As [`Assignment::take`], when something is ready. The lease is not stamped:
    /// [`Lease::touch`] does that.
    ///
    /// # Errors
    /// [`WaitError::Stale`] and `Closed` as in [`TakeError`], also when that comes while it waits;
    /// `WaitersFull` when eight wait already; `Nothing` when `n` is 0.
    ///
    /// ```
    /// # use std::{pin::pin, task::{Context, Poll, Waker}};
    /// # fn run<F: Future>(future: F) -> F::Output {
    /// #     let mut context = Context::from_waker(Waker::noop());
    /// #     let Poll::Ready(output) = pin!(future).poll(&mut context) else { panic!("waits") };
    /// #     output
    /// # }
    /// use inflight::{RingWindow, Window};
    ///
    /// static WINDOW: RingWindow<u32, 8> = RingWindow::new();
    /// let part = WINDOW.assign(0);
    /// # run(async {
    /// part.put(0, 7)?;
    /// let lease = part.take_async(32).await?;
    /// assert_eq!(lease.commit()?.next.get(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn take_async(&self, n: usize) -> TakeFuture<R> {
        TakeFuture { waiter: Waiter::new(self), n }
    }

    /// As [`Assignment::take_shared`], when something is ready.
    ///
    /// # Errors
    /// As [`Assignment::take_async`].
    #[cfg(feature = "alloc")]
    pub fn take_shared_async(
        &self,
        n: usize,
    ) -> TakeSharedFuture<R, crate::shelf::DefaultShelf<Value<R>>>
    where
        Value<R>: Clone,
    {
        TakeSharedFuture { waiter: Waiter::new(self), n, shelf: PhantomData }
    }

    /// As [`Assignment::take_shared_in`], when something is ready.
    ///
    /// # Errors
    /// As [`Assignment::take_async`].
    pub fn take_shared_in_async<const B: usize>(
        &self,
        n: usize,
    ) -> impl Future<Output = Result<SharedLeaseIn<R, B>, WaitError>> + Unpin + use<R, B>
    where
        Value<R>: Clone,
    {
        TakeSharedFuture { waiter: Waiter::new(self), n, shelf: PhantomData }
    }

    /// Waits for room: until a put at [`Assignment::end`] is not refused as `Full`. For the next
    /// message of a log with holes see [`Assignment::space_for_async`].
    ///
    /// Who has to wait is woken when at most half of the window is in use, once each time that it
    /// comes to that: a full window that gets one place back does not wake a putter for each.
    /// (Others who put meanwhile can keep it above half.) In a `SkipWindow`, which is full only at
    /// the limits of its counters, it hardly ever waits.
    ///
    /// # Errors
    /// [`WaitError::Stale`], `Closed` and `WaitersFull`.
    pub fn space_async(&self) -> SpaceFuture<R> {
        SpaceFuture { waiter: Waiter::new(self), offset: None }
    }

    /// As [`Assignment::space_async`], until a put of `offset` is not refused as `Full`.
    /// An offset that is refused for another reason is not waited for: the put says why.
    ///
    /// # Errors
    /// As [`Assignment::space_async`].
    pub fn space_for_async(&self, offset: u64) -> SpaceFuture<R> {
        SpaceFuture { waiter: Waiter::new(self), offset: Some(offset) }
    }
}
