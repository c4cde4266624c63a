//! A socket of AF_XDP with memory of its own: frames come into it and go out of it (the kernel's
//! `Documentation/networking/af_xdp.rst`).
//!
//! ```text
//!     memory   | frame 0 | ... | frame R-1 | frame R | ... | frame R+S-1 |
//!                to receive into             to send from
//! ```
//!
//! Invariant: at every moment a frame belongs to one: to the kernel from when it is put into the fill or the
//! send ring until it comes back through the receive or the completion ring, else to us; what is received is
//! given back after it has been handed on. Called by [`super::XdpPort`]. A frame that is received costs no
//! copy here (the kernel makes one, unless the driver writes into this memory itself), one that is sent costs
//! one.

use super::program::ETHERNET_BYTES;
use super::rings::Ring;
use crate::datagram::inbox::RUNS_MAX;
use crate::datagram::socket::{self, Plain, answer};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::null_mut;
use std::time::Duration;

/// Frames that are sent from, and most that wait to be taken by the kernel.
const SEND_FRAMES: usize = 512;
/// How long a queue that somebody has is waited for.
const BIND_WAIT: Duration = Duration::from_millis(2);
const BIND_TRIES_MAX: u32 = 50;
/// Fewest and most frames to receive into.
const RECEIVE_FRAMES_MIN: usize = 64;
const RECEIVE_FRAMES_MAX: usize = 8192;
/// The kernel shows what it has received a moment before it shows which entries of the fill ring it used for
/// that: with room for all frames once more, a frame can be given back at once.
const FILL_TIMES: u32 = 2;
/// What the kernel keeps free in front of what is received (XDP_PACKET_HEADROOM).
const HEADROOM: usize = 256;
/// A frame of this length that is shorter than a page need not lie at the beginning of one.
const FRAME_BYTES: [usize; 2] = [2048, 4096];

// SAFETY: numbers.
unsafe impl Plain for libc::xdp_mmap_offsets {}
// SAFETY: numbers.
unsafe impl Plain for libc::xdp_statistics {}

/// A socket that serves one queue of a device.
pub(super) struct Socket {
    descriptor: OwnedFd,
    memory: FrameMemory,
    fill: Ring<u64>,
    received: Ring<libc::xdp_desc>,
    sending: Ring<libc::xdp_desc>,
    sent: Ring<u64>,
    /// Frames to send from that are ours.
    free: Vec<u64>,
    receive_frames: usize,
}

/// The memory in which all frames lie.
struct FrameMemory {
    base: *mut u8,
    bytes: usize,
    frame_bytes: usize,
}

// SAFETY: the mapping belongs to this value alone and stays until it is dropped.
unsafe impl Send for FrameMemory {}

/// A frame that came, without its Ethernet header, and who sent it.
pub(super) struct Came<'a> {
    pub body: &'a [u8],
    pub from: [u8; 6],
}

/// Bytes of a frame that holds what a device of this MTU receives; none: it would be more than one.
pub(super) fn frame_bytes(mtu: usize) -> Option<usize> {
    FRAME_BYTES.into_iter().find(|bytes| HEADROOM + ETHERNET_BYTES + mtu <= *bytes)
}

impl Socket {
    /// A socket with so many bytes to receive into, bound to a queue of a device.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn new(
        device: u32,
        queue: u32,
        frame_bytes: usize,
        receive_bytes: usize,
        copies: bool,
    ) -> Result<Socket, Errno> {
        // SAFETY: no memory is passed.
        let number = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        let number = answer(number as isize)?;
        // SAFETY: a new descriptor, which nobody else has.
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
        // What is on its way counts as the socket's memory; where that is not allowed, as much as the system
        // gives.
        let _ = socket::want_send_buffer(here, socket::BUFFER_BYTES);
        let free = (receive_frames..receive_frames + SEND_FRAMES).map(|number| memory.address(number));
        let free = free.collect();
        let mut new = Socket { descriptor, memory, fill, received, sending, sent, free, receive_frames };
        let all = 0..new.receive_frames;
        new.fill.produce(all.map(|number| new.memory.address(number)));
        new.bind(device, queue, copies)?;
        Ok(new)
    }

    /// From here on the kernel takes and gives frames.
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
            // SAFETY: the address is alive and as long as it says.
            let bound =
                unsafe { libc::bind(self.descriptor.as_raw_fd(), (&raw const address).cast(), length) };
            match answer(bound as isize) {
                // The kernel gives a queue free a little after the socket that had it was closed.
                Err(Errno::BUSY) if tries < BIND_TRIES_MAX => std::thread::sleep(BIND_WAIT),
                bound => return bound.map(drop),
            }
            tries += 1;
        }
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// Bytes to receive into.
    pub(super) fn buffer(&self) -> usize {
        self.receive_frames * self.memory.frame_bytes
    }

    /// Frames that came for this socket and found no room.
    pub(super) fn drops(&self) -> u64 {
        let statistics: Result<libc::xdp_statistics, Errno> =
            socket::get(self.descriptor.as_fd(), libc::SOL_XDP, libc::XDP_STATISTICS);
        statistics.map_or(0, |statistics| statistics.rx_dropped + statistics.rx_ring_full)
    }

    /// Hands on at most [`RUNS_MAX`] frames that have come; whether any had.
    pub(super) fn receive(&mut self, take: &mut dyn FnMut(&[Came<'_>])) -> bool {
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
            let mut all = [const { Came { body: &[], from: [0; 6] } }; RUNS_MAX];
            let mut fit = 0;
            for (address, length) in places {
                // SAFETY: the frame is ours until it is put into the fill ring below.
                let Some(frame) = (unsafe { self.memory.frame(*address, *length) }) else { continue };
                let (Some(from), Some(body)) = (frame[6..].first_chunk(), frame.get(ETHERNET_BYTES..)) else {
                    continue;
                };
                all[fit] = Came { body, from: *from };
                fit += 1;
            }
            take(&all[..fit]);
        }
        // There is room for all frames, as told at FILL_TIMES; any address within a frame stands for it.
        self.fill.room();
        self.fill.produce(places.iter().map(|(address, _)| *address));
        true
    }

    /// Puts a frame of these parts where the kernel finds it; false: there is no room until frames have gone.
    ///
    /// The caller has seen that it is not longer than a frame.
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
        // SAFETY: the frame is ours until it is put into the send ring below.
        unsafe { self.memory.write(address, parts, length) };
        let entry = libc::xdp_desc { addr: address, len: length as u32, options: 0 };
        self.sending.produce(std::iter::once(entry));
        true
    }

    /// Has the kernel send what was put; whether it has taken all of it.
    ///
    /// # Errors
    /// The kernel's, but those that only say that it is to be asked again.
    pub(super) fn push(&mut self) -> Result<bool, Errno> {
        // SAFETY: no memory is passed.
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

    /// Most bytes of a frame.
    pub(super) fn frame_bytes(&self) -> usize {
        self.memory.frame_bytes
    }
}

impl FrameMemory {
    fn new(frames: usize, frame_bytes: usize) -> Result<FrameMemory, Errno> {
        let bytes = frames * frame_bytes;
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new mapping where the kernel finds room.
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

    /// Where a frame is, as the kernel counts.
    fn address(&self, number: usize) -> u64 {
        (number * self.frame_bytes) as u64
    }

    /// The bytes that the kernel says it received; none if they do not lie in this memory.
    ///
    /// # Safety
    /// The frame at `address` is ours for as long as the answer is used.
    unsafe fn frame(&self, address: u64, length: usize) -> Option<&[u8]> {
        let from = usize::try_from(address).ok()?;
        if from.checked_add(length)? > self.bytes || length < ETHERNET_BYTES {
            return None;
        }
        // SAFETY: within the mapping, as was just seen; nobody writes to it, as the caller promises.
        Some(unsafe { std::slice::from_raw_parts(self.base.add(from), length) })
    }

    /// Writes a frame.
    ///
    /// # Safety
    /// The frame at `address` is ours.
    unsafe fn write(&self, address: u64, parts: [&[u8]; 3], length: usize) {
        let from = address as usize;
        assert!(length <= self.frame_bytes && from + self.frame_bytes <= self.bytes);
        // SAFETY: within the mapping, as was just seen; nobody reads or writes it, as the caller promises.
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
        // SAFETY: mapped in `new` with this length, and no reference into it is left; the kernel holds the
        // pages that it still uses by itself.
        let _ = unsafe { munmap(self.base.cast(), self.bytes) };
    }
}

// The kernel's own layout, of which four words are zero before Linux 5.4.
const _: () = assert!(size_of::<libc::xdp_desc>() == 16 && size_of::<libc::xdp_umem_reg>() == 32);
