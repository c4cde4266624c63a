//! Curves over a number, with marks for statements about them.

use crate::{Axis, Drawn, Frame, HEIGHT, TICKS, colour, text};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

/// Widths of the first and of the last curve: later curves are thinner, so that curves that coincide stay visible.
const WIDTHS: (f64, f64) = (6.0, 1.5);
/// Most points of a curve whose points are marked.
const MARKED_MAX: usize = 16;

/// One curve.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// Name in the legend.
    pub name: String,
    /// Number of its colour, which may be the same in several plots.
    pub colour: usize,
    /// Points from left to right.
    pub points: Vec<(f64, f64)>,
}

/// A circle and a text at a point.
#[derive(Clone, Debug, PartialEq)]
pub struct Mark {
    /// The point.
    pub position: (f64, f64),
    /// The text.
    pub statement: String,
}

/// A plot of curves.
#[derive(Clone, Debug, PartialEq)]
pub struct Curves {
    /// Caption.
    pub title: String,
    /// Horizontal axis.
    pub x: Axis,
    /// Vertical axis.
    pub y: Axis,
    /// The curves in the order of the legend.
    pub curves: Vec<Curve>,
    /// Statements about them.
    pub marks: Vec<Mark>,
}

impl Curves {
    /// The plot as SVG.
    pub fn svg(&self) -> String {
        let legend = self.curves.iter().map(|curve| (&*curve.name, curve.colour)).collect();
        let frame = Frame { title: &self.title, x: &self.x, y: &self.y, height: HEIGHT, left: TICKS, legend };
        frame.svg(|_, chart| {
            for (number, curve) in self.curves.iter().enumerate() {
                let share = number as f64 / (self.curves.len().max(2) - 1) as f64;
                let width = WIDTHS.0 + (WIDTHS.1 - WIDTHS.0) * share;
                let style = colour(curve.colour).stroke_width(width.round() as u32);
                chart.draw_series(LineSeries::new(curve.points.iter().copied(), style))?;
                if curve.points.len() <= MARKED_MAX {
                    let circle = |point: &(f64, f64)| Circle::new(*point, 4, colour(curve.colour).filled());
                    chart.draw_series(curve.points.iter().map(circle))?;
                }
            }
            self.marks.iter().try_for_each(|mark| self.draw_mark(chart, mark))
        })
    }

    fn draw_mark(&self, chart: &mut crate::Chart<'_, '_>, mark: &Mark) -> Drawn {
        chart.draw_series([Circle::new(mark.position, 5, BLACK.stroke_width(2))])?;
        // The text is on the side of the mark that has room.
        let is_left = mark.position.0 < self.x.middle();
        let style = text(13, if is_left { HPos::Left } else { HPos::Right }, VPos::Bottom);
        let aside = self.x.width() * if is_left { 0.012 } else { -0.012 };
        let at = (mark.position.0 + aside, mark.position.1 + self.y.width() * 0.015);
        chart.draw_series([Text::new(mark.statement.clone(), at, style)]).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elements;

    fn curves() -> Curves {
        let curve = |number: usize, name: &str| {
            let points = [1e3, 1e4, 1e5].iter().map(|x| (*x, (number + 1) as f64)).collect();
            Curve { name: name.into(), colour: number, points }
        };
        Curves {
            title: "same file system (ext4), 128 MiB & more".into(),
            x: Axis::logarithmic("bytes", 1e3, 1e5),
            y: Axis::linear("GB/s", 0.0, 3.0),
            curves: vec![curve(0, "read and write"), curve(1, "splice"), curve(2, "copy & <more>")],
            marks: vec![Mark { position: (1e3, 2.0), statement: "twice".into() }],
        }
    }

    #[test]
    fn every_curve_and_mark_is_drawn_and_named() {
        let svg = curves().svg();
        let names = elements(&svg);
        let count = |name: &str| names.iter().filter(|element| *element == name).count();
        assert_eq!(names[0], "svg");
        // Three points of each of three curves, and the mark.
        assert_eq!(count("circle"), 10);
        for words in
            ["read and write", "splice", "copy &amp; &lt;more&gt;", "twice", "128 MiB &amp; more", "GB/s"]
        {
            assert!(svg.contains(words), "{words}");
        }
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }

    #[test]
    fn a_curve_has_its_colour_whatever_is_beside_it() {
        let mut few = curves();
        few.curves.remove(0);
        let all = curves().svg();
        for colour in ["#D55E00", "#009E73"] {
            assert!(all.contains(colour) && few.svg().contains(colour), "{colour}");
        }
        assert!(all.contains("#0072B2") && !few.svg().contains("#0072B2"));
    }

    #[test]
    fn one_point_alone_has_a_plot() {
        let mut one = curves();
        one.curves.truncate(1);
        one.curves[0].points.truncate(1);
        one.x = Axis::logarithmic("bytes", 1e3, 1e3);
        assert!(!one.svg().contains("NaN"));
    }

    #[test]
    fn golden_svg() {
        assert_eq!(curves().svg().trim(), include_str!("../tests/curves.golden.svg").trim());
    }
}
