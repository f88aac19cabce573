//! Any run of calls on a window, one after the other, against the reference model: what the
//! property tests do (`tests/common/script.rs`), with the numbers from the fuzzer.
//!
//! Not for interleavings: those are the models' (loom) and the stress tests'. What it finds is
//! an answer, a counter or a drop that is wrong after an unlikely history.

use crate::common::script::{Raw, run};
use crate::common::{Kind, VARIANTS};

/// The first bytes choose the window, the rest are calls, of four bytes each.
pub fn calls<K: Kind>(input: &[u8]) {
    let Some((&[kind, start], rest)) = input.split_first_chunk() else { return };
    let kind = usize::from(kind);
    let (variant, callers_seal, size) = (kind % 8 % VARIANTS, kind & 8 != 0, kind >> 4 & 3);
    let start = match start {
        0xff => u64::MAX - 300,
        0xfe => (1 << 32) - 40,
        start => u64::from(start),
    };
    // Short inputs are as good as long ones, and more of them are tried.
    let calls: Vec<Raw> = rest.as_chunks::<4>().0.iter().take(200).map(raw).collect();
    match size {
        0 => run::<K, 2>(variant, callers_seal, start, &calls),
        1 => run::<K, 4>(variant, callers_seal, start, &calls),
        2 => run::<K, 8>(variant, callers_seal, start, &calls),
        _ => run::<K, 64>(variant, callers_seal, start, &calls),
    }
}

/// The numbers of one call, spread out of its bytes: whatever bit the fuzzer changes, it is another
/// call, and a likely one.
fn raw(bytes: &[u8; 4]) -> Raw {
    let mut spread = u64::from(u32::from_le_bytes(*bytes));
    std::array::from_fn(|_| {
        spread = (spread ^ spread >> 31).wrapping_add(0x9e37_79b9_7f4a_7c15);
        spread = spread.wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (spread >> 40) as u16
    })
}
