//! The link as tasks: an interrupt puts frames into the window and, by that, wakes the task that
//! takes them; another task turns the receiver on again when there is room. With nothing to do the
//! core sleeps.
//!
//! The other side sends a burst and then waits until all of it is acknowledged. So every burst
//! ends with nobody left to make a noise: whoever sleeps over the first frame of the next one, or
//! over the room that a full window got back, sleeps for ever. And that frame comes at each
//! instruction in turn after the receiver was told that it may: also between the look for
//! something to do and the sleep.
//!
//! While the sender has nothing to do its timer is a watchdog, so that sleep for ever ends the run.
//!
//! main and its tasks < PendSV (acknowledgements) < SysTick (receiver).
#![no_std]
#![no_main]

#[cfg(not(target_arch = "arm"))]
compile_error!("the tasks run on Cortex-M; `two_cores` is for RISC-V");

use core::cell::RefCell;
use core::future::poll_fn;
use core::pin::pin;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use core::task::Poll;

use cortex_m::interrupt::{self, Mutex};
use cortex_m::peripheral::scb::SystemHandler;
use cortex_m::peripheral::{SCB, SYST};
use cortex_m_rt::{entry, exception};
use inflight::{Assignment, PutErrorKind, RingWindow, WaitError, Window};
use inflight_firmware::air::{Air, Heard};
use inflight_firmware::frame::{Frame, Random, bump};
use inflight_firmware::{executor, host, timer};

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    host::fail(info)
}

const SLOTS: usize = 16;
/// Bursts. One of a single frame, after another, comes an instruction later than the last such.
const BURSTS: u32 = 4000;
/// More instructions than a task takes to go to sleep.
const SPAN: u32 = 4096;
/// One burst in so many is long: more than the window holds.
const LONG: u32 = 8;
const START: u64 = (1 << 32) - 700;

/// Positions begin four laps before 2^32.
static WINDOW: RingWindow<Frame, SLOTS> =
    RingWindow::starting_at((1 << 32) / SLOTS as u64 - 4, false);

type Part = Assignment<&'static RingWindow<Frame, SLOTS>>;

/// The assignment, from before the first interrupt on.
static LINK: Mutex<RefCell<Option<Part>>> = Mutex::new(RefCell::new(None));

fn part() -> Part {
    interrupt::free(|section| *LINK.borrow(section).borrow()).expect("assigned before")
}

/// The other side's sender.
struct Sender {
    /// The next frame, and the end of the burst, counted from `START`.
    next: u32,
    until: u32,
    bursts: u32,
    steps: u32,
    /// The window was full: it waits until the receiver is on again.
    off: bool,
    full: u32,
    /// The timer will send, or acknowledge. If not it is the watchdog.
    armed: bool,
    random: Random,
}

static SENDER: Mutex<RefCell<Sender>> = Mutex::new(RefCell::new(Sender {
    next: 0,
    until: 0,
    bursts: 0,
    steps: 0,
    off: false,
    full: 0,
    armed: false,
    random: Random(0x1234_5677),
}));

/// Ticks of the timer in `SPAN` instructions.
static TICKS: AtomicU32 = AtomicU32::new(0);
/// Everything is finished.
static OVER: AtomicBool = AtomicBool::new(false);

static AIR: Air = Air::new();
/// Acknowledged; written by PendSV alone.
static HEARD: AtomicU32 = AtomicU32::new(0);

static EVENTS: AtomicU32 = AtomicU32::new(0);
static OF_INTERRUPTS: AtomicU32 = AtomicU32::new(0);

/// The place of the task that turns the receiver on, among those that the executor is given.
const RECEIVER: usize = 1;

fn sender<T>(with: impl FnOnce(&mut Sender) -> T) -> T {
    interrupt::free(|section| with(&mut SENDER.borrow(section).borrow_mut()))
}

impl Sender {
    /// The timer fires once, after so many ticks.
    fn arm(&mut self, ticks: u32) {
        self.armed = true;
        self.set(ticks);
    }

    /// The other parties go on without the timer, for a long way less than it can count; if it
    /// fires all the same, they sleep.
    fn watch(&mut self) {
        self.armed = false;
        self.set(0xff_ffff);
    }

    fn set(&mut self, ticks: u32) {
        // SAFETY: interrupts are off, and only this sets the timer.
        unsafe {
            (*SYST::PTR).csr.write(0b100);
        }
        // It repeats: a second time, perhaps, before the interrupt of the first has come to this.
        SCB::clear_pendst();
        // SAFETY: as above.
        unsafe {
            (*SYST::PTR).rvr.write(ticks);
            (*SYST::PTR).cvr.write(0);
            (*SYST::PTR).csr.write(0b111);
        }
    }

    fn arm_at_random(&mut self) {
        let ticks = TICKS.load(Ordering::Relaxed);
        let ticks = 1 + self.random.next(ticks);
        self.arm(ticks);
    }

    /// The timer fires one instruction later after this than it did the last time. (It counts in
    /// ticks of several: so it is set to the same, and what is too much passes here.)
    fn arm_one_later(&mut self) {
        self.arm(TICKS.load(Ordering::Relaxed));
        self.steps += 1;
        timer::pass(SPAN.saturating_sub(self.steps));
    }

    /// The next burst, if this was all of the last one.
    fn acknowledged(&mut self, watermark: u64) {
        if watermark != START + u64::from(self.until) || self.bursts == BURSTS {
            return;
        }
        let after_single = !self.bursts.is_multiple_of(LONG);
        self.bursts += 1;
        if self.bursts.is_multiple_of(LONG) {
            self.until += 2 + self.random.next(3 * SLOTS as u32);
            self.arm_at_random();
        } else {
            self.until += 1;
            if after_single {
                // Begun by the task that finished it, which then goes to sleep.
                self.arm_one_later();
            } else {
                self.arm_at_random();
            }
        }
    }

    fn is_last(&self) -> bool {
        self.bursts == BURSTS && self.next == self.until
    }

    /// Sends the next few frames of the burst.
    fn send(&mut self, part: &Part) {
        for _ in 0..1 + self.random.next(6) {
            if self.next == self.until || self.off {
                return;
            }
            let offset = START + u64::from(self.next);
            match part.put_sized(offset, 16, Frame::new(offset)) {
                Ok(_) => self.next += 1,
                Err(refused) => {
                    assert!(refused.kind() == PutErrorKind::Full, "{:?}", refused.kind());
                    self.off = true;
                    self.full += 1;
                    executor::wake(RECEIVER);
                }
            }
            if self.is_last() {
                assert!(part.close() == Ok(true), "closed by somebody else");
            }
        }
    }
}

#[exception]
fn SysTick() {
    bump(&EVENTS);
    OF_INTERRUPTS.store(OF_INTERRUPTS.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    let part = part();
    sender(|sender| {
        assert!(sender.armed, "a wake-up was slept over");
        sender.watch();
        sender.send(&part);
        let in_the_air = AIR.sent() != HEARD.load(Ordering::Relaxed);
        if in_the_air {
            SCB::set_pendsv();
        }
        if in_the_air || (!sender.off && sender.next < sender.until) {
            sender.arm_at_random();
        }
    });
}

#[exception]
fn PendSV() {
    static mut RANDOM: Random = Random(0x7654_3211);
    static mut WAITING: Heard<SLOTS> = Heard::new();
    bump(&EVENTS);
    // Counted with the receiver off: it interrupts this, and counts in the same word.
    interrupt::free(|_| {
        OF_INTERRUPTS.store(OF_INTERRUPTS.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    });
    let part = part();
    WAITING.listen(&AIR);
    for _ in 0..RANDOM.next(4) {
        let Some(index) = WAITING.pick(RANDOM) else { return };
        match part.remove(START + u64::from(index)) {
            Ok(watermark) => {
                HEARD.store(HEARD.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                sender(|sender| sender.acknowledged(watermark.get()));
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// What the task that takes has counted.
#[derive(Default)]
struct Forwarded {
    leases: u32,
    frames: u32,
    sum: u32,
    detached: u32,
    given_back: u32,
    events: u32,
}

/// Takes what is there and finishes it: at once, or when the acknowledgement comes.
async fn forward(part: Part) -> Forwarded {
    let mut random = Random(0x2468_ace1);
    let mut done = Forwarded::default();
    loop {
        let lease = match part.take_async(6).await {
            Ok(lease) => lease,
            Err(WaitError::Closed) => break,
            Err(error) => panic!("{error}"),
        };
        done.leases += 1;
        // Often, so that an interrupt that comes between its load and its store is not rare.
        for _ in 0..16 {
            bump(&EVENTS);
            done.events += 1;
        }
        let first = START + u64::from(done.frames);
        for (offset, frame) in (first..).zip(&lease) {
            assert!(frame.0 == offset, "frame {} taken, not {offset}", frame.0);
            assert!(frame.1.is_of(offset), "frame {offset} is torn");
        }
        let single = sender(|sender| !sender.bursts.is_multiple_of(LONG));
        if !single && random.next(8) == 0 {
            // Given back: the next take begins with the same frame.
            done.given_back += lease.len() as u32;
            continue;
        }
        let until = done.frames + lease.len() as u32;
        for (_, frame) in &lease {
            done.sum = done.sum.wrapping_add(frame.load());
        }
        if single || random.next(2) == 0 {
            let watermark = lease.commit().expect("in force").next.get();
            done.frames = until;
            sender(|sender| sender.acknowledged(watermark));
        } else {
            lease.detach();
            for index in done.frames..until {
                assert!(AIR.send(index), "more in the air than the window holds");
            }
            done.detached += until - done.frames;
            done.frames = until;
            sender(|sender| {
                if !sender.armed {
                    sender.arm_at_random();
                }
            });
        }
    }
    OVER.store(true, Ordering::Relaxed);
    executor::wake(RECEIVER);
    done
}

/// Turns the receiver on again when there is room. How often.
async fn receiver(part: Part) -> u32 {
    let mut times = 0;
    let is_off = || match sender(|sender| sender.off) {
        true => Poll::Ready(true),
        false if OVER.load(Ordering::Relaxed) => Poll::Ready(false),
        false => Poll::Pending,
    };
    while poll_fn(|_| is_off()).await {
        match part.space_async().await {
            Ok(()) => {}
            Err(error) => panic!("{error}"),
        }
        times += 1;
        sender(|sender| {
            sender.off = false;
            if !sender.armed {
                sender.arm_at_random();
            }
        });
    }
    times
}

#[entry]
fn main() -> ! {
    let mut core = cortex_m::Peripherals::take().expect("main runs once");
    // SAFETY: no interrupt is on yet, so no handler's assumption about its rank is broken.
    unsafe {
        core.SCB.set_priority(SystemHandler::SysTick, 0x40);
        core.SCB.set_priority(SystemHandler::PendSV, 0x80);
    }
    TICKS.store(timer::ticks_of(&mut core.SYST, SPAN), Ordering::Relaxed);

    let part = WINDOW.assign(START);
    interrupt::free(|section| *LINK.borrow(section).borrow_mut() = Some(part));
    sender(|sender| sender.acknowledged(START));

    let (mut done, mut turned_on) = (Forwarded::default(), 0);
    let account = {
        let forward = pin!(async { done = forward(part).await });
        let receiver = pin!(async { turned_on = receiver(part).await });
        // The second is `RECEIVER`.
        executor::run(&mut [forward, receiver])
    };

    let frames = sender(|sender| sender.next);
    let sum = (0..frames)
        .fold(0u32, |sum, index| sum.wrapping_add(Frame::new(START + u64::from(index)).load()));
    assert!(done.frames == frames && done.sum == sum, "the sum differs");
    assert!(done.detached == HEARD.load(Ordering::Relaxed), "an acknowledgement was lost");
    assert!(sender(|sender| sender.full) == turned_on, "the receiver was turned on for nothing");
    assert!(WINDOW.count() == 0 && WINDOW.bytes() == 0 && WINDOW.span() == 0);
    // A task is polled because something woke it: each burst, each return, each full window.
    let (polls, sleeps) = (account.polls, account.sleeps);
    assert!(polls <= 2 * (done.leases + 2 * turned_on + 2), "{polls} polls: busy");
    // Half of the time the next frame is there before it has come to that.
    assert!(2 * sleeps >= BURSTS, "{sleeps} sleeps: busy");
    let seen = OF_INTERRUPTS.load(Ordering::Relaxed) + done.events;
    let events = EVENTS.load(Ordering::Relaxed);
    assert!(events == seen, "{events} events counted of {seen}: an update was lost");
    host::line(format_args!(
        "tasks: {frames} frames in {BURSTS} bursts, {} detached, {} given back, {turned_on} times \
         full, {polls} polls, {sleeps} sleeps, {events} events: ok",
        done.detached, done.given_back,
    ));
    host::exit(0)
}
