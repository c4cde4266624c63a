//! Handlers of the frontend's messages.
//!
//! Source: QEMU's docs/interop/vhost-user.rst. Invariant: a feature that was not offered is refused, and
//! every refusal ends the connection, since a frontend could not know afterwards which state holds. Objects
//! that a frontend passes are inspected, mapped and closed while its thread does not have the disk. Called by
//! the crate `vhost`, which reads and checks the messages themselves.

use crate::disk::Disk;
use crate::frontend::{Frontend, LockedDisk};
use crate::inflight;
use crate::layout::{self, EVENT_INDEX};
use crate::memory::Memory;
use crate::ring::{ENTRIES_MAX, EventCounter, Ring};
use bywash_device::Device;
use std::fs::File;
use std::io;
use std::sync::Arc;
use vhost::vhost_user::message::{
    VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags, VhostUserInflight,
    VhostUserLog, VhostUserMemoryRegion, VhostUserShMemConfig, VhostUserSharedMsg,
    VhostUserSingleMemoryRegion, VhostUserVringAddrFlags, VhostUserVringState,
};
use vhost::vhost_user::{
    Error, GpuBackend, Result, VhostUserBackendReqHandler, VhostUserProtocolFeatures, VhostUserVirtioFeatures,
};

/// Protocol features offered: access to the configuration space, several queues, a channel for notifications, a record
/// of requests in flight. The crate `vhost` adds acknowledgements.
const PROTOCOL: VhostUserProtocolFeatures = VhostUserProtocolFeatures::CONFIG
    .union(VhostUserProtocolFeatures::MQ)
    .union(VhostUserProtocolFeatures::BACKEND_REQ)
    .union(VhostUserProtocolFeatures::INFLIGHT_SHMFD);

const ENABLING: u64 = VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits();

fn refused(why: impl Into<String>) -> Error {
    Error::ReqHandlerError(io::Error::other(why.into()))
}

fn not_offered<T>(what: &'static str) -> Result<T> {
    Err(Error::InvalidOperation(what))
}

impl<D: Device> Disk<D> {
    fn offered(&self) -> u64 {
        layout::features(&self.geometry) | ENABLING
    }

    fn ring(&mut self, index: u32) -> Result<&mut Ring> {
        let queues = self.rings.len();
        let ring = usize::try_from(index).ok().and_then(|index| self.rings.get_mut(index));
        ring.ok_or_else(|| refused(format!("it names ring {index}, and there are {queues}")))
    }

    fn ring_and_memory(&mut self, index: u32) -> Result<(&mut Ring, &Memory)> {
        self.ring(index)?;
        let Disk { rings, memory, .. } = self;
        let memory =
            memory.as_ref().ok_or_else(|| refused("it speaks of rings before it has passed on memory"))?;
        // The ring exists, as `ring` has checked above.
        Ok((&mut rings[index as usize], memory))
    }

    /// Checks a request for a record of requests in flight, and returns its numbers of rings and of entries.
    fn recorded(&self, wanted: &VhostUserInflight) -> Result<(u16, u16)> {
        let (rings, entries) = (wanted.num_queues, wanted.queue_size);
        let there_are = self.rings.len();
        if rings == 0 || usize::from(rings) > there_are || entries == 0 || entries > ENTRIES_MAX {
            return Err(refused(format!(
                "it wants {rings} rings of {entries} entries on record, and there are {there_are} of up to {ENTRIES_MAX}"
            )));
        }
        Ok((rings, entries))
    }

    fn stop_all(&mut self) {
        self.drain(None);
        for ring in &mut self.rings {
            ring.stop();
            ring.enabled = false;
        }
    }
}

impl<D: Device + 'static> Frontend<D> {
    fn held(&self) -> Result<LockedDisk<'_, D>> {
        self.disk().ok_or_else(|| refused("the disk was taken back"))
    }

    fn event(file: Option<File>) -> Result<Option<EventCounter>> {
        EventCounter::from_file(file).map_err(refused)
    }
}

impl<D: Device + 'static> VhostUserBackendReqHandler for Frontend<D> {
    fn set_owner(&self) -> Result<()> {
        Ok(())
    }

    fn reset_owner(&self) -> Result<()> {
        self.held()?.stop_all();
        self.flush_pending();
        Ok(())
    }

    fn reset_device(&self) -> Result<()> {
        let mut disk = self.held()?;
        disk.stop_all();
        disk.agreed = 0;
        drop(disk);
        self.flush_pending();
        Ok(())
    }

    fn get_features(&self) -> Result<u64> {
        Ok(self.held()?.offered())
    }

    fn set_features(&self, features: u64) -> Result<()> {
        let mut disk = self.held()?;
        let offered = disk.offered();
        if features & !offered != 0 {
            return Err(refused(format!("it wants features {features:#x}, offered were {offered:#x}")));
        }
        disk.agreed = features;
        for ring in &mut disk.rings {
            ring.set_event_index(features & EVENT_INDEX != 0);
            // A driver that cannot enable rings gets them enabled.
            ring.enabled |= features & ENABLING == 0;
        }
        Ok(())
    }

    fn set_mem_table(
        &self,
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _: Option<bool>,
    ) -> Result<Option<Vec<u64>>> {
        let memory = Memory::adopt(regions, files, self.memory_bytes_max).map_err(refused)?;
        let mut disk = self.held()?;
        for ring in &mut disk.rings {
            ring.check(memory.map()).map_err(refused)?;
        }
        disk.set_memory(memory);
        drop(disk);
        self.flush_pending();
        Ok(None)
    }

    fn set_vring_num(&self, index: u32, entries: u32) -> Result<()> {
        let mut disk = self.held()?;
        let ring = disk.ring(index)?;
        if ring.is_live() {
            return Err(refused("it changes the size of a ring that is in use"));
        }
        ring.set_entries(entries).map_err(refused)
    }

    fn set_vring_addr(
        &self,
        index: u32,
        _: VhostUserVringAddrFlags,
        descriptor: u64,
        used: u64,
        available: u64,
        _: u64,
    ) -> Result<()> {
        let mut disk = self.held()?;
        let (ring, memory) = disk.ring_and_memory(index)?;
        ring.place(descriptor, available, used, memory).map_err(refused)
    }

    fn set_vring_base(&self, index: u32, base: u32) -> Result<()> {
        self.held()?.ring(index)?.set_next(base).map_err(refused)
    }

    fn get_vring_base(&self, index: u32) -> Result<VhostUserVringState> {
        let mut disk = self.held()?;
        disk.ring(index)?;
        // A frontend that stops a ring may free the memory afterwards, so its requests must complete before
        // the reply.
        disk.drain(Some(index as usize));
        let next = disk.ring(index)?.stop();
        drop(disk);
        // A frontend that has stopped a ring no longer waits for its notifications, so they are sent now.
        self.flush_pending();
        Ok(VhostUserVringState::new(index, next.into()))
    }

    fn set_vring_kick(&self, index: u8, file: Option<File>) -> Result<()> {
        let kick = Self::event(file)?;
        let mut disk = self.held()?;
        let (ring, memory) = disk.ring_and_memory(index.into())?;
        ring.start(kick, memory.map()).map_err(refused)
    }

    fn set_vring_call(&self, index: u8, file: Option<File>) -> Result<()> {
        let call = Self::event(file)?.map(Arc::new);
        self.held()?.ring(index.into())?.set_call(call.clone());
        // The guest may have missed chains that an earlier server of this ring returned before this
        // descriptor came.
        if let Some(call) = call {
            call.signal();
        }
        Ok(())
    }

    fn set_vring_err(&self, index: u8, file: Option<File>) -> Result<()> {
        let error = Self::event(file)?;
        self.held()?.ring(index.into())?.set_error(error);
        Ok(())
    }

    fn get_protocol_features(&self) -> Result<VhostUserProtocolFeatures> {
        Ok(PROTOCOL)
    }

    fn set_protocol_features(&self, features: u64) -> Result<()> {
        let offered = PROTOCOL | VhostUserProtocolFeatures::REPLY_ACK;
        if features & !offered.bits() != 0 {
            let offered = offered.bits();
            return Err(refused(format!(
                "it wants protocol features {features:#x}, offered were {offered:#x}"
            )));
        }
        self.accept(VhostUserProtocolFeatures::from_bits_truncate(features));
        Ok(())
    }

    fn get_queue_num(&self) -> Result<u64> {
        Ok(self.held()?.rings.len() as u64)
    }

    fn set_vring_enable(&self, index: u32, enable: bool) -> Result<()> {
        self.held()?.ring(index)?.enabled = enable;
        Ok(())
    }

    fn get_config(&self, offset: u32, size: u32, _: VhostUserConfigFlags) -> Result<Vec<u8>> {
        let configuration = self.held()?.configuration(offset, size);
        configuration.ok_or_else(|| refused("it asks for more configuration than there is"))
    }

    fn set_config(&self, _: u32, _: &[u8], _: VhostUserConfigFlags) -> Result<()> {
        // The only field that a guest could write switches the write cache, and that feature was not offered.
        not_offered("the configuration cannot be written")
    }

    fn set_gpu_socket(&self, _: GpuBackend) -> Result<()> {
        not_offered("a disk has no display")
    }

    fn get_shared_object(&self, _: VhostUserSharedMsg) -> Result<File> {
        not_offered("shared objects were not offered")
    }

    fn get_inflight_fd(&self, wanted: &VhostUserInflight) -> Result<(VhostUserInflight, File)> {
        let (rings, entries) = self.held()?.recorded(wanted)?;
        let file = inflight::create(rings, entries).map_err(refused)?;
        let bytes = inflight::bytes_needed(rings, entries);
        Ok((VhostUserInflight::new(bytes, 0, rings, entries), file))
    }

    fn set_inflight_fd(&self, given: &VhostUserInflight, file: File) -> Result<()> {
        let (rings, entries) = self.held()?.recorded(given)?;
        let records = inflight::adopt(file, given.mmap_offset, rings, entries).map_err(refused)?;
        let mut disk = self.held()?;
        for (index, record) in records.into_iter().enumerate() {
            if let Some(before) = disk.rings[index].set_record(record).map_err(refused)? {
                disk.keep(before);
            }
        }
        drop(disk);
        self.flush_pending();
        Ok(())
    }

    fn get_max_mem_slots(&self) -> Result<u64> {
        not_offered("single regions of memory were not offered")
    }

    fn add_mem_region(
        &self,
        _: &VhostUserSingleMemoryRegion,
        _: File,
        _: Option<bool>,
    ) -> Result<Option<u64>> {
        not_offered("single regions of memory were not offered")
    }

    fn remove_mem_region(&self, _: &VhostUserSingleMemoryRegion) -> Result<()> {
        not_offered("single regions of memory were not offered")
    }

    fn set_device_state_fd(
        &self,
        _: VhostTransferStateDirection,
        _: VhostTransferStatePhase,
        _: File,
    ) -> Result<Option<File>> {
        not_offered("migration was not offered")
    }

    fn check_device_state(&self) -> Result<()> {
        not_offered("migration was not offered")
    }

    fn get_shmem_config(&self) -> Result<VhostUserShMemConfig> {
        not_offered("shared memory was not offered")
    }

    fn set_log_base(&self, _: &VhostUserLog, _: File) -> Result<()> {
        not_offered("a log of written memory was not offered")
    }
}
