//! Accesses to memory: their width, kind and faults, and the operations of atomic ones.

use std::fmt;

/// Number of bytes that an access moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Width {
    /// One byte.
    Byte,
    /// Two bytes.
    Half,
    /// Four bytes.
    Word,
    /// Eight bytes.
    Double,
}

impl Width {
    /// Returns the width in bytes.
    #[inline(always)]
    pub const fn bytes(self) -> u64 {
        1 << self as u64
    }

    /// Returns a value without the bits above the width.
    #[inline(always)]
    pub const fn truncate(self, value: u64) -> u64 {
        value & (u64::MAX >> (64 - 8 * self.bytes()))
    }

    /// Returns a value of this width extended by its sign.
    #[inline(always)]
    pub const fn sign_extend(self, value: u64) -> u64 {
        let unused = 64 - 8 * self.bytes();
        ((value << unused) as i64 >> unused) as u64
    }
}

/// Access of an instruction to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Address of the first byte.
    pub address: u64,
    /// Number of bytes.
    pub width: Width,
    /// Number of instructions of the present [`Entry`] before the one that makes the access.
    pub position: u32,
}

/// Consecutive instructions that a hart begins to execute; a jump or a branch can only be the last.
///
/// Not all of them are executed if the memory stops the hart, refuses an access, or an instruction is
/// illegal: then the hart's number of retired instructions tells how many were, and the next entry begins at
/// the hart's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Address of the first instruction.
    pub address: u64,
    /// Length of all, in bytes.
    pub bytes: u32,
    /// Number of instructions.
    pub instructions: u32,
}

/// Kind of an access, as it concerns permissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AccessKind {
    /// Load, or load-reserved.
    Load,
    /// Store, store-conditional or atomic operation.
    Store,
    /// Fetch of an instruction.
    Fetch,
}

impl fmt::Display for AccessKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AccessKind::Load => "load",
            AccessKind::Store => "store",
            AccessKind::Fetch => "fetch",
        })
    }
}

/// Reason for which an access is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// Nothing is mapped at the address.
    Unmapped,
    /// The mapping forbids this kind of access.
    Permission,
    /// An atomic operation's address is no multiple of its width.
    Misaligned,
    /// The memory's limit of pages is reached.
    OutOfMemory,
}

/// Refused access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{access} at {address:#x}: {}", cause.text())]
pub struct Fault {
    /// First address that cannot be accessed.
    pub address: u64,
    /// Kind of the access.
    pub access: AccessKind,
    /// Reason.
    pub cause: Cause,
}

impl Cause {
    /// Returns the reason as the end of a message.
    fn text(self) -> &'static str {
        match self {
            Cause::Unmapped => "nothing is mapped there",
            Cause::Permission => "the mapping does not permit it",
            Cause::Misaligned => "an atomic operation needs an aligned address",
            Cause::OutOfMemory => "no page is left below the memory's limit; raise the limit",
        }
    }
}

/// Kind of a fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FenceKind {
    /// Orders accesses to memory (FENCE).
    Memory,
    /// Makes stores visible to instruction fetches (FENCE.I).
    Instructions,
}

/// Counter that user programs can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Counter {
    /// Clock cycles of the hart (`cycle`).
    Cycle,
    /// Ticks of the real-time clock (`time`).
    Time,
    /// Retired instructions of the hart (`instret`).
    Retired,
}

/// Operation of an atomic instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AtomicOperation {
    /// Replaces the value.
    Swap,
    /// Adds.
    Add,
    /// Exclusive or.
    Xor,
    /// And.
    And,
    /// Or.
    Or,
    /// Minimum of signed numbers.
    Min,
    /// Maximum of signed numbers.
    Max,
    /// Minimum of unsigned numbers.
    MinUnsigned,
    /// Maximum of unsigned numbers.
    MaxUnsigned,
}

impl AtomicOperation {
    /// Returns the new value; bits above the width have no meaning.
    pub fn apply(self, width: Width, old: u64, operand: u64) -> u64 {
        let signed = |value| width.sign_extend(value) as i64;
        let unsigned = |value| width.truncate(value);
        match self {
            AtomicOperation::Swap => operand,
            AtomicOperation::Add => old.wrapping_add(operand),
            AtomicOperation::Xor => old ^ operand,
            AtomicOperation::And => old & operand,
            AtomicOperation::Or => old | operand,
            AtomicOperation::Min => signed(old).min(signed(operand)) as u64,
            AtomicOperation::Max => signed(old).max(signed(operand)) as u64,
            AtomicOperation::MinUnsigned => unsigned(old).min(unsigned(operand)),
            AtomicOperation::MaxUnsigned => unsigned(old).max(unsigned(operand)),
        }
    }
}
