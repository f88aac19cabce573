//! The in-flight window of a log consumer: which messages are waiting, held and finished, and
//! the one offset that is safe to persist, lock-free and without an allocator.
#![no_std]
// The word is 32 or 64 bits wide: a conversion that is useless here is needed there.
#![allow(clippy::useless_conversion, clippy::unnecessary_cast)]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "alloc")]
extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

#[cfg(all(feature = "std", not(loom), not(inflight_word32)))]
mod adapter;
mod assignment;
mod control;
mod engine;
mod error;
mod flow;
mod lease;
mod look;
mod position;
mod ring;
mod shared;
mod slot;
mod sync;
mod window;

/// The whole consumer over the windows: threads, clocks and files. See [`Consumer`](consumer::Consumer).
#[cfg(all(feature = "std", not(loom), not(inflight_word32)))]
pub mod consumer {
    #[doc(inline)]
    pub use crate::adapter::*;
}

pub use assignment::{Assignment, At};
pub use error::{
    AdvanceError, BatchPut, BatchPutError, BatchRemove, Next, Put, PutError, PutErrorKind,
    RemoveError, Report, RevokeError, Stale, TakeError,
};
pub use flow::Usage;
pub use lease::{Iter, Lease, Message, Values};
pub use look::{Look, Pending, Stage, Stalled};
pub use ring::RingWindow;
pub use shared::{
    Held, Iter as SharedIter, SharedLease, SharedLeaseIn, Shelf, Values as SharedValues,
};
pub use window::{Drain, Value, Window, WindowRef};

/// For the models: controls, branch counters, parts of the core by themselves.
#[cfg(loom)]
#[doc(hidden)]
pub mod model {
    pub use crate::control::{Branch, Control, clear_hits, hits, set_control, set_rmw};

    /// A wide watermark of 3 bits, which wraps every eight positions.
    pub struct Wide(crate::position::Halves<3>);

    impl Wide {
        /// At a position.
        pub fn new(at: u64) -> Self {
            Self(crate::position::Halves::new(at))
        }

        /// The position.
        pub fn load(&self) -> u64 {
            crate::position::Monotone::load(&self.0)
        }

        /// Raises the position.
        pub fn raise(&self, to: u64) -> u64 {
            crate::position::Monotone::raise(&self.0, to)
        }
    }
}
