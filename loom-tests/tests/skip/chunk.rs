//! Chunks: made, sealed before they are made, given back.

use inflight::RemoveError;

use crate::harness::{both, models, three};
use crate::support::{
    ended, not_above, put, put_unless_sealed, remove, remove_if_there, settled, skip,
    skip_with_callers_seal, slid,
};

models! {
    one_chunk_twice: "two puts of one chunk that is not there", "1 3 5 7", 3,
        [], [ChunkByStore];
    make_beside_seal: "a put that makes a chunk beside a seal that ends in it", "1 3 4 5 7", 3,
        [Sealed, PutPassed], [ChunkForgetsSeal, GapUnsealed];
    late_puts_beside_seal: "two puts of a chunk beside a seal that ends between them", "1 3 4 5 7", 2 / 1,
        [Sealed], [ChunkForgetsSeal];
    seal_beside_put_of_a_made_chunk: "a put in a chunk that is there beside its seal", "1 3 4 5 7", 3,
        [Sealed, PutPassed], [GapUnsealed, SlidePassesFilling, PutIgnoresLap];
    give_back_beside_put: "a chunk given back beside a put in it", "1 3 4 5 7", 3,
        [ChunkGivenBack, Sealed], [GivenBackFilling];
    give_back_beside_finisher: "a chunk given back beside another finisher in it", "3 4 7", 3,
        [ChunkGivenBack], [];
    give_back_beside_second_remove: "a chunk given back beside a second remove of its message", "4 7", 3,
        [ChunkGivenBack], [];
    give_back_beside_take: "a chunk given back beside a take that scans over it", "3 5 6 7", 3,
        [ChunkGivenBack], [];
    give_back_beside_slide: "a chunk given back beside the slide that comes to it", "1 3 7", 3 / 2,
        [ChunkGivenBack], [];
}

fn one_chunk_twice() {
    let (window, part) = skip_with_callers_seal();
    let other = part.clone();
    both(move || put(&other, [4]), || put(&part, [5]));
    remove(&part, [4, 5]);
    part.advance_to(6).unwrap();
    settled(&part, 6, 0);
    ended(window, part);
}

fn make_beside_seal() {
    let (window, part) = skip_with_callers_seal();
    let other = part.clone();
    let (_, admitted) = both(
        move || {
            other.advance_to(6).unwrap();
        },
        || {
            put(&part, [7]);
            let admitted = put_unless_sealed(&part, 5);
            if admitted {
                not_above(&part, 5);
            }
            admitted
        },
    );
    if admitted {
        slid(&part, 5, 2);
        remove(&part, [5]);
    }
    settled(&part, 6, 1);
    remove(&part, [7]);
    part.advance_to(8).unwrap();
    settled(&part, 8, 0);
    ended(window, part);
}

fn late_puts_beside_seal() {
    let (window, part) = skip_with_callers_seal();
    let (one, two) = (part.clone(), part.clone());
    let (_, _, admitted) = three(
        move || {
            one.advance_to(6).unwrap();
        },
        move || put(&two, [7]),
        || {
            let admitted = put_unless_sealed(&part, 5);
            if admitted {
                not_above(&part, 5);
            }
            admitted
        },
    );
    if admitted {
        slid(&part, 5, 2);
        remove(&part, [5]);
    }
    settled(&part, 6, 1);
    remove(&part, [7]);
    part.advance_to(8).unwrap();
    settled(&part, 8, 0);
    ended(window, part);
}

fn seal_beside_put_of_a_made_chunk() {
    let (window, part) = skip_with_callers_seal();
    put(&part, [4]);
    remove(&part, [4]);
    let other = part.clone();
    let (_, admitted) = both(
        move || {
            other.advance_to(7).unwrap();
        },
        || {
            let admitted = put_unless_sealed(&part, 6);
            if admitted {
                not_above(&part, 6);
            }
            admitted
        },
    );
    if admitted {
        slid(&part, 6, 1);
        remove(&part, [6]);
    }
    settled(&part, 7, 0);
    ended(window, part);
}

fn give_back_beside_put() {
    let (window, part) = skip();
    put(&part, [0, 64, 68, 128]);
    let other = part.clone();
    let (_, admitted) = both(move || remove(&other, [68]), || put_unless_sealed(&part, 69));
    slid(&part, 0, 3 + usize::from(admitted));
    if admitted {
        remove(&part, [69]);
    }
    remove(&part, [64, 128, 0]);
    settled(&part, 129, 0);
    ended(window, part);
}

fn give_back_beside_finisher() {
    let (window, part) = skip();
    put(&part, [0, 64]);
    put(&part, 68..72);
    remove(&part, [70, 71]);
    let other = part.clone();
    both(move || remove(&other, [68]), || remove(&part, [69]));
    slid(&part, 0, 2);
    remove(&part, [0, 64]);
    settled(&part, 72, 0);
    ended(window, part);
}

fn give_back_beside_second_remove() {
    let (window, part) = skip();
    put(&part, [0, 64]);
    put(&part, 68..72);
    remove(&part, 69..72);
    let other = part.clone();
    let (one, two) = both(
        move || remove_if_there(&other, 68),
        || {
            let won = remove_if_there(&part, 68);
            assert_eq!(part.remove(68), Err(RemoveError::Passed));
            won
        },
    );
    assert!(one != two);
    slid(&part, 0, 2);
    remove(&part, [0, 64]);
    settled(&part, 72, 0);
    ended(window, part);
}

fn give_back_beside_take() {
    let (window, part) = skip();
    put(&part, [0, 64]);
    put(&part, 68..73);
    remove(&part, 69..72);
    let head = part.take(1).unwrap();
    let beside = part.take(1).unwrap();
    let other = part.clone();
    let (won, taken) =
        both(move || remove_if_other(&other, 68), || crate::support::take_one(&part).unwrap());
    assert_eq!(taken, if won { 72 } else { 68 });
    if !won {
        assert_eq!(crate::support::take_one(&part), Some(72));
    }
    beside.commit().unwrap();
    head.commit().unwrap();
    settled(&part, 73, 0);
    ended(window, part);
}

/// Removes a message that a take may have at the same time.
fn remove_if_other(part: &crate::support::Part, offset: u64) -> bool {
    match part.remove(offset) {
        Ok(_) => true,
        Err(RemoveError::Held | RemoveError::Passed) => false,
        Err(error) => panic!("{error:?}"),
    }
}

fn give_back_beside_slide() {
    let (window, part) = skip();
    put(&part, [0, 64, 68, 72]);
    remove(&part, [64, 72]);
    let other = part.clone();
    both(move || remove(&other, [0]), || remove(&part, [68]));
    settled(&part, 73, 0);
    ended(window, part);
}
