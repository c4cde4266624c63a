//! A call's times, and the recording's memory: what happens before and behind each call.
//!
//! [`begin`] and [`end`] are the hot path: two reads of the time-stamp counter and the slot's seven stores, 20
//! to 40 ns, which the command measures (`bywash plan record`) and subtracts. All else is cold: the first call
//! of a process or thread, a full chunk, a descriptor's first use. Cold paths are timed, and their time counts
//! as *away*, as time in which the thread did not compute for the program. `errno` stays as it is.

use crate::{descriptors, thread};
use bywash_session::recording::layout::FAILED;
use bywash_session::recording::{Chunk, Function, Owner, Recording, Sample, ticks};
use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::sync::atomic::{
    AtomicPtr, AtomicU8, AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

/// Recording that [`open`] has opened.
struct Slot(UnsafeCell<Option<Recording>>);
// SAFETY: `open` writes before it sets `IS_OPEN`, which readers look at first, and is called once.
unsafe impl Sync for Slot {}

static RECORDING: Slot = Slot(UnsafeCell::new(None));
static IS_OPEN: AtomicU8 = AtomicU8::new(0);
/// Word with the number of the process, on a page that the kernel wipes in a forked child.
static PROCESS: AtomicPtr<AtomicU32> = AtomicPtr::new(core::ptr::null_mut());

/// State of a call that has begun.
#[derive(Clone, Copy)]
pub struct Begun {
    start: u64,
    /// Time away before the call, in ticks.
    away: u64,
}

/// Uses `recording` from here on. Records nothing if there is no memory for the process's number.
///
/// # Safety
/// Must be called once, by one thread.
pub unsafe fn open(recording: Recording) {
    const MADV_WIPEONFORK: c_int = 18;
    // SAFETY: a new private page at an address of the kernel's choice, never unmapped.
    let page = unsafe {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let page = libc::mmap(
            core::ptr::null_mut(),
            4096,
            protection,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        if page == libc::MAP_FAILED || libc::madvise(page, 4096, MADV_WIPEONFORK) != 0 {
            return;
        }
        page.cast::<AtomicU32>()
    };
    PROCESS.store(page, Relaxed);
    // SAFETY: the caller promises that this is the only call, and nobody reads before `IS_OPEN`.
    unsafe { *RECORDING.0.get() = Some(recording) };
    // SYNC: recorder-open (release; `recording` acquires).
    IS_OPEN.store(1, Release);
}

fn recording() -> Option<Recording> {
    // SYNC: recorder-open (acquire).
    if IS_OPEN.load(Acquire) == 0 {
        return None;
    }
    // SAFETY: `open` wrote the value before it set the flag, and never again.
    unsafe { *RECORDING.0.get() }
}

/// Number of this process in the recording: 0 before its first call, and in a forked child again.
#[inline(always)]
fn process() -> Option<&'static AtomicU32> {
    let page = PROCESS.load(Relaxed);
    // SAFETY: the page is never unmapped once its address is stored.
    (!page.is_null()).then(|| unsafe { &*page })
}

/// Returns the thread's chunk, unless it has none, or its parent's.
#[inline(always)]
fn own_chunk() -> Option<Chunk> {
    let word = thread::word();
    if word == 0 {
        return None;
    }
    // SAFETY: the word is 0 or the address of a chunk, which is never unmapped.
    let chunk = unsafe { Chunk::at(word) };
    let number = process()?.load(Relaxed);
    (chunk.header().process.load(Relaxed) == number && number != 0).then_some(chunk)
}

/// Begins a call: looks at the thread's processor time if the gap before was long, and at the clock.
#[inline(always)]
pub fn begin() -> Begun {
    let now = ticks();
    let Some(chunk) = own_chunk() else { return Begun { start: now, away: 0 } };
    let header = chunk.header();
    if now.wrapping_sub(header.last_end.load(Relaxed)) >= LONG.load(Relaxed).into() {
        return look(chunk, now);
    }
    Begun { start: now, away: 0 }
}

/// Ticks of a gap or call from which on the thread's processor time is looked at.
static LONG: AtomicU32 = AtomicU32::new(u32::MAX);

/// Sets the number of ticks that make a gap long.
pub fn set_long(ticks: u64) {
    LONG.store(u32::try_from(ticks).unwrap_or(u32::MAX), Relaxed);
}

/// Looks at the thread's processor time at `now`, and returns the time away since the last look.
#[cold]
#[inline(never)]
fn look(chunk: Chunk, now: u64) -> Begun {
    let header = chunk.header();
    let tick = recording().map_or(0, |recording| recording.clock().0);
    let used = processor_ns();
    let before = header.processor_ns.swap(used, Relaxed);
    let since = now.wrapping_sub(header.looked_at.load(Relaxed));
    let away = if tick == 0 {
        0
    } else {
        let computed = (u128::from(used.saturating_sub(before)) << 32) / u128::from(tick);
        since.saturating_sub(computed as u64)
    };
    let start = ticks();
    header.looked_at.store(start, Relaxed);
    Begun { start, away: away + start.wrapping_sub(now) }
}

/// Ends a call and notes it. `offset`: `u64::MAX` for the descriptor's position. A negative `result` is a
/// failure.
#[inline(always)]
pub fn end(begun: Begun, function: Function, fd: c_int, offset: u64, result: i64) {
    let end = ticks();
    if IS_OPEN.load(Relaxed) == 0 {
        return;
    }
    let file = descriptors::known(fd);
    match own_chunk() {
        Some(chunk) if (file != 0 || fd < 0) && !chunk.is_full() => {
            add(chunk, begun, end, function, file, offset, result);
        }
        _ => end_slowly(begun, end, function, fd, offset, result),
    }
}

#[inline(always)]
fn add(chunk: Chunk, begun: Begun, end: u64, function: Function, file: u32, offset: u64, result: i64) {
    let header = chunk.header();
    if header.busy.load(Relaxed) != 0 {
        if let Some(recording) = recording() {
            recording.leave_out();
        }
        return;
    }
    header.busy.store(1, Relaxed);
    let own = header.own.load(Relaxed);
    if own != 0 {
        header.own.store(0, Relaxed);
    }
    let away = begun.away + own;
    let sample = Sample {
        start: begun.start,
        end,
        offset,
        length: if result < 0 { 0 } else { u32::try_from(result).unwrap_or(u32::MAX) },
        file,
        away: if away == 0 { 0 } else { hundreds(away) },
        function: function as u32 | if result < 0 { FAILED } else { 0 },
    };
    chunk.push(sample);
    if end.wrapping_sub(begun.start) >= LONG.load(Relaxed).into() {
        // What the thread waited in the call does not count for the gap behind it.
        header.processor_ns.store(processor_ns(), Relaxed);
        header.looked_at.store(end, Relaxed);
        let spent = ticks().wrapping_sub(end);
        header.own.store(spent, Relaxed);
    }
    header.busy.store(0, Relaxed);
}

/// Converts ticks into units of 100 ns.
fn hundreds(ticks: u64) -> u32 {
    let tick = recording().map_or(0, |recording| recording.clock().0);
    let ns = (u128::from(ticks) * u128::from(tick)) >> 32;
    u32::try_from(ns / 100).unwrap_or(u32::MAX)
}

/// Notes a call for which the thread needs a chunk, or the file of its descriptor is unknown.
#[cold]
#[inline(never)]
fn end_slowly(begun: Begun, end: u64, function: Function, fd: c_int, offset: u64, result: i64) {
    let Some(recording) = recording() else { return };
    let before = errno();
    let number = own_number(recording);
    let file = match descriptors::known(fd) {
        0 if fd >= 0 && number != 0 => descriptors::look_up(recording, number, fd),
        known => known,
    };
    let chunk =
        own_chunk().filter(|chunk| !chunk.is_full()).or_else(|| claim(recording, number, begun.start));
    match chunk {
        Some(chunk) => {
            add(chunk, begun, end, function, file, offset, result);
            let own = &chunk.header().own;
            own.store(own.load(Relaxed) + ticks().wrapping_sub(end), Relaxed);
        }
        None => recording.lose(),
    }
    set_errno(before);
}

/// Returns the number of this process, which it gets at its first call.
fn own_number(recording: Recording) -> u32 {
    let Some(word) = process() else { return 0 };
    if word.load(Relaxed) == 0 {
        let number = recording.next_process();
        // Of two threads that come first, the later one's number is not used.
        let _ = word.compare_exchange(0, number, Relaxed, Relaxed);
    }
    word.load(Relaxed)
}

fn claim(recording: Recording, process: u32, now: u64) -> Option<Chunk> {
    // SAFETY: the calls have no arguments and cannot fail.
    let [pid, thread, parent] = unsafe {
        [libc::SYS_getpid, libc::SYS_gettid, libc::SYS_getppid]
            .map(|number| bywash_syscall::call(number as usize, [0; 6]) as u32)
    };
    let chunk = recording.claim_chunk(Owner { process, pid, thread, parent }, now)?;
    chunk.header().processor_ns.store(processor_ns(), Relaxed);
    chunk.header().looked_at.store(ticks(), Relaxed);
    thread::set_word(chunk.address());
    Some(chunk)
}

/// Returns the processor time that the calling thread has used, in nanoseconds.
fn processor_ns() -> u64 {
    // SAFETY: the call writes a local variable; it cannot fail for this clock.
    unsafe {
        let mut time: libc::timespec = core::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time);
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }
}

fn errno() -> c_int {
    // SAFETY: the location is the C library's `errno` of this thread, which is always valid.
    unsafe { *libc::__errno_location() }
}

fn set_errno(value: c_int) {
    // SAFETY: as in `errno`.
    unsafe { *libc::__errno_location() = value };
}
