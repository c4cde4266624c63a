//! Measurements of a program's execution.

use super::caches::SharedCaches;
use crate::engine::{Net, RunResult, Station, StationUse};
use serde::Serialize;

/// Use of one processor, in cycles, counts, and picoseconds of waiting.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ProcessorUse {
    /// Number of instructions that programs have executed; each takes a cycle.
    pub instructions: u64,
    /// Cycles that programs waited for the second-level cache.
    pub second_cycles: u64,
    /// Cycles that the operating system computed.
    pub system_cycles: u64,
    /// Time that programs waited for memory, in picoseconds.
    pub program_stalled: u64,
    /// Time that the operating system waited for memory, in picoseconds.
    pub system_stalled: u64,
    /// Number of misses and upgrades that left the processor's caches.
    pub misses: u64,
    /// Number of system calls.
    pub calls: u64,
    /// Number of interrupts, or of completions that were found.
    pub interrupts: u64,
    /// Number of requests to devices.
    pub requests: u64,
    /// Number of bytes that the operating system copied.
    pub copied: u64,
}

/// Use of a row of equal parts of the machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PartUse {
    /// Name of the parts.
    pub name: &'static str,
    /// Number of parts.
    pub count: u32,
    /// Mean share of the time in which they worked, 0 to 1.
    pub working: f64,
    /// Mean share of the time in which they were taken, 0 to 1.
    pub taken: f64,
    /// Number of services.
    pub served: u64,
}

/// Result of a program's execution.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProgramReport {
    /// Simulated time, in seconds.
    pub seconds: f64,
    /// Number of instructions of the program.
    pub instructions: u64,
    /// Shares of the processors' time, 1 in all.
    pub shares: TimeShares,
    /// Number of accesses that the first-level caches did not serve.
    pub first_misses: u64,
    /// Number of accesses that the second-level caches did not serve.
    pub second_misses: u64,
    /// Use of each processor.
    pub processors: Vec<ProcessorUse>,
    /// Use of the other parts that did anything.
    pub parts: Vec<PartUse>,
}

/// Shares of the time of all processors, 0 to 1 each, 1 in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct TimeShares {
    /// Execution of the program's instructions.
    pub program: f64,
    /// Waiting of the program for the second-level cache and for memory.
    pub program_stalled: f64,
    /// Computing of the operating system.
    pub system: f64,
    /// Waiting of the operating system for memory.
    pub system_stalled: f64,
    /// Nothing to do.
    pub idle: f64,
}

impl ProgramReport {
    /// Makes a report of a run that ended after so many picoseconds, on processors of `hertz` cycles per second.
    pub(super) fn new(
        end: u64,
        hertz: u64,
        processors: Vec<ProcessorUse>,
        caches: Option<&SharedCaches>,
        result: &RunResult,
        rows: &[(&'static str, Station, u32)],
    ) -> ProgramReport {
        let all = (end as f64 * processors.len() as f64).max(1.0);
        let cycle = 1e12 / hertz as f64;
        let sum = |of: &dyn Fn(&ProcessorUse) -> f64| processors.iter().map(of).sum::<f64>() / all;
        let program = sum(&|one| one.instructions as f64 * cycle);
        let program_stalled = sum(&|one| one.second_cycles as f64 * cycle + one.program_stalled as f64);
        let system = sum(&|one| one.system_cycles as f64 * cycle);
        let system_stalled = sum(&|one| one.system_stalled as f64);
        let idle = (1.0 - program - program_stalled - system - system_stalled).max(0.0);
        let parts = rows.iter().map(|&(name, first, count)| {
            let stations = (0..count).map(|number| &result.stations[Net::in_row(first, number).index()]);
            let stations: Vec<&StationUse> = stations.collect();
            let mean = |of: &dyn Fn(&StationUse) -> f64| {
                stations.iter().map(|one| of(one)).sum::<f64>() / f64::from(count)
            };
            PartUse {
                name,
                count,
                working: mean(&|one| one.working),
                taken: mean(&|one| one.utilisation),
                served: stations.iter().map(|one| one.served).sum(),
            }
        });
        let parts = parts.filter(|part| part.served > 0).collect();
        let [first_misses, second_misses] = caches.map_or([0; 2], SharedCaches::misses);
        ProgramReport {
            seconds: end as f64 / 1e12,
            instructions: processors.iter().map(|one| one.instructions).sum(),
            shares: TimeShares { program, program_stalled, system, system_stalled, idle },
            first_misses,
            second_misses,
            processors,
            parts,
        }
    }
}
