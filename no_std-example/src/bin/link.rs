//! A radio link. One interrupt receives frames and puts them into the window; main takes them,
//! sends them on and detaches; a second interrupt brings acknowledgements, in any order, and
//! removes by offset. Some get lost: frames held too long are revoked and sent again. The
//! watermark goes to a flash page, and in the middle the power fails: the link starts again from
//! what the page says. At the end every frame was received at the other side, whole, and few
//! twice.
//!
//! main < PendSV (acknowledgements) < SysTick (receiver): each may stop the one before at any
//! instruction. Offsets and positions begin shortly before 2^32 and pass it.
#![no_std]
#![no_main]

#[cfg(not(target_arch = "arm"))]
compile_error!("the link runs on Cortex-M; `two_cores` is for RISC-V");

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use cortex_m::peripheral::scb::SystemHandler;
use cortex_m::peripheral::{SCB, SYST};
use cortex_m_rt::{entry, exception};
use inflight::{Assignment, PutErrorKind, RemoveError, RingWindow, TakeError, Window};
use inflight_firmware::air::{Air, Heard};
use inflight_firmware::frame::{Frame, Random, bump};
use inflight_firmware::{host, timer};

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    host::fail(info)
}

const SLOTS: usize = 64;
const FRAMES: u32 = 2000;
const START: u64 = (1 << 32) - 700;
const END: u64 = START + FRAMES as u64;
/// A frame not acknowledged for so many ticks is sent again.
const LIMIT: u64 = 40;

/// Positions begin four laps before 2^32.
static WINDOW: RingWindow<Frame, SLOTS> =
    RingWindow::starting_at((1 << 32) / SLOTS as u64 - 4, false);

type Part = Assignment<&'static RingWindow<Frame, SLOTS>>;

/// The assignment in force. Main writes it with interrupts off.
struct Link(UnsafeCell<Option<Part>>);

// SAFETY: one core; written only with interrupts off, so no reader is ever half-way.
unsafe impl Sync for Link {}

static LINK: Link = Link(UnsafeCell::new(None));

impl Link {
    fn part(&self) -> Option<Part> {
        // SAFETY: main, the only writer, is not writing: an interrupt runs, or main itself reads.
        unsafe { *self.0.get() }
    }

    fn set(&self, part: Option<Part>) {
        cortex_m::interrupt::free(|_| {
            // SAFETY: interrupts are off and this is main: nobody is reading.
            unsafe { *self.0.get() = part };
        });
    }
}

/// The shortest period of SysTick: some two thousand instructions, so that main gets on whatever
/// an instruction takes.
static PERIOD: AtomicU32 = AtomicU32::new(0);
/// Ticks since the start, raised by SysTick.
static NOW: AtomicU32 = AtomicU32::new(0);
/// The next frame that the receiver puts, counted from `START`. Main sets it while it is off.
static NEXT: AtomicU32 = AtomicU32::new(0);
/// Events of all three parties; each also counts its own.
static EVENTS: AtomicU32 = AtomicU32::new(0);
static OF_INTERRUPTS: AtomicU32 = AtomicU32::new(0);

/// What reached the other side and is to be acknowledged.
static AIR: Air = Air::new();

/// How often each frame was acknowledged for the first time; written by PendSV alone.
static APPLIED: [AtomicU8; FRAMES as usize] = [const { AtomicU8::new(0) }; FRAMES as usize];

/// A page of flash: words go from all ones to a value once, until the page is erased.
struct Flash {
    page: [u32; 64],
    used: usize,
    erased: u32,
}

impl Flash {
    fn write(&mut self, value: u32) {
        if self.used == self.page.len() {
            // The last value survives an erase, as by a second page.
            self.page = [u32::MAX; 64];
            self.used = 0;
            self.erased += 1;
        }
        self.page[self.used] = value;
        self.used += 1;
    }

    fn read(&self) -> u32 {
        self.used.checked_sub(1).map_or(0, |last| self.page[last])
    }
}

#[exception]
fn SysTick() {
    static mut RANDOM: Random = Random(0x1234_5677);
    NOW.store(NOW.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    let period = PERIOD.load(Ordering::Relaxed);
    // SAFETY: the next period; the reload register is this handler's.
    unsafe { (*SYST::PTR).rvr.write(period + RANDOM.next(4 * period)) };
    let Some(part) = LINK.part() else { return };
    bump(&EVENTS);
    OF_INTERRUPTS.store(OF_INTERRUPTS.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    for _ in 0..RANDOM.next(4) {
        let next = NEXT.load(Ordering::Relaxed);
        if next == FRAMES {
            break;
        }
        let offset = START + u64::from(next);
        match part.put_sized(offset, 16, Frame::new(offset)) {
            Ok(_) => NEXT.store(next + 1, Ordering::Relaxed),
            // No room: the sender of frames repeats this one.
            Err(refused) => {
                assert!(refused.kind() == PutErrorKind::Full, "{:?}", refused.kind());
                break;
            }
        }
    }
    SCB::set_pendsv();
}

#[exception]
fn PendSV() {
    static mut RANDOM: Random = Random(0x7654_3211);
    static mut HEARD: Heard<8> = Heard::new();
    let Some(part) = LINK.part() else { return };
    bump(&EVENTS);
    // Counted with the receiver off: it interrupts this, and counts in the same word.
    cortex_m::interrupt::free(|_| {
        OF_INTERRUPTS.store(OF_INTERRUPTS.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    });
    HEARD.listen(&AIR);
    for _ in 0..RANDOM.next(4) {
        let Some(index) = HEARD.pick(RANDOM) else { return };
        match part.remove(START + u64::from(index)) {
            Ok(_) => {
                let times = &APPLIED[index as usize];
                times.store(times.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            }
            // Sent twice and acknowledged twice; or main is sending it again just now, and its
            // acknowledgement will come; or the power failed and it has not been put again.
            Err(RemoveError::Passed | RemoveError::Held | RemoveError::Unknown) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// The other side of the link, and what main counts.
struct Peer {
    received: [bool; FRAMES as usize],
    sum: u32,
    repeats: u32,
    lost: u32,
    random: Random,
}

impl Peer {
    /// Sends a frame. It arrives, or it gets lost, or its acknowledgement does.
    fn send(&mut self, offset: u64, frame: &Frame) {
        assert!(frame.is_of(offset), "frame {offset} is torn");
        if self.random.next(8) == 0 {
            self.lost += 1;
            return;
        }
        let index = (offset - START) as u32;
        let received = &mut self.received[index as usize];
        if *received {
            self.repeats += 1;
        } else {
            *received = true;
            self.sum = self.sum.wrapping_add(frame.load());
        }
        if self.random.next(8) == 0 || !AIR.send(index) {
            self.lost += 1;
        }
    }
}

#[entry]
fn main() -> ! {
    static mut PEER: Peer = Peer {
        received: [false; FRAMES as usize],
        sum: 0,
        repeats: 0,
        lost: 0,
        random: Random(0x2468_ace1),
    };
    static mut FLASH: Flash = Flash { page: [u32::MAX; 64], used: 0, erased: 0 };

    let mut core = cortex_m::Peripherals::take().expect("main runs once");
    // SAFETY: no interrupt is on yet, so no handler's assumption about its rank is broken.
    unsafe {
        core.SCB.set_priority(SystemHandler::SysTick, 0x40);
        core.SCB.set_priority(SystemHandler::PendSV, 0x80);
    }
    let period = timer::ticks_of(&mut core.SYST, 2000).clamp(20, 0x1f_ffff);
    PERIOD.store(period, Ordering::Relaxed);
    LINK.set(Some(WINDOW.assign(START)));
    core.SYST.set_reload(period);
    core.SYST.clear_current();
    core.SYST.enable_interrupt();

    let (mut of_main, mut revoked, mut power_failed) = (0, 0, false);
    let mut repeated_from_flash = 0;
    loop {
        // Often, so that an interrupt that comes between its load and its store is not rare.
        for _ in 0..64 {
            bump(&EVENTS);
            of_main += 1;
        }
        let part = LINK.part().expect("set above");
        let now = u64::from(NOW.load(Ordering::Relaxed));
        match part.at(now).take_shared_in::<8>(8) {
            Ok(lease) => {
                for (offset, frame) in &lease {
                    PEER.send(offset, frame);
                }
                lease.detach();
            }
            Err(TakeError::Empty) => {}
            Err(error) => panic!("{error}"),
        }
        for held in part.stalled(now, LIMIT).expect("in force") {
            // Acknowledged since, perhaps.
            let Ok(lease) = part.at(now).revoke(held.offset) else { continue };
            for (offset, frame) in &lease {
                PEER.send(offset, frame);
            }
            lease.detach();
            revoked += 1;
        }
        let watermark = part.watermark().expect("in force").get();
        let done = (watermark - START) as u32;
        assert!(done >= FLASH.read(), "the watermark went back");
        if done > FLASH.read() {
            FLASH.write(done);
        }
        if watermark == END {
            break;
        }
        if !power_failed && done > FRAMES / 2 {
            // All that was known is gone but the flash page. What the receiver delivers begins
            // there again; what was acknowledged above it comes a second time.
            power_failed = true;
            LINK.set(None);
            repeated_from_flash = NEXT.load(Ordering::Relaxed) - FLASH.read();
            NEXT.store(FLASH.read(), Ordering::Relaxed);
            LINK.set(Some(WINDOW.assign(START + u64::from(FLASH.read()))));
            assert!(part.watermark().is_err(), "the old assignment still answers");
            assert!(WINDOW.count() <= SLOTS);
        }
    }
    core.SYST.disable_counter();
    LINK.set(None);

    let mut sum = 0u32;
    let mut twice = 0;
    for index in 0..FRAMES {
        assert!(PEER.received[index as usize], "frame {index} never arrived");
        sum = sum.wrapping_add(Frame::new(START + u64::from(index)).load());
        let applied = APPLIED[index as usize].load(Ordering::Relaxed);
        assert!(applied == 1 || applied == 2, "frame {index} was finished {applied} times");
        twice += u32::from(applied == 2);
    }
    assert!(PEER.sum == sum, "the sum differs");
    // Only what had been put when the power failed can be finished twice, and repeats come from
    // sending again only.
    assert!(twice <= repeated_from_flash && repeated_from_flash <= SLOTS as u32);
    assert!(PEER.repeats <= revoked + repeated_from_flash);
    assert!(WINDOW.count() == 0 && WINDOW.bytes() == 0 && WINDOW.span() == 0);
    let seen = OF_INTERRUPTS.load(Ordering::Relaxed) + of_main;
    let events = EVENTS.load(Ordering::Relaxed);
    assert!(events == seen, "{events} events counted of {seen}: an update was lost");
    host::line(format_args!(
        "link: {FRAMES} frames, {} lost in the air, {revoked} sent again, {} repeats, {twice} \
         finished twice by the power failure, {} flash pages, {events} events: ok",
        PEER.lost,
        PEER.repeats,
        FLASH.erased + 1,
    ));
    host::exit(0)
}
