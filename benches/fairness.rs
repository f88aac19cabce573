//! How long a message of one partition waits while another partition has a million waiting: the
//! table in `docs/performance.md`.
//!
//! ```text
//! cargo bench --bench fairness
//! ```
//!
//! Four workers, handlers of 1 ms. Messages come to the second partition one at a time, at their own
//! pace; measured is the time from the bell to the end of the handler.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use inflight::SkipWindow;
use inflight::consumer::{
    Batch, Consumer, Fetched, Limits, MemoryStore, News, Outcome, Partition, PullRequest, Pulled,
    Source, SourceError,
};

const WORKERS: usize = 4;
const HANDLER: Duration = Duration::from_millis(1);
const MESSAGES: u64 = 300;

/// Two logs of numbers: `backlog` in the first, one more at a time in the second.
struct Logs {
    backlog: u64,
    second: AtomicU64,
    news: Mutex<Option<News>>,
}

impl Source for Logs {
    type Message = u64;

    fn partitions(&self) -> Result<Vec<Partition>, SourceError> {
        Ok(vec![Partition::new(0, "first"), Partition::new(1, "second")])
    }

    fn pull(&self, of: &Partition, request: &PullRequest) -> Result<Pulled<u64>, SourceError> {
        let end = if of.id() == 0 { self.backlog } else { self.second.load(Ordering::SeqCst) };
        let next = end.min(request.from + request.messages as u64);
        if next <= request.from {
            return Ok(Pulled::NothingNew);
        }
        let messages = (request.from..next).map(|offset| Fetched::new(offset, 1, offset)).collect();
        Ok(Pulled::Found { messages, next })
    }

    fn subscribe(&self, news: News) -> bool {
        *self.news.lock().unwrap() = Some(news);
        true
    }
}

/// The latencies of the second partition's messages, ascending, in milliseconds.
fn measure(backlog: u64, batch: usize) -> Vec<f64> {
    let logs = Arc::new(Logs { backlog, second: AtomicU64::new(0), news: Mutex::default() });
    let (ended, ends) = mpsc::channel();
    let consumer = Consumer::builder(Arc::clone(&logs), MemoryStore::default())
        .workers(WORKERS)
        .batch(batch)
        .pull_batch(1024)
        .window(|_| Box::new(SkipWindow::new()))
        .limits(Limits::default().count(2_000_000).span(u64::MAX))
        .concurrent(move |batch: &Batch<u64>| {
            std::thread::sleep(HANDLER);
            if batch.partition() == "second" {
                let _ = ended.send(Instant::now());
            }
            Outcome::Done
        })
        .start()
        .unwrap();
    // All of it waits in the window.
    while consumer.progress().partitions[0].end < backlog {
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut waits = Vec::new();
    for _ in 0..MESSAGES {
        std::thread::sleep(Duration::from_millis(2));
        let begun = Instant::now();
        logs.second.fetch_add(1, Ordering::SeqCst);
        logs.news.lock().unwrap().as_ref().unwrap().came(1);
        waits.push((ends.recv().unwrap() - begun).as_secs_f64() * 1e3);
    }
    let waiting = consumer.progress().partitions[0].count;
    assert!(backlog == 0 || waiting > backlog as usize / 2, "the backlog was gone: {waiting}");
    drop(consumer);
    waits.sort_by(f64::total_cmp);
    waits
}

fn main() {
    println!("| waiting in the first partition | batch | median ms | 99 % ms | longest ms |");
    println!("|--:|--:|--:|--:|--:|");
    for (backlog, batch) in [(0, 1), (1_000_000, 1), (0, 32), (1_000_000, 32)] {
        let waits = measure(backlog, batch);
        let at = |part: f64| waits[(part * (waits.len() - 1) as f64) as usize];
        let (median, most, longest) = (at(0.5), at(0.99), at(1.0));
        println!("| {backlog} | {batch} | {median:.2} | {most:.2} | {longest:.2} |");
    }
}
