//! Budgets: against a plain model, from every way out of a window, and by threads with a checker
//! that knows nothing of the budget's words.

mod common;

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

#[cfg(not(inflight_ring_only))]
use common::SkipKind;
use common::{Kind, RingKind, panics, scenarios};
use inflight::{
    Assignment, Budget, Budgeted, Permit, PutError, PutErrorKind, ReserveError, RingWindow, Share,
    SkipReason, Usage, Window,
};
use proptest::prelude::*;

type Paid<K, T, const N: usize, B> = Budgeted<Box<<K as Kind>::Window<T, N>>, B>;

/// A window of this kind with a share of the budget.
fn paid<K: Kind, T: Send + 'static, const N: usize, B: Deref<Target = Budget>>(
    variant: usize,
    share: Share<B>,
) -> Paid<K, T, N, B> {
    Budgeted::new(K::window::<T, N>(variant, false), share)
}

fn pair(usage: Usage) -> (usize, u64) {
    (usage.count, usage.bytes)
}

fn short(messages: usize, bytes: u64) -> ReserveError {
    ReserveError::Short { messages, bytes }
}

scenarios! {
    fn whatever_leaves_the_window_gives_back<K>(variant) {
        let budget = Budget::new(8, 800);
        let mut window = paid::<K, u64, 8, _>(variant, Share::new(&budget));
        let used = |window: &Paid<K, u64, 8, &Budget>| pair(window.share().used());
        let part = window.assign(0);
        let fill = |part: &Assignment<&Paid<K, u64, 8, &Budget>>, from: u64| {
            let sized = |n: &u64| 10 + *n as usize;
            part.put_batch_sized(&mut (from..from + 8).map(|n| (n, n % 8)), sized).unwrap();
        };
        fill(&part, 0);
        assert_eq!((used(&window), pair(budget.free())), ((8, 108), (0, 692)));
        part.remove(3).unwrap();
        assert_eq!(used(&window), (7, 95));
        part.skip(0, SkipReason::Poison).unwrap();
        assert_eq!(used(&window), (6, 85));
        part.remove_batch([0, 1, 2]).unwrap();
        assert_eq!(used(&window), (4, 62));
        let lease = part.take(2).unwrap();
        lease.rollback().unwrap();
        assert_eq!(used(&window), (4, 62), "given back to the window, not to the budget");
        part.take(1).unwrap().commit().unwrap();
        assert_eq!(used(&window), (3, 48));
        for (_, value) in part.take(1).unwrap().into_values() {
            assert_eq!(value, 5);
        }
        assert_eq!(used(&window), (2, 33));
        let hung = part.at(1).take_shared(1).unwrap();
        part.at(2).revoke(6).unwrap().commit().unwrap();
        assert_eq!((used(&window), hung.commit().unwrap().gone), ((1, 17), 1));
        part.take_shared(1).unwrap().commit().unwrap();
        assert_eq!((used(&window), pair(budget.free())), ((0, 0), (8, 800)));

        fill(&part, 8);
        part.advance_floor(11, |_, _| {}).unwrap();
        assert_eq!(used(&window), (5, 75));
        let lent = part.take(2).unwrap();
        part.advance_floor(12, |_, _| {}).unwrap();
        assert_eq!(used(&window), (5, 75), "a lease has it still");
        assert_eq!(lent.commit().unwrap().gone, 1);
        assert_eq!(used(&window), (3, 48));
        let lent = part.take(1).unwrap();
        let next = window.assign(0);
        assert_eq!(used(&window), (1, 15), "what a lease of an ended assignment has");
        drop(lent);
        assert_eq!(used(&window), (0, 0));

        fill(&next, 0);
        std::mem::forget(next.take(1).unwrap());
        assert_eq!(window.drain().count(), 8);
        assert_eq!((used(&window), pair(budget.free())), ((0, 0), (8, 800)));

        let part = window.assign(0);
        std::mem::forget(part.reserve(1, 1).unwrap());
        part.put_sized(0, 1, 0).unwrap();
        assert_eq!((used(&window), pair(budget.free())), ((2, 2), (6, 798)));
        drop(window);
        assert_eq!(pair(budget.free()), (8, 800));
    }

    fn a_window_that_is_dropped_gives_its_floor_back<K>(variant) {
        let budget = Arc::new(Budget::new(10, 1000));
        let share = Share::with_floor(Arc::clone(&budget), 3, 300).unwrap();
        let window = paid::<K, u64, 8, _>(variant, share);
        assert_eq!(pair(budget.free()), (7, 700));
        window.assign(0).put_sized(0, 400, 1).unwrap();
        assert_eq!(pair(budget.free()), (7, 600));
        drop(window);
        assert_eq!(pair(budget.free()), (10, 1000));
    }

    fn a_put_is_trued_up<K>(variant) {
        let budget = Budget::new(3, 100);
        let window = paid::<K, &str, 8, _>(variant, Share::new(&budget));
        let part = window.assign(0);
        let mut permit = part.reserve(2, 50).unwrap();
        assert_eq!((permit.messages(), permit.bytes(), pair(budget.free())), (2, 50, (1, 50)));
        permit.put_sized(0, 20, "smaller").unwrap();
        assert_eq!((permit.messages(), permit.bytes(), pair(budget.free())), (1, 30, (1, 50)));
        // Larger than what is left: the share has the rest.
        permit.put_sized(1, 70, "larger").unwrap();
        assert_eq!((permit.messages(), permit.bytes(), pair(budget.free())), (0, 0, (1, 10)));
        // More than was reserved, and the share has it.
        permit.put_sized(2, 10, "one more").unwrap();
        assert_eq!(pair(budget.free()), (0, 0));
        let refused = permit.put_sized(3, 0, "too many").unwrap_err();
        assert_eq!(refused, PutError::OverBudget("too many"));
        assert_eq!(part.put(3, "too many"), Err(PutError::OverBudget("too many")));
        // What is known needs no room.
        assert_eq!(part.put(1, "known").unwrap_err().kind(), PutErrorKind::Duplicate);
        part.remove(1).unwrap();
        assert_eq!(pair(budget.free()), (1, 70));
        let too_large = permit.put_sized(3, 71, "too large").unwrap_err();
        assert_eq!((too_large, pair(budget.free())), (PutError::OverBudget("too large"), (1, 70)));
        drop(permit);
        assert_eq!(pair(budget.free()), (1, 70));
        assert_eq!(pair(window.usage()), pair(window.share().used()));
    }

    fn what_is_refused_costs_nothing<K>(variant) {
        let budget = Budget::new(100, 1000);
        let window = paid::<K, u64, 8, _>(variant, Share::new(&budget));
        let part = window.assign(10);
        let mut permit = part.reserve(20, 500).unwrap();
        permit.put_sized(10, 5, 0).unwrap();
        permit.put_sized(12, 5, 0).unwrap();
        part.remove(10).unwrap();
        let mut kinds = Vec::new();
        for offset in [3, 10, 12, u64::MAX] {
            kinds.push(permit.put_sized(offset, 7, 0).unwrap_err().kind());
        }
        use PutErrorKind::{BelowWatermark, Duplicate, OutOfRange};
        assert_eq!(kinds, [BelowWatermark, BelowWatermark, Duplicate, OutOfRange]);
        assert_eq!((permit.messages(), permit.bytes()), (18, 490));
        if let Some(capacity) = K::capacity(8) {
            let full = permit.put_sized(12 + capacity, 7, 9).unwrap_err();
            assert_eq!(full, PutError::Full(9));
        }
        let mut batch = (10..14).map(|offset| (offset, 0));
        let done = permit.put_batch_sized(&mut batch, |_| 3).unwrap();
        assert_eq!((done.admitted, done.duplicates, done.passed), (1, 1, 2));
        assert_eq!((permit.messages(), permit.bytes()), (17, 487));

        let closed = window.assign(0);
        assert_eq!(permit.put_sized(14, 1, 5), Err(PutError::Stale(5)));
        assert_eq!(part.reserve(1, 1).unwrap_err(), ReserveError::Stale);
        assert_eq!((permit.messages(), permit.bytes()), (17, 487));
        drop(permit);
        assert_eq!(pair(budget.free()), (100, 1000));
        let mut late = closed.reserve(1, 1).unwrap();
        closed.close().unwrap();
        assert_eq!(closed.reserve(1, 1).unwrap_err(), ReserveError::Closed);
        assert_eq!(late.put_sized(0, 1, 6), Err(PutError::Closed(6)));
        drop(late);
        assert_eq!(pair(budget.free()), (100, 1000));
    }

    fn a_batch_that_panics_keeps_its_accounts<K>(variant) {
        let budget = Budget::new(10, 100);
        let window = paid::<K, u64, 16, _>(variant, Share::new(&budget));
        let part = window.assign(0);
        let mut permit = part.reserve(5, 50).unwrap();
        let thrown = panics(|| {
            let mut batch = (0..5).map(|n| match n {
                3 => std::panic::panic_any(common::message::Injected),
                _ => (n, n),
            });
            let _ = permit.put_batch_sized(&mut batch, |_| 7);
        });
        assert!(thrown);
        assert_eq!((permit.messages(), permit.bytes(), window.count()), (2, 29, 3));
        let thrown = panics(|| {
            let _ = part.put_batch_sized(&mut (3..5).map(|n| (n, n)), |n| match n {
                4 => std::panic::panic_any(common::message::Injected),
                _ => 7,
            });
        });
        assert!(thrown);
        assert_eq!((pair(window.share().used()), window.count()), ((6, 57), 4));
        drop(permit);
        assert_eq!(pair(window.share().used()), (4, 28));
    }

    fn a_floor_is_kept<K>(variant) {
        let budget = Budget::new(10, 1000);
        let floored = Share::with_floor(&budget, 4, 300).unwrap();
        let a = paid::<K, u64, 16, _>(variant, floored);
        let b = paid::<K, u64, 16, _>(variant, Share::new(&budget));
        assert_eq!((pair(a.share().most()), pair(b.share().most())), ((10, 1000), (6, 700)));
        let (a, b) = (a.assign(0), b.assign(0));
        let too_much = ReserveError::TooMuch { messages: 6, bytes: 700 };
        assert_eq!(b.reserve(7, 0).unwrap_err(), too_much);
        assert_eq!(b.reserve(0, 701).unwrap_err(), too_much);
        let all = b.reserve(6, 700).unwrap();
        assert_eq!(b.reserve(1, 2).unwrap_err(), short(1, 2));
        assert_eq!((pair(a.window().share().room()), pair(budget.free())), ((4, 300), (0, 0)));
        let mut mine = a.reserve(4, 300).unwrap();
        assert_eq!(a.reserve(1, 0).unwrap_err(), short(1, 0));
        mine.put_sized(0, 250, 0).unwrap();
        drop(mine);
        // Below the floor, so nothing of it is free.
        assert_eq!((pair(budget.free()), pair(a.window().share().used())), ((0, 0), (1, 250)));
        drop(all);
        assert_eq!(pair(budget.free()), (6, 700));
        let above = a.reserve(8, 100).unwrap();
        assert_eq!((pair(budget.free()), pair(b.window().share().room())), ((1, 650), (1, 650)));
        a.remove(0).unwrap();
        assert_eq!(pair(budget.free()), (2, 700));
        drop(above);
        assert_eq!(pair(budget.free()), (6, 700));
    }

    fn as_much_as_there_is<K>(variant) {
        let budget = Budget::new(10, 100);
        let floored = Share::with_floor(&budget, 2, 50).unwrap();
        let a = paid::<K, u64, 16, _>(variant, floored);
        let b = paid::<K, u64, 16, _>(variant, Share::new(&budget));
        let (a, b) = (a.assign(0), b.assign(0));
        let seven = b.reserve(7, 45).unwrap();
        let got = a.reserve_up_to(32, u64::MAX).unwrap();
        assert_eq!((got.messages(), got.bytes()), (3, 55));
        assert_eq!(a.reserve_up_to(32, 10).unwrap_err(), short(1, 1));
        assert_eq!(a.reserve_up_to(32, 0).unwrap_err(), short(1, 0));
        assert_eq!(a.reserve_up_to(0, 0).unwrap().messages(), 0);
        drop(seven);
        let some = b.reserve_up_to(usize::MAX, 4).unwrap();
        assert_eq!((some.messages(), some.bytes()), (7, 4));
        drop((got, some));
        assert_eq!(pair(budget.free()), (8, 50));
    }
}

#[test]
fn floors_are_taken_while_there_is_room() {
    let budget = Budget::new(10, 100);
    let one = Share::with_floor(&budget, 6, 10).unwrap();
    assert_eq!(Share::with_floor(&budget, 5, 95).unwrap_err(), {
        ReserveError::TooMuch { messages: 4, bytes: 90 }
    });
    let window = Budgeted::new(RingWindow::<u64, 8>::new(), Share::new(&budget));
    let part = window.assign(0);
    let permit = part.reserve(2, 0).unwrap();
    assert_eq!(Share::with_floor(&budget, 4, 0).unwrap_err(), short(2, 0));
    drop(permit);
    let two = Share::with_floor(&budget, 4, 0).unwrap();
    assert_eq!((pair(two.floor()), pair(two.most())), ((4, 0), (4, 90)));
    let none = ReserveError::TooMuch { messages: 0, bytes: 90 };
    assert_eq!(part.reserve(1, 0).unwrap_err(), none);
    drop((one, two));
    assert_eq!(pair(budget.free()), (10, 100));
}

/// A limit that words cannot hold counts as the largest that they can; what windows really have
/// fits with room to spare.
#[test]
fn large_limits() {
    let narrow = common::kinds::NARROW;
    let endless = Budget::new(usize::MAX, u64::MAX);
    let most = if narrow { (1 << 30, u32::MAX.into()) } else { ((1 << 24) - 1, (1 << 40) - 1) };
    assert_eq!(pair(endless.limit()), most);
    let window = Budgeted::new(RingWindow::<u64, 64>::new(), Share::new(&endless));
    let part = window.assign(0);
    let all = part.reserve(most.0, most.1).unwrap();
    assert_eq!(part.reserve(1, 0).unwrap_err(), short(1, 0));
    drop(all);
    let too_much = ReserveError::TooMuch { messages: most.0, bytes: most.1 };
    assert_eq!(part.reserve(usize::MAX, u64::MAX).unwrap_err(), too_much);

    // 100 MiB for each of 32 partitions, in messages of 16 MiB.
    let budget = Budget::new(32_000, 32 * (100 << 20));
    let share = || Share::with_floor(&budget, 900, 90 << 20).unwrap();
    let windows: Vec<_> =
        (0..32).map(|_| Budgeted::new(RingWindow::<u64, 64>::boxed(), share())).collect();
    for window in &windows {
        let part = window.assign(0);
        let mut permit = part.reserve(900, 90 << 20).unwrap();
        for offset in 0..6 {
            permit.put_sized(offset, 15 << 20, offset).unwrap();
        }
        assert_eq!(permit.bytes(), 0);
    }
    assert_eq!(pair(budget.free()), (3200, 320 << 20));
    drop(windows);
    assert_eq!(pair(budget.free()), (32_000, 3200 << 20));
}

#[test]
fn a_window_in_a_static() {
    static BUDGET: Budget = Budget::new(4, 400);
    static WINDOW: Budgeted<RingWindow<u64, 8>> = Budgeted::ring(Share::new(&BUDGET));
    let part = WINDOW.assign(0);
    part.put_sized(0, 100, 7).unwrap();
    let picture = format!("{WINDOW:?}");
    assert!(picture.contains("used: Usage { count: 1, bytes: 100 }"), "{picture}");
    part.remove(0).unwrap();
    assert_eq!(pair(BUDGET.free()), (4, 400));
}

/// What a window had in it before was not paid for.
#[test]
fn a_window_that_was_in_use() {
    let budget = Budget::new(4, 400);
    let window = RingWindow::<u64, 8>::boxed();
    let part = window.assign(0);
    part.put_sized(0, 10, 1).unwrap();
    std::mem::forget(part.take(1).unwrap());
    part.put_sized(1, 10, 1).unwrap();
    let window = Budgeted::new(window, Share::new(&budget));
    assert_eq!((window.count(), pair(budget.free())), (0, (4, 400)));
    assert_eq!(window.assign(0).reserve(4, 400).unwrap().messages(), 4);
}

// --- against a plain model ---

/// What each of the windows has, by plain numbers.
struct Plain {
    limit: (usize, u64),
    floors: [(usize, u64); 2],
    /// Messages by offset, with their bytes.
    messages: [BTreeMap<u64, u64>; 2],
    next: [u64; 2],
    generation: [usize; 2],
}

struct Given<P> {
    of: usize,
    generation: usize,
    permit: P,
    left: (usize, u64),
}

fn less(one: (usize, u64), other: (usize, u64)) -> (usize, u64) {
    (one.0.saturating_sub(other.0), one.1.saturating_sub(other.1))
}

impl Plain {
    fn used<P>(&self, permits: &[Given<P>], of: usize) -> (usize, u64) {
        let mut used = (self.messages[of].len(), self.messages[of].values().sum());
        for given in permits.iter().filter(|given| given.of == of) {
            used = (used.0 + given.left.0, used.1 + given.left.1);
        }
        used
    }

    fn free<P>(&self, permits: &[Given<P>]) -> (usize, u64) {
        let has = [0, 1].map(|of| {
            let (used, floor) = (self.used(permits, of), self.floors[of]);
            (used.0.max(floor.0), used.1.max(floor.1))
        });
        (self.limit.0 - has[0].0 - has[1].0, self.limit.1 - has[0].1 - has[1].1)
    }

    fn room<P>(&self, permits: &[Given<P>], of: usize) -> (usize, u64) {
        let (free, rest) = (self.free(permits), less(self.floors[of], self.used(permits, of)));
        (free.0 + rest.0, free.1 + rest.1)
    }

    fn most(&self, of: usize) -> (usize, u64) {
        less(self.limit, self.floors[1 - of])
    }

    /// What a reserve of `least` to `most` says.
    fn reserve<P>(
        &self,
        permits: &[Given<P>],
        of: usize,
        least: (usize, u64),
        most: (usize, u64),
    ) -> Result<(usize, u64), ReserveError> {
        let (can, room) = (self.most(of), self.room(permits, of));
        if less(least, can) != (0, 0) {
            return Err(ReserveError::TooMuch { messages: can.0, bytes: can.1 });
        }
        match less(least, room) {
            (0, 0) => Ok((most.0.min(room.0), most.1.min(room.1))),
            missing => Err(short(missing.0, missing.1)),
        }
    }

    fn watermark(&self, of: usize) -> u64 {
        self.messages[of].keys().next().copied().unwrap_or(self.next[of])
    }

    /// What a put of the next offset says, with so much credit; then what is left of it.
    fn put<P>(
        &mut self,
        permits: &[Given<P>],
        of: usize,
        bytes: u64,
        credit: (usize, u64),
        capacity: u64,
    ) -> Result<(usize, u64), PutErrorKind> {
        if self.next[of] >= self.watermark(of) + capacity {
            return Err(PutErrorKind::Full);
        }
        let missing = less((1, bytes), credit);
        if less(missing, self.room(permits, of)) != (0, 0) {
            return Err(PutErrorKind::OverBudget);
        }
        self.messages[of].insert(self.next[of], bytes);
        self.next[of] += 1;
        Ok((credit.0 + missing.0 - 1, credit.1 + missing.1 - bytes))
    }
}

type Raw = (u8, u8, u8, u8);

fn answers_as_the_model<K: Kind>(
    limit: (usize, u64),
    floors: [(usize, u64); 2],
    variant: usize,
    raws: &[Raw],
) {
    let budget = Budget::new(limit.0, limit.1);
    let windows = floors.map(|(messages, bytes)| {
        let share = Share::with_floor(&budget, messages, bytes).unwrap();
        paid::<K, u64, 8, _>(variant, share)
    });
    let mut parts = [windows[0].assign(0), windows[1].assign(0)];
    let mut model =
        Plain { limit, floors, messages: Default::default(), next: [0; 2], generation: [0; 2] };
    let capacity = K::capacity(8).unwrap_or(u64::MAX / 2);
    let mut permits: Vec<Given<Permit<_>>> = Vec::new();
    for (step, &(what, of, n, b)) in raws.iter().enumerate() {
        let (of, n, b) = (usize::from(of) % 2, usize::from(n) % 7, u64::from(b) % 40);
        let chosen = (!permits.is_empty()).then(|| n % permits.len().max(1));
        match what % 16 {
            up_to @ 0..=4 => {
                let (most, up_to) = ((n, b), up_to > 2);
                let least = if up_to { (n.min(1), b.min(1)) } else { most };
                let said = match up_to {
                    true => parts[of].reserve_up_to(n, b),
                    false => parts[of].reserve(n, b),
                };
                let expected = model.reserve(&permits, of, least, most);
                match said {
                    Ok(permit) => {
                        let left = (permit.messages(), permit.bytes());
                        assert_eq!(Ok(left), expected);
                        permits.push(Given { of, generation: model.generation[of], permit, left });
                    }
                    Err(error) => assert_eq!(Err(error), expected),
                }
            }
            5..=8 => {
                let Some(chosen) = chosen else { continue };
                let mut given = permits.remove(chosen);
                let of = given.of;
                let offset = model.next[of];
                let said = given.permit.put_sized(offset, b as usize, offset);
                // Its credit counts as used meanwhile.
                let left = given.left;
                permits.push(given);
                let expected = match permits.last().unwrap().generation == model.generation[of] {
                    true => model.put(&permits, of, b, left, capacity),
                    false => Err(PutErrorKind::Stale),
                };
                assert_eq!(said.map(|_| ()).map_err(|error| error.kind()), expected.map(|_| ()));
                let given = permits.last_mut().unwrap();
                given.left = expected.unwrap_or(left);
                assert_eq!((given.permit.messages(), given.permit.bytes()), given.left);
            }
            9 => {
                let offset = model.next[of];
                let said = parts[of].put_sized(offset, b as usize, offset);
                let expected = model.put(&permits, of, b, (0, 0), capacity);
                assert_eq!(said.map(|_| ()).map_err(|error| error.kind()), expected.map(|_| ()));
            }
            10 => {
                let Some(chosen) = chosen else { continue };
                drop(permits.remove(chosen));
            }
            11 | 12 => {
                let Some(offset) = model.messages[of].keys().nth(n).copied() else { continue };
                parts[of].remove(offset).unwrap();
                model.messages[of].remove(&offset);
            }
            13 => {
                let Ok(lease) = parts[of].take(n) else { continue };
                for (offset, _) in &lease {
                    assert!(model.messages[of].remove(&offset).is_some());
                }
                lease.commit().unwrap();
            }
            14 => {
                let low = model.watermark(of) + n as u64;
                parts[of].advance_floor(low, |_, _| {}).unwrap();
                model.messages[of].retain(|offset, _| *offset >= low);
                model.next[of] = model.next[of].max(low);
            }
            _ => {
                parts[of] = windows[of].assign(b);
                model.messages[of].clear();
                model.next[of] = b;
                model.generation[of] += 1;
            }
        }
        assert_eq!(pair(budget.free()), model.free(&permits), "free, after step {step}");
        for of in [0, 1] {
            let share = windows[of].share();
            assert_eq!(pair(share.used()), model.used(&permits, of), "used, after step {step}");
            assert_eq!(pair(share.room()), model.room(&permits, of), "room, after step {step}");
        }
    }
    drop(permits);
    drop(windows);
    assert_eq!(pair(budget.free()), limit);
}

fn raws() -> impl Strategy<Value = Vec<Raw>> {
    prop::collection::vec(any::<Raw>(), 1..120)
}

fn amount(messages: usize, bytes: u64) -> impl Strategy<Value = (usize, u64)> {
    (0..=messages, 0..=bytes)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 4 } else { 400 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_calls_answer_as_the_model(
        spare in amount(12, 120), one in amount(4, 40), two in amount(4, 40),
        variant in 0..common::VARIANTS, raws in raws(),
    ) {
        let limit = (spare.0 + one.0 + two.0, spare.1 + one.1 + two.1);
        answers_as_the_model::<RingKind>(limit, [one, two], variant, &raws);
        #[cfg(not(inflight_ring_only))]
        answers_as_the_model::<SkipKind>(limit, [one, two], variant, &raws);
    }
}

// --- threads ---

/// What is in flight by the accounts of those who do it: raised after it was granted and lowered
/// before it is given back, so it is never more than what the budget has granted.
#[derive(Default)]
struct InFlight {
    messages: AtomicU64,
    bytes: AtomicU64,
}

impl InFlight {
    fn add(&self, limit: (u64, u64), messages: u64, bytes: u64) {
        let now = self.messages.fetch_add(messages, SeqCst) + messages;
        assert!(now <= limit.0, "{now} messages are in flight");
        let now = self.bytes.fetch_add(bytes, SeqCst) + bytes;
        assert!(now <= limit.1, "{now} bytes are in flight");
    }

    fn remove(&self, messages: u64, bytes: u64) {
        self.messages.fetch_sub(messages, SeqCst);
        self.bytes.fetch_sub(bytes, SeqCst);
    }
}

// Less than all pullers can ask for at once.
const LIMIT: (u64, u64) = (14, 1400);
const FLOOR: (u64, u64) = (6, 600);
const EACH: u64 = if cfg!(miri) { 60 } else { 30_000 };

/// One window, filled by several pullers through permits and emptied by workers.
struct Partition<W: Window<Value = u64>> {
    window: Arc<Budgeted<W, Arc<Budget>>>,
    part: Assignment<Arc<Budgeted<W, Arc<Budget>>>>,
    next: AtomicU64,
    handled: AtomicU64,
    /// At least what this partition has in flight: raised before it asks, lowered afterwards.
    at_most: AtomicU64,
    /// Counted by one puller alone: within its floor it is never refused.
    alone: bool,
    refused: AtomicU64,
    begun: Instant,
}

impl<W: Window<Value = u64>> Partition<W> {
    fn new(window: W, share: Share<Arc<Budget>>, alone: bool) -> Self {
        let window = Arc::new(Budgeted::new(window, share));
        let part = window.assign_owned(0);
        let zero = AtomicU64::default;
        Self {
            window,
            part,
            next: zero(),
            handled: zero(),
            at_most: zero(),
            alone,
            refused: zero(),
            begun: Instant::now(),
        }
    }

    fn pull(&self, seed: u64, all: &InFlight) {
        let mut state = seed;
        let mut random = move |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        loop {
            let asked = 1 + random(6);
            let bytes = asked * 100;
            let before = self.at_most.fetch_add(asked, SeqCst);
            let mut permit = match self.part.reserve(asked as usize, bytes) {
                Ok(permit) => permit,
                Err(error) => {
                    self.at_most.fetch_sub(asked, SeqCst);
                    assert!(matches!(error, ReserveError::Short { .. }));
                    assert!(!self.alone || before + asked > FLOOR.0, "refused below the floor");
                    self.refused.fetch_add(1, SeqCst);
                    self.wait();
                    continue;
                }
            };
            all.add(LIMIT, asked, bytes);
            let some = 1 + random(asked);
            let first = self.next.fetch_add(some, SeqCst);
            let end = (first + some).min(EACH);
            for offset in first.min(EACH)..end {
                let mut message = offset;
                let size = 40 + offset % 60;
                while let Err(error) = permit.put_sized(offset, size as usize, message) {
                    assert_eq!(error.kind(), PutErrorKind::Full);
                    message = error.into_inner();
                    self.wait();
                }
            }
            let left = (permit.messages() as u64, permit.bytes());
            assert_eq!(left.0, asked - end.saturating_sub(first.min(EACH)));
            all.remove(left.0, left.1);
            drop(permit);
            self.at_most.fetch_sub(left.0, SeqCst);
            if end == EACH {
                return;
            }
        }
    }

    fn wait(&self) {
        assert!(self.begun.elapsed() < Duration::from_secs(120), "something is lost");
        thread::yield_now();
    }

    fn work(&self, all: &InFlight) {
        while self.handled.load(SeqCst) < EACH {
            let Ok(lease) = self.part.take(5) else {
                self.wait();
                continue;
            };
            if lease.len() < 3 {
                // So that the windows fill.
                thread::yield_now();
            }
            let count = lease.len() as u64;
            let bytes = lease.iter().map(|(offset, _)| 40 + offset % 60).sum();
            all.remove(count, bytes);
            lease.commit().unwrap();
            self.at_most.fetch_sub(count, SeqCst);
            self.handled.fetch_add(count, SeqCst);
        }
    }
}

fn never_over_and_never_below_a_floor<K: Kind>() {
    let budget = Arc::new(Budget::new(LIMIT.0 as usize, LIMIT.1));
    let floored = Share::with_floor(Arc::clone(&budget), FLOOR.0 as usize, FLOOR.1).unwrap();
    let window = || K::window::<u64, 256>(0, true);
    let alone = &Partition::new(window(), floored, true);
    let crowd = &Partition::new(window(), Share::new(Arc::clone(&budget)), false);
    let all = &InFlight::default();
    thread::scope(|scope| {
        scope.spawn(|| alone.pull(1, all));
        scope.spawn(|| alone.work(all));
        scope.spawn(|| crowd.pull(2, all));
        scope.spawn(|| crowd.pull(3, all));
        scope.spawn(|| crowd.work(all));
    });
    for partition in [alone, crowd] {
        assert_eq!(partition.handled.load(SeqCst), EACH);
        assert!(cfg!(miri) || partition.refused.load(SeqCst) > 0, "the limit was never reached");
        assert_eq!(partition.part.min_offset().unwrap().get(), EACH);
        assert_eq!(pair(partition.window.share().used()), (0, 0));
    }
    assert_eq!((all.messages.load(SeqCst), all.bytes.load(SeqCst)), (0, 0));
    assert_eq!(pair(budget.free()), ((LIMIT.0 - FLOOR.0) as usize, LIMIT.1 - FLOOR.1));
}

#[test]
fn never_over_and_never_below_a_floor_in_rings() {
    never_over_and_never_below_a_floor::<RingKind>();
}

#[cfg(not(inflight_ring_only))]
#[test]
fn never_over_and_never_below_a_floor_in_skip_windows() {
    never_over_and_never_below_a_floor::<SkipKind>();
}
