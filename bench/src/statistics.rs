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
        let [low, median, high] = [0.25, 0.5, 0.75].map(|fraction| quantile(&sorted, fraction));
        Some(Summary { median, low, high })
    }
}

/// The value at `fraction` of the way through `sorted`, linear between neighbours (Hyndman and Fan, type 7).
fn quantile(sorted: &[f64], fraction: f64) -> f64 {
    let position = fraction * (sorted.len() - 1) as f64;
    let (below, above) = (sorted[position.floor() as usize], sorted[position.ceil() as usize]);
    below + (above - below) * position.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_are_linear_between_neighbours_and_one_wild_value_does_not_move_the_median() {
        let odd = Summary::of(&[5.0, 1.0, 3.0, 2.0, 900.0]).unwrap();
        assert_eq!((odd.median, odd.low, odd.high), (3.0, 2.0, 5.0));
        assert_eq!(Summary::of(&[4.0, 1.0, 2.0, 3.0]), Some(Summary { median: 2.5, low: 1.75, high: 3.25 }));
        assert_eq!(Summary::of(&[7.0]), Some(Summary { median: 7.0, low: 7.0, high: 7.0 }));
        assert_eq!((Summary::of(&[]), Summary::of(&[1.0, f64::NAN])), (None, None));
    }
}
