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
use std::time::Instant;

use super::assigned::{Assigned, Need, Room, Woken, count};
use super::running::Running;
use super::source::{Fetched, PullRequest, Pulled, Source, SourceError};
use crate::assignment::Assignment;
use crate::error::PutErrorKind;
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
    /// Checks an answer and takes it over.
    fn accept(
        &mut self,
        messages: impl Iterator<Item = Fetched<T>>,
        next: u64,
    ) -> Result<(), Nonsense> {
        let from = self.next;
        let mut above = from;
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
            found.push_back(message);
        }
        if next < above {
            return Err(Nonsense::NextNotAbove { next });
        }
        self.messages = found;
        self.next = next;
        Ok(())
    }

    /// Puts what fits; what was refused, and why, if the window itself refused something.
    fn put<W: Window<Value = T>>(
        &mut self,
        part: &Assignment<Arc<W>>,
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
        let refused = part.put_batch_sized(&mut fitting, |_| bytes.get()).err()?;
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
    /// The window will never take it.
    Never(PutErrorKind),
}

/// The puller of one partition.
pub(crate) struct Puller<S: Source, W: Window<Value = S::Message>> {
    running: Arc<Running<S, W>>,
    index: usize,
    part: Assignment<Arc<W>>,
    pulling: Pulling<S::Message>,
}

impl<S, W> Puller<S, W>
where
    S: Source,
    W: Window<Value = S::Message> + Send + Sync + 'static,
{
    pub(crate) fn new(running: Arc<Running<S, W>>, index: usize) -> Self {
        let part = running.assigned[index].assignment();
        let next = part.watermark().map_or(0, |next| next.get());
        Self { running, index, part, pulling: Pulling { messages: VecDeque::new(), next } }
    }

    fn assigned(&self) -> &Assigned<W> {
        &self.running.assigned[self.index]
    }

    /// Until the intake is stopped.
    pub(crate) fn run(mut self) {
        while !self.assigned().intake_stopped() {
            // The drop of a message that is known already is user code.
            let woken = catch_unwind(AssertUnwindSafe(|| self.step())).unwrap_or_else(|panic| {
                self.running.queue.add(self.index);
                self.pause(&panic_text(&*panic))
            });
            if woken == Woken::Stop {
                break;
            }
        }
    }

    fn step(&mut self) -> Woken {
        match self.admit() {
            Ok(()) => {}
            Err(Refused::Need(need)) => return self.wait_for_room(need),
            Err(Refused::Turn(seen)) => return self.assigned().wait_for_turn(seen),
            Err(Refused::Never(kind)) => return self.pause(&kind),
        }
        let running = Arc::clone(&self.running);
        let assigned = &running.assigned[self.index];
        let room = assigned.room(&self.part);
        let messages = self.running.settings.pull_batch.min(room.count);
        let offsets = room.end.saturating_sub(self.pulling.next);
        let messages = messages.min(usize::try_from(offsets).unwrap_or(usize::MAX));
        if messages == 0 || room.bytes == 0 {
            return self.wait_for_room(self.good_part());
        }
        if offsets < assigned.limits.replay / 2 && room.stale {
            running.clock.publish_soon();
        }
        // Before the pull: a bell that rings while it finds nothing must be heard.
        let news = assigned.news();
        count(&assigned.counts.pulls, 1);
        let request = PullRequest::new(self.pulling.next, messages, room.bytes);
        let source = &running.source;
        let pulled = catch_unwind(AssertUnwindSafe(|| source.pull(&assigned.partition, &request)))
            .unwrap_or_else(|panic| Err(SourceError::from(panic_text(&*panic))));
        let from = self.pulling.next;
        let accepted = match pulled {
            Ok(Pulled::Found { messages, next }) => self.pulling.accept(messages.into_iter(), next),
            Ok(Pulled::NothingMatched { next }) if next == from => {
                Err(Nonsense::NextNotAbove { next })
            }
            Ok(Pulled::NothingMatched { next }) => self.pulling.accept(std::iter::empty(), next),
            Ok(Pulled::NothingNew) => Ok(()),
            Ok(Pulled::IllegalOffset { correct }) => return self.begin_anew(correct),
            Err(error) => return self.pause(&error),
        };
        if let Err(nonsense) = accepted {
            return self.pause(&nonsense);
        }
        if self.pulling.next != from {
            assigned.left_tail();
            return Woken::Go;
        }
        assigned.found_tail(news);
        self.running.something_ended(self.index);
        let idle = self.running.settings.pull_idle;
        let until = if self.running.rings() { None } else { Instant::now().checked_add(idle) };
        assigned.wait_for_news(news, until)
    }

    fn wait_for_room(&self, need: Need) -> Woken {
        let publish = || self.running.clock.publish_soon();
        self.assigned().wait_for_room(&self.part, need, &publish)
    }

    /// The room to wait for before the next pull: for a good part of one, so that a puller at a
    /// limit is not woken for every message.
    fn good_part(&self) -> Need {
        let limits = &self.assigned().limits;
        let mut count = self.running.settings.pull_batch.min((limits.count / 4).max(1));
        let span = (limits.span / 4).max(1);
        let replay = (limits.replay / 4).max(1);
        let offsets = if self.assigned().spans_messages(&self.part) {
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
        let running = Arc::clone(&self.running);
        let assigned = &running.assigned[self.index];
        let mut refused = self.put();
        if refused == Some(PutErrorKind::Full) && self.fits(self.first()) {
            let turns = assigned.watch_turns();
            refused = self.put();
            if refused == Some(PutErrorKind::Full) && self.fits(self.first()) {
                return Err(Refused::Turn(turns));
            }
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

    /// Puts what there is room for.
    fn put(&mut self) -> Option<PutErrorKind> {
        let before = self.pulling.messages.len();
        let room = self.running.assigned[self.index].room(&self.part);
        let refused = self.pulling.put(&self.part, room);
        if self.pulling.messages.len() < before {
            self.running.queue.add(self.index);
        }
        refused
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
        self.assigned().room(&self.part).has(need)
    }

    /// The log does not have the offset: begins where it says. Publishing is held off meanwhile,
    /// so that no watermark of the old assignment is stored after it.
    fn begin_anew(&mut self, correct: u64) -> Woken {
        if correct == self.pulling.next {
            return self.pause(&"the source calls an offset illegal and correct at once");
        }
        let running = Arc::clone(&self.running);
        match running.reset(self.index, correct) {
            Ok(part) => {
                self.part = part;
                self.pulling = Pulling { messages: VecDeque::new(), next: correct };
                self.assigned().left_tail();
                Woken::Go
            }
            Err(error) => self.pause(&error),
        }
    }

    /// Something is wrong with the source: says so, and waits before the next try.
    fn pause(&self, error: &dyn fmt::Display) -> Woken {
        let assigned = self.assigned();
        assigned.fault(error);
        match Instant::now().checked_add(self.running.settings.pull_retry) {
            Some(until) => assigned.wait_until(until),
            None => assigned.wait_for_news(assigned.news(), None),
        }
    }
}

/// What a panic said.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    std::format!("panicked: {}", text.unwrap_or("(no text)"))
}
