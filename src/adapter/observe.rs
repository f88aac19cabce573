//! The numbers of a consumer for the `metrics` facade, where the feature is on.

use metrics::{Unit, counter, describe_counter, describe_gauge, gauge};

use super::consumer::{PartitionProgress, Progress};

type Gauge = (&'static str, &'static str, fn(&PartitionProgress) -> Option<f64>);
type Counter = (&'static str, &'static str, fn(&PartitionProgress) -> u64);

const GAUGES: [Gauge; 12] = [
    ("inflight_watermark", "Everything below is finished", |p| Some(p.watermark as f64)),
    ("inflight_published", "The stored offset", |p| Some(p.published as f64)),
    ("inflight_end", "The highest offset admitted, plus one", |p| Some(p.end as f64)),
    ("inflight_span", "From the watermark to the end", |p| Some(p.span as f64)),
    ("inflight_messages", "Messages waiting and held", |p| Some(p.count as f64)),
    ("inflight_held", "Messages held", |p| Some(p.held as f64)),
    ("inflight_bytes", "Bytes of the messages waiting and held", |p| Some(p.bytes as f64)),
    ("inflight_backlog", "Offsets from the end to the log's", |p| Some(p.backlog? as f64)),
    ("inflight_head", "The offset that holds the watermark", |p| Some(p.head?.offset as f64)),
    ("inflight_suspended", "1 when it is suspended", |p| Some(f64::from(u8::from(p.suspended)))),
    ("inflight_locked", "1 when it may be consumed", |p| Some(f64::from(u8::from(p.locked)))),
    ("inflight_last_consume_seconds", "When a handler was called last, since the start", |p| {
        Some(p.last_consume?.as_secs_f64())
    }),
];

const COUNTERS: [Counter; 12] = [
    ("inflight_finished_total", "Messages finished", |p| p.finished),
    ("inflight_filtered_total", "Messages that the filter kept out", |p| p.filtered),
    ("inflight_retried_total", "Messages set aside to be retried", |p| p.retried),
    ("inflight_sent_back_total", "Messages sent back", |p| p.sent_back),
    ("inflight_given_up_total", "Messages given up", |p| p.given_up),
    ("inflight_reported_total", "Messages that failed in the broadcast model", |p| p.reported),
    ("inflight_expired_total", "Messages held too long and taken away", |p| p.expired),
    ("inflight_panics_total", "Handler calls that panicked", |p| p.panics),
    ("inflight_pulls_total", "Pulls begun", |p| p.pulls),
    ("inflight_pull_errors_total", "Pulls that failed", |p| p.pull_errors),
    ("inflight_resets_total", "Illegal offsets that the source corrected", |p| p.resets),
    ("inflight_rebuilt_total", "Hanging pulls", |p| p.rebuilt),
];

/// Says what each number is. Once, at the start.
pub(crate) fn describe() {
    for (name, what, _) in GAUGES {
        describe_gauge!(name, what);
    }
    for (name, what, _) in COUNTERS {
        describe_counter!(name, Unit::Count, what);
    }
    describe_gauge!("inflight_head_age_seconds", Unit::Seconds, "How long the head has been held");
    describe_counter!("inflight_store_errors_total", Unit::Count, "How often the store failed");
}

/// Records all numbers, each partition under its name.
pub(crate) fn record(progress: &Progress) {
    for part in &progress.partitions {
        for (name, _, of) in GAUGES {
            if let Some(value) = of(part) {
                gauge!(name, "partition" => part.name.clone()).set(value);
            }
        }
        for (name, _, of) in COUNTERS {
            counter!(name, "partition" => part.name.clone()).absolute(of(part));
        }
        let since = part.head.and_then(|head| head.since).unwrap_or(u64::MAX);
        let now = u64::try_from(progress.now.as_millis()).unwrap_or(u64::MAX);
        // Nothing is held, or it waits for its time.
        let age = now.saturating_sub(since) as f64 / 1e3;
        gauge!("inflight_head_age_seconds", "partition" => part.name.clone()).set(age);
    }
    counter!("inflight_store_errors_total").absolute(progress.store_errors);
}
