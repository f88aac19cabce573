//! [`Window`]: what both kinds of window are to their users, and the references to them.

use core::fmt;

use crate::assignment::Assignment;
use crate::engine::{Space, Words, assign};
use crate::error::SkipReason;
use crate::flow::Usage;

/// Closed to implementations outside: a window's slots follow a protocol that is this crate's.
pub trait Sealed {}

/// An in-flight window: made empty, worked on through an [`Assignment`].
///
/// Everything here may be called at any time from any thread or interrupt. It counts what the
/// window holds, of whichever assignment; offsets are the assignment's.
pub trait Window: Sealed {
    /// The message.
    type Value;

    #[doc(hidden)]
    type Space: Space<Value = Self::Value> + ?Sized;

    #[doc(hidden)]
    fn space(&self) -> &Self::Space;

    #[doc(hidden)]
    fn pin(&self) -> <Self::Space as Space>::Pin;

    /// The largest number of messages in the window; none when only memory limits it.
    fn capacity(&self) -> Option<usize>;

    /// Begins an assignment: the partition is consumed from offset `start` on.
    ///
    /// The last one wins. Every older one is over when this returns: its calls answer `Stale`,
    /// messages of it that wait or are held in shared leases are dropped here, those that a call
    /// or a lending lease has just then are dropped by it. So this is also how a partition is
    /// reset, and how it is fenced off when it was lost.
    ///
    /// O(capacity), lock-free. Panics only if the drop of a message does. RocketMQ: `clear`, the
    /// dropped flag.
    ///
    /// ```
    /// use inflight::{RingWindow, Window};
    ///
    /// let window = RingWindow::<u32, 8>::new();
    /// let old = window.assign(0);
    /// old.put(0, 10)?;
    /// let new = window.assign(0);
    /// assert!(old.put(1, 11).is_err());
    /// assert_eq!(new.watermark()?.get(), 0);
    /// assert_eq!(window.count(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn assign(&self, start: u64) -> Assignment<&Self>
    where
        Self: Sized,
    {
        Assignment::new(self, assign(self.space(), start, &self.pin()))
    }

    /// As [`Window::assign`], by a handle that owns the window: it and its leases go into
    /// threads and tasks, and keep the window alive.
    ///
    /// Not on targets without compare-exchange of their own, which have no `Arc`.
    #[cfg(all(feature = "alloc", target_has_atomic = "ptr"))]
    fn assign_owned(self: &alloc::sync::Arc<Self>, start: u64) -> Assignment<alloc::sync::Arc<Self>>
    where
        Self: Sized,
    {
        Assignment::new(alloc::sync::Arc::clone(self), assign(self.space(), start, &self.pin()))
    }

    /// Messages admitted and not finished, waiting and held. Exact when no call is running;
    /// otherwise never negative, and possibly too high by what passes while it looks. O(1).
    fn count(&self) -> usize {
        self.usage().count
    }

    /// Bytes of the messages admitted and not finished, as given at put. As [`Window::count`].
    fn bytes(&self) -> u64 {
        self.usage().bytes
    }

    /// Count and bytes of one moment. As [`Window::count`].
    fn usage(&self) -> Usage {
        self.space().words().flow.usage()
    }

    /// `end - watermark`: what a restart would have to look at again. O(1).
    fn span(&self) -> u64 {
        self.space().words().span()
    }

    /// How many messages were given up by [`Assignment::skip`] for this reason, since the window
    /// was made. O(1).
    fn skipped(&self, reason: SkipReason) -> usize {
        self.space().words().skipped(reason)
    }

    /// Is nothing unfinished? As [`Window::count`].
    fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// Takes out the lowest message that is left, with its offset, whatever it was doing. For the
    /// end: alone with the window, no lease can be alive, only forgotten.
    fn drain_next(&mut self) -> Option<(u64, Self::Value)>;

    /// Takes out what is left, lowest first. What it did not yield is left.
    fn drain(&mut self) -> Drain<'_, Self>
    where
        Self: Sized,
    {
        Drain(self)
    }
}

#[cfg(feature = "alloc")]
impl<W: Window> Sealed for alloc::boxed::Box<W> {}
#[cfg(feature = "alloc")]
impl<W: Window> Window for alloc::boxed::Box<W> {
    type Value = W::Value;
    type Space = W::Space;

    #[inline(always)]
    fn space(&self) -> &W::Space {
        (**self).space()
    }

    #[inline(always)]
    fn pin(&self) -> <W::Space as Space>::Pin {
        (**self).pin()
    }

    fn capacity(&self) -> Option<usize> {
        (**self).capacity()
    }

    fn drain_next(&mut self) -> Option<(u64, W::Value)> {
        (**self).drain_next()
    }
}

/// What is left in a window, lowest first: see [`Window::drain`].
#[derive(Debug)]
#[must_use = "nothing is taken out until it is iterated"]
pub struct Drain<'a, W>(&'a mut W);

impl<W: Window> Iterator for Drain<'_, W> {
    type Item = (u64, W::Value);

    fn next(&mut self) -> Option<Self::Item> {
        self.0.drain_next()
    }
}

/// A way to hold on to a window: `&W`, or `Arc<W>` with the feature `alloc`.
pub trait WindowRef: Clone + RefSealed {
    /// The window.
    type Window: Window;

    /// The window.
    fn window(&self) -> &Self::Window;

    #[doc(hidden)]
    #[inline(always)]
    fn pin(&self) -> <<Self::Window as Window>::Space as Space>::Pin {
        self.window().pin()
    }
}

/// Closed: an assignment relies on the reference always leading to the same window.
pub trait RefSealed {}

impl<W: Window> RefSealed for &W {}
impl<W: Window> WindowRef for &W {
    type Window = W;

    #[inline(always)]
    fn window(&self) -> &W {
        self
    }
}

#[cfg(all(feature = "alloc", target_has_atomic = "ptr"))]
impl<W: Window> RefSealed for alloc::sync::Arc<W> {}
#[cfg(all(feature = "alloc", target_has_atomic = "ptr"))]
impl<W: Window> WindowRef for alloc::sync::Arc<W> {
    type Window = W;

    #[inline(always)]
    fn window(&self) -> &W {
        self
    }
}

/// The message of the window behind a reference.
pub type Value<R> = <<R as WindowRef>::Window as Window>::Value;

/// The short picture of a window.
pub(crate) fn debug(
    name: &str,
    capacity: Option<usize>,
    words: &Words,
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    let usage = words.flow.usage();
    let mut picture = f.debug_struct(name);
    if let Some(capacity) = capacity {
        picture.field("capacity", &capacity);
    }
    picture.field("count", &usage.count).field("bytes", &usage.bytes);
    picture.field("span", &words.span()).finish()
}
