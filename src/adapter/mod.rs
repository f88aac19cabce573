//! The adapter: a whole consumer over the windows. Threads, clocks, files and all policy (limits,
//! back-off, when to publish) are here; what is in flight is in the windows and nowhere else.
//!
//! - `source`, `store`, `file`, `lock`, `failed`: what a user brings or picks: where messages come
//!   from, where watermarks go, who may consume a partition, where messages go that nobody can
//!   deal with;
//! - `limits`, `outcome`, `builder`: what can be set, and what a handler answers;
//! - `assigned`: one partition: its window, its limits, the place where its puller waits;
//!   `table`: partitions come and go;
//! - `pull`: the loop that fills a window; `pool`: the workers that empty them all; `service`: what
//!   they do with what they take; `tasks`: workers that are futures; `clock`: retries that come due, and publishing; `keeper`: what
//!   expires, locks, pulls that hang;
//! - `running`: all of it together; `consumer`, by way of `machine`: the handle on it with threads;
//!   `stepped`: the handle on it without; `time`: the clock of either; `observe`: its numbers for the
//!   `metrics` facade.
//!
//! **Who wakes whom.** Nobody polls. A worker sleeps until a partition is in the run queue; whoever
//! makes a message ready (a put, a retry that came due) puts its partition there afterwards. A
//! puller sleeps until there is news, room, a deadline, or the end; a worker that finishes messages
//! looks whether a puller waits for room, or another partition's for a budget that they share. The
//! clock sleeps until the next due time.

mod assigned;
mod builder;
mod clock;
mod consumer;
mod failed;
mod file;
mod keeper;
mod limits;
mod lock;
mod machine;
#[cfg(feature = "metrics")]
mod observe;
mod outcome;
mod pool;
mod pull;
mod running;
mod service;
mod source;
mod stepped;
mod store;
mod table;
#[cfg(feature = "async")]
mod tasks;
mod time;

pub use builder::{Builder, DefaultWindow, StartError};
pub use consumer::{
    Consumer, PartitionProgress, PartitionReport, Progress, ShutdownError, ShutdownReport,
};
pub use failed::{DelayLevel, Failed, SendBack};
pub use file::FileStore;
pub use limits::Limits;
pub use lock::PartitionLock;
pub use outcome::{Backoff, Batch, Ordered, Outcome, Verdict};
pub use source::{Fetched, News, Partition, PullRequest, Pulled, Source, SourceError};
pub use stepped::{Pull, Stepped, Work};
pub use store::{MemoryStore, OffsetStore, StoreError};
pub use table::AssignError;
#[cfg(feature = "async")]
pub use tasks::{Owned, OwnedBatch, Worker};
