//! Warming of an open file: notes the reads that the kernel serves, so that later ones need no system call,
//! and decides which reads are passed to the kernel at once.
//!
//! A page is worth a mapping only if it is read again, and nobody knows that in advance. So a group of pages
//! ([`crate::groups`]) is warmed once the kernel has read it so often that as many mapped reads would have
//! saved the price of warming. Groups around it that were read half as often are warmed in the same step,
//! because asking for cached pages and taking page faults cost less per group in larger steps. The thread's
//! account ([`crate::account`]) pays for every step and measures saving and price; docs/internals/policy.md
//! has the reasons.

use super::{MEMORY_ONLY, OpenFile, each_page};
use crate::account;
use crate::copy::guarded_byte;
use crate::groups::{self, GROUP_BYTES, GROUP_PAGES, GROUP_SHIFT};
use crate::pages::{self, PAGE_BYTES};
use crate::policy;
use crate::state;
use crate::sys;
use crate::threads::Thread;
use crate::window::{self, Window};
use bywash_session::FallbackReason as Why;
use bywash_sync::{AtomicU8, Ordering::Relaxed};
use core::ops::Range;

/// Number of due reads, of groups of which some page was not cached, of which one asks the page cache again.
const READS_PER_NEW_LOOK: u32 = 16;
/// Number of reads without a window of which one makes a large window.
const READS_PER_LARGE_WINDOW: u32 = 128;

/// Group of a window, by its index there.
#[derive(Clone, Copy)]
struct Spot {
    window: &'static Window,
    group: usize,
}

impl Spot {
    fn state(self) -> &'static AtomicU8 {
        self.window.group_to_mark(self.group)
    }
}

impl OpenFile {
    /// Returns true if the kernel serves the next read at once, because the read continues a stream in a
    /// group that is not warm. The first read of each group is not passed on in this way.
    #[inline(always)]
    pub(crate) fn passes_read(&self, offset: u64, length: usize) -> bool {
        let passes = length >= policy::STREAM_READ_BYTES
            && self.goes_on(offset)
            && offset as usize % GROUP_BYTES >= length
            && !self.is_warm_by_hint(offset);
        if passes {
            self.continues(offset, length);
        }
        passes
    }

    /// Returns true if the kernel serves the next read because no page of the group at `offset` is in the
    /// page tables, and the group was not read often enough yet or the thread's account cannot pay for
    /// warming. The read is counted as a visit. The caller's hazard names the file.
    #[inline(always)]
    pub(crate) fn passes_cold(&self, thread: &Thread, offset: u64, length: usize) -> bool {
        if self.goes_on(offset) {
            return false;
        }
        let pays = thread.account.can_pay();
        let Some(spot) = self.group_at(offset) else { return !(pays && self.may_make_window(thread)) };
        let group = spot.window.group(spot.group);
        let is_due = groups::visits(group) >= thread.account.visits_to_warm();
        if groups::is_mapped_somewhere(group) || (pays && is_due) {
            return false;
        }
        groups::visit(spot.state());
        if length >= policy::STREAM_READ_BYTES {
            self.continues(offset, length);
        }
        true
    }

    /// Returns true if a read without a window may make one. A large window needs memory for its states,
    /// which costs as much as ten reads and does not pay in a short run over a large file, so only some reads
    /// make one.
    fn may_make_window(&self, thread: &Thread) -> bool {
        self.shift() <= window::SHIFT_WITHIN || thread.draw_lot(READS_PER_LARGE_WINDOW)
    }

    /// Returns true if a read at `offset` continues a stream.
    #[inline(always)]
    fn goes_on(&self, offset: u64) -> bool {
        self.stream.load(Relaxed) > policy::STREAM_REQUESTS && self.last_end.load(Relaxed) == offset
    }

    /// Returns true if the last request of a stream ended at `end`.
    pub(super) fn streams_to(&self, end: u64) -> bool {
        self.goes_on(end)
    }

    /// Returns true if the kernel has served a read of the group at `offset` before.
    pub(super) fn was_passed(&self, offset: u64) -> bool {
        self.group_at(offset).is_some_and(|spot| groups::visits(spot.state()) > 0)
    }

    /// Returns true if the group at `offset` is warm, for callers without a hazard. The window and the memory
    /// of its states may be released meanwhile, so the state is loaded in a way that survives a fault.
    #[inline(always)]
    fn is_warm_by_hint(&self, offset: u64) -> bool {
        let Some(Spot { window, group }) = self.group_at(offset) else { return false };
        // SAFETY: a load of one byte whose fault is caught; any value that it finds is a valid hint.
        let state = unsafe { guarded_byte(window.group_address(group)) };
        state.is_ok_and(|state| groups::is_warm(&AtomicU8::new(state)))
    }

    /// Returns the group at `offset`, if the offset has a window.
    #[inline(always)]
    fn group_at(&self, offset: u64) -> Option<Spot> {
        let (window, start) = self.locate(offset, 1)?;
        Some(Spot { window, group: start >> GROUP_SHIFT })
    }

    /// Notes that the kernel has read these bytes, so that their pages are in the page cache now. Warms the
    /// group and those around it if that pays.
    pub fn note_read(&self, thread: &Thread, fd: i32, offset: u64, length: u64) {
        let end = offset + length;
        self.reaches(end);
        // Data that is transferred in large pieces is seldom read again in small ones.
        if length == 0 || length > state::settings().threshold as u64 {
            return;
        }
        let streams = self.streams_to(end) && length >= policy::STREAM_READ_BYTES as u64;
        let reads = if streams { (GROUP_BYTES as u64 / length).max(1) } else { 1 };
        // Only the first read of each group of a stream arrives here; the others were passed on and noted
        // nowhere.
        thread.account.add_kernel_reads(reads - 1);
        let pays = thread.account.can_pay();
        let began = if pays { account::now() } else { 0 };
        // A stream is warmed where it will continue.
        let spot = self.group_at(if streams { end } else { offset });
        let visits = spot.map_or(0, |spot| groups::visits(spot.state()));
        self.mark_groups(offset, length, pays, groups::visit);
        if pays && spot.is_none() {
            return thread.account.pay_since(began, 0);
        }
        let needed = thread.account.visits_to_warm_by(reads);
        let due = spot.filter(|spot| visits >= needed && spot.group < self.groups_in(spot.window));
        if let Some(spot) = due.filter(|_| pays) {
            self.warm_or_note(thread, fd, spot, offset..end, streams.then_some(needed));
        }
    }

    /// Warms the group at `spot`, which is due, and others with it; `read` is the range that the kernel has
    /// just read. If some page is not cached, only the pages of the read are noted. The thread's account is
    /// charged.
    fn warm_or_note(&self, thread: &Thread, fd: i32, spot: Spot, read: Range<u64>, stream: Option<u8>) {
        let mut began = account::now();
        let base = self.mapping_for(fd, spot.window, &(spot.group..spot.group + 1));
        thread.account.pay_since(began, 0);
        let Ok(base) = base else { return };
        began = account::now();
        let in_vain = groups::is_looked_at(spot.state()) && !thread.draw_lot(READS_PER_NEW_LOOK);
        let warmed = if in_vain { 0 } else { self.warm(thread, fd, spot, base, stream) };
        if warmed == 0 && groups::is_looked_at(spot.state()) && stream.is_none() {
            self.note_cached(fd, read.start, read.end, in_vain);
        }
        thread.account.pay_since(began, warmed as u64);
    }

    /// Notes that the pages of a read are cached although some pages around them are not. On a file system in
    /// memory, reading a hole through a mapping would allocate a page, which a read by the kernel does not;
    /// so there the page cache is asked first, and nothing is noted if the last look was `in_vain`.
    fn note_cached(&self, fd: i32, offset: u64, end: u64, in_vain: bool) {
        if !self.has(MEMORY_ONLY) || (!in_vain && is_cached(fd, offset, end)) {
            self.mark(offset, end - offset, pages::set_seen);
        }
    }

    /// Warms a group that is due, and others as far as the account can pay: groups around it, or the groups
    /// that a `stream` reads next if they had as many visits. Returns the number of warmed groups; 0 if some
    /// page is not cached.
    fn warm(&self, thread: &Thread, fd: i32, spot: Spot, base: *mut u8, stream: Option<u8>) -> usize {
        let Spot { window, group } = spot;
        let most = thread.account.groups_to_warm();
        let mut block = match stream {
            Some(visits) => self.ahead(spot, most, visits),
            None => self.around(spot, most, thread.account.visits_to_warm()),
        };
        if !self.is_cached(fd, window, &block) {
            if block.len() == 1 || !self.is_cached(fd, window, &(group..group + 1)) {
                groups::set_looked_at(spot.state());
                return 0;
            }
            block = group..group + 1;
        }
        block.filter(|group| self.touch(window, base, *group)).count()
    }

    /// Returns the groups that a stream reads next, up to `most`, that had at least `visits` visits and are
    /// not warm.
    fn ahead(&self, Spot { window, group }: Spot, most: usize, visits: u8) -> Range<usize> {
        let end = self.groups_in(window).min(group + most);
        let is_due = |group: &usize| {
            let state = window.group(*group);
            groups::visits(state) >= visits && !groups::is_warm(state)
        };
        group..group + (group..end).take_while(is_due).count().max(1)
    }

    /// Returns the largest aligned block of up to `most` groups around one in which the groups that are not
    /// warm had at least half of `visits` visits on average.
    fn around(&self, Spot { window, group }: Spot, most: usize, visits: u8) -> Range<usize> {
        let mut length = 1 << most.ilog2();
        loop {
            let first = group & !(length - 1);
            let block = first..self.groups_in(window).min(first + length).max(group + 1);
            let cold = block.clone().map(|group| window.group(group)).filter(|state| !groups::is_warm(state));
            let (count, sum) =
                cold.fold((0, 0), |(count, sum), state| (count + 1, sum + u32::from(groups::visits(state))));
            if length == 1 || sum * 2 >= count * u32::from(visits) {
                return block;
            }
            length /= 2;
        }
    }

    /// Returns the number of groups of a window that lie within the file, at least in part.
    fn groups_in(&self, window: &Window) -> usize {
        let bytes = self.size().saturating_sub(window.start()).min(1 << window.shift());
        (bytes as usize).div_ceil(GROUP_BYTES)
    }

    /// Maps a window far enough to cover a block of its groups up to the end of the file, and returns its
    /// address.
    fn mapping_for(&self, fd: i32, window: &'static Window, block: &Range<usize>) -> Result<*mut u8, Why> {
        let (start, end) = self.bytes_of(window, block);
        if start >= end {
            return Err(Why::End);
        }
        self.mapping(window, start, end - start, fd, window.start() + end as u64)
    }

    /// Returns the offsets in the window at which a block of groups begins and ends; the end is cut to the
    /// file's.
    fn bytes_of(&self, window: &Window, block: &Range<usize>) -> (usize, usize) {
        let there = self.size().saturating_sub(window.start()) as usize;
        (block.start * GROUP_BYTES, there.min(block.end * GROUP_BYTES))
    }

    fn is_cached(&self, fd: i32, window: &Window, block: &Range<usize>) -> bool {
        let (start, end) = self.bytes_of(window, block);
        start < end && is_cached(fd, window.start() + start as u64, window.start() + end as u64)
    }

    /// Takes the page faults of a group whose pages are cached. Returns false if the group was warm, is not
    /// mapped, or a load faulted. One fault maps all pages of a group if the mapping is aligned to groups;
    /// otherwise the faults at the first and at the last byte do.
    fn touch(&self, window: &Window, base: *mut u8, group: usize) -> bool {
        let state = window.group_to_mark(group);
        let (start, end) = self.bytes_of(window, &(group..group + 1));
        if groups::is_warm(state) || start >= end || !window.is_mapped(end) {
            return false;
        }
        let touched = [start, end - 1].iter().all(|at| {
            // SAFETY: a load of one byte of the mapping, which the caller's hazard keeps; its fault is
            // caught.
            unsafe { guarded_byte(base.wrapping_add(*at)) }.is_ok()
        });
        if touched && end == (group + 1) * GROUP_BYTES {
            groups::set_warm(state);
        } else if touched {
            // The file ends in this group. If the file grows, pages behind the old end need not be cached or
            // exist.
            for page in pages::pages_of(start, end - start).filter_map(|page| window.page_to_mark(page)) {
                pages::set_seen(page);
                pages::set_mapped(page);
            }
            groups::set_partly(state);
        }
        touched
    }
}

/// Returns true if each page of these bytes is in the page cache.
fn is_cached(fd: i32, offset: u64, end: u64) -> bool {
    let first = offset & !(PAGE_BYTES as u64 - 1);
    let length = end.next_multiple_of(PAGE_BYTES as u64) - first;
    sys::cached_pages(fd, first, length).is_some_and(|pages| pages >= length / PAGE_BYTES as u64)
}

/// Notes that the pages of a read of `length` bytes from `start` on are in the page tables, and the pages of
/// their groups that a fault maps along with them.
pub(super) fn note_mapped(window: &Window, start: usize, length: usize) {
    for group in groups::groups_of(start, length) {
        let first = group * GROUP_PAGES;
        (first..first + GROUP_PAGES).filter_map(|page| window.page(page)).for_each(pages::set_mapped);
        groups::set_partly(window.group_to_mark(group));
    }
}

/// Returns true if each page of a request was in the page cache when it was last noted.
#[inline(always)]
pub(super) fn is_seen(spot: Option<(&Window, usize)>, length: usize) -> bool {
    is_warm(spot, length) || each_page(spot, length, pages::is_seen)
}

/// Returns true if each group of a request is warm.
#[inline(always)]
pub(super) fn is_warm(spot: Option<(&Window, usize)>, length: usize) -> bool {
    spot.is_some_and(|(window, start)| {
        groups::groups_of(start, length).all(|group| groups::is_warm(window.group(group)))
    })
}
