//! Turns `cfg(loom)` on for this package alone, so that plain `cargo test` runs the models.

fn main() {
    println!("cargo:rustc-cfg=loom");
    println!("cargo:rerun-if-changed=build.rs");
}
