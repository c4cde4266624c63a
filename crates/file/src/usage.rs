//! What each file contributed, collected without threads getting in each other's way.
//!
//! A thread counts into one of a few tallies of its own, hands a tally on to the open file when it is full
//! or wanted for another file, and the file hands its sums to the process's record when it is closed and at
//! the end of the process. Nothing of this happens unless a session asked for it.

use crate::open_file::OpenFile;
use crate::process;
use crate::threads::{Tally, Thread};
use bywash_sync::Ordering::Relaxed;

/// Calls that a tally holds before it is handed on.
const TALLY_CALLS: u64 = 256;

/// Who served a call.
#[derive(Clone, Copy)]
#[repr(usize)]
pub(crate) enum By {
    User = 0,
    Kernel = 2,
}

/// Counts one call for `file`.
#[inline]
pub(crate) fn count(thread: &Thread, file: &OpenFile, by: By, bytes: u64) {
    if process::wants_files() {
        tally(thread, file, by, bytes);
    }
}

fn tally(thread: &Thread, file: &OpenFile, by: By, bytes: u64) {
    let address = core::ptr::from_ref(file) as usize;
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

/// Hands on all that a thread still holds.
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
    // SAFETY: tallies hold addresses of the pool of open files, which is never unmapped; the serial tells
    // whether it is still the same file.
    let file = unsafe { &*(address as *const OpenFile) };
    if file.serial() == tally.serial.load(Relaxed) {
        file.add_usage(usage);
    }
}
