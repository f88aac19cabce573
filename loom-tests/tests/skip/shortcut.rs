//! Shortcuts and reclamation: a block linked into table and tower while it is passed.

use inflight::RemoveError;

use crate::harness::{Token, both, models, three};
use crate::support::{
    ended, put, put_unless_sealed, remove, settled, skip_with_callers_seal, slid,
};

models! {
    link_beside_pass: "a block linked into the shortcuts while it and the next are passed", "3 4 7", 3 / 2,
        [LastReference], [NoLastReference, EntryAfterReference];
    through_a_passed_block: "a call that starts at a block whose maker has not left it", "3 4 5 7", 3 / 2,
        [LastReference], [ThroughPassed];
    two_towers: "two blocks linked into one level", "5", 2,
        [], [];
    tower_beside_pop: "a block linked into a level beside the pop of the one before it", "3 5 7", 3,
        [LastReference], [UpperNotFrozen];
    two_blocks_beside_pass: "two blocks linked while everything is passed", "3 4 7", 1,
        [LastReference], [];
    grow_beside_pass: "the table grows while a block that it shows is passed", "3 4 7", 3 / 2,
        [LastReference], [OlderNotCleared, OlderAfterCurrent];
    grow_twice_beside_lookup: "the table grows for the second time beside calls that look at it", "4 5 7", 3 / 2,
        [FoundInOlder, TableRetired], [OlderRetired];
    chunk_given_back_beside_lookup: "the chunk of a dense block given back beside a call that looks for it", "4 7", 3,
        [ChunkGivenBack, FoundByChunk], [ChunkStaysShown];
    chunk_counted_out: "the last two messages of a dense block's chunk finished at once", "1 4 7", 3,
        [ChunkGivenBack, ChunkCounted], [ChunkGivenBackEarly];
    chunk_shown_beside_give_back: "the chunk of a dense block shown while it is given back", "3 4 7", 2 / 1,
        [ChunkGivenBack, FoundByChunk], [ChunkNotKept];
    chunk_beside_pass: "the chunk of a dense block given back while the block is passed", "3 4 7", 2 / 1,
        [ChunkGivenBack, LastReference], [ChunkOutlivesBlock];
}

/// The block at 64 is dense, since what lies before it is in use.
fn dense(part: &crate::support::Part) {
    put(part, 60..64);
    put(part, [0, 64]);
    remove(part, 60..64);
}

fn chunk_given_back_beside_lookup() {
    let (window, part) = skip_with_callers_seal();
    dense(&part);
    put(&part, [65]);
    part.advance_to(128).unwrap();
    let other = part.clone();
    both(
        move || remove(&other, [65]),
        || {
            let gone = part.remove(66);
            assert!(matches!(gone, Err(RemoveError::Unknown | RemoveError::Passed)), "{gone:?}");
        },
    );
    remove(&part, [64, 0]);
    settled(&part, 128, 0);
    ended(window, part);
}

fn chunk_counted_out() {
    let (window, part) = skip_with_callers_seal();
    dense(&part);
    put(&part, 65..128);
    remove(&part, 65..126);
    let other = part.clone();
    both(move || remove(&other, [126]), || remove(&part, [127]));
    remove(&part, [64]);
    slid(&part, 0, 1);
    remove(&part, [0]);
    part.advance_to(128).unwrap();
    settled(&part, 128, 0);
    ended(window, part);
}

fn chunk_shown_beside_give_back() {
    let (window, part) = skip_with_callers_seal();
    dense(&part);
    let other = part.clone();
    let (admitted, _) = both(
        move || put_unless_sealed(&other, 65),
        || {
            put(&part, [66]);
            part.advance_to(128).unwrap();
            remove(&part, [66]);
        },
    );
    assert_eq!(part.remove(66), Err(RemoveError::Passed));
    if admitted {
        remove(&part, [65]);
    }
    remove(&part, [64, 0]);
    settled(&part, 128, 0);
    ended(window, part);
}

/// The block at 320 would have the entry of the one at 64.
fn chunk_beside_pass() {
    let (window, part) = skip_with_callers_seal();
    dense(&part);
    put(&part, [128, 65]);
    part.advance_to(128).unwrap();
    remove(&part, [64]);
    let other = part.clone();
    both(
        move || remove(&other, [65]),
        || {
            remove(&part, [0]);
            assert_eq!(part.remove(325), Err(RemoveError::Unknown));
        },
    );
    slid(&part, 128, 1);
    remove(&part, [128]);
    part.advance_to(129).unwrap();
    settled(&part, 129, 0);
    ended(window, part);
}

/// A put that `advance_to` may pass before it is admitted.
fn link_beside_pass() {
    let (window, part) = skip_with_callers_seal();
    put(&part, [192]);
    let other = part.clone();
    let (admitted, _) = both(
        move || put_unless_sealed(&other, 64),
        || {
            remove(&part, [192]);
            part.advance_to(256).unwrap();
            put(&part, [257]);
        },
    );
    if admitted {
        remove(&part, [64]);
    }
    remove(&part, [257]);
    part.advance_to(258).unwrap();
    settled(&part, 258, 0);
    ended(window, part);
}

/// The block at 64 has the entry that the one at 320 had: what looks for that begins elsewhere.
fn through_a_passed_block() {
    let (window, part) = skip_with_callers_seal();
    put(&part, [128, 320]);
    remove(&part, [128]);
    let other = part.clone();
    let (_, admitted) = both(
        move || {
            other.advance_to(320).unwrap();
            remove(&other, [320]);
        },
        || put_unless_sealed(&part, 64),
    );
    if admitted {
        remove(&part, [64]);
    }
    part.advance_to(321).unwrap();
    settled(&part, 321, 0);
    ended(window, part);
}

fn two_towers() {
    let (window, part) = skip_with_callers_seal();
    let other = part.clone();
    both(move || put(&other, [64]), || put(&part, [128]));
    window.check_shortcuts();
    remove(&part, [64, 128]);
    part.advance_to(129).unwrap();
    settled(&part, 129, 0);
    ended(window, part);
}

fn tower_beside_pop() {
    let (window, part) = skip_with_callers_seal();
    let other = part.clone();
    both(
        move || {
            other.advance_to(64).unwrap();
        },
        || put(&part, [64]),
    );
    window.check_shortcuts();
    remove(&part, [64]);
    part.advance_to(65).unwrap();
    settled(&part, 65, 0);
    ended(window, part);
}

fn two_blocks_beside_pass() {
    let (window, part) = skip_with_callers_seal();
    let (one, two) = (part.clone(), part.clone());
    let sealed_or =
        |part: &crate::support::Part, offset| part.put_sized(offset, 1, Token::new()).is_ok();
    let (first, second, _) = three(
        move || sealed_or(&one, 64),
        move || sealed_or(&two, 128),
        || part.advance_to(192).unwrap(),
    );
    if first {
        remove(&part, [64]);
    }
    if second {
        remove(&part, [128]);
    }
    settled(&part, 192, 0);
    ended(window, part);
}

/// The third block makes the table grow. What is not there is looked for in the older one, in the
/// entry where the first block was.
fn grow_beside_pass() {
    let (window, part) = skip_with_callers_seal();
    put(&part, [64]);
    let other = part.clone();
    both(
        move || {
            other.advance_to(64).unwrap();
        },
        || {
            put(&part, [128]);
            assert_eq!(part.remove(256), Err(RemoveError::Unknown));
        },
    );
    window.check_shortcuts();
    remove(&part, [64, 128]);
    part.advance_to(129).unwrap();
    settled(&part, 129, 0);
    ended(window, part);
}

/// The third and the fifth block make the table grow.
fn grow_twice_beside_lookup() {
    let (window, part) = skip_with_callers_seal();
    put(&part, [64, 128, 192]);
    let other = part.clone();
    both(move || put(&other, [256]), || remove(&part, [64, 128]));
    window.check_shortcuts();
    remove(&part, [192, 256]);
    part.advance_to(257).unwrap();
    settled(&part, 257, 0);
    ended(window, part);
}
