//! Live progress on stderr: a line for each partition.

use std::time::Instant;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use inflight::consumer::Progress;

use crate::log::Log;

/// More partitions than this share one line.
const LINES: usize = 16;

pub struct Display {
    bars: Vec<ProgressBar>,
    /// All partitions together, when there are too many.
    together: bool,
    last: Instant,
    watermarks: Vec<u64>,
}

impl Display {
    pub fn new(log: &Log, quiet: bool) -> Self {
        let target =
            if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let all = MultiProgress::with_draw_target(target);
        let style = ProgressStyle::with_template("{prefix:24!} {bar:30} {percent:>3}% {msg}")
            .unwrap_or_else(|_| ProgressStyle::default_bar());
        let together = log.partitions().len() > LINES;
        let bar = |name: String, lines| {
            let bar = all.add(ProgressBar::new(lines)).with_style(style.clone());
            bar.with_prefix(name)
        };
        let bars = if together {
            let lines = log.partitions().iter().map(|partition| partition.lines).sum();
            vec![bar(format!("{} partitions", log.partitions().len()), lines)]
        } else {
            let files = log.partitions().iter();
            files.map(|file| bar(tail(&file.name), file.lines)).collect()
        };
        Self { bars, together, last: Instant::now(), watermarks: Vec::new() }
    }

    pub fn draw(&mut self, progress: &Progress) {
        let elapsed = self.last.elapsed().as_secs_f64().max(1e-9);
        self.last = Instant::now();
        let mut rows: Vec<(u64, u64, u64)> =
            progress.partitions.iter().map(|part| (part.watermark, part.end, part.span)).collect();
        if self.together {
            let sum = |(a, b, c), &(x, y, z): &(u64, u64, u64)| (a + x, b + y, c + z);
            rows = vec![rows.iter().fold((0, 0, 0), sum)];
        }
        if self.watermarks.is_empty() {
            self.watermarks = rows.iter().map(|row| row.0).collect();
        }
        for ((bar, row), before) in self.bars.iter().zip(&rows).zip(&mut self.watermarks) {
            let (watermark, end, span) = *row;
            let rate = (watermark - *before) as f64 / elapsed;
            *before = watermark;
            bar.set_position(watermark);
            bar.set_message(format!("watermark {watermark} end {end} span {span} {rate:.0}/s"));
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

/// The end of a long name.
fn tail(name: &str) -> String {
    let skip = name.chars().count().saturating_sub(24);
    name.chars().skip(skip).collect()
}
