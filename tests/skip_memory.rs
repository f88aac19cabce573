//! Memory of the skip window follows what is unfinished, not the span, and a sparse log costs what a
//! dense one does when it is numbered by arrival. Counted by the allocator, so in a test binary of
//! its own, with one test.
#![cfg(not(miri))]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use inflight::{RingWindow, SkipWindow, Window};

struct Counting;

static ALLOCATED: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system's allocator; only what it gives is counted.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size(), Relaxed);
        // SAFETY: promised by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size(), Relaxed);
        // SAFETY: promised by the caller.
        unsafe { System.dealloc(at, layout) };
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// As wide as a pointer: what is larger is kept behind one, since a chunk has room for four.
type Payload = u64;

/// Lets the collector free what nobody can see any more.
fn collect() {
    for _ in 0..2_000 {
        crossbeam_epoch::pin().flush();
    }
}

fn allocated() -> usize {
    collect();
    ALLOCATED.load(Relaxed)
}

#[test]
fn memory_follows_what_is_unfinished() {
    finished_behind_a_stuck_head();
    sparse_offsets();
    numbered();
    nothing_is_left();
}

fn finished_behind_a_stuck_head() {
    const FINISHED: u64 = 200_000;
    let before = allocated();
    let window = SkipWindow::<Payload>::new();
    let part = window.assign(0);
    part.put(0, 0).unwrap();
    let _stuck = part.take(1).unwrap();
    for first in (1..=FINISHED).step_by(100) {
        part.put_batch(&mut (first..first + 100).map(|offset| (offset, offset))).unwrap();
        // Not in order: two at a time, the later first.
        for pair in (first..first + 100).step_by(2) {
            part.remove(pair + 1).unwrap();
            part.remove(pair).unwrap();
        }
    }
    assert_eq!((window.count(), window.span()), (1, FINISHED + 1));
    let each = (allocated() - before) as f64 / FINISHED as f64;
    println!("{each:.2} bytes per finished message behind a stuck head");
    assert!(each < 8.0, "{each} bytes per finished message");
}

fn sparse_offsets() {
    const MESSAGES: u64 = 5_000;
    for stride in (0..=12).map(|power| 1 << power) {
        let before = allocated();
        let window = SkipWindow::<Payload>::new();
        let part = window.assign(0);
        for index in 0..MESSAGES {
            part.put(index * stride, index).unwrap();
        }
        let each = (allocated() - before) as f64 / MESSAGES as f64 - size_of::<Payload>() as f64;
        println!("stride {stride}: {each:.0} bytes per message over the payload");
        assert!(each <= 250.0, "stride {stride}: {each} bytes per message over the payload");
        assert_eq!(part.take(1).unwrap().commit().unwrap().next.get(), stride);
    }
}

/// Numbered by arrival: a slot is 40 bytes beside the message, and the skip window's blocks are a
/// few more.
fn numbered() {
    const MESSAGES: u64 = 1 << 14;
    fn each<W: Window<Value = Payload>>(window: &W, before: usize) -> f64 {
        let part = window.assign(0);
        part.put_batch(&mut (0..MESSAGES).map(|n| (n * 1_000, n))).unwrap();
        (allocated() - before) as f64 / MESSAGES as f64 - size_of::<Payload>() as f64
    }
    let before = allocated();
    let ring = each(&*RingWindow::<Payload, { MESSAGES as usize }>::boxed_numbered(), before);
    let before = allocated();
    let skip = each(&SkipWindow::<Payload>::numbered(), before);
    println!(
        "numbered: {ring:.1} bytes per message over the payload in the ring, {skip:.1} in the skip window"
    );
    assert!(ring <= 40.2, "{ring} bytes per message over the payload");
    assert!(skip <= 47.0, "{skip} bytes per message over the payload");
}

fn nothing_is_left() {
    let before = allocated();
    {
        let window = SkipWindow::<Payload>::new();
        let part = window.assign(0);
        for round in 0..200 {
            let first = round * 1_000;
            part.put_batch(&mut (first..first + 1_000).map(|offset| (offset, 0))).unwrap();
            part.remove_batch((first..first + 1_000).rev()).unwrap();
        }
        let working = allocated() - before;
        println!("{working} bytes in an empty window after 200,000 messages");
        assert!(working < 100_000, "{working} bytes in an empty window");
    }
    let left = allocated().saturating_sub(before);
    assert!(left < 20_000, "{left} bytes left by a window that was dropped");
}
