//! The in-flight window of a log consumer: which messages are waiting, held and finished, and
//! the one offset that is safe to persist, lock-free and without an allocator.
//!
//! A consumer of a partitioned log pulls messages in offset order, hands them to several workers,
//! and gets completions back in any order. A [`RingWindow`] knows at every moment which messages
//! are in flight, and the **watermark**: everything below it is finished. Where the span cannot be
//! bounded, a `SkipWindow` does the same on a lock-free skip list.
//!
//! ```
//! use inflight::{RingWindow, Window};
//!
//! // In a static, made by the compiler: no allocator, no set-up.
//! static WINDOW: RingWindow<&str, 256> = RingWindow::new();
//!
//! // One assignment of the partition, from the offset that was persisted.
//! let part = WINDOW.assign(100);
//! part.put(100, "a")?;
//! part.put(101, "b")?;
//! part.put(102, "c")?;
//!
//! // A worker takes the lowest two. Dropped without a word, the lease gives them back.
//! let lease = part.take(2)?;
//! // An acknowledgement comes by number, before the others.
//! assert_eq!(part.remove(102)?.get(), 100);
//! // Now everything below 103 is finished: persist that.
//! assert_eq!(lease.commit()?.next.get(), 103);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Words
//!
//! | word | meaning |
//! |---|---|
//! | offset | position of a message in its log; every "next" offset is exclusive |
//! | put, take | admit a message; claim the lowest ready ones by a lease |
//! | lease | a claim: committed, rolled back, or dropped, which rolls back. [`Lease`] lends messages in place; [`SharedLease`] holds clones, and its messages can be taken away |
//! | detach | end a lease and leave its messages held, to be removed by number or revoked; [`Detached`], the receipt of a shared lease, can also give them back |
//! | remove | finish one offset by number |
//! | revoke | take a held message from whoever holds it |
//! | watermark | everything below it is finished; never goes back while an assignment lasts |
//! | end, span | the highest offset admitted, plus one; the distance from the watermark to it |
//! | seal | close an offset that was never admitted, so that a late put for it is refused |
//! | assignment | the handle of one generation; the last one wins, calls of older ones answer [`Stale`] |
//! | budget, share, permit | an exact limit on messages and bytes in flight, of one window or several; one window's part in it; what is reserved before a pull. See [`Budget`] |
//!
//! # Which window
//!
//! | what you have | take |
//! |---|---|
//! | dense offsets, and a span that can be bounded | [`RingWindow`], of the next power of two above the span: the fastest, and no allocator |
//! | offsets far apart that come in order: byte positions, LSNs, a filtered topic | a numbered one: [`RingWindow::numbered`], where messages count and not offsets |
//! | a span that nothing bounds: one stuck message, and millions finished behind it | `SkipWindow` (feature `alloc`), or its `numbered` |
//! | several putters, or puts in any order | `with_callers_seal` of either, and [`Assignment::advance_to`] |
//! | one limit for several windows, or exact before a pull | [`Budgeted`] around any of them |
//! | numbered batches with parts, and no single messages | [`BatchWatermark`] |
//!
//! # Features
//!
//! | feature | gives |
//! |---|---|
//! | `std` (default) | the consumer: threads, clocks, files; brings `alloc` |
//! | `metrics` | the consumer's numbers for the `metrics` facade; brings `std` |
//! | `alloc` | owned assignments, shared leases of any size, `SkipWindow` |
//! | `async` | waiting for messages, for room and for a budget, by any executor and without an allocator; with `std` also blocking, and the consumer's handlers may be futures |
//! | `portable-atomic` | atomics by that crate, for targets without compare-exchange |
//! | `critical-section` | those by the critical section that your target's crate provides |
//!
//! With none of them (`default-features = false`) the core needs only `core`.
//!
//! # What each method costs
//!
//! *n*: messages of the call, *N*: capacity, *d*: offsets between the watermark and the end.
//! *Slide*: moves the watermark over what is finished; each offset is passed once, so it costs
//! O(1) a message, and O(*N*) at most in one call. *Lock-free*: a stopped thread or an
//! interrupted context never makes another wait; a call retries a step only when another call
//! completed one. *Wait-free*: a fixed number of steps. On 32-bit targets reading the watermark
//! is lock-free instead (two words, read again when they were moved in between). On targets
//! where `critical-section` does the compare-exchanges all of this holds between those sections,
//! each of which is one load, compare and store.
//!
//! Orderings: *acquire* is loads alone. *AcqRel* is compare-exchanges and other
//! read-modify-writes that acquire and release, after acquire loads. No call on a ring
//! needs `SeqCst` or a fence. What a call tells you happens before what you do with it: a message taken
//! was put before, and every message below a watermark was finished before it.
//!
//! The tables are a [`RingWindow`]'s. In a `SkipWindow` finding an offset costs O(1) in a window of
//! a few thousand dense offsets and O(log *d*) beyond; a put may allocate (a block of 64 offsets, a
//! chunk of 4 or 64 slots), as may `assign`, `advance_to` and a slide (a block); every call pins the thread, and
//! that has `SeqCst` fences, of `crossbeam-epoch`. In a window numbered by arrival, of either kind,
//! finding an offset is a search of O(log *d*) steps.
//!
//! ## Window
//!
//! | method | cost | ordering | progress | allocates |
//! |---|---|---|---|---|
//! | `capacity` | O(1) | none | wait-free | no |
//! | `assign` | O(*N*) | AcqRel | lock-free | no |
//! | `assign_owned` | O(*N*) | AcqRel | lock-free | no, it clones the `Arc` |
//! | `count`, `bytes`, `usage`, `is_empty`, `skipped` | O(1) | acquire | wait-free | no |
//! | `span` | O(1) | acquire | wait-free | no |
//! | `drain_next` | O(1) and the slide | alone with the window | wait-free | no |
//! | `drain` | O(1), each step as `drain_next` | alone with the window | wait-free | no |
//!
//! ## Assignment
//!
//! | method | cost | ordering | progress | allocates |
//! |---|---|---|---|---|
//! | `window` | O(1) | none | wait-free | no |
//! | `put`, `put_sized` | O(1); when full, a slide | AcqRel | lock-free | no |
//! | `put_batch`, `put_batch_sized` | O(*n*); when full, a slide | AcqRel, three words once for up to 64 messages | lock-free | no |
//! | `take` | O(*n* + what lies between), O(*d*) when nothing is ready | AcqRel | lock-free | no |
//! | `take_shared` | as `take`, and *n* clones | AcqRel | lock-free | once, for *n* clones |
//! | `take_shared_in` | as `take`, and *n* clones | AcqRel | lock-free | no |
//! | `at` | O(1) | none | wait-free | no |
//! | `with` | O(1) | none | wait-free | no |
//! | `remove`, `remove_ticket` | O(1) and the slide | AcqRel | lock-free | no |
//! | `remove_batch`, `remove_each` | O(*n*) and one slide | AcqRel | lock-free | no |
//! | `watermark` | O(1) | acquire | wait-free | no |
//! | `min_offset` | the slide | AcqRel | lock-free | no |
//! | `advance_to` | the slide, O(*N*) when far | AcqRel | lock-free | no |
//! | `advance_floor` | O(*N*) | AcqRel | lock-free | no |
//! | `skip` | O(1) and the slide | AcqRel | lock-free | no |
//! | `end`, `span`, `backlog` | O(1) | acquire | wait-free | no |
//! | `close` | O(1) | AcqRel | wait-free | no |
//! | `take_async`, `take_shared_async`, `take_shared_in_async` | a poll: two takes | AcqRel | a poll: lock-free | as the take |
//! | `space_async`, `space_for_async` | a poll: the slide | AcqRel | a poll: lock-free | no |
//! | `take_blocking`, `take_timeout` | a poll each time it is woken | AcqRel | waits | once, its waker |
//! | `space_blocking`, `space_timeout`, `space_for_blocking`, `space_for_timeout` | a poll each time it is woken | AcqRel | waits | once, its waker |
//! | `reserve`, `reserve_up_to` | O(1) | AcqRel | lock-free | no |
//! | `reserve_async` | a poll: O(1) | AcqRel | a poll: lock-free | no |
//! | `reserve_blocking`, `reserve_timeout` | a poll each time it is woken | AcqRel | waits | once, its waker |
//! | `head` | the slide | AcqRel | lock-free | no |
//! | `picture` | O(width), when it is shown | acquire | wait-free a step | no |
//! | `snapshot` | O(*d*), O(*N*) in a ring | AcqRel | lock-free | no |
//! | `finished` | O(*d*) in all, as it is iterated | acquire | wait-free a step | no |
//! | `restore` | O(1) for each finished offset within reach | AcqRel | lock-free | no |
//! | `pending`, `stalled` | O(*d*) in all, as it is iterated | acquire | wait-free a step | no |
//!
//! ## At
//!
//! | method | cost | ordering | progress | allocates |
//! |---|---|---|---|---|
//! | `take` | as of the assignment | AcqRel | lock-free | no |
//! | `take_shared` | as of the assignment | AcqRel | lock-free | once, for *n* clones |
//! | `take_shared_in` | as of the assignment | AcqRel | lock-free | no |
//! | `revoke` | O(1) | AcqRel | lock-free | no |
//! | `touch` | O(1) | relaxed store | wait-free | no |
//!
//! ## Lease
//!
//! | method | cost | ordering | progress | allocates |
//! |---|---|---|---|---|
//! | `len`, `is_empty` | O(1) | none | wait-free | no |
//! | `iter`, `messages` | O(*n*) in all | none | wait-free | no |
//! | `commit` | O(*n*) and one slide | AcqRel | lock-free | no |
//! | `commit_only` | O(*n*) when the offsets ascend, O(*n*²) at worst, and one slide | AcqRel | lock-free | no |
//! | `commit_where` | O(*n*) and one slide | AcqRel | lock-free | no |
//! | `finish` | O(*n*) and the slide | AcqRel | lock-free | no |
//! | `rollback` | O(*n*) | AcqRel | lock-free | no |
//! | `detach` | O(*n*) | AcqRel | lock-free | no |
//! | `into_values` | O(1) and the slide, each message | AcqRel | lock-free | no |
//! | `touch` | O(*n*) | relaxed stores | wait-free | no |
//!
//! Dropping a lease costs what `rollback` does.
//!
//! ## SharedLease
//!
//! | method | cost | ordering | progress | allocates |
//! |---|---|---|---|---|
//! | `len`, `is_empty` | O(1) | none | wait-free | no |
//! | `iter`, `messages` | O(*n*) in all | none | wait-free | no |
//! | `commit` | O(*n*) and one slide | AcqRel | lock-free | no |
//! | `commit_only` | O(*n* log *n*) and one slide | AcqRel | lock-free | no |
//! | `commit_where` | O(*n*) and one slide | AcqRel | lock-free | no |
//! | `finish` | O(*n*) and the slide | AcqRel | lock-free | no |
//! | `rollback` | O(*n*) | AcqRel | lock-free | no |
//! | `split` | O(*n*), and O(*n*) for each taken out; no access to the window | none | wait-free | with `alloc`, as it fills |
//! | `detach` | O(*n*), no access to the window | none | wait-free | no |
//! | `into_detached` | O(*n*), no access to the window | none | wait-free | with `alloc`, once |
//! | `into_values` | O(1) and the slide, each message | AcqRel | lock-free | no |
//! | `touch` | O(*n*) | acquire, relaxed stores | wait-free | no |
//!
//! ## Detached
//!
//! | method | cost | ordering | progress | allocates |
//! |---|---|---|---|---|
//! | `len`, `is_empty` | O(1) | none | wait-free | no |
//! | `offsets` | O(*n*) in all | none | wait-free | no |
//! | `touch` | O(*n*) | acquire, relaxed stores | wait-free | no |
//! | `give_back` | O(*n*) | AcqRel | lock-free | no |
//!
//! ## Snapshot
//!
//! Here *n* is the bytes of the snapshot.
//!
//! | method | cost | ordering | progress | allocates |
//! |---|---|---|---|---|
//! | `parse`, `is_finished` | O(*n*) | none | wait-free | no |
//! | `watermark`, `exact_up_to`, `bytes_in_text` | O(1) | none | wait-free | no |
//! | `finished`, `filter` | O(*n*) in all, as they are used | none | wait-free | no |
//!
//! ## BatchWatermark
//!
//! Here *n* is the batches that are complete at the front and *N* the capacity.
//!
//! | method | cost | ordering | progress | allocates |
//! |---|---|---|---|---|
//! | `capacity` | O(1) | none | wait-free | no |
//! | `assign`, `assign_owned` | O(*N*) | AcqRel | lock-free | no, `assign_owned` clones the `Arc` |
//!
//! ## BoxedBatchWatermark
//!
//! | method | cost | ordering | progress | allocates |
//! |---|---|---|---|---|
//! | `new` | O(*N*) | none | wait-free | once |
//! | `capacity` | O(1) | none | wait-free | no |
//! | `assign`, `assign_owned` | O(*N*) | AcqRel | lock-free | no, `assign_owned` clones the `Arc` |
//!
//! ## Batches
//!
//! | method | cost | ordering | progress | allocates |
//! |---|---|---|---|---|
//! | `begin`, `fail`, `retry` | O(1) | AcqRel | lock-free | no |
//! | `end`, `skip` | O(1), O(*n*) when it completes a batch | AcqRel | lock-free | no |
//! | `watermark`, `head` | O(1) | acquire | wait-free | no |
//!
//! ## Budget
//!
//! | method | cost | ordering | progress | allocates |
//! |---|---|---|---|---|
//! | `limit` | O(1) | none | wait-free | no |
//! | `free` | O(1) | acquire | wait-free | no |
//!
//! ## Share
//!
//! | method | cost | ordering | progress | allocates |
//! |---|---|---|---|---|
//! | `budget`, `floor` | O(1) | none | wait-free | no |
//! | `with_floor` | O(1) | AcqRel | lock-free | no |
//! | `used`, `room`, `most` | O(1) | acquire | wait-free | no |
//!
//! ## Budgeted
//!
//! | method | cost | ordering | progress | allocates |
//! |---|---|---|---|---|
//! | `new` | O(1); what was in the window, as `drain` | alone with the window | wait-free | no |
//! | `share` | O(1) | none | wait-free | no |
//!
//! In a budgeted window each call that finishes messages gives back what they cost, by two more
//! read-modify-writes (one within the floor; twice as many with 32-bit words), once for a batch or
//! lease; a put without a permit pays as much.
//!
//! ## Permit
//!
//! | method | cost | ordering | progress | allocates |
//! |---|---|---|---|---|
//! | `messages`, `bytes` | O(1) | none | wait-free | no |
//! | `put_sized` | as of the assignment, and O(1) for what the permit lacks | AcqRel | lock-free | no |
//! | `put_batch_sized` | as of the assignment, and O(1) a message for what the permit lacks | AcqRel | lock-free | no |
//!
//! Dropping a permit is O(1), AcqRel and wait-free.
#![no_std]
// The word is 32 or 64 bits wide: a conversion that is useless here is needed there.
#![allow(clippy::useless_conversion, clippy::unnecessary_cast)]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "alloc")]
extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

#[cfg(all(feature = "std", not(loom), not(inflight_word32)))]
mod adapter;
mod assignment;
mod batch;
mod budget;
mod control;
mod detached;
mod engine;
mod error;
mod flow;
mod lease;
mod look;
mod position;
mod ring;
mod shared;
mod shelf;
#[cfg(all(feature = "alloc", target_has_atomic = "ptr"))]
mod skiplist;
mod slot;
mod snapshot;
mod sync;
#[cfg(feature = "async")]
mod waiting;
mod window;

/// The README's example runs with the others.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;

/// The whole consumer over the windows: threads, clocks and files. Feature `std`.
///
/// A [`Source`](consumer::Source) has partitions to pull messages from; an
/// [`OffsetStore`](consumer::OffsetStore) keeps the watermarks; a handler says what became of each
/// message; a [`Consumer`](consumer::Consumer) does the rest: pulls within
/// [`Limits`](consumer::Limits), shares its workers among the partitions in turn, retries what
/// failed, contains what panicked, publishes, and shuts down without losing anything.
///
/// Messages are handled in any order ([`concurrent`](consumer::Builder::concurrent)), one batch of a
/// partition after the other ([`orderly`](consumer::Builder::orderly)), those of one key one after the
/// other ([`keyed`](consumer::Builder::keyed)), or in numbered batches
/// ([`batched`](consumer::Builder::batched)). Partitions may come and go
/// ([`assign`](consumer::Consumer::assign)), under a lock where several consumers could have them
/// ([`lock`](consumer::Builder::lock)). For tests there is the same machine without threads, on a clock
/// that is moved by hand ([`stepped`](consumer::Builder::stepped)).
///
/// ```
/// use std::time::Duration;
/// use inflight::consumer::{
///     Backoff, Batch, Consumer, Fetched, FileStore, Limits, Outcome, Partition, PullRequest,
///     Pulled, Source, SourceError, Verdict,
/// };
///
/// /// A log in memory, of two partitions.
/// struct Log([Vec<String>; 2]);
///
/// impl Source for Log {
///     type Message = String;
///
///     fn partitions(&self) -> Result<Vec<Partition>, SourceError> {
///         Ok(vec![Partition::new(0, "orders-0"), Partition::new(1, "orders-1")])
///     }
///
///     fn pull(&self, of: &Partition, request: &PullRequest) -> Result<Pulled<String>, SourceError> {
///         let lines = self.0[of.id()].iter().enumerate().skip(request.from as usize);
///         let messages: Vec<_> = lines
///             .take(request.messages)
///             .map(|(line, text)| Fetched::new(line as u64, text.len(), text.clone()))
///             .collect();
///         Ok(match messages.last() {
///             Some(last) => Pulled::Found { next: last.offset + 1, messages },
///             None => Pulled::NothingNew,
///         })
///     }
/// }
///
/// # let folder = tempfile::tempdir()?;
/// # let dir = folder.path();
/// let log = Log([vec!["apples".into(), "pears".into()], vec!["plums".into()]]);
/// let consumer = Consumer::builder(log, FileStore::open(dir)?)
///     .workers(20)
///     .batch(32)
///     .limits(Limits::default().count(1000).bytes(100 << 20).span(2000))
///     .backoff(Backoff::new(Duration::from_millis(10), Duration::from_secs(10)))
///     .concurrent(|batch: &Batch<String>| -> Outcome {
///         batch.each(|message| {
///             // Pears fail once.
///             if message.value() == "pears" && message.deliveries() == 1 {
///                 return Verdict::Retry;
///             }
///             Verdict::Done
///         })
///     })
///     .start()?;
/// assert!(consumer.wait_caught_up(Duration::from_secs(10)));
/// assert_eq!(consumer.progress().partitions[0].retried, 1);
/// let report = consumer.shutdown(Duration::from_secs(30))?;
/// assert_eq!((report.partitions[0].published, report.left()), (2, 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[cfg(all(feature = "std", not(loom), not(inflight_word32)))]
pub mod consumer {
    #[doc(inline)]
    pub use crate::adapter::*;
}

pub use assignment::{Assignment, At};
#[cfg(feature = "alloc")]
pub use batch::BoxedBatchWatermark;
pub use batch::{Batch, BatchError, BatchId, BatchRef, BatchWatermark, Batches, BeginError};
#[cfg(feature = "async")]
pub use budget::ReserveFuture;
pub use budget::{Budget, Budgeted, Permit, Share};
pub use detached::{Detached, DetachedIn};
#[cfg(feature = "async")]
pub use error::WaitError;
pub use error::{
    AdvanceError, BatchPut, BatchPutError, BatchRemove, Floor, Next, Put, PutError, PutErrorKind,
    RemoveError, Report, ReserveError, RevokeError, SkipReason, Stale, TakeError, Ticket,
};
pub use flow::Usage;
pub use lease::{Iter, Lease, Message, Values};
pub use look::{Look, Pending, Picture, Stage, Stalled};
pub use ring::RingWindow;
pub use shared::{Iter as SharedIter, SharedLease, SharedLeaseIn, Values as SharedValues};
pub use shelf::{Held, Shelf};
#[cfg(all(feature = "alloc", target_has_atomic = "ptr"))]
pub use skiplist::{Participant, SkipWindow};
pub use snapshot::{Filter, Finished, Restored, Snapshot, SnapshotError, Taken};
#[cfg(feature = "async")]
pub use waiting::{SpaceFuture, TakeFuture, TakeSharedFuture};
pub use window::{Drain, Value, Window, WindowRef};

/// For the models: controls, branch counters, parts of the core by themselves.
#[cfg(loom)]
#[doc(hidden)]
pub mod model {
    pub use crate::control::{Branch, Control, clear_hits, hits, set_control, set_rmw};
    #[cfg(feature = "alloc")]
    pub use crate::skiplist::forget_all;

    /// A wide watermark of 3 bits, which wraps every eight positions.
    pub struct Wide(crate::position::Halves<3>);

    impl Wide {
        /// At a position.
        pub fn new(at: u64) -> Self {
            Self(crate::position::Halves::new(at))
        }

        /// The position.
        pub fn load(&self) -> u64 {
            crate::position::Monotone::load(&self.0)
        }

        /// Raises the position.
        pub fn raise(&self, to: u64) -> u64 {
            crate::position::Monotone::raise(&self.0, to)
        }
    }
}

/// What must not compile.
#[cfg(doctest)]
#[doc = include_str!("../tests/compile_fail.md")]
pub struct CompileFail;
