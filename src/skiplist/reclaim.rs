//! When memory of the skip list may be freed: a thin layer over `crossbeam-epoch`, or, under
//! loom, a stand-in that notices a use after free.

#[cfg(not(loom))]
pub(crate) use epoch::*;
#[cfg(loom)]
pub use stand_in::*;

#[cfg(not(loom))]
mod epoch {
    use alloc::boxed::Box;

    use crossbeam_epoch::Guard;

    /// What was in the list when this was made stays alive until it is dropped.
    pub struct Pin(Guard);

    /// Pins the current thread.
    #[inline(always)]
    pub(crate) fn pin() -> Pin {
        Pin(crossbeam_epoch::pin())
    }

    impl Pin {
        /// Frees `target` when every pin of now is gone.
        ///
        /// # Safety
        /// `target` came from a box, no new pin can reach it, it is retired once, and it holds no
        /// message any more.
        pub(crate) unsafe fn retire<T>(&self, target: *mut T) {
            // SAFETY: promised by the caller. Without messages, freeing it on another thread, or
            // after the end of the messages' lifetime, touches none.
            unsafe { self.0.defer_unchecked(move || drop(Box::from_raw(target))) };
        }
    }

    /// `target` is about to be used.
    #[inline(always)]
    pub(crate) fn check<T>(_: *const T) {}
}

/// Under loom an object counts as free as soon as every pin that was alive when it was retired
/// has ended; every use checks that it is not. The memory itself is kept until [`forget_all`], so
/// that no address comes back within one execution.
#[cfg(loom)]
mod stand_in {
    extern crate std;

    use alloc::collections::{BTreeMap, BTreeSet};
    use alloc::vec::Vec;
    use core::alloc::Layout;
    use core::cell::RefCell;

    #[derive(Default)]
    struct Registry {
        next: usize,
        pins: BTreeSet<usize>,
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

    pub(crate) fn pin() -> Pin {
        REGISTRY.with_borrow_mut(|registry| {
            registry.next += 1;
            registry.pins.insert(registry.next);
            Pin(registry.next)
        })
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
        pub(crate) unsafe fn retire<T>(&self, target: *mut T) {
            let address = target.expose_provenance();
            REGISTRY.with_borrow_mut(|registry| {
                let pins = registry.pins.clone();
                let twice = registry.retired.insert(address, pins).is_some();
                assert!(!twice, "retired twice");
                registry.memory.push((address, Layout::new::<T>()));
            });
        }
    }

    /// `target` is about to be used: it must not be free.
    pub(crate) fn check<T>(target: *const T) {
        REGISTRY.with_borrow(|registry| {
            if let Some(waits_for) = registry.retired.get(&target.addr()) {
                assert!(!waits_for.is_empty(), "used after it was free");
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
