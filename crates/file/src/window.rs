//! Windows: parts of files that are mapped, with the states of their groups and pages.
//!
//! A window covers one aligned extent of an open file. It begins with states alone and is mapped when enough
//! requests could have used the mapping. The number of windows and the total of mapped bytes are limited; a
//! window that was not used for a while is released for another one, of the same or of another file. A window
//! belongs to one open file and is released with it: a mapping keeps the kernel's open file alive, and with
//! it locks, leases and "text file busy".
//!
//! Invariants: windows are created, mapped and destroyed only under [`state::LOCK`]. A mapping is removed
//! only after it became unreachable (`mapped` is 0) and no other thread's hazard names its file.
//!
//! A window knows its open file by the address alone. [`crate::open_file`] calls this module, and decides there
//! which window makes room for another one.

use crate::groups::{self, GROUP_PAGES};
use crate::pages::{self, PAGE_BYTES};
use crate::pool::{InChild, Pool, Zeroed};
use crate::reclaim;
use crate::state;
use crate::sys::{self, Advice};
use crate::threads;
use bywash_session::Counter;
use bywash_sync::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, Ordering::Relaxed};

/// Greatest number of windows of a process.
pub const WINDOWS_MAX: usize = 16_384;
/// Least size of a mapping, in bytes.
pub const MAPPING_BYTES_MIN: u64 = 256 * 1024;
/// Base-2 logarithm of the size of the smallest window, in bytes (1 MiB).
pub const SHIFT_MIN: u32 = 20;
/// Base-2 logarithm of the size in bytes of the largest window whose group states lie in the window itself.
pub const SHIFT_WITHIN: u32 = (STATES_WITHIN * GROUP_PAGES * PAGE_BYTES).ilog2();
/// Base-2 logarithm of the largest window size, in bytes, that is chosen before the limit on all mappings is
/// known.
const SHIFT_WITHOUT_BOUND: u32 = 25;
/// Greatest number of pages whose states lie in the window itself, behind the states of their groups, so that
/// a small file needs no further memory.
const PAGES_WITHIN: usize = 256;
/// Size of the memory for states in the window itself, in bytes. Larger windows use it for group states, if
/// it suffices.
const STATES_WITHIN: usize = PAGES_WITHIN / GROUP_PAGES + PAGES_WITHIN;
/// Number of requests that could have used a window before the window is mapped.
pub const WARM_UP: u32 = 4;
/// Number of checks of the hazards before a window is left for later.
const TURNS: u32 = 20_000;

/// Number of attempts to make room of which one is carried out. A window counts as unused for a while if it
/// was not used between two that are carried out.
const WISHES_PER_EVICTION: u32 = 64;
static WISHES: AtomicU32 = AtomicU32::new(0);
/// Greatest number of states that are zeroed one by one when a window is reused; more are dropped by
/// madvise(2).
const FORGOTTEN_BY_HAND: usize = 4096;

/// One window. All zeroes are a valid window, of no file.
#[repr(C, align(64))]
pub struct Window {
    /// [`key`] of the window's extent.
    key: AtomicU64,
    /// Address of the mapping; valid while `mapped` is not 0.
    pub base: AtomicPtr<u8>,
    /// Number of bytes that are mapped, from the beginning of the extent; 0: none.
    pub mapped: AtomicUsize,
    /// States of the groups of the whole extent, one byte each ([`crate::groups`]).
    groups: AtomicPtr<AtomicU8>,
    mapped_groups: StateMemory,
    /// States of the pages of the whole extent, one byte each ([`crate::pages`]); null until the first is
    /// needed.
    states: AtomicPtr<AtomicU8>,
    mapped_states: StateMemory,
    /// Number of pages, from the first, that may have a state that is not zero.
    marked: AtomicU32,
    /// Number of requests that could have used the mapping while there was none.
    pub wanted: AtomicU32,
    /// Number of requests for another extent that found this window in their slot.
    pub displaced: AtomicU32,
    /// Value of the windows' clock when the window was last used.
    last_used: AtomicU32,
    /// Index of the next free window, plus one; 0: none. Valid while the window is free.
    next_free: AtomicU32,
    /// Address of the open file that the window belongs to; 0 while the window is free.
    owner: AtomicUsize,
    /// Memory for states, of [`STATES_WITHIN`] bytes.
    within: [AtomicU8; STATES_WITHIN],
}

/// Returns the key of an extent, from its index in units of its size and the base-2 logarithm of that size.
#[inline(always)]
pub fn key(index: u64, shift: u32) -> u64 {
    index << 6 | u64::from(shift)
}

/// Memory for states that a window keeps while it is free, so that files which are opened and closed do not
/// cost a mapping each time. All zeroes: no memory is allocated yet.
struct StateMemory {
    at: AtomicPtr<AtomicU8>,
    bytes: AtomicUsize,
}

impl StateMemory {
    /// Returns memory of `bytes` bytes, or `None` if the kernel refuses it. The bytes are zero except those
    /// that an earlier use did not zero. The caller holds the lock, and no thread uses the memory.
    fn resized(&self, bytes: usize) -> Option<*mut AtomicU8> {
        let before = self.bytes.load(Relaxed);
        if before != bytes {
            if before != 0 {
                // SAFETY: the caller promises that no thread uses the memory, which this value mapped itself.
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

    /// Makes all bytes of the memory zero.
    fn wipe(&self) {
        if self.bytes.load(Relaxed) != 0 {
            sys::advise(self.at.load(Relaxed).cast(), self.bytes.load(Relaxed), Advice::DontNeed);
        }
    }
}

// SAFETY: every field is an atomic or consists of atomics, for which all-zero bytes are valid.
unsafe impl Zeroed for Window {}
pub(crate) static POOL: Pool<Window> = Pool::new(WINDOWS_MAX, InChild::Wiped);
static USED: AtomicUsize = AtomicUsize::new(0);
static FREE: AtomicU32 = AtomicU32::new(0);
static MAPPED_TOTAL: AtomicU64 = AtomicU64::new(0);
/// Highest value of `MAPPED_TOTAL` so far.
static MAPPED_MOST: AtomicU64 = AtomicU64::new(0);
/// Clock of the windows: advances when a window would have to be released for another one, and tells which
/// windows were not used for a while.
static CLOCK: AtomicU32 = AtomicU32::new(0);

pub(crate) fn reset_child() {
    put_back!(USED, 0);
    put_back!(FREE, 0);
    put_back!(MAPPED_TOTAL, 0);
    put_back!(MAPPED_MOST, 0);
}

/// Returns the base-2 logarithm of the window size for a file of `size` bytes: eight windows cover the whole
/// file, as far as the limit on all mappings allows.
pub(crate) fn shift_for(size: u64) -> u32 {
    let wanted = wanted_shift(size);
    if wanted == SHIFT_MIN {
        return wanted;
    }
    let most = 63 - (state::resident_max() / 4).max(1).leading_zeros();
    wanted.min(most.max(SHIFT_MIN))
}

/// Like [`shift_for`], but for a file that has no mapping yet and may never have one. The limit, which takes
/// some system calls to determine, is applied only to large files; for others it is applied when the first
/// window is mapped.
pub(crate) fn first_shift_for(size: u64) -> u32 {
    let wanted = wanted_shift(size);
    if wanted > SHIFT_WITHOUT_BOUND { shift_for(size) } else { wanted }
}

fn wanted_shift(size: u64) -> u32 {
    (64 - (size / 8).leading_zeros()).max(SHIFT_MIN)
}

impl Window {
    /// Returns true if this window covers the extent with this key.
    #[inline(always)]
    pub fn is(&self, key: u64) -> bool {
        self.key.load(Relaxed) == key
    }

    /// Returns true if the first `bytes` bytes of the extent are mapped.
    #[inline(always)]
    pub fn is_mapped(&self, bytes: usize) -> bool {
        // SYNC: window-mapped (acquire).
        bytes <= self.mapped.load(Ordering::Acquire)
    }

    /// Returns the base-2 logarithm of the size of the extent, in bytes.
    pub fn shift(&self) -> u32 {
        (self.key.load(Relaxed) & 63) as u32
    }

    /// Returns the address of the open file that the window belongs to; 0 while the window is free.
    pub(crate) fn owner(&self) -> usize {
        self.owner.load(Relaxed)
    }

    /// Returns the offset of the extent in the file, in bytes.
    pub fn start(&self) -> u64 {
        self.key.load(Relaxed) >> 6 << self.shift()
    }

    /// Returns the number of pages of the extent.
    pub fn pages(&self) -> usize {
        (1 << self.shift()) / PAGE_BYTES
    }

    /// Returns the state of page `page` of the window; `None` if the pages have no states yet.
    #[inline(always)]
    pub fn page(&self, page: usize) -> Option<&AtomicU8> {
        debug_assert!(page < self.pages());
        // SYNC: window-states (acquire).
        let states = self.states.load(Ordering::Acquire);
        // SAFETY: the states cover every page of the extent and callers pass pages within it; the states stay
        // mapped while the window is reachable.
        (!states.is_null()).then(|| unsafe { &*states.add(page) })
    }

    /// Returns the state of group `group` of the window.
    #[inline(always)]
    pub fn group(&self, group: usize) -> &AtomicU8 {
        debug_assert!(group < self.pages() / GROUP_PAGES);
        // SAFETY: the states cover every group of the extent and callers pass groups within it; the states
        // stay mapped while the window is reachable.
        unsafe { &*self.groups.load(Relaxed).add(group) }
    }

    /// Returns the address of the state of group `group`, which is valid memory only while the window is
    /// reachable.
    #[inline(always)]
    pub fn group_address(&self, group: usize) -> *const u8 {
        self.groups.load(Relaxed).wrapping_add(group).cast()
    }

    /// Returns the state of page `page`, to be changed; `None` if there is no memory for the states, or
    /// another thread holds the lock.
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
        let Some(held) = state::LOCK.try_hold() else { return };
        if self.states.load(Relaxed).is_null() {
            let pages = self.pages();
            let within =
                (pages <= PAGES_WITHIN).then(|| self.within[pages / GROUP_PAGES..].as_ptr().cast_mut());
            if let Some(states) = within.or_else(|| self.mapped_states.resized(pages)) {
                // SYNC: window-states (release).
                self.states.store(states, Ordering::Release);
            }
        }
        drop(held);
    }

    /// Returns the state of group `group`, to be changed.
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

    /// Notes the time of the windows' clock as the time of last use.
    #[inline(always)]
    pub fn used(&self) {
        let now = CLOCK.load(Relaxed);
        if self.last_used.load(Relaxed) != now {
            self.last_used.store(now, Relaxed);
        }
    }

    /// Advances the clock; returns true if the window is not mapped, or its mapping was not used since the
    /// tick before.
    pub(crate) fn is_idle_at_next_tick(&self) -> bool {
        let now = CLOCK.fetch_add(1, Relaxed) + 1;
        self.mapped.load(Relaxed) == 0 || self.is_idle(now)
    }

    fn is_idle(&self, now: u32) -> bool {
        now.wrapping_sub(self.last_used.load(Relaxed)) >= 2
    }

    /// Clears the states of the pages from `first` on, and of the groups that they lie in.
    pub(crate) fn forget_from(&self, first: usize) {
        let marked = self.marked.load(Relaxed) as usize;
        (first..marked).filter_map(|page| self.page(page)).for_each(pages::forget);
        (first / GROUP_PAGES..marked / GROUP_PAGES).for_each(|group| pages::forget(self.group(group)));
    }

    /// Notes that no page of the window is in the page tables.
    fn note_unmapped(&self) {
        let marked = self.marked.load(Relaxed) as usize;
        (0..marked).filter_map(|page| self.page(page)).for_each(pages::set_unmapped);
        (0..marked / GROUP_PAGES).for_each(|group| groups::set_unmapped(self.group(group)));
    }

    /// Clears all states and the page-table entries of the mapping, so that the kernel can drop the pages.
    pub(crate) fn forget_pages(&self) {
        self.forget_from(0);
        let mapped = self.mapped.load(Relaxed);
        if mapped != 0 {
            sys::advise(self.base.load(Relaxed), mapped, Advice::DontNeed);
        }
    }
}

/// Makes a free window one of the open file at the address `owner`, without a mapping; `None` if no memory is
/// free. The caller holds the lock.
pub(crate) fn assign(
    window: &'static Window,
    owner: usize,
    index: u64,
    shift: u32,
) -> Option<&'static Window> {
    if !prepare_states(window, (1usize << shift) / PAGE_BYTES) {
        put_free(window);
        return None;
    }
    window.key.store(key(index, shift), Relaxed);
    window.mapped.store(0, Relaxed);
    window.wanted.store(0, Relaxed);
    window.displaced.store(0, Relaxed);
    window.owner.store(owner, Relaxed);
    window.last_used.store(CLOCK.load(Relaxed), Relaxed);
    Some(window)
}

/// Gives a window zeroed states for the groups of `pages` pages, in the window itself or in memory of its
/// own, which it may have from an earlier use. Returns false if the kernel refuses memory.
fn prepare_states(window: &Window, pages: usize) -> bool {
    // States of the earlier use are zeroed now, while the window still knows where they lie.
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
    let Some(states) = within.or_else(|| window.mapped_groups.resized(groups)) else { return false };
    window.groups.store(states, Relaxed);
    true
}

/// Maps the first `length` bytes of a window that has no mapping; `writable`: also for writing. Returns false
/// if the kernel refuses. The caller holds the lock, and its hazard names the window's file, which is behind
/// `fd`.
pub(crate) fn map(window: &Window, fd: i32, length: usize, writable: bool) -> bool {
    window.note_unmapped();
    let Ok(base) = sys::map_file(fd, window.start(), length, writable) else { return false };
    sys::advise(base, length, Advice::Random);
    sys::advise(base, length, Advice::DontFork);
    let total = MAPPED_TOTAL.fetch_add(length as u64, Relaxed) + length as u64;
    let most = MAPPED_MOST.fetch_max(total, Relaxed);
    threads::count(Counter::MappedBytesMost, total.saturating_sub(most));
    window.base.store(base, Relaxed);
    window.last_used.store(CLOCK.load(Relaxed), Relaxed);
    // SYNC: window-mapped (release; open_file's look-up acquires): the base is stored before the length.
    window.mapped.store(length, Ordering::Release);
    threads::count(Counter::WindowsMapped, 1);
    true
}

/// Removes the mapping of a window, if it has one. Returns false if another thread still uses it. The caller
/// holds the lock, and its hazard names the window's file.
pub(crate) fn unmap(window: &Window) -> bool {
    retract(window, threads::other_hazards, TURNS)
}

/// Destroys a window that its file no longer names. Returns false if a thread still uses it. The caller holds
/// the lock.
pub(crate) fn destroy(window: &'static Window) -> bool {
    retract(window, threads::hazards, turns(window.owner.load(Relaxed))) && discard(window)
}

/// Like [`destroy`], for a caller whose own hazard names the window's file.
pub(crate) fn destroy_held(window: &'static Window) -> bool {
    unmap(window) && discard(window)
}

fn discard(window: &'static Window) -> bool {
    window.owner.store(0, Relaxed);
    put_free(window);
    true
}

/// Destroys the windows of the open file at the address `owner` that the file no longer names and that could
/// not be destroyed earlier. Returns false if one of them is still in use. The caller holds the lock.
pub(crate) fn sweep(owner: usize, names: impl Fn(&Window) -> bool) -> bool {
    (0..USED.load(Relaxed))
        .filter_map(at)
        .filter(|window| window.owner.load(Relaxed) == owner && !names(window))
        .filter(|window| !destroy(window))
        .count()
        == 0
}

/// Returns the number of checks of the hazards before a window of the open file at this address is left for
/// later: one if the calling thread interrupted a copy of the file itself, because that copy cannot end
/// meanwhile.
pub(crate) fn turns(owner: usize) -> u32 {
    let interrupted = threads::known().is_some_and(|thread| thread.hazard.load(Relaxed) == owner);
    if interrupted { 1 } else { TURNS }
}

/// Unmaps the window once no hazard names its file; returns false if one still does after `turns` checks.
fn retract<I>(window: &Window, hazards: impl Fn() -> I, turns: u32) -> bool
where
    I: Iterator<Item = &'static AtomicUsize>,
{
    let length = window.mapped.swap(0, Ordering::AcqRel);
    let owner = window.owner.load(Relaxed);
    if !reclaim::wait_until_unused(hazards, owner, turns, threads::alone) {
        // A thread was stopped in the middle of a copy. The mapping stays, and its removal is tried again
        // later.
        window.mapped.store(length, Ordering::Release);
        return false;
    }
    if length != 0 {
        // SAFETY: no thread uses the mapping and none can reach it, because `mapped` was 0 before the hazards
        // were checked.
        unsafe { sys::unmap(window.base.load(Relaxed), length) };
        MAPPED_TOTAL.fetch_sub(length as u64, Relaxed);
    }
    true
}

/// Advances the clock and returns its value if this attempt to make room is to be carried out. Finding a
/// window to release means a look at all of them, and a window that is released too early is mapped again, so
/// most attempts are refused and the kernel serves the request.
pub(crate) fn wish() -> Option<u32> {
    let granted = WISHES.fetch_add(1, Relaxed).is_multiple_of(WISHES_PER_EVICTION);
    granted.then(|| CLOCK.fetch_add(1, Relaxed) + 1)
}

/// Returns the window that was used least recently among those in use that `would_do` accepts. A window that
/// was used since the tick before `now` is kept, because it would be needed again at once.
pub(crate) fn idlest(now: u32, would_do: fn(&Window) -> bool) -> Option<&'static Window> {
    (0..USED.load(Relaxed))
        .filter_map(at)
        .filter(|window| window.owner.load(Relaxed) != 0 && would_do(window) && window.is_idle(now))
        .max_by_key(|window| now.wrapping_sub(window.last_used.load(Relaxed)))
}

/// Returns the number of bytes of all mappings together.
pub(crate) fn mapped_total() -> u64 {
    MAPPED_TOTAL.load(Relaxed)
}

/// Returns window `index`, if the pool has grown that far.
fn at(index: usize) -> Option<&'static Window> {
    POOL.get(index)
}

/// Returns a window that is free, if there is one left. The caller holds the lock.
pub(crate) fn take_free() -> Option<&'static Window> {
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
