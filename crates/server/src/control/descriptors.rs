//! Budget of file descriptors: how many of this process's descriptors the connections of each user may
//! occupy.
//!
//! ```text
//!   RLIMIT_NOFILE │ own: devices, store, threads │ three quarters: any user, up to half │ a quarter: who has few │
//! ```
//!
//! Invariant: a connection is charged with the greatest number of descriptors that it can occupy, before it
//! occupies them. So the kernel does not run out of descriptors while a user still has a share. Called by the
//! control thread.

use rustix::process::{Resource, getrlimit};

/// Number of descriptors of a connection: its socket and its page of notices.
pub(crate) const OF_CONNECTION: u64 = 2;
/// Number of descriptors of a channel: its socket, the memory of both sides, and one to spare.
pub(crate) const OF_CHANNEL: u64 = 5;
/// Number of descriptors of a file that a client has passed: the file, its ring, its event counters.
pub(crate) const OF_FILE: u64 = 6;
/// Number of descriptors of a message that a helper is receiving, or has not closed yet.
pub(crate) const OF_MESSAGE: u64 = bywash_link::DESCRIPTORS_MAX as u64;
/// Number of descriptors that the server keeps for itself.
const OWN: u64 = 128;
/// Number of descriptors of each further core: its bell and its epoll.
const OF_CORE: u64 = 2;
/// Number of descriptors of a further queue of a device: the file, its ring, its event counters.
const OF_QUEUE: u64 = 5;
/// Number of descriptors up to which a user may use the quarter that is reserved for users with few: enough
/// for four clients, one of which sets up its channel.
const FEW: u64 = 4 * (OF_CONNECTION + OF_CHANNEL) + OF_MESSAGE;

/// Numbers of descriptors that are charged to all connections, and to those of one user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DescriptorUse {
    pub(crate) all: u64,
    pub(crate) of_user: u64,
}

/// Returns the number of descriptors that a server keeps for itself, with this number of cores and devices.
pub(crate) fn own(cores: usize, devices: usize) -> u64 {
    OWN + (cores as u64 - 1) * (OF_CORE + devices as u64 * OF_QUEUE)
}

/// Checks that a user may occupy `more` descriptors, besides those that the server keeps for itself.
///
/// # Errors
/// A message for the user with the limit and the remedy, if the user's share or the budget of all users is
/// exhausted.
pub(crate) fn check(own: u64, uid: u32, taken: DescriptorUse, more: u64) -> Result<(), String> {
    // Without a limit, the largest number counts as the limit.
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    check_against(limit, own, uid, taken, more)
}

fn check_against(limit: u64, own: u64, uid: u32, taken: DescriptorUse, more: u64) -> Result<(), String> {
    let budget = limit.saturating_sub(own.min(limit / 2));
    let (all, of_user) = (taken.all.saturating_add(more), taken.of_user.saturating_add(more));
    let has_share = all <= budget / 4 * 3 && of_user <= budget / 2;
    let has_few = all <= budget && of_user <= FEW;
    match has_share || has_few {
        true => Ok(()),
        false => Err(format!(
            "the server may have {limit} open files (RLIMIT_NOFILE), and the connections of user {uid} take up to {} of \
             them already, those of all users {}; close some, or have the server started with a higher limit (LimitNOFILE= \
             of its unit)",
            taken.of_user, taken.all
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: u64 = OF_CONNECTION + OF_CHANNEL;

    /// Returns the number of clients that one user can connect, while other users occupy `others`
    /// descriptors.
    fn take(limit: u64, others: u64) -> u64 {
        let mut taken = DescriptorUse { all: others, of_user: 0 };
        let mut count = 0;
        while check_against(limit, OWN, 7, taken, CLIENT).is_ok() {
            taken = DescriptorUse { all: taken.all + CLIENT, of_user: taken.of_user + CLIENT };
            count += 1;
            assert!(taken.all <= limit);
        }
        count
    }

    #[test]
    fn one_user_leaves_room_for_others() {
        for limit in [512, 1024, 20_000] {
            let first = take(limit, 0) * CLIENT;
            assert!(first <= limit / 2);
            let second = take(limit, first) * CLIENT;
            assert!(second > 0 && first + second <= limit, "{limit}");
            // Two users that have taken all they could still leave descriptors for a third one.
            assert!(take(limit, first + second) > 0, "{limit}");
        }
    }

    #[test]
    fn cores_and_their_queues_are_the_servers_own() {
        assert_eq!((own(1, 0), own(1, 32)), (OWN, OWN));
        let taken = DescriptorUse { all: 500, of_user: 400 };
        assert!(check_against(1024, own(1, 8), 7, taken, CLIENT).is_ok());
        assert!(check_against(1024, own(8, 8), 7, taken, CLIENT).is_err());
    }

    #[test]
    fn the_limit_is_named() {
        let refused = check_against(1024, OWN, 7, DescriptorUse { all: 900, of_user: 800 }, 1).unwrap_err();
        assert!(
            refused.contains("1024 open files (RLIMIT_NOFILE)") && refused.contains("user 7"),
            "{refused}"
        );
        assert!(check_against(u64::MAX, own(64, 32), 7, DescriptorUse::default(), 1).is_ok());
    }
}
