//! Model checks of the ring window. How to run and read them: `docs/verification.md`.

mod admission;
mod assign;
mod budget;
mod close;
mod detached;
mod floor;
mod harness;
mod idle;
mod jumps;
mod meeting;
mod numbered;
mod order;
mod revoke;
mod rollback;
mod seal;
mod stragglers;
mod waiting;
mod wide;

use inflight::model::{Branch, Control};

const FAMILIES: &[&[harness::Model]] = &[
    admission::MODELS,
    assign::MODELS,
    budget::MODELS,
    close::MODELS,
    detached::MODELS,
    floor::MODELS,
    idle::MODELS,
    jumps::MODELS,
    meeting::MODELS,
    numbered::MODELS,
    order::MODELS,
    revoke::MODELS,
    rollback::MODELS,
    seal::MODELS,
    stragglers::MODELS,
    waiting::MODELS,
    wide::MODELS,
];

fn models() -> impl Iterator<Item = &'static harness::Model> {
    FAMILIES.iter().flat_map(|models| models.iter())
}

/// A weakening that no model notices is a mechanism that no model checks.
#[test]
fn every_control_has_a_model() {
    let controls: Vec<_> = models().flat_map(|model| model.controls).collect();
    let missing: Vec<_> = Control::ALL.iter().filter(|one| !controls.contains(one)).collect();
    assert!(missing.is_empty(), "controls without a model: {missing:?}");
}

/// A branch that no model must reach is a counter that tells nothing.
#[test]
fn every_branch_has_a_model() {
    let branches: Vec<_> = models().flat_map(|model| model.reaches).collect();
    let missing: Vec<_> = Branch::ALL.iter().filter(|one| !branches.contains(one)).collect();
    assert!(missing.is_empty(), "branches without a model: {missing:?}");
}
