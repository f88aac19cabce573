//! `tests/cursor.rs`, with 32-bit words.

#[path = "../../tests/cursor.rs"]
mod cursor;
