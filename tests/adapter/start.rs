//! What does not start, and says why.

use std::error::Error;
use std::fs;
use std::sync::Arc;

use inflight::RingWindow;
use inflight::consumer::{
    Batch, Builder, Consumer, FileStore, Limits, MemoryStore, Outcome, Partition, PullRequest,
    Pulled, Source, SourceError, StartError, StoreError,
};

use crate::support::{Script, builder};

fn done(_: &Batch<'_, u64>) -> Outcome {
    Outcome::Done
}

fn refused(setting: &str, builder: Builder<Arc<Script>>) {
    match builder.start() {
        Err(StartError::Invalid { setting: named, .. }) => assert_eq!(named, setting),
        other => panic!("{setting}: {other:?}"),
    }
}

#[test]
fn settings_out_of_range_are_named() {
    let source = Script::dense(&[1]);
    let set = || builder(&source).concurrent(done);
    refused("concurrent", builder(&source));
    refused("workers", set().workers(0));
    refused("batch", set().batch(0));
    refused("batch", set().batch(1025));
    refused("pull_batch", set().pull_batch(0));
    refused("limits.count", set().limits(Limits::default().count(0)));
    refused("limits.bytes", set().limits(Limits::default().bytes(0)));
    refused("limits.span", set().limits(Limits::default().span(0)));
    refused("limits.span", set().limits(Limits::default().span(4_097)));
    refused("limits.replay", set().limits(Limits::default().replay(0)));
    refused("max_attempts", set().give_up_after(0, |_| Ok(())));
    refused("max_attempts", set().max_attempts(0));
    let limits = Limits::default().span(4_097);
    let larger = set().limits(limits).window(|_| RingWindow::<_, 8_192>::boxed());
    assert!(larger.start().is_ok());
}

struct Named(Result<Vec<&'static str>, &'static str>);

impl Source for Named {
    type Message = u64;

    fn partitions(&self) -> Result<Vec<Partition>, SourceError> {
        let names = self.0.clone()?;
        Ok(names.into_iter().enumerate().map(|(id, name)| Partition::new(id, name)).collect())
    }

    fn pull(&self, _: &Partition, _: &PullRequest) -> Result<Pulled<u64>, SourceError> {
        Ok(Pulled::NothingNew)
    }
}

#[test]
fn a_source_without_an_answer_or_with_one_name_twice_is_refused() {
    let start =
        |names| Consumer::builder(Named(names), MemoryStore::default()).concurrent(done).start();
    assert!(matches!(start(Err("no route")), Err(StartError::Source(_))));
    let twice = start(Ok(vec!["a", "b", "a"]));
    assert!(matches!(&twice, Err(StartError::TwiceNamed(name)) if name == "a"));
    let none = start(Ok(vec![])).unwrap();
    assert!(none.wait_caught_up(crate::support::FOREVER));
}

/// Case 37: garbage in the offset file.
#[test]
fn case_37_a_damaged_offset_file_is_named_kept_and_nothing_starts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("offsets");
    for garbage in [&b""[..], b"garbage", b"inflight offsets 1\n", b"\0\0\0\0\0\0\0\0"] {
        fs::write(&path, garbage).unwrap();
        let error = FileStore::open(folder.path()).unwrap_err();
        assert!(matches!(&error, StoreError::Corrupt { path: named, .. } if *named == path));
        assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
        assert!(error.source().is_none());
        assert_eq!(fs::read(&path).unwrap(), garbage);
    }
    // A folder in the file's place cannot be read at all.
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    let error = FileStore::open(folder.path()).unwrap_err();
    assert!(matches!(&error, StoreError::Io { path: named, .. } if *named == path));
    assert!(error.source().is_some());
}
