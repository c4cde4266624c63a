//! Counters of ended clients by user, so that a user's counters never decrease.
//!
//! Invariant: the core adds a client's counters in the order of its own work. A report of the core therefore
//! either includes the client or is made after the client's counters were added here. [`Users::look`] finds a
//! report and the sums that match it.

use bywash_protocol::report::{Client, Counters, User};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Greatest number of users that have counters of their own. Clients of all other users are counted together.
const USERS_MAX: usize = 4096;
/// Greatest number of attempts to make a report during which no client ends.
const ATTEMPTS: u32 = 8;

/// Sums of the counters of ended clients, by user.
#[derive(Debug, Default)]
pub(crate) struct Users(Mutex<Ended>);

#[derive(Debug, Default)]
struct Ended {
    /// Number of clients that have ended.
    clients: u64,
    /// Sums by user number; `None` for all users beyond [`USERS_MAX`].
    sums: BTreeMap<Option<u32>, Counters>,
}

impl Users {
    fn lock(&self) -> MutexGuard<'_, Ended> {
        // A thread that panicked has left no change half done: each change is one step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the counters of a client that has ended.
    pub(crate) fn add(&self, uid: u32, counts: &Counters) {
        let mut ended = self.lock();
        let is_told_apart = ended.sums.contains_key(&Some(uid)) || ended.sums.len() < USERS_MAX;
        ended.clients += 1;
        ended.sums.entry(is_told_apart.then_some(uid)).or_default().add(counts);
    }

    /// Makes a report and returns it with the sums of all clients that had ended before. If a client ends
    /// meanwhile it makes the report again, up to [`ATTEMPTS`] times.
    pub(crate) fn look<T, E>(
        &self,
        mut report: impl FnMut() -> Result<T, E>,
    ) -> Result<(T, BTreeMap<Option<u32>, Counters>), E> {
        let mut attempt = 0;
        loop {
            let before = self.lock().clients;
            let made = report()?;
            let ended = self.lock();
            attempt += 1;
            if ended.clients == before || attempt == ATTEMPTS {
                return Ok((made, ended.sums.clone()));
            }
        }
    }
}

/// Combines the counters of ended and of connected clients, and the numbers of stuck threads, into one entry
/// for each user.
pub(crate) fn all(
    ended: BTreeMap<Option<u32>, Counters>,
    clients: &[Client],
    stuck: &HashMap<u32, u64>,
) -> Vec<User> {
    let mut users: BTreeMap<Option<u32>, User> =
        ended.into_iter().map(|(uid, counts)| (uid, User { uid, clients: 0, counts, stuck: 0 })).collect();
    let mut of = |uid: u32, change: &dyn Fn(&mut User)| {
        let is_told_apart = users.contains_key(&Some(uid)) || users.len() < USERS_MAX;
        let uid = is_told_apart.then_some(uid);
        change(users.entry(uid).or_insert_with(|| User { uid, ..User::default() }));
    };
    for client in clients {
        of(client.uid, &|user| {
            user.clients += 1;
            user.counts.add(&client.counts);
        });
    }
    for (uid, threads) in stuck {
        of(*uid, &|user| user.stuck += threads);
    }
    users.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_of_clients_that_ended_and_bounded() {
        let users = Users::default();
        let counts = Counters { reads: 1, ..Counters::default() };
        for uid in 0..USERS_MAX as u32 + 10 {
            users.add(uid, &counts);
            users.add(uid % 7, &counts);
        }
        let (_, sums) = users.look(|| Ok::<_, ()>(())).unwrap();
        assert_eq!(sums.len(), USERS_MAX + 1);
        assert_eq!(sums.values().map(|counts| counts.reads).sum::<u64>(), 2 * (USERS_MAX as u64 + 10));
        assert_eq!(sums[&None].reads, 10);
    }

    /// A client that ends while a report is made is counted once, not twice.
    #[test]
    fn a_report_and_its_sums_belong_together() {
        let users = Users::default();
        let mut there = 1;
        let (reported, sums) = users
            .look(|| {
                let reported = there;
                if there == 1 {
                    users.add(5, &Counters { reads: 1, ..Counters::default() });
                    there = 0;
                }
                Ok::<_, ()>(reported)
            })
            .unwrap();
        assert_eq!((reported, sums[&Some(5)].reads), (0, 1));
    }
}
