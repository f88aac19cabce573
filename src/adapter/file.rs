//! [`FileStore`]: watermarks in one file, replaced whole so that no crash leaves half of it.
//!
//! The file is text, so that an operator can read it:
//!
//! ```text
//! inflight offsets 1
//! 4711 orders-0
//! 815 orders-1
//! crc32 0a1b2c3d
//! ```
//!
//! Partitions are sorted; a name's backslash, line feed and carriage return are escaped. The last
//! line is the checksum of everything before it. A file is accepted only when it is exactly, byte
//! for byte, what this store would write for what was read: a torn or altered one never is.

use std::collections::BTreeMap;
use std::format;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::string::String;
use std::sync::{Mutex, PoisonError};

use super::store::{OffsetStore, StoreError, raise};

const HEAD: &str = "inflight offsets 1";
const FILE: &str = "offsets";
const NEW: &str = "offsets.new";

/// A store of watermarks in a file of a folder, safe against a crash at any instant: written to a
/// second file, flushed to the disk, renamed over the first, and the folder flushed too.
///
/// Offsets only rise, except by a reset. One consumer for a folder at a time: what a second one
/// wrote would be replaced. RocketMQ: `LocalFileOffsetStore`.
///
/// ```
/// use inflight::consumer::{FileStore, OffsetStore};
///
/// # let folder = tempfile::tempdir()?;
/// let store = FileStore::open(folder.path())?;
/// store.publish(&[("orders-0", 42)])?;
/// drop(store);
/// assert_eq!(FileStore::open(folder.path())?.load("orders-0")?, Some(42));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct FileStore {
    folder: PathBuf,
    /// What the file says.
    offsets: Mutex<BTreeMap<String, u64>>,
}

impl FileStore {
    /// Opens the store of a folder, which is made if need be. Without a file it is empty.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] when the file is torn or damaged; it is left as it is.
    /// [`StoreError::Io`] when it cannot be read.
    pub fn open(folder: impl Into<PathBuf>) -> Result<Self, StoreError> {
        let folder = folder.into();
        fs::create_dir_all(&folder).map_err(at(&folder))?;
        let path = folder.join(FILE);
        let offsets = match fs::read(&path) {
            Ok(bytes) => parse(&bytes).map_err(|what| StoreError::Corrupt { path, what })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => return Err(StoreError::Io { path, error }),
        };
        Ok(Self { folder, offsets: Mutex::new(offsets) })
    }

    /// The file's path.
    pub fn path(&self) -> PathBuf {
        self.folder.join(FILE)
    }

    /// Puts `changed` in the place of the file; remembers it only when it is there.
    fn replace(
        &self,
        offsets: &mut BTreeMap<String, u64>,
        changed: BTreeMap<String, u64>,
    ) -> Result<(), StoreError> {
        let new = self.folder.join(NEW);
        let mut file = File::create(&new).map_err(at(&new))?;
        file.write_all(render(&changed).as_bytes()).map_err(at(&new))?;
        file.sync_all().map_err(at(&new))?;
        drop(file);
        let path = self.path();
        fs::rename(&new, &path).map_err(at(&path))?;
        // The rename itself is in the folder. Only Unix lets a folder be opened and flushed.
        #[cfg(unix)]
        File::open(&self.folder).and_then(|folder| folder.sync_all()).map_err(at(&self.folder))?;
        *offsets = changed;
        Ok(())
    }
}

impl OffsetStore for FileStore {
    fn load(&self, partition: &str) -> Result<Option<u64>, StoreError> {
        let offsets = self.offsets.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(offsets.get(partition).copied())
    }

    fn publish(&self, raised: &[(&str, u64)]) -> Result<(), StoreError> {
        let mut offsets = self.offsets.lock().unwrap_or_else(PoisonError::into_inner);
        let mut changed = offsets.clone();
        if raise(&mut changed, raised) { self.replace(&mut offsets, changed) } else { Ok(()) }
    }

    fn reset(&self, partition: &str, offset: u64) -> Result<(), StoreError> {
        let mut offsets = self.offsets.lock().unwrap_or_else(PoisonError::into_inner);
        let mut changed = offsets.clone();
        changed.insert(partition.into(), offset);
        self.replace(&mut offsets, changed)
    }
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> StoreError + use<'_> {
    move |error| StoreError::Io { path: path.into(), error }
}

fn render(offsets: &BTreeMap<String, u64>) -> String {
    let mut text = format!("{HEAD}\n");
    for (partition, offset) in offsets {
        let name = partition.replace('\\', "\\\\").replace('\n', "\\n").replace('\r', "\\r");
        text.push_str(&format!("{offset} {name}\n"));
    }
    let sum = crc32fast::hash(text.as_bytes());
    text.push_str(&format!("crc32 {sum:08x}\n"));
    text
}

fn parse(bytes: &[u8]) -> Result<BTreeMap<String, u64>, &'static str> {
    if bytes.is_empty() {
        return Err("it is empty");
    }
    let text = std::str::from_utf8(bytes).map_err(|_| "it is not text")?;
    let body = text.strip_suffix('\n').ok_or("its last line is torn")?;
    let (body, sum) = body.rsplit_once('\n').ok_or("it has no checksum")?;
    let sum = sum.strip_prefix("crc32 ").ok_or("it has no checksum")?;
    let sum = u32::from_str_radix(sum, 16).map_err(|_| "its checksum is no number")?;
    let mut summed = crc32fast::Hasher::new();
    summed.update(body.as_bytes());
    summed.update(b"\n");
    if summed.finalize() != sum {
        return Err("its checksum is wrong");
    }
    let mut lines = body.split('\n');
    if lines.next() != Some(HEAD) {
        return Err("its first line is not that of an offset file of this version");
    }
    let mut offsets = BTreeMap::new();
    for line in lines {
        let (offset, name) = line.split_once(' ').ok_or("a line has no name")?;
        let offset = offset.parse().map_err(|_| "an offset is no number")?;
        offsets.insert(unescape(name), offset);
    }
    // Nothing but what this store writes: no sign, no leading zero, no other escape or order.
    if render(&offsets).as_bytes() == bytes { Ok(offsets) } else { Err("it was altered") }
}

fn unescape(name: &str) -> String {
    let mut plain = String::new();
    let mut chars = name.chars();
    while let Some(char) = chars.next() {
        plain.push(match char {
            '\\' => match chars.next() {
                Some('n') => '\n',
                Some('r') => '\r',
                Some(other) => other,
                None => '\\',
            },
            plain => plain,
        });
    }
    plain
}
