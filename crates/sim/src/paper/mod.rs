//! The papers' simulated figures, simulated here, with the papers' statements beside the resulting numbers.
//!
//! - [`servers`]: Figures 8 and 9 of Carrera et al., and their model against their simulator
//! - [`executed`]: the bars of these figures by executing the servers as programs
//! - [`streams`]: the streams of Schaelicke's dissertation, and the effect of each of the three mechanisms
//!
//! Every bar follows from one description, in which only the parameters that name the bar change; nothing is
//! fitted to a bar. A statement is compared with the same bars on the same interconnect as in the source, as
//! strictly as the source words it ([`Claim`]).

pub mod executed;
pub mod servers;
pub mod streams;

use bywash_model::claim::{Claim, Verdict};
use serde::{Serialize, Serializer};

/// Statement of a paper about something that it simulated, and the number simulated here.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Target {
    /// Part of the paper that makes the statement.
    pub source: &'static str,
    /// Quantity that the statement is about.
    pub what: &'static str,
    /// The statement. It is serialized as [`Target::says`] words it.
    #[serde(serialize_with = "in_words")]
    pub claim: Claim,
    /// Number simulated here.
    pub simulated: f64,
    /// Result of the comparison.
    pub verdict: Verdict,
    /// Reason for a difference, or a remark; empty where there is none.
    pub note: &'static str,
}

impl Target {
    fn new(source: &'static str, what: &'static str, claim: Claim, simulated: f64) -> Target {
        Target { source, what, claim, simulated, verdict: claim.verdict(simulated), note: "" }
    }

    /// Adds the reason for a difference, which is dropped if the line agrees.
    fn because(self, note: &'static str) -> Target {
        Target { note: if self.verdict == Verdict::Differs { note } else { "" }, ..self }
    }

    /// The statement in words, as the source makes it.
    pub fn says(&self) -> String {
        self.claim.to_string()
    }
}

fn in_words<S: Serializer>(claim: &Claim, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(claim)
}

/// Largest deviation from a published ratio that still agrees, as a share of the ratio.
pub const TOLERANCE: f64 = 0.15;

const fn near(value: f64) -> Claim {
    Claim::Value { value, tolerance: TOLERANCE }
}
