//! Blocks that several thin volumes have, with the number of their users.
//!
//! A snapshot has the blocks of its origin, and a clone those of its snapshot. Blocks with one user are not recorded, so
//! that volumes without snapshots cost nothing here. Blocks whose last user gives them up are returned to the caller, who
//! records them as to be cleared in the same transaction.
//!
//! ```text
//!   origin      | a | b | c |           of blocks   100..200 a    200..300 b    300..400 c
//!   snapshot    | a | b | c |
//!   clone       | a | d |   |
//!   shared        100 -> 100, 3    200 -> 100, 2    300 -> 100, 2 ─┘ (one piece: adjacent, and of as many users)
//! ```
//!
//! Invariant: pieces do not overlap, each has two users or more, and no two adjacent pieces have as many. Called by the
//! operations of the store; [`super::verify`] counts the users anew.

use super::change::{READING, WRITING, failed};
use crate::error::Error;
use crate::extent::{Blocks, Extent};
use redb::{ReadableTable, Table};

/// Table of shared pieces in a write transaction: device number and first block, and the numbers of blocks and of users.
pub(super) type SharedTable<'a> = Table<'a, (u32, u64), (u64, u64)>;

/// Returns true if volumes of a device share any blocks.
pub(super) fn has_any(
    table: &impl ReadableTable<(u32, u64), (u64, u64)>,
    device: u32,
) -> Result<bool, Error> {
    let mut range = table.range((device, 0)..=(device, u64::MAX)).map_err(failed(READING))?;
    range.next().transpose().map_err(failed(READING)).map(|first| first.is_some())
}

/// Returns the shared pieces of a device with their numbers of users, in the order of their first blocks.
pub(super) fn pieces(
    table: &impl ReadableTable<(u32, u64), (u64, u64)>,
    device: u32,
) -> Result<Vec<(Extent, u64)>, Error> {
    within(table, device, 0, u64::MAX)
}

/// Returns the shared pieces of a device that overlap its blocks `from..to`.
fn within(
    table: &impl ReadableTable<(u32, u64), (u64, u64)>,
    device: u32,
    from: u64,
    to: u64,
) -> Result<Vec<(Extent, u64)>, Error> {
    let decode = |start: u64, (length, users): (u64, u64)| match start.checked_add(length) {
        Some(_) if length > 0 && users > 1 => Ok((Extent::new(start, length), users)),
        _ => Err(Error::damaged(format!("blocks from {start} on are shared by {users} volumes"))),
    };
    let mut found = Vec::new();
    let mut before = table.range((device, 0)..(device, from)).map_err(failed(READING))?;
    if let Some(row) = before.next_back() {
        let (key, value) = row.map_err(failed(READING))?;
        let (extent, users) = decode(key.value().1, value.value())?;
        found.extend((extent.start.0 + extent.length.0 > from).then_some((extent, users)));
    }
    for row in table.range((device, from)..(device, to)).map_err(failed(READING))? {
        let (key, value) = row.map_err(failed(READING))?;
        found.push(decode(key.value().1, value.value())?);
    }
    Ok(found)
}

/// Divides an extent that a volume has into parts with their numbers of users.
pub(super) fn parts(
    table: &impl ReadableTable<(u32, u64), (u64, u64)>,
    device: u32,
    extent: Extent,
) -> Result<Vec<(Extent, u64)>, Error> {
    let (mut at, end) = (extent.start.0, extent.start.0 + extent.length.0);
    let mut parts = Vec::new();
    for (piece, users) in within(table, device, at, end)? {
        let (from, to) = (piece.start.0.max(at), (piece.start.0 + piece.length.0).min(end));
        if at < from {
            parts.push((Extent::new(at, from - at), 1));
        }
        parts.push((Extent::new(from, to - from), users));
        at = to;
    }
    if at < end {
        parts.push((Extent::new(at, end - at), 1));
    }
    Ok(parts)
}

/// Records one more user of an extent that a volume has.
pub(super) fn add_user(table: &mut SharedTable<'_>, device: u32, extent: Extent) -> Result<(), Error> {
    change(table, device, extent, |users| users + 1).map(drop)
}

/// Records one user less of an extent that a volume has. Returns the parts that nobody has any more.
pub(super) fn remove_user(
    table: &mut SharedTable<'_>,
    device: u32,
    extent: Extent,
) -> Result<Vec<Extent>, Error> {
    change(table, device, extent, |users| users - 1)
}

/// Changes the number of users of each block of an extent, at least 1 each. Returns the parts that have none then.
fn change(
    table: &mut SharedTable<'_>,
    device: u32,
    extent: Extent,
    edit: impl Fn(u64) -> u64,
) -> Result<Vec<Extent>, Error> {
    let (start, end) = (extent.start.0, extent.start.0 + extent.length.0);
    let before = within(table, device, start, end)?;
    let parts = parts(table, device, extent)?;
    for (piece, users) in &before {
        table.remove((device, piece.start.0)).map_err(failed(WRITING))?;
        let piece_end = piece.start.0 + piece.length.0;
        for (from, to) in [(piece.start.0, start), (end, piece_end)] {
            if from < to {
                table.insert((device, from), (to - from, *users)).map_err(failed(WRITING))?;
            }
        }
    }
    let mut freed = Vec::new();
    for (part, users) in parts {
        match edit(users) {
            0 => freed.push(part),
            1 => {}
            users => put(table, device, part, users)?,
        }
    }
    // The piece behind was not there when the last part was put, or is one that goes on as it was.
    merge_with_next(table, device, end)?;
    Ok(freed)
}

/// Adds a piece, and merges it with the one before if that has as many users.
fn put(table: &mut SharedTable<'_>, device: u32, piece: Extent, users: u64) -> Result<(), Error> {
    let start = piece.start.0;
    let mut before = table.range((device, 0)..(device, start)).map_err(failed(READING))?;
    let last = before.next_back().transpose().map_err(failed(READING))?;
    let last = last.map(|(key, value)| (key.value().1, value.value()));
    drop(before);
    let (start, length) = match last {
        Some((first, (length, same))) if first + length == start && same == users => {
            (first, length + piece.length.0)
        }
        _ => (start, piece.length.0),
    };
    table.insert((device, start), (length, users)).map_err(failed(WRITING))?;
    Ok(())
}

/// Merges the piece that ends at a block with the one that begins there, if both have as many users.
fn merge_with_next(table: &mut SharedTable<'_>, device: u32, block: u64) -> Result<(), Error> {
    let next = table.get((device, block)).map_err(failed(READING))?.map(|value| value.value());
    let Some((length, users)) = next else { return Ok(()) };
    table.remove((device, block)).map_err(failed(WRITING))?;
    put(table, device, Extent::new(block, length), users)
}

/// Replaces all pieces of a device by those that `moved` makes of each.
pub(super) fn move_pieces(
    table: &mut SharedTable<'_>,
    device: u32,
    moved: impl Fn(Extent) -> Vec<Extent>,
) -> Result<(), Error> {
    let before = pieces(table, device)?;
    table.retain_in((device, 0)..=(device, u64::MAX), |_, _| false).map_err(failed(WRITING))?;
    let mut after: Vec<(Extent, u64)> = before
        .into_iter()
        .flat_map(|(piece, users)| moved(piece).into_iter().map(move |piece| (piece, users)))
        .collect();
    after.sort_unstable();
    after.into_iter().try_for_each(|(piece, users)| put(table, device, piece, users))
}

/// Returns the blocks of all these extents, which may overlap, as extents in order that neither overlap nor touch.
pub(super) fn union(mut extents: Vec<Extent>) -> Vec<Extent> {
    extents.sort_unstable();
    let mut found: Vec<Extent> = Vec::new();
    for extent in extents {
        let end = extent.start.0 + extent.length.0;
        match found.last_mut() {
            Some(last) if extent.start.0 <= last.start.0 + last.length.0 => {
                last.length = Blocks(end.max(last.start.0 + last.length.0) - last.start.0);
            }
            _ => found.push(extent),
        }
    }
    found
}

/// Counts the users of each block of these extents, which are all of the volumes that may share blocks. Returns the
/// blocks in order, in the longest parts that have as many users each.
pub(super) fn count(extents: &[Extent]) -> Vec<(Extent, u64)> {
    let begins = extents.iter().map(|extent| (extent.start.0, 1));
    let ends = extents.iter().map(|extent| (extent.start.0 + extent.length.0, -1));
    let mut bounds: Vec<(u64, i64)> = begins.chain(ends).collect();
    bounds.sort_unstable();
    let (mut counted, mut at, mut users): (Vec<(Extent, u64)>, u64, i64) = (Vec::new(), 0, 0);
    for (block, more) in bounds {
        if at < block && users > 0 {
            let part = Extent::new(at, block - at);
            match counted.last_mut() {
                Some((last, same)) if last.end() == Some(part.start) && *same == users as u64 => {
                    last.length.0 += part.length.0;
                }
                _ => counted.push((part, users as u64)),
            }
        }
        (at, users) = (block, users + more);
    }
    counted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::layout::SHARED;
    use bywash_support::peers::Random;
    use redb::{Database, backends::InMemoryBackend};

    #[test]
    fn unions_and_counts() {
        let extents =
            [(0, 5), (3, 4), (7, 1), (10, 2), (10, 2), (11, 5)].map(|(at, len)| Extent::new(at, len));
        assert_eq!(union(extents.to_vec()), [Extent::new(0, 8), Extent::new(10, 6)]);
        let counted = [(0, 3, 1), (3, 2, 2), (5, 3, 1), (10, 1, 2), (11, 1, 3), (12, 4, 1)];
        assert_eq!(count(&extents), counted.map(|(at, len, users)| (Extent::new(at, len), users)));
        assert_eq!(count(&[]), []);
    }

    /// The table agrees with a simple count of the users of each block, whatever is added and removed.
    #[test]
    fn as_counted_block_by_block() {
        const DEVICE: u32 = 3;
        let mut random = Random::seeded("shared");
        let database = Database::builder().create_with_backend(InMemoryBackend::new()).unwrap();
        let transaction = database.begin_write().unwrap();
        let mut table = transaction.open_table(SHARED).unwrap();
        // Pieces of other devices stay as they are.
        table.insert((DEVICE - 1, u64::MAX - 9), (7, 2)).unwrap();
        table.insert((DEVICE + 1, 0), (7, 2)).unwrap();
        let mut users = [1u64; 60];
        let mut freed_blocks = 0;
        for _ in 0..3000 {
            let from = random.below(60);
            let extent = Extent::new(from, 1 + random.below(60 - from));
            let blocks = from as usize..(from + extent.length.0) as usize;
            let is_more = random.below(2) == 0;
            // Only blocks that a volume has can get another user, or lose one.
            if users[blocks.clone()].contains(&0) || users[blocks.clone()].iter().any(|users| *users > 6) {
                continue;
            }
            if is_more {
                add_user(&mut table, DEVICE, extent).unwrap();
                users[blocks].iter_mut().for_each(|users| *users += 1);
            } else {
                let freed = remove_user(&mut table, DEVICE, extent).unwrap();
                for block in blocks {
                    users[block] -= 1;
                    let is_freed = freed
                        .iter()
                        .any(|part| (part.start.0..part.start.0 + part.length.0).contains(&(block as u64)));
                    assert_eq!(is_freed, users[block] == 0);
                    if users[block] == 0 {
                        freed_blocks += 1;
                        // A volume gets it again.
                        users[block] = 1;
                    }
                }
            }
            let all: Vec<Extent> = users
                .iter()
                .enumerate()
                .flat_map(|(block, users)| vec![Extent::new(block as u64, 1); *users as usize])
                .collect();
            let expected: Vec<_> = count(&all).into_iter().filter(|(_, users)| *users > 1).collect();
            assert_eq!(pieces(&table, DEVICE).unwrap(), expected);
            let of_all = parts(&table, DEVICE, Extent::new(0, 60)).unwrap();
            assert_eq!(of_all, count(&all));
        }
        assert!(freed_blocks > 10, "{freed_blocks}");
        assert_eq!(pieces(&table, DEVICE - 1).unwrap(), [(Extent::new(u64::MAX - 9, 7), 2)]);
        assert_eq!(pieces(&table, DEVICE + 1).unwrap(), [(Extent::new(0, 7), 2)]);
    }
}
