//! [`SharedLease`]: the lease that holds clones. Any party may finish or revoke its messages.

use core::fmt;

use crate::assignment::Assignment;
use crate::control::{Control, weak};
use crate::detached::{Detached, OrBack};
use crate::engine::{Finishing, Space, for_each};
use crate::error::{Next, RemoveError, Report, Stale, TakeError};
#[cfg(feature = "alloc")]
use crate::shelf::DefaultShelf;
use crate::shelf::{Held, Shelf, give_back, touch};
use crate::window::{Value, WindowRef};

macro_rules! shared_lease {
    ($(#[$meta:meta])* $vis:vis struct $name:ident { $($body:tt)* }) => {
        $(#[$meta])*
        #[cfg(feature = "alloc")]
        $vis struct $name<R: WindowRef, S: Shelf<Value<R>> = DefaultShelf<Value<R>>> { $($body)* }
        $(#[$meta])*
        #[cfg(not(feature = "alloc"))]
        $vis struct $name<R: WindowRef, S: Shelf<Value<R>>> { $($body)* }
    };
}

shared_lease! {
    /// Clones of messages, which stay held in the window until somebody finishes them: this
    /// lease, a remove by number, or a revoke. Whoever comes second is told (`gone`).
    ///
    /// Dropped without a word, also by a panic, it gives back what it still holds. Forgotten
    /// (`mem::forget`), it leaves its messages held, as [`SharedLease::detach`] does: they can be
    /// removed and revoked.
    #[must_use = "a lease that is dropped gives its messages back"]
    pub struct SharedLease {
        part: Assignment<R>,
        held: S,
    }
}

/// A shared lease of at most `B` messages, without an allocator.
pub type SharedLeaseIn<R, const B: usize> = SharedLease<R, heapless::Vec<Held<Value<R>>, B>>;

impl<R: WindowRef, S: Shelf<Value<R>>> SharedLease<R, S> {
    pub(crate) fn take(part: Assignment<R>, n: usize, now: Option<u64>) -> Result<Self, TakeError>
    where
        Value<R>: Clone,
    {
        let this = part.clone();
        let pin = part.pin();
        let part = part.part();
        let mut claimed = part.take(n.min(S::room()), now, &pin)?;
        let mut lease = Self { part: this, held: S::with_room(claimed.chain.len()) };
        let mut doomed = false;
        // Both `claimed` and `lease` give back what they have when a clone panics.
        while let Some(slot) = claimed.chain.head() {
            // SAFETY: claimed by this take, and the pin keeps it alive.
            let slot = unsafe { slot.as_ref() };
            if weak(Control::HeldBeforeClone) {
                // SAFETY: as above.
                let _ = unsafe { slot.hold() };
            }
            // Cloned before anybody else can finish the message.
            // SAFETY: as above.
            let (offset, value) = unsafe { (slot.offset(), slot.value().clone()) };
            let (pos, deliveries) = (part.space.position_of(slot), slot.deliveries());
            // SAFETY: as above.
            let _ = unsafe { claimed.chain.pop() };
            if weak(Control::HeldBeforeClone) {
                lease.held.push(Held { offset, pos, deliveries, state: Some(slot.state()), value });
                continue;
            }
            // SAFETY: as above.
            match unsafe { slot.hold() } {
                Some(state) => {
                    lease.held.push(Held { offset, pos, deliveries, state: Some(state), value });
                }
                None => {
                    doomed = true;
                    // SAFETY: doomed, and still this take's.
                    let taking = unsafe { part.finish_lent(slot, &pin) };
                    part.settle(1, taking.bytes, &pin);
                    drop(taking.value);
                }
            }
        }
        part.current().map_err(|Stale| TakeError::Stale)?;
        if doomed && lease.is_empty() {
            // All of it fell below the floor meanwhile: what is ready now is above.
            let part = lease.part.clone();
            return Self::take(part, n, now);
        }
        Ok(lease)
    }

    /// How many messages this lease has not finished itself.
    pub fn len(&self) -> usize {
        self.held.items().len()
    }

    /// Has this lease finished every message?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The messages with their offsets, ascending.
    pub fn iter(&self) -> Iter<'_, Value<R>> {
        Iter(self.held.items().iter())
    }

    /// The messages with offset and deliveries, ascending.
    pub fn messages(&self) -> &[Held<Value<R>>] {
        self.held.items()
    }

    /// Finishes all messages. `gone` counts those that somebody else had finished or revoked.
    ///
    /// # Errors
    /// [`Stale`] when the assignment has ended.
    pub fn commit(mut self) -> Result<Report, Stale> {
        self.finish_where(|_| true)
    }

    /// Finishes the messages whose offsets are given, gives the rest back. Offsets that are not
    /// in the lease count as `gone`. O(n log n).
    ///
    /// # Errors
    /// [`Stale`] when the assignment has ended.
    pub fn commit_only(mut self, done: impl IntoIterator<Item = u64>) -> Result<Report, Stale> {
        let part = self.part.part();
        let pin = self.part.pin();
        let mut finishing = Finishing::new(part, &pin);
        let (mut applied, mut gone) = (0, 0);
        let mut done = done.into_iter();
        let shelf = &mut self.held;
        for_each(
            || done.next(),
            |offset| {
                let index = shelf.items().binary_search_by_key(&offset, Held::offset);
                let held = index.ok().and_then(|index| shelf.items_mut().get_mut(index));
                if held.is_some_and(|held| finish(&mut finishing, part, held, &pin)) {
                    applied += 1;
                } else {
                    gone += 1;
                }
            },
        );
        let next = finishing.slide()?;
        drop(finishing);
        let (_, _, dispatch) = self.return_rest();
        self.part.part().current()?;
        Ok(Report { next, applied, gone, dispatch })
    }

    /// Finishes the messages for which `done` says so, gives the rest back. O(n).
    ///
    /// # Errors
    /// [`Stale`] when the assignment has ended.
    pub fn commit_where(
        mut self,
        mut done: impl FnMut(u64, &Value<R>) -> bool,
    ) -> Result<Report, Stale> {
        let report = self.finish_where(|held| done(held.offset, &held.value))?;
        let (_, _, dispatch) = self.return_rest();
        self.part.part().current()?;
        Ok(Report { dispatch, ..report })
    }

    fn finish_where(
        &mut self,
        mut done: impl FnMut(&Held<Value<R>>) -> bool,
    ) -> Result<Report, Stale> {
        let part = self.part.part();
        let pin = self.part.pin();
        let mut finishing = Finishing::new(part, &pin);
        let (mut applied, mut gone) = (0, 0);
        let mut items = self.held.items_mut().iter_mut();
        for_each(
            || items.find(|held| done(held)),
            |held| {
                if finish(&mut finishing, part, held, &pin) {
                    applied += 1;
                } else {
                    gone += 1;
                }
            },
        );
        let next = finishing.slide()?;
        Ok(Report { next, applied, gone, dispatch: false })
    }

    /// Finishes one message and keeps the rest. O(n).
    ///
    /// # Errors
    /// [`RemoveError::Unknown`] when it is not in this lease, [`RemoveError::Passed`] when
    /// somebody else has finished or revoked it.
    pub fn finish(&mut self, offset: u64) -> Result<Next, RemoveError> {
        let part = self.part.part();
        let stale = |Stale| RemoveError::Stale;
        let found = self.held.items().binary_search_by_key(&offset, Held::offset).ok();
        let Some(mut held) = found.and_then(|index| self.held.remove(index)) else {
            part.current().map_err(stale)?;
            return Err(RemoveError::Unknown);
        };
        let pin = self.part.pin();
        let mut finishing = Finishing::new(part, &pin);
        let won = finish(&mut finishing, part, &mut held, &pin);
        let next = finishing.slide().map_err(stale)?;
        if won { Ok(next) } else { Err(RemoveError::Passed) }
    }

    /// Takes the messages for which `which` says so into a lease of their own; this one keeps the
    /// rest. Nothing changes in the window. O(n), and O(n) for each message taken out.
    ///
    /// ```
    /// use inflight::{RingWindow, Window};
    ///
    /// let window = RingWindow::<u8, 8>::new();
    /// let part = window.assign(0);
    /// part.put_batch(&mut (0..4).map(|n| (n, 7)))?;
    /// let mut lease = part.take_shared(4)?;
    /// let later = lease.split(|held| held.offset() % 2 == 0);
    /// assert_eq!((lease.commit()?.applied, later.len()), (2, 2));
    /// assert_eq!(later.commit()?.next.get(), 4);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn split(&mut self, mut which: impl FnMut(&Held<Value<R>>) -> bool) -> Self {
        // Every message is in one of the two leases whenever `which` runs: it may panic.
        let mut taken = Self { part: self.part.clone(), held: S::with_room(0) };
        let mut index = 0;
        while let Some(held) = self.held.items().get(index) {
            if which(held) {
                if let Some(held) = self.held.remove(index) {
                    taken.held.push(held);
                }
            } else {
                index += 1;
            }
        }
        taken
    }

    /// Gives all messages back: ready again, taken before later ones. `applied` counts them.
    ///
    /// # Errors
    /// [`Stale`] when the assignment has ended.
    pub fn rollback(mut self) -> Result<Report, Stale> {
        let (applied, gone, dispatch) = self.return_rest();
        let next = self.part.watermark()?;
        Ok(Report { next, applied, gone, dispatch })
    }

    fn return_rest(&mut self) -> (usize, usize, bool) {
        give_back(&self.part, self.held.items_mut())
    }

    /// Ends the lease and keeps its messages held: each waits to be removed by number, or revoked.
    pub fn detach(mut self) {
        for held in self.held.items_mut() {
            held.state = None;
        }
    }

    /// As [`SharedLease::detach`], with a receipt that can give the messages back. The clones are
    /// dropped; when the drop of one panics, all messages are given back and the panic goes on.
    ///
    /// ```
    /// use inflight::{RingWindow, Window};
    ///
    /// let window = RingWindow::<String, 8>::new();
    /// let part = window.assign(0);
    /// part.put(0, "try again later".to_owned())?;
    /// let detached = part.take_shared(1)?.into_detached();
    /// // Held, and nobody has a clone.
    /// assert!(part.take_shared(1).is_err());
    /// // The time has come.
    /// assert_eq!(detached.give_back()?.applied, 1);
    /// assert_eq!(part.take_shared(1)?.messages()[0].deliveries(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn into_detached(mut self) -> Detached<R, S::Bare> {
        let part = self.part.clone();
        let mut detached = Detached::new(part, self.held.items_mut());
        let back = OrBack(&mut detached);
        // User code: the drop of each clone. Without its words the lease gives nothing back.
        drop(self);
        core::mem::forget(back);
        detached
    }

    /// The clones, moved out: each message is finished as it is yielded; one that somebody else
    /// has finished or revoked is left out. What was not yielded is given back when the iterator
    /// is dropped.
    pub fn into_values(mut self) -> Values<R, S> {
        self.held.items_mut().reverse();
        Values(self)
    }

    /// Stamps the messages anew: those still held count as taken at `now`.
    pub fn touch(&self, now: u64) {
        touch(&self.part, self.held.items(), now);
    }
}

/// Finishes a held message by its exact word, once.
fn finish<T, Sp: Space<Value = T> + ?Sized>(
    finishing: &mut Finishing<'_, '_, Sp>,
    part: crate::engine::Part<'_, Sp>,
    held: &mut Held<T>,
    pin: &Sp::Pin,
) -> bool {
    let Some(state) = held.state.take() else { return false };
    let Ok(place) = part.at(held.pos, pin) else { return false };
    let Some(taking) = place.slot.finish_held(state) else { return false };
    part.space.vacated(place.slot, || place.pos, pin);
    finishing.done(taking);
    true
}

impl<R: WindowRef, S: Shelf<Value<R>>> Drop for SharedLease<R, S> {
    fn drop(&mut self) {
        if self.held.items().iter().any(|held| held.state.is_some()) {
            self.return_rest();
        }
    }
}

impl<R: WindowRef, S: Shelf<Value<R>>> fmt::Debug for SharedLease<R, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(|(offset, _)| offset)).finish()
    }
}

impl<'a, R: WindowRef, S: Shelf<Value<R>>> IntoIterator for &'a SharedLease<R, S> {
    type Item = (u64, &'a Value<R>);
    type IntoIter = Iter<'a, Value<R>>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// The messages of a shared lease with their offsets, ascending.
#[derive(Debug)]
pub struct Iter<'a, T>(core::slice::Iter<'a, Held<T>>);

impl<T> Clone for Iter<'_, T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<'a, T> Iterator for Iter<'a, T> {
    type Item = (u64, &'a T);

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(|held| (held.offset, &held.value))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl<T> ExactSizeIterator for Iter<'_, T> {}
impl<T> core::iter::FusedIterator for Iter<'_, T> {}

macro_rules! values {
    ($(#[$meta:meta])* $vis:vis struct $name:ident($($body:tt)*);) => {
        $(#[$meta])*
        #[cfg(feature = "alloc")]
        $vis struct $name<R: WindowRef, S: Shelf<Value<R>> = DefaultShelf<Value<R>>>($($body)*);
        $(#[$meta])*
        #[cfg(not(feature = "alloc"))]
        $vis struct $name<R: WindowRef, S: Shelf<Value<R>>>($($body)*);
    };
}

values! {
    /// The clones of a shared lease: see [`SharedLease::into_values`].
    #[must_use = "what is not yielded is given back"]
    #[derive(Debug)]
    pub struct Values(SharedLease<R, S>);
}

impl<R: WindowRef, S: Shelf<Value<R>>> Iterator for Values<R, S> {
    type Item = (u64, Value<R>);

    fn next(&mut self) -> Option<Self::Item> {
        let part = self.0.part.part();
        let pin = self.0.part.pin();
        while let Some(mut held) = self.0.held.pop() {
            let mut finishing = Finishing::new(part, &pin);
            if finish(&mut finishing, part, &mut held, &pin) {
                let _ = finishing.slide();
                return Some((held.offset, held.value));
            }
        }
        None
    }
}

impl<R: WindowRef, S: Shelf<Value<R>>> core::iter::FusedIterator for Values<R, S> {}
