//! Any run of calls on a batch watermark, one after the other, against a model in plain collections.
#![no_main]

use arbitrary::Arbitrary;
use inflight::{BatchError, BatchWatermark, BeginError, Next};
use libfuzzer_sys::fuzz_target;

const N: usize = 4;

/// One call; batches are counted back from the last one begun.
#[derive(Arbitrary, Debug)]
enum Call {
    Begin(u8),
    End(u8, u16),
    Fail(u8),
    Retry(u8),
    Skip(u8),
    Assign(u16),
}

#[derive(Arbitrary, Debug)]
struct Input {
    lap: u16,
    at: u32,
    calls: Vec<Call>,
}

/// What a batch should be: its assignment, its open and failed parts, its highest offset.
struct Batch {
    generation: usize,
    open: usize,
    failed: usize,
    next: u64,
}

struct Model {
    generation: usize,
    start: u64,
    value: u64,
    batches: Vec<Batch>,
    front: usize,
}

impl Model {
    fn find(&mut self, which: usize) -> Result<&mut Batch, BatchError> {
        let batch = &mut self.batches[which];
        if batch.generation != self.generation {
            Err(BatchError::Stale)
        } else if batch.open + batch.failed == 0 {
            Err(BatchError::Finished)
        } else {
            Ok(batch)
        }
    }

    fn open(&mut self, which: usize) -> Result<&mut Batch, BatchError> {
        self.find(which)
            .and_then(|one| if one.open > 0 { Ok(one) } else { Err(BatchError::Failed) })
    }

    fn failed(&mut self, which: usize) -> Result<&mut Batch, BatchError> {
        let batch = self.find(which)?;
        if batch.failed > 0 { Ok(batch) } else { Err(BatchError::NotFailed) }
    }

    fn slide(&mut self) -> Option<u64> {
        let from = self.front;
        while let Some(batch) = self.batches.get(self.front) {
            if batch.open + batch.failed > 0 {
                break;
            }
            self.value = self.value.max(batch.next);
            self.front += 1;
        }
        (self.front > from).then_some(self.value)
    }
}

fuzz_target!(|input: Input| {
    let watermark = BatchWatermark::<N>::starting_at(input.lap.into(), input.at.into());
    let mut part = watermark.assign(0);
    let (mut model, mut ids) =
        (Model { generation: 0, start: 0, value: 0, batches: Vec::new(), front: 0 }, Vec::new());
    for call in input.calls {
        let which = |back: u8| ids.len().checked_sub(1 + usize::from(back) % 16);
        match call {
            Call::Begin(parts) => {
                let parts = usize::from(parts) % 5;
                let begun = part.begin(parts);
                if parts == 0 {
                    assert_eq!(part.end(begun.unwrap(), 1), Err(BatchError::Finished));
                } else if model.batches.len() - model.front == N {
                    assert_eq!(begun, Err(BeginError::Full));
                } else {
                    ids.push(begun.unwrap());
                    let (generation, next) = (model.generation, model.start);
                    model.batches.push(Batch { generation, open: parts, failed: 0, next });
                }
            }
            Call::End(back, ahead) => {
                let Some(which) = which(back) else { continue };
                let next = (model.start + u64::from(ahead)).saturating_sub(100);
                let expected = model.open(which).map(|batch| {
                    batch.open -= 1;
                    batch.next = batch.next.max(next);
                });
                let expected = expected.map(|()| model.slide());
                assert_eq!(part.end(ids[which], next).map(|next| next.map(Next::get)), expected);
            }
            Call::Fail(back) => {
                let Some(which) = which(back) else { continue };
                let expected = model.open(which).map(|batch| {
                    batch.open -= 1;
                    batch.failed += 1;
                });
                assert_eq!(part.fail(ids[which]), expected);
            }
            Call::Retry(back) => {
                let Some(which) = which(back) else { continue };
                let expected = model.failed(which).map(|batch| {
                    batch.failed -= 1;
                    batch.open += 1;
                });
                assert_eq!(part.retry(ids[which]), expected);
            }
            Call::Skip(back) => {
                let Some(which) = which(back) else { continue };
                let expected = model.failed(which).map(|batch| batch.failed -= 1);
                let expected = expected.map(|()| model.slide());
                assert_eq!(part.skip(ids[which]).map(|next| next.map(Next::get)), expected);
            }
            Call::Assign(start) => {
                let old = part;
                part = watermark.assign(start.into());
                assert!(old.watermark().is_err());
                model.generation += 1;
                (model.start, model.value) = (start.into(), start.into());
                model.front = model.batches.len();
            }
        }
        assert_eq!(part.watermark().unwrap().get(), model.value);
        let head = part.head().unwrap().map(|head| head.id);
        assert_eq!(head, ids.get(model.front).copied());
    }
});
