//! [`OffsetStore`]: where watermarks are kept, and the store that keeps them in memory.

use std::boxed::Box;
use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::string::String;
use std::sync::{Arc, Mutex, PoisonError};

/// Why an offset store failed.
///
/// ```
/// use inflight::consumer::{FileStore, StoreError};
///
/// # let folder = tempfile::tempdir()?;
/// std::fs::write(folder.path().join("offsets"), "garbage")?;
/// match FileStore::open(folder.path()) {
///     Err(StoreError::Corrupt { path, .. }) => assert!(path.ends_with("offsets")),
///     other => panic!("{other:?}"),
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum StoreError {
    /// A file or folder could not be read or written.
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The file is not what this store wrote: torn or damaged. It was left as it is. Nothing
    /// starts from zero by itself: mend it, restore it, or remove it to begin anew.
    Corrupt {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        what: &'static str,
    },
    /// Another store's error.
    Other(Box<dyn Error + Send + Sync>),
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { path, error } => write!(f, "{}: {error}", path.display()),
            Self::Corrupt { path, what } => {
                write!(f, "the offset file {} is damaged: {what}", path.display())
            }
            Self::Other(error) => error.fmt(f),
        }
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Io { error, .. } => Some(error),
            Self::Corrupt { .. } => None,
            Self::Other(error) => Some(&**error),
        }
    }
}

impl From<Box<dyn Error + Send + Sync>> for StoreError {
    fn from(error: Box<dyn Error + Send + Sync>) -> Self {
        Self::Other(error)
    }
}

/// Where the watermarks of partitions are kept. RocketMQ: `OffsetStore`.
///
/// Offsets are exclusive: the next one to consume. A consumer calls `load` for each partition at
/// start, then `publish` and `reset` from one thread at a time.
///
/// ```
/// use std::sync::Mutex;
/// use inflight::consumer::{OffsetStore, StoreError};
///
/// /// A store for one partition.
/// #[derive(Default)]
/// struct Single(Mutex<Option<u64>>);
///
/// impl OffsetStore for Single {
///     fn load(&self, _: &str) -> Result<Option<u64>, StoreError> {
///         Ok(*self.0.lock().unwrap())
///     }
///
///     fn publish(&self, offsets: &[(&str, u64)]) -> Result<(), StoreError> {
///         let mut stored = self.0.lock().unwrap();
///         // None is lower than every offset.
///         *stored = offsets.iter().map(|(_, offset)| Some(*offset)).fold(*stored, Ord::max);
///         Ok(())
///     }
///
///     fn reset(&self, _: &str, offset: u64) -> Result<(), StoreError> {
///         *self.0.lock().unwrap() = Some(offset);
///         Ok(())
///     }
/// }
///
/// let store = Single::default();
/// store.publish(&[("only", 7)])?;
/// store.publish(&[("only", 5)])?;
/// assert_eq!(store.load("only")?, Some(7));
/// # Ok::<(), StoreError>(())
/// ```
pub trait OffsetStore: Send + Sync + 'static {
    /// The stored offset of a partition; none when it has none.
    ///
    /// # Errors
    /// Any; the consumer does not start.
    fn load(&self, partition: &str) -> Result<Option<u64>, StoreError>;

    /// Raises the stored offsets of partitions, all or none; lower ones change nothing. They are
    /// safe when this returns.
    ///
    /// # Errors
    /// Any; the next publish carries what this one did not.
    fn publish(&self, offsets: &[(&str, u64)]) -> Result<(), StoreError>;

    /// Sets the stored offset of a partition, also downwards: the log itself was cut or made anew.
    ///
    /// # Errors
    /// Any; tried again until it succeeds.
    fn reset(&self, partition: &str, offset: u64) -> Result<(), StoreError>;
}

impl<S: OffsetStore + ?Sized> OffsetStore for Arc<S> {
    fn load(&self, partition: &str) -> Result<Option<u64>, StoreError> {
        (**self).load(partition)
    }

    fn publish(&self, offsets: &[(&str, u64)]) -> Result<(), StoreError> {
        (**self).publish(offsets)
    }

    fn reset(&self, partition: &str, offset: u64) -> Result<(), StoreError> {
        (**self).reset(partition, offset)
    }
}

/// Raises offsets in a map; says whether any changed.
pub(crate) fn raise(map: &mut BTreeMap<String, u64>, offsets: &[(&str, u64)]) -> bool {
    let mut changed = false;
    for &(partition, offset) in offsets {
        match map.get_mut(partition) {
            Some(stored) if *stored >= offset => {}
            Some(stored) => {
                *stored = offset;
                changed = true;
            }
            None => {
                map.insert(partition.into(), offset);
                changed = true;
            }
        }
    }
    changed
}

/// A store in memory: for tests, and for logs that are consumed from their start each time.
///
/// ```
/// use inflight::consumer::{MemoryStore, OffsetStore};
///
/// let store = MemoryStore::default();
/// store.publish(&[("a", 7), ("b", 3)])?;
/// store.publish(&[("a", 5)])?;
/// assert_eq!(store.load("a")?, Some(7));
/// store.reset("a", 5)?;
/// assert_eq!(store.load("a")?, Some(5));
/// # Ok::<(), inflight::consumer::StoreError>(())
/// ```
#[derive(Debug, Default)]
pub struct MemoryStore {
    offsets: Mutex<BTreeMap<String, u64>>,
}

impl OffsetStore for MemoryStore {
    fn load(&self, partition: &str) -> Result<Option<u64>, StoreError> {
        let offsets = self.offsets.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(offsets.get(partition).copied())
    }

    fn publish(&self, offsets: &[(&str, u64)]) -> Result<(), StoreError> {
        raise(&mut self.offsets.lock().unwrap_or_else(PoisonError::into_inner), offsets);
        Ok(())
    }

    fn reset(&self, partition: &str, offset: u64) -> Result<(), StoreError> {
        let mut offsets = self.offsets.lock().unwrap_or_else(PoisonError::into_inner);
        offsets.insert(partition.into(), offset);
        Ok(())
    }
}
