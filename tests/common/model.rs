//! The reference model: what a window must answer when nothing runs beside the call.
//!
//! A map from offset to what the message is doing, with the rules of the design written down as
//! plainly as possible. It knows no slots, laps or positions. Where the design leaves a window
//! free, the model says so instead of choosing: [`Model::uncertain`] and [`Model::settle`].

use std::collections::{BTreeMap, BTreeSet};

use inflight::{
    AdvanceError, PutErrorKind, RemoveError, RevokeError, Snapshot, Stage, Stale, TakeError,
};

use super::driver::{Answer, Driver, End, Fault, Look, PartId, Step, Token, View};
use super::kinds::{MOST_REVOKES, NARROW};

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Waiting,
    Lent,
    /// By which hold: a shared lease knows its own.
    Held(u64),
}

#[derive(Clone, Debug)]
struct Entry {
    id: u64,
    bytes: usize,
    state: State,
    since: Option<u64>,
    deliveries: u32,
    revokes: u64,
}

/// One message of a lease.
#[derive(Clone, Debug)]
struct Item {
    offset: u64,
    id: u64,
    hold: u64,
}

#[derive(Clone, Debug)]
struct Lease {
    generation: usize,
    shared: bool,
    items: Vec<Item>,
}

/// A message of an ended assignment that a lending lease still has.
#[derive(Clone, Debug)]
struct Doomed {
    /// Which of the next assignments' offsets it is in the way of, in a bounded window.
    residue: Option<u64>,
    id: u64,
    bytes: usize,
}

#[derive(Clone, Debug)]
pub struct Model {
    capacity: Option<u64>,
    far: u64,
    callers_seal: bool,
    generation: usize,
    parts: Vec<usize>,
    base: u64,
    watermark: u64,
    end: u64,
    /// What `advance_to` said.
    said: u64,
    closed: bool,
    idle: bool,
    pending: BTreeMap<u64, Entry>,
    /// Finished or sealed, at or above the watermark.
    done: BTreeSet<u64>,
    /// Below it a gap may have been sealed before the watermark reached it.
    maybe_sealed: u64,
    doomed: BTreeMap<(usize, u64), Doomed>,
    leases: BTreeMap<Token, Lease>,
    /// Leases that are no more than receipts, without clones.
    receipts: BTreeMap<Token, Lease>,
    holds: u64,
    live: BTreeMap<u64, usize>,
    /// Gaps that the window was asked about, for the next step only.
    known_open: BTreeSet<u64>,
    /// The last step met a gap that it was not asked about.
    free: bool,
    fault: Fault,
    struck: bool,
    /// During a batch: the end without what is filled and not yet published.
    published: Option<u64>,
}

impl Model {
    pub fn new(capacity: Option<u64>, far: u64, callers_seal: bool, start: u64) -> Self {
        let mut model = Self {
            capacity,
            far,
            callers_seal,
            generation: 0,
            parts: Vec::new(),
            base: 0,
            watermark: 0,
            end: 0,
            said: 0,
            closed: false,
            idle: true,
            pending: BTreeMap::new(),
            done: BTreeSet::new(),
            maybe_sealed: 0,
            doomed: BTreeMap::new(),
            leases: BTreeMap::new(),
            receipts: BTreeMap::new(),
            holds: 0,
            live: BTreeMap::new(),
            known_open: BTreeSet::new(),
            free: false,
            fault: Fault::None,
            struck: false,
            published: None,
        };
        model.assign(start);
        model
    }

    // --- for whoever makes up steps ---

    pub fn parts(&self) -> usize {
        self.parts.len()
    }

    /// Leases that are alive, with the offsets they still have.
    pub fn leases(&self) -> impl Iterator<Item = (Token, bool, Vec<u64>)> {
        self.leases.iter().map(|(&token, lease)| {
            let current = lease.generation == self.generation;
            (token, current, lease.items.iter().map(|item| item.offset).collect())
        })
    }

    pub fn is_shared(&self, token: Token) -> bool {
        self.leases[&token].shared
    }

    /// Receipts that are alive.
    pub fn receipts(&self) -> Vec<Token> {
        self.receipts.keys().copied().collect()
    }

    pub fn offsets(&self) -> Vec<u64> {
        self.pending.keys().copied().collect()
    }

    pub fn watermark(&self) -> u64 {
        self.watermark
    }

    pub fn end(&self) -> u64 {
        self.end
    }

    /// The messages alive, clones included.
    pub fn live(&self) -> &BTreeMap<u64, usize> {
        &self.live
    }

    /// What is left, lowest first, when every lease has ended or is forgotten.
    pub fn left(&self) -> Vec<(u64, u64)> {
        self.pending.iter().map(|(&offset, entry)| (offset, entry.id)).collect()
    }

    /// Messages that the window itself still has.
    pub fn stored(&self) -> usize {
        self.pending.len() + self.doomed.len()
    }

    // --- where the design leaves a window free ---

    /// May this gap be sealed already, or not, as the window likes?
    pub fn uncertain(&self, offset: u64) -> bool {
        let limit = match self.capacity {
            Some(capacity) => self.watermark.saturating_add(capacity).min(self.maybe_sealed),
            None => self.seal(),
        };
        (self.watermark..limit).contains(&offset) && self.is_gap(offset)
    }

    /// The window has sealed a gap about which the model was uncertain.
    pub fn sealed(&mut self, offset: u64) {
        assert!(self.uncertain(offset), "sealed {offset} without leave");
        self.done.insert(offset);
    }

    /// The window has not sealed it.
    pub fn open(&mut self, offset: u64) {
        self.known_open.insert(offset);
    }

    /// Would this call meet a gap that becomes uncertain while it runs?
    pub fn is_free(&self, step: &Step) -> bool {
        let mut after = self.clone();
        after.step(step, Fault::None);
        after.free
    }

    /// A call that need not slide may have done so.
    pub fn settle(&mut self, watermark: u64) {
        let allowed = self.watermark..=self.slid();
        assert!(allowed.contains(&watermark), "watermark {watermark} not in {allowed:?}");
        self.watermark = watermark;
        self.done = self.done.split_off(&watermark);
    }

    // --- the rules ---

    fn is_gap(&self, offset: u64) -> bool {
        !self.pending.contains_key(&offset) && !self.done.contains(&offset)
    }

    /// Below it gaps may be sealed.
    fn seal(&self) -> u64 {
        if self.callers_seal { self.said } else { self.end }
    }

    fn residue(&self, offset: u64) -> Option<u64> {
        self.capacity.map(|capacity| (offset - self.base) % capacity)
    }

    /// Is an ended assignment's message in the way of this offset?
    fn blocked(&self, offset: u64) -> bool {
        let residue = self.residue(offset);
        residue.is_some() && self.doomed.values().any(|doomed| doomed.residue == residue)
    }

    /// The first offset that is neither finished nor sealable.
    fn slid(&self) -> u64 {
        let seal = self.seal();
        let mut at = self.watermark;
        loop {
            if at >= self.end {
                // What a snapshot says about offsets that were not put again stays above the end.
                return at;
            } else if self.done.contains(&at) {
                at += 1;
            } else if self.pending.contains_key(&at) || at >= seal || self.blocked(at) {
                return at;
            } else {
                // Over the gap at once: to what comes first.
                let pending = self.pending.range(at..).next().map_or(seal, |(&offset, _)| offset);
                let done = self.done.range(at..).next().map_or(seal, |&offset| offset);
                let mut to = seal.min(pending).min(done);
                if let Some(capacity) = self.capacity.filter(|_| !self.doomed.is_empty()) {
                    to = (at..to.min(at.saturating_add(capacity)))
                        .find(|&at| self.blocked(at))
                        .unwrap_or(to);
                }
                at = to;
            }
        }
    }

    pub fn slide(&mut self) -> u64 {
        self.watermark = self.slid();
        self.done = self.done.split_off(&self.watermark);
        self.watermark
    }

    /// Notes a seal that lies a whole window beyond the watermark: slots that are passed then may
    /// refuse everything up to it at once.
    fn note_far_seal(&mut self) {
        if let Some(capacity) = self.capacity
            && self.seal().saturating_sub(self.watermark) > capacity
        {
            self.maybe_sealed = self.maybe_sealed.max(self.seal());
        }
    }

    fn create(&mut self, id: u64) {
        *self.live.entry(id).or_default() += 1;
    }

    /// A message, or a clone of one, goes to the caller.
    fn give(&mut self, id: u64) {
        let live = self.live.get_mut(&id).unwrap();
        *live -= 1;
        if *live == 0 {
            self.live.remove(&id);
        }
    }

    /// The window or a lease drops a message, or a clone of one.
    fn drop_one(&mut self, id: u64) {
        self.give(id);
        if self.fault == Fault::Drop(id) {
            self.fault = Fault::None;
            self.struck = true;
        }
    }

    fn current(&self, part: PartId) -> Result<(), Stale> {
        if self.parts[part] == self.generation { Ok(()) } else { Err(Stale) }
    }

    fn assign(&mut self, start: u64) {
        for (offset, entry) in std::mem::take(&mut self.pending) {
            if entry.state == State::Lent {
                let doomed =
                    Doomed { residue: self.residue(offset), id: entry.id, bytes: entry.bytes };
                self.doomed.insert((self.generation, offset), doomed);
            } else {
                self.drop_one(entry.id);
            }
        }
        self.generation += 1;
        self.parts.push(self.generation);
        self.done.clear();
        (self.base, self.watermark, self.end, self.said) = (start, start, start, start);
        (self.closed, self.idle, self.maybe_sealed) = (false, true, start);
    }

    fn put(
        &mut self,
        part: PartId,
        offset: u64,
        bytes: usize,
        id: u64,
    ) -> Result<(), PutErrorKind> {
        self.current(part).map_err(|Stale| PutErrorKind::Stale)?;
        if self.closed {
            return Err(PutErrorKind::Closed);
        }
        if offset < self.watermark {
            return Err(PutErrorKind::BelowWatermark);
        }
        if offset == u64::MAX || offset - self.watermark >= self.far {
            return Err(PutErrorKind::OutOfRange);
        }
        if let Some(capacity) = self.capacity
            && offset - self.watermark >= capacity
        {
            // What a batch has filled is published first.
            self.published = self.published.map(|_| self.end);
            let watermark = self.slide();
            if offset < watermark {
                // Sealed by this very slide: a floor cut short by a panic had left it undone.
                return Err(PutErrorKind::Passed);
            }
            if offset - watermark >= capacity {
                if self.callers_seal || watermark != self.end {
                    return Err(PutErrorKind::Full);
                }
                // Nothing unfinished: what lies between was never put, and never will be.
                self.end = offset;
                self.note_far_seal();
                if offset - self.slide() >= capacity {
                    self.note_far_seal();
                    return Err(PutErrorKind::Full);
                }
                self.note_far_seal();
            }
        }
        if self.pending.contains_key(&offset) {
            return Err(PutErrorKind::Duplicate);
        }
        if self.blocked(offset) {
            return Err(PutErrorKind::Full);
        }
        if self.done.contains(&offset) {
            let end = self.published.unwrap_or(self.end);
            if offset >= end {
                // As if admitted and finished: a snapshot said so.
                let filled = std::mem::replace(&mut self.end, offset + 1);
                self.slide();
                self.end = self.end.max(filled);
                self.published = self.published.map(|_| offset + 1);
            }
            return Err(PutErrorKind::Passed);
        }
        self.free |= self.uncertain(offset) && !self.known_open.contains(&offset);
        self.end = self.end.max(offset + 1);
        let state = State::Waiting;
        let entry = Entry { id, bytes, state, since: None, deliveries: 0, revokes: 0 };
        self.pending.insert(offset, entry);
        Ok(())
    }

    fn put_batch(
        &mut self,
        part: PartId,
        items: &[(u64, usize, u64)],
        panic_at: Option<usize>,
    ) -> Answer {
        let (mut admitted, mut duplicates, mut passed) = (0, 0, 0);
        let mut refused = None;
        for (index, &(offset, bytes, id)) in items.iter().enumerate() {
            if panic_at == Some(index) {
                self.struck = true;
                break;
            }
            self.create(id);
            self.published = self.published.or(Some(self.end));
            match self.put(part, offset, bytes, id) {
                Ok(()) => admitted += 1,
                Err(PutErrorKind::Duplicate) => {
                    duplicates += 1;
                    self.drop_one(id);
                }
                Err(PutErrorKind::Passed | PutErrorKind::BelowWatermark) => {
                    passed += 1;
                    self.drop_one(id);
                }
                Err(kind) => {
                    self.give(id);
                    refused = Some((kind, offset, id));
                    break;
                }
            }
            if self.struck {
                break;
            }
        }
        self.published = None;
        let dispatch = admitted > 0 && std::mem::take(&mut self.idle);
        let batch = (admitted, duplicates, passed, dispatch);
        Answer::Batch(match refused {
            None => Ok(batch),
            Some((kind, offset, id)) => Err((kind, offset, id, batch)),
        })
    }

    fn take(
        &mut self,
        part: PartId,
        n: usize,
        shared: bool,
        now: Option<u64>,
        token: Token,
    ) -> Result<Vec<(u64, u64, u32)>, TakeError> {
        self.current(part).map_err(|Stale| TakeError::Stale)?;
        if n == 0 {
            return Err(TakeError::Empty);
        }
        let waiting = self.pending.iter().filter(|(_, entry)| entry.state == State::Waiting);
        let offsets: Vec<u64> = waiting.take(n).map(|(&offset, _)| offset).collect();
        if offsets.is_empty() {
            self.idle = true;
            let over = self.closed && self.pending.is_empty();
            return Err(if over { TakeError::Closed } else { TakeError::Empty });
        }
        let (mut items, mut taken) = (Vec::new(), Vec::new());
        for &offset in &offsets {
            let hold = self.hold();
            let entry = self.pending.get_mut(&offset).unwrap();
            entry.deliveries += 1;
            entry.since = now;
            entry.state = if shared { State::Held(hold) } else { State::Lent };
            let id = entry.id;
            taken.push((offset, id, entry.deliveries));
            items.push(Item { offset, id, hold });
        }
        if shared {
            if let Fault::Clone(id) = self.fault
                && items.iter().any(|item| item.id == id)
            {
                self.struck = true;
                self.give_back(&items);
                return Ok(taken);
            }
            items.iter().for_each(|item| self.create(item.id));
        }
        self.leases.insert(token, Lease { generation: self.generation, shared, items });
        Ok(taken)
    }

    fn hold(&mut self) -> u64 {
        self.holds += 1;
        self.holds
    }

    /// Does this lease still have the message?
    fn has(&self, lease: &Lease, item: &Item) -> bool {
        lease.generation == self.generation
            && self.pending.get(&item.offset).is_some_and(|entry| {
                entry.state == if lease.shared { State::Held(item.hold) } else { State::Lent }
            })
    }

    /// Ready again.
    fn give_back(&mut self, items: &[Item]) {
        for item in items {
            self.pending.get_mut(&item.offset).unwrap().state = State::Waiting;
            self.idle = false;
        }
    }

    /// Out of the window, and not yet dropped or given away.
    fn finish(&mut self, offset: u64) -> Entry {
        self.done.insert(offset);
        self.pending.remove(&offset).unwrap()
    }

    /// A lending lease of an ended assignment lets go of a message.
    fn release(&mut self, generation: usize, item: &Item) {
        self.doomed.remove(&(generation, item.offset)).unwrap();
        self.slide();
    }

    fn end_lease(&mut self, token: Token, how: &End) -> Answer {
        let mut lease = self.leases.remove(&token).unwrap();
        let current = lease.generation == self.generation;
        let mut values = Vec::new();
        // Released: fell to an assign or a floor.
        let (mut applied, mut gone, mut released) = (0, 0, 0);
        let items = std::mem::take(&mut lease.items);
        let find = |offset: &u64| items.iter().find(|item| item.offset == *offset).cloned();
        // Which messages are to be finished, in which order; none: not in the lease.
        let finishing: Vec<Option<Item>> = match how {
            End::Commit => items.iter().cloned().map(Some).collect(),
            End::Only { done, panic_at } => {
                done.iter().take(panic_at.unwrap_or(usize::MAX)).map(find).collect()
            }
            End::Where { done, panic_at } => items
                .iter()
                .take(panic_at.unwrap_or(usize::MAX))
                .filter(|item| done.contains(&item.offset))
                .cloned()
                .map(Some)
                .collect(),
            End::Values { .. } => items.iter().cloned().map(Some).collect(),
            End::Rollback | End::Detach | End::Drop | End::Forget => Vec::new(),
        };
        self.struck |= match how {
            End::Only { done, panic_at: Some(at) } => *at < done.len(),
            End::Where { panic_at: Some(at), .. } => *at < items.len(),
            _ => false,
        };
        let most = if let End::Values { take } = how { *take } else { usize::MAX };
        let mut cloned: BTreeMap<u64, u64> = items.iter().map(|i| (i.offset, i.id)).collect();
        let mut had: BTreeSet<u64> = items.iter().map(|item| item.offset).collect();
        for item in finishing {
            if values.len() == most || (self.struck && matches!(how, End::Values { .. })) {
                break;
            }
            let item = item.filter(|item| had.remove(&item.offset));
            let Some(item) = item else {
                gone += 1;
                continue;
            };
            let moves_out = matches!(how, End::Values { .. });
            if lease.shared {
                let won = self.has(&lease, &item);
                if won {
                    let entry = self.finish(item.offset);
                    self.drop_one(entry.id);
                    applied += 1;
                } else {
                    gone += 1;
                }
                if moves_out {
                    cloned.remove(&item.offset);
                    if won && !self.struck {
                        self.give(item.id);
                        values.push((item.offset, item.id));
                    } else {
                        self.drop_one(item.id);
                    }
                }
            } else {
                if self.has(&lease, &item) {
                    self.finish(item.offset);
                    applied += 1;
                } else {
                    self.release(lease.generation, &item);
                    released += 1;
                }
                if moves_out {
                    self.give(item.id);
                    values.push((item.offset, item.id));
                } else {
                    self.drop_one(item.id);
                }
            }
        }
        // Where nothing is finished a window is free to slide, but need not.
        let slides = match how {
            End::Rollback | End::Detach | End::Drop | End::Forget => false,
            End::Values { .. } => applied + released > 0,
            End::Commit | End::Only { .. } | End::Where { .. } => {
                applied + released > 0 || !self.struck
            }
        };
        let mut next = if slides { self.slide() } else { self.watermark };
        gone += released;
        released = 0;
        // What was not finished.
        let rest: Vec<Item> =
            items.iter().filter(|item| had.contains(&item.offset)).cloned().collect();
        let mut returned = 0;
        for item in rest {
            match how {
                End::Forget => {}
                End::Detach => {
                    if !lease.shared && self.has(&lease, &item) && self.struck {
                        // The lease is dropped before it came to this one.
                        self.give_back(&[item]);
                    } else if !lease.shared && self.has(&lease, &item) {
                        let hold = self.hold();
                        self.pending.get_mut(&item.offset).unwrap().state = State::Held(hold);
                    } else if !lease.shared {
                        self.release(lease.generation, &item);
                        self.drop_one(item.id);
                    }
                }
                _ => {
                    if self.has(&lease, &item) {
                        self.give_back(&[item]);
                        returned += 1;
                    } else if lease.shared {
                        gone += usize::from(matches!(how, End::Rollback));
                    } else {
                        self.release(lease.generation, &item);
                        released += 1;
                        self.drop_one(item.id);
                    }
                }
            }
        }
        // Who releases what fell slides.
        gone += released;
        if released > 0 && current && matches!(how, End::Rollback) {
            next = self.slide();
        }
        if lease.shared && !matches!(how, End::Forget) {
            cloned.into_values().for_each(|id| self.drop_one(id));
        }
        match how {
            End::Detach | End::Drop | End::Forget => Answer::Nothing,
            End::Values { .. } => Answer::Values(values),
            _ if !current => Answer::Report(Err(Stale)),
            End::Rollback => Answer::Report(Ok((next, returned, gone))),
            _ => Answer::Report(Ok((next, applied, gone))),
        }
    }

    /// The clones are dropped; when that panics, nobody gets a receipt, and all is given back.
    fn receipt(&mut self, token: Token) -> Vec<u64> {
        let lease = self.leases.remove(&token).unwrap();
        lease.items.iter().for_each(|item| self.drop_one(item.id));
        let offsets = lease.items.iter().map(|item| item.offset).collect();
        if self.struck {
            self.return_these(&lease);
        } else {
            self.receipts.insert(token, lease);
        }
        offsets
    }

    /// Gives back what a lease or receipt still has; how many those are.
    fn return_these(&mut self, lease: &Lease) -> usize {
        let had = lease.items.iter().filter(|item| self.has(lease, item));
        let had: Vec<Item> = had.cloned().collect();
        self.give_back(&had);
        had.len()
    }

    fn touch_these(&mut self, lease: &Lease, now: u64) {
        for item in &lease.items {
            if self.has(lease, item) {
                self.pending.get_mut(&item.offset).unwrap().since = Some(now);
            }
        }
    }

    fn finish_one(&mut self, token: Token, offset: u64) -> Result<u64, RemoveError> {
        let mut lease = self.leases.remove(&token).unwrap();
        let index = lease.items.iter().position(|item| item.offset == offset);
        let item = index.map(|index| lease.items.remove(index));
        let current = lease.generation == self.generation;
        let mut result = if current { Err(RemoveError::Unknown) } else { Err(RemoveError::Stale) };
        if let Some(item) = item {
            if self.has(&lease, &item) {
                self.finish(offset);
                result = Ok(self.slide());
                self.drop_one(item.id);
            } else {
                if !lease.shared {
                    self.release(lease.generation, &item);
                    self.drop_one(item.id);
                }
                if current {
                    self.slide();
                    result = Err(RemoveError::Passed);
                }
            }
            if lease.shared {
                self.drop_one(item.id);
            }
        }
        self.leases.insert(token, lease);
        result
    }

    fn remove(&mut self, part: PartId, offset: u64) -> Result<(), RemoveError> {
        self.current(part).map_err(|Stale| RemoveError::Stale)?;
        match self.pending.get(&offset).map(|entry| entry.state) {
            Some(State::Lent) => Err(RemoveError::Held),
            Some(State::Waiting | State::Held(_)) => {
                let entry = self.finish(offset);
                self.drop_one(entry.id);
                Ok(())
            }
            None if offset < self.watermark || self.done.contains(&offset) => {
                Err(RemoveError::Passed)
            }
            None => Err(RemoveError::Unknown),
        }
    }

    fn revoke(
        &mut self,
        part: PartId,
        offset: u64,
        now: u64,
        token: Token,
    ) -> Result<Vec<(u64, u64, u32)>, RevokeError> {
        self.current(part).map_err(|Stale| RevokeError::Stale)?;
        let generation = self.generation;
        let Some(entry) = self.pending.get_mut(&offset) else {
            let passed = offset < self.watermark || self.done.contains(&offset);
            return Err(if passed { RevokeError::Passed } else { RevokeError::Unknown });
        };
        match entry.state {
            State::Waiting => Err(RevokeError::Waiting),
            State::Lent => Err(RevokeError::Held),
            State::Held(_) if entry.revokes == MOST_REVOKES => Err(RevokeError::Exhausted),
            State::Held(_) => {
                entry.state = State::Lent;
                entry.revokes += 1;
                entry.since = Some(now);
                let (id, deliveries) = (entry.id, entry.deliveries);
                let items = vec![Item { offset, id, hold: 0 }];
                self.leases.insert(token, Lease { generation, shared: false, items });
                Ok(vec![(offset, id, deliveries)])
            }
        }
    }

    fn advance_to(&mut self, part: PartId, next: u64) -> Result<u64, AdvanceError> {
        self.current(part).map_err(|Stale| AdvanceError::Stale)?;
        if next.saturating_sub(self.watermark) >= self.far {
            return Err(AdvanceError::OutOfRange);
        }
        self.end = self.end.max(next);
        self.said = self.said.max(next);
        self.note_far_seal();
        self.slide();
        self.note_far_seal();
        Ok(self.watermark)
    }

    fn touch(&mut self, part: PartId, offset: u64, now: u64) -> Result<(), RevokeError> {
        self.current(part).map_err(|Stale| RevokeError::Stale)?;
        let Some(entry) = self.pending.get_mut(&offset) else {
            let passed = offset < self.watermark || self.done.contains(&offset);
            return Err(if passed { RevokeError::Passed } else { RevokeError::Unknown });
        };
        match entry.state {
            State::Waiting => Err(RevokeError::Waiting),
            State::Lent => Err(RevokeError::Held),
            State::Held(_) => {
                entry.since = Some(now);
                Ok(())
            }
        }
    }

    fn advance_floor(
        &mut self,
        part: PartId,
        low: u64,
    ) -> Result<(u64, Vec<u64>, usize), AdvanceError> {
        self.current(part).map_err(|Stale| AdvanceError::Stale)?;
        if low.saturating_sub(self.watermark) >= self.far {
            return Err(AdvanceError::OutOfRange);
        }
        self.end = self.end.max(low);
        self.said = self.said.max(low);
        self.note_far_seal();
        let above = self.pending.split_off(&low);
        let (mut dropped, mut lent) = (Vec::new(), 0);
        for (offset, entry) in std::mem::replace(&mut self.pending, above) {
            if entry.state == State::Lent {
                lent += 1;
                let doomed =
                    Doomed { residue: self.residue(offset), id: entry.id, bytes: entry.bytes };
                self.doomed.insert((self.generation, offset), doomed);
            } else {
                dropped.push(entry.id);
                self.drop_one(entry.id);
            }
        }
        self.watermark = self.watermark.max(low);
        self.done = self.done.split_off(&self.watermark);
        if !self.struck {
            self.slide();
        }
        dropped.sort_unstable();
        Ok((self.watermark, dropped, lent))
    }

    /// How far from the end an offset may lie that a snapshot says is finished.
    fn reach(&self) -> u64 {
        match self.capacity {
            Some(capacity) => self.watermark.saturating_add(capacity),
            None => self.end.saturating_add(if NARROW { 1 << 10 } else { 1 << 20 }),
        }
    }

    fn restore(&mut self, part: PartId, bytes: &[u8]) -> Result<(u64, Option<u64>), AdvanceError> {
        self.current(part).map_err(|Stale| AdvanceError::Stale)?;
        let snapshot = Snapshot::parse(bytes).expect("bytes of a snapshot");
        if self.watermark < snapshot.watermark().get() {
            self.advance_to(part, snapshot.watermark().get())?;
        }
        let (low, reach) = (self.watermark, self.reach());
        for range in snapshot.finished() {
            for offset in range.start.max(low)..range.end {
                if offset >= reach {
                    return Ok((self.slide(), Some(offset)));
                }
                if self.is_gap(offset) && !self.blocked(offset) {
                    self.done.insert(offset);
                }
            }
        }
        Ok((self.slide(), None))
    }

    /// Does a snapshot say the truth? It may know less than all, and of gaps below the seal that
    /// they are sealed.
    pub fn check_snapshot(&self, bytes: &[u8], is_whole: bool) {
        let snapshot = Snapshot::parse(bytes).expect("what a window wrote");
        // Also over what an older snapshot said of offsets that were not put again.
        let mut passed = self.watermark;
        while self.done.contains(&passed) {
            passed += 1;
        }
        assert_eq!(snapshot.watermark().get(), passed);
        for range in snapshot.finished() {
            let unfinished = self.pending.range(range.clone()).next();
            assert!(unfinished.is_none(), "{unfinished:?} in {range:?}");
            assert!(range.start >= self.watermark && range.end <= self.reach());
            let sealable = |offset: &u64| self.done.contains(offset) || *offset < self.seal();
            assert!(range.clone().take(1000).all(|offset| sealable(&offset)), "{range:?}");
        }
        let known = self.done.range(..snapshot.exact_up_to());
        assert!(known.clone().all(|offset| snapshot.is_finished(*offset)), "finished, not there");
        if is_whole {
            let last = self.done.last().map_or(self.end, |last| self.end.max(last + 1));
            assert!(snapshot.exact_up_to() >= last.min(self.end), "not whole");
        }
    }

    fn look(&self, offset: u64) -> Look {
        match self.pending.get(&offset) {
            None => (offset, Stage::Missing, None, 0),
            Some(entry) => {
                let stage = match entry.state {
                    State::Waiting => Stage::Waiting,
                    State::Lent => Stage::Lent,
                    State::Held(_) => Stage::Held,
                };
                (offset, stage, entry.since, entry.deliveries)
            }
        }
    }

    fn call(&mut self, step: &Step) -> Answer {
        match *step {
            Step::Assign { start } => {
                self.assign(start);
                Answer::Nothing
            }
            Step::Put { part, offset, bytes, id } => {
                self.create(id);
                Answer::Put(match self.put(part, offset, bytes, id) {
                    Ok(()) => Ok(std::mem::take(&mut self.idle)),
                    Err(kind) => {
                        self.give(id);
                        Err((kind, id))
                    }
                })
            }
            Step::PutBatch { part, ref items, panic_at } => self.put_batch(part, items, panic_at),
            Step::Take { part, n, shared, now, token } => {
                Answer::Taken(self.take(part, n, shared, now, token))
            }
            Step::End { token, ref how } => self.end_lease(token, how),
            Step::Finish { token, offset } => Answer::Removed(self.finish_one(token, offset)),
            Step::Touch { token, now } => {
                let lease = self.leases[&token].clone();
                self.touch_these(&lease, now);
                Answer::Nothing
            }
            Step::IntoDetached { token } => Answer::Detached(self.receipt(token)),
            Step::TouchDetached { token, now } => {
                let receipt = self.receipts[&token].clone();
                self.touch_these(&receipt, now);
                Answer::Nothing
            }
            Step::GiveBack { token } => {
                let receipt = self.receipts.remove(&token).unwrap();
                let applied = self.return_these(&receipt);
                let gone = receipt.items.len() - applied;
                let current = receipt.generation == self.generation;
                let report = (self.watermark, applied, gone);
                Answer::Report(if current { Ok(report) } else { Err(Stale) })
            }
            Step::DropDetached { token } => {
                self.receipts.remove(&token).unwrap();
                Answer::Nothing
            }
            Step::Remove { part, offset } => {
                let removed = self.remove(part, offset);
                Answer::Removed(removed.map(|()| self.slide()))
            }
            Step::RemoveBatch { part, ref offsets, panic_at } => {
                let asked = offsets.iter().take(panic_at.unwrap_or(usize::MAX));
                let each: Vec<_> = asked.map(|&offset| self.remove(part, offset)).collect();
                self.struck |= panic_at.is_some_and(|at| at < offsets.len());
                let idle = self.struck && !each.contains(&Ok(()));
                let next = self.current(part).map(|()| if idle { 0 } else { self.slide() });
                Answer::RemovedBatch(next, each)
            }
            Step::Skip { part, offset } => {
                let removed = self.remove(part, offset);
                Answer::Removed(removed.map(|()| self.slide()))
            }
            Step::TouchOne { part, offset, now } => Answer::Touched(self.touch(part, offset, now)),
            Step::Watermark { part } => Answer::Next(self.current(part).map(|()| self.watermark)),
            Step::EndOffset { part } => Answer::Next(self.current(part).map(|()| self.end)),
            Step::AdvanceFloor { part, low } => Answer::Floor(self.advance_floor(part, low)),
            Step::Restore { part, ref bytes } => Answer::Restored(self.restore(part, bytes)),
            Step::Revoke { part, offset, now, token } => {
                Answer::Revoked(self.revoke(part, offset, now, token))
            }
            Step::MinOffset { part } => Answer::Next(self.current(part).map(|()| self.slide())),
            Step::AdvanceTo { part, next } => Answer::Advanced(self.advance_to(part, next)),
            Step::Head { part } => Answer::Head(self.current(part).map(|()| {
                let watermark = self.slide();
                (watermark < self.end).then(|| self.look(watermark))
            })),
            Step::Close { part } => Answer::Closed(
                self.current(part).map(|()| !std::mem::replace(&mut self.closed, true)),
            ),
            Step::Stalled { part, now, age } => {
                Answer::Stalled(self.current(part).map(|()| self.stalled(now, age)))
            }
        }
    }

    fn stalled(&self, now: u64, age: u64) -> Vec<(u64, u64, u32, bool)> {
        let held = self.pending.iter().filter(|(_, entry)| entry.state != State::Waiting);
        held.filter_map(|(&offset, entry)| {
            let since = entry.since.filter(|since| now.saturating_sub(*since) > age)?;
            Some((offset, since, entry.deliveries, entry.state != State::Lent))
        })
        .collect()
    }
}

impl Driver for Model {
    fn step(&mut self, step: &Step, fault: Fault) -> Answer {
        (self.fault, self.struck, self.free) = (fault, false, false);
        let answer = self.call(step);
        self.fault = Fault::None;
        self.known_open.clear();
        if !self.struck {
            return answer;
        }
        if let Step::Assign { start } = *step {
            // The one that panicked gave no handle.
            self.parts.pop();
            self.assign(start);
        }
        Answer::Panicked
    }

    fn view(&self) -> View {
        let doomed = self.doomed.values().map(|doomed| doomed.bytes as u64).sum::<u64>();
        View {
            watermark: self.watermark,
            end: self.end,
            span: self.end - self.watermark,
            count: self.stored(),
            bytes: doomed + self.pending.values().map(|entry| entry.bytes as u64).sum::<u64>(),
            pending: self.pending.keys().map(|&offset| self.look(offset)).collect(),
        }
    }
}
