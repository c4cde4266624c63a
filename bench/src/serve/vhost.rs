//! Engine over a vhost-user-blk server: the driver's half of a split virtqueue (virtio 1.2, section 2.7) and of a block
//! device's requests (section 5.2.6), in memory that the server maps. The client polls for completions.
//!
//! ```text
//!   offset 0        descriptors, 16 bytes each: three for each tag
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

use super::file::{Buffers, PAGE, stride};
use super::workload::{Direction, Engine, Request, Tag, Workload};
use crate::error::Error;
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
use vm_memory::{AtomicAccess, FileOffset, MmapRegion, VolatileMemory};
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

/// Offsets in the shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layout {
    /// Number of descriptors, a power of two.
    size: u16,
    available: usize,
    used: usize,
    headers: usize,
    statuses: usize,
    buffers: usize,
    bytes: usize,
}

impl Layout {
    fn new(depth: usize, block: usize) -> Layout {
        let size = (depth * DESCRIPTORS_PER_TAG).next_power_of_two();
        // Each side writes to pages of its own.
        let available = (size * DESCRIPTOR_BYTES).next_multiple_of(PAGE);
        let used = (available + 6 + 2 * size).next_multiple_of(PAGE);
        let headers = (used + 6 + 8 * size).next_multiple_of(PAGE);
        let statuses = (headers + HEADER_BYTES * depth).next_multiple_of(PAGE);
        let buffers = (statuses + depth).next_multiple_of(PAGE);
        let bytes = buffers + stride(block) * depth;
        Layout { size: size as u16, available, used, headers, statuses, buffers, bytes }
    }

    fn available_index(&self) -> usize {
        self.available + 2
    }

    fn available_entry(&self, number: u16) -> usize {
        self.available + 4 + 2 * usize::from(number % self.size)
    }

    /// Offset of the used index at which the device wakes the driver.
    fn used_event(&self) -> usize {
        self.available + 4 + 2 * usize::from(self.size)
    }

    fn used_index(&self) -> usize {
        self.used + 2
    }

    fn used_entry(&self, number: u16) -> usize {
        self.used + 4 + 8 * usize::from(number % self.size)
    }

    /// Offset of the available index at which the driver wakes the device.
    fn available_event(&self) -> usize {
        self.used + 4 + 8 * usize::from(self.size)
    }
}

/// Virtqueue with the buffers of its requests.
struct Queue {
    buffers: Buffers,
    layout: Layout,
    block: usize,
    depth: usize,
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
        let layout = Layout::new(workload.depth, workload.block);
        let buffers = Buffers::new(shared(layout.bytes)?, layout.buffers, workload);
        let mut queue = Queue {
            buffers,
            layout,
            block: workload.block,
            depth: workload.depth,
            directions: vec![Direction::Read; workload.depth],
            available: 0,
            published: 0,
            used: 0,
            wake: 0,
        };
        (0..workload.depth as Tag).for_each(|tag| queue.describe(tag));
        queue.wake_later();
        Ok(queue)
    }

    /// Writes a tag's three descriptors.
    fn describe(&mut self, tag: Tag) {
        let (number, head) = (usize::from(tag), tag * DESCRIPTORS_PER_TAG as u16);
        let header = self.layout.headers + number * HEADER_BYTES;
        let chain = [
            (header, HEADER_BYTES, VRING_DESC_F_NEXT),
            (self.buffers.offset(tag), self.block, VRING_DESC_F_NEXT | VRING_DESC_F_WRITE),
            (self.layout.statuses + number, 1, VRING_DESC_F_WRITE),
        ];
        for (descriptor, (address, bytes, flags)) in (head..).zip(chain) {
            let at = usize::from(descriptor) * DESCRIPTOR_BYTES;
            self.store(at, address as u64, Relaxed);
            self.store(at + 8, bytes as u32, Relaxed);
            self.store(at + 12, flags as u16, Relaxed);
            self.store(at + 14, descriptor + 1, Relaxed);
        }
    }

    /// Adds a request, which the device sees after the next [`Queue::publish`].
    fn push(&mut self, request: Request) {
        let tag = usize::from(request.tag);
        assert!(tag < self.depth, "tag {tag} at a depth of {}", self.depth);
        let head = request.tag * DESCRIPTORS_PER_TAG as u16;
        let (kind, flags) = match request.direction {
            Direction::Read => (VIRTIO_BLK_T_IN, VRING_DESC_F_NEXT | VRING_DESC_F_WRITE),
            Direction::Write => (VIRTIO_BLK_T_OUT, VRING_DESC_F_NEXT),
        };
        if self.directions[tag] != request.direction {
            self.directions[tag] = request.direction;
            self.store(usize::from(head + 1) * DESCRIPTOR_BYTES + 12, flags as u16, Relaxed);
        }
        let header = self.layout.headers + tag * HEADER_BYTES;
        self.store(header, kind, Relaxed);
        self.store(header + 8, request.offset / SECTOR, Relaxed);
        self.store(self.layout.statuses + tag, NO_STATUS, Relaxed);
        self.store(self.layout.available_entry(self.available), head, Relaxed);
        self.available = self.available.wrapping_add(1);
    }

    /// Shows all pushed requests to the device; returns whether the device has to be kicked.
    fn publish(&mut self) -> bool {
        let (before, now) = (self.published, self.available);
        if before == now {
            return false;
        }
        // SYNC: virtio-available: the device reads the index before the entries and what they name.
        self.store(self.layout.available_index(), now, Release);
        self.published = now;
        // The index is stored before the device's wish is loaded; the device does it the other way round.
        fence(Ordering::SeqCst);
        let event: u16 = self.load(self.layout.available_event(), Relaxed);
        needs_event(event, now, before)
    }

    /// Takes back what the device has completed.
    fn take(&mut self, done: &mut Vec<Tag>) -> Result<(), Error> {
        // SYNC: virtio-used: the device wrote data, status and entry before the index.
        let now: u16 = self.load(self.layout.used_index(), Acquire);
        if now.wrapping_sub(self.used) > self.published.wrapping_sub(self.used) {
            return Err(invalid(format!("{now} requests completed of {}", self.published)));
        }
        while self.used != now {
            let head: u32 = self.load(self.layout.used_entry(self.used), Relaxed);
            self.used = self.used.wrapping_add(1);
            let tag = head / DESCRIPTORS_PER_TAG as u32;
            if !head.is_multiple_of(DESCRIPTORS_PER_TAG as u32) || tag as usize >= self.depth {
                return Err(invalid(format!("descriptor {head} is completed, which begins no request")));
            }
            let status: u8 = self.load(self.layout.statuses + tag as usize, Relaxed);
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
        self.store(self.layout.used_event(), self.used.wrapping_sub(1), Relaxed);
    }

    #[inline]
    fn store<T: AtomicAccess>(&self, at: usize, value: T, order: Ordering) {
        let stored = vm_memory::Bytes::store(&self.buffers.memory().as_volatile_slice(), value, at, order);
        assert!(stored.is_ok(), "offsets of the layout lie within the memory, aligned");
    }

    #[inline]
    fn load<T: AtomicAccess>(&self, at: usize, order: Ordering) -> T {
        let loaded = vm_memory::Bytes::load(&self.buffers.memory().as_volatile_slice(), at, order);
        loaded.expect("offsets of the layout lie within the memory, aligned")
    }
}

/// Returns whether `event` was passed on the way from `before` to `now` (section 2.7.7.2).
fn needs_event(event: u16, now: u16, before: u16) -> bool {
    now.wrapping_sub(event).wrapping_sub(1) < now.wrapping_sub(before)
}

/// Makes memory that another process can map, zeroed and allocated; sealed against shrinking, without which a server would
/// not map it.
fn shared(bytes: usize) -> Result<MmapRegion, Error> {
    let kernel = |error: io::Error| Error::io("make", Path::new("memory that a server can map"), error);
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memfd = memfd_create("bywash-bench-queue", flags).map_err(|errno| kernel(errno.into()))?;
    ftruncate(&memfd, bytes as u64).map_err(|errno| kernel(errno.into()))?;
    fcntl_add_seals(&memfd, SealFlags::SHRINK | SealFlags::GROW).map_err(|errno| kernel(errno.into()))?;
    let region = MmapRegion::from_file(FileOffset::new(File::from(memfd), 0), bytes)
        .map_err(|error| kernel(io::Error::other(error)))?;
    region.as_volatile_slice().copy_from(&vec![0u8; bytes]);
    Ok(region)
}

fn invalid(how: String) -> Error {
    Error::failed("the server", format!("breaks the protocol: {how}"))
}

/// Medium behind a vhost-user-blk server.
pub struct VhostUser {
    queue: Queue,
    kick: EventFd,
    /// Signalled for no request, since the driver asks for that; the server needs one all the same.
    #[cfg_attr(not(test), expect(dead_code, reason = "it has to stay open"))]
    call: EventFd,
    _frontend: Frontend,
    in_flight: usize,
}

impl VhostUser {
    /// Connects to the server at `socket`, for requests of `workload`.
    ///
    /// # Errors
    /// [`Error::Failed`] if there is no server, it lacks a feature, or its medium is too small.
    pub fn connect(socket: &Path, workload: &Workload) -> Result<VhostUser, Error> {
        let queue = Queue::new(workload)?;
        let event =
            || EventFd::new(EFD_NONBLOCK).map_err(|error| Error::io("make an eventfd for", socket, error));
        let (kick, call) = (event()?, event()?);
        let refused = |error: Box<dyn std::error::Error>| {
            Error::failed("the server", format!("at {}: {error}", socket.display()))
        };
        let mut frontend = Frontend::connect(socket, 1).map_err(|error| refused(error.into()))?;
        greet(&mut frontend, workload.medium_bytes)
            .and_then(|()| start(&mut frontend, &queue, &kick, &call))
            .map_err(refused)?;
        Ok(VhostUser { queue, kick, call, _frontend: frontend, in_flight: 0 })
    }

    fn kick(&self) -> Result<(), Error> {
        self.kick.write(1).map_err(|error| Error::failed("the server", format!("cannot be woken: {error}")))
    }
}

/// Negotiates features, and checks the size of the medium.
fn greet(frontend: &mut Frontend, medium_bytes: u64) -> Result<(), Box<dyn std::error::Error>> {
    let protocol = VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits();
    let wanted = 1 << VIRTIO_F_VERSION_1 | 1 << VIRTIO_RING_F_EVENT_IDX | protocol;
    frontend.set_owner()?;
    let offered = frontend.get_features()?;
    if offered & wanted != wanted {
        return Err(format!("offers the features {offered:#x} and not all of {wanted:#x}").into());
    }
    let offered = frontend.get_protocol_features()?;
    if !offered.contains(VhostUserProtocolFeatures::CONFIG) {
        return Err("does not tell the size of its medium".into());
    }
    frontend.set_protocol_features(VhostUserProtocolFeatures::CONFIG)?;
    // The configuration begins with the capacity in sectors (section 5.2.4).
    let (_, config) = frontend.get_config(0, 8, VhostUserConfigFlags::empty(), &[0; 8])?;
    let capacity = config.first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes)) * SECTOR;
    if capacity < medium_bytes {
        return Err(format!("has {capacity} bytes of {medium_bytes}").into());
    }
    frontend.set_features(wanted)?;
    Ok(())
}

/// Passes the queue to the server.
fn start(
    frontend: &mut Frontend,
    queue: &Queue,
    kick: &EventFd,
    call: &EventFd,
) -> Result<(), Box<dyn std::error::Error>> {
    let (memory, layout) = (queue.buffers.memory(), queue.layout);
    let file = memory.file_offset().ok_or("memory without a descriptor")?;
    frontend.set_mem_table(&[VhostUserMemoryRegionInfo {
        guest_phys_addr: 0,
        memory_size: memory.size() as u64,
        userspace_addr: memory.as_ptr() as u64,
        mmap_offset: file.start(),
        mmap_handle: file.file().as_raw_fd(),
    }])?;
    frontend.set_vring_num(QUEUE, layout.size)?;
    frontend.set_vring_base(QUEUE, 0)?;
    // The protocol names rings by addresses of this process, which the table of memory has too.
    let at = |offset: usize| memory.as_ptr() as u64 + offset as u64;
    let rings = VringConfigData {
        queue_max_size: layout.size,
        queue_size: layout.size,
        flags: 0,
        desc_table_addr: at(0),
        used_ring_addr: at(layout.used),
        avail_ring_addr: at(layout.available),
        log_addr: None,
    };
    frontend.set_vring_addr(QUEUE, &rings)?;
    frontend.set_vring_call(QUEUE, call)?;
    frontend.set_vring_kick(QUEUE, kick)?;
    frontend.set_vring_enable(QUEUE, true)?;
    Ok(())
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
        let mut turns = 0u32;
        let mut waiting: Option<(Instant, Duration)> = None;
        loop {
            self.queue.take(done)?;
            if done.len() > before {
                self.in_flight -= done.len() - before;
                return Ok(());
            }
            turns += 1;
            if turns < SPINS {
                spin_loop();
                continue;
            }
            turns = 0;
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

    fn fill(&mut self, tag: Tag, bytes: &[u8]) {
        self.queue.buffers.fill(tag, bytes);
    }

    fn copy_out(&self, tag: Tag, bytes: &mut [u8]) {
        self.queue.buffers.copy_out(tag, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::super::daemon::{Daemon, Reach};
    use super::super::workload::Until;
    use super::super::workload::tests::{holds_what_was_written, workload};
    use super::*;
    use std::fs;

    fn queue(depth: usize, block: usize) -> Queue {
        Queue::new(&Workload { block, ..workload(depth, Until::Requests(1)) }).unwrap()
    }

    /// Completes what is available, as a device does, with that status.
    fn device(queue: &Queue, from: u16, status: u8) {
        let layout = queue.layout;
        let now: u16 = queue.load(layout.available_index(), Acquire);
        for number in (0..now.wrapping_sub(from)).map(|number| from.wrapping_add(number)) {
            let head: u16 = queue.load(layout.available_entry(number), Relaxed);
            let last = usize::from(head + 2) * DESCRIPTOR_BYTES;
            let address: u64 = queue.load(last, Relaxed);
            queue.store(address as usize, status, Relaxed);
            queue.store(layout.used_entry(number), u32::from(head), Relaxed);
        }
        queue.store(layout.used_index(), now, Release);
        queue.store(layout.available_event(), now, Relaxed);
    }

    fn request(tag: Tag) -> Request {
        Request { tag, direction: Direction::Write, offset: 4096 }
    }

    #[test]
    fn the_parts_of_the_layout_do_not_overlap() {
        for depth in [1, 2, 32, 128] {
            let layout = Layout::new(depth, 512);
            assert!(usize::from(layout.size) >= 3 * depth && layout.size.is_power_of_two());
            assert!(layout.size <= 512);
            assert!(usize::from(layout.size) * DESCRIPTOR_BYTES <= layout.available);
            assert!(layout.used_event() + 2 <= layout.used);
            assert!(layout.available_event() + 2 <= layout.headers);
            assert!(layout.statuses + depth <= layout.buffers);
            assert_eq!(layout.bytes, layout.buffers + 4096 * depth);
        }
    }

    #[test]
    fn requests_come_back_and_the_device_is_kicked_when_it_asked_for_that() {
        let mut queue = queue(2, 4096);
        let mut done = Vec::new();
        assert!(!queue.publish());
        queue.push(request(1));
        assert!(queue.publish());
        queue.push(request(0));
        // It has not looked since.
        assert!(!queue.publish());
        queue.take(&mut done).unwrap();
        assert!(done.is_empty());
        device(&queue, 0, 0);
        queue.take(&mut done).unwrap();
        assert_eq!(done, [1, 0]);
        queue.push(request(0));
        assert!(queue.publish());
    }

    #[test]
    fn the_driver_is_not_woken_however_long_it_runs() {
        let mut queue = queue(1, 512);
        let mut done = Vec::new();
        for number in 0..200_000u32 {
            queue.push(request(0));
            queue.publish();
            device(&queue, number as u16, 0);
            let event: u16 = queue.load(queue.layout.used_event(), Relaxed);
            let now = (number as u16).wrapping_add(1);
            assert!(!needs_event(event, now, number as u16), "at {number}");
            queue.take(&mut done).unwrap();
        }
        assert_eq!(done.len(), 200_000);
    }

    #[test]
    fn failures_and_broken_protocols_are_errors() {
        let taken = |lie: &dyn Fn(&Queue)| {
            let mut queue = queue(1, 512);
            queue.push(request(0));
            queue.publish();
            device(&queue, 0, 0);
            lie(&queue);
            queue.take(&mut Vec::new()).map_err(|error| error.to_string())
        };
        assert!(taken(&|_| ()).is_ok());
        let status = |queue: &Queue| queue.store(queue.layout.statuses, 1u8, Relaxed);
        assert!(taken(&status).unwrap_err().contains("status 1"));
        let index = |queue: &Queue| queue.store(queue.layout.used_index(), 9u16, Relaxed);
        assert!(taken(&index).unwrap_err().contains("9 requests completed of 1"));
        for head in [1u32, 3, u32::MAX] {
            let entry = |queue: &Queue| queue.store(queue.layout.used_entry(0), head, Relaxed);
            assert!(taken(&entry).unwrap_err().contains("begins no request"));
        }
    }

    const BYTES: u64 = 1 << 20;
    const REACHES: [(usize, usize, Reach); 3] = [
        (1, 512, Reach { is_direct: false, aio: "threads", core: None }),
        (32, 4096, Reach { is_direct: false, aio: "io_uring", core: None }),
        (128, 4096, Reach { is_direct: false, aio: "threads", core: Some(0) }),
    ];

    /// Writes through the server, and compares the file that it serves; without the server, the error has to be an absence.
    #[test]
    fn what_was_written_is_in_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        for (depth, block, reach) in REACHES {
            fs::write(&file, vec![0xeeu8; BYTES as usize]).unwrap();
            let daemon = match Daemon::start(std::slice::from_ref(&file), folder.path(), &reach) {
                Ok(daemon) => daemon,
                Err(error) => return assert!(error.is_absence(), "{error}"),
            };
            let workload = Workload { block, medium_bytes: BYTES, ..workload(depth, Until::Requests(1)) };
            let mut client = VhostUser::connect(&daemon.sockets()[0], &workload).unwrap();
            holds_what_was_written(&mut client, block, BYTES, depth);
            // It signals when it begins, whatever it was told, and for none of the 300 to 600 requests.
            let signals = client.call.read().unwrap_or(0);
            assert!(signals <= 4, "{signals} signals");
            drop(client);
            let (seen, last) = (fs::read(&file).unwrap(), (BYTES as usize / block).min(300) - 1);
            for number in [0, 1, last] {
                let word = seen[number * block..].first_chunk::<8>().unwrap();
                assert_eq!(u64::from_le_bytes(*word), number as u64 * 0x0101_0101 + 77, "block {number}");
            }
            assert!(seen[(last + 1) * block..].iter().all(|byte| *byte == 0xee));
            let large = Workload { medium_bytes: BYTES + 512, ..workload };
            let error = VhostUser::connect(&daemon.sockets()[0], &large).err().unwrap().to_string();
            assert!(error.contains("has 1048576 bytes of 1049088"), "{error}");
            let socket = daemon.sockets()[0].clone();
            drop(daemon);
            assert!(VhostUser::connect(&socket, &large).is_err());
        }
    }
}
