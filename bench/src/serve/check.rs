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
use super::workload::{Offsets, Random};
use crate::campaign::Declared;
use crate::engine::{Metric, Rounds, Runs, Side};
use crate::error::Error;
use crate::row::{Point, Row, Unit};
use bywash_volume::{Access, ByteRange, Bytes, DeviceNumber, Grant, GrantNumber, Table};
use std::hint::black_box;
use std::ops::Range;
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
/// Names of sides; *in turn* and *ahead* of each, but for the offsets alone.
const TABLE: [&str; 2] = ["table, in turn", "table, ahead"];
const BINARY: [&str; 2] = ["binary search, in turn", "binary search, ahead"];
const EYTZINGER: [&str; 2] = ["Eytzinger, in turn", "Eytzinger, ahead"];
const OFFSETS: &str = "offsets alone";
const BOUND: [&str; 2] = ["bound: two loads, in turn", "bound: two loads, ahead"];

/// A grant, and the order of the requests to it.
struct Requests {
    /// Extents; none is adjacent to the one before it on the device.
    spans: Vec<ByteRange>,
    /// Sum of the extents, in bytes.
    length: u64,
    offsets: Offsets,
    /// The large extent of a skewed grant, which the offsets leave out.
    left_out: Range<u64>,
}

impl Requests {
    fn new(extents: usize, is_random: bool, is_skewed: bool) -> Requests {
        let mut random = Random(extents as u64);
        let (mut start, mut length) = (0, 0);
        let mut left_out = 0..0;
        let spans = (0..extents).map(|number| {
            let is_large = is_skewed && number == extents / 2;
            let bytes = if is_large { LARGE } else { (1 + random.below(16)) * BLOCK };
            if is_large {
                left_out = length..length + LARGE;
            }
            start += bytes + BLOCK;
            length += bytes;
            ByteRange::new(start - bytes, bytes)
        });
        let spans = spans.collect();
        let blocks = (length - (left_out.end - left_out.start)) / BLOCK;
        let offsets = Offsets::new(is_random.then_some(extents as u64), BLOCK, blocks);
        Requests { spans, length, offsets, left_out }
    }

    /// Returns the nanoseconds of one of `count` searches, in turn or ahead.
    fn time<const IN_TURN: bool>(&self, search: &impl Fn(u64) -> u64, count: u64) -> f64 {
        let mut offsets = self.offsets.clone();
        let (behind, large) = (self.left_out.start, self.left_out.end - self.left_out.start);
        // Zero, which the compiler does not know: the result of a search becomes part of the next offset.
        let mask = black_box(0);
        let (mut found, mut sum) = (0, 0u64);
        let start = Instant::now();
        for _ in 0..count {
            let small = offsets.advance();
            let offset = if small < behind { small } else { small + large };
            found = search(offset + if IN_TURN { found & mask } else { 0 });
            sum = sum.wrapping_add(found);
        }
        let ns = start.elapsed().as_nanos() as f64 / count as f64;
        black_box(sum);
        ns
    }

    /// A search as a side in turn and as a side ahead.
    fn sides<'a>(
        &'a self,
        names: [&str; 2],
        search: &'a impl Fn(u64) -> u64,
        count: u64,
    ) -> [Side<'a, f64>; 2] {
        [
            Side::new(names[0], move || Ok(self.time::<true>(search, count))),
            Side::new(names[1], move || Ok(self.time::<false>(search, count))),
        ]
    }

    /// Runs all searches of the grant, which have to find the same.
    fn times(&self, rounds: Rounds, count: u64) -> Result<Vec<Runs<f64>>, Error> {
        let (check, sizes) = table(&self.spans);
        let (binary, eytzinger) = (binary(&self.spans), eytzinger(&self.spans));
        let (index, lines, shift) = tables_of_bound(sizes, self.length);
        let loads = |offset: u64| {
            let entry = (offset >> shift) as usize;
            lines[index[entry] as usize].0[entry % 8]
        };
        let some = (0..self.length).step_by((self.length as usize / 1000).max(1));
        for offset in some.chain([self.length - 1]).map(|byte| byte / BLOCK * BLOCK) {
            let (expected, found) = (binary(offset), [check(offset), eytzinger(offset)]);
            if found != [expected; 2] {
                return Err(Error::failed("a check", format!("finds {found:?} at {offset}, not {expected}")));
            }
        }
        let nothing = |offset| offset;
        let mut sides = Vec::new();
        sides.extend(self.sides(TABLE, &check, count));
        sides.extend(self.sides(BINARY, &binary, count));
        sides.extend(self.sides(EYTZINGER, &eytzinger, count));
        sides.push(Side::new(OFFSETS, || Ok(self.time::<true>(&nothing, count))));
        sides.extend(self.sides(BOUND, &loads, count));
        rounds.run(sides)
    }
}

/// The product's table: the grant among other grants, as a client has them. Returns its check, and the sizes of the grant's
/// index and lines.
fn table(spans: &[ByteRange]) -> (impl Fn(u64) -> u64 + use<>, (usize, usize)) {
    let mut table = Table::new(64);
    let add = |number: u32| {
        let spans = if number == 40 { spans } else { &spans[..1] };
        let grant = Grant::new(DeviceNumber(number), Access::ReadWrite, spans.iter().copied());
        table.add(grant.expect("the extents are valid")).expect("the table holds 64")
    };
    let number = (0..64).map(add).collect::<Vec<GrantNumber>>()[40];
    let sizes = table.find(number).expect("the table has the grant").table_size();
    let check = move |offset| {
        let pieces = table.check(number, Bytes(offset), Bytes(BLOCK), Access::Read);
        // A server looks at all pieces.
        pieces.expect("it is granted").fold(0, |last, piece| last ^ piece.start.0)
    };
    (check, sizes)
}

/// Beginnings of the extents in the volume and on the device.
fn beginnings(spans: &[ByteRange]) -> (Vec<u64>, Vec<u64>) {
    let begin = |next: &mut u64, span: &ByteRange| Some(std::mem::replace(next, *next + span.length.0));
    (spans.iter().scan(0, begin).collect(), spans.iter().map(|span| span.start.0).collect())
}

/// Binary search of the extents' beginnings.
fn binary(spans: &[ByteRange]) -> impl Fn(u64) -> u64 + use<> {
    let (starts, device) = beginnings(spans);
    move |offset| {
        let at = starts.partition_point(|start| *start <= offset) - 1;
        device[at] + (offset - starts[at])
    }
}

/// Search of the same beginnings in the order in which a binary search looks at them.
fn eytzinger(spans: &[ByteRange]) -> impl Fn(u64) -> u64 + use<> {
    let (starts, device) = beginnings(spans);
    // The beginning and the number of the extent at each position; at 0, the number of extents.
    let mut tree = vec![0; spans.len() + 1];
    let mut sorted = vec![spans.len() as u32; spans.len() + 1];
    let mut order = Vec::new();
    in_order(1, spans.len(), &mut order);
    for (number, position) in order.into_iter().enumerate() {
        (tree[position], sorted[position]) = (starts[number], number as u32);
    }
    move |offset| {
        let mut position = 1;
        while position < tree.len() {
            position = 2 * position + usize::from(tree[position] <= offset);
        }
        // The last turn to the left was at the first extent that begins after the offset.
        let behind = position >> (position.trailing_ones() + 1);
        let at = sorted[behind] as usize - 1;
        device[at] + (offset - starts[at])
    }
}

/// Appends the positions of a tree of so many, from the left to the right.
fn in_order(position: usize, count: usize, order: &mut Vec<usize>) {
    if position <= count {
        in_order(2 * position, count, order);
        order.push(position);
        in_order(2 * position + 1, count, order);
    }
}

/// A cache line.
#[repr(align(64))]
struct Line([u64; 8]);

/// Tables of the loads that a check cannot avoid, as large as those of a grant: the number of a line for each entry, every line
/// equally often, in random order; the lines; and a shift, since an entry stands for 1 << shift bytes of `length`.
fn tables_of_bound((entries, lines): (usize, usize), length: u64) -> (Vec<u32>, Vec<Line>, u32) {
    let mut random = Random(entries as u64);
    let fits = |shift: &u32| (length - 1) >> shift < entries as u64;
    let shift = (0..64).find(fits).expect("one entry holds everything");
    let mut index: Vec<u32> = (0..entries).map(|entry| (entry % lines) as u32).collect();
    for entry in (1..entries).rev() {
        index.swap(entry, random.below(entry as u64 + 1) as usize);
    }
    (index, (0..lines).map(|line| Line([line as u64; 8])).collect(), shift)
}

pub(super) fn cases() -> Vec<Declared<Setup>> {
    vec![Declared::new(Row::head("serve/check", "a check by extents", ""), measure)]
}

fn find<'a>(runs: &'a [Runs<f64>], name: &str) -> &'a Runs<f64> {
    runs.iter().find(|runs| runs.name == name).expect("a side of each run")
}

fn measure(setup: &Setup, head: &Row) -> Result<Vec<Row>, Error> {
    let (searches, rounds) = (if setup.quick { SEARCHES_QUICK } else { SEARCHES }, Rounds::new(setup.count));
    let check = Metric::cost("check", "ns", |ns: &f64| *ns);
    let alone = |runs: &[Runs<f64>]| {
        let ns = find(runs, OFFSETS).median(|ns| *ns);
        format!("offsets alone: {:.1} ns", ns.unwrap_or(f64::NAN))
    };
    let row = |case: &str, note: &str, ours: &Runs<f64>, peer: &Runs<f64>, goal| {
        let case = format!("{case}: {}", ours.name);
        check.row(&Row { case, note: note.into(), ..head.clone() }, ours, peer, goal)
    };
    let mut rows = Vec::new();
    let mut by_size: Vec<Vec<Runs<f64>>> = Vec::new();
    for extents in SIZES {
        let runs = Requests::new(extents, true, false).times(rounds, searches)?;
        for ours in runs.iter().filter(|runs| runs.name != BINARY[0]) {
            let point = Point {
                figure: "permission check, 4 KiB anywhere in the grant".into(),
                axis: "extents of the grant".into(),
                unit: Unit::Count,
                x: extents as u64,
                line: ours.name.clone(),
            };
            let row = row(&format!("{extents} extents, random"), "", ours, find(&runs, BINARY[0]), None);
            rows.push(Row { point: Some(point), ..row });
        }
        by_size.push(runs);
    }
    let (one, thousand, million) = (&by_size[0], &by_size[3], &by_size[6]);
    let note = format!("an entry of the index and then a line, anywhere; {}", alone(million));
    for (side, goal) in [(0, WAITING), (1, AT_A_TIME)] {
        let (ours, bound) = (find(million, TABLE[side]), find(million, BOUND[side]));
        rows.push(row("1,000,000 extents, random", &note, ours, bound, Some(goal)));
    }
    for side in TABLE {
        let (ours, peer) = (find(thousand, side), find(one, side));
        let row = row("1,000 extents, random", "flat: a quarter more at most", ours, peer, Some(FLAT));
        rows.push(Row { peer: "the same with one extent".into(), ..row });
    }
    for (name, is_skewed) in [("sequential", false), ("skewed", true)] {
        let runs = Requests::new(1_000_000, is_skewed, is_skewed).times(rounds, searches)?;
        for (side, peer) in TABLE.into_iter().zip(BINARY) {
            let case = format!("1,000,000 extents, {name}");
            rows.push(row(&case, &alone(&runs), find(&runs, side), find(&runs, peer), None));
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_searches_find_the_same_and_take_some_time() {
        for (extents, is_random, is_skewed) in [(1, true, false), (1000, true, true), (777, false, false)] {
            let runs = Requests::new(extents, is_random, is_skewed).times(Rounds::new(2), 1000).unwrap();
            let took = |runs: &Runs<f64>| runs.samples.as_ref().unwrap().iter().all(|ns| *ns > 0.0);
            assert!(runs.len() == 9 && runs.iter().all(took));
        }
    }

    #[test]
    fn the_bound_loads_from_all_lines_of_tables_as_large_as_ours() {
        for (entries, lines) in [(1, 1), (64, 10), (5000, 700)] {
            let (index, all, shift) = tables_of_bound((entries, lines), entries as u64 * BLOCK);
            let found: std::collections::HashSet<u32> = index.iter().copied().collect();
            assert_eq!((index.len(), all.len(), found.len(), shift), (entries, lines, lines, 12));
        }
    }
}
