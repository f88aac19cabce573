//! [`BatchWatermark`]: a watermark over numbered batches, for a pool that works on whole batches.
//!
//! Not for single messages: those are a window's. Here a consumer begins a batch of so many parts,
//! each part is ended with its next offset, and when a prefix of the batches is complete its
//! highest next offset is safe to persist.
//!
//! # How
//!
//! Batches have sequence numbers that never go back; slot = number mod capacity, lap = number div
//! capacity. A slot is two things: a state word, and the highest next offset that a part of its
//! batch has said, as a position (see `position.rs`), so that no 64-bit atomic is needed.
//!
//! ```text
//!            begin                    end: claim, then settle              slide
//!   VACANT ----------> open, busy, failed of lap L ---> all zero = complete -----> VACANT
//!   lap L                                                                          lap L + 1
//! ```
//!
//! *An end is two steps*: it claims a part (open - 1, busy + 1), raises the offset, and settles
//! (busy - 1). So whoever raises an offset holds a part of just that batch, and a second end of
//! one part, or a late one of a slot used again, is refused before it can raise anything.
//!
//! *Offsets are never set back.* What a slot has left of an earlier batch is at or below the
//! value, since that batch was passed; raising the value to it changes nothing. An assignment begins
//! above every position that any slot has.
//!
//! *The meeting*: two enders complete neighbouring batches, then each looks at the other's. With
//! nothing between, each may miss the other and the value stays behind both. Whoever completes a
//! batch does a read-modify-write of one word before it looks; the later one sees both.
//!
//! *Passing*: a slide reads the front's state, its offset, and the state again. Unchanged, the
//! offset is that batch's, and the value rises to it. Then one exchange makes the slot vacant; whoever
//! wins that reports the new value. So each batch that is passed is reported by one call.

use core::fmt;

use crate::control::{Branch, Control, hit, weak};
use crate::error::{Next, Stale};
use crate::position::{Monotone, Pos, Watermark, distance, expand, raise};
use crate::sync::{AtomicWord, NARROW, Ordering, Padded, Word, const_unless_loom};
use crate::window::RefSealed;

/// ```text
///  64 bits:  | lap: 22 bits | failed: 14 | busy: 14 | open: 14 |
///  32 bits:  | lap: 14 bits | failed:  6 | busy:  6 | open:  6 |
/// ```
///
/// *Open*: parts that may be ended. *Busy*: parts whose end is running. *Failed*: parts declared
/// failed. All zero: complete. Failed all ones: vacant, accepts a batch of its lap.
///
/// Horizon: a number is compared whole before the lap is; a call is misled only when it stops
/// between the two while its slot goes on by exactly 2^22 (2^14) laps.
#[derive(Clone, Copy, PartialEq, Eq)]
struct State(Word);

const COUNT_BITS: u32 = if NARROW { 6 } else { 14 };
const COUNT: Word = (1 << COUNT_BITS) - 1;
const LAP_SHIFT: u32 = 3 * COUNT_BITS;
const LAP_BITS: u32 = Word::BITS - LAP_SHIFT;
const OPEN: Word = 1;
const BUSY: Word = 1 << COUNT_BITS;
const FAILED: Word = 1 << (2 * COUNT_BITS);

/// The most parts of a batch: 16,382, or 62 with 32-bit words.
const MOST_PARTS: usize = COUNT as usize - 1;

/// No end raises the value by more than this at once. With 32-bit words each 2^31 is a step.
const FAR: u64 = if NARROW { 1 << 40 } else { 1 << 62 };

impl State {
    const fn new(lap: Word, counts: Word) -> Self {
        Self(lap << LAP_SHIFT | counts)
    }

    const fn vacant(lap: Word) -> Self {
        Self::new(lap, COUNT * FAILED)
    }

    const fn lap(self) -> Word {
        self.0 >> LAP_SHIFT
    }

    const fn counts(self) -> Word {
        self.0 & (Word::MAX >> LAP_BITS)
    }

    const fn is_vacant(self) -> bool {
        self.counts() == COUNT * FAILED
    }

    const fn open(self) -> Word {
        self.0 & COUNT
    }

    const fn busy(self) -> Word {
        self.0 >> COUNT_BITS & COUNT
    }

    const fn failed(self) -> Word {
        self.0 >> (2 * COUNT_BITS) & COUNT
    }

    /// Is its lap later than `lap`?
    const fn is_after(self, lap: Word) -> bool {
        let ahead = self.lap().wrapping_sub(lap) & (Word::MAX >> LAP_SHIFT);
        ahead != 0 && ahead < 1 << (LAP_BITS - 1)
    }
}

/// A place for one batch.
struct Slot {
    state: AtomicWord,
    /// The highest next offset of its batch, or of an earlier one.
    next: Watermark,
}

impl Slot {
    const_unless_loom! {
        const fn new(lap: Word, at: Pos) -> Self {
            Self { state: AtomicWord::new(State::vacant(lap).0), next: Watermark::new(at) }
        }
    }

    /// Acquire: what the calls before did to the batch is seen.
    fn state(&self) -> State {
        State(self.state.load(Ordering::Acquire))
    }

    /// AcqRel: Release, for what this call did to the batch; Acquire, for what others did.
    fn exchange(&self, from: State, to: Word) -> Result<State, State> {
        match self.state.compare_exchange(from.0, to, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Ok(State(to)),
            Err(seen) => Err(State(seen)),
        }
    }

    /// Takes the slot from batches of laps before `lap`.
    fn evict(&self, lap: Word) {
        let mut seen = self.state();
        while State::vacant(lap).is_after(seen.lap()) {
            match self.exchange(seen, State::vacant(lap).0) {
                Ok(_) => return,
                Err(other) => seen = other,
            }
        }
    }
}

/// The words that all calls share.
struct Words {
    /// The highest next offset of the complete prefix.
    value: Padded<Watermark>,
    /// The lowest batch that was not passed.
    front: Padded<Watermark>,
    /// The batch to begin next.
    back: Padded<AtomicWord>,
    /// The first batch of the assignment in force.
    generation: AtomicWord,
    /// Where enders meet.
    meeting: Padded<AtomicWord>,
}

impl Words {
    const_unless_loom! {
        const fn new(number: Pos, at: Pos) -> Self {
            Self {
                value: Padded(Watermark::new(at)),
                front: Padded(Watermark::new(number)),
                back: Padded(AtomicWord::new(number as Word)),
                // Assignments begin beyond it, so no handle matches it.
                generation: AtomicWord::new(number as Word),
                meeting: Padded(AtomicWord::new(0)),
            }
        }
    }
}

/// The words and slots, of either form: one copy of the code.
#[doc(hidden)]
#[derive(Clone, Copy)]
pub struct View<'a> {
    words: &'a Words,
    slots: &'a [Slot],
}

/// One assignment.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Generation {
    base: u64,
    /// The position of `base`.
    origin: Pos,
    /// The first batch.
    first: Pos,
}

impl<'a> View<'a> {
    fn slot(self, number: Pos) -> (&'a Slot, Word) {
        let index = number as usize & (self.slots.len() - 1);
        let lap = number >> self.slots.len().trailing_zeros();
        // SAFETY: the length is a power of two, so the index is below it.
        let slot = unsafe { self.slots.get_unchecked(index) };
        (slot, lap as Word & (Word::MAX >> LAP_SHIFT))
    }

    fn is_current(self, first: Pos) -> bool {
        self.words.generation.load(Ordering::Acquire) == first as Word
    }

    fn current(self, first: Pos) -> Result<(), Stale> {
        if self.is_current(first) { Ok(()) } else { Err(Stale) }
    }

    /// Begins an assignment. Every slot is first taken from the batches before, then its offset is
    /// raised: an ender looks at its batch again between reading the offset and raising it, so
    /// once the offset has changed here no ender of an older batch changes it any more. The new
    /// positions begin at the highest of them.
    fn assign(self, start: u64) -> Generation {
        let words = self.words;
        let first = loop {
            let front = words.front.load();
            let back = words.back.load(Ordering::Acquire);
            let generation = words.generation.load(Ordering::Acquire);
            let mut used = front;
            for word in [back, generation] {
                let number = expand(word, front);
                used = if distance(used, number) > 0 { number } else { used };
            }
            let first = (used + 1).next_multiple_of(self.slots.len() as u64);
            let (to, order, acquire) = (first as Word, Ordering::AcqRel, Ordering::Acquire);
            let begun = words.generation.compare_exchange(generation, to, order, acquire);
            // From the value read before: a begin that raised it meanwhile makes this fail, and the
            // next round starts beyond. A later begin acquires this and sees the generation.
            if begun.is_ok() && words.back.compare_exchange(back, to, order, acquire).is_ok() {
                break first;
            }
        };
        for slot in self.slots {
            let lap = self.slot(first).1;
            slot.evict(lap);
        }
        let generation = |origin| Generation { base: start, origin, first };
        let mut origin = words.value.load() + 1;
        for slot in self.slots.iter().filter(|_| !weak(Control::BatchOffsetsLeft)) {
            loop {
                let to = origin.max(slot.next.load() + 1);
                // Only while this is the last assignment: a later one's batches may be here.
                match slot.next.raise_while(to, || self.is_current(first)) {
                    Ok((at, true)) => {
                        origin = at;
                        break;
                    }
                    // Raised so far by another, not by this call: once more, beyond.
                    Ok((_, false)) => {}
                    // Not in force any more: every call of this handle is refused.
                    Err(_) => return generation(to),
                }
            }
        }
        words.value.raise(origin);
        words.front.raise(first);
        generation(origin)
    }

    fn begin(self, of: Generation, parts: usize) -> Result<BatchId, BeginError> {
        let stale = |Stale| BeginError::Stale;
        if parts > MOST_PARTS {
            return Err(BeginError::TooManyParts);
        }
        let words = self.words;
        loop {
            let number = expand(words.back.load(Ordering::Acquire), words.front.load());
            // After the number: if that is a later assignment's, this is seen.
            self.current(of.first).map_err(stale)?;
            if parts == 0 {
                return Ok(BatchId::EMPTY);
            }
            let (slot, lap) = self.slot(number);
            let seen = slot.state();
            if seen == State::vacant(lap) {
                // In the slot first, then in the back: a call stopped in between holds up nobody.
                if slot.exchange(seen, State::new(lap, parts as Word * OPEN).0).is_ok() {
                    raise(&words.back, number + 1, number);
                    self.current(of.first).map_err(stale)?;
                    return Ok(BatchId(number));
                }
            } else if seen.lap() == lap || seen.is_after(lap) {
                // Begun by a call that has not yet raised the back.
                raise(&words.back, number + 1, number);
            } else {
                self.current(of.first).map_err(stale)?;
                return Err(BeginError::Full);
            }
        }
    }

    /// Moves one part of a batch; `change` gives the word with the part moved, or a refusal.
    /// The batch's slot and lap, and its state then.
    fn change(
        self,
        of: Generation,
        id: BatchId,
        change: impl Fn(State) -> Result<Word, BatchError>,
    ) -> Result<(&'a Slot, Word, State), BatchError> {
        // A refusal is said only after another look at the generation.
        let refuse = |error| if self.is_current(of.first) { error } else { BatchError::Stale };
        let front = self.words.front.load();
        self.current(of.first).map_err(|Stale| BatchError::Stale)?;
        if id.0 < of.first {
            return Err(BatchError::Stale);
        }
        if id == BatchId::EMPTY || (id.0 < front && !weak(Control::BatchLapIgnored)) {
            return Err(BatchError::Finished);
        }
        let (slot, lap) = self.slot(id.0);
        let mut seen = slot.state();
        loop {
            if weak(Control::BatchLapIgnored) && !seen.is_vacant() {
            } else if seen.is_after(lap) || seen == State::new(lap, 0) {
                return Err(refuse(BatchError::Finished));
            } else if seen.lap() != lap || seen.is_vacant() {
                return Err(refuse(BatchError::Unknown));
            }
            match slot.exchange(seen, change(seen).map_err(refuse)?) {
                Ok(now) => return Ok((slot, lap, now)),
                Err(other) => seen = other,
            }
        }
    }

    fn end(self, of: Generation, id: BatchId, next: u64) -> Result<Option<Next>, BatchError> {
        // An offset below the start raises nothing.
        let pos = of.origin.checked_add(next.saturating_sub(of.base));
        let value = self.words.value.load();
        let Some(pos) = pos.filter(|pos| distance(value, *pos) <= FAR as i64 && *pos < 1 << 63)
        else {
            self.current(of.first).map_err(|Stale| BatchError::Stale)?;
            return Err(BatchError::OutOfRange);
        };
        if weak(Control::BatchRaisedUnclaimed) {
            self.slot(id.0).0.next.raise(pos);
        }
        let (slot, lap, _) = self.change(of, id, |seen| match seen.open() {
            0 if seen.failed() > 0 => Err(BatchError::Failed),
            0 => Err(BatchError::Finished),
            _ => Ok(seen.0 - OPEN + BUSY),
        })?;
        let is_ours = |seen: State| {
            let ours = seen.lap() == lap && !seen.is_vacant();
            if !ours {
                hit(Branch::BatchEvicted);
            }
            ours || weak(Control::BatchLapIgnored)
        };
        // Only an assign takes a batch away that has a busy part.
        let still = || is_ours(slot.state()) || weak(Control::BatchEvictedRaises);
        if slot.next.raise_while(pos, still).is_err() {
            return Err(BatchError::Stale);
        }
        let mut seen = slot.state();
        let now = loop {
            if !is_ours(seen) {
                return Err(BatchError::Stale);
            }
            match slot.exchange(seen, seen.0 - BUSY) {
                Ok(now) => break now,
                Err(other) => seen = other,
            }
        };
        self.settle(of, id, now)
    }

    fn skip(self, of: Generation, id: BatchId) -> Result<Option<Next>, BatchError> {
        let (_, _, now) = self.change(of, id, |seen| match seen.failed() {
            0 => Err(BatchError::NotFailed),
            _ => Ok(seen.0 - FAILED),
        })?;
        self.settle(of, id, now)
    }

    /// After a part was ended or skipped: when that completes the batch, meets and slides.
    fn settle(self, of: Generation, id: BatchId, now: State) -> Result<Option<Next>, BatchError> {
        let next = if now.counts() == 0 { self.slide(of, id) } else { Ok(None) };
        // Said only while the assignment is in force.
        next.and_then(|next| self.current(of.first).map(|()| next)).map_err(|_| BatchError::Stale)
    }

    /// Passes complete batches; the value then, when this call passed any.
    fn slide(self, of: Generation, own: BatchId) -> Result<Option<Next>, Stale> {
        let words = self.words;
        let order =
            if weak(Control::BatchesDoNotMeet) { Ordering::Relaxed } else { Ordering::AcqRel };
        words.meeting.fetch_add(1, order);
        let mut has_passed = false;
        let mut number = words.front.load();
        loop {
            // After the front: a number of a later assignment brings its generation, and its
            // batches are its own calls' to report.
            if !weak(Control::BatchSlideStale) {
                self.current(of.first)?;
            }
            let (slot, lap) = self.slot(number);
            let seen = slot.state();
            if seen == State::new(lap, 0) {
                let at = slot.next.load();
                // Unchanged, so `at` is of this batch: an ender of the next one claims before it
                // raises, and the load above acquires that.
                if slot.state() != seen && !weak(Control::BatchReadOnce) {
                    hit(Branch::BatchPassedMeanwhile);
                } else {
                    words.value.raise(at);
                    let vacant = State::vacant(lap.wrapping_add(1));
                    let passed = if weak(Control::BatchPassedByStore) {
                        slot.state.store(vacant.0, Ordering::Release);
                        true
                    } else {
                        slot.exchange(seen, vacant.0).is_ok()
                    };
                    if passed && number != own.0 {
                        hit(Branch::BatchHelped);
                    }
                    has_passed |= passed;
                }
            } else if !seen.is_after(lap) {
                break;
            }
            number = words.front.raise(number + 1);
        }
        Ok(has_passed.then(|| self.next(of)))
    }

    fn next(self, of: Generation) -> Next {
        Next(of.base.saturating_add(self.words.value.load().saturating_sub(of.origin)))
    }

    fn head(self, of: Generation) -> Result<Option<Batch>, Stale> {
        let number = self.words.front.load();
        let (slot, lap) = self.slot(number);
        let seen = slot.state();
        self.current(of.first)?;
        let begun = seen.lap() == lap && !seen.is_vacant();
        Ok(begun.then(|| Batch {
            id: BatchId(number),
            open: (seen.open() + seen.busy()) as usize,
            failed: seen.failed() as usize,
        }))
    }
}

/// A watermark over at most `N` numbered batches: no allocator, works in a `static`.
///
/// Every call may come from any thread or interrupt and is lock-free; a thread stopped inside a
/// call keeps at most the batch it is ending or beginning from being complete. `N` is a power
/// of two up to 2^15, checked when the program is compiled: the most batches from the lowest one that
/// is not complete to the last begun.
///
/// PMQ: the batch recorder. Here every offset is exclusive, a fixed number of batches is open, a
/// batch of no parts is complete at once, an empty or low batch never lowers the value, a second
/// end is an error, and a part that failed is said to have failed.
///
/// ```
/// use inflight::BatchWatermark;
///
/// static BATCHES: BatchWatermark<64> = BatchWatermark::new();
///
/// let batches = BATCHES.assign(0);
/// let first = batches.begin(2)?; // two workers have a part each
/// let second = batches.begin(1)?;
/// assert_eq!(batches.end(second, 200)?, None); // the first is not complete
/// assert_eq!(batches.end(first, 90)?, None);
/// assert_eq!(batches.end(first, 100)?.unwrap().get(), 200); // persist that
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// ```compile_fail
/// static BATCHES: inflight::BatchWatermark<100> = inflight::BatchWatermark::new();
/// ```
pub struct BatchWatermark<const N: usize> {
    words: Words,
    slots: [Slot; N],
}

const fn is_capacity(n: usize) -> bool {
    n.is_power_of_two() && n <= 1 << 15
}

impl<const N: usize> BatchWatermark<N> {
    const CHECKED: () =
        assert!(is_capacity(N), "the capacity of a BatchWatermark is a power of two up to 2^15");

    const_unless_loom! {
        /// No batches. Takes no call before the first [`assign`](BatchWatermark::assign).
        pub const fn new() -> Self {
            Self::starting_at(0, 0)
        }
    }

    const_unless_loom! {
        /// For tests: numbers begin at lap `lap`, positions at `at`, so that a word's wrap is near.
        #[doc(hidden)]
        pub const fn starting_at(lap: u64, at: u64) -> Self {
            const { Self::CHECKED };
            Self { words: Words::new(lap * N as u64, at), slots: Self::slots(lap as Word, at) }
        }
    }

    #[cfg(not(loom))]
    const fn slots(lap: Word, at: Pos) -> [Slot; N] {
        let mut slots = [const { Slot::new(0, 0) }; N];
        let mut index = 0;
        while index < N {
            slots[index] = Slot::new(lap, at);
            index += 1;
        }
        slots
    }

    #[cfg(loom)]
    fn slots(lap: Word, at: Pos) -> [Slot; N] {
        core::array::from_fn(|_| Slot::new(lap, at))
    }

    /// Begins an assignment: the partition is consumed from offset `start` on, no batch is begun.
    /// The last one wins; calls of every older one answer `Stale`.
    ///
    /// O(`N`), lock-free.
    ///
    /// ```
    /// use inflight::{BatchError, BatchWatermark};
    ///
    /// let watermark = BatchWatermark::<4>::new();
    /// let old = watermark.assign(0);
    /// let batch = old.begin(1)?;
    /// let new = watermark.assign(50);
    /// assert_eq!(old.end(batch, 10), Err(BatchError::Stale));
    /// assert_eq!(new.watermark()?.get(), 50);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn assign(&self, start: u64) -> Batches<&Self> {
        Batches { generation: self.view().assign(start), of: self }
    }

    /// As [`BatchWatermark::assign`], by a handle that owns it, for threads and tasks.
    #[cfg(all(feature = "alloc", target_has_atomic = "ptr"))]
    pub fn assign_owned(
        self: &alloc::sync::Arc<Self>,
        start: u64,
    ) -> Batches<alloc::sync::Arc<Self>> {
        Batches { generation: self.view().assign(start), of: alloc::sync::Arc::clone(self) }
    }

    /// The most batches from the lowest one that is not complete to the last begun.
    pub const fn capacity(&self) -> usize {
        N
    }

    fn view(&self) -> View<'_> {
        View { words: &self.words, slots: &self.slots }
    }
}

impl<const N: usize> Default for BatchWatermark<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> fmt::Debug for BatchWatermark<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchWatermark").field("capacity", &N).finish_non_exhaustive()
    }
}

/// A [`BatchWatermark`] whose capacity is chosen when the program runs.
///
/// ```
/// use inflight::BoxedBatchWatermark;
///
/// let workers = 20;
/// let watermark = BoxedBatchWatermark::new(2 * workers);
/// assert_eq!(watermark.capacity(), 64);
/// let batches = watermark.assign(7);
/// let batch = batches.begin(1)?;
/// assert_eq!(batches.end(batch, 8)?.unwrap().get(), 8);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[cfg(feature = "alloc")]
pub struct BoxedBatchWatermark {
    words: Words,
    slots: alloc::boxed::Box<[Slot]>,
}

#[cfg(feature = "alloc")]
impl BoxedBatchWatermark {
    /// No batches, and room for at least `capacity` of them: rounded up to a power of two, and
    /// down to 2^15. Takes no call before the first [`assign`](BoxedBatchWatermark::assign).
    pub fn new(capacity: usize) -> Self {
        let capacity = capacity.clamp(1, 1 << 15).next_power_of_two();
        Self { words: Words::new(0, 0), slots: (0..capacity).map(|_| Slot::new(0, 0)).collect() }
    }

    /// As [`BatchWatermark::assign`].
    pub fn assign(&self, start: u64) -> Batches<&Self> {
        Batches { generation: self.view().assign(start), of: self }
    }

    /// As [`BatchWatermark::assign`], by a handle that owns it, for threads and tasks.
    #[cfg(target_has_atomic = "ptr")]
    pub fn assign_owned(
        self: &alloc::sync::Arc<Self>,
        start: u64,
    ) -> Batches<alloc::sync::Arc<Self>> {
        Batches { generation: self.view().assign(start), of: alloc::sync::Arc::clone(self) }
    }

    /// The most batches from the lowest one that is not complete to the last begun.
    pub fn capacity(&self) -> usize {
        self.slots.len()
    }

    fn view(&self) -> View<'_> {
        View { words: &self.words, slots: &self.slots }
    }
}

#[cfg(feature = "alloc")]
impl fmt::Debug for BoxedBatchWatermark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoxedBatchWatermark")
            .field("capacity", &self.capacity())
            .finish_non_exhaustive()
    }
}

/// A way to hold on to a batch watermark of either form: `&W`, or `Arc<W>` with `alloc`.
pub trait BatchRef: Clone + RefSealed {
    #[doc(hidden)]
    fn view(&self) -> View<'_>;
}

impl<const N: usize> RefSealed for &BatchWatermark<N> {}
impl<const N: usize> BatchRef for &BatchWatermark<N> {
    fn view(&self) -> View<'_> {
        BatchWatermark::view(self)
    }
}

#[cfg(feature = "alloc")]
impl RefSealed for &BoxedBatchWatermark {}
#[cfg(feature = "alloc")]
impl BatchRef for &BoxedBatchWatermark {
    fn view(&self) -> View<'_> {
        BoxedBatchWatermark::view(self)
    }
}

#[cfg(all(feature = "alloc", target_has_atomic = "ptr"))]
impl<const N: usize> RefSealed for alloc::sync::Arc<BatchWatermark<N>> {}
#[cfg(all(feature = "alloc", target_has_atomic = "ptr"))]
impl<const N: usize> BatchRef for alloc::sync::Arc<BatchWatermark<N>> {
    fn view(&self) -> View<'_> {
        BatchWatermark::view(self)
    }
}

#[cfg(all(feature = "alloc", target_has_atomic = "ptr"))]
impl RefSealed for alloc::sync::Arc<BoxedBatchWatermark> {}
#[cfg(all(feature = "alloc", target_has_atomic = "ptr"))]
impl BatchRef for alloc::sync::Arc<BoxedBatchWatermark> {
    fn view(&self) -> View<'_> {
        BoxedBatchWatermark::view(self)
    }
}

/// One assignment of a [`BatchWatermark`]: begins and ends batches. Copy when it borrows it.
#[derive(Clone, Copy)]
pub struct Batches<R> {
    of: R,
    generation: Generation,
}

impl<R: BatchRef> Batches<R> {
    /// Begins a batch of `parts` parts; batches are in the order of their begins.
    ///
    /// A batch of no parts is complete at once: it takes no room and holds up nothing; ending it
    /// is [`BatchError::Finished`].
    ///
    /// # Errors
    /// [`BeginError::Full`] when the lowest batch that is not complete lies a whole capacity back.
    ///
    /// O(1).
    ///
    /// ```
    /// use inflight::{BatchWatermark, BeginError};
    ///
    /// let watermark = BatchWatermark::<2>::new();
    /// let batches = watermark.assign(0);
    /// let first = batches.begin(1)?;
    /// batches.begin(0)?;
    /// batches.begin(1)?;
    /// assert_eq!(batches.begin(1), Err(BeginError::Full));
    /// batches.end(first, 10)?;
    /// batches.begin(1)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn begin(&self, parts: usize) -> Result<BatchId, BeginError> {
        self.of.view().begin(self.generation, parts)
    }

    /// One part of a batch is done; `next` is its next offset, exclusive.
    ///
    /// `Some` when this call passed complete batches at the front: the highest next offset of all
    /// batches up to there, safe to persist. Of calls that run beside each other one says it,
    /// perhaps for the other's batch. A `next` below what is there already, or below the start,
    /// lowers nothing.
    ///
    /// # Errors
    /// [`BatchError`]; an error changes nothing.
    ///
    /// O(1), and O(1) for each batch that is passed.
    pub fn end(&self, id: BatchId, next: u64) -> Result<Option<Next>, BatchError> {
        self.of.view().end(self.generation, id, next)
    }

    /// One open part of a batch has failed: it holds the value until it is retried or skipped.
    ///
    /// # Errors
    /// [`BatchError::Finished`] when no part is open; [`BatchError::Failed`] when the last open ones
    /// have failed before.
    ///
    /// O(1).
    ///
    /// ```
    /// use inflight::{BatchError, BatchWatermark};
    ///
    /// let watermark = BatchWatermark::<4>::new();
    /// let batches = watermark.assign(0);
    /// let batch = batches.begin(2)?;
    /// batches.fail(batch)?;
    /// assert_eq!(batches.end(batch, 10)?, None);
    /// assert_eq!(batches.end(batch, 20), Err(BatchError::Failed));
    /// assert_eq!(batches.head()?.unwrap().failed, 1);
    /// batches.retry(batch)?;
    /// assert_eq!(batches.end(batch, 20)?.unwrap().get(), 20);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn fail(&self, id: BatchId) -> Result<(), BatchError> {
        let failed = self.of.view().change(self.generation, id, |seen| match seen.open() {
            0 if seen.failed() > 0 => Err(BatchError::Failed),
            0 => Err(BatchError::Finished),
            _ => Ok(seen.0 - OPEN + FAILED),
        });
        self.changed(failed)
    }

    /// A failed part of a batch is open again.
    ///
    /// # Errors
    /// [`BatchError::NotFailed`] when no part of it has failed.
    ///
    /// O(1).
    pub fn retry(&self, id: BatchId) -> Result<(), BatchError> {
        let retried = self.of.view().change(self.generation, id, |seen| match seen.failed() {
            0 => Err(BatchError::NotFailed),
            _ => Ok(seen.0 - FAILED + OPEN),
        });
        self.changed(retried)
    }

    /// A failed part of a batch is given up, without an offset. The rest as [`Batches::end`].
    ///
    /// # Errors
    /// [`BatchError::NotFailed`] when no part of it has failed.
    ///
    /// ```
    /// use inflight::BatchWatermark;
    ///
    /// let watermark = BatchWatermark::<4>::new();
    /// let batches = watermark.assign(0);
    /// let (first, second) = (batches.begin(1)?, batches.begin(1)?);
    /// batches.fail(first)?;
    /// assert_eq!(batches.end(second, 20)?, None);
    /// assert_eq!(batches.skip(first)?.unwrap().get(), 20);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn skip(&self, id: BatchId) -> Result<Option<Next>, BatchError> {
        self.of.view().skip(self.generation, id)
    }

    /// The highest next offset of the complete prefix; the start when there is none. O(1).
    ///
    /// # Errors
    /// [`Stale`] when the assignment has ended.
    pub fn watermark(&self) -> Result<Next, Stale> {
        let view = self.of.view();
        let next = view.next(self.generation);
        view.current(self.generation.first).map(|()| next)
    }

    /// The lowest batch that is not complete, which holds all later ones; none when all are. O(1).
    ///
    /// # Errors
    /// [`Stale`] when the assignment has ended.
    pub fn head(&self) -> Result<Option<Batch>, Stale> {
        self.of.view().head(self.generation)
    }

    fn changed<T>(&self, changed: Result<T, BatchError>) -> Result<(), BatchError> {
        changed?;
        self.of.view().current(self.generation.first).map_err(|Stale| BatchError::Stale)
    }
}

impl<R: BatchRef> fmt::Debug for Batches<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut picture = f.debug_struct("Batches");
        match (self.watermark(), self.head()) {
            (Ok(watermark), Ok(head)) => {
                picture.field("watermark", &watermark.get()).field("head", &head)
            }
            _ => picture.field("stale", &true),
        };
        picture.finish()
    }
}

/// Which batch: from [`Batches::begin`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchId(Pos);

impl BatchId {
    /// A batch of no parts.
    const EMPTY: Self = Self(Pos::MAX);
}

/// A batch that is not complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Batch {
    /// Which one.
    pub id: BatchId,
    /// Its parts that are to be ended, or are being ended.
    pub open: usize,
    /// Its parts that have failed.
    pub failed: usize,
}

/// Why a batch was not begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BeginError {
    /// The lowest batch that is not complete lies a whole capacity back.
    Full,
    /// More parts than a batch can have: 16,382, or 62 with 32-bit words.
    TooManyParts,
    /// The assignment has ended.
    Stale,
}

impl fmt::Display for BeginError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "too many batches are open",
            Self::TooManyParts => "the batch has too many parts",
            Self::Stale => "the assignment has ended",
        })
    }
}

impl core::error::Error for BeginError {}

/// Why a part of a batch was not ended, failed, retried or skipped. Nothing was changed (after
/// `Stale`, nothing of the assignment in force).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BatchError {
    /// Every part of the batch was ended or skipped before.
    Finished,
    /// Every part of the batch that is left has failed: retry or skip it.
    Failed,
    /// No part of the batch has failed.
    NotFailed,
    /// The batch was never begun here: its id is another watermark's.
    Unknown,
    /// The offset is too far beyond the value: 2^62, or 2^40 with 32-bit words.
    OutOfRange,
    /// The assignment has ended, or the batch is of an ended one.
    Stale,
}

impl fmt::Display for BatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Finished => "every part of the batch was ended before",
            Self::Failed => "what is left of the batch has failed",
            Self::NotFailed => "no part of the batch has failed",
            Self::Unknown => "the batch was not begun here",
            Self::OutOfRange => "the offset is out of range",
            Self::Stale => "the assignment has ended",
        })
    }
}

impl core::error::Error for BatchError {}
