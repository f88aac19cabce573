//! Windows numbered by arrival: sparse offsets that come in order, both kinds of window.

#![cfg(all(feature = "std", target_pointer_width = "64"))]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;

use inflight::{PutError, RemoveError, RingWindow, SkipWindow, Stage, TakeError, Window};
use proptest::prelude::*;

fn both(test: impl Fn(&dyn Fn() -> Kind)) {
    test(&|| Kind::Ring(Arc::from(RingWindow::boxed_numbered())));
    test(&|| Kind::Skip(Arc::new(SkipWindow::numbered())));
}

enum Kind {
    Ring(Arc<RingWindow<u64, 64>>),
    Skip(Arc<SkipWindow<u64>>),
}

macro_rules! on_both {
    ($make:expr, |$window:ident| $body:block) => {
        match $make() {
            Kind::Ring($window) => $body,
            Kind::Skip($window) => $body,
        }
    };
}

#[test]
fn offsets_far_apart_need_no_room() {
    both(|make| {
        on_both!(make, |window| {
            let part = window.assign(100);
            for n in 0..40 {
                part.put(100 + n * (1 << 40), n).unwrap();
            }
            assert_eq!(part.span().unwrap(), 40, "the span counts messages");
            assert_eq!(part.watermark().unwrap().get(), 100);
            for n in (1..40).rev() {
                assert_eq!(part.remove(100 + n * (1 << 40)).unwrap().get(), 100);
            }
            assert_eq!(part.remove(100).unwrap().get(), 100 + 39 * (1 << 40) + 1);
            assert_eq!(part.end().unwrap(), 100 + 39 * (1 << 40) + 1);
            assert!(window.is_empty());
        });
    });
}

#[test]
fn a_ticket_finds_its_message_and_no_other() {
    both(|make| {
        on_both!(make, |window| {
            let part = window.assign(7);
            let tickets: Vec<_> =
                (0..10).map(|n| part.put(7 + n * 1_000, n).unwrap().ticket).collect();
            let lease = part.take_shared(3).unwrap();
            let held: Vec<_> = lease.messages().iter().map(|held| held.ticket()).collect();
            assert_eq!(held, tickets[..3]);
            lease.detach();
            assert_eq!(part.remove_ticket(tickets[9]).unwrap().get(), 7);
            assert_eq!(part.remove_ticket(tickets[1]).unwrap().get(), 7);
            let lent = part.take(1).unwrap();
            assert_eq!(part.remove_ticket(tickets[3]), Err(RemoveError::Held));
            lent.commit().unwrap();
            assert_eq!(part.remove_ticket(tickets[0]).unwrap().get(), 2_007);
            for ticket in &tickets[..2] {
                assert_eq!(part.remove_ticket(*ticket), Err(RemoveError::Passed));
            }
            let next = window.assign(7);
            assert_eq!(part.remove_ticket(tickets[4]), Err(RemoveError::Stale));
            next.put(7, 70).unwrap();
            for ticket in tickets {
                assert_eq!(next.remove_ticket(ticket), Err(RemoveError::Passed));
            }
            assert_eq!(window.count(), 1, "the new assignment's message is untouched");
        });
    });
}

#[test]
fn what_is_known_is_not_put_again() {
    both(|make| {
        on_both!(make, |window| {
            let part = window.assign(0);
            part.put_batch(&mut [(5, 0), (50, 1), (500, 2)].into_iter()).unwrap();
            part.remove(50).unwrap();
            let again = [(5, 9), (50, 9), (70, 9), (500, 9), (5000, 3)];
            let done = part.put_batch(&mut again.into_iter()).unwrap();
            assert_eq!((done.admitted, done.duplicates, done.passed), (1, 2, 2));
            assert_eq!(part.put(500, 9), Err(PutError::Duplicate(9)));
            assert_eq!(part.put(50, 9), Err(PutError::Passed(9)));
            assert_eq!(part.put(4, 9), Err(PutError::BelowWatermark(9)));
            assert_eq!(part.put(u64::MAX, 9), Err(PutError::OutOfRange(9)));
            // Out of order within one batch, and twice in one batch.
            let done = part.put_batch(&mut [(9000, 1), (6000, 2), (9000, 3)].into_iter()).unwrap();
            assert_eq!((done.admitted, done.duplicates, done.passed), (1, 1, 1));
            let all: Vec<_> = part.take(9).unwrap().into_values().collect();
            assert_eq!(all, [(5, 0), (500, 2), (5000, 3), (9000, 1)]);
            assert_eq!(part.watermark().unwrap().get(), 9001);
        });
    });
}

#[test]
fn the_end_of_a_filtered_log() {
    both(|make| {
        on_both!(make, |window| {
            let part = window.assign(10);
            assert_eq!(part.advance_to(80).unwrap().get(), 80);
            assert_eq!(part.put(79, 1), Err(PutError::BelowWatermark(1)));
            part.put(90, 2).unwrap();
            assert_eq!(part.advance_to(200).unwrap().get(), 90);
            assert_eq!(part.advance_to(100).unwrap().get(), 90);
            assert_eq!(part.end().unwrap(), 200);
            assert_eq!(part.put(150, 1), Err(PutError::Passed(1)));
            assert_eq!(part.remove(90).unwrap().get(), 200);
        });
    });
}

#[test]
fn everything_speaks_offsets() {
    both(|make| {
        on_both!(make, |window| {
            let part = window.assign(0);
            part.put_batch(&mut [(1000, 0), (2000, 1), (3000, 2)].into_iter()).unwrap();
            let head = part.head().unwrap().unwrap();
            assert_eq!((head.offset, head.stage), (1000, Stage::Waiting));
            let held = part.at(10).take_shared(2).unwrap();
            let stalled: Vec<_> = part.stalled(100, 50).unwrap().map(|held| held.offset).collect();
            assert_eq!(stalled, [1000, 2000]);
            let revoked = part.at(100).revoke(2000).unwrap();
            assert_eq!(part.remove(2000), Err(RemoveError::Held));
            assert_eq!(revoked.commit().unwrap().next.get(), 1000);
            assert_eq!(part.remove(2500), Err(RemoveError::Unknown));
            assert_eq!(part.remove(2000), Err(RemoveError::Passed));
            let report = held.commit().unwrap();
            assert_eq!((report.next.get(), report.applied, report.gone), (3000, 1, 1));
            assert_eq!(part.backlog(10_000).unwrap(), 10_000 - 3001);
        });
    });
}

#[test]
fn an_assignment_fences_the_one_before() {
    both(|make| {
        on_both!(make, |window| {
            let old = window.assign(0);
            old.put(1 << 50, 1).unwrap();
            let lease = old.take(1).unwrap();
            let new = window.assign(0);
            assert_eq!(new.watermark().unwrap().get(), 0);
            assert_eq!(old.put(5, 1), Err(PutError::Stale(1)));
            assert!(old.advance_to(1 << 60).is_err());
            assert!(lease.commit().is_err());
            new.put(7, 2).unwrap();
            assert_eq!(new.watermark().unwrap().get(), 7);
            assert_eq!(new.remove(7).unwrap().get(), 8);
            assert!(window.is_empty());
        });
    });
}

#[derive(Clone, Debug)]
enum Op {
    Put(u64),
    PutOld(u64),
    Take(usize, bool),
    Remove(usize),
    Advance(u64),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        4 => (1_u64..5000).prop_map(Op::Put),
        1 => (0_u64..20_000).prop_map(Op::PutOld),
        2 => (1_usize..5, any::<bool>()).prop_map(|(n, keep)| Op::Take(n, keep)),
        4 => (0_usize..64).prop_map(Op::Remove),
        1 => (0_u64..3000).prop_map(Op::Advance),
    ];
    prop::collection::vec(op, 1..200)
}

/// The numbers that a plain map gives.
#[derive(Default)]
struct Model {
    waiting: BTreeMap<u64, u64>,
    end: u64,
}

impl Model {
    fn watermark(&self) -> u64 {
        self.waiting.keys().next().copied().unwrap_or(self.end)
    }
}

fn compare<W: Window<Value = u64>>(window: &W, ops: &[Op]) -> Result<(), TestCaseError>
where
    for<'a> &'a W: inflight::WindowRef<Window = W>,
{
    let part = window.assign(0);
    let mut model = Model::default();
    let mut tickets = BTreeMap::new();
    for op in ops {
        match *op {
            Op::Put(ahead) => {
                let offset = model.end + ahead - 1;
                let room = window.capacity().is_none_or(|most| part.span().unwrap() < most as u64);
                let put = part.put(offset, offset);
                if let Ok(put) = put {
                    tickets.insert(offset, put.ticket);
                }
                if room {
                    prop_assert!(put.is_ok());
                    model.waiting.insert(offset, offset);
                    model.end = offset + 1;
                } else if let Err(error) = put {
                    prop_assert_eq!(error, PutError::Full(offset));
                } else {
                    model.waiting.insert(offset, offset);
                    model.end = offset + 1;
                }
            }
            Op::PutOld(offset) if offset < model.end => {
                let expected = if model.waiting.contains_key(&offset) {
                    PutError::Duplicate(0)
                } else if offset < model.watermark() {
                    PutError::BelowWatermark(0)
                } else {
                    PutError::Passed(0)
                };
                prop_assert_eq!(part.put(offset, 0), Err(expected));
            }
            Op::PutOld(_) => {}
            Op::Take(n, keep) => {
                let lowest: Vec<_> = model.waiting.iter().take(n).map(|(a, b)| (*a, *b)).collect();
                match part.take(n) {
                    Ok(lease) => {
                        let got: Vec<_> = lease.iter().map(|(at, value)| (at, *value)).collect();
                        prop_assert_eq!(&got, &lowest);
                        if keep {
                            lease.rollback().unwrap();
                        } else {
                            for (offset, _) in got {
                                model.waiting.remove(&offset);
                            }
                            prop_assert_eq!(lease.commit().unwrap().next.get(), model.watermark());
                        }
                    }
                    Err(error) => {
                        prop_assert_eq!(error, TakeError::Empty);
                        prop_assert!(lowest.is_empty());
                    }
                }
            }
            Op::Remove(nth) => {
                if let Some(offset) = model.waiting.keys().nth(nth).copied() {
                    model.waiting.remove(&offset);
                    // By its ticket or by its offset: that must make no difference.
                    let ticket = tickets[&offset];
                    let removed = match nth % 2 {
                        0 => part.remove_ticket(ticket),
                        _ => part.remove(offset),
                    };
                    prop_assert_eq!(removed.unwrap().get(), model.watermark());
                    prop_assert_eq!(part.remove_ticket(ticket), Err(RemoveError::Passed));
                    prop_assert!(part.remove(offset).is_err());
                }
            }
            Op::Advance(ahead) => {
                let to = model.watermark() + ahead;
                model.end = model.end.max(to);
                let next = part.advance_to(to).unwrap().get();
                prop_assert_eq!(next, model.watermark());
            }
        }
        prop_assert_eq!(part.watermark().unwrap().get(), model.watermark());
        prop_assert_eq!(part.end().unwrap(), model.end);
        prop_assert_eq!(window.count(), model.waiting.len());
        let pending: Vec<_> = part.pending().unwrap().map(|look| look.offset).collect();
        prop_assert!(pending.iter().eq(model.waiting.keys()));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 4 } else { 256 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_numbers_of_a_plain_map(ops in ops()) {
        compare(&RingWindow::<u64, 32>::numbered(), &ops)?;
        compare(&SkipWindow::<u64>::numbered(), &ops)?;
    }
}

#[test]
fn the_watermark_beside_everything() {
    both(|make| {
        on_both!(make, |window| {
            let messages: u64 = if cfg!(miri) { 100 } else { 100_000 };
            let stride = 977;
            let part = window.assign_owned(0);
            // Marked before the finish is begun: the watermark may pass only what is marked.
            let marked: Arc<Vec<std::sync::atomic::AtomicBool>> =
                Arc::new((0..messages).map(|_| false.into()).collect());
            let workers: Vec<_> = (0..2)
                .map(|worker| {
                    let (part, marked) = (part.clone(), Arc::clone(&marked));
                    thread::spawn(move || {
                        let mut highest = 0;
                        let mut round = worker;
                        loop {
                            round += 1;
                            let lease = match part.take_shared(1 + round % 5) {
                                Ok(lease) => lease,
                                Err(TakeError::Closed) => return,
                                Err(_) => {
                                    thread::yield_now();
                                    continue;
                                }
                            };
                            if round % 7 == 0 {
                                continue;
                            }
                            for (offset, _) in &lease {
                                marked[(offset / stride) as usize]
                                    .store(true, std::sync::atomic::Ordering::SeqCst);
                            }
                            let next = if round % 2 == 0 {
                                lease.commit().unwrap().next.get()
                            } else {
                                for (offset, _) in &lease {
                                    part.remove(offset).unwrap();
                                }
                                part.watermark().unwrap().get()
                            };
                            assert!(next >= highest, "the watermark went back");
                            highest = next;
                            if let Some(last) = next.checked_sub(1) {
                                let last = (last / stride) as usize;
                                assert!(
                                    marked[last].load(std::sync::atomic::Ordering::SeqCst)
                                        || next % stride == 0,
                                    "passed {last}"
                                );
                            }
                        }
                    })
                })
                .collect();
            for n in 0..messages {
                while let Err(error) = part.put(n * stride, n) {
                    assert_eq!(error, PutError::Full(n));
                    thread::yield_now();
                }
            }
            part.close().unwrap();
            for worker in workers {
                worker.join().unwrap();
            }
            assert_eq!(part.min_offset().unwrap().get(), (messages - 1) * stride + 1);
            assert!(window.is_empty());
        });
    });
}
