//! Claims of files: a file of which a commit log may have records is opened for writing by a run that does not use the log.
//!
//! After a crash of the machine, the log's recovery would write its records over what the run has written. A run without a log
//! is warned, and a run with another log, which promises durability itself, is refused the file (EBUSY). A claim whose log has
//! no records any more means nothing ([`bywash_log::claim`]).
//!
//! Opening a file for writing takes one more system call, which answers in half a microsecond that the file has no such
//! attribute. Nothing else is done for a file that no log claims.

use crate::durability;
use bywash_file::{state, sys as file_sys, threads};
use bywash_log::claim::{Claim, Standing};
use bywash_log::sys;
use core::ffi::{c_char, c_int};
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

/// Remedy for a claim whose log is not coming back.
const GONE: &[u8] = b", or, if it is gone for good, `setfattr -x user.bywash.log` the file";

/// Number of messages that a process writes; further files are not told.
const MESSAGES_MAX: u32 = 4;

/// Number of messages so far.
static MESSAGES: AtomicU32 = AtomicU32::new(0);
/// True if [`STANDARD_ERROR`] is filled in.
static IS_REMEMBERED: AtomicBool = AtomicBool::new(false);
/// Device and inode number of standard error when the process first opened a file for writing: a process that closes
/// standard error may open a file of its own under the number.
static STANDARD_ERROR: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Returns true if a file may be used that was opened with these flags; a warning is written if it should not be.
#[inline]
pub fn allows(fd: c_int, flags: c_int) -> bool {
    // A file that did not exist has no claim.
    const NEW: c_int = libc::O_CREAT | libc::O_EXCL;
    let is_written = flags & libc::O_ACCMODE != libc::O_RDONLY && flags & NEW != NEW;
    if !is_written || !state::has_begun() || threads::bypassed() {
        return true;
    }
    remember_standard_error(fd);
    match Claim::of_descriptor(fd) {
        Ok(Some(claim)) => is_allowed(fd, &claim),
        _ => true,
    }
}

/// Returns true if a file may be opened that loses its contents by that: no other log than that of this run claims it.
///
/// # Safety
/// If the path is readable, it is a C string.
pub unsafe fn allow_truncation(at: c_int, path: *const c_char, flags: c_int) -> bool {
    if durability::log().is_none() || !state::has_begun() || threads::bypassed() {
        return true;
    }
    let flags = libc::O_PATH | libc::O_CLOEXEC | flags & libc::O_NOFOLLOW;
    let arguments = [at as isize as usize, path as usize, flags as usize, 0, 0, 0];
    // SAFETY: the caller promises the path. If it leads nowhere, the call that follows reports it.
    let fd = unsafe { file_sys::call(libc::SYS_openat as usize, arguments) } as c_int;
    if fd < 0 {
        return true;
    }
    let allowed = match Claim::of_path_descriptor(fd) {
        Ok(Some(claim)) => is_allowed(fd, &claim),
        _ => true,
    };
    sys::close(fd);
    allowed
}

/// Refuses an open: closes the descriptor, and sets `errno`.
pub fn refuse(fd: c_int) -> c_int {
    sys::close(fd);
    durability::failed(libc::EBUSY)
}

#[cold]
#[inline(never)]
fn is_allowed(fd: c_int, claim: &Claim) -> bool {
    let log = durability::log();
    if log.is_some_and(|log| log.shared().id() == claim.id) {
        return true;
    }
    let standing = claim.standing();
    if standing == Standing::Stale {
        return true;
    }
    let answer = if log.is_some() { Answer::Refused } else { Answer::Warned };
    tell(fd, claim, standing, answer);
    log.is_none()
}

/// Tells that a file of this run's log is the kernel's, since another log has claimed it after it was opened.
#[cold]
pub fn tell_of_other_log(fd: c_int) {
    if let Ok(Some(claim)) = Claim::of_descriptor(fd) {
        tell(fd, &claim, claim.standing(), Answer::LeftToKernel);
    }
}

/// Consequence of a claim by another log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// The file was opened for writing all the same.
    Warned,
    /// The file was not opened.
    Refused,
    /// The file's syncs are the kernel's.
    LeftToKernel,
}

/// Tells of a file that another log claims: the file, the log, and the remedy.
fn tell(fd: c_int, claim: &Claim, standing: Standing, answer: Answer) {
    let mut path = [0u8; 4096];
    let length = file_sys::path_of(fd, &mut path);
    let log = match claim.path().to_bytes() {
        b"" => b"of an unknown path",
        path => path,
    };
    let mut message = Message::new();
    message.add(&[b"bywash: '", &path[..length], b"' "]);
    let (consequence, reason): (&[u8], &[u8]) = match answer {
        Answer::Refused => (b"is not opened for writing: it belongs to another commit log, '", b"'; "),
        Answer::LeftToKernel => {
            (b"is made durable by the kernel: it belongs to another commit log, '", b"'; ")
        }
        Answer::Warned => {
            (b"is written without its commit log '", b"', whose recovery after a crash would undo that; ")
        }
    };
    message.add(&[consequence, log, reason]);
    match standing {
        Standing::Unknown(libc::ENOENT) => {
            message.add(&[b"the log is not there: mount its file system", GONE])
        }
        Standing::Unknown(_) => message.add(&[
            b"the log cannot be looked at: have its owner run `bywash log checkpoint ",
            log,
            b"`",
            GONE,
        ]),
        _ => message.add(&[b"end the programs of the log and run `bywash log checkpoint ", log, b"`"]),
    }
    if answer == Answer::Warned {
        message.add(&[b", or use `bywash run --log ", log, b"`"]);
    }
    message.add(&[b"\n"]);
    message.write();
}

/// Message of one line.
struct Message {
    bytes: [u8; 3 * 4096],
    length: usize,
}

impl Message {
    fn new() -> Message {
        Message { bytes: [0; 3 * 4096], length: 0 }
    }

    /// Adds text, as much as there is room for.
    fn add(&mut self, parts: &[&[u8]]) {
        for part in parts {
            let added = part.len().min(self.bytes.len() - self.length);
            self.bytes[self.length..][..added].copy_from_slice(&part[..added]);
            self.length += added;
        }
    }

    /// Writes the message to standard error, if that is what it was and can be written without waiting.
    fn write(&self) {
        if MESSAGES.fetch_add(1, Relaxed) >= MESSAGES_MAX || !is_standard_error() || !can_write() {
            return;
        }
        let arguments = [2, self.bytes.as_ptr() as usize, self.length, 0, 0, 0];
        // SAFETY: the kernel reads the bytes, whose length is passed along. A message that cannot be written is lost: nothing
        // else can report it.
        unsafe { file_sys::call(libc::SYS_write as usize, arguments) };
    }
}

/// Remembers what standard error is, unless the descriptor that was just made has its number.
fn remember_standard_error(made: c_int) {
    if IS_REMEMBERED.load(Relaxed) {
        return;
    }
    if made != libc::STDERR_FILENO
        && let Ok(status) = sys::status(libc::STDERR_FILENO)
    {
        STANDARD_ERROR[0].store(status.device, Relaxed);
        STANDARD_ERROR[1].store(status.inode, Relaxed);
    }
    IS_REMEMBERED.store(true, SeqCst);
}

fn is_standard_error() -> bool {
    let there = STANDARD_ERROR.each_ref().map(|word| word.load(Relaxed));
    there != [0, 0] && sys::status(libc::STDERR_FILENO).is_ok_and(|now| [now.device, now.inode] == there)
}

/// Returns true if standard error takes bytes at once, and has a reader: without one the process would get SIGPIPE.
fn can_write() -> bool {
    let mut polled = libc::pollfd { fd: libc::STDERR_FILENO, events: libc::POLLOUT, revents: 0 };
    let arguments = [(&raw mut polled) as usize, 1, 0, 0, 0, 0];
    // SAFETY: the kernel writes to one structure, a local variable.
    unsafe { file_sys::call(libc::SYS_poll as usize, arguments) };
    polled.revents == libc::POLLOUT
}
