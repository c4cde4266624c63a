//! Writes of an open file: which are mapped, which pages are written often enough for that, and what the
//! kernel's writes leave behind.
//!
//! A mapped write to a page with a device behind it pays only if many follow before the next fsync, and must
//! not make more dirty than a write through the kernel would. Both are found out here, at a cost that the
//! file's writes have paid for before (`passes_write`, `may_look`); docs/internals/policy.md has the
//! reasons.

use super::{MAPPED_WRITES, MARKED_BYTES_MAX, MEMORY_ONLY, OpenFile, REQUESTS_PER_LOOK, TIMED, now_ms};
use crate::copy::Fault;
use crate::pages::{self, PAGE_BYTES, PAGE_SHIFT};
use crate::policy::{self, Choice, Heat, WriteFacts};
use crate::process;
use crate::sys;
use crate::threads::Thread;
use crate::window::Window;
use bywash_session::FallbackReason as Why;
use bywash_sync::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};

/// Pages of the largest folio that a page cache makes (8 MiB on ext4).
const FOLIO_PAGES_MAX: u64 = 2048;
/// What a call that looks at folios costs, in writes whose thirtieth it may cost; and pages that it looks at for
/// the price of one more.
const LOOK_PRICE: u32 = 16;
const LOOK_PAGES: u64 = 1;
/// Of so many writes one is looked at, in a file none of whose pages may be written mapped.
const WRITES_PER_LOOK: u32 = 16;
/// Mapped writes a page that went over to them, from which on pages go over sooner, and by how much.
const PAYING_WRITES: u32 = 4;
const PAYING_DIVISOR: u32 = 8;
/// Pages that went over after which older ones count half.
const TURNED_MAX: u32 = 4096;
/// How often the kernel looks for pages to write to the device (vm.dirty_writeback_centisecs, as it is set
/// everywhere).
const WRITEBACK_MS: u64 = 5000;
/// Of this many pages of a block one may not have been written, so that the device writes at most 1.06 times
/// as much.
const WRITTEN_SHARE: u64 = 16;

/// What is remembered of a file's writes, besides its pages.
pub(super) struct WriteHistory {
    /// Writes by the kernel since a folio was looked at last, and how many must come before the next look.
    writes: AtomicU32,
    look_price: AtomicU32,
    /// Pages that went over to mapped writes, and mapped writes since.
    turned: AtomicU32,
    mapped_writes: AtomicU32,
    /// When the pages were taken for clean last, by [`now_ms`].
    clean_ms: AtomicU64,
}

impl WriteHistory {
    pub(super) fn clear(&self) {
        for word in [&self.writes, &self.look_price, &self.turned, &self.mapped_writes] {
            word.store(0, Relaxed);
        }
        self.clean_ms.store(0, Relaxed);
    }

    /// Whether the kernel may have written pages to the device meanwhile; asked at `now_ms`, and true once for
    /// each such time.
    fn may_have_been_written_back(&self, now_ms: u64) -> bool {
        let due = now_ms.saturating_sub(self.clean_ms.load(Relaxed)) >= WRITEBACK_MS;
        if due {
            self.clean_ms.store(now_ms, Relaxed);
        }
        due
    }

    fn count_mapped_write(&self) {
        self.mapped_writes.store(self.mapped_writes.load(Relaxed).wrapping_add(1), Relaxed);
    }
}

impl OpenFile {
    /// Serves a write of `length > 0` bytes at `offset`, or says why the kernel must.
    #[inline(always)]
    pub fn write(
        &self,
        fd: i32,
        offset: u64,
        length: usize,
        copy: impl Fn(*mut u8) -> Result<(), Fault>,
    ) -> Result<(), Why> {
        if !self.has(MAPPED_WRITES) {
            return Err(Why::Mode);
        }
        let end = offset + length as u64;
        if end > process::file_size_max() {
            return Err(Why::Growth);
        }
        let spot = self.locate(offset, length);
        let request = self.request(offset, length, spot, policy::STREAM_WRITE_BYTES);
        let memory_only = self.has(MEMORY_ONLY);
        let heat = match spot {
            Some((window, start)) if !memory_only && request.touched => self.heat(fd, window, start, length),
            _ => Heat::Clean,
        };
        // The clock is asked only where its answer matters.
        let times_age_ms = match memory_only || heat == Heat::Small {
            true => now_ms().saturating_sub(self.times_ms.load(Relaxed)),
            false => 0,
        };
        let facts = WriteFacts { allowed: true, times_age_ms, memory_only, heat };
        if let Choice::Kernel(why) = policy::write_way(&request, &facts) {
            return Err(why);
        }
        let Some((window, start)) = spot else { return Err(Why::Window) };
        let base = self.mapping(window, start, length, fd, end, true)?;
        if !self.proves_end(fd, window, base, start + length, end) {
            return Err(Why::Growth);
        }
        if !self.gate().enter_mapped() {
            return Err(Why::Contended);
        }
        let copied = copy(base.wrapping_add(start));
        self.gate().leave_mapped();
        copied.map_err(|Fault| Why::Fault)?;
        self.times_pending.store(1, Relaxed);
        if !memory_only {
            self.history.count_mapped_write();
        }
        Ok(())
    }

    /// The heat of the coolest page; looks at the folios of those that just became hot.
    #[inline(always)]
    fn heat(&self, fd: i32, window: &Window, start: usize, length: usize) -> Heat {
        let epoch = self.epoch.load(Relaxed);
        let mut coolest = Heat::Small;
        for page in pages::pages_of(start, length) {
            let mut heat = pages::heat(window.page(page), epoch);
            if heat == Heat::Hot && self.may_look() {
                heat = self.look_at_folio(fd, window, page, epoch);
            }
            coolest = coolest.min(heat);
        }
        coolest
    }

    /// Whether the writes since the last look at a folio have paid for it.
    fn may_look(&self) -> bool {
        self.history.writes.load(Relaxed) >= self.history.look_price.load(Relaxed)
    }

    /// Finds out whether a mapped write to a hot page would dirty more than pages that are dirty anyway. The
    /// dirty tag that cachestat(2) counts belongs to a whole folio, and folios are aligned to their size: if
    /// a block of 2^n pages was written (nearly) all over since the last fsync, and its sibling is clean or
    /// the block as large as folios get, every folio with a page of the block lies within the block, and
    /// (nearly) nothing is written in vain. What is found holds for all hot pages of the block.
    #[cold]
    fn look_at_folio(&self, fd: i32, window: &Window, page: usize, epoch: u8) -> Heat {
        let page = (window.start() >> PAGE_SHIFT) + page as u64;
        let mut price = 0;
        let mut unwritten = |first: u64, pages: u64| {
            price += LOOK_PRICE + (pages / LOOK_PAGES) as u32;
            let status = sys::cache_status(fd, first << PAGE_SHIFT, pages << PAGE_SHIFT);
            status.map(|status| status.unwritten)
        };
        let heat = |other| self.state(other).map_or(Heat::Clean, |state| pages::heat(state, epoch));
        let written = |other| other == page || heat(other) != Heat::Clean;
        let (mut first, mut size) = (page, 1);
        let found = match unwritten(page, 1) {
            None => Heat::Large,
            Some(0) => Heat::Clean,
            Some(_) => {
                let mut idle = 0;
                loop {
                    let sibling = first ^ size;
                    if size == FOLIO_PAGES_MAX || unwritten(sibling, size) == Some(0) {
                        break Heat::Small;
                    }
                    idle += (sibling..sibling + size).filter(|other| !written(*other)).count() as u64;
                    if idle * WRITTEN_SHARE > 2 * size {
                        break Heat::Large;
                    }
                    first = first.min(sibling);
                    size *= 2;
                }
            }
        };
        let mut pages_found = 0;
        for other in first..first + size {
            if let Some(state) = self.state(other)
                && (other == page || pages::heat(state, epoch) == Heat::Hot)
            {
                pages::found(state, epoch, found);
                pages_found += 1;
            }
        }
        self.history.writes.store(0, Relaxed);
        self.history.look_price.store(price, Relaxed);
        if found == Heat::Small {
            self.flags.fetch_or(TIMED, Relaxed);
            self.note_turned(pages_found);
        }
        found
    }

    /// The state of a page of the file, if there is a window for it. The caller's hazard names the file.
    fn state(&self, page: u64) -> Option<&'static AtomicU8> {
        let (window, start) = self.locate(page << PAGE_SHIFT, PAGE_BYTES)?;
        Some(window.page(start >> PAGE_SHIFT))
    }

    /// So many more pages are written through the mapping from here on. What is long ago counts less.
    fn note_turned(&self, pages: u32) {
        let (turned, mapped) = (self.history.turned.load(Relaxed), self.history.mapped_writes.load(Relaxed));
        let age = u32::from(turned >= TURNED_MAX);
        self.history.turned.store((turned >> age) + pages, Relaxed);
        self.history.mapped_writes.store(mapped >> age, Relaxed);
    }

    /// How many writes of a page by the kernel, on average, make it hot: fewer where mapped writes have paid for
    /// the change many times.
    fn hot_writes(&self) -> u32 {
        let (turned, mapped) = (self.history.turned.load(Relaxed), self.history.mapped_writes.load(Relaxed));
        let pays = turned != 0 && mapped / turned >= PAYING_WRITES;
        process::settings().hot_writes / if pays { PAYING_DIVISOR } else { 1 }
    }

    /// Whether the kernel serves the next write without further ado. While no page may be written mapped yet, it
    /// is enough to look at some writes, so that those that never will be lose next to nothing.
    #[inline(always)]
    pub(crate) fn passes_write(&self) -> bool {
        let flags = self.flags.load(Relaxed);
        if flags & MAPPED_WRITES == 0 {
            return true;
        }
        flags & TIMED == 0
            && !self.history.writes.load(Relaxed).is_multiple_of(WRITES_PER_LOOK)
            && process::settings().hot_writes >= WRITES_PER_LOOK * pages::STEPS_BY_LOT
    }

    /// Why such a write is the kernel's.
    pub(crate) fn why_passed(&self) -> Why {
        if self.has(MAPPED_WRITES) { Why::Clean } else { Why::Mode }
    }

    /// The kernel has served such a write.
    #[inline(always)]
    pub(crate) fn note_passed_write(&self) {
        self.history.writes.store(self.history.writes.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// The kernel has written these bytes.
    pub fn note_write(&self, thread: &Thread, fd: i32, offset: u64, length: u64) {
        let end = offset + length;
        self.note_passed_write();
        self.reaches(end);
        if self.has(MEMORY_ONLY) && self.streams_to(end) && length >= policy::STREAM_WRITE_BYTES as u64 {
            self.settle(thread, fd, end, length, policy::STREAM_PASSES * REQUESTS_PER_LOOK);
            return;
        }
        if self.has(TIMED) {
            let now = now_ms();
            self.times_pending.store(0, Relaxed);
            self.times_ms.store(now, Relaxed);
            if self.history.may_have_been_written_back(now) {
                self.note_sync();
            }
        }
        let epoch = self.epoch.load(Relaxed);
        let stands_for = if self.has(TIMED) { 1 } else { WRITES_PER_LOOK };
        let lot = thread.draw_lot(self.hot_writes() / (pages::STEPS_BY_LOT * stands_for));
        self.mark(offset, length.min(MARKED_BYTES_MAX), |page| {
            pages::set_seen(page);
            pages::warm(page, epoch, lot);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_taken_for_clean_once_in_a_while() {
        let zero = || AtomicU32::new(0);
        let history = WriteHistory {
            writes: zero(),
            look_price: zero(),
            turned: zero(),
            mapped_writes: zero(),
            clean_ms: AtomicU64::new(0),
        };
        let answers = [9000, 9001, 13_999, 14_000, 14_001].map(|now| history.may_have_been_written_back(now));
        assert_eq!(answers, [true, false, false, true, false]);
    }
}
