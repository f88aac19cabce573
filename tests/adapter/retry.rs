//! What happens to messages that fail.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use inflight::consumer::{
    Backoff, Batch, Consumer, Fetched, MemoryStore, Outcome, Partition, PullRequest, Pulled,
    Source, SourceError, Verdict,
};

use crate::support::{FOREVER, Script, Tally, builder, look, pass, settle, wait_until};

#[test]
fn any_subset_of_a_batch_may_succeed() {
    let source = Script::dense(&[3_000]);
    let tally = Arc::new(Tally::default());
    let counted = Arc::clone(&tally);
    let consumer = builder(&source)
        .batch(32)
        .concurrent(move |batch: &Batch<u64>| -> Outcome {
            batch.each(|message| {
                // Each message fails as often as its last digits say.
                if u64::from(message.deliveries()) <= message.offset() % 4 {
                    return Verdict::Retry;
                }
                counted.count(batch.partition(), message.offset());
                Verdict::Done
            })
        })
        .start()
        .unwrap();
    assert!(consumer.wait_caught_up(FOREVER));
    tally.assert_once("p0", 3_000);
    let progress = &consumer.progress().partitions[0];
    assert_eq!((progress.finished, progress.retried), (3_000, (1 + 2 + 3) * 750));
    assert_eq!((progress.count, progress.bytes, progress.watermark), (0, 0, 3_000));
}

#[test]
fn messages_without_a_verdict_are_retried() {
    let source = Script::dense(&[64]);
    let consumer = builder(&source)
        .batch(16)
        .concurrent(|batch: &Batch<u64>| -> Outcome {
            // One more verdict than messages changes nothing; one message at a time succeeds.
            match batch.len() {
                1 => Outcome::Each(vec![Verdict::Done, Verdict::Retry]),
                _ => Outcome::Each(vec![Verdict::Done]),
            }
        })
        .start()
        .unwrap();
    assert!(consumer.wait_caught_up(FOREVER));
    assert_eq!(consumer.progress().partitions[0].finished, 64);
}

#[test]
fn a_retry_waits_for_its_delay() {
    let delay = Duration::from_millis(20);
    let outcomes: [(Outcome, Backoff); 3] = [
        (Outcome::RetryAfter(delay), Backoff::default()),
        (Outcome::Retry, Backoff::new(delay, delay)),
        (Outcome::Each(vec![Verdict::RetryAfter(delay)]), Backoff::default()),
    ];
    for (outcome, backoff) in outcomes {
        let source = Script::dense(&[1]);
        let times = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&times);
        let consumer = builder(&source)
            .backoff(backoff)
            .concurrent(move |batch: &Batch<u64>| -> Outcome {
                let mut times = noted.lock().unwrap();
                times.push(Instant::now());
                assert_eq!(batch.messages()[0].deliveries() as usize, times.len());
                if times.len() < 4 { outcome.clone() } else { Outcome::Done }
            })
            .start()
            .unwrap();
        assert!(consumer.wait_caught_up(FOREVER));
        let times = times.lock().unwrap();
        assert_eq!(times.len(), 4);
        assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= delay));
    }
}

#[test]
fn messages_of_one_batch_wait_each_for_its_own_delay() {
    let source = Script::dense(&[8]);
    let handled = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&handled);
    let early = Arc::new(AtomicU64::new(0));
    let too_early = Arc::clone(&early);
    let consumer = builder(&source)
        .batch(8)
        .concurrent(move |batch: &Batch<u64>| -> Outcome {
            batch.each(|message| match (message.offset(), message.deliveries()) {
                (2 | 5, 2..) => {
                    too_early.fetch_add(1, Ordering::SeqCst);
                    Verdict::Done
                }
                // Longer than the test, and longer than any clock.
                (2, _) => Verdict::RetryAfter(Duration::from_secs(3600)),
                (5, _) => Verdict::RetryAfter(Duration::MAX),
                (_, 1) => Verdict::RetryAfter(Duration::from_millis(message.offset())),
                _ => {
                    counted.fetch_add(1, Ordering::SeqCst);
                    Verdict::Done
                }
            })
        })
        .start()
        .unwrap();
    wait_until("the others are handled", || handled.load(Ordering::SeqCst) == 6);
    let report = consumer.shutdown(FOREVER).unwrap();
    assert_eq!(early.load(Ordering::SeqCst), 0);
    assert_eq!((report.left(), report.partitions[0].watermark), (2, 2));
    assert!(report.handlers_ended);
}

#[test]
fn a_message_may_fail_thousands_of_times() {
    let source = Script::dense(&[3]);
    let consumer = builder(&source)
        .concurrent(|batch: &Batch<u64>| -> Outcome {
            let message = &batch.messages()[0];
            if message.offset() == 1 && message.deliveries() <= 5_000 {
                Outcome::Retry
            } else {
                Outcome::Done
            }
        })
        .start()
        .unwrap();
    assert!(consumer.wait_caught_up(FOREVER));
    assert_eq!(consumer.progress().partitions[0].retried, 5_000);
}

/// Case 20: a handler panics with three messages: all three come again, in order.
#[test]
fn case_20_a_panic_is_contained_and_its_batch_comes_again() {
    let source = Script::dense(&[3, 1_000]);
    let batches = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&batches);
    let consumer = builder(&source)
        .batch(3)
        .concurrent(move |batch: &Batch<u64>| -> Outcome {
            if batch.partition() == "p0" {
                let messages = batch.messages().iter();
                let these: Vec<_> = messages.map(|m| (m.offset(), m.deliveries())).collect();
                let first = these[0].1 == 1;
                seen.lock().unwrap().push(these);
                if first {
                    std::panic::panic_any("a panicking handler");
                }
            }
            Outcome::Done
        })
        .start()
        .unwrap();
    assert!(consumer.wait_caught_up(FOREVER));
    let progress = consumer.progress();
    let mut second = Vec::new();
    let mut panics = 0;
    for batch in batches.lock().unwrap().iter() {
        if batch[0].1 == 1 {
            panics += 1;
        } else {
            second.extend(batch.iter().map(|(offset, _)| *offset));
        }
    }
    second.sort_unstable();
    assert_eq!(second, [0, 1, 2]);
    assert_eq!((progress.partitions[0].panics, progress.partitions[0].retried), (panics, 3));
    assert_eq!((progress.partitions[1].panics, progress.partitions[1].finished), (0, 1_000));
}

#[test]
fn every_call_may_panic_and_the_pool_lives_on() {
    let source = Script::dense(&[200]);
    let calls = AtomicU32::new(0);
    let consumer = builder(&source)
        .workers(3)
        .batch(4)
        .concurrent(move |batch: &Batch<u64>| -> Outcome {
            // A hundred panics for three workers.
            if calls.fetch_add(1, Ordering::SeqCst) < 100 {
                std::panic::panic_any(batch.len());
            }
            Outcome::Done
        })
        .start()
        .unwrap();
    assert!(consumer.wait_caught_up(FOREVER));
    let progress = &consumer.progress().partitions[0];
    assert_eq!((progress.panics, progress.finished), (100, 200));
}

#[test]
fn after_so_many_attempts_a_message_is_given_up() {
    let source = Script::dense(&[100]);
    let given = Arc::new(Mutex::new(Vec::new()));
    let letters = Arc::clone(&given);
    let consumer = builder(&source)
        .batch(8)
        .give_up_after(3, move |failed| {
            assert_eq!(failed.partition(), "p0");
            letters.lock().unwrap().push((failed.offset(), failed.attempts()));
            // The dead letter queue has its own troubles.
            match failed.attempts() {
                3 => Err("not now".into()),
                4 => std::panic::panic_any("a panicking dead letter queue"),
                _ => Ok(()),
            }
        })
        .concurrent(|batch: &Batch<u64>| -> Outcome {
            batch.each(|message| match message.offset() % 50 {
                7 => Verdict::Retry,
                _ => Verdict::Done,
            })
        })
        .start()
        .unwrap();
    assert!(consumer.wait_caught_up(FOREVER));
    let mut given = given.lock().unwrap().clone();
    given.sort_unstable();
    assert_eq!(given, [(7, 3), (7, 4), (7, 5), (57, 3), (57, 4), (57, 5)]);
    let progress = &consumer.progress().partitions[0];
    assert_eq!((progress.given_up, progress.finished, progress.watermark), (2, 100, 100));
}

/// A message whose clone panics, now and then.
#[derive(Debug)]
struct Brittle(u64, Arc<AtomicU32>);

impl Clone for Brittle {
    fn clone(&self) -> Self {
        if self.0 == 3 && self.1.fetch_add(1, Ordering::SeqCst) == 0 {
            std::panic::panic_any("a panicking clone");
        }
        Self(self.0, Arc::clone(&self.1))
    }
}

struct BrittleLog(Arc<AtomicU32>);

impl Source for BrittleLog {
    type Message = Brittle;

    fn partitions(&self) -> Result<Vec<Partition>, SourceError> {
        Ok(vec![Partition::new(0, "brittle")])
    }

    fn pull(&self, _: &Partition, request: &PullRequest) -> Result<Pulled<Brittle>, SourceError> {
        if request.from >= 8 {
            return Ok(Pulled::NothingNew);
        }
        let messages = (request.from..8).map(|n| Fetched::new(n, 1, Brittle(n, self.0.clone())));
        Ok(Pulled::Found { messages: messages.collect(), next: 8 })
    }
}

#[test]
fn a_panic_in_the_clone_of_a_message_loses_nothing() {
    let consumer = Consumer::builder(BrittleLog(Arc::default()), MemoryStore::default())
        .workers(2)
        .batch(8)
        .concurrent(|_: &Batch<Brittle>| -> Outcome { Outcome::Done })
        .start()
        .unwrap();
    assert!(consumer.wait_caught_up(FOREVER));
    let progress = &consumer.progress().partitions[0];
    assert_eq!((progress.finished, progress.panics), (8, 1));
}

/// A message that is counted as long as it lives, each clone too.
#[derive(Debug)]
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(alive: &Arc<AtomicUsize>) -> Self {
        alive.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(alive))
    }
}

impl Clone for Counted {
    fn clone(&self) -> Self {
        Self::new(&self.0)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Ten messages.
struct CountedLog(Arc<AtomicUsize>);

impl Source for CountedLog {
    type Message = Counted;

    fn partitions(&self) -> Result<Vec<Partition>, SourceError> {
        Ok(vec![Partition::new(0, "counted")])
    }

    fn pull(&self, _: &Partition, request: &PullRequest) -> Result<Pulled<Counted>, SourceError> {
        if request.from >= 10 {
            return Ok(Pulled::NothingNew);
        }
        let messages = (request.from..10).map(|n| Fetched::new(n, 1, Counted::new(&self.0)));
        Ok(Pulled::Found { messages: messages.collect(), next: 10 })
    }
}

#[test]
fn while_a_retry_waits_no_clone_of_its_message_is_alive() {
    let alive = Arc::new(AtomicUsize::new(0));
    let minute = Duration::from_secs(60);
    let mut consumer = Consumer::builder(CountedLog(Arc::clone(&alive)), MemoryStore::default())
        .workers(1)
        .batch(4)
        .concurrent(move |batch: &Batch<Counted>| -> Outcome {
            batch.each(|message| match (message.deliveries(), message.offset()) {
                (1, offset) => Verdict::RetryAfter(minute * (1 + offset as u32 % 2)),
                _ => Verdict::Done,
            })
        })
        .stepped()
        .unwrap();
    for partition in consumer.partitions() {
        while let Some(pull) = consumer.begin_pull(&partition) {
            consumer.pull(pull);
        }
    }
    while let Some(work) = consumer.begin_work() {
        work.run();
    }
    let progress = consumer.progress().partitions.remove(0);
    assert_eq!((progress.held, progress.retried, progress.count), (10, 10, 10));
    assert_eq!(alive.load(Ordering::SeqCst), 10, "the messages themselves, in the window");
    for (left, watermark) in [(5, 1), (0, 10)] {
        consumer.advance(minute);
        while consumer.tick() {}
        while let Some(work) = consumer.begin_work() {
            work.run();
        }
        let progress = consumer.progress().partitions.remove(0);
        assert_eq!((progress.held, progress.watermark), (left, watermark));
        assert_eq!(alive.load(Ordering::SeqCst), left);
    }
}

/// More delayed retries than a message has revokes.
#[test]
fn a_message_may_be_put_off_thousands_of_times() {
    let delay = Duration::from_millis(5);
    let mut consumer = builder(&Script::dense(&[3]))
        .concurrent(move |batch: &Batch<u64>| -> Outcome {
            match &batch.messages()[0] {
                message if message.offset() == 1 && message.deliveries() <= 5_000 => {
                    Outcome::RetryAfter(delay)
                }
                _ => Outcome::Done,
            }
        })
        .stepped()
        .unwrap();
    assert_eq!(settle(&mut consumer), 3);
    for round in 1..=5_000 {
        assert_eq!(look(&consumer, 0).held, 1);
        // Not before its time.
        pass(&mut consumer, delay - Duration::from_nanos(1));
        assert_eq!(settle(&mut consumer), 0, "in round {round}");
        pass(&mut consumer, Duration::from_nanos(1));
        assert_eq!(settle(&mut consumer), 1, "in round {round}");
    }
    let progress = look(&consumer, 0);
    assert_eq!((progress.retried, progress.watermark, progress.count), (5_000, 3, 0));
}

/// A message whose clone panics when it is dropped, the first time.
#[derive(Debug)]
struct Bursting(Option<Arc<AtomicU32>>);

impl Clone for Bursting {
    fn clone(&self) -> Self {
        // Only a clone bursts.
        let drops = Arc::clone(self.0.as_ref().expect("not yet dropped"));
        drops.fetch_add(1 << 16, Ordering::SeqCst);
        Self(Some(drops))
    }
}

impl Drop for Bursting {
    fn drop(&mut self) {
        let Some(drops) = self.0.take() else { return };
        if drops.fetch_add(1, Ordering::SeqCst) == 1 << 16 && !std::thread::panicking() {
            std::panic::panic_any("a panicking drop");
        }
    }
}

struct BurstingLog(Arc<AtomicU32>);

impl Source for BurstingLog {
    type Message = Bursting;

    fn partitions(&self) -> Result<Vec<Partition>, SourceError> {
        Ok(vec![Partition::new(0, "bursting")])
    }

    fn pull(&self, _: &Partition, request: &PullRequest) -> Result<Pulled<Bursting>, SourceError> {
        Ok(match request.from {
            0 => {
                let message = Bursting(Some(Arc::clone(&self.0)));
                Pulled::Found { messages: vec![Fetched::new(0, 1, message)], next: 1 }
            }
            _ => Pulled::NothingNew,
        })
    }
}

#[test]
fn a_panic_in_the_drop_of_what_is_put_off_loses_nothing() {
    let mut consumer = Consumer::builder(BurstingLog(Arc::default()), MemoryStore::default())
        .batch(2)
        .concurrent(|batch: &Batch<Bursting>| match batch.messages()[0].deliveries() {
            1 => Outcome::RetryAfter(Duration::from_secs(3600)),
            _ => Outcome::Done,
        })
        .stepped()
        .unwrap();
    while let Some(pull) = consumer.begin_pull("bursting") {
        consumer.pull(pull);
    }
    consumer.begin_work().unwrap().run();
    let progress = consumer.progress().partitions.remove(0);
    assert_eq!((progress.panics, progress.held, progress.count), (1, 0, 1));
    // Ready at once; the partition has rested for a second when it has its next turn.
    assert!(consumer.begin_work().is_none());
    consumer.advance(Duration::from_secs(1));
    while consumer.tick() {}
    consumer.begin_work().unwrap().run();
    assert_eq!(consumer.progress().partitions[0].watermark, 1);
}
