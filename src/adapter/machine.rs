//! What a handle on a consumer needs of it, whatever its messages and windows are.

use std::string::{String, ToString};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use std::vec::Vec;

use super::assigned::Assigned;
use super::consumer::{PartitionProgress, PartitionReport, Progress};
use super::running::{Running, spawn_puller};
use super::source::{Partition, Source};
use super::store::StoreError;
use super::table::AssignError;
use crate::look::Stage;
use crate::window::Window;

pub(crate) trait Machine: Send + Sync {
    /// The deadline of a wait that begins now.
    fn deadline(&self, wait: Duration) -> Duration;
    fn stop_intake(&self);
    fn stop_workers(&self);
    fn stop_clock(&self);
    /// Waits until no handler runs.
    fn wait_calm(&self, until: Duration) -> bool;
    /// Waits until no puller runs.
    fn wait_pullers(&self, until: Duration) -> bool;
    /// Waits until nothing is unfinished, with the intake stopped.
    fn wait_drained(&self, until: Duration) -> bool;
    /// Waits until everything that the log had is finished.
    fn wait_caught_up(&self, until: Duration) -> bool;
    fn publish(&self) -> Result<(), StoreError>;
    fn progress(&self) -> Progress;
    /// A partition's window as a line of letters; none when there is no such partition.
    fn picture(&self, partition: &str, width: usize) -> Option<String>;
    /// The end of all partitions: published once more, then given up.
    fn end_all(&self) -> (Vec<PartitionReport>, Result<(), StoreError>);
    fn puller_threads(&self) -> Vec<JoinHandle<()>>;
    /// Sets the partitions: those named, or those that the source says.
    fn rebalance(
        self: Arc<Self>,
        partitions: Option<Vec<Partition>>,
        drain: Duration,
    ) -> Result<Vec<PartitionReport>, AssignError>;
    /// Suspends or resumes a partition, or all; false when there is no such one.
    fn suspend(&self, partition: Option<&str>, suspended: bool) -> bool;
}

impl<S, W> Machine for Running<S, W>
where
    S: Source,
    W: Window<Value = S::Message> + Send + Sync + 'static,
{
    fn deadline(&self, wait: Duration) -> Duration {
        self.time().deadline(wait)
    }

    fn stop_intake(&self) {
        self.intake_stopped.store(true, Ordering::Release);
        // Whoever takes partitions on has looked before, and these are among them, or looks after.
        drop(self.rebalancing.lock().unwrap_or_else(PoisonError::into_inner));
        self.assigned().iter().for_each(|assigned| assigned.stop_intake());
    }

    fn stop_workers(&self) {
        self.queue.stop();
        for assigned in self.assigned() {
            // The drop of a message is user code.
            let forget = std::panic::AssertUnwindSafe(|| assigned.current().forget());
            let _ = std::panic::catch_unwind(forget);
        }
    }

    fn stop_clock(&self) {
        self.clock.stop();
        self.keeper.stop();
    }

    fn wait_calm(&self, until: Duration) -> bool {
        self.queue.wait_calm(Some(until), self.time())
    }

    fn wait_pullers(&self, until: Duration) -> bool {
        self.wait(Some(until), || self.pullers.load(Ordering::Acquire) == 0)
    }

    fn wait_drained(&self, until: Duration) -> bool {
        self.wait(Some(until), || {
            self.pullers.load(Ordering::Acquire) == 0
                && self.assigned().iter().all(|assigned| assigned.window.is_empty())
        })
    }

    fn wait_caught_up(&self, until: Duration) -> bool {
        self.wait(Some(until), || self.assigned().iter().all(|assigned| assigned.caught_up()))
    }

    fn publish(&self) -> Result<(), StoreError> {
        self.publish()
    }

    fn progress(&self) -> Progress {
        let assigned = self.assigned();
        Progress {
            now: self.time().now(),
            partitions: assigned.iter().map(|assigned| self.look(assigned)).collect(),
            store_errors: self.store_errors.load(Ordering::Relaxed),
            last_store_error: self
                .last_store_error
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone(),
        }
    }

    fn picture(&self, partition: &str, width: usize) -> Option<String> {
        let assigned = self.assigned();
        let assigned = assigned.iter().find(|assigned| assigned.partition.name() == partition)?;
        Some(assigned.current().part.picture(width).to_string())
    }

    fn end_all(&self) -> (Vec<PartitionReport>, Result<(), StoreError>) {
        let published = self.publish().or_else(|_| self.publish());
        let stored = Some(published.is_ok());
        let assigned = self.assigned();
        (assigned.iter().map(|assigned| self.end(assigned, stored)).collect(), published)
    }

    fn puller_threads(&self) -> Vec<JoinHandle<()>> {
        let mut threads = self.puller_threads.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut threads)
    }

    fn rebalance(
        self: Arc<Self>,
        partitions: Option<Vec<Partition>>,
        drain: Duration,
    ) -> Result<Vec<PartitionReport>, AssignError> {
        let partitions = match partitions {
            Some(partitions) => partitions,
            None => self.source.partitions().map_err(AssignError::Source)?,
        };
        let (new, released) = self.assign(partitions, drain)?;
        for assigned in new {
            let name = String::from(assigned.partition.name());
            spawn_puller(&self, assigned).map_err(|error| AssignError::Thread(name, error))?;
        }
        Ok(released)
    }

    fn suspend(&self, partition: Option<&str>, suspended: bool) -> bool {
        if partition.is_none() {
            self.suspended.store(suspended, Ordering::Release);
        }
        let mut found = partition.is_none();
        for assigned in self.assigned() {
            if partition.is_none_or(|name| assigned.partition.name() == name) {
                found = true;
                assigned.suspend(suspended);
                if !suspended {
                    self.unpark(&assigned);
                }
            }
        }
        found
    }
}

impl<S, W> Running<S, W>
where
    S: Source,
    W: Window<Value = S::Message> + Send + Sync + 'static,
{
    fn look(&self, assigned: &Assigned<W>) -> PartitionProgress {
        let current = assigned.current();
        let part = &current.part;
        // The end first: what is shown as the span is never more than there was.
        let end = part.end().unwrap_or(0);
        let watermark = part.min_offset().map_or(0, |next| next.get());
        let end = end.max(watermark);
        let numbered = assigned.spans_messages(part);
        let span = if numbered { part.span().unwrap_or(0) } else { end - watermark };
        let (mut first, mut last, mut held) = (None, None, Vec::new());
        for look in part.pending().into_iter().flatten() {
            first = first.or(Some(look.offset));
            last = Some(look.offset);
            if matches!(look.stage, Stage::Held | Stage::Lent) {
                held.push(look.offset);
            }
        }
        let usage = assigned.window.usage();
        let counts = &assigned.counts;
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let backlog = self.source.end(&assigned.partition);
        let locked = *assigned.lock();
        PartitionProgress {
            name: assigned.partition.name().into(),
            watermark,
            published: assigned.published(),
            end,
            span,
            count: usage.count,
            bytes: usage.bytes,
            backlog: backlog.map(|log_end| log_end.saturating_sub(end)),
            first,
            last,
            held: held.len(),
            held_first: held.first().copied(),
            held_last: held.last().copied(),
            head: part.head().ok().flatten(),
            suspended: assigned.is_suspended(),
            locked: self.is_locked(assigned),
            dropped: assigned.is_fenced(),
            unlock_tries: locked.unlock_tries,
            last_lock: locked.renewed,
            last_pull: assigned.times.pulled.get(),
            last_consume: assigned.times.consumed.get(),
            finished: get(&counts.finished),
            filtered: get(&counts.filtered),
            retried: get(&counts.retried),
            sent_back: get(&counts.sent_back),
            given_up: get(&counts.given_up),
            reported: get(&counts.reported),
            expired: get(&counts.expired),
            panics: get(&counts.panics),
            pulls: get(&counts.pulls),
            pull_errors: get(&counts.pull_errors),
            resets: get(&counts.resets),
            rebuilt: get(&counts.rebuilt),
            last_error: assigned.last_error(),
        }
    }
}
