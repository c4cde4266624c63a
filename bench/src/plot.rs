//! One plot a bench, as SVG: a line for each case, a dot for each place at the ratio, a bar from quartile to
//! quartile, a tick at the goal. The axis is logarithmic: twice as fast and half as fast are equally far from 1.

use crate::number;
use crate::row::Row;
use crate::table;
use std::fmt::Write;

const LABEL_WIDTH: f64 = 480.0;
const PLOT_WIDTH: f64 = 520.0;
const RIGHT: f64 = 30.0;
const TOP: f64 = 58.0;
const BOTTOM: f64 = 34.0;
/// Height of one dot's own lane within a case's line.
const LANE: f64 = 7.0;
const LINE_PADDING: f64 = 12.0;
/// Okabe and Ito's colours, which colour-blind readers can tell apart.
const COLOURS: [&str; 7] = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#999999"];
const TICKS: [f64; 16] =
    [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 0.7, 1.0, 1.5, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 1000.0];

/// The axis: from ratio to x.
struct Axis {
    low: f64,
    high: f64,
}

impl Axis {
    /// Holds every ratio with its quartiles and goal, and 0.5 to 2 in any case.
    fn over(rows: &[&Row]) -> Axis {
        let values =
            rows.iter().flat_map(|row| [row.ratio, row.ratio_low, row.ratio_high, row.goal]).flatten();
        let values = values.filter(|value| value.is_finite() && *value > 0.0);
        let (low, high) =
            values.fold((0.5f64, 2.0f64), |(low, high), value| (low.min(value), high.max(value)));
        Axis { low: (low * 0.92).max(0.001), high: (high * 1.08).min(10_000.0) }
    }

    fn x(&self, ratio: f64) -> f64 {
        let place = (ratio.clamp(self.low, self.high) / self.low).ln() / (self.high / self.low).ln();
        LABEL_WIDTH + place * PLOT_WIDTH
    }
}

/// The plot of the rows of one bench; empty when none has a ratio.
pub fn render(bench: &str, rows: &[&Row]) -> String {
    let rows: Vec<&Row> = rows.iter().copied().filter(|row| row.ratio.is_some()).collect();
    if rows.is_empty() {
        return String::new();
    }
    let places = distinct(rows.iter().map(|row| kind(row).to_owned()));
    let cases = distinct(rows.iter().map(|row| label(row)));
    let axis = Axis::over(&rows);
    let line_height = LANE * places.len() as f64 + LINE_PADDING;
    let height = TOP + line_height * cases.len() as f64 + BOTTOM;
    let width = LABEL_WIDTH + PLOT_WIDTH + RIGHT;
    // Writing to a string cannot fail.
    let mut svg = String::new();
    let _ = write!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\" \
         font-family=\"system-ui, sans-serif\" font-size=\"13\" fill=\"currentColor\">\
         <title>{}: ratio to the peer, larger is better</title>",
        escape(bench)
    );
    legend(&mut svg, &places);
    grid(&mut svg, &axis, height);
    for (number, case) in cases.iter().enumerate() {
        let top = TOP + line_height * number as f64;
        if number % 2 == 0 {
            let _ = write!(
                svg,
                "<rect x=\"0\" y=\"{top:.1}\" width=\"{width:.0}\" height=\"{line_height:.1}\" fill=\"currentColor\" \
                 opacity=\"0.05\"/>"
            );
        }
        let _ = write!(
            svg,
            "<text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\" font-size=\"12\">{}</text>",
            LABEL_WIDTH - 12.0,
            top + line_height / 2.0 + 4.0,
            escape(case)
        );
        let here: Vec<&Row> = rows.iter().copied().filter(|row| label(row) == *case).collect();
        let one_goal = here.iter().all(|row| row.goal == here[0].goal);
        if one_goal {
            goal(&mut svg, &axis, here[0], top + 3.0, line_height - 6.0);
        }
        for row in here {
            let lane = places.iter().position(|place| place == kind(row)).unwrap_or(0);
            let y = top + LINE_PADDING / 2.0 + LANE * (lane as f64 + 0.5);
            if !one_goal {
                goal(&mut svg, &axis, row, y - LANE, 2.0 * LANE);
            }
            dot(&mut svg, &axis, row, y, COLOURS[lane % COLOURS.len()]);
        }
    }
    svg.push_str("</svg>");
    svg
}

fn legend(svg: &mut String, places: &[String]) {
    const DOT: f64 = 28.0;
    const LETTER: f64 = 7.2;
    let letters: usize = places.iter().map(|place| place.chars().count()).sum();
    let wanted = DOT * (places.len() as f64 + 2.0) + LETTER * letters as f64;
    // Above the plot, and above the labels too if it is long.
    let mut x = (LABEL_WIDTH + PLOT_WIDTH - wanted).clamp(10.0, LABEL_WIDTH);
    for (number, place) in places.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let _ = write!(
            svg,
            "<circle cx=\"{x:.1}\" cy=\"14\" r=\"4\" fill=\"{colour}\"/><text x=\"{:.1}\" y=\"18\">{}</text>",
            x + 9.0,
            escape(place)
        );
        x += DOT + LETTER * place.chars().count() as f64;
    }
    let _ = write!(
        svg,
        "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"7\" y2=\"21\" stroke=\"currentColor\" stroke-width=\"2\"/>\
         <text x=\"{:.1}\" y=\"18\">goal</text>",
        x + 7.0
    );
}

fn grid(svg: &mut String, axis: &Axis, height: f64) {
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
            TOP - 6.0,
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
        "<text x=\"{LABEL_WIDTH:.0}\" y=\"42\" font-size=\"12\" opacity=\"0.75\">bywash against the peer: right of 1 x \
         is better with bywash</text>"
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

fn dot(svg: &mut String, axis: &Axis, row: &Row, y: f64, colour: &str) {
    let Some(ratio) = row.ratio else { return };
    let (low, high) = (row.ratio_low.unwrap_or(ratio), row.ratio_high.unwrap_or(ratio));
    let _ = write!(
        svg,
        "<g><title>{}: {} x (quartiles {} to {})</title>\
         <line x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"{colour}\" stroke-width=\"2\"/>\
         <circle cx=\"{:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{colour}\"/></g>",
        escape(&row.case),
        number::ratio(ratio),
        number::ratio(low),
        number::ratio(high),
        axis.x(low),
        axis.x(high),
        axis.x(ratio)
    );
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
        let axis = Axis { low: 0.5, high: 8.0 };
        assert!(axis.x(1.0) < axis.x(2.0));
        assert!((axis.x(2.0) - axis.x(1.0) - (axis.x(4.0) - axis.x(2.0))).abs() < 1e-9);
        assert_eq!(axis.x(100.0), LABEL_WIDTH + PLOT_WIDTH);
    }

    #[test]
    fn nothing_to_show_is_no_plot() {
        let report = row::sample();
        assert_eq!(render("run/micro", &[&report.rows[1]]), "");
    }
}
