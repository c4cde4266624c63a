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
//! shared position of the descriptors that were known.

use crate::copy::{Fault, copy_unless_zero_ends, guarded_byte, guarded_copy};
use crate::filesystem;
use crate::gate::Gate;
use crate::open_file::{self, Check, Description, OpenFile};
use crate::process::{self, LOCK};
use crate::reclaim;
use crate::sys::{self, Advice};
use crate::threads::{self, CROWD, Thread};
use crate::usage::{self, By};
use bywash_session::{Counter, FallbackReason as Why};
use bywash_sync::{AtomicPtr, AtomicU64, AtomicUsize, Ordering, Ordering::Relaxed};

mod here;

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

static TABLE: AtomicPtr<AtomicUsize> = AtomicPtr::new(core::ptr::null_mut());
/// One bit per descriptor that has an entry; a forked child finds it as it was.
static KNOWN: AtomicPtr<AtomicU64> = AtomicPtr::new(core::ptr::null_mut());
static HIGHEST: AtomicUsize = AtomicUsize::new(0);
/// Running number of the last candidate.
static NUMBER: AtomicUsize = AtomicUsize::new(0);
/// Candidates up to this number had been opened when the process forked last.
static SHARED_UP_TO: AtomicUsize = AtomicUsize::new(0);

pub(crate) fn prepare() -> bool {
    let bytes = DESCRIPTORS_MAX * size_of::<AtomicUsize>();
    let (Some(table), Some(known)) = (sys::map_memory(bytes), sys::map_memory(DESCRIPTORS_MAX / 8)) else {
        return false;
    };
    KNOWN.store(known.cast(), Ordering::Release);
    TABLE.store(table.cast(), Ordering::Release);
    sys::advise(table, bytes, Advice::WipeOnFork)
}

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
    let table = TABLE.load(Relaxed);
    if fd as u32 as usize >= DESCRIPTORS_MAX || table.is_null() {
        return None;
    }
    // SAFETY: the table has DESCRIPTORS_MAX entries and is never unmapped.
    Some(unsafe { &*table.add(fd as usize) })
}

fn known_word(fd: usize) -> &'static AtomicU64 {
    // SAFETY: one bit for each of DESCRIPTORS_MAX descriptors; only asked for those with an entry.
    unsafe { &*KNOWN.load(Relaxed).add(fd / 64) }
}

fn known() -> impl Iterator<Item = i32> {
    (0..HIGHEST.load(Relaxed).div_ceil(64)).flat_map(|word| {
        let bits = known_word(word * 64).load(Relaxed);
        (0..64).filter(move |bit| bits >> bit & 1 != 0).map(move |bit| (word * 64 + bit) as i32)
    })
}

/// The kernel has just opened `fd` for reading or reading and writing.
pub fn opened(fd: i32) {
    if !process::is_ready() || (fd as usize) < DESCRIPTOR_MIN || fd < 0 || threads::bypassed() {
        return;
    }
    let Some(entry) = entry(fd) else { return };
    if process::wants_files() {
        // So that it is counted also where nothing else happens.
        threads::current();
    }
    let number = NUMBER.fetch_add(1, Relaxed) + 1;
    let before = entry.swap(number << NUMBER_SHIFT | CANDIDATE, Ordering::AcqRel);
    let fd_index = fd as usize;
    known_word(fd_index).fetch_or(1 << (fd_index % 64), Relaxed);
    HIGHEST.fetch_max(fd_index + 1, Relaxed);
    drop_stale(before);
    process::count(Counter::FilesOpened, 1);
}

/// The kernel has just made `fd`, which can have no data path: an entry that is still there is left from a
/// descriptor that was closed past this library.
#[inline]
pub fn made(fd: i32) {
    let Some(entry) = entry(fd) else { return };
    if entry.load(Relaxed) != 0 && !threads::bypassed() {
        drop_stale(entry.swap(0, Ordering::AcqRel));
        known_word(fd as usize).fetch_and(!(1 << (fd as usize % 64)), Relaxed);
    }
}

/// Drops an entry whose descriptor is another file's by now: neither its position nor its times go there.
fn drop_stale(entry: usize) {
    if let Some(file) = file_of(entry) {
        file.position.reset();
        file.forget_times();
        file.remove_reference(-1);
    }
}

/// The kernel is about to close or replace `fd`, or somebody else begins to use its position: it is the
/// kernel's from here on.
#[inline]
pub fn forget(fd: i32) {
    let Some(entry) = entry(fd) else { return };
    if entry.load(Relaxed) == 0 || threads::bypassed() {
        return;
    }
    let before = entry.swap(0, Ordering::AcqRel);
    known_word(fd as usize).fetch_and(!(1 << (fd as usize % 64)), Relaxed);
    remove(before, fd);
}

/// As [`forget`] for `first..=last`.
pub fn forget_range(first: u32, last: u32) {
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
        file.give_position();
        if !file.remove_reference(fd) {
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
    if threads::bypassed() || !process::is_ready() || (new as usize) < DESCRIPTOR_MIN {
        return;
    }
    let (Some(from), Some(to)) = (entry(old), entry(new)) else { return };
    let value = from.load(Ordering::Acquire);
    if value == 0 {
        return;
    }
    if let Some(file) = file_of(value) {
        file.add_reference();
    }
    to.store(value, Ordering::Release);
    known_word(new as usize).fetch_or(1 << (new as usize % 64), Relaxed);
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
        file.settle_times_by_any();
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

/// Before the kernel makes the file behind `fd` durable: its times are settled, and its pages clean.
pub fn before_sync(fd: i32) {
    if let Some(file) = served(fd) {
        file.settle_times(fd);
        file.note_sync();
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
    if !thread.nested() && reclaim::protect(&thread.hazard, entry, value) {
        what(file, thread);
        reclaim::release(&thread.hazard);
    }
}

/// One piece of a program's buffer.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Segment {
    /// Where.
    pub at: *mut u8,
    /// Bytes.
    pub length: usize,
}

/// The bytes of all pieces; `None` when the kernel would refuse them or they are too many for us.
#[inline(always)]
fn total(segments: &[Segment]) -> Option<usize> {
    const SEGMENTS_MAX: usize = 64;
    if segments.len() > SEGMENTS_MAX {
        return None;
    }
    segments.iter().try_fold(0usize, |sum, segment| {
        sum.checked_add(segment.length).filter(|sum| *sum <= i32::MAX as usize)
    })
}

/// Which way the bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the file into the program's buffer.
    Read,
    /// From the program's buffer into the file.
    Write,
}

/// Serves a read or write at an offset of the caller's choice; `None`: the kernel's turn, after which
/// [`served_at`] wants to know the result.
///
/// # Safety
/// Bad buffers are no problem, but good ones must not be in use by anybody else: as for `pread`, `pwrite`.
#[inline(always)]
pub unsafe fn serve_at(fd: i32, direction: Direction, segments: &[Segment], offset: i64) -> Option<usize> {
    let entry = entry(fd)?;
    let value = entry.load(Relaxed);
    let file = file_of(value)?;
    let thread = threads::current()?;
    if thread.nested() || offset < 0 {
        thread.count_fallback(Why::Nested);
        return None;
    }
    let length = total(segments).filter(|length| *length > 0)?;
    if offset as u64 > (i64::MAX as u64) - length as u64 || !reclaim::protect(&thread.hazard, entry, value) {
        return None;
    }
    // SAFETY: the caller's promise for the buffers.
    let result = unsafe { transfer(file, fd, direction, segments, offset as u64, length) };
    reclaim::release(&thread.hazard);
    count(thread, file, direction, result, length)
}

/// # Safety
/// As [`serve_at`].
#[inline(always)]
unsafe fn transfer(
    file: &OpenFile,
    fd: i32,
    direction: Direction,
    segments: &[Segment],
    offset: u64,
    length: usize,
) -> Result<(), Why> {
    let each = |mut at: *mut u8| {
        for segment in segments {
            let (to, from) = match direction {
                Direction::Read => (segment.at, at),
                Direction::Write => (at, segment.at),
            };
            // SAFETY: faults are caught; the mapped side is kept by the hazard.
            unsafe { guarded_copy(to, from, segment.length)? };
            at = at.wrapping_add(segment.length);
        }
        Ok::<(), Fault>(())
    };
    match direction {
        Direction::Read => file.read(fd, offset, length, |from, check| {
            // SAFETY: as above.
            unsafe {
                match (segments, check) {
                    ([segment], Check::LastByte) => copy_unless_zero_ends(segment.at, from, length),
                    (_, Check::LastByte) if guarded_byte(from.wrapping_add(length - 1))? == 0 => Ok(false),
                    _ => each(from.cast_mut()).map(|()| true),
                }
            }
        }),
        Direction::Write => file.write(fd, offset, length, each),
    }
}

#[inline(always)]
fn count(
    thread: &Thread,
    file: &OpenFile,
    direction: Direction,
    result: Result<(), Why>,
    length: usize,
) -> Option<usize> {
    match result {
        Ok(()) => {
            let (calls, bytes) = match direction {
                Direction::Read => (Counter::UserReads, Counter::UserReadBytes),
                Direction::Write => (Counter::UserWrites, Counter::UserWriteBytes),
            };
            thread.count_served(calls, bytes, length);
            usage::count(thread, file, By::User, length as u64);
            Some(length)
        }
        Err(why) => {
            thread.count_fallback(why);
            None
        }
    }
}

/// Held while the kernel serves a write, so that mapped writes of the same inode keep out.
pub enum KernelWrite {
    /// None can be.
    Free,
    /// The thread is the only one, and says so in its record.
    Alone(&'static Thread),
    /// A gate, and whether readers notice who passes it.
    Gate(&'static Gate, bool),
}

/// To be called before the kernel serves a write of `fd`.
#[inline]
pub fn before_kernel_write(fd: i32) -> KernelWrite {
    let Some(entry) = entry(fd) else { return KernelWrite::Free };
    let Some(file) = file_of(entry.load(Relaxed)) else { return KernelWrite::Free };
    if threads::bypassed() {
        return KernelWrite::Free;
    }
    let thread = threads::known();
    let nested = thread.is_some_and(|thread| thread.nested() || thread.busy.load(Relaxed) != 0);
    match thread {
        Some(thread) if !nested && CROWD.begin_alone(&thread.busy) => KernelWrite::Alone(thread),
        _ => {
            let noticed = file.reads_are_atomic();
            file.gate().enter_kernel(noticed, nested);
            KernelWrite::Gate(file.gate(), noticed)
        }
    }
}

impl Drop for KernelWrite {
    #[inline]
    fn drop(&mut self) {
        match self {
            KernelWrite::Free => {}
            KernelWrite::Alone(thread) => CROWD.end_alone(&thread.busy),
            KernelWrite::Gate(gate, noticed) => gate.leave_kernel(*noticed),
        }
    }
}

/// A call that the kernel serves and of which nothing is remembered (`OpenFile::passes_read`, `passes_write`).
pub struct Passed {
    file: &'static OpenFile,
    direction: Direction,
    _alone: KernelWrite,
}

/// Whether the next read or write at an offset is such a one; to be asked before anything else.
#[inline(always)]
pub fn pass(fd: i32, direction: Direction, length: usize, offset: i64) -> Option<Passed> {
    let file = file_of(entry(fd)?.load(Relaxed))?;
    let passes = match direction {
        Direction::Read => file.passes_read(offset as u64, length),
        Direction::Write => file.passes_write(),
    };
    if !passes || threads::bypassed() {
        return None;
    }
    let alone = match direction {
        Direction::Read => KernelWrite::Free,
        Direction::Write => before_kernel_write(fd),
    };
    Some(Passed { file, direction, _alone: alone })
}

impl Passed {
    /// The kernel has served it.
    #[inline(always)]
    pub fn finish(self, result: isize) {
        if self.direction == Direction::Write {
            self.file.note_passed_write();
        }
        count_passed(self.file, self.direction, result);
    }
}

/// Counts a call of which nothing is remembered.
#[inline(always)]
fn count_passed(file: &OpenFile, direction: Direction, result: isize) {
    if let Some(thread) = threads::known()
        && process::record().is_some()
    {
        count_kernel(direction, result);
        thread.count_fallback(match direction {
            Direction::Read => Why::Sequential,
            Direction::Write => file.why_passed(),
        });
        usage::count(thread, file, By::Kernel, result.max(0) as u64);
    }
}

/// The kernel has served a read or write of `wanted` bytes at `offset` with `result`.
#[inline]
pub fn served_at(fd: i32, direction: Direction, wanted: usize, offset: i64, result: isize) {
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
        process::count(Why::Warming.counter(), 1);
        warm(fd, entry, value, direction, wanted);
    } else if result > 0 && offset >= 0 {
        with(fd, |file, thread| {
            match direction {
                Direction::Read => file.note_read(thread, fd, offset as u64, result as u64),
                Direction::Write => file.note_write(thread, fd, offset as u64, result as u64),
            }
            usage::count(thread, file, By::Kernel, result as u64);
        });
    }
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

fn warm(fd: i32, entry: &AtomicUsize, value: usize, direction: Direction, wanted: usize) {
    if wanted == 0 || wanted > process::settings().threshold || !process::is_ready() {
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
            file.remove_reference(fd);
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
        may_write: flags & ACCESS == READ_WRITE,
        synchronous: flags & (DSYNC | APPEND) != 0,
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
    HIGHEST.load(Relaxed) != 0 && process::is_ready()
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

/// Moves the times of every file that was written through a mapping: the program is about to look at them
/// or to set them, or ends.
pub fn settle_times() {
    if process::is_ready() && !threads::bypassed() {
        open_file::all().for_each(OpenFile::settle_times_by_any);
    }
}

/// Hands everything that was counted per file to the record: the process ends.
pub fn report_usage() {
    if !threads::bypassed() && !process::is_unnoticed_child() {
        open_file::all().for_each(OpenFile::report_usage);
    }
}
