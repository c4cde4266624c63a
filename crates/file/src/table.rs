//! From descriptor to open file: which descriptors have a user-level data path.
//!
//! ```text
//!   0            the kernel's: never opened through us, or not fit
//!   odd          a candidate: opened, not used often enough yet
//!                bits 63..16 when it was opened (a running number)   9..2 weight so far   1 shared position
//!   even, > 0    the address of its OpenFile
//! ```
//!
//! The kernel's descriptors are the truth; this table only says what may be served beside them. An entry is
//! taken away *before* the kernel closes or replaces the descriptor and set *after* the kernel has made one,
//! so it never outlives the descriptor that it was made for. Candidates become open files after a few small
//! requests, so that files which are opened, read once and closed cost nothing.
//!
//! In a forked child the table is empty (the kernel wipes it); `reset_child` makes candidates with a
//! shared position of the descriptors that were known. Before the table is set up, candidates are noted in one word
//! (`noted`).

use crate::buffer::Buffer;
use crate::filesystem;
use crate::gate::Gate;
use crate::open_file::{self, Description, OpenFile, Refusal};
use crate::pool::{InChild, Pool};
use crate::process::{self, LOCK};
use crate::stack;
use crate::sys;
use crate::threads::{self, CROWD, Inside, Thread};
use crate::usage::{self, By};
use bywash_session::{Counter, FallbackReason as Why};
use bywash_sync::{AtomicU64, AtomicUsize, Ordering, Ordering::Relaxed};

mod here;
mod noted;

pub use here::{Here, KernelPosition, Ours, position, seek, serve_here, sought, with_kernel_position};

/// Descriptors that can have a data path; larger ones are the kernel's.
pub const DESCRIPTORS_MAX: usize = 1 << 20;
/// Standard input, output and error are used behind our back by the C library's streams.
const DESCRIPTOR_MIN: usize = 3;
/// What small requests add up to before a candidate gets its data path: a read counts [`READ_WEIGHT`], a
/// write, which may well only make the file longer, one.
const WEIGHT_BEFORE_PROMOTION: usize = 64;
const READ_WEIGHT: usize = 16;

const CANDIDATE: usize = 1;
const SHARED: usize = 2;
const WEIGHT_SHIFT: u32 = 2;
const WEIGHT_MASK: usize = 0xff << WEIGHT_SHIFT;
const NUMBER_SHIFT: u32 = 16;

pub(crate) static TABLE: Pool<AtomicUsize> = Pool::new(DESCRIPTORS_MAX, InChild::Wiped);
/// One bit per descriptor that has an entry; a forked child finds it as it was.
pub(crate) static KNOWN: Pool<AtomicU64> = Pool::new(DESCRIPTORS_MAX / 64, InChild::Kept);
static HIGHEST: AtomicUsize = AtomicUsize::new(0);
/// Running number of the last candidate.
static NUMBER: AtomicUsize = AtomicUsize::new(0);
/// Candidates up to this number had been opened when the process forked last.
static SHARED_UP_TO: AtomicUsize = AtomicUsize::new(0);

/// In a forked child, after the tables were wiped.
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

/// The entry of a descriptor that may be the first one so high.
fn entry_to_set(fd: i32) -> Option<&'static AtomicUsize> {
    KNOWN.get_or_grow(fd as usize / 64)?;
    TABLE.get_or_grow(fd as u32 as usize)
}

/// Sets or clears the bit of a descriptor that has an entry.
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

/// The kernel has just opened `fd` for reading or reading and writing.
pub fn opened(fd: i32) {
    if fd < DESCRIPTOR_MIN as i32 || threads::bypassed() || noted::add(fd) || !process::wake() {
        return;
    }
    let Some(entry) = entry_to_set(fd) else { return };
    if process::wants_files() {
        // So that it is counted also where nothing else happens.
        threads::current();
    }
    let number = NUMBER.fetch_add(1, Relaxed) + 1;
    let before = entry.swap(number << NUMBER_SHIFT | CANDIDATE, Ordering::AcqRel);
    mark_known(fd, true);
    HIGHEST.fetch_max(fd as usize + 1, Relaxed);
    drop_stale(before);
    process::count(Counter::FilesOpened, 1);
}

/// The kernel has just made `fd`, which can have no data path: an entry that is still there is left from a
/// descriptor that was closed past this library.
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

/// Drops an entry whose descriptor is another file's by now: its position does not go there.
fn drop_stale(entry: usize) {
    if let Some(file) = file_of(entry) {
        file.position.reset();
        file.remove_reference();
    }
}

/// The kernel is about to close or replace `fd`, or somebody else begins to use its position: it is the
/// kernel's from here on.
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

/// As [`forget`] for `first..=last`.
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

/// All descriptors are the kernel's.
pub(crate) fn forget_all() {
    forget_range(0, u32::MAX);
}

fn remove(entry: usize, fd: i32) {
    if let Some(file) = file_of(entry) {
        // A copy that this thread left by a jump must not keep the file.
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

/// `new` leads to the same open file as `old` (dup and the like).
pub fn duplicated(old: i32, new: i32) {
    share(old);
    made(new);
    if threads::bypassed() || (new as usize) < DESCRIPTOR_MIN {
        return;
    }
    if noted::has(old) && (noted::add(new) || !process::wake()) || !process::is_ready() {
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

/// `fd` leaves this process or gets a second descriptor: its position is the kernel's for good.
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

/// Before a fork, vfork, spawn or exec: every position is the kernel's for good.
pub fn share_all() {
    if !process::is_ready() || threads::bypassed() {
        return;
    }
    SHARED_UP_TO.store(NUMBER.load(Relaxed), Relaxed);
    for file in open_file::all() {
        file.share();
    }
}

/// Hands the position of `fd` to the kernel because a call is about to use it.
#[inline]
pub fn give(fd: i32) {
    if let Some(file) = served(fd) {
        file.give_position();
    }
}

/// The open file behind `fd`, if it has one. Its windows may go at any time; its memory stays.
#[inline]
fn served(fd: i32) -> Option<&'static OpenFile> {
    entry(fd).and_then(|entry| file_of(entry.load(Ordering::Acquire))).filter(|_| !threads::bypassed())
}

/// Counts a call that makes the file behind `fd` durable, if it has a data path.
pub fn count_sync(fd: i32) {
    if is_served(fd) {
        process::count(Counter::KernelSyncs, 1);
    }
}

/// Runs `what` for the open file behind `fd`, if it has one, while nobody can take it away.
#[inline]
pub fn with(fd: i32, what: impl FnOnce(&'static OpenFile, &Thread)) {
    let Some(entry) = entry(fd) else { return };
    let value = entry.load(Relaxed);
    let Some(file) = file_of(value) else { return };
    let Some(thread) = threads::current() else { return };
    // In a signal handler within a copy the hazard is taken: what is noted then is only a hint.
    if !thread.nested() && thread.protect(entry, value) {
        what(file, thread);
        thread.release();
        file.after_release();
    }
}

/// Which way the bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the file into the program's buffer.
    Read,
    /// From the program's buffer into the file.
    Write,
}

/// How a read or write at an offset of the caller's choice goes on.
pub enum At {
    /// It was served: this many bytes.
    Served(usize),
    /// The kernel serves it; [`Passed::finish`] wants the result.
    Passed(Passed),
    /// The kernel serves it; [`served_at`] wants the result.
    Kernel,
}

/// Begins a read or write at an offset of the caller's choice.
///
/// # Safety
/// Bad buffers are no problem, but good ones must not be in use by anybody else: as for `pread`, `pwrite`.
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
        At::Passed(Passed { file: target.file, direction, offset, why, timed, _alone: alone })
    };
    match direction {
        Direction::Read if target.file.passes_read(offset as u64, length) => {
            return passed(Why::Sequential, None);
        }
        Direction::Write if target.file.passes_writes() => return passed(target.file.why_passed(), None),
        _ => {}
    }
    // SAFETY: promised by the caller.
    match unsafe { serve(target, direction, buffer, length, offset, true) } {
        Ok(done) => At::Served(done),
        Err(Some(thread)) => passed(Why::Warming, Some(thread)),
        Err(None) => At::Kernel,
    }
}

/// A descriptor that leads to an open file with a data path.
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

/// Serves a read or write of `length > 0` bytes. Refuses with the thread whose account times the kernel's read if that is
/// one of [`Passed`], which happens only if `may_pass`.
///
/// # Safety
/// As [`serve_at`].
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
    // SAFETY: the caller's promise for the buffers.
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

/// # Safety
/// As [`serve_at`].
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
    // SAFETY: promised by the caller.
    unsafe {
        match direction {
            Direction::Read => file.read(thread, fd, offset, length, may_pass, buffer),
            Direction::Write => Ok(file.write(fd, offset, length, buffer).map(|()| length)?),
        }
    }
}

/// Held while the kernel changes a file, so that mapped writes of the same inode keep out, and mapped reads
/// that must see each write whole take note.
pub enum KernelWrite {
    /// The file has neither.
    Free,
    /// The thread is the only one, and says so in its record.
    Alone(&'static Thread),
    /// A gate, whether readers notice who passes it, and the thread that has noted it.
    Gate(&'static Gate, bool, Option<&'static Thread>),
}

/// To be called before the kernel serves a write of `fd`, or cuts its file.
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

/// A call that the kernel serves without further ado (`OpenFile::passes_read`, `passes_cold`, `passes_writes`).
pub struct Passed {
    file: &'static OpenFile,
    direction: Direction,
    offset: i64,
    why: Why,
    /// The thread whose account times the read.
    timed: Option<&'static Thread>,
    _alone: KernelWrite,
}

impl Passed {
    /// The kernel has served it.
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

/// Notes a passed call that the kernel has served at `offset` with `result`.
#[inline(always)]
fn note_passed(file: &OpenFile, direction: Direction, offset: i64, why: Why, result: isize) {
    if direction == Direction::Write && result > 0 && offset >= 0 {
        file.reaches(offset as u64 + result as u64);
    }
    count_passed(file, direction, why, result);
}

/// Counts a call of which nothing is remembered.
#[inline(always)]
fn count_passed(file: &OpenFile, direction: Direction, why: Why, result: isize) {
    if process::record().is_some()
        && let Some(thread) = threads::known()
    {
        count_kernel(direction, result);
        thread.count_fallback(why);
        usage::count(thread, file, By::Kernel, result.max(0) as u64);
    }
}

/// Notes that the kernel has served a read or write of `wanted` bytes at `offset` with `result`. `wanted` is 0
/// where the bytes asked for are not known (lists of segments that nobody has looked at).
#[inline]
pub fn served_at(fd: i32, direction: Direction, wanted: usize, offset: i64, result: isize) {
    if noted::has(fd) && !set_up_for(wanted_or(wanted, result), offset) {
        return;
    }
    let Some(entry) = entry(fd) else { return };
    let value = entry.load(Relaxed);
    if value == 0 {
        if process::wants_files() {
            count_untracked(direction, result);
        }
        return;
    }
    if threads::bypassed() {
        return;
    }
    count_kernel(direction, result);
    if value & CANDIDATE != 0 {
        if offset < 0 && !process::settings().positions_at_user_level {
            // A data path would never serve such a call, so it is no reason to make one.
            process::count(Why::Position.counter(), 1);
            return;
        }
        let passes = direction == Direction::Write && !process::settings().writes;
        process::count(if passes { Why::Write } else { Why::Warming }.counter(), 1);
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

/// The bytes that a call asked for, or those that it got where that is not known.
fn wanted_or(wanted: usize, result: isize) -> usize {
    if wanted == 0 { result.max(0) as usize } else { wanted }
}

/// Sets up the tables if a call of `used` bytes at `offset` can warm a candidate; whether they are there.
#[cold]
fn set_up_for(used: usize, offset: i64) -> bool {
    let warms = offset >= 0 && used != 0 && used <= process::settings().threshold;
    warms && !threads::bypassed() && process::wake()
}

/// The tables were set up just now.
pub(crate) fn after_set_up() {
    noted::take_over();
}

fn count_untracked(direction: Direction, result: isize) {
    if process::is_ready() && threads::current().is_some() {
        count_kernel(direction, result);
        process::count(Why::Untracked.counter(), 1);
    }
}

fn count_kernel(direction: Direction, result: isize) {
    let (calls, bytes) = match direction {
        Direction::Read => (Counter::KernelReads, Counter::KernelReadBytes),
        Direction::Write => (Counter::KernelWrites, Counter::KernelWriteBytes),
    };
    process::count(calls, 1);
    process::count(bytes, result.max(0) as u64);
}

/// Counts a call of `used` bytes for a candidate, and gives it its data path when that is due.
fn warm(fd: i32, entry: &AtomicUsize, value: usize, direction: Direction, used: usize) {
    if used == 0 || !process::is_ready() || used > process::settings().threshold {
        return;
    }
    let weight = (value & WEIGHT_MASK) >> WEIGHT_SHIFT;
    if weight < WEIGHT_BEFORE_PROMOTION {
        let more = if direction == Direction::Read { READ_WEIGHT } else { 1 };
        // Lost when another thread was faster: a hint.
        let _ = entry.compare_exchange(value, value + (more << WEIGHT_SHIFT), Relaxed, Relaxed);
    } else if let Some(thread) = threads::current()
        && !thread.nested()
    {
        promote(fd, entry, value);
    }
}

/// Gives a candidate its data path, or leaves it to the kernel for good.
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
        Some(_) if published => process::count(Counter::FilesPromoted, 1),
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
    let settings = process::settings();
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

/// The program does something with `fd` that no mapping may stand beside: every open file of the inode is the
/// kernel's for good. (Two descriptors of one open file can have a data path each, if they were duplicated
/// before.)
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

/// Whether there has been any descriptor that can have a data path.
#[inline]
pub fn knows_any() -> bool {
    HIGHEST.load(Relaxed) != 0 && process::is_ready() || noted::has_any()
}

/// Whether any file has a data path.
pub fn in_use() -> bool {
    process::is_ready() && open_file::all().next().is_some()
}

/// Whether `fd` has a data path.
#[inline]
pub fn is_served(fd: i32) -> bool {
    served(fd).is_some()
}

/// This process resized the file behind `fd`, by this descriptor or by any other: all open files of the
/// inode take note. `rearranged`: pages within its size may have gone. Under the lock, so that no window
/// goes meanwhile.
pub fn resized(fd: i32, rearranged: bool) {
    if !process::is_ready() || threads::bypassed() || !in_use() {
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

/// This process resized a file by its name: every open file looks at its size again.
pub fn sizes_changed() {
    let _held = LOCK.hold();
    for file in open_file::all() {
        file.look_at_size();
    }
}

/// Hands everything that was counted per file to the record: the process ends.
pub fn report_usage() {
    if !threads::bypassed() && !process::is_unnoticed_child() {
        open_file::all().for_each(OpenFile::report_usage);
    }
}
