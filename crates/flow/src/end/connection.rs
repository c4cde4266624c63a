//! A connected stream socket: how long its peer may be silent, and how it ends.
//!
//! A close(2) says the same of data that is complete and of data whose sender was killed. So a TCP socket resets its
//! connection when it is closed (SO_LINGER with no time, socket(7)), from its first moment until everything has gone:
//! whatever ends the process before is an error at the peer. Sockets of the Unix family cannot reset; for those there
//! are frames ([`super::framed`]).
//!
//! Invariant: only [`Connection::end_writing`] and a flow that has succeeded let a connection end in order. Called by
//! the ends of a flow and by [`crate::serve`].

use crate::sys::{self, TcpInfo};
use rustix::io::Errno;
use rustix::net::Shutdown;
use rustix::net::sockopt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// How long a TCP peer may give no sign of life, where nothing else is said.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);
/// Probes without an answer after which the kernel gives a silent peer up.
const PROBES: u32 = 3;
/// Interval between looks at a peer that takes nothing.
pub(crate) const LOOK: Duration = Duration::from_secs(1);

/// What a flow knows of a connection that it made itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Connection {
    /// Time without a sign of life after which a TCP peer counts as dead; none: a Unix socket, which hears at once.
    timeout: Option<Duration>,
}

/// A connected socket, and what is said over it.
#[derive(Debug)]
pub(crate) struct Connected {
    pub(crate) socket: OwnedFd,
    pub(crate) connection: Connection,
    /// Whether the stream goes in frames.
    pub(crate) whole: bool,
}

impl Connection {
    /// A Unix socket.
    pub(crate) fn unix() -> Connection {
        Connection { timeout: None }
    }

    /// Sets a TCP socket up: it resets until it is told to end in order, the kernel asks a silent peer for a sign of
    /// life, and small pieces are sent at once.
    pub(crate) fn tcp(socket: BorrowedFd<'_>, timeout: Option<Duration>) -> Result<Connection, Errno> {
        let timeout = timeout.unwrap_or(TIMEOUT);
        // Blocks are large, and the last one of a request must not wait for more.
        sockopt::set_tcp_nodelay(socket, true)?;
        sockopt::set_socket_linger(socket, Some(Duration::ZERO))?;
        sockopt::set_socket_keepalive(socket, true)?;
        let seconds = |part: Duration| Duration::from_secs(part.as_secs().clamp(1, 32_767));
        sockopt::set_tcp_keepidle(socket, seconds(timeout / 2))?;
        sockopt::set_tcp_keepintvl(socket, seconds(timeout / 2 / PROBES))?;
        sockopt::set_tcp_keepcnt(socket, PROBES)?;
        Ok(Connection { timeout: Some(timeout) })
    }

    /// Tells the peer that no more comes, and that this was all.
    ///
    /// # Errors
    /// The kernel's; that the peer has gone is none here, and seen at the next look.
    pub(crate) fn end_writing(self, socket: BorrowedFd<'_>) -> Result<(), Errno> {
        self.let_go(socket, true);
        match rustix::net::shutdown(socket, Shutdown::Write) {
            Ok(()) | Err(Errno::NOTCONN) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Decides how the socket ends when it is closed: in order, or by a reset.
    pub(crate) fn let_go(self, socket: BorrowedFd<'_>, in_order: bool) {
        if self.timeout.is_some() {
            let linger = if in_order { None } else { Some(Duration::ZERO) };
            // It fails for no socket of this family.
            let _ = sockopt::set_socket_linger(socket, linger);
        }
    }

    /// Whether an empty read was the end that the peer has said, when `taken` bytes had come before.
    ///
    /// An error of a socket is told once, and whoever writes to it may hear it: the reader then gets an end. The
    /// kernel counts the end (FIN) as one byte received, which a connection that was reset does not have.
    pub(crate) fn has_ended_in_order(self, socket: BorrowedFd<'_>, taken: u64) -> bool {
        match self.timeout.and_then(|_| sys::tcp_info(socket).ok()) {
            Some(TcpInfo { received, .. }) => received > taken,
            None => true,
        }
    }

    /// Whether a peer that has something to acknowledge has given no sign of life for too long. One that takes nothing
    /// but answers the kernel's probes lives.
    pub(crate) fn is_dead(self, socket: BorrowedFd<'_>) -> bool {
        let Some(timeout) = self.timeout else { return false };
        sys::tcp_info(socket)
            .is_ok_and(|info| info.since_heard >= timeout && (info.resent > 0 || info.probes > 1))
    }
}

impl AsFd for Connected {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Closes a connection that is refused; over TCP whoever asked hears it as a reset.
pub(crate) fn refuse(connected: Connected) {
    connected.connection.let_go(connected.as_fd(), false);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (here, listener.accept().unwrap().0)
    }

    #[test]
    fn what_is_dropped_resets_and_what_has_ended_does_not() {
        let (mut here, mut there) = pair();
        let connection = Connection::tcp(here.as_fd(), None).unwrap();
        here.write_all(b"half").unwrap();
        drop(here);
        let mut came = Vec::new();
        let error = there.read_to_end(&mut came).unwrap_err();
        assert_eq!((error.kind(), &came[..]), (std::io::ErrorKind::ConnectionReset, &b"half"[..]));
        let (mut here, mut there) = pair();
        Connection::tcp(here.as_fd(), None).unwrap();
        here.write_all(b"whole").unwrap();
        connection.end_writing(here.as_fd()).unwrap();
        drop(here);
        assert_eq!(there.read_to_end(&mut came).unwrap(), 5);
    }

    #[test]
    fn an_end_is_told_from_an_error_that_somebody_else_has_heard() {
        for resets in [false, true] {
            let (mut here, mut there) = pair();
            let connection = Connection::tcp(here.as_fd(), None).unwrap();
            there.write_all(b"abc").unwrap();
            if resets {
                sockopt::set_socket_linger(&there, Some(Duration::ZERO)).unwrap();
            }
            drop(there);
            let mut three = [0; 3];
            here.read_exact(&mut three).unwrap();
            std::thread::sleep(Duration::from_millis(50));
            // Another direction's look takes the error away.
            assert_eq!(sockopt::socket_error(&here).unwrap().is_err(), resets);
            assert_eq!(here.read(&mut three).unwrap(), 0);
            assert_eq!(connection.has_ended_in_order(here.as_fd(), 3), !resets);
        }
    }
}
