//! Which blocks of a device are in no volume, and how new extents are chosen among those that are free.
//!
//! What a volume gave up is not free but *to be cleared*, from the same transaction on; only when somebody says that
//! it was cleared it becomes free. So no block goes from one volume to another with data in it, whatever ends in
//! between.
//!
//! New extents continue the volume's last one if what is behind that is free. Then the smallest free piece that holds
//! the rest is taken, so that large ones stay; if none does, the largest first, which gives the fewest extents that
//! there can be.

use super::change::failed;
use crate::error::Error;
use crate::extent::{Blocks, Extent};
use redb::{ReadableTable, Table};

/// A table of pieces in a transaction.
pub(super) type PieceTable<'a> = Table<'a, (u32, u64), u64>;

const READING: &str = "read which blocks are free";
const WRITING: &str = "note which blocks are free";

/// The pieces of a device, in order.
pub(super) fn pieces(
    table: &impl ReadableTable<(u32, u64), u64>,
    device: u32,
) -> Result<impl Iterator<Item = Result<Extent, Error>>, Error> {
    let range = table.range((device, 0)..=(device, u64::MAX)).map_err(failed(READING))?;
    Ok(range.map(|row| {
        let (key, length) = row.map_err(failed(READING))?;
        Ok(Extent::new(key.value().1, length.value()))
    }))
}

/// The last piece that begins there or before.
fn last_until(table: &PieceTable<'_>, device: u32, start: u64) -> Result<Option<Extent>, Error> {
    let mut until = table.range((device, 0)..=(device, start)).map_err(failed(READING))?;
    let last = until.next_back().transpose().map_err(failed(READING))?;
    Ok(last.map(|(key, length)| Extent::new(key.value().1, length.value())))
}

/// Blocks of all pieces of a device.
pub(super) fn total(table: &impl ReadableTable<(u32, u64), u64>, device: u32) -> Result<Blocks, Error> {
    pieces(table, device)?.try_fold(Blocks(0), |sum, piece| Ok(Blocks(sum.0.saturating_add(piece?.length.0))))
}

/// Adds a piece, and makes one of it and its neighbours.
pub(super) fn give(table: &mut PieceTable<'_>, device: u32, piece: Extent) -> Result<(), Error> {
    let Extent { start: Blocks(mut start), length: Blocks(mut length) } = piece;
    if let Some(before) = last_until(table, device, start)?
        && before.end() == Some(piece.start)
    {
        (start, length) = (before.start.0, length + before.length.0);
    }
    let behind = table.remove((device, piece.start.0 + piece.length.0)).map_err(failed(WRITING))?;
    let behind = behind.map_or(0, |length| length.value());
    length += behind;
    table.insert((device, start), length).map_err(failed(WRITING))?;
    Ok(())
}

/// Takes blocks out; false if they are not all in one piece.
pub(super) fn take(table: &mut PieceTable<'_>, device: u32, wanted: Extent) -> Result<bool, Error> {
    let Some(end) = wanted.end().filter(|_| wanted.length.0 > 0) else { return Ok(false) };
    let holder = last_until(table, device, wanted.start.0)?;
    let Some(holder) = holder.filter(|piece| piece.end() >= Some(end)) else { return Ok(false) };
    table.remove((device, holder.start.0)).map_err(failed(WRITING))?;
    for (from, to) in [(holder.start.0, wanted.start.0), (end.0, holder.start.0 + holder.length.0)] {
        if from < to {
            table.insert((device, from), to - from).map_err(failed(WRITING))?;
        }
    }
    Ok(true)
}

/// Which of the free pieces to use for so many blocks behind `last`: extents in the order of the volume, of which the
/// first may continue its last one. `None` if there are not enough.
pub(super) fn choose(free: &[Extent], wanted: Blocks, last: Option<Extent>) -> Option<Vec<Extent>> {
    let mut pieces = free.to_vec();
    let (mut chosen, mut left) = (Vec::new(), wanted.0);
    let behind = last.and_then(Extent::end);
    if let Some(at) = pieces.iter().position(|piece| Some(piece.start) == behind) {
        let piece = pieces.swap_remove(at);
        let length = piece.length.0.min(left);
        chosen.push(Extent { start: piece.start, length: Blocks(length) });
        left -= length;
    }
    let continued = chosen.len();
    pieces.sort_unstable_by_key(|piece| (std::cmp::Reverse(piece.length), piece.start));
    let mut rest = pieces.as_slice();
    while left > 0 {
        // The smallest that holds it all, and of several the first on the device; else the largest.
        let holding = rest.partition_point(|piece| piece.length.0 >= left);
        let piece = match holding.checked_sub(1) {
            Some(smallest) => rest[rest.partition_point(|piece| piece.length > rest[smallest].length)],
            None => *rest.first()?,
        };
        let length = piece.length.0.min(left);
        chosen.push(Extent { start: piece.start, length: Blocks(length) });
        left -= length;
        rest = &rest[1..];
    }
    chosen[continued..].sort_unstable();
    Some(chosen)
}

/// Puts extents behind those that there are; one that follows the last on the device becomes part of it.
pub(super) fn append(extents: &mut Vec<Extent>, new: &[Extent]) {
    for extent in new {
        match extents.last_mut() {
            Some(last) if last.end() == Some(extent.start) => last.length.0 += extent.length.0,
            _ => extents.push(*extent),
        }
    }
}

/// Takes blocks off the end until so many are left, and answers what was taken off.
pub(super) fn shorten(extents: &mut Vec<Extent>, blocks: Blocks) -> Vec<Extent> {
    let mut total = extents.iter().map(|extent| extent.length.0).sum::<u64>();
    let mut freed = Vec::new();
    while total > blocks.0
        && let Some(last) = extents.last_mut()
    {
        let length = last.length.0.min(total - blocks.0);
        last.length.0 -= length;
        total -= length;
        freed.push(Extent { start: Blocks(last.start.0 + last.length.0), length: Blocks(length) });
        if last.length.0 == 0 {
            extents.pop();
        }
    }
    freed
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn extents(list: &[(u64, u64)]) -> Vec<Extent> {
        list.iter().map(|&(start, length)| Extent::new(start, length)).collect()
    }

    /// What is free, what is wanted, behind which extent, and what is chosen.
    #[test]
    fn choices() {
        type Pairs = &'static [(u64, u64)];
        type Row = (Pairs, u64, Option<(u64, u64)>, Option<Pairs>);
        let table: [Row; 10] = [
            (&[(0, 10)], 10, None, Some(&[(0, 10)])),
            (&[(0, 10)], 11, None, None),
            (&[], 1, None, None),
            // The smallest that holds it; of two the first.
            (&[(0, 10), (20, 5), (40, 5)], 4, None, Some(&[(20, 4)])),
            // None holds it: the largest first, and for the rest the smallest that does; in the order of the device.
            (&[(0, 4), (20, 10), (40, 6), (60, 3)], 13, None, Some(&[(20, 10), (60, 3)])),
            (&[(0, 4), (20, 10), (40, 6)], 20, None, Some(&[(0, 4), (20, 10), (40, 6)])),
            // Behind the last, even if a smaller one would hold it.
            (&[(0, 3), (20, 10)], 2, Some((15, 5)), Some(&[(20, 2)])),
            // What does not fit there goes elsewhere, and comes behind it.
            (&[(0, 30), (50, 5), (70, 3)], 8, Some((45, 5)), Some(&[(50, 5), (70, 3)])),
            (&[(0, 30), (50, 5)], 8, Some((45, 5)), Some(&[(50, 5), (0, 3)])),
            (&[(0, 3), (50, 5)], 9, Some((45, 5)), None),
        ];
        for (free, wanted, last, expected) in table {
            let last = last.map(|(start, length)| Extent::new(start, length));
            let chosen = choose(&extents(free), Blocks(wanted), last);
            assert_eq!(chosen, expected.map(extents), "{wanted} of {free:?} behind {last:?}");
        }
    }

    #[test]
    fn what_is_taken_off_is_the_end() {
        let mut volume = extents(&[(10, 5), (30, 5), (0, 5)]);
        assert_eq!(shorten(&mut volume, Blocks(15)), []);
        assert_eq!(shorten(&mut volume, Blocks(7)), extents(&[(0, 5), (32, 3)]));
        assert_eq!(volume, extents(&[(10, 5), (30, 2)]));
        append(&mut volume, &extents(&[(32, 1), (50, 1), (51, 4)]));
        assert_eq!(volume, extents(&[(10, 5), (30, 3), (50, 5)]));
        assert_eq!(shorten(&mut volume, Blocks(0)), extents(&[(50, 5), (30, 3), (10, 5)]));
        assert_eq!(volume, []);
    }

    proptest! {
        /// As many as wanted, all of them free, none twice; and in as few extents as there can be where none continues.
        #[test]
        fn any_choice(holes in proptest::collection::vec((1u64..20, 1u64..20), 0..40), wanted in 1u64..300) {
            let mut end = 0;
            let free: Vec<Extent> = holes.iter().map(|(hole, length)| {
                end += hole + length;
                Extent::new(end - length, *length)
            }).collect();
            let sum = |list: &[Extent]| list.iter().map(|extent| extent.length.0).sum::<u64>();
            let Some(chosen) = choose(&free, Blocks(wanted), None) else {
                prop_assert!(sum(&free) < wanted);
                return Ok(());
            };
            prop_assert_eq!(sum(&chosen), wanted);
            prop_assert!(chosen.is_sorted());
            for extent in &chosen {
                let within = |piece: &&Extent| piece.start <= extent.start && extent.end() <= piece.end();
                prop_assert_eq!(free.iter().filter(within).count(), 1);
            }
            prop_assert!(chosen.windows(2).all(|pair| pair[0].end() < Some(pair[1].start)));
            let mut lengths: Vec<u64> = free.iter().map(|piece| piece.length.0).collect();
            lengths.sort_unstable_by_key(|length| std::cmp::Reverse(*length));
            let fewest = lengths.iter().scan(0, |all, length| { *all += length; Some(*all) });
            prop_assert_eq!(chosen.len(), fewest.take_while(|all| *all < wanted).count() + 1);
        }
    }
}
