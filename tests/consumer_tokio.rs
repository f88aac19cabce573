//! The consumer with workers that are futures, on tokio.
#![cfg(all(feature = "std", not(miri)))]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use inflight::consumer::{
    Backoff, Batch, Builder, Consumer, Fetched, MemoryStore, Ordered, Outcome, OwnedBatch,
    Partition, PullRequest, Pulled, Source, SourceError, StartError, Verdict,
};
use tokio::sync::Semaphore;

const FOREVER: Duration = Duration::from_secs(30);

/// Logs of numbers.
struct Logs(Vec<u64>);

impl Source for Logs {
    type Message = u64;

    fn partitions(&self) -> Result<Vec<Partition>, SourceError> {
        Ok((0..self.0.len()).map(|id| Partition::new(id, format!("p{id}"))).collect())
    }

    fn pull(&self, of: &Partition, request: &PullRequest) -> Result<Pulled<u64>, SourceError> {
        let next = self.0[of.id()].min(request.from + request.messages as u64);
        if next <= request.from {
            return Ok(Pulled::NothingNew);
        }
        let messages = (request.from..next).map(|n| Fetched::new(n, 1, n)).collect();
        Ok(Pulled::Found { messages, next })
    }
}

fn builder(lengths: &[u64]) -> Builder<Logs> {
    Consumer::builder(Logs(lengths.to_vec()), MemoryStore::default())
        .backoff(Backoff::new(Duration::ZERO, Duration::ZERO))
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap()
}

#[test]
fn many_handlers_wait_on_few_threads() {
    let runtime = runtime();
    let (waiting, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let gate = Arc::new(Semaphore::new(0));
    let (now, highest, pass) = (Arc::clone(&waiting), Arc::clone(&most), Arc::clone(&gate));
    let (consumer, workers) = builder(&[500, 500])
        .workers(64)
        .concurrent_async(move |_: OwnedBatch<u64>| {
            let (now, highest, pass) = (now.clone(), highest.clone(), pass.clone());
            async move {
                highest.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                if now.load(Ordering::SeqCst) == 64 {
                    // All of them are waiting at once.
                    pass.add_permits(1_000_000);
                }
                pass.acquire().await.unwrap().forget();
                now.fetch_sub(1, Ordering::SeqCst);
                Outcome::Done
            }
        })
        .start_tasks()
        .unwrap();
    assert_eq!(workers.len(), 64);
    let tasks: Vec<_> = workers.into_iter().map(|worker| runtime.spawn(worker)).collect();
    assert!(consumer.wait_caught_up(FOREVER));
    assert_eq!(most.load(Ordering::SeqCst), 64);
    let progress = consumer.progress();
    assert!(progress.partitions.iter().all(|part| (part.finished, part.watermark) == (500, 500)));
    assert_eq!(consumer.shutdown(FOREVER).unwrap().left(), 0);
    // The workers end with it.
    for task in tasks {
        runtime.block_on(task).unwrap();
    }
}

#[test]
fn failures_and_panics_of_futures_are_retried() {
    let runtime = runtime();
    let (consumer, workers) = builder(&[300])
        .workers(5)
        .batch(4)
        .concurrent_async(|batch: OwnedBatch<u64>| {
            // A panic before there is a future ...
            assert!(batch.messages().iter().all(|m| m.offset % 50 != 7 || m.attempts > 1));
            async move {
                tokio::task::yield_now().await;
                let messages = batch.into_messages();
                // ... and in it.
                assert!(messages.iter().all(|m| m.offset % 50 != 9 || m.attempts > 1));
                let verdict = |failed| if failed { Verdict::Retry } else { Verdict::Done };
                let fails = messages.iter().map(|m| m.offset % 3 == 0 && m.attempts < 4);
                Outcome::Each(fails.map(verdict).collect())
            }
        })
        .start_tasks()
        .unwrap();
    workers.into_iter().for_each(|worker| drop(runtime.spawn(worker)));
    assert!(consumer.wait_caught_up(FOREVER));
    let progress = &consumer.progress().partitions[0];
    assert_eq!((progress.finished, progress.watermark, progress.count), (300, 300, 0));
    assert!(progress.panics >= 2);
    assert_eq!(consumer.shutdown(FOREVER).unwrap().left(), 0);
}

#[test]
fn futures_keep_the_order_of_keys() {
    let runtime = runtime();
    let last: Arc<Mutex<BTreeMap<u64, u64>>> = Arc::default();
    let disorder = Arc::new(AtomicU64::new(0));
    let (seen, counted) = (Arc::clone(&last), Arc::clone(&disorder));
    let (consumer, workers) = builder(&[3_000])
        .workers(16)
        .keyed_async(
            |value| value % 7,
            move |batch: OwnedBatch<u64>| {
                let (seen, counted) = (Arc::clone(&seen), Arc::clone(&counted));
                async move {
                    for message in batch.messages() {
                        tokio::task::yield_now().await;
                        let mut seen = seen.lock().unwrap();
                        let before = seen.insert(message.value % 7, message.offset + 1);
                        let ordered = before.unwrap_or(0) <= message.offset;
                        counted.fetch_add(u64::from(!ordered), Ordering::SeqCst);
                    }
                    Outcome::Done
                }
            },
        )
        .start_tasks()
        .unwrap();
    workers.into_iter().for_each(|worker| drop(runtime.spawn(worker)));
    assert!(consumer.wait_caught_up(FOREVER));
    assert_eq!(
        (disorder.load(Ordering::SeqCst), consumer.progress().partitions[0].finished),
        (0, 3_000)
    );
    consumer.shutdown(FOREVER).unwrap();
}

/// What each partition has to see next, and how often it saw something else.
#[derive(Default)]
struct InOrder {
    next: Mutex<BTreeMap<String, u64>>,
    disorder: AtomicU64,
}

impl InOrder {
    /// These are dealt with.
    fn saw(&self, batch: &OwnedBatch<u64>) {
        let mut next = self.next.lock().unwrap();
        let next = next.entry(batch.partition().to_owned()).or_default();
        for message in batch.messages() {
            self.disorder.fetch_add(u64::from(message.offset != *next), Ordering::SeqCst);
            *next = message.offset + 1;
        }
    }
}

#[test]
fn futures_keep_the_order_of_partitions() {
    let runtime = runtime();
    let (order, under_way) = (Arc::new(InOrder::default()), Arc::new(Mutex::new(BTreeMap::new())));
    let (seen, busy) = (Arc::clone(&order), Arc::clone(&under_way));
    let (consumer, workers) = builder(&[600, 300])
        .workers(6)
        .batch(4)
        .orderly_async(move |batch: OwnedBatch<u64>| {
            let (seen, busy) = (Arc::clone(&seen), Arc::clone(&busy));
            let name = batch.partition().to_owned();
            async move {
                let at_once = {
                    let mut busy = busy.lock().unwrap();
                    let at_once: &mut u32 = busy.entry(name.clone()).or_default();
                    *at_once += 1;
                    *at_once
                };
                assert_eq!(at_once, 1, "two batches of {name} at once");
                tokio::task::yield_now().await;
                *busy.lock().unwrap().get_mut(&name).unwrap() -= 1;
                let first = &batch.messages()[0];
                // In the future's panic, and in a suspension, the same comes again.
                assert!(first.offset % 100 != 40 || first.attempts > 1);
                if first.offset % 60 == 20 && first.attempts < 3 {
                    return Ordered::Suspend(Some(Duration::from_millis(10)));
                }
                seen.saw(&batch);
                Ordered::Success
            }
        })
        .start_tasks()
        .unwrap();
    workers.into_iter().for_each(|worker| drop(runtime.spawn(worker)));
    assert!(consumer.wait_caught_up(FOREVER));
    assert_eq!(order.disorder.load(Ordering::SeqCst), 0);
    let finished: Vec<_> = consumer.progress().partitions.iter().map(|one| one.finished).collect();
    assert_eq!(finished, [600, 300]);
    assert!(consumer.progress().partitions[0].panics > 0);
    assert_eq!(consumer.shutdown(FOREVER).unwrap().left(), 0);
}

#[test]
fn futures_deal_with_numbered_batches() {
    let runtime = runtime();
    let tally: Arc<Mutex<BTreeMap<u64, u32>>> = Arc::default();
    let counted = Arc::clone(&tally);
    let (consumer, workers) = builder(&[1_000])
        .workers(5)
        .batch(7)
        .batched_async(move |part: OwnedBatch<u64>| {
            let counted = Arc::clone(&counted);
            async move {
                tokio::task::yield_now().await;
                let messages = part.into_messages();
                assert!(messages.iter().all(|one| one.offset % 97 != 5 || one.attempts > 1));
                if messages.iter().any(|one| one.offset % 101 == 0 && one.attempts < 3) {
                    return Outcome::Retry;
                }
                for message in &messages {
                    *counted.lock().unwrap().entry(message.offset).or_default() += 1;
                }
                Outcome::Done
            }
        })
        .start_tasks()
        .unwrap();
    workers.into_iter().for_each(|worker| drop(runtime.spawn(worker)));
    assert!(consumer.wait_caught_up(FOREVER));
    assert!(tally.lock().unwrap().values().all(|times| *times == 1));
    assert_eq!(tally.lock().unwrap().len(), 1_000);
    let progress = &consumer.progress().partitions[0];
    assert_eq!((progress.finished, progress.watermark), (1_000, 1_000));
    assert_eq!(consumer.shutdown(FOREVER).unwrap().left(), 0);
}

/// The first worker hangs in its first batch, and is dropped; the second goes on.
fn dropped_in_the_middle(builder: Builder<Logs>, hung: &AtomicUsize, length: u64) {
    let runtime = runtime();
    let (consumer, mut workers) = builder.start_tasks().unwrap();
    let second = workers.pop().unwrap();
    let first = runtime.spawn(workers.pop().unwrap());
    while hung.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    assert_eq!(consumer.progress().partitions[0].watermark, 0);
    first.abort();
    assert!(runtime.block_on(first).unwrap_err().is_cancelled());
    drop(runtime.spawn(second));
    assert!(consumer.wait_caught_up(FOREVER));
    let progress = &consumer.progress().partitions[0];
    assert_eq!((progress.finished, progress.watermark), (length, length));
    assert_eq!(consumer.shutdown(FOREVER).unwrap().left(), 0);
}

#[test]
fn a_worker_that_is_dropped_leaves_its_partition_in_order() {
    let (order, hung) = (Arc::new(InOrder::default()), Arc::new(AtomicUsize::new(0)));
    let (seen, hangs) = (Arc::clone(&order), Arc::clone(&hung));
    let builder = builder(&[100]).workers(2).batch(3).orderly_async(move |batch| {
        let hang = hangs.fetch_add(1, Ordering::SeqCst) == 0;
        let seen = Arc::clone(&seen);
        async move {
            if hang {
                std::future::pending::<()>().await;
            }
            seen.saw(&batch);
            Ordered::Success
        }
    });
    dropped_in_the_middle(builder, &hung, 100);
    assert_eq!(order.disorder.load(Ordering::SeqCst), 0);
}

#[test]
fn a_worker_that_is_dropped_leaves_its_part_to_another() {
    let hung = Arc::new(AtomicUsize::new(0));
    let hangs = Arc::clone(&hung);
    let builder = builder(&[100]).workers(2).batch(3).batched_async(move |_| {
        let hang = hangs.fetch_add(1, Ordering::SeqCst) == 0;
        async move {
            if hang {
                std::future::pending::<()>().await;
            }
            Outcome::Done
        }
    });
    dropped_in_the_middle(builder, &hung, 100);
}

/// A task that is aborted gives back what its worker had, and passes its wake-up on.
#[test]
fn workers_that_are_dropped_lose_nothing() {
    let runtime = runtime();
    let hung = Arc::new(AtomicUsize::new(0));
    let hangs = Arc::clone(&hung);
    let (consumer, mut workers) = builder(&[200])
        .workers(6)
        .batch(3)
        .concurrent_async(move |batch: OwnedBatch<u64>| {
            let first = batch.messages()[0].attempts == 1;
            let hang = first && hangs.fetch_add(1, Ordering::SeqCst) < 5;
            async move {
                if hang {
                    std::future::pending::<()>().await;
                }
                Outcome::Done
            }
        })
        .start_tasks()
        .unwrap();
    let last = workers.pop().unwrap();
    let tasks: Vec<_> = workers.into_iter().map(|worker| runtime.spawn(worker)).collect();
    while hung.load(Ordering::SeqCst) < 5 {
        std::thread::yield_now();
    }
    // All five hang, each with a batch.
    assert_eq!(consumer.progress().partitions[0].watermark, 0);
    tasks.iter().for_each(|task| task.abort());
    for task in tasks {
        assert!(runtime.block_on(task).unwrap_err().is_cancelled());
    }
    drop(runtime.spawn(last));
    assert!(consumer.wait_caught_up(FOREVER));
    assert_eq!(consumer.progress().partitions[0].finished, 200);
    assert_eq!(consumer.shutdown(FOREVER).unwrap().left(), 0);
}

/// A handler that answers at once has threads, one that answers later has tasks.
#[test]
fn each_kind_of_handler_has_its_start() {
    let later = || builder(&[1]).concurrent_async(|_| async { Outcome::Done });
    let now = || builder(&[1]).concurrent(|_: &Batch<u64>| Outcome::Done);
    let setting = |error| match error {
        StartError::Invalid { setting, .. } => setting,
        other => panic!("{other}"),
    };
    assert_eq!(setting(later().start().unwrap_err()), "start");
    assert_eq!(setting(later().stepped().unwrap_err()), "stepped");
    assert_eq!(setting(now().start_tasks().err().unwrap()), "start_tasks");
    assert!(now().start().is_ok() && later().start_tasks().is_ok());
}
