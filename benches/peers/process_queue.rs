//! A careful port of RocketMQ's `ProcessQueue`: two tree maps under one lock, count and size as
//! atomics beside it.
//!
//! Careful means that the lock gets every advantage that a port can give it: counters change once
//! a batch, clocks are not read, a single message is taken without an allocation, values are
//! dropped after the lock where that costs nothing, and a commit of all that is held is one
//! `clear`. What it cannot do without is what its users rely on: the lowest offset that is left
//! after each removal, and taken messages kept in a second map until they are committed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};

use super::{Body, Contestant, Messages, Taken};

/// A lock, of readers and a writer or of one party.
pub trait Lock {
    fn new(maps: Maps) -> Self;
    fn read<R>(&self, look: impl FnOnce(&Maps) -> R) -> R;
    fn write<R>(&self, change: impl FnOnce(&mut Maps) -> R) -> R;
}

/// `std::sync::RwLock`.
pub struct StdRwLock(std::sync::RwLock<Maps>);

impl Lock for StdRwLock {
    fn new(maps: Maps) -> Self {
        Self(std::sync::RwLock::new(maps))
    }

    #[inline]
    fn read<R>(&self, look: impl FnOnce(&Maps) -> R) -> R {
        look(&self.0.read().expect("nobody panics"))
    }

    #[inline]
    fn write<R>(&self, change: impl FnOnce(&mut Maps) -> R) -> R {
        change(&mut self.0.write().expect("nobody panics"))
    }
}

/// `std::sync::Mutex`.
pub struct StdMutex(std::sync::Mutex<Maps>);

impl Lock for StdMutex {
    fn new(maps: Maps) -> Self {
        Self(std::sync::Mutex::new(maps))
    }

    #[inline]
    fn read<R>(&self, look: impl FnOnce(&Maps) -> R) -> R {
        look(&self.0.lock().expect("nobody panics"))
    }

    #[inline]
    fn write<R>(&self, change: impl FnOnce(&mut Maps) -> R) -> R {
        change(&mut self.0.lock().expect("nobody panics"))
    }
}

/// `parking_lot::RwLock`.
pub struct PlRwLock(parking_lot::RwLock<Maps>);

impl Lock for PlRwLock {
    fn new(maps: Maps) -> Self {
        Self(parking_lot::RwLock::new(maps))
    }

    #[inline]
    fn read<R>(&self, look: impl FnOnce(&Maps) -> R) -> R {
        look(&self.0.read())
    }

    #[inline]
    fn write<R>(&self, change: impl FnOnce(&mut Maps) -> R) -> R {
        change(&mut self.0.write())
    }
}

/// `parking_lot::Mutex`.
pub struct PlMutex(parking_lot::Mutex<Maps>);

impl Lock for PlMutex {
    fn new(maps: Maps) -> Self {
        Self(parking_lot::Mutex::new(maps))
    }

    #[inline]
    fn read<R>(&self, look: impl FnOnce(&Maps) -> R) -> R {
        look(&self.0.lock())
    }

    #[inline]
    fn write<R>(&self, change: impl FnOnce(&mut Maps) -> R) -> R {
        change(&mut self.0.lock())
    }
}

/// What the lock guards.
#[derive(Default)]
pub struct Maps {
    /// `msgTreeMap`.
    waiting: BTreeMap<u64, Body>,
    /// `consumingMsgOrderlyTreeMap`.
    consuming: BTreeMap<u64, Body>,
    /// `queueOffsetMax` + 1.
    end: u64,
    /// Has somebody been told that there is something to consume?
    busy: bool,
}

impl Maps {
    #[inline]
    fn lowest(&self) -> u64 {
        let waiting = self.waiting.first_key_value().map(|(&offset, _)| offset);
        let consuming = self.consuming.first_key_value().map(|(&offset, _)| offset);
        waiting.into_iter().chain(consuming).min().unwrap_or(self.end)
    }
}

/// The port.
pub struct ProcessQueue<L> {
    maps: L,
    count: AtomicI64,
    size: AtomicI64,
}

impl<L: Lock> ProcessQueue<L> {
    pub fn new() -> Self {
        Self { maps: L::new(Maps::default()), count: AtomicI64::new(0), size: AtomicI64::new(0) }
    }

    #[inline]
    fn uncount(&self, count: i64, size: i64) {
        if count > 0 {
            self.count.fetch_sub(count, Ordering::AcqRel);
            self.size.fetch_sub(size, Ordering::AcqRel);
        }
    }
}

fn size(body: &Body) -> i64 {
    body.len() as i64
}

impl<L: Lock> Contestant for ProcessQueue<L> {
    type Lease<'a>
        = Taken
    where
        L: 'a;

    #[inline]
    fn put(&self, offsets: &[u64], messages: &mut Messages) {
        let dispatch = self.maps.write(|maps| {
            let (mut added, mut bytes) = (0, 0);
            for &offset in offsets {
                let body = messages.next();
                let size = size(&body);
                if maps.waiting.insert(offset, body).is_none() {
                    added += 1;
                    bytes += size;
                    maps.end = maps.end.max(offset + 1);
                }
            }
            self.count.fetch_add(added, Ordering::AcqRel);
            self.size.fetch_add(bytes, Ordering::AcqRel);
            !core::mem::replace(&mut maps.busy, true)
        });
        std::hint::black_box(dispatch);
    }

    #[inline]
    fn remove(&self, offset: u64) -> u64 {
        let (removed, lowest) = self.maps.write(|maps| {
            let removed = maps.waiting.remove(&offset);
            if let Some(body) = &removed {
                self.uncount(1, size(body));
            }
            (removed, maps.lowest())
        });
        drop(removed);
        lowest
    }

    #[inline]
    fn remove_batch(&self, offsets: &[u64]) -> u64 {
        self.maps.write(|maps| {
            let (mut count, mut bytes) = (0, 0);
            for offset in offsets {
                if let Some(body) = maps.waiting.remove(offset) {
                    count += 1;
                    bytes += size(&body);
                }
            }
            self.uncount(count, bytes);
            maps.lowest()
        })
    }

    #[inline]
    fn take(&self, n: usize) -> Option<Taken> {
        self.maps.write(|maps| {
            let taken = Taken::collect(n, || {
                let (offset, body) = maps.waiting.pop_first()?;
                maps.consuming.insert(offset, Body::clone(&body));
                Some((offset, body))
            });
            maps.busy &= taken.is_some();
            taken
        })
    }

    #[inline]
    fn look(lease: &Taken) -> (usize, u64) {
        lease.look()
    }

    #[inline]
    fn commit(&self, lease: Taken) -> u64 {
        let (consumed, lowest) = self.maps.write(|maps| {
            let (mut count, mut bytes) = (0, 0);
            lease.for_each(|_, body| {
                count += 1;
                bytes += size(body);
            });
            self.uncount(count, bytes);
            if maps.consuming.len() as i64 == count {
                let consumed = core::mem::take(&mut maps.consuming);
                return (consumed, maps.lowest());
            }
            lease.for_each(|offset, _| drop(maps.consuming.remove(&offset)));
            (BTreeMap::new(), maps.lowest())
        });
        drop(consumed);
        lowest
    }

    fn count(&self) -> usize {
        self.count.load(Ordering::Acquire) as usize
    }

    fn bytes(&self) -> u64 {
        self.size.load(Ordering::Acquire) as u64
    }

    /// `getMaxSpan`: under the read lock.
    fn span(&self) -> u64 {
        self.maps.read(|maps| match maps.waiting.last_key_value() {
            Some((&last, _)) => last - maps.waiting.first_key_value().map_or(last, |(&at, _)| at),
            None => 0,
        })
    }

    fn watermark(&self) -> u64 {
        self.maps.read(Maps::lowest)
    }
}
