//! The papers' simulated figures: bars, with the confidence interval of each.

use super::canvas::{AXIS, COLOURS, HEIGHT, MARGIN, WIDTH};
use bywash_sim::paper::servers::{Bar, figure};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::fmt::Write;

const MIB: f64 = 1048576.0;
/// Width of a bar, as a share of its column.
const BAR: f64 = 0.7;
/// Half the width of the end marks of an interval, in columns.
const END: f64 = 0.08;

/// Returns the drawing (SVG) and the table (CSV) of a figure of bars; `None` if the figure has no bars.
pub fn texts(number: u32) -> Option<(String, String)> {
    let bars = figure(number)?;
    let title = if number == 8 { "the Web server" } else { "video on demand" };
    Some((drawing(&format!("Figure {number}: {title} of Table IV, simulated"), &bars), table(&bars)))
}

/// Returns the table, with a line for each bar.
fn table(bars: &[Bar]) -> String {
    let mut text = String::from(
        "bar,MiB/s,half width of the 95 % interval,against the first,the paper's,bound by,share of the time that it works,processors taken\n",
    );
    let first = bars.first().map_or(1.0, |bar| bar.throughput.mean);
    for bar in bars {
        let (mean, half) = (bar.throughput.mean, bar.throughput.half_width);
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "\"{}\",{},{},{},{},{},{},{}",
            bar.name,
            mean / MIB,
            half / MIB,
            bar.throughput.mean / first,
            bar.says.map_or(String::new(), |says| says.to_string()),
            bar.binding,
            bar.busy,
            bar.processors
        );
    }
    text
}

fn drawing(title: &str, bars: &[Bar]) -> String {
    let mut text = String::new();
    let root = SVGBackend::with_string(&mut text, (WIDTH, HEIGHT)).into_drawing_area();
    // Drawing into a string cannot fail.
    let drawn = draw(title, bars, &root).and_then(|()| root.present().map_err(|error| error.to_string()));
    debug_assert_eq!(drawn, Ok(()));
    drop(root);
    text
}

fn draw(
    title: &str,
    bars: &[Bar],
    root: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
) -> Result<(), String> {
    let said = |error: DrawingAreaErrorKind<_>| error.to_string();
    let most = bars.iter().map(|bar| bar.throughput.mean / MIB).fold(0.0, f64::max);
    root.fill(&WHITE).map_err(said)?;
    let mut chart = ChartBuilder::on(root)
        .caption(title, ("sans-serif", 20))
        .margin(MARGIN)
        .x_label_area_size(AXIS)
        .y_label_area_size(AXIS + MARGIN)
        .build_cartesian_2d(0.0..bars.len() as f64, 0.0..most * 1.15)
        .map_err(said)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .disable_x_axis()
        .y_desc("throughput in MiB/s")
        .light_line_style(WHITE)
        .label_style(("sans-serif", 14))
        .draw()
        .map_err(said)?;
    let centred = |size: i32, vertical| {
        TextStyle::from(("sans-serif", size).into_font()).pos(Pos::new(HPos::Center, vertical))
    };
    let inside = centred(13, VPos::Top).color(&WHITE);
    let first = bars.first().map_or(1.0, |bar| bar.throughput.mean);
    for (number, bar) in bars.iter().enumerate() {
        let (middle, mean) = (number as f64 + 0.5, bar.throughput.mean / MIB);
        let half = bar.throughput.half_width.min(bar.throughput.mean) / MIB;
        // One colour for each structure: each interconnect has three.
        let colour = COLOURS[number % 3];
        chart
            .draw_series([Rectangle::new(
                [(middle - BAR / 2.0, 0.0), (middle + BAR / 2.0, mean)],
                colour.filled(),
            )])
            .map_err(said)?;
        let (low, high) = (mean - half, mean + half);
        for line in [
            [(middle, low), (middle, high)],
            [(middle - END, low), (middle + END, low)],
            [(middle - END, high), (middle + END, high)],
        ] {
            chart.draw_series([PathElement::new(line, BLACK.stroke_width(2))]).map_err(said)?;
        }
        if let Some(says) = bar.says {
            let level = says * first / MIB;
            let line = [(middle - BAR / 2.0, level), (middle + BAR / 2.0, level)];
            chart.draw_series(DashedLineSeries::new(line, 6, 4, BLACK.stroke_width(2))).map_err(said)?;
            // At the foot of the bar, where nothing else is drawn.
            let label = Text::new(format!("paper {says:.2}"), (middle, most * 0.05), inside.clone());
            chart.draw_series([label]).map_err(said)?;
        }
        let label = format!("{mean:.0} ({:.2})", bar.throughput.mean / first);
        chart
            .draw_series([Text::new(label, (middle, high + most * 0.015), centred(13, VPos::Bottom))])
            .map_err(said)?;
        // Below the axis: the interconnect, and the structure.
        let (joint, structure) = bar.name.split_once(", ").unwrap_or((&bar.name, ""));
        let (x, y) = chart.backend_coord(&(middle, 0.0));
        for (line, words) in [joint, structure].into_iter().enumerate() {
            let at = (x, y + 6 + line as i32 * 18);
            root.draw(&Text::new(words.to_owned(), at, centred(13, VPos::Top))).map_err(said)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_of_bars_is_drawn_with_its_numbers() {
        let (drawing, table) = texts(9).unwrap();
        assert!(drawing.starts_with("<svg") && drawing.contains("RapidIO") && drawing.contains("(1.00)"));
        assert_eq!(table.lines().count(), 1 + 9);
        assert!(texts(7).is_none());
    }
}
