//! The operations of a window in value form, so that a window and the model answer alike.

use inflight::{AdvanceError, PutErrorKind, RemoveError, RevokeError, Stage, Stale, TakeError};

/// Which assignment of the window, by the order they were made in.
pub type PartId = usize;
/// A lease, by a name that the caller gives.
pub type Token = usize;

/// One call.
#[derive(Clone, Debug)]
pub enum Step {
    Assign {
        start: u64,
    },
    Put {
        part: PartId,
        offset: u64,
        bytes: usize,
        id: u64,
    },
    /// Offset, bytes and id of each; the iterator panics when asked for that one.
    PutBatch {
        part: PartId,
        items: Vec<(u64, usize, u64)>,
        panic_at: Option<usize>,
    },
    Take {
        part: PartId,
        n: usize,
        shared: bool,
        now: Option<u64>,
        token: Token,
    },
    End {
        token: Token,
        how: End,
    },
    Finish {
        token: Token,
        offset: u64,
    },
    Touch {
        token: Token,
        now: u64,
    },
    /// `into_detached`, of a shared lease: from now on the token is the receipt's.
    IntoDetached {
        token: Token,
    },
    /// `touch` of a receipt.
    TouchDetached {
        token: Token,
        now: u64,
    },
    GiveBack {
        token: Token,
    },
    /// The drop of a receipt.
    DropDetached {
        token: Token,
    },
    Remove {
        part: PartId,
        offset: u64,
    },
    /// `skip`, which answers as `remove` does.
    Skip {
        part: PartId,
        offset: u64,
    },
    RemoveBatch {
        part: PartId,
        offsets: Vec<u64>,
        panic_at: Option<usize>,
    },
    Revoke {
        part: PartId,
        offset: u64,
        now: u64,
        token: Token,
    },
    /// `At::touch`.
    TouchOne {
        part: PartId,
        offset: u64,
        now: u64,
    },
    Watermark {
        part: PartId,
    },
    EndOffset {
        part: PartId,
    },
    MinOffset {
        part: PartId,
    },
    AdvanceFloor {
        part: PartId,
        low: u64,
    },
    /// Of a snapshot's bytes, which are in order.
    Restore {
        part: PartId,
        bytes: Vec<u8>,
    },
    AdvanceTo {
        part: PartId,
        next: u64,
    },
    Head {
        part: PartId,
    },
    Close {
        part: PartId,
    },
    Stalled {
        part: PartId,
        now: u64,
        age: u64,
    },
}

/// How a lease ends.
#[derive(Clone, Debug)]
pub enum End {
    Commit,
    /// `commit_only`; the iterator panics when asked for that one.
    Only {
        done: Vec<u64>,
        panic_at: Option<usize>,
    },
    /// `commit_where`; the judge panics at that one.
    Where {
        done: Vec<u64>,
        panic_at: Option<usize>,
    },
    Rollback,
    Detach,
    Drop,
    Forget,
    /// `into_values`, dropped after so many.
    Values {
        take: usize,
    },
}

/// Admitted, duplicates, passed, dispatch.
pub type Batch = (usize, usize, usize, bool);
/// Next, applied, gone.
pub type Report = (u64, usize, usize);
/// Offset, stage, since, deliveries.
pub type Look = (u64, Stage, Option<u64>, u32);

/// What a call answers.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    Nothing,
    Panicked,
    /// The hint, or why not and the message that came back.
    Put(Result<bool, (PutErrorKind, u64)>),
    Batch(Result<Batch, (PutErrorKind, u64, u64, Batch)>),
    /// Offset, id, deliveries.
    Taken(Result<Vec<(u64, u64, u32)>, TakeError>),
    Report(Result<Report, Stale>),
    /// The offsets of a receipt.
    Detached(Vec<u64>),
    Next(Result<u64, Stale>),
    Removed(Result<u64, RemoveError>),
    /// Next, and what happened to each.
    RemovedBatch(Result<u64, Stale>, Vec<Result<(), RemoveError>>),
    Revoked(Result<Vec<(u64, u64, u32)>, RevokeError>),
    Touched(Result<(), RevokeError>),
    Values(Vec<(u64, u64)>),
    Advanced(Result<u64, AdvanceError>),
    /// Next, the ids of what was dropped, ascending, and how many leases have still.
    Floor(Result<(u64, Vec<u64>, usize), AdvanceError>),
    /// Next, and the first offset beyond the window's reach.
    Restored(Result<(u64, Option<u64>), AdvanceError>),
    Head(Result<Option<Look>, Stale>),
    Closed(Result<bool, Stale>),
    /// Offset, since, deliveries, revocable.
    Stalled(Result<Vec<(u64, u64, u32, bool)>, Stale>),
}

/// A panic to be made in the messages' own code during a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    None,
    /// In the first drop of this message.
    Drop(u64),
    /// In the next clone of this message.
    Clone(u64),
}

/// What can be read at any time.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    pub watermark: u64,
    pub end: u64,
    pub span: u64,
    pub count: usize,
    pub bytes: u64,
    pub pending: Vec<Look>,
}

/// Something that answers as a window does.
pub trait Driver {
    /// Makes one call. A panic that ends an `assign` is followed by another `assign`, so that
    /// there always is a last assignment.
    fn step(&mut self, step: &Step, fault: Fault) -> Answer;

    /// What the last assignment shows.
    fn view(&self) -> View;
}
