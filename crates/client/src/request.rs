//! The encoding of a request for the channel, and the meaning of its completion.
//!
//! Called by `volume` and `queue`.

use crate::error::Error;
use crate::session::Grant;
use bywash_channel::Submission;
use bywash_protocol::layout::{FUA, Opcode, Status};

/// A request of one range, or of several pieces, without its grant and its memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestHeader {
    pub(crate) opcode: Opcode,
    pub(crate) flags: u8,
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

impl RequestHeader {
    #[inline(always)]
    pub(crate) fn new(opcode: Opcode, durable: bool, offset: u64, length: u64) -> RequestHeader {
        RequestHeader { opcode, flags: if durable { FUA } else { 0 }, offset, length }
    }

    /// Encodes the request for a grant. A request of several pieces has their number as its length, and its
    /// pieces name the grants.
    #[inline(always)]
    pub(crate) fn submission(&self, grant: u64) -> Submission {
        let arguments = match self.opcode {
            Opcode::Flush => [grant, 0, 0, 0, 0, 0],
            Opcode::ReadRanges | Opcode::WriteRanges => [self.length, 0, 0, 0, 0, 0],
            _ => [grant, self.offset, self.length, 0, 0, 0],
        };
        Submission::new(self.opcode as u8).flags(self.flags).arguments(arguments)
    }
}

/// Returns the operation's name for error messages.
pub(crate) fn name(opcode: Opcode) -> &'static str {
    match opcode {
        Opcode::Read | Opcode::ReadRanges => "read",
        Opcode::Write | Opcode::WriteRanges => "write",
        Opcode::Flush => "flush",
        Opcode::Discard => "discard",
        Opcode::WriteZeroes => "write zeroes to",
        Opcode::CompareAndWrite => "compare and write",
    }
}

/// Decodes a completion. `refused` returns the grant and the range that a refusal concerns, given the number
/// of the piece in a request of several pieces.
///
/// # Errors
/// The variant of [`Error`] for the completion's status; [`Error::ProtocolViolation`] if the status, the
/// value or the piece's number is impossible.
#[inline(always)]
pub(crate) fn outcome<'a>(
    shape: &RequestHeader,
    status: u16,
    value: u64,
    refused: impl FnOnce(u64) -> Option<(&'a Grant, u64, u64)>,
) -> Result<(), Error> {
    let says_bytes = matches!(shape.opcode, Opcode::Read | Opcode::Write);
    if status == Status::Success as u16 && (!says_bytes || value == shape.length) {
        return Ok(());
    }
    Err(what_was_wrong(shape, status, value, refused))
}

#[cold]
fn what_was_wrong<'a>(
    shape: &RequestHeader,
    status: u16,
    value: u64,
    refused: impl FnOnce(u64) -> Option<(&'a Grant, u64, u64)>,
) -> Error {
    let what = name(shape.opcode);
    let Some(status) = Status::from_number(status) else {
        return Error::broken(format!(
            "it ended a request to {what} with status {status}, which there is not"
        ));
    };
    if status == Status::Success {
        let length = shape.length;
        return Error::broken(format!("it says that {value} bytes went, and {length} were asked to {what}"));
    }
    let is_many = matches!(shape.opcode, Opcode::ReadRanges | Opcode::WriteRanges);
    let is_refusal = matches!(
        status,
        Status::AccessDenied | Status::NoGrant | Status::Revoked | Status::OutOfBounds | Status::Malformed
    );
    let about = match (is_many, is_refusal) {
        // A failure of the device names no piece, so it concerns the whole request.
        (true, false) => None,
        (true, true) => match refused(value) {
            Some(about) => Some(about),
            None => return Error::broken(format!("it refused piece {value} of a request that has fewer")),
        },
        (false, _) => refused(0),
    };
    let Some((grant, offset, length)) = about else { return from_many(status, what, value) };
    let volume = grant.name.clone();
    match status {
        Status::Success | Status::Malformed => Error::Malformed { what, volume },
        Status::AccessDenied => Error::Denied { volume, access: grant.access, what },
        Status::NoGrant => Error::NoGrant { volume },
        Status::Revoked => Error::Revoked { volume },
        Status::OutOfBounds => Error::OutOfBounds { volume, offset, length, bytes: grant.bytes },
        Status::Failed => Error::DeviceFailed { what, volume },
        Status::NoSpace => Error::NoSpace { what, volume },
        Status::TimedOut => Error::DeviceTimedOut { what, volume },
        Status::Mismatch => Error::CompareFailed { volume },
        Status::TooFragmented => Error::TooManyExtents { volume, offset, bytes: value },
        Status::NotSupported => Error::NotSupported { what, volume },
    }
}

/// Makes the error of a request to several volumes for which the server did not tell which of them failed.
fn from_many(status: Status, what: &'static str, value: u64) -> Error {
    let volume = "one of several volumes".into();
    match status {
        Status::NoSpace => Error::NoSpace { what, volume },
        Status::TimedOut => Error::DeviceTimedOut { what, volume },
        Status::Mismatch => Error::CompareFailed { volume },
        Status::NotSupported => Error::NotSupported { what, volume },
        Status::TooFragmented => Error::TooManyExtents { volume, offset: 0, bytes: value },
        _ => Error::DeviceFailed { what, volume },
    }
}

/// Returns true if, with this status, the device may still write into the request's memory.
#[inline(always)]
pub(crate) fn memory_is_lost(status: u16) -> bool {
    status == Status::TimedOut as u16
}
