//! The numbers of a consumer, as a recorder of the `metrics` facade sees them.
#![cfg(not(miri))]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use inflight::consumer::{
    Batch, Consumer, Fetched, MemoryStore, Outcome, Partition, PullRequest, Pulled, Source,
    SourceError,
};
use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, Recorder, SharedString,
    Unit,
};

type Numbers = Arc<Mutex<BTreeMap<String, f64>>>;

struct Keeps {
    numbers: Numbers,
    described: Arc<Mutex<Vec<String>>>,
}

struct One(String, Numbers);

impl One {
    fn keep(&self, value: f64) {
        self.1.lock().unwrap().insert(self.0.clone(), value);
    }
}

impl CounterFn for One {
    fn increment(&self, _: u64) {
        unreachable!("counters are absolute");
    }

    fn absolute(&self, value: u64) {
        self.keep(value as f64);
    }
}

impl GaugeFn for One {
    fn increment(&self, _: f64) {
        unreachable!("gauges are set");
    }

    fn decrement(&self, _: f64) {
        unreachable!("gauges are set");
    }

    fn set(&self, value: f64) {
        self.keep(value);
    }
}

impl Keeps {
    fn one(&self, key: &Key) -> Arc<One> {
        let labels: Vec<_> = key.labels().map(|label| label.value().to_owned()).collect();
        Arc::new(One(format!("{} {}", key.name(), labels.join(" ")), Arc::clone(&self.numbers)))
    }

    fn describe(&self, name: KeyName) {
        self.described.lock().unwrap().push(name.as_str().to_owned());
    }
}

impl Recorder for Keeps {
    fn describe_counter(&self, key: KeyName, _: Option<Unit>, _: SharedString) {
        self.describe(key);
    }

    fn describe_gauge(&self, key: KeyName, _: Option<Unit>, _: SharedString) {
        self.describe(key);
    }

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.one(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.one(key))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

/// A log of ten numbers, of which there are twelve.
struct Ten;

impl Source for Ten {
    type Message = u64;

    fn partitions(&self) -> Result<Vec<Partition>, SourceError> {
        Ok(vec![Partition::new(0, "ten")])
    }

    fn pull(&self, _: &Partition, request: &PullRequest) -> Result<Pulled<u64>, SourceError> {
        let messages: Vec<_> = (request.from..10).map(|n| Fetched::new(n, 7, n)).collect();
        Ok(if messages.is_empty() {
            Pulled::NothingNew
        } else {
            Pulled::Found { messages, next: 10 }
        })
    }

    fn end(&self, _: &Partition) -> Option<u64> {
        Some(12)
    }
}

#[test]
fn every_publish_records_the_numbers_of_each_partition() {
    let numbers = Numbers::default();
    let described: Arc<Mutex<Vec<String>>> = Arc::default();
    let recorder = Keeps { numbers: Arc::clone(&numbers), described: Arc::clone(&described) };
    metrics::with_local_recorder(&recorder, || {
        let mut consumer = Consumer::builder(Ten, MemoryStore::default())
            .concurrent(|batch: &Batch<u64>| match batch.messages()[0].offset() {
                4 => Outcome::RetryAfter(Duration::from_secs(100)),
                _ => Outcome::Done,
            })
            .stepped()
            .unwrap();
        let pull = consumer.begin_pull("ten").unwrap();
        consumer.pull(pull);
        let pull = consumer.begin_pull("ten").unwrap();
        let hangs = consumer.begin_work().unwrap();
        while let Some(work) = consumer.begin_work() {
            work.run();
        }
        assert!(numbers.lock().unwrap().is_empty());
        consumer.advance(Duration::from_secs(5));
        while consumer.tick() {}
        let get = |name: &str| numbers.lock().unwrap().get(&format!("{name} ten")).copied();
        assert_eq!((get("inflight_watermark"), get("inflight_end")), (Some(0.0), Some(10.0)));
        assert_eq!((get("inflight_messages"), get("inflight_held")), (Some(2.0), Some(2.0)));
        assert_eq!((get("inflight_bytes"), get("inflight_backlog")), (Some(14.0), Some(2.0)));
        assert_eq!(get("inflight_finished_total"), Some(8.0));
        assert_eq!((get("inflight_retried_total"), get("inflight_locked")), (Some(1.0), Some(1.0)));
        assert_eq!(
            (get("inflight_head"), get("inflight_head_age_seconds")),
            (Some(0.0), Some(5.0))
        );
        hangs.run();
        consumer.advance(Duration::from_secs(5));
        while consumer.tick() {}
        // The head waits for its time: it is not old.
        assert_eq!((get("inflight_watermark"), get("inflight_published")), (Some(4.0), Some(4.0)));
        assert_eq!(
            (get("inflight_head"), get("inflight_head_age_seconds")),
            (Some(4.0), Some(0.0))
        );
        let store_errors = numbers.lock().unwrap().get("inflight_store_errors_total ").copied();
        assert_eq!(store_errors, Some(0.0));
        consumer.pull(pull);
    });
    // Whatever is recorded was described.
    let described = described.lock().unwrap();
    for name in numbers.lock().unwrap().keys() {
        let name = name.split(' ').next().unwrap();
        assert!(described.iter().any(|known| known == name), "{name}");
    }
}
