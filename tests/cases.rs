//! Failures that systems of this kind had in the field, as scenarios: each once, for every kind
//! of window. Those that are races too are in `threads.rs`.

mod common;

use std::fmt::Debug;

use common::kinds::NARROW;
use common::message::injected;
use common::{Ledger, panics, scenarios};
use inflight::{
    Assignment, Next, PutError, PutErrorKind, RemoveError, RevokeError, Stage, Stale, TakeError,
    Window, WindowRef,
};

/// Where logs begin: at zero, in the middle, around 2^32, and far out.
const STARTS: [u64; 5] = [0, 7, (1 << 32) - 3, 1 << 40, u64::MAX - 100_000];

fn at<E: Debug>(next: Result<Next, E>) -> u64 {
    next.unwrap().get()
}

fn watermark<R: WindowRef>(part: &Assignment<R>) -> u64 {
    at(part.watermark())
}

fn put_all<R: WindowRef<Window: Window<Value = u64>>>(
    part: &Assignment<R>,
    offsets: impl IntoIterator<Item = u64>,
) {
    for offset in offsets {
        part.put(offset, offset).unwrap();
    }
}

/// A lease ended; what it reports does not matter.
fn ended<T, E>(_: Result<T, E>) {}

fn taken<R: WindowRef<Window: Window<Value = u64>>>(part: &Assignment<R>, n: usize) -> Vec<u64> {
    let lease = part.take(n).unwrap();
    let offsets = lease.iter().map(|(offset, value)| {
        assert_eq!(offset, *value);
        offset
    });
    offsets.collect()
}

scenarios! {
    fn case_01_commit_of_some_gives_the_next<K>(variant) {
        for (start, put, take) in STARTS.into_iter().flat_map(|s| [(s, 3, 2), (s, 8, 7), (s, 5, 1)]) {
            let window = K::window::<u64, 8>(variant, false);
            let part = window.assign(start);
            put_all(&part, start..start + put);
            assert_eq!(at(part.take(take).unwrap().commit().map(|r| r.next)), start + take as u64);
            assert_eq!(window.count(), put as usize - take);
        }
    }

    fn case_02_a_later_offset_first<K>(variant) {
        for (start, gap) in STARTS.into_iter().flat_map(|s| [(s, 5), (s, 1), (s, 7)]) {
            let window = K::window::<u64, 8>(variant, false);
            let part = window.assign(start);
            put_all(&part, [start + gap, start]);
            assert_eq!(at(part.remove(start + gap)), start);
            assert_eq!(at(part.remove(start)), start + gap + 1);

            let window = K::window::<u64, 8>(variant, true);
            let part = window.assign(start);
            put_all(&part, [start + gap]);
            assert_eq!(at(part.remove(start + gap)), start);
            put_all(&part, [start]);
            assert_eq!(at(part.remove(start)), if gap == 1 { start + 2 } else { start + 1 });
            assert_eq!(at(part.advance_to(start + gap + 1)), start + gap + 1);
        }
    }

    fn case_03_a_put_below_the_watermark_is_refused<K>(variant) {
        let window = K::window::<u64, 8>(variant, false);
        let part = window.assign(3);
        put_all(&part, [5, 6]);
        part.remove(5).unwrap();
        assert_eq!(at(part.remove(6)), 7);
        for below in [0, 2, 3, 6] {
            assert_eq!(part.put(below, 99), Err(PutError::BelowWatermark(99)));
        }
        assert_eq!((watermark(&part), window.count()), (7, 0));
    }

    fn case_04_only_admitted_offsets_count<K>(variant) {
        for (start, step) in STARTS.into_iter().flat_map(|s| [(s, 2), (s, 1), (s, 4)]) {
            let window = K::window::<u64, 16>(variant, false);
            let part = window.assign(start);
            put_all(&part, (0..4).map(|n| start + n * step));
            assert_eq!(at(part.remove(start)), start + step);
            assert_eq!(at(part.remove(start + step)), start + 2 * step);
            assert_eq!(at(part.remove(start + 3 * step)), start + 2 * step);
            assert_eq!(at(part.remove(start + 2 * step)), start + 3 * step + 1);
        }
    }

    fn case_05_contiguous_after_a_hole_closes<K>(variant) {
        for start in STARTS {
            let window = K::window::<u64, 16>(variant, false);
            let part = window.assign(start);
            put_all(&part, start..start + 10);
            for done in [0, 1, 2, 3, 4, 8, 9] {
                part.remove(start + done).unwrap();
            }
            assert_eq!(at(part.remove(start + 5)), start + 6);
            assert_eq!(at(part.remove(start + 6)), start + 7);
            assert_eq!(at(part.remove(start + 7)), start + 10);
        }
    }

    fn case_06_nothing_finished_is_the_start<K>(variant) {
        let window = K::window::<u64, 8>(variant, false);
        let part = window.assign(7);
        put_all(&part, [7]);
        assert_eq!((watermark(&part), at(part.min_offset())), (7, 7));
        let held = part.take(1).unwrap();
        assert_eq!(at(part.min_offset()), 7);
        // Unassigned now: the old handle says nothing, so nobody publishes 8.
        let next = window.assign(7);
        assert_eq!(part.min_offset(), Err(Stale));
        assert_eq!(held.commit(), Err(Stale));
        assert_eq!(watermark(&next), 7);
    }

    fn case_07_a_later_finish_does_not_pass_a_pending_one<K>(variant) {
        for start in STARTS {
            let window = K::window::<u64, 8>(variant, false);
            let part = window.assign(start + 3);
            put_all(&part, [start + 3, start + 5]);
            assert_eq!(at(part.remove(start + 5)), start + 3);
        }
    }

    fn case_08_span_counts_what_a_restart_would_see<K>(variant) {
        let window = K::window::<u64, 16384>(variant, false);
        let part = window.assign(0);
        put_all(&part, 0..10_001);
        part.remove_batch(1..10_001).unwrap();
        assert_eq!((part.span(), window.count()), (Ok(10_001), 1));
        part.remove(0).unwrap();
        assert_eq!((part.span(), window.span()), (Ok(0), 0));
    }

    fn case_09_an_unknown_offset_changes_nothing<K>(variant) {
        for start in STARTS {
            let window = K::window::<u64, 8>(variant, false);
            let part = window.assign(start + 5);
            put_all(&part, [start + 5, start + 6]);
            for unknown in [7, 12, 13, 99, 99_999] {
                assert_eq!(part.remove(start + unknown), Err(RemoveError::Unknown));
            }
            assert_eq!(part.remove(u64::MAX), Err(RemoveError::Unknown));
            assert_eq!((watermark(&part), window.count()), (start + 5, 2));
        }
    }

    fn case_12_nothing_exists_below<K>(variant) {
        for (start, callers_seal) in STARTS.into_iter().flat_map(|s| [(s, false), (s, true)]) {
            let window = K::window::<u64, 16>(variant, callers_seal);
            let part = window.assign(start);
            assert_eq!(at(part.advance_to(start + 5)), start + 5);
            put_all(&part, [start + 5]);
            let held = part.take(1).unwrap();
            assert_eq!(at(part.advance_to(start + 8)), start + 5);
            assert_eq!(held.commit().unwrap().next.get(), start + 8);
            // "Nothing new" while something is held.
            put_all(&part, [start + 8]);
            let held = part.take(1).unwrap();
            assert_eq!(at(part.advance_to(start + 9)), start + 8);
            drop(held);
            // Never back.
            assert_eq!(at(part.advance_to(start)), start + 8);
            assert_eq!(part.end(), Ok(start + 9));
        }
    }

    fn case_13_nothing_done_is_no_error<K>(variant) {
        for start in STARTS {
            let window = K::window::<u64, 8>(variant, false);
            let part = window.assign(start);
            assert_eq!(part.remove_batch([]).unwrap().next.get(), start);
            put_all(&part, [start]);
            let report = part.take(1).unwrap().commit_only([]).unwrap();
            assert_eq!((report.next.get(), report.applied, report.gone), (start, 0, 0));
            let report = part.take_shared(1).unwrap().commit_only([]).unwrap();
            assert_eq!((report.next.get(), report.applied, report.gone), (start, 0, 0));
            assert_eq!(window.count(), 1);
        }
    }

    fn case_14_give_back_one_and_commit_the_rest<K>(variant) {
        for (start, shared) in STARTS.into_iter().flat_map(|s| [(s, false), (s, true)]) {
            for back in 0..5 {
                let window = K::window::<u64, 8>(variant, false);
                let part = window.assign(start);
                put_all(&part, start..start + 5);
                let done = (start..start + 5).filter(|done| *done != start + back);
                let report = if shared {
                    part.take_shared(5).unwrap().commit_only(done).unwrap()
                } else {
                    part.take(5).unwrap().commit_only(done).unwrap()
                };
                assert_eq!((report.next.get(), report.applied, report.gone), (start + back, 4, 0));
                assert_eq!(window.count(), 1);
                assert_eq!(taken(&part, 9), [start + back]);
            }
        }
    }

    fn case_15_given_back_comes_first<K>(variant) {
        let window = K::window::<u64, 8>(variant, false);
        let part = window.assign(0);
        put_all(&part, 0..2);
        part.take(1).unwrap().rollback().unwrap();
        let first = part.take(1).unwrap();
        let second = part.take(1).unwrap();
        assert_eq!(first.iter().next(), Some((0, &0)));
        assert_eq!(second.commit().unwrap().next.get(), 0);
        drop(first);
        assert_eq!(taken(&part, 2), [0]);
    }

    fn case_16_rollbacks_change_no_counter<K>(variant) {
        let window = K::window::<u64, 8>(variant, false);
        let part = window.assign(1);
        part.put_sized(1, 77, 1).unwrap();
        for round in 0..2_000 {
            if round % 2 == 0 {
                part.take(1).unwrap().rollback().unwrap();
            } else {
                part.take_shared(1).unwrap().rollback().unwrap();
            }
            assert_eq!((window.count(), window.bytes()), (1, 77));
        }
        let lease = part.take(1).unwrap();
        assert_eq!(lease.messages().next().unwrap().deliveries, 2_001);
    }

    fn case_17_a_held_offset_is_a_duplicate<K>(variant) {
        for shared in [false, true] {
            let window = K::window::<u64, 8>(variant, false);
            let part = window.assign(1);
            put_all(&part, [1]);
            let lease = (!shared).then(|| part.take(1).unwrap());
            let clone = shared.then(|| part.take_shared(1).unwrap());
            assert_eq!(part.put(1, 9), Err(PutError::Duplicate(9)));
            drop((lease, clone));
            assert_eq!(part.put(1, 9), Err(PutError::Duplicate(9)));
            assert_eq!(window.count(), 1);
            assert_eq!(taken(&part, 5), [1]);
            part.take(5).unwrap().commit().unwrap();
            assert_eq!(part.take(5).err(), Some(TakeError::Empty));
        }
    }

    fn case_18_an_old_lease_leaves_the_new_generation_alone<K>(variant) {
        for how in 0..8 {
            let ledger = Ledger::new();
            let window = K::window::<_, 8>(variant, false);
            let old = window.assign(1);
            old.put_sized(1, 10, ledger.message(1)).unwrap();
            let lending = (how < 4).then(|| old.take(1).unwrap());
            let shared = (how >= 4).then(|| old.take_shared(1).unwrap());
            let new = window.assign(1);
            // The slot of a ring is free when the lending lease has ended.
            let put = new.put_sized(1, 10, ledger.message(2));
            let stale = match (how % 4, lending, shared) {
                (0, Some(lease), _) => lease.commit() == Err(Stale),
                (1, Some(lease), _) => lease.rollback() == Err(Stale),
                (2, Some(lease), _) => lease.commit_only([1]) == Err(Stale),
                (0, _, Some(lease)) => lease.commit() == Err(Stale),
                (1, _, Some(lease)) => lease.rollback() == Err(Stale),
                (2, _, Some(lease)) => lease.commit_only([1]) == Err(Stale),
                (_, lending, shared) => {
                    drop((lending, shared));
                    true
                }
            };
            assert!(stale, "{how}");
            if let Err(PutError::Full(message)) = put {
                assert!(K::capacity(8).is_some() && how < 4);
                new.put_sized(1, 10, message).unwrap();
            }
            assert_eq!((window.count(), window.bytes()), (1, 10));
            let lease = new.take(1).unwrap();
            assert_eq!(lease.iter().next().unwrap().1.id, 2);
            assert_eq!(lease.commit().unwrap().next.get(), 2);
            assert_eq!((window.count(), window.bytes(), ledger.total()), (0, 0, 0));
        }
    }

    fn case_19_the_dispatch_hint_is_never_lost<K>(variant) {
        let window = K::window::<u64, 8>(variant, false);
        let part = window.assign(1);
        assert_eq!(part.take(0).err(), Some(TakeError::Empty));
        assert!(part.put(1, 1).unwrap().dispatch);
        assert_eq!(part.take(0).err(), Some(TakeError::Empty));
        assert!(!part.put(2, 2).unwrap().dispatch);
        let part = window.assign(5);
        assert!(part.put(5, 5).unwrap().dispatch);
        part.take(1).unwrap().commit().unwrap();
        assert!(!part.put(6, 6).unwrap().dispatch, "no take has found nothing yet");
        part.take(1).unwrap().commit().unwrap();
        assert_eq!(part.take(1).err(), Some(TakeError::Empty));
        let batch = part.put_batch(&mut [(7, 7), (8, 8)].into_iter()).unwrap();
        assert!(batch.dispatch);
        // A rollback ends an idle period too.
        let lease = part.take(2).unwrap();
        assert_eq!(part.take(1).err(), Some(TakeError::Empty));
        lease.rollback().unwrap();
        assert!(!part.put(9, 9).unwrap().dispatch);
    }

    fn case_20_a_panicking_handler_gives_all_back<K>(variant) {
        for shared in [false, true] {
            let window = K::window::<u64, 8>(variant, false);
            let part = window.assign(0);
            put_all(&part, 0..5);
            assert!(panics(|| {
                let _lending = (!shared).then(|| part.take(3).unwrap());
                let _shared = shared.then(|| part.take_shared(3).unwrap());
                injected();
            }));
            assert_eq!(taken(&part, 9), [0, 1, 2, 3, 4]);
            assert_eq!((window.count(), watermark(&part)), (5, 0));
        }
    }

    fn case_21_bytes_are_those_stored<K>(variant) {
        let window = K::window::<u64, 8>(variant, false);
        let part = window.assign(3);
        part.put_sized(3, 100, 3).unwrap();
        part.put_sized(4, 1, 4).unwrap();
        assert_eq!(part.put_sized(3, 40, 3).map_err(|e| e.kind()), Err(PutErrorKind::Duplicate));
        assert_eq!(window.bytes(), 101);
        part.remove(3).unwrap();
        assert_eq!(window.bytes(), 1);
        let usage = window.usage();
        assert_eq!((usage.count, usage.bytes), (1, 1));
    }

    fn case_22_one_offset_is_finished_once<K>(variant) {
        let window = K::window::<u64, 8>(variant, false);
        let part = window.assign(0);
        put_all(&part, 0..2);
        let lease = part.take_shared(2).unwrap();
        part.remove(1).unwrap();
        assert_eq!(part.remove(1), Err(RemoveError::Passed));
        let report = lease.commit().unwrap();
        assert_eq!((report.next.get(), report.applied, report.gone), (2, 1, 1));
        assert_eq!(part.remove_batch([0, 1]).unwrap().passed, 2);
        assert_eq!(window.count(), 0);
    }

    fn case_23_a_drained_window_counts_nothing<K>(variant) {
        let ledger = Ledger::new();
        let mut window = K::window::<_, 8>(variant, false);
        assert_eq!((window.count(), window.bytes(), window.span()), (0, 0, 0));
        let part = window.assign(10);
        for offset in 10..16 {
            part.put_sized(offset, 5, ledger.message(offset)).unwrap();
        }
        part.take_shared(2).unwrap().detach();
        std::mem::forget(part.take(1).unwrap());
        part.remove(14).unwrap();
        assert_eq!(window.drain().map(|one| one.0).collect::<Vec<_>>(), [10, 11, 12, 13, 15]);
        assert_eq!((window.count(), window.bytes(), window.span()), (0, 0, 0));
        assert!(window.is_empty());
        assert_eq!(window.drain().count(), 0);
        assert_eq!(ledger.total(), 0);
        // And it goes on working.
        let part = window.assign(0);
        part.put(0, ledger.message(0)).unwrap();
        assert_eq!(part.take(1).unwrap().commit().unwrap().next.get(), 1);
    }

    fn case_24_only_held_messages_stall<K>(variant) {
        let window = K::window::<u64, 8>(variant, false);
        let part = window.assign(1);
        put_all(&part, [1, 2]);
        let mut lease = part.at(0).take_shared(2).unwrap();
        lease.finish(1).unwrap();
        let stalled = |now| -> Vec<u64> {
            part.stalled(now, 100).unwrap().map(|stalled| stalled.offset).collect()
        };
        assert_eq!((stalled(100), stalled(101)), (vec![], vec![2]));
        lease.touch(50);
        assert_eq!((stalled(150), stalled(151)), (vec![], vec![2]));
        // A clock that goes back.
        assert_eq!(stalled(10), []);
        lease.rollback().unwrap();
        assert_eq!(stalled(1_000_000), []);
        // Ticks wrap at the width of a word.
        let top = if NARROW { u64::from(u32::MAX) } else { u64::MAX };
        for since in [top - 3, top - 1, top] {
            let lease = part.at(since).take(1).unwrap();
            assert_eq!(stalled(since.wrapping_add(100)), []);
            assert_eq!(stalled(since.wrapping_add(102)), [2]);
            assert_eq!(stalled(since.wrapping_sub(1)), []);
            let listed = part.stalled(since.wrapping_add(200), 0).unwrap().next().unwrap();
            assert!(!listed.revocable);
            drop(lease);
        }
        // Taken without a tick: never.
        let _lease = part.take(1).unwrap();
        assert_eq!(stalled(top / 3), []);
    }

    fn case_25_revoke_then_detach_roll_back_or_commit<K>(variant) {
        let window = K::window::<u64, 8>(variant, false);
        let part = window.assign(5);
        put_all(&part, [5]);
        let hung = part.at(0).take_shared(1).unwrap();
        part.at(10).revoke(5).unwrap().detach();
        let listed: Vec<_> = part.stalled(100, 50).unwrap().collect();
        assert_eq!((listed.len(), listed[0].offset, listed[0].since), (1, 5, 10));
        assert!(listed[0].revocable);
        part.at(20).revoke(5).unwrap().rollback().unwrap();
        assert_eq!(part.at(20).revoke(5).err(), Some(RevokeError::Waiting));
        let worker = part.at(30).take_shared(1).unwrap();
        // Revokes are no deliveries.
        assert_eq!(worker.messages()[0].deliveries(), 2);
        let report = hung.rollback().unwrap();
        assert_eq!((report.applied, report.gone), (0, 1));
        let revoked = part.at(40).revoke(5).unwrap();
        assert_eq!(revoked.commit().unwrap().next.get(), 6);
        assert_eq!(worker.commit().unwrap().gone, 1);
        assert_eq!(part.at(50).revoke(5).err(), Some(RevokeError::Passed));
        assert_eq!(part.at(50).revoke(99).err(), Some(RevokeError::Unknown));
    }

    fn case_26_a_message_being_revoked_cannot_be_finished<K>(variant) {
        let window = K::window::<u64, 8>(variant, false);
        let part = window.assign(5);
        put_all(&part, [5]);
        let mut handler = part.take_shared(1).unwrap();
        let revoked = part.at(1).revoke(5).unwrap();
        assert_eq!(part.remove(5), Err(RemoveError::Held));
        assert_eq!(part.at(1).revoke(5).err(), Some(RevokeError::Held));
        assert_eq!(handler.finish(5), Err(RemoveError::Passed));
        assert_eq!(window.count(), 1);
        // The completion that was answered `Held` is not recorded.
        drop(revoked);
        assert_eq!(taken(&part, 1), [5]);
        // The other way round: finished first.
        let handler = part.take_shared(1).unwrap();
        assert_eq!(handler.commit().unwrap().applied, 1);
        assert_eq!(part.at(1).revoke(5).err(), Some(RevokeError::Passed));
    }

    fn case_27_a_handler_that_never_returns_does_not_stop_the_window<K>(variant) {
        let window = K::window::<u64, 8>(variant, false);
        let part = window.assign(0);
        put_all(&part, 0..4);
        let hung = part.at(0).take_shared(2).unwrap();
        for offset in [0, 1] {
            part.at(9).revoke(offset).unwrap().commit().unwrap();
        }
        for offset in 4..84 {
            put_all(&part, [offset]);
            assert_eq!(part.take(1).unwrap().commit().unwrap().next.get(), offset - 1);
        }
        assert_eq!(hung.commit().unwrap().gone, 2);
    }

    fn case_41_a_hole_wider_than_the_window<K>(variant) {
        for (start, first) in STARTS.into_iter().flat_map(|s| [(s, 5_000), (s, 256), (s, 70_000)]) {
            let first = start + first;
            let window = K::window::<u64, 256>(variant, false);
            let part = window.assign(start);
            put_all(&part, [first]);
            assert_eq!(at(part.remove(first)), first + 1);
            assert_eq!(part.put(start, 9), Err(PutError::BelowWatermark(9)));
        }
        let window = K::window::<u64, 256>(variant, false);
        let part = window.assign(0);
        put_all(&part, [3]);
        let held = part.take(1).unwrap();
        if K::capacity(256).is_some() {
            assert_eq!(part.put(5_000, 5_000), Err(PutError::Full(5_000)));
            held.commit().unwrap();
            put_all(&part, [5_000]);
        } else {
            put_all(&part, [5_000]);
            held.commit().unwrap();
        }
        assert_eq!(at(part.remove(5_000)), 5_001);
    }

    fn case_42_with_the_callers_seal_a_gap_stays_open<K>(variant) {
        for start in STARTS {
            let window = K::window::<u64, 8>(variant, true);
            let part = window.assign(start);
            put_all(&part, [start + 1]);
            assert_eq!(at(part.remove(start + 1)), start);
            assert_eq!(part.take(4).err(), Some(TakeError::Empty));
            let head = part.head().unwrap().unwrap();
            assert_eq!((head.offset, head.stage), (start, Stage::Missing));
            put_all(&part, [start]);
            assert_eq!(taken(&part, 4), [start]);
            assert_eq!(at(part.remove(start)), start + 2);
            assert_eq!(at(part.advance_to(start + 2)), start + 2);
            if K::capacity(8).is_some() {
                assert_eq!(part.put(start + 10, 9), Err(PutError::Full(9)), "a put never jumps");
            }
        }
    }

    fn case_43_far_apart_and_in_the_wrong_order<K>(variant) {
        let window = K::window::<u64, 1024>(variant, false);
        let part = window.assign(0);
        put_all(&part, [1000, 5]);
        assert_eq!(taken(&part, 9), [5, 1000]);
    }

    fn case_44_past_every_wrap_of_a_word<K>(variant) {
        let window = K::window::<u64, 8>(variant, false);
        let part = window.assign(0);
        // A quarter of what may be moved at once, again and again: past 2^32 many times.
        let jump = (K::far(8) / 4).min(1 << 27);
        let mut next = 0;
        for round in 0..200 {
            put_all(&part, next..next + 8);
            if let Some(capacity) = K::capacity(8) {
                assert_eq!(part.put(next + capacity, 9), Err(PutError::Full(9)));
            }
            assert_eq!(part.span(), Ok(8));
            assert_eq!(taken(&part, 8), (next..next + 8).collect::<Vec<_>>());
            part.remove_batch(next + 1..next + 8).unwrap();
            assert_eq!((watermark(&part), window.count()), (next, 1));
            assert_eq!(at(part.advance_to(next + jump)), next, "round {round}");
            assert_eq!(part.span(), Ok(jump));
            assert_eq!(at(part.remove(next)), next + jump);
            assert_eq!((part.span(), part.end()), (Ok(0), Ok(next + jump)));
            for old in [next, next + 7, next + jump - 1] {
                assert_eq!(part.put(old, 9), Err(PutError::BelowWatermark(9)));
                assert_eq!(part.remove(old), Err(RemoveError::Passed));
            }
            next += jump;
        }
        // A put of an offset a whole word range on never lands in the old slot.
        put_all(&part, [next]);
        let again = part.put(next + (1 << 32), 9);
        if K::capacity(8).is_some() {
            let far = K::far(8) <= 1 << 32;
            assert_eq!(again, Err(if far { PutError::OutOfRange(9) } else { PutError::Full(9) }));
        }
        assert_eq!(taken(&part, 1), [next]);
    }

    fn case_45_a_lease_outlives_ten_assignments<K>(variant) {
        let ledger = Ledger::new();
        let window = K::window::<_, 8>(variant, false);
        let old = window.assign(0);
        old.put_sized(0, 3, ledger.message(999)).unwrap();
        let lease = old.take(1).unwrap();
        for round in 0..10 {
            let part = window.assign(0);
            let mut blocked = false;
            for offset in 0..8 {
                match part.put(offset, ledger.message(offset)) {
                    Ok(_) => {}
                    Err(error) => {
                        assert_eq!((error.kind(), offset), (PutErrorKind::Full, 0));
                        assert_eq!(part.remove(0), Err(RemoveError::Unknown));
                        assert_eq!(part.at(0).revoke(0).err(), Some(RevokeError::Unknown));
                        blocked = true;
                    }
                }
            }
            assert_eq!(blocked, K::capacity(8).is_some());
            let head = part.head().unwrap().unwrap();
            assert_eq!(head.stage, if blocked { Stage::Missing } else { Stage::Waiting });
            let ids: Vec<u64> = part.take(9).unwrap().iter().map(|one| one.1.id).collect();
            assert_eq!(ids, (u64::from(blocked)..8).collect::<Vec<_>>());
            assert_eq!(lease.iter().next().unwrap().1.id, 999, "round {round}");
        }
        let part = window.assign(0);
        assert_eq!((window.count(), window.bytes()), (1, 3));
        part.put(1, ledger.message(1)).unwrap();
        part.take(1).unwrap().commit().unwrap();
        assert_eq!(lease.commit(), Err(Stale));
        assert_eq!((window.count(), window.bytes(), ledger.total()), (0, 0, 0));
        assert_eq!(watermark(&part), 2, "the release of the slot slides");
    }

    fn case_46_forgotten_leases<K>(variant) {
        let ledger = Ledger::new();
        let window = K::window::<_, 8>(variant, false);
        let part = window.assign(0);
        for offset in 0..4 {
            part.put(offset, ledger.message(offset)).unwrap();
        }
        let shared = part.take_shared(2).unwrap();
        // Forgotten, but for the clones: those would be lost for good.
        shared.detach();
        std::mem::forget(part.take(1).unwrap());
        part.remove(0).unwrap();
        part.at(0).revoke(1).unwrap().commit().unwrap();
        let head = part.head().unwrap().unwrap();
        assert_eq!((head.offset, head.stage), (2, Stage::Lent));
        assert_eq!(part.remove(2), Err(RemoveError::Held));
        assert_eq!(part.at(0).revoke(2).err(), Some(RevokeError::Held));
        assert_eq!(ledger.total(), 2);
        drop(window);
        assert_eq!(ledger.total(), 0);

        let window = K::window::<u64, 8>(variant, false);
        let part = window.assign(0);
        put_all(&part, 0..2);
        std::mem::forget(part.take_shared_in::<4>(2).unwrap());
        part.remove(0).unwrap();
        assert_eq!(part.at(0).revoke(1).unwrap().commit().unwrap().next.get(), 2);
    }

    fn case_47_panics_in_clone_and_drop<K>(variant) {
        for broken in 0..4 {
            for how in 0..6 {
                let ledger = Ledger::new();
                let window = K::window::<_, 8>(variant, false);
                let part = window.assign(0);
                for offset in 0..4 {
                    part.put_sized(offset, 10, ledger.message(offset)).unwrap();
                }
                ledger.fail_clone(Some(broken));
                assert!(panics(|| {
let _ = part.take_shared(4);
}));
                assert_eq!((window.count(), ledger.total(), watermark(&part)), (4, 4, 0));
                let lending = (how % 2 == 0).then(|| part.take(4).unwrap());
                let shared = (how % 2 == 1).then(|| part.take_shared(4).unwrap());
                ledger.fail_drop(Some(broken));
                assert!(panics(|| {
                    match (how / 2, lending, shared) {
                        (0, Some(lease), _) => ended(lease.commit()),
                        (1, Some(lease), _) => ended(lease.commit_only(0..4)),
                        (_, Some(lease), _) => ended(lease.commit_where(|_, _| true)),
                        (0, _, Some(lease)) => ended(lease.commit()),
                        (1, _, Some(lease)) => ended(lease.commit_only(0..4)),
                        (_, _, Some(lease)) => ended(lease.commit_where(|_, _| true)),
                        _ => unreachable!(),
                    }
                }));
                assert_eq!((window.count(), window.bytes(), ledger.total()), (0, 0, 0));
                assert_eq!(watermark(&part), 4, "how {how}, broken {broken}");
            }
        }
    }

    fn case_48_a_batch_is_taken_in_order<K>(variant) {
        let window = K::window::<u64, 128>(variant, false);
        let part = window.assign(0);
        for size in [1, 2, 3, 63, 64, 65, 100, 128] {
            let next = watermark(&part);
            let batch = part.put_batch(&mut (next..next + size).map(|n| (n, n))).unwrap();
            assert_eq!(batch.admitted, size as usize);
            assert_eq!(taken(&part, 128), (next..next + size).collect::<Vec<_>>());
            part.take(128).unwrap().commit().unwrap();
        }
    }

    fn case_49_a_dry_take_finds_everything<K>(variant) {
        let window = K::window::<u64, 8>(variant, false);
        let part = window.assign(0);
        put_all(&part, 0..8);
        let leases: Vec<_> = (0..8).map(|_| part.take(1).unwrap()).collect();
        assert_eq!(part.take(1).err(), Some(TakeError::Empty));
        for (index, lease) in leases.into_iter().enumerate() {
            if index % 3 == 1 {
                drop(lease);
            } else {
                lease.detach();
            }
        }
        assert_eq!(taken(&part, 8), [1, 4, 7]);
    }

    fn case_50_a_small_ring_and_a_far_put<K>(variant) {
        let window = K::window::<u64, 2>(variant, false);
        let part = window.assign(0);
        put_all(&part, [9]);
        let late = part.put(0, 77);
        if K::capacity(2).is_some() {
            assert_eq!(late, Err(PutError::BelowWatermark(77)), "refused, and it comes back");
        } else {
            part.remove(0).unwrap();
        }
        assert_eq!(taken(&part, 2), [9]);

        let window = K::window::<u64, 2>(variant, false);
        let part = window.assign(0);
        put_all(&part, [0]);
        if K::capacity(2).is_some() {
            assert_eq!(part.put(9, 77), Err(PutError::Full(77)));
        }
        assert_eq!(taken(&part, 2), [0]);
    }

    fn case_51_every_call_of_an_old_handle_is_stale<K>(variant) {
        let window = K::window::<u64, 8>(variant, false);
        let old = window.assign(0);
        put_all(&old, 0..3);
        let part = window.assign(0);
        assert_eq!(window.count(), 0);
        put_all(&part, 0..2);
        assert_eq!(old.put(2, 9), Err(PutError::Stale(9)));
        let error = old.put_batch(&mut [(5, 5)].into_iter()).unwrap_err();
        assert_eq!((error.error, error.offset, error.value), (PutErrorKind::Stale, 5, 5));
        assert_eq!(old.take(1).err(), Some(TakeError::Stale));
        assert_eq!(old.take_shared(1).err(), Some(TakeError::Stale));
        assert_eq!(old.remove(0), Err(RemoveError::Stale));
        assert_eq!(old.remove_batch([0, 1]), Err(Stale));
        assert_eq!(old.at(0).revoke(0).err(), Some(RevokeError::Stale));
        assert!(old.advance_to(9).is_err());
        assert_eq!((old.watermark(), old.min_offset()), (Err(Stale), Err(Stale)));
        assert_eq!((old.end(), old.span(), old.backlog(9)), (Err(Stale), Err(Stale), Err(Stale)));
        assert_eq!(old.close(), Err(Stale));
        assert_eq!(old.head(), Err(Stale));
        assert!(old.pending().is_err() && old.stalled(0, 0).is_err());
        assert_eq!((window.count(), watermark(&part), part.end()), (2, 0, Ok(2)));
        part.put(2, 2).unwrap();
    }
}
