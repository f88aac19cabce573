//! The floors: what the harness costs with no structure in it, and with a plain array that knows
//! no other thread.

use std::cell::UnsafeCell;

use super::{Body, Contestant, Messages};

/// Nothing: messages are dropped.
pub struct Floor;

impl Contestant for Floor {
    type Lease<'a> = usize;

    #[inline]
    fn put(&self, offsets: &[u64], messages: &mut Messages) {
        for _ in offsets {
            drop(std::hint::black_box(messages.next()));
        }
    }

    #[inline]
    fn remove(&self, offset: u64) -> u64 {
        offset
    }

    #[inline]
    fn remove_batch(&self, offsets: &[u64]) -> u64 {
        offsets.iter().sum()
    }

    #[inline]
    fn take(&self, n: usize) -> Option<usize> {
        Some(n)
    }

    #[inline]
    fn look(lease: &usize) -> (usize, u64) {
        (*lease, 0)
    }

    #[inline]
    fn commit(&self, lease: usize) -> u64 {
        lease as u64
    }

    fn count(&self) -> usize {
        0
    }

    fn bytes(&self) -> u64 {
        0
    }

    fn span(&self) -> u64 {
        0
    }

    fn watermark(&self) -> u64 {
        0
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Phase {
    Done,
    Ready,
    Lent,
}

struct Slots {
    slots: Vec<(Phase, Option<Body>)>,
    watermark: u64,
    cursor: u64,
    end: u64,
    count: usize,
    bytes: u64,
}

impl Slots {
    #[inline(always)]
    fn slot(&mut self, offset: u64) -> &mut (Phase, Option<Body>) {
        let mask = self.slots.len() - 1;
        &mut self.slots[offset as usize & mask]
    }

    #[inline(always)]
    fn finish(&mut self, offset: u64) -> Option<Body> {
        let slot = self.slot(offset);
        slot.0 = Phase::Done;
        let body = slot.1.take();
        if let Some(body) = &body {
            let size = body.len() as u64;
            self.count -= 1;
            self.bytes -= size;
        }
        body
    }

    #[inline(always)]
    fn slide(&mut self) -> u64 {
        while self.watermark < self.end && self.slot(self.watermark).0 == Phase::Done {
            self.watermark += 1;
        }
        self.watermark
    }
}

/// A plain array of slots, without atomics: for one thread. Takes what is ready without a gap.
pub struct Array(UnsafeCell<Slots>);

impl Array {
    pub fn new(slots: usize) -> Self {
        assert!(slots.is_power_of_two());
        Self(UnsafeCell::new(Slots {
            slots: vec![(Phase::Done, None); slots],
            watermark: 0,
            cursor: 0,
            end: 0,
            count: 0,
            bytes: 0,
        }))
    }

    #[inline(always)]
    #[allow(clippy::mut_from_ref)] // one thread, and no call within a call
    fn slots(&self) -> &mut Slots {
        // SAFETY: the cell makes this type one thread's, and no method calls another with the
        // reference alive, nor code of the user.
        unsafe { &mut *self.0.get() }
    }
}

impl Contestant for Array {
    /// The first offset, and how many.
    type Lease<'a> = (u64, u64, u64);

    #[inline]
    fn put(&self, offsets: &[u64], messages: &mut Messages) {
        let slots = self.slots();
        for &offset in offsets {
            let body = messages.next();
            slots.count += 1;
            slots.bytes += body.len() as u64;
            *slots.slot(offset) = (Phase::Ready, Some(body));
            slots.end = slots.end.max(offset + 1);
        }
        assert!(slots.end - slots.watermark <= slots.slots.len() as u64);
    }

    #[inline]
    fn remove(&self, offset: u64) -> u64 {
        let slots = self.slots();
        drop(slots.finish(offset));
        slots.slide()
    }

    #[inline]
    fn remove_batch(&self, offsets: &[u64]) -> u64 {
        let slots = self.slots();
        for &offset in offsets {
            drop(slots.finish(offset));
        }
        slots.slide()
    }

    #[inline]
    fn take(&self, n: usize) -> Option<(u64, u64, u64)> {
        let slots = self.slots();
        let first = slots.cursor;
        let mut sum = 0;
        while slots.cursor < slots.end && slots.cursor - first < n as u64 {
            let offset = slots.cursor;
            let slot = slots.slot(offset);
            if slot.0 != Phase::Ready {
                break;
            }
            slot.0 = Phase::Lent;
            sum += slot.1.as_ref().map_or(0, |body| offset + u64::from(body[0]));
            slots.cursor += 1;
        }
        (slots.cursor > first).then_some((first, slots.cursor - first, sum))
    }

    #[inline]
    fn look(lease: &(u64, u64, u64)) -> (usize, u64) {
        (lease.1 as usize, lease.2)
    }

    #[inline]
    fn commit(&self, lease: (u64, u64, u64)) -> u64 {
        let slots = self.slots();
        for offset in lease.0..lease.0 + lease.1 {
            drop(slots.finish(offset));
        }
        slots.slide()
    }

    fn count(&self) -> usize {
        self.slots().count
    }

    fn bytes(&self) -> u64 {
        self.slots().bytes
    }

    fn span(&self) -> u64 {
        self.slots().end - self.slots().watermark
    }

    fn watermark(&self) -> u64 {
        self.slots().watermark
    }
}
