//! The steps of whoever moves the watermark, or asks for it.

use super::*;

impl Stepping<'_, '_> {
    pub(super) fn advance_to(&mut self, to: u64) {
        let Answer::Advanced(answer) = self.op.answer else { return };
        let (search, in_force) = (self.search, self.in_force);
        match self.progress.at {
            0 => {
                let far = to.saturating_sub(self.state.watermark) >= search.rules.far;
                if answer == Err(inflight::AdvanceError::OutOfRange) {
                    return self.when(|_| far.then_some(()));
                }
                self.go(|state, progress| {
                    state.end = state.end.max(to);
                    state.said = state.said.max(to);
                    note_far(search.rules, state);
                    progress.at = 1;
                    in_force.then_some(())
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

    /// Steps: 0 raising the end, 1 dropping what lies below, one after the other, 2 sliding.
    pub(super) fn advance_floor(&mut self, low: u64) {
        let Answer::Floor(answer) = &self.op.answer else { return };
        let (search, thread, in_force) = (self.search, self.thread, self.in_force);
        match (self.progress.at, answer) {
            (_, Err(inflight::AdvanceError::OutOfRange)) => {
                let far = low.saturating_sub(self.state.watermark) >= search.rules.far;
                self.when(|_| far.then_some(()));
            }
            (0, _) => self.go(|state, progress| {
                state.end = state.end.max(low);
                state.said = state.said.max(low);
                note_far(search.rules, state);
                progress.at = 1;
                in_force.then_some(())
            }),
            (1, Ok((_, dropped, _))) => {
                let below: Vec<(u64, Slot)> =
                    self.state.slots.range(..low).map(|(&at, slot)| (at, *slot)).collect();
                let here = |slot: &Slot| slot.phase != Phase::Filling;
                if !below.iter().any(|(_, slot)| here(slot)) {
                    return self.go(|state, progress| {
                        let to = state.watermark.max(low);
                        state.move_to(to);
                        state.meet(thread);
                        progress.at = 2;
                        in_force.then_some(())
                    });
                }
                // In which order, only others can tell.
                let most = if self.state.pending.len() == 1 { 1 } else { usize::MAX };
                for (offset, slot) in below.into_iter().filter(|(_, slot)| here(slot)).take(most) {
                    let lent = matches!(slot.phase, Phase::Lent(_));
                    if lent {
                        self.go(|state, progress| {
                            progress.counts[1] += 1;
                            state.slots.remove(&offset);
                            let residue = search.residue(state, offset);
                            state.doomed.insert((state.generation, offset), residue);
                            for take in state.pending.values_mut() {
                                if take.spare.contains(&offset) {
                                    take.spare.retain(|one| *one != offset);
                                    take.lost.push(offset);
                                }
                            }
                            in_force.then_some(())
                        });
                    }
                    if !lent && dropped.contains(&slot.id) {
                        self.go(|state, progress| {
                            state.finish(offset, thread);
                            progress.counts[0] += 1;
                            in_force.then_some(())
                        });
                    }
                }
            }
            (_, Ok((next, dropped, lent))) => {
                let fits =
                    (dropped.len(), *lent) == (self.progress.counts[0], self.progress.counts[1]);
                let progress = self.progress.clone();
                self.when(|state| {
                    fits.then_some(())?;
                    Self::is_at(search, state, &progress, *next)
                });
            }
            _ => {}
        }
    }

    pub(super) fn min_offset(&mut self) {
        let Answer::Next(answer) = self.op.answer else { return };
        let search = self.search;
        match (self.progress.at, answer) {
            (0, _) => self.meets(1),
            (_, Ok(next)) => {
                let progress = self.progress.clone();
                self.when(|state| Self::is_at(search, state, &progress, next));
            }
            _ => {}
        }
    }

    pub(super) fn watermark(&mut self) {
        let Answer::Next(Ok(next)) = self.op.answer else { return };
        let search = self.search;
        self.when(|state| search.is_at(state, next));
    }

    pub(super) fn head(&mut self) {
        let Answer::Head(Ok(answer)) = &self.op.answer else { return };
        if self.progress.at == 0 {
            return self.meets(1);
        }
        let (search, least) = (self.search, self.progress.least);
        match *answer {
            None => self.when(|state| {
                let end = state.end.max(least);
                (search.raise(state, end) && state.watermark >= end).then_some(())
            }),
            Some((offset, stage, ..)) => self.when(|state| {
                let to = state.watermark.max(least).max(offset);
                let there =
                    offset >= least && to == offset && search.is_at(state, offset).is_some();
                let slot = state.slots.get(&offset).map(|slot| slot.phase);
                let fits = match stage {
                    Stage::Missing => slot.is_none() || slot == Some(Phase::Filling),
                    Stage::Filling => slot == Some(Phase::Filling),
                    Stage::Waiting => matches!(slot, Some(Phase::Ready { .. })),
                    Stage::Lent => matches!(slot, Some(Phase::Lent(_))),
                    Stage::Held => matches!(slot, Some(Phase::Held(_))),
                    Stage::Finishing => state.done.contains_key(&offset),
                    _ => false,
                };
                (there && fits).then_some(())
            }),
        }
    }
}
