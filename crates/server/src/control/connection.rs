//! Connection of one client: its credentials, its state, and the messages that it sends one after the other.

use crate::control::descriptors;
use crate::core::order::ClientKey;
use crate::helpers::{Foreign, Helpers};
use crate::limits::Limits;
use bywash_device::FileUser;
use bywash_link::{Credentials, Error, Messages, NextMessage};
use bywash_protocol::{Answer, Code, Refused};
use bywash_volume::{DeviceNumber, Person};
use std::collections::HashMap;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// State of a connection.
#[derive(Debug)]
pub(crate) enum State {
    /// The client has not sent its hello message, and must send it before this time.
    New(Instant),
    /// The client has sent its hello message.
    Known(Known),
}

/// State of a client that has sent its hello message.
#[derive(Debug)]
pub(crate) struct Known {
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
pub(crate) type Passed = Foreign<Vec<OwnedFd>>;

/// Connection of a client.
#[derive(Debug)]
pub(crate) struct Connection {
    /// Control socket; shared with a helper while the helper receives a message with descriptors.
    pub(crate) messages: Foreign<Arc<Messages>>,
    pub(crate) credentials: Credentials,
    pub(crate) groups: Vec<u32>,
    pub(crate) state: State,
    /// True while another thread works out the reply. The control thread receives no further message
    /// meanwhile.
    pub(crate) is_waiting: bool,
    /// True if the socket's queue may contain descriptors, because the kernel lets the client send them.
    lets_in: bool,
}

impl Drop for Connection {
    fn drop(&mut self) {
        if !self.lets_in {
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
        let messages = Foreign::new(Arc::new(messages), credentials.uid, helpers);
        let state = State::New(Instant::now() + greeting);
        Ok(Connection { messages, credentials, groups, state, is_waiting: false, lets_in })
    }

    /// Lets the client send descriptors from now on.
    pub(crate) fn let_descriptors_in(&mut self) -> Result<(), Error> {
        self.lets_in = true;
        self.messages.let_descriptors_in(true).map(drop)
    }

    /// Returns the identity that a volume's owner, group and mode are checked against. The server's own
    /// process counts as root, because it opens volumes on behalf of the virtual machines that its
    /// administrator exports them to.
    pub(crate) fn person(&self) -> Person<'_> {
        match self.credentials.pid == std::process::id() {
            true => Person { uid: 0, gid: 0, groups: &[] },
            false => Person { uid: self.credentials.uid, gid: self.credentials.gid, groups: &self.groups },
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
            State::Known(known) => {
                let files = known.devices.len() as u64;
                u64::from(known.has_channel) * descriptors::OF_CHANNEL + files * descriptors::OF_FILE
            }
            State::New(_) => 0,
        };
        // A helper may hold the descriptors that are attached to the message which is being carried out.
        descriptors::OF_CONNECTION + known + u64::from(self.is_waiting) * descriptors::OF_MESSAGE
    }

    /// Returns true if the client may administer the server: its user is root or the one who runs the server.
    pub(crate) fn is_administrator(&self) -> bool {
        self.credentials.uid == 0 || self.credentials.uid == Credentials::own().uid
    }

    pub(crate) fn known(&mut self) -> Option<&mut Known> {
        match &mut self.state {
            State::Known(known) => Some(known),
            State::New(_) => None,
        }
    }

    /// Sends a message, without waiting for a client that does not receive its messages.
    pub(crate) fn answer(&self, answer: &Answer, descriptors: &[BorrowedFd<'_>]) -> Result<(), Error> {
        let bytes = answer.to_bytes().or_else(|error| {
            // Names are short and lists are sent in files, so a message that is too long is a bug of the
            // server.
            tracing::error!("cannot answer: {error}");
            Answer::Refused(Refused::new(Code::Failed, "the server's answer is too long")).to_bytes()
        });
        let bytes = bytes.map_err(|error| Error::Incompatible(error.to_string()))?;
        self.messages.send(&bytes, descriptors, Duration::ZERO)
    }
}
