//! Linearizability inside loom: in every schedule of small programs, is there an order of the
//! calls that explains every answer? The rules, and where they are wide: `tests/linear/spec.rs`.
//!
//! The clock that orders the calls is one more read-modify-write around each: it adds
//! synchronisation, so these models stand beside the others, which have none.

#[allow(dead_code)] // what the properties need
#[path = "../../../tests/common/driver.rs"]
mod driver;
#[allow(dead_code)] // what the ring needs
#[path = "../ring/harness.rs"]
mod harness;
#[allow(dead_code)] // what the properties need
#[path = "../../../tests/common/message.rs"]
mod message;
mod programs;
#[allow(dead_code)] // what the properties need
#[path = "../../../tests/common/real.rs"]
mod real;
#[path = "../../../tests/linear/recorder.rs"]
mod recorder;
mod ring;
mod skip;
#[path = "../../../tests/linear/spec.rs"]
mod spec;

/// A weakening that no model notices is a mechanism that no model checks.
#[test]
fn every_control_has_a_model() {
    let models = ring::MODELS.iter().chain(skip::MODELS);
    let controls: Vec<_> = models.flat_map(|model| model.controls).collect();
    let all = inflight::model::Control::LINEAR;
    let missing: Vec<_> = all.iter().filter(|one| !controls.contains(one)).collect();
    assert!(missing.is_empty(), "controls without a model: {missing:?}");
}
