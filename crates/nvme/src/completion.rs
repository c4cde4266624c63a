//! Completions as a controller writes them to a completion queue (Base Specification 2.0, section 3.3.3.2 "Completion
//! Queue Entry"), and the meaning of their status. Pure.

use bywash_device::CommandError;
use std::fmt;

/// Completion of a command, without the submission queue's number and head, which the driver has no use for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Double word 0, whose meaning depends on the command.
    pub value: u32,
    /// Identifier of the command (CID).
    pub identifier: u16,
    /// Result of the command.
    pub status: StatusField,
}

/// Double word 3 of the completion of an I/O command: status field, phase bit and identifier, from the top.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoEntry(pub u32);

impl IoEntry {
    /// Returns the identifier of the command (CID).
    #[inline(always)]
    pub fn identifier(self) -> u16 {
        self.0 as u16
    }

    /// Returns true if the command was carried out.
    #[inline(always)]
    pub fn is_success(self) -> bool {
        self.0 & 0x7ff << 17 == 0
    }

    /// Returns the completion's fields, with a double word 0 of 0.
    #[inline]
    pub fn entry(self) -> Entry {
        Entry { value: 0, identifier: self.identifier(), status: StatusField((self.0 >> 17) as u16) }
    }
}

/// Status field of a completion, without its phase bit.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct StatusField(pub u16);

impl StatusField {
    /// Status of a namespace that does not exist (Invalid Namespace or Format).
    pub const INVALID_NAMESPACE: StatusField = StatusField(0x0b);
    /// Status of a command that the controller does not carry out (Invalid Command Opcode).
    pub const INVALID_OPCODE: StatusField = StatusField(0x01);
    /// Status of a command that an Abort command ended (Command Abort Requested).
    pub const ABORTED: StatusField = StatusField(0x07);

    /// Makes a status of type `kind` (SCT) and code `code` (SC).
    #[cfg(any(test, feature = "testing"))]
    pub fn new(kind: u8, code: u8) -> StatusField {
        StatusField(u16::from(kind) << 8 | u16::from(code))
    }

    /// Returns true if type and code are those of `other`.
    pub fn is_same(self, other: StatusField) -> bool {
        (self.kind(), self.code()) == (other.kind(), other.code())
    }

    /// Returns true if the command was carried out.
    #[inline]
    pub fn is_success(self) -> bool {
        self.0 & 0x7ff == 0
    }

    /// Returns the status code type (SCT).
    pub fn kind(self) -> u8 {
        (self.0 >> 8 & 7) as u8
    }

    /// Returns the status code (SC).
    pub fn code(self) -> u8 {
        self.0 as u8
    }

    /// Returns true if the same command would fail again (Do Not Retry).
    pub fn is_final(self) -> bool {
        self.0 >> 14 & 1 == 1
    }

    /// Returns true if the command had no effect for a passing reason, so that it can be repeated.
    pub fn can_be_repeated(self) -> bool {
        let is_passing = matches!(
            (self.kind(), self.code()),
            // Command Abort Requested, Aborted due to SQ Deletion, Namespace Not Ready, Format in Progress, Command
            // Interrupted, Transient Transport Error.
            (0, 0x07 | 0x08 | 0x21 | 0x22 | 0x82 | 0x84)
        );
        is_passing && !self.is_final()
    }

    /// Returns the failure of a command with this status, as users of a device know it.
    pub fn failure(self) -> CommandError {
        match (self.kind(), self.code()) {
            // Compare Failure.
            (2, 0x85) => CommandError::Mismatch,
            // LBA Out of Range.
            (0, 0x80) => CommandError::OutOfRange,
            // Capacity Exceeded.
            (0, 0x81) => CommandError::Io(libc::ENOSPC),
            // Reservation Conflict.
            (0, 0x83) => CommandError::Io(libc::EBUSY),
            // Invalid Namespace or Format.
            (0, 0x0b) => CommandError::Io(libc::ENODEV),
            // Namespace is Write Protected; Attempted Write to Read Only Range.
            (0, 0x20) | (1, 0x82) => CommandError::Io(libc::EROFS),
            // Access Denied.
            (2, 0x86) => CommandError::Io(libc::EACCES),
            _ => CommandError::Io(libc::EIO),
        }
    }

    fn name(self) -> &'static str {
        match (self.kind(), self.code()) {
            (0, 0x00) => "Successful Completion",
            (0, 0x01) => "Invalid Command Opcode",
            (0, 0x02) => "Invalid Field in Command",
            (0, 0x04) => "Data Transfer Error",
            (0, 0x05) => "Commands Aborted due to Power Loss Notification",
            (0, 0x06) => "Internal Error",
            (0, 0x07) => "Command Abort Requested",
            (0, 0x08) => "Command Aborted due to SQ Deletion",
            (0, 0x0b) => "Invalid Namespace or Format",
            (0, 0x13) => "PRP Offset Invalid",
            (0, 0x20) => "Namespace is Write Protected",
            (0, 0x80) => "LBA Out of Range",
            (0, 0x81) => "Capacity Exceeded",
            (0, 0x82) => "Namespace Not Ready",
            (0, 0x83) => "Reservation Conflict",
            (1, 0x00) => "Completion Queue Invalid",
            (1, 0x01) => "Invalid Queue Identifier",
            (1, 0x02) => "Invalid Queue Size",
            (1, 0x03) => "Abort Command Limit Exceeded",
            (2, 0x80) => "Write Fault",
            (2, 0x81) => "Unrecovered Read Error",
            (2, 0x85) => "Compare Failure",
            (2, 0x86) => "Access Denied",
            _ => "a status without a name here",
        }
    }
}

impl fmt::Display for StatusField {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} (status code type {:#x}, status code {:#x})", self.name(), self.kind(), self.code())
    }
}

impl fmt::Debug for StatusField {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_told_as_what_users_know() {
        for (kind, code, failure) in [
            (2, 0x85, CommandError::Mismatch),
            (0, 0x80, CommandError::OutOfRange),
            (0, 0x81, CommandError::Io(libc::ENOSPC)),
            (0, 0x0b, CommandError::Io(libc::ENODEV)),
            (0, 0x20, CommandError::Io(libc::EROFS)),
            (2, 0x81, CommandError::Io(libc::EIO)),
            (7, 0xff, CommandError::Io(libc::EIO)),
        ] {
            assert_eq!(StatusField::new(kind, code).failure(), failure);
        }
    }

    #[test]
    fn only_what_had_no_effect_is_repeated() {
        assert!(StatusField::ABORTED.can_be_repeated());
        assert!(!StatusField(StatusField::ABORTED.0 | 1 << 14).can_be_repeated());
        assert!(!StatusField::new(2, 0x81).can_be_repeated());
        assert!(!StatusField::new(2, 0x07).can_be_repeated());
        assert!(StatusField(0x4000 | 0x2000).is_success());
        assert_eq!(
            StatusField::new(2, 0x81).to_string(),
            "Unrecovered Read Error (status code type 0x2, status code 0x81)"
        );
    }
}
