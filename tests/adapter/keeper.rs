//! What is looked after from time to time: messages held too long, locks, pulls that hang,
//! partitions that come and go, pauses.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use inflight::consumer::{
    AssignError, Batch, Builder, Consumer, Fetched, Limits, MemoryStore, OffsetStore, Ordered,
    Outcome, Partition, PartitionLock, Pulled, SourceError, StartError, StoreError, Verdict,
};

use crate::support::{
    Door, FOREVER, Fragile, Post, Script, Steps, builder, look, pass, pump, settle, wait_until,
    with_store,
};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const MS: Duration = Duration::from_millis(1);

fn defaults(source: &Arc<Script>) -> Builder<Arc<Script>> {
    Consumer::builder(Arc::clone(source), MemoryStore::default())
}

fn done(_: &Batch<'_, u64>) -> Outcome {
    Outcome::Done
}

/// A consumer of ten messages that looks for expired ones when the clock says so exactly.
fn expiring(post: &Arc<Post>, length: u64) -> Steps {
    defaults(&Script::dense(&[length]))
        .expire_every(MS)
        .send_back(Arc::clone(post))
        .concurrent(done)
        .stepped()
        .unwrap()
}

/// Case 24: only what is held expires, and only beyond the limit.
#[test]
fn case_24_what_is_held_longer_than_the_limit_expires() {
    let post = Arc::new(Post::default());
    let mut consumer = expiring(&post, 2);
    pump(&mut consumer);
    let hangs = [consumer.begin_work().unwrap(), consumer.begin_work().unwrap()];
    let [one, two] = hangs;
    // Given back, and taken by nobody: never expires.
    drop(one);
    pass(&mut consumer, 15 * MINUTE);
    assert_eq!(look(&consumer, 0).expired, 0);
    pass(&mut consumer, MS);
    assert_eq!(*post.sent.lock().unwrap(), [(1, 1, 4)]);
    pass(&mut consumer, 100 * MINUTE);
    assert_eq!((look(&consumer, 0).expired, look(&consumer, 0).watermark), (1, 0));
    assert_eq!(settle(&mut consumer), 1);
    // The worker comes back: what it says of the message changes nothing.
    two.run();
    assert_eq!((look(&consumer, 0).watermark, look(&consumer, 0).finished), (2, 2));
}

/// Case 25: sending back fails: still held, and listed in the next pass.
#[test]
fn case_25_what_cannot_be_sent_back_is_listed_in_the_next_pass() {
    let post = Arc::new(Post::default());
    post.failures.store(2, Ordering::SeqCst);
    let mut consumer = expiring(&post, 6);
    pump(&mut consumer);
    let works: Vec<_> = std::iter::from_fn(|| consumer.begin_work()).collect();
    let mut works = works.into_iter();
    // All but the last are finished.
    works.by_ref().take(5).for_each(|work| work.run());
    let hangs = works.next().unwrap();
    pass(&mut consumer, 15 * MINUTE + MS);
    for failed in 1..=2 {
        let look = look(&consumer, 0);
        assert_eq!((look.expired, look.held, look.watermark), (failed, 1, 5));
        // Not with a worker either: nobody else gets it.
        assert_eq!(settle(&mut consumer), 0);
        pass(&mut consumer, MS);
    }
    assert_eq!(*post.sent.lock().unwrap(), [(5, 1, 4)]);
    assert_eq!((look(&consumer, 0).watermark, look(&consumer, 0).held), (6, 0));
    drop(hangs);
    assert_eq!((settle(&mut consumer), look(&consumer, 0).watermark), (0, 6));
}

/// Case 25, the other way: with nowhere to send it to, another worker gets it.
#[test]
fn case_25_with_nowhere_to_send_it_to_another_worker_gets_it() {
    let mut consumer = defaults(&Script::dense(&[1]))
        .expire_after(SECOND)
        .expire_every(SECOND)
        .concurrent(done)
        .stepped()
        .unwrap();
    pump(&mut consumer);
    let hangs = consumer.begin_work().unwrap();
    pass(&mut consumer, 2 * SECOND);
    assert_eq!((settle(&mut consumer), look(&consumer, 0).watermark), (1, 1));
    hangs.run();
    assert_eq!(look(&consumer, 0).finished, 1);
}

/// Case 26: the handler finishes while its message is being sent back: never both.
#[test]
fn case_26_a_handler_that_finishes_while_its_message_expires() {
    for round in 0..2_000 {
        let source = Script::dense(&[1]);
        let (sends, finishes) = (Arc::new(AtomicU64::new(0)), Arc::new(Door::default()));
        let (sent, door) = (Arc::clone(&sends), Arc::clone(&finishes));
        struct Slow(Arc<AtomicU64>, Arc<Door>);
        impl inflight::consumer::SendBack<u64> for Slow {
            fn send_back(
                &self,
                _: &inflight::consumer::Failed<'_, u64>,
                _: inflight::consumer::DelayLevel,
            ) -> Result<(), SourceError> {
                // Now the handler may come back.
                self.1.open();
                self.0.fetch_add(1, Ordering::SeqCst);
                Ok(())
            }
            fn dead_letter(
                &self,
                _: &inflight::consumer::Failed<'_, u64>,
            ) -> Result<(), SourceError> {
                Ok(())
            }
        }
        let consumer = builder(&source)
            .workers(1)
            .expire_after(Duration::ZERO)
            .expire_every(MS / 10)
            .send_back(Slow(sent, finishes))
            .concurrent(move |_: &Batch<u64>| -> Outcome {
                if round % 2 == 0 {
                    door.pass();
                }
                Outcome::Done
            })
            .start()
            .unwrap();
        assert!(consumer.wait_caught_up(FOREVER));
        let progress = &consumer.progress().partitions[0];
        let sent = sends.load(Ordering::SeqCst);
        // Once, by one of them.
        assert!(sent <= 1 && (round % 2 == 1 || sent == 1));
        assert_eq!((progress.finished, progress.watermark), (1, 1));
        if round > 40 && sent == 0 {
            break;
        }
    }
}

/// Case 27: a handler that never returns: its message is taken away, and the window goes on for
/// more than ten times its span.
#[test]
fn case_27_a_handler_that_never_returns() {
    let post = Arc::new(Post::default());
    let mut consumer = defaults(&Script::dense(&[30_000]))
        .limits(Limits::default().span(2_000))
        .send_back(Arc::clone(&post))
        .concurrent(done)
        .stepped()
        .unwrap();
    pump(&mut consumer);
    let hangs = consumer.begin_work().unwrap();
    settle(&mut consumer);
    // The limit is what the puller waits for a good part of.
    assert!(look(&consumer, 0).watermark == 0 && look(&consumer, 0).span > 1_900);
    // The default: 15 minutes, and a pass every minute.
    pass(&mut consumer, 16 * MINUTE);
    settle(&mut consumer);
    assert_eq!(*post.sent.lock().unwrap(), [(0, 1, 4)]);
    assert_eq!((look(&consumer, 0).watermark, look(&consumer, 0).finished), (30_000, 30_000));
    drop(hangs);
    assert_eq!(look(&consumer, 0).watermark, 30_000);
}

/// At most sixteen in a pass; those that cannot be sent back do not keep the others waiting.
#[test]
fn a_pass_takes_away_sixteen_at_most_and_goes_round() {
    let post = Arc::new(Post::default());
    let mut consumer = expiring(&post, 40);
    pump(&mut consumer);
    let works: Vec<_> = std::iter::from_fn(|| consumer.begin_work()).collect();
    post.failures.store(16, Ordering::SeqCst);
    pass(&mut consumer, 15 * MINUTE + MS);
    assert_eq!((look(&consumer, 0).expired, post.sent.lock().unwrap().len()), (16, 0));
    pass(&mut consumer, MS);
    let offsets = |post: &Post| post.sent.lock().unwrap().iter().map(|s| s.0).collect::<Vec<_>>();
    assert!(offsets(&post).into_iter().eq(17..33), "{:?}", offsets(&post));
    pass(&mut consumer, MS);
    pass(&mut consumer, MS);
    assert_eq!((look(&consumer, 0).watermark, look(&consumer, 0).count), (40, 0));
    drop(works);
    assert_eq!(look(&consumer, 0).finished, 40);
}

/// The time between passes has nothing to do with the timeout.
#[test]
fn the_passes_have_an_interval_of_their_own() {
    let post = Arc::new(Post::default());
    let mut consumer = defaults(&Script::dense(&[1]))
        .expire_after(100 * MINUTE)
        .expire_every(7 * SECOND)
        .send_back(Arc::clone(&post))
        .concurrent(done)
        .stepped()
        .unwrap();
    pump(&mut consumer);
    let _hangs = consumer.begin_work().unwrap();
    for _ in 0..100 * 60 / 7 {
        pass(&mut consumer, 7 * SECOND);
        assert_eq!(look(&consumer, 0).expired, 0);
    }
    pass(&mut consumer, 7 * SECOND);
    assert_eq!(look(&consumer, 0).expired, 1);
}

/// What waits to be retried is with no handler, and does not expire.
#[test]
fn what_waits_to_be_retried_does_not_expire() {
    let post = Arc::new(Post::default());
    let mut consumer = defaults(&Script::dense(&[1]))
        .expire_every(MS)
        .send_back(Arc::clone(&post))
        .concurrent(|batch: &Batch<u64>| match batch.messages()[0].deliveries() {
            1 => Outcome::RetryAfter(100 * MINUTE),
            _ => Outcome::Done,
        })
        .stepped()
        .unwrap();
    settle(&mut consumer);
    for _ in 0..99 {
        pass(&mut consumer, MINUTE);
    }
    assert_eq!((look(&consumer, 0).expired, look(&consumer, 0).held), (0, 1));
    pass(&mut consumer, MINUTE);
    settle(&mut consumer);
    assert_eq!((look(&consumer, 0).expired, look(&consumer, 0).watermark), (0, 1));
}

/// Case 28: a new partition is not idle or expired at birth; a throttled or suspended one is not.
#[test]
fn case_28_who_waits_is_not_idle() {
    let source = Script::dense(&[10, 1_000, 10]);
    let mut consumer =
        defaults(&source).limits(Limits::default().count(5)).concurrent(done).stepped().unwrap();
    // At birth, and before the first pull.
    pass(&mut consumer, Duration::ZERO);
    consumer.suspend("p2");
    pump(&mut consumer);
    // The second is at its limit: nobody handles anything.
    for _ in 0..10 {
        pass(&mut consumer, 121 * SECOND);
        for partition in 0..3 {
            assert_eq!(
                (look(&consumer, partition).rebuilt, look(&consumer, partition).expired),
                (0, 0)
            );
        }
    }
    assert!(look(&consumer, 2).suspended);
    consumer.resume("p2");
    settle(&mut consumer);
    assert_eq!(look(&consumer, 2).watermark, 10);
}

/// A pull that does not come back for 120 s: the partition is begun anew, by another puller; what
/// the first one still answers changes nothing.
#[test]
fn a_partition_whose_pull_hangs_is_begun_anew() {
    let store = Arc::new(MemoryStore::default());
    let mut consumer = Consumer::builder(Script::dense(&[50]), Arc::clone(&store))
        .pull_batch(20)
        .concurrent(done)
        .stepped()
        .unwrap();
    let first = consumer.begin_pull("p0").unwrap();
    consumer.pull(first);
    let hangs = consumer.begin_pull("p0").unwrap();
    assert_eq!(hangs.request().from, 20);
    let late = consumer.begin_work().unwrap();
    while let Some(work) = consumer.begin_work() {
        work.run();
    }
    consumer.advance(120 * SECOND);
    while consumer.tick() {}
    assert_eq!(look(&consumer, 0).rebuilt, 0);
    consumer.advance(30 * SECOND);
    while consumer.tick() {}
    assert_eq!(look(&consumer, 0).rebuilt, 1);
    // From what is published, since 0 was not finished. Its late end changes nothing.
    let again = consumer.begin_pull("p0").unwrap();
    assert_eq!(again.request().from, 0);
    late.run();
    assert_eq!(look(&consumer, 0).watermark, 0);
    consumer.pull(hangs);
    consumer.pull(again);
    settle(&mut consumer);
    assert_eq!((look(&consumer, 0).watermark, look(&consumer, 0).finished), (50, 50));
    consumer.publish().unwrap();
    assert_eq!(store.load("p0").unwrap(), Some(50));
}

/// Locks of one consumer among others.
#[derive(Default)]
struct Locks {
    others: Mutex<BTreeSet<String>>,
    fails: AtomicBool,
    unlock_failures: AtomicU64,
    calls: AtomicU64,
    log: Mutex<Vec<String>>,
    stored: Option<Arc<MemoryStore>>,
}

impl PartitionLock for Locks {
    fn lock(&self, partition: &str) -> Result<bool, SourceError> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        if self.fails.load(Ordering::SeqCst) {
            return Err("no connection".into());
        }
        Ok(!self.others.lock().unwrap().contains(partition))
    }

    fn unlock(&self, partition: &str) -> Result<(), SourceError> {
        let stored = self.stored.as_ref().and_then(|store| store.load(partition).unwrap());
        self.log.lock().unwrap().push(format!("unlock {partition} at {stored:?}"));
        let fails = |left: u64| left.checked_sub(1);
        match self.unlock_failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fails) {
            Ok(_) => Err("no connection".into()),
            Err(_) => Ok(()),
        }
    }
}

fn locked(locks: &Arc<Locks>, store: &Arc<MemoryStore>, lengths: &[u64]) -> Builder<Arc<Script>> {
    Consumer::builder(Script::dense(lengths), Arc::clone(store)).lock(Arc::clone(locks))
}

/// Case 29: renewed at t, a lock is not expired at t + 30,000, and expired at t + 30,001.
#[test]
fn case_29_a_lock_lasts_thirty_seconds_from_its_renewal() {
    let locks = Arc::new(Locks::default());
    let store = Arc::default();
    let mut consumer = locked(&locks, &store, &[9]).concurrent(done).stepped().unwrap();
    pump(&mut consumer);
    assert!(look(&consumer, 0).locked);
    locks.fails.store(true, Ordering::SeqCst);
    consumer.advance(Duration::from_millis(30_000));
    assert!(look(&consumer, 0).locked);
    let before = consumer.begin_work().unwrap();
    consumer.advance(MS);
    assert!(!look(&consumer, 0).locked);
    assert!(consumer.begin_work().is_none(), "an expired lock refuses consumption");
    while consumer.tick() {}
    assert!(consumer.begin_pull("p0").is_none(), "and pulling");
    // What was begun before may end; nothing of it is published.
    before.run();
    consumer.publish().unwrap();
    assert_eq!(store.load("p0").unwrap(), None);
    locks.fails.store(false, Ordering::SeqCst);
    pass(&mut consumer, 20 * SECOND);
    // Begun anew where the store says.
    assert_eq!((settle(&mut consumer), look(&consumer, 0).watermark), (9, 9));
}

#[test]
fn locks_are_taken_at_once_and_renewed_every_twenty_seconds() {
    let locks = Arc::new(Locks::default());
    let mut consumer = locked(&locks, &Arc::default(), &[5, 5]).concurrent(done).stepped().unwrap();
    assert!(consumer.begin_pull("p0").is_none(), "without a lock nothing is pulled");
    pump(&mut consumer);
    assert_eq!(locks.calls.load(Ordering::SeqCst), 2);
    for renewals in 1..20 {
        pass(&mut consumer, 20 * SECOND - MS);
        assert_eq!(locks.calls.load(Ordering::SeqCst), 2 * renewals);
        pass(&mut consumer, MS);
        assert!(look(&consumer, 1).locked);
        assert_eq!(look(&consumer, 1).last_lock, Some(consumer.now()));
    }
    assert_eq!(settle(&mut consumer), 10);
}

/// The first pull after taking the lock starts from the published offset: the old owner may have
/// moved it.
#[test]
fn a_partition_begins_where_its_last_owner_published() {
    let locks = Arc::new(Locks::default());
    let store = Arc::new(MemoryStore::default());
    let mut consumer =
        locked(&locks, &store, &[100]).orderly(|_| Ordered::Success).stepped().unwrap();
    locks.others.lock().unwrap().insert("p0".into());
    pump(&mut consumer);
    assert!(!look(&consumer, 0).locked && consumer.begin_pull("p0").is_none());
    // The owner goes on, and goes.
    store.publish(&[("p0", 40)]).unwrap();
    locks.others.lock().unwrap().clear();
    consumer.advance(20 * SECOND);
    while consumer.tick() {}
    let pull = consumer.begin_pull("p0").unwrap();
    assert_eq!(pull.request().from, 40);
    consumer.pull(pull);
    assert_eq!(settle(&mut consumer), 60);
    // Lost to another, and back: again from there, also when that is further back.
    locks.others.lock().unwrap().insert("p0".into());
    pass(&mut consumer, 20 * SECOND);
    assert!(!look(&consumer, 0).locked);
    store.reset("p0", 95).unwrap();
    locks.others.lock().unwrap().clear();
    pass(&mut consumer, 20 * SECOND);
    assert_eq!((settle(&mut consumer), look(&consumer, 0).watermark), (5, 100));
}

/// Unlocked only after the watermark is published, and never when it is not; tries are counted.
#[test]
fn a_lock_is_given_back_after_the_watermark_is_published() {
    let store = Arc::new(MemoryStore::default());
    let locks = Arc::new(Locks { stored: Some(Arc::clone(&store)), ..Locks::default() });
    locks.unlock_failures.store(2, Ordering::SeqCst);
    let mut consumer = locked(&locks, &store, &[7, 3]).concurrent(done).stepped().unwrap();
    settle(&mut consumer);
    assert_eq!(store.load("p0").unwrap(), None);
    let released = consumer.assign(vec![Partition::new(1, "p1")]).unwrap();
    assert_eq!((released[0].published, released[0].unlock_tries), (7, 3));
    assert_eq!(*locks.log.lock().unwrap(), vec!["unlock p0 at Some(7)"; 3]);
    locks.unlock_failures.store(100, Ordering::SeqCst);
    let (reports, published) = consumer.shutdown();
    assert!(published.is_ok());
    // Tried three times, then left to run out.
    assert_eq!((reports[0].published, reports[0].unlock_tries), (3, 3));
}

#[test]
fn a_lock_whose_watermark_cannot_be_published_is_left_to_run_out() {
    let store = Arc::new(Fragile::default());
    let locks = Arc::new(Locks::default());
    let mut consumer = with_store(&Script::dense(&[7]), Arc::clone(&store))
        .lock(Arc::clone(&locks))
        .concurrent(done)
        .stepped()
        .unwrap();
    settle(&mut consumer);
    store.failures.store(100, Ordering::SeqCst);
    let (reports, published) = consumer.shutdown();
    assert!(published.is_err());
    assert_eq!((reports[0].watermark, reports[0].published, reports[0].unlock_tries), (7, 0, 0));
    assert!(locks.log.lock().unwrap().is_empty());
}

#[test]
fn a_lock_must_be_renewed_before_it_runs_out() {
    let locks = Arc::new(Locks::default());
    let late = locked(&locks, &Arc::default(), &[1]).lock_every(31 * SECOND).concurrent(done);
    assert!(matches!(late.start(), Err(StartError::Invalid { setting: "lock_every", .. })));
    let fine = locked(&locks, &Arc::default(), &[1])
        .lock_lease(40 * SECOND)
        .lock_every(31 * SECOND)
        .concurrent(done);
    assert!(fine.start().is_ok());
}

/// Locks are renewed, whatever the look after expired messages hangs in.
#[test]
fn locks_are_renewed_while_a_send_back_hangs() {
    struct Hangs(Arc<Door>);
    impl inflight::consumer::SendBack<u64> for Hangs {
        fn send_back(
            &self,
            _: &inflight::consumer::Failed<'_, u64>,
            _: inflight::consumer::DelayLevel,
        ) -> Result<(), SourceError> {
            self.0.pass();
            Ok(())
        }
        fn dead_letter(&self, _: &inflight::consumer::Failed<'_, u64>) -> Result<(), SourceError> {
            Ok(())
        }
    }
    let (broker, handler) = (Arc::new(Door::default()), Arc::new(Door::default()));
    let stand = Arc::clone(&handler);
    let locks = Arc::new(Locks::default());
    let consumer = locked(&locks, &Arc::default(), &[1])
        .lock_every(MS / 10)
        .expire_after(Duration::ZERO)
        .expire_every(MS / 10)
        .send_back(Hangs(Arc::clone(&broker)))
        .concurrent(move |_: &Batch<u64>| -> Outcome {
            stand.pass();
            Outcome::Done
        })
        .start()
        .unwrap();
    wait_until("sending back hangs", || broker.waiting.load(Ordering::SeqCst) == 1);
    let calls = locks.calls.load(Ordering::SeqCst);
    wait_until("locks are renewed", || locks.calls.load(Ordering::SeqCst) > calls + 10);
    broker.open();
    wait_until("it is sent back", || consumer.progress().partitions[0].watermark == 1);
    handler.open();
}

/// Case 39: unassigned while completions are on their way: after that has returned, nothing of the
/// assignment is published.
#[test]
fn case_39_nothing_of_a_released_partition_is_published() {
    for round in 0..200 {
        let store = Arc::new(Fragile::default());
        let source = Script::dense(&[1_000, 50]);
        let released = Arc::new(AtomicBool::new(false));
        let consumer = with_store(&source, Arc::clone(&store))
            .workers(3)
            .publish_every(Duration::from_micros(50))
            .concurrent(done)
            .start()
            .unwrap();
        wait_until("it runs", || consumer.progress().partitions[0].finished > round);
        let mine = vec![Partition::new(1, "p1")];
        let reports = consumer.assign(mine, FOREVER).unwrap();
        released.store(true, Ordering::SeqCst);
        let stored = store.load("p0").unwrap().unwrap_or(0);
        assert_eq!((reports[0].published, reports[0].watermark), (stored, stored));
        // It is another's now, which begins there and moves it. Nothing of ours interferes.
        assert!(consumer.wait_caught_up(FOREVER));
        assert_eq!(consumer.shutdown(FOREVER).unwrap().partitions.len(), 1);
        assert_eq!(store.load("p0").unwrap().unwrap_or(0), stored);
    }
}

/// The same, chosen by hand: the handler comes back when the partition is gone, and when it is
/// assigned again.
#[test]
fn case_39_a_completion_that_comes_too_late() {
    let store = Arc::new(MemoryStore::default());
    let mut consumer = Consumer::builder(Script::dense(&[4, 1]), Arc::clone(&store))
        .concurrent(done)
        .stepped()
        .unwrap();
    pump(&mut consumer);
    let late = consumer.begin_work().unwrap();
    let later = consumer.begin_work().unwrap();
    assert_eq!((late.partition(), later.partition()), ("p0", "p1"));
    let released = consumer.assign(vec![Partition::new(1, "p1")]).unwrap();
    assert_eq!((released[0].left, released[0].published), (4, 0));
    late.run();
    consumer.publish().unwrap();
    assert_eq!(store.load("p0").unwrap(), None);
    consumer.assign(vec![Partition::new(1, "p1"), Partition::new(0, "p0")]).unwrap();
    later.run();
    settle(&mut consumer);
    consumer.publish().unwrap();
    assert_eq!((store.load("p0").unwrap(), store.load("p1").unwrap()), (Some(4), Some(1)));
}

/// A partition that goes is drained up to the deadline: handlers that have its messages end, and
/// no more begin.
#[test]
fn a_partition_that_goes_is_drained() {
    let source = Script::dense(&[1_000]);
    let door = Arc::new(Door::default());
    let stand = Arc::clone(&door);
    let store = Arc::new(MemoryStore::default());
    let consumer = Arc::new(
        with_store(&source, Arc::clone(&store))
            .workers(3)
            .concurrent(move |_: &Batch<u64>| -> Outcome {
                stand.pass();
                Outcome::Done
            })
            .start()
            .unwrap(),
    );
    wait_until("three are held", || door.waiting.load(Ordering::SeqCst) == 3);
    let going = Arc::clone(&consumer);
    let released = std::thread::spawn(move || going.assign(Vec::new(), FOREVER).unwrap());
    wait_until("it is fenced", || consumer.progress().partitions.iter().all(|part| part.dropped));
    door.open();
    let released = released.join().unwrap();
    // Those three, and no more.
    assert_eq!((released[0].watermark, released[0].published), (3, 3));
    assert_eq!(store.load("p0").unwrap(), Some(3));
    assert!(consumer.progress().partitions.is_empty());
}

#[test]
fn a_partition_that_goes_is_not_waited_for_beyond_its_deadline() {
    let source = Script::dense(&[10]);
    let door = Arc::new(Door::default());
    let stand = Arc::clone(&door);
    let consumer = builder(&source)
        .workers(1)
        .concurrent(move |_: &Batch<u64>| -> Outcome {
            stand.pass();
            Outcome::Done
        })
        .start()
        .unwrap();
    wait_until("one is held", || door.waiting.load(Ordering::SeqCst) == 1);
    let released = consumer.assign(Vec::new(), MS).unwrap();
    assert_eq!((released[0].watermark, released[0].left), (0, 10));
    // Back, while the old handler still hangs: the new assignment has a life of its own.
    consumer.rebalance(MS).unwrap();
    door.open();
    assert!(consumer.wait_caught_up(FOREVER));
    assert_eq!(consumer.progress().partitions[0].finished, 10);
}

#[test]
fn an_assignment_that_cannot_be_made_changes_nothing() {
    let source = Script::dense(&[5, 5]);
    let consumer = builder(&source).concurrent(done).start().unwrap();
    let twice = vec![Partition::new(0, "p0"), Partition::new(1, "p0")];
    match consumer.assign(twice, FOREVER) {
        Err(AssignError::TwiceNamed(name)) => assert_eq!(name, "p0"),
        other => panic!("{other:?}"),
    }
    struct Broken;
    impl OffsetStore for Broken {
        fn load(&self, partition: &str) -> Result<Option<u64>, StoreError> {
            if partition == "p9" { Err(StoreError::Other("gone".into())) } else { Ok(None) }
        }
        fn publish(&self, _: &[(&str, u64)]) -> Result<(), StoreError> {
            Ok(())
        }
        fn reset(&self, _: &str, _: u64) -> Result<(), StoreError> {
            Ok(())
        }
    }
    let consumer = with_store(&source, Broken).concurrent(done).start().unwrap();
    let with_broken = vec![Partition::new(9, "p9")];
    assert!(matches!(consumer.assign(with_broken, FOREVER), Err(AssignError::Store(_))));
    assert_eq!(consumer.progress().partitions.len(), 2);
    assert!(consumer.wait_caught_up(FOREVER));
}

/// Case 40: the send-back callback panics or errs in one pass: the next pass runs.
#[test]
fn case_40_a_pass_survives_what_it_calls() {
    let post = Arc::new(Post::default());
    post.panics.store(3, Ordering::SeqCst);
    post.failures.store(1, Ordering::SeqCst);
    let source = Script::dense(&[2]);
    let door = Arc::new(Door::default());
    let stand = Arc::clone(&door);
    let consumer = builder(&source)
        .workers(2)
        .expire_after(Duration::ZERO)
        .expire_every(MS / 10)
        .send_back(Arc::clone(&post))
        .concurrent(move |_: &Batch<u64>| -> Outcome {
            stand.pass();
            Outcome::Done
        })
        .start()
        .unwrap();
    wait_until("both are sent back", || post.sent.lock().unwrap().len() == 2);
    wait_until("the watermark moves", || consumer.progress().partitions[0].watermark == 2);
    // Four passes came to nothing, two did not.
    assert_eq!(consumer.progress().partitions[0].expired, 6);
    door.open();
    assert_eq!(consumer.shutdown(FOREVER).unwrap().left(), 0);
}

#[test]
fn a_suspended_partition_pulls_and_handles_nothing() {
    let mut consumer =
        defaults(&Script::dense(&[50, 50])).pull_batch(10).concurrent(done).stepped().unwrap();
    let pull = consumer.begin_pull("p0").unwrap();
    consumer.pull(pull);
    assert!(!consumer.suspend("nothing"));
    assert!(consumer.suspend("p0"));
    pump(&mut consumer);
    // What was pulled before waits outside; nothing is handled; the other goes on.
    assert_eq!(settle(&mut consumer), 50);
    pass(&mut consumer, 1_000 * SECOND);
    assert_eq!((settle(&mut consumer), look(&consumer, 0).finished), (0, 0));
    assert!(consumer.resume("p0"));
    assert_eq!((settle(&mut consumer), look(&consumer, 0).watermark), (50, 50));
}

/// What was to be tried again while its partition was suspended is not lost.
#[test]
fn what_comes_due_while_suspended_is_handled_afterwards() {
    let keyed = |builder: Builder<Arc<Script>>| {
        let answer = |batch: &Batch<u64>| match batch.messages()[0].deliveries() {
            _ if RETRIES.fetch_add(1, Ordering::SeqCst) < 3 => Outcome::RetryAfter(SECOND),
            _ => Outcome::Done,
        };
        static RETRIES: AtomicU64 = AtomicU64::new(0);
        RETRIES.store(0, Ordering::SeqCst);
        builder.keyed(|value| *value, answer).stepped().unwrap()
    };
    let batched = |builder: Builder<Arc<Script>>| {
        static RETRIES: AtomicU64 = AtomicU64::new(0);
        let answer = |_: &Batch<u64>| match RETRIES.fetch_add(1, Ordering::SeqCst) {
            0..3 => Outcome::RetryAfter(SECOND),
            _ => Outcome::Done,
        };
        builder.batched(answer).stepped().unwrap()
    };
    let concurrent = |builder: Builder<Arc<Script>>| {
        builder
            .concurrent(|batch: &Batch<u64>| {
                batch.each(|held| match held.deliveries() {
                    1 => Verdict::RetryAfter(SECOND),
                    _ => Verdict::Done,
                })
            })
            .stepped()
            .unwrap()
    };
    for begin in [&keyed as &dyn Fn(Builder<Arc<Script>>) -> Steps, &batched, &concurrent] {
        let mut consumer = begin(defaults(&Script::dense(&[3])));
        assert_eq!(settle(&mut consumer), 3);
        consumer.suspend("p0");
        pass(&mut consumer, SECOND);
        assert_eq!((settle(&mut consumer), look(&consumer, 0).count), (0, 3));
        consumer.resume("p0");
        assert_eq!((settle(&mut consumer), look(&consumer, 0).watermark), (3, 3));
    }
}

#[test]
fn threads_go_on_after_each_pause() {
    let source = Script::dense(&[100_000]);
    let consumer = builder(&source).concurrent(done).start().unwrap();
    wait_until("it runs", || consumer.progress().partitions[0].finished > 100);
    for _ in 0..20 {
        consumer.suspend_all();
        assert!(consumer.progress().partitions[0].suspended);
        consumer.resume_all();
    }
    assert!(consumer.wait_caught_up(FOREVER));
    assert_eq!(consumer.progress().partitions[0].finished, 100_000);
}

/// Everything that RocketMQ's info on a queue gives.
#[test]
fn a_window_is_shown_as_it_slides() {
    let mut consumer = defaults(&Script::dense(&[6]))
        .concurrent(|batch: &Batch<u64>| match batch.messages()[0].offset() {
            0 | 2 if batch.messages()[0].deliveries() == 1 => Outcome::RetryAfter(MINUTE),
            _ => Outcome::Done,
        })
        .stepped()
        .unwrap();
    assert_eq!(consumer.picture("p0", 4).unwrap(), "0 ||");
    pump(&mut consumer);
    for _ in 0..3 {
        consumer.begin_work().unwrap().run();
    }
    assert_eq!(consumer.picture("p0", 8).unwrap(), "0 |h.hwww|");
    assert_eq!(consumer.picture("p0", 4).unwrap(), "0 |h.hw| +2");
    let work = consumer.begin_work().unwrap();
    assert_eq!(consumer.picture("p0", 8).unwrap(), "0 |h.hhww|");
    work.run();
    pass(&mut consumer, MINUTE);
    consumer.begin_work().unwrap().run();
    assert_eq!(consumer.picture("p0", 8).unwrap(), "2 |w.ww|");
    assert_eq!(consumer.picture("p1", 8), None);
}

#[test]
fn a_partition_shows_what_it_is_doing() {
    let source = Script::new(1, |_, request| {
        let from = request.from;
        Ok(match from {
            0..10 => {
                let offsets = (from..10).step_by(2);
                let messages = offsets.map(|offset| Fetched::new(offset, 100, offset)).collect();
                Pulled::Found { messages, next: 10 }
            }
            _ => Pulled::NothingNew,
        })
    });
    let mut consumer = defaults(&source).concurrent(done).stepped().unwrap();
    consumer.advance(5 * SECOND);
    pump(&mut consumer);
    consumer.advance(2 * SECOND);
    let works: Vec<_> = std::iter::from_fn(|| consumer.begin_work()).take(3).collect();
    let [first, second, _third]: [_; 3] = works.try_into().unwrap();
    second.run();
    consumer.advance(2 * SECOND);
    let look = look(&consumer, 0);
    assert_eq!((look.first, look.last, look.count, look.bytes), (Some(0), Some(8), 4, 400));
    assert_eq!((look.held, look.held_first, look.held_last), (2, Some(0), Some(4)));
    assert_eq!((look.watermark, look.published, look.end, look.span), (0, 0, 10, 10));
    assert_eq!((look.last_pull, look.last_consume), (Some(5 * SECOND), Some(7 * SECOND)));
    let head = look.head.unwrap();
    assert_eq!((head.offset, head.since), (0, Some(7_000)));
    assert_eq!(consumer.progress().now, 9 * SECOND);
    assert!(look.locked && !look.dropped && !look.suspended);
    drop(first);
}
