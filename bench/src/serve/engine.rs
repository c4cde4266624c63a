//! What carries requests out, and the loop that keeps it busy.
//!
//! An [`Engine`] has a buffer for each request that can be under way; the request's tag is the buffer's
//! number. The loop, [`drive`], is the same for all of them, so what differs between two runs is the engine.
//! It touches no buffer: nobody's bytes are made or looked at while the clock runs.

use super::histogram::Histogram;
use super::workload::{DEPTH_MAX, Direction, Offsets, Until, Workload};
use crate::error::Error;
use std::time::{Duration, Instant};

/// The number of a request under way, and of its buffer.
pub type Tag = u16;

/// One block, from or to the buffer of its tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The buffer.
    pub tag: Tag,
    /// Which way.
    pub direction: Direction,
    /// Where on the medium: a multiple of the block.
    pub offset: u64,
}

/// A thing that takes requests, as many at a time as it was made for, and gives their tags back when they are
/// done.
pub trait Engine {
    /// Takes a request; whether it begins now, or with the next [`Engine::reap`], is the engine's matter. No
    /// other request under way has its tag.
    ///
    /// # Errors
    /// That it cannot be carried out.
    fn submit(&mut self, request: Request) -> Result<(), Error>;

    /// Appends the tags of what is done to `done`; waits until there is one at least, and best for `least`,
    /// so that a thread that sleeps is woken once for them. So many are under way.
    ///
    /// # Errors
    /// That a request has failed, or moved less than a block, or that nothing comes back.
    fn reap(&mut self, least: usize, done: &mut Vec<Tag>) -> Result<(), Error>;

    /// The buffer of `tag`, of which nothing is under way, gets these bytes, a block of them.
    fn fill(&mut self, tag: Tag, bytes: &[u8]);

    /// What the buffer of `tag`, of which nothing is under way, holds.
    fn copy_out(&self, tag: Tag, bytes: &mut [u8]);
}

/// What a client did.
#[derive(Debug, Default)]
pub struct Driven {
    /// Requests that are done.
    pub requests: u64,
    /// How long each took, at depth 1; empty at any other.
    pub latency: Histogram,
}

/// At a depth beyond one the clock is looked at after so many requests.
const LOOK_EVERY: u64 = 32;

/// Carries `workload` out.
///
/// # Errors
/// What the engine says.
pub fn drive(engine: &mut dyn Engine, workload: &Workload) -> Result<Driven, Error> {
    assert!((1..=DEPTH_MAX).contains(&workload.depth), "a depth of {}", workload.depth);
    match workload.depth {
        1 => drive_one(engine, workload),
        _ => drive_many(engine, workload),
    }
}

/// Each request's end is the next one's begin, so that the clock is read once for each.
fn drive_one(engine: &mut dyn Engine, workload: &Workload) -> Result<Driven, Error> {
    let mut offsets = Offsets::new(workload);
    let mut done = Vec::with_capacity(1);
    let (limit, time) = limits(workload);
    let mut driven = Driven::default();
    let begin = Instant::now();
    let mut before = Duration::ZERO;
    while driven.requests < limit && before < time {
        engine.submit(Request { tag: 0, direction: workload.direction, offset: offsets.advance() })?;
        engine.reap(1, &mut done)?;
        done.clear();
        let now = begin.elapsed();
        driven.latency.add((now - before).as_nanos() as u64);
        driven.requests += 1;
        before = now;
    }
    Ok(driven)
}

fn drive_many(engine: &mut dyn Engine, workload: &Workload) -> Result<Driven, Error> {
    let mut offsets = Offsets::new(workload);
    let (limit, time) = limits(workload);
    let mut driven = Driven::default();
    let mut free: Vec<Tag> = (0..workload.depth as Tag).rev().collect();
    let (mut submitted, mut next_look) = (0u64, LOOK_EVERY);
    let mut goes_on = true;
    let begin = Instant::now();
    loop {
        if driven.requests >= next_look {
            goes_on = goes_on && begin.elapsed() < time;
            next_look = driven.requests + LOOK_EVERY;
        }
        if goes_on {
            while submitted < limit
                && let Some(tag) = free.pop()
            {
                engine.submit(Request { tag, direction: workload.direction, offset: offsets.advance() })?;
                submitted += 1;
            }
        }
        if driven.requests == submitted {
            return Ok(driven);
        }
        let before = free.len();
        engine.reap(workload.at_a_time.min((submitted - driven.requests) as usize), &mut free)?;
        driven.requests += (free.len() - before) as u64;
    }
}

fn limits(workload: &Workload) -> (u64, Duration) {
    match workload.until {
        Until::Requests(requests) => (requests, Duration::MAX),
        Until::Time(time) => (u64::MAX, time),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::workload::Order;
    use super::*;

    /// Gives back every second request at once, and the others the next time.
    struct Slow {
        in_flight: Vec<Tag>,
        most: usize,
        offsets: Vec<u64>,
    }

    impl Engine for Slow {
        fn submit(&mut self, request: Request) -> Result<(), Error> {
            assert!(!self.in_flight.contains(&request.tag));
            self.in_flight.push(request.tag);
            self.most = self.most.max(self.in_flight.len());
            self.offsets.push(request.offset);
            Ok(())
        }

        fn reap(&mut self, least: usize, done: &mut Vec<Tag>) -> Result<(), Error> {
            assert!((1..=self.in_flight.len()).contains(&least), "{least} cannot come");
            let count = self.in_flight.len().div_ceil(2);
            done.extend(self.in_flight.drain(..count));
            Ok(())
        }

        fn fill(&mut self, _: Tag, _: &[u8]) {}

        fn copy_out(&self, _: Tag, _: &mut [u8]) {}
    }

    pub fn workload(depth: usize, until: Until) -> Workload {
        Workload {
            direction: Direction::Write,
            order: Order::Sequential,
            block: 4096,
            medium_bytes: 1 << 20,
            depth,
            at_a_time: 3,
            until,
        }
    }

    #[test]
    fn as_many_as_asked_for_and_no_deeper() {
        for depth in [1, 2, 7, DEPTH_MAX] {
            let mut engine = Slow { in_flight: Vec::new(), most: 0, offsets: Vec::new() };
            let driven = drive(&mut engine, &workload(depth, Until::Requests(1000))).unwrap();
            assert_eq!((driven.requests, engine.offsets.len(), engine.most), (1000, 1000, depth));
            assert_eq!((engine.in_flight.len(), engine.offsets[1]), (0, 4096));
            assert_eq!(driven.latency.count(), if depth == 1 { 1000 } else { 0 });
        }
    }

    #[test]
    fn time_ends_it() {
        for depth in [1, 8] {
            let mut engine = Slow { in_flight: Vec::new(), most: 0, offsets: Vec::new() };
            let time = Duration::from_millis(20);
            let begin = Instant::now();
            let driven = drive(&mut engine, &workload(depth, Until::Time(time))).unwrap();
            assert!(begin.elapsed() >= time && driven.requests > 0 && engine.in_flight.is_empty());
        }
    }

    /// Blocks of different contents, written and read back, in another order and at every depth.
    pub fn holds_what_was_written(engine: &mut dyn Engine, block: usize, medium_bytes: u64, depth: usize) {
        let blocks = (medium_bytes / block as u64).min(300);
        let content = |number: u64| {
            let mut bytes = vec![number as u8; block];
            bytes[..8].copy_from_slice(&(number * 0x0101_0101 + 77).to_le_bytes());
            bytes[block - 1] = !number as u8;
            bytes
        };
        for direction in [Direction::Write, Direction::Read] {
            let mut free: Vec<Tag> = (0..depth as Tag).collect();
            let mut of_tag = vec![u64::MAX; depth];
            let look = |engine: &mut dyn Engine, of_tag: &mut Vec<u64>, tag: Tag| {
                let number = std::mem::replace(&mut of_tag[tag as usize], u64::MAX);
                if direction == Direction::Read && number != u64::MAX {
                    let mut bytes = vec![0; block];
                    engine.copy_out(tag, &mut bytes);
                    assert!(bytes == content(number), "block {number} is not what was written");
                }
            };
            for turn in 0..blocks {
                // 7 and the number of blocks have no common divisor, or else some are asked for twice.
                let number = if direction == Direction::Write { turn } else { turn * 7 % blocks };
                while free.is_empty() {
                    engine.reap(1, &mut free).unwrap();
                }
                let tag = free.swap_remove(0);
                look(engine, &mut of_tag, tag);
                if direction == Direction::Write {
                    engine.fill(tag, &content(number));
                }
                engine.submit(Request { tag, direction, offset: number * block as u64 }).unwrap();
                of_tag[tag as usize] = number;
            }
            while free.len() < depth {
                engine.reap(1, &mut free).unwrap();
            }
            for tag in free {
                look(engine, &mut of_tag, tag);
            }
        }
    }
}
