//! Measurements of a program's execution.

use super::caches::SharedCaches;
use crate::engine::{Net, RunResult, Station, StationUse, Time, Timeline};
use serde::Serialize;

/// Use of one processor, in cycles, counts, and picoseconds of waiting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
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

/// Result of a program's execution, from its beginning or between two moments.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProgramReport {
    /// Clock frequency of the processors, in cycles per second.
    pub hertz: u64,
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

/// Time during which a thread had a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadSpan {
    /// Number of the processor.
    pub processor: u32,
    /// Number of the thread, as gettid(2) returns it.
    pub thread: u32,
    /// Start of the span.
    pub from: Time,
    /// End of the span.
    pub to: Time,
}

/// Record of the first spans of a program's execution.
#[derive(Clone, Debug, Default)]
pub struct ProgramTimeline {
    /// Threads on processors, in the order in which the spans ended.
    pub threads: Vec<ThreadSpan>,
    /// Jobs that occupied the other parts of the machine.
    pub parts: Timeline,
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
        let seconds = end as f64 / 1e12;
        ProgramReport {
            hertz,
            seconds,
            instructions: processors.iter().map(|one| one.instructions).sum(),
            shares: TimeShares::new(&processors, seconds, hertz),
            first_misses,
            second_misses,
            processors,
            parts,
        }
    }

    /// Returns what was measured after an earlier report of the same run.
    pub fn since(&self, earlier: &ProgramReport) -> ProgramReport {
        let seconds = self.seconds - earlier.seconds;
        let processors: Vec<ProcessorUse> =
            self.processors.iter().zip(&earlier.processors).map(|(now, then)| now.since(then)).collect();
        let parts = self.parts.iter().map(|now| {
            let then = earlier.parts.iter().find(|then| then.name == now.name);
            let share = |of: fn(&PartUse) -> f64| {
                let before = then.map_or(0.0, |then| of(then) * earlier.seconds);
                if seconds > 0.0 { (of(now) * self.seconds - before) / seconds } else { 0.0 }
            };
            PartUse {
                working: share(|part| part.working),
                taken: share(|part| part.taken),
                served: now.served - then.map_or(0, |then| then.served),
                ..now.clone()
            }
        });
        ProgramReport {
            hertz: self.hertz,
            seconds,
            instructions: self.instructions - earlier.instructions,
            shares: TimeShares::new(&processors, seconds, self.hertz),
            first_misses: self.first_misses - earlier.first_misses,
            second_misses: self.second_misses - earlier.second_misses,
            parts: parts.collect(),
            processors,
        }
    }

    /// Returns the sum of a number of all processors.
    pub fn sum(&self, number: impl Fn(&ProcessorUse) -> u64) -> u64 {
        self.processors.iter().map(number).sum()
    }
}

impl TimeShares {
    /// Returns the shares of processors of `hertz` cycles per second in a time.
    fn new(processors: &[ProcessorUse], seconds: f64, hertz: u64) -> TimeShares {
        let all = (seconds * processors.len() as f64).max(1e-12);
        let sum = |cycles: fn(&ProcessorUse) -> u64, picoseconds: fn(&ProcessorUse) -> u64| {
            let cycles: u64 = processors.iter().map(cycles).sum();
            let picoseconds: u64 = processors.iter().map(picoseconds).sum();
            (cycles as f64 / hertz as f64 + picoseconds as f64 / 1e12) / all
        };
        let program = sum(|one| one.instructions, |_| 0);
        let program_stalled = sum(|one| one.second_cycles, |one| one.program_stalled);
        let system = sum(|one| one.system_cycles, |_| 0);
        let system_stalled = sum(|_| 0, |one| one.system_stalled);
        let idle = (1.0 - program - program_stalled - system - system_stalled).max(0.0);
        TimeShares { program, program_stalled, system, system_stalled, idle }
    }
}

impl ProcessorUse {
    /// Returns the numbers since an earlier moment.
    fn since(&self, earlier: &ProcessorUse) -> ProcessorUse {
        ProcessorUse {
            instructions: self.instructions - earlier.instructions,
            second_cycles: self.second_cycles - earlier.second_cycles,
            system_cycles: self.system_cycles - earlier.system_cycles,
            program_stalled: self.program_stalled - earlier.program_stalled,
            system_stalled: self.system_stalled - earlier.system_stalled,
            misses: self.misses - earlier.misses,
            calls: self.calls - earlier.calls,
            interrupts: self.interrupts - earlier.interrupts,
            requests: self.requests - earlier.requests,
            copied: self.copied - earlier.copied,
        }
    }
}
