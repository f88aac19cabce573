//! Messages that a handler cannot deal with: sent back, given up, reported; and the hooks that say
//! something of a message.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use inflight::consumer::{
    Batch, Builder, Consumer, DelayLevel, Fetched, MemoryStore, Outcome, Pulled, Verdict,
};

use crate::support::{Post, Script, look, pass, pump, settle};

const SECOND: Duration = Duration::from_secs(1);

/// A consumer with the settings of the defaults.
fn defaults(source: &Arc<Script>) -> Builder<Arc<Script>> {
    Consumer::builder(Arc::clone(source), MemoryStore::default())
}

#[test]
fn a_message_is_sent_back_with_its_delay_level() {
    let post = Arc::new(Post::default());
    let mut consumer = defaults(&Script::dense(&[4]))
        .batch(4)
        .send_back(Arc::clone(&post))
        .attempts(|value| if *value == 3 { 7 } else { 0 })
        .concurrent(|batch: &Batch<u64>| -> Outcome {
            batch.each(|held| match held.offset() {
                0 => Verdict::Done,
                2 => Verdict::SendBack(DelayLevel::new(12)),
                _ => Verdict::SendBack(DelayLevel::AUTO),
            })
        })
        .stepped()
        .unwrap();
    assert_eq!(settle(&mut consumer), 1);
    assert_eq!(*post.sent.lock().unwrap(), [(1, 1, 4), (2, 1, 12), (3, 8, 11)]);
    let look = look(&consumer, 0);
    assert_eq!((look.watermark, look.count, look.sent_back, look.retried), (4, 0, 3, 0));
}

/// Five seconds by default, and the message stays: the watermark waits for it.
#[test]
fn what_cannot_be_sent_back_stays_and_is_tried_again_in_five_seconds() {
    let post = Arc::new(Post::default());
    post.failures.store(1, Ordering::SeqCst);
    post.panics.store(1, Ordering::SeqCst);
    let mut consumer = defaults(&Script::dense(&[3]))
        .batch(3)
        .send_back(Arc::clone(&post))
        .concurrent(|batch: &Batch<u64>| -> Outcome {
            batch.each(|held| match held.offset() {
                1 => Verdict::SendBack(DelayLevel::AUTO),
                _ => Verdict::Done,
            })
        })
        .stepped()
        .unwrap();
    assert_eq!(settle(&mut consumer), 1);
    for round in 0..2 {
        assert_eq!((look(&consumer, 0).watermark, look(&consumer, 0).held), (1, 1), "{round}");
        pass(&mut consumer, 5 * SECOND - Duration::from_nanos(1));
        assert_eq!(settle(&mut consumer), 0);
        pass(&mut consumer, Duration::from_nanos(1));
        assert_eq!(settle(&mut consumer), 1);
    }
    // Panicked, failed, sent.
    assert_eq!(*post.sent.lock().unwrap(), [(1, 3, 6)]);
    assert_eq!((look(&consumer, 0).watermark, look(&consumer, 0).sent_back), (3, 1));
}

#[test]
fn after_sixteen_attempts_a_message_is_a_dead_letter() {
    let post = Arc::new(Post::default());
    let mut consumer = defaults(&Script::dense(&[2]))
        .send_back(Arc::clone(&post))
        .concurrent(|_: &Batch<u64>| -> Outcome { Outcome::RetryAfter(SECOND) })
        .stepped()
        .unwrap();
    for attempt in 1..=16 {
        assert_eq!(settle(&mut consumer), 2, "attempt {attempt}");
        pass(&mut consumer, SECOND);
    }
    assert_eq!(settle(&mut consumer), 0);
    assert_eq!(*post.dead.lock().unwrap(), [(0, 16), (1, 16)]);
    assert_eq!((look(&consumer, 0).watermark, look(&consumer, 0).given_up), (2, 2));
    assert_eq!(look(&consumer, 0).retried, 30);
}

#[test]
fn a_dead_letter_that_cannot_be_put_aside_stays() {
    let post = Arc::new(Post::default());
    post.failures.store(1, Ordering::SeqCst);
    let mut consumer = defaults(&Script::dense(&[1]))
        .send_back(Arc::clone(&post))
        .concurrent(|batch: &Batch<u64>| -> Outcome { batch.each(|_| Verdict::GiveUp) })
        .stepped()
        .unwrap();
    assert_eq!(settle(&mut consumer), 1);
    assert_eq!((look(&consumer, 0).watermark, look(&consumer, 0).count), (0, 1));
    pass(&mut consumer, 5 * SECOND);
    assert_eq!(settle(&mut consumer), 1);
    assert_eq!(*post.dead.lock().unwrap(), [(0, 2)]);
    assert_eq!(look(&consumer, 0).watermark, 1);
}

/// Without a place to send messages to, all of these are retries.
#[test]
fn without_a_place_to_send_them_to_messages_are_retried() {
    let mut consumer = defaults(&Script::dense(&[3]))
        .concurrent(|batch: &Batch<u64>| -> Outcome {
            batch.each(|held| match (held.offset(), held.deliveries()) {
                (_, 20) => Verdict::Done,
                (0, _) => Verdict::SendBack(DelayLevel::AUTO),
                (1, _) => Verdict::GiveUp,
                _ => Verdict::RetryAfter(Duration::from_secs(60)),
            })
        })
        .stepped()
        .unwrap();
    for _ in 0..20 {
        assert_eq!(settle(&mut consumer), 3);
        pass(&mut consumer, 60 * SECOND);
    }
    assert_eq!((look(&consumer, 0).watermark, look(&consumer, 0).finished), (3, 3));
}

/// The broadcast model: failures and panics are reported and finished, not sent back.
#[test]
fn in_the_broadcast_model_failures_are_reported_and_finished() {
    let post = Arc::new(Post::default());
    let reports = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&reports);
    let mut consumer = defaults(&Script::dense(&[5]))
        .send_back(Arc::clone(&post))
        .broadcast(move |failed| told.lock().unwrap().push((failed.offset(), failed.attempts())))
        .concurrent(|batch: &Batch<u64>| match batch.messages()[0].offset() {
            0 => Outcome::Retry,
            1 => Outcome::SendBack(DelayLevel::AUTO),
            2 => std::panic::resume_unwind(Box::new("a panicking handler")),
            3 => Outcome::RetryAfter(60 * SECOND),
            _ => Outcome::Done,
        })
        .stepped()
        .unwrap();
    assert_eq!(settle(&mut consumer), 5);
    assert_eq!(*reports.lock().unwrap(), [(0, 1), (1, 1), (2, 1), (3, 1)]);
    let look = look(&consumer, 0);
    assert_eq!((look.watermark, look.reported, look.retried, look.panics), (5, 4, 0, 1));
    assert!(post.sent.lock().unwrap().is_empty() && post.dead.lock().unwrap().is_empty());
}

#[test]
fn what_the_filter_keeps_out_is_finished() {
    let handled = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&handled);
    let mut consumer = defaults(&Script::dense(&[100]))
        .pull_batch(7)
        .filter(|value| value % 10 == 3)
        .concurrent(move |batch: &Batch<u64>| -> Outcome {
            seen.lock().unwrap().extend(batch.iter().map(|(offset, _)| offset));
            Outcome::Done
        })
        .stepped()
        .unwrap();
    pump(&mut consumer);
    // What is not wanted never is in the window; the first that is holds the watermark.
    assert_eq!((look(&consumer, 0).watermark, look(&consumer, 0).count), (3, 10));
    settle(&mut consumer);
    let mut handled = handled.lock().unwrap().clone();
    handled.sort_unstable();
    assert_eq!(handled, (0..10).map(|n| n * 10 + 3).collect::<Vec<_>>());
    assert_eq!((look(&consumer, 0).watermark, look(&consumer, 0).filtered), (100, 90));
}

/// A filter that panics is an error of the pull: nothing is taken, and it is pulled again.
#[test]
fn a_filter_that_panics_loses_nothing() {
    let calls = AtomicU64::new(0);
    let mut consumer = defaults(&Script::dense(&[10]))
        .filter(move |_| match calls.fetch_add(1, Ordering::SeqCst) {
            3 => std::panic::resume_unwind(Box::new("a panicking filter")),
            _ => true,
        })
        .concurrent(|_: &Batch<u64>| -> Outcome { Outcome::Done })
        .stepped()
        .unwrap();
    assert_eq!(settle(&mut consumer), 0);
    pass(&mut consumer, 3 * SECOND);
    assert_eq!(settle(&mut consumer), 10);
    assert_eq!((look(&consumer, 0).watermark, look(&consumer, 0).pull_errors), (10, 1));
}

/// A message waits for its time in the window, holding the watermark; waiting is no attempt.
#[test]
fn nothing_is_handled_before_its_time() {
    let handled = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&handled);
    let mut consumer = defaults(&Script::dense(&[4]))
        .batch(4)
        .not_before(|value| match value {
            0 | 2 => Some(SystemTime::UNIX_EPOCH + SECOND * (10 + *value as u32)),
            _ => Some(SystemTime::UNIX_EPOCH),
        })
        .concurrent(move |batch: &Batch<u64>| -> Outcome {
            let held = batch.messages().iter();
            seen.lock().unwrap().extend(held.map(|held| (held.offset(), held.deliveries())));
            Outcome::Done
        })
        .stepped()
        .unwrap();
    assert_eq!(settle(&mut consumer), 1);
    assert_eq!(*handled.lock().unwrap(), [(1, 1), (3, 1)]);
    assert_eq!((look(&consumer, 0).watermark, look(&consumer, 0).held), (0, 2));
    pass(&mut consumer, 10 * SECOND - Duration::from_nanos(1));
    assert_eq!(settle(&mut consumer), 0);
    pass(&mut consumer, Duration::from_nanos(1));
    assert_eq!((settle(&mut consumer), look(&consumer, 0).watermark), (1, 2));
    pass(&mut consumer, 2 * SECOND);
    assert_eq!((settle(&mut consumer), look(&consumer, 0).watermark), (1, 4));
    assert_eq!(handled.lock().unwrap()[2..], [(0, 1), (2, 1)]);
}

/// A full pool refuses nothing: what no worker is free for waits in the window, and nobody has to
/// submit it again.
#[test]
fn more_than_the_pool_can_take_waits_in_the_window() {
    let mut consumer = defaults(&Script::dense(&[900]))
        .workers(1)
        .batch(2)
        .concurrent(|_: &Batch<u64>| -> Outcome { Outcome::Done })
        .stepped()
        .unwrap();
    pump(&mut consumer);
    let works: Vec<_> = std::iter::from_fn(|| consumer.begin_work()).collect();
    assert_eq!((works.len(), look(&consumer, 0).held), (450, 900));
    works.into_iter().rev().for_each(|work| work.run());
    assert_eq!((look(&consumer, 0).watermark, look(&consumer, 0).finished), (900, 900));
}

/// A worker that is lost gives back what it had.
#[test]
fn work_that_is_dropped_comes_again() {
    let mut consumer = defaults(&Script::dense(&[2]))
        .concurrent(|batch: &Batch<u64>| -> Outcome {
            batch.each(|held| if held.deliveries() == 2 { Verdict::Done } else { Verdict::GiveUp })
        })
        .give_up_after(16, |failed| panic!("given up: {failed:?}"))
        .stepped()
        .unwrap();
    pump(&mut consumer);
    let lost = [consumer.begin_work().unwrap(), consumer.begin_work().unwrap()];
    assert_eq!(lost.map(|work| work.offsets()), [[0], [1]]);
    assert_eq!((settle(&mut consumer), look(&consumer, 0).watermark), (2, 2));
}

#[test]
fn pulls_of_a_partition_keep_their_interval() {
    let source = Script::new(1, |_, request| {
        let from = request.from;
        Ok(Pulled::Found { messages: vec![Fetched::new(from, 1, from)], next: from + 1 })
    });
    let mut consumer = defaults(&source)
        .pull_interval(SECOND)
        .concurrent(|_: &Batch<u64>| -> Outcome { Outcome::Done })
        .stepped()
        .unwrap();
    for pulls in 1..10 {
        settle(&mut consumer);
        assert_eq!(look(&consumer, 0).pulls, pulls);
        pass(&mut consumer, SECOND - Duration::from_millis(1));
        assert_eq!(look(&consumer, 0).pulls, pulls);
        consumer.advance(Duration::from_millis(1));
    }
}
