//! Partitions that share a budget. Whoever is short looks again by itself only after an hour: here
//! nobody goes on but by being woken.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use inflight::consumer::{Batch, Builder, Consumer, Fetched, Outcome, Partition, Pulled};
use inflight::{Budget, Budgeted, RingWindow, Share};

use crate::support::{Door, FOREVER, Script, Tally, builder, wait_until};

type Shared = Budgeted<Box<RingWindow<u64, 2048>>, Arc<Budget>>;

/// A consumer whose windows share a budget, with a floor for each.
fn sharing(
    source: &Arc<Script>,
    budget: &Arc<Budget>,
    floor: usize,
) -> Builder<Arc<Script>, Shared> {
    let budget = Arc::clone(budget);
    builder(source).batch(1).pull_retry(Duration::from_secs(3600)).window(move |_| {
        let share = Share::with_floor(Arc::clone(&budget), floor, 0).expect("the floors fit");
        Box::new(Budgeted::new(RingWindow::boxed(), share))
    })
}

fn counts(consumer: &Consumer) -> Vec<usize> {
    consumer.progress().partitions.iter().map(|one| one.count).collect()
}

#[test]
fn together_they_have_no_more_than_the_budget() {
    let source = Script::dense(&[3_000, 2_000, 1_000]);
    let budget = Arc::new(Budget::new(10, 7));
    let (tally, most) = (Arc::new(Tally::default()), Arc::new(AtomicUsize::new(0)));
    let (counted, highest, seen) = (Arc::clone(&tally), Arc::clone(&most), Arc::clone(&budget));
    let consumer = sharing(&source, &budget, 0)
        .concurrent(move |batch: &Batch<u64>| -> Outcome {
            // What is not free: what is in the windows, and what pulls under way may bring.
            highest.fetch_max(7 - seen.free().bytes as usize, Ordering::SeqCst);
            for (offset, _) in batch.iter() {
                counted.count(batch.partition(), offset);
            }
            Outcome::Done
        })
        .start()
        .unwrap();
    assert!(consumer.wait_caught_up(FOREVER));
    for (index, length) in [3_000, 2_000, 1_000].into_iter().enumerate() {
        tally.assert_once(&format!("p{index}"), length);
    }
    assert!((1..=7).contains(&most.load(Ordering::SeqCst)));
    assert_eq!(consumer.shutdown(FOREVER).unwrap().left(), 0);
    assert_eq!((budget.free().count, budget.free().bytes), (10, 7), "all was given back");
}

struct Standing {
    budget: Arc<Budget>,
    door: Arc<Door>,
    /// The partition of each message that was handled.
    handled: Arc<Mutex<Vec<String>>>,
    consumer: Consumer,
}

/// The first partition has the whole budget in its handlers, which stand still until the door
/// is open; the second has a message and no room for it.
fn the_first_has_it_all(floor: usize) -> Standing {
    let (door, handled) = (Arc::new(Door::default()), Arc::new(Mutex::new(Vec::new())));
    let budget = Arc::new(Budget::new(4, 1000));
    let full = Arc::clone(&budget);
    // The second partition's first message comes when the first has used the budget up.
    let source = Script::new(2, move |partition, request| {
        let length = 4 - floor as u64;
        let until = if partition.id() == 0 { length } else { u64::from(full.free().count == 0) };
        Ok(crate::support::dense(request, until))
    });
    let (stand, dealt) = (Arc::clone(&door), Arc::clone(&handled));
    let consumer = sharing(&source, &budget, floor)
        .workers(8)
        .pull_idle(Duration::from_millis(1))
        .concurrent(move |batch: &Batch<u64>| -> Outcome {
            if batch.partition() == "p0" {
                stand.pass();
            }
            dealt.lock().unwrap().push(batch.partition().to_owned());
            Outcome::Done
        })
        .start()
        .unwrap();
    Standing { budget, door, handled, consumer }
}

#[test]
fn what_one_finishes_wakes_another() {
    let source = Script::new(2, |partition, request| {
        Ok(crate::support::dense(request, [4, 50][partition.id()]))
    });
    let door = Arc::new(Door::default());
    let stand = Arc::clone(&door);
    let budget = Arc::new(Budget::new(4, 1000));
    let consumer = sharing(&source, &budget, 0)
        .workers(8)
        .concurrent(move |batch: &Batch<u64>| -> Outcome {
            // The one that came first has it all; the other is told when that is over.
            stand.pass();
            let _ = batch;
            Outcome::Done
        })
        .start()
        .unwrap();
    wait_until("the budget is used up", || counts(&consumer).iter().sum::<usize>() == 4);
    door.open();
    assert!(consumer.wait_caught_up(FOREVER));
    let finished: Vec<u64> =
        consumer.progress().partitions.iter().map(|one| one.finished).collect();
    assert_eq!(finished, [4, 50]);
    consumer.shutdown(FOREVER).unwrap();
}

#[test]
fn a_floor_is_nobody_elses() {
    let Standing { door, handled, consumer, .. } = the_first_has_it_all(1);
    // The first can have three of four, and stands; the second goes on with its own.
    wait_until("the second went on", || handled.lock().unwrap().contains(&"p1".to_owned()));
    assert!(!handled.lock().unwrap().contains(&"p0".to_owned()));
    door.open();
    assert!(consumer.wait_caught_up(FOREVER));
    consumer.shutdown(FOREVER).unwrap();
}

#[test]
fn a_partition_that_goes_leaves_its_part_to_the_others() {
    let Standing { budget, door, handled, consumer } = the_first_has_it_all(0);
    wait_until("the budget is used up", || budget.free().count == 0);
    std::thread::scope(|scope| {
        // Its handlers are not waited for; what they have is not theirs any more.
        scope.spawn(|| consumer.assign(vec![Partition::new(1, "p1")], Duration::ZERO).unwrap());
        wait_until("the second went on", || handled.lock().unwrap().contains(&"p1".to_owned()));
        door.open();
    });
    consumer.shutdown(FOREVER).unwrap();
}

#[test]
fn a_message_larger_than_the_budget_is_an_error_that_shows() {
    let source = Script::new(1, |_, request| {
        Ok(match request.from {
            0 => Pulled::Found { messages: vec![Fetched::new(0, 1001, 0)], next: 1 },
            _ => Pulled::NothingNew,
        })
    });
    let budget = Arc::new(Budget::new(4, 1000));
    let consumer =
        sharing(&source, &budget, 0).concurrent(|_: &Batch<u64>| Outcome::Done).start().unwrap();
    wait_until("it shows", || consumer.progress().partitions[0].last_error.is_some());
    assert_eq!(counts(&consumer), [0]);
    assert_eq!(budget.free().bytes, 1000, "it waits with nothing in its hands");
    consumer.shutdown(FOREVER).unwrap();
}
