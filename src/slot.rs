//! One slot: the only place where a message changes hands.
//!
//! # The state word
//!
//! ```text
//!  64 bits:  | lap: 50 bits | attempt: 11 bits | phase: 3 bits |
//!  32 bits:  | lap: 20 bits | attempt:  9 bits | phase: 3 bits |
//! ```
//!
//! *Lap*: which of the offsets that share this slot; `Empty` of lap L accepts an offset of lap L
//! or later. So a finished slot needs no reset, and a finished and a sealed slot are the same
//! word. *Attempt*: how often the message was revoked; a shared lease compares the whole word and
//! so knows that its message was taken away. It saturates, and never wraps.
//!
//! # All transitions, and who may make them
//!
//! ```text
//!            fill                publish               claim
//!   EMPTY ----------> FILLING -------------> READY <-----------> LENT <----------+
//!   ^ ^ |   (put)        |       (put)       | ^    give_back    | | ^           |
//!   | | +-- raise        | unfill            | |    (lease)       | | | revoke    |
//!   | |   (seal, jump)   |  (stale put)      | |                  | | | (a + 1)   |
//!   | +------------------+                   | +---- return ---+  | | |           |
//!   |                                        |   (exact word)  |  | v |           |
//!   |                                        |                 +--HELD           |
//!   |   finish_lent (lease)                  |                      |            |
//!   +--------------------------------------- | -------- LENT -------|------------+
//!   |   settle (its owner)                   v                      v
//!   +------------------------------------ FINISHING <---------------+
//!   |                            remove, skip, assign: READY or HELD
//!   |                            commit of a shared lease: HELD, exact word
//!   |   by whoever was filling or lent
//!   +------------------------------------ DOOMED <--- FILLING, LENT (assign)
//! ```
//!
//! A later assign that finds a slot doomed raises its lap, so that the release leaves it for the
//! new assignment's; one that is finishing it leaves to its owner.
//!
//! `Filling`, `Lent`, `Finishing` and `Doomed` belong to one party: nobody else touches the
//! value. In `Held` nobody does. Every transition is one compare-exchange (one swap, where its
//! owner alone may leave the phase and leaves both outcomes the same way), so there is exactly
//! one winner; only the winner changes counters.
//!
//! Orderings: every transition is `AcqRel`. Acquire, to have what the party before did to the
//! value; Release, to hand it on.
//!
//! # Horizon
//!
//! Laps are compared by their signed difference. A party that holds an old word is misled only
//! when the slot goes on by exactly 2^50 (2^20) laps meanwhile, and an empty slot must not lag
//! by half of that: jumps are limited to an eighth ([`Lap::FAR`]), and assign raises every slot it
//! sees, those that it finishes and those that it dooms too, however long they stay doomed. What
//! it cannot raise is a slot that a call is finishing or releasing at that moment: that may lag by
//! one assignment more for each that begins during the one call, and two are within the half.
//! With 64 slots of 32 bits all this is 2^26 messages during one stopped call.

use core::mem::MaybeUninit;
use core::ptr::{self, NonNull};

use crate::control::{Branch, Control, hit, weak};
use crate::position::Pos;
use crate::sync::{AtomicU32, AtomicWord, Cell, NARROW, Ordering, Word, const_unless_loom};

const PHASE_BITS: u32 = 3;
const ATTEMPT_BITS: u32 = if NARROW { 9 } else { 11 };
const LAP_SHIFT: u32 = PHASE_BITS + ATTEMPT_BITS;
const LAP_BITS: u32 = Word::BITS - LAP_SHIFT;

/// Which of the offsets that share a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lap(Word);

impl Lap {
    /// How many bits of the lap a word has.
    pub(crate) const BITS: u32 = LAP_BITS;

    /// No slot may be raised by more laps than this at once.
    pub(crate) const FAR: u64 = 1 << (LAP_BITS - 3);

    #[inline(always)]
    pub(crate) const fn new(lap: u64) -> Self {
        Self(lap as Word & (Word::MAX >> LAP_SHIFT))
    }

    /// The number, as given to [`Lap::new`] but for wrapping.
    #[cfg_attr(not(all(feature = "alloc", target_has_atomic = "ptr")), allow(dead_code))] // for the skip list
    #[inline(always)]
    pub(crate) const fn number(self) -> u64 {
        self.0 as u64
    }

    #[inline(always)]
    fn next(self) -> Self {
        Self::new(self.0 as u64 + 1)
    }

    /// The lap before: a release from there leaves the slot for this one.
    fn before(self) -> Self {
        Self::new((self.0 as u64).wrapping_sub(1))
    }

    /// Is this lap later than `other`?
    #[inline(always)]
    pub(crate) fn is_after(self, other: Self) -> bool {
        let ahead = self.0.wrapping_sub(other.0) & (Word::MAX >> LAP_SHIFT);
        ahead != 0 && ahead < 1 << (LAP_BITS - 1)
    }
}

/// What a slot is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Phase {
    /// Accepts an offset of its lap or later.
    Empty = 0,
    /// A put is storing its message.
    Filling = 1,
    /// Waiting to be taken.
    Ready = 2,
    /// Lent in place by a lease, or being revoked.
    Lent = 3,
    /// In a shared lease, or detached.
    Held = 4,
    /// Somebody won it and is moving the value out.
    Finishing = 5,
    /// Its assignment ended while one party had it; that party frees it.
    Doomed = 6,
}

/// A state word.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct State(Word);

impl State {
    #[inline(always)]
    const fn new(lap: Lap, attempt: Word, phase: Phase) -> Self {
        Self(lap.0 << LAP_SHIFT | attempt << PHASE_BITS | phase as Word)
    }

    #[inline(always)]
    pub(crate) fn phase(self) -> Phase {
        match self.0 & 7 {
            0 => Phase::Empty,
            1 => Phase::Filling,
            2 => Phase::Ready,
            3 => Phase::Lent,
            4 => Phase::Held,
            5 => Phase::Finishing,
            _ => Phase::Doomed,
        }
    }

    #[inline(always)]
    pub(crate) fn lap(self) -> Lap {
        Lap(self.0 >> LAP_SHIFT)
    }

    #[inline(always)]
    fn attempt(self) -> Word {
        self.0 >> PHASE_BITS & ((1 << ATTEMPT_BITS) - 1)
    }

    #[inline(always)]
    fn with(self, phase: Phase) -> Self {
        Self(self.0 & !7 | phase as Word)
    }

    /// Is the message of `lap` held, or where is it instead?
    fn held_in(self, lap: Lap) -> Result<(), Kept> {
        if self.phase() == Phase::Doomed {
            return Err(Kept::Not(Unfinished::Doomed));
        } else if self.lap().is_after(lap) {
            return Err(Kept::Not(Unfinished::Passed));
        } else if self.lap() != lap {
            return Err(Kept::Not(Unfinished::Unknown));
        }
        match self.phase() {
            Phase::Held => Ok(()),
            Phase::Ready => Err(Kept::Waiting),
            Phase::Empty | Phase::Filling => Err(Kept::Not(Unfinished::Unknown)),
            Phase::Lent => Err(Kept::Not(Unfinished::Held)),
            Phase::Finishing | Phase::Doomed => Err(Kept::Not(Unfinished::Passed)),
        }
    }

    /// Does the slot accept a put of `lap`, or why not?
    #[inline(always)]
    pub(crate) fn accepts(self, lap: Lap) -> Result<(), Taken> {
        if self.phase() == Phase::Empty {
            if self.lap().is_after(lap) && !weak(Control::PutIgnoresLap) {
                hit(Branch::PutPassed);
                return Err(Taken::Passed);
            }
            Ok(())
        } else if lap.is_after(self.lap()) || self.is_doomed() && weak(Control::DoomedIsBusy) {
            Err(Taken::Busy)
        } else if self.lap() == lap && !self.is_doomed() {
            Err(Taken::Duplicate)
        } else {
            // Doomed in this lap: by a floor, before the watermark goes there.
            Err(Taken::Passed)
        }
    }

    #[inline(always)]
    fn is_doomed(self) -> bool {
        self.phase() == Phase::Doomed
    }

    /// Does the word say that the offset of `lap` is finished or sealed?
    #[inline(always)]
    pub(crate) fn is_done(self, lap: Lap) -> bool {
        self.lap().is_after(lap) && !self.is_doomed()
    }
}

/// Why a slot does not accept a put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// The offset is waiting or held.
    Duplicate,
    /// The offset is finished, sealed or given up.
    Passed,
    /// The slot still has a message of an earlier lap, or of an ended assignment.
    Busy,
}

/// Why a message cannot be finished by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unfinished {
    /// Finished or sealed before.
    Passed,
    /// Lent, or being revoked.
    Held,
    /// Not admitted.
    Unknown,
    /// Its assignment ended.
    Doomed,
}

/// Why a message cannot be revoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// Not in a shared lease and not detached.
    Not(Unfinished),
    /// Waiting: nobody has it.
    Waiting,
    /// Its attempts are used up.
    Exhausted,
}

/// What assign made of a slot.
pub(crate) enum Eviction<T> {
    /// The message of this offset is finished.
    Message(u64, Taking<T>),
    /// One party has it still, and will release it.
    Doomed {
        /// A lending lease has it; otherwise a put that is running.
        lent: bool,
    },
    /// There was nothing to do.
    Nothing,
}

/// A message taken out of its slot.
pub(crate) struct Taking<T> {
    pub(crate) value: T,
    pub(crate) bytes: u32,
    /// Its assignment had ended.
    pub(crate) doomed: bool,
}

/// A slot: the state word and what it guards. In the order in which calls need it: what every
/// one does is in the first bytes, mostly on one cache line.
#[repr(C)]
pub struct Slot<T> {
    state: AtomicWord,
    /// Times taken. Written only by the party that has the message.
    deliveries: AtomicU32,
    /// Bytes given at put. Written only by the party that has the message.
    bytes: AtomicU32,
    payload: Cell<Payload<T>>,
    /// Tick of the last take, or [`NEVER`]. Relaxed: a hint for `stalled`, never a decision.
    since: AtomicWord,
    /// The message's offset in the log. Written only while FILLING; others may read it
    /// ([`Slot::offset_if`]), so it is released and acquired like the state.
    offset: Offset,
}

/// What only the party that has the slot touches.
#[repr(C)]
struct Payload<T> {
    value: MaybeUninit<T>,
    next: *const Slot<T>,
}

/// The word that means: not stamped. Ticks are kept inverted, so that it is zero: a window that
/// begins with nothing but zeros needs no image in flash.
const NEVER: Word = 0;

// SAFETY: a slot hands its value from thread to thread (so `T: Send`), always to one party at a
// time; `&T` leaves it only through a lending lease, which is itself `Sync` only if `T` is.
unsafe impl<T: Send> Sync for Slot<T> {}
// SAFETY: as above; the pointer in `Payload` is a link that only the slot's party follows.
unsafe impl<T: Send> Send for Slot<T> {}

impl<T> Slot<T> {
    const_unless_loom! {
        /// An empty slot that accepts `lap` or later.
        pub(crate) const fn new(lap: Lap) -> Self {
            Self {
                state: AtomicWord::new(State::new(lap, 0, Phase::Empty).0),
                deliveries: AtomicU32::new(0),
                bytes: AtomicU32::new(0),
                payload: Cell::new(Payload {
                    value: MaybeUninit::uninit(),
                    next: ptr::null(),
                }),
                since: AtomicWord::new(NEVER),
                offset: Offset::new(),
            }
        }
    }

    /// The word as it is now; Acquire, so that what its writer did is seen.
    #[inline(always)]
    pub(crate) fn state(&self) -> State {
        State(self.state.load(Ordering::Acquire))
    }

    #[inline(always)]
    fn exchange(&self, from: State, to: State) -> Result<(), State> {
        match self.state.compare_exchange(from.0, to.0, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Ok(()),
            Err(seen) => Err(State(seen)),
        }
    }

    // --- put ---

    /// EMPTY -> FILLING, for an offset of `lap`.
    #[inline(always)]
    pub(crate) fn fill(&self, lap: Lap) -> Result<(), Taken> {
        let mut seen = self.state();
        loop {
            seen.accepts(lap)?;
            let filling = State::new(lap, 0, Phase::Filling);
            if weak(Control::FillWithoutCas) {
                self.state.store(filling.0, Ordering::Release);
                return Ok(());
            }
            match self.exchange(seen, filling) {
                Ok(()) => return Ok(()),
                Err(other) => seen = other,
            }
        }
    }

    /// Stores a message.
    ///
    /// # Safety
    /// The caller made this slot FILLING and has not left that phase.
    #[inline(always)]
    pub(crate) unsafe fn write(&self, offset: u64, bytes: u32, value: T) {
        self.since.store(NEVER, Ordering::Relaxed);
        self.deliveries.store(0, Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
        self.offset.store(offset);
        self.payload.with_mut(|payload| {
            // SAFETY: FILLING belongs to the caller alone.
            unsafe {
                (*payload).next = ptr::null();
                (*payload).value.write(value);
            }
        });
    }

    /// FILLING -> READY; false when the slot was doomed meanwhile (the caller still has it).
    ///
    /// # Safety
    /// The caller made this slot FILLING and stored a message.
    #[inline(always)]
    pub(crate) unsafe fn publish(&self, lap: Lap) -> bool {
        let filling = State::new(lap, 0, Phase::Filling);
        if weak(Control::LeftByStore) {
            self.state.store(filling.with(Phase::Ready).0, Ordering::Release);
            return true;
        }
        if weak(Control::ReadyRelaxed) {
            let ready = filling.with(Phase::Ready).0;
            let relaxed = Ordering::Relaxed;
            return self.state.compare_exchange(filling.0, ready, relaxed, relaxed).is_ok();
        }
        self.exchange(filling, filling.with(Phase::Ready)).is_ok()
    }

    /// FILLING -> EMPTY of the same lap, the message taken back; or, doomed, of the next lap.
    ///
    /// # Safety
    /// The caller made this slot FILLING and stored a message.
    #[inline]
    pub(crate) unsafe fn unfill(&self, lap: Lap) -> Taking<T> {
        // SAFETY: FILLING and DOOMED belong to the caller alone.
        let mut taking = unsafe { self.move_out() };
        let filling = State::new(lap, 0, Phase::Filling);
        taking.doomed = self.exchange(filling, filling.with(Phase::Empty)).is_err();
        if taking.doomed {
            hit(Branch::DoomedReleased);
            self.release();
        }
        taking
    }

    /// DOOMED -> EMPTY of the next lap, which is the one that the last assign asked for.
    fn release(&self) {
        let mut seen = self.state();
        loop {
            match self.exchange(seen, State::new(seen.lap().next(), 0, Phase::Empty)) {
                Ok(()) => return,
                // Doomed by one more assign.
                Err(other) => seen = other,
            }
        }
    }

    // --- take ---

    /// READY -> LENT.
    #[inline(always)]
    pub(crate) fn claim(&self, ready: State, now: Option<u64>) -> bool {
        debug_assert!(ready.phase() == Phase::Ready);
        if weak(Control::ClaimWithoutCas) {
            self.state.store(ready.with(Phase::Lent).0, Ordering::Release);
        } else if self.exchange(ready, ready.with(Phase::Lent)).is_err() {
            return false;
        }
        let deliveries = self.deliveries.load(Ordering::Relaxed);
        self.deliveries.store(deliveries.saturating_add(1), Ordering::Relaxed);
        self.stamp(now);
        true
    }

    /// Writes when the message was last taken or touched.
    #[inline(always)]
    pub(crate) fn stamp(&self, now: Option<u64>) {
        let tick = match now {
            None => NEVER,
            // The tick that would read as "not stamped" counts as the one after it.
            Some(now) => match !(now as Word) {
                NEVER => !0,
                tick => tick,
            },
        };
        self.since.store(tick, Ordering::Relaxed);
    }

    /// The tick of the last take, if it was stamped.
    #[inline]
    pub(crate) fn since(&self) -> Option<Word> {
        match self.since.load(Ordering::Relaxed) {
            NEVER => None,
            tick => Some(!tick),
        }
    }

    /// Times taken.
    #[inline]
    pub(crate) fn deliveries(&self) -> u32 {
        self.deliveries.load(Ordering::Relaxed)
    }

    // --- the party that has the message: FILLING or LENT, or since DOOMED ---

    /// Links this slot before `next` in its party's list.
    ///
    /// # Safety
    /// The caller has this slot.
    #[inline(always)]
    pub(crate) unsafe fn set_next(&self, next: *const Slot<T>) {
        // SAFETY: the caller's alone.
        self.payload.with_mut(|payload| unsafe { (*payload).next = next });
    }

    /// The next slot in the party's list.
    ///
    /// # Safety
    /// The caller has this slot.
    #[inline(always)]
    pub(crate) unsafe fn next(&self) -> *const Slot<T> {
        // SAFETY: the caller's alone.
        self.payload.with(|payload| unsafe { (*payload).next })
    }

    /// The offset of the message.
    ///
    /// # Safety
    /// The caller has this slot.
    #[inline(always)]
    pub(crate) unsafe fn offset(&self) -> u64 {
        self.offset.load()
    }

    /// The offset of the message that is or was here in `lap`, for anybody; none when it is being
    /// stored, or the slot has gone on.
    #[inline]
    pub(crate) fn offset_if(&self, lap: Lap) -> Option<u64> {
        let here = |state: State| {
            if state.lap() == lap {
                !matches!(state.phase(), Phase::Empty | Phase::Filling)
            } else {
                // Done, and not filled again.
                state.lap() == lap.next() && state.phase() == Phase::Empty
            }
        };
        if !here(self.state()) {
            return None;
        }
        let offset = self.offset.load();
        // A put of a later lap stores its offset after it has made the slot FILLING, and releases
        // it: whoever reads that offset sees the slot gone on.
        here(self.state()).then_some(offset)
    }

    /// Would a put of `lap` find this slot still used by an earlier one?
    #[cfg(feature = "async")]
    pub(crate) fn is_busy(&self, lap: Lap) -> bool {
        let state = self.state();
        match state.phase() {
            Phase::Empty => false,
            Phase::Doomed => true,
            _ => lap.is_after(state.lap()),
        }
    }

    /// What a put of `lap` would be answered by a slot that does not take it.
    pub(crate) fn fill_would(&self, lap: Lap) -> Taken {
        self.state().accepts(lap).err().unwrap_or(Taken::Duplicate)
    }

    /// The message in place.
    ///
    /// # Safety
    /// The caller has this slot for as long as `'a`, and nobody moves the message out meanwhile.
    #[inline(always)]
    pub(crate) unsafe fn value<'a>(&self) -> &'a T {
        // SAFETY: READY was published with a value, which stays until its party moves it out.
        // The reference is made of the field alone: `next` may be written beside it.
        self.payload.with(|payload| unsafe { &*(&raw const (*payload).value).cast::<T>() })
    }

    /// Bytes given at put.
    #[inline(always)]
    pub(crate) fn bytes(&self) -> u32 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Moves the message out.
    ///
    /// # Safety
    /// The caller has this slot, and leaves its phase for EMPTY before anybody else can have it.
    #[inline(always)]
    unsafe fn move_out(&self) -> Taking<T> {
        // SAFETY: the caller's alone, and never read again. Entered as a write, so that loom sees
        // two parties that both move out.
        let value = self.payload.with_mut(|payload| unsafe { (*payload).value.assume_init_read() });
        Taking { value, bytes: self.bytes(), doomed: false }
    }

    /// LENT -> READY; false when doomed (the caller still has it).
    ///
    /// # Safety
    /// The caller has this slot LENT.
    #[inline(always)]
    pub(crate) unsafe fn give_back(&self) -> bool {
        let lent = self.state();
        if weak(Control::LeftByStore) {
            self.state.store(lent.with(Phase::Ready).0, Ordering::Release);
            return true;
        }
        lent.phase() == Phase::Lent && self.exchange(lent, lent.with(Phase::Ready)).is_ok()
    }

    /// LENT -> HELD, and the word to know it by; none when doomed (the caller still has it).
    ///
    /// # Safety
    /// The caller has this slot LENT.
    #[inline(always)]
    pub(crate) unsafe fn hold(&self) -> Option<State> {
        let lent = self.state();
        let held = lent.with(Phase::Held);
        if weak(Control::LeftByStore) {
            self.state.store(held.0, Ordering::Release);
            return Some(held);
        }
        (lent.phase() == Phase::Lent && self.exchange(lent, held).is_ok()).then_some(held)
    }

    /// LENT or DOOMED -> EMPTY of the next lap, the message moved out.
    ///
    /// # Safety
    /// The caller has this slot LENT (or it was doomed since, also from FILLING).
    #[inline(always)]
    pub(crate) unsafe fn finish_lent(&self) -> Taking<T> {
        // SAFETY: LENT and DOOMED belong to the caller alone.
        let mut taking = unsafe { self.move_out() };
        // Nobody else may leave LENT or DOOMED, and both are left the same way: a swap that says
        // which it was.
        let lap = State(self.state.load(Ordering::Relaxed)).lap();
        let done = State::new(lap.next(), 0, Phase::Empty);
        let was = State(self.state.swap(done.0, Ordering::AcqRel));
        taking.doomed = was.phase() == Phase::Doomed;
        if taking.doomed {
            hit(Branch::DoomedReleased);
            // Doomed between the load and the swap: for a lap further on.
            self.raise(was.lap().next());
        }
        taking
    }

    // --- by number, or by exact word ---

    /// FINISHING -> EMPTY of `to`, the message moved out.
    ///
    /// # Safety
    /// The caller made this slot FINISHING, from a word of a lap before `to`.
    #[inline(always)]
    unsafe fn settle(&self, to: Lap) -> Taking<T> {
        // SAFETY: FINISHING belongs to the caller alone.
        let taking = unsafe { self.move_out() };
        self.state.store(State::new(to, 0, Phase::Empty).0, Ordering::Release);
        taking
    }

    /// READY or HELD -> FINISHING -> EMPTY of the next lap.
    #[inline]
    pub(crate) fn finish(&self, lap: Lap) -> Result<Taking<T>, Unfinished> {
        let mut seen = self.state();
        loop {
            if seen.phase() == Phase::Doomed {
                return Err(Unfinished::Doomed);
            } else if seen.lap().is_after(lap) {
                return Err(Unfinished::Passed);
            } else if seen.lap() != lap {
                return Err(Unfinished::Unknown);
            }
            match seen.phase() {
                Phase::Ready | Phase::Held => {}
                Phase::Empty | Phase::Filling => return Err(Unfinished::Unknown),
                Phase::Lent => return Err(Unfinished::Held),
                Phase::Finishing | Phase::Doomed => return Err(Unfinished::Passed),
            }
            match self.exchange(seen, seen.with(Phase::Finishing)) {
                // SAFETY: just made FINISHING.
                Ok(()) => return Ok(unsafe { self.settle(lap.next()) }),
                Err(other) => seen = other,
            }
        }
    }

    /// HELD, exactly this word -> FINISHING -> EMPTY of the next lap.
    #[inline]
    pub(crate) fn finish_held(&self, held: State) -> Option<Taking<T>> {
        let from = self.exactly(held)?;
        if self.exchange(from, from.with(Phase::Finishing)).is_err() {
            hit(Branch::LeaseGone);
            return None;
        }
        // SAFETY: just made FINISHING.
        Some(unsafe { self.settle(held.lap().next()) })
    }

    /// HELD, exactly this word -> READY.
    #[inline]
    pub(crate) fn return_held(&self, held: State) -> bool {
        let Some(from) = self.exactly(held) else { return false };
        let back = self.exchange(from, from.with(Phase::Ready)).is_ok();
        if !back {
            hit(Branch::LeaseGone);
        }
        back
    }

    /// The word that a shared lease compares with: its own.
    #[inline(always)]
    fn exactly(&self, held: State) -> Option<State> {
        if weak(Control::PhaseOnly) {
            return Some(self.state()).filter(|seen| seen.phase() == Phase::Held);
        }
        Some(held)
    }

    /// Is this message still held under exactly this word?
    #[inline]
    pub(crate) fn is_held(&self, held: State) -> bool {
        self.state() == held
    }

    /// Is the message of `lap` held, or where is it instead?
    pub(crate) fn held_in(&self, lap: Lap) -> Result<(), Kept> {
        self.state().held_in(lap)
    }

    /// HELD -> LENT of the next attempt.
    #[inline]
    pub(crate) fn revoke(&self, lap: Lap) -> Result<(), Kept> {
        let mut seen = self.state();
        loop {
            seen.held_in(lap)?;
            let attempt = seen.attempt() + Word::from(!weak(Control::AttemptKept));
            if attempt >= 1 << ATTEMPT_BITS {
                return Err(Kept::Exhausted);
            }
            match self.exchange(seen, State::new(lap, attempt, Phase::Lent)) {
                // Taken away, not delivered: whoever gets it next counts.
                Ok(()) => return Ok(()),
                Err(other) => seen = other,
            }
        }
    }

    // --- slide, jump, assign ---

    /// EMPTY of a lap before `to` -> EMPTY of `to`; false when the slot is not empty, or has
    /// moved on. A slot that is at `to` or later already stays, and counts as raised.
    #[inline]
    pub(crate) fn raise(&self, to: Lap) -> bool {
        let mut seen = self.state();
        loop {
            if seen.phase() != Phase::Empty {
                return false;
            }
            if !to.is_after(seen.lap()) {
                return true;
            }
            match self.exchange(seen, State::new(to, 0, Phase::Empty)) {
                Ok(()) => return true,
                Err(other) => seen = other,
            }
        }
    }

    /// EMPTY of `lap` or before -> EMPTY of the next lap: the offset was finished elsewhere. True
    /// for the one that did so; false when it is in use, or sealed or finished already.
    pub(crate) fn seal(&self, lap: Lap) -> bool {
        let mut seen = self.state();
        while seen.phase() == Phase::Empty && !seen.lap().is_after(lap) {
            match self.exchange(seen, State::new(lap.next(), 0, Phase::Empty)) {
                Ok(()) => return true,
                Err(_) if weak(Control::SealedByTwo) => return true,
                Err(other) => seen = other,
            }
        }
        false
    }

    /// Assign's transitions: READY and HELD are finished here (the message is returned), FILLING
    /// and LENT are doomed, FINISHING is left to its owner. EMPTY is raised to `lap`, and what is
    /// finished or doomed will be EMPTY of it.
    pub(crate) fn evict(&self, lap: Lap) -> Eviction<T> {
        let mut seen = self.state();
        loop {
            if seen.phase() != Phase::Empty && !lap.is_after(seen.lap()) {
                return Eviction::Nothing; // a younger assignment has been here
            }
            let to = match seen.phase() {
                Phase::Empty => {
                    self.raise(lap);
                    return Eviction::Nothing;
                }
                Phase::Ready | Phase::Held => seen.with(Phase::Finishing),
                Phase::Filling if weak(Control::FillingLeft) => return Eviction::Nothing,
                Phase::Lent if weak(Control::LentLeft) => return Eviction::Nothing,
                Phase::Filling | Phase::Lent | Phase::Doomed => {
                    State::new(lap.before(), 0, Phase::Doomed)
                }
                Phase::Finishing => return Eviction::Nothing,
            };
            match self.exchange(seen, to) {
                Ok(()) if to.phase() == Phase::Finishing => {
                    let offset = self.offset.load();
                    // SAFETY: just made FINISHING.
                    return Eviction::Message(offset, unsafe { self.settle(lap) });
                }
                Ok(()) if seen.phase() == Phase::Doomed => return Eviction::Nothing,
                Ok(()) => return Eviction::Doomed { lent: seen.phase() == Phase::Lent },
                Err(other) => seen = other,
            }
        }
    }

    /// Moves out what is left, whatever the phase; the slot then accepts `lap`.
    ///
    /// # Safety
    /// The caller is alone with the slot: no call and no lease that uses it is alive.
    pub(crate) unsafe fn clear(&self, lap: Lap) -> Option<(u64, Taking<T>)> {
        let seen = self.state();
        self.state.store(State::new(lap, 0, Phase::Empty).0, Ordering::Relaxed);
        match seen.phase() {
            Phase::Empty | Phase::Filling | Phase::Finishing => None,
            Phase::Ready | Phase::Lent | Phase::Held | Phase::Doomed => {
                // SAFETY: no call is running, and each of these phases has a value (no put leaves
                // FILLING behind, also when it was doomed).
                let mut taking = unsafe { self.move_out() };
                taking.doomed = seen.phase() == Phase::Doomed;
                // SAFETY: as above.
                Some((unsafe { self.offset() }, taking))
            }
        }
    }
}

impl<T> Drop for Slot<T> {
    fn drop(&mut self) {
        if self.state().phase() != Phase::Empty {
            // SAFETY: `&mut self`.
            drop(unsafe { self.clear(Lap::new(0)) });
        }
    }
}

/// A slot and the lap that a position has there.
pub struct Place<'a, T> {
    pub(crate) slot: &'a Slot<T>,
    pub(crate) lap: Lap,
    pub(crate) pos: Pos,
}

impl<T> Clone for Place<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Place<'_, T> {}

/// A list of slots that one party has, in the order it got them, linked through the slots.
pub(crate) struct Chain<T> {
    head: *const Slot<T>,
    tail: *const Slot<T>,
    len: usize,
}

impl<T> Chain<T> {
    pub(crate) const fn new() -> Self {
        Self { head: ptr::null(), tail: ptr::null(), len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// # Safety
    /// The caller has `slot`, and keeps it alive while it is in the list.
    #[inline(always)]
    pub(crate) unsafe fn push(&mut self, slot: &Slot<T>) {
        let slot: *const Slot<T> = slot;
        match self.len {
            0 => self.head = slot,
            // SAFETY: the list's slots are the caller's and alive.
            _ => unsafe { (*self.tail).set_next(slot) },
        }
        self.tail = slot;
        self.len += 1;
    }

    /// The first slot.
    pub(crate) fn head(&self) -> Option<NonNull<Slot<T>>> {
        (self.len > 0).then(|| NonNull::new(self.head.cast_mut())).flatten()
    }

    /// Takes the first slot off the list.
    ///
    /// # Safety
    /// The caller has the list's slots and keeps them alive for `'a`.
    #[inline(always)]
    pub(crate) unsafe fn pop<'a>(&mut self) -> Option<&'a Slot<T>> {
        self.len = self.len.checked_sub(1)?;
        // SAFETY: a list of one more than `len` has a head, which is the caller's and alive.
        let slot = unsafe { &*self.head };
        if self.len > 0 {
            // SAFETY: as above.
            self.head = unsafe { slot.next() };
        }
        Some(slot)
    }

    /// Takes the slot of `offset` off the list.
    ///
    /// # Safety
    /// The caller has the list's slots and keeps them alive for `'a`.
    pub(crate) unsafe fn unlink<'a>(&mut self, offset: u64) -> Option<&'a Slot<T>> {
        let mut before: *const Slot<T> = ptr::null();
        let mut at = self.head;
        for _ in 0..self.len {
            // SAFETY: `at` walks the list, whose slots are the caller's and alive.
            let slot = unsafe { &*at };
            // SAFETY: as above.
            if unsafe { slot.offset() } == offset {
                if before.is_null() {
                    // SAFETY: as above.
                    return unsafe { self.pop() };
                }
                if at == self.tail {
                    self.tail = before;
                } else {
                    // SAFETY: as above.
                    unsafe { (*before).set_next(slot.next()) };
                }
                self.len -= 1;
                return Some(slot);
            }
            before = at;
            // SAFETY: as above.
            at = unsafe { slot.next() };
        }
        None
    }

    /// The slots in order.
    ///
    /// # Safety
    /// The caller has the list's slots and keeps them, alive, for `'a`.
    pub(crate) unsafe fn links<'a>(&self) -> Links<'a, T>
    where
        T: 'a,
    {
        Links { at: self.head, left: self.len, slots: core::marker::PhantomData }
    }
}

/// The slots of a [`Chain`] in order.
pub(crate) struct Links<'a, T> {
    at: *const Slot<T>,
    left: usize,
    slots: core::marker::PhantomData<&'a Slot<T>>,
}

impl<T> Clone for Links<'_, T> {
    fn clone(&self) -> Self {
        Self { at: self.at, left: self.left, slots: self.slots }
    }
}

impl<'a, T> Iterator for Links<'a, T> {
    type Item = &'a Slot<T>;

    #[inline(always)]
    fn next(&mut self) -> Option<&'a Slot<T>> {
        self.left = self.left.checked_sub(1)?;
        // SAFETY: promised to `Chain::links`.
        let slot = unsafe { &*self.at };
        if self.left > 0 {
            // SAFETY: as above.
            self.at = unsafe { slot.next() };
        }
        Some(slot)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

/// An offset in memory: one word, or two where words are narrow.
struct Offset {
    low: AtomicWord,
    #[cfg(any(target_pointer_width = "32", inflight_word32))]
    high: AtomicWord,
}

impl Offset {
    const_unless_loom! {
        const fn new() -> Self {
            Self {
                low: AtomicWord::new(0),
                #[cfg(any(target_pointer_width = "32", inflight_word32))]
                high: AtomicWord::new(0),
            }
        }
    }

    #[inline(always)]
    fn store(&self, offset: u64) {
        self.low.store(offset as Word, Ordering::Release);
        #[cfg(any(target_pointer_width = "32", inflight_word32))]
        self.high.store((offset >> 32) as Word, Ordering::Release);
    }

    #[inline(always)]
    fn load(&self) -> u64 {
        #[cfg(any(target_pointer_width = "32", inflight_word32))]
        let high = u64::from(self.high.load(Ordering::Acquire)) << 32;
        #[cfg(not(any(target_pointer_width = "32", inflight_word32)))]
        let high = 0;
        high | u64::from(self.low.load(Ordering::Acquire))
    }
}
