//! Thousands of random lives of a consumer: every order of pulls, handlers, faults, locks,
//! rebalances, crashes and times, each repeatable by its seed. What must hold is checked by the
//! world around it (`sim`): nothing published above what was really done, nothing after the end,
//! in order where there is one, and everything consumed in the end.
//!
//! `INFLIGHT_SEED=n` runs one life, `INFLIGHT_LIVES=n` so many.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use inflight::consumer::{Limits, Pulled};
use inflight::{RingWindow, SkipWindow, Window};

use crate::sim::{Dice, Letter, Life, Log, Mode, Plan, World, name, within_limits};

fn log(dice: &mut Dice) -> Log {
    let mut letters = Vec::new();
    let mut at = dice.below(5);
    let holes = *dice.pick(&[1, 1, 3, 40]);
    for _ in 0..dice.below(50) {
        letters.push(Letter {
            offset: at,
            key: dice.below(4),
            wanted: !dice.percent(10),
            not_before: dice.percent(5).then(|| dice.below(100)),
            tries: if dice.percent(10) { 2 } else { 0 },
        });
        at += 1 + dice.below(holes);
    }
    // A tail that no filter lets through.
    let end = at + dice.below(3) * dice.below(100);
    let mut log = Log::default();
    log.end = end;
    log.letters = letters;
    log
}

fn plan(seed: u64, dice: &mut Dice) -> Plan {
    use Mode::*;
    let count = 1 + dice.below(20) as usize;
    let span = 1 + dice.below(60);
    Plan {
        seed,
        mode: *dice.pick(&[Concurrent, Concurrent, Broadcast, Orderly, Manual, Keyed, Batched]),
        workers: 1 + dice.below(5) as usize,
        batch: 1 + dice.below(5) as usize,
        limits: Limits::default().count(count).span(span),
        count,
        pull_batch: 1 + dice.below(10) as usize,
        locks: dice.percent(30),
        sends_back: dice.percent(50),
        gives_up: dice.percent(30),
        faults: *dice.pick(&[0, 5, 20, 40]),
    }
}

/// One life, and those after its crashes.
fn live(seed: u64) {
    let mut dice = Dice::new(seed);
    let plan = plan(seed, &mut dice);
    let logs = (0..1 + dice.below(3)).map(|_| log(&mut dice)).collect();
    let world = World::new(plan, logs);
    // What nobody wants is dealt with.
    for partition in 0..world.logs.len() {
        world.log(partition).deal_unwanted();
    }
    match dice.below(4) {
        0 => go_on(&world, &mut dice, |_| RingWindow::<Letter, 64>::boxed()),
        1 => go_on(&world, &mut dice, |_| RingWindow::<Letter, 64>::boxed_numbered()),
        2 => go_on(&world, &mut dice, |_| Box::new(SkipWindow::new())),
        _ => go_on(&world, &mut dice, |_| Box::new(SkipWindow::numbered())),
    }
}

fn go_on<W>(
    world: &std::sync::Arc<World>,
    dice: &mut Dice,
    window: impl Fn(&inflight::consumer::Partition) -> Box<W> + Copy + Send + Sync + 'static,
) where
    W: Window<Value = Letter> + Send + Sync + 'static,
{
    let begin = || Life::new(world, world.builder().window(window).stepped().unwrap());
    let mut life = begin();
    let partitions = world.logs.len();
    for _ in 0..dice.below(400) {
        let partition = dice.below(partitions as u64) as usize;
        match dice.below(100) {
            0..25 => life.pulls.extend(life.consumer.begin_pull(&name(partition))),
            25..45 if !life.pulls.is_empty() => {
                let pull = life.pulls.swap_remove(dice.below(life.pulls.len() as u64) as usize);
                answer(&mut life, dice, pull);
            }
            45..60 => life.works.extend(life.consumer.begin_work()),
            60..80 if !life.works.is_empty() => {
                let work = life.works.swap_remove(dice.below(life.works.len() as u64) as usize);
                // A worker may be lost.
                if dice.percent(95) { work.run() } else { drop(work) }
            }
            80..88 => {
                let wait = *dice.pick(&[1, 10, 1_000, 6_000, 25_000, 100_000, 1_000_000]);
                life.consumer.advance(Duration::from_millis(dice.below(wait)));
            }
            88..94 => {
                life.consumer.tick();
            }
            94 => {
                // A failure is planted; the next one carries what this did not.
                let _ = life.consumer.publish();
            }
            95 => {
                life.consumer.suspend(&name(partition));
            }
            96 => {
                life.consumer.resume(&name(partition));
            }
            97 => rebalance(&mut life, dice, partition),
            98 => match dice.below(3) {
                0 if world.plan.locks => {
                    world.taken.lock().unwrap().remove(&partition);
                }
                1 if world.plan.locks => other_takes(&mut life, dice, partition),
                _ => {
                    let low = world.log(partition).low;
                    let end = world.log(partition).end;
                    world.cut(partition, low + dice.below(5).min(end - low));
                }
            },
            99 if dice.percent(20) => {
                drop(life);
                life = begin();
            }
            _ => {}
        }
        within_limits(&life);
    }
    if world.plan.mode == Mode::Manual {
        // What is kept waits for a batch that may not come, because all that fits is kept, or
        // because it was the last.
        drop(life);
        world.calm.store(true, std::sync::atomic::Ordering::SeqCst);
        life = begin();
    }
    life.finish();
}

/// Ends a pull: truly, with an error, with nonsense, or with nothing new.
fn answer<W>(life: &mut Life<W>, dice: &mut Dice, pull: inflight::consumer::Pull<W>)
where
    W: Window<Value = Letter> + Send + Sync + 'static,
{
    if !dice.percent(life.world.plan.faults) {
        return life.consumer.pull(pull);
    }
    let from = pull.request().from;
    let answer = match dice.below(4) {
        0 => Err("planted".into()),
        1 => Ok(Pulled::NothingMatched { next: from }),
        2 => Ok(Pulled::Found { messages: Vec::new(), next: from.saturating_sub(1) }),
        _ => Ok(Pulled::NothingNew),
    };
    life.consumer.answer(pull, answer);
}

/// A partition goes, or comes back.
fn rebalance<W>(life: &mut Life<W>, dice: &mut Dice, partition: usize)
where
    W: Window<Value = Letter> + Send + Sync + 'static,
{
    let mut named: Vec<_> = life.consumer.partitions();
    match named.iter().position(|one| *one == name(partition)) {
        Some(at) => {
            named.remove(at);
        }
        None => {
            life.world.own(partition, true);
            named.push(name(partition));
        }
    }
    let number = |name: &String| name[1..].parse().unwrap();
    let partitions = named.iter().map(|name| World::partition(number(name))).collect();
    let released = life.consumer.assign(partitions).unwrap();
    for report in &released {
        // From now on nothing of it may be published; another may consume it.
        life.world.own(partition, false);
        assert!(report.published <= report.watermark);
        if dice.percent(30) {
            let end = life.world.log(partition).end;
            let to = report.published + dice.below(end.saturating_sub(report.published) + 1);
            life.world.other_consumes(partition, to);
        }
    }
}

/// Another consumer has the lock, once ours has run out, and consumes.
fn other_takes<W>(life: &mut Life<W>, dice: &mut Dice, partition: usize)
where
    W: Window<Value = Letter> + Send + Sync + 'static,
{
    // Its lease has run out before another can get it.
    life.consumer.advance(Duration::from_millis(30_001));
    life.world.taken.lock().unwrap().insert(partition);
    let (stored, end) = {
        let log = life.world.log(partition);
        (log.stored(), log.end)
    };
    let to = stored + dice.below(end.saturating_sub(stored) + 1);
    life.world.other_consumes(partition, to);
}

fn seeds() -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text: String| text.parse().ok());
    match number("INFLIGHT_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("INFLIGHT_LIVES").unwrap_or(20_000),
    }
}

#[test]
fn random_lives_lose_nothing() {
    for seed in seeds() {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| live(seed))) {
            eprintln!("the life of seed {seed} failed: INFLIGHT_SEED={seed} runs it again");
            resume_unwind(panic);
        }
    }
}

/// A world of ten messages, of which nobody has dealt with any; what must not happen is told.
fn notices(mode: Mode, what: &str, wrong: impl Fn(&std::sync::Arc<World>)) {
    let mut dice = Dice::new(7);
    let plan = Plan { mode, faults: 0, ..plan(7, &mut dice) };
    let letter = |offset| Letter { offset, key: 0, wanted: true, not_before: None, tries: 0 };
    let mut log = Log::default();
    log.letters = (0..10).map(letter).collect();
    log.end = 10;
    let world = World::new(plan, vec![log]);
    world.own(0, true);
    world.check();
    wrong(&world);
    let told = catch_unwind(AssertUnwindSafe(|| world.check())).unwrap_err();
    let told = told.downcast::<String>().unwrap();
    assert!(told.contains(what), "{told}");
}

/// The checks above can fail: each is shown what it is there to notice.
#[test]
fn what_must_not_happen_is_noticed() {
    notices(Mode::Concurrent, "p0 1 was published above 0", |world| world.publish(0, 1));
    notices(Mode::Concurrent, "p0 5 was published after 6", |world| {
        world.other_consumes(0, 6);
        world.publish(0, 5);
    });
    notices(Mode::Concurrent, "p0 0 was published after it was released", |world| {
        world.own(0, false);
        world.publish(0, 0);
    });
    notices(Mode::Concurrent, "p0 11 is beyond the log", |world| {
        world.other_consumes(0, 10);
        world.publish(0, 11);
    });
    for mode in [Mode::Orderly, Mode::Manual, Mode::Keyed] {
        notices(mode, "p0 3 was handled before 0", |world| world.handle_one(0, 3));
    }
}

/// And a message that nobody deals with is missed in the end.
#[test]
fn what_is_lost_is_noticed() {
    let mut dice = Dice::new(9);
    let plan = Plan { mode: Mode::Concurrent, faults: 0, locks: false, ..plan(9, &mut dice) };
    let letter =
        |offset| Letter { offset, key: 0, wanted: offset != 1, not_before: None, tries: 0 };
    let mut log = Log::default();
    log.letters = (0..3).map(letter).collect();
    log.end = 3;
    let world = World::new(plan, vec![log]);
    // The filter keeps 1 out, and in this world somebody wanted it.
    let consumer = world.builder().stepped().unwrap();
    let life = Life::new(&world, consumer);
    let told = catch_unwind(AssertUnwindSafe(|| life.finish())).unwrap_err();
    let told = told.downcast::<String>().unwrap();
    assert!(told.contains("published above 1"), "{told}");
}
