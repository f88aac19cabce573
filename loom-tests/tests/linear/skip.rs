//! The programs on a skip window, of which some go over two blocks.

use inflight::SkipWindow;

use crate::harness::models;
use crate::programs::{self as all, Program, run};

fn one(program: fn() -> Program) {
    run(SkipWindow::new(), false, program());
}

fn with_callers_seal(program: fn() -> Program) {
    run(SkipWindow::with_callers_seal(), true, program());
}

models! {
    puts_and_takes: "puts in order beside takes", "5 6", 2, [], [SignalRelaxed];
    two_takes: "two takes of one message each, committed", "4 6", 2, [], [ClaimWithoutCas];
    late_put_and_takes: "a late put and a take beside takes", "5 6", 2, [], [LateKeepsCursor];
    batch_and_takes: "a batch out of order beside takes", "5 6", 1, [], [];
    removes_of_neighbours: "removes of neighbours, and what the watermark is then", "1 2 3", 2, [], [MeetingRelaxed];
    one_offset_finished_thrice: "three removes of one offset beside its shared lease", "3 4", 1, [], [];
    two_puts_of_one_offset: "two puts of one offset, a remove, a take", "4 7", 2, [], [FillWithoutCas];
    gap_filled_or_sealed: "a put into a gap beside the finisher that may seal it", "1 2 3", 2, [], [GapUnsealed];
    commits_beside_rollback: "commit_only beside take and rollback", "3 4 5 6", 2, [], [];
    rollback_beside_takes: "a rollback beside takes", "5 6", 2, [], [VersionKept];
    shared_commit_beside_revoke: "commit of a shared lease beside revoke, rollback and retake", "4 5", 2, [], [AttemptKept];
    detached_remove_beside_revoke: "remove of a detached message beside its revoke", "4", 3, [], [RevokeShared];
    head_beside_commit: "head beside a commit", "1 2", 2, [], [];
    advance_beside_put: "advance_to beside a put into what it seals", "1 2 3", 2, [], [];
    floor_beside_put_and_take: "a floor beside a put and a take below it", "1 4 7", 1, [], [];
    floor_beside_lease: "a floor beside a lease of what falls", "4 7", 2, [], [LentLeft];
    floor_beside_a_second_put: "a floor beside a second put of a lent message that falls", "4 7", 3, [], [DoomedIsBusy];
    put_that_falls_beside_the_next: "a put that falls, beside the floor and the put after it: one of them says so", "5 7", 3, [], [FallenAnnounced];
    close_beside_put: "close beside a put", "5", 2, [], [];
    assign_beside_put: "an old put beside assign and a put", "4 7", 1, [], [NoSecondGeneration];
    assign_beside_lease: "an old lease beside assign and a put", "4 7", 2, [], [LentLeft];
}

fn puts_and_takes() {
    one(all::puts_and_takes);
}

fn two_takes() {
    one(all::two_takes);
}

fn late_put_and_takes() {
    one(all::late_put_and_takes);
}

fn batch_and_takes() {
    one(all::batch_and_takes);
}

fn removes_of_neighbours() {
    one(all::removes_of_neighbours);
}

fn one_offset_finished_thrice() {
    one(all::one_offset_finished_thrice);
}

fn two_puts_of_one_offset() {
    one(all::two_puts_of_one_offset);
}

fn gap_filled_or_sealed() {
    one(all::gap_filled_or_sealed);
}

fn commits_beside_rollback() {
    one(all::commits_beside_rollback);
}

fn rollback_beside_takes() {
    one(all::rollback_beside_takes);
}

fn shared_commit_beside_revoke() {
    one(all::shared_commit_beside_revoke);
}

fn detached_remove_beside_revoke() {
    one(all::detached_remove_beside_revoke);
}

fn head_beside_commit() {
    one(all::head_beside_commit);
}

fn advance_beside_put() {
    with_callers_seal(all::advance_beside_put);
}

fn floor_beside_put_and_take() {
    one(all::floor_beside_put_and_take);
}

fn floor_beside_lease() {
    one(all::floor_beside_lease);
}

fn floor_beside_a_second_put() {
    one(all::floor_beside_a_second_put);
}

fn put_that_falls_beside_the_next() {
    one(all::put_that_falls_beside_the_next);
}

fn close_beside_put() {
    one(all::close_beside_put);
}

fn assign_beside_put() {
    one(all::assign_beside_put);
}

fn assign_beside_lease() {
    one(all::assign_beside_lease);
}
