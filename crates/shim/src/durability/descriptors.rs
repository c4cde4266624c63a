//! Table from descriptors to files of the log.
//!
//! ```text
//!   bits 0..12   index of the entry, plus one; 0: the file has none
//!   bits 13..23  flags
//!   bits 32..63  low bits of the number of changes of entries when the entry was looked for
//! ```
//!
//! A word counts as long as no entry was made or given up since. It is cleared before its descriptor is closed or replaced,
//! and again when a descriptor of its number is made. A forked child keeps the table, since it has the same descriptors. In
//! a child of vfork, which shares this memory and has descriptors of its own, nothing is kept.

use bywash_file::{state, sys as file_sys, threads};
use bywash_log::commit::Log;
use bywash_log::shared::{ENTRIES, Entry};
use bywash_log::sys::{self, Errno};
use bywash_log::{join, shared};
use core::ffi::c_int;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize};

/// Number of descriptors in the table; others are looked up each time.
const DESCRIPTORS_MAX: usize = 1 << 16;
/// Least descriptor that no stream of the C library writes to from the start.
pub const STREAMS: c_int = 3;

/// Flags of a descriptor.
pub mod flag {
    /// The word is filled in.
    pub const KNOWN: u64 = 1 << 13;
    /// Every write goes to the end of the file.
    pub const APPEND: u64 = 1 << 14;
    /// Nothing can be read from the descriptor.
    pub const UNREADABLE: u64 = 1 << 15;
    /// The file can have no entry: it is not regular, or its file system is not logged.
    pub const NEVER: u64 = 1 << 16;
    /// Every write is durable when it returns (O_SYNC, O_DSYNC).
    pub const SYNC: u64 = 1 << 17;
    /// A stream of the C library writes to the descriptor, unseen.
    pub const STREAM: u64 = 1 << 18;
    /// Syncs by this descriptor are left to the kernel (O_DIRECT, or the settings leave the path out).
    pub const PASSED: u64 = 1 << 19;
    /// The descriptor can be written.
    pub const WRITABLE: u64 = 1 << 20;
    /// The file was synced once by the descriptor before it joined the log.
    pub const SYNCED: u64 = 1 << 21;
    /// The file was synced twice by the descriptor before it joined the log.
    pub const SYNCED_TWICE: u64 = 1 << 22;
    /// The process has locked a part of the file by the descriptor, which is noted in `locks`.
    pub const LOCKED: u64 = 1 << 23;
    /// All flags.
    pub const ALL: u64 = LOCKED
        | KNOWN
        | APPEND
        | UNREADABLE
        | NEVER
        | SYNC
        | STREAM
        | PASSED
        | WRITABLE
        | SYNCED
        | SYNCED_TWICE;
}

const INDEX_MASK: u64 = KNOWN_BIT - 1;
const KNOWN_BIT: u64 = flag::KNOWN;
const _: () = assert!(ENTRIES < INDEX_MASK as usize);

/// The words; null before [`prepare`].
static TABLE: AtomicPtr<AtomicU64> = AtomicPtr::new(core::ptr::null_mut());
/// Highest descriptor that had a word, plus one.
static HIGHEST: AtomicUsize = AtomicUsize::new(0);

/// File that a descriptor leads to.
#[derive(Clone, Copy)]
pub struct Target {
    /// Entry of the file, if it has one.
    pub entry: Option<&'static Entry>,
    flags: u64,
}

impl Target {
    /// Returns true if the descriptor has this flag.
    #[inline]
    pub fn is(&self, flag: u64) -> bool {
        self.flags & flag != 0
    }
}

/// Returns address and size of the table.
pub fn memory() -> (usize, usize) {
    (TABLE.load(Acquire).addr(), DESCRIPTORS_MAX * size_of::<AtomicU64>())
}

/// Maps the table.
pub fn prepare() -> Result<(), Errno> {
    let table = sys::map_private(DESCRIPTORS_MAX * size_of::<AtomicU64>())?;
    TABLE.store(table.cast(), Release);
    Ok(())
}

fn word(fd: c_int) -> Option<&'static AtomicU64> {
    let table = TABLE.load(Acquire);
    // SAFETY: the table has this many words, and is never unmapped.
    (!table.is_null() && (fd as u32 as usize) < DESCRIPTORS_MAX)
        .then(|| unsafe { &*table.add(fd as u32 as usize) })
}

/// Forgets what is known of a descriptor.
#[inline]
pub fn forget(fd: c_int) {
    if super::log().is_some()
        && !threads::bypassed()
        && let Some(word) = word(fd)
        && word.load(Relaxed) != 0
    {
        word.store(0, Relaxed);
    }
}

/// Forgets what is known of the descriptors `first..=last`.
pub fn forget_range(first: u32, last: u32) {
    if super::log().is_some() {
        let end = HIGHEST.load(Relaxed).min((last as usize).saturating_add(1));
        (first as usize..end).for_each(|fd| forget(fd as c_int));
    }
}

/// Looks at the flags of a regular file's descriptor anew, which were changed (fcntl(2), F_SETFL), and at those of all others,
/// which may lead to the same open file description.
pub fn flags_changed(fd: c_int) {
    let is_shared = |value: u64| value & KNOWN_BIT != 0 && value & flag::NEVER == 0;
    if word(fd).is_some_and(|word| is_shared(word.load(Relaxed))) {
        forget_range(0, u32::MAX);
    }
    forget(fd);
}

/// Finds the file of a descriptor.
#[inline]
pub fn look(log: &Log, fd: c_int) -> Target {
    let changes = log.shared().header().entries_changed.load(SeqCst);
    let Some(word) = word(fd).filter(|_| !threads::bypassed()) else { return fresh(log, fd) };
    let value = word.load(Relaxed);
    if value & KNOWN_BIT != 0 && (value & flag::NEVER != 0 || value >> 32 == changes & 0xffff_ffff) {
        return target(log, value);
    }
    let (flags, key) =
        if value & KNOWN_BIT != 0 { (value & flag::ALL, sys::identity(fd).ok()) } else { examine(fd) };
    let found = value_of(log, flags, key, changes);
    if flags & KNOWN_BIT != 0 {
        // If another thread was faster, it has found the same.
        let _ = word.compare_exchange(value, found, Relaxed, Relaxed);
        HIGHEST.fetch_max(fd as usize + 1, Relaxed);
    }
    target(log, found)
}

/// Notes a sync of a file that has not joined the log; returns true if there were two by this descriptor before. A
/// descriptor that is not in the table counts as one that had them.
pub fn is_third_sync(fd: c_int) -> bool {
    let Some(word) = word(fd).filter(|_| !threads::bypassed()) else { return true };
    let value = word.load(Relaxed);
    let next = if value & flag::SYNCED == 0 { flag::SYNCED } else { flag::SYNCED_TWICE };
    word.fetch_or(next, Relaxed) & flag::SYNCED_TWICE != 0
}

/// Finds the file of a descriptor without the table.
fn fresh(log: &Log, fd: c_int) -> Target {
    let (flags, key) = examine(fd);
    target(log, value_of(log, flags, key, 0))
}

fn value_of(log: &Log, flags: u64, key: Option<(u64, u64, u64)>, changes: u64) -> u64 {
    let key = key.filter(|_| flags & flag::NEVER == 0);
    let entry = key.and_then(|key| log.shared().find(key));
    changes << 32 | flags | entry.map_or(0, |entry| log.shared().index_of(entry) as u64 + 1)
}

fn target(log: &Log, value: u64) -> Target {
    let index = (value & INDEX_MASK) as usize;
    Target {
        entry: index.checked_sub(1).map(|index| &log.shared().entries()[index]),
        flags: value & flag::ALL,
    }
}

/// Finds out the flags of a descriptor, and the identity of its file; not [`flag::KNOWN`] if it is not open.
fn examine(fd: c_int) -> (u64, Option<(u64, u64, u64)>) {
    const NEVER: (u64, Option<(u64, u64, u64)>) = (flag::KNOWN | flag::NEVER, None);
    let status = file_sys::status_flags(fd);
    if status < 0 {
        return (flag::NEVER, None);
    }
    let status = status as c_int;
    let Ok(file) = sys::status(fd) else { return NEVER };
    let is_regular = file.mode & libc::S_IFMT == libc::S_IFREG;
    if !is_regular || status & libc::O_PATH != 0 || !join::is_logged_filesystem(fd) {
        return NEVER;
    }
    let mut flags = flag::KNOWN;
    let mut add = |condition: bool, flag: u64| flags |= if condition { flag } else { 0 };
    let access = status & libc::O_ACCMODE;
    add(status & libc::O_APPEND != 0, flag::APPEND);
    add(status & libc::O_DSYNC != 0, flag::SYNC);
    add(access == libc::O_WRONLY, flag::UNREADABLE);
    add(access != libc::O_RDONLY, flag::WRITABLE);
    add((0..STREAMS).contains(&fd), flag::STREAM);
    add(status & libc::O_DIRECT != 0 || !is_covered(fd), flag::PASSED);
    (flags, file.key())
}

/// Returns true if the settings let the file of a descriptor be logged.
pub fn is_covered(fd: c_int) -> bool {
    let settings = state::settings();
    if settings.only.is_empty() && settings.except.is_empty() {
        return true;
    }
    let mut path = [0u8; 4096];
    let length = file_sys::path_of(fd, &mut path);
    settings.covers(&path[..length])
}

/// Notes that a stream of the C library writes to a descriptor from now on, whose word is filled in.
pub fn set_stream(fd: c_int) {
    if let Some(word) = word(fd).filter(|_| !threads::bypassed()) {
        word.fetch_or(flag::STREAM, Relaxed);
    }
}

/// Returns true if the process has locked a part of the file by a descriptor before.
pub fn is_locked(fd: c_int) -> bool {
    let known_and_locked = flag::KNOWN | flag::LOCKED;
    let word = word(fd).filter(|_| !threads::bypassed());
    word.is_some_and(|word| word.load(Relaxed) & known_and_locked == known_and_locked)
}

/// Notes that the process has locked a part of the file by a descriptor, if its word is filled in.
pub fn set_locked(fd: c_int) {
    if let Some(word) = word(fd).filter(|_| !threads::bypassed()) {
        word.fetch_or(flag::LOCKED, Relaxed);
    }
}

/// Returns true if a stream of this process writes to the file with this key.
pub fn has_stream(key: (u64, u64, u64)) -> bool {
    known().any(|fd| {
        let writes = flag::STREAM | flag::WRITABLE;
        let flags = word(fd).map_or(0, |word| word.load(Relaxed));
        flags & writes == writes && sys::identity(fd) == Ok(key)
    })
}

/// Returns every descriptor that may have a word.
pub fn known() -> impl Iterator<Item = c_int> {
    (0..HIGHEST.load(Relaxed)).map(|fd| fd as c_int)
}

/// Returns a descriptor of this process that leads to the file of an entry and can be synced.
pub fn leading_to(log: &Log, entry: &'static Entry) -> Option<c_int> {
    let index = log.shared().index_of(entry) as u64 + 1;
    let by_word = |fd: &c_int| {
        word(*fd).is_some_and(|word| word.load(Relaxed) & (INDEX_MASK | KNOWN_BIT) == KNOWN_BIT | index)
    };
    let key = key_of(entry);
    known().filter(by_word).find(|fd| sys::identity(*fd) == Ok(key))
}

/// Returns the identity of the file of an entry.
pub fn key_of(entry: &shared::Entry) -> (u64, u64, u64) {
    let [device, inode, born] = entry.key.each_ref().map(|word| word.load(Relaxed));
    (device, inode, born)
}
