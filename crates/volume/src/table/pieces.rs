//! Ranges on the device of a request that was allowed.

use super::line::Extent;
use super::map::{Cursor, Map};
use super::{DeviceNumber, Grant, PIECES_MAX, Refusal};
use crate::extent::{Bytes, Span};

/// Ranges on the device of one request, in the order of its bytes; at most [`PIECES_MAX`]. Iterating returns
/// them.
#[derive(Clone, Debug)]
pub struct Pieces<'a> {
    map: &'a Map,
    device: DeviceNumber,
    /// Offset of the next byte in the grant.
    offset: u64,
    end: u64,
    /// Extent that contains the next byte; the difference between its place on the device and its start in
    /// the grant (wrapping); and its end in the grant.
    cursor: Cursor,
    to_place: u64,
    extent_end: u64,
}

impl<'a> Pieces<'a> {
    /// Makes an empty sequence at the offset `end`.
    #[inline(always)]
    pub(super) fn none(grant: &'a Grant, end: u64) -> Pieces<'a> {
        let (map, device) = (&grant.map, grant.device);
        Pieces { map, device, offset: end, end, cursor: Cursor::default(), to_place: 0, extent_end: end }
    }

    /// Makes the sequence for the bytes from `offset` to `end`; `offset` is in `extent`.
    #[inline(always)]
    pub(super) fn new(grant: &'a Grant, offset: u64, end: u64, cursor: Cursor, extent: Extent) -> Pieces<'a> {
        let mut pieces = Pieces { offset, ..Pieces::none(grant, end) };
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
    pub fn only(&self) -> Option<Span> {
        let is_one = self.offset < self.end && self.end <= self.extent_end;
        is_one.then(|| Span::new(self.offset.wrapping_add(self.to_place), self.end - self.offset))
    }

    #[inline(always)]
    fn enter(&mut self, cursor: Cursor, extent: Extent) {
        self.cursor = cursor;
        self.to_place = extent.place.wrapping_sub(extent.start);
        self.extent_end = extent.end;
    }

    /// Refuses a request that is in more than [`PIECES_MAX`] pieces.
    #[cold]
    pub(super) fn refuse_too_many(mut self) -> Result<(), Refusal> {
        let offset = self.offset;
        self.by_ref().take(PIECES_MAX).for_each(drop);
        if self.offset == self.end {
            return Ok(());
        }
        Err(Refusal::Scattered { offset: Bytes(offset), served: Bytes(self.offset - offset) })
    }
}

impl Iterator for Pieces<'_> {
    type Item = Span;

    #[inline(always)]
    fn next(&mut self) -> Option<Span> {
        if self.offset == self.end {
            return None;
        }
        let end = self.extent_end.min(self.end);
        let piece = Span::new(self.offset.wrapping_add(self.to_place), end - self.offset);
        self.offset = end;
        if end < self.end {
            let (cursor, extent) = self.map.next(self.cursor);
            self.enter(cursor, extent);
        }
        Some(piece)
    }
}
