//! Pulling and flow control.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use inflight::consumer::{
    Batch, Consumer, Fetched, Limits, MemoryStore, OffsetStore, Outcome, Partition, PullRequest,
    Pulled, Source, SourceError,
};
use inflight::{RingWindow, SkipWindow, Stage, Window};

use crate::support::{
    Door, FOREVER, Fragile, Script, Tally, builder, dense, wait_until, with_store,
};

#[test]
fn every_message_of_every_partition_is_handled_once() {
    let lengths = [10_000, 1, 0, 5_000];
    let source = Script::dense(&lengths);
    let tally = Arc::new(Tally::default());
    let counted = Arc::clone(&tally);
    let consumer = builder(&source)
        .batch(7)
        .concurrent(move |batch: &Batch<u64>| -> Outcome {
            assert!(batch.len() <= 7);
            for (offset, value) in batch.iter() {
                assert_eq!(offset, *value);
                counted.count(batch.partition(), offset);
            }
            Outcome::Done
        })
        .start()
        .unwrap();
    assert!(consumer.wait_caught_up(FOREVER));
    for (index, length) in lengths.iter().enumerate() {
        let progress = &consumer.progress().partitions[index];
        assert_eq!((progress.watermark, progress.end, progress.span), (*length, *length, 0));
        assert_eq!((progress.count, progress.bytes, progress.finished), (0, 0, *length));
        tally.assert_once(&format!("p{index}"), *length);
    }
    assert_eq!(consumer.shutdown(FOREVER).unwrap().left(), 0);
}

/// Fills the window while handlers stand still; what is then in flight is exactly the limit.
fn fill(limits: Limits, full: impl Fn(usize, u64, u64) -> bool) {
    let source = Script::new(1, |_, request| {
        let next = (request.from + request.messages as u64).min(5_000);
        if next == request.from {
            return Ok(Pulled::NothingNew);
        }
        let messages = (request.from..next).map(|offset| Fetched::new(offset, 10, offset));
        Ok(Pulled::Found { messages: messages.collect(), next })
    });
    let door = Arc::new(Door::default());
    let stand = Arc::clone(&door);
    let consumer = builder(&source)
        .limits(limits)
        .pull_batch(33)
        .concurrent(move |batch: &Batch<u64>| -> Outcome {
            // The head stands still; the rest is finished when the door is open.
            if batch.iter().any(|(offset, _)| offset < 100) {
                stand.pass();
            }
            Outcome::Done
        })
        .start()
        .unwrap();
    let look = || consumer.progress().partitions.remove(0);
    wait_until("the window is full", || {
        let look = look();
        full(look.count, look.bytes, look.span)
    });
    door.open();
    assert!(consumer.wait_caught_up(FOREVER));
    assert_eq!(look().finished, 5_000);
    consumer.shutdown(FOREVER).unwrap();
}

#[test]
fn the_count_limit_is_reached_exactly() {
    fill(Limits::default().count(100), |count, _, _| {
        assert!(count <= 100);
        count == 100
    });
}

#[test]
fn the_bytes_limit_is_reached_exactly() {
    fill(Limits::default().bytes(705), |_, bytes, _| {
        assert!(bytes <= 705);
        bytes == 700
    });
}

#[test]
fn the_span_limit_is_reached_exactly() {
    // Four workers hold the first four; the limit on the count never bites.
    fill(Limits::default().count(4_000).span(77), |_, _, span| {
        assert!(span <= 77);
        span == 77
    });
}

#[test]
fn a_limit_of_one_still_consumes_everything() {
    let source = Script::dense(&[500]);
    let consumer = builder(&source)
        .limits(Limits::default().count(1).bytes(1).span(1))
        .concurrent(|batch: &Batch<u64>| -> Outcome {
            assert_eq!(batch.len(), 1);
            Outcome::Done
        })
        .start()
        .unwrap();
    assert!(consumer.wait_caught_up(FOREVER));
    assert_eq!(consumer.progress().partitions[0].watermark, 500);
}

#[test]
fn a_message_larger_than_the_limit_is_consumed_alone() {
    let source = Script::new(1, |_, request| {
        if request.from >= 20 {
            return Ok(Pulled::NothingNew);
        }
        // A source that does not care for the hint on bytes.
        let messages = (request.from..20).take(request.messages);
        let messages: Vec<_> =
            messages.map(|n| Fetched::new(n, if n % 3 == 0 { 5_000 } else { 40 }, n)).collect();
        Ok(Pulled::Found { next: messages.last().unwrap().offset + 1, messages })
    });
    let running: Arc<OnceLock<Consumer>> = Arc::default();
    let seen = Arc::clone(&running);
    let consumer = builder(&source)
        .limits(Limits::default().bytes(100))
        .concurrent(move |batch: &Batch<u64>| -> Outcome {
            wait_until("the consumer is known", || seen.get().is_some());
            let bytes = seen.get().unwrap().progress().partitions[0].bytes;
            let large = batch.iter().any(|(offset, _)| offset % 3 == 0);
            // Another handler may finish meanwhile, but never is more in flight than this.
            assert!(bytes <= 100 || (large && bytes == 5_000), "{bytes} bytes in flight");
            Outcome::Done
        })
        .start()
        .unwrap();
    assert!(running.set(consumer).is_ok());
    let consumer = running.get().unwrap();
    assert!(consumer.wait_caught_up(FOREVER));
    let progress = consumer.progress();
    assert_eq!((progress.partitions[0].finished, progress.partitions[0].panics), (20, 0));
}

#[test]
fn holes_wider_than_span_and_window_are_crossed() {
    // Offsets 0, 1, 1_000_000, 1_000_001, 2_000_000, ...
    fn exists(offset: u64) -> bool {
        offset % 1_000_000 < 2 && offset < 50_000_000
    }
    fn after(from: u64) -> u64 {
        if from % 1_000_000 < 2 { from } else { (from / 1_000_000 + 1) * 1_000_000 }
    }
    let source = Script::new(1, |_, request| {
        let mut messages = Vec::new();
        let mut at = after(request.from);
        while exists(at) && messages.len() < request.messages {
            messages.push(Fetched::new(at, 1, at));
            at = after(at + 1);
        }
        match messages.last() {
            None => Ok(Pulled::NothingNew),
            Some(last) => Ok(Pulled::Found { next: last.offset + 1, messages }),
        }
    });
    let tally = Arc::new(Tally::default());
    let counted = Arc::clone(&tally);
    let consumer = builder(&source)
        .window(|_| RingWindow::<u64, 64>::boxed())
        .limits(Limits::default().span(50))
        .concurrent(move |batch: &Batch<u64>| -> Outcome {
            batch.iter().for_each(|(offset, _)| counted.count(batch.partition(), offset));
            Outcome::Done
        })
        .start()
        .unwrap();
    assert!(consumer.wait_caught_up(FOREVER));
    assert_eq!(tally.len(), 100);
    assert_eq!(consumer.progress().partitions[0].watermark, 49_000_002);
}

/// Numbered by arrival: the span is a limit on messages, reached exactly, the offsets lie as far
/// apart as they like, and the last watermark is what the source said is next.
#[test]
fn a_sparse_log_spans_messages_in_a_window_numbered_by_arrival() {
    fn consume<W>(window: impl Fn() -> Box<W> + Send + Sync + 'static)
    where
        W: Window<Value = u64> + Send + Sync + 'static,
    {
        const STEP: u64 = 1_000_003;
        let source = Script::new(1, |_, request| {
            let first = request.from.div_ceil(STEP);
            let messages: Vec<_> = (first..5_000)
                .take(request.messages)
                .map(|n| Fetched::new(n * STEP, 1, n))
                .collect();
            Ok(match messages.last() {
                None => Pulled::NothingNew,
                Some(last) => Pulled::Found { next: last.offset + STEP, messages },
            })
        });
        let door = Arc::new(Door::default());
        let stand = Arc::clone(&door);
        let consumer = builder(&source)
            .window(move |_| window())
            .limits(Limits::default().span(50))
            .concurrent(move |batch: &Batch<u64>| -> Outcome {
                if batch.iter().any(|(offset, _)| offset < 2 * STEP) {
                    stand.pass();
                }
                Outcome::Done
            })
            .start()
            .unwrap();
        let look = || consumer.progress().partitions.remove(0);
        wait_until("all but the held are finished", || look().count == 2 && look().span == 50);
        assert_eq!((look().watermark, look().end), (0, 50 * STEP));
        door.open();
        assert!(consumer.wait_caught_up(FOREVER));
        let look = look();
        assert_eq!((look.finished, look.pull_errors), (5_000, 0));
        assert_eq!((look.watermark, look.end, look.span), (5_000 * STEP, 5_000 * STEP, 0));
    }
    consume(RingWindow::<u64, 64>::boxed_numbered);
    consume(|| Box::new(SkipWindow::numbered()));
}

/// A message that takes its time to be dropped.
struct Lingering(Arc<Door>);

impl Drop for Lingering {
    fn drop(&mut self) {
        self.0.pass();
    }
}

/// One message.
struct LingeringLog(Arc<Door>);

impl Source for LingeringLog {
    type Message = Arc<Lingering>;

    fn partitions(&self) -> Result<Vec<Partition>, SourceError> {
        Ok(vec![Partition::new(0, "lingering")])
    }

    fn pull(
        &self,
        _: &Partition,
        request: &PullRequest,
    ) -> Result<Pulled<Arc<Lingering>>, SourceError> {
        if request.from > 0 {
            return Ok(Pulled::NothingNew);
        }
        let message = Fetched::new(0, 1, Arc::new(Lingering(Arc::clone(&self.0))));
        Ok(Pulled::Found { messages: vec![message], next: 1 })
    }
}

/// The window is empty before the call that finished the last message has returned and counted it.
#[test]
fn who_has_caught_up_has_counted_what_is_finished() {
    let door = Arc::new(Door::default());
    let consumer = Consumer::builder(LingeringLog(Arc::clone(&door)), MemoryStore::default())
        .concurrent(|_: &Batch<Arc<Lingering>>| Outcome::Done)
        .start()
        .unwrap();
    let look = || consumer.progress().partitions.remove(0);
    wait_until("the message is finished", || {
        door.waiting.load(Ordering::SeqCst) == 1 && look().watermark == 1
    });
    assert_eq!((look().count, look().finished), (0, 0));
    // The source has answered since that there is nothing new, or does so at once.
    assert!(!consumer.wait_caught_up(Duration::from_millis(300)));
    door.open();
    assert!(consumer.wait_caught_up(FOREVER));
    assert_eq!(look().finished, 1);
}

/// Case 12: a filtered tail, with something held below and without.
#[test]
fn case_12_nothing_matched_moves_the_watermark_when_all_below_is_finished() {
    let source = Script::new(1, |_, request| {
        Ok(match request.from {
            0 => Pulled::Found { messages: vec![Fetched::new(5, 1, 5)], next: 6 },
            6 => Pulled::NothingMatched { next: 1_000_000 },
            _ => Pulled::NothingNew,
        })
    });
    let door = Arc::new(Door::default());
    let stand = Arc::clone(&door);
    let consumer = builder(&source)
        .limits(Limits::default().span(2_000))
        .concurrent(move |_: &Batch<u64>| -> Outcome {
            stand.pass();
            Outcome::Done
        })
        .start()
        .unwrap();
    wait_until("the message is held", || door.waiting.load(Ordering::SeqCst) == 1);
    let progress = consumer.progress();
    assert_eq!(progress.partitions[0].watermark, 5);
    // Far beyond the limit on the span: the jump waits.
    assert!(progress.partitions[0].span <= 2_000);
    assert_eq!(progress.partitions[0].head.unwrap().stage, Stage::Held);
    door.open();
    assert!(consumer.wait_caught_up(FOREVER));
    assert_eq!(consumer.progress().partitions[0].watermark, 1_000_000);
}

#[test]
fn a_puller_at_the_tail_sleeps_until_the_bell() {
    let length = Arc::new(AtomicU64::new(0));
    let long = Arc::clone(&length);
    let source = Script::new(1, move |_, request| Ok(dense(request, long.load(Ordering::SeqCst))));
    let consumer = builder(&source)
        // If it asked without the bell, it would do so at once.
        .pull_idle(Duration::ZERO)
        .concurrent(|_: &Batch<u64>| -> Outcome { Outcome::Done })
        .start()
        .unwrap();
    for round in 1..=20 {
        assert!(consumer.wait_caught_up(FOREVER));
        // One pull found the message of the round before, one found nothing.
        assert_eq!(source.pulls.load(Ordering::SeqCst), 2 * round - 1);
        length.store(round, Ordering::SeqCst);
        // What was rung for before is waited for.
        source.ring();
        assert!(consumer.wait_caught_up(FOREVER));
        assert_eq!(consumer.progress().partitions[0].watermark, round);
    }
}

#[test]
fn a_bell_that_rings_during_an_empty_pull_is_heard() {
    static RINGING: OnceLock<Arc<Script>> = OnceLock::new();
    let length = AtomicU64::new(0);
    let source = Script::new(1, move |_, request| {
        let answer = dense(request, length.load(Ordering::SeqCst));
        if answer == Pulled::NothingNew && length.load(Ordering::SeqCst) < 100 {
            // What comes now comes after this pull has looked.
            length.fetch_add(1, Ordering::SeqCst);
            RINGING.get().unwrap().ring();
        }
        Ok(answer)
    });
    assert!(RINGING.set(Arc::clone(&source)).is_ok());
    let consumer =
        builder(&source).concurrent(|_: &Batch<u64>| -> Outcome { Outcome::Done }).start().unwrap();
    wait_until("all hundred came", || consumer.progress().partitions[0].watermark == 100);
}

#[test]
fn a_partition_whose_bell_rang_is_not_caught_up_before_it_was_asked_again() {
    let door = Arc::new(Door::default());
    let stand = Arc::clone(&door);
    static RINGING: OnceLock<Arc<Script>> = OnceLock::new();
    let pulls = AtomicU64::new(0);
    let source = Script::new(1, move |_, request| {
        match pulls.fetch_add(1, Ordering::SeqCst) {
            0 => {
                RINGING.get().unwrap().ring();
                return Ok(Pulled::NothingNew);
            }
            1 => stand.pass(),
            _ => {}
        }
        Ok(dense(request, 1))
    });
    assert!(RINGING.set(Arc::clone(&source)).is_ok());
    let consumer =
        builder(&source).concurrent(|_: &Batch<u64>| -> Outcome { Outcome::Done }).start().unwrap();
    wait_until("it is asked again", || door.waiting.load(Ordering::SeqCst) == 1);
    assert!(!consumer.wait_caught_up(Duration::ZERO));
    door.open();
    assert!(consumer.wait_caught_up(FOREVER));
    assert_eq!(consumer.progress().partitions[0].watermark, 1);
}

/// A source that cannot ring.
struct Mute(AtomicU64);

impl Source for Mute {
    type Message = u64;

    fn partitions(&self) -> Result<Vec<Partition>, SourceError> {
        Ok(vec![Partition::new(0, "mute").starting_at(7)])
    }

    fn pull(&self, _: &Partition, request: &PullRequest) -> Result<Pulled<u64>, SourceError> {
        // Every other pull finds one message.
        let pulls = self.0.fetch_add(1, Ordering::SeqCst);
        let length = if pulls % 2 == 1 { request.from + 1 } else { request.from };
        Ok(dense(request, length.min(50)))
    }
}

#[test]
fn a_source_that_does_not_ring_is_asked_again() {
    let consumer = Consumer::builder(Mute(AtomicU64::new(0)), MemoryStore::default())
        .pull_idle(Duration::from_micros(1))
        .concurrent(|_: &Batch<u64>| -> Outcome { Outcome::Done })
        .start()
        .unwrap();
    wait_until("all came", || consumer.progress().partitions[0].watermark == 50);
    assert_eq!(consumer.progress().partitions[0].finished, 43);
}

#[test]
fn failing_panicking_and_contradictory_pulls_lose_nothing() {
    let pulls = AtomicU64::new(0);
    let source = Script::new(1, move |_, request| {
        let found = |offsets: &[u64], next| Pulled::Found {
            messages: offsets.iter().map(|offset| Fetched::new(*offset, 1, *offset)).collect(),
            next,
        };
        let from = request.from;
        if from >= 60 {
            return Ok(Pulled::NothingNew);
        }
        Ok(match pulls.fetch_add(1, Ordering::SeqCst) % 7 {
            0 => return Err("no connection".into()),
            1 => std::panic::panic_any("a panicking source"),
            2 => found(&[from + 1, from], from + 2),
            3 => found(&[from, from + 1], from),
            4 => Pulled::NothingMatched { next: from.saturating_sub(1) },
            // From the beginning of a stored batch on.
            5 => found(&[from.saturating_sub(2), from.saturating_sub(1), from], from + 1),
            _ => found(&[from, from + 1], from + 2),
        })
    });
    let tally = Arc::new(Tally::default());
    let counted = Arc::clone(&tally);
    let consumer = builder(&source)
        .concurrent(move |batch: &Batch<u64>| -> Outcome {
            batch.iter().for_each(|(offset, _)| counted.count(batch.partition(), offset));
            Outcome::Done
        })
        .start()
        .unwrap();
    assert!(consumer.wait_caught_up(FOREVER));
    tally.assert_once("p0", 60);
    let progress = consumer.progress();
    // 60 messages, three a round of seven pulls; at offset 0 nothing lies below it.
    assert!(progress.partitions[0].pull_errors >= 4 * 19);
    assert!(progress.partitions[0].last_error.is_some());
}

#[test]
fn an_illegal_offset_begins_anew_where_the_log_does_also_downwards() {
    for (start, correct) in [(0, 500), (900, 500)] {
        let source = Script::new(1, move |_, request| {
            Ok(match request.from {
                500..600 => dense(request, 600),
                600 => Pulled::NothingNew,
                _ => Pulled::IllegalOffset { correct },
            })
        });
        let store = Arc::new(MemoryStore::default());
        store.publish(&[("p0", start)]).unwrap();
        let consumer = with_store(&source, Arc::clone(&store))
            .concurrent(|_: &Batch<u64>| -> Outcome { Outcome::Done })
            .start()
            .unwrap();
        assert!(consumer.wait_caught_up(FOREVER));
        assert!(store.load("p0").unwrap().unwrap() >= 500);
        let report = consumer.shutdown(FOREVER).unwrap();
        assert_eq!((report.partitions[0].watermark, report.left()), (600, 0));
        assert_eq!(store.load("p0").unwrap(), Some(600));
    }
}

#[test]
fn completions_of_before_an_illegal_offset_change_nothing() {
    let illegal = Arc::new(AtomicBool::new(false));
    let cut = Arc::clone(&illegal);
    let source = Script::new(1, move |_, request| {
        Ok(match (request.from, cut.load(Ordering::SeqCst)) {
            (0..10, false) => dense(request, 10),
            (10, false) => Pulled::NothingNew,
            (10, true) => Pulled::IllegalOffset { correct: 3 },
            _ => dense(request, 5),
        })
    });
    let store = Arc::new(MemoryStore::default());
    let door = Arc::new(Door::default());
    let stand = Arc::clone(&door);
    let first = AtomicBool::new(true);
    let consumer = with_store(&source, Arc::clone(&store))
        .workers(2)
        .batch(10)
        .concurrent(move |_: &Batch<u64>| -> Outcome {
            if first.swap(false, Ordering::SeqCst) {
                stand.pass();
            }
            Outcome::Done
        })
        .start()
        .unwrap();
    wait_until("the first batch is held", || door.waiting.load(Ordering::SeqCst) == 1);
    wait_until("the tail is known", || source.pulls.load(Ordering::SeqCst) >= 2);
    illegal.store(true, Ordering::SeqCst);
    source.ring();
    wait_until("3 and 4 are finished", || consumer.progress().partitions[0].watermark == 5);
    door.open();
    let report = consumer.shutdown(FOREVER).unwrap();
    assert_eq!((report.partitions[0].watermark, report.left()), (5, 0));
    assert_eq!(store.load("p0").unwrap(), Some(5));
}

/// Case 38, in calls instead of time: one worker, a backlog in the first partition; a message of
/// the second is handled in the next turn after it came.
#[test]
fn case_38_a_backlog_does_not_starve_another_partition() {
    let second = Arc::new(AtomicU64::new(0));
    let pulled_empty = Arc::new(AtomicU64::new(0));
    let (length, empty) = (Arc::clone(&second), Arc::clone(&pulled_empty));
    let source = Script::new(2, move |partition, request| {
        let length = if partition.id() == 0 { 1_000_000 } else { length.load(Ordering::SeqCst) };
        let answer = dense(request, length);
        if partition.id() == 1 && answer == Pulled::NothingNew {
            empty.fetch_add(1, Ordering::SeqCst);
        }
        Ok(answer)
    });
    let order = Arc::new(Mutex::new(Vec::new()));
    let (seen, bell) = (Arc::clone(&order), Arc::clone(&source));
    let calls = AtomicU64::new(0);
    let consumer = builder(&source)
        .workers(1)
        .batch(4)
        .concurrent(move |batch: &Batch<u64>| -> Outcome {
            seen.lock().unwrap().push(batch.partition().to_owned());
            if calls.fetch_add(1, Ordering::SeqCst) == 50 {
                wait_until("the second is at its tail", || {
                    pulled_empty.load(Ordering::SeqCst) == 1
                });
                second.store(1, Ordering::SeqCst);
                bell.ring();
                // Its puller asks again only when the message is in the window.
                wait_until("it is in the window", || pulled_empty.load(Ordering::SeqCst) == 2);
            }
            Outcome::Done
        })
        .start()
        .unwrap();
    wait_until("the second is handled", || consumer.progress().partitions[1].watermark == 1);
    let order = order.lock().unwrap().clone();
    let at = order.iter().position(|partition| partition == "p1").unwrap();
    assert!((51..=52).contains(&at), "handled in call {at}");
}

#[test]
fn the_replay_limit_holds_from_the_stored_offset() {
    let store = Arc::new(Fragile::default());
    // The first ones fail: then the intake waits, and nothing is admitted beyond the limit.
    store.failures.store(3, Ordering::SeqCst);
    let stored = Arc::clone(&store);
    let source = Script::new(1, move |partition, request| {
        let stored = stored.load(partition.name())?.unwrap_or(0);
        assert!(request.from + request.messages as u64 <= stored + 64, "beyond the limit");
        Ok(dense(request, 10_000))
    });
    let consumer = with_store(&source, Arc::clone(&store))
        .limits(Limits::default().replay(64))
        .publish_every(Duration::from_millis(1))
        .concurrent(|_: &Batch<u64>| -> Outcome { Outcome::Done })
        .start()
        .unwrap();
    assert!(consumer.wait_caught_up(FOREVER));
    assert!(store.publishes.load(Ordering::SeqCst) >= 10_000 / 64);
    assert_eq!(consumer.progress().partitions[0].pull_errors, 0);
    assert_eq!(consumer.progress().store_errors, 3);
}

/// With a limit, publishing does not wait for its next time.
#[test]
fn the_replay_limit_publishes_when_it_must() {
    let source = Script::dense(&[10_000]);
    let consumer = builder(&source)
        .limits(Limits::default().replay(64))
        .concurrent(|_: &Batch<u64>| -> Outcome { Outcome::Done })
        .start()
        .unwrap();
    assert!(consumer.wait_caught_up(FOREVER));
}

/// A message whose clone, once, takes as long as the test wants.
struct Slow(Arc<Door>, Arc<AtomicBool>);

impl Clone for Slow {
    fn clone(&self) -> Self {
        if !self.1.swap(true, Ordering::SeqCst) {
            self.0.pass();
        }
        Self(Arc::clone(&self.0), Arc::clone(&self.1))
    }
}

struct CutLog(Slow);

impl Source for CutLog {
    type Message = Slow;

    fn partitions(&self) -> Result<Vec<Partition>, SourceError> {
        Ok(vec![Partition::new(0, "cut")])
    }

    fn pull(&self, _: &Partition, request: &PullRequest) -> Result<Pulled<Slow>, SourceError> {
        let door = &self.0.0;
        let message = |offset| Fetched::new(offset, 1, Slow(Arc::clone(door), self.0.1.clone()));
        Ok(match request.from {
            0 => Pulled::Found { messages: vec![message(0)], next: 1 },
            1 => {
                wait_until("a worker is cloning", || door.waiting.load(Ordering::SeqCst) == 1);
                Pulled::IllegalOffset { correct: 100 }
            }
            100 => Pulled::Found { messages: vec![message(100), message(101)], next: 102 },
            _ => Pulled::NothingNew,
        })
    }

    fn subscribe(&self, _: inflight::consumer::News) -> bool {
        true
    }
}

/// The slot that the first message of the new assignment needs is still used by a call of the old
/// one: the window is full although it has room, and the puller is woken when it is free.
#[test]
fn a_slot_that_an_ended_assignment_still_uses_is_waited_for() {
    let door = Arc::new(Door::default());
    let log = CutLog(Slow(Arc::clone(&door), Arc::default()));
    let consumer = Consumer::builder(log, MemoryStore::default())
        .concurrent(|_: &Batch<Slow>| -> Outcome { Outcome::Done })
        .start()
        .unwrap();
    wait_until("what was pulled is refused", || {
        let progress = consumer.progress();
        progress.partitions[0].resets == 1 && progress.partitions[0].pulls == 3
    });
    door.open();
    assert!(consumer.wait_caught_up(FOREVER));
    let progress = &consumer.progress().partitions[0];
    assert_eq!((progress.watermark, progress.finished), (102, 2));
}
