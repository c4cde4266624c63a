//! What is measured: each case with its goal, and the work behind it.
//!
//! A goal is a ratio against the kernel in the same interleaved run. Where nothing more is asked of a case,
//! its goal is [`NOT_SLOWER`], which holds for every program.

pub mod berkeley;
pub mod device;
pub mod fio;
pub mod micro;
pub mod rocksdb;
pub mod servers;
pub mod sqlite;
pub mod start;
pub mod tools;

use crate::error::Error;
use crate::launch::Run;
use crate::place::{Kind, Place};
use crate::programs::Programs;
use std::path::PathBuf;

/// No program may become slower than this.
pub const NOT_SLOWER: f64 = 0.97;
/// The device may not have to read or write more than 1.1 times as much.
pub const NOT_MORE_BYTES: f64 = 1.0 / 1.1;

/// Where a case works.
pub struct Stage<'a> {
    /// The file system.
    pub place: &'a Place,
    /// A folder there, shared by the cases of one bench.
    pub folder: PathBuf,
    /// The C programs.
    pub programs: &'a Programs,
    /// Whether small sizes will do.
    pub quick: bool,
}

/// What one run did.
#[derive(Clone, Debug, PartialEq)]
pub struct Done {
    /// Operations (or bytes) a second.
    pub rate: f64,
    /// Seconds that the measured part took.
    pub seconds: f64,
    /// A sum over the results, equal on every side if the work was done right; none where the program
    /// offers none.
    pub sum: Option<String>,
}

/// The work of a case. The state before every run is the same: [`Workload::prepare`] makes it,
/// [`Workload::reset`] brings it back.
pub trait Workload {
    /// Makes what the runs start from; called once a place. What is there already (made by another case of
    /// the bench) may be used.
    ///
    /// # Errors
    /// What is missing, or what failed.
    fn prepare(&mut self, stage: &Stage) -> Result<(), Error>;

    /// Brings back the state that every run starts from.
    ///
    /// # Errors
    /// What failed.
    fn reset(&mut self, stage: &Stage) -> Result<(), Error>;

    /// Does about `operations` operations (or what it always does, if the amount is fixed).
    ///
    /// # Errors
    /// What failed.
    fn run(&mut self, stage: &Stage, run: &Run, operations: u64) -> Result<Done, Error>;
}

/// How much work a run is.
#[derive(Clone, Copy, Debug)]
pub enum Amount {
    /// Always the same.
    Fixed,
    /// As many operations as the kernel alone does in `seconds`; `first` are tried to find out.
    For {
        /// Operations of the trial.
        first: u64,
        /// Wanted length of a run.
        seconds: f64,
    },
}

/// What is read off a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// [`Done::rate`]: more is better.
    Rate,
    /// Bytes that the device read: less is better.
    DeviceRead,
    /// Bytes that the device wrote: less is better.
    DeviceWritten,
    /// Time of an operation, and what it is more than the peer's: the ratio is that of the limit to what is added.
    Added {
        /// Most that may be added, in nanoseconds.
        limit_ns: u32,
    },
}

/// One figure of a case: one row.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// What is read.
    pub reading: Reading,
    /// Unit of the rate; device bytes are in `B`.
    pub unit: &'static str,
    /// The ratio asked for.
    pub goal: Option<f64>,
}

impl Metric {
    /// Throughput in `unit`.
    pub const fn rate(unit: &'static str, goal: f64) -> Metric {
        Metric { reading: Reading::Rate, unit, goal: Some(goal) }
    }

    /// Bytes on the device.
    pub const fn bytes(reading: Reading) -> Metric {
        Metric { reading, unit: "B", goal: Some(NOT_MORE_BYTES) }
    }

    /// Its name in rows.
    pub const fn name(&self) -> &'static str {
        match self.reading {
            Reading::Rate => "throughput",
            Reading::DeviceRead => "device bytes read",
            Reading::DeviceWritten => "device bytes written",
            Reading::Added { .. } => "time of one",
        }
    }
}

/// A rival beside the kernel alone: a program's own way to do without calls, or a bound.
#[derive(Clone, Copy, Debug)]
pub struct Native {
    /// Its name in rows.
    pub name: &'static str,
    /// Ratio asked for against it, if any.
    pub goal: Option<f64>,
}

impl Native {
    /// A rival that is shown beside, without a goal.
    pub const fn control(name: &'static str) -> Native {
        Native { name, goal: None }
    }

    /// A rival that must be matched to `goal`.
    pub const fn rival(name: &'static str, goal: f64) -> Native {
        Native { name, goal: Some(goal) }
    }
}

/// One case.
pub struct Case {
    /// The bench it belongs to, without the family.
    pub bench: &'static str,
    /// Its name.
    pub name: String,
    /// What is read off its runs.
    pub metrics: Vec<Metric>,
    /// Where it runs.
    pub places: &'static [Kind],
    /// How much.
    pub amount: Amount,
    /// The rival that is run as a third side.
    pub native: Option<Native>,
    /// Whether `--quick` includes it.
    pub in_quick: bool,
    /// The work.
    pub work: Box<dyn Workload>,
}

/// The benches, with what they hold, in the order in which they run.
pub const BENCHES: &[(&str, &str)] = &[
    (
        "micro",
        "pread in a loop, 512 B to 64 KiB, random and sequential, 1 and 2 threads, tight loop; pwrite beside it",
    ),
    (
        "lengths",
        "short and long runs over a cached file: 8,000 to 200,000 look-ups in 200 MiB, 32 MiB read ten times",
    ),
    ("fio", "fio's psync engine, random reads"),
    ("berkeley", "Berkeley DB, btree and hash, without and with transactions"),
    ("sqlite", "SQLite selects and updates, rollback journal and WAL, synchronous OFF, NORMAL and FULL"),
    ("rocksdb", "RocksDB's db_bench: readrandom, readseq, fillrandom with and without sync"),
    ("tools", "cat, grep, gzip, tar and sort over a large file"),
    ("start", "processes that do nothing: /bin/true by a shell and by bywash run; a configure script"),
    ("direct", "a file opened with O_DIRECT"),
    ("device", "bytes on the device: cold random reads"),
    ("servers", "MariaDB and PostgreSQL on folders of their own (left out by --quick)"),
];

/// Every case of every bench.
pub fn all() -> Vec<Case> {
    let mut cases = micro::cases();
    cases.extend(micro::length_cases());
    cases.extend(fio::cases());
    cases.extend(berkeley::cases());
    cases.extend(sqlite::cases());
    cases.extend(rocksdb::cases());
    cases.extend(tools::cases());
    cases.extend(start::cases());
    cases.extend(micro::direct_cases());
    cases.extend(device::cases());
    cases.extend(servers::cases());
    cases
}

/// Reads the line `ops=N seconds=S sum=X` that the C programs end with.
fn parse_done(program: &str, output: &str) -> Result<Done, Error> {
    let field = |name: &str| {
        output.split_whitespace().rev().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    };
    let number = |name: &str| field(name).and_then(|value| value.parse::<f64>().ok());
    match (number("ops"), number("seconds"), field("sum")) {
        (Some(operations), Some(seconds), Some(sum)) if seconds > 0.0 => {
            Ok(Done { rate: operations / seconds, seconds, sum: Some(sum.to_owned()) })
        }
        _ => Err(unreadable(program, output)),
    }
}

/// The error for output that lacks what it should have.
fn unreadable(program: &str, output: &str) -> Error {
    let end: String = output.trim().chars().rev().take(200).collect::<Vec<_>>().into_iter().rev().collect();
    Error::Failed {
        program: program.to_owned(),
        how: "gave output that cannot be read".into(),
        tail: if end.is_empty() { end } else { format!(": {end}") },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_case_has_a_bench_a_place_and_a_name_of_its_own() {
        let mut names = HashSet::new();
        for case in all() {
            assert!(BENCHES.iter().any(|(bench, _)| *bench == case.bench), "{}", case.bench);
            assert!(!case.places.is_empty() && !case.metrics.is_empty());
            assert!(names.insert((case.bench, case.name.clone())), "{} twice", case.name);
        }
        for (bench, _) in BENCHES {
            assert!(names.iter().any(|(name, _)| name == bench), "{bench} holds nothing");
        }
    }

    #[test]
    fn the_last_line_of_a_driver() {
        let done = parse_done("x", "noise\nops=100 seconds=0.5 sum=ab\n").unwrap();
        assert_eq!(done, Done { rate: 200.0, seconds: 0.5, sum: Some("ab".into()) });
        for broken in ["", "ops=1 seconds=0 sum=1", "ops=1 sum=1"] {
            assert!(parse_done("x", broken).is_err(), "{broken}");
        }
    }
}
