//! Waiting for clients: by looking for some time, if that pays, and then by sleeping.
//!
//! A client that sends its next request as soon as it has a reply is found by looking sooner than a thread can be
//! woken, and then the client's system call wakes nobody. [`SpinPolicy`] tells for how long looking is worth the
//! processor's time; with requests far apart there is none. Invariant: a wait never ends later than without looking,
//! but for one poll(2). Called by `service`.

use bywash_link::{PeerState, SpinPolicy};
use rustix::event::{PollFd, Timespec, poll};
use std::time::{Duration, Instant};

/// Waits for descriptors, and what earlier waits have shown.
#[derive(Debug, Default)]
pub(crate) struct Waiter {
    policy: SpinPolicy,
}

impl Waiter {
    /// Waits until one of the descriptors is ready, for at most `limit`; `None`: as long as that takes.
    #[inline]
    pub(crate) fn wait(&mut self, descriptors: &mut [PollFd<'_>], limit: Option<&Timespec>) {
        // An error of poll(2) needs no handling: everything is looked at again in the next turn.
        if limit.is_some_and(|limit| limit.tv_sec == 0 && limit.tv_nsec == 0) {
            let _ = poll(descriptors, limit);
            return;
        }
        if let Some((looks, reason)) = self.policy.spin(PeerState::Unasked) {
            match look(descriptors, SpinPolicy::duration(looks)) {
                Found::AtOnce => return,
                Found::Later => return self.policy.found(reason, PeerState::Unasked),
                Found::Nothing => self.policy.missed(reason),
            }
        }
        let slept_from = self.policy.sleep().then(Instant::now);
        let _ = poll(descriptors, limit);
        if let Some(from) = slept_from {
            self.policy.slept(from.elapsed());
        }
    }
}

/// Result of looking.
enum Found {
    /// A descriptor was ready at the first look, so that nothing was waited for.
    AtOnce,
    /// A descriptor became ready.
    Later,
    Nothing,
}

/// Looks for a descriptor that is ready until `time` is over.
fn look(descriptors: &mut [PollFd<'_>], time: Duration) -> Found {
    let is_ready = |descriptors: &mut [PollFd<'_>]| {
        poll(descriptors, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
    };
    if is_ready(descriptors) {
        return Found::AtOnce;
    }
    let begun = Instant::now();
    while begun.elapsed() < time {
        if is_ready(descriptors) {
            return Found::Later;
        }
    }
    Found::Nothing
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::PollFlags;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::thread;

    #[test]
    fn looking_ends_with_a_descriptor_or_with_the_time() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut polled = [PollFd::new(&ours, PollFlags::IN)];
        assert!(matches!(look(&mut polled, Duration::from_millis(2)), Found::Nothing));
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(5));
                theirs.write_all(b"x").unwrap();
            });
            assert!(matches!(look(&mut polled, Duration::from_secs(60)), Found::Later));
        });
        assert!(matches!(look(&mut polled, Duration::from_secs(60)), Found::AtOnce));
    }

    /// Requests that are far apart are slept for, and a limit is kept to.
    #[test]
    fn waits_end_with_a_descriptor_or_with_the_limit() {
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        let mut waiter = Waiter::default();
        let mut wait = |ours: &UnixStream, limit| {
            let mut polled = [PollFd::new(ours, PollFlags::IN)];
            waiter.wait(&mut polled, limit);
            !polled[0].revents().is_empty()
        };
        let short = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
        (0..8).for_each(|_| assert!(!wait(&ours, Some(&short))));
        thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..8 {
                    thread::sleep(Duration::from_millis(2));
                    theirs.write_all(b"x").unwrap();
                }
            });
            for _ in 0..8 {
                assert!(wait(&ours, None));
                ours.read_exact(&mut [0]).unwrap();
            }
        });
        assert!(waiter.policy.sleeps_at_once());
    }
}
