//! Positions of a slider: round values with units, in increasing order.
//!
//! A curve over a slider's number uses the same positions on its axis, so that the slider below is the axis,
//! in equal steps or by factors.

use serde::Serialize;

/// Rule for the values of a slider.
#[derive(Clone, Copy, Debug)]
pub enum Positions {
    /// All integers from 1 to 16, then larger steps up to 64.
    Counts,
    /// 1, 2, 3, 4, 6, 8, 12 and so on, up to 1024.
    Threads,
    /// Equal steps from 0: width of a step, number of steps, unit.
    Steps(f64, u32, &'static str),
    /// Doubled values for several units: first value, greatest value, unit.
    Doublings(&'static [(u32, u32, &'static str)]),
    /// Seventeen values per factor of ten for several units: least value, greatest value, unit.
    Factors(&'static [(f64, f64, &'static str)]),
    /// 0 in the given unit, then the values of [`Positions::Factors`].
    NothingOrFactors(&'static str, &'static [(f64, f64, &'static str)]),
}

/// Values that divide a factor of ten into steps of similar ratio.
const IN_TEN: [f64; 17] =
    [1.0, 1.2, 1.4, 1.6, 1.8, 2.0, 2.3, 2.6, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0];
/// Counts above 16, with gaps.
const LARGE_COUNTS: [u32; 8] = [20, 24, 28, 32, 40, 48, 56, 64];

/// Relation of a slider's positions to its values, which the axis of a curve states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    /// Equal steps.
    Linear,
    /// Equal factors, about.
    Logarithmic,
    /// Steps that become longer.
    Uneven,
}

impl Positions {
    /// Returns the relation of the positions to the values.
    pub fn scale(self) -> Scale {
        match self {
            Positions::Steps(..) => Scale::Linear,
            Positions::Counts => Scale::Uneven,
            Positions::Threads
            | Positions::Doublings(_)
            | Positions::Factors(_)
            | Positions::NothingOrFactors(..) => Scale::Logarithmic,
        }
    }

    /// Returns the values of all positions, with their units.
    pub fn texts(self) -> Vec<String> {
        match self {
            Positions::Counts => (1..=16).chain(LARGE_COUNTS).map(|count| count.to_string()).collect(),
            Positions::Threads => threads().map(|count| count.to_string()).collect(),
            Positions::Steps(step, count, unit) => {
                (0..=count).map(|at| written(step * f64::from(at), unit)).collect()
            }
            Positions::Doublings(ranges) => ranges.iter().flat_map(doublings).collect(),
            Positions::Factors(ranges) => ranges.iter().flat_map(factors).collect(),
            Positions::NothingOrFactors(unit, ranges) => {
                std::iter::once(written(0.0, unit)).chain(ranges.iter().flat_map(factors)).collect()
            }
        }
    }
}

fn threads() -> impl Iterator<Item = u32> {
    [1, 2, 3].into_iter().chain((2..10).flat_map(|power| [1 << power, 3 << (power - 1)])).chain([1024])
}

fn doublings(&(from, to, unit): &(u32, u32, &'static str)) -> Vec<String> {
    let twice = |at: &u32| at.checked_mul(2).filter(|twice| *twice > *at && *twice <= to);
    let values = std::iter::successors(Some(from), twice);
    values.map(|value| written(f64::from(value), unit)).collect()
}

fn factors(&(from, to, unit): &(f64, f64, &'static str)) -> Vec<String> {
    let tens = (-3..=7).flat_map(|power| IN_TEN.map(|digit| digit * 10f64.powi(power)));
    // The tolerance covers rounding: in binary, 0.1 may be slightly less.
    let is_between = |value: &f64| *value >= from * (1.0 - 1e-9) && *value <= to * (1.0 + 1e-9);
    tens.filter(is_between).map(|value| written(value, unit)).collect()
}

/// Formats a number and its unit, rounded to four decimals to hide binary rounding errors.
fn written(value: f64, unit: &str) -> String {
    let number = (value * 1e4).round() / 1e4;
    if unit.is_empty() { number.to_string() } else { format!("{number} {unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_as_people_do() {
        let rates = Positions::Factors(&[(10.0, 900.0, "MiB/s"), (1.0, 2.0, "GiB/s")]).texts();
        assert_eq!((rates.first().unwrap(), rates.last().unwrap()), (&"10 MiB/s".into(), &"2 GiB/s".into()));
        assert!(rates.contains(&"120 MiB/s".to_owned()) && rates.contains(&"1.2 GiB/s".to_owned()));
        assert_eq!(Positions::Steps(0.5, 3, "%").texts(), ["0 %", "0.5 %", "1 %", "1.5 %"]);
        assert_eq!(
            Positions::Doublings(&[(256, 512, "KiB"), (1, 2, "MiB")]).texts()[1..3],
            ["512 KiB", "1 MiB"]
        );
        assert_eq!(Positions::Threads.texts()[..7], ["1", "2", "3", "4", "6", "8", "12"]);
        assert_eq!(Positions::Threads.texts().last().unwrap(), "1024");
    }
}
