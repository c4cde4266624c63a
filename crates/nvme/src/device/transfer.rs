//! Transfers: reads and writes of one piece of registered memory, which are checked once and submitted any number of times.
//!
//! Invariant: the memory of a transfer lies in the region that it names, as long as the region is registered. A region that
//! was unregistered is noticed by its generation. Called by `direct`, whose head has the whole picture.

use super::regions::Regions;
use super::shape::{Limits, Shape};
use bywash_device::{Command, Operation, RegionId, Segment};

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
        Shape::find(self.operation, 0, &self.segment[0], self.region, (limits, regions))
    }

    /// Returns the same as a command with this token, which the device checks and looks up anew.
    pub(super) fn command(&self, token: u64, offset: u64) -> Command<'_> {
        Command::new(token, self.operation, offset, 0, &self.segment).region(Some(self.region))
    }
}
