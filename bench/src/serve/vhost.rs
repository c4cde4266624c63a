//! Engine over a vhost-user-blk server: the driver's half of a split virtqueue (virtio 1.2, section 2.7) and of a block
//! device's requests (section 5.2.6), in memory that the server maps. The client polls for completions.
//!
//! A tag's three descriptors never change: its header, its buffer, its status. So a request writes a header, the buffer's
//! direction and one entry of the ring. The device is kicked only if it asked for that (`VIRTIO_RING_F_EVENT_IDX`, section
//! 2.7.10), and never asked to wake the driver.

use super::file::{Buffers, stride};
use super::workload::{Direction, Engine, Request, Tag, Workload};
use crate::error::{Attempt, Error};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::thread::sched_yield;
use std::fs::File;
use std::hint::spin_loop;
use std::io;
use std::mem::offset_of;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};
use vhost::vhost_user::message::{VhostUserConfigFlags, VhostUserProtocolFeatures, VhostUserVirtioFeatures};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use virtio_bindings::virtio_blk::{VIRTIO_BLK_S_OK, VIRTIO_BLK_T_IN, VIRTIO_BLK_T_OUT};
use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VRING_DESC_F_NEXT, VRING_DESC_F_WRITE};
use vm_memory::{FileOffset, MmapRegion, VolatileMemory, VolatileSlice};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

/// Number of the queue that is used.
const QUEUE: usize = 0;
/// Number of descriptors, a power of two: three for each tag.
const SIZE: usize = 128;
const DEPTH_MAX: usize = SIZE / DESCRIPTORS_PER_TAG;
const DESCRIPTORS_PER_TAG: usize = 3;
/// Size of a sector, in bytes, whatever the device's blocks are.
const SECTOR: u64 = 512;
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

/// Memory of the queue, which the server maps; the buffers follow. Each side writes to pages of its own.
#[repr(C)]
struct Ring {
    descriptors: Page<[Descriptor; SIZE]>,
    available: Page<Available>,
    used: Page<Used>,
    headers: Page<[Header; DEPTH_MAX]>,
    statuses: Page<[AtomicU8; DEPTH_MAX]>,
}

#[repr(C, align(4096))]
struct Page<T>(T);

#[repr(C)]
struct Descriptor {
    address: AtomicU64,
    bytes: AtomicU32,
    flags: AtomicU16,
    next: AtomicU16,
}

#[repr(C)]
struct Available {
    flags: AtomicU16,
    index: AtomicU16,
    heads: [AtomicU16; SIZE],
    /// Used index at which the device wakes the driver.
    used_event: AtomicU16,
}

#[repr(C)]
struct Used {
    flags: AtomicU16,
    index: AtomicU16,
    /// Heads and lengths.
    entries: [[AtomicU32; 2]; SIZE],
    /// Available index at which the driver wakes the device.
    available_event: AtomicU16,
}

/// Read or write, and the sector.
#[repr(C)]
struct Header {
    kind: AtomicU32,
    _reserved: u32,
    sector: AtomicU64,
}

/// Virtqueue with the buffers of its requests.
struct Queue {
    buffers: Buffers,
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
        assert!(workload.depth <= DEPTH_MAX, "a depth of {}", workload.depth);
        let memory = shared(size_of::<Ring>() + stride(workload.block) * workload.depth)?;
        let buffers = Buffers::new(memory, size_of::<Ring>(), workload);
        let directions = vec![Direction::Read; workload.depth];
        let mut queue = Queue { buffers, directions, available: 0, published: 0, used: 0, wake: 0 };
        for tag in 0..workload.depth {
            let chain = [
                (offset_of!(Ring, headers) + tag * size_of::<Header>(), size_of::<Header>(), 0),
                (queue.buffers.offset(tag as Tag), workload.block, VRING_DESC_F_WRITE),
                (offset_of!(Ring, statuses) + tag, 1, VRING_DESC_F_WRITE),
            ];
            for (number, (address, bytes, flags)) in (tag * DESCRIPTORS_PER_TAG..).zip(chain) {
                let is_last = number % DESCRIPTORS_PER_TAG == DESCRIPTORS_PER_TAG - 1;
                let flags = if is_last { flags } else { flags | VRING_DESC_F_NEXT };
                let descriptor = &queue.ring().descriptors.0[number];
                descriptor.address.store(address as u64, Relaxed);
                descriptor.bytes.store(bytes as u32, Relaxed);
                descriptor.flags.store(flags as u16, Relaxed);
                descriptor.next.store(number as u16 + 1, Relaxed);
            }
        }
        queue.wake_later();
        Ok(queue)
    }

    #[inline]
    #[expect(unsafe_code, reason = "the memory is accessed by the server, too")]
    fn ring(&self) -> &Ring {
        // SAFETY: the mapping begins with a ring of zeros, at a page, and lives as long as `self`; everything in it is atomic or
        // not accessed.
        unsafe { &*self.buffers.memory.as_ptr().cast::<Ring>() }
    }

    /// Adds a request, which the device sees after the next [`Queue::publish`].
    fn push(&mut self, request: Request) {
        let tag = usize::from(request.tag);
        let head = tag * DESCRIPTORS_PER_TAG;
        let (kind, flags) = match request.direction {
            Direction::Read => (VIRTIO_BLK_T_IN, VRING_DESC_F_NEXT | VRING_DESC_F_WRITE),
            Direction::Write => (VIRTIO_BLK_T_OUT, VRING_DESC_F_NEXT),
        };
        let has_turned = std::mem::replace(&mut self.directions[tag], request.direction) != request.direction;
        let ring = self.ring();
        if has_turned {
            ring.descriptors.0[head + 1].flags.store(flags as u16, Relaxed);
        }
        ring.headers.0[tag].kind.store(kind, Relaxed);
        ring.headers.0[tag].sector.store(request.offset / SECTOR, Relaxed);
        ring.statuses.0[tag].store(NO_STATUS, Relaxed);
        ring.available.0.heads[usize::from(self.available) % SIZE].store(head as u16, Relaxed);
        self.available = self.available.wrapping_add(1);
    }

    /// Shows all pushed requests to the device; returns whether the device has to be kicked.
    fn publish(&mut self) -> bool {
        let (before, now) = (self.published, self.available);
        if before == now {
            return false;
        }
        self.published = now;
        // SYNC: virtio-available: the device reads the index before the entries and what they name.
        self.ring().available.0.index.store(now, Release);
        // The index is stored before the device's wish is loaded; the device does it the other way round.
        fence(Ordering::SeqCst);
        needs_event(self.ring().used.0.available_event.load(Relaxed), now, before)
    }

    /// Takes back what the device has completed.
    fn take(&mut self, done: &mut Vec<Tag>) -> Result<(), Error> {
        let broken = |how: String| Error::failed("the server", format!("breaks the protocol: {how}"));
        // SYNC: virtio-used: the device wrote data, status and entry before the index.
        let now = self.ring().used.0.index.load(Acquire);
        if now.wrapping_sub(self.used) > self.published.wrapping_sub(self.used) {
            return Err(broken(format!("{now} requests completed of {}", self.published)));
        }
        while self.used != now {
            let head = self.ring().used.0.entries[usize::from(self.used) % SIZE][0].load(Relaxed) as usize;
            self.used = self.used.wrapping_add(1);
            let tag = head / DESCRIPTORS_PER_TAG;
            if !head.is_multiple_of(DESCRIPTORS_PER_TAG) || tag >= self.directions.len() {
                return Err(broken(format!("descriptor {head} is completed, which begins no request")));
            }
            let status = self.ring().statuses.0[tag].load(Relaxed);
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
        self.ring().available.0.used_event.store(self.used.wrapping_sub(1), Relaxed);
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
        VhostUser::attach(socket, workload)
            .map_err(|error| Error::failed("the server", format!("at {}: {error}", socket.display())))
    }

    fn attach(socket: &Path, workload: &Workload) -> Result<VhostUser, Box<dyn std::error::Error>> {
        let (queue, kick) = (Queue::new(workload)?, EventFd::new(EFD_NONBLOCK)?);
        let call = EventFd::new(EFD_NONBLOCK)?;
        let mut frontend = Frontend::connect(socket, 1)?;
        workload.check_size(greet(&mut frontend)?)?;
        start(&mut frontend, &queue)?;
        frontend.set_vring_call(QUEUE, &call)?;
        frontend.set_vring_kick(QUEUE, &kick)?;
        frontend.set_vring_enable(QUEUE, true)?;
        Ok(VhostUser { queue, kick, _call: call, _frontend: frontend, in_flight: 0 })
    }

    /// Shows all submitted requests to the server, and wakes it if it asked for that.
    pub fn publish(&mut self) -> Result<(), Error> {
        if self.queue.publish() { self.kick() } else { Ok(()) }
    }

    /// Appends the tags of requests that have completed meanwhile to `done`. Returns their number.
    pub fn try_reap(&mut self, done: &mut Vec<Tag>) -> Result<usize, Error> {
        let before = done.len();
        self.queue.take(done)?;
        let taken = done.len() - before;
        self.in_flight -= taken;
        Ok(taken)
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

/// Passes the memory of the queue to the server.
fn start(frontend: &mut Frontend, queue: &Queue) -> vhost::Result<()> {
    let memory = &queue.buffers.memory;
    let file = memory.file_offset().expect("the memory is that of a file");
    // The protocol names rings by addresses of this process, which the table of memory has too.
    let begin = memory.as_ptr() as u64;
    frontend.set_mem_table(&[VhostUserMemoryRegionInfo {
        guest_phys_addr: 0,
        memory_size: memory.size() as u64,
        userspace_addr: begin,
        mmap_offset: file.start(),
        mmap_handle: file.file().as_raw_fd(),
    }])?;
    frontend.set_vring_num(QUEUE, SIZE as u16)?;
    frontend.set_vring_base(QUEUE, 0)?;
    let rings = VringConfigData {
        queue_max_size: SIZE as u16,
        queue_size: SIZE as u16,
        flags: 0,
        desc_table_addr: begin,
        used_ring_addr: begin + offset_of!(Ring, used) as u64,
        avail_ring_addr: begin + offset_of!(Ring, available) as u64,
        log_addr: None,
    };
    frontend.set_vring_addr(QUEUE, &rings)
}

impl Engine for VhostUser {
    fn submit(&mut self, request: Request) -> Result<(), Error> {
        self.queue.push(request);
        self.in_flight += 1;
        Ok(())
    }

    fn reap(&mut self, _: usize, done: &mut Vec<Tag>) -> Result<(), Error> {
        self.publish()?;
        let mut waiting: Option<(Instant, Duration)> = None;
        loop {
            for _ in 0..SPINS {
                if self.try_reap(done)? > 0 {
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
        let ring = queue.ring();
        let now = ring.available.0.index.load(Acquire);
        for number in (0..now.wrapping_sub(from)).map(|number| from.wrapping_add(number) as usize % SIZE) {
            let head = ring.available.0.heads[number].load(Relaxed);
            ring.statuses.0[usize::from(head) / DESCRIPTORS_PER_TAG].store(0, Relaxed);
            ring.used.0.entries[number][0].store(head.into(), Relaxed);
        }
        ring.used.0.index.store(now, Release);
        ring.used.0.available_event.store(now, Relaxed);
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
            let event = one.ring().available.0.used_event.load(Relaxed);
            assert!(!needs_event(event, number.wrapping_add(1), number), "at {number}");
            one.take(&mut done).unwrap();
        }
        assert_eq!(done.len(), 2 + 200_000);
    }

    #[test]
    fn failures_and_broken_protocols_are_errors() {
        type Lie = (fn(&Ring), &'static str);
        let lies: [Lie; 3] = [
            (|ring| ring.statuses.0[0].store(1, Relaxed), "status 1"),
            (|ring| ring.used.0.index.store(9, Relaxed), "9 requests completed of 1"),
            (
                |ring| ring.used.0.entries[0][0].store(3, Relaxed),
                "descriptor 3 is completed, which begins no request",
            ),
        ];
        for (lie, what) in lies {
            let mut queue = queue(1);
            queue.push(request(0));
            queue.publish();
            device(&queue, 0);
            lie(queue.ring());
            let error = queue.take(&mut Vec::new()).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
    }
}
