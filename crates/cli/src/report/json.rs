//! The report as JSON: what `--report FILE` writes.
//!
//! ```text
//! {
//!   "version": 1,                   rises when a member changes its meaning or is removed
//!   "program": ["sqlite3", "x.db"], as given on the command line
//!   "exit": {"status": 0},          or {"signal": 9}
//!   "wall_seconds": 1.5,
//!   "loaded": true,                 false: the program itself did not load the library,
//!   "not_loaded_because": null,     and why
//!   "processes_uncounted": false,   true: more processes than a session can count separately
//!   "still_running": 0,             processes that outlived the program; counted up to now
//!   "total": {
//!     "user_reads": 10, ...         every counter by its name, over all processes
//!     "files": [{"path": "/x.db", "user_calls": 9, "user_bytes": 4608,
//!                "kernel_calls": 1, "kernel_bytes": 512}]    most calls first
//!   },
//!   "log": {                        null without --log
//!     "path": "/l", "counters": {"commits": 9, ...}, "latency": {"p50_ns": 41000, ...} or null,
//!     "lag": {"bytes": 8192, "oldest_record_ms": 12 or null} or null, if the keeper did not answer
//!   },
//!   "not_served": [                 programs executed without the library, most often first
//!     {"program": "/bin/x", "reason": "statically linked", "times": 1}
//!   ],
//!   "processes": [                  in the order of their start; exec makes a new one of the same pid
//!     {"pid": 7, "parent": 6, "program": "/usr/bin/sqlite3", "started_ns": 123,
//!      "user_reads": 10, ..., "files": [...]}
//!   ]
//! }
//! ```
//!
//! `started_ns` is on CLOCK_MONOTONIC. Counters that end in `_bytes` are bytes, the others are calls or
//! events; their meaning is in `bywash_session::Counter`. A path that was too long lacks its beginning.

use super::{NotServed, ProgramEnd, Report, calls};
use crate::log::Counted;
use bywash_session::{Counter, FileUse, RecordView};
use serde::Serialize;
use std::collections::BTreeMap;

/// Returns the whole text of the file.
pub fn render(report: &Report) -> String {
    let document = Document {
        version: 1,
        program: &report.program,
        exit: match report.end {
            ProgramEnd::Exit(status) => Exit::Status(status),
            ProgramEnd::Signal(signal) => Exit::Signal(signal),
        },
        wall_seconds: report.wall.as_secs_f64(),
        loaded: report.absent.is_none(),
        not_loaded_because: report.absent.as_deref(),
        processes_uncounted: report.overflowed,
        still_running: report.still_running,
        total: Total {
            counters: counters(|counter| report.total(counter)),
            files: report.files().into_iter().map(File::from).collect(),
        },
        log: report.log.as_ref(),
        not_served: report.unserved.iter().map(Without::from).collect(),
        processes: report.records.iter().map(Process::from).collect(),
    };
    // Maps with string keys, numbers and strings always have a JSON form, so serialisation cannot fail.
    serde_json::to_string_pretty(&document).unwrap_or_default()
}

#[derive(Serialize)]
struct Document<'a> {
    version: u32,
    program: &'a [String],
    exit: Exit,
    wall_seconds: f64,
    loaded: bool,
    not_loaded_because: Option<&'a str>,
    processes_uncounted: bool,
    still_running: usize,
    total: Total,
    log: Option<&'a Counted>,
    not_served: Vec<Without<'a>>,
    processes: Vec<Process>,
}

#[derive(Serialize)]
struct Without<'a> {
    program: &'a str,
    reason: &'a str,
    times: usize,
}

impl<'a> From<&'a NotServed> for Without<'a> {
    fn from(program: &'a NotServed) -> Without<'a> {
        Without { program: &program.program, reason: program.reason, times: program.times }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum Exit {
    Status(i32),
    Signal(i32),
}

type Counters = BTreeMap<&'static str, u64>;

#[derive(Serialize)]
struct Total {
    #[serde(flatten)]
    counters: Counters,
    files: Vec<File>,
}

#[derive(Serialize)]
struct Process {
    pid: u32,
    parent: u32,
    program: String,
    started_ns: u64,
    #[serde(flatten)]
    counters: Counters,
    files: Vec<File>,
}

impl From<&RecordView> for Process {
    fn from(record: &RecordView) -> Process {
        let mut files = record.files().to_vec();
        files.sort_by_key(|file| std::cmp::Reverse(calls(file)));
        Process {
            pid: record.pid(),
            parent: record.parent(),
            program: record.program().into(),
            started_ns: record.started_ns(),
            counters: counters(|counter| record.counter(counter)),
            files: files.into_iter().map(File::from).collect(),
        }
    }
}

#[derive(Serialize)]
struct File {
    path: String,
    user_calls: u64,
    user_bytes: u64,
    kernel_calls: u64,
    kernel_bytes: u64,
}

impl From<FileUse> for File {
    fn from(file: FileUse) -> File {
        File {
            path: file.path,
            user_calls: file.user_calls,
            user_bytes: file.user_bytes,
            kernel_calls: file.kernel_calls,
            kernel_bytes: file.kernel_bytes,
        }
    }
}

fn counters(value: impl Fn(Counter) -> u64) -> Counters {
    Counter::ALL.iter().map(|counter| (counter.key(), value(*counter))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::example;
    use super::*;

    #[test]
    fn the_document_has_what_the_module_says() {
        let value: serde_json::Value = serde_json::from_str(&render(&example())).unwrap();
        assert_eq!(value["version"], 1);
        assert_eq!(value["program"], serde_json::json!(["p10", "arg"]));
        assert_eq!(value["exit"], serde_json::json!({"status": 0}));
        assert_eq!(value["wall_seconds"], 1.234);
        assert_eq!(value["loaded"], true);
        assert_eq!(value["total"]["user_read_bytes"], 1020 * 512);
        assert_eq!(value["total"]["files"][0]["path"], "/data/shared.db");
        let without = serde_json::json!([{"program": "/bin/m", "reason": "statically linked", "times": 2}]);
        assert_eq!(value["not_served"], without);
        assert_eq!(value["processes"][1]["pid"], 11);
        assert_eq!(value["processes"][1]["user_reads"], 20);
        assert_eq!(value["processes"][1]["files"][0]["kernel_calls"], 100);
        for counter in Counter::ALL {
            assert!(value["total"][counter.key()].is_u64(), "{}", counter.key());
        }
    }
}
