//! Registration of clients' arenas with devices. For memory that is used again and again, it saves the kernel
//! from looking up the pages for each command.
//!
//! ```text
//!   a client has moved its arena's bytes MOVED_FACTOR times ──► a helper of its user pins the arena (milliseconds)
//!                                                     core ◄── an order with what is pinned
//!   its next command at each device ──► the device refers to what is pinned (some 10 us)
//! ```
//!
//! The pinned part is the longest part of the arena that is known to be backed by pages. For other memory the
//! kernel looks up the pages for each command.
//!
//! Invariant: the core never pins or unpins pages. A helper pins them, and the pinned region is kept with the
//! client's channel. When the channel goes, every device first forgets the region, and then a helper of the
//! client's user drops it. Pinned memory is part of the user's arenas, whose whole size counts against the
//! user's limit, used or not.

use crate::core::Core;
use crate::core::client::{ArenaState, Channel, Client, Registration};
use crate::core::disk::ServedDevice;
use crate::core::order::{ClientKey, CoreHandle, CoreOrder};
use crate::helpers::{CLOSING_LIMIT, DropByHelper, Helpers};
use bywash_channel::BufferAccess;
use bywash_device::{Error, PinnedRegion, Region, RegionId};
use slab::Slab;
use std::sync::Arc;

/// Number of times that an arena's size is moved before the arena is pinned: from then on pinning is cheaper
/// than looking up pages.
const MOVED_FACTOR: u64 = 2;
/// Greatest size of an arena that is pinned, in bytes: larger ones would pin much memory that is rarely used.
const ARENA_MAX: u64 = 64 << 20;

impl Client {
    /// Returns the region that a device has registered for the client's arena, or `None` if the device uses
    /// unregistered memory. Registers a pinned arena on the client's first command.
    #[inline]
    pub(crate) fn region(&mut self, device: usize, disk: &mut ServedDevice) -> Option<RegionId> {
        if !disk.registers {
            return None;
        }
        let member = self.members.get_mut(device)?.as_mut()?;
        match (&member.arena, &self.channel.as_ref()?.arena) {
            (Registration::Registered(region), _) => Some(*region),
            (Registration::Unknown, ArenaState::Pinned(memory)) => {
                member.arena = disk.register(memory);
                self.region(device, disk)
            }
            _ => None,
        }
    }

    /// Counts bytes that a device that registers memory has moved. Returns the arena, once, when it is to be
    /// pinned.
    #[inline]
    pub(crate) fn note_moved(&mut self, bytes: u64) -> Option<Arc<BufferAccess>> {
        let channel = self.channel.as_mut()?;
        let ArenaState::Moved(moved) = &mut channel.arena else { return None };
        *moved += bytes;
        let arena = channel.memories.arena_bytes() as u64;
        if *moved < MOVED_FACTOR * arena {
            return None;
        }
        channel.arena = ArenaState::Left;
        (arena <= ARENA_MAX).then(|| channel.memories.clone())
    }

    /// Has all devices forget the client's arena.
    pub(crate) fn forget_arena(&mut self, disks: &mut Slab<ServedDevice>) {
        for (device, member) in self.members.iter_mut().enumerate() {
            if let (Some(member), Some(disk)) = (member, disks.get_mut(device))
                && let Registration::Registered(region) = member.arena
            {
                disk.device.unregister(region);
                member.arena = Registration::Refused;
            }
        }
    }
}

impl Core {
    /// Carries out [`CoreOrder::Pinned`]: keeps the arena that a helper has pinned.
    #[cold]
    pub(super) fn pinned(&mut self, key: ClientKey, mut memory: DropByHelper<Arc<PinnedRegion>>) {
        let client = self.clients.get_mut(key.slot).filter(|client| client.number == key.number);
        // If the client has left meanwhile, dropping `memory` has a helper unpin it.
        if let Some(Channel { arena, .. }) = client.and_then(|client| client.channel.as_mut())
            && let Some(memory) = memory.take()
        {
            *arena = ArenaState::Pinned(memory);
        }
    }
}

/// Has a helper pin a client's arena.
#[cold]
pub(super) fn have_pinned(
    uid: u32,
    client: ClientKey,
    arena: Arc<BufferAccess>,
    helpers: &Helpers,
    orders: &CoreHandle,
) {
    let (by, orders) = (helpers.clone(), orders.clone());
    helpers.spawn(uid, CLOSING_LIMIT, move || match pin(arena) {
        Ok(memory) => {
            let memory = DropByHelper::new(Arc::new(memory), uid, by);
            // The send fails only if the core has stopped.
            let _ = orders.send(CoreOrder::Pinned { client, memory });
        }
        Err(error) => tracing::debug!("the arena of a client of user {uid} is not registered: {error}"),
    });
}

#[expect(unsafe_code, reason = "the kernel is told where a client's arena is")]
fn pin(arena: Arc<BufferAccess>) -> Result<PinnedRegion, Error> {
    // Only the part that is known to be backed by pages: pinning a hole would allocate memory at the server's
    // expense.
    let (base, bytes) = arena.used().map_or((std::ptr::null_mut(), 0), |used| (used.as_ptr(), used.len()));
    // SAFETY: the region lies within the arena or is empty. The arena is mapped for reading and writing while
    // `BufferAccess` lives; the region keeps `BufferAccess` alive, and no reference to that memory exists.
    unsafe { Region::new(base, bytes, arena) }.pin()
}
