//! The budget of descriptors: how many of those that this process may have the connections of a user may take.
//!
//! ```text
//!   RLIMIT_NOFILE │ own: devices, store, threads │ three quarters: any user, up to half │ a quarter: who has few │
//! ```
//!
//! Invariant: a connection is counted with as many descriptors as it can have at most, before it has them; so the kernel
//! does not run out of them while there is a share left. Called by the control thread.

use rustix::process::{Resource, getrlimit};

/// Descriptors of a connection: its socket and its page of notices.
pub(crate) const OF_CONNECTION: u64 = 2;
/// Descriptors of a channel: its socket, the memories of both sides, and one to spare.
pub(crate) const OF_CHANNEL: u64 = 5;
/// Descriptors of a file that was passed: the file, its ring, its event counters.
pub(crate) const OF_FILE: u64 = 6;
/// Descriptors of a message that a helper is taking, or has not closed yet.
pub(crate) const OF_MESSAGE: u64 = bywash_link::DESCRIPTORS_MAX as u64;
/// Descriptors that the server keeps for itself.
const OWN: u64 = 128;
/// Descriptors of a user at the expense of the quarter for those who have few: four clients, of which one makes its channel.
const FEW: u64 = 4 * (OF_CONNECTION + OF_CHANNEL) + OF_MESSAGE;

/// Descriptors that all connections have, and those of one user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) all: u64,
    pub(crate) of_user: u64,
}

/// Refuses a user `more` descriptors.
///
/// # Errors
/// What the limit is, and what to do.
pub(crate) fn check(uid: u32, taken: Taken, more: u64) -> Result<(), String> {
    // Without a limit it is what the kernel can count.
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    check_against(limit, uid, taken, more)
}

fn check_against(limit: u64, uid: u32, taken: Taken, more: u64) -> Result<(), String> {
    let budget = limit.saturating_sub(OWN.min(limit / 2));
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

    /// Connections that a user is given, one after the other, beside what others have.
    fn take(limit: u64, others: u64) -> u64 {
        let mut taken = Taken { all: others, of_user: 0 };
        let mut count = 0;
        while check_against(limit, 7, taken, CLIENT).is_ok() {
            taken = Taken { all: taken.all + CLIENT, of_user: taken.of_user + CLIENT };
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
            // And two that have taken all that they could leave some to a third one.
            assert!(take(limit, first + second) > 0, "{limit}");
        }
    }

    #[test]
    fn the_limit_is_named() {
        let refused = check_against(1024, 7, Taken { all: 900, of_user: 800 }, 1).unwrap_err();
        assert!(
            refused.contains("1024 open files (RLIMIT_NOFILE)") && refused.contains("user 7"),
            "{refused}"
        );
        assert!(check_against(u64::MAX, 7, Taken::default(), 1).is_ok());
    }
}
