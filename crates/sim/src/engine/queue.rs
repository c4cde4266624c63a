//! Queue of future events: a heap ordered by time, and among equal times by the order of creation.
//!
//! ```text
//!     bit   127 ................ 64   63 ........... 24   23 ....... 0
//!           time in picoseconds       number of event     whose event
//! ```
//!
//! An event is one number of 128 bits, so that one comparison orders two events. Events move down the heap
//! more often than up, so each node has four children, which gives half the levels of a binary heap. The four
//! children lie in one cache line, and the least of them is found without an unpredictable branch.
//!
//! ```text
//!     line 0            line 1              line 2              line 3
//!     -  -  -  [3]      [4] [5] [6] [7]     [8] [9] [10][11]    [12]...
//!               root     its children        children of [4]     children of [5]
//! ```
//!
//! So the children of `n` are line `n - 2`, and the parent of `n` is `n / 4 + 2`. A slot without an event
//! holds [`NONE`], which is greater than every event.
//!
//! [`Queue::replace`] continues a job: the job's next event replaces the one that has just happened.

use super::time::Time;

/// Number of bits of an event that identify its owner.
const WHO_BITS: u32 = 24;
/// Number of owners that may have events. Owners are numbered below this.
pub const WHO_MAX: u32 = 1 << WHO_BITS;
const CHILDREN: usize = 4;
const ROOT: usize = 3;
const NONE: u128 = u128::MAX;

/// The four children of one node, in one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Node([u128; CHILDREN]);

const EMPTY: Node = Node([NONE; CHILDREN]);

impl Node {
    /// Returns the index, 0 to 3, of the least of the four events.
    #[inline]
    fn least(&self) -> usize {
        let [a, b, c, d] = self.0;
        let (left, right) = (usize::from(b < a), 2 + usize::from(d < c));
        let is_right = usize::from(self.0[right] < self.0[left]);
        left + (right - left) * is_right
    }
}

/// Queue of future events.
#[derive(Clone, Debug)]
pub struct Queue {
    lines: Vec<Node>,
    /// Index of the first slot behind the last event.
    end: usize,
    /// Number of events created so far: the number of the next event.
    count: u64,
}

impl Default for Queue {
    fn default() -> Queue {
        Queue { lines: vec![EMPTY], end: ROOT, count: 0 }
    }
}

impl Queue {
    /// Adds an event of `who` at the time `at`.
    pub fn push(&mut self, at: Time, who: u32) {
        let event = self.event(at, who);
        if self.end / CHILDREN == self.lines.len() {
            self.lines.push(EMPTY);
        }
        self.end += 1;
        self.rise(self.end - 1, event);
    }

    /// Returns the time and the owner of the first event, or `None` if the queue is empty.
    #[inline]
    pub fn first(&self) -> Option<(Time, u32)> {
        let event = self.lines[0].0[ROOT];
        (self.end > ROOT).then_some((Time((event >> 64) as u64), (event as u32) & (WHO_MAX - 1)))
    }

    /// Removes the first event, if there is one.
    pub fn pop(&mut self) {
        if self.end > ROOT {
            self.end -= 1;
            let last = std::mem::replace(self.slot(self.end), NONE);
            if self.end > ROOT {
                self.sink(last);
            }
        }
    }

    /// Like [`Queue::pop`] followed by [`Queue::push`], but with one pass through the heap. The queue must
    /// not be empty.
    #[inline]
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

    #[inline]
    fn slot(&mut self, at: usize) -> &mut u128 {
        &mut self.lines[at / CHILDREN].0[at % CHILDREN]
    }

    fn rise(&mut self, mut at: usize, event: u128) {
        while at > ROOT {
            let parent = at / CHILDREN + 2;
            let above = *self.slot(parent);
            if above <= event {
                break;
            }
            *self.slot(at) = above;
            at = parent;
        }
        *self.slot(at) = event;
    }

    /// Overwrites the first event with `event` and moves `event` down to its position.
    fn sink(&mut self, event: u128) {
        let mut at = ROOT;
        while (at - 2) * CHILDREN < self.end {
            let children = &self.lines[at - 2];
            let least = children.least();
            let first = children.0[least];
            if first >= event {
                break;
            }
            *self.slot(at) = first;
            at = (at - 2) * CHILDREN + least;
        }
        *self.slot(at) = event;
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
