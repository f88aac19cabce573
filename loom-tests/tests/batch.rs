//! Model checks of the batch watermark: every schedule of a few calls beside each other, with plain
//! accesses (which finds weak orderings) and with accesses as read-modify-writes (which finds
//! every schedule), then weakened by each control, which must be noticed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use inflight::model::{Branch, Control, clear_hits, hits, set_control, set_rmw};
use inflight::{BatchError, BatchWatermark, Batches, Next};
use loom::thread;

type Watermark = BatchWatermark<2>;
type Handle = Batches<Arc<Watermark>>;

fn explore(rmw: bool, bound: usize, body: fn()) -> bool {
    set_rmw(rmw);
    let mut builder = loom::model::Builder::new();
    let full = std::env::var("INFLIGHT_LOOM").is_ok_and(|how| how == "full");
    builder.preemption_bound = (!full).then_some(bound);
    builder.max_branches = 10_000;
    catch_unwind(AssertUnwindSafe(|| builder.check(body))).is_ok()
}

/// All schedules pass both ways and reach the branches; each control fails in one way at least.
fn check(bound: usize, body: fn(), branches: &[Branch], controls: &[Control]) {
    clear_hits();
    set_control(None);
    for rmw in [false, true] {
        assert!(explore(rmw, bound, body), "rmw: {rmw}");
    }
    for branch in branches {
        assert!(hits(*branch) > 0, "never reached {branch:?}");
    }
    for control in controls {
        set_control(Some(*control));
        let noticed = [false, true].iter().any(|rmw| !explore(*rmw, bound, body));
        set_control(None);
        assert!(noticed, "passes although weakened by {control:?}");
    }
    set_rmw(false);
}

fn batches(start: u64) -> (Arc<Watermark>, Handle) {
    let watermark = Arc::new(Watermark::new());
    let batches = watermark.assign_owned(start);
    (watermark, batches)
}

fn value(batches: &Handle) -> u64 {
    batches.watermark().unwrap().get()
}

fn get(next: Option<Next>) -> u64 {
    next.map_or(0, Next::get)
}

/// Two enders at the front, each of a batch: nothing is lost, and the last advance is said.
#[test]
fn two_enders_at_the_front() {
    check(
        3,
        || {
            let (_, batches) = batches(0);
            let (one, two) = (batches.begin(1).unwrap(), batches.begin(1).unwrap());
            let other = batches.clone();
            let first = thread::spawn(move || get(other.end(one, 10).unwrap()));
            let second = get(batches.end(two, 20).unwrap());
            let first = first.join().unwrap();
            assert!([0, 10, 20].contains(&first) && [0, 20].contains(&second));
            assert_eq!(first.max(second), 20, "the advance is said");
            assert_eq!(value(&batches), 20);
            assert_eq!(batches.head().unwrap(), None);
        },
        &[Branch::BatchHelped],
        &[Control::BatchesDoNotMeet],
    );
}

/// Two parts of one batch are ended beside each other: the higher offset counts, said once.
#[test]
fn two_parts_of_one_batch() {
    check(
        3,
        || {
            let (_, batches) = batches(0);
            let one = batches.begin(2).unwrap();
            let other = batches.clone();
            let first = thread::spawn(move || get(other.end(one, 20).unwrap()));
            let second = get(batches.end(one, 10).unwrap());
            let first = first.join().unwrap();
            assert_eq!((first.max(second), first.min(second)), (20, 0));
            assert_eq!(value(&batches), 20);
            assert_eq!(batches.end(one, 30), Err(BatchError::Finished));
        },
        &[],
        &[],
    );
}

/// Two begin and end: batches have their order, and every one is passed and said.
#[test]
fn two_begin_and_end() {
    check(
        3,
        || {
            let (_, batches) = batches(0);
            let work = |batches: &Handle, next| {
                let id = batches.begin(1).unwrap();
                (id, get(batches.end(id, next).unwrap()))
            };
            let other = batches.clone();
            let one = thread::spawn(move || work(&other, 10));
            let two = work(&batches, 20);
            let one = one.join().unwrap();
            assert_ne!(one.0, two.0);
            assert_eq!(one.1.max(two.1), 20);
            assert_eq!(value(&batches), 20);
            assert_eq!(batches.head().unwrap(), None);
        },
        &[Branch::BatchHelped],
        &[Control::BatchesDoNotMeet],
    );
}

/// Three enders, of two parts of the front batch and of the next one.
#[test]
fn three_enders() {
    check(
        2,
        || {
            let (_, batches) = batches(0);
            let (one, two) = (batches.begin(2).unwrap(), batches.begin(1).unwrap());
            let (a, b) = (batches.clone(), batches.clone());
            let a = thread::spawn(move || get(a.end(one, 30).unwrap()));
            let b = thread::spawn(move || get(b.end(one, 10).unwrap()));
            let c = get(batches.end(two, 20).unwrap());
            let said = [a.join().unwrap(), b.join().unwrap(), c];
            assert_eq!(said.iter().max(), Some(&30));
            assert!(!said.contains(&10) && !said.contains(&20));
            assert_eq!(value(&batches), 30);
            assert_eq!(batches.head().unwrap(), None);
        },
        &[Branch::BatchHelped],
        &[Control::BatchesDoNotMeet],
    );
}

/// A second end of a part beside the first, and the slot used again: it raises nothing.
#[test]
fn a_stale_end_beside_the_next_use_of_its_slot() {
    check(
        3,
        || {
            let (_, batches) = batches(0);
            let one = batches.begin(1).unwrap();
            let other = batches.clone();
            let late = thread::spawn(move || other.end(one, 90));
            let first = batches.end(one, 10);
            let two = batches.begin(1);
            let three = batches.begin(1);
            let late = late.join().unwrap();
            assert!(late.is_ok() != first.is_ok(), "one part is ended once");
            let passed = if late.is_ok() { 90 } else { 10 };
            if let (Ok(two), Ok(three)) = (two, three) {
                assert!(value(&batches) <= passed, "said for an open batch");
                assert_eq!(get(batches.end(two, 91).unwrap()), 91);
                assert_eq!(get(batches.end(three, 92).unwrap()), 92);
            }
            assert!(value(&batches) == passed || value(&batches) == 92);
        },
        &[],
        &[Control::BatchRaisedUnclaimed, Control::BatchLapIgnored],
    );
}

/// A slide beside the next use of the slot that it looks at: what it read is not said.
#[test]
fn a_slide_beside_the_next_use_of_its_slot() {
    check(
        2,
        || {
            let (_, batches) = batches(0);
            let (one, two) = (batches.begin(1).unwrap(), batches.begin(1).unwrap());
            let other = batches.clone();
            // Slides over both, or the second alone.
            let helper = thread::spawn(move || get(other.end(two, 20).unwrap()));
            let own = get(batches.end(one, 10).unwrap());
            // The first one's slot again, with a part that is done and one that is not.
            let three = batches.begin(2);
            if let Ok(three) = three {
                assert_eq!(batches.end(three, 90).unwrap(), None);
            }
            let helped = helper.join().unwrap();
            assert_eq!(own.max(helped), 20);
            assert_eq!(value(&batches), 20, "above an open batch");
            if let Ok(three) = three {
                assert_eq!(get(batches.end(three, 30).unwrap()), 90);
            }
        },
        &[Branch::BatchPassedMeanwhile],
        &[Control::BatchReadOnce, Control::BatchPassedByStore],
    );
}

/// Assign beside an end: the end is of before or `Stale`, and the next assignment is untouched.
#[test]
fn assign_beside_an_end() {
    check(
        3,
        || {
            let (watermark, old) = batches(0);
            let one = old.begin(2).unwrap();
            let ender = thread::spawn(move || old.end(one, 1000));
            let new = watermark.assign_owned(0);
            // The same slot or the other one: both are begun.
            let begun = [new.begin(1).unwrap(), new.begin(1).unwrap()];
            let said = ender.join().unwrap();
            assert!(said == Ok(None) || said == Err(BatchError::Stale));
            assert_eq!(value(&new), 0);
            for (id, next) in begun.into_iter().zip([5, 6]) {
                assert_eq!(get(new.end(id, next).unwrap()), next, "raised by an ended assignment");
            }
        },
        &[Branch::BatchEvicted],
        &[Control::BatchEvictedRaises, Control::BatchOffsetsLeft],
    );
}

/// An ender of an ended assignment never passes, and so never says, a batch of the next one.
#[test]
fn an_old_slide_beside_a_new_end() {
    check(
        3,
        || {
            let (watermark, old) = batches(0);
            let one = old.begin(1).unwrap();
            let ender = thread::spawn(move || old.end(one, 1000));
            let new = watermark.assign_owned(0);
            let two = new.begin(1).unwrap();
            assert_eq!(get(new.end(two, 5).unwrap()), 5, "not said to its own ender");
            let said = ender.join().unwrap().map(get);
            assert!([Ok(1000), Err(BatchError::Stale)].contains(&said));
            assert_eq!(value(&new), 5);
        },
        &[],
        &[Control::BatchSlideStale],
    );
}

/// A begin beside an assign: of before, or `Stale`; the next assignment starts empty.
#[test]
fn assign_beside_a_begin() {
    check(
        3,
        || {
            let (watermark, old) = batches(0);
            let beginner = thread::spawn(move || {
                let begun = old.begin(1);
                assert!(begun.is_ok() || begun == Err(inflight::BeginError::Stale));
            });
            let new = watermark.assign_owned(7);
            let begun = [new.begin(1).unwrap(), new.begin(1).unwrap()];
            beginner.join().unwrap();
            for (id, next) in begun.into_iter().zip([10, 20]) {
                assert_eq!(get(new.end(id, next).unwrap()), next);
            }
            assert_eq!(new.head().unwrap(), None);
        },
        &[],
        &[],
    );
}

/// Two assigns beside each other: one is in force, whole.
#[test]
fn two_assigns() {
    check(
        2,
        || {
            let (watermark, old) = batches(0);
            let id = old.begin(2).unwrap();
            old.end(id, 100).unwrap();
            let other = Arc::clone(&watermark);
            let work = |part: &Handle| {
                let id = part.begin(1).ok()?;
                part.end(id, 5).ok()
            };
            let one = thread::spawn(move || {
                let part = other.assign_owned(0);
                let said = work(&part);
                (part, said)
            });
            let two = watermark.assign_owned(0);
            let said = work(&two);
            let (one, first) = one.join().unwrap();
            let mut in_force = 0;
            for (part, said) in [(one, first), (two, said)] {
                if let Ok(next) = part.watermark() {
                    in_force += 1;
                    assert_eq!(next.get(), 5);
                    assert_eq!(said.map(get), Some(5));
                }
            }
            assert_eq!(in_force, 1);
        },
        &[],
        &[Control::BatchOffsetsLeft],
    );
}

/// A failed part is retried beside the end of the other one: passed once, with the highest.
#[test]
fn retry_beside_an_end() {
    check(
        3,
        || {
            let (_, batches) = batches(0);
            let one = batches.begin(2).unwrap();
            batches.fail(one).unwrap();
            let other = batches.clone();
            let first = thread::spawn(move || get(other.end(one, 10).unwrap()));
            batches.retry(one).unwrap();
            let second = get(batches.end(one, 20).unwrap());
            let first = first.join().unwrap();
            assert_eq!((first.max(second), first.min(second)), (20, 0));
            assert_eq!(value(&batches), 20);
        },
        &[],
        &[],
    );
}
