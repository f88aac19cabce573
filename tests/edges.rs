//! Edges of the interface: empty input, ends of ranges, closed windows, limits of counters.

mod common;

use common::kinds::{MOST_REVOKES, NARROW};
use common::message::injected;
use common::{Ledger, panics, scenarios};
use inflight::{
    AdvanceError, PutError, PutErrorKind, RemoveError, RevokeError, Stage, TakeError, Window,
};

scenarios! {
    fn nothing_asked_for_is_nothing_done<K>(variant) {
        let window = K::window::<u8, 8>(variant, false);
        let part = window.assign(9);
        let batch = part.put_batch(&mut std::iter::empty()).unwrap();
        assert_eq!((batch.admitted, batch.duplicates, batch.passed, batch.dispatch), (0, 0, 0, false));
        assert_eq!(part.take(0).err(), Some(TakeError::Empty));
        assert_eq!(part.take_shared(0).err(), Some(TakeError::Empty));
        assert_eq!(part.take_shared_in::<4>(0).err(), Some(TakeError::Empty));
        part.put(9, 1).unwrap();
        assert_eq!(part.take(0).err(), Some(TakeError::Empty));
        assert_eq!(part.take_shared_in::<0>(5).err(), Some(TakeError::Empty));
        let removed = part.remove_batch([]).unwrap();
        let counts = (removed.applied, removed.passed, removed.held, removed.unknown);
        assert_eq!((removed.next.get(), counts), (9, (0, 0, 0, 0)));
        assert_eq!(part.pending().unwrap().count(), 1);
    }

    fn the_last_offsets_of_all<K>(variant) {
        let window = K::window::<u8, 8>(variant, false);
        let part = window.assign(u64::MAX - 2);
        assert_eq!(part.put(u64::MAX, 7), Err(PutError::OutOfRange(7)));
        part.put(u64::MAX - 2, 1).unwrap();
        part.put(u64::MAX - 1, 2).unwrap();
        assert_eq!(part.put(u64::MAX, 7), Err(PutError::OutOfRange(7)));
        assert_eq!(part.remove(u64::MAX), Err(RemoveError::Unknown));
        assert_eq!((part.end(), part.span()), (Ok(u64::MAX), Ok(2)));
        let report = part.take(9).unwrap().commit().unwrap();
        assert_eq!(report.next.get(), u64::MAX);
        assert_eq!(report.next.last_finished(), Some(u64::MAX - 1));
        assert_eq!(part.put(u64::MAX, 7), Err(PutError::OutOfRange(7)));
        assert_eq!(part.advance_to(u64::MAX).unwrap().get(), u64::MAX);
        let part = window.assign(u64::MAX);
        assert_eq!(part.put(u64::MAX, 7), Err(PutError::OutOfRange(7)));
        assert_eq!(part.watermark().unwrap().get(), u64::MAX);
        let part = window.assign(0);
        assert_eq!(part.watermark().unwrap().last_finished(), None);
        for far in [u64::MAX, u64::MAX - 1, 1 << 63, (1 << 63) + 1] {
            assert_eq!(part.put(far, 7), Err(PutError::OutOfRange(7)));
            assert_eq!(part.remove(far), Err(RemoveError::Unknown));
            assert_eq!(part.advance_to(far), Err(AdvanceError::OutOfRange));
        }
        assert_eq!((part.end(), window.count()), (Ok(0), 0));
    }

    fn as_far_as_it_goes<K>(variant) {
        let far = K::far(8);
        let window = K::window::<u8, 8>(variant, false);
        let part = window.assign(5);
        assert_eq!(part.advance_to(5 + far), Err(AdvanceError::OutOfRange));
        assert_eq!(part.put(5 + far, 7), Err(PutError::OutOfRange(7)));
        assert_eq!(part.advance_to(5 + far - 1).unwrap().get(), 5 + far - 1);
        part.put(5 + far + far - 2, 7).unwrap();
        assert_eq!(part.remove(5 + far + far - 2).unwrap().get(), 5 + far + far - 1);
    }

    fn below_the_base<K>(variant) {
        let window = K::window::<u8, 8>(variant, false);
        let part = window.assign(100);
        for below in [0, 50, 99] {
            assert_eq!(part.put(below, 7), Err(PutError::BelowWatermark(7)));
            assert_eq!(part.remove(below), Err(RemoveError::Passed));
            assert_eq!(part.at(0).revoke(below).err(), Some(RevokeError::Passed));
            assert_eq!(part.advance_to(below).unwrap().get(), 100);
        }
        assert_eq!((part.end(), part.backlog(90), part.backlog(130)), (Ok(100), Ok(0), Ok(30)));
    }

    fn sizes_too_large_to_count<K>(variant) {
        let most = if NARROW { 1 << 24 } else { u32::MAX as usize };
        let window = K::window::<u8, 8>(variant, false);
        let part = window.assign(0);
        assert_eq!(part.put_sized(0, most + 1, 7), Err(PutError::OutOfRange(7)));
        assert_eq!(part.put_sized(0, usize::MAX, 7), Err(PutError::OutOfRange(7)));
        for offset in 0..8 {
            part.put_sized(offset, most, 7).unwrap();
        }
        assert_eq!(window.bytes(), 8 * most as u64);
        part.remove_batch(0..8).unwrap();
        assert_eq!(window.bytes(), 0);
    }

    fn bytes_up_to_what_the_counters_can_tell_apart<K>(variant) {
        // Full when they are, and room again when something is finished: never a wrong sum.
        let size = if NARROW { 1 << 24 } else { 1 << 32 } - 1;
        let window = K::window::<u8, 256>(variant, false);
        let part = window.assign(0);
        let mut offset = 0;
        for _ in 0..500 {
            match part.put_sized(offset, size, 0) {
                Ok(_) => offset += 1,
                Err(error) => {
                    assert_eq!(error.kind(), PutErrorKind::Full);
                    let bytes = window.bytes();
                    assert_eq!(bytes, window.count() as u64 * size as u64);
                    part.take(100).unwrap().commit().unwrap();
                    assert!(window.bytes() < bytes);
                }
            }
        }
        assert_eq!(window.bytes(), window.count() as u64 * size as u64);
        while let Ok(lease) = part.take(7) {
            lease.commit().unwrap();
        }
        assert_eq!((window.count(), window.bytes(), window.span()), (0, 0, 0));
    }

    fn a_closed_window_drains<K>(variant) {
        for (shared, gap) in [(false, false), (true, false), (false, true)] {
            let window = K::window::<u8, 8>(variant, gap);
            let part = window.assign(0);
            let first = u64::from(gap);
            part.put_batch(&mut (first..first + 3).map(|n| (n, 0))).unwrap();
            assert_eq!((part.close(), part.close()), (Ok(true), Ok(false)));
            assert_eq!(part.put(first + 3, 7), Err(PutError::Closed(7)));
            assert_eq!(part.put(first, 7), Err(PutError::Closed(7)));
            let error = part.put_batch(&mut [(first + 3, 8)].into_iter()).unwrap_err();
            assert_eq!((error.error, error.value), (PutErrorKind::Closed, 8));
            let lease = part.take(2).unwrap();
            part.take(1).unwrap().commit().unwrap();
            assert_eq!(part.take(1).err(), Some(TakeError::Empty), "two are lent");
            lease.rollback().unwrap();
            if shared {
                assert_eq!(part.take_shared(5).unwrap().commit().unwrap().applied, 2);
            } else {
                assert_eq!(part.remove_batch([first, first + 1]).unwrap().applied, 2);
            }
            assert_eq!(part.take(1).err(), Some(TakeError::Closed), "gap {gap}");
            assert_eq!(part.take_shared(1).err(), Some(TakeError::Closed));
            assert_eq!(part.take(0).err(), Some(TakeError::Empty));
            let part = window.assign(0);
            part.put(0, 7).unwrap();
            assert!(part.take(1).is_ok());
        }
    }

    fn revoked_until_it_is_exhausted<K>(variant) {
        let window = K::window::<u8, 8>(variant, false);
        let part = window.assign(0);
        part.put_batch(&mut (0..2).map(|n| (n, 0))).unwrap();
        let first = part.take_shared(2).unwrap();
        for _ in 0..MOST_REVOKES {
            part.at(0).revoke(0).unwrap().detach();
        }
        assert_eq!(part.at(0).revoke(0).err(), Some(RevokeError::Exhausted));
        let look = part.pending().unwrap().next().unwrap();
        assert_eq!((look.stage, look.deliveries), (Stage::Held, 1));
        // The first lease is not fooled, another message is not affected, and it can be removed.
        let report = first.commit().unwrap();
        assert_eq!((report.applied, report.gone), (1, 1));
        assert_eq!(part.remove(0).unwrap().get(), 2);
        part.put(8, 0).unwrap();
        part.take(1).unwrap().detach();
        part.at(0).revoke(8).unwrap().commit().unwrap();
    }

    fn deliveries_are_counted<K>(variant) {
        let window = K::window::<u8, 8>(variant, false);
        let part = window.assign(0);
        part.put(0, 0).unwrap();
        for times in 1..50 {
            if times % 2 == 0 {
                let lease = part.take(1).unwrap();
                assert_eq!(lease.messages().next().unwrap().deliveries, times);
            } else {
                let lease = part.take_shared(1).unwrap();
                assert_eq!(lease.messages()[0].deliveries(), times);
            }
        }
        assert_eq!(part.pending().unwrap().next().unwrap().deliveries, 49);
    }

    fn one_by_one_out_of_a_lease<K>(variant) {
        let window = K::window::<u64, 16>(variant, false);
        let part = window.assign(0);
        part.put_batch(&mut (0..10).map(|n| (n, n))).unwrap();
        let mut lease = part.take(5).unwrap();
        assert_eq!(lease.finish(4).unwrap().get(), 0);
        assert_eq!(lease.finish(0).unwrap().get(), 1);
        assert_eq!(lease.finish(2).unwrap().get(), 1);
        assert_eq!(lease.finish(2), Err(RemoveError::Unknown));
        assert_eq!(lease.finish(7), Err(RemoveError::Unknown));
        assert_eq!(lease.iter().map(|one| one.0).collect::<Vec<_>>(), [1, 3]);
        let mut values = lease.into_values();
        assert_eq!((values.len(), values.next()), (2, Some((1, 1))));
        drop(values);
        assert_eq!(part.watermark().unwrap().get(), 3);
        let mut shared = part.take_shared(9).unwrap();
        assert_eq!(shared.iter().map(|one| one.0).collect::<Vec<_>>(), [3, 5, 6, 7, 8, 9]);
        part.remove(5).unwrap();
        assert_eq!(shared.finish(5), Err(RemoveError::Passed));
        assert_eq!(shared.finish(99), Err(RemoveError::Unknown));
        assert_eq!(shared.finish(3).unwrap().get(), 6);
        part.remove(6).unwrap();
        let values: Vec<_> = shared.into_values().take(2).collect();
        assert_eq!(values, [(7, 7), (8, 8)]);
        assert_eq!(part.take(9).unwrap().commit().unwrap().next.get(), 10);
    }

    fn a_lease_of_bounded_size<K>(variant) {
        let window = K::window::<u64, 16>(variant, false);
        let part = window.assign(0);
        part.put_batch(&mut (0..10).map(|n| (2 * n, n)).take(8)).unwrap();
        let lease = part.take_shared_in::<3>(99).unwrap();
        assert_eq!(lease.iter().map(|one| one.0).collect::<Vec<_>>(), [0, 2, 4]);
        assert_eq!(part.take(99).unwrap().len(), 5, "gaps do not cut a take short");
        assert_eq!(lease.commit_only([4]).unwrap().next.get(), 0);
    }

    fn judges_and_iterators_that_panic<K>(variant) {
        for at in 0..3 {
            let window = K::window::<u64, 16>(variant, false);
            let part = window.assign(0);
            assert!(panics(|| {
                let mut messages = (0..5).map(|n| if n == at { injected() } else { (n, n) });
                let _ = part.put_batch(&mut messages);
            }));
            assert_eq!(window.count(), at as usize, "what was given is in the window");
            part.put_batch(&mut (0..5).map(|n| (n, n))).unwrap();
            let mut size = 0..;
            assert!(panics(|| {
                let size = |_: &u64| if size.next() == Some(at) { injected() } else { 1 };
                let _ = part.put_batch_sized(&mut (5..8).map(|n| (n, n)), size);
            }));
            assert_eq!(window.bytes(), at);
            let judge = |offset, _: &u64| if offset == at { injected() } else { true };
            assert!(panics(|| {
let _ = part.take(5).unwrap().commit_where(judge);
}));
            assert_eq!(part.watermark().unwrap().get(), at);
            assert!(panics(|| {
let _ = part.take_shared(9).unwrap().commit_where(judge);
}));
            let rest = part.take(9).unwrap();
            assert_eq!(rest.iter().next(), Some((at, &at)));
            assert_eq!(rest.len(), 5);
        }
    }

    fn a_batch_that_runs_into_the_end_of_the_window<K>(variant) {
        let window = K::window::<u64, 8>(variant, false);
        let part = window.assign(0);
        let mut messages = (0..20).map(|n| (n, n));
        let put = part.put_batch(&mut messages);
        if K::capacity(8).is_some() {
            let error = put.unwrap_err();
            assert_eq!((error.error, error.offset, error.value), (PutErrorKind::Full, 8, 8));
            assert_eq!((error.so_far.admitted, error.so_far.dispatch), (8, true));
            assert_eq!(messages.next(), Some((9, 9)), "the iterator has the rest");
        } else {
            assert_eq!(put.unwrap().admitted, 20);
        }
    }

    fn panics_while_an_assignment_ends<K>(variant) {
        let ledger = Ledger::new();
        let window = K::window::<_, 8>(variant, false);
        let part = window.assign(0);
        for offset in 0..8 {
            part.put_sized(offset, 3, ledger.message(offset)).unwrap();
        }
        part.take_shared(3).unwrap().detach();
        ledger.fail_drop(Some(4));
        assert!(panics(|| {
let _ = window.assign(0);
}));
        assert_eq!((window.count(), window.bytes(), ledger.total()), (0, 0, 0));
        assert!(part.put(0, ledger.message(9)).is_err());
        let part = window.assign(0);
        part.put(0, ledger.message(0)).unwrap();
        assert_eq!(part.take(1).unwrap().commit().unwrap().next.get(), 1);
    }

    fn pictures_are_short<K>(variant) {
        let window = K::window::<u64, 8>(variant, false);
        let part = window.assign(3);
        part.put_sized(3, 17, 3).unwrap();
        let picture = format!("{window:?}");
        assert!(picture.contains("count: 1") && picture.contains("bytes: 17"), "{picture}");
        let lease = part.take(1).unwrap();
        assert_eq!(format!("{lease:?}"), "{3}");
        assert!(format!("{part:?}").contains("watermark: 3"));
        let next = window.assign(0);
        assert!(format!("{part:?}").contains("stale: true"));
        drop((lease, next));
    }
}

scenarios! {
    fn giving_back_to_an_idle_window_says_dispatch<K>(variant) {
        let window = K::window::<u64, 8>(variant, false);
        let part = window.assign(0);
        part.put_batch(&mut (0..4).map(|at| (at, at))).unwrap();
        for shared in [false, true] {
            // Taken, and the window has run dry since: idle.
            let lending = part.take(1).unwrap();
            let held = part.take_shared(3).unwrap();
            assert_eq!(part.take(1).err(), Some(TakeError::Empty));
            let report = if shared { held.rollback() } else { lending.rollback() };
            assert!(report.unwrap().dispatch, "the first to give back ends the idle period");
            assert_eq!(part.take(9).unwrap().rollback().map(|report| report.dispatch), Ok(false));
        }
        let lease = part.take(4).unwrap();
        assert_eq!(part.take(1).err(), Some(TakeError::Empty));
        assert!(lease.commit_only([0]).unwrap().dispatch);
    }
}

scenarios! {
    fn a_picture_shows_every_stage<K>(variant) {
        let window = K::window::<u64, 16>(variant, true);
        let part = window.assign(7);
        assert_eq!(part.picture(9).to_string(), "7 ||");
        part.put_batch(&mut [(7, 0), (8, 0), (9, 0), (11, 0), (12, 0)].into_iter()).unwrap();
        let lent = part.take(1).unwrap();
        part.take_shared(1).unwrap().detach();
        part.remove(11).unwrap();
        assert_eq!(part.picture(9).to_string(), "7 |lhw_.w|");
        assert_eq!(part.picture(2).to_string(), "7 |lh| +4");
        assert_eq!(part.picture(0).to_string(), "7 || +6");
        drop(lent);
        window.assign(0);
        assert_eq!(part.picture(9).to_string(), "stale");
    }
}

scenarios! {
    /// What an assignment finds in use keeps up with it, however far the log goes on while a lease
    /// has its slot still: found with 32-bit words, where half the range of a lap is soon passed.
    fn slots_in_use_keep_up_with_far_assignments<K>(variant) {
        for assignments in [1, 2, 3, 7] {
            let window = K::window::<u64, 8>(variant, false);
            let far = K::far(8) - 1;
            let mut part = window.assign(0);
            part.put_batch(&mut (0..8).map(|at| (at, at))).unwrap();
            let lent = part.take(2).unwrap();
            part.take_shared(2).unwrap().detach();
            for _ in 0..assignments {
                part.advance_to(far).unwrap();
                part = window.assign(0);
            }
            drop(lent);
            part.advance_to(far).unwrap();
            for at in far..far + 24 {
                part.put(at, at).unwrap();
                assert_eq!(part.remove(at).unwrap().get(), at + 1, "{assignments} assignments");
            }
        }
    }
}
