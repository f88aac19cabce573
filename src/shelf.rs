//! [`Held`]: how a message that is held is known again, by its exact word, and [`Shelf`]: where
//! such are kept. What their owners do with them is in `shared.rs` and `detached.rs`.

use core::fmt;

use crate::assignment::Assignment;
use crate::error::Ticket;
use crate::position::Pos;
use crate::slot::State;
use crate::window::WindowRef;

/// A clone of a message, and the word to know the original by.
pub struct Held<T> {
    pub(crate) offset: u64,
    pub(crate) pos: Pos,
    pub(crate) deliveries: u32,
    /// None when this lease has finished the message.
    pub(crate) state: Option<State>,
    pub(crate) value: T,
}

impl<T> Held<T> {
    /// The message's offset in the log.
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    /// Where the message is: for [`Assignment::remove_ticket`](crate::Assignment::remove_ticket),
    /// when the lease has been detached or forgotten.
    pub const fn ticket(&self) -> Ticket {
        Ticket(self.pos)
    }

    /// How often the message was taken, this time included.
    pub const fn deliveries(&self) -> u32 {
        self.deliveries
    }

    /// The message.
    pub const fn value(&self) -> &T {
        &self.value
    }
}

impl<T: fmt::Debug> fmt::Debug for Held<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held")
            .field("offset", &self.offset)
            .field("deliveries", &self.deliveries)
            .field("value", &self.value)
            .finish()
    }
}

/// Where a shared lease keeps its clones: `Vec`, or `heapless::Vec` of at most `B`.
pub trait Shelf<T>: ShelfSealed {
    /// The same shelf for what knows a message without a clone of it.
    #[doc(hidden)]
    type Bare: Shelf<()>;

    #[doc(hidden)]
    fn with_room(n: usize) -> Self;
    #[doc(hidden)]
    fn room() -> usize;
    #[doc(hidden)]
    fn push(&mut self, held: Held<T>);
    #[doc(hidden)]
    fn items(&self) -> &[Held<T>];
    #[doc(hidden)]
    fn items_mut(&mut self) -> &mut [Held<T>];
    #[doc(hidden)]
    fn pop(&mut self) -> Option<Held<T>>;
    #[doc(hidden)]
    fn remove(&mut self, index: usize) -> Option<Held<T>>;
}

/// Closed to implementations outside.
pub trait ShelfSealed {}

#[cfg(feature = "alloc")]
impl<T> ShelfSealed for alloc::vec::Vec<Held<T>> {}
#[cfg(feature = "alloc")]
impl<T> Shelf<T> for alloc::vec::Vec<Held<T>> {
    type Bare = alloc::vec::Vec<Held<()>>;

    fn with_room(n: usize) -> Self {
        Self::with_capacity(n)
    }

    fn room() -> usize {
        usize::MAX
    }

    fn push(&mut self, held: Held<T>) {
        self.push(held);
    }

    fn items(&self) -> &[Held<T>] {
        self
    }

    fn items_mut(&mut self) -> &mut [Held<T>] {
        self
    }

    fn pop(&mut self) -> Option<Held<T>> {
        self.pop()
    }

    fn remove(&mut self, index: usize) -> Option<Held<T>> {
        // Looked at here, so that there is no path to a panic.
        (index < self.len()).then(|| self.remove(index))
    }
}

impl<T, const B: usize> ShelfSealed for heapless::Vec<Held<T>, B> {}
impl<T, const B: usize> Shelf<T> for heapless::Vec<Held<T>, B> {
    type Bare = heapless::Vec<Held<()>, B>;

    fn with_room(_: usize) -> Self {
        Self::new()
    }

    fn room() -> usize {
        B
    }

    fn push(&mut self, held: Held<T>) {
        // A take asks for at most `room`, so this never has one too many.
        let _ = self.push(held);
    }

    fn items(&self) -> &[Held<T>] {
        self
    }

    fn items_mut(&mut self) -> &mut [Held<T>] {
        self
    }

    fn pop(&mut self) -> Option<Held<T>> {
        self.pop()
    }

    fn remove(&mut self, index: usize) -> Option<Held<T>> {
        // Looked at here, so that there is no path to a panic.
        (index < self.len()).then(|| self.remove(index))
    }
}

/// The default shelf of a shared lease.
#[cfg(feature = "alloc")]
#[doc(hidden)]
pub type DefaultShelf<T> = alloc::vec::Vec<Held<T>>;

/// Gives back what is still held; how many were, how many were gone, and whether that ended an
/// idle period.
pub(crate) fn give_back<R: WindowRef, T>(
    part: &Assignment<R>,
    items: &mut [Held<T>],
) -> (usize, usize, bool) {
    let pin = part.pin();
    let part = part.part();
    let mut lowest: Option<Pos> = None;
    let (mut returned, mut gone) = (0, 0);
    for held in items {
        let Some(state) = held.state.take() else { continue };
        match part.at(held.pos, &pin) {
            Ok(place) if place.slot.return_held(state) => {
                // Not always the first: `into_values` has turned the order round.
                lowest = Some(lowest.map_or(place.pos, |lowest| lowest.min(place.pos)));
                returned += 1;
            }
            _ => gone += 1,
        }
    }
    let dispatch = lowest.is_some_and(|lowest| part.returned(lowest));
    (returned, gone, dispatch)
}

/// Stamps what is still held anew.
pub(crate) fn touch<R: WindowRef, T>(part: &Assignment<R>, items: &[Held<T>], now: u64) {
    let pin = part.pin();
    let part = part.part();
    for held in items {
        if let (Some(state), Ok(place)) = (held.state, part.at(held.pos, &pin)) {
            // Somebody may take the message away in between; then its younger holder counts
            // as touched: a hint for `stalled`, as `since` always is.
            if place.slot.is_held(state) {
                place.slot.stamp(Some(now));
            }
        }
    }
}
