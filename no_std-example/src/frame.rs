//! A frame of 16 bytes that shows when it was torn or mixed up, and small shared counters.

use core::sync::atomic::{AtomicU32, Ordering};

/// A frame: its offset, and a check that every byte takes part in.
#[derive(Clone, Copy)]
pub struct Frame {
    words: [u32; 4],
}

impl Frame {
    /// The frame of an offset.
    pub fn new(offset: u64) -> Self {
        let (low, high) = (offset as u32, (offset >> 32) as u32);
        let load = low.wrapping_mul(0x9e37_79b9) ^ high;
        Self { words: [low, high, load, low ^ high.rotate_left(7) ^ load] }
    }

    /// Is it the frame of this offset, whole?
    pub fn is_of(&self, offset: u64) -> bool {
        self.words == Self::new(offset).words
    }

    /// What a receiver adds up.
    pub fn load(&self) -> u32 {
        self.words[2]
    }
}

/// Adds one to a counter that main and an interrupt, or two cores, share.
#[inline(always)]
pub fn bump(counter: &AtomicU32) {
    #[cfg(feature = "planted-race")]
    {
        let before = counter.load(Ordering::Relaxed);
        #[cfg(target_arch = "riscv32")]
        meet();
        counter.store(before.wrapping_add(1), Ordering::Relaxed);
    }
    #[cfg(all(not(feature = "planted-race"), target_has_atomic = "ptr"))]
    counter.fetch_add(1, Ordering::Relaxed);
    #[cfg(all(not(feature = "planted-race"), not(target_has_atomic = "ptr")))]
    critical_section::with(|_| {
        counter.store(counter.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed)
    });
}

/// Neither core goes on from its first update before the other has read for its own: one is lost,
/// however the host runs the two.
#[cfg(all(feature = "planted-race", target_arch = "riscv32"))]
fn meet() {
    static READ: AtomicU32 = AtomicU32::new(0);
    READ.fetch_add(1, Ordering::Relaxed);
    while READ.load(Ordering::Relaxed) < 2 {
        crate::host::pause();
    }
}

/// Small numbers that look random, the same in every run.
pub struct Random(pub u32);

impl Random {
    /// The next number below `below`.
    pub fn next(&mut self, below: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        (self.0 >> 8) % below
    }
}
