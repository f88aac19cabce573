//! Any run of calls on a ring: see `calls.rs`.
#![no_main]

mod calls;
#[path = "../../tests/common/mod.rs"]
mod common;

libfuzzer_sys::fuzz_target!(|input: &[u8]| calls::calls::<common::RingKind>(input));
