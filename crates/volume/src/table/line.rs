//! Extents of a grant, as many as fit into one cache line.
//!
//! What a check costs with a million extents is how often it waits for memory. So all that it needs to know of an
//! extent is in one line of 64 bytes, beside its neighbours; numbers count in *units*, the largest power of two that
//! divides every start and length of the grant, and where they fit into 32 bits they have 32.
//!
//! ```text
//!   narrow    base u32 | end u32 | 9 places u32 | 10 deltas u16           up to 2^32 units: 16 TiB in units of 4 KiB
//!   wide      base u64 | end u64 | 4 places u64 |  5 deltas u16 | -       all others
//! ```
//!
//! *base* and *end* are where the line's extents begin and end in the grant. A *place* is where an extent begins on the
//! device, and its *delta* where it begins behind *base*, or [`UNUSED`]: the first is 0, and the one behind the last is
//! never used. A line ends early where a delta would be too large.
//!
//! To find an extent in a line takes no branch that the processor could guess wrong: it would find that out only when
//! the line has come from memory, and until then it would not fetch those of the requests that follow.

/// No extent begins there.
const UNUSED: u16 = u16::MAX;

/// A number that a line holds.
pub(super) trait Word: Copy + Default + Into<u64> + TryFrom<u64> {}
impl Word for u32 {}
impl Word for u64 {}

/// Where an extent begins in the grant and on the device, and where it ends in the grant, in units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) place: u64,
}

/// Some extents that follow one another in the grant.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(super) struct Line<W, const DELTAS: usize, const PLACES: usize> {
    base: W,
    end: W,
    places: [W; PLACES],
    deltas: [u16; DELTAS],
}

/// A line of a grant of up to 2^32 units, on a device of as many.
pub(super) type Narrow = Line<u32, 10, 9>;
/// A line of any other.
pub(super) type Wide = Line<u64, 5, 4>;

const _: () = assert!(size_of::<Narrow>() == 64 && size_of::<Wide>() == 64);

impl<W: Word, const DELTAS: usize, const PLACES: usize> Line<W, DELTAS, PLACES> {
    /// Lines of these, if all numbers fit.
    pub(super) fn lines(extents: &[Extent]) -> Option<Box<[Self]>> {
        const { assert!(DELTAS == PLACES + 1) };
        let word = |number: u64| W::try_from(number).ok();
        let mut lines: Vec<Self> = Vec::with_capacity(extents.len() / PLACES + 1);
        // Extents in the last line; when it can take no more, as many as there can be.
        let mut filled = PLACES;
        for extent in extents {
            let end = word(extent.end)?;
            let place = word(extent.place)?;
            if let Some(line) = lines.last_mut()
                && filled < PLACES
                && let Ok(delta) = u16::try_from(extent.start - line.base())
                && delta != UNUSED
            {
                line.deltas[filled] = delta;
                line.places[filled] = place;
                line.end = end;
                filled += 1;
            } else {
                let mut places = [W::default(); PLACES];
                places[0] = place;
                let mut deltas = [UNUSED; DELTAS];
                deltas[0] = 0;
                lines.push(Line { base: word(extent.start)?, end, places, deltas });
                filled = 1;
            }
        }
        Some(lines.into_boxed_slice())
    }

    /// Where its extents begin in the grant.
    #[inline(always)]
    pub(super) fn base(&self) -> u64 {
        self.base.into()
    }

    /// Where they end.
    #[inline(always)]
    pub(super) fn end(&self) -> u64 {
        self.end.into()
    }

    /// Which of its extents holds this unit, which must be before the end.
    #[inline(always)]
    pub(super) fn holder(&self, unit: u64) -> usize {
        // All deltas that are in use are less than this bound, and one that is not never is.
        let within = (unit - self.base()).min(u64::from(UNUSED - 1)) as u16;
        // The first begins at 0 and behind the last none does.
        self.deltas[1..PLACES].iter().map(|delta| usize::from(*delta <= within)).sum()
    }

    /// Whether it has an extent of that number, which is at most one more than it has.
    #[inline(always)]
    pub(super) fn has(&self, number: usize) -> bool {
        self.deltas[number] != UNUSED
    }

    /// One of its extents.
    #[inline(always)]
    pub(super) fn extent(&self, number: usize) -> Extent {
        let start = self.base() + u64::from(self.deltas[number]);
        let next = self.deltas[number + 1];
        let (inner, last) = (self.base() + u64::from(next), self.end());
        let end = std::hint::select_unpredictable(next == UNUSED, last, inner);
        Extent { start, end, place: self.places[number].into() }
    }
}
