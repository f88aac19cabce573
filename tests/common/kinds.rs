//! The kinds of window that every test runs over.

use std::fmt::Debug;

use inflight::{RingWindow, SkipWindow, Window};

/// Are the words 32 bits wide?
pub const NARROW: bool = cfg!(any(target_pointer_width = "32", inflight_word32));

/// How often a message can be revoked.
pub const MOST_REVOKES: u64 = if NARROW { 511 } else { 2047 };

/// A kind of window. `N` is the capacity of a bounded one; an unbounded one ignores it.
pub trait Kind {
    type Window<T: Send + 'static, const N: usize>: Window<Value = T> + Send + Sync + Debug;

    /// Empty, with the default seal or the caller's. Variants begin at other places, so that a
    /// word of the window is about to wrap.
    fn window<T: Send + 'static, const N: usize>(
        variant: usize,
        callers_seal: bool,
    ) -> Box<Self::Window<T, N>>;

    fn capacity(n: usize) -> Option<u64>;

    /// Nothing moves as far as this at once.
    fn far(n: usize) -> u64;
}

pub struct RingKind;

impl Kind for RingKind {
    type Window<T: Send + 'static, const N: usize> = RingWindow<T, N>;

    fn window<T: Send + 'static, const N: usize>(
        variant: usize,
        callers_seal: bool,
    ) -> Box<RingWindow<T, N>> {
        // What no stack holds is made in place, and that begins at zero.
        match (if N > 1024 { 0 } else { variant }, callers_seal) {
            (0, false) => RingWindow::boxed(),
            (0, true) => RingWindow::boxed_with_callers_seal(),
            _ => Box::new(RingWindow::starting_at(first_lap(variant, N as u64), callers_seal)),
        }
    }

    fn capacity(n: usize) -> Option<u64> {
        Some(n as u64)
    }

    fn far(n: usize) -> u64 {
        let (laps, most) = if NARROW { (1 << 17, 1 << 29) } else { (1 << 47, 1 << 62) };
        (n as u64).saturating_mul(laps).min(most)
    }
}

pub struct SkipKind;

impl Kind for SkipKind {
    type Window<T: Send + 'static, const N: usize> = SkipWindow<T>;

    fn window<T: Send + 'static, const N: usize>(
        variant: usize,
        callers_seal: bool,
    ) -> Box<SkipWindow<T>> {
        // Blocks of 64 take the place of laps.
        let first = if variant == 0 { 0 } else { first_lap(variant, 64) };
        Box::new(SkipWindow::starting_at(first, callers_seal))
    }

    fn capacity(_: usize) -> Option<u64> {
        None
    }

    fn far(_: usize) -> u64 {
        if NARROW { 1 << 29 } else { 1 << 43 }
    }
}

/// How many places to begin at.
pub const VARIANTS: usize = match (cfg!(miri), NARROW) {
    (true, _) => 1,
    (false, true) => 6,
    (false, false) => 3,
};

/// The lap to begin at: two before something wraps (an assignment skips one).
fn first_lap(variant: usize, n: u64) -> u64 {
    let wraps = if NARROW {
        // Laps, half of them, positions, half of them, both words of the watermark.
        [1 << 20, 1 << 19, (1 << 32) / n, (1 << 31) / n, (3 << 31) / n]
    } else {
        [1 << 50, 1 << 49, 1 << 50, 1 << 49, 1 << 50]
    };
    match variant {
        0 => 0,
        _ => (wraps[(variant - 1) % wraps.len()] - 3_u64).max(1),
    }
}
