//! [`Lease`]: the lending lease. Exclusive, in place, any `T`, not revocable.

use core::fmt;
use core::iter::FusedIterator;
use core::marker::PhantomData;

use crate::assignment::Assignment;
use crate::engine::{Finishing, GivenBack, Part, Space, for_each};
use crate::error::{Next, RemoveError, Report, Stale};
use crate::slot::{Chain, Links, Slot};
use crate::sync::UNWINDS;
use crate::window::{Value, WindowRef};

/// Messages lent in place to one party: nobody else can finish or take them.
///
/// Dropped without a word, also by a panic, it gives its messages back: they are taken again
/// before later ones. **A lease that is forgotten (`mem::forget`) pins its messages until the
/// window is dropped**, and with them the watermark; [`Assignment::head`] shows `Lent`.
///
/// A lease never is empty when it is taken; [`Lease::finish`] can make it so.
#[must_use = "a lease that is dropped gives its messages back"]
pub struct Lease<R: WindowRef> {
    part: Assignment<R>,
    chain: Chain<Value<R>>,
    /// It shows `&T` to whoever shares it: `Sync` is granted below, by `T`.
    marker: PhantomData<*const ()>,
}

// SAFETY: a lease owns its messages like values, and its handle is `Send` by itself.
unsafe impl<R: WindowRef + Send> Send for Lease<R> where Value<R>: Send {}
// SAFETY: a shared lease gives out only `&T`; all that changes anything takes the lease itself.
unsafe impl<R: WindowRef + Sync> Sync for Lease<R> where Value<R>: Sync {}

/// One message of a lease.
#[derive(Debug)]
#[non_exhaustive]
pub struct Message<'a, T> {
    /// Its offset in the log.
    pub offset: u64,
    /// How often it was taken, this time included.
    pub deliveries: u32,
    /// The message.
    pub value: &'a T,
}

impl<R: WindowRef> Lease<R> {
    /// # Safety
    /// The chain's slots are LENT to the caller, in the window of `part`.
    #[inline(always)]
    pub(crate) unsafe fn new(part: Assignment<R>, chain: Chain<Value<R>>) -> Self {
        Self { part, chain, marker: PhantomData }
    }

    /// How many messages.
    pub fn len(&self) -> usize {
        self.chain.len()
    }

    /// Has every message been finished?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The messages with their offsets, ascending.
    pub fn iter(&self) -> Iter<'_, Value<R>> {
        // SAFETY: the chain's slots are this lease's, which is borrowed meanwhile.
        Iter(unsafe { self.chain.links() })
    }

    /// The messages with offset and deliveries, ascending.
    pub fn messages(&self) -> impl Iterator<Item = Message<'_, Value<R>>> {
        // SAFETY: the chain's slots are this lease's, which is borrowed meanwhile.
        unsafe { self.chain.links() }.map(|slot| Message {
            // SAFETY: as above.
            offset: unsafe { slot.offset() },
            deliveries: slot.deliveries(),
            // SAFETY: as above.
            value: unsafe { slot.value() },
        })
    }

    /// Finishes all messages.
    ///
    /// # Errors
    /// [`Stale`] when the assignment has ended; the messages are dropped all the same.
    ///
    /// O(n) and the slide. RocketMQ: `commit`, and `removeMessage` of the batch.
    #[inline]
    pub fn commit(mut self) -> Result<Report, Stale> {
        let len = self.chain.len();
        let part = self.part.part();
        let pin = self.part.pin();
        let mut committing =
            Committing { chain: &mut self.chain, finishing: Finishing::new(part, &pin), doomed: 0 };
        committing.run();
        let gone = committing.doomed;
        let next = committing.finishing.slide()?;
        Ok(Report { next, applied: len - gone, gone, dispatch: false })
    }

    /// Finishes the messages whose offsets are given, gives the rest back. Offsets that are not
    /// in the lease count as `gone`.
    ///
    /// # Errors
    /// [`Stale`] when the assignment has ended.
    ///
    /// O(n) when the offsets ascend, O(n²) at worst.
    pub fn commit_only(self, done: impl IntoIterator<Item = u64>) -> Result<Report, Stale> {
        let mut lease = self;
        let mut gone = 0;
        let mut offsets = done.into_iter();
        let report = lease.finish_each(|chain| {
            let offset = offsets.next()?;
            // SAFETY: the chain's slots are this lease's.
            let slot = unsafe { chain.unlink(offset) };
            gone += usize::from(slot.is_none());
            Some(slot)
        })?;
        let back = lease.rollback()?;
        Ok(Report { gone: gone + report.gone + back.gone, dispatch: back.dispatch, ..report })
    }

    /// Finishes the messages for which `done` says so, gives the rest back. O(n).
    ///
    /// # Errors
    /// [`Stale`] when the assignment has ended.
    pub fn commit_where(
        self,
        mut done: impl FnMut(u64, &Value<R>) -> bool,
    ) -> Result<Report, Stale> {
        let mut lease = self;
        let mut left = lease.len();
        let report = lease.finish_each(|chain| {
            left = left.checked_sub(1)?;
            // SAFETY: the chain's slots are this lease's. The first is taken off, and put back at
            // the end unless it is done, so each is looked at once, in order.
            unsafe {
                let slot = chain.head()?.as_ref();
                if done(slot.offset(), slot.value()) {
                    return Some(chain.pop());
                }
                if let Some(slot) = chain.pop() {
                    chain.push(slot);
                }
            }
            Some(None)
        })?;
        let back = lease.rollback()?;
        Ok(Report { gone: report.gone + back.gone, dispatch: back.dispatch, ..report })
    }

    /// Finishes what `next` takes off the chain until it says none.
    fn finish_each<'s>(
        &mut self,
        mut next: impl FnMut(&mut Chain<Value<R>>) -> Option<Option<&'s Slot<Value<R>>>>,
    ) -> Result<Report, Stale>
    where
        Value<R>: 's,
    {
        let part = self.part.part();
        let pin = self.part.pin();
        let mut finishing = Finishing::new(part, &pin);
        let (mut applied, mut gone) = (0, 0);
        let chain = &mut self.chain;
        for_each(
            || next(chain),
            |slot| {
                let Some(slot) = slot else { return };
                // SAFETY: it was in this lease's chain a moment ago.
                let taking = unsafe { part.finish_lent(slot, &pin) };
                gone += usize::from(taking.doomed);
                applied += usize::from(!taking.doomed);
                finishing.done(taking);
            },
        );
        let next = finishing.slide()?;
        Ok(Report { next, applied, gone, dispatch: false })
    }

    /// Finishes one message and keeps the rest. O(n).
    ///
    /// # Errors
    /// [`RemoveError::Unknown`] when it is not in this lease, [`RemoveError::Passed`] when the
    /// floor has passed it.
    pub fn finish(&mut self, offset: u64) -> Result<Next, RemoveError> {
        // SAFETY: the chain's slots are this lease's.
        let Some(slot) = (unsafe { self.chain.unlink(offset) }) else {
            self.part.part().current().map_err(|Stale| RemoveError::Stale)?;
            return Err(RemoveError::Unknown);
        };
        let mut slot = Some(slot);
        let report = self.finish_each(|_| slot.take().map(Some));
        let report = report.map_err(|Stale| RemoveError::Stale)?;
        if report.gone == 0 { Ok(report.next) } else { Err(RemoveError::Passed) }
    }

    /// Gives all messages back: ready again, taken before later ones. `applied` counts them.
    /// RocketMQ: `rollback`, `makeMessageToConsumeAgain`.
    ///
    /// # Errors
    /// [`Stale`] when the assignment has ended; the messages are dropped.
    pub fn rollback(mut self) -> Result<Report, Stale> {
        let len = self.chain.len();
        let GivenBack { gone, dispatch } = self.give_back()?;
        let next = self.part.watermark()?;
        Ok(Report { next, applied: len - gone, gone, dispatch })
    }

    fn give_back(&mut self) -> Result<GivenBack, Stale> {
        let part = self.part.part();
        let pin = self.part.pin();
        // SAFETY: the chain's slots are this lease's.
        unsafe { part.give_back(&mut self.chain, &pin) }
    }

    /// Ends the lease and keeps its messages held: each waits to be removed by number, or
    /// revoked. For messages that were sent on, and whose completion comes later.
    pub fn detach(mut self) {
        let part = self.part.part();
        let pin = self.part.pin();
        // SAFETY: the chain's slots are this lease's.
        while let Some(slot) = unsafe { self.chain.pop() } {
            // SAFETY: as above.
            if unsafe { slot.hold() }.is_none() {
                // SAFETY: doomed, and still this lease's.
                let taking = unsafe { part.finish_lent(slot, &pin) };
                part.settle(1, taking.bytes, &pin);
                drop(taking.value);
            }
        }
    }

    /// The values, moved out: each message is finished as it is yielded; what was not yielded is
    /// given back when the iterator is dropped.
    pub fn into_values(self) -> Values<R> {
        Values(self)
    }

    /// Stamps the messages anew: they count as taken at `now`.
    pub fn touch(&self, now: u64) {
        // SAFETY: the chain's slots are this lease's, which is borrowed meanwhile.
        for slot in unsafe { self.chain.links() } {
            slot.stamp(Some(now));
        }
    }
}

/// A commit under way; the rest is finished also when the drop of a message panics.
struct Committing<'c, 'a, 'p, S: Space + ?Sized> {
    chain: &'c mut Chain<S::Value>,
    finishing: Finishing<'a, 'p, S>,
    doomed: usize,
}

impl<S: Space + ?Sized> Committing<'_, '_, '_, S> {
    #[inline(always)]
    fn run(&mut self) {
        // SAFETY: the chain is the lease's that is being committed.
        while let Some(slot) = unsafe { self.chain.pop() } {
            // SAFETY: as above.
            let taking = unsafe { self.finishing.finish_lent(slot) };
            self.doomed += usize::from(taking.doomed);
            self.finishing.done(taking);
        }
    }
}

impl<S: Space + ?Sized> Drop for Committing<'_, '_, '_, S> {
    #[inline(always)]
    fn drop(&mut self) {
        if UNWINDS {
            self.run();
        }
    }
}

impl<R: WindowRef> Drop for Lease<R> {
    #[inline]
    fn drop(&mut self) {
        if self.chain.len() > 0 {
            let _ = self.give_back();
        }
    }
}

impl<R: WindowRef> fmt::Debug for Lease<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut offsets = f.debug_set();
        offsets.entries(self.iter().map(|(offset, _)| offset)).finish()
    }
}

impl<'a, R: WindowRef> IntoIterator for &'a Lease<R> {
    type Item = (u64, &'a Value<R>);
    type IntoIter = Iter<'a, Value<R>>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// The messages of a lease with their offsets, ascending.
pub struct Iter<'a, T>(Links<'a, T>);

impl<T> Clone for Iter<'_, T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> fmt::Debug for Iter<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Iter").field("len", &self.len()).finish()
    }
}

impl<'a, T> Iterator for Iter<'a, T> {
    type Item = (u64, &'a T);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let slot = self.0.next()?;
        // SAFETY: the lease that made the iterator is borrowed for `'a`, and its slots are its own.
        Some(unsafe { (slot.offset(), slot.value()) })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl<T> ExactSizeIterator for Iter<'_, T> {}
impl<T> FusedIterator for Iter<'_, T> {}

/// The values of a lease: see [`Lease::into_values`].
#[must_use = "what is not yielded is given back"]
#[derive(Debug)]
pub struct Values<R: WindowRef>(Lease<R>);

impl<R: WindowRef> Iterator for Values<R> {
    type Item = (u64, Value<R>);

    fn next(&mut self) -> Option<Self::Item> {
        let part: Part<'_, _> = self.0.part.part();
        let pin = self.0.part.pin();
        // SAFETY: the chain's slots are the lease's.
        let slot = unsafe { self.0.chain.pop()? };
        // SAFETY: as above; read before it is finished.
        let offset = unsafe { slot.offset() };
        // SAFETY: as above.
        let taking = unsafe { part.finish_lent(slot, &pin) };
        part.settle(1, taking.bytes, &pin);
        Some((offset, taking.value))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.0.len(), Some(self.0.len()))
    }
}

impl<R: WindowRef> ExactSizeIterator for Values<R> {}
impl<R: WindowRef> FusedIterator for Values<R> {}
