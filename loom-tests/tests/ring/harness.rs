//! What every model stands on: running it both ways, its controls, and the tokens it counts.
//!
//! A model is a function that loom calls once for each schedule. It is run *plain*, which finds
//! weak orderings, and with loads and stores as read-modify-writes (*rmw*), which finds every
//! schedule: loom keeps one last access per object, so it never tries an early load against a
//! later compare-exchange of the same object, which is how most of the core looks.
//!
//! A model says which branches it is about, and must be seen to reach each of them; and which
//! weakenings of the core (controls) it notices: each is switched on and must make it fail.
//!
//! No model has a thread that only watches: what is observed is observed by the workers.

use std::cell::RefCell;
use std::panic;
use std::process::{self, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use inflight::model::{Branch, Control, clear_hits, hits, set_control, set_rmw};
use inflight::{Assignment, RingWindow, Window};

/// One model, its claims and its controls.
pub struct Model {
    pub name: &'static str,
    /// What it checks, for the table in `docs/verification.md`.
    pub about: &'static str,
    /// Invariants of the design, by number.
    pub invariants: &'static str,
    /// Preemptions that loom tries in the default run.
    pub bound: usize,
    /// In the plain run, where that is one too many; the last counts.
    pub plain: &'static [usize],
    /// Branches that some schedule must reach.
    pub reaches: &'static [Branch],
    /// Weakenings that must make it fail.
    pub controls: &'static [Control],
    pub body: fn(),
}

/// The models of one file: a constant `MODELS` and a test for each.
macro_rules! models {
    ($($name:ident: $about:literal, $invariants:literal, $bound:literal $(/ $plain:literal)?,
       [$($branch:ident),*], [$($control:ident),*];)*) => {
        pub const MODELS: &[$crate::harness::Model] = &[$($crate::harness::Model {
            name: stringify!($name),
            about: $about,
            invariants: $invariants,
            bound: $bound,
            plain: &[$bound $(, $plain)?],
            reaches: &[$(inflight::model::Branch::$branch),*],
            controls: &[$(inflight::model::Control::$control),*],
            body: $name,
        }),*];

        mod model {
            $(#[test]
            fn $name() {
                let test = concat!(module_path!(), "::", stringify!($name));
                let test = test.split_once("::").map_or(test, |(_, test)| test);
                $crate::harness::check(super::MODELS, test, stringify!($name));
            })*
        }
    };
}
pub(crate) use models;

/// How a run of all schedules ended.
struct Run {
    executions: usize,
    seconds: f64,
    /// What the first failing execution said.
    failure: Option<String>,
    reached: Vec<String>,
}

std::thread_local! {
    static LEDGER: RefCell<Vec<Entry>> = const { RefCell::new(Vec::new()) };
}

/// Runs a model of `models` by name: both ways, then with each control.
pub fn check(models: &'static [Model], test: &str, name: &str) {
    let model = models.iter().find(|model| model.name == name).expect("in the table");
    if let Ok(how) = std::env::var(HOW) {
        let (way, control) = how.split_once(' ').expect("a way and a control");
        let mut controls = Control::ALL.iter().chain(Control::SKIP).chain(Control::LINEAR);
        let known = controls.find(|one| format!("{one:?}") == control);
        assert!(known.is_some() || control == "none", "{control} is not in the list");
        run_here(model, way == "rmw", known.copied());
    }
    let plain = run(test, "plain", None);
    let rmw = run(test, "rmw", None);
    for (way, run) in [("plain", &plain), ("rmw", &rmw)] {
        if let Some(failure) = &run.failure {
            panic!("{name} ({way}), execution {}: {failure}", run.executions);
        }
    }
    for branch in model.reaches {
        let branch = format!("{branch:?}");
        let reached = plain.reached.contains(&branch) || rmw.reached.contains(&branch);
        assert!(reached, "{name}: never reached {branch}");
    }
    let mut caught = Vec::new();
    for control in model.controls {
        let ways = ["plain", "rmw"].map(|way| (way, run(test, way, Some(*control))));
        let mut found = Vec::new();
        for (way, run) in &ways {
            if let Some(failure) = &run.failure {
                println!("{name}, {control:?}, {way}, execution {}: {failure}", run.executions);
                found.push(format!("{way} {}", run.executions));
            }
        }
        assert!(
            !found.is_empty(),
            "{name} passes although weakened by {control:?} ({} and {} executions)",
            ways[0].1.executions,
            ways[1].1.executions,
        );
        caught.push(format!("{control:?} ({})", found.join(", ")));
    }
    println!(
        "| `{name}` | {} | {} | {} | {} / {} | {:.1} / {:.1} | {} |",
        model.about,
        model.invariants,
        ["plain", "rmw"]
            .map(|way| bound(model, way).map_or("none".into(), |bound| bound.to_string()))
            .join(" / "),
        plain.executions,
        rmw.executions,
        plain.seconds,
        rmw.seconds,
        caught.join("; "),
    );
}

/// The preemption bound; none in the full run.
fn bound(model: &Model, way: &str) -> Option<usize> {
    match std::env::var("INFLIGHT_LOOM") {
        Ok(how) if how == "full" => None,
        _ if way == "plain" => model.plain.last().copied(),
        _ => Some(model.bound),
    }
}

/// Executions after which the default run of a model is cut.
const MOST: usize = 20_000;

/// Tells a process which run of its test it is for.
const HOW: &str = "INFLIGHT_LOOM_RUN";

/// Runs all schedules of the model of `test` in a process of its own.
///
/// The first failure ends that process, without unwinding: loom would unwind the model's other
/// threads outside of the execution, where dropping a lease is one more failure.
fn run(test: &str, way: &str, control: Option<Control>) -> Run {
    let control = control.map_or("none".into(), |control| format!("{control:?}"));
    let itself = std::env::current_exe().expect("the test itself");
    let output = Command::new(itself)
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(HOW, format!("{way} {control}"))
        .output()
        .expect("the test itself runs");
    let said = String::from_utf8_lossy(&output.stdout);
    let Some(report) = said.lines().find_map(|line| line.split_once(MARK)) else {
        panic!("{test} ({way}, {control}) does not report: {:?}\n{said}", output.status);
    };
    let mut fields = report.1.splitn(4, '\t');
    let mut field = || fields.next().expect("four fields");
    let executions = field().parse().expect("a number");
    let seconds = field().parse().expect("a number");
    let reached = field().split(' ').map(String::from).collect();
    let failure = Some(field().to_string()).filter(|failure| !failure.is_empty());
    Run { executions, seconds, failure, reached }
}

const MARK: &str = "report of the run\t";

/// Runs all schedules of the model, says how it went, and ends the process.
fn run_here(model: &'static Model, rmw: bool, control: Option<Control>) -> ! {
    static EXECUTIONS: AtomicUsize = AtomicUsize::new(0);
    let started = Instant::now();
    let report = move |failure: &str| -> ! {
        let branches = Branch::ALL.iter().chain(Branch::SKIP);
        let reached = branches.filter(|branch| hits(**branch) > 0);
        let reached: Vec<_> = reached.map(|branch| format!("{branch:?}")).collect();
        let seconds = started.elapsed().as_secs_f64();
        let executions = EXECUTIONS.load(Relaxed);
        println!("{MARK}{executions}\t{seconds}\t{}\t{failure}", reached.join(" "));
        process::exit(0)
    };
    panic::set_hook(Box::new(move |info| {
        let payload = info.payload();
        let said = match payload.downcast_ref::<String>() {
            Some(said) => said,
            None => payload.downcast_ref::<&str>().copied().unwrap_or("no message"),
        };
        let said = said.replace('\n', ",");
        let place = info.location().map(|at| format!("{}:{}", at.file(), at.line()));
        report(&format!("{said} ({})", place.unwrap_or_default()))
    }));
    set_control(control);
    set_rmw(rmw);
    clear_hits();
    let mut builder = loom::model::Builder::new();
    let bound = bound(model, if rmw { "rmw" } else { "plain" });
    builder.preemption_bound = bound;
    // The default run is for every change: what a model has beyond this is for the full run.
    builder.max_permutations = bound.map(|_| MOST);
    builder.max_branches = 10_000;
    builder.check(|| {
        EXECUTIONS.fetch_add(1, Relaxed);
        LEDGER.with_borrow_mut(Vec::clear);
        #[cfg(feature = "alloc")]
        inflight::model::forget_all();
        (model.body)();
    });
    report("")
}

// --- tokens ---

/// What became of one message, kept apart from the code under test.
#[derive(Clone, Copy, Default)]
struct Entry {
    dropped: bool,
    clones: usize,
}

/// A message: its ledger knows at once when it is dropped twice, and at the end when it was not
/// dropped at all.
#[derive(Debug)]
pub struct Token {
    id: usize,
    original: bool,
}

impl Token {
    /// A new message. All threads of a model run on one thread of the system, so the ledger
    /// needs no synchronisation that would hide a missing one.
    pub fn new() -> Self {
        LEDGER.with_borrow_mut(|ledger| {
            ledger.push(Entry::default());
            Self { id: ledger.len() - 1, original: true }
        })
    }

    /// Which message.
    pub fn id(&self) -> usize {
        let alive = LEDGER.with_borrow(|ledger| !ledger[self.id].dropped || !self.original);
        assert!(alive, "message {} is used after its drop", self.id);
        self.id
    }
}

impl Clone for Token {
    fn clone(&self) -> Self {
        let id = self.id();
        LEDGER.with_borrow_mut(|ledger| ledger[id].clones += 1);
        Self { id, original: false }
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        LEDGER.with_borrow_mut(|ledger| {
            let entry = &mut ledger[self.id];
            if self.original {
                assert!(!entry.dropped, "message {} is dropped twice", self.id);
                entry.dropped = true;
            } else {
                assert!(entry.clones > 0, "a clone of message {} is dropped twice", self.id);
                entry.clones -= 1;
            }
        });
    }
}

/// How many messages were made and not dropped, and how many clones of them are left.
pub fn alive() -> (usize, usize) {
    LEDGER.with_borrow(|ledger| {
        let messages = ledger.iter().filter(|entry| !entry.dropped).count();
        (messages, ledger.iter().map(|entry| entry.clones).sum())
    })
}

// --- windows ---

pub type Ring<const N: usize> = RingWindow<Token, N>;
pub type Part<const N: usize> = Assignment<Arc<Ring<N>>>;

/// A window for one putter, assigned at offset 0.
pub fn ring<const N: usize>() -> (Arc<Ring<N>>, Part<N>) {
    let window = Arc::new(RingWindow::new());
    let part = window.assign_owned(0);
    (window, part)
}

/// A window for several putters, assigned at offset 0.
pub fn ring_with_callers_seal<const N: usize>() -> (Arc<Ring<N>>, Part<N>) {
    let window = Arc::new(RingWindow::with_callers_seal());
    let part = window.assign_owned(0);
    (window, part)
}

/// Puts messages at these offsets, each of one byte.
pub fn put<const N: usize>(part: &Part<N>, offsets: impl IntoIterator<Item = u64>) {
    for offset in offsets {
        part.put_sized(offset, 1, Token::new()).expect("there is room");
    }
}

/// Runs two workers beside each other, the second on the model's main thread.
pub fn both<A: 'static, B>(
    first: impl FnOnce() -> A + 'static,
    second: impl FnOnce() -> B,
) -> (A, B) {
    let first = loom::thread::spawn(first);
    let second = second();
    (first.join().expect("reported before"), second)
}

/// Runs three workers beside each other, the last on the model's main thread.
pub fn three<A: 'static, B: 'static, C>(
    first: impl FnOnce() -> A + 'static,
    second: impl FnOnce() -> B + 'static,
    third: impl FnOnce() -> C,
) -> (A, B, C) {
    let first = loom::thread::spawn(first);
    let second = loom::thread::spawn(second);
    let third = third();
    (first.join().expect("reported before"), second.join().expect("reported before"), third)
}

/// All calls have returned: the watermark is at `next` without a slide and after one, and what
/// the counters say is what is unfinished.
#[track_caller]
pub fn settled<const N: usize>(part: &Part<N>, next: u64, unfinished: usize) {
    assert_eq!(part.watermark().expect("in force").get(), next, "watermark without a slide");
    slid(part, next, unfinished);
}

/// As [`settled`], where a gap may have become sealable since the last slide.
#[track_caller]
pub fn slid<const N: usize>(part: &Part<N>, next: u64, unfinished: usize) {
    assert_eq!(part.min_offset().expect("in force").get(), next, "watermark after a slide");
    assert_eq!(part.window().count(), unfinished, "count");
    assert_eq!(part.window().bytes(), unfinished as u64, "bytes");
}

/// The end of a model: everything is dropped, each message exactly once.
#[track_caller]
pub fn ended<const N: usize>(window: Arc<Ring<N>>, part: Part<N>) {
    drop(part);
    assert_eq!(Arc::strong_count(&window), 1, "a lease or handle is left");
    drop(window);
    assert_eq!(alive(), (0, 0), "messages and clones left");
}
