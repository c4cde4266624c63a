//! Where on the device a request is that was allowed.

use super::line::Extent;
use super::map::{Cursor, Map};
use super::{DeviceNumber, Grant, PIECES_MAX, Refusal};
use crate::extent::{Bytes, Span};

/// What a request is on its device: stretches one after the other, at most [`PIECES_MAX`].
#[derive(Clone, Debug)]
pub struct Pieces<'a> {
    map: &'a Map,
    device: DeviceNumber,
    /// The next byte, as the client counts.
    offset: u64,
    end: u64,
    /// The extent that the next byte is in, what leads from an offset in it to a place on the device, and its end.
    cursor: Cursor,
    to_place: u64,
    extent_end: u64,
}

impl<'a> Pieces<'a> {
    /// No bytes, at an offset.
    #[inline(always)]
    pub(super) fn none(grant: &'a Grant, end: u64) -> Pieces<'a> {
        let (map, device) = (&grant.map, grant.device);
        Pieces { map, device, offset: end, end, cursor: Cursor::default(), to_place: 0, extent_end: end }
    }

    /// What is from `offset` on in an extent, and in those behind it up to `end`.
    #[inline(always)]
    pub(super) fn new(grant: &'a Grant, offset: u64, end: u64, cursor: Cursor, extent: Extent) -> Pieces<'a> {
        let mut pieces = Pieces { offset, ..Pieces::none(grant, end) };
        pieces.enter(cursor, extent);
        pieces
    }

    /// The device that they are on.
    #[inline]
    pub fn device(&self) -> DeviceNumber {
        self.device
    }

    /// The only one, if there is but one.
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

    /// Refuses what falls into too many.
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
