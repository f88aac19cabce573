//! Memory: bytes a message over the message itself, counted by the allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicIsize, Ordering};

use crate::peers::*;
use crate::race::Costs;
use crate::works::PULL;

/// The system's allocator, counting while it is asked to.
pub struct Counting;

static ON: AtomicBool = AtomicBool::new(false);
static LIVE: AtomicIsize = AtomicIsize::new(0);

fn count(bytes: isize) {
    if ON.load(Ordering::Relaxed) {
        LIVE.fetch_add(bytes, Ordering::Relaxed);
    }
}

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as isize - layout.size() as isize);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.realloc(at, layout, size) }
    }
}

/// What is in the window when it is weighed.
#[derive(Clone, Copy)]
enum Load {
    /// So many messages in flight, one offset in `stride`.
    InFlight { count: usize, stride: u64 },
    /// The first is not finished, and so many behind it are.
    StuckHead { count: usize },
}

/// Bytes a message; the worst moment of eight for a stuck head, since memory comes back in turns.
fn weigh<C: Contestant>(make: impl FnOnce() -> C, load: Load) -> f64 {
    let (Load::InFlight { count, .. } | Load::StuckHead { count }) = load;
    let pool = Pool::new();
    let mut messages = pool.messages(count + 1);
    LIVE.store(0, Ordering::Relaxed);
    ON.store(true, Ordering::Relaxed);
    let contestant = make();
    let mut put = |first: u64, stride: u64| {
        let offsets: [u64; PULL] = std::array::from_fn(|at| first + at as u64 * stride);
        contestant.put(&offsets, &mut messages);
        offsets
    };
    let bytes = match load {
        Load::InFlight { count, stride } => {
            for at in 0..(count / PULL) as u64 {
                put(at * PULL as u64 * stride, stride);
            }
            LIVE.load(Ordering::Relaxed) as f64 / count as f64
        }
        Load::StuckHead { count } => {
            for at in 0..(count / PULL) as u64 {
                // All but offset 0.
                for offset in put(at * PULL as u64, 1).into_iter().filter(|&offset| offset > 0) {
                    contestant.remove(offset);
                }
            }
            LIVE.load(Ordering::Relaxed) as f64 / count as f64
        }
    };
    drop(contestant);
    ON.store(false, Ordering::Relaxed);
    bytes
}

fn maps(load: Load) -> Costs {
    let mut costs = Costs::new();
    costs.insert("skip".into(), weigh(skip, load));
    costs.insert("std_rwlock".into(), weigh(ProcessQueue::<StdRwLock>::new, load));
    costs.insert("skipmap".into(), weigh(NaiveSkipMap::default, load));
    costs.insert("treeindex".into(), weigh(NaiveTreeIndex::default, load));
    costs
}

/// All of it. `stuck` is the number of finished messages behind a stuck head.
pub fn run(stuck: usize) -> Vec<(String, Costs)> {
    const COUNT: usize = 1 << 17;
    let dense = Load::InFlight { count: COUNT, stride: 1 };
    let mut costs = maps(dense);
    costs.insert("ring".into(), weigh(ring::<COUNT>, dense));
    let mut all = vec![("W10dense".to_owned(), costs)];
    for stride in [2, 8, 32, 100, 4096] {
        let load = Load::InFlight { count: COUNT, stride };
        all.push((format!("W10sparse{stride}"), maps(load)));
    }
    all.push(("W10stuck".to_owned(), maps(Load::StuckHead { count: stuck })));
    all
}
