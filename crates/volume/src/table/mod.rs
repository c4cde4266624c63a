//! The table of a client's grants, which every request is checked against.
//!
//! A grant is a right to a stretch of a device, decided once, at open: reading, writing or both, of some extents that
//! the client sees as bytes from 0 on. A request names a grant by its number, an offset and a length; [`Table::check`]
//! finds out whether that is within the grant's bytes and its right, and where on the device it is.
//!
//! Nothing in a request is believed: any number, offset and length may come, and what comes out is either places of
//! this client's grants or a [`Refusal`]. Numbers have a tag, so that one that was revoked never means the grant that
//! got its place. The table belongs to the server's thread that serves the channel: revoking needs it for itself, so
//! it is in force for every later check.
//!
//! A check neither allocates nor locks. `bywash bench serve check` tells what it costs.

mod line;
mod map;
mod pieces;
mod refusal;
#[cfg(test)]
mod tests;

use crate::error::Error;
use crate::extent::{Bytes, Span};
use crate::right::Access;
use map::Map;

pub use map::GRANT_EXTENTS_MAX;
pub use pieces::Pieces;
pub use refusal::Refusal;

/// Most grants of a table.
pub const GRANTS_MAX: u32 = 1 << 20;
/// Most pieces that one request may fall into.
pub const PIECES_MAX: usize = 256;

/// A device, by the server's number for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeviceNumber(pub u32);

/// A grant, as requests name it: its place in the table and a tag that is new each time the place is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GrantNumber(u64);

impl GrantNumber {
    /// As a client sent it, which may be anything.
    #[inline]
    pub fn from_word(word: u64) -> GrantNumber {
        GrantNumber(word)
    }

    /// As a client is told.
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

/// A right to a stretch of a device.
#[derive(Debug)]
pub struct Grant {
    device: DeviceNumber,
    right: Access,
    map: Map,
}

impl Grant {
    /// A right to these stretches of a device, which the client sees one after the other as bytes from 0 on.
    ///
    /// # Errors
    /// [`Error::Span`] for one that is empty or ends beyond 64 bits, or none at all; [`Error::GrantExtents`] for more
    /// than [`GRANT_EXTENTS_MAX`].
    pub fn new(
        device: DeviceNumber,
        right: Access,
        spans: impl IntoIterator<Item = Span>,
    ) -> Result<Grant, Error> {
        Ok(Grant { device, right, map: Map::new(spans)? })
    }

    /// Its device.
    pub fn device(&self) -> DeviceNumber {
        self.device
    }

    /// What it allows.
    pub fn right(&self) -> Access {
        self.right
    }

    /// Its bytes.
    pub fn length(&self) -> Bytes {
        Bytes(self.map.length())
    }

    /// Stretches of the device, of which neighbours have become one.
    pub fn extents(&self) -> usize {
        self.map.extents()
    }

    /// Size of the two tables that a check looks into one after the other: entries of 4 bytes of an index, and cache lines
    /// of 64 bytes with the extents.
    pub fn table_size(&self) -> (usize, usize) {
        self.map.size()
    }
}

/// A place of the table.
#[derive(Debug)]
struct Place {
    /// Tags that were given here, from 1 on. The last is of the grant that is here, if there is one.
    given: u32,
    grant: Option<Grant>,
}

/// The grants of one client.
#[derive(Debug)]
pub struct Table {
    places: Vec<Place>,
    /// Places without a grant, of which the last is used next.
    free: Vec<u32>,
    grants_max: u32,
}

impl Table {
    /// A table for so many grants at a time, [`GRANTS_MAX`] at most. Memory is taken as they come.
    pub fn new(grants_max: u32) -> Table {
        Table { places: Vec::new(), free: Vec::new(), grants_max: grants_max.min(GRANTS_MAX) }
    }

    /// Takes a grant in and answers the number by which requests name it.
    ///
    /// # Errors
    /// [`Error::Grants`] if there are as many as there may be.
    pub fn add(&mut self, grant: Grant) -> Result<GrantNumber, Error> {
        let place = match self.free.pop() {
            Some(place) => place as usize,
            None if self.places.len() < self.grants_max as usize => {
                self.places.push(Place { given: 0, grant: None });
                self.places.len() - 1
            }
            None => return Err(Error::Grants { most: self.grants_max }),
        };
        let Place { given, grant: here } = &mut self.places[place];
        // Less than the last that there is: else it would not be free.
        *given += 1;
        *here = Some(grant);
        Ok(GrantNumber::new(place, *given))
    }

    /// Takes a grant back: every later check by its number is refused.
    ///
    /// # Errors
    /// [`Refusal::Unknown`] or [`Refusal::Revoked`] if there is none by that number.
    pub fn revoke(&mut self, number: GrantNumber) -> Result<Grant, Refusal> {
        self.find(number)?;
        let place = &mut self.places[number.place()];
        let grant = place.grant.take().ok_or(Refusal::Unknown { grant: number })?;
        // A place whose tags are used up is not used again.
        if place.given < u32::MAX {
            self.free.push(number.place() as u32);
        }
        Ok(grant)
    }

    /// The grant by that number.
    ///
    /// # Errors
    /// [`Refusal::Unknown`] or [`Refusal::Revoked`] if there is none.
    #[inline(always)]
    pub fn find(&self, number: GrantNumber) -> Result<&Grant, Refusal> {
        if let Some(Place { given, grant: Some(grant) }) = self.places.get(number.place())
            && *given == number.tag()
        {
            return Ok(grant);
        }
        Err(self.missing(number))
    }

    #[cold]
    fn missing(&self, number: GrantNumber) -> Refusal {
        match self.places.get(number.place()) {
            Some(place) if (1..=place.given).contains(&number.tag()) => Refusal::Revoked { grant: number },
            _ => Refusal::Unknown { grant: number },
        }
    }

    /// Grants that there are.
    pub fn grants(&self) -> impl Iterator<Item = (GrantNumber, &Grant)> {
        self.places.iter().enumerate().filter_map(|(at, place)| {
            place.grant.as_ref().map(|grant| (GrantNumber::new(at, place.given), grant))
        })
    }

    /// Whether a client may do that, and where on the device it is. A request of no bytes falls into no pieces.
    ///
    /// # Errors
    /// Why not.
    // Inlined, so that what it answers stays in registers: as a call it takes three times as long.
    #[inline(always)]
    pub fn check(
        &self,
        number: GrantNumber,
        offset: Bytes,
        length: Bytes,
        wanted: Access,
    ) -> Result<Pieces<'_>, Refusal> {
        let grant = self.find(number)?;
        let (end, overflows) = offset.0.overflowing_add(length.0);
        if overflows || end > grant.map.length() || !grant.right.covers(wanted) {
            return Err(grant.refusal(offset, length, wanted));
        }
        if length.0 == 0 {
            return Ok(Pieces::none(grant, end));
        }
        let (cursor, extent) = grant.map.find(offset.0);
        let pieces = Pieces::new(grant, offset.0, end, cursor, extent);
        if end > extent.end && grant.map.may_fall_into(length.0, PIECES_MAX) {
            pieces.clone().refuse_too_many()?;
        }
        Ok(pieces)
    }
}

impl Grant {
    /// Why a request is refused that is.
    #[cold]
    fn refusal(&self, offset: Bytes, length: Bytes, wanted: Access) -> Refusal {
        if !self.right.covers(wanted) {
            return Refusal::Right { wanted, right: self.right };
        }
        match offset.0.checked_add(length.0) {
            Some(_) => Refusal::Bounds { offset, length, granted: self.length() },
            None => Refusal::Overflow { offset, length },
        }
    }
}
