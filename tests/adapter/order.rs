//! The services that keep an order: orderly, keyed; and the batched one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use inflight::consumer::{
    Batch, Builder, Consumer, DelayLevel, Limits, MemoryStore, OffsetStore, Ordered, Outcome,
    Verdict,
};

use crate::support::{FOREVER, Post, Script, Steps, Tally, builder, look, pass, pump, settle};

const SECOND: Duration = Duration::from_secs(1);

fn defaults(source: &Arc<Script>) -> Builder<Arc<Script>> {
    Consumer::builder(Arc::clone(source), MemoryStore::default())
}

/// Answers in order what a list says, then `Success`.
fn orderly(
    builder: Builder<Arc<Script>>,
    answers: &[Ordered],
) -> (Steps, Arc<Mutex<Vec<Vec<u64>>>>) {
    let calls = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&calls);
    let answers: Vec<_> = answers.to_vec();
    let answers = Mutex::new(answers.into_iter());
    let consumer = builder
        .orderly(move |batch: &Batch<u64>| -> Ordered {
            seen.lock().unwrap().push(batch.iter().map(|(offset, _)| offset).collect());
            answers.lock().unwrap().next().unwrap_or(Ordered::Success)
        })
        .stepped()
        .unwrap();
    (consumer, calls)
}

#[test]
fn one_batch_of_a_partition_at_a_time_in_order() {
    let (mut consumer, calls) = orderly(defaults(&Script::dense(&[7, 3])).batch(2), &[]);
    pump(&mut consumer);
    let mut works = Vec::new();
    while let Some(work) = consumer.begin_work() {
        works.push(work);
    }
    // However many workers ask: one each.
    let partitions: Vec<_> = works.iter().map(|work| work.partition().to_owned()).collect();
    assert_eq!(partitions, ["p0", "p1"]);
    assert!(consumer.begin_work().is_none());
    works.into_iter().for_each(|work| work.run());
    settle(&mut consumer);
    let calls = calls.lock().unwrap();
    // In turn, though the first had more; after each batch the partition goes behind the other.
    let expected = [vec![0, 1], vec![0, 1], vec![2, 3], vec![2], vec![4, 5], vec![6]];
    assert_eq!(*calls, expected);
    assert_eq!((look(&consumer, 0).watermark, look(&consumer, 1).watermark), (7, 3));
}

#[test]
fn a_suspended_partition_waits_its_time_within_bounds() {
    let suspended = [
        (None, SECOND),
        (Some(Duration::from_millis(1)), Duration::from_millis(10)),
        (Some(Duration::from_secs(3)), Duration::from_secs(3)),
        (Some(Duration::from_secs(3600)), Duration::from_secs(30)),
    ];
    for (asked, waits) in suspended {
        let answers = [Ordered::Suspend(asked), Ordered::Rollback];
        let (mut consumer, calls) = orderly(defaults(&Script::dense(&[3])).batch(2), &answers);
        assert_eq!(settle(&mut consumer), 1);
        pass(&mut consumer, waits - Duration::from_millis(1));
        // Whoever asks, also after something new came.
        assert_eq!(settle(&mut consumer), 0, "{asked:?}");
        pass(&mut consumer, Duration::from_millis(1));
        // Rolled back without manual commit: given back too, for the default time. (RocketMQ
        // takes it for a success.)
        assert_eq!(settle(&mut consumer), 1, "{asked:?}");
        assert_eq!(look(&consumer, 0).watermark, 0);
        pass(&mut consumer, SECOND);
        assert_eq!(settle(&mut consumer), 2);
        assert_eq!(*calls.lock().unwrap(), [vec![0, 1], vec![0, 1], vec![0, 1], vec![2]]);
        assert_eq!((look(&consumer, 0).watermark, look(&consumer, 0).retried), (3, 4));
    }
}

#[test]
fn a_panic_suspends() {
    let calls = AtomicU64::new(0);
    let mut consumer = defaults(&Script::dense(&[2]))
        .suspend_for(5 * SECOND)
        .orderly(move |_: &Batch<u64>| match calls.fetch_add(1, Ordering::SeqCst) {
            0 => std::panic::resume_unwind(Box::new("a panicking handler")),
            _ => Ordered::Success,
        })
        .stepped()
        .unwrap();
    assert_eq!(settle(&mut consumer), 1);
    pass(&mut consumer, 4 * SECOND);
    assert_eq!(settle(&mut consumer), 0);
    pass(&mut consumer, SECOND);
    assert_eq!(settle(&mut consumer), 2);
    assert_eq!((look(&consumer, 0).watermark, look(&consumer, 0).panics), (2, 1));
}

#[test]
fn by_manual_commit_what_succeeded_is_kept_until_it_is_committed_or_rolled_back() {
    use Ordered::{Commit, Rollback, Success, Suspend};
    let answers = [Success, Success, Commit, Success, Suspend(None), Success, Rollback];
    let batch = || defaults(&Script::dense(&[8])).batch(1).manual_commit();
    let (mut consumer, calls) = orderly(batch(), &answers);
    pump(&mut consumer);
    let step = || {
        consumer.begin_work().unwrap().run();
        let look = look(&consumer, 0);
        (look.watermark, look.count, look.held)
    };
    assert_eq!(step(), (0, 8, 1)); // 0 kept
    assert_eq!(step(), (0, 8, 2)); // 1 kept
    assert_eq!(step(), (3, 5, 0)); // 2, and all of them committed
    assert_eq!(step(), (3, 5, 1)); // 3 kept
    assert_eq!(step(), (3, 5, 1)); // 4 suspended alone
    pass(&mut consumer, SECOND);
    let step = || {
        consumer.begin_work().unwrap().run();
        let look = look(&consumer, 0);
        (look.watermark, look.count, look.held)
    };
    assert_eq!(step(), (3, 5, 2)); // 4 kept
    assert_eq!(step(), (3, 5, 0)); // 5, and all that is kept, rolled back
    pass(&mut consumer, SECOND);
    settle(&mut consumer);
    let calls: Vec<u64> = calls.lock().unwrap().concat();
    assert_eq!(calls, [0, 1, 2, 3, 4, 4, 5, 3, 4, 5, 6, 7]);
    // Never committed: left, and consumed again by the next consumer.
    let (reports, _) = consumer.shutdown();
    assert_eq!((reports[0].watermark, reports[0].left), (3, 5));
}

#[test]
fn messages_tried_too_often_leave_a_suspended_batch() {
    let post = Arc::new(Post::default());
    post.failures.store(1, Ordering::SeqCst);
    let mut consumer = defaults(&Script::dense(&[3]))
        .batch(2)
        .max_attempts(3)
        .send_back(Arc::clone(&post))
        .orderly(|batch: &Batch<u64>| match batch.messages()[0].offset() {
            2 => Ordered::Success,
            _ => Ordered::Suspend(None),
        })
        .stepped()
        .unwrap();
    for _ in 0..2 {
        assert_eq!(settle(&mut consumer), 1);
        assert_eq!(look(&consumer, 0).watermark, 0);
        pass(&mut consumer, SECOND);
    }
    // The first cannot be put aside yet; the second can.
    assert_eq!(settle(&mut consumer), 1);
    assert_eq!((look(&consumer, 0).watermark, look(&consumer, 0).given_up), (0, 1));
    pass(&mut consumer, SECOND);
    // With the place that is free now: 0 and 2, a suspension.
    settle(&mut consumer);
    assert_eq!(*post.dead.lock().unwrap(), [(1, 3), (0, 4)]);
    pass(&mut consumer, SECOND);
    settle(&mut consumer);
    assert_eq!((look(&consumer, 0).watermark, look(&consumer, 0).given_up), (3, 2));
}

#[test]
fn in_order_the_first_that_is_not_due_holds_the_rest() {
    let (mut consumer, calls) = orderly(
        defaults(&Script::dense(&[5]))
            .batch(5)
            .not_before(|value| (*value == 2).then(|| SystemTime::UNIX_EPOCH + 100 * SECOND)),
        &[],
    );
    assert_eq!(settle(&mut consumer), 1);
    pass(&mut consumer, 99 * SECOND);
    assert_eq!(settle(&mut consumer), 0);
    pass(&mut consumer, SECOND);
    assert_eq!(settle(&mut consumer), 1);
    assert_eq!(*calls.lock().unwrap(), [vec![0, 1], vec![2, 3, 4]]);
}

/// With threads: each message once, in order, whatever the number of workers.
#[test]
fn threads_keep_the_order_too() {
    let source = Script::dense(&[3_000, 2_000, 1]);
    let seen: Arc<Mutex<Vec<(String, u64)>>> = Arc::default();
    let order = Arc::clone(&seen);
    let consumer = builder(&source)
        .batch(7)
        .orderly(move |batch: &Batch<u64>| -> Ordered {
            let these = batch.iter().map(|(offset, _)| (batch.partition().to_owned(), offset));
            order.lock().unwrap().extend(these);
            Ordered::Success
        })
        .start()
        .unwrap();
    assert!(consumer.wait_caught_up(FOREVER));
    assert_eq!(consumer.shutdown(FOREVER).unwrap().left(), 0);
    for (partition, length) in [("p0", 3_000), ("p1", 2_000), ("p2", 1)] {
        let seen = seen.lock().unwrap();
        let of = seen.iter().filter(|(name, _)| name == partition).map(|(_, offset)| *offset);
        assert!(of.eq(0..length), "{partition}");
    }
}

#[test]
fn messages_of_one_key_wait_for_each_other_and_for_no_others() {
    let handled: Arc<Mutex<Vec<u64>>> = Arc::default();
    let seen = Arc::clone(&handled);
    let mut consumer = defaults(&Script::dense(&[9]))
        .batch(9)
        .keyed(
            |value| value % 3,
            move |batch: &Batch<u64>| -> Outcome {
                let offsets: Vec<_> = batch.iter().map(|(offset, _)| offset).collect();
                assert!(offsets.iter().all(|offset| offset % 3 == offsets[0] % 3));
                seen.lock().unwrap().extend(offsets);
                Outcome::Done
            },
        )
        .stepped()
        .unwrap();
    pump(&mut consumer);
    let works: Vec<_> = std::iter::from_fn(|| consumer.begin_work()).collect();
    // One for each key, at once.
    let offsets: Vec<_> = works.iter().map(|work| work.offsets()).collect();
    assert_eq!(offsets, [[0, 3, 6], [1, 4, 7], [2, 5, 8]]);
    let mut works = works.into_iter();
    let (zero, one, two) = (works.next().unwrap(), works.next().unwrap(), works.next().unwrap());
    two.run();
    one.run();
    // Later ones of a key that is held wait; others need not.
    assert_eq!((look(&consumer, 0).watermark, look(&consumer, 0).count), (0, 3));
    zero.run();
    assert_eq!(look(&consumer, 0).watermark, 9);
    assert_eq!(*handled.lock().unwrap(), [2, 5, 8, 1, 4, 7, 0, 3, 6]);
}

#[test]
fn what_fails_is_tried_again_before_later_ones_of_its_key() {
    let handled: Arc<Mutex<Vec<(u64, bool)>>> = Arc::default();
    let seen = Arc::clone(&handled);
    let fails = AtomicU64::new(2);
    let mut consumer = defaults(&Script::dense(&[6]))
        .keyed(
            |value| value % 2,
            move |batch: &Batch<u64>| -> Outcome {
                let offset = batch.messages()[0].offset();
                let failed = offset == 2
                    && fails
                        .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1))
                        .is_ok();
                seen.lock().unwrap().push((offset, !failed));
                if failed { Outcome::RetryAfter(10 * SECOND) } else { Outcome::Done }
            },
        )
        .stepped()
        .unwrap();
    settle(&mut consumer);
    let done = |handled: &Mutex<Vec<(u64, bool)>>| {
        let mut done: Vec<_> =
            handled.lock().unwrap().iter().filter(|one| one.1).map(|one| one.0).collect();
        done.sort_unstable();
        done
    };
    // 4 is of the key of 2, and waits.
    assert_eq!(done(&handled), [0, 1, 3, 5]);
    pass(&mut consumer, 10 * SECOND);
    assert_eq!(settle(&mut consumer), 1);
    pass(&mut consumer, 10 * SECOND);
    assert_eq!(settle(&mut consumer), 2);
    assert_eq!(handled.lock().unwrap().last(), Some(&(4, true)));
    assert_eq!((look(&consumer, 0).watermark, look(&consumer, 0).retried), (6, 2));
}

/// Attempts count although a message of a lane is taken once.
#[test]
fn a_message_of_a_key_is_given_up_after_its_attempts() {
    let post = Arc::new(Post::default());
    let mut consumer = defaults(&Script::dense(&[2]))
        .send_back(Arc::clone(&post))
        .keyed(
            |_| (),
            |batch: &Batch<u64>| match batch.messages()[0].offset() {
                0 => Outcome::RetryAfter(SECOND),
                _ => Outcome::SendBack(DelayLevel::new(1)),
            },
        )
        .stepped()
        .unwrap();
    for _ in 0..15 {
        assert_eq!(settle(&mut consumer), 1);
        pass(&mut consumer, SECOND);
    }
    assert_eq!(settle(&mut consumer), 2);
    assert_eq!(*post.dead.lock().unwrap(), [(0, 16)]);
    assert_eq!(*post.sent.lock().unwrap(), [(1, 1, 1)]);
    assert_eq!(look(&consumer, 0).watermark, 2);
}

#[test]
fn threads_keep_the_order_of_keys_too() {
    let source = Script::dense(&[20_000]);
    let last: Arc<Vec<AtomicU64>> = Arc::new((0..16).map(|_| AtomicU64::new(0)).collect());
    let tally = Arc::new(Tally::default());
    let (seen, counted) = (Arc::clone(&last), Arc::clone(&tally));
    let consumer = builder(&source)
        .workers(8)
        .batch(5)
        .keyed(
            |value| value % 16,
            move |batch: &Batch<u64>| -> Outcome {
                for (offset, value) in batch.iter() {
                    let before = seen[*value as usize % 16].swap(offset, Ordering::SeqCst);
                    assert!(before <= offset, "{offset} after {before}");
                    counted.count(batch.partition(), offset);
                }
                Outcome::Done
            },
        )
        .start()
        .unwrap();
    assert!(consumer.wait_caught_up(FOREVER));
    tally.assert_once("p0", 20_000);
    assert_eq!(consumer.progress().partitions[0].panics, 0);
}

fn batched(workers: usize, length: u64) -> (Steps, Arc<MemoryStore>) {
    let store = Arc::new(MemoryStore::default());
    let consumer = Consumer::builder(Script::dense(&[length]), Arc::clone(&store))
        .workers(workers)
        .batch(2)
        .batched(|_: &Batch<u64>| -> Outcome { Outcome::Done })
        .stepped()
        .unwrap();
    (consumer, store)
}

/// A batch has a part for each free worker; batches are numbered, and a slow one holds up what is
/// published, not the batches after it.
#[test]
fn a_slow_batch_holds_up_what_is_published_and_no_later_batch() {
    let (mut consumer, store) = batched(3, 20);
    pump(&mut consumer);
    let begin = || consumer.begin_work().unwrap();
    // Three free workers: three parts of two; a fourth begins the next batch, of one part.
    let first = [begin(), begin(), begin()];
    let second = begin();
    let offsets: Vec<_> = first.iter().map(|work| work.offsets()).collect();
    assert_eq!(offsets, [[0, 1], [2, 3], [4, 5]]);
    assert_eq!(second.offsets(), [6, 7]);
    second.run();
    let [a, b, c] = first;
    c.run();
    b.run();
    consumer.publish().unwrap();
    assert_eq!(store.load("p0").unwrap(), None);
    // All that came later is done while the first part hangs.
    settle(&mut consumer);
    assert_eq!((look(&consumer, 0).count, look(&consumer, 0).held), (2, 2));
    consumer.publish().unwrap();
    assert_eq!(store.load("p0").unwrap(), None);
    a.run();
    consumer.publish().unwrap();
    assert_eq!(store.load("p0").unwrap(), Some(20));
}

#[test]
fn a_part_that_fails_holds_its_batch_until_it_is_done() {
    let store = Arc::new(MemoryStore::default());
    let calls: Arc<Mutex<Vec<Vec<u64>>>> = Arc::default();
    let seen = Arc::clone(&calls);
    let mut consumer = Consumer::builder(Script::dense(&[6]), Arc::clone(&store))
        .workers(1)
        .batch(3)
        .batched(move |batch: &Batch<u64>| -> Outcome {
            let mut seen = seen.lock().unwrap();
            seen.push(batch.iter().map(|(offset, _)| offset).collect());
            let first = seen.len() == 1;
            batch.each(|held| match held.offset() {
                1 if first => Verdict::RetryAfter(10 * SECOND),
                _ => Verdict::Done,
            })
        })
        .stepped()
        .unwrap();
    settle(&mut consumer);
    consumer.publish().unwrap();
    assert_eq!(store.load("p0").unwrap(), None);
    assert_eq!((look(&consumer, 0).watermark, look(&consumer, 0).count), (1, 1));
    pass(&mut consumer, 10 * SECOND);
    settle(&mut consumer);
    consumer.publish().unwrap();
    assert_eq!(store.load("p0").unwrap(), Some(6));
    // Only what failed, by itself.
    assert_eq!(*calls.lock().unwrap(), [vec![0, 1, 2], vec![3, 4, 5], vec![1]]);
}

/// As many batches as the span has messages can be open at once.
#[test]
fn batches_of_one_message_never_run_out_of_numbers() {
    let source = Script::dense(&[5_000]);
    let store = Arc::new(MemoryStore::default());
    let mut consumer = Consumer::builder(source, Arc::clone(&store))
        .workers(1)
        .limits(Limits::default().count(4_000).span(100))
        .batched(|_: &Batch<u64>| -> Outcome { Outcome::Done })
        .stepped()
        .unwrap();
    pump(&mut consumer);
    let slow = consumer.begin_work().unwrap();
    settle(&mut consumer);
    assert_eq!((look(&consumer, 0).span, look(&consumer, 0).count), (100, 1));
    slow.run();
    settle(&mut consumer);
    consumer.publish().unwrap();
    assert_eq!(store.load("p0").unwrap(), Some(5_000));
}

#[test]
fn threads_consume_batches_to_the_end() {
    let source = Script::dense(&[10_000, 3]);
    let store = Arc::new(MemoryStore::default());
    let tally = Arc::new(Tally::default());
    let counted = Arc::clone(&tally);
    let consumer = Consumer::builder(source, Arc::clone(&store))
        .workers(6)
        .batch(4)
        .batched(move |batch: &Batch<u64>| -> Outcome {
            batch.iter().for_each(|(offset, _)| counted.count(batch.partition(), offset));
            Outcome::Done
        })
        .start()
        .unwrap();
    assert!(consumer.wait_caught_up(FOREVER));
    consumer.shutdown(FOREVER).unwrap();
    tally.assert_once("p0", 10_000);
    tally.assert_once("p1", 3);
    assert_eq!(store.load("p0").unwrap(), Some(10_000));
    assert_eq!(store.load("p1").unwrap(), Some(3));
}
