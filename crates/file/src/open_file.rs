//! One open file with a user-level data path: how a read and a write of it are served.
//!
//! A read copies from a mapping of the page cache into the program's buffer, a write the other way. Both
//! happen only within the size that the file is *proved* to have at that moment (`OpenFile::proves_end`):
//! bytes of a file's last page behind its end are zeroes without a fault, so a copy alone could not tell
//! that somebody truncated the file.
//!
//! Cost of a hit: one look at the window, one byte per page, the copy, one byte for the proof; no system
//! call, no lock. `bywash bench run micro` shows it.
//!
//! Called by [`crate::table`], which holds the hazard. Open files live in a pool that is never unmapped.

use crate::copy::{Fault, guarded_byte, guarded_word};
use crate::filesystem::Kind;
use crate::gate::Gate;
use crate::offset::Position;
use crate::pages::{self, PAGE_BYTES, PAGE_SHIFT};
use crate::policy::{self, Choice, Request};
use crate::process::{self, LOCK};
use crate::reclaim;
use crate::sys::{self, Advice, Status};
use crate::threads::{self, Thread};
use crate::window::{self, WARM_UP, Window};
use bywash_session::{Counter, FallbackReason as Why};
use bywash_sync::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, Ordering::Relaxed};

mod writes;

use writes::WriteHistory;

/// Open files with a data path at a time.
pub const OPEN_FILES_MAX: usize = 1 << 17;
const WINDOWS: usize = 8;
const GATES: usize = 512;
/// Requests for another stretch before the window in its place makes room.
const DISPLACED_MAX: u32 = 512;
/// Bytes of one call whose pages are remembered.
const MARKED_BYTES_MAX: u64 = 4 << 20;
const PATH_BYTES: usize = 256;
/// Of so many requests of a stream that the kernel serves one is looked at, for all of them.
const REQUESTS_PER_LOOK: u32 = 16;
/// Of so many requests that continue nothing one is remembered, so that threads that read at random do not
/// write to one cache line all the time.
const STARTS_REMEMBERED: u32 = 16;
/// Pages that are looked at together when one of them is touched first: as many as a read fault maps.
const PAGES_TOGETHER: u64 = 16;
const MAY_WRITE: u32 = 1;
const MAPPED_WRITES: u32 = 2;
const MEMORY_ONLY: u32 = 4;
const READS_ATOMIC: u32 = 8;
const SHARED: u32 = 16;
/// Pages may be written through a mapping by now, so it counts when the times moved last.
const TIMED: u32 = 32;
/// A window could not be given up in time; the place in the pool is not used again.
const ORPHANED: u32 = 128;
/// The kernel serves everything.
const DISABLED: u32 = 256;

/// What a copy out of a mapping looks at before it begins.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// If the last byte is zero nothing is copied.
    LastByte,
    /// The end is proved already.
    Nothing,
}

/// One open file.
#[repr(C, align(64))]
pub struct OpenFile {
    flags: AtomicU32,
    shift: AtomicU32,
    size: AtomicU64,
    windows: [AtomicPtr<Window>; WINDOWS],
    gate: AtomicU32,
    epoch: AtomicU8,
    /// A mapped write happened after the file's times moved last.
    times_pending: AtomicU8,
    times_ms: AtomicU64,
    history: WriteHistory,
    last_end: AtomicU64,
    /// Requests that have continued the one before, up to now.
    stream: AtomicU32,
    /// Where `read` and `write` are.
    pub position: Position,
    /// Calls that used the kernel's position since it was given last.
    here_calls: AtomicU32,
    /// Times that the position was given; taking it again gets dearer.
    gives: AtomicU32,
    /// Descriptors that lead here.
    references: AtomicU32,
    /// One of the descriptors.
    fd: AtomicU32,
    device: AtomicU64,
    inode: AtomicU64,
    serial: AtomicU32,
    next_free: AtomicU32,
    usage: [AtomicU64; 4],
    path_length: AtomicUsize,
    path: [AtomicU8; PATH_BYTES],
}

const _: () = assert!(size_of::<OpenFile>() < 1024);

static POOL: AtomicPtr<OpenFile> = AtomicPtr::new(core::ptr::null_mut());
static USED: AtomicUsize = AtomicUsize::new(0);
static FREE: AtomicU32 = AtomicU32::new(0);
static GATE_TABLE: [Gate; GATES] = [const { Gate::new() }; GATES];

pub(crate) fn prepare() -> bool {
    let bytes = OPEN_FILES_MAX * size_of::<OpenFile>();
    let Some(at) = sys::map_memory(bytes) else { return false };
    POOL.store(at.cast(), Ordering::Release);
    sys::advise(at, bytes, Advice::WipeOnFork)
}

pub(crate) fn reset_child() {
    USED.store(0, Relaxed);
    FREE.store(0, Relaxed);
    for gate in &GATE_TABLE {
        gate.reset_child();
    }
}

/// Every open file that is in use.
pub(crate) fn all() -> impl Iterator<Item = &'static OpenFile> {
    (0..USED.load(Ordering::Acquire)).map(at).filter(|file| file.references.load(Relaxed) != 0)
}

fn at(index: usize) -> &'static OpenFile {
    debug_assert!(index < OPEN_FILES_MAX);
    // SAFETY: the pool has OPEN_FILES_MAX places and is never unmapped; zeroes are a valid open file.
    unsafe { &*POOL.load(Ordering::Acquire).add(index) }
}

/// What is known of a file when it gets its data path.
pub(crate) struct Description<'a> {
    pub(crate) fd: i32,
    pub(crate) status: Status,
    pub(crate) kind: Kind,
    pub(crate) may_write: bool,
    pub(crate) synchronous: bool,
    pub(crate) shared: bool,
    pub(crate) path: &'a [u8],
}

/// A place in the pool, filled in. Under the lock.
pub(crate) fn create(what: &Description<'_>) -> Option<&'static OpenFile> {
    let free = FREE.load(Relaxed);
    let file = if free != 0 {
        let file = at(free as usize - 1);
        FREE.store(file.next_free.load(Relaxed), Relaxed);
        file
    } else {
        let used = USED.load(Relaxed);
        if used == OPEN_FILES_MAX {
            return None;
        }
        USED.store(used + 1, Ordering::Release);
        at(used)
    };
    file.fill_in(what);
    Some(file)
}

/// The place of a stretch's window among a file's few: neighbours lie side by side, and stretches far apart
/// seldom in the same place.
#[inline(always)]
fn slot(index: u64) -> usize {
    (index ^ index >> 3 ^ index >> 6 ^ index >> 9) as usize % WINDOWS
}

impl OpenFile {
    fn fill_in(&self, what: &Description<'_>) {
        let Status { identity, size, .. } = what.status;
        let mut flags = 0;
        let mut set = |flag, yes| flags |= if yes { flag } else { 0 };
        set(MAY_WRITE, what.may_write);
        set(MAPPED_WRITES, what.may_write && what.kind.writes && !what.synchronous);
        set(MEMORY_ONLY, what.kind.memory_only);
        set(READS_ATOMIC, what.kind.reads_atomic);
        set(SHARED, what.shared);
        set(TIMED, what.kind.memory_only);
        self.flags.store(flags, Relaxed);
        self.shift.store(window::shift_for(size), Relaxed);
        self.size.store(size, Relaxed);
        for window in &self.windows {
            window.store(core::ptr::null_mut(), Relaxed);
        }
        let gate = (identity.1 ^ identity.0.wrapping_mul(0x9e37_79b9)) % GATES as u64;
        self.gate.store(gate as u32, Relaxed);
        self.epoch.store(0, Relaxed);
        self.times_pending.store(0, Relaxed);
        self.times_ms.store(0, Relaxed);
        self.history.clear();
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

    /// The largest size that the file is known to have had last.
    #[inline(always)]
    pub fn size(&self) -> u64 {
        self.size.load(Relaxed)
    }

    pub(crate) fn shift(&self) -> u32 {
        self.shift.load(Relaxed) & 63
    }

    pub(crate) fn may_write(&self) -> bool {
        self.has(MAY_WRITE)
    }

    pub(crate) fn is_in_memory(&self) -> bool {
        self.has(MEMORY_ONLY)
    }

    pub(crate) fn identity(&self) -> (u64, u64) {
        (self.device.load(Relaxed), self.inode.load(Relaxed))
    }

    pub(crate) fn serial(&self) -> u32 {
        self.serial.load(Relaxed)
    }

    /// Whether readers of a mapping must know of every write ([`Gate::mark`]).
    #[inline(always)]
    pub(crate) fn reads_are_atomic(&self) -> bool {
        self.has(READS_ATOMIC)
    }

    /// The gate that writers of this inode pass.
    #[inline(always)]
    pub fn gate(&self) -> &'static Gate {
        &GATE_TABLE[self.gate.load(Relaxed) as usize % GATES]
    }

    /// Serves a read of `length > 0` bytes at `offset`, or says why the kernel must.
    #[inline(always)]
    pub fn read(
        &self,
        fd: i32,
        offset: u64,
        length: usize,
        copy: impl Fn(*const u8, Check) -> Result<bool, Fault>,
    ) -> Result<(), Why> {
        if self.has(DISABLED) {
            return Err(Why::Mode);
        }
        let end = offset + length as u64;
        let spot = self.locate(offset, length);
        let request = self.request(offset, length, spot, policy::STREAM_READ_BYTES);
        if let Choice::Kernel(why) = policy::read_way(&request) {
            return Err(why);
        }
        let Some((window, start)) = spot else { return Err(Why::Window) };
        let base = self.mapping(window, start, length, fd, end, false)?;
        let mark =
            if self.reads_are_atomic() { Some(self.gate().mark().ok_or(Why::Contended)?) } else { None };
        let from: *const u8 = base.wrapping_add(start);
        if !copy(from, Check::LastByte).map_err(|Fault| Why::Fault)? {
            if !self.proves_end_of_zeroes(fd, window, base, start + length, end) {
                return Err(Why::End);
            }
            copy(from, Check::Nothing).map_err(|Fault| Why::Fault)?;
        }
        match mark {
            Some(mark) if !self.gate().unchanged(mark) => Err(Why::Contended),
            _ => Ok(()),
        }
    }

    #[inline(always)]
    fn request(
        &self,
        offset: u64,
        length: usize,
        spot: Option<(&Window, usize)>,
        stream_bytes: usize,
    ) -> Request {
        Request {
            length,
            threshold: process::settings().threshold,
            stream: length >= stream_bytes
                && self.continues(offset, length) > policy::STREAM_REQUESTS
                && !each_page(spot, length, pages::is_settled),
            within_size: offset + length as u64 <= self.size(),
            touched: each_page(spot, length, pages::is_seen),
        }
    }

    /// How many requests have continued the one before, up to this one, which is remembered.
    #[inline]
    fn continues(&self, offset: u64, length: usize) -> u32 {
        let end = offset.wrapping_add(length as u64);
        // Neither is swapped, which would be atomic and cost more: they are hints.
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

    /// Whether the kernel serves the next read without further ado: it goes on with a stream over pages that
    /// are not settled.
    #[inline(always)]
    pub(crate) fn passes_read(&self, offset: u64, length: usize) -> bool {
        let stream = self.stream.load(Relaxed);
        let passes = length >= policy::STREAM_READ_BYTES
            && stream > policy::STREAM_REQUESTS
            && self.last_end.load(Relaxed) == offset
            && !stream.is_multiple_of(REQUESTS_PER_LOOK)
            && !each_page(self.locate(offset, 1), 1, pages::is_settled);
        if passes {
            self.continues(offset, length);
        }
        passes
    }

    /// The window that holds all of the request, and where in it the request starts.
    #[inline(always)]
    fn locate(&self, offset: u64, length: usize) -> Option<(&'static Window, usize)> {
        let shift = self.shift();
        let index = offset >> shift;
        if (offset + length as u64 - 1) >> shift != index {
            return None;
        }
        let window = self.windows[slot(index)].load(Ordering::Acquire);
        // SAFETY: windows that a file names are in the pool, which is never unmapped.
        let window = unsafe { window.as_ref()? };
        window.is(window::key(index, shift)).then_some((window, (offset - (index << shift)) as usize))
    }

    /// Where the window is mapped, after it was mapped if that was due.
    #[inline(always)]
    fn mapping(
        &self,
        window: &'static Window,
        start: usize,
        length: usize,
        fd: i32,
        end: u64,
        writing: bool,
    ) -> Result<*mut u8, Why> {
        if !window.is_mapped(start + length, writing) {
            self.make_mapping(window, fd, end, writing)?;
            if !window.is_mapped(start + length, writing) {
                return Err(Why::Window);
            }
        }
        window.used();
        Ok(window.base.load(Relaxed))
    }

    #[cold]
    fn make_mapping(&self, window: &'static Window, fd: i32, end: u64, writing: bool) -> Result<(), Why> {
        if window.wanted.fetch_add(1, Relaxed) < WARM_UP {
            return Err(Why::Warming);
        }
        let held = LOCK.try_hold().ok_or(Why::Window)?;
        if !process::handlers_ready() || !window::map(window, fd, self, end, writing) {
            // Not again for a while.
            window.wanted.store(0, Relaxed);
            return Err(Why::Window);
        }
        drop(held);
        Ok(())
    }

    /// Whether the file reaches to `end` just now, `end_in_window` in the window: a byte that is not zero
    /// lies there or behind it in the page, or the page behind is there, or the kernel says so. (The rest of
    /// a file's last page is kept zero by the kernel; pages behind it fault.)
    #[inline(always)]
    fn proves_end(&self, fd: i32, window: &Window, base: *mut u8, end_in_window: usize, end: u64) -> bool {
        // SAFETY: the byte lies in the mapped window, which the caller's hazard keeps.
        match unsafe { guarded_byte(base.wrapping_add(end_in_window - 1)) } {
            Err(Fault) => false,
            Ok(0) => self.proves_end_of_zeroes(fd, window, base, end_in_window, end),
            Ok(_) => true,
        }
    }

    /// As [`OpenFile::proves_end`] where the byte before the end is zero.
    #[inline(never)]
    fn proves_end_of_zeroes(
        &self,
        fd: i32,
        window: &Window,
        base: *mut u8,
        end_in_window: usize,
        end: u64,
    ) -> bool {
        let page_end = end_in_window.next_multiple_of(PAGE_BYTES);
        if page_end - end_in_window >= 8 {
            // SAFETY: as in `proves_end`, within the same page.
            match unsafe { guarded_word(base.wrapping_add(page_end - 8)) } {
                Err(Fault) => return false,
                Ok(0) => {}
                Ok(_) => return true,
            }
        }
        let next_offset = end + (page_end - end_in_window) as u64;
        if page_end < window.mapped.load(Relaxed)
            && next_offset < self.size()
            && pages::is_seen(window.page(page_end >> PAGE_SHIFT))
        {
            // SAFETY: within the mapping; if the page is gone the load says so.
            return unsafe { guarded_word(base.wrapping_add(page_end)) }.is_ok();
        }
        process::count(Counter::SizeChecks, 1);
        self.refresh_size(fd).is_some_and(|size| size >= end)
    }

    /// Asks the kernel for the size.
    fn refresh_size(&self, fd: i32) -> Option<u64> {
        let status = sys::status(fd).ok()?;
        self.size.store(status.size, Relaxed);
        Some(status.size)
    }

    /// The file was seen to reach to `end`.
    fn reaches(&self, end: u64) {
        if end > self.size() {
            self.size.fetch_max(end, Relaxed);
        }
    }

    /// The kernel has read these bytes: their pages are in the page cache now. If all pages around them are as
    /// well, which one call tells, they too are as good as touched.
    pub fn note_read(&self, thread: &Thread, fd: i32, offset: u64, length: u64) {
        let end = offset + length;
        self.reaches(end);
        // What is transferred in large pieces is seldom read again in small ones.
        if length == 0 || length > process::settings().threshold as u64 {
            return;
        }
        if self.streams_to(end) && length >= policy::STREAM_READ_BYTES as u64 {
            // This one is looked at for those that were not.
            self.settle(thread, fd, end, length, policy::STREAM_PASSES);
            return;
        }
        if each_page(self.locate(offset, length as usize), length as usize, pages::is_seen) {
            return;
        }
        const TOGETHER: u64 = PAGES_TOGETHER << PAGE_SHIFT;
        let around = offset & !(TOGETHER - 1);
        let around_end = end.next_multiple_of(TOGETHER).min(self.size());
        if is_cached(fd, around, around_end) {
            self.mark(around, around_end - around, pages::set_seen);
        } else if !self.has(MEMORY_ONLY) || is_cached(fd, offset, end) {
            // On a file system in memory a page that is read through a mapping exists from then on, a hole
            // read by the kernel does not.
            self.mark(offset, length, pages::set_seen);
        }
    }

    /// Whether a stream has just come to `end`.
    fn streams_to(&self, end: u64) -> bool {
        self.stream.load(Relaxed) > policy::STREAM_REQUESTS && self.last_end.load(Relaxed) == end
    }

    /// A stream whose requests are of `length` bytes has come to `end`. One time in `times` what lies behind it
    /// is settled, if all of it is in the page cache.
    fn settle(&self, thread: &Thread, fd: i32, end: u64, length: u64, times: u32) {
        let start = end.saturating_sub(length * u64::from(REQUESTS_PER_LOOK));
        if thread.draw_lot(times) && is_cached(fd, start, end) {
            self.mark(start, end - start, pages::settle);
        }
    }

    /// Changes the states of the pages of these bytes, as far as there are windows for them.
    fn mark(&self, offset: u64, length: u64, mark: impl Fn(&AtomicU8)) {
        let shift = self.shift();
        let end = offset + length;
        let mut at = offset;
        while at < end {
            let index = at >> shift;
            let stretch_end = ((index + 1) << shift).min(end);
            if let Some(window) = self.window_for(index) {
                let start = (at - (index << shift)) as usize;
                for page in pages::pages_of(start, (stretch_end - at) as usize) {
                    mark(window.page_to_mark(page));
                }
            }
            at = stretch_end;
        }
    }

    /// The window of a stretch, made if there is room for it. The caller's hazard names the file.
    fn window_for(&self, index: u64) -> Option<&'static Window> {
        if self.has(DISABLED) {
            return None;
        }
        let shift = self.shift();
        let slot = &self.windows[slot(index)];
        // SAFETY: as in `locate`.
        let present = unsafe { slot.load(Ordering::Acquire).as_ref() };
        if let Some(window) = present {
            if window.is(window::key(index, shift)) {
                return Some(window);
            }
            if window.displaced.fetch_add(1, Relaxed) < DISPLACED_MAX {
                return None;
            }
        }
        let held = LOCK.try_hold()?;
        let better = window::shift_for(self.size());
        if better > shift && self.size() > (WINDOWS as u64) << shift {
            // The file has outgrown its windows: larger ones from now on.
            self.drop_windows(window::destroy_held);
            self.shift.store(better, Relaxed);
            return None;
        }
        let before = slot.swap(core::ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: as in `locate`.
        if let Some(window) = unsafe { before.as_ref() }
            && !window::destroy_held(window)
        {
            self.flags.fetch_or(ORPHANED, Relaxed);
            return None;
        }
        let window = window::create(self, index, shift)?;
        // SYNC: file-window (release; `locate` acquires).
        slot.store(core::ptr::from_ref(window).cast_mut(), Ordering::Release);
        drop(held);
        Some(window)
    }

    /// Takes all windows away from the file. Under the lock.
    fn drop_windows(&self, destroy: fn(&'static Window) -> bool) {
        for slot in &self.windows {
            let window = slot.swap(core::ptr::null_mut(), Ordering::AcqRel);
            // SAFETY: as in `locate`.
            if let Some(window) = unsafe { window.as_ref() }
                && !destroy(window)
            {
                self.flags.fetch_or(ORPHANED, Relaxed);
            }
        }
    }

    /// Takes one window away from the file. Under the lock; no hazard of the caller names the file.
    pub(crate) fn drop_window(&self, window: &'static Window) -> bool {
        let address = core::ptr::from_ref(window).cast_mut();
        for slot in &self.windows {
            if slot.load(Relaxed) == address {
                slot.store(core::ptr::null_mut(), Ordering::Release);
            }
        }
        let gone = window::destroy(window);
        if !gone {
            self.flags.fetch_or(ORPHANED, Relaxed);
        }
        gone
    }

    /// fsync or the like: pages are clean from here on.
    pub fn note_sync(&self) {
        self.epoch.fetch_add(1, Relaxed);
    }

    /// The file was resized by this process: pages behind the new end are to be touched by the kernel again
    /// first. Under the lock.
    pub(crate) fn note_resize(&self, size: u64) {
        let before = self.size.swap(size, Relaxed);
        if size >= before {
            return;
        }
        for slot in &self.windows {
            // SAFETY: as in `locate`; the lock keeps the window.
            if let Some(window) = unsafe { slot.load(Ordering::Acquire).as_ref() } {
                let start = window.start();
                window.forget_from((size.saturating_sub(start) as usize).div_ceil(PAGE_BYTES));
            }
        }
    }

    /// Asks for the size, because somebody may have changed it. Under the lock.
    pub(crate) fn look_at_size(&self) {
        match sys::status(self.fd.load(Relaxed) as i32) {
            Ok(status) if status.identity == self.identity() => self.note_resize(status.size),
            // The descriptor was closed past us. The kernel shall serve every page once more.
            _ => self.note_dropped_pages(),
        }
    }

    /// Whether `fd` still leads to this inode. It could have been closed, and its number used again, by system
    /// calls that we do not see.
    pub(crate) fn is_behind(&self, fd: i32) -> bool {
        sys::status(fd).is_ok_and(|status| status.identity == self.identity())
    }

    /// The program asked the kernel to drop pages: they are to be touched by the kernel again first. The
    /// caller's hazard names the file, or it holds the lock.
    pub fn note_dropped_pages(&self) {
        self.epoch.fetch_add(1, Relaxed);
        for slot in &self.windows {
            // SAFETY: as in `locate`; the caller's hazard keeps the window.
            if let Some(window) = unsafe { slot.load(Ordering::Acquire).as_ref() } {
                window.forget_pages();
            }
        }
    }

    /// Moves the file's times if a mapped write has not been seen in them.
    pub fn settle_times(&self, fd: i32) {
        if self.times_pending.load(Relaxed) != 0 && self.is_behind(fd) {
            self.times_pending.store(0, Relaxed);
            sys::touch(fd);
        }
    }

    /// The descriptor is gone: the times stay as they are.
    pub(crate) fn forget_times(&self) {
        self.times_pending.store(0, Relaxed);
    }

    /// `gone` was closed; `find` knows another descriptor that leads here.
    pub(crate) fn replace_descriptor(&self, gone: i32, find: impl FnOnce() -> Option<i32>) {
        if self.fd.load(Relaxed) as i32 == gone
            && let Some(other) = find()
        {
            self.fd.store(other as u32, Relaxed);
        }
    }

    /// As [`OpenFile::settle_times`], by one of the descriptors.
    pub(crate) fn settle_times_by_any(&self) {
        self.settle_times(self.fd.load(Relaxed) as i32);
    }

    /// The kernel serves everything from here on, and no mapping is left.
    pub(crate) fn disable(&self) {
        self.flags.fetch_or(DISABLED, Relaxed);
        self.flags.fetch_and(!MAPPED_WRITES, Relaxed);
        self.share();
        let held = LOCK.hold();
        self.drop_windows(window::destroy);
        drop(held);
    }

    /// Another descriptor leads here.
    pub(crate) fn add_reference(&self) {
        self.share();
        self.references.fetch_add(1, Relaxed);
    }

    /// A descriptor that led here does no longer; the last one takes everything along. Answers whether it
    /// was the last.
    pub(crate) fn remove_reference(&'static self, fd: i32) -> bool {
        self.settle_times(fd);
        if self.references.fetch_sub(1, Ordering::AcqRel) != 1 {
            return false;
        }
        self.report_usage();
        let held = LOCK.hold();
        self.serial.fetch_add(1, Relaxed);
        let gone = reclaim::wait_until_unused(
            threads::hazards,
            core::ptr::from_ref(self) as usize,
            window::TURNS,
            threads::alone,
        );
        self.drop_windows(window::destroy);
        if gone && !self.has(ORPHANED) {
            let index =
                (core::ptr::from_ref(self) as usize - POOL.load(Relaxed) as usize) / size_of::<OpenFile>();
            self.next_free.store(FREE.load(Relaxed), Relaxed);
            FREE.store(index as u32 + 1, Relaxed);
        }
        drop(held);
        true
    }

    /// The open file is no longer this process's alone: its position is the kernel's for good.
    pub(crate) fn share(&self) {
        self.flags.fetch_or(SHARED, Relaxed);
        self.give_position();
    }

    /// Hands the position to the kernel.
    pub(crate) fn give_position(&self) {
        let fd = self.fd.load(Relaxed) as i32;
        if self.position.give(|at| {
            if self.is_behind(fd) {
                sys::seek(fd, at as i64, 0);
            }
        }) {
            self.gives.fetch_add(1, Relaxed);
            self.here_calls.store(0, Relaxed);
            process::count(Counter::OffsetsGiven, 1);
        }
    }

    /// Takes the position over if that is allowed and has come to pay.
    pub(crate) fn wants_position(&self) -> bool {
        const CALLS: u32 = 4;
        const GIVES_MAX: u32 = 10;
        let gives = self.gives.load(Relaxed);
        !self.has(SHARED) && gives <= GIVES_MAX && self.here_calls.fetch_add(1, Relaxed) >= CALLS << gives
    }

    /// Takes the position over, unless a call of the kernel uses it.
    pub(crate) fn take_position(&self) {
        let fd = self.fd.load(Relaxed) as i32;
        let Some(held) = LOCK.try_hold() else { return };
        self.position.take(|| u64::try_from(sys::seek(fd, 0, 1)).ok());
        drop(held);
    }

    pub(crate) fn add_usage(&self, usage: [u64; 4]) {
        for (sum, more) in self.usage.iter().zip(usage) {
            sum.fetch_add(more, Relaxed);
        }
    }

    /// Hands what was counted for this file to the process's record.
    pub(crate) fn report_usage(&self) {
        if !process::wants_files() {
            return;
        }
        if let Some(thread) = threads::known() {
            crate::usage::hand_on(thread);
        }
        let Some(record) = process::record() else { return };
        let mut path = [0u8; PATH_BYTES];
        let length = self.path_length.load(Relaxed).min(PATH_BYTES);
        for (byte, cell) in path.iter_mut().zip(&self.path[..length]) {
            *byte = cell.load(Relaxed);
        }
        let usage = [0, 1, 2, 3].map(|index: usize| self.usage[index].swap(0, Relaxed));
        if usage[0] + usage[2] != 0 {
            record.add_file(&path[..length], usage);
        }
    }
}

/// Whether `is` holds for what is remembered of each page of a request.
#[inline(always)]
fn each_page(spot: Option<(&Window, usize)>, length: usize, is: fn(&AtomicU8) -> bool) -> bool {
    spot.is_some_and(|(window, start)| pages::pages_of(start, length).all(|page| is(window.page(page))))
}

/// Whether each page of these bytes is in the page cache.
fn is_cached(fd: i32, offset: u64, end: u64) -> bool {
    let first = offset & !(PAGE_BYTES as u64 - 1);
    let length = end.next_multiple_of(PAGE_BYTES as u64) - first;
    sys::cache_status(fd, first, length).is_some_and(|status| status.cached >= length >> PAGE_SHIFT)
}

/// Milliseconds of a clock that costs a few ns.
fn now_ms() -> u64 {
    crate::clock::coarse_ms()
}

impl Thread {
    /// Counts a call served at user level.
    #[inline(always)]
    pub(crate) fn count_served(&self, calls: Counter, bytes: Counter, length: usize) {
        self.count(calls, 1);
        self.count(bytes, length as u64);
    }
}
