//! Snapshot and restore: which offsets above the watermark are finished, in a few bytes.
//!
//! The watermark alone makes a restart consume everything above it again. A snapshot, kept beside
//! it, says what of that was finished already. Not a log and not a store: bytes in the caller's
//! buffer, and how to read them back.
//!
//! # The format, version 1
//!
//! ```text
//!  1 byte    version: 1
//!  4 bytes   CRC-32 (of IEEE 802.3, little-endian) of all the other bytes, in order
//!  number    watermark: the first offset that is not finished
//!  stretches ascending from the watermark, without a hole; each is a number that holds
//!            its length and, in the low 2 bits, its kind:
//!              0  so many offsets are not finished
//!              1  so many offsets are finished
//!              2  so many bytes follow, a bit for each offset, lowest first, one is finished
//!            and the number 0 ends them
//! ```
//!
//! A number is 1 to 10 bytes of 7 bits, lowest first, the top bit set on all but the last, and no
//! byte more than it needs. Where the stretches end, the snapshot ends: nothing is said of what
//! lies beyond.

use core::fmt;
use core::iter::FusedIterator;
use core::ops::{ControlFlow, Range};

use crate::assignment::Assignment;
use crate::control::{Control, weak};
use crate::engine::{Elsewhere, Part, Space};
use crate::error::{AdvanceError, Next, Stale};
use crate::position::Pos;
use crate::slot::{Phase, Place};
use crate::window::WindowRef;

const VERSION: u8 = 1;
/// Version and checksum.
const HEAD: usize = 5;
const OPEN: u64 = 0;
const DONE: u64 = 1;
const BITS: u64 = 2;
/// Bytes of a stretch of bits: its number then is one byte.
const MOST_BITS: usize = 31;
/// A run this long never goes into a stretch of bits.
const LONG: u64 = 64;

// --- numbers and the checksum ---

fn write_number(mut number: u64, out: &mut [u8; 10]) -> &[u8] {
    let mut len = 0;
    loop {
        let more = number > 0x7f;
        out[len] = number as u8 & 0x7f | if more { 0x80 } else { 0 };
        len += 1;
        number >>= 7;
        if !more {
            return &out[..len];
        }
    }
}

fn number_len(number: u64) -> usize {
    (64 - (number | 1).leading_zeros() as usize).div_ceil(7)
}

fn read_number(bytes: &[u8], at: &mut usize) -> Result<u64, SnapshotError> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.get(*at).ok_or(SnapshotError::Truncated)?;
        *at += 1;
        let part = u64::from(byte & 0x7f);
        if shift == 63 && part > 1 {
            return Err(SnapshotError::Malformed);
        }
        number |= part << shift;
        if byte & 0x80 == 0 {
            // A last byte of nothing would be a second form of the same number.
            return if byte == 0 && shift > 0 { Err(SnapshotError::Malformed) } else { Ok(number) };
        }
    }
    Err(SnapshotError::Malformed)
}

/// CRC-32 of IEEE 802.3, by half bytes: a table of 16 words.
fn crc(bytes: &[u8], mut crc: u32) -> u32 {
    const TABLE: [u32; 16] = {
        let mut table = [0; 16];
        let mut index = 0;
        while index < 16 {
            let mut word = index as u32;
            let mut bit = 0;
            while bit < 4 {
                word = if word & 1 == 1 { word >> 1 ^ 0xedb8_8320 } else { word >> 1 };
                bit += 1;
            }
            table[index] = word;
            index += 1;
        }
        table
    };
    for byte in bytes {
        crc ^= u32::from(*byte);
        crc = crc >> 4 ^ TABLE[crc as usize & 15];
        crc = crc >> 4 ^ TABLE[crc as usize & 15];
    }
    crc
}

/// Of a whole snapshot.
fn checksum(bytes: &[u8]) -> u32 {
    !crc(&bytes[HEAD..], crc(&bytes[..1], !0))
}

// --- writing ---

/// Writes stretches, lowest first, until the buffer is full.
///
/// Offsets come as runs. Long ones are written as such. Short ones are gathered as bits, up to 31
/// bytes; when the bits are full, or a long run comes, they are written as bits or as runs,
/// whichever is fewer bytes.
struct Writer<'a> {
    out: &'a mut [u8],
    len: usize,
    /// Offsets that what is written covers, from the watermark.
    covered: u64,
    is_full: bool,
    /// A run that may still grow.
    pending: (bool, u64),
    bits: [u8; MOST_BITS],
    gathered: usize,
}

impl<'a> Writer<'a> {
    fn new(out: &'a mut [u8], watermark: u64) -> Result<Self, SnapshotError> {
        let mut number = [0; 10];
        let number = write_number(watermark, &mut number);
        let len = HEAD + number.len();
        // And the end.
        if out.len() < len + 1 {
            return Err(SnapshotError::TooSmall);
        }
        out[0] = VERSION;
        out[HEAD..len].copy_from_slice(number);
        Ok(Self {
            out,
            len,
            covered: 0,
            is_full: false,
            pending: (false, 0),
            bits: [0; MOST_BITS],
            gathered: 0,
        })
    }

    fn push(&mut self, is_done: bool, mut run: u64) {
        while run > 0 && !self.is_full {
            if self.gathered == 0 && run >= LONG {
                return self.append(is_done, run);
            }
            if run >= LONG && self.gathered.is_multiple_of(8) {
                self.write_gathered();
                continue;
            }
            // Of a long run as many as fill the last byte.
            let fill = if run >= LONG { 8 - self.gathered as u64 % 8 } else { run };
            let n = fill.min((8 * MOST_BITS - self.gathered) as u64);
            for _ in 0..n {
                let (byte, bit) = (self.gathered / 8, self.gathered % 8);
                self.bits[byte] |= u8::from(is_done) << bit;
                self.gathered += 1;
            }
            run -= n;
            if self.gathered == 8 * MOST_BITS {
                self.write_gathered();
            }
        }
    }

    /// The runs in what was gathered, from the bit `from` on.
    fn runs(bits: &[u8; MOST_BITS], gathered: usize, from: usize) -> Option<(bool, usize)> {
        let is_done = |at: usize| bits[at / 8] >> (at % 8) & 1 == 1;
        let first = (from < gathered).then(|| is_done(from))?;
        let len = (from..gathered).take_while(|at| is_done(*at) == first).count();
        Some((first, len))
    }

    fn write_gathered(&mut self) {
        let (bits, gathered) = (self.bits, self.gathered);
        (self.bits, self.gathered) = ([0; MOST_BITS], 0);
        let mut cost = 0;
        let mut at = 0;
        while let Some((_, len)) = Self::runs(&bits, gathered, at) {
            cost += number_len((len as u64) << 2);
            at += len;
        }
        // What does not fill a byte is written as runs in any case.
        let mut at = 0;
        let bytes = gathered / 8;
        if bytes > 0 && 1 + bytes < cost {
            self.write_pending();
            at = self.write_bits(&bits[..bytes]);
        }
        while let Some((is_done, len)) = Self::runs(&bits, gathered, at).filter(|_| !self.is_full) {
            self.append(is_done, len as u64);
            at += len;
        }
    }

    /// Writes bits, as many bytes as there is room for; offsets that they cover.
    fn write_bits(&mut self, bits: &[u8]) -> usize {
        let room = self.out.len() - self.len - 1;
        let n = bits.len().min(room.saturating_sub(1));
        if self.is_full || n == 0 {
            self.is_full = true;
            return 0;
        }
        self.is_full = n < bits.len();
        self.out[self.len] = ((n as u64) << 2 | BITS) as u8;
        self.out[self.len + 1..][..n].copy_from_slice(&bits[..n]);
        self.len += 1 + n;
        self.covered += 8 * n as u64;
        8 * n
    }

    fn append(&mut self, is_done: bool, run: u64) {
        if self.pending.0 != is_done {
            self.write_pending();
        }
        self.pending = (is_done, self.pending.1 + run);
    }

    fn write_pending(&mut self) {
        let (is_done, mut run) = core::mem::take(&mut self.pending);
        // The kind takes two bits of the number.
        while run > 0 && !self.is_full {
            let n = run.min(u64::MAX >> 2);
            let mut number = [0; 10];
            let number = write_number(n << 2 | if is_done { DONE } else { OPEN }, &mut number);
            if self.out.len() - self.len < number.len() + 1 {
                self.is_full = true;
                return;
            }
            self.out[self.len..][..number.len()].copy_from_slice(number);
            self.len += number.len();
            self.covered += n;
            run -= n;
        }
    }

    /// The bytes used, and the offsets that they cover.
    fn finish(mut self) -> (usize, u64, bool) {
        self.write_gathered();
        self.write_pending();
        self.out[self.len] = 0;
        self.len += 1;
        let checksum = checksum(&self.out[..self.len]);
        self.out[1..HEAD].copy_from_slice(&checksum.to_le_bytes());
        (self.len, self.covered, !self.is_full)
    }
}

// --- reading ---

/// A snapshot that was read back and found whole: what was finished when it was taken.
///
/// [`Assignment::restore`] makes a window skip what was finished. Beyond the window's reach, or
/// without a window, [`Snapshot::is_finished`] says it of one offset and [`Snapshot::finished`]
/// lists all.
///
/// ```
/// use inflight::{RingWindow, Snapshot, Window};
///
/// let window = RingWindow::<&str, 8>::new();
/// let part = window.assign(100);
/// part.put_batch(&mut (100..106).map(|n| (n, "message")))?;
/// part.remove_batch([101, 102, 104])?;
///
/// let mut buffer = [0; 64];
/// let taken = part.snapshot(&mut buffer)?;
/// let snapshot = Snapshot::parse(&buffer[..taken.len])?;
/// assert_eq!(snapshot.watermark().get(), 100);
/// assert_eq!(snapshot.finished().collect::<Vec<_>>(), [101..103, 104..105]);
/// assert!(snapshot.is_finished(99) && !snapshot.is_finished(105));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Snapshot<'a> {
    /// The stretches and their end.
    stretches: &'a [u8],
    watermark: u64,
    exact_up_to: u64,
}

impl<'a> Snapshot<'a> {
    /// Reads a snapshot, and checks all of it: after this nothing about it fails.
    ///
    /// # Errors
    /// [`SnapshotError`]; a snapshot that was cut, changed or never one is refused, and no offset
    /// of it is said.
    ///
    /// O(length).
    ///
    /// ```
    /// use inflight::{Snapshot, SnapshotError};
    ///
    /// assert_eq!(Snapshot::parse(b"").unwrap_err(), SnapshotError::Truncated);
    /// assert_eq!(Snapshot::parse(b"garbage").unwrap_err(), SnapshotError::Version(b'g'));
    /// ```
    pub fn parse(bytes: &'a [u8]) -> Result<Self, SnapshotError> {
        let version = *bytes.first().ok_or(SnapshotError::Truncated)?;
        if version != VERSION {
            return Err(SnapshotError::Version(version));
        }
        let mut at = HEAD;
        let watermark = read_number(bytes, &mut at)?;
        let first = at;
        let mut covered = watermark;
        while let Some((_, len, _)) = stretch(bytes, &mut at)? {
            covered = match covered.checked_add(len) {
                None if weak(Control::SnapshotWraps) => covered.wrapping_add(len),
                to => to.ok_or(SnapshotError::Malformed)?,
            };
        }
        if at != bytes.len() {
            return Err(SnapshotError::Malformed);
        }
        // HEAD bytes are there, since more than those were read.
        let Ok(written) = <[u8; 4]>::try_from(&bytes[1..HEAD]) else {
            return Err(SnapshotError::Truncated);
        };
        if u32::from_le_bytes(written) != checksum(bytes) {
            return Err(SnapshotError::Checksum);
        }
        Ok(Self { stretches: &bytes[first..], watermark, exact_up_to: covered })
    }

    /// Everything below it was finished: where to start consuming.
    pub fn watermark(&self) -> Next {
        Next(self.watermark)
    }

    /// From here on nothing is known: not finished, or the buffer was too small.
    pub fn exact_up_to(&self) -> u64 {
        self.exact_up_to
    }

    /// The ranges of finished offsets above the watermark, ascending; no two of them touch.
    pub fn finished(&self) -> Finished<'a> {
        Finished {
            stretches: self.stretches,
            at: 0,
            next: self.watermark,
            bits: (0, 0, 0),
            found: None,
        }
    }

    /// Was this offset finished? O(length); for many ascending ones see [`Snapshot::filter`].
    pub fn is_finished(&self, offset: u64) -> bool {
        self.filter().is_finished(offset)
    }

    /// Answers for offsets that ascend, in O(length) for all of them: what a puller asks before it
    /// puts, where the window is shorter than the snapshot.
    ///
    /// ```
    /// use inflight::{RingWindow, Snapshot, Window};
    ///
    /// let window = RingWindow::<u64, 8>::new();
    /// let part = window.assign(0);
    /// part.put_batch(&mut (0..6).map(|n| (n, n)))?;
    /// part.remove_batch([1, 3])?;
    /// let mut buffer = [0; 64];
    /// let taken = part.snapshot(&mut buffer)?;
    ///
    /// let snapshot = Snapshot::parse(&buffer[..taken.len])?;
    /// let mut filter = snapshot.filter();
    /// let again: Vec<_> = (0..6).filter(|offset| !filter.is_finished(*offset)).collect();
    /// assert_eq!(again, [0, 2, 4, 5]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn filter(&self) -> Filter<'a> {
        Filter { snapshot: *self, finished: self.finished(), range: 0..self.watermark }
    }

    /// How many bytes of a snapshot fit in so many characters of text by base 64: a buffer of 3,072
    /// for the 4,096 of Kafka's commit metadata, which is text.
    ///
    /// ```
    /// assert_eq!(inflight::Snapshot::bytes_in_text(4096), 3072);
    /// ```
    pub const fn bytes_in_text(characters: usize) -> usize {
        characters / 4 * 3
    }
}

impl fmt::Debug for Snapshot<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot")
            .field("watermark", &self.watermark)
            .field("exact_up_to", &self.exact_up_to)
            .finish_non_exhaustive()
    }
}

/// The next stretch: its kind, how many offsets it has, and where its bits are.
fn stretch(bytes: &[u8], at: &mut usize) -> Result<Option<(u64, u64, usize)>, SnapshotError> {
    let number = read_number(bytes, at)?;
    let (kind, len, start) = (number & 3, number >> 2, *at);
    match kind {
        _ if number == 0 => return Ok(None),
        OPEN | DONE if len > 0 => return Ok(Some((kind, len, start))),
        BITS if len > 0 => {}
        _ => return Err(SnapshotError::Malformed),
    }
    let end = usize::try_from(len).ok().and_then(|len| start.checked_add(len));
    *at = end.filter(|end| *end <= bytes.len()).ok_or(SnapshotError::Truncated)?;
    // No longer than the bytes are, so eight times that fits.
    Ok(Some((kind, len.saturating_mul(8), start)))
}

/// The finished ranges of a [`Snapshot`], ascending.
#[derive(Clone, Debug)]
#[must_use = "an iterator does nothing until it is iterated"]
pub struct Finished<'a> {
    stretches: &'a [u8],
    at: usize,
    /// The offset after what was read.
    next: u64,
    /// Bits that are being read: the byte, the bit, and the bytes' end.
    bits: (usize, u32, usize),
    /// A range that may still grow.
    found: Option<Range<u64>>,
}

impl Finished<'_> {
    /// The next run, of one offset within bits.
    fn run(&mut self) -> Option<(bool, u64)> {
        let (byte, bit, end) = self.bits;
        if byte < end {
            self.bits = if bit == 7 { (byte + 1, 0, end) } else { (byte, bit + 1, end) };
            return Some((self.stretches[byte] >> bit & 1 == 1, 1));
        }
        // Checked by `parse`.
        let (kind, len, start) = stretch(self.stretches, &mut self.at).ok()??;
        if kind == BITS {
            self.bits = (start, 0, self.at);
            return self.run();
        }
        Some((kind == DONE, len))
    }
}

impl Iterator for Finished<'_> {
    type Item = Range<u64>;

    fn next(&mut self) -> Option<Range<u64>> {
        while let Some((is_done, len)) = self.run() {
            let start = self.next;
            self.next += len;
            match (is_done, &mut self.found) {
                (true, Some(found)) => found.end = self.next,
                (true, none) => *none = Some(start..self.next),
                (false, Some(_)) => return self.found.take(),
                (false, None) => {}
            }
        }
        self.found.take()
    }
}

impl FusedIterator for Finished<'_> {}

/// Answers for ascending offsets: see [`Snapshot::filter`].
#[derive(Clone, Debug)]
pub struct Filter<'a> {
    snapshot: Snapshot<'a>,
    finished: Finished<'a>,
    range: Range<u64>,
}

impl Filter<'_> {
    /// Was this offset finished? Right for any offset; quick for one that is not below the last.
    pub fn is_finished(&mut self, offset: u64) -> bool {
        if offset < self.range.start {
            *self = self.snapshot.filter();
        }
        while offset >= self.range.end {
            match self.finished.next() {
                Some(range) => self.range = range,
                None => return false,
            }
        }
        self.range.contains(&offset)
    }
}

// --- taking one, and restoring it ---

/// What [`Assignment::snapshot`] wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "the snapshot is as long as this says"]
pub struct Taken {
    /// Bytes used, at the front of the buffer.
    pub len: usize,
    /// The watermark in the snapshot.
    pub watermark: Next,
    /// Below it, every finished offset is in the snapshot.
    pub exact_up_to: u64,
    /// All of the window is in it; otherwise the buffer was too small, and it has the lowest.
    pub is_whole: bool,
}

/// What [`Assignment::restore`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Restored {
    /// The watermark then.
    pub next: Next,
    /// Offsets that puts are refused for from now on, as finished.
    pub sealed: u64,
    /// Finished offsets from here on lie beyond the window's reach: restore again when the
    /// watermark has moved, or ask [`Snapshot::filter`]. None when all are sealed.
    pub beyond: Option<u64>,
}

/// Why a snapshot was not taken or not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SnapshotError {
    /// The assignment has ended; what is in the buffer means nothing.
    Stale,
    /// The buffer does not even hold the watermark: 16 bytes always do.
    TooSmall,
    /// The bytes end before the snapshot does.
    Truncated,
    /// Of a version that this one cannot read, or no snapshot.
    Version(u8),
    /// Not in the form of a snapshot.
    Malformed,
    /// The bytes were changed.
    Checksum,
}

impl fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stale => f.write_str("the assignment has ended"),
            Self::TooSmall => f.write_str("the buffer is too small for any snapshot"),
            Self::Truncated => f.write_str("the snapshot is cut off"),
            Self::Version(version) => write!(f, "not a snapshot, or of version {version}"),
            Self::Malformed => f.write_str("not in the form of a snapshot"),
            Self::Checksum => f.write_str("the checksum of the snapshot does not match"),
        }
    }
}

impl core::error::Error for SnapshotError {}

/// Positions that are looked at together: the places of a skip window come in blocks of so many.
const STRETCH: u64 = 64;

/// Is this position finished or sealed for good?
fn is_done<S: Space + ?Sized>(part: Part<'_, S>, pos: Pos, end: Pos, pin: &S::Pin) -> bool {
    match part.space.find(pos, pin) {
        Ok(place) => {
            let state = place.slot.state();
            let is_busy = matches!(state.phase(), Phase::Filling | Phase::Finishing);
            // Acquire: the finisher's store was seen.
            state.is_done(place.lap)
                || (weak(Control::SnapshotTrustsEnd) && state.phase() == Phase::Empty && pos < end)
                || (weak(Control::SnapshotCountsBusy) && is_busy)
        }
        Err(Elsewhere::Passed) => true,
        Err(Elsewhere::Nowhere | Elsewhere::Stale) => false,
    }
}

/// Shows runs of finished and of other positions, ascending from `from` without a hole, up to the
/// last place that there is below `to`. Only where places exist, or existed, can anything be
/// finished: what lies between is skipped at once.
fn walk<S: Space + ?Sized>(
    part: Part<'_, S>,
    from: Pos,
    to: Pos,
    pin: &S::Pin,
    mut visit: impl FnMut(bool, u64),
) {
    walk_while(part, from, to, pin, |_, is_done, run| {
        visit(is_done, run);
        true
    });
}

/// As [`walk`], with the position that a run begins at, until `visit` says no.
fn walk_while<S: Space + ?Sized>(
    part: Part<'_, S>,
    from: Pos,
    to: Pos,
    pin: &S::Pin,
    mut visit: impl FnMut(Pos, bool, u64) -> bool,
) {
    let end = part.space.words().end(from);
    let mut at = from;
    // The first stretch may have had its places given back below its first remaining one.
    let mut next = Some(from);
    while let Some(pos) = next.filter(|pos| *pos < to) {
        let first = (pos & !(STRETCH - 1)).max(at);
        if first > at && !visit(at, false, first - at) {
            return;
        }
        at = ((pos | (STRETCH - 1)) + 1).min(to);
        for pos in first..at {
            if !visit(pos, is_done(part, pos, end, pin), 1) {
                return;
            }
        }
        let found =
            part.space.scan(at, to, pin, |place: Place<'_, _>| ControlFlow::Break(place.pos));
        next = match found {
            ControlFlow::Break(pos) => Some(pos),
            // As for the first.
            ControlFlow::Continue(()) if at < to => Some(to - 1),
            ControlFlow::Continue(()) => None,
        };
    }
}

/// In a window numbered by arrival: the first place that is not finished, and its offset if that is
/// known already.
fn unfinished<S: Space + ?Sized>(
    part: Part<'_, S>,
    from: Pos,
    to: Pos,
    pin: &S::Pin,
) -> Option<(Pos, Option<u64>)> {
    let found = part.space.scan(from, to, pin, |place: Place<'_, _>| {
        if place.slot.state().is_done(place.lap) {
            return ControlFlow::Continue(());
        }
        match place.slot.offset_if(place.lap) {
            // Finished meanwhile.
            _ if place.slot.state().is_done(place.lap) => ControlFlow::Continue(()),
            offset => ControlFlow::Break((place.pos, offset)),
        }
    });
    match found {
        ControlFlow::Break(found) => Some(found),
        ControlFlow::Continue(()) => None,
    }
}

/// As [`walk`], where messages are numbered by arrival: all offsets below the tail have come or
/// never will, so what is not there unfinished is finished. False when it had to stop before.
fn walk_numbered<S: Space + ?Sized>(
    part: Part<'_, S>,
    from: Pos,
    start: u64,
    tail: u64,
    pin: &S::Pin,
    mut visit: impl FnMut(bool, u64),
) -> bool {
    let end = part.space.words().end(from);
    let (mut at, mut offset) = (from, start);
    while let Some((pos, found)) = unfinished(part, at, end, pin) {
        let Some(next) = found.filter(|next| *next >= offset) else { return false };
        if next >= tail {
            break;
        }
        if next > offset {
            visit(true, next - offset);
        }
        visit(false, 1);
        (at, offset) = (pos + 1, next + 1);
    }
    if tail > offset {
        visit(true, tail - offset);
    }
    true
}

/// A snapshot being written: finds its watermark, holds back what is open at its end.
struct Draft<'a> {
    buffer: Option<&'a mut [u8]>,
    writer: Option<Result<Writer<'a>, SnapshotError>>,
    /// The watermark: everything below is finished.
    start: u64,
    at: u64,
    /// What was visited from here on is open.
    from: u64,
}

impl<'a> Draft<'a> {
    fn writer(&mut self) -> &mut Result<Writer<'a>, SnapshotError> {
        let (buffer, start) = (&mut self.buffer, self.start);
        self.writer.get_or_insert_with(|| Writer::new(buffer.take().unwrap_or_default(), start))
    }

    fn visit(&mut self, is_done: bool, run: u64) {
        let before = self.at;
        // Positions go on where offsets end, with nothing done there.
        self.at = before.saturating_add(run);
        if self.writer.is_none() && is_done {
            // Finished since the watermark was read: that much higher is the snapshot's.
            (self.start, self.from) = (self.at, self.at);
            return;
        }
        let (open, done) = (before - self.from, self.at - before);
        if let Ok(writer) = self.writer()
            && is_done
        {
            writer.push(false, open);
            writer.push(true, done);
        }
        if is_done {
            self.from = self.at;
        }
    }

    /// What was visited, and that up to `end` nothing more is finished.
    fn finish(mut self, end: u64) -> Result<Taken, SnapshotError> {
        self.writer().as_ref().map_err(|error| *error)?;
        let from = self.from;
        let start = self.start;
        let mut writer = self.writer.unwrap_or(Err(SnapshotError::TooSmall))?;
        writer.push(false, end.saturating_sub(from));
        let (len, covered, is_whole) = writer.finish();
        let exact_up_to = start.saturating_add(covered);
        Ok(Taken { len, watermark: Next(start), exact_up_to, is_whole })
    }
}

impl<R: WindowRef> Assignment<R> {
    /// Writes which offsets above the watermark are finished, for a restart that then skips them.
    /// Slides once.
    ///
    /// Everything it calls finished is finished, whatever runs beside it; with nothing beside it,
    /// it is exact. Offsets that were sealed and never admitted count as finished; a gap that may
    /// still be filled does not. When the buffer is too small it has the lowest offsets, and says
    /// up to where. A buffer of 16 bytes is never too small for the watermark; 2 bytes for each
    /// finished range, or a bit for each offset, whichever is less, are enough for the rest.
    ///
    /// For a place that keeps text see [`Snapshot::bytes_in_text`].
    ///
    /// # Errors
    /// [`SnapshotError::Stale`] when the assignment has ended, [`SnapshotError::TooSmall`] when
    /// there is no room for the watermark.
    ///
    /// O(span), in a [`RingWindow`](crate::RingWindow) O(capacity).
    ///
    /// ```
    /// use inflight::{RingWindow, Snapshot, Window};
    ///
    /// let window = RingWindow::<u32, 8>::new();
    /// let part = window.assign(5);
    /// part.put_batch(&mut (5..9).map(|n| (n, 0)))?;
    /// part.remove_batch([6, 8])?;
    /// let mut buffer = [0; 64];
    /// let taken = part.snapshot(&mut buffer)?;
    ///
    /// // After a restart:
    /// let snapshot = Snapshot::parse(&buffer[..taken.len])?;
    /// let part = window.assign(snapshot.watermark().get());
    /// part.restore(&snapshot)?;
    /// let again = part.put_batch(&mut (5..10).map(|n| (n, 0)))?;
    /// assert_eq!((again.admitted, again.passed), (3, 2));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn snapshot(&self, buffer: &mut [u8]) -> Result<Taken, SnapshotError> {
        let stale = |Stale| SnapshotError::Stale;
        let part = self.part();
        let pin = self.pin();
        let next = part.min_offset(&pin).map_err(stale)?;
        // Before the places: what is below it then is in them, or finished.
        let tail = part.end().map_err(stale)?;
        let (from, bound) = part.view_closed().map_err(stale)?;
        let (start, end) = if part.numbered() {
            (next.get(), tail)
        } else {
            (part.dense_offset(from), part.dense_offset(part.space.words().end(from)))
        };
        let mut draft = Draft { buffer: Some(buffer), writer: None, start, at: start, from: start };
        let mut is_known = true;
        if part.numbered() {
            is_known = walk_numbered(part, from, start, tail, &pin, |is_done, run| {
                draft.visit(is_done, run);
            });
        } else {
            walk(part, from, bound, &pin, |is_done, run| draft.visit(is_done, run));
        }
        let end = if is_known { end } else { draft.at };
        let mut taken = draft.finish(end)?;
        taken.is_whole &= is_known;
        // After everything was read: an assign makes slots look finished.
        if !weak(Control::SnapshotNoSecondLook) {
            part.current().map_err(stale)?;
        }
        Ok(taken)
    }

    /// The finished offsets above the watermark as ranges, ascending, each looked at when the
    /// iterator gets there. It ends early when the assignment does. What it says is as
    /// [`Assignment::snapshot`] says it.
    ///
    /// # Errors
    /// [`Stale`] when the assignment has ended.
    ///
    /// O(span) in all.
    ///
    /// ```
    /// use inflight::{RingWindow, Window};
    ///
    /// let window = RingWindow::<u32, 8>::new();
    /// let part = window.assign(0);
    /// part.put_batch(&mut (0..6).map(|n| (n, 0)))?;
    /// part.remove_batch([1, 2, 4])?;
    /// assert_eq!(part.finished()?.collect::<Vec<_>>(), [1..3, 4..5]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn finished(&self) -> Result<impl Iterator<Item = Range<u64>> + use<'_, R>, Stale> {
        let tail = self.end()?;
        let mut offset = self.watermark()?.get();
        let part = self.part();
        let (mut at, _) = part.view_closed()?;
        let mut is_over = false;
        Ok(core::iter::from_fn(move || {
            let part = self.part();
            let pin = self.pin();
            while !is_over {
                let (watermark, bound) = part.view_closed().ok()?;
                let from = at.max(watermark);
                let range = if part.numbered() {
                    let end = part.space.words().end(from).min(bound);
                    let (pos, next) = unfinished(part, from, end, &pin).unwrap_or((end, None));
                    is_over = next.is_none_or(|next| next >= tail);
                    let next = match next {
                        Some(next) => next.min(tail),
                        None if pos == end => tail,
                        None => offset,
                    };
                    let range = offset..next.max(offset);
                    (at, offset) = (pos + 1, next.saturating_add(1));
                    range
                } else {
                    let mut range: Option<Range<Pos>> = None;
                    (at, is_over) = (bound, true);
                    walk_while(part, from, bound, &pin, |pos, is_done, run| {
                        match (is_done, &mut range) {
                            (true, Some(range)) => range.end = pos + run,
                            (true, none) => *none = Some(pos..pos + run),
                            (false, Some(_)) => {
                                (at, is_over) = (pos, false);
                                return false;
                            }
                            (false, None) => {}
                        }
                        true
                    });
                    let range = range.unwrap_or(at..at);
                    part.dense_offset(range.start)..part.dense_offset(range.end)
                };
                // After the slots were read: an assign makes them look finished.
                part.current().ok()?;
                if !range.is_empty() {
                    return Some(range);
                }
            }
            None
        }))
    }

    /// Makes the window skip what was finished when the snapshot was taken: it counts as passed
    /// when it is put again. To be called after [`Window::assign`](crate::Window::assign), before the puts. What is in the
    /// window already stays.
    ///
    /// Reaches as far as puts do. What lies beyond is in [`Restored::beyond`]: restore again when
    /// the watermark has moved, or ask [`Snapshot::filter`] before each put. (In a window numbered by
    /// arrival all of it lies beyond.) Starting at another
    /// offset than the snapshot's watermark is no error: what lies below the start is passed, and
    /// a lower watermark rises to the snapshot's.
    ///
    /// # Errors
    /// As [`Assignment::advance_to`].
    ///
    /// O(finished offsets within reach). See [`Assignment::snapshot`].
    pub fn restore(&self, snapshot: &Snapshot<'_>) -> Result<Restored, AdvanceError> {
        let part = self.part();
        let pin = self.pin();
        let stale = |Stale| AdvanceError::Stale;
        if self.watermark().map_err(stale)?.get() < snapshot.watermark {
            part.advance_to(snapshot.watermark, &pin)?;
        }
        let low = self.watermark().map_err(stale)?.get();
        let (_, bound) = part.view_closed().map_err(stale)?;
        let (mut sealed, mut beyond) = (0, None);
        'ranges: for range in snapshot.finished() {
            for offset in range.start.max(low)..range.end {
                let pos = part.dense_position(offset).filter(|_| !part.numbered());
                let Some(pos) = pos.filter(|pos| *pos < bound) else {
                    beyond = Some(offset);
                    break 'ranges;
                };
                let Ok(place) = part.space.open(pos, &pin) else { continue };
                if place.slot.seal(place.lap) {
                    sealed += 1;
                    part.space.vacated(place.slot, || place.pos, &pin);
                }
            }
        }
        let next = part.min_offset(&pin).map_err(stale)?;
        Ok(Restored { next, sealed, beyond })
    }
}
