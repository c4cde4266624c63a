//! `exec:`: what passes goes through a program.
//!
//! It cuts a flow in two: what comes before goes into the program's standard input, what the program prints goes on.
//! Each half has a plan and a thread of its own.

use crate::control::Control;
use crate::error::Error;
use crate::sys;
use rustix::pipe::PipeFlags;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A program that data goes through.
pub(crate) struct Program {
    command: String,
    child: Child,
    /// Set when it has been waited for: the processor time that it took.
    time: Option<Duration>,
}

/// So often it is looked at whether it has ended.
const LOOK: Duration = Duration::from_millis(5);
/// A program that is told to end has so long before it is made to.
const GRACE: Duration = Duration::from_secs(2);

impl Program {
    /// Starts it; answers also where its input goes, and where its output comes from.
    pub(crate) fn start(command: &str) -> Result<(Program, OwnedFd, OwnedFd), Error> {
        let failed = |error: std::io::Error| Error::io(format!("start '{command}'"), error);
        let pipe = || rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(|error| failed(error.into()));
        let (stdin, feed) = pipe()?;
        let (result, stdout) = pipe()?;
        for ours in [&feed, &result] {
            // The program's ends wait as usual: these flags are of ours alone.
            rustix::io::ioctl_fionbio(ours, true).map_err(|error| failed(error.into()))?;
        }
        let child = sys::with_broken_pipes(&mut Command::new("/bin/sh"))
            .args(["-c", command])
            .stdin(Stdio::from(stdin))
            .stdout(Stdio::from(stdout))
            // In a group of its own: Ctrl-C ends the flow, which ends the program, in that order.
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        Ok((Program { command: command.into(), child, time: None }, feed, result))
    }

    /// Waits until it has ended. Where it was cut short, since no more was wanted, how it ended is its own affair.
    ///
    /// # Errors
    /// That it has failed.
    pub(crate) fn finish(&mut self, is_cut: bool, control: &Control) -> Result<(), Error> {
        let status = loop {
            match sys::reap(self.child.id()) {
                Ok(Some((status, time))) => {
                    self.time = Some(time);
                    break status;
                }
                Ok(None) => control.sleep_until(Instant::now() + LOOK)?,
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
    /// The processor time that it took, once it has ended.
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
        // It and what it has started, unless that has gone to a group of its own.
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::TERM);
        let end = Instant::now() + GRACE;
        while Instant::now() < end {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(LOOK);
        }
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        let _ = self.child.wait();
    }
}
