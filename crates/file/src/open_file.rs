//! One open file with a user-level data path: how a read and a write of it are served.
//!
//! A read copies from a mapping of the page cache into the program's buffer, a mapped write (if those were
//! asked for) the other way. Both count only within the size that the file is *proved* to have at that moment:
//! bytes of a file's last page behind its end are zeroes without a fault, so a copy alone could not tell that
//! somebody truncated the file. A read proves it before the copy, a write behind it.
//!
//! Cost of a hit: one look at the window, one byte per page, the copy, one byte for the proof; no system
//! call (one `fstat` where fewer bytes are there than the request asks for), no lock. `bywash bench run micro` shows it.
//!
//! Called by [`crate::table`], which holds the hazard. Open files live in a pool that is never unmapped.

use crate::copy::guarded_word;
use crate::filesystem::Kind;
use crate::gate::Gate;
use crate::groups;
use crate::offset::Position;
use crate::pages::{self, PAGE_BYTES};
use crate::policy::{self, Request};
use crate::pool::{InChild, Pool, Zeroed};
use crate::process::{self, LOCK};
use crate::sys::{self, Status};
use crate::threads::{self, Thread};
use crate::window::{self, WARM_UP, Window};
use bywash_session::{Counter, FallbackReason as Why};
use bywash_sync::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, Ordering::Relaxed};

mod leftovers;
mod reads;
mod warming;
mod writes;

use warming::is_seen;

pub(crate) use leftovers::after_release;

/// Open files with a data path at a time.
pub const OPEN_FILES_MAX: usize = 1 << 17;
const WINDOWS: usize = 8;
const GATES: usize = 512;
/// Requests for another stretch before the window in its place makes room.
const DISPLACED_MAX: u32 = 512;
/// Bytes of one call whose pages are remembered.
const MARKED_BYTES_MAX: u64 = 4 << 20;
const PATH_BYTES: usize = 256;
/// Of so many requests that continue nothing one is remembered, so that threads that read at random do not
/// write to one cache line all the time.
const STARTS_REMEMBERED: u32 = 16;
/// Writes may go through the mapping.
const MAPPED_WRITES: u32 = 1;
/// Nothing stands behind the page cache.
const MEMORY_ONLY: u32 = 2;
/// A read sees each write of the same file whole or not at all.
const READS_ATOMIC: u32 = 4;
/// The position is the kernel's for good.
const SHARED: u32 = 8;
/// It was closed, or gave up a window, while a copy was under way: the rest goes when the copy has ended.
const LEFT_OVER: u32 = 16;
/// The kernel serves everything.
const DISABLED: u32 = 32;

/// Why a read is the kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Nothing of its group is mapped, which was noted already (`OpenFile::passes_cold`).
    Passed,
    /// The kernel serves it, and what it answers is to be noted.
    Kernel(Why),
}

impl From<Why> for Refusal {
    fn from(why: Why) -> Refusal {
        Refusal::Kernel(why)
    }
}

/// One open file.
#[repr(C, align(64))]
pub struct OpenFile {
    flags: AtomicU32,
    shift: AtomicU32,
    size: AtomicU64,
    windows: [AtomicPtr<Window>; WINDOWS],
    gate: AtomicU32,
    /// When the kernel wrote the file last, which moved its times, by `now_ms`. Kept where writes are mapped.
    times_ms: AtomicU64,
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

// SAFETY: atomics, and types that consist of them, for which zeroes are valid.
unsafe impl Zeroed for OpenFile {}
pub(crate) static POOL: Pool<OpenFile> = Pool::new(OPEN_FILES_MAX, InChild::Wiped);
static USED: AtomicUsize = AtomicUsize::new(0);
static FREE: AtomicU32 = AtomicU32::new(0);
static GATE_TABLE: [Gate; GATES] = [const { Gate::new() }; GATES];

pub(crate) fn reset_child() {
    if USED.load(Relaxed) == 0 {
        // No file had a gate.
        return;
    }
    put_back!(USED, 0);
    put_back!(FREE, 0);
    leftovers::reset_child();
    for gate in &GATE_TABLE {
        gate.reset_child();
    }
}

/// Every open file that is in use.
pub(crate) fn all() -> impl Iterator<Item = &'static OpenFile> {
    (0..USED.load(Ordering::Acquire)).filter_map(at).filter(|file| file.references.load(Relaxed) != 0)
}

/// Place `index` of those that have been used.
fn at(index: usize) -> Option<&'static OpenFile> {
    POOL.get(index)
}

/// What is known of a file when it gets its data path.
pub(crate) struct Description<'a> {
    pub(crate) fd: i32,
    pub(crate) status: Status,
    pub(crate) kind: Kind,
    /// The descriptor may write, and neither appends nor writes synchronously.
    pub(crate) may_write: bool,
    pub(crate) shared: bool,
    pub(crate) path: &'a [u8],
}

/// A place in the pool, filled in. Under the lock.
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
        set(MAPPED_WRITES, what.may_write && what.kind.memory_only && process::settings().writes);
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

    /// The largest size that the file is known to have had last.
    #[inline(always)]
    pub fn size(&self) -> u64 {
        self.size.load(Relaxed)
    }

    pub(crate) fn shift(&self) -> u32 {
        self.shift.load(Relaxed) & 63
    }

    /// Whether writes may go through the mapping.
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

    #[inline(always)]
    fn request(&self, offset: u64, length: usize, touched: bool, stream_bytes: usize) -> Request {
        Request {
            length,
            threshold: process::settings().threshold,
            stream: length >= stream_bytes
                && self.continues(offset, length) > policy::STREAM_REQUESTS
                && !touched,
            within_size: offset + length as u64 <= self.size(),
            touched,
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
            // Less may be mapped than such windows need: smaller ones from now on.
            self.change_windows(fitting);
            return Err(Why::Window);
        }
        if !process::handlers_ready() || !window::map(window, fd, self, end) {
            // Not again for a while.
            window.wanted.store(0, Relaxed);
            return Err(Why::Window);
        }
        drop(held);
        Ok(())
    }

    /// Returns whether the file reaches to `end` just now, `end_in_window` in the window, without a look at the page that the
    /// request ends in: the page behind is there, or the kernel says so.
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

    /// Notes that the file was seen to reach to `end`.
    #[inline(always)]
    pub(crate) fn reaches(&self, end: u64) {
        if end > self.size() {
            self.size.fetch_max(end, Relaxed);
        }
    }

    /// Changes the states of the pages of these bytes, as far as there are windows for them.
    fn mark(&self, offset: u64, length: u64, mark: impl Fn(&AtomicU8)) {
        self.each_window(offset, length, true, |window, start, length| {
            pages::pages_of(start, length).filter_map(|page| window.page_to_mark(page)).for_each(&mark);
        });
    }

    /// Changes the states of the groups of these bytes, as far as there are windows for them; `make`: they are made.
    fn mark_groups(&self, offset: u64, length: u64, make: bool, mark: impl Fn(&AtomicU8)) {
        self.each_window(offset, length, make, |window, start, length| {
            groups::groups_of(start, length).for_each(|group| mark(window.group_to_mark(group)));
        });
    }

    /// Calls `what` for each window of these bytes, with where in it they begin and how many lie in it.
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
            if !window.is_idle_at_next_tick() {
                window.displaced.store(0, Relaxed);
                return None;
            }
        }
        let held = LOCK.try_hold()?;
        let better = window::shift_for(self.size());
        if better > shift && self.size() > (WINDOWS as u64) << shift {
            // The file has outgrown its windows: larger ones from now on.
            self.change_windows(better);
            return None;
        }
        let before = slot.swap(core::ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: as in `locate`.
        if let Some(window) = unsafe { before.as_ref() }
            && !window::destroy_held(window)
        {
            self.leaves_over();
            return None;
        }
        let window = window::create(self, index, shift)?;
        // SYNC: file-window (release; `locate` acquires).
        slot.store(core::ptr::from_ref(window).cast_mut(), Ordering::Release);
        drop(held);
        Some(window)
    }

    /// Gives up all windows for others of this size. Under the lock; the caller's hazard names the file.
    fn change_windows(&self, shift: u32) {
        self.drop_windows(window::destroy_held);
        self.shift.store(shift, Relaxed);
    }

    /// Takes all windows away from the file. Under the lock.
    fn drop_windows(&self, destroy: fn(&'static Window) -> bool) {
        for slot in &self.windows {
            let window = slot.swap(core::ptr::null_mut(), Ordering::AcqRel);
            // SAFETY: as in `locate`.
            if let Some(window) = unsafe { window.as_ref() }
                && !destroy(window)
            {
                self.leaves_over();
            }
        }
    }

    /// Whether the window is one that requests of this file can reach.
    pub(crate) fn names(&self, window: &Window) -> bool {
        self.windows.iter().any(|slot| core::ptr::eq(slot.load(Relaxed), window))
    }

    /// Takes one window away from the file. Under the lock; `destroy` suits the caller's hazard.
    pub(crate) fn drop_window(&self, window: &'static Window, destroy: fn(&'static Window) -> bool) -> bool {
        let address = core::ptr::from_ref(window).cast_mut();
        for slot in &self.windows {
            if slot.load(Relaxed) == address {
                slot.store(core::ptr::null_mut(), Ordering::Release);
            }
        }
        let gone = destroy(window);
        if !gone {
            self.leaves_over();
        }
        gone
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
        for slot in &self.windows {
            // SAFETY: as in `locate`; the caller's hazard keeps the window.
            if let Some(window) = unsafe { slot.load(Ordering::Acquire).as_ref() } {
                window.forget_pages();
            }
        }
    }

    /// `gone` was closed; `find` knows another descriptor that leads here.
    pub(crate) fn replace_descriptor(&self, gone: i32, find: impl FnOnce() -> Option<i32>) {
        if self.fd.load(Relaxed) as i32 == gone
            && let Some(other) = find()
        {
            self.fd.store(other as u32, Relaxed);
        }
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

    /// Takes away one descriptor; the last one takes everything along. Answers whether it was the last.
    pub(crate) fn remove_reference(&'static self) -> bool {
        if self.references.fetch_sub(1, Ordering::AcqRel) != 1 {
            return false;
        }
        self.report_usage();
        let held = LOCK.hold();
        self.serial.fetch_add(1, Relaxed);
        leftovers::sweep_if_any();
        self.drop_windows(window::destroy);
        self.retire(window::turns(self));
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
    spot.is_some_and(|(window, start)| {
        pages::pages_of(start, length).all(|page| window.page(page).is_some_and(is))
    })
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
