//! Figures of a run, from what its program has told.

use super::line::Told;
use crate::child;
use crate::error::Error;
use serde_json::Value;

/// Result of one run: operations (or bytes) a second, and the seconds that the measured part took.
#[derive(Clone, Debug, PartialEq)]
pub struct Done {
    pub rate: f64,
    pub seconds: f64,
    /// Sum over the results, equal on every side if the work was done right; `None` where the program offers none.
    pub sum: Option<String>,
}

/// The line `ops=N seconds=S sum=X` that the C programs end with.
pub fn driver(told: &Told) -> Option<Done> {
    let field = |name: &str| {
        told.output.split_whitespace().rev().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    };
    let number = |name: &str| field(name)?.parse::<f64>().ok();
    let (operations, seconds) = (number("ops")?, number("seconds").filter(|seconds| *seconds > 0.0)?);
    Some(Done { rate: operations / seconds, seconds, sum: Some(field("sum")?.to_owned()) })
}

/// The operations that the program was to do in the time from its start to its end; its output is the sum.
pub fn timed(told: &Told) -> Option<Done> {
    let sum = Some(told.output.clone()).filter(|output| !output.is_empty());
    Some(Done { rate: told.operations as f64 / told.seconds, seconds: told.seconds, sum })
}

/// The reads of fio, which may say something before the JSON.
pub fn fio(told: &Told) -> Option<Done> {
    let report: Value = serde_json::from_str(told.output.get(told.output.find('{')?..)?).ok()?;
    let job = report.get("jobs")?.get(0)?.get("read")?;
    let rate = job.get("iops")?.as_f64().filter(|rate| *rate > 0.0)?;
    Some(Done { rate, seconds: job.get("runtime")?.as_f64()? / 1000.0, sum: None })
}

/// The sum of the lines `NAME : X micros/op Y ops/sec S seconds N operations; ...`; the keys that were found are the sum.
pub fn db_bench(told: &Told) -> Option<Done> {
    let (mut seconds, mut operations, mut found) = (0.0, 0.0, String::new());
    for line in told.output.lines().filter(|line| line.contains(" micros/op ")) {
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

/// Commits of a run: how many a second, and how long one took.
#[derive(Clone, Debug, PartialEq)]
pub struct Commits {
    pub done: Done,
    /// Nanoseconds that half of the commits, 99 % and 99.9 % of them do not exceed.
    pub latency_ns: [f64; 3],
}

/// Commits of the C programs.
pub fn driver_commits(told: &Told) -> Option<Commits> {
    let done = driver(told)?;
    let field = |name: &str| {
        let mut words = told.output.split_whitespace().rev();
        words.find_map(|word| word.strip_prefix(name)?.strip_prefix('=')?.parse::<f64>().ok())
    };
    let rate = field("commits")? / done.seconds;
    Some(Commits { done: Done { rate, ..done }, latency_ns: [field("p50")?, field("p99")?, field("p99.9")?] })
}

/// The writes of db_bench by all threads, with `--histogram`; the operations of what it does behind them are the sum.
pub fn db_bench_commits(told: &Told) -> Option<Commits> {
    let before = |line: &str, unit: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let at = words.iter().position(|word| word.trim_end_matches(';') == unit)?;
        words.get(at.checked_sub(1)?)?.parse::<f64>().ok()
    };
    let mut lines = told.output.lines().filter(|line| line.contains(" micros/op "));
    let (writes, behind) = (lines.next()?, lines.next()?);
    let (rate, operations) = (before(writes, "ops/sec")?, before(writes, "operations")?);
    let mut words = told.output.split_once("Percentiles: ")?.1.split_whitespace();
    let mut micros = |name: &str| words.by_ref().skip_while(|word| *word != name).nth(1)?.parse::<f64>().ok();
    let latency_ns = [micros("P50:")? * 1e3, micros("P99:")? * 1e3, micros("P99.9:")? * 1e3];
    let sum = Some(before(behind, "operations")?.to_string());
    let is_timed = rate > 0.0;
    is_timed.then(|| Commits { done: Done { rate, seconds: operations / rate, sum }, latency_ns })
}

/// The transactions of sysbench, with `--histogram`, whose lines `MILLISECONDS |*** COUNT` are a few percent apart.
pub fn sysbench_commits(told: &Told) -> Option<Commits> {
    let time = told.output.lines().find_map(|line| line.trim().strip_prefix("total time:"))?;
    let seconds = time.trim().strip_suffix('s')?.parse().ok()?;
    let bar = |line: &str| {
        let (millis, rest) = line.split_once('|')?;
        Some((millis.trim().parse::<f64>().ok()?, rest.split_whitespace().next_back()?.parse::<f64>().ok()?))
    };
    let bars: Vec<(f64, f64)> = told.output.lines().filter_map(bar).collect();
    let all: f64 = bars.iter().map(|bar| bar.1).sum();
    let quantile = |share: f64| {
        let mut below = 0.0;
        bars.iter().find_map(|(millis, count)| {
            below += count;
            (below >= share * all).then_some(millis * 1e6)
        })
    };
    let latency_ns = [quantile(0.5)?, quantile(0.99)?, quantile(0.999)?];
    Some(Commits { done: Done { seconds, ..transactions(told)? }, latency_ns })
}

/// The rate in sysbench's `transactions: N (RATE per sec.)` or pgbench's `tps = RATE (without ...)`.
pub fn transactions(told: &Told) -> Option<Done> {
    let of_line = |line: &str| {
        let line = line.trim();
        let rest = line.strip_prefix("transactions:").or_else(|| line.strip_prefix("tps = "))?;
        let inside =
            rest.split_once('(').map(|(_, inside)| inside).filter(|inside| inside.contains("per sec"));
        inside.unwrap_or(rest).split_whitespace().next()?.parse().ok()
    };
    let rate = told.output.lines().find_map(of_line).filter(|rate| *rate > 0.0)?;
    Some(Done { rate, seconds: told.seconds, sum: None })
}

/// The error of a program whose output holds no figures.
pub fn unreadable(program: &str, output: &str) -> Error {
    let how = "gave output that cannot be read".into();
    Error::Failed { program: program.to_owned(), how, tail: child::tail(output) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_in_the_output_of_each_program_and_in_no_other() {
        let told =
            |output: &str| Told { output: output.into(), seconds: 2.0, operations: 100, cpu_seconds: 1.0 };
        let db_bench_line =
            "readrandom   : 0.500 micros/op 2000000 ops/sec 0.150 seconds 300000 operations; (7 found)\n";
        let two_lines = format!("Keys: 16 bytes\n{db_bench_line}{db_bench_line}");
        let rate_alone = "SQL statistics:\n    transactions:        14785  (14719.45 per sec.)\n";
        let pgbench = "number of failed transactions: 0 (0.000%)\ntps = 12228.321013 (without initial connection time)\n";
        let fio_json = r#"note: x {"jobs":[{"read":{"iops":12.5,"runtime":500},"write":{"iops":0}}]}"#;
        type Read = fn(&Told) -> Option<Done>;
        let known: [(Read, &str, f64, f64, Option<&str>); 6] = [
            (driver, "noise\nops=100 seconds=0.5 sum=ab\n", 200.0, 0.5, Some("ab")),
            (timed, "yes", 50.0, 2.0, Some("yes")),
            (fio, fio_json, 12.5, 0.5, None),
            (db_bench, &two_lines, 2e6, 0.3, Some("7 found)7 found)")),
            (transactions, rate_alone, 14_719.45, 2.0, None),
            (transactions, pgbench, 12_228.321_013, 2.0, None),
        ];
        for (read, output, rate, seconds, sum) in known {
            let done = read(&told(output)).unwrap();
            assert!(
                (done.rate / rate - 1.0).abs() < 1e-9 && (done.seconds - seconds).abs() < 1e-9,
                "{done:?}"
            );
            assert_eq!(done.sum.as_deref(), sum);
        }
        let commits = "db\ncommits=50 p50=1000 p99=3000 p99.9=9000 ops=100 seconds=0.5 sum=ab\n";
        let histogram = "Percentiles: P50: 1.00 P75: 2.00 P99: 3.00 P99.9: 9.00 P99.99: 10.00\n";
        let threads = format!(
            "fillrandom   :     80.0 micros/op 100 ops/sec 0.5 seconds 50 operations;\n{histogram}readseq      :  \
             1.0 micros/op 1000000 ops/sec 0.0 seconds 44 operations;\nPercentiles: P50: 0.5 P99: 0.5 P99.9: 0.5\n"
        );
        let bars = "value  -- distribution -- count\n 0.001 |***  25\n 0.003 |**  24\n 0.009 |* 1\n";
        let sysbench = format!("{bars}transactions:   50  (100.00 per sec.)\n  total time:    0.5000s\n");
        type ReadCommits = fn(&Told) -> Option<Commits>;
        let known: [(ReadCommits, &str, Option<&str>, f64); 3] = [
            (driver_commits, commits, Some("ab"), 3000.0),
            (db_bench_commits, &threads, Some("44"), 3000.0),
            // 99 % of 50 are 49.5: the last bar has them.
            (sysbench_commits, &sysbench, None, 9000.0),
        ];
        for (read, output, sum, of_99) in known {
            let Commits { done, latency_ns } = read(&told(output)).unwrap();
            assert_eq!((done.rate, done.seconds, done.sum.as_deref()), (100.0, 0.5, sum));
            let near =
                latency_ns.iter().zip([1000.0, of_99, 9000.0]).all(|(one, other)| (one - other).abs() < 1e-6);
            assert!(near, "{latency_ns:?}");
            assert_eq!(read(&told("ops=100 seconds=0.5 sum=ab\nPercentiles: P50: 1.0\n")), None);
        }
        let unknown: [(Read, &str); 5] = [
            (driver, "ops=1 seconds=0 sum=1"),
            (driver, "ops=1 sum=1"),
            (fio, "fio: no such engine"),
            (db_bench, "DB path: x\n"),
            (transactions, "transactions: 0 (0.00 per sec.)"),
        ];
        assert!(unknown.iter().all(|(read, output)| read(&told(output)).is_none()));
    }
}
