//! What a worker does with its turn: takes messages as the service wants them (concurrent,
//! orderly, keyed, batched), and does with them what the handler said.

use std::collections::hash_map::Entry;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use std::vec::Vec;

use super::assigned::{Assigned, Current, count};
use super::failed::Failed;
use super::outcome::{Batch, Ordered, Outcome, Verdict};
use super::pool::{Kind, Prepared, REST};
#[cfg(feature = "async")]
use super::running::Answer;
use super::running::{Running, Service};
use super::source::Source;
use super::time::tick;
use crate::assignment::Assignment;
use crate::shared::SharedLease;
use crate::shelf::Held;
use crate::window::Window;

/// What is to become of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Finish,
    Again(Duration),
}

type Taken<W> = SharedLease<Arc<W>>;

/// The most parts of a batch.
const PARTS: usize = 62;

impl<S, W> Running<S, W>
where
    S: Source,
    W: Window<Value = S::Message> + Send + Sync + 'static,
{
    /// May its messages be handled now?
    fn may_run(&self, assigned: &Assigned<W>) -> bool {
        let now = self.time().now();
        self.is_locked(assigned)
            && !assigned.is_suspended()
            && !assigned.is_fenced()
            && assigned.times.rests.get().is_none_or(|rests| now >= rests)
    }

    /// Takes messages of a partition whose turn it is.
    pub(crate) fn prepare(&self, assigned: &Arc<Assigned<W>>) -> Option<Prepared<W>> {
        // Whoever ends what is in the way adds the partition.
        if !self.may_run(assigned) {
            return None;
        }
        let current = assigned.current();
        let prepared = match &self.service {
            Service::Concurrent(_) | Service::Orderly { .. } => {
                let (lease, full) = self.take(&current.part, true)?;
                if full {
                    self.queue.add(assigned);
                }
                plain(assigned, &current, lease)
            }
            Service::Keyed { key, .. } => self.prepare_lanes(assigned, &current, key)?,
            Service::Batched(_) => self.prepare_parts(assigned, &current)?,
        };
        self.when_due(prepared)
    }

    /// Goes on with messages that were taken before.
    pub(crate) fn prepare_again(&self, prepared: Prepared<W>) -> Option<Prepared<W>> {
        let assigned = &prepared.assigned;
        if assigned.is_fenced() || prepared.current.part.watermark().is_err() {
            return None;
        }
        if !self.may_run(assigned) {
            match prepared.kind {
                Kind::Plain => drop(prepared),
                Kind::Lane { .. } | Kind::Part { .. } => {
                    let current = Arc::clone(&prepared.current);
                    let assigned = Arc::clone(assigned);
                    current.order().parked.push(prepared);
                    // What was in the way may have ended before this was there to be found.
                    if self.may_run(&assigned) {
                        self.unpark(&assigned);
                    }
                }
            }
            return None;
        }
        if let (Kind::Part { batch, .. }, Some(batches)) =
            (prepared.kind, &prepared.current.batches)
            && prepared.failed > 0
        {
            // It was declared failed when it was put off.
            let _ = batches.retry(batch);
        }
        self.when_due(prepared)
    }

    /// Nothing is in the way of the partition any more.
    pub(crate) fn unpark(&self, assigned: &Arc<Assigned<W>>) {
        let parked = std::mem::take(&mut assigned.current().order().parked);
        parked.into_iter().for_each(|prepared| self.queue.run(prepared));
        self.queue.add(assigned);
    }

    /// A batch of what is ready, and whether there may be more. `timed`: it can expire from now on.
    fn take(&self, part: &Assignment<Arc<W>>, timed: bool) -> Option<(Taken<W>, bool)> {
        let wanted = self.settings.batch;
        let lease = match timed {
            true => part.at(tick(self.time().now())).take_shared(wanted),
            false => part.take_shared(wanted),
        };
        // Empty; or it has ended, and whoever began it anew adds it when it has something.
        let lease = lease.ok()?;
        let full = lease.len() == wanted;
        Some((lease, full))
    }

    /// One key's messages for this worker; those of other keys for other workers, or behind
    /// earlier ones of theirs.
    fn prepare_lanes(
        &self,
        assigned: &Arc<Assigned<W>>,
        current: &Arc<Current<W>>,
        key: &(dyn Fn(&W::Value) -> u64 + Send + Sync),
    ) -> Option<Prepared<W>> {
        // Locked over the take: what is taken first is queued first.
        let mut order = current.order();
        let (mut lease, full) = self.take(&current.part, false)?;
        let keys: Vec<_> = lease.messages().iter().map(|held| key(held.value())).collect();
        let mut free = Vec::new();
        let mut left = keys.as_slice();
        let mut rest: Vec<u64>;
        while let Some(&key) = left.first() {
            let mut at = left.iter();
            let same = lease.split(|_| at.next() == Some(&key));
            rest = left.iter().copied().filter(|other| *other != key).collect();
            match order.lanes.entry(key) {
                Entry::Occupied(mut lane) => lane.get_mut().push_back(same),
                Entry::Vacant(lane) => {
                    lane.insert(Default::default());
                    free.push((key, same));
                }
            }
            left = &rest;
        }
        drop(order);
        let mut free = free.into_iter().map(|(key, lease)| Prepared {
            kind: Kind::Lane { key },
            ..plain(assigned, current, lease)
        });
        let first = free.next();
        free.for_each(|prepared| self.queue.run(prepared));
        if full {
            self.queue.add(assigned);
        }
        first
    }

    /// A batch with a part for each free worker, this one among them.
    fn prepare_parts(
        &self,
        assigned: &Arc<Assigned<W>>,
        current: &Arc<Current<W>>,
    ) -> Option<Prepared<W>> {
        let batches = current.batches.as_ref()?;
        let free = self.queue.free(self.settings.workers).min(PARTS);
        // Locked over take and begin: batches begin in the order of their offsets.
        let order = current.order();
        let mut parts: Vec<Taken<W>> = Vec::new();
        let mut more = true;
        while more && parts.len() < free {
            let Some((lease, full)) = self.take(&current.part, false) else { break };
            parts.push(lease);
            more = full;
        }
        // All are open, so there is no number for another: given back before the lock is, to be
        // taken when the lowest has ended.
        let batch = match parts.len() {
            0 => return None,
            parts => batches.begin(parts).ok()?,
        };
        drop(order);
        let mut parts = parts.into_iter().map(|lease| {
            let last = lease.messages().last().map_or(0, Held::offset);
            Prepared {
                kind: Kind::Part { batch, next: last.saturating_add(1) },
                ..plain(assigned, current, lease)
            }
        });
        let first = parts.next();
        parts.for_each(|prepared| self.queue.run(prepared));
        if more {
            self.queue.add(assigned);
        }
        first
    }

    /// Puts off what is not to be handled yet.
    fn when_due(&self, mut prepared: Prepared<W>) -> Option<Prepared<W>> {
        let Some(not_before) = &self.settings.not_before else { return Some(prepared) };
        let calendar = self.time().calendar();
        let now = self.time().now();
        let wait = |held: &Held<W::Value>| -> Duration {
            let time: Option<SystemTime> = not_before(held.value());
            time.and_then(|time| time.duration_since(calendar).ok()).unwrap_or_default()
        };
        let waits: Vec<_> = prepared.lease.messages().iter().map(wait).collect();
        let longest = waits.iter().copied().max().unwrap_or_default();
        if longest.is_zero() {
            return Some(prepared);
        }
        if matches!(self.service, Service::Orderly { .. }) {
            // Up to the first that is not due; it and what comes after it wait in the window.
            let due = waits.iter().take_while(|wait| wait.is_zero()).count();
            let mut at = 0;
            let later = prepared.lease.split(|_| {
                at += 1;
                at > due
            });
            drop(later);
            let wait = waits.get(due).copied().unwrap_or_default();
            if due == 0 {
                self.suspend_until(&prepared.assigned, now.saturating_add(wait));
                return None;
            }
            self.queue.add(&prepared.assigned);
            return Some(prepared);
        }
        if prepared.kind != Kind::Plain {
            self.put_off(prepared, now.saturating_add(longest));
            return None;
        }
        let mut waits: Vec<_> = waits.into_iter().filter(|wait| !wait.is_zero()).collect();
        let calendar_wait = |held: &Held<W::Value>| !wait(held).is_zero();
        let mut later = prepared.lease.split(calendar_wait);
        while let Some(&longest) = waits.first() {
            let mut at = waits.iter();
            let same = later.split(|_| at.next() == Some(&longest));
            waits.retain(|wait| *wait != longest);
            let same = plain(&prepared.assigned, &prepared.current, same);
            self.put_off(same, now.saturating_add(longest));
        }
        (!prepared.lease.is_empty()).then_some(prepared)
    }

    /// To be handled at a time, not given back before.
    fn put_off(&self, prepared: Prepared<W>, at: Duration) {
        // It does not expire while it waits for its time.
        prepared.lease.touch(tick(at));
        self.clock.run_at(at, prepared);
    }

    /// Messages are about to be handled.
    pub(crate) fn begin_deal(&self, prepared: &Prepared<W>) {
        let now = self.time().now();
        prepared.assigned.times.consumed.set(now);
        if prepared.kind != Kind::Plain || self.settings.not_before.is_some() {
            // Since it was taken it has waited for others, or for its time.
            prepared.lease.touch(tick(now));
        }
    }

    /// Lets the handler deal with messages, and does what it says.
    pub(crate) fn deal(&self, prepared: Prepared<W>) {
        let assigned = Arc::clone(&prepared.assigned);
        self.begin_deal(&prepared);
        let name = assigned.partition.name();
        let batch = Batch::new(name, prepared.lease.messages(), prepared.failed);
        let panicked = |_| count(&assigned.counts.panics, 1);
        let handler = match &self.service {
            Service::Orderly { handler, manual } => {
                let Some(handler) = handler.now() else { return };
                let answer = catch_unwind(AssertUnwindSafe(|| handler(&batch)));
                let answer = answer.map_err(panicked).unwrap_or(Ordered::Suspend(None));
                return self.settle_ordered(prepared, answer, *manual);
            }
            Service::Concurrent(handler) | Service::Batched(handler) => handler,
            Service::Keyed { handler, .. } => handler,
        };
        let Some(handler) = handler.now() else { return };
        let outcome = catch_unwind(AssertUnwindSafe(|| handler(&batch)));
        let outcome = outcome.map_err(panicked).unwrap_or(Outcome::Retry);
        self.settle(prepared, &outcome);
    }

    /// Does what a handler has answered later.
    #[cfg(feature = "async")]
    pub(crate) fn settle_later(&self, prepared: Prepared<W>, answer: Answer) {
        match (answer, &self.service) {
            (Answer::Any(outcome), _) => self.settle(prepared, &outcome),
            (Answer::Ordered(answer), Service::Orderly { manual, .. }) => {
                self.settle_ordered(prepared, answer, *manual);
            }
            // No other service has such handlers: given back.
            (Answer::Ordered(_), _) => {}
        }
    }

    fn settle(&self, mut prepared: Prepared<W>, outcome: &Outcome) {
        let Prepared { lease, assigned, failed, .. } = &mut prepared;
        let mut delays = Vec::new();
        if *outcome != Outcome::Done {
            delays = self.delays(assigned, lease, *failed, |at| outcome.verdict(at));
        }
        let mut at = delays.iter();
        let rest = lease.split(|_| at.next().is_some_and(Option::is_some));
        let done = std::mem::replace(lease, rest);
        commit(assigned, done);
        let delays: Vec<Duration> = delays.into_iter().flatten().collect();
        count(&assigned.counts.retried, delays.len());
        match prepared.kind {
            Kind::Plain => self.give_back_later(prepared, delays),
            Kind::Lane { key } => match delays.into_iter().max() {
                Some(delay) => self.again(prepared, delay),
                None => self.next_in_lane(prepared, key),
            },
            Kind::Part { batch, next } => {
                let Some(batches) = prepared.current.batches.clone() else { return };
                match delays.into_iter().max() {
                    Some(delay) => {
                        let _ = batches.fail(batch);
                        self.again(prepared, delay);
                    }
                    // An ended assignment's parts are refused.
                    None => {
                        if let Ok(Some(_)) = batches.end(batch, next) {
                            // There may be a number for the next batch again.
                            self.queue.add(&prepared.assigned);
                        }
                    }
                }
            }
        }
    }

    /// What did not succeed, once more, by whoever is free then.
    fn again(&self, mut prepared: Prepared<W>, delay: Duration) {
        prepared.failed = prepared.failed.saturating_add(1);
        let at = self.time().deadline(delay);
        if delay.is_zero() { self.queue.run(prepared) } else { self.put_off(prepared, at) }
    }

    /// A key's messages are dealt with: the next ones of that key.
    fn next_in_lane(&self, prepared: Prepared<W>, key: u64) {
        let Prepared { assigned, current, .. } = prepared;
        let mut order = current.order();
        let Entry::Occupied(mut lane) = order.lanes.entry(key) else { return };
        match lane.get_mut().pop_front() {
            None => {
                lane.remove();
            }
            Some(lease) => {
                drop(order);
                let kind = Kind::Lane { key };
                self.queue.run(Prepared { kind, ..plain(&assigned, &current, lease) });
            }
        }
    }

    /// Hands what has to be retried to the clock: one receipt for each due time. The messages wait
    /// in the window, which goes on knowing where each of them is; nobody has a clone, and one that
    /// is taken away meanwhile is not given back a second time.
    fn give_back_later(&self, prepared: Prepared<W>, mut delays: Vec<Duration>) {
        let Prepared { mut lease, assigned, .. } = prepared;
        let now = self.time().now();
        while let Some(&delay) = delays.first() {
            let mut at = delays.iter();
            let same = lease.split(|_| at.next() == Some(&delay));
            delays.retain(|other| *other != delay);
            let due = now.saturating_add(delay);
            // It does not expire while it waits for its time.
            same.touch(tick(due));
            // The drop of a clone is user code.
            match catch_unwind(AssertUnwindSafe(|| same.into_detached())) {
                Ok(detached) => self.clock.give_back_at(due, &assigned, detached),
                // They are ready already, and the others wait for their time still.
                Err(_) => {
                    count(&assigned.counts.panics, 1);
                    self.rest(&assigned, REST);
                }
            }
        }
    }

    fn settle_ordered(&self, prepared: Prepared<W>, answer: Ordered, manual: bool) {
        let Prepared { mut lease, assigned, current, .. } = prepared;
        let wait = match answer {
            Ordered::Success if manual => {
                current.order().kept.push(lease);
                return;
            }
            Ordered::Success | Ordered::Commit => {
                for kept in kept(&current) {
                    commit(&assigned, kept);
                }
                commit(&assigned, lease);
                return;
            }
            Ordered::Rollback => {
                for kept in kept(&current) {
                    let _ = catch_unwind(AssertUnwindSafe(|| kept.rollback()));
                }
                None
            }
            Ordered::Suspend(wait) => {
                // Those that were tried too often go, the others stay.
                let delays = self.delays(&assigned, &lease, 0, |_| Verdict::Retry);
                let mut at = delays.iter();
                let done = lease.split(|_| at.next().is_some_and(Option::is_none));
                commit(&assigned, done);
                if lease.is_empty() {
                    return;
                }
                wait
            }
        };
        count(&assigned.counts.retried, lease.len());
        let _ = catch_unwind(AssertUnwindSafe(|| lease.rollback()));
        let wait = wait.unwrap_or(self.settings.suspend_for).clamp(SHORTEST, LONGEST);
        self.suspend_until(&assigned, self.time().deadline(wait));
    }

    /// Nothing of the partition is handled before.
    fn suspend_until(&self, assigned: &Arc<Assigned<W>>, until: Duration) {
        assigned.times.rests.set(until);
        self.clock.wake_at(until, assigned);
    }

    /// The partition has another turn after a while.
    pub(crate) fn rest(&self, assigned: &Arc<Assigned<W>>, wait: Duration) {
        self.clock.wake_at(self.time().deadline(wait), assigned);
    }

    /// How often a message was tried.
    pub(crate) fn attempts(&self, value: &W::Value, here: u32) -> u32 {
        let before = self.settings.attempts.as_ref().map_or(0, |attempts| attempts(value));
        before.saturating_add(here)
    }

    /// How long each message waits until it is tried again; none for those that are finished.
    fn delays(
        &self,
        assigned: &Assigned<W>,
        lease: &Taken<W>,
        failed: u32,
        verdict: impl Fn(usize) -> Verdict,
    ) -> Vec<Option<Duration>> {
        let delay = |(at, held): (usize, &Held<W::Value>)| {
            let verdict = verdict(at);
            if verdict == Verdict::Done {
                return None;
            }
            let here = held.deliveries().saturating_add(failed);
            // What is asked here is user code.
            let fate = catch_unwind(AssertUnwindSafe(|| {
                let attempts = self.attempts(held.value(), here);
                self.fate(
                    assigned,
                    &Failed::new(assigned.partition.name(), held, attempts),
                    verdict,
                )
            }));
            match fate {
                Ok(Fate::Finish) => None,
                Ok(Fate::Again(delay)) => Some(delay),
                Err(_) => Some(self.settings.resend_after),
            }
        };
        lease.messages().iter().enumerate().map(delay).collect()
    }

    /// What becomes of a message that failed. A panic of what it asks counts as its error.
    fn fate(
        &self,
        assigned: &Assigned<W>,
        failed: &Failed<'_, W::Value>,
        verdict: Verdict,
    ) -> Fate {
        let settings = &self.settings;
        let counts = &assigned.counts;
        if let Some(report) = &settings.broadcast {
            report(failed);
            count(&counts.reported, 1);
            return Fate::Finish;
        }
        let last = failed.attempts >= settings.max_attempts || verdict == Verdict::GiveUp;
        let back = settings.send_back.as_ref();
        let sent = match (verdict, &settings.give_up) {
            (_, Some(give_up)) if last => Some((give_up(failed), &counts.given_up)),
            (_, None) if last => back.map(|back| (back.dead_letter(failed), &counts.given_up)),
            (Verdict::SendBack(level), _) => {
                back.map(|back| (back.send_back(failed, level), &counts.sent_back))
            }
            _ => None,
        };
        match (sent, verdict) {
            (Some((Ok(()), counter)), _) => {
                count(counter, 1);
                Fate::Finish
            }
            (Some((Err(_), _)), _) => Fate::Again(settings.resend_after),
            (None, Verdict::RetryAfter(delay)) => Fate::Again(delay),
            (None, _) => Fate::Again(settings.backoff.after(failed.attempts)),
        }
    }
}

/// The bounds of a suspension.
const SHORTEST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_secs(30);

fn commit<W: Window>(assigned: &Assigned<W>, lease: Taken<W>) {
    if !lease.is_empty() {
        assigned.finish(|| lease.commit());
    }
}

/// What is kept for a later batch to decide.
fn kept<W: Window>(current: &Current<W>) -> Vec<Taken<W>> {
    std::mem::take(&mut current.order().kept)
}

fn plain<W: Window>(
    assigned: &Arc<Assigned<W>>,
    current: &Arc<Current<W>>,
    lease: Taken<W>,
) -> Prepared<W> {
    Prepared {
        assigned: Arc::clone(assigned),
        current: Arc::clone(current),
        lease,
        kind: Kind::Plain,
        failed: 0,
    }
}
