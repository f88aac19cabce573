//! [`Budgeted`]: a window of any kind, and the share that pays for its messages.

use core::fmt;
use core::ops::{ControlFlow, Deref};

use super::{Budget, Share};
use crate::engine::{Elsewhere, Evicted, Meter, Space, Words};
use crate::error::{PutErrorKind, Stale};
use crate::position::Pos;
use crate::ring::RingWindow;
use crate::slot::{Lap, Place, Slot, Taken};
use crate::sync::{Word, const_unless_loom};
use crate::window::{Sealed, Window};

/// A window that pays from its [`Share`] of a [`Budget`] for every message in it.
///
/// Everything is as in the window itself, which may be of any kind, also in a `Box`; and beside
/// the put under a [`Permit`](crate::Permit) also the plain one pays: it is refused as
/// [`OverBudget`](crate::PutError::OverBudget) when nothing is left. What leaves the window, in
/// whatever way, gives back what it cost at that moment, before its value is dropped.
///
/// A message costs what a put said: one message and its bytes. See [`Budget`] for an example.
///
/// (A `Participant` of a `SkipWindow` is not to be had through this.)
pub struct Budgeted<W, B: Deref<Target = Budget> = &'static Budget> {
    window: W,
    share: Share<B>,
}

impl<W: Window, B: Deref<Target = Budget>> Budgeted<W, B> {
    /// A window with a share. What the window had in it is dropped: nobody has paid for it.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use inflight::{Budget, Budgeted, PutError, RingWindow, Share, Window};
    ///
    /// let budget = Arc::new(Budget::new(1, 1024));
    /// let window = Budgeted::new(RingWindow::<&str, 8>::boxed(), Share::new(Arc::clone(&budget)));
    /// let part = window.assign(0);
    /// part.put_sized(0, 1000, "a")?;
    /// assert_eq!(part.put_sized(1, 10, "b"), Err(PutError::OverBudget("b")));
    /// part.take(1)?.commit()?;
    /// part.put_sized(1, 10, "b")?;
    /// assert_eq!(budget.free().bytes, 1014);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn new(mut window: W, share: Share<B>) -> Self {
        while window.drain_next().is_some() {}
        Self { window, share }
    }

    /// The share.
    pub fn share(&self) -> &Share<B> {
        &self.share
    }
}

impl<T, const N: usize, B: Deref<Target = Budget>> Budgeted<RingWindow<T, N>, B> {
    const_unless_loom! {
        /// A [`RingWindow::new`] with a share, for a static.
        ///
        /// ```
        /// use inflight::{Budget, Budgeted, RingWindow, Share, Window};
        ///
        /// static BUDGET: Budget = Budget::new(100, 1 << 20);
        /// static WINDOW: Budgeted<RingWindow<u32, 256>> = Budgeted::ring(Share::new(&BUDGET));
        ///
        /// let part = WINDOW.assign(0);
        /// assert_eq!(part.reserve(32, 64 << 10)?.messages(), 32);
        /// # Ok::<(), inflight::ReserveError>(())
        /// ```
        pub const fn ring(share: Share<B>) -> Self {
            Self { window: RingWindow::new(), share }
        }
    }
}

impl<W: fmt::Debug, B: Deref<Target = Budget>> fmt::Debug for Budgeted<W, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budgeted")
            .field("window", &self.window)
            .field("share", &self.share)
            .finish()
    }
}

impl<W, B: Deref<Target = Budget>> Sealed for Budgeted<W, B> {}

impl<W: Window, B: Deref<Target = Budget>> Window for Budgeted<W, B> {
    type Value = W::Value;
    type Space = Self;

    #[inline(always)]
    fn space(&self) -> &Self {
        self
    }

    #[inline(always)]
    fn pin(&self) -> <Self as Space>::Pin {
        self.window.pin()
    }

    fn capacity(&self) -> Option<usize> {
        self.window.capacity()
    }

    fn drain_next(&mut self) -> Option<(u64, W::Value)> {
        let before = self.window.usage();
        let next = self.window.drain_next();
        // Alone with the window: the difference is what it took out.
        let out = before.minus(self.window.usage());
        self.share.finished(out.count, out.bytes);
        next
    }
}

/// The window's, and its share as the meter.
impl<W: Window, B: Deref<Target = Budget>> Space for Budgeted<W, B> {
    type Value = W::Value;
    type Pin = <W::Space as Space>::Pin;
    type Meter = Share<B>;

    const CURSOR_BITS: u32 = W::Space::CURSOR_BITS;
    const LOOKS_FROM_WATERMARK: bool = W::Space::LOOKS_FROM_WATERMARK;

    #[inline(always)]
    fn words(&self) -> &Words {
        self.window.space().words()
    }

    #[inline(always)]
    fn meter(&self) -> &Share<B> {
        &self.share
    }

    #[inline(always)]
    fn bound(&self, watermark: Pos) -> Pos {
        self.window.space().bound(watermark)
    }

    #[inline(always)]
    fn stride(&self) -> u64 {
        self.window.space().stride()
    }

    #[inline(always)]
    fn reach(&self) -> u64 {
        self.window.space().reach()
    }

    #[inline(always)]
    fn far(&self) -> u64 {
        self.window.space().far()
    }

    #[inline(always)]
    fn find<'p>(
        &'p self,
        pos: Pos,
        pin: &'p Self::Pin,
    ) -> Result<Place<'p, Self::Value>, Elsewhere> {
        self.window.space().find(pos, pin)
    }

    #[inline(always)]
    fn make_room(
        &self,
        pos: Pos,
        pin: &Self::Pin,
        raise: impl FnMut(Word) -> Result<bool, Stale>,
    ) -> Result<(), PutErrorKind> {
        self.window.space().make_room(pos, pin, raise)
    }

    #[inline(always)]
    fn beside<'p>(
        &'p self,
        last: Place<'p, W::Value>,
        pos: Pos,
        pin: &'p Self::Pin,
    ) -> Option<Place<'p, W::Value>> {
        self.window.space().beside(last, pos, pin)
    }

    #[inline(always)]
    fn open<'p>(&'p self, pos: Pos, pin: &'p Self::Pin) -> Result<Place<'p, Self::Value>, Taken> {
        self.window.space().open(pos, pin)
    }

    #[inline(always)]
    fn scan<'p, C>(
        &'p self,
        from: Pos,
        to: Pos,
        pin: &'p Self::Pin,
        visit: impl FnMut(Place<'p, Self::Value>) -> ControlFlow<C>,
    ) -> ControlFlow<C>
    where
        Self::Value: 'p,
    {
        self.window.space().scan(from, to, pin, visit)
    }

    #[inline(always)]
    fn position_of(&self, slot: &Slot<Self::Value>) -> Pos {
        self.window.space().position_of(slot)
    }

    #[inline(always)]
    fn slide(&self, pin: &Self::Pin) -> Pos {
        self.window.space().slide(pin)
    }

    #[inline(always)]
    fn sweep(
        &self,
        first: Pos,
        pin: &Self::Pin,
        visit: impl FnMut(&Slot<Self::Value>, Lap) -> Evicted,
    ) {
        self.window.space().sweep(first, pin, visit);
    }

    #[inline(always)]
    fn begin(&self, first: Pos, pin: &Self::Pin) {
        self.window.space().begin(first, pin);
    }

    #[inline(always)]
    fn filled(&self, place: Place<'_, Self::Value>, pin: &Self::Pin) {
        self.window.space().filled(place, pin);
    }

    #[inline(always)]
    fn vacated(&self, slot: &Slot<Self::Value>, pos: impl FnOnce() -> Pos, pin: &Self::Pin) {
        self.window.space().vacated(slot, pos, pin);
    }

    #[inline(always)]
    unsafe fn released(&self, slot: &Slot<Self::Value>, pin: &Self::Pin) {
        // SAFETY: promised by the caller.
        unsafe { self.window.space().released(slot, pin) };
    }
}
