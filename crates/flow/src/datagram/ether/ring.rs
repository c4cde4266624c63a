//! Receive ring that the kernel fills with frames, block by block (packet(7), TPACKET_V3; the kernel's
//! `Documentation/networking/packet_mmap.rst`).
//!
//! ```text
//!     ring    | block 0 | block 1 | ... |          a block belongs to the kernel or, by TP_STATUS_USER, to us
//!     block   | descriptor | header, address, frame | header, address, frame | ... |
//! ```
//!
//! Two limits bound the time for which frames can wait for a reader: the size of the ring, and the number of
//! its blocks times [`RETIRE_MS`], since the kernel hands a block over after that time even if it is almost
//! empty. Therefore blocks are as small as the device's longest frame allows: at a low rate 8 MiB then last
//! for half a second; as blocks of 256 KiB they would last for a sixteenth of that.
//!
//! Invariant: a block is read only between the load that finds its status handed over and the store that
//! returns it; every offset in it is checked against the block's length nevertheless. Called by
//! [`super::EthPort`]. A frame costs no copy and no system call; a block that is not full is handed over
//! after [`RETIRE_MS`].

use crate::datagram::inbox::RUNS_MAX;
use crate::datagram::name::Name;
use crate::datagram::run::Run;
use crate::datagram::socket;
use bywash_sync::{AtomicU32, Ordering};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::mem::{offset_of, size_of};
use std::os::fd::BorrowedFd;
use std::ptr::null_mut;

/// Smallest size of a block in bytes, enough for some twenty frames of common Ethernet.
const BLOCK_BYTES_MIN: usize = 32 << 10;
/// Greatest size of a block in bytes, enough for three frames of the loopback device.
const BLOCK_BYTES_MAX: usize = 256 << 10;
/// Smallest number of the device's longest frames that a block must hold.
const FRAMES_MIN: usize = 3;
/// Greatest overhead of a frame in a block, in bytes: header, address and alignment.
const FRAME_EXTRA_BYTES: usize = 256;
/// Smallest number of blocks: one being read and one being filled.
const BLOCKS_MIN: usize = 2;
/// Greatest size of a ring, in bytes.
const BYTES_MAX: usize = 16 << 20;
/// Number of bytes after which one call stops passing on blocks.
const RECEIVE_BYTES: usize = 256 << 10;
/// Frame size that the kernel demands and does not use in this version of the ring.
const FRAME_BYTES: usize = 2048;
/// Time after which the kernel hands over a block that is not full, in milliseconds. A longer time would
/// delay answers and make the measurements of `--rate auto` coarse.
const RETIRE_MS: u32 = 2;

/// Offset of the sender's address behind a frame's header.
const ADDRESS_OFFSET: usize = size_of::<libc::tpacket3_hdr>().next_multiple_of(16);
const STATUS_OFFSET: usize =
    offset_of!(libc::tpacket_block_desc, hdr) + offset_of!(libc::tpacket_hdr_v1, block_status);

/// A mapped ring.
pub(super) struct Ring {
    base: *mut u8,
    block_bytes: usize,
    blocks: usize,
    current: usize,
    names: Vec<Name>,
}

// SAFETY: this value alone owns the mapping, which lives until it is dropped.
unsafe impl Send for Ring {}

impl Ring {
    /// Creates a ring of about `bytes` bytes for a device with this MTU, at a socket that is not bound yet.
    ///
    /// # Errors
    /// The errno of setsockopt(2) or mmap(2).
    pub(super) fn new(socket: BorrowedFd<'_>, bytes: usize, mtu: usize) -> Result<Ring, Errno> {
        let version = libc::tpacket_versions::TPACKET_V3 as i32;
        socket::set(socket, libc::SOL_PACKET, libc::PACKET_VERSION, &version)?;
        let block_bytes = block_bytes(mtu);
        let blocks = bytes.min(BYTES_MAX).div_ceil(block_bytes).max(BLOCKS_MIN);
        let request = libc::tpacket_req3 {
            tp_block_size: block_bytes as u32,
            tp_block_nr: blocks as u32,
            tp_frame_size: FRAME_BYTES as u32,
            tp_frame_nr: (blocks * block_bytes / FRAME_BYTES) as u32,
            tp_retire_blk_tov: RETIRE_MS,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        socket::set(socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &request)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps no other memory.
        let base =
            unsafe { mmap(null_mut(), blocks * block_bytes, protection, MapFlags::SHARED, socket, 0) }?;
        Ok(Ring { base: base.cast(), block_bytes, blocks, current: 0, names: vec![Name::empty(); RUNS_MAX] })
    }

    pub(super) fn bytes(&self) -> usize {
        self.blocks * self.block_bytes
    }

    /// Passes on the frames of blocks that the kernel has handed over, up to [`RECEIVE_BYTES`]. Returns true
    /// if there were any.
    pub(super) fn receive(&mut self, take: &mut dyn FnMut(&[Run<'_>])) -> bool {
        let most = (RECEIVE_BYTES / self.block_bytes).min(self.blocks);
        let blocks = (0..most).take_while(|_| self.receive_block(take)).count();
        blocks > 0
    }

    /// Passes on the frames of the next block, if the kernel has handed it over. Returns true if it has.
    fn receive_block(&mut self, take: &mut dyn FnMut(&[Run<'_>])) -> bool {
        // SAFETY: block `current` lies within the mapping, and its status is only accessed as an atomic.
        let block = unsafe { self.base.add(self.current * self.block_bytes) };
        // SAFETY: the status lies within the block, aligned by the kernel.
        let status = unsafe { AtomicU32::from_ptr(block.add(STATUS_OFFSET).cast()) };
        // Acquire: makes the kernel's writes to the block before the hand-over visible.
        if status.load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
            return false;
        }
        // SAFETY: the block is not written by the kernel until the store below returns it.
        let bytes = unsafe { std::slice::from_raw_parts(block, self.block_bytes) };
        hand_on(bytes, &mut self.names, take);
        // Release: the reads of the block are complete before the kernel fills it again.
        status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.current = (self.current + 1) % self.blocks;
        true
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: `new` mapped the ring with this length, and no reference into it is left.
        let _ = unsafe { munmap(self.base.cast(), self.blocks * self.block_bytes) };
    }
}

/// Returns the size of a block for a device with this MTU, in bytes.
fn block_bytes(mtu: usize) -> usize {
    (FRAMES_MIN * (mtu + FRAME_EXTRA_BYTES)).next_power_of_two().clamp(BLOCK_BYTES_MIN, BLOCK_BYTES_MAX)
}

/// Passes on all frames of a block, at most [`RUNS_MAX`] at once.
fn hand_on(block: &[u8], names: &mut [Name], take: &mut dyn FnMut(&[Run<'_>])) {
    // SAFETY: the block descriptor consists of integers, for which all bytes are valid.
    let Some(head) =
        (unsafe { read::<libc::tpacket_hdr_v1>(block, offset_of!(libc::tpacket_block_desc, hdr)) })
    else {
        return;
    };
    let mut offset = head.offset_to_first_pkt as usize;
    let mut left = head.num_pkts as usize;
    while left > 0 {
        let count = left.min(names.len());
        let (mut bodies, mut came) = ([&block[..0]; RUNS_MAX], 0);
        for place in 0..count {
            let Some((body, name, next)) = frame(block, offset) else {
                left = count;
                break;
            };
            (bodies[place], names[place], offset, came) = (body, name, offset + next, came + 1);
        }
        let mut runs = [Run::new(&[], 1); RUNS_MAX];
        for ((run, body), name) in runs.iter_mut().zip(bodies).zip(&*names).take(came) {
            *run = Run::new(body, body.len()).from(name);
        }
        take(&runs[..came]);
        left -= count;
    }
}

/// Returns the frame at an offset with its sender, and the distance to the next frame.
fn frame(block: &[u8], offset: usize) -> Option<(&[u8], Name, usize)> {
    // SAFETY: the frame header consists of integers, for which all bytes are valid.
    let header = unsafe { read::<libc::tpacket3_hdr>(block, offset) }?;
    // SAFETY: the address consists of integers, for which all bytes are valid.
    let address = unsafe { read::<libc::sockaddr_ll>(block, offset + ADDRESS_OFFSET) }?;
    let from = offset + usize::from(header.tp_mac);
    let body = block.get(from..from + header.tp_snaplen as usize)?;
    // The address is kept as the kernel wrote it, so that an answer takes the same path.
    Some((body, Name::of_link(address), header.tp_next_offset as usize))
}

/// Copies a `T` out of a block; `None` if it does not lie within the block.
///
/// # Safety
/// Every bit pattern must be a valid `T`.
unsafe fn read<T: Copy>(block: &[u8], offset: usize) -> Option<T> {
    let bytes = block.get(offset..)?.get(..size_of::<T>())?;
    // SAFETY: the slice has `size_of::<T>()` bytes, and any are a valid `T`, as the caller promises.
    Some(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

// Offsets that the kernel's headers define.
const _: () = assert!(ADDRESS_OFFSET == 48 && STATUS_OFFSET == 8);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_small_and_hold_the_longest_frames() {
        for (mtu, expected) in [(68, 32 << 10), (1500, 32 << 10), (9000, 32 << 10), (65_536, 256 << 10)] {
            assert_eq!(block_bytes(mtu), expected, "{mtu}");
            assert!(block_bytes(mtu) >= FRAMES_MIN * (mtu + FRAME_EXTRA_BYTES), "{mtu}");
        }
        assert_eq!(block_bytes(1 << 30), BLOCK_BYTES_MAX);
    }
}
