//! Revoke: of an old lease, a remover and a revoker exactly one wins a message.

use inflight::{RemoveError, RevokeError};

use crate::harness::{alive, both, ended, models, put, ring, settled, three};

models! {
    case_26_commit_beside_revoke: "commit of a shared lease beside revoke and commit", "3 4 7", 3,
        [LeaseGone], [];
    revoke_commit_and_remove: "commit, remove and revoke of one message", "3 4 7", 3,
        [LeaseGone], [];
    detached_remove_beside_revoke: "remove of a detached message beside its revoke", "3 4 7", 3,
        [], [RevokeShared];
    old_lease_over_a_retake: "commit of a shared lease beside revoke, rollback, take, commit", "4 5 7", 3,
        [LeaseGone], [AttemptKept, PhaseOnly];
    old_lease_over_the_next_lap: "commit of a shared lease beside remove, put of the next lap, take", "4 5 7", 3,
        [LeaseGone], [PhaseOnly];
    take_shared_beside_remove: "take_shared beside a remove: cloned before it can be finished", "3 4 7", 3,
        [], [HeldBeforeClone];
    detach_then_remove_beside_revoke: "detach and remove beside revoke and commit", "3 4 7", 3,
        [], [];
    two_revokes: "two revokes of one message: one gets it", "4 5 7", 3,
        [], [];
    commit_only_beside_remove: "commit_only of one of two beside the remove of the other", "3 4 7", 3,
        [LeaseGone], [];
}

fn case_26_commit_beside_revoke() {
    let (window, part) = ring::<2>();
    put(&part, [0]);
    let lease = part.take_shared(1).unwrap();
    let (old, revoked) = both(
        move || lease.commit().unwrap().applied,
        || match part.at(9).revoke(0) {
            Ok(lease) => {
                assert_eq!(lease.iter().next().unwrap().1.id(), 0);
                assert_eq!(part.remove(0), Err(RemoveError::Held));
                lease.commit().unwrap().applied
            }
            Err(error) => {
                assert_eq!(error, RevokeError::Passed);
                0
            }
        },
    );
    assert_eq!(old + revoked, 1);
    assert_eq!(alive(), (0, 0));
    settled(&part, 1, 0);
    ended(window, part);
}

fn revoke_commit_and_remove() {
    let (window, part) = ring::<2>();
    put(&part, [0]);
    let lease = part.take_shared(1).unwrap();
    let other = part.clone();
    let (old, removed, revoked) = three(
        move || lease.commit().unwrap().applied,
        move || match other.remove(0) {
            Ok(_) => 1,
            Err(error) => {
                assert!([RemoveError::Passed, RemoveError::Held].contains(&error));
                0
            }
        },
        || match part.at(9).revoke(0) {
            Ok(lease) => lease.commit().unwrap().applied,
            Err(error) => {
                assert_eq!(error, RevokeError::Passed);
                0
            }
        },
    );
    assert_eq!(old + removed + revoked, 1);
    assert_eq!(alive(), (0, 0));
    settled(&part, 1, 0);
    ended(window, part);
}

fn detached_remove_beside_revoke() {
    let (window, part) = ring::<2>();
    put(&part, [0]);
    part.take(1).unwrap().detach();
    let other = part.clone();
    let (removed, revoked) = both(
        move || other.remove(0),
        || match part.at(9).revoke(0) {
            Ok(lease) => {
                // Sent back here: nobody may finish it meanwhile.
                assert_eq!(lease.iter().next().unwrap().1.id(), 0);
                lease.commit().unwrap();
                true
            }
            Err(error) => {
                assert_eq!(error, RevokeError::Passed);
                false
            }
        },
    );
    match removed {
        Ok(_) => assert!(!revoked, "finished and sent back"),
        Err(error) => {
            assert!(revoked && [RemoveError::Held, RemoveError::Passed].contains(&error), "{error}")
        }
    }
    settled(&part, 1, 0);
    ended(window, part);
}

fn old_lease_over_a_retake() {
    let (window, part) = ring::<2>();
    put(&part, [0]);
    let lease = part.take_shared(1).unwrap();
    let (old, new) = both(
        move || lease.commit().unwrap().applied,
        || match part.at(9).revoke(0) {
            Ok(lease) => {
                lease.rollback().unwrap();
                part.take_shared(1).unwrap().commit().unwrap().applied
            }
            Err(error) => {
                assert_eq!(error, RevokeError::Passed);
                2
            }
        },
    );
    assert!((old, new) == (0, 1) || (old, new) == (1, 2), "old {old}, new {new}");
    settled(&part, 1, 0);
    ended(window, part);
}

fn old_lease_over_the_next_lap() {
    let (window, part) = ring::<2>();
    put(&part, [0]);
    let lease = part.take_shared(1).unwrap();
    let (old, removed) = both(
        move || lease.commit().unwrap().applied,
        || match part.remove(0) {
            Ok(_) => {
                put(&part, [2]);
                assert_eq!(part.take_shared(1).unwrap().commit().unwrap().applied, 1);
                true
            }
            Err(error) => {
                assert_eq!(error, RemoveError::Passed);
                false
            }
        },
    );
    assert_eq!(old == 0, removed);
    // Offset 1 was never put, and was sealed with 2 being the end.
    settled(&part, if removed { 3 } else { 1 }, 0);
    ended(window, part);
}

fn take_shared_beside_remove() {
    let (window, part) = ring::<2>();
    put(&part, [0]);
    let other = part.clone();
    let (committed, removed) = both(
        move || match other.take_shared(1) {
            Ok(lease) => {
                assert_eq!(lease.iter().next().unwrap().1.id(), 0);
                lease.commit().unwrap().applied
            }
            Err(_) => 0,
        },
        || match part.remove(0) {
            Ok(_) => 1,
            Err(error) => {
                assert!([RemoveError::Passed, RemoveError::Held].contains(&error));
                0
            }
        },
    );
    assert_eq!(committed + removed, 1);
    settled(&part, 1, 0);
    ended(window, part);
}

fn detach_then_remove_beside_revoke() {
    let (window, part) = ring::<2>();
    put(&part, [0]);
    let lease = part.take(1).unwrap();
    let other = part.clone();
    let (removed, revoked) = both(
        move || {
            lease.detach();
            match other.remove(0) {
                Ok(_) => 1,
                Err(error) => {
                    assert!([RemoveError::Passed, RemoveError::Held].contains(&error));
                    0
                }
            }
        },
        || match part.at(9).revoke(0) {
            Ok(lease) => lease.commit().unwrap().applied,
            Err(error) => {
                assert!([RevokeError::Passed, RevokeError::Held].contains(&error));
                0
            }
        },
    );
    assert_eq!(removed + revoked, 1);
    settled(&part, 1, 0);
    ended(window, part);
}

fn two_revokes() {
    let (window, part) = ring::<2>();
    put(&part, [0]);
    let hung = part.take_shared(1).unwrap();
    let other = part.clone();
    let revoke = |part: &crate::harness::Part<2>| match part.at(9).revoke(0) {
        Ok(lease) => {
            lease.detach();
            true
        }
        Err(error) => {
            assert_eq!(error, RevokeError::Held);
            false
        }
    };
    // A detached message can be revoked again, so both may get it, one after the other.
    let (one, two) = both(move || revoke(&other), || revoke(&part));
    assert!(one || two);
    assert_eq!(hung.commit().unwrap().gone, 1);
    settled(&part, 0, 1);
    part.remove(0).unwrap();
    settled(&part, 1, 0);
    ended(window, part);
}

fn commit_only_beside_remove() {
    let (window, part) = ring::<2>();
    put(&part, 0..2);
    let lease = part.take_shared(2).unwrap();
    let (report, removed) =
        both(move || lease.commit_only([0]).unwrap(), || part.remove(1).unwrap());
    assert_eq!((report.applied, report.gone), (1, 0));
    assert!([0, 2].contains(&removed.get()));
    settled(&part, 2, 0);
    ended(window, part);
}
