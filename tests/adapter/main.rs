//! The adapter, from outside: flow control, retries, stopping, stores. Threads and files are real;
//! what is asserted never depends on how fast anything was.
#![cfg(all(feature = "std", not(miri)))]

mod budget;
mod failing;
mod flow;
mod keeper;
mod order;
mod random;
mod retry;
mod sim;
mod start;
mod stop;
mod store;
mod support;
