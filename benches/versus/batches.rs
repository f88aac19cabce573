//! W6: a recorder of numbered batches, against one under a lock.
//!
//! 64 batches of two parts are open, shared out among the threads; each thread begins a batch and
//! ends two parts of those that it has, chosen at random. Times are nanoseconds a batch.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use inflight::{BatchId, BatchWatermark, Batches, BeginError};

use crate::race::Entrant;
use crate::works::{Random, Stopwatch};

/// Batches that are open.
const OPEN: usize = 64;

/// What a recorder is asked.
trait Recorder: Sync {
    type Id: Copy + Send;

    /// Begins a batch of two parts, if there is room.
    fn begin(&self) -> Option<Self::Id>;

    /// Ends one part; what is then safe to persist, if that has risen.
    fn end(&self, id: Self::Id, next: u64) -> Option<u64>;
}

struct LockFree(Batches<&'static BatchWatermark<4096>>);

impl LockFree {
    fn new() -> Self {
        // Kept until the process ends: it is made twice.
        Self(Box::leak(Box::new(BatchWatermark::new())).assign(0))
    }
}

impl Recorder for LockFree {
    type Id = BatchId;

    #[inline]
    fn begin(&self) -> Option<BatchId> {
        match self.0.begin(2) {
            Ok(id) => Some(id),
            // The lowest batch is a whole capacity back: its thread does not run.
            Err(BeginError::Full) => None,
            Err(error) => panic!("{error}"),
        }
    }

    #[inline]
    fn end(&self, id: BatchId, next: u64) -> Option<u64> {
        self.0.end(id, next).expect("it is open").map(|next| next.get())
    }
}

/// What a lock guards: open parts and the highest next offset of each batch, by its number.
#[derive(Default)]
struct Records {
    batches: BTreeMap<u64, (usize, u64)>,
    number: u64,
    next: u64,
}

impl Records {
    fn begin(&mut self) -> u64 {
        self.number += 1;
        self.batches.insert(self.number, (2, 0));
        self.number
    }

    fn end(&mut self, id: u64, next: u64) -> Option<u64> {
        let batch = self.batches.get_mut(&id).expect("it is open");
        batch.0 -= 1;
        batch.1 = batch.1.max(next);
        let mut passed = false;
        while let Some(first) = self.batches.first_entry().filter(|first| first.get().0 == 0) {
            self.next = self.next.max(first.remove().1);
            passed = true;
        }
        passed.then_some(self.next)
    }
}

struct StdMutex(std::sync::Mutex<Records>);

impl Recorder for StdMutex {
    type Id = u64;

    #[inline]
    fn begin(&self) -> Option<u64> {
        Some(self.0.lock().expect("nobody panics").begin())
    }

    #[inline]
    fn end(&self, id: u64, next: u64) -> Option<u64> {
        self.0.lock().expect("nobody panics").end(id, next)
    }
}

struct PlMutex(parking_lot::Mutex<Records>);

impl Recorder for PlMutex {
    type Id = u64;

    #[inline]
    fn begin(&self) -> Option<u64> {
        Some(self.0.lock().begin())
    }

    #[inline]
    fn end(&self, id: u64, next: u64) -> Option<u64> {
        self.0.lock().end(id, next)
    }
}

/// Begins and ends so many batches, with `open` of them open.
fn work(recorder: &impl Recorder, batches: usize, open: usize) {
    let mut random = Random::new();
    let mut parts = Vec::with_capacity(2 * open + 2);
    let mut sum = 0u64;
    let mut next = 0;
    while next < batches as u64 {
        let begun = recorder.begin();
        match begun {
            Some(id) => parts.extend([id, id]),
            None if parts.is_empty() => std::thread::park_timeout(Duration::from_micros(50)),
            // It may be this thread's own that is in the way.
            None => {}
        }
        next += u64::from(begun.is_some());
        while parts.len() > 2 * open || (begun.is_none() && !parts.is_empty()) {
            let id = parts.swap_remove(random.below(parts.len()));
            sum = sum.wrapping_add(recorder.end(id, next).unwrap_or(0));
        }
    }
    for id in parts {
        sum = sum.wrapping_add(recorder.end(id, 0).unwrap_or(0));
    }
    black_box(sum);
}

fn entrant<R: Recorder + 'static>(
    name: &'static str,
    recorder: R,
    threads: usize,
    batches: usize,
) -> Entrant {
    let round = move || {
        if threads == 1 {
            let begun = Stopwatch::start();
            work(&recorder, batches, OPEN);
            return begun.per_message(batches);
        }
        let start = Barrier::new(threads);
        let each = batches / threads;
        let begun = std::thread::scope(|scope| {
            for _ in 1..threads {
                scope.spawn(|| {
                    start.wait();
                    work(&recorder, each, OPEN / threads);
                });
            }
            start.wait();
            let begun = Instant::now();
            work(&recorder, each, OPEN / threads);
            begun
        });
        begun.elapsed().as_nanos() as f64 / batches as f64
    };
    Entrant { name, round: Box::new(round) }
}

/// All recorders. `ring` is the one of this crate: a ring of batches.
pub fn recorders(threads: usize, batches: usize) -> Vec<Entrant> {
    let (std_mutex, pl_mutex) = (Default::default(), Default::default());
    vec![
        entrant("ring", LockFree::new(), threads, batches),
        entrant("std_mutex", StdMutex(std_mutex), threads, batches),
        entrant("pl_mutex", PlMutex(pl_mutex), threads, batches),
    ]
}
