//! Report of a run: the records of its session, added up.
//!
//! Invariant: all numbers come from the records; nothing is estimated. Called by `bywash run` when the
//! program has ended.
//!
//! - [`absent`]: reason that a program did not load the library
//! - [`json`]: the report as JSON, for programs
//! - [`table`]: the report as a table, for people
//! - [`words`]: the reasons in words

pub mod absent;
pub mod json;
pub mod table;
mod words;

use crate::log::Counted;
use bywash_executable::{Finding, Reason};
use bywash_session::{Counter, FileUse, RecordView, Session};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

/// End of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramEnd {
    /// The program exited with this status.
    Exit(i32),
    /// The program was killed by this signal.
    Signal(i32),
}

/// Contents of a report.
pub struct Report {
    /// The program and its arguments.
    pub program: Vec<String>,
    /// Exit status or signal of the program.
    pub end: ProgramEnd,
    /// Wall-clock time from the program's start to its end.
    pub wall: Duration,
    /// Records of the processes, in the order of their claims.
    pub records: Vec<RecordView>,
    /// Reason that the program itself has no record, if it has none.
    pub absent: Option<String>,
    /// True if more processes were started than a session can count separately.
    pub overflowed: bool,
    /// Programs that were executed without the library, the most frequent first.
    pub unserved: Vec<NotServed>,
    /// Number of processes that outlived the program and still count.
    pub still_running: usize,
    /// Commits of the run to its log, if it has one.
    pub log: Option<Counted>,
}

/// A program that was executed without the library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotServed {
    /// Path of the program, or of a script's interpreter.
    pub program: String,
    /// Reason, in words.
    pub reason: &'static str,
    /// Number of times that it was executed.
    pub times: usize,
}

/// Run of the program itself.
pub struct Ran {
    /// Process id.
    pub pid: u32,
    /// Exit status or signal.
    pub end: ProgramEnd,
    /// Wall-clock time from start to end.
    pub wall: Duration,
    /// True if the library was switched off.
    pub off: bool,
    /// Reason from the program's file that the library cannot serve it, if any.
    pub unserved: Option<Finding>,
    /// Commits to the log, if the run has one.
    pub log: Option<Counted>,
}

impl Report {
    /// Makes the report of `program` from the records of `session`.
    pub fn new(program: &[OsString], ran: Ran, session: &Session) -> Report {
        let records = session.records();
        let loaded = records.iter().any(|record| record.pid() == ran.pid);
        let reason = ran.unserved.as_ref().map(|finding| finding.reason);
        Report {
            program: program.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
            end: ran.end,
            wall: ran.wall,
            absent: (!loaded).then(|| absent::explain(&program[0], ran.off, reason)),
            overflowed: session.overflowed(),
            unserved: not_served(ran.unserved.as_ref(), session),
            still_running: still_running(&records, session),
            records,
            log: ran.log,
        }
    }

    /// Returns a counter's sum over all processes.
    pub fn total(&self, counter: Counter) -> u64 {
        self.records.iter().map(|record| record.counter(counter)).sum()
    }

    /// Returns the files, added up over all processes, those with the most calls first.
    pub fn files(&self) -> Vec<FileUse> {
        let mut by_path: HashMap<&str, FileUse> = HashMap::new();
        for file in self.records.iter().flat_map(RecordView::files) {
            by_path
                .entry(&file.path)
                .and_modify(|sum| {
                    sum.user_calls += file.user_calls;
                    sum.user_bytes += file.user_bytes;
                    sum.kernel_calls += file.kernel_calls;
                    sum.kernel_bytes += file.kernel_bytes;
                })
                .or_insert_with(|| file.clone());
        }
        let mut files: Vec<FileUse> = by_path.into_values().collect();
        files.sort_by(|a, b| calls(b).cmp(&calls(a)).then_with(|| a.path.cmp(&b.path)));
        files
    }
}

/// Returns the programs without the library: the program itself if `first` says so, and those that the
/// session has noted, counted by path and reason.
fn not_served(first: Option<&Finding>, session: &Session) -> Vec<NotServed> {
    let first =
        first.map(|finding| (String::from_utf8_lossy(finding.program()).into_owned(), finding.reason));
    let noted = session.unserved().into_iter().filter_map(|note| {
        // A number that stands for no reason was written by another program.
        Some((note.program, Reason::from_number(note.reason)?))
    });
    let mut times: BTreeMap<(String, u32), usize> = BTreeMap::new();
    for (program, reason) in first.into_iter().chain(noted) {
        *times.entry((program, reason.number())).or_default() += 1;
    }
    let mut all: Vec<NotServed> = times
        .into_iter()
        .filter_map(|((program, reason), times)| {
            Some(NotServed { program, reason: Reason::from_number(reason)?.words(), times })
        })
        .collect();
    all.sort_by_key(|program| std::cmp::Reverse(program.times));
    all
}

/// Returns the number of all calls on a file.
fn calls(file: &FileUse) -> u64 {
    file.user_calls.saturating_add(file.kernel_calls)
}

/// Counts the recorded processes that live and map the session's memory. A process id alone could belong to
/// another process by now.
fn still_running(records: &[RecordView], session: &Session) -> usize {
    let path = session.path();
    let Ok(memory) = std::fs::metadata(std::ffi::OsStr::from_bytes(path.as_bytes())) else {
        return 0;
    };
    let pids: BTreeSet<u32> = records.iter().map(RecordView::pid).collect();
    pids.into_iter().filter(|pid| maps(*pid, memory.ino())).count()
}

/// Returns true if process `pid` maps the session's memory. Its inode is the fifth word of the mapping's line
/// (proc_pid_maps(5)).
fn maps(pid: u32, inode: u64) -> bool {
    let inode = inode.to_string();
    pid != std::process::id()
        && std::fs::read_to_string(format!("/proc/{pid}/maps")).is_ok_and(|maps| {
            maps.lines().any(|line| {
                line.contains("/memfd:bywash-session") && line.split_whitespace().nth(4) == Some(&*inode)
            })
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A report over a session in which two processes counted.
    pub fn example() -> Report {
        let session = Session::create().unwrap();
        for (pid, reads) in [(10, 1000), (11, 20)] {
            let record = session.claim().unwrap();
            record.describe(pid, 1, 5, format!("/usr/bin/p{pid}").as_bytes());
            let shard = record.shard(0);
            shard.add(Counter::UserReads, reads);
            shard.add(Counter::UserReadBytes, reads * 512);
            shard.add(Counter::KernelReads, 100);
            shard.add(Counter::FallbackFirstTouch, 99);
            shard.add(Counter::FallbackLarge, 1);
            record.add_file(b"/data/shared.db", [reads, reads * 512, 100, 0]);
            record.add_file(format!("/data/{pid}").as_bytes(), [1, 1, 0, 0]);
        }
        for pid in [12, 13] {
            let path = session.path();
            Session::note_unserved(&path, pid, 10, b"/bin/m", Reason::Static.number()).unwrap();
        }
        let program = ["p10".into(), "arg".into()];
        let wall = Duration::from_millis(1234);
        Report::new(
            &program,
            Ran { pid: 10, end: ProgramEnd::Exit(0), wall, off: false, unserved: None, log: None },
            &session,
        )
    }

    #[test]
    fn processes_and_files_are_added_up() {
        let report = example();
        assert_eq!(report.total(Counter::UserReads), 1020);
        assert_eq!(report.total(Counter::FallbackFirstTouch), 198);
        let files = report.files();
        assert_eq!((files[0].path.as_str(), files[0].user_calls), ("/data/shared.db", 1020));
        assert_eq!(files.len(), 3);
        assert_eq!(report.absent, None);
        assert_eq!(report.still_running, 0);
    }

    #[test]
    fn a_process_that_maps_the_session_is_seen() {
        let session = Session::create().unwrap();
        let inode = std::fs::metadata(std::ffi::OsStr::from_bytes(session.path().as_bytes())).unwrap().ino();
        // This process maps the session's header, but is bywash itself.
        assert!(!maps(std::process::id(), inode));
        let maps_of_self = std::fs::read_to_string("/proc/self/maps").unwrap();
        let line = maps_of_self.lines().find(|line| line.contains(&format!(" {inode} "))).unwrap();
        assert!(line.contains("/memfd:bywash-session"), "{line}");
    }
}
