//! Parsing of a descriptor chain into a request.
//!
//! Invariant: whatever the guest has written, and whenever it changes that, the result is either a request
//! that lies within the device and whose segments lie in the guest's memory, or a refusal. Each byte is read
//! once. Called by `disk` for each chain.

use crate::layout::{FAILED, RANGE_BYTES, RANGES_MAX, Range, RequestHeader, SECTOR, UNSUPPORTED};
use crate::memory::{self, Map};
use bywash_device::{Access, Geometry, Operation, Segment};
use virtio_bindings::virtio_blk as blk;
use virtio_queue::desc::split::Descriptor;
use vm_memory::{Bytes, GuestAddress, Permissions};

/// Result of parsing a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ParsedChain {
    /// Address of the status byte; `None` if the chain has no room for it.
    pub(crate) status: Option<GuestAddress>,
    /// Operation to carry out, or the status with which the chain is refused.
    pub(crate) what: Result<Action, u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// A request of the device, whose memory is in [`Parts::segments`].
    Do { operation: Operation, offset: u64, length: u64 },
    /// Writes the disk's name to the chain.
    Identify,
}

/// The readable and writable parts of a chain. Reused from chain to chain, so that none allocates memory.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    readable: Vec<GuestRange>,
    writable: Vec<GuestRange>,
    pub(crate) segments: Vec<Segment>,
}

#[derive(Clone, Copy, Debug)]
struct GuestRange {
    at: GuestAddress,
    bytes: u32,
}

impl Parts {
    /// Parses a chain.
    pub(crate) fn read(
        &mut self,
        chain: impl Iterator<Item = Descriptor>,
        memory: &Map,
        geometry: &Geometry,
    ) -> ParsedChain {
        self.segments.clear();
        if !self.sort(chain) {
            return ParsedChain { status: None, what: Err(FAILED) };
        }
        let Some(status) = self.take_status().filter(|at| memory::has_byte(memory, *at)) else {
            return ParsedChain { status: None, what: Err(FAILED) };
        };
        ParsedChain { status: Some(status), what: self.parse(memory, geometry) }
    }

    /// Sorts a chain's descriptors into readable and writable ones. Returns false if the chain is not
    /// complete and valid.
    fn sort(&mut self, chain: impl Iterator<Item = Descriptor>) -> bool {
        self.readable.clear();
        self.writable.clear();
        let mut goes_on = true;
        for descriptor in chain {
            goes_on = descriptor.has_next();
            let part = GuestRange { at: descriptor.addr(), bytes: descriptor.len() };
            match descriptor.is_write_only() {
                _ if part.bytes == 0 => {}
                true => self.writable.push(part),
                // All readable descriptors must come before the writable ones (2.7.4.2).
                false if self.writable.is_empty() => self.readable.push(part),
                false => return false,
            }
        }
        !goes_on
    }

    /// Removes the last writable byte, which is the status, from the data, and returns its address.
    fn take_status(&mut self) -> Option<GuestAddress> {
        let last = self.writable.last_mut()?;
        last.bytes -= 1;
        let at = last.at.0.checked_add(last.bytes.into()).map(GuestAddress);
        if last.bytes == 0 {
            self.writable.pop();
        }
        at
    }

    fn parse(&mut self, memory: &Map, geometry: &Geometry) -> Result<Action, u8> {
        let head = RequestHeader::from_bytes(take(&mut self.readable, memory)?);
        match head.kind {
            blk::VIRTIO_BLK_T_IN => self.transfer(Operation::Read, head.sector, memory, geometry),
            blk::VIRTIO_BLK_T_OUT => self.transfer(Operation::Write, head.sector, memory, geometry),
            blk::VIRTIO_BLK_T_FLUSH => Ok(Action::Do { operation: Operation::Flush, offset: 0, length: 0 }),
            blk::VIRTIO_BLK_T_DISCARD => self.range(Operation::Discard, memory, geometry),
            blk::VIRTIO_BLK_T_WRITE_ZEROES => self.range(Operation::WriteZeroes, memory, geometry),
            blk::VIRTIO_BLK_T_GET_ID => Ok(Action::Identify),
            _ => Err(UNSUPPORTED),
        }
    }

    /// Writes as much of `bytes` as fits, and returns the number of bytes written; `None` if the room is not
    /// all in the guest's memory.
    pub(crate) fn write(&self, mut bytes: &[u8], memory: &Map) -> Option<usize> {
        let all = bytes.len();
        for part in &self.writable {
            let (here, rest) = bytes.split_at(bytes.len().min(part.bytes as usize));
            memory.write_slice(here, part.at).ok()?;
            bytes = rest;
        }
        Some(all - bytes.len())
    }

    fn transfer(
        &mut self,
        operation: Operation,
        sector: u64,
        memory: &Map,
        geometry: &Geometry,
    ) -> Result<Action, u8> {
        let (parts, access) = match operation {
            Operation::Read => (&self.writable, Permissions::Write),
            _ => (&self.readable, Permissions::Read),
        };
        let length: u64 = parts.iter().map(|part| u64::from(part.bytes)).sum();
        if length > geometry.transfer_max {
            return Err(FAILED);
        }
        let offset = within(operation, sector, length, geometry)?;
        for part in parts {
            let segments = &mut self.segments;
            let all = memory::for_each_segment(memory, part.at, part.bytes as usize, access, |segment| {
                segments.push(segment);
                segments.len() <= geometry.segments_max
            });
            if !all {
                return Err(FAILED);
            }
        }
        Ok(Action::Do { operation, offset, length })
    }

    fn range(&mut self, operation: Operation, memory: &Map, geometry: &Geometry) -> Result<Action, u8> {
        let bytes: u64 = self.readable.iter().map(|part| u64::from(part.bytes)).sum();
        if bytes != (RANGES_MAX * RANGE_BYTES) as u64 {
            return Err(FAILED);
        }
        let range = Range::from_bytes(take(&mut self.readable, memory)?);
        // The flag "unmap" is allowed only for writing zeros, where it is advice (5.2.6.2).
        let allowed = match operation {
            Operation::WriteZeroes => blk::VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP,
            _ => 0,
        };
        if range.flags & !allowed != 0 {
            return Err(UNSUPPORTED);
        }
        let length = u64::from(range.sectors) * SECTOR;
        if length > geometry.range_max {
            return Err(FAILED);
        }
        let offset = within(operation, range.sector, length, geometry)?;
        Ok(Action::Do { operation, offset, length })
    }
}

/// Returns the offset of a range in bytes, if the range is not empty, consists of whole blocks within the
/// device, and the operation is allowed there.
fn within(operation: Operation, sector: u64, length: u64, geometry: &Geometry) -> Result<u64, u8> {
    let block = u64::from(geometry.block);
    let offset = sector.checked_mul(SECTOR).ok_or(FAILED)?;
    let whole = offset.is_multiple_of(block) && length.is_multiple_of(block) && length > 0;
    let inside = offset <= geometry.bytes && length <= geometry.bytes - offset;
    let allowed = operation == Operation::Read || geometry.access != Access::Read;
    if whole && inside && allowed { Ok(offset) } else { Err(FAILED) }
}

/// Reads and removes the first `BYTES` bytes of `parts`.
fn take<const BYTES: usize>(parts: &mut Vec<GuestRange>, memory: &Map) -> Result<[u8; BYTES], u8> {
    let mut bytes = [0; BYTES];
    let (mut have, mut used) = (0, 0);
    for part in parts.iter_mut() {
        let piece = (BYTES - have).min(part.bytes as usize);
        if !memory::read_bytes(memory, part.at, &mut bytes[have..have + piece]) {
            return Err(FAILED);
        }
        have += piece;
        // The bytes just read are in memory, so their end is a valid address or the one after the last.
        part.at = GuestAddress(part.at.0.wrapping_add(piece as u64));
        part.bytes -= piece as u32;
        if part.bytes > 0 {
            break;
        }
        used += 1;
        if have == BYTES {
            break;
        }
    }
    parts.drain(..used);
    if have == BYTES { Ok(bytes) } else { Err(FAILED) }
}

// `Parts::range` handles exactly one range.
const _: () = assert!(RANGES_MAX == 1);

#[cfg(test)]
mod tests;
