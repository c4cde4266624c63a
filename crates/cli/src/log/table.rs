//! Results of `bywash log`, as text for people.

use super::Counted;
use bywash_keeper::report::{Action, KeeperStatus, Latency, LogState, Recovered, Status};
use bywash_log::counts::{Counter, NAMES};
use bywash_log::layout::{BLOCK, Geometry};
use bywash_quantity::{Bytes, Count};
use std::fmt::Write;
use std::path::Path;

/// Returns the line for a log that was made.
pub fn created(path: &Path, geometry: &Geometry) -> String {
    let bytes = Bytes(geometry.blocks * BLOCK as u64);
    format!("made log {}: {bytes}, for {} files at a time\n", path.display(), Count(geometry.files.into()))
}

/// Returns the text for a recovery.
pub fn recovered(recovered: &Recovered) -> String {
    let log = recovered.log.display();
    if recovered.files.is_empty() {
        return format!("log {log} is empty: all files have what was committed\n");
    }
    let mut text = String::new();
    for file in &recovered.files {
        let done = match (file.action, recovered.dry_run) {
            (Action::Written, false) => "written",
            (Action::Written, true) => "to be written",
            (Action::Synced, false) => "made durable",
            (Action::Synced, true) => "to be made durable",
            (Action::Released, _) => "not the log's any more, and left alone",
            (Action::GivenUp, _) => "given up",
        };
        // Writing to a string does not fail.
        let _ =
            writeln!(text, "{}: {} in {} records {done}", file.path, Bytes(file.bytes), Count(file.records));
    }
    text
}

/// Returns the table of a log's state.
pub fn status(status: &Status) -> String {
    let state = match (status.state, &status.keeper) {
        (LogState::InUse, Some(keeper)) => format!("in use, keeper {}", keeper.pid),
        (LogState::InUse, None) => "in use".to_owned(),
        (LogState::Empty, _) => "empty".to_owned(),
        (LogState::Records, _) => "has records; `bywash log recover` writes them into their files".to_owned(),
    };
    let owner = uzers::get_user_by_uid(status.owner);
    let owner = owner.map_or(status.owner.to_string(), |user| user.name().to_string_lossy().into());
    let mut text = String::new();
    let mut row = |name: &str, value: &str| {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{name:<10} {value}");
    };
    row("log", &status.log.display().to_string());
    row("state", &state);
    row("owner", &owner);
    row("size", &format!("{}, {} of it for records", Bytes(status.bytes), Bytes(status.area_bytes)));
    row("files", &format!("{} with live records, {} at most", status.files.len(), status.files_max));
    if let Some(keeper) = &status.keeper {
        keeper_rows(keeper, &mut row);
    }
    for file in &status.files {
        let amount = match (file.records, file.bytes) {
            (Some(records), Some(bytes)) => format!(": {} in {} records", Bytes(bytes), Count(records)),
            _ => String::new(),
        };
        row("", &format!("{}{amount}", file.path));
    }
    text
}

fn keeper_rows(keeper: &KeeperStatus, row: &mut impl FnMut(&str, &str)) {
    row("used", &Bytes(keeper.used_bytes).to_string());
    if keeper.failure != 0 {
        let reason = std::io::Error::from_raw_os_error(keeper.failure as i32);
        row("failed", &format!("{reason}; every sync is the kernel's"));
    }
    if keeper.files_failed > 0 {
        row(
            "failing",
            &format!("{} files cannot be made durable; see the system's log", keeper.files_failed),
        );
    }
    if let Some(ms) = keeper.oldest_record_ms {
        row("waiting", &format!("{} for a checkpoint", lag(keeper.used_bytes, Some(ms))));
    }
    if let Some(latency) = &keeper.latency {
        row("latency", &percentiles(latency));
    }
    for (number, words) in counter_lines(|counter| keeper.counters.get(counter.key()).copied().unwrap_or(0)) {
        row("", &format!("{number} {words}"));
    }
}

/// Returns the part of the table of a run that tells of its commits.
pub fn counted(counted: &Counted) -> String {
    let value = |counter: Counter| counted.counters.get(counter.key()).copied().unwrap_or(0);
    let absorbed = value(Counter::Commits) + value(Counter::Clean);
    let all = absorbed + Counter::KERNEL.into_iter().map(value).sum::<u64>();
    let mut text = format!(
        "commit log {}: {} of {} syncs absorbed\n",
        counted.path.display(),
        Count(absorbed),
        Count(all)
    );
    for (number, words) in counter_lines(value) {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{number:>15}  {words}");
    }
    if let Some(latency) = &counted.latency {
        let _ = writeln!(text, "latency of commits: {}", percentiles(latency));
    }
    let lag = match (&counted.lag, &counted.no_lag_because) {
        (Some(found), _) => lag(found.bytes, found.oldest_record_ms),
        (None, Some(error)) => format!("not known: {error}"),
        (None, None) => "not known: the log's keeper has ended".into(),
    };
    let _ = writeln!(text, "waiting for a checkpoint: {lag}");
    text
}

/// Returns each counter that is not zero as a number and words.
fn counter_lines(value: impl Fn(Counter) -> u64) -> Vec<(String, &'static str)> {
    let is_size = |counter| matches!(counter, Counter::Bytes | Counter::BatchBytes);
    NAMES
        .into_iter()
        .map(|(counter, _, words)| (counter, value(counter), words))
        .filter(|(_, value, _)| *value > 0)
        .map(|(counter, value, words)| {
            let number = if is_size(counter) { Bytes(value).to_string() } else { Count(value).to_string() };
            (number, words)
        })
        .collect()
}

fn percentiles(latency: &Latency) -> String {
    let microseconds = |ns: u64| Count(ns.div_ceil(1000)).to_string();
    format!(
        "50 % at most {} us, 99 % {} us, 99.9 % {} us",
        microseconds(latency.p50_ns),
        microseconds(latency.p99_ns),
        microseconds(latency.p99_9_ns)
    )
}

/// Returns the words for what waits for a checkpoint.
fn lag(bytes: u64, oldest_record_ms: Option<u64>) -> String {
    match oldest_record_ms {
        None => "nothing".into(),
        Some(ms) => format!("{}, the oldest record for {:.1} s", Bytes(bytes), ms as f64 / 1000.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bywash_keeper::report::RecoveredFile;

    #[test]
    fn a_dry_run_says_what_would_be_done() {
        let file = |action| RecoveredFile { path: "/data/a".into(), records: 2, bytes: 8192, action };
        let text =
            |dry_run, action| recovered(&Recovered { log: "/l".into(), dry_run, files: vec![file(action)] });
        assert_eq!(text(true, Action::Written), "/data/a: 8 KiB in 2 records to be written\n");
        assert_eq!(text(false, Action::Synced), "/data/a: 8 KiB in 2 records made durable\n");
    }
}
