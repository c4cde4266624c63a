//! Processes of the bench: clients, servers, exports. Each gets a job on its command line, and its standard input is a
//! socket on which it reports in lines of JSON.
//!
//! ```text
//!   bench                      process
//!   starts it with a job  ───► prepares
//!                         ◄─── "Ready"
//!   a byte                ───► does its job (a client)
//!                         ◄─── {"Done": what it did}
//! ```
//!
//! The end of the socket lets a process end. It ends with the thread that has started it, however that ends
//! (PR_SET_PDEATHSIG).

use super::client::{Client, Report};
use super::server;
use crate::child;
use crate::error::{Attempt, Error};
use crate::interrupt;
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Greatest time that a process may take for what should take none.
pub const TIMEOUT: Duration = Duration::from_secs(30);
/// Interval between two looks whether the user wants an end.
const LOOK: Duration = Duration::from_millis(100);

/// Job of a process.
#[derive(Serialize, Deserialize)]
pub enum Job {
    Client(Client),
    /// A server of ours with `devices`, each a specification as `bywash serve --device` has it.
    Server {
        socket: PathBuf,
        devices: Vec<String>,
        /// True for a core that polls for requests as long as there are clients.
        is_spinning: bool,
        core: Option<usize>,
    },
    /// An export at `socket` of a volume of the server at `server`.
    Export {
        server: PathBuf,
        volume: String,
        socket: PathBuf,
        cores: Vec<usize>,
    },
    /// Clients that do nothing.
    Idle {
        socket: PathBuf,
        clients: usize,
    },
}

/// Message of a process.
#[derive(Serialize, Deserialize)]
enum Message {
    /// It is prepared, and waits.
    Ready,
    Done(Report),
    Failed {
        why: String,
        /// As [`Error::is_absence`].
        is_absence: bool,
    },
}

/// Process as the bench sees it; ended when dropped.
pub struct Process {
    /// Name in errors.
    name: &'static str,
    process: child::Process,
    line: BufReader<UnixStream>,
}

impl Process {
    pub fn start(name: &'static str, job: &Job) -> Result<Process, Error> {
        let job = serde_json::to_string(job).map_err(|error| Error::failed("a job", error.to_string()))?;
        let make = || {
            let (ours, theirs) = UnixStream::pair()?;
            ours.set_read_timeout(Some(LOOK))?;
            Ok::<_, io::Error>((BufReader::new(ours), OwnedFd::from(theirs)))
        };
        let (line, theirs) = make().doing("make a socket for", Path::new(name))?;
        let mut command = child::peer("serve", [job])?;
        let process = child::Process::start(command.stdin(theirs).stdout(Stdio::null()))?;
        Ok(Process { name, process, line })
    }

    /// Number of the process.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Waits until the process is prepared.
    pub fn ready(&mut self) -> Result<(), Error> {
        match self.hear(TIMEOUT)? {
            Message::Ready => Ok(()),
            _ => Err(self.failed("was done before it had begun".into())),
        }
    }

    /// Lets a client begin.
    pub fn go(&mut self) -> Result<(), Error> {
        let sent = self.line.get_mut().write_all(b"g");
        sent.map_err(|error| self.failed(format!("has ended: {error}")))
    }

    /// Waits until a client has done its job.
    pub fn report(&mut self, limit: Duration) -> Result<Report, Error> {
        match self.hear(limit)? {
            Message::Done(report) => Ok(report),
            _ => Err(self.failed("has no report".into())),
        }
    }

    /// Lets the process end, and waits for that.
    pub fn finish(self) -> Result<(), Error> {
        drop(self.line);
        self.process.finish().map(drop)
    }

    fn hear(&mut self, limit: Duration) -> Result<Message, Error> {
        let (deadline, mut text) = (Instant::now() + limit, Vec::new());
        while !text.ends_with(b"\n") {
            interrupt::check()?;
            match self.line.read_until(b'\n', &mut text) {
                Ok(0) => return Err(self.failed("ended without a report".into())),
                Err(error) if error.kind() != ErrorKind::WouldBlock => {
                    return Err(self.failed(format!("cannot be heard: {error}")));
                }
                Err(_) if Instant::now() > deadline => {
                    return Err(self.failed(format!("reports nothing for {} s", limit.as_secs())));
                }
                _ => {}
            }
        }
        match serde_json::from_slice(&text) {
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

/// The bench, as its processes see it.
pub struct Bench(UnixStream);

impl Bench {
    /// Reports that this process is prepared, and waits; returns false when it is to end.
    pub fn ready(&self) -> Result<bool, Error> {
        self.tell(&Message::Ready)?;
        io::copy(&mut (&self.0).take(1), &mut io::sink()).map(|bytes| bytes > 0).map_err(gone)
    }

    fn tell(&self, message: &Message) -> Result<(), Error> {
        let text =
            serde_json::to_string(message).map_err(|error| Error::failed("a message", error.to_string()))?;
        writeln!(&self.0, "{text}").map_err(gone)
    }
}

fn gone(error: io::Error) -> Error {
    Error::failed("the bench", format!("has ended: {error}"))
}

/// Does a job in this process. A failure of the job is reported to the bench.
///
/// # Errors
/// [`Error::Usage`] if it is no job, [`Error::Failed`] if the bench has ended.
pub fn peer(job: &str) -> Result<(), Error> {
    let job: Job =
        serde_json::from_str(job).map_err(|error| Error::Usage(format!("{job} is no job: {error}")))?;
    // If the bench has ended before this, the byte that lets this process go on does not come.
    set_parent_process_death_signal(Some(Signal::KILL)).doing("watch", Path::new("the bench"))?;
    let bench = Bench(UnixStream::from(io::stdin().as_fd().try_clone_to_owned().map_err(gone)?));
    let outcome = match job {
        Job::Client(client) => client.work(&bench).map(Some),
        Job::Server { socket, devices, is_spinning, core } => {
            server::serve(&bench, &socket, &devices, is_spinning, core).map(|()| None)
        }
        Job::Export { server, volume, socket, cores } => {
            server::export(&bench, &server, &volume, &socket, &cores).map(|()| None)
        }
        Job::Idle { socket, clients } => server::be_idle(&bench, &socket, clients).map(|()| None),
    };
    match outcome {
        Ok(None) => Ok(()),
        Ok(Some(report)) => bench.tell(&Message::Done(report)),
        Err(error) => bench.tell(&Message::Failed { why: error.to_string(), is_absence: error.is_absence() }),
    }
}
