//! What only the skip window has: blocks, gaps between them, memory that follows the unfinished.

mod common;

use common::{Ledger, panics};
use inflight::{PutErrorKind, SkipWindow, Snapshot, Window};

#[test]
fn advance_into_a_gap_between_two_blocks() {
    let ledger = Ledger::new();
    let window = SkipWindow::with_callers_seal();
    let part = window.assign(0);
    part.put(1000, ledger.message(1)).unwrap();
    assert_eq!(part.advance_to(66).unwrap().get(), 66);
    assert_eq!(part.put(65, ledger.message(2)).unwrap_err().kind(), PutErrorKind::BelowWatermark);
    part.put(66, ledger.message(3)).unwrap();
    assert_eq!(part.advance_to(700).unwrap().get(), 66);
    assert_eq!(part.remove(66).unwrap().get(), 700);
    assert_eq!(part.remove(1000).unwrap().get(), 700);
    assert_eq!(part.advance_to(1001).unwrap().get(), 1001);
    assert_eq!((window.count(), ledger.total()), (0, 0));
}

#[test]
fn forgotten_leases_of_both_kinds_are_freed_once() {
    let ledger = Ledger::new();
    let mut window = SkipWindow::new();
    for round in 0..3 {
        let part = window.assign(0);
        part.put_batch(&mut (0..200).map(|offset| (offset, ledger.message(offset)))).unwrap();
        std::mem::forget(part.take(70).unwrap());
        part.take_shared(70).unwrap().detach();
        // The older generations have left only what their lending leases pin.
        assert_eq!(window.count(), 200 + 70 * round, "round {round}");
        assert_eq!(ledger.total(), 200 + 70 * round, "round {round}");
    }
    let left = window.drain().map(|(offset, message)| assert_eq!(message.id, offset)).count();
    assert_eq!(left, 200);
    assert_eq!((window.count(), window.bytes()), (0, 0));
    drop(window);
    assert_eq!(ledger.total(), 0);
}

#[test]
fn blocks_are_freed_when_the_last_doomed_lease_ends() {
    let ledger = Ledger::new();
    let window = SkipWindow::new();
    let old = window.assign(0);
    old.put_batch(&mut (0..70).map(|offset| (offset, ledger.message(offset)))).unwrap();
    let first = old.take(1).unwrap();
    let second = old.take(65).unwrap();
    let mut ended = Vec::new();
    for _ in 0..10 {
        ended.push(window.assign(0));
        ended.last().unwrap().put(0, ledger.message(1000)).unwrap();
    }
    assert_eq!(ledger.total(), 67);
    assert_eq!(first.iter().map(|(offset, message)| offset + message.id).sum::<u64>(), 0);
    assert!(first.commit().is_err());
    assert_eq!(second.iter().map(|(offset, _)| offset).sum::<u64>(), (1..66).sum());
    drop(second);
    assert_eq!((ledger.total(), window.count()), (1, 1));
}

#[test]
fn a_drop_that_panics_in_assign_leaves_the_rest_right() {
    let ledger = Ledger::new();
    let window = SkipWindow::new();
    let part = window.assign(0);
    part.put_batch(&mut (0..130).map(|offset| (offset, ledger.message(offset)))).unwrap();
    let lease = part.take(2).unwrap();
    ledger.fail_drop(Some(70));
    assert!(panics(|| {
        window.assign(0);
    }));
    assert!(part.watermark().is_err());
    assert_eq!((ledger.total(), window.count()), (2, 2));
    let part = window.assign(0);
    assert!(lease.rollback().is_err());
    assert_eq!((ledger.total(), window.count()), (0, 0));
    part.put(0, ledger.message(0)).unwrap();
    assert_eq!(part.take(1).unwrap().commit().unwrap().next.get(), 1);
}

#[test]
fn every_stride_goes_in_and_comes_out_in_order() {
    let strides: &[u64] =
        if cfg!(miri) { &[1, 3, 65] } else { &[1, 2, 3, 4, 5, 8, 63, 64, 65, 4096] };
    for &stride in strides {
        let ledger = Ledger::new();
        let window = SkipWindow::with_callers_seal();
        let part = window.assign(7);
        let count = if cfg!(miri) { 20 } else { 500 };
        let offsets: Vec<u64> = (0..count).map(|index| 7 + index * stride).collect();
        for &offset in offsets.iter().rev() {
            part.put(offset, ledger.message(offset)).unwrap();
        }
        let lease = part.take(offsets.len()).unwrap();
        assert!(lease.iter().map(|(offset, _)| offset).eq(offsets.iter().copied()));
        lease.commit().unwrap();
        let end = offsets.last().unwrap() + 1;
        assert_eq!(part.advance_to(end).unwrap().get(), end);
        assert_eq!(ledger.total(), 0);
    }
}

/// What a snapshot says about offsets that were not put again stays above the end, also where all of
/// a chunk was sealed and given back.
#[test]
fn the_watermark_stops_at_the_end_within_what_a_snapshot_sealed() {
    const ALL: u64 = 1_000;
    let window = SkipWindow::<u64>::new();
    let part = window.assign(0);
    part.put_batch(&mut (0..ALL).map(|n| (n, n))).unwrap();
    // The head alone is left.
    part.remove_batch(1..ALL).unwrap();
    let mut bytes = vec![0; 64];
    let taken = part.snapshot(&mut bytes).unwrap();
    assert!(taken.is_whole);
    let snapshot = Snapshot::parse(&bytes[..taken.len]).unwrap();
    for last in 1..ALL {
        let window = SkipWindow::<u64>::new();
        let part = window.assign(0);
        part.restore(&snapshot).unwrap();
        part.put(0, 0).unwrap();
        // Finished already, but the log has come so far again.
        assert_eq!(part.put(last, last).unwrap_err().kind(), PutErrorKind::Passed);
        part.remove(0).unwrap();
        let end = part.end().unwrap();
        assert_eq!(part.min_offset().unwrap().get(), end, "put again up to {last}");
        assert_eq!(part.watermark().unwrap().get(), end);
        assert_eq!(end, last + 1);
    }
}
