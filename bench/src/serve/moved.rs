//! Check that requests have moved their bytes, before and after the clock runs, for every engine alike.
//!
//! ```text
//!   writes    each buffer has bytes of its own; some blocks that the run will write hold others ──► those of a buffer
//!   reads     each buffer has zeros, and no block of a medium has                               ──► those of a block
//! ```
//!
//! Sectors have to be whole. The order of requests is not checked: the kernel, too, keeps none between requests that are in
//! flight at the same time.

use super::workload::{Direction, Engine, Offsets, Request, Tag, Workload};
use crate::error::Error;

/// Content of an untouched medium, which no buffer has.
pub const FILLING: u8 = 0xa5;
/// Number of blocks that are compared, of a medium that has as many.
const BLOCKS: u64 = 64;
const SECTOR: usize = 512;

/// Check of a run.
pub struct Sample {
    workload: Workload,
}

impl Sample {
    /// Fills the buffers of an engine without requests in flight, and the blocks that the next run will write first.
    ///
    /// # Errors
    /// The engine's.
    pub fn prepare(engine: &mut dyn Engine, workload: &Workload) -> Result<Sample, Error> {
        if workload.direction == Direction::Write {
            engine.fill(0, &vec![FILLING; workload.block]);
            let mut offsets = Offsets::new(workload);
            for _ in 0..blocks(workload) {
                one(engine, Direction::Write, offsets.advance())?;
            }
        }
        for tag in 0..workload.depth as Tag {
            engine.fill(tag, &vec![content(workload, tag); workload.block]);
        }
        Ok(Sample { workload: workload.clone() })
    }

    /// Checks that a run of so many requests has moved its bytes.
    ///
    /// # Errors
    /// [`Error::Failed`] if it has not, or the engine's.
    pub fn confirm(&self, engine: &mut dyn Engine, requests: u64) -> Result<(), Error> {
        let workload = &self.workload;
        let depth = workload.depth as u64;
        let mut bytes = vec![0; workload.block];
        match workload.direction {
            Direction::Write => {
                let mut offsets = Offsets::new(workload);
                for _ in 0..requests.min(blocks(workload)) {
                    let offset = offsets.advance();
                    // An engine that does nothing leaves these.
                    engine.fill(0, &vec![0; workload.block]);
                    one(engine, Direction::Read, offset)?;
                    engine.copy_out(0, &mut bytes);
                    let of_buffer = |byte: u8| (1..=depth).contains(&u64::from(byte));
                    check(&bytes, of_buffer, || format!("at {offset} is not what was written"))?;
                }
            }
            // All buffers are used before one is used again.
            Direction::Read if requests >= depth => {
                for tag in 0..depth as Tag {
                    engine.copy_out(tag, &mut bytes);
                    check(&bytes, |byte| byte != 0, || format!("in buffer {tag} is not what was read"))?;
                }
            }
            Direction::Read => {}
        }
        Ok(())
    }
}

fn blocks(workload: &Workload) -> u64 {
    BLOCKS.min(workload.medium_bytes / workload.block as u64)
}

/// Content of a tag's buffer before a run.
fn content(workload: &Workload, tag: Tag) -> u8 {
    match workload.direction {
        // Depths are below the byte of an untouched medium.
        Direction::Write => tag as u8 + 1,
        Direction::Read => 0,
    }
}

fn one(engine: &mut dyn Engine, direction: Direction, offset: u64) -> Result<(), Error> {
    engine.submit(Request { tag: 0, direction, offset })?;
    let mut done = Vec::new();
    engine.reap(1, &mut done)
}

fn check(bytes: &[u8], is_known: impl Fn(u8) -> bool, what: impl Fn() -> String) -> Result<(), Error> {
    // Compared with itself a byte on, which is quick in a build without optimisation, too.
    let is_whole = |sector: &[u8]| sector[1..] == sector[..sector.len() - 1] && is_known(sector[0]);
    match bytes.chunks(SECTOR).all(is_whole) {
        true => Ok(()),
        false => Err(Error::failed("a block", what())),
    }
}

#[cfg(test)]
mod tests {
    use super::super::workload::{Until, drive, tests::workload};
    use super::*;

    /// Memory that only claims to carry some requests out.
    struct Lazy {
        medium: Vec<u8>,
        buffers: Vec<Vec<u8>>,
        done: Vec<Tag>,
        requests: u64,
        /// Number of the first request that is not carried out.
        lazy_from: u64,
    }

    impl Engine for Lazy {
        fn submit(&mut self, request: Request) -> Result<(), Error> {
            self.requests += 1;
            let (at, buffer) = (request.offset as usize, &mut self.buffers[request.tag as usize]);
            let medium = &mut self.medium[at..at + buffer.len()];
            match request.direction {
                _ if self.requests > self.lazy_from => {}
                Direction::Read => buffer.copy_from_slice(medium),
                Direction::Write => medium.copy_from_slice(buffer),
            }
            self.done.push(request.tag);
            Ok(())
        }

        fn reap(&mut self, _: usize, done: &mut Vec<Tag>) -> Result<(), Error> {
            done.append(&mut self.done);
            Ok(())
        }

        fn fill(&mut self, tag: Tag, bytes: &[u8]) {
            self.buffers[tag as usize].copy_from_slice(bytes);
        }

        fn copy_out(&self, tag: Tag, bytes: &mut [u8]) {
            bytes.copy_from_slice(&self.buffers[tag as usize]);
        }
    }

    #[test]
    fn an_engine_that_does_nothing_is_found_out() {
        for direction in [Direction::Read, Direction::Write] {
            for (lazy_from, is_right) in [(u64::MAX, true), (BLOCKS + 3, false)] {
                let workload = Workload { direction, ..workload(8, Until::Requests(500)) };
                let mut engine = Lazy {
                    medium: vec![FILLING; 1 << 20],
                    buffers: vec![vec![0; 4096]; 8],
                    done: Vec::new(),
                    requests: 0,
                    lazy_from: if direction == Direction::Read && !is_right { 3 } else { lazy_from },
                };
                let sample = Sample::prepare(&mut engine, &workload).unwrap();
                let driven = drive(&mut engine, &workload).unwrap();
                let confirmed = sample.confirm(&mut engine, driven.requests);
                assert_eq!(confirmed.is_ok(), is_right, "{direction:?}: {confirmed:?}");
            }
        }
    }
}
