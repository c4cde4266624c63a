//! Waiting for the other end: by spinning, by sleeping, or first one and then the other.
//!
//! A cache line moves between cores in 60 ns; waking a sleeping thread takes 30 us and more. So the default
//! is to spin for a while and then to sleep, or to sleep at once if spinning has not paid; [`SpinPolicy`]
//! decides. If sleeping is the rule, both sides use full fences; see [`Bell::wish`]. The first sleep of a
//! wait is on a futex, later ones are on the socket, and between them the end does not spin.

use crate::error::Error;
use crate::link::Link;
use crate::ring::{Bell, Fence, WakeMethod};
use crate::spin_policy::{LOOKS, SpinPolicy};
use crate::stats::Waits;
use bywash_sync::{AtomicBool, Ordering::Relaxed};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Way of waiting for the other end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wait {
    /// Spin if that has paid, for at most 100 us, and then sleep; otherwise sleep at once.
    #[default]
    Adaptive,
    /// Spin and never sleep: the shortest latency, for an end that has a core of its own.
    Spin,
    /// Sleep at once: waiting costs no processor time, and does not disturb other programs.
    Sleep,
}

/// Looks between two checks of a spinning end whether the peer is alive: about 1 ms.
const LOOKS_BETWEEN_CHECKS: u32 = 1 << 16;
/// Longest sleep on a futex, which does not show the peer's death: the end checks for it after each.
const FUTEX_LIMIT: Duration = Duration::from_millis(100);
/// Longest sleep on the socket, which shows the peer's death. A lost doorbell delays an end by no more than
/// this.
const SOCKET_LIMIT: Duration = Duration::from_secs(1);

/// Another connection on which an event may let a waiting end go on.
pub trait OtherConnection: Send + Sync {
    /// Requests a doorbell from this connection's peer.
    fn set_bell(&self);
    /// Cancels the request for a doorbell.
    fn unset_bell(&self);
    /// Checks if the connection has ended, and if so cleans up.
    fn end_if_over(&self);
    /// Returns true if the connection is known to have ended.
    fn is_over(&self) -> bool;
    /// Returns the link on which the doorbell arrives.
    fn link(&self) -> &Link;
}

/// One wait of an end: its way, its event, and the state that it uses.
pub struct Waiter<'a> {
    /// Way of waiting.
    pub how: Wait,
    /// Connection to the other side.
    pub link: &'a Link,
    /// Bell of this side.
    pub bell: &'a Bell,
    /// Number of entries sent in all from which on the bell is rung; `None`: any event rings it.
    pub until: Option<u64>,
    /// Record of past waits, which decides how long to spin.
    pub policy: &'a SpinPolicy,
    /// Counters of waits.
    pub waits: &'a Waits,
    /// True if the event arrives through the socket, so that no futex shows it.
    pub on_socket: bool,
    /// Flag that is true while `attempt` fails because the socket is full.
    pub socket_full: Option<&'a AtomicBool>,
    /// Other connections on which an event may let `attempt` succeed.
    pub elsewhere: &'a [Arc<dyn OtherConnection>],
}

impl Wait {
    /// Prepares the asymmetric pair of fences, which is expensive for a sleeping end and free for one that
    /// spins, if this way of waiting profits from it. Returns true if the pair can be used. The expensive
    /// fence interrupts every core that runs a program with such an end. If sleeping is the rule, an ordinary
    /// fence on both sides costs less and disturbs nobody (measured by `bywash bench ipc`, beside a second
    /// pair of programs).
    pub fn prepare_fences(self) -> bool {
        self != Wait::Sleep && bywash_sync::prepare_shared_fences()
    }
}

impl Waiter<'_> {
    /// Calls `attempt` until it returns a result, the peer is gone, or `limit` expires. `attempt` gets the
    /// number of looks to take before it returns `None`.
    ///
    /// # Errors
    /// - The error of `attempt`.
    /// - [`Error::TimedOut`] if `limit` expires.
    /// - [`Error::PeerDied`] or [`Error::Closed`] if the connection has ended, [`Error::Protocol`] if a
    ///   message in the socket is a violation of the protocol.
    /// - [`Error::Forked`] in a forked child, [`Error::Io`] if a system call fails.
    pub fn wait<T>(
        &self,
        limit: Option<Duration>,
        mut attempt: impl FnMut(u32) -> Result<Option<T>, Error>,
    ) -> Result<T, Error> {
        self.link.check_process()?;
        if let Some(found) = attempt(1)? {
            return Ok(found);
        }
        // A timeout beyond the range of the clock means none.
        let end = limit.and_then(|limit| Instant::now().checked_add(limit));
        let mut has_slept = false;
        loop {
            if !has_slept && let Some(found) = self.spin(&mut attempt)? {
                return Ok(found);
            }
            if self.how != Wait::Spin {
                let sleeper = self.sleeper(has_slept);
                let begun = self.prepare_sleep(has_slept);
                has_slept = true;
                self.set_bell(sleeper);
                self.elsewhere.iter().for_each(|other| other.set_bell());
                if let Some(found) = attempt(1)? {
                    self.unset_bells();
                    return Ok(found);
                }
                self.sleep(sleeper, end)?;
                self.learn_from_sleep(begun);
                self.unset_bells();
            }
            self.elsewhere.iter().for_each(|other| other.end_if_over());
            if let Some(found) = attempt(1)? {
                return Ok(found);
            }
            if self.link.is_over()? {
                // Entries that arrived before the end are still taken.
                return attempt(1)?.ok_or_else(|| self.link.ended());
            }
            if end.is_some_and(|end| Instant::now() >= end) {
                return attempt(1)?.ok_or(Error::TimedOut);
            }
        }
    }

    /// Wishes for full fences if sleeping is the rule. Returns the time if the sleep shall be measured.
    fn prepare_sleep(&self, has_slept: bool) -> Option<Instant> {
        if self.how != Wait::Adaptive || has_slept {
            return None;
        }
        if self.policy.sleeps_at_once() {
            self.bell.request_fences(true);
        }
        self.policy.sleep().then(Instant::now)
    }

    fn learn_from_sleep(&self, begun: Option<Instant>) {
        if let Some(begun) = begun {
            self.policy.slept(begun.elapsed());
        }
    }

    pub(crate) fn set_bell(&self, sleeper: WakeMethod) {
        let fenced = match self.until {
            None => self.bell.set(sleeper),
            Some(entries) => self.bell.set_until(sleeper, entries),
        };
        self.waits.heavy_fences.add(u64::from(fenced == Fence::Heavy));
    }

    pub(crate) fn unset_bells(&self) {
        self.bell.unset();
        self.elsewhere.iter().for_each(|other| other.unset_bell());
    }

    pub(crate) fn waits_for_socket(&self) -> bool {
        self.socket_full.is_some_and(|full| full.load(Relaxed))
    }

    /// Chooses how to be woken. A futex costs least, but is a single word: if the event may be elsewhere, the
    /// end sleeps on the socket. It also does so after a first sleep in vain: the socket shows the peer's
    /// death, so that nobody has to check for it ten times a second.
    fn sleeper(&self, has_slept: bool) -> WakeMethod {
        let one = !self.on_socket && !self.waits_for_socket() && self.elsewhere.is_empty();
        if one && !has_slept { WakeMethod::Futex } else { WakeMethod::Signal }
    }

    fn sleep(&self, sleeper: WakeMethod, end: Option<Instant>) -> Result<(), Error> {
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        let at_most = |limit: Duration| left.map_or(limit, |left| left.min(limit));
        match sleeper {
            WakeMethod::Futex => {
                self.waits.futex_sleeps.add(1);
                self.bell.sleep(at_most(FUTEX_LIMIT));
                Ok(())
            }
            WakeMethod::Signal => {
                self.waits.socket_sleeps.add(1);
                // A connection that has ended is left out, since it would be readable for ever.
                let others = self.elsewhere.iter().filter(|other| !other.is_over());
                let others = others.map(|other| other.link().descriptor());
                self.link.sleep(at_most(SOCKET_LIMIT), self.waits_for_socket(), others)
            }
        }
    }

    /// Spins for as long as this way of waiting does before it sleeps, or before it checks whether the peer
    /// is alive.
    fn spin<T>(&self, attempt: &mut impl FnMut(u32) -> Result<Option<T>, Error>) -> Result<Option<T>, Error> {
        match self.how {
            Wait::Spin => self.look(LOOKS_BETWEEN_CHECKS, attempt),
            Wait::Adaptive => self.spin_if_it_pays(attempt),
            Wait::Sleep => Ok(None),
        }
    }

    fn spin_if_it_pays<T>(
        &self,
        attempt: &mut impl FnMut(u32) -> Result<Option<T>, Error>,
    ) -> Result<Option<T>, Error> {
        let peer = self.link.take_peer();
        let Some((looks, reason)) = self.policy.spin(peer) else { return Ok(None) };
        let found = self.look(looks, attempt)?;
        if found.is_none() {
            self.waits.vain_spins.add(1);
            self.policy.missed(reason);
            return Ok(None);
        }
        self.policy.found(reason, peer);
        if self.policy.is_proven() {
            self.bell.request_fences(false);
        }
        Ok(found)
    }

    fn look<T>(
        &self,
        looks: u32,
        attempt: &mut impl FnMut(u32) -> Result<Option<T>, Error>,
    ) -> Result<Option<T>, Error> {
        for _ in 0..looks / LOOKS {
            if let Some(found) = attempt(LOOKS)? {
                self.waits.spins.add(1);
                return Ok(Some(found));
            }
        }
        Ok(None)
    }
}
