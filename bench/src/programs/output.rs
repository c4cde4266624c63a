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
        let told = |output: &str| Told { output: output.into(), seconds: 2.0, operations: 100 };
        let db_bench_line =
            "readrandom   : 0.500 micros/op 2000000 ops/sec 0.150 seconds 300000 operations; (7 found)\n";
        let two_lines = format!("Keys: 16 bytes\n{db_bench_line}{db_bench_line}");
        let sysbench = "SQL statistics:\n    transactions:        14785  (14719.45 per sec.)\n";
        let pgbench = "number of failed transactions: 0 (0.000%)\ntps = 12228.321013 (without initial connection time)\n";
        let fio_json = r#"note: x {"jobs":[{"read":{"iops":12.5,"runtime":500},"write":{"iops":0}}]}"#;
        type Read = fn(&Told) -> Option<Done>;
        let known: [(Read, &str, f64, f64, Option<&str>); 6] = [
            (driver, "noise\nops=100 seconds=0.5 sum=ab\n", 200.0, 0.5, Some("ab")),
            (timed, "yes", 50.0, 2.0, Some("yes")),
            (fio, fio_json, 12.5, 0.5, None),
            (db_bench, &two_lines, 2e6, 0.3, Some("7 found)7 found)")),
            (transactions, sysbench, 14_719.45, 2.0, None),
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
