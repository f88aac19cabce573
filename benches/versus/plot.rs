//! Plots as SVG text: a line for each contestant over a few points, on a logarithmic scale.

use std::fmt::Write as _;

/// One contestant.
pub struct Line {
    pub label: &'static str,
    /// One for each point; none where it was not measured.
    pub values: Vec<Option<f64>>,
}

/// A plot.
pub struct Plot {
    pub title: &'static str,
    pub unit: &'static str,
    /// What the points are.
    pub labels: Vec<String>,
    pub lines: Vec<Line>,
}

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 140.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 50.0;
/// Told apart also by those who do not see all colours (after Okabe and Ito).
const COLOURS: [&str; 5] = ["#0072b2", "#009e73", "#d55e00", "#cc79a7", "#8c6d00"];

impl Plot {
    /// The text of the picture.
    pub fn svg(&self) -> String {
        let values = || self.lines.iter().flat_map(|line| line.values.iter().flatten().copied());
        let low = values().fold(f64::INFINITY, f64::min).max(1.0);
        let high = values().fold(low, f64::max);
        let (low, high) = (low.log10().floor(), high.log10().ceil().max(low.log10().floor() + 1.0));
        let y = |value: f64| {
            let part = (value.max(1e-9).log10() - low) / (high - low);
            HEIGHT - BOTTOM - part * (HEIGHT - TOP - BOTTOM)
        };
        let points = self.labels.len();
        let x = |at: usize| LEFT + (at as f64 + 0.5) / points as f64 * (WIDTH - LEFT - RIGHT);
        let mut out = String::new();
        let _ = writeln!(
            out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             font-family=\"sans-serif\" font-size=\"13\">\n\
             <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#ffffff\"/>\n\
             <text x=\"{LEFT}\" y=\"24\" font-size=\"16\">{}</text>\n\
             <text x=\"{LEFT}\" y=\"42\" fill=\"#555555\">{}, lower is better</text>",
            self.title, self.unit
        );
        for power in low as i32..=high as i32 {
            for step in [1.0, 2.0, 5.0] {
                let value = step * 10f64.powi(power);
                if value.log10() > high + 1e-9 {
                    continue;
                }
                let (y, end) = (y(value), WIDTH - RIGHT);
                let _ = writeln!(
                    out,
                    "<line x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{end}\" y2=\"{y:.1}\" stroke=\"#dddddd\"/>\n\
                     <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" font-size=\"11\">{value}</text>",
                    LEFT - 8.0,
                    y + 4.0,
                );
            }
        }
        for (at, label) in self.labels.iter().enumerate() {
            let _ = writeln!(
                out,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>",
                x(at),
                HEIGHT - BOTTOM + 22.0,
            );
        }
        let mut names: Vec<(f64, &str, &str)> = Vec::new();
        for (line, colour) in self.lines.iter().zip(COLOURS) {
            let points: Vec<(f64, f64)> = line
                .values
                .iter()
                .enumerate()
                .filter_map(|(at, value)| value.map(|value| (x(at), y(value))))
                .collect();
            let Some(&(_, last)) = points.last() else { continue };
            let path: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
            let _ = writeln!(
                out,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
                path.join(" "),
            );
            for (x, y) in points {
                let _ = writeln!(
                    out,
                    "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"{colour}\"/>"
                );
            }
            names.push((last, line.label, colour));
        }
        // Names stand beside the ends of their lines, moved apart where these are close.
        names.sort_by(|one, other| one.0.total_cmp(&other.0));
        let mut above = f64::NEG_INFINITY;
        for (y, name, colour) in names {
            let y = y.max(above + 16.0);
            above = y;
            let _ = writeln!(
                out,
                "<text x=\"{:.1}\" y=\"{:.1}\" fill=\"{colour}\">{name}</text>",
                WIDTH - RIGHT + 8.0,
                y + 4.0,
            );
        }
        out.push_str("</svg>\n");
        out
    }
}
