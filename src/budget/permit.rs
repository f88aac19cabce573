//! [`Permit`]: what was reserved and is not admitted yet.

#[cfg(feature = "async")]
use core::future::Future;
#[cfg(feature = "async")]
use core::pin::Pin;
#[cfg(feature = "async")]
use core::task::{Context, Poll};

use core::fmt;
use core::ops::Deref;

use super::{Budget, Budgeted};
use crate::assignment::Assignment;
use crate::engine::{CreditOf, Ended, Meter, Space};
#[cfg(feature = "async")]
use crate::error::WaitError;
use crate::error::{BatchPut, BatchPutError, Put, PutError, ReserveError};
use crate::flow::Usage;
#[cfg(feature = "async")]
use crate::waiting::{ROOM, Waiter};
use crate::window::{Value, Window, WindowRef};

type SpaceOf<R> = <<R as WindowRef>::Window as Window>::Space;
type MeterOf<R> = <SpaceOf<R> as Space>::Meter;

/// Messages and bytes reserved for what is about to be pulled: see [`Assignment::reserve`].
///
/// **A put takes one message and its real size from the permit; what the permit lacks it takes
/// from the share**, as a put without a permit does. So a message larger than what was left of its
/// permit is admitted when the share has the rest, and otherwise refused as
/// [`OverBudget`](PutError::OverBudget) and handed back. Bytes reserved too much stay in the
/// permit for the next message.
///
/// Dropped, it gives back what was not used, also when its assignment has ended meanwhile. (One
/// that is forgotten keeps it until the window is dropped.)
#[must_use = "dropped, it gives back what it reserved"]
pub struct Permit<R: WindowRef> {
    part: Assignment<R>,
    credit: CreditOf<SpaceOf<R>>,
}

impl<R: WindowRef> Permit<R> {
    /// Of any window; one without a budget grants everything.
    pub(crate) fn reserve(
        part: &Assignment<R>,
        least: Usage,
        most: Usage,
    ) -> Result<Self, ReserveError> {
        let open = || match part.part().open() {
            Ok(()) => Ok(()),
            Err(Ended::Stale) => Err(ReserveError::Stale),
            Err(Ended::Closed) => Err(ReserveError::Closed),
        };
        open()?;
        let credit = part.part().space.meter().reserve(least, most);
        // Before a refusal is said, as everywhere; and a permit of an ended assignment is none.
        let permit = credit.map(|credit| Self { part: part.clone(), credit });
        open()?;
        permit
    }

    /// Messages left in the permit.
    pub fn messages(&self) -> usize {
        <MeterOf<R>>::left(&self.credit).count
    }

    /// Bytes left in the permit.
    pub fn bytes(&self) -> u64 {
        <MeterOf<R>>::left(&self.credit).bytes
    }

    /// As [`Assignment::put_sized`], paid for from the permit first.
    ///
    /// # Errors
    /// As there; a message that is refused takes nothing from the permit.
    #[inline]
    pub fn put_sized(
        &mut self,
        offset: u64,
        bytes: usize,
        value: Value<R>,
    ) -> Result<Put, PutError<Value<R>>> {
        let pin = self.part.pin();
        self.part.part().put_paid(&mut self.credit, offset, bytes, value, &pin)
    }

    /// As [`Assignment::put_batch_sized`], paid for from the permit first. What is known already
    /// costs nothing.
    ///
    /// # Errors
    /// As there.
    ///
    /// ```
    /// use inflight::{Budget, Budgeted, PutErrorKind, RingWindow, Share, Window};
    ///
    /// let budget = Budget::new(4, 1000);
    /// let window = Budgeted::new(RingWindow::<&str, 8>::new(), Share::new(&budget));
    /// let part = window.assign(0);
    /// let mut permit = part.reserve(4, 20)?;
    ///
    /// let mut pulled = [(0, "four"), (1, "five!"), (2, "eleven more")].into_iter();
    /// permit.put_batch_sized(&mut pulled, |text| text.len())?;
    /// assert_eq!((permit.messages(), permit.bytes(), budget.free().bytes), (1, 0, 980));
    ///
    /// let mut more = [(2, "eleven more"), (3, "x"), (4, "y")].into_iter();
    /// let stopped = permit.put_batch_sized(&mut more, |text| text.len()).unwrap_err();
    /// assert_eq!((stopped.error, stopped.value), (PutErrorKind::OverBudget, "y"));
    /// assert_eq!((stopped.so_far.duplicates, stopped.so_far.admitted), (1, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn put_batch_sized(
        &mut self,
        messages: &mut impl Iterator<Item = (u64, Value<R>)>,
        mut size: impl FnMut(&Value<R>) -> usize,
    ) -> Result<BatchPut, BatchPutError<Value<R>>> {
        let pin = self.part.pin();
        self.part.part().put_batch_paid(&mut self.credit, messages, &mut size, &pin)
    }
}

impl<R: WindowRef> Drop for Permit<R> {
    fn drop(&mut self) {
        self.part.part().space.meter().refund(self.credit);
    }
}

impl<R: WindowRef> fmt::Debug for Permit<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("messages", &self.messages())
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}

/// Reserving, in a window with a budget.
impl<W, B, R> Assignment<R>
where
    W: Window,
    B: Deref<Target = Budget>,
    R: WindowRef<Window = Budgeted<W, B>>,
{
    /// Reserves room in the budget for `messages` that are about to be pulled, of `max_bytes`
    /// together: all of it or nothing, at once. They count from now on, so no pull overshoots the
    /// limit, by however many pullers; what turns out not to be needed goes back when the permit
    /// is dropped. See [`Budget`] for an example.
    ///
    /// # Errors
    /// [`ReserveError::Short`] says what is missing; never waits. What a call beside this one is
    /// about to give back may be missing still.
    ///
    /// O(1), lock-free.
    pub fn reserve(&self, messages: usize, max_bytes: u64) -> Result<Permit<R>, ReserveError> {
        let all = Usage { count: messages, bytes: max_bytes };
        Permit::reserve(self, all, all)
    }

    /// As [`Assignment::reserve`], or as much of that as there is: at least one message, and one
    /// byte if bytes were asked for.
    ///
    /// # Errors
    /// As there.
    ///
    /// ```
    /// use inflight::{Budget, Budgeted, ReserveError, RingWindow, Share, Window};
    ///
    /// let budget = Budget::new(40, 1000);
    /// let window = Budgeted::new(RingWindow::<(), 64>::new(), Share::new(&budget));
    /// let part = window.assign(0);
    /// let first = part.reserve_up_to(32, 100)?;
    /// let second = part.reserve_up_to(32, 100)?;
    /// assert_eq!((first.messages(), second.messages()), (32, 8));
    /// let short = ReserveError::Short { messages: 1, bytes: 0 };
    /// assert_eq!(part.reserve_up_to(32, 100).unwrap_err(), short);
    /// # Ok::<(), ReserveError>(())
    /// ```
    pub fn reserve_up_to(
        &self,
        messages: usize,
        max_bytes: u64,
    ) -> Result<Permit<R>, ReserveError> {
        let most = Usage { count: messages, bytes: max_bytes };
        Permit::reserve(self, most.min(Usage { count: 1, bytes: 1 }), most)
    }

    /// As [`Assignment::reserve`], when there is room. At most eight wait on one budget at a time;
    /// all are woken whenever something is given back, and those that are still short wait again.
    /// A future that is dropped takes nothing with it.
    ///
    /// # Errors
    /// [`WaitError::Stale`] and `Closed`, also when that comes while it waits; `WaitersFull`;
    /// `TooMuch` when it would wait for ever.
    #[cfg(feature = "async")]
    pub fn reserve_async(&self, messages: usize, max_bytes: u64) -> ReserveFuture<R> {
        let all = Usage { count: messages, bytes: max_bytes };
        ReserveFuture { waiter: Waiter::on_budget(self), all }
    }
}

/// A permit to come: see [`Assignment::reserve_async`].
#[cfg(feature = "async")]
#[must_use = "a future does nothing unless it is polled"]
pub struct ReserveFuture<R: WindowRef> {
    waiter: Waiter<R>,
    all: Usage,
}

#[cfg(feature = "async")]
impl<R: WindowRef> Unpin for ReserveFuture<R> {}

#[cfg(feature = "async")]
impl<R: WindowRef> Future for ReserveFuture<R> {
    type Output = Result<Permit<R>, WaitError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let all = self.all;
        self.waiter.poll(context, ROOM, |part| {
            part.part().space.meter().meet();
            Some(match Permit::reserve(part, all, all) {
                Ok(permit) => Ok(permit),
                Err(ReserveError::Short { .. }) => return None,
                Err(ReserveError::TooMuch { .. }) => Err(WaitError::TooMuch),
                Err(ReserveError::Stale) => Err(WaitError::Stale),
                Err(ReserveError::Closed) => Err(WaitError::Closed),
            })
        })
    }
}

#[cfg(feature = "async")]
impl<R: WindowRef> fmt::Debug for ReserveFuture<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReserveFuture").field("asked", &self.all).finish_non_exhaustive()
    }
}
