//! Leases: found again by offset, revoked, given back while blocks are passed.

use inflight::RevokeError;

use crate::harness::{alive, both, models};
use crate::support::{ended, put, remove, remove_if_there, settled, skip, slid};

models! {
    revoke_beside_commit: "revoke beside the commit of the shared lease", "3 4 7", 3,
        [LeaseGone], [];
    case_26_revoke_beside_remove: "revoke of a detached message beside its remove", "3 4 7", 3,
        [], [RevokeShared];
    revoke_and_retake_beside_commit: "revoke, rollback and a new take beside the old commit", "3 4 5 7", 3,
        [LeaseGone], [AttemptKept];
    shared_rollback_beside_pass: "rollback of a shared lease beside the pass of the block before", "3 5 7", 3,
        [LastReference], [];
    give_back_beside_pass: "give_back of a receipt beside the pass of the block before", "3 5 7", 3,
        [LastReference], [];
    give_back_beside_remove_and_pass: "give_back of a receipt beside the remove of its message, the last of its block", "3 4 5 7", 3,
        [LeaseGone], [];
    give_back_over_a_retake: "give_back of a receipt beside revoke, rollback and a new take", "3 4 5 7", 3,
        [LeaseGone], [AttemptKept];
    lending_rollback_beside_finisher: "rollback of a lending lease beside a finisher", "3 5 7", 3,
        [], [];
    take_shared_beside_remove: "take_shared beside the remove of its message", "3 4 7", 3 / 2,
        [], [HeldBeforeClone];
}

fn revoke_beside_commit() {
    let (window, part) = skip();
    put(&part, [0, 64]);
    let lease = part.take_shared(2).unwrap();
    let other = part.clone();
    let (revoked, report) = both(
        move || match other.at(7).revoke(64) {
            Ok(lease) => {
                assert_eq!(lease.iter().next().unwrap().1.id(), 1);
                lease.commit().unwrap();
                1
            }
            Err(error) => {
                assert_eq!(error, RevokeError::Passed);
                0
            }
        },
        || lease.commit().unwrap(),
    );
    assert_eq!(report.applied + revoked, 2);
    settled(&part, 65, 0);
    ended(window, part);
}

fn case_26_revoke_beside_remove() {
    let (window, part) = skip();
    put(&part, [64]);
    part.take(1).unwrap().detach();
    let other = part.clone();
    let (revoked, removed) = both(
        move || match other.at(7).revoke(64) {
            Ok(lease) => {
                lease.iter().next().unwrap().1.id();
                lease.commit().unwrap();
                true
            }
            Err(error) => {
                assert_eq!(error, RevokeError::Passed);
                false
            }
        },
        || part.remove(64).is_ok(),
    );
    assert!(revoked != removed);
    assert_eq!(alive(), (0, 0));
    settled(&part, 65, 0);
    ended(window, part);
}

fn revoke_and_retake_beside_commit() {
    let (window, part) = skip();
    put(&part, [64]);
    let lease = part.take_shared(1).unwrap();
    let other = part.clone();
    let (again, report) = both(
        move || match other.at(7).revoke(64) {
            Ok(lease) => {
                lease.rollback().unwrap();
                other.take_shared(1).ok()
            }
            Err(_) => None,
        },
        || lease.commit().unwrap(),
    );
    match again {
        Some(again) => {
            assert_eq!((report.applied, report.gone), (0, 1));
            slid(&part, 64, 1);
            assert_eq!(again.commit().unwrap().applied, 1);
        }
        None => assert_eq!(report.applied, 1),
    }
    settled(&part, 65, 0);
    ended(window, part);
}

fn shared_rollback_beside_pass() {
    let (window, part) = skip();
    put(&part, [0, 64]);
    part.take(1).unwrap().detach();
    let lease = part.take_shared(1).unwrap();
    let other = part.clone();
    let (_, report) = both(move || remove(&other, [0]), || lease.rollback().unwrap());
    assert_eq!(report.applied, 1);
    slid(&part, 64, 1);
    assert_eq!(crate::support::take_one(&part), Some(64));
    settled(&part, 65, 0);
    ended(window, part);
}

fn give_back_beside_pass() {
    let (window, part) = skip();
    put(&part, [0, 64]);
    part.take(1).unwrap().detach();
    let detached = part.take_shared(1).unwrap().into_detached();
    let other = part.clone();
    let (_, report) = both(move || remove(&other, [0]), || detached.give_back().unwrap());
    assert_eq!((report.applied, report.gone), (1, 0));
    slid(&part, 64, 1);
    assert_eq!(crate::support::take_one(&part), Some(64));
    settled(&part, 65, 0);
    ended(window, part);
}

fn give_back_beside_remove_and_pass() {
    let (window, part) = skip();
    put(&part, [0, 64]);
    let detached = part.take_shared(1).unwrap().into_detached();
    let other = part.clone();
    // The block and its chunk go with the message: the receipt must not keep or touch them.
    let (_, report) = both(move || remove(&other, [0]), || detached.give_back().unwrap());
    assert_eq!(report.applied + report.gone, 1);
    slid(&part, 64, 1);
    assert_eq!(crate::support::take_one(&part), Some(64));
    settled(&part, 65, 0);
    ended(window, part);
}

fn give_back_over_a_retake() {
    let (window, part) = skip();
    put(&part, [64]);
    let detached = part.take_shared(1).unwrap().into_detached();
    let other = part.clone();
    let (again, report) = both(
        move || match other.at(7).revoke(64) {
            Ok(lease) => {
                lease.rollback().unwrap();
                other.take_shared(1).ok()
            }
            Err(error) => {
                assert_eq!(error, RevokeError::Waiting);
                None
            }
        },
        || detached.give_back().unwrap(),
    );
    match again {
        Some(again) => {
            assert_eq!((report.applied, report.gone), (0, 1));
            slid(&part, 64, 1);
            assert_eq!(again.commit().unwrap().applied, 1);
        }
        None => {
            assert_eq!(report.applied, 1);
            assert_eq!(crate::support::take_one(&part), Some(64));
        }
    }
    settled(&part, 65, 0);
    ended(window, part);
}

fn lending_rollback_beside_finisher() {
    let (window, part) = skip();
    put(&part, [0, 64]);
    let lease = part.take(1).unwrap();
    let other = part.clone();
    both(move || remove(&other, [64]), || lease.rollback().unwrap());
    settled(&part, 0, 1);
    assert_eq!(crate::support::take_one(&part), Some(0));
    settled(&part, 65, 0);
    ended(window, part);
}

fn take_shared_beside_remove() {
    let (window, part) = skip();
    put(&part, [64]);
    let other = part.clone();
    let (won, applied) = both(
        move || match other.remove(64) {
            Ok(_) => 1,
            Err(_) => 0,
        },
        || match part.take_shared(1) {
            Ok(lease) => lease.commit().unwrap().applied,
            Err(_) => 0,
        },
    );
    assert!(won + applied == 1, "{won} {applied}");
    assert!(!remove_if_there(&part, 64));
    settled(&part, 65, 0);
    ended(window, part);
}
