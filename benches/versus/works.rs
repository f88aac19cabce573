//! The works: what is done to each contestant, and how it is set up. Times are nanoseconds a
//! message, of everything that happens to it from put to finish.

use std::hint::black_box;
use std::rc::Rc;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use crate::peers::*;
use crate::race::{Entrant, Gate};

/// Messages of one pull.
pub const PULL: usize = 32;
/// Messages in flight.
pub const WINDOW: usize = 1000;

/// One round on one contestant.
type Round = Box<dyn FnMut() -> f64>;

/// A work of one thread.
pub trait Solo {
    fn enter<C: Contestant + 'static>(&self, contestant: C) -> Round;
}

/// A work of several threads.
pub trait Crowd {
    fn enter<C: Contestant + Sync + 'static>(&self, contestant: C) -> Round;
}

/// All contestants for a work of one thread; a ring of `N` slots.
pub fn solo<const N: usize>(work: &impl Solo) -> Vec<Entrant> {
    let mut entrants = solo_sparse(work);
    entrants.push(Entrant { name: "ring", round: work.enter(ring::<N>()) });
    entrants.push(Entrant { name: "array", round: work.enter(Array::new(N)) });
    entrants
}

/// Those contestants that take any offsets.
pub fn solo_sparse(work: &impl Solo) -> Vec<Entrant> {
    vec![
        Entrant { name: "skip", round: work.enter(skip()) },
        Entrant { name: "std_rwlock", round: work.enter(ProcessQueue::<StdRwLock>::new()) },
        Entrant { name: "pl_rwlock", round: work.enter(ProcessQueue::<PlRwLock>::new()) },
        Entrant { name: "std_mutex", round: work.enter(ProcessQueue::<StdMutex>::new()) },
        Entrant { name: "pl_mutex", round: work.enter(ProcessQueue::<PlMutex>::new()) },
        Entrant { name: "skipmap", round: work.enter(NaiveSkipMap::default()) },
        Entrant { name: "treeindex", round: work.enter(NaiveTreeIndex::default()) },
        Entrant { name: "floor", round: work.enter(Floor) },
    ]
}

/// A ring that numbers sparse offsets by arrival.
pub fn solo_numbered<const N: usize>(work: &impl Solo) -> Entrant {
    Entrant { name: "ring", round: work.enter(ring_numbered::<N>()) }
}

/// The windows with leases that can be revoked, for a work of one thread.
pub fn solo_shared<const N: usize>(work: &impl Solo) -> Vec<Entrant> {
    vec![
        Entrant { name: "ring_shared", round: work.enter(Shared(ring::<N>())) },
        Entrant { name: "skip_shared", round: work.enter(Shared(skip())) },
    ]
}

/// All contestants for a work of several threads.
pub fn crowd<const N: usize>(work: &impl Crowd) -> Vec<Entrant> {
    vec![
        Entrant { name: "ring", round: work.enter(ring::<N>()) },
        Entrant { name: "skip", round: work.enter(skip()) },
        Entrant { name: "std_rwlock", round: work.enter(ProcessQueue::<StdRwLock>::new()) },
        Entrant { name: "pl_rwlock", round: work.enter(ProcessQueue::<PlRwLock>::new()) },
        Entrant { name: "std_mutex", round: work.enter(ProcessQueue::<StdMutex>::new()) },
        Entrant { name: "pl_mutex", round: work.enter(ProcessQueue::<PlMutex>::new()) },
        Entrant { name: "skipmap", round: work.enter(NaiveSkipMap::default()) },
        Entrant { name: "treeindex", round: work.enter(NaiveTreeIndex::default()) },
        Entrant { name: "floor", round: work.enter(Floor) },
    ]
}

/// The windows with leases that can be revoked, for a work of several threads.
pub fn crowd_shared<const N: usize>(work: &impl Crowd) -> Vec<Entrant> {
    vec![
        Entrant { name: "ring_shared", round: work.enter(Shared(ring::<N>())) },
        Entrant { name: "skip_shared", round: work.enter(Shared(skip())) },
    ]
}

/// A small generator of numbers that look random (Marsaglia's xorshift), the same in each run.
pub struct Random(u64);

impl Random {
    pub fn new() -> Self {
        Self(0x9E37_79B9_7F4A_7C15)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (((self.0 >> 32) * limit as u64) >> 32) as usize
    }

    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.below(at + 1));
        }
    }
}

/// The offsets of one pull.
#[inline(always)]
fn pull(next: &mut u64, stride: u64) -> [u64; PULL] {
    let first = *next;
    *next += PULL as u64 * stride;
    std::array::from_fn(|at| first + at as u64 * stride)
}

fn fill(contestant: &impl Contestant, count: usize, next: &mut u64, stride: u64, pool: &Pool) {
    let mut messages = pool.messages(count);
    for _ in 0..count / PULL {
        contestant.put(&pull(next, stride), &mut messages);
    }
}

fn per_message(begun: Instant, messages: usize) -> f64 {
    begun.elapsed().as_nanos() as f64 / messages as f64
}

/// The processor time of this thread: what a work of one thread costs, also on a machine whose
/// processors are shared with others.
pub struct Stopwatch(u64);

impl Stopwatch {
    pub fn start() -> Self {
        Self(Self::now())
    }

    pub fn per_message(&self, messages: usize) -> f64 {
        (Self::now() - self.0) as f64 / messages as f64
    }

    #[cfg(target_os = "linux")]
    fn now() -> u64 {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the pointer is to a timespec.
        unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }

    #[cfg(not(target_os = "linux"))]
    fn now() -> u64 {
        use std::sync::LazyLock;
        static BEGUN: LazyLock<Instant> = LazyLock::new(Instant::now);
        BEGUN.elapsed().as_nanos() as u64
    }
}

/// Put 32, remove 32 one at a time, each chosen at random among those in flight: old ones stay
/// behind, and the span becomes many times the window.
pub struct RandomRemoves {
    in_flight: usize,
    stride: u64,
    pulls: usize,
    /// The whole order of removal, for all rounds.
    victims: Rc<Vec<u64>>,
    /// The largest span, in messages.
    pub span: u64,
    pool: Rc<Pool>,
}

impl RandomRemoves {
    pub fn new(in_flight: usize, stride: u64, pulls: usize, rounds: usize) -> Self {
        let in_flight = in_flight / PULL * PULL;
        let mut random = Random::new();
        let mut next = in_flight as u64 * stride;
        let mut live: Vec<u64> = (0..in_flight as u64).map(|at| at * stride).collect();
        let mut victims = Vec::with_capacity((rounds + 1) * pulls * PULL);
        let mut span = 0;
        let mut oldest = None;
        for step in 0..(rounds + 1) * pulls {
            live.extend(pull(&mut next, stride));
            for _ in 0..PULL {
                let index = oldest.take().unwrap_or_else(|| random.below(live.len()));
                victims.push(live.swap_remove(index));
            }
            if step % 64 == 0 {
                let (index, lowest) = (0..).zip(&live).min_by_key(|one| one.1).expect("some");
                let age = (next - lowest) / stride;
                // So old are the oldest in a run of common length; a longer one would only need
                // a larger ring.
                oldest = (age > 13 * in_flight as u64).then_some(index);
                span = span.max(age + 64 * PULL as u64);
            }
        }
        let (victims, pool) = (Rc::new(victims), Rc::new(Pool::new()));
        Self { in_flight, stride, pulls, victims, span, pool }
    }
}

impl Solo for RandomRemoves {
    fn enter<C: Contestant + 'static>(&self, contestant: C) -> Round {
        let (victims, pool) = (Rc::clone(&self.victims), Rc::clone(&self.pool));
        let (in_flight, stride, pulls) = (self.in_flight, self.stride, self.pulls);
        let (mut next, mut at) = (0, 0);
        fill(&contestant, in_flight, &mut next, stride, &pool);
        Box::new(move || {
            let mut messages = pool.messages(pulls * PULL);
            let mut sum = 0u64;
            let begun = Stopwatch::start();
            for _ in 0..pulls {
                contestant.put(&pull(&mut next, stride), &mut messages);
                for &victim in &victims[at..at + PULL] {
                    sum = sum.wrapping_add(contestant.remove(victim));
                }
                at += PULL;
            }
            let time = begun.per_message(pulls * PULL);
            black_box(sum);
            // The floor has none.
            assert!([in_flight, 0].contains(&contestant.count()));
            time
        })
    }
}

/// Fill, then remove all, the last one first.
pub struct Reverse {
    pub in_flight: usize,
    pub times: usize,
}

impl Solo for Reverse {
    fn enter<C: Contestant + 'static>(&self, contestant: C) -> Round {
        let (in_flight, times) = (self.in_flight / PULL * PULL, self.times);
        let pool = Pool::new();
        let mut next = 0;
        Box::new(move || {
            let mut messages = pool.messages(times * in_flight);
            let mut sum = 0u64;
            let begun = Stopwatch::start();
            for _ in 0..times {
                let first = next;
                for _ in 0..in_flight / PULL {
                    contestant.put(&pull(&mut next, 1), &mut messages);
                }
                for offset in (first..next).rev() {
                    sum = sum.wrapping_add(contestant.remove(offset));
                }
            }
            let time = begun.per_message(times * in_flight);
            black_box(sum);
            assert_eq!(contestant.count(), 0);
            time
        })
    }
}

/// Put 32, remove the same number in batches: the oldest, or batches chosen at random.
pub struct BatchRemoves {
    pulls: usize,
    batch: usize,
    /// The first offset of each batch, in the order of removal.
    victims: Rc<Vec<u64>>,
}

impl BatchRemoves {
    /// `batch` divides what is in flight.
    pub fn new(batch: usize, oldest: bool, pulls: usize, rounds: usize) -> Self {
        let mut random = Random::new();
        let mut live: Vec<u64> = (0..(WINDOW / PULL * PULL / batch) as u64).collect();
        let standing = live.len() as u64;
        let mut victims = Vec::new();
        for step in 0..((rounds + 1) * pulls * PULL / batch) as u64 {
            live.push(standing + step);
            let victim = if oldest { step } else { live.swap_remove(random.below(live.len())) };
            victims.push(victim * batch as u64);
        }
        Self { pulls, batch, victims: Rc::new(victims) }
    }
}

impl Solo for BatchRemoves {
    fn enter<C: Contestant + 'static>(&self, contestant: C) -> Round {
        let (pulls, batch, victims) = (self.pulls, self.batch, Rc::clone(&self.victims));
        let pool = Pool::new();
        let (mut next, mut at) = (0, 0);
        fill(&contestant, WINDOW, &mut next, 1, &pool);
        Box::new(move || {
            let mut messages = pool.messages(pulls * PULL);
            let mut sum = 0u64;
            let mut offsets = [0; 256];
            let begun = Stopwatch::start();
            let (mut put, mut removed) = (0, 0);
            for _ in 0..pulls {
                contestant.put(&pull(&mut next, 1), &mut messages);
                put += PULL;
                while removed + batch <= put {
                    for (offset, n) in offsets[..batch].iter_mut().zip(victims[at]..) {
                        *offset = n;
                    }
                    sum = sum.wrapping_add(contestant.remove_batch(&offsets[..batch]));
                    at += 1;
                    removed += batch;
                }
            }
            let time = begun.per_message(pulls * PULL);
            black_box(sum);
            time
        })
    }
}

/// One orderly consumer: put 32, take `n` and commit until as many are consumed.
pub struct Orderly {
    pub take: usize,
    pub pulls: usize,
}

impl Solo for Orderly {
    fn enter<C: Contestant + 'static>(&self, contestant: C) -> Round {
        let (take, pulls) = (self.take, self.pulls);
        let pool = Pool::new();
        let mut next = 0;
        fill(&contestant, WINDOW, &mut next, 1, &pool);
        Box::new(move || {
            let mut messages = pool.messages(pulls * PULL);
            let mut sum = 0u64;
            let begun = Stopwatch::start();
            let (mut put, mut taken) = (0, 0);
            for _ in 0..pulls {
                contestant.put(&pull(&mut next, 1), &mut messages);
                put += PULL;
                while taken + take <= put {
                    let lease = contestant.take(take).expect("messages are waiting");
                    let (count, looked) = C::look(&lease);
                    sum = sum.wrapping_add(looked).wrapping_add(contestant.commit(lease));
                    taken += count;
                }
            }
            let time = begun.per_message(pulls * PULL);
            black_box(sum);
            time
        })
    }
}

/// A puller with flow control at 1,000 messages, and one party that takes `n` and commits.
impl Crowd for Orderly {
    fn enter<C: Contestant + Sync + 'static>(&self, contestant: C) -> Round {
        let (take, pulls) = (self.take, self.pulls);
        let pool = Pool::new();
        let mut next = 0;
        Box::new(move || {
            let mut messages = pool.messages(pulls * PULL);
            let published = AtomicU64::new(0);
            let (puller, taker) = (Gate::default(), Gate::default());
            let start = Barrier::new(2);
            let total = (pulls * PULL) as u64;
            let mut begun = Instant::now();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    taker.mine();
                    let (mut taken, mut sum, mut since) = (0, 0u64, 0);
                    start.wait();
                    while taken < total {
                        taker.wait(|| published.load(Ordering::Acquire) > taken);
                        let Some(lease) = contestant.take(take) else { continue };
                        let (count, looked) = C::look(&lease);
                        sum = sum.wrapping_add(looked).wrapping_add(contestant.commit(lease));
                        taken += count as u64;
                        since += count;
                        if since >= PULL {
                            since = 0;
                            puller.open();
                        }
                    }
                    black_box(sum);
                });
                puller.mine();
                start.wait();
                begun = Instant::now();
                for done in 1..=pulls {
                    puller.wait(|| contestant.count() < WINDOW);
                    contestant.put(&pull(&mut next, 1), &mut messages);
                    published.store((done * PULL) as u64, Ordering::Release);
                    taker.open();
                }
            });
            let time = per_message(begun, pulls * PULL);
            assert_eq!(contestant.count(), 0);
            time
        })
    }
}

/// A puller with flow control at 1,000 messages and a span of 2,000, and workers that remove by
/// number: each takes blocks of 64 in turn, and removes one in an order shuffled inside it.
pub struct Workers {
    pub workers: usize,
    pub pulls: usize,
    /// One more thread that polls count, bytes and span.
    pub reader: bool,
}

/// Messages that a worker has at once.
const BLOCK: usize = 64;

impl Crowd for Workers {
    fn enter<C: Contestant + Sync + 'static>(&self, contestant: C) -> Round {
        let (workers, pulls, reader) = (self.workers, self.pulls / 2 * 2, self.reader);
        let pool = Pool::new();
        let mut random = Random::new();
        let mut orders = [[0u64; BLOCK]; 64];
        for order in &mut orders {
            *order = std::array::from_fn(|at| at as u64);
            random.shuffle(order);
        }
        let mut next = 0;
        Box::new(move || {
            let mut messages = pool.messages(pulls * PULL);
            let first = next;
            let published = AtomicU64::new(first);
            let over = AtomicBool::new(false);
            let puller = Gate::default();
            let gates: Vec<Gate> = (0..workers).map(|_| Gate::default()).collect();
            let start = Barrier::new(workers + 1 + usize::from(reader));
            let (contestant, orders) = (&contestant, &orders);
            let (published, over, puller, start) = (&published, &over, &puller, &start);
            let mut begun = Instant::now();
            let mut time = 0.0;
            std::thread::scope(|scope| {
                let blocks = pulls * PULL / BLOCK;
                let mut handles = Vec::new();
                for (worker, gate) in gates.iter().enumerate() {
                    handles.push(scope.spawn(move || {
                        gate.mine();
                        let mut sum = 0u64;
                        start.wait();
                        for block in (worker..blocks).step_by(workers) {
                            let base = first + (block * BLOCK) as u64;
                            let end = base + BLOCK as u64;
                            gate.wait(|| published.load(Ordering::Acquire) >= end);
                            for at in &orders[block % 64] {
                                sum = sum.wrapping_add(contestant.remove(base + at));
                            }
                            puller.open();
                        }
                        black_box(sum);
                    }));
                }
                if reader {
                    scope.spawn(move || {
                        let mut sum = 0u64;
                        start.wait();
                        while !over.load(Ordering::Relaxed) {
                            let count = contestant.count() as u64;
                            sum = sum.wrapping_add(count + contestant.bytes() + contestant.span());
                            for _ in 0..10 {
                                std::hint::spin_loop();
                            }
                        }
                        black_box(sum);
                    });
                }
                puller.mine();
                start.wait();
                begun = Instant::now();
                for _ in 0..pulls {
                    puller.wait(|| contestant.count() < WINDOW && contestant.span() < 2000);
                    contestant.put(&pull(&mut next, 1), &mut messages);
                    published.store(next, Ordering::Release);
                    gates.iter().for_each(Gate::open);
                }
                for handle in handles {
                    handle.join().expect("no worker panics");
                }
                time = per_message(begun, pulls * PULL);
                over.store(true, Ordering::Relaxed);
            });
            assert_eq!(contestant.count(), 0);
            time
        })
    }
}
