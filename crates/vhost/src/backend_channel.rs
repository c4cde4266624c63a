//! The channel by which the disk notifies a frontend: a socket that the frontend passes (`SET_BACKEND_REQ_FD`).
//!
//! The crate `vhost` receives this message as well, and then keeps the socket to itself; it cannot send the one message
//! that a disk needs (`BACKEND_CONFIG_CHANGE_MSG`). So the message is received here, before the crate sees it.
//!
//! Source: QEMU's docs/interop/vhost-user.rst. Invariant: nothing is sent that could block. Only the frontend's own thread
//! receives, uses and closes the socket, while it does not have the disk. Called by `frontend`.

use bywash_export::Error;
use rustix::io::Errno;
use rustix::net::sockopt::{socket_domain, socket_type};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketType, recv,
    recvmsg, send,
};
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

/// Size of a message's header, in bytes: request, flags and size of what follows, 32 bits each.
const HEADER_BYTES: usize = 12;
/// Number of the message that passes the socket.
const SET_BACKEND_REQ_FD: u32 = 21;
/// Number of the message that tells of a changed configuration.
const CONFIG_CHANGE: u32 = 2;
/// Flags of a header: the version of the protocol, a reply, and the demand for one.
const VERSION: u32 = 1;
const REPLY: u32 = 4;
const NEEDS_REPLY: u32 = 8;
/// Greatest number of descriptors that come with a message and are closed here.
const DESCRIPTORS_MAX: usize = 8;

/// The socket for notifications.
#[derive(Debug)]
pub(crate) struct BackendChannel(OwnedFd);

impl BackendChannel {
    /// Receives the socket, if that is the next message at `frontend`; `None` if another message is, or only a part of one.
    /// With `has_acks` the message is acknowledged if the frontend demands it.
    ///
    /// # Errors
    /// [`Error::Peer`] if the message is malformed, or passes something else than a Unix socket; [`Error::Io`] if a system
    /// call fails.
    pub(crate) fn receive(frontend: &UnixStream, has_acks: bool) -> Result<Option<BackendChannel>, Error> {
        let mut header = [0; HEADER_BYTES];
        let peeked = recv(frontend, &mut header, RecvFlags::PEEK | RecvFlags::DONTWAIT);
        if peeked.map(|(bytes, _)| bytes) != Ok(HEADER_BYTES) || word(&header, 0) != SET_BACKEND_REQ_FD {
            // An end or an error of the connection is found again by whoever receives next.
            return Ok(None);
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        recvmsg(frontend, &mut [IoSliceMut::new(&mut header)], &mut control, flags)
            .map_err(|error| Error::io("receive from a frontend", error))?;
        let mut passed = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                passed.extend(descriptors);
            }
        }
        let (flags, size) = (word(&header, 4), word(&header, 8));
        let is_socket = |socket: &OwnedFd| {
            socket_domain(socket) == Ok(AddressFamily::UNIX) && socket_type(socket) == Ok(SocketType::STREAM)
        };
        let socket = match (passed.pop(), passed.is_empty(), size) {
            (Some(socket), true, 0) if is_socket(&socket) => socket,
            _ => return Err(Error::Peer("it passes no Unix socket for the disk's notifications".into())),
        };
        if has_acks && flags & NEEDS_REPLY != 0 {
            acknowledge(frontend)?;
        }
        Ok(Some(BackendChannel(socket)))
    }

    /// Tells the frontend that the disk's configuration has changed: it reads it again, and notifies the guest.
    pub(crate) fn tell_of_change(&self) {
        let message = [CONFIG_CHANGE, VERSION, 0].map(u32::to_le_bytes).concat();
        // A frontend that has closed its end, or receives nothing, learns of the size when it connects again.
        let _ = send(&self.0, &message, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }
}

fn word(header: &[u8; HEADER_BYTES], at: usize) -> u32 {
    u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
}

/// Sends the acknowledgement of a message that was carried out.
fn acknowledge(frontend: &UnixStream) -> Result<(), Error> {
    let reply = [SET_BACKEND_REQ_FD, VERSION | REPLY, 8, 0, 0].map(u32::to_le_bytes).concat();
    match send(frontend, &reply, SendFlags::NOSIGNAL) {
        Ok(_) | Err(Errno::PIPE | Errno::CONNRESET) => Ok(()),
        Err(error) => Err(Error::io("send to a frontend", error)),
    }
}
