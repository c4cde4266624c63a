//! Picture of an image: grey values by decibels.

use rustfft::num_complex::Complex32;

/// Converts amplitudes to grey values: 255 for `peak`, and 0 for what lies `span_db` decibels or more below.
pub fn grey(samples: &[Complex32], peak: f32, span_db: f32) -> Vec<u8> {
    let value = |sample: &Complex32| {
        let db = 20.0 * (sample.norm() / peak).max(f32::MIN_POSITIVE).log10();
        (255.0 * (1.0 + db / span_db)).clamp(0.0, 255.0).round() as u8
    };
    samples.iter().map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grey_values_are_linear_in_decibels() {
        let samples = [2.0, 0.2, 0.02, 0.0, 5.0].map(|amplitude| Complex32::new(0.0, amplitude));
        assert_eq!(grey(&samples, 2.0, 40.0), [255, 128, 0, 0, 255]);
    }
}
