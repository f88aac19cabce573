//! The logs: files whose lines are messages. A line's offset is the position of its first byte, so
//! offsets are sparse, and to go on at one is a seek. A last line without a line feed is a line;
//! what is appended to it later is the rest of it, and no message.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use inflight::consumer::{Fetched, Partition, PullRequest, Pulled, Source, SourceError};

use crate::Failure;
use crate::args::Args;
use crate::faults::mix;

/// One line, without its line feed. Any bytes, a carriage return at the end too.
#[derive(Clone, Debug)]
pub struct Line(Arc<[u8]>);

impl Line {
    /// Where the line after this one begins, if there is one.
    pub fn next(&self, offset: u64) -> u64 {
        offset + self.0.len() as u64 + 1
    }

    /// What it is ordered by in the keyed mode.
    pub fn key(&self) -> [u8; 2] {
        key(&self.0)
    }

    /// What the handler does with it.
    pub fn checksum(&self) -> u64 {
        self.0.iter().fold(0xcbf2_9ce4_8422_2325, |sum: u64, &byte| {
            (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        })
    }
}

/// The last two bytes of a line; of a shorter one, what there is.
pub fn key(line: &[u8]) -> [u8; 2] {
    match *line {
        [.., a, b] => [a, b],
        [a] => [a, 0],
        [] => [0, 0],
    }
}

/// A file as a partition.
#[derive(Debug)]
pub struct FilePartition {
    pub name: String,
    /// Bytes it had when it was opened. What is appended later is not consumed.
    pub len: u64,
    reader: Mutex<LineReader>,
}

#[derive(Debug)]
struct LineReader {
    file: BufReader<File>,
    /// Where the line that it reads next begins.
    at: u64,
}

/// All partitions.
#[derive(Debug)]
pub struct Log {
    partitions: Vec<FilePartition>,
}

impl Log {
    /// Opens files.
    pub fn open(files: &[PathBuf]) -> Result<Self, Failure> {
        let mut names = HashSet::new();
        let mut partitions = Vec::with_capacity(files.len());
        for path in files {
            let place = |error: io::Error| format!("{}: {error}", path.display());
            // The whole path, so that two files of one name in two folders are told apart, and
            // the same file is the same partition wherever the command is run.
            let whole = fs::canonicalize(path).map_err(place)?;
            let name = whole.to_string_lossy().into_owned();
            if !names.insert(name.clone()) {
                return Err(format!("{}: named twice", path.display()).into());
            }
            partitions.push(FilePartition::open(name, &whole).map_err(place)?);
        }
        Ok(Self { partitions })
    }

    /// Opens the embedded log in `folder`, and makes it when it is not there.
    pub fn embedded(folder: &Path, args: &Args) -> Result<Self, Failure> {
        fs::create_dir_all(folder)?;
        let mut partitions = Vec::new();
        for partition in 0..args.partitions {
            let name = format!("partition-{partition}");
            let path = folder.join(&name);
            if !path.exists() {
                // Renamed when it is whole: a run killed here does not leave half a log.
                let new = folder.join(format!("{name}.new"));
                make(&new, partition, args)?;
                fs::rename(&new, &path)?;
            }
            partitions.push(FilePartition::open(name, &path)?);
        }
        Ok(Self { partitions })
    }

    pub fn partitions(&self) -> &[FilePartition] {
        &self.partitions
    }

    /// What tells these inputs from others.
    pub fn identity(&self) -> String {
        self.partitions.iter().map(|partition| format!("file {:?}\n", partition.name)).collect()
    }
}

fn make(path: &Path, partition: u64, args: &Args) -> io::Result<()> {
    let (all, of) = (args.messages, args.partitions);
    let lines = all / of + u64::from(partition < all % of);
    let mut file = BufWriter::new(File::create(path)?);
    for line in 0..lines {
        let number = mix(args.seed ^ mix(line * of + partition));
        writeln!(file, "{line:>10} {number:016x} {:>5}", number % 10_000)?;
    }
    file.into_inner()?.sync_all()
}

impl FilePartition {
    fn open(name: String, path: &Path) -> io::Result<Self> {
        let mut file = BufReader::with_capacity(1 << 16, File::open(path)?);
        let len = file.get_ref().metadata()?.len();
        // A folder can be opened, but not read.
        file.fill_buf()?;
        Ok(Self { name, len, reader: Mutex::new(LineReader { file, at: 0 }) })
    }

    fn reader(&self) -> MutexGuard<'_, LineReader> {
        self.reader.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cut(&self) -> io::Error {
        let what = format!("{} was cut while it was read", self.name);
        io::Error::new(io::ErrorKind::UnexpectedEof, what)
    }

    /// At most `count` lines that begin at byte `from` or later, about as many bytes as asked for,
    /// and where the line after them begins.
    fn read(&self, from: u64, count: usize, bytes: u64) -> io::Result<(Vec<Fetched<Line>>, u64)> {
        let mut reader = self.reader();
        if reader.at != from {
            reader.find(from)?;
        }
        let mut lines = Vec::with_capacity(count);
        let mut buffer = Vec::new();
        let mut left = bytes;
        while reader.at < self.len && lines.len() < count && (left > 0 || lines.is_empty()) {
            buffer.clear();
            // An error leaves the reader anywhere: the next pull seeks.
            let at = std::mem::replace(&mut reader.at, u64::MAX);
            let rest = self.len - at;
            let read = reader.file.by_ref().take(rest).read_until(b'\n', &mut buffer)? as u64;
            if buffer.last() == Some(&b'\n') {
                buffer.pop();
            } else if read < rest {
                return Err(self.cut());
            }
            reader.at = at + read;
            left = left.saturating_sub(read);
            lines.push(Fetched::new(at, buffer.len(), Line(Arc::from(&*buffer))));
        }
        Ok((lines, reader.at.min(self.len)))
    }

    /// Goes through the file again: where each line begins.
    pub fn lines(&self) -> io::Result<Lines<'_>> {
        let mut reader = self.reader();
        reader.at = u64::MAX;
        reader.file.seek(SeekFrom::Start(0))?;
        Ok(Lines { partition: self, reader, at: 0 })
    }
}

impl LineReader {
    /// Goes to the first line that begins at byte `from` or later. A watermark may lie inside a
    /// line that is finished; the rest of that is no message.
    fn find(&mut self, from: u64) -> io::Result<()> {
        self.at = u64::MAX;
        let before = from.saturating_sub(1);
        self.file.seek(SeekFrom::Start(before))?;
        let skipped = if from == 0 { 0 } else { self.file.skip_until(b'\n')? as u64 };
        self.at = before + skipped;
        Ok(())
    }
}

/// Where the lines of a partition begin, in order.
pub struct Lines<'a> {
    partition: &'a FilePartition,
    reader: MutexGuard<'a, LineReader>,
    at: u64,
}

impl Lines<'_> {
    pub fn next(&mut self) -> io::Result<Option<u64>> {
        let at = self.at;
        if at >= self.partition.len {
            return Ok(None);
        }
        let read = self.reader.file.skip_until(b'\n')?;
        if read == 0 {
            return Err(self.partition.cut());
        }
        self.at += read as u64;
        Ok(Some(at))
    }

    /// As `next`, with the line, without its line feed.
    pub fn next_line(&mut self, line: &mut Vec<u8>) -> io::Result<Option<u64>> {
        let at = self.at;
        if at >= self.partition.len {
            return Ok(None);
        }
        line.clear();
        let rest = self.partition.len - at;
        let read = self.reader.file.by_ref().take(rest).read_until(b'\n', line)?;
        if read == 0 {
            return Err(self.partition.cut());
        }
        if line.last() == Some(&b'\n') {
            line.pop();
        }
        self.at += read as u64;
        Ok(Some(at))
    }
}

/// The consumer's view of a log that its owner keeps too.
impl Source for Log {
    type Message = Line;

    fn partitions(&self) -> Result<Vec<Partition>, SourceError> {
        let names = self.partitions.iter().map(|partition| partition.name.clone());
        Ok(names.enumerate().map(|(id, name)| Partition::new(id, name)).collect())
    }

    fn pull(
        &self,
        partition: &Partition,
        request: &PullRequest,
    ) -> Result<Pulled<Line>, SourceError> {
        let file = self.partitions.get(partition.id()).ok_or("no such partition")?;
        let (messages, next) = file.read(request.from, request.messages, request.bytes)?;
        // From the last line on, `next` is the length of the file, and so is its last watermark.
        Ok(if !messages.is_empty() {
            Pulled::Found { next, messages }
        } else if next > request.from {
            Pulled::NothingMatched { next }
        } else {
            Pulled::NothingNew
        })
    }

    /// A file has all its lines from the start: nothing ever comes that would have to be rung for.
    fn subscribe(&self, _: inflight::consumer::News) -> bool {
        true
    }

    fn end(&self, partition: &Partition) -> Option<u64> {
        self.partitions.get(partition.id()).map(|file| file.len)
    }
}
