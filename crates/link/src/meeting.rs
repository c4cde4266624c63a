//! What one side of a ring needs to wait for the other and to wake it.

use crate::link::Link;
use crate::stats::Waits;
use crate::wait::{LOOKS, PATIENCE, Wait, Waiter};
use bywash_ring::{Bell, Sleeper};
use bywash_sync::AtomicU32;
use std::sync::Arc;

/// One side of a ring: its bell, the other side's, and what it counts.
#[derive(Debug)]
pub struct Meeting<C> {
    /// The connection to the other side.
    pub link: Arc<Link>,
    /// What the end counts.
    pub counters: Arc<C>,
    how: Wait,
    own_bell: Bell,
    their_bell: Bell,
    patience: AtomicU32,
}

impl<C: AsRef<Waits>> Meeting<C> {
    /// A side that waits as `how` says.
    pub fn new(link: Arc<Link>, counters: Arc<C>, how: Wait, own_bell: Bell, their_bell: Bell) -> Meeting<C> {
        Meeting { link, counters, how, own_bell, their_bell, patience: AtomicU32::new(PATIENCE) }
    }

    /// Waits for the other side; see [`Waiter::wait`].
    pub fn waiter(&self) -> Waiter<'_> {
        Waiter {
            how: self.how,
            link: &self.link,
            bell: &self.own_bell,
            until: None,
            patience: &self.patience,
            waits: (*self.counters).as_ref(),
            on_socket: false,
            socket_full: None,
            elsewhere: &[],
        }
    }

    /// Looks that a waiting end takes before it begins to wait.
    #[inline]
    pub fn first_looks(&self) -> u32 {
        if self.how == Wait::Sleep { 1 } else { LOOKS }
    }

    /// Wakes the other side if it sleeps.
    #[inline]
    pub fn wake(&self) {
        if let Some(sleeper) = self.their_bell.ring() {
            self.has_woken(sleeper);
        }
    }

    /// Wakes the other side if it sleeps until there have been so many entries, or fewer.
    #[inline]
    pub fn wake_for(&self, entries: u64) {
        if let Some(sleeper) = self.their_bell.ring_for(entries) {
            self.has_woken(sleeper);
        }
    }

    #[cold]
    fn has_woken(&self, sleeper: Sleeper) {
        let waits = (*self.counters).as_ref();
        match sleeper {
            Sleeper::Futex => waits.futex_wakes.add(1),
            Sleeper::Signal => {
                waits.doorbells.add(1);
                self.link.ring_doorbell();
            }
        }
    }

    /// Asks for a doorbell when the other side does something next.
    pub fn set_bell(&self) {
        self.own_bell.set(Sleeper::Signal);
    }

    /// Asks for none any more.
    pub fn unset_bell(&self) {
        self.own_bell.unset();
    }
}
