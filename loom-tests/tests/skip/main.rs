//! Model checks of the skip window. How to run and read them: `docs/verification.md`.
//!
//! Under loom a block has 64 positions, a chunk four, the list one upper level and a table of two
//! entries, which grows with the third block, and chunks are given back from the next block on.

mod assign;
mod chunk;
mod front;
#[allow(dead_code)] // what the ring needs
#[path = "../ring/harness.rs"]
mod harness;
mod lease;
mod list;
mod order;
mod shortcut;
mod support;

use inflight::model::{Branch, Control};

const FAMILIES: &[&[harness::Model]] = &[
    assign::MODELS,
    chunk::MODELS,
    front::MODELS,
    lease::MODELS,
    list::MODELS,
    order::MODELS,
    shortcut::MODELS,
];

fn models() -> impl Iterator<Item = &'static harness::Model> {
    FAMILIES.iter().flat_map(|models| models.iter())
}

/// A weakening that no model notices is a mechanism that no model checks.
#[test]
fn every_control_has_a_model() {
    let controls: Vec<_> = models().flat_map(|model| model.controls).collect();
    let missing: Vec<_> = Control::SKIP.iter().filter(|one| !controls.contains(one)).collect();
    assert!(missing.is_empty(), "controls without a model: {missing:?}");
}

/// A branch that no model must reach is a counter that tells nothing.
#[test]
fn every_branch_has_a_model() {
    let branches: Vec<_> = models().flat_map(|model| model.reaches).collect();
    let missing: Vec<_> = Branch::SKIP.iter().filter(|one| !branches.contains(one)).collect();
    assert!(missing.is_empty(), "branches without a model: {missing:?}");
}
