//! Writes of an open file: those through the mapping, and notes about those that the kernel serves.
//!
//! Writes are mapped only if the user asked for it, and only on file systems in memory (tmpfs). A mapped
//! write copies first and proves the size afterwards ([`OpenFile::write`]): another process may truncate the
//! file during the copy, and then the copied bytes lie behind the new end.
//!
//! [`crate::table`] calls this module and holds the hazard.

use super::warming::is_seen;
use super::{MAPPED_WRITES, MARKED_BYTES_MAX, OpenFile, now_ms};
use crate::buffer::Buffer;
use crate::copy::Fault;
use crate::groups;
use crate::pages;
use crate::policy::{self, Route, WriteFacts};
use crate::state;
use crate::threads::{self, Inside};
use bywash_session::FallbackReason as Why;
use bywash_sync::{Ordering::Relaxed, full_fence};

impl OpenFile {
    /// Serves a write of `length > 0` bytes at `offset`.
    ///
    /// The size is proved after the copy, without the copied bytes. If it cannot be proved, the file was
    /// truncated during the copy, and the kernel must write the same bytes: the result is that of a
    /// truncation followed by the write. The bytes behind the known end are not cleared, because another
    /// process may have written them by now.
    ///
    /// # Errors
    /// The reason for which the kernel must serve the write.
    ///
    /// # Safety
    /// The conditions of [`Buffer::copy_to`] hold for the program's buffer, and the caller's hazard names the
    /// file.
    #[inline(always)]
    pub unsafe fn write(&self, fd: i32, offset: u64, length: usize, buffer: Buffer<'_>) -> Result<(), Why> {
        let end = offset + length as u64;
        if end > state::file_size_max() {
            return Err(Why::Growth);
        }
        let spot = self.locate(offset, length);
        let request = self.request(offset, length, is_seen(spot, length), policy::STREAM_WRITE_BYTES);
        let facts = WriteFacts {
            mapped_writes: self.may_map_writes(),
            allowed: self.has(MAPPED_WRITES),
            times_age_ms: now_ms().saturating_sub(self.times_ms.load(Relaxed)),
        };
        if let Route::Kernel(why) = policy::route_write(&request, &facts) {
            return Err(why);
        }
        let Some((window, start)) = spot else { return Err(Why::Window) };
        let base = self.mapping(window, start, length, fd, end)?;
        let mut proved = Err(Fault);
        self.alone_in_gate(|| {
            // SAFETY: the caller promises the buffer; its hazard keeps the mapping, and faults are caught.
            proved = unsafe { buffer.copy_to(base.wrapping_add(start), length) }.map(|()| {
                // The copy must be visible before the size is read.
                full_fence();
                self.proves_end_behind(fd, window, base, start + length, end)
            });
        })?;
        if proved.map_err(|Fault| Why::Fault)? { Ok(()) } else { Err(Why::Growth) }
    }

    /// Runs `copy` while no other thread of this process writes the inode through a mapping.
    ///
    /// # Errors
    /// [`Why::Contended`] if the thread has no record, or another writer stays inside the gate; `copy` did
    /// not run.
    #[inline(always)]
    fn alone_in_gate(&self, copy: impl FnOnce()) -> Result<(), Why> {
        let thread = threads::known().ok_or(Why::Contended)?;
        let gate = self.gate();
        // The gate is noted before it is entered, so that it is left even if a signal handler jumps out of
        // the copy.
        let noted = thread.enters(gate, Inside::Mapped);
        let entered = gate.enter_mapped(thread.token());
        if entered {
            copy();
            gate.leave_mapped(thread.token());
        }
        if noted {
            thread.leaves();
        }
        if entered { Ok(()) } else { Err(Why::Contended) }
    }

    /// Returns true if the user asked for mapped writes and the file exists only in memory.
    fn may_map_writes(&self) -> bool {
        state::settings().writes && self.is_in_memory()
    }

    /// Returns true if the kernel serves every write of this file.
    #[inline(always)]
    pub(crate) fn passes_writes(&self) -> bool {
        !self.has(MAPPED_WRITES)
    }

    /// Returns the reason for which the kernel serves every write of this file.
    pub(crate) fn why_passed(&self) -> Why {
        if self.may_map_writes() { Why::Mode } else { Why::Write }
    }

    /// Returns true if writes of this process by the kernel must pass the gate, because some write of the
    /// inode may be mapped or mapped reads must see each write whole.
    #[inline(always)]
    pub(crate) fn needs_gate(&self) -> bool {
        self.reads_are_atomic() || self.may_map_writes()
    }

    /// Notes that the kernel has written these bytes.
    pub fn note_write(&self, offset: u64, length: u64) {
        let end = offset + length;
        self.reaches(end);
        if self.passes_writes() {
            return;
        }
        if self.streams_to(end) && length >= policy::STREAM_WRITE_BYTES as u64 && !self.was_passed(offset) {
            // A page that is written once in passing does not earn back its page fault.
            self.mark_groups(offset, length.min(MARKED_BYTES_MAX), true, groups::visit);
            return;
        }
        self.times_ms.store(now_ms(), Relaxed);
        self.mark(offset, length.min(MARKED_BYTES_MAX), pages::set_seen);
    }
}
