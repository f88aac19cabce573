//! Far jumps: the watermark moves by more than a window, and nothing admitted lies below it.

use inflight::PutError;

use crate::harness::{
    Part, Token, both, ended, models, put, ring, ring_with_callers_seal, settled, three,
};

models! {
    own_jump_beside_advance: "a put that jumps to 9 beside advance_to(40)", "1 3 4 7", 3,
        [OwnJump, FarJump], [JumpOneLap, JumpLeavesDone];
    two_own_jumps: "put 9 beside put 20 in an empty ring of 2", "1 3 4 5 7", 3,
        [OwnJump, FarJump], [];
    two_advances_and_a_put: "caller's seal: advance_to(9), put 9 beside advance_to(40)", "1 3 4 7", 3,
        [FarJump], [];
    far_advance_beside_put: "advance_to(20) beside a put of the window left behind", "1 3 4 7", 3,
        [FarJump, PutPassed], [];
    far_advance_beside_removes: "advance_to(20) beside two removes", "1 3 4 7", 2,
        [FarJump], [];
}

/// A put that a jump may overtake: was it admitted?
fn overtaken<const N: usize>(part: &Part<N>, offset: u64) -> bool {
    match part.put_sized(offset, 1, Token::new()) {
        Ok(_) => {
            assert!(part.watermark().unwrap().get() <= offset, "above an unfinished offset");
            true
        }
        Err(PutError::Passed(_) | PutError::BelowWatermark(_)) => false,
        Err(error) => panic!("{error}"),
    }
}

fn own_jump_beside_advance() {
    let (window, part) = ring::<2>();
    let other = part.clone();
    let (admitted, _) = both(
        move || match other.put_sized(9, 1, Token::new()) {
            Ok(_) => true,
            // Full: advance_to had raised the end, and not yet the watermark.
            Err(PutError::Passed(_) | PutError::BelowWatermark(_) | PutError::Full(_)) => false,
            Err(error) => panic!("{error}"),
        },
        || part.advance_to(40).unwrap(),
    );
    if admitted {
        settled(&part, 9, 1);
        part.remove(9).unwrap();
    }
    settled(&part, 40, 0);
    ended(window, part);
}

fn two_own_jumps() {
    let (window, part) = ring::<2>();
    let other = part.clone();
    let (near, far) = both(
        move || match other.put_sized(9, 1, Token::new()) {
            Ok(_) => true,
            Err(PutError::Passed(_) | PutError::BelowWatermark(_) | PutError::Full(_)) => false,
            Err(error) => panic!("{error}"),
        },
        || match part.put_sized(20, 1, Token::new()) {
            Ok(_) => true,
            Err(PutError::Full(_)) => false,
            Err(error) => panic!("{error}"),
        },
    );
    assert!(!(near && far), "more than fits");
    if near {
        settled(&part, 9, 1);
        part.remove(9).unwrap();
    }
    if !far {
        put(&part, [20]);
    }
    settled(&part, 20, 1);
    part.remove(20).unwrap();
    settled(&part, 21, 0);
    ended(window, part);
}

fn two_advances_and_a_put() {
    let (window, part) = ring_with_callers_seal::<2>();
    let other = part.clone();
    let (admitted, _) = both(
        move || {
            other.advance_to(9).unwrap();
            overtaken(&other, 9)
        },
        || part.advance_to(40).unwrap(),
    );
    if admitted {
        settled(&part, 9, 1);
        part.remove(9).unwrap();
    }
    settled(&part, 40, 0);
    ended(window, part);
}

fn far_advance_beside_put() {
    let (window, part) = ring::<2>();
    let other = part.clone();
    let (admitted, _) = both(move || overtaken(&other, 1), || part.advance_to(20).unwrap());
    if admitted {
        settled(&part, 1, 1);
        part.remove(1).unwrap();
    }
    settled(&part, 20, 0);
    ended(window, part);
}

fn far_advance_beside_removes() {
    let (window, part) = ring::<2>();
    put(&part, 0..2);
    let (one, two) = (part.clone(), part.clone());
    three(
        move || {
            one.remove(0).unwrap();
        },
        move || {
            two.remove(1).unwrap();
        },
        || {
            part.advance_to(20).unwrap();
        },
    );
    settled(&part, 20, 0);
    ended(window, part);
}
