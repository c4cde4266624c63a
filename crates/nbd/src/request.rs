//! Checks of requests against the export that they are for.
//!
//! Invariant: a request that passes is of whole blocks within the export, no longer than the server takes, and
//! allowed there. A pure function of the request's header. Called by `connection` for each request.

use crate::handshake::Agreement;
use crate::layout::{PAYLOAD_MAX, RequestHeader, command, errno, flag};
use bywash_device::{Access, CommandError, Geometry};

/// Operation of a request that passed its checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Reads the range.
    Read,
    /// Writes the range, durably if so requested.
    Write { is_durable: bool },
    /// Makes completed writes durable.
    Flush,
    /// Discards the contents of the range.
    Trim { is_durable: bool },
    /// Sets the range to zeros, by writing them if no hole may come to be.
    WriteZeroes { is_durable: bool, is_written: bool },
    /// Tells which parts of the range are allocated.
    BlockStatus,
    /// Ends the connection.
    Disconnect,
}

/// Reason why a request is not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// Error value of the reply (`errno`).
    pub(crate) error: u32,
    /// Text of the reply, where replies have one.
    pub(crate) message: &'static str,
}

/// Checks a request.
#[inline]
pub(crate) fn check(
    header: &RequestHeader,
    geometry: &Geometry,
    agreement: &Agreement,
) -> Result<Action, Refusal> {
    let refused = |error, message| Err(Refusal { error, message });
    let is_durable = header.flags & flag::FUA != 0;
    let (action, flags) = match header.kind {
        command::READ => (Action::Read, if agreement.is_structured { flag::DF } else { 0 }),
        command::WRITE => (Action::Write { is_durable }, 0),
        // There is no reply that could tell of wrong flags or a wrong range.
        command::DISC => return Ok(Action::Disconnect),
        command::FLUSH => (Action::Flush, 0),
        command::TRIM => (Action::Trim { is_durable }, 0),
        command::WRITE_ZEROES => {
            let is_written = header.flags & flag::NO_HOLE != 0;
            (Action::WriteZeroes { is_durable, is_written }, flag::NO_HOLE | flag::FAST_ZERO)
        }
        command::BLOCK_STATUS => (Action::BlockStatus, flag::REQ_ONE),
        _ => return refused(errno::EINVAL, "the type of the request is unknown"),
    };
    // FUA is valid for all requests, though some ignore it.
    if header.flags & !(flags | flag::FUA) != 0 {
        return refused(errno::EINVAL, "a flag is unknown, or not for this type of request");
    }
    let changes = matches!(action, Action::Write { .. } | Action::Trim { .. } | Action::WriteZeroes { .. });
    if changes && geometry.access == Access::Read {
        return refused(errno::EPERM, "the export may only be read");
    }
    if action == Action::Flush {
        return match (header.offset, header.length) {
            (0, 0) => Ok(action),
            _ => refused(errno::EINVAL, "a flush has no range"),
        };
    }
    if action == Action::BlockStatus && !agreement.has_context {
        return refused(errno::EINVAL, "no metadata context was selected for this export");
    }
    let (block, length) = (u64::from(geometry.block), u64::from(header.length));
    if !header.offset.is_multiple_of(block) || !length.is_multiple_of(block) {
        return refused(errno::EINVAL, "the range is not of whole blocks of the export");
    }
    if header.offset > geometry.bytes || length > geometry.bytes - header.offset {
        return match action {
            Action::Write { .. } | Action::WriteZeroes { .. } => {
                refused(errno::ENOSPC, "the range goes beyond the end of the export")
            }
            _ => refused(errno::EINVAL, "the range goes beyond the end of the export"),
        };
    }
    if action == Action::Read && header.length > PAYLOAD_MAX {
        return match header.flags & flag::DF {
            0 => refused(errno::EINVAL, "the range is longer than the greatest block size"),
            _ => refused(errno::EOVERFLOW, "the range is too long for one chunk"),
        };
    }
    if action == Action::BlockStatus && length == 0 {
        return refused(errno::EINVAL, "the range is empty");
    }
    if header.kind == command::WRITE_ZEROES && header.flags & flag::FAST_ZERO != 0 {
        return refused(errno::ENOTSUP, "devices do not tell whether zeros are written faster than data");
    }
    Ok(action)
}

/// Returns the error value for a command that a device has failed.
pub(crate) fn error_value(error: CommandError) -> u32 {
    /// Numbers of errno(3) on Linux.
    mod kernel {
        pub(super) const EPERM: i32 = 1;
        pub(super) const ENOMEM: i32 = 12;
        pub(super) const EACCES: i32 = 13;
        pub(super) const EFBIG: i32 = 27;
        pub(super) const ENOSPC: i32 = 28;
        pub(super) const EROFS: i32 = 30;
        pub(super) const EDQUOT: i32 = 122;
    }
    match error {
        CommandError::ReadOnly | CommandError::WriteOnly => errno::EPERM,
        CommandError::Io(kernel::EPERM | kernel::EACCES | kernel::EROFS) => errno::EPERM,
        CommandError::Io(kernel::ENOSPC | kernel::EDQUOT | kernel::EFBIG) => errno::ENOSPC,
        CommandError::Io(kernel::ENOMEM) => errno::ENOMEM,
        _ => errno::EIO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GEOMETRY: Geometry = Geometry {
        bytes: 64 << 20,
        block: 512,
        optimal: 4096,
        transfer_max: 1 << 20,
        range_max: 1 << 20,
        segments_max: 1,
        access: Access::ReadWrite,
    };
    const AGREED: Agreement = Agreement { disk: 0, is_structured: true, has_context: true };

    fn header(kind: u16, flags: u16, offset: u64, length: u32) -> RequestHeader {
        RequestHeader { flags, kind, cookie: 7, offset, length }
    }

    fn error(header: RequestHeader, geometry: &Geometry, agreement: &Agreement) -> u32 {
        check(&header, geometry, agreement).err().map_or(0, |refusal| refusal.error)
    }

    #[test]
    fn requests_that_are_not_allowed_get_the_errors_of_the_specification() {
        use command::{BLOCK_STATUS, FLUSH, READ, TRIM, WRITE, WRITE_ZEROES};
        let end = GEOMETRY.bytes;
        for (kind, flags, offset, length, expected) in [
            (READ, 0, 0, 512, 0),
            (READ, flag::FUA | flag::DF, end - 512, 512, 0),
            (READ, 0, end, 0, 0),
            (READ, 0, end, 512, errno::EINVAL),
            (READ, 0, u64::MAX - 511, 512, errno::EINVAL),
            (READ, 0, u64::MAX, 512, errno::EINVAL),
            (READ, 0, 1, 512, errno::EINVAL),
            (READ, 0, 0, 100, errno::EINVAL),
            (READ, 0, 0, PAYLOAD_MAX, 0),
            (READ, 0, 0, PAYLOAD_MAX + 512, errno::EINVAL),
            (READ, flag::DF, 0, PAYLOAD_MAX + 512, errno::EOVERFLOW),
            (READ, flag::NO_HOLE, 0, 512, errno::EINVAL),
            (WRITE, flag::FUA, 0, 512, 0),
            (WRITE, 0, end - 512, 1024, errno::ENOSPC),
            (WRITE, 0, 256, 512, errno::EINVAL),
            (WRITE, 1 << 15, 0, 512, errno::EINVAL),
            (FLUSH, flag::FUA, 0, 0, 0),
            (FLUSH, 0, 512, 0, errno::EINVAL),
            (FLUSH, 0, 0, 512, errno::EINVAL),
            (TRIM, flag::FUA, 0, !511, errno::EINVAL),
            (TRIM, flag::FUA, 0, 64 << 20, 0),
            (WRITE_ZEROES, flag::NO_HOLE, 0, 64 << 20, 0),
            (WRITE_ZEROES, flag::FAST_ZERO, 0, 512, errno::ENOTSUP),
            (WRITE_ZEROES, flag::FAST_ZERO, 0, 100, errno::EINVAL),
            (WRITE_ZEROES, 0, end, 512, errno::ENOSPC),
            (BLOCK_STATUS, flag::REQ_ONE, 0, 512, 0),
            (BLOCK_STATUS, 0, 0, 0, errno::EINVAL),
            (BLOCK_STATUS, 0, end, 512, errno::EINVAL),
            (5, 0, 0, 512, errno::EINVAL),
            (8, 0, 0, 512, errno::EINVAL),
            (u16::MAX, 0, 0, 0, errno::EINVAL),
        ] {
            let header = header(kind, flags, offset, length);
            assert_eq!(error(header, &GEOMETRY, &AGREED), expected, "{header:?}");
        }
    }

    #[test]
    fn what_was_not_agreed_on_is_refused() {
        let plain = Agreement { is_structured: false, has_context: false, ..AGREED };
        assert_eq!(error(header(command::READ, flag::DF, 0, 512), &GEOMETRY, &plain), errno::EINVAL);
        assert_eq!(error(header(command::BLOCK_STATUS, 0, 0, 512), &GEOMETRY, &plain), errno::EINVAL);
        let read_only = Geometry { access: Access::Read, ..GEOMETRY };
        for kind in [command::WRITE, command::TRIM, command::WRITE_ZEROES] {
            assert_eq!(error(header(kind, 0, 0, 512), &read_only, &AGREED), errno::EPERM);
        }
        for kind in [command::READ, command::FLUSH, command::BLOCK_STATUS] {
            let length = if kind == command::FLUSH { 0 } else { 512 };
            assert_eq!(error(header(kind, 0, 0, length), &read_only, &AGREED), 0);
        }
    }

    #[test]
    fn a_disconnect_is_never_refused() {
        let header = header(command::DISC, u16::MAX, 1, 1);
        assert_eq!(check(&header, &GEOMETRY, &AGREED), Ok(Action::Disconnect));
    }

    #[test]
    fn errors_of_devices_are_values_of_the_protocol() {
        for (error, value) in [
            (CommandError::ReadOnly, errno::EPERM),
            (CommandError::Io(28), errno::ENOSPC),
            (CommandError::Io(122), errno::ENOSPC),
            (CommandError::Io(12), errno::ENOMEM),
            (CommandError::Io(30), errno::EPERM),
            (CommandError::Io(5), errno::EIO),
            (CommandError::Io(110), errno::EIO),
            (CommandError::TooLong, errno::EIO),
        ] {
            assert_eq!(error_value(error), value, "{error}");
        }
    }
}
