//! Plots as SVG, for `bywash bench` and `bywash plan figure`.
//!
//! [`Curves`] over a number, [`Bars`] with confidence intervals and [`Ratios`] with quartiles share their [`Axis`], colours
//! and legend. They know nothing of what they show.
//!
//! ```
//! use bywash_plot::{Axis, Curve, Curves};
//!
//! let points = vec![(1024.0, 1.0), (4096.0, 2.5)];
//! let svg = Curves {
//!     title: "throughput of cp".into(),
//!     x: Axis::logarithmic("bytes", 1024.0, 4096.0),
//!     y: Axis::linear("GB/s", 0.0, 2.5),
//!     curves: vec![Curve { name: "cp".into(), colour: 0, points }],
//!     marks: Vec::new(),
//! }
//! .svg();
//! assert!(svg.starts_with("<svg") && svg.contains("throughput of cp"));
//! ```

mod axis;
mod bars;
mod curves;
mod ratios;

pub use axis::Axis;
pub use bars::{Bar, Bars};
pub use curves::{Curve, Curves, Mark};
pub use ratios::{Ratio, Ratios};

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Size of a plot without labels and legend, in pixels.
const WIDTH: u32 = 700;
const HEIGHT: u32 = 420;
const MARGIN: u32 = 16;
/// Room below and left of a plot for ticks and titles.
const TICKS: u32 = 60;
/// Height of the caption.
const CAPTION: u32 = 30;
/// Height of a line of the legend, and the part of its width that is not text.
const LEGEND_LINE: u32 = 22;
const LEGEND_SAMPLE: u32 = 56;
/// Width of a letter of small text, about.
const LETTER: f64 = 7.2;

/// Colours in their order. People with colour blindness can tell them apart (Okabe and Ito).
const COLOURS: [RGBColor; 9] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(0, 0, 0),
    RGBColor(150, 150, 0),
    RGBColor(120, 120, 120),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Axis, Axis>>;
type Drawn<T = ()> = Result<T, DrawingAreaErrorKind<std::io::Error>>;

fn colour(number: usize) -> RGBColor {
    COLOURS[number % COLOURS.len()]
}

/// Width of a text in pixels, about.
fn text_width(text: &str) -> u32 {
    (text.chars().count() as f64 * LETTER) as u32
}

fn text(size: u32, horizontal: HPos, vertical: VPos) -> TextStyle<'static> {
    TextStyle::from(("sans-serif", size).into_font()).pos(Pos::new(horizontal, vertical))
}

/// Frame of a plot: its texts and axes, and the room around it.
struct Frame<'a> {
    title: &'a str,
    x: &'a Axis,
    y: &'a Axis,
    height: u32,
    /// Room for the labels of y.
    left: u32,
    /// Entries of the legend, each with the number of its colour.
    legend: Vec<(&'a str, usize)>,
}

impl Frame<'_> {
    /// Draws the frame, and `body` into it.
    fn svg(&self, body: impl FnOnce(&Area<'_>, &mut Chart<'_, '_>) -> Drawn) -> String {
        let legend = self.legend.iter().map(|(name, _)| text_width(name) + LEGEND_SAMPLE).max().unwrap_or(0);
        let lines = CAPTION + 2 * MARGIN + LEGEND_LINE * self.legend.len() as u32;
        let height = (self.height + CAPTION + TICKS + 2 * MARGIN).max(lines);
        let mut svg = String::new();
        let root = SVGBackend::with_string(&mut svg, (self.left + WIDTH + legend + 2 * MARGIN, height));
        let root = root.into_drawing_area();
        let drawn = self.draw(&root, legend, body).and_then(|()| root.present());
        // Drawing into a string cannot fail.
        debug_assert!(drawn.is_ok(), "{drawn:?}");
        drop(root);
        svg
    }

    fn draw(
        &self,
        root: &Area<'_>,
        legend: u32,
        body: impl FnOnce(&Area<'_>, &mut Chart<'_, '_>) -> Drawn,
    ) -> Drawn {
        root.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(root)
            .caption(self.title, ("sans-serif", 20))
            .margin(MARGIN)
            .margin_right(legend + MARGIN)
            .x_label_area_size(TICKS)
            .y_label_area_size(self.left)
            .build_cartesian_2d(self.x.clone(), self.y.clone())?;
        chart
            .configure_mesh()
            .x_desc(self.x.title())
            .y_desc(self.y.title())
            .bold_line_style(BLACK.mix(0.12))
            .light_line_style(TRANSPARENT)
            .label_style(("sans-serif", 14))
            .draw()?;
        body(root, &mut chart)?;
        let left = (self.left + WIDTH + MARGIN + 12) as i32;
        for (line, (name, number)) in self.legend.iter().enumerate() {
            let y = (CAPTION + MARGIN + LEGEND_LINE / 2 + LEGEND_LINE * line as u32) as i32;
            root.draw(&PathElement::new([(left, y), (left + 24, y)], colour(*number).stroke_width(4)))?;
            root.draw(&Text::new((*name).to_owned(), (left + 32, y), text(14, HPos::Left, VPos::Center)))?;
        }
        Ok(())
    }
}

/// Reads a drawing to its end as XML; returns the names of its elements.
#[cfg(test)]
fn elements(svg: &str) -> Vec<String> {
    use quick_xml::events::Event;
    let mut reader = quick_xml::Reader::from_str(svg);
    let mut names = Vec::new();
    loop {
        match reader.read_event().expect("well-formed XML") {
            Event::Start(tag) | Event::Empty(tag) => {
                names.push(String::from_utf8_lossy(tag.name().as_ref()).into_owned());
            }
            Event::Text(text) => drop(text.unescape().expect("known entities")),
            Event::Eof => return names,
            _ => {}
        }
    }
}
