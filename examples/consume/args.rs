//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};

use crate::faults::Faults;

/// Which window a partition has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// The bounded window, its lines numbered by arrival.
    Ring,
    /// The unbounded window, its lines numbered by arrival.
    Skip,
    /// The unbounded window with the lines at their byte positions.
    SkipSparse,
}

/// How batches are handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// In parallel, in any order.
    Concurrent,
    /// One after the other in each partition.
    Orderly,
    /// One after the other for each key: lines that end in the same two bytes.
    Keyed,
    /// In numbered batches, with a part for each free worker.
    Batched,
}

/// Consumes files, or a log that it makes itself, and proves that no line was lost.
#[derive(Debug, Parser)]
#[command(name = "consume")]
pub struct Args {
    /// Files to consume, one partition each, one message a line. Without any, an embedded log is
    /// made, and failures and panics are planted. A message's offset is the byte position of its
    /// line. What is appended later is left to the next run; a last line without a line feed is a
    /// line, and what is appended to it is the rest of it, and no message.
    pub files: Vec<PathBuf>,
    /// Messages of the embedded log, over all partitions.
    #[arg(long, default_value_t = 200_000, conflicts_with = "files")]
    pub messages: u64,
    /// Partitions of the embedded log.
    #[arg(long, default_value_t = 4, conflicts_with = "files",
        value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub partitions: u64,
    /// How batches are handed out. What the order must be is checked in the end, from the ledger.
    #[arg(long, value_enum, default_value_t = Mode::Concurrent)]
    pub mode: Mode,
    /// The window of each partition. A state can be gone on with in any of them.
    #[arg(long, value_enum, default_value_t = Kind::Ring)]
    pub window: Kind,
    /// Worker threads.
    #[arg(long, default_value_t = 8, value_parser = parse_workers)]
    pub workers: usize,
    /// Messages of one handler call, 1 to 1024.
    #[arg(long, default_value_t = 32, value_parser = parse_batch)]
    pub batch: usize,
    /// How often a message fails and is retried, 0 to 1 [default: 0.01; with files 0].
    #[arg(long, value_parser = parse_rate)]
    pub fail_rate: Option<f64>,
    /// How often a handler panics at a message, 0 to 1 [default: 0.001; with files 0].
    #[arg(long, value_parser = parse_rate)]
    pub panic_rate: Option<f64>,
    /// How often a handler takes 5 ms over a message, 0 to 1 [default: 0.0001; with files 0].
    #[arg(long, value_parser = parse_rate)]
    pub slow_rate: Option<f64>,
    /// Folder for offsets, ledger and embedded log; the next run with the same one goes on where
    /// this one ended. Without it a temporary folder, removed at the end.
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Seed of the embedded log and of the faults.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Nothing on stdout but the JSON object.
    #[arg(long)]
    pub json: bool,
    /// No progress on stderr.
    #[arg(long)]
    pub quiet: bool,
    /// The whole terminal shows the windows as they slide; q or Ctrl-C ends the run.
    #[arg(long, conflicts_with_all = ["json", "quiet"])]
    pub view: bool,
}

impl Args {
    /// What the embedded log is made from.
    pub fn embedded_identity(&self) -> String {
        format!("embedded {} {} {}\n", self.messages, self.partitions, self.seed)
    }

    pub fn faults(&self) -> Faults {
        let embedded = self.files.is_empty();
        let rate =
            |given: Option<f64>, default| given.unwrap_or(if embedded { default } else { 0.0 });
        Faults::new(
            self.seed,
            rate(self.fail_rate, 0.01),
            rate(self.panic_rate, 0.001),
            rate(self.slow_rate, 0.0001),
            Duration::from_millis(5),
        )
    }
}

fn parse_rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|_| "not a number".to_string())?;
    // At 1 no message would ever be finished.
    if (0.0..1.0).contains(&rate) { Ok(rate) } else { Err("not from 0 to below 1".into()) }
}

fn parse_workers(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|n| (1..=1024).contains(n)).ok_or("not from 1 to 1024".into())
}

fn parse_batch(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|n| (1..=1024).contains(n)).ok_or("not from 1 to 1024".into())
}
