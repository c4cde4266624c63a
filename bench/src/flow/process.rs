//! Programs of a flow: their commands, and waiting until one listens.

use crate::child;
pub use crate::child::{Ended, Process};
use crate::error::Error;
use crate::interrupt;
use std::ffi::OsStr;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Greatest time until a program listens, and until it ends when it is told to.
const TIMEOUT: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_micros(500);

impl Process {
    /// Waits until the program listens at `port` of the host that it runs in.
    ///
    /// # Errors
    /// [`Error::Failed`] if it ends or does not listen in time.
    pub fn listens(&mut self, protocol: Protocol, port: u16) -> Result<(), Error> {
        let begin = Instant::now();
        while !protocol.is_open(self.child.id(), port) {
            interrupt::check()?;
            let ended = self.child.try_wait().ok().flatten().map(|status| format!("ended with {status}"));
            let late = (begin.elapsed() > TIMEOUT).then(|| format!("does not listen at port {port}"));
            if let Some(how) = ended.or(late) {
                return Err(self.failure(how));
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }
}

/// Makes a command that reads nothing and whose output is dropped.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    quiet(Command::new(program))
}

fn quiet(mut command: Command) -> Command {
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// Makes a command of `bywash flow`.
///
/// # Errors
/// [`Error::Io`] if this program cannot be found.
pub fn flow<F: AsRef<OsStr>>(
    flags: impl IntoIterator<Item = F>,
    from: impl AsRef<OsStr>,
    to: impl AsRef<OsStr>,
) -> Result<Command, Error> {
    let mut command = command(child::this_program()?);
    command.arg("flow").args(flags).arg(from).arg(to);
    Ok(command)
}

/// Makes a command of the hand-written loop of that name, with a buffer of `block` bytes where it has one.
///
/// # Errors
/// [`Error::Io`] if this program cannot be found.
pub fn by_hand(name: &str, from: &str, to: &str, block: u64) -> Result<Command, Error> {
    child::peer("flow", [name, from, to, &block.to_string()]).map(quiet)
}

/// Protocol of a socket that waits for peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Tcp,
    Udp,
}

impl Protocol {
    /// Returns whether a socket of the host that `process` runs in waits at `port`.
    fn is_open(self, process: u32, port: u16) -> bool {
        // The states of sockets that wait, in the tables of proc_pid_net(5).
        let (tables, state) = match self {
            Protocol::Tcp => (["tcp", "tcp6"], "0A"),
            Protocol::Udp => (["udp", "udp6"], "07"),
        };
        tables.iter().any(|table| {
            let text = fs::read_to_string(format!("/proc/{process}/net/{table}"));
            text.is_ok_and(|text| has_listener(&text, port, state))
        })
    }
}

fn has_listener(table: &str, port: u16, state: &str) -> bool {
    let address = format!(":{port:04X}");
    table.lines().skip(1).any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields.get(1).is_some_and(|local| local.ends_with(&address)) && fields.get(3) == Some(&state)
    })
}

/// Returns an address of the loopback interface at which nobody listens.
///
/// # Errors
/// [`Error::Failed`] with the kernel's reason.
pub fn free_address() -> Result<SocketAddr, Error> {
    let bound = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    bound.map_err(|error| Error::failed("a socket", error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_are_found() {
        let here = std::process::id();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let receiver = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let ports = [listener.local_addr().unwrap().port(), receiver.local_addr().unwrap().port()];
        assert!(Protocol::Tcp.is_open(here, ports[0]) && Protocol::Udp.is_open(here, ports[1]));
        drop((listener, receiver));
        assert!(!Protocol::Tcp.is_open(here, ports[0]) && !Protocol::Udp.is_open(here, ports[1]));
        let line = "  sl  local_address rem_address   st\n   0: 0100007F:1F90 0100007F:8000 01 0";
        assert!(!has_listener(line, 8080, "0A"));
    }
}
