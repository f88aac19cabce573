//! What the tests share: the kinds of window, counted messages, the reference model.
#![allow(dead_code, unused_macros, unused_imports)] // each test file uses a part of it

pub mod driver;
pub mod kinds;
pub mod message;
pub mod model;
pub mod real;
pub mod script;

pub use kinds::{Kind, RingKind, SkipKind, VARIANTS};
pub use message::{Ledger, Message};

/// Makes a test of each scenario, which is written once, over a [`Kind`] of window, and run for
/// every kind and every variant of where its words begin.
///
/// A new kind of window is one line here.
macro_rules! scenarios {
    ($($(#[$meta:meta])* fn $name:ident<$kind:ident>($variant:ident) $body:block)+) => {$(
        $(#[$meta])*
        #[test]
        fn $name() {
            fn scenario<$kind: $crate::common::Kind>($variant: usize) $body
            for variant in 0..$crate::common::VARIANTS {
                scenario::<$crate::common::RingKind>(variant);
                // crossbeam-epoch does not pass Miri's Stacked Borrows: that run leaves it out.
                #[cfg(not(inflight_ring_only))]
                scenario::<$crate::common::SkipKind>(variant);
            }
        }
    )+};
}
pub(crate) use scenarios;

/// Runs something that may panic with [`message::injected`]; true when it did.
pub fn panics(f: impl FnOnce()) -> bool {
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)) {
        Ok(()) => false,
        Err(panic) if panic.is::<message::Injected>() => true,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}
