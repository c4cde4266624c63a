//! Curves of a report: a figure for each experiment and metric, a curve for each side over a size.
//!
//! x is logarithmic. y is linear from 0 for throughput and for the share that arrived, and logarithmic for the rest, such as
//! CPU time, where small buffers cost ten times what large ones do.

use crate::number;
use crate::row::{Row, Unit};
use bywash_plot::{Axis, Curve, Curves};

/// A figure: curves over a size.
pub struct Figure {
    /// The experiment and the metric with its unit.
    pub title: String,
    /// Name of the number along x.
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

    /// Every x, from left to right.
    pub fn sizes(&self) -> Vec<f64> {
        let all = self.curves.iter().flat_map(|curve| curve.points.iter().map(|point| point.0));
        let mut sizes: Vec<f64> = all.collect();
        sizes.sort_by(f64::total_cmp);
        sizes.dedup();
        sizes
    }

    /// The figure as SVG.
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

/// The figures of those rows that are points of curves, in order. A side has the same colour in all of them.
pub fn figures(rows: &[&Row]) -> Vec<Figure> {
    let mut figures: Vec<Figure> = Vec::new();
    let mut colours: Vec<String> = Vec::new();
    for row in rows {
        let (Some(point), Some(_)) = (&row.point, row.ours) else { continue };
        let (scale, y_title, log_y) = match row.metric.as_str() {
            "throughput" => (1e9, "throughput in GB/s", false),
            "arrived" => (1.0, "arrived, in %", false),
            "latency" => (1e3, "latency in us", true),
            "requests" => (1e6, "million requests a second", true),
            "requests per CPU second" => (1e6, "million requests per CPU second", true),
            "check" => (1.0, "ns a check", true),
            _ => (1.0, "CPU seconds per GB", true),
        };
        let title = format!("{}: {y_title}", point.figure);
        let number = figures.iter().position(|figure| figure.title == title && figure.axis == point.axis);
        let number = number.unwrap_or_else(|| {
            let (axis, unit, curves) = (point.axis.clone(), point.unit, Vec::new());
            figures.push(Figure { title, axis, curves, unit, y_title, log_y });
            figures.len() - 1
        });
        let curves = &mut figures[number].curves;
        for (name, value) in [(&row.peer, row.peer_value), (&point.line, row.ours)] {
            let Some(value) = value.filter(|value| value.is_finite()) else { continue };
            let colour = colours.iter().position(|known| known == name).unwrap_or_else(|| {
                colours.push(name.clone());
                colours.len() - 1
            });
            let number = curves.iter().position(|curve| curve.name == *name).unwrap_or_else(|| {
                curves.push(Curve { name: name.clone(), colour, points: Vec::new() });
                curves.len() - 1
            });
            let (points, x) = (&mut curves[number].points, point.x as f64);
            // Each row of a point names the same peer.
            if !points.iter().any(|known| known.0 == x) {
                points.push((x, value / scale));
                points.sort_by(|one, other| one.0.total_cmp(&other.0));
            }
        }
    }
    figures
}

/// A figure with three curves, as others test against it.
#[cfg(test)]
pub fn sample() -> Vec<Row> {
    let mut rows = Vec::new();
    for (mover, factor) in [("splice", 2.0), ("copy-range & <more>", 3.0)] {
        for (number, x) in [1u64 << 10, 1 << 16, 1 << 20].into_iter().enumerate() {
            for (metric, unit, scale) in [("throughput", "B/s", 1e9), ("cpu", "s/GB", 0.1)] {
                rows.push(Row {
                    bench: "flow/figures".into(),
                    case: format!("{mover}, buffer of {x}"),
                    metric: metric.into(),
                    unit: unit.into(),
                    ours: Some(factor * scale * (1.0 + number as f64)),
                    peer: "read and write".into(),
                    peer_value: Some(scale * (1.0 + number as f64)),
                    ratio: Some(factor),
                    point: Some(crate::row::Point {
                        figure: "same file system (ext4), 128 MiB moved".into(),
                        axis: "bytes of the buffer".into(),
                        unit: Unit::Bytes,
                        x,
                        line: mover.into(),
                    }),
                    ..Row::default()
                });
            }
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_for_each_metric_with_a_curve_for_each_mover_and_one_for_the_peer() {
        let rows = sample();
        let figures = figures(&rows.iter().collect::<Vec<_>>());
        assert_eq!(figures.len(), 2);
        for figure in &figures {
            let names: Vec<&str> = figure.curves.iter().map(|curve| curve.name.as_str()).collect();
            assert_eq!(names, ["read and write", "splice", "copy-range & <more>"]);
            assert!(figure.curves.iter().all(|curve| curve.points.len() == 3));
            let svg = figure.svg();
            assert!(svg.contains("64 KiB") && !svg.contains("NaN"), "{svg}");
        }
        assert_eq!(figures[0].curves[1].points[2], (1048576.0, 6.0));
    }

    #[test]
    fn a_side_has_the_same_colour_in_every_figure() {
        let mut rows = sample();
        rows.retain(|row| {
            row.metric == "throughput" || row.point.as_ref().is_some_and(|point| point.line != "splice")
        });
        let figures = figures(&rows.iter().collect::<Vec<_>>());
        assert_eq!((figures[0].curves[2].colour, figures[1].curves[1].colour), (2, 2));
    }

    #[test]
    fn one_point_alone_and_nothing_at_all() {
        let rows = sample();
        assert!(!figures(&[&rows[0]])[0].svg().contains("NaN"));
        assert!(figures(&[]).is_empty());
        assert!(figures(&[&Row { ours: None, ..rows[0].clone() }]).is_empty());
    }
}
