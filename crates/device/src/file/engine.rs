//! The engine of a file device, which carries requests out: io_uring, threads, or both. Called by
//! [`super::File`].
//!
//! The engine is io_uring if that is available, otherwise threads, with the reason why. Discards and zeros of
//! a block device are ioctl(2)s, which io_uring does not have, so a block device has a thread beside
//! io_uring; an epoll(7) descriptor combines their descriptors.

use super::job::IoRequest;
use super::pool::Pool;
use super::ring::Ring;
use super::{CommonOptions, EngineKind};
use crate::error::Error;
use crate::region::{PinnedRegion, RegionId};
use crate::segment::Segment;
use rustix::event::epoll;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

pub(super) struct Engine {
    ring: Option<Ring>,
    pool: Option<Pool>,
    /// Descriptor of an epoll(7) instance over `ring` and `pool`, if the device has both.
    both: Option<OwnedFd>,
    /// Description of the engine in words.
    explained: String,
}

impl Engine {
    /// Makes an engine for requests on `file`, which must stay open until [`Engine::end`]. `bounce` is the
    /// device's bounce memory.
    pub(super) fn new(
        name: &str,
        manner: &CommonOptions<'_>,
        file: RawFd,
        is_block: bool,
        bounce: (*mut u8, usize),
    ) -> Result<Engine, Error> {
        let CommonOptions { depth, threads, engine: using, holder, .. } = *manner;
        let ring = match using {
            Some(EngineKind::Threads) => Err("as asked".to_owned()),
            _ => Ring::new(file, depth, bounce, holder),
        };
        match ring {
            Ok(ring) => {
                let pool = if is_block { Some(Pool::new(file, 1, depth, holder)?) } else { None };
                let both = pool.as_ref().map(|pool| both(&ring, pool)).transpose()?;
                let registers = ring.registers().map_or_else(|why| format!("; {why}"), |()| String::new());
                let explained = format!("by io_uring{registers}");
                Ok(Engine { ring: Some(ring), pool, both, explained })
            }
            Err(reason) if using == Some(EngineKind::Ring) => {
                let reason = format!("{reason}; leave the engine out, and threads do it");
                Err(Error::Unfit { what: name.to_owned(), reason })
            }
            Err(reason) => {
                let pool = Some(Pool::new(file, threads, depth, holder)?);
                let noun = if threads == 1 { "thread" } else { "threads" };
                let explained = format!("by {threads} {noun} ({reason})");
                Ok(Engine { ring: None, pool, both: None, explained })
            }
        }
    }

    /// Describes the engine in words, with the reason if it is not io_uring.
    pub(super) fn explain(&self) -> &str {
        &self.explained
    }

    /// Starts a request for a slot.
    #[inline]
    pub(super) fn start(&mut self, slot: u16, job: IoRequest) {
        match (&mut self.ring, &mut self.pool) {
            (Some(ring), None) => ring.start(slot, job),
            (Some(ring), Some(_)) if !job.is_ioctl() => ring.start(slot, job),
            (_, Some(pool)) => pool.start(slot, job),
            (None, None) => unreachable!("there is a ring or a pool"),
        }
    }

    /// Submits the requests that were started to the kernel.
    #[inline]
    pub(super) fn kick(&mut self) {
        if let Some(ring) = &mut self.ring {
            ring.kick();
        }
    }

    /// Reaps a completion: the slot, and the number of bytes or a negative errno(3).
    #[inline]
    pub(super) fn next(&mut self) -> Option<(u16, i32)> {
        let done = self.ring.as_mut().and_then(Ring::next);
        done.or_else(|| self.pool.as_mut().and_then(Pool::next))
    }

    /// Prepares the descriptor for sleeping; see [`Device::arm`](crate::Device::arm).
    pub(super) fn arm(&mut self) -> bool {
        // The ring and the threads are both armed, even if the ring has completions already.
        let ring = self.ring.as_mut().is_some_and(Ring::arm);
        let pool = self.pool.as_mut().is_some_and(Pool::arm);
        ring || pool
    }

    /// Returns the descriptor that becomes readable when a request completes.
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match (&self.both, &self.ring, &self.pool) {
            (Some(both), _, _) => Some(both.as_fd()),
            (None, Some(ring), _) => Some(ring.descriptor()),
            (None, None, pool) => pool.as_ref().map(Pool::descriptor),
        }
    }

    pub(super) fn buffer_of(&self, region: RegionId, segment: &Segment) -> Option<u16> {
        self.ring.as_ref()?.buffer_of(region, segment)
    }

    pub(super) fn registers(&self) -> bool {
        self.ring.as_ref().is_some_and(|ring| ring.registers().is_ok())
    }

    pub(super) fn register(&mut self, memory: &Arc<PinnedRegion>) -> Result<Option<RegionId>, Error> {
        self.ring.as_mut().map_or(Ok(None), |ring| ring.register(memory))
    }

    pub(super) fn unregister(&mut self, region: RegionId) {
        if let Some(ring) = &mut self.ring {
            ring.unregister(region);
        }
    }

    /// Waits until no request uses memory any more. Returns false if that cannot be established for io_uring.
    pub(super) fn end(&mut self) -> bool {
        if let Some(pool) = &mut self.pool {
            pool.end();
        }
        self.ring.as_mut().is_none_or(Ring::end)
    }
}

fn both(ring: &Ring, pool: &Pool) -> Result<OwnedFd, Error> {
    let made = epoll::create(epoll::CreateFlags::CLOEXEC).and_then(|both| {
        for descriptor in [ring.descriptor(), pool.descriptor()] {
            epoll::add(&both, descriptor, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        }
        Ok(both)
    });
    made.map_err(|error| Error::io("make a descriptor to wait for", error))
}
