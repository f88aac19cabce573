//! [`Source`]: where messages come from. What a partition is, what a pull asks and answers.

use std::error::Error;
use std::fmt;
use std::string::String;
use std::sync::{Arc, Weak};
use std::vec::Vec;

/// Why a pull failed: any error. The consumer counts it, shows it and pulls again later.
pub type SourceError = std::boxed::Box<dyn Error + Send + Sync>;

/// A partitioned log to pull messages from.
///
/// The consumer has one outstanding pull for each partition, from a thread of that partition, so
/// `pull` may block (a long poll); it is called for different partitions at the same time.
///
/// ```
/// use inflight::consumer::{Fetched, Partition, PullRequest, Pulled, Source, SourceError};
///
/// /// A log that is an array.
/// struct Words(&'static [&'static str]);
///
/// impl Source for Words {
///     type Message = &'static str;
///
///     fn partitions(&self) -> Result<Vec<Partition>, SourceError> {
///         Ok(vec![Partition::new(0, "words")])
///     }
///
///     fn pull(
///         &self,
///         _: &Partition,
///         request: &PullRequest,
///     ) -> Result<Pulled<&'static str>, SourceError> {
///         let found = (request.from..).zip(self.0.iter().skip(request.from as usize));
///         let messages: Vec<_> = found
///             .take(request.messages)
///             .map(|(offset, word)| Fetched::new(offset, word.len(), *word))
///             .collect();
///         Ok(match messages.last() {
///             None => Pulled::NothingNew,
///             Some(last) => Pulled::Found { next: last.offset + 1, messages },
///         })
///     }
/// }
///
/// let words = Words(&["a", "bc"]);
/// let found = words.pull(&Partition::new(0, "words"), &PullRequest::new(1, 10, 1000))?;
/// assert!(matches!(found, Pulled::Found { next: 2, .. }));
/// # Ok::<(), SourceError>(())
/// ```
pub trait Source: Send + Sync + 'static {
    /// The message. Windows and handlers share it, so cloning should be cheap: an `Arc`, a
    /// reference-counted buffer, a number.
    type Message: Clone + Send + Sync + 'static;

    /// The partitions to consume, asked once at start. Names must differ.
    ///
    /// # Errors
    /// Any; the consumer does not start.
    fn partitions(&self) -> Result<Vec<Partition>, SourceError>;

    /// Pulls messages. May return fewer than asked for.
    ///
    /// # Errors
    /// Any; the consumer pulls the same again after
    /// [`Builder::pull_retry`](super::Builder::pull_retry). So it does when this panics, or when
    /// the answer contradicts itself (offsets that do not ascend, a `next` that is not above them).
    fn pull(
        &self,
        partition: &Partition,
        request: &PullRequest,
    ) -> Result<Pulled<Self::Message>, SourceError>;

    /// Hands over the bell to ring when new messages have come. Called once, before the first
    /// pull. True promises to ring it; false (the default) makes the consumer ask again every
    /// [`Builder::pull_idle`](super::Builder::pull_idle) when there was nothing new.
    fn subscribe(&self, news: News) -> bool {
        let _ = news;
        false
    }

    /// The next offset that will be written to the partition, if it is known without much ado:
    /// shown as the backlog.
    fn end(&self, partition: &Partition) -> Option<u64> {
        let _ = partition;
        None
    }
}

impl<S: Source + ?Sized> Source for Arc<S> {
    type Message = S::Message;

    fn partitions(&self) -> Result<Vec<Partition>, SourceError> {
        (**self).partitions()
    }

    fn pull(
        &self,
        partition: &Partition,
        request: &PullRequest,
    ) -> Result<Pulled<S::Message>, SourceError> {
        (**self).pull(partition, request)
    }

    fn subscribe(&self, news: News) -> bool {
        (**self).subscribe(news)
    }

    fn end(&self, partition: &Partition) -> Option<u64> {
        (**self).end(partition)
    }
}

/// A partition of a source: a number for the source's own use, and the name that offsets are
/// stored under.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Partition {
    id: usize,
    name: Arc<str>,
    first: u64,
}

impl Partition {
    /// A partition that begins at offset 0 when the store has none for it.
    pub fn new(id: usize, name: impl Into<String>) -> Self {
        Self { id, name: Arc::from(name.into()), first: 0 }
    }

    /// Begins at this offset instead when the store has none. RocketMQ: `ConsumeFromWhere`.
    #[must_use]
    pub fn starting_at(mut self, first: u64) -> Self {
        self.first = first;
        self
    }

    /// The source's number for it.
    pub fn id(&self) -> usize {
        self.id
    }

    /// The name that its offset is stored under.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it begins when the store has no offset.
    pub fn first(&self) -> u64 {
        self.first
    }
}

/// What a pull asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PullRequest {
    /// From this offset on.
    pub from: u64,
    /// At most so many messages: a window has room for no more. At least 1.
    pub messages: usize,
    /// About so many bytes: a hint. What exceeds it waits outside the window until there is room.
    pub bytes: u64,
}

impl PullRequest {
    /// A request, for testing a source.
    pub fn new(from: u64, messages: usize, bytes: u64) -> Self {
        Self { from, messages, bytes }
    }
}

/// What a pull found. RocketMQ: `PullStatus`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pulled<T> {
    /// Messages.
    Found {
        /// Ascending offsets; those below the one asked for are left out.
        messages: Vec<Fetched<T>>,
        /// The offset to pull next. What lies between the last message and this does not exist.
        next: u64,
    },
    /// Nothing yet: the offset is the log's end.
    NothingNew,
    /// Messages, but a filter of the source keeps them from this consumer: they count as finished.
    NothingMatched {
        /// The offset to pull next, above the one asked for.
        next: u64,
    },
    /// The log does not have this offset (any more). The partition begins anew where the log does,
    /// what is in flight of it is given up, and the stored offset is set to that, also downwards.
    IllegalOffset {
        /// The offset to pull next.
        correct: u64,
    },
}

/// One message of a pull.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fetched<T> {
    /// Its offset.
    pub offset: u64,
    /// The bytes it counts for in [`Limits::bytes`](super::Limits::bytes); at most 4 GiB - 1.
    pub bytes: usize,
    /// The message.
    pub value: T,
}

impl<T> Fetched<T> {
    /// A message.
    pub fn new(offset: u64, bytes: usize, value: T) -> Self {
        Self { offset, bytes, value }
    }
}

/// What hears the bell.
pub(crate) trait Listener: Send + Sync {
    /// New messages have come to this partition, or to any.
    fn news(&self, id: Option<usize>);
}

/// The bell that a source rings when new messages have come: see [`Source::subscribe`].
///
/// Ringing it wakes the partition's puller at once if it waits at the log's end, and is remembered
/// if it is just finding that out. It does nothing when the consumer is gone. O(partitions).
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use std::time::Duration;
/// use inflight::consumer::{
///     Batch, Consumer, Fetched, MemoryStore, News, Outcome, Partition, PullRequest, Pulled,
///     Source, SourceError,
/// };
///
/// /// A queue that others push to.
/// #[derive(Default)]
/// struct Queue {
///     words: Mutex<Vec<&'static str>>,
///     news: Mutex<Option<News>>,
/// }
///
/// impl Queue {
///     fn push(&self, word: &'static str) {
///         self.words.lock().unwrap().push(word);
///         if let Some(news) = &*self.news.lock().unwrap() {
///             news.came(0);
///         }
///     }
/// }
///
/// impl Source for Queue {
///     type Message = &'static str;
///
///     fn partitions(&self) -> Result<Vec<Partition>, SourceError> {
///         Ok(vec![Partition::new(0, "queue")])
///     }
///
///     fn pull(
///         &self,
///         _: &Partition,
///         request: &PullRequest,
///     ) -> Result<Pulled<&'static str>, SourceError> {
///         let from = request.from;
///         Ok(match self.words.lock().unwrap().get(from as usize) {
///             Some(word) => Pulled::Found {
///                 messages: vec![Fetched::new(from, word.len(), *word)],
///                 next: from + 1,
///             },
///             None => Pulled::NothingNew,
///         })
///     }
///
///     fn subscribe(&self, news: News) -> bool {
///         *self.news.lock().unwrap() = Some(news);
///         true
///     }
/// }
///
/// let queue = Arc::new(Queue::default());
/// let consumer = Consumer::builder(queue.clone(), MemoryStore::default())
///     .concurrent(|_: &Batch<&str>| -> Outcome { Outcome::Done })
///     .start()?;
/// queue.push("late");
/// assert!(consumer.wait_caught_up(Duration::from_secs(10)));
/// assert_eq!(consumer.progress().partitions[0].finished, 1);
/// # Ok::<(), inflight::consumer::StartError>(())
/// ```
#[derive(Clone)]
pub struct News {
    listener: Weak<dyn Listener>,
}

impl News {
    pub(crate) fn new(listener: Weak<dyn Listener>) -> Self {
        Self { listener }
    }

    /// New messages have come to the partition with this number.
    pub fn came(&self, id: usize) {
        if let Some(listener) = self.listener.upgrade() {
            listener.news(Some(id));
        }
    }

    /// New messages may have come to any partition.
    pub fn came_to_all(&self) {
        if let Some(listener) = self.listener.upgrade() {
            listener.news(None);
        }
    }
}

impl fmt::Debug for News {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("News")
    }
}
