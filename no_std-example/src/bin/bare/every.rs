//! Every other call that a chip without an allocator has, and that formats nothing: for the proof
//! that none has a path to a panic. Never run. (Not the snapshots: they index the caller's buffer,
//! and the compiler keeps the checks.)

use core::hint::black_box;
use core::sync::atomic::AtomicU32;

use inflight::{BatchWatermark, Budget, Budgeted, RingWindow, Share, SkipReason, Window};

use crate::Part;

static BATCHES: BatchWatermark<16> = BatchWatermark::new();
static SEALED: RingWindow<AtomicU32, 8> = RingWindow::with_callers_seal();
static BUDGET: Budget = Budget::new(6, 600);
static BUDGETED: Budgeted<RingWindow<[u8; 16], 8>> = Budgeted::ring(Share::new(&BUDGET));

/// All of them.
#[inline(never)]
pub fn call(part: &Part, now: u64) -> u64 {
    let mut sum = 0;
    puts(part, now, &mut sum);
    shared_leases(part, now, &mut sum);
    leases(part, now, &mut sum);
    looks(part, now, &mut sum);
    batches(now, &mut sum);
    budgets(now, &mut sum);
    let window = part.window();
    sum += window.usage().bytes + window.span() + window.bytes();
    sum += u64::from(window.is_empty()) + window.skipped(SkipReason::Other) as u64;
    let sealed = SEALED.assign(now);
    sum += u64::from(sealed.put(now, AtomicU32::new(7)).is_ok());
    sum + u64::from(part.close() == Ok(true))
}

fn puts(part: &Part, now: u64, sum: &mut u64) {
    let mut messages = (now..now + 9).map(|offset| (offset, black_box([1; 16])));
    *sum += part.put_batch(&mut messages).map_or(0, |done| done.admitted as u64);
    let sized = part.put_batch_sized(&mut messages, |message| usize::from(message[0]));
    *sum += sized.map_or_else(|refused| refused.offset, |done| done.duplicates as u64);
    *sum += u64::from(part.put_sized(now, 16, [2; 16]).is_ok());
    *sum += part.skip(now, SkipReason::Poison).map_or(0, |next| next.get());
    *sum += part.remove_batch([now, 3, 9]).map_or(0, |done| done.applied as u64);
    let mut told = 0;
    let each = part.remove_each([now, 2], |offset, done| told += offset * u64::from(done.is_ok()));
    *sum += told + each.map_or(0, |done| done.next.get());
    *sum += part.advance_to(now + 99).map_or(0, |next| next.get());
    let floor =
        part.advance_floor(now + 5, |offset, message| told += offset + u64::from(message[1]));
    *sum += told + floor.map_or(0, |floor| floor.dropped as u64);
}

fn shared_leases(part: &Part, now: u64, sum: &mut u64) {
    let take = || part.at(now).take_shared_in::<4>(4);
    if let Ok(lease) = take() {
        *sum += lease.iter().map(|(offset, message)| offset + u64::from(message[2])).sum::<u64>();
        lease.touch(now);
        *sum += lease.commit().map_or(0, |report| report.next.get());
    }
    if let Ok(lease) = take() {
        *sum += lease.commit_only([now, 8]).map_or(0, |report| report.gone as u64);
    }
    if let Ok(lease) = take() {
        let done = lease.commit_where(|offset, _| offset == now);
        *sum += done.map_or(0, |report| report.applied as u64);
    }
    if let Ok(mut lease) = take() {
        *sum += lease.finish(now).map_or(0, |next| next.get());
        let others = lease.split(|held| held.offset() > now);
        *sum += others
            .into_values()
            .map(|(offset, message)| offset + u64::from(message[3]))
            .sum::<u64>();
        *sum += lease.rollback().map_or(0, |report| u64::from(report.dispatch));
    }
    if let Ok(lease) = part.take_shared_in::<4>(4) {
        *sum += lease.messages().len() as u64;
        lease.detach();
    }
}

fn leases(part: &Part, now: u64, sum: &mut u64) {
    if let Ok(lease) = part.at(now).take(3) {
        lease.touch(now);
        *sum += lease.messages().map(|message| u64::from(message.deliveries)).sum::<u64>();
        *sum += lease.commit_only([now, 8]).map_or(0, |report| report.gone as u64);
    }
    if let Ok(lease) = part.take(3) {
        let done = lease.commit_where(|_, message| message[4] == 1);
        *sum += done.map_or(0, |report| report.applied as u64);
    }
    if let Ok(mut lease) = part.take(3) {
        *sum += lease.finish(now).map_or(0, |next| next.get());
        *sum += lease
            .into_values()
            .map(|(offset, message)| offset + u64::from(message[5]))
            .sum::<u64>();
    }
    *sum += u64::from(part.at(now).touch(now).is_ok());
}

fn looks(part: &Part, now: u64, sum: &mut u64) {
    *sum += part.head().map_or(0, |head| head.map_or(1, |look| look.offset));
    if let Ok(pending) = part.pending() {
        *sum += pending.map(|look| look.offset).sum::<u64>();
    }
    if let Ok(stalled) = part.stalled(now, 9) {
        *sum += stalled.map(|held| held.since).sum::<u64>();
    }
    *sum += part.min_offset().map_or(0, |next| next.get()) + part.end().unwrap_or(0);
    *sum += part.span().unwrap_or(0) + part.backlog(now).unwrap_or(0);
}

fn batches(now: u64, sum: &mut u64) {
    let batches = BATCHES.assign(now);
    if let Ok(id) = batches.begin(2) {
        *sum += u64::from(batches.fail(id).is_ok()) + u64::from(batches.retry(id).is_ok());
        *sum += u64::from(batches.end(id, now).is_ok()) + u64::from(batches.skip(id).is_ok());
    }
    *sum += batches.watermark().map_or(0, |next| next.get());
    *sum += u64::from(batches.head().is_ok());
}

fn budgets(now: u64, sum: &mut u64) {
    let part = BUDGETED.assign(now);
    if let Ok(mut permit) = part.reserve(2, 64) {
        *sum += u64::from(permit.put_sized(now, 16, [3; 16]).is_ok()) + permit.bytes();
    }
    if let Ok(mut permit) = part.reserve_up_to(3, 99) {
        let mut messages = (now..now + 9).map(|offset| (offset, black_box([1; 16])));
        let done = permit.put_batch_sized(&mut messages, |message| usize::from(message[0]));
        *sum += u64::from(done.is_ok()) + permit.messages() as u64;
    }
    *sum += part.take(3).map_or(0, |lease| lease.commit().map_or(0, |report| report.next.get()));
    *sum += u64::from(part.remove(now).is_ok());
    let share = BUDGETED.share();
    *sum += share.used().bytes + share.room().bytes + share.most().bytes + BUDGET.free().bytes;
    let other = Share::with_floor(&BUDGET, 1, 9);
    *sum += other.map_or(0, |share| share.floor().bytes);
}
