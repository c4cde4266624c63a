//! The work of a client, the same for every side: size, order and number of requests, and the loop that submits them.
//!
//! An [`Engine`] carries requests out. It has a buffer for each request that can be in flight; the request's tag is the
//! number of its buffer. [`drive`] is the same loop for all engines, so two runs differ in the engine alone. It touches no
//! buffer: nobody makes or reads bytes while the clock runs.

use super::histogram::Histogram;
use crate::error::Error;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// Greatest queue depth.
pub const DEPTH_MAX: usize = 128;
/// Duration of the work before the clock starts, so that nothing is done for the first time afterwards.
const WARM_UP: Duration = Duration::from_millis(50);
/// Number of completions between two looks at the clock, at a depth beyond one.
const LOOK_EVERY: u64 = 32;

/// Work of one client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    pub direction: Direction,
    pub order: Order,
    /// Size of a request, in bytes.
    pub block: usize,
    /// Size of the client's file or volume, in bytes; only whole blocks are used.
    pub medium_bytes: u64,
    /// Queue depth, at most [`DEPTH_MAX`].
    pub depth: usize,
    /// Number of completions that a client waits for at a time, if so many requests are in flight.
    pub batch: usize,
    pub until: Until,
}

/// Direction of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Direction {
    Read,
    Write,
}

/// Order of the requests' offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// Block after block, and from the last to the first again.
    Sequential,
    /// Random offsets, which the seed determines.
    Random(u64),
}

/// End of the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Until {
    /// A number of requests.
    Requests(u64),
    /// A duration; requests that are in flight then are waited for, and count.
    Time(Duration),
}

impl Workload {
    /// The work of the client with that number: the same, with other random offsets.
    pub fn of_client(&self, number: u64) -> Workload {
        let order = match self.order {
            Order::Sequential => Order::Sequential,
            Order::Random(seed) => Order::Random(seed.wrapping_add(number)),
        };
        Workload { order, ..self.clone() }
    }

    /// The work before the clock starts.
    pub fn warm_up(&self) -> Workload {
        Workload { until: Until::Time(WARM_UP), ..self.clone() }
    }

    fn limits(&self) -> (u64, Duration) {
        match self.until {
            Until::Requests(requests) => (requests, Duration::MAX),
            Until::Time(time) => (u64::MAX, time),
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

/// Offsets of the requests, one after another.
pub struct Offsets {
    random: Option<Random>,
    next: u64,
    block: u64,
    blocks: u64,
}

impl Offsets {
    /// The offsets of a workload.
    ///
    /// # Panics
    /// If the medium is smaller than a block.
    pub fn new(workload: &Workload) -> Offsets {
        let block = workload.block as u64;
        let blocks = workload.medium_bytes / block;
        assert!(blocks > 0, "a medium of {} bytes has no block of {block}", workload.medium_bytes);
        let random = match workload.order {
            Order::Sequential => None,
            Order::Random(seed) => Some(Random(seed)),
        };
        Offsets { random, next: 0, block, blocks }
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
    ///
    /// # Errors
    /// If it cannot be carried out.
    fn submit(&mut self, request: Request) -> Result<(), Error>;

    /// Appends the tags of completed requests to `done`. Waits for one at least, and for `least` if that lets a thread that
    /// sleeps wake up once for all of them; so many are in flight.
    ///
    /// # Errors
    /// If a request has failed or moved less than a block, or no completion arrives.
    fn reap(&mut self, least: usize, done: &mut Vec<Tag>) -> Result<(), Error>;

    /// Fills the buffer of a tag that is not in flight with a block of bytes.
    fn fill(&mut self, tag: Tag, bytes: &[u8]);

    /// Copies the buffer of a tag that is not in flight.
    fn copy_out(&self, tag: Tag, bytes: &mut [u8]);
}

/// Result of a client's work.
#[derive(Debug, Default)]
pub struct Driven {
    pub requests: u64,
    /// Latencies at depth 1; empty at any other.
    pub latency: Histogram,
}

/// Carries `workload` out.
///
/// # Errors
/// The engine's.
///
/// # Panics
/// If the depth is none or beyond [`DEPTH_MAX`].
pub fn drive(engine: &mut dyn Engine, workload: &Workload) -> Result<Driven, Error> {
    assert!((1..=DEPTH_MAX).contains(&workload.depth), "a depth of {}", workload.depth);
    if workload.depth == 1 { drive_one(engine, workload) } else { drive_many(engine, workload) }
}

/// The end of each request is the beginning of the next, so that the clock is read once for each.
fn drive_one(engine: &mut dyn Engine, workload: &Workload) -> Result<Driven, Error> {
    let mut offsets = Offsets::new(workload);
    let mut done = Vec::with_capacity(1);
    let (limit, time) = workload.limits();
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
    let (limit, time) = workload.limits();
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
        engine.reap(workload.batch.min((submitted - driven.requests) as usize), &mut free)?;
        driven.requests += (free.len() - before) as u64;
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn workload(depth: usize, until: Until) -> Workload {
        Workload {
            direction: Direction::Write,
            order: Order::Sequential,
            block: 4096,
            medium_bytes: 1 << 20,
            depth,
            batch: 3,
            until,
        }
    }

    #[test]
    fn sequential_offsets_go_around() {
        let workload =
            Workload { block: 512, medium_bytes: 512 * 100 + 7, ..workload(1, Until::Requests(1)) };
        let mut offsets = Offsets::new(&workload);
        let all: Vec<u64> = (0..201).map(|_| offsets.advance()).collect();
        assert_eq!((all[0], all[1], all[99], all[100], all[200]), (0, 512, 99 * 512, 0, 0));
    }

    #[test]
    fn random_offsets_are_everywhere_and_those_of_a_seed_are_the_same() {
        let of_seed = |seed| {
            let workload = workload(1, Until::Requests(1));
            let workload =
                Workload { order: Order::Random(seed), block: 512, medium_bytes: 512 * 100 + 7, ..workload };
            assert_eq!(workload.of_client(0), workload);
            assert_ne!(workload.of_client(1), workload);
            let mut offsets = Offsets::new(&workload);
            (0..10_000).map(|_| offsets.advance()).collect::<Vec<u64>>()
        };
        let some = of_seed(1);
        let mut counts = [0u32; 100];
        some.iter().for_each(|offset| counts[(offset / 512) as usize] += 1);
        assert!(some.iter().all(|offset| offset % 512 == 0));
        // 100 of each expected; six standard deviations off would be 40.
        assert!(counts.iter().all(|count| (40..160).contains(count)), "{counts:?}");
        assert_eq!(some, of_seed(1));
        assert_ne!(some, of_seed(2));
    }

    /// Completes half of the requests at a time.
    #[derive(Default)]
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

    #[test]
    fn as_many_requests_as_wanted_and_no_deeper() {
        for depth in [1, 2, 7, DEPTH_MAX] {
            let mut engine = Slow::default();
            let driven = drive(&mut engine, &workload(depth, Until::Requests(1000))).unwrap();
            assert_eq!((driven.requests, engine.offsets.len(), engine.most), (1000, 1000, depth));
            assert_eq!((engine.in_flight.len(), engine.offsets[1]), (0, 4096));
            assert_eq!(driven.latency.count(), if depth == 1 { 1000 } else { 0 });
        }
    }

    #[test]
    fn time_ends_the_work() {
        for depth in [1, 8] {
            let mut engine = Slow::default();
            let time = Duration::from_millis(20);
            let begin = Instant::now();
            let driven = drive(&mut engine, &workload(depth, Until::Time(time))).unwrap();
            assert!(begin.elapsed() >= time && driven.requests > 0 && engine.in_flight.is_empty());
        }
    }

    /// Writes blocks of different contents, reads them in another order, and compares.
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
                // 7 and the number of blocks have no common divisor, so no block is read twice.
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
