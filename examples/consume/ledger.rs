//! The ledger: what handlers really did, written by them, independent of the consumer.
//!
//! One file for each partition, only ever appended to. A record is 16 bytes: offset of the first
//! line (8), how many lines from there on (3) and what (1), checksum (4), all little-endian. What a batch did is one `write(2)`
//! before the batch is committed, so a crash can only leave more in the ledger than was committed,
//! never less.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::Failure;

const RECORD: usize = 16;
const MOST: u32 = (1 << 24) - 1;

/// What happened to consecutive lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Handled.
    Handled = 1,
    /// Failed, to be retried.
    Failed = 2,
    /// A panic at the first offset; `count` messages of its batch are to be retried.
    Panicked = 3,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    pub first: u64,
    pub count: u32,
    pub what: What,
}

impl Record {
    fn encode(self) -> [u8; RECORD] {
        let mut bytes = [0; RECORD];
        let word = self.count.min(MOST) | (self.what as u32) << 24;
        bytes[..8].copy_from_slice(&self.first.to_le_bytes());
        bytes[8..12].copy_from_slice(&word.to_le_bytes());
        let sum = crc32fast::hash(&bytes[..12]);
        bytes[12..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let first = u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?);
        let word = u32::from_le_bytes(bytes.get(8..12)?.try_into().ok()?);
        let sum = u32::from_le_bytes(bytes.get(12..RECORD)?.try_into().ok()?);
        if crc32fast::hash(&bytes[..12]) != sum {
            return None;
        }
        let what = match word >> 24 {
            1 => What::Handled,
            2 => What::Failed,
            3 => What::Panicked,
            _ => return None,
        };
        Some(Self { first, count: word & MOST, what })
    }
}

/// The ledgers of all partitions, in the log's order.
#[derive(Debug)]
pub struct Ledgers {
    names: Vec<String>,
    files: Vec<Mutex<File>>,
    failure: Mutex<Option<String>>,
}

/// The ledger file of a partition.
pub fn path(folder: &Path, partition: usize) -> PathBuf {
    folder.join(format!("{partition:04}"))
}

impl Ledgers {
    /// Opens the ledgers to append to them; cuts off a torn last record. Also says how many
    /// handlings they have already.
    pub fn open(folder: &Path, names: Vec<String>) -> Result<(Self, u64), Failure> {
        fs::create_dir_all(folder)?;
        let mut files = Vec::with_capacity(names.len());
        let mut handled = 0;
        for partition in 0..names.len() {
            let path = path(folder, partition);
            let file = OpenOptions::new().create(true).append(true).open(&path)?;
            let mut sound = 0;
            read(&path, |record| {
                sound += RECORD as u64;
                if record.what == What::Handled {
                    handled += u64::from(record.count);
                }
            })?;
            if file.metadata()?.len() > sound {
                file.set_len(sound)?;
            }
            files.push(Mutex::new(file));
        }
        Ok((Self { names, files, failure: Mutex::default() }, handled))
    }

    fn index(&self, partition: &str) -> usize {
        self.names.iter().position(|name| name == partition).unwrap_or(0)
    }

    /// What a batch does, to be written when it is known.
    pub fn entries(&self, partition: &str) -> Entries<'_> {
        Entries { ledgers: self, partition: self.index(partition), records: Vec::new(), next: 0 }
    }

    /// A handler is about to panic at `offset`, with so many messages in its hands.
    pub fn panicked(&self, partition: &str, offset: u64, count: usize) {
        let count = u32::try_from(count).unwrap_or(MOST);
        self.append(
            self.index(partition),
            &[Record { first: offset, count, what: What::Panicked }],
        );
    }

    fn append(&self, partition: usize, records: &[Record]) -> bool {
        let bytes: Vec<u8> = records.iter().flat_map(|record| record.encode()).collect();
        let mut file = self.files[partition].lock().unwrap_or_else(PoisonError::into_inner);
        if self.failure().is_some() {
            // Half a record may be at the end; whatever followed it would be lost with it.
            return false;
        }
        match file.write_all(&bytes) {
            Ok(()) => true,
            Err(error) => {
                let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
                *failure = Some(error.to_string());
                false
            }
        }
    }

    /// Why the ledger cannot be trusted any more.
    pub fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What a batch did.
#[derive(Debug)]
pub struct Entries<'a> {
    ledgers: &'a Ledgers,
    partition: usize,
    records: Vec<Record>,
    /// Where the line after the last record begins.
    next: u64,
}

impl Entries<'_> {
    /// A line at `offset` was dealt with; the one after it begins at `next`.
    pub fn push(&mut self, offset: u64, next: u64, what: What) {
        match self.records.last_mut() {
            Some(last) if last.what == what && self.next == offset => last.count += 1,
            _ => self.records.push(Record { first: offset, count: 1, what }),
        }
        self.next = next;
    }

    /// Forgets what was pushed.
    pub fn clear(&mut self) {
        self.records.clear();
    }

    /// Writes them all at once; false when that failed, and nothing may be committed.
    pub fn write(self) -> bool {
        self.ledgers.append(self.partition, &self.records)
    }
}

/// Reads the ledger of a partition up to a torn end. A record that is damaged before sound ones is
/// an error: the ledger proves nothing then.
pub fn read(path: &Path, mut each: impl FnMut(Record)) -> Result<(), Failure> {
    let mut file = match File::open(path) {
        Ok(file) => io::BufReader::with_capacity(RECORD << 12, file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(format!("{}: {error}", path.display()).into()),
    };
    let mut bytes = [0; RECORD];
    let mut torn = false;
    loop {
        match file.read_exact(&mut bytes) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(format!("{}: {error}", path.display()).into()),
        }
        match Record::decode(&bytes) {
            Some(_) if torn => {
                return Err(format!("the ledger {} is damaged", path.display()).into());
            }
            Some(record) => each(record),
            None => torn = true,
        }
    }
}
