//! Bars with their confidence intervals.

use crate::{Axis, Frame, HEIGHT, TICKS, colour, text};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

/// Width of a bar, as a share of its column.
const BAR: f64 = 0.7;
/// Half the width of the end marks of an interval, in columns.
const END: f64 = 0.08;

/// One bar.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// Lines below the axis.
    pub name: Vec<String>,
    /// Height of the bar.
    pub mean: f64,
    /// Half the width of its confidence interval.
    pub half_width: f64,
    /// Text above the bar.
    pub label: String,
    /// A height that somebody else states, and the text for it.
    pub stated: Option<(f64, String)>,
    /// Number of its colour.
    pub colour: usize,
}

/// A plot of bars.
#[derive(Clone, Debug, PartialEq)]
pub struct Bars {
    /// Caption.
    pub title: String,
    /// Title of the vertical axis.
    pub y_title: String,
    /// The bars from left to right.
    pub bars: Vec<Bar>,
}

impl Bars {
    /// The plot as SVG.
    pub fn svg(&self) -> String {
        let most = self.bars.iter().map(|bar| bar.mean).fold(0.0, f64::max);
        let x = Axis::linear("", 0.0, self.bars.len() as f64).ticks([]);
        let y = Axis::linear(&self.y_title, 0.0, most * 1.15);
        let frame =
            Frame { title: &self.title, x: &x, y: &y, height: HEIGHT, left: TICKS, legend: Vec::new() };
        frame.svg(|root, chart| {
            for (number, bar) in self.bars.iter().enumerate() {
                let (middle, half) = (number as f64 + 0.5, bar.half_width.min(bar.mean));
                let sides = [middle - BAR / 2.0, middle + BAR / 2.0];
                let body =
                    Rectangle::new([(sides[0], 0.0), (sides[1], bar.mean)], colour(bar.colour).filled());
                chart.draw_series([body])?;
                let (low, high) = (bar.mean - half, bar.mean + half);
                let ends = [low, high].map(|end| [(middle - END, end), (middle + END, end)]);
                let lines = [[(middle, low), (middle, high)], ends[0], ends[1]];
                chart.draw_series(lines.map(|line| PathElement::new(line, BLACK.stroke_width(2))))?;
                if let Some((level, words)) = &bar.stated {
                    let line = sides.map(|x| (x, *level));
                    chart.draw_series(DashedLineSeries::new(line, 6, 4, BLACK.stroke_width(2)))?;
                    // At the foot of the bar, where nothing else is drawn.
                    let style = text(13, HPos::Center, VPos::Top).color(&WHITE);
                    chart.draw_series([Text::new(words.clone(), (middle, most * 0.05), style)])?;
                }
                let above = (middle, high + most * 0.015);
                chart.draw_series([Text::new(
                    bar.label.clone(),
                    above,
                    text(13, HPos::Center, VPos::Bottom),
                )])?;
                let (x, y) = chart.backend_coord(&(middle, 0.0));
                for (line, words) in bar.name.iter().enumerate() {
                    let at = (x, y + 6 + line as i32 * 18);
                    root.draw(&Text::new(words.clone(), at, text(13, HPos::Center, VPos::Top)))?;
                }
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elements;

    #[test]
    fn every_bar_has_its_interval_its_names_and_its_label() {
        let bar = |mean: f64, stated| Bar {
            name: vec!["PCI".into(), "direct".into()],
            mean,
            half_width: 0.5,
            label: format!("{mean:.0} MiB/s"),
            stated,
            colour: 1,
        };
        let bars = vec![bar(2.0, None), bar(4.0, Some((3.5, "paper 1.75".into())))];
        let svg = Bars { title: "a figure".into(), y_title: "MiB/s".into(), bars }.svg();
        let rectangles = elements(&svg).iter().filter(|name| *name == "rect").count();
        // The background and both bars.
        assert_eq!(rectangles, 3, "{svg}");
        for words in ["PCI", "direct", "2 MiB/s", "4 MiB/s", "paper 1.75"] {
            assert!(svg.contains(words), "{words}");
        }
    }
}
