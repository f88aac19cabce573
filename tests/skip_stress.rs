//! Threads on a skip window that assigns, jumps and forgets, with every message counted.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;

use common::Ledger;
use inflight::{SkipWindow, TakeError, Window};

const ROUNDS: u64 = if cfg!(miri) { 3 } else { 60 };
const EACH: u64 = if cfg!(miri) { 12 } else { 500 };

/// Two putters with the caller's seal share the offsets of several strides, far jumps among
/// them; workers take, give back, remove by number; now and then the window is assigned anew
/// while leases are alive, and some of those are forgotten.
#[test]
fn assigns_beside_sparse_puts_and_leases() {
    let ledger = Ledger::new();
    let window = Arc::new(SkipWindow::with_callers_seal());
    let stop = AtomicBool::new(false);
    let finished = AtomicUsize::new(0);
    let part = std::sync::Mutex::new(window.assign_owned(0));
    thread::scope(|scope| {
        for worker in 0..2_u64 {
            let (stop, finished, part) = (&stop, &finished, &part);
            scope.spawn(move || {
                let mut turn = worker;
                loop {
                    turn += 1;
                    let part = part.lock().unwrap().clone();
                    let last = stop.load(Ordering::Acquire);
                    match turn % 5 {
                        0 => {
                            if let Ok(lease) = part.take_shared(3) {
                                let offsets: Vec<_> = lease.iter().map(|(at, _)| at).collect();
                                lease.detach();
                                for offset in offsets {
                                    if part.remove(offset).is_ok() {
                                        finished.fetch_add(1, Ordering::Relaxed);
                                    }
                                }
                            }
                        }
                        1 => drop(part.take(2)),
                        _ => match part.take(4) {
                            Ok(lease) => {
                                assert!(lease.iter().is_sorted_by_key(|(offset, _)| offset));
                                thread::yield_now();
                                if let Ok(report) = lease.commit() {
                                    finished.fetch_add(report.applied, Ordering::Relaxed);
                                }
                            }
                            Err(TakeError::Empty) if last && turn % 5 == 4 => return,
                            Err(_) => thread::yield_now(),
                        },
                    }
                }
            });
        }
        for round in 0..ROUNDS {
            let start = round % 3 * 1_000;
            let current = if round % 4 == 3 {
                // Under the leases of the workers.
                let new = window.assign_owned(start);
                *part.lock().unwrap() = new.clone();
                new
            } else {
                part.lock().unwrap().clone()
            };
            let first = current.end().unwrap();
            let stride = [1, 2, 7, 64, 100, 5_000][round as usize % 6];
            let next = AtomicU64::new(0);
            let putters = thread::scope(|putters| {
                let put = || {
                    let mut admitted = 0;
                    loop {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        if index >= EACH {
                            return admitted;
                        }
                        let offset = first + index * stride;
                        let message = ledger.message(offset);
                        current.put(offset, message).expect("above the seal");
                        admitted += 1;
                    }
                };
                let other = putters.spawn(put);
                put() + other.join().unwrap()
            });
            assert_eq!(putters, EACH);
            let end = first + EACH * stride;
            let before = current.watermark().unwrap();
            assert!(current.advance_to(end).unwrap() >= before);
        }
        stop.store(true, Ordering::Release);
    });
    let part = part.into_inner().unwrap();
    while let Ok(lease) = part.take(100) {
        lease.commit().unwrap();
    }
    let end = part.end().unwrap();
    assert_eq!(part.min_offset().unwrap().get(), end);
    assert!(finished.load(Ordering::Relaxed) > 0);
    assert_eq!((window.count(), ledger.total()), (0, 0));

    // Forgotten in an ended assignment and in the last.
    part.put(end, ledger.message(1)).unwrap();
    std::mem::forget(part.take(1).unwrap());
    let new = window.assign_owned(0);
    new.put_batch(&mut (0..100).map(|offset| (offset, ledger.message(offset)))).unwrap();
    let lent = new.take(40).unwrap();
    new.take_shared(30).unwrap().detach();
    assert_eq!(ledger.total(), 101);
    drop(lent);
    drop((part, new));
    // The forgotten lease has the window still.
    let forgotten = Arc::strong_count(&window) - 1;
    assert_eq!(forgotten, 1);
    // SAFETY: the count that the forgotten lease will never give back.
    unsafe { Arc::decrement_strong_count(Arc::as_ptr(&window)) };
    drop(window);
    assert_eq!(ledger.total(), 0);
}
