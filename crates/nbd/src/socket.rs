//! Sockets: where clients connect, and one client's connection.
//!
//! Invariant: no call on a [`Socket`] blocks. A client of a Unix socket can send descriptors, whose closing can
//! block for as long as the client wishes. The kernel refuses them from Linux 6.16 on. Older kernels let them
//! in: then they are received, never used, and closed by a thread of their own, together with the connection.
//! Called by `export`, `service` and `connection`.

use crate::raw::{Moved, Raw};
use crate::tls::{Session, Tls};
use bywash_export::{Error, prepare_listener};
use bywash_sync::{AtomicUsize, Ordering};
use rustix::io::Errno;
use rustix::net::sockopt::{set_socket_keepalive, set_tcp_nodelay};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendFlags, SocketFlags,
    accept_with, recvmsg, sendmsg,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::thread;

/// Greatest number of threads that close what clients have sent; with more, no client is accepted.
pub const CLOSING_MAX: usize = 16;
/// Number of descriptors that one message can carry (SCM_MAX_FD of the kernel).
const DESCRIPTORS_MAX: usize = 253;

/// Socket at which clients connect.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    is_tcp: bool,
}

impl From<UnixListener> for Listener {
    fn from(listener: UnixListener) -> Listener {
        Listener { socket: listener.into(), is_tcp: false }
    }
}

impl From<TcpListener> for Listener {
    fn from(listener: TcpListener) -> Listener {
        Listener { socket: listener.into(), is_tcp: true }
    }
}

/// Checks that only this machine reaches a TCP address, for a server that neither encrypts nor checks clients.
///
/// # Errors
/// [`Error::Exposed`] if the address is not one of the loopback interface.
pub fn check_loopback(address: &SocketAddr) -> Result<(), Error> {
    let ip = match address.ip() {
        std::net::IpAddr::V6(ip) => ip.to_ipv4_mapped().map_or(address.ip(), Into::into),
        ip => ip,
    };
    if ip.is_loopback() { Ok(()) } else { Err(Error::Exposed(*address)) }
}

impl Listener {
    /// Prepares the socket: accepting does not block, and descriptors are kept out where the kernel can.
    pub(crate) fn prepare(&self) -> Result<Closing, Error> {
        let are_kept_out = prepare_listener(&self.socket)?;
        Ok(Closing { threads: (!are_kept_out).then(Arc::default) })
    }

    /// Accepts a client; `None` if none waits.
    pub(crate) fn accept(&self) -> io::Result<Option<Socket>> {
        let socket = match accept_with(&self.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(socket) => socket,
            Err(Errno::AGAIN | Errno::CONNABORTED | Errno::INTR) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        if self.is_tcp {
            // Replies are sent as soon as they are there. A client whose machine is gone is found out.
            set_tcp_nodelay(&socket, true)?;
            set_socket_keepalive(&socket, true)?;
        }
        Ok(Some(Socket { descriptor: socket, session: None }))
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Connection to a client.
#[derive(Debug)]
pub(crate) struct Socket {
    descriptor: OwnedFd,
    /// TLS, once it has begun.
    session: Option<Box<Session>>,
}

impl Socket {
    /// Receives bytes. `takes_descriptors` tells that the kernel lets them in, so that they must be received.
    #[inline]
    pub(crate) fn receive(&mut self, parts: &mut [IoSliceMut<'_>], takes_descriptors: bool) -> Moved {
        if let Some(session) = &mut self.session {
            return session.receive(Raw(self.descriptor.as_fd()), parts);
        }
        if takes_descriptors {
            return self.receive_with_descriptors(parts);
        }
        let mut control = RecvAncillaryBuffer::default();
        received(
            recvmsg(&self.descriptor, parts, &mut control, RecvFlags::DONTWAIT).map(|message| message.bytes),
        )
    }

    #[cold]
    fn receive_with_descriptors(&mut self, parts: &mut [IoSliceMut<'_>]) -> Moved {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let result = recvmsg(&self.descriptor, parts, &mut control, flags).map(|message| message.bytes);
        let mut descriptors = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(passed) = message {
                descriptors.extend(passed);
            }
        }
        if descriptors.is_empty() { received(result) } else { Moved::Descriptors(descriptors) }
    }

    /// Sends bytes.
    #[inline]
    pub(crate) fn send(&mut self, parts: &mut [IoSlice<'_>]) -> Moved {
        if let Some(session) = &mut self.session {
            return session.send(Raw(self.descriptor.as_fd()), parts);
        }
        let mut control = SendAncillaryBuffer::default();
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match sendmsg(&self.descriptor, parts, &mut control, flags) {
            Ok(bytes) => Moved::Bytes(bytes),
            Err(Errno::AGAIN | Errno::INTR) => Moved::Blocked,
            Err(Errno::PIPE | Errno::CONNRESET) => Moved::Closed,
            Err(error) => Moved::Failed(error.into()),
        }
    }

    /// Begins TLS.
    ///
    /// # Errors
    /// [`Error::Tls`] if no session can be made.
    pub(crate) fn start_tls(&mut self, tls: &Tls) -> Result<(), Error> {
        self.session = Some(Box::new(tls.session()?));
        Ok(())
    }

    /// Returns true if there are bytes to be received of which poll(2) does not tell.
    #[inline]
    pub(crate) fn has_received(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.has_received())
    }

    /// Returns true if bytes that count as sent wait to be sent.
    #[inline]
    pub(crate) fn wants_to_send(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.wants_to_send())
    }

    /// Ends TLS, so that the client knows that nothing is missing.
    pub(crate) fn end_tls(&mut self) {
        if let Some(session) = &mut self.session {
            session.close(Raw(self.descriptor.as_fd()));
        }
    }
}

#[inline]
fn received(result: rustix::io::Result<usize>) -> Moved {
    match result {
        Ok(0) | Err(Errno::CONNRESET) => Moved::Closed,
        Ok(bytes) => Moved::Bytes(bytes),
        Err(Errno::AGAIN | Errno::INTR) => Moved::Blocked,
        Err(error) => Moved::Failed(error.into()),
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Closing of connections: at once, or by threads of their own where closing can block.
#[derive(Clone, Debug)]
pub(crate) struct Closing {
    /// Number of threads that are closing; `None` if closing cannot block.
    threads: Option<Arc<AtomicUsize>>,
}

impl Closing {
    /// Returns true if clients can send descriptors.
    pub(crate) fn takes_descriptors(&self) -> bool {
        self.threads.is_some()
    }

    /// Returns true if no more clients may be accepted, since too many threads are closing.
    pub(crate) fn is_full(&self) -> bool {
        self.threads.as_ref().is_some_and(|threads| threads.load(Ordering::Relaxed) >= CLOSING_MAX)
    }

    /// Closes a connection, and the descriptors that its client has sent.
    pub(crate) fn close(&self, socket: Socket, descriptors: Vec<OwnedFd>) {
        let Some(threads) = self.threads.clone() else { return drop((socket, descriptors)) };
        threads.fetch_add(1, Ordering::Relaxed);
        let theirs = threads.clone();
        let close = move || {
            drop((socket, descriptors));
            theirs.fetch_sub(1, Ordering::Relaxed);
        };
        if thread::Builder::new().name("nbd closing".into()).spawn(close).is_err() {
            // They were closed by this thread, when the attempt to make another one dropped them.
            threads.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::SendAncillaryMessage;
    use std::os::unix::net::UnixStream;

    #[test]
    fn only_the_loopback_interface_is_not_exposed() {
        for (address, is_local) in [
            ("127.0.0.1:1", true),
            ("127.3.2.1:1", true),
            ("[::1]:1", true),
            ("[::ffff:127.0.0.1]:1", true),
            ("0.0.0.0:1", false),
            ("[::]:1", false),
            ("192.0.2.1:1", false),
            ("[::ffff:192.0.2.1]:1", false),
        ] {
            let checked = check_loopback(&address.parse().unwrap());
            assert_eq!(checked.is_ok(), is_local, "{address}");
        }
    }

    #[test]
    fn descriptors_are_received_to_be_closed_elsewhere() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut socket = Socket { descriptor: ours.into(), session: None };
        let passed = [theirs.as_fd(); 3];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&passed)));
        sendmsg(&theirs, &[IoSlice::new(b"x")], &mut control, SendFlags::empty()).unwrap();
        let mut byte = [0];
        let moved = socket.receive(&mut [IoSliceMut::new(&mut byte)], true);
        let Moved::Descriptors(descriptors) = moved else { panic!("{moved:?}") };
        assert_eq!(descriptors.len(), 3);
        let closing = Closing { threads: Some(Arc::default()) };
        assert!(closing.takes_descriptors() && !closing.is_full());
        closing.close(socket, descriptors);
        let threads = closing.threads.as_ref().unwrap();
        while threads.load(Ordering::Relaxed) > 0 {
            thread::yield_now();
        }
        // The last copies of the other end are gone as well.
        let mut rest = Vec::new();
        assert_eq!(io::Read::read_to_end(&mut &theirs, &mut rest).unwrap(), 0);
        threads.store(CLOSING_MAX, Ordering::Relaxed);
        assert!(closing.is_full());
    }
}
