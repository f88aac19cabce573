//! The verdict: from the ledger, not from what the consumer says of itself; only where the
//! watermarks are is the consumer's word, since that is what is judged.

use std::path::Path;

use inflight::consumer::ShutdownReport;
use serde::Serialize;

use crate::Failure;
use crate::ledger::{self, What};
use crate::log::Log;

#[derive(Debug, Serialize)]
pub struct Verdict {
    /// Messages in the log.
    messages: u64,
    /// Messages handled at least once.
    finished: u64,
    /// Successful handlings beyond the first.
    duplicates: u64,
    /// Messages below the watermark that were never handled.
    lost: u64,
    /// Messages that failed, or were in a batch that panicked; each time counts.
    retried: u64,
    /// Handler calls that panicked.
    panics: u64,
    /// Of this run; all others are over all runs with this state.
    seconds: f64,
    /// Messages handled by this run in a second.
    per_second: u64,
    partitions: Vec<PartitionVerdict>,
}

#[derive(Debug, Serialize)]
struct PartitionVerdict {
    name: String,
    watermark: u64,
    end: u64,
}

/// One bit for each message of a partition.
struct Bitmap(Vec<u64>);

impl Bitmap {
    fn new(bits: u64) -> Self {
        Self(vec![0; bits.div_ceil(64) as usize])
    }

    /// Sets a bit; was it set before? None beyond the end.
    fn set(&mut self, bit: u64) -> Option<bool> {
        let word = self.0.get_mut((bit / 64) as usize)?;
        let mask = 1 << (bit % 64);
        let before = *word & mask != 0;
        *word |= mask;
        Some(before)
    }

    fn has(&self, bit: u64) -> bool {
        self.0.get((bit / 64) as usize).is_some_and(|word| word & 1 << (bit % 64) != 0)
    }
}

/// Reads the ledgers and judges. `before` handlings are of earlier runs; this one took `seconds`.
pub fn judge(
    log: &Log,
    report: &ShutdownReport,
    before: u64,
    folder: &Path,
    seconds: f64,
) -> Result<Verdict, Failure> {
    let mut verdict = Verdict {
        messages: 0,
        finished: 0,
        duplicates: 0,
        lost: 0,
        retried: 0,
        panics: 0,
        seconds,
        per_second: 0,
        partitions: Vec::new(),
    };
    let mut handlings = 0;
    for (index, (file, ended)) in log.partitions().iter().zip(&report.partitions).enumerate() {
        let mut handled = Bitmap::new(file.lines);
        let mut beyond = None;
        ledger::read(&ledger::path(folder, index), |record| match record.what {
            What::Handled => {
                for offset in record.first..record.first + u64::from(record.count) {
                    handlings += 1;
                    match handled.set(offset) {
                        Some(true) => verdict.duplicates += 1,
                        Some(false) => verdict.finished += 1,
                        None => beyond = Some(offset),
                    }
                }
            }
            What::Failed => verdict.retried += u64::from(record.count),
            What::Panicked => {
                verdict.panics += 1;
                verdict.retried += u64::from(record.count);
            }
        })?;
        if let Some(offset) = beyond {
            return Err(format!("{}: line {offset} was handled but is none", file.name).into());
        }
        verdict.messages += file.lines;
        verdict.lost += (0..ended.published).filter(|&offset| !handled.has(offset)).count() as u64;
        verdict.partitions.push(PartitionVerdict {
            name: file.name.clone(),
            watermark: ended.published,
            end: file.lines,
        });
    }
    let handled = u64::saturating_sub(handlings, before);
    verdict.per_second = (handled as f64 / seconds.max(1e-9)) as u64;
    Ok(verdict)
}

impl Verdict {
    fn at_end(&self) -> bool {
        self.partitions.iter().all(|partition| partition.watermark == partition.end)
    }

    /// The exit status.
    pub fn status(&self, interrupted: bool) -> u8 {
        if self.lost > 0 {
            1
        } else if self.at_end() {
            0
        } else if interrupted {
            3
        } else {
            1
        }
    }

    /// The same in words.
    pub fn for_people(&self) -> String {
        let mut text = String::new();
        for partition in &self.partitions {
            let PartitionVerdict { name, watermark, end } = partition;
            text.push_str(&format!("{name}: watermark {watermark} of {end}\n"));
        }
        text.push_str(&format!(
            "{} of {} messages handled in {:.2} s ({} a second); {} retried, {} panics\n\
             {} duplicates, {} lost\n",
            self.finished,
            self.messages,
            self.seconds,
            self.per_second,
            self.retried,
            self.panics,
            self.duplicates,
            self.lost
        ));
        text
    }
}
