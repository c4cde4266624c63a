//! What the papers simulated, simulated here: their ratios against ours.
//!
//! - [`servers`]: Figures 8 and 9 of Carrera et al., and their model against their simulator
//! - [`streams`]: the streams of Schaelicke's dissertation, and which of the three mechanisms matters
//!
//! Every bar comes from one description, in which only what names the bar is changed; nothing is fitted to a bar.

pub mod servers;
pub mod streams;

use serde::Serialize;

/// What a paper says, and what comes out here.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Target {
    /// Where it says so.
    pub source: &'static str,
    /// Of what.
    pub what: &'static str,
    /// The paper's figure, as it has it.
    pub says: &'static str,
    /// Ours.
    pub simulated: f64,
    /// What it must lie between to agree.
    pub range: (f64, f64),
    /// What to know about it.
    pub note: &'static str,
}

impl Target {
    /// Whether it does.
    pub fn agrees(&self) -> bool {
        (self.range.0..=self.range.1).contains(&self.simulated)
    }
}

/// How far a simulated ratio may be from the paper's.
pub const TOLERANCE: f64 = 0.15;

fn near(says: f64) -> (f64, f64) {
    (says * (1.0 - TOLERANCE), says * (1.0 + TOLERANCE))
}
