//! Numbers of the slots that have no command.
//!
//! Invariant: each unused slot is either among those that were given back or was never taken. A slot that was given back is
//! taken before one that was never used, so that as few slots are ever used as commands were in flight at a time. Called by the
//! device.

/// Stack of unused slots.
#[derive(Debug)]
pub(super) struct FreeSlots {
    /// Slots that were given back, the last one on top.
    returned: Vec<u16>,
    /// Number of slots that were ever taken: those from this number on were not.
    used: u16,
    /// Number of all slots.
    all: u16,
}

impl FreeSlots {
    /// Makes a stack of all slots from 0 to `all`, exclusively.
    pub(super) fn new(all: u16) -> FreeSlots {
        FreeSlots { returned: Vec::with_capacity(all.into()), used: 0, all }
    }

    /// Takes an unused slot.
    #[inline(always)]
    pub(super) fn take(&mut self) -> Option<u16> {
        match self.returned.pop() {
            Some(number) => Some(number),
            None => self.take_new(),
        }
    }

    #[cold]
    fn take_new(&mut self) -> Option<u16> {
        let number = self.used;
        (number < self.all).then(|| {
            self.used += 1;
            number
        })
    }

    /// Gives a slot back.
    #[inline(always)]
    pub(super) fn give(&mut self, number: u16) {
        // Room is there for all slots.
        self.returned.push(number);
    }

    /// Returns the number of slots that can be taken.
    pub(super) fn len(&self) -> usize {
        usize::from(self.all - self.used) + self.returned.len()
    }

    /// Returns the number of slots that were ever taken, which are those with the least numbers.
    #[inline]
    pub(super) fn ever_used(&self) -> usize {
        self.used.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_few_slots_are_used_as_were_taken_at_a_time() {
        let mut free = FreeSlots::new(3);
        for _ in 0..5 {
            let number = free.take().expect("nothing is taken");
            assert_eq!(number, 0);
            free.give(number);
        }
        assert_eq!(free.ever_used(), 1);
        let taken: Vec<_> = std::iter::from_fn(|| free.take()).collect();
        assert_eq!(taken, [0, 1, 2]);
        free.give(1);
        assert_eq!(free.ever_used(), 3);
        assert_eq!(free.take(), Some(1));
    }
}
