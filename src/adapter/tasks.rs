//! Workers that are futures, for handlers that are: on any executor. Pullers, clock and keeper
//! stay threads, since sources, stores and locks may block.

use std::boxed::Box;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::string::String;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::vec::Vec;

use super::assigned::count;
use super::pool::{RunQueue, Task, Work};
use super::running::{Answer, Running};
use super::source::Source;
use crate::window::Window;

/// What a handler's future is behind.
pub(crate) type Later = Pin<Box<dyn Future<Output = Answer> + Send>>;
/// What is called for a batch, and answers later.
pub(crate) type LaterHandler<T> = Box<dyn Fn(OwnedBatch<T>) -> Later + Send + Sync>;

/// A worker: a future that handles one batch after the other until the consumer is stopped. To be
/// given to an executor, each as a task of its own. Dropped, it gives back what it has.
pub type Worker = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Messages of one partition, ascending, for a handler that holds on to them: clones.
pub struct OwnedBatch<T> {
    partition: String,
    messages: Vec<Owned<T>>,
}

/// One message of an [`OwnedBatch`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Owned<T> {
    /// Its offset.
    pub offset: u64,
    /// How often it was tried by this consumer, this time included.
    pub attempts: u32,
    /// The message.
    pub value: T,
}

impl<T> OwnedBatch<T> {
    /// The name of the partition.
    pub fn partition(&self) -> &str {
        &self.partition
    }

    /// The messages. At least one.
    pub fn messages(&self) -> &[Owned<T>] {
        &self.messages
    }

    /// The messages, moved out.
    pub fn into_messages(self) -> Vec<Owned<T>> {
        self.messages
    }
}

impl<T> fmt::Debug for OwnedBatch<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let offsets: Vec<_> = self.messages.iter().map(|message| message.offset).collect();
        f.debug_struct("OwnedBatch")
            .field("partition", &self.partition)
            .field("offsets", &offsets)
            .finish()
    }
}

/// Waits for the next task of the run queue.
struct Next<'a, W: Window> {
    queue: &'a RunQueue<W>,
    /// Its place among those that wait.
    ticket: Option<u64>,
}

impl<W: Window> Future for Next<'_, W> {
    type Output = Option<Task<W>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let queue = self.queue;
        queue.poll_next(&mut self.ticket, context.waker())
    }
}

impl<W: Window> Drop for Next<'_, W> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            // Woken for something that it does not take: that wakes another.
            self.queue.give_up(ticket);
        }
    }
}

/// A handler's future whose panic is none of the worker's.
struct Contained(Later);

impl Future for Contained {
    type Output = Option<Answer>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let polled = catch_unwind(AssertUnwindSafe(|| self.0.as_mut().poll(context)));
        polled.map_or(Poll::Ready(None), |polled| polled.map(Some))
    }
}

/// A worker of a running consumer.
pub(crate) fn worker<S, W>(running: Arc<Running<S, W>>) -> Worker
where
    S: Source,
    W: Window<Value = S::Message> + Send + Sync + 'static,
{
    Box::pin(async move {
        loop {
            let next = Next { queue: &running.queue, ticket: None }.await;
            let Some(task) = next else { return };
            let Some(work) = Work::begin(&running, task) else { continue };
            // Called in the catch too: the handler, and the clones of the messages, may panic.
            let begun = catch_unwind(AssertUnwindSafe(|| begin(&running, &work)));
            let answer = match begun {
                Ok(Some(later)) => Contained(later).await,
                // Not a handler that answers later: given back.
                Ok(None) => return,
                Err(_) => None,
            };
            let answer = answer.unwrap_or_else(|| {
                work.assigned(|assigned| count(&assigned.counts.panics, 1));
                running.service.panicked()
            });
            work.settle(answer);
        }
    })
}

fn begin<S, W>(running: &Arc<Running<S, W>>, work: &Work<S, W>) -> Option<Later>
where
    S: Source,
    W: Window<Value = S::Message> + Send + Sync + 'static,
{
    let prepared = work.prepared()?;
    let handler = running.service.later()?;
    running.begin_deal(prepared);
    let messages = prepared.lease.messages().iter().map(|held| Owned {
        offset: held.offset(),
        attempts: held.deliveries().saturating_add(prepared.failed),
        value: held.value().clone(),
    });
    let partition = prepared.assigned.partition.name().into();
    Some(handler(OwnedBatch { partition, messages: messages.collect() }))
}
