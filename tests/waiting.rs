//! Waiting for messages and for room, polled by hand and by threads that park.
#![cfg(feature = "async")]

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use inflight::{Budget, Budgeted, PutError, RingWindow, Share, SkipWindow, WaitError, Window};

/// A waker that counts.
#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Bell {
    fn new() -> (Arc<Self>, Waker) {
        let bell = Arc::new(Self::default());
        (Arc::clone(&bell), Waker::from(bell))
    }

    fn rung(&self) -> usize {
        self.0.swap(0, Ordering::SeqCst)
    }
}

fn poll<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(waker))
}

#[track_caller]
fn ready<F: Future + Unpin>(future: &mut F, waker: &Waker) -> F::Output {
    match poll(future, waker) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it waits"),
    }
}

#[track_caller]
fn pending<F: Future + Unpin>(future: &mut F, waker: &Waker) {
    assert!(poll(future, waker).is_pending(), "it does not wait");
}

/// Each scenario over both windows.
macro_rules! over_both {
    ($($name:ident)*) => {
        mod ring { $(#[test] fn $name() { super::$name(super::RingWindow::<u64, 16>::new()); })* }
        mod skip { $(#[test] fn $name() { super::$name(super::SkipWindow::<u64>::new()); })* }
    };
}

over_both! {
    a_put_wakes_a_taker
    whatever_is_given_back_wakes_a_taker
    a_revoked_message_given_back_wakes_a_taker
    an_old_lease_wakes_nobody
    assign_wakes_everyone
    close_wakes_the_takers_of_an_empty_window
    the_last_finish_of_a_closed_window_wakes_its_takers
    seats_are_free_again
    all_are_woken_by_one_message
    another_waker
    a_waker_is_let_go
    nothing_asked_for
    a_waker_that_panics
    a_waker_that_works
    polled_and_dropped
    threads_that_wait_and_give_up
}

fn a_put_wakes_a_taker(window: impl Window<Value = u64>) {
    let part = window.assign(0);
    let (bell, waker) = Bell::new();
    let mut take = part.take_async(5);
    pending(&mut take, &waker);
    pending(&mut take, &waker);
    assert_eq!(bell.rung(), 0);
    part.put(0, 10).unwrap();
    assert_eq!(bell.rung(), 1);
    // Woken once: until it waits again, further puts say nothing.
    part.put_batch(&mut (1..4).map(|n| (n, n))).unwrap();
    assert_eq!(bell.rung(), 0);
    let lease = ready(&mut take, &waker).unwrap();
    assert_eq!(lease.len(), 4);
    lease.commit().unwrap();
    // A batch rings once.
    let mut shared = part.take_shared_async(5);
    let mut bounded = part.take_shared_in_async::<2>(5);
    pending(&mut shared, &waker);
    pending(&mut bounded, &waker);
    part.put_batch(&mut (4..8).map(|n| (n, n))).unwrap();
    assert_eq!(bell.rung(), 2);
    assert_eq!(ready(&mut bounded, &waker).unwrap().commit().unwrap().applied, 2);
    assert_eq!(ready(&mut shared, &waker).unwrap().commit().unwrap().next.get(), 8);
}

fn whatever_is_given_back_wakes_a_taker(window: impl Window<Value = u64>) {
    let part = window.assign(0);
    let (bell, waker) = Bell::new();
    part.put_batch(&mut (0..3).map(|n| (n, n))).unwrap();
    let mut take = part.take_async(3);
    macro_rules! given_back {
        ($lease:ident: $by:expr) => {{
            let $lease = part.take_shared(3).unwrap();
            pending(&mut take, &waker);
            $by;
            assert_eq!(bell.rung(), 1, "{}", stringify!($by));
            let $lease = ready(&mut take, &waker).unwrap();
            pending(&mut take, &waker);
            $by;
            assert_eq!(bell.rung(), 1, "{}, lending", stringify!($by));
        }};
    }
    given_back!(lease: drop(lease));
    given_back!(lease: lease.rollback().unwrap());
    given_back!(lease: lease.commit_only([]).unwrap());
    given_back!(lease: lease.commit_where(|_, _| false).unwrap());
    given_back!(lease: drop(lease.into_values()));
    // In a panic too.
    let lease = part.take(3).unwrap();
    pending(&mut take, &waker);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _lease = lease;
        panic!("the handler fails");
    }));
    assert!(panicked.is_err());
    assert_eq!(bell.rung(), 1);
    assert_eq!(ready(&mut take, &waker).unwrap().commit().unwrap().next.get(), 3);
}

fn a_revoked_message_given_back_wakes_a_taker(window: impl Window<Value = u64>) {
    let part = window.assign(0);
    let (bell, waker) = Bell::new();
    part.put(0, 0).unwrap();
    part.take(1).unwrap().detach();
    let mut take = part.take_async(1);
    pending(&mut take, &waker);
    let revoked = part.at(1).revoke(0).unwrap();
    assert_eq!(bell.rung(), 0);
    revoked.rollback().unwrap();
    assert_eq!(bell.rung(), 1);
    assert_eq!(ready(&mut take, &waker).unwrap().messages().next().unwrap().deliveries, 2);
}

fn an_old_lease_wakes_nobody(window: impl Window<Value = u64>) {
    let old = window.assign(0);
    old.put(0, 0).unwrap();
    let lease = old.take(1).unwrap();
    let part = window.assign(0);
    let (bell, waker) = Bell::new();
    let mut take = part.take_async(1);
    pending(&mut take, &waker);
    drop(lease);
    // It may be woken, but has nothing.
    bell.rung();
    pending(&mut take, &waker);
    part.put(0, 1).unwrap();
    assert_eq!(bell.rung(), 1);
    assert_eq!(ready(&mut take, &waker).unwrap().iter().next(), Some((0, &1)));
}

fn assign_wakes_everyone(window: impl Window<Value = u64>) {
    let old = window.assign(0);
    let (bell, waker) = Bell::new();
    let mut take = old.take_async(1);
    let mut shared = old.take_shared_async(1);
    pending(&mut take, &waker);
    pending(&mut shared, &waker);
    let part = window.assign(0);
    assert_eq!(bell.rung(), 2);
    assert_eq!(ready(&mut take, &waker).unwrap_err(), WaitError::Stale);
    assert_eq!(ready(&mut shared, &waker).unwrap_err(), WaitError::Stale);
    assert_eq!(ready(&mut old.space_async(), &waker), Err(WaitError::Stale));
    assert_eq!(ready(&mut old.space_for_async(3), &waker), Err(WaitError::Stale));
    part.put(0, 1).unwrap();
    assert_eq!(ready(&mut part.take_async(1), &waker).unwrap().len(), 1);
}

fn close_wakes_the_takers_of_an_empty_window(window: impl Window<Value = u64>) {
    let part = window.assign(0);
    let (bell, waker) = Bell::new();
    let mut take = part.take_async(1);
    pending(&mut take, &waker);
    assert!(part.close().unwrap());
    assert_eq!(bell.rung(), 1);
    assert_eq!(ready(&mut take, &waker).unwrap_err(), WaitError::Closed);
    assert_eq!(ready(&mut part.space_async(), &waker), Err(WaitError::Closed));
}

fn the_last_finish_of_a_closed_window_wakes_its_takers(window: impl Window<Value = u64>) {
    let part = window.assign(0);
    let (bell, waker) = Bell::new();
    part.put_batch(&mut (0..2).map(|n| (n, n))).unwrap();
    let lease = part.take(1).unwrap();
    part.take(1).unwrap().detach();
    part.close().unwrap();
    let mut take = part.take_async(1);
    pending(&mut take, &waker);
    lease.commit().unwrap();
    // One is still held: nothing is sure yet.
    bell.rung();
    pending(&mut take, &waker);
    part.remove(1).unwrap();
    assert_eq!(bell.rung(), 1);
    assert_eq!(ready(&mut take, &waker).unwrap_err(), WaitError::Closed);
}

fn seats_are_free_again(window: impl Window<Value = u64>) {
    let part = window.assign(0);
    let (bell, waker) = Bell::new();
    for _ in 0..3 {
        let mut eight: Vec<_> = (0..8).map(|_| part.take_async(1)).collect();
        eight.iter_mut().for_each(|take| pending(take, &waker));
        let mut ninth = part.take_async(1);
        assert_eq!(ready(&mut ninth, &waker).unwrap_err(), WaitError::WaitersFull);
        drop(eight.remove(3));
        pending(&mut ninth, &waker);
        assert_eq!(ready(&mut part.take_async(1), &waker).unwrap_err(), WaitError::WaitersFull);
        // A future that has its lease has no seat.
        let end = part.end().unwrap();
        part.put(end, 1).unwrap();
        assert_eq!(bell.rung(), 8);
        ready(&mut ninth, &waker).unwrap().commit().unwrap();
        // Asked without need to wait, nobody needs a seat.
        let mut other = part.take_async(1);
        pending(&mut other, &waker);
        part.put(end + 1, 1).unwrap();
        assert_eq!(bell.rung(), 1, "the others have not waited again");
        let lease = ready(&mut part.take_async(1), &waker).unwrap();
        lease.commit().unwrap();
        // Woken ones keep their seats while they are alive, and free them when they are not.
        assert_eq!(ready(&mut part.take_async(1), &waker).unwrap_err(), WaitError::WaitersFull);
        drop(eight);
        pending(&mut part.take_async(1), &waker);
    }
}

fn all_are_woken_by_one_message(window: impl Window<Value = u64>) {
    let part = window.assign(0);
    let bells: Vec<_> = (0..5).map(|_| Bell::new()).collect();
    let mut takes: Vec<_> = bells.iter().map(|_| part.take_async(1)).collect();
    for (take, (_, waker)) in takes.iter_mut().zip(&bells) {
        pending(take, waker);
    }
    part.put(0, 0).unwrap();
    assert!(bells.iter().all(|(bell, _)| bell.rung() == 1));
    // Three are dropped after they were woken: the message is there for the next.
    takes.drain(..3);
    let lease = ready(&mut takes[0], &bells[3].1).unwrap();
    pending(&mut takes[1], &bells[4].1);
    drop(lease);
    assert_eq!(bells[4].0.rung(), 1);
    ready(&mut takes[1], &bells[4].1).unwrap().commit().unwrap();
}

fn another_waker(window: impl Window<Value = u64>) {
    let part = window.assign(0);
    let ((old, old_waker), (new, new_waker)) = (Bell::new(), Bell::new());
    let mut take = part.take_async(1);
    pending(&mut take, &old_waker);
    pending(&mut take, &new_waker);
    part.put(0, 0).unwrap();
    assert_eq!((old.rung(), new.rung()), (0, 1));
    // The same after it was woken.
    let first = part.take(1).unwrap();
    pending(&mut take, &old_waker);
    drop(first);
    assert_eq!((old.rung(), new.rung()), (1, 0));
    ready(&mut take, &new_waker).unwrap().commit().unwrap();
}

fn a_waker_is_let_go(window: impl Window<Value = u64>) {
    let part = window.assign(0);
    let (bell, waker) = Bell::new();
    let held = || Arc::strong_count(&bell) - 2;
    let mut take = part.take_async(1);
    pending(&mut take, &waker);
    pending(&mut take, &waker);
    assert_eq!(held(), 1);
    drop(take);
    assert_eq!(held(), 0);
    let mut take = part.take_async(1);
    pending(&mut take, &waker);
    part.put(0, 0).unwrap();
    assert_eq!(held(), 0);
    ready(&mut take, &waker).unwrap().commit().unwrap();
    assert_eq!(held(), 0);
    drop(take);
    // A forgotten future keeps its seat, and the window its waker.
    let mut take = part.take_async(1);
    pending(&mut take, &waker);
    std::mem::forget(take);
    drop(window);
    assert_eq!(held(), 0);
}

fn nothing_asked_for(window: impl Window<Value = u64>) {
    let part = window.assign(0);
    part.put(0, 0).unwrap();
    let waker = Waker::noop();
    assert_eq!(ready(&mut part.take_async(0), waker).unwrap_err(), WaitError::Nothing);
    assert_eq!(ready(&mut part.take_shared_async(0), waker).unwrap_err(), WaitError::Nothing);
    let mut none = part.take_shared_in_async::<0>(1);
    assert_eq!(ready(&mut none, waker).unwrap_err(), WaitError::Nothing);
    assert!(format!("{:?}", part.take_async(7)).contains('7'));
}

/// A waker of the user's that panics must not keep the others asleep.
fn a_waker_that_panics(window: impl Window<Value = u64>) {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("the waker fails");
        }
    }
    let part = window.assign(0);
    let (bell, waker) = Bell::new();
    let bad = Waker::from(Arc::new(Panics));
    let mut takes: Vec<_> = (0..3).map(|_| part.take_async(1)).collect();
    pending(&mut takes[0], &bad);
    pending(&mut takes[1], &waker);
    pending(&mut takes[2], &waker);
    let put = std::panic::AssertUnwindSafe(|| part.put(0, 0));
    assert!(std::panic::catch_unwind(put).is_err());
    assert_eq!(bell.rung(), 2);
    ready(&mut takes[1], &waker).unwrap().commit().unwrap();
    pending(&mut takes[0], &waker);
    part.put(1, 0).unwrap();
    assert_eq!(ready(&mut takes[0], &waker).unwrap().commit().unwrap().next.get(), 2);
}

/// An executor may poll in the middle of a wake.
fn a_waker_that_works(window: impl Window<Value = u64> + Send + Sync + 'static) {
    struct Works<W: Window>(Arc<W>, inflight::Assignment<Arc<W>>, AtomicUsize);
    impl<W: Window + Send + Sync> Wake for Works<W>
    where
        W::Value: Send,
    {
        fn wake(self: Arc<Self>) {
            let mut take = self.1.take_async(1);
            while let Poll::Ready(lease) = poll(&mut take, Waker::noop()) {
                self.2.fetch_add(lease.unwrap().commit().unwrap().applied, Ordering::SeqCst);
            }
            assert_eq!(self.0.count(), 0);
        }
    }
    let window = Arc::new(window);
    let part = window.assign_owned(0);
    let works = Arc::new(Works(Arc::clone(&window), part.clone(), AtomicUsize::new(0)));
    let waker = Waker::from(Arc::clone(&works));
    for offset in 0..10 {
        let mut take = part.take_async(1);
        pending(&mut take, &waker);
        part.put(offset, 0).unwrap();
        assert_eq!(works.2.load(Ordering::SeqCst), offset as usize + 1);
    }
}

/// Dropped at every point where it can wait: nothing is lost with it.
fn polled_and_dropped(window: impl Window<Value = u64>) {
    let part = window.assign(0);
    let mut offset = 0;
    for polls_before in 0..3 {
        for polls_after in 0..3 {
            let ((bell, waker), (other, other_waker)) = (Bell::new(), Bell::new());
            let mut dropped = part.take_async(1);
            let mut stays = part.take_async(1);
            for _ in 0..polls_before {
                pending(&mut dropped, &waker);
            }
            pending(&mut stays, &other_waker);
            part.put(offset, 0).unwrap();
            assert_eq!(bell.rung(), usize::from(polls_before > 0));
            assert_eq!(other.rung(), 1);
            let mut lease = None;
            for _ in 0..polls_after {
                match (lease.is_none(), poll(&mut dropped, &waker)) {
                    (true, got) => lease = Some(got),
                    (false, got) => assert!(got.is_pending(), "one message, two leases"),
                }
            }
            drop(dropped);
            if lease.is_some() {
                pending(&mut stays, &other_waker);
                drop(lease);
                assert_eq!(other.rung(), 1);
            }
            let lease = ready(&mut stays, &other_waker).unwrap();
            offset += 1;
            assert_eq!(lease.commit().unwrap().next.get(), offset);
        }
    }
}

// --- room ---

fn full_ring() -> Arc<RingWindow<u64, 8>> {
    Arc::new(RingWindow::new())
}

#[test]
fn room_is_told_once_for_each_crossing_of_the_half() {
    let window = full_ring();
    let part = window.assign(0);
    let (bell, waker) = Bell::new();
    let mut end = 0;
    for _ in 0..20 {
        while part.put(end, end).is_ok() {
            end += 1;
        }
        let mut space = part.space_async();
        pending(&mut space, &waker);
        let low = end - 8;
        for done in [low + 1, low, low + 2] {
            part.remove(done).unwrap();
            assert_eq!(bell.rung(), 0, "more than half is in use");
        }
        part.remove(low + 3).unwrap();
        assert_eq!(bell.rung(), 1, "half is in use");
        part.remove(low + 4).unwrap();
        assert_eq!(bell.rung(), 0, "told already");
        assert_eq!(ready(&mut space, &waker), Ok(()));
        // With room, nobody waits.
        assert_eq!(ready(&mut space, &waker), Ok(()));
        part.put(end, end).unwrap();
        end += 1;
    }
}

#[test]
fn room_comes_by_every_kind_of_finish() {
    type Finish = fn(&inflight::Assignment<&'static RingWindow<u64, 8>>);
    let ways: [(&str, Finish); 8] = [
        ("commit", |part| assert!(part.take(8).unwrap().commit().is_ok())),
        ("shared commit", |part| assert!(part.take_shared(8).unwrap().commit().is_ok())),
        ("commit_only", |part| assert!(part.take(8).unwrap().commit_only(0..8).is_ok())),
        ("remove_batch", |part| assert!(part.remove_batch(0..8).is_ok())),
        ("into_values", |part| part.take(8).unwrap().into_values().for_each(drop)),
        ("shared into_values", |part| part.take_shared(8).unwrap().into_values().for_each(drop)),
        ("finish", |part| {
            let mut lease = part.take(8).unwrap();
            assert!((0..8).all(|offset| lease.finish(offset).is_ok()));
        }),
        ("remove", |part| assert!((0..8).rev().all(|offset| part.remove(offset).is_ok()))),
    ];
    for (name, finish) in ways {
        let part = Box::leak(Box::new(RingWindow::<u64, 8>::new())).assign(0);
        let (bell, waker) = Bell::new();
        part.put_batch(&mut (0..8).map(|n| (n, n))).unwrap();
        let mut space = part.space_async();
        pending(&mut space, &waker);
        finish(&part);
        assert_eq!(bell.rung(), 1, "{name}");
        assert_eq!(ready(&mut space, &waker), Ok(()), "{name}");
    }
}

#[test]
fn close_and_assign_wake_who_waits_for_room() {
    let window = full_ring();
    let part = window.assign(0);
    let (bell, waker) = Bell::new();
    part.put_batch(&mut (0..8).map(|n| (n, n))).unwrap();
    let mut space = part.space_async();
    pending(&mut space, &waker);
    part.close().unwrap();
    assert_eq!(bell.rung(), 1);
    assert_eq!(ready(&mut space, &waker), Err(WaitError::Closed));
    let part = window.assign(0);
    part.put_batch(&mut (0..8).map(|n| (n, n))).unwrap();
    pending(&mut part.space_async(), &waker);
    let mut space = part.space_async();
    pending(&mut space, &waker);
    window.assign(0);
    assert_eq!(bell.rung(), 1, "the dropped one is not there any more");
    assert_eq!(ready(&mut space, &waker), Err(WaitError::Stale));
}

/// An old assignment's lease is in the way of one slot; when it goes there is room, wherever the
/// marks of the present assignment are.
#[test]
fn the_release_of_an_old_lease_makes_room() {
    for commits in [true, false] {
        let window = full_ring();
        let old = window.assign(0);
        old.put_batch(&mut (0..7).map(|n| (n, n))).unwrap();
        old.take(6).unwrap().commit().unwrap();
        let lease = old.take(1).unwrap();
        let part = window.assign(0);
        let mut end = 0;
        let refused = loop {
            match part.put(end, end) {
                Ok(_) => end += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(refused, PutError::Full(6), "more than half is in use");
        let (bell, waker) = Bell::new();
        let mut space = part.space_async();
        pending(&mut space, &waker);
        if commits {
            assert_eq!(lease.commit(), Err(inflight::Stale));
        } else {
            drop(lease);
        }
        assert_eq!(bell.rung(), 1);
        assert_eq!(ready(&mut space, &waker), Ok(()));
        part.put(end, end).unwrap();
    }
}

/// The same for a lease of messages that a floor has given up.
#[test]
fn the_floor_makes_room_but_where_a_lease_is_in_the_way() {
    let window = full_ring();
    let part = window.assign(0);
    let (bell, waker) = Bell::new();
    part.put_batch(&mut (0..8).map(|n| (n, n))).unwrap();
    let lease = part.take(1).unwrap();
    let mut space = part.space_async();
    pending(&mut space, &waker);
    part.advance_floor(2, |_, _| {}).unwrap();
    assert_eq!(bell.rung(), 1);
    pending(&mut space, &waker);
    drop(lease);
    assert_eq!(bell.rung(), 1, "more than half is in use, but the slot is free");
    assert_eq!(ready(&mut space, &waker), Ok(()));
    part.put(8, 8).unwrap();
}

#[test]
fn the_floor_of_a_closed_window_wakes_its_takers() {
    let window = full_ring();
    let part = window.assign(0);
    let (bell, waker) = Bell::new();
    part.put(0, 0).unwrap();
    part.take(1).unwrap().detach();
    part.close().unwrap();
    let mut take = part.take_async(1);
    pending(&mut take, &waker);
    part.advance_floor(1, |_, _| {}).unwrap();
    assert_eq!(bell.rung(), 1);
    assert_eq!(ready(&mut take, &waker).unwrap_err(), WaitError::Closed);
}

#[test]
fn room_for_an_offset_beyond_a_gap() {
    let window = full_ring();
    let part = window.assign(0);
    let (bell, waker) = Bell::new();
    part.put_batch(&mut (0..2).map(|n| (n, n))).unwrap();
    assert_eq!(ready(&mut part.space_async(), &waker), Ok(()));
    assert_eq!(part.put(100, 100), Err(PutError::Full(100)));
    let mut space = part.space_for_async(100);
    pending(&mut space, &waker);
    part.remove(0).unwrap();
    // Below half already: woken, looks, and waits for the rest.
    assert_eq!(bell.rung(), 1);
    pending(&mut space, &waker);
    part.remove(1).unwrap();
    assert_eq!(bell.rung(), 1);
    assert_eq!(ready(&mut space, &waker), Ok(()));
    part.put(100, 100).unwrap();
    // What no room helps is for the put to say.
    assert_eq!(ready(&mut part.space_for_async(3), &waker), Ok(()));
    assert_eq!(ready(&mut part.space_for_async(u64::MAX), &waker), Ok(()));
}

#[test]
fn the_callers_seal_makes_room_when_it_moves() {
    let window = RingWindow::<u64, 8>::with_callers_seal();
    let part = window.assign(0);
    let (bell, waker) = Bell::new();
    let mut space = part.space_for_async(9);
    pending(&mut space, &waker);
    part.advance_to(5).unwrap();
    assert_eq!(bell.rung(), 1);
    assert_eq!(ready(&mut space, &waker), Ok(()));
    part.put(9, 9).unwrap();
}

/// Puts of what a restored snapshot knows as finished move the watermark.
#[test]
fn a_restored_window_makes_room_as_it_is_put_over() {
    let before = RingWindow::<u64, 8>::new();
    let part = before.assign(0);
    part.put_batch(&mut (0..4).map(|n| (n, n))).unwrap();
    part.remove_batch(1..4).unwrap();
    let mut buffer = [0; 64];
    let taken = part.snapshot(&mut buffer).unwrap();
    let snapshot = inflight::Snapshot::parse(&buffer[..taken.len]).unwrap();

    let window = RingWindow::<u64, 8>::with_callers_seal();
    let part = window.assign(0);
    assert_eq!(part.restore(&snapshot).unwrap().sealed, 3);
    let (bell, waker) = Bell::new();
    part.put(0, 0).unwrap();
    part.remove(0).unwrap();
    let mut space = part.space_for_async(11);
    pending(&mut space, &waker);
    for offset in 1..4 {
        assert_eq!(part.put(offset, offset), Err(PutError::Passed(offset)));
    }
    assert!(bell.rung() > 0);
    assert_eq!(ready(&mut space, &waker), Ok(()));
    part.put(11, 11).unwrap();
}

/// A skip window is full at the limits of its counters.
#[test]
fn room_in_a_skip_window() {
    let window = SkipWindow::<u64>::new();
    let part = window.assign(0);
    let (bell, waker) = Bell::new();
    assert_eq!(ready(&mut part.space_for_async(1 << 28), &waker), Ok(()));
    let largest =
        if cfg!(inflight_word32) || usize::BITS == 32 { 1 << 24 } else { u32::MAX as usize };
    let mut end = 0;
    while part.put_sized(end, largest, end).is_ok() {
        end += 1;
    }
    assert_eq!(part.put_sized(end, largest, 0), Err(PutError::Full(0)));
    let mut space = part.space_async();
    pending(&mut space, &waker);
    let half = end.div_ceil(2);
    part.remove_batch(0..end - half).unwrap();
    assert_eq!(bell.rung(), 1);
    assert_eq!(ready(&mut space, &waker), Ok(()));
    part.put_sized(end, largest, 0).unwrap();
}

// --- threads ---

/// Wakes a thread that parks.
struct Unpark(Thread, AtomicBool);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.1.store(true, Ordering::SeqCst);
        self.0.unpark();
    }
}

/// A bare executor. A future that is not woken for so long has lost its wake-up.
fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let unpark = Arc::new(Unpark(thread::current(), AtomicBool::new(false)));
    let waker = Waker::from(Arc::clone(&unpark));
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        let asleep = Instant::now();
        while !unpark.1.swap(false, Ordering::SeqCst) {
            assert!(asleep.elapsed() < Duration::from_secs(120), "a wake-up is lost");
            thread::park_timeout(Duration::from_secs(1));
        }
    }
}

const MESSAGES: u64 = if cfg!(miri) { 60 } else { 20_000 };

/// One puts and waits for room; two wait faithfully for messages, of which some are given back;
/// two give up after a few polls. Every message is finished exactly once, and nobody sleeps on.
fn threads_that_wait_and_give_up(window: impl Window<Value = u64> + Send + Sync + 'static) {
    let window = Arc::new(window);
    let part = window.assign_owned(0);
    let finished: Arc<Vec<AtomicUsize>> =
        Arc::new((0..MESSAGES).map(|_| AtomicUsize::new(0)).collect());
    let finish = |finished: &[AtomicUsize], lease: inflight::Lease<Arc<_>>, turn: u64| {
        if turn.is_multiple_of(5) {
            return drop(lease);
        }
        for (offset, value) in lease.into_values() {
            assert_eq!(offset, value);
            finished[offset as usize].fetch_add(1, Ordering::SeqCst);
        }
    };
    thread::scope(|scope| {
        for taker in 0..4_u64 {
            let (part, finished) = (part.clone(), Arc::clone(&finished));
            scope.spawn(move || {
                for turn in 0.. {
                    let n = 1 + (turn % 3) as usize;
                    let mut take = part.take_async(n);
                    let got = if taker < 2 {
                        block_on(&mut take)
                    } else {
                        let polled =
                            (0..turn % 4).find_map(|_| match poll(&mut take, Waker::noop()) {
                                Poll::Ready(got) => Some(got),
                                Poll::Pending => None,
                            });
                        drop(take);
                        let Some(got) = polled else {
                            thread::yield_now();
                            continue;
                        };
                        got
                    };
                    match got {
                        Ok(lease) => finish(&finished, lease, turn),
                        Err(error) => {
                            assert_eq!(error, WaitError::Closed);
                            return;
                        }
                    }
                }
            });
        }
        for offset in 0..MESSAGES {
            while let Err(error) = part.put(offset, offset) {
                assert_eq!(error, PutError::Full(offset));
                // Gives up now and then as well.
                let _ = poll(&mut part.space_async(), Waker::noop());
                block_on(part.space_async()).unwrap();
            }
        }
        part.close().unwrap();
    });
    assert!(finished.iter().all(|times| times.load(Ordering::SeqCst) == 1));
    assert_eq!(part.watermark().unwrap().get(), MESSAGES);
}

#[cfg(feature = "std")]
mod blocking {
    use super::*;

    #[test]
    fn threads_that_block() {
        let window = full_ring();
        let part = window.assign_owned(0);
        thread::scope(|scope| {
            let takers: Vec<_> = (0..3)
                .map(|_| {
                    let part = part.clone();
                    scope.spawn(move || {
                        let mut sum = 0;
                        loop {
                            match part.take_blocking(3) {
                                Ok(lease) => sum += lease.commit().unwrap().applied,
                                Err(error) => {
                                    assert_eq!(error, WaitError::Closed);
                                    return sum;
                                }
                            }
                        }
                    })
                })
                .collect();
            for offset in 0..MESSAGES {
                while part.put(offset, offset).is_err() {
                    part.space_blocking().unwrap();
                }
            }
            part.close().unwrap();
            let sum: usize = takers.into_iter().map(|taker| taker.join().unwrap()).sum();
            assert_eq!(sum as u64, MESSAGES);
        });
    }

    #[test]
    fn the_time_is_up() {
        let window = full_ring();
        let part = window.assign_owned(0);
        let short = Duration::from_millis(5);
        assert_eq!(part.take_timeout(1, short).unwrap_err(), WaitError::TimedOut);
        assert_eq!(part.take_timeout(1, Duration::ZERO).unwrap_err(), WaitError::TimedOut);
        assert_eq!(part.space_timeout(Duration::ZERO), Ok(()));
        part.put_batch(&mut (0..8).map(|n| (n, n))).unwrap();
        assert_eq!(part.space_timeout(short), Err(WaitError::TimedOut));
        assert_eq!(part.space_for_timeout(100, short), Err(WaitError::TimedOut));
        assert_eq!(part.take_timeout(8, Duration::ZERO).unwrap().commit().unwrap().applied, 8);
        assert_eq!(part.space_for_timeout(100, Duration::MAX), Ok(()));
        assert_eq!(part.space_for_blocking(100), Ok(()));
    }

    #[test]
    fn a_thread_that_sleeps_is_woken() {
        let window = full_ring();
        let part = window.assign_owned(0);
        let other = part.clone();
        let taker =
            thread::spawn(move || other.take_timeout(1, Duration::MAX).map(|got| got.len()));
        thread::sleep(Duration::from_millis(20));
        part.put(0, 0).unwrap();
        assert_eq!(taker.join().unwrap(), Ok(1));
        let other = part.clone();
        part.take(1).unwrap().commit().unwrap();
        let taker = thread::spawn(move || other.take_blocking(1).map(|got| got.len()));
        thread::sleep(Duration::from_millis(20));
        window.assign_owned(0);
        assert_eq!(taker.join().unwrap(), Err(WaitError::Stale));
    }
}

// --- for a budget ---

/// A window with a share of the budget, guaranteed so many messages.
fn paid(budget: &Budget, floor: usize) -> Budgeted<RingWindow<u64, 16>, &Budget> {
    Budgeted::new(RingWindow::new(), Share::with_floor(budget, floor, 0).unwrap())
}

#[test]
fn whatever_is_given_back_wakes_who_waits_for_a_budget() {
    let budget = Budget::new(4, 100);
    let (one, two) = (paid(&budget, 0), paid(&budget, 0));
    let (one, two) = (one.assign(0), two.assign(0));
    let (bell, waker) = Bell::new();
    one.put_sized(0, 60, 1).unwrap();
    let permit = one.reserve(3, 0).unwrap();

    let mut waits = two.reserve_async(2, 50);
    pending(&mut waits, &waker);
    assert_eq!(bell.rung(), 0);
    drop(permit);
    assert_eq!(bell.rung(), 1);
    // Still short of bytes.
    pending(&mut waits, &waker);
    one.remove(0).unwrap();
    assert_eq!(bell.rung(), 1);
    let permit = ready(&mut waits, &waker).unwrap();
    assert_eq!((permit.messages(), permit.bytes(), budget.free().count), (2, 50, 2));
    drop(waits);
    one.put_sized(1, 1, 1).unwrap();
    one.remove(1).unwrap();
    assert_eq!(bell.rung(), 0, "nobody waits any more");
}

#[test]
fn what_is_left_of_a_floor_wakes_too() {
    let budget = Budget::new(2, 100);
    let window = paid(&budget, 2);
    let part = window.assign(0);
    let (bell, waker) = Bell::new();
    part.put(0, 0).unwrap();
    let mut waits = part.reserve_async(2, 0);
    pending(&mut waits, &waker);
    part.take(1).unwrap().commit().unwrap();
    // Below the floor nothing becomes free for others.
    assert_eq!((bell.rung(), budget.free().count), (1, 0));
    assert_eq!(ready(&mut waits, &waker).unwrap().messages(), 2);
}

#[test]
fn a_window_that_goes_wakes_who_waits_for_its_budget() {
    let budget = Budget::new(4, 100);
    let (one, two) = (paid(&budget, 3), paid(&budget, 0));
    let two = two.assign(0);
    let (bell, waker) = Bell::new();
    let _held = two.reserve(1, 0).unwrap();
    let mut waits = two.reserve_async(1, 0);
    assert_eq!(ready(&mut two.reserve_async(2, 0), &waker).unwrap_err(), WaitError::TooMuch);
    pending(&mut waits, &waker);
    drop(one);
    assert_eq!(bell.rung(), 1);
    assert_eq!(ready(&mut waits, &waker).unwrap().messages(), 1);
}

#[test]
fn an_end_wakes_who_waits_for_a_budget() {
    let budget = Budget::new(1, 100);
    let (one, two) = (paid(&budget, 0), paid(&budget, 0));
    let (bell, waker) = Bell::new();
    let _held = one.assign(0).reserve(1, 0).unwrap();
    let old = two.assign(0);
    let mut waits = old.reserve_async(1, 0);
    pending(&mut waits, &waker);
    let new = two.assign(0);
    assert!(bell.rung() > 0);
    assert_eq!(ready(&mut waits, &waker).unwrap_err(), WaitError::Stale);
    let mut waits = new.reserve_async(1, 0);
    pending(&mut waits, &waker);
    new.close().unwrap();
    assert!(bell.rung() > 0);
    assert_eq!(ready(&mut waits, &waker).unwrap_err(), WaitError::Closed);
}

#[test]
fn the_seats_of_a_budget() {
    let budget = Budget::new(1, 100);
    let (one, two) = (paid(&budget, 0), paid(&budget, 0));
    let (one, two) = (one.assign(0), two.assign(0));
    let (bell, waker) = Bell::new();
    let permit = one.reserve(1, 0).unwrap();
    let mut waits: Vec<_> =
        (0..4).flat_map(|_| [one, two]).map(|p| p.reserve_async(1, 1)).collect();
    waits.iter_mut().for_each(|waits| pending(waits, &waker));
    assert_eq!(ready(&mut one.reserve_async(1, 1), &waker).unwrap_err(), WaitError::WaitersFull);
    // A future that is dropped leaves its seat, and takes no wake-up with it.
    drop(waits.pop());
    let mut last = two.reserve_async(1, 1);
    pending(&mut last, &waker);
    drop(permit);
    assert_eq!(bell.rung(), 8);
    drop(waits);
    assert_eq!(ready(&mut last, &waker).unwrap().messages(), 1);
    assert_eq!(budget.free().count, 1);
}

#[cfg(feature = "std")]
#[test]
fn threads_that_wait_for_a_budget() {
    let budget = Budget::new(3, 30);
    let (one, two) = (paid(&budget, 1), paid(&budget, 0));
    let late = one.assign(0).reserve(3, 0).unwrap();
    let timed_out = two.assign(0).reserve_timeout(1, 1, Duration::from_millis(20));
    assert_eq!(timed_out.unwrap_err(), WaitError::TimedOut);
    drop(late);
    let rounds = if cfg!(miri) { 20 } else { 5_000 };
    thread::scope(|scope| {
        for window in [&one, &two] {
            let part = window.assign(0);
            let pull = move || {
                for offset in 0..rounds {
                    let mut permit = part.reserve_blocking(2, 20).unwrap();
                    permit.put_sized(offset, 10, offset).unwrap();
                }
            };
            scope.spawn(pull);
            scope.spawn(move || {
                for _ in 0..rounds {
                    part.take_blocking(1).unwrap().commit().unwrap();
                }
            });
        }
    });
    assert_eq!(budget.free().count, 2);
}
