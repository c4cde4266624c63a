//! The papers' figures: curves over one number of the machine or its workload, with marks for statements of
//! the text.

use super::bars;
use super::canvas::{AXIS, COLOURS, HEIGHT, MARGIN, WIDTH};
use crate::cli::{FIGURES, FigureArgs, FigureChoice};
use crate::error::Failure;
use bywash_model::figures::{self, Figure};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::fmt::Write;
use std::fs;
use std::io;
use std::path::Path;

/// Width of the legend right of the chart, in pixels.
const LEGEND: u32 = 190;
const LEGEND_LINE: i32 = 22;
/// Widths of the first and of the last curve: later curves are thinner, so that curves that coincide stay
/// visible.
const WIDTHS: (f64, f64) = (7.0, 1.5);

/// Writes `figure-N.svg` and `figure-N.csv` for the requested figures.
///
/// # Errors
/// [`Failure::Write`] if a file or the folder cannot be written, [`Failure::Output`] if standard output
/// cannot be.
pub fn write(arguments: &FigureArgs) -> Result<i32, Failure> {
    let out = &arguments.out;
    let failed = |path: &Path| {
        let path = path.to_path_buf();
        move |source| Failure::Write { path, source }
    };
    fs::create_dir_all(out).map_err(failed(out))?;
    let numbers = match arguments.number {
        FigureChoice::All => FIGURES,
        FigureChoice::One(number) => number..=number,
    };
    for number in numbers {
        let texts = match figures::figure(number) {
            Some(figure) => Some((drawing(&figure), table(&figure))),
            None => bars::texts(number),
        };
        // Every number that the command line accepts is one of the two kinds.
        let Some((drawing, table)) = texts else { continue };
        for (ending, text) in [("svg", drawing), ("csv", table)] {
            let path = out.join(format!("figure-{number}.{ending}"));
            fs::write(&path, text).map_err(failed(&path))?;
            io::Write::write_fmt(&mut io::stdout(), format_args!("{}\n", path.display()))
                .map_err(Failure::Output)?;
        }
    }
    Ok(0)
}

/// Returns the table, with a line for each point of each curve.
fn table(figure: &Figure) -> String {
    let mut text = format!("curve,{},MiB/s\n", figure.x.replace(',', ";"));
    for curve in &figure.curves {
        for (x, y) in &curve.points {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "\"{}\",{x},{y}", curve.name);
        }
    }
    text
}

fn drawing(figure: &Figure) -> String {
    let mut text = String::new();
    let root = SVGBackend::with_string(&mut text, (WIDTH, HEIGHT)).into_drawing_area();
    // Drawing into a string cannot fail.
    let drawn = draw(figure, &root).and_then(|()| root.present().map_err(|error| error.to_string()));
    debug_assert_eq!(drawn, Ok(()));
    drop(root);
    text
}

fn draw(figure: &Figure, root: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>) -> Result<(), String> {
    let said = |error: DrawingAreaErrorKind<_>| error.to_string();
    let points = || figure.curves.iter().flat_map(|curve| curve.points.iter().copied());
    let first = points().map(|point| point.0).fold(f64::INFINITY, f64::min);
    let last = points().map(|point| point.0).fold(0.0, f64::max);
    let most = points().map(|point| point.1).fold(0.0, f64::max);
    root.fill(&WHITE).map_err(said)?;
    let mut chart = ChartBuilder::on(root)
        .caption(format!("Figure {}: {}", figure.number, figure.title), ("sans-serif", 20))
        .margin(MARGIN)
        .margin_right(LEGEND + MARGIN)
        .x_label_area_size(AXIS)
        .y_label_area_size(AXIS + MARGIN)
        .build_cartesian_2d(first..last, 0.0..most * 1.08)
        .map_err(said)?;
    chart
        .configure_mesh()
        .x_desc(figure.x)
        .y_desc("throughput in MiB/s")
        .light_line_style(WHITE)
        .label_style(("sans-serif", 14))
        .draw()
        .map_err(said)?;
    for (number, curve) in figure.curves.iter().enumerate() {
        chart
            .draw_series(LineSeries::new(curve.points.iter().copied(), style(figure, number)))
            .map_err(said)?;
        let line = AXIS as i32 + number as i32 * LEGEND_LINE;
        let left = (WIDTH - LEGEND) as i32;
        root.draw(&PathElement::new([(left, line), (left + 24, line)], style(figure, number)))
            .map_err(said)?;
        let text = TextStyle::from(("sans-serif", 14).into_font()).pos(Pos::new(HPos::Left, VPos::Center));
        root.draw(&Text::new(&*curve.name, (left + 32, line), text)).map_err(said)?;
    }
    for mark in &figure.marks {
        chart.draw_series([Circle::new(mark.position, 5, BLACK.stroke_width(2))]).map_err(said)?;
        // The text is on the side of the mark that has room.
        let is_left = mark.position.0 < (first + last) / 2.0;
        let anchor = if is_left { HPos::Left } else { HPos::Right };
        let style = TextStyle::from(("sans-serif", 13).into_font()).pos(Pos::new(anchor, VPos::Bottom));
        let at = (
            mark.position.0 + (last - first) * if is_left { 0.012 } else { -0.012 },
            mark.position.1 + most * 0.015,
        );
        chart.draw_series([Text::new(mark.statement.to_owned(), at, style)]).map_err(said)?;
    }
    Ok(())
}

fn style(figure: &Figure, number: usize) -> ShapeStyle {
    let share = number as f64 / (figure.curves.len().max(2) - 1) as f64;
    let width = WIDTHS.0 + (WIDTHS.1 - WIDTHS.0) * share;
    COLOURS[number % COLOURS.len()].stroke_width(width.round() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_is_drawn_with_its_curves_and_marks() {
        for figure in figures::NUMBERS.filter_map(figures::figure) {
            let text = drawing(&figure);
            assert!(text.starts_with("<svg") && text.trim_end().ends_with("</svg>"));
            for words in figure
                .curves
                .iter()
                .map(|curve| &*curve.name)
                .chain(figure.marks.iter().map(|mark| mark.statement))
            {
                assert!(text.contains(words), "{}: {words}", figure.number);
            }
            let rows = table(&figure).lines().count();
            assert_eq!(rows, 1 + figure.curves.iter().map(|curve| curve.points.len()).sum::<usize>());
        }
    }
}
