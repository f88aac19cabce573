//! Model checks of the snapshot: what it calls finished is finished, whatever runs beside it. Every
//! schedule, with plain accesses and with accesses as read-modify-writes, then weakened by each
//! control, which must be noticed.

use std::panic;
use std::process::{self, Command};
use std::sync::Arc;

use inflight::model::{Control, set_control, set_rmw};
use inflight::{Assignment, PutErrorKind, RingWindow, Snapshot, SnapshotError, Window};
use loom::thread;

type Ring = RingWindow<u64, 4>;
type Part = Assignment<Arc<Ring>>;

/// Tells a process which run of its test it is for.
const RUN: &str = "INFLIGHT_LOOM_RUN";

/// Runs all schedules, here.
fn explore(rmw: bool, control: Option<Control>, body: fn()) {
    set_rmw(rmw);
    set_control(control);
    let mut builder = loom::model::Builder::new();
    let full = std::env::var("INFLIGHT_LOOM").is_ok_and(|how| how == "full");
    builder.preemption_bound = (!full).then_some(3);
    builder.max_branches = 10_000;
    builder.check(body);
}

/// All schedules pass both ways; each control fails in one way at least.
///
/// Every run is a process of its own, which the first failure ends without unwinding: a window
/// dropped outside of its execution is one more failure.
fn check(name: &str, body: fn(), controls: &[Control]) {
    if let Ok(run) = std::env::var(RUN) {
        let (way, control) = run.split_once(' ').expect("a way and a control");
        panic::set_hook(Box::new(|info| {
            println!("{info}");
            process::exit(FAILED);
        }));
        let control = controls.iter().find(|one| format!("{one:?}") == control);
        explore(way == "rmw", control.copied(), body);
        process::exit(0);
    }
    let passes = |way: &str, control: &str| {
        let run = Command::new(std::env::current_exe().unwrap())
            .args([name, "--exact", "--nocapture", "--test-threads=1"])
            .env(RUN, format!("{way} {control}"))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&run.stdout).into_owned();
        assert!([Some(0), Some(FAILED)].contains(&run.status.code()), "{:?}: {said}", run.status);
        if run.status.success() { Ok(()) } else { Err(said) }
    };
    for way in ["plain", "rmw"] {
        if let Err(said) = passes(way, "none") {
            panic!("{way}: {said}");
        }
    }
    for control in controls {
        let control = format!("{control:?}");
        let noticed = ["plain", "rmw"].iter().any(|way| passes(way, &control).is_err());
        assert!(noticed, "passes although weakened by {control}");
    }
}

const FAILED: i32 = 7;

/// Watermark and finished offsets of a snapshot taken now.
fn look(part: &Part) -> Result<(u64, Vec<u64>), SnapshotError> {
    let mut buffer = [0; 32];
    let taken = part.snapshot(&mut buffer)?;
    let snapshot = Snapshot::parse(&buffer[..taken.len]).unwrap();
    Ok((snapshot.watermark().get(), snapshot.finished().flatten().collect()))
}

/// Beside a finisher, who does not know when it is seen: but what it has finished is, and what
/// is still in the window is not.
#[test]
fn beside_a_finisher() {
    check(
        "beside_a_finisher",
        || {
            let window = Arc::new(Ring::new());
            let part = window.assign_owned(0);
            part.put_batch(&mut (0..3).map(|n| (n, n))).unwrap();
            let other = part.clone();
            let finisher = thread::spawn(move || {
                other.remove(1).unwrap();
                // Its own completions are there.
                let (watermark, done) = look(&other).unwrap();
                assert!(watermark > 1 || done.contains(&1));
                other.remove(0).unwrap();
            });
            let (watermark, done) = look(&part).unwrap();
            assert!([0, 2].contains(&watermark));
            assert!(done.iter().all(|offset| *offset == 1));
            finisher.join().unwrap();
            assert_eq!(look(&part).unwrap(), (2, vec![]));
        },
        &[],
    );
}

/// Beside a put into a gap below the end: the message is not finished, so never said to be.
#[test]
fn beside_a_late_put() {
    check(
        "beside_a_late_put",
        || {
            let window = Arc::new(Ring::with_callers_seal());
            let part = window.assign_owned(0);
            part.put(0, 0).unwrap();
            part.put(2, 2).unwrap();
            part.remove(2).unwrap();
            let other = part.clone();
            let putter = thread::spawn(move || other.put(1, 1).map_err(|error| error.kind()));
            let (watermark, done) = look(&part).unwrap();
            assert_eq!((watermark, done), (0, vec![2]));
            putter.join().unwrap().unwrap();
            part.remove(0).unwrap();
            assert_eq!(part.watermark().unwrap().get(), 1);
        },
        &[Control::SnapshotTrustsEnd, Control::SnapshotCountsBusy],
    );
}

/// Beside an assign, which makes every slot look finished: `Stale`, or of before.
#[test]
fn beside_an_assign() {
    check(
        "beside_an_assign",
        || {
            let window = Arc::new(Ring::new());
            let old = window.assign_owned(0);
            old.put_batch(&mut (0..2).map(|n| (n, n))).unwrap();
            let looker = thread::spawn(move || {
                let listed: Vec<_> = old.finished().map_or(vec![], |ranges| ranges.collect());
                assert!(listed.is_empty(), "{listed:?}");
                look(&old)
            });
            let new = window.assign_owned(7);
            let seen = looker.join().unwrap();
            assert!(seen == Err(SnapshotError::Stale) || seen == Ok((0, vec![])), "{seen:?}");
            assert_eq!(look(&new).unwrap(), (7, vec![]));
        },
        &[Control::SnapshotNoSecondLook],
    );
}

/// A restore beside a put of the same offset: sealed or admitted, one of the two.
#[test]
fn a_restore_beside_a_put() {
    check(
        "a_restore_beside_a_put",
        || {
            let bytes = {
                let window = Arc::new(Ring::new());
                let part = window.assign_owned(0);
                part.put_batch(&mut (0..2).map(|n| (n, n))).unwrap();
                part.remove(1).unwrap();
                let mut buffer = [0; 32];
                let taken = part.snapshot(&mut buffer).unwrap();
                buffer[..taken.len].to_vec()
            };
            let window = Arc::new(Ring::new());
            let part = window.assign_owned(0);
            let other = part.clone();
            let putter = thread::spawn(move || {
                other.put(0, 0).unwrap();
                other.put(1, 1).map_err(|error| error.kind())
            });
            let restored = part.restore(&Snapshot::parse(&bytes).unwrap()).unwrap();
            match putter.join().unwrap() {
                Ok(_) => assert_eq!(restored.sealed, 0),
                Err(kind) => assert_eq!((kind, restored.sealed), (PutErrorKind::Passed, 1)),
            }
            let left = 2 - restored.sealed;
            assert_eq!(part.take(4).unwrap().len() as u64, left);
            assert_eq!(part.remove_batch([0, 1]).unwrap().applied as u64, left);
            assert_eq!(part.watermark().unwrap().get(), 2);
            assert_eq!(window.count(), 0);
        },
        &[],
    );
}

/// Two restores of one snapshot: each offset is sealed by one of them.
#[test]
fn two_restores() {
    check(
        "two_restores",
        || {
            let bytes = {
                let window = Arc::new(Ring::new());
                let part = window.assign_owned(0);
                part.put_batch(&mut (0..2).map(|n| (n, n))).unwrap();
                part.remove(1).unwrap();
                let mut buffer = [0; 32];
                let taken = part.snapshot(&mut buffer).unwrap();
                buffer[..taken.len].to_vec()
            };
            let window = Arc::new(Ring::new());
            let part = window.assign_owned(0);
            let restore =
                move |part: &Part| part.restore(&Snapshot::parse(&bytes).unwrap()).unwrap().sealed;
            let (other, again) = (part.clone(), restore.clone());
            let restorer = thread::spawn(move || again(&other));
            assert_eq!(restore(&part) + restorer.join().unwrap(), 1);
            part.put(0, 0).unwrap();
            part.remove(0).unwrap();
            assert_eq!(part.watermark().unwrap().get(), 1);
        },
        &[Control::SealedByTwo],
    );
}
