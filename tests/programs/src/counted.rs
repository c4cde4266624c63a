//! Counters of the preloaded library, and checks of what they must be.
//!
//! The session lies in a file that every user may write, not in the anonymous memory that `bywash run` uses:
//! a server that runs as another user could not open that through `/proc/PID/fd`.

use crate::place::{FileSystemKind, Folder};
use bywash_session::layout::{HEADER_BYTES, SESSION_BYTES};
use bywash_session::{Counter, RecordView, Session};
use std::ffi::CString;
use std::fs::{self, File, Permissions};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A session in a file of its own.
pub struct CountedSession {
    session: Session,
    path: PathBuf,
    _folder: Folder,
}

impl CountedSession {
    /// Makes a new session.
    pub fn new() -> CountedSession {
        let folder = Folder::under(&FileSystemKind::Tmpfs.root());
        let path = folder.path().join("session");
        lay_out(&path).expect("a session's file in /dev/shm");
        let name = CString::new(path.as_os_str().as_bytes()).expect("a path without NUL");
        let session = Session::open(&name).expect("the session that was just laid out");
        CountedSession { session, path, _folder: folder }
    }

    /// Returns the session's path, which is the value of BYWASH_SESSION.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the record of every process that counted.
    pub fn records(&self) -> Vec<RecordView> {
        self.session.records()
    }

    /// Checks that the library was loaded into a process that ran `program`.
    ///
    /// # Panics
    /// If it was not.
    pub fn assert_loaded(&self, program: &Path) {
        let found = self.records().iter().any(|record| Path::new(record.program()) == program);
        assert!(
            found,
            "the library was not loaded into {}: only these counted:\n{}",
            program.display(),
            self.table()
        );
    }

    /// Checks that calls of processes that ran `program` were served at user level.
    ///
    /// # Panics
    /// If none was.
    pub fn assert_served(&self, program: &Path) {
        let served: u64 = self
            .records()
            .iter()
            .filter(|record| Path::new(record.program()) == program)
            .map(|record| record.counter(Counter::UserReads) + record.counter(Counter::UserWrites))
            .sum();
        assert!(
            served > 0,
            "no read or write of {} was served at user level:\n{}",
            program.display(),
            self.table()
        );
    }

    /// Returns one line per process: its number, its program, and every counter that is not zero.
    pub fn table(&self) -> String {
        let lines = self.records().iter().map(line).collect::<Vec<_>>();
        if lines.is_empty() { "  (nobody)".into() } else { lines.join("\n") }
    }
}

impl Default for CountedSession {
    fn default() -> Self {
        CountedSession::new()
    }
}

fn line(record: &RecordView) -> String {
    let counters = Counter::ALL.iter().filter(|counter| record.counter(**counter) > 0);
    let counters: Vec<String> =
        counters.map(|counter| format!("{}={}", counter.key(), record.counter(*counter))).collect();
    format!("  {} {} {}", record.pid(), record.program(), counters.join(" "))
}

/// Makes a session's file. Its header is copied from a session that the library itself has made.
fn lay_out(path: &Path) -> std::io::Result<()> {
    let made = Session::create().map_err(|error| std::io::Error::from_raw_os_error(error.0))?;
    let mut header = vec![0; HEADER_BYTES];
    File::open(Path::new(std::ffi::OsStr::from_bytes(made.path().as_bytes())))?.read_exact(&mut header)?;
    let mut file = File::create_new(path)?;
    file.write_all(&header)?;
    file.set_len(SESSION_BYTES as u64)?;
    fs::set_permissions(path, Permissions::from_mode(0o666))
}

#[cfg(test)]
mod tests {
    use super::CountedSession;
    use bywash_session::Counter;
    use std::path::Path;

    fn count(counter: Counter) -> CountedSession {
        let counted = CountedSession::new();
        let record = counted.session.claim().unwrap();
        record.describe(1, 0, 0, b"/usr/bin/true");
        record.shard(0).add(counter, 1);
        counted
    }

    #[test]
    fn a_process_that_counted_was_loaded_and_served() {
        let counted = count(Counter::UserReads);
        counted.assert_loaded(Path::new("/usr/bin/true"));
        counted.assert_served(Path::new("/usr/bin/true"));
    }

    #[test]
    #[should_panic(expected = "kernel_reads=1")]
    fn the_kernel_serving_is_not_enough() {
        count(Counter::KernelReads).assert_served(Path::new("/usr/bin/true"));
    }

    #[test]
    #[should_panic(expected = "was not loaded into /usr/bin/false")]
    fn nobody_counted() {
        CountedSession::new().assert_loaded(Path::new("/usr/bin/false"));
    }
}
