//! Windows: weights on spectra and on interpolation kernels.

use std::f64::consts::PI;

/// Weights on the spectra of range and azimuth, which lower the side lobes and widen the peak.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Weighting {
    /// No weights: a side lobe of -13.26 dB, and a width of 0.886 resolutions.
    #[default]
    None,
    /// Hamming window: side lobes below -40 dB.
    Hamming,
    /// Kaiser window with its parameter beta, for instance 2.5: side lobes of -21 dB.
    Kaiser(f64),
}

impl Weighting {
    /// Returns the weight at a frequency, in half bandwidths: 0 in the middle, 1 at the edge of the band.
    pub fn at(self, frequency: f64) -> f64 {
        match self {
            Weighting::None => 1.0,
            _ if frequency.abs() > 1.0 => 0.0,
            Weighting::Hamming => 0.54 + 0.46 * (PI * frequency).cos(),
            Weighting::Kaiser(beta) => bessel(beta * (1.0 - frequency * frequency).sqrt()) / bessel(beta),
        }
    }
}

/// Returns the modified Bessel function of the first kind and order 0, by its power series.
pub fn bessel(x: f64) -> f64 {
    let (mut term, mut sum) = (1.0, 1.0);
    for index in 1..64 {
        term *= (x / 2.0 / f64::from(index)).powi(2);
        sum += term;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_1_in_the_middle_and_small_at_the_edge() {
        for (weighting, edge) in [(Weighting::Hamming, 0.08), (Weighting::Kaiser(2.5), 1.0 / bessel(2.5))] {
            assert!((weighting.at(0.0) - 1.0).abs() < 1e-12);
            assert!((weighting.at(1.0) - edge).abs() < 1e-12);
            assert_eq!(weighting.at(1.01), 0.0);
        }
        assert!((bessel(2.5) - 3.289_839_144_050_123).abs() < 1e-12);
    }
}
