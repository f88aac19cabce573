//! Assign beside every busy phase: the old generation is fenced, the new one is untouched.

use std::sync::Arc;

use inflight::{PutErrorKind, RemoveError, TakeError, Window};

use crate::harness::{
    Part, Ring, Token, alive, both, ended, models, put, ring, ring_with_callers_seal, settled,
    slid, three,
};

models! {
    case_51_put: "assign beside a put", "1 3 4 7", 3,
        [PutStale, DoomedReleased], [FillingLeft, LeftByStore, NoSecondGeneration];
    late_put: "assign beside a put below the end, which does not raise it", "1 3 4 7", 3,
        [PutStale], [AdmittedRelaxed];
    batch_put: "assign beside a batch put", "1 3 4 7", 3,
        [PutStale, DoomedReleased], [NoSecondGeneration];
    take_shared: "assign beside take_shared and commit", "3 4 7", 3,
        [DoomedReleased], [LeftByStore];
    take_and_commit: "assign beside take and commit", "3 4 7", 3,
        [DoomedReleased], [];
    case_51_lending_commit: "assign beside commit of a lending lease", "3 4 7", 3,
        [DoomedReleased], [];
    case_18_lending_rollback: "assign beside rollback of a lending lease", "3 4 5 7", 3,
        [DoomedReleased], [LentLeft, LeftByStore, DoomedSilent];
    case_51_shared_commit: "assign beside commit of a shared lease", "3 4 7", 3,
        [LeaseGone], [];
    case_18_shared_rollback: "assign beside rollback of a shared lease", "3 4 5 7", 3,
        [LeaseGone], [];
    remove: "assign beside a remove", "3 4 7", 3, [], [];
    detach: "assign beside detach", "3 4 7", 3, [DoomedReleased], [];
    revoke: "assign beside revoke and commit", "3 4 7", 3, [DoomedReleased], [];
    commit_only: "assign beside commit_only of one of two lent messages", "3 4 5 7", 3,
        [DoomedReleased], [];
    into_values: "assign beside into_values of two lent messages", "3 4 7", 3,
        [DoomedReleased], [];
    advance: "assign beside advance_to of a far offset", "1 3 8", 3,
        [], [AssignEndByMax, FarEndByMax];
    own_jump: "assign beside a put that jumps", "1 3 7 8", 3, [OwnJump], [];
    case_51_two_assigns: "two assigns, each with a put", "3 4 7", 2, [], [];
    two_assigns_over_a_lent_slot: "two assigns beside the commit of a lending lease", "3 4 7", 1,
        [DoomedReleased], [];
    case_45_doomed_release_beside_put: "the release of a doomed slot beside a put of the new generation", "3 4 7", 3,
        [DoomedReleased], [];
    finisher_and_old_put_of_the_next_lap: "assign beside a remove and the put for which it makes room", "1 3 4 7", 2,
        [], [AssignNextLap];
    two_readers_of_a_watermark: "a watermark said beside assign is of its own generation", "2 8", 3,
        [], [];
}

/// Runs `old` beside an assign at offset 0 and a put there. The put is refused only while the
/// old generation still has the slot; in the end the new generation has exactly its own message.
fn beside<A: 'static>(window: Arc<Ring<2>>, part: Part<2>, old: impl FnOnce() -> A + 'static) -> A {
    let other = window.clone();
    let (done, (new, admitted)) = both(old, move || {
        let new = other.assign_owned(0);
        let admitted = match new.put_sized(0, 1, Token::new()) {
            Ok(_) => true,
            Err(error) => {
                assert_eq!(error.kind(), PutErrorKind::Full);
                false
            }
        };
        let watermark = new.watermark().unwrap();
        assert_eq!(watermark.get(), 0, "above or before the new generation");
        (new, admitted)
    });
    assert!(part.watermark().is_err());
    assert_eq!(part.remove(0), Err(RemoveError::Stale));
    if !admitted {
        settled(&new, 0, 0);
        put(&new, [0]);
    }
    settled(&new, 0, 1);
    assert_eq!(alive(), (1, 0), "the old generation has left something");
    let lease = new.take(2).unwrap();
    assert_eq!((lease.len(), lease.iter().next().unwrap().0), (1, 0));
    assert_eq!(lease.commit().unwrap().next.get(), 1);
    settled(&new, 1, 0);
    drop(part);
    ended(window, new);
    done
}

fn case_51_put() {
    let (window, part) = ring::<2>();
    let old = part.clone();
    beside(window, part, move || {
        if let Err(error) = old.put_sized(0, 1, Token::new()) {
            assert_eq!(error.kind(), PutErrorKind::Stale);
        }
    });
}

fn late_put() {
    let (window, part) = ring_with_callers_seal::<2>();
    put(&part, [1]);
    let (old, other) = (part.clone(), window.clone());
    let (_, new) =
        both(move || old.put_sized(0, 1, Token::new()).is_ok(), move || other.assign_owned(0));
    slid(&new, 0, 0);
    assert_eq!(alive(), (0, 0), "the old generation has left something");
    put(&new, 0..2);
    new.remove_batch(0..2).unwrap();
    new.advance_to(2).unwrap();
    settled(&new, 2, 0);
    drop(part);
    ended(window, new);
}

fn batch_put() {
    let (window, part) = ring::<2>();
    let old = part.clone();
    beside(window, part, move || {
        let mut batch = (0..2).map(|offset| (offset, Token::new()));
        if let Err(error) = old.put_batch_sized(&mut batch, |_| 1) {
            assert_eq!(error.error, PutErrorKind::Stale);
        }
    });
}

fn take_shared() {
    let (window, part) = ring::<2>();
    put(&part, [0]);
    let old = part.clone();
    beside(window, part, move || match old.take_shared(1) {
        Ok(lease) => {
            assert_eq!(lease.iter().next().unwrap().1.id(), 0);
            let _ = lease.commit();
        }
        Err(error) => assert!([TakeError::Stale, TakeError::Empty].contains(&error)),
    });
}

fn take_and_commit() {
    let (window, part) = ring::<2>();
    put(&part, [0]);
    let old = part.clone();
    beside(window, part, move || match old.take(1) {
        Ok(lease) => {
            assert_eq!(lease.iter().next().unwrap().1.id(), 0);
            let _ = lease.commit();
        }
        Err(error) => assert!([TakeError::Stale, TakeError::Empty].contains(&error)),
    });
}

fn case_51_lending_commit() {
    let (window, part) = ring::<2>();
    put(&part, [0]);
    let lease = part.take(1).unwrap();
    beside(window, part, move || {
        if let Ok(report) = lease.commit() {
            assert_eq!((report.next.get(), report.applied), (1, 1));
        }
    });
}

fn case_18_lending_rollback() {
    let (window, part) = ring::<2>();
    put(&part, [0]);
    let lease = part.take(1).unwrap();
    beside(window, part, move || lease.rollback().is_ok());
}

fn case_51_shared_commit() {
    let (window, part) = ring::<2>();
    put(&part, [0]);
    let lease = part.take_shared(1).unwrap();
    beside(window, part, move || {
        if let Ok(report) = lease.commit() {
            assert_eq!(report.next.get(), report.applied as u64);
        }
    });
}

fn case_18_shared_rollback() {
    let (window, part) = ring::<2>();
    put(&part, [0]);
    let lease = part.take_shared(1).unwrap();
    beside(window, part, move || lease.rollback().is_ok());
}

fn remove() {
    let (window, part) = ring::<2>();
    put(&part, [0]);
    let old = part.clone();
    beside(window, part, move || match old.remove(0) {
        Ok(next) => assert_eq!(next.get(), 1),
        Err(error) => assert_eq!(error, RemoveError::Stale),
    });
}

fn detach() {
    let (window, part) = ring::<2>();
    put(&part, [0]);
    let lease = part.take(1).unwrap();
    beside(window, part, move || lease.detach());
}

fn revoke() {
    let (window, part) = ring::<2>();
    put(&part, [0]);
    part.take(1).unwrap().detach();
    let old = part.clone();
    beside(window, part, move || {
        if let Ok(lease) = old.at(1).revoke(0) {
            assert_eq!(lease.iter().next().unwrap().1.id(), 0);
            let _ = lease.commit();
        }
    });
}

fn commit_only() {
    let (window, part) = ring::<2>();
    put(&part, 0..2);
    let lease = part.take(2).unwrap();
    beside(window, part, move || {
        if let Ok(report) = lease.commit_only([1]) {
            assert_eq!(report.applied, 1);
        }
    });
}

fn into_values() {
    let (window, part) = ring::<2>();
    put(&part, 0..2);
    let lease = part.take(2).unwrap();
    beside(window, part, move || {
        let values: Vec<_> = lease.into_values().take(1).collect();
        assert_eq!((values.len(), values[0].1.id()), (1, 0));
    });
}

fn advance() {
    let (window, part) = ring::<2>();
    let old = part.clone();
    beside(window, part, move || {
        if let Ok(next) = old.advance_to(50) {
            assert_eq!(next.get(), 50);
        }
    });
}

fn own_jump() {
    let (window, part) = ring::<2>();
    let old = part.clone();
    beside(window, part, move || {
        if let Err(error) = old.put_sized(50, 1, Token::new()) {
            assert_eq!(error.kind(), PutErrorKind::Stale);
        }
    });
}

fn case_51_two_assigns() {
    let (window, part) = ring::<2>();
    put(&part, [0]);
    let assign = |window: Arc<Ring<2>>| {
        let part = window.assign_owned(0);
        let admitted = part.put_sized(0, 1, Token::new());
        if let Err(error) = &admitted {
            // Full while a put of the other generation still has the slot.
            assert!([PutErrorKind::Stale, PutErrorKind::Full].contains(&error.kind()));
        }
        (part, admitted.is_ok())
    };
    let (one, two) = (window.clone(), window.clone());
    let (one, two) = both(move || assign(one), || assign(two));
    assert!(part.watermark().is_err());
    let (last, first) = if one.0.watermark().is_ok() { (one, two) } else { (two, one) };
    assert!(first.0.watermark().is_err());
    if !last.1 {
        put(&last.0, [0]);
    }
    settled(&last.0, 0, 1);
    assert_eq!(alive(), (1, 0));
    last.0.remove(0).unwrap();
    settled(&last.0, 1, 0);
    drop((part, first));
    ended(window, last.0);
}

fn two_assigns_over_a_lent_slot() {
    let (window, part) = ring::<2>();
    put(&part, [0]);
    let lease = part.take(1).unwrap();
    let (one, two) = (window.clone(), window.clone());
    let (one, two, _) =
        three(move || one.assign_owned(0), move || two.assign_owned(0), || lease.commit().is_ok());
    let (last, first) = if one.watermark().is_ok() { (one, two) } else { (two, one) };
    assert!(first.watermark().is_err());
    settled(&last, 0, 0);
    put(&last, 0..2);
    last.remove_batch(0..2).unwrap();
    settled(&last, 2, 0);
    drop((part, first));
    ended(window, last);
}

fn case_45_doomed_release_beside_put() {
    let (window, old) = ring::<2>();
    put(&old, [0]);
    let lease = old.take(1).unwrap();
    let handles: Vec<_> = (0..3).map(|_| window.assign_owned(0)).collect();
    let part = handles.last().unwrap().clone();
    drop(handles);
    let other = part.clone();
    let ((), admitted) = both(
        move || {
            assert_eq!(lease.iter().next().unwrap().1.id(), 0);
            assert!(lease.commit().is_err());
        },
        || {
            put(&part, [1]);
            match part.put_sized(0, 1, Token::new()) {
                Ok(_) => true,
                Err(error) => {
                    let late =
                        [PutErrorKind::Full, PutErrorKind::Passed, PutErrorKind::BelowWatermark];
                    assert!(late.contains(&error.kind()), "{error}");
                    false
                }
            }
        },
    );
    // 0 is below the end: when its slot was not free in time, it may be sealed.
    settled_from(&part, admitted);
    drop((old, other));
    ended(window, part);
}

fn settled_from(part: &Part<2>, admitted: bool) {
    let at = u64::from(!admitted);
    slid(part, at, 1 + usize::from(admitted));
    part.remove_batch(at..2).unwrap();
    settled(part, 2, 0);
}

fn finisher_and_old_put_of_the_next_lap() {
    let (window, part) = ring_with_callers_seal::<2>();
    put(&part, 0..2);
    part.advance_to(2).unwrap();
    let (one, two) = (part.clone(), part.clone());
    let other = window.clone();
    let (_, _, (new, admitted)) = three(
        move || one.remove(0).is_ok(),
        move || {
            if let Err(error) = two.put_sized(2, 1, Token::new()) {
                assert!([PutErrorKind::Full, PutErrorKind::Stale].contains(&error.kind()));
            }
        },
        move || {
            let new = other.assign_owned(0);
            let admitted = match new.put_sized(0, 1, Token::new()) {
                Ok(_) => true,
                Err(error) => {
                    assert_eq!(error.kind(), PutErrorKind::Full);
                    false
                }
            };
            (new, admitted)
        },
    );
    if !admitted {
        put(&new, [0]);
    }
    settled(&new, 0, 1);
    assert_eq!(alive(), (1, 0));
    new.remove(0).unwrap();
    new.advance_to(1).unwrap();
    settled(&new, 1, 0);
    drop(part);
    ended(window, new);
}

fn two_readers_of_a_watermark() {
    let (window, part) = ring::<2>();
    put(&part, [0]);
    let (one, other) = (part.clone(), window.clone());
    let (seen, new) = both(
        move || {
            let first = one.remove(0).ok();
            let second = one.min_offset().ok();
            (first, second)
        },
        move || other.assign_owned(7),
    );
    for next in [seen.0, seen.1].into_iter().flatten() {
        assert_eq!(next.get(), 1, "of another generation");
    }
    settled(&new, 7, 0);
    drop(part);
    ended(window, new);
}
