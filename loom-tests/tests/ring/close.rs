//! Close: later puts are refused, takes drain, and closed is said only when nothing is left.

use inflight::{PutErrorKind, TakeError, Window};

use crate::harness::{Token, both, ended, models, put, ring, settled};

models! {
    close_beside_put: "close beside a put", "3 5 7", 3, [], [];
    close_beside_close: "two closes: one says that it was open", "4", 3, [], [];
    close_beside_the_last_commit: "a take of a closed window beside the last commit", "3 5 7", 3, [], [];
    close_beside_rollback: "a take of a closed window beside a rollback", "5 7", 3, [], [];
    close_beside_assign: "close beside assign: the new generation is open", "4 7", 3, [], [];
}

fn close_beside_put() {
    let (window, part) = ring::<2>();
    let other = part.clone();
    let (admitted, opened) = both(
        move || match other.put_sized(0, 1, Token::new()) {
            Ok(_) => true,
            Err(error) => {
                assert_eq!(error.kind(), PutErrorKind::Closed);
                false
            }
        },
        || part.close().unwrap(),
    );
    assert!(opened);
    let refused = part.put_sized(1, 1, Token::new()).unwrap_err();
    assert_eq!(refused.kind(), PutErrorKind::Closed);
    if admitted {
        settled(&part, 0, 1);
        part.take(1).unwrap().commit().unwrap();
    }
    assert_eq!(part.take(1).unwrap_err(), TakeError::Closed);
    settled(&part, u64::from(admitted), 0);
    drop(refused);
    ended(window, part);
}

fn close_beside_close() {
    let (window, part) = ring::<2>();
    let other = part.clone();
    let (one, two) = both(move || other.close().unwrap(), || part.close().unwrap());
    assert!(one != two);
    ended(window, part);
}

fn close_beside_the_last_commit() {
    let (window, part) = ring::<2>();
    put(&part, [0]);
    let lease = part.take(1).unwrap();
    part.close().unwrap();
    let (_, error) = both(
        move || lease.commit().unwrap(),
        || {
            let error = part.take(1).unwrap_err();
            if error == TakeError::Closed {
                assert_eq!(part.min_offset().unwrap().get(), 1, "closed before all is finished");
            }
            error
        },
    );
    assert!([TakeError::Closed, TakeError::Empty].contains(&error));
    assert_eq!(part.take(1).unwrap_err(), TakeError::Closed);
    settled(&part, 1, 0);
    ended(window, part);
}

fn close_beside_rollback() {
    let (window, part) = ring::<2>();
    put(&part, [0]);
    let lease = part.take(1).unwrap();
    part.close().unwrap();
    let (_, taken) = both(move || lease.rollback().unwrap(), || part.take(1));
    let lease = match taken {
        Ok(lease) => lease,
        Err(error) => {
            assert_eq!(error, TakeError::Empty, "closed before all is finished");
            part.take(1).unwrap()
        }
    };
    lease.commit().unwrap();
    assert_eq!(part.take(1).unwrap_err(), TakeError::Closed);
    settled(&part, 1, 0);
    ended(window, part);
}

fn close_beside_assign() {
    let (window, part) = ring::<2>();
    let (old, other) = (part.clone(), window.clone());
    let (_, new) = both(
        move || old.close(),
        || {
            let new = other.assign_owned(0);
            put(&new, [0]);
            new
        },
    );
    assert!(part.close().is_err());
    settled(&new, 0, 1);
    new.remove(0).unwrap();
    assert!(new.close().unwrap());
    settled(&new, 1, 0);
    drop((part, other));
    ended(window, new);
}
