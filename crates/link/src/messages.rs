//! Requests and replies as messages over a socket, with descriptors but without rings.
//!
//! The credentials of the peer are those of the moment when it connected, or when the pair of sockets was
//! made.

use crate::error::Error;
use crate::link::Packet;
use crate::socket::{self, Credentials, NextMessage};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// Greatest number of a peer's groups that are read.
const GROUPS_MAX: usize = 1 << 16;

/// A connected socket of sequenced packets.
#[derive(Debug)]
pub struct Messages {
    socket: OwnedFd,
    bytes_max: usize,
}

impl Messages {
    /// Wraps a socket of [`crate::connect`], [`crate::Acceptor::accept`] or [`crate::socket_pair`]. Messages
    /// have at most `bytes_max` bytes; a longer one from the peer is an error.
    pub fn over(socket: OwnedFd, bytes_max: usize) -> Messages {
        Messages { socket, bytes_max }
    }

    /// Returns the credentials of the peer, as the kernel recorded them when the connection was made.
    ///
    /// # Errors
    /// [`Error::Io`] if getsockopt(2) fails.
    pub fn peer(&self) -> Result<Credentials, Error> {
        let peer = rustix::net::sockopt::socket_peercred(&self.socket)
            .map_err(|error| Error::io("learn who the peer is", error))?;
        Ok(Credentials {
            pid: peer.pid.as_raw_nonzero().get() as u32,
            uid: peer.uid.as_raw(),
            gid: peer.gid.as_raw(),
        })
    }

    /// Returns the supplementary groups of the peer.
    ///
    /// # Errors
    /// [`Error::Io`] if getsockopt(2) fails, or the peer has more than 65536 groups.
    pub fn peer_groups(&self) -> Result<Vec<u32>, Error> {
        let mut groups: Vec<libc::gid_t> = vec![0; 64];
        loop {
            let mut bytes = size_of_val(groups.as_slice()) as libc::socklen_t;
            // SAFETY: the kernel writes at most `bytes` bytes to `groups`, which has this size.
            let answer = unsafe {
                libc::getsockopt(
                    self.socket.as_raw_fd(),
                    libc::SOL_SOCKET,
                    libc::SO_PEERGROUPS,
                    groups.as_mut_ptr().cast(),
                    &raw mut bytes,
                )
            };
            let count = bytes as usize / size_of::<libc::gid_t>();
            if answer == 0 {
                groups.truncate(count);
                return Ok(groups);
            }
            let error = std::io::Error::last_os_error();
            // With ERANGE the kernel returns the size that is needed.
            if error.raw_os_error() != Some(libc::ERANGE) || count <= groups.len() || count > GROUPS_MAX {
                return Err(Error::io("learn the peer's groups", error));
            }
            groups.resize(count, 0);
        }
    }

    /// Looks at the next message without receiving it, so that a caller that must not block can leave a
    /// message with descriptors to another thread. Needs [`Messages::leave_credentials_out`] before:
    /// otherwise every message looks as if it had descriptors.
    ///
    /// # Errors
    /// [`Error::Io`] if recvmsg(2) fails.
    pub fn peek(&self) -> Result<NextMessage, Error> {
        socket::front(self.socket.as_fd()).map_err(|error| Error::io("look at a message", error))
    }

    /// Stops the kernel from attaching credentials to received messages, as [`Messages::peek`] needs.
    ///
    /// # Errors
    /// [`Error::Io`] if setsockopt(2) fails.
    pub fn leave_credentials_out(&self) -> Result<(), Error> {
        rustix::net::sockopt::set_socket_passcred(&self.socket, false)
            .map_err(|error| Error::io("leave out credentials", error))
    }

    /// Lets the peer send descriptors, or makes the kernel refuse them (EPERM at the sender). False: the
    /// kernel is older than Linux 6.16, and always lets them in.
    ///
    /// # Errors
    /// [`Error::Io`] if setsockopt(2) fails for another reason.
    pub fn let_descriptors_in(&self, are_let_in: bool) -> Result<bool, Error> {
        socket::let_descriptors_in(&self.socket, are_let_in)
    }

    /// Sends a message, and waits for room at most `limit`.
    ///
    /// # Errors
    /// [`Error::TimedOut`] if there is no room in time; [`Error::Closed`] if the peer has disconnected;
    /// [`Error::Io`] if a system call fails.
    pub fn send(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>], limit: Duration) -> Result<(), Error> {
        let end = Instant::now() + limit;
        loop {
            match socket::send(self.as_fd(), bytes, descriptors) {
                Ok(()) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN | Errno::NOBUFS | Errno::TOOMANYREFS) => self.wait(PollFlags::OUT, end)?,
                Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN) => return Err(Error::Closed),
                Err(error) => return Err(Error::io("send a message", error)),
            }
        }
    }

    /// Receives the next message, and waits for it at most `limit`.
    ///
    /// # Errors
    /// [`Error::TimedOut`] if no message arrives in time; [`Error::Closed`] if the peer has disconnected and
    /// all messages were received; [`Error::Incompatible`] if the message is too long; [`Error::Io`] if a
    /// system call fails.
    pub fn receive(&self, limit: Duration) -> Result<Packet, Error> {
        let end = Instant::now() + limit;
        loop {
            if let Some(packet) = self.try_receive()? {
                return Ok(packet);
            }
            self.wait(PollFlags::IN, end)?;
        }
    }

    /// Like [`Messages::receive`], but does not wait: `None` if no message has arrived.
    ///
    /// # Errors
    /// Same as [`Messages::receive`], without [`Error::TimedOut`].
    pub fn try_receive(&self) -> Result<Option<Packet>, Error> {
        loop {
            return match socket::receive(self.as_fd(), self.bytes_max) {
                Ok(Some(received)) => {
                    Ok(Some(Packet { bytes: received.bytes, descriptors: received.descriptors }))
                }
                Ok(None) | Err(Errno::CONNRESET | Errno::NOTCONN) => Err(Error::Closed),
                Err(Errno::AGAIN) => Ok(None),
                Err(Errno::INTR) => continue,
                Err(Errno::MSGSIZE) => Err(Error::Incompatible(format!(
                    "the peer sent a message of more than {} bytes",
                    self.bytes_max
                ))),
                Err(error) => Err(Error::io("receive a message", error)),
            };
        }
    }

    fn wait(&self, flags: PollFlags, end: Instant) -> Result<(), Error> {
        let left = end.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        match poll(&mut [PollFd::new(&self.socket, flags)], Some(&left)) {
            Ok(0) => Err(Error::TimedOut),
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(Error::io("wait for the peer", error)),
        }
    }
}

impl AsFd for Messages {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connect::socket_pair;

    const LIMIT: Duration = Duration::from_secs(5);

    fn pair() -> (Messages, Messages) {
        let (one, other) = socket_pair().unwrap();
        (Messages::over(one, 4096), Messages::over(other, 4096))
    }

    #[test]
    fn messages_and_descriptors_arrive_and_the_peer_is_known() {
        let (one, other) = pair();
        let null = std::fs::File::open("/dev/null").unwrap();
        assert!(other.try_receive().unwrap().is_none());
        one.send(&[7; 4096], &[null.as_fd()], LIMIT).unwrap();
        let packet = other.receive(LIMIT).unwrap();
        assert_eq!((packet.bytes.len(), packet.descriptors.len()), (4096, 1));
        assert_eq!(other.peer().unwrap(), Credentials::own());
        let mut groups = other.peer_groups().unwrap();
        let mut own: Vec<u32> =
            rustix::process::getgroups().unwrap().into_iter().map(|group| group.as_raw()).collect();
        groups.sort_unstable();
        own.sort_unstable();
        assert_eq!(groups, own);
    }

    #[test]
    fn waiting_has_an_end_and_so_has_the_connection() {
        let (one, other) = pair();
        let short = Duration::from_millis(10);
        assert!(matches!(other.receive(short), Err(Error::TimedOut)));
        while one.send(&[1; 4096], &[], short).is_ok() {}
        assert!(matches!(one.send(&[1; 4096], &[], short), Err(Error::TimedOut)));
        let (last, end) = pair();
        last.send(b"x", &[], LIMIT).unwrap();
        drop(last);
        assert_eq!(end.receive(LIMIT).unwrap().bytes, b"x");
        assert!(matches!(end.receive(LIMIT), Err(Error::Closed)));
        assert!(matches!(end.send(b"x", &[], LIMIT), Err(Error::Closed)));
    }

    #[test]
    fn one_that_is_too_long_is_refused() {
        let (one, other) = socket_pair().unwrap();
        let (one, other) = (Messages::over(one, 4096), Messages::over(other, 100));
        one.send(&[1; 101], &[], LIMIT).unwrap();
        assert!(matches!(other.receive(LIMIT), Err(Error::Incompatible(_))));
    }
}
