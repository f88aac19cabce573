//! The logs: files whose lines are messages. A line's offset is its number, from 0.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use inflight::consumer::{Fetched, Partition, PullRequest, Pulled, Source, SourceError};

use crate::Failure;
use crate::args::Args;
use crate::faults::mix;

/// One byte position is remembered for so many lines.
const STRIDE: u64 = 1024;

/// One line, without its line feed. Any bytes.
#[derive(Clone, Debug)]
pub struct Line(Arc<[u8]>);

impl Line {
    /// What the handler does with it.
    pub fn checksum(&self) -> u64 {
        self.0.iter().fold(0xcbf2_9ce4_8422_2325, |sum: u64, &byte| {
            (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        })
    }
}

/// A file as a partition.
#[derive(Debug)]
pub struct FilePartition {
    pub name: String,
    /// Lines it had when it was opened. What is appended later is not consumed.
    pub lines: u64,
    /// Where every `STRIDE`th line begins.
    index: Vec<u64>,
    reader: Mutex<LineReader>,
}

#[derive(Debug)]
struct LineReader {
    file: BufReader<File>,
    /// The line that it reads next.
    at: u64,
}

/// All partitions.
#[derive(Debug)]
pub struct Log {
    partitions: Vec<FilePartition>,
}

impl Log {
    /// Opens files and counts their lines.
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
        let mut index = vec![0];
        let (mut lines, mut bytes, mut torn) = (0, 0, false);
        loop {
            let chunk = file.fill_buf()?;
            let Some(last) = chunk.last() else { break };
            torn = *last != b'\n';
            for (at, _) in chunk.iter().enumerate().filter(|(_, byte)| **byte == b'\n') {
                lines += 1;
                if lines % STRIDE == 0 {
                    index.push(bytes + at as u64 + 1);
                }
            }
            let read = chunk.len();
            bytes += read as u64;
            file.consume(read);
        }
        // A last line without a line feed is a line.
        lines += u64::from(torn);
        file.seek(SeekFrom::Start(0))?;
        Ok(Self { name, lines, index, reader: Mutex::new(LineReader { file, at: 0 }) })
    }

    /// At most `count` lines from line `from` on, and about as many bytes as asked for.
    fn read(&self, from: u64, count: u64, bytes: u64) -> io::Result<Vec<Fetched<Line>>> {
        let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        if reader.at != from {
            let stride = from / STRIDE;
            let begin = self.index.get(stride as usize).copied().unwrap_or(0);
            reader.file.seek(SeekFrom::Start(begin))?;
            reader.at = stride * STRIDE;
            while reader.at < from {
                reader.file.skip_until(b'\n')?;
                reader.at += 1;
            }
        }
        let mut lines = Vec::with_capacity(count as usize);
        let mut buffer = Vec::new();
        let mut left = bytes;
        let to = self.lines.min(from.saturating_add(count));
        while reader.at < to && (left > 0 || lines.is_empty()) {
            buffer.clear();
            // An error leaves the reader anywhere: the next pull seeks.
            let at = std::mem::replace(&mut reader.at, u64::MAX);
            let read = reader.file.by_ref().read_until(b'\n', &mut buffer)?;
            if read == 0 {
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    format!("{} was cut while it was read", self.name),
                ));
            }
            reader.at = at + 1;
            if buffer.last() == Some(&b'\n') {
                buffer.pop();
            }
            left = left.saturating_sub(read as u64);
            lines.push(Fetched::new(at, buffer.len(), Line(Arc::from(&*buffer))));
        }
        Ok(lines)
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
        let messages = file.read(request.from, request.messages as u64, request.bytes)?;
        Ok(match messages.last() {
            Some(last) => Pulled::Found { next: last.offset + 1, messages },
            None => Pulled::NothingNew,
        })
    }

    /// A file has all its lines from the start: nothing ever comes that would have to be rung for.
    fn subscribe(&self, _: inflight::consumer::News) -> bool {
        true
    }

    fn end(&self, partition: &Partition) -> Option<u64> {
        self.partitions.get(partition.id()).map(|file| file.lines)
    }
}
