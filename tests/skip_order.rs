//! The order of the skip window against `crossbeam-skiplist`, which says what the lowest is.
#![cfg(not(miri))]

use crossbeam_skiplist::SkipMap;
use inflight::{SkipWindow, Window};

/// A small generator (splitmix64): the same numbers in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % n
    }
}

#[test]
fn takes_come_in_the_order_of_a_map() {
    for (seed, spread) in [(1, 300), (2, 20_000), (3, 5_000_000)] {
        let mut numbers = Numbers(seed);
        let window = SkipWindow::with_callers_seal();
        let part = window.assign(0);
        // What waits, and what is unfinished.
        let waiting = SkipMap::new();
        let unfinished = SkipMap::new();
        let (mut low, mut seal) = (0, 0);
        for step in 0..20_000_u64 {
            match numbers.below(8) {
                0..=3 => {
                    let offset = low + numbers.below(spread);
                    if part.put(offset, step).is_ok() {
                        assert!(!unfinished.contains_key(&offset), "admitted twice");
                        waiting.insert(offset, step);
                        unfinished.insert(offset, ());
                    }
                }
                4 | 5 => {
                    let wanted = 1 + numbers.below(5) as usize;
                    let expected: Vec<(u64, u64)> =
                        waiting.iter().take(wanted).map(|e| (*e.key(), *e.value())).collect();
                    let Ok(lease) = part.take(wanted) else {
                        assert!(expected.is_empty(), "a ready message is not found");
                        continue;
                    };
                    assert!(lease.iter().map(|(offset, id)| (offset, *id)).eq(expected.clone()));
                    if numbers.below(3) == 0 {
                        lease.rollback().unwrap();
                        continue;
                    }
                    lease.commit().unwrap();
                    for (offset, _) in expected {
                        waiting.remove(&offset);
                        unfinished.remove(&offset);
                    }
                }
                6 => {
                    let from = low + numbers.below(spread);
                    if let Some(entry) = waiting.range(from..).next() {
                        part.remove(*entry.key()).unwrap();
                        unfinished.remove(entry.key());
                        entry.remove();
                    }
                }
                _ => {
                    seal = seal.max(low + numbers.below(spread / 4));
                    part.advance_to(seal).unwrap();
                }
            }
            let lowest = unfinished.front().map_or(u64::MAX, |entry| *entry.key());
            low = part.watermark().unwrap().get();
            assert!(low <= lowest, "above an unfinished offset");
            assert_eq!(part.min_offset().unwrap().get(), lowest.min(seal.max(low)));
            low = part.watermark().unwrap().get();
            assert_eq!(window.count(), unfinished.len());
        }
    }
}
