//! The map of a grant: finds the extent that holds an offset, and its place on the device. Called by the
//! table's check.
//!
//! A grant of a million extents must not cost more than one of a thousand, so the map does no binary search
//! (20 steps, each of which waits for memory whose address the previous step has loaded). Extents are in
//! cache lines ([`ExtentLine`]). The grant is divided into buckets of one power-of-two size, several for each
//! line. For each bucket the index names the line that holds the bucket's first byte; the wanted line is that
//! one or one of the next few:
//!
//! ```text
//!   lines        |    0    |  1  | 2 |       3       |      4      |   5   |        where they begin and end
//!   buckets      .    .    .    .    .    .    .    .    .    .    .    .           all of one size
//!   index          0    0    0    1    2    3    3    3    4    4    5    5
//! ```
//!
//! Where extents of very different sizes meet, a bucket may overlap many lines. A bucket with more than
//! [`STEPS_MAX`] lines beside its first becomes a *node*, which is divided into buckets of its own, again
//! several for each of its lines, and so on. The buckets of each level are at least eight times smaller, so
//! there are at most [`LEVELS_MAX`] levels, whatever the sizes are; a million extents can fill four.
//!
//! The map of a thin volume has *holes*, which are not allocated on the device, and *shared* extents, which must not be
//! written. Both are extents like any other, but at places where no other extent of the grant is: shared ones are moved up
//! by a power of two, and holes are behind them. So one comparison tells what a request must not touch, whether it reads or
//! writes, and one AND gives the place on the device.
//!
//! ```text
//!   places     | extents of this volume alone | shared extents, moved up | holes
//!              0                              ^ shared                   ^ hole           a read stops at `hole`,
//!                                                                                         a write at `shared`
//! ```
//!
//! Nothing is allocated or written after [`Map::new`].

use super::line::{Extent, ExtentLine, Narrow, Wide, Word};
use crate::error::Error;
use crate::extent::{ByteRange, Bytes};
use bywash_protocol::Access;

/// Greatest number of extents in a grant.
pub const GRANT_EXTENTS_MAX: usize = 1 << 20;
/// Greatest number of lines that a lookup may have to go beyond the one in the index.
const STEPS_MAX: usize = 1;
/// Least number of buckets for each line.
const BUCKETS: u64 = 2;
/// Greatest number of levels. A node holds at least [`STEPS_MAX`] + 2 lines, so it is cut into more than four
/// buckets, up to a power of two of at least eight: each level uses up at least three of 64 bits.
#[cfg(test)]
const LEVELS_MAX: usize = 1 + 64 / 3;
/// Bit in an entry of the index: the entry is the number of a node, not of a line.
const IS_NODE: u32 = 1 << 31;

const _: () = assert!(
    GRANT_EXTENTS_MAX < IS_NODE as usize && (BUCKETS * (STEPS_MAX as u64 + 2)).next_power_of_two() >= 8
);

/// Part of the grant that is divided into buckets of one size.
#[derive(Clone, Copy, Debug)]
struct Node {
    /// First unit of the node.
    base: u64,
    /// Position of the node's first bucket in the index.
    first: u32,
    /// Logarithm of a bucket's size: a bucket has 1 << shift units.
    shift: u32,
}

/// Cache lines with the extents of a grant.
#[derive(Debug)]
enum Lines {
    Narrow(Box<[Narrow]>),
    Wide(Box<[Wide]>),
}

/// Extents of a grant in the order of its bytes, and their index.
#[derive(Debug)]
pub(super) struct Map {
    lines: Lines,
    index: Box<[u32]>,
    root: Node,
    nodes: Box<[Node]>,
    /// Logarithm of a unit: a unit has 1 << shift bytes.
    shift: u32,
    extents: u32,
    /// Length of the grant, in bytes.
    length: u64,
    limits: Limits,
    /// Place of the grant on the device if it is one extent without holes, and all of it may be written.
    flat: Option<u64>,
}

/// Places in a map from which on requests are refused, in bytes.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Least place of a hole; `u64::MAX` if there are none.
    hole: u64,
    /// Least place that must not be written, of a shared extent or a hole; `u64::MAX` if there are none.
    shared: u64,
    /// Bits of a place that are the place on the device.
    mask: u64,
}

impl Limits {
    const NONE: Limits = Limits { hole: u64::MAX, shared: u64::MAX, mask: u64::MAX };
}

/// Range of a grant of a thin volume that is allocated on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrantExtent {
    /// Offset of the range in the grant.
    pub offset: Bytes,
    /// Range of the device.
    pub range: ByteRange,
    /// True if other volumes have the range, too: it can be read, and must not be written.
    pub is_shared: bool,
}

/// State of an extent on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExtentState {
    Allocated,
    Shared,
    Hole,
}

/// Position of an extent in a map: its line, and its index there.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ExtentPosition {
    line: u32,
    number: u32,
}

impl Map {
    /// Makes the map of a grant that consists of `spans`, in order. Consecutive spans that are contiguous on
    /// the device are merged.
    pub(super) fn new(spans: impl IntoIterator<Item = ByteRange>) -> Result<Map, Error> {
        let (extents, length) = lay_out(spans)?;
        Ok(Map::over(&extents, length, Limits::NONE))
    }

    /// Makes the map of a grant of `length` bytes that has holes everywhere but in the ranges `mapped`, which are in order.
    pub(super) fn with_holes(
        length: u64,
        mapped: impl IntoIterator<Item = GrantExtent>,
    ) -> Result<Map, Error> {
        let (extents, limits) = lay_out_with_holes(length, mapped)?;
        Ok(Map::over(&extents, length, limits))
    }

    fn over(extents: &[Extent], length: u64, limits: Limits) -> Map {
        let bits = extents.iter().fold(length, |bits, extent| bits | extent.start | extent.place);
        let shift = bits.trailing_zeros();
        let in_units: Vec<Extent> = extents
            .iter()
            .map(|extent| Extent {
                start: extent.start >> shift,
                end: extent.end >> shift,
                place: extent.place >> shift,
            })
            .collect();
        let bounds: Vec<u64>;
        let lines = if let Some(lines) = Narrow::lines(&in_units) {
            bounds = lines.iter().map(ExtentLine::base).collect();
            Lines::Narrow(lines)
        } else {
            let lines = Wide::lines(&in_units).unwrap_or_else(|| unreachable!("64 bits hold every number"));
            bounds = lines.iter().map(ExtentLine::base).collect();
            Lines::Wide(lines)
        };
        let mut building = Building { bounds: &bounds, index: Vec::new(), nodes: Vec::new() };
        let root = building.cut(0, (length >> shift) - 1, 0, bounds.len());
        let (index, nodes) = (building.index.into_boxed_slice(), building.nodes.into_boxed_slice());
        let flat = match extents {
            [only] if limits.shared == u64::MAX => Some(only.place & limits.mask),
            _ => None,
        };
        Map { lines, index, root, nodes, shift, extents: extents.len() as u32, length, limits, flat }
    }

    /// Returns the place of the grant on the device if it is one extent without holes, and all of it may be written.
    #[inline(always)]
    pub(super) fn flat(&self) -> Option<u64> {
        self.flat
    }

    /// Returns the least place that a request for this access must not touch; `u64::MAX` if there is none.
    #[inline(always)]
    pub(super) fn limit(&self, wanted: Access) -> u64 {
        match wanted {
            Access::Read => self.limits.hole,
            Access::Write | Access::ReadWrite => self.limits.shared,
        }
    }

    /// Returns the place on the device of a place in the map that is not in a hole.
    #[inline(always)]
    pub(super) fn on_device(&self, place: u64) -> u64 {
        place & self.limits.mask
    }

    /// Returns the state of the extent at this place.
    pub(super) fn state(&self, place: u64) -> ExtentState {
        match place {
            _ if place >= self.limits.hole => ExtentState::Hole,
            _ if place >= self.limits.shared => ExtentState::Shared,
            _ => ExtentState::Allocated,
        }
    }

    /// Returns the length of the grant, in bytes.
    #[inline(always)]
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// Returns the number of extents.
    pub(super) fn extents(&self) -> usize {
        self.extents as usize
    }

    /// Returns the number of index entries, and the number of cache lines.
    pub(super) fn size(&self) -> (usize, usize) {
        let lines = match &self.lines {
            Lines::Narrow(lines) => lines.len(),
            Lines::Wide(lines) => lines.len(),
        };
        (self.index.len(), lines)
    }

    /// Returns the extent that holds the byte at `offset`, which must be less than the length.
    #[inline(always)]
    pub(super) fn find(&self, offset: u64) -> (ExtentPosition, Extent) {
        let unit = offset >> self.shift;
        let first = self.first_line(unit);
        let (cursor, extent) = match &self.lines {
            Lines::Narrow(lines) => holder(lines, first, unit),
            Lines::Wide(lines) => holder(lines, first, unit),
        };
        (cursor, self.in_bytes(extent))
    }

    /// Returns true if a range of `length` bytes may be in more than `extents` extents.
    #[inline(always)]
    pub(super) fn may_fall_into(&self, length: u64, extents: usize) -> bool {
        // Each extent has at least one unit; the range may use only a part of the first and of the last.
        length >> self.shift > (extents as u64).saturating_sub(2)
    }

    /// Returns the line that the index names for a unit.
    #[inline(always)]
    fn first_line(&self, unit: u64) -> usize {
        let mut node = &self.root;
        loop {
            let entry = self.index[node.first as usize + ((unit - node.base) >> node.shift) as usize];
            if entry & IS_NODE == 0 {
                return entry as usize;
            }
            node = &self.nodes[(entry & !IS_NODE) as usize];
        }
    }

    /// Returns the extent after the one at a cursor, which must not be the last.
    // Not inlined: requests of several pieces are rare, and their code would slow down all others.
    #[inline(never)]
    pub(super) fn next(&self, cursor: ExtentPosition) -> (ExtentPosition, Extent) {
        let (cursor, extent) = match &self.lines {
            Lines::Narrow(lines) => next(lines, cursor),
            Lines::Wide(lines) => next(lines, cursor),
        };
        (cursor, self.in_bytes(extent))
    }

    #[inline(always)]
    fn in_bytes(&self, Extent { start, end, place }: Extent) -> Extent {
        Extent { start: start << self.shift, end: end << self.shift, place: place << self.shift }
    }
}

/// Returns the extent that holds a unit, which must be in line `first` or the next one.
#[inline(always)]
fn holder<W: Word, const DELTAS: usize, const PLACES: usize>(
    lines: &[ExtentLine<W, DELTAS, PLACES>],
    first: usize,
    unit: u64,
) -> (ExtentPosition, Extent) {
    const { assert!(STEPS_MAX == 1) };
    let line = first + usize::from(lines[first].end() <= unit);
    let number = lines[line].find_extent(unit);
    (ExtentPosition { line: line as u32, number: number as u32 }, lines[line].extent(number))
}

/// Returns the extent after the one at the cursor, which must not be the last.
#[inline(always)]
fn next<W: Word, const DELTAS: usize, const PLACES: usize>(
    lines: &[ExtentLine<W, DELTAS, PLACES>],
    ExtentPosition { line, number }: ExtentPosition,
) -> (ExtentPosition, Extent) {
    let inner = lines[line as usize].has(number as usize + 1);
    let cursor = if inner {
        ExtentPosition { line, number: number + 1 }
    } else {
        ExtentPosition { line: line + 1, number: 0 }
    };
    (cursor, lines[cursor.line as usize].extent(cursor.number as usize))
}

/// Returns the extents, merged and with their bounds in bytes, and the length of all together.
fn lay_out(spans: impl IntoIterator<Item = ByteRange>) -> Result<(Vec<Extent>, u64), Error> {
    let mut extents: Vec<Extent> = Vec::new();
    let mut length = 0u64;
    for span in spans {
        let device_end = span.start.0.checked_add(span.length.0);
        let (Some(_), Some(end), 1..) = (device_end, length.checked_add(span.length.0), span.length.0) else {
            return Err(Error::Span(span));
        };
        let full = extents.len() == GRANT_EXTENTS_MAX;
        match extents.last_mut() {
            Some(last) if last.place + (last.end - last.start) == span.start.0 => last.end = end,
            _ if full => return Err(Error::GrantExtents { most: GRANT_EXTENTS_MAX }),
            _ => extents.push(Extent { start: length, end, place: span.start.0 }),
        }
        length = end;
    }
    if extents.is_empty() {
        return Err(Error::Span(ByteRange { start: Bytes(0), length: Bytes(0) }));
    }
    Ok((extents, length))
}

/// Returns the extents of a grant with holes, merged and with their bounds in bytes, and the limits of its places.
fn lay_out_with_holes(
    length: u64,
    mapped: impl IntoIterator<Item = GrantExtent>,
) -> Result<(Vec<Extent>, Limits), Error> {
    let mut extents: Vec<Extent> = Vec::new();
    // State of each extent, and the end of all of them on the device.
    let (mut states, mut at, mut devices_end) = (Vec::new(), 0u64, 0u64);
    let add = |extents: &mut Vec<Extent>, states: &mut Vec<ExtentState>, extent, state| {
        if extents.len() == GRANT_EXTENTS_MAX {
            return Err(Error::GrantExtents { most: GRANT_EXTENTS_MAX });
        }
        extents.push(extent);
        states.push(state);
        Ok(())
    };
    for GrantExtent { offset: Bytes(offset), range: span, is_shared } in mapped {
        let (device_end, end) = (span.start.0.checked_add(span.length.0), offset.checked_add(span.length.0));
        let (Some(device_end), Some(end), 1.., true) = (device_end, end, span.length.0, at <= offset) else {
            return Err(Error::Span(span));
        };
        if end > length {
            return Err(Error::Span(span));
        }
        if at < offset {
            let hole = Extent { start: at, end: offset, place: 0 };
            add(&mut extents, &mut states, hole, ExtentState::Hole)?;
        }
        let state = if is_shared { ExtentState::Shared } else { ExtentState::Allocated };
        let is_same = at == offset && states.last() == Some(&state);
        match extents.last_mut() {
            Some(last) if is_same && last.place + (last.end - last.start) == span.start.0 => last.end = end,
            _ => {
                let extent = Extent { start: offset, end, place: span.start.0 };
                add(&mut extents, &mut states, extent, state)?;
            }
        }
        (at, devices_end) = (end, devices_end.max(device_end));
    }
    if at < length {
        let hole = Extent { start: at, end: length, place: 0 };
        add(&mut extents, &mut states, hole, ExtentState::Hole)?;
    }
    let too_large = || Error::Span(ByteRange { start: Bytes(0), length: Bytes(length) });
    let limits = limits_of(&states, length, devices_end).ok_or_else(too_large)?;
    for (extent, state) in extents.iter_mut().zip(&states) {
        match state {
            ExtentState::Allocated => {}
            ExtentState::Shared => extent.place += limits.shared,
            ExtentState::Hole => extent.place = limits.hole,
        }
    }
    Ok((extents, limits))
}

/// Returns the limits of a map of extents in these states, which end on the device at `devices_end`. `None` if there are no
/// extents, or if a place would exceed 64 bits.
fn limits_of(states: &[ExtentState], length: u64, devices_end: u64) -> Option<Limits> {
    let has = |state| states.contains(&state);
    let mut limits = Limits { mask: u64::MAX, hole: devices_end, shared: devices_end };
    if has(ExtentState::Shared) {
        let shared = devices_end.checked_next_power_of_two()?;
        limits = Limits { mask: shared - 1, hole: shared.checked_mul(2)?, shared };
    } else if !has(ExtentState::Hole) {
        return (!states.is_empty()).then_some(Limits::NONE);
    }
    limits.hole.checked_add(length)?;
    Some(limits)
}

/// Index under construction.
struct Building<'a> {
    /// First unit of each line.
    bounds: &'a [u64],
    index: Vec<u32>,
    nodes: Vec<Node>,
}

impl Building<'_> {
    /// Divides the units from `base` to `last`, which lie in the lines `first..end`, into buckets.
    fn cut(&mut self, base: u64, last: u64, first: usize, end: usize) -> Node {
        let wanted = (BUCKETS * (end - first) as u64).next_power_of_two();
        let mut shift = 0;
        while (last - base) >> shift >= wanted {
            shift += 1;
        }
        let buckets = ((last - base) >> shift) as usize + 1;
        let node = Node { base, first: self.index.len() as u32, shift };
        self.index.resize(self.index.len() + buckets, 0);
        let mut line = first;
        for bucket in 0..buckets {
            let from = base + ((bucket as u64) << shift);
            let to = last.min(from.saturating_add((1u64 << shift) - 1));
            line = self.holder(line, from);
            let last_line = self.holder(line, to);
            let entry = if last_line - line <= STEPS_MAX {
                line as u32
            } else {
                let inner = self.cut(from, to, line, last_line + 1);
                self.nodes.push(inner);
                (self.nodes.len() - 1) as u32 | IS_NODE
            };
            self.index[node.first as usize + bucket] = entry;
            line = last_line;
        }
        node
    }

    /// Returns the line that holds a unit, searching from `line` on, which must not begin after the unit.
    fn holder(&self, mut line: usize, unit: u64) -> usize {
        while self.bounds.get(line + 1).is_some_and(|next| *next <= unit) {
            line += 1;
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Makes spans of these lengths with holes between them, so that none are merged.
    fn apart(lengths: impl IntoIterator<Item = u64>, hole: u64) -> Vec<ByteRange> {
        let mut start = 0;
        let place = |length| {
            let span = ByteRange::new(start, length);
            start += length + hole;
            span
        };
        lengths.into_iter().map(place).collect()
    }

    /// Returns the number of levels below and including a node.
    fn levels(map: &Map, node: &Node, last: u64) -> usize {
        let buckets = ((last - node.base) >> node.shift) as usize + 1;
        let entries = &map.index[node.first as usize..node.first as usize + buckets];
        let nodes = entries.iter().enumerate().filter(|(_, entry)| **entry & IS_NODE != 0);
        let inner = nodes.map(|(bucket, entry)| {
            let inner = &map.nodes[(entry & !IS_NODE) as usize];
            assert_eq!(inner.base, node.base + ((bucket as u64) << node.shift));
            levels(map, inner, last.min(inner.base + ((1 << node.shift) - 1)))
        });
        1 + inner.max().unwrap_or(0)
    }

    fn all_levels(map: &Map) -> usize {
        levels(map, &map.root, (map.length() >> map.shift) - 1)
    }

    /// Checks the map of these spans at the beginning, in the middle and at the end of every span.
    fn hold(spans: &[ByteRange]) -> Map {
        let map = Map::new(spans.iter().copied()).unwrap();
        let mut start = 0;
        for span in spans {
            let last = span.length.0 - 1;
            for within in [0, 1, last / 2, last.saturating_sub(1), last] {
                let offset = start + within.min(last);
                let (cursor, found) = map.find(offset);
                assert_eq!(found.place + (offset - found.start), span.start.0 + (offset - start));
                assert!(found.start <= offset && offset < found.end);
                if found.end < map.length() {
                    assert_eq!(map.next(cursor).1, map.find(found.end).1);
                }
            }
            start += span.length.0;
        }
        assert_eq!(map.length(), start);
        assert!(all_levels(&map) <= LEVELS_MAX);
        map
    }

    #[test]
    fn extents_of_one_size_have_one_level() {
        for count in [1, 2, 3, 10, 1000, 100_000] {
            let map = hold(&apart(std::iter::repeat_n(4096, count), 4096));
            assert_eq!((map.extents(), map.nodes.len()), (count, 0));
            assert_eq!(map.size(), (map.index.len(), count.div_ceil(9)));
            assert!(map.index.len() as u64 <= 2 * BUCKETS * count.div_ceil(9) as u64);
        }
    }

    #[test]
    fn a_few_large_ones_among_many_small_ones_have_few() {
        let small = 200_000;
        for large in [1 << 30, 1 << 40, 1 << 62] {
            for at in [0, small / 2, small] {
                let lengths = (0..=small).map(|number| if number == at { large } else { 512 });
                let map = hold(&apart(lengths, 512));
                assert!(all_levels(&map) <= 4);
                assert!(map.index.len() <= 4 * small, "{} buckets", map.index.len());
            }
        }
    }

    #[test]
    fn each_twice_as_long_as_the_one_before() {
        hold(&apart((0..62).map(|bit| 1 << bit), 1));
        hold(&apart((0..62).rev().map(|bit| 1 << bit), 1));
        hold(&apart((0..20_000).map(|number| 1 << (number % 48)), 1));
    }

    #[test]
    fn lines_are_narrow_where_numbers_fit() {
        let is_narrow = |spans: &[ByteRange]| matches!(hold(spans).lines, Lines::Narrow(_));
        assert!(!is_narrow(&[ByteRange::new(u64::MAX << 12, 4095)]));
        assert!(is_narrow(&[ByteRange::new(((1 << 32) - 1) << 12, 4096)]));
        assert!(!is_narrow(&[ByteRange::new(1 << 44, 4096), ByteRange::new(0, 4096)]));
        assert!(is_narrow(&[ByteRange::new(0, ((1 << 32) - 1) << 12)]));
        assert!(!is_narrow(&[ByteRange::new(0, (1 << 44) + 4096)]));
        // A line ends where a delta is too large, and not before.
        for length in [65533, 65534, 65535, 65536] {
            hold(&apart([length, 1, 1, length, 1, 1, 1], 1));
        }
    }

    #[test]
    fn a_device_of_64_bits() {
        let map = hold(&[ByteRange::new(0, u64::MAX)]);
        assert_eq!(map.find(u64::MAX - 1).1, Extent { start: 0, end: u64::MAX, place: 0 });
        let map = hold(&[ByteRange::new(u64::MAX - 1, 1), ByteRange::new(0, u64::MAX - 2)]);
        assert_eq!(map.length(), u64::MAX - 1);
    }

    #[test]
    fn neighbours_on_the_device_are_one() {
        let map = hold(&[
            ByteRange::new(10, 5),
            ByteRange::new(15, 5),
            ByteRange::new(30, 1),
            ByteRange::new(0, 10),
        ]);
        assert_eq!(map.extents(), 3);
        let pieces = (0..GRANT_EXTENTS_MAX as u64 + 10).map(|number| ByteRange::new(number * 512, 512));
        assert_eq!(Map::new(pieces).unwrap().extents(), 1);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for wrong in [ByteRange::new(5, 0), ByteRange::new(u64::MAX, 1), ByteRange::new(1, u64::MAX)] {
            assert!(matches!(Map::new([wrong]), Err(Error::Span(told)) if told == wrong));
        }
        // Each span is valid, but the length of both together exceeds 64 bits.
        assert!(matches!(
            Map::new([ByteRange::new(0, 1 << 63), ByteRange::new(0, 1 << 63)]),
            Err(Error::Span(_))
        ));
        assert!(matches!(Map::new([]), Err(Error::Span(_))));
        let many = (0..=GRANT_EXTENTS_MAX as u64).map(|number| ByteRange::new(number * 2, 1));
        assert!(matches!(Map::new(many), Err(Error::GrantExtents { most: GRANT_EXTENTS_MAX })));
    }

    proptest! {
        #[test]
        fn any_lengths(lengths in proptest::collection::vec((0u32..50, 1u64..4), 1..400)) {
            hold(&apart(lengths.into_iter().map(|(bits, odd)| (1 << bits) + odd), 1));
        }
    }
}
