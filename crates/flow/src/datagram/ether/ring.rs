//! A receive ring that the kernel fills with frames, block by block (packet(7), TPACKET_V3; the kernel's
//! `Documentation/networking/packet_mmap.rst`).
//!
//! ```text
//!     ring    | block 0 | block 1 | ... |          a block belongs to the kernel or, by TP_STATUS_USER, to us
//!     block   | descriptor | header, address, frame | header, address, frame | ... |
//! ```
//!
//! The time for which frames can wait for a reader has two limits: the bytes of the ring, and its blocks times
//! [`RETIRE_MS`], because the kernel hands over a block after that time however little is in it. So blocks are as small
//! as the device's longest frame allows: at a low rate 8 MiB then last for half a second, as many blocks of 256 KiB for
//! a sixteenth of it.
//!
//! Invariant: a block is read only between the load that finds it ours and the store that gives it back; every offset
//! that it holds is checked against its length all the same. Called by [`super::EthPort`]. A frame costs no copy and no
//! system call; a block that is not full is handed over after [`RETIRE_MS`].

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

/// Smallest block, in bytes: some twenty frames of common Ethernet.
const BLOCK_BYTES_MIN: usize = 32 << 10;
/// Largest block, in bytes: three frames of the loopback device.
const BLOCK_BYTES_MAX: usize = 256 << 10;
/// Frames of the device's longest kind that a block holds at least.
const FRAMES_MIN: usize = 3;
/// Bytes that a frame takes in a block beside its payload, at most: header, address, and alignment.
const FRAME_EXTRA_BYTES: usize = 256;
/// Blocks, at least: one being read, one being filled.
const BLOCKS_MIN: usize = 2;
/// Most bytes of a ring.
const BYTES_MAX: usize = 16 << 20;
/// Most bytes that are handed on by one call, where so many blocks are ready.
const RECEIVE_BYTES: usize = 256 << 10;
/// What the kernel wants to know and does not use with this version of the ring.
const FRAME_BYTES: usize = 2048;
/// Time after which a block that is not full is handed over, in milliseconds. Longer makes answers late and the time
/// that `--rate auto` measures coarse.
const RETIRE_MS: u32 = 2;

/// Where a frame's sender is written behind its header.
const ADDRESS_OFFSET: usize = size_of::<libc::tpacket3_hdr>().next_multiple_of(16);
const STATUS_OFFSET: usize =
    offset_of!(libc::tpacket_block_desc, hdr) + offset_of!(libc::tpacket_hdr_v1, block_status);

/// The mapped ring.
pub(super) struct Ring {
    base: *mut u8,
    block_bytes: usize,
    blocks: usize,
    current: usize,
    names: Vec<Name>,
}

// SAFETY: the mapping belongs to this value alone and stays until it is dropped.
unsafe impl Send for Ring {}

impl Ring {
    /// Makes a ring of about so many bytes, for a device with this MTU, at a socket that is not bound yet.
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
        // SAFETY: a new mapping where the kernel finds room.
        let base =
            unsafe { mmap(null_mut(), blocks * block_bytes, protection, MapFlags::SHARED, socket, 0) }?;
        Ok(Ring { base: base.cast(), block_bytes, blocks, current: 0, names: vec![Name::empty(); RUNS_MAX] })
    }

    pub(super) fn bytes(&self) -> usize {
        self.blocks * self.block_bytes
    }

    /// Hands on the frames of the blocks that the kernel has handed over, up to [`RECEIVE_BYTES`]; whether there were any.
    pub(super) fn receive(&mut self, take: &mut dyn FnMut(&[Run<'_>])) -> bool {
        let most = (RECEIVE_BYTES / self.block_bytes).min(self.blocks);
        let blocks = (0..most).take_while(|_| self.receive_block(take)).count();
        blocks > 0
    }

    /// Hands on the frames of the next block, if the kernel has handed it over; whether it has.
    fn receive_block(&mut self, take: &mut dyn FnMut(&[Run<'_>])) -> bool {
        // SAFETY: block `current` lies within the mapping, and nobody makes a reference to its status but as an atomic.
        let block = unsafe { self.base.add(self.current * self.block_bytes) };
        // SAFETY: within the block, and aligned as the kernel aligned it.
        let status = unsafe { AtomicU32::from_ptr(block.add(STATUS_OFFSET).cast()) };
        // Acquire: what the kernel wrote into the block before it handed it over is seen.
        if status.load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
            return false;
        }
        // SAFETY: the block is ours until the store below, so that nobody writes to it.
        let bytes = unsafe { std::slice::from_raw_parts(block, self.block_bytes) };
        hand_on(bytes, &mut self.names, take);
        // Release: the kernel fills the block only after it has been read.
        status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.current = (self.current + 1) % self.blocks;
        true
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length, and no reference into it is left.
        let _ = unsafe { munmap(self.base.cast(), self.blocks * self.block_bytes) };
    }
}

/// Bytes of a block for a device with this MTU.
fn block_bytes(mtu: usize) -> usize {
    (FRAMES_MIN * (mtu + FRAME_EXTRA_BYTES)).next_power_of_two().clamp(BLOCK_BYTES_MIN, BLOCK_BYTES_MAX)
}

/// Hands on all frames of a block, at most [`RUNS_MAX`] at once.
fn hand_on(block: &[u8], names: &mut [Name], take: &mut dyn FnMut(&[Run<'_>])) {
    // SAFETY: numbers.
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

/// The frame at an offset, who sent it, and how far the next one is.
fn frame(block: &[u8], offset: usize) -> Option<(&[u8], Name, usize)> {
    // SAFETY: numbers.
    let header = unsafe { read::<libc::tpacket3_hdr>(block, offset) }?;
    // SAFETY: numbers.
    let address = unsafe { read::<libc::sockaddr_ll>(block, offset + ADDRESS_OFFSET) }?;
    let from = offset + usize::from(header.tp_mac);
    let body = block.get(from..from + header.tp_snaplen as usize)?;
    // The kernel gives the address as it came: an answer goes back the same way.
    Some((body, Name::of_link(address), header.tp_next_offset as usize))
}

/// Copies out a `T`.
///
/// # Safety
/// Any bytes are a valid `T`.
unsafe fn read<T: Copy>(block: &[u8], offset: usize) -> Option<T> {
    let bytes = block.get(offset..)?.get(..size_of::<T>())?;
    // SAFETY: as many bytes as `T` has, and any are valid, as the caller promises.
    Some(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

// The addresses of the layout, from the kernel's headers.
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
