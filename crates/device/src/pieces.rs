//! Pieces of bounce memory by number: those that are free, and the commands that wait for one.
//!
//! Invariant: a piece is free or belongs to one command, and commands get pieces in the order in which they asked.
//! Called by devices that copy data through memory of their own.

use std::collections::VecDeque;

/// Numbers of the free pieces of a device's bounce memory, and of the commands in flight ("slots") that wait for one.
#[derive(Debug)]
pub struct Pieces {
    free: Vec<u16>,
    waiting: VecDeque<u16>,
}

impl Pieces {
    /// Makes `count` free pieces for up to `depth` commands, which it allocates memory for.
    pub fn new(count: u16, depth: usize) -> Pieces {
        Pieces { free: (0..count).collect(), waiting: VecDeque::with_capacity(depth) }
    }

    /// Takes a free piece. If there is none, queues `slot` until [`Pieces::give`] returns it.
    pub fn take(&mut self, slot: u16) -> Option<u16> {
        let piece = self.free.pop();
        if piece.is_none() {
            self.waiting.push_back(slot);
        }
        piece
    }

    /// Frees a piece. Returns the slot that has waited longest, which should call [`Pieces::take`] now.
    pub fn give(&mut self, piece: u16) -> Option<u16> {
        self.free.push(piece);
        self.waiting.pop_front()
    }

    /// Forgets the slots that wait, since they have failed.
    pub fn forget_waiting(&mut self) {
        self.waiting.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_is_told_in_turn() {
        let mut pieces = Pieces::new(2, 8);
        let (first, second) = (pieces.take(7).unwrap(), pieces.take(8).unwrap());
        assert_ne!(first, second);
        assert_eq!((pieces.take(5), pieces.take(6)), (None, None));
        assert_eq!(pieces.give(first), Some(5));
        assert_eq!(pieces.take(5), Some(first));
        assert_eq!(pieces.give(second), Some(6));
        assert_eq!(pieces.take(6), Some(second));
        assert_eq!(pieces.give(first), None);
    }

    #[test]
    fn slots_that_have_failed_wait_no_longer() {
        let mut pieces = Pieces::new(1, 8);
        let piece = pieces.take(7).unwrap();
        assert_eq!(pieces.take(5), None);
        pieces.forget_waiting();
        assert_eq!(pieces.give(piece), None);
    }
}
