//! A frontend and its guest's driver in one. The messages are rust-vmm's; the ring is written by hand.
//!
//! ```text
//!   0x1000 descriptors, three a slot | 0x2000 available | 0x3000 used | 0x4000 heads | 0x5000 statuses | 0x8000 data
//! ```
//!
//! Each ring has such a part of the guest's memory, the first one at address 0.

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use vhost::vhost_user::message::{VhostUserConfigFlags, VhostUserInflight};
use vhost::vhost_user::{Frontend, VhostUserFrontend, VhostUserProtocolFeatures, VhostUserVirtioFeatures};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vm_memory::{Bytes, FileOffset, GuestAddress, GuestMemoryMmap};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

pub const READ: u32 = 0;
pub const WRITE: u32 = 1;
pub const FLUSH: u32 = 4;
pub const DATA_BYTES: usize = 4096;
/// Greatest number of requests in flight.
pub const SLOTS: u16 = 16;
const ENTRIES: u16 = 64;
/// Size of the part of the memory that belongs to a ring, in bytes.
const MEMORY_BYTES: usize = 0x2_0000;
/// Greatest number of rings.
pub const RINGS: usize = 4;
/// Address that the frontend gives for the guest's memory. Nothing is mapped there, since the disk only
/// translates it.
const FRONTEND: u64 = 0x7000_0000_0000;
const LIMIT: Duration = Duration::from_secs(20);

pub struct Driver {
    pub frontend: Frontend,
    pub file: File,
    pub map: GuestMemoryMmap<()>,
    pub kick: EventFd,
    pub call: EventFd,
    pub error: EventFd,
    /// Index of the ring, and address of its part of the memory.
    index: usize,
    base: u64,
    next: u16,
    seen: u16,
}

impl Driver {
    /// Connects, and sends no message.
    pub fn connect(socket: &Path) -> Driver {
        Driver::over_memory(socket, MemfdFlags::ALLOW_SEALING, (RINGS * MEMORY_BYTES) as u64)
    }

    /// Connects with guest memory of this kind and size, and sends no message.
    pub fn over_memory(socket: &Path, memory: MemfdFlags, bytes: u64) -> Driver {
        let frontend = Frontend::connect(socket, RINGS as u64).unwrap();
        let file = File::from(memfd_create("guest", memory).unwrap());
        file.set_len(bytes).unwrap();
        fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
        let own = FileOffset::new(file.try_clone().unwrap(), 0);
        let map =
            GuestMemoryMmap::from_ranges_with_files([(GuestAddress(0), bytes as usize, Some(own))]).unwrap();
        Driver::over(frontend, file, map, 0)
    }

    fn over(frontend: Frontend, file: File, map: GuestMemoryMmap<()>, index: usize) -> Driver {
        let event = || EventFd::new(EFD_NONBLOCK).unwrap();
        let (kick, call, error, base) = (event(), event(), event(), (index * MEMORY_BYTES) as u64);
        Driver { frontend, file, map, kick, call, error, index, base, next: 0, seen: 0 }
    }

    /// Starts ring `index` beside this one, with the same frontend and guest.
    pub fn beside(&self, index: usize) -> Driver {
        let file = self.file.try_clone().unwrap();
        let driver = Driver::over(self.frontend.clone(), file, self.map.clone(), index);
        driver.start_ring(0);
        driver
    }

    /// Connects and starts the ring, with all features that are offered except those in `without`.
    pub fn attach(socket: &Path, without: u64) -> Driver {
        let mut driver = Driver::connect(socket);
        driver.agree(without);
        driver.start(0);
        driver
    }

    pub fn agree(&mut self, without: u64) {
        let frontend = &mut self.frontend;
        frontend.set_owner().unwrap();
        let features = frontend.get_features().unwrap() & !without;
        let wanted = VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::REPLY_ACK
            | VhostUserProtocolFeatures::BACKEND_REQ
            | VhostUserProtocolFeatures::INFLIGHT_SHMFD;
        assert!(frontend.get_protocol_features().unwrap().contains(wanted));
        frontend.set_protocol_features(wanted).unwrap();
        frontend.set_hdr_flags(vhost::vhost_user::message::VhostUserHeaderFlag::NEED_REPLY);
        assert!(features & VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits() != 0);
        frontend.set_features(features).unwrap();
    }

    pub fn pass_memory(&self) -> vhost::Result<()> {
        self.frontend.set_mem_table(&[VhostUserMemoryRegionInfo {
            guest_phys_addr: 0,
            memory_size: self.file.metadata().unwrap().len(),
            userspace_addr: FRONTEND,
            mmap_offset: 0,
            mmap_handle: self.file.as_raw_fd(),
        }])?;
        Ok(())
    }

    pub fn place(&self, table: u64) -> vhost::Result<()> {
        self.frontend.set_vring_addr(
            self.index,
            &VringConfigData {
                queue_max_size: ENTRIES,
                queue_size: ENTRIES,
                flags: 0,
                desc_table_addr: FRONTEND + self.base + table,
                used_ring_addr: FRONTEND + self.base + 0x3000,
                avail_ring_addr: FRONTEND + self.base + 0x2000,
                log_addr: None,
            },
        )
    }

    /// Starts the ring, whose next chain is number `base`.
    pub fn start(&mut self, base: u16) {
        self.pass_memory().unwrap();
        self.start_ring(base);
    }

    fn start_ring(&self, base: u16) {
        let (frontend, index) = (&self.frontend, self.index);
        frontend.set_vring_num(index, ENTRIES).unwrap();
        frontend.set_vring_base(index, base).unwrap();
        self.place(0x1000).unwrap();
        frontend.set_vring_err(index, &self.error).unwrap();
        frontend.set_vring_call(index, &self.call).unwrap();
        frontend.set_vring_kick(index, &self.kick).unwrap();
        // Enabling a ring is a method that needs the frontend alone.
        self.frontend.clone().set_vring_enable(index, true).unwrap();
    }

    /// Starts a record of the requests in flight, in memory that is to be passed to the next server of the
    /// disk.
    pub fn record(&mut self) -> (VhostUserInflight, File) {
        let wanted = VhostUserInflight::new(0, 0, 1, ENTRIES);
        let (record, file) = self.frontend.get_inflight_fd(&wanted).unwrap();
        self.frontend.set_inflight_fd(&record, file.as_raw_fd()).unwrap();
        (record, file)
    }

    /// Connects to another server of the disk, which is to carry out the requests that the last one left.
    pub fn go_on(&mut self, socket: &Path, (record, file): &(VhostUserInflight, File)) {
        self.frontend = Frontend::connect(socket, RINGS as u64).unwrap();
        self.agree(0);
        self.frontend.set_inflight_fd(record, file.as_raw_fd()).unwrap();
        // QEMU passes the used index as well, since it does not know how many chains the last server had
        // taken.
        self.start(self.map.load(GuestAddress(0x3002), Ordering::Acquire).unwrap());
    }

    /// Passes a socket for the disk's notifications, and returns the other end.
    pub fn listen(&mut self) -> UnixStream {
        let (ours, theirs) = UnixStream::pair().unwrap();
        self.frontend.set_backend_request_fd(&theirs).unwrap();
        ours.set_read_timeout(Some(LIMIT)).unwrap();
        ours
    }

    /// Returns the size of the disk, in bytes, as the configuration tells it.
    pub fn bytes(&mut self) -> u64 {
        let flags = VhostUserConfigFlags::empty();
        let (_, sectors) = self.frontend.get_config(0, 8, flags, &[0; 8]).unwrap();
        u64::from_le_bytes(sectors.try_into().unwrap()) * 512
    }

    pub fn put(&self, at: u64, bytes: &[u8]) {
        self.map.write_slice(bytes, GuestAddress(self.base + at)).unwrap();
    }

    pub fn data(&self, slot: u16) -> Vec<u8> {
        let mut bytes = vec![0; DATA_BYTES];
        self.map.read_slice(&mut bytes, GuestAddress(self.base + data_at(slot))).unwrap();
        bytes
    }

    pub fn fill(&self, slot: u16, byte: u8) {
        self.put(data_at(slot), &[byte; DATA_BYTES]);
    }

    pub fn status(&self, slot: u16) -> u8 {
        self.map.read_obj(GuestAddress(self.base + status_at(slot))).unwrap()
    }

    /// Adds a request of one page, or of a head alone, to the ring without a kick.
    pub fn leave(&mut self, slot: u16, kind: u32, page: u64) {
        let (head, first) = (0x4000 + 32 * u64::from(slot), 3 * slot);
        self.put(head, &kind.to_le_bytes());
        self.put(head + 8, &(page * 8).to_le_bytes());
        self.put(status_at(slot), &[0xff]);
        let data = (data_at(slot), DATA_BYTES as u32, if kind == READ { 3 } else { 1 });
        let status = (status_at(slot), 1, 2);
        let pieces = match kind {
            FLUSH => vec![(head, 16, 1), status],
            _ => vec![(head, 16, 1), data, status],
        };
        for (number, (at, bytes, flags)) in (first..).zip(pieces) {
            self.put_descriptor(number, at, bytes, flags, number + 1);
        }
        self.make_available(first);
    }

    pub fn put_descriptor(&self, number: u16, at: u64, bytes: u32, flags: u16, next: u16) {
        let place = 0x1000 + 16 * u64::from(number);
        self.put(place, &(self.base + at).to_le_bytes());
        self.put(place + 8, &bytes.to_le_bytes());
        self.put(place + 12, &flags.to_le_bytes());
        self.put(place + 14, &next.to_le_bytes());
    }

    pub fn make_available(&mut self, first: u16) {
        self.put(0x2004 + 2 * u64::from(self.next % ENTRIES), &first.to_le_bytes());
        self.next = self.next.wrapping_add(1);
        self.set_available(self.next);
    }

    pub fn set_available(&self, index: u16) {
        self.map.store(index, GuestAddress(self.base + 0x2002), Ordering::Release).unwrap();
    }

    /// Adds a request to the ring and kicks.
    pub fn ask(&mut self, slot: u16, kind: u32, page: u64) {
        self.leave(slot, kind, page);
        self.kick.write(1).unwrap();
    }

    /// Adds a request to the ring, and kicks if the disk has asked for that (virtio 1.2, 2.7.10). Returns true if so.
    pub fn ask_if_wanted(&mut self, slot: u16, kind: u32, page: u64) -> bool {
        let before = self.next;
        self.leave(slot, kind, page);
        std::sync::atomic::fence(Ordering::SeqCst);
        let event = GuestAddress(self.base + 0x3004 + 8 * u64::from(ENTRIES));
        let event: u16 = self.map.load(event, Ordering::Relaxed).unwrap();
        let is_wanted = self.next.wrapping_sub(event).wrapping_sub(1) < self.next.wrapping_sub(before);
        if is_wanted {
            self.kick.write(1).unwrap();
        }
        is_wanted
    }

    /// Returns the number of requests that were returned and not yet waited for.
    pub fn given_back(&self) -> u16 {
        let index: u16 = self.map.load(GuestAddress(self.base + 0x3002), Ordering::Acquire).unwrap();
        index.wrapping_sub(self.seen)
    }

    /// Waits until `count` requests were returned, woken by calls, and returns their slots in order.
    pub fn wait(&mut self, count: u16) -> Vec<u16> {
        let end = Instant::now() + LIMIT;
        // Asks for a notification after the last of the `count` requests (virtio 1.2, 2.7.7.1).
        let last = self.seen.wrapping_add(count - 1);
        self.put(0x2004 + 2 * u64::from(ENTRIES), &last.to_le_bytes());
        std::sync::atomic::fence(Ordering::SeqCst);
        while self.given_back() < count {
            let _ = self.call.read();
            if self.given_back() >= count {
                break;
            }
            assert!(Instant::now() < end, "{} of {count} were given back", self.given_back());
            wait_for(&self.call);
        }
        (0..count).map(|_| self.next_given_back()).collect()
    }

    fn next_given_back(&mut self) -> u16 {
        let at = 0x3004 + 8 * u64::from(self.seen % ENTRIES);
        self.seen = self.seen.wrapping_add(1);
        let first: u32 = self.map.read_obj(GuestAddress(self.base + at)).unwrap();
        first as u16 / 3
    }
}

fn data_at(slot: u16) -> u64 {
    0x8000 + DATA_BYTES as u64 * u64::from(slot)
}

fn status_at(slot: u16) -> u64 {
    0x5000 + u64::from(slot)
}

/// Waits until an event counter is rung, and panics after [`LIMIT`].
pub fn wait_for(event: &EventFd) {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use std::os::fd::BorrowedFd;
    // SAFETY: `event` keeps its descriptor open as long as `descriptor` is used.
    let descriptor = unsafe { BorrowedFd::borrow_raw(event.as_raw_fd()) };
    let limit = Timespec { tv_sec: LIMIT.as_secs() as i64, tv_nsec: 0 };
    let rung = poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&limit)).unwrap();
    assert_eq!(rung, 1, "nobody has rung");
}
