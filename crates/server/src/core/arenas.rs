//! Clients' arenas, as devices know them: memory that is used again and again is registered with them, which saves the
//! kernel looking up its pages for each command.
//!
//! ```text
//!   a client has moved its arena's bytes MOVED_FACTOR times ──► a helper of its user pins the arena (milliseconds)
//!                                                     core ◄── an order with what is pinned
//!   its next command at each device ──► the device refers to what is pinned (some 10 us)
//! ```
//!
//! What is pinned is the longest part of the arena of which all memory has come with requests; of others the kernel looks up
//! the pages each time, as before.
//!
//! Invariant: the core never takes or lets go of pages. A helper pins them, and what is pinned is kept beside the client's
//! channel until that goes, after every device has forgotten it, to a helper of the user's. Pinned memory is memory of the
//! user's arenas, which limits count whether it is used or not.

use crate::core::Core;
use crate::core::client::{Channel, Client};
use crate::core::disk::Disk;
use crate::core::order::{ClientKey, Order, Orders};
use crate::helpers::{CLOSING_LIMIT, Foreign, Helpers};
use bywash_channel::Memories;
use bywash_device::{Error, Pinned, Region, RegionId};
use slab::Slab;
use std::sync::Arc;

/// Times that the bytes of an arena are moved before it is pinned: then that has cost less than to go on without.
const MOVED_FACTOR: u64 = 2;
/// Largest arena that is pinned: one of which more is never used would be held in memory for little.
const ARENA_MAX: u64 = 64 << 20;

/// A client's arena, for devices that register memory.
#[derive(Debug)]
pub(crate) enum Arena {
    /// Bytes that were moved between it and such devices.
    Moved(u64),
    /// A helper pins it, or it cannot be pinned.
    Left,
    Pinned(Arc<Pinned>),
}

/// A client's arena at one device.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AtDevice {
    /// It was not pinned yet.
    Unknown,
    Registered(RegionId),
    /// The device does not take it.
    Refused,
}

impl Client {
    /// Returns the number by which a device knows the client's arena, or `None` if it has to look up pages.
    #[inline]
    pub(crate) fn region(&mut self, device: usize, disk: &mut Disk) -> Option<RegionId> {
        if !disk.registers {
            return None;
        }
        let member = self.members.get_mut(device)?.as_mut()?;
        match (&member.arena, &self.channel.as_ref()?.arena) {
            (AtDevice::Registered(region), _) => Some(*region),
            (AtDevice::Unknown, Arena::Pinned(memory)) => {
                member.arena = disk.register(memory);
                self.region(device, disk)
            }
            _ => None,
        }
    }

    /// Notes that bytes are moved by a device that registers memory; answers the arena, once, when it is to be pinned.
    #[inline]
    pub(crate) fn note_moved(&mut self, bytes: u64) -> Option<Arc<Memories>> {
        let channel = self.channel.as_mut()?;
        let Arena::Moved(moved) = &mut channel.arena else { return None };
        *moved += bytes;
        let arena = channel.memories.arena_bytes() as u64;
        if *moved < MOVED_FACTOR * arena {
            return None;
        }
        channel.arena = Arena::Left;
        (arena <= ARENA_MAX).then(|| channel.memories.clone())
    }

    /// Has all devices forget the client's arena.
    pub(crate) fn forget_arena(&mut self, disks: &mut Slab<Disk>) {
        for (device, member) in self.members.iter_mut().enumerate() {
            if let (Some(member), Some(disk)) = (member, disks.get_mut(device))
                && let AtDevice::Registered(region) = member.arena
            {
                disk.device.unregister(region);
                member.arena = AtDevice::Refused;
            }
        }
    }
}

impl Core {
    /// A helper has pinned a client's arena.
    #[cold]
    pub(super) fn pinned(&mut self, key: ClientKey, mut memory: Foreign<Arc<Pinned>>) {
        let client = self.clients.get_mut(key.slot).filter(|client| client.number == key.number);
        // Of one that has left meanwhile a helper drops it.
        if let Some(Channel { arena, .. }) = client.and_then(|client| client.channel.as_mut())
            && let Some(memory) = memory.take()
        {
            *arena = Arena::Pinned(memory);
        }
    }
}

/// Has a helper pin a client's arena.
#[cold]
pub(super) fn have_pinned(
    uid: u32,
    client: ClientKey,
    arena: Arc<Memories>,
    helpers: &Helpers,
    orders: &Orders,
) {
    let (by, orders) = (helpers.clone(), orders.clone());
    helpers.give(uid, CLOSING_LIMIT, move || match pin(arena) {
        Ok(memory) => {
            let memory = Foreign::new(Arc::new(memory), uid, by);
            // A core that has stopped has no use for it.
            let _ = orders.send(Order::Pinned { client, memory });
        }
        Err(error) => tracing::debug!("the arena of a client of user {uid} is not registered: {error}"),
    });
}

#[expect(unsafe_code, reason = "the kernel is told where a client's arena is")]
fn pin(arena: Arc<Memories>) -> Result<Pinned, Error> {
    // No more: to pin what nobody has touched would take memory at the server's expense.
    let (base, bytes) = arena.used().map_or((std::ptr::null_mut(), 0), |used| (used.as_ptr(), used.len()));
    // SAFETY: the arena is mapped for reading and writing as long as `Memories` is there, and no reference leads there.
    unsafe { Region::new(base, bytes, arena) }.pin()
}
