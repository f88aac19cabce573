//! Finishing: by lease, by number, by saying that nothing is there. The meeting and the slide.

use core::marker::PhantomData;

use crate::control::{Control, weak};
use crate::engine::{Elsewhere, Part, Space, count_out};
use crate::error::{AdvanceError, Next, RemoveError, SkipReason, Stale};
use crate::position::{Pos, distance, expand, raise};
use crate::slot::{Place, Slot, Taking, Unfinished};
use crate::sync::{Ordering, UNWINDS, Word};

/// A message that was won, and where it was.
type Won<'p, T> = (Place<'p, T>, Taking<T>);

impl<'a, S: Space + ?Sized> Part<'a, S> {
    /// Counts messages out, meets the other finishers, slides.
    #[cfg_attr(target_pointer_width = "64", inline(always))]
    pub(crate) fn settle(self, count: usize, bytes: u32, pin: &S::Pin) {
        if weak(Control::DoomedSilent) {
            return;
        }
        count_out(self.space, count, u64::from(bytes));
        self.space.slide(pin);
        #[cfg(feature = "async")]
        self.wake_finished();
    }

    /// Finishes one offset by number. The watermark after the slide.
    // A part that is passed by value goes through memory, and is read before it has got there.
    #[inline(always)]
    pub(crate) fn remove(self, offset: u64, pin: &S::Pin) -> Result<Next, RemoveError> {
        let mut finishing = Finishing::new(self, pin);
        finishing.remove(offset)?;
        finishing.slide().map_err(|Stale| RemoveError::Stale)
    }

    /// Finishes the message at a position. The watermark after the slide.
    pub(crate) fn remove_at(self, pos: Pos, pin: &S::Pin) -> Result<Next, RemoveError> {
        let mut finishing = Finishing::new(self, pin);
        finishing.done(self.win(self.at(pos, pin), pin)?.1);
        finishing.slide().map_err(|Stale| RemoveError::Stale)
    }

    /// Gives up one offset by number, counted by reason. The watermark after the slide.
    pub(crate) fn skip(
        self,
        offset: u64,
        reason: SkipReason,
        pin: &S::Pin,
    ) -> Result<Next, RemoveError> {
        let mut finishing = Finishing::new(self, pin);
        finishing.remove(offset)?;
        self.words().skipped[reason as usize].fetch_add(1, Ordering::Relaxed);
        finishing.slide().map_err(|Stale| RemoveError::Stale)
    }

    /// Wins the message of a place from READY or HELD.
    #[inline(always)]
    fn win<'p>(
        self,
        place: Result<Place<'p, S::Value>, Elsewhere>,
        pin: &'p S::Pin,
    ) -> Result<Won<'p, S::Value>, RemoveError>
    where
        'a: 'p,
    {
        let refused = match place {
            Ok(place) => match place.slot.finish(place.lap) {
                Ok(taking) => {
                    self.space.vacated(place.slot, || place.pos, pin);
                    return Ok((place, taking));
                }
                Err(Unfinished::Passed) => RemoveError::Passed,
                Err(Unfinished::Held) => RemoveError::Held,
                Err(Unfinished::Unknown) => RemoveError::Unknown,
                // An ended assignment's message is in the way; whether this one has ended is looked at
                // below.
                Err(Unfinished::Doomed) => RemoveError::Unknown,
            },
            Err(Elsewhere::Passed) => RemoveError::Passed,
            Err(Elsewhere::Nowhere) => RemoveError::Unknown,
            Err(Elsewhere::Stale) => RemoveError::Stale,
        };
        self.current().map_err(|Stale| RemoveError::Stale)?;
        Err(refused)
    }

    /// "Nothing more exists below `next`." The watermark after the slide.
    pub(crate) fn advance_to(self, next: u64, pin: &S::Pin) -> Result<Next, AdvanceError> {
        if self.numbered() {
            return self.numbered_advance(next, pin);
        }
        self.raise_end(next)?;
        self.words().flow.finish(0, 0);
        let watermark = self.space.slide(pin);
        #[cfg(feature = "async")]
        self.wake_finished();
        self.next(watermark, pin).map_err(|Stale| AdvanceError::Stale)
    }

    /// Raises the end, and the caller's seal, to `next`; its position.
    pub(super) fn raise_end(self, next: u64) -> Result<Pos, AdvanceError> {
        let stale = |Stale| AdvanceError::Stale;
        let words = self.words();
        let (watermark, _) = self.view_closed().map_err(stale)?;
        let to = match self.dense_position(next) {
            Some(to) => to,
            None if next < self.generation.base => self.generation.first,
            None => return Err(AdvanceError::OutOfRange),
        };
        if to.saturating_sub(watermark) >= self.space.far() {
            self.current().map_err(stale)?;
            return Err(AdvanceError::OutOfRange);
        }
        // `to` can lie beyond the window, where a later assignment's positions are. So the end
        // rises only from a value read before the generation was looked at: then an assign that
        // has begun makes this fail, and one that begins now sees it and starts beyond.
        loop {
            let end = words.end.load(Ordering::Acquire);
            if !weak(Control::FarEndByMax) {
                self.current().map_err(stale)?;
            }
            if distance(expand(end, watermark), to) <= 0 {
                break;
            }
            let raised =
                words.end.compare_exchange(end, to as Word, Ordering::AcqRel, Ordering::Acquire);
            if raised.is_ok() {
                break;
            }
        }
        // Now `to` is below every later assignment's first position, so a late raise of the seal
        // allows nothing there.
        if words.callers_seal {
            raise(&words.seal, to, watermark);
        }
        Ok(to)
    }
}

/// Finishes what `next` gives until it gives nothing. When the drop of a message panics in
/// `finish`, the rest follows before the panic goes on; when the user's code panics in `next`, that
/// is the end of it.
#[inline(always)]
pub(crate) fn for_each<T>(next: impl FnMut() -> Option<T>, finish: impl FnMut(T)) {
    Batch { next, finish, over: false, items: PhantomData }.run();
}

struct Batch<T, N: FnMut() -> Option<T>, F: FnMut(T)> {
    next: N,
    finish: F,
    over: bool,
    items: PhantomData<fn(T)>,
}

impl<T, N: FnMut() -> Option<T>, F: FnMut(T)> Batch<T, N, F> {
    #[inline(always)]
    fn run(&mut self) {
        loop {
            self.over = true;
            let Some(item) = (self.next)() else { return };
            self.over = false;
            (self.finish)(item);
        }
    }
}

impl<T, N: FnMut() -> Option<T>, F: FnMut(T)> Drop for Batch<T, N, F> {
    #[inline(always)]
    fn drop(&mut self) {
        if UNWINDS && !self.over {
            self.run();
        }
    }
}

/// Finishes that are counted out, met and slid together, also when a drop panics.
///
/// A value is dropped when the next one is done, the last after the slide: a slow or panicking
/// drop of the user then holds up nothing that was finished before.
pub(crate) struct Finishing<'a: 'p, 'p, S: Space + ?Sized> {
    part: Part<'a, S>,
    pin: &'p S::Pin,
    count: usize,
    bytes: u64,
    last: Option<S::Value>,
    /// The place of the last message that was found by its number.
    found: Option<Place<'p, S::Value>>,
}

impl<'a, 'p, S: Space + ?Sized> Finishing<'a, 'p, S> {
    #[inline(always)]
    pub(crate) fn new(part: Part<'a, S>, pin: &'p S::Pin) -> Self {
        Self { part, pin, count: 0, bytes: 0, last: None, found: None }
    }

    /// A message is done.
    #[inline(always)]
    pub(crate) fn done(&mut self, taking: Taking<S::Value>) {
        self.count += 1;
        self.bytes += u64::from(taking.bytes);
        self.last = Some(taking.value);
    }

    /// See [`Part::finish_lent`].
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    pub(crate) unsafe fn finish_lent(&self, slot: &Slot<S::Value>) -> Taking<S::Value> {
        // SAFETY: promised by the caller.
        unsafe { self.part.finish_lent(slot, self.pin) }
    }

    /// Finishes one offset by number.
    #[inline(always)]
    pub(crate) fn remove(&mut self, offset: u64) -> Result<(), RemoveError> {
        let place = self.part.locate_after(offset, self.found, self.pin);
        let (place, taking) = self.part.win(place, self.pin)?;
        self.found = Some(place);
        self.done(taking);
        Ok(())
    }

    /// Counts out, meets, slides; the watermark then. Meets also when nothing was done, so that
    /// the answer is never behind what the caller knows to be finished.
    #[inline(always)]
    pub(crate) fn slide(&mut self) -> Result<Next, Stale> {
        let watermark = self.count_out();
        self.last = None;
        self.part.next(watermark, self.pin)
    }

    #[cfg_attr(target_pointer_width = "64", inline(always))]
    fn count_out(&mut self) -> Pos {
        count_out(self.part.space, self.count, self.bytes);
        (self.count, self.bytes) = (0, 0);
        let watermark = self.part.space.slide(self.pin);
        #[cfg(feature = "async")]
        self.part.wake_finished();
        watermark
    }
}

impl<S: Space + ?Sized> Drop for Finishing<'_, '_, S> {
    #[inline(always)]
    fn drop(&mut self) {
        // More than none only when user code panicked: all ways end with a slide.
        if UNWINDS && self.count > 0 {
            self.count_out();
        }
    }
}
