//! One direction of a path: whoever ships has an arena and cuts containers from it; whoever receives gives
//! them back.

mod receiving;
mod shipping;

pub(crate) use receiving::Receiving;
pub(crate) use shipping::Shipping;

use crate::error::Error;
use crate::layout::{self, Hello};
use crate::link::Link;
use crate::memory::{File, HugePages, Mapping};
use crate::stats::Counters;
use crate::wait::{LOOKS, PATIENCE, Wait, Waiter};
use bywash_ring::layout::{CONSUMER_BELL, PRODUCER_BELL};
use bywash_ring::{Bell, Shared, Sleeper};
use bywash_sync::{AtomicU32, AtomicU64};
use std::sync::Arc;

/// Memory that containers are cut from: this end's own, or a peer's.
#[derive(Debug)]
pub(crate) struct Arena {
    pub(crate) file: File,
    /// None: it is only passed on.
    pub(crate) mapping: Option<Mapping>,
    /// Whether this end may write what it received in it.
    pub(crate) writable: bool,
}

impl Arena {
    pub(crate) fn contains(&self, offset: usize, length: usize) -> bool {
        offset <= self.file.bytes() && length <= self.file.bytes() - offset
    }

    /// Where a part of it is mapped, if it is.
    #[inline]
    pub(crate) fn at(&self, offset: usize) -> Option<*mut u8> {
        self.mapping.as_ref().map(|mapping| mapping.base().wrapping_add(offset))
    }
}

/// What both sides of a lane need to wait for each other and to wake each other.
#[derive(Debug)]
pub(crate) struct Meeting {
    pub(crate) link: Arc<Link>,
    pub(crate) counters: Arc<Counters>,
    how: Wait,
    own_bell: Bell,
    their_bell: Bell,
    patience: AtomicU32,
}

impl Meeting {
    /// Waits for the other side; see [`Waiter::wait`].
    pub(crate) fn waiter(&self, how: Option<Wait>) -> Waiter<'_> {
        Waiter {
            how: how.unwrap_or(self.how),
            link: &self.link,
            bell: &self.own_bell,
            patience: &self.patience,
            counters: &self.counters,
            socket_full: None,
            relays: &[],
        }
    }

    /// Looks that a waiting end takes before it begins to wait.
    #[inline]
    pub(crate) fn first_looks(&self) -> u32 {
        if self.how == Wait::Sleep { 1 } else { LOOKS }
    }

    /// Wakes the other side if it sleeps.
    #[inline]
    pub(crate) fn wake(&self) {
        match self.their_bell.ring() {
            None => {}
            Some(Sleeper::Futex) => self.counters.futex_wakes.add(1),
            Some(Sleeper::Signal) => {
                self.counters.doorbells.add(1);
                self.link.ring_doorbell();
            }
        }
    }

    /// Asks for a doorbell when the other side does something next.
    pub(crate) fn set_bell(&self) {
        self.own_bell.set(Sleeper::Signal);
    }

    /// Asks for none any more.
    pub(crate) fn unset_bell(&self) {
        self.own_bell.unset();
    }
}

/// A lane's control memory.
pub(crate) struct Control {
    pub(crate) shipped: Shared,
    pub(crate) returned: Shared,
}

impl Control {
    /// Makes the memory of a lane of this end's.
    pub(crate) fn create(depth: u32, tickets: u32) -> Result<(Control, File), Error> {
        let (words, _) = layout::control_words(depth, tickets);
        let file = File::create("bywash-control", words * 8, HugePages::No)?;
        file.fix_size()?;
        Ok((Control::map(&file, depth, tickets)?, file))
    }

    /// Maps the memory of a lane.
    pub(crate) fn map(file: &File, depth: u32, tickets: u32) -> Result<Control, Error> {
        let (words, returned_at) = layout::control_words(depth, tickets);
        assert!(file.bytes() == words * 8);
        let mapping = Arc::new(file.map(true)?);
        let base: *const AtomicU64 = mapping.base().cast();
        // SAFETY: mapped for reading and writing, page-aligned, sealed against shrinking, and used through
        // `Shared` only; the mapping goes with the last of them.
        let all = unsafe { Shared::new(base, words, mapping) };
        Ok(Control {
            shipped: all.part(0, returned_at),
            returned: all.part(returned_at, words - returned_at),
        })
    }

    fn meeting(&self, end: &End, shipping: bool) -> Meeting {
        let (own, theirs) =
            if shipping { (PRODUCER_BELL, CONSUMER_BELL) } else { (CONSUMER_BELL, PRODUCER_BELL) };
        let bell = |index| Bell::new(self.shipped.clone(), index, end.fences);
        Meeting {
            link: end.link.clone(),
            counters: end.counters.clone(),
            how: end.wait,
            own_bell: bell(own),
            their_bell: bell(theirs),
            patience: AtomicU32::new(PATIENCE),
        }
    }
}

/// What the two lanes of an end share.
pub(crate) struct End {
    pub(crate) link: Arc<Link>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) wait: Wait,
    pub(crate) fences: bool,
}

/// Whether a hello says that its end seals what it ships.
pub(crate) fn is_sealed(hello: &Hello) -> bool {
    hello.flags & layout::FLAG_SEALED != 0
}
