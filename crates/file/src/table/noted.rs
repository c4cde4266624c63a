//! Candidates of a process whose tables are not set up.
//!
//! Most processes read their files at the files' own positions, from start to end. No data path would serve
//! such calls, so no table is needed for them. Such a process notes its candidates in one word, until the
//! first call that adds weight to a candidate. A forked child inherits the word with the rest of the parent's
//! memory, so a process that makes only such calls (a shell, and each of its children) has nothing to reset.
//!
//! If positions are kept at user level, any call can add weight to a candidate, and if a session counts
//! calls, every call is counted. In both cases nothing is noted and the tables are set up at once.

use super::{CANDIDATE, HIGHEST, NUMBER, NUMBER_SHIFT, SHARED, entry_to_set, mark_known};
use crate::state;
use bywash_sync::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

/// Number of descriptors that have a bit; opening a higher one sets up the tables.
const DESCRIPTORS: i32 = 64;

/// One bit per candidate. Lies in `.data`, which every process writes at its start, and not on a page of its
/// own.
#[unsafe(link_section = ".data")]
static NOTED: AtomicU64 = AtomicU64::new(0);

fn bit(fd: i32) -> u64 {
    if (0..DESCRIPTORS).contains(&fd) { 1 << fd } else { 0 }
}

/// Returns true if `fd` is noted.
#[inline]
pub(super) fn has(fd: i32) -> bool {
    NOTED.load(Relaxed) & bit(fd) != 0
}

/// Returns true if at least one descriptor is noted.
#[inline]
pub(super) fn has_any() -> bool {
    NOTED.load(Relaxed) != 0
}

/// Notes that `fd` was opened; returns false if it needs an entry in the table instead.
pub(super) fn add(fd: i32) -> bool {
    if bit(fd) == 0 || !state::is_dormant() || state::settings().positions_at_user_level {
        return false;
    }
    NOTED.fetch_or(bit(fd), SeqCst);
    // Another thread may have set up the tables and taken the bits over before this bit was set
    // (`take_over`).
    state::is_dormant()
}

/// Removes the note of `fd`.
#[inline]
pub(super) fn remove(fd: i32) {
    if has(fd) {
        NOTED.fetch_and(!bit(fd), SeqCst);
    }
}

/// Removes the notes of `first..=last`.
pub(super) fn remove_range(first: u32, last: u32) {
    for fd in 0..DESCRIPTORS {
        if (first..=last).contains(&(fd as u32)) {
            remove(fd);
        }
    }
}

/// Makes entries of the noted candidates, once the tables are set up. They count as shared, because
/// duplicates and descriptors passed to other processes were not noted. A descriptor that is closed meanwhile
/// keeps no entry: closing clears its bit first, and the bit is checked here after the entry is set.
#[cold]
pub(super) fn take_over() {
    for fd in (0..DESCRIPTORS).filter(|fd| has(*fd)) {
        let Some(entry) = entry_to_set(fd) else { continue };
        let value = (NUMBER.fetch_add(1, Relaxed) + 1) << NUMBER_SHIFT | SHARED | CANDIDATE;
        if entry.compare_exchange(0, value, SeqCst, Relaxed).is_err() {
            // Another thread has opened the descriptor anew.
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
