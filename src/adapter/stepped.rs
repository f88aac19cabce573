//! [`Stepped`]: a consumer without threads. Every step is a call, and its clock is moved by hand,
//! so that a test can choose every order of events, and a year takes no time.

use std::fmt;
use std::string::String;
use std::sync::Arc;
use std::time::Duration;
use std::vec::Vec;

use super::assigned::{Assigned, Wait, Woken};
use super::consumer::{PartitionReport, Progress};
use super::machine::Machine;
use super::pool;
use super::pull::{Puller, Step};
use super::running::Running;
use super::source::{Partition, PullRequest, Pulled, Source, SourceError};
use super::store::StoreError;
use super::table::AssignError;
use crate::window::Window;

/// A consumer whose every step is a call: made by [`Builder::stepped`](super::Builder::stepped).
///
/// It is the same machine as a [`Consumer`](super::Consumer) without the threads that drive that:
/// what those would do next is what [`Stepped::begin_pull`], [`Stepped::begin_work`] and
/// [`Stepped::tick`] do. A pull or a handler that takes its time is one whose second half is called
/// later; time goes on only by [`Stepped::advance`]. The calendar of
/// [`Builder::not_before`](super::Builder::not_before) begins at the Unix epoch.
///
/// ```
/// use std::time::Duration;
/// use inflight::consumer::{
///     Batch, Consumer, Fetched, MemoryStore, Outcome, Partition, PullRequest, Pulled, Source,
///     SourceError,
/// };
///
/// struct One;
///
/// impl Source for One {
///     type Message = &'static str;
///
///     fn partitions(&self) -> Result<Vec<Partition>, SourceError> {
///         Ok(vec![Partition::new(0, "one")])
///     }
///
///     fn pull(&self, _: &Partition, request: &PullRequest) -> Result<Pulled<&'static str>, SourceError> {
///         Ok(match request.from {
///             0 => Pulled::Found { messages: vec![Fetched::new(0, 5, "hello")], next: 1 },
///             _ => Pulled::NothingNew,
///         })
///     }
/// }
///
/// let mut consumer = Consumer::builder(One, MemoryStore::default())
///     .concurrent(|batch: &Batch<&str>| match batch.messages()[0].deliveries() {
///         1 => Outcome::RetryAfter(Duration::from_secs(3600)),
///         _ => Outcome::Done,
///     })
///     .stepped()?;
/// let pull = consumer.begin_pull("one").unwrap();
/// consumer.pull(pull);
/// // Its next step admits what was pulled, and asks for more.
/// let pull = consumer.begin_pull("one").unwrap();
/// consumer.pull(pull);
/// consumer.begin_work().unwrap().run();
/// assert!(consumer.begin_work().is_none());
/// consumer.advance(Duration::from_secs(3600));
/// while consumer.tick() {}
/// consumer.begin_work().unwrap().run();
/// assert_eq!(consumer.progress().partitions[0].watermark, 1);
/// # Ok::<(), inflight::consumer::StartError>(())
/// ```
pub struct Stepped<S: Source, W: Window<Value = S::Message> + Send + Sync + 'static> {
    running: Arc<Running<S, W>>,
    pullers: Vec<Pulling<S, W>>,
}

/// A puller and what it waits for; none while its pull is under way.
struct Pulling<S: Source, W: Window<Value = S::Message>> {
    puller: Puller<S, W>,
    wait: Option<Wait>,
}

/// A pull under way: to be answered.
#[must_use = "a pull that is not answered hangs"]
pub struct Pull<W: Window> {
    assigned: Arc<Assigned<W>>,
    request: PullRequest,
}

impl<W: Window> Pull<W> {
    /// The partition's name.
    pub fn partition(&self) -> &str {
        self.assigned.partition.name()
    }

    /// What is asked.
    pub fn request(&self) -> &PullRequest {
        &self.request
    }
}

impl<W: Window> fmt::Debug for Pull<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pull")
            .field("partition", &self.partition())
            .field("request", &self.request)
            .finish()
    }
}

/// Messages that are held for a handler. Dropped without [`Work::run`], they are given back, as when
/// a worker is lost.
#[must_use = "work that is dropped is given back"]
pub struct Work<S: Source, W: Window<Value = S::Message> + Send + Sync + 'static> {
    work: pool::Work<S, W>,
}

impl<S, W> Work<S, W>
where
    S: Source,
    W: Window<Value = S::Message> + Send + Sync + 'static,
{
    /// The partition's name.
    pub fn partition(&self) -> &str {
        self.work.prepared().map_or("", |prepared| prepared.assigned.partition.name())
    }

    /// The offsets of the messages.
    pub fn offsets(&self) -> Vec<u64> {
        let messages = self.work.prepared().map_or(&[][..], |held| held.lease.messages());
        messages.iter().map(|held| held.offset()).collect()
    }

    /// Calls the handler, and does what it says.
    pub fn run(self) {
        self.work.run();
    }
}

impl<S, W> fmt::Debug for Work<S, W>
where
    S: Source,
    W: Window<Value = S::Message> + Send + Sync + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Work")
            .field("partition", &self.partition())
            .field("offsets", &self.offsets())
            .finish()
    }
}

impl<S, W> Stepped<S, W>
where
    S: Source,
    W: Window<Value = S::Message> + Send + Sync + 'static,
{
    pub(crate) fn new(running: Arc<Running<S, W>>) -> Self {
        let mut stepped = Self { running, pullers: Vec::new() };
        stepped.take_on(stepped.running.assigned());
        stepped
    }

    fn take_on(&mut self, new: Vec<Arc<Assigned<W>>>) {
        self.pullers.extend(new.into_iter().map(|assigned| Pulling {
            puller: Puller::new(Arc::clone(&self.running), assigned),
            wait: Some(Wait::Go),
        }));
    }

    /// The time since the start.
    pub fn now(&self) -> Duration {
        self.running.time().now()
    }

    /// Moves the clock on. Nothing happens by itself: see [`Stepped::tick`].
    pub fn advance(&self, by: Duration) {
        self.running.time().advance(by);
    }

    /// When the next thing is due that [`Stepped::tick`] does, or that a puller waits for.
    pub fn next_due(&self) -> Option<Duration> {
        let now = self.now();
        let clock = self.running.clock.next();
        let keeper = self.running.keeper.next();
        let pullers = self.pullers.iter().filter_map(|pulling| match pulling.wait {
            Some(Wait::Until(until) | Wait::News(_, Some(until)) | Wait::Budget(_, until)) => {
                Some(until)
            }
            _ => None,
        });
        pullers.filter(|until| *until > now).chain(keeper).chain([clock]).min()
    }

    /// Does one thing that is due: gives messages back, publishes, looks after what expired, renews
    /// locks. False when nothing is due.
    pub fn tick(&mut self) -> bool {
        if let Ok(alarm) = self.running.clock.poll() {
            self.running.ring(alarm);
            return true;
        }
        let Some(duty) = self.running.keeper.poll(self.now()) else { return false };
        let new = self.running.keep(duty);
        self.take_on(new);
        true
    }

    /// Lets a partition's puller go on; the pull that it begins, if it need not wait.
    pub fn begin_pull(&mut self, partition: &str) -> Option<Pull<W>> {
        let mut begun = None;
        self.pullers.retain_mut(|pulling| {
            let Pulling { puller, wait } = pulling;
            if begun.is_some() || puller.assigned.partition.name() != partition {
                return true;
            }
            // A step at a time, until it pulls or really waits.
            while let Some(waits) = *wait {
                match puller.is_over(waits) {
                    None => return true,
                    Some(Woken::Stop) => return false,
                    Some(Woken::Go) => match puller.step() {
                        Step::Wait(next) => *wait = Some(next),
                        Step::Pull(request) => {
                            *wait = None;
                            let assigned = Arc::clone(&puller.assigned);
                            begun = Some(Pull { assigned, request });
                        }
                    },
                }
            }
            true
        });
        begun
    }

    /// Ends a pull with what the source says now.
    pub fn pull(&mut self, pull: Pull<W>) {
        let Some(pulling) = self.pulling(&pull) else { return };
        let pulled = pulling.puller.pull(&pull.request);
        pulling.wait = Some(pulling.puller.answer(pulled));
    }

    /// Ends a pull with this answer.
    pub fn answer(&mut self, pull: Pull<W>, answer: Result<Pulled<S::Message>, SourceError>) {
        let Some(pulling) = self.pulling(&pull) else { return };
        pulling.wait = Some(pulling.puller.answer(answer));
    }

    fn pulling(&mut self, pull: &Pull<W>) -> Option<&mut Pulling<S, W>> {
        let is =
            |pulling: &&mut Pulling<S, W>| Arc::ptr_eq(&pulling.puller.assigned, &pull.assigned);
        self.pullers.iter_mut().find(is)
    }

    /// What the next free worker would handle: taken, and held until it is run.
    pub fn begin_work(&self) -> Option<Work<S, W>> {
        while let Some(task) = self.running.queue.try_next() {
            if let Some(work) = pool::Work::begin(&self.running, task) {
                return Some(Work { work });
            }
        }
        None
    }

    /// As [`Consumer::progress`](super::Consumer::progress).
    pub fn progress(&self) -> Progress {
        Machine::progress(&*self.running)
    }

    /// As [`Consumer::publish`](super::Consumer::publish).
    ///
    /// # Errors
    /// The store's.
    pub fn publish(&self) -> Result<(), StoreError> {
        self.running.publish()
    }

    /// As [`Consumer::suspend`](super::Consumer::suspend).
    pub fn suspend(&self, partition: &str) -> bool {
        self.running.suspend(Some(partition), true)
    }

    /// As [`Consumer::resume`](super::Consumer::resume).
    pub fn resume(&self, partition: &str) -> bool {
        self.running.suspend(Some(partition), false)
    }

    /// As [`Consumer::assign`](super::Consumer::assign), waiting for nobody: handlers that have
    /// messages of a partition that goes are past the deadline at once.
    ///
    /// # Errors
    /// [`AssignError`].
    pub fn assign(
        &mut self,
        partitions: Vec<Partition>,
    ) -> Result<Vec<PartitionReport>, AssignError> {
        let (new, released) = self.running.assign(partitions, Duration::ZERO)?;
        self.take_on(new);
        Ok(released)
    }

    /// Ends it: publishes, and says what was left. Whoever still has work finds that it is over.
    /// Dropped instead, it ends as by a crash.
    pub fn shutdown(self) -> (Vec<PartitionReport>, Result<(), StoreError>) {
        self.running.stop_intake();
        self.running.stop_workers();
        self.running.stop_clock();
        self.running.clock.clear();
        self.running.end_all()
    }

    /// A picture of a partition's window: see [`Consumer::picture`](super::Consumer::picture).
    pub fn picture(&self, partition: &str, width: usize) -> Option<String> {
        self.running.picture(partition, width)
    }

    /// The partitions that are assigned.
    pub fn partitions(&self) -> Vec<String> {
        let assigned = self.running.assigned();
        assigned.iter().map(|assigned| assigned.partition.name().into()).collect()
    }
}

impl<S, W> fmt::Debug for Stepped<S, W>
where
    S: Source,
    W: Window<Value = S::Message> + Send + Sync + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stepped")
            .field("now", &self.now())
            .field("progress", &self.progress())
            .finish()
    }
}
