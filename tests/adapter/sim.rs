//! A world for a consumer that is stepped by hand: logs, a source, handlers, a store, locks and
//! a place to send messages back to, all with faults, and a ledger of what was really done. What
//! the consumer publishes is checked against the ledger at the moment it is published.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use inflight::Window;
use inflight::consumer::{
    Batch, Builder, Consumer, DelayLevel, Failed, Fetched, Limits, MemoryStore, OffsetStore,
    Ordered, Outcome, Partition, PartitionLock, Pull, PullRequest, Pulled, SendBack, Source,
    SourceError, Stepped, StoreError, Verdict, Work,
};

/// A repeatable source of numbers (splitmix64).
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let n = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        n ^ (n >> 31)
    }

    /// Below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.roll() % n
    }

    /// In so many of a hundred cases.
    pub fn percent(&mut self, n: u64) -> bool {
        self.below(100) < n
    }

    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len() as u64) as usize]
    }
}

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Letter {
    pub offset: u64,
    pub key: u64,
    /// Of this consumer's filter.
    pub wanted: bool,
    /// Seconds from the start.
    pub not_before: Option<u64>,
    /// Tries before it came here.
    pub tries: u32,
}

/// A log, and what became of its messages.
#[derive(Debug, Default)]
pub struct Log {
    /// What the source hands out, ascending.
    pub letters: Vec<Letter>,
    /// The log begins here ...
    pub low: u64,
    /// ... and ends here.
    pub end: u64,
    /// Was handled, sent back, given up, reported, or is not to be handled at all.
    dealt: BTreeSet<u64>,
    /// Was handled, and a later batch decides.
    kept: BTreeSet<u64>,
    /// Published last.
    stored: Option<u64>,
    /// May somebody publish it?
    owned: bool,
}

impl Log {
    fn done(&self, offset: u64) -> bool {
        self.dealt.contains(&offset) || self.kept.contains(&offset)
    }

    /// What the filter keeps out needs nobody.
    pub fn deal_unwanted(&mut self) {
        let unwanted = self.letters.iter().filter(|letter| !letter.wanted);
        self.dealt.extend(unwanted.map(|letter| letter.offset));
    }

    /// What was published last.
    pub fn stored(&self) -> u64 {
        self.stored.unwrap_or(0)
    }

    /// The lowest message that nobody has dealt with.
    pub fn undone(&self) -> Option<Letter> {
        self.letters.iter().find(|letter| !self.dealt.contains(&letter.offset)).copied()
    }
}

/// Which service is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Concurrent,
    Broadcast,
    Orderly,
    Manual,
    Keyed,
    Batched,
}

/// What was decided once for a scenario.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub mode: Mode,
    pub workers: usize,
    pub batch: usize,
    pub limits: Limits,
    pub count: usize,
    pub pull_batch: usize,
    pub locks: bool,
    pub sends_back: bool,
    pub gives_up: bool,
    /// Percent of calls that go wrong.
    pub faults: u64,
}

/// What surrounds the consumer.
pub struct World {
    pub plan: Plan,
    pub logs: Vec<Mutex<Log>>,
    dice: Mutex<Dice>,
    /// From now on nothing goes wrong.
    pub calm: AtomicBool,
    /// Partitions that another consumer has the lock of.
    pub taken: Mutex<BTreeSet<usize>>,
    kept: MemoryStore,
    /// What must not have happened. (A panic would be contained by the consumer.)
    broken: Mutex<Vec<String>>,
}

pub fn name(partition: usize) -> String {
    format!("p{partition}")
}

fn number(partition: &str) -> usize {
    partition[1..].parse().expect("a partition of this world")
}

impl World {
    pub fn new(plan: Plan, logs: Vec<Log>) -> Arc<Self> {
        let dice = Mutex::new(Dice::new(plan.seed ^ 0xfeed));
        Arc::new(Self {
            plan,
            logs: logs.into_iter().map(Mutex::new).collect(),
            dice,
            calm: AtomicBool::new(false),
            taken: Mutex::default(),
            kept: MemoryStore::default(),
            broken: Mutex::default(),
        })
    }

    pub fn log(&self, partition: usize) -> MutexGuard<'_, Log> {
        self.logs[partition].lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn must(&self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.broken.lock().unwrap().push(what());
        }
    }

    /// Fails if something must not have happened.
    pub fn check(&self) {
        let broken = self.broken.lock().unwrap();
        assert!(broken.is_empty(), "seed {}: {broken:#?}\n{:?}", self.plan.seed, self.plan);
    }

    /// Does something go wrong now?
    fn fault(&self) -> bool {
        !self.calm.load(Ordering::SeqCst) && self.dice.lock().unwrap().percent(self.plan.faults)
    }

    fn roll(&self, n: u64) -> u64 {
        self.dice.lock().unwrap().below(n)
    }

    /// Whether a partition may be published.
    pub fn own(&self, partition: usize, owned: bool) {
        self.log(partition).owned = owned;
    }

    /// Another consumer deals with everything below, and publishes.
    pub fn other_consumes(&self, partition: usize, to: u64) {
        let mut log = self.log(partition);
        let below: Vec<_> =
            log.letters.iter().map(|letter| letter.offset).filter(|o| *o < to).collect();
        log.dealt.extend(below);
        let stored = log.stored.unwrap_or(0).max(to);
        log.stored = Some(stored);
        self.kept.publish(&[(&name(partition), stored)]).unwrap();
    }

    /// Retention: the log begins at `low` now. What is gone needs nobody any more.
    pub fn cut(&self, partition: usize, low: u64) {
        let mut log = self.log(partition);
        log.low = low;
        let gone: Vec<_> =
            log.letters.iter().map(|letter| letter.offset).filter(|o| *o < low).collect();
        log.dealt.extend(gone);
    }

    /// Publishes, as the consumer does.
    pub fn publish(self: &Arc<Self>, partition: usize, offset: u64) {
        Store(Arc::clone(self)).publish(&[(&name(partition), offset)]).unwrap();
    }

    /// Handles one message, whatever was before it.
    pub fn handle_one(&self, partition: usize, offset: u64) {
        let log = self.log(partition);
        let letter = log.letters.iter().find(|letter| letter.offset == offset).copied();
        drop(log);
        self.check_order(&name(partition), &letter.expect("there"));
    }

    /// What the source says, unless something goes wrong.
    pub fn truth(&self, partition: usize, request: &PullRequest) -> Pulled<Letter> {
        let log = self.log(partition);
        if request.from < log.low {
            return Pulled::IllegalOffset { correct: log.low };
        }
        if request.from >= log.end {
            return Pulled::NothingNew;
        }
        let asked = 1 + self.roll(request.messages as u64) as usize;
        let found: Vec<_> = log
            .letters
            .iter()
            .filter(|letter| letter.offset >= request.from)
            .take(asked)
            .map(|letter| Fetched::new(letter.offset, 1, *letter))
            .collect();
        match found.last() {
            None => Pulled::NothingMatched { next: log.end },
            // A hole may be skipped at once or by the next pull.
            Some(last) => Pulled::Found { next: last.offset + 1, messages: found },
        }
    }

    /// A message was dealt with.
    fn deal(&self, partition: &str, letter: &Letter) {
        let mut log = self.log(number(partition));
        log.kept.remove(&letter.offset);
        log.dealt.insert(letter.offset);
    }

    /// Where there is an order, what comes before must be dealt with.
    fn check_order(&self, partition: &str, letter: &Letter) {
        let keyed = match self.plan.mode {
            Mode::Orderly | Mode::Manual => false,
            Mode::Keyed => true,
            _ => return,
        };
        let log = self.log(number(partition));
        for earlier in log.letters.iter().take_while(|earlier| earlier.offset < letter.offset) {
            let done = log.done(earlier.offset) || (keyed && earlier.key != letter.key);
            self.must(done, || {
                format!("{partition} {} was handled before {}", letter.offset, earlier.offset)
            });
        }
    }

    fn handle(&self, batch: &Batch<'_, Letter>) -> Outcome {
        if self.fault() && self.roll(3) == 0 {
            resume_unwind(Box::new("planted"));
        }
        let mut stopped = false;
        batch.each(|held| {
            let letter = held.value();
            self.must(letter.offset == held.offset(), || format!("{held:?}"));
            self.must(letter.wanted, || format!("{held:?} was filtered"));
            if stopped {
                return Verdict::Retry;
            }
            self.check_order(batch.partition(), letter);
            if !self.fault() {
                self.deal(batch.partition(), letter);
                return Verdict::Done;
            }
            // In order: nothing after one that failed.
            stopped = self.plan.mode == Mode::Keyed;
            match self.roll(5) {
                0 => Verdict::SendBack(DelayLevel::AUTO),
                1 => Verdict::SendBack(DelayLevel::new(2)),
                2 => Verdict::RetryAfter(Duration::from_millis(self.roll(20_000))),
                3 => Verdict::GiveUp,
                _ => Verdict::Retry,
            }
        })
    }

    fn handle_ordered(&self, batch: &Batch<'_, Letter>) -> Ordered {
        let fault = self.fault();
        if fault && self.roll(3) == 0 {
            resume_unwind(Box::new("planted"));
        }
        self.check_order(batch.partition(), batch.messages()[0].value());
        let mut log = self.log(number(batch.partition()));
        let these = batch.iter().map(|(offset, _)| offset);
        let calm = self.calm.load(Ordering::SeqCst);
        match (fault, self.plan.mode) {
            (false, Mode::Manual) if !calm && self.roll(3) > 0 => {
                log.kept.extend(these);
                Ordered::Success
            }
            (false, _) => {
                let mut kept = std::mem::take(&mut log.kept);
                log.dealt.append(&mut kept);
                log.dealt.extend(these);
                if self.roll(2) == 0 || self.plan.mode == Mode::Manual {
                    Ordered::Commit
                } else {
                    Ordered::Success
                }
            }
            (true, Mode::Manual) if self.roll(2) == 0 => {
                log.kept.clear();
                Ordered::Rollback
            }
            (true, _) => match self.roll(3) {
                0 => Ordered::Suspend(Some(Duration::from_secs(self.roll(100)))),
                1 => Ordered::Suspend(Some(Duration::ZERO)),
                _ => Ordered::Suspend(None),
            },
        }
    }

    fn may_fail(&self) -> Result<(), SourceError> {
        match self.fault().then(|| self.roll(3)) {
            None => Ok(()),
            Some(0) => resume_unwind(Box::new("planted")),
            Some(_) => Err("planted".into()),
        }
    }

    pub fn partition(id: usize) -> Partition {
        Partition::new(id, name(id))
    }

    /// A consumer in this world.
    pub fn builder(self: &Arc<Self>) -> Builder<Arc<Self>> {
        let plan = self.plan.clone();
        let world = || Arc::clone(self);
        let mut builder = Consumer::builder(world(), Store(world()))
            .workers(plan.workers)
            .batch(plan.batch)
            .limits(plan.limits)
            .pull_batch(plan.pull_batch)
            .max_attempts(4)
            .expire_after(Duration::from_secs(100))
            .expire_every(Duration::from_secs(7))
            .filter(|letter| letter.wanted)
            .not_before(|letter| {
                let after = Duration::from_secs(letter.not_before?);
                Some(SystemTime::UNIX_EPOCH + after)
            })
            .attempts(|letter| letter.tries);
        if plan.sends_back {
            builder = builder.send_back(Post(world()));
        }
        if plan.gives_up {
            let world = world();
            builder = builder.give_up_after(3, move |failed| {
                world.may_fail()?;
                world.deal(failed.partition(), failed.value());
                Ok(())
            });
        }
        if plan.locks {
            builder = builder.lock(Table(world()));
        }
        let world = world();
        match plan.mode {
            Mode::Concurrent => builder.concurrent(move |batch| world.handle(batch)),
            Mode::Broadcast => {
                let told = Arc::clone(&world);
                let report = move |failed: &Failed<'_, Letter>| {
                    told.deal(failed.partition(), failed.value());
                };
                builder.broadcast(report).concurrent(move |batch| world.handle(batch))
            }
            Mode::Orderly => builder.orderly(move |batch| world.handle_ordered(batch)),
            Mode::Manual => {
                builder.manual_commit().orderly(move |batch| world.handle_ordered(batch))
            }
            Mode::Keyed => builder.keyed(|letter| letter.key, move |batch| world.handle(batch)),
            Mode::Batched => builder.batched(move |batch| world.handle(batch)),
        }
    }
}

impl Source for World {
    type Message = Letter;

    fn partitions(&self) -> Result<Vec<Partition>, SourceError> {
        Ok((0..self.logs.len()).map(Self::partition).collect())
    }

    fn pull(&self, of: &Partition, request: &PullRequest) -> Result<Pulled<Letter>, SourceError> {
        assert!(request.messages >= 1 && request.bytes >= 1);
        Ok(self.truth(of.id(), request))
    }
}

/// Checks what is published.
struct Store(Arc<World>);

impl OffsetStore for Store {
    fn load(&self, partition: &str) -> Result<Option<u64>, StoreError> {
        self.0.kept.load(partition)
    }

    fn publish(&self, offsets: &[(&str, u64)]) -> Result<(), StoreError> {
        if self.0.fault() {
            return Err(StoreError::Other("planted".into()));
        }
        for &(partition, offset) in offsets {
            let mut log = self.0.log(number(partition));
            let must = |holds, what| self.0.must(holds, || format!("{partition} {offset} {what}"));
            must(log.owned, "was published after it was released".into());
            let stored = log.stored();
            must(offset >= stored, format!("was published after {stored}"));
            let undone = log.undone().map_or(u64::MAX, |undone| undone.offset);
            must(offset <= undone, format!("was published above {undone}"));
            must(offset <= log.end, "is beyond the log".into());
            log.stored = Some(offset);
        }
        self.0.kept.publish(offsets)
    }

    fn reset(&self, partition: &str, offset: u64) -> Result<(), StoreError> {
        if self.0.fault() {
            return Err(StoreError::Other("planted".into()));
        }
        self.0.log(number(partition)).stored = Some(offset);
        self.0.kept.reset(partition, offset)
    }
}

/// Where messages are sent back to.
struct Post(Arc<World>);

impl SendBack<Letter> for Post {
    fn send_back(&self, failed: &Failed<'_, Letter>, _: DelayLevel) -> Result<(), SourceError> {
        self.0.may_fail()?;
        self.0.deal(failed.partition(), failed.value());
        Ok(())
    }

    fn dead_letter(&self, failed: &Failed<'_, Letter>) -> Result<(), SourceError> {
        self.send_back(failed, DelayLevel::AUTO)
    }
}

/// Who has which lock.
struct Table(Arc<World>);

impl PartitionLock for Table {
    fn lock(&self, partition: &str) -> Result<bool, SourceError> {
        self.0.may_fail()?;
        Ok(!self.0.taken.lock().unwrap().contains(&number(partition)))
    }

    fn unlock(&self, _: &str) -> Result<(), SourceError> {
        self.0.may_fail()
    }
}

/// A consumer in its world, with what is under way.
pub struct Life<W: Window<Value = Letter> + Send + Sync + 'static> {
    pub world: Arc<World>,
    pub consumer: Stepped<Arc<World>, W>,
    pub pulls: Vec<Pull<W>>,
    pub works: Vec<Work<Arc<World>, W>>,
}

impl<W: Window<Value = Letter> + Send + Sync + 'static> Life<W> {
    pub fn new(world: &Arc<World>, consumer: Stepped<Arc<World>, W>) -> Self {
        for partition in 0..world.logs.len() {
            world.own(partition, true);
        }
        Self { world: Arc::clone(world), consumer, pulls: Vec::new(), works: Vec::new() }
    }

    /// One step of each that can make one, ends of what is under way first. True when there was
    /// something to do.
    pub fn step_all(&mut self) -> bool {
        let mut busy = false;
        for work in std::mem::take(&mut self.works) {
            work.run();
            busy = true;
        }
        for pull in std::mem::take(&mut self.pulls) {
            self.consumer.pull(pull);
            busy = true;
        }
        for partition in 0..self.world.logs.len() {
            self.pulls.extend(self.consumer.begin_pull(&name(partition)));
        }
        while let Some(work) = self.consumer.begin_work() {
            self.works.push(work);
        }
        while self.consumer.tick() {
            busy = true;
        }
        busy || !self.pulls.is_empty() || !self.works.is_empty()
    }

    /// Nothing goes wrong any more: everything is consumed, whatever happened before.
    pub fn finish(mut self) {
        let seed = self.world.plan.seed;
        self.world.calm.store(true, Ordering::SeqCst);
        self.world.taken.lock().unwrap().clear();
        let all = 0..self.world.logs.len();
        all.clone().for_each(|partition| self.world.own(partition, true));
        self.consumer.assign(all.clone().map(World::partition).collect()).unwrap();
        all.clone().for_each(|partition| {
            assert!(self.consumer.resume(&name(partition)));
        });
        let consumed = |life: &Self| {
            let progress = life.consumer.progress();
            progress.partitions.iter().all(|part| {
                let log = life.world.log(number(&part.name));
                // Published, too: by the clock, and while the lock is held.
                let settled = part.count == 0 && part.published == part.watermark;
                settled && part.watermark == log.end.max(log.stored.unwrap_or(0))
            })
        };
        let mut rounds = 0;
        while !consumed(&self) {
            rounds += 1;
            if rounds == 20_000 {
                for (part, log) in self.consumer.progress().partitions.iter().zip(&self.world.logs)
                {
                    eprintln!("{part:?}\n{log:?}");
                }
                panic!("seed {seed}: stuck; {:?}", self.world.plan);
            }
            if !self.step_all() {
                let due = self.consumer.next_due().expect("publishing is always due");
                let now = self.consumer.now();
                self.consumer.advance(due.saturating_sub(now).max(Duration::from_millis(1)));
            }
        }
        self.world.check();
        let progress = self.consumer.progress();
        let mut ends = BTreeMap::new();
        for part in &progress.partitions {
            assert_eq!((part.count, part.bytes, part.held), (0, 0, 0), "seed {seed}");
            ends.insert(part.name.clone(), part.watermark);
        }
        for partition in all {
            let log = self.world.log(partition);
            assert_eq!(log.undone(), None, "seed {seed}: lost in {}", name(partition));
            let end = ends[&name(partition)];
            assert_eq!(log.stored.unwrap_or(0), end, "seed {seed}: {}", name(partition));
        }
        let (reports, published) = self.consumer.shutdown();
        assert!(published.is_ok() && reports.iter().all(|report| report.left == 0));
    }
}

/// How many messages a partition may have in flight at once.
pub fn within_limits<W>(life: &Life<W>)
where
    W: Window<Value = Letter> + Send + Sync + 'static,
{
    life.world.check();
    for part in life.consumer.progress().partitions {
        assert!(part.count <= life.world.plan.count, "seed {}: {part:?}", life.world.plan.seed);
        assert!(part.published <= part.watermark, "seed {}: {part:?}", life.world.plan.seed);
    }
}
