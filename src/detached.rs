//! [`Detached`]: the receipt for messages that are held and that no lease has.

use core::fmt;

use crate::assignment::Assignment;
use crate::error::{Report, Stale};
#[cfg(feature = "alloc")]
use crate::shelf::DefaultShelf;
use crate::shelf::{Held, Shelf, give_back, touch};
use crate::window::WindowRef;

macro_rules! detached {
    ($(#[$meta:meta])* $vis:vis struct $name:ident { $($body:tt)* }) => {
        $(#[$meta])*
        #[cfg(feature = "alloc")]
        $vis struct $name<R: WindowRef, S: Shelf<()> = DefaultShelf<()>> { $($body)* }
        $(#[$meta])*
        #[cfg(not(feature = "alloc"))]
        $vis struct $name<R: WindowRef, S: Shelf<()>> { $($body)* }
    };
}

detached! {
    /// The receipt for messages that were detached, to give them back later: see
    /// [`SharedLease::into_detached`](crate::SharedLease::into_detached).
    ///
    /// It knows each message by its exact word, and has no clone and no memory of the window. So it
    /// changes nothing of a message that was removed, revoked, given up, or put again meanwhile,
    /// and nothing of another assignment; and giving back costs no attempt, however often a message
    /// is detached and given back.
    ///
    /// Dropped, it leaves its messages held, as [`SharedLease::detach`](crate::SharedLease::detach)
    /// does: they wait to be removed by number, or revoked. It cannot be cloned: the second of two
    /// would take the message from whoever took it after the first.
    #[must_use = "without it these messages stay held until they are removed or revoked"]
    pub struct Detached {
        part: Assignment<R>,
        held: S,
    }
}

/// The receipt for at most `B` messages, without an allocator.
pub type DetachedIn<R, const B: usize> = Detached<R, heapless::Vec<Held<()>, B>>;

impl<R: WindowRef, S: Shelf<()>> Detached<R, S> {
    /// Takes the words out of what a lease has.
    pub(crate) fn new<T>(part: Assignment<R>, items: &mut [Held<T>]) -> Self {
        let mut held = S::with_room(items.len());
        for item in items {
            let Held { offset, pos, deliveries, .. } = *item;
            held.push(Held { offset, pos, deliveries, state: item.state.take(), value: () });
        }
        Self { part, held }
    }

    /// How many messages it is for, also those that are gone by now. O(1).
    pub fn len(&self) -> usize {
        self.held.items().len()
    }

    /// Is it for no message?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The offsets of the messages, ascending, also of those that are gone by now.
    ///
    /// ```
    /// use inflight::{RingWindow, Window};
    ///
    /// let window = RingWindow::<u8, 8>::new();
    /// let part = window.assign(5);
    /// part.put_batch(&mut (5..8).map(|n| (n, 0)))?;
    /// let detached = part.take_shared(2)?.into_detached();
    /// assert!(detached.offsets().eq([5, 6]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn offsets(&self) -> impl ExactSizeIterator<Item = u64> + DoubleEndedIterator + '_ {
        self.held.items().iter().map(Held::offset)
    }

    /// Stamps the messages anew: those still held count as taken at `now`, a tick of the clock of
    /// [`Assignment::at`]. A tick to come keeps them from being stalled until it has passed. O(n).
    ///
    /// ```
    /// use inflight::{RingWindow, Window};
    ///
    /// let window = RingWindow::<u8, 8>::new();
    /// let part = window.assign(0);
    /// part.put(0, 42)?;
    /// let detached = part.at(100).take_shared(1)?.into_detached();
    /// detached.touch(500);
    /// assert_eq!(part.stalled(550, 60)?.count(), 0);
    /// assert_eq!(part.stalled(600, 60)?.count(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn touch(&self, now: u64) {
        touch(&self.part, self.held.items(), now);
    }

    /// Gives the messages back: ready again, taken before later ones. `applied` counts them, `gone`
    /// those that somebody else has finished or revoked. No user code runs. O(n).
    ///
    /// # Errors
    /// [`Stale`] when the assignment has ended.
    ///
    /// ```
    /// use inflight::{RingWindow, Window};
    ///
    /// let window = RingWindow::<u8, 8>::new();
    /// let part = window.assign(0);
    /// part.put_batch(&mut (0..3).map(|n| (n, 0)))?;
    /// let detached = part.take_shared(2)?.into_detached();
    /// part.remove(0)?;
    /// let report = detached.give_back()?;
    /// assert_eq!((report.next.get(), report.applied, report.gone), (1, 1, 1));
    /// assert_eq!(part.take(1)?.iter().next(), Some((1, &0)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn give_back(mut self) -> Result<Report, Stale> {
        let (applied, gone, dispatch) = self.return_all();
        let next = self.part.watermark()?;
        Ok(Report { next, applied, gone, dispatch })
    }

    fn return_all(&mut self) -> (usize, usize, bool) {
        give_back(&self.part, self.held.items_mut())
    }
}

/// Gives the messages of a receipt back, unless it is forgotten.
pub(crate) struct OrBack<'a, R: WindowRef, S: Shelf<()>>(pub(crate) &'a mut Detached<R, S>);

impl<R: WindowRef, S: Shelf<()>> Drop for OrBack<'_, R, S> {
    fn drop(&mut self) {
        self.0.return_all();
    }
}

impl<R: WindowRef, S: Shelf<()>> fmt::Debug for Detached<R, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.offsets()).finish()
    }
}
