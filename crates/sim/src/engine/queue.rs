//! What happens next: a heap of events by time, and at one time by the order in which they came.
//!
//! ```text
//!     bit   127 ................ 64   63 ........... 24   23 ....... 0
//!           time in picoseconds       number of event     whose event
//! ```
//!
//! An event is one number of 128 bits, so that to compare two is one comparison. The heap has four children to a node, as
//! there are more ways down than up: half the levels of a heap of two. The four lie in one line of the cache, and which of
//! them is first is found without a branch, which nobody could foretell.
//!
//! ```text
//!     line 0            line 1              line 2              line 3
//!     -  -  -  [3]      [4] [5] [6] [7]     [8] [9] [10][11]    [12]...
//!               root     its children        children of [4]     children of [5]
//! ```
//!
//! So the children of `n` are line `n - 2`, and its parent is `n / 4 + 2`. Where there is no event there is [`NONE`], which
//! is after all of them.
//!
//! [`Queue::replace`] is how a job goes on: its next event takes the place of the one that has just happened.

use super::time::Time;

/// Bits for whose event it is.
const WHO_BITS: u32 = 24;
/// So many may have events at a time.
pub const WHO_MAX: u32 = 1 << WHO_BITS;
const CHILDREN: usize = 4;
const ROOT: usize = 3;
const NONE: u128 = u128::MAX;

/// Children of one node.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Line([u128; CHILDREN]);

const EMPTY: Line = Line([NONE; CHILDREN]);

impl Line {
    /// Which of the four is first.
    #[inline]
    fn least(&self) -> usize {
        let [a, b, c, d] = self.0;
        let (left, right) = (usize::from(b < a), 2 + usize::from(d < c));
        let is_right = usize::from(self.0[right] < self.0[left]);
        left + (right - left) * is_right
    }
}

/// Events to come.
#[derive(Clone, Debug)]
pub struct Queue {
    lines: Vec<Line>,
    /// Where the next event would be.
    end: usize,
    /// Events so far.
    count: u64,
}

impl Default for Queue {
    fn default() -> Queue {
        Queue { lines: vec![EMPTY], end: ROOT, count: 0 }
    }
}

impl Queue {
    /// Something happens to `who` at `at`.
    pub fn push(&mut self, at: Time, who: u32) {
        let event = self.event(at, who);
        if self.end / CHILDREN == self.lines.len() {
            self.lines.push(EMPTY);
        }
        self.end += 1;
        self.rise(self.end - 1, event);
    }

    /// When the next one happens, and to whom.
    #[inline]
    pub fn first(&self) -> Option<(Time, u32)> {
        let event = self.lines[0].0[ROOT];
        (self.end > ROOT).then_some((Time((event >> 64) as u64), (event as u32) & (WHO_MAX - 1)))
    }

    /// The next one has happened.
    pub fn pop(&mut self) {
        if self.end > ROOT {
            self.end -= 1;
            let last = std::mem::replace(self.slot(self.end), NONE);
            if self.end > ROOT {
                self.sink(last);
            }
        }
    }

    /// As [`Queue::pop`] and [`Queue::push`].
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

    /// Puts `event` where the first one was, and down to where it belongs.
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
