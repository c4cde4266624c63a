//! Calls at a file's own position: `read`, `write`, `lseek`, and other calls that move the position.
//!
//! The kernel keeps positions and serves these calls, unless [`state::Settings::positions_at_user_level`]
//! is set. With that setting, [`crate::offset::Position`] decides who keeps a position: a call takes the
//! position to user level or leaves it with the kernel, and reports here afterwards what the kernel has
//! served.

use super::{CANDIDATE, Direction, entry, file_of, note_passed, serve, served, served_at, target};
use crate::buffer::Buffer;
use crate::open_file::OpenFile;
use crate::state;
use crate::sys;
use crate::threads;
use crate::warming::{WarmCall, Warming};
use bywash_session::{Counter, FallbackReason as Why};
use bywash_sync::Ordering::Relaxed;

/// Way in which a call at the file's own position continues.
pub enum PositionLookup {
    /// The call was served at user level, with this number of bytes.
    Served(usize),
    /// The kernel serves the call at this offset; the caller passes the result to [`Ours::finish`].
    Ours(Ours),
    /// The kernel serves the call at its own position; the caller passes the result to
    /// [`KernelPosition::finish`].
    Kernel(KernelPosition),
}

/// Call at a user-level position that the kernel serves, with an explicit offset.
pub struct Ours {
    /// Offset of the call, in bytes.
    pub offset: i64,
    fd: i32,
    /// True if the kernel serves the call at once (`OpenFile::passes_read`, `passes_writes`).
    passed: bool,
}

/// Call at the kernel's position.
pub struct KernelPosition {
    call: KernelCall,
    fd: i32,
}

/// Note that keeps the position with the kernel until a call that uses it has ended.
enum KernelCall {
    /// No note is needed: the descriptor is no candidate and has no data path, or positions stay with the
    /// kernel.
    Free,
    /// The descriptor was a candidate when the call began.
    Warm(#[expect(dead_code, reason = "held until it is dropped")] WarmCall<'static>),
    /// The descriptor has a data path, whose position counts the call.
    Counted(#[expect(dead_code, reason = "held until it is dropped")] InFlight),
}

/// Calls in flight that began on a candidate, by descriptor; descriptors that share an element only have
/// their positions taken later.
static WARMING: [Warming; 64] = [const { Warming::new() }; 64];

fn warming(fd: i32) -> &'static Warming {
    &WARMING[fd as usize % WARMING.len()]
}

/// Clears the counts in a forked child.
pub(super) fn reset_child() {
    WARMING.iter().for_each(Warming::reset_child);
}

/// Call in flight at the kernel's position of a file. The file may be closed, and its entry reused,
/// meanwhile.
struct InFlight {
    file: &'static OpenFile,
    serial: u32,
}

impl InFlight {
    /// Notes that such a call begins. If the position is kept at user level, gives it back first if `give` is
    /// true, and returns `None` otherwise.
    fn begin(file: &'static OpenFile, give: bool) -> Option<InFlight> {
        let serial = file.serial();
        while file.position.begin_kernel_call().is_err() {
            if !give {
                return None;
            }
            file.give_position();
        }
        Some(InFlight { file, serial })
    }
}

impl Drop for InFlight {
    #[inline]
    fn drop(&mut self) {
        if self.file.serial() == self.serial {
            self.file.position.end_kernel_call();
        }
    }
}

/// Returns the open file that `fd` leads to.
///
/// # Errors
/// The note with which a call at the kernel's position begins, if `fd` leads to no open file.
#[inline(always)]
fn led_to(fd: i32) -> Result<&'static OpenFile, KernelCall> {
    let Some(entry) = entry(fd) else { return Err(KernelCall::Free) };
    loop {
        let value = entry.load(Relaxed);
        if value == 0 || threads::bypassed() {
            return Err(KernelCall::Free);
        }
        if let Some(file) = file_of(value) {
            return Ok(file);
        }
        if let Some(call) = warming(fd).begin(entry, |value| value & CANDIDATE != 0) {
            return Err(KernelCall::Warm(call));
        }
    }
}

/// Begins a read or write at the file's own position.
///
/// # Safety
/// Same as [`super::serve_at`].
#[inline(always)]
pub unsafe fn serve_here(fd: i32, direction: Direction, buffer: Buffer<'_>) -> PositionLookup {
    let kernel = |call| PositionLookup::Kernel(KernelPosition { call, fd });
    if !state::settings().positions_at_user_level {
        return kernel(KernelCall::Free);
    }
    let file = match led_to(fd) {
        Ok(file) => file,
        Err(call) => return kernel(call),
    };
    let serve_at = |at: u64, length| {
        // SAFETY: the caller promises that valid memory in the buffer is not in use elsewhere.
        target(fd)
            .and_then(|target| unsafe { serve(target, direction, buffer, length, at as i64, false) }.ok())
    };
    let wanted = buffer.bytes();
    if wanted.is_some_and(|wanted| wanted <= state::settings().threshold) {
        if file.position.ours().is_none() && file.wants_position() && warming(fd).is_over() {
            file.take_position();
        }
    } else {
        file.give_position();
    }
    loop {
        let Some(at) = file.position.ours() else {
            match InFlight::begin(file, false) {
                Some(call) => return kernel(KernelCall::Counted(call)),
                None => continue,
            }
        };
        let length = wanted.unwrap_or(0);
        if length == 0 || (direction == Direction::Read && at >= file.size()) {
            return PositionLookup::Ours(Ours { offset: at as i64, fd, passed: false });
        }
        match direction {
            Direction::Read if file.passes_read(at, length) => {
                return PositionLookup::Ours(Ours { offset: at as i64, fd, passed: true });
            }
            Direction::Read => {
                // A read across the end returns the bytes that exist; if the file has grown, the next call
                // sees it.
                if let Some(done) = serve_at(at, length) {
                    if !file.position.advance(at, at + done as u64) {
                        continue;
                    }
                    return PositionLookup::Served(done);
                }
            }
            Direction::Write => {
                // The range is claimed before it is written, so that no other thread writes to it.
                if !file.position.advance(at, at + length as u64) {
                    continue;
                }
                if file.passes_writes() {
                    return PositionLookup::Ours(Ours { offset: at as i64, fd, passed: true });
                }
                if let Some(done) = serve_at(at, length) {
                    return PositionLookup::Served(done);
                }
            }
        }
        return PositionLookup::Ours(Ours { offset: at as i64, fd, passed: false });
    }
}

impl Ours {
    /// Notes the kernel's result of the call. Returns true if the call must be made again at
    /// [`Ours::offset`], because another thread has read these bytes.
    pub fn finish(&mut self, direction: Direction, wanted: usize, result: isize) -> bool {
        if !self.passed {
            served_at(self.fd, direction, wanted, self.offset, result);
        }
        let Some(file) = entry(self.fd).and_then(|entry| file_of(entry.load(Relaxed))) else { return false };
        if self.passed {
            let why = if direction == Direction::Read { Why::Sequential } else { file.why_passed() };
            note_passed(file, direction, self.offset, why, result);
        }
        let at = self.offset as u64;
        let done = at + result.max(0) as u64;
        match direction {
            Direction::Read if result <= 0 || file.position.advance(at, done) => false,
            Direction::Read => match file.position.ours() {
                Some(now) => {
                    self.offset = now as i64;
                    true
                }
                // The position was given back meanwhile: the kernel's position is where this read began or
                // later, so it is moved by the number of bytes read.
                None => {
                    sys::seek(self.fd, result as i64, 1);
                    false
                }
            },
            Direction::Write => {
                if done != at + wanted as u64 && !file.position.advance(at + wanted as u64, done) {
                    threads::count(Why::Contended.counter(), 1);
                }
                false
            }
        }
    }
}

impl KernelPosition {
    /// Notes the kernel's result of the call.
    #[inline]
    pub fn finish(self, direction: Direction, wanted: usize, result: isize) {
        drop(self.call);
        if !state::settings().positions_at_user_level && state::record().is_none() {
            // Nothing is counted, and no data path could serve such a call later.
            return;
        }
        // The offset of the call is not known, but the use of the file is counted.
        if let Some(file) = served(self.fd) {
            let passes = direction == Direction::Write && file.passes_writes();
            let why = if passes { file.why_passed() } else { Why::Position };
            threads::count(why.counter(), 1);
        }
        served_at(self.fd, direction, wanted, -1, result);
    }
}

/// Serves `lseek` at user level and returns the new position.
///
/// # Errors
/// - `true` if the kernel must move the position and [`sought`] is to be called with the result.
/// - `false` if the kernel keeps the position.
#[inline]
pub fn seek(fd: i32, offset: i64, whence: i32) -> Result<i64, bool> {
    let file = entry(fd).and_then(|entry| file_of(entry.load(Relaxed))).ok_or(false)?;
    if threads::bypassed() {
        return Err(false);
    }
    let at = file.position.ours().ok_or(false)?;
    let base = match whence {
        0 => 0,
        1 => at as i64,
        // SEEK_END, SEEK_DATA and SEEK_HOLE depend on the size and the holes, which the kernel knows.
        _ => return Err(true),
    };
    let to = base.checked_add(offset).ok_or(true)?;
    if to < 0 || to as u64 > file.size() || !file.position.put(to as u64) {
        return Err(true);
    }
    threads::count(Counter::UserSeeks, 1);
    Ok(to)
}

/// Returns the position of `fd` in bytes, if it is kept at user level.
pub fn position(fd: i32) -> Option<u64> {
    entry(fd).and_then(|entry| file_of(entry.load(Relaxed)))?.position.ours()
}

/// Sets the user-level position to `to`, after the kernel has moved its own; does nothing if the kernel keeps
/// the position.
pub fn sought(fd: i32, to: i64) {
    if let Some(file) = entry(fd).and_then(|entry| file_of(entry.load(Relaxed))) {
        file.position.put(to as u64);
    }
}

/// Runs a system call that uses the kernel's position. A position that is kept at user level is given back
/// first, and is not taken while the call runs.
#[inline]
pub fn with_kernel_position<T>(fd: i32, call: impl FnOnce() -> T) -> T {
    let _call =
        state::settings().positions_at_user_level.then(|| led_to(fd).map(|file| InFlight::begin(file, true)));
    call()
}
