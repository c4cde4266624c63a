//! Errors of a connection as messages that say what to do.
//!
//! Invariant: every error that reaches the user names the endpoint. Called by `handshake` and `stream`.

use super::{ReliableOptions, Role};
use crate::error::Error;
use quinn::{ConnectionError, ReadError, VarInt, WriteError};
use std::io::{self, ErrorKind};

/// Code of a close after all data has arrived. Not 0, which is the code of a connection that is dropped.
pub(super) const DONE: VarInt = VarInt::from_u32(1);
/// Code of a close or reset by an end that gave up before the end of the data.
pub(super) const GAVE_UP: VarInt = VarInt::from_u32(2);

/// First TLS alert among QUIC's error codes (RFC 9001, section 4.8).
const ALERTS: u64 = 0x100;
/// Code of a server that refuses the connection (RFC 9000, section 20.1).
const CONNECTION_REFUSED: u64 = 0x2;
/// Code of a close by a peer that did not know yet whether this side had finished the handshake; the peer's
/// own code is withheld then (RFC 9000, section 10.2.3).
const APPLICATION_ERROR: u64 = 0xc;
/// TLS alerts (RFC 8446, section 6) about certificates: the range from bad_certificate to access_denied.
const BAD_CERTIFICATE: u64 = ALERTS + 42;
const ACCESS_DENIED: u64 = ALERTS + 49;
const CERTIFICATE_REQUIRED: u64 = ALERTS + 116;
const NO_APPLICATION_PROTOCOL: u64 = ALERTS + 120;

/// Creates the error of a connection that ended during the operation `doing`.
pub(super) fn broken(doing: String, options: &ReliableOptions, role: Role, error: &ConnectionError) -> Error {
    let (kind, reason) = explain(options, role, error);
    Error::io(doing, io::Error::new(kind, reason))
}

/// Returns the kind of error and the message for the end of a connection.
pub(super) fn explain(options: &ReliableOptions, role: Role, error: &ConnectionError) -> (ErrorKind, String) {
    match error {
        ConnectionError::TimedOut => (
            ErrorKind::TimedOut,
            format!(
                "nothing was heard from the peer for {} s: it died, or the network is gone",
                options.timeout.as_secs_f32()
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

/// Returns the kind of error and the message for a handshake that this side or the peer refused.
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

/// Creates the error of a failed read from the stream.
pub(super) fn unread(doing: String, options: &ReliableOptions, error: &ReadError) -> Error {
    match error {
        ReadError::ConnectionLost(error) => broken(doing, options, Role::Receives, error),
        ReadError::Reset(_) => from(doing, gave_up()),
        other => Error::io(doing, io::Error::other(other.to_string())),
    }
}

/// Creates the error of a failed write to the stream.
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
