//! Concurrent ordered maps used naively: what one gets by replacing the tree map and the lock by
//! a map without one. Not a correct window: between two calls of the map others come in, so the
//! lowest offset may be wrong for a moment.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crossbeam_skiplist::SkipMap;
use scc::{Guard, TreeIndex};

use super::{Body, Contestant, Messages, Taken};

#[derive(Default)]
struct Counters {
    count: AtomicUsize,
    bytes: AtomicU64,
    end: AtomicU64,
}

impl Counters {
    fn add(&self, offsets: &[u64]) {
        self.count.fetch_add(offsets.len(), Ordering::AcqRel);
        self.bytes.fetch_add(64 * offsets.len() as u64, Ordering::AcqRel);
        self.end.fetch_max(offsets.last().map_or(0, |last| last + 1), Ordering::AcqRel);
    }

    fn remove(&self, count: usize) {
        self.count.fetch_sub(count, Ordering::AcqRel);
        self.bytes.fetch_sub(64 * count as u64, Ordering::AcqRel);
    }

    fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }
}

/// `crossbeam_skiplist::SkipMap`.
#[derive(Default)]
pub struct NaiveSkipMap {
    waiting: SkipMap<u64, Body>,
    consuming: SkipMap<u64, Body>,
    counters: Counters,
}

impl NaiveSkipMap {
    fn lowest(&self) -> u64 {
        let waiting = self.waiting.front().map(|entry| *entry.key());
        let consuming = self.consuming.front().map(|entry| *entry.key());
        waiting.into_iter().chain(consuming).min().unwrap_or(self.counters.end())
    }
}

impl Contestant for NaiveSkipMap {
    type Lease<'a> = Taken;

    fn put(&self, offsets: &[u64], messages: &mut Messages) {
        for &offset in offsets {
            self.waiting.insert(offset, messages.next());
        }
        self.counters.add(offsets);
    }

    fn remove(&self, offset: u64) -> u64 {
        if self.waiting.remove(&offset).is_some() {
            self.counters.remove(1);
        }
        self.lowest()
    }

    fn remove_batch(&self, offsets: &[u64]) -> u64 {
        let removed = offsets.iter().filter(|offset| self.waiting.remove(offset).is_some()).count();
        self.counters.remove(removed);
        self.lowest()
    }

    fn take(&self, n: usize) -> Option<Taken> {
        Taken::collect(n, || {
            let entry = self.waiting.pop_front()?;
            let message = (*entry.key(), Body::clone(entry.value()));
            self.consuming.insert(message.0, Body::clone(&message.1));
            Some(message)
        })
    }

    fn look(lease: &Taken) -> (usize, u64) {
        lease.look()
    }

    fn commit(&self, lease: Taken) -> u64 {
        let mut count = 0;
        lease.for_each(|offset, _| count += usize::from(self.consuming.remove(&offset).is_some()));
        self.counters.remove(count);
        self.lowest()
    }

    fn count(&self) -> usize {
        self.counters.count.load(Ordering::Acquire)
    }

    fn bytes(&self) -> u64 {
        self.counters.bytes.load(Ordering::Acquire)
    }

    fn span(&self) -> u64 {
        self.counters.end().saturating_sub(self.lowest())
    }

    fn watermark(&self) -> u64 {
        self.lowest()
    }
}

/// `scc::TreeIndex`.
#[derive(Default)]
pub struct NaiveTreeIndex {
    waiting: TreeIndex<u64, Body>,
    consuming: TreeIndex<u64, Body>,
    counters: Counters,
}

impl NaiveTreeIndex {
    fn lowest(&self) -> u64 {
        let guard = Guard::new();
        let waiting = self.waiting.iter(&guard).next().map(|(&offset, _)| offset);
        let consuming = self.consuming.iter(&guard).next().map(|(&offset, _)| offset);
        waiting.into_iter().chain(consuming).min().unwrap_or(self.counters.end())
    }
}

impl Contestant for NaiveTreeIndex {
    type Lease<'a> = Taken;

    fn put(&self, offsets: &[u64], messages: &mut Messages) {
        for &offset in offsets {
            let _ = self.waiting.insert_sync(offset, messages.next());
        }
        self.counters.add(offsets);
    }

    fn remove(&self, offset: u64) -> u64 {
        if self.waiting.remove_sync(&offset) {
            self.counters.remove(1);
        }
        self.lowest()
    }

    fn remove_batch(&self, offsets: &[u64]) -> u64 {
        let removed = offsets.iter().filter(|offset| self.waiting.remove_sync(*offset)).count();
        self.counters.remove(removed);
        self.lowest()
    }

    fn take(&self, n: usize) -> Option<Taken> {
        Taken::collect(n, || {
            loop {
                let guard = Guard::new();
                let (&offset, body) = self.waiting.iter(&guard).next()?;
                let body = Body::clone(body);
                if self.waiting.remove_sync(&offset) {
                    let _ = self.consuming.insert_sync(offset, Body::clone(&body));
                    return Some((offset, body));
                }
            }
        })
    }

    fn look(lease: &Taken) -> (usize, u64) {
        lease.look()
    }

    fn commit(&self, lease: Taken) -> u64 {
        let mut count = 0;
        lease.for_each(|offset, _| count += usize::from(self.consuming.remove_sync(&offset)));
        self.counters.remove(count);
        self.lowest()
    }

    fn count(&self) -> usize {
        self.counters.count.load(Ordering::Acquire)
    }

    fn bytes(&self) -> u64 {
        self.counters.bytes.load(Ordering::Acquire)
    }

    fn span(&self) -> u64 {
        self.counters.end().saturating_sub(self.lowest())
    }

    fn watermark(&self) -> u64 {
        self.lowest()
    }
}
