//! Snapshots: what they say is what is finished, what they cannot hold they do not say, nothing that
//! was changed is read, and a restored window skips what was finished.

mod common;

use std::collections::BTreeSet;

use common::scenarios;
use inflight::{Assignment, RingWindow, Snapshot, SnapshotError, Taken, Window, WindowRef};
use proptest::prelude::*;

const N: usize = 256;

fn offsets(snapshot: &Snapshot<'_>) -> BTreeSet<u64> {
    let ranges: Vec<_> = snapshot.finished().collect();
    for pair in ranges.windows(2) {
        assert!(pair[0].end < pair[1].start, "{ranges:?} ascend and do not touch");
    }
    ranges.into_iter().flatten().collect()
}

fn take<R: WindowRef>(part: &Assignment<R>, room: usize) -> (Taken, Vec<u8>) {
    let mut buffer = vec![0xa5; room];
    let taken = part.snapshot(&mut buffer).unwrap();
    buffer.truncate(taken.len);
    (taken, buffer)
}

/// Puts `all` messages, finishes some; checks snapshots of every size, then restores the whole one
/// and puts everything again.
fn check<W: Window<Value = u64>>(window: &W, start: u64, all: u64, done: &BTreeSet<u64>) {
    let part = window.assign(start);
    part.put_batch(&mut (start..start + all).map(|n| (n, n))).unwrap();
    part.remove_batch(done.iter().map(|n| start + n)).unwrap();
    let first = (0..all).find(|n| !done.contains(n)).unwrap_or(all);
    let above: BTreeSet<_> = done.range(first..).map(|n| start + n).collect();
    let listed: BTreeSet<_> = part.finished().unwrap().flatten().collect();
    assert_eq!(listed, above);

    let (whole, bytes) = take(&part, 4096);
    let snapshot = Snapshot::parse(&bytes).unwrap();
    assert!(whole.is_whole);
    assert_eq!((whole.watermark.get(), whole.exact_up_to), (start + first, start + all));
    assert_eq!((snapshot.watermark(), snapshot.exact_up_to()), (whole.watermark, start + all));
    assert_eq!(offsets(&snapshot), above);
    let mut filter = snapshot.filter();
    for offset in start.saturating_sub(3)..start + all + 3 {
        let expected = offset < start + first || above.contains(&offset);
        assert_eq!(filter.is_finished(offset), expected);
        assert_eq!(snapshot.is_finished(offset), expected);
    }
    // A smaller buffer has the lowest, and says up to where.
    let mut last = 0;
    for room in [16, 17, 18, 20, 24, 32, 48, whole.len - 1, whole.len].map(|room| room.max(16)) {
        let (taken, bytes) = take(&part, room);
        let snapshot = Snapshot::parse(&bytes).unwrap();
        assert!(taken.len <= room && taken.exact_up_to == snapshot.exact_up_to());
        assert_eq!(taken.is_whole, taken.exact_up_to == start + all);
        let expected: BTreeSet<_> =
            above.iter().copied().filter(|offset| *offset < taken.exact_up_to).collect();
        assert_eq!(offsets(&snapshot), expected);
        if room > 16 && room < whole.len - 1 {
            assert!(taken.exact_up_to >= last);
            last = taken.exact_up_to;
        }
    }

    let part = window.assign(snapshot.watermark().get());
    let restored = part.restore(&snapshot).unwrap();
    assert_eq!((restored.sealed, restored.beyond), (above.len() as u64, None));
    assert_eq!(part.restore(&snapshot).unwrap().sealed, 0, "again changes nothing");
    // A snapshot of what was restored says the same.
    assert_eq!(offsets(&Snapshot::parse(&take(&part, 4096).1).unwrap()), above);
    let again = part.put_batch(&mut (start..start + all).map(|n| (n, n))).unwrap();
    assert_eq!(again.admitted as u64, all - done.len() as u64);
    assert_eq!(again.passed, done.len());
    let mut left: Vec<_> = Vec::new();
    while let Ok(lease) = part.take(16) {
        left.extend(lease.iter().map(|(offset, _)| offset - start));
        lease.commit().unwrap();
    }
    assert!(left.iter().copied().eq((0..all).filter(|n| !done.contains(n))));
    assert_eq!(part.watermark().unwrap().get(), start + all);
    assert_eq!(window.count(), 0);
}

/// Finished sets of every shape: alternating, runs, sparse, none, all.
fn done() -> impl Strategy<Value = (u64, BTreeSet<u64>)> {
    let runs = prop::collection::vec((0..40_u64, 0..40_u64), 0..12);
    let short = prop::collection::vec((0..3_u64, 0..3_u64), 0..80);
    (prop_oneof![runs, short], 1..=N as u64).prop_map(|(runs, all)| {
        let mut at = 0;
        let mut done = BTreeSet::new();
        for (open, run) in runs {
            done.extend(at + open..at + open + run);
            at += open + run;
        }
        done.retain(|n| *n < all);
        (all, done)
    })
}

scenarios! {
    fn any_finished_set_goes_around<K>(variant) {
        let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
            cases: 60, failure_persistence: None, ..ProptestConfig::default()
        });
        runner.run(&(done(), prop_oneof![Just(0), Just(5), Just(1 << 40)]), |((all, done), start)| {
            check(&*K::window::<u64, N>(variant, false), start, all, &done);
            Ok(())
        }).unwrap();
    }

    fn a_gap_that_can_still_be_filled_is_not_finished<K>(variant) {
        let window = K::window::<u64, N>(variant, true);
        let part = window.assign(0);
        for offset in [2, 5, 7] {
            part.put(offset, offset).unwrap();
        }
        part.remove(5).unwrap();
        assert_eq!(offsets(&Snapshot::parse(&take(&part, 64).1).unwrap()), [5].into());
        part.put(3, 3).unwrap();
        part.advance_to(2).unwrap();
        let bytes = take(&part, 64).1;
        let snapshot = Snapshot::parse(&bytes).unwrap();
        assert_eq!((snapshot.watermark().get(), offsets(&snapshot)), (2, [5].into()));
    }

    fn waiting_held_and_lent_are_not_finished<K>(variant) {
        let window = K::window::<u64, N>(variant, false);
        let part = window.assign(0);
        part.put_batch(&mut (0..6).map(|n| (n, n))).unwrap();
        let lent = part.take(2).unwrap();
        let held = part.take_shared(1).unwrap();
        part.remove(4).unwrap();
        assert_eq!(offsets(&Snapshot::parse(&take(&part, 64).1).unwrap()), [4].into());
        let listed: Vec<_> = part.finished().unwrap().flatten().collect();
        assert_eq!(listed, [4]);
        drop((lent, held));
    }

    fn an_ended_assignment_has_no_snapshot<K>(variant) {
        let window = K::window::<u64, N>(variant, false);
        let old = window.assign(0);
        old.put(0, 0).unwrap();
        let mut listed = old.finished().unwrap();
        let new = window.assign(0);
        assert_eq!(old.snapshot(&mut [0; 64]), Err(SnapshotError::Stale));
        assert_eq!(listed.next(), None);
        assert!(old.finished().is_err());
        let bytes = take(&new, 64).1;
        assert!(old.restore(&Snapshot::parse(&bytes).unwrap()).is_err());
    }

    fn what_was_put_again_is_passed_to_the_end<K>(variant) {
        let window = K::window::<u64, N>(variant, false);
        let part = window.assign(5);
        part.put_batch(&mut (5..10).map(|n| (n, n))).unwrap();
        part.remove_batch(6..10).unwrap();
        let bytes = take(&part, 64).1;
        let part = window.assign(5);
        part.restore(&Snapshot::parse(&bytes).unwrap()).unwrap();
        assert_eq!(part.end().unwrap(), 5);
        part.put(5, 5).unwrap();
        assert_eq!(part.remove(5).unwrap().get(), 6);
        for offset in 6..10 {
            assert!(part.put(offset, offset).is_err());
            assert_eq!(part.watermark().unwrap().get(), offset + 1);
        }
        part.put(10, 10).unwrap();
        assert_eq!(part.remove(10).unwrap().get(), 11);
    }

    fn a_window_may_reach_beyond_the_last_offset<K>(variant) {
        let window = K::window::<u64, N>(variant, false);
        let start = u64::MAX - 5;
        let part = window.assign(start);
        part.put_batch(&mut (start..u64::MAX).map(|n| (n, n))).unwrap();
        part.remove_batch([start + 1, u64::MAX - 1]).unwrap();
        let (taken, bytes) = take(&part, 64);
        assert!(taken.is_whole);
        let finished: Vec<_> = Snapshot::parse(&bytes).unwrap().finished().collect();
        assert_eq!(finished, [start + 1..start + 2, u64::MAX - 1..u64::MAX]);
        assert_eq!(taken.exact_up_to, u64::MAX);
    }

    fn a_start_elsewhere_is_no_error<K>(variant) {
        let window = K::window::<u64, N>(variant, false);
        let part = window.assign(10);
        part.put_batch(&mut (10..20).map(|n| (n, n))).unwrap();
        part.remove_batch([10, 12, 15, 18]).unwrap();
        let bytes = take(&part, 64).1;
        let snapshot = Snapshot::parse(&bytes).unwrap();
        let part = window.assign(3);
        assert_eq!(part.restore(&snapshot).unwrap().next.get(), 11);
        let part = window.assign(13);
        assert_eq!(part.restore(&snapshot).unwrap().sealed, 2);
        assert_eq!(part.put_batch(&mut (10..20).map(|n| (n, n))).unwrap().admitted, 5);
    }
}

#[test]
fn what_a_small_ring_cannot_reach_is_beyond() {
    let window = RingWindow::<u64, N>::new();
    let part = window.assign(0);
    part.put_batch(&mut (0..100).map(|n| (n, n))).unwrap();
    part.remove_batch([1, 50, 51, 90]).unwrap();
    let bytes = take(&part, 64).1;
    let snapshot = Snapshot::parse(&bytes).unwrap();
    let small = RingWindow::<u64, 8>::new();
    let part = small.assign(0);
    let restored = part.restore(&snapshot).unwrap();
    assert_eq!((restored.sealed, restored.beyond), (1, Some(50)));
    let mut put = 0;
    let mut filter = snapshot.filter();
    for offset in 0..100 {
        if filter.is_finished(offset) {
            part.advance_to(offset + 1).unwrap();
            continue;
        }
        put += 1;
        part.put(offset, offset).unwrap();
        part.remove(offset).unwrap();
    }
    assert_eq!((put, part.watermark().unwrap().get()), (96, 100));
}

#[cfg(not(any(target_pointer_width = "32", inflight_word32)))]
#[test]
fn a_window_numbered_by_arrival_speaks_offsets() {
    let window = RingWindow::<u64, 8>::numbered();
    let part = window.assign(0);
    let lines = [0, 100, 250, 251, 400];
    part.put_batch(&mut lines.map(|n| (n, n)).into_iter()).unwrap();
    part.remove_batch([100, 251]).unwrap();
    let bytes = take(&part, 64).1;
    let snapshot = Snapshot::parse(&bytes).unwrap();
    let ranges: Vec<_> = snapshot.finished().collect();
    assert_eq!(ranges, [1..250, 251..400]);
    assert_eq!(part.finished().unwrap().collect::<Vec<_>>(), ranges);
    assert_eq!(snapshot.exact_up_to(), 401);
    let part = window.assign(snapshot.watermark().get());
    assert_eq!(part.restore(&snapshot).unwrap().beyond, Some(1));
    let mut filter = snapshot.filter();
    let again = lines.into_iter().filter(|offset| !filter.is_finished(*offset));
    assert_eq!(part.put_batch(&mut again.map(|n| (n, n))).unwrap().admitted, 3);
}

fn example() -> Vec<u8> {
    let window = RingWindow::<u64, N>::new();
    let part = window.assign(1000);
    part.put_batch(&mut (1000..1200).map(|n| (n, n))).unwrap();
    part.remove_batch((1001..1080).step_by(2).chain(1100..1180)).unwrap();
    take(&part, 4096).1
}

#[test]
fn every_prefix_is_refused() {
    let bytes = example();
    for len in 0..bytes.len() {
        let error = Snapshot::parse(&bytes[..len]).unwrap_err();
        assert_eq!(error, SnapshotError::Truncated, "{len} bytes");
    }
    let longer = [&bytes[..], &[0]].concat();
    assert_eq!(Snapshot::parse(&longer).unwrap_err(), SnapshotError::Malformed);
}

#[test]
fn every_changed_byte_is_refused() {
    let bytes = example();
    for at in 0..bytes.len() {
        for change in 1..=255 {
            let mut changed = bytes.clone();
            changed[at] ^= change;
            assert!(Snapshot::parse(&changed).is_err(), "byte {at} changed by {change}");
        }
    }
}

#[test]
fn a_buffer_without_room_for_the_watermark_is_refused() {
    let window = RingWindow::<u64, 8>::new();
    let part = window.assign(u64::MAX - 10);
    for room in 0..16 {
        assert_eq!(part.snapshot(&mut vec![0; room]), Err(SnapshotError::TooSmall));
    }
    assert_eq!(take(&part, 16).0.len, 16);
}

#[test]
fn it_is_as_small_as_it_says() {
    let window = RingWindow::<u64, 4096>::boxed();
    let part = window.assign(0);
    part.put_batch(&mut (0..4096).map(|n| (n, n))).unwrap();
    part.remove_batch((1..4096).filter(|n| n % 3 != 0)).unwrap();
    let (taken, _) = take(&part, 1024);
    assert!(taken.is_whole && taken.len <= 4096 / 8 + 4096 / 248 + 24, "{taken:?}");
    part.remove_batch((1..4096).filter(|n| n % 1000 != 0)).unwrap();
    let (taken, _) = take(&part, 64);
    assert!(taken.is_whole && taken.len <= 7 + 5 * 4, "{taken:?}");
}

/// The checksum that makes a body of any bytes pass it: what is left is the form.
fn sealed(body: &[u8]) -> Vec<u8> {
    let mut crc = !0_u32;
    for byte in std::iter::once(&1).chain(body) {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
        }
    }
    [&[1][..], &(!crc).to_le_bytes(), body].concat()
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2000, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn garbage_is_an_error(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        prop_assert!(Snapshot::parse(&bytes).is_err());
    }

    /// Also a checksum that is right does not make garbage fail later than in `parse`.
    #[test]
    fn what_is_read_is_in_order(body in prop::collection::vec(any::<u8>(), 0..30)) {
        let bytes = sealed(&body);
        if let Ok(snapshot) = Snapshot::parse(&bytes) {
            let mut last = None;
            for range in snapshot.finished().take(300) {
                prop_assert!(range.start < range.end && range.end <= snapshot.exact_up_to());
                prop_assert!(last.is_none_or(|last| last < range.start));
                last = Some(range.end);
            }
        }
    }
}

#[test]
fn forms_that_nothing_writes_are_refused() {
    let parse = |body: &[u8]| Snapshot::parse(&sealed(body)).map(|read| read.exact_up_to());
    assert_eq!(parse(&[5, 0]), Ok(5));
    assert_eq!(parse(&[5, 4 << 2 | 1, 0]), Ok(9));
    // No length, no kind, a number of two forms, bits that are not there, beyond the last offset.
    for body in [&[5, 1, 0][..], &[5, 7, 0], &[0x85, 0, 0], &[5, 4, 0x80, 0, 0]] {
        assert_eq!(parse(body), Err(SnapshotError::Malformed), "{body:?}");
    }
    assert_eq!(parse(&[5, 3 << 2 | 2, 1, 2]), Err(SnapshotError::Truncated));
    let last = [[0xff; 9].as_slice(), &[1, 4, 0]].concat();
    assert_eq!(parse(&last), Err(SnapshotError::Malformed));
    let too_long = [[0xff; 9].as_slice(), &[2, 0]].concat();
    assert_eq!(parse(&too_long), Err(SnapshotError::Malformed));
}
