//! Negative controls and branch counters of the models; nothing outside `cfg(loom)`.
//!
//! A model proves something only if it fails when the code is weakened. Each [`Control`] is one
//! weakening: one ordering made `Relaxed`, one check left out, one store moved. Outside loom
//! [`weak`] is the constant `false` and [`hit`] is nothing, so that release code has no trace.
//!
//! The fuzz targets have controls as well: built with `--cfg inflight_planted` the core is weakened
//! in a place for each target, which must find it.

/// One weakening of the core, and with it the claim that some model notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(loom), allow(dead_code))]
pub enum Control {
    /// A finisher does not read-modify-write the finished counter between its store and its scan
    /// in an ordered way.
    MeetingRelaxed,
    /// The watermark moves by a plain store.
    WatermarkStore,
    /// A taker claims by load and store.
    ClaimWithoutCas,
    /// Put ignores the lap of an empty slot.
    PutIgnoresLap,
    /// The slide passes a slot that is being filled.
    SlidePassesFilling,
    /// The slide passes a gap without sealing it.
    GapUnsealed,
    /// The slide stops at a gap that another slide has sealed, when that slot has been filled since.
    SealedElsewhere,
    /// A put jumps although the seal is the caller's.
    JumpWithCallersSeal,
    /// A put at a full window never jumps.
    NoJump,
    /// A putter fills by load and store.
    FillWithoutCas,
    /// `end` rises before the slot is being filled.
    EndBeforeFilling,
    /// `end` rises after the message is ready.
    EndAfterReady,
    /// A message is published by a relaxed exchange.
    ReadyRelaxed,
    /// A late put does not lower the cursor.
    LateKeepsCursor,
    /// The cursor passes a slot that is being filled.
    CursorPassesFilling,
    /// A slot beyond a gap is claimed without a second look.
    NoSecondLook,
    /// A slot beyond a gap is claimed after one second look, whatever it found.
    OneSecondLook,
    /// A take that found fewer than asked, not just none, scans again.
    RescanWhenFewer,
    /// Lowering the cursor does not raise its version.
    VersionKept,
    /// A rollback lowers the cursor before its message is ready.
    LoweredBeforeReady,
    /// A take about to return nothing does not look again.
    NoFinalRescan,
    /// Revoke does not raise the attempt.
    AttemptKept,
    /// A shared lease compares the phase alone, not the whole word.
    PhaseOnly,
    /// Revoke gives a shared lease: others can still finish the message.
    RevokeShared,
    /// A shared take marks the message held before it has cloned it.
    HeldBeforeClone,
    /// A far jump raises slots by one lap.
    JumpOneLap,
    /// A far jump leaves finished slots as they are.
    JumpLeavesDone,
    /// Assign leaves a slot that is being filled alone.
    FillingLeft,
    /// Assign leaves a lent slot alone.
    LentLeft,
    /// A filling or lent slot is left by a plain store, whatever assign made of it.
    LeftByStore,
    /// Assign starts at the next lap, not a whole window beyond.
    AssignNextLap,
    /// Assign raises `end` by maximum.
    AssignEndByMax,
    /// Put and assign do not meet on the admitted counter.
    AdmittedRelaxed,
    /// A put does not look at the generation again.
    NoSecondGeneration,
    /// A put that fell below the floor as a whole claims the idle mark.
    FallenAnnounced,
    /// A put of what a floor has doomed is told that its slot is in use.
    DoomedIsBusy,
    /// The release of a doomed slot does not meet and slide.
    DoomedSilent,
    /// The generation is read before the watermark.
    GenerationFirst,
    /// A call touches sequences beyond its watermark's window.
    Unbounded,
    /// `end` is raised far by maximum.
    FarEndByMax,
    /// The halves of a wide watermark are read once.
    PairReadOnce,
    /// The count of half wraps is raised after the move.
    RepairAfterMove,
    /// The count is not read again after the watermark.
    CountNotReread,
    /// The watermark's low half is read before the count.
    LowFirst,
    /// The idle mark of a dry take does not meet the puts.
    SignalRelaxed,
    /// A put does not look at the floor before it publishes.
    FloorIgnored,
    /// A put raises the tail before its message is ready.
    TailBeforeReady,
    /// The tail is not raised to an offset that was said.
    TailNotHelped,
    /// The tail is raised without a look at the generation.
    TailByMax,
    /// Two puts number messages at once.
    NoTurn,
    /// A waiter does not look again when it has armed its seat.
    ArmedUnseen,
    /// A seat is armed by a relaxed read-modify-write.
    ArmRelaxed,
    /// Close and assign look at the seats without meeting those who arm.
    WakeAllUnmet,
    /// A waiter for room does not meet the finishers.
    RoomUnmet,
    /// Whoever wakes does not make the seat busy.
    ClaimWakerWithoutCas,
    /// A waiter frees its seat although somebody takes the waker out.
    StandIgnoresBusy,
    /// The last finisher of a closed window does not wake the takers.
    OverUnsaid,
    /// The mark of a frozen link is not looked at.
    FrozenIgnored,
    /// A block is linked in by a relaxed exchange.
    LinkRelaxed,
    /// A block is freed by whoever leaves it, not by the last.
    NoLastReference,
    /// A call goes on from a block that was passed.
    ThroughPassed,
    /// A block's entry is written after its inserter's reference was dropped.
    EntryAfterReference,
    /// The last to leave a block clears it from the current table only.
    OlderNotCleared,
    /// A table is current before the one it replaces is reachable as the older one.
    OlderAfterCurrent,
    /// A table is retired when it becomes the older one, not when it is that no longer.
    OlderRetired,
    /// A block leaves an upper level with its link there not frozen.
    UpperNotFrozen,
    /// The front moves before the watermark.
    FrontBeforeWatermark,
    /// A block is passed although its successor lies above the seal.
    FreezeEarly,
    /// A new chunk does not inherit what was sealed.
    ChunkForgetsSeal,
    /// A chunk's pointer is stored plainly.
    ChunkByStore,
    /// A chunk is given back with a slot that is being filled.
    GivenBackFilling,
    /// A chunk counts as finished when all of its messages but one are.
    ChunkGivenBackEarly,
    /// A chunk is shown in the table by a party that has no reference to it.
    ChunkNotKept,
    /// A chunk that is given back stays in the table.
    ChunkStaysShown,
    /// A chunk is given back by a party that has no reference to its block.
    ChunkOutlivesBlock,
    /// Enders of two batches do not meet.
    BatchesDoNotMeet,
    /// An ender raises its batch's offset before it has claimed its part.
    BatchRaisedUnclaimed,
    /// A slide does not look again at a batch whose offset it has read.
    BatchReadOnce,
    /// A batch's slot is passed by a plain store.
    BatchPassedByStore,
    /// An ender does not look at the lap of its batch's slot.
    BatchLapIgnored,
    /// An ender whose batch an assign took away raises its offset still.
    BatchEvictedRaises,
    /// Assign leaves the offsets of the slots as they are.
    BatchOffsetsLeft,
    /// A slide of an ended assignment passes batches of the next one.
    BatchSlideStale,
    /// A snapshot does not look at the generation after it has read the slots.
    SnapshotNoSecondLook,
    /// A snapshot calls what was never admitted below the end finished.
    SnapshotTrustsEnd,
    /// A snapshot calls finished what somebody is still finishing or storing.
    SnapshotCountsBusy,
    /// Two restores both say that they have sealed a slot.
    SealedByTwo,
    /// A reader of a snapshot does not look whether its offsets wrap. For the fuzz target alone.
    SnapshotWraps,
    /// A passed block is freed although leases of an ended assignment have slots of it.
    OrphanFreed,
    /// A call that puts an orphan back does not look again at whether it was released meanwhile.
    OrphanForgotten,
    /// What is given back to a budget is not ordered before what is then taken.
    BudgetRelaxed,
    /// What is free of a budget is taken by a plain store.
    BudgetTakenByStore,
    /// What a share uses is raised by a plain store.
    BudgetUsedByStore,
    /// A charge that needs less than it took keeps the rest.
    BudgetSurplusKept,
    /// What a release frees is worked out from an earlier look.
    BudgetReleasedByLook,
    /// A release frees what belongs to the floor, too.
    BudgetFloorReleased,
    /// A message taken back after an assign is paid back by the release, and by the put.
    BudgetPaidBackTwice,
    /// A waiter for a budget does not meet those who give back.
    BudgetUnmet,
}

#[cfg(loom)]
impl Control {
    /// Those of the windows, in order. The models of batches and snapshots name theirs.
    pub const ALL: &[Self] = &[
        Self::MeetingRelaxed,
        Self::WatermarkStore,
        Self::ClaimWithoutCas,
        Self::PutIgnoresLap,
        Self::SlidePassesFilling,
        Self::GapUnsealed,
        Self::JumpWithCallersSeal,
        Self::NoJump,
        Self::FillWithoutCas,
        Self::EndBeforeFilling,
        Self::EndAfterReady,
        Self::ReadyRelaxed,
        Self::LateKeepsCursor,
        Self::CursorPassesFilling,
        Self::NoSecondLook,
        Self::OneSecondLook,
        Self::RescanWhenFewer,
        Self::VersionKept,
        Self::LoweredBeforeReady,
        Self::NoFinalRescan,
        Self::AttemptKept,
        Self::PhaseOnly,
        Self::RevokeShared,
        Self::HeldBeforeClone,
        Self::JumpOneLap,
        Self::JumpLeavesDone,
        Self::FillingLeft,
        Self::LentLeft,
        Self::LeftByStore,
        Self::AssignNextLap,
        Self::AssignEndByMax,
        Self::AdmittedRelaxed,
        Self::NoSecondGeneration,
        Self::DoomedSilent,
        Self::GenerationFirst,
        Self::Unbounded,
        Self::FarEndByMax,
        Self::PairReadOnce,
        Self::RepairAfterMove,
        Self::CountNotReread,
        Self::LowFirst,
        Self::SignalRelaxed,
        Self::TailBeforeReady,
        Self::TailNotHelped,
        Self::TailByMax,
        Self::NoTurn,
        Self::ArmedUnseen,
        Self::ArmRelaxed,
        Self::WakeAllUnmet,
        Self::RoomUnmet,
        Self::ClaimWakerWithoutCas,
        Self::StandIgnoresBusy,
        Self::OverUnsaid,
        Self::BudgetRelaxed,
        Self::BudgetTakenByStore,
        Self::BudgetUsedByStore,
        Self::BudgetSurplusKept,
        Self::BudgetReleasedByLook,
        Self::BudgetFloorReleased,
        Self::BudgetPaidBackTwice,
        Self::BudgetUnmet,
    ];

    /// Those that the models of linearizability notice.
    pub const LINEAR: &[Self] = &[Self::FallenAnnounced, Self::DoomedIsBusy, Self::SealedElsewhere];

    /// Every one of the skip list, in order.
    pub const SKIP: &[Self] = &[
        Self::FrozenIgnored,
        Self::LinkRelaxed,
        Self::NoLastReference,
        Self::ThroughPassed,
        Self::EntryAfterReference,
        Self::OlderNotCleared,
        Self::OlderAfterCurrent,
        Self::OlderRetired,
        Self::UpperNotFrozen,
        Self::FrontBeforeWatermark,
        Self::FreezeEarly,
        Self::ChunkForgetsSeal,
        Self::ChunkByStore,
        Self::GivenBackFilling,
        Self::ChunkGivenBackEarly,
        Self::ChunkNotKept,
        Self::ChunkStaysShown,
        Self::ChunkOutlivesBlock,
        Self::OrphanFreed,
        Self::OrphanForgotten,
    ];
}

/// One branch that models must be seen to reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(loom), allow(dead_code))]
pub enum Branch {
    /// A gap was sealed.
    Sealed,
    /// A put found its slot of a later lap.
    PutPassed,
    /// The watermark jumped more than a window.
    FarJump,
    /// A put raised `end` itself to make room.
    OwnJump,
    /// A put was late and lowered the cursor.
    LatePut,
    /// A second look found a lower ready slot.
    SecondLook,
    /// A dry take found something when it looked again.
    FinalRescan,
    /// A take began again since the cursor had been lowered.
    TakeRestarted,
    /// A putter found that its generation had ended.
    PutStale,
    /// A putter or a lease released a doomed slot.
    DoomedReleased,
    /// The watermark was moved by somebody else in between.
    WatermarkLost,
    /// A half of a wide watermark did not match.
    HalfMismatch,
    /// An exact compare of a shared lease failed.
    LeaseGone,
    /// A dry take put its idle mark.
    WentIdle,
    /// Something became ready while a dry take looked for the last time.
    LookedAgain,
    /// Somebody claimed the idle mark.
    Dispatched,
    /// A waiter left its seat while somebody took the waker out.
    LeftWhileClaimed,
    /// A waiter came with another waker while somebody took the old one out.
    ArmedWhileClaimed,
    /// A put found the gap that it belongs in frozen.
    GapFrozen,
    /// A party was the last to leave a block.
    LastReference,
    /// A block was found in the table before the current one.
    FoundInOlder,
    /// A table was replaced for the second time, and retired.
    TableRetired,
    /// A passed block had to wait for leases of an ended assignment.
    Orphaned,
    /// A chunk was given back before its block was passed.
    ChunkGivenBack,
    /// All slots of a chunk were counted out.
    ChunkCounted,
    /// A slot was found by the chunk that the table shows.
    FoundByChunk,
    /// A floor doomed a lent slot.
    FloorDoomed,
    /// A put found its message below the floor.
    PutBelowFloor,
    /// A call passed a batch that another call had completed.
    BatchHelped,
    /// A slide found that its batch had been passed while it read the offset.
    BatchPassedMeanwhile,
    /// An ender found that an assign had taken its batch away.
    BatchEvicted,
    /// A charge needed less in the end than it had taken.
    BudgetSurplus,
}

#[cfg(loom)]
impl Branch {
    /// Those of the windows, in order. The models of batches and snapshots name theirs.
    pub const ALL: &[Self] = &[
        Self::Sealed,
        Self::PutPassed,
        Self::FarJump,
        Self::OwnJump,
        Self::LatePut,
        Self::SecondLook,
        Self::FinalRescan,
        Self::TakeRestarted,
        Self::PutStale,
        Self::DoomedReleased,
        Self::WatermarkLost,
        Self::HalfMismatch,
        Self::LeaseGone,
        Self::WentIdle,
        Self::LookedAgain,
        Self::Dispatched,
        Self::FloorDoomed,
        Self::LeftWhileClaimed,
        Self::ArmedWhileClaimed,
        Self::BudgetSurplus,
    ];

    /// Every one of the skip list, in order.
    pub const SKIP: &[Self] = &[
        Self::GapFrozen,
        Self::LastReference,
        Self::FoundInOlder,
        Self::TableRetired,
        Self::Orphaned,
        Self::ChunkGivenBack,
        Self::ChunkCounted,
        Self::FoundByChunk,
    ];
}

#[cfg(not(loom))]
mod imp {
    use super::{Branch, Control};

    #[inline(always)]
    pub(crate) const fn weak(control: Control) -> bool {
        match control {
            Control::PutIgnoresLap | Control::BatchOffsetsLeft | Control::SnapshotWraps => {
                cfg!(inflight_planted)
            }
            _ => false,
        }
    }

    #[inline(always)]
    pub(crate) const fn hit(_: Branch) {}
}

#[cfg(loom)]
mod imp {
    extern crate std;

    use std::cell::{Cell, RefCell};
    use std::vec::Vec;

    use super::{Branch, Control};

    // All threads of a loom model run on the test's own thread, so these reach each of them and
    // no other test.
    std::thread_local! {
        static CONTROL: Cell<Option<Control>> = const { Cell::new(None) };
        static RMW: Cell<bool> = const { Cell::new(false) };
        static HITS: RefCell<Vec<(Branch, usize)>> = const { RefCell::new(Vec::new()) };
    }

    pub(crate) fn weak(control: Control) -> bool {
        CONTROL.get() == Some(control)
    }

    pub(crate) fn hit(branch: Branch) {
        HITS.with_borrow_mut(|hits| match hits.iter_mut().find(|hit| hit.0 == branch) {
            Some(hit) => hit.1 += 1,
            None => hits.push((branch, 1)),
        });
    }

    pub(crate) fn accesses_are_rmw() -> bool {
        RMW.get()
    }

    /// Chooses the weakening for the models that this thread runs from now on.
    pub fn set_control(control: Option<Control>) {
        CONTROL.set(control);
    }

    /// Chooses whether loads and stores are read-modify-writes.
    pub fn set_rmw(on: bool) {
        RMW.set(on);
    }

    /// How often this thread's models reached `branch` since [`clear_hits`].
    pub fn hits(branch: Branch) -> usize {
        HITS.with_borrow(|hits| hits.iter().find(|hit| hit.0 == branch).map_or(0, |hit| hit.1))
    }

    /// Forgets the hits counted so far.
    pub fn clear_hits() {
        HITS.with_borrow_mut(Vec::clear);
    }
}

#[cfg(loom)]
pub(crate) use imp::accesses_are_rmw;
#[cfg(loom)]
pub use imp::{clear_hits, hits, set_control, set_rmw};
pub(crate) use imp::{hit, weak};
