//! Axes, linear or logarithmic, with ticks of their own.

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use std::ops::Range;

/// An axis: a title, a range and labelled ticks.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    title: String,
    low: f64,
    high: f64,
    is_logarithmic: bool,
    ticks: Vec<(f64, String)>,
}

impl Axis {
    /// A linear axis with round ticks.
    pub fn linear(title: impl Into<String>, low: f64, high: f64) -> Axis {
        let high = if high > low { high } else { low + 1.0 };
        let step = decades(&[1.0, 2.0, 5.0]).find(|step| (high - low) / step <= 8.0).unwrap_or(high - low);
        let first = (low / step).ceil() as i64;
        let ticks = (first..first + 10).map(|number| number as f64 * step).filter(|tick| *tick <= high);
        Axis { title: title.into(), low, high, is_logarithmic: false, ticks: labelled(ticks) }
    }

    /// A logarithmic axis with round ticks, over numbers above 0. One number alone is in the middle.
    pub fn logarithmic(title: impl Into<String>, low: f64, high: f64) -> Axis {
        let low = low.max(1e-4);
        let (low, high) = if high > low { (low, high) } else { (low / 2.0, low * 2.0) };
        let inside = |steps| decades(steps).filter(|tick| (low..=high).contains(tick)).collect::<Vec<_>>();
        let sparse = [inside(&[1.0]), inside(&[1.0, 2.0, 5.0]), inside(&[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0])];
        let ticks = sparse.iter().find(|ticks| ticks.len() >= 4).unwrap_or(&sparse[2]).clone();
        Axis { title: title.into(), low, high, is_logarithmic: true, ticks: labelled(ticks.into_iter()) }
    }

    /// Replaces the ticks.
    pub fn ticks(self, ticks: impl IntoIterator<Item = (f64, String)>) -> Axis {
        Axis { ticks: ticks.into_iter().collect(), ..self }
    }

    /// The same axis the other way around.
    pub(crate) fn downwards(self) -> Axis {
        Axis { low: self.high, high: self.low, ..self }
    }

    pub(crate) fn title(&self) -> &str {
        &self.title
    }

    pub(crate) fn width(&self) -> f64 {
        self.high - self.low
    }

    pub(crate) fn middle(&self) -> f64 {
        (self.low + self.high) / 2.0
    }

    /// Part of the axis before a value, from 0 to 1.
    fn share(&self, value: f64) -> f64 {
        match self.is_logarithmic {
            true => (value.clamp(self.low, self.high) / self.low).ln() / (self.high / self.low).ln(),
            false => (value - self.low) / (self.high - self.low),
        }
    }
}

/// Multiples of the powers of ten, from small to large.
fn decades(steps: &[f64]) -> impl Iterator<Item = f64> {
    (-6..13).flat_map(move |power| steps.iter().map(move |step| step * 10f64.powi(power)))
}

/// Ticks with as few digits as tell them apart.
fn labelled(ticks: impl Iterator<Item = f64>) -> Vec<(f64, String)> {
    let label = |tick: f64| format!("{tick:.6}").trim_end_matches('0').trim_end_matches('.').to_owned();
    ticks.map(|tick| (tick, label(tick))).collect()
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (begin, end): (i32, i32)) -> i32 {
        begin + (self.share(*value) * f64::from(end - begin)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks.iter().map(|tick| tick.0).collect()
    }

    fn range(&self) -> Range<f64> {
        self.low..self.high
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        self.ticks.iter().find(|tick| tick.0 == *value).map_or_else(String::new, |tick| tick.1.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_neither_too_few_nor_too_many() {
        for axis in [
            Axis::linear("", 0.0, 3.7),
            Axis::linear("", 0.0, 0.31),
            Axis::linear("", 0.0, 1200.0),
            Axis::logarithmic("", 0.1, 4.0),
            Axis::logarithmic("", 0.2, 0.5),
            Axis::logarithmic("", 1e-4, 1e9),
        ] {
            assert!((4..=14).contains(&axis.ticks.len()), "{axis:?}");
        }
        let labels = labelled([0.5, 10.0, 0.0, 1e6].into_iter()).into_iter().map(|tick| tick.1);
        assert_eq!(labels.collect::<Vec<_>>(), ["0.5", "10", "0", "1000000"]);
    }

    #[test]
    fn ratios_are_equally_far_apart_and_nothing_leaves_a_logarithmic_axis() {
        let axis = Axis::logarithmic("", 0.5, 8.0);
        let x = |value| axis.map(&value, (0, 1000));
        assert_eq!((x(0.5), x(1.0), x(2.0), x(4.0), x(8.0)), (0, 250, 500, 750, 1000));
        assert_eq!((x(0.0), x(100.0)), (0, 1000));
        let one = Axis::logarithmic("", 7.0, 7.0);
        assert_eq!(one.map(&7.0, (0, 100)), 50);
        // From bottom to top, as rows of a drawing are counted downwards.
        assert_eq!(Axis::linear("", 0.0, 4.0).map(&1.0, (400, 0)), 300);
    }
}
