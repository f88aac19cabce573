//! The steps of whoever ends a lease, or finishes one message of it.

use super::*;

impl Stepping<'_, '_> {
    /// Steps: 0 finishing, 1 meeting, 2 sliding, 3 returning, 4 announcing, 5 answering.
    pub(super) fn end_lease(&mut self, token: Token, how: &End) {
        let Some(lease) = self.state.leases.get(&token) else { return };
        let (search, thread, in_force) = (self.search, self.thread, self.in_force);
        let (shared, offsets) = (lease.shared, &lease.offsets);
        // What to finish next: what was is no longer in the lease.
        let next_of = |item: usize| match how {
            End::Commit | End::Values { .. } => offsets.first().copied(),
            End::Only { done, .. } => done.get(item).copied(),
            End::Where { done, .. } => offsets.iter().copied().find(|one| done.contains(one)),
            End::Rollback | End::Detach | End::Drop | End::Forget => None,
        };
        let most = match how {
            End::Values { take } => *take,
            _ => usize::MAX,
        };
        let report = match &self.op.answer {
            Answer::Report(Ok(report)) => Some(*report),
            _ => None,
        };
        let finishes =
            matches!(how, End::Commit | End::Only { .. } | End::Where { .. } | End::Values { .. });
        let (item, answer) = (self.progress.item, &self.op.answer);
        match self.progress.at {
            0 if matches!(how, End::Forget) || (matches!(how, End::Detach) && shared) => {
                self.over(|_| Some(()));
            }
            0 => match next_of(item).filter(|_| self.progress.counts[0] < most) {
                Some(offset) => self.go(|state, progress| {
                    progress.item += 1;
                    let known = state.leases[&token].offsets.contains(&offset);
                    if known && state.holds(token, offset) {
                        let id = state.slots[&offset].id;
                        if let Answer::Values(values) = answer
                            && values.get(progress.counts[0]) != Some(&(offset, id))
                        {
                            return None;
                        }
                        state.finish(offset, thread);
                        progress.counts[0] += 1;
                    } else {
                        let released = known && !shared && state.release(token, offset);
                        if known && !shared && !released {
                            return None;
                        }
                        // A doomed message is handed out all the same.
                        let out = usize::from(released && matches!(how, End::Values { .. }));
                        progress.counts[0] += out;
                        progress.counts[1] += 1;
                    }
                    state.leases.get_mut(&token)?.offsets.retain(|one| *one != offset);
                    Some(())
                }),
                None => self.go(|_, progress| {
                    (progress.at, progress.item) = (if finishes { 1 } else { 3 }, 0);
                    Some(())
                }),
            },
            1 => self.meets(2),
            2 => self.go(|state, progress| {
                if let Some((next, ..)) = report {
                    Self::is_at(search, state, progress, next)?;
                    if !in_force {
                        return None;
                    }
                }
                progress.at = 3;
                Some(())
            }),
            3 => match offsets.get(item).copied() {
                Some(offset) => self.go(|state, progress| {
                    progress.item += 1;
                    if state.holds(token, offset) {
                        state.slots.get_mut(&offset)?.phase = match how {
                            End::Detach => Phase::Held(token),
                            _ => Phase::Ready { by: Some(thread), owed: 0 },
                        };
                        progress.counts[2] += 1;
                    } else if !shared {
                        progress.counts[1] += 1;
                        state.release(token, offset).then_some(())?;
                    } else if matches!(how, End::Rollback) {
                        progress.counts[1] += 1;
                    }
                    Some(())
                }),
                None => self.go(|_, progress| {
                    progress.at = 4;
                    Some(())
                }),
            },
            4 => self.go(|state, progress| {
                if progress.counts[2] > 0 && !matches!(how, End::Detach) {
                    announce(state, thread, in_force);
                }
                progress.at = 5;
                Some(())
            }),
            _ => {
                let counts = self.progress.counts;
                let fits = match (answer, how) {
                    (Answer::Report(Ok((_, applied, gone))), End::Rollback) => {
                        in_force && (*applied, *gone) == (counts[2], counts[1])
                    }
                    (Answer::Report(Ok((_, applied, gone))), End::Commit) => {
                        (*applied, *gone) == (counts[0], counts[1])
                    }
                    (Answer::Report(Ok((_, applied, gone))), _) => {
                        in_force && (*applied, *gone) == (counts[0], counts[1])
                    }
                    (Answer::Report(Err(_)), _) => !in_force,
                    (Answer::Values(values), _) => values.len() == counts[0],
                    _ => true,
                };
                if !fits {
                    return;
                }
                match (report, how) {
                    (Some((next, ..)), End::Rollback) => {
                        self.over(|state| search.is_at(state, next));
                    }
                    // Also after a report: what was doomed and is let go may be slid over now.
                    _ => self.over_sliding(|_| Some(())),
                }
            }
        }
    }

    pub(super) fn finish(&mut self, token: Token, offset: u64) {
        let Answer::Removed(answer) = self.op.answer else { return };
        let Some(lease) = self.state.leases.get(&token) else { return };
        let (search, thread, in_force) = (self.search, self.thread, self.in_force);
        let shared = lease.shared;
        match self.progress.at {
            0 if !lease.offsets.contains(&offset) => {
                let refused = match in_force {
                    true => RemoveError::Unknown,
                    false => RemoveError::Stale,
                };
                self.over(|_| (answer == Err(refused)).then_some(()));
            }
            0 => self.go(|state, progress| {
                if state.holds(token, offset) {
                    state.finish(offset, thread);
                    progress.counts[0] = 1;
                } else if !shared {
                    state.release(token, offset).then_some(())?;
                }
                state.leases.get_mut(&token)?.offsets.retain(|one| *one != offset);
                progress.at = 1;
                Some(())
            }),
            1 => self.meets(2),
            _ => {
                let progress = self.progress.clone();
                match answer {
                    Ok(next) if progress.counts[0] == 1 => {
                        self.when(|state| Self::is_at(search, state, &progress, next));
                    }
                    Err(RemoveError::Passed) if progress.counts[0] == 0 && in_force => {
                        self.over_sliding(|_| Some(()));
                    }
                    Err(RemoveError::Stale) if !in_force => self.over_sliding(|_| Some(())),
                    _ => {}
                }
            }
        }
    }
}
