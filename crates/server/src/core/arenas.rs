//! Registration of clients' arenas with devices. For memory that is used again and again, it saves the kernel
//! from looking up the pages for each command, or a device that the server drives by itself from copying the data.
//!
//! ```text
//!   a client has moved enough bytes outside of pinned memory ──► a helper of its user pins the arena (milliseconds)
//!                                                     core ◄── an order with what is pinned
//!   its next command at each device with that pinner ──► the device refers to what is pinned (some 10 us)
//! ```
//!
//! Enough bytes are, for devices whose commands may use any memory (io_uring), twice the arena's size, once; for devices
//! that copy the data of other memory (DMA), the first command's, and then as many as are pinned already, so that pinning
//! takes less time than copying did ([`super::pins`]).
//!
//! The pinned part is the longest part of the arena that is known to be backed by pages. Commands with other memory
//! are carried out all the same.
//!
//! Invariant: the core never pins or unpins pages. A helper pins them, and the pinned region is kept with the
//! client's channel. When the channel goes, every device first forgets the region, and then a helper of the
//! client's user drops it. Pinned memory is part of the user's arenas, whose whole size counts against the
//! user's limit, used or not.

use crate::core::Core;
use crate::core::client::{Channel, Client, DeviceMember, Registration};
use crate::core::disk::ServedDevice;
use crate::core::order::{ClientKey, CoreHandle, CoreOrder};
use crate::core::pins::{ArenaPins, Pinned, is_same};
use crate::core::work::{Origin, RequestState, Slice};
use crate::helpers::{CLOSING_LIMIT, DropByHelper, Helpers};
use bywash_channel::{BufferAccess, RequestBuffer};
use bywash_device::{Error, Operation, PinnedRegion, Pinner, Region, RegionId};
use slab::Slab;
use std::sync::Arc;

/// Memory that a helper is to pin.
pub(crate) struct PinOrder {
    arena: Arc<BufferAccess>,
    pinner: Arc<dyn Pinner>,
    /// Number of bytes that are pinned already.
    pinned_bytes: usize,
}

impl Client {
    /// Returns the region that a device has registered for the client's arena, or `None` if the device uses
    /// unregistered memory. Registers a pinned arena on the client's first command.
    #[inline]
    pub(crate) fn region(&mut self, device: usize, disk: &mut ServedDevice) -> Option<RegionId> {
        let pinner = disk.pinner.as_ref()?;
        let member = self.members.get_mut(device)?.as_mut()?;
        match member.arena {
            Registration::Registered(arena) => Some(arena.region),
            Registration::Refused => None,
            Registration::Unknown => {
                let mut pins = self.channel.as_ref()?.pins.iter();
                let memory = pins.find(|pins| pins.is_by(pinner))?.pinned()?;
                member.arena = disk.register(memory);
                self.region(device, disk)
            }
        }
    }

    /// Returns the region that a device has registered with this memory, or `Some(None)` if the device registers no memory.
    /// `None` if it does, and the memory is in no region: then the bytes that are moved have to be counted.
    #[inline(always)]
    pub(crate) fn plain_region(
        &self,
        device: usize,
        disk: &ServedDevice,
        memory: &RequestBuffer<'_>,
    ) -> Option<Option<RegionId>> {
        if disk.pinner.is_none() {
            return Some(None);
        }
        match self.members.get(device) {
            Some(Some(DeviceMember { arena: Registration::Registered(arena), .. }))
                if arena.contains(memory.as_ptr().addr(), memory.len() as u64) =>
            {
                Some(Some(arena.region))
            }
            _ => None,
        }
    }

    /// Counts the bytes of a slice that was submitted to a device that registers memory. Returns what is to be pinned,
    /// if it is time to.
    #[inline]
    pub(crate) fn note_moved(
        &mut self,
        device: usize,
        pinner: &Arc<dyn Pinner>,
        work: &RequestState,
        slice: &Slice,
    ) -> Option<PinOrder> {
        let is_moved =
            matches!(slice.operation, Operation::Read | Operation::Write | Operation::WriteDurable);
        let Origin::Client { request: Some(request), .. } = &work.origin else { return None };
        let channel = self.channel.as_mut().filter(|_| is_moved)?;
        let member = self.members.get(device)?.as_ref()?;
        if let Registration::Registered(arena) = member.arena {
            let base = channel.server.memory(request).as_ptr().addr() + slice.buffer_offset;
            if arena.contains(base, slice.length) {
                return None;
            }
        }
        channel.note_moved(pinner, slice.length)
    }

    /// Has all devices forget the client's arena.
    pub(crate) fn forget_arena(&mut self, disks: &mut Slab<ServedDevice>) {
        self.forget_regions(disks, |_| true, Registration::Refused);
    }

    /// Has a device that is removed forget the client and its arena.
    pub(crate) fn leave_device(&mut self, number: usize, disk: &mut ServedDevice) {
        let member = self.members.get_mut(number).and_then(Option::take);
        if let Some(Registration::Registered(arena)) = member.map(|member| member.arena) {
            disk.device.unregister(arena.region);
        }
    }

    /// Has the devices that `concerns` names forget the client's arena; their registration becomes `then`.
    fn forget_regions(
        &mut self,
        disks: &mut Slab<ServedDevice>,
        concerns: impl Fn(&ServedDevice) -> bool,
        then: Registration,
    ) {
        for (device, member) in self.members.iter_mut().enumerate() {
            if let (Some(member), Some(disk)) = (member, disks.get_mut(device))
                && let Registration::Registered(arena) = member.arena
                && concerns(disk)
            {
                disk.device.unregister(arena.region);
                member.arena = then;
            }
        }
    }
}

impl Channel {
    /// Counts bytes that were moved outside of the memory that `pinner` has pinned.
    fn note_moved(&mut self, pinner: &Arc<dyn Pinner>, bytes: u64) -> Option<PinOrder> {
        let index = self.pins.iter().position(|pins| pins.is_by(pinner));
        let index = index.unwrap_or_else(|| {
            self.pins.push(ArenaPins::new(pinner.clone()));
            self.pins.len() - 1
        });
        let pins = &mut self.pins[index];
        if !pins.is_due(bytes, self.memories.arena_bytes() as u64) {
            return None;
        }
        let (arena, pinner) = (self.memories.clone(), pinner.clone());
        Some(PinOrder { arena, pinner, pinned_bytes: pins.pinned_bytes() })
    }
}

impl Core {
    /// Carries out [`CoreOrder::Pinned`]: keeps the part of an arena that a helper has pinned.
    #[cold]
    pub(super) fn pinned(&mut self, key: ClientKey, pinner: &Arc<dyn Pinner>, pinned: Pinned) {
        let Core { clients, disks, helpers, .. } = self;
        let concerns = |disk: &ServedDevice| disk.pinner.as_ref().is_some_and(|other| is_same(other, pinner));
        let mut memory = match pinned {
            Ok(memory) => memory,
            Err(error) => return disks.iter_mut().for_each(|(_, disk)| disk.note_unpinned(pinner, &error)),
        };
        // If the client has left meanwhile, or the device, dropping `memory` has a helper unpin it.
        let Some(client) = clients.get_mut(key.slot).filter(|client| client.number == key.number) else {
            return;
        };
        let pins = client.channel.as_mut().map(|channel| channel.pins.iter_mut());
        let pins = pins.and_then(|mut pins| pins.find(|pins| pins.is_by(pinner)));
        let Some(pins) = pins else { return };
        match memory.as_mut().and_then(DropByHelper::take) {
            Some(memory) => pins.replace(memory),
            // There is not more than before.
            None => return pins.note_unchanged(),
        }
        client.forget_regions(disks, concerns, Registration::Unknown);
        let pins = client.channel.iter_mut().flat_map(|channel| &mut channel.pins);
        let unused: Vec<_> = pins.flat_map(ArenaPins::take_unused).collect();
        if !unused.is_empty() {
            helpers.drop_later(client.uid, unused);
        }
    }

    /// Has helpers unpin what is pinned for a pinner that no device has any more.
    #[cold]
    pub(super) fn forget_pinner(&mut self, pinner: &Arc<dyn Pinner>) {
        let mut others = self.disks.iter().filter_map(|(_, disk)| disk.pinner.as_ref());
        if others.any(|other| is_same(other, pinner)) {
            return;
        }
        for (_, client) in &mut self.clients {
            let Some(channel) = &mut client.channel else { continue };
            let gone: Vec<_> = channel.pins.extract_if(.., |pins| pins.is_by(pinner)).collect();
            if !gone.is_empty() {
                self.helpers.drop_later(client.uid, gone);
            }
        }
    }
}

impl ServedDevice {
    /// Says once that the arenas of clients cannot be pinned, if that makes the device copy their data.
    fn note_unpinned(&mut self, pinner: &Arc<dyn Pinner>, error: &Error) {
        if self.pinner.as_ref().is_none_or(|own| !is_same(own, pinner)) {
            return;
        }
        if pinner.copies_unregistered() && !std::mem::replace(&mut self.has_warned, true) {
            tracing::warn!("device {}: data of clients is copied: {error}", self.name);
        } else {
            tracing::debug!("device {}: an arena is not registered: {error}", self.name);
        }
    }
}

/// Has a helper pin a client's arena.
#[cold]
pub(super) fn have_pinned(
    uid: u32,
    client: ClientKey,
    order: PinOrder,
    helpers: &Helpers,
    orders: &CoreHandle,
) {
    let (by, orders) = (helpers.clone(), orders.clone());
    helpers.spawn(uid, CLOSING_LIMIT, move || {
        let PinOrder { arena, pinner, pinned_bytes } = order;
        let memory = pin(arena, &*pinner, pinned_bytes);
        let memory = memory.map(|memory| memory.map(|memory| DropByHelper::new(Arc::new(memory), uid, by)));
        // The send fails only if the core has stopped.
        let _ = orders.send(CoreOrder::Pinned { client, pinner, memory });
    });
}

/// Pins the longest part of an arena that is known to be backed by pages: pinning a hole would allocate memory at the
/// server's expense. Returns `None` if it is no longer than `pinned_bytes`.
#[expect(unsafe_code, reason = "the kernel is told where a client's arena is")]
fn pin(
    arena: Arc<BufferAccess>,
    pinner: &dyn Pinner,
    pinned_bytes: usize,
) -> Result<Option<PinnedRegion>, Error> {
    let (base, bytes) = match arena.used() {
        Some(used) if used.len() > pinned_bytes => (used.as_ptr(), used.len()),
        _ => return Ok(None),
    };
    // SAFETY: the region lies within the arena. The arena is mapped for reading and writing while `BufferAccess` lives;
    // the region keeps `BufferAccess` alive, and no reference to that memory exists.
    unsafe { Region::new(base, bytes, arena) }.pin(pinner).map(Some)
}
