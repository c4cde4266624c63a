//! The system calls of flows that rustix has no form of. For clocks and the size of a page it reads the vDSO where the
//! kernel's auxiliary vector says; a program under valgrind has none there and would be killed.
//!
//! Invariant: each call gets memory of exactly the size that its man page states, alive for the length of the call.

use rustix::io::Errno;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};
use std::time::Duration;

/// The kernel's answer as rustix has it.
fn answer(value: libc::c_long) -> Result<libc::c_long, Errno> {
    // errno is what the call that was just made has left.
    if value < 0 {
        Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
    } else {
        Ok(value)
    }
}

/// Bytes of a page.
pub(crate) fn page_bytes() -> usize {
    // SAFETY: no memory is passed. The C library always knows it.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

/// Pages of the first `bytes` bytes that are in the page cache (cachestat(2), Linux 6.5).
pub(crate) fn cached_pages(file: BorrowedFd<'_>, bytes: u64) -> Result<u64, Errno> {
    // One number on all architectures, as for all calls since Linux 5.1.
    const SYS_CACHESTAT: libc::c_long = 451;
    let range = [0u64, bytes];
    let mut pages = [0u64; 5];
    // SAFETY: the kernel reads two words and writes five.
    answer(unsafe { libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), range.as_ptr(), pages.as_mut_ptr(), 0) })?;
    Ok(pages[0])
}

/// Whether there is io_uring for this process: whoever may not have it is told so before its wishes are looked at, and
/// these here (no entries) cannot be.
pub(crate) fn has_io_uring() -> Result<(), Errno> {
    // struct io_uring_params.
    let mut params = [0u32; 30];
    // SAFETY: the kernel reads and writes the 120 bytes of `params`.
    match answer(unsafe { libc::syscall(libc::SYS_io_uring_setup, 0, params.as_mut_ptr()) }) {
        Ok(_) | Err(Errno::INVAL) => Ok(()),
        Err(error) => Err(error),
    }
}

/// What is done about dirty pages of a range (sync_file_range(2)).
#[derive(Clone, Copy, Debug)]
pub(crate) enum WriteBack {
    /// The device begins to write them.
    Begin,
    /// As `Begin`, and it is waited for.
    Finish,
}

/// Writes back dirty pages; says nothing of durability.
pub(crate) fn write_back(
    file: BorrowedFd<'_>,
    offset: u64,
    bytes: u64,
    what: WriteBack,
) -> Result<(), Errno> {
    let flags = match what {
        WriteBack::Begin => libc::SYNC_FILE_RANGE_WRITE,
        WriteBack::Finish => {
            libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER
        }
    };
    // SAFETY: no memory is passed.
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

/// Lets `sink` share blocks with `source` (FICLONERANGE, ioctl_ficlonerange(2)). A length of 0: up to the end.
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
    // SAFETY: the kernel reads the structure that this request takes.
    answer(libc::c_long::from(unsafe { libc::ioctl(sink.as_raw_fd(), libc::FICLONERANGE, &range) })).map(drop)
}

/// Bytes that were written to a socket and that its peer's kernel has not acknowledged (SIOCOUTQ).
pub(crate) fn unacknowledged(socket: BorrowedFd<'_>) -> Result<u32, Errno> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the kernel writes one int.
    answer(libc::c_long::from(unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &mut bytes) }))?;
    Ok(bytes as u32)
}

/// What the kernel knows of a TCP connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TcpInfo {
    /// Bytes received in order; the end of the peer's stream counts as one.
    pub(crate) received: u64,
    /// Timeouts since the peer last acknowledged something new.
    pub(crate) resent: u8,
    /// Probes for room since the peer last answered.
    pub(crate) probes: u8,
    /// Time since the last acknowledgement.
    pub(crate) since_heard: Duration,
}

/// `struct tcp_info` of linux/tcp.h, as far as it is read here (up to Linux 4.1), in words.
const TCP_INFO_WORDS: usize = 34;

/// Asks the kernel about a TCP connection (TCP_INFO, tcp(7)).
///
/// # Errors
/// The kernel's, as for a socket that is not of TCP; [`Errno::OPNOTSUPP`] for a kernel that does not tell so much.
pub(crate) fn tcp_info(socket: BorrowedFd<'_>) -> Result<TcpInfo, Errno> {
    let mut words = [0u32; TCP_INFO_WORDS];
    let mut bytes = size_of_val(&words) as libc::socklen_t;
    // SAFETY: the kernel writes at most `bytes` bytes to the array, and how many into `bytes`.
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
    // The first word is four bytes: state, congestion state, retransmits, probes.
    let [_, _, resent, probes] = words[0].to_ne_bytes();
    let low_and_high = [words[32].to_ne_bytes(), words[33].to_ne_bytes()].concat();
    let received = low_and_high.try_into().map_or(0, u64::from_ne_bytes);
    Ok(TcpInfo { received, resent, probes, since_heard: Duration::from_millis(words[14].into()) })
}

/// What became of a child, and the processor time that it took; none: it runs (wait4(2)).
pub(crate) fn reap(child: u32) -> Result<Option<(ExitStatus, Duration)>, Errno> {
    let mut status = 0;
    // SAFETY: all zeros is one of these structures; the kernel writes an int and one of them.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    let reaped = unsafe { libc::wait4(child as libc::pid_t, &mut status, libc::WNOHANG, &mut usage) };
    if answer(libc::c_long::from(reaped))? == 0 {
        return Ok(None);
    }
    let time = |value: libc::timeval| Duration::new(value.tv_sec as u64, value.tv_usec as u32 * 1000);
    Ok(Some((ExitStatus::from_raw(status), time(usage.ru_utime) + time(usage.ru_stime))))
}

/// Processor time that this thread has taken.
pub(crate) fn thread_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec. This clock is always there.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The program that is to be started is told by a signal of pipes that nobody reads, as programs are, though
/// the thread that starts it is not.
pub(crate) fn with_broken_pipes(command: &mut Command) -> &mut Command {
    // SAFETY: between fork and exec no more is done than a system call that writes and reads a set of this frame's.
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

/// A pipe that nobody reads is told to this thread as an error, and not to the process as a signal.
pub(crate) fn mask_broken_pipe() {
    // SAFETY: both calls write and read a set of this frame's; SIGPIPE is a signal.
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
        write_back(file.as_fd(), 0, 8192, WriteBack::Finish).unwrap();
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
