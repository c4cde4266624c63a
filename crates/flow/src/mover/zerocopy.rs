//! `zerocopy`: blocks are sent from their buffer without a copy, and a buffer is reused once the kernel
//! reports that nothing reads it any more (MSG_ZEROCOPY).
//!
//! The kernel also reports when it had to copy (loopback, a network card without scatter/gather). The mover
//! then gives up in favour of a cheaper one, unless the user forced it.

use super::{Job, Stop, soon};
use crate::block_buffer::BlockBuffer;
use crate::block_io::Input;
use crate::end::{DescriptorSink, DescriptorSource};
use crate::error::Error;
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::SendFlags;
use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};

/// Constants SO_EE_ORIGIN_ZEROCOPY and SO_EE_CODE_ZEROCOPY_COPIED of linux/errqueue.h.
const ORIGIN_ZEROCOPY: u8 = 5;
const CODE_COPIED: u8 = 1;
/// Greatest number of buffers; fewer if the blocks are large.
const DEPTH: usize = 8;
/// Number of copied sends after which the mover assumes that all sends will be copied.
const COPIED_MIN: u64 = 4;

pub(super) fn run(
    job: &mut Job<'_>,
    from: &mut DescriptorSource,
    to: &mut DescriptorSink,
) -> Result<(), Stop> {
    let one: libc::c_int = 1;
    // SAFETY: the kernel reads one int, `one`, of the given size.
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
        return Err(Stop::Refused(format!(
            "the socket does not take it: {}",
            std::io::Error::last_os_error()
        )));
    }
    let depth = super::buffers(DEPTH, job.block);
    let mut engine =
        Engine { buffers: BlockBuffer::new(depth * job.block)?, depth, in_flight: VecDeque::new(), next: 0 };
    let moved = engine.run(job, from, to);
    // Waits until the kernel has finished with the buffers. If that wait fails, the buffers are unmapped
    // early, which is safe: the kernel holds references to the pages that it still sends.
    match (&moved, engine.wait_for_all(job, to)) {
        (Ok(()), Err(error)) => Err(error.into()),
        _ => moved,
    }
}

struct Engine {
    buffers: BlockBuffer,
    /// Number of buffers, of one block each.
    depth: usize,
    /// Sends whose buffer the kernel may still read, oldest first: number of the send, and its buffer.
    in_flight: VecDeque<(u32, usize)>,
    /// Number of the next send, as the kernel counts them.
    next: u32,
}

impl Engine {
    fn run(
        &mut self,
        job: &mut Job<'_>,
        from: &mut DescriptorSource,
        to: &mut DescriptorSink,
    ) -> Result<(), Stop> {
        let block = job.block;
        let mut turn = 0;
        while let Some(most) = job.next(from, to)? {
            let buffer = turn % self.depth;
            while self.in_flight.iter().any(|one| one.1 == buffer) {
                self.wait(job, to)?;
            }
            let at = buffer * block;
            let bytes = from.next(&mut self.buffers[at..at + most], job.control)?.len();
            if bytes == 0 {
                return Ok(());
            }
            job.record_taken(bytes);
            self.send(job, to, buffer, at..at + bytes)?;
            turn += 1;
            self.handle_notices(job, to)?;
            let (counts, done) = (&job.counts, job.counts.zerocopy_sends - self.in_flight.len() as u64);
            if !job.is_forced && counts.zerocopy_copied >= COPIED_MIN && counts.zerocopy_copied == done {
                return Err(Stop::Refused("the kernel copied all the same, as it does on loopback".into()));
            }
        }
        Ok(())
    }

    fn send(
        &mut self,
        job: &mut Job<'_>,
        to: &mut DescriptorSink,
        buffer: usize,
        mut range: std::ops::Range<usize>,
    ) -> Result<(), Stop> {
        let flags = SendFlags::DONTWAIT
            | SendFlags::NOSIGNAL
            | SendFlags::from_bits_retain(libc::MSG_ZEROCOPY as u32);
        while !range.is_empty() {
            match rustix::net::send(&*to, &self.buffers[range.clone()], flags) {
                Ok(sent) => {
                    self.in_flight.push_back((self.next, buffer));
                    self.next = self.next.wrapping_add(1);
                    job.counts.zerocopy_sends += 1;
                    job.record_written(sent);
                    range.start += sent;
                }
                // EAGAIN waits for room in the socket, ENOBUFS for memory of one more notice.
                Err(Errno::AGAIN) => to.wait(job.control)?,
                Err(Errno::NOBUFS) => self.wait(job, to)?,
                Err(Errno::INTR) => {}
                Err(error) => return Err(to.failed(error).into()),
            }
        }
        Ok(())
    }

    /// Waits for a notice, at most [`crate::control::UNCANCELLABLE_WAIT_MAX`], and handles all that have
    /// arrived.
    fn wait(&mut self, job: &mut Job<'_>, to: &DescriptorSink) -> Result<(), Error> {
        // poll(2) reports a notice as POLLERR, which needs no requested events.
        job.control.wait(to.as_fd(), PollFlags::empty(), Some(soon()))?;
        self.handle_notices(job, to)
    }

    fn wait_for_all(&mut self, job: &mut Job<'_>, to: &DescriptorSink) -> Result<(), Error> {
        while !self.in_flight.is_empty() {
            self.wait(job, to)?;
        }
        Ok(())
    }

    /// Handles all notices that have arrived.
    fn handle_notices(&mut self, job: &mut Job<'_>, to: &DescriptorSink) -> Result<(), Error> {
        while let Some(notice) = notice(to)? {
            let before = self.in_flight.len();
            self.in_flight
                .retain(|one| one.0.wrapping_sub(notice.first) > notice.last.wrapping_sub(notice.first));
            if notice.copied {
                job.counts.zerocopy_copied += (before - self.in_flight.len()) as u64;
            }
        }
        Ok(())
    }
}

/// Notice of the kernel that it has finished with the sends `first` to `last`.
struct Notice {
    first: u32,
    last: u32,
    copied: bool,
}

/// Buffer for one control message with the peer's address.
#[repr(align(8))]
struct ControlBuffer([MaybeUninit<u8>; 128]);

/// Takes the next notice from the socket's error queue (Documentation/networking/msg_zerocopy.rst); `None` if
/// there is none.
///
/// # Errors
/// [`Error::Io`] if recvmsg(2) fails or the queue holds a real error of the socket.
fn notice(to: &DescriptorSink) -> Result<Option<Notice>, Error> {
    let mut room = ControlBuffer([MaybeUninit::uninit(); 128]);
    // SAFETY: `msghdr` consists of integers and pointers, for which all zeros is a valid value.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_control = room.0.as_mut_ptr().cast();
    header.msg_controllen = size_of::<ControlBuffer>() as _;
    // SAFETY: the header points to `room`, a live buffer of the length that it states.
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
    // SAFETY: the kernel has initialised `room` up to `msg_controllen`, and this macro reads no further.
    let control = unsafe { libc::CMSG_FIRSTHDR(&header) };
    if control.is_null() {
        return Ok(None);
    }
    // SAFETY: the first control message on a socket's error queue holds this structure, within the buffer.
    let error: libc::sock_extended_err =
        unsafe { libc::CMSG_DATA(control).cast::<libc::sock_extended_err>().read_unaligned() };
    if error.ee_origin != ORIGIN_ZEROCOPY {
        return Err(to.failed(Errno::from_raw_os_error(error.ee_errno as i32)));
    }
    Ok(Some(Notice { first: error.ee_info, last: error.ee_data, copied: error.ee_code == CODE_COPIED }))
}
