//! Receipts: what gives detached messages back touches no message but its own.

use inflight::{RemoveError, RevokeError, TakeError, Window};

use crate::harness::{Part, Token, alive, both, ended, models, put, ring, settled, three};

models! {
    give_back_beside_remove: "give_back of a receipt beside a remove", "3 4 7", 3,
        [LeaseGone], [];
    give_back_beside_the_next_lap: "give_back of a receipt beside remove, put of the next lap, take", "4 5 7", 3,
        [LeaseGone], [PhaseOnly];
    give_back_beside_revoke: "give_back of a receipt beside revoke and commit", "3 4 7", 3,
        [LeaseGone], [];
    give_back_over_a_retake: "give_back of a receipt beside revoke, rollback, take, commit", "4 5 7", 3,
        [LeaseGone], [AttemptKept, PhaseOnly];
    give_back_beside_assign: "give_back of a receipt beside assign, put and take", "3 4 7", 3,
        [LeaseGone], [PhaseOnly];
    give_back_beside_take: "give_back of two beside a take", "5 6 7", 3,
        [], [LoweredBeforeReady];
    give_back_beside_a_dry_take: "give_back beside a take that finds nothing: somebody is told", "5 6", 3,
        [], [SignalRelaxed];
    into_detached_beside_remove_and_revoke: "into_detached and give_back beside a remove and a revoke", "3 4 7", 2,
        [LeaseGone], [];
}

fn give_back_beside_remove() {
    let (window, part) = ring::<2>();
    put(&part, 0..2);
    let detached = part.take_shared(2).unwrap().into_detached();
    assert_eq!(alive(), (2, 0), "it has no clone");
    let (report, removed) = both(move || detached.give_back().unwrap(), || part.remove(0));
    removed.unwrap();
    assert_eq!(report.applied + report.gone, 2);
    assert!(report.applied >= 1);
    settled(&part, 1, 1);
    assert_eq!(part.take(2).unwrap().commit().unwrap().applied, 1);
    settled(&part, 2, 0);
    ended(window, part);
}

fn give_back_beside_the_next_lap() {
    let (window, part) = ring::<2>();
    put(&part, [0]);
    let detached = part.take_shared(1).unwrap().into_detached();
    let (report, _) = both(
        move || detached.give_back().unwrap(),
        || {
            part.remove(0).unwrap();
            put(&part, [2]);
            let lease = part.take_shared(1).unwrap();
            // Nobody has given back what this lease has.
            assert_eq!(part.take(1).err(), Some(TakeError::Empty));
            assert_eq!(lease.commit().unwrap().applied, 1);
        },
    );
    assert_eq!(report.applied + report.gone, 1);
    // Offset 1 was never put, and was sealed with 2 being the end.
    settled(&part, 3, 0);
    ended(window, part);
}

fn give_back_beside_revoke() {
    let (window, part) = ring::<2>();
    put(&part, [0]);
    let detached = part.take_shared(1).unwrap().into_detached();
    let (report, revoked) = both(
        move || detached.give_back().unwrap(),
        || match part.at(9).revoke(0) {
            Ok(lease) => {
                // Sent back here: nobody may take it meanwhile.
                assert_eq!(part.take(1).err(), Some(TakeError::Empty));
                lease.commit().unwrap();
                true
            }
            Err(error) => {
                assert_eq!(error, RevokeError::Waiting);
                false
            }
        },
    );
    assert_eq!((report.applied, report.gone), if revoked { (0, 1) } else { (1, 0) });
    if !revoked {
        assert_eq!(part.take(1).unwrap().commit().unwrap().applied, 1);
    }
    assert_eq!(alive(), (0, 0));
    settled(&part, 1, 0);
    ended(window, part);
}

fn give_back_over_a_retake() {
    let (window, part) = ring::<2>();
    put(&part, [0]);
    let detached = part.take_shared(1).unwrap().into_detached();
    let (report, retaken) = both(
        move || detached.give_back().unwrap(),
        || match part.at(9).revoke(0) {
            Ok(lease) => {
                lease.rollback().unwrap();
                // The same message and lap, held again: of another attempt.
                let younger = part.take_shared(1).unwrap();
                assert_eq!(part.take(1).err(), Some(TakeError::Empty));
                assert_eq!(younger.commit().unwrap().applied, 1);
                true
            }
            Err(error) => {
                assert_eq!(error, RevokeError::Waiting);
                false
            }
        },
    );
    assert_eq!(report.gone == 1, retaken);
    if !retaken {
        part.remove(0).unwrap();
    }
    settled(&part, 1, 0);
    ended(window, part);
}

fn give_back_beside_assign() {
    let (window, part) = ring::<2>();
    put(&part, [0]);
    let detached = part.take_shared(1).unwrap().into_detached();
    let other = window.clone();
    let (report, new) = both(
        move || detached.give_back(),
        move || {
            let new = other.assign_owned(0);
            new.put_sized(0, 1, Token::new()).unwrap();
            let lease = new.take_shared(1).unwrap();
            assert_eq!(new.take(1).err(), Some(TakeError::Empty));
            assert_eq!(lease.commit().unwrap().applied, 1);
            new
        },
    );
    if let Ok(report) = report {
        assert_eq!((report.next.get(), report.applied + report.gone), (0, 1));
    }
    assert_eq!(alive(), (0, 0), "the old generation has left something");
    settled(&new, 1, 0);
    drop(part);
    ended(window, new);
}

fn give_back_beside_take() {
    let (window, part) = ring::<4>();
    put(&part, 0..4);
    let detached = part.take_shared(2).unwrap().into_detached();
    let take_one = |part: &Part<4>| {
        let lease = part.take(1).unwrap();
        let offset = lease.iter().next().unwrap().0;
        lease.detach();
        offset
    };
    let (report, taken) = both(move || detached.give_back().unwrap(), || take_one(&part));
    assert_eq!((report.applied, report.gone), (2, 0));
    // Nothing runs beside: in order, what was given back before what is later.
    let rest: Vec<_> = (0..3).map(|_| take_one(&part)).collect();
    let expected: Vec<_> = (0..4).filter(|offset| *offset != taken).collect();
    assert_eq!(rest, expected, "after {taken}");
    part.remove_batch(0..4).unwrap();
    settled(&part, 4, 0);
    ended(window, part);
}

fn give_back_beside_a_dry_take() {
    let (window, part) = ring::<2>();
    put(&part, [0]);
    let detached = part.take_shared(1).unwrap().into_detached();
    let (report, taken) = both(move || detached.give_back().unwrap(), || part.take(1));
    match taken {
        Ok(lease) => drop(lease.commit().unwrap()),
        Err(error) => {
            assert_eq!(error, TakeError::Empty);
            assert!(report.dispatch, "it is ready, and nobody was told");
            part.remove(0).unwrap();
        }
    }
    settled(&part, 1, 0);
    ended(window, part);
}

fn into_detached_beside_remove_and_revoke() {
    let (window, part) = ring::<2>();
    put(&part, 0..2);
    let lease = part.take_shared(2).unwrap();
    let other = part.clone();
    let (report, removed, revoked) = three(
        move || lease.into_detached().give_back().unwrap(),
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
                assert!([RevokeError::Passed, RevokeError::Waiting].contains(&error));
                0
            }
        },
    );
    assert_eq!(removed + revoked, 1);
    assert_eq!(report.applied + report.gone, 2);
    settled(&part, 1, 1);
    assert_eq!(part.take(2).unwrap().commit().unwrap().applied, 1);
    settled(&part, 2, 0);
    ended(window, part);
}
