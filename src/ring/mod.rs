//! The bounded window: a fixed ring of slots, no allocator.
//!
//! Slot = position mod `N`, lap = position div `N`. The state word's lap says which position a
//! slot accepts next, so finishing, sealing and jumping all only raise laps. What calls do is in
//! `engine`; here is only where slots are, and the slide.

use core::ops::ControlFlow;

use crate::control::{Branch, Control, hit, weak};
use crate::engine::{Elsewhere, Evicted, Order, Space, Words, move_watermark};
use crate::error::{PutErrorKind, Stale};
use crate::position::{Monotone, Pos, distance, expand, sign_extended};
use crate::slot::{Lap, Phase, Place, Slot, Taken};
use crate::sync::{NARROW, Word, const_unless_loom};
use crate::window::{Sealed, Window};

/// A bounded window of `N` messages: no allocator, const-constructible, made for a `static`.
///
/// `N` is the largest span: a put at `watermark + N` or beyond is refused as `Full` until the
/// watermark moves. It is a power of two from 2 to 2^31 (2^15 on 32-bit targets), checked when
/// the program is compiled:
///
/// ```compile_fail
/// static WINDOW: inflight::RingWindow<u32, 100> = inflight::RingWindow::new();
/// ```
///
/// # The seal
///
/// **[`RingWindow::new`] takes puts in order, from one putter.** Asking to put an offset then
/// says that everything below has been put, whatever the answer: gaps below it may be sealed, and
/// a later put into one is refused (`Passed` or `BelowWatermark`). So a log with holes never
/// stalls.
///
/// **With several putters, or out of order, use [`RingWindow::with_callers_seal`].** Then only
/// [`Assignment::advance_to`](crate::Assignment::advance_to) says what will not come any more;
/// without it, the watermark stops at the first gap.
///
/// # Example
///
/// ```
/// use inflight::{RingWindow, Window};
///
/// static WINDOW: RingWindow<&str, 256> = RingWindow::new();
///
/// let part = WINDOW.assign(7);
/// part.put(7, "a")?;
/// part.put(8, "b")?;
/// let lease = part.take(16)?;
/// assert_eq!(lease.iter().collect::<Vec<_>>(), [(7, &"a"), (8, &"b")]);
/// assert_eq!(lease.commit()?.next.get(), 9);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct RingWindow<T, const N: usize> {
    ring: Ring<[Slot<T>; N]>,
}

impl<T, const N: usize> RingWindow<T, N> {
    const CHECKED: () = assert!(
        N.is_power_of_two() && N >= 2 && (N as u64) <= 1 << (Word::BITS / 2 - 1),
        "the capacity of a RingWindow is a power of two from 2 to 2^31 (2^15 on 32-bit targets)"
    );

    const_unless_loom! {
        /// An empty window for one putter that puts in order. Takes no call before the first
        /// [`assign`](Window::assign).
        pub const fn new() -> Self {
            Self::with_order(0, Order::Offset)
        }
    }

    const_unless_loom! {
        /// An empty window for several putters, or for puts in any order: the watermark passes
        /// gaps only below what [`Assignment::advance_to`](crate::Assignment::advance_to) said.
        pub const fn with_callers_seal() -> Self {
            Self::with_order(0, Order::CallersSeal)
        }
    }

    #[cfg(not(any(target_pointer_width = "32", inflight_word32)))]
    const_unless_loom! {
        /// An empty window that numbers messages by arrival: for sparse logs that come in order,
        /// from one putter (byte positions, LSNs, filtered topics). `N` then counts messages, not
        /// offsets, and gaps cost nothing. Not on 32-bit targets.
        ///
        /// Everything speaks offsets as before; finding one by number costs O(log `N`). Offsets
        /// must ascend; a put that runs beside another is refused as `Full`.
        ///
        /// ```
        /// use inflight::{RingWindow, Window};
        ///
        /// let window = RingWindow::<&str, 8>::numbered();
        /// let part = window.assign(0);
        /// part.put(0, "first line\n")?;
        /// part.put(1_000_000, "a line a megabyte later\n")?;
        /// assert_eq!(part.remove(1_000_000)?.get(), 0);
        /// assert_eq!(part.remove(0)?.get(), 1_000_001);
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        pub const fn numbered() -> Self {
            Self::with_order(0, Order::Arrival)
        }
    }

    const_unless_loom! {
        /// For tests: positions begin at lap `lap`, so that a word's wrap is near.
        #[doc(hidden)]
        pub const fn starting_at(lap: u64, callers_seal: bool) -> Self {
            let order = if callers_seal { Order::CallersSeal } else { Order::Offset };
            Self::with_order(lap, order)
        }
    }

    const_unless_loom! {
        const fn with_order(lap: u64, order: Order) -> Self {
            const { Self::CHECKED };
            Self {
                ring: Ring {
                    words: Words::new(lap * N as u64, order),
                    slots: Self::slots(lap),
                },
            }
        }
    }

    #[cfg(not(loom))]
    const fn slots(lap: u64) -> [Slot<T>; N] {
        let mut slots = [const { core::mem::MaybeUninit::<Slot<T>>::uninit() }; N];
        let mut at = 0;
        while at < N {
            slots[at].write(Slot::new(Lap::new(lap)));
            at += 1;
        }
        // SAFETY: every element was just written; the array of `MaybeUninit` has the layout of
        // the array.
        unsafe { core::mem::transmute_copy(&slots) }
    }

    #[cfg(loom)]
    fn slots(lap: u64) -> [Slot<T>; N] {
        core::array::from_fn(|_| Slot::new(Lap::new(lap)))
    }

    /// An empty window as by [`RingWindow::new`], made in place on the heap: for capacities that
    /// no stack holds. `Arc::from` makes it an owned one.
    #[cfg(all(feature = "alloc", not(loom)))]
    pub fn boxed() -> alloc::boxed::Box<Self> {
        Self::boxed_with(Order::Offset)
    }

    /// An empty window as by [`RingWindow::with_callers_seal`], made in place on the heap.
    #[cfg(all(feature = "alloc", not(loom)))]
    pub fn boxed_with_callers_seal() -> alloc::boxed::Box<Self> {
        Self::boxed_with(Order::CallersSeal)
    }

    /// An empty window as by [`RingWindow::numbered`], made in place on the heap.
    #[cfg(all(
        feature = "alloc",
        not(loom),
        not(any(target_pointer_width = "32", inflight_word32))
    ))]
    pub fn boxed_numbered() -> alloc::boxed::Box<Self> {
        Self::boxed_with(Order::Arrival)
    }

    #[cfg(all(feature = "alloc", not(loom)))]
    fn boxed_with(order: Order) -> alloc::boxed::Box<Self> {
        const { Self::CHECKED };
        let mut window = alloc::boxed::Box::<Self>::new_uninit();
        let at = window.as_mut_ptr();
        // SAFETY: every field, and every slot, is written before the box is said to be whole.
        unsafe {
            (&raw mut (*at).ring.words).write(Words::new(0, order));
            let slots = (&raw mut (*at).ring.slots).cast::<Slot<T>>();
            for index in 0..N {
                slots.add(index).write(Slot::new(Lap::new(0)));
            }
            window.assume_init()
        }
    }
}

impl<T, const N: usize> Default for RingWindow<T, N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T, const N: usize> core::fmt::Debug for RingWindow<T, N> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        crate::window::debug("RingWindow", Some(N), &self.ring.words, f)
    }
}

impl<T, const N: usize> Sealed for RingWindow<T, N> {}

impl<T, const N: usize> Window for RingWindow<T, N> {
    type Value = T;
    type Space = Ring<[Slot<T>]>;

    #[inline(always)]
    fn space(&self) -> &Ring<[Slot<T>]> {
        &self.ring
    }

    #[inline(always)]
    fn pin(&self) {}

    fn capacity(&self) -> Option<usize> {
        Some(N)
    }

    fn drain_next(&mut self) -> Option<(u64, T)> {
        let ring: &Ring<[Slot<T>]> = &self.ring;
        // Nobody puts any more, so no gap need stay open.
        ring.words.seal_all();
        loop {
            let watermark = ring.words.watermark.load();
            if watermark >= ring.words.end(watermark) {
                return None;
            }
            let (index, lap) = (ring.index(watermark), ring.lap(watermark + ring.reach()));
            // SAFETY: `&mut self`.
            let left = ring.slots.get(index).and_then(|slot| unsafe { slot.clear(lap) });
            if let Some((_, taking)) = &left {
                ring.words.flow.finish(1, u64::from(taking.bytes));
            }
            ring.slide(&());
            match left {
                Some((offset, taking)) if !taking.doomed => return Some((offset, taking.value)),
                _ => {}
            }
        }
    }
}

/// The words and slots of a ring. One copy of the code for a message type: the operations are
/// those of the slice.
#[doc(hidden)]
pub struct Ring<A: ?Sized> {
    words: Words,
    slots: A,
}

impl<T> Ring<[Slot<T>]> {
    #[inline(always)]
    fn index(&self, pos: Pos) -> usize {
        pos as usize & (self.slots.len() - 1)
    }

    #[inline(always)]
    fn lap(&self, pos: Pos) -> Lap {
        Lap::new(pos >> self.slots.len().trailing_zeros())
    }

    #[inline(always)]
    fn place(&self, pos: Pos) -> Place<'_, T> {
        // SAFETY: the length is a power of two, so the index is below it.
        let slot = unsafe { self.slots.get_unchecked(self.index(pos)) };
        Place { slot, lap: self.lap(pos), pos }
    }

    /// The first lap of `pos`'s slot whose position is at or above `to`.
    fn lap_at_or_above(&self, pos: Pos, to: Pos) -> Lap {
        self.lap(to + (self.slots.len() - 1) as u64 - self.index(pos) as u64)
    }

    /// May the watermark pass `place`? Seals what was never admitted below the seal. When the
    /// seal lies `far`, slots are raised to their first lap at or above it, finished ones too.
    #[cfg_attr(target_pointer_width = "64", inline(always))]
    fn pass(&self, place: Place<'_, T>, seal: Pos, far: &mut bool) -> bool {
        let state = place.slot.state();
        if state.is_done(place.lap) {
            if *far {
                // Busy with a later lap: the window has moved on, and far is no longer true.
                *far = weak(Control::JumpLeavesDone)
                    || (state.phase() == Phase::Empty
                        && place.slot.raise(self.target(place, seal, true)));
            }
            return true;
        }
        match state.phase() {
            Phase::Empty if place.pos < seal => {
                hit(Branch::Sealed);
                // By an exchange: a put that came first makes this fail, one that comes later
                // finds the higher lap and is refused.
                weak(Control::GapUnsealed)
                    || place.slot.raise(self.target(place, seal, *far))
                    || self.is_passed(place, far)
            }
            Phase::Filling => weak(Control::SlidePassesFilling),
            _ => false,
        }
    }

    /// A slot that could not be sealed: because another slide had, and it has a later message by
    /// now? To stop there would leave what lies beyond to that slide, which may have begun before it
    /// was finished (invariant 3).
    #[cold]
    fn is_passed(&self, place: Place<'_, T>, far: &mut bool) -> bool {
        *far = false;
        !weak(Control::SealedElsewhere) && place.slot.state().is_done(place.lap)
    }

    #[cfg_attr(target_pointer_width = "64", inline(always))]
    fn target(&self, place: Place<'_, T>, seal: Pos, far: bool) -> Lap {
        if far && !weak(Control::JumpOneLap) {
            self.lap_at_or_above(place.pos, seal)
        } else {
            self.lap(place.pos + self.slots.len() as u64)
        }
    }
}

impl<T> Space for Ring<[Slot<T>]> {
    type Value = T;
    type Pin = ();
    type Meter = ();

    const CURSOR_BITS: u32 = Word::BITS / 2;
    const LOOKS_FROM_WATERMARK: bool = true;

    #[inline(always)]
    fn words(&self) -> &Words {
        &self.words
    }

    #[inline(always)]
    fn meter(&self) -> &() {
        &()
    }

    #[inline(always)]
    fn bound(&self, watermark: Pos) -> Pos {
        watermark + self.reach()
    }

    #[inline(always)]
    fn stride(&self) -> u64 {
        self.reach()
    }

    #[inline(always)]
    fn reach(&self) -> u64 {
        self.slots.len() as u64
    }

    #[inline(always)]
    fn far(&self) -> u64 {
        let laps = self.reach().saturating_mul(Lap::FAR);
        laps.min(if NARROW { 1 << 29 } else { 1 << 62 })
    }

    #[inline(always)]
    fn find<'p>(&'p self, pos: Pos, (): &'p ()) -> Result<Place<'p, T>, Elsewhere> {
        Ok(self.place(pos))
    }

    #[inline(always)]
    fn open<'p>(&'p self, pos: Pos, (): &'p ()) -> Result<Place<'p, T>, Taken> {
        Ok(self.place(pos))
    }

    #[inline(always)]
    fn scan<'p, B>(
        &'p self,
        from: Pos,
        to: Pos,
        (): &'p (),
        mut visit: impl FnMut(Place<'p, T>) -> ControlFlow<B>,
    ) -> ControlFlow<B>
    where
        T: 'p,
    {
        let mut pos = from;
        while pos < to {
            visit(self.place(pos))?;
            pos += 1;
        }
        ControlFlow::Continue(())
    }

    #[inline]
    fn slide(&self, (): &()) -> Pos {
        let reach = self.reach();
        loop {
            let watermark = self.words.watermark.load();
            let end = self.words.end(watermark);
            let seal = self.words.seal(watermark, end);
            // Beyond `watermark + reach` nothing was ever admitted.
            let mut far = distance(watermark + reach, seal) > 0;
            let to = end.min(watermark + reach);
            let mut pos = watermark;
            while pos < to && self.pass(self.place(pos), seal, &mut far) {
                pos += 1;
            }
            let jump = far && pos == watermark + reach;
            if jump {
                // Each slot was seen free of everything below the seal, and now refuses it.
                hit(Branch::FarJump);
                pos = seal;
            }
            if pos == watermark {
                return watermark;
            }
            let at = move_watermark(self, watermark, pos);
            if !jump {
                return at;
            }
        }
    }

    #[cfg_attr(target_pointer_width = "64", inline(always))]
    fn position_of(&self, slot: &Slot<T>) -> Pos {
        let from = self.slots.as_ptr().addr();
        let index = (core::ptr::from_ref(slot).addr() - from) / size_of::<Slot<T>>();
        // The lap's bits tell positions apart near the watermark, where the message is.
        let bits = Lap::BITS + self.slots.len().trailing_zeros();
        let at = slot.state().lap().number() * self.reach() + index as u64;
        let watermark = self.words.watermark.load();
        let spare = Word::BITS.saturating_sub(bits);
        let ahead = (at as Word).wrapping_sub(watermark as Word);
        watermark.wrapping_add_signed(sign_extended(ahead << spare, spare))
    }

    fn sweep(&self, first: Pos, (): &(), mut visit: impl FnMut(&Slot<T>, Lap) -> Evicted) {
        for (index, slot) in self.slots.iter().enumerate() {
            visit(slot, self.lap_at_or_above(index as u64, first));
        }
    }

    /// The slots are all there from the beginning: nothing to do.
    fn begin(&self, _: Pos, (): &()) {}

    /// Slots stay where they are: nothing to do.
    #[inline(always)]
    fn vacated(&self, _: &Slot<T>, _: impl FnOnce() -> Pos, (): &()) {}

    #[inline(always)]
    fn filled(&self, _: Place<'_, T>, (): &()) {}

    /// As [`Space::vacated`].
    #[inline(always)]
    unsafe fn released(&self, _: &Slot<T>, (): &()) {}

    /// With the default seal, asking to put `pos` says that everything below has been put. When
    /// the slide has ended at the end, nothing unfinished is left below it, so what lies between
    /// may be sealed: the end is raised to `pos`, and the slide jumps there.
    fn make_room(
        &self,
        pos: Pos,
        (): &(),
        mut raise: impl FnMut(Word) -> Result<bool, Stale>,
    ) -> Result<(), PutErrorKind> {
        let fits = |watermark| distance(self.bound(watermark), pos) < 0;
        let at = self.slide(&());
        if fits(at) {
            return Ok(());
        }
        let callers_seal = self.words.callers_seal() && !weak(Control::JumpWithCallersSeal);
        let end = self.words.end_word();
        if callers_seal || weak(Control::NoJump) || expand(end, at) != at {
            return Err(PutErrorKind::Full);
        }
        let at = if raise(end).map_err(|Stale| PutErrorKind::Stale)? {
            hit(Branch::OwnJump);
            self.words.flow.finish(0, 0);
            self.slide(&())
        } else {
            self.words.watermark.load()
        };
        if fits(at) { Ok(()) } else { Err(PutErrorKind::Full) }
    }
}
