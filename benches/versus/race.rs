//! One work, all contestants: in rounds, taken in turn, the median of the rounds.
//!
//! On a machine that does other things too a time says little, and the ratio of two times taken
//! one after the other says more: a disturbance hits all, and the median drops the rest.

use std::collections::BTreeMap;

/// One contestant, set up: a call does one round and says how many nanoseconds a message took.
pub struct Entrant {
    pub name: &'static str,
    pub round: Box<dyn FnMut() -> f64>,
}

/// What one work cost, by contestant; nanoseconds a message unless the work says otherwise.
pub type Costs = BTreeMap<String, f64>;

/// The middle of these.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The only contestant to run, for a profiler; all when it is not set.
pub static ALONE: std::sync::OnceLock<String> = std::sync::OnceLock::new();

/// Runs the rounds.
pub fn race(rounds: usize, mut entrants: Vec<Entrant>) -> Costs {
    entrants.retain(|entrant| ALONE.get().is_none_or(|name| name == entrant.name));
    let mut times = vec![Vec::new(); entrants.len()];
    for round in 0..=rounds {
        for turn in 0..entrants.len() {
            // Another one begins each round, so that none always follows the same.
            let index = (turn + round) % entrants.len();
            let time = (entrants[index].round)();
            // The first round warms up.
            if round > 0 {
                times[index].push(time);
            }
        }
    }
    let costs = entrants.iter().zip(times);
    costs.map(|(entrant, times)| (entrant.name.to_owned(), median(times))).collect()
}

/// The lock-based peers.
pub const LOCKS: [&str; 4] = ["std_rwlock", "pl_rwlock", "std_mutex", "pl_mutex"];

/// The fastest lock-based peer.
pub fn best_lock(costs: &Costs) -> Option<f64> {
    LOCKS.iter().filter_map(|name| costs.get(*name)).copied().min_by(f64::total_cmp)
}

/// Runs `wait` until it is true: spins a little, then sleeps until somebody calls
/// [`Gate::open`]. Never yields: two busy threads would land on one core.
#[derive(Default)]
pub struct Gate {
    asleep: std::sync::atomic::AtomicBool,
    thread: std::sync::OnceLock<std::thread::Thread>,
}

impl Gate {
    /// Called by the thread that waits here.
    pub fn mine(&self) {
        let _ = self.thread.set(std::thread::current());
    }

    pub fn wait(&self, ready: impl Fn() -> bool) {
        use std::sync::atomic::Ordering::{Relaxed, SeqCst};
        use std::sync::atomic::fence;
        for _ in 0..100 {
            if ready() {
                return;
            }
            for _ in 0..10 {
                std::hint::spin_loop();
            }
        }
        loop {
            self.asleep.store(true, Relaxed);
            // With the fence in `open`: either this sees what made it ready, or that sees `asleep`.
            fence(SeqCst);
            if ready() {
                self.asleep.store(false, Relaxed);
                return;
            }
            // A time limit, because an older `open` may have taken the mark meanwhile.
            std::thread::park_timeout(std::time::Duration::from_millis(1));
        }
    }

    /// What the other waits for may have come.
    pub fn open(&self) {
        use std::sync::atomic::Ordering::{Relaxed, SeqCst};
        use std::sync::atomic::fence;
        fence(SeqCst);
        if self.asleep.load(Relaxed) && self.asleep.swap(false, Relaxed) {
            self.thread.get().inspect(|thread| thread.unpark());
        }
    }
}
