//! The report in words and as JSON.

use super::gain::Prediction;
use crate::plan::words::time;
use bywash_bench::statistics::Summary;
use serde::Serialize;

/// Prediction, and the measured time where it was verified. Times are in seconds.
#[derive(Serialize)]
pub struct Report {
    command: &'static str,
    now: Range,
    recorded: f64,
    computed_now: f64,
    then: Range,
    gain: Range,
    changes: Vec<ChangeRow>,
    starts: u32,
    start_seconds: f64,
    unchanged: Unchanged,
    unknown: Unknown,
    measured: Option<Measured>,
}

/// Median and quartiles.
#[derive(Clone, Copy, Serialize)]
struct Range {
    median: f64,
    low: f64,
    high: f64,
}

#[derive(Serialize)]
struct ChangeRow {
    kind: &'static str,
    calls: usize,
    recorded: f64,
    without: f64,
    with: f64,
    difference: f64,
}

/// Parts of the program's time that stay as they are.
#[derive(Serialize)]
struct Unchanged {
    computing: f64,
    other_calls: f64,
}

/// Parts that the prediction knows nothing about.
#[derive(Serialize)]
struct Unknown {
    calls_left_out: usize,
    is_cut: bool,
    waits: f64,
}

#[derive(Serialize)]
struct Measured {
    then: Range,
    gain: f64,
    /// Predicted gain over measured gain, minus 1.
    error: f64,
    /// The same for a prediction that nothing changes.
    no_change_error: f64,
}

impl From<Summary> for Range {
    fn from(summary: Summary) -> Range {
        let Summary { median, low, high } = summary;
        Range { median, low, high }
    }
}

impl Report {
    /// Makes the report. `recorded` is the time of the recorded run, `measured` that under `bywash run`.
    pub fn new(prediction: &Prediction, has_log: bool, recorded: f64, measured: Option<Summary>) -> Report {
        let changes = prediction.changes.iter().map(|change| ChangeRow {
            kind: change.kind.name(),
            calls: change.calls,
            recorded: change.recorded,
            without: change.without,
            with: change.with,
            difference: change.difference,
        });
        Report {
            command: if has_log { "bywash run --log" } else { "bywash run" },
            now: prediction.now.into(),
            recorded,
            computed_now: prediction.computed_now,
            then: prediction.then.into(),
            gain: prediction.gain.into(),
            changes: changes.collect(),
            starts: prediction.starts,
            start_seconds: prediction.start_seconds,
            unchanged: Unchanged { computing: prediction.computing, other_calls: prediction.other_calls },
            unknown: Unknown {
                calls_left_out: prediction.left_out,
                is_cut: prediction.is_cut,
                waits: prediction.unexplained,
            },
            measured: measured.map(|then| {
                let gain = prediction.now.median / then.median;
                Measured {
                    then: then.into(),
                    gain,
                    error: prediction.gain.median / gain - 1.0,
                    no_change_error: 1.0 / gain - 1.0,
                }
            }),
        }
    }

    /// Formats the report for people.
    pub fn in_words(&self) -> String {
        let range =
            |range: &Range| format!("{} ({} to {})", time(range.median), time(range.low), time(range.high));
        let gain = &self.gain;
        let under = format!("under {}", self.command);
        let width = under.len();
        let mut text = format!(
            "{:width$}  {}\n{under}  {}, predicted\n{:width$}  {:.2} ({:.2} to {:.2}), predicted\n",
            "by the kernel",
            range(&self.now),
            range(&self.then),
            "gain",
            gain.median,
            gain.low,
            gain.high,
        );
        if let Some(Measured { then, gain, error, no_change_error }) = &self.measured {
            text += &format!(
                "{:width$}  {}, gain {gain:.2}: the prediction is off by {:+.1} %, 'no change' by {:+.1} %\n",
                "measured",
                range(then),
                error * 100.0,
                no_change_error * 100.0,
            );
        }
        text += &format!(
            "\n{:24} {:>10} {:>11} {:>11} {:>11} {:>12}\n",
            "", "calls", "recorded", "by kernel", "by library", "in all"
        );
        for change in &self.changes {
            text += &format!(
                "{:24} {:>10} {:>11} {:>11} {:>11} {:>12}\n",
                change.kind,
                change.calls,
                time(change.recorded),
                if change.without > 0.0 { time(change.without) } else { "-".into() },
                if change.with > 0.0 { time(change.with) } else { "-".into() },
                signed(change.difference),
            );
        }
        text += &format!(
            "{:24} {:>10} {:>48}\n\nunchanged: {} of computing, {} of other calls\n",
            "starts of programs",
            self.starts,
            signed(self.start_seconds),
            time(self.unchanged.computing),
            time(self.unchanged.other_calls),
        );
        text + &self.unknown_in_words()
    }

    fn unknown_in_words(&self) -> String {
        let Unknown { calls_left_out, is_cut, waits } = self.unknown;
        let parts = [
            (calls_left_out > 0).then(|| format!("{calls_left_out} calls that could not be made again")),
            is_cut.then(|| "calls after the recording was full".to_owned()),
            (waits > 0.0).then(|| format!("{} of waits whose cause was not recorded", time(waits))),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        if parts.is_empty() {
            String::new()
        } else {
            format!("unknown, taken as unchanged: {}\n", parts.join(", "))
        }
    }
}

/// Formats a difference of times.
fn signed(seconds: f64) -> String {
    let sign = if seconds < 0.0 { "-" } else { "+" };
    format!("{sign}{}", time(seconds.abs()))
}
