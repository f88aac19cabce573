//! The steps of whoever finishes or revokes by number.

use super::*;

impl Stepping<'_, '_> {
    /// Can it be said that `offset` is not there to be finished, for this reason?
    fn is_not_there(&self, state: &mut State, offset: u64, why: RemoveError) -> bool {
        let slot = state.slots.get(&offset).map(|slot| slot.phase);
        match why {
            RemoveError::Held => matches!(slot, Some(Phase::Lent(_))),
            RemoveError::Passed => {
                offset < state.watermark
                    || state.done.contains_key(&offset)
                    || state.sealed.contains(&offset)
                    || self.seals(state, offset)
            }
            RemoveError::Unknown => {
                let none = slot.is_none() && offset >= state.watermark;
                none && !state.done.contains_key(&offset) && !state.sealed.contains(&offset)
                    || slot == Some(Phase::Filling)
            }
            _ => false,
        }
    }

    pub(super) fn remove(&mut self, offset: u64) {
        let Answer::Removed(answer) = self.op.answer else { return };
        let (search, thread) = (self.search, self.thread);
        match self.progress.at {
            0 if !self.in_force => {}
            0 => {
                if let Err(why) = answer
                    && why != RemoveError::Stale
                {
                    let mut state = self.state.clone();
                    if self.is_not_there(&mut state, offset, why) {
                        search.ends_sliding(state, thread, self.out);
                    }
                    return;
                }
                self.go(|state, progress| {
                    progress.at = 1;
                    wins(state, offset, thread)
                });
            }
            1 => self.meets(2),
            _ => {
                let progress = self.progress.clone();
                if let Ok(next) = answer {
                    self.when(|state| Self::is_at(search, state, &progress, next));
                }
            }
        }
    }

    pub(super) fn remove_batch(&mut self, offsets: &[u64]) {
        let Answer::RemovedBatch(next, each) = &self.op.answer else { return };
        let (search, thread, item) = (self.search, self.thread, self.progress.item);
        match self.progress.at {
            0 => match (offsets.get(item), each.get(item)) {
                (Some(&offset), Some(Ok(()))) => self.go(|state, progress| {
                    progress.item += 1;
                    wins(state, offset, thread)
                }),
                (Some(&offset), Some(Err(why))) => {
                    let mut state = self.state.clone();
                    if self.in_force && self.is_not_there(&mut state, offset, *why) {
                        state.pending.get_mut(&thread).unwrap().item += 1;
                        self.out.push(state);
                    }
                }
                _ => self.meets(2),
            },
            _ => {
                let progress = self.progress.clone();
                if let Ok(next) = *next {
                    self.when(|state| Self::is_at(search, state, &progress, next));
                }
            }
        }
    }

    pub(super) fn revoke(&mut self, offset: u64, token: Token) {
        let Answer::Revoked(answer) = &self.op.answer else { return };
        if !self.in_force {
            return;
        }
        let answer = match answer {
            Ok(revoked) => Ok(revoked[0]),
            Err(error) => Err(*error),
        };
        let mut state = self.state.clone();
        let slot = state.slots.get(&offset).copied();
        let may = match answer {
            Ok((at, id, deliveries)) => slot.is_some_and(|slot| {
                let phase = Phase::Lent(token);
                let generation = state.generation;
                state.slots.insert(offset, Slot { id, deliveries, phase });
                let lease = Lease { generation, shared: false, offsets: vec![offset] };
                state.leases.insert(token, lease);
                matches!(slot.phase, Phase::Held(_))
                    && (at, id, deliveries) == (offset, slot.id, slot.deliveries)
            }),
            Err(RevokeError::Waiting) => {
                slot.is_some_and(|slot| matches!(slot.phase, Phase::Ready { .. }))
            }
            Err(RevokeError::Held) => self.is_not_there(&mut state, offset, RemoveError::Held),
            Err(RevokeError::Passed) => self.is_not_there(&mut state, offset, RemoveError::Passed),
            Err(RevokeError::Unknown) => {
                self.is_not_there(&mut state, offset, RemoveError::Unknown)
            }
            Err(_) => false,
        };
        if may {
            state.pending.get_mut(&self.thread).unwrap().over = true;
            self.out.push(state);
        }
    }
}
