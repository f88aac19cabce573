//! The example `consume`, run as a program: what it prints, its exit status, what it refuses, and
//! that nothing is lost when it is killed.
#![cfg(all(feature = "std", unix, not(miri)))]

use std::fs;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::time::Duration;

use inflight::consumer::{FileStore, OffsetStore};
use serde::Deserialize;

/// The program, built like this test.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        // target/<profile>/deps/consume-...
        let test = std::env::current_exe().unwrap();
        let folder = test.parent().unwrap().parent().unwrap();
        let program = folder.join("examples").join("consume");
        // `cargo test` builds examples, `cargo test --test consume` does not.
        let profile = if folder.ends_with("release") { "release" } else { "test" };
        let target = folder.parent().unwrap();
        let built = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--example", "consume", "--profile", profile])
            .arg("--target-dir")
            .arg(target)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status();
        assert!(built.is_ok_and(|status| status.success()), "the example does not build");
        assert!(program.exists(), "{} is missing", program.display());
        program
    })
}

fn consume<I: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = I>) -> Command {
    let mut command = Command::new(program());
    command.args(args).stdin(Stdio::null());
    command
}

/// The last line of its stdout. Any other field is an error.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Summary {
    messages: u64,
    finished: u64,
    duplicates: u64,
    lost: u64,
    disordered: u64,
    retried: u64,
    panics: u64,
    seconds: f64,
    per_second: u64,
    partitions: Vec<PartitionSummary>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PartitionSummary {
    name: String,
    watermark: u64,
    end: u64,
}

fn summary(output: &Output) -> Summary {
    let stdout = String::from_utf8(output.stdout.clone()).unwrap();
    let last = stdout.lines().last().unwrap_or_default();
    serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// It ended well, having consumed everything.
fn complete(output: &Output) -> Summary {
    let summary = summary(output);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!((summary.finished, summary.lost), (summary.messages, 0));
    assert_eq!(summary.disordered, 0);
    for partition in &summary.partitions {
        assert_eq!(partition.watermark, partition.end, "{}", partition.name);
    }
    summary
}

fn run(command: &mut Command) -> Output {
    command.output().unwrap()
}

/// It refused to start: status 2, nothing on stdout, one sentence on stderr that has `what`.
fn refused(output: &Output, what: &str) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    assert!(stderr.starts_with("consume: ") && stderr.contains(what), "{stderr}");
}

#[test]
fn without_arguments_it_consumes_a_log_of_its_own_with_faults() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(consume::<&str>([]).env("TMPDIR", folder.path()));
    let summary = complete(&output);
    assert_eq!((summary.messages, summary.duplicates), (200_000, 0));
    assert!(summary.retried > 0 && summary.panics > 0);
    assert!(summary.seconds > 0.0 && summary.per_second > 0);
    assert_eq!(summary.partitions.len(), 4);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!stderr.contains("panicked"), "planted panics are quiet: {stderr}");
    // For people, before the last line.
    assert!(String::from_utf8_lossy(&output.stdout).lines().count() > 4);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "the temporary folder is gone");
}

#[test]
fn options_shape_the_run() {
    let args = "--messages 1003 --partitions 7 --workers 3 --batch 5 --fail-rate 0.2 \
                --panic-rate 0.05 --slow-rate 0.01 --seed 9 --json --quiet";
    let output = run(&mut consume(args.split_whitespace()));
    let first = complete(&output);
    assert_eq!((first.messages, first.partitions.len()), (1003, 7));
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 1, "nothing but JSON");
    assert!(output.stderr.is_empty(), "{output:?}");
    assert_eq!(first.partitions[6].name, "partition-6");
    let without = "--messages 500 --fail-rate 0 --panic-rate 0 --slow-rate 0 --json";
    let none = complete(&run(&mut consume(without.split_whitespace())));
    assert_eq!((none.retried, none.panics, none.duplicates), (0, 0, 0));
    let none = complete(&run(&mut consume(["--messages", "0", "--partitions", "1"])));
    assert_eq!(none.messages, 0);
}

#[test]
fn options_out_of_range_are_refused() {
    for args in [
        "--workers 0",
        "--batch 0",
        "--batch 1025",
        "--partitions 0",
        "--fail-rate 1",
        "--fail-rate -1",
        "--panic-rate nan",
        "--messages many",
        "--unknown",
    ] {
        let output = run(&mut consume(args.split_whitespace()));
        assert_eq!(output.status.code(), Some(2), "{args}: {output:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty());
    }
}

#[test]
fn files_are_partitions_and_lines_are_messages() {
    let folder = tempfile::tempdir().unwrap();
    let huge = "x".repeat(3 << 20);
    let binary = b"\xff\xfe\n\0\0\n\r\n".to_vec();
    let long: String = (0..20_000).map(|line| format!("line {line}\n")).collect();
    let files: [(&str, Vec<u8>, u64); 10] = [
        ("empty", vec![], 0),
        ("one", b"a\n".to_vec(), 1),
        ("torn", b"a\nb\nc".to_vec(), 3),
        ("blank", b"\n\n\n\n".to_vec(), 4),
        ("huge", format!("{huge}\nsmall\n{huge}").into_bytes(), 3),
        ("binary", binary, 3),
        ("from elsewhere", b"a\r\n\r\nb\r\n".to_vec(), 3),
        ("torn elsewhere", b"a\r\nb\r".to_vec(), 2),
        ("long", long.into_bytes(), 20_000),
        ("with space and ünïcode", b"1\n2\n".to_vec(), 2),
    ];
    let mut paths = Vec::new();
    for (name, bytes, _) in &files {
        paths.push(folder.path().join(name));
        fs::write(paths.last().unwrap(), bytes).unwrap();
    }
    let lines = files.iter().map(|(_, _, lines)| lines).sum::<u64>();
    for window in ["ring", "skip", "skip-sparse"] {
        let args = ["--window", window, "--batch", "7", "--"];
        let summary = complete(&run(consume(args).args(&paths)));
        assert_eq!(summary.messages, lines);
        let ends: Vec<_> = summary.partitions.iter().map(|partition| partition.end).collect();
        assert_eq!(ends, files.iter().map(|(_, bytes, _)| bytes.len() as u64).collect::<Vec<_>>());
        assert_eq!((summary.retried, summary.panics), (0, 0), "no faults unless asked for");
        for (partition, path) in summary.partitions.iter().zip(&paths) {
            assert_eq!(Path::new(&partition.name), fs::canonicalize(path).unwrap());
        }
        let faulty = ["--window", window, "--fail-rate", "0.1", "--panic-rate", "0.01", "--"];
        let summary = complete(&run(consume(faulty).args(&paths)));
        assert!(summary.retried > 0 && summary.panics > 0);
    }
}

#[test]
fn a_file_that_cannot_be_read_is_refused_and_nothing_is_touched() {
    let folder = tempfile::tempdir().unwrap();
    let good = folder.path().join("good");
    fs::write(&good, "a\nb\n").unwrap();
    let state = folder.path().join("state");
    let missing = folder.path().join("missing");
    let a_folder = folder.path().join("folder");
    fs::create_dir(&a_folder).unwrap();
    for bad in [&missing, &a_folder] {
        let output = run(consume(["--state"]).arg(&state).arg(&good).arg(bad));
        refused(&output, bad.to_str().unwrap());
        assert!(!state.exists(), "no state folder is made");
    }
    let output = run(consume(["--state"]).arg(&state).args([&good, &good]));
    refused(&output, "twice");
    assert!(!state.exists());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
}

#[test]
fn the_same_state_goes_on_and_other_inputs_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let (one, two) = (folder.path().join("one"), folder.path().join("two"));
    fs::write(&one, "a\nb\n").unwrap();
    fs::write(&two, "c\n").unwrap();
    let with = |files: &[&PathBuf]| run(consume(["--state"]).arg(&state).args(files));
    assert_eq!(complete(&with(&[&one, &two])).finished, 3);
    // Nothing is left to do, and nothing is done twice.
    let again = complete(&with(&[&one, &two]));
    assert_eq!((again.finished, again.duplicates, again.per_second), (3, 0, 0));
    // What was appended is.
    fs::OpenOptions::new().append(true).open(&two).unwrap().write_all(b"d\ne").unwrap();
    let more = complete(&with(&[&one, &two]));
    assert_eq!((more.finished, more.duplicates), (5, 0));
    for files in [&[&one][..], &[&two, &one], &[]] {
        refused(&with(files), "other inputs");
    }
    assert_eq!(complete(&with(&[&one, &two])).finished, 5);
    // A file that has become shorter than what was consumed of it.
    fs::write(&one, "a\n").unwrap();
    refused(&with(&[&one, &two]), "2 bytes");
    // Folders that are somebody else's.
    refused(&run(consume(["--state"]).arg(folder.path())), "not empty");
    refused(&run(consume(["--state"]).arg(&one)), one.to_str().unwrap());
}

/// Stored watermarks at the begin of a line, inside one and at its line feed: it goes on with the
/// first line that begins there or later.
#[test]
fn a_resume_goes_on_at_the_next_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "\nab\ncde\r\n\n\nlast").unwrap();
    let starts = [0, 1, 4, 9, 10, 11];
    let name = fs::canonicalize(&file).unwrap().into_os_string().into_string().unwrap();
    for window in ["ring", "skip", "skip-sparse"] {
        for stored in 0..=15 {
            let state = tempfile::tempdir().unwrap();
            fs::write(state.path().join("inputs"), format!("file {name:?}\n")).unwrap();
            let store = FileStore::open(state.path().join("offsets")).unwrap();
            store.publish(&[(&name, stored)]).unwrap();
            drop(store);
            let args = ["--json", "--quiet", "--batch", "1", "--window", window, "--state"];
            let output = run(consume(args).arg(state.path()).arg(&file));
            let summary = summary(&output);
            let above = starts.iter().filter(|start| **start >= stored).count() as u64;
            assert_eq!((summary.messages, summary.finished), (6, above), "from {stored}");
            // The ledger knows nothing of those that the store calls finished.
            assert_eq!(summary.lost, 6 - above);
            assert_eq!((summary.partitions[0].watermark, summary.partitions[0].end), (15, 15));
        }
    }
}

/// What is appended between two runs is consumed; what is appended to a last line without a line
/// feed belongs to that.
#[test]
fn a_file_that_grows_is_consumed_further() {
    let folder = tempfile::tempdir().unwrap();
    let (file, state) = (folder.path().join("file"), folder.path().join("state"));
    fs::write(&file, "").unwrap();
    let (mut lines, mut torn) = (0, false);
    let pieces = ["", "a\n", "", "\n\n", "b", "c", "\n", "d\r\ne", "\nf\n\n", "g", "g\ng"];
    for (round, piece) in pieces.iter().enumerate() {
        fs::OpenOptions::new()
            .append(true)
            .open(&file)
            .unwrap()
            .write_all(piece.as_bytes())
            .unwrap();
        lines += piece.lines().count() as u64 - u64::from(torn && !piece.is_empty());
        torn = if piece.is_empty() { torn } else { !piece.ends_with('\n') };
        let window = ["ring", "skip", "skip-sparse"][round % 3];
        let args = ["--window", window, "--state"];
        let summary = complete(&run(consume(args).arg(&state).arg(&file)));
        assert_eq!((summary.messages, summary.duplicates), (lines, 0), "{piece:?}");
        assert_eq!(summary.partitions[0].end, fs::metadata(&file).unwrap().len());
    }
}

/// The sum over many ledger records, more than are in memory at once, of lines of many lengths.
#[test]
fn a_long_ledger_is_judged_in_pieces() {
    let folder = tempfile::tempdir().unwrap();
    let (file, state) = (folder.path().join("file"), folder.path().join("state"));
    let text: String = (0..3_000).map(|line| format!("{}\n", "x".repeat(line % 41))).collect();
    fs::write(&file, text).unwrap();
    let go = || run(consume(["--batch", "1", "--json", "--state"]).arg(&state).arg(&file));
    assert_eq!(complete(&go()).messages, 3_000);
    // Every handling again, many times over.
    let ledger = state.join("ledger").join("0000");
    let once = fs::read(&ledger).unwrap();
    assert_eq!(once.len(), 3_000 * 16);
    fs::write(&ledger, once.repeat(400)).unwrap();
    assert_eq!(complete(&go()).duplicates, 399 * 3_000);
    // A handling of what is no line.
    let mut wrong = once.clone();
    wrong.extend_from_slice(&once[..16]);
    fs::write(&ledger, wrong).unwrap();
    assert_eq!(complete(&go()).duplicates, 1);
    fs::write(&file, fs::read_to_string(&file).unwrap().replacen('\n', "y", 40)).unwrap();
    let output = go();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("none begins there"), "{output:?}");
}

#[test]
fn a_damaged_offset_file_or_ledger_is_named_and_kept() {
    let folder = tempfile::tempdir().unwrap();
    let args = ["--messages", "1000", "--partitions", "1", "--state"];
    let go = || run(consume(args).arg(folder.path()));
    complete(&go());
    let offsets = folder.path().join("offsets").join("offsets");
    let sound = fs::read(&offsets).unwrap();
    fs::write(&offsets, &sound[..sound.len() - 3]).unwrap();
    refused(&go(), offsets.to_str().unwrap());
    assert_eq!(fs::read(&offsets).unwrap(), &sound[..sound.len() - 3]);
    fs::write(&offsets, &sound).unwrap();

    let ledger = folder.path().join("ledger").join("0000");
    let sound = fs::read(&ledger).unwrap();
    // A torn last record is cut off ...
    for torn in 1..16 {
        let mut bytes = sound.clone();
        bytes.extend_from_slice(&sound[..torn]);
        fs::write(&ledger, bytes).unwrap();
        complete(&go());
        assert_eq!(fs::read(&ledger).unwrap(), sound);
    }
    // ... and one with a wrong checksum; in the middle it is damage.
    let mut bytes = sound.clone();
    bytes.extend_from_slice(&[7; 16]);
    fs::write(&ledger, &bytes).unwrap();
    complete(&go());
    assert_eq!(fs::read(&ledger).unwrap(), sound);
    bytes.truncate(sound.len());
    bytes[20] ^= 1;
    fs::write(&ledger, &bytes).unwrap();
    refused(&go(), ledger.to_str().unwrap());
    assert_eq!(fs::read(&ledger).unwrap(), bytes);

    // A ledger that does not know of what the offsets call finished.
    fs::write(&ledger, &sound[..sound.len() / 32 * 16]).unwrap();
    let output = go();
    assert_eq!(output.status.code(), Some(1));
    assert!(summary(&output).lost > 0);
}

/// What the ledger of a partition of the embedded log says was handled, as the positions of lines:
/// records of first offset (8 bytes), count (3), kind (1, 1 = handled), checksum (4).
fn handled(state: &Path, partition: usize) -> Vec<u64> {
    let bytes = fs::read(state.join("ledger").join(format!("{partition:04}"))).unwrap_or_default();
    let mut offsets = Vec::new();
    for record in bytes.chunks_exact(16).filter(|record| record[11] == 1) {
        let first = u64::from_le_bytes(record[..8].try_into().unwrap());
        assert_eq!(first % WIDTH, 0, "a line begins there");
        let count = u32::from_le_bytes([record[8], record[9], record[10], 0]);
        offsets.extend((0..u64::from(count)).map(|line| first + line * WIDTH));
    }
    offsets.sort_unstable();
    offsets.dedup();
    offsets
}

/// Bytes of a line of the embedded log.
const WIDTH: u64 = 34;

/// What a restart will do again, exactly: handled, and not below the stored offset.
fn to_repeat(state: &Path, partitions: usize) -> u64 {
    let store = FileStore::open(state.join("offsets")).unwrap();
    let mut repeated = 0;
    for partition in 0..partitions {
        let stored = store.load(&format!("partition-{partition}")).unwrap().unwrap_or(0);
        let above = handled(state, partition).into_iter().filter(|offset| *offset >= stored);
        repeated += above.count() as u64;
    }
    repeated
}

/// The size of all ledgers: how far a run is, seen from outside.
fn written(state: &Path) -> u64 {
    let Ok(files) = fs::read_dir(state.join("ledger")) else { return 0 };
    files.flatten().filter_map(|file| Some(file.metadata().ok()?.len())).sum()
}

fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Case 36: killed at many instants, from the very start on, and started again: nothing is lost,
/// and no more is repeated than lay above the stored offsets.
#[test]
fn case_36_killed_and_started_again_it_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let args = "--messages 120000 --partitions 4 --workers 8 --fail-rate 0.02 --panic-rate 0.002 \
                --slow-rate 0.002 --batch 8 --json --quiet --state";
    let start = |round: usize| {
        let mut command = consume(args.split_whitespace());
        // A state is gone on with in whichever window.
        let window = ["ring", "skip", "skip-sparse"][round % 3];
        command
            .arg(&state)
            .args(["--window", window])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let mut bound = 0;
    let mut random = 0x1234_5678_9abc_def1_u64 ^ u64::from(std::process::id());
    let mut under_way = 0;
    for round in 0..12 {
        let mut child = start(round);
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        // Some by time, which hits the start; most by progress, which hits the work.
        if round % 4 == 0 {
            std::thread::sleep(Duration::from_micros(random % 20_000));
        } else {
            let until = written(&state) + random % 20_000;
            while written(&state) < until && child.try_wait().unwrap().is_none() {
                std::thread::yield_now();
            }
        }
        under_way += u32::from(child.try_wait().unwrap().is_none());
        kill(child);
        if state.join("offsets").exists() {
            bound += to_repeat(&state, 4);
        }
    }
    let output = start(12).wait_with_output().unwrap();
    let summary = complete(&output);
    assert_eq!((summary.messages, summary.lost), (120_000, 0));
    assert!(summary.duplicates <= bound, "{} duplicates, bound {bound}", summary.duplicates);
    assert!(under_way >= 6, "the kills hit a run that was under way only {under_way} times");
}

/// Case 36, two hundred times: fifty kills of a run that is under way, in each mode.
#[test]
fn case_36_killed_two_hundred_times_in_every_mode() {
    let mut random = 0x0dd_b1a5e_u64 ^ u64::from(std::process::id()) << 32;
    let mut below = |n: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % n
    };
    for mode in ["concurrent", "orderly", "keyed", "batched"] {
        let args = "--messages 30000 --partitions 3 --workers 4 --fail-rate 0.002 \
                    --panic-rate 0.0002 --slow-rate 0.001 --batch 8 --json --quiet --mode";
        let start = |state: &Path| {
            let mut command = consume(args.split_whitespace());
            command.args([mode, "--state"]).arg(state).stdout(Stdio::piped());
            command.spawn().unwrap()
        };
        let mut kills = 0;
        while kills < 50 {
            let folder = tempfile::tempdir().unwrap();
            let state = folder.path().join("state");
            // Until a run comes to its end, which it must be able to from wherever it was killed.
            let ended = loop {
                let mut child = start(&state);
                if kills < 50 {
                    let until = written(&state) + below(600);
                    while written(&state) < until && child.try_wait().unwrap().is_none() {
                        std::thread::yield_now();
                    }
                    if child.try_wait().unwrap().is_none() {
                        kill(child);
                        kills += 1;
                        continue;
                    }
                }
                break child.wait_with_output().unwrap();
            };
            assert_eq!(complete(&ended).messages, 30_000, "{mode}");
        }
    }
}

#[test]
fn every_mode_keeps_its_promise() {
    for mode in ["concurrent", "orderly", "keyed", "batched"] {
        for window in ["ring", "skip", "skip-sparse"] {
            let args = "--messages 20000 --fail-rate 0.01 --panic-rate 0.001 --batch 5 --window";
            let output = run(consume(args.split_whitespace()).args([window, "--mode", mode]));
            let summary = complete(&output);
            assert!(summary.retried > 0 && summary.panics > 0, "{mode}");
            assert_eq!((summary.messages, summary.duplicates), (20_000, 0), "{mode}");
        }
    }
}

/// The judge notices: a ledger whose records were exchanged.
#[test]
fn a_ledger_out_of_order_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let args =
        "--messages 100 --partitions 1 --batch 1 --fail-rate 0 --panic-rate 0 --json --state";
    let go = |mode: &str| {
        run(consume(args.split_whitespace()).arg(folder.path()).args(["--mode", mode]))
    };
    assert_eq!(complete(&go("orderly")).disordered, 0);
    let ledger = folder.path().join("ledger").join("0000");
    let mut records = fs::read(&ledger).unwrap();
    assert_eq!(records.len(), 100 * 16);
    records.rotate_left(16);
    fs::write(&ledger, &records).unwrap();
    let output = go("orderly");
    // The second line came before the first; what follows came after it.
    assert_eq!((output.status.code(), summary(&output).disordered), (Some(1), 1));
    assert_eq!(complete(&go("batched")).disordered, 0, "where there is no order");
    // Of one key: the first line is alone with its own, unless the log says otherwise.
    records.reverse();
    let lines: Vec<_> = records.chunks_exact(16).map(|r| r.iter().rev().copied()).collect();
    fs::write(&ledger, lines.into_iter().flatten().collect::<Vec<_>>()).unwrap();
    let keyed = summary(&go("keyed")).disordered;
    assert!(keyed > 0 && keyed < 100, "{keyed}");
}

/// Ctrl-C: what is in flight is finished, the rest is left, and the next run goes on without a
/// duplicate.
#[test]
fn an_interrupt_drains_and_says_that_something_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let args =
        ["--messages", "100000", "--slow-rate", "0.02", "--workers", "2", "--json", "--state"];
    let child = consume(args).arg(folder.path()).stdout(Stdio::piped()).spawn().unwrap();
    while written(folder.path()) == 0 {
        std::thread::yield_now();
    }
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(killed.unwrap().success());
    let output = child.wait_with_output().unwrap();
    let left = summary(&output);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert_eq!((left.lost, left.duplicates), (0, 0));
    assert!(left.finished > 0 && left.finished < 100_000);
    // Drained: everything that was handled is below the watermarks.
    let below = left.partitions.iter().map(|part| part.watermark);
    assert!(below.clone().all(|watermark| watermark % WIDTH == 0));
    assert_eq!(below.sum::<u64>(), left.finished * WIDTH);
    let fast = ["--messages", "100000", "--slow-rate", "0", "--json", "--state"];
    let rest = complete(&run(consume(fast).arg(folder.path())));
    assert_eq!((rest.finished, rest.duplicates), (100_000, 0));
}

/// A terminal of 80 columns and 24 rows, with a program on it.
struct Pty {
    child: Child,
    terminal: fs::File,
    /// What it was set to before the program began.
    before: libc::termios,
    shown: Vec<u8>,
}

fn settings(terminal: &fs::File) -> libc::termios {
    let mut settings = std::mem::MaybeUninit::uninit();
    // SAFETY: an open descriptor, and room for what is written.
    let got = unsafe { libc::tcgetattr(terminal.as_raw_fd(), settings.as_mut_ptr()) };
    assert_eq!(got, 0);
    // SAFETY: written, since that succeeded.
    unsafe { settings.assume_init() }
}

impl Pty {
    fn spawn(command: &mut Command) -> Self {
        let (mut ours, mut theirs) = (-1, -1);
        let size = libc::winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        let (name, modes, size) = (null_mut(), null_mut(), (&raw const size).cast_mut());
        // SAFETY: room for both descriptors, and a size to read; the rest may be null.
        let opened = unsafe { libc::openpty(&mut ours, &mut theirs, name, modes, size) };
        assert_eq!(opened, 0);
        // SAFETY: just opened, and owned by nobody else.
        let (terminal, theirs) =
            unsafe { (fs::File::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs)) };
        let before = settings(&terminal);
        command.stdin(theirs.try_clone().unwrap()).stdout(theirs).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        // It has the other descriptors, which must not keep the terminal open.
        command.stdin(Stdio::null()).stdout(Stdio::null());
        Self { child, terminal, before, shown: Vec::new() }
    }

    /// Reads until it shows that, or is at its end.
    fn until(&mut self, what: &str) {
        let mut some = [0; 4096];
        while !self.text().contains(what) {
            // When the program is gone, reading fails.
            let Ok(n @ 1..) = self.terminal.read(&mut some) else { break };
            self.shown.extend_from_slice(&some[..n]);
        }
        assert!(self.text().contains(what), "never showed {what:?}: {}", self.text());
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.shown).into_owned()
    }

    /// Reads to the end: the exit status and what was shown last. The terminal is as it was.
    fn end(mut self) -> (Option<i32>, String) {
        self.until(LEFT);
        let mut rest = [0; 4096];
        while let Ok(n @ 1..) = self.terminal.read(&mut rest) {
            self.shown.extend_from_slice(&rest[..n]);
        }
        let status = self.child.wait().unwrap();
        let text = self.text();
        let (_, after) = text.rsplit_once(LEFT).unwrap();
        assert!(text.contains(ENTERED) && !after.contains(ENTERED));
        assert!(after.contains("\x1b[?25h") || !text.contains("\x1b[?25l"), "the cursor is hidden");
        let (before, now) = (self.before, settings(&self.terminal));
        let modes = |of: &libc::termios| (of.c_iflag, of.c_oflag, of.c_lflag);
        assert_eq!(modes(&before), modes(&now), "raw still");
        (status.code(), after.to_owned())
    }
}

/// The other screen of a terminal.
const ENTERED: &str = "\x1b[?1049h";
const LEFT: &str = "\x1b[?1049l";

/// At least ten seconds long, while what is in flight at one time is done in half of one.
const SLOWLY: [&str; 7] =
    ["--view", "--messages", "400000", "--slow-rate", "0.01", "--workers", "2"];

#[test]
fn the_view_shows_the_windows_until_a_key_ends_it() {
    for key in ["q", "\x03"] {
        let mut pty = Pty::spawn(&mut consume(SLOWLY));
        pty.until("q: end");
        pty.until("partition-0");
        pty.until("\u{2591}");
        pty.terminal.write_all(key.as_bytes()).unwrap();
        let (status, after) = pty.end();
        // As when it is interrupted without the view: drained, and the verdict on the screen.
        assert_eq!(status, Some(3));
        let last = after.trim_end().lines().last().unwrap();
        let last: Summary = serde_json::from_str(last).unwrap();
        assert_eq!((last.lost, last.duplicates), (0, 0));
        assert!(last.finished > 0 && last.finished < 400_000);
    }
}

#[test]
fn the_view_ends_with_the_log() {
    let mut pty = Pty::spawn(&mut consume(["--view", "--messages", "2000"]));
    pty.until(ENTERED);
    let (status, after) = pty.end();
    assert_eq!(status, Some(0), "{after}");
    assert!(after.contains("2000 of 2000 messages handled"));
}

#[test]
fn signals_give_the_terminal_back() {
    for signal in ["-INT", "-TERM"] {
        let mut pty = Pty::spawn(&mut consume(SLOWLY));
        pty.until("q: end");
        let kill = || Command::new("kill").args([signal, &pty.child.id().to_string()]).status();
        assert!(kill().unwrap().success());
        assert_eq!(pty.end().0, Some(3));
    }
}

#[test]
fn a_view_without_a_terminal_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let output = run(consume(["--view", "--state"]).arg(&state));
    refused(&output, "--view draws on a terminal, and stdout is none");
    assert!(!state.exists());
    for other in ["--json", "--quiet"] {
        let output = run(&mut consume(["--view", other]));
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(stderr.contains("cannot be used with"), "{stderr}");
    }
}
