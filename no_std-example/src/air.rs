//! The way of acknowledgements: from main, which sends, to the interrupt that hears them back, in
//! any order.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::frame::Random;

const ROOM: usize = 32;

/// What is in the air: frames that reached the other side, to be acknowledged. Main writes and
/// raises `sent`, the acknowledging interrupt reads and raises `heard`.
pub struct Air {
    indices: [AtomicU32; ROOM],
    sent: AtomicU32,
    heard: AtomicU32,
}

impl Air {
    /// Silence.
    #[allow(clippy::new_without_default)] // for a static
    pub const fn new() -> Self {
        let indices = [const { AtomicU32::new(0) }; ROOM];
        Self { indices, sent: AtomicU32::new(0), heard: AtomicU32::new(0) }
    }

    /// False when the air is busy.
    pub fn send(&self, index: u32) -> bool {
        let sent = self.sent.load(Ordering::Relaxed);
        if sent.wrapping_sub(self.heard.load(Ordering::Acquire)) == ROOM as u32 {
            return false;
        }
        self.indices[sent as usize % ROOM].store(index, Ordering::Relaxed);
        self.sent.store(sent.wrapping_add(1), Ordering::Release);
        true
    }

    /// How much was sent in all.
    pub fn sent(&self) -> u32 {
        self.sent.load(Ordering::Relaxed)
    }

    fn hear(&self) -> Option<u32> {
        let heard = self.heard.load(Ordering::Relaxed);
        if heard == self.sent.load(Ordering::Acquire) {
            return None;
        }
        let index = self.indices[heard as usize % ROOM].load(Ordering::Relaxed);
        self.heard.store(heard.wrapping_add(1), Ordering::Release);
        Some(index)
    }
}

/// What the interrupt has heard and not acted on.
pub struct Heard<const N: usize> {
    waiting: [u32; N],
    count: usize,
}

impl<const N: usize> Heard<N> {
    /// Nothing.
    #[allow(clippy::new_without_default)] // for a static
    pub const fn new() -> Self {
        Self { waiting: [0; N], count: 0 }
    }

    /// Takes in what there is room for.
    pub fn listen(&mut self, air: &Air) {
        while self.count < N {
            let Some(index) = air.hear() else { return };
            self.waiting[self.count] = index;
            self.count += 1;
        }
    }

    /// One of them, any.
    pub fn pick(&mut self, random: &mut Random) -> Option<u32> {
        let last = self.count.checked_sub(1)?;
        let pick = random.next(self.count as u32) as usize;
        let index = self.waiting[pick];
        self.waiting[pick] = self.waiting[last];
        self.count = last;
        Some(index)
    }
}
