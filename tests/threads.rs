//! Threads on one window, watched by a checker that knows nothing of its insides.
//!
//! A thread marks an offset as finished *before* the call that finishes it, and takes the mark
//! back never: so every offset below a watermark that anybody reads must be marked or never put.
//! Work is bounded by messages. A thread that finds nothing to do yields; all of them together
//! may do so only so often without a message being finished, then the test fails.

mod common;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;

use common::{Kind, scenarios};
use inflight::{Assignment, PutErrorKind, RemoveError, RevokeError, Stale, TakeError, Window};

const MESSAGES: u64 = if cfg!(miri) { 200 } else { 40_000 };
/// So many vain looks in a row by all threads mean that the window stands still.
const PATIENCE: usize = 20_000_000;

/// What the threads have done, in words of its own.
struct Checker {
    start: u64,
    /// Which offsets are put at all; the others are gaps.
    put: fn(u64) -> bool,
    finished: Vec<AtomicBool>,
    done: AtomicUsize,
    total: usize,
    drops: Vec<AtomicUsize>,
    vain: AtomicUsize,
    seed: AtomicU64,
}

/// A message whose drops are counted: the original must be dropped once, clones as often as made.
struct Counted<'c> {
    index: usize,
    original: bool,
    checker: &'c Checker,
}

impl Clone for Counted<'_> {
    fn clone(&self) -> Self {
        Self { original: false, ..*self }
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        if self.original {
            self.checker.drops[self.index].fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Checker {
    fn new(start: u64, put: fn(u64) -> bool) -> &'static Self {
        let flags = || (0..MESSAGES).map(|_| AtomicBool::new(false)).collect();
        // Kept in a static, so that a leak checker sees it as what it is: not lost.
        static CHECKERS: Mutex<Vec<&'static Checker>> = Mutex::new(Vec::new());
        let checker: &'static Self = Box::leak(Box::new(Self {
            start,
            put,
            finished: flags(),
            done: AtomicUsize::new(0),
            total: (0..MESSAGES).filter(|&index| put(index)).count(),
            drops: (0..MESSAGES).map(|_| AtomicUsize::new(0)).collect(),
            vain: AtomicUsize::new(0),
            seed: AtomicU64::new(1),
        }));
        CHECKERS.lock().unwrap().push(checker);
        checker
    }

    fn message(&'static self, index: u64) -> Counted<'static> {
        Counted { index: index as usize, original: true, checker: self }
    }

    /// Before a call that may finish the offset.
    fn mark(&self, offset: u64) {
        self.finished[(offset - self.start) as usize].store(true, Ordering::SeqCst);
    }

    /// After calls that have finished so many.
    fn applied(&self, count: usize) {
        if count > 0 {
            self.done.fetch_add(count, Ordering::SeqCst);
            self.vain.store(0, Ordering::Relaxed);
        }
    }

    fn over(&self) -> bool {
        self.done.load(Ordering::SeqCst) >= self.total
    }

    fn yield_now(&self, what: &str) {
        let vain = self.vain.fetch_add(1, Ordering::Relaxed);
        assert!(vain < PATIENCE, "no progress, seen by {what}");
        thread::yield_now();
    }

    /// Everything from `from` to the watermark must be marked, or not be a message.
    fn check(&self, from: u64, watermark: u64) {
        assert!(watermark >= from, "watermark went from {from} back to {watermark}");
        for offset in from..watermark.min(self.start + MESSAGES) {
            let index = offset - self.start;
            assert!(
                !(self.put)(index) || self.finished[index as usize].load(Ordering::SeqCst),
                "watermark {watermark} above the unfinished {offset}"
            );
        }
    }

    /// A number of its own for each call.
    fn random(&self, below: u64) -> u64 {
        let mut n = self.seed.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
        n = (n ^ (n >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        n = (n ^ (n >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (n ^ (n >> 31)) % below
    }

    fn finish<W: Window>(&self, window: &mut W, watermark: u64, end: u64) {
        assert_eq!((window.count(), window.bytes(), window.span()), (0, 0, 0));
        assert_eq!((watermark, end), (self.start + MESSAGES, self.start + MESSAGES));
        for index in 0..MESSAGES {
            let drops = self.drops[index as usize].load(Ordering::Relaxed);
            assert_eq!(drops, usize::from((self.put)(index)), "drops of {index}");
        }
        assert_eq!(window.drain().count(), 0);
    }
}

type Part<'w, W> = Assignment<&'w W>;

/// Puts its share, in order, alone or in batches; what comes back it puts again.
fn putter<W: Window<Value = Counted<'static>>>(
    checker: &'static Checker,
    part: Part<'_, W>,
    share: impl Fn(u64) -> bool,
) {
    let indices: Vec<u64> =
        (0..MESSAGES).filter(|&index| (checker.put)(index) && share(index)).collect();
    let mut next = 0;
    while next < indices.len() {
        let batch = 1 + checker.random(20) as usize;
        let to = indices.len().min(next + batch);
        let item = |&index: &u64| (checker.start + index, checker.message(index));
        let mut messages = indices[next..to].iter().map(item);
        if batch & 1 == 0 {
            match part.put_batch(&mut messages) {
                Ok(batch) => {
                    assert_eq!(batch.admitted, to - next);
                    next = to;
                }
                Err(error) => {
                    assert_eq!(error.error, PutErrorKind::Full);
                    assert_eq!(error.so_far.duplicates + error.so_far.passed, 0);
                    next += error.so_far.admitted;
                    std::mem::forget(error.value);
                    checker.yield_now("a putter");
                }
            }
        } else {
            let (offset, message) = messages.next().unwrap();
            match part.put_sized(offset, 1 + (offset % 7) as usize, message) {
                Ok(_) => next += 1,
                Err(error) => {
                    assert_eq!(error.kind(), PutErrorKind::Full);
                    std::mem::forget(error.into_inner());
                    checker.yield_now("a putter");
                }
            }
        }
    }
}

/// Takes lending leases and ends them in every way.
fn lender<W: Window<Value = Counted<'static>>>(checker: &'static Checker, part: Part<'_, W>) {
    let mut last = checker.start;
    while !checker.over() {
        let mut lease = match part.at(1).take(1 + checker.random(12) as usize) {
            Ok(lease) => lease,
            Err(TakeError::Empty) => {
                checker.yield_now("a lender");
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        let offsets: Vec<u64> = lease.iter().map(|one| one.0).collect();
        assert!(offsets.is_sorted_by(|a, b| a < b));
        for (offset, message) in &lease {
            assert_eq!(message.index as u64, offset - checker.start);
        }
        let some = || offsets.iter().copied().filter(|_| checker.random(3) > 0);
        let next = match checker.random(8) {
            0 => {
                drop(lease);
                continue;
            }
            1 => {
                lease.detach();
                continue;
            }
            2 => lease.rollback().unwrap().next,
            3 => {
                checker.mark(offsets[0]);
                let next = lease.finish(offsets[0]).unwrap();
                checker.applied(1);
                next
            }
            4 => {
                let done: Vec<u64> = some().collect();
                done.iter().for_each(|&offset| checker.mark(offset));
                let report = lease.commit_only(done.iter().copied()).unwrap();
                assert_eq!((report.applied, report.gone), (done.len(), 0));
                checker.applied(report.applied);
                report.next
            }
            5 => {
                // Marked one by one, just before each is finished.
                let mut values = lease.into_values();
                for &offset in &offsets[..offsets.len().div_ceil(2)] {
                    checker.mark(offset);
                    let value = values.next().unwrap();
                    assert_eq!(value.0, offset);
                    checker.applied(1);
                }
                continue;
            }
            _ => {
                offsets.iter().for_each(|&offset| checker.mark(offset));
                let report = lease.commit().unwrap();
                assert_eq!((report.applied, report.gone), (offsets.len(), 0));
                checker.applied(report.applied);
                report.next
            }
        };
        // The call's own slide came after what this thread saw before.
        assert!(next.get() >= last);
        last = next.get();
        checker.check(checker.start.max(last.saturating_sub(200)), last);
    }
}

/// Takes shared leases; removers and revokers may be faster.
fn sharer<W: Window<Value = Counted<'static>>>(checker: &'static Checker, part: Part<'_, W>) {
    while !checker.over() {
        let lease = match part.at(1).take_shared(1 + checker.random(12) as usize) {
            Ok(lease) => lease,
            Err(TakeError::Empty) => {
                checker.yield_now("a sharer");
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        let offsets: Vec<u64> = lease.iter().map(|one| one.0).collect();
        assert!(offsets.is_sorted_by(|a, b| a < b));
        let report = match checker.random(6) {
            0 => {
                drop(lease);
                continue;
            }
            1 => {
                lease.detach();
                continue;
            }
            2 => {
                let report = lease.rollback().unwrap();
                assert_eq!(report.applied + report.gone, offsets.len());
                continue;
            }
            3 => {
                let done: Vec<u64> =
                    offsets.iter().copied().filter(|_| checker.random(2) == 0).collect();
                done.iter().for_each(|&offset| checker.mark(offset));
                let report = lease.commit_only(done.iter().copied()).unwrap();
                assert_eq!(report.applied + report.gone, done.len());
                report
            }
            _ => {
                offsets.iter().for_each(|&offset| checker.mark(offset));
                let report = lease.commit().unwrap();
                assert_eq!(report.applied + report.gone, offsets.len());
                report
            }
        };
        checker.applied(report.applied);
        let next = report.next.get();
        checker.check(checker.start.max(next.saturating_sub(200)), next);
    }
}

/// Finishes by number whatever is pending.
fn remover<W: Window<Value = Counted<'static>>>(checker: &'static Checker, part: Part<'_, W>) {
    while !checker.over() {
        let offsets: Vec<u64> = part
            .pending()
            .unwrap()
            .map(|look| look.offset)
            // Not all: a completion that is refused leaves its mark, and the checker blind there.
            .filter(|offset| offset % 3 == 0 && checker.random(2) == 0)
            .take(8)
            .collect();
        if offsets.is_empty() {
            checker.yield_now("a remover");
            continue;
        }
        offsets.iter().for_each(|&offset| checker.mark(offset));
        if offsets.len() == 1 {
            match part.remove(offsets[0]) {
                Ok(_) => checker.applied(1),
                Err(RemoveError::Passed | RemoveError::Held) => {}
                // Seen while it was being put.
                Err(RemoveError::Unknown) => {}
                Err(error) => panic!("{error}"),
            }
        } else {
            let done = part.remove_batch(offsets.iter().copied()).unwrap();
            assert_eq!(done.applied + done.passed + done.held + done.unknown, offsets.len());
            checker.applied(done.applied);
        }
        checker.yield_now("a remover");
    }
}

/// Takes held messages away and gives them up, back, or holds them on.
fn revoker<W: Window<Value = Counted<'static>>>(checker: &'static Checker, part: Part<'_, W>) {
    while !checker.over() {
        let offsets: Vec<u64> = part
            .stalled(5, 2)
            .unwrap()
            .filter(|stalled| stalled.revocable)
            .map(|stalled| stalled.offset)
            .take(4)
            .collect();
        for &offset in &offsets {
            match part.at(1).revoke(offset) {
                Ok(lease) => {
                    assert_eq!(lease.iter().map(|one| one.0).collect::<Vec<_>>(), [offset]);
                    match checker.random(4) {
                        0 => lease.detach(),
                        1 => drop(lease),
                        _ => {
                            checker.mark(offset);
                            checker.applied(lease.commit().unwrap().applied);
                        }
                    }
                }
                Err(RevokeError::Stale) => panic!("stale"),
                Err(_) => {}
            }
        }
        checker.yield_now("a revoker");
    }
}

/// Reads what it may read while the others work.
fn sampler<W: Window<Value = Counted<'static>>>(checker: &'static Checker, part: Part<'_, W>) {
    let mut last = checker.start;
    while !checker.over() {
        let next = match checker.random(3) {
            0 => part.min_offset().unwrap(),
            _ => part.watermark().unwrap(),
        };
        checker.check(last, next.get());
        last = next.get();
        let (usage, end) = (part.window().usage(), part.end().unwrap());
        assert!(end >= last);
        assert!(usage.count <= MESSAGES as usize);
        // Too high at most by what passed meanwhile; never above what there is.
        assert!(usage.bytes <= 8 * MESSAGES);
        if let Some(head) = part.head().unwrap() {
            assert!(head.offset >= last);
        }
        checker.yield_now("the sampler");
    }
}

fn in_order<K: Kind, const N: usize>(variant: usize, put: fn(u64) -> bool) {
    let checker = Checker::new(1_000, put);
    let mut window = K::window::<Counted<'static>, N>(variant, false);
    let part = window.assign(checker.start);
    thread::scope(|scope| {
        scope.spawn(|| {
            putter(checker, part, |_| true);
            // The last offsets may be gaps.
            part.advance_to(checker.start + MESSAGES).unwrap();
        });
        scope.spawn(|| lender(checker, part));
        scope.spawn(|| sharer(checker, part));
        scope.spawn(|| remover(checker, part));
        scope.spawn(|| revoker(checker, part));
        scope.spawn(|| sampler(checker, part));
    });
    let (watermark, end) = (part.watermark().unwrap().get(), part.end().unwrap());
    checker.check(checker.start, watermark);
    checker.finish(&mut *window, watermark, end);
}

scenarios! {
    fn one_putter_and_everybody_else<K>(variant) {
        in_order::<K, 64>(variant, |_| true);
    }

    fn a_sparse_log<K>(variant) {
        in_order::<K, 32>(variant, |index| index % 3 == 0 || index % 7 < 2);
    }

    fn a_window_of_two<K>(variant) {
        if variant == 1 {
            in_order::<K, 2>(variant, |index| index % 8 == 0);
        }
    }

    fn two_putters_with_the_callers_seal<K>(variant) {
        let checker = Checker::new(7, |index| index % 5 != 4);
        let mut window = K::window::<Counted<'static>, 128>(variant, true);
        let part = window.assign(checker.start);
        // Each says up to where it has put; the lower of the two is the seal.
        let puts = [AtomicU64::new(0), AtomicU64::new(0)];
        thread::scope(|scope| {
            let puts = &puts;
            for half in 0..2_u64 {
                scope.spawn(move || {
                    for index in (0..MESSAGES).filter(|index| index / 4 % 2 == half) {
                        while (checker.put)(index) {
                            let offset = checker.start + index;
                            match part.put_sized(offset, 3, checker.message(index)) {
                                Ok(_) => break,
                                Err(error) => {
                                    assert_eq!(error.kind(), PutErrorKind::Full);
                                    std::mem::forget(error.into_inner());
                                    checker.yield_now("one of two putters");
                                }
                            }
                        }
                        puts[half as usize].store(index + 1, Ordering::SeqCst);
                        let both = puts.iter().map(|put| put.load(Ordering::SeqCst)).min();
                        part.advance_to(checker.start + both.unwrap()).unwrap();
                    }
                    puts[half as usize].store(MESSAGES, Ordering::SeqCst);
                    let both = puts.iter().map(|put| put.load(Ordering::SeqCst)).min();
                    part.advance_to(checker.start + both.unwrap()).unwrap();
                });
            }
            scope.spawn(|| lender(checker, part));
            scope.spawn(|| sharer(checker, part));
            scope.spawn(|| remover(checker, part));
            scope.spawn(|| revoker(checker, part));
            scope.spawn(|| sampler(checker, part));
        });
        let (watermark, end) = (part.watermark().unwrap().get(), part.end().unwrap());
        checker.finish(&mut *window, watermark, end);
    }

    /// Cases 10 and 22: the last offsets finished from several threads, each one once.
    fn several_finish_the_same_offsets<K>(variant) {
        let rounds = if cfg!(miri) { 4 } else { 300 };
        for round in 0..rounds {
            let window = K::window::<u64, 16>(variant, false);
            let part = window.assign(round);
            let count = 2 + round % 7;
            part.put_batch(&mut (round..round + count).map(|n| (n, n))).unwrap();
            let lease = (round % 3 == 0).then(|| part.take_shared(2).unwrap());
            let applied = AtomicUsize::new(0);
            thread::scope(|scope| {
                for up in [true, false, true] {
                    let (applied, window) = (&applied, &window);
                    scope.spawn(move || {
                        let mut left: Vec<u64> = (round..round + count).collect();
                        if !up {
                            left.reverse();
                        }
                        for offset in left {
                            match part.remove(offset) {
                                Ok(_) => drop(applied.fetch_add(1, Ordering::Relaxed)),
                                Err(error) => assert_eq!(error, RemoveError::Passed),
                            }
                        }
                        assert!(window.count() <= count as usize);
                    });
                }
                if let Some(lease) = lease {
                    let report = lease.commit().unwrap();
                    applied.fetch_add(report.applied, Ordering::Relaxed);
                    assert_eq!(report.applied + report.gone, 2);
                }
            });
            assert_eq!(applied.into_inner(), count as usize);
            assert_eq!(part.watermark().unwrap().get(), round + count);
            assert_eq!((window.count(), window.span()), (0, 0));
        }
    }

    /// Case 51: everything beside assignments that come and go.
    fn assignments_beside_everything<K>(variant) {
        let checker = Checker::new(0, |_| true);
        let mut window = K::window::<Counted<'static>, 16>(variant, false);
        let rounds = if cfg!(miri) { 5 } else { 150 };
        let current = AtomicU64::new(0);
        let over = AtomicBool::new(false);
        let made = AtomicUsize::new(0);
        {
            let window = &*window;
            let parts: Vec<std::sync::OnceLock<Part<'_, _>>> =
                (0..=rounds).map(|_| std::sync::OnceLock::new()).collect();
            parts[0].set(window.assign(0)).unwrap();
            let (parts, current, over, made) = (&parts, &current, &over, &made);
            let latest = move || {
                let part = parts[current.load(Ordering::SeqCst) as usize].get();
                *part.expect("set before it is current")
            };
            thread::scope(|scope| {
                for worker in 0..3 {
                    scope.spawn(move || {
                        while !over.load(Ordering::SeqCst) {
                            let part = latest();
                            let mut last = 0;
                            for index in 0..40 {
                                let message = checker.message(index);
                                made.fetch_add(1, Ordering::Relaxed);
                                // What is refused comes back, and is dropped here.
                                let _ = part.put_sized(index, 5, message);
                                match worker {
                                    0 => drop(part.take(3).map(|lease| lease.commit())),
                                    1 => drop(part.take_shared(3).map(|lease| {
                                        if index % 2 == 0 { lease.rollback() } else { lease.commit() }
                                    })),
                                    _ => drop(part.remove(index)),
                                }
                                match part.watermark() {
                                    Ok(next) => {
                                        assert!(next.get() >= last, "monotone in one assignment");
                                        last = next.get();
                                    }
                                    Err(Stale) => break,
                                }
                            }
                        }
                    });
                }
                scope.spawn(move || {
                    for (round, part) in parts.iter().enumerate().skip(1) {
                        let old = latest();
                        let new = window.assign(0);
                        assert_eq!(old.watermark(), Err(Stale));
                        assert_eq!(old.remove(0), Err(RemoveError::Stale));
                        part.set(new).unwrap();
                        current.store(round as u64, Ordering::SeqCst);
                        // Lets the others get into the middle of something; how far does not matter.
                        thread::sleep(std::time::Duration::from_micros(50));
                    }
                    over.store(true, Ordering::SeqCst);
                });
            });
            // All is still: what the last assignment has is exact.
            let part = window.assign(0);
            assert_eq!((window.count(), window.bytes(), window.span()), (0, 0, 0));
            let batch = part.put_batch(&mut (0..16).map(|index| (index, checker.message(index))));
            assert_eq!(batch.unwrap().admitted, 16);
            made.fetch_add(16, Ordering::Relaxed);
            assert_eq!(part.take(99).unwrap().commit().unwrap().next.get(), 16);
        }
        assert_eq!((window.count(), window.bytes(), window.drain().count()), (0, 0, 0));
        let drops = checker.drops.iter().map(|drops| drops.load(Ordering::Relaxed)).sum::<usize>();
        assert_eq!(drops, made.into_inner(), "each message dropped once");
    }

    /// Case 50: a far put beside an early one; never both refused, never one lost.
    fn a_far_put_beside_an_early_one<K>(variant) {
        for round in 0..if cfg!(miri) { 4_u64 } else { 500 } {
            let window = K::window::<u64, 2>(variant, false);
            let part = window.assign(0);
            let (near, far) = thread::scope(|scope| {
                let far = scope.spawn(|| part.put(9 + round, 9 + round));
                (part.put(0, 0), far.join().unwrap())
            });
            assert!(near.is_ok() || far.is_ok());
            let mut taken = Vec::new();
            while let Ok(lease) = part.take(1) {
                taken.extend(lease.into_values().map(|one| one.1));
            }
            let expected =
                [(near.is_ok(), 0), (far.is_ok(), 9 + round)].into_iter().filter(|put| put.0);
            assert_eq!(taken, expected.map(|put| put.1).collect::<Vec<_>>());
        }
    }

    /// Cases 42 and 48: a batch beside a taker comes in order; a gap filled late is not missed.
    fn a_taker_beside_a_batch_sees_it_in_order<K>(variant) {
        for round in 0..if cfg!(miri) { 4_u64 } else { 400 } {
            let window = K::window::<u64, 16>(variant, round % 2 == 0);
            let part = window.assign(0);
            let count = 2 + round % 9;
            let taken = thread::scope(|scope| {
                scope.spawn(|| {
                    if round % 3 == 0 {
                        // Late: the last one comes first.
                        part.put(count - 1, count - 1).unwrap();
                    }
                    let messages = &mut (0..count).map(|n| (n, n));
                    let batch = part.put_batch(messages).unwrap();
                    assert_eq!(batch.admitted + batch.duplicates + batch.passed, count as usize);
                });
                let mut taken = Vec::new();
                let mut vain = 0;
                while taken.len() < count as usize && vain < 100_000 {
                    match part.take(3) {
                        Ok(lease) => {
                            taken.extend(lease.iter().map(|one| one.0));
                            // Kept, so that nothing is sealed.
                            lease.detach();
                        }
                        Err(TakeError::Empty) => {
                            vain += 1;
                            thread::yield_now();
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
                taken
            });
            if round % 3 == 0 {
                let mut taken = taken;
                taken.sort_unstable();
                assert_eq!(taken, (0..count).collect::<Vec<_>>());
            } else {
                assert_eq!(taken, (0..count).collect::<Vec<_>>());
            }
        }
    }
}
