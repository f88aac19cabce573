//! Random calls on a window and on the model, compared after every one of them: for the property
//! tests and for the fuzz targets.

use std::cell::RefCell;

use inflight::{RemoveError, Snapshot, Window};

use super::driver::{Answer, Driver, End, Fault, Step};
use super::model::Model;
use super::real::Real;
use super::{Kind, Ledger, Message};

thread_local! {
    /// The calls of the last failure, for whoever reports it.
    pub static TRACE: RefCell<Vec<(Step, Fault)>> = const { RefCell::new(Vec::new()) };
}

/// One call, not yet made to fit the state of the window: numbers that [`Script::next`] reads.
pub type Raw = [u16; 6];

/// Turns numbers into calls that are worth making.
pub struct Script<'a> {
    pub raw: &'a Raw,
    pub used: usize,
}

impl Script<'_> {
    /// A number below `n`.
    fn below(&mut self, n: usize) -> usize {
        let (at, again) = (self.used % self.raw.len(), self.used / self.raw.len());
        self.used += 1;
        // Later readings of a number are other numbers.
        (self.raw[at].rotate_left(5 * again as u32) as usize) % n.max(1)
    }

    fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == one_in - 1
    }

    fn offset(&mut self, model: &Model, n: usize, far: u64) -> u64 {
        let (watermark, end) = (model.watermark(), model.end());
        let offsets = model.offsets();
        let n = n as u64;
        match self.below(16) {
            0..=5 => end,
            6 | 7 if !offsets.is_empty() => offsets[self.below(offsets.len())],
            6..=9 => watermark.saturating_add(self.below(n as usize + 2) as u64),
            10 => end.saturating_add(1 + self.below(4) as u64),
            11 => watermark.saturating_sub(1 + self.below(4) as u64),
            12 => watermark.saturating_add(n - 1 + self.below(3) as u64),
            13 => end.saturating_add(self.below(3 * n as usize) as u64),
            14 => match self.below(8) {
                0 => watermark.saturating_add(far - 1),
                1 => watermark.saturating_add(far),
                2 => u64::MAX - self.below(2) as u64,
                _ => end,
            },
            _ => end.saturating_sub(1),
        }
    }

    /// Some of these, perhaps one that is not among them.
    fn some_of(&mut self, offsets: &[u64]) -> Vec<u64> {
        let mask = self.below(1 << 16);
        let mut some: Vec<u64> = offsets
            .iter()
            .enumerate()
            .filter(|(index, _)| mask >> (index % 16) & 1 == 1)
            .map(|(_, &offset)| offset)
            .collect();
        match self.below(6) {
            0 => some.push(self.below(100) as u64),
            1 => some.reverse(),
            2 => some.extend(some.first().copied()),
            _ => {}
        }
        some
    }

    fn start(&mut self, model: &Model) -> u64 {
        match self.below(6) {
            0 => 0,
            1 => (1 << 32) - 3,
            2 => u64::MAX - 40,
            3 => model.end(),
            4 => model.watermark(),
            _ => self.below(1000) as u64,
        }
    }

    pub fn next(&mut self, model: &Model, n: usize, far: u64, token: usize, ids: &mut u64) -> Step {
        let last = model.parts() - 1;
        let (leases, receipts) = (model.leases().collect::<Vec<_>>(), model.receipts());
        let kind = self.below(100);
        let part = if self.chance(12) { self.below(last + 1) } else { last };
        let mut id = || {
            *ids += 1;
            *ids
        };
        match kind {
            0..=21 => {
                let (offset, bytes) = (self.offset(model, n, far), self.below(300));
                Step::Put { part, offset, bytes, id: id() }
            }
            22..=31 => {
                let count = self.below(n.min(12) * 2 + 1);
                let first = self.offset(model, n, far);
                let shape = self.below(5);
                let items = (0..count as u64).map(|index| {
                    let step = match shape {
                        0 => index / 2,
                        1 => 2 * index,
                        2 => count as u64 - index,
                        _ => index,
                    };
                    (first.saturating_add(step), self.below(50), id())
                });
                let items: Vec<_> = items.collect();
                let panic_at = self.chance(12).then(|| self.below(count + 1));
                Step::PutBatch { part, items, panic_at }
            }
            32..=49 => {
                let (n, shared) = (self.below(n.min(20) + 2), self.chance(2));
                let now = self.chance(2).then(|| self.below(1000) as u64);
                Step::Take { part, n, shared, now, token }
            }
            61..=65 if !receipts.is_empty() => {
                let token = receipts[self.below(receipts.len())];
                match self.below(6) {
                    0 => Step::DropDetached { token },
                    1 => Step::TouchDetached { token, now: self.below(1000) as u64 },
                    _ => Step::GiveBack { token },
                }
            }
            50..=69 if !leases.is_empty() => {
                let (token, current, offsets) = &leases[self.below(leases.len())];
                if model.is_shared(*token) && self.chance(4) {
                    return Step::IntoDetached { token: *token };
                }
                let done = self.some_of(offsets);
                // Whose code a stale lease still asks is nobody's business.
                let panic_at = (*current && self.chance(10)).then(|| self.below(offsets.len() + 1));
                let how = match self.below(20) {
                    0..=5 => End::Commit,
                    6..=8 => End::Only { done, panic_at },
                    9 | 10 => End::Where { done, panic_at },
                    11 | 12 => End::Rollback,
                    13 | 14 => End::Detach,
                    15 | 16 => End::Drop,
                    17 => End::Forget,
                    _ => End::Values { take: self.below(offsets.len() + 2) },
                };
                Step::End { token: *token, how }
            }
            70..=73 if !leases.is_empty() => {
                let (token, _, offsets) = &leases[self.below(leases.len())];
                let offset = match offsets.is_empty() || self.chance(8) {
                    true => model.watermark(),
                    false => offsets[self.below(offsets.len())],
                };
                Step::Finish { token: *token, offset }
            }
            74 if self.chance(2) => {
                let offsets = model.offsets();
                let offset = match offsets.is_empty() || self.chance(4) {
                    true => self.offset(model, n, far),
                    false => offsets[self.below(offsets.len())],
                };
                Step::TouchOne { part, offset, now: self.below(1000) as u64 }
            }
            74 if !leases.is_empty() => {
                let (token, ..) = &leases[self.below(leases.len())];
                Step::Touch { token: *token, now: self.below(1000) as u64 }
            }
            75..=81 => {
                let offsets = model.offsets();
                let offset = match offsets.is_empty() || self.chance(4) {
                    true => self.offset(model, n, far),
                    false => offsets[self.below(offsets.len())],
                };
                match self.chance(4) {
                    true => Step::Skip { part, offset },
                    false => Step::Remove { part, offset },
                }
            }
            82..=84 => {
                let mut offsets = self.some_of(&model.offsets());
                offsets.push(self.offset(model, n, far));
                let panic_at = self.chance(12).then(|| self.below(offsets.len() + 1));
                Step::RemoveBatch { part, offsets, panic_at }
            }
            85..=88 => {
                let offsets = model.offsets();
                let offset = match offsets.is_empty() || self.chance(6) {
                    true => self.offset(model, n, far),
                    false => offsets[self.below(offsets.len())],
                };
                Step::Revoke { part, offset, now: self.below(1000) as u64, token }
            }
            89 | 90 => Step::AdvanceTo { part, next: self.offset(model, n, far) },
            91 => Step::MinOffset { part },
            92 => Step::AdvanceFloor { part, low: self.offset(model, n, far) },
            93 | 94 => Step::Head { part },
            95 => Step::Stalled { part, now: self.below(1200) as u64, age: self.below(300) as u64 },
            96 if self.chance(3) => Step::Close { part },
            96 if self.chance(2) => match self.chance(2) {
                true => Step::Watermark { part },
                false => Step::EndOffset { part },
            },
            97 | 98 if self.chance(2) => Step::Assign { start: self.start(model) },
            _ => {
                Step::Take { part, n: 1 + self.below(3), shared: self.chance(2), now: None, token }
            }
        }
    }

    fn restarts(&mut self) -> bool {
        self.chance(64)
    }

    fn fault(&mut self, step: &Step, model: &Model, next_id: u64) -> Fault {
        if !self.chance(10) {
            return Fault::None;
        }
        if let Step::PutBatch { panic_at: Some(_), .. }
        | Step::RemoveBatch { panic_at: Some(_), .. }
        | Step::End { how: End::Only { panic_at: Some(_), .. }, .. }
        | Step::End { how: End::Where { panic_at: Some(_), .. }, .. } = step
        {
            return Fault::None;
        }
        let mut ids: Vec<u64> = model.live().keys().copied().collect();
        if let Step::PutBatch { items, .. } = step {
            ids.extend(items.iter().map(|&(_, _, id)| id));
        }
        let id = ids.get(self.below(ids.len())).copied().unwrap_or(next_id);
        match step {
            Step::Take { shared: true, .. } => Fault::Clone(id),
            Step::Take { .. } => Fault::None,
            _ => Fault::Drop(id),
        }
    }
}

/// Takes a snapshot, checks what it says, and begins again from it.
fn restart<W: Window<Value = Message>>(
    real: &Real<&W>,
    model: &mut Model,
    room: usize,
) -> Vec<(Step, Fault)> {
    let mut bytes = vec![0; room];
    model.slide();
    let Ok(taken) = real.last().snapshot(&mut bytes) else {
        assert!(room < 16, "no room in {room} bytes");
        return Vec::new();
    };
    bytes.truncate(taken.len);
    model.check_snapshot(&bytes, taken.is_whole);
    let start = Snapshot::parse(&bytes).expect("what a window wrote").watermark().get();
    let part = model.parts();
    vec![(Step::Assign { start }, Fault::None), (Step::Restore { part, bytes }, Fault::None)]
}

/// The offsets a step may put, remove or revoke.
fn offsets(step: &Step) -> Vec<u64> {
    match step {
        Step::Put { offset, .. }
        | Step::Remove { offset, .. }
        | Step::Skip { offset, .. }
        | Step::TouchOne { offset, .. }
        | Step::Revoke { offset, .. } => vec![*offset],
        Step::PutBatch { items, .. } => items.iter().map(|item| item.0).collect(),
        Step::RemoveBatch { offsets, .. } => offsets.clone(),
        _ => Vec::new(),
    }
}

/// The skip window may seal a gap when a message near it is finished: in one batch with that
/// message, the gap's answer is free. (Removed alone, it is asked about first.)
fn leave_out_gaps(step: &mut Step, model: &Model) {
    if let Step::RemoveBatch { offsets, panic_at, .. } = step
        && offsets.len() > 1
    {
        offsets.retain(|&offset| !model.uncertain(offset));
        *panic_at = panic_at.map(|at| at.min(offsets.len()));
    }
}

/// Makes the calls on a window of `N` (if that is bounded), a [`super::VARIANTS`] of it, and on the
/// model.
pub fn run<K: Kind, const N: usize>(variant: usize, callers_seal: bool, start: u64, raws: &[Raw]) {
    let ledger = Ledger::new();
    let mut window = K::window::<_, N>(variant, callers_seal);
    let far = K::far(N);
    let mut model = Model::new(K::capacity(N), far, callers_seal, start);
    let mut real = Real::new(&*window, &ledger, start);
    let mut ids = 0;
    let mut trace = Vec::new();
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        assert_eq!(real.view(), model.view());
        for (index, raw) in raws.iter().enumerate() {
            let mut script = Script { raw, used: 0 };
            let mut step = script.next(&model, N, far, index, &mut ids);
            if K::capacity(N).is_none() {
                leave_out_gaps(&mut step, &model);
            }
            let fault = script.fault(&step, &model, ids);
            let steps = match script.restarts() {
                false => vec![(step, fault)],
                true => restart(&real, &mut model, script.below(80)),
            };
            for (step, fault) in steps {
                for offset in offsets(&step) {
                    if !model.uncertain(offset) {
                        continue;
                    }
                    match real.last().remove(offset) {
                        Err(RemoveError::Passed) => model.sealed(offset),
                        Err(RemoveError::Unknown) => model.open(offset),
                        other => panic!("remove of a gap: {other:?}"),
                    }
                    model.settle(real.last().watermark().unwrap().get());
                }
                if matches!(step, Step::Put { .. } | Step::PutBatch { .. }) && model.is_free(&step)
                {
                    continue;
                }
                trace.push((step, fault));
                let (step, fault) = trace.last().unwrap();
                let answers: (Answer, Answer) = (real.step(step, *fault), model.step(step, *fault));
                assert_eq!(answers.0, answers.1, "answer, the window's and the model's");
                model.settle(real.last().watermark().unwrap().get());
                assert_eq!(real.view(), model.view(), "view, the window's and the model's");
                assert_eq!(ledger.live(), *model.live(), "what is alive");
            }
        }
    }));
    if let Err(panic) = result {
        TRACE.set(trace);
        std::panic::resume_unwind(panic);
    }
    // The end: every lease ends, some forgotten, and what is left is handed out once.
    let leases: Vec<_> = model.leases().map(|(token, ..)| token).collect();
    for token in leases {
        let how = if token % 3 == 0 { End::Forget } else { End::Drop };
        let step = Step::End { token, how };
        assert_eq!(real.step(&step, Fault::None), model.step(&step, Fault::None));
    }
    drop(real);
    let left: Vec<(u64, u64)> =
        window.drain().map(|(offset, message)| (offset, message.id)).collect();
    assert_eq!(left, model.left());
    let stored = model.stored();
    let leaked = model.live().values().sum::<usize>() - stored;
    drop(window);
    assert_eq!(ledger.total(), leaked, "alive beyond the window: clones of forgotten leases");
}
