//! Waiting for messages and for room, by any executor: wakers in a fixed array, no allocator.
//!
//! A window has [`SEATS`] seats. Who waits takes one, leaves a waker in it and *arms* it, looks
//! once more, and only then sleeps. Who makes something ready or passable looks at the seats
//! afterwards, with one load when nobody waits, and wakes **all** that wait for it. So a wake-up
//! never belongs to one waiter, and none is lost with a future that is dropped.
//!
//! What one party does before its look, the other must see in its own. Both make a
//! read-modify-write of the same word between the two, and of two of those the later one sees what
//! came before the earlier:
//!
//! - takers and whoever makes messages ready: the signal word. A take that runs dry says so there
//!   before its last look (`Part::look_once_more`), and `Part::announce` claims that.
//! - waiters for room, and takers of a closed window, and whoever finishes: the finished counter.
//! - waiters for a budget, which has seats of its own, and whoever gives back: the words of the
//!   budget and of the share.
//! - all waiters, and close and assign: the seats' own word, by [`Waiters::arm`] and
//!   [`Waiters::wake_all`].

#[cfg(all(feature = "std", not(loom)))]
mod blocking;
mod future;

pub(crate) use future::Waiter;
pub use future::{SpaceFuture, TakeFuture, TakeSharedFuture};

use core::task::Waker;

use crate::control::{Branch, Control, hit, weak};
use crate::engine::{Ended, Part, Space, for_each};
use crate::error::{Stale, WaitError};
use crate::flow::MESSAGE_BYTES;
use crate::position::Pos;
use crate::sync::{AtomicWord, Cell, Ordering, Word};

/// How many futures can wait on one window at a time.
const SEATS: usize = 8;

/// Each seat has four bits of one word; none of them set: free.
///
/// ```text
///           sit            arm             claim (who wakes)
///   free ---------> OWNED ------> OWNED+FOR ------> OWNED+BUSY
///    ^               | ^ ^___________|                 | |
///    |     stand     | |    disarm                     | | stand
///    +---------------+ +-------------------------------+ v
///    +--------------------------------------------- BUSY
///                      done (who wakes)
/// ```
///
/// The waker's cell belongs to the owner while the seat is OWNED alone, to whoever claimed it
/// while it is BUSY, to nobody while it is armed.
const SEAT_BITS: usize = 4;
/// A future has the seat.
const OWNED: Word = 1;
/// Armed: waits for messages.
pub(crate) const MESSAGES: Word = 2;
/// Armed: waits for room.
pub(crate) const ROOM: Word = 4;
/// Somebody takes the waker out.
const BUSY: Word = 8;

/// These bits in every seat.
const fn everywhere(bits: Word) -> Word {
    bits * (Word::MAX / 15)
}

/// The seats of a window, or of a budget.
#[doc(hidden)]
pub struct Waiters {
    seats: AtomicWord,
    wakers: [Cell<Option<Waker>>; SEATS],
}

// SAFETY: a waker's cell is entered by one party at a time (the table above), and wakers are
// `Send` and `Sync`.
unsafe impl Sync for Waiters {}

/// Of a seat that was to be disarmed.
enum Disarmed {
    /// The owner has its waker again, if it was armed.
    Mine(Option<Waker>),
    /// Somebody has claimed it, and is about to wake it.
    Claimed,
}

impl Waiters {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Self {
        Self { seats: AtomicWord::new(0), wakers: [const { Cell::new(None) }; SEATS] }
    }

    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        let wakers = core::array::from_fn(|_| Cell::new(None));
        Self { seats: AtomicWord::new(0), wakers }
    }

    #[inline(always)]
    fn bits(index: usize, bits: Word) -> Word {
        // Of 32 bits, also where the word has more.
        bits << (index * SEAT_BITS)
    }

    /// The waker's cell of a seat. (The remainder changes nothing: it spares a path to a panic.)
    #[inline(always)]
    fn cell(&self, index: usize) -> &Cell<Option<Waker>> {
        &self.wakers[index % SEATS]
    }

    fn at(&self, index: usize) -> Word {
        (self.seats.load(Ordering::Acquire) >> (index * SEAT_BITS)) & 15
    }

    /// Does anybody wait for one of these?
    #[inline(always)]
    pub(crate) fn any(&self, kinds: Word) -> bool {
        // Relaxed: an armed seat that must be seen here was armed before the meeting.
        self.seats.load(Ordering::Relaxed) & everywhere(kinds) != 0
    }

    /// Takes a free seat; none when all are taken.
    fn sit(&self) -> Option<usize> {
        let mut seen = self.seats.load(Ordering::Acquire);
        loop {
            let index = (0..SEATS).find(|index| seen & Self::bits(*index, 15) == 0)?;
            let to = seen | Self::bits(index, OWNED);
            // Acquire: with the cell as its last user has left it.
            match self.seats.compare_exchange(seen, to, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(index),
                Err(other) => seen = other,
            }
        }
    }

    /// Leaves a waker and arms the seat, which the caller owns and which is not armed.
    fn arm(&self, index: usize, kind: Word, waker: Waker) {
        // SAFETY: OWNED alone: the cell is the caller's. (Empty: wakers are taken out of it.)
        self.cell(index).with_mut(|cell| unsafe { *cell = Some(waker) });
        let order = if weak(Control::ArmRelaxed) { Ordering::Relaxed } else { Ordering::AcqRel };
        // Release: with the waker. Acquire: what close and assign did before they looked here.
        self.seats.fetch_or(Self::bits(index, kind), order);
    }

    /// Takes the waker back, if nobody has claimed it.
    fn disarm(&self, index: usize) -> Disarmed {
        let mut seen = self.seats.load(Ordering::Acquire);
        loop {
            if seen & Self::bits(index, BUSY) != 0 {
                return Disarmed::Claimed;
            }
            if seen & Self::bits(index, MESSAGES | ROOM) == 0 {
                return Disarmed::Mine(None);
            }
            let to = seen & !Self::bits(index, MESSAGES | ROOM);
            match self.seats.compare_exchange(seen, to, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => break,
                Err(other) => seen = other,
            }
        }
        // SAFETY: OWNED alone again: the cell is the caller's.
        Disarmed::Mine(self.cell(index).with_mut(|cell| unsafe { (*cell).take() }))
    }

    /// Gives the seat up, now or, when somebody has claimed it, as soon as that one is done.
    fn stand(&self, index: usize) {
        let left = self.disarm(index);
        let gone = if weak(Control::StandIgnoresBusy) { OWNED | BUSY } else { OWNED };
        self.seats.fetch_and(!Self::bits(index, gone), Ordering::AcqRel);
        // Not before: it is code of the user's executor.
        drop(left);
    }

    /// Claims the waker of a seat that waits for one of `kinds`.
    fn claim(&self, index: usize, kinds: Word) -> Option<Waker> {
        let mut seen = self.seats.load(Ordering::Acquire);
        loop {
            if seen & Self::bits(index, kinds) == 0 {
                return None;
            }
            if weak(Control::ClaimWakerWithoutCas) {
                self.seats.fetch_and(!Self::bits(index, MESSAGES | ROOM), Ordering::AcqRel);
                break;
            }
            let to = seen & !Self::bits(index, MESSAGES | ROOM) | Self::bits(index, BUSY);
            // Acquire: with the waker.
            match self.seats.compare_exchange(seen, to, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => break,
                Err(other) => seen = other,
            }
        }
        // SAFETY: BUSY by this call: the cell is its own.
        let waker = self.cell(index).with_mut(|cell| unsafe { (*cell).take() });
        // Its owner's again, or free when the owner has left meanwhile.
        let before = self.seats.fetch_and(!Self::bits(index, BUSY), Ordering::AcqRel);
        if before & Self::bits(index, OWNED) == 0 {
            hit(Branch::LeftWhileClaimed);
        }
        waker
    }

    /// Wakes all that wait for one of `kinds`, after something that they look at has changed and
    /// the meeting.
    #[inline(always)]
    pub(crate) fn wake_any(&self, kinds: Word) {
        if self.any(kinds) {
            self.wake(kinds);
        }
    }

    /// Each outside of its seat: that is code of the user's executor, and when it panics the
    /// others are woken all the same.
    #[cold]
    fn wake(&self, kinds: Word) {
        let mut seats = 0..SEATS;
        for_each(|| seats.by_ref().find_map(|index| self.claim(index, kinds)), Waker::wake);
    }

    /// Wakes all, after something that every waiter looks at has changed.
    pub(crate) fn wake_all(&self) {
        // The read-modify-write meets those who arm: a later one sees what has changed.
        if !weak(Control::WakeAllUnmet) {
            self.seats.fetch_or(0, Ordering::AcqRel);
        }
        self.wake_any(MESSAGES | ROOM);
    }
}

impl<'a, S: Space + ?Sized> Part<'a, S> {
    /// After a finish, its meeting and its slide: wakes who waits for room once there is enough,
    /// and takers when nothing may be left for them.
    #[inline(always)]
    pub(crate) fn wake_finished(self) {
        if self.words().waiters.any(MESSAGES | ROOM) {
            self.wake_some();
        }
    }

    /// After the release of a slot that was doomed, or of a put that was given up: it may have been
    /// in the way of a put far above, wherever the half of the window is.
    #[cold]
    pub(crate) fn wake_released(self) {
        self.words().flow.finish(0, 0);
        self.words().waiters.wake_any(ROOM);
    }

    #[cold]
    fn wake_some(self) {
        let waiters = &self.words().waiters;
        let (low, closed) = match self.open() {
            Ok(()) => (self.low(), false),
            Err(Ended::Closed) => (self.low(), true),
            // A slot of an ended assignment was released: it was in the way, wherever the marks
            // of the present one are.
            Err(Ended::Stale) => (true, false),
        };
        if low {
            waiters.wake_any(ROOM);
        }
        if closed && !weak(Control::OverUnsaid) {
            waiters.wake_any(MESSAGES);
        }
    }

    /// Is at most half of the window in use?
    fn low(self) -> bool {
        self.words().span() <= self.space.reach() / 2 && self.words().flow.is_low()
    }

    /// Would a put of `offset` (none: at the end) be refused as `Full` now? False when it would
    /// be refused for another reason: then the put says why.
    fn is_full(self, offset: Option<u64>, pin: &S::Pin) -> Result<bool, WaitError> {
        let words = self.words();
        // Where this meets the finishers: see the head of this file.
        if !weak(Control::RoomUnmet) {
            words.flow.finish(0, 0);
        }
        self.space.slide(pin);
        let ended = |ended| match ended {
            Ended::Stale => WaitError::Stale,
            Ended::Closed => WaitError::Closed,
        };
        let (watermark, bound) = self.view().map_err(ended)?;
        let full = self.refuses(offset, watermark, bound, pin);
        self.open().map_err(ended)?;
        Ok(full)
    }

    fn refuses(self, offset: Option<u64>, watermark: Pos, bound: Pos, pin: &S::Pin) -> bool {
        let words = self.words();
        let pos = match offset.filter(|_| !self.numbered()) {
            Some(offset) => self.dense_position(offset),
            None => Some(words.end(watermark)),
        };
        let Some(pos) = pos
            .filter(|pos| pos.checked_sub(watermark).is_some_and(|ahead| ahead < self.space.far()))
        else {
            return false;
        };
        if !words.flow.has_room(MESSAGE_BYTES) {
            return true;
        }
        if pos < bound {
            return self.space.find(pos, pin).is_ok_and(|place| place.slot.is_busy(place.lap));
        }
        // The space makes room as for a put. When it comes to raise the end there is room to be
        // had, and the put will do that.
        let mut asked = false;
        let made = self.space.make_room(pos, pin, |_| {
            asked = true;
            Err(Stale)
        });
        made.is_err() && !asked
    }
}
