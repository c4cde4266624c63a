//! How an end waits: spinning, sleeping, or first one and then the other.
//!
//! A cache line goes from core to core in 60 ns; to wake a sleeper takes 30 us and more. So the usual way is to
//! spin for a while and then to sleep, or to sleep at once where spinning has not paid: [`Patience`] has learned that.
//! Where sleeping is the rule both sides pass full fences; see [`Bell::wish`]. The first sleep of a wait is on a futex,
//! those that follow are on the socket, and between them nobody spins.

use crate::error::Error;
use crate::link::Link;
use crate::patience::{LOOKS, Patience};
use crate::stats::Waits;
use bywash_ring::{Bell, Fence, Sleeper};
use bywash_sync::{AtomicBool, Ordering::Relaxed};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How an end waits for the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wait {
    /// Spin where that has paid, for 100 us at most, then sleep; sleep at once where it has not.
    #[default]
    Adaptive,
    /// Spin and never sleep: the shortest latency, for a core of its own.
    Spin,
    /// Sleep at once: nothing to pay while waiting, and nothing that others would notice.
    Sleep,
}

/// Looks of a spinning end between two questions whether the peer is alive: about 1 ms.
const LOOKS_BETWEEN_CHECKS: u32 = 1 << 16;
/// Longest sleep on a futex, which does not see the peer's end: then one looks for it.
const FUTEX_LIMIT: Duration = Duration::from_millis(100);
/// Longest sleep on the socket, which sees it. A bell that was not heard is not missed for longer.
const SOCKET_LIMIT: Duration = Duration::from_secs(1);

/// Another connection on which something may happen meanwhile that lets a waiting end go on.
pub trait Elsewhere: Send + Sync {
    /// Asks for a doorbell there.
    fn set_bell(&self);
    /// Asks for none any more.
    fn unset_bell(&self);
    /// Looks whether that connection has ended, and does what is to be done then.
    fn end_if_over(&self);
    /// Whether it has ended, as far as is known.
    fn is_over(&self) -> bool;
    /// Where the doorbell is heard.
    fn link(&self) -> &Link;
}

/// Who waits, and for what.
pub struct Waiter<'a> {
    /// How.
    pub how: Wait,
    /// The connection to the other side.
    pub link: &'a Link,
    /// This side's bell.
    pub bell: &'a Bell,
    /// Entries that there are to have been before the bell is rung; none: any will do.
    pub until: Option<u64>,
    /// What was learned about how long to spin.
    pub patience: &'a Patience,
    /// Where it is counted.
    pub waits: &'a Waits,
    /// What is waited for comes through the socket, of which a futex knows nothing.
    pub on_socket: bool,
    /// Says whether it is the socket that is full.
    pub socket_full: Option<&'a AtomicBool>,
    /// Connections on which something may happen meanwhile that lets `attempt` go on.
    pub elsewhere: &'a [Arc<dyn Elsewhere>],
}

impl Wait {
    /// Prepares the pair of fences that is dear for who sleeps and free for who does not, if an end that waits so is
    /// the better for it. The dear one interrupts every core that runs a program with such an end: where sleeping is
    /// the rule, an ordinary fence on both sides costs less, and costs others nothing (`bywash bench ipc`, beside a
    /// second pair).
    pub fn prepare_fences(self) -> bool {
        self != Wait::Sleep && bywash_sync::prepare_shared_fences()
    }
}

impl Waiter<'_> {
    /// Calls `attempt` until it answers something, the peer is gone, or `limit` is over. `attempt` looks as
    /// often as it is told before it says that there is nothing.
    ///
    /// # Errors
    /// What `attempt` says, [`Error::TimedOut`], or what became of the peer.
    pub fn wait<T>(
        &self,
        limit: Option<Duration>,
        mut attempt: impl FnMut(u32) -> Result<Option<T>, Error>,
    ) -> Result<T, Error> {
        self.link.check_process()?;
        if let Some(found) = attempt(1)? {
            return Ok(found);
        }
        // Further than the clock goes is for ever.
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
                // What came before the end counts.
                return attempt(1)?.ok_or_else(|| self.link.ended());
            }
            if end.is_some_and(|end| Instant::now() >= end) {
                return attempt(1)?.ok_or(Error::TimedOut);
            }
        }
    }

    /// Wishes for the fences that suit who sleeps so often. The time, if the sleep is to be measured.
    fn prepare_sleep(&self, has_slept: bool) -> Option<Instant> {
        if self.how != Wait::Adaptive || has_slept {
            return None;
        }
        if self.patience.sleeps_at_once() {
            self.bell.wish(true);
        }
        self.patience.sleep().then(Instant::now)
    }

    fn learn_from_sleep(&self, begun: Option<Instant>) {
        if let Some(begun) = begun {
            self.patience.slept(begun.elapsed());
        }
    }

    pub(crate) fn set_bell(&self, sleeper: Sleeper) {
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

    /// A futex costs least, and is one word: where more can happen it is the socket. So it is where the first sleep was
    /// for nothing: the socket wakes when the peer dies, and nobody has to look for that ten times a second.
    fn sleeper(&self, has_slept: bool) -> Sleeper {
        let one = !self.on_socket && !self.waits_for_socket() && self.elsewhere.is_empty();
        if one && !has_slept { Sleeper::Futex } else { Sleeper::Signal }
    }

    fn sleep(&self, sleeper: Sleeper, end: Option<Instant>) -> Result<(), Error> {
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        let at_most = |limit: Duration| left.map_or(limit, |left| left.min(limit));
        match sleeper {
            Sleeper::Futex => {
                self.waits.futex_sleeps.add(1);
                self.bell.sleep(at_most(FUTEX_LIMIT));
                Ok(())
            }
            Sleeper::Signal => {
                self.waits.socket_sleeps.add(1);
                // One that has ended would be readable for ever.
                let others = self.elsewhere.iter().filter(|other| !other.is_over());
                let others = others.map(|other| other.link().descriptor());
                self.link.sleep(at_most(SOCKET_LIMIT), self.waits_for_socket(), others)
            }
        }
    }

    /// Spins as long as this way of waiting does before it sleeps, or asks whether the peer is alive.
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
        let Some((looks, reason)) = self.patience.spin(peer) else { return Ok(None) };
        let found = self.look(looks, attempt)?;
        if found.is_none() {
            self.waits.vain_spins.add(1);
            self.patience.missed(reason);
            return Ok(None);
        }
        self.patience.found(reason, peer);
        if self.patience.is_proven() {
            self.bell.wish(false);
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
