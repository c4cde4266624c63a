//! Ranges on the device of a request that was allowed.

use super::line::Extent;
use super::map::{ExtentPosition, Map};
use super::{DeviceNumber, Grant, GrantError};
use crate::extent::{ByteRange, Bytes};

/// Ranges on the device of one request, in the order of its bytes; at most [`PIECES_MAX`](super::PIECES_MAX).
/// Iterating returns them.
#[derive(Clone, Debug)]
pub struct DeviceRanges<'a> {
    map: &'a Map,
    device: DeviceNumber,
    /// Offset of the next byte in the grant.
    offset: u64,
    end: u64,
    /// Extent that contains the next byte; the difference between its place on the device and its start in
    /// the grant (wrapping); and its end in the grant.
    cursor: ExtentPosition,
    to_place: u64,
    extent_end: u64,
}

impl<'a> DeviceRanges<'a> {
    /// Makes an empty sequence at the offset `end`.
    #[inline(always)]
    pub(super) fn none(grant: &'a Grant, end: u64) -> DeviceRanges<'a> {
        let (map, device) = (&grant.map, grant.device);
        DeviceRanges {
            map,
            device,
            offset: end,
            end,
            cursor: ExtentPosition::default(),
            to_place: 0,
            extent_end: end,
        }
    }

    /// Makes the sequence for the bytes from `offset` to `end`; `offset` is in `extent`.
    #[inline(always)]
    pub(super) fn new(
        grant: &'a Grant,
        offset: u64,
        end: u64,
        cursor: ExtentPosition,
        extent: Extent,
    ) -> DeviceRanges<'a> {
        let mut pieces = DeviceRanges { offset, ..DeviceRanges::none(grant, end) };
        pieces.enter(cursor, extent);
        pieces
    }

    /// Returns the number of the device.
    #[inline]
    pub fn device(&self) -> DeviceNumber {
        self.device
    }

    /// Returns the range that is left if there is exactly one.
    #[inline(always)]
    pub fn only(&self) -> Option<ByteRange> {
        let is_one = self.offset < self.end && self.end <= self.extent_end;
        is_one.then(|| ByteRange::new(self.offset.wrapping_add(self.to_place), self.end - self.offset))
    }

    #[inline(always)]
    fn enter(&mut self, cursor: ExtentPosition, extent: Extent) {
        self.cursor = cursor;
        self.to_place = extent.place.wrapping_sub(extent.start);
        self.extent_end = extent.end;
    }

    /// Refuses a request that is in more than `most` pieces.
    #[cold]
    pub(super) fn refuse_more_than(mut self, most: usize) -> Result<(), GrantError> {
        let offset = self.offset;
        self.by_ref().take(most).for_each(drop);
        if self.offset == self.end {
            return Ok(());
        }
        Err(GrantError::Scattered { offset: Bytes(offset), served: Bytes(self.offset - offset) })
    }
}

/// Part of a request to a grant that may have holes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangePart {
    /// Offset of the part in the grant.
    pub offset: Bytes,
    /// Length of the part.
    pub length: Bytes,
    /// Range of the device that holds the part, of the same length; `None` if the part is a hole.
    pub mapped: Option<ByteRange>,
}

/// Parts of a request to a grant that may have holes, in the order of its bytes. Iterating returns them.
#[derive(Clone, Debug)]
pub struct RangeParts<'a>(DeviceRanges<'a>);

impl<'a> RangeParts<'a> {
    pub(super) fn new(ranges: DeviceRanges<'a>) -> RangeParts<'a> {
        RangeParts(ranges)
    }

    /// Returns the number of the device.
    pub fn device(&self) -> DeviceNumber {
        self.0.device
    }
}

impl Iterator for RangeParts<'_> {
    type Item = RangePart;

    fn next(&mut self) -> Option<RangePart> {
        let offset = Bytes(self.0.offset);
        let range = self.0.next()?;
        let mapped = (!self.0.map.is_hole(range.start.0)).then_some(range);
        Some(RangePart { offset, length: range.length, mapped })
    }
}

impl Iterator for DeviceRanges<'_> {
    type Item = ByteRange;

    #[inline(always)]
    fn next(&mut self) -> Option<ByteRange> {
        if self.offset == self.end {
            return None;
        }
        let end = self.extent_end.min(self.end);
        let piece = ByteRange::new(self.offset.wrapping_add(self.to_place), end - self.offset);
        self.offset = end;
        if end < self.end {
            let (cursor, extent) = self.map.next(self.cursor);
            self.enter(cursor, extent);
        }
        Some(piece)
    }
}
