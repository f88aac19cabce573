//! Linearizability: the calls of several threads on one window, checked after the fact, and the
//! checker itself.
//!
//! What is checked, and what is not: `spec.rs`. The same checker runs inside loom, over every
//! schedule of small programs: `loom-tests/tests/linear`. `INFLIGHT_HISTORIES` is how many histories
//! each test records.

#![cfg(not(miri))] // the search takes too long there

#[path = "../common/mod.rs"]
mod common;
mod recorder;
mod spec;

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};

use common::driver::{Answer, Driver, End, Fault, Step};
use common::model::Model;
use common::script::{Raw, Script};
use common::{Kind, Ledger, RingKind, SkipKind, VARIANTS, driver, message, real};
use inflight::{PutErrorKind, RemoveError, TakeError};
use recorder::{Worker, accepted, history};
use spec::{Event, History, Op, Rules, check};

/// Numbers that look random, the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 20
    }

    fn below(&mut self, n: u64) -> u64 {
        self.roll() % n
    }

    fn raw(&mut self) -> Raw {
        std::array::from_fn(|_| self.roll() as u16)
    }
}

fn rules<K: Kind>(n: usize, callers_seal: bool) -> Rules {
    Rules { capacity: K::capacity(n), callers_seal, far: K::far(n) }
}

fn histories(default: u64) -> u64 {
    std::env::var("INFLIGHT_HISTORIES").ok().and_then(|many| many.parse().ok()).unwrap_or(default)
}

// --- the specification against the model ---

/// Calls one after the other, answered by the model.
fn of_the_model<K: Kind>(n: usize, callers_seal: bool, calls: usize, dice: &mut Dice) -> History {
    let mut model = Model::new(K::capacity(n), K::far(n), callers_seal, 5);
    let mut history = History::default();
    let mut ids = 0;
    for token in 0..calls {
        let raw = dice.raw();
        let step = Script { raw: &raw, used: 0 }.next(&model, n, K::far(n), token, &mut ids);
        // The specification knows no receipts; without this there are none.
        if let Step::IntoDetached { .. } = step {
            continue;
        }
        // Panics are not in histories.
        if let Step::PutBatch { panic_at: Some(_), .. }
        | Step::RemoveBatch { panic_at: Some(_), .. }
        | Step::End { how: End::Only { panic_at: Some(_), .. }, .. }
        | Step::End { how: End::Where { panic_at: Some(_), .. }, .. } = step
        {
            continue;
        }
        // Of which gaps are sealed in a skip window there are too many cases in a long batch.
        if matches!(&step, Step::PutBatch { items, .. } if items.len() > 6) {
            continue;
        }
        let answer = model.step(&step, Fault::None);
        let number = history.ops.len();
        history.ops.push(Op { thread: 0, step, answer });
        history.events.extend([Event::Call(number), Event::Return(number)]);
    }
    history
}

fn accepts_the_model<K: Kind>() {
    let mut dice = Dice(0x5eed);
    for run in 0..histories(400) {
        let (n, callers_seal) = ([2, 4, 8][run as usize % 3], run % 2 == 0);
        let history = of_the_model::<K>(n, callers_seal, 60, &mut dice);
        accepted(rules::<K>(n, callers_seal), 5, &history);
    }
}

#[test]
fn what_the_model_of_a_ring_answers_is_accepted() {
    accepts_the_model::<RingKind>();
}

#[test]
fn what_the_model_of_a_skip_window_answers_is_accepted() {
    accepts_the_model::<SkipKind>();
}

/// Another answer than that, where it says something wrong in any order.
fn spoil(answer: &mut Answer) -> bool {
    match answer {
        Answer::Next(Ok(next)) | Answer::Removed(Ok(next)) => *next += 1,
        Answer::Report(Ok((_, applied, _))) => *applied += 1,
        Answer::Taken(Ok(taken)) => taken[0].1 += 1000,
        Answer::Closed(Ok(open)) => *open = !*open,
        Answer::Revoked(Ok(revoked)) => revoked[0].2 += 1,
        Answer::Floor(Ok((_, dropped, _))) => dropped.push(u64::MAX),
        Answer::Values(values) => values.push((0, 0)),
        Answer::Batch(Ok((admitted, ..))) => *admitted += 1,
        Answer::Put(Ok(_)) => *answer = Answer::Put(Err((PutErrorKind::Duplicate, 0))),
        Answer::Removed(Err(RemoveError::Held)) => *answer = Answer::Removed(Ok(0)),
        Answer::Taken(Err(TakeError::Empty)) => *answer = Answer::Taken(Err(TakeError::Closed)),
        _ => return false,
    }
    true
}

#[test]
fn one_wrong_answer_is_refused() {
    let mut dice = Dice(0xbad);
    let mut kinds = std::collections::HashSet::new();
    for _ in 0..40 {
        let history = of_the_model::<RingKind>(8, false, 60, &mut dice);
        for wrong in 0..history.ops.len() {
            let mut spoiled = history.clone();
            if !spoil(&mut spoiled.ops[wrong].answer) {
                continue;
            }
            kinds.insert(std::mem::discriminant(&spoiled.ops[wrong].answer));
            let refused = check(rules::<RingKind>(8, false), 5, &spoiled).err();
            let at = refused.map(|refused| refused.event);
            assert!(at.is_some_and(|at| at > 2 * wrong), "{:?}", spoiled.ops[wrong]);
        }
    }
    assert!(kinds.len() >= 9, "{} kinds of answer were spoiled", kinds.len());
}

// --- histories made by hand ---

fn put(offset: u64, answer: Result<bool, PutErrorKind>) -> (Step, Answer) {
    let step = Step::Put { part: 0, offset, bytes: 0, id: offset };
    (step, Answer::Put(answer.map_err(|kind| (kind, offset))))
}

fn take(n: usize, token: usize, offsets: &[u64]) -> (Step, Answer) {
    let step = Step::Take { part: 0, n, shared: false, now: None, token };
    let taken = offsets.iter().map(|&offset| (offset, offset, 1)).collect::<Vec<_>>();
    let answer = if taken.is_empty() { Err(TakeError::Empty) } else { Ok(taken) };
    (step, Answer::Taken(answer))
}

fn remove(offset: u64, answer: Result<u64, RemoveError>) -> (Step, Answer) {
    (Step::Remove { part: 0, offset }, Answer::Removed(answer))
}

fn min_offset(next: u64) -> (Step, Answer) {
    (Step::MinOffset { part: 0 }, Answer::Next(Ok(next)))
}

/// Calls by number, thread and what they are; events by number, the first of each is its call.
fn by_hand(calls: &[(usize, (Step, Answer))], events: &[usize]) -> bool {
    let ops = calls.iter().map(|(thread, (step, answer))| Op {
        thread: *thread,
        step: step.clone(),
        answer: answer.clone(),
    });
    let mut history = History { ops: ops.collect(), events: Vec::new() };
    for op in events {
        let called = history.events.contains(&Event::Call(*op));
        history.events.push(if called { Event::Return(*op) } else { Event::Call(*op) });
    }
    assert_eq!(history.events.len(), 2 * calls.len(), "every call returns");
    check(rules::<RingKind>(4, false), 0, &history).is_ok()
}

#[test]
fn two_takes_of_one_message_are_refused() {
    let calls =
        |second: &[u64]| [(0, put(0, Ok(true))), (1, take(1, 1, &[0])), (2, take(1, 2, second))];
    assert!(by_hand(&calls(&[]), &[0, 0, 1, 2, 1, 2]));
    assert!(!by_hand(&calls(&[0]), &[0, 0, 1, 2, 1, 2]));
}

#[test]
fn a_take_may_pass_by_only_what_came_beside_it() {
    let calls = [(0, put(0, Ok(true))), (0, put(1, Ok(false))), (1, take(1, 1, &[1]))];
    assert!(by_hand(&calls, &[2, 0, 0, 1, 1, 2]));
    assert!(!by_hand(&calls, &[0, 0, 2, 1, 1, 2]));
    let calls = [(0, put(0, Ok(true))), (1, take(1, 1, &[]))];
    assert!(by_hand(&calls, &[0, 1, 1, 0]), "a put is under way");
    assert!(!by_hand(&calls, &[0, 0, 1, 1]));
}

#[test]
fn a_floor_takes_what_a_shared_take_has_claimed() {
    let step = Step::Take { part: 0, n: 2, shared: true, now: None, token: 1 };
    let shared = (step, Answer::Taken(Ok(vec![(0, 0, 1)])));
    let step = Step::AdvanceFloor { part: 0, low: 2 };
    let floor = (step, Answer::Floor(Ok((2, vec![0], 1))));
    let puts = [(0, put(0, Ok(true))), (0, put(1, Ok(false)))];
    let calls = [&puts[..], &[(1, shared), (2, take(1, 2, &[])), (2, floor)]].concat();
    assert!(by_hand(&calls, &[0, 0, 1, 1, 2, 3, 3, 4, 4, 2]));
    assert!(!by_hand(&calls, &[0, 0, 1, 1, 2, 3, 3, 2, 4, 4]), "the floor came later");
}

#[test]
fn of_a_dry_take_and_a_put_one_knows() {
    let calls = |hint| {
        [(0, put(0, Ok(true))), (1, remove(0, Ok(1))), (1, take(1, 1, &[])), (2, put(1, Ok(hint)))]
    };
    assert!(by_hand(&calls(true), &[0, 0, 1, 1, 2, 3, 2, 3]));
    assert!(!by_hand(&calls(false), &[0, 0, 1, 1, 2, 3, 2, 3]));
    assert!(!by_hand(&calls(false), &[0, 0, 1, 1, 2, 2, 3, 3]));
}

#[test]
fn the_last_finisher_moves_the_watermark() {
    let calls = |one, other| {
        let puts = [(0, put(0, Ok(true))), (0, put(1, Ok(false)))];
        let removes = [(1, remove(0, Ok(one))), (2, remove(1, Ok(other)))];
        [puts, removes].concat()
    };
    let beside = [0, 0, 1, 1, 2, 3, 2, 3];
    assert!(by_hand(&calls(1, 2), &beside));
    assert!(by_hand(&calls(2, 2), &beside));
    assert!(by_hand(&calls(2, 0), &beside));
    assert!(!by_hand(&calls(1, 0), &beside), "nobody passed the second");
    let after = [0, 0, 1, 1, 2, 2, 3, 3];
    assert!(!by_hand(&calls(2, 2), &after), "finished before it was");
    assert!(by_hand(&calls(1, 2), &after));
}

#[test]
fn a_gap_is_sealed_or_filled() {
    let calls = |late, next| {
        let puts = [(0, put(0, Ok(true))), (0, put(2, Ok(false)))];
        let beside = [(1, put(1, late)), (2, remove(0, Ok(next))), (2, min_offset(next))];
        [&puts[..], &beside[..]].concat()
    };
    let events = [0, 0, 1, 1, 2, 3, 3, 4, 4, 2];
    assert!(by_hand(&calls(Ok(false), 1), &events));
    assert!(by_hand(&calls(Err(PutErrorKind::BelowWatermark), 2), &events));
    assert!(by_hand(&calls(Err(PutErrorKind::Passed), 1), &events), "freedom 2");
    assert!(!by_hand(&calls(Ok(false), 2), &events), "admitted below the watermark");
    let alone = [0, 0, 1, 1, 3, 3, 4, 4, 2, 2];
    assert!(!by_hand(&calls(Ok(false), 1), &alone), "nothing kept the gap open");
}

// --- real threads ---

const THREADS: usize = 3;
const CALLS: usize = 60;
/// So many calls, and the threads wait for each other: so that they meet.
const BESIDE: usize = 5;

/// A call that is worth making now.
fn choose(dice: &mut Dice, watermark: u64, at: usize, n: u64, leases: &[usize]) -> Step {
    let part = 0;
    let offset = watermark + dice.below(n);
    let token = match leases.len() as u64 {
        0 => 0,
        many => leases[dice.below(many) as usize],
    };
    match dice.below(100) {
        0..=21 => Step::Put { part, offset, bytes: 1, id: at as u64 },
        22..=29 => {
            let items = (0..1 + dice.below(4)).map(|i| (offset + i, 1, at as u64 * 10 + i + 7000));
            Step::PutBatch { part, items: items.collect(), panic_at: None }
        }
        30..=49 => {
            let (n, shared) = (1 + dice.below(3) as usize, dice.below(2) == 0);
            Step::Take { part, n, shared, now: None, token: at }
        }
        50..=74 if !leases.is_empty() => {
            let done = (0..n).map(|i| watermark + i).filter(|_| dice.below(2) == 0).collect();
            let how = match dice.below(8) {
                0..=2 => End::Commit,
                3 => End::Only { done, panic_at: None },
                4 => End::Where { done, panic_at: None },
                5 => End::Rollback,
                6 => End::Detach,
                _ => End::Values { take: dice.below(3) as usize },
            };
            Step::End { token, how }
        }
        75..=77 if !leases.is_empty() => Step::Finish { token, offset },
        78..=85 => Step::Remove { part, offset: watermark + dice.below(3) },
        86 => Step::Skip { part, offset },
        87 | 88 => Step::RemoveBatch { part, offsets: vec![offset, watermark], panic_at: None },
        89..=91 => Step::Revoke { part, offset: watermark + dice.below(3), now: 0, token: at },
        92 => Step::AdvanceTo { part, next: offset },
        93 => Step::AdvanceFloor { part, low: watermark + dice.below(2) },
        94 => Step::Head { part },
        95 => Step::EndOffset { part },
        96 => Step::Watermark { part },
        _ => Step::MinOffset { part },
    }
}

/// So many messages, put and finished, that what comes next is in a dense block of a skip window.
fn fill_a_block<R, C>(first: &mut Worker<R, C>)
where
    R: real::Assign<Window: inflight::Window<Value = message::Message>>,
    C: Fn() -> u64 + Clone,
{
    for from in (5..5 + 64).step_by(4) {
        let items = (from..from + 4).map(|offset| (offset, 1, 100_000 + offset)).collect();
        first.call(&Step::PutBatch { part: 0, items, panic_at: None });
        let offsets = (from..from + 4).collect();
        first.call(&Step::RemoveBatch { part: 0, offsets, panic_at: None });
    }
}

fn from_threads<K: Kind, const N: usize>(seed: u64, callers_seal: bool) {
    let ledger = Ledger::new();
    let window = K::window::<_, N>(seed as usize % VARIANTS, callers_seal);
    let clock = AtomicU64::new(0);
    let tick = || clock.fetch_add(1, Ordering::AcqRel);
    let mut first = Worker::new(&*window, &ledger, 5, tick);
    if !seed.is_multiple_of(3) {
        fill_a_block(&mut first);
    }
    let barrier = Barrier::new(THREADS);
    let run = |mut worker: Worker<_, _>, thread: usize| {
        let mut dice = Dice(seed * 97 + thread as u64 + 1);
        for at in 0..CALLS {
            if at % BESIDE == 0 {
                barrier.wait();
            }
            let real: &real::Real<_> = worker.real();
            let watermark = real.last().watermark().map_or(5, |next| next.get());
            let leases = real.leases();
            let step = choose(&mut dice, watermark, thread * CALLS + at, N as u64, &leases);
            worker.call(&step);
        }
        worker
    };
    let mut workers: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (1..=THREADS)
            .map(|thread| {
                let worker = first.beside(thread);
                scope.spawn(move || run(worker, thread))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    workers.iter_mut().for_each(Worker::end);
    first.call(&Step::Close { part: 0 });
    first.call(&Step::MinOffset { part: 0 });
    let left = Step::Take { part: 0, n: 1000, shared: false, now: None, token: 1_000_000 };
    first.call(&left);
    first.end();
    workers.push(first);
    accepted(rules::<K>(N, callers_seal), 5, &history(workers));
}

fn threads<K: Kind>() {
    for seed in 1..=histories(120) {
        from_threads::<K, 4>(seed, seed % 2 == 0);
        from_threads::<K, 8>(seed, seed % 4 < 2);
    }
}

#[test]
fn threads_on_a_ring_are_linearizable() {
    threads::<RingKind>();
}

#[test]
fn threads_on_a_skip_window_are_linearizable() {
    threads::<SkipKind>();
}
