//! Calls at a file's own position: `read`, `write`, `lseek`, and what else moves it.
//!
//! Positions stay with the kernel, which then serves these calls, unless
//! [`process::Settings::positions_at_user_level`] is set. Whose the position is at a time is then
//! [`crate::offset::Position`]'s to say: a call takes it over or finds it the kernel's, and what the kernel has
//! served is told here afterwards.

use super::{CANDIDATE, Direction, entry, file_of, note_passed, serve, served, served_at, target};
use crate::buffer::Buffer;
use crate::open_file::OpenFile;
use crate::process;
use crate::sys;
use crate::threads;
use crate::warming::{WarmCall, Warming};
use bywash_session::{Counter, FallbackReason as Why};
use bywash_sync::Ordering::Relaxed;

/// How a call at the file's own position goes on.
pub enum Here {
    /// It was served: this many bytes.
    Served(usize),
    /// The kernel serves it at this offset; [`Ours::finish`] wants the result.
    Ours(Ours),
    /// The kernel serves it at its own position; [`KernelPosition::finish`] wants the result.
    Kernel(KernelPosition),
}

/// A call at our position that the kernel serves.
pub struct Ours {
    /// Where.
    pub offset: i64,
    fd: i32,
    /// The kernel serves it without further ado (`OpenFile::passes_read`, `passes_writes`).
    passed: bool,
}

/// A call at the kernel's position.
pub struct KernelPosition {
    call: KernelCall,
    fd: i32,
}

/// What keeps the position with the kernel until a call that uses it has ended.
enum KernelCall {
    /// Nothing: the descriptor has no data path, and gets none meanwhile.
    Free,
    /// It was a candidate when the call began.
    Warm(#[expect(dead_code, reason = "held until it is dropped")] WarmCall<'static>),
    /// It has a data path.
    Counted(#[expect(dead_code, reason = "held until it is dropped")] UnderWay),
}

/// Calls that began on a candidate, by descriptors; those that fall together only take their positions later.
static WARMING: [Warming; 64] = [const { Warming::new() }; 64];

fn warming(fd: i32) -> &'static Warming {
    &WARMING[fd as usize % WARMING.len()]
}

/// In a forked child.
pub(super) fn reset_child() {
    WARMING.iter().for_each(Warming::reset_child);
}

/// A call at the kernel's position of a file, which may be closed, and its place used anew, meanwhile.
struct UnderWay {
    file: &'static OpenFile,
    serial: u32,
}

impl UnderWay {
    /// Says that such a call begins; gives the position back first if it is ours and `give` asks for it.
    fn begin(file: &'static OpenFile, give: bool) -> Option<UnderWay> {
        let serial = file.serial();
        while file.position.begin_kernel_call().is_err() {
            if !give {
                return None;
            }
            file.give_position();
        }
        Some(UnderWay { file, serial })
    }
}

impl Drop for UnderWay {
    #[inline]
    fn drop(&mut self) {
        if self.file.serial() == self.serial {
            self.file.position.end_kernel_call();
        }
    }
}

/// The open file that `fd` leads to; else how a call of the kernel at its position begins.
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
/// As [`super::serve_at`].
#[inline(always)]
pub unsafe fn serve_here(fd: i32, direction: Direction, buffer: Buffer<'_>) -> Here {
    let kernel = |call| Here::Kernel(KernelPosition { call, fd });
    if !process::settings().positions_at_user_level {
        return kernel(KernelCall::Free);
    }
    let file = match led_to(fd) {
        Ok(file) => file,
        Err(call) => return kernel(call),
    };
    let serve_at = |at: u64, length| {
        // SAFETY: the caller's promise.
        target(fd)
            .and_then(|target| unsafe { serve(target, direction, buffer, length, at as i64, false) }.ok())
    };
    let wanted = buffer.bytes();
    if wanted.is_some_and(|wanted| wanted <= process::settings().threshold) {
        if file.position.ours().is_none() && file.wants_position() && warming(fd).is_over() {
            file.take_position();
        }
    } else {
        file.give_position();
    }
    loop {
        let Some(at) = file.position.ours() else {
            match UnderWay::begin(file, false) {
                Some(call) => return kernel(KernelCall::Counted(call)),
                None => continue,
            }
        };
        let length = wanted.unwrap_or(0);
        if length == 0 || (direction == Direction::Read && at >= file.size()) {
            return Here::Ours(Ours { offset: at as i64, fd, passed: false });
        }
        match direction {
            Direction::Read if file.passes_read(at, length) => {
                return Here::Ours(Ours { offset: at as i64, fd, passed: true });
            }
            Direction::Read => {
                // Near the end: as much as there is; a longer file shows at the next call.
                if let Some(done) = serve_at(at, length) {
                    if !file.position.advance(at, at + done as u64) {
                        continue;
                    }
                    return Here::Served(done);
                }
            }
            Direction::Write => {
                // Claimed first, so that no other thread writes to the same place.
                if !file.position.advance(at, at + length as u64) {
                    continue;
                }
                if file.passes_writes() {
                    return Here::Ours(Ours { offset: at as i64, fd, passed: true });
                }
                if let Some(done) = serve_at(at, length) {
                    return Here::Served(done);
                }
            }
        }
        return Here::Ours(Ours { offset: at as i64, fd, passed: false });
    }
}

impl Ours {
    /// The kernel has served the call; true when it must be made again at [`Ours::offset`], because another
    /// thread got these bytes.
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
                // Given back meanwhile: the kernel's position is where this read began or later; move it on.
                None => {
                    sys::seek(self.fd, result as i64, 1);
                    false
                }
            },
            Direction::Write => {
                if done != at + wanted as u64 && !file.position.advance(at + wanted as u64, done) {
                    process::count(Why::Contended.counter(), 1);
                }
                false
            }
        }
    }
}

impl KernelPosition {
    /// The kernel has served the call.
    #[inline]
    pub fn finish(self, direction: Direction, wanted: usize, result: isize) {
        drop(self.call);
        if !process::settings().positions_at_user_level && process::record().is_none() {
            // Nothing to count into, and nothing that a data path could make of it.
            return;
        }
        // Where it was is not known; that the file was used is.
        if let Some(file) = served(self.fd) {
            let passes = direction == Direction::Write && file.passes_writes();
            let why = if passes { file.why_passed() } else { Why::Position };
            process::count(why.counter(), 1);
        }
        served_at(self.fd, direction, wanted, -1, result);
    }
}

/// Answers `lseek` at user level. `Err(true)`: the kernel moves, and if it does, the position is ours to
/// [`sought`]; `Err(false)`: the kernel's alone.
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
        // A relative move by the kernel would start from a position that is not ours.
        _ => return Err(true),
    };
    let to = base.checked_add(offset).ok_or(true)?;
    if to < 0 || to as u64 > file.size() || !file.position.put(to as u64) {
        return Err(true);
    }
    process::count(Counter::UserSeeks, 1);
    Ok(to)
}

/// Our position, if it is ours.
pub fn position(fd: i32) -> Option<u64> {
    entry(fd).and_then(|entry| file_of(entry.load(Relaxed)))?.position.ours()
}

/// The kernel has moved its position to `to`, and ours follows.
pub fn sought(fd: i32, to: i64) {
    if let Some(file) = entry(fd).and_then(|entry| file_of(entry.load(Relaxed))) {
        file.position.put(to as u64);
    }
}

/// Runs a call of the kernel that uses its position, which may be ours: it is given first, and not taken
/// while the call runs.
#[inline]
pub fn with_kernel_position<T>(fd: i32, call: impl FnOnce() -> T) -> T {
    let _call = process::settings()
        .positions_at_user_level
        .then(|| led_to(fd).map(|file| UnderWay::begin(file, true)));
    call()
}
