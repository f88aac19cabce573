//! The front: finishers beside each other, across blocks and at the end of one.

use crate::harness::{both, models, three};
use crate::support::{ended, put, remove, settled, skip, skip_with_callers_seal, slid, take_one};

models! {
    two_finish_one_block: "two removes of the last two offsets of a block", "1 2 3 7", 2 / 1,
        [], [WatermarkStore];
    two_finish_two_blocks: "two removes, each of the only message of a block", "1 2 3 7", 3 / 2,
        [LastReference], [MeetingRelaxed, FrontBeforeWatermark];
    three_finish_three_blocks: "three removes, each of the only message of a block", "1 2 3 7", 1,
        [LastReference], [MeetingRelaxed];
    remove_beside_pass: "a remove beside the pass of its block", "1 3 4 7", 3 / 2,
        [LastReference], [];
    advance_beside_finisher: "advance_to into a gap of blocks beside the last finisher", "1 2 3 7", 3 / 1,
        [Sealed], [MeetingRelaxed];
    advance_between_blocks: "advance_to between two blocks beside the last finisher of the first", "1 2 3 7", 2,
        [Sealed], [MeetingRelaxed];
    put_beside_last_pass: "a put of the next block beside the remove that empties the last", "1 3 5 7", 3,
        [], [];
    held_found_again: "a shared lease committed beside the pass of the blocks before it", "3 4 7", 2 / 1,
        [LastReference], [MeetingRelaxed];
    two_advance: "two advance_to into two gaps", "1 2 3", 2 / 1,
        [], [];
}

fn two_finish_one_block() {
    let (window, part) = skip();
    put(&part, [62, 63]);
    let other = part.clone();
    both(move || remove(&other, [62]), || remove(&part, [63]));
    settled(&part, 64, 0);
    put(&part, [64]);
    remove(&part, [64]);
    settled(&part, 65, 0);
    ended(window, part);
}

fn two_finish_two_blocks() {
    let (window, part) = skip();
    put(&part, [0, 64]);
    let other = part.clone();
    both(
        move || {
            let next = other.remove(0).unwrap();
            assert!(next.get() >= 64);
            assert!(other.watermark().unwrap() >= next);
        },
        || {
            let next = part.remove(64).unwrap();
            assert!(part.watermark().unwrap() >= next);
        },
    );
    settled(&part, 65, 0);
    ended(window, part);
}

fn three_finish_three_blocks() {
    let (window, part) = skip();
    put(&part, [0, 64, 128]);
    let (one, two) = (part.clone(), part.clone());
    three(move || remove(&one, [0]), move || remove(&two, [64]), || remove(&part, [128]));
    settled(&part, 129, 0);
    ended(window, part);
}

fn remove_beside_pass() {
    let (window, part) = skip();
    put(&part, [0, 64, 65]);
    let other = part.clone();
    both(move || remove(&other, [0, 64]), || remove(&part, [65]));
    settled(&part, 66, 0);
    ended(window, part);
}

fn advance_beside_finisher() {
    let (window, part) = skip_with_callers_seal();
    put(&part, [1]);
    let other = part.clone();
    both(
        move || {
            other.advance_to(130).unwrap();
        },
        || remove(&part, [1]),
    );
    settled(&part, 130, 0);
    ended(window, part);
}

fn advance_between_blocks() {
    let (window, part) = skip_with_callers_seal();
    put(&part, [1, 192]);
    let other = part.clone();
    both(
        move || {
            other.advance_to(66).unwrap();
        },
        || remove(&part, [1]),
    );
    settled(&part, 66, 1);
    remove(&part, [192]);
    part.advance_to(193).unwrap();
    settled(&part, 193, 0);
    ended(window, part);
}

fn put_beside_last_pass() {
    let (window, part) = skip();
    put(&part, [63]);
    let other = part.clone();
    both(move || remove(&other, [63]), || put(&part, [64]));
    slid(&part, 64, 1);
    assert_eq!(take_one(&part), Some(64));
    settled(&part, 65, 0);
    ended(window, part);
}

fn held_found_again() {
    let (window, part) = skip();
    put(&part, [0, 64, 128]);
    part.take(1).unwrap().detach();
    let held = part.take_shared(2).unwrap();
    let other = part.clone();
    let (_, report) = both(move || remove(&other, [0]), || held.commit().unwrap());
    assert_eq!((report.applied, report.gone), (2, 0));
    settled(&part, 129, 0);
    ended(window, part);
}

fn two_advance() {
    let (window, part) = skip_with_callers_seal();
    let other = part.clone();
    both(
        move || {
            assert!(other.advance_to(70).unwrap().get() >= 70);
        },
        || assert!(part.advance_to(200).unwrap().get() >= 200),
    );
    settled(&part, 200, 0);
    ended(window, part);
}
