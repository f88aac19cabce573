//! The verdict: from the ledger, not from what the consumer says of itself; only where the
//! watermarks are is the consumer's word, since that is what is judged.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use inflight::consumer::ShutdownReport;
use serde::Serialize;

use crate::Failure;
use crate::args::Mode;
use crate::ledger::{self, What};
use crate::log::{self, FilePartition, Log};

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
    /// Messages that were handled before an earlier one of their partition (orderly) or
    /// key (keyed) had been.
    disordered: u64,
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
    /// In bytes, as offsets are.
    watermark: u64,
    /// The length of the file.
    end: u64,
}

/// Records of a ledger in memory at once, about.
const AT_ONCE: u64 = 1 << 20;

/// Goes along the lines of a file and its ledger at once, and knows how often each line was
/// handled. The ledger is read in pieces: its records are in the order of the handling, those of a
/// stretch of the file are picked and sorted.
struct Sweep<'a> {
    ledger: &'a Path,
    /// Bytes of a stretch.
    stretch: u64,
    /// The records below this offset were picked.
    to: u64,
    /// Of the stretch, not reached yet: descending.
    ahead: Vec<(u64, u32)>,
    /// Lines so far.
    line: u64,
    /// Records that the line now looked at is in, ...
    open: u64,
    /// ... and how many of them are over at which line.
    ends: BTreeMap<u64, u64>,
}

impl<'a> Sweep<'a> {
    /// `records` handlings are in the ledger of a file of `len` bytes.
    fn new(ledger: &'a Path, records: u64, len: u64) -> Self {
        let stretches = records.div_ceil(AT_ONCE).max(1);
        let stretch = len.div_ceil(stretches).max(1);
        Self { ledger, stretch, to: 0, ahead: vec![], line: 0, open: 0, ends: BTreeMap::new() }
    }

    /// Picks the records up to an offset.
    fn pick(&mut self, to: u64) -> Result<(), Failure> {
        let from = std::mem::replace(&mut self.to, to);
        let Self { ledger, ahead, .. } = self;
        ledger::read(ledger, |record| {
            if record.what == What::Handled && (from..to).contains(&record.first) {
                ahead.push((record.first, record.count));
            }
        })?;
        ahead.sort_unstable_by(|one, other| other.cmp(one));
        Ok(())
    }

    /// How often the next line was handled, which begins at `offset`.
    fn handlings(&mut self, offset: u64) -> Result<u64, Failure> {
        if offset >= self.to {
            self.pick(offset.saturating_add(self.stretch))?;
        }
        self.open -= self.ends.remove(&self.line).unwrap_or(0);
        while let Some((first, count)) = self.ahead.pop_if(|(first, _)| *first <= offset) {
            if first < offset {
                return Err(no_line(first));
            }
            self.open += 1;
            *self.ends.entry(self.line + u64::from(count)).or_default() += 1;
        }
        self.line += 1;
        Ok(self.open)
    }

    /// There are no more lines: nothing may have been handled beyond.
    fn finish(mut self) -> Result<(), Failure> {
        self.pick(u64::MAX)?;
        if let Some((first, _)) = self.ahead.last() {
            return Err(no_line(*first));
        }
        match self.ends.last_key_value() {
            Some((end, _)) if *end > self.line => Err("more lines were handled than are".into()),
            _ => Ok(()),
        }
    }
}

fn no_line(offset: u64) -> Failure {
    format!("a line at byte {offset} was handled, but none begins there").into()
}

/// How many lines were handled before an earlier one that goes before them: of the same key, or of
/// the partition. In all runs: a state of another mode has no order. Needs 13 bytes of memory a line.
fn disordered(file: &FilePartition, ledger: &Path, keyed: bool) -> Result<u64, Failure> {
    const NONE: u32 = u32::MAX;
    let (mut starts, mut before) = (Vec::new(), Vec::new());
    let mut last: HashMap<[u8; 2], u32> = HashMap::new();
    let mut lines = file.lines()?;
    let mut line = Vec::new();
    while let Some(offset) = lines.next_line(&mut line)? {
        let number = u32::try_from(starts.len()).map_err(|_| "too many lines to judge")?;
        let key = if keyed { log::key(&line) } else { [0; 2] };
        before.push(last.insert(key, number).unwrap_or(NONE));
        starts.push(offset);
    }
    let mut done = vec![false; starts.len()];
    let mut disordered = 0;
    ledger::read(ledger, |record| {
        if record.what != What::Handled {
            return;
        }
        let Ok(first) = starts.binary_search(&record.first) else { return };
        let to = done.len().min(first + record.count as usize);
        for at in first..to {
            let in_order = done[at] || before[at] == NONE || done[before[at] as usize];
            disordered += u64::from(!in_order);
            done[at] = true;
        }
    })?;
    Ok(disordered)
}

/// What is judged.
pub struct Run<'a> {
    pub log: &'a Log,
    pub report: &'a ShutdownReport,
    pub mode: Mode,
    /// Handlings of earlier runs.
    pub before: u64,
    pub ledgers: &'a Path,
    pub seconds: f64,
}

/// Reads the ledgers and judges.
pub fn judge(run: &Run<'_>) -> Result<Verdict, Failure> {
    let Run { log, report, mode, before, ledgers: folder, seconds } = *run;
    let mut verdict = Verdict {
        messages: 0,
        finished: 0,
        duplicates: 0,
        lost: 0,
        disordered: 0,
        retried: 0,
        panics: 0,
        seconds,
        per_second: 0,
        partitions: Vec::new(),
    };
    let mut handlings = 0;
    for (index, (file, ended)) in log.partitions().iter().zip(&report.partitions).enumerate() {
        let ledger = ledger::path(folder, index);
        let mut records = 0;
        ledger::read(&ledger, |record| match record.what {
            What::Handled => {
                records += 1;
                handlings += u64::from(record.count);
            }
            What::Failed => verdict.retried += u64::from(record.count),
            What::Panicked => {
                verdict.panics += 1;
                verdict.retried += u64::from(record.count);
            }
        })?;
        let place = |failure: Failure| format!("{}: {failure}", file.name);
        let mut sweep = Sweep::new(&ledger, records, file.len);
        let mut lines = file.lines()?;
        while let Some(offset) = lines.next()? {
            let times = sweep.handlings(offset).map_err(place)?;
            verdict.messages += 1;
            verdict.finished += u64::from(times > 0);
            verdict.duplicates += times.saturating_sub(1);
            verdict.lost += u64::from(times == 0 && offset < ended.published);
        }
        sweep.finish().map_err(place)?;
        drop(lines);
        if matches!(mode, Mode::Orderly | Mode::Keyed) {
            verdict.disordered += disordered(file, &ledger, mode == Mode::Keyed)?;
        }
        verdict.partitions.push(PartitionVerdict {
            name: file.name.clone(),
            watermark: ended.published,
            end: file.len,
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
        if self.lost > 0 || self.disordered > 0 {
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
             {} duplicates, {} lost, {} out of order\n",
            self.finished,
            self.messages,
            self.seconds,
            self.per_second,
            self.retried,
            self.panics,
            self.duplicates,
            self.lost,
            self.disordered
        ));
        text
    }
}
