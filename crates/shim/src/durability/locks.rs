//! Files of which the process has locked parts (fcntl(2), F_SETLK). Closing any descriptor of such a file unlocks it, so the
//! library opens no further one of it: a commit by a descriptor that cannot be read needs one for a moment.
//!
//! A lock is noted before it is taken, and waits for the commits that have such a descriptor open, for a limited time: a
//! signal handler may have interrupted one. Descriptors that stay open ([`super::seconds`]) are closed then.

use super::{descriptors, seconds};
use bywash_log::sys;
use core::ffi::c_int;
use core::sync::atomic::Ordering::SeqCst;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

/// Number of locked files that are told apart.
const FILES: usize = 16;
/// Attempts of a lock to find no further descriptor open, and the time between two, in nanoseconds.
const LOOKS: usize = 1000;
const LOOK_NS: u32 = 50_000;

/// Hashes of locked files; 0: a free slot. Two files of one hash count as one.
static LOCKED: [AtomicU64; FILES] = [const { AtomicU64::new(0) }; FILES];
/// True if more files were locked, or one that could not be identified: any file may be.
static MANY: AtomicBool = AtomicBool::new(false);
/// Number of further descriptors that are open.
static FURTHER: AtomicU32 = AtomicU32::new(0);

/// Right to have a further descriptor of a file open, until it is dropped.
pub struct Further(());

impl Further {
    /// Returns the right for the file of a descriptor; `None` if the process may have locked a part of the file.
    pub fn begin(fd: c_int) -> Option<Further> {
        FURTHER.fetch_add(1, SeqCst);
        let further = Further(());
        let hash = hash(fd)?;
        let is_locked = MANY.load(SeqCst) || LOCKED.iter().any(|locked| locked.load(SeqCst) == hash);
        (!is_locked).then_some(further)
    }
}

impl Drop for Further {
    fn drop(&mut self) {
        FURTHER.fetch_sub(1, SeqCst);
    }
}

/// Notes that the process is about to lock a part of the file of a descriptor.
pub fn note(fd: c_int) {
    if super::log().is_none() || MANY.load(SeqCst) || descriptors::is_locked(fd) {
        return;
    }
    match hash(fd) {
        Some(hash) if add(hash) => return descriptors::set_locked(fd),
        Some(_) => {}
        None => MANY.store(true, SeqCst),
    }
    let word = AtomicU32::new(0);
    for _ in 0..LOOKS {
        if FURTHER.load(SeqCst) == 0 {
            break;
        }
        sys::wait(&word, 0, LOOK_NS);
    }
    let is_told_apart = !MANY.load(SeqCst);
    seconds::forget_file(sys::status(fd).ok().filter(|_| is_told_apart).map(|status| status.identity()));
}

/// Adds a file; returns true if it was noted before.
fn add(hash: u64) -> bool {
    for slot in &LOCKED {
        match slot.compare_exchange(0, hash, SeqCst, SeqCst) {
            Err(there) if there == hash => return true,
            Err(_) => {}
            Ok(_) => return false,
        }
    }
    MANY.store(true, SeqCst);
    false
}

/// Returns a number that is not zero for the file of a descriptor.
fn hash(fd: c_int) -> Option<u64> {
    // With the time of creation, since the number of a file that is gone is soon another's.
    let (device, inode, born) = sys::identity(fd).ok()?;
    let mixed = device.rotate_left(40) ^ inode ^ born.rotate_left(20);
    Some(mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
}
