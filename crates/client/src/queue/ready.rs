//! Requests that are carried out, in the order in which they were, until they are reaped.
//!
//! ```text
//!     entries   | user data, outcome |   ...      24 bytes each: all that most requests have
//!     extras    | room, error        |   ...      at the same place, looked at only where the entry says so
//! ```
//!
//! Invariant: the ring never holds more requests than it has places, since no more than the depth are in
//! flight. Adding and removing one costs some ten instructions; `benches/speed.rs` measures it within
//! "mapped, queue".
//!
//! Called by the other modules of the queue.

use super::memory::{Completion, RequestMemory};
use crate::error::Error;

/// Kind of a request that is carried out, which decides what must be checked before it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadyKind {
    /// A read of the mapped memory of the volume with this index; counts if the grant is valid after it.
    Read(u32),
    /// A write to the mapped memory of the volume with this index; counts if the grant is valid after it.
    Written(u32),
    /// A flush of the mapped volume with this index; counts if the grant is valid and the server is alive.
    Flushed(u32),
    /// A request whose result is known: the error that is kept with it, or success.
    Known,
}

impl ReadyKind {
    /// Returns the index of the volume whose grant decides whether the request counts.
    #[inline(always)]
    pub(super) fn volume(self) -> Option<u32> {
        match self {
            ReadyKind::Read(volume) | ReadyKind::Written(volume) | ReadyKind::Flushed(volume) => Some(volume),
            ReadyKind::Known => None,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    user_data: u64,
    outcome: ReadyKind,
    has_extra: bool,
}

/// The memory and the error of a request, which most requests do not have.
#[derive(Debug, Default)]
struct MemoryAndError {
    room: Option<RequestMemory>,
    error: Option<Box<Error>>,
}

/// A ring of the requests that are carried out and not reaped, with a place for each request that can be in
/// flight.
#[derive(Debug)]
pub(super) struct Ready {
    entries: Box<[Entry]>,
    extras: Box<[MemoryAndError]>,
    /// Numbers of requests ever removed, ever confirmed, and ever added. Each wraps, and gives a place in the
    /// ring.
    first: usize,
    unconfirmed: usize,
    end: usize,
}

impl Ready {
    /// Makes a ring with room for `depth` requests, rounded up to a power of two.
    pub(super) fn new(depth: usize) -> Ready {
        let places = depth.next_power_of_two();
        Ready {
            entries: vec![Entry { user_data: 0, outcome: ReadyKind::Known, has_extra: false }; places].into(),
            extras: (0..places).map(|_| MemoryAndError::default()).collect(),
            first: 0,
            unconfirmed: 0,
            end: 0,
        }
    }

    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.end.wrapping_sub(self.first)
    }

    #[inline(always)]
    fn place(&self, number: usize) -> usize {
        number & (self.entries.len() - 1)
    }

    /// Adds a request that is carried out.
    #[inline(always)]
    pub(super) fn push(&mut self, user_data: u64, outcome: ReadyKind, room: Option<RequestMemory>) {
        debug_assert!(self.len() < self.entries.len(), "no more are in flight than the depth");
        let place = self.place(self.end);
        let has_extra = room.is_some();
        self.entries[place] = Entry { user_data, outcome, has_extra };
        if has_extra {
            self.extras[place].room = room;
        }
        self.end = self.end.wrapping_add(1);
    }

    /// Adds a request whose result is known.
    pub(super) fn push_known(&mut self, completion: Completion) {
        let Completion { user_data, outcome, memory: room } = completion;
        self.push(user_data, ReadyKind::Known, room);
        if let Err(error) = outcome {
            self.fail(self.len() - 1, error);
        }
    }

    /// Removes the first request if it is confirmed, has succeeded and has no memory to return, and returns
    /// its user data. Most requests are like that. A completion is large, and this path does not build one.
    #[inline(always)]
    pub(super) fn pop_plain(&mut self) -> Option<u64> {
        if self.first == self.unconfirmed {
            return None;
        }
        let Entry { user_data, has_extra, .. } = self.entries[self.place(self.first)];
        if has_extra {
            return None;
        }
        self.first = self.first.wrapping_add(1);
        Some(user_data)
    }

    /// Removes the first request if it is confirmed.
    #[inline(always)]
    pub(super) fn pop(&mut self) -> Option<Completion> {
        if self.first == self.unconfirmed {
            return None;
        }
        let place = self.place(self.first);
        self.first = self.first.wrapping_add(1);
        let Entry { user_data, has_extra, .. } = self.entries[place];
        let (mut room, mut outcome) = (None, Ok(()));
        if has_extra {
            let extra = &mut self.extras[place];
            room = extra.room.take();
            if let Some(error) = extra.error.take() {
                outcome = Err(*error);
            }
        }
        Some(Completion { user_data, outcome, memory: room })
    }

    /// Returns true if the first request must be confirmed before it can be removed.
    #[inline(always)]
    pub(super) fn is_unconfirmed(&self) -> bool {
        self.first == self.unconfirmed && self.unconfirmed != self.end
    }

    /// Marks all requests as confirmed.
    #[inline(always)]
    pub(super) fn set_confirmed(&mut self) {
        self.unconfirmed = self.end;
    }

    /// Returns the kind of the request that has `before` others before it.
    #[inline(always)]
    pub(super) fn outcome(&self, before: usize) -> ReadyKind {
        self.entries[self.place(self.first.wrapping_add(before))].outcome
    }

    /// Returns the kinds of all requests, in their order.
    pub(super) fn outcomes(&self) -> impl Iterator<Item = ReadyKind> {
        (0..self.len()).map(|before| self.outcome(before))
    }

    /// Marks the request that has `before` others before it as failed.
    #[cold]
    pub(super) fn fail(&mut self, before: usize, error: Error) {
        let place = self.place(self.first.wrapping_add(before));
        let entry = &mut self.entries[place];
        (entry.outcome, entry.has_extra) = (ReadyKind::Known, true);
        self.extras[place].error = Some(Box::new(error));
    }

    /// Marks all requests as failed whose result is not known.
    pub(super) fn fail_unknown(&mut self, error: &Error) {
        for before in 0..self.len() {
            if self.outcome(before) != ReadyKind::Known {
                self.fail(before, error.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(ready: &mut Ready) -> Completion {
        let plain =
            ready.pop_plain().map(|user_data| Completion { user_data, outcome: Ok(()), memory: None });
        plain.or_else(|| ready.pop()).unwrap()
    }

    #[test]
    fn they_come_out_in_their_order_with_what_is_theirs() {
        let mut ready = Ready::new(3);
        // Three requests a turn make every request meet every place of the ring.
        for turn in 0..9u64 {
            ready.push(turn, ReadyKind::Written(0), None);
            ready.push(turn + 100, ReadyKind::Read(1), Some(RequestMemory::Own(vec![turn as u8])));
            let error = Err(Error::Idle);
            ready.push_known(Completion { user_data: turn + 200, outcome: error, memory: None });
            assert_eq!(
                ready.outcomes().collect::<Vec<_>>(),
                [ReadyKind::Written(0), ReadyKind::Read(1), ReadyKind::Known]
            );
            if turn % 2 == 0 {
                ready.fail_unknown(&Error::Busy);
            }
            assert!(ready.is_unconfirmed() && ready.pop_plain().is_none() && ready.pop().is_none());
            ready.set_confirmed();
            let [first, second, third] = [(); 3].map(|()| next(&mut ready));
            assert_eq!([first.user_data, second.user_data, third.user_data], [turn, turn + 100, turn + 200]);
            for done in [&first, &second] {
                assert_eq!(matches!(done.outcome, Err(Error::Busy)), turn % 2 == 0);
                assert_eq!(done.outcome.is_ok(), turn % 2 == 1);
            }
            assert!(matches!(third.outcome, Err(Error::Idle)));
            assert!(matches!(second.memory, Some(RequestMemory::Own(bytes)) if bytes == [turn as u8]));
            assert!(first.memory.is_none() && third.memory.is_none() && ready.pop().is_none());
            assert_eq!(ready.len(), 0);
        }
    }
}
