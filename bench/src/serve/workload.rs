//! The work of a client, the same for every side: size, order and number of requests, and the loop that submits them.
//!
//! An [`Engine`] carries requests out. It has a buffer for each request that can be in flight; the request's tag is the
//! number of its buffer. [`drive`] is the same loop for all engines, so two runs differ in the engine alone. It touches no
//! buffer: nobody makes or reads bytes while the clock runs.

use crate::error::Error;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};
use vm_memory::VolatileSlice;

/// Greatest queue depth.
pub const DEPTH_MAX: usize = 128;
/// Number of completions between two looks at the clock, at a depth beyond one.
const LOOK_EVERY: u64 = 32;

/// Work of one client; it ends after so many requests or that time. Requests in flight then are waited for, and count.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    pub direction: Direction,
    /// Seed of random offsets; without one, requests go block after block, and from the last to the first again.
    pub seed: Option<u64>,
    /// Size of a request, in bytes.
    pub block: usize,
    /// Size of the client's file or volume, in bytes; only whole blocks are used.
    pub medium_bytes: u64,
    /// Queue depth, at most [`DEPTH_MAX`].
    pub depth: usize,
    /// Number of completions that a client waits for at a time, if so many requests are in flight.
    pub batch: usize,
    pub requests: u64,
    pub time: Duration,
}

/// Direction of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Direction {
    Read,
    Write,
}

impl Workload {
    pub fn offsets(&self) -> Offsets {
        Offsets::new(self.seed, self.block as u64, self.medium_bytes / self.block as u64)
    }

    /// Returns an error if a medium of so many bytes is too small.
    pub fn check_size(&self, bytes: u64) -> Result<(), Error> {
        match bytes >= self.medium_bytes {
            true => Ok(()),
            false => Err(Error::failed("a medium", format!("has {bytes} bytes of {}", self.medium_bytes))),
        }
    }
}

/// Random numbers that follow from a seed (SplitMix64).
#[derive(Clone)]
pub struct Random(pub u64);

impl Random {
    /// Returns the next number, below `limit`; scaled instead of divided.
    #[inline]
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        ((u128::from(mixed) * u128::from(limit)) >> 64) as u64
    }
}

/// Offsets of requests, one after another.
#[derive(Clone)]
pub struct Offsets {
    random: Option<Random>,
    next: u64,
    block: u64,
    blocks: u64,
}

impl Offsets {
    /// Offsets of a medium of so many blocks, of which there has to be one.
    pub fn new(seed: Option<u64>, block: u64, blocks: u64) -> Offsets {
        assert!(blocks > 0, "a medium has no block of {block}");
        Offsets { random: seed.map(Random), next: 0, block, blocks }
    }

    /// Returns the next offset.
    #[inline]
    pub fn advance(&mut self) -> u64 {
        let number = match &mut self.random {
            Some(random) => random.below(self.blocks),
            None => {
                let number = self.next;
                self.next = if number + 1 == self.blocks { 0 } else { number + 1 };
                number
            }
        };
        number * self.block
    }
}

/// Number of a request in flight, and of its buffer.
pub type Tag = u16;

/// Transfer of one block from or to the buffer of its tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    pub tag: Tag,
    pub direction: Direction,
    /// Offset in the medium, a multiple of the block.
    pub offset: u64,
}

/// Implementation of requests, with a fixed number of buffers.
pub trait Engine {
    /// Submits a request; it may begin now or with the next [`Engine::reap`]. No other request in flight has its tag.
    fn submit(&mut self, request: Request) -> Result<(), Error>;

    /// Appends the tags of completed requests to `done`. Waits for one at least, and for `least` if that lets a thread that
    /// sleeps wake up once for all of them; so many are in flight. A request that has failed or moved less than a block is
    /// an error.
    fn reap(&mut self, least: usize, done: &mut Vec<Tag>) -> Result<(), Error>;

    /// The buffer of a tag that is not in flight: a block of bytes.
    fn buffer(&mut self, tag: Tag) -> VolatileSlice<'_>;
}

/// Result of a client's work.
#[derive(Debug, Default)]
pub struct Driven {
    pub requests: u64,
    /// Latency of each request in nanoseconds, at depth 1; empty at any other.
    pub latencies: Vec<u32>,
}

/// Carries `workload` out.
pub fn drive(engine: &mut dyn Engine, workload: &Workload) -> Result<Driven, Error> {
    assert!((1..=DEPTH_MAX).contains(&workload.depth), "a depth of {}", workload.depth);
    if workload.depth == 1 { drive_one(engine, workload) } else { drive_many(engine, workload) }
}

/// The end of each request is the beginning of the next, so that the clock is read once for each.
fn drive_one(engine: &mut dyn Engine, workload: &Workload) -> Result<Driven, Error> {
    let mut offsets = workload.offsets();
    let mut done = Vec::with_capacity(1);
    let mut driven = Driven::default();
    let begin = Instant::now();
    let mut before = Duration::ZERO;
    while driven.requests < workload.requests && before < workload.time {
        engine.submit(Request { tag: 0, direction: workload.direction, offset: offsets.advance() })?;
        engine.reap(1, &mut done)?;
        done.clear();
        let now = begin.elapsed();
        driven.latencies.push(u32::try_from((now - before).as_nanos()).unwrap_or(u32::MAX));
        driven.requests += 1;
        before = now;
    }
    Ok(driven)
}

fn drive_many(engine: &mut dyn Engine, workload: &Workload) -> Result<Driven, Error> {
    let mut offsets = workload.offsets();
    let mut driven = Driven::default();
    let mut free: Vec<Tag> = (0..workload.depth as Tag).rev().collect();
    let (mut submitted, mut next_look) = (0u64, LOOK_EVERY);
    let mut goes_on = true;
    let begin = Instant::now();
    loop {
        if driven.requests >= next_look {
            goes_on = goes_on && begin.elapsed() < workload.time;
            next_look = driven.requests + LOOK_EVERY;
        }
        if goes_on {
            while submitted < workload.requests
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
        engine.reap(workload.batch.min((submitted - driven.requests) as usize), &mut free)?;
        driven.requests += (free.len() - before) as u64;
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Sequential writes of 4 KiB.
    pub fn workload(depth: usize, requests: u64) -> Workload {
        Workload {
            direction: Direction::Write,
            seed: None,
            block: 4096,
            medium_bytes: 1 << 20,
            depth,
            batch: 3,
            requests,
            time: Duration::MAX,
        }
    }

    #[test]
    fn sequential_offsets_go_around_and_random_ones_of_a_seed_are_everywhere() {
        let of_seed = |seed, count| {
            let workload = Workload { seed, block: 512, medium_bytes: 512 * 100 + 7, ..workload(1, 1) };
            let mut offsets = workload.offsets();
            (0..count).map(|_| offsets.advance()).collect::<Vec<u64>>()
        };
        let all = of_seed(None, 201);
        assert_eq!((all[0], all[1], all[99], all[100], all[200]), (0, 512, 99 * 512, 0, 0));
        let some = of_seed(Some(1), 10_000);
        let mut counts = [0u32; 100];
        some.iter().for_each(|offset| counts[(offset / 512) as usize] += 1);
        // 100 of each expected; six standard deviations off would be 40.
        assert!(counts.iter().all(|count| (40..160).contains(count)), "{counts:?}");
        assert!(some.iter().all(|offset| offset % 512 == 0));
        assert!(some == of_seed(Some(1), 10_000) && some != of_seed(Some(2), 10_000));
    }

    /// Completes half of the requests at a time.
    #[derive(Default)]
    struct Slow {
        in_flight: Vec<Tag>,
        most: usize,
        requests: u64,
    }

    impl Engine for Slow {
        fn submit(&mut self, request: Request) -> Result<(), Error> {
            assert!(!self.in_flight.contains(&request.tag));
            self.in_flight.push(request.tag);
            self.most = self.most.max(self.in_flight.len());
            self.requests += 1;
            Ok(())
        }

        fn reap(&mut self, least: usize, done: &mut Vec<Tag>) -> Result<(), Error> {
            assert!((1..=self.in_flight.len()).contains(&least), "{least} cannot come");
            let count = self.in_flight.len().div_ceil(2);
            done.extend(self.in_flight.drain(..count));
            Ok(())
        }

        fn buffer(&mut self, _: Tag) -> VolatileSlice<'_> {
            unreachable!("no byte is touched while the clock runs")
        }
    }

    #[test]
    fn as_many_requests_as_wanted_and_no_deeper_until_the_time_is_over() {
        for depth in [1, 2, 7, DEPTH_MAX] {
            let wanted = workload(depth, 1000);
            let mut engine = Slow::default();
            let driven = drive(&mut engine, &wanted).unwrap();
            assert_eq!((driven.requests, engine.requests, engine.most), (1000, 1000, depth));
            let latencies = if depth == 1 { 1000 } else { 0 };
            assert_eq!((engine.in_flight.len(), driven.latencies.len()), (0, latencies));
            let (begin, time) = (Instant::now(), Duration::from_millis(20));
            let driven = drive(&mut engine, &Workload { requests: u64::MAX, time, ..wanted }).unwrap();
            assert!(begin.elapsed() >= time && driven.requests > 0 && engine.in_flight.is_empty());
        }
    }
}
