//! [`Budget`]: exact limits on what is in flight, of one window or of several together.
//!
//! Not a policy, and no queue of those who wait: who finds no room is told so.
//!
//! # How
//!
//! Of the limit, every window that shares the budget *has* the larger of its floor and what it
//! uses (what its messages and permits count); the rest is *free*.
//!
//! ```text
//!   limit = free + the sum over the shares of max(floor, used) + what calls have in hand
//! ```
//!
//! So nobody else can get what a share lacks of its floor, and what is used never exceeds the
//! limit. Each step keeps the sum, or moves the difference through the hands of one call:
//!
//! - *charge*: takes from `free` what `max(floor, used)` will grow by, **first**, and **then**
//!   raises `used`, by an exchange from the value that this was worked out for. When that fails
//!   the call takes the rest, or gives the surplus back, and tries again.
//! - *release*: lowers `used` by one read-modify-write, which says what `max(floor, used)` was
//!   and now is, and **then** gives the difference to `free`.
//!
//! Between the two steps the difference is counted for nobody: a call beside this one may be
//! refused although there will be room when this one has returned, and never the other way round.
//!
//! # Lanes
//!
//! Messages and bytes are taken together: with 64-bit words they are two fields of one word. Words
//! of 32 bits have no room for that, so there each quantity is a *lane* of its own, taken one after
//! the other and given back when the second fails. The code is the same, for one lane or two.

mod permit;
mod window;

pub use permit::Permit;
#[cfg(feature = "async")]
pub use permit::ReserveFuture;
pub use window::Budgeted;

use core::fmt;
use core::ops::Deref;

use crate::control::{Branch, Control, hit, weak};
use crate::engine::Meter;
use crate::error::ReserveError;
use crate::flow::Usage;
use crate::sync::{AtomicWord, NARROW, Ordering, Padded, Word, const_unless_loom};
#[cfg(feature = "async")]
use crate::waiting::{ROOM, Waiters};

/// ```text
///  64 bits:  one lane    | bytes: 40 bits | messages: 24 bits |
///  32 bits:  two lanes   | messages |, | bytes |
/// ```
struct Pair([AtomicWord; LANES]);

const LANES: usize = if NARROW { 2 } else { 1 };
const MESSAGE_BITS: u32 = 24;

/// A limit beyond counts as this.
const LARGEST: Usage = if NARROW {
    Usage { count: 1 << 30, bytes: u32::MAX as u64 }
} else {
    Usage { count: (1 << MESSAGE_BITS) - 1, bytes: (1 << 40) - 1 }
};

const fn encode(amount: Usage, lane: usize) -> Word {
    let Usage { count, bytes } = amount;
    match (NARROW, lane) {
        (false, _) => (bytes << MESSAGE_BITS | count as u64) as Word,
        (true, 0) => count as Word,
        (true, _) => bytes as Word,
    }
}

const fn decode(word: Word, lane: usize) -> Usage {
    #[allow(clippy::unnecessary_cast)]
    let word = word as u64;
    match (NARROW, lane) {
        (false, _) => Usage {
            count: (word & ((1 << MESSAGE_BITS) - 1)) as usize,
            bytes: word >> MESSAGE_BITS,
        },
        (true, 0) => Usage { count: word as usize, bytes: 0 },
        (true, _) => Usage { count: 0, bytes: word },
    }
}

/// What of an amount is in a lane.
#[inline(always)]
fn part(amount: Usage, lane: usize) -> Usage {
    decode(encode(amount, lane), lane)
}

/// Release, for what was finished before it is given back; Acquire, for who takes that.
fn order() -> Ordering {
    if weak(Control::BudgetRelaxed) { Ordering::Relaxed } else { Ordering::AcqRel }
}

impl Pair {
    const_unless_loom! {
        const fn new(amount: Usage) -> Self {
            Self([
                AtomicWord::new(encode(amount, 0)),
                #[cfg(any(target_pointer_width = "32", inflight_word32))]
                AtomicWord::new(encode(amount, 1)),
            ])
        }
    }

    /// The word of a lane, without a path to a panic.
    #[inline(always)]
    fn lane(&self, lane: usize) -> &AtomicWord {
        self.0.get(lane).unwrap_or(&self.0[0])
    }

    #[inline(always)]
    fn load(&self, lane: usize) -> Usage {
        decode(self.lane(lane).load(Ordering::Acquire), lane)
    }

    fn whole(&self) -> Usage {
        (0..LANES).map(|lane| self.load(lane)).fold(Usage::NONE, Usage::plus)
    }

    /// Takes as much of `most` as there is; nothing when that is less than `least`: then what
    /// there is.
    fn take(&self, lane: usize, least: Usage, most: Usage) -> Result<Usage, Usage> {
        let mut there = self.load(lane);
        loop {
            if !there.covers(least) {
                return Err(there);
            }
            let taken = there.min(most);
            match self.exchange(lane, there, there.minus(taken), Control::BudgetTakenByStore) {
                Ok(()) => return Ok(taken),
                Err(other) => there = other,
            }
        }
    }

    fn exchange(&self, lane: usize, from: Usage, to: Usage, by: Control) -> Result<(), Usage> {
        let (word, from, to) = (self.lane(lane), encode(from, lane), encode(to, lane));
        if weak(by) {
            word.store(to, Ordering::Release);
            return Ok(());
        }
        let acquire =
            if weak(Control::BudgetRelaxed) { Ordering::Relaxed } else { Ordering::Acquire };
        match word.compare_exchange(from, to, order(), acquire) {
            Ok(_) => Ok(()),
            Err(other) => Err(decode(other, lane)),
        }
    }

    /// Adds; the sum fits, since all of it was taken out of a limit that does.
    #[inline(always)]
    fn add(&self, lane: usize, amount: Usage) {
        self.lane(lane).fetch_add(encode(amount, lane), order());
    }

    /// Subtracts what is there for certain; what there was before.
    #[inline(always)]
    fn subtract(&self, lane: usize, amount: Usage) -> Usage {
        decode(self.lane(lane).fetch_add(encode(amount, lane).wrapping_neg(), order()), lane)
    }

    /// Meets those who change it: they see what this call did before, or it sees what they did.
    #[cfg(feature = "async")]
    fn meet(&self) {
        for word in &self.0 {
            word.fetch_add(0, Ordering::AcqRel);
        }
    }
}

/// How much may be in flight: messages and bytes, of all windows that share it together.
///
/// Const, without an allocator. Each window gets a [`Share`], with or without a floor that nobody
/// else can use up; a [`Budgeted`] window pays from its share for every message in it, so **the
/// limit is never overshot**, by however many pullers. Who pulls reserves first
/// ([`Assignment::reserve`](crate::Assignment::reserve)), and asks for no more than was granted.
///
/// A limit of more than 16,777,215 messages or 2^40 - 1 bytes counts as that; with 32-bit words
/// more than 2^30 messages or 4 GiB - 1 bytes.
///
/// ```
/// use inflight::{Budget, Budgeted, ReserveError, RingWindow, Share, Window};
///
/// static BUDGET: Budget = Budget::new(1000, 1 << 20);
///
/// // Two partitions: either can have it all, but for the other's floor.
/// let share = || Share::with_floor(&BUDGET, 100, 64 << 10);
/// let orders = Budgeted::new(RingWindow::<Vec<u8>, 1024>::new(), share()?);
/// let events = Budgeted::new(RingWindow::<Vec<u8>, 1024>::new(), share()?);
/// let (orders, events) = (orders.assign(0), events.assign(0));
///
/// // Before a pull: room for 900 messages of 512 KiB together.
/// let mut permit = orders.reserve(900, 512 << 10)?;
/// // ... the pull, which answers with one message of 5 bytes ...
/// permit.put_sized(0, 5, b"hello".to_vec())?;
/// let short = events.reserve(200, 0).unwrap_err();
/// assert_eq!(short, ReserveError::Short { messages: 100, bytes: 0 });
///
/// // What was not used goes back with the permit, the rest when the message is finished.
/// drop(permit);
/// assert_eq!(events.reserve(200, 0)?.messages(), 200);
/// assert_eq!(orders.window().share().used().count, 1);
/// orders.remove(0)?;
/// assert_eq!(orders.window().share().used().count, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Budget {
    limit: Usage,
    /// What no share has.
    free: Padded<Pair>,
    /// The floors of all shares together.
    floors: Pair,
    #[cfg(feature = "async")]
    waiters: Padded<Waiters>,
}

impl Budget {
    const_unless_loom! {
        /// A budget of so many messages and bytes.
        pub const fn new(max_messages: usize, max_bytes: u64) -> Self {
            let count = if max_messages > LARGEST.count { LARGEST.count } else { max_messages };
            let bytes = if max_bytes > LARGEST.bytes { LARGEST.bytes } else { max_bytes };
            let limit = Usage { count, bytes };
            Self {
                limit,
                free: Padded(Pair::new(limit)),
                floors: Pair::new(Usage::NONE),
                #[cfg(feature = "async")]
                waiters: Padded(Waiters::new()),
            }
        }
    }

    /// What all windows together may have in flight.
    pub fn limit(&self) -> Usage {
        self.limit
    }

    /// What any window may still reserve, beside what is left of its own floor. O(1). Exact when
    /// no call is running, otherwise possibly too low.
    pub fn free(&self) -> Usage {
        self.free.whole()
    }

    fn give(&self, lane: usize, amount: Usage) {
        if amount != Usage::NONE {
            self.free.add(lane, amount);
            self.wake();
        }
    }

    /// After something was given back.
    #[inline(always)]
    fn wake(&self) {
        #[cfg(feature = "async")]
        self.waiters.wake_any(ROOM);
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budget")
            .field("limit", &self.limit)
            .field("free", &self.free())
            .finish_non_exhaustive()
    }
}

/// One window's part in a [`Budget`], which is held by reference or by `Arc`.
///
/// Dropped, with its window, it gives back everything: what the window's messages counted, what
/// forgotten permits have, and its floor.
pub struct Share<B: Deref<Target = Budget> = &'static Budget> {
    budget: B,
    floor: Usage,
    /// What the messages and the permits count.
    used: Padded<Pair>,
}

impl<B: Deref<Target = Budget>> Share<B> {
    const_unless_loom! {
        /// A share that is guaranteed nothing.
        pub const fn new(budget: B) -> Self {
            Self { budget, floor: Usage::NONE, used: Padded(Pair::new(Usage::NONE)) }
        }
    }

    /// A share that can always have so many messages and bytes in flight, whatever the others do.
    ///
    /// # Errors
    /// [`ReserveError::Short`] when so much is not free now: floors are best taken before the
    /// first messages come. `TooMuch` when floors and limit leave less than that for ever.
    ///
    /// O(1), lock-free.
    pub fn with_floor(budget: B, messages: usize, bytes: u64) -> Result<Self, ReserveError> {
        let mut share = Self::new(budget);
        let floor = Usage { count: messages, bytes };
        share.charge(floor, floor)?;
        // What was charged becomes the floor: the share has as much as before.
        share.floor = floor;
        for lane in 0..LANES {
            share.used.subtract(lane, part(floor, lane));
            share.budget.floors.add(lane, part(floor, lane));
        }
        Ok(share)
    }

    /// The budget.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// What is guaranteed.
    pub fn floor(&self) -> Usage {
        self.floor
    }

    /// What is in flight: the messages of the window, and the permits. O(1).
    pub fn used(&self) -> Usage {
        self.used.whole()
    }

    /// What could be reserved now. O(1). Exact when no call is running.
    pub fn room(&self) -> Usage {
        self.budget.free().plus(self.floor.minus(self.used()))
    }

    /// What can be reserved at most, when nothing else is in flight: the limit without the floors
    /// of the others. O(1).
    pub fn most(&self) -> Usage {
        self.budget.limit.minus(self.budget.floors.whole().minus(self.floor))
    }

    /// What it has of the budget when it uses so much.
    #[inline(always)]
    fn has(&self, used: Usage) -> Usage {
        used.max(self.floor)
    }

    /// Charges as much of `most` as there is, at least `least`.
    fn charge(&self, least: Usage, most: Usage) -> Result<Usage, ReserveError> {
        let can = self.most();
        if !can.covers(least) {
            return Err(ReserveError::TooMuch { messages: can.count, bytes: can.bytes });
        }
        let most = most.min(can);
        if LANES > 1 {
            // What cannot succeed takes nothing, not even for a moment.
            let missing = least.minus(self.room());
            if missing != Usage::NONE {
                return Err(short(missing));
            }
        }
        let mut charged = Usage::NONE;
        for lane in 0..LANES {
            match self.charge_lane(lane, part(least, lane), part(most, lane)) {
                Ok(more) => charged = charged.plus(more),
                Err(missing) => {
                    self.release(charged);
                    return Err(short(missing));
                }
            }
        }
        Ok(charged)
    }

    /// The same in one lane; what is missing when there is too little.
    fn charge_lane(&self, lane: usize, least: Usage, most: Usage) -> Result<Usage, Usage> {
        let mut in_hand = Usage::NONE;
        let mut used = self.used.load(lane);
        loop {
            let grows = |by: Usage| self.has(used.plus(by)).minus(self.has(used));
            let (needs, wants) = (grows(least), grows(most));
            if !in_hand.covers(wants) {
                let more = (needs.minus(in_hand), wants.minus(in_hand));
                match self.budget.free.take(lane, more.0, more.1) {
                    Ok(taken) => in_hand = in_hand.plus(taken),
                    Err(there) => {
                        self.budget.give(lane, in_hand);
                        return Err(more.0.minus(there));
                    }
                }
            }
            // Of what it wants, it can have all but what was not there.
            let charged = most.minus(wants.minus(in_hand));
            let spent = grows(charged);
            let to = used.plus(charged);
            match self.used.exchange(lane, used, to, Control::BudgetUsedByStore) {
                Ok(()) => {
                    if in_hand != spent {
                        // Something was released meanwhile, and less is needed.
                        hit(Branch::BudgetSurplus);
                        if !weak(Control::BudgetSurplusKept) {
                            self.budget.give(lane, in_hand.minus(spent));
                        }
                    }
                    return Ok(charged);
                }
                Err(other) => used = other,
            }
        }
    }

    /// Charges what a credit lacks for a message.
    #[inline(never)]
    fn top_up(&self, credit: &mut Usage, message: Usage) -> bool {
        let missing = message.minus(*credit);
        let charged = self.charge(missing, missing).is_ok();
        if charged {
            *credit = credit.plus(missing);
        }
        charged
    }

    /// Gives back what was charged before.
    #[inline(never)]
    fn release(&self, amount: Usage) {
        if amount == Usage::NONE {
            return;
        }
        for lane in 0..LANES {
            let amount = part(amount, lane);
            if LANES > 1 && amount == Usage::NONE {
                continue;
            }
            let looked = self.used.load(lane);
            let before = self.used.subtract(lane, amount);
            // Worked out for the very value that was lowered: two that release at once would
            // otherwise give back too much, out of the floor, or too little.
            let before = if weak(Control::BudgetReleasedByLook) { looked } else { before };
            let back = self.has(before).minus(self.has(before.minus(amount)));
            self.budget.give(lane, if weak(Control::BudgetFloorReleased) { amount } else { back });
        }
        // Also when nothing became free: who waits may be short of what is left of this floor.
        self.budget.wake();
    }
}

fn short(missing: Usage) -> ReserveError {
    ReserveError::Short { messages: missing.count, bytes: missing.bytes }
}

impl<B: Deref<Target = Budget>> Drop for Share<B> {
    fn drop(&mut self) {
        for lane in 0..LANES {
            self.budget.floors.subtract(lane, part(self.floor, lane));
            let has = self.has(self.used.load(lane));
            self.budget.give(lane, part(has, lane));
        }
    }
}

impl<B: Deref<Target = Budget>> fmt::Debug for Share<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Share")
            .field("floor", &self.floor)
            .field("used", &self.used())
            .field("budget", self.budget())
            .finish()
    }
}

impl<B: Deref<Target = Budget>> Meter for Share<B> {
    type Credit = Usage;

    #[inline]
    fn spend(&self, credit: &mut Usage, bytes: u32) -> bool {
        let message = Usage { count: 1, bytes: u64::from(bytes) };
        let paid = credit.covers(message) || self.top_up(credit, message);
        if paid {
            *credit = credit.minus(message);
        }
        paid
    }

    #[inline]
    fn unspend(&self, credit: &mut Usage, bytes: u32) {
        *credit = credit.plus(Usage { count: 1, bytes: u64::from(bytes) });
    }

    #[inline]
    fn finished(&self, count: usize, bytes: u64) {
        self.release(Usage { count, bytes });
    }

    fn reserve(&self, least: Usage, most: Usage) -> Result<Usage, ReserveError> {
        self.charge(least, most)
    }

    #[inline]
    fn refund(&self, credit: Usage) {
        self.release(credit);
    }

    fn left(credit: &Usage) -> Usage {
        *credit
    }

    fn room(&self) -> Usage {
        self.room()
    }

    fn most(&self) -> Usage {
        self.most()
    }

    #[cfg(feature = "async")]
    fn waiters(&self) -> Option<&Waiters> {
        Some(&self.budget.waiters)
    }

    #[cfg(feature = "async")]
    fn meet(&self) {
        if !weak(Control::BudgetUnmet) {
            self.used.meet();
            self.budget.free.meet();
        }
    }
}
