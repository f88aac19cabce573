//! Turns 32-bit words on for this package alone, so that plain `cargo test` runs the tests on them too.

fn main() {
    println!("cargo:rustc-cfg=inflight_word32");
    println!("cargo:rerun-if-changed=build.rs");
}
