//! Windows: parts of files that are mapped, and what is remembered of their pages.
//!
//! A window covers one aligned stretch of an open file. It begins as memory for page states alone and is
//! mapped when enough requests could have used the mapping. Windows are bounded in number and in total
//! mapped bytes; one that nobody has used for a while makes room, also for another of the same file. A window belongs to one open file and goes with
//! it: a mapping keeps the kernel's open file alive, and with it locks, leases and "text file busy".
//!
//! Invariants: everything here is changed only under [`process::LOCK`]. A mapping is taken away only after
//! it became unreachable (`mapped` is 0) and no other thread's hazard names its file.

use crate::groups::{self, GROUP_PAGES};
use crate::open_file::OpenFile;
use crate::pages::{self, PAGE_BYTES};
use crate::pool::{InChild, Pool, Zeroed};
use crate::process;
use crate::reclaim;
use crate::sys::{self, Advice};
use crate::threads;
use bywash_session::Counter;
use bywash_sync::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, Ordering::Relaxed};

/// Windows of a process.
pub const WINDOWS_MAX: usize = 16_384;
/// Least bytes that one mapping covers.
pub const MAPPING_BYTES_MIN: u64 = 256 * 1024;
/// log2 of the bytes that the smallest window covers (1 MiB).
pub const SHIFT_MIN: u32 = 20;
/// log2 of the bytes of the largest window whose groups have their states in the window itself.
pub const SHIFT_WITHIN: u32 = (STATES_WITHIN * GROUP_PAGES * PAGE_BYTES).ilog2();
/// log2 of the bytes of a window up to which it is chosen before the bound on all mappings is known.
const SHIFT_WITHOUT_BOUND: u32 = 25;
/// Pages whose states lie in the window itself, behind those of their groups, so that a small file costs no memory of
/// its own.
const PAGES_WITHIN: usize = 256;
/// Bytes for states in the window itself. In a larger window they are for groups, as far as they suffice.
const STATES_WITHIN: usize = PAGES_WITHIN / GROUP_PAGES + PAGES_WITHIN;
/// Requests that could have used a window before it is mapped.
pub const WARM_UP: u32 = 4;
/// Looks at the hazards before a window is left for later.
const TURNS: u32 = 20_000;

/// Wishes for room of which one is granted: those between two that are granted are what "for a while" is.
const WISHES_PER_EVICTION: u32 = 64;
static WISHES: AtomicU32 = AtomicU32::new(0);
/// States of a window used again that are zeroed one by one; more are handed back to the kernel.
const FORGOTTEN_BY_HAND: usize = 4096;

/// One window.
#[repr(C, align(64))]
pub struct Window {
    /// Which stretch of the file: [`key`] of its index and the shift.
    key: AtomicU64,
    /// Where it is mapped.
    pub base: AtomicPtr<u8>,
    /// Bytes that are mapped; 0: none.
    pub mapped: AtomicUsize,
    /// One byte for each group of pages of the whole stretch ([`crate::groups`]).
    groups: AtomicPtr<AtomicU8>,
    mapped_groups: Memory,
    /// One byte for each page of the whole stretch ([`crate::pages`]), from when the first is needed on; null
    /// before.
    states: AtomicPtr<AtomicU8>,
    mapped_states: Memory,
    /// Pages up to this one may have a state that is not zero.
    marked: AtomicU32,
    /// Requests that could have used the mapping.
    pub wanted: AtomicU32,
    /// Requests for another stretch that found this one in their place.
    pub displaced: AtomicU32,
    /// Reading of the windows' clock when the window was used last.
    last_used: AtomicU32,
    /// Next free window, as index + 1.
    next_free: AtomicU32,
    owner: AtomicPtr<OpenFile>,
    within: [AtomicU8; STATES_WITHIN],
}

/// What names a stretch of a file: where it lies in units of its size, and log2 of its size.
#[inline(always)]
pub fn key(index: u64, shift: u32) -> u64 {
    index << 6 | u64::from(shift)
}

/// Memory for states that a window keeps from use to use, so that files which come and go do not cost a mapping
/// each time. Zeroes: it has none yet.
struct Memory {
    at: AtomicPtr<AtomicU8>,
    bytes: AtomicUsize,
}

impl Memory {
    /// Returns memory of `bytes` bytes, all zero but for those that were not zeroed after use, or `None` if the kernel
    /// gives none. The caller holds the lock, and nobody uses that memory.
    fn of(&self, bytes: usize) -> Option<*mut AtomicU8> {
        let before = self.bytes.load(Relaxed);
        if before != bytes {
            if before != 0 {
                // SAFETY: promised by the caller.
                unsafe { sys::unmap(self.at.load(Relaxed).cast(), before) };
            }
            self.bytes.store(0, Relaxed);
            let memory = sys::map_memory(bytes)?;
            sys::advise(memory, bytes, Advice::DontFork);
            self.at.store(memory.cast(), Relaxed);
            self.bytes.store(bytes, Relaxed);
        }
        Some(self.at.load(Relaxed))
    }

    /// Makes all of it zeroes.
    fn wipe(&self) {
        if self.bytes.load(Relaxed) != 0 {
            sys::advise(self.at.load(Relaxed).cast(), self.bytes.load(Relaxed), Advice::DontNeed);
        }
    }
}

// SAFETY: atomics, for which zeroes are valid.
unsafe impl Zeroed for Window {}
pub(crate) static POOL: Pool<Window> = Pool::new(WINDOWS_MAX, InChild::Wiped);
static USED: AtomicUsize = AtomicUsize::new(0);
static FREE: AtomicU32 = AtomicU32::new(0);
static MAPPED_TOTAL: AtomicU64 = AtomicU64::new(0);
/// The highest value of `MAPPED_TOTAL` so far.
static MAPPED_MOST: AtomicU64 = AtomicU64::new(0);
/// Moves on when a window would have to make room for another: the hand of a clock, by which it is known which
/// windows nobody has used for a while.
static CLOCK: AtomicU32 = AtomicU32::new(0);

pub(crate) fn reset_child() {
    put_back!(USED, 0);
    put_back!(FREE, 0);
    put_back!(MAPPED_TOTAL, 0);
    put_back!(MAPPED_MOST, 0);
}

/// What log2 of the window's bytes suits a file: all of a file of today's size in its eight windows, as far
/// as the bound on all mappings lets it.
pub(crate) fn shift_for(size: u64) -> u32 {
    let wanted = wanted_shift(size);
    if wanted == SHIFT_MIN {
        return wanted;
    }
    let most = 63 - (process::resident_max() / 4).max(1).leading_zeros();
    wanted.min(most.max(SHIFT_MIN))
}

/// As [`shift_for`], for a file that has no mapping yet and may never have one: of a smaller file the bound, which
/// takes some system calls to know, is asked for when the first window is mapped.
pub(crate) fn first_shift_for(size: u64) -> u32 {
    let wanted = wanted_shift(size);
    if wanted > SHIFT_WITHOUT_BOUND { shift_for(size) } else { wanted }
}

fn wanted_shift(size: u64) -> u32 {
    (64 - (size / 8).leading_zeros()).max(SHIFT_MIN)
}

impl Window {
    /// Whether it is the window of this stretch.
    #[inline(always)]
    pub fn is(&self, key: u64) -> bool {
        self.key.load(Relaxed) == key
    }

    /// Whether its first `bytes` are mapped.
    #[inline(always)]
    pub fn is_mapped(&self, bytes: usize) -> bool {
        // SYNC: window-mapped (acquire).
        bytes <= self.mapped.load(Ordering::Acquire)
    }

    /// log2 of the bytes of its stretch.
    pub fn shift(&self) -> u32 {
        (self.key.load(Relaxed) & 63) as u32
    }

    /// Where its stretch begins in the file.
    pub fn start(&self) -> u64 {
        self.key.load(Relaxed) >> 6 << self.shift()
    }

    /// Pages of its stretch.
    pub fn pages(&self) -> usize {
        (1 << self.shift()) / PAGE_BYTES
    }

    /// The state of page `page` of the window; none if no page has one.
    #[inline(always)]
    pub fn page(&self, page: usize) -> Option<&AtomicU8> {
        debug_assert!(page < self.pages());
        // SYNC: window-states (acquire).
        let states = self.states.load(Ordering::Acquire);
        // SAFETY: the states cover every page of the stretch, and callers pass pages within it; they stay
        // mapped while the window is reachable.
        (!states.is_null()).then(|| unsafe { &*states.add(page) })
    }

    /// The state of group `group` of the window.
    #[inline(always)]
    pub fn group(&self, group: usize) -> &AtomicU8 {
        debug_assert!(group < self.pages() / GROUP_PAGES);
        // SAFETY: as of pages.
        unsafe { &*self.groups.load(Relaxed).add(group) }
    }

    /// Address of the state of group `group`, which is memory only while the window is reachable.
    #[inline(always)]
    pub fn group_address(&self, group: usize) -> *const u8 {
        self.groups.load(Relaxed).wrapping_add(group).cast()
    }

    /// The state of page `page`, to be changed; none if there is no memory for it, or the lock is taken.
    #[inline]
    pub fn page_to_mark(&self, page: usize) -> Option<&AtomicU8> {
        self.marks(page);
        self.page(page).or_else(|| {
            self.make_states();
            self.page(page)
        })
    }

    #[cold]
    fn make_states(&self) {
        let Some(held) = process::LOCK.try_hold() else { return };
        if self.states.load(Relaxed).is_null() {
            let pages = self.pages();
            let within =
                (pages <= PAGES_WITHIN).then(|| self.within[pages / GROUP_PAGES..].as_ptr().cast_mut());
            if let Some(states) = within.or_else(|| self.mapped_states.of(pages)) {
                // SYNC: window-states (release).
                self.states.store(states, Ordering::Release);
            }
        }
        drop(held);
    }

    /// The state of group `group`, to be changed.
    #[inline(always)]
    pub fn group_to_mark(&self, group: usize) -> &AtomicU8 {
        self.marks(group * GROUP_PAGES);
        self.group(group)
    }

    #[inline(always)]
    fn marks(&self, page: usize) {
        if page as u32 >= self.marked.load(Relaxed) {
            self.marked.fetch_max((page + 1).next_multiple_of(GROUP_PAGES) as u32, Relaxed);
        }
    }

    /// Notes that the window was used just now.
    #[inline(always)]
    pub fn used(&self) {
        let now = CLOCK.load(Relaxed);
        if self.last_used.load(Relaxed) != now {
            self.last_used.store(now, Relaxed);
        }
    }

    /// Moves the clock on; answers whether nobody has used the window's mapping since it moved on the time before.
    pub(crate) fn is_idle_at_next_tick(&self) -> bool {
        let now = CLOCK.fetch_add(1, Relaxed) + 1;
        self.mapped.load(Relaxed) == 0 || self.is_idle(now)
    }

    fn is_idle(&self, now: u32) -> bool {
        now.wrapping_sub(self.last_used.load(Relaxed)) >= 2
    }

    /// Forgets the pages from `first` on, and the groups that they are in.
    pub(crate) fn forget_from(&self, first: usize) {
        let marked = self.marked.load(Relaxed) as usize;
        (first..marked).filter_map(|page| self.page(page)).for_each(pages::forget);
        (first / GROUP_PAGES..marked / GROUP_PAGES).for_each(|group| pages::forget(self.group(group)));
    }

    /// Notes that no page is in the page tables.
    fn note_unmapped(&self) {
        let marked = self.marked.load(Relaxed) as usize;
        (0..marked).filter_map(|page| self.page(page)).for_each(pages::set_unmapped);
        (0..marked / GROUP_PAGES).for_each(|group| groups::set_unmapped(self.group(group)));
    }

    /// Forgets all pages and lets go of what the page tables hold, so that the kernel can drop the pages.
    pub(crate) fn forget_pages(&self) {
        self.forget_from(0);
        let mapped = self.mapped.load(Relaxed);
        if mapped != 0 {
            sys::advise(self.base.load(Relaxed), mapped, Advice::DontNeed);
        }
    }
}

/// A new window of `owner` without a mapping. Under the lock.
pub(crate) fn create(owner: &OpenFile, index: u64, shift: u32) -> Option<&'static Window> {
    let window = take_free().or_else(|| {
        evict_one(owner, wish()?, |_| true)?;
        take_free()
    })?;
    if !prepare_states(window, (1usize << shift) / PAGE_BYTES) {
        put_free(window);
        return None;
    }
    window.key.store(key(index, shift), Relaxed);
    window.mapped.store(0, Relaxed);
    window.wanted.store(0, Relaxed);
    window.displaced.store(0, Relaxed);
    window.owner.store(core::ptr::from_ref(owner).cast_mut(), Relaxed);
    window.last_used.store(CLOCK.load(Relaxed), Relaxed);
    Some(window)
}

/// Gives a window zeroed states for the groups of `pages` pages: its own, or memory that it may have from an
/// earlier use.
fn prepare_states(window: &Window, pages: usize) -> bool {
    // What the earlier use left is zeroed while its states are still in place.
    if window.marked.load(Relaxed) as usize > FORGOTTEN_BY_HAND {
        window.mapped_states.wipe();
        window.mapped_groups.wipe();
        window.within.iter().for_each(pages::forget);
    } else {
        window.forget_from(0);
    }
    window.marked.store(0, Relaxed);
    window.states.store(core::ptr::null_mut(), Relaxed);
    let groups = pages / GROUP_PAGES;
    let within = (groups <= STATES_WITHIN).then(|| window.within.as_ptr().cast_mut());
    let Some(states) = within.or_else(|| window.mapped_groups.of(groups)) else { return false };
    window.groups.store(states, Relaxed);
    true
}

/// Maps a window so that the file's byte `end` (exclusive, within its size) is covered, anew and larger if
/// it was mapped before. Under the lock; the caller's hazard names the window's file. False: it cannot be had
/// now.
pub(crate) fn map(window: &Window, fd: i32, file: &OpenFile, end: u64) -> bool {
    let start = window.start();
    let size = file.size();
    let wanted = (size.max(end) - start).next_power_of_two().max(MAPPING_BYTES_MIN);
    let length = wanted.min(1 << window.shift()) as usize;
    if !retract(window, threads::other_hazards, TURNS) || !make_room(length as u64, file) {
        return false;
    }
    if !file.is_behind(fd) {
        return false;
    }
    window.note_unmapped();
    let Ok(base) = sys::map_file(fd, start, length, file.maps_writes()) else { return false };
    sys::advise(base, length, Advice::Random);
    sys::advise(base, length, Advice::DontFork);
    let total = MAPPED_TOTAL.fetch_add(length as u64, Relaxed) + length as u64;
    let most = MAPPED_MOST.fetch_max(total, Relaxed);
    process::count(Counter::MappedBytesMost, total.saturating_sub(most));
    window.base.store(base, Relaxed);
    window.last_used.store(CLOCK.load(Relaxed), Relaxed);
    // SYNC: window-mapped (release; open_file's look-up acquires): the base is there before its length.
    window.mapped.store(length, Ordering::Release);
    process::count(Counter::WindowsMapped, 1);
    true
}

/// Gives a window and its states up for good; the file no longer names it. Under the lock. False: another
/// thread is still in it.
pub(crate) fn destroy(window: &'static Window) -> bool {
    retract(window, threads::hazards, turns(window.owner.load(Relaxed))) && discard(window)
}

/// As [`destroy`], for a caller whose own hazard names the window's file.
pub(crate) fn destroy_held(window: &'static Window) -> bool {
    retract(window, threads::other_hazards, TURNS) && discard(window)
}

fn discard(window: &'static Window) -> bool {
    window.owner.store(core::ptr::null_mut(), Relaxed);
    put_free(window);
    true
}

/// Gives up those windows of `file` that it no longer names and that could not be given up before. Under the
/// lock. False: one of them is still in use.
pub(crate) fn sweep(file: &OpenFile) -> bool {
    let owner = core::ptr::from_ref(file).cast_mut();
    (0..USED.load(Relaxed))
        .filter_map(at)
        .filter(|window| window.owner.load(Relaxed) == owner && !file.names(window))
        .filter(|window| !destroy(window))
        .count()
        == 0
}

/// Looks at the hazards that are worth it before a window of `file` is left for later: a copy of the calling
/// thread's own, which it interrupted, does not end meanwhile.
pub(crate) fn turns(file: *const OpenFile) -> u32 {
    let interrupted = threads::known().is_some_and(|thread| thread.hazard.load(Relaxed) == file as usize);
    if interrupted { 1 } else { TURNS }
}

/// Takes the mapping away once no thread among `hazards` can be using the window.
fn retract<I>(window: &Window, hazards: impl Fn() -> I, turns: u32) -> bool
where
    I: Iterator<Item = &'static AtomicUsize>,
{
    let length = window.mapped.swap(0, Ordering::AcqRel);
    let owner = window.owner.load(Relaxed) as usize;
    if !reclaim::wait_until_unused(hazards, owner, turns, threads::alone) {
        // Somebody was stopped in the middle of a copy. Leave it mapped; it is tried again later.
        window.mapped.store(length, Ordering::Release);
        return false;
    }
    if length != 0 {
        // SAFETY: no thread uses it and none can reach it any more.
        unsafe { sys::unmap(window.base.load(Relaxed), length) };
        MAPPED_TOTAL.fetch_sub(length as u64, Relaxed);
    }
    true
}

fn make_room(length: u64, caller: &OpenFile) -> bool {
    let most = process::resident_max();
    let fits = || MAPPED_TOTAL.load(Relaxed) + length <= most;
    if length > most || fits() {
        return length <= most;
    }
    let Some(now) = wish() else { return false };
    while !fits() {
        if evict_one(caller, now, |window| window.mapped.load(Relaxed) != 0).is_none() {
            return false;
        }
    }
    true
}

/// Returns the reading of the clock if a wish for room is granted. To find a window that can go costs a look at all of
/// them, and one that is needed again soon costs more: most of the time the answer is no, and the request goes to the
/// kernel.
fn wish() -> Option<u32> {
    let granted = WISHES.fetch_add(1, Relaxed).is_multiple_of(WISHES_PER_EVICTION);
    granted.then(|| CLOCK.fetch_add(1, Relaxed) + 1)
}

/// Gives up the window that was used least recently of those that `would_do`, of any file; the caller's hazard names
/// the file `caller`. One that was used since the wish before the last stays: it would be wanted back at once.
fn evict_one(caller: &OpenFile, now: u32, would_do: fn(&Window) -> bool) -> Option<()> {
    let idlest = (0..USED.load(Relaxed))
        .filter_map(at)
        .filter(|window| !window.owner.load(Relaxed).is_null() && would_do(window) && window.is_idle(now))
        .max_by_key(|window| now.wrapping_sub(window.last_used.load(Relaxed)))?;
    // SAFETY: owners are open files of the pool, which is never unmapped.
    let owner = unsafe { &*idlest.owner.load(Relaxed) };
    let destroy = if core::ptr::eq(owner, caller) { destroy_held } else { destroy };
    owner.drop_window(idlest, destroy).then(|| process::count(Counter::WindowsEvicted, 1))
}

/// Window `index` of those that have been used.
fn at(index: usize) -> Option<&'static Window> {
    POOL.get(index)
}

fn take_free() -> Option<&'static Window> {
    let free = FREE.load(Relaxed);
    if free != 0 {
        let window = at(free as usize - 1)?;
        FREE.store(window.next_free.load(Relaxed), Relaxed);
        return Some(window);
    }
    let used = USED.load(Relaxed);
    let window = POOL.get_or_grow(used)?;
    USED.store(used + 1, Relaxed);
    Some(window)
}

fn put_free(window: &'static Window) {
    window.next_free.store(FREE.load(Relaxed), Relaxed);
    FREE.store(POOL.index_of(window) as u32 + 1, Relaxed);
}
