//! Batches: the cases from the field, and any run of calls against a model in plain collections.

use inflight::{BatchError, BatchId, BatchRef, BatchWatermark, Batches, BeginError, Next};
use proptest::prelude::*;

const NARROW: bool = cfg!(any(target_pointer_width = "32", inflight_word32));
const N: usize = 4;
const MOST_PARTS: usize = if NARROW { 62 } else { 16_382 };
const FAR: u64 = if NARROW { 1 << 40 } else { 1 << 62 };

/// Places to begin at: numbers, laps and positions about to wrap.
fn starts() -> Vec<(u64, u64)> {
    let n = N as u64;
    if NARROW {
        let two = 1 << 32;
        let laps = [1 << 14, 1 << 13, two / n, two / 2 / n];
        let mut starts: Vec<_> = laps.iter().map(|lap| (lap - 3, two - 5)).collect();
        starts.extend([(0, 0), (0, two / 2 - 5), (0, 3 * two / 2 - 5)]);
        starts
    } else {
        vec![(0, 0), ((1 << 22) - 3, 0), ((1 << 21) - 3, 0), (0, u64::from(u32::MAX) - 5)]
    }
}

fn said(next: Option<u64>) -> Result<Option<u64>, BatchError> {
    Ok(next)
}

fn end<R: BatchRef>(of: &Batches<R>, id: BatchId, next: u64) -> Result<Option<u64>, BatchError> {
    of.end(id, next).map(|next| next.map(Next::get))
}

#[test]
fn case_30_a_later_batch_waits_for_an_earlier_one() {
    let watermark = BatchWatermark::<N>::new();
    let batches = watermark.assign(0);
    let (one, two) = (batches.begin(2).unwrap(), batches.begin(1).unwrap());
    assert_eq!(end(&batches, two, 200), said(None));
    assert_eq!(end(&batches, one, 90), said(None));
    assert_eq!(batches.watermark().unwrap().get(), 0);
    assert_eq!(end(&batches, one, 100), said(Some(200)));
    assert_eq!(batches.watermark().unwrap().get(), 200);
}

#[test]
fn case_31_a_part_of_a_later_batch_is_not_yet_the_batch() {
    let watermark = BatchWatermark::<N>::new();
    let batches = watermark.assign(0);
    let (one, two) = (batches.begin(1).unwrap(), batches.begin(2).unwrap());
    assert_eq!(end(&batches, two, 200), said(None));
    assert_eq!(end(&batches, one, 100), said(Some(100)));
    assert_eq!(end(&batches, two, 150), said(Some(200)));
}

#[test]
fn case_32_an_empty_batch_holds_up_nothing() {
    let watermark = BatchWatermark::<1>::new();
    let batches = watermark.assign(0);
    for _ in 0..10 {
        let empty = batches.begin(0).unwrap();
        assert_eq!(end(&batches, empty, 500), Err(BatchError::Finished));
    }
    let one = batches.begin(1).unwrap();
    batches.begin(0).unwrap();
    assert_eq!(end(&batches, one, 7), said(Some(7)));
    assert_eq!(batches.head().unwrap(), None);
}

#[test]
fn ends_beyond_the_last_part_are_errors_and_change_nothing() {
    let watermark = BatchWatermark::<N>::new();
    let batches = watermark.assign(0);
    let (one, two) = (batches.begin(1).unwrap(), batches.begin(1).unwrap());
    assert_eq!(end(&batches, two, 20), said(None));
    // Complete and not passed, then passed, then its slot used again.
    assert_eq!(end(&batches, two, 900), Err(BatchError::Finished));
    assert_eq!(end(&batches, one, 10), said(Some(20)));
    for round in 0..3 * N as u64 {
        assert_eq!(end(&batches, two, 900), Err(BatchError::Finished));
        assert_eq!(batches.fail(two), Err(BatchError::Finished));
        assert_eq!(batches.retry(two), Err(BatchError::Finished));
        let next = batches.begin(1).unwrap();
        assert_eq!(end(&batches, two, 900), Err(BatchError::Finished));
        assert_eq!(end(&batches, next, 30 + round), said(Some(30 + round)));
    }
}

#[test]
fn too_many_parts_and_too_far_offsets_are_refused() {
    let watermark = BatchWatermark::<N>::new();
    let batches = watermark.assign(5);
    assert_eq!(batches.begin(MOST_PARTS + 1), Err(BeginError::TooManyParts));
    let id = batches.begin(MOST_PARTS).unwrap();
    assert_eq!(end(&batches, id, FAR + 6), Err(BatchError::OutOfRange));
    assert_eq!(end(&batches, id, u64::MAX), Err(BatchError::OutOfRange));
    for _ in 1..MOST_PARTS {
        assert_eq!(end(&batches, id, 0), said(None));
    }
    assert_eq!(end(&batches, id, FAR + 5), said(Some(FAR + 5)));
}

#[test]
fn every_part_of_a_batch_can_fail() {
    let watermark = BatchWatermark::<N>::new();
    let batches = watermark.assign(0);
    let id = batches.begin(MOST_PARTS).unwrap();
    for _ in 0..MOST_PARTS {
        batches.fail(id).unwrap();
    }
    let head = batches.head().unwrap().unwrap();
    assert_eq!((head.id, head.open, head.failed), (id, 0, MOST_PARTS));
    for _ in 1..MOST_PARTS {
        assert_eq!(batches.skip(id), Ok(None));
    }
    // Nothing was said, so nothing is raised; but the batch is passed.
    assert_eq!(batches.skip(id).unwrap().unwrap().get(), 0);
    assert_eq!(batches.skip(id), Err(BatchError::Finished));
}

#[test]
fn offsets_of_an_ended_assignment_raise_nothing_in_the_next() {
    for (lap, at) in starts() {
        let watermark = BatchWatermark::<N>::starting_at(lap, at);
        let old = watermark.assign(0);
        let id = old.begin(2).unwrap();
        assert_eq!(end(&old, id, 1_000_000), said(None));
        let new = watermark.assign(0);
        for next in 1..2 * N as u64 {
            let now = new.begin(1).unwrap();
            assert_eq!(end(&new, id, 2_000_000), Err(BatchError::Stale));
            assert_eq!(end(&old, id, 2_000_000), Err(BatchError::Stale));
            assert_eq!(end(&new, now, next), said(Some(next)));
        }
        assert_eq!(old.begin(0), Err(BeginError::Stale));
        assert_eq!(old.begin(1), Err(BeginError::Stale));
        assert!(old.watermark().is_err() && old.head().is_err());
    }
}

#[derive(Clone, Debug)]
enum Call {
    Begin(usize),
    End(usize, u64),
    Fail(usize),
    Retry(usize),
    Skip(usize),
    Assign(u64),
}

fn call() -> impl Strategy<Value = Call> {
    // Mostly the batches that are open.
    let which = prop_oneof![8 => 0..6_usize, 1 => 6..40_usize];
    prop_oneof![
        6 => (0..4_usize).prop_map(Call::Begin),
        10 => (which.clone(), 0..400_u64).prop_map(|(which, next)| Call::End(which, next)),
        3 => which.clone().prop_map(Call::Fail),
        2 => which.clone().prop_map(Call::Retry),
        2 => which.prop_map(Call::Skip),
        1 => prop_oneof![0..100_u64, Just(u64::MAX - 300)].prop_map(Call::Assign),
    ]
}

#[derive(Clone, Debug)]
struct Modelled {
    generation: usize,
    open: usize,
    failed: usize,
    next: u64,
    empty: bool,
}

/// What batches should be.
struct Model {
    generation: usize,
    start: u64,
    value: u64,
    batches: Vec<Modelled>,
    /// The first that is not passed.
    front: usize,
}

impl Model {
    fn assign(&mut self, start: u64) {
        (self.start, self.value) = (start, start);
        self.generation += 1;
        self.front = self.batches.len();
    }

    fn begin(&mut self, parts: usize) -> Result<(), BeginError> {
        let waiting = self.batches[self.front..].iter().filter(|batch| !batch.empty).count();
        if parts > 0 && waiting == N {
            return Err(BeginError::Full);
        }
        self.batches.push(Modelled {
            generation: self.generation,
            open: parts,
            failed: 0,
            next: self.start,
            empty: parts == 0,
        });
        Ok(())
    }

    fn slide(&mut self) -> Option<u64> {
        let mut passed = false;
        while let Some(batch) =
            self.batches.get(self.front).filter(|one| one.open + one.failed == 0)
        {
            passed |= !batch.empty;
            self.value = self.value.max(batch.next);
            self.front += 1;
        }
        passed.then_some(self.value)
    }

    fn batch(&mut self, which: usize) -> Result<&mut Modelled, BatchError> {
        let batch = &mut self.batches[which];
        if batch.generation != self.generation && !batch.empty {
            return Err(BatchError::Stale);
        }
        if batch.open + batch.failed == 0 { Err(BatchError::Finished) } else { Ok(batch) }
    }

    fn part(&mut self, which: usize) -> Result<&mut Modelled, BatchError> {
        let batch = self.batch(which)?;
        if batch.open == 0 { Err(BatchError::Failed) } else { Ok(batch) }
    }

    fn failed(&mut self, which: usize) -> Result<&mut Modelled, BatchError> {
        let batch = self.batch(which)?;
        if batch.failed == 0 { Err(BatchError::NotFailed) } else { Ok(batch) }
    }
}

fn run<R: BatchRef>(calls: &[Call], assign: impl Fn(u64) -> Batches<R>) {
    let mut model = Model { generation: 0, start: 0, value: 0, batches: Vec::new(), front: 0 };
    let mut ids = Vec::new();
    let mut handles = vec![assign(0)];
    for call in calls {
        let part = handles.last().unwrap().clone();
        // Counted from the last one begun.
        let which = |back: &usize| ids.len().checked_sub(1 + back);
        match call {
            Call::Begin(parts) => {
                let begun = part.begin(*parts);
                assert_eq!(begun.map(|_| ()), model.begin(*parts));
                ids.extend(begun);
            }
            Call::End(back, ahead) => {
                let Some(which) = which(back) else { continue };
                let next = model.start.saturating_add(*ahead).saturating_sub(50);
                let expected = match model.part(which) {
                    Ok(batch) => {
                        batch.open -= 1;
                        batch.next = batch.next.max(next);
                        let complete = batch.open + batch.failed == 0;
                        Ok(complete.then(|| model.slide()).flatten())
                    }
                    Err(error) => Err(error),
                };
                assert_eq!(end(&part, ids[which], next), expected);
            }
            Call::Fail(back) => {
                let Some(which) = which(back) else { continue };
                let expected = model.part(which).map(|batch| {
                    (batch.open, batch.failed) = (batch.open - 1, batch.failed + 1);
                });
                assert_eq!(part.fail(ids[which]), expected);
            }
            Call::Retry(back) => {
                let Some(which) = which(back) else { continue };
                let expected = model.failed(which).map(|batch| {
                    (batch.open, batch.failed) = (batch.open + 1, batch.failed - 1);
                });
                assert_eq!(part.retry(ids[which]), expected);
            }
            Call::Skip(back) => {
                let Some(which) = which(back) else { continue };
                let expected = match model.failed(which) {
                    Ok(batch) => {
                        batch.failed -= 1;
                        let complete = batch.open + batch.failed == 0;
                        Ok(complete.then(|| model.slide()).flatten())
                    }
                    Err(error) => Err(error),
                };
                let skipped = part.skip(ids[which]);
                assert_eq!(skipped.map(|next| next.map(Next::get)), expected);
            }
            Call::Assign(start) => {
                handles.push(assign(*start));
                model.assign(*start);
            }
        }
        let part = handles.last().unwrap();
        assert_eq!(part.watermark().unwrap().get(), model.value);
        let head = model.batches[model.front..].iter().position(|one| one.open + one.failed > 0);
        let head = head
            .map(|at| at + model.front)
            .map(|at| (ids[at], model.batches[at].open, model.batches[at].failed));
        let seen = part.head().unwrap().map(|head| (head.id, head.open, head.failed));
        assert_eq!(seen, head);
        for old in &handles[..handles.len() - 1] {
            assert!(old.watermark().is_err());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn any_run_of_calls_is_as_the_model_says(
        calls in prop::collection::vec(call(), 0..120),
        start in 0..starts().len(),
    ) {
        let (lap, at) = starts()[start];
        let watermark = BatchWatermark::<N>::starting_at(lap, at);
        run(&calls, |start| watermark.assign(start));
        let boxed = inflight::BoxedBatchWatermark::new(N - 1);
        run(&calls, |start| boxed.assign(start));
    }
}

#[test]
fn threads_end_every_batch_and_say_each_advance_once() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    const ROUNDS: u64 = 3000;
    let watermark = Arc::new(BatchWatermark::<8>::new());
    let batches = watermark.assign_owned(100);
    let said = Arc::new(AtomicU64::new(100));
    // The highest offset of which everything below is done, as the workers know it.
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let (batches, said) = (batches.clone(), Arc::clone(&said));
            std::thread::spawn(move || {
                let mut done = 0;
                while done < ROUNDS {
                    let Ok(id) = batches.begin(2) else {
                        std::thread::yield_now();
                        continue;
                    };
                    done += 1;
                    let floor = batches.watermark().unwrap().get();
                    for next in [floor + 1, floor + 2] {
                        if let Some(next) = batches.end(id, next).unwrap() {
                            assert!(batches.watermark().unwrap() >= next);
                            said.fetch_max(next.get(), Ordering::Relaxed);
                        }
                    }
                    assert_eq!(batches.end(id, 1 << 30), Err(BatchError::Finished));
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(batches.head().unwrap(), None);
    // Who passed the last said it.
    assert_eq!(said.load(Ordering::Relaxed), batches.watermark().unwrap().get());
}
