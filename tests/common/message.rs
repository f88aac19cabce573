//! Messages that are counted, and that panic when told to.

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// The payload of a panic made by a test, so that no other panic is taken for it.
#[derive(Debug)]
pub struct Injected;

/// Panics without a report on the error output.
pub fn injected() -> ! {
    resume_unwind(Box::new(Injected))
}

const NONE: u64 = u64::MAX;

/// Which messages are alive, clones included.
#[derive(Debug)]
pub struct Ledger {
    live: Mutex<BTreeMap<u64, usize>>,
    /// The next drop of this message panics.
    drop_fault: AtomicU64,
    /// The next clone of this message panics.
    clone_fault: AtomicU64,
}

impl Ledger {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            live: Mutex::default(),
            drop_fault: AtomicU64::new(NONE),
            clone_fault: AtomicU64::new(NONE),
        })
    }

    pub fn message(self: &Arc<Self>, id: u64) -> Message {
        *self.live.lock().unwrap().entry(id).or_default() += 1;
        Message { id, ledger: Arc::clone(self) }
    }

    /// How many of each message are alive.
    pub fn live(&self) -> BTreeMap<u64, usize> {
        self.live.lock().unwrap().clone()
    }

    pub fn total(&self) -> usize {
        self.live.lock().unwrap().values().sum()
    }

    pub fn fail_drop(&self, id: Option<u64>) {
        self.drop_fault.store(id.unwrap_or(NONE), Ordering::Relaxed);
    }

    pub fn fail_clone(&self, id: Option<u64>) {
        self.clone_fault.store(id.unwrap_or(NONE), Ordering::Relaxed);
    }
}

fn strikes(fault: &AtomicU64, id: u64) -> bool {
    let (acquire, relaxed) = (Ordering::Acquire, Ordering::Relaxed);
    !std::thread::panicking() && fault.compare_exchange(id, NONE, acquire, relaxed).is_ok()
}

/// A message known by number.
#[derive(Debug)]
pub struct Message {
    pub id: u64,
    ledger: Arc<Ledger>,
}

impl Clone for Message {
    fn clone(&self) -> Self {
        if strikes(&self.ledger.clone_fault, self.id) {
            injected();
        }
        self.ledger.message(self.id)
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        {
            let mut live = self.ledger.live.lock().unwrap();
            let count = live.get_mut(&self.id).expect("dropped twice");
            *count -= 1;
            if *count == 0 {
                live.remove(&self.id);
            }
        }
        if strikes(&self.ledger.drop_fault, self.id) {
            injected();
        }
    }
}
