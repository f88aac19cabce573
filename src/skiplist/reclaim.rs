//! When memory of the skip list may be freed: a thin layer over `crossbeam-epoch`, or, under
//! loom, a stand-in that notices a use after free.

#[cfg(not(loom))]
pub(crate) use epoch::*;
#[cfg(loom)]
pub use stand_in::*;

#[cfg(not(loom))]
mod epoch {
    use alloc::boxed::Box;
    use core::cell::Cell;

    use crossbeam_epoch::Guard;
    #[cfg(not(feature = "std"))]
    use crossbeam_epoch::{Collector, LocalHandle};

    /// By itself the collector frees at most 512 objects at every 128th pin of a thread: more than
    /// this for each pin would pile up without bound.
    const FREED_BY_ITSELF: u32 = 4;

    /// What was in the list when this was made stays alive until it is dropped.
    pub struct Pin {
        guard: Guard,
        /// How many objects were retired by it.
        retired: Cell<u32>,
    }

    impl From<Guard> for Pin {
        #[inline(always)]
        fn from(guard: Guard) -> Self {
            Self { guard, retired: Cell::new(0) }
        }
    }

    impl Drop for Pin {
        #[inline(always)]
        fn drop(&mut self) {
            if self.retired.get() > FREED_BY_ITSELF {
                self.guard.flush();
            }
        }
    }

    impl Pin {
        /// Frees `target` when every pin of now is gone.
        ///
        /// # Safety
        /// `target` came from a box, no new pin can reach it, it is retired once, and it holds no
        /// message any more.
        pub(crate) unsafe fn retire<T: ?Sized>(&self, target: *mut T) {
            self.retired.set(self.retired.get().saturating_add(1));
            // SAFETY: promised by the caller. Without messages, freeing it on another thread, or
            // after the end of the messages' lifetime, touches none.
            unsafe { self.guard.defer_unchecked(move || drop(Box::from_raw(target))) };
        }
    }

    /// Whose pins keep a list's memory alive. With `std`: the process's own collector, in which
    /// every thread has a place.
    #[cfg(feature = "std")]
    pub(crate) struct Domain;

    /// One party that pins.
    #[cfg(feature = "std")]
    pub(crate) struct Member;

    #[cfg(feature = "std")]
    impl Domain {
        pub(crate) const fn new() -> Self {
            Self
        }

        #[inline(always)]
        pub(crate) fn pin(&self) -> Pin {
            crossbeam_epoch::pin().into()
        }

        pub(crate) fn register(&self) -> Member {
            Member
        }
    }

    #[cfg(feature = "std")]
    impl Member {
        #[inline(always)]
        pub(crate) fn pin(&self) -> Pin {
            crossbeam_epoch::pin().into()
        }
    }

    /// Whose pins keep a list's memory alive. Without `std` each list has a collector, made at
    /// its first call since it cannot be made in a constant.
    #[cfg(not(feature = "std"))]
    pub(crate) struct Domain(crate::sync::AtomicPtr<Collector>);

    /// One party that pins.
    #[cfg(not(feature = "std"))]
    pub(crate) struct Member(LocalHandle);

    #[cfg(not(feature = "std"))]
    impl Domain {
        pub(crate) const fn new() -> Self {
            Self(crate::sync::AtomicPtr::new(core::ptr::null_mut()))
        }

        fn collector(&self) -> &Collector {
            use crate::sync::Ordering::{AcqRel, Acquire};

            let made = self.0.load(Acquire);
            // SAFETY: once made, it lives as long as this.
            if let Some(collector) = unsafe { made.as_ref() } {
                return collector;
            }
            let new = Box::into_raw(Box::new(Collector::new()));
            match self.0.compare_exchange(made, new, AcqRel, Acquire) {
                // SAFETY: as above.
                Ok(_) => unsafe { &*new },
                Err(other) => {
                    // SAFETY: never shown to anybody.
                    drop(unsafe { Box::from_raw(new) });
                    // SAFETY: as above.
                    unsafe { &*other }
                }
            }
        }

        /// Registers for this one call: an allocation of some 2 KB, and a place in the list that
        /// every collection walks. A member pins for nothing.
        pub(crate) fn pin(&self) -> Pin {
            self.collector().register().pin().into()
        }

        pub(crate) fn register(&self) -> Member {
            Member(self.collector().register())
        }
    }

    #[cfg(not(feature = "std"))]
    impl Member {
        #[inline(always)]
        pub(crate) fn pin(&self) -> Pin {
            self.0.pin().into()
        }
    }

    #[cfg(not(feature = "std"))]
    impl Drop for Domain {
        fn drop(&mut self) {
            let made = self.0.load(crate::sync::Ordering::Acquire);
            if !made.is_null() {
                // SAFETY: `&mut self`; members borrow the window, so none is alive. What is
                // retired is freed with it.
                drop(unsafe { Box::from_raw(made) });
            }
        }
    }

    /// `target` is about to be used.
    #[inline(always)]
    pub(crate) fn check<T>(_: *const T) {}
}

/// Under loom an object counts as free for everybody but the parties whose pins were alive when it
/// was retired: each use checks that its thread has such a pin. That is stricter than freeing it
/// when the last of those pins ends, and needs no third thread to do so. The memory itself is kept
/// until [`forget_all`], so that no address comes back within one execution.
///
/// `crossbeam-epoch` has sequentially consistent fences where it pins and where it hands garbage
/// over: whoever pins after that sees what was done before. Here there are such fences only once
/// something has been retired, since the protocol of the slots must not need them.
#[cfg(loom)]
mod stand_in {
    extern crate std;

    use alloc::collections::{BTreeMap, BTreeSet};
    use alloc::vec::Vec;
    use core::alloc::Layout;
    use core::cell::RefCell;

    use loom::sync::atomic::{Ordering::SeqCst, fence};
    use loom::thread::{ThreadId, current};

    #[derive(Default)]
    struct Registry {
        next: usize,
        pins: BTreeMap<usize, ThreadId>,
        /// Address of a retired object, and the pins it waits for.
        retired: BTreeMap<usize, BTreeSet<usize>>,
        memory: Vec<(usize, Layout)>,
    }

    // All threads of a model run on one thread of the system.
    std::thread_local! {
        static REGISTRY: RefCell<Registry> = RefCell::new(Registry::default());
    }

    /// What was in the list when this was made stays alive until it is dropped.
    pub struct Pin(usize);

    /// Whose pins keep a list's memory alive.
    pub(crate) struct Domain;

    /// One party that pins.
    pub(crate) struct Member;

    impl Domain {
        pub(crate) fn new() -> Self {
            Self
        }

        pub(crate) fn pin(&self) -> Pin {
            pin()
        }

        pub(crate) fn register(&self) -> Member {
            Member
        }
    }

    impl Member {
        pub(crate) fn pin(&self) -> Pin {
            pin()
        }
    }

    fn pin() -> Pin {
        let (pin, late) = REGISTRY.with_borrow_mut(|registry| {
            registry.next += 1;
            registry.pins.insert(registry.next, current().id());
            (Pin(registry.next), !registry.retired.is_empty())
        });
        if late {
            fence(SeqCst);
        }
        pin
    }

    impl Drop for Pin {
        fn drop(&mut self) {
            REGISTRY.with_borrow_mut(|registry| {
                registry.pins.remove(&self.0);
                for waits_for in registry.retired.values_mut() {
                    waits_for.remove(&self.0);
                }
            });
        }
    }

    impl Pin {
        /// Frees `target` when every pin of now is gone.
        ///
        /// # Safety
        /// `target` came from a box, no new pin can reach it, it is retired once, and it holds no
        /// message any more.
        pub(crate) unsafe fn retire<T: ?Sized>(&self, target: *mut T) {
            // SAFETY: promised by the caller: nobody has freed it.
            let layout = Layout::for_value(unsafe { &*target });
            let address = target.cast::<()>().expose_provenance();
            fence(SeqCst);
            REGISTRY.with_borrow_mut(|registry| {
                let pins = registry.pins.keys().copied().collect();
                let twice = registry.retired.insert(address, pins).is_some();
                assert!(!twice, "retired twice");
                registry.memory.push((address, layout));
            });
        }
    }

    /// `target` is about to be used: it must not be free.
    pub(crate) fn check<T>(target: *const T) {
        REGISTRY.with_borrow(|registry| {
            if let Some(waits_for) = registry.retired.get(&target.addr()) {
                let here = Some(current().id());
                let pinned = waits_for.iter().any(|pin| registry.pins.get(pin).copied() == here);
                assert!(pinned, "used after it was free");
            }
        });
    }

    /// Frees everything that was retired. Called between executions.
    pub fn forget_all() {
        let memory = REGISTRY.with_borrow_mut(|registry| {
            (registry.pins, registry.retired) = Default::default();
            core::mem::take(&mut registry.memory)
        });
        for (address, layout) in memory {
            let memory = core::ptr::with_exposed_provenance_mut(address);
            // SAFETY: it came from a box of this layout and is freed once. Its drop is not run:
            // it would use atomics of an execution that is over.
            unsafe { alloc::alloc::dealloc(memory, layout) };
        }
    }
}
