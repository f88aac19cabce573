//! Any run of calls on a ring, one after the other, against a model in plain collections.
//!
//! Not for interleavings: those are the models' (loom) and the stress tests'. What it finds is
//! an answer, a counter or a drop that is wrong after an unlikely history.
#![no_main]

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use arbitrary::Arbitrary;
use inflight::{
    AdvanceError, Assignment, Lease, PutErrorKind, RemoveError, RevokeError, RingWindow,
    SharedLease, Stage, TakeError, Window,
};
use libfuzzer_sys::fuzz_target;

const N: u64 = 8;

/// One call. Offsets are distances from the model's watermark, so that most of them matter.
#[derive(Arbitrary, Debug)]
enum Call {
    Put(i8, u8),
    PutFar(u16),
    PutBatch(i8, u8),
    Take(u8),
    TakeShared(u8),
    Commit(u8),
    CommitOnly(u8, u8),
    CommitWhere(u8, u8),
    Rollback(u8),
    Drop(u8),
    Forget(u8),
    Detach(u8),
    FinishOne(u8, i8),
    IntoValues(u8, u8),
    Remove(i8),
    RemoveBatch(i8, u8),
    Revoke(i8),
    AdvanceTo(i16),
    MinOffset,
    Close,
    Assign(u8),
}

#[derive(Arbitrary, Debug)]
struct Input {
    callers_seal: bool,
    lap: u32,
    start: u16,
    calls: Vec<Call>,
}

/// A message that knows how many of its kind are alive.
struct Counted(u64, Rc<Cell<isize>>);

impl Counted {
    fn new(offset: u64, alive: &Rc<Cell<isize>>) -> Self {
        alive.set(alive.get() + 1);
        Self(offset, Rc::clone(alive))
    }
}

impl Clone for Counted {
    fn clone(&self) -> Self {
        Self::new(self.0, &self.1)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.set(self.1.get() - 1);
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Doing {
    Ready,
    Lent,
    /// With the attempt that its shared lease knows.
    Held(u32),
}

struct Message {
    doing: Doing,
    bytes: u64,
    attempt: u32,
}

/// What a window should be.
struct Model {
    callers_seal: bool,
    watermark: u64,
    end: u64,
    seal: u64,
    messages: BTreeMap<u64, Message>,
    /// Finished above the watermark.
    finished: BTreeSet<u64>,
    base: u64,
    /// Of each slot, below which offset it refuses what was never put: a far seal that something
    /// unfinished stops has sealed the slots before it for good.
    floors: [u64; N as usize],
    closed: bool,
    idle: bool,
}

impl Model {
    fn new(callers_seal: bool, start: u64) -> Self {
        Self {
            callers_seal,
            watermark: start,
            end: start,
            seal: start,
            messages: BTreeMap::new(),
            finished: BTreeSet::new(),
            base: start,
            floors: [start; N as usize],
            closed: false,
            idle: true,
        }
    }

    fn slot(&self, offset: u64) -> usize {
        (offset.saturating_sub(self.base) % N) as usize
    }

    /// Finished or sealed.
    fn is_passed(&self, offset: u64) -> bool {
        offset < self.watermark
            || self.finished.contains(&offset)
            || (offset - self.watermark < N && offset < self.floors[self.slot(offset)])
    }

    fn slide(&mut self) -> u64 {
        let seal = if self.callers_seal { self.seal } else { self.end };
        let far = seal > self.watermark + N;
        while self.watermark < self.end
            && !self.messages.contains_key(&self.watermark)
            && (self.finished.contains(&self.watermark) || self.watermark < seal)
        {
            if far {
                let slot = self.slot(self.watermark);
                self.floors[slot] = seal;
            }
            self.finished.remove(&self.watermark);
            self.watermark += 1;
        }
        self.watermark
    }

    fn put(&mut self, offset: u64, bytes: u64) -> Result<bool, PutErrorKind> {
        if self.closed {
            return Err(PutErrorKind::Closed);
        }
        if offset < self.watermark {
            return Err(PutErrorKind::BelowWatermark);
        }
        if offset - self.watermark >= N {
            self.slide();
            if offset.saturating_sub(self.watermark) >= N {
                if self.callers_seal || self.watermark != self.end {
                    return Err(PutErrorKind::Full);
                }
                (self.watermark, self.end) = (offset, offset);
            }
        }
        if self.messages.contains_key(&offset) {
            return Err(PutErrorKind::Duplicate);
        }
        // The slide that makes room may have passed the offset itself.
        if self.is_passed(offset) {
            return Err(PutErrorKind::Passed);
        }
        self.end = self.end.max(offset + 1);
        self.messages.insert(offset, Message { doing: Doing::Ready, bytes, attempt: 0 });
        Ok(std::mem::take(&mut self.idle))
    }

    fn take(&mut self, n: usize, doing: fn(u32) -> Doing) -> Result<Vec<u64>, TakeError> {
        let ready = self.messages.iter_mut().filter(|(_, message)| message.doing == Doing::Ready);
        let mut taken = Vec::new();
        for (&offset, message) in ready.take(n) {
            message.doing = doing(message.attempt);
            taken.push(offset);
        }
        if !taken.is_empty() {
            return Ok(taken);
        }
        if n > 0 {
            self.idle = true;
            // Only a closed window is slid by a take that finds nothing.
            if self.closed {
                self.slide();
                if self.messages.is_empty() {
                    return Err(TakeError::Closed);
                }
            }
        }
        Err(TakeError::Empty)
    }

    fn finish(&mut self, offset: u64) {
        self.messages.remove(&offset).expect("it was in the window");
        self.finished.insert(offset);
    }

    fn remove(&mut self, offset: u64) -> Result<(), RemoveError> {
        match self.messages.get(&offset).map(|message| message.doing) {
            Some(Doing::Ready | Doing::Held(_)) => self.finish(offset),
            Some(Doing::Lent) => return Err(RemoveError::Held),
            None if self.is_passed(offset) => {
                return Err(RemoveError::Passed);
            }
            None => return Err(RemoveError::Unknown),
        }
        Ok(())
    }
}

type Window8 = RingWindow<Counted, { N as usize }>;

/// A lease of either kind.
enum Kind<'a> {
    Lending(Lease<&'a Window8>),
    Shared(SharedLease<&'a Window8>),
}

/// A lease and what the model knows of it: each offset with its attempt.
struct Claim<'a> {
    lease: Kind<'a>,
    messages: Vec<(u64, u32)>,
}

impl Claim<'_> {
    fn is_ours(&self, model: &Model, offset: u64, attempt: u32) -> bool {
        let doing = model.messages.get(&offset).map(|message| message.doing);
        match self.lease {
            Kind::Lending(_) => doing == Some(Doing::Lent),
            Kind::Shared(_) => doing == Some(Doing::Held(attempt)),
        }
    }

    /// Finishes in the model what `done` picks, gives the rest back. What that should report.
    fn settle(&self, model: &mut Model, done: impl Fn(u64) -> bool) -> (usize, usize) {
        let (mut applied, mut gone) = (0, 0);
        for &(offset, attempt) in &self.messages {
            let ours = self.is_ours(model, offset, attempt);
            match (ours, done(offset)) {
                (true, true) => {
                    model.finish(offset);
                    applied += 1;
                }
                (true, false) => give_back(model, offset),
                (false, true) => gone += 1,
                (false, false) => {}
            }
        }
        (applied, gone)
    }
}

fn give_back(model: &mut Model, offset: u64) {
    model.messages.get_mut(&offset).expect("it was in the window").doing = Doing::Ready;
    model.idle = false;
}

struct Run<'a> {
    window: &'a Window8,
    part: Assignment<&'a Window8>,
    model: Model,
    claims: Vec<Claim<'a>>,
    alive: Rc<Cell<isize>>,
}

impl<'a> Run<'a> {
    fn claim(&mut self, which: u8) -> Option<Claim<'a>> {
        let index = usize::from(which).checked_rem(self.claims.len())?;
        Some(self.claims.swap_remove(index))
    }

    fn near(&self, ahead: i64) -> u64 {
        self.model.watermark.saturating_add_signed(ahead)
    }

    fn put(&mut self, offset: u64, bytes: u8) {
        let value = Counted::new(offset, &self.alive);
        let answer = self.part.put_sized(offset, usize::from(bytes), value);
        let answer = match answer {
            Ok(put) => Ok(put.dispatch),
            Err(refused) => {
                let kind = refused.kind();
                assert_eq!(refused.into_inner().0, offset);
                Err(kind)
            }
        };
        assert_eq!(answer, self.model.put(offset, u64::from(bytes)), "put {offset}");
    }

    fn put_batch(&mut self, from: u64, len: u8) {
        let alive = Rc::clone(&self.alive);
        let mut messages =
            (from..).take(usize::from(len % 12)).map(|n| (n, Counted::new(n, &alive)));
        let answer = self.part.put_batch(&mut messages);
        let (mut admitted, mut known) = (0, 0);
        let mut refused = None;
        for offset in (from..).take(usize::from(len % 12)) {
            match self.model.put(offset, 0) {
                Ok(_) => admitted += 1,
                Err(PutErrorKind::Duplicate) => known += 1,
                Err(PutErrorKind::Passed | PutErrorKind::BelowWatermark) => known += 1,
                Err(error) => {
                    refused = Some((error, offset));
                    break;
                }
            }
        }
        let (done, stopped) = match answer {
            Ok(done) => (done, None),
            Err(stop) => (stop.so_far, Some((stop.error, stop.offset))),
        };
        assert_eq!(stopped, refused, "batch from {from}");
        assert_eq!((done.admitted, done.duplicates + done.passed), (admitted, known));
    }

    fn take(&mut self, n: u8, shared: bool) {
        let n = usize::from(n % 12);
        let expected = match shared {
            true => self.model.take(n, Doing::Held),
            false => self.model.take(n, |_| Doing::Lent),
        };
        let (lease, offsets) = if shared {
            match self.part.take_shared(n) {
                Ok(lease) => {
                    let offsets = lease.iter().map(|(offset, value)| (offset, value.0)).collect();
                    (Ok(Kind::Shared(lease)), offsets)
                }
                Err(error) => (Err(error), Vec::new()),
            }
        } else {
            match self.part.take(n) {
                Ok(lease) => {
                    let offsets = lease.iter().map(|(offset, value)| (offset, value.0)).collect();
                    (Ok(Kind::Lending(lease)), offsets)
                }
                Err(error) => (Err(error), Vec::new()),
            }
        };
        assert!(offsets.iter().all(|(offset, value)| offset == value));
        let offsets: Vec<u64> = offsets.into_iter().map(|(offset, _)| offset).collect();
        match (lease, expected) {
            (Ok(lease), Ok(expected)) => {
                assert_eq!(offsets, expected);
                let attempt = |offset: &u64| self.model.messages[offset].attempt;
                let messages = offsets.iter().map(|offset| (*offset, attempt(offset))).collect();
                self.claims.push(Claim { lease, messages });
            }
            (Err(error), Err(expected)) => assert_eq!(error, expected),
            (lease, expected) => panic!("{offsets:?} ({}), not {expected:?}", lease.is_ok()),
        }
    }

    fn commit_some(&mut self, claim: Claim<'a>, done: impl Fn(u64) -> bool, by_offset: bool) {
        let (applied, gone) = claim.settle(&mut self.model, &done);
        let next = self.model.slide();
        let offsets: Vec<u64> =
            claim.messages.iter().map(|message| message.0).filter(|offset| done(*offset)).collect();
        let report = match (claim.lease, by_offset) {
            (Kind::Lending(lease), true) => lease.commit_only(offsets),
            (Kind::Lending(lease), false) => lease.commit_where(|offset, _| done(offset)),
            (Kind::Shared(lease), true) => lease.commit_only(offsets),
            (Kind::Shared(lease), false) => lease.commit_where(|offset, _| done(offset)),
        };
        let report = report.expect("the assignment is in force");
        assert_eq!((report.applied, report.gone, report.next.get()), (applied, gone, next));
    }

    fn call(&mut self, call: &Call) {
        match *call {
            Call::Put(ahead, bytes) => self.put(self.near(ahead.into()), bytes),
            Call::PutFar(ahead) => self.put(self.near(i64::from(ahead) * 31), 1),
            Call::PutBatch(ahead, len) => self.put_batch(self.near(ahead.into()), len),
            Call::Take(n) => self.take(n, false),
            Call::TakeShared(n) => self.take(n, true),
            Call::Commit(which) => {
                let Some(claim) = self.claim(which) else { return };
                let (applied, gone) = claim.settle(&mut self.model, |_| true);
                let next = self.model.slide();
                let report = match claim.lease {
                    Kind::Lending(lease) => lease.commit(),
                    Kind::Shared(lease) => lease.commit(),
                };
                let report = report.expect("the assignment is in force");
                assert_eq!((report.applied, report.gone, report.next.get()), (applied, gone, next));
            }
            Call::CommitOnly(which, mask) => {
                let Some(claim) = self.claim(which) else { return };
                self.commit_some(claim, |offset| mask >> (offset % 8) & 1 == 1, true);
            }
            Call::CommitWhere(which, mask) => {
                let Some(claim) = self.claim(which) else { return };
                self.commit_some(claim, |offset| mask >> (offset % 8) & 1 == 1, false);
            }
            Call::Rollback(which) => {
                let Some(claim) = self.claim(which) else { return };
                claim.settle(&mut self.model, |_| false);
                let report = match claim.lease {
                    Kind::Lending(lease) => lease.rollback(),
                    Kind::Shared(lease) => lease.rollback(),
                };
                let next = report.expect("the assignment is in force").next;
                assert_eq!(next.get(), self.model.watermark);
            }
            Call::Drop(which) => {
                let Some(claim) = self.claim(which) else { return };
                claim.settle(&mut self.model, |_| false);
            }
            Call::Forget(which) => {
                // Of a lending lease: pinned until the window is dropped, so not here.
                let Some(claim) = self.claim(which) else { return };
                match claim.lease {
                    Kind::Shared(lease) => lease.detach(),
                    Kind::Lending(_) => self.claims.push(claim),
                }
            }
            Call::Detach(which) => {
                let Some(claim) = self.claim(which) else { return };
                match claim.lease {
                    Kind::Shared(lease) => lease.detach(),
                    Kind::Lending(lease) => {
                        for (offset, _) in claim.messages {
                            let message = self.model.messages.get_mut(&offset).expect("lent");
                            message.doing = Doing::Held(message.attempt);
                        }
                        lease.detach();
                    }
                }
            }
            Call::FinishOne(which, ahead) => {
                let offset = self.near(ahead.into());
                let Some(mut claim) = self.claim(which) else { return };
                let mine = claim.messages.iter().position(|message| message.0 == offset);
                let expected = match mine {
                    None => Err(RemoveError::Unknown),
                    Some(index) => {
                        let (offset, attempt) = claim.messages[index];
                        let ours = claim.is_ours(&self.model, offset, attempt);
                        claim.messages.remove(index);
                        if ours {
                            self.model.finish(offset);
                        }
                        let next = self.model.slide();
                        if ours { Ok(next) } else { Err(RemoveError::Passed) }
                    }
                };
                let answer = match &mut claim.lease {
                    Kind::Lending(lease) => lease.finish(offset),
                    Kind::Shared(lease) => lease.finish(offset),
                };
                assert_eq!(answer.map(|next| next.get()), expected);
                self.claims.push(claim);
            }
            Call::IntoValues(which, n) => {
                let Some(claim) = self.claim(which) else { return };
                let n = usize::from(n % 12);
                let ours =
                    |&&(offset, attempt): &&(u64, u32)| claim.is_ours(&self.model, offset, attempt);
                let expected: Vec<u64> =
                    claim.messages.iter().filter(ours).take(n).map(|message| message.0).collect();
                for &(offset, attempt) in &claim.messages {
                    if expected.contains(&offset) {
                        self.model.finish(offset);
                        self.model.slide();
                    } else if claim.is_ours(&self.model, offset, attempt) {
                        give_back(&mut self.model, offset);
                    }
                }
                let values: Vec<(u64, Counted)> = match claim.lease {
                    Kind::Lending(lease) => lease.into_values().take(n).collect(),
                    Kind::Shared(lease) => lease.into_values().take(n).collect(),
                };
                assert!(values.iter().all(|(offset, value)| *offset == value.0));
                assert!(values.iter().map(|(offset, _)| *offset).eq(expected));
            }
            Call::Remove(ahead) => {
                let offset = self.near(ahead.into());
                let expected = self.model.remove(offset).map(|()| self.model.slide());
                assert_eq!(self.part.remove(offset).map(|next| next.get()), expected);
            }
            Call::RemoveBatch(ahead, len) => {
                let from = self.near(ahead.into());
                let offsets = (from..).take(usize::from(len % 12)).step_by(2);
                let mut expected = Vec::new();
                for offset in offsets.clone() {
                    expected.push((offset, self.model.remove(offset)));
                }
                let mut answers = Vec::new();
                let done = self.part.remove_each(offsets, |offset, answer| {
                    answers.push((offset, answer));
                });
                assert_eq!(answers, expected);
                let next = done.expect("the assignment is in force").next;
                assert_eq!(next.get(), self.model.slide());
            }
            Call::Revoke(ahead) => self.revoke(self.near(ahead.into())),
            Call::AdvanceTo(ahead) => {
                let to = self.near(ahead.into());
                self.model.end = self.model.end.max(to);
                self.model.seal = self.model.seal.max(to);
                let next: Result<_, AdvanceError> = self.part.advance_to(to);
                assert_eq!(next.expect("not far").get(), self.model.slide());
            }
            Call::MinOffset => {
                let next = self.part.min_offset().expect("the assignment is in force");
                assert_eq!(next.get(), self.model.slide());
            }
            Call::Close => {
                let was_open = self.part.close().expect("the assignment is in force");
                assert_eq!(was_open, !std::mem::replace(&mut self.model.closed, true));
            }
            Call::Assign(start) => {
                // Leases of the old assignment end before: their slots would be busy, which the
                // model does not know.
                self.claims.clear();
                let old = self.part;
                self.part = self.window.assign(start.into());
                self.model = Model::new(self.model.callers_seal, start.into());
                assert!(old.watermark().is_err() && old.min_offset().is_err());
                let refused = old.put(start.into(), Counted::new(0, &self.alive));
                assert_eq!(refused.map_err(|error| error.kind()), Err(PutErrorKind::Stale));
            }
        }
    }

    fn revoke(&mut self, offset: u64) {
        let passed = self.model.is_passed(offset);
        let expected = match self.model.messages.get_mut(&offset) {
            Some(message) => match message.doing {
                Doing::Ready => Err(RevokeError::Waiting),
                Doing::Lent => Err(RevokeError::Held),
                Doing::Held(_) => {
                    message.attempt += 1;
                    message.doing = Doing::Lent;
                    Ok(message.attempt)
                }
            },
            None if passed => Err(RevokeError::Passed),
            None => Err(RevokeError::Unknown),
        };
        match (self.part.at(1).revoke(offset), expected) {
            (Ok(lease), Ok(attempt)) => {
                let lease = Kind::Lending(lease);
                self.claims.push(Claim { lease, messages: vec![(offset, attempt)] });
            }
            (Err(error), Err(expected)) => assert_eq!(error, expected),
            (answer, expected) => panic!("revoke {offset}: {answer:?}, not {expected:?}"),
        }
    }

    /// Everything that can be seen is what the model says.
    fn check(&self) {
        let model = &self.model;
        assert_eq!(self.part.watermark().expect("in force").get(), model.watermark);
        assert_eq!(self.part.end().expect("in force"), model.end);
        assert_eq!(self.part.span().expect("in force"), model.end - model.watermark);
        let usage = self.window.usage();
        let bytes: u64 = model.messages.values().map(|message| message.bytes).sum();
        assert_eq!((usage.count, usage.bytes), (model.messages.len(), bytes));
        let pending = self.part.pending().expect("in force").map(|look| (look.offset, look.stage));
        let expected = model.messages.iter().map(|(offset, message)| {
            let stage = match message.doing {
                Doing::Ready => Stage::Waiting,
                Doing::Lent => Stage::Lent,
                Doing::Held(_) => Stage::Held,
            };
            (*offset, stage)
        });
        assert!(pending.eq(expected));
    }
}

/// Runs the calls, each compared with the model; the model as it then is.
fn run(window: &Window8, input: &Input, alive: &Rc<Cell<isize>>) -> Model {
    let start = u64::from(input.start);
    let model = Model::new(input.callers_seal, start);
    let part = window.assign(start);
    let mut run = Run { window, part, model, claims: Vec::new(), alive: Rc::clone(alive) };
    for call in &input.calls {
        run.call(call);
        run.check();
    }
    for claim in run.claims {
        claim.settle(&mut run.model, |_| false);
    }
    run.model
}

fuzz_target!(|input: Input| {
    let alive = Rc::new(Cell::new(0));
    {
        let mut window = Window8::starting_at(input.lap.into(), input.callers_seal);
        let model = run(&window, &input, &alive);
        assert_eq!(window.count(), model.messages.len());
        let left = window.drain().map(|(offset, value)| {
            assert_eq!(offset, value.0);
            offset
        });
        assert!(left.eq(model.messages.keys().copied()));
        assert_eq!((window.count(), window.bytes(), window.span()), (0, 0, 0));
    }
    assert_eq!(alive.get(), 0, "every message is dropped once");
});
