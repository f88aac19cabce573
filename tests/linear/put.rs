//! The steps of an assign and of a put.

use super::*;

impl Stepping<'_, '_> {
    /// Steps: 0 ending what is in force, 1 beginning. In between another one may begin, and end.
    pub(super) fn assign(&mut self, start: u64) {
        let (search, thread) = (self.search, self.thread);
        if self.progress.at == 0 {
            return self.go(|state, progress| {
                search.end_generation(state);
                progress.at = 1;
                Some(())
            });
        }
        self.over(|state| {
            search.end_generation(state);
            state.generation = state.generations;
            state.generations += 1;
            let part = (1..).find(|part| !state.parts.contains_key(&handle(thread, *part)));
            state.parts.insert(handle(thread, part?), state.generation);
            (state.base, state.watermark, state.may) = (start, start, start);
            (state.end, state.said, state.maybe) = (start, start, start);
            (state.closed, state.idle) = (false, true);
            Some(())
        });
    }

    /// The states in which a put of `offset` is refused for `kind`.
    fn refused(&self, offset: u64, kind: PutErrorKind) -> Vec<State> {
        let search = self.search;
        let mut state = self.state.clone();
        let rules = search.rules;
        if !self.in_force {
            return Vec::new(); // as Stale, elsewhere
        }
        if kind == PutErrorKind::Closed {
            return if state.closed { vec![state] } else { Vec::new() };
        }
        if state.closed {
            return Vec::new();
        }
        let below = offset < state.watermark;
        let may = match kind {
            PutErrorKind::Duplicate => {
                let unmet = state.done.get(&offset).is_some_and(|by| by.is_some());
                unmet || state.slots.contains_key(&offset)
            }
            PutErrorKind::BelowWatermark => {
                below || search.raise(&mut state, offset.saturating_add(1))
            }
            PutErrorKind::Passed => {
                if below
                    || state.done.contains_key(&offset)
                    || state.sealed.contains(&offset)
                    || self.is_doomed(offset)
                {
                    true
                } else {
                    self.seals(&mut state, offset)
                }
            }
            PutErrorKind::OutOfRange => {
                offset == u64::MAX || offset.saturating_sub(state.watermark) >= rules.far
            }
            PutErrorKind::Full => {
                let Some(capacity) = rules.capacity.filter(|_| !below) else { return Vec::new() };
                let least = state.watermark.max(self.progress.least);
                let jumps = !rules.callers_seal && least == state.end;
                let jumps = jumps && !search.is_busy(&state, self.thread);
                let far = offset - state.watermark >= capacity;
                let far = far && offset.saturating_sub(least) >= capacity && !jumps;
                if far {
                    state.may = state.may.min(offset - capacity);
                }
                let busy =
                    || search.is_blocked(&state, offset) || self.is_contended(offset, capacity);
                far || !self.is_doomed(offset) && busy()
            }
            PutErrorKind::Stale | PutErrorKind::Closed => false,
            _ => false,
        };
        if may { vec![state] } else { Vec::new() }
    }

    /// Given up by a floor, and the watermark not there yet?
    fn is_doomed(&self, offset: u64) -> bool {
        let filling = || {
            let slot = self.state.slots.get(&offset);
            slot.is_some_and(|slot| slot.phase == Phase::Filling) && self.has_fallen(offset)
        };
        self.state.doomed.contains_key(&(self.state.generation, offset)) || filling()
    }

    /// A gap that may be sealed, is.
    pub(super) fn seals(&self, state: &mut State, offset: u64) -> bool {
        let search = self.search;
        let maybe = match search.rules.capacity {
            Some(capacity) => state.maybe.min(state.watermark.saturating_add(capacity)),
            None => search.seal(state),
        };
        let may = search.is_gap(state, offset) && (offset < maybe || offset < search.most(state));
        if may {
            state.sealed.insert(offset);
        }
        may
    }

    /// Does a call under way have the slot of `offset` (freedom 4)?
    fn is_contended(&self, offset: u64, capacity: u64) -> bool {
        let state = self.state;
        let same =
            |other: u64| (other.abs_diff(offset)).is_multiple_of(capacity) && other != offset;
        let slot = state.slots.iter().any(|(&other, slot)| {
            same(other) && matches!(slot.phase, Phase::Filling) && other != offset
        });
        let unmet = state.done.iter().any(|(&other, by)| same(other) && by.is_some());
        let old = state.pending.iter().any(|(&thread, progress)| {
            let op = &self.search.ops[progress.op];
            thread != self.thread
                && !progress.over
                && (matches!(op.step, Step::Assign { .. } | Step::AdvanceFloor { .. })
                    || self.search.is_old(state, op))
        });
        slot || unmet || old
    }

    /// A full window in which nothing is unfinished: a put may raise the end to itself, and whether
    /// it then gets in is another matter.
    pub(super) fn jumps(&mut self, offset: u64) {
        let (search, in_force) = (self.search, self.in_force);
        let full = offset > self.state.end && !search.has_room(self.state, offset);
        if full && !search.rules.callers_seal && search.most(self.state) == self.state.end {
            self.go(|state, progress| {
                state.end = offset;
                note_far(search.rules, state);
                progress.looked = true;
                in_force.then_some(())
            });
        }
    }

    /// Makes the slot of `offset` filling.
    fn fill(&self, state: &mut State, offset: u64, id: u64) -> bool {
        let search = self.search;
        if !self.in_force || state.closed || offset < state.watermark {
            return false;
        }
        if let Some(capacity) = search.rules.capacity
            && offset - state.watermark >= capacity
            && !search.raise(state, offset - capacity + 1)
        {
            return false;
        }
        if !search.is_gap(state, offset) || search.is_blocked(state, offset) {
            return false;
        }
        // So nobody has passed it.
        state.may = state.may.min(offset);
        let phase = Phase::Filling;
        state.slots.insert(offset, Slot { id, deliveries: 0, phase });
        true
    }

    /// Filling, and not to be published: it fell below the floor.
    pub(super) fn has_fallen(&self, offset: u64) -> bool {
        offset < self.state.watermark
            || self.state.pending.values().any(|progress| {
                let low = match self.search.ops[progress.op].step {
                    Step::AdvanceFloor { low, .. } => low,
                    _ => 0,
                };
                progress.at > 0 && low > offset
            })
    }

    pub(super) fn put(&mut self, offset: u64, id: u64) {
        let Answer::Put(answer) = &self.op.answer else { return };
        let (search, thread, in_force) = (self.search, self.thread, self.in_force);
        if self.progress.at == 1 {
            self.jumps(offset);
        }
        if let Err((kind, back)) = answer
            && *back == id
            && self.progress.at <= 1
        {
            if self.progress.at == 0 && *kind == PutErrorKind::Full {
                return self.go(|state, progress| {
                    progress.least = search.slid(state, Some(thread), false);
                    progress.looked = true;
                    progress.at = 1;
                    Some(())
                });
            }
            for state in self.refused(offset, *kind) {
                self.search.ends_sliding(state, self.thread, self.out);
            }
        }
        let falls = matches!(answer, Err((PutErrorKind::BelowWatermark, _)));
        let stale = matches!(answer, Err((PutErrorKind::Stale, _)));
        if answer.is_err() && !falls && !stale {
            return;
        }
        match self.progress.at {
            0 => self.go(|state, progress| {
                progress.looked = !search.has_room(state, offset.max(state.watermark));
                progress.at = 1;
                (in_force && !state.closed).then_some(())
            }),
            1 => {
                let mut after = self.state.clone();
                // The look at whether it is closed came before.
                let closed = std::mem::replace(&mut after.closed, false);
                if self.fill(&mut after, offset, id) {
                    after.closed = closed;
                    after.pending.get_mut(&thread).unwrap().at = 2;
                    self.out.push(after);
                }
            }
            2 if in_force => self.go(|state, progress| {
                state.end = state.end.max(offset + 1);
                progress.at = 3;
                Some(())
            }),
            3 if falls && in_force && self.has_fallen(offset) => self.over_sliding(|state| {
                state.slots.remove(&offset);
                Some(())
            }),
            3 if in_force && !stale && offset >= self.state.watermark => {
                self.go(|state, progress| {
                    let slot = state.slots.get_mut(&offset)?;
                    slot.phase = Phase::Ready { by: Some(thread), owed: 0 };
                    progress.at = 4;
                    Some(())
                })
            }
            4 => {
                let expected = *answer;
                self.over_sliding(|state| {
                    (expected == Ok(announce(state, thread, in_force))).then_some(())
                });
            }
            _ => {}
        }
    }

    /// Steps: 0 entering, 1 raising the end, 2 publishing, 3 announcing, 4 refusing.
    pub(super) fn put_batch(&mut self, items: &[(u64, usize, u64)]) {
        let Answer::Batch(answer) = &self.op.answer else { return };
        let (search, thread, in_force) = (self.search, self.thread, self.in_force);
        let (expected, refused) = match answer {
            Ok(batch) => (batch, None),
            Err((kind, offset, id, batch)) => (batch, Some((*kind, *offset, *id))),
        };
        let item = self.progress.item;
        match self.progress.at {
            0 => {
                let stops = refused.is_some_and(|refused| {
                    items
                        .get(item)
                        .is_some_and(|&(offset, _, id)| (offset, id) == (refused.1, refused.2))
                });
                if stops && let Some((kind, offset, _)) = refused {
                    for mut state in self.refused(offset, kind) {
                        let progress = state.pending.get_mut(&thread).unwrap();
                        progress.item = items.len();
                        progress.looked = true;
                        progress.at = 1;
                        self.out.push(state);
                    }
                }
                let Some(&(offset, _, id)) = items.get(item) else {
                    let whole = refused.is_none() || self.progress.looked;
                    if self.progress.filled.is_empty() {
                        let (counts, dispatch) = (self.progress.counts, self.progress.dispatch);
                        let got = (counts[0], counts[1], counts[2], dispatch);
                        if whole && got == *expected {
                            self.over_sliding(|_| Some(()));
                        }
                    } else if whole || matches!(refused, Some((PutErrorKind::Stale, ..))) {
                        self.go(|_, progress| {
                            progress.at = 1;
                            Some(())
                        });
                    }
                    return;
                };
                if !self.progress.filled.is_empty() && !search.has_room(self.state, offset) {
                    // What was filled is published before room is made.
                    self.go(|_, progress| {
                        progress.at = 1;
                        Some(())
                    });
                }
                if self.progress.filled.is_empty() {
                    self.jumps(offset);
                }
                let mut state = self.state.clone();
                if self.fill(&mut state, offset, id) {
                    let progress = state.pending.get_mut(&thread).unwrap();
                    progress.filled.push(offset);
                    progress.item += 1;
                    self.out.push(state);
                }
                for (kind, count) in [
                    (PutErrorKind::Duplicate, 1),
                    (PutErrorKind::Passed, 2),
                    (PutErrorKind::BelowWatermark, 2),
                ] {
                    let most = [expected.0, expected.1, expected.2][count];
                    if self.progress.counts[count] >= most {
                        continue;
                    }
                    for mut state in self.refused(offset, kind) {
                        let progress = state.pending.get_mut(&thread).unwrap();
                        progress.counts[count] += 1;
                        progress.item += 1;
                        self.out.push(state);
                    }
                }
            }
            1 if self.progress.filled.is_empty() => self.go(|_, progress| {
                progress.at = 0;
                Some(())
            }),
            1 if in_force => self.go(|state, progress| {
                let last = progress.filled.iter().max().unwrap();
                state.end = state.end.max(last + 1);
                progress.at = 2;
                Some(())
            }),
            2 if in_force => {
                let Some(&offset) = self.progress.filled.first() else {
                    return self.go(|state, progress| {
                        progress.dispatch |= announce(state, thread, in_force);
                        progress.at = 0;
                        Some(())
                    });
                };
                if self.has_fallen(offset) {
                    self.go(|state, progress| {
                        state.slots.remove(&offset);
                        progress.filled.remove(0);
                        progress.counts[2] += 1;
                        progress.dispatch |= announce(state, thread, in_force);
                        Some(())
                    });
                }
                self.go(|state, progress| {
                    let slot = state.slots.get_mut(&offset)?;
                    slot.phase = Phase::Ready { by: Some(thread), owed: 0 };
                    progress.filled.remove(0);
                    progress.counts[0] += 1;
                    (offset >= state.watermark).then_some(())
                });
            }
            2 if self.progress.filled.is_empty() => {
                // Ended since: nothing to announce, and all of it was admitted.
                self.go(|_, progress| {
                    progress.at = 0;
                    Some(())
                });
            }
            _ => {}
        }
    }
}
