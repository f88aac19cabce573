//! Where a window differs from RocketMQ's `ProcessQueue` on purpose.

mod common;

use common::scenarios;
use inflight::{PutError, Stale, TakeError, Window};

scenarios! {
    fn deviation_01_a_later_offset_first_is_finished_past_the_later<K>(variant) {
        let window = K::window::<(), 8>(variant, false);
        let part = window.assign(5);
        part.put(10, ()).unwrap();
        part.put(5, ()).unwrap();
        part.remove(10).unwrap();
        assert_eq!(part.remove(5).unwrap().get(), 11);
        let part = window.assign(5);
        part.put(10, ()).unwrap();
        part.put(5, ()).unwrap();
        assert_eq!(part.take(2).unwrap().commit().unwrap().next.get(), 11);
    }

    fn deviation_02_committing_nothing_gives_the_watermark<K>(variant) {
        let window = K::window::<(), 8>(variant, false);
        let part = window.assign(42);
        assert_eq!(part.remove_batch([]).unwrap().next.get(), 42);
        part.put(42, ()).unwrap();
        assert_eq!(part.take(1).unwrap().commit_only([]).unwrap().next.get(), 42);
        assert_eq!(part.take_shared(1).unwrap().commit_only([]).unwrap().next.get(), 42);
    }

    fn deviation_03_a_put_of_a_held_offset_is_a_duplicate<K>(variant) {
        let window = K::window::<u8, 8>(variant, false);
        let part = window.assign(1);
        part.put(1, 0).unwrap();
        let lease = part.take(1).unwrap();
        assert_eq!(part.put(1, 7), Err(PutError::Duplicate(7)));
        lease.commit().unwrap();
        assert_eq!(part.take(1).err(), Some(TakeError::Empty));
        assert_eq!(window.count(), 0);
    }

    fn deviation_04_a_message_given_back_holds_the_watermark<K>(variant) {
        let window = K::window::<(), 8>(variant, false);
        let part = window.assign(1);
        part.put_batch(&mut (1..4).map(|n| (n, ()))).unwrap();
        let lease = part.take(3).unwrap();
        assert_eq!(lease.commit_only([1, 3]).unwrap().next.get(), 2);
    }

    fn deviation_05_handing_back_after_a_reset_changes_nothing<K>(variant) {
        let window = K::window::<(), 8>(variant, false);
        let part = window.assign(1);
        part.put(1, ()).unwrap();
        let shared = part.take_shared(1).unwrap();
        let again = window.assign(1);
        assert_eq!(shared.rollback(), Err(Stale));
        assert_eq!(again.take(1).err(), Some(TakeError::Empty));
        assert_eq!((window.count(), again.watermark().unwrap().get()), (0, 1));
    }

    fn deviation_06_taking_none_changes_nothing<K>(variant) {
        let window = K::window::<(), 8>(variant, false);
        let part = window.assign(1);
        assert_eq!(part.take(0).err(), Some(TakeError::Empty));
        assert!(part.put(1, ()).unwrap().dispatch);
        assert_eq!(part.take(0).err(), Some(TakeError::Empty));
        // Not idle: nobody is told a second time.
        assert!(!part.put(2, ()).unwrap().dispatch);
        assert_eq!(part.take(9).unwrap().len(), 2);
    }

    fn deviation_07_span_counts_from_the_watermark<K>(variant) {
        let window = K::window::<(), 16384>(variant, false);
        let part = window.assign(0);
        part.put_batch(&mut (0..10_001).map(|n| (n, ()))).unwrap();
        part.remove_batch(1..10_001).unwrap();
        assert_eq!((window.span(), window.count()), (10_001, 1));
    }

    fn deviation_08_bytes_are_those_of_the_stored_message<K>(variant) {
        let window = K::window::<Vec<u8>, 8>(variant, false);
        let part = window.assign(0);
        part.put_batch_sized(&mut [(0, vec![0; 100])].into_iter(), |m| m.len()).unwrap();
        let mut again = [(0, vec![0; 5_000])].into_iter();
        assert_eq!(part.put_batch_sized(&mut again, |m| m.len()).unwrap().duplicates, 1);
        assert_eq!(window.bytes(), 100);
        part.remove(0).unwrap();
        assert_eq!(window.bytes(), 0);
    }

    fn deviation_09_a_completion_is_never_left_half_way<K>(variant) {
        // The message leaves the window, the counters and the watermark's way in one call, also
        // when its own drop panics.
        let ledger = common::Ledger::new();
        let window = K::window::<_, 8>(variant, false);
        let part = window.assign(0);
        for offset in 0..3 {
            part.put_sized(offset, 9, ledger.message(offset)).unwrap();
        }
        ledger.fail_drop(Some(1));
        assert!(common::panics(|| {
let _ = part.remove_batch([0, 1, 2]);
}));
        assert_eq!((window.count(), window.bytes(), window.span()), (0, 0, 0));
        assert_eq!(part.watermark().unwrap().get(), 3);
    }

    fn deviation_10_giving_up_a_stalled_message_moves_the_watermark<K>(variant) {
        let window = K::window::<(), 8>(variant, false);
        let part = window.assign(0);
        part.put_batch(&mut (0..3).map(|n| (n, ()))).unwrap();
        let _hung = part.at(0).take_shared(2).unwrap();
        let mut next = 0;
        for stalled in part.stalled(1_000, 900).unwrap() {
            next = part.at(1_000).revoke(stalled.offset).unwrap().commit().unwrap().next.get();
        }
        assert_eq!(next, 2);
    }
}
