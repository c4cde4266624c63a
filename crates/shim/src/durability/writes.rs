//! Notes of what is written: each write by the kernel is noted before and after the call. The second note is for a commit
//! that took the first one before the kernel wrote ([`bywash_log::ranges`]).

use super::descriptors::{self, Target, flag};
use super::{copied, unseen};
use bywash_file::sys::seek;
use bywash_log::commit::Log;
use bywash_log::ranges::Range;
use bywash_log::shared::Entry;
use bywash_log::sys;
use core::ffi::c_int;
use libc::{iovec, off_t, ssize_t};

/// Writes `length` bytes at an offset by `kernel`.
#[inline(always)]
pub fn at(
    fd: c_int,
    offset: off_t,
    length: impl FnOnce() -> Option<u64>,
    kernel: impl FnOnce() -> ssize_t,
) -> ssize_t {
    match super::log() {
        None => kernel(),
        Some(log) => noted(log, fd, Some(offset), length(), false, kernel),
    }
}

/// Writes `length` bytes at the descriptor's position by `kernel`.
#[inline(always)]
pub fn here(fd: c_int, length: impl FnOnce() -> Option<u64>, kernel: impl FnOnce() -> ssize_t) -> ssize_t {
    match super::log() {
        None => kernel(),
        Some(log) => noted(log, fd, None, length(), false, kernel),
    }
}

/// Writes by `kernel`: at an offset or at the position, or at the end of the file if `appends` or the descriptor says so.
#[inline(never)]
pub fn noted(
    log: &Log,
    fd: c_int,
    offset: Option<off_t>,
    length: Option<u64>,
    appends: bool,
    kernel: impl FnOnce() -> ssize_t,
) -> ssize_t {
    let target = descriptors::look(log, fd);
    if target.is(flag::NEVER) {
        return kernel();
    }
    leave_synchronous(log, fd, target);
    let place = target.entry.map(|entry| {
        let place = Place::before(fd, offset, appends || target.is(flag::APPEND));
        place.note(entry, length);
        place
    });
    let result = kernel();
    if result > 0 {
        let now = descriptors::look(log, fd);
        match (now.entry, place) {
            (Some(entry), Some(place)) => place.note_written(entry, fd, result as u64),
            (Some(entry), None) => {
                // The file got its entry during the call.
                entry.want_kernel();
                leave_synchronous(log, fd, now);
            }
            (None, _) => {}
        }
    }
    result
}

/// Leaves a file to the kernel for good that is written by a descriptor whose writes are durable by themselves (O_SYNC).
fn leave_synchronous(log: &Log, fd: c_int, target: Target) {
    if target.is(flag::SYNC)
        && let Some(entry) = target.entry
    {
        unseen::for_good(log, entry, fd);
    }
}

/// Place at which a call writes.
#[derive(Clone, Copy)]
enum Place {
    /// Offset that the call names.
    At(off_t),
    /// Position of the descriptor before the call.
    Position(isize),
    /// Size of the file before the call, which appends.
    End(u64),
    /// The kernel did not tell it.
    Unknown,
}

impl Place {
    fn before(fd: c_int, offset: Option<off_t>, appends: bool) -> Place {
        match offset {
            _ if appends => sys::status(fd).map_or(Place::Unknown, |status| Place::End(status.size)),
            Some(offset) => Place::At(offset),
            None => match seek(fd, 0, libc::SEEK_CUR as usize) {
                position if position >= 0 => Place::Position(position),
                _ => Place::Unknown,
            },
        }
    }

    /// Notes what the call is about to write; `length` is not known if the program's list cannot be read.
    fn note(self, entry: &'static Entry, length: Option<u64>) {
        match (self, length) {
            (Place::At(offset), Some(length)) => note(entry, offset as u64, length),
            (Place::Position(position), Some(length)) => note(entry, position as u64, length),
            (Place::End(size), _) => note_to_the_end(entry, size),
            // The kernel refuses the list, or this process may not read it (process_vm_readv(2)).
            (Place::At(offset), None) => note_to_the_end(entry, offset.max(0) as u64),
            (Place::Position(position), None) => note_to_the_end(entry, position as u64),
            (Place::Unknown, _) => entry.want_kernel(),
        }
    }

    /// Notes what the call has written.
    fn note_written(self, entry: &'static Entry, fd: c_int, written: u64) {
        match self {
            Place::At(offset) => note(entry, offset as u64, written),
            Place::Position(before) => {
                // Others who share the position may have written between the calls.
                let now = seek(fd, 0, libc::SEEK_CUR as usize);
                match now.checked_sub(before) {
                    Some(moved) if moved >= 0 && moved as u64 >= written => {
                        note(entry, before as u64, moved as u64);
                    }
                    _ => entry.want_kernel(),
                }
            }
            Place::End(size) => note_to_the_end(entry, size),
            Place::Unknown => entry.want_kernel(),
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
pub fn bytes(list: *const iovec, count: c_int) -> Option<u64> {
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
