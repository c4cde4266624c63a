//! Databases in libraries: Berkeley DB with a cache smaller than its data, SQLite with a cache of 100 pages, and RocksDB's
//! own db_bench with uncompressed data that fits memory and a block cache much smaller than the data.

use super::launch::Mode;
use super::{Amount, Case, Data, Done, NOT_SLOWER, case, parse_done, unreadable};
use crate::error::Error;
use crate::{child, programs};
use std::fs;
use std::process::Command;

/// Records of a table of Berkeley DB or SQLite, of a full and of a quick run.
const RECORDS: (u64, u64) = (100_000, 10_000);
/// Cache of Berkeley DB in bytes: a sixteenth of the data.
const CACHE_BYTES: (u64, u64) = (1 << 20, 1 << 16);
/// Bytes that SQLite may map: more than the database.
const MMAP_BYTES: u64 = 1 << 30;
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
    const MMAP_SIZE: &str = "kernel with PRAGMA mmap_size";
    for (name, kind, goal, rival_goal) in [
        ("select inside a transaction", "select-transaction", 1.5, Some(1.0)),
        ("select, autocommit", "select-autocommit", NOT_SLOWER, None),
    ] {
        let amount = Amount::For { first: 2000, seconds: 0.3 };
        let case = sqlite(name.into(), ("op/s", goal), amount, kind, "DELETE", "OFF");
        cases.push(Case { rival: Some((MMAP_SIZE, rival_goal)), ..case });
    }
    for journal in ["WAL", "DELETE"] {
        for synchronous in ["OFF", "NORMAL", "FULL"] {
            let name = format!("4 updates, {journal}, synchronous {synchronous}");
            // Long enough for the device's moods to even out.
            let amount = Amount::For { first: 200, seconds: 1.0 };
            let case = sqlite(name, ("transactions/s", NOT_SLOWER), amount, "update", journal, synchronous);
            cases.push(Case {
                rival: (synchronous == "OFF").then_some((MMAP_SIZE, None)),
                in_quick: synchronous != "NORMAL",
                ..case
            });
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

fn berkeley(kind: &'static str, transactions: &'static str, name: &str, goal: f64, first: u64) -> Case {
    let data = Data::Tree(
        format!("master-{kind}"),
        Box::new(move |stage, master| {
            fs::create_dir_all(master).map_err(|error| Error::io("create", master, error))?;
            let mut load = Command::new(stage.programs.executable(&programs::BERKELEY)?);
            let records = stage.pick(RECORDS.0, RECORDS.1).to_string();
            child::run(load.arg("load").arg(master).args([kind, "none", &records])).map(drop)
        }),
    );
    let amount = Amount::For { first, seconds: 0.8 };
    case(
        "berkeley",
        format!("{kind}, {name}"),
        ("op/s", goal),
        amount,
        data,
        move |stage, run, operations| {
            let mut command = run.command(stage.programs.executable(&programs::BERKELEY)?);
            command.arg("run").arg(stage.work()).args([kind, transactions]);
            let (records, cache) =
                (stage.pick(RECORDS.0, RECORDS.1), stage.pick(CACHE_BYTES.0, CACHE_BYTES.1));
            command.args([records, operations, cache, 1].map(|number| number.to_string()));
            parse_done("berkeley", &child::run(&mut command)?.stdout)
        },
    )
}

fn sqlite(
    name: String,
    figure: (&'static str, f64),
    amount: Amount,
    kind: &'static str,
    journal: &'static str,
    synchronous: &'static str,
) -> Case {
    let data = Data::Tree(
        "master".into(),
        Box::new(|stage, master| {
            fs::create_dir_all(master).map_err(|error| Error::io("create", master, error))?;
            let mut load = Command::new(stage.programs.executable(&programs::SQLITE)?);
            load.arg("load").arg(master.join("db")).arg(stage.pick(RECORDS.0, RECORDS.1).to_string());
            child::run(&mut load).map(drop)
        }),
    );
    case("sqlite", name, figure, amount, data, move |stage, run, operations| {
        let mmap = if run.mode() == Mode::Rival { MMAP_BYTES } else { 0 };
        let mut command = run.command(stage.programs.executable(&programs::SQLITE)?);
        command.arg("run").arg(stage.work().join("db")).arg(stage.pick(RECORDS.0, RECORDS.1).to_string());
        command.arg(kind).args([operations.to_string(), "1".to_owned()]);
        command.args([journal, synchronous]).arg(mmap.to_string());
        parse_done("sqlite", &child::run(&mut command)?.stdout)
    })
}

fn rocksdb(name: &str, benchmark: &'static str, goal: f64, amount: Amount, sync: bool) -> Case {
    let reads = benchmark.starts_with("read");
    let data = match reads {
        false => Data::Nothing,
        true => Data::Tree(
            "master".into(),
            Box::new(|stage, master| {
                let mut load = Command::new(db_bench()?);
                load.args(DB_BENCH_OPTIONS).arg("--benchmarks=fillrandom,compact");
                load.arg(format!("--db={}", master.display()))
                    .arg(format!("--num={}", stage.pick(KEYS.0, KEYS.1)));
                child::run(&mut load).map(drop)
            }),
        ),
    };
    case("rocksdb", name, ("op/s", goal), amount, data, move |stage, run, operations| {
        let mut command = run.command(db_bench()?);
        command.args(DB_BENCH_OPTIONS).arg(format!("--db={}", stage.work().display()));
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

/// Options of every run of db_bench.
const DB_BENCH_OPTIONS: [&str; 6] = [
    "--compression_type=none",
    "--value_size=100",
    "--cache_size=1048576",
    "--seed=1",
    "--write_buffer_size=4194304",
    "--threads=1",
];

fn db_bench() -> Result<std::path::PathBuf, Error> {
    programs::require("db_bench", "rocksdb-tools")
}

/// Adds up the lines `NAME : X micros/op Y ops/sec S seconds N operations; ...`.
fn parse_db_bench(output: &str, benchmark: &str) -> Option<Done> {
    let (mut seconds, mut operations) = (0.0, 0.0);
    let mut found = String::new();
    for line in output.lines() {
        let Some((_, figures)) = line.split_once(':').filter(|(name, _)| name.trim() == benchmark) else {
            continue;
        };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_one_benchmark_are_added_up() {
        let line = "readseq      :       0.500 micros/op 2000000 ops/sec 0.150 seconds 300000 operations;  221.3 MB/s\n";
        let done = parse_db_bench(&format!("Keys: 16 bytes\n{line}{line}"), "readseq").unwrap();
        assert!((done.rate - 2e6).abs() < 1.0 && (done.seconds - 0.3).abs() < 1e-9, "{done:?}");
        assert_eq!(parse_db_bench("DB path: x\n", "readseq"), None);
    }

    #[test]
    fn the_keys_that_were_found_are_the_sum() {
        let line = "readrandom   : 2.0 micros/op 500000 ops/sec 0.01 seconds 5000 operations; 9 MB/s (3164 of 5000 found)\n";
        assert_eq!(parse_db_bench(line, "readrandom").unwrap().sum.as_deref(), Some("3164 of 5000 found)"));
    }
}
