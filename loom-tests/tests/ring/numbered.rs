//! Numbered by arrival: the tail against puts, finishers and assign.

use std::sync::Arc;

use inflight::{PutErrorKind, RingWindow, TakeError, Window};

use crate::harness::{Part, Ring, Token, both, ended, models, put};

models! {
    put_beside_the_last_finisher: "a put beside the remove of the message before", "1 2 3", 3,
        [], [TailBeforeReady];
    said_is_never_taken_back: "a put beside a take, a commit, and two looks at the watermark", "1 2", 2,
        [], [TailNotHelped];
    two_puts: "two puts at once: positions and offsets ascend together", "1 6", 3,
        [], [NoTurn];
    far_put_beside_assign: "a far put beside assign: the new tail stays", "1 4", 3,
        [PutStale], [TailByMax];
    advance_beside_remove: "advance_to beside the last finisher", "1 2 3", 3, [], [MeetingRelaxed];
}

fn ring() -> (Arc<Ring<2>>, Part<2>) {
    let window = Arc::new(RingWindow::numbered());
    let part = window.assign_owned(0);
    (window, part)
}

fn put_beside_the_last_finisher() {
    let (window, part) = ring();
    put(&part, [10]);
    let other = part.clone();
    let (_, (removed, seen)) = both(
        move || put(&other, [50]),
        || (part.remove(10).unwrap().get(), part.watermark().unwrap().get()),
    );
    // 50 is unfinished: whatever is said may not lie above it.
    assert!([11, 50].contains(&removed), "said {removed}");
    assert!([11, 50].contains(&seen) && seen >= removed, "said {removed}, then {seen}");
    assert_eq!(part.watermark().unwrap().get(), 50);
    assert_eq!(part.remove(50).unwrap().get(), 51);
    ended(window, part);
}

fn said_is_never_taken_back() {
    let (window, part) = ring();
    let other = part.clone();
    let (_, finished) = both(
        move || put(&other, [50]),
        || {
            let before = part.watermark().unwrap().get();
            match part.take(1) {
                Ok(lease) => {
                    let next = lease.commit().unwrap().next.get();
                    assert!(next >= before, "said {before}, then {next}");
                    let after = part.watermark().unwrap().get();
                    assert!(after >= next, "said {next}, then {after}");
                    true
                }
                Err(error) => {
                    assert_eq!(error, TakeError::Empty);
                    false
                }
            }
        },
    );
    assert_eq!(part.watermark().unwrap().get(), if finished { 51 } else { 50 });
    ended(window, part);
}

fn two_puts() {
    let (window, part) = ring();
    let other = part.clone();
    let one = move |part: Part<2>, offset| match part.put_sized(offset, 1, Token::new()) {
        Ok(_) => Some(offset),
        Err(error) => {
            assert!(
                [PutErrorKind::Full, PutErrorKind::BelowWatermark, PutErrorKind::Passed]
                    .contains(&error.kind())
            );
            None
        }
    };
    let (first, second) = both(move || one(other, 50), || one(part.clone(), 60));
    assert!(first.is_some() || second.is_some(), "at most one is in the other's way");
    let lowest = first.or(second).unwrap();
    assert_eq!(part.watermark().unwrap().get(), lowest);
    let lease = part.take(2).unwrap();
    let offsets: Vec<_> = lease.iter().map(|(offset, _)| offset).collect();
    assert_eq!(offsets, first.into_iter().chain(second).collect::<Vec<_>>());
    lease.commit().unwrap();
    ended(window, part);
}

fn far_put_beside_assign() {
    let (window, old) = ring();
    let (stale, new) = both(
        move || match old.put_sized(1 << 40, 1, Token::new()) {
            Ok(_) => false,
            Err(error) => {
                assert_eq!(error.kind(), PutErrorKind::Stale);
                true
            }
        },
        || window.assign_owned(7),
    );
    let _ = stale;
    assert_eq!(new.watermark().unwrap().get(), 7);
    assert_eq!(new.end().unwrap(), 7);
    put(&new, [9]);
    assert_eq!(new.watermark().unwrap().get(), 9);
    new.take(1).unwrap().commit().unwrap();
    assert_eq!(new.watermark().unwrap().get(), 10);
    assert_eq!(window.count(), 0);
    ended(window, new);
}

fn advance_beside_remove() {
    let (window, part) = ring();
    put(&part, [10]);
    let other = part.clone();
    let (removed, advanced) =
        both(move || other.remove(10).unwrap().get(), || part.advance_to(100).unwrap().get());
    assert!([11, 100].contains(&removed), "said {removed}");
    assert!([10, 100].contains(&advanced), "said {advanced}");
    assert!(removed == 100 || advanced == 100, "one of them comes second");
    assert_eq!(part.watermark().unwrap().get(), 100);
    ended(window, part);
}
