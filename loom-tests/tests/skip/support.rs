//! The skip window as the models use it.

use std::sync::Arc;

use inflight::{Assignment, PutErrorKind, RemoveError, SkipWindow, TakeError, Window};

use crate::harness::{Token, alive};

pub type Skip = SkipWindow<Token>;
pub type Part = Assignment<Arc<Skip>>;

/// A window for one putter, assigned at offset 0, the first of a block.
pub fn skip() -> (Arc<Skip>, Part) {
    let window = Arc::new(SkipWindow::new());
    let part = window.assign_owned(0);
    (window, part)
}

/// A window for several putters, assigned at offset 0, the first of a block.
pub fn skip_with_callers_seal() -> (Arc<Skip>, Part) {
    let window = Arc::new(SkipWindow::with_callers_seal());
    let part = window.assign_owned(0);
    (window, part)
}

/// Puts messages at these offsets, each of one byte.
pub fn put(part: &Part, offsets: impl IntoIterator<Item = u64>) {
    for offset in offsets {
        part.put_sized(offset, 1, Token::new()).expect("there is room");
    }
}

/// A put that a seal may refuse: was it admitted?
pub fn put_unless_sealed(part: &Part, offset: u64) -> bool {
    match part.put_sized(offset, 1, Token::new()) {
        Ok(_) => true,
        Err(error) => {
            let sealed = [PutErrorKind::Passed, PutErrorKind::BelowWatermark];
            assert!(sealed.contains(&error.kind()), "{:?}", error.kind());
            false
        }
    }
}

/// The watermark is not above an offset that is unfinished.
#[track_caller]
pub fn not_above(part: &Part, offset: u64) {
    assert!(part.watermark().expect("in force").get() <= offset, "above an unfinished offset");
}

/// Removes messages that are there.
#[track_caller]
pub fn remove(part: &Part, offsets: impl IntoIterator<Item = u64>) {
    for offset in offsets {
        part.remove(offset).expect("it is there");
    }
}

/// Removes a message that others may have finished: was it this call?
pub fn remove_if_there(part: &Part, offset: u64) -> bool {
    match part.remove(offset) {
        Ok(_) => true,
        Err(RemoveError::Passed) => false,
        Err(error) => panic!("{error:?}"),
    }
}

/// Takes one message and finishes it: its offset, if there was one.
pub fn take_one(part: &Part) -> Option<u64> {
    match part.take(1) {
        Ok(lease) => {
            let (offset, token) = lease.iter().next().expect("one message");
            token.id();
            lease.commit().expect("in force");
            Some(offset)
        }
        Err(error) => {
            assert_eq!(error, TakeError::Empty);
            None
        }
    }
}

/// All calls have returned: the watermark is at `next` without a slide and after one, what the
/// counters say is what is unfinished, and the shortcuts are whole.
#[track_caller]
pub fn settled(part: &Part, next: u64, unfinished: usize) {
    assert_eq!(part.watermark().expect("in force").get(), next, "watermark without a slide");
    slid(part, next, unfinished);
}

/// As [`settled`], where a gap may have become sealable since the last slide.
#[track_caller]
pub fn slid(part: &Part, next: u64, unfinished: usize) {
    assert_eq!(part.min_offset().expect("in force").get(), next, "watermark after a slide");
    assert_eq!(part.window().count(), unfinished, "count");
    assert_eq!(part.window().bytes(), unfinished as u64, "bytes");
    part.window().check_shortcuts();
}

/// The end of a model: everything is dropped, each message exactly once.
#[track_caller]
pub fn ended(window: Arc<Skip>, part: Part) {
    drop(part);
    window.check_shortcuts();
    assert_eq!(Arc::strong_count(&window), 1, "a lease or handle is left");
    drop(window);
    assert_eq!(alive(), (0, 0), "messages and clones left");
}
