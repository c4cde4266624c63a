//! `exec:COMMAND`: pipes the data through a program.
//!
//! An `exec:` stage splits a flow into two parts. The first part writes to the program's standard input, the
//! second part reads its standard output. Each part has a plan and a thread of its own. Called by
//! [`crate::assembly`] and [`crate::run`].

use super::{Stage, StageKind, StageRole, StageType};
use crate::control::Control;
use crate::error::Error;
use crate::sys;
use bywash_options::{Row, Words};
use rustix::pipe::PipeFlags;
use std::fmt;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The stage, with the command that the shell runs.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Exec(String);

pub(super) static KIND: StageKind = StageKind {
    row: Row {
        name: "exec",
        address: "COMMAND",
        sentence: "pipes the data through a program, which the shell runs; commas belong to the command",
        options: &[],
    },
    parse,
};

fn parse(words: &mut Words<'_>) -> Result<Stage, Error> {
    match words.rest().to_str() {
        None => Err(words.error("only paths may be other than UTF-8").into()),
        Some(command) if command.trim().is_empty() => {
            Err(words.error("a command is missing behind the colon").into())
        }
        Some(command) => Ok(Stage::new(Exec(command.to_owned()))),
    }
}

impl StageType for Exec {
    fn role(&self) -> StageRole<'_> {
        StageRole::Program(&self.0)
    }
}

impl fmt::Display for Exec {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "exec:{}", self.0)
    }
}

/// A running program that data is piped through.
pub(crate) struct Program {
    command: String,
    child: Child,
    /// Processor time of the program; `None` until it has been reaped.
    time: Option<Duration>,
}

/// Interval between checks whether the program has ended.
const EXIT_CHECK_INTERVAL: Duration = Duration::from_millis(5);
/// Time between SIGTERM and SIGKILL for a program that has to end.
const GRACE: Duration = Duration::from_secs(2);

impl Program {
    /// Starts `command` in a shell. Returns the program, the pipe to its standard input and the pipe from its
    /// standard output.
    ///
    /// # Errors
    /// [`Error::Io`] if a pipe cannot be created or the shell cannot be started.
    pub(crate) fn start(command: &str) -> Result<(Program, OwnedFd, OwnedFd), Error> {
        let failed = |error: std::io::Error| Error::io(format!("start '{command}'"), error);
        let pipe = || rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(|error| failed(error.into()));
        let (stdin, feed) = pipe()?;
        let (result, stdout) = pipe()?;
        for ours in [&feed, &result] {
            // Only this process's ends become non-blocking; the program's ends have flags of their own.
            rustix::io::ioctl_fionbio(ours, true).map_err(|error| failed(error.into()))?;
        }
        let child = sys::unblock_sigpipe(&mut Command::new("/bin/sh"))
            .args(["-c", command])
            .stdin(Stdio::from(stdin))
            .stdout(Stdio::from(stdout))
            // The program gets a process group of its own, so that Ctrl-C ends the flow, which then ends the
            // program.
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        Ok((Program { command: command.into(), child, time: None }, feed, result))
    }

    /// Waits until the program has ended. If `is_cut`, its output was not read to the end, and its exit
    /// status is ignored.
    ///
    /// # Errors
    /// [`Error::Program`] if the program failed and not `is_cut`; [`Error::Cancelled`] if the flow is
    /// cancelled; [`Error::Io`] if wait4(2) or poll(2) fails.
    pub(crate) fn finish(&mut self, is_cut: bool, control: &Control) -> Result<(), Error> {
        let status = loop {
            match sys::reap(self.child.id()) {
                Ok(Some((status, time))) => {
                    self.time = Some(time);
                    break status;
                }
                Ok(None) => control.sleep_until(Instant::now() + EXIT_CHECK_INTERVAL)?,
                Err(error) => return Err(Error::io(format!("wait for '{}'", self.command), error)),
            }
        };
        match (status.code(), status.signal()) {
            (Some(0), _) => Ok(()),
            _ if is_cut => Ok(()),
            (Some(code), _) => {
                Err(Error::Program(format!("'{}' ended with the status {code}", self.command)))
            }
            (None, signal) => Err(Error::Program(format!(
                "'{}' was ended by the signal {}",
                self.command,
                signal.unwrap_or(0)
            ))),
        }
    }
}

impl Program {
    /// Returns the program's processor time; zero until it has been reaped.
    pub(crate) fn time(&self) -> Duration {
        self.time.unwrap_or_default()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let group = rustix::process::Pid::from_child(&self.child);
        if self.time.is_some() || matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        // The signal reaches the program and its descendants, except those that moved to another process
        // group.
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::TERM);
        let end = Instant::now() + GRACE;
        while Instant::now() < end {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(EXIT_CHECK_INTERVAL);
        }
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        let _ = self.child.wait();
    }
}
