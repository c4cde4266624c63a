//! Processes of the bench: clients, servers, exports. Each gets a job on its command line, and reports in lines of JSON on a
//! socket, which is its standard input and output, and which all processes of a crew share.
//!
//! ```text
//!   bench                      processes
//!   starts them with jobs ───► prepare
//!                         ◄─── "Ready", each
//!   the end of its side   ───► do their jobs (clients), or end (all others)
//!                         ◄─── {"Done": what it did}, each client
//! ```
//!
//! A process ends with the thread that has started it, however that ends (PR_SET_PDEATHSIG).

use super::client::{Client, Report};
use super::contest::run_on;
use super::{nbd, server};
use crate::child;
use crate::error::{Attempt, Error};
use crate::interrupt;
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Greatest time that a process may take for what should take none.
pub const TIMEOUT: Duration = Duration::from_secs(30);
/// Interval between two looks whether the user wants an end.
const LOOK: Duration = Duration::from_millis(100);
/// Number of processes that are started together: a server limits the connections that are being made by one user.
const AT_A_TIME: usize = 8;

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
        /// Number of threads that serve requests.
        cores: usize,
    },
    /// An export at `socket` of a volume of the server at `server`, by vhost-user-blk.
    Export {
        server: PathBuf,
        socket: PathBuf,
        cores: Vec<usize>,
    },
    /// As `Export`, for NBD clients.
    NbdExport {
        server: PathBuf,
        socket: PathBuf,
        cores: Vec<usize>,
    },
    /// Bare server of NBD clients.
    BareNbd {
        socket: PathBuf,
        bytes: u64,
        cores: Vec<usize>,
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

/// Processes as the bench sees them; ended when dropped.
pub struct Crew {
    /// Name in errors.
    name: &'static str,
    processes: Vec<child::Process>,
    line: BufReader<UnixStream>,
}

impl Crew {
    /// Starts a process for each job, and waits until they are prepared.
    pub fn start(name: &'static str, jobs: &[Job]) -> Result<Crew, Error> {
        let socket = Path::new("a socket");
        let (ours, theirs) = UnixStream::pair().doing("make", socket)?;
        ours.set_read_timeout(Some(LOOK)).doing("limit", socket)?;
        let mut crew = Crew { name, processes: Vec::new(), line: BufReader::new(ours) };
        // Two for each process, and none is left: the line ends with the last process.
        let ends: io::Result<Vec<_>> = (0..2 * jobs.len()).map(|_| theirs.try_clone()).collect();
        let mut ends = ends.doing("share", socket)?.into_iter().map(OwnedFd::from);
        let mut end = || ends.next().expect("two for each process");
        drop(theirs);
        for some in jobs.chunks(AT_A_TIME) {
            for job in some {
                let job = serde_json::to_string(job).map_err(|error| crew.failed(error.to_string()))?;
                let mut command = child::peer("serve", [job])?;
                command.stdin(end()).stdout(end());
                crew.processes.push(child::Process::start(&mut command)?);
            }
            for _ in some {
                if !matches!(crew.hear(TIMEOUT)?, Message::Ready) {
                    return Err(crew.failed("was done before it had begun".into()));
                }
            }
        }
        Ok(crew)
    }

    pub fn id(&self) -> u32 {
        self.processes[0].id()
    }

    /// Lets all processes go on, at the same moment.
    pub fn go(&self) -> Result<(), Error> {
        let ended = self.line.get_ref().shutdown(Shutdown::Write);
        ended.map_err(|error| self.failed(format!("cannot be told: {error}")))
    }

    /// Waits until each client has done its job.
    pub fn reports(&mut self, limit: Duration) -> Result<Vec<Report>, Error> {
        let clients = self.processes.len();
        let report = |_| match self.hear(limit)? {
            Message::Done(report) => Ok(report),
            _ => Err(self.failed("has no report".into())),
        };
        (0..clients).map(report).collect()
    }

    /// Lets the processes go on if they have not, and waits for their ends.
    pub fn finish(self) -> Result<(), Error> {
        self.go()?;
        self.processes.into_iter().try_for_each(|process| process.finish().map(drop))
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

/// Does a job in this process. A failure of the job is reported to the bench.
///
/// # Errors
/// [`Error::Usage`] if it is no job, [`Error::Failed`] if the bench has ended.
pub fn peer(job: &str) -> Result<(), Error> {
    let job: Job =
        serde_json::from_str(job).map_err(|error| Error::Usage(format!("{job} is no job: {error}")))?;
    set_parent_process_death_signal(Some(Signal::KILL)).doing("watch", Path::new("the bench"))?;
    let outcome = match job {
        Job::Client(client) => client.work().map(Some),
        Job::Server { socket, devices, is_spinning, core, cores } => {
            server::serve(&socket, &devices, is_spinning, core, cores).map(|()| None)
        }
        Job::Export { server, socket, cores } => server::export(&server, &socket, &cores).map(|()| None),
        Job::NbdExport { server, socket, cores } => {
            server::export_nbd(&server, &socket, &cores).map(|()| None)
        }
        Job::BareNbd { socket, bytes, cores } => {
            run_on(&cores).and_then(|()| nbd::serve_bare(&socket, bytes as usize, ready)).map(|()| None)
        }
    };
    match outcome {
        Ok(None) => Ok(()),
        Ok(Some(report)) => tell(&Message::Done(report)),
        Err(error) => tell(&Message::Failed { why: error.to_string(), is_absence: error.is_absence() }),
    }
}

/// Reports that this process is prepared, and waits until the bench lets it go on.
pub fn ready() -> Result<(), Error> {
    tell(&Message::Ready)?;
    io::copy(&mut io::stdin().lock(), &mut io::sink()).map(drop).map_err(gone)
}

fn tell(message: &Message) -> Result<(), Error> {
    let text =
        serde_json::to_string(message).map_err(|error| Error::failed("a message", error.to_string()))?;
    // A single write, so that the lines of several processes do not mix.
    io::stdout().lock().write_all(format!("{text}\n").as_bytes()).map_err(gone)
}

fn gone(error: io::Error) -> Error {
    Error::failed("the bench", format!("has ended: {error}"))
}
