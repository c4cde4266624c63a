//! Stream sockets as endpoints: who connects, and the parts that TCP and Unix sockets share.

use super::OpenContext;
use crate::control::Control;
use crate::end::{Connected, ListeningSocket, Stream, StreamSettings};
use crate::error::Error;
use bywash_options::{OptionRow, Value, Words, number};

/// An endpoint that is a stream socket.
pub(crate) trait StreamEndpoint: Sync {
    /// Returns the side that connects.
    fn listening(&self) -> Listening;

    /// Returns the settings of the connections.
    fn settings(&self) -> StreamSettings;

    /// Starts to listen, and tells watchers of the flow the address if the kernel has chosen the port.
    ///
    /// # Errors
    /// [`Error::Io`] if the socket cannot be bound; [`Error::Cancelled`] if the flow is cancelled.
    fn listen(&self, name: &str, control: &Control) -> Result<ListeningSocket, Error>;

    /// Connects to the peer.
    ///
    /// # Errors
    /// [`Error::Io`] if the peer cannot be reached; [`Error::Cancelled`] if the flow is cancelled.
    fn connect(&self, name: &str, control: &Control) -> Result<Connected, Error>;
}

/// Side that opens a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Listening {
    /// This end connects to a listener.
    #[default]
    Connects,
    /// This end listens for one connection.
    Waits,
    /// This end listens for any number of connections, each of which gets a flow of its own (`fork`).
    Serves,
}

impl Listening {
    /// Returns the suffix of the kind's name.
    pub(super) fn suffix(self) -> &'static str {
        if self == Listening::Connects { "" } else { "-listen" }
    }
}

/// `whole`, of both sides.
pub(super) const WHOLE: OptionRow =
    OptionRow::flag("whole", "data travels in frames with an end mark; both ends must say it");
/// `fork`, of a listener.
pub(super) const FORK: OptionRow =
    OptionRow::flag("fork", "a flow for each connection, for any number of connections");
/// `max`, of a listener with `fork`.
pub(super) const MAX: OptionRow =
    OptionRow::new("max", Value::Number, "with fork: greatest number of connections at a time");

/// Connects, or accepts one connection, and performs the handshake of a framed connection.
pub(super) fn open(endpoint: &dyn StreamEndpoint, context: &OpenContext<'_>) -> Result<Stream, Error> {
    let connected = match context.listener {
        Some(listener) => listener.accept(context.control)?,
        None => endpoint.connect(context.name, context.control)?,
    };
    Stream::handshake(connected, context.role, context.name, context.control)
}

/// Parses `fork`, which only a listener may have.
pub(super) fn listening(words: &mut Words<'_>, listen: bool) -> Result<Listening, Error> {
    Ok(match (listen, listen && words.flag("fork")?) {
        (_, true) => Listening::Serves,
        (true, false) => Listening::Waits,
        (false, false) => Listening::Connects,
    })
}

/// Parses `max=N`, which only a listener with `fork` may have.
pub(super) fn connections(words: &mut Words<'_>, listening: Listening) -> Result<Option<u32>, Error> {
    if listening == Listening::Connects {
        return Ok(None);
    }
    match (words.value("max", number)?, listening) {
        (Some(0), _) => Err(words.error("max=0 would serve nobody: give 1 or more").into()),
        (Some(_), Listening::Waits) => Err(words.error("max is for 'fork', which is not there").into()),
        (max, _) => Ok(max),
    }
}
