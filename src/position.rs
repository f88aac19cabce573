//! Positions: where a message stands in the life of a window, and the one word that must not be wrong.
//!
//! A *position* counts from the window's birth and never goes back; an assignment maps its offsets
//! to positions. On the stack a position is a `u64`; in memory it is a [`Word`], which wraps on
//! 32-bit targets and is widened again near a known position ([`expand`]). Only the watermark
//! itself must be wide in memory, without a 64-bit atomic: [`Halves`].

use crate::control::{Branch, Control, hit, weak};
use crate::sync::{AtomicWord, NARROW, Ordering, Word, const_unless_loom};

/// A position: counts from the window's birth, never goes back.
pub(crate) type Pos = u64;

/// Widens a word to the position nearest to `near`; right while the two are less than half the
/// word's range apart.
#[inline(always)]
pub(crate) fn expand(word: Word, near: Pos) -> Pos {
    let ahead = word.wrapping_sub(near as Word);
    near.wrapping_add_signed(sign_extended(ahead, 0))
}

/// A word as a signed number, shifted right by `spare` bits.
#[inline(always)]
pub(crate) fn sign_extended(word: Word, spare: u32) -> i64 {
    if NARROW { i64::from(word as u32 as i32 >> spare) } else { word as i64 >> spare }
}

/// Raises a word to `to` unless it is there already; says where it was. `near` as in [`expand`].
#[cfg_attr(target_pointer_width = "64", inline(always))]
pub(crate) fn raise(word: &AtomicWord, to: Pos, near: Pos) -> Pos {
    let mut seen = word.load(Ordering::Acquire);
    loop {
        let was = expand(seen, near);
        // `was` may lie below `near` only by a wrapped difference: compare as signed distances.
        if distance(was, to) <= 0 {
            return was;
        }
        match word.compare_exchange(seen, to as Word, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return was,
            Err(other) => seen = other,
        }
    }
}

/// How far `to` lies beyond `from`, negative when it lies before.
#[inline(always)]
pub(crate) fn distance(from: Pos, to: Pos) -> i64 {
    to.wrapping_sub(from) as i64
}

/// A monotone position in memory.
pub(crate) trait Monotone {
    /// The position, never one that was passed before an earlier load.
    fn load(&self) -> Pos;
    /// Raises the position to at least `to` while `still` allows it; asked after each look at the
    /// position, before the exchange from exactly what was seen. Where it then is, and whether
    /// this call moved it; or where it was when `still` said no.
    fn raise_while(&self, to: Pos, still: impl FnMut() -> bool) -> Result<(Pos, bool), Pos>;

    /// Raises the position to at least `to` and returns where it then is.
    #[inline(always)]
    fn raise(&self, to: Pos) -> Pos {
        match self.raise_while(to, || true) {
            Ok((at, _)) | Err(at) => at,
        }
    }
}

/// The watermark on this target.
#[cfg(not(any(target_pointer_width = "32", inflight_word32)))]
pub(crate) type Watermark = Whole;
/// The watermark on this target.
#[cfg(any(target_pointer_width = "32", inflight_word32))]
pub(crate) type Watermark = Halves<32>;

/// A position in one word of 64 bits.
#[cfg_attr(any(target_pointer_width = "32", inflight_word32), allow(dead_code))]
pub(crate) struct Whole(AtomicWord);

#[cfg_attr(any(target_pointer_width = "32", inflight_word32), allow(dead_code))]
impl Whole {
    const_unless_loom! {
        pub(crate) const fn new(at: Pos) -> Self {
            Self(AtomicWord::new(at as Word))
        }
    }
}

impl Monotone for Whole {
    #[inline(always)]
    fn load(&self) -> Pos {
        // Acquire: whoever sees a watermark also sees the generation it belongs to, since assign
        // changes the generation before it raises the watermark.
        Pos::from(self.0.load(Ordering::Acquire))
    }

    #[inline(always)]
    fn raise_while(&self, to: Pos, mut still: impl FnMut() -> bool) -> Result<(Pos, bool), Pos> {
        if weak(Control::WatermarkStore) {
            self.0.store(to as Word, Ordering::Release);
            return Ok((to, true));
        }
        let mut seen = self.0.load(Ordering::Acquire);
        loop {
            if Pos::from(seen) >= to {
                return Ok((Pos::from(seen), false));
            }
            if !still() {
                return Err(Pos::from(seen));
            }
            match self.0.compare_exchange(seen, to as Word, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Ok((to, true)),
                Err(other) => {
                    hit(Branch::WatermarkLost);
                    seen = other;
                }
            }
        }
    }
}

/// A position in two words: the low `BITS` of it, and the number of half ranges it has passed.
///
/// The count is raised *before* the low word enters the next half, so it is right or one ahead,
/// and its parity against the low word's top bit tells which: no state of the two words is
/// ambiguous. (Repaired after the move, two halves could pass between, and the count would lose
/// both.) `BITS` is 32; the models use 3 and wrap every eight positions.
///
/// Horizon: a raise stopped between its load and its exchange while the position goes on by
/// exactly a whole range (2^32) would move it back by one range.
#[cfg_attr(not(any(target_pointer_width = "32", inflight_word32, loom)), allow(dead_code))]
pub(crate) struct Halves<const BITS: u32> {
    low: AtomicWord,
    count: AtomicWord,
}

#[cfg_attr(not(any(target_pointer_width = "32", inflight_word32, loom)), allow(dead_code))]
impl<const BITS: u32> Halves<BITS> {
    const HALF: Pos = 1 << (BITS - 1);
    const LOW: Pos = 2 * Self::HALF - 1;

    const_unless_loom! {
        pub(crate) const fn new(at: Pos) -> Self {
            Self {
                low: AtomicWord::new((at & Self::LOW) as Word),
                count: AtomicWord::new((at / Self::HALF) as Word),
            }
        }
    }

    /// One consistent pair: the low word was read while the count stood still.
    #[inline]
    fn pair(&self) -> (Word, Word) {
        loop {
            let (count, low);
            if weak(Control::LowFirst) {
                low = self.low.load(Ordering::Acquire);
                count = self.count.load(Ordering::Acquire);
                return (count, low);
            }
            count = self.count.load(Ordering::Acquire);
            // Acquire: a low word of the next half brings the count that was raised for it, so
            // the second look cannot miss it.
            low = self.low.load(Ordering::Acquire);
            if weak(Control::CountNotReread)
                || weak(Control::PairReadOnce)
                || self.count.load(Ordering::Acquire) == count
            {
                return (count, low);
            }
            hit(Branch::HalfMismatch);
        }
    }

    #[inline]
    fn decode(count: Word, low: Word) -> Pos {
        let top = Pos::from(low) / Self::HALF;
        // The count is one ahead while a raise is between its two steps.
        let ahead = (Pos::from(count) ^ top) & 1;
        (Pos::from(count).wrapping_sub(ahead)).wrapping_mul(Self::HALF)
            + (Pos::from(low) & (Self::HALF - 1))
    }
}

impl<const BITS: u32> Monotone for Halves<BITS> {
    #[inline]
    fn load(&self) -> Pos {
        let (count, low) = self.pair();
        Self::decode(count, low)
    }

    #[inline]
    fn raise_while(&self, to: Pos, mut still: impl FnMut() -> bool) -> Result<(Pos, bool), Pos> {
        let mut has_moved = false;
        loop {
            let (count, low) = self.pair();
            let at = Self::decode(count, low);
            if at >= to {
                return Ok((at, has_moved));
            }
            if !still() {
                return Err(at);
            }
            // By at most half the range in one move, so that the count goes up one by one.
            let next = to.min(at + Self::HALF);
            let half = next / Self::HALF;
            let behind = Pos::from(count) < half;
            if behind && !weak(Control::RepairAfterMove) {
                let moved = self.count.compare_exchange(
                    count,
                    half as Word,
                    Ordering::AcqRel,
                    Ordering::Acquire,
                );
                if moved.is_err() {
                    hit(Branch::WatermarkLost);
                    continue;
                }
            }
            let moved = self.low.compare_exchange(
                low,
                (next & Self::LOW) as Word,
                Ordering::AcqRel,
                Ordering::Acquire,
            );
            if moved.is_err() {
                hit(Branch::WatermarkLost);
                continue;
            }
            has_moved = true;
            if behind && weak(Control::RepairAfterMove) {
                self.count.store(half as Word, Ordering::Release);
            }
        }
    }
}

/// Where takers look first, with a version that each lowering raises.
///
/// The word holds the low `bits` of a position and, above them, the version. A taker that
/// scanned while a message below its cursor became ready must not move the cursor past it: the
/// version makes its exchange fail. The version wraps; what that hides is found by the look from
/// the watermark that every dry take ends with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark(pub(crate) Word);

impl Mark {
    /// The position, given the watermark and how far beyond it positions can lie; anything else
    /// counts as the watermark.
    #[inline(always)]
    pub(crate) fn position(self, bits: u32, watermark: Pos, reach: Pos) -> Pos {
        let mask = (1 << bits) - 1;
        let ahead = Pos::from(self.0).wrapping_sub(watermark) & mask;
        if ahead <= reach { watermark + ahead } else { watermark }
    }

    /// The same version at another position.
    #[inline(always)]
    pub(crate) fn moved(self, bits: u32, to: Pos) -> Self {
        let mask = ((1 as Pos) << bits) - 1;
        Self((self.0 & !(mask as Word)) | (to & mask) as Word)
    }

    /// The next version at another position.
    #[inline(always)]
    pub(crate) fn lowered(self, bits: u32, to: Pos) -> Self {
        let version = if weak(Control::VersionKept) { 0 } else { (1 as Word) << bits };
        Self(self.0.wrapping_add(version)).moved(bits, to)
    }
}
