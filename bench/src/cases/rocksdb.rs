//! RocksDB's own db_bench: uncompressed data that fits memory, a block cache much smaller than the data.

use super::{Amount, Case, Done, Metric, NOT_SLOWER, Native, Stage, Workload, unreadable};
use crate::error::Error;
use crate::launch::{Run, Side};
use crate::place::Kind;
use crate::{child, programs};
use std::path::PathBuf;
use std::process::Command;

const KEYS: u64 = 300_000;
const KEYS_QUICK: u64 = 20_000;
/// Passes over the data that make a readseq run long enough to be timed.
const PASSES: usize = 4;

struct RocksDb {
    benchmark: &'static str,
    sync: bool,
}

fn master(stage: &Stage) -> PathBuf {
    stage.folder.join("master")
}

fn work(stage: &Stage) -> PathBuf {
    stage.folder.join("work")
}

fn keys(stage: &Stage) -> u64 {
    if stage.quick { KEYS_QUICK } else { KEYS }
}

impl RocksDb {
    fn reads(&self) -> bool {
        self.benchmark.starts_with("read")
    }
}

fn common(command: &mut Command) -> &mut Command {
    command.args(["--compression_type=none", "--value_size=100", "--cache_size=1048576", "--seed=1"]);
    command.args(["--write_buffer_size=4194304", "--threads=1"])
}

impl Workload for RocksDb {
    fn prepare(&mut self, stage: &Stage) -> Result<(), Error> {
        let program = programs::require("db_bench", "rocksdb-tools")?;
        let master = master(stage);
        if !self.reads() || master.exists() {
            return Ok(());
        }
        let mut load = Command::new(program);
        common(&mut load).arg("--benchmarks=fillrandom,compact");
        load.arg(format!("--db={}", master.display())).arg(format!("--num={}", keys(stage)));
        child::run(&mut load).map(drop)
    }

    /// A copy of the loaded database, or none for what fills one.
    fn reset(&mut self, stage: &Stage) -> Result<(), Error> {
        let work = work(stage);
        if self.reads() {
            stage.place.copy_tree(&master(stage), &work)
        } else if work.exists() {
            std::fs::remove_dir_all(&work).map_err(|error| Error::io("remove", &work, error))
        } else {
            Ok(())
        }
    }

    fn run(&mut self, stage: &Stage, run: &Run, operations: u64) -> Result<Done, Error> {
        let mut command = run.command(programs::require("db_bench", "rocksdb-tools")?);
        common(&mut command).arg(format!("--db={}", work(stage).display()));
        let benchmarks = match self.benchmark {
            "readseq" => [self.benchmark; PASSES].join(","),
            other => other.to_owned(),
        };
        command.arg(format!("--benchmarks={benchmarks}"));
        if self.reads() {
            command.arg("--use_existing_db=1").arg(format!("--num={}", keys(stage)));
            command.arg(format!("--mmap_read={}", u8::from(run.side() == Side::Native)));
        }
        match self.benchmark {
            "readseq" => {}
            "readrandom" => drop(command.arg(format!("--reads={operations}"))),
            _ => drop(
                command.arg(format!("--num={operations}")).arg(format!("--sync={}", u8::from(self.sync))),
            ),
        }
        let output = child::run(&mut command)?.stdout;
        parse(&output, self.benchmark).ok_or_else(|| unreadable("db_bench", &output))
    }
}

/// Adds up the lines `NAME : X micros/op Y ops/sec S seconds N operations; ...`.
fn parse(output: &str, benchmark: &str) -> Option<Done> {
    let (mut seconds, mut operations) = (0.0, 0.0);
    let mut found = String::new();
    for line in output.lines() {
        let Some((name, figures)) = line.split_once(':') else { continue };
        if name.trim() != benchmark {
            continue;
        }
        let words: Vec<&str> = figures.split_whitespace().collect();
        let before = |unit: &str| {
            let at = words.iter().position(|word| word.trim_end_matches(';') == unit)?;
            words.get(at.checked_sub(1)?)?.parse::<f64>().ok()
        };
        // Seconds are rounded to a thousandth; micros/op are not.
        operations += before("operations")?;
        seconds += before("micros/op")? * before("operations")? / 1e6;
        if let Some((_, hits)) = line.split_once('(') {
            found.push_str(hits);
        }
    }
    let sum = (!found.is_empty()).then_some(found);
    (seconds > 0.0).then(|| Done { rate: operations / seconds, seconds, sum })
}

/// The `rocksdb` bench.
pub fn cases() -> Vec<Case> {
    let case = |name: &str, benchmark, goal, amount, sync| Case {
        bench: "rocksdb",
        name: name.into(),
        metrics: vec![Metric::rate("op/s", goal)],
        places: Kind::ALL,
        amount,
        native: None,
        in_quick: true,
        work: Box::new(RocksDb { benchmark, sync }),
    };
    let lasting = |first| Amount::For { first, seconds: 0.5 };
    let native = Some(Native::control("kernel with --mmap_read"));
    vec![
        Case { native, ..case("readrandom", "readrandom", 1.3, lasting(5000), false) },
        Case { native, ..case("readseq", "readseq", NOT_SLOWER, Amount::Fixed, false) },
        case("fillrandom", "fillrandom", NOT_SLOWER, lasting(20_000), false),
        case("fillrandom --sync", "fillrandom", NOT_SLOWER, lasting(200), true),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_one_benchmark_are_added_up() {
        let line = "readseq      :       0.500 micros/op 2000000 ops/sec 0.150 seconds 300000 operations;  221.3 MB/s\n";
        let done = parse(&format!("Keys: 16 bytes\n{line}{line}"), "readseq").unwrap();
        assert!((done.rate - 2e6).abs() < 1.0 && (done.seconds - 0.3).abs() < 1e-9, "{done:?}");
        assert_eq!(parse("DB path: x\n", "readseq"), None);
    }

    #[test]
    fn what_was_found_is_the_sum() {
        let line = "readrandom   : 2.0 micros/op 500000 ops/sec 0.01 seconds 5000 operations; 9 MB/s (3164 of 5000 found)\n";
        assert_eq!(parse(line, "readrandom").unwrap().sum.as_deref(), Some("3164 of 5000 found)"));
    }
}
