//! Quantities that follow from a radar's geometry, and the limits within which the range-Doppler algorithm is valid.

use crate::error::Error;
use crate::kernel::Sar;
use std::f64::consts::{FRAC_PI_2, PI};
use std::ops::Range;

/// Speed of light, in metres a second.
pub const LIGHT_M_S: f64 = 299_792_458.0;
/// Greatest number of samples of a row, and of rows.
const SIZE_MAX: usize = 1 << 16;
/// Ratio of the default geometry's sampling rates to its bandwidths, in range and in azimuth.
const OVERSAMPLING: f64 = 1.25;
/// Greatest number of pulses of a default geometry's aperture: with more, the coupling of range and azimuth would matter.
const APERTURE_MAX: usize = 4096;

impl Sar {
    /// Returns the geometry of an airborne C-band strip map at broadside that suits a scene's size.
    ///
    /// | parameter | value | 512 x 512 | 8192 x 8192 |
    /// |---|---|---|---|
    /// | carrier | 5.3 GHz | | |
    /// | sampling rate | 200 MHz, cells of 0.75 m | | |
    /// | bandwidth | 160 MHz | | |
    /// | pulse | a quarter of a row | 0.64 us | 10.24 us |
    /// | speed | 100 m/s | | |
    /// | near slant range | 20 km | | |
    /// | antenna | so long that the aperture at the far end is half the scene, at most 4096 pulses | 3.3 m | 0.95 m |
    /// | PRF | 1.25 times the Doppler bandwidth | 75 Hz | 263 Hz |
    /// | range migration at the far end | | 1.0 cells | 15 cells |
    pub fn strip_map(range: usize, azimuth: usize) -> Sar {
        let (carrier_hz, sampling_hz, speed_m_s, near_m) = (5.3e9, 200e6, 100.0, 20e3);
        let far_m = near_m + range as f64 * LIGHT_M_S / (2.0 * sampling_hz);
        let aperture = (azimuth / 2).clamp(1, APERTURE_MAX) as f64;
        let antenna_m = (2.0 * OVERSAMPLING * LIGHT_M_S / carrier_hz * far_m / aperture).sqrt();
        Sar {
            range,
            azimuth,
            carrier_hz,
            sampling_hz,
            bandwidth_hz: sampling_hz / OVERSAMPLING,
            pulse_s: (range / 4).max(1) as f64 / sampling_hz,
            prf_hz: OVERSAMPLING * 2.0 * speed_m_s / antenna_m,
            speed_m_s,
            near_m,
            antenna_m,
        }
    }

    /// Returns the wavelength of the carrier, in metres.
    pub fn wavelength_m(&self) -> f64 {
        LIGHT_M_S / self.carrier_hz
    }

    /// Returns the distance of two samples of a row in slant range, in metres.
    pub fn cell_m(&self) -> f64 {
        LIGHT_M_S / (2.0 * self.sampling_hz)
    }

    /// Returns the slant range of a cell of an image's row, which may be a fraction, in metres.
    pub fn range_m(&self, cell: f64) -> f64 {
        self.near_m + cell * self.cell_m()
    }

    /// Returns the number of samples of a chirp.
    pub fn pulse_samples(&self) -> usize {
        ((self.pulse_s * self.sampling_hz).round() as usize).max(1)
    }

    /// Returns the rate at which a chirp's frequency grows, in hertz a second.
    pub fn chirp_rate_hz_s(&self) -> f64 {
        self.bandwidth_hz / self.pulse_s
    }

    /// Returns the Doppler bandwidth of the antenna's beam, in hertz.
    pub fn doppler_hz(&self) -> f64 {
        2.0 * self.speed_m_s / self.antenna_m
    }

    /// Returns the number of pulses during which the beam lies on a point at a slant range: its synthetic aperture.
    pub fn aperture_pulses(&self, range_m: f64) -> f64 {
        self.wavelength_m() * range_m / (self.antenna_m * self.speed_m_s) * self.prf_hz
    }

    /// Returns by how many cells the echo of a point at the far end migrates in range during its aperture.
    pub fn migration_cells(&self) -> f64 {
        let far_m = self.range_m(self.range as f64);
        let half_m = self.aperture_pulses(far_m) / 2.0 / self.prf_hz * self.speed_m_s;
        (far_m.hypot(half_m) - far_m) / self.cell_m()
    }

    /// Returns the theoretical width at -3 dB of a point in range, in cells: 0.886 resolutions (Cumming and Wong, chapter 2).
    pub fn range_width_cells(&self) -> f64 {
        0.886 * self.sampling_hz / self.bandwidth_hz
    }

    /// Returns the theoretical width at -3 dB of a point in azimuth, in rows.
    pub fn azimuth_width_rows(&self) -> f64 {
        0.886 * self.prf_hz / self.doppler_hz()
    }

    /// Returns the cells of a row in which points are focused completely: their echo lies within the row.
    pub fn focused_range(&self) -> Range<usize> {
        let cut = self.pulse_samples() + self.migration_cells().ceil() as usize + 8;
        0..self.range.saturating_sub(cut)
    }

    /// Returns the rows in which points at a slant range are focused completely: their aperture lies within the scene.
    pub fn focused_azimuth(&self, range_m: f64) -> Range<usize> {
        let half = (self.aperture_pulses(range_m) / 2.0).ceil() as usize;
        half..self.azimuth.saturating_sub(half).max(half)
    }

    /// Returns the cosine of the angle at which an echo of a Doppler frequency arrives (Cumming and Wong's D).
    pub(crate) fn migration_factor(&self, doppler_hz: f64) -> f64 {
        let sine = self.wavelength_m() * doppler_hz / (2.0 * self.speed_m_s);
        (1.0 - sine * sine).max(f64::MIN_POSITIVE).sqrt()
    }

    /// Returns the quadratic phase at the edges of range and Doppler band that only secondary range compression would remove,
    /// in radians.
    fn coupling_rad(&self) -> f64 {
        let edge_hz = self.doppler_hz() / 2.0;
        let factor = self.migration_factor(edge_hz);
        let speed_hz2 = 2.0 * self.speed_m_s * self.speed_m_s * self.carrier_hz.powi(3) * factor.powi(3);
        let rate = speed_hz2 / (LIGHT_M_S * self.range_m(self.range as f64) * edge_hz * edge_hz);
        PI * (self.bandwidth_hz / 2.0).powi(2) / rate
    }

    /// Checks that an image can be formed.
    ///
    /// # Errors
    /// [`Error::Parameter`] names the value that is out of its range, and the range.
    pub fn check(&self) -> Result<(), Error> {
        within("range", self.range as f64, 1.0, SIZE_MAX as f64, "samples")?;
        within("azimuth", self.azimuth as f64, 1.0, SIZE_MAX as f64, "pulses")?;
        within("carrier", self.carrier_hz, 1e6, 1e12, "Hz")?;
        within("sampling rate", self.sampling_hz, 1e3, self.carrier_hz, "Hz")?;
        within("bandwidth", self.bandwidth_hz, 1.0, self.sampling_hz, "Hz (the sampling rate)")?;
        within(
            "pulse",
            self.pulse_s,
            0.5 / self.sampling_hz,
            self.range as f64 / self.sampling_hz,
            "s (a row)",
        )?;
        within("speed", self.speed_m_s, 1e-3, 1e5, "m/s")?;
        within("near range", self.near_m, 1.0, 1e8, "m")?;
        within("antenna", self.antenna_m, self.wavelength_m(), 1e3, "m (from a wavelength on)")?;
        let row_hz = self.sampling_hz / self.range as f64;
        within(
            "PRF",
            self.prf_hz,
            self.doppler_hz(),
            row_hz,
            "Hz (from the Doppler bandwidth to a row's rate)",
        )?;
        within("range migration", self.migration_cells(), 0.0, self.range as f64, "cells (the swath)")?;
        within(
            "coupling of range and azimuth",
            self.coupling_rad(),
            0.0,
            FRAC_PI_2,
            "rad (pi/2): use a longer antenna",
        )
    }
}

/// Checks that a value lies within its range.
fn within(name: &str, value: f64, low: f64, high: f64, unit: &str) -> Result<(), Error> {
    match value >= low && value <= high {
        true => Ok(()),
        false => {
            Err(Error::Parameter(format!("sar: {name} of {value} is not within {low} to {high} {unit}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_geometries_are_valid() {
        for (range, azimuth) in
            [(1, 1), (2, 1), (16, 16), (300, 500), (512, 512), (8192, 8192), (65536, 65536), (65536, 8)]
        {
            Sar::strip_map(range, azimuth)
                .check()
                .unwrap_or_else(|error| panic!("{range} x {azimuth}: {error}"));
        }
        let large = Sar::strip_map(8192, 8192);
        assert!((10.0..20.0).contains(&large.migration_cells()), "{} cells", large.migration_cells());
        assert!((0.9..1.0).contains(&large.antenna_m), "{} m", large.antenna_m);
        assert!((260.0..266.0).contains(&large.prf_hz), "{} Hz", large.prf_hz);
        let small = Sar::strip_map(512, 512);
        assert!((0.9..1.1).contains(&small.migration_cells()), "{} cells", small.migration_cells());
        assert!((74.0..77.0).contains(&small.prf_hz), "{} Hz", small.prf_hz);
    }

    #[test]
    fn errors_name_the_parameter_and_its_range() {
        let good = Sar::strip_map(512, 256);
        let bad = [
            (Sar { range: 0, ..good }, "range of 0 "),
            (Sar { azimuth: 0, ..good }, "azimuth of 0 "),
            (Sar { range: SIZE_MAX + 1, ..good }, "range of 65537 is not within 1 to 65536"),
            (Sar { azimuth: SIZE_MAX + 1, ..good }, "azimuth of 65537 is not within 1 to 65536"),
            (
                Sar { sampling_hz: good.bandwidth_hz / 2.0, ..good },
                "bandwidth of 160000000 is not within 1 to 80000000",
            ),
            (Sar { prf_hz: good.doppler_hz() * 0.9, ..good }, "PRF"),
            (Sar { prf_hz: 1e6, ..good }, "PRF"),
            (Sar { pulse_s: 3e-6, ..good }, "pulse of 0.000003 "),
            (Sar { speed_m_s: f64::NAN, ..good }, "speed of NaN"),
            (Sar { near_m: -1.0, ..good }, "near range of -1 "),
            (Sar { antenna_m: 0.01, ..good }, "antenna of 0.01 "),
            (Sar { antenna_m: 0.1, prf_hz: 4e3, near_m: 1e6, ..good }, "range migration"),
            (Sar { antenna_m: 0.3, prf_hz: 2e3, ..good }, "coupling"),
        ];
        for (sar, text) in bad {
            let message = sar.check().unwrap_err().to_string();
            assert!(message.contains(text), "{message} does not contain {text}");
        }
    }
}
