//! The order of takes: late puts in earlier blocks, chunks and gaps; rollbacks; two takers.

use crate::harness::{Token, both, models, three};
use crate::support::{Part, ended, put, remove, settled, skip, skip_with_callers_seal, take_one};

models! {
    case_42_late_put_in_an_earlier_block: "a late put in an earlier block beside a taker", "5 6", 3,
        [LatePut], [LateKeepsCursor, VersionKept];
    late_put_in_an_earlier_chunk: "a late put in an earlier chunk beside a taker", "5 6", 3,
        [LatePut], [LateKeepsCursor];
    late_put_in_a_gap: "a late put that makes a block in a gap beside a taker", "5 6", 3,
        [LatePut], [LateKeepsCursor];
    case_48_batch_beside_take: "a batch put over two blocks beside a taker", "5 6", 2,
        [], [NoSecondLook];
    rollback_beside_take: "a rollback in an earlier block beside a take", "5 6", 3,
        [], [LoweredBeforeReady];
    put_beside_take: "a put in order beside takes that find nothing ready yet", "5 6", 3,
        [], [CursorPassesFilling];
    two_takes: "two takes of one message each, of two blocks", "4 6", 3 / 2,
        [], [ClaimWithoutCas];
    take_beside_remove: "a take beside the remove of the lowest", "4 6 7", 3,
        [], [];
    two_puts_and_a_take: "puts of two blocks beside a taker", "5 6", 1,
        [], [];
}

/// Takes until two messages were taken; a take that finds nothing while one of them is ready
/// must not be the last.
fn rest(part: &Part, taken: &[Option<u64>], all: &[u64]) {
    let mut taken: Vec<_> = taken.iter().flatten().copied().collect();
    while let Some(offset) = take_one(part) {
        taken.push(offset);
    }
    taken.sort_unstable();
    assert_eq!(taken, all, "a ready message is not found");
}

fn case_42_late_put_in_an_earlier_block() {
    let (window, part) = skip_with_callers_seal();
    put(&part, [0, 64]);
    assert_eq!(take_one(&part), Some(0));
    let other = part.clone();
    let (_, taken) = both(move || put(&other, [1]), || [take_one(&part), take_one(&part)]);
    rest(&part, &taken, &[1, 64]);
    part.advance_to(65).unwrap();
    settled(&part, 65, 0);
    ended(window, part);
}

fn late_put_in_an_earlier_chunk() {
    let (window, part) = skip_with_callers_seal();
    put(&part, [9]);
    let other = part.clone();
    let (_, taken) = both(move || put(&other, [5]), || [take_one(&part), take_one(&part)]);
    rest(&part, &taken, &[5, 9]);
    part.advance_to(10).unwrap();
    settled(&part, 10, 0);
    ended(window, part);
}

fn late_put_in_a_gap() {
    let (window, part) = skip_with_callers_seal();
    put(&part, [128]);
    let other = part.clone();
    let (_, taken) = both(move || put(&other, [64]), || [take_one(&part), take_one(&part)]);
    rest(&part, &taken, &[64, 128]);
    part.advance_to(129).unwrap();
    settled(&part, 129, 0);
    ended(window, part);
}

fn case_48_batch_beside_take() {
    let (window, part) = skip();
    put(&part, [61]);
    remove(&part, [61]);
    let other = part.clone();
    let (_, taken) = both(
        move || {
            let mut batch = (62..65).map(|offset| (offset, Token::new()));
            other.put_batch_sized(&mut batch, |_| 1).unwrap();
        },
        || {
            let taken = [take_one(&part), take_one(&part)];
            if let [Some(first), Some(second)] = taken {
                assert!(first < second, "{second} before {first}");
            }
            if let Some(first) = taken.iter().flatten().next() {
                assert_eq!(*first, 62, "not the lowest");
            }
            taken
        },
    );
    rest(&part, &taken, &[62, 63, 64]);
    settled(&part, 65, 0);
    ended(window, part);
}

fn rollback_beside_take() {
    let (window, part) = skip();
    put(&part, [0, 64]);
    let lease = part.take(1).unwrap();
    let (_, taken) = both(
        move || {
            lease.rollback().unwrap();
        },
        || [take_one(&part), take_one(&part)],
    );
    rest(&part, &taken, &[0, 64]);
    settled(&part, 65, 0);
    ended(window, part);
}

fn put_beside_take() {
    let (window, part) = skip();
    let other = part.clone();
    let (_, taken) = both(move || put(&other, [0]), || [take_one(&part)]);
    rest(&part, &taken, &[0]);
    settled(&part, 1, 0);
    ended(window, part);
}

fn two_takes() {
    let (window, part) = skip();
    put(&part, [0, 64]);
    let other = part.clone();
    let (one, two) = both(move || take_one(&other), || take_one(&part));
    let mut taken = [one.unwrap(), two.unwrap()];
    taken.sort_unstable();
    assert_eq!(taken, [0, 64]);
    settled(&part, 65, 0);
    ended(window, part);
}

fn take_beside_remove() {
    let (window, part) = skip();
    put(&part, [0, 64]);
    let other = part.clone();
    let (won, taken) = both(move || other.remove(0).is_ok(), || take_one(&part).unwrap());
    assert_eq!(taken, if won { 64 } else { 0 });
    if !won {
        assert_eq!(take_one(&part), Some(64));
    }
    settled(&part, 65, 0);
    ended(window, part);
}

fn two_puts_and_a_take() {
    let (window, part) = skip_with_callers_seal();
    let (one, two) = (part.clone(), part.clone());
    let (_, _, taken) =
        three(move || put(&one, [64]), move || put(&two, [0]), || [take_one(&part)]);
    rest(&part, &taken, &[0, 64]);
    part.advance_to(65).unwrap();
    settled(&part, 65, 0);
    ended(window, part);
}
