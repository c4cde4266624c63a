//! Statement of a source about a number, and the verdict of comparing it with a number found here.
//!
//! A claim is written down once, as the source words it: a value, a strict limit, or no number. The verdict
//! follows from the claim and the number alone. A tolerance chosen after the number was known therefore
//! cannot turn a difference into an agreement.

use serde::Serialize;
use std::fmt;

/// Result of comparing a number found here with what a source states about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The number is what the source states.
    Agrees,
    /// The number is not what the source states.
    Differs,
    /// The source publishes no number to compare with.
    Reference,
}

impl Verdict {
    /// Name of the verdict, as it is printed.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Agrees => "agrees",
            Verdict::Differs => "differs",
            Verdict::Reference => "reference",
        }
    }

    /// Verdict on a statement that either holds or does not.
    pub fn on(holds: bool) -> Verdict {
        if holds { Verdict::Agrees } else { Verdict::Differs }
    }
}

/// Statement of a source about one number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Claim {
    /// A published value. A computed number agrees if it differs from the value by at most `tolerance`.
    Value {
        /// The value, as published.
        value: f64,
        /// Largest difference that still agrees, as a fraction of `value`.
        tolerance: f64,
    },
    /// A strict lower limit: "more than".
    MoreThan(f64),
    /// An inclusive upper limit: "at most", "within".
    AtMost(f64),
    /// No published number.
    Nothing,
}

impl Claim {
    /// Compares `found` with the claim. A limit is held strictly, to the last digit.
    pub fn verdict(self, found: f64) -> Verdict {
        match self {
            Claim::Value { value, tolerance } => {
                Verdict::on((found - value).abs() <= value.abs() * tolerance)
            }
            Claim::MoreThan(limit) => Verdict::on(found > limit),
            Claim::AtMost(limit) => Verdict::on(found <= limit),
            Claim::Nothing => Verdict::Reference,
        }
    }

    /// Returns the deviation of `found` from a published value, as a share of the value, or `None` if no
    /// value is published.
    pub fn deviation(self, found: f64) -> Option<f64> {
        match self {
            Claim::Value { value, .. } => Some(found / value - 1.0),
            _ => None,
        }
    }
}

impl fmt::Display for Claim {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Claim::Value { value, .. } => write!(to, "{value}"),
            Claim::MoreThan(limit) => write!(to, "more than {limit}"),
            Claim::AtMost(limit) => write!(to, "at most {limit}"),
            Claim::Nothing => write!(to, "nothing"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Verdict::{Agrees, Differs, Reference};

    #[test]
    fn a_claim_is_held_as_strictly_as_it_is_worded() {
        let value = Claim::Value { value: 2.0, tolerance: 0.15 };
        for (claim, found, verdict) in [
            (value, 2.0, Agrees),
            (value, 1.71, Agrees),
            (value, 2.29, Agrees),
            (value, 1.69, Differs),
            (value, 2.31, Differs),
            (value, f64::NAN, Differs),
            (Claim::MoreThan(0.9), 0.9001, Agrees),
            (Claim::MoreThan(0.9), 0.9, Differs),
            (Claim::MoreThan(0.9), 0.866, Differs),
            (Claim::MoreThan(0.0), -0.000_2, Differs),
            (Claim::AtMost(0.09), 0.09, Agrees),
            (Claim::AtMost(0.09), 0.0901, Differs),
            (Claim::Nothing, 0.007, Reference),
        ] {
            assert_eq!(claim.verdict(found), verdict, "{claim} against {found}");
        }
        assert_eq!(value.deviation(2.1).map(|share| (share * 1000.0).round()), Some(50.0));
        assert_eq!(Claim::MoreThan(1.0).deviation(2.0), None);
    }
}
