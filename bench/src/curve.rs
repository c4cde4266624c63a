//! Curves as SVG: a figure for each experiment and metric, a line for each mover over a size.
//!
//! x is logarithmic. y is linear from 0 for throughput and for what arrived, and logarithmic for the rest, such as CPU time,
//! where small buffers cost ten times what large ones do.

use crate::number;
use crate::plot::{COLOURS, escape};
use crate::row::{Row, Unit};
use std::fmt::Write;

/// Of a drawing, if no name in its legend is longer.
const WIDTH: f64 = 900.0;
/// Of a character of a name, more or less.
const CHARACTER: f64 = 7.2;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 70.0;
/// Of the plot, where the legend begins.
const RIGHT: f64 = 690.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 340.0;
const LEGEND_LINE: f64 = 22.0;
/// Half the size of a marker.
const MARKER: f64 = 4.5;

/// A figure: lines over a size.
pub struct Figure {
    /// The experiment and the metric with its unit.
    pub title: String,
    /// What varies along x.
    pub axis: String,
    /// Its curves.
    pub lines: Vec<Line>,
    unit: Unit,
    y_title: &'static str,
    log_y: bool,
}

/// A line and its points, from left to right.
pub struct Line {
    /// What it is the line of.
    pub name: String,
    /// x in bytes or things, y in the unit of the figure.
    pub points: Vec<(f64, f64)>,
}

impl Figure {
    /// A place on x, as figures have it: `16 MiB`, `1,000`.
    pub fn label(&self, x: f64) -> String {
        match self.unit {
            Unit::Bytes => number::bytes(x).replace(".0 ", " "),
            Unit::Count => number::grouped(x as u64),
        }
    }

    /// Every x, from left to right.
    pub fn sizes(&self) -> Vec<f64> {
        let all = self.lines.iter().flat_map(|line| line.points.iter().map(|point| point.0));
        let mut sizes: Vec<f64> = all.collect();
        sizes.sort_by(f64::total_cmp);
        sizes.dedup();
        sizes
    }
}

/// The figures of those rows that are points of curves, in order.
pub fn figures(rows: &[&Row]) -> Vec<Figure> {
    let rows: Vec<&Row> =
        rows.iter().copied().filter(|row| row.point.is_some() && row.ours.is_some()).collect();
    let mut names: Vec<(&str, &str, &str)> = Vec::new();
    for row in &rows {
        let name = name_of(row);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let figure = |(experiment, axis, metric): &(&str, &str, &str)| {
        let (scale, y_title, log_y) = match *metric {
            "throughput" => (1e9, "throughput in GB/s", false),
            "arrived" => (1.0, "arrived, in %", false),
            "latency" => (1e3, "latency in us", true),
            "requests" => (1e6, "million requests a second", true),
            "requests per CPU second" => (1e6, "million requests per CPU second", true),
            "check" => (1.0, "ns a check", true),
            _ => (1.0, "CPU seconds per GB", true),
        };
        let here = || rows.iter().copied().filter(|row| name_of(row) == (*experiment, *axis, *metric));
        let unit = here().find_map(|row| row.point.as_ref()).map(|point| point.unit).unwrap_or_default();
        Figure {
            title: format!("{experiment}: {y_title}"),
            axis: (*axis).to_owned(),
            lines: lines_of(here(), scale),
            unit,
            y_title,
            log_y,
        }
    };
    names.iter().map(figure).collect()
}

/// As [`figures`], drawn.
pub fn render(rows: &[&Row]) -> Vec<String> {
    let figures = figures(rows);
    // A line looks the same in all of them, also where another one is missing.
    let mut names: Vec<&str> = Vec::new();
    for line in figures.iter().flat_map(|figure| &figure.lines) {
        if !names.contains(&line.name.as_str()) {
            names.push(&line.name);
        }
    }
    figures.iter().map(|figure| drawing(figure, &names)).collect()
}

/// The experiment, the axis, the metric.
fn name_of(row: &Row) -> (&str, &str, &str) {
    let (figure, axis) =
        row.point.as_ref().map_or(("", ""), |point| (point.figure.as_str(), point.axis.as_str()));
    (figure, axis, row.metric.as_str())
}

/// The peers first, then ours, each in the order in which it comes.
fn lines_of<'a>(rows: impl Iterator<Item = &'a Row>, scale: f64) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    let mut add = |name: &str, x: u64, y: f64| {
        let at = lines.iter().position(|line| line.name == name).unwrap_or_else(|| {
            lines.push(Line { name: name.to_owned(), points: Vec::new() });
            lines.len() - 1
        });
        let points = &mut lines[at].points;
        // Each row of a point names the same peer.
        if !points.iter().any(|known| known.0 == x as f64) {
            points.push((x as f64, y));
        }
    };
    for row in rows {
        let Some(point) = &row.point else { continue };
        for (name, value) in [(&row.peer, row.peer_value), (&point.line, row.ours)] {
            if let Some(value) = value.filter(|value| value.is_finite()) {
                add(name, point.x, value / scale);
            }
        }
    }
    for line in &mut lines {
        line.points.sort_by(|one, other| one.0.total_cmp(&other.0));
    }
    lines
}

/// From values to places in the drawing.
struct Axes {
    x: (f64, f64),
    y: (f64, f64),
    log_y: bool,
}

impl Axes {
    fn over(lines: &[Line], log_y: bool) -> Axes {
        let points = || lines.iter().flat_map(|line| &line.points);
        let span = |values: &mut dyn Iterator<Item = f64>| {
            values.fold((f64::INFINITY, 0f64), |(low, high), value| (low.min(value), high.max(value)))
        };
        let x = span(&mut points().map(|point| point.0));
        let (low, high) = span(&mut points().map(|point| point.1));
        let y = match log_y {
            true => ((low * 0.8).max(1e-4), (high * 1.25).max(1e-3)),
            false => (0.0, (high * 1.08).max(1e-3)),
        };
        // One point alone is in the middle.
        Axes { x: if x.0 < x.1 { x } else { (x.0 / 2.0, x.1 * 2.0) }, y, log_y }
    }

    fn x(&self, value: f64) -> f64 {
        LEFT + (value / self.x.0).ln() / (self.x.1 / self.x.0).ln() * (RIGHT - LEFT)
    }

    fn y(&self, value: f64) -> f64 {
        let share = match self.log_y {
            true => (value.max(self.y.0) / self.y.0).ln() / (self.y.1 / self.y.0).ln(),
            false => value / self.y.1,
        };
        BOTTOM - share * (BOTTOM - TOP)
    }

    /// Four to ten round values.
    fn y_ticks(&self) -> Vec<f64> {
        let decades = |steps: &'static [f64]| {
            (-5..6).flat_map(move |power| steps.iter().map(move |step| step * 10f64.powi(power)))
        };
        if self.log_y {
            let inside = |steps| -> Vec<f64> {
                decades(steps).filter(|tick| (self.y.0..=self.y.1).contains(tick)).collect()
            };
            let coarse = inside(&[1.0, 2.0, 5.0]);
            return if coarse.len() >= 4 { coarse } else { inside(&[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0]) };
        }
        let step = decades(&[1.0, 2.0, 5.0]).find(|step| self.y.1 / step <= 7.0).unwrap_or(self.y.1);
        (0..=7).map(|number| f64::from(number) * step).filter(|tick| *tick <= self.y.1).collect()
    }
}

/// `names`: of the lines of all figures, in the order in which they have their colours.
fn drawing(figure: &Figure, names: &[&str]) -> String {
    let lines = &figure.lines;
    let axes = Axes::over(lines, figure.log_y);
    let longest = lines.iter().map(|line| line.name.chars().count()).max().unwrap_or(0);
    let width = WIDTH.max(RIGHT + 50.0 + longest as f64 * CHARACTER);
    let height = HEIGHT.max(TOP + LEGEND_LINE * lines.len() as f64 + 10.0);
    // Writing to a string cannot fail.
    let mut svg = String::new();
    let _ = write!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\" \
         font-family=\"system-ui, sans-serif\" font-size=\"13\" fill=\"currentColor\">\
         <title>{name}</title><text x=\"{LEFT:.0}\" y=\"20\" font-size=\"15\" font-weight=\"bold\">{name}</text>",
        name = escape(&figure.title),
    );
    grid(&mut svg, &axes, figure);
    for (place, line) in lines.iter().enumerate() {
        let number = names.iter().position(|name| *name == line.name).unwrap_or(place);
        draw(&mut svg, &axes, line, number);
        legend(&mut svg, &line.name, place, number);
    }
    svg.push_str("</svg>");
    svg
}

fn grid(svg: &mut String, axes: &Axes, figure: &Figure) {
    for tick in axes.y_ticks() {
        let y = axes.y(tick);
        let opacity = if tick == 0.0 { 0.8 } else { 0.2 };
        let _ = write!(
            svg,
            "<line x1=\"{LEFT:.0}\" x2=\"{RIGHT:.0}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"currentColor\" \
             opacity=\"{opacity}\"/><text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 8.0,
            y + 4.5,
            short(tick)
        );
    }
    for size in figure.sizes() {
        let x = axes.x(size);
        let _ = write!(
            svg,
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP:.0}\" y2=\"{BOTTOM:.0}\" stroke=\"currentColor\" \
             opacity=\"0.2\" stroke-dasharray=\"2 3\"/><text x=\"{x:.1}\" y=\"{:.0}\" text-anchor=\"middle\">{}</text>",
            BOTTOM + 20.0,
            figure.label(size)
        );
    }
    let _ = write!(
        svg,
        "<text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"middle\">{} (logarithmic)</text>\
         <text transform=\"translate(18 {:.0}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
        (LEFT + RIGHT) / 2.0,
        BOTTOM + 44.0,
        escape(&figure.axis),
        (TOP + BOTTOM) / 2.0,
        if figure.log_y { format!("{} (logarithmic)", figure.y_title) } else { figure.y_title.to_owned() }
    );
}

/// As few digits as tell ticks apart.
fn short(tick: f64) -> String {
    let text = format!("{tick:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn draw(svg: &mut String, axes: &Axes, line: &Line, number: usize) {
    let places: Vec<String> =
        line.points.iter().map(|(x, y)| format!("{:.1},{:.1}", axes.x(*x), axes.y(*y))).collect();
    let _ = write!(
        svg,
        "<g><title>{}</title><polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.8\"{}/>",
        escape(&line.name),
        places.join(" "),
        colour(number),
        dashes(number)
    );
    for (x, y) in &line.points {
        marker(svg, axes.x(*x), axes.y(*y), number);
    }
    svg.push_str("</g>");
}

fn legend(svg: &mut String, name: &str, place: usize, number: usize) {
    let (x, y) = (RIGHT + 24.0, TOP + 8.0 + LEGEND_LINE * place as f64);
    let _ = write!(
        svg,
        "<line x1=\"{:.0}\" x2=\"{:.0}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"{}\" stroke-width=\"1.8\"{}/>\
         <text x=\"{:.0}\" y=\"{:.1}\">{}</text>",
        x - 14.0,
        x + 14.0,
        colour(number),
        dashes(number),
        x + 22.0,
        y + 4.5,
        escape(name)
    );
    marker(svg, x, y, number);
}

fn colour(number: usize) -> &'static str {
    COLOURS[number % COLOURS.len()]
}

/// Where the colours have been used up, the lines are broken.
fn dashes(number: usize) -> &'static str {
    if number < COLOURS.len() { "" } else { " stroke-dasharray=\"5 3\"" }
}

/// A form of its own for each of four lines, so that lines differ also without colours.
fn marker(svg: &mut String, x: f64, y: f64, number: usize) {
    let size = MARKER;
    let colour = colour(number);
    let fill = if number < COLOURS.len() { colour } else { "none" };
    let corners = |corners: &[(f64, f64)]| {
        let places: Vec<String> = corners
            .iter()
            .map(|(right, down)| format!("{:.1},{:.1}", x + right * size, y + down * size))
            .collect();
        places.join(" ")
    };
    let points = match number % 4 {
        0 => {
            let _ = write!(
                svg,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{fill}\" stroke=\"{colour}\"/>"
            );
            return;
        }
        1 => corners(&[(-0.85, -0.85), (0.85, -0.85), (0.85, 0.85), (-0.85, 0.85)]),
        2 => corners(&[(0.0, -1.1), (1.05, 0.8), (-1.05, 0.8)]),
        _ => corners(&[(0.0, -1.2), (1.2, 0.0), (0.0, 1.2), (-1.2, 0.0)]),
    };
    let _ = write!(svg, "<polygon points=\"{points}\" fill=\"{fill}\" stroke=\"{colour}\"/>");
}

/// A figure with three lines, as others test against it.
#[cfg(test)]
pub fn sample() -> Vec<Row> {
    use crate::row::Point;
    let mut rows = Vec::new();
    for (mover, factor) in [("splice", 2.0), ("copy-range & <more>", 3.0)] {
        for (number, x) in [1u64 << 10, 1 << 16, 1 << 20].into_iter().enumerate() {
            for (metric, unit, scale) in [("throughput", "B/s", 1e9), ("cpu", "s/GB", 0.1)] {
                rows.push(Row {
                    bench: "flow/figures".into(),
                    case: format!("{mover}, buffer of {x}"),
                    metric: metric.into(),
                    unit: unit.into(),
                    ours: Some(factor * scale * (1.0 + number as f64)),
                    peer: "read and write".into(),
                    peer_value: Some(scale * (1.0 + number as f64)),
                    ratio: Some(factor),
                    point: Some(Point {
                        figure: "same file system (ext4), 128 MiB moved".into(),
                        axis: "bytes of the buffer".into(),
                        unit: Unit::Bytes,
                        x,
                        line: mover.into(),
                    }),
                    ..Row::default()
                });
            }
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::elements;

    #[test]
    fn golden_svg() {
        let rows = sample();
        let figures = render(&rows.iter().collect::<Vec<_>>());
        assert_eq!(figures.len(), 2);
        assert_eq!(figures[0].trim(), include_str!("../tests/curve.golden.svg").trim());
    }

    #[test]
    fn a_figure_for_each_metric_with_a_line_for_each_mover_and_one_for_the_peer() {
        let rows = sample();
        for figure in render(&rows.iter().collect::<Vec<_>>()) {
            let names = elements(&figure);
            assert_eq!(names[0], "svg");
            assert_eq!(names.iter().filter(|name| *name == "polyline").count(), 3);
            // Three points and the legend, of the peer's line and of the first three forms.
            assert_eq!(names.iter().filter(|name| *name == "circle").count(), 4);
            assert_eq!(names.iter().filter(|name| *name == "polygon").count(), 8);
            assert!(!figure.contains("NaN") && !figure.contains("inf"), "{figure}");
        }
    }

    #[test]
    fn a_line_looks_the_same_in_every_figure() {
        let mut rows = sample();
        rows.retain(|row| {
            row.metric == "throughput" || row.point.as_ref().is_some_and(|point| point.line != "splice")
        });
        let figures = render(&rows.iter().collect::<Vec<_>>());
        let colour_of_more = |svg: &str| {
            let line = svg.split("<g><title>copy-range").nth(1).unwrap();
            line.split("stroke=\"").nth(1).unwrap()[..7].to_owned()
        };
        assert_eq!(colour_of_more(&figures[0]), colour_of_more(&figures[1]));
    }

    #[test]
    fn one_point_alone_and_nothing_at_all() {
        let rows = sample();
        let figures = render(&[&rows[0]]);
        assert!(!figures[0].contains("NaN"), "{}", figures[0]);
        assert!(render(&[]).is_empty());
        assert!(render(&[&Row { ours: None, ..rows[0].clone() }]).is_empty());
    }

    #[test]
    fn ticks_are_round_and_neither_too_few_nor_too_many() {
        for (log_y, y) in [(false, (0.0, 3.7)), (false, (0.0, 0.31)), (true, (0.1, 4.0)), (true, (0.2, 0.5))]
        {
            let ticks = Axes { x: (1.0, 2.0), y, log_y }.y_ticks();
            assert!((3..=8).contains(&ticks.len()), "{ticks:?}");
        }
        assert_eq!((short(0.5), short(10.0), short(0.0)), ("0.5".into(), "10".into(), "0".into()));
    }
}
