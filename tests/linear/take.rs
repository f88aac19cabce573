//! The steps of a take.

use super::*;

impl Stepping<'_, '_> {
    /// Steps: 0 claiming, 1 holding, 2 dry; at any time letting go what a floor has doomed.
    pub(super) fn take(&mut self, n: usize, shared: bool, token: Token) {
        let Answer::Taken(answer) = &self.op.answer else { return };
        let (search, thread, in_force) = (self.search, self.thread, self.in_force);
        if let Some(&offset) = self.progress.lost.first() {
            let generation = search.generation(self.state, self.op);
            self.go(|state, progress| {
                progress.lost.remove(0);
                progress.counts[1] += 1;
                state.doomed.remove(&(generation?, offset));
                state.may = state.may.max(search.most(state));
                Some(())
            });
        }
        let fallen = self.progress.spare.len() + self.progress.lost.len();
        if let Some(&low) = search.floors.get(&self.progress.op)
            && self.progress.at == 0
            && self.progress.item + fallen < n
        {
            for (&offset, slot) in self.state.slots.range(..low) {
                if matches!(slot.phase, Phase::Ready { .. }) {
                    self.go(|state, progress| {
                        state.slots.get_mut(&offset)?.phase = Phase::Lent(token);
                        progress.spare.push(offset);
                        in_force.then_some(())
                    });
                }
            }
        }
        if self.state.idle && self.progress.at == 0 && !self.progress.looked && n > 0 {
            // Its last look claims the idle mark, also when that then finds something.
            self.go(|state, progress| {
                (state.idle, progress.looked) = (false, true);
                in_force.then_some(())
            });
        }
        let taken = match answer {
            Ok(taken) => taken,
            Err(error) => return self.take_nothing(n, *error),
        };
        let item = self.progress.item;
        if self.progress.at == 0
            && let Some(&(offset, id, deliveries)) = taken.get(item)
        {
            let from = item.checked_sub(1).map_or(0, |before| taken[before].0 + 1);
            if offset < from || !in_force || taken.len() > n {
                return;
            }
            let owed = |slot: &Slot| match slot.phase {
                Phase::Ready { owed, .. } => owed >> thread & 1 == 1,
                _ => false,
            };
            let ending = self
                .state
                .pending
                .values()
                .any(|progress| matches!(search.ops[progress.op].step, Step::Assign { .. }));
            if !ending && self.state.slots.range(from..offset).any(|(_, slot)| owed(slot)) {
                return;
            }
            return self.go(|state, progress| {
                let slot = state.slots.get_mut(&offset)?;
                let is_it = slot.id == id && slot.deliveries + 1 == deliveries;
                let ready = matches!(slot.phase, Phase::Ready { .. });
                slot.deliveries = deliveries;
                slot.phase = Phase::Lent(token);
                progress.item += 1;
                if item == 0 {
                    progress.counts[0] = state.generation;
                }
                (is_it && ready).then_some(())
            });
        }
        let generation = self.progress.counts[0];
        let offsets: Vec<u64> = taken.iter().map(|one| one.0).collect();
        if self.progress.at == 0 && taken.len() + fallen + self.progress.counts[1] < n && in_force {
            let last = offsets.last().copied().unwrap_or(0);
            let owed = self.state.slots.range(last..).any(|(_, slot)| match slot.phase {
                Phase::Ready { owed, .. } => owed >> thread & 1 == 1,
                _ => false,
            });
            if owed {
                return;
            }
        }
        let lease = Lease { generation, shared, offsets: offsets.clone() };
        if !shared {
            return self.over_sliding(|state| {
                state.leases.insert(token, lease);
                Some(())
            });
        }
        if self.progress.at == 0 {
            return self.go(|_, progress| {
                (progress.at, progress.item) = (1, 0);
                Some(())
            });
        }
        match offsets.get(item) {
            Some(offset) => self.go(|state, progress| {
                let slot = state.slots.get_mut(offset)?;
                progress.item += 1;
                let mine = slot.phase == Phase::Lent(token);
                slot.phase = Phase::Held(token);
                (mine && in_force).then_some(())
            }),
            None => self.when(|state| {
                state.leases.insert(token, lease);
                (fallen == 0).then_some(())
            }),
        }
    }

    fn take_nothing(&mut self, n: usize, error: TakeError) {
        if error == TakeError::Stale {
            return;
        }
        if n == 0 {
            return self.when(|_| (error == TakeError::Empty).then_some(()));
        }
        if !self.in_force {
            return;
        }
        if self.progress.at == 0 {
            return self.go(|state, progress| {
                let announced = |slot: &Slot| matches!(slot.phase, Phase::Ready { by: None, .. });
                state.idle = true;
                progress.at = 1;
                (!state.slots.values().any(announced)).then_some(())
            });
        }
        if !self.progress.lost.is_empty() || !self.progress.spare.is_empty() {
            return;
        }
        let search = self.search;
        self.over_sliding(|state| {
            let left = state.slots.values().any(|slot| match slot.phase {
                // Freedom 6.
                Phase::Filling => false,
                Phase::Ready { by, .. } => by.is_none(),
                _ => true,
            });
            let busy = !state.slots.is_empty() || state.done.values().any(Option::is_some);
            let busy = busy || search.is_sliding(state) && state.pending.len() > 1;
            match error {
                TakeError::Closed => state.closed && !left,
                _ => !state.closed || busy,
            }
            .then_some(())
        });
    }
}
