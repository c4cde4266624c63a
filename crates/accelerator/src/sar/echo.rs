//! Simulator of raw echoes of points, pulse by pulse, so that scenes larger than memory can be made as a stream.
//!
//! The echo of a point at slant range R and along-track time t0 (Cumming and Wong, chapter 4):
//! `amplitude * w(t - t0) * exp(-j 4 pi R(t) / wavelength) * chirp(tau - 2 R(t) / c)`, `R(t)^2 = R^2 + speed^2 (t - t0)^2`.
//! The platform stands still from sending to receiving. Phases are computed with 64 bits, samples have 32.

use crate::kernel::Sar;
use crate::sar::LIGHT_M_S;
use rustfft::num_complex::Complex32;
use std::f64::consts::{PI, TAU};

/// Point that reflects.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Target {
    /// Slant range at the closest approach, in cells from the first sample; may be a fraction.
    pub range_cell: f64,
    /// Pulse of the closest approach; may be a fraction.
    pub azimuth_row: f64,
    /// Amplitude of the echo, and of the focused point.
    pub amplitude: f64,
}

/// Pattern of the antenna along the track, two-way amplitude.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Antenna {
    /// 1 within half a beam (wavelength / length / 2) on either side, and 0 beyond: the spectrum of the theory.
    #[default]
    Rectangular,
    /// Main lobe of sinc^2 of a uniform aperture, 0 beyond the first null. Its Doppler band is twice as wide: a part of it is
    /// aliased at the default PRF, as with real radars.
    Sinc2,
}

impl Antenna {
    /// Returns the amplitude at an angle, in beams (wavelength / length).
    fn amplitude(self, angle: f64) -> f64 {
        match self {
            Antenna::Rectangular if angle.abs() <= 0.5 => 1.0,
            Antenna::Sinc2 if angle == 0.0 => 1.0,
            Antenna::Sinc2 if angle.abs() < 1.0 => ((PI * angle).sin() / (PI * angle)).powi(2),
            Antenna::Rectangular | Antenna::Sinc2 => 0.0,
        }
    }
}

/// Raw echoes of a scene of points.
#[derive(Clone, Debug)]
pub struct Echoes {
    sar: Sar,
    targets: Vec<Target>,
    antenna: Antenna,
    /// Standard deviation of the noise's real and imaginary part, and its seed.
    noise: Option<(f64, u64)>,
}

impl Echoes {
    /// Begins a scene of points.
    pub fn new(sar: &Sar, targets: Vec<Target>) -> Echoes {
        Echoes { sar: *sar, targets, antenna: Antenna::default(), noise: None }
    }

    /// Sets the antenna's pattern.
    #[must_use]
    pub fn antenna(self, antenna: Antenna) -> Echoes {
        Echoes { antenna, ..self }
    }

    /// Adds white Gaussian noise with a standard deviation of each of real and imaginary part. The same seed gives the same
    /// noise, in whatever order rows are made.
    #[must_use]
    pub fn noise(self, deviation: f64, seed: u64) -> Echoes {
        Echoes { noise: Some((deviation, seed)), ..self }
    }

    /// Computes the echoes of one pulse.
    ///
    /// # Panics
    /// If the row's length is not that of the scene's rows.
    pub fn row(&self, pulse: usize, row: &mut [Complex32]) {
        assert_eq!(row.len(), self.sar.range, "samples of a row");
        row.fill(Complex32::default());
        for target in &self.targets {
            self.add(target, pulse, row);
        }
        if let Some((deviation, seed)) = self.noise {
            let mut random = Random(seed ^ (pulse as u64).wrapping_mul(0xa076_1d64_78bd_642f));
            for sample in row {
                *sample += random.normal(deviation);
            }
        }
    }

    /// Computes the whole scene.
    pub fn scene(&self) -> Vec<Complex32> {
        let mut scene = vec![Complex32::default(); self.sar.range * self.sar.azimuth];
        for (pulse, row) in scene.chunks_exact_mut(self.sar.range).enumerate() {
            self.row(pulse, row);
        }
        scene
    }

    fn add(&self, target: &Target, pulse: usize, row: &mut [Complex32]) {
        let sar = &self.sar;
        let closest_m = sar.range_m(target.range_cell);
        let along_m = (pulse as f64 - target.azimuth_row) / sar.prf_hz * sar.speed_m_s;
        let beam_m = sar.wavelength_m() * closest_m / sar.antenna_m;
        let amplitude = target.amplitude * self.antenna.amplitude(along_m / beam_m);
        if amplitude == 0.0 {
            return;
        }
        let distance_m = closest_m.hypot(along_m);
        let turns = -2.0 * distance_m / sar.wavelength_m();
        let start = (distance_m - sar.near_m) * 2.0 / LIGHT_M_S * sar.sampling_hz;
        let pulse_samples = sar.pulse_s * sar.sampling_hz;
        let rate = sar.chirp_rate_hz_s() / (sar.sampling_hz * sar.sampling_hz);
        let first = start.ceil().max(0.0);
        let end = (start + pulse_samples).ceil().clamp(first, row.len() as f64);
        for (index, sample) in row.iter_mut().enumerate().take(end as usize).skip(first as usize) {
            let time = index as f64 - start - pulse_samples / 2.0;
            let phase = TAU * (turns + rate * time * time / 2.0).fract();
            *sample += Complex32::new((amplitude * phase.cos()) as f32, (amplitude * phase.sin()) as f32);
        }
    }
}

/// Generator of pseudo-random numbers (SplitMix64).
struct Random(u64);

impl Random {
    /// Returns a number above 0 and up to 1.
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ (bits >> 31)) >> 11) as f64 * 2f64.powi(-53) + 2f64.powi(-53)
    }

    /// Returns a complex number whose parts are normally distributed (Box and Muller's transform).
    fn normal(&mut self, deviation: f64) -> Complex32 {
        let radius = deviation * (-2.0 * self.uniform().ln()).sqrt();
        let (sine, cosine) = (TAU * self.uniform()).sin_cos();
        Complex32::new((radius * cosine) as f32, (radius * sine) as f32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_echo_begins_at_its_range_and_lasts_a_chirp() {
        let sar = Sar::strip_map(256, 64);
        let echoes = Echoes::new(&sar, vec![Target { range_cell: 39.5, azimuth_row: 32.0, amplitude: 2.0 }]);
        let scene = echoes.scene();
        let row = &scene[32 * 256..33 * 256];
        for (index, sample) in row.iter().enumerate() {
            let expected = if (40..40 + sar.pulse_samples()).contains(&index) { 2.0 } else { 0.0 };
            assert!((sample.norm() - expected).abs() < 1e-5, "sample {index}: {sample}");
        }
        let lit = scene.chunks(256).filter(|row| row.iter().any(|sample| sample.norm() > 0.0)).count();
        let aperture = sar.aperture_pulses(sar.range_m(39.5));
        assert!((lit as f64 - aperture).abs() <= 1.0, "{lit} pulses of {aperture}");
    }

    #[test]
    fn noise_depends_on_seed_and_pulse_only() {
        let sar = Sar::strip_map(4096, 4);
        let echoes = Echoes::new(&sar, Vec::new()).noise(0.5, 7);
        let scene = echoes.scene();
        let mut row = vec![Complex32::default(); 4096];
        echoes.row(3, &mut row);
        assert_eq!(row, scene[3 * 4096..]);
        assert_ne!(row, scene[..4096]);
        let variance =
            scene.iter().map(|sample| f64::from(sample.norm_sqr())).sum::<f64>() / scene.len() as f64 / 2.0;
        assert!((variance - 0.25).abs() < 0.01, "variance {variance}");
    }

    #[test]
    fn the_lobe_of_an_aperture_is_wider_than_its_rectangle() {
        assert_eq!(Antenna::Rectangular.amplitude(0.6), 0.0);
        assert!(Antenna::Sinc2.amplitude(0.6) > 0.2);
        assert_eq!(Antenna::Sinc2.amplitude(1.0), 0.0);
        assert_eq!((Antenna::Sinc2.amplitude(0.0), Antenna::Rectangular.amplitude(0.0)), (1.0, 1.0));
    }
}
