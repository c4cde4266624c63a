//! Processes of the bench: clients, servers, exports. Each gets a job on its command line and reports in lines of JSON.
//!
//! ```text
//!   bench                      process
//!   starts it with a job  ───► prepares
//!                         ◄─── "Ready"
//!   a line                ───► does its job (a client), or is asked whether to end (all others)
//!                         ◄─── {"Done": what it did}
//! ```
//!
//! The end of its standard input lets a process end. It ends with the thread that has started it, however that ends
//! (PR_SET_PDEATHSIG).

use super::client::{self, Report};
use super::server;
use crate::child;
use crate::child::Process;
use crate::error::Error;
use crate::interrupt;
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, BufReader, Write};
use std::process::{ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Greatest time that a process may take for what should take none.
pub const TIMEOUT: Duration = Duration::from_secs(30);
/// Interval between two looks whether the user wants an end.
const LOOK: Duration = Duration::from_millis(100);

/// Job of a process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Job {
    Client(client::Job),
    Server(server::Job),
    Export(server::ExportJob),
    Idle(server::IdleJob),
}

/// Message of a process.
#[derive(Serialize, Deserialize)]
enum Message {
    /// It is prepared, and waits for a line.
    Ready,
    /// It has done its job; a client has a report.
    Done(Option<Report>),
    Failed {
        why: String,
        /// As [`Error::is_absence`].
        is_absence: bool,
    },
}

/// Process as the bench sees it; ended when dropped.
pub struct Talk {
    /// Name in errors.
    name: &'static str,
    process: Process,
    to: ChildStdin,
    lines: Receiver<String>,
}

impl Talk {
    /// Starts a process with its job.
    ///
    /// # Errors
    /// [`Error::Io`] if there is no process or no pipe.
    pub fn start(name: &'static str, job: &Job) -> Result<Talk, Error> {
        let job = serde_json::to_string(job).map_err(|error| Error::failed("a job", error.to_string()))?;
        let mut command = child::peer("serve", [job])?;
        let mut process = Process::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()))?;
        let Some((to, from)) = process.take_pipes() else {
            return Err(Error::failed(name, "has no pipes".into()));
        };
        let (sender, lines) = channel();
        // Ends with the process, or with the receiver.
        thread::spawn(move || {
            BufReader::new(from).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Ok(Talk { name, process, to, lines })
    }

    /// Number of the process.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Lets the process go on.
    ///
    /// # Errors
    /// [`Error::Failed`] if it has ended.
    pub fn go(&mut self) -> Result<(), Error> {
        self.to.write_all(b"go\n").map_err(|error| self.failed(format!("has ended: {error}")))
    }

    /// Lets the process end, and waits for that.
    ///
    /// # Errors
    /// [`Error::Failed`] if it does not end, or with another status than 0.
    pub fn finish(self) -> Result<(), Error> {
        drop(self.to);
        self.process.finish().map(drop)
    }

    /// Waits until the process is prepared.
    ///
    /// # Errors
    /// Its error, or [`Error::Failed`] after [`TIMEOUT`].
    pub fn ready(&mut self) -> Result<(), Error> {
        match self.hear(TIMEOUT)? {
            Message::Ready => Ok(()),
            _ => Err(self.failed("was done before it had begun".into())),
        }
    }

    /// Waits until a client has done its job.
    ///
    /// # Errors
    /// Its error, or [`Error::Failed`] after `limit`.
    pub fn report(&mut self, limit: Duration) -> Result<Report, Error> {
        match self.hear(limit)? {
            Message::Done(Some(report)) => Ok(report),
            _ => Err(self.failed("has no report".into())),
        }
    }

    fn hear(&mut self, limit: Duration) -> Result<Message, Error> {
        let deadline = Instant::now() + limit;
        let line = loop {
            interrupt::check()?;
            match self.lines.recv_timeout(LOOK) {
                Ok(line) => break line,
                Err(RecvTimeoutError::Timeout) if Instant::now() < deadline => {}
                Err(RecvTimeoutError::Timeout) => {
                    return Err(self.failed(format!("reports nothing for {} s", limit.as_secs())));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(self.failed("ended without a report".into()));
                }
            }
        };
        match serde_json::from_str(&line) {
            Ok(Message::Failed { why, is_absence: true }) => Err(Error::Unavailable(why)),
            Ok(Message::Failed { why, .. }) => Err(self.failed(why)),
            Ok(message) => Ok(message),
            Err(error) => Err(self.failed(format!("reports what is no message: {error}"))),
        }
    }

    fn failed(&self, how: String) -> Error {
        Error::failed(self.name, how)
    }
}

/// Does a job in this process. A failure of the job is reported to the bench.
///
/// # Errors
/// [`Error::Usage`] if it is no job, [`Error::Failed`] if the bench has ended.
pub fn peer(job: &str) -> Result<(), Error> {
    let job: Job =
        serde_json::from_str(job).map_err(|error| Error::Usage(format!("{job} is no job: {error}")))?;
    // If the bench has ended before this, the line that lets this process go on does not come.
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|errno| Error::failed("prctl", io::Error::from(errno).to_string()))?;
    let outcome = match &job {
        Job::Client(job) => client::work(job).map(Some),
        Job::Server(job) => server::serve(job).map(|()| None),
        Job::Export(job) => server::export(job).map(|()| None),
        Job::Idle(job) => server::be_idle(job).map(|()| None),
    };
    tell(&match outcome {
        Ok(report) => Message::Done(report),
        Err(error) => Message::Failed { why: error.to_string(), is_absence: error.is_absence() },
    })
}

/// Reports that this process is prepared, and waits for a line of the bench; returns whether to go on.
///
/// # Errors
/// [`Error::Failed`] if the bench has ended.
pub fn ready() -> Result<bool, Error> {
    tell(&Message::Ready)?;
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line).map(|read| read > 0).map_err(|error| gone(&error))
}

fn tell(message: &Message) -> Result<(), Error> {
    let text =
        serde_json::to_string(message).map_err(|error| Error::failed("a message", error.to_string()))?;
    let mut out = io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).map_err(|error| gone(&error))
}

fn gone(error: &io::Error) -> Error {
    Error::failed("the bench", format!("has ended: {error}"))
}
