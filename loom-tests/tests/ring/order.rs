//! Order: what was ready first is taken first, across gaps, late puts and puts under way.

use inflight::TakeError;

use crate::harness::{Part, Token, both, ended, models, put, ring, ring_with_callers_seal, slid};

models! {
    case_42_late_put_beside_taker: "a late put beside a taker that passes its gap", "5 6", 3,
        [LatePut, TakeRestarted], [LateKeepsCursor];
    batch_in_another_order_beside_taker: "a batch of 1, 0, 2 beside a taker", "5 6", 3,
        [], [CursorPassesFilling];
    case_48_batch_of_three_beside_taker: "a batch of 0, 1, 2 beside two takes", "5 6", 3,
        [SecondLook], [NoSecondLook];
    batch_whose_gap_fills_beside_taker: "a batch of 2, 0, 1 beside a taker: never 1 first", "6", 3,
        [SecondLook], [OneSecondLook];
    late_put_beside_a_take_of_more: "a late put beside a take that finds fewer than it asked for", "6", 3,
        [], [RescanWhenFewer];
}

/// The offset of a take of one, whose message is left held.
fn take_one<const N: usize>(part: &Part<N>) -> Option<u64> {
    match part.take(1) {
        Ok(lease) => {
            let offset = lease.iter().next().map(|(offset, _)| offset);
            lease.detach();
            offset
        }
        Err(error) => {
            assert_eq!(error, TakeError::Empty);
            None
        }
    }
}

/// Nothing runs beside: takes give the rest of `0..end` in order.
fn rest_in_order<const N: usize>(part: &Part<N>, taken: &[u64], end: u64) {
    let rest: Vec<_> = std::iter::from_fn(|| take_one(part)).collect();
    let expected: Vec<_> = (0..end).filter(|offset| !taken.contains(offset)).collect();
    assert_eq!(rest, expected, "after {taken:?}");
    part.remove_batch(0..end).unwrap();
    part.advance_to(end).unwrap();
    slid(part, end, 0);
}

fn case_42_late_put_beside_taker() {
    let (window, part) = ring_with_callers_seal::<4>();
    put(&part, 1..3);
    let other = part.clone();
    let ((), taken) = both(move || put(&other, [0]), || take_one(&part).expect("1 is ready"));
    assert!(taken < 2);
    rest_in_order(&part, &[taken], 3);
    ended(window, part);
}

fn batch_of(part: &Part<4>, offsets: [u64; 3]) {
    let mut batch = offsets.into_iter().map(|offset| (offset, Token::new()));
    assert_eq!(part.put_batch_sized(&mut batch, |_| 1).unwrap().admitted, 3);
}

fn batch_in_another_order_beside_taker() {
    let (window, part) = ring_with_callers_seal::<4>();
    let other = part.clone();
    let ((), taken) = both(move || batch_of(&other, [1, 0, 2]), || take_one(&part));
    assert!(taken != Some(2));
    rest_in_order(&part, taken.as_slice(), 3);
    ended(window, part);
}

fn case_48_batch_of_three_beside_taker() {
    let (window, part) = ring::<4>();
    let other = part.clone();
    let ((), taken) = both(
        move || batch_of(&other, [0, 1, 2]),
        || [take_one(&part), take_one(&part)].into_iter().flatten().collect::<Vec<_>>(),
    );
    assert!([&[][..], &[0], &[0, 1]].contains(&&*taken), "{taken:?}");
    rest_in_order(&part, &taken, 3);
    ended(window, part);
}

fn batch_whose_gap_fills_beside_taker() {
    let (window, part) = ring_with_callers_seal::<4>();
    let other = part.clone();
    let ((), taken) = both(move || batch_of(&other, [2, 0, 1]), || take_one(&part));
    assert!(taken != Some(1), "0 was ready before 1");
    rest_in_order(&part, taken.as_slice(), 3);
    ended(window, part);
}

fn late_put_beside_a_take_of_more() {
    let (window, part) = ring_with_callers_seal::<4>();
    put(&part, [1]);
    let other = part.clone();
    let ((), taken) = both(
        move || put(&other, [0]),
        || {
            let lease = part.take(2).unwrap();
            let taken: Vec<_> = lease.iter().map(|(offset, _)| offset).collect();
            lease.detach();
            taken
        },
    );
    assert!(taken.is_sorted(), "{taken:?}");
    rest_in_order(&part, &taken, 2);
    ended(window, part);
}
