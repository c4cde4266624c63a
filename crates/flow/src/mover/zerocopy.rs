//! `zerocopy`: blocks are sent from where they are, and their memory is used again when the kernel says that nobody
//! reads it any more (MSG_ZEROCOPY).
//!
//! Where the kernel had to copy after all (loopback, a card without scatter and gather) it says so; then this mover
//! makes place for one that costs less, unless it was asked for.

use super::{Job, Stop, soon};
use crate::end::{Input, Reading, Writing};
use crate::error::Error;
use crate::memory::Memory;
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::SendFlags;
use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};

/// SO_EE_ORIGIN_ZEROCOPY and SO_EE_CODE_ZEROCOPY_COPIED of linux/errqueue.h.
const ORIGIN_ZEROCOPY: u8 = 5;
const CODE_COPIED: u8 = 1;
/// Blocks under way, as long as they are not too large.
const DEPTH: usize = 8;
/// So many sends must have been copied before it is believed that all will be.
const COPIED_MIN: u64 = 4;

pub(super) fn run(job: &mut Job<'_>, from: &mut Reading, to: &mut Writing) -> Result<(), Stop> {
    let one: libc::c_int = 1;
    // SAFETY: the kernel reads one int.
    let set = unsafe {
        libc::setsockopt(
            to.descriptor.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ZEROCOPY,
            (&raw const one).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if set != 0 {
        return Err(Stop::Unfit(format!("the socket does not take it: {}", std::io::Error::last_os_error())));
    }
    let depth = super::buffers(DEPTH, job.block);
    let mut engine =
        Engine { buffers: Memory::new(depth * job.block)?, depth, under_way: VecDeque::new(), next: 0 };
    let moved = engine.run(job, from, to);
    // Memory that is on its way may not go; a flow that has failed lets the socket go first, which ends the sends.
    match (&moved, engine.wait_for_all(job, to)) {
        (Ok(()), Err(error)) => Err(error.into()),
        _ => moved,
    }
}

struct Engine {
    buffers: Memory,
    /// How many of a block these are.
    depth: usize,
    /// Sends whose memory is still read, oldest first: their number, and their buffer.
    under_way: VecDeque<(u32, usize)>,
    /// Number of the next send, as the kernel counts them.
    next: u32,
}

impl Engine {
    fn run(&mut self, job: &mut Job<'_>, from: &mut Reading, to: &mut Writing) -> Result<(), Stop> {
        let block = job.block;
        let mut turn = 0;
        while let Some(most) = job.next(from, to)? {
            let buffer = turn % self.depth;
            while self.under_way.iter().any(|one| one.1 == buffer) {
                self.wait(job, to)?;
            }
            let at = buffer * block;
            let bytes = from.next(&mut self.buffers[at..at + most], job.control)?.len();
            if bytes == 0 {
                return Ok(());
            }
            job.has_taken(bytes);
            self.send(job, to, buffer, at..at + bytes)?;
            turn += 1;
            self.look(job, to)?;
            let (counts, done) = (&job.counts, job.counts.zerocopy_sends - self.under_way.len() as u64);
            if !job.is_forced && counts.zerocopy_copied >= COPIED_MIN && counts.zerocopy_copied == done {
                return Err(Stop::Unfit("the kernel copied all the same, as it does on loopback".into()));
            }
        }
        Ok(())
    }

    fn send(
        &mut self,
        job: &mut Job<'_>,
        to: &mut Writing,
        buffer: usize,
        mut range: std::ops::Range<usize>,
    ) -> Result<(), Stop> {
        let flags = SendFlags::DONTWAIT
            | SendFlags::NOSIGNAL
            | SendFlags::from_bits_retain(libc::MSG_ZEROCOPY as u32);
        while !range.is_empty() {
            match rustix::net::send(&*to, &self.buffers[range.clone()], flags) {
                Ok(sent) => {
                    self.under_way.push_back((self.next, buffer));
                    self.next = self.next.wrapping_add(1);
                    job.counts.zerocopy_sends += 1;
                    job.has_written(sent);
                    range.start += sent;
                }
                // Room in the socket, or for one more notice.
                Err(Errno::AGAIN) => to.wait(job.control)?,
                Err(Errno::NOBUFS) => self.wait(job, to)?,
                Err(Errno::INTR) => {}
                Err(error) => return Err(to.failed(error).into()),
            }
        }
        Ok(())
    }

    /// Waits for a notice, and takes it.
    fn wait(&mut self, job: &mut Job<'_>, to: &Writing) -> Result<(), Error> {
        // Notices are errors in the eyes of poll(2), which are always told.
        job.control.wait(to.as_fd(), PollFlags::empty(), Some(soon()))?;
        self.look(job, to)
    }

    fn wait_for_all(&mut self, job: &mut Job<'_>, to: &Writing) -> Result<(), Error> {
        while !self.under_way.is_empty() {
            self.wait(job, to)?;
        }
        Ok(())
    }

    /// Takes the notices that are there.
    fn look(&mut self, job: &mut Job<'_>, to: &Writing) -> Result<(), Error> {
        while let Some(notice) = notice(to)? {
            let before = self.under_way.len();
            self.under_way
                .retain(|one| one.0.wrapping_sub(notice.first) > notice.last.wrapping_sub(notice.first));
            if notice.copied {
                job.counts.zerocopy_copied += (before - self.under_way.len()) as u64;
            }
        }
        Ok(())
    }
}

/// The kernel has done with some sends.
struct Notice {
    first: u32,
    last: u32,
    copied: bool,
}

/// Room for one notice with its address.
#[repr(align(8))]
struct Room([MaybeUninit<u8>; 128]);

/// The next notice on the socket's queue of errors (Documentation/networking/msg_zerocopy.rst).
fn notice(to: &Writing) -> Result<Option<Notice>, Error> {
    let mut room = Room([MaybeUninit::uninit(); 128]);
    // SAFETY: all zeros is a header without anything.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_control = room.0.as_mut_ptr().cast();
    header.msg_controllen = size_of::<Room>() as _;
    // SAFETY: the header leads to a live buffer of the length that it says.
    let read = unsafe {
        libc::recvmsg(to.descriptor.as_raw_fd(), &mut header, libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT)
    };
    if read < 0 {
        let error = std::io::Error::last_os_error();
        return match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EINTR) => Ok(None),
            _ => Err(to.failed(error)),
        };
    }
    // SAFETY: the kernel filled the buffer up to `msg_controllen`, within which this macro stays.
    let control = unsafe { libc::CMSG_FIRSTHDR(&header) };
    if control.is_null() {
        return Ok(None);
    }
    // SAFETY: a control message of the kernel's on a socket's queue of errors holds this structure.
    let error: libc::sock_extended_err =
        unsafe { libc::CMSG_DATA(control).cast::<libc::sock_extended_err>().read_unaligned() };
    if error.ee_origin != ORIGIN_ZEROCOPY {
        return Err(to.failed(Errno::from_raw_os_error(error.ee_errno as i32)));
    }
    Ok(Some(Notice { first: error.ee_info, last: error.ee_data, copied: error.ee_code == CODE_COPIED }))
}
