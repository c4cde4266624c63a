//! Processes at the ends of connections, on this machine or in hosts of their own: by hand, by `bywash flow`, by programs.

use super::by_hand::Part;
use super::process::{Door, Process, command, free_address, this_program};
use super::rounds::{Outcome, State};
use super::route::{equal, make_room, warm};
use crate::error::Error;
use crate::place::Place;
use crate::programs::require;
use bywash_support::hosts::{Hosts, MTU};
use std::fs::{self, File};
use std::net::SocketAddr;
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

impl Files {
    /// A source of `bytes` bytes of noise in `place`.
    ///
    /// # Errors
    /// The kernel's.
    pub fn make(place: &Place, bytes: u64) -> Result<Files, Error> {
        let files = Files { source: place.root.join("flow-sent"), sink: place.root.join("flow-received") };
        place.write_file(&files.source, bytes, 1)?;
        warm(bytes);
        Ok(files)
    }
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

/// What sends a file to an address.
pub type Sender = Box<dyn Fn(&Path, SocketAddr) -> Result<Command, Error>>;
/// What receives a file at an address.
pub type Receiver = Box<dyn Fn(SocketAddr, &Path) -> Result<Command, Error>>;
/// What passes on, from the first address to the second one.
pub type Forwarder = Box<dyn Fn(SocketAddr, SocketAddr) -> Result<Command, Error>>;

/// Where the sender, the one in the middle if there is one, and the receiver are.
pub enum Net {
    /// All of them on this machine.
    Loopback,
    /// Each in a host of its own, in the order of the row.
    Hosts(Hosts),
}

/// At which hosts of ours listen.
const PORT: u16 = 7301;

impl Net {
    /// So many hosts in a row.
    ///
    /// # Errors
    /// [`Error::Unavailable`] with the reason when they cannot be made here.
    pub fn hosts(count: u8) -> Result<Net, Error> {
        Hosts::row(count, MTU).map(Net::Hosts).map_err(|reason| {
            Error::Unavailable(format!(
                "{reason}; hosts of their own need root, or unshare --user --map-root-user --net"
            ))
        })
    }

    /// Where the receiver listens.
    ///
    /// # Errors
    /// The kernel's.
    pub fn last(&self) -> Result<SocketAddr, Error> {
        match self {
            Net::Loopback => free_address(),
            Net::Hosts(hosts) => Ok((hosts.last().address(), PORT).into()),
        }
    }

    /// Where the one in the middle listens.
    ///
    /// # Errors
    /// The kernel's.
    pub fn middle(&self) -> Result<SocketAddr, Error> {
        match self {
            Net::Loopback => free_address(),
            Net::Hosts(hosts) => Ok((hosts.middle().address(), PORT).into()),
        }
    }

    /// Starts a program at a station.
    ///
    /// # Errors
    /// As [`Process::start`].
    pub fn start(&self, station: Station, command: Command) -> Result<Process, Error> {
        let Net::Hosts(hosts) = self else { return Process::start(command) };
        let host = match station {
            Station::First => hosts.first(),
            Station::Middle => hosts.middle(),
            Station::Last => hosts.last(),
        };
        host.run(|| Process::start(command))
    }
}

/// Who is where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Station {
    /// The sender.
    First,
    /// The one in the middle.
    Middle,
    /// The receiver.
    Last,
}

/// A hand-written part, in a process of its own.
///
/// # Errors
/// When this program cannot be found.
pub fn by_hand(part: Part, from: &str, to: &str) -> Result<Command, Error> {
    let mut command = this_program()?;
    command.args(["bench", "peer", "flow", part.name(), from, to]);
    Ok(command)
}

/// A hand-written sender.
pub fn hand_sender(part: Part) -> Sender {
    Box::new(move |file, at| by_hand(part, &file.display().to_string(), &at.to_string()))
}

/// A hand-written receiver.
pub fn hand_receiver(part: Part) -> Receiver {
    Box::new(move |at, file| by_hand(part, &at.to_string(), &file.display().to_string()))
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
pub fn nc_sender(file: &Path, at: SocketAddr, through_pv: bool) -> Result<Command, Error> {
    let nc = nc()?;
    if through_pv {
        let pv = require("pv", "pv")?;
        let mut command = command("sh");
        command.args(["-c", "\"$1\" -q \"$2\" | \"$3\" -N \"$4\" \"$5\"", "sh"]);
        command.arg(pv).arg(file).arg(nc).args([at.ip().to_string(), at.port().to_string()]);
        return Ok(command);
    }
    let source = File::open(file).map_err(|error| Error::io("open", file, error))?;
    let mut command = command(nc);
    command.args(["-N", &at.ip().to_string(), &at.port().to_string()]).stdin(source);
    Ok(command)
}

/// nc that receives into a file.
///
/// # Errors
/// As [`nc_sender`].
pub fn nc_receiver(at: SocketAddr, file: &Path) -> Result<Command, Error> {
    let sink = File::create(file).map_err(|error| Error::io("create", file, error))?;
    let mut command = command(nc()?);
    command.args(["-l", &at.ip().to_string(), &at.port().to_string()]).stdout(sink);
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
    let at = free_address()?;
    let mut receiver = Process::start(receive(at, &files.sink)?)?;
    receiver.listens(Door::Tcp, at.port())?;
    let command = send(&files.source, at)?;
    let begin = Instant::now();
    let sender = Process::start(command)?;
    let received = receiver.finish()?;
    let sent = sender.finish()?;
    Ok(Outcome { seconds: begin.elapsed().as_secs_f64(), cpu_seconds: received + sent, lost: 0.0 })
}

/// How the one in the middle ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With the connection.
    ByItself,
    /// When it is told to.
    WhenTold,
}

/// One file through somebody in the middle of `net`; the CPU time is that one's alone.
///
/// # Errors
/// What failed.
pub fn through(net: &Net, forward: &Forwarder, end: End, files: &Files) -> Result<Outcome, Error> {
    let (first, second) = (net.middle()?, net.last()?);
    let mut receiver =
        net.start(Station::Last, hand_receiver(Part::ReceiveReadWrite)(second, &files.sink)?)?;
    receiver.listens(Door::Tcp, second.port())?;
    let mut middle = net.start(Station::Middle, forward(first, second)?)?;
    middle.listens(Door::Tcp, first.port())?;
    let command = hand_sender(Part::SendSendfile)(&files.source, first)?;
    let begin = Instant::now();
    let sender = net.start(Station::First, command)?;
    receiver.finish()?;
    let seconds = begin.elapsed().as_secs_f64();
    sender.finish()?;
    let cpu_seconds = match end {
        End::ByItself => middle.finish()?,
        End::WhenTold => middle.end()?,
    };
    Ok(Outcome { seconds, cpu_seconds, lost: 0.0 })
}
