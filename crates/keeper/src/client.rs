//! A keeper's client: one request a connection, which is a line, and so is the answer.

use crate::error::Error;
use crate::log_file::{Access, LogFile};
use crate::report::KeeperStatus;
use crate::{rights, runtime, sys};
use bywash_log::shared::Shared;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Time for an answer to a question that takes no work.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// Time for a checkpoint.
const CHECKPOINT_LIMIT: Duration = Duration::from_secs(600);
/// Size of the longest answer, in bytes.
const ANSWER_MAX: u64 = 16 << 20;

/// Connection to the keeper of a log.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    log: PathBuf,
    owner: u32,
}

/// A log whose memory this process holds, so that its keeper stays, until the process ends or executes another program.
#[derive(Debug)]
pub struct Attached {
    /// Path of the memory, for the program.
    pub memory: PathBuf,
    _connection: UnixStream,
}

impl Client {
    /// Connects to the keeper of a log; `None` if none listens.
    ///
    /// # Errors
    /// Those of [`LogFile::open`] and of the log's rights; [`Error::Io`].
    pub fn connect(log: &Path) -> Result<Option<Client>, Error> {
        let log_file = LogFile::open(log, Access::Read)?;
        let superblock = log_file.superblock()?;
        let owner = rights::owner(&log_file, &superblock)?;
        Client::connect_to(&log_file, owner)
    }

    /// Connects to the keeper of a log that is open.
    pub(crate) fn connect_to(log_file: &LogFile, owner: u32) -> Result<Option<Client>, Error> {
        for path in runtime::sockets(log_file, owner)? {
            let Ok(stream) = UnixStream::connect(&path) else { continue };
            // One that has just ended, or is in another PID namespace, has no process id, which is no keeper of this log.
            let Ok(peer) = rustix::net::sockopt::socket_peercred(&stream) else { continue };
            if peer.uid.as_raw() == owner {
                return Ok(Some(Client { stream, log: log_file.path().to_owned(), owner }));
            }
        }
        Ok(None)
    }

    /// Opens the log's memory. `None` if the keeper is just ending.
    ///
    /// # Errors
    /// [`Error::Owner`] for anybody but the owner, whose keeper could not reach the program's files; [`Error::Keeper`] or [`Error::Io`].
    pub fn attach(mut self) -> Result<Option<Attached>, Error> {
        if rustix::process::geteuid().as_raw() != self.owner {
            return Err(Error::Owner { path: self.log, owner: self.owner, or_root: false });
        }
        let Some(memory) = self.ask_unless_ending("open", ANSWER_LIMIT)? else { return Ok(None) };
        let memory = PathBuf::from(memory);
        let path = sys::c_path(&memory).map_err(Error::io("open", &memory))?;
        match Shared::open(&path) {
            Ok(_) => Ok(Some(Attached { memory, _connection: self.stream })),
            Err(libc::EAGAIN | libc::ENOENT) => Ok(None),
            Err(number) => Err(Error::number("open the keeper's memory", &memory)(number)),
        }
    }

    /// Makes all files durable and the log empty but for what is committed meanwhile.
    ///
    /// # Errors
    /// [`Error::Keeper`] if files could not be made durable; [`Error::Io`].
    pub fn checkpoint(mut self) -> Result<(), Error> {
        self.ask("checkpoint", CHECKPOINT_LIMIT).map(drop)
    }

    /// Returns what the keeper tells of itself.
    ///
    /// # Errors
    /// [`Error::Keeper`] or [`Error::Io`].
    pub fn status(mut self) -> Result<KeeperStatus, Error> {
        let answer = self.ask("status", ANSWER_LIMIT)?;
        serde_json::from_str(&answer).map_err(|error| self.failed("ask the keeper of", error.into()))
    }

    fn ask(&mut self, request: &str, limit: Duration) -> Result<String, Error> {
        let ending = Error::Keeper { path: self.log.clone(), message: "it is ending".into() };
        self.ask_unless_ending(request, limit)?.ok_or(ending)
    }

    /// Sends a request and returns the answer; `None` if the keeper is ending.
    fn ask_unless_ending(&mut self, request: &str, limit: Duration) -> Result<Option<String>, Error> {
        let mut line = String::new();
        let asked = (|| {
            self.stream.set_read_timeout(Some(limit))?;
            self.stream.write_all(format!("{request}\n").as_bytes())?;
            BufReader::new(&self.stream).take(ANSWER_MAX).read_line(&mut line)
        })();
        match asked {
            // The keeper has ended since the connection was made.
            Ok(0) => return Ok(None),
            Err(error)
                if matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) =>
            {
                return Ok(None);
            }
            Err(error) => return Err(self.failed("ask the keeper of", error)),
            Ok(_) => {}
        }
        match line.trim_end().split_once(' ') {
            Some(("ok", answer)) => Ok(Some(answer.to_owned())),
            Some(("error", message)) => {
                Err(Error::Keeper { path: self.log.clone(), message: message.to_owned() })
            }
            _ => Ok(None),
        }
    }

    fn failed(&self, what: &'static str, error: io::Error) -> Error {
        Error::io(what, &self.log)(error)
    }
}
