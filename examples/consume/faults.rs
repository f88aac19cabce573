//! Planted faults: which message fails, panics or is slow at which delivery. Decided by a hash of
//! seed, partition, offset and delivery, so that a run can be repeated, and a retry has new luck.

use std::cell::Cell;
use std::time::Duration;

/// What happens to a message at one delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Fine,
    Fail,
    Panic,
    Slow,
}

#[derive(Debug)]
pub struct Faults {
    seed: u64,
    /// Upper ends of the bands of a 64-bit hash.
    panic: u64,
    fail: u64,
    slow: u64,
    pub slowness: Duration,
}

impl Faults {
    pub fn new(seed: u64, fail: f64, panic: f64, slow: f64, slowness: Duration) -> Self {
        let band = |rate: f64| (rate.min(1.0) * u64::MAX as f64) as u64;
        Self {
            seed,
            panic: band(panic),
            fail: band(panic + fail),
            slow: band(panic + fail + slow),
            slowness,
        }
    }

    pub fn fate(&self, partition: &str, offset: u64, delivery: u32) -> Fate {
        if self.slow == 0 {
            return Fate::Fine;
        }
        let mut hash = mix(self.seed ^ mix(offset ^ (u64::from(delivery) << 48)));
        for byte in partition.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
        let hash = mix(hash);
        if hash < self.panic {
            Fate::Panic
        } else if hash < self.fail {
            Fate::Fail
        } else if hash < self.slow {
            Fate::Slow
        } else {
            Fate::Fine
        }
    }
}

/// A bijective mix of 64 bits (the finalizer of splitmix64).
pub fn mix(n: u64) -> u64 {
    let n = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

thread_local! {
    static PLANTED: Cell<bool> = const { Cell::new(false) };
}

/// The planted panic.
pub fn panic() -> ! {
    PLANTED.set(true);
    panic!("planted");
}

/// Planted panics say nothing; others are reported as usual.
pub fn silence_planted_panics() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !PLANTED.take() {
            usual(info);
        }
    }));
}
