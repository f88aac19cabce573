//! [`Limits`]: how much of one partition may be in flight.

/// How much of each partition may be in flight. A pull is asked for only what there is room for,
/// and a message is admitted only when it fits, so no limit is ever overshot; with one exception:
/// an empty window admits one message whatever its size, or it could never be consumed.
///
/// A partition that is at a limit pulls no more until messages have been finished; its puller is
/// woken then, when there is room for a good part of a pull again.
///
/// ```
/// use inflight::consumer::Limits;
///
/// let limits = Limits::default().count(100).bytes(1 << 20);
/// assert_eq!(limits, Limits::default().count(100).bytes(1 << 20).span(2000));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Limits {
    pub(crate) count: usize,
    pub(crate) bytes: u64,
    pub(crate) span: u64,
    pub(crate) replay: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { count: 1000, bytes: 100 << 20, span: 2000, replay: u64::MAX }
    }
}

impl Limits {
    /// Messages waiting and held. Default 1000. RocketMQ: `pullThresholdForQueue`.
    pub fn count(mut self, messages: usize) -> Self {
        self.count = messages;
        self
    }

    /// Bytes of the messages waiting and held. Default 100 MiB. RocketMQ:
    /// `pullThresholdSizeForQueue` (in MiB).
    pub fn bytes(mut self, bytes: u64) -> Self {
        self.bytes = bytes;
        self
    }

    /// Offsets between the watermark and the end: what a restart may have to look at again.
    /// Default 2000; at most the capacity of the window. RocketMQ: `consumeConcurrentlyMaxSpan`,
    /// which counts from the first message still cached instead.
    ///
    /// In a window numbered by arrival this counts messages, whatever their offsets.
    pub fn span(mut self, offsets: u64) -> Self {
        self.span = offsets;
        self
    }

    /// Offsets between the *stored* watermark and the end: what is handled again after a crash, at
    /// most. Default: no limit, so that it is what was handled in
    /// [`Builder::publish_every`](super::Builder::publish_every). With a limit, watermarks are
    /// published when half of it is used up, too; and while the store fails, the intake comes to a
    /// stop.
    ///
    /// Offsets in every window, also in one numbered by arrival: bytes, if offsets are byte
    /// positions.
    pub fn replay(mut self, offsets: u64) -> Self {
        self.replay = offsets;
        self
    }
}
