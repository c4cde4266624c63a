//! Ratios with their quartiles and goals: a line for each case, a dot for each ratio. The axis is logarithmic: twice as fast
//! and half as fast are equally far from 1.

use crate::{Axis, Frame, TICKS, colour, text_width};
use plotters::prelude::*;

/// Height of one dot's own lane within a case's line, in pixels, and of the room between lines in lanes.
const LANE: u32 = 8;
const PADDING: f64 = 1.0;
const TICK_VALUES: [f64; 16] =
    [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 0.7, 1.0, 1.5, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 1000.0];

/// One ratio.
#[derive(Clone, Debug, PartialEq)]
pub struct Ratio {
    /// Line that it is drawn in, with other ratios of the same label.
    pub label: String,
    /// Entry of the legend that gives it its colour.
    pub series: String,
    /// First quartile, median and third quartile.
    pub quartiles: [f64; 3],
    /// Ratio that was wanted.
    pub goal: Option<f64>,
}

/// A plot of ratios.
#[derive(Clone, Debug, PartialEq)]
pub struct Ratios {
    /// Caption.
    pub title: String,
    /// Title of the axis.
    pub x_title: String,
    /// The ratios in the order of their lines.
    pub ratios: Vec<Ratio>,
}

impl Ratios {
    /// The plot as SVG; empty if there is no ratio.
    pub fn svg(&self) -> String {
        if self.ratios.is_empty() {
            return String::new();
        }
        let (lines, series) = (distinct(self, |ratio| &ratio.label), distinct(self, |ratio| &ratio.series));
        let mut rows: Vec<(f64, &Ratio)> = Vec::new();
        let mut labels = Vec::new();
        let mut lane = PADDING / 2.0;
        for line in &lines {
            let here: Vec<&Ratio> = self.ratios.iter().filter(|ratio| ratio.label == *line).collect();
            labels.push((lane + here.len() as f64 / 2.0, (*line).to_owned()));
            for ratio in here {
                rows.push((lane + 0.5, ratio));
                lane += 1.0;
            }
            lane += PADDING;
        }
        let left = lines.iter().map(|line| text_width(line)).max().unwrap_or(0) + TICKS;
        // From top to bottom.
        let y = Axis::linear("", 0.0, lane).downwards().ticks(labels);
        let x = self.axis();
        let legend = series.iter().enumerate().map(|(number, name)| (*name, number)).collect();
        let height = (LANE as f64 * lane) as u32;
        Frame { title: &self.title, x: &x, y: &y, height, left, legend }.svg(|_, chart| {
            chart.draw_series([PathElement::new([(1.0, 0.0), (1.0, lane)], BLACK.stroke_width(1))])?;
            for (y, ratio) in rows {
                let colour = colour(series.iter().position(|name| *name == ratio.series).unwrap_or(0));
                let [low, median, high] = ratio.quartiles;
                chart.draw_series([PathElement::new([(low, y), (high, y)], colour.stroke_width(2))])?;
                chart.draw_series([Circle::new((median, y), 4, colour.filled())])?;
                let goal = ratio.goal.map(|goal| [(goal, y - 0.5), (goal, y + 0.5)]);
                chart.draw_series(goal.map(|line| PathElement::new(line, BLACK.stroke_width(2))))?;
            }
            Ok(())
        })
    }

    /// An axis that holds every ratio with its quartiles and goal, and 0.5 to 2 in any case.
    fn axis(&self) -> Axis {
        let values = self.ratios.iter().flat_map(|ratio| ratio.quartiles.into_iter().chain(ratio.goal));
        let values = values.filter(|value| value.is_finite() && *value > 0.0);
        let (low, high) =
            values.fold((0.5f64, 2.0f64), |(low, high), value| (low.min(value), high.max(value)));
        let (low, high) = ((low * 0.92).max(0.001), (high * 1.08).min(10_000.0));
        let ticks = TICK_VALUES.into_iter().filter(|tick| (low..=high).contains(tick));
        Axis::logarithmic(&self.x_title, low, high).ticks(ticks.map(|tick| (tick, format!("{tick} x"))))
    }
}

fn distinct(ratios: &Ratios, name: impl Fn(&Ratio) -> &String) -> Vec<&str> {
    let mut seen: Vec<&str> = Vec::new();
    for ratio in &ratios.ratios {
        if !seen.contains(&name(ratio).as_str()) {
            seen.push(name(ratio));
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elements;

    fn ratios(count: usize) -> Ratios {
        let ratio = |number: usize| Ratio {
            label: format!("pread <4 KiB> & \"more\", {}", number / 2),
            series: format!("a place of some length, {}", number % 12),
            quartiles: [0.9, 1.0 + number as f64, 2.0 + number as f64],
            goal: (number > 0).then_some(0.97),
        };
        Ratios { title: "run/micro".into(), x_title: "ratio".into(), ratios: (0..count).map(ratio).collect() }
    }

    #[test]
    fn a_dot_for_each_ratio_and_a_name_for_each_line_and_series() {
        let svg = ratios(24).svg();
        assert_eq!(elements(&svg).iter().filter(|name| *name == "circle").count(), 24);
        assert_eq!(svg.matches("&lt;4 KiB&gt;").count(), 12, "{svg}");
        assert_eq!(svg.matches("a place of some length").count(), 12);
        assert!(svg.contains("1 x") && !svg.contains("NaN"));
    }

    #[test]
    fn a_long_label_and_a_long_legend_have_their_room() {
        let size = |svg: &str, name: &str| -> f64 {
            svg.split(&format!("{name}=\"")).nth(1).unwrap().split('"').next().unwrap().parse().unwrap()
        };
        let mut long = ratios(2);
        let usual = long.svg();
        long.ratios[0].label = "x".repeat(200);
        assert!(size(&long.svg(), "width") > size(&usual, "width") + 1000.0);
        assert!(size(&ratios(12).svg(), "height") > f64::from(12 * crate::LEGEND_LINE));
    }

    #[test]
    fn nothing_to_show_is_no_plot() {
        assert_eq!(ratios(0).svg(), "");
    }
}
