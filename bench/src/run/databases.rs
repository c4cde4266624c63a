//! Databases in libraries: Berkeley DB with a cache smaller than its data, SQLite with a cache of 100 pages, and RocksDB's
//! own db_bench with uncompressed data that fits memory and a block cache much smaller than the data.

use super::launch::Mode;
use super::{Amount, Case, Data, Done, NOT_SLOWER, Stage, case, parse_done, unreadable};
use crate::error::{Attempt, Error};
use crate::programs::Program;
use crate::{child, programs};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Records of a table of Berkeley DB or SQLite, of a full and of a quick run.
const RECORDS: (u64, u64) = (100_000, 10_000);
/// Cache of Berkeley DB in bytes: a sixteenth of the data.
const CACHE_BYTES: (u64, u64) = (1 << 20, 1 << 16);
/// Bytes that SQLite may map: more than the database.
const MMAP_BYTES: u64 = 1 << 30;
/// Rival of SQLite's cases.
const MMAP_SIZE: &str = "kernel with PRAGMA mmap_size";
/// Keys of RocksDB, of a full and of a quick run.
const KEYS: (u64, u64) = (300_000, 20_000);
/// Passes over the data that make a readseq run long enough to be timed.
const PASSES: usize = 4;

/// The cases of `berkeley`, `sqlite` and `rocksdb`.
pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for kind in ["btree", "hash"] {
        for (transactions, name, goal, first) in [
            ("none", "no transactions", 1.3, 4000),
            ("nosync", "transactions NOSYNC", NOT_SLOWER, 4000),
            ("sync", "transactions SYNC", NOT_SLOWER, 400),
        ] {
            let in_quick = kind == "btree" || transactions == "none";
            cases.push(Case { in_quick, ..berkeley(kind, transactions, name, goal, first) });
        }
    }
    for (name, kind, goal, rival_goal) in [
        ("select inside a transaction", "select-transaction", 1.5, Some(1.0)),
        ("select, autocommit", "select-autocommit", NOT_SLOWER, None),
    ] {
        let amount = Amount::For { first: 2000, seconds: 0.3 };
        let case = sqlite(name.into(), ("op/s", goal), amount, [kind, "DELETE", "OFF"]);
        cases.push(Case { rival: Some((MMAP_SIZE, rival_goal)), ..case });
    }
    for journal in ["WAL", "DELETE"] {
        for synchronous in ["OFF", "NORMAL", "FULL"] {
            let name = format!("4 updates, {journal}, synchronous {synchronous}");
            // Long enough for the device's moods to even out.
            let amount = Amount::For { first: 200, seconds: 1.0 };
            let rival = (synchronous == "OFF").then_some((MMAP_SIZE, None));
            let in_quick = synchronous != "NORMAL";
            let figure = ("transactions/s", NOT_SLOWER);
            let case = sqlite(name, figure, amount, ["update", journal, synchronous]);
            cases.push(Case { rival, in_quick, ..case });
        }
    }
    let lasting = |first| Amount::For { first, seconds: 0.5 };
    let rival = Some(("kernel with --mmap_read", None));
    cases.extend([
        Case { rival, ..rocksdb("readrandom", "readrandom", 1.3, lasting(5000), false) },
        Case { rival, ..rocksdb("readseq", "readseq", NOT_SLOWER, Amount::Fixed, false) },
        rocksdb("fillrandom", "fillrandom", NOT_SLOWER, lasting(20_000), false),
        rocksdb("fillrandom --sync", "fillrandom", NOT_SLOWER, lasting(200), true),
    ]);
    cases
}

/// The folder `name`, which `program` fills from the words that are made of the folder and the number of records.
fn loaded(
    name: String,
    program: &'static Program,
    words: impl Fn(&Path, String) -> Vec<PathBuf> + 'static,
) -> Data {
    let fill = move |stage: &Stage, master: &Path| {
        fs::create_dir_all(master).doing("create", master)?;
        let mut load = Command::new(stage.programs.executable(program)?);
        load.arg("load").args(words(master, stage.pick(RECORDS.0, RECORDS.1).to_string()));
        child::run(&mut load).map(drop)
    };
    Data::Tree(name, Box::new(fill))
}

fn berkeley(kind: &'static str, transactions: &'static str, name: &str, goal: f64, first: u64) -> Case {
    let data = loaded(format!("master-{kind}"), &programs::BERKELEY, move |master, records| {
        vec![master.into(), kind.into(), "none".into(), records.into()]
    });
    let (name, amount) = (format!("{kind}, {name}"), Amount::For { first, seconds: 0.8 });
    case("berkeley", name, ("op/s", goal), amount, data, move |stage, run, operations| {
        let mut command = run.command(stage.programs.executable(&programs::BERKELEY)?);
        let sizes = (stage.pick(RECORDS.0, RECORDS.1), stage.pick(CACHE_BYTES.0, CACHE_BYTES.1));
        command.arg("run").arg(stage.work()).args([kind, transactions]);
        command.args([sizes.0, operations, sizes.1, 1].map(|number| number.to_string()));
        parse_done("berkeley", &child::run(&mut command)?.stdout)
    })
}

fn sqlite(
    name: String,
    figure: (&'static str, f64),
    amount: Amount,
    [kind, journal, synchronous]: [&'static str; 3],
) -> Case {
    let data =
        loaded("master".into(), &programs::SQLITE, |master, records| vec![master.join("db"), records.into()]);
    case("sqlite", name, figure, amount, data, move |stage, run, operations| {
        let mmap = if run.mode() == Mode::Rival { MMAP_BYTES } else { 0 };
        let mut command = run.command(stage.programs.executable(&programs::SQLITE)?);
        command.arg("run").arg(stage.work().join("db")).arg(stage.pick(RECORDS.0, RECORDS.1).to_string());
        command.arg(kind).args([operations, 1].map(|number| number.to_string()));
        command.args([journal, synchronous]).arg(mmap.to_string());
        parse_done("sqlite", &child::run(&mut command)?.stdout)
    })
}

fn rocksdb(name: &str, benchmark: &'static str, goal: f64, amount: Amount, sync: bool) -> Case {
    let reads = benchmark.starts_with("read");
    let fill = |stage: &Stage, master: &Path| {
        let mut load = db_bench(Command::new, master)?;
        let keys = stage.pick(KEYS.0, KEYS.1);
        load.args(["--benchmarks=fillrandom,compact", &format!("--num={keys}")]);
        child::run(&mut load).map(drop)
    };
    let data = if reads { Data::Tree("master".into(), Box::new(fill)) } else { Data::Nothing };
    case("rocksdb", name, ("op/s", goal), amount, data, move |stage, run, operations| {
        let mut command = db_bench(|program| run.command(program), &stage.work())?;
        let passes = if benchmark == "readseq" { PASSES } else { 1 };
        command.arg(format!("--benchmarks={}", vec![benchmark; passes].join(",")));
        if reads {
            command.arg("--use_existing_db=1").arg(format!("--num={}", stage.pick(KEYS.0, KEYS.1)));
            command.arg(format!("--mmap_read={}", u8::from(run.mode() == Mode::Rival)));
        }
        match benchmark {
            "readseq" => {}
            "readrandom" => drop(command.arg(format!("--reads={operations}"))),
            _ => drop(command.arg(format!("--num={operations}")).arg(format!("--sync={}", u8::from(sync)))),
        }
        let output = child::run(&mut command)?.stdout;
        parse_db_bench(&output, benchmark).ok_or_else(|| unreadable("db_bench", &output))
    })
}

/// A command that runs db_bench on `folder`.
fn db_bench(command: impl Fn(PathBuf) -> Command, folder: &Path) -> Result<Command, Error> {
    let mut command = command(programs::require("db_bench", "rocksdb-tools")?);
    command.args(["--compression_type=none", "--value_size=100", "--cache_size=1048576", "--seed=1"]);
    command.args(["--write_buffer_size=4194304", "--threads=1"]);
    command.arg(format!("--db={}", folder.display()));
    Ok(command)
}

/// Adds up the lines `NAME : X micros/op Y ops/sec S seconds N operations; ...`; the keys that were found are the sum.
fn parse_db_bench(output: &str, benchmark: &str) -> Option<Done> {
    let (mut seconds, mut operations) = (0.0, 0.0);
    let mut found = String::new();
    let lines = output.lines().filter_map(|line| line.split_once(':'));
    for (_, figures) in lines.filter(|(name, _)| name.trim() == benchmark) {
        let words: Vec<&str> = figures.split_whitespace().collect();
        let before = |unit: &str| {
            let at = words.iter().position(|word| word.trim_end_matches(';') == unit)?;
            words.get(at.checked_sub(1)?)?.parse::<f64>().ok()
        };
        // Seconds are rounded to a thousandth; micros/op are not.
        operations += before("operations")?;
        seconds += before("micros/op")? * before("operations")? / 1e6;
        found.extend(figures.split_once('(').map(|(_, hits)| hits));
    }
    let sum = (!found.is_empty()).then_some(found);
    (seconds > 0.0).then(|| Done { rate: operations / seconds, seconds, sum })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_one_benchmark_are_added_up() {
        let line = "readrandom   : 0.500 micros/op 2000000 ops/sec 0.150 seconds 300000 operations; 9 MB/s (7 of 9 found)\n";
        let done = parse_db_bench(&format!("Keys: 16 bytes\n{line}{line}"), "readrandom").unwrap();
        assert!((done.rate - 2e6).abs() < 1.0 && (done.seconds - 0.3).abs() < 1e-9, "{done:?}");
        assert_eq!(done.sum.as_deref(), Some("7 of 9 found)7 of 9 found)"));
        assert_eq!(parse_db_bench("DB path: x\n", "readseq"), None);
    }
}
