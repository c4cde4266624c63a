//! Notes of what is written: each write by the kernel is noted before and after the call. The second note is for a commit
//! that took the first one before the kernel wrote ([`bywash_log::ranges`]).

use super::descriptors::{self, flag};
use super::{copied, synchronous, syncs, unseen};
use bywash_file::sys::seek;
use bywash_log::commit::Log;
use bywash_log::ranges::Range;
use bywash_log::shared::Entry;
use bywash_log::sys;
use core::ffi::{c_int, c_void};
use libc::{iovec, off_t, size_t, ssize_t};

/// Bytes that a call writes, as the program passed them.
#[derive(Clone, Copy)]
pub enum Contents {
    /// Address and number of bytes.
    Buffer(*const c_void, size_t),
    /// Address and length of a list of segments, and flags of pwritev2(2).
    List(*const iovec, c_int, c_int),
}

impl Contents {
    /// Returns the number of bytes; `None` if the list cannot be read.
    pub fn length(self) -> Option<u64> {
        match self {
            Contents::Buffer(_, length) => Some(length as u64),
            Contents::List(list, count, _) => bytes(list, count),
        }
    }

    /// Writes to a descriptor at an offset or at its position, by instruction: there is no cancellation point in it. Returns
    /// the number of bytes or a negated error number.
    pub fn write(self, fd: c_int, offset: Option<off_t>) -> isize {
        let fd = fd as usize;
        let (number, arguments) = match (self, offset) {
            (Contents::Buffer(from, length), None) => (libc::SYS_write, [fd, from as usize, length, 0, 0, 0]),
            (Contents::Buffer(from, length), Some(offset)) => {
                (libc::SYS_pwrite64, [fd, from as usize, length, offset as usize, 0, 0])
            }
            // Unlike pwritev2(2), it takes no offset of -1 for the position.
            (Contents::List(list, count, 0), Some(offset)) => {
                (libc::SYS_pwritev, [fd, list as usize, count as usize, offset as usize, 0, 0])
            }
            (Contents::List(list, count, flags), offset) => {
                let offset = offset.unwrap_or(-1) as usize;
                (libc::SYS_pwritev2, [fd, list as usize, count as usize, offset, 0, flags as usize])
            }
        };
        // SAFETY: the kernel reads the program's bytes, and checks their address.
        unsafe { bywash_file::sys::call(number as usize, arguments) }
    }
}

/// Writes at an offset by `kernel`.
#[inline(always)]
pub fn at(fd: c_int, offset: off_t, contents: Contents, kernel: impl FnOnce() -> ssize_t) -> ssize_t {
    match super::log() {
        None => kernel(),
        Some(log) => noted(log, fd, (Some(offset), None), contents, kernel),
    }
}

/// Writes at the descriptor's position by `kernel`.
#[inline(always)]
pub fn here(fd: c_int, contents: Contents, kernel: impl FnOnce() -> ssize_t) -> ssize_t {
    match super::log() {
        None => kernel(),
        Some(log) => noted(log, fd, (None, None), contents, kernel),
    }
}

/// Writes at an offset or at the position, by `kernel` unless the descriptor is synchronous. `appends` tells that the call
/// writes to the end of the file or does not, whatever the descriptor's flags are.
#[inline(never)]
pub fn noted(
    log: &Log,
    fd: c_int,
    (offset, appends): (Option<off_t>, Option<bool>),
    contents: Contents,
    kernel: impl FnOnce() -> ssize_t,
) -> ssize_t {
    let target = descriptors::look(log, fd);
    if target.is(flag::NEVER) {
        return kernel();
    }
    if let Some(entry) = target.entry.filter(|_| target.is(flag::SYNC)) {
        if let Some(result) = synchronous::write(log, entry, fd, target, (offset, appends), contents) {
            return result;
        }
        unseen::for_good(log, entry, fd);
    }
    let location = target.entry.map(|entry| {
        let location = Location::before(fd, offset, appends.unwrap_or(target.is(flag::APPEND)));
        location.note(entry, contents.length());
        location
    });
    let result = kernel();
    if result > 0 {
        match (descriptors::look(log, fd).entry, location) {
            (Some(entry), Some(location)) => location.note_written(entry, fd, result as u64),
            // The file got its entry during the call.
            (Some(entry), None) => entry.want_kernel(),
            (None, _) => {}
        }
        if target.is(flag::SYNC) && location.is_none() {
            return syncs::durable_by_kernel(log, fd, result);
        }
    }
    result
}

/// Location in a file at which a call writes.
#[derive(Clone, Copy)]
pub enum Location {
    /// Offset that the call names.
    At(off_t),
    /// Position of the descriptor before the call.
    Position(isize),
    /// Size of the file before the call, which appends.
    End(u64),
    /// The kernel did not tell it.
    Unknown,
}

impl Location {
    /// Returns the location at which a call is about to write.
    pub fn before(fd: c_int, offset: Option<off_t>, appends: bool) -> Location {
        match offset {
            _ if appends => sys::status(fd).map_or(Location::Unknown, |status| Location::End(status.size)),
            Some(offset) => Location::At(offset),
            None => match seek(fd, 0, libc::SEEK_CUR as usize) {
                position if position >= 0 => Location::Position(position),
                _ => Location::Unknown,
            },
        }
    }

    /// Notes what the call is about to write; `length` is not known if the program's list cannot be read.
    pub fn note(self, entry: &'static Entry, length: Option<u64>) {
        match (self, length) {
            (Location::At(offset), Some(length)) => note(entry, offset as u64, length),
            (Location::Position(position), Some(length)) => note(entry, position as u64, length),
            (Location::End(size), _) => note_to_the_end(entry, size),
            // The kernel refuses the list, or this process may not read it (process_vm_readv(2)).
            (Location::At(offset), None) => note_to_the_end(entry, offset.max(0) as u64),
            (Location::Position(position), None) => note_to_the_end(entry, position as u64),
            (Location::Unknown, _) => entry.want_kernel(),
        }
    }

    /// Notes what the call has written.
    pub fn note_written(self, entry: &'static Entry, fd: c_int, written: u64) {
        match self {
            Location::At(offset) => note(entry, offset as u64, written),
            Location::Position(before) => {
                // Others who share the position may have written between the calls.
                let now = seek(fd, 0, libc::SEEK_CUR as usize);
                match now.checked_sub(before) {
                    Some(moved) if moved >= 0 && moved as u64 >= written => {
                        note(entry, before as u64, moved as u64);
                    }
                    _ => entry.want_kernel(),
                }
            }
            Location::End(size) => note_to_the_end(entry, size),
            Location::Unknown => entry.want_kernel(),
        }
    }
}

fn note(entry: &'static Entry, offset: u64, length: u64) {
    // The kernel refuses an offset or a length that no range has.
    if let Some(range) = Range::new(offset, length)
        && !entry.ranges.note(range)
    {
        entry.want_kernel();
    }
}

fn note_to_the_end(entry: &'static Entry, from: u64) {
    match Range::to_the_end(from) {
        Some(range) if entry.ranges.note(range) => {}
        _ => entry.want_kernel(),
    }
}

/// Returns the sum of the lengths of the program's list of segments; `None` if the list cannot be read.
fn bytes(list: *const iovec, count: c_int) -> Option<u64> {
    const PIECE: usize = 64;
    let count = usize::try_from(count).ok()?;
    let mut sum = 0u64;
    for first in (0..count).step_by(PIECE) {
        let pieces = PIECE.min(count - first);
        let copied = copied::<iovec, PIECE>(list.wrapping_add(first), pieces)?;
        for piece in &copied[..pieces] {
            // SAFETY: the first `pieces` segments were copied.
            sum = sum.saturating_add(unsafe { piece.assume_init() }.iov_len as u64);
        }
    }
    Some(sum)
}
