//! Stream sockets: connecting and listening. Called by [`crate::endpoint`] and [`crate::serve`].

use super::connection::{Connected, Connection};
use crate::address::addresses;
use crate::control::{Control, UNCANCELLABLE_WAIT_MAX};
use crate::error::Error;
use bywash_link::{SocketFile, listen_at as listen_at_name};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// Greatest time that one address of a host may take to answer, before the next one is tried.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Greatest number of connections that wait to be accepted; the kernel may have a lower limit
/// (net.core.somaxconn).
const BACKLOG: i32 = 4096;

/// Settings of the connections that an endpoint opens or accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StreamSettings {
    /// True if the data travels in frames with an end mark. Both ends must say the same.
    pub(crate) whole: bool,
    /// Time without a sign of life after which a TCP peer counts as dead; `None` for a default. Not used by
    /// Unix sockets.
    pub(crate) timeout: Option<Duration>,
    /// Greatest number of connections at a time of a listener that serves many; `None` for a default.
    pub(crate) max: Option<u32>,
}

/// Connects to the first address of a host that answers.
///
/// # Errors
/// [`Error::Io`] if the name cannot be resolved, no address answers or the socket cannot be set up;
/// [`Error::Cancelled`] if the flow is cancelled.
pub(crate) fn connect_tcp(
    (host, port): (&str, u16),
    settings: StreamSettings,
    name: &str,
    control: &Control,
) -> Result<Connected, Error> {
    let mut last = None;
    for address in addresses(host, port, name, control)? {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = stream(family, name)?;
        match finish_connect(rustix::net::connect(&socket, &address), &socket, control)? {
            Ok(()) => return connected_tcp(socket, settings, name),
            Err(error) => last = Some((address, error)),
        }
    }
    Err(match last {
        Some((address, error)) => Error::io(format!("connect to {name} at {address}"), error),
        None => Error::Usage(format!("{name} has no address")),
    })
}

/// Connects to a Unix socket.
///
/// # Errors
/// [`Error::Io`] if nobody listens there or the socket cannot be set up; [`Error::Cancelled`] if the flow is
/// cancelled.
pub(crate) fn connect_unix(
    path: &Path,
    settings: StreamSettings,
    name: &str,
    control: &Control,
) -> Result<Connected, Error> {
    let failed = |error: Errno| Error::io(format!("connect to {name}"), error);
    let address = SocketAddrUnix::new(path).map_err(failed)?;
    let socket = stream(AddressFamily::UNIX, name)?;
    loop {
        match rustix::net::connect(&socket, &address) {
            // The listener's backlog is full (unix(7)), and poll(2) does not report when it has room again.
            Err(Errno::AGAIN) => control.sleep_until(Instant::now() + Duration::from_millis(10))?,
            other => {
                finish_connect(other, &socket, control)?.map_err(failed)?;
                return connected_unix(socket, settings, name);
            }
        }
    }
}

fn stream(family: AddressFamily, name: &str) -> Result<OwnedFd, Error> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(family, SocketType::STREAM, flags, None)
        .map_err(|error| Error::io(format!("make a socket for {name}"), error))
}

fn connected_tcp(socket: OwnedFd, settings: StreamSettings, name: &str) -> Result<Connected, Error> {
    let connection = Connection::tcp(socket.as_fd(), settings.timeout)
        .map_err(|error| Error::io(format!("set up the socket of {name}"), error))?;
    Ok(Connected { socket: set_blocking_with_timeout(socket, name)?, connection, whole: settings.whole })
}

fn connected_unix(socket: OwnedFd, settings: StreamSettings, name: &str) -> Result<Connected, Error> {
    let socket = set_blocking_with_timeout(socket, name)?;
    Ok(Connected { socket, connection: Connection::unix(), whole: settings.whole })
}

/// Makes the socket blocking, with a timeout short enough for a flow to be cancelled
/// ([`UNCANCELLABLE_WAIT_MAX`]). A call that is served in time needs no poll(2); after the timeout, the
/// caller waits in [`Control::wait`].
fn set_blocking_with_timeout(socket: OwnedFd, name: &str) -> Result<OwnedFd, Error> {
    let timeout = |which| sockopt::set_socket_timeout(&socket, which, Some(UNCANCELLABLE_WAIT_MAX));
    timeout(Timeout::Recv)
        .and_then(|()| timeout(Timeout::Send))
        .and_then(|()| rustix::io::ioctl_fionbio(&socket, false))
        .map_err(|error| Error::io(format!("set up the socket of {name}"), error))?;
    Ok(socket)
}

/// Waits until a connect has succeeded or failed; the inner result is that of the connect.
fn finish_connect(
    begun: Result<(), Errno>,
    socket: &OwnedFd,
    control: &Control,
) -> Result<Result<(), Errno>, Error> {
    match begun {
        Err(Errno::INPROGRESS) => {
            let until = Instant::now() + CONNECT_TIMEOUT;
            if !control.wait(socket.as_fd(), PollFlags::OUT, Some(until))? {
                return Ok(Err(Errno::TIMEDOUT));
            }
            Ok(sockopt::socket_error(socket).and_then(|outcome| outcome))
        }
        other => Ok(other),
    }
}

/// A listening stream socket.
pub(crate) struct ListeningSocket {
    name: String,
    kind: ListenerKind,
    settings: StreamSettings,
    socket: OwnedFd,
}

/// Address family of a listening socket.
enum ListenerKind {
    Tcp,
    /// The socket file is removed when the listener is dropped, before [`ListeningSocket::socket`] is closed.
    Unix(#[expect(dead_code, reason = "dropped in the end")] SocketFile),
}

impl ListeningSocket {
    /// Listens at the first address of a TCP endpoint that can be bound.
    ///
    /// # Errors
    /// [`Error::Io`] if the name cannot be resolved or no address can be bound; [`Error::Cancelled`] if the
    /// flow is cancelled.
    pub(crate) fn tcp(
        (host, port): (&str, u16),
        settings: StreamSettings,
        name: &str,
        control: &Control,
    ) -> Result<ListeningSocket, Error> {
        let mut last = Errno::ADDRNOTAVAIL;
        for address in addresses(host, port, name, control)? {
            match listen_at(address, name)? {
                Ok(socket) => {
                    return Ok(ListeningSocket {
                        socket,
                        name: name.into(),
                        settings,
                        kind: ListenerKind::Tcp,
                    });
                }
                Err(error) => last = error,
            }
        }
        Err(Error::io(format!("listen at {name}"), last))
    }

    /// Listens at a path, at which there must be nothing, or a socket file without a listener.
    ///
    /// # Errors
    /// [`Error::Io`] if the path is in use or the socket cannot be bound.
    pub(crate) fn unix(path: &Path, settings: StreamSettings, name: &str) -> Result<ListeningSocket, Error> {
        let socket = stream(AddressFamily::UNIX, name)?;
        let file = listen_at_name(path, &socket, BACKLOG, |_| Ok(()))
            .map_err(|error| Error::io(format!("listen at {name}"), std::io::Error::other(error)))?;
        Ok(ListeningSocket { socket, name: name.into(), settings, kind: ListenerKind::Unix(file) })
    }

    /// Returns the address that the socket is bound to, or the endpoint's text for a Unix socket.
    pub(crate) fn address(&self) -> Result<String, Error> {
        let failed = |error: Errno| Error::io(format!("learn where {} is", self.name), error);
        let address = rustix::net::getsockname(&self.socket).map_err(failed)?;
        Ok(SocketAddr::try_from(address).map_or_else(|_| self.name.clone(), |address| address.to_string()))
    }

    /// Waits for a connection and accepts it.
    ///
    /// # Errors
    /// [`Error::Io`] if accept(2) fails or the connection cannot be set up; [`Error::Cancelled`] if the flow
    /// is cancelled.
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

    /// Accepts a connection without waiting.
    ///
    /// # Errors
    /// Outer: the errno of accept(2), which is [`Errno::AGAIN`] if no connection waits. Inner: [`Error::Io`]
    /// if the accepted connection cannot be set up.
    pub(crate) fn try_accept(&self) -> Result<Result<Connected, Error>, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::accept_with(&self.socket, flags)?;
        Ok(match &self.kind {
            ListenerKind::Tcp => connected_tcp(socket, self.settings, &self.name),
            ListenerKind::Unix(_) => connected_unix(socket, self.settings, &self.name),
        })
    }

    /// Returns the greatest number of connections at a time that the user gave; `None` if the user gave none.
    pub(crate) fn max(&self) -> Option<u32> {
        self.settings.max
    }
}

impl AsFd for ListeningSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn listen_at(address: SocketAddr, name: &str) -> Result<Result<OwnedFd, Errno>, Error> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = match stream(family, name) {
        // The machine has no IPv6.
        Err(Error::Io { source, .. }) if source.raw_os_error() == Some(Errno::AFNOSUPPORT.raw_os_error()) => {
            return Ok(Err(Errno::AFNOSUPPORT));
        }
        other => other?,
    };
    let listening = sockopt::set_socket_reuseaddr(&socket, true)
        .and_then(|()| match address.ip().is_unspecified() && address.is_ipv6() {
            // One socket accepts connections of both families.
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

    #[test]
    fn a_name_that_nobody_listens_at_any_more_is_taken_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let listen = || ListeningSocket::unix(&path, StreamSettings::default(), "s");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let listener = listen().unwrap();
        assert!(listen().is_err(), "somebody listens");
        drop(listener);
        assert!(!path.exists());
        std::fs::write(&path, "a file").unwrap();
        assert!(listen().is_err(), "a file is not removed");
    }

    #[test]
    fn who_is_not_there_is_named() {
        let control = Control::new().unwrap();
        let error = connect_tcp(("127.0.0.1", 1), StreamSettings::default(), "tcp:127.0.0.1:1", &control);
        let error = error.unwrap_err().to_string();
        assert!(error.contains("tcp:127.0.0.1:1") && error.contains("refused"), "{error}");
    }
}
