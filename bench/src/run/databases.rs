//! Databases in libraries: Berkeley DB with a cache of a sixteenth of its data, SQLite with a cache of 100 pages, and
//! RocksDB's own db_bench with uncompressed data that fits memory and a block cache much smaller than the data.

use super::line::{loaded, program};
use super::{Amount, Case, Data, Done, NOT_SLOWER, parse_done};

/// Records of a table of Berkeley DB or SQLite.
const RECORDS: &str = "{100000|10000}";
/// Cache of Berkeley DB in bytes.
const CACHE: &str = "{1048576|65536}";
/// Rival of SQLite's cases, which may map more bytes than the database has.
const MMAP_SIZE: &str = "kernel with PRAGMA mmap_size";
const MMAP_BYTES: &str = "{0~1073741824}";
/// Keys of RocksDB.
const KEYS: &str = "{300000|20000}";
const DB_BENCH: &str = "db_bench --compression_type=none --value_size=100 --cache_size=1048576 --seed=1 \
                        --write_buffer_size=4194304 --threads=1 --db={work}";

/// The cases of `berkeley`, `sqlite` and `rocksdb`.
pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for kind in ["btree", "hash"] {
        for (transactions, name, goal, first) in [
            ("none", "no transactions", 1.3, 4000),
            ("nosync", "transactions NOSYNC", NOT_SLOWER, 4000),
            ("sync", "transactions SYNC", NOT_SLOWER, 400),
        ] {
            let data =
                loaded(&format!("master-{kind}"), format!("berkeley load {{work}} {kind} none {RECORDS}"));
            let line = format!("berkeley run {{work}} {kind} {transactions} {RECORDS} {{ops}} {CACHE} 1");
            let (name, amount) = (format!("{kind}, {name}"), Amount::For(first, 0.8));
            let in_quick = kind == "btree" || transactions == "none";
            let case = program("berkeley", name, ("op/s", goal), amount, data, line, parse_done);
            cases.push(Case { in_quick, ..case });
        }
    }
    for (name, kind, goal, rival_goal) in [
        ("select inside a transaction", "select-transaction", 1.5, Some(1.0)),
        ("select, autocommit", "select-autocommit", NOT_SLOWER, None),
    ] {
        let amount = Amount::For(2000, 0.3);
        let case = sqlite(name.into(), ("op/s", goal), amount, [kind, "DELETE", "OFF"]);
        cases.push(Case { rival: Some((MMAP_SIZE, rival_goal)), ..case });
    }
    for journal in ["WAL", "DELETE"] {
        for synchronous in ["OFF", "NORMAL", "FULL"] {
            let name = format!("4 updates, {journal}, synchronous {synchronous}");
            // Long enough for the device's moods to even out.
            let amount = Amount::For(200, 1.0);
            let rival = (synchronous == "OFF").then_some((MMAP_SIZE, None));
            let in_quick = synchronous != "NORMAL";
            let figure = ("transactions/s", NOT_SLOWER);
            let case = sqlite(name, figure, amount, ["update", journal, synchronous]);
            cases.push(Case { rival, in_quick, ..case });
        }
    }
    let lasting = |first| Amount::For(first, 0.5);
    for (name, goal, amount, words) in [
        ("readrandom", 1.3, lasting(5000), "readrandom --reads={ops}"),
        // Four passes over the data make a run long enough to be timed.
        ("readseq", NOT_SLOWER, Amount::Fixed, "readseq,readseq,readseq,readseq"),
        ("fillrandom", NOT_SLOWER, lasting(20_000), "fillrandom --num={ops} --sync=0"),
        ("fillrandom --sync", NOT_SLOWER, lasting(200), "fillrandom --num={ops} --sync=1"),
    ] {
        let mut line = format!("{DB_BENCH} --benchmarks={words}");
        let (mut data, mut rival) = (Data::Nothing, None);
        if name.starts_with("read") {
            line += &format!(" --use_existing_db=1 --num={KEYS} --mmap_read={{0~1}}");
            data = loaded("master", format!("{DB_BENCH} --benchmarks=fillrandom,compact --num={KEYS}"));
            rival = Some(("kernel with --mmap_read", None));
        }
        let case = program("rocksdb", name, ("op/s", goal), amount, data, line, parse_db_bench);
        cases.push(Case { rival, ..case });
    }
    cases
}

fn sqlite(
    name: String,
    figure: (&'static str, f64),
    amount: Amount,
    [kind, journal, synchronous]: [&str; 3],
) -> Case {
    let data = loaded("master", format!("sqlite load {{work}}/db {RECORDS}"));
    let line =
        format!("sqlite run {{work}}/db {RECORDS} {kind} {{ops}} 1 {journal} {synchronous} {MMAP_BYTES}");
    program("sqlite", name, figure, amount, data, line, parse_done)
}

/// Adds up the lines `NAME : X micros/op Y ops/sec S seconds N operations; ...`; the keys that were found are the sum.
fn parse_db_bench(output: &str) -> Option<Done> {
    let (mut seconds, mut operations, mut found) = (0.0, 0.0, String::new());
    for line in output.lines().filter(|line| line.contains(" micros/op ")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let before = |unit: &str| {
            let at = words.iter().position(|word| word.trim_end_matches(';') == unit)?;
            words.get(at.checked_sub(1)?)?.parse::<f64>().ok()
        };
        // Seconds are rounded to a thousandth; micros/op are not.
        operations += before("operations")?;
        seconds += before("micros/op")? * before("operations")? / 1e6;
        found.extend(line.split_once('(').map(|(_, hits)| hits));
    }
    let sum = (!found.is_empty()).then_some(found);
    (seconds > 0.0).then(|| Done { rate: operations / seconds, seconds, sum })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_db_bench_are_added_up() {
        let line = "readrandom   : 0.500 micros/op 2000000 ops/sec 0.150 seconds 300000 operations; 9 MB/s (7 of 9 found)\n";
        let done = parse_db_bench(&format!("Keys: 16 bytes\n{line}{line}")).unwrap();
        assert!((done.rate - 2e6).abs() < 1.0 && (done.seconds - 0.3).abs() < 1e-9, "{done:?}");
        assert_eq!(done.sum.as_deref(), Some("7 of 9 found)7 of 9 found)"));
        assert_eq!(parse_db_bench("DB path: x\n"), None);
    }
}
