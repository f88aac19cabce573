//! The floor against everything that may have a message below it. The ring raises
//! the laps of what is not there yet; the skip window, whose models are elsewhere, relies on the
//! put to look at the floor.

use inflight::{PutErrorKind, RemoveError};

use crate::harness::{Token, both, ended, models, put, ring, settled, slid};

models! {
    floor_beside_put: "advance_floor beside a put below it", "1 4 5 7", 3,
        [], [FillingLeft];
    floor_beside_take: "advance_floor beside a take and its commit", "1 4 7", 3,
        [DoomedReleased, FloorDoomed], [];
    floor_beside_rollback: "advance_floor beside a rollback", "1 4 5 7", 3, [], [LeftByStore, DoomedSilent];
    floor_beside_shared_commit: "advance_floor beside a shared commit", "1 4 7", 3, [LeaseGone], [PhaseOnly];
    floor_beside_remove: "advance_floor beside remove of an offset below and one above", "1 3 4 7", 3,
        [], [];
}

fn floor_beside_put() {
    let (window, part) = ring::<2>();
    let other = part.clone();
    let (admitted, floor) = both(
        move || match other.put_sized(0, 1, Token::new()) {
            Ok(_) => true,
            Err(error) => {
                let kinds = [PutErrorKind::BelowWatermark, PutErrorKind::Passed];
                assert!(kinds.contains(&error.kind()), "{error:?}");
                false
            }
        },
        || part.advance_floor(1, |offset, _| assert_eq!(offset, 0)).unwrap(),
    );
    assert_eq!(floor.dropped, usize::from(admitted));
    assert_eq!(floor.next.get(), 1);
    settled(&part, 1, 0);
    // The slot is free again, whoever had it.
    put(&part, [2]);
    slid(&part, 2, 1);
    ended(window, part);
}

fn floor_beside_take() {
    let (window, part) = ring::<2>();
    put(&part, [0, 1]);
    let other = part.clone();
    let (report, floor) = both(
        move || {
            other.take(1).ok().map(|lease| {
                let first = lease.iter().next().unwrap().0;
                (first, lease.commit().unwrap())
            })
        },
        || part.advance_floor(1, |offset, _| assert_eq!(offset, 0)).unwrap(),
    );
    let (first, report) = report.expect("1 is always there");
    let finished = usize::from(first == 0 && report.applied == 1);
    assert!(first == 0 || report.applied == 1);
    assert_eq!(report.applied + report.gone, 1);
    assert_eq!(finished + floor.dropped + floor.lent, 1, "exactly one had the message");
    let next = if first == 1 { 2 } else { 1 };
    settled(&part, next, usize::from(first == 0));
    ended(window, part);
}

fn floor_beside_rollback() {
    let (window, part) = ring::<2>();
    put(&part, [0]);
    let lease = part.take(1).unwrap();
    let (report, floor) =
        both(move || lease.rollback().unwrap(), || part.advance_floor(1, |_, _| ()).unwrap());
    assert_eq!(report.applied, floor.dropped);
    assert_eq!(report.gone, floor.lent);
    assert_eq!(floor.dropped + floor.lent, 1);
    settled(&part, 1, 0);
    ended(window, part);
}

fn floor_beside_shared_commit() {
    let (window, part) = ring::<2>();
    put(&part, [0]);
    let lease = part.take_shared(1).unwrap();
    let (report, (floor, next)) = both(
        move || lease.commit().unwrap(),
        || {
            let floor = part.advance_floor(1, |_, _| ()).unwrap();
            // The commit may still be moving the message out of this slot: then it is full.
            let next = part.put_sized(2, 1, Token::new()).is_ok();
            if next {
                part.at(0).take(1).unwrap().detach();
            }
            (floor, next)
        },
    );
    assert_eq!(report.applied + floor.dropped, 1);
    assert_eq!(report.gone, floor.dropped);
    slid(&part, if next { 2 } else { 1 }, usize::from(next));
    ended(window, part);
}

fn floor_beside_remove() {
    let (window, part) = ring::<2>();
    put(&part, [0, 1]);
    let other = part.clone();
    let (removed, floor) = both(
        move || {
            let below = other.remove(0);
            other.remove(1).unwrap();
            below
        },
        || part.advance_floor(1, |_, _| ()).unwrap(),
    );
    match removed {
        Ok(_) => assert_eq!(floor.dropped, 0),
        Err(error) => assert_eq!((error, floor.dropped), (RemoveError::Passed, 1)),
    }
    settled(&part, 2, 0);
    ended(window, part);
}
