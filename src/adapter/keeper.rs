//! What has to be looked after from time to time: messages that are held too long, locks that run
//! out, pulls that hang. Threads of its own, since it asks others that may be slow: one for the
//! locks, so that they are renewed whatever the other waits for.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::vec::Vec;

use super::assigned::{Assigned, count};
use super::failed::{DelayLevel, Failed};
use super::running::{Running, Service};
use super::source::Source;
use super::time::{Time, YEARS, tick};
use crate::lease::Lease;
use crate::look::Stalled;
use crate::window::Window;

/// Messages of one partition that one pass takes away, at most.
const AT_ONCE: usize = 16;

/// One of the duties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Duty {
    /// Takes away what is held too long.
    Expire,
    /// Takes and renews locks.
    Lock,
    /// Begins partitions anew whose pull hangs.
    Rebuild,
}

/// All duties, in two threads.
pub(crate) const THREADS: [&[Duty]; 2] = [&[Duty::Expire, Duty::Rebuild], &[Duty::Lock]];

#[derive(Debug)]
struct Dates {
    next: [Option<Duration>; 3],
    stopped: bool,
}

/// When which duty is due.
#[derive(Debug)]
pub(crate) struct Keeper {
    every: [Option<Duration>; 3],
    dates: Mutex<Dates>,
    changed: Condvar,
}

impl Keeper {
    /// Each duty every so often, or never.
    pub(crate) fn new(every: [Option<Duration>; 3], now: Duration) -> Self {
        let mut next = every.map(|every| every.map(|every| now.saturating_add(every)));
        // Locks are taken at once.
        next[Duty::Lock as usize] = every[Duty::Lock as usize].map(|_| now);
        let dates = Mutex::new(Dates { next, stopped: false });
        Self { every, dates, changed: Condvar::new() }
    }

    fn dates(&self) -> MutexGuard<'_, Dates> {
        self.dates.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does a duty as soon as possible.
    pub(crate) fn soon(&self, duty: Duty, now: Duration) {
        if let Some(next) = &mut self.dates().next[duty as usize] {
            *next = now.min(*next);
        }
        self.changed.notify_all();
    }

    pub(crate) fn stop(&self) {
        self.dates().stopped = true;
        self.changed.notify_all();
    }

    fn due(
        &self,
        dates: &mut Dates,
        duties: &[Duty],
        now: Duration,
    ) -> Result<Duty, Option<Duration>> {
        for &duty in duties {
            let at = duty as usize;
            if let (Some(next), Some(every)) = (&mut dates.next[at], self.every[at])
                && *next <= now
            {
                *next = now.saturating_add(every);
                return Ok(duty);
            }
        }
        Err(duties.iter().filter_map(|duty| dates.next[*duty as usize]).min())
    }

    /// A duty that is due, without waiting.
    pub(crate) fn poll(&self, now: Duration) -> Option<Duty> {
        THREADS.iter().find_map(|duties| self.due(&mut self.dates(), duties, now).ok())
    }

    /// When something is due.
    pub(crate) fn next(&self) -> Option<Duration> {
        self.dates().next.iter().flatten().copied().min()
    }

    fn wait(&self, duties: &[Duty], time: &Time) -> Option<Duty> {
        let mut dates = self.dates();
        while !dates.stopped {
            match self.due(&mut dates, duties, time.now()) {
                Ok(duty) => return Some(duty),
                Err(until) => {
                    let left = until.and_then(|until| time.left(until)).unwrap_or(match until {
                        Some(_) => Duration::ZERO,
                        None => YEARS,
                    });
                    let waited = self.changed.wait_timeout(dates, left);
                    dates = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
            }
        }
        None
    }
}

impl<S, W> Running<S, W>
where
    S: Source,
    W: Window<Value = S::Message> + Send + Sync + 'static,
{
    /// Does a duty. The partitions that have begun anew, and want pullers.
    pub(crate) fn keep(&self, duty: Duty) -> Vec<Arc<Assigned<W>>> {
        match duty {
            Duty::Expire => self.assigned().iter().for_each(|assigned| self.expire(assigned)),
            Duty::Lock => self.assigned().iter().for_each(|assigned| self.renew(assigned)),
            Duty::Rebuild => return self.rebuild(),
        }
        Vec::new()
    }

    /// Takes messages away that are held too long, and sends them back; without a place to send
    /// them to, another worker gets them.
    fn expire(&self, assigned: &Arc<Assigned<W>>) {
        let (Some(age), Service::Concurrent(_)) = (self.settings.expire, &self.service) else {
            return;
        };
        let current = assigned.current();
        let now = tick(self.time().now());
        let Ok(stalled) = current.part.stalled(now, tick(age)) else { return };
        // From where the last pass ended, so that messages that cannot be sent back do not keep
        // the others waiting.
        let after = assigned.expired_to.load(Ordering::Relaxed);
        let (mut these, before): (Vec<Stalled>, Vec<_>) =
            stalled.filter(|stalled| stalled.revocable).partition(|stalled| stalled.offset > after);
        these.extend(before);
        let mut given_back = false;
        for stalled in these.into_iter().take(AT_ONCE) {
            assigned.expired_to.store(stalled.offset, Ordering::Relaxed);
            // Stamped as it was: what stays held is due in the next pass.
            let Ok(lease) = current.part.at(stalled.since).revoke(stalled.offset) else { continue };
            count(&assigned.counts.expired, 1);
            let sent = catch_unwind(AssertUnwindSafe(|| self.send_expired(assigned, &lease)));
            match sent {
                Ok(Some(true)) => assigned.finish(|| lease.commit()),
                Ok(Some(false)) | Err(_) => lease.detach(),
                Ok(None) => {
                    given_back |= lease.rollback().is_ok();
                }
            }
        }
        if given_back {
            self.queue.add(assigned);
        }
        self.made_room(assigned);
        self.something_ended(assigned);
    }

    /// Was it sent back? None when there is nowhere to send it to.
    fn send_expired(&self, assigned: &Assigned<W>, lease: &Lease<Arc<W>>) -> Option<bool> {
        let settings = &self.settings;
        let message = lease.messages().next()?;
        let failed = Failed {
            partition: assigned.partition.name(),
            offset: message.offset,
            attempts: self.attempts(message.value, message.deliveries),
            value: message.value,
        };
        if let Some(report) = &settings.broadcast {
            report(&failed);
            count(&assigned.counts.reported, 1);
            return Some(true);
        }
        let last = failed.attempts >= settings.max_attempts;
        let (sent, counter) = match (&settings.give_up, &settings.send_back) {
            (Some(give_up), _) if last => (give_up(&failed), &assigned.counts.given_up),
            (None, Some(back)) if last => (back.dead_letter(&failed), &assigned.counts.given_up),
            (_, Some(back)) => {
                (back.send_back(&failed, DelayLevel::AUTO), &assigned.counts.sent_back)
            }
            (_, None) => return None,
        };
        if sent.is_ok() {
            count(counter, 1);
        }
        Some(sent.is_ok())
    }

    /// Takes or renews the lock of a partition.
    fn renew(&self, assigned: &Arc<Assigned<W>>) {
        let Some(lock) = &self.settings.lock else { return };
        if assigned.is_fenced() {
            return;
        }
        let begun = self.time().now();
        let name = assigned.partition.name();
        let asked = catch_unwind(AssertUnwindSafe(|| lock.lock.lock(name)));
        let held = self.is_locked(assigned);
        match asked {
            Ok(Ok(true)) => {
                // The old owner may have moved the offset. When that cannot be read, the lock is
                // not used yet.
                let anew = held || self.begin_at_stored(assigned).is_ok();
                let mut locked = assigned.lock();
                locked.renewed = anew.then_some(begun);
                drop(locked);
                assigned.lock_out(!anew);
                if anew && !held {
                    self.unpark(assigned);
                }
            }
            Ok(Ok(false)) => {
                assigned.lock().renewed = None;
                assigned.lock_out(true);
            }
            // Nobody knows: it lasts as long as its lease does.
            Ok(Err(_)) | Err(_) => assigned.lock_out(!held),
        }
    }

    /// Partitions with a pull that has not come back for too long are given up and taken on anew.
    fn rebuild(&self) -> Vec<Arc<Assigned<W>>> {
        let now = self.time().now();
        let mut anew = Vec::new();
        for assigned in self.assigned().iter() {
            let hangs =
                assigned.times.pulling.get().is_some_and(|pulling| {
                    now.saturating_sub(pulling) > self.settings.rebuild_after
                });
            if hangs
                && !assigned.intake_stopped()
                && let Ok(new) = self.replace(assigned)
            {
                anew.push(new);
            }
        }
        anew
    }
}

/// A thread of the keeper's, until it is stopped.
pub(crate) fn run<S, W>(running: &Arc<Running<S, W>>, duties: &[Duty])
where
    S: Source,
    W: Window<Value = S::Message> + Send + Sync + 'static,
{
    while let Some(duty) = running.keeper.wait(duties, running.time()) {
        for assigned in running.keep(duty) {
            // A partition without a thread is pulled by nobody; its hanging pull says so.
            let _ = super::running::spawn_puller(running, assigned);
        }
    }
}
