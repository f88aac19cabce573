//! One partition of the consumer: its window, what may be admitted to it, and the place where its
//! puller waits for room, for news, or for a deadline.

use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::string::{String, ToString};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;
use std::vec::Vec;

use super::limits::Limits;
use super::lock::Locked;
use super::pool::{Prepared, TurnState};
use super::source::Partition;
use super::time::Time;
use crate::assignment::Assignment;
use crate::batch::{Batches, BoxedBatchWatermark};
use crate::engine::{Meter, Space};
use crate::error::{Report, Stale};
use crate::flow::Usage;
use crate::shared::SharedLease;
use crate::window::Window;

/// What a puller that is at a limit waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Need {
    /// Room for so many messages ...
    pub(crate) count: usize,
    /// ... of so many bytes ...
    pub(crate) bytes: u64,
    /// ... below this offset.
    pub(crate) end: u64,
}

/// What may be admitted now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    pub(crate) count: usize,
    pub(crate) bytes: u64,
    /// Offsets below this.
    pub(crate) end: u64,
    /// Nothing is unfinished: one message may be admitted whatever its size and offset.
    pub(crate) empty: bool,
    /// Publishing now would make more room.
    pub(crate) stale: bool,
}

impl Room {
    pub(crate) fn has(&self, need: Need) -> bool {
        let fits = self.count >= need.count && self.bytes >= need.bytes && self.end >= need.end;
        fits || self.empty
    }
}

/// What a puller waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Nothing.
    Go,
    /// Room.
    Room(Need),
    /// A worker's turn that ended since so many had.
    Turn(u64),
    /// So much of the budget; or a time, since who else shares it may not tell.
    Budget(Usage, Duration),
    /// The bell, rung since it was rung so often; or a time.
    News(u64, Option<Duration>),
    /// A time.
    Until(Duration),
}

/// What a wait of the puller ended with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Woken {
    /// What it waited for.
    Go,
    /// The intake is stopped.
    Stop,
}

#[derive(Debug, Default)]
struct Gate {
    /// Bells rung so far.
    news: u64,
    /// Turns that workers have ended while the puller was throttled.
    turns: u64,
    stopped: bool,
    /// By whoever wants a pause.
    suspended: bool,
    /// The lock is another's, or nobody knows.
    locked_out: bool,
    /// Set while the puller waits for room.
    need: Need,
}

/// What has to be in order among the messages of one assignment that are held. The lock is held
/// while messages are taken, where their order matters.
pub(crate) struct Order<W: Window> {
    /// The keys that somebody is dealing with, each with later messages that wait for that.
    pub(crate) lanes: HashMap<u64, VecDeque<SharedLease<Arc<W>>>>,
    /// Handled, to be committed or given back by a later batch.
    pub(crate) kept: Vec<SharedLease<Arc<W>>>,
    /// Was to be dealt with while the partition was suspended.
    pub(crate) parked: Vec<Prepared<W>>,
}

/// One generation of the window, and what goes with it.
pub(crate) struct Current<W: Window> {
    pub(crate) part: Assignment<Arc<W>>,
    pub(crate) batches: Option<Batches<Arc<BoxedBatchWatermark>>>,
    order: Mutex<Order<W>>,
}

impl<W: Window> Current<W> {
    fn new(
        part: Assignment<Arc<W>>,
        batches: Option<Batches<Arc<BoxedBatchWatermark>>>,
    ) -> Arc<Self> {
        let order = Order { lanes: HashMap::new(), kept: Vec::new(), parked: Vec::new() };
        Arc::new(Self { part, batches, order: Mutex::new(order) })
    }

    pub(crate) fn order(&self) -> MutexGuard<'_, Order<W>> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets go of what is parked: it holds on to this generation, which holds on to it. Its leases
    /// give back what they have, unless the assignment has ended.
    pub(crate) fn forget(&self) {
        let parked = std::mem::take(&mut self.order().parked);
        drop(parked);
    }

    /// Below this everything is finished; none when the assignment has ended.
    pub(crate) fn safe(&self) -> Option<u64> {
        let of_window = || self.part.min_offset().ok().map(|next| next.get());
        let Some(batches) = &self.batches else { return of_window() };
        let value = batches.watermark().ok()?.get();
        match batches.head().ok()? {
            Some(_) => Some(value),
            // No batch is open: what the window passed beyond the last one was never handed out.
            None => of_window().map(|next| next.max(value)),
        }
    }
}

/// A partition while it is assigned to this consumer.
pub(crate) struct Assigned<W: Window> {
    pub(crate) partition: Partition,
    pub(crate) window: Arc<W>,
    pub(crate) limits: Limits,
    current: RwLock<Arc<Current<W>>>,
    batches: Option<Arc<BoxedBatchWatermark>>,
    gate: Mutex<Gate>,
    opened: Condvar,
    /// The puller waits for room, or is about to.
    throttled: AtomicBool,
    /// The stored offset. Changed only by those who publish.
    published: AtomicU64,
    /// The last pull found nothing beyond the end of the window, and no bell has rung since it
    /// began.
    at_tail: AtomicBool,
    /// Nothing of it is handed out any more ...
    fenced: AtomicBool,
    /// ... nor published.
    released: AtomicBool,
    /// What the run queue knows of it.
    pub(crate) turn: TurnState,
    pub(crate) locked: Mutex<Locked>,
    pub(crate) times: Times,
    /// The last offset that the pass over expired messages looked after.
    pub(crate) expired_to: AtomicU64,
    pub(crate) counts: Counts,
    /// Commits that have begun, and are not counted yet.
    finishing: AtomicUsize,
    last_error: Mutex<Option<String>>,
}

/// When things happened, in milliseconds since the start, plus one; 0 for never.
#[derive(Debug, Default)]
pub(crate) struct Times {
    /// The pull that is running was begun.
    pub(crate) pulling: Moment,
    pub(crate) pulled: Moment,
    pub(crate) consumed: Moment,
    /// It rests until then.
    pub(crate) rests: Moment,
}

#[derive(Debug, Default)]
pub(crate) struct Moment(AtomicU64);

impl Moment {
    pub(crate) fn set(&self, at: Duration) {
        self.0.store(super::time::tick(at).saturating_add(1), Ordering::Release);
    }

    pub(crate) fn clear(&self) {
        self.0.store(0, Ordering::Release);
    }

    pub(crate) fn get(&self) -> Option<Duration> {
        self.0.load(Ordering::Acquire).checked_sub(1).map(Duration::from_millis)
    }
}

/// What has happened to a partition since the start.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) finished: AtomicU64,
    pub(crate) filtered: AtomicU64,
    pub(crate) retried: AtomicU64,
    pub(crate) sent_back: AtomicU64,
    pub(crate) given_up: AtomicU64,
    pub(crate) reported: AtomicU64,
    pub(crate) expired: AtomicU64,
    pub(crate) panics: AtomicU64,
    pub(crate) pulls: AtomicU64,
    pub(crate) pull_errors: AtomicU64,
    pub(crate) resets: AtomicU64,
    pub(crate) rebuilt: AtomicU64,
}

/// Counts what has happened; only shown to people.
pub(crate) fn count(counter: &AtomicU64, n: usize) {
    counter.fetch_add(n as u64, Ordering::Relaxed);
}

impl<W: Window> Assigned<W> {
    pub(crate) fn new(
        partition: Partition,
        window: Arc<W>,
        start: u64,
        limits: Limits,
        batches: Option<Arc<BoxedBatchWatermark>>,
    ) -> Self {
        let numbers = batches.as_ref().map(|batches| batches.assign_owned(start));
        let current = Current::new(window.assign_owned(start), numbers);
        Self {
            partition,
            window,
            limits,
            current: RwLock::new(current),
            batches,
            gate: Mutex::default(),
            opened: Condvar::new(),
            throttled: AtomicBool::new(false),
            published: AtomicU64::new(start),
            at_tail: AtomicBool::new(false),
            fenced: AtomicBool::new(false),
            released: AtomicBool::new(false),
            turn: TurnState::default(),
            locked: Mutex::default(),
            times: Times::default(),
            expired_to: AtomicU64::new(0),
            counts: Counts::default(),
            finishing: AtomicUsize::new(0),
            last_error: Mutex::default(),
        }
    }

    /// The generation in force.
    pub(crate) fn current(&self) -> Arc<Current<W>> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Begins anew at an offset: everything of the old assignment is over.
    pub(crate) fn reassign(&self, start: u64) {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        let numbers = self.batches.as_ref().map(|batches| batches.assign_owned(start));
        let old = std::mem::replace(
            &mut *current,
            Current::new(self.window.assign_owned(start), numbers),
        );
        drop(current);
        old.forget();
    }

    /// Does the window span messages, not offsets? Each message put then widens the span by one,
    /// however far its offset lies from the last one's.
    pub(crate) fn spans_messages(&self, part: &Assignment<Arc<W>>) -> bool {
        part.part().numbered()
    }

    /// What may be admitted, seen from the one puller: others only make more room.
    pub(crate) fn room(&self, part: &Assignment<Arc<W>>) -> Room {
        // These first: ones that have moved since allow less than there is.
        let published = self.published();
        let watermark = part.watermark().map_or(0, |next| next.get());
        let usage = self.window.usage();
        let mut count = self.limits.count.saturating_sub(usage.count);
        let spanned = if self.spans_messages(part) {
            let left = self.limits.span.saturating_sub(self.window.span());
            count = count.min(usize::try_from(left).unwrap_or(usize::MAX));
            u64::MAX
        } else {
            watermark.saturating_add(self.limits.span)
        };
        let replayed = published.saturating_add(self.limits.replay);
        let stale = replayed < spanned && published < watermark;
        Room {
            count,
            bytes: self.limits.bytes.saturating_sub(usage.bytes),
            end: spanned.min(replayed),
            empty: usage.count == 0 && !stale,
            stale,
        }
    }

    /// The stored offset.
    pub(crate) fn published(&self) -> u64 {
        self.published.load(Ordering::Acquire)
    }

    /// This offset was stored.
    pub(crate) fn set_published(&self, offset: u64) {
        self.published.store(offset, Ordering::Release);
    }

    /// Nothing of it is published from now on. By those who publish.
    pub(crate) fn set_released(&self) {
        self.released.store(true, Ordering::Release);
    }

    pub(crate) fn is_released(&self) -> bool {
        self.released.load(Ordering::Acquire)
    }

    /// Is there room? When publishing would help, asks for that.
    fn has_room(&self, part: &Assignment<Arc<W>>, need: Need, publish: &dyn Fn()) -> bool {
        let room = self.room(part);
        let has = room.has(need);
        if !has && room.stale {
            publish();
        }
        has
    }

    fn gate(&self) -> MutexGuard<'_, Gate> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Is the wait over?
    fn over(
        &self,
        gate: &Gate,
        part: &Assignment<Arc<W>>,
        wait: Wait,
        time: &Time,
        publish: &dyn Fn(),
    ) -> Option<Woken> {
        if gate.stopped {
            return Some(Woken::Stop);
        }
        if gate.suspended || gate.locked_out {
            return None;
        }
        let passed = |until: Option<Duration>| until.is_some_and(|until| time.now() >= until);
        let over = match wait {
            Wait::Go => true,
            // An assignment that has ended has no room ever: its puller goes on, and finds out.
            Wait::Room(need) => part.watermark().is_err() || self.has_room(part, need, publish),
            Wait::Turn(seen) => gate.turns != seen || part.watermark().is_err(),
            Wait::News(seen, until) => {
                gate.news != seen || passed(until) || part.watermark().is_err()
            }
            Wait::Until(until) => passed(Some(until)),
            Wait::Budget(need, until) => {
                let has_room = || part.part().space.meter().room().covers(need);
                passed(Some(until)) || part.watermark().is_err() || has_room()
            }
        };
        over.then_some(Woken::Go)
    }

    /// Says that the puller is about to wait; true when its wait is for what workers do.
    fn begin_wait(&self, gate: &mut Gate, wait: Wait) -> bool {
        let need = match wait {
            Wait::Room(need) => need,
            // Every turn tells: nothing is needed.
            Wait::Turn(_) | Wait::Budget(..) => Need::default(),
            _ => return false,
        };
        gate.need = need;
        self.throttled.store(true, Ordering::Relaxed);
        // Pairs with the fence in `made_room`: either this sees what was finished, or the
        // finisher sees that somebody waits.
        fence(Ordering::SeqCst);
        true
    }

    /// Waits until the wait is over; asks to `publish` when that would make room.
    pub(crate) fn wait(
        &self,
        part: &Assignment<Arc<W>>,
        wait: Wait,
        time: &Time,
        publish: &dyn Fn(),
    ) -> Woken {
        let mut gate = self.gate();
        self.begin_wait(&mut gate, wait);
        let woken = loop {
            if let Some(woken) = self.over(&gate, part, wait, time, publish) {
                break woken;
            }
            let until = match wait {
                Wait::Until(until) | Wait::News(_, Some(until)) | Wait::Budget(_, until) => {
                    Some(until)
                }
                _ => None,
            };
            // While it is suspended no time ends the wait.
            gate = match until.filter(|_| !gate.suspended && !gate.locked_out) {
                None => self.opened.wait(gate).unwrap_or_else(PoisonError::into_inner),
                Some(until) => match time.left(until) {
                    None => gate,
                    Some(left) => {
                        let waited = self.opened.wait_timeout(gate, left);
                        waited.unwrap_or_else(PoisonError::into_inner).0
                    }
                },
            };
        };
        self.throttled.store(false, Ordering::Relaxed);
        woken
    }

    /// Is the wait over? For whoever does not wait here.
    pub(crate) fn is_over(
        &self,
        part: &Assignment<Arc<W>>,
        wait: Wait,
        time: &Time,
        publish: &dyn Fn(),
    ) -> Option<Woken> {
        let mut gate = self.gate();
        // Stays throttled: turns are counted, and nobody is woken in vain.
        self.begin_wait(&mut gate, wait);
        self.over(&gate, part, wait, time, publish)
    }

    /// Something may have been finished or published: wakes the puller if it waits for room and
    /// has it now.
    pub(crate) fn made_room(&self, publish: &dyn Fn()) {
        fence(Ordering::SeqCst);
        if self.throttled.load(Ordering::Relaxed) {
            // The lock: a puller that has looked for room is then waiting, and hears.
            let mut gate = self.gate();
            gate.turns += 1;
            if self.has_room(&self.current().part, gate.need, publish) {
                self.opened.notify_one();
            }
        }
    }

    /// Something of a shared budget is free again: the puller looks, if it waits for what others
    /// give back.
    pub(crate) fn look_again(&self) {
        if self.throttled.load(Ordering::Relaxed) {
            // The lock: a puller that has looked is then waiting, and hears.
            drop(self.gate());
            self.opened.notify_one();
        }
    }

    /// The window is full although there is room by its counts: something is still on its way out.
    /// From now on every worker's turn is counted; to be asked before the put is tried again.
    pub(crate) fn watch_turns(&self) -> u64 {
        let turns = self.gate().turns;
        self.throttled.store(true, Ordering::Relaxed);
        // Pairs with the fence in `made_room`: either the put that follows finds the way free, or
        // whoever frees it counts its turn.
        fence(Ordering::SeqCst);
        turns
    }

    /// How often the bell was rung; to be asked before the pull that may find nothing.
    pub(crate) fn news(&self) -> u64 {
        self.gate().news
    }

    /// The bell.
    pub(crate) fn ring(&self) {
        let mut gate = self.gate();
        gate.news += 1;
        self.at_tail.store(false, Ordering::Release);
        drop(gate);
        self.opened.notify_one();
    }

    /// A pull that began when so much `news` was known found the log's end.
    pub(crate) fn found_tail(&self, news: u64) {
        let gate = self.gate();
        self.at_tail.store(gate.news == news, Ordering::Release);
    }

    /// There is more.
    pub(crate) fn left_tail(&self) {
        self.at_tail.store(false, Ordering::Release);
    }

    /// No more pulls begin.
    pub(crate) fn stop_intake(&self) {
        self.gate().stopped = true;
        self.opened.notify_one();
    }

    pub(crate) fn intake_stopped(&self) -> bool {
        self.gate().stopped
    }

    /// No more pulls and no more handler calls begin, for good.
    pub(crate) fn fence(&self) {
        self.fenced.store(true, Ordering::Release);
        self.stop_intake();
    }

    pub(crate) fn is_fenced(&self) -> bool {
        self.fenced.load(Ordering::Acquire)
    }

    /// No more pulls and no more handler calls begin, until it is undone.
    pub(crate) fn suspend(&self, suspended: bool) {
        self.gate().suspended = suspended;
        self.opened.notify_one();
    }

    /// Nor while another has the lock.
    pub(crate) fn lock_out(&self, locked_out: bool) {
        self.gate().locked_out = locked_out;
        self.opened.notify_one();
    }

    pub(crate) fn is_suspended(&self) -> bool {
        self.gate().suspended
    }

    /// Wakes a puller that waits with an assignment that has ended.
    pub(crate) fn began_anew(&self) {
        drop(self.gate());
        self.opened.notify_one();
    }

    /// Is everything that the log had when it was last asked finished, and counted?
    pub(crate) fn caught_up(&self) -> bool {
        // Whoever finishes a message has said so before the window can be empty.
        self.at_tail.load(Ordering::Acquire)
            && self.window.is_empty()
            && self.finishing.load(Ordering::Acquire) == 0
    }

    /// Finishes messages by `commit`, and counts them. A panic in the drop of one ends nothing: it
    /// is finished, and counted as a panic.
    pub(crate) fn finish(&self, commit: impl FnOnce() -> Result<Report, Stale>) {
        // Relaxed: the commit publishes it, to whoever sees the window empty after it.
        self.finishing.fetch_add(1, Ordering::Relaxed);
        match catch_unwind(AssertUnwindSafe(commit)) {
            Ok(Ok(report)) => count(&self.counts.finished, report.applied),
            // The partition began anew, and these messages will come again.
            Ok(Err(Stale)) => {}
            Err(_) => count(&self.counts.panics, 1),
        }
        // Release: whoever reads none left also reads the counts.
        self.finishing.fetch_sub(1, Ordering::Release);
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Locked> {
        self.locked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn fault(&self, error: &dyn std::fmt::Display) {
        count(&self.counts.pull_errors, 1);
        *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
    }

    pub(crate) fn last_error(&self) -> Option<String> {
        self.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
