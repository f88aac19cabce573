//! The watermark in two words, as 32-bit targets have it, here of 3 bits: it wraps every eight.

use std::sync::Arc;

use inflight::model::Wide;

use crate::harness::{both, models, three};

models! {
    slider_and_reader: "a slider over two halves beside a reader", "1 2", 3,
        [HalfMismatch], [PairReadOnce, CountNotReread, LowFirst];
    two_sliders: "two sliders over two halves", "1 2 3", 3,
        [WatermarkLost], [RepairAfterMove];
    two_sliders_and_reader: "two sliders beside a reader", "1 2", 2,
        [WatermarkLost], [RepairAfterMove];
}

/// Reads three times: never back, and never at a position nobody was at.
fn read(wide: &Wide, positions: &[u64]) {
    let mut last = 0;
    for _ in 0..3 {
        let at = wide.load();
        assert!(positions.contains(&at), "at {at}");
        assert!(at >= last, "from {last} back to {at}");
        last = at;
    }
}

fn slider_and_reader() {
    let wide = Arc::new(Wide::new(3));
    let other = wide.clone();
    both(
        move || {
            for to in [5, 9, 12] {
                assert_eq!(other.raise(to), to);
            }
        },
        || read(&wide, &[3, 5, 9, 12]),
    );
    assert_eq!(wide.load(), 12);
}

fn two_sliders() {
    let wide = Arc::new(Wide::new(3));
    let other = wide.clone();
    let (one, two) = both(
        move || {
            assert!(other.raise(6) >= 6);
            other.raise(9)
        },
        || {
            assert!(wide.raise(7) >= 7);
            wide.raise(10)
        },
    );
    assert!([9, 10].contains(&one) && two == 10, "{one}, {two}");
    // Less than a whole range in all: the horizon of a raise that is stopped.
    assert_eq!(wide.load(), 10);
}

fn two_sliders_and_reader() {
    let wide = Arc::new(Wide::new(3));
    let (one, two) = (wide.clone(), wide.clone());
    three(
        move || {
            one.raise(5);
        },
        move || {
            two.raise(9);
        },
        // 7 is where a raise to 9 rests, since it moves by half a range at most.
        || read(&wide, &[3, 5, 7, 9]),
    );
    assert_eq!(wide.load(), 9);
}
