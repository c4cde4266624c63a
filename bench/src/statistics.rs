//! Medians and quartiles of a handful of values.

/// Median and quartiles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// The middle value.
    pub median: f64,
    /// First quartile.
    pub low: f64,
    /// Third quartile.
    pub high: f64,
}

impl Summary {
    /// Summary of `values` in any order; `None` when there are none or one is not a number.
    pub fn of(values: &[f64]) -> Option<Summary> {
        if values.is_empty() || values.iter().any(|value| value.is_nan()) {
            return None;
        }
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        Some(Summary {
            median: quantile(&sorted, 0.5),
            low: quantile(&sorted, 0.25),
            high: quantile(&sorted, 0.75),
        })
    }

    /// The interquartile range.
    pub fn spread(&self) -> f64 {
        self.high - self.low
    }
}

/// The value at `fraction` of the way through `sorted`, linear between neighbours (Hyndman and Fan, type 7).
fn quantile(sorted: &[f64], fraction: f64) -> f64 {
    let place = fraction * (sorted.len() - 1) as f64;
    let below = sorted[place.floor() as usize];
    let above = sorted[place.ceil() as usize];
    below + (above - below) * place.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_of_an_odd_and_an_even_number() {
        let odd = Summary::of(&[5.0, 1.0, 3.0, 2.0, 4.0]).unwrap();
        assert_eq!((odd.median, odd.low, odd.high, odd.spread()), (3.0, 2.0, 4.0, 2.0));
        let even = Summary::of(&[4.0, 1.0, 2.0, 3.0]).unwrap();
        assert_eq!((even.median, even.low, even.high), (2.5, 1.75, 3.25));
    }

    #[test]
    fn one_value_is_its_own_median() {
        assert_eq!(Summary::of(&[7.0]), Some(Summary { median: 7.0, low: 7.0, high: 7.0 }));
    }

    #[test]
    fn nothing_and_not_a_number_have_no_summary() {
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&[1.0, f64::NAN]), None);
    }

    #[test]
    fn one_wild_value_does_not_move_the_median() {
        let calm = Summary::of(&[1.0, 1.1, 1.2, 1.3, 1.4]).unwrap();
        let wild = Summary::of(&[1.0, 1.1, 1.2, 1.3, 900.0]).unwrap();
        assert_eq!(calm.median, wild.median);
    }
}
