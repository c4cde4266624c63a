//! What a check against a client's grants costs, in ns, by how many extents the grant has.
//!
//! Extents have 1 to 16 blocks of 4 KiB; where it says *skewed*, one of 1 TiB is in the middle of them, and
//! requests go anywhere but there. The table is measured beside two searches of the same extents that it
//! could have been made of, a binary search and one in the order of Eytzinger, which check nothing else.
//!
//! The *bound* of a check is what it loads at least: an entry of a table as large as the index of the grant,
//! anywhere, and then, since only the entry says where, a line of a table as large as its lines; nothing is
//! compared or checked. How long that takes depends on the caches and the memory of the machine, so the goals
//! are against it.
//!
//! *in turn*: the offset is known only when the check before it is done, so its waiting for memory counts in
//! full. *ahead*: offsets are known ahead, as those of the requests in a ring are, and the processor may look
//! at several at a time. What it takes to make up the offsets is in all figures, and in the notes by itself.

use super::contest::House;
use super::part::Part;
use crate::error::Error;
use crate::interrupt;
use crate::row::{Point, Row, Unit};
use crate::statistics::Summary;
use bywash_volume::{Access, ByteRange, Bytes, DeviceNumber, Grant, GrantNumber, Table};
use std::hint::black_box;
use std::time::Instant;

const BLOCK: u64 = 4096;
/// Bytes of the large extent of a skewed grant.
const LARGE: u64 = 1 << 40;
const SIZES: [usize; 7] = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000];
/// Goal of a check in turn against the loads that it waits for: at most a quarter more.
const WAITING: f64 = 1.0 / 1.25;
/// Goal of checks ahead against loads ahead: at most twice as long. The processor has several under way at a
/// time, and what a check compares takes room of the loads of those behind it.
const AT_A_TIME: f64 = 0.5;
/// How much more a check may take with a thousand extents than with one.
const FLAT: f64 = 1.25;
const SEARCHES: u64 = 300_000;
const SEARCHES_QUICK: u64 = 50_000;

/// Numbers that follow from a seed (splitmix64).
struct Random(u64);

impl Random {
    #[inline]
    fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Less than `limit`.
    #[inline]
    fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.number()) * u128::from(limit)) >> 64) as u64
    }
}

/// The extents of a grant; none follows the one before it on the device.
fn spans(count: usize, skewed: bool) -> Vec<ByteRange> {
    let mut random = Random(count as u64);
    let mut start = 0;
    (0..count)
        .map(|number| {
            let large = skewed && number == count / 2;
            let length = if large { LARGE } else { (1 + random.below(16)) * BLOCK };
            start += length + BLOCK;
            ByteRange::new(start - length, length)
        })
        .collect()
}

/// Where requests go.
#[derive(Clone, Copy, PartialEq)]
enum Order {
    Sequential,
    Random,
    /// Anywhere but in the large extent.
    Skewed,
}

/// What finds the place of a byte on the device.
trait Search {
    fn device_offset(&self, offset: u64) -> u64;
}

struct Ours {
    table: Table,
    number: GrantNumber,
}

impl Ours {
    /// Among other grants, as a client has them.
    fn new(spans: &[ByteRange]) -> Ours {
        let mut table = Table::new(64);
        let mut number = None;
        for other in 0..64 {
            let spans = if other == 40 { spans } else { &spans[..1] };
            let grant = Grant::new(DeviceNumber(other), Access::ReadWrite, spans.iter().copied());
            let added = table.add(grant.expect("extents that can be")).expect("room for 64");
            if other == 40 {
                number = Some(added);
            }
        }
        Ours { table, number: number.expect("it is one of the 64") }
    }
}

impl Search for Ours {
    #[inline]
    fn device_offset(&self, offset: u64) -> u64 {
        let pieces = self.table.check(self.number, Bytes(offset), Bytes(BLOCK), Access::Read);
        // All of them are looked at, as a server does.
        pieces.expect("it is granted").fold(0, |last, piece| last ^ piece.start.0)
    }
}

/// A binary search of where the extents begin.
struct Binary {
    starts: Vec<u64>,
    device: Vec<u64>,
}

impl Binary {
    fn new(spans: &[ByteRange]) -> Binary {
        let begin = |next: &mut u64, span: &ByteRange| Some(std::mem::replace(next, *next + span.length.0));
        let starts = spans.iter().scan(0, |next, span| begin(next, span)).collect();
        Binary { starts, device: spans.iter().map(|span| span.start.0).collect() }
    }
}

impl Search for Binary {
    #[inline]
    fn device_offset(&self, offset: u64) -> u64 {
        let at = self.starts.partition_point(|start| *start <= offset) - 1;
        self.device[at] + (offset - self.starts[at])
    }
}

/// The same numbers in the order in which a binary search looks at them.
struct Eytzinger {
    starts: Vec<u64>,
    /// Of each place, and at 0 of none: where that extent is among the others.
    sorted: Vec<u32>,
    binary: Binary,
}

impl Eytzinger {
    fn new(spans: &[ByteRange]) -> Eytzinger {
        let binary = Binary::new(spans);
        let mut made = Eytzinger {
            starts: vec![0; spans.len() + 1],
            sorted: vec![spans.len() as u32; spans.len() + 1],
            binary,
        };
        let mut next = 0;
        made.fill(1, &mut next);
        made
    }

    fn fill(&mut self, place: usize, next: &mut usize) {
        if place < self.starts.len() {
            self.fill(2 * place, next);
            self.starts[place] = self.binary.starts[*next];
            self.sorted[place] = *next as u32;
            *next += 1;
            self.fill(2 * place + 1, next);
        }
    }
}

impl Search for Eytzinger {
    #[inline]
    fn device_offset(&self, offset: u64) -> u64 {
        let mut place = 1;
        while place < self.starts.len() {
            place = 2 * place + usize::from(self.starts[place] <= offset);
        }
        // The last turn to the left was at the first extent that begins behind the offset.
        let behind = place >> (place.trailing_ones() + 1);
        let at = self.sorted[behind] as usize - 1;
        self.binary.device[at] + (offset - self.binary.starts[at])
    }
}

/// A cache line of [`Loads`].
#[repr(align(64))]
struct Line([u64; 8]);

/// The loads that a check makes at least, from tables as large as those of the grant.
struct Loads {
    /// Number of a line for each entry; every line stands here as often as any other, in random order.
    index: Vec<u32>,
    lines: Vec<Line>,
    /// An entry stands for 1 << shift bytes.
    shift: u32,
}

impl Loads {
    /// As large as the tables of `ours`, for offsets below `length`.
    fn new(ours: &Ours, length: u64) -> Loads {
        let grant = ours.table.find(ours.number).expect("it is there");
        let (entries, lines) = grant.table_size();
        let mut random = Random(entries as u64);
        let entry_of = |shift: u32| (length - 1) >> shift;
        let shift = (0..64).find(|shift| entry_of(*shift) < entries as u64).expect("one entry holds all");
        let mut index: Vec<u32> = (0..entries).map(|entry| (entry % lines) as u32).collect();
        for entry in (1..entries).rev() {
            index.swap(entry, random.below(entry as u64 + 1) as usize);
        }
        Loads { index, lines: (0..lines).map(|line| Line([line as u64; 8])).collect(), shift }
    }
}

impl Search for Loads {
    #[inline]
    fn device_offset(&self, offset: u64) -> u64 {
        let entry = (offset >> self.shift) as usize;
        let line = self.index[entry] as usize;
        self.lines[line].0[entry % 8]
    }
}

/// Nothing is looked for: what the offsets cost.
struct Nothing;

impl Search for Nothing {
    #[inline]
    fn device_offset(&self, offset: u64) -> u64 {
        offset
    }
}

/// What is asked for.
#[derive(Clone, Copy)]
struct Requests {
    order: Order,
    count: u64,
    /// Blocks of the grant.
    blocks: u64,
    /// Those before the large extent, if there is one.
    before: u64,
}

/// ns of one search, in turn or ahead.
fn time<const IN_TURN: bool>(search: &impl Search, requests: Requests) -> f64 {
    let Requests { order, count, blocks, before } = requests;
    let mut random = Random(count ^ blocks);
    let large = LARGE / BLOCK;
    // All zeroes, which the compiler does not know: what was found becomes part of the next offset.
    let mask = black_box(0);
    let (mut found, mut sum, mut next) = (0, 0u64, 0);
    let start = Instant::now();
    for _ in 0..count {
        let block = match order {
            Order::Sequential => {
                next = if next + 1 < blocks { next + 1 } else { 0 };
                next
            }
            Order::Random => random.below(blocks),
            Order::Skewed => {
                let small = random.below(blocks - large);
                if small < before { small } else { small + large }
            }
        };
        let offset = block * BLOCK + if IN_TURN { found & mask } else { 0 };
        found = search.device_offset(offset);
        sum = sum.wrapping_add(found);
    }
    let ns = start.elapsed().as_nanos() as f64 / count as f64;
    black_box(sum);
    ns
}

/// All rows.
pub fn parts() -> Vec<Part> {
    vec![Part::new("serve/check", "a check by extents", measure)]
}

/// What is measured of one grant: the same searches, in this order.
const FIGURES: [&str; 9] = [
    "table, in turn",
    "table, ahead",
    "binary search, in turn",
    "binary search, ahead",
    "Eytzinger, in turn",
    "Eytzinger, ahead",
    "offsets alone",
    "bound: two loads, in turn",
    "bound: two loads, ahead",
];
const IN_TURN: usize = 0;
const AHEAD: usize = 1;
const OFFSETS: usize = 6;
const BOUND_IN_TURN: usize = 7;
const BOUND_AHEAD: usize = 8;
/// What the others are compared with in the figure.
const BASE: usize = 2;

fn measure(house: &House<'_>) -> Result<Vec<Row>, Error> {
    let searches = if house.quick { SEARCHES_QUICK } else { SEARCHES };
    let mut figures: Vec<[Vec<f64>; 9]> = Vec::new();
    for extents in SIZES {
        interrupt::check()?;
        figures.push(times(extents, Order::Random, house.pairs, searches)?);
    }
    let mut rows = Vec::new();
    for (extents, of_size) in SIZES.into_iter().zip(&figures) {
        let others = FIGURES.iter().zip(of_size).enumerate().filter(|(number, _)| *number != BASE);
        rows.extend(others.map(|(_, (line, values))| point(extents, line, values, &of_size[BASE])));
    }
    let last = &figures[SIZES.len() - 1];
    for (figure, bound, goal) in [(IN_TURN, BOUND_IN_TURN, WAITING), (AHEAD, BOUND_AHEAD, AT_A_TIME)] {
        let case = format!("1,000,000 extents, random: {}", FIGURES[figure]);
        let row = against(case, &last[figure], FIGURES[bound], &last[bound], Some(goal));
        let note =
            format!("an entry of the index and then a line, anywhere; {}", offsets_alone(&last[OFFSETS]));
        rows.push(Row { note, ..row });
    }
    let thousand = SIZES.iter().position(|size| *size == 1000).unwrap_or_default();
    for figure in [IN_TURN, AHEAD] {
        let case = format!("1,000 extents, random: {}", FIGURES[figure]);
        let row = against(
            case,
            &figures[thousand][figure],
            "the same with one extent",
            &figures[0][figure],
            Some(1.0 / FLAT),
        );
        rows.push(Row { note: "flat: a quarter more at most".into(), ..row });
    }
    for (order, name) in [(Order::Sequential, "sequential"), (Order::Skewed, "skewed")] {
        interrupt::check()?;
        let values = times(1_000_000, order, house.pairs, searches)?;
        for (figure, peer) in [(IN_TURN, 2), (AHEAD, 3)] {
            let case = format!("1,000,000 extents, {name}: {}", FIGURES[figure]);
            let row = against(case, &values[figure], FIGURES[peer], &values[peer], None);
            rows.push(Row { note: offsets_alone(&values[OFFSETS]), ..row });
        }
    }
    Ok(rows)
}

fn offsets_alone(values: &[f64]) -> String {
    format!("offsets alone: {:.1} ns", median(values))
}

fn median(values: &[f64]) -> f64 {
    Summary::of(values).map_or(f64::NAN, |summary| summary.median)
}

fn empty(case: String) -> Row {
    Row { case, metric: "check".into(), unit: "ns".into(), peer: "-".into(), ..Row::default() }
}

fn against(case: String, ours: &[f64], peer: &str, theirs: &[f64], goal: Option<f64>) -> Row {
    let ratios: Vec<f64> = ours.iter().zip(theirs).map(|(ours, theirs)| theirs / ours).collect();
    Row {
        ours: Some(median(ours)),
        peer: peer.into(),
        peer_value: Some(median(theirs)),
        runs: ratios.len() as u32,
        ..empty(case).with_ratio(Summary::of(&ratios), goal)
    }
}

fn point(extents: usize, line: &str, values: &[f64], base: &[f64]) -> Row {
    let point = Point {
        figure: "permission check, 4 KiB anywhere in the grant".into(),
        axis: "extents of the grant".into(),
        unit: Unit::Count,
        x: extents as u64,
        line: line.into(),
    };
    let case = format!("{extents} extents, random: {line}");
    Row { point: Some(point), ..against(case, values, FIGURES[BASE], base, None) }
}

/// What each of [`FIGURES`] took, in so many rounds.
fn times(extents: usize, order: Order, rounds: u32, searches: u64) -> Result<[Vec<f64>; 9], Error> {
    let spans = spans(extents, order == Order::Skewed);
    let length: u64 = spans.iter().map(|span| span.length.0).sum();
    let (ours, binary, eytzinger) = (Ours::new(&spans), Binary::new(&spans), Eytzinger::new(&spans));
    let loads = Loads::new(&ours, length);
    agree(&ours, &binary, &eytzinger, length)?;
    let before = spans[..extents / 2].iter().map(|span| span.length.0 / BLOCK).sum();
    let requests = Requests { order, count: searches, blocks: length / BLOCK, before };
    let mut figures = [const { Vec::new() }; 9];
    for _ in 0..rounds {
        let round = [
            time::<true>(&ours, requests),
            time::<false>(&ours, requests),
            time::<true>(&binary, requests),
            time::<false>(&binary, requests),
            time::<true>(&eytzinger, requests),
            time::<false>(&eytzinger, requests),
            time::<true>(&Nothing, requests),
            time::<true>(&loads, requests),
            time::<false>(&loads, requests),
        ];
        figures.iter_mut().zip(round).for_each(|(all, one)| all.push(one));
    }
    Ok(figures)
}

/// Whether all of them find the same.
fn agree(ours: &Ours, binary: &Binary, eytzinger: &Eytzinger, length: u64) -> Result<(), Error> {
    for offset in (0..length).step_by((length as usize / 1000).max(1)).chain([length - BLOCK]) {
        let offset = offset.min(length - BLOCK);
        let expected = binary.device_offset(offset);
        let piece = ours.table.check(ours.number, Bytes(offset), Bytes(1), Access::Read);
        let found = piece.ok().and_then(|mut pieces| pieces.next()).map(|piece| piece.start.0);
        if eytzinger.device_offset(offset) != expected || found != Some(expected) {
            return Err(Error::failed("a check", format!("finds {found:?} at {offset}, not {expected}")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_searches_find_the_same_and_take_some_time() {
        for (extents, order) in [(1, Order::Random), (1000, Order::Skewed), (777, Order::Sequential)] {
            let times = times(extents, order, 2, 1000).unwrap();
            assert!(times.iter().all(|values| values.len() == 2 && values.iter().all(|ns| *ns > 0.0)));
        }
    }

    #[test]
    fn the_bound_loads_from_tables_as_large_as_ours_and_from_all_of_them() {
        for extents in [1, 10, 5000] {
            let spans = spans(extents, false);
            let length: u64 = spans.iter().map(|span| span.length.0).sum();
            let loads = Loads::new(&Ours::new(&spans), length);
            let lines = loads.lines.len();
            assert!((extents.div_ceil(9)..=extents).contains(&lines) && loads.index.len() >= lines);
            let found: std::collections::HashSet<u64> =
                (0..length).step_by(BLOCK as usize).map(|offset| loads.device_offset(offset)).collect();
            assert_eq!(found.len(), lines);
        }
    }

    #[test]
    fn a_row_has_the_limit_on_its_side() {
        let row = against("x".into(), &[60.0, 20.0, 15.0], "a limit", &[30.0; 3], Some(1.0));
        assert_eq!((row.ratio, row.met, row.ours), (Some(1.5), Some(true), Some(20.0)));
    }
}
