//! What a batch put reports when it meets the end of the window in the middle.

use inflight::{PutErrorKind, RingWindow, Window};

/// The part before the refusal is in the window, so it is in the report, and so is the hint that
/// a consumer should be started: nobody else will give it.
#[test]
fn a_batch_stopped_by_a_full_window_reports_what_it_admitted() {
    let window = RingWindow::<u64, 8>::new();
    let part = window.assign(0);
    let mut messages = (0..20).map(|n| (n, n));
    let stopped = part.put_batch(&mut messages).unwrap_err();
    assert_eq!((stopped.error, stopped.offset, stopped.value), (PutErrorKind::Full, 8, 8));
    assert_eq!((stopped.so_far.admitted, stopped.so_far.dispatch), (8, true));
    assert_eq!(window.count(), 8);
    assert_eq!(messages.next(), Some((9, 9)));
}

#[test]
fn a_batch_that_makes_room_in_the_middle_reports_all_of_it() {
    let window = RingWindow::<u64, 8>::new();
    let part = window.assign(0);
    // 9 lies beyond the window until the gap below 6 is sealed.
    let put = part.put_batch(&mut [(6, 6), (9, 9)].into_iter()).unwrap();
    assert_eq!((put.admitted, put.dispatch), (2, true));
    assert_eq!(window.count(), 2);
}
