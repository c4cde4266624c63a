//! Messages over a Unix socket, with descriptors and the sender's credentials.
//!
//! The sockets are of sequenced packets: each message arrives whole or not at all, and the end of the
//! connection is seen at once. The credentials, which the kernel attaches, are the only thing about a peer
//! that the peer cannot invent.

use crate::error::Error;
use rustix::io::Errno;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Greatest size of a message of a protocol with rings, in bytes.
pub(crate) const BYTES_MAX: usize = 512;
/// Greatest number of descriptors of a message.
pub const DESCRIPTORS_MAX: usize = 16;

/// Identity of a process, as the kernel reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// Process number in this process's PID namespace; 0 if the process has no number there.
    pub pid: u32,
    /// User number.
    pub uid: u32,
    /// Group number.
    pub gid: u32,
}

impl Credentials {
    /// Returns the credentials of this process.
    pub fn own() -> Credentials {
        Credentials {
            pid: std::process::id(),
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        }
    }
}

/// A received message.
#[derive(Debug)]
pub(crate) struct Received {
    pub bytes: Vec<u8>,
    pub descriptors: Vec<OwnedFd>,
    pub credentials: Option<Credentials>,
}

const CONTROL_BYTES: usize = 256;

/// Buffer for control messages, with their alignment.
#[repr(C, align(8))]
struct Control([MaybeUninit<u8>; CONTROL_BYTES]);

const fn space(bytes: usize) -> usize {
    // SAFETY: CMSG_SPACE only computes a number and accesses no memory.
    unsafe { libc::CMSG_SPACE(bytes as u32) as usize }
}

const _: () =
    assert!(space(DESCRIPTORS_MAX * size_of::<RawFd>()) + space(size_of::<libc::ucred>()) <= CONTROL_BYTES);

fn empty_header(iov: &mut libc::iovec, control: &mut Control, control_bytes: usize) -> libc::msghdr {
    // SAFETY: all fields are integers and raw pointers, for which zeros are valid.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = iov;
    header.msg_iovlen = 1;
    if control_bytes > 0 {
        header.msg_control = control.0.as_mut_ptr().cast();
        header.msg_controllen = control_bytes;
    }
    header
}

fn answer(result: isize) -> Result<usize, Errno> {
    usize::try_from(result)
        .map_err(|_| Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
}

/// Sends a message without waiting.
pub(crate) fn send(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), Errno> {
    assert!(descriptors.len() <= DESCRIPTORS_MAX, "more descriptors than a message can have");
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    if descriptors.is_empty() {
        // Without descriptors no header is needed, which the kernel would have to copy: so a doorbell costs
        // less.
        // SAFETY: the buffer is live and has the given length.
        let sent = unsafe { libc::send(socket.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags) };
        return answer(sent).map(drop);
    }
    let mut control = Control([const { MaybeUninit::uninit() }; CONTROL_BYTES]);
    let mut iov = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let payload = descriptors.len() * size_of::<RawFd>();
    let header = empty_header(&mut iov, &mut control, space(payload));
    // SAFETY: the control buffer has room for one message of `payload` bytes, since `DESCRIPTORS_MAX` limits
    // the descriptors.
    unsafe {
        let message = libc::CMSG_FIRSTHDR(&header);
        (*message).cmsg_level = libc::SOL_SOCKET;
        (*message).cmsg_type = libc::SCM_RIGHTS;
        (*message).cmsg_len = libc::CMSG_LEN(payload as u32) as usize;
        let data = libc::CMSG_DATA(message).cast::<RawFd>();
        for (number, descriptor) in descriptors.iter().enumerate() {
            data.add(number).write_unaligned(descriptor.as_raw_fd());
        }
    }
    // SAFETY: the header points to live buffers, of the lengths that it states.
    answer(unsafe { libc::sendmsg(socket.as_raw_fd(), &header, flags) }).map(drop)
}

/// Kind of the message at the front of a socket's queue, where it stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextMessage {
    /// No message is queued.
    Empty,
    /// A message without descriptors, or the end of the connection. Receiving it closes nothing.
    Plain,
    /// A message with descriptors. Receiving it may close some of them, which may block.
    Descriptors,
}

/// Looks at the next message without receiving it. No descriptor is installed, and none is closed, since the
/// queued message keeps them open.
pub(crate) fn front(socket: BorrowedFd<'_>) -> Result<NextMessage, Errno> {
    let mut byte = [0u8; 1];
    let mut iov = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: byte.len() };
    let mut control = Control([const { MaybeUninit::uninit() }; CONTROL_BYTES]);
    // The control buffer has length 0, so the kernel sets MSG_CTRUNC exactly if the message has control data.
    let mut header = empty_header(&mut iov, &mut control, 0);
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    // SAFETY: the header points to a live buffer of one byte, and to no control data.
    match answer(unsafe { libc::recvmsg(socket.as_raw_fd(), &mut header, flags) }) {
        Ok(_) if header.msg_flags & libc::MSG_CTRUNC != 0 => Ok(NextMessage::Descriptors),
        Ok(_) | Err(Errno::CONNRESET | Errno::NOTCONN) => Ok(NextMessage::Plain),
        Err(Errno::AGAIN | Errno::INTR) => Ok(NextMessage::Empty),
        Err(error) => Err(error),
    }
}

/// Socket option of Linux 6.16: true if the socket accepts messages with descriptors.
const SO_PASSRIGHTS: libc::c_int = 83;

/// Lets peers send descriptors to a Unix socket, or makes the kernel refuse them with EPERM at the sender. A
/// socket that is accepted inherits the setting of the listening socket. False: the kernel is older than
/// Linux 6.16, and always lets descriptors in.
///
/// # Errors
/// [`Error::Io`] if `socket` is not a Unix socket.
pub fn let_descriptors_in(socket: impl AsFd, are_let_in: bool) -> Result<bool, Error> {
    let value = libc::c_int::from(are_let_in);
    // SAFETY: the kernel reads one live integer of the given length.
    let set = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PASSRIGHTS,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    match answer(set as isize) {
        Ok(_) => Ok(true),
        Err(Errno::NOPROTOOPT) => Ok(false),
        Err(error) => Err(Error::io("say whether descriptors are let in", error)),
    }
}

/// Receives the next message, of at most `bytes_max` bytes, without waiting. `None` at the end of the
/// connection.
pub(crate) fn receive(socket: BorrowedFd<'_>, bytes_max: usize) -> Peeked {
    let (mut was_reset, mut was_over) = (false, false);
    loop {
        match look(socket, bytes_max) {
            // The kernel reports a reset once, before the messages that the peer had sent until then.
            Err(Errno::CONNRESET) if !was_reset => was_reset = true,
            // If the peer sends and leaves just after the kernel found the queue empty, the kernel reports
            // the end before the last messages. No message follows a real end, so a second look is right.
            Ok(None) if !was_over => was_over = true,
            // The first look found an empty packet, which an honest peer never sends: it counts as the end.
            Err(Errno::AGAIN) if was_over => return Ok(None),
            answer => return answer,
        }
    }
}

fn look(socket: BorrowedFd<'_>, bytes_max: usize) -> Peeked {
    let mut bytes = vec![0u8; bytes_max];
    let mut control = Control([const { MaybeUninit::uninit() }; CONTROL_BYTES]);
    let mut iov = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let mut header = empty_header(&mut iov, &mut control, CONTROL_BYTES);
    // SAFETY: the header points to live buffers, of the lengths that it states.
    let length = answer(unsafe { libc::recvmsg(socket.as_raw_fd(), &mut header, RECEIVE_FLAGS) })?;
    bytes.truncate(length);
    // SAFETY: recvmsg(2) has filled the header, and its control buffer is live.
    unsafe { received(&header, bytes) }
}

const RECEIVE_FLAGS: libc::c_int = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;

/// Result of a look at a socket's queue: a message, `None` at the end of the connection, or an error.
pub(crate) type Peeked = Result<Option<Received>, Errno>;

/// Receives the next two messages without waiting and by one system call, with the result of two calls of
/// [`receive`]. If one message is expected, the second look finds that there are no more. The second result
/// is `None` if no second look was necessary.
pub(crate) fn receive_two(socket: BorrowedFd<'_>) -> [Option<Peeked>; 2] {
    match look_twice(socket) {
        // The kernel reports a reset once, before the messages that the peer had sent until then.
        Err(Errno::CONNRESET) => [Some(receive(socket, BYTES_MAX)), None],
        Err(error) => [Some(Err(error)), None],
        // The kernel may report the end before the last messages, so the socket is looked at again.
        Ok([Ok(None), Ok(Some(message))]) => [Some(Ok(Some(message))), None],
        Ok([Ok(None), _]) => [Some(receive(socket, BYTES_MAX)), None],
        Ok([first, Ok(None)]) => [Some(first), Some(receive(socket, BYTES_MAX))],
        Ok([first, second]) => [Some(first), Some(second)],
    }
}

fn look_twice(socket: BorrowedFd<'_>) -> Result<[Peeked; 2], Errno> {
    let mut bytes = [const { [MaybeUninit::<u8>::uninit(); BYTES_MAX] }; 2];
    let mut control = [const { Control([const { MaybeUninit::uninit() }; CONTROL_BYTES]) }; 2];
    let mut iov =
        bytes.each_mut().map(|bytes| libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: BYTES_MAX });
    let [first, second] = &mut iov;
    let [control_of_first, control_of_second] = &mut control;
    let mut headers = [
        empty_header(first, control_of_first, CONTROL_BYTES),
        empty_header(second, control_of_second, CONTROL_BYTES),
    ]
    .map(|msg_hdr| libc::mmsghdr { msg_hdr, msg_len: 0 });
    // SAFETY: two headers, which point to live buffers of the lengths that they state, and no timeout.
    let count = unsafe {
        libc::recvmmsg(socket.as_raw_fd(), headers.as_mut_ptr(), 2, RECEIVE_FLAGS, std::ptr::null_mut())
    };
    let count = answer(count as isize)?;
    let look = |number: usize| {
        if number >= count {
            return Err(Errno::AGAIN);
        }
        let length = headers[number].msg_len as usize;
        let written = &bytes[number][..length];
        // SAFETY: recvmmsg(2) has initialised the first `length` bytes of this buffer, and nobody writes to
        // it any more.
        let bytes = unsafe { std::slice::from_raw_parts(written.as_ptr().cast::<u8>(), length) };
        // SAFETY: recvmmsg(2) has filled this header, and its control buffer is live.
        unsafe { received(&headers[number].msg_hdr, bytes.to_vec()) }
    };
    Ok([look(0), look(1)])
}

/// Returns the message that a header describes, with its descriptors and credentials; `None` for an empty
/// message.
///
/// # Safety
/// The kernel has filled the header, and the control buffer that it points to is live.
unsafe fn received(header: &libc::msghdr, bytes: Vec<u8>) -> Peeked {
    let mut received = Received { bytes, descriptors: Vec::new(), credentials: None };
    // SAFETY: the kernel filled the control buffer up to `msg_controllen`, and the macros stay within this
    // length.
    let mut message = unsafe { libc::CMSG_FIRSTHDR(header) };
    while !message.is_null() {
        // SAFETY: the kernel wrote this control message, whose data has the length that it states. Each
        // descriptor is new and has no other owner.
        unsafe {
            let data = libc::CMSG_DATA(message);
            let payload = (*message).cmsg_len - libc::CMSG_LEN(0) as usize;
            match ((*message).cmsg_level, (*message).cmsg_type) {
                (libc::SOL_SOCKET, libc::SCM_RIGHTS) => {
                    let count = payload / size_of::<RawFd>();
                    received.descriptors.extend((0..count).map(|number| {
                        OwnedFd::from_raw_fd(data.cast::<RawFd>().add(number).read_unaligned())
                    }));
                }
                (libc::SOL_SOCKET, libc::SCM_CREDENTIALS) if payload >= size_of::<libc::ucred>() => {
                    let sender = data.cast::<libc::ucred>().read_unaligned();
                    received.credentials =
                        Some(Credentials { pid: sender.pid as u32, uid: sender.uid, gid: sender.gid });
                }
                _ => {}
            }
            message = libc::CMSG_NXTHDR(header, message);
        }
    }
    // The end of the connection, or an empty packet, whose descriptors are closed here.
    if received.bytes.is_empty() {
        return Ok(None);
    }
    if header.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0 {
        return Err(Errno::MSGSIZE);
    }
    Ok(Some(received))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    #[test]
    fn the_front_is_seen_and_stays() {
        let flags = SocketFlags::CLOEXEC;
        let (one, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        assert_eq!(front(other.as_fd()), Ok(NextMessage::Empty));
        let null = std::fs::File::open("/dev/null").unwrap();
        send(one.as_fd(), b"bytes", &[]).unwrap();
        send(one.as_fd(), b"descriptor", &[null.as_fd()]).unwrap();
        for _ in 0..2 {
            assert_eq!(front(other.as_fd()), Ok(NextMessage::Plain));
        }
        assert_eq!(receive(other.as_fd(), 64).unwrap().unwrap().bytes, b"bytes");
        for _ in 0..2 {
            assert_eq!(front(other.as_fd()), Ok(NextMessage::Descriptors));
        }
        assert_eq!(receive(other.as_fd(), 64).unwrap().unwrap().descriptors.len(), 1);
        drop(one);
        assert_eq!(front(other.as_fd()), Ok(NextMessage::Plain));
    }

    #[test]
    fn descriptors_are_refused_where_none_is_expected() {
        let flags = SocketFlags::CLOEXEC;
        let (one, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        let null = std::fs::File::open("/dev/null").unwrap();
        if !let_descriptors_in(other.as_fd(), false).unwrap() {
            eprintln!("skipped: SO_PASSRIGHTS needs Linux 6.16");
            return;
        }
        assert_eq!(send(one.as_fd(), b"x", &[null.as_fd()]), Err(Errno::PERM));
        send(one.as_fd(), b"x", &[]).unwrap();
        assert!(let_descriptors_in(other.as_fd(), true).unwrap());
        send(one.as_fd(), b"x", &[null.as_fd()]).unwrap();
    }

    #[test]
    fn bytes_descriptors_and_credentials_arrive() {
        let flags = SocketFlags::CLOEXEC;
        let (one, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        rustix::net::sockopt::set_socket_passcred(&other, true).unwrap();
        let null = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(receive(other.as_fd(), BYTES_MAX).unwrap_err(), Errno::AGAIN);
        send(one.as_fd(), b"hello", &[null.as_fd(), null.as_fd()]).unwrap();
        let received = receive(other.as_fd(), BYTES_MAX).unwrap().unwrap();
        assert_eq!(received.bytes, b"hello");
        assert_eq!(received.descriptors.len(), 2);
        assert_eq!(received.credentials.unwrap().pid, std::process::id());
        drop(one);
        assert!(receive(other.as_fd(), BYTES_MAX).unwrap().is_none());
    }

    #[test]
    fn two_looks_take_what_two_calls_would() {
        let flags = SocketFlags::CLOEXEC;
        let (one, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        let null = std::fs::File::open("/dev/null").unwrap();
        let looks = || {
            let seen = |received: Received| (received.bytes, received.descriptors.len());
            receive_two(other.as_fd()).map(|look| look.map(|look| look.map(|message| message.map(seen))))
        };
        let message = |bytes: &[u8], descriptors| Some(Ok(Some((bytes.to_vec(), descriptors))));
        assert_eq!(looks(), [Some(Err(Errno::AGAIN)), None]);
        send(one.as_fd(), b"first", &[null.as_fd(), null.as_fd()]).unwrap();
        send(one.as_fd(), b"second", &[]).unwrap();
        send(one.as_fd(), b"third", &[null.as_fd()]).unwrap();
        assert_eq!(looks(), [message(b"first", 2), message(b"second", 0)]);
        assert_eq!(looks(), [message(b"third", 1), Some(Err(Errno::AGAIN))]);
        rustix::net::send(&one, &[1; BYTES_MAX + 1], rustix::net::SendFlags::empty()).unwrap();
        send(one.as_fd(), b"x", &[]).unwrap();
        assert_eq!(looks(), [Some(Err(Errno::MSGSIZE)), message(b"x", 0)]);
        // If a peer leaves with unread messages, the kernel reports the end as an error, once and first.
        send(other.as_fd(), b"unread", &[]).unwrap();
        send(one.as_fd(), b"last", &[]).unwrap();
        drop(one);
        assert_eq!(looks(), [message(b"last", 0), None]);
        assert_eq!(looks(), [Some(Ok(None)), None]);
    }

    #[test]
    fn two_looks_see_the_end_behind_the_last_message() {
        let flags = SocketFlags::CLOEXEC;
        let (one, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        send(one.as_fd(), b"last", &[]).unwrap();
        drop(one);
        let [first, second] = receive_two(other.as_fd());
        assert_eq!(first.unwrap().unwrap().unwrap().bytes, b"last");
        assert!(second.unwrap().unwrap().is_none());
    }

    #[test]
    fn a_message_that_is_too_long_is_an_error() {
        let flags = SocketFlags::CLOEXEC;
        let (one, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        rustix::net::send(&one, &[1; BYTES_MAX + 1], rustix::net::SendFlags::empty()).unwrap();
        assert_eq!(receive(other.as_fd(), BYTES_MAX).unwrap_err(), Errno::MSGSIZE);
    }
}
