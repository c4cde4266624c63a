//! Transfers: reads and writes of one piece of registered memory, which are checked once and submitted any number of times.
//!
//! ```text
//!     operation ─┐                                        ┌─ offset: aligned, not behind the last one
//!     memory ────┼─► checks, addresses of pages ► Transfer ┤                                  ► 40 bytes of stores
//!     region ────┘           once                         └─ each time
//! ```
//!
//! Invariant: the memory of a transfer lies in the region that it names, as long as the region is registered. A region that
//! was unregistered is noticed by its generation. Called by the device and its users.

use super::regions::Regions;
use super::slot::Limits;
use crate::command::{self, io};
use crate::dma::PAGE;
use bywash_device::{Command, Operation, RegionId, Segment};

/// Operation and memory of a command, in the form that the controller takes them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Controller's address of the first byte.
    pub(super) address: u64,
    /// Controller's address of the second page, or of the list of pages, or 0 if there is one page.
    pub(super) second: u64,
    /// Double words 12 and 13 of the controller's command: number of blocks less one, and flags.
    pub(super) blocks: u64,
    /// Number of bytes of the device that the command affects.
    pub(super) bytes: u64,
    /// Number of the registered region.
    pub(super) region: u32,
    /// Number of pages from `second` on that are to be listed; 0 if there is at most one.
    pub(super) listed: u16,
    pub(super) operation: Operation,
    /// Opcode of the controller's command.
    pub(super) opcode: u8,
}

impl Shape {
    /// Describes a command that is not direct.
    pub(super) fn empty(operation: Operation, bytes: u64) -> Shape {
        Shape { address: 0, second: 0, blocks: 0, bytes, region: 0, listed: 0, operation, opcode: 0 }
    }

    /// Describes a read or write of `bytes` bytes, whole blocks and at most [`Limits::direct_max`], of the memory that the
    /// controller has at `address`.
    #[inline(always)]
    pub(super) fn direct(
        operation: Operation,
        bytes: u64,
        (region, address): (u32, u64),
        limits: &Limits,
    ) -> Shape {
        let page = PAGE as u64;
        let second = (address & !(page - 1)) + page;
        // Bytes of the memory that are behind its first page.
        let rest = (address + bytes).saturating_sub(second);
        let (second, listed) = match rest {
            0 => (0, 0),
            rest if rest <= page => (second, 0),
            // Fits, since a command has at most as many pages as a list has entries.
            rest => (second, rest.div_ceil(page) as u16),
        };
        let (opcode, flags) = match operation {
            Operation::Read => (io::READ, 0),
            Operation::WriteDurable => (io::WRITE, u64::from(command::FUA)),
            _ => (io::WRITE, 0),
        };
        let blocks = ((bytes >> limits.block_shift) - 1) | flags;
        Shape { address, second, blocks, bytes, region, listed, operation, opcode }
    }
}

/// Identifies a transfer of a device: a read or write of one piece of registered memory, which was checked and whose pages
/// were looked up once, so that it takes few instructions to submit it, again and again, at offsets of the device. Made by
/// [`Nvme::prepare`](super::Nvme::prepare).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TransferId(pub(super) u16);

/// Memory and operation of a transfer.
#[derive(Clone, Debug)]
pub(super) struct Prepared {
    operation: Operation,
    region: RegionId,
    segment: [Segment; 1],
}

impl Prepared {
    pub(super) fn new(operation: Operation, region: RegionId, segment: Segment) -> Prepared {
        Prepared { operation, region, segment: [segment] }
    }

    /// Returns the shape of the transfer's commands; `None` if one command of the controller cannot carry it out without a
    /// copy, or if the region is not registered or does not contain the memory.
    pub(super) fn shape(&self, limits: &Limits, regions: &Regions) -> Option<Shape> {
        let [segment] = &self.segment;
        let bytes = segment.bytes() as u64;
        if !limits.is_direct(self.operation, 0, bytes) {
            return None;
        }
        let found = regions.find_one(self.region, segment.base().addr(), bytes)?;
        found.1.is_multiple_of(4).then(|| Shape::direct(self.operation, bytes, found, limits))
    }

    /// Returns the same as a command with this token, which the device checks and looks up anew.
    pub(super) fn command(&self, token: u64, offset: u64) -> Command<'_> {
        Command::new(token, self.operation, offset, 0, &self.segment).region(Some(self.region))
    }
}
