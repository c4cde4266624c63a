//! Two processes, each on a core of its own, and the messages between them.

use super::exchange::{Exchange, Failure, Spent, pin};
use super::transport::{Ends, Transport};
use super::{Job, broken};
use crate::child::{self, Process};
use crate::error::{Attempt, Error};
use crate::interrupt;
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Stdio};

/// Name of the program for iceoryx2, which lies beside the command where it could be built: so the command needs nothing of
/// what iceoryx2 needs to be built.
const ICEORYX2: &str = "bywash-bench-iceoryx2";

/// The work of a run: the messages, and their transport.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// Connection of the two processes.
    pub transport: Transport,
    /// The messages.
    pub exchange: Exchange,
}

impl Work {
    /// Does the work.
    ///
    /// # Errors
    /// [`Error::Failed`] if either process fails or they have not seen the same words, [`Error::Unavailable`] if the program
    /// for iceoryx2 is not there, and [`Error::Interrupted`].
    pub fn run(&self) -> Result<Spent, Error> {
        interrupt::check()?;
        if self.transport == Transport::Iceoryx2 { self.run_iceoryx2() } else { self.first().map_err(broken) }
    }

    fn first(&self) -> Result<Spent, Failure> {
        let [ours, theirs] = self.transport.ends(self.exchange.largest())?;
        let second = start(&Job::Second(*self), theirs.0.into(), theirs.1.into())?;
        pin(self.exchange.cores[0]);
        let mut wire = self.transport.open(ours, self.exchange.largest(), false)?;
        let spent = self.exchange.first(wire.as_mut(), second.id())?;
        drop(wire);
        second.finish()?;
        Ok(spent)
    }

    /// Does the part of the second process, with its standard input and output as the ends.
    pub fn second(&self) -> Result<(), Failure> {
        pin(self.exchange.cores[1]);
        let mut wire = self.transport.open(standard_ends()?, self.exchange.largest(), true)?;
        self.exchange.second(wire.as_mut())
    }

    fn run_iceoryx2(&self) -> Result<Spent, Error> {
        let own = child::this_program()?;
        let program = own.with_file_name(ICEORYX2);
        if !program.is_file() {
            let reason = own.with_file_name(format!("{ICEORYX2}.reason"));
            let reason = std::fs::read_to_string(reason).unwrap_or_default();
            return Err(Error::Unavailable(match reason.trim() {
                "" => format!("{} is not there: make bench-peers builds it", program.display()),
                reason => format!("{ICEORYX2} could not be built: {reason}"),
            }));
        }
        let buffers = super::transport::buffers(self.exchange.bytes).to_string();
        let exchange = serde_json::to_string(&self.exchange).map_err(broken)?;
        let output = child::run(Command::new(program).args([exchange, buffers]))?.stdout;
        serde_json::from_str(&output)
            .map_err(|_| broken(format!("{ICEORYX2} gave '{}' instead of two times", output.trim())))
    }
}

/// Starts the process that does `job`.
///
/// # Errors
/// [`Error::Io`] if the program cannot be started.
pub fn start(job: &Job, stdin: Stdio, stdout: Stdio) -> Result<Process, Error> {
    let job = serde_json::to_string(job).map_err(broken)?;
    Process::start(child::peer("ipc", [job])?.stdin(stdin).stdout(stdout))
}

/// The standard input and output of a process that [`start`] has started. Such a process ends with its parent, whatever it
/// waits for.
pub fn standard_ends() -> Result<Ends, Failure> {
    let parent = set_parent_process_death_signal(Some(Signal::KILL));
    parent.doing("watch", Path::new("the parent process"))?;
    Ok((std::io::stdin().as_fd().try_clone_to_owned()?, std::io::stdout().as_fd().try_clone_to_owned()?))
}
