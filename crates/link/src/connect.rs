//! Connecting two programs: by a name in the file system, or by a pair of sockets of which one program passes
//! one on.

use crate::error::Error;
use crate::socket_file::{SocketFile, address, listen_at, new_socket};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

/// Greatest number of connections that wait for [`Listener::try_accept`].
const BACKLOG: i32 = 128;
/// Greatest timeout for a connection to be queued by a listener; longer ones are shortened to it.
const CONNECT_LIMIT_MAX: Duration = Duration::from_secs(1 << 20);

/// Accepts connections of peers at a name in the file system.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
}

impl Listener {
    /// Creates the name, like [`listen_at`]. The name stays until somebody removes it.
    ///
    /// # Errors
    /// Same as [`listen_at`].
    pub fn bind(name: &Path) -> Result<Listener, Error> {
        let (listener, file) = Listener::bind_prepared(name, |_| Ok(()))?;
        file.keep();
        Ok(listener)
    }

    /// Like [`Listener::bind`], but calls `prepare` before anybody can connect, for instance to set the mode
    /// of the name. The returned [`SocketFile`] removes the name.
    ///
    /// # Errors
    /// Same as [`listen_at`].
    pub fn bind_prepared(
        name: &Path,
        prepare: impl FnOnce(&Path) -> io::Result<()>,
    ) -> Result<(Listener, SocketFile), Error> {
        let socket = new_socket()?;
        // Credentials are attached from a peer's first message on. The socket does not block, since another
        // thread may accept a connection first.
        rustix::net::sockopt::set_socket_passcred(&socket, true)
            .and_then(|()| rustix::io::ioctl_fionbio(&socket, true))
            .map_err(|error| Error::io(format!("listen at {}", name.display()), error))?;
        let file = listen_at(name, &socket, BACKLOG, prepare)?;
        Ok((Listener { socket }, file))
    }

    /// Makes the kernel refuse descriptors that are sent to sockets accepted from now on, until each of them
    /// allows it ([`crate::Messages::let_descriptors_in`]). False: the kernel is older than Linux 6.16, and
    /// always lets them in.
    ///
    /// # Errors
    /// [`Error::Io`] if setsockopt(2) fails for another reason.
    pub fn keep_descriptors_out(&self) -> Result<bool, Error> {
        crate::socket::let_descriptors_in(&self.socket, false)
    }

    /// Accepts a connection without waiting: `None` if there is none, or another thread took it first.
    ///
    /// # Errors
    /// [`Error::Io`] if accept(2) fails.
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

/// Connects a new socket to the listener at `name`.
///
/// # Errors
/// [`Error::Io`] if the name is too long, no process listens there, or another system call fails.
pub fn connect(name: &Path) -> Result<OwnedFd, Error> {
    let socket = new_socket()?;
    rustix::net::connect(&socket, &address(name)?)
        .map_err(|error| Error::io(format!("connect to {}", name.display()), error))?;
    Ok(socket)
}

/// Like [`connect`], but waits no longer than `limit` if the listener's queue is full.
///
/// # Errors
/// Same as [`connect`], and [`Error::TimedOut`].
pub fn connect_within(name: &Path, limit: Duration) -> Result<OwnedFd, Error> {
    let (socket, address) = (new_socket()?, address(name)?);
    let failed = |error: Errno| Error::io(format!("connect to {}", name.display()), error);
    // A timeout of zero would mean none.
    let limit = limit.clamp(Duration::from_millis(1), CONNECT_LIMIT_MAX);
    set_socket_timeout(&socket, Timeout::Send, Some(limit)).map_err(failed)?;
    match rustix::net::connect(&socket, &address) {
        Err(Errno::AGAIN) => return Err(Error::TimedOut),
        connected => connected.map_err(failed)?,
    }
    set_socket_timeout(&socket, Timeout::Send, None).map_err(failed)?;
    Ok(socket)
}

/// Makes two connected sockets. The program keeps one and passes the other to its future peer, for instance
/// to a child that inherits it. Each end makes its end of a path or of a channel over its socket.
///
/// # Errors
/// [`Error::Io`] if socketpair(2) or setsockopt(2) fails.
pub fn socket_pair() -> Result<(OwnedFd, OwnedFd), Error> {
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .and_then(|(one, other)| {
            // Set before either socket is used, so that the first message has credentials too.
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
        // As many connections as the listener queues, and one more.
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
