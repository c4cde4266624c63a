//! Blocks of a device that are in no volume, and the choice of new extents among the free ones.
//!
//! Blocks that a volume gives up are not free but *to be cleared*, from the same transaction on. They become
//! free only when the caller reports that they were cleared. So no block moves to another volume with data in
//! it, even if the server ends at any moment.
//!
//! New extents continue the volume's last extent if the blocks after it are free. The rest is taken from the
//! smallest free piece that is large enough, so that large pieces stay whole. If no piece is large enough,
//! the largest ones are used first, which gives the fewest possible extents. Called by the operations of the
//! store.

use super::change::failed;
use crate::error::Error;
use crate::extent::{Blocks, Extent};
use redb::{ReadableTable, Table};

/// Table of pieces in a write transaction: device number and first block, and the number of blocks.
pub(super) type PieceTable<'a> = Table<'a, (u32, u64), u64>;

const READING: &str = "read which blocks are free";
const WRITING: &str = "note which blocks are free";

/// Returns the pieces of a device, in the order of their first blocks.
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

/// Returns the last piece that begins at or before block `start`.
fn last_until(table: &PieceTable<'_>, device: u32, start: u64) -> Result<Option<Extent>, Error> {
    let mut until = table.range((device, 0)..=(device, start)).map_err(failed(READING))?;
    let last = until.next_back().transpose().map_err(failed(READING))?;
    Ok(last.map(|(key, length)| Extent::new(key.value().1, length.value())))
}

/// Returns the number of blocks of all pieces of a device.
pub(super) fn total(table: &impl ReadableTable<(u32, u64), u64>, device: u32) -> Result<Blocks, Error> {
    pieces(table, device)?.try_fold(Blocks(0), |sum, piece| Ok(Blocks(sum.0.saturating_add(piece?.length.0))))
}

/// Adds a piece, and merges it with its neighbours.
pub(super) fn add_extent(table: &mut PieceTable<'_>, device: u32, piece: Extent) -> Result<(), Error> {
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

/// Removes blocks. Returns false, without a change, if they are empty or not all in one piece.
pub(super) fn remove_extent(table: &mut PieceTable<'_>, device: u32, wanted: Extent) -> Result<bool, Error> {
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

/// Chooses free extents for `wanted` blocks after `last`, the volume's last extent. The result is in the
/// order of the volume; its first extent may continue `last`. `None` if there are too few free blocks.
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
        // The smallest piece that is large enough, the first on the device if there are several; otherwise
        // the largest.
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

/// Appends extents to a volume's, merging each with the last one if they are contiguous.
pub(super) fn append(extents: &mut Vec<Extent>, new: &[Extent]) {
    for extent in new {
        match extents.last_mut() {
            Some(last) if last.end() == Some(extent.start) => last.length.0 += extent.length.0,
            _ => extents.push(*extent),
        }
    }
}

/// Removes blocks from the end of a volume until `blocks` are left, and returns the removed extents.
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

/// Returns the parts of pieces that are in none of the extents `taken`.
pub(super) fn without(pieces: &[Extent], taken: &[Extent]) -> Vec<Extent> {
    let mut left = pieces.to_vec();
    for Extent { start: Blocks(from), length } in taken {
        let to = from.saturating_add(length.0);
        left = left
            .into_iter()
            .flat_map(|piece| {
                let (start, end) = (piece.start.0, piece.start.0 + piece.length.0);
                [(start, end.min(*from)), (start.max(to), end)]
            })
            .filter(|(start, end)| start < end)
            .map(|(start, end)| Extent::new(start, end - start))
            .collect();
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn extents(list: &[(u64, u64)]) -> Vec<Extent> {
        list.iter().map(|&(start, length)| Extent::new(start, length)).collect()
    }

    /// Rows: free pieces, wanted blocks, the volume's last extent, and the extents that are chosen.
    #[test]
    fn choices() {
        type Pairs = &'static [(u64, u64)];
        type Row = (Pairs, u64, Option<(u64, u64)>, Option<Pairs>);
        let table: [Row; 10] = [
            (&[(0, 10)], 10, None, Some(&[(0, 10)])),
            (&[(0, 10)], 11, None, None),
            (&[], 1, None, None),
            // The smallest piece that is large enough; the first of two.
            (&[(0, 10), (20, 5), (40, 5)], 4, None, Some(&[(20, 4)])),
            // No piece is large enough: the largest, and the smallest that holds the rest; sorted by their
            // place on the device.
            (&[(0, 4), (20, 10), (40, 6), (60, 3)], 13, None, Some(&[(20, 10), (60, 3)])),
            (&[(0, 4), (20, 10), (40, 6)], 20, None, Some(&[(0, 4), (20, 10), (40, 6)])),
            // The continuation of the last extent, even if a smaller piece is large enough.
            (&[(0, 3), (20, 10)], 2, Some((15, 5)), Some(&[(20, 2)])),
            // The rest, for which the continuation is too short, comes from elsewhere and after the
            // continuation.
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

    #[test]
    fn what_is_taken_is_left_out() {
        let pieces = extents(&[(0, 10), (20, 10)]);
        assert_eq!(without(&pieces, &[]), pieces);
        let taken = extents(&[(5, 2), (8, 13), (29, 5), (3, 1)]);
        assert_eq!(without(&pieces, &taken), extents(&[(0, 3), (4, 1), (7, 1), (21, 8)]));
        assert_eq!(without(&pieces, &extents(&[(0, u64::MAX)])), []);
    }

    proptest! {
        /// The chosen blocks are as many as wanted, free and distinct, in as few extents as possible without
        /// a continuation.
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
