//! Measurement of a focused point: position, width and side lobes, and the values of the theory.
//!
//! The samples around the point are interpolated with the periodic sinc, which is what a transform with zeros added to the
//! spectrum computes. The cuts in range and azimuth go through the peak's position between samples.

use rustfft::num_complex::Complex32;
use std::f64::consts::PI;

/// Samples around the point, in each direction.
const CHIP: usize = 64;
/// Positions between two samples at which a cut is computed.
const OVERSAMPLING: usize = 16;
/// Peak side lobe of a point whose spectrum has no weights, in decibels.
pub const SIDE_LOBE_DB: f64 = -13.26;

/// Quality of a focused point in one direction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cut {
    /// Position of the peak, in cells or rows; between samples.
    pub position: f64,
    /// Width where the power is half the peak's, in cells or rows.
    pub width: f64,
    /// Highest side lobe relative to the peak, in decibels.
    pub side_lobe_db: f64,
    /// Energy of the side lobes relative to the main lobe's, in decibels.
    pub integrated_db: f64,
}

/// Quality of a focused point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Focus {
    /// Cut along the row.
    pub range: Cut,
    /// Cut along the column.
    pub azimuth: Cut,
    /// Amplitude of the peak.
    pub amplitude: f64,
    /// Phase of the peak, in radians.
    pub phase: f64,
}

/// Measures the point whose highest sample lies within 8 cells of a cell and row. The image continues at its other edge.
///
/// # Panics
/// If the image is not made of whole rows of `columns` samples.
pub fn measure(image: &[Complex32], columns: usize, around: (usize, usize)) -> Focus {
    let rows = image.len() / columns;
    assert!(rows * columns == image.len() && rows > 0, "an image of whole rows");
    let at = |row: isize, cell: isize| {
        image[row.rem_euclid(rows as isize) as usize * columns + cell.rem_euclid(columns as isize) as usize]
    };
    let near = |center: usize| (center as isize - 8..=center as isize + 8).collect::<Vec<_>>();
    let candidates =
        near(around.1).into_iter().flat_map(|row| near(around.0).into_iter().map(move |cell| (row, cell)));
    let (row, cell) =
        candidates.max_by(|a, b| at(a.0, a.1).norm().total_cmp(&at(b.0, b.1).norm())).unwrap_or((0, 0));
    let half = (CHIP / 2) as isize;
    let chip = |y: usize, x: usize| at(row - half + y as isize, cell - half + x as isize);
    let (mut x, mut y) = (CHIP as f64 / 2.0, CHIP as f64 / 2.0);
    let (mut across, mut along) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        along = oversampled(|index| interpolated(|tap| chip(index, tap), x));
        y = peak(&along);
        across = oversampled(|index| interpolated(|tap| chip(tap, index), y));
        x = peak(&across);
    }
    let value = interpolated(|index| interpolated(|tap| chip(tap, index), y), x);
    let cut = |line: &[f64], position: f64, first: isize| Cut {
        position: first as f64 + position,
        ..analyse(line, position)
    };
    Focus {
        range: cut(&across, x, cell - half),
        azimuth: cut(&along, y, row - half),
        amplitude: f64::from(value.norm()),
        phase: f64::from(value.arg()),
    }
}

/// Returns the value of a periodic line of samples at a position between samples.
fn interpolated(line: impl Fn(usize) -> Complex32, position: f64) -> Complex32 {
    (0..CHIP).map(|index| line(index) * periodic_sinc(position - index as f64) as f32).sum()
}

/// Returns the amplitudes of a line between its samples.
fn oversampled(line: impl Fn(usize) -> Complex32) -> Vec<f64> {
    let samples: Vec<Complex32> = (0..CHIP).map(line).collect();
    let value = |index| interpolated(|tap| samples[tap], index as f64 / OVERSAMPLING as f64);
    (0..CHIP * OVERSAMPLING).map(|index| f64::from(value(index).norm())).collect()
}

fn periodic_sinc(x: f64) -> f64 {
    let angle = PI * x / CHIP as f64;
    if angle.sin().abs() < 1e-12 { 1.0 } else { (PI * x).sin() / (CHIP as f64 * angle.tan()) }
}

/// Returns the position of a line's peak, in samples: the vertex of the parabola through the three highest values.
fn peak(line: &[f64]) -> f64 {
    let top = (1..line.len() - 1).max_by(|a, b| line[*a].total_cmp(&line[*b])).unwrap_or(1);
    let (before, at, after) = (line[top - 1], line[top], line[top + 1]);
    let curvature = before - 2.0 * at + after;
    let shift = if curvature < 0.0 { (before - after) / (2.0 * curvature) } else { 0.0 };
    (top as f64 + shift) / OVERSAMPLING as f64
}

/// Measures width and side lobes of a line of amplitudes around its peak.
fn analyse(line: &[f64], position: f64) -> Cut {
    let top = ((position * OVERSAMPLING as f64).round() as usize).min(line.len() - 1);
    let half = line[top] * 0.5f64.sqrt();
    // The distance at which the amplitude falls below half power, between two values.
    let crossing = |next: &dyn Fn(usize) -> Option<usize>| {
        let (mut distance, mut index) = (0.0, top);
        while let Some(further) = next(index).filter(|_| line[index] >= half) {
            let is_below = line[further] < half;
            distance += if is_below { (line[index] - half) / (line[index] - line[further]) } else { 1.0 };
            index = further;
        }
        distance
    };
    let (forth, back) =
        (|index: usize| (index + 1 < line.len()).then_some(index + 1), |index: usize| index.checked_sub(1));
    let width = (crossing(&forth) + crossing(&back)) / OVERSAMPLING as f64;
    let mut end = top;
    while end + 1 < line.len() && line[end + 1] <= line[end] {
        end += 1;
    }
    let mut begin = top;
    while begin > 0 && line[begin - 1] <= line[begin] {
        begin -= 1;
    }
    let lobes = || line[..begin].iter().chain(&line[end + 1..]);
    let highest = lobes().fold(0.0, |highest: f64, value| highest.max(*value));
    let energy: f64 = lobes().map(|value| value * value).sum();
    let main: f64 = line[begin..=end].iter().map(|value| value * value).sum();
    let (side_lobe_db, integrated_db) =
        (20.0 * (highest / line[top]).log10(), 10.0 * (energy / main).log10());
    Cut { position, width, side_lobe_db, integrated_db }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Measures a product of sinc functions, of which everything is known.
    #[test]
    fn a_sinc_has_the_values_of_the_theory() {
        let (x0, y0) = (50.3, 40.8);
        let sinc = |x: f64| if x == 0.0 { 1.0 } else { (PI * x).sin() / (PI * x) };
        let value =
            |index: usize| sinc((index as f64 % 100.0 - x0) * 0.8) * sinc(((index / 100) as f64 - y0) * 0.5);
        let image: Vec<Complex32> =
            (0..100 * 90).map(|index| Complex32::new(0.0, 3.0 * value(index) as f32)).collect();
        let focus = measure(&image, 100, (52, 44));
        for (cut, position, width) in [(focus.range, x0, 0.886 / 0.8), (focus.azimuth, y0, 0.886 / 0.5)] {
            assert!((cut.position - position).abs() < 0.01, "{cut:?}");
            assert!((cut.width / width - 1.0).abs() < 0.01, "{cut:?}");
            assert!((cut.side_lobe_db - SIDE_LOBE_DB).abs() < 0.2, "{cut:?}");
            assert!((-10.5..-9.0).contains(&cut.integrated_db), "{cut:?}");
        }
        assert!((focus.amplitude - 3.0).abs() < 0.03 && (focus.phase - PI / 2.0).abs() < 0.01, "{focus:?}");
    }
}
