//! What went wrong with a connection, in words that tell what to do.
//!
//! Invariant: no error of the library reaches a user without the end's name before it. Called by `handshake`
//! and `stream`.

use super::{ReliableOptions, Role};
use crate::error::Error;
use quinn::{ConnectionError, ReadError, VarInt, WriteError};
use std::io::{self, ErrorKind};

/// The connection closes because everything has arrived. Not 0, which is what a connection closes with by
/// itself.
pub(super) const DONE: VarInt = VarInt::from_u32(1);
/// The connection closes because an end gave up in the middle.
pub(super) const GAVE_UP: VarInt = VarInt::from_u32(2);

/// Where TLS alerts begin among QUIC's error codes (RFC 9001, section 4.8).
const ALERTS: u64 = 0x100;
/// The server has what a connection needs, and refuses it (RFC 9000, section 20.1).
const CONNECTION_REFUSED: u64 = 0x2;
/// The peer closed the connection before it was sure that the handshake is over here; its own code is
/// withheld then (RFC 9000, section 10.2.3).
const APPLICATION_ERROR: u64 = 0xc;
/// TLS alerts (RFC 8446, section 6) about certificates: bad_certificate to unknown_ca, and access_denied.
const BAD_CERTIFICATE: u64 = ALERTS + 42;
const ACCESS_DENIED: u64 = ALERTS + 49;
const CERTIFICATE_REQUIRED: u64 = ALERTS + 116;
const NO_APPLICATION_PROTOCOL: u64 = ALERTS + 120;

/// The error for a connection that ended while `doing`.
pub(super) fn broken(doing: String, options: &ReliableOptions, role: Role, error: &ConnectionError) -> Error {
    let (kind, reason) = explain(options, role, error);
    Error::io(doing, io::Error::new(kind, reason))
}

/// What a connection's end means.
pub(super) fn explain(options: &ReliableOptions, role: Role, error: &ConnectionError) -> (ErrorKind, String) {
    match error {
        ConnectionError::TimedOut => (
            ErrorKind::TimedOut,
            format!(
                "nothing was heard from the peer for {} s: it died, or the network is gone",
                options.patience.as_secs_f32()
            ),
        ),
        ConnectionError::ApplicationClosed(close) if close.error_code == GAVE_UP => gave_up(),
        ConnectionError::ApplicationClosed(_) | ConnectionError::Reset => {
            (ErrorKind::ConnectionReset, "the peer ended without a word before the end of the data".into())
        }
        ConnectionError::ConnectionClosed(close) => refused(options, role, close.error_code.into(), error),
        ConnectionError::TransportError(wrong) => refused(options, role, wrong.code.into(), error),
        other => (ErrorKind::ConnectionAborted, other.to_string()),
    }
}

fn gave_up() -> (ErrorKind, String) {
    (ErrorKind::ConnectionReset, "the peer gave up before the end of the data".into())
}

/// The handshake was refused, by this side or by the other one.
fn refused(options: &ReliableOptions, role: Role, code: u64, error: &ConnectionError) -> (ErrorKind, String) {
    let reason = match code {
        APPLICATION_ERROR => return gave_up(),
        CONNECTION_REFUSED => "the listener has its peer already".into(),
        NO_APPLICATION_PROTOCOL => match role {
            Role::Sends => "both sides send: one of them must be the sink of its flow".into(),
            Role::Receives => "both sides receive: one of them must be the source of its flow".into(),
        },
        CERTIFICATE_REQUIRED if options.listen => "it showed no certificate, and pin= asks for one".into(),
        CERTIFICATE_REQUIRED => {
            "the listener wants to know who connects: say identity=FILE, and tell it that fingerprint as pin="
                .into()
        }
        BAD_CERTIFICATE..=ACCESS_DENIED => match (error, options.listen) {
            (ConnectionError::TransportError(_), _) => {
                "its certificate is not the one that pin= names".into()
            }
            (_, true) => "it does not trust this listener: its pin= names another certificate".into(),
            (_, false) => "the listener does not trust this side: its pin= names another certificate".into(),
        },
        _ => error.to_string(),
    };
    let kind = match code {
        CONNECTION_REFUSED | NO_APPLICATION_PROTOCOL => ErrorKind::ConnectionRefused,
        ALERTS.. => ErrorKind::PermissionDenied,
        _ => ErrorKind::ConnectionAborted,
    };
    (kind, reason)
}

/// The error of a read from the stream.
pub(super) fn unread(doing: String, options: &ReliableOptions, error: &ReadError) -> Error {
    match error {
        ReadError::ConnectionLost(error) => broken(doing, options, Role::Receives, error),
        ReadError::Reset(_) => from(doing, gave_up()),
        other => Error::io(doing, io::Error::other(other.to_string())),
    }
}

/// The error of a write to the stream.
pub(super) fn unwritten(doing: String, options: &ReliableOptions, error: &WriteError) -> Error {
    match error {
        WriteError::ConnectionLost(error) => broken(doing, options, Role::Sends, error),
        WriteError::Stopped(_) => from(doing, gave_up()),
        other => Error::io(doing, io::Error::other(other.to_string())),
    }
}

fn from(doing: String, (kind, reason): (ErrorKind, String)) -> Error {
    Error::io(doing, io::Error::new(kind, reason))
}
