//! The main job on one machine: consumes files, or a log that it makes itself, with a pool of
//! workers that fail, panic and dawdle on demand, and proves from a ledger that nothing was lost.
//!
//! ```text
//! cargo run --release --example consume
//! cargo run --release --example consume -- /var/log/syslog /var/log/dpkg.log
//! cargo run --release --example consume -- --mode orderly                    # or keyed, or batched
//! cargo run --release --example consume -- --view                            # the windows, as they slide
//! cargo run --release --example consume -- --state run --messages 1000000   # kill -9 it, and again
//! ```
//!
//! The last line of stdout is a JSON object. Exit status: 0 when nothing was lost, the order was kept, and
//! every partition is consumed to its end; 1 when not; 2 when it could not start (a file that cannot be
//! read, a state folder of other inputs); 3 when it was interrupted with something left.

mod args;
mod display;
mod faults;
mod judge;
mod ledger;
mod log;
mod screen;
mod state;
mod view;

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use inflight::consumer::{
    Backoff, Batch, Consumer, FileStore, Limits, OffsetStore, Ordered, Outcome, Verdict,
};
use inflight::{RingWindow, SkipWindow};

use args::{Args, Kind, Mode};
use faults::{Fate, Faults};
use ledger::{Ledgers, What};
use log::{Line, Log};
use screen::Screen;
use state::State;

/// What went wrong, in a sentence.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Messages of one partition in flight.
const COUNT: usize = 4096;
/// Messages from a partition's watermark to its end in the bounded window.
const SPAN: usize = 2 * COUNT;
/// Bytes from a partition's stored watermark to its end: what a kill makes be handled again, at
/// most.
const REPLAY: u64 = 4 << 20;
/// How long an interrupted run waits for what is in flight.
const DRAIN: Duration = Duration::from_secs(10);
/// How long a partition waits in order after a failure or panic: the shortest there is.
const SUSPENSION: Duration = Duration::from_millis(10);
/// How often the progress is drawn.
const FRAME: Duration = Duration::from_millis(100);

fn main() -> ExitCode {
    let args = Args::parse();
    faults::silence_planted_panics();
    let (failure, status) = match Job::prepare(&args) {
        Err(failure) => (failure, 2),
        Ok(job) => match job.run(&args) {
            Ok(status) => return ExitCode::from(status),
            Err(failure) => (failure, 1),
        },
    };
    eprintln!("consume: {failure}");
    ExitCode::from(status)
}

/// Everything that is needed to begin.
struct Job {
    state: State,
    log: Arc<Log>,
    store: Arc<FileStore>,
    ledgers: Arc<Ledgers>,
    /// Handlings of earlier runs.
    before: u64,
}

impl Job {
    /// Opens inputs and state. Nothing is made before all files named are known to be readable.
    fn prepare(args: &Args) -> Result<Self, Failure> {
        if args.view {
            screen::check()?;
        }
        let (state, log) = if args.files.is_empty() {
            let state = State::open(args.state.as_deref(), &args.embedded_identity())?;
            let log = Log::embedded(&state.folder.join("log"), args)?;
            (state, log)
        } else {
            let log = Log::open(&args.files)?;
            (State::open(args.state.as_deref(), &log.identity())?, log)
        };
        let store = FileStore::open(state.folder.join("offsets"))?;
        for partition in log.partitions() {
            let stored = store.load(&partition.name)?.unwrap_or(0);
            if stored > partition.len {
                let (name, len) = (&partition.name, partition.len);
                return Err(format!("{name} has {len} bytes, but {stored} were consumed").into());
            }
        }
        let names = log.partitions().iter().map(|partition| partition.name.clone()).collect();
        let (ledgers, before) = Ledgers::open(&state.ledger(), names)?;
        Ok(Self { state, log: log.into(), store: store.into(), ledgers: ledgers.into(), before })
    }

    /// Consumes, judges, prints; the exit status.
    fn run(self, args: &Args) -> Result<u8, Failure> {
        let Self { state, log, store, ledgers, before } = self;
        let interrupted = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&interrupted);
        ctrlc::set_handler(move || {
            // A second time: at once.
            if seen.swap(true, Ordering::Relaxed) {
                end_at_once();
            }
        })?;

        let started = Instant::now();
        let written = Arc::clone(&ledgers);
        let faults = args.faults();
        let mode = args.mode;
        let limits = Limits::default().count(COUNT).replay(REPLAY);
        let consumer = Consumer::builder(Arc::clone(&log), Arc::clone(&store))
            .workers(args.workers)
            .batch(args.batch)
            .pull_batch(512)
            .backoff(Backoff::new(Duration::from_millis(1), Duration::from_millis(100)));
        let handler = move |batch: &Batch<Line>| handle(batch, mode, &faults, &written);
        let consumer = match args.mode {
            Mode::Concurrent => consumer.concurrent(handler),
            Mode::Keyed => consumer.keyed(Line::key, handler),
            Mode::Batched => consumer.batched(handler),
            Mode::Orderly => {
                consumer.suspend_for(SUSPENSION).orderly(move |batch: &Batch<Line>| {
                    match handler(batch) {
                        Outcome::Done => Ordered::Success,
                        _ => Ordered::Suspend(None),
                    }
                })
            }
        };
        let unbounded = limits.span(u64::MAX);
        let consumer = match args.window {
            Kind::Ring => consumer
                .limits(limits.span(SPAN as u64))
                .window(|_| RingWindow::<_, SPAN>::boxed_numbered())
                .start(),
            Kind::Skip => {
                consumer.limits(unbounded).window(|_| Box::new(SkipWindow::numbered())).start()
            }
            Kind::SkipSparse => {
                consumer.limits(unbounded).window(|_| Box::new(SkipWindow::new())).start()
            }
        }?;

        let mut screen = args.view.then(Screen::open).transpose()?;
        let mut display = display::Display::new(&log, args.quiet || args.view);
        let mut caught_up = false;
        while !caught_up && !interrupted.load(Ordering::Relaxed) {
            if let Some(failure) = ledgers.failure() {
                return Err(format!("the ledger could not be written: {failure}").into());
            }
            caught_up = consumer.wait_caught_up(FRAME);
            display.draw(&consumer.progress());
            if let Some(screen) = &mut screen {
                screen.draw(&consumer, false)?;
                if screen.asks_to_end()? {
                    interrupted.store(true, Ordering::Relaxed);
                }
            }
        }
        if !caught_up {
            drain(&consumer, screen.as_mut())?;
        }
        let report = consumer.shutdown(DRAIN)?;
        // The verdict is for the terminal as it was.
        drop(screen);
        display.finish();

        let seconds = started.elapsed().as_secs_f64();
        let verdict = judge::judge(&judge::Run {
            log: &log,
            report: &report,
            mode,
            before,
            ledgers: &state.ledger(),
            seconds,
        })?;
        let mut stdout = std::io::stdout().lock();
        if !args.json {
            stdout.write_all(verdict.for_people().as_bytes())?;
        }
        writeln!(stdout, "{}", serde_json::to_string(&verdict)?)?;
        Ok(verdict.status(interrupted.load(Ordering::Relaxed)))
    }
}

/// Lets an interrupted run finish what is in flight, for a while.
fn drain(consumer: &Consumer, screen: Option<&mut Screen>) -> Result<(), Failure> {
    let Some(screen) = screen else {
        consumer.drain(DRAIN);
        return Ok(());
    };
    let begun = Instant::now();
    while begun.elapsed() < DRAIN && !consumer.drain(FRAME) {
        screen.draw(consumer, true)?;
        if screen.asks_to_end()? {
            end_at_once();
        }
    }
    Ok(())
}

/// As a second Ctrl-C does.
fn end_at_once() -> ! {
    screen::restore();
    std::process::exit(130)
}

/// The work: reads each line of the batch, unless a fault is planted there. What was handled is in
/// the ledger before the batch is committed. In order, nothing is handled after a line that failed;
/// in the orderly mode nothing of its batch counts.
fn handle(batch: &Batch<Line>, mode: Mode, faults: &Faults, ledgers: &Ledgers) -> Outcome {
    let mut entries = ledgers.entries(batch.partition());
    let mut panicking = None;
    let mut failed = false;
    let in_order = matches!(mode, Mode::Orderly | Mode::Keyed);
    let outcome = batch.each(|message| {
        if failed && in_order {
            return Verdict::Retry;
        }
        let fate = faults.fate(batch.partition(), message.offset(), batch.attempts(message));
        match fate {
            Fate::Panic => panicking = panicking.or(Some(message.offset())),
            Fate::Slow => std::thread::sleep(faults.slowness),
            Fate::Fail | Fate::Fine => {}
        }
        let next = message.value().next(message.offset());
        if fate == Fate::Fail {
            failed = true;
            if mode == Mode::Orderly {
                entries.clear();
            }
            entries.push(message.offset(), next, What::Failed);
            return Verdict::Retry;
        }
        std::hint::black_box(message.value().checksum());
        entries.push(message.offset(), next, What::Handled);
        Verdict::Done
    });
    if let Some(offset) = panicking {
        // Nothing of this batch counts as handled: all of it is retried.
        ledgers.panicked(batch.partition(), offset, batch.len());
        faults::panic();
    }
    if entries.write() { if failed { outcome } else { Outcome::Done } } else { Outcome::Retry }
}
