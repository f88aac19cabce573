//! Records the calls of several threads on one window, and checks the history.

use std::sync::Arc;

use inflight::Window;

use crate::driver::{Answer, End, Step};
use crate::message::{Ledger, Message};
use crate::real::{Assign, Real};
use crate::spec::{Event, History, Op, Refused, Rules, check};

/// One thread: its handles and leases, and what it called, with the ticks before and after.
pub struct Worker<R: Assign<Window: Window<Value = Message>>, C> {
    thread: usize,
    real: Real<R>,
    /// Whoever reads it later has a higher tick, and sees what was done before.
    clock: C,
    calls: Vec<(u64, u64, Op)>,
}

impl<R: Assign<Window: Window<Value = Message>>, C: Fn() -> u64 + Clone> Worker<R, C> {
    pub fn new(window: R, ledger: &Arc<Ledger>, start: u64, clock: C) -> Self {
        Self { thread: 0, real: Real::new(window, ledger, start), clock, calls: Vec::new() }
    }

    /// Another thread's.
    pub fn beside(&self, thread: usize) -> Self {
        let clock = self.clock.clone();
        Self { thread, real: self.real.beside(), clock, calls: Vec::new() }
    }

    pub fn real(&self) -> &Real<R> {
        &self.real
    }

    /// Makes a call; none of a lease that its take did not give.
    pub fn call(&mut self, step: &Step) -> Option<Answer> {
        if let Step::End { token, .. } | Step::Finish { token, .. } | Step::Touch { token, .. } =
            step
            && !self.real.leases().contains(token)
        {
            return None;
        }
        let before = (self.clock)();
        let answer = self.real.call(step);
        let after = (self.clock)();
        let op = Op { thread: self.thread, step: step.clone(), answer: answer.clone() };
        self.calls.push((before, after, op));
        Some(answer)
    }

    /// Ends what leases are left.
    pub fn end(&mut self) {
        for token in self.real.leases() {
            self.call(&Step::End { token, how: End::Rollback });
        }
    }
}

/// What all of them did, in order.
pub fn history<R: Assign<Window: Window<Value = Message>>, C>(
    workers: impl IntoIterator<Item = Worker<R, C>>,
) -> History {
    let mut ticks = Vec::new();
    let mut history = History::default();
    for (before, after, op) in workers.into_iter().flat_map(|worker| worker.calls) {
        let number = history.ops.len();
        ticks.extend([(before, Event::Call(number)), (after, Event::Return(number))]);
        history.ops.push(op);
    }
    ticks.sort_by_key(|one| one.0);
    history.events = ticks.into_iter().map(|one| one.1).collect();
    history
}

/// Panics with the calls around it when an answer is refused.
#[track_caller]
pub fn accepted(rules: Rules, start: u64, history: &History) {
    let Err(Refused { event }) = check(rules, start, history) else { return };
    let told = history.events.iter().map(|event| match *event {
        Event::Call(op) => {
            let op = &history.ops[op];
            format!("thread {} calls   {:?}", op.thread, op.step)
        }
        Event::Return(op) => {
            let op = &history.ops[op];
            format!("thread {} answers {:?} to {:?}", op.thread, op.answer, op.step)
        }
    });
    let told: Vec<String> = told.collect();
    let from = event.saturating_sub(60);
    // What the calls under way answer later is explained together with it.
    let mut under_way = Vec::new();
    for event in &history.events[..=event] {
        match *event {
            Event::Call(op) => under_way.push(op),
            Event::Return(op) => under_way.retain(|one| *one != op),
        }
    }
    let ends = |event: &Event| matches!(event, Event::Return(op) if under_way.contains(op));
    let last = history.events.iter().rposition(ends).unwrap_or(event).max(event);
    panic!(
        "no order explains the last answer:\n{}\nafterwards:\n{}\nby {rules:?}",
        told[from..=event].join("\n"),
        told[event + 1..=last].join("\n"),
    );
}
