//! One program run to its end, with or without the library, and what was counted meanwhile.
//!
//! Invariant: a run ends. What takes longer than its limit is killed with all that it started in its
//! process group, and counts as failed. Called by the tests' `main`.

use bywash_session::{Counter, Session};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A run of a program.
pub struct Run<'a> {
    /// The program.
    pub program: &'a Path,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// The library to preload, if any.
    pub library: Option<&'a Path>,
    /// Variables beside those that preload it.
    pub environment: Vec<(&'a str, String)>,
    /// When it is killed.
    pub limit: Duration,
}

/// Result of a run.
#[derive(Debug, PartialEq, Eq)]
pub enum ProgramResult {
    /// Exit status 0.
    Passed,
    /// Exit status 77: this machine cannot show it, and why.
    Skipped(String),
    /// Anything else, and what the program said.
    Failed(String),
}

/// Calls, added up over the processes of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Processes that the library counted in.
    pub processes: usize,
    /// Reads served at user level.
    pub user_reads: u64,
    /// Writes served at user level.
    pub user_writes: u64,
    /// Reads served by the kernel.
    pub kernel_reads: u64,
    /// Writes served by the kernel.
    pub kernel_writes: u64,
    /// Windows given up to make room for others.
    pub windows_evicted: u64,
}

impl Counts {
    /// Adds what another run counted.
    pub fn add(&mut self, other: Counts) {
        self.processes += other.processes;
        self.user_reads += other.user_reads;
        self.user_writes += other.user_writes;
        self.kernel_reads += other.kernel_reads;
        self.kernel_writes += other.kernel_writes;
        self.windows_evicted += other.windows_evicted;
    }

    /// Reads served at user level, of all reads.
    pub fn share_of_reads(&self) -> f64 {
        self.user_reads as f64 / (self.user_reads + self.kernel_reads).max(1) as f64
    }

    /// Writes served at user level, of all writes.
    pub fn share_of_writes(&self) -> f64 {
        self.user_writes as f64 / (self.user_writes + self.kernel_writes).max(1) as f64
    }

    fn read(session: &Session) -> Counts {
        let records = session.records();
        let sum = |counter| records.iter().map(|record| record.counter(counter)).sum();
        Counts {
            processes: records.len(),
            user_reads: sum(Counter::UserReads),
            user_writes: sum(Counter::UserWrites),
            kernel_reads: sum(Counter::KernelReads),
            kernel_writes: sum(Counter::KernelWrites),
            windows_evicted: sum(Counter::WindowsEvicted),
        }
    }
}

impl Run<'_> {
    /// Runs it.
    ///
    /// # Errors
    /// When the program cannot be started or a session cannot be made.
    pub fn finish(&self) -> io::Result<(ProgramResult, Counts)> {
        let session = Session::create().map_err(|error| io::Error::from_raw_os_error(error.0))?;
        let mut said = tempfile::tempfile()?;
        let mut command = Command::new(self.program);
        command
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(said.try_clone()?)
            .stderr(said.try_clone()?)
            .process_group(0);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("BYWASH_") {
                command.env_remove(name);
            }
        }
        if let Some(library) = self.library {
            command.env("LD_PRELOAD", library);
            command.env("BYWASH_SESSION", session.path().to_string_lossy().as_ref());
            // So that files are served after few reads, whatever that gains.
            command.env("BYWASH_ADVANCE", "1000000");
        }
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        let status = wait(command.spawn()?, self.limit)?;
        Ok((outcome(status, &text(&mut said)?, self.limit), Counts::read(&session)))
    }

    /// The command line that does the same by hand.
    pub fn by_hand(&self) -> String {
        let preload = self.library.map(|library| format!("LD_PRELOAD={} ", library.display()));
        format!("{}{} {}", preload.unwrap_or_default(), self.program.display(), self.arguments.join(" "))
    }
}

/// Waits until the limit, then kills the group; `None` says that it was killed.
fn wait(mut child: Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let end = Instant::now() + limit;
    let mut pause = Duration::from_millis(1);
    while Instant::now() < end {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
    // SAFETY: signals the process group that `spawn` made for this child, which has not been waited for.
    unsafe {
        libc::kill(-(child.id() as libc::pid_t), libc::SIGKILL);
    }
    child.wait()?;
    Ok(None)
}

fn text(said: &mut File) -> io::Result<String> {
    let mut bytes = Vec::new();
    said.rewind()?;
    said.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).trim().to_string())
}

fn outcome(status: Option<ExitStatus>, said: &str, limit: Duration) -> ProgramResult {
    let Some(status) = status else {
        return ProgramResult::Failed(format!("still running after {} s; {said}", limit.as_secs()));
    };
    match (status.code(), status.signal()) {
        (Some(0), _) => ProgramResult::Passed,
        (Some(77), _) => ProgramResult::Skipped(said.to_string()),
        (Some(code), _) => ProgramResult::Failed(format!("exit status {code}: {said}")),
        (None, signal) => {
            ProgramResult::Failed(format!("killed by signal {}: {said}", signal.unwrap_or_default()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, seconds: u64) -> ProgramResult {
        let run = Run {
            program: Path::new("/bin/sh"),
            arguments: vec!["-c".into(), script.into()],
            library: None,
            environment: Vec::new(),
            limit: Duration::from_secs(seconds),
        };
        run.finish().unwrap().0
    }

    #[test]
    fn ends_are_told_apart() {
        assert_eq!(shell("exit 0", 5), ProgramResult::Passed);
        assert_eq!(shell("echo why; exit 77", 5), ProgramResult::Skipped("why".into()));
        assert_eq!(shell("echo a >&2; exit 3", 5), ProgramResult::Failed("exit status 3: a".into()));
        assert_eq!(shell("kill -9 $$", 5), ProgramResult::Failed("killed by signal 9: ".into()));
    }

    #[test]
    fn what_does_not_end_is_killed() {
        let start = Instant::now();
        assert!(matches!(shell("sleep 60 & sleep 60", 1), ProgramResult::Failed(_)));
        assert!(start.elapsed() < Duration::from_secs(10));
    }
}
