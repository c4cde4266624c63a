//! Connection of one client: its credentials, its state, and the messages that it sends one after the other.

use crate::control::descriptors;
use crate::core::order::ClientKey;
use crate::helpers::{DropByHelper, Helpers};
use crate::limits::Limits;
use bywash_device::FileUser;
use bywash_link::{Credentials, Error, Messages, NextMessage};
use bywash_protocol::{ControlReply, Refusal, RefusalKind};
use bywash_volume::{DeviceNumber, User};
use std::collections::HashMap;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// State of a connection.
#[derive(Debug)]
pub(crate) enum HandshakeState {
    /// The client has not sent its hello message, and must send it before this time.
    New(Instant),
    /// The client has sent its hello message.
    Known(Established),
}

/// State of a client that has sent its hello message.
#[derive(Debug)]
pub(crate) struct Established {
    pub(crate) key: ClientKey,
    pub(crate) limits: Limits,
    /// True if the client has a channel, or one is being set up.
    pub(crate) has_channel: bool,
    /// Size of the channel's memory in bytes, arena and rings; 0 without a channel.
    pub(crate) memory: u64,
    /// Devices made of files that the client has passed, by the number of their grants.
    pub(crate) devices: HashMap<u64, DeviceNumber>,
}

/// Descriptors that a client has passed, which a helper of the client's user closes.
pub(crate) type PassedDescriptors = DropByHelper<Vec<OwnedFd>>;

/// Connection of a client.
#[derive(Debug)]
pub(crate) struct Connection {
    /// Control socket; shared with a helper while the helper receives a message with descriptors.
    pub(crate) messages: DropByHelper<Arc<Messages>>,
    pub(crate) credentials: Credentials,
    pub(crate) groups: Vec<u32>,
    pub(crate) state: HandshakeState,
    /// True while another thread works out the reply. The control thread receives no further message
    /// meanwhile.
    pub(crate) is_waiting: bool,
    /// True if the socket's queue may contain descriptors, because the kernel lets the client send them.
    may_have_descriptors: bool,
}

impl Drop for Connection {
    fn drop(&mut self) {
        if !self.may_have_descriptors {
            // The queue contains no descriptors, so closing the socket cannot block.
            drop(self.messages.take());
        }
    }
}

impl Connection {
    /// Reads the client's credentials from the kernel. Where the kernel supports it (Linux 6.16), the client
    /// cannot send descriptors yet.
    pub(crate) fn new(messages: Messages, greeting: Duration, helpers: Helpers) -> Result<Connection, Error> {
        messages.leave_credentials_out()?;
        let (credentials, groups) = (messages.peer()?, messages.peer_groups()?);
        // Messages may have been sent before the listening socket refused descriptors, and may have some
        // attached.
        let lets_in = !messages.let_descriptors_in(false)? || messages.peek()? != NextMessage::Empty;
        let messages = DropByHelper::new(Arc::new(messages), credentials.uid, helpers);
        let state = HandshakeState::New(Instant::now() + greeting);
        Ok(Connection {
            messages,
            credentials,
            groups,
            state,
            is_waiting: false,
            may_have_descriptors: lets_in,
        })
    }

    /// Lets the client send descriptors from now on.
    pub(crate) fn allow_descriptors(&mut self) -> Result<(), Error> {
        self.may_have_descriptors = true;
        self.messages.let_descriptors_in(true).map(drop)
    }

    /// Returns the identity that a volume's owner, group and mode are checked against. The server's own
    /// process counts as root, because it opens volumes on behalf of the virtual machines that its
    /// administrator exports them to.
    pub(crate) fn user(&self) -> User<'_> {
        match self.credentials.pid == std::process::id() {
            true => User { uid: 0, gid: 0, groups: &[] },
            false => User { uid: self.credentials.uid, gid: self.credentials.gid, groups: &self.groups },
        }
    }

    /// Returns the identity whose rights apply when a file that the client has passed is written.
    pub(crate) fn holder(&self) -> FileUser {
        let (Credentials { uid, gid, .. }, groups) = (self.credentials, self.groups.clone());
        FileUser { uid, gid, groups }
    }

    /// Returns the greatest number of descriptors of this process that the connection can occupy.
    pub(crate) fn descriptors(&self) -> u64 {
        let known = match &self.state {
            HandshakeState::Known(known) => {
                let files = known.devices.len() as u64;
                u64::from(known.has_channel) * descriptors::OF_CHANNEL + files * descriptors::OF_FILE
            }
            HandshakeState::New(_) => 0,
        };
        // A helper may hold the descriptors that are attached to the message which is being carried out.
        descriptors::OF_CONNECTION + known + u64::from(self.is_waiting) * descriptors::OF_MESSAGE
    }

    /// Returns true if the client may administer the server: its user is root or the one who runs the server.
    pub(crate) fn is_administrator(&self) -> bool {
        self.credentials.uid == 0 || self.credentials.uid == Credentials::own().uid
    }

    pub(crate) fn known(&mut self) -> Option<&mut Established> {
        match &mut self.state {
            HandshakeState::Known(known) => Some(known),
            HandshakeState::New(_) => None,
        }
    }

    /// Sends a message, without waiting for a client that does not receive its messages.
    pub(crate) fn answer(&self, answer: &ControlReply, descriptors: &[BorrowedFd<'_>]) -> Result<(), Error> {
        let bytes = answer.to_bytes().or_else(|error| {
            // Names are short and lists are sent in files, so a message that is too long is a bug of the
            // server.
            tracing::error!("cannot answer: {error}");
            ControlReply::Refused(Refusal::new(RefusalKind::Failed, "the server's answer is too long"))
                .to_bytes()
        });
        let bytes = bytes.map_err(|error| Error::Incompatible(error.to_string()))?;
        self.messages.send(&bytes, descriptors, Duration::ZERO)
    }
}
