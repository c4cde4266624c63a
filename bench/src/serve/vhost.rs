//! Engine over a vhost-user-blk server: the driver's half of a split virtqueue (virtio 1.2, section 2.7) and of a block
//! device's requests (section 5.2.6), in memory that the server maps. The client polls for completions.
//!
//! ```text
//!   descriptors     16 bytes each: three for each tag
//!   available       flags, index, a ring of heads, the used index that wakes the driver
//!   used            flags, index, a ring of (head, length), the available index that wakes the device
//!   headers         16 bytes for each tag: in or out, sector
//!   statuses        a byte for each tag
//!   buffers         on pages of their own
//! ```
//!
//! A tag's three descriptors never change: its header, its buffer, its status. So a request writes a header, the buffer's
//! direction and one entry of the ring. The device is kicked only if it asked for that (`VIRTIO_RING_F_EVENT_IDX`, section
//! 2.7.10), and never asked to wake the driver.

use super::file::{Buffers, stride};
use super::workload::{DEPTH_MAX, Direction, Engine, Request, Tag, Workload};
use crate::error::{Attempt, Error};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::thread::sched_yield;
use std::fs::File;
use std::hint::spin_loop;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};
use vhost::vhost_user::message::{VhostUserConfigFlags, VhostUserProtocolFeatures, VhostUserVirtioFeatures};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use virtio_bindings::virtio_blk::{VIRTIO_BLK_S_OK, VIRTIO_BLK_T_IN, VIRTIO_BLK_T_OUT};
use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VRING_DESC_F_NEXT, VRING_DESC_F_WRITE};
use vm_memory::{AtomicAccess, Bytes, FileOffset, MmapRegion, VolatileMemory, VolatileSlice};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

/// Number of the queue that is used.
const QUEUE: usize = 0;
/// Size of a sector, in bytes, whatever the device's blocks are.
const SECTOR: u64 = 512;
const DESCRIPTOR_BYTES: usize = 16;
const DESCRIPTORS_PER_TAG: usize = 3;
const HEADER_BYTES: usize = 16;
/// Written by the driver where the device is to write a status.
const NO_STATUS: u8 = 0xff;
/// Number of completions after which the index that would wake the driver is moved on: half of what it can count.
const WAKE_BEHIND: u16 = 1 << 15;
/// Number of polls before the client yields its core.
const SPINS: u32 = 2000;
/// Interval of further kicks while nothing is completed. QEMU's libvhost-user states when it wants to be kicked and then
/// looks for more requests without a full barrier between (`vu_queue_pop`), so that it may miss one.
const KICK_AGAIN: Duration = Duration::from_millis(2);
/// Greatest latency of a request.
const LIMIT: Duration = Duration::from_secs(10);

// Offsets in the shared memory, with room for the greatest depth. Each side writes to pages of its own.
const AVAILABLE: usize = 0x2000;
const AVAILABLE_INDEX: usize = AVAILABLE + 2;
const USED: usize = 0x3000;
const USED_INDEX: usize = USED + 2;
const HEADERS: usize = 0x5000;
const STATUSES: usize = 0x6000;
const BUFFERS: usize = 0x7000;
const _: () = {
    let size = queue_size(DEPTH_MAX) as usize;
    assert!(size * DESCRIPTOR_BYTES <= AVAILABLE && AVAILABLE + 6 + 2 * size <= USED);
    assert!(USED + 6 + 8 * size <= HEADERS && HEADERS + HEADER_BYTES * DEPTH_MAX <= STATUSES);
    assert!(STATUSES + DEPTH_MAX <= BUFFERS);
};

/// Number of descriptors, a power of two.
const fn queue_size(depth: usize) -> u16 {
    (depth * DESCRIPTORS_PER_TAG).next_power_of_two() as u16
}

/// Virtqueue with the buffers of its requests.
struct Queue {
    buffers: Buffers,
    size: u16,
    /// Direction of each tag's buffer.
    directions: Vec<Direction>,
    /// Number of entries made available, also those that are not published.
    available: u16,
    published: u16,
    /// Number of entries taken back.
    used: u16,
    /// Used index at which the device was last told when to wake the driver.
    wake: u16,
}

impl Queue {
    fn new(workload: &Workload) -> Result<Queue, Error> {
        let memory = shared(BUFFERS + stride(workload.block) * workload.depth)?;
        let mut queue = Queue {
            buffers: Buffers::new(memory, BUFFERS, workload),
            size: queue_size(workload.depth),
            directions: vec![Direction::Read; workload.depth],
            available: 0,
            published: 0,
            used: 0,
            wake: 0,
        };
        (0..workload.depth as Tag).for_each(|tag| queue.describe(tag, workload.block));
        queue.wake_later();
        Ok(queue)
    }

    /// Writes a tag's three descriptors.
    fn describe(&self, tag: Tag, block: usize) {
        let (number, head) = (usize::from(tag), tag * DESCRIPTORS_PER_TAG as u16);
        let chain = [
            (HEADERS + number * HEADER_BYTES, HEADER_BYTES, VRING_DESC_F_NEXT),
            (self.buffers.offset(tag), block, VRING_DESC_F_NEXT | VRING_DESC_F_WRITE),
            (STATUSES + number, 1, VRING_DESC_F_WRITE),
        ];
        for (descriptor, (address, bytes, flags)) in (head..).zip(chain) {
            let at = usize::from(descriptor) * DESCRIPTOR_BYTES;
            self.store(at, address as u64, Relaxed);
            self.store(at + 8, bytes as u32, Relaxed);
            self.store(at + 12, flags as u16, Relaxed);
            self.store(at + 14, descriptor + 1, Relaxed);
        }
    }

    fn available_entry(&self, number: u16) -> usize {
        AVAILABLE + 4 + 2 * usize::from(number % self.size)
    }

    /// Offset of the used index at which the device wakes the driver.
    fn used_event(&self) -> usize {
        AVAILABLE + 4 + 2 * usize::from(self.size)
    }

    fn used_entry(&self, number: u16) -> usize {
        USED + 4 + 8 * usize::from(number % self.size)
    }

    /// Offset of the available index at which the driver wakes the device.
    fn available_event(&self) -> usize {
        USED + 4 + 8 * usize::from(self.size)
    }

    /// Adds a request, which the device sees after the next [`Queue::publish`].
    fn push(&mut self, request: Request) {
        let tag = usize::from(request.tag);
        let head = request.tag * DESCRIPTORS_PER_TAG as u16;
        let (kind, flags) = match request.direction {
            Direction::Read => (VIRTIO_BLK_T_IN, VRING_DESC_F_NEXT | VRING_DESC_F_WRITE),
            Direction::Write => (VIRTIO_BLK_T_OUT, VRING_DESC_F_NEXT),
        };
        if self.directions[tag] != request.direction {
            self.directions[tag] = request.direction;
            self.store(usize::from(head + 1) * DESCRIPTOR_BYTES + 12, flags as u16, Relaxed);
        }
        let header = HEADERS + tag * HEADER_BYTES;
        self.store(header, kind, Relaxed);
        self.store(header + 8, request.offset / SECTOR, Relaxed);
        self.store(STATUSES + tag, NO_STATUS, Relaxed);
        self.store(self.available_entry(self.available), head, Relaxed);
        self.available = self.available.wrapping_add(1);
    }

    /// Shows all pushed requests to the device; returns whether the device has to be kicked.
    fn publish(&mut self) -> bool {
        let (before, now) = (self.published, self.available);
        if before == now {
            return false;
        }
        // SYNC: virtio-available: the device reads the index before the entries and what they name.
        self.store(AVAILABLE_INDEX, now, Release);
        self.published = now;
        // The index is stored before the device's wish is loaded; the device does it the other way round.
        fence(Ordering::SeqCst);
        needs_event(self.load(self.available_event(), Relaxed), now, before)
    }

    /// Takes back what the device has completed.
    fn take(&mut self, done: &mut Vec<Tag>) -> Result<(), Error> {
        let broken = |how: String| Error::failed("the server", format!("breaks the protocol: {how}"));
        // SYNC: virtio-used: the device wrote data, status and entry before the index.
        let now: u16 = self.load(USED_INDEX, Acquire);
        if now.wrapping_sub(self.used) > self.published.wrapping_sub(self.used) {
            return Err(broken(format!("{now} requests completed of {}", self.published)));
        }
        while self.used != now {
            let head: u32 = self.load(self.used_entry(self.used), Relaxed);
            self.used = self.used.wrapping_add(1);
            let tag = head as usize / DESCRIPTORS_PER_TAG;
            if !head.is_multiple_of(DESCRIPTORS_PER_TAG as u32) || tag >= self.directions.len() {
                return Err(broken(format!("descriptor {head} is completed, which begins no request")));
            }
            let status: u8 = self.load(STATUSES + tag, Relaxed);
            if u32::from(status) != VIRTIO_BLK_S_OK {
                return Err(Error::failed("a request", format!("ended with the device's status {status}")));
            }
            done.push(tag as Tag);
        }
        if self.used.wrapping_sub(self.wake) >= WAKE_BEHIND {
            self.wake_later();
        }
        Ok(())
    }

    /// Sets the used index that wakes the driver when it is passed to one that was passed already.
    fn wake_later(&mut self) {
        self.wake = self.used;
        self.store(self.used_event(), self.used.wrapping_sub(1), Relaxed);
    }

    #[inline]
    fn store<T: AtomicAccess>(&self, at: usize, value: T, order: Ordering) {
        let stored = self.buffers.memory.as_volatile_slice().store(value, at, order);
        assert!(stored.is_ok(), "offsets lie within the memory, aligned");
    }

    #[inline]
    fn load<T: AtomicAccess>(&self, at: usize, order: Ordering) -> T {
        let loaded = self.buffers.memory.as_volatile_slice().load(at, order);
        loaded.expect("offsets lie within the memory, aligned")
    }
}

/// Returns whether `event` was passed on the way from `before` to `now` (section 2.7.7.2).
fn needs_event(event: u16, now: u16, before: u16) -> bool {
    now.wrapping_sub(event).wrapping_sub(1) < now.wrapping_sub(before)
}

/// Makes memory that another process can map, zeroed and allocated; sealed against shrinking, without which a server would
/// not map it.
fn shared(bytes: usize) -> Result<MmapRegion, Error> {
    let make = || -> io::Result<MmapRegion> {
        let memfd = memfd_create("bywash-bench-queue", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&memfd, bytes as u64)?;
        fcntl_add_seals(&memfd, SealFlags::SHRINK | SealFlags::GROW)?;
        let file = FileOffset::new(File::from(memfd), 0);
        MmapRegion::from_file(file, bytes).map_err(io::Error::other)
    };
    let region = make().doing("make", Path::new("memory that a server can map"))?;
    region.as_volatile_slice().copy_from(&vec![0u8; bytes]);
    Ok(region)
}

/// Medium behind a vhost-user-blk server.
pub struct VhostUser {
    queue: Queue,
    kick: EventFd,
    /// Signalled for no request, since the driver asks for that; the server needs one all the same.
    _call: EventFd,
    _frontend: Frontend,
    in_flight: usize,
}

impl VhostUser {
    /// Connects to the server at `socket`, for requests of `workload`.
    pub fn connect(socket: &Path, workload: &Workload) -> Result<VhostUser, Error> {
        let queue = Queue::new(workload)?;
        let event = || EventFd::new(EFD_NONBLOCK).doing("make an eventfd for", socket);
        let (kick, call) = (event()?, event()?);
        let refused = |error: &dyn std::fmt::Display| {
            Error::failed("the server", format!("at {}: {error}", socket.display()))
        };
        let mut frontend = Frontend::connect(socket, 1).map_err(|error| refused(&error))?;
        let bytes = greet(&mut frontend).map_err(|error| refused(&error))?;
        workload.check_size(bytes)?;
        start(&mut frontend, &queue, &kick, &call).map_err(|error| refused(&error))?;
        Ok(VhostUser { queue, kick, _call: call, _frontend: frontend, in_flight: 0 })
    }

    fn kick(&self) -> Result<(), Error> {
        self.kick.write(1).map_err(|error| Error::failed("the server", format!("cannot be woken: {error}")))
    }
}

/// Negotiates features, and returns the size of the medium.
fn greet(frontend: &mut Frontend) -> Result<u64, Box<dyn std::error::Error>> {
    let protocol = VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits();
    let wanted = 1 << VIRTIO_F_VERSION_1 | 1 << VIRTIO_RING_F_EVENT_IDX | protocol;
    frontend.set_owner()?;
    let offered = frontend.get_features()?;
    if offered & wanted != wanted {
        return Err(format!("offers the features {offered:#x} and not all of {wanted:#x}").into());
    }
    if !frontend.get_protocol_features()?.contains(VhostUserProtocolFeatures::CONFIG) {
        return Err("does not tell the size of its medium".into());
    }
    frontend.set_protocol_features(VhostUserProtocolFeatures::CONFIG)?;
    // The configuration begins with the capacity in sectors (section 5.2.4).
    let (_, config) = frontend.get_config(0, 8, VhostUserConfigFlags::empty(), &[0; 8])?;
    frontend.set_features(wanted)?;
    Ok(config.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes)) * SECTOR)
}

/// Passes the queue to the server.
fn start(frontend: &mut Frontend, queue: &Queue, kick: &EventFd, call: &EventFd) -> vhost::Result<()> {
    let memory = &queue.buffers.memory;
    let file = memory.file_offset().expect("the memory is that of a file");
    let begin = memory.as_ptr() as u64;
    frontend.set_mem_table(&[VhostUserMemoryRegionInfo {
        guest_phys_addr: 0,
        memory_size: memory.size() as u64,
        userspace_addr: begin,
        mmap_offset: file.start(),
        mmap_handle: file.file().as_raw_fd(),
    }])?;
    frontend.set_vring_num(QUEUE, queue.size)?;
    frontend.set_vring_base(QUEUE, 0)?;
    // The protocol names rings by addresses of this process, which the table of memory has too.
    let rings = VringConfigData {
        queue_max_size: queue.size,
        queue_size: queue.size,
        flags: 0,
        desc_table_addr: begin,
        used_ring_addr: begin + USED as u64,
        avail_ring_addr: begin + AVAILABLE as u64,
        log_addr: None,
    };
    frontend.set_vring_addr(QUEUE, &rings)?;
    frontend.set_vring_call(QUEUE, call)?;
    frontend.set_vring_kick(QUEUE, kick)?;
    frontend.set_vring_enable(QUEUE, true)
}

impl Engine for VhostUser {
    fn submit(&mut self, request: Request) -> Result<(), Error> {
        self.queue.push(request);
        self.in_flight += 1;
        Ok(())
    }

    fn reap(&mut self, _: usize, done: &mut Vec<Tag>) -> Result<(), Error> {
        if self.queue.publish() {
            self.kick()?;
        }
        let before = done.len();
        let mut waiting: Option<(Instant, Duration)> = None;
        loop {
            for _ in 0..SPINS {
                self.queue.take(done)?;
                if done.len() > before {
                    self.in_flight -= done.len() - before;
                    return Ok(());
                }
                spin_loop();
            }
            let (since, next_kick) = waiting.get_or_insert_with(|| (Instant::now(), KICK_AGAIN));
            let waited = since.elapsed();
            if waited > LIMIT {
                let (in_flight, limit) = (self.in_flight, LIMIT.as_secs());
                let how = format!("has completed none of {in_flight} requests for {limit} s");
                return Err(Error::failed("the server", how));
            }
            if waited > *next_kick {
                *next_kick = waited + KICK_AGAIN;
                self.kick()?;
            }
            sched_yield();
        }
    }

    fn buffer(&mut self, tag: Tag) -> VolatileSlice<'_> {
        self.queue.buffers.buffer(tag)
    }
}

#[cfg(test)]
mod tests {
    use super::super::workload::tests::workload;
    use super::*;

    fn queue(depth: usize) -> Queue {
        Queue::new(&workload(depth, 1)).unwrap()
    }

    /// Completes what is available, as a device does.
    fn device(queue: &Queue, from: u16) {
        let now: u16 = queue.load(AVAILABLE_INDEX, Acquire);
        for number in (0..now.wrapping_sub(from)).map(|number| from.wrapping_add(number)) {
            let head: u16 = queue.load(queue.available_entry(number), Relaxed);
            let status: u64 = queue.load(usize::from(head + 2) * DESCRIPTOR_BYTES, Relaxed);
            queue.store(status as usize, 0u8, Relaxed);
            queue.store(queue.used_entry(number), u32::from(head), Relaxed);
        }
        queue.store(USED_INDEX, now, Release);
        queue.store(queue.available_event(), now, Relaxed);
    }

    fn request(tag: Tag) -> Request {
        Request { tag, direction: Direction::Write, offset: 4096 }
    }

    #[test]
    fn the_device_is_kicked_when_it_asked_for_that_and_never_wakes_the_driver() {
        let (mut two, mut done) = (queue(2), Vec::new());
        two.push(request(1));
        assert!(two.publish());
        two.push(request(0));
        // It has not looked since.
        assert!(!two.publish());
        device(&two, 0);
        two.take(&mut done).unwrap();
        assert_eq!(done, [1, 0]);
        two.push(request(0));
        assert!(two.publish());
        let mut one = queue(1);
        for number in (0..200_000u32).map(|number| number as u16) {
            one.push(request(0));
            one.publish();
            device(&one, number);
            let event: u16 = one.load(one.used_event(), Relaxed);
            assert!(!needs_event(event, number.wrapping_add(1), number), "at {number}");
            one.take(&mut done).unwrap();
        }
        assert_eq!(done.len(), 2 + 200_000);
    }

    #[test]
    fn failures_and_broken_protocols_are_errors() {
        let taken = |lie: &dyn Fn(&Queue)| {
            let mut queue = queue(1);
            queue.push(request(0));
            queue.publish();
            device(&queue, 0);
            lie(&queue);
            queue.take(&mut Vec::new()).map_err(|error| error.to_string())
        };
        assert!(taken(&|_| ()).is_ok());
        assert!(taken(&|queue| queue.store(STATUSES, 1u8, Relaxed)).unwrap_err().contains("status 1"));
        let index = |queue: &Queue| queue.store(USED_INDEX, 9u16, Relaxed);
        assert!(taken(&index).unwrap_err().contains("9 requests completed of 1"));
        for head in [1u32, 3, u32::MAX] {
            let entry = |queue: &Queue| queue.store(queue.used_entry(0), head, Relaxed);
            assert!(taken(&entry).unwrap_err().contains("begins no request"));
        }
    }
}
