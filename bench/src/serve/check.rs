//! Cost of checking a request against a client's grant, in nanoseconds, by the number of extents of the grant.
//!
//! Extents have 1 to 16 blocks of 4 KiB; a *skewed* grant has one of 1 TiB in the middle, and requests go anywhere else. The
//! table is measured beside two searches of the same extents that it could consist of, a binary search and one in the order of
//! Eytzinger, which check nothing.
//!
//! The *bound* of a check consists of the loads that it cannot avoid: an entry of a table as large as the grant's index, and
//! then, since only the entry names it, a line of a table as large as its lines. How long they take depends on the caches and
//! the memory of the machine, so the goals are against them.
//!
//! *in turn*: an offset is known only after the check before it, so its waiting for memory counts in full. *ahead*: offsets are
//! known ahead, as those of the requests in a ring are, and the processor may overlap several checks. The cost of making the
//! offsets is in all figures, and in the notes by itself.

use super::contest::Setup;
use super::workload::Random;
use crate::campaign::Declared;
use crate::engine::{Metric, Rounds, Runs, Side};
use crate::error::Error;
use crate::row::{Point, Row, Unit};
use bywash_volume::{Access, ByteRange, Bytes, DeviceNumber, Grant, GrantNumber, Table};
use std::hint::black_box;
use std::time::Instant;

const BLOCK: u64 = 4096;
/// Size of the large extent of a skewed grant, in bytes.
const LARGE: u64 = 1 << 40;
const SIZES: [usize; 7] = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000];
/// Goal of a check in turn against the loads that it waits for: at most a quarter more.
const WAITING: f64 = 1.0 / 1.25;
/// Goal of checks ahead against loads ahead: at most twice as long, since the processor overlaps several of them, and the
/// comparisons of a check take the room of the loads after it.
const AT_A_TIME: f64 = 0.5;
/// Goal of a check with a thousand extents against one with one: at most a quarter more.
const FLAT: f64 = 1.0 / 1.25;
const SEARCHES: u64 = 300_000;
const SEARCHES_QUICK: u64 = 50_000;
/// Positions of the sides in [`times`].
const IN_TURN: usize = 0;
const AHEAD: usize = 1;
const BINARY_IN_TURN: usize = 2;
const BINARY_AHEAD: usize = 3;
const OFFSETS: usize = 6;
const BOUND_IN_TURN: usize = 7;
const BOUND_AHEAD: usize = 8;

/// Makes the extents of a grant; none is adjacent to the one before it on the device.
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

/// Order of the requests.
#[derive(Clone, Copy, PartialEq)]
enum Order {
    Sequential,
    Random,
    /// Random, but never in the large extent.
    Skewed,
}

/// Translation of an offset in the volume to one on the device.
trait Search {
    fn device_offset(&self, offset: u64) -> u64;
}

/// The product's table.
struct Ours {
    table: Table,
    number: GrantNumber,
}

impl Ours {
    /// The grant among other grants, as a client has them.
    fn new(spans: &[ByteRange]) -> Ours {
        let mut table = Table::new(64);
        let mut number = None;
        for other in 0..64 {
            let spans = if other == 40 { spans } else { &spans[..1] };
            let grant = Grant::new(DeviceNumber(other), Access::ReadWrite, spans.iter().copied());
            let added = table.add(grant.expect("the extents are valid")).expect("the table holds 64");
            if other == 40 {
                number = Some(added);
            }
        }
        Ours { table, number: number.expect("40 is one of the 64") }
    }
}

impl Search for Ours {
    #[inline]
    fn device_offset(&self, offset: u64) -> u64 {
        let pieces = self.table.check(self.number, Bytes(offset), Bytes(BLOCK), Access::Read);
        // A server looks at all pieces.
        pieces.expect("it is granted").fold(0, |last, piece| last ^ piece.start.0)
    }
}

/// Binary search of the extents' beginnings.
struct Binary {
    starts: Vec<u64>,
    device: Vec<u64>,
}

impl Binary {
    fn new(spans: &[ByteRange]) -> Binary {
        let begin = |next: &mut u64, span: &ByteRange| Some(std::mem::replace(next, *next + span.length.0));
        let starts = spans.iter().scan(0, begin).collect();
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

/// The same beginnings in the order in which a binary search looks at them.
struct Eytzinger {
    starts: Vec<u64>,
    /// Number of the extent at each position; at 0, the number of extents.
    sorted: Vec<u32>,
    binary: Binary,
}

impl Eytzinger {
    fn new(spans: &[ByteRange]) -> Eytzinger {
        let binary = Binary::new(spans);
        let (starts, sorted) = (vec![0; spans.len() + 1], vec![spans.len() as u32; spans.len() + 1]);
        let mut made = Eytzinger { starts, sorted, binary };
        made.fill(1, &mut 0);
        made
    }

    fn fill(&mut self, position: usize, next: &mut usize) {
        if position < self.starts.len() {
            self.fill(2 * position, next);
            self.starts[position] = self.binary.starts[*next];
            self.sorted[position] = *next as u32;
            *next += 1;
            self.fill(2 * position + 1, next);
        }
    }
}

impl Search for Eytzinger {
    #[inline]
    fn device_offset(&self, offset: u64) -> u64 {
        let mut position = 1;
        while position < self.starts.len() {
            position = 2 * position + usize::from(self.starts[position] <= offset);
        }
        // The last turn to the left was at the first extent that begins after the offset.
        let behind = position >> (position.trailing_ones() + 1);
        let at = self.sorted[behind] as usize - 1;
        self.binary.device[at] + (offset - self.binary.starts[at])
    }
}

/// A cache line of [`Loads`].
#[repr(align(64))]
struct Line([u64; 8]);

/// The loads that a check cannot avoid, from tables as large as those of the grant.
struct Loads {
    /// Number of a line for each entry: every line equally often, in random order.
    index: Vec<u32>,
    lines: Vec<Line>,
    /// An entry stands for 1 << shift bytes.
    shift: u32,
}

impl Loads {
    /// Makes tables as large as those of `ours`, for offsets below `length`.
    fn new(ours: &Ours, length: u64) -> Loads {
        let grant = ours.table.find(ours.number).expect("the table has the grant");
        let (entries, lines) = grant.table_size();
        let mut random = Random(entries as u64);
        let fits = |shift: &u32| (length - 1) >> shift < entries as u64;
        let shift = (0..64).find(fits).expect("one entry holds everything");
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

/// No search: the cost of the offsets.
struct Nothing;

impl Search for Nothing {
    #[inline]
    fn device_offset(&self, offset: u64) -> u64 {
        offset
    }
}

/// Requests of a run.
#[derive(Clone, Copy)]
struct Requests {
    order: Order,
    count: u64,
    /// Number of blocks of the grant.
    blocks: u64,
    /// Number of blocks before the large extent.
    before: u64,
}

/// Returns the nanoseconds of one search, in turn or ahead.
fn time<const IN_TURN: bool>(search: &impl Search, requests: Requests) -> f64 {
    let Requests { order, count, blocks, before } = requests;
    let mut random = Random(count ^ blocks);
    let large = LARGE / BLOCK;
    // Zero, which the compiler does not know: the result of a search becomes part of the next offset.
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

pub(super) fn cases() -> Vec<Declared<Setup>> {
    vec![Declared::new(Row::head("serve/check", "a check by extents", ""), measure)]
}

fn measure(setup: &Setup, head: &Row) -> Result<Vec<Row>, Error> {
    let (searches, rounds) = (if setup.quick { SEARCHES_QUICK } else { SEARCHES }, Rounds::new(setup.count));
    let runs = |extents, order| times(extents, order, rounds, searches);
    let check = Metric::cost("check", "ns", |ns: &f64| *ns);
    let offsets = |runs: &[Runs<f64>]| {
        format!("offsets alone: {:.1} ns", runs[OFFSETS].median(|ns| *ns).unwrap_or(f64::NAN))
    };
    let case = |what: &str, ours: &Runs<f64>, note: &str| Row {
        case: format!("{what}: {}", ours.name),
        note: note.into(),
        ..head.clone()
    };
    let mut rows = Vec::new();
    let mut by_size: Vec<Vec<Runs<f64>>> = Vec::new();
    for extents in SIZES {
        let runs = runs(extents, Order::Random)?;
        for (_, ours) in runs.iter().enumerate().filter(|(number, _)| *number != BINARY_IN_TURN) {
            let point = Point {
                figure: "permission check, 4 KiB anywhere in the grant".into(),
                axis: "extents of the grant".into(),
                unit: Unit::Count,
                x: extents as u64,
                line: ours.name.clone(),
            };
            let head = Row { point: Some(point), ..case(&format!("{extents} extents, random"), ours, "") };
            rows.push(check.row(&head, ours, &runs[BINARY_IN_TURN], None));
        }
        by_size.push(runs);
    }
    let million = &by_size[SIZES.len() - 1];
    for (side, bound, goal) in [(IN_TURN, BOUND_IN_TURN, WAITING), (AHEAD, BOUND_AHEAD, AT_A_TIME)] {
        let note = format!("an entry of the index and then a line, anywhere; {}", offsets(million));
        let head = case("1,000,000 extents, random", &million[side], &note);
        rows.push(check.row(&head, &million[side], &million[bound], Some(goal)));
    }
    let thousand = &by_size[SIZES.iter().position(|size| *size == 1000).unwrap_or_default()];
    for side in [IN_TURN, AHEAD] {
        let head = case("1,000 extents, random", &thousand[side], "flat: a quarter more at most");
        let row = check.row(&head, &thousand[side], &by_size[0][side], Some(FLAT));
        rows.push(Row { peer: "the same with one extent".into(), ..row });
    }
    for (order, name) in [(Order::Sequential, "sequential"), (Order::Skewed, "skewed")] {
        let runs = runs(1_000_000, order)?;
        for (side, peer) in [(IN_TURN, BINARY_IN_TURN), (AHEAD, BINARY_AHEAD)] {
            let head = case(&format!("1,000,000 extents, {name}"), &runs[side], &offsets(&runs));
            rows.push(check.row(&head, &runs[side], &runs[peer], None));
        }
    }
    Ok(rows)
}

/// Runs all searches of a grant, which have to find the same.
fn times(extents: usize, order: Order, rounds: Rounds, searches: u64) -> Result<Vec<Runs<f64>>, Error> {
    let spans = spans(extents, order == Order::Skewed);
    let length: u64 = spans.iter().map(|span| span.length.0).sum();
    let (ours, binary, eytzinger) = (Ours::new(&spans), Binary::new(&spans), Eytzinger::new(&spans));
    let loads = Loads::new(&ours, length);
    agree(&ours, &binary, &eytzinger, length)?;
    let before = spans[..extents / 2].iter().map(|span| span.length.0 / BLOCK).sum();
    let requests = Requests { order, count: searches, blocks: length / BLOCK, before };
    rounds.run(vec![
        Side::new("table, in turn", || Ok(time::<true>(&ours, requests))),
        Side::new("table, ahead", || Ok(time::<false>(&ours, requests))),
        Side::new("binary search, in turn", || Ok(time::<true>(&binary, requests))),
        Side::new("binary search, ahead", || Ok(time::<false>(&binary, requests))),
        Side::new("Eytzinger, in turn", || Ok(time::<true>(&eytzinger, requests))),
        Side::new("Eytzinger, ahead", || Ok(time::<false>(&eytzinger, requests))),
        Side::new("offsets alone", || Ok(time::<true>(&Nothing, requests))),
        Side::new("bound: two loads, in turn", || Ok(time::<true>(&loads, requests))),
        Side::new("bound: two loads, ahead", || Ok(time::<false>(&loads, requests))),
    ])
}

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
            let runs = times(extents, order, Rounds::new(2), 1000).unwrap();
            let took =
                |runs: &Runs<f64>| runs.samples.as_ref().unwrap().iter().filter(|ns| **ns > 0.0).count();
            assert!(runs.iter().all(|runs| took(runs) == 2));
            assert_eq!(runs[BOUND_AHEAD].name, "bound: two loads, ahead");
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
}
