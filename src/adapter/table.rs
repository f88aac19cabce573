//! The assignment table: partitions come and go.

use std::error::Error;
use std::fmt;
use std::string::String;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, TryLockError};
use std::time::Duration;
use std::vec::Vec;

use super::assigned::Assigned;
use super::consumer::PartitionReport;
use super::lock::UNLOCK_TRIES;
use super::running::{Running, Service};
use super::source::{Partition, Source, SourceError};
use super::store::StoreError;
use crate::batch::BoxedBatchWatermark;
use crate::window::Window;

/// Why partitions were not taken on. Nothing was changed.
#[derive(Debug)]
#[non_exhaustive]
pub enum AssignError {
    /// The source could not say its partitions.
    Source(SourceError),
    /// Two partitions have this name.
    TwiceNamed(String),
    /// The store could not say where to begin. Nothing starts from zero by itself.
    Store(StoreError),
    /// The limit on the span is larger than the capacity of the window of this partition.
    Span(String),
    /// A thread could not be started: this partition is assigned, and nobody pulls it.
    Thread(String, std::io::Error),
    /// The consumer is being shut down.
    Stopped,
}

impl fmt::Display for AssignError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Source(error) => write!(f, "the source has no partitions to say: {error}"),
            Self::TwiceNamed(name) => write!(f, "two partitions are named {name:?}"),
            Self::Store(error) => error.fmt(f),
            Self::Span(name) => write!(f, "the limit on the span exceeds the window of {name:?}"),
            Self::Thread(name, error) => {
                write!(f, "a thread could not be started for {name:?}: {error}")
            }
            Self::Stopped => f.write_str("the consumer is being shut down"),
        }
    }
}

impl Error for AssignError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Source(error) => Some(&**error),
            Self::Store(error) => Some(error),
            Self::Thread(_, error) => Some(error),
            Self::TwiceNamed(_) | Self::Span(_) | Self::Stopped => None,
        }
    }
}

/// What a change of the table did: those that were taken on, those that were released.
pub(crate) type Changed<W> = (Vec<Arc<Assigned<W>>>, Vec<PartitionReport>);

impl<S, W> Running<S, W>
where
    S: Source,
    W: Window<Value = S::Message> + Send + Sync + 'static,
{
    /// A partition with an empty window, from the stored offset on.
    fn make(&self, partition: Partition) -> Result<Arc<Assigned<W>>, AssignError> {
        let limits = self.settings.limits;
        let stored = self.store.load(partition.name()).map_err(AssignError::Store)?;
        let start = stored.unwrap_or(partition.first());
        let window: Arc<W> = Arc::from((self.make_window)(&partition));
        let capacity = window.capacity().map_or(u64::MAX, |capacity| capacity as u64);
        if limits.span > capacity {
            return Err(AssignError::Span(partition.name().into()));
        }
        // A batch has a message at least, so that this is room for all that can be open.
        let open = usize::try_from(limits.span).unwrap_or(usize::MAX);
        let batches = matches!(self.service, Service::Batched(_))
            .then(|| Arc::new(BoxedBatchWatermark::new(open)));
        let assigned = Assigned::new(partition, window, start, limits, batches);
        if self.settings.lock.is_some() {
            assigned.lock_out(true);
        }
        assigned.suspend(self.suspended.load(Ordering::Acquire));
        Ok(Arc::new(assigned))
    }

    /// Sets which partitions are assigned: those that are not named are released, each within the
    /// time; new ones are taken on.
    pub(crate) fn assign(
        &self,
        partitions: Vec<Partition>,
        drain: Duration,
    ) -> Result<Changed<W>, AssignError> {
        let _rebalancing = self.rebalancing.lock().unwrap_or_else(PoisonError::into_inner);
        if self.intake_stopped.load(Ordering::Acquire) {
            return Err(AssignError::Stopped);
        }
        for (at, partition) in partitions.iter().enumerate() {
            if partitions[..at].iter().any(|other| other.name() == partition.name()) {
                return Err(AssignError::TwiceNamed(partition.name().into()));
            }
        }
        let assigned = self.assigned();
        let is = |one: &Partition, other: &Partition| one.name() == other.name();
        let new = partitions
            .iter()
            .filter(|new| !assigned.iter().any(|old| is(&old.partition, new)))
            .map(|new| self.make(new.clone()))
            .collect::<Result<Vec<_>, _>>()?;
        let gone: Vec<_> = assigned
            .into_iter()
            .filter(|old| !partitions.iter().any(|new| is(&old.partition, new)))
            .collect();
        // All at once, then one after the other until one deadline.
        gone.iter().for_each(|assigned| assigned.fence());
        let until = self.time().deadline(drain);
        let reports = gone.iter().map(|assigned| self.release(assigned, Some(until))).collect();
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        table.extend(new.iter().cloned());
        drop(table);
        self.keeper.soon(super::keeper::Duty::Lock, self.time().now());
        Ok((new, reports))
    }

    /// Fences a partition, waits for the handlers that have messages of it, publishes, gives the
    /// lock back, and forgets it.
    pub(crate) fn release(
        &self,
        assigned: &Arc<Assigned<W>>,
        until: Option<Duration>,
    ) -> PartitionReport {
        assigned.fence();
        self.queue.wait_idle(assigned, until, self.time());
        let report = self.end(assigned, None);
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        table.retain(|other| !Arc::ptr_eq(other, assigned));
        drop(table);
        self.wake_waiting();
        report
    }

    /// Publishes and ends the assignment of a fenced partition, and gives its lock back.
    pub(crate) fn end(
        &self,
        assigned: &Arc<Assigned<W>>,
        published: Option<bool>,
    ) -> PartitionReport {
        let (watermark, published) = self.end_assignment(assigned, published);
        let current = assigned.current();
        let report = PartitionReport {
            name: assigned.partition.name().into(),
            watermark,
            end: current.part.end().unwrap_or(watermark).max(watermark),
            left: assigned.window.count(),
            published: assigned.published(),
            unlock_tries: 0,
        };
        drop(current);
        // Whoever still has messages of it is told that they are not his any more.
        let begin_anew = || assigned.reassign(watermark);
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(begin_anew));
        self.freed_budget(assigned);
        // A lock whose watermark is not stored runs out by itself: the next owner then finds what
        // is stored, no earlier than it would without this.
        let unlock_tries = if published { self.unlock(assigned) } else { 0 };
        PartitionReport { unlock_tries, ..report }
    }

    /// Gives a lock back; how often that was tried.
    fn unlock(&self, assigned: &Assigned<W>) -> u32 {
        let Some(lock) = &self.settings.lock else { return 0 };
        if assigned.lock().renewed.is_none() {
            return 0;
        }
        let name = assigned.partition.name();
        loop {
            let asked =
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| lock.lock.unlock(name)));
            let mut locked = assigned.lock();
            locked.unlock_tries += 1;
            if matches!(asked, Ok(Ok(()))) {
                locked.renewed = None;
            }
            if locked.renewed.is_none() || locked.unlock_tries >= UNLOCK_TRIES {
                return locked.unlock_tries;
            }
        }
    }

    /// Gives up a partition whose pull hangs, and takes it on anew from where it is.
    pub(crate) fn replace(&self, old: &Arc<Assigned<W>>) -> Result<Arc<Assigned<W>>, AssignError> {
        // Whoever changes the table may wait for handlers: not here, where locks are renewed. The
        // next pass tries again.
        let _rebalancing = match self.rebalancing.try_lock() {
            Ok(rebalancing) => rebalancing,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(AssignError::Stopped),
        };
        if old.is_released() || self.intake_stopped.load(Ordering::Acquire) {
            return Err(AssignError::Stopped);
        }
        let new = self.make(old.partition.clone())?;
        old.fence();
        self.end_assignment(old, None);
        new.set_published(old.published());
        new.reassign(old.published());
        *new.lock() = *old.lock();
        new.lock_out(!self.is_locked(&new));
        new.suspend(old.is_suspended());
        super::assigned::count(&new.counts.rebuilt, 1);
        let begin_anew = || old.reassign(old.published());
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(begin_anew));
        self.freed_budget(old);
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        for assigned in table.iter_mut().filter(|assigned| Arc::ptr_eq(assigned, old)) {
            *assigned = Arc::clone(&new);
        }
        Ok(new)
    }
}
