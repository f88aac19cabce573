//! The loop that fills one window: looks for room, pulls what there is room for, admits it.
//!
//! What was pulled and does not fit (a message larger than the room, an offset too far ahead)
//! waits here, outside the window, and is admitted before the next pull. It is lost with the
//! process like everything that was never admitted: the next start pulls it again.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::string::String;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::assigned::{Assigned, Need, Room, Wait, Woken, count};
use super::running::Running;
use super::source::{Fetched, PullRequest, Pulled, Source, SourceError};
use crate::assignment::Assignment;
use crate::budget::Permit;
use crate::engine::{Meter, Space};
use crate::error::{PutErrorKind, ReserveError};
use crate::flow::Usage;
use crate::window::Window;

/// Sizes beyond this count as this: more than a window can count for one message.
const LARGEST: usize = if usize::BITS == 32 { 1 << 24 } else { u32::MAX as usize };

/// What a source's answer contradicts.
#[derive(Debug)]
enum Nonsense {
    NotAscending { offset: u64 },
    NextNotAbove { next: u64 },
}

impl fmt::Display for Nonsense {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAscending { offset } => {
                write!(f, "the source answered offset {offset} out of order; nothing was taken")
            }
            Self::NextNotAbove { next } => {
                write!(f, "the source answered {next} as next, which is not above what it answered")
            }
        }
    }
}

/// Pulled and not admitted yet.
struct Pulling<T> {
    messages: VecDeque<Fetched<T>>,
    /// Everything below it is in `messages`, was admitted, or does not exist.
    next: u64,
}

impl<T> Pulling<T> {
    /// Checks an answer and takes over what the filter lets through: what it does not is a gap,
    /// and finished. How many that are.
    fn accept(
        &mut self,
        messages: impl Iterator<Item = Fetched<T>>,
        next: u64,
        filter: &dyn Fn(&T) -> bool,
    ) -> Result<usize, Nonsense> {
        let from = self.next;
        let mut above = from;
        let mut filtered = 0;
        let mut found = VecDeque::new();
        for mut message in messages {
            // Brokers may answer from the beginning of a stored batch.
            if message.offset < from {
                continue;
            }
            if message.offset < above {
                return Err(Nonsense::NotAscending { offset: message.offset });
            }
            above = message.offset.saturating_add(1);
            message.bytes = message.bytes.min(LARGEST);
            if filter(&message.value) {
                found.push_back(message);
            } else {
                filtered += 1;
            }
        }
        if next < above {
            return Err(Nonsense::NextNotAbove { next });
        }
        self.messages = found;
        self.next = next;
        Ok(filtered)
    }

    /// Puts what fits; what was refused, and why, if the window itself refused something.
    fn put<W: Window<Value = T>>(
        &mut self,
        permit: &mut Permit<Arc<W>>,
        room: Room,
    ) -> Option<PutErrorKind> {
        let messages = &mut self.messages;
        let mut room = room;
        let bytes = Cell::new(0);
        let mut fitting = std::iter::from_fn(|| {
            let first = messages.front()?;
            let size = first.bytes as u64;
            let fits = room.count >= 1 && room.bytes >= size && first.offset < room.end;
            if !fits && !room.empty {
                return None;
            }
            room.count = room.count.saturating_sub(1);
            room.bytes = room.bytes.saturating_sub(size);
            room.empty = false;
            bytes.set(first.bytes);
            messages.pop_front().map(|message| (message.offset, message.value))
        });
        // The window asks for the size of each message right after it took it from the iterator.
        let refused = permit.put_batch_sized(&mut fitting, |_| bytes.get()).err()?;
        messages.push_front(Fetched::new(refused.offset, bytes.get(), refused.value));
        Some(refused.error)
    }
}

/// Why not everything was admitted.
enum Refused {
    /// Not yet.
    Need(Need),
    /// Not before a worker has ended a turn after these.
    Turn(u64),
    /// Not before so much of the budget is free.
    Budget(Usage),
    /// The window will never take it.
    Never(PutErrorKind),
}

/// What a puller does next.
pub(crate) enum Step {
    /// Asks the source; the answer goes to [`Puller::answer`].
    Pull(PullRequest),
    /// Waits.
    Wait(Wait),
}

/// The puller of one partition.
pub(crate) struct Puller<S: Source, W: Window<Value = S::Message>> {
    running: Arc<Running<S, W>>,
    pub(crate) assigned: Arc<Assigned<W>>,
    part: Assignment<Arc<W>>,
    pulling: Pulling<S::Message>,
    /// Reserved for the pull that is under way, and for what it brought. Let go as soon as that is
    /// not enough: of two that each hold a part and wait for more none might ever go on.
    permit: Option<Permit<Arc<W>>>,
    /// Bells rung before the pull that is under way: one that rings while it finds nothing must be
    /// heard.
    news: u64,
}

impl<S, W> Puller<S, W>
where
    S: Source,
    W: Window<Value = S::Message> + Send + Sync + 'static,
{
    pub(crate) fn new(running: Arc<Running<S, W>>, assigned: Arc<Assigned<W>>) -> Self {
        let part = assigned.current().part.clone();
        let next = part.watermark().map_or(0, |next| next.get());
        let pulling = Pulling { messages: VecDeque::new(), next };
        Self { running, assigned, part, pulling, permit: None, news: 0 }
    }

    /// Until the intake is stopped.
    pub(crate) fn run(mut self) {
        let running = Arc::clone(&self.running);
        let assigned = Arc::clone(&self.assigned);
        let publish = || running.clock.publish_soon();
        let mut wait = Wait::Go;
        loop {
            let short = matches!(wait, Wait::Budget(..));
            if short {
                running.short.fetch_add(1, Ordering::Relaxed);
            }
            // The fence in it comes after the count and before the look at the budget.
            let woken = assigned.wait(&self.part, wait, running.time(), &publish);
            if short {
                running.short.fetch_sub(1, Ordering::Relaxed);
            }
            if woken != Woken::Go {
                self.let_go();
                return;
            }
            wait = match self.step() {
                Step::Wait(wait) => wait,
                Step::Pull(request) => {
                    let pulled = self.pull(&request);
                    self.answer(pulled)
                }
            };
        }
    }

    /// Is the wait over?
    pub(crate) fn is_over(&self, wait: Wait) -> Option<Woken> {
        let publish = || self.running.clock.publish_soon();
        self.assigned.is_over(&self.part, wait, self.running.time(), &publish)
    }

    /// Asks the source. A panic is an error.
    pub(crate) fn pull(&self, request: &PullRequest) -> Result<Pulled<S::Message>, SourceError> {
        let (source, partition) = (&self.running.source, &self.assigned.partition);
        catch_unwind(AssertUnwindSafe(|| source.pull(partition, request)))
            .unwrap_or_else(|panic| Err(SourceError::from(panic_text(&*panic))))
    }

    /// What to do next.
    pub(crate) fn step(&mut self) -> Step {
        // The drop of a message that is known already is user code.
        catch_unwind(AssertUnwindSafe(|| self.next_step())).unwrap_or_else(|panic| {
            self.running.queue.add(&self.assigned);
            Step::Wait(self.pause(&panic_text(&*panic)))
        })
    }

    fn next_step(&mut self) -> Step {
        if self.part.watermark().is_err() {
            // It began anew.
            self.let_go();
            self.part = self.assigned.current().part.clone();
            let next = self.part.watermark().map_or(0, |next| next.get());
            self.pulling = Pulling { messages: VecDeque::new(), next };
        }
        let running = Arc::clone(&self.running);
        let assigned = Arc::clone(&self.assigned);
        let now = running.time().now();
        if !running.is_locked(&assigned) {
            assigned.lock_out(true);
            running.keeper.soon(super::keeper::Duty::Lock, now);
            return Step::Wait(Wait::Go);
        }
        match self.admit() {
            Ok(()) => {}
            Err(Refused::Need(need)) => return Step::Wait(Wait::Room(need)),
            Err(Refused::Turn(seen)) => return Step::Wait(Wait::Turn(seen)),
            Err(Refused::Budget(need)) => return Step::Wait(self.short_of(need)),
            Err(Refused::Never(PutErrorKind::Stale)) => return Step::Wait(Wait::Go),
            Err(Refused::Never(kind)) => return Step::Wait(self.pause(&kind)),
        }
        let room = assigned.room(&self.part);
        let messages = running.settings.pull_batch.min(room.count);
        let offsets = room.end.saturating_sub(self.pulling.next);
        let messages = messages.min(usize::try_from(offsets).unwrap_or(usize::MAX));
        if messages == 0 || room.bytes == 0 {
            return Step::Wait(Wait::Room(self.good_part()));
        }
        if offsets < assigned.limits.replay / 2 && room.stale {
            running.clock.publish_soon();
        }
        if let Some(pulled) = assigned.times.pulled.get() {
            let next = pulled.saturating_add(running.settings.pull_interval);
            if next > now && !running.settings.pull_interval.is_zero() {
                return Step::Wait(Wait::Until(next));
            }
        }
        // Of the bytes a good part of what there is: others pull too.
        let some = self.part.part().space.meter().most().bytes / 4;
        let most = Usage { count: messages, bytes: room.bytes.min(some.max(1)) };
        let (messages, bytes) = match self.reserve(Usage { count: 1, bytes: 1 }, most) {
            Ok(permit) => {
                let granted = (permit.messages().min(messages), permit.bytes().min(room.bytes));
                self.permit = Some(permit);
                granted
            }
            Err(Refused::Budget(need)) => return Step::Wait(self.short_of(need)),
            Err(Refused::Never(kind)) if kind != PutErrorKind::Stale => {
                return Step::Wait(self.pause(&kind));
            }
            Err(_) => return Step::Wait(Wait::Go),
        };
        self.news = assigned.news();
        count(&assigned.counts.pulls, 1);
        assigned.times.pulled.set(now);
        assigned.times.pulling.set(now);
        Step::Pull(PullRequest::new(self.pulling.next, messages, bytes))
    }

    /// Reserves in the budget of the window, if it has one.
    fn reserve(&self, least: Usage, most: Usage) -> Result<Permit<Arc<W>>, Refused> {
        Permit::reserve(&self.part, least, most).map_err(|error| match error {
            ReserveError::Short { .. } => Refused::Budget(least),
            ReserveError::TooMuch { .. } => Refused::Never(PutErrorKind::OverBudget),
            ReserveError::Stale => Refused::Never(PutErrorKind::Stale),
            ReserveError::Closed => Refused::Never(PutErrorKind::Closed),
        })
    }

    /// What is reserved and not used goes back.
    fn let_go(&mut self) {
        if self.permit.take().is_some() {
            self.running.freed_budget(&self.assigned);
        }
    }

    /// The budget is used up: waits for what this or another partition gives back. Another
    /// consumer's, or a window of the user's own, does not tell: so it looks from time to time.
    fn short_of(&self, need: Usage) -> Wait {
        Wait::Budget(need, self.running.time().deadline(self.running.settings.pull_retry))
    }

    /// What to wait for after the source's answer.
    pub(crate) fn answer(&mut self, pulled: Result<Pulled<S::Message>, SourceError>) -> Wait {
        self.assigned.times.pulling.clear();
        // The filter, and the drop of what it keeps out, are user code.
        let accepted = catch_unwind(AssertUnwindSafe(|| self.accept(pulled)));
        let wait = accepted.unwrap_or_else(|panic| self.pause(&panic_text(&*panic)));
        if self.pulling.messages.is_empty() {
            self.let_go();
        }
        wait
    }

    fn accept(&mut self, pulled: Result<Pulled<S::Message>, SourceError>) -> Wait {
        let assigned = Arc::clone(&self.assigned);
        let running = Arc::clone(&self.running);
        if self.part.watermark().is_err() {
            // It began anew meanwhile: this answers another question.
            return Wait::Go;
        }
        let filter = |value: &S::Message| {
            running.settings.filter.as_ref().is_none_or(|filter| filter(value))
        };
        let from = self.pulling.next;
        let accepted = match pulled {
            Ok(Pulled::Found { messages, next }) => {
                self.pulling.accept(messages.into_iter(), next, &filter)
            }
            Ok(Pulled::NothingMatched { next }) if next == from => {
                Err(Nonsense::NextNotAbove { next })
            }
            Ok(Pulled::NothingMatched { next }) => {
                self.pulling.accept(std::iter::empty(), next, &filter)
            }
            Ok(Pulled::NothingNew) => Ok(0),
            Ok(Pulled::IllegalOffset { correct }) => return self.begin_anew(correct),
            Err(error) => return self.pause(&error),
        };
        match accepted {
            Ok(filtered) => count(&assigned.counts.filtered, filtered),
            Err(nonsense) => return self.pause(&nonsense),
        }
        if self.pulling.next != from {
            assigned.left_tail();
            return Wait::Go;
        }
        assigned.found_tail(self.news);
        running.something_ended(&assigned);
        let idle = running.settings.pull_idle;
        let until = if running.rings() { None } else { Some(running.time().deadline(idle)) };
        Wait::News(self.news, until)
    }

    /// The room to wait for before the next pull: for a good part of one, so that a puller at a
    /// limit is not woken for every message.
    fn good_part(&self) -> Need {
        let limits = &self.assigned.limits;
        let mut count = self.running.settings.pull_batch.min((limits.count / 4).max(1));
        let span = (limits.span / 4).max(1);
        let replay = (limits.replay / 4).max(1);
        let offsets = if self.assigned.spans_messages(&self.part) {
            count = count.min(usize::try_from(span).unwrap_or(usize::MAX));
            // How far apart the next ones are, nobody knows yet.
            replay
        } else {
            (count as u64).min(span).min(replay)
        };
        Need {
            count,
            bytes: (limits.bytes / 4).max(1),
            end: self.pulling.next.saturating_add(offsets),
        }
    }

    /// Admits what was pulled, as far as there is room.
    fn admit(&mut self) -> Result<(), Refused> {
        let assigned = Arc::clone(&self.assigned);
        let mut refused = self.put()?;
        if refused == Some(PutErrorKind::Full) && self.fits(self.first()) {
            let turns = assigned.watch_turns();
            refused = self.put()?;
            if refused == Some(PutErrorKind::Full) && self.fits(self.first()) {
                return Err(Refused::Turn(turns));
            }
        }
        if refused == Some(PutErrorKind::OverBudget) {
            self.let_go();
            let cost = self.costs();
            return Err(match self.part.part().space.meter().most().covers(cost) {
                // If there is more than was reserved, the next look finds it.
                true => Refused::Budget(cost),
                false => Refused::Never(PutErrorKind::OverBudget),
            });
        }
        if let Some(kind) = refused.filter(|kind| *kind != PutErrorKind::Full) {
            return Err(Refused::Never(kind));
        }
        if let Some(first) = self.pulling.messages.front() {
            let limits = &assigned.limits;
            let rest = self.pulling.messages.iter();
            let mut count = rest.len().min((limits.count / 4).max(1));
            if assigned.spans_messages(&self.part) {
                let span = usize::try_from(limits.span / 4).unwrap_or(usize::MAX);
                count = count.min(span.max(1));
            }
            let bytes = rest.take(count).map(|message| message.bytes as u64).sum::<u64>();
            let need = Need {
                count,
                bytes: bytes.min(limits.bytes / 4).max(first.bytes as u64),
                end: self.first().end,
            };
            return Err(Refused::Need(need));
        }
        self.let_go();
        let end = self.part.end().unwrap_or(0);
        let next = self.pulling.next;
        if next > end {
            let room = assigned.room(&self.part);
            if next > room.end && !room.empty {
                return Err(Refused::Need(Need { count: 0, bytes: 0, end: next }));
            }
            if self.part.advance_to(next).is_err() {
                return Err(Refused::Never(PutErrorKind::OutOfRange));
            }
        }
        Ok(())
    }

    /// Puts what there is room for; what the window refused, if it did.
    fn put(&mut self) -> Result<Option<PutErrorKind>, Refused> {
        let before = self.pulling.messages.len();
        if before == 0 {
            return Ok(None);
        }
        let mut permit = match self.permit.take() {
            Some(permit) => permit,
            None => {
                let bytes = self.pulling.messages.iter().map(|message| message.bytes as u64);
                let all = Usage { count: before, bytes: bytes.sum() };
                self.reserve(self.costs(), all)?
            }
        };
        let room = self.assigned.room(&self.part);
        let refused = self.pulling.put(&mut permit, room);
        self.permit = Some(permit);
        if self.pulling.messages.len() < before {
            self.running.queue.add(&self.assigned);
        }
        Ok(refused)
    }

    /// What the first message that waits here costs.
    fn costs(&self) -> Usage {
        let first = self.pulling.messages.front();
        Usage { count: 1, bytes: first.map_or(0, |first| first.bytes as u64) }
    }

    /// What the first message that waits here needs.
    fn first(&self) -> Need {
        self.pulling.messages.front().map_or_else(Need::default, |first| Need {
            count: 1,
            bytes: first.bytes as u64,
            end: first.offset.saturating_add(1),
        })
    }

    fn fits(&self, need: Need) -> bool {
        self.assigned.room(&self.part).has(need)
    }

    /// The log does not have the offset: begins where it says. Publishing is held off meanwhile,
    /// so that no watermark of the old assignment is stored after it.
    fn begin_anew(&mut self, correct: u64) -> Wait {
        if correct == self.pulling.next {
            return self.pause(&"the source calls an offset illegal and correct at once");
        }
        if self.assigned.is_fenced() {
            return Wait::Go;
        }
        match self.running.reset(&self.assigned, &self.part, correct) {
            Ok(()) => {
                self.assigned.left_tail();
                Wait::Go
            }
            Err(error) => self.pause(&error),
        }
    }

    /// Something is wrong with the source: says so, and waits before the next try.
    fn pause(&self, error: &dyn fmt::Display) -> Wait {
        self.assigned.fault(error);
        let retry: Duration = self.running.settings.pull_retry;
        Wait::Until(self.running.time().deadline(retry))
    }
}

/// What a panic said.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    std::format!("panicked: {}", text.unwrap_or("(no text)"))
}
