//! A bare executor for one core: up to 32 tasks, one bit of a word each.
//!
//! A waker sets its task's bit; the loop polls the tasks whose bits are set, and nobody else. With
//! no bit set it sleeps until an interrupt.
//!
//! Looking for bits and going to sleep are one step for the interrupts: they are off between the
//! two. Otherwise one that came there would set a bit, and the core would sleep over it until the
//! next interrupt, which may never come. (`wfi` ends for an interrupt that is pending although it
//! is off; it then runs as soon as interrupts are on again.)

use core::future::Future;
use core::pin::Pin;
use core::sync::atomic::{AtomicU32, Ordering};
use core::task::{Context, RawWaker, RawWakerVTable, Waker};

/// A bit for each task that has something to do.
static READY: AtomicU32 = AtomicU32::new(0);

/// What the executor did.
#[derive(Clone, Copy, Default)]
pub struct Account {
    /// Tasks polled.
    pub polls: u32,
    /// Times it went to sleep.
    pub sleeps: u32,
}

/// Runs the tasks until all are done.
pub fn run(tasks: &mut [Pin<&mut dyn Future<Output = ()>>]) -> Account {
    assert!(tasks.len() < 32, "a task needs a bit");
    let all = (1 << tasks.len()) - 1;
    let (mut account, mut left) = (Account::default(), all);
    mark(all);
    while left != 0 {
        let ready = marked() & left;
        if ready == 0 {
            sleep();
            account.sleeps += 1;
        }
        for (index, task) in tasks.iter_mut().enumerate() {
            if ready & 1 << index != 0 {
                account.polls += 1;
                let waker = waker(index);
                if task.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
                    left &= !(1 << index);
                }
            }
        }
    }
    account
}

/// Sleeps until an interrupt has run, unless a task is ready already.
fn sleep() {
    #[cfg(not(feature = "planted-sleep"))]
    cortex_m::interrupt::disable();
    if READY.load(Ordering::Relaxed) == 0 {
        cortex_m::asm::wfi();
    }
    // SAFETY: called by the loop alone, outside of any critical section.
    unsafe { cortex_m::interrupt::enable() };
}

#[cfg(target_has_atomic = "ptr")]
fn mark(bits: u32) {
    // Release, and Acquire below: with what was done before waking.
    READY.fetch_or(bits, Ordering::Release);
}

#[cfg(target_has_atomic = "ptr")]
fn marked() -> u32 {
    READY.swap(0, Ordering::Acquire)
}

#[cfg(not(target_has_atomic = "ptr"))]
fn mark(bits: u32) {
    critical_section::with(|_| READY.store(READY.load(Ordering::Relaxed) | bits, Ordering::Relaxed))
}

#[cfg(not(target_has_atomic = "ptr"))]
fn marked() -> u32 {
    critical_section::with(|_| {
        let bits = READY.load(Ordering::Relaxed);
        READY.store(0, Ordering::Relaxed);
        bits
    })
}

/// A waker is its task's number: nothing to count, nothing to drop.
fn waker(index: usize) -> Waker {
    static TABLE: RawWakerVTable = RawWakerVTable::new(
        |index| RawWaker::new(index, &TABLE),
        |index| wake(index.addr()),
        |index| wake(index.addr()),
        |_| {},
    );
    // SAFETY: the functions of the table only use the number, from any context.
    unsafe { Waker::from_raw(RawWaker::new(core::ptr::without_provenance(index), &TABLE)) }
}

/// Wakes the task at this place of those that [`run`] was given, from an interrupt too.
pub fn wake(index: usize) {
    mark(1 << index);
}
