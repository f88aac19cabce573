//! The one door to atomics, cells and fences: loom, `portable-atomic` or `core`.
//!
//! Nothing else in the core names an atomic type. Not for algorithms: only for what they stand on.
//!
//! The word of the core is as wide as a pointer: the widest that every target can
//! read-modify-write without a lock. `cfg(inflight_word32)` makes it 32 bits on a 64-bit host, so
//! that tests reach the wraps that a microcontroller reaches.

#[cfg(not(any(target_pointer_width = "32", target_pointer_width = "64")))]
compile_error!("inflight needs pointers of 32 or 64 bits");

#[cfg(not(any(loom, feature = "portable-atomic", target_has_atomic = "ptr")))]
compile_error!(
    "this target has no compare-exchange: enable the feature `critical-section` \
     (or `portable-atomic` with a choice of its own)"
);

/// Is the word 32 bits wide?
pub(crate) const NARROW: bool = Word::BITS == 32;

/// Can a panic of the user's code go through a call of the core and leave it to destructors to
/// finish? Where panics abort, what is there only for that is not in the program.
pub(crate) const UNWINDS: bool = cfg!(panic = "unwind");

#[cfg(any(target_pointer_width = "32", inflight_word32))]
pub(crate) type Word = u32;
#[cfg(not(any(target_pointer_width = "32", inflight_word32)))]
pub(crate) type Word = u64;

pub(crate) use imp::*;

#[cfg(all(not(loom), not(feature = "portable-atomic")))]
mod imp {
    #[cfg(all(feature = "alloc", target_has_atomic = "ptr"))]
    pub(crate) use core::sync::atomic::AtomicPtr;
    #[cfg(any(target_pointer_width = "32", inflight_word32))]
    pub(crate) use core::sync::atomic::AtomicU32 as AtomicWord;
    #[cfg(not(any(target_pointer_width = "32", inflight_word32)))]
    pub(crate) use core::sync::atomic::AtomicU64 as AtomicWord;
    pub(crate) use core::sync::atomic::{AtomicU32, Ordering};

    pub(crate) use super::plain::Cell;
}

#[cfg(all(not(loom), feature = "portable-atomic"))]
mod imp {
    #[cfg(all(feature = "alloc", target_has_atomic = "ptr"))]
    pub(crate) use portable_atomic::AtomicPtr;
    #[cfg(any(target_pointer_width = "32", inflight_word32))]
    pub(crate) use portable_atomic::AtomicU32 as AtomicWord;
    #[cfg(not(any(target_pointer_width = "32", inflight_word32)))]
    pub(crate) use portable_atomic::AtomicU64 as AtomicWord;
    pub(crate) use portable_atomic::{AtomicU32, Ordering};

    pub(crate) use super::plain::Cell;
}

#[cfg(not(loom))]
mod plain {
    use core::cell::UnsafeCell;

    /// An `UnsafeCell` with loom's way of being entered.
    pub(crate) struct Cell<T>(UnsafeCell<T>);

    impl<T> Cell<T> {
        pub(crate) const fn new(value: T) -> Self {
            Self(UnsafeCell::new(value))
        }

        #[inline(always)]
        pub(crate) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
            f(self.0.get())
        }

        #[inline(always)]
        pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
            f(self.0.get())
        }
    }
}

#[cfg(loom)]
mod imp {
    pub(crate) use loom::sync::atomic::Ordering;

    pub(crate) type Cell<T> = loom::cell::UnsafeCell<T>;

    #[cfg(any(target_pointer_width = "32", inflight_word32))]
    pub(crate) type AtomicWord = super::shim::Atomic32;
    #[cfg(not(any(target_pointer_width = "32", inflight_word32)))]
    pub(crate) type AtomicWord = super::shim::Atomic64;
    pub(crate) type AtomicU32 = super::shim::Atomic32;
    pub(crate) use super::shim::AtomicPtr;
}

/// loom's atomics, whose loads and stores can be made read-modify-writes.
///
/// loom keeps one last access per object, so a load that came early is never tried against a
/// later compare-exchange of the same object. As read-modify-writes all accesses are tried in
/// every order. A model is run both ways: plain accesses find weak orderings.
#[cfg(loom)]
mod shim {
    use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};

    use crate::control::accesses_are_rmw;

    fn rmw(order: Ordering) -> Ordering {
        match order {
            Ordering::Relaxed => Ordering::Relaxed,
            Ordering::SeqCst => Ordering::SeqCst,
            _ => Ordering::AcqRel,
        }
    }

    macro_rules! atomic {
        ($name:ident, $loom:ident, $word:ty) => {
            pub(crate) struct $name($loom);

            #[allow(dead_code)] // only one width is the word
            impl $name {
                pub(crate) fn new(value: $word) -> Self {
                    Self($loom::new(value))
                }

                pub(crate) fn load(&self, order: Ordering) -> $word {
                    if accesses_are_rmw() {
                        self.0.fetch_add(0, rmw(order))
                    } else {
                        self.0.load(order)
                    }
                }

                pub(crate) fn store(&self, value: $word, order: Ordering) {
                    if accesses_are_rmw() {
                        self.0.swap(value, rmw(order));
                    } else {
                        self.0.store(value, order);
                    }
                }

                pub(crate) fn swap(&self, value: $word, order: Ordering) -> $word {
                    self.0.swap(value, order)
                }

                pub(crate) fn compare_exchange(
                    &self,
                    current: $word,
                    new: $word,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$word, $word> {
                    self.0.compare_exchange(current, new, success, failure)
                }

                pub(crate) fn fetch_add(&self, value: $word, order: Ordering) -> $word {
                    self.0.fetch_add(value, order)
                }

                pub(crate) fn fetch_or(&self, value: $word, order: Ordering) -> $word {
                    self.0.fetch_or(value, order)
                }

                pub(crate) fn fetch_and(&self, value: $word, order: Ordering) -> $word {
                    self.0.fetch_and(value, order)
                }
            }
        };
    }

    /// A pointer kept as a number, since loom's own has no read-modify-write that changes nothing.
    pub(crate) struct AtomicPtr<T> {
        address: loom::sync::atomic::AtomicUsize,
        target: core::marker::PhantomData<*mut T>,
    }

    // SAFETY: as `core::sync::atomic::AtomicPtr`: the pointer is a value, whoever follows it
    // answers for that.
    unsafe impl<T> Send for AtomicPtr<T> {}
    // SAFETY: as above.
    unsafe impl<T> Sync for AtomicPtr<T> {}

    #[allow(dead_code)] // only windows with an allocator have pointers
    impl<T> AtomicPtr<T> {
        pub(crate) fn new(target: *mut T) -> Self {
            Self {
                address: loom::sync::atomic::AtomicUsize::new(target.expose_provenance()),
                target: core::marker::PhantomData,
            }
        }

        fn pointer(address: usize) -> *mut T {
            core::ptr::with_exposed_provenance_mut(address)
        }

        pub(crate) fn load(&self, order: Ordering) -> *mut T {
            Self::pointer(if accesses_are_rmw() {
                self.address.fetch_add(0, rmw(order))
            } else {
                self.address.load(order)
            })
        }

        pub(crate) fn store(&self, target: *mut T, order: Ordering) {
            if accesses_are_rmw() {
                self.address.swap(target.expose_provenance(), rmw(order));
            } else {
                self.address.store(target.expose_provenance(), order);
            }
        }

        pub(crate) fn swap(&self, target: *mut T, order: Ordering) -> *mut T {
            Self::pointer(self.address.swap(target.expose_provenance(), order))
        }

        pub(crate) fn compare_exchange(
            &self,
            current: *mut T,
            new: *mut T,
            success: Ordering,
            failure: Ordering,
        ) -> Result<*mut T, *mut T> {
            let (current, new) = (current.expose_provenance(), new.expose_provenance());
            self.address
                .compare_exchange(current, new, success, failure)
                .map(Self::pointer)
                .map_err(Self::pointer)
        }
    }

    atomic!(Atomic32, AtomicU32, u32);
    atomic!(Atomic64, AtomicU64, u64);
}

/// Keeps what one party writes off the cache lines that others write.
///
/// Two lines on x86-64 and AArch64 (their prefetchers fetch pairs), none on microcontrollers.
#[cfg_attr(
    any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "powerpc64"),
    repr(align(128))
)]
#[cfg_attr(
    any(target_arch = "x86", target_arch = "wasm32", target_arch = "riscv64"),
    repr(align(64))
)]
pub(crate) struct Padded<T>(pub(crate) T);

impl<T> core::ops::Deref for Padded<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0
    }
}

/// Makes a function `const` where atomics can be made in a constant: everywhere but under loom.
macro_rules! const_unless_loom {
    ($(#[$meta:meta])* $vis:vis const fn $($rest:tt)*) => {
        #[cfg(not(loom))]
        $(#[$meta])* $vis const fn $($rest)*
        #[cfg(loom)]
        $(#[$meta])* $vis fn $($rest)*
    };
}
pub(crate) use const_unless_loom;
