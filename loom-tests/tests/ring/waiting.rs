//! Waiting: no wake-up is lost, by whatever comes beside it, and no waker is in two hands.
//!
//! A future is polled once beside the other party. When it waits, it must have been woken by the
//! time that both are through, if there is something for it; then the next poll gets it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use inflight::{RingWindow, Stale, WaitError, Window};

use crate::harness::{Part, Ring, Token, both, ended, models, put, ring, settled, three};

models! {
    take_async_beside_put: "a taker that begins to wait beside a put", "5 9", 3,
        [Dispatched], [ArmedUnseen, SignalRelaxed];
    take_async_beside_rollback: "a taker that begins to wait beside a rollback", "5 9", 3,
        [], [ArmedUnseen];
    take_async_beside_close: "a taker that begins to wait beside close", "9", 3,
        [], [ArmedUnseen, ArmRelaxed, WakeAllUnmet];
    take_async_beside_the_last_commit: "a taker of a closed window beside the last commit", "9", 3,
        [], [ArmedUnseen, OverUnsaid];
    take_async_beside_assign: "a taker that begins to wait beside assign", "9", 2,
        [], [ArmedUnseen, ArmRelaxed, WakeAllUnmet];
    two_takers_beside_put: "two takers and one message: who does not get it waits on", "5 9", 2,
        [], [];
    a_dropped_taker_beside_put: "a future that is dropped beside a put: the other one is woken", "5 9", 3,
        [LeftWhileClaimed], [];
    the_seat_of_a_dropped_taker: "a seat that is left while its waker is taken out, and the next one in it", "9", 3,
        [LeftWhileClaimed], [StandIgnoresBusy];
    two_puts_and_a_taker: "a waiting taker and two puts: its waker is in one hand", "5 9", 2,
        [], [ClaimWakerWithoutCas];
    another_waker_beside_put: "a waiting taker that comes with another waker beside a put", "5 9", 3,
        [ArmedWhileClaimed], [];
    space_async_beside_remove: "a putter that begins to wait beside the finish that makes room", "3 9", 3,
        [], [ArmedUnseen, RoomUnmet];
    space_async_beside_two_removes: "a putter that begins to wait beside two finishes", "3 9", 1,
        [], [RoomUnmet];
    space_async_beside_an_old_lease: "a putter that waits for the slot of an old lease", "9", 3,
        [DoomedReleased], [ArmedUnseen];
}

/// A waker that counts, outside of the model.
#[derive(Default)]
pub struct Bell(std::sync::atomic::AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
}

pub fn bell() -> (Arc<Bell>, Waker) {
    let bell = Arc::new(Bell::default());
    (Arc::clone(&bell), Waker::from(bell))
}

impl Bell {
    fn has_rung(&self) -> bool {
        self.0.load(std::sync::atomic::Ordering::Relaxed) > 0
    }
}

pub fn poll<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(waker))
}

/// What a poll gave, now or, once it was woken, by another.
#[track_caller]
pub fn in_the_end<F: Future + Unpin>(
    mut future: F,
    first: Poll<F::Output>,
    bell: &Bell,
) -> F::Output {
    let output = match first {
        Poll::Ready(output) => output,
        Poll::Pending => {
            assert!(bell.has_rung(), "the wake-up is lost");
            match poll(&mut future, Waker::noop()) {
                Poll::Ready(output) => output,
                Poll::Pending => panic!("woken, and nothing is there"),
            }
        }
    };
    drop(future);
    output
}

/// A taker polled once, on the model's main thread, beside `other`.
fn taker_beside<const N: usize, A: 'static>(
    part: &Part<N>,
    other: impl FnOnce() -> A + 'static,
) -> (A, Result<inflight::Lease<Arc<Ring<N>>>, WaitError>) {
    let (bell, waker) = bell();
    let mut take = part.take_async(1);
    let (done, first) = both(other, || poll(&mut take, &waker));
    (done, in_the_end(take, first, &bell))
}

fn take_async_beside_put() {
    let (window, part) = ring::<2>();
    let other = part.clone();
    let (_, lease) = taker_beside(&part, move || other.put_sized(0, 1, Token::new()).unwrap());
    lease.unwrap().commit().unwrap();
    settled(&part, 1, 0);
    ended(window, part);
}

fn take_async_beside_rollback() {
    let (window, part) = ring::<2>();
    put(&part, [0]);
    let lease = part.take(1).unwrap();
    let (_, lease) = taker_beside(&part, move || lease.rollback().unwrap());
    lease.unwrap().commit().unwrap();
    settled(&part, 1, 0);
    ended(window, part);
}

fn take_async_beside_close() {
    let (window, part) = ring::<2>();
    let other = part.clone();
    let (_, lease) = taker_beside(&part, move || other.close().unwrap());
    assert_eq!(lease.unwrap_err(), WaitError::Closed);
    ended(window, part);
}

fn take_async_beside_the_last_commit() {
    let (window, part) = ring::<2>();
    put(&part, [0]);
    let lease = part.take(1).unwrap();
    part.close().unwrap();
    let (_, lease) = taker_beside(&part, move || lease.commit().unwrap());
    assert_eq!(lease.unwrap_err(), WaitError::Closed);
    ended(window, part);
}

fn take_async_beside_assign() {
    let (window, part) = ring::<2>();
    let other = window.clone();
    let (new, lease) = taker_beside(&part, move || other.assign_owned(0));
    assert_eq!(lease.unwrap_err(), WaitError::Stale);
    assert_eq!(part.watermark(), Err(Stale));
    drop(new);
    ended(window, part);
}

fn two_takers_beside_put() {
    let (window, part) = ring::<2>();
    let other = part.clone();
    let ((one_bell, one_waker), (two_bell, two_waker)) = (bell(), bell());
    let mut one = part.take_async(1);
    let mut two = part.take_async(1);
    // Waits already; the other one begins to.
    assert!(poll(&mut one, &one_waker).is_pending());
    let (_, second) =
        both(move || other.put_sized(0, 1, Token::new()).unwrap(), || poll(&mut two, &two_waker));
    assert!(one_bell.has_rung(), "the wake-up of who waited is lost");
    let lease = in_the_end(two, second, &two_bell).unwrap();
    assert!(poll(&mut one, &one_waker).is_pending(), "one message, two leases");
    lease.commit().unwrap();
    drop(one);
    settled(&part, 1, 0);
    ended(window, part);
}

fn a_dropped_taker_beside_put() {
    let (window, part) = ring::<2>();
    let other = part.clone();
    let ((_, one_waker), (two_bell, two_waker)) = (bell(), bell());
    let mut one = part.take_async(1);
    assert!(poll(&mut one, &one_waker).is_pending());
    let (_, (two, second)) = both(
        move || other.put_sized(0, 1, Token::new()).unwrap(),
        || {
            drop(one);
            let mut two = part.take_async(1);
            let second = poll(&mut two, &two_waker);
            (two, second)
        },
    );
    in_the_end(two, second, &two_bell).unwrap().commit().unwrap();
    settled(&part, 1, 0);
    ended(window, part);
}

fn the_seat_of_a_dropped_taker() {
    let (window, part) = ring::<2>();
    put(&part, [0, 1]);
    let lease = part.take(2).unwrap();
    let ((_, one_waker), (two_bell, two_waker)) = (bell(), bell());
    let mut one = part.take_async(1);
    assert!(poll(&mut one, &one_waker).is_pending());
    let (_, mut two) = both(
        move || lease.rollback().unwrap(),
        || {
            drop(one);
            let mut two = part.space_async();
            assert!(poll(&mut two, &two_waker).is_pending());
            two
        },
    );
    assert!(!two_bell.has_rung());
    part.remove_batch(0..2).unwrap();
    assert!(two_bell.has_rung());
    assert!(poll(&mut two, Waker::noop()).is_ready());
    drop(two);
    settled(&part, 2, 0);
    ended(window, part);
}

fn two_puts_and_a_taker() {
    let window = Arc::new(RingWindow::<Token, 2>::with_callers_seal());
    let part = window.assign_owned(0);
    let (one, two) = (part.clone(), part.clone());
    let (bell, waker) = bell();
    let mut take = part.take_async(2);
    assert!(poll(&mut take, &waker).is_pending());
    both(
        move || one.put_sized(0, 1, Token::new()).unwrap(),
        move || two.put_sized(1, 1, Token::new()).unwrap(),
    );
    let lease = in_the_end(take, Poll::Pending, &bell).unwrap();
    assert_eq!(lease.commit().unwrap().applied, 2);
    part.advance_to(2).unwrap();
    settled(&part, 2, 0);
    ended(window, part);
}

fn another_waker_beside_put() {
    let (window, part) = ring::<2>();
    let other = part.clone();
    let ((old_bell, old_waker), (bell, waker)) = (bell(), bell());
    let mut take = part.take_async(1);
    assert!(poll(&mut take, &old_waker).is_pending());
    let (_, first) =
        both(move || other.put_sized(0, 1, Token::new()).unwrap(), || poll(&mut take, &waker));
    let lease = in_the_end(take, first, &bell).unwrap();
    lease.commit().unwrap();
    drop(old_waker);
    assert_eq!(Arc::strong_count(&old_bell), 1, "the old waker is left somewhere");
    settled(&part, 1, 0);
    ended(window, part);
}

/// A full window of two; the first place free again is room, and half.
fn space_async_beside_remove() {
    let (window, part) = ring::<2>();
    put(&part, [0, 1]);
    let (bell, waker) = bell();
    let mut space = part.space_async();
    let other = part.clone();
    let (_, first) = both(move || other.remove(0).unwrap(), || poll(&mut space, &waker));
    in_the_end(space, first, &bell).unwrap();
    put(&part, [2]);
    part.remove_batch(1..3).unwrap();
    settled(&part, 3, 0);
    ended(window, part);
}

fn space_async_beside_two_removes() {
    let (window, part) = ring::<2>();
    put(&part, [0, 1]);
    let (bell, waker) = bell();
    let mut space = part.space_async();
    let (one, two) = (part.clone(), part.clone());
    let (_, _, first) = three(
        move || one.remove(0).unwrap(),
        move || two.remove(1).unwrap(),
        || poll(&mut space, &waker),
    );
    in_the_end(space, first, &bell).unwrap();
    settled(&part, 2, 0);
    ended(window, part);
}

fn space_async_beside_an_old_lease() {
    let (window, old) = ring::<4>();
    put(&old, [0, 1, 2, 3]);
    old.remove_batch(0..3).unwrap();
    let lease = old.take(1).unwrap();
    let part = window.assign_owned(0);
    put(&part, [0, 1, 2]);
    let (bell, waker) = bell();
    let mut space = part.space_async();
    let (_, first) = both(move || drop(lease), || poll(&mut space, &waker));
    in_the_end(space, first, &bell).unwrap();
    put(&part, [3]);
    part.remove_batch(0..4).unwrap();
    settled(&part, 4, 0);
    drop(old);
    ended(window, part);
}
