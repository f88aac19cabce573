//! [`PartitionLock`]: the leave to consume a partition, where several consumers might.

use std::sync::Arc;
use std::time::Duration;

use super::source::SourceError;

/// A lock on partitions that a broker or a coordinator keeps: a lease that runs out unless it is
/// renewed. RocketMQ: `lockBatchMQ`, `unlock`.
///
/// Called from one thread at a time for one partition.
///
/// ```
/// use std::collections::HashMap;
/// use std::sync::Mutex;
/// use inflight::consumer::{PartitionLock, SourceError};
///
/// /// The locks of consumers in one process: which of them has which partition.
/// #[derive(Default)]
/// struct Table(Mutex<HashMap<String, u32>>);
///
/// struct Member<'a> {
///     table: &'a Table,
///     id: u32,
/// }
///
/// impl Member<'_> {
///     fn lock(&self, partition: &str) -> Result<bool, SourceError> {
///         let mut owners = self.table.0.lock().unwrap();
///         Ok(*owners.entry(partition.into()).or_insert(self.id) == self.id)
///     }
/// }
///
/// let table = Table::default();
/// assert!(Member { table: &table, id: 1 }.lock("orders-0")?);
/// assert!(!Member { table: &table, id: 2 }.lock("orders-0")?);
/// # Ok::<(), SourceError>(())
/// ```
pub trait PartitionLock: Send + Sync + 'static {
    /// Takes or renews the lock; false when another has it.
    ///
    /// # Errors
    /// Any: whether it is locked is not known then. What was locked stays so until its lease has
    /// run out; tried again at the next renewal.
    fn lock(&self, partition: &str) -> Result<bool, SourceError>;

    /// Gives the lock back. The watermark was published before.
    ///
    /// # Errors
    /// Any; tried again, then left to run out.
    fn unlock(&self, partition: &str) -> Result<(), SourceError>;
}

impl<L: PartitionLock + ?Sized> PartitionLock for Arc<L> {
    fn lock(&self, partition: &str) -> Result<bool, SourceError> {
        (**self).lock(partition)
    }

    fn unlock(&self, partition: &str) -> Result<(), SourceError> {
        (**self).unlock(partition)
    }
}

/// How often giving a lock back is tried.
pub(crate) const UNLOCK_TRIES: u32 = 3;

/// What a consumer knows of its lock on a partition.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Locked {
    /// When the renewal that succeeded last was begun; none while another has the lock.
    pub(crate) renewed: Option<Duration>,
    /// Tries to give it back.
    pub(crate) unlock_tries: u32,
}

impl Locked {
    /// Exactly at the end of its lease it is not expired.
    pub(crate) fn holds(&self, now: Duration, lease: Duration) -> bool {
        self.renewed.is_some_and(|renewed| now.saturating_sub(renewed) <= lease)
    }
}
