//! Is there an order of the calls of a history that explains every answer?
//!
//! The search is Wing and Gong's, just in time: events are gone through in order, and what is kept
//! is the set of all states in which the window can be then. A call that returns must have come to
//! its answer in them; what stood still is thrown away, and when nothing is left the history is
//! refused. Equal states are one, so the search costs what the states are, not the orders.
//!
//! The rules are the reference model's (`tests/common/model.rs`), which the tests of this file hold
//! against them: whatever the model answers, one call after the other, is accepted here. But a call
//! need not happen all at once. Most calls have several effects, and each is one step of them:
//! a put fills its slot, raises the end, makes the message ready, announces it; a batch does so
//! with each message; a take claims its messages one after the other; whoever finishes something
//! then slides.
//!
//! # Freedoms
//!
//! Where the specification asks for less than one order of whole calls, it says so here:
//!
//! 1. A take may find nothing while a put or a rollback has not announced its message, which is
//!    its last step. Then that put says `dispatch`. A take passes by a message only if that became
//!    ready after the take began.
//! 2. A slide must pass what was finished by calls that have met (slid, or about to) before. Gaps
//!    that may be sealed it must pass only if no put, advance or assign is under way; beside one
//!    both are right. **This is wider than the core**, which seals a gap below the end unless a put is
//!    at that very slot.
//! 3. A put into a gap that may be sealed, below what a slide could reach, is admitted or refused.
//!    In a window without a bound any gap below the seal counts, since gaps are sealed with the
//!    finished messages beside them.
//! 4. A message that is being finished is a duplicate or passed for a put, and a full window may
//!    still be full: its slot is free when that call is over. So with slots of calls of ended
//!    assignments.
//! 5. A call of an assignment that ends meanwhile may have had its effect, and answers `Stale`.
//! 6. A closed window is over for a take though a put that began before is under way.
//! 7. A take beside an assign may pass by what that has just dropped.
//! 8. A message that a shared take has claimed and not yet cloned counts as lent for a floor; the
//!    take then answers with fewer, or, when nothing is left of them, claims others.
//!
//! Left out: `since` and what hangs on it (`touch`, `stalled`), which is a hint; bytes; panics.

#[path = "lease.rs"]
mod lease;
#[path = "number.rs"]
mod number;
#[path = "put.rs"]
mod put;
#[path = "take.rs"]
mod take;
#[path = "watermark.rs"]
mod watermark;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::hash::Hash;

use inflight::{PutErrorKind, RemoveError, RevokeError, Stage, Stale, TakeError};

use crate::driver::{Answer, End, PartId, Step, Token};

/// One call of a history, by which thread, with what it answered.
#[derive(Clone, Debug)]
pub struct Op {
    pub thread: usize,
    pub step: Step,
    pub answer: Answer,
}

/// The handle by which a thread calls its `part`th; the first is everybody's.
fn handle(thread: usize, part: PartId) -> (usize, PartId) {
    (if part == 0 { 0 } else { thread }, part)
}

/// What happened, in order. A thread has one call under way at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    Call(usize),
    Return(usize),
}

#[derive(Clone, Debug, Default)]
pub struct History {
    pub ops: Vec<Op>,
    pub events: Vec<Event>,
}

/// What is known of a window that does not change.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    pub capacity: Option<u64>,
    pub callers_seal: bool,
    pub far: u64,
}

/// An answer that no order explains.
#[derive(Clone, Copy, Debug)]
pub struct Refused {
    /// The event, a return, by its number.
    pub event: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Phase {
    Filling,
    Ready {
        /// The thread that has yet to announce it.
        by: Option<usize>,
        /// The takes, by thread, that began when it was ready.
        owed: u64,
    },
    /// To which lease.
    Lent(Token),
    /// In which lease, or which had it before it was detached.
    Held(Token),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Slot {
    id: u64,
    deliveries: u32,
    phase: Phase,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Lease {
    generation: usize,
    shared: bool,
    offsets: Vec<u64>,
}

/// How far a call has come.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Progress {
    op: usize,
    at: u8,
    item: usize,
    /// Its slide must come at least to here.
    least: u64,
    over: bool,
    /// Filled and not yet ready.
    filled: Vec<u64>,
    /// Claimed by this take, for a floor to take away.
    spare: Vec<u64>,
    /// Claimed by this take, and doomed by a floor before it was held.
    lost: Vec<u64>,
    /// Of a take, the idle mark may have been claimed.
    looked: bool,
    counts: [usize; 3],
    dispatch: bool,
}

/// No generation is in force: an assign is about to begin one.
const NONE: usize = usize::MAX;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    generation: usize,
    generations: usize,
    parts: BTreeMap<(usize, PartId), usize>,
    base: u64,
    /// At least; it is not above `may`, where calls that are over may have left it.
    watermark: u64,
    may: u64,
    end: u64,
    said: u64,
    /// Below it a gap may have been sealed before the watermark came there.
    maybe: u64,
    closed: bool,
    idle: bool,
    slots: BTreeMap<u64, Slot>,
    /// At or above the watermark; by which thread, if that has not met the others since.
    done: BTreeMap<u64, Option<usize>>,
    sealed: BTreeSet<u64>,
    /// Lent by a generation that has ended, or below the floor: the residue it blocks.
    doomed: BTreeMap<(usize, u64), Option<u64>>,
    leases: BTreeMap<Token, Lease>,
    pending: BTreeMap<usize, Progress>,
}

/// Goes through a history of a window that was assigned at `start` before, by handle 0.
pub fn check(rules: Rules, start: u64, history: &History) -> Result<(), Refused> {
    let first = State {
        generation: 0,
        generations: 1,
        parts: BTreeMap::from([((0, 0), 0)]),
        base: start,
        watermark: start,
        may: start,
        end: start,
        said: start,
        maybe: start,
        closed: false,
        idle: true,
        slots: BTreeMap::new(),
        done: BTreeMap::new(),
        sealed: BTreeSet::new(),
        doomed: BTreeMap::new(),
        leases: BTreeMap::new(),
        pending: BTreeMap::new(),
    };
    let mut states = HashSet::from([first]);
    let search = Search { rules, ops: &history.ops, floors: floors(history) };
    for (at, event) in history.events.iter().enumerate() {
        states = match *event {
            Event::Call(op) => states.into_iter().map(|state| search.call(state, op)).collect(),
            Event::Return(op) => search.until_over(states, op),
        };
        if states.is_empty() {
            return Err(Refused { event: at });
        }
    }
    Ok(())
}

struct Search<'h> {
    rules: Rules,
    ops: &'h [Op],
    /// The shared takes beside a floor, and the highest one, which may have taken what they
    /// claimed.
    floors: BTreeMap<usize, u64>,
}

fn floors(history: &History) -> BTreeMap<usize, u64> {
    let shared = |op: usize| matches!(history.ops[op].step, Step::Take { shared: true, .. });
    let low = |op: usize| match history.ops[op].step {
        Step::AdvanceFloor { low, .. } => Some(low),
        _ => None,
    };
    let mut floors = BTreeMap::new();
    let mut open: Vec<usize> = Vec::new();
    for event in &history.events {
        match *event {
            Event::Call(op) => {
                for &other in &open {
                    for (take, floor) in [(op, other), (other, op)] {
                        if let Some(low) = low(floor).filter(|_| shared(take)) {
                            let highest = floors.entry(take).or_insert(low);
                            *highest = low.max(*highest);
                        }
                    }
                }
                open.push(op);
            }
            Event::Return(op) => open.retain(|one| *one != op),
        }
    }
    floors
}

impl Search<'_> {
    fn call(&self, mut state: State, op: usize) -> State {
        let thread = self.ops[op].thread;
        match &self.ops[op].step {
            Step::Take { .. } => {
                for slot in state.slots.values_mut() {
                    if let Phase::Ready { by: None, owed } = &mut slot.phase {
                        *owed |= 1 << thread;
                    }
                }
            }
            Step::Put { .. } | Step::PutBatch { .. } | Step::Assign { .. } => {
                // From now on no gap need be sealed (freedom 2).
                let most = self.slid(&state, Some(thread), true);
                for progress in state.pending.values_mut() {
                    progress.least = progress.least.min(most);
                }
            }
            _ => {}
        }
        let progress = Progress {
            op,
            at: 0,
            item: 0,
            least: 0,
            over: false,
            filled: Vec::new(),
            spare: Vec::new(),
            lost: Vec::new(),
            looked: false,
            counts: [0; 3],
            dispatch: false,
        };
        let before = state.pending.insert(thread, progress);
        assert!(before.is_none(), "thread {thread} has a call under way");
        state
    }

    /// All states in which the call is over, which then is forgotten.
    fn until_over(&self, states: HashSet<State>, op: usize) -> HashSet<State> {
        let thread = self.ops[op].thread;
        let mut after = HashSet::new();
        let mut seen = states.clone();
        let mut open: Vec<State> = states.into_iter().collect();
        let mut next = Vec::new();
        while let Some(mut state) = open.pop() {
            if state.pending[&thread].over {
                state.pending.remove(&thread);
                for slot in state.slots.values_mut() {
                    if let Phase::Ready { owed, .. } = &mut slot.phase {
                        *owed &= !(1 << thread);
                    }
                }
                if let Step::End { token, .. } = self.ops[op].step {
                    state.leases.remove(&token);
                }
                after.insert(state);
                continue;
            }
            for (&other, progress) in &state.pending {
                if !progress.over {
                    self.steps(&state, other, &mut next);
                }
            }
            for state in next.drain(..) {
                if seen.insert(state.clone()) {
                    open.push(state);
                }
            }
        }
        after
    }

    // --- what a state is ---

    fn is_gap(&self, state: &State, offset: u64) -> bool {
        !state.slots.contains_key(&offset)
            && !state.done.contains_key(&offset)
            && !state.sealed.contains(&offset)
    }

    fn seal(&self, state: &State) -> u64 {
        if self.rules.callers_seal { state.said } else { state.end }
    }

    fn residue(&self, state: &State, offset: u64) -> Option<u64> {
        self.rules.capacity.map(|capacity| offset.saturating_sub(state.base) % capacity)
    }

    fn is_blocked(&self, state: &State, offset: u64) -> bool {
        let residue = self.residue(state, offset);
        residue.is_some() && state.doomed.values().any(|one| *one == residue)
    }

    fn has_room(&self, state: &State, offset: u64) -> bool {
        let ahead = offset.saturating_sub(state.watermark);
        self.rules.capacity.is_none_or(|capacity| ahead < capacity)
    }

    /// Is a call of another thread under way beside which no gap need be sealed?
    fn is_busy(&self, state: &State, thread: usize) -> bool {
        state.pending.iter().any(|(&other, progress)| {
            other != thread
                && !progress.over
                && matches!(
                    self.ops[progress.op].step,
                    Step::Put { .. }
                        | Step::PutBatch { .. }
                        | Step::AdvanceTo { .. }
                        | Step::AdvanceFloor { .. }
                        | Step::Assign { .. }
                )
        })
    }

    /// The first offset that is neither finished nor sealable: at most, or that a slide of `strict`
    /// must come to.
    fn slid(&self, state: &State, strict: Option<usize>, busy: bool) -> u64 {
        let seal = self.seal(state);
        let busy = busy || strict.is_some_and(|thread| self.is_busy(state, thread));
        let mut at = state.watermark;
        while at < state.end {
            if let Some(unmet) = state.done.get(&at) {
                if strict.is_some() && unmet.is_some_and(|thread| Some(thread) != strict) {
                    break;
                }
                at += 1;
            } else if state.slots.contains_key(&at)
                || self.is_blocked(state, at)
                || busy
                || (at >= seal && !state.sealed.contains(&at))
            {
                break;
            } else {
                let slot = state.slots.range(at..).next().map_or(seal, |(&offset, _)| offset);
                let done = state.done.range(at..).next().map_or(seal, |(&offset, _)| offset);
                let to = seal.min(slot).min(done).max(at + 1);
                at = match self.rules.capacity.filter(|_| !state.doomed.is_empty()) {
                    None => to,
                    Some(capacity) => {
                        let near = to.min(at.saturating_add(capacity));
                        (at + 1..near).find(|&at| self.is_blocked(state, at)).unwrap_or(to)
                    }
                };
            }
        }
        at
    }

    fn most(&self, state: &State) -> u64 {
        self.slid(state, None, false)
    }

    /// May a call under way move the watermark, also one that does not say so?
    fn is_sliding(&self, state: &State) -> bool {
        state.pending.values().any(|progress| !progress.over && self.slides(state, progress))
    }

    fn slides(&self, state: &State, progress: &Progress) -> bool {
        let op = &self.ops[progress.op];
        let makes_room = |offset: u64, answer: bool| {
            answer || (offset >= state.watermark && !self.has_room(state, offset))
        };
        match &op.step {
            Step::Put { offset, .. } => {
                let odd = [PutErrorKind::Stale, PutErrorKind::BelowWatermark];
                let odd = matches!(&op.answer, Answer::Put(Err((kind, _))) if odd.contains(kind));
                progress.looked || makes_room(*offset, odd)
            }
            Step::PutBatch { .. } => self.rules.capacity.is_some() || self.is_old(state, op),
            Step::Take { .. } => state.closed || self.is_old(state, op),
            Step::Watermark { .. }
            | Step::EndOffset { .. }
            | Step::Close { .. }
            | Step::Touch { .. }
            | Step::TouchOne { .. }
            | Step::Stalled { .. }
            | Step::Revoke { .. } => false,
            _ => true,
        }
    }

    /// Is it a call of an assignment that has ended?
    fn is_old(&self, state: &State, op: &Op) -> bool {
        self.generation(state, op).is_some_and(|one| one != state.generation)
    }

    fn generation(&self, state: &State, op: &Op) -> Option<usize> {
        let part = match op.step {
            Step::Assign { .. }
            | Step::IntoDetached { .. }
            | Step::TouchDetached { .. }
            | Step::GiveBack { .. }
            | Step::DropDetached { .. } => return None,
            Step::End { token, .. } | Step::Finish { token, .. } | Step::Touch { token, .. } => {
                return state.leases.get(&token).map(|lease| lease.generation);
            }
            Step::Put { part, .. }
            | Step::PutBatch { part, .. }
            | Step::Take { part, .. }
            | Step::Remove { part, .. }
            | Step::Skip { part, .. }
            | Step::RemoveBatch { part, .. }
            | Step::Revoke { part, .. }
            | Step::TouchOne { part, .. }
            | Step::Watermark { part }
            | Step::EndOffset { part }
            | Step::MinOffset { part }
            | Step::AdvanceTo { part, .. }
            | Step::AdvanceFloor { part, .. }
            | Step::Restore { part, .. }
            | Step::Head { part }
            | Step::Close { part }
            | Step::Stalled { part, .. } => part,
        };
        state.parts.get(&handle(op.thread, part)).copied()
    }

    /// The watermark is at least `to`, or a call under way moves it there.
    fn raise(&self, state: &mut State, to: u64) -> bool {
        if state.watermark >= to {
            return true;
        }
        let may = to <= state.may || (self.is_sliding(state) && to <= self.most(state));
        if may {
            state.move_to(to);
        }
        may
    }

    /// It is `next`.
    fn is_at(&self, state: &mut State, next: u64) -> Option<()> {
        (self.raise(state, next) && state.watermark == next).then(|| state.may = next)
    }

    fn end_generation(&self, state: &mut State) {
        for (offset, slot) in std::mem::take(&mut state.slots) {
            if let Phase::Lent(_) = slot.phase {
                let residue = self.residue(state, offset);
                state.doomed.insert((state.generations - 1, offset), residue);
            }
        }
        state.generation = NONE;
        state.done.clear();
        state.sealed.clear();
        for progress in state.pending.values_mut() {
            progress.least = 0;
            progress.filled.clear();
        }
    }

    // --- the steps of a call ---

    /// All states after one step of the call of `thread`.
    fn steps(&self, state: &State, thread: usize, out: &mut Vec<State>) {
        let progress = &state.pending[&thread];
        let op = &self.ops[progress.op];
        let in_force = !self.is_old(state, op);
        let lease = matches!(op.step, Step::End { .. } | Step::Finish { .. });
        if !in_force && !lease && progress.lost.is_empty() && says_stale(&op.answer) {
            self.ends_sliding(state.clone(), thread, out);
        }
        let mut step = Stepping { search: self, state, thread, progress, op, in_force, out };
        match &op.step {
            Step::Assign { start } => step.assign(*start),
            Step::Put { offset, id, .. } => step.put(*offset, *id),
            Step::PutBatch { items, .. } => step.put_batch(items),
            Step::Take { n, shared, token, .. } => step.take(*n, *shared, *token),
            Step::End { token, how } => step.end_lease(*token, how),
            Step::Finish { token, offset } => step.finish(*token, *offset),
            Step::Remove { offset, .. } | Step::Skip { offset, .. } => step.remove(*offset),
            Step::RemoveBatch { offsets, .. } => step.remove_batch(offsets),
            Step::Revoke { offset, token, .. } => step.revoke(*offset, *token),
            Step::AdvanceTo { next, .. } => step.advance_to(*next),
            Step::AdvanceFloor { low, .. } => step.advance_floor(*low),
            Step::MinOffset { .. } => step.min_offset(),
            Step::Head { .. } => step.head(),
            Step::Watermark { .. } => step.watermark(),
            Step::EndOffset { .. } => {
                step.when(|state| (op.answer == Answer::Next(Ok(state.end))).then_some(()));
            }
            Step::Close { .. } => step.when(|state| {
                let open = !std::mem::replace(&mut state.closed, true);
                (op.answer == Answer::Closed(Ok(open))).then_some(())
            }),
            Step::Touch { .. } | Step::TouchOne { .. } | Step::Stalled { .. } => {
                step.over(|_| Some(()));
            }
            Step::IntoDetached { .. }
            | Step::TouchDetached { .. }
            | Step::GiveBack { .. }
            | Step::DropDetached { .. }
            | Step::Restore { .. } => panic!("not in a history"),
        }
    }

    /// The call is over, and may have moved the watermark.
    fn ends_sliding(&self, mut state: State, thread: usize, out: &mut Vec<State>) {
        if self.slides(&state, &state.pending[&thread]) {
            state.may = state.may.max(self.most(&state));
        }
        state.pending.get_mut(&thread).unwrap().over = true;
        out.push(state);
    }
}

fn says_stale(answer: &Answer) -> bool {
    match answer {
        Answer::Put(put) => matches!(put, Err((PutErrorKind::Stale, _))),
        Answer::Batch(put) => matches!(put, Err((PutErrorKind::Stale, ..))),
        Answer::Taken(taken) => matches!(taken, Err(TakeError::Stale)),
        Answer::Removed(removed) => *removed == Err(RemoveError::Stale),
        Answer::RemovedBatch(next, _) => *next == Err(Stale),
        Answer::Revoked(revoked) => matches!(revoked, Err(RevokeError::Stale)),
        Answer::Touched(touched) => *touched == Err(RevokeError::Stale),
        Answer::Advanced(next) => matches!(next, Err(inflight::AdvanceError::Stale)),
        Answer::Floor(floor) => matches!(floor, Err(inflight::AdvanceError::Stale)),
        Answer::Report(report) => *report == Err(Stale),
        Answer::Next(next) => *next == Err(Stale),
        Answer::Head(head) => *head == Err(Stale),
        Answer::Closed(closed) => *closed == Err(Stale),
        Answer::Stalled(stalled) => *stalled == Err(Stale),
        Answer::Detached(_)
        | Answer::Restored(_)
        | Answer::Nothing
        | Answer::Panicked
        | Answer::Values(_) => false,
    }
}

impl State {
    fn move_to(&mut self, to: u64) {
        self.watermark = to;
        self.may = self.may.max(to);
        self.done = self.done.split_off(&to);
        self.sealed = self.sealed.split_off(&to);
    }

    /// What a thread finished is now seen by everybody who meets.
    fn meet(&mut self, thread: usize) {
        for by in self.done.values_mut() {
            if *by == Some(thread) {
                *by = None;
            }
        }
    }

    fn holds(&self, token: Token, offset: u64) -> bool {
        let lease = &self.leases[&token];
        lease.generation == self.generation
            && self.slots.get(&offset).is_some_and(|slot| match slot.phase {
                Phase::Lent(by) => !lease.shared && by == token,
                Phase::Held(by) => lease.shared && by == token,
                _ => false,
            })
    }

    /// What a lending lease has lost to an assign or a floor.
    fn release(&mut self, token: Token, offset: u64) -> bool {
        let generation = self.leases[&token].generation;
        self.doomed.remove(&(generation, offset)).is_some()
    }

    fn finish(&mut self, offset: u64, thread: usize) {
        self.slots.remove(&offset);
        self.done.insert(offset, Some(thread));
    }
}

/// One call at one moment.
struct Stepping<'s, 'h> {
    search: &'s Search<'h>,
    state: &'s State,
    thread: usize,
    progress: &'s Progress,
    op: &'s Op,
    in_force: bool,
    out: &'s mut Vec<State>,
}

impl Stepping<'_, '_> {
    /// A step that is not the last, if `f` says that it can be made.
    fn go(&mut self, f: impl FnOnce(&mut State, &mut Progress) -> Option<()>) {
        let mut state = self.state.clone();
        let mut progress = state.pending[&self.thread].clone();
        if f(&mut state, &mut progress).is_some() {
            state.pending.insert(self.thread, progress);
            self.out.push(state);
        }
    }

    /// The only or last step, of an assignment in force.
    fn when(&mut self, f: impl FnOnce(&mut State) -> Option<()>) {
        if self.in_force {
            self.over(f);
        }
    }

    /// The last step.
    fn over(&mut self, f: impl FnOnce(&mut State) -> Option<()>) {
        let mut state = self.state.clone();
        if f(&mut state).is_some() {
            state.pending.get_mut(&self.thread).unwrap().over = true;
            self.out.push(state);
        }
    }

    /// The last step of a call that does not say where the watermark is.
    fn over_sliding(&mut self, f: impl FnOnce(&mut State) -> Option<()>) {
        let mut state = self.state.clone();
        if f(&mut state).is_some() {
            self.search.ends_sliding(state, self.thread, self.out);
        }
    }

    /// A finisher meets the others: its slide must come at least as far as they have got.
    fn meets(&mut self, to: u8) {
        let (search, thread) = (self.search, self.thread);
        self.go(|state, progress| {
            state.meet(thread);
            progress.least = search.slid(state, Some(thread), false);
            progress.at = to;
            Some(())
        });
    }

    /// The slide: the watermark is `next` then.
    fn is_at(search: &Search<'_>, state: &mut State, progress: &Progress, next: u64) -> Option<()> {
        if next >= progress.least { search.is_at(state, next) } else { None }
    }
}

/// The messages that this thread made ready are announced; whether that ended an idle period.
fn announce(state: &mut State, thread: usize, in_force: bool) -> bool {
    if !in_force {
        return false;
    }
    for slot in state.slots.values_mut() {
        if let Phase::Ready { by, .. } = &mut slot.phase
            && *by == Some(thread)
        {
            *by = None;
        }
    }
    std::mem::take(&mut state.idle)
}

/// Finishes what waits or is held.
fn wins(state: &mut State, offset: u64, thread: usize) -> Option<()> {
    let phase = state.slots.get(&offset)?.phase;
    matches!(phase, Phase::Ready { .. } | Phase::Held(_)).then(|| state.finish(offset, thread))
}

/// A seal a whole window beyond the watermark: slots that are passed may refuse all up to it.
fn note_far(rules: Rules, state: &mut State) {
    let seal = if rules.callers_seal { state.said } else { state.end };
    if rules.capacity.is_some_and(|capacity| seal.saturating_sub(state.watermark) > capacity) {
        state.maybe = state.maybe.max(seal);
    }
}
