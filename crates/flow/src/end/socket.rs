//! Stream sockets: connecting, and being connected to.

use super::connection::{Connected, Connection};
use crate::address::addresses;
use crate::control::{Control, TURN};
use crate::error::Error;
use crate::spec::{Tcp, Unix};
use bywash_link::{SocketFile, listen_at as listen_at_name};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// One address may take so long to answer, before the next one is tried.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// Connections that wait to be accepted; the kernel may hold fewer (net.core.somaxconn).
const BACKLOG: i32 = 4096;

/// Connects to a host, at whichever of its addresses answers.
pub(crate) fn connect_tcp(end: &Tcp, name: &str, control: &Control) -> Result<Connected, Error> {
    let mut last = None;
    for address in addresses(&end.host, end.port, name, control)? {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = stream(family, name)?;
        match finish_connect(rustix::net::connect(&socket, &address), &socket, control)? {
            Ok(()) => return connected_tcp(socket, end, name),
            Err(error) => last = Some((address, error)),
        }
    }
    Err(match last {
        Some((address, error)) => Error::io(format!("connect to {name} at {address}"), error),
        None => Error::Usage(format!("{name} has no address")),
    })
}

/// Connects to a socket with a name.
pub(crate) fn connect_unix(end: &Unix, name: &str, control: &Control) -> Result<Connected, Error> {
    let failed = |error: Errno| Error::io(format!("connect to {name}"), error);
    let address = SocketAddrUnix::new(&end.path).map_err(failed)?;
    let socket = stream(AddressFamily::UNIX, name)?;
    loop {
        match rustix::net::connect(&socket, &address) {
            // Too many wait to be accepted (unix(7)); there is nothing to poll for.
            Err(Errno::AGAIN) => control.sleep_until(Instant::now() + Duration::from_millis(10))?,
            other => {
                finish_connect(other, &socket, control)?.map_err(failed)?;
                return connected_unix(socket, end, name);
            }
        }
    }
}

fn stream(family: AddressFamily, name: &str) -> Result<OwnedFd, Error> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(family, SocketType::STREAM, flags, None)
        .map_err(|error| Error::io(format!("make a socket for {name}"), error))
}

fn connected_tcp(socket: OwnedFd, end: &Tcp, name: &str) -> Result<Connected, Error> {
    let connection = Connection::tcp(socket.as_fd(), end.timeout)
        .map_err(|error| Error::io(format!("set up the socket of {name}"), error))?;
    Ok(Connected { socket: waits_in_turns(socket, name)?, connection, whole: end.whole })
}

fn connected_unix(socket: OwnedFd, end: &Unix, name: &str) -> Result<Connected, Error> {
    let socket = waits_in_turns(socket, name)?;
    Ok(Connected { socket, connection: Connection::unix(), whole: end.whole })
}

/// Calls on it wait by themselves from now on, but only as long as a cancelled flow may: what comes in time costs no
/// further call, and what does not is waited for together with [`Control::cancel`].
fn waits_in_turns(socket: OwnedFd, name: &str) -> Result<OwnedFd, Error> {
    let timeout = |which| sockopt::set_socket_timeout(&socket, which, Some(TURN));
    timeout(Timeout::Recv)
        .and_then(|()| timeout(Timeout::Send))
        .and_then(|()| rustix::io::ioctl_fionbio(&socket, false))
        .map_err(|error| Error::io(format!("set up the socket of {name}"), error))?;
    Ok(socket)
}

/// Waits until it is known what became of a connection.
fn finish_connect(
    begun: Result<(), Errno>,
    socket: &OwnedFd,
    control: &Control,
) -> Result<Result<(), Errno>, Error> {
    match begun {
        Err(Errno::INPROGRESS) => {
            let until = Instant::now() + CONNECT_LIMIT;
            if !control.wait(socket.as_fd(), PollFlags::OUT, Some(until))? {
                return Ok(Err(Errno::TIMEDOUT));
            }
            Ok(sockopt::socket_error(socket).and_then(|outcome| outcome))
        }
        other => Ok(other),
    }
}

/// Where others connect to.
pub(crate) struct Gate {
    name: String,
    kind: Family,
    socket: OwnedFd,
}

/// The endpoint that listens.
enum Family {
    Tcp(Tcp),
    /// Its name is removed in the end, before [`Gate::socket`] is closed.
    Unix(Unix, #[expect(dead_code, reason = "dropped in the end")] SocketFile),
}

impl Gate {
    /// Listens at an address.
    pub(crate) fn tcp(end: &Tcp, name: &str, control: &Control) -> Result<Gate, Error> {
        let mut last = Errno::ADDRNOTAVAIL;
        for address in addresses(&end.host, end.port, name, control)? {
            match listen_at(address, name)? {
                Ok(socket) => return Ok(Gate { socket, name: name.into(), kind: Family::Tcp(end.clone()) }),
                Err(error) => last = error,
            }
        }
        Err(Error::io(format!("listen at {name}"), last))
    }

    /// Listens at a name in the file system, which must not be there yet, or be one that nobody listens at any more.
    pub(crate) fn unix(end: &Unix, name: &str) -> Result<Gate, Error> {
        let socket = stream(AddressFamily::UNIX, name)?;
        let file = listen_at_name(&end.path, &socket, BACKLOG, |_| Ok(()))
            .map_err(|error| Error::io(format!("listen at {name}"), std::io::Error::other(error)))?;
        Ok(Gate { socket, name: name.into(), kind: Family::Unix(end.clone(), file) })
    }

    /// Where it is.
    pub(crate) fn address(&self) -> Result<String, Error> {
        let failed = |error: Errno| Error::io(format!("learn where {} is", self.name), error);
        let address = rustix::net::getsockname(&self.socket).map_err(failed)?;
        Ok(SocketAddr::try_from(address).map_or_else(|_| self.name.clone(), |address| address.to_string()))
    }

    /// The next one that connects.
    pub(crate) fn accept(&self, control: &Control) -> Result<Connected, Error> {
        loop {
            match self.try_accept() {
                Ok(connected) => return connected,
                Err(Errno::AGAIN) => control.wait(self.as_fd(), PollFlags::IN, None).map(drop)?,
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(error) => return Err(Error::io(format!("accept a connection at {}", self.name), error)),
            }
        }
    }

    /// The next one that has connected, without waiting.
    ///
    /// # Errors
    /// Outside: why none can be accepted, [`Errno::AGAIN`] when there is none. Inside: one that was accepted cannot be used.
    pub(crate) fn try_accept(&self) -> Result<Result<Connected, Error>, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::accept_with(&self.socket, flags)?;
        Ok(match &self.kind {
            Family::Tcp(end) => connected_tcp(socket, end, &self.name),
            Family::Unix(end, _) => connected_unix(socket, end, &self.name),
        })
    }

    /// Most connections at a time that were asked for.
    pub(crate) fn max(&self) -> Option<u32> {
        match &self.kind {
            Family::Tcp(end) => end.max,
            Family::Unix(end, _) => end.max,
        }
    }
}

impl AsFd for Gate {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn listen_at(address: SocketAddr, name: &str) -> Result<Result<OwnedFd, Errno>, Error> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = match stream(family, name) {
        // A machine without IPv6.
        Err(Error::Io { source, .. }) if source.raw_os_error() == Some(Errno::AFNOSUPPORT.raw_os_error()) => {
            return Ok(Err(Errno::AFNOSUPPORT));
        }
        other => other?,
    };
    let listening = sockopt::set_socket_reuseaddr(&socket, true)
        .and_then(|()| match address.ip().is_unspecified() && address.is_ipv6() {
            // Of both families at once.
            true => sockopt::set_ipv6_v6only(&socket, false),
            false => Ok(()),
        })
        .and_then(|()| rustix::net::bind(&socket, &address))
        .and_then(|()| rustix::net::listen(&socket, BACKLOG));
    Ok(listening.map(|()| socket))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Listening;

    #[test]
    fn a_name_that_nobody_listens_at_any_more_is_taken_over() {
        let folder = tempfile::tempdir().unwrap();
        let end = Unix { path: folder.path().join("s"), listening: Listening::Waits, ..Unix::default() };
        drop(std::os::unix::net::UnixListener::bind(&end.path).unwrap());
        let gate = Gate::unix(&end, "s").unwrap();
        assert!(Gate::unix(&end, "s").is_err(), "somebody listens");
        drop(gate);
        assert!(!end.path.exists());
        std::fs::write(&end.path, "a file").unwrap();
        assert!(Gate::unix(&end, "s").is_err(), "a file is not removed");
    }

    #[test]
    fn who_is_not_there_is_named() {
        let control = Control::new().unwrap();
        let end = Tcp { host: "127.0.0.1".into(), port: 1, ..Tcp::default() };
        let error = connect_tcp(&end, "tcp:127.0.0.1:1", &control).unwrap_err().to_string();
        assert!(error.contains("tcp:127.0.0.1:1") && error.contains("refused"), "{error}");
    }
}
