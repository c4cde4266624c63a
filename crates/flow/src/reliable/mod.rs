//! A byte stream over UDP on which nothing is lost: `udp:HOST:PORT,reliable` and
//! `udp-listen:ADDR:PORT,reliable`.
//!
//! The protocol is QUIC (RFC 9000) with TLS 1.3 (RFC 9001), by the library quinn. What this module adds is
//! small:
//!
//! - Who connects says in the name of the application protocol (ALPN) whether it sends or receives; a listener answers
//!   to the other one only, so that two sources or two sinks part in the handshake.
//! - The side that sends opens one stream. The side that receives answers the end of it on a stream of its own with the
//!   count of bytes that it has handed on ([`Output::finish`] waits for that). A lost packet that closes a connection
//!   can so never make a whole transfer look broken, nor a broken one whole: all that decides is repeated until heard.
//! - Nobody is trusted by default: who connects names the listener's certificate by its SHA-256 (`pin=`), or says
//!   `insecure`. A listener may ask the same of who connects.
//!
//! Invariant: a stream ends in order only after [`Output::finish`]; an end that is dropped before, or whose
//! process dies, is an error on the other side, at once or after `patience`. Memory is bounded by
//! `transport`'s windows.
//!
//! Called by the ends that are named above. `identity` knows certificates, `transport` sizes and times,
//! `engine` drives the library beside the flow's own thread, `handshake` makes the connection, `stream` moves
//! the bytes.

mod engine;
mod errors;
mod handshake;
mod identity;
mod stream;
#[cfg(test)]
mod tests;
mod transport;

use crate::block_io::{Input, Output};
use crate::congestion::Congestion;
use crate::control::Control;
use crate::error::Error;
use handshake::PendingConnection;
pub(crate) use identity::Fingerprint;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// How long a peer may be silent before it counts as dead, where nothing else is said.
pub(crate) const PEER_TIMEOUT: Duration = Duration::from_secs(10);

/// One end, as its description says it.
#[derive(Clone, Debug)]
pub(crate) struct ReliableOptions {
    /// A name or an address: of the listener, or to listen at.
    pub(crate) host: String,
    /// The UDP port; 0 for a listener that takes any.
    pub(crate) port: u16,
    /// This end waits for its peer.
    pub(crate) listen: bool,
    /// The only peer to be trusted.
    pub(crate) pin: Option<Fingerprint>,
    /// Whoever answers at the address is trusted: the data is encrypted, but perhaps for the wrong one.
    pub(crate) insecure: bool,
    /// The file that keeps this end's certificate and key; made where it is missing.
    pub(crate) identity: Option<PathBuf>,
    /// How long a peer may be silent before it counts as dead; also how long a listener is looked for.
    pub(crate) patience: Duration,
    /// What this end sends with; it means nothing to the end that receives.
    pub(crate) congestion: Congestion,
}

impl ReliableOptions {
    /// # Errors
    /// What is missing or contradicts itself, and what to say instead.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let wrong = |what: &str| Err(Error::Usage(format!("{self}: {what}")));
        match (self.listen, &self.pin, self.insecure) {
            (true, _, true) => {
                wrong("insecure is for the side that connects; a listener without pin= takes anybody")
            }
            (false, Some(_), true) => wrong("pin= and insecure exclude each other"),
            (false, None, false) => wrong(
                "say pin=HEX with the fingerprint that the listener shows, or insecure to trust whoever answers there",
            ),
            _ if self.patience.is_zero() => wrong("a peer needs some time to answer"),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for ReliableOptions {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.listen { "udp-listen" } else { "udp" };
        write!(out, "{kind}:{}:{},reliable", self.host, self.port)
    }
}

/// What the user should hear before bytes move.
#[derive(Clone, Debug)]
pub(crate) enum Notice {
    /// The listener is there; who connects needs `pin=` with this fingerprint.
    Listening {
        /// Where, with the port that was chosen.
        address: SocketAddr,
        /// Of the listener's certificate.
        fingerprint: Fingerprint,
    },
    /// This end connects with a certificate of its own, for a listener that asks for it by `pin=`.
    Connecting {
        /// Of the certificate in `identity=`.
        fingerprint: Fingerprint,
    },
    /// Somebody tried to connect in vain. The listener waits on.
    Refused {
        /// Who, as far as UDP can tell.
        address: SocketAddr,
        /// What was wrong.
        reason: String,
    },
}

impl fmt::Display for Notice {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Notice::Listening { address, fingerprint } => {
                write!(out, "listening at {address}; who connects says pin={fingerprint}")
            }
            Notice::Connecting { fingerprint } => {
                write!(out, "connecting; a listener that asks who we are says pin={fingerprint}")
            }
            Notice::Refused { address, reason } => write!(out, "{address} was refused: {reason}"),
        }
    }
}

/// What this end does to the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// It writes it.
    Sends,
    /// It reads it.
    Receives,
}

/// Opens the end that bytes come from, with the peer connected.
///
/// # Errors
/// What is wrong with the options, why there is no peer, or that the flow was cancelled.
pub(crate) fn open_input(
    options: &ReliableOptions,
    control: &Control,
    tell: &mut dyn FnMut(Notice),
) -> Result<Box<dyn Input>, Error> {
    let line = PendingConnection::prepare(options, Role::Receives, control, tell)?.meet(control, tell)?;
    Ok(Box::new(stream::Receiver::new(line)))
}

/// Opens the end that bytes go to, with the peer connected.
///
/// # Errors
/// What is wrong with the options, why there is no peer, or that the flow was cancelled.
pub(crate) fn open_output(
    options: &ReliableOptions,
    control: &Control,
    tell: &mut dyn FnMut(Notice),
) -> Result<Box<dyn Output>, Error> {
    let line = PendingConnection::prepare(options, Role::Sends, control, tell)?.meet(control, tell)?;
    Ok(Box::new(stream::Sender::open(line, control)?))
}
