//! Limits of a controller's commands, and the shape of a direct command within them: all of it but its offset. Pure.
//!
//! Invariant: a shape describes memory that one command of the controller reads or writes without a copy. Called by slots and
//! transfers.

use super::regions::Regions;
use crate::command::{self, BLOCKS_MAX, io};
use crate::controller::Identity;
use crate::data::PRP_BYTES_MAX;
use crate::dma::PAGE;
use bywash_device::{Access, Operation, RegionId, Segment};

/// Limits of the controller's commands, and its namespace.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) namespace: u32,
    /// Size of a block, as a power of two.
    pub(super) block_shift: u32,
    /// Size of a block less one, in bytes.
    block_mask: u64,
    /// Greatest number of bytes that a command moves; a multiple of a page.
    pub(super) part_max: u64,
    /// Greatest number of bytes that Write Zeroes sets; 0 if the controller does not have it.
    pub(super) zeroes_max: u64,
    /// Greatest number of bytes that Dataset Management deallocates; 0 if the controller does not have it.
    pub(super) deallocate_max: u64,
    pub(super) has_compare: bool,
    /// True if memory can be described by scatter/gather lists.
    pub(super) has_sgl: bool,
    /// True if addresses and lengths in scatter/gather lists have to be multiples of 4 bytes.
    pub(super) sgl_is_aligned: bool,
    /// Size of the device, in bytes.
    pub(super) bytes: u64,
    /// Greatest number of bytes of a command that one command of the controller carries out directly.
    pub(super) direct_max: u64,
    /// Operations that can be carried out directly: a bit for each, numbered as in [`Operation`].
    direct_operations: u8,
}

impl Limits {
    /// Returns the limits of a namespace that may be accessed by `access`.
    pub(super) fn new(identity: &Identity, access: Access) -> Limits {
        let Identity { controller, limits, namespace } = identity;
        let block = u64::from(namespace.block);
        let blocks_bytes = BLOCKS_MAX * block;
        let transfer =
            controller.transfer_max.unwrap_or(u64::MAX).min(PRP_BYTES_MAX as u64).min(blocks_bytes);
        let zeroes = limits.zeroes_max.unwrap_or(u64::MAX).min(blocks_bytes) / block * block;
        let deallocate = u64::from(limits.deallocate_blocks_max.unwrap_or(u32::MAX)) * block;
        let bit = |operation: Operation| 1u8 << operation as u8;
        let reads = bit(Operation::Read);
        let writes = bit(Operation::Write) | bit(Operation::WriteDurable);
        let part_max = (transfer / PAGE as u64).max(1) * PAGE as u64;
        Limits {
            namespace: namespace.number,
            block_shift: namespace.block.trailing_zeros(),
            block_mask: block - 1,
            bytes: namespace.bytes(),
            direct_max: part_max.min(namespace.bytes()),
            direct_operations: match access {
                Access::Read => reads,
                Access::Write => writes,
                Access::ReadWrite => reads | writes,
            },
            part_max,
            zeroes_max: if controller.has_write_zeroes { zeroes } else { 0 },
            deallocate_max: if controller.has_deallocate { deallocate } else { 0 },
            has_compare: controller.has_compare,
            has_sgl: controller.has_sgl,
            sgl_is_aligned: controller.sgl_is_aligned,
        }
    }

    /// Returns true if an offset is one of a block.
    #[inline(always)]
    pub(super) fn is_whole(&self, offset: u64) -> bool {
        offset & self.block_mask == 0
    }

    /// Returns true if a command with one segment of `bytes` bytes passes [`bywash_device::Command::check`], and one command
    /// of the controller can carry it out without a copy.
    #[inline]
    pub(super) fn is_direct(&self, operation: Operation, offset: u64, bytes: u64) -> bool {
        self.direct_operations >> (operation as u8) & 1 == 1
            // At least one byte.
            && bytes.wrapping_sub(1) < self.direct_max
            && (offset | bytes) & self.block_mask == 0
            && offset <= self.bytes - bytes
    }
}

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

    /// Describes a read or write of one segment in a registered region at an offset of the device. `None` if one command of the
    /// controller cannot carry it out without a copy, or if the region is not registered or does not contain the segment.
    #[inline(always)]
    pub(super) fn find(
        operation: Operation,
        offset: u64,
        segment: &Segment,
        region: RegionId,
        (limits, regions): (&Limits, &Regions),
    ) -> Option<Shape> {
        let bytes = segment.bytes() as u64;
        if !limits.is_direct(operation, offset, bytes) {
            return None;
        }
        let found = regions.find_one(region, segment.base().addr(), bytes)?;
        // Physical region pages begin at a multiple of four bytes.
        found.1.is_multiple_of(4).then(|| Shape::direct(operation, bytes, found, limits))
    }

    /// Describes a read or write of `bytes` bytes, whole blocks and at most [`Limits::direct_max`], of the memory that the
    /// controller has at `address`.
    #[inline(always)]
    fn direct(operation: Operation, bytes: u64, (region, address): (u32, u64), limits: &Limits) -> Shape {
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
