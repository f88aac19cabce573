//! The unbounded window: blocks of slots in a lock-free skip list.
//!
//! Position div 64 = block, position mod 64 = slot in it. A slot is used once: its lap only tells
//! "open" from "done". What calls do is in `engine`; here is where slots are made and found
//! ([`block`], [`list`]), when their memory goes ([`reclaim`]), and the slide.

mod block;
mod list;
pub(crate) mod reclaim;
mod table;

use core::marker::PhantomData;
use core::ops::ControlFlow;

use crate::assignment::Assignment;
use crate::control::{Control, weak};
use crate::engine::{Elsewhere, Evicted, Order, Space, Words, move_watermark};
use crate::error::{PutErrorKind, Stale};
use crate::position::{Monotone, Pos, distance, expand};
use crate::slot::{Lap, Phase, Place, Slot, Taken};
use crate::sync::{NARROW, Ordering, Word, const_unless_loom};
use crate::window::{RefSealed, Sealed, Window, WindowRef};

use block::{BLOCK, Block, key};
use list::List;
use reclaim::Pin;

#[cfg(loom)]
pub use reclaim::forget_all;

/// An unbounded window: any span, any order of puts, many putters, sparse offsets.
///
/// A lock-free skip list of blocks of 64 offsets, on `crossbeam-epoch`. Its memory follows what
/// is unfinished, not the span: finished messages behind a stuck one cost a few bytes each. Where
/// the span can be bounded, [`RingWindow`](crate::RingWindow) is faster and needs no allocator.
///
/// The seal is as there: **[`SkipWindow::new`] takes puts in order, from one putter**; then gaps
/// below the highest put may be sealed. **With several putters use
/// [`SkipWindow::with_callers_seal`]** and
/// [`Assignment::advance_to`](crate::Assignment::advance_to).
///
/// A thread that is stopped *inside* a call delays the reclamation of memory, of this and every
/// other user of `crossbeam-epoch` in the process; nobody waits for it.
///
/// ```
/// use std::sync::Arc;
/// use inflight::{SkipWindow, Window};
///
/// let window = Arc::new(SkipWindow::new());
/// let part = window.assign_owned(0);
/// part.put(1_000_000_000, "far")?;
/// part.put(5, "near")?;
/// let worker = std::thread::spawn(move || {
///     let lease = part.take(2).unwrap();
///     let offsets: Vec<_> = lease.iter().map(|(offset, _)| offset).collect();
///     (offsets, lease.commit().unwrap().next.get())
/// });
/// assert_eq!(worker.join().unwrap(), (vec![5, 1_000_000_000], 1_000_000_001));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct SkipWindow<T> {
    blocks: Blocks<T>,
}

impl<T> SkipWindow<T> {
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
        /// An empty window that numbers messages by arrival: see
        /// [`RingWindow::numbered`](crate::RingWindow::numbered). A sparse log then costs what a
        /// dense one does.
        pub const fn numbered() -> Self {
            Self::with_order(0, Order::Arrival)
        }
    }

    const_unless_loom! {
        /// For tests: positions begin at block `block`, so that a word's wrap is near.
        #[doc(hidden)]
        pub const fn starting_at(block: u64, callers_seal: bool) -> Self {
            let order = if callers_seal { Order::CallersSeal } else { Order::Offset };
            Self::with_order(block, order)
        }
    }

    const_unless_loom! {
        const fn with_order(block: u64, order: Order) -> Self {
            let words = Words::new(block * BLOCK, order);
            Self { blocks: Blocks { words, list: List::new(), messages: PhantomData } }
        }
    }
}

#[cfg(loom)]
impl<T> SkipWindow<T> {
    /// For the models, with no call running: the shortcuts are whole.
    #[doc(hidden)]
    pub fn check_shortcuts(&self) {
        self.blocks.list.check_shortcuts(&self.pin());
    }
}

impl<T> Default for SkipWindow<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> core::fmt::Debug for SkipWindow<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        crate::window::debug("SkipWindow", None, &self.blocks.words, f)
    }
}

impl<T> Sealed for SkipWindow<T> {}

impl<T> Window for SkipWindow<T> {
    type Value = T;
    type Space = Blocks<T>;

    #[inline(always)]
    fn space(&self) -> &Blocks<T> {
        &self.blocks
    }

    #[inline(always)]
    fn pin(&self) -> Pin {
        self.blocks.list.domain.pin()
    }

    fn capacity(&self) -> Option<usize> {
        None
    }

    fn drain_next(&mut self) -> Option<(u64, T)> {
        let blocks = &self.blocks;
        let pin = blocks.list.domain.pin();
        // Nobody puts any more, so no gap need stay open.
        blocks.words.seal_all();
        loop {
            let watermark = blocks.slide(&pin);
            let left = blocks.scan(watermark, blocks.words.end(watermark), &pin, |place| {
                let state = place.slot.state();
                if state.phase() == Phase::Empty {
                    return ControlFlow::Continue(());
                }
                // SAFETY: `&mut self`.
                match unsafe { place.slot.clear(Lap::new(place.lap.number() + 1)) } {
                    Some(left) => ControlFlow::Break(left),
                    None => ControlFlow::Continue(()),
                }
            });
            let ControlFlow::Break((offset, taking)) = left else {
                blocks.drop_orphaned();
                return None;
            };
            blocks.words.flow.finish(1, u64::from(taking.bytes));
            if !taking.doomed {
                blocks.slide(&pin);
                return Some((offset, taking.value));
            }
        }
    }
}

/// One task's place in the reclamation of a [`SkipWindow`].
///
/// Without `std` there are no thread locals: an assignment that simply borrows the window
/// registers for every single call, which costs an allocation of some 2 KB. A task that makes
/// more than a few calls registers once, by this, and works through it. With `std` the thread has
/// its place already and this is free, so that code can be written for both.
///
/// ```
/// use inflight::{SkipWindow, Window};
///
/// let window = SkipWindow::new();
/// let participant = window.participant();
/// let part = window.assign(0).with(&participant).ok_or("another window's")?;
/// part.put(0, "a")?;
/// assert_eq!(part.take(1)?.commit()?.next.get(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Participant<'w, T> {
    window: &'w SkipWindow<T>,
    member: reclaim::Member,
}

impl<T> SkipWindow<T> {
    /// Registers a task: see [`Participant`].
    pub fn participant(&self) -> Participant<'_, T> {
        Participant { window: self, member: self.blocks.list.domain.register() }
    }
}

impl<T> core::fmt::Debug for Participant<'_, T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Participant").field("window", self.window).finish_non_exhaustive()
    }
}

impl<T> RefSealed for &Participant<'_, T> {}
impl<T> WindowRef for &Participant<'_, T> {
    type Window = SkipWindow<T>;

    #[inline(always)]
    fn window(&self) -> &SkipWindow<T> {
        self.window
    }

    #[inline(always)]
    fn pin(&self) -> Pin {
        self.member.pin()
    }
}

impl<T, R: WindowRef<Window = SkipWindow<T>>> Assignment<R> {
    /// The same assignment, worked on through a participant of its window. None when the
    /// participant is another window's.
    pub fn with<'p, 'w>(
        &self,
        participant: &'p Participant<'w, T>,
    ) -> Option<Assignment<&'p Participant<'w, T>>> {
        let same = core::ptr::eq(self.window(), participant.window);
        same.then(|| self.through(participant))
    }
}

/// The words and blocks of a skip window.
#[doc(hidden)]
pub struct Blocks<T> {
    words: Words,
    list: List<T>,
    messages: PhantomData<*mut T>,
}

// SAFETY: the blocks' slots hand messages from thread to thread, one party at a time, so
// `T: Send`; `&T` leaves only through leases, which are `Sync` only if `T` is.
unsafe impl<T: Send> Sync for Blocks<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for Blocks<T> {}

/// A block this far above the watermark's has its finished chunks given back.
const FAR: u64 = if cfg!(loom) { 1 } else { 4 };

impl<T> Space for Blocks<T> {
    type Value = T;
    type Pin = Pin;
    type Meter = ();

    const CURSOR_BITS: u32 = if NARROW { 20 } else { 44 };
    // It would cost the span, which here is not bounded. The cursor's version alone protects: a
    // scan is misled when 2^20 (2^12) rollbacks and late puts complete meanwhile.
    const LOOKS_FROM_WATERMARK: bool = false;

    #[inline(always)]
    fn words(&self) -> &Words {
        &self.words
    }

    #[inline(always)]
    fn meter(&self) -> &() {
        &()
    }

    /// A put beyond raises the end first ([`Space::make_room`]).
    #[inline(always)]
    fn bound(&self, watermark: Pos) -> Pos {
        self.words.end(watermark) + self.stride()
    }

    fn stride(&self) -> u64 {
        if NARROW || cfg!(loom) { 1 << 10 } else { 1 << 20 }
    }

    #[inline(always)]
    fn reach(&self) -> u64 {
        // Half of what the cursor's bits can tell: the other half is behind.
        1 << (Self::CURSOR_BITS - 1)
    }

    #[inline(always)]
    fn far(&self) -> u64 {
        if NARROW { 1 << 29 } else { 1 << 43 }
    }

    #[inline(always)]
    fn find<'p>(&'p self, pos: Pos, pin: &'p Pin) -> Result<Place<'p, T>, Elsewhere> {
        match self.list.shown(pos, pin) {
            Ok(place) => Ok(place),
            Err(Some(block)) => block.find(pos, pin),
            Err(None) => {
                let from = key(self.words.watermark.load());
                match self.list.search(key(pos), from, pin) {
                    Some(block) if block.key() == key(pos) => block.find(pos, pin),
                    Some(_) => Err(Elsewhere::Nowhere),
                    None => Err(Elsewhere::Passed),
                }
            }
        }
    }

    #[inline(always)]
    fn open<'p>(&'p self, pos: Pos, pin: &'p Pin) -> Result<Place<'p, T>, Taken> {
        let block = match self.list.shown(pos, pin) {
            Ok(place) => return Ok(place),
            Err(Some(block)) => block,
            Err(None) => {
                let from = key(self.words.watermark.load());
                self.list.open(pos, from, List::<T>::height(key(pos)), pin)?
            }
        };
        match block.find(pos, pin) {
            Ok(place) => Ok(place),
            Err(Elsewhere::Passed) => Err(Taken::Passed),
            Err(_) => {
                let place = block.make(pos, pin)?;
                self.list.show_chunk(block, pin);
                Ok(place)
            }
        }
    }

    #[inline(always)]
    fn beside<'p>(&'p self, last: Place<'p, T>, pos: Pos, _: &'p Pin) -> Option<Place<'p, T>> {
        // SAFETY: found under the pin.
        (last.pos + 1 == pos).then(|| unsafe { Block::beside(last, pos) }).flatten()
    }

    fn make_room(
        &self,
        pos: Pos,
        _: &Pin,
        mut raise: impl FnMut(Word) -> Result<bool, Stale>,
    ) -> Result<(), PutErrorKind> {
        loop {
            let end = self.words.end_word();
            let watermark = self.words.watermark.load();
            // With the default seal, asking to put `pos` says that everything below has been put;
            // with the caller's, the end alone seals nothing.
            if distance(expand(end, watermark), pos) <= 0
                || raise(end).map_err(|Stale| PutErrorKind::Stale)?
            {
                return Ok(());
            }
        }
    }

    #[inline(always)]
    fn scan<'p, B>(
        &'p self,
        from: Pos,
        to: Pos,
        pin: &'p Pin,
        mut visit: impl FnMut(Place<'p, T>) -> ControlFlow<B>,
    ) -> ControlFlow<B>
    where
        T: 'p,
    {
        if from >= to {
            return ControlFlow::Continue(());
        }
        let watermark = key(self.words.watermark.load());
        let first = self.list.at_or_below(key(from), watermark, pin);
        let mut block = match first.or_else(|| self.list.front(pin)) {
            Some(block) => block,
            None => return ControlFlow::Continue(()),
        };
        loop {
            if block.first() >= to {
                return ControlFlow::Continue(());
            }
            if block.key() >= key(from) {
                block.scan(from, to, pin, &mut visit)?;
            }
            match self.list.after(block, pin) {
                Some(next) => block = next,
                None => return ControlFlow::Continue(()),
            }
        }
    }

    #[inline]
    fn slide(&self, pin: &Pin) -> Pos {
        loop {
            let watermark = self.words.watermark.load();
            let end = self.words.end(watermark);
            let seal = self.words.seal(watermark, end);
            let Some(block) = self.list.front(pin) else { return watermark };
            if block.key() > key(watermark) {
                // Passed since the watermark was read.
                if self.words.watermark.load() == watermark {
                    return watermark;
                }
                continue;
            }
            let last = block.first() + BLOCK;
            // What an assignment left below the watermark is passed whatever it is doing.
            let mut pos = watermark.min(last);
            if pos < last.min(end) {
                pos = block.slide(pos, last.min(end), seal, pin);
            }
            if pos == last && self.pass_block(block, pos, seal, pin) {
                continue;
            }
            return if pos > watermark { move_watermark(self, watermark, pos) } else { watermark };
        }
    }

    #[inline(always)]
    fn position_of(&self, slot: &Slot<T>) -> Pos {
        // SAFETY: the caller has the slot, so its block is alive.
        unsafe { Block::position_of(slot) }
    }

    fn begin(&self, first: Pos, pin: &Pin) {
        let from = key(self.words.watermark.load());
        // Refused only when a later assignment has begun meanwhile.
        let _ = self.list.open(first, from, List::<T>::height(key(first)), pin);
    }

    fn sweep(&self, first: Pos, pin: &Pin, mut visit: impl FnMut(&Slot<T>, Lap) -> Evicted) {
        let mut at = self.list.front(pin);
        while let Some(block) = at.filter(|block| block.first() < first) {
            let mut sweeping = Sweeping::new(self, block, pin);
            block.slots(first, |slot, lap| {
                sweeping.lent += u32::from(visit(slot, lap) == Evicted::Lent);
            });
            drop(sweeping);
            at = self.list.after(block, pin);
        }
    }

    #[inline(always)]
    fn filled(&self, place: Place<'_, T>, _: &Pin) {
        // SAFETY: found under the pin.
        unsafe { Block::filled(place) };
    }

    #[inline(always)]
    fn vacated(&self, slot: &Slot<T>, pos: impl FnOnce() -> Pos, pin: &Pin) {
        let watermark = self.words.watermark.load();
        if key(pos()) < key(watermark) + FAR {
            return; // passed soon
        }
        let seal = self.words.seal(watermark, self.words.end(watermark));
        // SAFETY: the message was in the slot, or lent from it, when the call was pinned.
        unsafe { self.list.vacated(slot, seal, pin) };
    }

    unsafe fn released(&self, slot: &Slot<T>, pin: &Pin) {
        // SAFETY: the caller's doom is counted in the block, which is alive until that is undone.
        let block = unsafe { &*Block::of(slot) };
        reclaim::check(block);
        self.uncount(block, 1, pin);
    }
}

/// A sweep of one block. The block counts as doomed before any of its slots can be released; what
/// was not lent is taken off at the end, also when the drop of a message panics.
struct Sweeping<'a, T> {
    blocks: &'a Blocks<T>,
    block: &'a Block<T>,
    pin: &'a Pin,
    lent: u32,
}

impl<'a, T> Sweeping<'a, T> {
    /// More than a block has slots.
    const MOST: u32 = 1 + BLOCK as u32;

    fn new(blocks: &'a Blocks<T>, block: &'a Block<T>, pin: &'a Pin) -> Self {
        block.doomed.fetch_add(Self::MOST, Ordering::AcqRel);
        Self { blocks, block, pin, lent: 0 }
    }
}

impl<T> Drop for Sweeping<'_, T> {
    fn drop(&mut self) {
        self.blocks.uncount(self.block, Self::MOST - self.lent, self.pin);
    }
}

impl<T> Blocks<T> {
    /// Drops and counts out what forgotten leases of ended assignments pinned: alone with the
    /// window.
    fn drop_orphaned(&self) {
        self.list.orphaned(|block| {
            block.slots(Pos::MAX, |slot, lap| {
                // SAFETY: alone with the window.
                if let Some((_, taking)) = unsafe { slot.clear(lap) } {
                    self.words.flow.finish(1, u64::from(taking.bytes));
                }
            });
        });
    }

    /// Takes dooms off a block's count; the last one lets orphans be freed.
    fn uncount(&self, block: &Block<T>, dooms: u32, pin: &Pin) {
        if block.doomed.fetch_add(dooms.wrapping_neg(), Ordering::AcqRel) == dooms {
            self.list.trim(pin);
        }
    }

    /// Passes the front block, of which everything is done, if what follows may be sealed up to
    /// its successor; makes a successor where the seal lies in a gap, or beyond the last block.
    /// True when the slide has to look again: it was passed, or somebody changed its link in
    /// between.
    fn pass_block(&self, block: &Block<T>, last: Pos, seal: Pos, pin: &Pin) -> bool {
        let passable = last.max(seal).max(self.words.watermark.load());
        let next = block.next.load();
        let after = self.list.get(next, pin);
        // Not before the seal is there: an inserter may be stopped before it has raised the end,
        // and puts below its block must still find their gap.
        let early = after.is_none_or(|after| after.first() > passable);
        let Some(after) = after.filter(|_| !early || weak(Control::FreezeEarly)) else {
            if passable == last {
                return false;
            }
            // The seal lies in the gap, or beyond the last block: a block is made there. Somebody
            // else's, or a later assignment's, will do as well.
            let _ = self.list.open(passable, block.key(), List::<T>::height(key(passable)), pin);
            return true;
        };
        let raise = || {
            move_watermark(self, self.words.watermark.load(), after.first());
        };
        self.list.pass(block, next, raise, pin);
        true
    }
}
