//! Reads of an open file from its mapping.
//!
//! A read proves the size before it copies anything ([`OpenFile::fill`]): behind the end of the file, its
//! last page holds zeroes and does not fault, so the copy alone cannot detect that the file was truncated.
//!
//! [`crate::table`] calls this module and holds the hazard.

use super::warming::{is_warm, note_mapped};
use super::{DISABLED, OpenFile, Refusal, each_page};
use crate::account;
use crate::buffer::Buffer;
use crate::copy::{Fault, guarded_word};
use crate::pages::{self, PAGE_BYTES};
use crate::policy::{self, Route};
use crate::state;
use crate::threads::{self, Thread};
use crate::window::Window;
use bywash_session::{Counter, FallbackReason as Why};
use bywash_sync::Ordering::Relaxed;

impl OpenFile {
    /// Serves a read of `wanted > 0` bytes at `offset` and returns the number of bytes read. `may_pass`: the
    /// read may be refused as [`Refusal::Passed`], with the read noted.
    ///
    /// The usual case has a path of its own: all groups are warm and the file reaches behind the request.
    ///
    /// # Errors
    /// [`Refusal`] with the reason for which the kernel must serve the read.
    ///
    /// # Safety
    /// The conditions of [`Buffer::fill`] hold for the program's buffer, and the caller's hazard names the
    /// file.
    #[inline(always)]
    pub unsafe fn read(
        &self,
        thread: &Thread,
        fd: i32,
        offset: u64,
        wanted: usize,
        may_pass: bool,
        buffer: Buffer<'_>,
    ) -> Result<usize, Refusal> {
        let spot = self.locate(offset, wanted);
        if !is_warm(spot, wanted) {
            if may_pass && self.passes_cold(thread, offset, wanted) {
                return Err(Refusal::Passed);
            }
        } else if let Some((window, start)) = spot
            && offset + wanted as u64 <= self.size()
            && wanted <= state::settings().threshold
            && window.is_mapped(start + wanted)
            && !self.has(DISABLED)
        {
            let began = thread.account.begin_mapped_read();
            window.used();
            if wanted >= policy::STREAM_READ_BYTES {
                self.continues(offset, wanted);
            }
            let mark = self.mark_writes()?;
            // SAFETY: the caller promises the buffer and the hazard, which keeps the mapping.
            unsafe { self.fill(fd, window, start, offset, wanted, buffer) }?;
            thread.account.earn(began);
            self.check_writes(mark)?;
            return Ok(wanted);
        }
        // SAFETY: the caller promises the buffer and the hazard, which keeps the mapping.
        Ok(unsafe { self.read_by_choice(thread, fd, offset, wanted, buffer) }?)
    }

    /// Serves a read of any kind, in the way of [`OpenFile::read`].
    ///
    /// # Errors
    /// The reason for which the kernel must serve the read.
    ///
    /// # Safety
    /// Same as [`OpenFile::read`].
    #[inline(never)]
    unsafe fn read_by_choice(
        &self,
        thread: &Thread,
        fd: i32,
        offset: u64,
        wanted: usize,
        buffer: Buffer<'_>,
    ) -> Result<usize, Why> {
        if self.has(DISABLED) {
            return Err(Why::Mode);
        }
        let length = self.bytes_there(offset, wanted);
        let end = offset + length as u64;
        let spot = self.locate(offset, length);
        let warm = is_warm(spot, length);
        let touched = warm || each_page(spot, length, pages::is_seen);
        let request = self.request(offset, length, touched, policy::STREAM_READ_BYTES);
        if let Route::Kernel(why) = policy::route_read(&request) {
            return Err(why);
        }
        let Some((window, start)) = spot else { return Err(Why::Window) };
        let is_mapped = warm || each_page(spot, length, pages::is_mapped);
        if !is_mapped && !thread.account.can_pay() {
            return Err(Why::Warming);
        }
        let began = if is_mapped { thread.account.begin_mapped_read() } else { account::now() };
        let base = self.mapping(window, start, length, fd, end)?;
        let mark = self.mark_writes()?;
        // SAFETY: the caller promises the buffer; its hazard keeps the mapping.
        unsafe {
            if length == wanted {
                self.fill(fd, window, start, offset, length, buffer)?;
            } else if self.ends_at(fd, end) {
                buffer.fill(base.wrapping_add(start), length).map_err(|Fault| Why::Fault)?;
            } else {
                return Err(Why::End);
            }
        }
        if is_mapped {
            thread.account.earn(began);
        } else {
            note_mapped(window, start, length);
            thread.account.pay_since(began, 0);
        }
        self.check_writes(mark)?;
        Ok(length)
    }

    /// Copies the `length` bytes at `offset`, which begin at `start` in the mapped window, into the buffer if
    /// the file still reaches to their end. A last byte that is not zero proves that it does.
    ///
    /// # Errors
    /// - [`Why::End`] if the file ends before the last byte.
    /// - [`Why::Fault`] if a page of the file or of the buffer cannot be accessed.
    ///
    /// # Safety
    /// Same as [`OpenFile::read`].
    #[inline(always)]
    unsafe fn fill(
        &self,
        fd: i32,
        window: &Window,
        start: usize,
        offset: u64,
        length: usize,
        buffer: Buffer<'_>,
    ) -> Result<(), Why> {
        let base = window.base.load(Relaxed);
        let from: *const u8 = base.wrapping_add(start);
        // SAFETY: the caller promises the buffer; its hazard keeps the mapping, and faults are caught.
        unsafe {
            if !buffer.fill_unless_zero_ends(from, length).map_err(|Fault| Why::Fault)? {
                if !self.proves_end_of_zeroes(fd, window, base, start + length, offset + length as u64) {
                    return Err(Why::End);
                }
                buffer.fill(from, length).map_err(|Fault| Why::Fault)?;
            }
        }
        Ok(())
    }

    /// Returns the gate's mark for [`OpenFile::check_writes`] if a read of this file must see each write
    /// whole, and `None` if it need not.
    ///
    /// # Errors
    /// [`Why::Contended`] if a write is in progress.
    #[inline(always)]
    fn mark_writes(&self) -> Result<Option<u32>, Why> {
        if self.reads_are_atomic() { self.gate().mark().ok_or(Why::Contended).map(Some) } else { Ok(None) }
    }

    /// Checks that no write began or ended since the mark.
    ///
    /// # Errors
    /// [`Why::Contended`] if one did.
    #[inline(always)]
    fn check_writes(&self, mark: Option<u32>) -> Result<(), Why> {
        match mark {
            Some(mark) if !self.gate().unchanged(mark) => Err(Why::Contended),
            _ => Ok(()),
        }
    }

    /// Returns the number of bytes that a read of `wanted` bytes at `offset` finds by the known size: fewer
    /// near the end, and `wanted` at or behind the end, where only the kernel knows whether the file has
    /// grown.
    #[inline(always)]
    fn bytes_there(&self, offset: u64, wanted: usize) -> usize {
        match self.size().saturating_sub(offset) {
            0 => wanted,
            there => (wanted as u64).min(there) as usize,
        }
    }

    /// Asks the kernel, and returns true if the file now ends at `end`.
    #[cold]
    fn ends_at(&self, fd: i32, end: u64) -> bool {
        threads::count(Counter::SizeChecks, 1);
        self.refresh_size(fd) == Some(end)
    }

    /// Returns true if the file now reaches to `end`, which is `end_in_window` in the window, although the
    /// byte before `end` is zero. The proof is a later byte of the page that is not zero, or the next page,
    /// or the size from the kernel. (The kernel keeps the rest of a file's last page zero, and pages behind
    /// it fault.)
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
            // SAFETY: the word lies in the mapped window, which the caller's hazard keeps; a fault is caught.
            match unsafe { guarded_word(base.wrapping_add(page_end - 8)) } {
                Err(Fault) => return false,
                Ok(0) => {}
                Ok(_) => return true,
            }
        }
        self.proves_end_behind(fd, window, base, end_in_window, end)
    }
}
