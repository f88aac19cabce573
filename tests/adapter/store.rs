//! Offset stores: when they are written, and what a crash or a bad disk does to the file.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use inflight::consumer::{Batch, FileStore, MemoryStore, OffsetStore, Outcome, StoreError};

use crate::support::{FOREVER, Fragile, Script, wait_until, with_store};

/// Case 34: the store fails once; the watermark is intact and the next publish carries it.
#[test]
fn case_34_the_next_publish_carries_what_a_failed_one_did_not() {
    let source = Script::dense(&[100, 7]);
    let store = Arc::new(Fragile::default());
    let consumer = with_store(&source, Arc::clone(&store))
        .concurrent(|_: &Batch<u64>| -> Outcome { Outcome::Done })
        .start()
        .unwrap();
    assert!(consumer.wait_caught_up(FOREVER));
    store.failures.store(1, Ordering::SeqCst);
    assert!(consumer.publish().is_err());
    assert_eq!(store.load("p0").unwrap(), None);
    let progress = consumer.progress();
    assert_eq!((progress.partitions[0].watermark, progress.store_errors), (100, 1));
    assert!(progress.last_store_error.unwrap().contains("disk"));
    consumer.publish().unwrap();
    assert_eq!((store.load("p0").unwrap(), store.load("p1").unwrap()), (Some(100), Some(7)));
}

/// Case 34 by the clock.
#[test]
fn case_34_the_clock_publishes_again_after_a_failure() {
    let source = Script::dense(&[100]);
    let store = Arc::new(Fragile::default());
    store.failures.store(2, Ordering::SeqCst);
    let consumer = with_store(&source, Arc::clone(&store))
        .publish_every(Duration::from_millis(1))
        .concurrent(|_: &Batch<u64>| -> Outcome { Outcome::Done })
        .start()
        .unwrap();
    wait_until("it is stored", || store.load("p0").unwrap() == Some(100));
    assert_eq!(consumer.progress().store_errors, 2);
}

/// Case 13: nothing done, no store update.
#[test]
fn case_13_nothing_finished_stores_nothing() {
    let source = Script::dense(&[10]);
    let store = Arc::new(Fragile::default());
    let consumer = with_store(&source, Arc::clone(&store))
        .concurrent(|_: &Batch<u64>| -> Outcome { Outcome::RetryAfter(FOREVER * 100) })
        .start()
        .unwrap();
    wait_until("all failed", || consumer.progress().partitions[0].retried == 10);
    consumer.publish().unwrap();
    consumer.shutdown(FOREVER).unwrap();
    assert_eq!(store.publishes.load(Ordering::SeqCst), 0);
}

#[test]
fn a_restart_goes_on_at_the_stored_offset() {
    let folder = tempfile::tempdir().unwrap();
    FileStore::open(folder.path()).unwrap().publish(&[("p0", 40)]).unwrap();
    let source = Script::dense(&[100]);
    let consumer = with_store(&source, FileStore::open(folder.path()).unwrap())
        .concurrent(|batch: &Batch<u64>| -> Outcome {
            assert!(batch.messages()[0].offset() >= 40);
            Outcome::Done
        })
        .start()
        .unwrap();
    assert!(consumer.wait_caught_up(FOREVER));
    assert_eq!(consumer.progress().partitions[0].finished, 60);
    consumer.shutdown(FOREVER).unwrap();
    assert_eq!(FileStore::open(folder.path()).unwrap().load("p0").unwrap(), Some(100));
}

const NAMES: [&str; 6] = ["orders-0", "", "with space", "line\nfeed", "back\\slash\r", "ünïcode"];

#[test]
fn offsets_only_rise_but_for_a_reset_in_both_stores() {
    let folder = tempfile::tempdir().unwrap();
    let stores: [Box<dyn OffsetStore>; 2] =
        [Box::new(MemoryStore::default()), Box::new(FileStore::open(folder.path()).unwrap())];
    for store in stores {
        for name in NAMES {
            assert_eq!(store.load(name).unwrap(), None);
            store.publish(&[(name, 0)]).unwrap();
            assert_eq!(store.load(name).unwrap(), Some(0));
            store.publish(&[(name, 9), (name, 4)]).unwrap();
            store.publish(&[(name, 8)]).unwrap();
            assert_eq!(store.load(name).unwrap(), Some(9));
            store.reset(name, 3).unwrap();
            assert_eq!(store.load(name).unwrap(), Some(3));
            store.publish(&[(name, u64::MAX)]).unwrap();
            assert_eq!(store.load(name).unwrap(), Some(u64::MAX));
        }
    }
    let reopened = FileStore::open(folder.path()).unwrap();
    for name in NAMES {
        assert_eq!(reopened.load(name).unwrap(), Some(u64::MAX));
    }
}

/// A file as the store writes it.
fn sample() -> (tempfile::TempDir, std::path::PathBuf, Vec<u8>) {
    let folder = tempfile::tempdir().unwrap();
    let store = FileStore::open(folder.path()).unwrap();
    let offsets: Vec<_> = NAMES.iter().zip([0, 7, 42, 4711, 1 << 40, u64::MAX]).collect();
    let offsets: Vec<_> = offsets.into_iter().map(|(name, offset)| (*name, offset)).collect();
    store.publish(&offsets).unwrap();
    let path = store.path();
    let bytes = fs::read(&path).unwrap();
    (folder, path, bytes)
}

fn refused(folder: &tempfile::TempDir, path: &std::path::Path, bytes: &[u8], what: &str) {
    fs::write(path, bytes).unwrap();
    match FileStore::open(folder.path()) {
        Err(StoreError::Corrupt { path: named, .. }) => assert_eq!(named, path),
        other => panic!("{what}: {other:?}"),
    }
    assert_eq!(fs::read(path).unwrap(), bytes, "{what}: the file is kept");
}

#[test]
fn a_file_altered_in_any_byte_is_refused() {
    let (folder, path, bytes) = sample();
    for at in 0..bytes.len() {
        for alter in [1, 2, 4, 8, 16, 32, 64, 128, 255] {
            let mut altered = bytes.clone();
            altered[at] ^= alter;
            refused(&folder, &path, &altered, &format!("byte {at} ^ {alter}"));
        }
        let mut shorter = bytes.clone();
        shorter.remove(at);
        refused(&folder, &path, &shorter, &format!("without byte {at}"));
        let mut longer = bytes.clone();
        longer.insert(at, b'0');
        if longer != bytes {
            refused(&folder, &path, &longer, &format!("with a byte more at {at}"));
        }
    }
    fs::write(&path, &bytes).unwrap();
    assert_eq!(FileStore::open(folder.path()).unwrap().load("orders-0").unwrap(), Some(0));
}

#[test]
fn a_file_torn_at_any_length_is_refused() {
    let (folder, path, bytes) = sample();
    for length in 0..bytes.len() {
        refused(&folder, &path, &bytes[..length], &format!("torn at {length}"));
        // The disk had allotted the length, but not written the rest.
        let mut zeroed = bytes.clone();
        zeroed[length..].fill(0);
        refused(&folder, &path, &zeroed, &format!("zeros from {length}"));
    }
    let twice = [&bytes[..], &bytes[..]].concat();
    refused(&folder, &path, &twice, "twice");
}

/// A crash between writing the new file and renaming it, at any length.
#[test]
fn a_new_file_left_by_a_crash_does_no_harm() {
    let (folder, path, bytes) = sample();
    for length in [0, 1, bytes.len() / 2, bytes.len()] {
        fs::write(path.with_file_name("offsets.new"), &bytes[..length]).unwrap();
        let store = FileStore::open(folder.path()).unwrap();
        assert_eq!(store.load("with space").unwrap(), Some(42));
        store.publish(&[("with space", 43 + length as u64)]).unwrap();
        let reopened = FileStore::open(folder.path()).unwrap();
        assert_eq!(reopened.load("with space").unwrap(), Some(43 + length as u64));
        assert!(!path.with_file_name("offsets.new").exists());
        fs::write(&path, &bytes).unwrap();
    }
}

/// A failed write changes neither the file nor what the store says.
#[test]
fn a_write_that_fails_changes_nothing_and_the_next_one_carries_all() {
    let (folder, path, bytes) = sample();
    let store = FileStore::open(folder.path()).unwrap();
    let new = path.with_file_name("offsets.new");
    fs::create_dir(&new).unwrap();
    let error = store.publish(&[("orders-0", 5)]).unwrap_err();
    assert!(matches!(&error, StoreError::Io { path, .. } if *path == new), "{error}");
    assert_eq!(store.load("orders-0").unwrap(), Some(0));
    assert_eq!(fs::read(&path).unwrap(), bytes);
    fs::remove_dir(&new).unwrap();
    store.publish(&[("orders-0", 5)]).unwrap();
    assert_eq!(FileStore::open(folder.path()).unwrap().load("orders-0").unwrap(), Some(5));
}
