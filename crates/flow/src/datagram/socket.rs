//! Socket options and counters of both kinds of datagram ports.
//!
//! Invariant: each function makes one kind of call and never waits. Called when ports are opened, and to read
//! their counters.

use rustix::io::Errno;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd, BorrowedFd};

/// Default size of socket buffers, in bytes: enough for a few milliseconds at 1 GB/s without a reader.
pub(crate) const BUFFER_BYTES: usize = 8 << 20;

/// Indices of the entries of SO_MEMINFO that are read (`linux/sock_diag.h`), and their number.
const MEMINFO_BUFFER: usize = 1;
const MEMINFO_DROPS: usize = 8;
const MEMINFO_ENTRIES: usize = 9;

pub(crate) fn set<T>(socket: BorrowedFd<'_>, level: i32, name: i32, value: &T) -> Result<(), Errno> {
    let pointer: *const T = value;
    // SAFETY: the kernel reads exactly the `size_of::<T>()` bytes that `value` has.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, name, pointer.cast(), size_of::<T>() as libc::socklen_t)
    };
    answer(result as isize).map(drop)
}

/// Reads an option that consists of plain numbers.
pub(crate) fn get<T: Copy + Plain>(socket: BorrowedFd<'_>, level: i32, name: i32) -> Result<T, Errno> {
    let mut value = MaybeUninit::<T>::zeroed();
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most the `size_of::<T>()` bytes that `value` has.
    let result = unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, name, value.as_mut_ptr().cast(), &raw mut length)
    };
    answer(result as isize)?;
    // SAFETY: any bytes are a valid `T`, as Plain promises, and all were zero before.
    Ok(unsafe { value.assume_init() })
}

/// Types for which all bytes are a valid value.
///
/// # Safety
/// Every bit pattern of the type's size must be a valid value of the type.
pub(crate) unsafe trait Plain {}
// SAFETY: every bit pattern is a valid `i32`.
unsafe impl Plain for i32 {}
// SAFETY: every bit pattern is a valid array of `u32`.
unsafe impl Plain for [u32; MEMINFO_ENTRIES] {}
// SAFETY: the structure has only integer members, without padding that matters for reads.
unsafe impl Plain for libc::tpacket_stats_v3 {}

/// Converts the return value of a system call to a `Result`.
pub(crate) fn answer(result: isize) -> Result<usize, Errno> {
    usize::try_from(result)
        .map_err(|_| Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
}

/// Requests a receive buffer of `bytes` bytes: beyond the system's limit if this process may, else up to it.
pub(crate) fn want_receive_buffer(socket: BorrowedFd<'_>, bytes: usize) -> Result<(), Errno> {
    let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
    set(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &bytes)
        .or_else(|_| set(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, &bytes))
}

/// Requests a send buffer of `bytes` bytes: beyond the system's limit if this process may, else up to it.
pub(crate) fn want_send_buffer(socket: BorrowedFd<'_>, bytes: usize) -> Result<(), Errno> {
    let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
    set(socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &bytes)
        .or_else(|_| set(socket, libc::SOL_SOCKET, libc::SO_SNDBUF, &bytes))
}

/// Kernel's counters of a socket's memory.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SocketBuffers {
    /// Size of the receive buffer in bytes, as the kernel counts it.
    pub buffer: u64,
    /// Number of packets that found the buffer full, modulo 2^32.
    pub drops: u32,
}

/// Reads the counters; zeros before Linux 4.12, which has none.
pub(crate) fn memory(socket: BorrowedFd<'_>) -> SocketBuffers {
    let entries: Result<[u32; MEMINFO_ENTRIES], Errno> = get(socket, libc::SOL_SOCKET, libc::SO_MEMINFO);
    entries.map_or(SocketBuffers::default(), |entries| SocketBuffers {
        buffer: u64::from(entries[MEMINFO_BUFFER]),
        drops: entries[MEMINFO_DROPS],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    #[test]
    fn what_finds_the_buffer_full_is_counted() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        want_receive_buffer(receiver.as_fd(), 1).unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        for _ in 0..100 {
            sender.send(&[0; 1000]).unwrap();
        }
        let memory = memory(receiver.as_fd());
        assert!(memory.drops > 50 && memory.drops < 100, "{memory:?}");
        assert!(memory.buffer > 0);
    }
}
