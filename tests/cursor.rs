//! A cursor that takes leave behind: its word has room for a part of the position only, so what
//! it says must not be taken for a position ahead of the watermark.

use inflight::{Assignment, RingWindow, TakeError, Window};

type Part<'a> = Assignment<&'a RingWindow<u64, 8>>;

/// Where the position bits of a cursor wrap.
const WRAP: u64 = if cfg!(inflight_word32) { 1 << 16 } else { 1 << 32 };

fn put(part: &Part<'_>, offsets: std::ops::Range<u64>) {
    part.put_batch(&mut offsets.map(|n| (n, n))).unwrap();
}

fn check_order(part: &Part<'_>, next: u64) {
    put(part, next..next + 8);
    let lease = part.take(8).unwrap();
    assert!(lease.iter().map(|(offset, _)| offset).eq(next..next + 8));
    lease.commit().unwrap();
    assert_eq!(part.take(8).unwrap_err(), TakeError::Empty);
}

#[test]
fn messages_removed_by_number_do_not_leave_the_cursor_behind() {
    for finished in 0..24 {
        let window = RingWindow::<u64, 8>::starting_at((WRAP - 16) / 8, false);
        let part = window.assign(0);
        for offset in 0..finished {
            put(&part, offset..offset + 1);
            part.remove(offset).unwrap();
        }
        check_order(&part, finished);
    }
}

#[test]
fn assignments_do_not_leave_the_cursor_behind() {
    for finished in 0..8 {
        // Each assignment begins 8 positions further: the last one 8 before the wrap.
        let window = RingWindow::<u64, 8>::starting_at((WRAP - 32) / 8, false);
        let mut part = window.assign(0);
        for _ in 0..2 {
            part = window.assign(0);
        }
        for offset in 0..finished {
            put(&part, offset..offset + 1);
            part.remove(offset).unwrap();
        }
        check_order(&part, finished);
    }
}

#[test]
fn a_jump_does_not_leave_the_cursor_behind() {
    for short_of in 0..16 {
        let window = RingWindow::<u64, 8>::new();
        let part = window.assign(0);
        // The assignment begins at position 8.
        let next = WRAP * 2 - 8 - short_of;
        part.advance_to(next).unwrap();
        check_order(&part, next);
    }
}
