//! Design and check of filters with a finite impulse response.

use super::Fir;
use crate::error::Error;
use std::f64::consts::PI;

impl Fir {
    /// Greatest number of coefficients.
    pub const TAPS_MAX: usize = 1 << 16;
    /// Greatest decimation.
    pub const DECIMATION_MAX: usize = 1 << 16;

    /// Designs a low-pass filter of `taps` coefficients whose gain is 1 at frequency 0 and one half at `cutoff`, which is a
    /// part of the sampling rate of the input, more than 0 and less than 0.5. To keep a band free of aliases, the cutoff is
    /// less than `0.5 / decimation`.
    ///
    /// The ideal impulse response is cut off by a Hamming window, so that the pass band is flat within 0.5 %, the stop band
    /// 50 dB below it, and the band between both about `3.3 / taps` wide (Oppenheim and Schafer, Discrete-Time Signal
    /// Processing, 3rd edition, 2010, section 7.5).
    ///
    /// # Errors
    /// [`Error::Parameter`] for a cutoff outside its range, and those of [`Fir::check`].
    pub fn low_pass(taps: usize, cutoff: f64, decimation: usize) -> Result<Fir, Error> {
        if !(cutoff > 0.0 && cutoff < 0.5) {
            return Err(Error::Parameter(format!(
                "the cutoff of a low-pass can be more than 0 and less than 0.5 of the sampling rate, but not {cutoff}"
            )));
        }
        check_sizes(taps, decimation)?;
        let middle = (taps - 1) as f64 / 2.0;
        let ideal = |distance: f64| match distance {
            0.0 => 2.0 * cutoff,
            _ => (2.0 * PI * cutoff * distance).sin() / (PI * distance),
        };
        let window = |number: usize| match taps {
            1 => 1.0,
            _ => 0.54 - 0.46 * (2.0 * PI * number as f64 / (taps - 1) as f64).cos(),
        };
        let cut: Vec<f64> = (0..taps).map(|number| ideal(number as f64 - middle) * window(number)).collect();
        let gain: f64 = cut.iter().sum();
        let fir = Fir { taps: cut.iter().map(|tap| (tap / gain) as f32).collect(), decimation };
        fir.check()?;
        Ok(fir)
    }

    /// Checks the coefficients and the decimation.
    ///
    /// # Errors
    /// [`Error::Parameter`] with the value and the possible range.
    pub fn check(&self) -> Result<(), Error> {
        check_sizes(self.taps.len(), self.decimation)?;
        match self.taps.iter().position(|tap| !tap.is_finite()) {
            None => Ok(()),
            Some(number) => Err(Error::Parameter(format!(
                "coefficient {number} of the filter is {}, but can only be a finite number",
                self.taps[number]
            ))),
        }
    }
}

fn check_sizes(taps: usize, decimation: usize) -> Result<(), Error> {
    if !(1..=Fir::TAPS_MAX).contains(&taps) {
        let range = format!("1 to {}", Fir::TAPS_MAX);
        return Err(Error::Parameter(format!("a filter can have {range} coefficients, but not {taps}")));
    }
    if !(1..=Fir::DECIMATION_MAX).contains(&decimation) {
        let range = format!("1 to {}", Fir::DECIMATION_MAX);
        return Err(Error::Parameter(format!(
            "the decimation of a filter can be {range}, but not {decimation}"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gain of a filter at a frequency, a part of the sampling rate.
    fn gain(fir: &Fir, frequency: f64) -> f64 {
        let (mut re, mut im) = (0.0, 0.0);
        for (number, tap) in fir.taps.iter().enumerate() {
            let angle = 2.0 * PI * frequency * number as f64;
            re += f64::from(*tap) * angle.cos();
            im -= f64::from(*tap) * angle.sin();
        }
        re.hypot(im)
    }

    #[test]
    fn a_low_pass_keeps_what_is_below_its_cutoff_alone() {
        for (taps, cutoff) in [(63, 0.1), (64, 0.25), (201, 0.04)] {
            let fir = Fir::low_pass(taps, cutoff, 2).unwrap();
            let half_width = 3.3 / taps as f64 / 2.0;
            assert!((gain(&fir, 0.0) - 1.0).abs() < 1e-5);
            assert!((gain(&fir, cutoff) - 0.5).abs() < 0.01);
            for step in 0..1000 {
                let frequency = f64::from(step) / 2000.0;
                let gain = gain(&fir, frequency);
                if frequency < cutoff - half_width {
                    assert!((gain - 1.0).abs() < 0.005, "{taps} taps, {frequency}: {gain}");
                } else if frequency > cutoff + half_width {
                    assert!(gain < 0.0032, "{taps} taps, {frequency}: {gain}");
                }
            }
            let mirrored: Vec<f32> = fir.taps.iter().rev().copied().collect();
            assert!(fir.taps.iter().zip(&mirrored).all(|(one, other)| (one - other).abs() < 1e-7));
        }
        assert_eq!(Fir::low_pass(1, 0.1, 1).unwrap().taps, [1.0]);
    }

    #[test]
    fn impossible_filters_are_refused_with_the_possible_range() {
        let fir = |taps: Vec<f32>, decimation| Fir { taps, decimation }.check();
        fir(vec![0.0; Fir::TAPS_MAX], Fir::DECIMATION_MAX).unwrap();
        for (result, words) in [
            (fir(vec![], 1), ["1 to 65536 coefficients", "not 0"]),
            (fir(vec![0.0; Fir::TAPS_MAX + 1], 1), ["1 to 65536 coefficients", "not 65537"]),
            (fir(vec![1.0], 0), ["decimation", "1 to 65536, but not 0"]),
            (fir(vec![1.0], 70_000), ["decimation", "1 to 65536, but not 70000"]),
            (fir(vec![1.0, f32::NAN], 1), ["coefficient 1", "NaN"]),
            (fir(vec![f32::INFINITY], 1), ["coefficient 0", "inf"]),
            (Fir::low_pass(8, 0.5, 1).map(drop), ["less than 0.5", "not 0.5"]),
            (Fir::low_pass(8, f64::NAN, 1).map(drop), ["less than 0.5", "not NaN"]),
            (Fir::low_pass(0, 0.1, 1).map(drop), ["1 to 65536 coefficients", "not 0"]),
        ] {
            let message = result.unwrap_err().to_string();
            assert!(words.iter().all(|word| message.contains(word)), "{message}");
        }
    }
}
