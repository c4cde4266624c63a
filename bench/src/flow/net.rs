//! Hosts that are network namespaces of this machine, and transfers between programs in them.

use super::process::{Ended, Process, Protocol, free_address};
use crate::error::Error;
use bywash_support::hosts::{Hosts, MTU};
use std::net::SocketAddr;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// Port at which programs in hosts of their own listen.
const PORT: u16 = 7301;

/// Network of a transfer.
pub struct Net {
    /// A row of hosts; without them, all programs run on this machine.
    hosts: Option<Hosts>,
}

/// Position in a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Station {
    /// The sender.
    First,
    /// The program that passes on.
    Middle,
    /// The receiver.
    Last,
}

/// End of a program in the middle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// With the connection.
    ByItself,
    /// By SIGTERM.
    WhenTold,
}

/// Sign that a program waits for a sender.
#[derive(Clone, Copy, Debug)]
pub enum Ready {
    /// It listens at its port.
    Listens(Protocol),
    /// It has had this long.
    After(Duration),
}

/// Programs of a transfer, each that waits with its port.
pub struct Transfer {
    pub ready: Ready,
    pub receiver: (Command, u16),
    pub middle: Option<(Command, u16, Stop)>,
    pub sender: Command,
    /// True if the output of the sender and the receiver is kept.
    pub is_telling: bool,
}

/// Result of a transfer.
pub struct Transferred {
    /// Time from the start of the sender to the end of the receiver.
    pub seconds: f64,
    /// Time from the start of the sender to the end of both.
    pub seconds_of_both: f64,
    pub sender: Ended,
    pub receiver: Ended,
    pub middle_cpu_seconds: f64,
}

impl Net {
    /// The loopback interface of this machine.
    pub fn loopback() -> Net {
        Net { hosts: None }
    }

    /// A row of hosts.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if this user cannot make them.
    pub fn hosts(count: u8) -> Result<Net, Error> {
        let hosts = Hosts::row(count, MTU).map_err(|reason| {
            let remedy = "hosts of their own need root, or unshare --user --map-root-user --net";
            Error::Unavailable(format!("{reason}; {remedy}"))
        })?;
        Ok(Net { hosts: Some(hosts) })
    }

    /// The hosts of the row, if there are some.
    pub fn row(&self) -> Option<&Hosts> {
        self.hosts.as_ref()
    }

    /// Address at which a station listens; a new one each time on loopback.
    ///
    /// # Errors
    /// [`Error::Failed`] if no port is free.
    pub fn address(&self, station: Station) -> Result<SocketAddr, Error> {
        match (&self.hosts, station) {
            (None, _) => free_address(),
            (Some(hosts), Station::First) => Ok((hosts.first().address(), PORT).into()),
            (Some(hosts), Station::Middle) => Ok((hosts.middle().address(), PORT).into()),
            (Some(hosts), Station::Last) => Ok((hosts.last().address(), PORT).into()),
        }
    }

    /// Runs the programs of a transfer to their ends.
    ///
    /// # Errors
    /// [`Error::Failed`] if a program does not begin to listen, or the one in the middle does not end.
    pub fn run(&self, transfer: Transfer) -> Result<Transferred, Error> {
        let Transfer { ready, receiver, middle, mut sender, is_telling } = transfer;
        let start = |station, command: &mut Command, is_telling| {
            let mut start =
                || if is_telling { Process::start_telling(command) } else { Process::start(command) };
            match (&self.hosts, station) {
                (None, _) => start(),
                (Some(hosts), Station::First) => hosts.first().run(start),
                (Some(hosts), Station::Middle) => hosts.middle().run(start),
                (Some(hosts), Station::Last) => hosts.last().run(start),
            }
        };
        let waiting = |station, mut command: Command, port, is_telling| {
            let mut process = start(station, &mut command, is_telling)?;
            match ready {
                Ready::Listens(protocol) => process.listens(protocol, port)?,
                Ready::After(time) => thread::sleep(time),
            }
            Ok::<_, Error>(process)
        };
        let receiver = waiting(Station::Last, receiver.0, receiver.1, is_telling)?;
        let middle = middle.map(|(command, port, stop)| {
            waiting(Station::Middle, command, port, false).map(|process| (process, stop))
        });
        let middle = middle.transpose()?;
        let begin = Instant::now();
        let sender = start(Station::First, &mut sender, is_telling)?;
        let receiver = receiver.wait()?;
        let seconds = begin.elapsed().as_secs_f64();
        let sender = sender.wait()?;
        let seconds_of_both = begin.elapsed().as_secs_f64();
        let middle_cpu_seconds = match middle {
            None => 0.0,
            Some((process, Stop::ByItself)) => process.finish()?,
            Some((process, Stop::WhenTold)) => process.end()?,
        };
        Ok(Transferred { seconds, seconds_of_both, sender, receiver, middle_cpu_seconds })
    }
}
