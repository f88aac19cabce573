//! The life of an assignment: assign, close, what is left.

use core::ops::ControlFlow;

use crate::control::{Control, weak};
#[cfg(feature = "async")]
use crate::engine::Meter;
use crate::engine::{CLOSED, Evicted, Generation, IDLE, Part, Space, count_out, move_watermark};
use crate::error::Stale;
use crate::position::{Monotone, Pos, distance, expand, raise};
use crate::slot::{Eviction, Phase, Taking};
use crate::sync::{Ordering, Word};
#[cfg(feature = "async")]
use crate::waiting::ROOM;

/// Begins a generation at offset `start`; every older one is over when this returns.
///
/// Positions never go back, and a generation's word *is* its first position: a reset to the same
/// offset gives other words. (1) The first position lies a whole stride beyond everything that a
/// call of an older generation can touch, also one that has read the watermark and not yet the
/// generation. (2) Meets the puts under way: one that is not seen filling below sees the new
/// generation. (3) Finishes what waits or is held, dooms what one party has. (4) Moves the
/// watermark.
pub(crate) fn assign<S: Space + ?Sized>(space: &S, start: u64, pin: &S::Pin) -> Generation {
    let words = space.words();
    let stride = space.stride();
    let first = loop {
        let watermark = words.watermark.load();
        let end_word = words.end.load(Ordering::Acquire);
        let generation_word = words.generation.word.load(Ordering::Acquire);
        let end = expand(end_word, watermark);
        let generation = expand(generation_word & !CLOSED, watermark);
        // Compared as distances: an old generation may lie far below, on 32 bits half a range.
        let used = if distance(generation, end) > 0 { end } else { generation };
        let used = if distance(used, watermark) > 0 { watermark } else { used };
        let tail_word = words.tail.load(Ordering::Acquire);
        let used = if words.numbered { used.max(Pos::from(tail_word)) } else { used };
        let first = if weak(Control::AssignNextLap) {
            used.next_multiple_of(stride)
        } else {
            (used + stride).next_multiple_of(stride)
        };
        let acquire = Ordering::Acquire;
        let to = first as Word;
        let begun =
            words.generation.word.compare_exchange(generation_word, to, Ordering::AcqRel, acquire);
        if begun.is_err() {
            continue;
        }
        if weak(Control::AssignEndByMax) {
            raise(&words.end, first, watermark);
            break first;
        }
        // From the value read before: whoever has raised the end meanwhile, to a far position of
        // an older generation perhaps, makes this fail, and the next round starts beyond that.
        if words.end.compare_exchange(end_word, to, Ordering::AcqRel, acquire).is_err() {
            continue;
        }
        // The same for the tail.
        if !words.numbered
            || words.tail.compare_exchange(tail_word, to, Ordering::AcqRel, acquire).is_ok()
        {
            break first;
        }
    };
    // Those of older assignments learn that those have ended.
    #[cfg(feature = "async")]
    wake_ended(space);
    space.begin(first, pin);
    if !weak(Control::AdmittedRelaxed) {
        words.flow.meet_admitted();
    }
    sweep_out(space, first, pin, &mut |_, value| drop(value), &mut || {});
    space.slide(pin);
    let generation = Generation { base: start, first };
    let part = Part { space, generation };
    // A new idle period: the next message to become ready says so. Exchanged from a value read
    // before the generation was looked at, so that a later assignment's word stays.
    loop {
        let seen = words.signal.load(Ordering::Acquire);
        let to = generation.signal() | IDLE;
        let (order, acquire) = (Ordering::AcqRel, Ordering::Acquire);
        if part.current().is_err()
            || words.signal.compare_exchange(seen, to, order, acquire).is_ok()
        {
            return generation;
        }
    }
}

/// An assignment has ended, or was closed: all who wait learn that, also for the budget.
#[cfg(feature = "async")]
fn wake_ended<S: Space + ?Sized>(space: &S) {
    space.words().waiters.wake_all();
    if let Some(waiters) = space.meter().waiters() {
        waiters.wake_all();
    }
}

/// Takes every slot from positions below `to`, then moves the watermark there. Says what was
/// dropped and how many slots leases have still. Ends also when `dropped` panics.
pub(super) fn sweep_out<S: Space + ?Sized>(
    space: &S,
    to: Pos,
    pin: &S::Pin,
    dropped: &mut dyn FnMut(u64, S::Value),
    lent: &mut dyn FnMut(),
) {
    struct Rest<'a, S: Space + ?Sized>(&'a S, Pos, &'a S::Pin);
    impl<S: Space + ?Sized> Drop for Rest<'_, S> {
        fn drop(&mut self) {
            sweep_out(self.0, self.1, self.2, &mut |_, value| drop(value), &mut || {});
        }
    }
    space.sweep(to, pin, |slot, lap| match slot.evict(lap) {
        Eviction::Message(offset, Taking { value, bytes, .. }) => {
            count_out(space, 1, u64::from(bytes));
            // A later assignment may wait for this slot; the drop may be slow.
            #[cfg(feature = "async")]
            space.words().waiters.wake_any(ROOM);
            let rest = Rest(space, to, pin);
            dropped(offset, value);
            core::mem::forget(rest);
            Evicted::Freed
        }
        Eviction::Doomed { lent: true } => {
            lent();
            Evicted::Lent
        }
        Eviction::Doomed { lent: false } | Eviction::Nothing => Evicted::Freed,
    });
    space.words().flow.finish(0, 0);
    move_watermark(space, space.words().watermark.load(), to);
    #[cfg(feature = "async")]
    space.words().waiters.wake_all();
}

impl<S: Space + ?Sized> Part<'_, S> {
    /// No more puts. False when it was closed already.
    pub(crate) fn close(self) -> Result<bool, Stale> {
        let first = self.generation.first as Word;
        let closed = self.words().generation.word.compare_exchange(
            first,
            first | CLOSED,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        let open = match closed {
            Ok(_) => true,
            Err(seen) if seen == first | CLOSED => false,
            Err(_) => return Err(Stale),
        };
        #[cfg(feature = "async")]
        wake_ended(self.space);
        Ok(open)
    }

    /// Closed, and nothing unfinished: nothing will ever be ready again.
    pub(crate) fn is_over(self, pin: &S::Pin) -> Result<bool, Stale> {
        let words = self.words();
        let closed = words.generation.word.load(Ordering::Acquire)
            == (self.generation.first as Word) | CLOSED;
        if !closed {
            return self.current().map(|()| false);
        }
        words.flow.finish(0, 0);
        let watermark = self.space.slide(pin);
        // Not only when the slide has come to the end: with the caller's seal it may stand at a gap
        // that nobody will fill any more.
        let to = words.end(watermark).min(self.space.bound(watermark));
        let left = self.space.scan(watermark, to, pin, |place| {
            let state = place.slot.state();
            match state.lap() == place.lap && state.phase() != Phase::Empty {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        self.current()?;
        Ok(left.is_continue())
    }
}
