//! What calls cost: instructions, and sections with interrupts off, each.
//!
//! In QEMU with `-icount shift=0` an instruction takes a nanosecond, so the system timer counts
//! instructions, some at a time; a loop of known length says how many. Not cycles of a real chip:
//! loads from flash and exclusive stores take more than one there.
#![no_std]
#![no_main]

#[cfg(not(target_arch = "arm"))]
compile_error!("the system timer is Cortex-M's");

use core::hint::black_box;

use cortex_m::peripheral::SYST;
use cortex_m::peripheral::syst::SystClkSource;
use cortex_m_rt::entry;
use inflight::{Assignment, RingWindow, Window};
use inflight_firmware::host;

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    host::fail(info)
}

static WINDOW: RingWindow<[u8; 16], 64> = RingWindow::new();

type Part = Assignment<&'static RingWindow<[u8; 16], 64>>;

const TOP: u32 = 0xff_ffff;

fn entered() -> u32 {
    #[cfg(target_has_atomic = "ptr")]
    return 0;
    #[cfg(not(target_has_atomic = "ptr"))]
    inflight_firmware::section::entered()
}

/// Ticks and critical sections that `work` takes.
fn measure(work: impl FnOnce()) -> (u32, u32) {
    let sections = entered();
    let before = SYST::get_current();
    work();
    let after = SYST::get_current();
    (before.wrapping_sub(after) & TOP, entered().wrapping_sub(sections))
}

/// Three instructions a round on both cores: subtract, compare-and-branch, as written.
fn rounds(n: u32) {
    // SAFETY: counts its own register down to zero.
    unsafe {
        core::arch::asm!("2: subs {n}, {n}, #1", "nop", "bne 2b", n = inout(reg) n => _);
    }
}

const N: u64 = 32;
const REPEATS: u64 = 64;

struct Table {
    part: Part,
    at: u64,
    /// Instructions in 1,000 ticks.
    scale: u32,
}

impl Table {
    /// Measures `work` for N messages at a time, which `before` prepares and `after` cleans up.
    fn row(
        &mut self,
        name: &str,
        before: impl Fn(&Part, u64),
        work: impl Fn(&Part, u64),
        after: impl Fn(&Part, u64),
    ) {
        let (mut ticks, mut sections) = (0, 0);
        for _ in 0..REPEATS {
            before(&self.part, self.at);
            let (some, entered) = measure(|| work(black_box(&self.part), self.at));
            ticks += some;
            sections += entered;
            after(&self.part, self.at);
            assert!(WINDOW.is_empty(), "{name} left something");
            self.at += N;
        }
        let calls = N * REPEATS;
        let instructions = u64::from(ticks) * u64::from(self.scale) / 1000;
        host::line(format_args!(
            "cost: {name:<44} {:>5} instructions {:>3}.{} sections",
            instructions / calls,
            u64::from(sections) / calls,
            u64::from(sections) * 10 / calls % 10,
        ));
    }
}

fn put(part: &Part, at: u64) {
    for offset in at..at + N {
        assert!(part.put(offset, black_box([1; 16])).is_ok());
    }
}

fn put_batch(part: &Part, at: u64) {
    let done = part.put_batch(&mut (at..at + N).map(|offset| (offset, black_box([1; 16]))));
    assert!(done.is_ok());
}

fn finish(part: &Part, at: u64) {
    for offset in at..at + N {
        assert!(part.remove(offset).is_ok());
    }
}

fn take_commit(part: &Part, n: usize) {
    while let Ok(lease) = part.take(n) {
        black_box(&lease);
        assert!(lease.commit().is_ok());
    }
}

#[entry]
fn main() -> ! {
    let mut core = cortex_m::Peripherals::take().expect("main runs once");
    core.SYST.set_clock_source(SystClkSource::Core);
    core.SYST.set_reload(TOP);
    core.SYST.clear_current();
    core.SYST.enable_counter();

    let (ticks, _) = measure(|| rounds(1_000_000));
    let scale = 3_000_000_000u64 / u64::from(ticks);
    let mut table = Table { part: WINDOW.assign(0), at: 0, scale: scale as u32 };
    let nothing = |_: &Part, _: u64| {};

    table.row("put, one by one", nothing, put, finish);
    table.row("put, a batch of 32, each", nothing, put_batch, finish);
    table.row("remove, in order", put, finish, nothing);
    table.row(
        "remove, in reverse",
        put,
        |part, at| (at..at + N).rev().for_each(|offset| assert!(part.remove(offset).is_ok())),
        nothing,
    );
    table.row(
        "remove, a batch of 32, each",
        put,
        |part, at| assert!(part.remove_batch(at..at + N).is_ok()),
        nothing,
    );
    // One dry take each: a 32nd, or all of it, of what is shown below.
    table.row("take 1 + commit", put, |part, _| take_commit(part, 1), nothing);
    table.row("take 32 + commit, each", put, |part, _| take_commit(part, 32), nothing);
    table.row(
        "take 8 shared + detach, each",
        put,
        |part, _| while part.take_shared_in::<8>(8).map(|lease| lease.detach()).is_ok() {},
        finish,
    );
    table.row(
        "take that finds nothing",
        nothing,
        |part, _| (0..N).for_each(|_| assert!(part.take(1).is_err())),
        nothing,
    );
    table.row(
        "revoke + roll back",
        |part, at| {
            put(part, at);
            assert!(part.take(32).map(|lease| lease.detach()).is_ok());
        },
        |part, at| {
            for offset in at..at + N {
                assert!(part.at(9).revoke(offset).is_ok_and(|lease| lease.rollback().is_ok()));
            }
        },
        finish,
    );
    table.row(
        "watermark",
        nothing,
        |part, _| {
            (0..N).for_each(|_| {
                black_box(part.watermark().is_ok());
            });
        },
        nothing,
    );
    host::exit(0)
}
