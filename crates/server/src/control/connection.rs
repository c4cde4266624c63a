//! One client's connection: what it says, one message after the other.

use crate::control::descriptors;
use crate::core::order::ClientKey;
use crate::helpers::{Foreign, Helpers};
use crate::limits::Limits;
use bywash_device::Holder;
use bywash_link::{Credentials, Error, Front, Messages};
use bywash_protocol::{Answer, Code, Refused};
use bywash_volume::{DeviceNumber, Person};
use std::collections::HashMap;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How far a client has come.
#[derive(Debug)]
pub(crate) enum State {
    /// It has not said hello, and is to do that before then.
    New(Instant),
    /// It is known.
    Known(Known),
}

/// A client that has said hello.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) key: ClientKey,
    pub(crate) limits: Limits,
    /// It has a channel, or one is being made.
    pub(crate) has_channel: bool,
    /// Bytes of memory that came with its channel.
    pub(crate) memory: u64,
    /// Devices of its own, by the grants that it passed descriptors for.
    pub(crate) devices: HashMap<u64, DeviceNumber>,
}

/// Descriptors that a client has passed.
pub(crate) type Passed = Foreign<Vec<OwnedFd>>;

/// A client's connection.
#[derive(Debug)]
pub(crate) struct Connection {
    /// Shared with a helper while that receives a message with descriptors.
    pub(crate) messages: Foreign<Arc<Messages>>,
    pub(crate) credentials: Credentials,
    pub(crate) groups: Vec<u32>,
    pub(crate) state: State,
    /// Somebody else finds out what is to be answered.
    pub(crate) is_waiting: bool,
    /// The socket's queue may have descriptors: the kernel lets them in.
    lets_in: bool,
}

impl Drop for Connection {
    fn drop(&mut self) {
        if !self.lets_in {
            // Nothing is in its queue whose closing could block.
            drop(self.messages.take());
        }
    }
}

impl Connection {
    /// Who is there, as the kernel says. No descriptors are let in yet, where the kernel can keep them out.
    pub(crate) fn new(messages: Messages, greeting: Duration, helpers: Helpers) -> Result<Connection, Error> {
        messages.leave_credentials_out()?;
        let (credentials, groups) = (messages.peer()?, messages.peer_groups()?);
        // What came before the listener kept descriptors out may have some.
        let lets_in = !messages.let_descriptors_in(false)? || messages.front()? != Front::Empty;
        let messages = Foreign::new(Arc::new(messages), credentials.uid, helpers);
        let state = State::New(Instant::now() + greeting);
        Ok(Connection { messages, credentials, groups, state, is_waiting: false, lets_in })
    }

    /// From now on the client may pass descriptors.
    pub(crate) fn let_descriptors_in(&mut self) -> Result<(), Error> {
        self.lets_in = true;
        self.messages.let_descriptors_in(true).map(drop)
    }

    /// Who is judged by owners and modes. The server's own process may open all volumes, for those to whom its
    /// administrator exports them.
    pub(crate) fn person(&self) -> Person<'_> {
        match self.credentials.pid == std::process::id() {
            true => Person { uid: 0, gid: 0, groups: &[] },
            false => Person { uid: self.credentials.uid, gid: self.credentials.gid, groups: &self.groups },
        }
    }

    /// By whose rights a file is written that it passes.
    pub(crate) fn holder(&self) -> Holder {
        let (Credentials { uid, gid, .. }, groups) = (self.credentials, self.groups.clone());
        Holder { uid, gid, groups }
    }

    /// Descriptors of this process that it can have at most.
    pub(crate) fn descriptors(&self) -> u64 {
        let known = match &self.state {
            State::Known(known) => {
                let files = known.devices.len() as u64;
                u64::from(known.has_channel) * descriptors::OF_CHANNEL + files * descriptors::OF_FILE
            }
            State::New(_) => 0,
        };
        // While a message is carried out a helper may have what came with it.
        descriptors::OF_CONNECTION + known + u64::from(self.is_waiting) * descriptors::OF_MESSAGE
    }

    /// Whether it may administer: root, and whoever runs the server.
    pub(crate) fn is_administrator(&self) -> bool {
        self.credentials.uid == 0 || self.credentials.uid == Credentials::own().uid
    }

    pub(crate) fn known(&mut self) -> Option<&mut Known> {
        match &mut self.state {
            State::Known(known) => Some(known),
            State::New(_) => None,
        }
    }

    /// Sends an answer. Who does not take its answers is not waited for.
    pub(crate) fn answer(&self, answer: &Answer, descriptors: &[BorrowedFd<'_>]) -> Result<(), Error> {
        let bytes = answer.to_bytes().or_else(|error| {
            // Names are short and lists go by descriptors: a message that is too long is a mistake of ours.
            tracing::error!("cannot answer: {error}");
            Answer::Refused(Refused::new(Code::Failed, "the server's answer is too long")).to_bytes()
        });
        let bytes = bytes.map_err(|error| Error::Misfit(error.to_string()))?;
        self.messages.send(&bytes, descriptors, Duration::ZERO)
    }
}
