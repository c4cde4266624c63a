//! Sends runs of datagrams, by one call for one, for many, or for many that the kernel cuts.
//!
//! ```text
//!     run        | d0 | d1 | d2 | d3 |       Way::Each, Way::Many: a message a datagram
//!     messages   | m0 | m1 | m2 | m3 |
//!     run        | d0 | d1 | d2 | d3 |       Way::Cut: a message a run, with the size of a segment beside it
//!     messages   |        m0         |
//! ```
//!
//! Invariant: every datagram goes once and in order, or [`Outbox::send`] fails; pointers to what the caller
//! lent are made anew in every call and used in no other. Called by the ports. An operation costs one system
//! call for up to [`MESSAGES_MAX`] messages and allocates nothing.

use super::name::Name;
use super::run::Run;
use super::socket::answer;
use crate::control::Control;
use crate::error::Error;
use rustix::event::PollFlags;
use rustix::io::Errno;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

/// Most messages of a call.
pub(crate) const MESSAGES_MAX: usize = 64;
/// Most datagrams that the kernel cuts from one (UDP_MAX_SEGMENTS of every version that has UDP_SEGMENT).
pub(crate) const SEGMENTS_MAX: usize = 64;
/// Most bytes of such a one: what the length field of an IPv4 packet holds, less the headers.
pub(crate) const CUT_BYTES_MAX: usize = 65_507;

/// Most pieces of a call: two for every datagram of the largest message, at least.
const PIECES_MAX: usize = 1024;
/// Room for one control message that holds two bytes.
const CONTROL_BYTES: usize = 24;
/// A device whose queue is full says so at once (ENOBUFS); how long to wait before it is asked again, and how
/// often.
const FULL_WAIT: Duration = Duration::from_micros(50);
const FULL_TRIES_MAX: u32 = 20_000;

/// How datagrams become messages and calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendMethod {
    /// A call a datagram.
    Each,
    /// A call for many.
    Many,
    /// A message for many, which the kernel cuts.
    Cut,
}

/// What a send needs, used again and again.
pub(crate) struct Outbox {
    messages: Vec<libc::mmsghdr>,
    pieces: Vec<libc::iovec>,
    controls: Vec<SegmentControl>,
}

// SAFETY: the pointers in it are left over from calls that have ended, and are overwritten before the next.
unsafe impl Send for Outbox {}

#[repr(C, align(8))]
struct SegmentControl([u8; CONTROL_BYTES]);

/// Where in the runs a call begins.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Slot {
    run: usize,
    datagram: usize,
}

impl Outbox {
    pub(crate) fn new() -> Outbox {
        Outbox {
            messages: Vec::with_capacity(MESSAGES_MAX),
            pieces: Vec::with_capacity(PIECES_MAX),
            controls: Vec::with_capacity(MESSAGES_MAX),
        }
    }

    /// Sends all datagrams of all runs, waiting where the socket is full. `Ok(Some(reason))`: the kernel does
    /// not cut, for this reason, and the rest went without.
    ///
    /// # Errors
    /// The kernel's reason, or that the flow was cancelled.
    pub(crate) fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        runs: &[Run<'_>],
        to: Option<&Name>,
        way: SendMethod,
        control: &Control,
    ) -> Result<Option<Errno>, SendError> {
        let (mut way, mut refused) = (way, None);
        let mut place = Slot { run: 0, datagram: 0 };
        let mut full = 0;
        while place.run < runs.len() {
            match self.call(socket, runs, place, to, way) {
                Ok(next) => (place, full) = (next, 0),
                Err(Errno::AGAIN) => drop(control.wait(socket, PollFlags::OUT, None)?),
                Err(Errno::INTR) => {}
                Err(Errno::NOBUFS) if full < FULL_TRIES_MAX => {
                    full += 1;
                    control.sleep_until(Instant::now() + FULL_WAIT)?;
                }
                // The device cannot cut or cannot make checksums (EIO), or a segment is too large for it
                // (EINVAL).
                Err(error @ (Errno::IO | Errno::INVAL)) if way == SendMethod::Cut => {
                    (way, refused) = (SendMethod::Many, Some(error));
                }
                Err(error) => return Err(SendError::Kernel(error)),
            }
        }
        Ok(refused)
    }

    /// One call from `place` on; where the next one begins.
    fn call(
        &mut self,
        socket: BorrowedFd<'_>,
        runs: &[Run<'_>],
        place: Slot,
        to: Option<&Name>,
        way: SendMethod,
    ) -> Result<Slot, Errno> {
        self.fill(runs, place, to, way);
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        let sent = if way == SendMethod::Each {
            // SAFETY: the header was filled from what the caller lent for this call.
            answer(unsafe { libc::sendmsg(socket.as_raw_fd(), &self.messages[0].msg_hdr, flags) })?;
            1
        } else {
            let count = self.messages.len() as libc::c_uint;
            // SAFETY: as many headers as there are, each filled from what the caller lent for this call.
            let sent =
                unsafe { libc::sendmmsg(socket.as_raw_fd(), self.messages.as_mut_ptr(), count, flags as _) };
            answer(sent as isize)?
        };
        Ok((0..sent).fold(place, |place, _| place.behind_message(runs, way)))
    }

    /// Makes the messages of the next call. The vectors have room for all, and do not move what they hold.
    fn fill(&mut self, runs: &[Run<'_>], mut place: Slot, to: Option<&Name>, way: SendMethod) {
        self.messages.clear();
        self.pieces.clear();
        self.controls.clear();
        let messages_max = if way == SendMethod::Each { 1 } else { MESSAGES_MAX };
        while place.run < runs.len() && self.messages.len() < messages_max {
            let run = &runs[place.run];
            let next = place.behind_message(runs, way);
            let end = if next.run == place.run { next.datagram } else { run.count() };
            if self.pieces.len() + 2 * (end - place.datagram) > PIECES_MAX {
                break;
            }
            let first = self.pieces.len();
            for number in place.datagram..end {
                let (head, segment) = run.datagram(number);
                self.push_piece(head);
                self.push_piece(segment);
            }
            let cut =
                (way == SendMethod::Cut && end - place.datagram > 1).then(|| run.datagram_bytes() as u16);
            self.push_message(first, to, cut);
            place = next;
        }
    }

    fn push_piece(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            let piece = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
            self.pieces.push(piece);
        }
    }

    /// A message of the pieces from `first` on.
    fn push_message(&mut self, first: usize, to: Option<&Name>, cut: Option<u16>) {
        // SAFETY: a header of zeros is a valid one.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_iov = self.pieces[first..].as_mut_ptr();
        header.msg_iovlen = self.pieces.len() - first;
        if let Some(name) = to {
            let (pointer, length) = name.as_parts();
            header.msg_name = pointer.cast_mut().cast();
            header.msg_namelen = length;
        }
        if let Some(segment) = cut {
            self.controls.push(SegmentControl([0; CONTROL_BYTES]));
            if let Some(control) = self.controls.last_mut() {
                header.msg_control = control.0.as_mut_ptr().cast();
                header.msg_controllen = CONTROL_BYTES;
                write_segment(&header, segment);
            }
        }
        self.messages.push(libc::mmsghdr { msg_hdr: header, msg_len: 0 });
    }
}

impl Slot {
    /// Where the message that begins here ends.
    fn behind_message(self, runs: &[Run<'_>], way: SendMethod) -> Slot {
        let run = &runs[self.run];
        let most = match way {
            SendMethod::Each | SendMethod::Many => 1,
            SendMethod::Cut => (CUT_BYTES_MAX / run.datagram_bytes().max(1)).clamp(1, SEGMENTS_MAX),
        };
        match self.datagram + most {
            next if next < run.count() => Slot { run: self.run, datagram: next },
            _ => Slot { run: self.run + 1, datagram: 0 },
        }
    }
}

/// Says beside a message where to cut it (udp(7), UDP_SEGMENT).
fn write_segment(header: &libc::msghdr, segment: u16) {
    // SAFETY: the header leads to CONTROL_BYTES zeros, which one message of two bytes fits into, as asserted
    // below.
    unsafe {
        let message = libc::CMSG_FIRSTHDR(header);
        (*message).cmsg_level = libc::SOL_UDP;
        (*message).cmsg_type = libc::UDP_SEGMENT;
        (*message).cmsg_len = libc::CMSG_LEN(size_of::<u16>() as u32) as usize;
        libc::CMSG_DATA(message).cast::<u16>().write_unaligned(segment);
    }
}

// SAFETY: arithmetic only.
const _: () = assert!(unsafe { libc::CMSG_SPACE(size_of::<u16>() as u32) } as usize <= CONTROL_BYTES);
const _: () = assert!(2 * SEGMENTS_MAX <= PIECES_MAX && MESSAGES_MAX <= PIECES_MAX);

/// Why datagrams did not go.
#[derive(Debug)]
pub(crate) enum SendError {
    Kernel(Errno),
    Flow(Error),
}

impl From<Error> for SendError {
    fn from(error: Error) -> SendError {
        SendError::Flow(error)
    }
}
