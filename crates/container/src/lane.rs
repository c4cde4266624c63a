//! One direction of a path: the shipper allocates containers in its arena, the receiver returns them.

mod receiver;
mod shipper;

pub(crate) use receiver::Receiver;
pub(crate) use shipper::Shipper;

use crate::layout::{self, FLAG_SEALED};
use crate::stats::Counters;
use bywash_link::ring::layout::{CONSUMER_BELL, PRODUCER_BELL};
use bywash_link::ring::{Bell, Shared};
use bywash_link::{Error, Hello, Link, MemoryFile, Wait, Writers};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// State that one side of a lane needs to wait for the other side and to wake it.
pub(crate) type Meeting = bywash_link::RingWaiter<Counters>;

/// Control memory of a lane, divided into its two rings.
pub(crate) struct Control {
    pub(crate) shipped: Shared,
    pub(crate) returned: Shared,
}

impl Control {
    /// Creates the control memory of a lane that this end ships on, and the file to pass to the peer.
    pub(crate) fn create(depth: u32, tickets: u32) -> Result<(Control, MemoryFile), Error> {
        let (words, _) = layout::control_words(depth, tickets);
        let (file, all) = MemoryFile::create_words(words, Writers::Both)?;
        Ok((Control::split(&all, depth, tickets), file))
    }

    /// Maps the control memory of a lane that the peer ships on, after checking its size and seals.
    pub(crate) fn adopt(file: OwnedFd, hello: &Hello, link: &Link) -> Result<Control, Error> {
        let [depth, tickets] = hello.rings;
        let (words, _) = layout::control_words(depth, tickets);
        let all = MemoryFile::adopt_words(file, words)?.map_err(|what| link.accuse(what))?;
        Ok(Control::split(&all, depth, tickets))
    }

    fn split(all: &Shared, depth: u32, tickets: u32) -> Control {
        let (words, returned_at) = layout::control_words(depth, tickets);
        Control { shipped: all.part(0, returned_at), returned: all.part(returned_at, words - returned_at) }
    }

    fn meeting(&self, end: &LaneEnd, shipping: bool) -> Meeting {
        let (own, theirs) =
            if shipping { (PRODUCER_BELL, CONSUMER_BELL) } else { (CONSUMER_BELL, PRODUCER_BELL) };
        let bell = |index| Bell::new(self.shipped.clone(), index, end.fences);
        Meeting::new(end.link.clone(), end.counters.clone(), end.wait, bell(own), bell(theirs))
    }
}

/// State that the two lanes of an end share: the connection, the counters and the way of waiting.
pub(crate) struct LaneEnd {
    pub(crate) link: Arc<Link>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) wait: Wait,
    pub(crate) fences: bool,
}

/// Returns true if the hello message says that its end ships sealed containers.
pub(crate) fn is_sealed(hello: &Hello) -> bool {
    hello.flags & FLAG_SEALED != 0
}
