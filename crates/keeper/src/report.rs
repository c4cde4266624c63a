//! Results of the commands for logs, as values that become JSON.

use bywash_log::counts::{Counts, Latencies, NAMES};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Action of recovery on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// Its records were written into it, and it was made durable.
    Written,
    /// It was made durable, as the page cache holds what was committed.
    Synced,
    /// The log had no claim on it any more.
    Released,
    /// The user gave its records up.
    GivenUp,
}

/// A file that was recovered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RecoveredFile {
    /// Path of the file when it joined the log.
    pub path: String,
    /// Number of live records.
    pub records: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// Action that was taken on the file.
    pub action: Action,
}

/// Outcome of a recovery.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Recovered {
    /// Path of the log.
    pub log: PathBuf,
    /// True if nothing was written.
    pub dry_run: bool,
    /// Files that had live records.
    pub files: Vec<RecoveredFile>,
}

impl Recovered {
    pub(crate) fn new(log: &Path, dry_run: bool) -> Recovered {
        Recovered { log: log.to_owned(), dry_run, files: Vec::new() }
    }
}

/// State of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogState {
    /// No live records.
    Empty,
    /// Live records, and no keeper: recovery writes them into their files.
    Records,
    /// A keeper has the log.
    InUse,
}

/// A file with live records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveFile {
    /// Path of the file when it joined the log.
    pub path: String,
    /// Number of live records; unknown while a keeper has the log.
    pub records: Option<u64>,
    /// Bytes in them; unknown while a keeper has the log.
    pub bytes: Option<u64>,
}

/// Status of a log, as `bywash log status` prints it.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    /// Path of the log.
    pub log: PathBuf,
    /// Identity of the log, in hexadecimal.
    pub id: String,
    /// State.
    pub state: LogState,
    /// User id of the owner.
    pub owner: u32,
    /// Size of the log, in bytes.
    pub bytes: u64,
    /// Size of the part that holds records, in bytes.
    pub area_bytes: u64,
    /// Number of files that can have records at a time.
    pub files_max: u32,
    /// Files with live records.
    pub files: Vec<LiveFile>,
    /// Status of the log's keeper, if there is one.
    pub keeper: Option<KeeperStatus>,
}

/// Status of a keeper: its process and its counters.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct KeeperStatus {
    /// Process id.
    pub pid: u32,
    /// Bytes of the area between the oldest batch and the end of the log.
    pub used_bytes: u64,
    /// Files that could not be made durable at the last attempt.
    pub files_failed: usize,
    /// Error number for which the log file failed; 0: it has not.
    pub failure: u32,
    /// Time since which the oldest live record waits for a checkpoint, in milliseconds; `None` if there is none.
    pub oldest_record_ms: Option<u64>,
    /// Files with live records.
    pub files: Vec<LiveFile>,
    /// Counters by their names.
    pub counters: BTreeMap<String, u64>,
    /// Latencies of commits; `None` if there was none.
    pub latency: Option<Latency>,
}

/// Percentiles of the time that commits have taken, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// Median.
    pub p50_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// Percentile 99.9.
    pub p99_9_ns: u64,
}

impl From<Latencies> for Latency {
    fn from(latencies: Latencies) -> Latency {
        let Latencies { p50_ns, p99_ns, p99_9_ns } = latencies;
        Latency { p50_ns, p99_ns, p99_9_ns }
    }
}

/// Returns all counters by their names.
pub fn counters(counts: &Counts) -> BTreeMap<String, u64> {
    NAMES.iter().map(|(counter, key, _)| ((*key).to_owned(), counts.get(*counter))).collect()
}
