//! The calls of a link and nothing else, for three proofs by the linker and the disassembler: no
//! allocator is needed, no path leads to a panic, and no call turns interrupts off or uses a
//! 64-bit atomic where the chip has compare-exchange.
//!
//! A panic would call a function that does not exist: the program links only if the compiler has
//! removed every call of the panic handler.
#![no_std]
#![no_main]
#![cfg_attr(any(feature = "empty", feature = "small"), allow(dead_code))]

#[cfg(not(target_arch = "arm"))]
compile_error!("the proofs are made on Cortex-M");

#[cfg(feature = "planted-alloc")]
extern crate alloc;

#[cfg(feature = "every")]
#[path = "bare/every.rs"]
mod every;

use core::hint::black_box;

use cortex_m_rt::entry;
use inflight::{Assignment, RingWindow, Window};
// The critical section of Cortex-M0 is in there.
use inflight_firmware as _;

unsafe extern "C" {
    fn a_path_leads_to_a_panic() -> !;
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: it does not exist, so this is never linked, let alone run.
    unsafe { a_path_leads_to_a_panic() }
}

static WINDOW: RingWindow<[u8; 16], 64> = RingWindow::new();

type Part = Assignment<&'static RingWindow<[u8; 16], 64>>;

// As docs/embedded.md says.
const _: () = assert!(size_of::<Part>() == 24);
const _: () = assert!(size_of::<inflight::Lease<&'static RingWindow<[u8; 16], 64>>>() == 40);

#[cfg_attr(not(any(feature = "empty", feature = "small")), unsafe(no_mangle))]
#[inline(never)]
fn op_assign(start: u64) -> Part {
    WINDOW.assign(start)
}

#[cfg_attr(not(any(feature = "empty", feature = "small")), unsafe(no_mangle))]
#[inline(never)]
fn op_put(part: &Part, offset: u64, frame: [u8; 16]) -> bool {
    part.put(offset, frame).is_ok()
}

#[cfg_attr(not(any(feature = "empty", feature = "small")), unsafe(no_mangle))]
#[inline(never)]
fn op_take_commit(part: &Part, sink: &mut u8) -> u64 {
    let Ok(lease) = part.take(4) else { return 0 };
    for (_, frame) in &lease {
        *sink ^= frame[0];
    }
    lease.commit().map_or(0, |report| report.next.get())
}

#[cfg_attr(not(any(feature = "empty", feature = "small")), unsafe(no_mangle))]
#[inline(never)]
fn op_take_detach(part: &Part, now: u64) -> bool {
    part.at(now).take(4).map(|lease| lease.detach()).is_ok()
}

#[cfg_attr(not(any(feature = "empty", feature = "small")), unsafe(no_mangle))]
#[inline(never)]
fn op_remove(part: &Part, offset: u64) -> bool {
    part.remove(offset).is_ok()
}

#[cfg_attr(not(any(feature = "empty", feature = "small")), unsafe(no_mangle))]
#[inline(never)]
fn op_revoke_rollback(part: &Part, now: u64, offset: u64) -> bool {
    part.at(now).revoke(offset).is_ok_and(|lease| lease.rollback().is_ok())
}

#[cfg_attr(not(any(feature = "empty", feature = "small")), unsafe(no_mangle))]
#[inline(never)]
fn op_watermark(part: &Part) -> u64 {
    #[cfg(feature = "planted-panic")]
    return part.watermark().expect("the control: this can panic").get();
    #[cfg(feature = "planted-alloc")]
    return *alloc::boxed::Box::new(black_box(part).watermark().map_or(0, |next| next.get()));
    #[cfg(not(any(feature = "planted-panic", feature = "planted-alloc")))]
    part.watermark().map_or(0, |next| next.get())
}

#[cfg(feature = "tasks")]
#[cfg_attr(not(any(feature = "empty", feature = "small")), unsafe(no_mangle))]
#[inline(never)]
fn op_take_async(part: &Part) -> bool {
    use core::task::{Context, Waker};
    let future = core::pin::pin!(part.take_async(4));
    future.poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

#[entry]
fn main() -> ! {
    #[cfg(not(feature = "empty"))]
    let part = op_assign(black_box(7));
    let mut sink = 0;
    loop {
        #[cfg(not(feature = "empty"))]
        {
            black_box(op_put(black_box(&part), black_box(7), black_box([1; 16])));
            black_box(op_take_commit(black_box(&part), &mut sink));
            black_box(op_watermark(black_box(&part)));
        }
        #[cfg(feature = "every")]
        black_box(every::call(black_box(&part), black_box(3)));
        #[cfg(feature = "tasks")]
        black_box(op_take_async(black_box(&part)));
        #[cfg(not(any(feature = "empty", feature = "small")))]
        {
            black_box(op_take_detach(black_box(&part), black_box(1)));
            black_box(op_remove(black_box(&part), black_box(7)));
            black_box(op_revoke_rollback(black_box(&part), black_box(2), black_box(7)));
        }
        black_box(&mut sink);
    }
}
