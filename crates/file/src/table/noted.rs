//! Candidates of a process whose tables are not set up.
//!
//! Most processes read their files at the files' own positions, from start to end: no data path would ever serve that,
//! and no table is needed for it. So a process notes its candidates in one word until the first call comes that could
//! warm one of them. A forked child inherits the word with the rest of the parent's memory, so that in a process that
//! makes nothing but such calls (a shell, and each of its children) there is nothing to be reset.
//!
//! Where positions are kept at user level any call can warm a candidate, and where a session counts every call is
//! counted; then nothing is noted and the tables are set up at once.

use super::{CANDIDATE, HIGHEST, NUMBER, NUMBER_SHIFT, SHARED, entry_to_set, mark_known};
use crate::process;
use bywash_sync::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

/// Descriptors below this one have a bit; an open of another sets up the tables.
const DESCRIPTORS: i32 = 64;

/// One bit per candidate. Among data that every process writes when it starts, and not on a page of its own.
#[unsafe(link_section = ".data")]
static NOTED: AtomicU64 = AtomicU64::new(0);

fn bit(fd: i32) -> u64 {
    if (0..DESCRIPTORS).contains(&fd) { 1 << fd } else { 0 }
}

/// Whether `fd` is noted.
#[inline]
pub(super) fn has(fd: i32) -> bool {
    NOTED.load(Relaxed) & bit(fd) != 0
}

/// Whether anything is noted.
#[inline]
pub(super) fn has_any() -> bool {
    NOTED.load(Relaxed) != 0
}

/// Notes that `fd` was opened; false if it needs an entry in the table instead.
pub(super) fn add(fd: i32) -> bool {
    if bit(fd) == 0 || !process::is_dormant() || process::settings().positions_at_user_level {
        return false;
    }
    NOTED.fetch_or(bit(fd), SeqCst);
    // Another thread may have set up the tables, and taken the bits over, before this one was set (`take_over`).
    process::is_dormant()
}

/// Forgets `fd`.
#[inline]
pub(super) fn remove(fd: i32) {
    if has(fd) {
        NOTED.fetch_and(!bit(fd), SeqCst);
    }
}

/// Forgets `first..=last`.
pub(super) fn remove_range(first: u32, last: u32) {
    for fd in 0..DESCRIPTORS {
        if (first..=last).contains(&(fd as u32)) {
            remove(fd);
        }
    }
}

/// Makes entries of what is noted, once the tables are set up. Whether a descriptor was passed on or duplicated is
/// not known, so they count as shared. One that is closed meanwhile keeps no entry: its bit goes first, and is looked
/// at last.
#[cold]
pub(super) fn take_over() {
    for fd in (0..DESCRIPTORS).filter(|fd| has(*fd)) {
        let Some(entry) = entry_to_set(fd) else { continue };
        let value = (NUMBER.fetch_add(1, Relaxed) + 1) << NUMBER_SHIFT | SHARED | CANDIDATE;
        if entry.compare_exchange(0, value, SeqCst, Relaxed).is_err() {
            // Another thread has opened it anew.
            remove(fd);
            continue;
        }
        mark_known(fd, true);
        HIGHEST.fetch_max(fd as usize + 1, Relaxed);
        let was_noted = NOTED.fetch_and(!bit(fd), SeqCst) & bit(fd) != 0;
        if !was_noted && entry.compare_exchange(value, 0, SeqCst, Relaxed).is_ok() {
            mark_known(fd, false);
        }
    }
}
