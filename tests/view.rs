//! What the example `consume --view` draws, on a terminal that is a buffer. How it takes and gives
//! back a real one: `tests/consume.rs`.
#![cfg(all(feature = "std", not(miri)))]

#[path = "../examples/consume/view.rs"]
mod view;

use std::time::Duration;

use inflight::{RingWindow, Window};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::Color;
use view::Partition;

fn drawn(width: u16, height: u16, ending: bool, partitions: &[Partition]) -> Vec<String> {
    let buffer = terminal(width, height, ending, partitions).backend().buffer().clone();
    let cells = buffer.content().iter().map(|cell| cell.symbol());
    let text: Vec<&str> = cells.collect();
    text.chunks(width.into()).map(|row| row.concat().trim_end().to_owned()).collect()
}

fn terminal(
    width: u16,
    height: u16,
    ending: bool,
    partitions: &[Partition],
) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let seconds = Duration::from_millis(12_340).as_secs_f64();
    terminal.draw(|frame| view::draw(frame, seconds, ending, partitions)).unwrap();
    terminal
}

/// A window in a known state, and its picture.
fn known() -> Partition {
    let window = RingWindow::<(), 32>::new();
    let part = window.assign(100);
    part.put_batch(&mut (100..120).map(|n| (n, ()))).unwrap();
    part.take_shared(6).unwrap().detach();
    part.remove_batch([102, 103, 108]).unwrap();
    part.at(1).revoke(104).unwrap().detach();
    let lent = part.at(1).revoke(105).unwrap();
    let picture = part.picture(16).to_string();
    drop(lent);
    Partition {
        name: "orders-0".into(),
        watermark: 100,
        rate: 1234.4,
        waiting: 13,
        held: 4,
        span: 20,
        head: " head 100 held 7 ms".into(),
        picture,
    }
}

#[test]
fn a_known_state_is_drawn() {
    assert_eq!(
        drawn(72, 7, false, &[known()]),
        [
            "consume  12.3 s  q: end",
            "",
            "orders-0  1234/s  waiting 13  held 4  span 20",
            "········|██··█▓░░·░░░░░░░| +4",
            "  watermark 100 head 100 held 7 ms",
            "",
            "· done  ░ waiting  █ held  ▓ being taken away",
        ]
    );
}

#[test]
fn the_cells_are_told_apart_by_color_too() {
    let terminal = terminal(72, 7, false, &[known()]);
    let color = |column| terminal.backend().buffer()[(column, 3)].fg;
    let colors: Vec<_> = [0, 9, 11, 14, 15].into_iter().map(color).collect();
    assert_eq!(colors, [Color::Green, Color::Yellow, Color::Green, Color::Red, Color::Gray]);
}

#[test]
fn the_window_slides_under_a_watermark_that_stands_still() {
    let window = RingWindow::<(), 8>::new();
    let part = window.assign(0);
    let row = || {
        let watermark = part.watermark().unwrap().get();
        let picture = part.picture(8).to_string();
        let partition = Partition { watermark, picture, ..Partition::default() };
        drawn(40, 7, false, &[partition])[3].clone()
    };
    assert_eq!(row(), "        ||");
    part.put_batch(&mut (0..4).map(|n| (n, ()))).unwrap();
    let lease = part.take_shared(3).unwrap();
    part.remove(1).unwrap();
    assert_eq!(row(), "        |█·█░|");
    lease.commit().unwrap();
    assert_eq!(row(), "     ···|░|");
    part.put_batch(&mut (4..10).map(|n| (n, ()))).unwrap();
    part.take(7).unwrap().commit().unwrap();
    assert_eq!(row(), "········||");
}

#[test]
fn what_does_not_fit_is_left_out() {
    let partitions: Vec<_> =
        (0..5).map(|n| Partition { name: format!("p{n}"), ..known() }).collect();
    let rows = drawn(40, 11, true, &partitions);
    assert_eq!(rows[0], "consume  12.3 s  ending, again: at once");
    assert!(rows[2].starts_with("p0  ") && rows[6].starts_with("p1  "));
    assert_eq!(rows[10], "and 3 more partitions");
    // Whatever the size, nothing panics.
    for (width, height) in [(0, 0), (1, 1), (3, 200), (500, 2), (9, 5)] {
        assert_eq!(drawn_size(width, height, &partitions), (width, height));
        view::places(width);
    }
}

fn drawn_size(width: u16, height: u16, partitions: &[Partition]) -> (u16, u16) {
    let area = terminal(width, height, false, partitions).backend().buffer().area;
    (area.width, area.height)
}

#[test]
fn as_many_places_are_asked_for_as_fit() {
    let wide = "w".repeat(view::places(60));
    let picture = format!("5 |{wide}| +1000000");
    let partition = Partition { watermark: 5, picture, ..Partition::default() };
    let row = &drawn(60, 7, false, &[partition])[3];
    assert_eq!(row.chars().count(), 60);
    assert!(row.ends_with("░| +1000000"));
    assert_eq!(view::places(0), 0);
}

#[test]
fn between_two_assignments_there_is_no_window() {
    for picture in ["stale", ""] {
        let partition = Partition { picture: picture.into(), ..Partition::default() };
        assert_eq!(drawn(40, 7, false, &[partition])[3], "  no window");
    }
}
