//! What was measured, for people (a table, docs/performance.md) and for scripts (JSON).

use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;

use crate::Results;
use crate::plot::{Line, Plot};
use crate::race::{Costs, best_lock};

/// What is asked of the windows: times faster than the best lock-based peer.
struct Goal {
    key: &'static str,
    work: &'static str,
    /// Must, and goal.
    ring: Option<(f64, f64)>,
    skip: Option<(f64, f64)>,
}

const fn goal(
    key: &'static str,
    work: &'static str,
    ring: Option<(f64, f64)>,
    skip: Option<(f64, f64)>,
) -> Goal {
    Goal { key, work, ring, skip }
}

const GOALS: &[Goal] = &[
    goal("W1", "put 32, remove 1 at random", Some((3.0, 4.0)), Some((1.5, 2.0))),
    goal("W2x1", "puller, 1 worker", Some((2.5, 3.0)), Some((1.7, 2.7))),
    goal("W2x2", "puller, 2 workers", None, None),
    goal("W2x3", "puller, 3 workers", Some((2.5, 3.0)), Some((1.7, 2.7))),
    goal("W3a1", "take 1, commit; 1 thread", Some((1.9, 2.5)), Some((1.1, 1.3))),
    goal("W3a2", "take 1, commit; 2 threads", Some((2.0, 2.5)), Some((1.4, 2.3))),
    goal("W3b1", "take 32, commit; 1 thread", Some((2.1, 2.6)), Some((1.2, 1.6))),
    goal("W3b2", "take 32, commit; 2 threads", Some((3.5, 6.0)), Some((1.5, 3.5))),
    goal("W4old", "remove 32, the oldest", Some((1.8, 3.5)), Some((1.3, 1.6))),
    goal("W4rnd", "remove 32, a random batch", Some((1.8, 3.0)), Some((1.3, 1.6))),
    goal("W5", "puller, worker, reader", Some((4.0, 8.0)), Some((3.0, 5.0))),
    goal("W6x1", "begin and end a batch of 2; 1 thread", Some((2.0, 4.0)), None),
    goal("W6x2", "begin and end a batch of 2; 2 threads", Some((3.0, 6.0)), None),
    goal("W7rnd1k", "W1, 1,000 in flight", Some((3.0, 3.0)), Some((1.5, 2.0))),
    goal("W7rnd10k", "W1, 10,000 in flight", Some((3.0, 3.0)), Some((1.5, 2.0))),
    goal("W7rnd100k", "W1, 100,000 in flight", Some((3.0, 3.0)), Some((1.1, 1.4))),
    goal("W7rnd1M", "W1, 1,000,000 in flight", Some((3.0, 5.0)), Some((0.9, 1.2))),
    goal("W7rev1k", "fill 1,000, remove in reverse", None, None),
    goal("W7rev10k", "fill 10,000, remove in reverse", None, None),
    goal("W7rev100k", "fill 100,000, remove in reverse", None, None),
    goal("W7rev1M", "fill 1,000,000, remove in reverse", None, None),
    goal("W8s8", "W1, one offset in 8", Some((2.0, 3.0)), Some((0.4, 0.7))),
    goal("W8s100", "W1, one offset in 100", Some((2.0, 3.0)), Some((0.4, 0.7))),
    goal("W8s4096", "W1, one offset in 4096", Some((2.0, 3.0)), Some((0.4, 0.7))),
    goal("W9put50", "put of 8 among six threads, median", None, None),
    goal("W9put99", "the same, p99", None, None),
    goal("W9put999", "the same, p99.9", Some((10.0, 10.0)), Some((5.0, 10.0))),
    goal("W9putmax", "the same, longest", None, None),
    goal("W9take50", "take among six threads, median", None, None),
    goal("W9take99", "the same, p99", None, None),
    goal("W9take999", "the same, p99.9", Some((10.0, 10.0)), Some((5.0, 10.0))),
    goal("W9takemax", "the same, longest", None, None),
    goal("W10dense", "bytes a message: dense", None, None),
    goal("W10sparse2", "bytes a message: one offset in 2", None, None),
    goal("W10sparse8", "bytes a message: one offset in 8", None, None),
    goal("W10sparse32", "bytes a message: one offset in 32", None, None),
    goal("W10sparse100", "bytes a message: one offset in 100", None, None),
    goal("W10sparse4096", "bytes a message: one offset in 4096", None, None),
    goal("W10stuck", "bytes a finished message behind a stuck head", None, None),
];

/// "3.21x of 3, 4": the ratio, what it must be, the goal.
fn ratio(costs: &Costs, name: &str, asked: Option<(f64, f64)>) -> String {
    let (Some(cost), Some(lock)) = (costs.get(name), best_lock(costs)) else {
        return "-".into();
    };
    let ratio = lock / cost;
    match asked {
        None => format!("{ratio:.2}x"),
        Some((must, goal)) => {
            let verdict = match ratio {
                ratio if ratio >= goal => "goal",
                ratio if ratio >= must => "must",
                _ => "MISSED",
            };
            format!("{ratio:.2}x ({must}, {goal}) {verdict}")
        }
    }
}

fn cost(costs: &Costs, name: &str) -> String {
    match costs.get(name) {
        None => "-".into(),
        Some(cost) if *cost >= 10.0 => format!("{cost:.0}"),
        Some(cost) => format!("{cost:.1}"),
    }
}

/// What the work costs without a structure: a plain array where one thread does it.
fn floor(costs: &Costs) -> String {
    let array = costs.contains_key("array");
    if array { cost(costs, "array") } else { cost(costs, "floor") }
}

fn find(key: &str) -> Option<&'static Goal> {
    GOALS.iter().find(|goal| goal.key == key)
}

const COLUMNS: &str = "work        ring    skip    best lock  floor   ring to lock (must, goal)    skip to lock (must, goal)";

/// The head of the table on the terminal.
pub fn head() {
    println!("{COLUMNS}");
}

/// A row of the table on the terminal.
pub fn row(key: &str, costs: &Costs) {
    let lock = best_lock(costs).map_or("-".into(), |cost| match cost {
        cost if cost >= 10.0 => format!("{cost:.0}"),
        cost => format!("{cost:.1}"),
    });
    let (ring, skip) = find(key).map_or((None, None), |goal| (goal.ring, goal.skip));
    println!(
        "{key:<11} {:<7} {:<7} {lock:<10} {:<7} {:<28} {}",
        cost(costs, "ring"),
        cost(costs, "skip"),
        floor(costs),
        ratio(costs, "ring", ring),
        ratio(costs, "skip", skip),
    );
}

fn root(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Writes target/versus.json: by work and contestant, what a message cost.
pub fn json(results: &Results) -> io::Result<()> {
    let mut works = serde_json::Map::new();
    for (key, costs) in results {
        let mut work = serde_json::Map::new();
        for (name, cost) in costs {
            work.insert(name.clone(), (cost * 100.0).round().max(0.0).into());
        }
        for cost in work.values_mut() {
            *cost = (cost.as_f64().unwrap_or(0.0) / 100.0).into();
        }
        if let Some(lock) = best_lock(costs) {
            work.insert("best_lock".into(), ((lock * 100.0).round() / 100.0).into());
        }
        works.insert(key.clone(), work.into());
    }
    std::fs::create_dir_all(root("target"))?;
    let text = serde_json::to_string_pretty(&works).map_err(io::Error::other)?;
    std::fs::write(root("target/versus.json"), text + "\n")
}

/// The processor, as the system calls it, and how many there are.
fn machine() -> String {
    let processors = std::thread::available_parallelism().map_or(1, |n| n.get());
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let line = info.lines().find(|line| line.starts_with(name))?;
        line.split(": ").nth(1).map(str::to_owned)
    };
    let model = field("model name").unwrap_or_else(|| std::env::consts::ARCH.into());
    let family = field("cpu family").map_or(String::new(), |family| format!(" (family {family})"));
    format!("{model}{family}, {processors} processors, {}", std::env::consts::OS)
}

fn compiler() -> String {
    let version = std::process::Command::new("rustc").arg("--version").output();
    version
        .map_or_else(|_| "rustc".into(), |out| String::from_utf8_lossy(&out.stdout).trim().into())
}

const BEGIN: &str = "<!-- measured: written by `cargo bench --bench versus -- --report` -->";
const END: &str = "<!-- end of what is measured -->";

/// Writes the measured part of docs/performance.md, and the plots beside it.
pub fn write(results: &Results, quick: bool) -> io::Result<()> {
    let path = root("docs/performance.md");
    let text = std::fs::read_to_string(&path)?;
    let outside = text.split_once(BEGIN).and_then(|(before, rest)| {
        rest.split_once(END).map(|(_, after)| (before.to_owned(), after.to_owned()))
    });
    let (before, after) = outside.unwrap_or((text, String::new()));
    let measured = measured(results, quick);
    std::fs::write(path, format!("{before}{BEGIN}\n\n{measured}\n{END}{after}"))?;
    for (name, plot) in plots(results) {
        std::fs::write(root(&format!("docs/{name}.svg")), plot.svg())?;
    }
    Ok(())
}

fn measured(results: &Results, quick: bool) -> String {
    let mut out = String::new();
    let length = if quick { ", quick: short rounds" } else { "" };
    let (machine, compiler) = (machine(), compiler());
    let _ = writeln!(out, "{machine}; {compiler}{length}.\n");
    let _ = writeln!(
        out,
        "| key | work | ring | skip | best lock | floor | ring to lock | must, goal | skip to lock | must, goal |"
    );
    let _ = writeln!(out, "|---|---|--:|--:|--:|--:|--:|---|--:|---|");
    let asked = |asked: Option<(f64, f64)>, costs: &Costs, name: &str| {
        let Some((must, goal)) = asked else { return "".into() };
        let Some(ratio) = costs.get(name).and_then(|cost| best_lock(costs).map(|l| l / cost))
        else {
            return format!("{must}, {goal}: not measured");
        };
        let verdict = match ratio {
            ratio if ratio >= goal => "goal",
            ratio if ratio >= must => "must",
            _ => "**missed**",
        };
        format!("{must}, {goal}: {verdict}")
    };
    for (key, costs) in results {
        let Some(goal) = find(key) else { continue };
        let lock = best_lock(costs).unwrap_or(f64::NAN);
        let ratio = |name: &str| {
            costs.get(name).map_or("-".into(), |cost| match lock / cost {
                ratio if ratio.is_finite() => format!("{ratio:.2}"),
                _ => "-".into(),
            })
        };
        let _ = writeln!(
            out,
            "| {key} | {} | {} | {} | {lock:.0} | {} | {} | {} | {} | {} |",
            goal.work,
            cost(costs, "ring"),
            cost(costs, "skip"),
            floor(costs),
            ratio("ring"),
            asked(goal.ring, costs, "ring"),
            ratio("skip"),
            asked(goal.skip, costs, "skip"),
        );
    }
    let _ = writeln!(out, "\nAll contestants:\n");
    const NAMES: [&str; 12] = [
        "ring",
        "ring_shared",
        "skip",
        "skip_shared",
        "std_rwlock",
        "pl_rwlock",
        "std_mutex",
        "pl_mutex",
        "skipmap",
        "treeindex",
        "array",
        "floor",
    ];
    let _ = writeln!(out, "| key | {} |", NAMES.join(" | "));
    let _ = writeln!(out, "|---|{}", "--:|".repeat(NAMES.len()));
    for (key, costs) in results.iter().filter(|(key, _)| find(key).is_some()) {
        let row: Vec<String> = NAMES.iter().map(|name| cost(costs, name)).collect();
        let _ = writeln!(out, "| {key} | {} |", row.join(" | "));
    }
    out
}

fn plots(results: &Results) -> Vec<(&'static str, Plot)> {
    let value = |key: &str, name: &str| {
        let costs = &results.iter().find(|(other, _)| other == key)?.1;
        if name == "best_lock" { best_lock(costs) } else { costs.get(name).copied() }
    };
    let lines = |keys: &[&str]| {
        const LINES: [(&str, &str); 5] = [
            ("ring", "RingWindow"),
            ("skip", "SkipWindow"),
            ("best_lock", "best lock"),
            ("skipmap", "SkipMap"),
            ("treeindex", "TreeIndex"),
        ];
        let line = |&(name, label): &(&str, &'static str)| Line {
            label,
            values: keys.iter().map(|key| value(key, name)).collect(),
        };
        LINES.iter().map(line).collect::<Vec<_>>()
    };
    let plot = |title, unit, labels: &[&str], keys: &[&str]| Plot {
        title,
        unit,
        labels: labels.iter().map(|label| (*label).to_owned()).collect(),
        lines: lines(keys),
    };
    vec![
        (
            "performance-threads",
            plot(
                "A puller and its workers (W2)",
                "ns a message",
                &["1 worker", "2 workers", "3 workers"],
                &["W2x1", "W2x2", "W2x3"],
            ),
        ),
        (
            "performance-window",
            plot(
                "Removal at random, by messages in flight (W7)",
                "ns a message",
                &["1,000", "10,000", "100,000", "1,000,000"],
                &["W7rnd1k", "W7rnd10k", "W7rnd100k", "W7rnd1M"],
            ),
        ),
        (
            "performance-batch",
            plot(
                "Take and commit, by messages a take (W3)",
                "ns a message",
                &["1", "2", "4", "8", "16", "32"],
                &["batch1", "batch2", "batch4", "batch8", "batch16", "batch32"],
            ),
        ),
        (
            "performance-tail",
            plot(
                "A take among six threads on two processors (W9)",
                "ns a call",
                &["median", "p99", "p99.9", "longest"],
                &["W9take50", "W9take99", "W9take999", "W9takemax"],
            ),
        ),
    ]
}
