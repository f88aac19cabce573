//! Any real window as a [`Driver`].

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use inflight::{Assignment, Detached, Lease, SharedLease, Ticket, Window, WindowRef};

use super::driver::{Answer, Driver, End, Fault, Look, PartId, Step, Token, View};
use super::message::{Injected, Ledger, Message, injected};

enum AnyLease<R: WindowRef> {
    Lending(Lease<R>),
    Shared(SharedLease<R>),
}

/// A way to hold on to a window that it can be assigned by.
pub trait Assign: WindowRef {
    fn assign(&self, start: u64) -> Assignment<Self>;
}

impl<W: Window> Assign for &W {
    fn assign(&self, start: u64) -> Assignment<Self> {
        W::assign(self, start)
    }
}

impl<W: Window> Assign for Arc<W> {
    fn assign(&self, start: u64) -> Assignment<Self> {
        self.assign_owned(start)
    }
}

/// A window, and the assignments and leases of one thread.
pub struct Real<R: WindowRef> {
    window: R,
    ledger: Arc<Ledger>,
    parts: Vec<Assignment<R>>,
    leases: BTreeMap<Token, AnyLease<R>>,
    receipts: BTreeMap<Token, Detached<R>>,
    /// Of what was put or taken through a handle, by offset.
    tickets: BTreeMap<(PartId, u64), Ticket>,
}

/// An iterator that panics at its `panic_at`th item.
fn faulty<T>(items: impl Iterator<Item = T>, panic_at: Option<usize>) -> impl Iterator<Item = T> {
    items.enumerate().map(move |(index, item)| match panic_at {
        Some(at) if at == index => injected(),
        _ => item,
    })
}

fn look(look: inflight::Look) -> Look {
    (look.offset, look.stage, look.since, look.deliveries)
}

fn report(report: Result<inflight::Report, inflight::Stale>) -> Answer {
    Answer::Report(report.map(|report| (report.next.get(), report.applied, report.gone)))
}

impl<R: Assign<Window: Window<Value = Message>>> Real<R> {
    pub fn new(window: R, ledger: &Arc<Ledger>, start: u64) -> Self {
        let parts = vec![window.assign(start)];
        let (leases, receipts, tickets) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { window, ledger: Arc::clone(ledger), parts, leases, receipts, tickets }
    }

    /// For another thread, with the same assignment in its hands.
    pub fn beside(&self) -> Self {
        let (window, ledger) = (self.window.clone(), Arc::clone(&self.ledger));
        let (parts, tickets) = (self.parts.clone(), self.tickets.clone());
        let (leases, receipts) = (BTreeMap::new(), BTreeMap::new());
        Self { window, ledger, parts, leases, receipts, tickets }
    }

    fn part(&self, part: PartId) -> &Assignment<R> {
        &self.parts[part]
    }

    pub fn last(&self) -> &Assignment<R> {
        self.parts.last().unwrap()
    }

    /// How many handles there are.
    pub fn parts(&self) -> usize {
        self.parts.len()
    }

    /// The leases that are alive.
    pub fn leases(&self) -> Vec<Token> {
        self.leases.keys().copied().collect()
    }

    pub fn call(&mut self, step: &Step) -> Answer {
        match *step {
            Step::Assign { start } => {
                let part = self.window.assign(start);
                self.parts.push(part);
                Answer::Nothing
            }
            Step::Put { part, offset, bytes, id } => {
                let put = self.part(part).put_sized(offset, bytes, self.ledger.message(id));
                self.ledger.fail_drop(None);
                if let Ok(put) = &put {
                    self.tickets.insert((part, offset), put.ticket);
                }
                Answer::Put(
                    put.map(|put| put.dispatch)
                        .map_err(|error| (error.kind(), error.into_inner().id)),
                )
            }
            Step::PutBatch { part, ref items, panic_at } => {
                let sizes: BTreeMap<u64, usize> =
                    items.iter().map(|&(_, bytes, id)| (id, bytes)).collect();
                let ledger = Arc::clone(&self.ledger);
                // The panic comes before the message is made.
                let mut messages = faulty(items.iter(), panic_at)
                    .map(|&(offset, _, id)| (offset, ledger.message(id)));
                let batch = |batch: inflight::BatchPut| {
                    (batch.admitted, batch.duplicates, batch.passed, batch.dispatch)
                };
                let put = self
                    .part(part)
                    .put_batch_sized(&mut messages, |message: &Message| sizes[&message.id]);
                self.ledger.fail_drop(None);
                Answer::Batch(put.map(batch).map_err(|error| {
                    (error.error, error.offset, error.value.id, batch(error.so_far))
                }))
            }
            Step::Take { part: id, n, shared, now, token } => {
                let part = self.part(id);
                let (lease, taken) = if shared {
                    let lease = match now {
                        Some(now) => part.at(now).take_shared(n),
                        None => part.take_shared(n),
                    };
                    let lease = match lease {
                        Ok(lease) => lease,
                        Err(error) => return Answer::Taken(Err(error)),
                    };
                    let tickets = lease.messages().iter().map(|one| (one.offset(), one.ticket()));
                    self.tickets.extend(tickets.map(|(offset, ticket)| ((id, offset), ticket)));
                    let taken = lease
                        .messages()
                        .iter()
                        .map(|held| (held.offset(), held.value().id, held.deliveries()))
                        .collect();
                    (AnyLease::Shared(lease), taken)
                } else {
                    let lease = match now {
                        Some(now) => part.at(now).take(n),
                        None => part.take(n),
                    };
                    let lease = match lease {
                        Ok(lease) => lease,
                        Err(error) => return Answer::Taken(Err(error)),
                    };
                    let taken = listed(&lease);
                    (AnyLease::Lending(lease), taken)
                };
                self.leases.insert(token, lease);
                Answer::Taken(Ok(taken))
            }
            Step::End { token, ref how } => {
                let lease = self.leases.remove(&token).expect("a live lease");
                self.end(lease, how)
            }
            Step::Finish { token, offset } => {
                let finished = match self.leases.get_mut(&token).expect("a live lease") {
                    AnyLease::Lending(lease) => lease.finish(offset),
                    AnyLease::Shared(lease) => lease.finish(offset),
                };
                Answer::Removed(finished.map(inflight::Next::get))
            }
            Step::Touch { token, now } => {
                match &self.leases[&token] {
                    AnyLease::Lending(lease) => lease.touch(now),
                    AnyLease::Shared(lease) => lease.touch(now),
                }
                Answer::Nothing
            }
            Step::IntoDetached { token } => {
                let detached = match self.leases.remove(&token).expect("a live lease") {
                    AnyLease::Lending(_) => panic!("a lending lease has no receipt"),
                    AnyLease::Shared(lease) => lease.into_detached(),
                };
                let offsets: Vec<u64> = detached.offsets().collect();
                assert_eq!(detached.len(), offsets.len());
                assert_eq!(detached.is_empty(), offsets.is_empty());
                self.receipts.insert(token, detached);
                Answer::Detached(offsets)
            }
            Step::TouchDetached { token, now } => {
                self.receipts[&token].touch(now);
                Answer::Nothing
            }
            Step::GiveBack { token } => {
                let detached = self.receipts.remove(&token).expect("a live receipt");
                report(detached.give_back())
            }
            Step::DropDetached { token } => {
                drop(self.receipts.remove(&token).expect("a live receipt"));
                Answer::Nothing
            }
            Step::Remove { part, offset } => {
                // Half of them by their tickets: that must make no difference.
                let ticket = self.tickets.get(&(part, offset)).filter(|_| offset % 2 == 1);
                let removed = match ticket {
                    Some(&ticket) => self.part(part).remove_ticket(ticket),
                    None => self.part(part).remove(offset),
                };
                Answer::Removed(removed.map(inflight::Next::get))
            }
            Step::Skip { part, offset } => {
                let skipped = self.part(part).skip(offset, inflight::SkipReason::Poison);
                Answer::Removed(skipped.map(inflight::Next::get))
            }
            Step::RemoveBatch { part, ref offsets, panic_at } => {
                let mut each = Vec::new();
                let offsets = faulty(offsets.iter().copied(), panic_at);
                let done = self.part(part).remove_each(offsets, |_, removed| each.push(removed));
                if let Ok(done) = done {
                    let count = |what| each.iter().filter(|each| **each == what).count();
                    assert_eq!(done.applied, count(Ok(())));
                    assert_eq!(done.passed, count(Err(inflight::RemoveError::Passed)));
                    assert_eq!(done.held, count(Err(inflight::RemoveError::Held)));
                    assert_eq!(done.unknown, count(Err(inflight::RemoveError::Unknown)));
                }
                Answer::RemovedBatch(done.map(|done| done.next.get()), each)
            }
            Step::Revoke { part, offset, now, token } => {
                Answer::Revoked(match self.part(part).at(now).revoke(offset) {
                    Ok(lease) => {
                        let revoked = listed(&lease);
                        self.leases.insert(token, AnyLease::Lending(lease));
                        Ok(revoked)
                    }
                    Err(error) => Err(error),
                })
            }
            Step::TouchOne { part, offset, now } => {
                Answer::Touched(self.part(part).at(now).touch(offset))
            }
            Step::Watermark { part } => {
                Answer::Next(self.part(part).watermark().map(inflight::Next::get))
            }
            Step::EndOffset { part } => Answer::Next(self.part(part).end()),
            Step::MinOffset { part } => {
                Answer::Next(self.part(part).min_offset().map(inflight::Next::get))
            }
            Step::AdvanceTo { part, next } => {
                Answer::Advanced(self.part(part).advance_to(next).map(inflight::Next::get))
            }
            Step::AdvanceFloor { part, low } => {
                let mut dropped = Vec::new();
                let floor =
                    self.part(part).advance_floor(low, |_, message| dropped.push(message.id));
                dropped.sort_unstable();
                Answer::Floor(floor.map(|floor| {
                    assert_eq!(floor.dropped, dropped.len());
                    (floor.next.get(), dropped, floor.lent)
                }))
            }
            Step::Restore { part, ref bytes } => {
                let snapshot = inflight::Snapshot::parse(bytes).expect("bytes of a snapshot");
                let restored = self.part(part).restore(&snapshot);
                Answer::Restored(restored.map(|done| (done.next.get(), done.beyond)))
            }
            Step::Head { part } => Answer::Head(self.part(part).head().map(|head| head.map(look))),
            Step::Close { part } => Answer::Closed(self.part(part).close()),
            Step::Stalled { part, now, age } => {
                Answer::Stalled(self.part(part).stalled(now, age).map(|stalled| {
                    stalled
                        .map(|one| (one.offset, one.since, one.deliveries, one.revocable))
                        .collect()
                }))
            }
        }
    }

    fn end(&mut self, lease: AnyLease<R>, how: &End) -> Answer {
        match (lease, how) {
            (AnyLease::Lending(lease), End::Commit) => report(lease.commit()),
            (AnyLease::Shared(lease), End::Commit) => report(lease.commit()),
            (AnyLease::Lending(lease), End::Only { done, panic_at }) => {
                report(lease.commit_only(faulty(done.iter().copied(), *panic_at)))
            }
            (AnyLease::Shared(lease), End::Only { done, panic_at }) => {
                report(lease.commit_only(faulty(done.iter().copied(), *panic_at)))
            }
            (AnyLease::Lending(lease), End::Where { done, panic_at }) => {
                report(lease.commit_where(judge(done, *panic_at)))
            }
            (AnyLease::Shared(lease), End::Where { done, panic_at }) => {
                report(lease.commit_where(judge(done, *panic_at)))
            }
            (AnyLease::Lending(lease), End::Rollback) => report(lease.rollback()),
            (AnyLease::Shared(lease), End::Rollback) => report(lease.rollback()),
            (AnyLease::Lending(lease), End::Detach) => nothing(|| lease.detach()),
            (AnyLease::Shared(lease), End::Detach) => nothing(|| lease.detach()),
            (AnyLease::Lending(lease), End::Drop) => nothing(|| drop(lease)),
            (AnyLease::Shared(lease), End::Drop) => nothing(|| drop(lease)),
            (AnyLease::Lending(lease), End::Forget) => nothing(|| std::mem::forget(lease)),
            (AnyLease::Shared(lease), End::Forget) => nothing(|| std::mem::forget(lease)),
            (AnyLease::Lending(lease), End::Values { take }) => {
                let mut values = lease.into_values();
                let yielded = values.by_ref().take(*take).collect();
                drop(values);
                self.yielded(yielded)
            }
            (AnyLease::Shared(lease), End::Values { take }) => {
                let mut values = lease.into_values();
                let yielded = values.by_ref().take(*take).collect();
                drop(values);
                self.yielded(yielded)
            }
        }
    }

    fn yielded(&self, values: Vec<(u64, Message)>) -> Answer {
        self.ledger.fail_drop(None);
        Answer::Values(values.iter().map(|(offset, message)| (*offset, message.id)).collect())
    }
}

fn nothing(f: impl FnOnce()) -> Answer {
    f();
    Answer::Nothing
}

fn judge(done: &[u64], panic_at: Option<usize>) -> impl FnMut(u64, &Message) -> bool {
    let mut asked = 0..;
    move |offset, _| {
        if asked.next() == panic_at {
            injected();
        }
        done.contains(&offset)
    }
}

fn listed<R: WindowRef<Window: Window<Value = Message>>>(lease: &Lease<R>) -> Vec<(u64, u64, u32)> {
    assert_eq!(lease.len(), lease.iter().len());
    lease.messages().map(|one| (one.offset, one.value.id, one.deliveries)).collect()
}

impl<R: Assign<Window: Window<Value = Message>>> Driver for Real<R> {
    fn step(&mut self, step: &Step, fault: Fault) -> Answer {
        match fault {
            Fault::None => {}
            Fault::Drop(id) => self.ledger.fail_drop(Some(id)),
            Fault::Clone(id) => self.ledger.fail_clone(Some(id)),
        }
        let answer = catch_unwind(AssertUnwindSafe(|| self.call(step)));
        self.ledger.fail_drop(None);
        self.ledger.fail_clone(None);
        match answer {
            Ok(answer) => answer,
            Err(panic) if panic.is::<Injected>() => {
                if let Step::Assign { .. } = step {
                    self.call(step);
                }
                Answer::Panicked
            }
            Err(panic) => resume_unwind(panic),
        }
    }

    fn view(&self) -> View {
        let part = self.last();
        let window = self.window.window();
        let usage = window.usage();
        let view = View {
            watermark: part.watermark().unwrap().get(),
            end: part.end().unwrap(),
            span: part.span().unwrap(),
            count: usage.count,
            bytes: usage.bytes,
            pending: part.pending().unwrap().map(look).collect(),
        };
        assert_eq!(window.count(), view.count);
        assert_eq!(window.bytes(), view.bytes);
        assert_eq!(window.span(), view.span);
        assert_eq!(window.is_empty(), view.count == 0);
        view
    }
}
