//! The papers' figures as drawings (SVG) and tables (CSV): curves over one number of the machine or its workload, with marks
//! for statements of the text, and simulated bars with the confidence interval of each.

use crate::cli::plan::{FIGURES, FigureArgs, FigureChoice};
use crate::error::Failure;
use bywash_model::figures::{self, Figure};
use bywash_plot::{Axis, Bars, Curve, Curves, Mark};
use bywash_sim::paper::servers::{self, Bar};
use std::fmt::Write;
use std::fs;
use std::io;
use std::path::Path;

const MIB: f64 = 1048576.0;

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
        // Every number that the command line accepts is one of the two kinds.
        let Some((drawing, table)) = texts(number) else { continue };
        for (ending, text) in [("svg", drawing), ("csv", table)] {
            let path = out.join(format!("figure-{number}.{ending}"));
            fs::write(&path, text).map_err(failed(&path))?;
            io::Write::write_fmt(&mut io::stdout(), format_args!("{}\n", path.display()))
                .map_err(Failure::Output)?;
        }
    }
    Ok(0)
}

/// Returns the drawing and the table of a figure; `None` if there is no such figure.
fn texts(number: u32) -> Option<(String, String)> {
    if let Some(figure) = figures::figure(number) {
        return Some((drawing_of_curves(&figure), table_of_curves(&figure)));
    }
    let bars = servers::figure(number)?;
    let title = if number == 8 { "the Web server" } else { "video on demand" };
    let title = format!("Figure {number}: {title} of Table IV, simulated");
    Some((drawing_of_bars(title, &bars), table_of_bars(&bars)))
}

/// Returns the table, with a line for each point of each curve.
fn table_of_curves(figure: &Figure) -> String {
    let mut text = format!("curve,{},MiB/s\n", figure.x.replace(',', ";"));
    for curve in &figure.curves {
        for (x, y) in &curve.points {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "\"{}\",{x},{y}", curve.name);
        }
    }
    text
}

fn drawing_of_curves(figure: &Figure) -> String {
    let points = || figure.curves.iter().flat_map(|curve| curve.points.iter().copied());
    let first = points().map(|point| point.0).fold(f64::INFINITY, f64::min);
    let last = points().map(|point| point.0).fold(0.0, f64::max);
    let most = points().map(|point| point.1).fold(0.0, f64::max);
    let curves = figure.curves.iter().enumerate().map(|(colour, curve)| Curve {
        name: curve.name.to_string(),
        colour,
        points: curve.points.clone(),
    });
    let marks = figure
        .marks
        .iter()
        .map(|mark| Mark { position: mark.position, statement: mark.statement.to_owned() });
    let plot = Curves {
        title: format!("Figure {}: {}", figure.number, figure.title),
        x: Axis::linear(figure.x, first, last),
        y: Axis::linear("throughput in MiB/s", 0.0, most * 1.08),
        curves: curves.collect(),
        marks: marks.collect(),
    };
    plot.svg()
}

/// Returns the table, with a line for each bar.
fn table_of_bars(bars: &[Bar]) -> String {
    let mut text = String::from(
        "bar,MiB/s,half width of the 95 % interval,against the first,the paper's,bound by,busiest,share of the time that it works,processors taken,computing,stalled\n",
    );
    let first = bars.first().map_or(1.0, |bar| bar.throughput.mean);
    for bar in bars {
        let (mean, half) = (bar.throughput.mean, bar.throughput.half_width);
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "\"{}\",{},{},{},{},{},{},{},{},{},{}",
            bar.name,
            mean / MIB,
            half / MIB,
            bar.throughput.mean / first,
            bar.says.map_or(String::new(), |says| says.to_string()),
            bar.binding,
            bar.busiest,
            bar.busy,
            bar.processors,
            bar.computing,
            bar.stalled
        );
    }
    text
}

fn drawing_of_bars(title: String, bars: &[Bar]) -> String {
    let first = bars.first().map_or(1.0, |bar| bar.throughput.mean);
    let bars = bars.iter().enumerate().map(|(number, bar)| bywash_plot::Bar {
        // The interconnect, and the structure.
        name: bar.name.split(", ").map(str::to_owned).collect(),
        mean: bar.throughput.mean / MIB,
        half_width: bar.throughput.half_width / MIB,
        label: format!("{:.0} ({:.2})", bar.throughput.mean / MIB, bar.throughput.mean / first),
        stated: bar.says.map(|says| (says * first / MIB, format!("paper {says:.2}"))),
        // One colour for each structure: each interconnect has three.
        colour: number % 3,
    });
    Bars { title, y_title: "throughput in MiB/s".into(), bars: bars.collect() }.svg()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_is_drawn_with_its_curves_and_marks() {
        for figure in figures::NUMBERS.filter_map(figures::figure) {
            let (text, table) = texts(figure.number).unwrap();
            assert!(text.starts_with("<svg") && text.trim_end().ends_with("</svg>"));
            for words in figure
                .curves
                .iter()
                .map(|curve| &*curve.name)
                .chain(figure.marks.iter().map(|mark| mark.statement))
            {
                assert!(text.contains(words), "{}: {words}", figure.number);
            }
            let points = figure.curves.iter().map(|curve| curve.points.len()).sum::<usize>();
            assert_eq!(table.lines().count(), 1 + points);
        }
    }

    #[test]
    fn a_figure_of_bars_is_drawn_with_its_numbers() {
        let (drawing, table) = texts(9).unwrap();
        assert!(drawing.starts_with("<svg") && drawing.contains("RapidIO") && drawing.contains("(1.00)"));
        assert_eq!(table.lines().count(), 1 + 9);
        assert!(texts(0).is_none());
    }
}
