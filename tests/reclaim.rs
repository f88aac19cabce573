//! What the skip window has retired is freed as fast as it is retired, also when one call retires
//! many blocks: a sparse log with a block for each message, put and finished in batches.
#![cfg(all(feature = "std", not(miri)))]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use inflight::{SkipWindow, Window};

struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);

// SAFETY: all of it is the system's allocator; the counter changes nothing of it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: promised by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: promised by the caller.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn memory_of_a_sparse_log_stays_bounded() {
    for batch in [1, 5, 8, 32, 200] {
        let window = SkipWindow::<u64>::new();
        let part = window.assign(0);
        let before = LIVE.load(Ordering::Relaxed);
        let mut most = 0;
        for round in 0..100_000 / batch {
            let first = round * batch;
            let mut messages = (first..first + batch).map(|n| (n * 4096, n));
            part.put_batch(&mut messages).unwrap();
            assert_eq!(part.take(batch as usize).unwrap().commit().unwrap().applied as u64, batch);
            most = most.max(LIVE.load(Ordering::Relaxed).saturating_sub(before));
        }
        // About a kilobyte for each of some 2000 blocks, in flight or retired.
        assert!(most < 2 << 20, "{most} bytes with batches of {batch}");
    }
}
