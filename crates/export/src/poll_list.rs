//! The list for poll(2), whose memory is used again.
//!
//! An entry borrows a descriptor, so that the entries of a turn cannot outlive it; the memory behind the list can.

use rustix::event::PollFd;

/// Memory of a list for poll(2), between two turns of a thread that waits again and again.
#[derive(Debug, Default)]
pub struct PollList(Vec<PollFd<'static>>);

impl PollList {
    /// Takes the empty list, for the entries of this turn.
    #[inline]
    pub fn take<'a>(&mut self) -> Vec<PollFd<'a>> {
        std::mem::take(&mut self.0)
    }

    /// Gives the list back for the next turn, without its entries.
    #[inline]
    pub fn give_back(&mut self, mut list: Vec<PollFd<'_>>) {
        list.clear();
        // Collecting a mapped list of the same layout uses the memory again, which the test below holds.
        self.0 = list.into_iter().map(|_| unreachable!("the list was cleared")).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::PollFlags;

    #[test]
    fn turns_use_the_same_memory() {
        let mut list = PollList::default();
        let mut memory = None;
        for _ in 0..3 {
            let descriptor = std::io::stderr();
            let mut waiting = list.take();
            waiting.extend((0..100).map(|_| PollFd::new(&descriptor, PollFlags::IN)));
            let is_same =
                memory.replace(waiting.as_ptr().addr()).is_none_or(|was| was == waiting.as_ptr().addr());
            assert!(is_same, "the list was allocated anew");
            list.give_back(waiting);
        }
    }
}
