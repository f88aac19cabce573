//! What a lease gives back is taken again lowest first, whichever way it is given back.

use inflight::{RingWindow, Window};

fn taken(part: &inflight::Assignment<&RingWindow<u64, 8>>) -> Vec<u64> {
    part.take(8).unwrap().iter().map(|(offset, _)| offset).collect()
}

#[test]
fn values_not_yielded_are_taken_again_in_order() {
    let window = RingWindow::<u64, 8>::new();
    let part = window.assign(0);
    part.put_batch(&mut (0..6).map(|n| (n, n))).unwrap();

    let mut values = part.take_shared(6).unwrap().into_values();
    assert_eq!(values.next(), Some((0, 0)));
    drop(values);
    assert_eq!(taken(&part), [1, 2, 3, 4, 5]);

    let mut values = part.take(8).unwrap().into_values();
    assert_eq!(values.next(), Some((1, 1)));
    drop(values);
    assert_eq!(taken(&part), [2, 3, 4, 5]);
}
