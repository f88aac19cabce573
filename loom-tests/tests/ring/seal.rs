//! The seal: what was never admitted is passed only by closing it, and a full window makes room.

use inflight::PutError;

use crate::harness::{
    Token, both, ended, models, put, ring, ring_with_callers_seal, settled, slid,
};

models! {
    late_put_beside_the_seal: "a put into a gap beside the finisher that seals it", "1 3 4 7", 3,
        [Sealed, PutPassed], [PutIgnoresLap, SlidePassesFilling, GapUnsealed];
    put_at_a_full_window_slides: "a put one window ahead beside the finisher that makes room", "3 7", 3,
        [Sealed], [];
    own_jump_beside_a_finisher: "a put far ahead beside the last finisher", "1 3 7", 3,
        [OwnJump, FarJump], [NoJump];
    case_50_near_put_beside_far_put: "ring of 2: put 0 beside put 9", "1 3 4 5 7", 3,
        [OwnJump], [NoJump];
    callers_seal_never_jumps: "caller's seal: put 0 beside put 9", "1 3 4 7", 3,
        [], [JumpWithCallersSeal];
    case_2_out_of_order_under_callers_seal: "put 10 beside put 5, then advance_to", "1 3 8", 3,
        [], [];
}

fn late_put_beside_the_seal() {
    let (window, part) = ring::<4>();
    put(&part, [1]);
    let other = part.clone();
    let (admitted, removed) = both(
        move || match other.put_sized(0, 1, Token::new()) {
            Ok(_) => {
                assert_eq!(other.watermark().unwrap().get(), 0, "above an unfinished offset");
                true
            }
            Err(PutError::Passed(token) | PutError::BelowWatermark(token)) => {
                token.id();
                false
            }
            Err(error) => panic!("{error}"),
        },
        || part.remove(1).unwrap(),
    );
    if admitted {
        assert_eq!(removed.get(), 0);
        settled(&part, 0, 1);
        assert_eq!(part.take(1).unwrap().commit().unwrap().next.get(), 2);
    } else {
        assert_eq!(removed.get(), 2);
    }
    settled(&part, 2, 0);
    ended(window, part);
}

fn put_at_a_full_window_slides() {
    let (window, part) = ring::<2>();
    put(&part, [1]);
    let other = part.clone();
    let ((), admitted) = both(
        move || {
            other.remove(1).unwrap();
        },
        || match part.put_sized(2, 1, Token::new()) {
            Ok(_) => true,
            Err(PutError::Full(_)) => false,
            Err(error) => panic!("{error}"),
        },
    );
    slid(&part, 2, usize::from(admitted));
    if !admitted {
        put(&part, [2]);
    }
    part.remove(2).unwrap();
    settled(&part, 3, 0);
    ended(window, part);
}

fn own_jump_beside_a_finisher() {
    let (window, part) = ring::<2>();
    put(&part, [0]);
    let other = part.clone();
    let (removed, admitted) = both(
        move || other.remove(0).unwrap(),
        || match part.put_sized(5, 1, Token::new()) {
            Ok(_) => true,
            Err(PutError::Full(_)) => false,
            Err(error) => panic!("{error}"),
        },
    );
    assert!(removed.get() == 1 || admitted && removed.get() == 5);
    if !admitted {
        settled(&part, 1, 0);
        put(&part, [5]);
    }
    settled(&part, 5, 1);
    part.remove(5).unwrap();
    settled(&part, 6, 0);
    ended(window, part);
}

fn case_50_near_put_beside_far_put() {
    let (window, part) = ring::<2>();
    let other = part.clone();
    let (near, far) = both(
        move || match other.put_sized(0, 1, Token::new()) {
            Ok(_) => true,
            Err(PutError::Passed(_) | PutError::BelowWatermark(_)) => false,
            Err(error) => panic!("{error}"),
        },
        || match part.put_sized(9, 1, Token::new()) {
            Ok(_) => true,
            Err(PutError::Full(_)) => false,
            Err(error) => panic!("{error}"),
        },
    );
    assert!(near != far, "exactly one fits");
    settled(&part, if near { 0 } else { 9 }, 1);
    if near {
        part.remove(0).unwrap();
        put(&part, [9]);
    }
    part.remove(9).unwrap();
    settled(&part, 10, 0);
    ended(window, part);
}

fn callers_seal_never_jumps() {
    let (window, part) = ring_with_callers_seal::<2>();
    let other = part.clone();
    let ((), far) = both(
        move || put(&other, [0]),
        || part.put_sized(9, 1, Token::new()).map(|_| ()).map_err(|error| error.kind()),
    );
    assert_eq!(far, Err(inflight::PutErrorKind::Full));
    settled(&part, 0, 1);
    assert_eq!(part.end().unwrap(), 1, "a refused put has moved the end");
    part.remove(0).unwrap();
    // The seal is where its caller left it, so the watermark does not pass what was finished.
    slid(&part, 1, 0);
    ended(window, part);
}

fn case_2_out_of_order_under_callers_seal() {
    let (window, part) = ring_with_callers_seal::<4>();
    let other = part.clone();
    both(
        move || {
            put(&other, [3]);
            assert_eq!(other.remove(3).unwrap().get(), 0);
        },
        || {
            put(&part, [1]);
            assert_eq!(part.remove(1).unwrap().get(), 0);
        },
    );
    settled(&part, 0, 0);
    part.advance_to(4).unwrap();
    settled(&part, 4, 0);
    ended(window, part);
}
