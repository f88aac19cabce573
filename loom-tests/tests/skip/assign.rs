//! Assign beside every busy phase; orphans: blocks passed while leases have slots of them.

use std::sync::Arc;

use inflight::{PutErrorKind, RemoveError, TakeError, Window};

use crate::harness::{Token, alive, both, models, three};
use crate::support::{Part, Skip, ended, put, settled, skip, skip_with_callers_seal, slid};

models! {
    case_51_put: "assign beside a put", "1 3 4 7", 2 / 1,
        [PutStale, DoomedReleased], [FillingLeft, LeftByStore, NoSecondGeneration];
    late_put: "assign beside a put below the end", "1 3 4 7", 2 / 1,
        [PutStale], [AdmittedRelaxed];
    put_of_a_new_block: "assign beside a put that makes a block", "1 3 4 7", 2 / 1,
        [PutStale], [];
    take_and_commit: "assign beside take and commit", "3 4 7", 2 / 1,
        [DoomedReleased], [];
    take_shared: "assign beside take_shared and commit", "3 4 7", 2 / 1,
        [DoomedReleased], [];
    case_51_lending_commit: "assign beside the commit of a lending lease", "3 4 7", 3 / 1,
        [DoomedReleased, Orphaned], [OrphanFreed, OrphanForgotten];
    case_18_lending_rollback: "assign beside the rollback of a lending lease", "3 4 5 7", 3 / 1,
        [DoomedReleased], [LentLeft, LeftByStore, DoomedSilent];
    two_leases_of_one_block: "assign beside the ends of two lending leases of one block", "3 4 7", 1,
        [DoomedReleased, Orphaned], [];
    detach: "assign beside detach", "3 4 7", 3 / 1,
        [DoomedReleased], [];
    shared_commit: "assign beside the commit of a shared lease", "3 4 7", 2 / 1,
        [], [];
    revoke: "assign beside revoke and commit", "3 4 7", 2 / 1,
        [DoomedReleased], [];
    remove: "assign beside a remove that passes a block", "3 4 7", 3 / 1,
        [], [];
    far_advance: "assign beside advance_to of a far offset", "1 3 8", 2 / 1,
        [], [AssignEndByMax, FarEndByMax];
    case_51_two_assigns: "two assigns over a lent slot", "3 4 7", 2 / 1,
        [], [];
    case_45_release_after_assigns: "a lending lease ends beside a second assign", "3 4 7", 3,
        [DoomedReleased, Orphaned], [OrphanFreed];
}

/// Runs `old` beside an assign at offset 0 and a put there. In the end the new generation has
/// exactly its own message.
fn beside<A: 'static>(window: Arc<Skip>, part: Part, old: impl FnOnce() -> A + 'static) -> A {
    let other = window.clone();
    let (done, new) = both(old, move || {
        let new = other.assign_owned(0);
        put(&new, [0]);
        assert_eq!(new.watermark().unwrap().get(), 0, "above or before the new generation");
        new
    });
    assert!(part.watermark().is_err());
    assert_eq!(part.remove(0), Err(RemoveError::Stale));
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

fn stale_or_ok(part: &Part, offset: u64) {
    if let Err(error) = part.put_sized(offset, 1, Token::new()) {
        assert_eq!(error.kind(), PutErrorKind::Stale);
    }
}

fn case_51_put() {
    let (window, part) = skip();
    let old = part.clone();
    beside(window, part, move || stale_or_ok(&old, 0));
}

fn late_put() {
    let (window, part) = skip_with_callers_seal();
    put(&part, [1]);
    let old = part.clone();
    beside(window, part, move || stale_or_ok(&old, 0));
}

fn put_of_a_new_block() {
    let (window, part) = skip();
    let old = part.clone();
    beside(window, part, move || stale_or_ok(&old, 64));
}

fn take_and_commit() {
    let (window, part) = skip();
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

fn take_shared() {
    let (window, part) = skip();
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

fn case_51_lending_commit() {
    let (window, part) = skip();
    put(&part, [0]);
    let lease = part.take(1).unwrap();
    beside(window, part, move || {
        assert_eq!(lease.iter().next().unwrap().1.id(), 0);
        let _ = lease.commit();
    });
}

fn case_18_lending_rollback() {
    let (window, part) = skip();
    put(&part, [4]);
    let lease = part.take(1).unwrap();
    beside(window, part, move || {
        let _ = lease.rollback();
    });
}

fn two_leases_of_one_block() {
    let (window, part) = skip();
    put(&part, [0, 1]);
    let one = part.take(1).unwrap();
    let two = part.take(1).unwrap();
    let other = window.clone();
    let (_, _, new) = three(
        move || {
            let _ = one.commit();
        },
        move || drop(two),
        move || other.assign_owned(0),
    );
    settled(&new, 0, 0);
    drop(part);
    ended(window, new);
}

fn detach() {
    let (window, part) = skip();
    put(&part, [0]);
    let lease = part.take(1).unwrap();
    beside(window, part, move || lease.detach());
}

fn shared_commit() {
    let (window, part) = skip();
    put(&part, [0, 64]);
    let lease = part.take_shared(2).unwrap();
    beside(window, part, move || {
        let _ = lease.commit();
    });
}

fn revoke() {
    let (window, part) = skip();
    put(&part, [0]);
    part.take(1).unwrap().detach();
    let old = part.clone();
    beside(window, part, move || {
        if let Ok(lease) = old.at(7).revoke(0) {
            assert_eq!(lease.iter().next().unwrap().1.id(), 0);
            let _ = lease.commit();
        }
    });
}

fn remove() {
    let (window, part) = skip();
    put(&part, [0, 64]);
    let old = part.clone();
    beside(window, part, move || {
        let _ = old.remove(0);
    });
}

fn far_advance() {
    let (window, part) = skip_with_callers_seal();
    let (old, other) = (part.clone(), window.clone());
    let (_, new) = both(
        move || {
            let _ = old.advance_to(5000);
        },
        move || other.assign_owned(0),
    );
    slid(&new, 0, 0);
    put(&new, [0]);
    settled(&new, 0, 1);
    new.remove(0).unwrap();
    new.advance_to(1).unwrap();
    settled(&new, 1, 0);
    drop(part);
    ended(window, new);
}

fn case_51_two_assigns() {
    let (window, part) = skip();
    put(&part, [0]);
    let lease = part.take(1).unwrap();
    let (one, two) = (window.clone(), window.clone());
    let (first, second) = both(move || one.assign_owned(0), move || two.assign_owned(0));
    let (new, old) = if first.watermark().is_ok() { (first, second) } else { (second, first) };
    assert!(old.watermark().is_err());
    assert_eq!(lease.iter().next().unwrap().1.id(), 0);
    assert!(lease.commit().is_err());
    settled(&new, 0, 0);
    put(&new, [0]);
    new.remove(0).unwrap();
    settled(&new, 1, 0);
    drop((part, old));
    ended(window, new);
}

fn case_45_release_after_assigns() {
    let (window, part) = skip();
    put(&part, [0]);
    let lease = part.take(1).unwrap();
    let first = window.assign_owned(0);
    put(&first, [0]);
    drop(first);
    drop(part);
    let other = window.clone();
    let (_, new) = both(move || drop(lease), move || other.assign_owned(0));
    settled(&new, 0, 0);
    assert_eq!(alive(), (0, 0));
    ended(window, new);
}
