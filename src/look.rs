//! Looking at a window: the head, what is unfinished, what has stalled. Changes nothing.

use core::ops::ControlFlow;

use crate::assignment::Assignment;
use crate::engine::{Elsewhere, Space};
use crate::error::Stale;
use crate::position::{Monotone, Pos};
use crate::slot::{Phase, Place};
use crate::sync::Word;
use crate::window::WindowRef;

/// What an offset at or above the watermark is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Stage {
    /// Not put, and not sealed (or its slot is still used by an ended assignment).
    Missing,
    /// A put is storing it.
    Filling,
    /// Waiting to be taken.
    Waiting,
    /// In a lending lease, or being revoked.
    Lent,
    /// In a shared lease, or detached.
    Held,
    /// Somebody is finishing it just now.
    Finishing,
}

/// One offset and what it is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Look {
    /// The offset.
    pub offset: u64,
    /// What it is doing.
    pub stage: Stage,
    /// Tick of its last take or touch, in the low bits that a pointer has; none when it was not
    /// stamped.
    pub since: Option<u64>,
    /// How often it was taken.
    pub deliveries: u32,
}

/// A message that is held longer than a given age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stalled {
    /// The offset.
    pub offset: u64,
    /// The tick of its last take or touch.
    pub since: u64,
    /// How often it was taken.
    pub deliveries: u32,
    /// Can it be revoked? Not when it is lent.
    pub revocable: bool,
}

impl<R: WindowRef> Assignment<R> {
    /// Which offset holds the watermark, and what it is doing: the first question when a
    /// partition stands still. Slides once. None when nothing is unfinished.
    ///
    /// # Errors
    /// [`Stale`] when the assignment has ended.
    ///
    /// ```
    /// use inflight::{RingWindow, Stage, Window};
    ///
    /// let window = RingWindow::<(), 8>::new();
    /// let part = window.assign(0);
    /// part.put_batch(&mut (0..3).map(|n| (n, ())))?;
    /// let _held = part.at(17).take_shared(1)?;
    /// part.remove(1)?;
    /// let head = part.head()?.unwrap();
    /// assert_eq!((head.offset, head.stage, head.since), (0, Stage::Held, Some(17)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn head(&self) -> Result<Option<Look>, Stale> {
        self.min_offset()?;
        Ok(self.looks(true)?.next())
    }

    /// Everything unfinished, ascending; each is looked at when the iterator gets there.
    ///
    /// # Errors
    /// [`Stale`] when the assignment has ended.
    ///
    /// O(span) in all.
    pub fn pending(&self) -> Result<Pending<'_, R>, Stale> {
        self.looks(false)
    }

    /// Everything that was taken, with a tick, longer than `age` before `now`, ascending. Exactly
    /// at the limit is not longer; a clock that went back makes nothing stall.
    ///
    /// # Errors
    /// [`Stale`] when the assignment has ended.
    ///
    /// O(span) in all. RocketMQ: `cleanExpiredMsg`, for any message instead of the first.
    pub fn stalled(
        &self,
        now: u64,
        age: u64,
    ) -> Result<impl Iterator<Item = Stalled> + use<'_, R>, Stale> {
        Ok(self.pending()?.filter_map(move |look| {
            let held = matches!(look.stage, Stage::Lent | Stage::Held);
            let since = look.since.filter(|_| held)?;
            let elapsed = (now as Word).wrapping_sub(since as Word);
            let stalled = elapsed <= Word::MAX / 2 && elapsed as u64 > age;
            stalled.then_some(Stalled {
                offset: look.offset,
                since: now.wrapping_sub(elapsed as u64),
                deliveries: look.deliveries,
                revocable: look.stage == Stage::Held,
            })
        }))
    }

    /// A picture for people: the watermark, then one letter for each position from it on, at most
    /// `width` of them, then how many more there are up to the end.
    ///
    /// `.` finished or sealed, `w` waiting, `l` lent, `h` held, `f` being put, `x` being finished,
    /// `_` missing. In a window numbered by arrival a letter is a message.
    ///
    /// ```
    /// use inflight::{RingWindow, Window};
    ///
    /// let window = RingWindow::<(), 16>::new();
    /// let part = window.assign(100);
    /// part.put_batch(&mut (100..110).map(|n| (n, ())))?;
    /// let _lent = part.take(2)?;
    /// let _held = part.take_shared(2)?;
    /// part.remove(105)?;
    /// assert_eq!(part.picture(8).to_string(), "100 |llhhw.ww| +2");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// O(width), when it is shown; each position is looked at then.
    pub fn picture(&self, width: usize) -> Picture<'_, R> {
        Picture { part: self, width }
    }

    fn looks(&self, missing: bool) -> Result<Pending<'_, R>, Stale> {
        let part = self.part();
        let at = part.space.words().watermark.load();
        part.current()?;
        Ok(Pending { part: self, at, missing })
    }
}

/// What is unfinished: see [`Assignment::pending`].
pub struct Pending<'a, R: WindowRef> {
    part: &'a Assignment<R>,
    at: Pos,
    missing: bool,
}

impl<R: WindowRef> core::fmt::Debug for Pending<'_, R> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Pending").finish_non_exhaustive()
    }
}

impl<R: WindowRef> Iterator for Pending<'_, R> {
    type Item = Look;

    fn next(&mut self) -> Option<Look> {
        let part = self.part.part();
        let pin = self.part.pin();
        let (watermark, bound) = part.view_closed().ok()?;
        let from = self.at.max(watermark);
        let to = part.space.words().end(watermark).min(bound);
        let found = part.space.scan(from, to, &pin, |place| {
            if self.missing && place.pos > from {
                return ControlFlow::Break((from, None, None));
            }
            match look(&place, self.missing) {
                Some(look) => ControlFlow::Break((place.pos, part.offset_at(&place), Some(look))),
                None => ControlFlow::Continue(()),
            }
        });
        let (pos, offset, found) = match found {
            ControlFlow::Break(found) => found,
            ControlFlow::Continue(()) if self.missing && from < to => (from, None, None),
            ControlFlow::Continue(()) => {
                self.at = to;
                return None;
            }
        };
        self.at = pos + 1;
        let (stage, since, deliveries) = found.unwrap_or((Stage::Missing, None, 0));
        let offset = match offset {
            Some(offset) => offset,
            // Numbered by arrival and just being stored: at the end or beyond.
            None if part.numbered() => part.end().ok()?,
            None => part.dense_offset(pos),
        };
        Some(Look { offset, stage, since, deliveries })
    }
}

/// A window as a line of letters: see [`Assignment::picture`].
#[must_use]
pub struct Picture<'a, R: WindowRef> {
    part: &'a Assignment<R>,
    width: usize,
}

impl<R: WindowRef> core::fmt::Display for Picture<'_, R> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let part = self.part.part();
        let pin = self.part.pin();
        let at = part.space.words().watermark.load();
        let (Ok(next), Ok((_, bound))) = (self.part.watermark(), part.view_closed()) else {
            return f.write_str("stale");
        };
        let end = part.space.words().end(at).max(at);
        let to = end.min(bound).min(at.saturating_add(self.width as u64));
        write!(f, "{next} |")?;
        for pos in at..to {
            f.write_str(match part.at(pos, &pin) {
                Err(Elsewhere::Passed | Elsewhere::Stale) => ".",
                Err(Elsewhere::Nowhere) => "_",
                Ok(place) => match look(&place, true).map(|(stage, ..)| stage) {
                    None => ".",
                    Some(Stage::Missing) => "_",
                    Some(Stage::Filling) => "f",
                    Some(Stage::Waiting) => "w",
                    Some(Stage::Lent) => "l",
                    Some(Stage::Held) => "h",
                    Some(Stage::Finishing) => "x",
                },
            })?;
        }
        f.write_str("|")?;
        if end > to { write!(f, " +{}", end - to) } else { Ok(()) }
    }
}

impl<R: WindowRef> core::fmt::Debug for Picture<'_, R> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        core::fmt::Display::fmt(self, f)
    }
}

/// What a place is doing; none when it is finished, or missing and that is not asked for.
fn look<T>(place: &Place<'_, T>, missing: bool) -> Option<(Stage, Option<u64>, u32)> {
    let state = place.slot.state();
    if state.is_done(place.lap) {
        return None;
    }
    let stage = match state.phase() {
        Phase::Filling => Stage::Filling,
        Phase::Ready => Stage::Waiting,
        Phase::Lent => Stage::Lent,
        Phase::Held => Stage::Held,
        Phase::Finishing => Stage::Finishing,
        Phase::Empty | Phase::Doomed => Stage::Missing,
    };
    if state.lap() != place.lap || stage == Stage::Missing {
        return missing.then_some((Stage::Missing, None, 0));
    }
    let since = place.slot.since().map(u64::from);
    Some((stage, since, place.slot.deliveries()))
}
