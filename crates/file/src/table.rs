//! Table from descriptors to open files: holds the descriptors that have a user-level data path.
//!
//! ```text
//!   0            the kernel's: never opened through the library, or not fit
//!   odd          a candidate: opened, not used often enough yet
//!                bits 63..16 when it was opened (a running number)   9..2 weight so far   1 shared position
//!   even, > 0    the address of its OpenFile
//! ```
//!
//! The kernel owns the descriptors; the table only notes which of them may be served at user level. An entry
//! is cleared *before* the kernel closes or replaces the descriptor and set *after* the kernel has made one,
//! so an entry never outlives its descriptor. Candidates become open files after a few small requests, so
//! that files which are opened, read once and closed cost nothing.
//!
//! In a forked child the table is empty (the kernel wipes it); `reset_child` makes candidates with a shared
//! position of the descriptors that were known. Before the table is set up, candidates are noted in one word
//! (`noted`).
//!
//! The preloaded library calls this module for every file call of the program.

use crate::buffer::Buffer;
use crate::filesystem;
use crate::gate::Gate;
use crate::open_file::usage::{self, By};
use crate::open_file::{self, Description, OpenFile, Refusal};
use crate::pool::{InChild, Pool};
use crate::stack;
use crate::state::{self, LOCK};
use crate::sys;
use crate::threads::{self, CROWD, Inside, Thread};
use bywash_session::{Counter, FallbackReason as Why};
use bywash_sync::{AtomicU64, AtomicUsize, Ordering, Ordering::Relaxed};

mod here;
mod noted;

pub use here::{
    KernelPosition, Ours, PositionLookup, position, seek, serve_here, sought, with_kernel_position,
};

/// Number of descriptors that can have a data path; the kernel serves descriptors from this number on.
pub const DESCRIPTORS_MAX: usize = 1 << 20;
/// Least descriptor that can have a data path. The C library's streams use standard input, output and error
/// without calls that the preloaded library sees.
const DESCRIPTOR_MIN: usize = 3;
/// Weight of small requests at which a candidate gets its data path: a read adds [`READ_WEIGHT`], and a
/// write, which may only append to the file, adds one.
const WEIGHT_BEFORE_PROMOTION: usize = 64;
/// Weight of one small read; four of them reach [`WEIGHT_BEFORE_PROMOTION`].
const READ_WEIGHT: usize = 16;

/// Bit of an entry that is a candidate.
const CANDIDATE: usize = 1;
/// Bit of a candidate whose position is shared with other descriptors or processes.
const SHARED: usize = 2;
/// Position of a candidate's weight, in bits.
const WEIGHT_SHIFT: u32 = 2;
const WEIGHT_MASK: usize = 0xff << WEIGHT_SHIFT;
/// Position of a candidate's running number, in bits.
const NUMBER_SHIFT: u32 = 16;

pub(crate) static TABLE: Pool<AtomicUsize> = Pool::new(DESCRIPTORS_MAX, InChild::Wiped);
/// One bit per descriptor that has an entry; kept in a forked child.
pub(crate) static KNOWN: Pool<AtomicU64> = Pool::new(DESCRIPTORS_MAX / 64, InChild::Kept);
/// Highest descriptor that had an entry, plus one.
static HIGHEST: AtomicUsize = AtomicUsize::new(0);
/// Running number of the last candidate that was opened.
static NUMBER: AtomicUsize = AtomicUsize::new(0);
/// Running number at the last fork: candidates up to this number have a shared position.
static SHARED_UP_TO: AtomicUsize = AtomicUsize::new(0);

/// Makes candidates of the known descriptors in a forked child, after the kernel has wiped the tables.
pub(crate) fn reset_child() {
    here::reset_child();
    for fd in known() {
        if let Some(entry) = entry(fd) {
            let number = NUMBER.fetch_add(1, Relaxed) + 1;
            entry.store(number << NUMBER_SHIFT | SHARED | CANDIDATE, Ordering::Release);
        }
    }
}

#[inline(always)]
fn entry(fd: i32) -> Option<&'static AtomicUsize> {
    TABLE.get(fd as u32 as usize)
}

/// Returns the entry of a descriptor, and lets the tables grow if it is the highest so far.
fn entry_to_set(fd: i32) -> Option<&'static AtomicUsize> {
    KNOWN.get_or_grow(fd as usize / 64)?;
    TABLE.get_or_grow(fd as u32 as usize)
}

/// Sets or clears the bit of a descriptor in [`KNOWN`].
fn mark_known(fd: i32, known: bool) {
    let (word, bit) = (fd as usize / 64, 1 << (fd as usize % 64));
    match KNOWN.get(word) {
        Some(word) if known => word.fetch_or(bit, Relaxed),
        Some(word) => word.fetch_and(!bit, Relaxed),
        None => 0,
    };
}

fn known() -> impl Iterator<Item = i32> {
    (0..HIGHEST.load(Relaxed).div_ceil(64)).flat_map(|word| {
        let bits = KNOWN.get(word).map_or(0, |word| word.load(Relaxed));
        (0..64).filter(move |bit| bits >> bit & 1 != 0).map(move |bit| (word * 64 + bit) as i32)
    })
}

/// Notes that the kernel has opened `fd` for reading, or for reading and writing.
pub fn opened(fd: i32) {
    if fd < DESCRIPTOR_MIN as i32 || threads::bypassed() || noted::add(fd) || !state::wake() {
        return;
    }
    let Some(entry) = entry_to_set(fd) else { return };
    if state::wants_files() {
        // The thread gets a record now, so that the file is counted even if no other call needs one.
        threads::current();
    }
    let number = NUMBER.fetch_add(1, Relaxed) + 1;
    let before = entry.swap(number << NUMBER_SHIFT | CANDIDATE, Ordering::AcqRel);
    mark_known(fd, true);
    HIGHEST.fetch_max(fd as usize + 1, Relaxed);
    drop_stale(before);
    threads::count(Counter::FilesOpened, 1);
}

/// Notes that the kernel has made `fd`, which can have no data path. An entry that exists belongs to an
/// earlier descriptor, which was closed without a call of this library.
#[inline]
pub fn made(fd: i32) {
    if noted::has(fd) && !threads::bypassed() {
        noted::remove(fd);
    }
    let Some(entry) = entry(fd) else { return };
    if entry.load(Relaxed) != 0 && !threads::bypassed() {
        drop_stale(entry.swap(0, Ordering::AcqRel));
        mark_known(fd, false);
    }
}

/// Drops an entry whose descriptor now belongs to another file. The position is not given back, because it
/// would go to that file.
fn drop_stale(entry: usize) {
    if let Some(file) = file_of(entry) {
        file.position.reset();
        file.remove_reference();
    }
}

/// Clears the entry of `fd`: the kernel is about to close or replace the descriptor, or another process
/// begins to use its position.
#[inline]
pub fn forget(fd: i32) {
    if noted::has(fd) && !threads::bypassed() {
        noted::remove(fd);
    }
    let Some(entry) = entry(fd) else { return };
    if entry.load(Relaxed) == 0 || threads::bypassed() {
        return;
    }
    let before = entry.swap(0, Ordering::AcqRel);
    mark_known(fd, false);
    remove(before, fd);
}

/// Clears the entries of the descriptors `first..=last`, like [`forget`].
pub fn forget_range(first: u32, last: u32) {
    if !threads::bypassed() {
        noted::remove_range(first, last);
    }
    for fd in known() {
        if (first..=last).contains(&(fd as u32)) {
            forget(fd);
        }
    }
}

/// Clears the entries of all descriptors.
pub(crate) fn forget_all() {
    forget_range(0, u32::MAX);
}

fn remove(entry: usize, fd: i32) {
    if let Some(file) = file_of(entry) {
        // A copy that this thread left by a jump is ended here, so that it does not keep the file.
        let _ = threads::known().is_some_and(Thread::nested);
        file.give_position();
        if !file.remove_reference() {
            file.replace_descriptor(fd, || known().find(|other| leads_to(*other, entry)));
        }
    }
}

fn leads_to(fd: i32, value: usize) -> bool {
    entry(fd).is_some_and(|entry| entry.load(Relaxed) == value)
}

#[inline(always)]
fn file_of(entry: usize) -> Option<&'static OpenFile> {
    // SAFETY: even entries are addresses of the pool of open files, which is never unmapped.
    (entry & CANDIDATE == 0 && entry != 0).then(|| unsafe { &*(entry as *const OpenFile) })
}

/// Notes that `new` leads to the same open file as `old`, after dup(2) and similar calls.
pub fn duplicated(old: i32, new: i32) {
    share(old);
    made(new);
    if threads::bypassed() || (new as usize) < DESCRIPTOR_MIN {
        return;
    }
    if noted::has(old) && (noted::add(new) || !state::wake()) || !state::is_ready() {
        return;
    }
    let (Some(from), Some(to)) = (entry(old), entry_to_set(new)) else { return };
    let value = from.load(Ordering::Acquire);
    if value == 0 {
        return;
    }
    if let Some(file) = file_of(value) {
        file.add_reference();
    }
    to.store(value, Ordering::Release);
    mark_known(new, true);
    HIGHEST.fetch_max(new as usize + 1, Relaxed);
}

/// Leaves the position of `fd` to the kernel for good: the descriptor is passed to another process or
/// duplicated.
pub fn share(fd: i32) {
    let Some(entry) = entry(fd) else { return };
    let value = entry.load(Ordering::Acquire);
    if value == 0 || threads::bypassed() {
        return;
    }
    match file_of(value) {
        Some(file) => file.share(),
        None => {
            entry.fetch_or(SHARED, Ordering::AcqRel);
        }
    }
}

/// Leaves every position to the kernel for good, before a fork, vfork, spawn or exec.
pub fn share_all() {
    if !state::is_ready() || threads::bypassed() {
        return;
    }
    SHARED_UP_TO.store(NUMBER.load(Relaxed), Relaxed);
    for file in open_file::all() {
        file.share();
    }
}

/// Gives the position of `fd` back to the kernel, because a system call is about to use it.
#[inline]
pub fn give(fd: i32) {
    if let Some(file) = served(fd) {
        file.give_position();
    }
}

/// Returns the open file of `fd`, if it has one. Its windows may be released at any time; its memory stays.
#[inline]
fn served(fd: i32) -> Option<&'static OpenFile> {
    entry(fd).and_then(|entry| file_of(entry.load(Ordering::Acquire))).filter(|_| !threads::bypassed())
}

/// Counts a call that makes the file of `fd` durable, if `fd` has a data path.
pub fn count_sync(fd: i32) {
    if is_served(fd) {
        threads::count(Counter::KernelSyncs, 1);
    }
}

/// Runs `what` for the open file of `fd`, if it has one, under a hazard that keeps the file and its windows.
#[inline]
pub fn with(fd: i32, what: impl FnOnce(&'static OpenFile, &Thread)) {
    let Some(entry) = entry(fd) else { return };
    let value = entry.load(Relaxed);
    let Some(file) = file_of(value) else { return };
    let Some(thread) = threads::current() else { return };
    // A signal handler that interrupted a copy finds the hazard in use; a note that is lost then was only a
    // hint.
    if !thread.nested() && thread.protect(entry, value) {
        what(file, thread);
        thread.release();
        file.after_release();
    }
}

/// Direction in which a call moves bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the file into the program's buffer.
    Read,
    /// From the program's buffer into the file.
    Write,
}

/// Way in which a read or write at an offset of the caller's choice continues.
pub enum At {
    /// The call was served at user level, with this number of bytes.
    Served(usize),
    /// The kernel serves the call; the caller passes the result to [`PassedRequest::finish`].
    Passed(PassedRequest),
    /// The kernel serves the call; the caller passes the result to [`served_at`].
    Kernel,
}

/// Begins a read or write at an offset of the caller's choice (`pread`, `pwrite`).
///
/// # Safety
/// Invalid addresses in the buffer are allowed and make the kernel serve the call. Valid memory in the buffer
/// must not be in use by anybody else, as for `pread` and `pwrite`.
#[inline(always)]
pub unsafe fn serve_at(fd: i32, direction: Direction, buffer: Buffer<'_>, offset: i64) -> At {
    let Some(target) = target(fd) else { return At::Kernel };
    if threads::bypassed() {
        return At::Kernel;
    }
    let Some(length) = buffer.bytes().filter(|length| *length > 0) else { return At::Kernel };
    let passed = |why, timed| {
        let alone = match direction {
            Direction::Read => KernelWrite::Free,
            Direction::Write => before_kernel_write(fd),
        };
        At::Passed(PassedRequest { file: target.file, direction, offset, why, timed, _alone: alone })
    };
    match direction {
        Direction::Read if target.file.passes_read(offset as u64, length) => {
            return passed(Why::Sequential, None);
        }
        Direction::Write if target.file.passes_writes() => return passed(target.file.why_passed(), None),
        _ => {}
    }
    // SAFETY: the caller promises that valid memory in the buffer is not in use elsewhere.
    match unsafe { serve(target, direction, buffer, length, offset, true) } {
        Ok(done) => At::Served(done),
        Err(Some(thread)) => passed(Why::Warming, Some(thread)),
        Err(None) => At::Kernel,
    }
}

/// Descriptor that leads to an open file with a data path.
#[derive(Clone, Copy)]
struct Target {
    fd: i32,
    entry: &'static AtomicUsize,
    value: usize,
    file: &'static OpenFile,
}

#[inline(always)]
fn target(fd: i32) -> Option<Target> {
    let entry = entry(fd)?;
    let value = entry.load(Relaxed);
    Some(Target { fd, entry, value, file: file_of(value)? })
}

/// Serves a read or write of `length > 0` bytes and returns the number of bytes.
///
/// # Errors
/// The thread whose account times the kernel's read, if the read was refused as [`Refusal::Passed`], which
/// happens only if `may_pass`; `None` if the kernel must serve the call for another reason, which is counted.
///
/// # Safety
/// Same as [`serve_at`].
#[inline(always)]
unsafe fn serve(
    target: Target,
    direction: Direction,
    buffer: Buffer<'_>,
    length: usize,
    offset: i64,
    may_pass: bool,
) -> Result<usize, Option<&'static Thread>> {
    let Some(thread) = threads::current() else { return Err(None) };
    if thread.nested() || offset < 0 {
        thread.count_fallback(Why::Nested);
        return Err(None);
    }
    if offset as u64 > (i64::MAX as u64) - length as u64 || !thread.protect(target.entry, target.value) {
        return Err(None);
    }
    // SAFETY: the caller promises the buffer; the hazard that was just set keeps the file.
    let result = unsafe { transfer(thread, target, direction, buffer, offset as u64, length, may_pass) };
    thread.release();
    target.file.after_release();
    match result {
        Ok(length) => {
            let (calls, bytes) = match direction {
                Direction::Read => (Counter::UserReads, Counter::UserReadBytes),
                Direction::Write => (Counter::UserWrites, Counter::UserWriteBytes),
            };
            thread.count_served(calls, bytes, length);
            usage::count(thread, target.file, By::User, length as u64);
            Ok(length)
        }
        Err(Refusal::Passed) => {
            thread.account.begin_kernel_read();
            Err(Some(thread))
        }
        Err(Refusal::Kernel(why)) => {
            if direction == Direction::Read {
                thread.account.begin_kernel_read();
            }
            thread.count_fallback(why);
            Err(None)
        }
    }
}

/// Reads or writes the open file, and returns the number of bytes.
///
/// # Errors
/// The [`Refusal`] of [`OpenFile::read`] or [`OpenFile::write`].
///
/// # Safety
/// The conditions of [`serve_at`] hold for the buffer, and the thread's hazard names the target's file.
#[inline(always)]
unsafe fn transfer(
    thread: &Thread,
    target: Target,
    direction: Direction,
    buffer: Buffer<'_>,
    offset: u64,
    length: usize,
    may_pass: bool,
) -> Result<usize, Refusal> {
    let Target { fd, file, .. } = target;
    // SAFETY: the caller promises the buffer and the hazard.
    unsafe {
        match direction {
            Direction::Read => file.read(thread, fd, offset, length, may_pass, buffer),
            Direction::Write => Ok(file.write(fd, offset, length, buffer).map(|()| length)?),
        }
    }
}

/// Guard that is held while the kernel writes or truncates a file: keeps out mapped writes of the same inode,
/// and makes mapped reads that must see each write whole notice the write.
pub enum KernelWrite {
    /// The file needs no gate, or has no data path.
    Free,
    /// The thread is the only one that uses the data path, and has noted the write in its record.
    Alone(&'static Thread),
    /// The gate that was entered, whether readers notice it, and the thread whose record notes the gate.
    Gate(&'static Gate, bool, Option<&'static Thread>),
}

/// Enters the gate of the file of `fd`; must be called before the kernel serves a write of it or truncates
/// it.
#[inline]
pub fn before_kernel_write(fd: i32) -> KernelWrite {
    let Some(entry) = entry(fd) else { return KernelWrite::Free };
    let Some(file) = file_of(entry.load(Relaxed)) else { return KernelWrite::Free };
    if !file.needs_gate() || threads::bypassed() {
        return KernelWrite::Free;
    }
    let thread = threads::known();
    let nested = thread.is_some_and(|thread| thread.nested() || thread.is_busy());
    match thread {
        Some(thread) if !nested && CROWD.begin_alone(&thread.busy, stack::pointer()) => {
            KernelWrite::Alone(thread)
        }
        _ => {
            let noticed = file.reads_are_atomic();
            file.gate().enter_kernel(noticed, nested);
            let how = if noticed { Inside::KernelNoticed } else { Inside::Kernel };
            let noting = thread.filter(|thread| thread.enters(file.gate(), how));
            KernelWrite::Gate(file.gate(), noticed, noting)
        }
    }
}

impl Drop for KernelWrite {
    #[inline]
    fn drop(&mut self) {
        match self {
            KernelWrite::Free => {}
            KernelWrite::Alone(thread) => CROWD.end_alone(&thread.busy),
            KernelWrite::Gate(gate, noticed, noting) => {
                if let Some(thread) = noting {
                    thread.leaves();
                }
                gate.leave_kernel(*noticed);
            }
        }
    }
}

/// Call that the kernel serves at once (`OpenFile::passes_read`, `passes_cold`, `passes_writes`).
pub struct PassedRequest {
    file: &'static OpenFile,
    direction: Direction,
    offset: i64,
    why: Why,
    /// Thread whose account times the read.
    timed: Option<&'static Thread>,
    _alone: KernelWrite,
}

impl PassedRequest {
    /// Notes the kernel's result of the call.
    #[inline(always)]
    pub fn finish(self, result: isize) {
        if let Some(thread) = self.timed
            && result > 0
        {
            thread.account.end_kernel_read();
        }
        note_passed(self.file, self.direction, self.offset, self.why, result);
    }
}

/// Notes that the kernel has served a passed call at `offset` with `result`.
#[inline(always)]
fn note_passed(file: &OpenFile, direction: Direction, offset: i64, why: Why, result: isize) {
    if direction == Direction::Write && result > 0 && offset >= 0 {
        file.reaches(offset as u64 + result as u64);
    }
    count_passed(file, direction, why, result);
}

/// Counts a passed call, if the process has a record.
#[inline(always)]
fn count_passed(file: &OpenFile, direction: Direction, why: Why, result: isize) {
    if state::record().is_some()
        && let Some(thread) = threads::known()
    {
        count_kernel(direction, result);
        thread.count_fallback(why);
        usage::count(thread, file, By::Kernel, result.max(0) as u64);
    }
}

/// Notes that the kernel has served a read or write of `wanted` bytes at `offset` with `result`. `wanted` is
/// 0 if the length is not known (lists of segments that were not added up); a negative `offset` is the file's
/// own position.
#[inline]
pub fn served_at(fd: i32, direction: Direction, wanted: usize, offset: i64, result: isize) {
    if noted::has(fd) && !set_up_for(wanted_or(wanted, result), offset) {
        return;
    }
    let Some(entry) = entry(fd) else { return };
    let value = entry.load(Relaxed);
    if value == 0 {
        if state::wants_files() {
            count_untracked(direction, result);
        }
        return;
    }
    if threads::bypassed() {
        return;
    }
    count_kernel(direction, result);
    if value & CANDIDATE != 0 {
        if offset < 0 && !state::settings().positions_at_user_level {
            // A data path would not serve such a call, so the call adds no weight.
            threads::count(Why::Position.counter(), 1);
            return;
        }
        let passes = direction == Direction::Write && !state::settings().writes;
        threads::count(if passes { Why::Write } else { Why::Warming }.counter(), 1);
        warm(fd, entry, value, direction, wanted_or(wanted, result));
    } else if result > 0 && offset >= 0 {
        with(fd, |file, thread| {
            match direction {
                Direction::Read => {
                    thread.account.end_kernel_read();
                    file.note_read(thread, fd, offset as u64, result as u64);
                }
                Direction::Write => file.note_write(offset as u64, result as u64),
            }
            usage::count(thread, file, By::Kernel, result as u64);
        });
    }
}

/// Returns `wanted`, or the number of bytes in `result` if `wanted` is 0.
fn wanted_or(wanted: usize, result: isize) -> usize {
    if wanted == 0 { result.max(0) as usize } else { wanted }
}

/// Sets up the tables if a call of `used` bytes at `offset` adds weight to a candidate; returns true if they
/// are set up.
#[cold]
fn set_up_for(used: usize, offset: i64) -> bool {
    let warms = offset >= 0 && used != 0 && used <= state::settings().threshold;
    warms && !threads::bypassed() && state::wake()
}

/// Makes entries of the noted candidates, right after the tables were set up.
pub(crate) fn after_set_up() {
    noted::take_over();
}

fn count_untracked(direction: Direction, result: isize) {
    if state::is_ready() && threads::current().is_some() {
        count_kernel(direction, result);
        threads::count(Why::Untracked.counter(), 1);
    }
}

fn count_kernel(direction: Direction, result: isize) {
    let (calls, bytes) = match direction {
        Direction::Read => (Counter::KernelReads, Counter::KernelReadBytes),
        Direction::Write => (Counter::KernelWrites, Counter::KernelWriteBytes),
    };
    threads::count(calls, 1);
    threads::count(bytes, result.max(0) as u64);
}

/// Adds the weight of a call of `used` bytes to a candidate, and gives it a data path if the weight suffices.
fn warm(fd: i32, entry: &AtomicUsize, value: usize, direction: Direction, used: usize) {
    if used == 0 || !state::is_ready() || used > state::settings().threshold {
        return;
    }
    let weight = (value & WEIGHT_MASK) >> WEIGHT_SHIFT;
    if weight < WEIGHT_BEFORE_PROMOTION {
        let more = if direction == Direction::Read { READ_WEIGHT } else { 1 };
        // The update is lost if another thread changes the entry first; the weight is a hint.
        let _ = entry.compare_exchange(value, value + (more << WEIGHT_SHIFT), Relaxed, Relaxed);
    } else if let Some(thread) = threads::current()
        && !thread.nested()
    {
        promote(fd, entry, value);
    }
}

/// Gives a candidate a data path, or clears its entry so that the kernel serves it for good.
#[cold]
fn promote(fd: i32, entry: &AtomicUsize, value: usize) {
    let Some(held) = LOCK.try_hold() else { return };
    let shared = value & SHARED != 0 || value >> NUMBER_SHIFT <= SHARED_UP_TO.load(Relaxed);
    let mut path = [0u8; 4096];
    let file = describe(fd, shared, &mut path).and_then(|what| open_file::create(&what));
    let address = file.map_or(0, |file| core::ptr::from_ref(file) as usize);
    // SYNC: published-file (release).
    let published = entry.compare_exchange(value, address, Ordering::AcqRel, Relaxed).is_ok();
    drop(held);
    match file {
        Some(_) if published => threads::count(Counter::FilesPromoted, 1),
        Some(file) => {
            file.remove_reference();
        }
        None => {}
    }
}

fn describe<'a>(fd: i32, shared: bool, path: &'a mut [u8; 4096]) -> Option<Description<'a>> {
    const ACCESS: isize = 3;
    const WRITE_ONLY: isize = 1;
    const READ_WRITE: isize = 2;
    const APPEND: isize = 0o2000;
    const DSYNC: isize = 0o10000;
    const DIRECT: isize = 0o40000;
    const PATH: isize = 0o10_000_000;
    let flags = sys::status_flags(fd);
    if flags < 0 || flags & (DIRECT | PATH) != 0 || flags & ACCESS == WRITE_ONLY {
        return None;
    }
    let status = sys::status(fd).ok().filter(sys::Status::is_regular)?;
    let kind = filesystem::kind(sys::filesystem(fd).ok()?)?;
    let settings = state::settings();
    let length = if settings.wants_files || !settings.only.is_empty() || !settings.except.is_empty() {
        sys::path_of(fd, path)
    } else {
        0
    };
    let path = &path[..length];
    if !settings.covers(path) {
        return None;
    }
    Some(Description {
        fd,
        status,
        kind,
        may_write: flags & ACCESS == READ_WRITE && flags & (DSYNC | APPEND) == 0,
        shared: shared || flags & APPEND != 0,
        path,
    })
}

/// Stops the data paths of all open files of the inode behind `fd` for good, because the program does
/// something that no mapping may coexist with. (Two descriptors of one open file can have separate data paths
/// if they were duplicated while they were candidates.)
pub fn disable(fd: i32) {
    if in_use()
        && let Ok(status) = sys::status(fd)
    {
        for file in open_file::all().filter(|file| file.identity() == status.identity) {
            file.disable();
        }
    }
    forget(fd);
}

/// Returns true if some descriptor was opened that can have a data path.
#[inline]
pub fn knows_any() -> bool {
    HIGHEST.load(Relaxed) != 0 && state::is_ready() || noted::has_any()
}

/// Returns true if at least one file has a data path.
pub fn in_use() -> bool {
    state::is_ready() && open_file::all().next().is_some()
}

/// Returns true if `fd` has a data path.
#[inline]
pub fn is_served(fd: i32) -> bool {
    served(fd).is_some()
}

/// Updates the size of every open file of the inode behind `fd`, which this process has resized by any
/// descriptor. `rearranged`: pages within the size may have been removed. Holds the lock, so that no window
/// is released meanwhile.
pub fn resized(fd: i32, rearranged: bool) {
    if !state::is_ready() || threads::bypassed() || !in_use() {
        return;
    }
    let Ok(status) = sys::status(fd) else { return };
    let _held = LOCK.hold();
    for file in open_file::all().filter(|file| file.identity() == status.identity) {
        file.note_resize(status.size);
        if rearranged {
            file.note_dropped_pages();
        }
    }
}

/// Updates the size of every open file, because this process resized a file by its name.
pub fn sizes_changed() {
    let _held = LOCK.hold();
    for file in open_file::all() {
        file.look_at_size();
    }
}

/// Adds all usage per file to the record, at the end of the process.
pub fn report_usage() {
    if !threads::bypassed() && !state::is_unnoticed_child() {
        open_file::all().for_each(OpenFile::report_usage);
    }
}
