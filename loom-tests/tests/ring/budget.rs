//! Budgets: never over the limit, never into another's floor, nothing lost.
//!
//! What is charged must cover what is there. Where one permit is all there is, it is a lock: who
//! has it writes a cell, and a missing ordering is a race.

use std::rc::Rc;
use std::sync::Arc;

use inflight::{
    Assignment, Budget, Budgeted, Permit, PutErrorKind, ReserveError, RingWindow, Share, Window,
};
use loom::cell::UnsafeCell;

use crate::harness::{Token, alive, both, models, three};
use crate::waiting::{bell, in_the_end, poll};

models! {
    two_reservers_at_the_limit: "two windows reserve the last message: one gets it", "4", 3,
        [], [BudgetTakenByStore];
    two_reservers_of_one_share: "two reservers of one window, with room for both", "7", 3,
        [], [BudgetUsedByStore];
    three_reservers_of_two_shares: "three reservers, room for two, one of it a floor", "4 7", 2,
        [], [BudgetTakenByStore];
    reserve_beside_finish: "reserve beside the finish of another window's message", "1 7", 3,
        [], [BudgetRelaxed];
    reserve_beside_a_permits_drop: "reserve beside the drop of the permit that has it all", "1 7", 3,
        [], [BudgetRelaxed];
    the_floor_of_one_is_never_anothers: "one takes its floor again and again beside another that wants it", "5", 3,
        [], [BudgetFloorReleased];
    two_releases_over_a_floor: "two finishes, from above the floor to below it", "7", 3,
        [], [BudgetReleasedByLook];
    a_charge_that_needs_less: "reserve beside a finish that makes room below the floor", "7", 3,
        [BudgetSurplus], [BudgetSurplusKept];
    a_put_that_pays_for_itself: "a put without a permit beside a reserve, room for one", "4 7", 3,
        [], [BudgetTakenByStore];
    assign_beside_a_permits_put: "assign beside a put under a permit", "4 7", 3,
        [PutStale], [BudgetPaidBackTwice];
    assign_beside_reserve: "assign beside reserve: what is reserved comes back", "7", 3,
        [], [];
    reserve_async_beside_finish: "one that begins to wait for a budget beside the finish that makes room", "9", 3,
        [], [ArmedUnseen, BudgetUnmet];
    reserve_async_beside_assign: "one that begins to wait for a budget beside assign", "9", 2,
        [], [ArmedUnseen, WakeAllUnmet];
}

type Paid = Budgeted<RingWindow<Token, 2>, Arc<Budget>>;
type Part = Assignment<Arc<Paid>>;

/// A window with a share of the budget.
fn window(budget: &Arc<Budget>, floor: usize) -> Arc<Paid> {
    let share = Share::with_floor(Arc::clone(budget), floor, 0).expect("there is room");
    Arc::new(Budgeted::new(RingWindow::with_callers_seal(), share))
}

/// The same, assigned at offset 0.
fn paid(budget: &Arc<Budget>, floor: usize) -> Part {
    window(budget, floor).assign_owned(0)
}

fn budget(messages: usize) -> Arc<Budget> {
    Arc::new(Budget::new(messages, 10))
}

/// Everything is back: nothing is used, and what is free is what is no floor.
#[track_caller]
fn all_back(budget: &Budget, parts: &[&Part]) {
    let shares = parts.iter().map(|part| part.window().share());
    let floors: usize = shares.clone().map(|share| share.floor().count).sum();
    for share in shares {
        assert_eq!((share.used().count, share.used().bytes), (0, 0), "used");
    }
    assert_eq!(budget.free().count, budget.limit().count - floors, "messages free");
    assert_eq!(budget.free().bytes, budget.limit().bytes, "bytes free");
    assert_eq!(alive(), (0, 0), "messages and clones left");
}

fn is_short<T>(result: &Result<T, ReserveError>) -> bool {
    matches!(result, Err(ReserveError::Short { .. }))
}

/// One of two got it, the other was told that one is missing.
#[track_caller]
fn one_of(
    one: Result<Permit<Arc<Paid>>, ReserveError>,
    two: Result<Permit<Arc<Paid>>, ReserveError>,
) {
    assert_ne!(one.is_ok(), two.is_ok());
    let (permit, refused) = if one.is_ok() { (one, two) } else { (two, one) };
    assert_eq!(permit.unwrap().messages(), 1);
    assert_eq!(refused.unwrap_err(), ReserveError::Short { messages: 1, bytes: 2 });
}

fn two_reservers_at_the_limit() {
    let budget = Arc::new(Budget::new(1, 6));
    let (a, b) = (paid(&budget, 0), paid(&budget, 0));
    let other = a.clone();
    let (one, two) = both(move || other.reserve(1, 4), || b.reserve(1, 4));
    one_of(one, two);
    all_back(&budget, &[&a, &b]);
}

fn two_reservers_of_one_share() {
    let budget = budget(2);
    let part = paid(&budget, 0);
    let other = part.clone();
    let (one, two) = both(move || other.reserve(1, 4).unwrap(), || part.reserve(1, 5).unwrap());
    let used = part.window().share().used();
    assert_eq!((used.count, used.bytes), (2, 9));
    drop((one, two));
    all_back(&budget, &[&part]);
}

fn three_reservers_of_two_shares() {
    let budget = budget(2);
    let (a, b) = (paid(&budget, 1), paid(&budget, 0));
    let (c, d) = (a.clone(), b.clone());
    let (one, two, three) =
        three(move || c.reserve(1, 0), move || d.reserve(1, 0), || b.reserve(1, 0));
    assert!(one.is_ok(), "the floor is there");
    assert_ne!(two.is_ok(), three.is_ok());
    drop((one, two, three));
    all_back(&budget, &[&a, &b]);
}

/// Something that only one may have at a time.
struct Only(UnsafeCell<u32>);

impl Only {
    /// Whoever has what is paid for does this.
    fn used(&self) {
        // SAFETY: loom says when two are in here at once, or unordered.
        self.0.with_mut(|uses| unsafe { *uses += 1 });
    }
}

/// One gives back all there is, which `have` made, beside another that reserves it.
fn reserve_beside<H: 'static>(have: fn(Part) -> H, give_back: fn(H)) {
    let budget = budget(1);
    let (a, b) = (paid(&budget, 0), paid(&budget, 0));
    let had = have(a.clone());
    // loom runs all threads of a model on one.
    let only = Rc::new(Only(UnsafeCell::new(0)));
    let same = Rc::clone(&only);
    let (_, reserved) = both(
        move || {
            same.used();
            give_back(had);
        },
        || {
            let reserved = b.reserve(1, 10);
            if reserved.is_ok() {
                only.used();
            }
            reserved
        },
    );
    assert!(reserved.is_ok() || is_short(&reserved));
    drop(reserved);
    all_back(&budget, &[&a, &b]);
}

fn reserve_beside_finish() {
    let have = |part: Part| {
        part.put_sized(0, 10, Token::new()).unwrap();
        part
    };
    reserve_beside(have, |part| {
        part.remove(0).unwrap();
    });
}

fn reserve_beside_a_permits_drop() {
    reserve_beside(|part| part.reserve(1, 10).unwrap(), drop);
}

fn the_floor_of_one_is_never_anothers() {
    let budget = budget(2);
    let (a, b) = (paid(&budget, 1), paid(&budget, 0));
    let other = a.clone();
    let (_, (one, two)) = both(
        move || {
            drop(other.reserve(1, 0).expect("its floor"));
            drop(other.reserve(1, 0).expect("its floor, again"));
        },
        || (b.reserve(1, 0), b.reserve(1, 0)),
    );
    assert!(one.is_ok() && is_short(&two));
    drop((one, two));
    all_back(&budget, &[&a, &b]);
}

fn two_releases_over_a_floor() {
    let budget = budget(3);
    let part = paid(&budget, 1);
    part.put(0, Token::new()).unwrap();
    part.put(1, Token::new()).unwrap();
    let other = part.clone();
    both(move || other.remove(0).unwrap(), || part.remove(1).unwrap());
    all_back(&budget, &[&part]);
}

fn a_charge_that_needs_less() {
    let budget = budget(2);
    let part = paid(&budget, 1);
    part.put(0, Token::new()).unwrap();
    let other = part.clone();
    let (_, reserved) = both(move || other.remove(0).unwrap(), || part.reserve(1, 0));
    drop(reserved.expect("there is room in any case"));
    all_back(&budget, &[&part]);
}

fn a_put_that_pays_for_itself() {
    let budget = budget(1);
    let (a, b) = (paid(&budget, 0), paid(&budget, 0));
    let other = a.clone();
    let (put, reserved) = both(
        move || other.put_sized(0, 1, Token::new()).map_err(|error| error.kind()),
        || b.reserve(1, 0),
    );
    assert_ne!(put.is_ok(), reserved.is_ok());
    match put {
        Ok(_) => assert_eq!(a.remove(0).unwrap().get(), 1),
        Err(kind) => assert_eq!(kind, PutErrorKind::OverBudget),
    }
    drop(reserved);
    all_back(&budget, &[&a, &b]);
}

fn assign_beside_a_permits_put() {
    let budget = budget(2);
    let window = window(&budget, 0);
    let mut permit = window.assign_owned(0).reserve(2, 4).unwrap();
    let (put, new) = both(
        move || permit.put_sized(0, 1, Token::new()).map_err(|error| error.kind()),
        || window.assign_owned(0),
    );
    assert!(put.is_ok() || put == Err(PutErrorKind::Stale));
    assert_eq!(new.window().count(), 0);
    all_back(&budget, &[&new]);
}

fn assign_beside_reserve() {
    let budget = budget(1);
    let window = window(&budget, 0);
    let part = window.assign_owned(0);
    let (reserved, new) = both(move || part.reserve(1, 1), || window.assign_owned(0));
    assert!(matches!(reserved, Ok(_) | Err(ReserveError::Stale)));
    drop(reserved);
    all_back(&budget, &[&new]);
}

fn reserve_async_beside_finish() {
    let budget = budget(1);
    let (a, b) = (paid(&budget, 0), paid(&budget, 0));
    a.put_sized(0, 10, Token::new()).unwrap();
    let finisher = a.clone();
    let (bell, waker) = bell();
    let mut reserve = b.reserve_async(1, 10);
    let (_, first) = both(move || finisher.remove(0).unwrap(), || poll(&mut reserve, &waker));
    drop(in_the_end(reserve, first, &bell).unwrap());
    all_back(&budget, &[&a, &b]);
}

fn reserve_async_beside_assign() {
    let budget = budget(1);
    let (a, window) = (paid(&budget, 0), window(&budget, 0));
    let permit = a.reserve(1, 0).unwrap();
    let (bell, waker) = bell();
    let mut reserve = window.assign_owned(0).reserve_async(1, 10);
    let (new, first) = both(move || window.assign_owned(0), || poll(&mut reserve, &waker));
    assert!(in_the_end(reserve, first, &bell).is_err());
    drop(permit);
    all_back(&budget, &[&a, &new]);
}
