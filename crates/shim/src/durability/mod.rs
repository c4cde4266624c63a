//! Durability at user level: fsync(2) and its kin are absorbed by an append to the commit log that `bywash run --log`
//! names, and the kernel writes the files later ([`bywash_log`]).
//!
//! The calls of this library ask [`log`] first. Without a log that is one load, and they do what they did before.
//!
//! - [`descriptors`]: the file in the log that each descriptor leads to
//! - [`writes`]: notes of what is written, before and after each call
//! - [`syncs`]: syncs, by the log or by the kernel
//! - [`folders`]: syncs of folders
//! - [`synchronous`]: writes that are durable when they return
//! - [`seconds`]: second open file descriptions, by which those writes are made
//! - [`locks`]: files of which no further descriptor may be opened
//! - [`changes`]: changes of a file that notes do not tell, such as truncation
//! - [`unseen`]: writes that nobody can note: streams, mappings, other programs, rings of requests
//!
//! # Invariants
//!
//! - A file with live records is never changed in a way that notes do not tell before it is durable by itself and its
//!   records are dead.
//! - No sync by the kernel of a file that has an entry returns before the file's older records are dead.
//! - While a lock of the log is held, all signals of the thread are blocked, and no call is made that may wait for anything
//!   but a disk. Syncs are made by instruction there, so that no cancellation ends the thread in the middle; a thread that is
//!   cancelled in the program's own call (open(2), fallocate(2)) leaves its lock to the next one.
//! - Nothing here allocates from the program's heap or changes `errno` unless the call fails.

pub mod changes;
pub mod descriptors;
pub mod folders;
pub mod locks;
pub mod seconds;
pub mod synchronous;
pub mod syncs;
pub mod unseen;
pub mod writes;

use bywash_file::threads;
use bywash_log::commit::Log;
use bywash_log::counts;
use bywash_log::layout::BLOCK;
use bywash_log::shared::{SHARED_BYTES, Shared, State};
use bywash_log::sys::Errno;
use core::cell::UnsafeCell;
use core::ffi::{CStr, c_int, c_void};
use core::fmt::Write;
use core::mem::MaybeUninit;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU8};

/// Log that `begin` stores before it sets [`IS_ON`].
struct Kept(UnsafeCell<MaybeUninit<Log>>);
// SAFETY: `begin`, which is called once, writes the log before it sets `IS_ON`, and readers look at `IS_ON` first.
unsafe impl Sync for Kept {}

static LOG: Kept = Kept(UnsafeCell::new(MaybeUninit::uninit()));
/// True if the process uses a log. In `.data`, which a process writes at its start anyway.
#[unsafe(link_section = ".data")]
static IS_ON: AtomicBool = AtomicBool::new(false);
/// True if the process has something that writes files unseen, such as an io_uring.
static WRITES_UNSEEN: AtomicBool = AtomicBool::new(false);
/// Answer of [`may_write_log`]: not known, yes, or no.
static MAY_WRITE: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const YES: u8 = 1;
const NO: u8 = 2;

/// Returns the log, if the process uses one.
#[inline(always)]
pub fn log() -> Option<&'static Log> {
    // SYNC: durability-log (acquire).
    // SAFETY: `begin` has stored the log before it set the flag, and nobody changes it.
    IS_ON.load(Acquire).then(|| unsafe { (*LOG.0.get()).assume_init_ref() })
}

/// Uses the log whose memory has this path, and counts in the memory of the run, if there is one. If either cannot be used,
/// says so on standard error: the program was started to be logged.
///
/// # Safety
/// Must be called once.
pub unsafe fn begin(path: &CStr, run: Option<&CStr>) {
    let opened = Shared::open(path).and_then(Log::new);
    let mut log = match opened {
        Ok(log) => log,
        Err(error) => return say(error),
    };
    match run.map(counts::open_run) {
        None => {}
        Some(Ok(run)) => log = log.counting_for(run),
        // A program that outlives its run has nobody to count for.
        Some(Err(libc::ENOENT | libc::ENOTDIR | libc::EACCES)) => {}
        Some(Err(error)) => return say(error),
    }
    if log.shared().header().state.load(Acquire) == State::Ended as u32 {
        return;
    }
    if let Err(error) = descriptors::prepare() {
        return say(error);
    }
    // SAFETY: the caller promises that this is the only call, and nobody reads the log before the flag is set.
    unsafe { (*LOG.0.get()).write(log) };
    // SYNC: durability-log (release; `log` acquires).
    IS_ON.store(true, Release);
    if let Some(log) = self::log() {
        for fd in 0..descriptors::STREAMS {
            unseen::stream(log, fd);
        }
    }
}

/// Says that the log cannot be used.
fn say(error: Errno) {
    struct StandardError;
    impl Write for StandardError {
        fn write_str(&mut self, text: &str) -> core::fmt::Result {
            // SAFETY: the kernel reads the bytes of `text`, whose length is passed along.
            unsafe {
                let arguments = [2, text.as_ptr() as usize, text.len(), 0, 0, 0];
                bywash_file::sys::call(libc::SYS_write as usize, arguments);
            }
            Ok(())
        }
    }
    // A message that cannot be written is lost: nothing else can report it.
    let _ = writeln!(
        StandardError,
        "bywash: the commit log cannot be used (error {error}), so the kernel makes all files durable; \
         end the programs of the log and start them again"
    );
}

/// Returns true if a descriptor is the library's: that of the log's file, or a second one of a file. The program did not open
/// it and must not close it.
#[inline]
pub fn is_own_descriptor(fd: c_int) -> bool {
    fd >= 0
        && !threads::bypassed()
        && log().is_some_and(|log| log.log_file().descriptor() == fd || seconds::is_second(fd))
}

/// Forgets what is known of a descriptor, which is about to be closed.
#[inline]
pub fn forget(fd: c_int) {
    descriptors::forget(fd);
    if fd >= 0 && seconds::has_any() && !threads::bypassed() {
        seconds::forget_range(fd as u32, fd as u32);
    }
}

/// Forgets what is known of the descriptors `first..=last`, which are about to be closed or replaced, and does not use the
/// library's own among them any more.
pub fn forget_range(first: u32, last: u32) {
    if let Some(log) = log()
        && !threads::bypassed()
    {
        descriptors::forget_range(first, last);
        seconds::forget_range(first, last);
        log.log_file().forget(first, last);
    }
}

/// Notes that this process was forked: threads of its parent that used the log are not in it.
pub fn reset_child() {
    if let Some(log) = log() {
        log.log_file().reset_child();
        seconds::reset_child();
    }
}

/// Uses the log no more, because a filter may forbid the library's calls from now on. What the process has open is the
/// kernel's for good.
pub fn stop() {
    if let Some(log) = log() {
        unseen::hand_over_all(log);
        IS_ON.store(false, Release);
    }
}

/// Unlocks the memory that this module has mapped, after the program has locked all its memory, and takes the log's out of
/// the process's resident memory again; what it holds stays in the log's memory.
pub fn unlock_memory() {
    let Some(log) = log() else { return };
    let shared = core::ptr::from_ref(log.shared().header()).addr();
    let (table, table_bytes) = descriptors::memory();
    let calls = [
        (libc::SYS_munlock, [shared, SHARED_BYTES, 0, 0, 0, 0]),
        (libc::SYS_munlock, [table, table_bytes, 0, 0, 0, 0]),
        (libc::SYS_madvise, [shared, SHARED_BYTES, libc::MADV_DONTNEED as usize, 0, 0, 0]),
    ];
    for (number, arguments) in calls {
        // SAFETY: the ranges are this module's mappings. Unlocking changes no contents, and pages of a shared mapping that
        // are dropped are read from its file again.
        unsafe { bywash_file::sys::call(number as usize, arguments) };
    }
}

/// Returns true if this process can write the log's file: a failed write would stop the log for all its users.
fn may_write_log(log: &Log) -> bool {
    match MAY_WRITE.load(Relaxed) {
        UNKNOWN => {
            let may = is_within_limit(log) && log.log_file().prepare().is_ok();
            MAY_WRITE.store(if may { YES } else { NO }, Relaxed);
            may
        }
        known => known == YES,
    }
}

/// Looks again whether this process can write the log, because a limit was changed.
pub fn limits_changed() {
    MAY_WRITE.store(UNKNOWN, Relaxed);
}

/// Returns true if the limit on the size of files lets this process write all of the log file.
fn is_within_limit(log: &Log) -> bool {
    let mut limit = [0u64; 2];
    let arguments = [0, libc::RLIMIT_FSIZE as usize, 0, (&raw mut limit) as usize, 0, 0];
    // SAFETY: the call writes two numbers to a local variable.
    let answer = unsafe { bywash_file::sys::call(libc::SYS_prlimit64 as usize, arguments) };
    let blocks = log.shared().geometry().map_or(0, |geometry| geometry.blocks);
    answer == 0 && limit[0] >= blocks * BLOCK as u64
}

/// Sets `errno` and returns -1, as a function of the C library that fails.
pub fn failed<T: From<i8>>(error: Errno) -> T {
    // SAFETY: the location is the C library's `errno` of this thread, which is always valid.
    unsafe { *libc::__errno_location() = error };
    T::from(-1)
}

/// Makes fsync(2) by instruction; returns zero or a negated error number.
fn kernel_fsync(fd: c_int) -> isize {
    // SAFETY: the call has an integer argument only.
    unsafe { bywash_file::sys::call(libc::SYS_fsync as usize, [fd as usize, 0, 0, 0, 0, 0]) }
}

/// Copies a value from an address that the program passed to the kernel; `None` if it is not readable.
pub fn copied<T: Copy, const N: usize>(from: *const T, count: usize) -> Option<[MaybeUninit<T>; N]> {
    let mut to = [const { MaybeUninit::uninit() }; N];
    let bytes = count.min(N) * size_of::<T>();
    let local = libc::iovec { iov_base: to.as_mut_ptr().cast::<c_void>(), iov_len: bytes };
    let remote = libc::iovec { iov_base: from.cast_mut().cast::<c_void>(), iov_len: bytes };
    // SAFETY: the kernel reads this process's own memory and checks the address; the target has room for the bytes.
    let done = unsafe {
        let own = bywash_file::sys::call(libc::SYS_getpid as usize, [0; 6]) as usize;
        let arguments = [own, (&raw const local) as usize, 1, (&raw const remote) as usize, 1, 0];
        bywash_file::sys::call(libc::SYS_process_vm_readv as usize, arguments)
    };
    (done == bytes as isize).then_some(to)
}
