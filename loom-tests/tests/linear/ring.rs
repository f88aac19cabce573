//! The programs on a ring: of four, or of two where it matters that a window is full.

use inflight::RingWindow;

use crate::harness::models;
use crate::programs::{self as all, Program, run};

fn four(program: fn() -> Program) {
    run(RingWindow::<_, 4>::new(), false, program());
}

fn two(program: fn() -> Program) {
    run(RingWindow::<_, 2>::new(), false, program());
}

fn four_with_callers_seal(program: fn() -> Program) {
    run(RingWindow::<_, 4>::with_callers_seal(), true, program());
}

models! {
    puts_and_takes: "puts in order beside takes", "5 6", 2, [], [SignalRelaxed];
    two_takes: "two takes of one message each, committed", "4 6", 3, [], [ClaimWithoutCas];
    late_put_and_takes: "a late put and a take beside takes", "5 6", 2, [], [LateKeepsCursor];
    batch_and_takes: "a batch out of order beside takes", "5 6", 1, [], [];
    removes_of_neighbours: "removes of neighbours, and what the watermark is then", "1 2 3", 3, [], [MeetingRelaxed];
    one_offset_finished_thrice: "three removes of one offset beside its shared lease", "3 4", 1, [], [];
    two_puts_of_one_offset: "two puts of one offset, a remove, a take", "4 7", 2, [], [FillWithoutCas];
    gap_filled_or_sealed: "a put into a gap beside the finisher that may seal it", "1 2 3", 3, [], [GapUnsealed, SlidePassesFilling];
    commits_beside_rollback: "commit_only beside take and rollback", "3 4 5 6", 2, [], [];
    rollback_beside_takes: "a rollback beside takes", "5 6", 2, [], [];
    shared_commit_beside_revoke: "commit of a shared lease beside revoke, rollback and retake", "4 5", 2, [], [AttemptKept, PhaseOnly];
    detached_remove_beside_revoke: "remove of a detached message beside its revoke", "4", 3, [], [RevokeShared];
    head_beside_commit: "head beside a commit", "1 2", 2, [], [];
    advance_beside_put: "advance_to beside a put into what it seals", "1 2 3", 2, [], [];
    floor_beside_put_and_take: "a floor beside a put and a take below it", "1 4 7", 2, [], [];
    floor_beside_lease: "a floor beside a lease of what falls", "4 7", 2, [], [LentLeft];
    put_that_falls_beside_the_next: "a put that falls, beside the floor and the put after it: one of them says so", "5 7", 3, [], [FallenAnnounced];
    close_beside_put: "close beside a put", "5", 2, [], [];
    assign_beside_put: "an old put beside assign and a put", "4 7", 1, [], [NoSecondGeneration, FillingLeft];
    assign_beside_lease: "an old lease beside assign and a put", "4 7", 2, [], [LentLeft];
    put_at_a_full_window: "a put beyond a full window beside the removes that make room", "1 3", 3, [], [WatermarkStore];
    gap_sealed_and_filled_by_the_next_lap: "two slides over one gap, and a put of the next lap into its slot", "1 2 3", 3, [], [SealedElsewhere];
    two_far_puts: "two puts far ahead of an empty window", "1 2 3", 2, [], [NoJump];
    old_lease_beside_the_next_lap: "a shared lease beside remove, and a put of the next lap", "4", 2, [], [];
}

fn puts_and_takes() {
    four(all::puts_and_takes);
}

fn two_takes() {
    four(all::two_takes);
}

fn late_put_and_takes() {
    four(all::late_put_and_takes);
}

fn batch_and_takes() {
    four(all::batch_and_takes);
}

fn removes_of_neighbours() {
    four(all::removes_of_neighbours);
}

fn one_offset_finished_thrice() {
    four(all::one_offset_finished_thrice);
}

fn two_puts_of_one_offset() {
    four(all::two_puts_of_one_offset);
}

fn gap_filled_or_sealed() {
    four(all::gap_filled_or_sealed);
}

fn commits_beside_rollback() {
    four(all::commits_beside_rollback);
}

fn rollback_beside_takes() {
    four(all::rollback_beside_takes);
}

fn shared_commit_beside_revoke() {
    four(all::shared_commit_beside_revoke);
}

fn detached_remove_beside_revoke() {
    four(all::detached_remove_beside_revoke);
}

fn head_beside_commit() {
    four(all::head_beside_commit);
}

fn advance_beside_put() {
    four_with_callers_seal(all::advance_beside_put);
}

fn floor_beside_put_and_take() {
    four(all::floor_beside_put_and_take);
}

fn floor_beside_lease() {
    four(all::floor_beside_lease);
}

fn put_that_falls_beside_the_next() {
    four(all::put_that_falls_beside_the_next);
}

fn close_beside_put() {
    four(all::close_beside_put);
}

fn assign_beside_put() {
    four(all::assign_beside_put);
}

fn assign_beside_lease() {
    four(all::assign_beside_lease);
}

fn put_at_a_full_window() {
    two(all::put_at_a_full_window);
}

fn gap_sealed_and_filled_by_the_next_lap() {
    two(all::gap_sealed_and_filled_by_the_next_lap);
}

fn two_far_puts() {
    two(all::two_far_puts);
}

fn old_lease_beside_the_next_lap() {
    two(all::old_lease_beside_the_next_lap);
}
