//! What was done for clients that have ended, by user, so that counters of a user never go back.
//!
//! Invariant: a client's counts are added by the core, in the order of its work: a report of the core has either the client,
//! or comes after the client was added here. [`Users::look`] finds a report and the sums that belong together.

use bywash_protocol::report::{Client, Counts, User};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Most users that are told apart; clients of others are counted together.
const USERS_MAX: usize = 4096;
/// Most attempts to find a report during which no client ended.
const ATTEMPTS: u32 = 8;

/// Sums of ended clients, by user.
#[derive(Debug, Default)]
pub(crate) struct Users(Mutex<Ended>);

#[derive(Debug, Default)]
struct Ended {
    /// Clients that have ended.
    clients: u64,
    /// By user; none: those beyond [`USERS_MAX`].
    sums: BTreeMap<Option<u32>, Counts>,
}

impl Users {
    fn lock(&self) -> MutexGuard<'_, Ended> {
        // Each change is one step, so that whoever panicked has left nothing half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds what was done for a client that has ended.
    pub(crate) fn add(&self, uid: u32, counts: &Counts) {
        let mut ended = self.lock();
        let is_told_apart = ended.sums.contains_key(&Some(uid)) || ended.sums.len() < USERS_MAX;
        ended.clients += 1;
        ended.sums.entry(is_told_apart.then_some(uid)).or_default().add(counts);
    }

    /// Makes a report, and answers it with the sums of the clients that had ended before.
    pub(crate) fn look<T, E>(
        &self,
        mut report: impl FnMut() -> Result<T, E>,
    ) -> Result<(T, BTreeMap<Option<u32>, Counts>), E> {
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

/// Users with what was done for their clients, those that have ended and those that are there, and with their threads that
/// are stuck.
pub(crate) fn all(
    ended: BTreeMap<Option<u32>, Counts>,
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
        let counts = Counts { reads: 1, ..Counts::default() };
        for uid in 0..USERS_MAX as u32 + 10 {
            users.add(uid, &counts);
            users.add(uid % 7, &counts);
        }
        let (_, sums) = users.look(|| Ok::<_, ()>(())).unwrap();
        assert_eq!(sums.len(), USERS_MAX + 1);
        assert_eq!(sums.values().map(|counts| counts.reads).sum::<u64>(), 2 * (USERS_MAX as u64 + 10));
        assert_eq!(sums[&None].reads, 10);
    }

    /// A client that ends while a report is made is not counted twice.
    #[test]
    fn a_report_and_its_sums_belong_together() {
        let users = Users::default();
        let mut there = 1;
        let (reported, sums) = users
            .look(|| {
                let reported = there;
                if there == 1 {
                    users.add(5, &Counts { reads: 1, ..Counts::default() });
                    there = 0;
                }
                Ok::<_, ()>(reported)
            })
            .unwrap();
        assert_eq!((reported, sums[&Some(5)].reads), (0, 1));
    }
}
