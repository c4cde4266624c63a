//! How two programs find each other: by a name in the file system, or by a socket that one gives to the other.

use crate::error::Error;
use crate::socket_file::{SocketFile, address, listen_at, new_socket};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

/// Connections that wait for [`Listener::accept`].
const BACKLOG: i32 = 128;
/// Nobody is waited for longer than that to let this end in.
const CONNECT_LIMIT_MAX: Duration = Duration::from_secs(1 << 20);

/// Waits for peers at a name in the file system.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
}

impl Listener {
    /// Makes the name, as [`listen_at`] does. It stays until somebody removes it, or [`SocketFile`] does.
    ///
    /// # Errors
    /// Those of [`listen_at`].
    pub fn bind(name: &Path) -> Result<Listener, Error> {
        let (listener, file) = Listener::bind_prepared(name, |_| Ok(()))?;
        file.keep();
        Ok(listener)
    }

    /// As [`Listener::bind`], with a name that `prepare` has given its mode, say, before anybody can connect.
    ///
    /// # Errors
    /// Those of [`listen_at`].
    pub fn bind_prepared(
        name: &Path,
        prepare: impl FnOnce(&Path) -> io::Result<()>,
    ) -> Result<(Listener, SocketFile), Error> {
        let socket = new_socket()?;
        // So that whoever connects is known by its own word to the kernel, and nobody waits in accept(2), where another
        // one may be faster.
        rustix::net::sockopt::set_socket_passcred(&socket, true)
            .and_then(|()| rustix::io::ioctl_fionbio(&socket, true))
            .map_err(|error| Error::io(format!("listen at {}", name.display()), error))?;
        let file = listen_at(name, &socket, BACKLOG, prepare)?;
        Ok((Listener { socket }, file))
    }

    /// Has the kernel refuse descriptors that are sent to those who are accepted from now on, until each lets them in
    /// ([`crate::Messages::let_descriptors_in`]). False: the kernel is older than Linux 6.16, and lets them in.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn keep_descriptors_out(&self) -> Result<bool, Error> {
        crate::socket::let_descriptors_in(&self.socket, false)
    }

    /// Answers a connection without waiting: `None` when nobody wants to connect, or somebody else was faster.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn try_accept(&self) -> Result<Option<OwnedFd>, Error> {
        loop {
            match rustix::net::accept_with(&self.socket, SocketFlags::CLOEXEC) {
                Ok(socket) => return Ok(Some(socket)),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::AGAIN) => return Ok(None),
                Err(error) => return Err(Error::io("accept a peer", error)),
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A socket to whoever listens at `name`.
///
/// # Errors
/// What the kernel says.
pub fn connect(name: &Path) -> Result<OwnedFd, Error> {
    let socket = new_socket()?;
    rustix::net::connect(&socket, &address(name)?)
        .map_err(|error| Error::io(format!("connect to {}", name.display()), error))?;
    Ok(socket)
}

/// As [`connect`], but waits no longer than `limit` where more want to connect than are being let in.
///
/// # Errors
/// What the kernel says, or [`Error::TimedOut`].
pub fn connect_within(name: &Path, limit: Duration) -> Result<OwnedFd, Error> {
    let (socket, address) = (new_socket()?, address(name)?);
    let failed = |error: Errno| Error::io(format!("connect to {}", name.display()), error);
    // None at all would be for ever.
    let limit = limit.clamp(Duration::from_millis(1), CONNECT_LIMIT_MAX);
    set_socket_timeout(&socket, Timeout::Send, Some(limit)).map_err(failed)?;
    match rustix::net::connect(&socket, &address) {
        Err(Errno::AGAIN) => return Err(Error::TimedOut),
        connected => connected.map_err(failed)?,
    }
    set_socket_timeout(&socket, Timeout::Send, None).map_err(failed)?;
    Ok(socket)
}

/// Two connected sockets: keep one and give the other to whom the connection shall lead to, to a child, say, that
/// inherits it. Each end makes its end of a path or of a channel over its own.
///
/// # Errors
/// What the kernel says.
pub fn socket_pair() -> Result<(OwnedFd, OwnedFd), Error> {
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .and_then(|(one, other)| {
            // From now on, so that whoever speaks first is known as well.
            rustix::net::sockopt::set_socket_passcred(&one, true)?;
            rustix::net::sockopt::set_socket_passcred(&other, true)?;
            Ok((one, other))
        })
        .map_err(|error| Error::io("make a pair of sockets", error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn of_many_that_replace_at_once_one_listens() {
        for _ in 0..10 {
            let folder = tempfile::tempdir().unwrap();
            let name = folder.path().join("socket");
            drop(Listener::bind(&name).unwrap());
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    let name = name.clone();
                    std::thread::spawn(move || Listener::bind(&name))
                })
                .collect();
            let bound: Vec<Listener> =
                threads.into_iter().filter_map(|thread| thread.join().unwrap().ok()).collect();
            assert_eq!(bound.len(), 1);
            drop(connect(&name).unwrap());
            assert!(bound[0].try_accept().unwrap().is_some());
        }
    }

    #[test]
    fn nobody_waits_for_ever_to_be_let_in() {
        let folder = tempfile::tempdir().unwrap();
        let name = folder.path().join("socket");
        let _listener = Listener::bind(&name).unwrap();
        let mut waiting = Vec::new();
        let begun = Instant::now();
        // As many as wait without being let in, and one more.
        let error = loop {
            match connect_within(&name, Duration::from_millis(50)) {
                Ok(socket) => waiting.push(socket),
                Err(error) => break error,
            }
            assert!(waiting.len() <= 2 * BACKLOG as usize);
        };
        assert!(matches!(error, Error::TimedOut) && begun.elapsed() < Duration::from_secs(5), "{error}");
    }
}
