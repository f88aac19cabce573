//! The operations of a window, written once over [`Space`]: what a kind of window must bring.
//!
//! A window is its [`Words`] (watermark, end, generation, cursor, seal, counters, signal) and a
//! space of slots. The words and the slots' transitions carry the protocol; a space only says
//! where the slot of a position is, and moves the watermark over what is finished.
//!
//! Two rules run through every call. It reads the **watermark first and the generation second**,
//! and touches only positions in `[watermark, watermark + reach)`: so a call of an ended
//! assignment, however late, stays below the positions of the next one, which begin a whole reach
//! beyond. And everything it says, refusals and watermarks alike, it says only after it **looked
//! at the generation again**.

mod assign;
mod finish;
mod floor;
mod meter;
mod numbered;
mod put;
mod take;

use core::ops::ControlFlow;

pub(crate) use assign::assign;
pub(crate) use finish::{Finishing, for_each};
pub use meter::Meter;
pub(crate) use take::GivenBack;

use crate::control::{Branch, Control, hit, weak};
use crate::error::{Next, PutErrorKind, SkipReason, Stale};
use crate::flow::Flow;
use crate::position::{Mark, Monotone, Pos, Watermark, distance, expand, raise};
use crate::slot::{Lap, Place, Slot, Taken, Taking};
use crate::sync::{AtomicWord, NARROW, Ordering, Padded, Word, const_unless_loom};
#[cfg(feature = "async")]
use crate::waiting::{MESSAGES, Waiters};

/// The bit of the generation word that says closed; first positions are even.
const CLOSED: Word = 1;
/// The bit of the signal word that says: the last take found nothing.
const IDLE: Word = 1;
/// The bit of the signal word that says: a take is about to find nothing, and nothing has become
/// ready since it said so.
const LOOKING: Word = 2;
/// The bits of the signal word that are marks; above them stands the generation.
const MARKS: Word = IDLE | LOOKING;

/// What a put looks at before and after it is on its way; on one line.
struct Generations {
    /// The first position of the assignment in force, and whether it is closed.
    word: AtomicWord,
    /// Everything below it was given up.
    floor: AtomicWord,
}

/// In which order messages come, and what that says about the gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)]
pub enum Order {
    /// By offset, from one putter: what lies below a put may be sealed.
    Offset,
    /// In any: the caller moves the seal.
    CallersSeal,
    /// By offset, from one putter, with dense positions by arrival. Words of 32 bits cannot hold
    /// its tail.
    #[cfg_attr(any(target_pointer_width = "32", inflight_word32), allow(dead_code))]
    Arrival,
}

/// The words that all calls of a window share.
#[doc(hidden)]
pub struct Words {
    /// The lowest position that may still have to be consumed.
    pub(crate) watermark: Padded<Watermark>,
    /// The highest position admitted or skipped to, plus one.
    end: Padded<AtomicWord>,
    generation: Padded<Generations>,
    /// Where takers look first.
    cursor: Padded<AtomicWord>,
    /// Below it, what was never admitted may be sealed; used when the caller moves it.
    seal: AtomicWord,
    callers_seal: bool,
    /// Numbered by arrival: where the offset after the last message would be, as a position.
    tail: AtomicWord,
    /// Numbered by arrival: the generation of the put that is running.
    turn: AtomicWord,
    numbered: bool,
    /// Messages given up, by reason. Relaxed: a statistic.
    skipped: [AtomicWord; SkipReason::COUNT],
    pub(crate) flow: Flow,
    signal: Padded<AtomicWord>,
    #[cfg(feature = "async")]
    pub(crate) waiters: Padded<Waiters>,
}

impl Words {
    const_unless_loom! {
        pub(crate) const fn new(at: Pos, order: Order) -> Self {
            Self {
                watermark: Padded(Watermark::new(at)),
                end: Padded(AtomicWord::new(at as Word)),
                // Assignments begin beyond it, so no handle matches it.
                generation: Padded(Generations {
                    word: AtomicWord::new(at as Word),
                    floor: AtomicWord::new(at as Word),
                }),
                // Its position bits are right; what lies above them is as good a version as any.
                cursor: Padded(AtomicWord::new(at as Word)),
                seal: AtomicWord::new(at as Word),
                callers_seal: matches!(order, Order::CallersSeal),
                tail: AtomicWord::new(at as Word),
                turn: AtomicWord::new(0),
                numbered: matches!(order, Order::Arrival),
                skipped: [
                    AtomicWord::new(0),
                    AtomicWord::new(0),
                    AtomicWord::new(0),
                    AtomicWord::new(0),
                ],
                flow: Flow::new(),
                // Idle from the first assignment on.
                signal: Padded(AtomicWord::new(0)),
                #[cfg(feature = "async")]
                waiters: Padded(Waiters::new()),
            }
        }
    }

    /// Everything below it was given up, given a position near it.
    #[inline(always)]
    pub(crate) fn floor(&self, near: Pos) -> Pos {
        expand(self.generation.floor.load(Ordering::Acquire), near)
    }

    /// How many messages were given up for `reason`.
    pub(crate) fn skipped(&self, reason: SkipReason) -> usize {
        self.skipped[reason as usize].load(Ordering::Relaxed) as usize
    }

    /// Does the caller move the seal?
    pub(crate) fn callers_seal(&self) -> bool {
        self.callers_seal
    }

    /// The end's word, to be raised from exactly this.
    pub(crate) fn end_word(&self) -> Word {
        self.end.load(Ordering::Acquire)
    }

    /// The end, given a position near it.
    #[inline(always)]
    pub(crate) fn end(&self, near: Pos) -> Pos {
        expand(self.end.load(Ordering::Acquire), near)
    }

    /// Seals everything below the end: nobody will put any more.
    pub(crate) fn seal_all(&self) {
        let watermark = self.watermark.load();
        raise(&self.seal, self.end(watermark), watermark);
    }

    /// Everything below it that was never admitted may be sealed; given the watermark and the end.
    #[inline(always)]
    pub(crate) fn seal(&self, watermark: Pos, end: Pos) -> Pos {
        if !self.callers_seal {
            return end;
        }
        let word = self.seal.load(Ordering::Acquire);
        let seal = expand(word, watermark);
        if crate::sync::NARROW && distance(seal, watermark) > 1 << 28 {
            // A seal that its caller does not move must not fall half a range behind, where it
            // would read as ahead. Raising it to the watermark changes nothing it allows.
            raise(&self.seal, watermark, watermark);
        }
        seal
    }
}

/// Where the slots of a window are. Implemented by each kind of window, in its own folder.
#[doc(hidden)]
pub trait Space {
    /// The message.
    type Value;
    /// What keeps slots alive while a call looks at them.
    type Pin;
    /// What pays for the messages.
    type Meter: Meter;

    /// Bits of the cursor word that are position.
    const CURSOR_BITS: u32;

    #[doc(hidden)]
    fn words(&self) -> &Words;

    #[doc(hidden)]
    fn meter(&self) -> &Self::Meter;

    /// Does a take about to return nothing look from the watermark, or only from the cursor?
    const LOOKS_FROM_WATERMARK: bool;

    /// The first position that a call which has read `watermark` leaves alone. Read *before* the
    /// generation: then every later assignment begins at or above it.
    fn bound(&self, watermark: Pos) -> Pos;

    /// An assignment begins at a multiple of this, and at least this beyond everything used.
    fn stride(&self) -> u64;

    /// How far beyond the watermark the cursor can lie.
    fn reach(&self) -> u64;

    /// Nothing moves further than this at once.
    fn far(&self) -> u64;

    /// The place of a position between the watermark and the bound, or why there is none.
    #[doc(hidden)]
    fn find<'p>(
        &'p self,
        pos: Pos,
        pin: &'p Self::Pin,
    ) -> Result<Place<'p, Self::Value>, Elsewhere>;

    /// The place of a position, by that of another which was found under the same pin; none when
    /// that is no help.
    #[doc(hidden)]
    #[inline(always)]
    fn beside<'p>(
        &'p self,
        _last: Place<'p, Self::Value>,
        _pos: Pos,
        _pin: &'p Self::Pin,
    ) -> Option<Place<'p, Self::Value>> {
        None
    }

    /// Makes room for a put of `pos`, at or beyond the bound: slides, jumps if it may. `raise`
    /// raises the end from the value it is given to `pos`, if the generation is still in force.
    #[doc(hidden)]
    fn make_room(
        &self,
        pos: Pos,
        pin: &Self::Pin,
        raise: impl FnMut(Word) -> Result<bool, Stale>,
    ) -> Result<(), PutErrorKind>;

    /// The place of a position between the watermark and the bound, made if need be.
    #[doc(hidden)]
    fn open<'p>(&'p self, pos: Pos, pin: &'p Self::Pin) -> Result<Place<'p, Self::Value>, Taken>;

    /// Shows the places in `[from, to)`, between the watermark and the bound, in ascending order.
    #[doc(hidden)]
    fn scan<'p, B>(
        &'p self,
        from: Pos,
        to: Pos,
        pin: &'p Self::Pin,
        visit: impl FnMut(Place<'p, Self::Value>) -> ControlFlow<B>,
    ) -> ControlFlow<B>
    where
        Self::Value: 'p;

    /// The position of a message, by the slot of it that the caller has.
    #[doc(hidden)]
    fn position_of(&self, slot: &Slot<Self::Value>) -> Pos;

    /// Moves the watermark over what is finished or may be sealed; returns where it then is.
    fn slide(&self, pin: &Self::Pin) -> Pos;

    /// Shows every slot that an assignment before `first` may have used, with the first lap that
    /// positions from `first` on have there.
    #[doc(hidden)]
    fn sweep(
        &self,
        first: Pos,
        pin: &Self::Pin,
        visit: impl FnMut(&Slot<Self::Value>, Lap) -> Evicted,
    );

    /// Makes what positions from `first` on need, before they are used.
    #[doc(hidden)]
    fn begin(&self, first: Pos, pin: &Self::Pin);

    /// A put has made this place FILLING.
    #[doc(hidden)]
    fn filled(&self, place: Place<'_, Self::Value>, pin: &Self::Pin);

    /// A message in this slot, of the position, has been finished by this call, which was pinned
    /// before.
    #[doc(hidden)]
    fn vacated(&self, slot: &Slot<Self::Value>, pos: impl FnOnce() -> Pos, pin: &Self::Pin);

    /// A slot that was doomed in a lease has been released by it.
    ///
    /// # Safety
    /// The caller was that lease; it has released the slot once, and does not touch it again.
    #[doc(hidden)]
    unsafe fn released(&self, slot: &Slot<Self::Value>, pin: &Self::Pin);
}

/// What is paid already, of a window.
pub(crate) type CreditOf<S> = <<S as Space>::Meter as Meter>::Credit;

/// Counts messages out of the window and gives back what they cost.
#[inline(always)]
pub(crate) fn count_out<S: Space + ?Sized>(space: &S, count: usize, bytes: u64) {
    space.words().flow.finish(count, bytes);
    // Afterwards: what the window counts is never more than what is paid for.
    space.meter().finished(count, bytes);
}

/// Moves the watermark from where it was read to at least `to`; where it then is.
///
/// The position bits of the cursor tell positions apart only near the watermark, and takes keep
/// it there. But a window that is worked on by number takes nothing, and jumps and assignments go
/// far: left behind by all that its bits can tell, the cursor would read as a position ahead, and
/// a take would pass over messages that are ready. So whoever moves the watermark into another
/// quarter of that range takes the cursor along.
#[cfg_attr(target_pointer_width = "64", inline(always))]
pub(crate) fn move_watermark<S: Space + ?Sized>(space: &S, from: Pos, to: Pos) -> Pos {
    if (from ^ to) >> (S::CURSOR_BITS - 2) != 0 {
        carry_cursor(space, from, to);
    }
    space.words().watermark.raise(to)
}

/// Raises the cursor to `to`, below which everything is finished, before the watermark goes
/// there: afterwards a take could read the old one as ahead. Keeps the version: nothing became
/// ready.
#[cold]
fn carry_cursor<S: Space + ?Sized>(space: &S, from: Pos, to: Pos) {
    if NARROW {
        // The floor comes along too: half a range behind, it would read as ahead.
        raise(&space.words().generation.floor, to, to);
    }
    let cursor = &space.words().cursor;
    let mut seen = cursor.load(Ordering::Acquire);
    loop {
        let mark = Mark(seen);
        if mark.position(S::CURSOR_BITS, from, space.reach()) >= to {
            return;
        }
        let carried = mark.moved(S::CURSOR_BITS, to);
        match cursor.compare_exchange(seen, carried.0, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return,
            Err(other) => seen = other,
        }
    }
}

/// One generation: which offset its first position has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Generation {
    base: u64,
    first: Pos,
}

impl Generation {
    /// The signal word of this generation, without marks. It has lost the highest two bits, which
    /// tell nothing apart but calls that were stopped for a quarter of all positions.
    #[inline(always)]
    fn signal(self) -> Word {
        (self.first as Word) << 2
    }
}

/// One generation of one window: what every call works on.
pub(crate) struct Part<'a, S: ?Sized> {
    pub(crate) space: &'a S,
    pub(crate) generation: Generation,
}

impl<S: ?Sized> Clone for Part<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<S: ?Sized> Copy for Part<'_, S> {}

/// Why a generation takes no more puts.
pub(crate) enum Ended {
    Stale,
    Closed,
}

impl<'a, S: Space + ?Sized> Part<'a, S> {
    #[inline(always)]
    pub(crate) fn words(self) -> &'a Words {
        self.space.words()
    }

    /// Is this generation still in force, and open?
    #[inline(always)]
    pub(crate) fn open(self) -> Result<(), Ended> {
        let word = self.words().generation.word.load(Ordering::Acquire);
        match word.wrapping_sub(self.generation.first as Word) {
            0 => Ok(()),
            CLOSED => Err(Ended::Closed),
            _ => Err(Ended::Stale),
        }
    }

    /// Is this generation still in force?
    #[inline(always)]
    pub(crate) fn current(self) -> Result<(), Stale> {
        match self.open() {
            Ok(()) | Err(Ended::Closed) => Ok(()),
            Err(Ended::Stale) => Err(Stale),
        }
    }

    /// The watermark, and the bound of what this call may touch; both read before the generation.
    #[inline(always)]
    pub(crate) fn view(self) -> Result<(Pos, Pos), Ended> {
        if weak(Control::GenerationFirst) {
            self.open()?;
        }
        let watermark = self.words().watermark.load();
        let bound =
            if weak(Control::Unbounded) { u64::MAX / 4 } else { self.space.bound(watermark) };
        if !weak(Control::GenerationFirst) {
            self.open()?;
        }
        Ok((watermark, bound))
    }

    /// As [`Part::view`], for calls that a closed window takes too.
    #[inline(always)]
    pub(crate) fn view_closed(self) -> Result<(Pos, Pos), Stale> {
        match self.view() {
            Ok(view) => Ok(view),
            Err(Ended::Stale) => Err(Stale),
            // Closed is a bit of the same generation's word: what was read before still holds.
            Err(Ended::Closed) => {
                let watermark = self.words().watermark.load();
                let bound = self.space.bound(watermark);
                self.current()?;
                Ok((watermark, bound))
            }
        }
    }

    /// Is this window numbered by arrival?
    #[inline(always)]
    pub(crate) fn numbered(self) -> bool {
        !NARROW && self.words().numbered
    }

    /// The position of an offset where positions go with offsets; none below the assignment's
    /// start or out of range.
    #[inline(always)]
    pub(crate) fn dense_position(self, offset: u64) -> Option<Pos> {
        self.generation.first.checked_add(offset.checked_sub(self.generation.base)?)
    }

    /// The offset of a position of this generation where positions go with offsets.
    #[inline(always)]
    pub(crate) fn dense_offset(self, pos: Pos) -> u64 {
        self.generation.base.saturating_add(pos.saturating_sub(self.generation.first))
    }

    /// The offset of the place looked at; none when there is no message to ask, in a window that
    /// is numbered by arrival.
    #[inline(always)]
    pub(crate) fn offset_at(self, place: &Place<'_, S::Value>) -> Option<u64> {
        if self.numbered() {
            return place.slot.offset_if(place.lap);
        }
        Some(self.dense_offset(place.pos))
    }

    /// A watermark fit to be said: the generation was looked at after it was read.
    #[inline(always)]
    pub(crate) fn next(self, watermark: Pos, pin: &S::Pin) -> Result<Next, Stale> {
        if self.numbered() {
            return self.numbered_next(pin);
        }
        self.current()?;
        Ok(Next(self.dense_offset(watermark)))
    }

    /// The place of an offset between the watermark and the end, or on which side it lies.
    #[inline(always)]
    pub(crate) fn locate<'p>(
        self,
        offset: u64,
        pin: &'p S::Pin,
    ) -> Result<Place<'p, S::Value>, Elsewhere>
    where
        'a: 'p,
    {
        self.locate_after(offset, None, pin)
    }

    /// As [`Part::locate`], when the call has found another place before.
    #[inline(always)]
    pub(crate) fn locate_after<'p>(
        self,
        offset: u64,
        last: Option<Place<'p, S::Value>>,
        pin: &'p S::Pin,
    ) -> Result<Place<'p, S::Value>, Elsewhere>
    where
        'a: 'p,
    {
        if self.numbered() {
            return self.numbered_locate(offset, pin);
        }
        let Some(pos) = self.dense_position(offset) else {
            self.current().map_err(|Stale| Elsewhere::Stale)?;
            return Err(match offset < self.generation.base {
                true => Elsewhere::Passed,
                false => Elsewhere::Nowhere,
            });
        };
        self.at_after(pos, last, pin)
    }

    /// The place of a position between the watermark and the end, or on which side it lies.
    #[inline(always)]
    pub(crate) fn at<'p>(self, pos: Pos, pin: &'p S::Pin) -> Result<Place<'p, S::Value>, Elsewhere>
    where
        'a: 'p,
    {
        self.at_after(pos, None, pin)
    }

    #[inline(always)]
    fn at_after<'p>(
        self,
        pos: Pos,
        last: Option<Place<'p, S::Value>>,
        pin: &'p S::Pin,
    ) -> Result<Place<'p, S::Value>, Elsewhere>
    where
        'a: 'p,
    {
        let (watermark, bound) = self.view_closed().map_err(|Stale| Elsewhere::Stale)?;
        if pos < watermark {
            Err(Elsewhere::Passed)
        } else if pos >= bound {
            Err(Elsewhere::Nowhere)
        } else if let Some(place) = last.and_then(|last| self.space.beside(last, pos, pin)) {
            Ok(place)
        } else {
            self.space.find(pos, pin)
        }
    }

    /// LENT (or doomed since) -> EMPTY of the next lap, the message moved out.
    ///
    /// # Safety
    /// The slot is LENT to the caller, or was when it was doomed, and the caller does not touch
    /// it again.
    #[inline(always)]
    pub(crate) unsafe fn finish_lent(
        self,
        slot: &Slot<S::Value>,
        pin: &S::Pin,
    ) -> Taking<S::Value> {
        // SAFETY: promised by the caller.
        let taking = unsafe { slot.finish_lent() };
        if taking.doomed {
            // SAFETY: promised by the caller.
            unsafe { self.space.released(slot, pin) };
            #[cfg(feature = "async")]
            self.wake_released();
        } else {
            self.space.vacated(slot, || self.space.position_of(slot), pin);
        }
        taking
    }

    /// Lowers the cursor to `pos`, always raising its version: a taker that read the cursor
    /// before and looked at `pos` too early must fail to move it.
    fn lower_cursor(self, pos: Pos) {
        let cursor = &self.words().cursor;
        let mut seen = cursor.load(Ordering::Acquire);
        loop {
            let watermark = self.words().watermark.load();
            let mark = Mark(seen);
            let at = mark.position(S::CURSOR_BITS, watermark, self.space.reach());
            let lowered = mark.lowered(S::CURSOR_BITS, at.min(pos));
            // Release: a taker that reads this cursor also sees the message ready.
            match cursor.compare_exchange(seen, lowered.0, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return,
                Err(other) => seen = other,
            }
        }
    }

    /// Something became ready: claims the idle mark, and says whether it was there.
    ///
    /// The read-modify-write is where this meets a take that runs dry: that one says so by a
    /// read-modify-write of the same word and then looks once more. Whichever comes second sees
    /// what the other did.
    #[inline(always)]
    fn announce(self) -> bool {
        let was_idle = self.signal(0, Self::BUSY).is_some_and(|was| was & IDLE != 0);
        if was_idle {
            hit(Branch::Dispatched);
        }
        #[cfg(feature = "async")]
        self.words().waiters.wake_any(MESSAGES);
        was_idle
    }

    /// No mark: someone looks after what is ready.
    const BUSY: Word = 0;

    /// Replaces the marks by `marks`, if all of `needed` are there; returns what was there. None
    /// when they are not, and when the word is another generation's: a call that was stopped
    /// neither claims nor puts the marks of a later assignment.
    #[cfg_attr(target_pointer_width = "64", inline(always))]
    fn signal(self, needed: Word, marks: Word) -> Option<Word> {
        let order = if weak(Control::SignalRelaxed) { Ordering::Relaxed } else { Ordering::AcqRel };
        let mine = self.generation.signal();
        let mut seen = mine | needed;
        loop {
            match self.words().signal.compare_exchange(seen, mine | marks, order, Ordering::Acquire)
            {
                Ok(_) => return Some(seen & MARKS),
                Err(other) if other & !MARKS != mine || other & needed != needed => return None,
                Err(other) => seen = other,
            }
        }
    }

    /// The watermark; never slides. Pins only where the offset has to be asked for.
    #[inline]
    pub(crate) fn watermark(self, pin: impl FnOnce() -> S::Pin) -> Result<Next, Stale> {
        if self.numbered() {
            return self.numbered_next(&pin());
        }
        let watermark = self.words().watermark.load();
        self.current()?;
        Ok(Next(self.dense_offset(watermark)))
    }

    /// Slides once, then the watermark.
    pub(crate) fn min_offset(self, pin: &S::Pin) -> Result<Next, Stale> {
        self.current()?;
        self.words().flow.finish(0, 0);
        self.next(self.space.slide(pin), pin)
    }

    /// The end of what was admitted or skipped to.
    pub(crate) fn end(self) -> Result<u64, Stale> {
        if self.numbered() {
            return self.numbered_end();
        }
        let watermark = self.words().watermark.load();
        let end = self.words().end(watermark);
        self.current()?;
        Ok(self.dense_offset(end))
    }

    /// `end - watermark`.
    pub(crate) fn span(self) -> Result<u64, Stale> {
        let span = self.space.words().span();
        self.current()?;
        Ok(span)
    }
}

impl Words {
    /// `end - watermark`.
    pub(crate) fn span(&self) -> u64 {
        let watermark = self.watermark.load();
        // The end read later is at or above the watermark read before.
        self.end(watermark).saturating_sub(watermark)
    }
}

/// Where an offset is when it has no place.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Elsewhere {
    /// Finished or sealed.
    Passed,
    /// Never admitted.
    Nowhere,
    /// The assignment has ended.
    Stale,
}

/// What became of a slot when its assignment ended.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evicted {
    /// It was free, or is freed by a call that is running.
    Freed,
    /// A lending lease has it still.
    Lent,
}
