//! Byte streams over UDP without loss: `udp:HOST:PORT,reliable` and `udp-listen:ADDR:PORT,reliable`.
//!
//! The protocol is QUIC (RFC 9000) with TLS 1.3 (RFC 9001), implemented by the library quinn. This module
//! adds little:
//!
//! - The connector says by the application protocol (ALPN) whether it sends or receives. A listener accepts
//!   only the opposite role, so that two sources or two sinks fail in the handshake.
//! - The sender opens one stream. The receiver answers its end on a stream of its own with the number of
//!   bytes that it has passed on ([`Output::finish`] waits for that). Both are retransmitted until they are
//!   acknowledged, so that a lost packet never makes a complete transfer look broken, nor a broken one
//!   complete.
//! - No peer is trusted by default: the connector names the listener's certificate by its SHA-256 (`pin=`),
//!   or says `insecure`. A listener may also demand a certificate of the connector.
//!
//! Invariant: a stream ends in order only after [`Output::finish`]. If an end is dropped before, or its
//! process dies, the other side fails, at once or after `timeout`. The windows in `transport` bound the
//! memory.
//!
//! Called by [`crate::endpoint`]. `identity` has the certificates, `transport` the settings, `engine` runs
//! the library beside the flow's own thread, `handshake` sets up the connection, `stream` moves the bytes.

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

/// Default of the time for which a peer may be silent before it counts as dead.
pub(crate) const PEER_TIMEOUT: Duration = Duration::from_secs(10);

/// Options of a QUIC endpoint.
#[derive(Clone, Debug)]
pub(crate) struct ReliableOptions {
    /// Host name or address: of the listener, or to listen at.
    pub(crate) host: String,
    /// UDP port; 0 for a listener that takes any.
    pub(crate) port: u16,
    /// True if the endpoint listens for a connection instead of connecting.
    pub(crate) listen: bool,
    /// Fingerprint of the only trusted certificate; `None` to trust any.
    pub(crate) pin: Option<Fingerprint>,
    /// True if the connector trusts any listener: the data is encrypted, but perhaps for the wrong peer.
    pub(crate) insecure: bool,
    /// File with the certificate and key of this end, created if it does not exist; `None` for a new
    /// identity.
    pub(crate) identity: Option<PathBuf>,
    /// Time for which a peer may be silent before it counts as dead; also the time limit of connecting.
    pub(crate) timeout: Duration,
    /// Congestion control of this end as a sender; not used by a receiver.
    pub(crate) congestion: Congestion,
}

impl ReliableOptions {
    /// Checks that the options go together.
    ///
    /// # Errors
    /// [`Error::Usage`] if an option is missing or contradicts another one, with the remedy.
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
            _ if self.timeout.is_zero() => wrong("a peer needs some time to answer"),
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

/// Notice for the user before data moves.
#[derive(Clone, Debug)]
pub(crate) enum Notice {
    /// The listener is ready; the connector needs `pin=` with this fingerprint.
    Listening {
        /// Address of the listener, with the port that the kernel has chosen.
        address: SocketAddr,
        /// Fingerprint of the listener's certificate.
        fingerprint: Fingerprint,
    },
    /// This end connects with a certificate of its own, which a listener can name by `pin=`.
    Connecting {
        /// Fingerprint of the certificate in `identity=`.
        fingerprint: Fingerprint,
    },
    /// An attempt to connect has failed; the listener continues to wait.
    Refused {
        /// Address of the peer, which UDP does not verify.
        address: SocketAddr,
        /// Reason of the failure.
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

/// Direction in which this end moves the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// This end sends the stream.
    Sends,
    /// This end receives the stream.
    Receives,
}

/// Connects, or waits for a peer, and returns the source.
///
/// # Errors
/// [`Error::Usage`] if the options or the identity file are wrong; [`Error::Io`] if no peer can be reached or
/// verified; [`Error::Cancelled`] if the flow is cancelled.
pub(crate) fn open_input(
    options: &ReliableOptions,
    control: &Control,
    notify: &mut dyn FnMut(Notice),
) -> Result<Box<dyn Input>, Error> {
    let open =
        PendingConnection::prepare(options, Role::Receives, control, notify)?.connect(control, notify)?;
    Ok(Box::new(stream::Receiver::new(open)))
}

/// Connects, or waits for a peer, and returns the sink. Errors are those of [`open_input`].
pub(crate) fn open_output(
    options: &ReliableOptions,
    control: &Control,
    notify: &mut dyn FnMut(Notice),
) -> Result<Box<dyn Output>, Error> {
    let open = PendingConnection::prepare(options, Role::Sends, control, notify)?.connect(control, notify)?;
    Ok(Box::new(stream::Sender::open(open, control)?))
}
