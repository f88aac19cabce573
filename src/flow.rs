//! Flow-control arithmetic: how much is in flight. Policy (what is too much) lives elsewhere.
//!
//! Two monotone counters, *admitted* and *finished*; what is in flight is their difference. A
//! putter writes one line and a finisher the other, and neither reads the other's. The counters
//! are also where calls *meet*: see [`Flow::finish`] and [`Flow::meet_admitted`].

use crate::control::{Control, weak};
use crate::sync::{AtomicWord, NARROW, Ordering, Padded, Word, const_unless_loom};

/// How much is in flight at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Usage {
    /// Messages admitted and not finished.
    pub count: usize,
    /// Their bytes, as given at put.
    pub bytes: u64,
}

impl Usage {
    pub(crate) const NONE: Self = Self { count: 0, bytes: 0 };
    pub(crate) const ENDLESS: Self = Self { count: usize::MAX, bytes: u64::MAX };

    /// The sum, of each.
    #[inline(always)]
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            count: self.count.saturating_add(other.count),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }

    /// How much more this is, of each.
    #[inline(always)]
    pub(crate) fn minus(self, other: Self) -> Self {
        Self {
            count: self.count.saturating_sub(other.count),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }

    /// The lesser of each.
    #[inline(always)]
    pub(crate) fn min(self, other: Self) -> Self {
        Self { count: self.count.min(other.count), bytes: self.bytes.min(other.bytes) }
    }

    /// The greater of each.
    #[inline(always)]
    pub(crate) fn max(self, other: Self) -> Self {
        Self { count: self.count.max(other.count), bytes: self.bytes.max(other.bytes) }
    }

    /// Is it at least that, of each?
    #[inline(always)]
    pub(crate) fn covers(self, other: Self) -> bool {
        self.count >= other.count && self.bytes >= other.bytes
    }
}

/// Messages and bytes of one side. With 64 bits both are in one word (24 and 40 bits), so that
/// one read-modify-write counts both: the difference of two such sums decodes exactly while what
/// is in flight fits, whatever has carried from one field to the other. With 32 bits each has a
/// word of its own.
struct Tally {
    messages: AtomicWord,
    #[cfg(any(target_pointer_width = "32", inflight_word32))]
    bytes: AtomicWord,
}

const MESSAGE_BITS: u32 = 24;

impl Tally {
    const_unless_loom! {
        const fn new() -> Self {
            Self {
                messages: AtomicWord::new(0),
                #[cfg(any(target_pointer_width = "32", inflight_word32))]
                bytes: AtomicWord::new(0),
            }
        }
    }

    #[inline(always)]
    #[cfg(not(any(target_pointer_width = "32", inflight_word32)))]
    fn add(&self, count: usize, bytes: u64, order: Ordering) {
        self.messages.fetch_add(count as Word + (bytes << MESSAGE_BITS), order);
    }

    /// The messages come last: theirs is the word where calls meet.
    #[inline(always)]
    #[cfg(any(target_pointer_width = "32", inflight_word32))]
    fn add(&self, count: usize, bytes: u64, order: Ordering) {
        if bytes > 0 {
            self.bytes.fetch_add(bytes as Word, Ordering::AcqRel);
        }
        self.messages.fetch_add(count as Word, order);
    }

    #[inline(always)]
    fn load(&self) -> Sum {
        Sum {
            messages: self.messages.load(Ordering::Acquire),
            #[cfg(any(target_pointer_width = "32", inflight_word32))]
            bytes: self.bytes.load(Ordering::Acquire),
            #[cfg(not(any(target_pointer_width = "32", inflight_word32)))]
            bytes: 0,
        }
    }
}

#[derive(Clone, Copy)]
struct Sum {
    messages: Word,
    bytes: Word,
}

impl Sum {
    #[inline(always)]
    fn since(self, before: Sum) -> Usage {
        let messages = self.messages.wrapping_sub(before.messages);
        let bytes = self.bytes.wrapping_sub(before.bytes);
        if NARROW {
            Usage { count: messages as usize, bytes: u64::from(bytes) }
        } else {
            let messages = u64::from(messages);
            Usage {
                count: (messages & ((1 << MESSAGE_BITS) - 1)) as usize,
                bytes: messages >> MESSAGE_BITS,
            }
        }
    }
}

/// What is in flight must stay below these, or sums would decode wrongly.
const MOST_MESSAGES: usize = if NARROW { 1 << 30 } else { 1 << (MESSAGE_BITS - 1) };
const MOST_BYTES: u64 = if NARROW { 1 << 31 } else { 1 << 39 };

/// The largest size of one message.
pub(crate) const MESSAGE_BYTES: u32 = if NARROW { 1 << 24 } else { u32::MAX };
/// A batch is published at the latest after so many messages ...
pub(crate) const CHUNK_MESSAGES: usize = 64;
/// ... or so many bytes.
pub(crate) const CHUNK_BYTES: u64 = if NARROW { 1 << 25 } else { 1 << 33 };

/// The two counters of a window.
pub(crate) struct Flow {
    admitted: Padded<Admitted>,
    finished: Padded<Tally>,
}

struct Admitted {
    sum: Tally,
    /// An older value of `finished`, so that putters need not read the finishers' line: what is
    /// in flight is at most `sum - floor`.
    floor: Tally,
}

impl Flow {
    const_unless_loom! {
        pub(crate) const fn new() -> Self {
            Self {
                admitted: Padded(Admitted { sum: Tally::new(), floor: Tally::new() }),
                finished: Padded(Tally::new()),
            }
        }
    }

    /// May one more message of so many bytes be in flight?
    ///
    /// What is in flight must stay below what the counters can tell apart. The limit here is half
    /// of that; the other half is for what putters that looked at the same time then add, at most
    /// two chunks each ([`CHUNK_MESSAGES`], [`CHUNK_BYTES`]): they look before the first message
    /// of one, and it may be published early, and go on as another, to make room.
    #[inline(always)]
    pub(crate) fn has_room(&self, bytes: u32) -> bool {
        let sum = self.admitted.sum.load();
        let fits =
            |most: Usage| most.count < MOST_MESSAGES && most.bytes + u64::from(bytes) < MOST_BYTES;
        fits(sum.since(self.admitted.floor.load())) || fits(sum.since(self.refresh_floor()))
    }

    /// Is at most half of that in flight?
    #[cfg(feature = "async")]
    pub(crate) fn is_low(&self) -> bool {
        let usage = self.usage();
        usage.count <= MOST_MESSAGES / 2 && usage.bytes <= MOST_BYTES / 2
    }

    #[cold]
    fn refresh_floor(&self) -> Sum {
        let finished = self.finished.load();
        let floor = &self.admitted.floor;
        // Another putter may store an older value after this one: still a value that `finished`
        // once had, so still a floor.
        floor.messages.store(finished.messages, Ordering::Relaxed);
        #[cfg(any(target_pointer_width = "32", inflight_word32))]
        floor.bytes.store(finished.bytes, Ordering::Relaxed);
        finished
    }

    /// Counts messages in, before they are ready.
    ///
    /// The read-modify-write is where put and assign meet: whichever comes second sees what the
    /// other did before.
    #[inline(always)]
    pub(crate) fn admit(&self, count: usize, bytes: u64) {
        let order =
            if weak(Control::AdmittedRelaxed) { Ordering::Relaxed } else { Ordering::AcqRel };
        self.admitted.sum.add(count, bytes, order);
    }

    /// Counts messages out.
    ///
    /// Every call that can make something passable does this between its store and its scan.
    /// Two finishers of neighbouring messages store to different slots and then look at each
    /// other's; with nothing between, each may miss the other, and the watermark stays behind
    /// both. The read-modify-writes of one word are ordered: the later one sees both stores.
    #[inline(always)]
    pub(crate) fn finish(&self, count: usize, bytes: u64) {
        let order =
            if weak(Control::MeetingRelaxed) { Ordering::Relaxed } else { Ordering::AcqRel };
        self.finished.add(count, bytes, order);
    }

    /// Assign's side of the meeting with puts.
    #[inline(always)]
    pub(crate) fn meet_admitted(&self) {
        self.admitted.sum.add(0, 0, Ordering::AcqRel);
    }

    /// What is in flight. Exact when no call is running; otherwise never negative, and possibly
    /// too high by what was put and finished while this looked.
    #[inline]
    pub(crate) fn usage(&self) -> Usage {
        // Finished first: then a message that is counted out has been counted in.
        let finished = self.finished.load();
        self.admitted.sum.load().since(finished)
    }
}
