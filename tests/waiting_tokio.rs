//! Waiting under tokio: tasks on one thread and on several, given up at any point.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use inflight::{PutError, RingWindow, SkipWindow, WaitError, Window};
use tokio::time::timeout;

const MESSAGES: u64 = 20_000;

/// One task puts, four take; two of those give up by a time limit that is often over.
async fn tasks<W>(window: W)
where
    W: Window<Value = u64> + Send + Sync + 'static,
{
    let window = Arc::new(window);
    let part = window.assign_owned(0);
    let finished: Arc<Vec<AtomicUsize>> =
        Arc::new((0..MESSAGES).map(|_| AtomicUsize::new(0)).collect());
    let mut tasks = Vec::new();
    for taker in 0..4_u64 {
        let (part, finished) = (part.clone(), Arc::clone(&finished));
        tasks.push(tokio::spawn(async move {
            for turn in 0_u64.. {
                let take = part.take_shared_async(1 + (turn % 3) as usize);
                let got = if taker < 2 {
                    take.await
                } else {
                    match timeout(Duration::from_micros(turn % 3 * 20), take).await {
                        Ok(got) => got,
                        Err(_) => {
                            tokio::task::yield_now().await;
                            continue;
                        }
                    }
                };
                match got {
                    Ok(lease) if turn.is_multiple_of(5) => drop(lease),
                    Ok(lease) => lease.into_values().for_each(|(offset, value)| {
                        assert_eq!(offset, value);
                        finished[offset as usize].fetch_add(1, Ordering::SeqCst);
                    }),
                    Err(error) => {
                        assert_eq!(error, WaitError::Closed);
                        return;
                    }
                }
            }
        }));
    }
    let putter = part.clone();
    tasks.push(tokio::spawn(async move {
        for offset in 0..MESSAGES {
            while let Err(error) = putter.put(offset, offset) {
                assert_eq!(error, PutError::Full(offset));
                let _ = timeout(Duration::ZERO, putter.space_async()).await;
                putter.space_async().await.unwrap();
            }
            if offset.is_multiple_of(64) {
                tokio::task::yield_now().await;
            }
        }
        putter.close().unwrap();
    }));
    for task in tasks {
        timeout(Duration::from_secs(120), task).await.expect("a wake-up is lost").unwrap();
    }
    assert!(finished.iter().all(|times| times.load(Ordering::SeqCst) == 1));
    assert_eq!(part.watermark().unwrap().get(), MESSAGES);
}

#[tokio::test(flavor = "current_thread")]
async fn ring_on_one_thread() {
    tasks(RingWindow::<u64, 16>::new()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn ring_on_several_threads() {
    tasks(RingWindow::<u64, 16>::new()).await;
}

#[tokio::test(flavor = "current_thread")]
async fn skip_on_one_thread() {
    tasks(SkipWindow::<u64>::new()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn skip_on_several_threads() {
    tasks(SkipWindow::<u64>::new()).await;
}
