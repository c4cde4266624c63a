//! What happens next: a heap of events by time, and at one time by the order in which they came.
//!
//! ```text
//!     bit   127 ................ 64   63 ........... 24   23 ....... 0
//!           time in picoseconds       number of event     whose event
//! ```
//!
//! An event is one number of 128 bits, so that to compare two is one comparison and a node's four children are on one line
//! of the cache. Four children, as there are more ways down than up: half the levels of a heap of two.
//!
//! [`Queue::replace`] is how a job goes on: its next event takes the place of the one that has just happened.

use super::time::Time;

/// Bits for whose event it is.
const WHO_BITS: u32 = 24;
/// So many may have events at a time.
pub const WHO_MAX: u32 = 1 << WHO_BITS;
const CHILDREN: usize = 4;

/// Events to come.
#[derive(Clone, Debug, Default)]
pub struct Queue {
    heap: Vec<u128>,
    /// Events so far.
    count: u64,
}

impl Queue {
    /// Something happens to `who` at `at`.
    pub fn push(&mut self, at: Time, who: u32) {
        let event = self.event(at, who);
        self.heap.push(event);
        self.rise(self.heap.len() - 1, event);
    }

    /// When the next one happens, and to whom.
    pub fn first(&self) -> Option<(Time, u32)> {
        self.heap.first().map(|event| (Time((event >> 64) as u64), (*event as u32) & (WHO_MAX - 1)))
    }

    /// The next one has happened.
    pub fn pop(&mut self) {
        let Some(last) = self.heap.pop() else { return };
        if !self.heap.is_empty() {
            self.sink(last);
        }
    }

    /// As [`Queue::pop`] and [`Queue::push`].
    pub fn replace(&mut self, at: Time, who: u32) {
        let event = self.event(at, who);
        self.sink(event);
    }

    fn event(&mut self, at: Time, who: u32) -> u128 {
        debug_assert!(who < WHO_MAX);
        let number = self.count;
        self.count += 1;
        u128::from(at.0) << 64 | u128::from(number << WHO_BITS | u64::from(who))
    }

    fn rise(&mut self, mut at: usize, event: u128) {
        while at > 0 {
            let parent = (at - 1) / CHILDREN;
            if self.heap[parent] <= event {
                break;
            }
            self.heap[at] = self.heap[parent];
            at = parent;
        }
        self.heap[at] = event;
    }

    /// Puts `event` where the first one was, and down to where it belongs.
    fn sink(&mut self, event: u128) {
        let heap = &mut self.heap[..];
        let mut at = 0;
        loop {
            let first = at * CHILDREN + 1;
            let Some(children) =
                heap.get(first..heap.len().min(first + CHILDREN)).filter(|all| !all.is_empty())
            else {
                break;
            };
            let (mut least, mut smallest) = (0, children[0]);
            for (number, child) in children.iter().enumerate().skip(1) {
                if *child < smallest {
                    (least, smallest) = (number, *child);
                }
            }
            if smallest >= event {
                break;
            }
            heap[at] = smallest;
            at = first + least;
        }
        heap[at] = event;
    }
}

#[cfg(test)]
mod tests {
    use super::super::random::Random;
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn events_come_in_order_of_time_and_then_of_making() {
        let (mut queue, mut random) = (Queue::default(), Random::new(3));
        let mut model: BTreeMap<(u64, u64), u32> = BTreeMap::new();
        for number in 0..20_000u64 {
            let (at, who) = (Time(random.below(50)), random.below(1000) as u32);
            match random.below(3) {
                0 if !model.is_empty() => {
                    let first = queue.first().unwrap();
                    let ((time, _), wanted) = model.pop_first().unwrap();
                    assert_eq!(first, (Time(time), wanted));
                    queue.replace(at, who);
                }
                1 => {
                    if let Some(((time, _), wanted)) = model.pop_first() {
                        assert_eq!(queue.first(), Some((Time(time), wanted)));
                        queue.pop();
                    }
                    queue.push(at, who);
                }
                _ => queue.push(at, who),
            }
            model.insert((at.0, number), who);
        }
        while let Some(((time, _), who)) = model.pop_first() {
            assert_eq!(queue.first(), Some((Time(time), who)));
            queue.pop();
        }
        assert_eq!(queue.first(), None);
        queue.pop();
    }
}
