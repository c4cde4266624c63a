//! Queues of threads that wait at the address of a futex (futex(2)).

use std::collections::{BTreeMap, VecDeque};

use crate::machine::ThreadId;

/// Waiting threads by address.
///
/// A thread is in the queue until another one wakes it. When it goes on and is still there, its time was over or
/// a signal came.
#[derive(Clone, Debug, Default)]
pub struct Futexes {
    /// Threads and the bits that wake them, the longest waiting first.
    queues: BTreeMap<u64, VecDeque<(ThreadId, u32)>>,
}

impl Futexes {
    /// Enters a thread.
    pub fn enter(&mut self, address: u64, thread: ThreadId, bits: u32) {
        self.queues.entry(address).or_default().push_back((thread, bits));
    }

    /// Returns whether a thread is in a queue.
    pub fn is_waiting(&self, thread: ThreadId) -> bool {
        self.queues.values().any(|queue| queue.iter().any(|&(other, _)| other == thread))
    }

    /// Removes a thread from whichever queue it is in, and returns whether it was in one.
    pub fn leave(&mut self, thread: ThreadId) -> bool {
        let found = self.queues.iter().find(|(_, queue)| queue.iter().any(|&(other, _)| other == thread));
        let Some((&address, _)) = found else { return false };
        if let Some(queue) = self.queues.get_mut(&address) {
            queue.retain(|&(other, _)| other != thread);
            if queue.is_empty() {
                self.queues.remove(&address);
            }
        }
        true
    }

    /// Takes threads out that some of the bits wake, at most `limit`.
    pub fn wake(&mut self, address: u64, limit: usize, bits: u32) -> Vec<ThreadId> {
        let Some(queue) = self.queues.get_mut(&address) else { return Vec::new() };
        let mut woken = Vec::new();
        queue.retain(|&(thread, own)| {
            let is_woken = woken.len() < limit && own & bits != 0;
            if is_woken {
                woken.push(thread);
            }
            !is_woken
        });
        if queue.is_empty() {
            self.queues.remove(&address);
        }
        woken
    }

    /// Moves threads to another address's queue, at most `limit`, and returns how many.
    pub fn requeue(&mut self, from: u64, to: u64, limit: usize) -> usize {
        if from == to {
            return self.queues.get(&from).map_or(0, |queue| queue.len().min(limit));
        }
        let Some(queue) = self.queues.get_mut(&from) else { return 0 };
        let moved: Vec<_> = queue.drain(..limit.min(queue.len())).collect();
        if queue.is_empty() {
            self.queues.remove(&from);
        }
        let count = moved.len();
        if count > 0 {
            self.queues.entry(to).or_default().extend(moved);
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_woken_by_bits_and_moved() {
        let mut futexes = Futexes::default();
        for (number, bits) in [(1, 1), (2, 2), (3, 3)] {
            futexes.enter(64, ThreadId(number), bits);
        }
        assert_eq!(futexes.wake(64, 9, 2), [ThreadId(2), ThreadId(3)]);
        assert_eq!(futexes.requeue(64, 128, 5), 1);
        assert_eq!(futexes.wake(64, 9, u32::MAX), []);
        assert!(futexes.leave(ThreadId(1)));
        assert!(!futexes.leave(ThreadId(1)));
    }
}
