//! Two real cores: one puts, the other takes and finishes, at the same time.
//!
//! Every message must arrive whole and once more for each time it was given back; the watermark
//! that the putter sees never goes back and never passes what the taker has finished.
#![no_std]
#![no_main]

#[cfg(not(target_arch = "riscv32"))]
compile_error!("two cores are for the RISC-V board; `link` is for Cortex-M");

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use inflight::{Assignment, PutErrorKind, RingWindow, TakeError, Window};
use inflight_firmware::frame::{Frame, Random, bump};
use inflight_firmware::host;

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    host::fail(info)
}

// Both cores begin here, in machine mode, memory filled with zeros by the loader.
core::arch::global_asm!(
    ".section .init",
    ".globl _start",
    "_start:",
    "csrr a0, mhartid",
    "la t0, trap",
    "csrw mtvec, t0",
    "la sp, _stack_top",
    "slli t1, a0, 14",
    "sub sp, sp, t1",
    "call core_main",
    ".balign 4",
    "trap:",
    "csrr a0, mcause",
    "csrr a1, mepc",
    "call trapped",
);

#[unsafe(no_mangle)]
extern "C" fn trapped(cause: usize, at: usize) -> ! {
    panic!("trap {cause} at {at:#x}")
}

const SLOTS: usize = 64;
const FRAMES: u32 = 100_000;
/// Offsets and positions pass 2^32 half-way.
const START: u64 = (1 << 32) - FRAMES as u64 / 2;
const END: u64 = START + FRAMES as u64;

static WINDOW: RingWindow<Frame, SLOTS> =
    RingWindow::starting_at((START - 4 * SLOTS as u64) / SLOTS as u64, false);

static ASSIGNED: AtomicBool = AtomicBool::new(false);
static EVENTS: AtomicU32 = AtomicU32::new(0);
/// Frames finished by the taker, raised before each is: an upper bound of the watermark.
static FINISHING: AtomicU32 = AtomicU32::new(0);
static TAKER: Report =
    Report { done: AtomicBool::new(false), sum: AtomicU32::new(0), events: AtomicU32::new(0) };

/// What the taker tells the putter at the end.
struct Report {
    done: AtomicBool,
    sum: AtomicU32,
    events: AtomicU32,
}

#[unsafe(no_mangle)]
extern "C" fn core_main(core: usize) -> ! {
    match core {
        0 => put_all(),
        1 => take_all(),
        _ => loop {
            core::hint::spin_loop();
        },
    }
}

/// Looks in vain before a core sleeps. More than the other needs to do something where both run;
/// where the host runs them in turns, looking on would only keep the other from it.
const IN_VAIN: u32 = 100;

/// Counts looks, and sleeps where there were too many in vain.
fn looked(in_vain: &mut u32, found: bool) {
    *in_vain = if found { 0 } else { *in_vain + 1 };
    if *in_vain > IN_VAIN {
        host::pause();
    }
}

/// The handle of the one generation: both cores make it from the same assignment.
type Part = Assignment<&'static RingWindow<Frame, SLOTS>>;

/// Where the putter leaves the handle for the taker.
struct Handle(core::cell::UnsafeCell<Option<Part>>);

// SAFETY: written before `ASSIGNED` is set, read after it was seen set.
unsafe impl Sync for Handle {}

static HANDLE: Handle = Handle(core::cell::UnsafeCell::new(None));

fn put_all() -> ! {
    let part = WINDOW.assign(START);
    // SAFETY: `ASSIGNED` is not set: the taker is not reading.
    unsafe { *HANDLE.0.get() = Some(part) };
    ASSIGNED.store(true, Ordering::Release);

    let mut random = Random(0x1357_9bdf);
    let (mut events, mut full, mut last, mut in_vain) = (0u32, 0u32, START, 0);
    let mut next = START;
    while next < END {
        bump(&EVENTS);
        events += 1;
        let until = END.min(next + u64::from(1 + random.next(6)));
        let put = part.put_batch(&mut (next..until).map(|offset| (offset, Frame::new(offset))));
        let before = next;
        match put {
            Ok(_) => next = until,
            Err(refused) => {
                assert!(refused.error == PutErrorKind::Full, "{refused}");
                full += 1;
                next = refused.offset;
            }
        }
        looked(&mut in_vain, next > before);
        let watermark = part.watermark().expect("in force").get();
        assert!(watermark >= last, "the watermark went back");
        // Read after the watermark: whatever is below it was counted before.
        let finishing = START + u64::from(FINISHING.load(Ordering::Acquire));
        assert!(watermark <= finishing, "the watermark passed an unfinished frame");
        last = watermark;
    }
    while !TAKER.done.load(Ordering::Acquire) {
        host::pause();
    }
    let sum = (START..END).fold(0u32, |sum, offset| sum.wrapping_add(Frame::new(offset).load()));
    assert!(TAKER.sum.load(Ordering::Relaxed) == sum, "the sum differs");
    assert!(part.watermark().expect("in force").get() == END);
    assert!(WINDOW.count() == 0 && WINDOW.span() == 0);
    let of_taker = TAKER.events.load(Ordering::Relaxed);
    let counted = EVENTS.load(Ordering::Relaxed);
    let seen = events.wrapping_add(of_taker);
    assert!(counted == seen, "{counted} events counted of {seen}: an update was lost");
    host::line(format_args!(
        "two_cores: {FRAMES} frames, {full} times full, {events} + {of_taker} events: ok"
    ));
    host::exit(0)
}

fn take_all() -> ! {
    while !ASSIGNED.load(Ordering::Acquire) {
        host::pause();
    }
    // SAFETY: the putter has written it and does not again.
    let part = unsafe { *HANDLE.0.get() }.expect("assigned");
    let mut random = Random(0xfdb9_7531);
    let (mut sum, mut events, mut next, mut in_vain) = (0u32, 0u32, START, 0);
    while next < END {
        bump(&EVENTS);
        events += 1;
        let lease = match part.take(1 + random.next(12) as usize) {
            Ok(lease) => lease,
            Err(TakeError::Empty) => {
                looked(&mut in_vain, false);
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        looked(&mut in_vain, true);
        let mut expected = next;
        for (offset, frame) in &lease {
            assert!(offset == expected && frame.is_of(offset), "{offset}, not {expected}");
            expected += 1;
        }
        if random.next(4) == 0 {
            // Given back: the next take begins with the same frame.
            drop(lease);
            continue;
        }
        for (_, frame) in &lease {
            sum = sum.wrapping_add(frame.load());
        }
        FINISHING.store((expected - START) as u32, Ordering::Release);
        if random.next(2) == 0 {
            assert!(lease.commit().is_ok());
        } else {
            lease.detach();
            // By number, backwards.
            (next..expected).rev().for_each(|offset| assert!(part.remove(offset).is_ok()));
        }
        next = expected;
    }
    TAKER.sum.store(sum, Ordering::Relaxed);
    TAKER.events.store(events, Ordering::Relaxed);
    TAKER.done.store(true, Ordering::Release);
    loop {
        host::pause();
    }
}
