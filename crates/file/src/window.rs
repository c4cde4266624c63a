//! Windows: parts of files that are mapped, and what is remembered of their pages.
//!
//! A window covers one aligned stretch of an open file. It begins as memory for page states alone and is
//! mapped when enough requests could have used the mapping. Windows are bounded in number and in total
//! mapped bytes; the least recently used one makes room. A window belongs to one open file and goes with
//! it: a mapping keeps the kernel's open file alive, and with it locks, leases and "text file busy".
//!
//! Invariants: everything here is changed only under [`process::LOCK`]. A mapping is taken away only after
//! it became unreachable (`mapped` is 0) and no other thread's hazard names its file.

use crate::open_file::OpenFile;
use crate::pages::PAGE_BYTES;
use crate::process;
use crate::reclaim;
use crate::sys::{self, Advice};
use crate::threads;
use bywash_session::Counter;
use bywash_sync::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, Ordering::Relaxed,
};

/// Windows of a process.
pub const WINDOWS_MAX: usize = 16_384;
/// Least bytes that one mapping covers.
pub const MAPPING_BYTES_MIN: u64 = 256 * 1024;
/// log2 of the bytes that the smallest window covers (1 MiB).
pub const SHIFT_MIN: u32 = 20;
/// Pages whose states lie in the window itself, so that a small file costs no memory of its own.
const STATES_WITHIN: usize = 256;
/// Requests that could have used a window before it is mapped.
pub const WARM_UP: u32 = 4;
/// Looks at the hazards before a window is left for later.
pub(crate) const TURNS: u32 = 20_000;

/// Wishes for room of which one is granted.
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
    /// Whether the mapping may be written.
    writable: AtomicBool,
    /// One byte for each page of the whole stretch ([`crate::pages`]): `within` or `mapped_states`.
    states: AtomicPtr<AtomicU8>,
    mapped_states: AtomicPtr<AtomicU8>,
    mapped_states_bytes: AtomicUsize,
    /// Pages up to this one may have a state that is not zero.
    marked: AtomicU32,
    /// Requests that could have used the mapping.
    pub wanted: AtomicU32,
    /// Requests for another stretch that found this one in their place.
    pub displaced: AtomicU32,
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

static POOL: AtomicPtr<Window> = AtomicPtr::new(core::ptr::null_mut());
static USED: AtomicUsize = AtomicUsize::new(0);
static FREE: AtomicU32 = AtomicU32::new(0);
static MAPPED_TOTAL: AtomicU64 = AtomicU64::new(0);
/// Moves on with every change of a window; what "recently" is measured by.
static CLOCK: AtomicU32 = AtomicU32::new(0);

pub(crate) fn prepare() -> bool {
    let bytes = WINDOWS_MAX * size_of::<Window>();
    let Some(at) = sys::map_memory(bytes) else { return false };
    POOL.store(at.cast(), Ordering::Release);
    sys::advise(at, bytes, Advice::WipeOnFork)
}

pub(crate) fn reset_child() {
    USED.store(0, Relaxed);
    FREE.store(0, Relaxed);
    MAPPED_TOTAL.store(0, Relaxed);
}

/// What log2 of the window's bytes suits a file: all of a file of today's size in its eight windows, as far
/// as the bound on all mappings lets it.
pub(crate) fn shift_for(size: u64) -> u32 {
    let most = 63 - (process::settings().windows_bytes / 4).max(1).leading_zeros();
    let wanted = 64 - (size / 8).leading_zeros();
    wanted.clamp(SHIFT_MIN, most.max(SHIFT_MIN))
}

impl Window {
    /// Whether it is the window of this stretch.
    #[inline(always)]
    pub fn is(&self, key: u64) -> bool {
        self.key.load(Relaxed) == key
    }

    /// Whether its first `bytes` are mapped, to be written if `writing`.
    #[inline(always)]
    pub fn is_mapped(&self, bytes: usize, writing: bool) -> bool {
        // SYNC: window-mapped (acquire).
        bytes <= self.mapped.load(Ordering::Acquire) && (!writing || self.writable.load(Relaxed))
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

    /// The state of page `page` of the window.
    #[inline(always)]
    pub fn page(&self, page: usize) -> &AtomicU8 {
        debug_assert!(page < self.pages());
        // SAFETY: the states cover every page of the stretch, and callers pass pages within it; they stay
        // mapped while the window is reachable.
        unsafe { &*self.states.load(Relaxed).add(page) }
    }

    /// The state of page `page`, to be changed.
    #[inline]
    pub fn page_to_mark(&self, page: usize) -> &AtomicU8 {
        if page as u32 >= self.marked.load(Relaxed) {
            self.marked.fetch_max(page as u32 + 1, Relaxed);
        }
        self.page(page)
    }

    /// Notes that the window was used just now.
    #[inline(always)]
    pub fn used(&self) {
        let now = CLOCK.load(Relaxed);
        if self.last_used.load(Relaxed) != now {
            self.last_used.store(now, Relaxed);
        }
    }

    /// Forgets the pages from `first` on.
    pub(crate) fn forget_from(&self, first: usize) {
        for page in first..self.marked.load(Relaxed) as usize {
            crate::pages::forget(self.page(page));
        }
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
        evict_one(owner)?;
        take_free()
    })?;
    if !prepare_states(window, (1usize << shift) / PAGE_BYTES) {
        put_free(window);
        return None;
    }
    window.key.store(key(index, shift), Relaxed);
    window.mapped.store(0, Relaxed);
    window.writable.store(false, Relaxed);
    window.wanted.store(0, Relaxed);
    window.displaced.store(0, Relaxed);
    window.owner.store(core::ptr::from_ref(owner).cast_mut(), Relaxed);
    window.last_used.store(CLOCK.fetch_add(1, Relaxed) + 1, Relaxed);
    Some(window)
}

/// Gives a window zeroed states for `pages` pages: its own few, or memory that it may have from an earlier
/// use, so that files which come and go do not cost a mapping each time.
fn prepare_states(window: &Window, pages: usize) -> bool {
    // What the earlier use left is zeroed while its states are still in place.
    let marked = window.marked.swap(0, Relaxed) as usize;
    let before = window.mapped_states_bytes.load(Relaxed);
    let mapped = window.mapped_states.load(Relaxed);
    if marked > FORGOTTEN_BY_HAND {
        sys::advise(mapped.cast(), before, Advice::DontNeed);
    } else {
        (0..marked).for_each(|page| crate::pages::forget(window.page(page)));
    }
    if pages <= STATES_WITHIN {
        window.states.store(window.within.as_ptr().cast_mut(), Relaxed);
        return true;
    }
    if before != pages {
        if before != 0 {
            // SAFETY: the window is free, so nobody uses its states.
            unsafe { sys::unmap(mapped.cast(), before) };
        }
        window.mapped_states_bytes.store(0, Relaxed);
        let Some(states) = sys::map_memory(pages) else { return false };
        sys::advise(states, pages, Advice::DontFork);
        window.mapped_states.store(states.cast(), Relaxed);
        window.mapped_states_bytes.store(pages, Relaxed);
    }
    window.states.store(window.mapped_states.load(Relaxed), Relaxed);
    true
}

/// Maps a window so that the file's byte `end` (exclusive, within its size) is covered, anew and larger if
/// it was mapped before, to be written if `writing`. Under the lock; the caller's hazard names the window's
/// file. False: it cannot be had now.
pub(crate) fn map(window: &Window, fd: i32, file: &OpenFile, end: u64, writing: bool) -> bool {
    let start = window.start();
    let size = file.size();
    let wanted = (size.max(end) - start).next_power_of_two().max(MAPPING_BYTES_MIN);
    let length = wanted.min(1 << window.shift()) as usize;
    if !retract(window, threads::other_hazards) || !make_room(length as u64, file) {
        return false;
    }
    if !file.is_behind(fd) {
        return false;
    }
    let writable = file.may_write() && (writing || file.is_in_memory() || window.writable.load(Relaxed));
    let Ok(base) = sys::map_file(fd, start, length, writable) else { return false };
    sys::advise(base, length, Advice::Random);
    sys::advise(base, length, Advice::DontFork);
    MAPPED_TOTAL.fetch_add(length as u64, Relaxed);
    window.base.store(base, Relaxed);
    window.writable.store(writable, Relaxed);
    window.last_used.store(CLOCK.fetch_add(1, Relaxed) + 1, Relaxed);
    // SYNC: window-mapped (release; open_file's look-up acquires): the base is there before its length.
    window.mapped.store(length, Ordering::Release);
    process::count(Counter::WindowsMapped, 1);
    true
}

/// Gives a window and its states up for good; the file no longer names it. Under the lock. False: another
/// thread is still in it.
pub(crate) fn destroy(window: &'static Window) -> bool {
    retract(window, threads::hazards) && discard(window)
}

/// As [`destroy`], for a caller whose own hazard names the window's file.
pub(crate) fn destroy_held(window: &'static Window) -> bool {
    retract(window, threads::other_hazards) && discard(window)
}

fn discard(window: &'static Window) -> bool {
    window.owner.store(core::ptr::null_mut(), Relaxed);
    put_free(window);
    true
}

/// Takes the mapping away once no thread among `hazards` can be using the window.
fn retract<I: Iterator<Item = &'static AtomicUsize>>(window: &Window, hazards: impl Fn() -> I) -> bool {
    let length = window.mapped.swap(0, Ordering::AcqRel);
    let owner = window.owner.load(Relaxed) as usize;
    if !reclaim::wait_until_unused(hazards, owner, TURNS, threads::alone) {
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

fn make_room(length: u64, keep: &OpenFile) -> bool {
    let most = process::settings().windows_bytes;
    if length > most {
        return false;
    }
    while MAPPED_TOTAL.load(Relaxed) + length > most {
        if evict_one(keep).is_none() {
            return false;
        }
    }
    true
}

/// Gives up the least recently used window of another file than `keep`, whose hazard the caller holds. To
/// find it costs a look at every window, and one that is needed again soon costs more: most of the time the
/// answer is no, and the request goes to the kernel.
fn evict_one(keep: &OpenFile) -> Option<()> {
    if !WISHES.fetch_add(1, Relaxed).is_multiple_of(WISHES_PER_EVICTION) {
        return None;
    }
    let keep = core::ptr::from_ref(keep).cast_mut();
    let oldest = (0..USED.load(Relaxed))
        .map(at)
        .filter(|window| {
            let owner = window.owner.load(Relaxed);
            !owner.is_null() && owner != keep
        })
        .min_by_key(|window| window.last_used.load(Relaxed))?;
    // SAFETY: owners are open files of the pool, which is never unmapped.
    let owner = unsafe { &*oldest.owner.load(Relaxed) };
    owner.drop_window(oldest).then(|| process::count(Counter::WindowsEvicted, 1))
}

fn at(index: usize) -> &'static Window {
    debug_assert!(index < WINDOWS_MAX);
    // SAFETY: the pool has WINDOWS_MAX windows and is never unmapped; zeroes are a valid window.
    unsafe { &*POOL.load(Ordering::Acquire).add(index) }
}

fn take_free() -> Option<&'static Window> {
    let free = FREE.load(Relaxed);
    if free != 0 {
        let window = at(free as usize - 1);
        FREE.store(window.next_free.load(Relaxed), Relaxed);
        return Some(window);
    }
    let used = USED.load(Relaxed);
    (used < WINDOWS_MAX).then(|| {
        USED.store(used + 1, Relaxed);
        at(used)
    })
}

fn put_free(window: &'static Window) {
    let index = (core::ptr::from_ref(window) as usize - POOL.load(Relaxed) as usize) / size_of::<Window>();
    window.next_free.store(FREE.load(Relaxed), Relaxed);
    FREE.store(index as u32 + 1, Relaxed);
}
