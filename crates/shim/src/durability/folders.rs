//! Syncs of folders: a folder that has not changed since the kernel made it durable is durable.
//!
//! A program that commits by a journal beside its file syncs their folder each time (SQLite does), whether a name in it has
//! changed or not. Every change of a folder gives it a new time of change (ctime, inode(7)). The kernel takes that time from
//! a clock that moves on some hundred times a second, so two changes may get the same: a sync counts only if the last change
//! was well before it. Any later change then has another time.

use super::descriptors::is_covered;
use bywash_log::checksum::checksum;
use bywash_log::commit::Log;
use bywash_log::join::is_logged_filesystem;
use bywash_log::shared::Counter;
use bywash_log::sys;
use core::ffi::c_int;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

/// Number of folders that are remembered.
const FOLDERS: usize = 16;
/// Least time between the last change of a folder and a sync that makes it durable, in nanoseconds: more than the kernel's
/// clock of files moves at a time.
const SETTLED_NS: u64 = 100_000_000;

/// Hashes of folder and time of change, of folders that the kernel has made durable; 0: a free slot. Two of one hash count as
/// one, which 64 bits make as unlikely as a broken disk.
static DURABLE: [AtomicU64; FOLDERS] = [const { AtomicU64::new(0) }; FOLDERS];
/// Slot that is used next.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Makes the file of a descriptor durable, which the log has no business with: by `kernel`, unless it is a folder that has
/// not changed since it was durable.
pub fn sync(log: &Log, fd: c_int, kernel: impl FnOnce() -> c_int) -> c_int {
    let Some((key, changed)) = sys::folder(fd) else {
        log.count(Counter::KernelElsewhere, 1);
        return kernel();
    };
    let state = hash(key, changed);
    if DURABLE.iter().any(|durable| durable.load(SeqCst) == state) {
        log.count(Counter::Clean, 1);
        return 0;
    }
    log.count(Counter::KernelElsewhere, 1);
    let has_settled = sys::now().is_some_and(|now| changed.saturating_add(SETTLED_NS) < now);
    let result = kernel();
    if result == 0 && has_settled && is_covered(fd) && is_logged_filesystem(fd) {
        let slot = NEXT.fetch_add(1, Relaxed) as usize % FOLDERS;
        DURABLE[slot].store(state, SeqCst);
    }
    result
}

/// Returns a number that is not zero for a folder and its time of change.
fn hash(key: (u64, u64, u64), changed: u64) -> u64 {
    let mut bytes = [0; 32];
    for (to, word) in bytes.chunks_exact_mut(8).zip([key.0, key.1, key.2, changed]) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    checksum(&bytes).max(1)
}
