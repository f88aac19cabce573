//! Lines to the host and an exit status: semihosting on Arm, devices of the `virt` board on RISC-V.

use core::fmt::{self, Write};

struct Host;

#[cfg(target_arch = "arm")]
mod imp {
    use core::arch::asm;

    /// One semihosting call.
    fn call(operation: u32, argument: *const u32) {
        // SAFETY: the calls used here read what `argument` points to and change only r0.
        unsafe {
            asm!("bkpt #0xab", inout("r0") operation => _, in("r1") argument, options(nostack));
        }
    }

    pub fn write(byte: u8) {
        let word = u32::from(byte);
        call(0x03, &word); // SYS_WRITEC
    }

    pub fn exit(code: u32) {
        let block = [0x20026, code]; // ADP_Stopped_ApplicationExit
        call(0x20, block.as_ptr()); // SYS_EXIT_EXTENDED
    }
}

#[cfg(target_arch = "riscv32")]
mod imp {
    const SERIAL: *mut u8 = 0x1000_0000 as *mut u8;
    const TEST: *mut u32 = 0x0010_0000 as *mut u32;

    pub fn write(byte: u8) {
        // SAFETY: the transmit register of the board's serial port; QEMU's is always ready.
        unsafe { SERIAL.write_volatile(byte) };
    }

    pub fn exit(code: u32) {
        let word = if code == 0 { 0x5555 } else { code << 16 | 0x3333 };
        // SAFETY: the register by which the board's test device ends the emulation.
        unsafe { TEST.write_volatile(word) };
    }
}

impl Write for Host {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.bytes().for_each(imp::write);
        Ok(())
    }
}

/// Sleeps for some ten microseconds. For a core that waits for the other: where the host runs the
/// two in turns, it gives its turn away.
#[cfg(target_arch = "riscv32")]
pub fn pause() {
    const TIME: *const u32 = 0x0200_bff8 as *const u32;
    const COMPARE: *mut u32 = 0x0200_4000 as *mut u32;
    // SAFETY: this core's own pair of registers of the board's timer, ten ticks a microsecond.
    // With interrupts off altogether, the timer's only ends the sleep.
    unsafe {
        let core: usize;
        core::arch::asm!("csrr {}, mhartid", out(reg) core);
        let compare = COMPARE.add(2 * core);
        let (high, low) = (TIME.add(1).read_volatile(), TIME.read_volatile());
        // If the low word has wrapped in between, or does here, the time has passed already.
        let until = (u64::from(high) << 32 | u64::from(low)) + 100;
        compare.add(1).write_volatile((until >> 32) as u32);
        compare.write_volatile(until as u32);
        core::arch::asm!("csrs mie, {}", "wfi", in(reg) 1 << 7);
    }
}

/// Prints a line.
pub fn line(text: fmt::Arguments<'_>) {
    let _ = writeln!(Host, "{text}");
}

/// Ends the run.
pub fn exit(code: u32) -> ! {
    imp::exit(code);
    loop {
        core::hint::spin_loop();
    }
}

/// Ends the run by a panic's message.
pub fn fail(info: &core::panic::PanicInfo<'_>) -> ! {
    line(format_args!("FAILED: {info}"));
    exit(1)
}
