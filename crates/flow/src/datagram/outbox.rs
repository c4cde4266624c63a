//! Sends runs of datagrams: by a call for one, by a call for many, or as one message that the kernel splits.
//!
//! ```text
//!     run        | d0 | d1 | d2 | d3 |       SendMethod::Each, SendMethod::Many: a message a datagram
//!     messages   | m0 | m1 | m2 | m3 |
//!     run        | d0 | d1 | d2 | d3 |       SendMethod::Cut: a message a run, with the size of a segment beside it
//!     messages   |        m0         |
//! ```
//!
//! Invariant: every datagram is sent once and in order, or [`Outbox::send`] fails; pointers to the caller's
//! memory are rebuilt in every call and not used after it. Called by the ports. Up to [`MESSAGES_MAX`]
//! messages cost one system call, and nothing is allocated.

use super::name::Name;
use super::run::Run;
use super::socket::answer;
use crate::control::Control;
use crate::error::Error;
use rustix::event::PollFlags;
use rustix::io::Errno;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

/// Greatest number of messages for each call.
pub(crate) const MESSAGES_MAX: usize = 64;
/// Greatest number of datagrams that the kernel splits a message into (UDP_MAX_SEGMENTS in every version).
pub(crate) const SEGMENTS_MAX: usize = 64;
/// Greatest size of such a message in bytes: the length field of an IPv4 packet, less the headers.
pub(crate) const CUT_BYTES_MAX: usize = 65_507;

/// Greatest number of pieces for each call: at least two for every datagram of the largest message.
const PIECES_MAX: usize = 1024;
/// Size of a control message that holds two bytes.
const CONTROL_BYTES: usize = 24;
/// Pause before a device with a full queue (ENOBUFS) is tried again, and greatest number of attempts.
const FULL_WAIT: Duration = Duration::from_micros(50);
const FULL_TRIES_MAX: u32 = 20_000;

/// Form in which datagrams become messages and calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendMethod {
    /// One datagram for each call.
    Each,
    /// Many messages for each call, one for each datagram.
    Many,
    /// One message for many datagrams, which the kernel splits.
    Cut,
}

/// Message headers and buffers of a call, which are reused.
pub(crate) struct Outbox {
    messages: Vec<libc::mmsghdr>,
    pieces: Vec<libc::iovec>,
    controls: Vec<SegmentControl>,
}

// SAFETY: its raw pointers are left over from calls that have ended, and are written anew before each use.
unsafe impl Send for Outbox {}

#[repr(C, align(8))]
struct SegmentControl([u8; CONTROL_BYTES]);

/// Position in the runs at which a call begins.
#[derive(Clone, Copy, PartialEq, Eq)]
struct RunPosition {
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

    /// Sends all datagrams of all runs, and waits while the socket is full. Returns `Ok(Some(errno))` if the
    /// kernel refused to split messages; the rest was then sent without that.
    ///
    /// # Errors
    /// [`SendError::Kernel`] if a call fails; [`SendError::Flow`] if the flow is cancelled.
    pub(crate) fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        runs: &[Run<'_>],
        to: Option<&Name>,
        form: SendMethod,
        control: &Control,
    ) -> Result<Option<Errno>, SendError> {
        let (mut form, mut refused) = (form, None);
        let mut place = RunPosition { run: 0, datagram: 0 };
        let mut full = 0;
        while place.run < runs.len() {
            match self.call(socket, runs, place, to, form) {
                Ok(next) => (place, full) = (next, 0),
                Err(Errno::AGAIN) => drop(control.wait(socket, PollFlags::OUT, None)?),
                Err(Errno::INTR) => {}
                Err(Errno::NOBUFS) if full < FULL_TRIES_MAX => {
                    full += 1;
                    control.sleep_until(Instant::now() + FULL_WAIT)?;
                }
                // The device cannot split messages or compute checksums (EIO), or a segment is too large for
                // it (EINVAL).
                Err(error @ (Errno::IO | Errno::INVAL)) if form == SendMethod::Cut => {
                    (form, refused) = (SendMethod::Many, Some(error));
                }
                Err(error) => return Err(SendError::Kernel(error)),
            }
        }
        Ok(refused)
    }

    /// Sends the messages that begin at `place` by one call. Returns the position of the next call.
    fn call(
        &mut self,
        socket: BorrowedFd<'_>,
        runs: &[Run<'_>],
        place: RunPosition,
        to: Option<&Name>,
        form: SendMethod,
    ) -> Result<RunPosition, Errno> {
        self.fill(runs, place, to, form);
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        let sent = if form == SendMethod::Each {
            // SAFETY: the header was built in this call from memory that the caller lends for its length.
            answer(unsafe { libc::sendmsg(socket.as_raw_fd(), &self.messages[0].msg_hdr, flags) })?;
            1
        } else {
            let count = self.messages.len() as libc::c_uint;
            // SAFETY: `count` is the number of headers, each built in this call from memory that the caller
            // lends.
            let sent =
                unsafe { libc::sendmmsg(socket.as_raw_fd(), self.messages.as_mut_ptr(), count, flags as _) };
            answer(sent as isize)?
        };
        Ok((0..sent).fold(place, |place, _| place.behind_message(runs, form)))
    }

    /// Builds the messages of the next call. The vectors have enough capacity and so do not move their
    /// contents.
    fn fill(&mut self, runs: &[Run<'_>], mut place: RunPosition, to: Option<&Name>, form: SendMethod) {
        self.messages.clear();
        self.pieces.clear();
        self.controls.clear();
        let messages_max = if form == SendMethod::Each { 1 } else { MESSAGES_MAX };
        while place.run < runs.len() && self.messages.len() < messages_max {
            let run = &runs[place.run];
            let next = place.behind_message(runs, form);
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
                (form == SendMethod::Cut && end - place.datagram > 1).then(|| run.datagram_bytes() as u16);
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

    /// Builds a message of the pieces from `first` on.
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

impl RunPosition {
    /// Returns the position behind the message that begins here.
    fn behind_message(self, runs: &[Run<'_>], form: SendMethod) -> RunPosition {
        let run = &runs[self.run];
        let most = match form {
            SendMethod::Each | SendMethod::Many => 1,
            SendMethod::Cut => (CUT_BYTES_MAX / run.datagram_bytes().max(1)).clamp(1, SEGMENTS_MAX),
        };
        match self.datagram + most {
            next if next < run.count() => RunPosition { run: self.run, datagram: next },
            _ => RunPosition { run: self.run + 1, datagram: 0 },
        }
    }
}

/// Writes the control message that tells the kernel the segment size (UDP_SEGMENT, udp(7)).
fn write_segment(header: &libc::msghdr, segment: u16) {
    // SAFETY: the header leads to CONTROL_BYTES zeros, which one message of two bytes fits into, as asserted below.
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

/// Reason why datagrams could not be sent.
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
