//! Processes of the bench's own: each is told its job on its command line, and says in lines of JSON how it goes.
//!
//! A line in its standard input lets it go on, the end of that input lets it end. It ends with the thread that has started
//! it, however that ends (PR_SET_PDEATHSIG).

use crate::error::Error;
use crate::flow::process::Process;
use crate::interrupt;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::thread::{CpuSet, sched_setaffinity};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, BufRead, Read, Write};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// How long a process may take for what should take no time.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// The longest line: a histogram with every bucket in it is shorter.
const LINE_BYTES_MAX: usize = 1 << 20;
/// How often it is looked whether the user wants an end.
const LOOK: Duration = Duration::from_millis(100);

/// How the bench's own processes are started: a program and the words before what they are and their job.
#[derive(Clone, Debug)]
pub struct Program {
    /// The program.
    pub path: PathBuf,
    /// What makes it one of them.
    pub words: Vec<String>,
}

impl Program {
    /// The program that is running.
    ///
    /// # Errors
    /// When it cannot be found.
    pub fn this() -> Result<Program, Error> {
        let path =
            std::env::current_exe().map_err(|error| Error::failed("this program", error.to_string()))?;
        Ok(Program { path, words: ["bench", "peer", "serve"].map(String::from).into() })
    }
}

/// What a process says.
#[derive(Serialize, Deserialize)]
pub enum Said<T> {
    /// It waits to be let go on.
    Ready,
    /// It has done its job.
    Done(T),
    /// It has not.
    Failed {
        /// What is told of it.
        why: String,
        /// As [`Error::is_absence`].
        is_absence: bool,
    },
}

/// A process, as the bench knows it; ended when dropped.
pub struct Talk {
    /// What it is called in errors.
    name: &'static str,
    process: Process,
    id: u32,
    to: File,
    from: File,
    heard: Vec<u8>,
}

impl Talk {
    /// Starts one that is `what`, with its job.
    ///
    /// # Errors
    /// The kernel's.
    pub fn start(
        name: &'static str,
        program: &Program,
        what: &str,
        job: &impl Serialize,
    ) -> Result<Talk, Error> {
        let kernel = |error: rustix::io::Errno| Error::failed("a pipe", io::Error::from(error).to_string());
        let there = pipe_with(PipeFlags::CLOEXEC).map_err(kernel)?;
        let back = pipe_with(PipeFlags::CLOEXEC).map_err(kernel)?;
        let job = serde_json::to_string(job).map_err(|error| Error::failed("a job", error.to_string()))?;
        let mut command = Command::new(&program.path);
        command.args(&program.words).arg(what).arg(job).stdin(there.0).stdout(back.1);
        let process = Process::start(&mut command)?;
        let id = process.id();
        Ok(Talk { name, process, id, to: there.1.into(), from: back.0.into(), heard: Vec::new() })
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// That it has gone.
    pub fn go(&mut self) -> Result<(), Error> {
        self.to.write_all(b"go\n").map_err(|error| Error::failed(self.name, format!("has gone: {error}")))
    }

    /// Lets it end, and waits for that.
    ///
    /// # Errors
    /// That it does not, or has failed.
    pub fn finish(self) -> Result<(), Error> {
        drop(self.to);
        self.process.finish().map(drop)
    }

    /// Waits until it is ready.
    ///
    /// # Errors
    /// Why it is not.
    pub fn ready(&mut self) -> Result<(), Error> {
        match self.hear::<()>(PATIENCE)? {
            Said::Ready => Ok(()),
            Said::Done(()) => Err(self.failed("was done before it had begun".into())),
            Said::Failed { why, is_absence } => Err(self.told(why, is_absence)),
        }
    }

    /// Waits so long until it has done its job.
    ///
    /// # Errors
    /// Why it has not.
    pub fn done<T: DeserializeOwned>(&mut self, limit: Duration) -> Result<T, Error> {
        match self.hear(limit)? {
            Said::Done(done) => Ok(done),
            Said::Ready => Err(self.failed("is ready twice".into())),
            Said::Failed { why, is_absence } => Err(self.told(why, is_absence)),
        }
    }

    fn hear<T: DeserializeOwned>(&mut self, limit: Duration) -> Result<Said<T>, Error> {
        let deadline = Instant::now() + limit;
        let line = loop {
            if let Some(end) = self.heard.iter().position(|byte| *byte == b'\n') {
                break self.heard.drain(..=end).collect::<Vec<u8>>();
            }
            interrupt::check()?;
            let left = deadline.saturating_duration_since(Instant::now()).min(LOOK);
            let timeout = Timespec { tv_sec: 0, tv_nsec: left.as_nanos() as i64 };
            let count = match poll(&mut [PollFd::new(&self.from, PollFlags::IN)], Some(&timeout)) {
                Ok(0) if Instant::now() > deadline => {
                    return Err(self.failed(format!("says nothing for {} s", limit.as_secs())));
                }
                Ok(0) | Err(rustix::io::Errno::INTR) => continue,
                Ok(_) => {
                    let mut some = [0; 1 << 16];
                    let count = self.from.read(&mut some).map_err(|error| self.failed(error.to_string()))?;
                    self.heard.extend_from_slice(&some[..count]);
                    count
                }
                Err(errno) => return Err(self.failed(io::Error::from(errno).to_string())),
            };
            if count == 0 || self.heard.len() > LINE_BYTES_MAX {
                return Err(self.failed("ended without a word, or does not stop talking".into()));
            }
        };
        serde_json::from_slice(&line)
            .map_err(|error| self.failed(format!("says what nobody understands: {error}")))
    }

    fn told(&self, why: String, is_absence: bool) -> Error {
        if is_absence { Error::Unavailable(why) } else { self.failed(why) }
    }

    fn failed(&self, how: String) -> Error {
        Error::failed(self.name, how)
    }
}

/// What such a process is: `job` is what the bench has put on its command line, and `work` does it on `cores`, or anywhere if there
/// are none.
///
/// # Errors
/// That it is no job, or that the bench has gone. What fails otherwise is told to the bench.
pub fn be<J: DeserializeOwned, T: Serialize>(
    job: &str,
    cores: impl FnOnce(&J) -> &[usize],
    work: impl FnOnce(&J) -> Result<T, Error>,
) -> Result<(), Error> {
    let job: J =
        serde_json::from_str(job).map_err(|error| Error::Usage(format!("{job} is no job: {error}")))?;
    // If the bench has gone before this, the line that lets it go on does not come.
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|errno| Error::failed("prctl", io::Error::from(errno).to_string()))?;
    let outcome = stay_on(cores(&job)).and_then(|()| work(&job));
    tell(&match outcome {
        Ok(done) => Said::Done(done),
        Err(error) => Said::Failed { why: error.to_string(), is_absence: error.is_absence() },
    })
}

fn stay_on(cores: &[usize]) -> Result<(), Error> {
    if cores.is_empty() {
        return Ok(());
    }
    let mut set = CpuSet::new();
    cores.iter().for_each(|core| set.set(*core));
    sched_setaffinity(None, &set)
        .map_err(|errno| Error::Unavailable(format!("nothing runs on the cores {cores:?}: {errno}")))
}

/// Says that this process is ready, and waits until the bench lets it go on; false: it is to end.
///
/// # Errors
/// That the bench has gone.
pub fn ready() -> Result<bool, Error> {
    tell(&Said::<()>::Ready)?;
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line).map(|read| read > 0).map_err(|error| gone(&error))
}

fn tell<T: Serialize>(said: &Said<T>) -> Result<(), Error> {
    let mut text =
        serde_json::to_string(said).map_err(|error| Error::failed("a message", error.to_string()))?;
    text.push('\n');
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|error| gone(&error))
}

fn gone(error: &io::Error) -> Error {
    Error::failed("the bench", format!("has gone: {error}"))
}
