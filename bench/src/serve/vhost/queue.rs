//! The driver's half of a split virtqueue (virtio 1.2, section 2.7) and of a block device's requests (section 5.2.6), in
//! memory that the device has mapped too.
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
//! A tag's three descriptors are always the same: its header, its buffer, its status. So a request writes a header, the
//! buffer's direction and one entry of the ring. The device is kicked only if it asked for that (`VIRTIO_RING_F_EVENT_IDX`,
//! section 2.7.10), and asked never to wake the driver, which polls.

use super::super::calls::{PAGE, stride};
use super::super::engine::{Request, Tag};
use super::super::workload::Direction;
use crate::error::Error;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{Ordering, fence};
use virtio_bindings::virtio_blk::{VIRTIO_BLK_S_OK, VIRTIO_BLK_T_IN, VIRTIO_BLK_T_OUT};
use virtio_bindings::virtio_ring::{VRING_DESC_F_NEXT, VRING_DESC_F_WRITE};
use vm_memory::{AtomicAccess, Bytes, FileOffset, MmapRegion, VolatileMemory};

/// A sector, whatever the device's blocks are.
const SECTOR: u64 = 512;
const DESCRIPTOR_BYTES: usize = 16;
const DESCRIPTORS_PER_TAG: usize = 3;
const HEADER_BYTES: usize = 16;
/// Written by the driver where the device is to write a status.
const NO_STATUS: u8 = 0xff;
/// The index that would wake the driver is kept behind, and moved on after so many requests: half of what it can count.
const WAKE_BEHIND: u16 = 1 << 15;

/// A virtqueue, and the buffers of its requests.
pub struct Queue {
    memory: MmapRegion,
    places: Places,
    block: usize,
    depth: usize,
    /// The direction that a tag's buffer has now.
    directions: Vec<Direction>,
    /// Entries made available, also those that the device has not been told of.
    available: u16,
    /// Of those, the device has been told of.
    published: u16,
    /// Entries taken back.
    used: u16,
    /// The used index at which the device was last told when to wake the driver.
    wake: u16,
}

/// Where everything is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Places {
    /// Descriptors, a power of two.
    pub size: u16,
    /// The available ring.
    pub available: usize,
    /// The used ring.
    pub used: usize,
    headers: usize,
    statuses: usize,
    buffers: usize,
    bytes: usize,
}

impl Places {
    fn of(depth: usize, block: usize) -> Places {
        let size = (depth * DESCRIPTORS_PER_TAG).next_power_of_two();
        // What the two sides write is on pages of its own each.
        let available = (size * DESCRIPTOR_BYTES).next_multiple_of(PAGE);
        let used = (available + 6 + 2 * size).next_multiple_of(PAGE);
        let headers = (used + 6 + 8 * size).next_multiple_of(PAGE);
        let statuses = (headers + HEADER_BYTES * depth).next_multiple_of(PAGE);
        let buffers = (statuses + depth).next_multiple_of(PAGE);
        let bytes = buffers + stride(block) * depth;
        Places { size: size as u16, available, used, headers, statuses, buffers, bytes }
    }

    fn available_index(&self) -> usize {
        self.available + 2
    }

    fn available_entry(&self, number: u16) -> usize {
        self.available + 4 + 2 * usize::from(number % self.size)
    }

    /// At which used index the device wakes the driver.
    fn used_event(&self) -> usize {
        self.available + 4 + 2 * usize::from(self.size)
    }

    fn used_index(&self) -> usize {
        self.used + 2
    }

    fn used_entry(&self, number: u16) -> usize {
        self.used + 4 + 8 * usize::from(number % self.size)
    }

    /// At which available index the driver wakes the device.
    fn available_event(&self) -> usize {
        self.used + 4 + 8 * usize::from(self.size)
    }
}

impl Queue {
    /// For so many requests of `block` bytes at a time.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new(depth: usize, block: usize) -> Result<Queue, Error> {
        let places = Places::of(depth, block);
        let mut queue = Queue {
            memory: shared(places.bytes)?,
            places,
            block,
            depth,
            directions: vec![Direction::Read; depth],
            available: 0,
            published: 0,
            used: 0,
            wake: 0,
        };
        for tag in 0..depth as Tag {
            queue.describe(tag);
        }
        queue.wake_later();
        Ok(queue)
    }

    /// The memory, which the device maps too; its addresses begin at 0 there.
    pub fn memory(&self) -> &MmapRegion {
        &self.memory
    }

    /// Where everything is in it.
    pub fn places(&self) -> Places {
        self.places
    }

    /// The tag's three descriptors.
    fn describe(&mut self, tag: Tag) {
        let (number, head) = (usize::from(tag), tag * DESCRIPTORS_PER_TAG as u16);
        let header = self.places.headers + number * HEADER_BYTES;
        let chain = [
            (header, HEADER_BYTES, VRING_DESC_F_NEXT),
            (self.buffer(tag), self.block, VRING_DESC_F_NEXT | VRING_DESC_F_WRITE),
            (self.places.statuses + number, 1, VRING_DESC_F_WRITE),
        ];
        for (descriptor, (address, bytes, flags)) in (head..).zip(chain) {
            let at = usize::from(descriptor) * DESCRIPTOR_BYTES;
            self.store(at, address as u64, Relaxed);
            self.store(at + 8, bytes as u32, Relaxed);
            self.store(at + 12, flags as u16, Relaxed);
            self.store(at + 14, descriptor + 1, Relaxed);
        }
    }

    /// Makes a request available, which the device learns with the next [`Queue::publish`].
    pub fn push(&mut self, request: Request) {
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
        let header = self.places.headers + tag * HEADER_BYTES;
        self.store(header, kind, Relaxed);
        self.store(header + 8, request.offset / SECTOR, Relaxed);
        self.store(self.places.statuses + tag, NO_STATUS, Relaxed);
        self.store(self.places.available_entry(self.available), head, Relaxed);
        self.available = self.available.wrapping_add(1);
    }

    /// Tells the device of everything that was pushed; whether it has to be kicked.
    pub fn publish(&mut self) -> bool {
        let (before, now) = (self.published, self.available);
        if before == now {
            return false;
        }
        // SYNC: virtio-available: the device reads the index before the entries and what they name.
        self.store(self.places.available_index(), now, Release);
        self.published = now;
        // The index is there before it is asked whether the device still looks; the device does it the other way round.
        fence(Ordering::SeqCst);
        let event: u16 = self.load(self.places.available_event(), Relaxed);
        needs_event(event, now, before)
    }

    /// Takes back what the device is done with.
    ///
    /// # Errors
    /// That a request has failed, or the device says what cannot be.
    pub fn take(&mut self, done: &mut Vec<Tag>) -> Result<(), Error> {
        // SYNC: virtio-used: the device wrote data, status and entry before the index.
        let now: u16 = self.load(self.places.used_index(), Acquire);
        if now.wrapping_sub(self.used) > self.published.wrapping_sub(self.used) {
            return Err(lie(format!("{now} requests done of {}", self.published)));
        }
        while self.used != now {
            let head: u32 = self.load(self.places.used_entry(self.used), Relaxed);
            self.used = self.used.wrapping_add(1);
            let tag = head / DESCRIPTORS_PER_TAG as u32;
            if !head.is_multiple_of(DESCRIPTORS_PER_TAG as u32) || tag as usize >= self.depth {
                return Err(lie(format!("descriptor {head} is done, which begins no request")));
            }
            let status: u8 = self.load(self.places.statuses + tag as usize, Relaxed);
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

    /// The device wakes the driver when the used index passes the one that it was told: one that was passed already.
    fn wake_later(&mut self) {
        self.wake = self.used;
        self.store(self.places.used_event(), self.used.wrapping_sub(1), Relaxed);
    }

    /// Where a tag's buffer is.
    pub fn buffer(&self, tag: Tag) -> usize {
        self.places.buffers + usize::from(tag) * stride(self.block)
    }

    #[inline]
    fn store<T: AtomicAccess>(&self, at: usize, value: T, order: Ordering) {
        let stored = self.memory.as_volatile_slice().store(value, at, order);
        assert!(stored.is_ok(), "places lie within the memory, aligned");
    }

    #[inline]
    fn load<T: AtomicAccess>(&self, at: usize, order: Ordering) -> T {
        let loaded = self.memory.as_volatile_slice().load(at, order);
        loaded.expect("places lie within the memory, aligned")
    }
}

/// Whether `event` was passed on the way from `before` to `now` (section 2.7.7.2).
fn needs_event(event: u16, now: u16, before: u16) -> bool {
    now.wrapping_sub(event).wrapping_sub(1) < now.wrapping_sub(before)
}

/// Memory that another process can map, zeros at first and all of it there. It cannot be taken away again, or a server
/// that thinks of that would not map it.
fn shared(bytes: usize) -> Result<MmapRegion, Error> {
    let here = Path::new("memory that a server can map");
    let kernel = |error: io::Error| Error::io("make", here, error);
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memfd = memfd_create("bywash-bench-queue", flags).map_err(|errno| kernel(errno.into()))?;
    ftruncate(&memfd, bytes as u64).map_err(|errno| kernel(errno.into()))?;
    fcntl_add_seals(&memfd, SealFlags::SHRINK | SealFlags::GROW).map_err(|errno| kernel(errno.into()))?;
    let region = MmapRegion::from_file(FileOffset::new(File::from(memfd), 0), bytes)
        .map_err(|error| kernel(io::Error::other(error)))?;
    region.as_volatile_slice().copy_from(&vec![0u8; bytes]);
    Ok(region)
}

fn lie(how: String) -> Error {
    Error::failed("the server", format!("answers what cannot be: {how}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes what is available and uses it up, as a device does, with that status.
    fn device(queue: &Queue, from: u16, status: u8) {
        let places = queue.places;
        let now: u16 = queue.load(places.available_index(), Acquire);
        for number in (0..now.wrapping_sub(from)).map(|number| from.wrapping_add(number)) {
            let head: u16 = queue.load(places.available_entry(number), Relaxed);
            let last = usize::from(head + 2) * DESCRIPTOR_BYTES;
            let address: u64 = queue.load(last, Relaxed);
            queue.store(address as usize, status, Relaxed);
            queue.store(places.used_entry(number), u32::from(head), Relaxed);
        }
        queue.store(places.used_index(), now, Release);
        queue.store(places.available_event(), now, Relaxed);
    }

    fn request(tag: Tag) -> Request {
        Request { tag, direction: Direction::Write, offset: 4096 }
    }

    #[test]
    fn places_are_apart() {
        for depth in [1, 2, 32, 128] {
            let places = Places::of(depth, 512);
            assert!(usize::from(places.size) >= 3 * depth && places.size.is_power_of_two());
            assert!(places.size <= 512);
            assert!(usize::from(places.size) * DESCRIPTOR_BYTES <= places.available);
            assert!(places.used_event() + 2 <= places.used);
            assert!(places.available_event() + 2 <= places.headers);
            assert!(
                places.statuses + depth <= places.buffers && places.bytes == places.buffers + 4096 * depth
            );
        }
    }

    #[test]
    fn requests_come_back_and_the_device_is_kicked_when_it_asked_for_that() {
        let mut queue = Queue::new(2, 4096).unwrap();
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
        let mut queue = Queue::new(1, 512).unwrap();
        let mut done = Vec::new();
        for number in 0..200_000u32 {
            queue.push(request(0));
            queue.publish();
            device(&queue, number as u16, 0);
            let event: u16 = queue.load(queue.places.used_event(), Relaxed);
            let now = (number as u16).wrapping_add(1);
            assert!(!needs_event(event, now, number as u16), "at {number}");
            queue.take(&mut done).unwrap();
        }
        assert_eq!(done.len(), 200_000);
    }

    #[test]
    fn failures_and_lies_are_errors() {
        let taken = |lie: &dyn Fn(&Queue)| {
            let mut queue = Queue::new(1, 512).unwrap();
            queue.push(request(0));
            queue.publish();
            device(&queue, 0, 0);
            lie(&queue);
            queue.take(&mut Vec::new()).map_err(|error| error.to_string())
        };
        assert!(taken(&|_| ()).is_ok());
        let status = |queue: &Queue| queue.store(queue.places.statuses, 1u8, Relaxed);
        assert!(taken(&status).unwrap_err().contains("status 1"));
        let index = |queue: &Queue| queue.store(queue.places.used_index(), 9u16, Relaxed);
        assert!(taken(&index).unwrap_err().contains("9 requests done of 1"));
        for head in [1u32, 3, u32::MAX] {
            let entry = |queue: &Queue| queue.store(queue.places.used_entry(0), head, Relaxed);
            assert!(taken(&entry).unwrap_err().contains("begins no request"));
        }
    }
}
