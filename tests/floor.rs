//! The floor (retention moved the log's start), giving up single offsets, touching held ones.

#![cfg(feature = "alloc")]

mod common;

use common::scenarios;
use inflight::{
    AdvanceError, PutError, RemoveError, RevokeError, SkipReason, Stage, TakeError, Window,
};

scenarios! {
    fn what_lies_below_the_floor_is_dropped_and_told<K>(variant) {
        let window = K::window::<u64, 16>(variant, false);
        let part = window.assign(10);
        part.put_batch_sized(&mut (10..20).map(|at| (at, at * 100)), |_| 7).unwrap();
        let shared = part.take_shared(2).unwrap();
        part.remove(13).unwrap();
        let mut told = Vec::new();
        let floor = part.advance_floor(15, |at, value| told.push((at, value))).unwrap();
        told.sort_unstable();
        assert_eq!(told, [(10, 1000), (11, 1100), (12, 1200), (14, 1400)]);
        assert_eq!((floor.next.get(), floor.dropped, floor.lent), (15, 4, 0));
        assert_eq!(part.watermark().unwrap().get(), 15);
        assert_eq!((window.count(), window.bytes()), (5, 35));
        let report = shared.commit().unwrap();
        assert_eq!((report.applied, report.gone, report.next.get()), (0, 2, 15));
        assert_eq!(part.put(14, 0), Err(PutError::BelowWatermark(0)));
        assert_eq!(part.remove(14), Err(RemoveError::Passed));
        let left: Vec<_> = part.take(9).unwrap().into_values().collect();
        assert_eq!(left, (15..20).map(|at| (at, at * 100)).collect::<Vec<_>>());
        assert_eq!(part.watermark().unwrap().get(), 20);
        assert!(window.is_empty());
    }

    fn a_lending_lease_lets_go_of_what_fell_below<K>(variant) {
        let window = K::window::<u64, 8>(variant, false);
        let part = window.assign(0);
        part.put_batch(&mut (0..6).map(|at| (at, at))).unwrap();
        let lease = part.take(4).unwrap();
        let floor = part.advance_floor(2, |_, _| panic!("nothing waits below")).unwrap();
        assert_eq!((floor.next.get(), floor.dropped, floor.lent), (2, 0, 2));
        // The messages may still be looked at.
        assert_eq!(lease.iter().map(|(_, value)| *value).sum::<u64>(), 6);
        assert_eq!(window.count(), 6, "counted until the lease ends");
        let report = lease.commit().unwrap();
        assert_eq!((report.applied, report.gone, report.next.get()), (2, 2, 4));
        assert_eq!(window.count(), 2);

        let lease = part.take(2).unwrap();
        part.advance_floor(5, |_, _| ()).unwrap();
        let report = lease.rollback().unwrap();
        assert_eq!((report.applied, report.gone, report.next.get()), (1, 1, 5));
        let mut lease = part.take(1).unwrap();
        part.advance_floor(100, |_, _| ()).unwrap();
        assert_eq!(lease.finish(5), Err(RemoveError::Passed));
        drop(lease);
        assert_eq!(part.watermark().unwrap().get(), 100);
        assert_eq!(part.take(1).err(), Some(TakeError::Empty));
        assert!(window.is_empty());
        for at in 100..150 {
            part.put(at, at).unwrap();
            assert_eq!(part.remove(at).unwrap().get(), at + 1);
        }
    }

    fn a_floor_below_the_watermark_changes_nothing<K>(variant) {
        let window = K::window::<u64, 8>(variant, false);
        let part = window.assign(50);
        part.put_batch(&mut (50..54).map(|at| (at, at))).unwrap();
        part.remove(50).unwrap();
        for low in [0, 49, 50, 51] {
            let floor = part.advance_floor(low, |_, _| panic!("nothing lies below")).unwrap();
            assert_eq!((floor.next.get(), floor.dropped), (51, 0));
        }
        assert_eq!(window.count(), 3);
        let far = part.advance_floor(u64::MAX, |_, _| ());
        assert_eq!(far, Err(AdvanceError::OutOfRange));
        window.assign(0);
        assert_eq!(part.advance_floor(60, |_, _| ()), Err(AdvanceError::Stale));
    }

    fn a_put_that_falls_leaves_the_hint_to_the_next<K>(variant) {
        let window = K::window::<u64, 8>(variant, false);
        let part = window.assign(0);
        assert_eq!(part.take(1).err(), Some(TakeError::Empty));
        // The floor overtakes a batch between its first message and its end.
        let mut calls = 0;
        let mut messages = std::iter::from_fn(|| {
            calls += 1;
            if calls == 2 {
                part.advance_floor(1, |_, _| panic!("it is not ready yet")).unwrap();
                assert_eq!(part.put(0, 100), Err(PutError::BelowWatermark(100)));
            }
            (calls == 1).then_some((0, 0))
        });
        let put = part.put_batch(&mut messages).unwrap();
        assert_eq!((put.admitted, put.passed, put.dispatch), (0, 1, false));
        assert!(part.put(1, 1).unwrap().dispatch, "nobody was told yet");
        // With something ready before it fell, the batch itself says so.
        assert_eq!(part.take(1).unwrap().commit().unwrap().next.get(), 2);
        assert_eq!(part.take(1).err(), Some(TakeError::Empty));
        let mut calls = 0;
        let mut messages = std::iter::from_fn(|| {
            calls += 1;
            if calls == 3 {
                part.advance_floor(3, |_, _| panic!("it is not ready yet")).unwrap();
            }
            (calls < 3).then_some((4 - calls, 0))
        });
        let put = part.put_batch(&mut messages).unwrap();
        assert_eq!((put.admitted, put.passed, put.dispatch), (1, 1, true));
        assert!(!part.put(4, 4).unwrap().dispatch);
        assert_eq!(part.take(9).unwrap().commit().unwrap().next.get(), 5);
        assert!(window.is_empty());
    }

    fn a_lent_message_that_fell_is_not_put_again<K>(variant) {
        let window = K::window::<u64, 4>(variant, false);
        let part = window.assign(0);
        part.put_batch(&mut (0..2).map(|at| (at, at))).unwrap();
        let lease = part.take(1).unwrap();
        let mut answer = None;
        part.advance_floor(2, |at, _| {
            assert_eq!(at, 1);
            // Below the floor, above the watermark: lent, and let go of.
            answer = Some(part.put(0, 100));
        })
        .unwrap();
        assert_eq!(answer, Some(Err(PutError::Passed(100))));
        assert_eq!(lease.commit().unwrap().gone, 1);
        assert!(window.is_empty());
    }

    fn a_floor_inside_a_gap_and_far_beyond<K>(variant) {
        for callers_seal in [false, true] {
            let window = K::window::<u64, 16>(variant, callers_seal);
            let part = window.assign(0);
            part.put(3, 3).unwrap();
            part.put(9, 9).unwrap();
            let floor = part.advance_floor(5, |at, _| assert_eq!(at, 3)).unwrap();
            // With the caller's seal the watermark stops at the gap that is left.
            assert_eq!(floor.next.get(), if callers_seal { 5 } else { 9 });
            let floor = part.advance_floor(10_000, |at, _| assert_eq!(at, 9)).unwrap();
            assert_eq!((floor.next.get(), floor.dropped), (10_000, 1));
            part.put(10_000, 1).unwrap();
            assert_eq!(part.take(5).unwrap().commit().unwrap().next.get(), 10_001);
        }
    }

    fn a_detached_and_a_revoked_message_below_the_floor<K>(variant) {
        let window = K::window::<u64, 8>(variant, false);
        let part = window.assign(0);
        part.put_batch(&mut (0..3).map(|at| (at, at))).unwrap();
        part.at(1).take(3).unwrap().detach();
        let revoked = part.at(2).revoke(1).unwrap();
        let mut told = Vec::new();
        let floor = part.advance_floor(3, |at, _| told.push(at)).unwrap();
        told.sort_unstable();
        assert_eq!((told, floor.lent), (vec![0, 2], 1));
        assert_eq!(part.remove(1), Err(RemoveError::Passed));
        revoked.detach();
        assert!(window.is_empty());
    }

    fn skipped_offsets_are_counted_apart<K>(variant) {
        let window = K::window::<u64, 8>(variant, false);
        let part = window.assign(0);
        part.put_batch(&mut (0..4).map(|at| (at, at))).unwrap();
        let lease = part.take(1).unwrap();
        assert_eq!(part.skip(0, SkipReason::Poison), Err(RemoveError::Held));
        drop(lease);
        assert_eq!(part.skip(0, SkipReason::Poison).unwrap().get(), 1);
        assert_eq!(part.skip(0, SkipReason::Poison), Err(RemoveError::Passed));
        part.at(0).take_shared(1).unwrap().detach();
        assert_eq!(part.skip(1, SkipReason::DeadLetter).unwrap().get(), 2);
        assert_eq!(part.skip(99, SkipReason::Other), Err(RemoveError::Unknown));
        part.remove(2).unwrap();
        assert_eq!(window.skipped(SkipReason::Poison), 1);
        assert_eq!(window.skipped(SkipReason::DeadLetter), 1);
        assert_eq!(window.skipped(SkipReason::Other), 0);
        assert_eq!(window.skipped(SkipReason::Expired), 0);
    }

    fn touching_renews_what_is_held<K>(variant) {
        let window = K::window::<u64, 8>(variant, false);
        let part = window.assign(0);
        part.put_batch(&mut (0..3).map(|at| (at, at))).unwrap();
        part.at(100).take(2).unwrap().detach();
        part.at(190).touch(1).unwrap();
        let stalled: Vec<_> = part.stalled(200, 50).unwrap().map(|held| held.offset).collect();
        assert_eq!(stalled, [0]);
        assert_eq!(part.at(1).touch(2), Err(RevokeError::Waiting));
        part.remove(0).unwrap();
        assert_eq!(part.at(1).touch(0), Err(RevokeError::Passed));
        assert_eq!(part.at(1).touch(9), Err(RevokeError::Unknown));
        let lease = part.at(300).take(1).unwrap();
        assert_eq!(part.at(1).touch(2), Err(RevokeError::Held));
        drop(lease);
        assert_eq!(part.head().unwrap().unwrap().stage, Stage::Held);
        window.assign(0);
        assert_eq!(part.at(1).touch(1), Err(RevokeError::Stale));
    }

    fn the_floor_ends_its_work_when_the_caller_panics<K>(variant) {
        let window = K::window::<u64, 8>(variant, false);
        let part = window.assign(0);
        part.put_batch(&mut (0..5).map(|at| (at, at))).unwrap();
        let caught = common::panics(|| {
            let _ = part.advance_floor(4, |_, _| common::message::injected());
        });
        assert!(caught);
        assert_eq!((part.min_offset().unwrap().get(), window.count()), (4, 1));
    }
}
