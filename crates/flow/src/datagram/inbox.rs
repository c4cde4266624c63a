//! Receives runs of datagrams: one or many for each call, joined by the kernel or not.
//!
//! Invariant: a slot is as long as the longest datagram, so that none is truncated; the runs that
//! [`Inbox::receive`] passes on are valid only until the next call. Called by the ports. Each slot takes
//! [`SLOT_BYTES`] of memory, of which only the part that datagrams fill is touched.

use super::name::Name;
use super::run::Run;
use super::socket::answer;
use rustix::io::Errno;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Size of a slot in bytes: the longest datagram, or the longest run that the kernel joins.
pub(crate) const SLOT_BYTES: usize = 64 << 10;
/// Greatest number of runs passed on at once.
pub(crate) const RUNS_MAX: usize = 64;

/// Size of the buffer for a control message with the segment size, in bytes.
const CONTROL_BYTES: usize = 64;

/// Slots that datagrams are received into.
pub(crate) struct Inbox {
    bytes: Vec<u8>,
    names: Vec<Name>,
    controls: Vec<SlotControl>,
    messages: Vec<libc::mmsghdr>,
    pieces: Vec<libc::iovec>,
}

// SAFETY: its raw pointers lead into its own vectors, and are written anew before each use.
unsafe impl Send for Inbox {}

#[derive(Clone)]
#[repr(C, align(8))]
struct SlotControl([u8; CONTROL_BYTES]);

impl Inbox {
    /// Creates an inbox that receives up to `slots` datagrams, or joined runs, for each call.
    pub(crate) fn new(slots: usize) -> Inbox {
        let slots = slots.clamp(1, RUNS_MAX);
        Inbox {
            bytes: vec![0; slots * SLOT_BYTES],
            names: vec![Name::empty(); slots],
            controls: vec![SlotControl([0; CONTROL_BYTES]); slots],
            messages: Vec::with_capacity(slots),
            pieces: Vec::with_capacity(slots),
        }
    }

    /// Passes on the datagrams that are available, without waiting.
    ///
    /// # Errors
    /// The errno of recvmmsg(2) or recvmsg(2): [`Errno::AGAIN`] if no datagram is available.
    pub(crate) fn receive(
        &mut self,
        socket: BorrowedFd<'_>,
        take: &mut dyn FnMut(&[Run<'_>]),
    ) -> Result<(), Errno> {
        self.prepare();
        let slots = self.messages.len();
        let came = if slots == 1 {
            // SAFETY: the header leads to the only slot and its name and control, which nobody else uses now.
            let length = unsafe {
                libc::recvmsg(socket.as_raw_fd(), &mut self.messages[0].msg_hdr, libc::MSG_DONTWAIT)
            };
            self.messages[0].msg_len = answer(length)? as u32;
            1
        } else {
            // SAFETY: as many headers as slots, each leading to a slot of its own, which nobody else uses now.
            let came = unsafe {
                libc::recvmmsg(
                    socket.as_raw_fd(),
                    self.messages.as_mut_ptr(),
                    slots as libc::c_uint,
                    libc::MSG_DONTWAIT as _,
                    std::ptr::null_mut(),
                )
            };
            answer(came as isize)?
        };
        let mut runs = [Run::new(&[], 1); RUNS_MAX];
        for (number, message) in self.messages[..came].iter().enumerate() {
            self.names[number].set_length(message.msg_hdr.msg_namelen);
        }
        for (number, message) in self.messages[..came].iter().enumerate() {
            let body = &self.bytes[number * SLOT_BYTES..][..message.msg_len as usize];
            let segment = segment_of(&message.msg_hdr).unwrap_or(body.len());
            runs[number] = Run::new(body, segment).from(&self.names[number]);
        }
        take(&runs[..came]);
        Ok(())
    }

    /// Rewrites the message headers, which the kernel overwrites in each call.
    fn prepare(&mut self) {
        self.messages.clear();
        self.pieces.clear();
        let slots = self.bytes.chunks_exact_mut(SLOT_BYTES).zip(&mut self.names).zip(&mut self.controls);
        for ((slot, name), control) in slots {
            self.pieces.push(libc::iovec { iov_base: slot.as_mut_ptr().cast(), iov_len: slot.len() });
            // SAFETY: a header of zeros is a valid one.
            let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
            let (pointer, length) = name.room();
            header.msg_name = pointer.cast();
            header.msg_namelen = length;
            header.msg_control = control.0.as_mut_ptr().cast();
            header.msg_controllen = CONTROL_BYTES;
            self.messages.push(libc::mmsghdr { msg_hdr: header, msg_len: 0 });
        }
        for (message, piece) in self.messages.iter_mut().zip(&mut self.pieces) {
            message.msg_hdr.msg_iov = piece;
            message.msg_hdr.msg_iovlen = 1;
        }
    }
}

/// Returns the segment size of a run that the kernel joined (UDP_GRO, udp(7)); `None` for a single datagram.
fn segment_of(header: &libc::msghdr) -> Option<usize> {
    // SAFETY: the kernel filled the control buffer up to `msg_controllen`, and these macros stay within it.
    let mut message = unsafe { libc::CMSG_FIRSTHDR(header) };
    while !message.is_null() {
        // SAFETY: a control message of the kernel's; its data has the length that it says.
        unsafe {
            let payload = (*message).cmsg_len - libc::CMSG_LEN(0) as usize;
            let is_segment = ((*message).cmsg_level, (*message).cmsg_type) == (libc::SOL_UDP, libc::UDP_GRO);
            if is_segment && payload >= size_of::<i32>() {
                let segment = libc::CMSG_DATA(message).cast::<i32>().read_unaligned();
                return usize::try_from(segment).ok().filter(|segment| *segment > 0);
            }
            message = libc::CMSG_NXTHDR(header, message);
        }
    }
    None
}
