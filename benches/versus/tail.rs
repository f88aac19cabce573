//! Tail latency: how long a put and a take last while the threads beside them are pre-empted.
//!
//! Six threads are at one window, on however few processors there are. One puts and one takes, a
//! call every ten microseconds or so, each call timed; three take and commit without a pause, as
//! long as some two hundred messages wait; and the sixth does so too, and is stopped for a
//! millisecond at a random place, again and again, by a signal whose handler sleeps: as a
//! processor taken away inside an operation.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::peers::*;
use crate::race::Costs;
use crate::works::WINDOW;

/// The percentiles that are told, by the name they have in the results.
pub const PERCENTILES: [(&str, f64); 4] = [("50", 0.5), ("99", 0.99), ("999", 0.999), ("max", 1.0)];

/// Nanoseconds of each put and each take.
pub struct Latencies {
    pub put: Vec<u32>,
    pub take: Vec<u32>,
}

fn pause() {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_micros(10) {
        std::hint::spin_loop();
    }
}

#[cfg(target_os = "linux")]
mod doze {
    //! Stops one thread where it is.

    extern "C" fn sleep(_: libc::c_int) {
        let time = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 };
        // SAFETY: a call that signal handlers may make; the pointer is to a timespec.
        unsafe { libc::nanosleep(&time, std::ptr::null_mut()) };
    }

    pub fn prepare() {
        // SAFETY: an action of zeroes is one, with no flags and no mask; the handler only sleeps.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = sleep as extern "C" fn(libc::c_int) as usize;
            action.sa_flags = libc::SA_RESTART;
            libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut());
        }
    }

    pub fn own() -> u64 {
        // SAFETY: always allowed.
        unsafe { libc::pthread_self() as u64 }
    }

    pub fn stop(thread: u64) {
        // SAFETY: the caller's thread is running.
        unsafe { libc::pthread_kill(thread as libc::pthread_t, libc::SIGUSR1) };
    }
}

#[cfg(not(target_os = "linux"))]
mod doze {
    pub fn prepare() {}

    pub fn own() -> u64 {
        0
    }

    pub fn stop(_: u64) {}
}

/// Runs it for so long.
pub fn latencies<C: Contestant + Sync>(contestant: &C, time: Duration) -> Latencies {
    doze::prepare();
    let pool = &Pool::new();
    // More than can be put in the time.
    let most = time.as_micros() as usize;
    let (over, victim_over) = (&AtomicBool::new(false), &AtomicBool::new(false));
    let start = &Barrier::new(6);
    let running = || !over.load(Ordering::Relaxed);
    let consume = move || {
        let mut idle = 0;
        while running() {
            let lease = if contestant.count() > 200 { contestant.take(1) } else { None };
            match lease {
                Some(lease) => {
                    contestant.commit(lease);
                    idle = 0;
                }
                None if idle < 100 => {
                    idle += 1;
                    std::hint::spin_loop();
                }
                None => std::thread::park_timeout(Duration::from_micros(50)),
            }
        }
    };
    let (send, receive) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(move || {
                start.wait();
                consume();
            });
        }
        scope.spawn(move || {
            let _ = send.send(doze::own());
            start.wait();
            consume();
            // Not gone before nobody signals it any more.
            while !victim_over.load(Ordering::Acquire) {
                std::thread::park_timeout(Duration::from_millis(1));
            }
        });
        let putter = scope.spawn(move || {
            let mut times = Vec::new();
            let mut next = 0;
            let mut messages = pool.messages(most);
            start.wait();
            while running() {
                if contestant.count() < WINDOW {
                    // A few at once, so that the takers find something.
                    let offsets: [u64; 8] = std::array::from_fn(|at| next + at as u64);
                    let begun = Instant::now();
                    contestant.put(&offsets, &mut messages);
                    times.push(begun.elapsed().as_nanos() as u32);
                    next += 8;
                }
                pause();
            }
            times
        });
        let taker = scope.spawn(move || {
            let mut times = Vec::new();
            start.wait();
            while running() {
                let begun = Instant::now();
                let lease = contestant.take(1);
                times.push(begun.elapsed().as_nanos() as u32);
                if let Some(lease) = lease {
                    contestant.commit(lease);
                }
                pause();
            }
            times
        });
        let victim = receive.recv().expect("the victim is there");
        let begun = Instant::now();
        while begun.elapsed() < time {
            std::thread::sleep(Duration::from_micros(1700));
            doze::stop(victim);
        }
        over.store(true, Ordering::Relaxed);
        victim_over.store(true, Ordering::Release);
        let put = putter.join().expect("no thread panics");
        Latencies { put, take: taker.join().expect("no thread panics") }
    })
}

/// The value that a part of them does not exceed.
pub fn percentile(times: &mut [u32], part: f64) -> f64 {
    times.sort_unstable();
    let index = ((times.len() as f64 * part) as usize).min(times.len().saturating_sub(1));
    times.get(index).map_or(0.0, |&time| f64::from(time))
}

/// All contestants, in turn, the middle of the rounds: by the call and percentile, what it was
/// for each.
pub fn run(rounds: usize, time: Duration) -> Vec<(String, Costs)> {
    type Run = Box<dyn Fn(Duration) -> Latencies>;
    let runs: [(&str, Run); 8] = [
        ("ring", Box::new(|time| latencies(&ring::<4096>(), time))),
        ("skip", Box::new(|time| latencies(&skip(), time))),
        ("std_rwlock", Box::new(|time| latencies(&ProcessQueue::<StdRwLock>::new(), time))),
        ("pl_rwlock", Box::new(|time| latencies(&ProcessQueue::<PlRwLock>::new(), time))),
        ("std_mutex", Box::new(|time| latencies(&ProcessQueue::<StdMutex>::new(), time))),
        ("pl_mutex", Box::new(|time| latencies(&ProcessQueue::<PlMutex>::new(), time))),
        ("skipmap", Box::new(|time| latencies(&NaiveSkipMap::default(), time))),
        ("treeindex", Box::new(|time| latencies(&NaiveTreeIndex::default(), time))),
    ];
    let mut all: std::collections::BTreeMap<(String, &str), Vec<f64>> = Default::default();
    for _ in 0..rounds {
        for (name, run) in &runs {
            let mut latencies = run(time);
            for (key, part) in PERCENTILES {
                let put = percentile(&mut latencies.put, part);
                all.entry((format!("W9put{key}"), name)).or_default().push(put);
                let take = percentile(&mut latencies.take, part);
                all.entry((format!("W9take{key}"), name)).or_default().push(take);
            }
        }
    }
    let mut results: std::collections::BTreeMap<String, Costs> = Default::default();
    for ((key, name), values) in all {
        let worst = key.ends_with("max");
        let value = match worst {
            true => values.iter().copied().fold(0.0, f64::max),
            false => crate::race::median(values),
        };
        results.entry(key).or_default().insert(name.to_owned(), value);
    }
    results.into_iter().collect()
}
