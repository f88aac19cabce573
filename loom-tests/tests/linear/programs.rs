//! The programs, over any window, and how they are run.

use std::cell::RefCell;
use std::collections::HashSet;
use std::sync::Arc;

use inflight::Window;
use loom::sync::atomic::{AtomicUsize, Ordering};

use crate::driver::{End, Step};
use crate::message::{Ledger, Message};
use crate::recorder::{Worker, accepted, history};
use crate::spec::Rules;

/// Calls one after the other, then those of each thread beside each other.
pub struct Program {
    before: Vec<Step>,
    threads: Vec<Vec<Step>>,
}

pub fn put(offset: u64) -> Step {
    Step::Put { part: 0, offset, bytes: 1, id: offset }
}

/// Another message of that offset.
pub fn put_again(offset: u64) -> Step {
    Step::Put { part: 0, offset, bytes: 1, id: 100 + offset }
}

pub fn put_batch<const N: usize>(offsets: [u64; N]) -> Step {
    let items = offsets.map(|offset| (offset, 1, offset)).to_vec();
    Step::PutBatch { part: 0, items, panic_at: None }
}

pub fn take(n: usize, token: usize) -> Step {
    Step::Take { part: 0, n, shared: false, now: None, token }
}

pub fn take_shared(n: usize, token: usize) -> Step {
    Step::Take { part: 0, n, shared: true, now: None, token }
}

pub fn end(token: usize, how: End) -> Step {
    Step::End { token, how }
}

pub fn commit(token: usize) -> Step {
    end(token, End::Commit)
}

pub fn commit_only<const N: usize>(token: usize, done: [u64; N]) -> Step {
    end(token, End::Only { done: done.to_vec(), panic_at: None })
}

pub fn rollback(token: usize) -> Step {
    end(token, End::Rollback)
}

pub fn remove(offset: u64) -> Step {
    Step::Remove { part: 0, offset }
}

pub fn remove_batch<const N: usize>(offsets: [u64; N]) -> Step {
    Step::RemoveBatch { part: 0, offsets: offsets.to_vec(), panic_at: None }
}

pub fn revoke(offset: u64, token: usize) -> Step {
    Step::Revoke { part: 0, offset, now: 0, token }
}

pub fn advance_to(next: u64) -> Step {
    Step::AdvanceTo { part: 0, next }
}

pub fn advance_floor(low: u64) -> Step {
    Step::AdvanceFloor { part: 0, low }
}

pub fn assign(start: u64) -> Step {
    Step::Assign { start }
}

pub const WATERMARK: Step = Step::Watermark { part: 0 };
pub const MIN_OFFSET: Step = Step::MinOffset { part: 0 };
pub const HEAD: Step = Step::Head { part: 0 };
pub const CLOSE: Step = Step::Close { part: 0 };

/// What is left, held or not.
fn all() -> Step {
    remove_batch([0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
}

pub fn program<const A: usize>(before: [Step; A], threads: &[&[Step]]) -> Program {
    let threads = threads.iter().map(|steps| steps.to_vec()).collect();
    Program { before: before.to_vec(), threads }
}

std::thread_local! {
    /// Histories that were accepted in an execution before.
    static KNOWN: RefCell<HashSet<String>> = RefCell::new(HashSet::new());
}

/// Runs one execution, and checks what it answered.
pub fn run<W>(window: W, callers_seal: bool, program: Program)
where
    W: Window<Value = Message> + 'static,
{
    let ledger = Ledger::new();
    let clock = Arc::new(AtomicUsize::new(0));
    // Its reads and writes are the order that the history claims.
    let tick = move || clock.fetch_add(1, Ordering::AcqRel) as u64;
    let window = Arc::new(window);
    let rules = Rules { capacity: window.capacity().map(|n| n as u64), callers_seal, far: 1 << 20 };
    let mut first = Worker::new(Arc::clone(&window), &ledger, 0, tick);
    for step in &program.before {
        first.call(step);
    }
    let mut threads = program.threads.into_iter().enumerate().map(|(index, steps)| {
        let mut worker = first.beside(index + 1);
        move || {
            for step in &steps {
                worker.call(step);
            }
            worker
        }
    });
    // The last one on the model's main thread.
    let last = threads.next_back().expect("a thread");
    let others: Vec<_> = threads.collect();
    let others: Vec<_> = others.into_iter().map(|thread| loom::thread::spawn(thread)).collect();
    let mut workers = vec![last()];
    workers.extend(others.into_iter().map(|thread| thread.join().expect("reported before")));
    // What is left is there: closed, every lease ended, nothing is ready that was not put.
    workers.iter_mut().for_each(Worker::end);
    for step in [WATERMARK, MIN_OFFSET, HEAD, CLOSE, take(9, 900), commit(900), all(), take(9, 901)]
    {
        first.call(&step);
    }
    for (index, worker) in workers.iter_mut().enumerate() {
        // The handle that it made, if it made one.
        if worker.real().parts() > 1 {
            let n = 9;
            let take = Step::Take { part: 1, n, shared: false, now: None, token: 910 + index };
            worker.call(&Step::Head { part: 1 });
            worker.call(&take);
            worker.call(&commit(910 + index));
            let Step::RemoveBatch { offsets, panic_at, .. } = all() else { continue };
            worker.call(&Step::RemoveBatch { part: 1, offsets, panic_at });
        }
    }
    first.end();
    workers.push(first);
    let history = history(workers);
    let told = format!("{history:?}");
    if !KNOWN.with_borrow(|known| known.contains(&told)) {
        accepted(rules, 0, &history);
        KNOWN.with_borrow_mut(|known| known.insert(told));
    }
    assert_eq!(window.count(), 0, "everything is finished");
    assert_eq!(Arc::strong_count(&window), 1, "a lease or handle is left");
    drop(window);
    assert_eq!(ledger.total(), 0, "messages and clones are left");
}

// --- the programs ---

pub fn puts_and_takes() -> Program {
    program([], &[&[put(0), put(1)], &[take(1, 1), commit(1), take(1, 2)]])
}

pub fn two_takes() -> Program {
    program([put(0), put(1)], &[&[take(1, 1), commit(1)], &[take(1, 2), commit(2)]])
}

pub fn late_put_and_takes() -> Program {
    program([put(1), put(2)], &[&[put(0), take(1, 1)], &[take(1, 2)]])
}

pub fn batch_and_takes() -> Program {
    program([], &[&[put_batch([0, 2, 1])], &[take(2, 1), commit(1)], &[take(1, 2)]])
}

pub fn removes_of_neighbours() -> Program {
    program([put(0), put(1)], &[&[remove(0), WATERMARK], &[remove(1), WATERMARK]])
}

pub fn one_offset_finished_thrice() -> Program {
    program(
        [put(0), put(1), take_shared(1, 1)],
        &[&[remove(0), WATERMARK], &[remove(0), MIN_OFFSET], &[remove_batch([0, 1])]],
    )
}

pub fn two_puts_of_one_offset() -> Program {
    program([], &[&[put(0), remove(0)], &[put_again(0), take(1, 1)]])
}

pub fn gap_filled_or_sealed() -> Program {
    program([put(0), put(2)], &[&[put(1), WATERMARK], &[remove(0), MIN_OFFSET]])
}

pub fn commits_beside_rollback() -> Program {
    program(
        [put_batch([0, 1, 2])],
        &[&[take(2, 1), commit_only(1, [1])], &[take(1, 2), rollback(2), take(1, 3)]],
    )
}

pub fn rollback_beside_takes() -> Program {
    program(
        [put_batch([0, 1, 2])],
        &[&[take(1, 1), rollback(1), take(1, 2)], &[take(1, 3), take(1, 4)]],
    )
}

pub fn shared_commit_beside_revoke() -> Program {
    program(
        [put(0), put(1)],
        &[&[take_shared(1, 1), commit(1)], &[revoke(0, 2), rollback(2), take_shared(1, 3)]],
    )
}

pub fn detached_remove_beside_revoke() -> Program {
    program(
        [put(0), take(1, 1), end(1, End::Detach)],
        &[&[revoke(0, 2), commit(2)], &[remove(0), WATERMARK]],
    )
}

pub fn head_beside_commit() -> Program {
    program([put(0), put(1)], &[&[take(1, 1), commit(1)], &[HEAD, HEAD]])
}

pub fn advance_beside_put() -> Program {
    program([put(0)], &[&[advance_to(3), WATERMARK], &[put(2), remove(0)]])
}

pub fn floor_beside_put_and_take() -> Program {
    program([put(0)], &[&[advance_floor(2), WATERMARK], &[put(1), take(1, 1), commit(1)]])
}

pub fn floor_beside_lease() -> Program {
    program([put_batch([0, 1, 2])], &[&[advance_floor(1)], &[take(2, 1), commit_only(1, [0])]])
}

pub fn put_that_falls_beside_the_next() -> Program {
    program([take(1, 1)], &[&[put(0)], &[advance_floor(1), put(1)]])
}

pub fn floor_beside_a_second_put() -> Program {
    program([put(0), take(1, 1)], &[&[advance_floor(1)], &[put_again(0), WATERMARK]])
}

pub fn close_beside_put() -> Program {
    program([], &[&[CLOSE, take(1, 1)], &[put(0), take(1, 2), commit(2)]])
}

pub fn assign_beside_put() -> Program {
    let new = Step::Put { part: 1, offset: 0, bytes: 1, id: 50 };
    let took = Step::Take { part: 1, n: 1, shared: false, now: None, token: 1 };
    program([], &[&[put(0), remove(0)], &[assign(0), new, took]])
}

pub fn assign_beside_lease() -> Program {
    let new = Step::Put { part: 1, offset: 0, bytes: 1, id: 50 };
    let took = Step::Take { part: 1, n: 1, shared: false, now: None, token: 2 };
    program([put(0)], &[&[take(1, 1), rollback(1)], &[assign(0), new, took]])
}

/// A window of two: beyond it a put makes room, or is refused.
pub fn put_at_a_full_window() -> Program {
    program([put(0), put(1)], &[&[put(2), WATERMARK], &[remove(0), remove(1)]])
}

/// A window of two: the gap that both slides see is sealed by one, and its slot filled, before the
/// other seals.
pub fn gap_sealed_and_filled_by_the_next_lap() -> Program {
    program([put(1)], &[&[MIN_OFFSET], &[MIN_OFFSET, put(2), WATERMARK]])
}

/// A window of two: nothing unfinished, so a put goes far ahead.
pub fn two_far_puts() -> Program {
    program([], &[&[put(3), WATERMARK], &[put(9), MIN_OFFSET]])
}

/// A window of two: the next lap in the slot of the message of an old lease.
pub fn old_lease_beside_the_next_lap() -> Program {
    program(
        [put(0), take_shared(1, 1)],
        &[&[take_shared(1, 2), WATERMARK], &[remove(0), put(2), take(1, 3)]],
    )
}
