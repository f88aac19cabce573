//! [`Assignment`]: the handle of one generation, through which every call goes.

use core::cell::Cell;
use core::fmt;

use crate::engine::{Finishing, Generation, Part, Space, for_each};
use crate::error::{
    AdvanceError, BatchPut, BatchPutError, BatchRemove, Floor, Next, Put, PutError, RemoveError,
    RevokeError, SkipReason, Stale, TakeError, Ticket,
};
use crate::lease::Lease;
use crate::shared::{SharedLease, SharedLeaseIn};
use crate::shelf::Shelf;
use crate::window::{Value, Window, WindowRef};

/// One assignment of a partition to this consumer: maps offsets to the window, fences the older
/// ones. Made by [`Window::assign`]; the last one of a window wins, all others get `Stale`.
///
/// Copy when it borrows the window, Clone when it owns it. All its calls are lock-free and may
/// come from any thread or interrupt; none waits, none panics unless code of the user does
/// (`Drop`, `Clone`, an iterator given to it).
pub struct Assignment<R: WindowRef> {
    window: R,
    generation: Generation,
}

impl<R: WindowRef> Clone for Assignment<R> {
    fn clone(&self) -> Self {
        Self { window: self.window.clone(), generation: self.generation }
    }
}

impl<R: WindowRef + Copy> Copy for Assignment<R> {}

/// The space of the window behind a reference.
type SpaceOf<R> = <<R as WindowRef>::Window as Window>::Space;
/// The pin of the space.
type PinOf<R> = <SpaceOf<R> as Space>::Pin;

impl<R: WindowRef> Assignment<R> {
    pub(crate) fn new(window: R, generation: Generation) -> Self {
        Self { window, generation }
    }

    /// The same generation, by another reference to the same window.
    #[cfg_attr(not(feature = "alloc"), allow(dead_code))] // only the skip window has others
    pub(crate) fn through<O: WindowRef<Window = R::Window>>(&self, window: O) -> Assignment<O> {
        Assignment { window, generation: self.generation }
    }

    #[inline(always)]
    pub(crate) fn part(&self) -> Part<'_, SpaceOf<R>> {
        Part { space: self.window.window().space(), generation: self.generation }
    }

    /// Keeps what this call looks at alive.
    #[inline(always)]
    pub(crate) fn pin(&self) -> PinOf<R> {
        self.window.pin()
    }

    /// The window.
    pub fn window(&self) -> &R::Window {
        self.window.window()
    }

    /// Admits a message. Counts no bytes; see [`Assignment::put_sized`].
    ///
    /// # Errors
    /// The message comes back inside the error. `Full` at `watermark + capacity` and beyond, or
    /// while the slot is not free; never waits.
    ///
    /// O(1) unless the window is full, then O(capacity). RocketMQ: `putMessage`.
    ///
    /// ```
    /// use inflight::{PutError, RingWindow, Window};
    ///
    /// let window = RingWindow::<&str, 2>::new();
    /// let part = window.assign(0);
    /// assert!(part.put(0, "a")?.dispatch);
    /// assert_eq!(part.put(0, "again"), Err(PutError::Duplicate("again")));
    /// part.put(1, "b")?;
    /// assert_eq!(part.put(2, "c"), Err(PutError::Full("c")));
    /// # Ok::<(), PutError<&str>>(())
    /// ```
    #[inline]
    pub fn put(&self, offset: u64, value: Value<R>) -> Result<Put, PutError<Value<R>>> {
        self.put_sized(offset, 0, value)
    }

    /// Admits a message that counts `bytes` in [`Window::bytes`] until it is finished.
    ///
    /// # Errors
    /// As [`Assignment::put`]; `OutOfRange` also when `bytes` is over 4 GiB - 1 (16 MiB on
    /// 32-bit targets).
    #[inline]
    pub fn put_sized(
        &self,
        offset: u64,
        bytes: usize,
        value: Value<R>,
    ) -> Result<Put, PutError<Value<R>>> {
        self.part().put(offset, bytes, value, &self.pin())
    }

    /// Admits what the iterator gives. Idempotent on overlap: what is known already is counted
    /// and dropped, what is new is admitted. End, counters and slide are paid once for up to 64.
    ///
    /// # Errors
    /// Stops at the first message that is refused for another reason; that one is in the error,
    /// and the iterator has the rest. When the assignment ends during the call, messages of the
    /// batch that were stored already are dropped with the rest of the assignment.
    ///
    /// ```
    /// use inflight::{RingWindow, Window};
    ///
    /// let window = RingWindow::<u32, 64>::new();
    /// let part = window.assign(0);
    /// part.put_batch(&mut (0..10).map(|n| (n, 7)))?;
    /// let again = part.put_batch(&mut (5..15).map(|n| (n, 7)))?;
    /// assert_eq!((again.admitted, again.duplicates), (5, 5));
    /// # Ok::<(), inflight::BatchPutError<u32>>(())
    /// ```
    pub fn put_batch(
        &self,
        messages: &mut impl Iterator<Item = (u64, Value<R>)>,
    ) -> Result<BatchPut, BatchPutError<Value<R>>> {
        self.part().put_batch(messages, &mut |_| 0, &self.pin())
    }

    /// As [`Assignment::put_batch`], counting `size(message)` bytes for each.
    ///
    /// # Errors
    /// As [`Assignment::put_batch`].
    pub fn put_batch_sized(
        &self,
        messages: &mut impl Iterator<Item = (u64, Value<R>)>,
        mut size: impl FnMut(&Value<R>) -> usize,
    ) -> Result<BatchPut, BatchPutError<Value<R>>> {
        self.part().put_batch(messages, &mut size, &self.pin())
    }

    /// Claims the `n` lowest ready messages, or as many as there are, lent in place by a lease
    /// that nobody can revoke. For messages that can be taken away from a hung worker see
    /// [`SharedLease`].
    ///
    /// # Errors
    /// [`TakeError::Empty`] when nothing is ready or `n` is 0 (which changes nothing).
    ///
    /// O(n + what lies between); a take that finds nothing looks at the whole span. RocketMQ:
    /// `takeMessages`.
    #[inline]
    pub fn take(&self, n: usize) -> Result<Lease<R>, TakeError> {
        self.lend(n, None)
    }

    /// As [`Assignment::take`], by a lease that holds clones: its messages can be removed by
    /// number and revoked while it is alive.
    ///
    /// # Errors
    /// As [`Assignment::take`].
    #[cfg(feature = "alloc")]
    pub fn take_shared(&self, n: usize) -> Result<SharedLease<R>, TakeError>
    where
        Value<R>: Clone,
    {
        self.share(n, None)
    }

    /// As [`Assignment::take`], by a shared lease of at most `B` messages, without an allocator.
    ///
    /// # Errors
    /// As [`Assignment::take`].
    pub fn take_shared_in<const B: usize>(&self, n: usize) -> Result<SharedLeaseIn<R, B>, TakeError>
    where
        Value<R>: Clone,
    {
        self.share(n, None)
    }

    #[inline]
    fn lend(&self, n: usize, now: Option<u64>) -> Result<Lease<R>, TakeError> {
        let part = self.part();
        let pin = self.pin();
        let chain = part.claim(n, now, &pin)?;
        // SAFETY: the chain was claimed by this take, of this window.
        Ok(unsafe { Lease::new(self.clone(), chain) })
    }

    fn share<S: Shelf<Value<R>>>(
        &self,
        n: usize,
        now: Option<u64>,
    ) -> Result<SharedLease<R, S>, TakeError>
    where
        Value<R>: Clone,
    {
        SharedLease::take(self.clone(), n, now)
    }

    /// The view of this assignment at tick `now`, of a clock that the caller chooses: its takes
    /// and revokes stamp the messages, so that [`Assignment::stalled`] can list them.
    ///
    /// Ticks wrap at the width of a pointer; ages must stay below half of that.
    pub fn at(&self, now: u64) -> At<'_, R> {
        At { part: self, now }
    }

    /// Finishes one offset by number, ready or held, from any thread or interrupt, in any order.
    /// The watermark after its own slide. RocketMQ: `removeMessage`.
    ///
    /// # Errors
    /// [`RemoveError::Held`] when the message is lent or being revoked. Such a completion is
    /// **not recorded**: when the holder gives the message back, it is delivered again.
    ///
    /// O(1) and the slide, which passes each offset once.
    ///
    /// ```
    /// use inflight::{RemoveError, RingWindow, Window};
    ///
    /// let window = RingWindow::<(), 8>::new();
    /// let part = window.assign(5);
    /// part.put_batch(&mut (5..8).map(|n| (n, ())))?;
    /// assert_eq!(part.remove(6)?.get(), 5);
    /// assert_eq!(part.remove(5)?.get(), 7);
    /// assert_eq!(part.remove(5), Err(RemoveError::Passed));
    /// assert_eq!(part.remove(99), Err(RemoveError::Unknown));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn remove(&self, offset: u64) -> Result<Next, RemoveError> {
        self.part().remove(offset, &self.pin())
    }

    /// Finishes the message of a ticket: as [`Assignment::remove`] does by its offset, but without
    /// a search in a window that is [numbered by arrival](crate::RingWindow::numbered).
    ///
    /// A ticket belongs to one window. Another one's names whatever stands there in this.
    ///
    /// # Errors
    /// As [`Assignment::remove`]; a ticket of an ended assignment is
    /// [`Passed`](RemoveError::Passed).
    ///
    /// O(1) and the slide, which passes each message once.
    ///
    /// ```
    /// use inflight::{RemoveError, RingWindow, Window};
    ///
    /// let window = RingWindow::<&str, 8>::numbered();
    /// let part = window.assign(0);
    /// let first = part.put(1_000, "a line")?.ticket;
    /// let second = part.put(1_080, "another")?.ticket;
    /// assert_eq!(part.remove_ticket(second)?.get(), 1_000);
    /// assert_eq!(part.remove_ticket(first)?.get(), 1_081);
    /// assert_eq!(part.remove_ticket(first), Err(RemoveError::Passed));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn remove_ticket(&self, ticket: Ticket) -> Result<Next, RemoveError> {
        self.part().remove_at(ticket.0, &self.pin())
    }

    /// Finishes offsets by number; counters and slide are paid once. An empty batch is no error.
    ///
    /// # Errors
    /// [`Stale`] when the assignment has ended. What happened to each offset: see
    /// [`Assignment::remove_each`].
    pub fn remove_batch(
        &self,
        offsets: impl IntoIterator<Item = u64>,
    ) -> Result<BatchRemove, Stale> {
        self.remove_each(offsets, |_, _| {})
    }

    /// As [`Assignment::remove_batch`], telling what happened to each offset.
    ///
    /// # Errors
    /// [`Stale`] when the assignment has ended.
    pub fn remove_each(
        &self,
        offsets: impl IntoIterator<Item = u64>,
        mut each: impl FnMut(u64, Result<(), RemoveError>),
    ) -> Result<BatchRemove, Stale> {
        let part = self.part();
        let pin = self.pin();
        let mut finishing = Finishing::new(part, &pin);
        let mut done = BatchRemove { next: Next(0), applied: 0, passed: 0, held: 0, unknown: 0 };
        let mut offsets = offsets.into_iter();
        let told = Cell::new(None);
        for_each(
            || {
                if let Some((offset, removed)) = told.take() {
                    each(offset, removed);
                }
                offsets.next()
            },
            |offset| {
                let removed = finishing.remove(offset);
                match removed {
                    Ok(()) => done.applied += 1,
                    Err(RemoveError::Passed) => done.passed += 1,
                    Err(RemoveError::Held) => done.held += 1,
                    Err(RemoveError::Unknown) => done.unknown += 1,
                    Err(RemoveError::Stale) => {}
                }
                told.set(Some((offset, removed)));
            },
        );
        done.next = finishing.slide()?;
        Ok(done)
    }

    /// The watermark: everything below it is finished, so it is safe to persist. One load; never
    /// slides, and needs to only after a gap became sealable: [`Assignment::min_offset`].
    ///
    /// # Errors
    /// [`Stale`] when the assignment has ended.
    #[inline]
    pub fn watermark(&self) -> Result<Next, Stale> {
        self.part().watermark(|| self.pin())
    }

    /// Slides once, then the watermark: the lowest unfinished offset, or `end` when there is
    /// none. (With the caller's seal, at most what [`Assignment::advance_to`] said.)
    ///
    /// # Errors
    /// [`Stale`] when the assignment has ended.
    pub fn min_offset(&self) -> Result<Next, Stale> {
        self.part().min_offset(&self.pin())
    }

    /// "Nothing more exists below `next`": a filtered tail, a compacted range; and the caller's
    /// seal. Gaps below are sealed, puts into them refused. With something unfinished below, the
    /// watermark reaches `next` when that is finished. Never moves anything back.
    ///
    /// # Errors
    /// [`AdvanceError::OutOfRange`] when `next` lies too far beyond the watermark (an eighth of
    /// the laps of a slot: 2^47 times the capacity and at most 2^62; with 32 bits 2^17 times and at
    /// most 2^29).
    ///
    /// O(capacity). RocketMQ: `setNextOffset` with `removeMessage` of nothing.
    ///
    /// ```
    /// use inflight::{RingWindow, Window};
    ///
    /// let window = RingWindow::<(), 8>::new();
    /// let part = window.assign(0);
    /// part.put(5, ())?;
    /// assert_eq!(part.advance_to(8)?.get(), 5);
    /// assert_eq!(part.remove(5)?.get(), 8);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn advance_to(&self, next: u64) -> Result<Next, AdvanceError> {
        self.part().advance_to(next, &self.pin())
    }

    /// Gives up one offset and goes on: a poisoned message, one put aside. As
    /// [`Assignment::remove`], but counted by reason ([`Window::skipped`]), apart from what was
    /// finished.
    ///
    /// # Errors
    /// As [`Assignment::remove`].
    ///
    /// ```
    /// use inflight::{RingWindow, SkipReason, Window};
    ///
    /// let window = RingWindow::<(), 8>::new();
    /// let part = window.assign(0);
    /// part.put(0, ())?;
    /// assert_eq!(part.skip(0, SkipReason::Poison)?.get(), 1);
    /// assert_eq!(window.skipped(SkipReason::Poison), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn skip(&self, offset: u64, reason: SkipReason) -> Result<Next, RemoveError> {
        self.part().skip(offset, reason, &self.pin())
    }

    /// The log now begins at `low`: retention took what lies below. Everything below that waits
    /// or is held in a shared lease is dropped, each given to `dropped` with its offset, in no
    /// particular order; the watermark is `low`, or higher if it was. What a lending lease has is
    /// let go of: that lease counts it as `gone`, and until it ends puts that need its slot are
    /// `Full`. A put of an offset below, also one that is running, is refused.
    ///
    /// # Errors
    /// As [`Assignment::advance_to`].
    ///
    /// O(capacity), in a `SkipWindow` O(span).
    ///
    /// ```
    /// use inflight::{RingWindow, Window};
    ///
    /// let window = RingWindow::<&str, 8>::new();
    /// let part = window.assign(0);
    /// part.put_batch(&mut [(0, "a"), (1, "b"), (2, "c")].into_iter())?;
    /// let mut lost = Vec::new();
    /// let floor = part.advance_floor(2, |offset, message| lost.push((offset, message)))?;
    /// assert_eq!((floor.next.get(), floor.dropped), (2, 2));
    /// assert_eq!(lost, [(0, "a"), (1, "b")]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn advance_floor(
        &self,
        low: u64,
        mut dropped: impl FnMut(u64, Value<R>),
    ) -> Result<Floor, AdvanceError> {
        self.part().advance_floor(low, &self.pin(), &mut dropped)
    }

    /// The highest offset admitted or skipped to, plus one.
    ///
    /// # Errors
    /// [`Stale`] when the assignment has ended.
    pub fn end(&self) -> Result<u64, Stale> {
        self.part().end()
    }

    /// `end - watermark`: what a restart would have to look at again.
    ///
    /// # Errors
    /// [`Stale`] when the assignment has ended.
    pub fn span(&self) -> Result<u64, Stale> {
        self.part().span()
    }

    /// How far the broker, whose next offset to write is `max`, is ahead of this window.
    ///
    /// # Errors
    /// [`Stale`] when the assignment has ended.
    pub fn backlog(&self, max: u64) -> Result<u64, Stale> {
        Ok(max.saturating_sub(self.end()?))
    }

    /// Closes the window for this assignment: puts that begin later are refused; takes go on, and
    /// answer [`TakeError::Closed`] when nothing is left unfinished. True when it was open.
    ///
    /// A put that runs beside this call may still be admitted; stop the putters first where that
    /// matters.
    ///
    /// # Errors
    /// [`Stale`] when the assignment has ended.
    pub fn close(&self) -> Result<bool, Stale> {
        self.part().close()
    }
}

impl<R: WindowRef> fmt::Debug for Assignment<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut picture = f.debug_struct("Assignment");
        match (self.watermark(), self.end()) {
            (Ok(watermark), Ok(end)) => {
                picture.field("watermark", &watermark.get()).field("end", &end);
            }
            _ => {
                picture.field("stale", &true);
            }
        }
        picture.field("count", &self.window().count()).finish()
    }
}

/// An assignment at one tick of its caller's clock: see [`Assignment::at`].
#[must_use]
pub struct At<'a, R: WindowRef> {
    part: &'a Assignment<R>,
    now: u64,
}

impl<R: WindowRef> At<'_, R> {
    /// As [`Assignment::take`], stamped.
    ///
    /// # Errors
    /// As [`Assignment::take`].
    pub fn take(&self, n: usize) -> Result<Lease<R>, TakeError> {
        self.part.lend(n, Some(self.now))
    }

    /// As [`Assignment::take_shared`], stamped.
    ///
    /// # Errors
    /// As [`Assignment::take`].
    #[cfg(feature = "alloc")]
    pub fn take_shared(&self, n: usize) -> Result<SharedLease<R>, TakeError>
    where
        Value<R>: Clone,
    {
        self.part.share(n, Some(self.now))
    }

    /// As [`Assignment::take_shared_in`], stamped.
    ///
    /// # Errors
    /// As [`Assignment::take`].
    pub fn take_shared_in<const B: usize>(&self, n: usize) -> Result<SharedLeaseIn<R, B>, TakeError>
    where
        Value<R>: Clone,
    {
        self.part.share(n, Some(self.now))
    }

    /// Takes a held message away from whoever holds it, by a lending lease: until that is
    /// committed, rolled back or detached nobody else can finish the message. The old holder has
    /// its clone and learns at its next call that the message is gone. It is no delivery: only
    /// takes are counted.
    ///
    /// Exactly one of old lease, remover and revoker wins. A message may have been given back and
    /// taken again since it was listed as stalled; then this takes it from its younger lease.
    ///
    /// # Errors
    /// [`RevokeError`] says where the message is instead.
    ///
    /// ```
    /// use inflight::{RingWindow, Window};
    ///
    /// let window = RingWindow::<u8, 8>::new();
    /// let part = window.assign(0);
    /// part.put(0, 42)?;
    /// let hung = part.at(100).take_shared(1)?;
    /// let lease = part.at(500).revoke(0)?;
    /// assert_eq!(lease.commit()?.next.get(), 1);
    /// assert_eq!(hung.commit()?.gone, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn revoke(&self, offset: u64) -> Result<Lease<R>, RevokeError> {
        let part = self.part.part();
        let pin = self.part.pin();
        let chain = part.revoke(offset, Some(self.now), &pin)?.into_chain();
        // SAFETY: the chain was claimed by this revoke, of this window.
        Ok(unsafe { Lease::new(self.part.clone(), chain) })
    }

    /// Stamps a held message anew: it counts as taken now. For messages that were detached, and
    /// whose other side gave a sign of life; leases have a `touch` of their own.
    ///
    /// # Errors
    /// [`RevokeError`] says where the message is instead.
    pub fn touch(&self, offset: u64) -> Result<(), RevokeError> {
        self.part.part().touch(offset, self.now, &self.part.pin())
    }
}
