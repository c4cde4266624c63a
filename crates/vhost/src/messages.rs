//! What a frontend says, and what is made of it.
//!
//! Source: QEMU's docs/interop/vhost-user.rst. Invariant: what was not offered is refused, and whatever is refused ends
//! the connection: a frontend that goes on after that would not know what holds. Called by `vhost`, which reads and
//! checks the messages themselves.

use crate::disk::Disk;
use crate::layout::{self, EVENT_INDEX};
use crate::medium::Medium;
use crate::memory::Memory;
use crate::record;
use crate::ring::{ENTRIES_MAX, Ring};
use std::fs::File;
use std::io;
use vhost::vhost_user::message::{
    VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags, VhostUserInflight,
    VhostUserLog, VhostUserMemoryRegion, VhostUserShMemConfig, VhostUserSharedMsg,
    VhostUserSingleMemoryRegion, VhostUserVringAddrFlags, VhostUserVringState,
};
use vhost::vhost_user::{
    Error, GpuBackend, Result, VhostUserBackendReqHandlerMut, VhostUserProtocolFeatures,
    VhostUserVirtioFeatures,
};

/// Of the protocol's own: configuration space, several queues, a record of what is under way. Acknowledgements come with
/// the crate that reads messages.
const PROTOCOL: VhostUserProtocolFeatures = VhostUserProtocolFeatures::CONFIG
    .union(VhostUserProtocolFeatures::MQ)
    .union(VhostUserProtocolFeatures::INFLIGHT_SHMFD);

const ENABLING: u64 = VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits();

fn refused(why: impl Into<String>) -> Error {
    Error::ReqHandlerError(io::Error::other(why.into()))
}

fn not_offered<T>(what: &'static str) -> Result<T> {
    Err(Error::InvalidOperation(what))
}

impl<M: Medium> Disk<M> {
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
        // There is such a ring, as was just seen.
        Ok((&mut rings[index as usize], memory))
    }

    /// Rings and entries of a record of what is under way.
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

impl<M: Medium> VhostUserBackendReqHandlerMut for Disk<M> {
    fn set_owner(&mut self) -> Result<()> {
        Ok(())
    }

    fn reset_owner(&mut self) -> Result<()> {
        self.stop_all();
        Ok(())
    }

    fn reset_device(&mut self) -> Result<()> {
        self.stop_all();
        self.agreed = 0;
        Ok(())
    }

    fn get_features(&mut self) -> Result<u64> {
        Ok(self.offered())
    }

    fn set_features(&mut self, features: u64) -> Result<()> {
        if features & !self.offered() != 0 {
            return Err(refused(format!(
                "it wants features {features:#x}, offered were {:#x}",
                self.offered()
            )));
        }
        self.agreed = features;
        for ring in &mut self.rings {
            ring.set_event_index(features & EVENT_INDEX != 0);
            // Who cannot enable rings has them enabled.
            ring.enabled |= features & ENABLING == 0;
        }
        Ok(())
    }

    fn set_mem_table(
        &mut self,
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _: Option<bool>,
    ) -> Result<Option<Vec<u64>>> {
        let memory = Memory::adopt(regions, files, self.face.memory_bytes_max).map_err(refused)?;
        for ring in &mut self.rings {
            ring.check(memory.map()).map_err(refused)?;
        }
        self.memory = Some(memory);
        Ok(None)
    }

    fn set_vring_num(&mut self, index: u32, entries: u32) -> Result<()> {
        let ring = self.ring(index)?;
        if ring.is_live() {
            return Err(refused("it changes the size of a ring that is in use"));
        }
        ring.set_entries(entries).map_err(refused)
    }

    fn set_vring_addr(
        &mut self,
        index: u32,
        _: VhostUserVringAddrFlags,
        descriptor: u64,
        used: u64,
        available: u64,
        _: u64,
    ) -> Result<()> {
        let (ring, memory) = self.ring_and_memory(index)?;
        ring.place(descriptor, available, used, memory).map_err(refused)
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> Result<()> {
        self.ring(index)?.set_next(base).map_err(refused)
    }

    fn get_vring_base(&mut self, index: u32) -> Result<VhostUserVringState> {
        self.ring(index)?;
        // Whoever stops a ring may take the memory away afterwards.
        self.drain(Some(index as usize));
        let next = self.ring(index)?.stop();
        Ok(VhostUserVringState::new(index, next.into()))
    }

    fn set_vring_kick(&mut self, index: u8, file: Option<File>) -> Result<()> {
        let (ring, memory) = self.ring_and_memory(index.into())?;
        ring.start(file, memory.map()).map_err(refused)
    }

    fn set_vring_call(&mut self, index: u8, file: Option<File>) -> Result<()> {
        self.ring(index.into())?.set_call(file).map_err(refused)
    }

    fn set_vring_err(&mut self, index: u8, file: Option<File>) -> Result<()> {
        self.ring(index.into())?.set_error(file).map_err(refused)
    }

    fn get_protocol_features(&mut self) -> Result<VhostUserProtocolFeatures> {
        Ok(PROTOCOL)
    }

    fn set_protocol_features(&mut self, features: u64) -> Result<()> {
        let offered = PROTOCOL | VhostUserProtocolFeatures::REPLY_ACK;
        if features & !offered.bits() != 0 {
            let offered = offered.bits();
            return Err(refused(format!(
                "it wants protocol features {features:#x}, offered were {offered:#x}"
            )));
        }
        Ok(())
    }

    fn get_queue_num(&mut self) -> Result<u64> {
        Ok(self.rings.len() as u64)
    }

    fn set_vring_enable(&mut self, index: u32, enable: bool) -> Result<()> {
        self.ring(index)?.enabled = enable;
        Ok(())
    }

    fn get_config(&mut self, offset: u32, size: u32, _: VhostUserConfigFlags) -> Result<Vec<u8>> {
        self.configuration(offset, size)
            .ok_or_else(|| refused("it asks for more configuration than there is"))
    }

    fn set_config(&mut self, _: u32, _: &[u8], _: VhostUserConfigFlags) -> Result<()> {
        // All that a guest could write is whether there is a cache, and that was not offered.
        not_offered("the configuration cannot be written")
    }

    fn set_gpu_socket(&mut self, _: GpuBackend) -> Result<()> {
        not_offered("a disk has no display")
    }

    fn get_shared_object(&mut self, _: VhostUserSharedMsg) -> Result<File> {
        not_offered("shared objects were not offered")
    }

    fn get_inflight_fd(&mut self, wanted: &VhostUserInflight) -> Result<(VhostUserInflight, File)> {
        let (rings, entries) = self.recorded(wanted)?;
        let file = record::create(rings, entries).map_err(refused)?;
        let bytes = record::bytes_needed(rings, entries);
        Ok((VhostUserInflight::new(bytes, 0, rings, entries), file))
    }

    fn set_inflight_fd(&mut self, given: &VhostUserInflight, file: File) -> Result<()> {
        let (rings, entries) = self.recorded(given)?;
        let records = record::adopt(file, given.mmap_offset, rings, entries).map_err(refused)?;
        for (ring, record) in self.rings.iter_mut().zip(records) {
            ring.set_record(record).map_err(refused)?;
        }
        Ok(())
    }

    fn get_max_mem_slots(&mut self) -> Result<u64> {
        not_offered("single regions of memory were not offered")
    }

    fn add_mem_region(
        &mut self,
        _: &VhostUserSingleMemoryRegion,
        _: File,
        _: Option<bool>,
    ) -> Result<Option<u64>> {
        not_offered("single regions of memory were not offered")
    }

    fn remove_mem_region(&mut self, _: &VhostUserSingleMemoryRegion) -> Result<()> {
        not_offered("single regions of memory were not offered")
    }

    fn set_device_state_fd(
        &mut self,
        _: VhostTransferStateDirection,
        _: VhostTransferStatePhase,
        _: File,
    ) -> Result<Option<File>> {
        not_offered("migration was not offered")
    }

    fn check_device_state(&mut self) -> Result<()> {
        not_offered("migration was not offered")
    }

    fn get_shmem_config(&mut self) -> Result<VhostUserShMemConfig> {
        not_offered("shared memory was not offered")
    }

    fn set_log_base(&mut self, _: &VhostUserLog, _: File) -> Result<()> {
        not_offered("a log of written memory was not offered")
    }
}
