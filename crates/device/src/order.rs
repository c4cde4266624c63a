//! Order of overlapping commands: they are carried out in the order of their submission.
//!
//! Invariant: if two ranges overlap and at least one command changes its range, the one that entered first
//! has left before the other starts. Entering and leaving look at every entry; there are at most as many as
//! the device's depth. Called by devices whose medium carries commands out in any order.

use std::ops::Range;

/// Range of the device that a command affects.
#[derive(Debug)]
struct Entry {
    range: Range<u64>,
    changes: bool,
    /// Number in the order of submission.
    number: u64,
    slot: u16,
    /// Number of earlier entries that overlap this one and have not left.
    blockers: u16,
}

impl Entry {
    fn waits_for(&self, earlier: &Entry) -> bool {
        earlier.number < self.number
            && (self.changes || earlier.changes)
            && self.range.start < earlier.range.end
            && earlier.range.start < self.range.end
    }
}

/// Order of overlapping commands: knows the ranges of all commands in flight, and which of them have to wait.
///
/// A device numbers its commands in flight ("slots"). A command whose range overlaps that of an earlier command waits
/// for it if at least one of the two changes the device.
#[derive(Debug)]
pub struct Order {
    /// Entries in no particular order.
    entries: Vec<Entry>,
    next: u64,
    /// Number of entries that have blockers.
    waiting: usize,
}

impl Order {
    /// Makes an empty order for up to `depth` commands, which it allocates memory for.
    pub fn new(depth: usize) -> Order {
        Order { entries: Vec::with_capacity(depth), next: 0, waiting: 0 }
    }

    /// Enters the range of a command, in bytes. Returns true if the command may start now.
    pub fn enter(&mut self, slot: u16, range: Range<u64>, changes: bool) -> bool {
        let mut entry = Entry { range, changes, number: self.next, slot, blockers: 0 };
        self.next += 1;
        // Fits, since there are fewer entries than slots, whose numbers have 16 bits.
        entry.blockers = self.entries.iter().filter(|earlier| entry.waits_for(earlier)).count() as u16;
        let is_free = entry.blockers == 0;
        self.waiting += usize::from(!is_free);
        self.entries.push(entry);
        is_free
    }

    /// Removes a completed command; calls `freed` for each slot whose last blocker it was.
    pub fn leave(&mut self, slot: u16, mut freed: impl FnMut(u16)) {
        let Some(at) = self.entries.iter().position(|entry| entry.slot == slot) else { return };
        let left = self.entries.swap_remove(at);
        debug_assert_eq!(left.blockers, 0, "it was not free to go");
        if self.waiting == 0 {
            return;
        }
        for entry in &mut self.entries {
            if entry.waits_for(&left) {
                entry.blockers -= 1;
                if entry.blockers == 0 {
                    self.waiting -= 1;
                    freed(entry.slot);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leave(order: &mut Order, slot: u16) -> Vec<u16> {
        let mut freed = Vec::new();
        order.leave(slot, |slot| freed.push(slot));
        freed
    }

    #[test]
    fn reads_pass_one_another_and_wait_for_writes() {
        let mut order = Order::new(8);
        assert!(order.enter(0, 0..1024, false));
        assert!(order.enter(1, 512..1024, false));
        assert!(!order.enter(2, 512..2048, true));
        assert!(order.enter(3, 2048..4096, true));
        assert!(!order.enter(4, 1024..1536, false));
        assert!(leave(&mut order, 3).is_empty());
        assert!(leave(&mut order, 0).is_empty());
        assert_eq!(leave(&mut order, 1), [2]);
        assert_eq!(leave(&mut order, 2), [4]);
        assert!(leave(&mut order, 4).is_empty());
    }

    #[test]
    fn those_who_came_first_go_first() {
        let mut order = Order::new(8);
        assert!(order.enter(5, 0..512, true));
        assert!(!order.enter(6, 0..512, true));
        // The entry takes the vector position of one that has left, but still waits for the earlier entry.
        assert_eq!(leave(&mut order, 5), [6]);
        assert!(!order.enter(5, 0..512, false));
        assert_eq!(leave(&mut order, 6), [5]);
    }

    #[test]
    fn what_is_empty_or_unknown_is_in_nobodys_way() {
        let mut order = Order::new(8);
        assert!(order.enter(0, 0..512, true));
        assert!(order.enter(1, 512..512, true));
        assert!(leave(&mut order, 7).is_empty());
    }
}
