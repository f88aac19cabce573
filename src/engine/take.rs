//! Take: READY -> LENT, lowest first. Giving back. Revoke. The order rules.
//!
//! A take looks from the cursor upwards. It claims a slot beyond others that are not finished (a
//! gap, a put under way, a message that somebody holds) only when a second look over those, made
//! *after* the slot was seen ready, found none ready: in-order puts become ready in order, so a
//! lower one that was ready before is found then. When the second look finds one, that one is
//! the candidate, and what lies below it is looked at again.
//!
//! The cursor is moved by one exchange from the word read before the scan, never past a slot that
//! is being filled. Whatever becomes ready below it (a rollback, a late put) lowers it and raises
//! its version *after* that, so a scan that was too early cannot move it back up.

use core::ops::ControlFlow;

use crate::control::{Branch, Control, hit, weak};
use crate::engine::{Elsewhere, IDLE, LOOKING, Part, Space};
use crate::error::{RevokeError, Stale, TakeError};
use crate::position::{Mark, Pos};
use crate::slot::{Chain, Kept, Phase, Place, State, Unfinished};
use crate::sync::{Ordering, UNWINDS};

/// Messages that a take has claimed; given back when dropped.
pub(crate) struct Claimed<'a, 'p, S: Space + ?Sized> {
    part: Part<'a, S>,
    pin: &'p S::Pin,
    pub(crate) chain: Chain<S::Value>,
}

impl<S: Space + ?Sized> Claimed<'_, '_, S> {
    /// The claim as it is, without its guard.
    pub(crate) fn into_chain(mut self) -> Chain<S::Value> {
        core::mem::replace(&mut self.chain, Chain::new())
    }
}

impl<S: Space + ?Sized> Drop for Claimed<'_, '_, S> {
    fn drop(&mut self) {
        // Not empty only when user code panicked.
        if UNWINDS && self.chain.len() > 0 {
            // SAFETY: the chain's slots are LENT to this claim, and the pin keeps them alive.
            let _ = unsafe { self.part.give_back(&mut self.chain, self.pin) };
        }
    }
}

/// How one pass over the slots ended.
enum Pass {
    /// As many as asked for, or the end.
    Over,
    /// The cursor was lowered before the first claim.
    Restart,
}

/// The state of one take. Small, and never pointed to from outside the pass: it stays in registers.
struct Hunt<'a, 'p, S: Space + ?Sized> {
    part: Part<'a, S>,
    pin: &'p S::Pin,
    /// What was claimed. Nothing in a take is user code that could panic.
    chain: Chain<S::Value>,
    wanted: usize,
    now: Option<u64>,
    /// The cursor's word read before the scan; none in the final look.
    mark: Option<Mark>,
    /// Everything from here to the slot looked at was passed over since the last claim.
    gap: Pos,
    /// Something in the gap may become ready.
    open: bool,
    /// The lowest slot seen being filled: the cursor must not pass it.
    barrier: Barrier,
    /// Where the scan has got to.
    at: Pos,
}

/// The lowest slot seen being filled.
#[derive(Clone, Copy)]
struct Barrier(Option<Pos>);

impl Barrier {
    /// The word, if this slot has a message ready; otherwise whether one may become ready there.
    #[cfg_attr(target_pointer_width = "64", inline(always))]
    fn ready<T>(&mut self, place: &Place<'_, T>) -> Result<State, bool> {
        let state = place.slot.state();
        if state.lap() == place.lap {
            match state.phase() {
                Phase::Ready => return Ok(state),
                Phase::Filling if !weak(Control::CursorPassesFilling) => {
                    self.0 = Some(self.0.map_or(place.pos, |lowest| lowest.min(place.pos)));
                }
                _ => {}
            }
        }
        Err(!state.is_done(place.lap))
    }
}

impl<'a, 'p, S: Space + ?Sized> Hunt<'a, 'p, S>
where
    'a: 'p,
    S::Value: 'p,
{
    #[inline(always)]
    fn new(part: Part<'a, S>, wanted: usize, now: Option<u64>, pin: &'p S::Pin) -> Self {
        let (chain, barrier) = (Chain::new(), Barrier(None));
        Self { part, pin, chain, wanted, now, mark: None, gap: 0, open: false, barrier, at: 0 }
    }

    #[cfg_attr(target_pointer_width = "64", inline(always))]
    fn pass(&mut self, from: Pos, to: Pos) -> Pass {
        let (part, pin) = (self.part, self.pin);
        (self.gap, self.at, self.open) = (from, from, false);
        while self.at < to && self.chain.len() < self.wanted {
            let flow = part.space.scan(self.at, to, pin, |place| self.look(place));
            match flow {
                ControlFlow::Continue(()) => self.at = to,
                ControlFlow::Break(Pass::Restart) => return Pass::Restart,
                ControlFlow::Break(Pass::Over) => {}
            }
        }
        Pass::Over
    }

    #[inline(always)]
    fn look(&mut self, place: Place<'p, S::Value>) -> ControlFlow<Pass> {
        // What the space has no slot for is a gap too.
        self.open |= place.pos != self.at;
        self.at = place.pos + 1;
        let ready = match self.barrier.ready(&place) {
            Ok(ready) => ready,
            Err(open) => {
                self.open |= open;
                return ControlFlow::Continue(());
            }
        };
        let (place, ready) = if self.open && !weak(Control::NoSecondLook) {
            let (part, pin, gap) = (self.part, self.pin, self.gap);
            let (place, ready, barrier) = part.look_again(gap, place, ready, self.barrier, pin);
            self.barrier = barrier;
            (place, ready)
        } else {
            (place, ready)
        };
        if let Some(mark) = self.mark.filter(|_| self.chain.len() == 0) {
            // Read after the slot was seen ready: what became ready before it has lowered the
            // cursor by now.
            let cursor = self.part.words().cursor.load(Ordering::Acquire);
            if cursor != mark.0 {
                hit(Branch::TakeRestarted);
                return ControlFlow::Break(Pass::Restart);
            }
        }
        let back = place.pos + 1 != self.at;
        self.at = place.pos + 1;
        if place.slot.claim(ready, self.now) {
            // SAFETY: just claimed, and the pin keeps it alive.
            unsafe { self.chain.push(place.slot) };
            (self.gap, self.open) = (self.at, false);
        } else {
            self.open = true;
        }
        if back || self.chain.len() == self.wanted {
            ControlFlow::Break(Pass::Over)
        } else {
            ControlFlow::Continue(())
        }
    }
}

/// What giving messages back came to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GivenBack {
    /// Messages that were doomed.
    pub(crate) gone: usize,
    /// The window was idle, and this ended that.
    pub(crate) dispatch: bool,
}

/// Messages being given back; the rest follow also when the drop of a doomed one panics.
struct Returning<'a, 'c, S: Space + ?Sized> {
    part: Part<'a, S>,
    chain: &'c mut Chain<S::Value>,
    pin: &'c S::Pin,
    lowest: Option<Pos>,
    back: GivenBack,
}

impl<S: Space + ?Sized> Returning<'_, '_, S> {
    fn run(&mut self) {
        // SAFETY: the slots are LENT to the caller of `give_back`, or doomed since.
        while let Some(slot) = unsafe { self.chain.pop() } {
            // SAFETY: as above; read before it is given back.
            let pos = self.part.space.position_of(slot);
            // SAFETY: as above.
            if unsafe { slot.give_back() } {
                self.lowest = Some(self.lowest.map_or(pos, |lowest| lowest.min(pos)));
            } else {
                self.back.gone += 1;
                // SAFETY: doomed, and still the caller's.
                let taking = unsafe { self.part.finish_lent(slot, self.pin) };
                self.part.settle(1, taking.bytes, self.pin);
                drop(taking.value);
            }
        }
        if let Some(lowest) = self.lowest.take() {
            self.back.dispatch |= self.part.returned(lowest);
        }
    }
}

impl<S: Space + ?Sized> Drop for Returning<'_, '_, S> {
    fn drop(&mut self) {
        // Something is left only when user code panicked.
        if UNWINDS {
            self.run();
        }
    }
}

impl<'a, S: Space + ?Sized> Part<'a, S> {
    /// Claims the lowest ready messages, at most `wanted`, at least one; given back if the caller
    /// panics.
    pub(crate) fn take<'p>(
        self,
        wanted: usize,
        now: Option<u64>,
        pin: &'p S::Pin,
    ) -> Result<Claimed<'a, 'p, S>, TakeError>
    where
        'a: 'p,
    {
        let chain = self.claim(wanted, now, pin)?;
        Ok(Claimed { part: self, pin, chain })
    }

    /// Claims the lowest ready messages, at most `wanted`, at least one.
    #[inline(always)]
    pub(crate) fn claim(
        self,
        wanted: usize,
        now: Option<u64>,
        pin: &S::Pin,
    ) -> Result<Chain<S::Value>, TakeError> {
        let words = self.words();
        let stale = |Stale| TakeError::Stale;
        if wanted == 0 {
            self.current().map_err(stale)?;
            return Err(TakeError::Empty);
        }
        let mut hunt = Hunt::new(self, wanted, now, pin);
        loop {
            let (watermark, bound) = self.view_closed().map_err(stale)?;
            let mark = Mark(words.cursor.load(Ordering::Acquire));
            let from = mark.position(S::CURSOR_BITS, watermark, self.space.reach());
            let to = words.end(watermark).min(bound);
            hunt.mark = Some(mark);
            hunt.barrier = Barrier(None);
            if let Pass::Restart = hunt.pass(from, to) {
                continue;
            }
            let at = hunt.barrier.0.map_or(hunt.at, |barrier| barrier.min(hunt.at));
            if at > from {
                // Failing is harmless: the next take looks at more.
                let _ = words.cursor.compare_exchange(
                    mark.0,
                    mark.moved(S::CURSOR_BITS, at).0,
                    Ordering::AcqRel,
                    Ordering::Relaxed,
                );
            }
            break;
        }
        let fewer = hunt.chain.len() < wanted && weak(Control::RescanWhenFewer);
        if hunt.chain.len() > 0 && !fewer {
            return Ok(hunt.chain);
        }
        self.look_once_more(hunt.chain, wanted, now, pin)
    }

    /// Looks over the gap below a ready slot until the last look found nothing ready in it.
    #[cold]
    #[inline(never)]
    fn look_again<'p>(
        self,
        gap: Pos,
        place: Place<'p, S::Value>,
        ready: State,
        mut barrier: Barrier,
        pin: &'p S::Pin,
    ) -> (Place<'p, S::Value>, State, Barrier)
    where
        'a: 'p,
    {
        let (mut place, mut ready) = (place, ready);
        loop {
            let lower = self.space.scan(gap, place.pos, pin, |below| match barrier.ready(&below) {
                Ok(state) => ControlFlow::Break((below, state)),
                Err(_) => ControlFlow::Continue(()),
            });
            match lower {
                ControlFlow::Continue(()) => return (place, ready, barrier),
                ControlFlow::Break(lower) => {
                    hit(Branch::SecondLook);
                    (place, ready) = lower;
                    if weak(Control::OneSecondLook) {
                        return (place, ready, barrier);
                    }
                }
            }
        }
    }

    /// The last look of a take about to return nothing: what a wrapped version or a rollback
    /// stopped half-way hides is found here. Says so first, and puts the idle mark only when
    /// nothing has become ready since: of this take and whoever makes something ready beside it,
    /// exactly one knows that there is something to do.
    #[cold]
    #[inline(never)]
    fn look_once_more(
        self,
        claimed: Chain<S::Value>,
        wanted: usize,
        now: Option<u64>,
        pin: &S::Pin,
    ) -> Result<Chain<S::Value>, TakeError> {
        let words = self.words();
        let stale = |Stale| TakeError::Stale;
        let mut hunt = Hunt::new(self, wanted, now, pin);
        hunt.chain = claimed;
        while !weak(Control::NoFinalRescan) {
            let _ = self.signal(0, LOOKING);
            let (watermark, bound) = self.view_closed().map_err(stale)?;
            let from = if S::LOOKS_FROM_WATERMARK {
                watermark
            } else {
                let mark = Mark(words.cursor.load(Ordering::Acquire));
                mark.position(S::CURSOR_BITS, watermark, self.space.reach())
            };
            let _ = hunt.pass(from, words.end(watermark).min(bound));
            if hunt.chain.len() > 0 {
                hit(Branch::FinalRescan);
                let _ = self.signal(0, Self::BUSY);
                // The cursor is beyond what this look found: there may be more.
                self.lower_cursor(hunt.at);
                return Ok(hunt.chain);
            }
            // Whoever made something ready meanwhile has claimed the mark of this look, and told
            // nobody: it is for this take to find it.
            if self.signal(LOOKING, IDLE).is_some() {
                hit(Branch::WentIdle);
                break;
            }
            hit(Branch::LookedAgain);
        }
        if self.is_over(pin).map_err(stale)? {
            Err(TakeError::Closed)
        } else {
            Err(TakeError::Empty)
        }
    }

    /// Gives messages back: LENT -> READY, then lowers the cursor, then announces. Those that
    /// were doomed are finished here; how many.
    ///
    /// # Safety
    /// The chain's slots are LENT to the caller (or doomed since), and `pin` or that keeps them
    /// alive.
    pub(crate) unsafe fn give_back(
        self,
        chain: &mut Chain<S::Value>,
        pin: &S::Pin,
    ) -> Result<GivenBack, Stale> {
        if weak(Control::LoweredBeforeReady) {
            // SAFETY: the caller's slots.
            if let Some(slot) = unsafe { chain.links() }.next() {
                // SAFETY: as above.
                self.lower_cursor(self.space.position_of(slot));
            }
        }
        let mut returning =
            Returning { part: self, chain, pin, lowest: None, back: GivenBack::default() };
        returning.run();
        let back = returning.back;
        self.current().map(|()| back)
    }

    /// Messages from `lowest` on are ready again; whether this ended an idle period.
    pub(crate) fn returned(self, lowest: Pos) -> bool {
        if !weak(Control::LoweredBeforeReady) {
            self.lower_cursor(lowest);
        }
        self.announce()
    }

    /// HELD -> LENT of the next attempt.
    pub(crate) fn revoke<'p>(
        self,
        offset: u64,
        now: Option<u64>,
        pin: &'p S::Pin,
    ) -> Result<Claimed<'a, 'p, S>, RevokeError>
    where
        'a: 'p,
    {
        let not = |unfinished| match unfinished {
            Unfinished::Passed => RevokeError::Passed,
            Unfinished::Held => RevokeError::Held,
            Unfinished::Unknown => RevokeError::Unknown,
            // An ended assignment's message is in the way; whether this one has ended is looked at
            // below.
            Unfinished::Doomed => RevokeError::Unknown,
        };
        let refused = match self.locate(offset, pin) {
            Ok(place) => match place.slot.revoke(place.lap) {
                Ok(()) => {
                    place.slot.stamp(now);
                    if weak(Control::RevokeShared) {
                        // SAFETY: just made LENT.
                        let _ = unsafe { place.slot.hold() };
                    }
                    let mut chain = Chain::new();
                    // SAFETY: just made LENT, and the pin keeps it alive.
                    unsafe { chain.push(place.slot) };
                    return Ok(Claimed { part: self, pin, chain });
                }
                Err(Kept::Waiting) => RevokeError::Waiting,
                Err(Kept::Exhausted) => RevokeError::Exhausted,
                Err(Kept::Not(unfinished)) => not(unfinished),
            },
            Err(Elsewhere::Passed) => RevokeError::Passed,
            Err(Elsewhere::Nowhere) => RevokeError::Unknown,
            Err(Elsewhere::Stale) => RevokeError::Stale,
        };
        self.current().map_err(|Stale| RevokeError::Stale)?;
        Err(refused)
    }

    /// Stamps a held message anew.
    pub(crate) fn touch(self, offset: u64, now: u64, pin: &S::Pin) -> Result<(), RevokeError> {
        let refused = match self.locate(offset, pin) {
            Ok(place) => match place.slot.held_in(place.lap) {
                // Somebody may take it in between; then its younger holder counts as touched.
                Ok(()) => {
                    place.slot.stamp(Some(now));
                    return Ok(());
                }
                Err(Kept::Waiting) => RevokeError::Waiting,
                Err(Kept::Exhausted) => RevokeError::Exhausted,
                Err(Kept::Not(Unfinished::Passed)) => RevokeError::Passed,
                Err(Kept::Not(Unfinished::Held)) => RevokeError::Held,
                Err(Kept::Not(Unfinished::Unknown | Unfinished::Doomed)) => RevokeError::Unknown,
            },
            Err(Elsewhere::Passed) => RevokeError::Passed,
            Err(Elsewhere::Nowhere) => RevokeError::Unknown,
            Err(Elsewhere::Stale) => RevokeError::Stale,
        };
        self.current().map_err(|Stale| RevokeError::Stale)?;
        Err(refused)
    }
}
