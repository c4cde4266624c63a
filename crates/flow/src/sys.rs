//! System calls that rustix does not offer, or does not offer in a form that works everywhere. Clocks and the
//! page size are read by the C library here, since rustix finds them by the kernel's auxiliary vector, which
//! a program under valgrind lacks.
//!
//! Invariant: each call gets memory of the size that its man page states, valid for the length of the call.
//! Called by the movers and the ends of a flow.

use rustix::io::{Errno, ReadWriteFlags};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};
use std::time::Duration;

/// RWF_DONTCACHE of linux/fs.h (Linux 6.14), which rustix does not name.
pub(crate) const DONTCACHE: ReadWriteFlags = ReadWriteFlags::from_bits_retain(0x80);

/// Converts the return value of a system call to a `Result`.
fn answer(value: libc::c_long) -> Result<libc::c_long, Errno> {
    // The caller has just made the call, so errno is still that of the call.
    if value < 0 {
        Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
    } else {
        Ok(value)
    }
}

/// Returns the size of a page, in bytes.
pub(crate) fn page_bytes() -> usize {
    // SAFETY: sysconf(3) takes no memory, and every Linux system knows the page size.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

/// Returns the number of pages in the page cache among the first `bytes` bytes of `file` (cachestat(2), Linux
/// 6.5).
pub(crate) fn cached_pages(file: BorrowedFd<'_>, bytes: u64) -> Result<u64, Errno> {
    // The number is the same on all architectures, as for all system calls since Linux 5.1.
    const SYS_CACHESTAT: libc::c_long = 451;
    let range = [0u64, bytes];
    let mut pages = [0u64; 5];
    // SAFETY: the kernel reads the two words of `range` and writes the five of `pages`, both alive here.
    answer(unsafe { libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), range.as_ptr(), pages.as_mut_ptr(), 0) })?;
    Ok(pages[0])
}

/// Checks that this process may use io_uring. The kernel checks the permission first and then refuses a ring
/// with no entries as invalid, so that EINVAL means yes.
pub(crate) fn has_io_uring() -> Result<(), Errno> {
    // The array has the size of `struct io_uring_params`.
    let mut params = [0u32; 30];
    // SAFETY: the kernel reads and writes only the 120 bytes of `params`, which live here.
    match answer(unsafe { libc::syscall(libc::SYS_io_uring_setup, 0, params.as_mut_ptr()) }) {
        Ok(_) | Err(Errno::INVAL) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Extent to which dirty pages of a range are written back (sync_file_range(2)).
#[derive(Clone, Copy, Debug)]
pub(crate) enum WriteBack {
    /// Starts the writeback without waiting for it.
    Begin,
    /// Starts the writeback and waits until it has finished.
    Wait,
}

/// Writes back the dirty pages of a range. The data is not durable by that: neither metadata nor the device's
/// cache is flushed.
pub(crate) fn write_back(
    file: BorrowedFd<'_>,
    offset: u64,
    bytes: u64,
    what: WriteBack,
) -> Result<(), Errno> {
    let flags = match what {
        WriteBack::Begin => libc::SYNC_FILE_RANGE_WRITE,
        WriteBack::Wait => {
            libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER
        }
    };
    // SAFETY: sync_file_range(2) takes numbers only and accesses no memory of this process.
    answer(libc::c_long::from(unsafe {
        libc::sync_file_range(file.as_raw_fd(), offset as libc::off64_t, bytes as libc::off64_t, flags)
    }))
    .map(drop)
}

/// `struct file_clone_range` of linux/fs.h.
#[repr(C)]
struct CloneRange {
    source: i64,
    source_offset: u64,
    source_length: u64,
    sink_offset: u64,
}

/// Makes `length` bytes of `sink` at `to` share the blocks of `source` at `from` (FICLONERANGE,
/// ioctl_ficlonerange(2)). A length of 0 means up to the end of the source.
pub(crate) fn clone_range(
    source: BorrowedFd<'_>,
    sink: BorrowedFd<'_>,
    from: u64,
    length: u64,
    to: u64,
) -> Result<(), Errno> {
    let range = CloneRange {
        source: i64::from(source.as_raw_fd()),
        source_offset: from,
        source_length: length,
        sink_offset: to,
    };
    // SAFETY: the kernel only reads `range`, which has the layout of its structure and lives here.
    answer(libc::c_long::from(unsafe { libc::ioctl(sink.as_raw_fd(), libc::FICLONERANGE, &range) })).map(drop)
}

/// Returns the number of bytes written to a socket that the peer's kernel has not acknowledged (SIOCOUTQ).
pub(crate) fn unacknowledged(socket: BorrowedFd<'_>) -> Result<u32, Errno> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the kernel writes one int, into `bytes`, which lives here.
    answer(libc::c_long::from(unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &mut bytes) }))?;
    Ok(bytes as u32)
}

/// State of a TCP connection, as the kernel reports it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TcpInfo {
    /// Bytes received in order; the end of the peer's stream (FIN) counts as one byte.
    pub(crate) received: u64,
    /// Retransmission timeouts since the peer last acknowledged new data.
    pub(crate) resent: u8,
    /// Zero-window or keepalive probes since the peer last answered.
    pub(crate) probes: u8,
    /// Time since the last acknowledgement of the peer.
    pub(crate) since_heard: Duration,
}

/// Number of 32-bit words of `struct tcp_info` (linux/tcp.h) that are read here, as of Linux 4.1.
const TCP_INFO_WORDS: usize = 34;

/// Reads the state of a TCP connection (TCP_INFO, tcp(7)).
///
/// # Errors
/// The errno of getsockopt(2), as for a socket of another protocol; [`Errno::OPNOTSUPP`] if the kernel
/// returns fewer words.
pub(crate) fn tcp_info(socket: BorrowedFd<'_>) -> Result<TcpInfo, Errno> {
    let mut words = [0u32; TCP_INFO_WORDS];
    let mut bytes = size_of_val(&words) as libc::socklen_t;
    // SAFETY: the kernel writes at most `bytes` bytes to `words`, its exact size, and the written size to
    // `bytes`.
    answer(libc::c_long::from(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            words.as_mut_ptr().cast(),
            &raw mut bytes,
        )
    }))?;
    if (bytes as usize) < size_of_val(&words) {
        return Err(Errno::OPNOTSUPP);
    }
    // The first word consists of four bytes: state, congestion state, retransmits and probes.
    let [_, _, resent, probes] = words[0].to_ne_bytes();
    let low_and_high = [words[32].to_ne_bytes(), words[33].to_ne_bytes()].concat();
    let received = low_and_high.try_into().map_or(0, u64::from_ne_bytes);
    Ok(TcpInfo { received, resent, probes, since_heard: Duration::from_millis(words[14].into()) })
}

/// Reaps a child if it has ended, and returns its exit status and processor time; `None` if it is still
/// running (wait4(2)).
pub(crate) fn reap(child: u32) -> Result<Option<(ExitStatus, Duration)>, Errno> {
    let mut status = 0;
    // SAFETY: `rusage` consists of integers only, for which all zeros is a valid value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes one int to `status` and one `rusage` to `usage`, both alive here.
    let reaped = unsafe { libc::wait4(child as libc::pid_t, &mut status, libc::WNOHANG, &mut usage) };
    if answer(libc::c_long::from(reaped))? == 0 {
        return Ok(None);
    }
    let time = |value: libc::timeval| Duration::new(value.tv_sec as u64, value.tv_usec as u32 * 1000);
    Ok(Some((ExitStatus::from_raw(status), time(usage.ru_utime) + time(usage.ru_stime))))
}

/// Returns the processor time of the calling thread.
pub(crate) fn thread_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec, into `time`; this clock exists on every Linux system.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Makes the program to be started receive SIGPIPE, as programs expect, although the calling thread blocks
/// that signal.
pub(crate) fn unblock_sigpipe(command: &mut Command) -> &mut Command {
    // SAFETY: between fork and exec the closure only makes async-signal-safe calls, on a signal set of its
    // own frame.
    unsafe {
        command.pre_exec(|| {
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            libc::sigaddset(&raw mut set, libc::SIGPIPE);
            libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
            Ok(())
        })
    }
}

/// Blocks SIGPIPE in the calling thread, so that a write to a pipe without a reader returns EPIPE instead of
/// a signal to the process.
pub(crate) fn block_sigpipe() {
    // SAFETY: all calls access only `set` of this frame, for which all zeros is a valid value, and SIGPIPE is
    // a valid signal.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGPIPE);
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
    }
}

const _: () = assert!(size_of::<CloneRange>() == 32);

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsFd;

    #[test]
    fn pages_in_the_cache_and_their_way_to_the_device() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[1; 8192]).unwrap();
        assert_eq!(cached_pages(file.as_fd(), 8192).unwrap(), 2);
        write_back(file.as_fd(), 0, 8192, WriteBack::Begin).unwrap();
        write_back(file.as_fd(), 0, 8192, WriteBack::Wait).unwrap();
    }

    #[test]
    fn what_a_file_system_lacks_is_an_error() {
        let (one, other) =
            (tempfile::tempfile_in("/dev/shm").unwrap(), tempfile::tempfile_in("/dev/shm").unwrap());
        assert_eq!(clone_range(one.as_fd(), other.as_fd(), 0, 0, 0), Err(Errno::OPNOTSUPP));
    }

    #[test]
    fn a_socket_knows_what_has_not_arrived() {
        let (here, _there) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(unacknowledged(here.as_fd()).unwrap(), 0);
    }
}
