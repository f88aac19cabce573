//! The system timer, which counts in ticks of as many instructions as the board likes.

use cortex_m::peripheral::SYST;
use cortex_m::peripheral::syst::SystClkSource;

/// Starts the timer, without its interrupt, and says how many ticks about so many instructions
/// take; at least one.
pub fn ticks_of(timer: &mut SYST, instructions: u32) -> u32 {
    timer.set_clock_source(SystClkSource::Core);
    timer.set_reload(0xff_ffff);
    timer.clear_current();
    timer.enable_counter();
    let before = SYST::get_current();
    pass(instructions);
    (before.wrapping_sub(SYST::get_current()) & 0xff_ffff).max(1)
}

/// Lets so many instructions pass, and a few that are always the same.
pub fn pass(instructions: u32) {
    // Two a round, and one more for an odd number: the branch goes over one instruction, or two.
    // SAFETY: counts its own register down to zero, then goes to one of the two places after it.
    unsafe {
        core::arch::asm!(
            "2: subs {rounds}, {rounds}, #1",
            "bne 2b",
            "add pc, {even}",
            "nop",
            "nop",
            rounds = inout(reg) instructions / 2 + 1 => _,
            even = in(reg) (!instructions & 1) * 2,
        );
    }
}
