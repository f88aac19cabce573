//! The adapter: a whole consumer over the windows. Threads, clocks, files and all policy (limits,
//! back-off, when to publish) are here; what is in flight is in the windows and nowhere else.
//!
//! - `source`, `store`, `file`: what a user brings or picks: where messages come from, where
//!   watermarks go;
//! - `limits`, `outcome`, `builder`: what can be set, and what a handler answers;
//! - `assigned`: one partition: its window, its limits, the place where its puller waits;
//! - `pull`: the loop that fills a window; `pool`: the workers that empty them all;
//!   `clock`: retries that come due, and publishing;
//! - `running`: all of it together; `consumer`: the handle on it.
//!
//! **Who wakes whom.** Nobody polls. A worker sleeps until a partition is in the run queue; whoever
//! makes a message ready (a put, a retry that came due) puts its partition there afterwards. A
//! puller sleeps until there is news, room, a deadline, or the end; a worker that finishes messages
//! looks whether a puller waits for room. The clock sleeps until the next due time.

mod assigned;
mod builder;
mod clock;
mod consumer;
mod file;
mod limits;
mod outcome;
mod pool;
mod pull;
mod running;
mod source;
mod store;

pub use builder::{Builder, DefaultWindow, StartError};
pub use consumer::{
    Consumer, PartitionProgress, PartitionReport, Progress, ShutdownError, ShutdownReport,
};
pub use file::FileStore;
pub use limits::Limits;
pub use outcome::{Backoff, Batch, Outcome, Verdict};
pub use source::{Fetched, News, Partition, PullRequest, Pulled, Source, SourceError};
pub use store::{MemoryStore, OffsetStore, StoreError};
