//! Syncs: a commit to the log where the log can make true what the call promises, else the kernel's sync, behind which the
//! file's older records are dead.

use super::changes::unclaim;
use super::descriptors::{self, Target, flag};
use super::locks::Further;
use super::seconds::Second;
use super::{failed, folders, kernel_fsync, may_write_log, unseen};
use crate::claims;
use bywash_log::commit::Log;
use bywash_log::join::{self, Described};
use bywash_log::shared::{Counter, ENTRIES, Entry, entry_state};
use bywash_log::sys::{self, Errno, Undisturbed};
use bywash_log::trial::Route;
use core::ffi::{CStr, c_int};
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use libc::ssize_t;

/// Kind of a sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncKind {
    /// Sync of a file's bytes and size: fdatasync(2).
    Data = 0,
    /// Sync of all that belongs to a file: fsync(2).
    All = 1,
}

/// Makes the file of a descriptor durable, by the log or by the kernel; `kernel` is the C library's function that the
/// program called.
#[inline]
pub fn sync(fd: c_int, kind: SyncKind, kernel: impl FnOnce() -> c_int) -> c_int {
    let Some(log) = super::log() else { return kernel() };
    let target = descriptors::look(log, fd);
    if target.is(flag::NEVER) {
        return folders::sync(log, fd, kernel);
    }
    logged(log, fd, target, Some(kind)).unwrap_or_else(kernel)
}

/// Makes the file of a descriptor durable that may be logged; `None` if that is the kernel's business alone. `kind` is that
/// of the program's call, if it is a sync.
#[inline(never)]
fn logged(log: &Log, fd: c_int, target: Target, kind: Option<SyncKind>) -> Option<c_int> {
    let Some(entry) = target.entry else {
        if !log.shared().is_running() {
            log.count(Counter::KernelStopped, 1);
            return None;
        }
        if target.is(flag::PASSED) || !may_write_log(log) {
            log.count(Counter::KernelUnsuited, 1);
            return None;
        }
        log.count(Counter::KernelFirst, 1);
        if is_young(log, fd) && !descriptors::is_third_sync(fd) {
            return None;
        }
        let entry = first(log, fd)?;
        return Some(by_kernel(log, entry, fd));
    };
    with_entry(log, entry, fd, target, kind, None)
}

/// Makes a file durable that was written through the second descriptor `second` of `fd`: zero, or -1 with `errno`.
pub fn written(log: &Log, entry: &'static Entry, fd: c_int, target: Target, second: c_int) -> c_int {
    // The file may be the kernel's for good since the write began.
    let by_kernel = || match kernel_fsync(fd) {
        0 => 0,
        error => failed(-error as Errno),
    };
    with_entry(log, entry, fd, target, None, Some(second)).unwrap_or_else(by_kernel)
}

/// Lets a file join the log whose bytes the kernel has just made durable by `fd`, or makes its older records dead if it has an
/// entry meanwhile. Returns `result`, or -1 with `errno` if that has failed.
pub fn durable_by_kernel(log: &Log, fd: c_int, result: ssize_t) -> ssize_t {
    let target = descriptors::look(log, fd);
    if target.is(flag::NEVER) {
        return result;
    }
    match logged(log, fd, target, None) {
        None | Some(0) => result,
        Some(_) => -1,
    }
}

/// Makes a file durable that has an entry; `None` if that is the kernel's business alone. `readable` is a descriptor of the
/// file that can be read, if one is at hand besides `fd`.
fn with_entry(
    log: &Log,
    entry: &'static Entry,
    fd: c_int,
    target: Target,
    kind: Option<SyncKind>,
    readable: Option<c_int>,
) -> Option<c_int> {
    if target.is(flag::STREAM) && target.is(flag::WRITABLE) {
        unseen::for_good(log, entry, fd);
    }
    if entry.is_unloggable() && entry.oldest.load(Acquire) == 0 {
        // There are no records, and there will be none.
        log.count(Counter::KernelChanged, 1);
        return None;
    }
    if entry.slot.load(Acquire) == 0 && !entry.is_unloggable() && !target.is(flag::PASSED) {
        log.count(Counter::KernelFirst, 1);
        join(log, entry, fd);
    } else if let Some(kind) = kind.filter(|_| !entry.ranges.is_empty()) {
        let trial = &entry.trials[kind as usize];
        let is_tried = log.shared().header().without_trials.load(Relaxed) == 0;
        match if is_tried { trial.next_route() } else { Route::Log } {
            Route::Log => {
                let begun_ns = sys::monotonic_ns();
                if commit(log, entry, fd, target, readable) {
                    trial.add(Route::Log, sys::monotonic_ns().saturating_sub(begun_ns));
                    return Some(0);
                }
            }
            Route::Kernel => {
                if let Some(result) = by_kernel_alone(log, entry, fd, kind) {
                    return Some(result);
                }
            }
        }
    } else if commit(log, entry, fd, target, readable) {
        return Some(0);
    }
    Some(by_kernel(log, entry, fd))
}

/// Makes the kernel sync a file that it syncs faster than the log would; `None` if the file has records, or changed in a way
/// that a sync of this kind does not cover.
fn by_kernel_alone(log: &Log, entry: &'static Entry, fd: c_int, kind: SyncKind) -> Option<c_int> {
    let alone = log.kernel_alone(entry)?;
    let number = if kind == SyncKind::Data { libc::SYS_fdatasync } else { libc::SYS_fsync };
    let begun_ns = sys::monotonic_ns();
    // SAFETY: the call has an integer argument only.
    let result = unsafe { bywash_file::sys::call(number as usize, [fd as usize, 0, 0, 0, 0, 0]) };
    if result != 0 {
        alone.fail();
        return Some(failed(-result as Errno));
    }
    entry.trials[kind as usize].add(Route::Kernel, sys::monotonic_ns().saturating_sub(begun_ns));
    log.count(Counter::KernelFaster, 1);
    Some(0)
}

/// Returns true if a file was made a moment ago ([`bywash_log::shared::Header::age_ns`]).
fn is_young(log: &Log, fd: c_int) -> bool {
    let (Ok((_, _, born)), Some(now)) = (sys::identity(fd), sys::now()) else { return false };
    // A clock that was set back makes no file young.
    now >= born && now - born < log.shared().header().age_ns.load(Relaxed)
}

/// Commits what was written to a file; false if the kernel must make it durable.
fn commit(log: &Log, entry: &'static Entry, fd: c_int, target: Target, readable: Option<c_int>) -> bool {
    if target.is(flag::PASSED) || !may_write_log(log) {
        log.count(Counter::KernelUnsuited, 1);
        return false;
    }
    if let Some(readable) = readable.or((!target.is(flag::UNREADABLE)).then_some(fd)) {
        return log.commit(entry, readable).is_ok();
    }
    if let Some(second) = Second::begin(entry, fd) {
        return log.commit(entry, second.fd).is_ok();
    }
    // The file is opened for this commit alone.
    let Some(_further) = Further::begin(fd) else {
        log.count(Counter::KernelUnsuited, 1);
        return false;
    };
    let mut path = [0u8; 32];
    let length = sys::descriptor_path(fd, &mut path);
    let readable = CStr::from_bytes_with_nul(&path[..=length])
        .map_err(|_| libc::EINVAL)
        .and_then(|path| sys::open(path, libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK));
    let Ok(readable) = readable else {
        log.count(Counter::KernelUnsuited, 1);
        return false;
    };
    let committed = log.commit(entry, readable).is_ok();
    sys::close(readable);
    committed
}

/// Makes an entry for a file that is synced for the first time, and lets the file join the log; `None` if it cannot be
/// logged.
fn first(log: &Log, fd: c_int) -> Option<&'static Entry> {
    let described = Described::of_descriptor(fd).ok()?;
    let key = sys::identity(fd).ok()?;
    let entry = log.shared().find_or_make(key)?;
    // Looked at behind the entry: whoever begins to write unseen from here on finds it.
    if descriptors::has_stream(key) {
        unseen::for_good(log, entry, fd);
        return Some(entry);
    }
    join_as(log, entry, fd, &described);
    Some(entry)
}

/// Lets a file join the log that has an entry already.
fn join(log: &Log, entry: &'static Entry, fd: c_int) {
    if !log.shared().is_running() || !may_write_log(log) {
        return;
    }
    if descriptors::has_stream(descriptors::key_of(entry)) {
        return unseen::for_good(log, entry, fd);
    }
    if let Ok(described) = Described::of_descriptor(fd) {
        join_as(log, entry, fd, &described);
    }
}

/// Lets a file join the log. Without a number, all its syncs are the kernel's.
fn join_as(log: &Log, entry: &'static Entry, fd: c_int, described: &Described) {
    let undisturbed = Undisturbed::begin();
    let joined = join::join(log, entry, fd, described);
    drop(undisturbed);
    if joined == Err(libc::EBUSY) {
        entry.want_kernel_for_good();
        claims::tell_of_other_log(fd);
    }
}

/// Makes the kernel sync a file that has an entry. It is fsync(2) also for fdatasync(2): the claim of the file, and what
/// chmod(2) and its kin changed, must be durable, too, before later syncs are absorbed.
fn by_kernel(log: &Log, entry: &'static Entry, fd: c_int) -> c_int {
    finish(synced_by(log, entry, fd, || kernel_fsync(fd)))
}

/// Makes the kernel sync a file by `sync`, which returns zero or a negated error number, and the file's older records dead.
///
/// # Errors
/// The error number of the sync; EIO if the records stay live.
pub fn synced_by(log: &Log, entry: &'static Entry, fd: c_int, sync: impl Fn() -> isize) -> Result<(), Errno> {
    let _undisturbed = Undisturbed::begin();
    let (mut answer, mut is_foreign) = (0, false);
    let marked = if may_write_log(log) || entry.oldest.load(Relaxed) == 0 {
        log.kernel_sync(entry, || {
            answer = sync();
            // The entry may have been given up for another file while this thread waited for its lock.
            is_foreign = !sys::identity(fd).is_ok_and(|key| entry.has_key(key));
            answer == 0 && !is_foreign
        })
    } else {
        Err(libc::EROFS)
    };
    match marked {
        Ok(true) => Ok(()),
        Ok(false) if answer == 0 && is_foreign => Ok(()),
        Ok(false) => Err(-answer as Errno),
        Err(_) => unclaim(log, entry, fd).map(drop),
    }
}

fn finish(result: Result<(), Errno>) -> c_int {
    result.map_or_else(failed, |()| 0)
}

/// Syncs many files by `kernel` (sync(2), syncfs(2)), which makes them durable if it returns zero: all, or those of the file
/// system of `fd`.
#[inline]
pub fn sync_many(fd: Option<c_int>, kernel: impl FnOnce() -> c_int) -> c_int {
    match super::log() {
        None => kernel(),
        Some(log) => mark_many(log, fd, kernel),
    }
}

/// Makes the records dead that are older than the call. The sequence numbers are read before it: a record up to that number
/// was read from the file before the sync began, so the file then holds what the record does, or newer.
#[inline(never)]
fn mark_many(log: &Log, fd: Option<c_int>, kernel: impl FnOnce() -> c_int) -> c_int {
    let device = fd.and_then(|fd| Some(sys::status(fd).ok()?.device));
    let entries = log.shared().entries();
    let mut sequences = [0u64; ENTRIES];
    for (sequence, entry) in sequences.iter_mut().zip(entries) {
        let is_synced = device.is_none_or(|device| entry.key[0].load(Relaxed) == device);
        if is_synced && entry.state.load(Acquire) == entry_state::USED {
            let _undisturbed = Undisturbed::begin();
            *sequence = log.newest_record(entry);
        }
    }
    let result = kernel();
    if result != 0 {
        return result;
    }
    let mut failure = None;
    for (sequence, entry) in sequences.iter().zip(entries).filter(|(sequence, _)| **sequence != 0) {
        let _undisturbed = Undisturbed::begin();
        let marked = if may_write_log(log) { log.synced_up_to(entry, *sequence) } else { Err(libc::EROFS) };
        failure = marked.err().or(failure);
    }
    failure.map_or(0, |_| failed(libc::EIO))
}
