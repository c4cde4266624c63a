//! Waiting for the other side of a ring, and waking it.

use crate::link::Link;
use crate::ring::{Bell, Fence, WakeMethod};
use crate::spin_policy::{LOOKS, SpinPolicy};
use crate::stats::Waits;
use crate::wait::{Wait, Waiter};
use std::sync::Arc;

/// State of one side of a ring: its bell, the other side's bell, the connection, and the counters.
#[derive(Debug)]
pub struct RingWaiter<C> {
    /// Connection to the other side.
    pub link: Arc<Link>,
    /// Counters of this end's operations.
    pub counters: Arc<C>,
    how: Wait,
    own_bell: Bell,
    their_bell: Bell,
    policy: SpinPolicy,
}

impl<C: AsRef<Waits>> RingWaiter<C> {
    /// Makes the state of a side that waits as `how` says.
    pub fn new(
        link: Arc<Link>,
        counters: Arc<C>,
        how: Wait,
        own_bell: Bell,
        their_bell: Bell,
    ) -> RingWaiter<C> {
        RingWaiter { link, counters, how, own_bell, their_bell, policy: SpinPolicy::default() }
    }

    /// Returns a waiter for the other side's next operation; see [`Waiter::wait`].
    pub fn waiter(&self) -> Waiter<'_> {
        Waiter {
            how: self.how,
            link: &self.link,
            bell: &self.own_bell,
            until: None,
            policy: &self.policy,
            waits: (*self.counters).as_ref(),
            on_socket: false,
            socket_full: None,
            elsewhere: &[],
        }
    }

    /// Returns the number of looks to take before waiting begins.
    #[inline]
    pub fn first_looks(&self) -> u32 {
        match self.how {
            Wait::Sleep => 1,
            Wait::Adaptive if !self.policy.is_proven() => 1,
            _ => LOOKS,
        }
    }

    /// Wakes the other side if it sleeps: there is room for it, or this side has closed its ring.
    #[inline]
    pub fn wake(&self) {
        if let Some(sleeper) = self.their_bell.ring() {
            self.has_woken(sleeper);
        }
    }

    /// Wakes the other side if it sleeps: there is an entry for it, to which it may reply.
    #[inline]
    pub fn wake_for_entry(&self) {
        self.note_peer(self.their_bell.ring());
    }

    /// Wakes the other side if it sleeps until this number of entries, or a smaller one, has been sent. It
    /// may reply.
    #[inline]
    pub fn wake_for(&self, entries: u64) {
        self.note_peer(self.their_bell.ring_for(entries));
    }

    #[inline]
    fn note_peer(&self, woken: Option<WakeMethod>) {
        match woken {
            None => self.link.note_peer_awake(),
            Some(sleeper) => {
                self.link.note_peer_woken();
                self.has_woken(sleeper);
            }
        }
    }

    #[cold]
    fn has_woken(&self, sleeper: WakeMethod) {
        let waits = (*self.counters).as_ref();
        match sleeper {
            WakeMethod::Futex => waits.futex_wakes.add(1),
            WakeMethod::Signal => {
                waits.doorbells.add(1);
                self.link.ring_doorbell();
            }
        }
    }

    /// Requests a doorbell for the other side's next operation.
    pub fn set_bell(&self) {
        let fence = self.own_bell.set(WakeMethod::Signal);
        (*self.counters).as_ref().heavy_fences.add(u64::from(fence == Fence::Heavy));
    }

    /// Cancels the request for a doorbell.
    pub fn unset_bell(&self) {
        self.own_bell.unset();
    }
}
