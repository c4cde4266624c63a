//! Cache lines of extents, which hold as many extents of a grant as fit into 64 bytes.
//!
//! With a million extents the cost of a check is the number of times that it waits for memory. So everything
//! that a check needs to know about an extent is in one line, beside its neighbours. Numbers count in
//! *units*: the largest power of two that divides every start and length of the grant. Numbers have 32 bits
//! if all of them fit.
//!
//! ```text
//!   narrow    base u32 | end u32 | 9 places u32 | 10 deltas u16           up to 2^32 units: 16 TiB in units of 4 KiB
//!   wide      base u64 | end u64 | 4 places u64 |  5 deltas u16 | -       all others
//! ```
//!
//! *base* and *end* are the start and end of the line's extents in the grant. A *place* is the start of an
//! extent on the device; its *delta* is its start in the grant relative to *base*, or [`UNUSED`]. The first
//! delta is 0, and the one after the last place is always unused. A line ends early if the next delta would
//! be too large.
//!
//! Finding an extent in a line takes no branch that the processor could mispredict. A misprediction would be
//! found only when the line has arrived from memory, and until then the processor would not prefetch the
//! lines of later requests.

/// Delta of a position without an extent.
const UNUSED: u16 = u16::MAX;

/// Type of the numbers in a line.
pub(super) trait Word: Copy + Default + Into<u64> + TryFrom<u64> {}
impl Word for u32 {}
impl Word for u64 {}

/// Start of an extent in the grant and on the device, and its end in the grant, in units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) place: u64,
}

/// Some consecutive extents of a grant.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(super) struct ExtentLine<W, const DELTAS: usize, const PLACES: usize> {
    base: W,
    end: W,
    device_offsets: [W; PLACES],
    deltas: [u16; DELTAS],
}

/// Line whose numbers all fit into 32 bits: positions in the grant and on the device, in units.
pub(super) type Narrow = ExtentLine<u32, 10, 9>;
/// Line for any other grant.
pub(super) type Wide = ExtentLine<u64, 5, 4>;

const _: () = assert!(size_of::<Narrow>() == 64 && size_of::<Wide>() == 64);

impl<W: Word, const DELTAS: usize, const PLACES: usize> ExtentLine<W, DELTAS, PLACES> {
    /// Distributes extents over lines; `None` if a number does not fit into `W`.
    pub(super) fn lines(extents: &[Extent]) -> Option<Box<[Self]>> {
        const { assert!(DELTAS == PLACES + 1) };
        let word = |number: u64| W::try_from(number).ok();
        let mut lines: Vec<Self> = Vec::with_capacity(extents.len() / PLACES + 1);
        // Number of extents in the last line; `PLACES` before the first line, so that one is started.
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
                line.device_offsets[filled] = place;
                line.end = end;
                filled += 1;
            } else {
                let mut places = [W::default(); PLACES];
                places[0] = place;
                let mut deltas = [UNUSED; DELTAS];
                deltas[0] = 0;
                lines.push(ExtentLine { base: word(extent.start)?, end, device_offsets: places, deltas });
                filled = 1;
            }
        }
        Some(lines.into_boxed_slice())
    }

    /// Returns the start of the line's extents in the grant, in units.
    #[inline(always)]
    pub(super) fn base(&self) -> u64 {
        self.base.into()
    }

    /// Returns the end of the line's extents in the grant, in units.
    #[inline(always)]
    pub(super) fn end(&self) -> u64 {
        self.end.into()
    }

    /// Returns the index of the extent that holds `unit`, which must be within the line.
    #[inline(always)]
    pub(super) fn find_extent(&self, unit: u64) -> usize {
        // All deltas in use are at most this bound, and `UNUSED` is greater.
        let within = (unit - self.base()).min(u64::from(UNUSED - 1)) as u16;
        // The first extent begins at delta 0, and the delta after the last place is never in use.
        self.deltas[1..PLACES].iter().map(|delta| usize::from(*delta <= within)).sum()
    }

    /// Returns true if the line has an extent with this index, which must be less than `DELTAS`.
    #[inline(always)]
    pub(super) fn has(&self, number: usize) -> bool {
        self.deltas[number] != UNUSED
    }

    /// Returns the extent with this index.
    #[inline(always)]
    pub(super) fn extent(&self, number: usize) -> Extent {
        let start = self.base() + u64::from(self.deltas[number]);
        let next = self.deltas[number + 1];
        let (inner, last) = (self.base() + u64::from(next), self.end());
        let end = std::hint::select_unpredictable(next == UNUSED, last, inner);
        Extent { start, end, place: self.device_offsets[number].into() }
    }
}
