//! The idle mark: of a put and a take that runs dry, one knows of the message.

use inflight::{TakeError, Window};

use crate::harness::{Token, both, ended, models, put, ring, settled, three};

models! {
    put_beside_dry_take: "a put beside a take that may find nothing", "5", 3,
        [WentIdle, Dispatched, FinalRescan, LookedAgain], [SignalRelaxed];
    two_puts_and_a_dry_take: "two puts beside a take that may find nothing", "5", 2,
        [WentIdle, Dispatched], [];
    rollback_beside_dry_take: "a rollback beside a take that may find nothing", "5", 3,
        [WentIdle], [];
    case_19_old_put_beside_assign: "the first put after assign says dispatch, whatever an old put claims", "5", 3,
        [Dispatched], [];
}

/// A window whose idle mark is claimed, and which is empty.
fn busy() -> (std::sync::Arc<crate::harness::Ring<4>>, crate::harness::Part<4>) {
    let (window, part) = ring::<4>();
    assert!(part.put_sized(0, 1, Token::new()).unwrap().dispatch);
    part.remove(0).unwrap();
    (window, part)
}

fn put_beside_dry_take() {
    let (window, part) = busy();
    let other = part.clone();
    let (dispatch, got) = both(
        move || other.put_sized(1, 1, Token::new()).unwrap().dispatch,
        || part.take(1).map(|lease| lease.commit().unwrap()).is_ok(),
    );
    assert!(dispatch != got, "dispatch {dispatch}, got {got}");
    if !got {
        part.remove(1).unwrap();
    }
    settled(&part, 2, 0);
    ended(window, part);
}

fn two_puts_and_a_dry_take() {
    let (window, part) = busy();
    let (one, two) = (part.clone(), part.clone());
    let (one, two, got) = three(
        move || one.put_sized(1, 1, Token::new()).is_ok_and(|put| put.dispatch),
        move || two.put_sized(2, 1, Token::new()).is_ok_and(|put| put.dispatch),
        || part.take(1).map(|lease| lease.commit().unwrap()).is_ok(),
    );
    assert!(!(one && two), "dispatch twice");
    assert!(one || two || got, "nobody knows of the messages");
    // Puts out of order under the default seal: one may have been sealed away.
    part.remove_batch(1..3).unwrap();
    settled(&part, 3, 0);
    ended(window, part);
}

fn rollback_beside_dry_take() {
    let (window, part) = ring::<2>();
    put(&part, [0]);
    let lease = part.take(1).unwrap();
    let (_, got) = both(
        move || lease.rollback().unwrap(),
        || match part.take(1) {
            Ok(lease) => {
                lease.commit().unwrap();
                true
            }
            Err(error) => {
                assert_eq!(error, TakeError::Empty);
                false
            }
        },
    );
    if !got {
        part.take(1).unwrap().commit().unwrap();
    }
    settled(&part, 1, 0);
    ended(window, part);
}

fn case_19_old_put_beside_assign() {
    let (window, part) = ring::<4>();
    let (old, other) = (part.clone(), window.clone());
    let (_, (new, first)) = both(
        move || old.put_sized(0, 1, Token::new()).is_ok(),
        || {
            let new = other.assign_owned(0);
            let first = new.put_sized(1, 1, Token::new()).unwrap();
            (new, first)
        },
    );
    assert!(first.dispatch, "the new generation's first message is not announced");
    new.remove(1).unwrap();
    settled(&new, 2, 0);
    drop((part, other));
    ended(window, new);
}
