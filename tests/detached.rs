//! Receipts: detached messages that can be given back, each known by its exact word.

mod common;

use common::{Ledger, panics, scenarios};
use inflight::{RemoveError, RevokeError, Stage, TakeError, Window};

scenarios! {
    fn given_back_they_come_before_later_ones<K>(variant) {
        let ledger = Ledger::new();
        let window = K::window::<_, 16>(variant, false);
        let part = window.assign(0);
        part.put_batch(&mut (0..6).map(|n| (n, ledger.message(n)))).unwrap();
        let lease = part.take_shared(3).unwrap();
        assert_eq!(ledger.total(), 9);
        let detached = lease.into_detached();
        assert_eq!(ledger.total(), 6, "the clones are dropped");
        assert_eq!((detached.len(), detached.is_empty()), (3, false));
        assert!(detached.offsets().rev().eq([2, 1, 0]));
        assert_eq!(format!("{detached:?}"), "{0, 1, 2}");
        assert!(part.pending().unwrap().take(3).all(|look| look.stage == Stage::Held));
        assert_eq!(part.take(1).unwrap().commit().unwrap().next.get(), 0, "what is held is not taken");
        let report = detached.give_back().unwrap();
        assert_eq!((report.next.get(), report.applied, report.gone), (0, 3, 0));
        let lease = part.take(9).unwrap();
        let taken: Vec<_> = lease.messages().map(|one| (one.offset, one.deliveries)).collect();
        assert_eq!(taken, [(0, 2), (1, 2), (2, 2), (4, 1), (5, 1)]);
        assert_eq!(lease.commit().unwrap().next.get(), 6);
    }

    fn giving_back_ends_an_idle_period_once<K>(variant) {
        let window = K::window::<u64, 16>(variant, false);
        let part = window.assign(0);
        part.put_batch(&mut (0..2).map(|n| (n, n))).unwrap();
        let one = part.take_shared(1).unwrap().into_detached();
        let two = part.take_shared(1).unwrap().into_detached();
        assert_eq!(part.take(1).err(), Some(TakeError::Empty));
        assert!(two.give_back().unwrap().dispatch);
        assert!(!one.give_back().unwrap().dispatch);
        assert_eq!(part.take(2).unwrap().iter().map(|one| one.0).collect::<Vec<_>>(), [0, 1]);
    }

    fn dropped_or_forgotten_they_stay_held<K>(variant) {
        let window = K::window::<u64, 16>(variant, false);
        let part = window.assign(0);
        part.put_batch(&mut (0..2).map(|n| (n, n))).unwrap();
        let other = part.take_shared(1).unwrap().into_detached();
        drop(part.take_shared(1).unwrap().into_detached());
        std::mem::forget(other);
        assert_eq!(part.take(1).err(), Some(TakeError::Empty));
        assert_eq!(part.remove(0).unwrap().get(), 1);
        assert_eq!(part.at(5).revoke(1).unwrap().commit().unwrap().next.get(), 2);
    }

    fn what_others_finished_or_took_away_is_gone<K>(variant) {
        let window = K::window::<u64, 16>(variant, false);
        let part = window.assign(0);
        part.put_batch(&mut (0..6).map(|n| (n, n))).unwrap();
        let detached = part.take_shared(6).unwrap().into_detached();
        part.remove(0).unwrap();
        part.skip(1, inflight::SkipReason::Poison).unwrap();
        let revoked = part.at(1).revoke(2).unwrap();
        part.at(1).revoke(3).unwrap().detach();
        part.at(1).revoke(4).unwrap().rollback().unwrap();
        // The same message, held again, by a younger lease.
        let younger = part.take_shared(1).unwrap();
        assert_eq!(younger.messages()[0].offset(), 4);
        detached.touch(77);
        let report = detached.give_back().unwrap();
        assert_eq!((report.next.get(), report.applied, report.gone), (2, 1, 5));
        let looks: Vec<_> = part.pending().unwrap().map(|one| (one.offset, one.stage)).collect();
        assert_eq!(
            looks,
            [(2, Stage::Lent), (3, Stage::Held), (4, Stage::Held), (5, Stage::Waiting)]
        );
        let stalled: Vec<_> = part.stalled(70, 60).unwrap().map(|one| one.offset).collect();
        assert_eq!(stalled, [2, 3], "touched only what was its own; the younger lease is not stamped");
        assert_eq!(younger.commit().unwrap().applied, 1);
        drop(revoked);
    }

    fn a_floor_takes_them_too<K>(variant) {
        let window = K::window::<u64, 16>(variant, false);
        let part = window.assign(0);
        part.put_batch(&mut (0..4).map(|n| (n, n))).unwrap();
        let detached = part.take_shared(4).unwrap().into_detached();
        part.advance_floor(3, |_, _| {}).unwrap();
        let report = detached.give_back().unwrap();
        assert_eq!((report.next.get(), report.applied, report.gone), (3, 1, 3));
    }

    fn the_next_message_of_the_same_place_is_left_alone<K>(variant) {
        let window = K::window::<u64, 2>(variant, false);
        let part = window.assign(0);
        part.put(0, 0).unwrap();
        let detached = part.take_shared(1).unwrap().into_detached();
        part.remove(0).unwrap();
        // In a ring of two: the slot of 0, many laps on; in a skip window the chunk is long gone.
        for offset in 1..1_000 {
            part.put(offset, offset).unwrap();
            part.take(1).unwrap().commit().unwrap();
        }
        part.put(1_000, 0).unwrap();
        let lease = part.take_shared(1).unwrap();
        let report = detached.give_back().unwrap();
        assert_eq!((report.next.get(), report.applied, report.gone), (1_000, 0, 1));
        assert_eq!(part.take(1).err(), Some(TakeError::Empty));
        assert_eq!(lease.commit().unwrap().applied, 1);
    }

    fn of_an_ended_assignment_nothing_is_touched<K>(variant) {
        let window = K::window::<u64, 4>(variant, false);
        let old = window.assign(0);
        old.put_batch(&mut (0..2).map(|n| (n, n))).unwrap();
        let detached = old.take_shared(2).unwrap().into_detached();
        let part = window.assign(0);
        assert_eq!(window.count(), 0);
        part.put_batch(&mut (0..2).map(|n| (n, n))).unwrap();
        let lease = part.at(3).take_shared(2).unwrap();
        detached.touch(9);
        assert!(detached.give_back().is_err());
        assert_eq!(part.take(1).err(), Some(TakeError::Empty));
        assert!(part.pending().unwrap().all(|one| one.since == Some(3)));
        assert_eq!(lease.commit().unwrap().next.get(), 2);
    }

    /// A revoke would have used up its attempts.
    fn as_often_as_need_be<K>(variant) {
        let window = K::window::<u64, 4>(variant, false);
        let part = window.assign(0);
        part.put(0, 0).unwrap();
        for round in 1..=5_000 {
            let lease = part.take_shared(1).unwrap();
            assert_eq!(lease.messages()[0].deliveries(), round);
            assert_eq!(lease.into_detached().give_back().unwrap().applied, 1);
        }
        let lease = part.take_shared(1).unwrap();
        assert_eq!(part.at(1).revoke(0).unwrap().commit().unwrap().next.get(), 1);
        assert_eq!(lease.commit().unwrap().gone, 1);
    }

    /// Nobody has the receipt then: the messages are ready.
    fn when_the_drop_of_a_clone_panics_they_are_given_back<K>(variant) {
        for at in 0..3 {
            let ledger = Ledger::new();
            let window = K::window::<_, 16>(variant, false);
            let part = window.assign(0);
            part.put_batch(&mut (0..3).map(|n| (n, ledger.message(n)))).unwrap();
            let lease = part.take_shared(3).unwrap();
            part.remove(1).unwrap();
            ledger.fail_drop(Some(at));
            let receipt = panics(|| drop(lease.into_detached()));
            ledger.fail_drop(None);
            assert!(receipt);
            assert_eq!(ledger.total(), 2, "every clone is dropped all the same");
            let lease = part.take(9).unwrap();
            assert_eq!(lease.iter().map(|one| one.0).collect::<Vec<_>>(), [0, 2]);
            assert_eq!(lease.commit().unwrap().next.get(), 3);
        }
    }

    fn what_the_lease_finished_before_is_not_in_it<K>(variant) {
        let window = K::window::<u64, 16>(variant, false);
        let part = window.assign(0);
        part.put_batch(&mut (0..4).map(|n| (n, n))).unwrap();
        let mut lease = part.take_shared_in::<4>(9).unwrap();
        lease.finish(1).unwrap();
        let even = lease.split(|held| held.offset() == 2).into_detached();
        let detached = lease.into_detached();
        assert!(detached.offsets().eq([0, 3]) && even.offsets().eq([2]));
        assert_eq!(part.remove(1), Err(RemoveError::Passed));
        assert_eq!(even.give_back().unwrap().applied, 1);
        assert_eq!(part.at(1).revoke(2).err(), Some(RevokeError::Waiting));
        assert_eq!(detached.give_back().unwrap().applied, 2);
        assert_eq!(part.take(9).unwrap().commit().unwrap().next.get(), 4);
    }
}

#[test]
fn an_owned_receipt_goes_into_a_thread_and_keeps_the_window() {
    use std::sync::Arc;
    let window = Arc::new(inflight::RingWindow::<u64, 4>::new());
    let part = window.assign_owned(0);
    part.put(0, 0).unwrap();
    let detached = part.take_shared(1).unwrap().into_detached();
    drop(part);
    let weak = Arc::downgrade(&window);
    drop(window);
    let applied = std::thread::spawn(move || detached.give_back().unwrap().applied);
    assert_eq!(applied.join().unwrap(), 1);
    assert!(weak.upgrade().is_none());
}
