//! Usage per file, counted without contention between threads.
//!
//! A thread counts into one of a few tallies of its own. It adds a tally to the open file when the tally is
//! full or is needed for another file. The file adds its sums to the process's record when it is closed and
//! at the end of the process. Nothing is counted unless a session asked for usage per file.

use super::{OpenFile, PATH_BYTES};
use crate::state;
use crate::threads::{self, Tally, Thread};
use bywash_sync::Ordering::Relaxed;

/// Number of calls after which a tally is added to its open file.
const TALLY_CALLS: u64 = 256;

/// Server of a call; the value is the index of its calls in a tally, followed by its bytes.
#[derive(Clone, Copy)]
#[repr(usize)]
pub(crate) enum By {
    User = 0,
    Kernel = 2,
}

/// Counts one call of `bytes` bytes for `file`, if usage is counted per file.
#[inline]
pub(crate) fn count(thread: &Thread, file: &OpenFile, by: By, bytes: u64) {
    if state::wants_files() {
        tally(thread, file, by, bytes);
    }
}

fn tally(thread: &Thread, file: &OpenFile, by: By, bytes: u64) {
    let address = file.address();
    let tally = &thread.tallies[(address / size_of::<OpenFile>()) % thread.tallies.len()];
    let serial = file.serial();
    if tally.file.load(Relaxed) != address || tally.serial.load(Relaxed) != serial {
        empty(tally);
        tally.file.store(address, Relaxed);
        tally.serial.store(serial, Relaxed);
    }
    let calls = tally.usage[by as usize].load(Relaxed) + 1;
    tally.usage[by as usize].store(calls, Relaxed);
    let sum = &tally.usage[by as usize + 1];
    sum.store(sum.load(Relaxed) + bytes, Relaxed);
    if calls >= TALLY_CALLS {
        empty(tally);
    }
}

/// Adds all tallies of a thread to their open files.
pub(crate) fn hand_on(thread: &Thread) {
    for tally in &thread.tallies {
        empty(tally);
        tally.file.store(0, Relaxed);
    }
}

fn empty(tally: &Tally) {
    let address = tally.file.load(Relaxed);
    if address == 0 {
        return;
    }
    let usage = [0, 1, 2, 3].map(|index: usize| tally.usage[index].swap(0, Relaxed));
    // SAFETY: tallies hold addresses of the pool of open files, which is never unmapped; the comparison of
    // the serials detects an entry that was reused.
    let file = unsafe { &*(address as *const OpenFile) };
    if file.serial() == tally.serial.load(Relaxed) {
        file.add_usage(usage);
    }
}

impl OpenFile {
    pub(crate) fn add_usage(&self, usage: [u64; 4]) {
        for (sum, more) in self.usage.iter().zip(usage) {
            sum.fetch_add(more, Relaxed);
        }
    }

    /// Adds the counts of this file to the process's record, if usage is collected per file.
    pub(crate) fn report_usage(&self) {
        if !state::wants_files() {
            return;
        }
        if let Some(thread) = threads::known() {
            hand_on(thread);
        }
        let Some(record) = state::record() else { return };
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
