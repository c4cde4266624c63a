//! Check that requests move their bytes, before and after the clock runs, for every engine alike.
//!
//! ```text
//!   before    some blocks that the run will reach first are written and read one by one, each with a mark of its own
//!   writes    each buffer has bytes of its own        ──► such a block has those of a buffer, and no mark
//!   reads     each buffer has zeros, and no block has ──► each buffer has those of a block
//! ```
//!
//! Sectors have to be whole. The order of requests is not checked: the kernel, too, keeps none between requests that are in
//! flight at the same time.

use super::workload::{Direction, Engine, Request, Tag, Workload};
use crate::error::Error;
use std::collections::BTreeMap;

/// Content of an untouched medium.
pub const FILLING: u8 = 0xa5;
/// Number of blocks that are compared, of a medium that has as many.
const BLOCKS: u64 = 64;
/// First mark; buffers have smaller bytes, by the greatest depth.
const MARK: u8 = 129;
const SECTOR: usize = 512;

/// Checks that an engine without requests in flight tells blocks apart, and fills its buffers for the next run.
pub fn prepare(engine: &mut dyn Engine, workload: &Workload) -> Result<(), Error> {
    let mut offsets = workload.offsets();
    let marks: BTreeMap<u64, u8> =
        (MARK..).take(blocks(workload)).map(|mark| (offsets.advance(), mark)).collect();
    for (offset, mark) in &marks {
        engine.buffer(0).copy_from(&vec![*mark; workload.block]);
        one(engine, Direction::Write, *offset)?;
    }
    for (offset, mark) in marks {
        check_block(engine, workload, offset, |byte| byte == mark)?;
    }
    for tag in 0..workload.depth as Tag {
        let content = if workload.direction == Direction::Write { tag as u8 + 1 } else { 0 };
        engine.buffer(tag).copy_from(&vec![content; workload.block]);
    }
    Ok(())
}

/// Checks that a run of so many requests has moved its bytes.
pub fn confirm(engine: &mut dyn Engine, workload: &Workload, requests: u64) -> Result<(), Error> {
    match workload.direction {
        Direction::Write => {
            let mut offsets = workload.offsets();
            for _ in 0..requests.min(blocks(workload) as u64) {
                let is_of_buffer = |byte: u8| (1..=workload.depth).contains(&usize::from(byte));
                check_block(engine, workload, offsets.advance(), is_of_buffer)?;
            }
        }
        // All buffers are used before one is used again.
        Direction::Read if requests >= workload.depth as u64 => {
            for tag in 0..workload.depth as Tag {
                let what = || format!("in buffer {tag} is not what was read");
                check_buffer(engine, workload, tag, |byte| byte != 0, what)?;
            }
        }
        Direction::Read => {}
    }
    Ok(())
}

fn blocks(workload: &Workload) -> usize {
    BLOCKS.min(workload.medium_bytes / workload.block as u64) as usize
}

fn one(engine: &mut dyn Engine, direction: Direction, offset: u64) -> Result<(), Error> {
    engine.submit(Request { tag: 0, direction, offset })?;
    engine.reap(1, &mut Vec::new())
}

/// Reads a block into a buffer that has had zeros, which an engine that does nothing leaves.
fn check_block(
    engine: &mut dyn Engine,
    workload: &Workload,
    offset: u64,
    is_known: impl Fn(u8) -> bool,
) -> Result<(), Error> {
    engine.buffer(0).copy_from(&vec![0; workload.block]);
    one(engine, Direction::Read, offset)?;
    check_buffer(engine, workload, 0, is_known, || format!("at {offset} is not what was written"))
}

fn check_buffer(
    engine: &mut dyn Engine,
    workload: &Workload,
    tag: Tag,
    is_known: impl Fn(u8) -> bool,
    what: impl Fn() -> String,
) -> Result<(), Error> {
    let mut bytes = vec![0; workload.block];
    engine.buffer(tag).copy_to(&mut bytes);
    // Compared with itself a byte on, which is quick in a build without optimisation, too.
    let is_whole = |sector: &[u8]| sector[1..] == sector[..sector.len() - 1] && is_known(sector[0]);
    match bytes.chunks(SECTOR).all(is_whole) {
        true => Ok(()),
        false => Err(Error::failed("a block", what())),
    }
}

#[cfg(test)]
mod tests {
    use super::super::file::Calls;
    use super::super::workload::{drive, tests::workload};
    use super::*;

    /// Returns the error of a run of 500 requests to memory; `place` tells where each of them is carried out, if it is.
    fn outcome(direction: Direction, place: fn(u64, usize) -> Option<usize>) -> String {
        let workload = Workload { direction, ..workload(8, 500) };
        let (mut medium, mut number) = (vec![FILLING; workload.medium_bytes as usize], 0);
        let mut engine = Calls::new(&workload, move |direction, bytes, offset| {
            number += 1;
            let Some(at) = place(number, offset as usize) else { return Ok(bytes.len()) };
            match direction {
                Direction::Read => bytes.copy_from_slice(&medium[at..][..bytes.len()]),
                Direction::Write => medium[at..][..bytes.len()].copy_from_slice(bytes),
            }
            Ok(bytes.len())
        });
        let confirmed = prepare(&mut engine, &workload).and_then(|()| {
            let driven = drive(&mut engine, &workload)?;
            confirm(&mut engine, &workload, driven.requests)
        });
        confirmed.err().map_or(String::new(), |error| error.to_string())
    }

    #[test]
    fn an_engine_that_does_nothing_or_does_it_elsewhere_is_found_out() {
        const BEFORE: u64 = 2 * BLOCKS;
        for (direction, lost) in [(Direction::Read, "in buffer 3 is"), (Direction::Write, "at 12288 is")] {
            assert_eq!(outcome(direction, |_, offset| Some(offset)), "");
            let lazy = outcome(direction, |number, offset| {
                (number <= BEFORE + 3 || number > BEFORE + 500).then_some(offset)
            });
            assert!(lazy.contains(lost), "{lazy}");
            assert!(outcome(direction, |_, _| Some(0)).contains("not what was written"));
        }
    }
}
