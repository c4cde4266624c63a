//! Ranges on the device of a request that was allowed.

use super::line::Extent;
use super::map::{ExtentPosition, ExtentState, Map};
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
        self.to_place = self.map.on_device(extent.place).wrapping_sub(extent.start);
        self.extent_end = extent.end;
    }

    /// Returns true if one of the extents of the request is at the place `limit` of the map, or behind.
    #[inline(never)]
    pub(super) fn reaches(self, limit: u64) -> bool {
        let (mut cursor, mut extent_end) = (self.cursor, self.extent_end);
        let (_, first) = self.map.find(self.offset);
        let mut place = first.place;
        while place < limit && extent_end < self.end {
            let (next, extent) = self.map.next(cursor);
            (cursor, place, extent_end) = (next, extent.place, extent.end);
        }
        place >= limit
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

/// Part of a request to a grant that may have holes and shared extents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangePart {
    /// Offset of the part in the grant.
    pub offset: Bytes,
    /// Length of the part.
    pub length: Bytes,
    /// Range of the device that holds the part, of the same length; `None` if the part is a hole.
    pub mapped: Option<ByteRange>,
    /// True if other volumes have the range of the device, too: it must not be written.
    pub is_shared: bool,
}

/// Parts of a request to a grant that may have holes and shared extents, in the order of its bytes. Iterating returns them.
#[derive(Clone, Debug)]
pub struct RangeParts<'a> {
    map: &'a Map,
    device: DeviceNumber,
    /// Offset of the next byte in the grant.
    offset: u64,
    end: u64,
    /// Extent that contains the next byte.
    cursor: ExtentPosition,
    extent: Extent,
}

impl<'a> RangeParts<'a> {
    /// Makes an empty sequence.
    pub(super) fn none(grant: &'a Grant) -> RangeParts<'a> {
        let nowhere = Extent { start: 0, end: 0, place: 0 };
        RangeParts::new(grant, (0, 0), (ExtentPosition::default(), nowhere))
    }

    /// Makes the sequence for the bytes from `offset` to `end`; `offset` is in `extent`.
    pub(super) fn new(
        grant: &'a Grant,
        (offset, end): (u64, u64),
        (cursor, extent): (ExtentPosition, Extent),
    ) -> RangeParts<'a> {
        RangeParts { map: &grant.map, device: grant.device, offset, end, cursor, extent }
    }

    /// Returns the number of the device.
    pub fn device(&self) -> DeviceNumber {
        self.device
    }
}

impl Iterator for RangeParts<'_> {
    type Item = RangePart;

    fn next(&mut self) -> Option<RangePart> {
        if self.offset == self.end {
            return None;
        }
        let (extent, offset) = (self.extent, self.offset);
        let end = extent.end.min(self.end);
        let state = self.map.state(extent.place);
        let start = self.map.on_device(extent.place).wrapping_add(offset - extent.start);
        let range = ByteRange::new(start, end - offset);
        self.offset = end;
        if end < self.end {
            (self.cursor, self.extent) = self.map.next(self.cursor);
        }
        Some(RangePart {
            offset: Bytes(offset),
            length: range.length,
            mapped: (state != ExtentState::Hole).then_some(range),
            is_shared: state == ExtentState::Shared,
        })
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
