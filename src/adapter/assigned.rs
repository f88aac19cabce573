//! One partition of the consumer: its window, what may be admitted to it, and the place where its
//! puller waits for room, for news, or for a deadline.

use std::string::{String, ToString};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Instant;

use super::limits::Limits;
use super::source::Partition;
use crate::assignment::Assignment;
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
    /// Set while the puller waits for room.
    need: Need,
}

/// A partition while it is assigned to this consumer.
pub(crate) struct Assigned<W: Window> {
    pub(crate) partition: Partition,
    pub(crate) window: Arc<W>,
    pub(crate) limits: Limits,
    assignment: RwLock<Assignment<Arc<W>>>,
    gate: Mutex<Gate>,
    opened: Condvar,
    /// The puller waits for room, or is about to.
    throttled: AtomicBool,
    /// The stored offset. Changed only by those who publish.
    published: AtomicU64,
    /// The last pull found nothing beyond the end of the window, and no bell has rung since it
    /// began.
    at_tail: AtomicBool,
    pub(crate) counts: Counts,
    last_error: Mutex<Option<String>>,
}

/// What has happened to a partition since the start.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) finished: AtomicU64,
    pub(crate) retried: AtomicU64,
    pub(crate) given_up: AtomicU64,
    pub(crate) panics: AtomicU64,
    pub(crate) pulls: AtomicU64,
    pub(crate) pull_errors: AtomicU64,
    pub(crate) resets: AtomicU64,
}

/// Counts what has happened; only shown to people.
pub(crate) fn count(counter: &AtomicU64, n: usize) {
    counter.fetch_add(n as u64, Ordering::Relaxed);
}

impl<W: Window> Assigned<W> {
    pub(crate) fn new(partition: Partition, window: Arc<W>, start: u64, limits: Limits) -> Self {
        let assignment = RwLock::new(window.assign_owned(start));
        Self {
            partition,
            window,
            limits,
            assignment,
            gate: Mutex::default(),
            opened: Condvar::new(),
            throttled: AtomicBool::new(false),
            published: AtomicU64::new(start),
            at_tail: AtomicBool::new(false),
            counts: Counts::default(),
            last_error: Mutex::default(),
        }
    }

    /// The assignment in force.
    pub(crate) fn assignment(&self) -> Assignment<Arc<W>> {
        self.assignment.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Begins anew at an offset: everything of the old assignment is over.
    pub(crate) fn reassign(&self, start: u64) -> Assignment<Arc<W>> {
        let mut assignment = self.assignment.write().unwrap_or_else(PoisonError::into_inner);
        *assignment = self.window.assign_owned(start);
        assignment.clone()
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

    /// Waits until there is room; asks to `publish` when that would make some.
    pub(crate) fn wait_for_room(
        &self,
        part: &Assignment<Arc<W>>,
        need: Need,
        publish: &dyn Fn(),
    ) -> Woken {
        let mut gate = self.gate();
        gate.need = need;
        self.throttled.store(true, Ordering::Relaxed);
        // Pairs with the fence in `made_room`: either this sees what was finished, or the
        // finisher sees that somebody waits.
        fence(Ordering::SeqCst);
        let woken = loop {
            if gate.stopped {
                break Woken::Stop;
            }
            if self.has_room(part, need, publish) {
                break Woken::Go;
            }
            gate = self.opened.wait(gate).unwrap_or_else(PoisonError::into_inner);
        };
        self.throttled.store(false, Ordering::Relaxed);
        woken
    }

    /// Something may have been finished or published: wakes the puller if it waits for room and
    /// has it now.
    pub(crate) fn made_room(&self, publish: &dyn Fn()) {
        fence(Ordering::SeqCst);
        if self.throttled.load(Ordering::Relaxed) {
            // The lock: a puller that has looked for room is then waiting, and hears.
            let mut gate = self.gate();
            gate.turns += 1;
            if self.has_room(&self.assignment(), gate.need, publish) {
                self.opened.notify_one();
            }
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

    /// Waits until a worker has ended a turn since they were `seen`.
    pub(crate) fn wait_for_turn(&self, seen: u64) -> Woken {
        // Every turn tells: nothing is needed.
        self.gate().need = Need::default();
        let woken = self.wait(None, |gate| gate.turns != seen);
        self.throttled.store(false, Ordering::Relaxed);
        woken
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

    /// Waits until the bell was rung since it was `seen`, or until the deadline.
    pub(crate) fn wait_for_news(&self, seen: u64, until: Option<Instant>) -> Woken {
        self.wait(until, |gate| gate.news != seen)
    }

    /// Waits for a deadline.
    pub(crate) fn wait_until(&self, until: Instant) -> Woken {
        self.wait(Some(until), |_| false)
    }

    fn wait(&self, until: Option<Instant>, done: impl Fn(&Gate) -> bool) -> Woken {
        let mut gate = self.gate();
        loop {
            if gate.stopped {
                return Woken::Stop;
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if done(&gate) || left.is_some_and(|left| left.is_zero()) {
                return Woken::Go;
            }
            gate = match left {
                None => self.opened.wait(gate).unwrap_or_else(PoisonError::into_inner),
                Some(left) => {
                    self.opened.wait_timeout(gate, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// No more pulls begin.
    pub(crate) fn stop_intake(&self) {
        self.gate().stopped = true;
        self.opened.notify_one();
    }

    pub(crate) fn intake_stopped(&self) -> bool {
        self.gate().stopped
    }

    /// Is everything that the log had when it was last asked finished?
    pub(crate) fn caught_up(&self) -> bool {
        self.at_tail.load(Ordering::Acquire) && self.window.is_empty()
    }

    pub(crate) fn fault(&self, error: &dyn std::fmt::Display) {
        count(&self.counts.pull_errors, 1);
        *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
    }

    pub(crate) fn last_error(&self) -> Option<String> {
        self.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
