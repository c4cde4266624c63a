//! Rows, one for each comparison, and the report that holds all of them.
//!
//! The first fourteen fields of a row are the schema that every bench family shares; those after `note` say
//! more. `ratio` is ours against the peer with larger = better for us: ours/peer for rates, peer/ours for
//! costs. It is the median of the ratios of the rounds, so it need not be the ratio of the two medians beside it.

use crate::error::Error;
use crate::machine::Machine;
use crate::statistics::Summary;
use crate::usage::Usage;
use serde::{Deserialize, Serialize};

/// One case on one place, by one metric, against one peer.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Row {
    /// The bench, e.g. `run/sqlite`.
    pub bench: String,
    /// The case and the place, unique together with `bench`, `metric` and `peer`.
    pub case: String,
    /// Name of the figure, e.g. `throughput`.
    pub metric: String,
    /// Unit of `ours` and `peer_value`.
    pub unit: String,
    /// Median with bywash; null when it could not be measured.
    pub ours: Option<f64>,
    /// The side that it is compared with.
    pub peer: String,
    /// The peer's median.
    pub peer_value: Option<f64>,
    /// Median of the rounds' ratios, larger = better for us.
    pub ratio: Option<f64>,
    /// Interquartile range of the rounds' ratios.
    pub spread: Option<f64>,
    /// Rounds.
    pub runs: u32,
    /// The ratio asked for.
    pub goal: Option<f64>,
    /// True if the median ratio reached the goal; null without a goal or without a ratio.
    pub met: Option<bool>,
    /// Remark for the reader: calls served at user level, or the reason for which there is no number.
    pub note: String,
    /// The file system alone, e.g. `tmpfs`.
    pub place: String,
    /// First quartile of the ratios.
    pub ratio_low: Option<f64>,
    /// Third quartile of the ratios.
    pub ratio_high: Option<f64>,
    /// Calls served at user level (median over our runs).
    pub calls_user: Option<u64>,
    /// Calls to the kernel that the library saw (median over our runs).
    pub calls_kernel: Option<u64>,
    /// Usage of our runs (medians).
    pub ours_usage: Option<Usage>,
    /// Usage of the peer's runs (medians).
    pub peer_usage: Option<Usage>,
    /// True if the case was tried and failed (as against left out or measured).
    pub failed: bool,
    /// Processor time of both our processes for a message, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ours_cpu_per_message: Option<f64>,
    /// Processor time of both the peer's processes for a message, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer_cpu_per_message: Option<f64>,
    /// Its point of a curve, if it belongs to one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub point: Option<Point>,
}

/// Standing of a row to its goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The middle half of the ratios reached it.
    Reached,
    /// The middle half of the ratios stayed below it, or the case failed.
    Missed,
    /// The middle half of the ratios lies on both sides of it: the rounds do not tell.
    Undecided,
}

/// A point of a curve: `ours` of its row over `x`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Point {
    /// The experiment; there is a figure for each of its metrics.
    pub figure: String,
    /// Name of the number along x.
    pub axis: String,
    /// Unit of x.
    pub unit: Unit,
    /// The number.
    pub x: u64,
    /// Name of the curve; the peer of the row is one too.
    pub line: String,
}

/// Unit along the axis of a figure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// Bytes.
    #[default]
    Bytes,
    /// Things that are counted.
    Count,
}

impl Row {
    /// Common part of the rows of a case: the bench, and the case with its place, if it has one.
    pub fn head(bench: &str, what: &str, place: &str) -> Row {
        let case = if place.is_empty() { what.into() } else { format!("{what}, {place}") };
        Row { bench: bench.into(), case, place: place.into(), ..Row::default() }
    }

    /// The case without the place.
    pub fn what(&self) -> &str {
        self.case.strip_suffix(&format!(", {}", self.place)).unwrap_or(&self.case)
    }

    /// The row with its ratio, and its standing to the row's goal.
    pub fn with_ratio(self, ratio: Option<Summary>) -> Row {
        Row {
            ratio: ratio.map(|ratio| ratio.median),
            spread: ratio.map(|ratio| ratio.high - ratio.low),
            ratio_low: ratio.map(|ratio| ratio.low),
            ratio_high: ratio.map(|ratio| ratio.high),
            met: self.goal.zip(ratio).map(|(goal, ratio)| ratio.median >= goal),
            ..self
        }
    }

    /// Standing of the row to its goal; `None` without a goal or without a ratio.
    pub fn verdict(&self) -> Option<Verdict> {
        let quartiles = self.goal.zip(self.ratio_low.zip(self.ratio_high));
        let is_undecided = quartiles.is_some_and(|(goal, (low, high))| low < goal && goal <= high);
        Some(match self.met? {
            _ if is_undecided => Verdict::Undecided,
            true => Verdict::Reached,
            false => Verdict::Missed,
        })
    }

    /// The row of a limit that is shown and not asked for.
    pub fn without_goal(self) -> Row {
        Row { goal: None, met: None, ..self }
    }

    /// The row of what could not be measured, because `who` could not.
    pub fn without_numbers(self, who: &str, error: &Error) -> Row {
        let failed = !error.is_absence();
        let head = if failed { "failed" } else { "not run" };
        let who = if who.is_empty() { String::new() } else { format!("{who}: ") };
        let met = (failed && self.goal.is_some()).then_some(false);
        Row { note: format!("{head}: {who}{error}"), met, failed, ..self }
    }
}

/// Everything that one command measured.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Report {
    /// The machine that was measured.
    pub machine: Machine,
    /// Version of bywash.
    pub version: String,
    /// The rows in the order in which they were measured.
    pub rows: Vec<Row>,
}

impl Report {
    /// The names of the benches in the report, in order.
    pub fn benches(&self) -> Vec<&str> {
        crate::table::distinct(self.rows.iter().map(|row| row.bench.as_str()))
    }
}

/// A report as others test against it: a measured row and one that could not be measured.
#[cfg(test)]
pub fn sample() -> Report {
    serde_json::from_str(include_str!("../tests/report.golden.json")).expect("the report's own schema")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_json() {
        let json = serde_json::to_string_pretty(&sample()).unwrap();
        assert_eq!(json.trim(), include_str!("../tests/report.golden.json").trim());
        assert_eq!(sample().rows[1].what(), "pread 4 KiB random");
    }

    #[test]
    fn a_goal_between_the_quartiles_is_neither_reached_nor_missed() {
        let row = Row { goal: Some(0.97), ..Row::default() };
        for ([low, median, high], verdict) in [
            ([0.98, 1.0, 1.1], Verdict::Reached),
            ([0.97, 0.97, 0.97], Verdict::Reached),
            ([0.9, 1.0, 1.1], Verdict::Undecided),
            ([0.9, 0.95, 0.97], Verdict::Undecided),
            ([0.9, 0.95, 0.96], Verdict::Missed),
        ] {
            let row = row.clone().with_ratio(Some(Summary { median, low, high }));
            assert_eq!(row.verdict(), Some(verdict));
        }
        assert_eq!(Row::default().verdict(), None);
        let failed = row.without_numbers("", &Error::failed("a", "broke".into()));
        assert_eq!(failed.verdict(), Some(Verdict::Missed));
    }
}
