//! One request to the kernel: what an engine carries out, and how a thread does it.

use crate::span::Span;
use rustix::fs::FallocateFlags;
use std::os::fd::RawFd;

/// Bytes between a file and memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transfer {
    /// Of the slot that the job is of: there, and the same, until the job is done.
    pub(super) spans: *const Span,
    pub(super) count: u32,
    pub(super) offset: u64,
    /// The registered buffer that the memory is of, if it is one span of one buffer.
    pub(super) buffer: Option<u16>,
}

/// One request to the kernel.
#[derive(Clone, Copy, Debug)]
pub(super) enum Job {
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
    /// Of a block device: BLKDISCARD.
    Discard {
        offset: u64,
        bytes: u64,
    },
    /// Of a block device: BLKZEROOUT.
    ZeroOut {
        offset: u64,
        bytes: u64,
    },
}

// SAFETY: the spans are those of a slot, which stays where it is and as it is until the job is done.
unsafe impl Send for Job {}

/// ioctl(2) of block devices; see linux/fs.h.
const BLKDISCARD: libc::Ioctl = 0x1277;
const BLKZEROOUT: libc::Ioctl = 0x127f;

impl Job {
    /// Whether the kernel has it as an ioctl alone, which io_uring does not have.
    pub(super) fn is_ioctl(&self) -> bool {
        matches!(self, Job::Discard { .. } | Job::ZeroOut { .. })
    }

    /// Carries it out here and now; answers as a completion of io_uring does: bytes, or an error's negative number.
    pub(super) fn carry_out(&self, file: RawFd) -> i32 {
        // Offsets are within the device, whose size the kernel knows as a signed number.
        let done = match *self {
            // SAFETY: memory that is there until the job is done, as `Span::new` asks.
            Job::Read(t) => unsafe { libc::preadv(file, t.spans.cast(), t.count as i32, t.offset as i64) },
            Job::Write { transfer: t, durable } => {
                let flags = if durable { libc::RWF_DSYNC } else { 0 };
                // SAFETY: as above.
                unsafe { libc::pwritev2(file, t.spans.cast(), t.count as i32, t.offset as i64, flags) }
            }
            // SAFETY: no memory is involved.
            Job::Sync => unsafe { libc::fdatasync(file) as isize },
            Job::Allocate { how, offset, bytes } => {
                // SAFETY: no memory is involved.
                unsafe { libc::fallocate(file, how.bits() as i32, offset as i64, bytes as i64) as isize }
            }
            Job::Discard { offset, bytes } => range_ioctl(file, BLKDISCARD, offset, bytes),
            Job::ZeroOut { offset, bytes } => range_ioctl(file, BLKZEROOUT, offset, bytes),
        };
        match done {
            -1 => -std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO),
            // At most `TRANSFER_MAX`.
            done => done as i32,
        }
    }
}

fn range_ioctl(file: RawFd, request: libc::Ioctl, offset: u64, bytes: u64) -> isize {
    let range = [offset, bytes];
    // SAFETY: the kernel reads the two numbers.
    unsafe { libc::ioctl(file, request, range.as_ptr()) as isize }
}
