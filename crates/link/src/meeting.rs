//! What one side of a ring needs to wait for the other and to wake it.

use crate::link::Link;
use crate::patience::{LOOKS, Patience};
use crate::stats::Waits;
use crate::wait::{Wait, Waiter};
use bywash_ring::{Bell, Fence, Sleeper};
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
    patience: Patience,
}

impl<C: AsRef<Waits>> Meeting<C> {
    /// A side that waits as `how` says.
    pub fn new(link: Arc<Link>, counters: Arc<C>, how: Wait, own_bell: Bell, their_bell: Bell) -> Meeting<C> {
        Meeting { link, counters, how, own_bell, their_bell, patience: Patience::default() }
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
        match self.how {
            Wait::Sleep => 1,
            Wait::Adaptive if !self.patience.is_proven() => 1,
            _ => LOOKS,
        }
    }

    /// Wakes the other side if it sleeps and waits for room, or for the end of what this side sends.
    #[inline]
    pub fn wake(&self) {
        if let Some(sleeper) = self.their_bell.ring() {
            self.has_woken(sleeper);
        }
    }

    /// Wakes the other side if it sleeps: there is an entry for it, and it may answer.
    #[inline]
    pub fn wake_to_answer(&self) {
        self.note_peer(self.their_bell.ring());
    }

    /// Wakes the other side if it sleeps until there have been so many entries, or fewer. It may answer.
    #[inline]
    pub fn wake_for(&self, entries: u64) {
        self.note_peer(self.their_bell.ring_for(entries));
    }

    #[inline]
    fn note_peer(&self, woken: Option<Sleeper>) {
        match woken {
            None => self.link.note_peer_awake(),
            Some(sleeper) => {
                self.link.note_peer_woken();
                self.has_woken(sleeper);
            }
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
        let fence = self.own_bell.set(Sleeper::Signal);
        (*self.counters).as_ref().heavy_fences.add(u64::from(fence == Fence::Heavy));
    }

    /// Asks for none any more.
    pub fn unset_bell(&self) {
        self.own_bell.unset();
    }
}
