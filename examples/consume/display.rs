//! Live progress on stderr: a line for each partition: lines a second, the watermark (a byte), the span
//! from there to the end of the window (in lines; in bytes where the window is sparse), lines waiting
//! and held, and the head: the line that holds the watermark.

use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use inflight::consumer::{PartitionProgress, Progress};

use crate::log::Log;

/// More partitions than this share one line.
const LINES: usize = 16;

pub struct Display {
    bars: Vec<ProgressBar>,
    /// All partitions together, when there are too many.
    together: bool,
    last: Instant,
    finished: Vec<u64>,
}

impl Display {
    pub fn new(log: &Log, quiet: bool) -> Self {
        let target =
            if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let all = MultiProgress::with_draw_target(target);
        let style = ProgressStyle::with_template("{prefix:24!} {bar:30} {percent:>3}% {msg}")
            .unwrap_or_else(|_| ProgressStyle::default_bar());
        let together = log.partitions().len() > LINES;
        let bar = |name: String, bytes| {
            let bar = all.add(ProgressBar::new(bytes)).with_style(style.clone());
            bar.with_prefix(name)
        };
        let bars = if together {
            let bytes = log.partitions().iter().map(|partition| partition.len).sum();
            vec![bar(format!("{} partitions", log.partitions().len()), bytes)]
        } else {
            let files = log.partitions().iter();
            files.map(|file| bar(tail(&file.name), file.len)).collect()
        };
        Self { bars, together, last: Instant::now(), finished: Vec::new() }
    }

    pub fn draw(&mut self, progress: &Progress) {
        let elapsed = self.last.elapsed().as_secs_f64().max(1e-9);
        self.last = Instant::now();
        let partitions = progress.partitions.iter();
        let row = |part: &PartitionProgress| {
            let held = part.held as u64;
            let waiting = (part.count as u64).saturating_sub(held);
            [part.watermark, part.span, part.finished, waiting, held]
        };
        let mut rows: Vec<[u64; 5]> = partitions.map(row).collect();
        if self.together {
            rows = vec![std::array::from_fn(|column| rows.iter().map(|row| row[column]).sum())];
        }
        self.finished.resize(rows.len(), 0);
        let heads = progress.partitions.iter().map(|part| head(part, progress.now));
        let heads = heads.chain(std::iter::repeat(String::new()));
        let rows = rows.iter().zip(heads);
        for ((bar, (row, head)), before) in self.bars.iter().zip(rows).zip(&mut self.finished) {
            let [watermark, span, finished, waiting, held] = *row;
            let head = if self.together { String::new() } else { head };
            let rate = (finished - *before) as f64 / elapsed;
            *before = finished;
            bar.set_position(watermark);
            bar.set_message(format!(
                "{rate:.0}/s watermark {watermark} span {span} waiting {waiting} held {held}{head}"
            ));
        }
    }

    pub fn finish(&self) {
        for bar in &self.bars {
            bar.abandon();
        }
        if self.bars.iter().any(|bar| !bar.is_hidden()) {
            // Below the bars.
            eprintln!();
        }
    }
}

/// Which message holds the watermark, and for how long it has been held; or when it is tried again.
pub fn head(part: &PartitionProgress, now: Duration) -> String {
    let Some(head) = part.head else { return String::new() };
    let Some(since) = head.since else { return format!(" head {} {:?}", head.offset, head.stage) };
    let since = Duration::from_millis(since);
    match now.checked_sub(since) {
        Some(age) => format!(" head {} held {} ms", head.offset, age.as_millis()),
        None => format!(" head {} again in {} ms", head.offset, (since - now).as_millis()),
    }
}

/// The end of a long name.
fn tail(name: &str) -> String {
    let skip = name.chars().count().saturating_sub(24);
    name.chars().skip(skip).collect()
}
