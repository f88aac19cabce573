//! The works of one thread under criterion: for comparing two versions of this crate on one
//! machine. What is put and taken beforehand is not in the time.
//!
//! `cargo bench --bench window`; with the peers beside the windows, see the bench `versus`.

mod peers;

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main};

use peers::{
    Contestant, Floor, NaiveSkipMap, NaiveTreeIndex, PlRwLock, Pool, ProcessQueue, StdMutex,
    StdRwLock, ring, skip,
};

/// Messages of one pull.
const PULL: usize = 32;
/// Messages in flight.
const STANDING: usize = 1024;

/// The offsets of the next pull.
fn pull(next: &mut u64) -> [u64; PULL] {
    let first = *next;
    *next += PULL as u64;
    std::array::from_fn(|at| first + at as u64)
}

/// How long `call` takes.
fn timed(call: impl FnOnce()) -> Duration {
    let begun = Instant::now();
    call();
    begun.elapsed()
}

/// Every call by itself, for 32 messages; what it needs is made outside its time.
fn calls<C: Contestant>(c: &mut BenchmarkGroup<'_, WallTime>, name: &str, contestant: C) {
    let pool = Pool::new();
    let mut next = 0;
    let mut oldest = 0;
    for _ in 0..STANDING / PULL {
        contestant.put(&pull(&mut next), &mut pool.messages(PULL));
    }
    let contestant = &contestant;
    c.throughput(Throughput::Elements(PULL as u64));
    c.bench_function(format!("put 32/{name}"), |b| {
        b.iter_custom(|times| {
            let mut total = Duration::ZERO;
            for _ in 0..times {
                let offsets = pull(&mut next);
                let mut messages = pool.messages(PULL);
                total += timed(|| contestant.put(&offsets, &mut messages));
                remove_oldest(contestant, &mut oldest);
            }
            total
        });
    });
    c.bench_function(format!("remove 32 one by one/{name}"), |b| {
        b.iter_custom(|times| {
            let mut total = Duration::ZERO;
            for _ in 0..times {
                contestant.put(&pull(&mut next), &mut pool.messages(PULL));
                total += timed(|| {
                    for offset in oldest..oldest + PULL as u64 {
                        black_box(contestant.remove(offset));
                    }
                });
                oldest += PULL as u64;
            }
            total
        });
    });
    c.bench_function(format!("remove 32 as a batch/{name}"), |b| {
        b.iter_custom(|times| {
            let mut total = Duration::ZERO;
            for _ in 0..times {
                contestant.put(&pull(&mut next), &mut pool.messages(PULL));
                total += timed(|| remove_oldest(contestant, &mut oldest));
            }
            total
        });
    });
    for n in [1, PULL] {
        c.bench_function(format!("take {n} and commit, 32 in all/{name}"), |b| {
            b.iter_custom(|times| {
                let mut total = Duration::ZERO;
                for _ in 0..times {
                    contestant.put(&pull(&mut next), &mut pool.messages(PULL));
                    total += timed(|| {
                        for _ in 0..PULL / n {
                            let lease = contestant.take(n).expect("messages are waiting");
                            black_box(contestant.commit(lease));
                        }
                    });
                    oldest += PULL as u64;
                }
                total
            });
        });
    }
}

fn remove_oldest(contestant: &impl Contestant, oldest: &mut u64) {
    let offsets: [u64; PULL] = std::array::from_fn(|at| *oldest + at as u64);
    *oldest += PULL as u64;
    black_box(contestant.remove_batch(&offsets));
}

fn windows(c: &mut Criterion) {
    let mut group = c.benchmark_group("window");
    group.sample_size(20).warm_up_time(Duration::from_millis(200));
    group.measurement_time(Duration::from_millis(800));
    calls(&mut group, "ring", ring::<4096>());
    calls(&mut group, "skip", skip());
    calls(&mut group, "std_rwlock", ProcessQueue::<StdRwLock>::new());
    calls(&mut group, "pl_rwlock", ProcessQueue::<PlRwLock>::new());
    calls(&mut group, "std_mutex", ProcessQueue::<StdMutex>::new());
    calls(&mut group, "skipmap", NaiveSkipMap::default());
    calls(&mut group, "treeindex", NaiveTreeIndex::default());
    calls(&mut group, "floor", Floor);
    group.finish();
}

criterion_group!(benches, windows);
criterion_main!(benches);
