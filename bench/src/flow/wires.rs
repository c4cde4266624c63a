//! Processes at the ends of TCP connections on this machine: by hand, by `bywash flow`, by programs.

use super::by_hand::Part;
use super::process::{Process, command, free_port, this_program};
use super::rounds::{Outcome, State};
use super::route::{equal, make_room};
use crate::error::Error;
use crate::programs::require;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// A file that is sent, and one in which it arrives; removed when dropped.
pub struct Files {
    /// Where from.
    pub source: PathBuf,
    /// Where to.
    pub sink: PathBuf,
}

impl State for Files {
    fn clear(&self) -> Result<(), Error> {
        let source = fs::metadata(&self.source).map_err(|error| Error::io("look at", &self.source, error))?;
        make_room(&self.sink, source.len())
    }

    fn check(&self) -> Result<(), Error> {
        equal(&self.source, &self.sink)
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        for path in [&self.source, &self.sink] {
            let _ = fs::remove_file(path);
        }
    }
}

/// What sends a file to a port of this machine.
pub type Sender = Box<dyn Fn(&Path, u16) -> Result<Command, Error>>;
/// What receives a file at a port of this machine.
pub type Receiver = Box<dyn Fn(u16, &Path) -> Result<Command, Error>>;
/// What passes on, from the first port to the second one.
pub type Forwarder = Box<dyn Fn(u16, u16) -> Result<Command, Error>>;

/// A hand-written part, in a process of its own.
///
/// # Errors
/// When this program cannot be found.
pub fn by_hand(part: Part, from: &str, to: &str) -> Result<Command, Error> {
    let mut command = this_program()?;
    command.args(["bench", "flow-peer", part.name(), from, to]);
    Ok(command)
}

/// A hand-written sender.
pub fn hand_sender(part: Part) -> Sender {
    Box::new(move |file, port| by_hand(part, &file.display().to_string(), &port.to_string()))
}

/// A hand-written receiver.
pub fn hand_receiver(part: Part) -> Receiver {
    Box::new(move |port, file| by_hand(part, &port.to_string(), &file.display().to_string()))
}

/// `bywash flow` with `flags`.
///
/// # Errors
/// When this program cannot be found.
pub fn flow(flags: &[String], from: String, to: String) -> Result<Command, Error> {
    let mut command = this_program()?;
    command.args(["flow", "--quiet"]).args(flags).args([from, to]);
    Ok(command)
}

/// socat with `flags`.
///
/// # Errors
/// [`Error::Missing`].
pub fn socat(flags: &[&str], from: String, to: String) -> Result<Command, Error> {
    let mut command = command(require("socat", "socat")?);
    command.args(flags).args([from, to]);
    Ok(command)
}

/// nc that sends what `feed` writes, or a file.
///
/// # Errors
/// [`Error::Missing`], [`Error::Unavailable`].
pub fn nc_sender(file: &Path, port: u16, through_pv: bool) -> Result<Command, Error> {
    let nc = nc()?;
    if through_pv {
        let pv = require("pv", "pv")?;
        let mut command = command("sh");
        command.args(["-c", "\"$1\" -q \"$2\" | \"$3\" -N 127.0.0.1 \"$4\"", "sh"]);
        command.arg(pv).arg(file).arg(nc).arg(port.to_string());
        return Ok(command);
    }
    let source = File::open(file).map_err(|error| Error::io("open", file, error))?;
    let mut command = command(nc);
    command.args(["-N", "127.0.0.1", &port.to_string()]).stdin(source);
    Ok(command)
}

/// nc that receives into a file.
///
/// # Errors
/// As [`nc_sender`].
pub fn nc_receiver(port: u16, file: &Path) -> Result<Command, Error> {
    let sink = File::create(file).map_err(|error| Error::io("create", file, error))?;
    let mut command = command(nc()?);
    command.args(["-l", "127.0.0.1", &port.to_string()]).stdout(sink);
    Ok(command)
}

/// The one of OpenBSD, as the others end differently.
fn nc() -> Result<PathBuf, Error> {
    require("nc.openbsd", "netcat-openbsd")
}

/// One file from a sender to a receiver; the CPU time is that of both.
///
/// # Errors
/// What failed.
pub fn pair(send: &Sender, receive: &Receiver, files: &Files) -> Result<Outcome, Error> {
    let port = free_port()?;
    let mut receiver = Process::start(receive(port, &files.sink)?)?;
    receiver.listens(port)?;
    let command = send(&files.source, port)?;
    let begin = Instant::now();
    let sender = Process::start(command)?;
    let received = receiver.finish()?;
    let sent = sender.finish()?;
    Ok(Outcome { seconds: begin.elapsed().as_secs_f64(), cpu_seconds: received + sent })
}

/// How the one in the middle ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With the connection.
    ByItself,
    /// When it is told to.
    WhenTold,
}

/// One file through somebody in the middle; the CPU time is that one's alone.
///
/// # Errors
/// What failed.
pub fn through(forward: &Forwarder, end: End, source: &Path, sink: &Path) -> Result<Outcome, Error> {
    let (first, second) = (free_port()?, free_port()?);
    let mut receiver = Process::start(hand_receiver(Part::ReceiveReadWrite)(second, sink)?)?;
    receiver.listens(second)?;
    let mut middle = Process::start(forward(first, second)?)?;
    middle.listens(first)?;
    let begin = Instant::now();
    let sender = Process::start(hand_sender(Part::SendSendfile)(source, first)?)?;
    receiver.finish()?;
    let seconds = begin.elapsed().as_secs_f64();
    sender.finish()?;
    let cpu_seconds = match end {
        End::ByItself => middle.finish()?,
        End::WhenTold => middle.end()?,
    };
    Ok(Outcome { seconds, cpu_seconds })
}
