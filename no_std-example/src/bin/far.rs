//! Assignments that move far, on a chip of 32 bits: positions pass the whole range of a word, and
//! each step goes nearly as far as one may, while leases of earlier assignments still have slots.
//!
//! Main assigns, puts, takes, keeps leases over several assignments and says that nothing more
//! exists for a long way. SysTick takes, removes and gives back at any instruction, and keeps a
//! lease as well. At the end of each stretch nobody has anything: then the window must be
//! whole, each slot ready for the next message. Every message put is dropped once.
#![no_std]
#![no_main]

#[cfg(not(target_arch = "arm"))]
compile_error!("the interrupt is Cortex-M's");

use core::cell::RefCell;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use cortex_m::interrupt::{self, Mutex};
use cortex_m::peripheral::{SCB, SYST};
use cortex_m_rt::{entry, exception};
use inflight::{Assignment, Lease, PutErrorKind, RingWindow, Stale, TakeError, Window};
use inflight_firmware::frame::{Frame, Random, bump};
use inflight_firmware::{host, timer};

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    host::fail(info)
}

const SLOTS: usize = 64;
/// A little less than the window may move at once: an eighth of the laps of a slot.
const FAR: u64 = (SLOTS as u64) << 17;
const STEP: u64 = FAR - 4 * SLOTS as u64;
const ROUNDS: u32 = 700;
/// Rounds of a stretch.
const STRETCH: u32 = 16;
const _: () = assert!(ROUNDS as u64 * STEP > 1 << 32, "a word does not wrap");

/// A frame that is counted when it is dropped.
struct Counted(Frame);

static DROPPED: AtomicU32 = AtomicU32::new(0);

impl Drop for Counted {
    fn drop(&mut self) {
        bump(&DROPPED);
    }
}

static WINDOW: RingWindow<Counted, SLOTS> = RingWindow::new();

type Held = Lease<&'static RingWindow<Counted, SLOTS>>;
type Part = Assignment<&'static RingWindow<Counted, SLOTS>>;

static PART: Mutex<RefCell<Option<Part>>> = Mutex::new(RefCell::new(None));
/// The interrupt lets go of its lease and takes none.
static QUIET: AtomicBool = AtomicBool::new(false);
/// The shortest period of SysTick, in ticks.
static PERIOD: AtomicU32 = AtomicU32::new(0);
static OF_INTERRUPT: AtomicU32 = AtomicU32::new(0);

fn check(lease: &Held) {
    let mut last = None;
    for (offset, frame) in lease {
        assert!(frame.0.is_of(offset), "frame {offset} is torn");
        assert!(last < Some(offset), "{offset} after {last:?}");
        last = Some(offset);
    }
}

#[exception]
fn SysTick() {
    static mut RANDOM: Random = Random(0x1234_5677);
    static mut LEASE: Option<Held> = None;
    let period = PERIOD.load(Ordering::Relaxed);
    // SAFETY: the next period; the reload register is this handler's.
    unsafe { (*SYST::PTR).rvr.write(period + RANDOM.next(4 * period)) };
    if QUIET.load(Ordering::Relaxed) {
        *LEASE = None;
        return;
    }
    let part = interrupt::free(|section| *PART.borrow(section).borrow());
    let Some(part) = part else { return };
    let calls = OF_INTERRUPT.load(Ordering::Relaxed);
    OF_INTERRUPT.store(calls.wrapping_add(1), Ordering::Relaxed);
    match RANDOM.next(6) {
        0 => {
            if let Ok(lease) = part.take(1 + RANDOM.next(4) as usize) {
                check(&lease);
                // What it had before goes back, or away with an assignment that has ended.
                *LEASE = Some(lease);
            }
        }
        1 => {
            if let Some(lease) = LEASE.take() {
                let _ = lease.commit();
            }
        }
        _ => {
            if let Ok(watermark) = part.watermark() {
                let _ = part.remove(watermark.get() + u64::from(RANDOM.next(SLOTS as u32)));
            }
        }
    }
}

/// Puts a whole window in order; how many it took. Slots of older leases are not free: their
/// offsets are passed over.
fn fill(part: &Part, base: u64) -> u32 {
    (base..base + SLOTS as u64)
        .map(|offset| match part.put(offset, Counted(Frame::new(offset))) {
            Ok(_) => 1,
            Err(refused) => {
                assert!(refused.kind() == PutErrorKind::Full, "{:?}", refused.kind());
                0
            }
        })
        .sum()
}

#[entry]
fn main() -> ! {
    let mut core = cortex_m::Peripherals::take().expect("main runs once");
    let period = timer::ticks_of(&mut core.SYST, 500).clamp(4, 0x1f_ffff);
    PERIOD.store(period, Ordering::Relaxed);
    core.SYST.set_reload(period);
    core.SYST.clear_current();
    core.SYST.enable_interrupt();

    let mut random = Random(0x2468_ace1);
    let mut leases: [Option<Held>; 3] = [None, None, None];
    let (mut put, mut offered, mut stale) = (0, 0, 0);
    let mut old: Option<Part> = None;
    for round in 0..ROUNDS {
        let whole = round % STRETCH == STRETCH - 1;
        if whole {
            leases = [None, None, None];
            QUIET.store(true, Ordering::Relaxed);
            SCB::set_pendst();
            cortex_m::asm::isb();
        }
        // Anywhere, to and fro, also where the low word of an offset is about to wrap.
        let base = u64::from(random.next(1 << 16)) << 32 | 0xffff_ffe0;
        let part = WINDOW.assign(base);
        interrupt::free(|section| *PART.borrow(section).borrow_mut() = Some(part));
        if let Some(old) = old {
            assert!(old.watermark() == Err(Stale), "an old assignment answers");
            let refused = old.put(0, Counted(Frame::new(0)));
            assert!(refused.is_err_and(|error| error.kind() == PutErrorKind::Stale));
            offered += 1;
        }
        let admitted = fill(&part, base);
        offered += SLOTS as u32 - admitted;
        put += admitted;
        if whole {
            assert!(admitted == SLOTS as u32, "{admitted} slots accept a message in round {round}");
            let lease = part.take(SLOTS).expect("the interrupt is quiet");
            check(&lease);
            assert!(lease.len() == SLOTS, "{} of the messages were taken", lease.len());
            let next = lease.commit().expect("in force").next.get();
            assert!(next == base + SLOTS as u64, "the watermark is off");
            assert!(part.advance_to(next + STEP).is_ok_and(|at| at.get() == next + STEP));
            assert!(WINDOW.count() == 0 && WINDOW.span() == 0);
            QUIET.store(false, Ordering::Relaxed);
        } else {
            match part.take(1 + random.next(20) as usize) {
                Ok(lease) => {
                    check(&lease);
                    let place = &mut leases[random.next(3) as usize];
                    if let Some(older) = place.replace(lease) {
                        stale += u32::from(older.commit() == Err(Stale));
                    }
                }
                Err(TakeError::Empty) => {}
                Err(error) => panic!("{error}"),
            }
            if let Ok(lease) = part.take(1 + random.next(6) as usize) {
                check(&lease);
                lease.detach();
            }
            let watermark = part.watermark().expect("in force").get();
            let next = part.advance_to(watermark + STEP).expect("not too far").get();
            assert!((watermark..=watermark + STEP).contains(&next), "the watermark is off");
        }
        old = Some(part);
    }
    core.SYST.disable_counter();
    // Nothing that the interrupt had is left, nor anything of main: the last round was of either.
    QUIET.store(true, Ordering::Relaxed);
    SCB::set_pendst();
    cortex_m::asm::isb();
    drop(leases);
    let part = WINDOW.assign(0);
    assert!(part.watermark().is_ok_and(|next| next.get() == 0));
    assert!(WINDOW.count() == 0 && WINDOW.bytes() == 0 && WINDOW.span() == 0);
    let (all, dropped) = (put + offered, DROPPED.load(Ordering::Relaxed));
    assert!(dropped == all, "{dropped} of {all} messages dropped: an update was lost");
    assert!(stale > 0, "no lease outlived its assignment");
    host::line(format_args!(
        "far: {ROUNDS} assignments, {} positions each, {put} messages, {stale} leases outlived, \
         {} calls of the interrupt: ok",
        STEP,
        OF_INTERRUPT.load(Ordering::Relaxed),
    ));
    host::exit(0)
}
