//! Random calls on a window and on the model, compared after every one of them.
//!
//! Everything a caller can see is compared: what the call answered, watermark, end, span, count,
//! bytes, what is pending and what each message is doing, and which messages are alive. Handles
//! and leases of ended assignments are used too, leases are forgotten, and the code of the
//! messages (clone, drop, iterators, judges) panics now and then.

mod common;

use common::script::{Raw, TRACE, run};
use common::{Kind, RingKind, SkipKind, VARIANTS};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestError, TestRunner};

fn runs<K: Kind>() {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    let config = Config {
        cases: cases.unwrap_or(if cfg!(miri) { 4 } else { 4096 }),
        failure_persistence: None,
        max_shrink_iters: 20_000,
        ..Config::default()
    };
    let raws = prop::collection::vec(any::<Raw>(), 100..250);
    let starts = prop_oneof![Just(0), 0..1000_u64, Just(u64::MAX - 300), Just((1 << 32) - 40)];
    let strategy = (0..VARIANTS, any::<bool>(), 0..4, starts, raws);
    let run = |(variant, callers_seal, size, start, raws): (_, _, _, _, Vec<Raw>)| {
        match size {
            0 => run::<K, 2>(variant, callers_seal, start, &raws),
            1 => run::<K, 4>(variant, callers_seal, start, &raws),
            2 => run::<K, 8>(variant, callers_seal, start, &raws),
            _ => run::<K, 64>(variant, callers_seal, start, &raws),
        }
        Ok(())
    };
    if let Err(error) = TestRunner::new(config).run(&strategy, run) {
        let error = match error {
            TestError::Fail(why, (variant, callers_seal, size, start, _)) => format!(
                "{why}: variant {variant}, caller's seal {callers_seal}, size {size}, from {start}"
            ),
            TestError::Abort(why) => format!("gave up: {why}"),
        };
        let trace: Vec<String> = TRACE.take().iter().map(|call| format!("{call:?}")).collect();
        panic!("{error}\n{}", trace.join("\n"));
    }
}

#[test]
fn ring_answers_as_the_model() {
    runs::<RingKind>();
}

#[test]
fn skip_window_answers_as_the_model() {
    runs::<SkipKind>();
}
