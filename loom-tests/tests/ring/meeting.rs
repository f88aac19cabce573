//! The meeting: finishers beside each other lose no advance, and one offset is finished once.

use crate::harness::{
    alive, both, ended, models, put, ring, ring_with_callers_seal, settled, three,
};
use inflight::RemoveError;

models! {
    case_10_two_finish_the_last_two: "two removes of the last two offsets", "1 2 3 7", 3,
        [], [MeetingRelaxed];
    three_finish_the_last_three: "three removes, each of one offset", "1 2 3 7", 3,
        [WatermarkLost], [MeetingRelaxed, WatermarkStore];
    lending_beside_remove: "commit of a lending lease beside a remove", "1 2 3 4 7", 3,
        [], [MeetingRelaxed];
    shared_beside_lending: "commits of a shared and of a lending lease", "1 2 3 4 7", 3,
        [], [MeetingRelaxed];
    removes_over_a_gap: "two removes with a gap to seal between", "1 3 7", 3,
        [Sealed], [MeetingRelaxed];
    advance_beside_the_last_finisher: "advance_to beside the last finisher", "1 3 7", 3,
        [], [MeetingRelaxed];
    case_22_one_offset_finished_twice: "two removes of one offset beside its shared lease's commit", "3 4 7", 3,
        [LeaseGone], [];
    two_takers: "two takes of one message each, of two", "4 6", 3,
        [], [ClaimWithoutCas];
}

fn case_10_two_finish_the_last_two() {
    let (window, part) = ring::<4>();
    put(&part, 0..2);
    let other = part.clone();
    let (first, second) = both(move || other.remove(0).unwrap(), || part.remove(1).unwrap());
    assert!(first.get() >= 1);
    assert_eq!(first.max(second).get(), 2);
    settled(&part, 2, 0);
    ended(window, part);
}

fn three_finish_the_last_three() {
    let (window, part) = ring::<4>();
    put(&part, 0..3);
    let (one, two) = (part.clone(), part.clone());
    three(
        move || {
            let next = one.remove(2).unwrap();
            assert!(one.watermark().unwrap() >= next);
        },
        move || {
            two.remove(1).unwrap();
        },
        || {
            let next = part.remove(0).unwrap();
            assert!(next.get() >= 1);
            assert!(part.watermark().unwrap() >= next);
        },
    );
    settled(&part, 3, 0);
    ended(window, part);
}

fn lending_beside_remove() {
    let (window, part) = ring::<4>();
    put(&part, 0..2);
    let lease = part.take(1).unwrap();
    let (first, _) = both(move || lease.commit().unwrap(), || part.remove(1).unwrap());
    assert!(first.next.get() >= 1);
    assert_eq!(first.applied, 1);
    settled(&part, 2, 0);
    ended(window, part);
}

fn shared_beside_lending() {
    let (window, part) = ring::<4>();
    put(&part, 0..2);
    let shared = part.take_shared(1).unwrap();
    let lending = part.take(1).unwrap();
    let (one, two) = both(move || shared.commit().unwrap(), || lending.commit().unwrap());
    assert_eq!((one.applied, one.gone, two.applied, two.gone), (1, 0, 1, 0));
    assert_eq!(one.next.max(two.next).get(), 2);
    settled(&part, 2, 0);
    ended(window, part);
}

fn removes_over_a_gap() {
    let (window, part) = ring::<4>();
    put(&part, [0, 2]);
    let other = part.clone();
    both(
        move || {
            other.remove(0).unwrap();
        },
        || {
            part.remove(2).unwrap();
        },
    );
    settled(&part, 3, 0);
    ended(window, part);
}

fn advance_beside_the_last_finisher() {
    let (window, part) = ring_with_callers_seal::<4>();
    put(&part, 0..1);
    let other = part.clone();
    let (advanced, _) = both(move || other.advance_to(3).unwrap(), || part.remove(0).unwrap());
    assert!([0, 1, 3].contains(&advanced.get()));
    settled(&part, 3, 0);
    ended(window, part);
}

fn case_22_one_offset_finished_twice() {
    let (window, part) = ring::<2>();
    put(&part, 0..1);
    let lease = part.take_shared(1).unwrap();
    let other = part.clone();
    let (committed, one, two) =
        three(move || lease.commit().unwrap(), move || other.remove(0), || part.remove(0));
    let mut applied = committed.applied;
    assert_eq!(committed.applied + committed.gone, 1);
    for removed in [one, two] {
        match removed {
            Ok(_) => applied += 1,
            Err(error) => assert_eq!(error, RemoveError::Passed),
        }
    }
    assert_eq!(applied, 1);
    assert_eq!(alive(), (0, 0));
    settled(&part, 1, 0);
    ended(window, part);
}

fn two_takers() {
    let (window, part) = ring::<4>();
    put(&part, 0..2);
    let other = part.clone();
    let take = |part: &crate::harness::Part<4>| {
        let lease = part.take(1).unwrap();
        let taken: Vec<_> = lease.iter().map(|(offset, token)| (offset, token.id())).collect();
        lease.commit().unwrap();
        taken[0]
    };
    let (one, two) = both(move || take(&other), || take(&part));
    let mut taken = [one, two];
    taken.sort_unstable();
    assert_eq!(taken, [(0, 0), (1, 1)]);
    settled(&part, 2, 0);
    ended(window, part);
}
