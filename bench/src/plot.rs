//! One plot a bench, as SVG: a line for each case, a dot for each place at the ratio, a bar from quartile to
//! quartile, a tick at the goal. The axis is logarithmic: twice as fast and half as fast are equally far from 1.

use crate::number;
use crate::row::Row;
use crate::table;
use std::fmt::Write;

/// Room for labels, if none is longer.
const LABELS: f64 = 480.0;
/// Of a character of a label, more or less.
const CHARACTER: f64 = 6.8;
const PLOT_WIDTH: f64 = 520.0;
const RIGHT: f64 = 30.0;
/// Of the plot, below a legend of one line.
const TOP: f64 = 58.0;
const LEGEND_LINE: f64 = 18.0;
const BOTTOM: f64 = 34.0;
/// Height of one dot's own lane within a case's line.
const LANE: f64 = 7.0;
const LINE_PADDING: f64 = 12.0;
/// Okabe and Ito's colours, which colour-blind readers can tell apart.
pub(crate) const COLOURS: [&str; 7] =
    ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#999999"];
const TICKS: [f64; 16] =
    [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 0.7, 1.0, 1.5, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 1000.0];

/// The axis: from ratio to x.
struct Axis {
    low: f64,
    high: f64,
    /// Where it begins, right of the labels.
    left: f64,
}

impl Axis {
    /// Holds every ratio with its quartiles and goal, and 0.5 to 2 in any case. It leaves room for the labels.
    fn over(rows: &[&Row]) -> Axis {
        let values =
            rows.iter().flat_map(|row| [row.ratio, row.ratio_low, row.ratio_high, row.goal]).flatten();
        let values = values.filter(|value| value.is_finite() && *value > 0.0);
        let (low, high) =
            values.fold((0.5f64, 2.0f64), |(low, high), value| (low.min(value), high.max(value)));
        let longest = rows.iter().map(|row| label(row).chars().count()).max().unwrap_or(0);
        let left = LABELS.max(longest as f64 * CHARACTER + 20.0);
        Axis { low: (low * 0.92).max(0.001), high: (high * 1.08).min(10_000.0), left }
    }

    fn x(&self, ratio: f64) -> f64 {
        let place = (ratio.clamp(self.low, self.high) / self.low).ln() / (self.high / self.low).ln();
        self.left + place * PLOT_WIDTH
    }

    /// Of the whole plot.
    fn width(&self) -> f64 {
        self.left + PLOT_WIDTH + RIGHT
    }
}

/// The plot of the rows of one bench; empty when none has a ratio.
pub fn render(bench: &str, rows: &[&Row]) -> String {
    let rows: Vec<&Row> = rows.iter().copied().filter(|row| row.ratio.is_some()).collect();
    if rows.is_empty() {
        return String::new();
    }
    let places = distinct(rows.iter().map(|row| kind(row).to_owned()));
    let axis = Axis::over(&rows);
    let lines: Vec<Line<'_>> = distinct(rows.iter().map(|row| label(row)))
        .into_iter()
        .map(|label| {
            let rows = rows.iter().copied().filter(|row| self::label(row) == label).collect();
            Line { label, rows }
        })
        .collect();
    let width = axis.width();
    let (entries, legend_height) = legend_places(&places, width - RIGHT);
    let top = TOP + legend_height;
    let height = top + lines.iter().map(Line::height).sum::<f64>() + BOTTOM;
    // Writing to a string cannot fail.
    let mut svg = String::new();
    let _ = write!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\" \
         font-family=\"system-ui, sans-serif\" font-size=\"13\" fill=\"currentColor\">\
         <title>{}: ratio to the peer, larger is better</title>",
        escape(bench)
    );
    legend(&mut svg, &places, &entries);
    grid(&mut svg, &axis, top, height);
    let mut at = top;
    for (number, line) in lines.iter().enumerate() {
        line.draw(&mut svg, &axis, &places, at, number % 2 == 0);
        at += line.height();
    }
    svg.push_str("</svg>");
    svg
}

/// A case: all that is compared in it.
struct Line<'a> {
    label: String,
    rows: Vec<&'a Row>,
}

impl Line<'_> {
    fn height(&self) -> f64 {
        LANE * self.rows.len() as f64 + LINE_PADDING
    }

    fn draw(&self, svg: &mut String, axis: &Axis, places: &[String], top: f64, shaded: bool) {
        let height = self.height();
        if shaded {
            let width = axis.width();
            let _ = write!(
                svg,
                "<rect x=\"0\" y=\"{top:.1}\" width=\"{width:.0}\" height=\"{height:.1}\" fill=\"currentColor\" \
                 opacity=\"0.05\"/>"
            );
        }
        let _ = write!(
            svg,
            "<text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\" font-size=\"12\">{}</text>",
            axis.left - 12.0,
            top + height / 2.0 + 4.0,
            escape(&self.label)
        );
        let one_goal = self.rows.iter().all(|row| row.goal == self.rows[0].goal);
        if one_goal {
            goal(svg, axis, self.rows[0], top + 3.0, height - 6.0);
        }
        for (lane, row) in self.rows.iter().enumerate() {
            let y = top + LINE_PADDING / 2.0 + LANE * (lane as f64 + 0.5);
            if !one_goal {
                goal(svg, axis, row, y - LANE, 2.0 * LANE);
            }
            let place = places.iter().position(|place| place == kind(row)).unwrap_or(0);
            dot(svg, axis, row, y, place);
        }
    }
}

/// The mark of a place: a colour, and a ring where the colours have been used up.
fn mark(svg: &mut String, x: f64, y: f64, place: usize) {
    let colour = COLOURS[place % COLOURS.len()];
    let fill = if place < COLOURS.len() { colour } else { "none" };
    let _ = write!(
        svg,
        "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{fill}\" stroke=\"{colour}\" stroke-width=\"1.5\"/>"
    );
}

/// Where the legend has each place, and at last the goal; and how much higher it is than one line of this width.
fn legend_places(places: &[String], line_width: f64) -> (Vec<(f64, f64)>, f64) {
    const DOT: f64 = 28.0;
    const LETTER: f64 = 7.2;
    let (mut x, mut y) = (10.0, 14.0);
    let mut entries = Vec::new();
    for text in places.iter().map(String::as_str).chain(["goal"]) {
        let width = DOT + LETTER * text.chars().count() as f64;
        if x + width > line_width && x > 10.0 {
            (x, y) = (10.0, y + LEGEND_LINE);
        }
        entries.push((x, y));
        x += width;
    }
    (entries, y - 14.0)
}

fn legend(svg: &mut String, places: &[String], entries: &[(f64, f64)]) {
    for (number, (place, (x, y))) in places.iter().zip(entries).enumerate() {
        mark(svg, *x, *y, number);
        let _ = write!(svg, "<text x=\"{:.1}\" y=\"{:.1}\">{}</text>", x + 9.0, y + 4.0, escape(place));
    }
    let (x, y) = entries[places.len()];
    let _ = write!(
        svg,
        "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" y2=\"{:.1}\" stroke=\"currentColor\" stroke-width=\"2\"/>\
         <text x=\"{:.1}\" y=\"{:.1}\">goal</text>",
        y - 7.0,
        y + 7.0,
        x + 7.0,
        y + 4.0
    );
}

fn grid(svg: &mut String, axis: &Axis, top: f64, height: f64) {
    /// Width of a tick's label.
    const LABEL: f64 = 36.0;
    let mut free_from = 0.0;
    for tick in TICKS.into_iter().filter(|tick| *tick >= axis.low && *tick <= axis.high) {
        let x = axis.x(tick);
        let (opacity, dashes) = if tick == 1.0 { (0.8, "") } else { (0.25, " stroke-dasharray=\"2 3\"") };
        let _ = write!(
            svg,
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" y2=\"{:.1}\" stroke=\"currentColor\" \
             opacity=\"{opacity}\"{dashes}/>",
            top - 6.0,
            height - BOTTOM + 4.0,
        );
        if x >= free_from {
            free_from = x + LABEL;
            let y = height - BOTTOM + 22.0;
            let _ = write!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{tick} x</text>");
        }
    }
    let _ = write!(
        svg,
        "<text x=\"{:.0}\" y=\"{:.0}\" font-size=\"12\" opacity=\"0.75\">bywash against the peer: right of 1 x \
         is better with bywash</text>",
        axis.left,
        top - 16.0
    );
}

/// The tick at a row's goal.
fn goal(svg: &mut String, axis: &Axis, row: &Row, top: f64, height: f64) {
    if let Some(goal) = row.goal {
        let x = axis.x(goal);
        let _ = write!(
            svg,
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" y2=\"{:.1}\" stroke=\"currentColor\" stroke-width=\"2\"/>",
            top,
            top + height
        );
    }
}

fn dot(svg: &mut String, axis: &Axis, row: &Row, y: f64, place: usize) {
    let Some(ratio) = row.ratio else { return };
    let (low, high) = (row.ratio_low.unwrap_or(ratio), row.ratio_high.unwrap_or(ratio));
    let _ = write!(
        svg,
        "<g><title>{}: {} x (quartiles {} to {})</title>\
         <line x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"{}\" stroke-width=\"2\"/>",
        escape(&row.case),
        number::ratio(ratio),
        number::ratio(low),
        number::ratio(high),
        axis.x(low),
        axis.x(high),
        COLOURS[place % COLOURS.len()],
    );
    mark(svg, axis.x(ratio), y, place);
    svg.push_str("</g>");
}

/// What tells the dots of one line apart: the place, or the peer where no file system is needed.
fn kind(row: &Row) -> &str {
    if row.place.is_empty() { &row.peer } else { &row.place }
}

/// What a line is labelled with: everything but that.
fn label(row: &Row) -> String {
    let mut row = Row { case: row.what().to_owned(), ..row.clone() };
    if row.place.is_empty() {
        row.peer = "kernel".into();
    }
    let whole = table::name(&row);
    whole.split_once(": ").map_or(whole.clone(), |(_, rest)| rest.to_owned())
}

fn distinct(values: impl Iterator<Item = String>) -> Vec<String> {
    let mut seen = Vec::new();
    for value in values {
        if !seen.contains(&value) {
            seen.push(value);
        }
    }
    seen
}

/// Text as XML and HTML want it.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Reads `text` to its end as XML and answers the names of its elements.
#[cfg(test)]
pub fn elements(text: &str) -> Vec<String> {
    use quick_xml::events::Event;
    let mut reader = quick_xml::Reader::from_str(text);
    reader.config_mut().check_end_names = true;
    let mut names = Vec::new();
    let mut depth = 0;
    loop {
        match reader.read_event().expect("well-formed XML") {
            Event::Start(tag) => {
                assert!(tag.attributes().all(|attribute| attribute.is_ok()));
                names.push(String::from_utf8_lossy(tag.name().as_ref()).into_owned());
                depth += 1;
            }
            Event::Empty(tag) => {
                assert!(tag.attributes().all(|attribute| attribute.is_ok()));
                names.push(String::from_utf8_lossy(tag.name().as_ref()).into_owned());
            }
            Event::End(_) => depth -= 1,
            Event::Text(text) => drop(text.unescape().expect("known entities")),
            Event::Eof => break,
            _ => {}
        }
    }
    assert_eq!(depth, 0);
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row;

    #[test]
    fn the_svg_is_xml_with_a_dot_a_row() {
        let mut report = row::sample();
        let other = Row {
            case: "pread <4 KiB> & \"more\", xfs".into(),
            place: "xfs".into(),
            ratio: Some(0.5),
            ..report.rows[0].clone()
        };
        report.rows.push(other);
        let rows: Vec<&Row> = report.rows.iter().collect();
        let svg = render("run/micro", &rows);
        let names = elements(&svg);
        assert_eq!(names[0], "svg");
        // Two rows have a ratio, and the legend has a dot for each of their two places.
        assert_eq!(names.iter().filter(|name| *name == "circle").count(), 4);
        assert!(!svg.contains("NaN"), "{svg}");
    }

    #[test]
    fn larger_ratios_are_further_right_and_none_leaves_the_plot() {
        let axis = Axis { low: 0.5, high: 8.0, left: 300.0 };
        assert!(axis.x(1.0) < axis.x(2.0));
        assert!((axis.x(2.0) - axis.x(1.0) - (axis.x(4.0) - axis.x(2.0))).abs() < 1e-9);
        assert_eq!(axis.x(100.0), 300.0 + PLOT_WIDTH);
    }

    #[test]
    fn a_long_label_has_its_room() {
        let report = row::sample();
        let mut row = report.rows[0].clone();
        let usual = Axis::over(&[&row]).left;
        row.case = "x".repeat(200);
        let long = Axis::over(&[&row]);
        assert!(usual == LABELS && long.left > 1200.0 && long.x(2.0) > long.left);
    }

    #[test]
    fn a_long_legend_goes_on_in_the_next_line() {
        let places: Vec<String> = (0..12).map(|number| format!("a place of some length, {number}")).collect();
        let (entries, height) = legend_places(&places, 1000.0);
        assert_eq!(entries.len(), 13);
        assert!(entries.iter().all(|(x, _)| *x < 1000.0));
        assert!(height >= LEGEND_LINE && entries[12].1 == 14.0 + height);
    }

    #[test]
    fn nothing_to_show_is_no_plot() {
        let report = row::sample();
        assert_eq!(render("run/micro", &[&report.rows[1]]), "");
    }
}
