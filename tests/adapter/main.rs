//! The adapter, from outside: flow control, retries, stopping, stores. Threads and files are real;
//! what is asserted never depends on how fast anything was.
#![cfg(all(feature = "std", not(miri)))]

mod flow;
mod retry;
mod start;
mod stop;
mod store;
mod support;
