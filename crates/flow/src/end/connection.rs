//! A connected stream socket: detection of a dead peer, and the way in which the connection ends.
//!
//! The end of a stream is the same after a close(2) by a sender with complete data and after a kill of the
//! sender. A TCP socket is therefore set up to reset the connection when it is closed (SO_LINGER with zero
//! time, socket(7)), until all data has been sent: if the process ends before that, the peer sees an error.
//! Unix sockets have no reset; for those there are frames ([`super::framed`]).
//!
//! Invariant: a connection ends in order only after [`Connection::end_writing`] or a flow that has succeeded.
//! Called by the ends of a flow and by [`crate::serve`].

use crate::sys::{self, TcpInfo};
use rustix::io::Errno;
use rustix::net::Shutdown;
use rustix::net::sockopt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Default time without a sign of life after which a TCP peer counts as dead.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);
/// Number of unanswered keepalive probes after which the kernel gives up a silent peer.
const PROBES: u32 = 3;
/// Interval between checks of a peer that accepts no data.
pub(crate) const PEER_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Settings of a connection that the flow has made itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Connection {
    /// Time without a sign of life after which a TCP peer counts as dead; `None` for a Unix socket, whose
    /// kernel knows at once when the peer closes.
    timeout: Option<Duration>,
}

/// A connected socket with its settings.
#[derive(Debug)]
pub(crate) struct Connected {
    pub(crate) socket: OwnedFd,
    pub(crate) connection: Connection,
    /// True if the data travels in frames with an end mark.
    pub(crate) whole: bool,
}

impl Connection {
    /// Returns the settings of a Unix socket.
    pub(crate) fn unix() -> Connection {
        Connection { timeout: None }
    }

    /// Sets up a TCP socket: closing it resets the connection, the kernel probes a silent peer, and small
    /// pieces are sent at once. `timeout` is the time without a sign of life after which the peer counts as
    /// dead (`None`: [`TIMEOUT`]).
    ///
    /// # Errors
    /// The errno of setsockopt(2).
    pub(crate) fn tcp(socket: BorrowedFd<'_>, timeout: Option<Duration>) -> Result<Connection, Errno> {
        let timeout = timeout.unwrap_or(TIMEOUT);
        // The last piece of a stream must not wait for more data (Nagle's algorithm), and all others are
        // large.
        sockopt::set_tcp_nodelay(socket, true)?;
        sockopt::set_socket_linger(socket, Some(Duration::ZERO))?;
        sockopt::set_socket_keepalive(socket, true)?;
        let seconds = |part: Duration| Duration::from_secs(part.as_secs().clamp(1, 32_767));
        sockopt::set_tcp_keepidle(socket, seconds(timeout / 2))?;
        sockopt::set_tcp_keepintvl(socket, seconds(timeout / 2 / PROBES))?;
        sockopt::set_tcp_keepcnt(socket, PROBES)?;
        Ok(Connection { timeout: Some(timeout) })
    }

    /// Tells the peer that the stream has ended, in order.
    ///
    /// # Errors
    /// The errno of shutdown(2), except ENOTCONN: a peer that has gone is found by the next check of the
    /// socket.
    pub(crate) fn end_writing(self, socket: BorrowedFd<'_>) -> Result<(), Errno> {
        self.set_linger(socket, true);
        match rustix::net::shutdown(socket, Shutdown::Write) {
            Ok(()) | Err(Errno::NOTCONN) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Decides whether closing the socket ends a TCP connection in order or by a reset. Does nothing for a
    /// Unix socket.
    pub(crate) fn set_linger(self, socket: BorrowedFd<'_>, in_order: bool) {
        if self.timeout.is_some() {
            let linger = if in_order { None } else { Some(Duration::ZERO) };
            // SO_LINGER cannot fail on an open TCP socket.
            let _ = sockopt::set_socket_linger(socket, linger);
        }
    }

    /// Returns true if an empty read was an orderly end by the peer, where `taken` bytes had been read
    /// before.
    ///
    /// The kernel reports an error of a socket only once, and a writer of the same socket may have taken it;
    /// the reader then sees an end of stream. The kernel counts an orderly end (FIN) as one received byte,
    /// which a connection that was reset lacks.
    pub(crate) fn has_ended_in_order(self, socket: BorrowedFd<'_>, taken: u64) -> bool {
        match self.timeout.and_then(|_| sys::tcp_info(socket).ok()) {
            Some(TcpInfo { received, .. }) => received > taken,
            None => true,
        }
    }

    /// Returns true if a TCP peer that has something to acknowledge gave no sign of life for the timeout. A
    /// peer that accepts no data but answers the kernel's probes is alive.
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

/// Closes a connection that is refused; a TCP peer sees a reset.
pub(crate) fn reset(connected: Connected) {
    connected.connection.set_linger(connected.as_fd(), false);
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
            // The other direction takes the error of the socket.
            assert_eq!(sockopt::socket_error(&here).unwrap().is_err(), resets);
            assert_eq!(here.read(&mut three).unwrap(), 0);
            assert_eq!(connection.has_ended_in_order(here.as_fd(), 3), !resets);
        }
    }
}
