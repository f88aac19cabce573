//! The picture of `--view`: what is drawn, and nothing of the terminal it is drawn on.
//!
//! A partition has three lines: what it counts, its window from the watermark on, its head. The
//! watermark stands still, and the window slides under it: what lies left of the bar is done.

use ratatui::Frame;
use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

/// Cells left of the watermark.
const BEHIND: usize = 8;
/// Lines of a partition, with the empty one below.
const HEIGHT: usize = 4;
/// The header and the legend.
const AROUND: usize = 3;

/// A partition as it is drawn.
#[derive(Clone, Debug, Default)]
pub struct Partition {
    pub name: String,
    pub watermark: u64,
    /// Messages a second.
    pub rate: f64,
    pub waiting: u64,
    pub held: u64,
    pub span: u64,
    /// Which message holds the watermark, and for how long.
    pub head: String,
    /// As the consumer shows it: a letter for each place from the watermark on, between two bars,
    /// and how many more there are.
    pub picture: String,
}

/// How many places of a window fit into so many columns.
pub fn places(columns: u16) -> usize {
    // The two bars, and room for the number of those that do not fit.
    usize::from(columns).saturating_sub(BEHIND + 2 + " +1000000".len())
}

/// Draws the partitions, as many as there is room for.
pub fn draw(frame: &mut Frame, seconds: f64, ending: bool, partitions: &[Partition]) {
    let area = frame.area();
    let room = usize::from(area.height).saturating_sub(AROUND) / HEIGHT;
    let hint = if ending { "ending, again: at once" } else { "q: end" };
    let mut lines = vec![Line::from(format!("consume  {seconds:.1} s  {hint}")), Line::default()];
    for partition in partitions.iter().take(room) {
        lines.push(counts(partition));
        lines.push(window(partition));
        let Partition { watermark, head, .. } = partition;
        lines.push(Line::from(format!("  watermark {watermark}{head}")));
        lines.push(Line::default());
    }
    match partitions.len().saturating_sub(room) {
        0 => lines.push(legend()),
        more => lines.push(Line::from(format!("and {more} more partitions"))),
    }
    frame.render_widget(Paragraph::new(lines), area);
}

fn counts(partition: &Partition) -> Line<'static> {
    let Partition { name, rate, waiting, held, span, .. } = partition;
    Line::from(vec![
        Span::styled(name.clone(), Style::new().bold()),
        format!("  {rate:.0}/s  waiting {waiting}  held {held}  span {span}").into(),
    ])
}

fn window(partition: &Partition) -> Line<'static> {
    let mut parts = partition.picture.split('|').skip(1);
    let (Some(letters), Some(more)) = (parts.next(), parts.next()) else {
        // Between two assignments.
        return Line::from("  no window");
    };
    // At the log's start there is nothing behind.
    let behind = usize::try_from(partition.watermark).unwrap_or(BEHIND).min(BEHIND);
    let mut spans = vec![Span::raw(" ".repeat(BEHIND - behind)), cells('.', behind), "|".into()];
    let mut letters = letters.chars().peekable();
    while let Some(letter) = letters.next() {
        let mut same = 1;
        while letters.next_if_eq(&letter).is_some() {
            same += 1;
        }
        spans.push(cells(letter, same));
    }
    spans.extend(["|".into(), more.to_string().into()]);
    Line::from(spans)
}

/// So many places that are doing the same, by the letter of it.
fn cells(letter: char, count: usize) -> Span<'static> {
    let (cell, color) = match letter {
        '.' => ("·", Color::Green),
        'w' => ("░", Color::Gray),
        // Lent: it is being taken away from whoever held it.
        'l' => ("▓", Color::Red),
        'h' => ("█", Color::Yellow),
        'f' => ("+", Color::Gray),
        'x' => ("-", Color::Green),
        _ => (" ", Color::Reset),
    };
    Span::styled(cell.repeat(count), Style::new().fg(color))
}

fn legend() -> Line<'static> {
    let named = |letter, name: &'static str| [cells(letter, 1), format!(" {name}  ").into()];
    let all = [('.', "done"), ('w', "waiting"), ('h', "held"), ('l', "being taken away")];
    Line::from_iter(all.into_iter().flat_map(|(letter, name)| named(letter, name)))
}
