//! Instructions of the hot calls, counted by callgrind: numbers that are the same in every run, on
//! a busy machine too.
//!
//! ```text
//! cargo bench --bench instructions               prints them
//! cargo bench --bench instructions -- --check    fails when one has grown by more than 5 %
//! cargo bench --bench instructions -- --write    writes benches/instructions.txt
//! ```
//!
//! Without valgrind it says so, and `--check` fails. The numbers are those of one compiler and one
//! instruction set; the file names them, and with others `--check` compares nothing.

mod peers;

use std::fmt::Write as _;
use std::hint::black_box;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use peers::{Contestant, Pool, ring, skip};

/// Calls of each case that are counted.
const ROUNDS: u64 = 640;
/// Messages in flight beside those of the call.
const STANDING: u64 = 256;
/// What a number may grow by before `--check` fails.
const TOLERANCE: f64 = 1.05;
/// Names the case that a child counts.
const CASE: &str = "INFLIGHT_INSTRUCTIONS_CASE";

const CALLS: [&str; 5] = ["put", "take", "commit", "remove", "watermark"];

/// The call that is counted: callgrind counts from here to the return.
#[inline(never)]
fn counted_call<R>(call: impl FnOnce() -> R) -> R {
    call()
}

/// Makes the call so many times, each time with `n` messages.
fn run(contestant: &impl Contestant, call: &str, n: usize) {
    let pool = Pool::new();
    let mut next = 0;
    let mut offsets = |n: u64| {
        next += n;
        (next - n..next).collect::<Vec<_>>()
    };
    let mut messages = pool.messages((STANDING + ROUNDS * n as u64) as usize);
    contestant.put(&offsets(STANDING), &mut messages);
    let mut oldest = 0;
    for _ in 0..ROUNDS {
        let new = offsets(n as u64);
        if call == "put" {
            counted_call(|| contestant.put(&new, &mut messages));
        } else {
            contestant.put(&new, &mut messages);
        }
        match call {
            "remove" => {
                let old: Vec<u64> = (oldest..oldest + n as u64).collect();
                black_box(counted_call(|| match n {
                    1 => contestant.remove(old[0]),
                    _ => contestant.remove_batch(&old),
                }));
                oldest += n as u64;
            }
            "take" => {
                let lease = counted_call(|| contestant.take(n));
                black_box(contestant.commit(lease.expect("messages are waiting")));
            }
            "watermark" => {
                black_box(counted_call(|| contestant.watermark()));
                let lease = contestant.take(n);
                black_box(contestant.commit(lease.expect("messages are waiting")));
            }
            _ => {
                let lease = contestant.take(n).expect("messages are waiting");
                if call == "commit" {
                    black_box(counted_call(|| contestant.commit(lease)));
                } else {
                    black_box(contestant.commit(lease));
                }
            }
        }
    }
}

/// All cases: window, call, messages.
fn cases() -> Vec<(&'static str, &'static str, usize)> {
    let mut cases = Vec::new();
    for window in ["ring", "skip"] {
        for call in CALLS {
            cases.push((window, call, 1));
            if call != "watermark" {
                cases.push((window, call, 32));
            }
        }
    }
    cases
}

fn name((window, call, n): (&str, &str, usize)) -> String {
    format!("{window} {call} {n}")
}

/// Runs a case in a child under callgrind: instructions of one call.
fn count(case: &str) -> Option<u64> {
    let out = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .args(["--collect-atstart=no", "--toggle-collect=*counted_call*"])
        .arg(std::env::current_exe().ok()?)
        .env(CASE, case)
        .stdin(Stdio::null())
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&out.stderr);
    let line = text.lines().find(|line| line.contains("Collected :"))?;
    let total: u64 = line.rsplit(':').next()?.trim().parse().ok()?;
    Some((total + ROUNDS / 2) / ROUNDS)
}

fn compiler() -> String {
    let out = Command::new("rustc").arg("--version").output();
    let version = out.map(|out| String::from_utf8_lossy(&out.stdout).trim().to_owned());
    format!("{}, {}", version.unwrap_or_else(|_| "rustc".into()), std::env::consts::ARCH)
}

fn main() -> ExitCode {
    if let Ok(case) = std::env::var(CASE) {
        let Some(&(window, call, n)) = cases().iter().find(|&&known| name(known) == case) else {
            return ExitCode::FAILURE;
        };
        match window {
            "ring" => run(&ring::<1024>(), call, n),
            _ => run(&skip(), call, n),
        }
        return ExitCode::SUCCESS;
    }
    let asked = |flag: &str| std::env::args().any(|argument| argument == flag);
    let (check, write) = (asked("--check"), asked("--write"));
    let valgrind = Command::new("valgrind").arg("--version").stdout(Stdio::null()).status();
    if !valgrind.is_ok_and(|status| status.success()) {
        println!("instructions: valgrind is not installed");
        return if check { ExitCode::FAILURE } else { ExitCode::SUCCESS };
    }
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("benches/instructions.txt");
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    let compiler = compiler();
    let comparable = kept.lines().next().is_some_and(|line| line.ends_with(&compiler));
    let before = |case: &str| -> Option<u64> {
        let line = kept.lines().find(|line| line.starts_with(case))?;
        line[case.len()..].trim().parse().ok()
    };
    let mut text = format!("# Instructions of one call, and its messages; {compiler}\n");
    let mut grown = 0;
    for case in cases() {
        let case = name(case);
        let Some(now) = count(&case) else {
            println!("{case}: callgrind failed");
            return ExitCode::FAILURE;
        };
        let _ = writeln!(text, "{case:<20} {now:>6}");
        match before(&case).filter(|_| comparable) {
            Some(before) => {
                let more = now as f64 / before as f64;
                let verdict = if more > TOLERANCE { "GROWN" } else { "" };
                grown += usize::from(more > TOLERANCE);
                println!(
                    "{case:<20} {now:>6}  was {before:>6}  {:+.1} % {verdict}",
                    more * 100.0 - 100.0
                );
            }
            None => println!("{case:<20} {now:>6}"),
        }
    }
    if write && std::fs::write(&path, text).is_err() {
        return ExitCode::FAILURE;
    }
    if check && !comparable {
        println!("instructions: benches/instructions.txt is of another compiler; not compared");
    }
    if check && grown > 0 {
        println!("instructions: {grown} grown by more than 5 %");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
