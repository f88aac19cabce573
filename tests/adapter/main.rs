//! The adapter, from outside: flow control, retries, stopping, stores. Threads and files are real;
//! what is asserted never depends on how fast anything was.
#![cfg(feature = "std")]

mod flow;
mod retry;
mod start;
mod stop;
mod store;
mod support;
