//! Stream sockets: connecting, and being connected to.

use crate::control::{Control, TURN};
use crate::error::Error;
use crate::spec::{Tcp, Unix};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::net::{Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// One address may take so long to answer, before the next one is tried.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// Connects to a host, at whichever of its addresses answers.
pub(crate) fn connect_tcp(end: &Tcp, name: &str, control: &Control) -> Result<OwnedFd, Error> {
    let mut last = None;
    for address in addresses(&end.host, end.port, name)? {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = stream(family, name)?;
        match finish_connect(rustix::net::connect(&socket, &address), &socket, control)? {
            Ok(()) => {
                // Blocks are large, and the last one of a request must not wait for more.
                let _ = sockopt::set_tcp_nodelay(&socket, true);
                return waits_in_turns(socket, name);
            }
            Err(error) => last = Some((address, error)),
        }
    }
    Err(match last {
        Some((address, error)) => Error::io(format!("connect to {name} at {address}"), error),
        None => Error::Usage(format!("{name} has no address")),
    })
}

/// Connects to a socket with a name.
pub(crate) fn connect_unix(end: &Unix, name: &str, control: &Control) -> Result<OwnedFd, Error> {
    let failed = |error: Errno| Error::io(format!("connect to {name}"), error);
    let address = SocketAddrUnix::new(&end.path).map_err(failed)?;
    let socket = stream(AddressFamily::UNIX, name)?;
    loop {
        match rustix::net::connect(&socket, &address) {
            // Too many wait to be accepted (unix(7)); there is nothing to poll for.
            Err(Errno::AGAIN) => control.sleep_until(Instant::now() + Duration::from_millis(10))?,
            other => {
                finish_connect(other, &socket, control)?.map_err(failed)?;
                return waits_in_turns(socket, name);
            }
        }
    }
}

fn stream(family: AddressFamily, name: &str) -> Result<OwnedFd, Error> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(family, SocketType::STREAM, flags, None)
        .map_err(|error| Error::io(format!("make a socket for {name}"), error))
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

/// The addresses of a host; of none, all of this machine's.
fn addresses(host: &str, port: u16, name: &str) -> Result<Vec<SocketAddr>, Error> {
    if host.is_empty() {
        return Ok(vec![
            SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)),
            SocketAddr::from(([0, 0, 0, 0], port)),
        ]);
    }
    (host, port)
        .to_socket_addrs()
        .map(Iterator::collect)
        .map_err(|error| Error::io(format!("find the address of {name}"), error))
}

/// Where others connect to.
pub(crate) struct Gate {
    socket: OwnedFd,
    name: String,
    /// Removed in the end.
    path: Option<PathBuf>,
}

impl Gate {
    /// Listens at an address.
    pub(crate) fn tcp(end: &Tcp, name: &str) -> Result<Gate, Error> {
        let mut last = Errno::ADDRNOTAVAIL;
        for address in addresses(&end.host, end.port, name)? {
            match listen_at(address, name)? {
                Ok(socket) => return Ok(Gate { socket, name: name.into(), path: None }),
                Err(error) => last = error,
            }
        }
        Err(Error::io(format!("listen at {name}"), last))
    }

    /// Listens at a name in the file system, which must not be there yet, or be one that nobody listens at any more.
    pub(crate) fn unix(end: &Unix, name: &str) -> Result<Gate, Error> {
        let failed = |error: Errno| Error::io(format!("listen at {name}"), error);
        let address = SocketAddrUnix::new(&end.path).map_err(failed)?;
        let socket = stream(AddressFamily::UNIX, name)?;
        match rustix::net::bind(&socket, &address) {
            Err(Errno::ADDRINUSE) if is_left_over(&end.path, &address) => {
                rustix::fs::unlink(&end.path).map_err(failed)?;
                rustix::net::bind(&socket, &address).map_err(failed)?;
            }
            other => other.map_err(failed)?,
        }
        rustix::net::listen(&socket, BACKLOG).map_err(failed)?;
        Ok(Gate { socket, name: name.into(), path: Some(end.path.clone()) })
    }

    /// Where it is.
    pub(crate) fn address(&self) -> Result<String, Error> {
        let failed = |error: Errno| Error::io(format!("learn where {} is", self.name), error);
        let address = rustix::net::getsockname(&self.socket).map_err(failed)?;
        Ok(SocketAddr::try_from(address).map_or_else(|_| self.name.clone(), |address| address.to_string()))
    }

    /// The next one that connects.
    pub(crate) fn accept(&self, control: &Control) -> Result<OwnedFd, Error> {
        loop {
            match rustix::net::accept_with(&self.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => {
                    // Of unix sockets it means nothing.
                    let _ = sockopt::set_tcp_nodelay(&socket, true);
                    return waits_in_turns(socket, &self.name);
                }
                Err(Errno::AGAIN) => control.wait(self.socket.as_fd(), PollFlags::IN, None).map(drop)?,
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(error) => return Err(Error::io(format!("accept a connection at {}", self.name), error)),
            }
        }
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // It may be gone already.
            let _ = rustix::fs::unlink(path);
        }
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

/// Whether it is a socket that nobody listens at.
fn is_left_over(path: &std::path::Path, address: &SocketAddrUnix) -> bool {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|there| there.file_type().is_socket());
    let refused = || {
        let probe = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
        rustix::net::connect(probe, address)
    };
    is_socket && refused() == Err(Errno::CONNREFUSED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Listening;

    #[test]
    fn a_name_that_nobody_listens_at_any_more_is_taken_over() {
        let folder = tempfile::tempdir().unwrap();
        let end = Unix { path: folder.path().join("s"), listening: Listening::Waits };
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
