//! Rollback: what is given back is taken again, before later messages.

use inflight::{Stage, TakeError};

use crate::harness::{Part, both, ended, models, put, ring, settled, three};

models! {
    rollback_beside_take: "a rollback beside a take", "5 6 7", 3,
        [], [LoweredBeforeReady];
    rollback_exactly_at_the_cursor: "take and rollback beside a take that passes the message", "5 6 7", 3,
        [], [VersionKept];
    case_49_rollback_stopped_half_way: "a take that sees a message given back finds it", "5 6", 3,
        [FinalRescan], [NoFinalRescan];
    shared_rollback_beside_remove: "rollback of a shared lease beside a remove", "3 4 7", 3,
        [LeaseGone], [];
    two_rollbacks_and_a_take: "two rollbacks of neighbours beside a take", "5 6 7", 2,
        [], [];
}

/// The offset of a take of one, whose message is left held.
fn take_one<const N: usize>(part: &Part<N>) -> Option<u64> {
    let lease = match part.take(1) {
        Ok(lease) => lease,
        Err(error) => {
            assert_eq!(error, TakeError::Empty);
            return None;
        }
    };
    let offset = lease.iter().next().map(|(offset, _)| offset);
    lease.detach();
    offset
}

/// Nothing runs beside: takes give the rest of 0, 1, 2 in order.
fn rest_in_order(part: &Part<4>, taken: u64) {
    let rest: Vec<_> = std::iter::from_fn(|| take_one(part)).collect();
    let expected: Vec<_> = (0..3).filter(|offset| *offset != taken).collect();
    assert_eq!(rest, expected, "after {taken}");
    part.remove_batch(0..3).unwrap();
    settled(part, 3, 0);
}

fn rollback_beside_take() {
    let (window, part) = ring::<4>();
    put(&part, 0..3);
    let lease = part.take(1).unwrap();
    let (_, taken) = both(move || lease.rollback().unwrap(), || take_one(&part).unwrap());
    assert!(taken < 2);
    rest_in_order(&part, taken);
    ended(window, part);
}

fn rollback_exactly_at_the_cursor() {
    let (window, part) = ring::<4>();
    put(&part, 0..3);
    // Now the cursor's word is what a rollback of 0 makes of it again, but for the version.
    drop(part.take(1).unwrap());
    let other = part.clone();
    let (_, taken) = both(move || drop(other.take(1).unwrap()), || take_one(&part).unwrap());
    rest_in_order(&part, taken);
    ended(window, part);
}

fn case_49_rollback_stopped_half_way() {
    let (window, part) = ring::<2>();
    put(&part, [0]);
    let lease = part.take(1).unwrap();
    let (_, taken) = both(
        move || lease.rollback().unwrap(),
        || {
            let head = part.head().unwrap().unwrap();
            let given_back = head.stage == Stage::Waiting;
            let taken = take_one(&part);
            assert!(taken.is_some() || !given_back, "a message that is ready is not taken");
            taken
        },
    );
    assert_eq!(taken.or_else(|| take_one(&part)), Some(0));
    part.remove(0).unwrap();
    settled(&part, 1, 0);
    ended(window, part);
}

fn shared_rollback_beside_remove() {
    let (window, part) = ring::<2>();
    put(&part, 0..2);
    let lease = part.take_shared(2).unwrap();
    let (report, removed) = both(move || lease.rollback().unwrap(), || part.remove(0));
    removed.unwrap();
    assert_eq!(report.applied + report.gone, 2);
    settled(&part, 1, 1);
    assert_eq!(take_one(&part), Some(1));
    part.remove(1).unwrap();
    settled(&part, 2, 0);
    ended(window, part);
}

fn two_rollbacks_and_a_take() {
    let (window, part) = ring::<4>();
    put(&part, 0..3);
    let (one, two) = (part.take(1).unwrap(), part.take(1).unwrap());
    let (_, _, taken) = three(
        move || one.rollback().unwrap(),
        move || two.rollback().unwrap(),
        || take_one(&part).unwrap(),
    );
    rest_in_order(&part, taken);
    ended(window, part);
}
