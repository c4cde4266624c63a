//! Summaries of a program's execution: response times of its clients, and functions that took the time.

use super::machine::TimedMachine;
use bywash_execute::clients::Report;
use bywash_execute::{Execution, Time};
use serde::Serialize;
use std::collections::BTreeMap;

/// Measurements of clients, in seconds and bytes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClientTimes {
    /// Number of responses.
    pub responses: u64,
    /// Throughput, in responses per second.
    pub responses_per_second: f64,
    /// Throughput of the responses' bodies, in bytes per second.
    pub bytes_per_second: f64,
    /// Mean response time, in seconds.
    pub mean: f64,
    /// Response time that half of the responses do not exceed, in seconds.
    pub p50: f64,
    /// Response time that 90 % of the responses do not exceed, in seconds.
    pub p90: f64,
    /// Response time that 99 % of the responses do not exceed, in seconds.
    pub p99: f64,
    /// Longest response time, in seconds.
    pub max: f64,
    /// Number of responses by their HTTP status.
    pub statuses: BTreeMap<u16, u64>,
}

impl ClientTimes {
    /// Converts the report of clients.
    pub fn new(report: &Report) -> ClientTimes {
        let seconds = |time: Time| time.picoseconds() as f64 / 1e12;
        let quantile = |share| seconds(report.whole.quantile(share));
        ClientTimes {
            responses: report.responses(),
            responses_per_second: report.responses_per_second(),
            bytes_per_second: report.bytes_per_second(),
            mean: seconds(report.whole.mean()),
            p50: quantile(0.5),
            p90: quantile(0.9),
            p99: quantile(0.99),
            max: quantile(1.0),
            statuses: report.statuses.clone(),
        }
    }
}

/// Share of a function in a program's execution.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FunctionUse {
    /// Name of the function.
    pub name: String,
    /// Number of instructions, from samples.
    pub instructions: u64,
    /// Time that processors waited for memory in the function, in seconds.
    pub stalled: f64,
}

/// Returns the functions of a recorded profile, those that took the most time first; none if no profile was recorded.
pub fn functions(execution: &Execution<TimedMachine>) -> Vec<FunctionUse> {
    let Some(profile) = execution.machine().profile() else { return Vec::new() };
    let mut by_name: BTreeMap<&str, FunctionUse> = BTreeMap::new();
    for (address, share) in profile.shares() {
        let name = execution.function(address).unwrap_or("(unknown)");
        let function = by_name.entry(name).or_insert_with(|| FunctionUse {
            name: name.into(),
            instructions: 0,
            stalled: 0.0,
        });
        function.instructions += share.instructions;
        function.stalled += share.stalled as f64 / 1e12;
    }
    let hertz = execution.machine().hertz() as f64;
    let mut functions: Vec<FunctionUse> = by_name.into_values().collect();
    let seconds = |function: &FunctionUse| function.instructions as f64 / hertz + function.stalled;
    functions.sort_by(|one, other| seconds(other).total_cmp(&seconds(one)));
    functions
}
