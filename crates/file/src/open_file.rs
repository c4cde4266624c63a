//! One open file with a user-level data path: serves its reads and writes.
//!
//! A read copies from a mapping of the page cache into the program's buffer; a mapped write (if the user
//! asked for those) copies the other way. A copy counts only within the size that the file is *proved* to
//! have at that moment: behind the end of the file, its last page holds zeroes and does not fault, so the
//! copy alone cannot detect that the file was truncated. A read proves the size before the copy, a write
//! after it.
//!
//! Cost of a read from warm pages: one check of the window, one byte of state per group, the copy, and one
//! byte for the proof; no lock and no system call (one `fstat` if the file ends within the request). `bywash
//! bench run micro` measures it.
//!
//! [`crate::table`] calls this module and holds the hazard. Open files live in a pool that is never unmapped.

use crate::copy::guarded_word;
use crate::filesystem::FileSystem;
use crate::gate::Gate;
use crate::groups;
use crate::offset::Position;
use crate::pages::{self, PAGE_BYTES};
use crate::policy::{self, Request};
use crate::pool::{InChild, Pool, Zeroed};
use crate::state::{self, LOCK};
use crate::sys::{self, Status};
use crate::threads::{self, Thread};
use crate::window::{self, WARM_UP, Window};
use bywash_session::{Counter, FallbackReason as Why};
use bywash_sync::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, Ordering::Relaxed};

mod leftovers;
mod reads;
mod room;
pub(crate) mod usage;
mod warming;
mod writes;

use warming::is_seen;

pub(crate) use leftovers::after_release;

/// Greatest number of open files with a data path at a time.
pub const OPEN_FILES_MAX: usize = 1 << 17;
/// Number of slots for windows in an open file.
const WINDOWS: usize = 8;
/// Number of gates in the table that inodes share.
const GATES: usize = 512;
/// Number of requests for an unmapped extent after which the window that occupies its slot is replaced, if
/// that window is idle.
const DISPLACED_MAX: u32 = 512;
/// Greatest number of bytes of one call whose page or group states are updated.
const MARKED_BYTES_MAX: u64 = 4 << 20;
/// Greatest number of bytes of a path that are kept (the end of the path), for the usage report.
const PATH_BYTES: usize = 256;
/// One in this many requests that continue no other is remembered as the start of a stream, so that threads
/// that read at random do not write one cache line all the time.
const STARTS_REMEMBERED: u32 = 16;
/// Flag: writes may be served through the mapping.
const MAPPED_WRITES: u32 = 1;
/// Flag: the file exists only in the page cache ([`FileSystem::memory_only`]).
const MEMORY_ONLY: u32 = 2;
/// Flag: a read sees each write of the same file whole or not at all ([`FileSystem::reads_atomic`]).
const READS_ATOMIC: u32 = 4;
/// Flag: the kernel keeps the position for good.
const SHARED: u32 = 8;
/// Flag: the file was closed, or lost a window, during a copy; the rest is released after the copy has ended.
const LEFT_OVER: u32 = 16;
/// Flag: the kernel serves every request.
const DISABLED: u32 = 32;

/// Reason for which the kernel serves a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No page of the read's group is in the page tables; the read was noted already
    /// (`OpenFile::passes_cold`).
    Passed,
    /// The kernel serves the read, and the caller is to note the result.
    Kernel(Why),
}

impl From<Why> for Refusal {
    fn from(why: Why) -> Refusal {
        Refusal::Kernel(why)
    }
}

/// State of one open file.
#[repr(C, align(64))]
pub struct OpenFile {
    /// Flags of the file, from [`MAPPED_WRITES`] to [`DISABLED`].
    flags: AtomicU32,
    /// Base-2 logarithm of the size of the file's windows, in bytes.
    shift: AtomicU32,
    /// Size of the file as it was last seen, in bytes.
    size: AtomicU64,
    /// Windows of the file; [`slot`] chooses the slot of an extent.
    windows: [AtomicPtr<Window>; WINDOWS],
    /// Index of the gate of the inode in `GATE_TABLE`.
    gate: AtomicU32,
    /// Time when the kernel last wrote the file and updated its times, by `now_ms`; kept only if writes are
    /// mapped.
    times_ms: AtomicU64,
    /// End of the last request that is remembered, in bytes.
    last_end: AtomicU64,
    /// Number of requests that have each continued the one before.
    stream: AtomicU32,
    /// Position of `read` and `write`.
    pub position: Position,
    /// Number of calls that used the kernel's position since it was last given back.
    here_calls: AtomicU32,
    /// Number of times that the position was given back; each makes taking it again need more calls.
    gives: AtomicU32,
    /// Number of descriptors that lead to this file; 0: the entry is free.
    references: AtomicU32,
    /// One of those descriptors.
    fd: AtomicU32,
    device: AtomicU64,
    inode: AtomicU64,
    /// Counter that increases when the last descriptor is closed, to detect reuse of the entry.
    serial: AtomicU32,
    /// Index of the next free entry, plus one; 0: none. Valid while the entry is free.
    next_free: AtomicU32,
    /// Calls and bytes counted for this file and not reported yet, in the order of `usage`.
    usage: [AtomicU64; 4],
    path_length: AtomicUsize,
    path: [AtomicU8; PATH_BYTES],
}

const _: () = assert!(size_of::<OpenFile>() < 1024);

// SAFETY: every field is an atomic or consists of atomics, for which all-zero bytes are valid.
unsafe impl Zeroed for OpenFile {}
pub(crate) static POOL: Pool<OpenFile> = Pool::new(OPEN_FILES_MAX, InChild::Wiped);
static USED: AtomicUsize = AtomicUsize::new(0);
static FREE: AtomicU32 = AtomicU32::new(0);
static GATE_TABLE: [Gate; GATES] = [const { Gate::new() }; GATES];

pub(crate) fn reset_child() {
    if USED.load(Relaxed) == 0 {
        // No file was created, so no gate was used.
        return;
    }
    put_back!(USED, 0);
    put_back!(FREE, 0);
    leftovers::reset_child();
    for gate in &GATE_TABLE {
        gate.reset_child();
    }
}

/// Returns every open file that has a descriptor.
pub(crate) fn all() -> impl Iterator<Item = &'static OpenFile> {
    (0..USED.load(Ordering::Acquire)).filter_map(at).filter(|file| file.references.load(Relaxed) != 0)
}

/// Returns entry `index`, if the pool has grown that far.
fn at(index: usize) -> Option<&'static OpenFile> {
    POOL.get(index)
}

/// Facts about a file that gets a data path.
pub(crate) struct Description<'a> {
    pub(crate) fd: i32,
    pub(crate) status: Status,
    pub(crate) kind: FileSystem,
    /// True if the descriptor may write, and neither appends nor writes synchronously.
    pub(crate) may_write: bool,
    pub(crate) shared: bool,
    pub(crate) path: &'a [u8],
}

/// Returns an entry of the pool, filled in; `None` if the pool is full. The caller holds the lock.
pub(crate) fn create(what: &Description<'_>) -> Option<&'static OpenFile> {
    let free = FREE.load(Relaxed);
    let file = if free != 0 {
        let file = at(free as usize - 1)?;
        FREE.store(file.next_free.load(Relaxed), Relaxed);
        file
    } else {
        let used = USED.load(Relaxed);
        let file = POOL.get_or_grow(used)?;
        USED.store(used + 1, Ordering::Release);
        file
    };
    file.fill_in(what);
    Some(file)
}

/// Returns the slot for the window of extent `index`: neighbouring extents get different slots, and distant
/// extents seldom the same one.
#[inline(always)]
fn slot(index: u64) -> usize {
    (index ^ index >> 3 ^ index >> 6 ^ index >> 9) as usize % WINDOWS
}

impl OpenFile {
    fn fill_in(&self, what: &Description<'_>) {
        let Status { identity, size, .. } = what.status;
        let mut flags = 0;
        let mut set = |flag, yes| flags |= if yes { flag } else { 0 };
        set(MAPPED_WRITES, what.may_write && what.kind.memory_only && state::settings().writes);
        set(MEMORY_ONLY, what.kind.memory_only);
        set(READS_ATOMIC, what.kind.reads_atomic);
        set(SHARED, what.shared);
        self.flags.store(flags, Relaxed);
        self.shift.store(window::first_shift_for(size), Relaxed);
        self.size.store(size, Relaxed);
        for window in &self.windows {
            window.store(core::ptr::null_mut(), Relaxed);
        }
        let gate = (identity.1 ^ identity.0.wrapping_mul(0x9e37_79b9)) % GATES as u64;
        self.gate.store(gate as u32, Relaxed);
        self.times_ms.store(0, Relaxed);
        self.last_end.store(u64::MAX, Relaxed);
        self.stream.store(0, Relaxed);
        self.position.reset();
        self.here_calls.store(0, Relaxed);
        self.gives.store(0, Relaxed);
        self.references.store(1, Relaxed);
        self.fd.store(what.fd as u32, Relaxed);
        self.device.store(identity.0, Relaxed);
        self.inode.store(identity.1, Relaxed);
        for word in &self.usage {
            word.store(0, Relaxed);
        }
        let path = &what.path[what.path.len().saturating_sub(PATH_BYTES)..];
        for (cell, byte) in self.path.iter().zip(path) {
            cell.store(*byte, Relaxed);
        }
        self.path_length.store(path.len(), Relaxed);
    }

    #[inline(always)]
    fn has(&self, flag: u32) -> bool {
        self.flags.load(Relaxed) & flag != 0
    }

    /// Returns the size that the file was last seen to have, in bytes.
    #[inline(always)]
    pub fn size(&self) -> u64 {
        self.size.load(Relaxed)
    }

    pub(crate) fn shift(&self) -> u32 {
        self.shift.load(Relaxed) & 63
    }

    /// Returns true if writes may be served through the mapping.
    pub(crate) fn maps_writes(&self) -> bool {
        self.has(MAPPED_WRITES)
    }

    fn is_in_memory(&self) -> bool {
        self.has(MEMORY_ONLY)
    }

    pub(crate) fn identity(&self) -> (u64, u64) {
        (self.device.load(Relaxed), self.inode.load(Relaxed))
    }

    pub(crate) fn serial(&self) -> u32 {
        self.serial.load(Relaxed)
    }

    /// Returns true if mapped reads must be checked against every write ([`Gate::mark`]).
    #[inline(always)]
    pub(crate) fn reads_are_atomic(&self) -> bool {
        self.has(READS_ATOMIC)
    }

    /// Returns the address of this entry, by which hazards and windows name the file.
    pub(crate) fn address(&self) -> usize {
        core::ptr::from_ref(self) as usize
    }

    /// Returns the gate that writers of this inode pass.
    #[inline(always)]
    pub fn gate(&self) -> &'static Gate {
        &GATE_TABLE[self.gate.load(Relaxed) as usize % GATES]
    }

    #[inline(always)]
    fn request(&self, offset: u64, length: usize, touched: bool, stream_bytes: usize) -> Request {
        Request {
            length,
            threshold: state::settings().threshold,
            stream: length >= stream_bytes
                && self.continues(offset, length) > policy::STREAM_REQUESTS
                && !touched,
            within_size: offset + length as u64 <= self.size(),
            touched,
        }
    }

    /// Returns the number of requests up to this one that each continued the one before, and remembers this
    /// one.
    #[inline]
    fn continues(&self, offset: u64, length: usize) -> u32 {
        let end = offset.wrapping_add(length as u64);
        // Neither value is swapped: they are hints, and an atomic swap costs more.
        if self.last_end.load(Relaxed) == offset {
            let stream = self.stream.load(Relaxed).wrapping_add(1);
            self.last_end.store(end, Relaxed);
            self.stream.store(stream, Relaxed);
            return stream;
        }
        const SPREAD: u32 = 0x9e37_79b1;
        if ((offset >> 9) as u32).wrapping_mul(SPREAD) < u32::MAX / STARTS_REMEMBERED {
            self.last_end.store(end, Relaxed);
            self.stream.store(0, Relaxed);
        }
        0
    }

    /// Returns the window that covers the whole request, and the offset of the request in it, in bytes.
    #[inline(always)]
    fn locate(&self, offset: u64, length: usize) -> Option<(&'static Window, usize)> {
        let shift = self.shift();
        let index = offset >> shift;
        if (offset + length as u64 - 1) >> shift != index {
            return None;
        }
        let window = self.windows[slot(index)].load(Ordering::Acquire);
        // SAFETY: windows that a file names lie in the pool, which is never unmapped.
        let window = unsafe { window.as_ref()? };
        window.is(window::key(index, shift)).then_some((window, (offset - (index << shift)) as usize))
    }

    /// Returns the address of the window's mapping, and maps the window first if enough requests wanted it.
    #[inline(always)]
    fn mapping(
        &self,
        window: &'static Window,
        start: usize,
        length: usize,
        fd: i32,
        end: u64,
    ) -> Result<*mut u8, Why> {
        if !window.is_mapped(start + length) {
            self.make_mapping(window, fd, end)?;
            if !window.is_mapped(start + length) {
                return Err(Why::Window);
            }
        }
        window.used();
        Ok(window.base.load(Relaxed))
    }

    #[cold]
    fn make_mapping(&self, window: &'static Window, fd: i32, end: u64) -> Result<(), Why> {
        if window.wanted.fetch_add(1, Relaxed) < WARM_UP {
            return Err(Why::Warming);
        }
        let held = LOCK.try_hold().ok_or(Why::Window)?;
        let fitting = window::shift_for(self.size());
        if fitting < self.shift() {
            // A lower limit allows only smaller windows: use those from now on.
            self.change_windows(fitting);
            return Err(Why::Window);
        }
        if !state::handlers_ready() || !self.map(window, fd, end) {
            // The counter starts again, so that the next attempt is some requests away.
            window.wanted.store(0, Relaxed);
            return Err(Why::Window);
        }
        drop(held);
        Ok(())
    }

    /// Returns true if the file now reaches to `end`, which is `end_in_window` in the window. The page that
    /// the request ends in is not looked at: the file reaches further if the next page still exists, and
    /// otherwise the kernel is asked for the size.
    #[inline]
    fn proves_end_behind(
        &self,
        fd: i32,
        window: &Window,
        base: *mut u8,
        end_in_window: usize,
        end: u64,
    ) -> bool {
        let page_end = end_in_window.next_multiple_of(PAGE_BYTES);
        let next_offset = end + (page_end - end_in_window) as u64;
        if page_end < window.mapped.load(Relaxed)
            && next_offset < self.size()
            && is_seen(Some((window, page_end)), 1)
        {
            // SAFETY: the word lies within the mapping, which the caller's hazard keeps; a fault is caught.
            return unsafe { guarded_word(base.wrapping_add(page_end)) }.is_ok();
        }
        threads::count(Counter::SizeChecks, 1);
        self.refresh_size(fd).is_some_and(|size| size >= end)
    }

    /// Asks the kernel for the size of the file and stores it; `None` if fstat(2) fails.
    fn refresh_size(&self, fd: i32) -> Option<u64> {
        let status = sys::status(fd).ok()?;
        self.size.store(status.size, Relaxed);
        Some(status.size)
    }

    /// Notes that the file was seen to reach to `end`.
    #[inline(always)]
    pub(crate) fn reaches(&self, end: u64) {
        if end > self.size() {
            self.size.fetch_max(end, Relaxed);
        }
    }

    /// Applies `mark` to the state of each page of these bytes, and makes their windows if there is room.
    fn mark(&self, offset: u64, length: u64, mark: impl Fn(&AtomicU8)) {
        self.each_window(offset, length, true, |window, start, length| {
            pages::pages_of(start, length).filter_map(|page| window.page_to_mark(page)).for_each(&mark);
        });
    }

    /// Applies `mark` to the state of each group of these bytes that has a window; `make`: makes missing
    /// windows.
    fn mark_groups(&self, offset: u64, length: u64, make: bool, mark: impl Fn(&AtomicU8)) {
        self.each_window(offset, length, make, |window, start, length| {
            groups::groups_of(start, length).for_each(|group| mark(window.group_to_mark(group)));
        });
    }

    /// Calls `what` for each window of these bytes, with the offset and the number of the bytes that lie in
    /// it; `make`: makes missing windows.
    fn each_window(&self, offset: u64, length: u64, make: bool, what: impl Fn(&Window, usize, usize)) {
        let shift = self.shift();
        let end = offset + length;
        let mut at = offset;
        while at < end {
            let index = at >> shift;
            let stretch_end = ((index + 1) << shift).min(end);
            let window = if make { self.window_for(index) } else { self.locate(at, 1).map(|found| found.0) };
            if let Some(window) = window {
                what(window, (at - (index << shift)) as usize, (stretch_end - at) as usize);
            }
            at = stretch_end;
        }
    }

    /// Returns the window of extent `index`, and makes it if there is room. The caller's hazard names the
    /// file.
    fn window_for(&self, index: u64) -> Option<&'static Window> {
        if self.has(DISABLED) {
            return None;
        }
        let shift = self.shift();
        let slot = &self.windows[slot(index)];
        // SAFETY: windows that a file names lie in the pool, which is never unmapped.
        let present = unsafe { slot.load(Ordering::Acquire).as_ref() };
        if let Some(window) = present {
            if window.is(window::key(index, shift)) {
                return Some(window);
            }
            if window.displaced.fetch_add(1, Relaxed) < DISPLACED_MAX {
                return None;
            }
            if !window.is_idle_at_next_tick() {
                window.displaced.store(0, Relaxed);
                return None;
            }
        }
        let held = LOCK.try_hold()?;
        let better = window::shift_for(self.size());
        if better > shift && self.size() > (WINDOWS as u64) << shift {
            // The file has outgrown its windows, so it uses larger ones from now on.
            self.change_windows(better);
            return None;
        }
        let before = slot.swap(core::ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: windows that a file names lie in the pool, which is never unmapped.
        if let Some(window) = unsafe { before.as_ref() }
            && !window::destroy_held(window)
        {
            self.leaves_over();
            return None;
        }
        let window = self.create_window(index, shift)?;
        // SYNC: file-window (release; `locate` acquires).
        slot.store(core::ptr::from_ref(window).cast_mut(), Ordering::Release);
        drop(held);
        Some(window)
    }

    /// Gives up all windows; new ones have `1 << shift` bytes. The caller holds the lock, and its hazard
    /// names the file.
    fn change_windows(&self, shift: u32) {
        self.drop_windows(window::destroy_held);
        self.shift.store(shift, Relaxed);
    }

    /// Removes all windows from the file and destroys them. The caller holds the lock.
    fn drop_windows(&self, destroy: fn(&'static Window) -> bool) {
        for slot in &self.windows {
            let window = slot.swap(core::ptr::null_mut(), Ordering::AcqRel);
            // SAFETY: windows that a file names lie in the pool, which is never unmapped.
            if let Some(window) = unsafe { window.as_ref() }
                && !destroy(window)
            {
                self.leaves_over();
            }
        }
    }

    /// Returns true if requests of this file can reach the window.
    fn names(&self, window: &Window) -> bool {
        self.windows.iter().any(|slot| core::ptr::eq(slot.load(Relaxed), window))
    }

    /// Notes that this process resized the file: the kernel must serve pages behind the new end once more
    /// before they are mapped. The caller holds the lock.
    pub(crate) fn note_resize(&self, size: u64) {
        let before = self.size.swap(size, Relaxed);
        if size >= before {
            return;
        }
        for slot in &self.windows {
            // SAFETY: windows that a file names lie in the pool, which is never unmapped; the lock keeps the
            // window.
            if let Some(window) = unsafe { slot.load(Ordering::Acquire).as_ref() } {
                let start = window.start();
                window.forget_from((size.saturating_sub(start) as usize).div_ceil(PAGE_BYTES));
            }
        }
    }

    /// Asks the kernel for the size, which another process may have changed. The caller holds the lock.
    pub(crate) fn look_at_size(&self) {
        match sys::status(self.fd.load(Relaxed) as i32) {
            Ok(status) if status.identity == self.identity() => self.note_resize(status.size),
            // The descriptor was closed by a call that the library did not see, so the size is unknown: the
            // kernel must serve every page once more.
            _ => self.note_dropped_pages(),
        }
    }

    /// Returns true if `fd` still leads to this inode. A system call that the library does not see may have
    /// closed the descriptor, and another may have used its number again.
    pub(crate) fn is_behind(&self, fd: i32) -> bool {
        sys::status(fd).is_ok_and(|status| status.identity == self.identity())
    }

    /// Notes that the program asked the kernel to drop pages: the kernel must serve every page once more. The
    /// caller's hazard names the file, or the caller holds the lock.
    pub fn note_dropped_pages(&self) {
        for slot in &self.windows {
            // SAFETY: windows that a file names lie in the pool, which is never unmapped; the hazard or the
            // lock keeps the window.
            if let Some(window) = unsafe { slot.load(Ordering::Acquire).as_ref() } {
                window.forget_pages();
            }
        }
    }

    /// Replaces the stored descriptor if it is `gone`, which was closed; `find` returns another descriptor of
    /// this file.
    pub(crate) fn replace_descriptor(&self, gone: i32, find: impl FnOnce() -> Option<i32>) {
        if self.fd.load(Relaxed) as i32 == gone
            && let Some(other) = find()
        {
            self.fd.store(other as u32, Relaxed);
        }
    }

    /// Leaves every request to the kernel from now on and destroys all mappings.
    pub(crate) fn disable(&self) {
        self.flags.fetch_or(DISABLED, Relaxed);
        self.flags.fetch_and(!MAPPED_WRITES, Relaxed);
        self.share();
        let held = LOCK.hold();
        self.drop_windows(window::destroy);
        drop(held);
    }

    /// Adds a descriptor, which makes the position the kernel's for good.
    pub(crate) fn add_reference(&self) {
        self.share();
        self.references.fetch_add(1, Relaxed);
    }

    /// Removes one descriptor, and releases the entry with the last one. Returns true if it was the last.
    pub(crate) fn remove_reference(&'static self) -> bool {
        if self.references.fetch_sub(1, Ordering::AcqRel) != 1 {
            return false;
        }
        self.report_usage();
        let held = LOCK.hold();
        self.serial.fetch_add(1, Relaxed);
        leftovers::sweep_if_any();
        self.drop_windows(window::destroy);
        self.retire(window::turns(self.address()));
        drop(held);
        true
    }

    /// Gives the position to the kernel for good, because the open file is no longer private to this process.
    pub(crate) fn share(&self) {
        self.flags.fetch_or(SHARED, Relaxed);
        self.give_position();
    }

    /// Gives the position back to the kernel, with lseek(2), if it is kept at user level.
    pub(crate) fn give_position(&self) {
        let fd = self.fd.load(Relaxed) as i32;
        if self.position.give(|at| {
            if self.is_behind(fd) {
                sys::seek(fd, at as i64, 0);
            }
        }) {
            self.gives.fetch_add(1, Relaxed);
            self.here_calls.store(0, Relaxed);
            threads::count(Counter::OffsetsGiven, 1);
        }
    }

    /// Counts a call, and returns true if the position may be taken and enough calls have used it since it
    /// was last given back.
    pub(crate) fn wants_position(&self) -> bool {
        const CALLS: u32 = 4;
        const GIVES_MAX: u32 = 10;
        let gives = self.gives.load(Relaxed);
        !self.has(SHARED) && gives <= GIVES_MAX && self.here_calls.fetch_add(1, Relaxed) >= CALLS << gives
    }

    /// Takes the position from the kernel, unless a call that uses the kernel's position is in flight.
    pub(crate) fn take_position(&self) {
        let fd = self.fd.load(Relaxed) as i32;
        let Some(held) = LOCK.try_hold() else { return };
        self.position.take(|| u64::try_from(sys::seek(fd, 0, 1)).ok());
        drop(held);
    }
}

/// Returns true if `is` holds for the state of each page of a request.
#[inline(always)]
fn each_page(spot: Option<(&Window, usize)>, length: usize, is: fn(&AtomicU8) -> bool) -> bool {
    spot.is_some_and(|(window, start)| {
        pages::pages_of(start, length).all(|page| window.page(page).is_some_and(is))
    })
}

/// Returns a monotonic time in milliseconds, at a cost of a few nanoseconds.
fn now_ms() -> u64 {
    crate::clock::coarse_ms()
}

impl Thread {
    /// Counts a call that was served at user level, and its bytes.
    #[inline(always)]
    pub(crate) fn count_served(&self, calls: Counter, bytes: Counter, length: usize) {
        self.count(calls, 1);
        self.count(bytes, length as u64);
    }
}
