//! Figures of a report: one for each experiment and metric, with a curve for each side over a size.

use crate::number;
use crate::row::{Row, Unit};
use bywash_plot::{Axis, Curve, Curves};

/// A figure: curves over a size.
pub struct Figure {
    /// The experiment and the metric with its unit.
    pub title: String,
    pub axis: String,
    /// Its curves: the peers first, then ours, each in the order in which it comes.
    pub curves: Vec<Curve>,
    unit: Unit,
    y_title: &'static str,
    log_y: bool,
}

impl Figure {
    /// A number on x, as figures have it: `16 MiB`, `1,000`.
    pub fn label(&self, x: f64) -> String {
        match self.unit {
            Unit::Bytes => number::bytes(x).replace(".0 ", " "),
            Unit::Count => number::grouped(x as u64),
        }
    }

    pub fn sizes(&self) -> Vec<f64> {
        let points = self.curves.iter().flat_map(|curve| &curve.points);
        let mut sizes: Vec<f64> = points.map(|point| point.0).collect();
        sizes.sort_by(f64::total_cmp);
        sizes.dedup();
        sizes
    }

    pub fn svg(&self) -> String {
        let sizes = self.sizes();
        let (Some(first), Some(last)) = (sizes.first(), sizes.last()) else { return String::new() };
        let values = || self.curves.iter().flat_map(|curve| curve.points.iter().map(|point| point.1));
        let (low, high) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
        let plot = Curves {
            title: self.title.clone(),
            x: Axis::logarithmic(format!("{} (logarithmic)", self.axis), *first, *last)
                .ticks(sizes.iter().map(|size| (*size, self.label(*size)))),
            y: match self.log_y {
                true => Axis::logarithmic(format!("{} (logarithmic)", self.y_title), low * 0.8, high * 1.25),
                false => Axis::linear(self.y_title, 0.0, high * 1.08),
            },
            curves: self.curves.clone(),
            marks: Vec::new(),
        };
        plot.svg()
    }
}

/// The first of `all` that is wanted; `make` adds it where there is none.
fn find_or_add<T>(all: &mut Vec<T>, is_wanted: impl Fn(&T) -> bool, make: impl FnOnce() -> T) -> usize {
    all.iter().position(is_wanted).unwrap_or_else(|| {
        all.push(make());
        all.len() - 1
    })
}

/// The figures of those rows that are points of curves, in order. A side has the same colour in all of them.
pub fn figures(rows: &[&Row]) -> Vec<Figure> {
    let mut figures: Vec<Figure> = Vec::new();
    let mut colours: Vec<&str> = Vec::new();
    for row in rows {
        let (Some(point), Some(_)) = (&row.point, row.ours) else { continue };
        // An axis is logarithmic where small buffers cost ten times what large ones do; else it begins at 0.
        let (scale, y_title, log_y) = match row.metric.as_str() {
            "throughput" => (1e9, "throughput in GB/s", false),
            "arrived" => (1.0, "arrived, in %", false),
            "latency" => (1e3, "latency in us", true),
            "requests" => (1e6, "million requests a second", true),
            "requests per CPU second" => (1e6, "million requests per CPU second", true),
            "check" => (1.0, "ns a check", true),
            _ => (1.0, "CPU seconds per GB", true),
        };
        let (title, axis) = (format!("{}: {y_title}", point.figure), point.axis.clone());
        let is_same = |figure: &Figure| figure.title == title && figure.axis == point.axis;
        let (unit, curves) = (point.unit, Vec::new());
        let make = || Figure { title: title.clone(), axis, curves, unit, y_title, log_y };
        let figure = find_or_add(&mut figures, is_same, make);
        for (name, value) in [(&row.peer, row.peer_value), (&point.line, row.ours)] {
            let Some(value) = value.filter(|value| value.is_finite()) else { continue };
            let colour = find_or_add(&mut colours, |known| known == name, || name);
            let (curves, x) = (&mut figures[figure].curves, point.x as f64);
            let make = || Curve { name: name.clone(), colour, points: Vec::new() };
            let curve = find_or_add(curves, |curve| curve.name == *name, make);
            let points = &mut curves[curve].points;
            // Each row of a point names the same peer.
            find_or_add(points, |known| known.0 == x, || (x, value / scale));
            points.sort_by(|one, other| one.0.total_cmp(&other.0));
        }
    }
    figures
}

/// Two figures with three curves, as others test against them.
#[cfg(test)]
pub fn sample() -> Vec<Row> {
    let row = |mover: &str, factor: f64, number: u32, (metric, scale): (&str, f64)| {
        let value = scale * f64::from(1 + number);
        let (figure, axis) = ("same file system (ext4), 128 MiB moved".into(), "bytes of the buffer".into());
        let (unit, x, line) = (Unit::Bytes, 1024 << (number * 6), mover.to_owned());
        Row {
            metric: metric.into(),
            ours: Some(factor * value),
            peer: "read and write".into(),
            peer_value: Some(value),
            ratio: Some(factor),
            point: Some(crate::row::Point { figure, axis, unit, x, line }),
            ..Row::head("flow/figures", mover, "")
        }
    };
    let metrics = [("throughput", 1e9), ("cpu", 0.1)];
    let points =
        |(mover, factor)| (0..3).flat_map(move |x| metrics.map(|metric| row(mover, factor, x, metric)));
    [("splice", 2.0), ("copy-range & <more>", 3.0)].into_iter().flat_map(points).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_for_each_metric_has_a_curve_for_each_side_and_a_side_one_colour() {
        let mut rows = sample();
        let whole = figures(&rows.iter().collect::<Vec<_>>());
        assert_eq!(whole.len(), 2);
        for figure in &whole {
            let names: Vec<&str> = figure.curves.iter().map(|curve| curve.name.as_str()).collect();
            assert_eq!(names, ["read and write", "splice", "copy-range & <more>"]);
            let svg = figure.svg();
            assert!(svg.contains("64 KiB") && !svg.contains("NaN"), "{svg}");
        }
        assert_eq!(whole[0].curves[1].points[1], (65536.0, 4.0));
        assert!(!figures(&[&rows[0]])[0].svg().contains("NaN"));
        assert!(figures(&[&Row { ours: None, ..rows[0].clone() }]).is_empty());
        rows.retain(|row| row.metric == "throughput" || row.case != "splice");
        let some = figures(&rows.iter().collect::<Vec<_>>());
        assert_eq!((some[0].curves[2].colour, some[1].curves[1].colour), (2, 2));
    }
}
