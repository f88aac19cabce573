//! Numbered by arrival: dense positions for a sparse log that comes in order.
//!
//! A message gets the position after the last one, whatever its offset; the offset stays beside
//! it, in the slot. So byte positions, LSNs and filtered topics run as if they were dense, also
//! in a ring, and the gaps between offsets cost nothing: there is nothing to seal.
//!
//! Offsets ascend with positions, mostly evenly, so an offset is found by the rule of three between
//! those that are known, and where they are not even, by bisection over the slots' offsets. The
//! watermark is the offset of the message at the watermark's position; when no message is there,
//! it is the *tail*: the offset after the last message, or what `advance_to` said. The tail is
//! kept as a position too, as far beyond the assignment's first as the offset lies beyond its
//! base: assignments begin beyond it as they begin beyond the end, and it is only exchanged from a
//! value read before a look at the generation, so that a late raise of an old assignment fails.

use core::ops::ControlFlow;

use crate::control::{Control, weak};
use crate::engine::{Elsewhere, Part, Space};
use crate::error::{AdvanceError, Next, PutErrorKind, Stale};
use crate::position::{Monotone, Pos};
use crate::slot::{Place, Taken};
use crate::sync::{Ordering, Word};

impl<'a, S: Space + ?Sized> Part<'a, S> {
    /// The tail, as a position.
    fn tail(self) -> Pos {
        Pos::from(self.words().tail.load(Ordering::Acquire))
    }

    /// Raises the tail to `to`, as long as the generation is in force.
    pub(super) fn raise_tail(self, to: Pos) -> Result<(), Stale> {
        loop {
            let tail = self.words().tail.load(Ordering::Acquire);
            if !weak(Control::TailByMax) {
                self.current()?;
            }
            if Pos::from(tail) >= to {
                return Ok(());
            }
            let raised = self.words().tail.compare_exchange(
                tail,
                to as Word,
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
            if raised.is_ok() {
                return Ok(());
            }
        }
    }

    /// The end, as an offset.
    pub(super) fn numbered_end(self) -> Result<u64, Stale> {
        let tail = self.tail();
        self.current()?;
        Ok(self.dense_offset(tail))
    }

    /// Begins a put. Two at once could number a later offset before an earlier one, and the
    /// watermark would pass that; so the second is refused. A put of an ended assignment, which
    /// may be stopped for ever, is in nobody's way.
    pub(super) fn take_turn(self) -> bool {
        let own = self.generation.first as Word;
        let turn = &self.words().turn;
        let seen = turn.load(Ordering::Acquire);
        if weak(Control::NoTurn) {
            return true;
        }
        seen != own && turn.compare_exchange(seen, own, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Ends a put. (Nothing to end when a later assignment's put has begun.)
    pub(super) fn end_turn(self) {
        let own = self.generation.first as Word;
        let _ = self.words().turn.compare_exchange(own, 0, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// A turn for a call that is no put: it may not move the tail beside one either.
    pub(super) fn turn(self) -> Result<Turn<'a, S>, AdvanceError> {
        self.current().map_err(|Stale| AdvanceError::Stale)?;
        if self.take_turn() { Ok(Turn(self)) } else { Err(AdvanceError::Busy) }
    }

    /// The watermark as an offset.
    pub(super) fn numbered_next(self, pin: &S::Pin) -> Result<Next, Stale> {
        let words = self.words();
        loop {
            // The tail first. A put raises it after its message is ready: so it speaks only of
            // messages that are ready or further by now, and when none is left below the end,
            // those are finished.
            let tail = self.tail();
            let watermark = words.watermark.load();
            let end = words.end(watermark);
            self.current()?;
            if watermark >= end {
                return Ok(Next(self.dense_offset(tail)));
            }
            let offset = self
                .space
                .find(watermark, pin)
                .ok()
                .and_then(|place| place.slot.offset_if(place.lap));
            if words.watermark.load() != watermark {
                continue;
            }
            let Some(offset) = offset else {
                // A put is storing it: its offset is at or above the tail read before.
                self.current()?;
                return Ok(Next(self.dense_offset(tail)));
            };
            // Its put may not have raised the tail yet. When this offset has been said, no
            // later answer may lie below it, also not once the message is finished.
            if let Some(at) = self.dense_position(offset).filter(|_| !weak(Control::TailNotHelped))
            {
                self.raise_tail(at)?;
            }
            self.current()?;
            return Ok(Next(offset));
        }
    }

    /// The place of an offset.
    pub(super) fn numbered_locate<'p>(
        self,
        offset: u64,
        pin: &'p S::Pin,
    ) -> Result<Place<'p, S::Value>, Elsewhere>
    where
        'a: 'p,
    {
        let (watermark, bound) = self.view_closed().map_err(|Stale| Elsewhere::Stale)?;
        if offset < self.generation.base {
            return Err(Elsewhere::Passed);
        }
        let (_, seen) = self.first_from(offset, watermark, bound, pin);
        let lowest = match seen {
            Some((place, at)) if at == offset => return Ok(place),
            seen => seen.map(|(_, at)| at),
        };
        // Below everything unfinished that was seen, and not there: finished, or never sent.
        let next = self.numbered_next(pin).map_err(|Stale| Elsewhere::Stale)?;
        let passed = offset < next.get() && lowest.is_none_or(|lowest| offset < lowest);
        Err(if passed { Elsewhere::Passed } else { Elsewhere::Nowhere })
    }

    /// The position of the first message at or above `offset`, or of the end when there is none,
    /// and the lowest that was seen at or above.
    ///
    /// O(1) where offsets lie evenly, O(log n) at worst.
    fn first_from<'p>(
        self,
        offset: u64,
        watermark: Pos,
        bound: Pos,
        pin: &'p S::Pin,
    ) -> (Pos, Option<Seen<'p, S>>)
    where
        'a: 'p,
    {
        // The tail belongs to the end, or lies above it.
        let mut above = (self.words().end(watermark).min(bound), self.dense_offset(self.tail()));
        let (mut from, mut to) = (watermark, above.0);
        let mut below = None;
        let mut guesses = GUESSES;
        let mut seen = None;
        while from < to {
            let at = match (below, guesses.checked_sub(1)) {
                (Some(below), Some(left)) => {
                    guesses = left;
                    between(below, above, offset).clamp(from, to - 1)
                }
                (None, Some(_)) => from,
                (_, None) => from + (to - from) / 2,
            };
            // Where memory was given back there is no offset to read: the next one will do.
            let known =
                self.space.scan(at, to, pin, |place| match place.slot.offset_if(place.lap) {
                    Some(known) => ControlFlow::Break((place, known)),
                    None => ControlFlow::Continue(()),
                });
            match known {
                ControlFlow::Break((place, known)) if known < offset => {
                    from = place.pos + 1;
                    below = Some((place.pos, known));
                }
                ControlFlow::Break((place, known)) => {
                    seen = Some((place, known));
                    above = (place.pos, known);
                    if known == offset {
                        return (place.pos, seen);
                    }
                    to = at;
                }
                ControlFlow::Continue(()) => to = at,
            }
        }
        (from, seen)
    }

    /// The position for a put of `offset`, after the last one that this put is
    /// filling already.
    pub(super) fn number(
        self,
        offset: u64,
        filling: Option<Pos>,
        pin: &S::Pin,
    ) -> Result<Pos, PutErrorKind> {
        let (watermark, _) = self.view_closed().map_err(|Stale| PutErrorKind::Stale)?;
        let at = self.dense_position(offset).filter(|at| *at < u64::MAX / 2);
        let at = at.ok_or(PutErrorKind::OutOfRange)?;
        if let Some(last) = filling {
            return Ok(last + 1);
        }
        if at >= self.tail() {
            return Ok(self.words().end(watermark));
        }
        Err(match self.numbered_locate(offset, pin) {
            Ok(place) => match place.slot.fill_would(place.lap) {
                Taken::Duplicate => PutErrorKind::Duplicate,
                Taken::Passed => PutErrorKind::Passed,
                Taken::Busy => PutErrorKind::Full,
            },
            Err(Elsewhere::Stale) => PutErrorKind::Stale,
            Err(Elsewhere::Passed | Elsewhere::Nowhere) => {
                let next = self.numbered_next(pin).map_err(|Stale| PutErrorKind::Stale)?;
                if offset < next.get() {
                    PutErrorKind::BelowWatermark
                } else {
                    PutErrorKind::Passed
                }
            }
        })
    }

    /// "Nothing more exists below `next`": nothing to seal, the tail alone moves.
    pub(super) fn numbered_advance(self, next: u64, pin: &S::Pin) -> Result<Next, AdvanceError> {
        let _turn = self.turn()?;
        self.raise_tail_to(next)?;
        self.words().flow.finish(0, 0);
        self.space.slide(pin);
        #[cfg(feature = "async")]
        self.wake_finished();
        self.numbered_next(pin).map_err(|Stale| AdvanceError::Stale)
    }

    /// Raises the tail to an offset.
    pub(super) fn raise_tail_to(self, next: u64) -> Result<(), AdvanceError> {
        if next <= self.generation.base {
            return Ok(());
        }
        let to = self.dense_position(next).filter(|to| *to < u64::MAX / 2);
        self.raise_tail(to.ok_or(AdvanceError::OutOfRange)?).map_err(|Stale| AdvanceError::Stale)
    }

    /// The position of the first message at or above `low`; the end when there is none.
    pub(super) fn numbered_floor(self, low: u64, pin: &S::Pin) -> Result<Pos, Stale> {
        let (watermark, bound) = self.view_closed()?;
        Ok(self.first_from(low, watermark, bound, pin).0)
    }
}

/// A place and the offset of its message.
type Seen<'p, S> = (Place<'p, <S as Space>::Value>, u64);

/// Guesses of a search before it bisects.
const GUESSES: u32 = 8;

/// Where `offset` would be between two known ones, if they lay evenly.
#[inline(always)]
fn between(below: (Pos, u64), above: (Pos, u64), offset: u64) -> Pos {
    let part =
        offset.saturating_sub(below.1) as f64 / above.1.saturating_sub(below.1).max(1) as f64;
    below.0 + (part.min(1.0) * above.0.saturating_sub(below.0) as f64 + 0.5) as u64
}

/// A turn in a window numbered by arrival; over when dropped.
pub(super) struct Turn<'a, S: Space + ?Sized>(Part<'a, S>);

impl<S: Space + ?Sized> Drop for Turn<'_, S> {
    fn drop(&mut self) {
        self.0.end_turn();
    }
}
