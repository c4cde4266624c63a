//! An AF_XDP socket with its own memory, which frames are received into and sent from (the kernel's
//! `Documentation/networking/af_xdp.rst`).
//!
//! ```text
//!     memory   | frame 0 | ... | frame R-1 | frame R | ... | frame R+S-1 |
//!                to receive into             to send from
//! ```
//!
//! Invariant: each frame has one owner: the kernel from the time when the frame is put into the fill or send
//! ring until it returns through the receive or completion ring, otherwise this socket; a received frame is
//! returned after it has been passed on. Called by [`super::XdpPort`]. A received frame costs no copy here
//! (the kernel makes one, unless the driver writes into this memory itself), a sent frame costs one.

use super::program::ETHERNET_BYTES;
use super::rings::Ring;
use crate::datagram::inbox::RUNS_MAX;
use crate::datagram::socket::{self, Plain, answer};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::null_mut;
use std::time::Duration;

/// Number of frames to send from, which limits the frames that wait for the kernel.
const SEND_FRAMES: usize = 512;
/// Pause before a queue that another socket still has is tried again, and greatest number of attempts.
const BIND_WAIT: Duration = Duration::from_millis(2);
const BIND_TRIES_MAX: u32 = 50;
/// Smallest and greatest number of frames to receive into.
const RECEIVE_FRAMES_MIN: usize = 64;
const RECEIVE_FRAMES_MAX: usize = 8192;
/// Size of the fill ring, as a multiple of the frames. The kernel publishes received frames a moment before
/// it frees the fill ring's entries for them; with twice the room a frame can always be returned at once.
const FILL_TIMES: u32 = 2;
/// Space that the kernel keeps free in front of a received frame, in bytes (XDP_PACKET_HEADROOM).
const HEADROOM: usize = 256;
/// Possible sizes of a frame, in bytes. One that is smaller than a page need not be aligned to a page.
const FRAME_BYTES: [usize; 2] = [2048, 4096];

// SAFETY: the structure consists of integers, for which all bytes are valid.
unsafe impl Plain for libc::xdp_mmap_offsets {}
// SAFETY: the structure consists of integers, for which all bytes are valid.
unsafe impl Plain for libc::xdp_statistics {}

/// A socket that serves one queue of a device.
pub(super) struct Socket {
    descriptor: OwnedFd,
    memory: FrameMemory,
    fill: Ring<u64>,
    received: Ring<libc::xdp_desc>,
    sending: Ring<libc::xdp_desc>,
    sent: Ring<u64>,
    /// Frames to send from that this socket owns.
    free: Vec<u64>,
    receive_frames: usize,
}

/// FrameMemory of all frames of a socket.
struct FrameMemory {
    base: *mut u8,
    bytes: usize,
    frame_bytes: usize,
}

// SAFETY: this value alone owns the mapping, which lives until it is dropped.
unsafe impl Send for FrameMemory {}

/// A received frame without its Ethernet header, and its sender.
pub(super) struct ReceivedFrame<'a> {
    pub body: &'a [u8],
    pub from: [u8; 6],
}

/// Returns the size of a frame in memory for a device of this MTU, in bytes; `None` if no size is large
/// enough.
pub(super) fn frame_bytes(mtu: usize) -> Option<usize> {
    FRAME_BYTES.into_iter().find(|bytes| HEADROOM + ETHERNET_BYTES + mtu <= *bytes)
}

impl Socket {
    /// Opens a socket with `bytes` bytes to receive into, and binds it to a queue of a device.
    ///
    /// # Errors
    /// The errno of the system call that failed.
    pub(super) fn new(
        device: u32,
        queue: u32,
        frame_bytes: usize,
        receive_bytes: usize,
        copies: bool,
    ) -> Result<Socket, Errno> {
        // SAFETY: socket(2) takes no pointers.
        let number = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        let number = answer(number as isize)?;
        // SAFETY: the descriptor was just created, and nobody else owns it.
        let descriptor = unsafe { OwnedFd::from_raw_fd(number as i32) };
        let receive_frames =
            (receive_bytes / frame_bytes).next_power_of_two().clamp(RECEIVE_FRAMES_MIN, RECEIVE_FRAMES_MAX);
        let memory = FrameMemory::new(receive_frames + SEND_FRAMES, frame_bytes)?;
        memory.register(descriptor.as_fd())?;
        let (receives, sends) = (receive_frames as u32, SEND_FRAMES as u32);
        let set = |name, entries: u32| socket::set(descriptor.as_fd(), libc::SOL_XDP, name, &entries);
        set(libc::XDP_UMEM_FILL_RING, FILL_TIMES * receives)?;
        set(libc::XDP_UMEM_COMPLETION_RING, sends)?;
        set(libc::XDP_RX_RING, receives)?;
        set(libc::XDP_TX_RING, sends)?;
        let at: libc::xdp_mmap_offsets =
            socket::get(descriptor.as_fd(), libc::SOL_XDP, libc::XDP_MMAP_OFFSETS)?;
        let here = descriptor.as_fd();
        let fill = Ring::map(here, FILL_TIMES * receives, at.fr, libc::XDP_UMEM_PGOFF_FILL_RING)?;
        let sent = Ring::map(here, sends, at.cr, libc::XDP_UMEM_PGOFF_COMPLETION_RING)?;
        let received = Ring::map(here, receives, at.rx, libc::XDP_PGOFF_RX_RING as u64)?;
        let sending = Ring::map(here, sends, at.tx, libc::XDP_PGOFF_TX_RING as u64)?;
        // Frames in flight count as the socket's memory. If the limit cannot be raised, the system's limit
        // applies.
        let _ = socket::want_send_buffer(here, socket::BUFFER_BYTES);
        let free = (receive_frames..receive_frames + SEND_FRAMES).map(|number| memory.address(number));
        let free = free.collect();
        let mut new = Socket { descriptor, memory, fill, received, sending, sent, free, receive_frames };
        let all = 0..new.receive_frames;
        new.fill.produce(all.map(|number| new.memory.address(number)));
        new.bind(device, queue, copies)?;
        Ok(new)
    }

    /// Binds the socket to the queue, after which the kernel receives and sends frames.
    fn bind(&self, device: u32, queue: u32, copies: bool) -> Result<(), Errno> {
        let flags = libc::XDP_USE_NEED_WAKEUP | if copies { libc::XDP_COPY } else { 0 };
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: flags,
            sxdp_ifindex: device,
            sxdp_queue_id: queue,
            sxdp_shared_umem_fd: 0,
        };
        let length = size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
        let mut tries = 0;
        loop {
            // SAFETY: the address lives through the call and has the stated length.
            let bound =
                unsafe { libc::bind(self.descriptor.as_raw_fd(), (&raw const address).cast(), length) };
            match answer(bound as isize) {
                // The kernel releases a queue shortly after its previous socket was closed.
                Err(Errno::BUSY) if tries < BIND_TRIES_MAX => std::thread::sleep(BIND_WAIT),
                bound => return bound.map(drop),
            }
            tries += 1;
        }
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// Returns the number of bytes to receive into.
    pub(super) fn buffer(&self) -> usize {
        self.receive_frames * self.memory.frame_bytes
    }

    /// Returns the number of frames that were dropped for lack of room.
    pub(super) fn drops(&self) -> u64 {
        let statistics: Result<libc::xdp_statistics, Errno> =
            socket::get(self.descriptor.as_fd(), libc::SOL_XDP, libc::XDP_STATISTICS);
        statistics.map_or(0, |statistics| statistics.rx_dropped + statistics.rx_ring_full)
    }

    /// Passes on at most [`RUNS_MAX`] received frames. Returns true if there were any.
    pub(super) fn receive(&mut self, take: &mut dyn FnMut(&[ReceivedFrame<'_>])) -> bool {
        let (mut places, mut count) = ([(0, 0); RUNS_MAX], 0);
        self.received.consume(RUNS_MAX as u32, |entry| {
            places[count] = (entry.addr, entry.len as usize);
            count += 1;
        });
        if count == 0 {
            return false;
        }
        let places = &places[..count];
        {
            let mut all = [const { ReceivedFrame { body: &[], from: [0; 6] } }; RUNS_MAX];
            let mut fit = 0;
            for (address, length) in places {
                // SAFETY: this socket owns the frame until it is put into the fill ring below.
                let Some(frame) = (unsafe { self.memory.frame(*address, *length) }) else { continue };
                let (Some(from), Some(body)) = (frame[6..].first_chunk(), frame.get(ETHERNET_BYTES..)) else {
                    continue;
                };
                all[fit] = ReceivedFrame { body, from: *from };
                fit += 1;
            }
            take(&all[..fit]);
        }
        // The fill ring has room for all frames (FILL_TIMES), and any address within a frame stands for it.
        self.fill.room();
        self.fill.produce(places.iter().map(|(address, _)| *address));
        true
    }

    /// Queues a frame of these parts for sending. Returns false if there is no room until frames have been
    /// sent.
    ///
    /// The caller must have checked that the parts fit a frame.
    pub(super) fn put(&mut self, parts: [&[u8]; 3]) -> bool {
        if self.free.is_empty() {
            let free = &mut self.free;
            self.sent.consume(SEND_FRAMES as u32, |address| free.push(address));
        }
        if self.free.is_empty() || self.sending.room() == 0 {
            return false;
        }
        let Some(address) = self.free.pop() else { return false };
        let length: usize = parts.iter().map(|part| part.len()).sum();
        // SAFETY: this socket owns the frame until it is put into the send ring below.
        unsafe { self.memory.write(address, parts, length) };
        let entry = libc::xdp_desc { addr: address, len: length as u32, options: 0 };
        self.sending.produce(std::iter::once(entry));
        true
    }

    /// Makes the kernel send the queued frames. Returns true if it has taken all of them.
    ///
    /// # Errors
    /// The errno of sendto(2), except those that only ask for another attempt.
    pub(super) fn push(&mut self) -> Result<bool, Errno> {
        // SAFETY: the call passes no memory.
        let pushed = unsafe {
            libc::sendto(self.descriptor.as_raw_fd(), null_mut(), 0, libc::MSG_DONTWAIT, null_mut(), 0)
        };
        match answer(pushed) {
            Ok(_) | Err(Errno::AGAIN | Errno::BUSY | Errno::NOBUFS | Errno::INTR) => {
                Ok(self.sending.is_taken())
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the greatest size of a frame, in bytes.
    pub(super) fn frame_bytes(&self) -> usize {
        self.memory.frame_bytes
    }
}

impl FrameMemory {
    fn new(frames: usize, frame_bytes: usize) -> Result<FrameMemory, Errno> {
        let bytes = frames * frame_bytes;
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new mapping at an address of the kernel's choice overlaps no other memory.
        let base = unsafe { mmap_anonymous(null_mut(), bytes, protection, flags) }?;
        Ok(FrameMemory { base: base.cast(), bytes, frame_bytes })
    }

    fn register(&self, socket: BorrowedFd<'_>) -> Result<(), Errno> {
        let region = libc::xdp_umem_reg {
            addr: self.base as u64,
            len: self.bytes as u64,
            chunk_size: self.frame_bytes as u32,
            headroom: 0,
            flags: 0,
            tx_metadata_len: 0,
        };
        socket::set(socket, libc::SOL_XDP, libc::XDP_UMEM_REG, &region)
    }

    /// Returns the address of a frame, as an offset in the memory.
    fn address(&self, number: usize) -> u64 {
        (number * self.frame_bytes) as u64
    }

    /// Returns the bytes of a received frame; `None` if they do not lie within the memory.
    ///
    /// # Safety
    /// The socket must own the frame at `address` for as long as the result is used.
    unsafe fn frame(&self, address: u64, length: usize) -> Option<&[u8]> {
        let from = usize::try_from(address).ok()?;
        if from.checked_add(length)? > self.bytes || length < ETHERNET_BYTES {
            return None;
        }
        // SAFETY: the range was just checked to lie within the mapping; nobody writes to it, as the caller
        // promises.
        Some(unsafe { std::slice::from_raw_parts(self.base.add(from), length) })
    }

    /// Writes the parts of a frame.
    ///
    /// # Safety
    /// The socket must own the frame at `address`.
    unsafe fn write(&self, address: u64, parts: [&[u8]; 3], length: usize) {
        let from = address as usize;
        assert!(length <= self.frame_bytes && from + self.frame_bytes <= self.bytes);
        // SAFETY: the range was just checked to lie within the mapping; nobody else accesses it, as the
        // caller promises.
        let mut room = unsafe { std::slice::from_raw_parts_mut(self.base.add(from), length) };
        for part in parts {
            let (here, rest) = room.split_at_mut(part.len());
            here.copy_from_slice(part);
            room = rest;
        }
    }
}

impl Drop for FrameMemory {
    fn drop(&mut self) {
        // SAFETY: `new` created the mapping with this length, and no reference into it is left; the kernel
        // holds its own references to pages in use.
        let _ = unsafe { munmap(self.base.cast(), self.bytes) };
    }
}

// Layout of the kernel's structure, of which four words are zero before Linux 5.4.
const _: () = assert!(size_of::<libc::xdp_desc>() == 16 && size_of::<libc::xdp_umem_reg>() == 32);
