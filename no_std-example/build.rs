//! Puts the memory map of the chip where the linker finds it.

use std::path::PathBuf;
use std::{env, fs};

const LM3S6965: &str = "MEMORY {
    FLASH : ORIGIN = 0x00000000, LENGTH = 256K
    RAM   : ORIGIN = 0x20000000, LENGTH = 64K
}
";

const NRF51: &str = "MEMORY {
    FLASH : ORIGIN = 0x00000000, LENGTH = 256K
    RAM   : ORIGIN = 0x20000000, LENGTH = 16K
}
";

/// RAM of QEMU's `virt` board; 16 KiB of stack for each of two cores at its end.
const VIRT: &str = "ENTRY(_start)
MEMORY { RAM : ORIGIN = 0x80000000, LENGTH = 16M }
SECTIONS {
    .text : { KEEP(*(.init)) *(.text .text.*) } > RAM
    .rodata : { *(.rodata .rodata.* .srodata .srodata.*) } > RAM
    .data : ALIGN(16) { *(.data .data.* .sdata .sdata.*) } > RAM
    .bss : ALIGN(16) { *(.bss .bss.* .sbss .sbss.*) } > RAM
    _stack_top = ORIGIN(RAM) + LENGTH(RAM);
    /DISCARD/ : { *(.eh_frame*) }
}
";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let target = env::var("TARGET").expect("cargo sets it");
    let (map, script) = match target.as_str() {
        target if target.starts_with("thumbv6m") => (NRF51, "link.x"),
        target if target.starts_with("thumb") => (LM3S6965, "link.x"),
        _ => (VIRT, "memory.x"),
    };
    fs::write(out.join("memory.x"), map).expect("the folder is ours");
    println!("cargo:rustc-link-search={}", out.display());
    println!("cargo:rustc-link-arg-bins=-T{script}");
    println!("cargo:rustc-link-arg-bins=--nmagic");
}
