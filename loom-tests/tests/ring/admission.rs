//! Admission: an offset is admitted once, and is finished whole however early that happens.

use inflight::{PutErrorKind, RemoveError, TakeError};

use crate::harness::{Token, both, ended, models, put, ring, settled, three};

models! {
    two_puts_of_one_offset_and_a_remove: "two puts of one offset beside its remove", "1 3 4 7", 3,
        [], [FillWithoutCas];
    case_33_finished_before_put_has_returned: "a put beside the remove of its offset", "1 3 4 7", 3,
        [], [EndAfterReady];
    in_order_puts_beside_a_slide: "puts in order beside the slide that follows them", "1 3 5 7", 3,
        [], [EndBeforeFilling];
    case_11_empties_beside_put: "the window empties while the next message is put", "1 2 3 7", 3,
        [], [];
    batch_beside_take_and_commit: "a batch put beside take and commit", "1 3 5 7", 3,
        [], [ReadyRelaxed];
    case_17_put_beside_rollback: "a second put of a held offset beside its rollback", "4 5 7", 3,
        [], [];
}

fn two_puts_of_one_offset_and_a_remove() {
    let (window, part) = ring::<2>();
    let put = |part: &crate::harness::Part<2>| match part.put_sized(0, 1, Token::new()) {
        Ok(_) => 1,
        Err(error) => {
            let known =
                [PutErrorKind::Duplicate, PutErrorKind::Passed, PutErrorKind::BelowWatermark];
            assert!(known.contains(&error.kind()), "{error}");
            0
        }
    };
    let (one, two) = (part.clone(), part.clone());
    let (one, two, removed) = three(move || put(&one), move || put(&two), || part.remove(0));
    assert_eq!(one + two, 1, "admitted");
    match removed {
        Ok(next) => assert_eq!(next.get(), 1),
        Err(error) => {
            assert_eq!(error, RemoveError::Unknown);
            settled(&part, 0, 1);
            part.remove(0).unwrap();
        }
    }
    settled(&part, 1, 0);
    ended(window, part);
}

fn case_33_finished_before_put_has_returned() {
    let (window, part) = ring::<2>();
    let other = part.clone();
    let ((), removed) = both(move || put(&other, [0]), || part.remove(0));
    match removed {
        Ok(next) => assert_eq!(next.get(), 1),
        Err(error) => {
            assert_eq!(error, RemoveError::Unknown);
            settled(&part, 0, 1);
            part.remove(0).unwrap();
        }
    }
    settled(&part, 1, 0);
    ended(window, part);
}

fn in_order_puts_beside_a_slide() {
    let (window, part) = ring::<4>();
    let other = part.clone();
    let ((), next) = both(move || put(&other, 0..2), || part.min_offset().unwrap());
    assert_eq!(next.get(), 0);
    settled(&part, 0, 2);
    part.remove_batch(0..2).unwrap();
    settled(&part, 2, 0);
    ended(window, part);
}

fn case_11_empties_beside_put() {
    let (window, part) = ring::<2>();
    put(&part, [0]);
    let other = part.clone();
    let ((), next) = both(
        move || {
            put(&other, [1]);
            let next = other.watermark().unwrap();
            assert!(next.get() <= 1, "above an unfinished offset");
            assert!(other.watermark().unwrap() >= next);
        },
        || part.remove(0).unwrap(),
    );
    assert_eq!(next.get(), 1);
    settled(&part, 1, 1);
    part.remove(1).unwrap();
    settled(&part, 2, 0);
    ended(window, part);
}

fn batch_beside_take_and_commit() {
    let (window, part) = ring::<4>();
    let other = part.clone();
    let (admitted, committed) = both(
        move || {
            let mut batch = (0..2).map(|offset| (offset, Token::new()));
            other.put_batch_sized(&mut batch, |_| 1).unwrap().admitted
        },
        || match part.take(2) {
            Ok(lease) => {
                for (at, (offset, token)) in lease.iter().enumerate() {
                    assert_eq!((at as u64, at), (offset, token.id()));
                }
                let report = lease.commit().unwrap();
                assert_eq!(report.next.get(), report.applied as u64);
                report.applied
            }
            Err(error) => {
                assert_eq!(error, TakeError::Empty);
                0
            }
        },
    );
    assert_eq!(admitted, 2);
    settled(&part, committed as u64, 2 - committed);
    part.remove_batch(0..2).unwrap();
    settled(&part, 2, 0);
    ended(window, part);
}

fn case_17_put_beside_rollback() {
    let (window, part) = ring::<2>();
    put(&part, [0]);
    let lease = part.take(1).unwrap();
    let (_, again) = both(
        move || lease.rollback().unwrap(),
        || part.put_sized(0, 1, Token::new()).map(|_| ()).map_err(|error| error.kind()),
    );
    assert_eq!(again, Err(PutErrorKind::Duplicate));
    settled(&part, 0, 1);
    let lease = part.take(2).unwrap();
    assert_eq!(lease.len(), 1);
    lease.commit().unwrap();
    settled(&part, 1, 0);
    ended(window, part);
}
