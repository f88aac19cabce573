//! Shutdown, drain and drop.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use inflight::consumer::{
    Batch, FileStore, Limits, MemoryStore, OffsetStore, Outcome, Pulled, ShutdownError,
};

use crate::support::{
    Door, FOREVER, Fragile, Script, Tally, builder, dense, wait_until, with_store,
};

/// Case 35: shutdown with three held: intake stops, they finish, the last watermark is on disk.
#[test]
fn case_35_shutdown_waits_for_what_is_held() {
    let folder = tempfile::tempdir().unwrap();
    let source = Script::dense(&[1_000]);
    let door = Arc::new(Door::default());
    let stand = Arc::clone(&door);
    let consumer = with_store(&source, FileStore::open(folder.path()).unwrap())
        .workers(3)
        .concurrent(move |_: &Batch<u64>| -> Outcome {
            stand.pass();
            Outcome::Done
        })
        .start()
        .unwrap();
    wait_until("three are held", || door.waiting.load(Ordering::SeqCst) == 3);
    let stopping = std::thread::spawn(move || consumer.shutdown(FOREVER).unwrap());
    // Nothing tells when the shutdown has begun to wait; opened too early, this still holds.
    door.open();
    let report = stopping.join().unwrap();
    assert!(report.handlers_ended);
    let part = &report.partitions[0];
    assert!(part.watermark >= 3);
    assert_eq!(part.published, part.watermark);
    assert_eq!(part.left as u64, part.end - part.watermark);
    let reopened = FileStore::open(folder.path()).unwrap();
    assert_eq!(reopened.load("p0").unwrap(), Some(part.watermark));
}

/// Case 35 with a deadline of 0: the watermark stays below them, and a restart has them again.
#[test]
fn case_35_with_a_deadline_of_zero_nothing_is_lost() {
    let store = Arc::new(MemoryStore::default());
    let source = Script::dense(&[300]);
    let door = Arc::new(Door::default());
    let stand = Arc::clone(&door);
    let consumer = with_store(&source, Arc::clone(&store))
        .workers(3)
        .concurrent(move |batch: &Batch<u64>| -> Outcome {
            if (100..103).contains(&batch.messages()[0].offset()) {
                stand.pass();
            }
            Outcome::Done
        })
        .start()
        .unwrap();
    wait_until("three are held", || door.waiting.load(Ordering::SeqCst) == 3);
    let report = consumer.shutdown(Duration::ZERO).unwrap();
    assert!(!report.handlers_ended);
    let part = &report.partitions[0];
    assert_eq!((part.watermark, part.left as u64), (100, part.end - 100));
    assert_eq!(store.load("p0").unwrap(), Some(100));
    // The hung handlers return; what they finish is published by nobody.
    door.open();
    let tally = Arc::new(Tally::default());
    let counted = Arc::clone(&tally);
    let next = with_store(&source, Arc::clone(&store))
        .concurrent(move |batch: &Batch<u64>| -> Outcome {
            batch.iter().for_each(|(offset, _)| counted.count(batch.partition(), offset));
            Outcome::Done
        })
        .start()
        .unwrap();
    assert!(next.wait_caught_up(FOREVER));
    assert_eq!(tally.len(), 200);
    next.shutdown(FOREVER).unwrap();
    assert_eq!(store.load("p0").unwrap(), Some(300));
}

/// Case 33: workers finish messages before the put that admitted them has returned.
#[test]
fn case_33_a_fast_worker_and_a_put_that_has_not_returned() {
    for round in 0..20 {
        // Pulls of one message, so that each is taken as soon as it is there.
        let source = Script::dense(&[2_000, 2_000]);
        let consumer = builder(&source)
            .workers(2 + round % 3)
            .pull_batch(1)
            .limits(Limits::default().count(4))
            .concurrent(|_: &Batch<u64>| -> Outcome { Outcome::Done })
            .start()
            .unwrap();
        assert!(consumer.wait_caught_up(FOREVER));
        for part in consumer.shutdown(FOREVER).unwrap().partitions {
            assert_eq!((part.watermark, part.end, part.left), (2_000, 2_000, 0));
        }
    }
}

#[test]
fn drain_finishes_what_was_admitted_retries_too() {
    let source = Script::dense(&[u64::MAX / 2, u64::MAX / 2]);
    let handled = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&handled);
    let consumer = builder(&source)
        .batch(8)
        .concurrent(move |batch: &Batch<u64>| -> Outcome {
            counted.fetch_add(1, Ordering::SeqCst);
            let message = &batch.messages()[0];
            if message.deliveries() < 3 {
                return Outcome::RetryAfter(Duration::from_millis(1));
            }
            Outcome::Done
        })
        .start()
        .unwrap();
    wait_until("it runs", || handled.load(Ordering::SeqCst) > 100);
    assert!(consumer.drain(FOREVER));
    let pulls = source.pulls.load(Ordering::SeqCst);
    let report = consumer.shutdown(FOREVER).unwrap();
    assert_eq!(report.left(), 0);
    for part in &report.partitions {
        assert_eq!((part.watermark, part.published), (part.end, part.end));
    }
    assert_eq!(source.pulls.load(Ordering::SeqCst), pulls);
}

#[test]
fn drain_gives_up_at_its_deadline() {
    let source = Script::dense(&[10]);
    let consumer = builder(&source)
        .concurrent(|_: &Batch<u64>| -> Outcome { Outcome::RetryAfter(FOREVER * 100) })
        .start()
        .unwrap();
    wait_until("all wait to be retried", || consumer.progress().partitions[0].retried == 10);
    assert!(!consumer.drain(Duration::from_millis(1)));
    let report = consumer.shutdown(FOREVER).unwrap();
    assert_eq!((report.left(), report.partitions[0].watermark), (10, 0));
}

#[test]
fn a_pull_that_hangs_does_not_hold_up_the_shutdown_beyond_its_deadline() {
    let door = Arc::new(Door::default());
    let stand = Arc::clone(&door);
    let source = Script::new(1, move |_, request| {
        if request.from == 10 {
            stand.pass();
            return Ok(Pulled::NothingNew);
        }
        Ok(dense(request, 10))
    });
    let consumer =
        builder(&source).concurrent(|_: &Batch<u64>| -> Outcome { Outcome::Done }).start().unwrap();
    wait_until("the pull hangs", || door.waiting.load(Ordering::SeqCst) == 1);
    wait_until("ten are finished", || consumer.progress().partitions[0].watermark == 10);
    let report = consumer.shutdown(Duration::from_millis(1)).unwrap();
    assert_eq!((report.partitions[0].published, report.left()), (10, 0));
    door.open();
}

/// Its threads hold on to source and store.
#[test]
fn a_dropped_consumer_ends_its_threads_and_publishes_nothing() {
    let source = Script::dense(&[5_000, 10]);
    let store = Arc::new(Fragile::default());
    let consumer = with_store(&source, Arc::clone(&store))
        // One partition at a limit, one at its tail.
        .limits(Limits::default().count(10))
        .concurrent(|batch: &Batch<u64>| -> Outcome {
            match batch.partition() {
                "p0" => Outcome::RetryAfter(FOREVER * 100),
                _ => Outcome::Done,
            }
        })
        .start()
        .unwrap();
    wait_until("all wait", || {
        let progress = consumer.progress();
        progress.partitions[0].retried == 10 && progress.partitions[1].watermark == 10
    });
    drop(consumer);
    wait_until("all threads have let go", || {
        Arc::strong_count(&source) == 1 && Arc::strong_count(&store) == 1
    });
    assert_eq!(store.publishes.load(Ordering::SeqCst), 0);
}

#[test]
fn a_last_publish_that_fails_twice_is_told_with_the_report() {
    let source = Script::dense(&[50]);
    let store = Arc::new(Fragile::default());
    store.failures.store(2, Ordering::SeqCst);
    let consumer = with_store(&source, Arc::clone(&store))
        .concurrent(|_: &Batch<u64>| -> Outcome { Outcome::Done })
        .start()
        .unwrap();
    assert!(consumer.wait_caught_up(FOREVER));
    let ShutdownError::Store { error, report } = consumer.shutdown(FOREVER).unwrap_err() else {
        panic!("another error")
    };
    assert!(error.to_string().contains("disk"), "{error}");
    assert_eq!((report.partitions[0].watermark, report.partitions[0].published), (50, 0));
    assert_eq!(store.load("p0").unwrap(), None);
}

#[test]
fn a_last_publish_that_fails_once_is_tried_again() {
    let source = Script::dense(&[50]);
    let store = Arc::new(Fragile::default());
    store.failures.store(1, Ordering::SeqCst);
    let consumer = with_store(&source, Arc::clone(&store))
        .concurrent(|_: &Batch<u64>| -> Outcome { Outcome::Done })
        .start()
        .unwrap();
    assert!(consumer.wait_caught_up(FOREVER));
    let report = consumer.shutdown(FOREVER).unwrap();
    assert_eq!(report.partitions[0].published, 50);
    assert_eq!(store.load("p0").unwrap(), Some(50));
}
