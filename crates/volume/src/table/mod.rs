//! The table of a client's grants, which every request is checked against.
//!
//! A grant is a right to some extents of a device, decided once when a volume is opened: reading, writing or
//! both. The client addresses the extents as consecutive bytes from 0 on. A request names a grant, an offset
//! and a length; [`Table::check`] checks the range and the right, and returns the ranges on the device.
//!
//! Nothing in a request is trusted: for any number, offset and length, the result is either ranges of this
//! client's grants or a [`GrantError`]. A grant's number contains a tag, so the number of a revoked grant
//! never means the next grant in the same place. The table belongs to the server's thread that serves the
//! channel. Revoking needs the table exclusively, so a revocation counts for every later check.
//!
//! A check neither allocates nor locks. `bywash bench serve check` measures its cost.

mod line;
mod map;
mod pieces;
mod refusal;
#[cfg(test)]
mod tests;

use crate::error::Error;
use crate::extent::{ByteRange, Bytes};
use bywash_protocol::Access;
use map::Map;

pub use map::{GRANT_EXTENTS_MAX, GrantExtent};
pub use pieces::{DeviceRanges, RangePart, RangeParts};
pub use refusal::GrantError;

/// Greatest number of grants in a table.
pub const GRANTS_MAX: u32 = 1 << 20;
/// Greatest number of pieces that a request may be split into.
pub const PIECES_MAX: usize = 256;

/// Number of a device, assigned by the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeviceNumber(pub u32);

/// Number that names a grant: its place in the table, and a tag that is new for each grant in the same place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GrantNumber(u64);

impl GrantNumber {
    /// Makes a number from the word that a client sent, which may be anything.
    #[inline]
    pub fn from_word(word: u64) -> GrantNumber {
        GrantNumber(word)
    }

    /// Returns the word that is sent to the client.
    #[inline]
    pub fn to_word(self) -> u64 {
        self.0
    }

    fn new(place: usize, tag: u32) -> GrantNumber {
        GrantNumber(u64::from(tag) << 32 | place as u64)
    }

    #[inline]
    fn place(self) -> usize {
        self.0 as u32 as usize
    }

    #[inline]
    fn tag(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

impl std::fmt::Display for GrantNumber {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}.{}", self.place(), self.tag())
    }
}

/// Right to some extents of a device.
#[derive(Debug)]
pub struct Grant {
    device: DeviceNumber,
    right: Access,
    map: Map,
}

impl Grant {
    /// Makes a grant of these ranges, which the client addresses as consecutive bytes from 0 on.
    ///
    /// # Errors
    /// [`Error::Span`] if a range is empty or ends beyond 64 bits, if all together exceed 64 bits, or if
    /// there is none; [`Error::GrantExtents`] if there are more than [`GRANT_EXTENTS_MAX`].
    pub fn new(
        device: DeviceNumber,
        right: Access,
        spans: impl IntoIterator<Item = ByteRange>,
    ) -> Result<Grant, Error> {
        Ok(Grant { device, right, map: Map::new(spans)? })
    }

    /// Makes a grant of `length` bytes of a thin volume. The client addresses all of them from 0 on, but only the
    /// `mapped` ones, which are in order, are allocated on the device. [`Table::check`] refuses requests that touch any
    /// other byte, or write a shared one, and [`Table::check_parts`] tells which.
    ///
    /// # Errors
    /// [`Error::Span`] if a range is empty, ends beyond 64 bits or the grant, or is not behind the one before, or if
    /// the length is zero; [`Error::GrantExtents`] if the grant would have more than [`GRANT_EXTENTS_MAX`], holes
    /// included.
    pub fn with_holes(
        device: DeviceNumber,
        right: Access,
        length: Bytes,
        mapped: impl IntoIterator<Item = GrantExtent>,
    ) -> Result<Grant, Error> {
        Ok(Grant { device, right, map: Map::with_holes(length.0, mapped)? })
    }

    /// Returns the number of the device.
    pub fn device(&self) -> DeviceNumber {
        self.device
    }

    /// Returns the access that the grant allows.
    pub fn right(&self) -> Access {
        self.right
    }

    /// Returns the length of the grant, in bytes.
    pub fn length(&self) -> Bytes {
        Bytes(self.map.length())
    }

    /// Returns the number of extents, after merging ranges that are contiguous on the device; holes count as well.
    pub fn extents(&self) -> usize {
        self.map.extents()
    }

    /// Returns the sizes of the two tables that a check looks up in sequence: the number of index entries, of
    /// 4 bytes each, and the number of cache lines, of 64 bytes each, that hold the extents.
    pub fn table_size(&self) -> (usize, usize) {
        self.map.size()
    }
}

/// Place of the table, with or without a grant.
#[derive(Debug)]
struct GrantSlot {
    /// Number of tags assigned here so far. The tag of the current grant, if there is one, equals this
    /// number.
    last_tag: u32,
    grant: Option<Grant>,
}

/// Grants of one client.
#[derive(Debug)]
pub struct Table {
    places: Vec<GrantSlot>,
    /// Places without a grant; the last one is used next.
    free: Vec<u32>,
    grants_max: u32,
}

impl Table {
    /// Makes a table for up to `grants_max` grants at a time, [`GRANTS_MAX`] at most. Memory is allocated as
    /// grants are added.
    pub fn new(grants_max: u32) -> Table {
        Table { places: Vec::new(), free: Vec::new(), grants_max: grants_max.min(GRANTS_MAX) }
    }

    /// Adds a grant and returns the number by which requests name it.
    ///
    /// # Errors
    /// [`Error::Grants`] if the table has its greatest number of grants.
    pub fn add(&mut self, grant: Grant) -> Result<GrantNumber, Error> {
        let place = match self.free.pop() {
            Some(place) => place as usize,
            None if self.places.len() < self.grants_max as usize => {
                self.places.push(GrantSlot { last_tag: 0, grant: None });
                self.places.len() - 1
            }
            None => return Err(Error::Grants { most: self.grants_max }),
        };
        let GrantSlot { last_tag: given, grant: here } = &mut self.places[place];
        // No overflow: a place whose tags are used up is not among the free ones.
        *given += 1;
        *here = Some(grant);
        Ok(GrantNumber::new(place, *given))
    }

    /// Revokes a grant and returns it; every later check by its number is refused.
    ///
    /// # Errors
    /// [`GrantError::Unknown`] if the number was never assigned, [`GrantError::Revoked`] if its grant was
    /// revoked before.
    pub fn revoke(&mut self, number: GrantNumber) -> Result<Grant, GrantError> {
        self.find(number)?;
        let place = &mut self.places[number.place()];
        let grant = place.grant.take().ok_or(GrantError::Unknown { grant: number })?;
        // A place whose tags are used up stays unused.
        if place.last_tag < u32::MAX {
            self.free.push(number.place() as u32);
        }
        Ok(grant)
    }

    /// Returns the grant of that number.
    ///
    /// # Errors
    /// [`GrantError::Unknown`] if the number was never assigned, [`GrantError::Revoked`] if its grant was
    /// revoked.
    #[inline(always)]
    pub fn find(&self, number: GrantNumber) -> Result<&Grant, GrantError> {
        if let Some(GrantSlot { last_tag: given, grant: Some(grant) }) = self.places.get(number.place())
            && *given == number.tag()
        {
            return Ok(grant);
        }
        Err(self.missing(number))
    }

    #[cold]
    fn missing(&self, number: GrantNumber) -> GrantError {
        match self.places.get(number.place()) {
            Some(place) if (1..=place.last_tag).contains(&number.tag()) => {
                GrantError::Revoked { grant: number }
            }
            _ => GrantError::Unknown { grant: number },
        }
    }

    /// Replaces a grant by another one of the same length, device and right, whose number stays the same, and
    /// returns the former one. A thin volume whose blocks were allocated or released has another map.
    ///
    /// # Errors
    /// [`GrantError::Unknown`] if the number was never assigned, [`GrantError::Revoked`] if its grant was
    /// revoked.
    ///
    /// # Panics
    /// If length, device or right are not the same.
    pub fn replace(&mut self, number: GrantNumber, grant: Grant) -> Result<Grant, GrantError> {
        let before = self.find(number)?;
        assert!(
            (before.device, before.right, before.length()) == (grant.device, grant.right, grant.length()),
            "a grant is replaced by one of the same length, device and right"
        );
        let place = &mut self.places[number.place()];
        place.grant.replace(grant).ok_or(GrantError::Unknown { grant: number })
    }

    /// Returns all grants and their numbers.
    pub fn grants(&self) -> impl Iterator<Item = (GrantNumber, &Grant)> {
        self.places.iter().enumerate().filter_map(|(at, place)| {
            place.grant.as_ref().map(|grant| (GrantNumber::new(at, place.last_tag), grant))
        })
    }

    /// Checks a request, and returns its ranges on the device. A request of no bytes has no ranges.
    ///
    /// # Errors
    /// [`GrantError::Unknown`] or [`GrantError::Revoked`] if there is no such grant; [`GrantError::Right`] if
    /// it does not allow the access; [`GrantError::Overflow`] or [`GrantError::Bounds`] if the range is not
    /// within the grant; [`GrantError::Unmapped`] if a part of it is a hole of the grant, or is shared and to be written;
    /// [`GrantError::Scattered`] if it is in more than [`PIECES_MAX`] pieces.
    // Inlined so that the result stays in registers: as a call the check takes three times as long.
    #[inline(always)]
    pub fn check(
        &self,
        number: GrantNumber,
        offset: Bytes,
        length: Bytes,
        wanted: Access,
    ) -> Result<DeviceRanges<'_>, GrantError> {
        let grant = self.find(number)?;
        let (end, overflows) = offset.0.overflowing_add(length.0);
        if overflows || end > grant.map.length() || !grant.right.covers(wanted) {
            return Err(grant.refusal(offset, length, wanted));
        }
        if length.0 == 0 {
            return Ok(DeviceRanges::none(grant, end));
        }
        let (cursor, extent) = grant.map.find(offset.0);
        let pieces = DeviceRanges::new(grant, offset.0, end, cursor, extent);
        let limit = grant.map.limit(wanted);
        if extent.place >= limit {
            return Err(GrantError::Unmapped { offset, length });
        }
        if end > extent.end {
            if limit != u64::MAX && pieces.clone().reaches(limit) {
                return Err(GrantError::Unmapped { offset, length });
            }
            if grant.map.may_fall_into(length.0, PIECES_MAX) {
                pieces.clone().refuse_more_than(PIECES_MAX)?;
            }
        }
        Ok(pieces)
    }

    /// Checks a request to a grant that is one extent of its device, as most are, in fewer steps than [`Table::check`].
    /// Returns the device, and the start of the request's only range there. `None` if the grant has several extents, or if
    /// the request has no bytes or is to be refused: `check` then tells more.
    #[inline(always)]
    pub fn check_flat(
        &self,
        number: GrantNumber,
        offset: Bytes,
        length: Bytes,
        wanted: Access,
    ) -> Option<(DeviceNumber, Bytes)> {
        let GrantSlot { last_tag, grant: Some(grant) } = self.places.get(number.place())? else {
            return None;
        };
        let (place, all) = (grant.map.flat()?, grant.map.length());
        let is_within = length.0 > 0 && offset.0 <= all && length.0 <= all - offset.0;
        // No overflow: the extent lies on the device.
        (*last_tag == number.tag() && is_within && grant.right.covers(wanted))
            .then(|| (grant.device, Bytes(place + offset.0)))
    }

    /// Checks a request to a grant that may have holes and shared extents, and returns its parts, `parts_max` at most:
    /// ranges on the device, and holes.
    ///
    /// # Errors
    /// Same as [`Table::check`], except for [`GrantError::Unmapped`].
    #[cold]
    pub fn check_parts(
        &self,
        number: GrantNumber,
        offset: Bytes,
        length: Bytes,
        wanted: Access,
        parts_max: usize,
    ) -> Result<RangeParts<'_>, GrantError> {
        let grant = self.find(number)?;
        let (end, overflows) = offset.0.overflowing_add(length.0);
        if overflows || end > grant.map.length() || !grant.right.covers(wanted) {
            return Err(grant.refusal(offset, length, wanted));
        }
        if length.0 == 0 {
            return Ok(RangeParts::none(grant));
        }
        let (cursor, extent) = grant.map.find(offset.0);
        let pieces = DeviceRanges::new(grant, offset.0, end, cursor, extent);
        pieces.refuse_more_than(parts_max)?;
        Ok(RangeParts::new(grant, (offset.0, end), (cursor, extent)))
    }
}

impl Grant {
    /// Returns the reason for a refusal that [`Table::check`] has decided on.
    #[cold]
    fn refusal(&self, offset: Bytes, length: Bytes, wanted: Access) -> GrantError {
        if !self.right.covers(wanted) {
            return GrantError::Right { wanted, right: self.right };
        }
        match offset.0.checked_add(length.0) {
            Some(_) => GrantError::Bounds { offset, length, granted: self.length() },
            None => GrantError::Overflow { offset, length },
        }
    }
}
