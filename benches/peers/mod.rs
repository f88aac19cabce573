//! The contestants: both windows and everything a user could pick instead, behind one trait.
//!
//! Not for the work itself, which is in the benches: each does the same to every contestant.

// Each bench uses the part it needs.
#![allow(dead_code, unused_imports)]

mod floor;
mod naive;
mod process_queue;
mod windows;

use std::sync::Arc;

pub use floor::{Array, Floor};
pub use naive::{NaiveSkipMap, NaiveTreeIndex};
pub use process_queue::{PlMutex, PlRwLock, ProcessQueue, StdMutex, StdRwLock};
pub use windows::{Shared, ring, ring_numbered, skip};

/// A message: what stays of it in the window is one pointer.
pub type Body = Arc<[u8; 64]>;

/// Messages made before anything is timed, and moved into a contestant as it puts them. What
/// they cost a work is the drop of one pointer; its body stays alive here.
pub struct Pool(Vec<Body>);

impl Pool {
    pub fn new() -> Self {
        Self((0..1024u32).map(|n| Arc::new([n as u8; 64])).collect())
    }

    /// So many messages, made now: outside what is timed.
    pub fn messages(&self, count: usize) -> Messages {
        Messages(self.0.iter().cycle().take(count).map(Arc::clone).collect())
    }
}

/// Messages that wait to be put.
pub struct Messages(Vec<Body>);

impl Messages {
    #[inline(always)]
    pub fn next(&mut self) -> Body {
        self.0.pop().expect("enough were made")
    }
}

/// What a window is asked in these benches.
pub trait Contestant {
    /// What a take gives.
    type Lease<'a>
    where
        Self: 'a;

    /// Admits these offsets as one batch; all of them are new.
    fn put(&self, offsets: &[u64], messages: &mut Messages);

    /// Finishes one; the lowest that is left, or the end.
    fn remove(&self, offset: u64) -> u64;

    /// Finishes these; the lowest that is left, or the end.
    fn remove_batch(&self, offsets: &[u64]) -> u64;

    /// Claims the lowest, at most `n`.
    fn take(&self, n: usize) -> Option<Self::Lease<'_>>;

    /// Looks at what was taken: how many, and something of each.
    fn look(lease: &Self::Lease<'_>) -> (usize, u64);

    /// Finishes what was taken; the lowest that is left, or the end.
    fn commit(&self, lease: Self::Lease<'_>) -> u64;

    /// Messages in flight.
    fn count(&self) -> usize;

    /// Their bytes.
    fn bytes(&self) -> u64;

    /// What flow control calls the span.
    fn span(&self) -> u64;

    /// The lowest that is left, or the end.
    fn watermark(&self) -> u64;
}

/// What a map's take gives: clones, with their offsets. One message needs no allocation.
pub enum Taken {
    One(u64, Body),
    Many(Vec<(u64, Body)>),
}

impl Taken {
    pub fn collect(n: usize, mut next: impl FnMut() -> Option<(u64, Body)>) -> Option<Self> {
        let (offset, body) = next()?;
        if n == 1 {
            return Some(Self::One(offset, body));
        }
        let mut all = Vec::with_capacity(n);
        all.push((offset, body));
        while all.len() < n {
            match next() {
                Some(message) => all.push(message),
                None => break,
            }
        }
        Some(Self::Many(all))
    }

    #[inline]
    pub fn for_each(&self, mut each: impl FnMut(u64, &Body)) {
        match self {
            Self::One(offset, body) => each(*offset, body),
            Self::Many(all) => all.iter().for_each(|(offset, body)| each(*offset, body)),
        }
    }

    pub fn look(&self) -> (usize, u64) {
        let (mut count, mut sum) = (0, 0);
        self.for_each(|offset, body| {
            count += 1;
            sum += offset + u64::from(body[0]);
        });
        (count, sum)
    }
}
