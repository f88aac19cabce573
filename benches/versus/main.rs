//! The windows against everything a user could pick instead, on the same work in the same run.
//!
//! ```text
//! cargo bench --bench versus                     the table, and target/versus.json
//! cargo bench --bench versus -- --quick          the same with fewer and shorter rounds
//! cargo bench --bench versus -- --report         also docs/performance.md and its plots
//! cargo bench --bench versus -- --only W3        the works whose name begins so; no files
//! cargo bench --bench versus -- --alone skip     one contestant, for a profiler; no files
//! ```
//!
//! Arguments that it does not know are ignored: `cargo bench -- ...` gives them to every bench.

mod batches;
mod memory;
#[path = "../peers/mod.rs"]
mod peers;
mod plot;
mod race;
mod report;
mod tail;
mod works;

use std::time::{Duration, Instant};

use race::{Costs, race};
use works::{BatchRemoves, Orderly, RandomRemoves, Reverse, Workers};

#[global_allocator]
static ALLOCATOR: memory::Counting = memory::Counting;

/// All results, in the order of the table.
pub type Results = Vec<(String, Costs)>;

struct Run {
    quick: bool,
    only: Option<String>,
    results: Results,
}

impl Run {
    fn wanted(&self, key: &str) -> bool {
        self.only.as_deref().is_none_or(|only| key.starts_with(only))
    }

    fn rounds(&self, rounds: usize) -> usize {
        if self.quick { rounds.min(3) } else { rounds }
    }

    /// Pulls of one round.
    fn pulls(&self, pulls: usize) -> usize {
        if self.quick { pulls / 2 } else { pulls }
    }

    fn add(&mut self, key: &str, costs: Costs) {
        report::row(key, &costs);
        self.results.push((key.to_owned(), costs));
    }

    fn add_all(&mut self, results: Results) {
        for (key, costs) in results {
            self.add(&key, costs);
        }
    }

    /// W1 with so many in flight, in a ring of `N` slots.
    fn random<const N: usize>(&mut self, key: &str, in_flight: usize, pulls: usize, rounds: usize) {
        if !self.wanted(key) {
            return;
        }
        let (pulls, rounds) = (self.pulls(pulls), self.rounds(rounds));
        let work = RandomRemoves::new(in_flight, 1, pulls, rounds);
        assert!(work.span < N as u64, "the ring is too small for {}", work.span);
        self.add(key, race(rounds, works::solo::<N>(&work)));
    }

    fn reverse<const N: usize>(&mut self, key: &str, in_flight: usize, times: usize) {
        if !self.wanted(key) {
            return;
        }
        let rounds = self.rounds(5);
        self.add(key, race(rounds, works::solo::<N>(&Reverse { in_flight, times })));
    }

    fn all(&mut self) {
        self.random::<16384>("W1", works::WINDOW, 3200, 15);
        for workers in [1, 2, 3] {
            let key = format!("W2x{workers}");
            if self.wanted(&key) {
                let work = Workers { workers, pulls: self.pulls(1600), reader: false };
                let rounds = self.rounds(15);
                self.add(&key, race(rounds, works::crowd::<4096>(&work)));
            }
        }
        for (name, take) in [("a", 1), ("b", 32)] {
            let work = Orderly { take, pulls: self.pulls(1600) };
            let rounds = self.rounds(15);
            let key = format!("W3{name}1");
            if self.wanted(&key) {
                let mut entrants = works::solo::<2048>(&work);
                entrants.extend(works::solo_shared::<2048>(&work));
                self.add(&key, race(rounds, entrants));
            }
            let key = format!("W3{name}2");
            if self.wanted(&key) {
                let mut entrants = works::crowd::<2048>(&work);
                entrants.extend(works::crowd_shared::<2048>(&work));
                self.add(&key, race(rounds, entrants));
            }
        }
        for (key, oldest) in [("W4old", true), ("W4rnd", false)] {
            if self.wanted(key) {
                let (pulls, rounds) = (self.pulls(3200), self.rounds(15));
                let work = BatchRemoves::new(works::PULL, oldest, pulls, rounds);
                self.add(key, race(rounds, works::solo::<16384>(&work)));
            }
        }
        if self.wanted("W5") {
            let work = Workers { workers: 1, pulls: self.pulls(1600), reader: true };
            let rounds = self.rounds(15);
            self.add("W5", race(rounds, works::crowd::<4096>(&work)));
        }
        for threads in [1, 2] {
            let key = format!("W6x{threads}");
            if self.wanted(&key) {
                let (count, rounds) = (self.pulls(100_000), self.rounds(15));
                self.add(&key, race(rounds, batches::recorders(threads, count)));
            }
        }
        self.random::<16384>("W7rnd1k", 1_000, 3200, 7);
        self.random::<{ 1 << 18 }>("W7rnd10k", 10_000, 1600, 7);
        self.random::<{ 1 << 21 }>("W7rnd100k", 100_000, 3200, 5);
        self.random::<{ 1 << 21 }>("W7rnd1M", 1_000_000, 4800, 5);
        self.reverse::<{ 1 << 10 }>("W7rev1k", 1_000, 30);
        self.reverse::<{ 1 << 14 }>("W7rev10k", 10_000, 4);
        self.reverse::<{ 1 << 17 }>("W7rev100k", 100_000, 1);
        if !self.quick {
            self.reverse::<{ 1 << 20 }>("W7rev1M", 1_000_000, 1);
        }
        for stride in [8, 100, 4096] {
            let key = format!("W8s{stride}");
            if self.wanted(&key) {
                let (pulls, rounds) = (self.pulls(1600), self.rounds(9));
                let work = RandomRemoves::new(works::WINDOW, stride, pulls, rounds);
                let mut entrants = works::solo_sparse(&work);
                entrants.push(works::solo_numbered::<16384>(&work));
                self.add(&key, race(rounds, entrants));
            }
        }
        if self.wanted("W9") {
            let (rounds, time) = if self.quick { (1, 300) } else { (3, 600) };
            self.add_all(tail::run(rounds, Duration::from_millis(time)));
        }
        if self.wanted("W10") {
            self.add_all(memory::run(if self.quick { 1_000_000 } else { 10_000_000 }));
        }
        for batch in [1, 2, 4, 8, 16, 32] {
            let key = format!("batch{batch}");
            if self.wanted(&key) {
                let (pulls, rounds) = (self.pulls(1600), self.rounds(7));
                let work = Orderly { take: batch, pulls };
                self.add(&key, race(rounds, works::solo::<2048>(&work)));
            }
        }
    }
}

fn main() {
    let begun = Instant::now();
    let mut run = Run { quick: false, only: None, results: Results::new() };
    let mut write = false;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--quick" => run.quick = true,
            "--report" => write = true,
            "--only" => run.only = arguments.next(),
            "--alone" => {
                let name = arguments.next().unwrap_or_default();
                race::ALONE.set(name).expect("said once");
            }
            _ => {}
        }
    }
    report::head();
    run.all();
    println!("\n{:.0} s", begun.elapsed().as_secs_f64());
    if run.only.is_some() || race::ALONE.get().is_some() {
        return;
    }
    report::json(&run.results).expect("target is writable");
    if write {
        report::write(&run.results, run.quick).expect("docs is writable");
    }
}
