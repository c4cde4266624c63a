//! Faults of committing that take more than a condition ([`crate::mutants`]).

use super::Log;
use crate::head::Head;
use crate::layout::{BATCH_HEADER, BATCH_MAX, BatchHeader};
use crate::mutants::{Mutant, is_chosen, pause};
use crate::sys::{self, Errno};
use core::ffi::c_int;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicPtr, AtomicUsize};

/// Time between reading a file and drawing the sequence number, in ns.
const SEQUENCE_LATE_NS: u32 = 500_000;
/// Time that the next batch collects commits before it overtakes the sealed one, in ns, and number of looks at it.
const COLLECT_NS: u32 = 200_000;
const COLLECT_LOOKS: usize = 10;
/// Time between writing a batch and the one before it, in ns.
const WRONG_ORDER_NS: u32 = 1_000_000;
/// Greatest size of a file that is read early.
const EARLY_MAX: usize = 1 << 20;

/// Contents of the file that this process, which has one thread, is about to commit.
static EARLY: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
static EARLY_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Reads a file before its commit draws a sequence number.
pub(super) fn read_early(fd: c_int) {
    if !is_chosen(Mutant::SequenceLate) {
        return;
    }
    if EARLY.load(Relaxed).is_null() {
        let Ok(memory) = sys::map_private(EARLY_MAX) else { return };
        EARLY.store(memory, Relaxed);
    }
    // SAFETY: the memory has this many bytes, and no reference leads into it.
    let read = unsafe { sys::read_at(fd, EARLY.load(Relaxed), EARLY_MAX, 0) };
    EARLY_BYTES.store(read.unwrap_or(0), Relaxed);
    pause(SEQUENCE_LATE_NS);
}

/// Copies bytes that were read early; false if they were not.
///
/// # Safety
/// `to` is writable for `length` bytes, to which no references exist.
pub(super) unsafe fn copy_early(to: *mut u8, offset: u64, length: usize) -> bool {
    let is_read = is_chosen(Mutant::SequenceLate)
        && (offset as usize).saturating_add(length) <= EARLY_BYTES.load(Relaxed);
    if is_read {
        // SAFETY: the early bytes reach up to the end of the range, and the caller promises the target.
        unsafe { to.copy_from_nonoverlapping(EARLY.load(Relaxed).add(offset as usize), length) };
    }
    is_read
}

impl Log {
    /// Writes and acknowledges the batch behind a sealed one, and then the sealed one. Returns false if nobody had
    /// committed to the later batch. The caller has the lock `write`.
    pub(super) fn write_in_wrong_order(&self, sealed: u64) -> bool {
        let header = self.shared.header();
        let (first, second) = ((sealed % 2) as usize, ((sealed + 1) % 2) as usize);
        for _ in 0..COLLECT_LOOKS {
            if header.filled[second].load(Acquire) != 0 {
                break;
            }
            pause(COLLECT_NS);
        }
        let Some(_append) = self.lock_append() else { return false };
        if header.filled[second].load(Acquire) == 0 || sealed <= header.durable.load(Acquire) {
            return false;
        }
        let written = self.write_both(sealed);
        if let Err(error) = written {
            self.fail(error);
            return true;
        }
        header.filled[first].store(0, Relaxed);
        header.records[first].store(0, Relaxed);
        header.sealed.store(0, SeqCst);
        header.collecting.store(sealed + 2, SeqCst);
        true
    }

    fn write_both(&self, sealed: u64) -> Result<(), Errno> {
        let header = self.shared.header();
        let tail = (header.tail_block.load(Relaxed), header.tail_number.load(Relaxed));
        let before = ((sealed - 1) % 2) as usize;
        let mut head = Head {
            block: header.head_block[before].load(Relaxed),
            number: sealed,
            previous: header.head_checksum[before].load(Relaxed),
        };
        let mut batches = [None; 2];
        for (batch, described) in (sealed..).zip(&mut batches) {
            let buffer = (batch % 2) as usize;
            let length = (BATCH_HEADER + header.filled[buffer].load(Acquire) as usize).min(BATCH_MAX);
            let found = BatchHeader {
                epoch: header.epoch.load(Relaxed),
                number: batch,
                length: length as u32,
                records: header.records[buffer].load(Relaxed) as u32,
                previous: head.previous,
            };
            let block = head.next_block(&self.geometry, tail, found.blocks()).ok_or(libc::ENOSPC)?;
            // SAFETY: the buffer has BATCH_MAX bytes. Nobody commits to either batch, since `append` is held.
            let bytes = unsafe { core::slice::from_raw_parts_mut(self.shared.buffer(batch), length) };
            let checksum = found.encode(bytes);
            head = head.behind(block, found.blocks(), checksum);
            *described = Some((batch, block, found));
        }
        for (batch, block, described) in batches.into_iter().rev().flatten() {
            let at = self.geometry.area_start() + block;
            self.log_file.write_batch(at, &described, self.shared.buffer(batch))?;
            if batch != sealed {
                let buffer = (batch % 2) as usize;
                header.head_checksum[buffer].store(head.previous, Relaxed);
                header.head_block[buffer].store(head.block, Relaxed);
                header.durable.store(batch, Release);
                self.shared.changed();
                pause(WRONG_ORDER_NS);
            }
        }
        Ok(())
    }
}
