//! Calls of an ended generation that were stopped on their way: they stay below the new one.
//!
//! In each model offset 2 of the old generation has the position of offset 0 of the new one, so
//! a straggler that gets there touches the other's message.

use std::sync::Arc;

use inflight::{PutErrorKind, RemoveError, TakeError, Window};

use crate::harness::{Part, Ring, Token, alive, both, ended, models, ring_with_callers_seal, slid};

models! {
    old_put: "an old put beside assign", "1 4 7", 3, [], [GenerationFirst];
    old_remove: "an old remove beside assign", "1 3 4 7", 3, [], [GenerationFirst, Unbounded];
    old_take: "an old take beside assign", "4 5 7", 3, [], [GenerationFirst];
    old_take_shared: "an old take_shared beside assign", "4 5 7", 3, [], [GenerationFirst];
    old_advance: "an old advance_to beside assign", "1 3", 3, [], [FarEndByMax];
    old_revoke: "an old revoke beside assign", "4 5 7", 3, [], [GenerationFirst, Unbounded];
    old_batch_remove: "an old batch remove beside assign", "1 3 4 7", 3, [], [GenerationFirst];
}

/// Runs `old` beside an assign and a put at offset 0, which is then taken and detached.
fn beside(old: impl FnOnce(Part<2>) + 'static) {
    let (window, part) = ring_with_callers_seal::<2>();
    let other: Arc<Ring<2>> = window.clone();
    let straggler = part.clone();
    let ((), new) = both(
        move || old(straggler),
        move || {
            let new = other.assign_owned(0);
            new.put_sized(0, 1, Token::new()).expect("nobody has this slot");
            new.take(1).expect("0 is ready").detach();
            new
        },
    );
    slid(&new, 0, 1);
    new.remove(0).expect("0 is held");
    new.advance_to(1).unwrap();
    slid(&new, 1, 0);
    assert_eq!(alive(), (0, 0));
    drop(part);
    ended(window, new);
}

fn old_put() {
    beside(|part| {
        let error = part.put_sized(2, 1, Token::new()).unwrap_err();
        assert!([PutErrorKind::Full, PutErrorKind::Stale].contains(&error.kind()), "{error}");
    });
}

fn old_remove() {
    beside(|part| {
        let error = part.remove(2).unwrap_err();
        assert!([RemoveError::Unknown, RemoveError::Stale].contains(&error), "{error}");
    });
}

fn old_take() {
    beside(|part| {
        let error = part.take(1).unwrap_err();
        assert!([TakeError::Empty, TakeError::Stale].contains(&error), "{error}");
    });
}

fn old_take_shared() {
    beside(|part| {
        let error = part.take_shared(1).unwrap_err();
        assert!([TakeError::Empty, TakeError::Stale].contains(&error), "{error}");
    });
}

fn old_advance() {
    beside(|part| {
        if let Ok(next) = part.advance_to(50) {
            assert_eq!(next.get(), 50);
        }
    });
}

fn old_revoke() {
    beside(|part| {
        assert!(part.at(1).revoke(2).is_err());
    });
}

fn old_batch_remove() {
    beside(|part| {
        if let Ok(done) = part.remove_batch([0, 2]) {
            assert_eq!(done.applied, 0);
        }
    });
}
