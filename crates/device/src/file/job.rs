//! One request to the kernel, and how a thread carries it out. Made by slots, carried out by an engine.

use crate::segment::Segment;
use rustix::fs::FallocateFlags;
use std::os::fd::RawFd;

/// Transfer between a file and memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transfer {
    /// Segments of the slot that made the request; they stay valid and unchanged until it completes.
    pub(super) segments: *const Segment,
    pub(super) count: u32,
    pub(super) offset: u64,
    /// Index of the registered buffer that contains the memory, if that is one segment of one buffer.
    pub(super) buffer: Option<u16>,
}

/// One request to the kernel.
#[derive(Clone, Copy, Debug)]
pub(super) enum IoRequest {
    Read(Transfer),
    Write {
        transfer: Transfer,
        durable: bool,
    },
    Sync,
    Allocate {
        how: FallocateFlags,
        offset: u64,
        bytes: u64,
    },
    /// BLKDISCARD ioctl of a block device.
    Discard {
        offset: u64,
        bytes: u64,
    },
    /// BLKZEROOUT ioctl of a block device.
    ZeroOut {
        offset: u64,
        bytes: u64,
    },
}

// SAFETY: `segments` points into a slot, which neither moves nor changes until the request completes.
unsafe impl Send for IoRequest {}

/// ioctl(2) requests of block devices, from linux/fs.h.
const BLKDISCARD: libc::Ioctl = 0x1277;
const BLKZEROOUT: libc::Ioctl = 0x127f;

impl IoRequest {
    /// Returns true if the request is an ioctl(2), which io_uring does not have.
    pub(super) fn is_ioctl(&self) -> bool {
        matches!(self, IoRequest::Discard { .. } | IoRequest::ZeroOut { .. })
    }

    /// Carries the request out synchronously. Returns the number of bytes or a negative errno(3), as io_uring
    /// does.
    pub(super) fn carry_out(&self, file: RawFd) -> i32 {
        // The casts are lossless: offsets are within the device, and the kernel keeps its size as a signed
        // number.
        let done = match *self {
            // SAFETY: the segments' memory stays mapped until the request completes, as `Segment::new` requires.
            IoRequest::Read(t) => unsafe {
                libc::preadv(file, t.segments.cast(), t.count as i32, t.offset as i64)
            },
            IoRequest::Write { transfer: t, durable } => {
                let flags = if durable { libc::RWF_DSYNC } else { 0 };
                // SAFETY: the segments' memory stays mapped until the request completes, as `Segment::new`
                // requires.
                unsafe { libc::pwritev2(file, t.segments.cast(), t.count as i32, t.offset as i64, flags) }
            }
            // SAFETY: the system call takes a descriptor and accesses no memory.
            IoRequest::Sync => unsafe { libc::fdatasync(file) as isize },
            IoRequest::Allocate { how, offset, bytes } => {
                // SAFETY: the system call takes numbers only and accesses no memory.
                unsafe { libc::fallocate(file, how.bits() as i32, offset as i64, bytes as i64) as isize }
            }
            IoRequest::Discard { offset, bytes } => range_ioctl(file, BLKDISCARD, offset, bytes),
            IoRequest::ZeroOut { offset, bytes } => range_ioctl(file, BLKZEROOUT, offset, bytes),
        };
        match done {
            -1 => -std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO),
            // The cast is lossless: a request transfers at most `TRANSFER_MAX` bytes.
            done => done as i32,
        }
    }
}

fn range_ioctl(file: RawFd, request: libc::Ioctl, offset: u64, bytes: u64) -> isize {
    let range = [offset, bytes];
    // SAFETY: the kernel only reads the two numbers of `range`, which outlives the call.
    unsafe { libc::ioctl(file, request, range.as_ptr()) as isize }
}
