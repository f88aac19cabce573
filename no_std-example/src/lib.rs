//! What the firmware needs around the window: a line to the host, an exit status, an executor, and
//! a critical section where the chip has no compare-exchange.
#![no_std]

pub mod air;
#[cfg(target_arch = "arm")]
pub mod executor;
pub mod frame;
pub mod host;
#[cfg(target_arch = "arm")]
pub mod timer;

#[cfg(not(target_has_atomic = "ptr"))]
pub mod section {
    //! The critical section of a single core: interrupts off. It counts, for `cost`.

    use core::sync::atomic::{AtomicU32, Ordering};

    static ENTERED: AtomicU32 = AtomicU32::new(0);

    /// How many sections were entered so far.
    pub fn entered() -> u32 {
        ENTERED.load(Ordering::Relaxed)
    }

    struct SingleCore;
    critical_section::set_impl!(SingleCore);

    // SAFETY: with interrupts off nothing else runs on the only core.
    unsafe impl critical_section::Impl for SingleCore {
        unsafe fn acquire() -> bool {
            let were_on = cortex_m::register::primask::read().is_active();
            cortex_m::interrupt::disable();
            ENTERED.store(ENTERED.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
            were_on
        }

        unsafe fn release(were_on: bool) {
            if were_on {
                // SAFETY: they were on when this section was entered.
                unsafe { cortex_m::interrupt::enable() };
            }
        }
    }
}
