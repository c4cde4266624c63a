//! Requests that are done, in their order, until they are reaped.
//!
//! ```text
//!     entries   | user data, outcome |   ...      24 bytes each: all that most requests have
//!     extras    | room, error        |   ...      at the same place, looked at only where the entry says so
//! ```
//!
//! Invariant: there are no more than there are places, since the queue has no more under way than its depth. What goes
//! in and out costs some ten instructions; `benches/speed.rs` has it within "mapped, queue".

use super::memory::{Completion, Room};
use crate::error::Error;

/// How a request was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// In mapped memory of this volume; it counts if the grant is valid behind it.
    Read(u32),
    /// As above.
    Written(u32),
    /// It counts if the server is still there as well.
    Flushed(u32),
    /// So that it counts, or with the error that is kept with it.
    Known,
}

impl Outcome {
    /// The volume whose grant decides whether it counts.
    #[inline(always)]
    pub(super) fn volume(self) -> Option<u32> {
        match self {
            Outcome::Read(volume) | Outcome::Written(volume) | Outcome::Flushed(volume) => Some(volume),
            Outcome::Known => None,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    user_data: u64,
    outcome: Outcome,
    has_extra: bool,
}

/// What goes along with some requests.
#[derive(Debug, Default)]
struct Extra {
    room: Option<Room>,
    error: Option<Box<Error>>,
}

/// A ring with a place for each request that can be under way.
#[derive(Debug)]
pub(super) struct Ready {
    entries: Box<[Entry]>,
    extras: Box<[Extra]>,
    /// How many were ever taken out, looked at, and put in, as whose places they are at.
    first: usize,
    unconfirmed: usize,
    end: usize,
}

impl Ready {
    /// With room for `depth` requests.
    pub(super) fn new(depth: usize) -> Ready {
        let places = depth.next_power_of_two();
        Ready {
            entries: vec![Entry { user_data: 0, outcome: Outcome::Known, has_extra: false }; places].into(),
            extras: (0..places).map(|_| Extra::default()).collect(),
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

    /// Puts in a request that was done.
    #[inline(always)]
    pub(super) fn push(&mut self, user_data: u64, outcome: Outcome, room: Option<Room>) {
        debug_assert!(self.len() < self.entries.len(), "no more are under way than the depth");
        let place = self.place(self.end);
        let has_extra = room.is_some();
        self.entries[place] = Entry { user_data, outcome, has_extra };
        if has_extra {
            self.extras[place].room = room;
        }
        self.end = self.end.wrapping_add(1);
    }

    /// Puts in a request of which it is known how it went.
    pub(super) fn push_known(&mut self, completion: Completion) {
        let Completion { user_data, outcome, room } = completion;
        self.push(user_data, Outcome::Known, room);
        if let Err(error) = outcome {
            self.fail(self.len() - 1, error);
        }
    }

    /// Takes the first one out if it was looked at, counts, and has no memory to give back; answers its user data. Such
    /// ones are most, and a completion is large: who knows that there is nothing in it does not move it about.
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

    /// Takes the first one out if it was looked at.
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
        Some(Completion { user_data, outcome, room })
    }

    /// Whether the first one must be looked at before it is taken out.
    #[inline(always)]
    pub(super) fn is_unconfirmed(&self) -> bool {
        self.first == self.unconfirmed && self.unconfirmed != self.end
    }

    /// All of them were looked at.
    #[inline(always)]
    pub(super) fn set_confirmed(&mut self) {
        self.unconfirmed = self.end;
    }

    /// How the request was done that has `before` others before it.
    #[inline(always)]
    pub(super) fn outcome(&self, before: usize) -> Outcome {
        self.entries[self.place(self.first.wrapping_add(before))].outcome
    }

    /// How they were done, in their order.
    pub(super) fn outcomes(&self) -> impl Iterator<Item = Outcome> {
        (0..self.len()).map(|before| self.outcome(before))
    }

    /// The request with `before` others before it has failed.
    #[cold]
    pub(super) fn fail(&mut self, before: usize, error: Error) {
        let place = self.place(self.first.wrapping_add(before));
        let entry = &mut self.entries[place];
        (entry.outcome, entry.has_extra) = (Outcome::Known, true);
        self.extras[place].error = Some(Box::new(error));
    }

    /// All have failed of which it was not known how they went.
    pub(super) fn fail_unknown(&mut self, error: &Error) {
        for before in 0..self.len() {
            if self.outcome(before) != Outcome::Known {
                self.fail(before, error.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(ready: &mut Ready) -> Completion {
        let plain = ready.pop_plain().map(|user_data| Completion { user_data, outcome: Ok(()), room: None });
        plain.or_else(|| ready.pop()).unwrap()
    }

    #[test]
    fn they_come_out_in_their_order_with_what_is_theirs() {
        let mut ready = Ready::new(3);
        // Around the ring, at each place.
        for turn in 0..9u64 {
            ready.push(turn, Outcome::Written(0), None);
            ready.push(turn + 100, Outcome::Read(1), Some(Room::Own(vec![turn as u8])));
            let error = Err(Error::Idle);
            ready.push_known(Completion { user_data: turn + 200, outcome: error, room: None });
            assert_eq!(
                ready.outcomes().collect::<Vec<_>>(),
                [Outcome::Written(0), Outcome::Read(1), Outcome::Known]
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
            assert!(matches!(second.room, Some(Room::Own(bytes)) if bytes == [turn as u8]));
            assert!(first.room.is_none() && third.room.is_none() && ready.pop().is_none());
            assert_eq!(ready.len(), 0);
        }
    }
}
