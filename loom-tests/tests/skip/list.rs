//! Blocks: made in a gap, beside each other and beside the freeze of the gap.

use crate::harness::{Token, both, models};
use crate::support::{
    ended, not_above, put, put_unless_sealed, remove, settled, skip, skip_with_callers_seal, slid,
};
use inflight::PutErrorKind;

models! {
    two_blocks_in_one_gap: "two putters making blocks in one gap", "1 3 5 7", 2,
        [], [];
    one_block_twice: "two puts of one block that is not there", "1 3 5 7", 3,
        [LastReference], [NoLastReference];
    one_offset_twice: "two puts of one offset in a block that is not there", "4 7", 3,
        [], [FillWithoutCas];
    put_beside_freeze: "a put in a gap beside the pass of the block before it", "1 3 5 7", 3,
        [GapFrozen], [FrozenIgnored];
    case_43_put_beside_empty_later_block: "a put in order beside a put that makes a later block", "1 5 9", 3 / 1,
        [], [FreezeEarly];
    take_beside_new_block: "a take beside a put that links a block before the message", "5 6", 3,
        [], [LinkRelaxed];
    advance_beside_put: "advance_to beyond the last block beside a put there", "1 3 5 7", 3 / 1,
        [], [];
}

fn two_blocks_in_one_gap() {
    let (window, part) = skip_with_callers_seal();
    put(&part, [256]);
    let other = part.clone();
    both(move || put(&other, [64]), || put(&part, [128]));
    let lease = part.take(3).unwrap();
    let offsets: Vec<_> = lease.iter().map(|(offset, _)| offset).collect();
    assert_eq!(offsets, [64, 128, 256]);
    lease.commit().unwrap();
    part.advance_to(257).unwrap();
    settled(&part, 257, 0);
    ended(window, part);
}

fn one_block_twice() {
    let (window, part) = skip_with_callers_seal();
    let other = part.clone();
    both(move || put(&other, [64]), || put(&part, [70]));
    remove(&part, [64, 70]);
    part.advance_to(71).unwrap();
    settled(&part, 71, 0);
    ended(window, part);
}

fn one_offset_twice() {
    let (window, part) = skip();
    let other = part.clone();
    let one = |part: &crate::support::Part| match part.put_sized(64, 1, Token::new()) {
        Ok(_) => 1,
        Err(error) => {
            assert_eq!(error.kind(), PutErrorKind::Duplicate);
            0
        }
    };
    let (first, second) = both(move || one(&other), || one(&part));
    assert_eq!(first + second, 1);
    slid(&part, 64, 1);
    remove(&part, [64]);
    settled(&part, 65, 0);
    ended(window, part);
}

fn put_beside_freeze() {
    let (window, part) = skip();
    put(&part, [0, 128]);
    let other = part.clone();
    let (_, admitted) = both(
        move || remove(&other, [0]),
        || {
            let admitted = put_unless_sealed(&part, 64);
            if admitted {
                not_above(&part, 64);
            }
            admitted
        },
    );
    if admitted {
        settled_or_slid(&part, 64, 2);
        remove(&part, [64]);
    }
    settled(&part, 128, 1);
    remove(&part, [128]);
    settled(&part, 129, 0);
    ended(window, part);
}

/// The slide of the remove may have ended before the gap was sealable, or before the put.
fn settled_or_slid(part: &crate::support::Part, next: u64, unfinished: usize) {
    not_above(part, next);
    slid(part, next, unfinished);
}

fn case_43_put_beside_empty_later_block() {
    let (window, part) = skip_with_callers_seal();
    let other = part.clone();
    both(
        move || put(&other, [128]),
        || {
            part.advance_to(64).unwrap();
            put(&part, [64]);
            not_above(&part, 64);
        },
    );
    settled(&part, 64, 2);
    remove(&part, [64, 128]);
    part.advance_to(129).unwrap();
    settled(&part, 129, 0);
    ended(window, part);
}

fn take_beside_new_block() {
    let (window, part) = skip_with_callers_seal();
    put(&part, [128]);
    let other = part.clone();
    let (_, taken) = both(
        move || put(&other, [64]),
        || crate::support::take_one(&part).expect("one was ready all the time"),
    );
    let left = if taken == 64 { 128 } else { 64 };
    assert_eq!(crate::support::take_one(&part), Some(left));
    part.advance_to(129).unwrap();
    settled(&part, 129, 0);
    ended(window, part);
}

fn advance_beside_put() {
    let (window, part) = skip_with_callers_seal();
    let other = part.clone();
    let (_, admitted) = both(
        move || {
            other.advance_to(130).unwrap();
        },
        || put_unless_sealed(&part, 129),
    );
    if admitted {
        slid(&part, 129, 1);
        remove(&part, [129]);
    }
    settled(&part, 130, 0);
    ended(window, part);
}
