//! What is asked for: how much at a time, where, how much of it at once, for how long. The same for every side.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Most requests under way at a time.
pub const DEPTH_MAX: usize = 128;

/// What one client does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// Which way the bytes go.
    pub direction: Direction,
    /// Where the next request is.
    pub order: Order,
    /// Bytes of a request.
    pub block: usize,
    /// Bytes of the medium, of which only whole blocks are used.
    pub medium_bytes: u64,
    /// Requests under way at a time, at most [`DEPTH_MAX`].
    pub depth: usize,
    /// Completions that a client waits for at a time, if so many are under way.
    pub at_a_time: usize,
    /// When it ends.
    pub until: Until,
}

/// Which way the bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Direction {
    /// From the medium.
    Read,
    /// To the medium.
    Write,
}

/// Where the next request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// At the next block, and from the last one on at the first again.
    Sequential,
    /// Anywhere; the same places for the same seed.
    Random(u64),
}

/// When it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Until {
    /// After so many requests.
    Requests(u64),
    /// When so much time has passed; what is under way then is waited for, and counts.
    Time(Duration),
}

impl Workload {
    /// What the `number`th client does, on a medium of its own: the same, in another order if the order is random.
    pub fn of_client(&self, number: u64) -> Workload {
        let order = match self.order {
            Order::Sequential => Order::Sequential,
            Order::Random(seed) => Order::Random(seed.wrapping_add(number)),
        };
        Workload { order, ..self.clone() }
    }

    /// What comes before the clock starts: enough that nothing happens for the first time afterwards.
    pub fn warm_up(&self) -> Workload {
        Workload { until: Until::Time(WARM_UP), ..self.clone() }
    }
}

const WARM_UP: Duration = Duration::from_millis(50);

/// Where requests are, one after another.
pub struct Offsets {
    order: Order,
    block: u64,
    blocks: u64,
    state: u64,
}

impl Offsets {
    /// Those of `workload`, whose medium has room for a block.
    pub fn new(workload: &Workload) -> Offsets {
        let block = workload.block as u64;
        let blocks = workload.medium_bytes / block;
        assert!(blocks > 0, "a medium of {} bytes has no block of {block}", workload.medium_bytes);
        let state = match workload.order {
            Order::Sequential => 0,
            Order::Random(seed) => seed,
        };
        Offsets { order: workload.order, block, blocks, state }
    }

    /// The next one.
    #[inline]
    pub fn advance(&mut self) -> u64 {
        let number = match self.order {
            Order::Sequential => {
                let number = self.state;
                self.state = if number + 1 == self.blocks { 0 } else { number + 1 };
                number
            }
            Order::Random(_) => {
                // SplitMix64, scaled instead of divided.
                self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
                let mut mixed = self.state;
                mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
                mixed ^= mixed >> 31;
                ((u128::from(mixed) * u128::from(self.blocks)) >> 64) as u64
            }
        };
        number * self.block
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(order: Order) -> Workload {
        Workload {
            direction: Direction::Read,
            order,
            block: 512,
            medium_bytes: 512 * 100 + 7,
            depth: 1,
            at_a_time: 1,
            until: Until::Requests(1),
        }
    }

    #[test]
    fn sequential_offsets_go_around() {
        let mut offsets = Offsets::new(&workload(Order::Sequential));
        let all: Vec<u64> = (0..201).map(|_| offsets.advance()).collect();
        assert_eq!((all[0], all[1], all[99], all[100], all[200]), (0, 512, 99 * 512, 0, 0));
    }

    #[test]
    fn random_offsets_are_everywhere_and_the_same_for_the_same_seed() {
        let some = |seed| {
            let mut offsets = Offsets::new(&workload(Order::Random(seed)));
            (0..10_000).map(|_| offsets.advance()).collect::<Vec<u64>>()
        };
        let one = some(1);
        assert!(one.iter().all(|offset| offset % 512 == 0 && *offset <= 99 * 512));
        let mut counts = [0u32; 100];
        for offset in &one {
            counts[(offset / 512) as usize] += 1;
        }
        // 100 of each expected; six standard deviations off would be 40.
        assert!(counts.iter().all(|count| (40..160).contains(count)), "{counts:?}");
        assert_eq!(one, some(1));
        assert_ne!(one, some(2));
    }

    #[test]
    fn every_client_has_an_order_of_its_own() {
        let whole = workload(Order::Random(7));
        assert_eq!(whole.of_client(0), whole);
        assert_ne!(whole.of_client(1), whole);
    }
}
