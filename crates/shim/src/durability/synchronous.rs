//! Writes by synchronous descriptors (O_SYNC, O_DSYNC): through a second open file description without the flag
//! ([`super::seconds`]), and made durable by a commit before the call returns. What the log refuses the kernel syncs.
//!
//! The program's position is that of its own open file description, which other threads, and processes that have inherited the
//! descriptor, move too. The kernel moves it under a lock of the description; here all users of the log take the lock
//! [`Entry::position`] of the file instead, for writes, reads and seeks. Files are left to the kernel for good that programs
//! without this library have a descriptor of. The lock is not taken by a program that has inherited the descriptor across
//! exec and reads by it before it has written by a synchronous one.
//!
//! Descriptors with O_DIRECT besides are the kernel's. Their bytes are on the device when the write returns, and all that is
//! left to do is to flush it; the log would read them back from the device to write them once more.

use super::descriptors::{self, Target, flag};
use super::seconds::{self, Second};
use super::writes::{Contents, Location};
use super::{failed, may_write_log, syncs};
use bywash_file::sys::seek;
use bywash_log::commit::Log;
use bywash_log::robust::Locked;
use bywash_log::shared::Entry;
use bywash_log::sys::{Errno, Undisturbed};
use core::ffi::c_int;
use libc::{off_t, ssize_t};

/// Writes by a synchronous descriptor of a file of the log, at an offset or at the position, durably. `appends` tells that the
/// call appends or does not, whatever the descriptor's flags are. `None` if the kernel must write: nothing is written then.
pub fn write(
    log: &Log,
    entry: &'static Entry,
    fd: c_int,
    target: Target,
    (offset, appends): (Option<off_t>, Option<bool>),
    contents: Contents,
) -> Option<ssize_t> {
    let is_kernels = target.is(flag::PASSED | flag::STREAM) || entry.is_unloggable();
    if is_kernels || !log.shared().is_running() || !may_write_log(log) {
        return None;
    }
    let second = Second::begin(entry, fd)?;
    let appends = appends.unwrap_or(second.appends);
    let (result, position) = match offset {
        Some(_) => (through(&second, entry, fd, offset, appends, contents), None),
        None => at_position(&second, entry, fd, appends, contents)?,
    };
    if result <= 0 {
        return Some(if result == 0 { 0 } else { failed(-result as Errno) });
    }
    if syncs::written(log, entry, fd, target, second.fd) == 0 {
        return Some(result as ssize_t);
    }
    // A write that fails leaves the position where it was.
    if let Some(position) = position {
        position.restore(entry, fd);
    }
    Some(-1)
}

/// Writes through the second descriptor, and notes what is written. Returns the number of bytes or a negated error number.
fn through(
    second: &Second,
    entry: &'static Entry,
    fd: c_int,
    offset: Option<off_t>,
    appends: bool,
    contents: Contents,
) -> isize {
    let location = Location::before(fd, offset, appends);
    location.note(entry, contents.length());
    let result = contents.write(second.fd, offset);
    if result > 0 {
        location.note_written(entry, fd, result as u64);
    }
    result
}

/// Position of a descriptor before and after a write.
struct Moved {
    before: isize,
    after: isize,
}

impl Moved {
    /// Moves the position back, unless somebody else has moved it meanwhile.
    fn restore(&self, entry: &'static Entry, fd: c_int) {
        let _lock = entry.position.lock();
        if seek(fd, 0, libc::SEEK_CUR as usize) == self.after {
            seek(fd, self.before as i64, libc::SEEK_SET as usize);
        }
    }
}

/// Writes at the position of a descriptor through its second one, and moves the position. `None` if the descriptor has no
/// position.
fn at_position(
    second: &Second,
    entry: &'static Entry,
    fd: c_int,
    appends: bool,
    contents: Contents,
) -> Option<(isize, Option<Moved>)> {
    let _lock = entry.position.lock()?;
    let before = seek(fd, 0, libc::SEEK_CUR as usize);
    if before < 0 {
        return None;
    }
    let offset = (!appends).then_some(before as off_t);
    let result = through(second, entry, fd, offset, appends, contents);
    if result <= 0 {
        return Some((result, None));
    }
    // The second descriptor's position tells where an appending write has ended.
    let after = if appends { seek(second.fd, 0, libc::SEEK_CUR as usize) } else { before + result };
    seek(fd, after as i64, libc::SEEK_SET as usize);
    Some((result, Some(Moved { before, after })))
}

/// Lock of the position of a synchronous descriptor, until it is dropped.
pub struct Position {
    _lock: Option<Locked<'static>>,
    /// Dropped behind the lock.
    _undisturbed: Undisturbed,
}

/// Keeps writes by a synchronous descriptor from moving its position, for a read or a seek by the kernel that moves it, too.
#[inline]
pub fn position(fd: c_int) -> Option<Position> {
    if seconds::has_any() { locked(fd) } else { None }
}

fn locked(fd: c_int) -> Option<Position> {
    let log = super::log()?;
    let target = descriptors::look(log, fd);
    let entry = target.entry.filter(|_| target.is(flag::SYNC))?;
    let undisturbed = Undisturbed::begin();
    Some(Position { _lock: entry.position.lock(), _undisturbed: undisturbed })
}
