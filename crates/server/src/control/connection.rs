//! One client's connection: what it says, one message after the other.

use crate::core::order::ClientKey;
use crate::limits::Limits;
use bywash_link::{Credentials, Error, Messages};
use bywash_protocol::{Answer, Code, Refused};
use bywash_volume::{DeviceNumber, Person};
use std::collections::HashMap;
use std::os::fd::BorrowedFd;
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
    /// Devices of its own, by the grants that it passed descriptors for.
    pub(crate) devices: HashMap<u64, DeviceNumber>,
}

/// A client's connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) messages: Messages,
    pub(crate) credentials: Credentials,
    pub(crate) groups: Vec<u32>,
    pub(crate) state: State,
    /// Somebody else finds out what is to be answered.
    pub(crate) is_waiting: bool,
}

impl Connection {
    /// Who is there, as the kernel says.
    pub(crate) fn new(messages: Messages, greeting: Duration) -> Result<Connection, Error> {
        let (credentials, groups) = (messages.peer()?, messages.peer_groups()?);
        let state = State::New(Instant::now() + greeting);
        Ok(Connection { messages, credentials, groups, state, is_waiting: false })
    }

    /// Who is judged by owners and modes. The server's own process may open all volumes, for those to whom its
    /// administrator exports them.
    pub(crate) fn person(&self) -> Person<'_> {
        match self.credentials.pid == std::process::id() {
            true => Person { uid: 0, gid: 0, groups: &[] },
            false => Person { uid: self.credentials.uid, gid: self.credentials.gid, groups: &self.groups },
        }
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
