//! Sources whose answers a test scripts, stores that fail on demand, and waiting for something to
//! become true without naming a time by which it must.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use inflight::consumer::{
    Backoff, Builder, Consumer, Fetched, MemoryStore, News, OffsetStore, Partition, PullRequest,
    Pulled, Source, SourceError, StoreError,
};

/// A test that waits so long has found a lost wake-up.
pub const FOREVER: Duration = Duration::from_secs(30);

/// Waits until it holds.
pub fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < FOREVER, "waited in vain until {what}");
        std::thread::yield_now();
    }
}

/// A door that handlers wait at.
#[derive(Default)]
pub struct Door {
    open: Mutex<bool>,
    opened: std::sync::Condvar,
    pub waiting: AtomicUsize,
}

impl Door {
    pub fn pass(&self) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut open = self.open.lock().unwrap();
        while !*open {
            open = self.opened.wait(open).unwrap();
        }
        drop(open);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }

    pub fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.opened.notify_all();
    }
}

type Answer = dyn Fn(&Partition, &PullRequest) -> Result<Pulled<u64>, SourceError> + Send + Sync;

/// A source that answers what a closure says. Checks that each partition has one pull at a time.
pub struct Script {
    partitions: Vec<Partition>,
    pulling: Vec<AtomicBool>,
    pub pulls: AtomicU64,
    pub news: Mutex<Option<News>>,
    answer: Box<Answer>,
}

impl Script {
    pub fn new(
        partitions: usize,
        answer: impl Fn(&Partition, &PullRequest) -> Result<Pulled<u64>, SourceError>
        + Send
        + Sync
        + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            partitions: (0..partitions).map(|id| Partition::new(id, format!("p{id}"))).collect(),
            pulling: (0..partitions).map(|_| AtomicBool::new(false)).collect(),
            pulls: AtomicU64::new(0),
            news: Mutex::default(),
            answer: Box::new(answer),
        })
    }

    /// A log of `lengths` messages, one partition for each; a message is its offset, 1 byte large.
    pub fn dense(lengths: &[u64]) -> Arc<Self> {
        let lengths = lengths.to_vec();
        Self::new(lengths.len(), move |partition, request| {
            Ok(dense(request, lengths[partition.id()]))
        })
    }

    pub fn ring(&self) {
        self.news.lock().unwrap().as_ref().expect("subscribed").came_to_all();
    }
}

/// What a log of `length` messages answers.
pub fn dense(request: &PullRequest, length: u64) -> Pulled<u64> {
    let next = length.min(request.from + request.messages as u64);
    if next <= request.from {
        return Pulled::NothingNew;
    }
    let messages = (request.from..next).map(|offset| Fetched::new(offset, 1, offset)).collect();
    Pulled::Found { messages, next }
}

impl Source for Script {
    type Message = u64;

    fn partitions(&self) -> Result<Vec<Partition>, SourceError> {
        Ok(self.partitions.clone())
    }

    fn pull(
        &self,
        partition: &Partition,
        request: &PullRequest,
    ) -> Result<Pulled<u64>, SourceError> {
        let pulling = &self.pulling[partition.id()];
        assert!(!pulling.swap(true, Ordering::SeqCst), "two pulls at once");
        let _done = Done(pulling);
        self.pulls.fetch_add(1, Ordering::SeqCst);
        assert!(request.messages >= 1 && request.bytes >= 1);
        (self.answer)(partition, request)
    }

    fn subscribe(&self, news: News) -> bool {
        *self.news.lock().unwrap() = Some(news);
        true
    }
}

struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

/// A store in memory that fails the next `failures` publishes, and counts all.
#[derive(Default)]
pub struct Fragile {
    pub kept: MemoryStore,
    pub failures: AtomicU64,
    pub publishes: AtomicU64,
}

impl OffsetStore for Fragile {
    fn load(&self, partition: &str) -> Result<Option<u64>, StoreError> {
        self.kept.load(partition)
    }

    fn publish(&self, offsets: &[(&str, u64)]) -> Result<(), StoreError> {
        self.publishes.fetch_add(1, Ordering::SeqCst);
        let fails = |left: u64| left.checked_sub(1);
        if self.failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fails).is_ok() {
            return Err(StoreError::Other("the disk is full".into()));
        }
        self.kept.publish(offsets)
    }

    fn reset(&self, partition: &str, offset: u64) -> Result<(), StoreError> {
        self.kept.reset(partition, offset)
    }
}

/// A consumer of a script that retries at once and publishes only when it is told to.
pub fn builder(source: &Arc<Script>) -> Builder<Arc<Script>> {
    with_store(source, MemoryStore::default())
}

pub fn with_store(source: &Arc<Script>, store: impl OffsetStore) -> Builder<Arc<Script>> {
    Consumer::builder(Arc::clone(source), store)
        .workers(4)
        .backoff(Backoff::new(Duration::ZERO, Duration::ZERO))
        .resend_after(Duration::ZERO)
        .pull_retry(Duration::ZERO)
        .publish_every(Duration::from_secs(3600))
}

/// How often each message was handled.
#[derive(Default)]
pub struct Tally(Mutex<std::collections::BTreeMap<(String, u64), u32>>);

impl Tally {
    pub fn count(&self, partition: &str, offset: u64) {
        *self.0.lock().unwrap().entry((partition.into(), offset)).or_default() += 1;
    }

    /// Every message of `0..length` exactly once.
    pub fn assert_once(&self, partition: &str, length: u64) {
        let tally = self.0.lock().unwrap();
        let of: Vec<_> = tally.iter().filter(|((name, _), _)| name == partition).collect();
        assert_eq!(of.len() as u64, length, "messages of {partition}");
        for (index, ((_, offset), times)) in of.into_iter().enumerate() {
            assert_eq!((*offset, *times), (index as u64, 1), "offset and handlings");
        }
    }

    pub fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

/// A consumer of a script, stepped by hand.
pub type Steps = inflight::consumer::Stepped<Arc<Script>, inflight::consumer::DefaultWindow<u64>>;

/// Pulls all that there is and does all that is due, without handling anything and without moving
/// the clock.
pub fn pump(consumer: &mut Steps) {
    loop {
        let mut busy = false;
        for partition in consumer.partitions() {
            while let Some(pull) = consumer.begin_pull(&partition) {
                consumer.pull(pull);
                busy = true;
            }
        }
        while consumer.tick() {
            busy = true;
        }
        if !busy {
            return;
        }
    }
}

/// As [`pump`], handling all that can be handled now; how many handler calls that were.
pub fn settle(consumer: &mut Steps) -> usize {
    let mut calls = 0;
    loop {
        pump(consumer);
        let Some(work) = consumer.begin_work() else { return calls };
        work.run();
        calls += 1;
    }
}

/// Moves the clock, and does what is due then.
pub fn pass(consumer: &mut Steps, time: Duration) {
    consumer.advance(time);
    pump(consumer);
}

/// How a partition is.
pub fn look(consumer: &Steps, partition: usize) -> inflight::consumer::PartitionProgress {
    consumer.progress().partitions.remove(partition)
}

/// Where messages are sent back to: notes them, and fails or panics when it is told to.
#[derive(Default)]
pub struct Post {
    pub sent: Mutex<Vec<(u64, u32, u8)>>,
    pub dead: Mutex<Vec<(u64, u32)>>,
    pub failures: AtomicU64,
    pub panics: AtomicU64,
}

impl Post {
    fn may_fail(&self) -> Result<(), SourceError> {
        let fails = |left: u64| left.checked_sub(1);
        let take = |of: &AtomicU64| of.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fails);
        if take(&self.panics).is_ok() {
            std::panic::resume_unwind(Box::new("a panicking broker"));
        }
        take(&self.failures).map_or(Ok(()), |_| Err("no connection".into()))
    }
}

impl inflight::consumer::SendBack<u64> for Post {
    fn send_back(
        &self,
        failed: &inflight::consumer::Failed<'_, u64>,
        delay: inflight::consumer::DelayLevel,
    ) -> Result<(), SourceError> {
        self.may_fail()?;
        let level = delay.level(failed.attempts());
        self.sent.lock().unwrap().push((failed.offset(), failed.attempts(), level));
        Ok(())
    }

    fn dead_letter(&self, failed: &inflight::consumer::Failed<'_, u64>) -> Result<(), SourceError> {
        self.may_fail()?;
        self.dead.lock().unwrap().push((failed.offset(), failed.attempts()));
        Ok(())
    }
}
