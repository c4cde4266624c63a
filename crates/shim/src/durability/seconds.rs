//! Second open file descriptions of files whose program's descriptors are synchronous (O_SYNC, O_DSYNC) or cannot be read:
//! without the flag, and readable, so that the log can make durable what is written.
//!
//! A second description has a descriptor of this process with a high number, closed on exec, and belongs to one descriptor of
//! the program. Its position is used for nothing but to learn where an appending write ended.
//!
//! # Invariants
//!
//! - Nothing is written through a second descriptor that does not lead to the file of the descriptor that it belongs to: the
//!   program may have closed its number without this library and opened another file. Each use compares.
//! - It is closed before the descriptor that it belongs to, and before the process locks a part of the file: closing it later
//!   would unlock the file ([`super::locks`]).
//! - It is forgotten before its number is closed or replaced, when no thread uses it any more. A thread that uses one has all
//!   signals blocked, so that none waits for itself.

use super::descriptors;
use super::locks::Further;
use bywash_file::{sys as file_sys, threads};
use bywash_log::shared::Entry;
use bywash_log::sys::{self, Undisturbed};
use core::ffi::{CStr, c_int};
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64};

/// Number of second descriptors that a process can have; files of further descriptors are the kernel's.
const SECONDS: usize = 32;
/// Least number that a second descriptor should have, if the limit on descriptors allows it.
const DESCRIPTOR_MIN: usize = 900;
/// Time between two looks at whether a second descriptor is in use, in nanoseconds.
const LOOK_NS: u32 = 100_000;
/// Values of [`Slot::owner`] that are no descriptor's.
const FREE: c_int = 0;
const CLAIMED: c_int = -1;

/// Second descriptor and the descriptor that it belongs to.
struct Slot {
    /// Descriptor of the program, plus one; [`FREE`]; or [`CLAIMED`] by a thread that fills the slot or empties it.
    owner: AtomicI32,
    /// Second descriptor.
    second: AtomicI32,
    /// Number of threads that use the second descriptor.
    users: AtomicU32,
    /// Identity of the file.
    key: [AtomicU64; 3],
}

static SLOTS: [Slot; SECONDS] = [const {
    Slot {
        owner: AtomicI32::new(FREE),
        second: AtomicI32::new(0),
        users: AtomicU32::new(0),
        key: [const { AtomicU64::new(0) }; 3],
    }
}; SECONDS];
/// True if the process has had a second descriptor.
static ANY: AtomicBool = AtomicBool::new(false);

/// Right to use a second descriptor, until it is dropped.
pub struct Second {
    slot: &'static Slot,
    /// Second descriptor: it can be read and written.
    pub fd: c_int,
    /// True if each write goes to the end of the file.
    pub appends: bool,
    /// Dropped behind the right.
    _undisturbed: Undisturbed,
}

impl Second {
    /// Returns the second descriptor of one that leads to the file of `entry`, opened if there is none. `None`
    /// if it cannot be had: the program may not read or write the file any more, has locked a part of it, writes it by
    /// O_DIRECT, or has too many descriptors.
    pub fn begin(entry: &'static Entry, fd: c_int) -> Option<Second> {
        if threads::bypassed() {
            return None;
        }
        let flags = c_int::try_from(file_sys::status_flags(fd)).ok().filter(|flags| *flags >= 0)?;
        if flags & libc::O_DIRECT != 0 {
            return None;
        }
        let undisturbed = Undisturbed::begin();
        let key = descriptors::key_of(entry);
        let slot = taken(fd, key, flags).or_else(|| open(fd, key, flags))?;
        Some(Second {
            slot,
            fd: slot.second.load(Relaxed),
            appends: flags & libc::O_APPEND != 0,
            _undisturbed: undisturbed,
        })
    }
}

impl Drop for Second {
    fn drop(&mut self) {
        self.slot.users.fetch_sub(1, SeqCst);
    }
}

/// Returns the slot of a descriptor, counted as used, if its second descriptor leads to the file with this key.
fn taken(fd: c_int, key: (u64, u64, u64), flags: c_int) -> Option<&'static Slot> {
    let owner = fd + 1;
    let slot = SLOTS.iter().find(|slot| slot.owner.load(SeqCst) == owner)?;
    slot.users.fetch_add(1, SeqCst);
    // Looked at again behind the count, which whoever empties the slot waits for.
    if slot.owner.load(SeqCst) == owner && leads_to(slot, key) && adjust(slot.second.load(Relaxed), flags) {
        return Some(slot);
    }
    slot.users.fetch_sub(1, SeqCst);
    // The number of the descriptor or of its second one was closed without this library.
    empty(slot, owner, true);
    None
}

/// Returns true if the second descriptor of a slot leads to the file with this key, for which it was opened.
fn leads_to(slot: &Slot, key: (u64, u64, u64)) -> bool {
    let opened_for = slot.key.each_ref().map(|word| word.load(Relaxed));
    opened_for == [key.0, key.1, key.2] && sys::identity(slot.second.load(Relaxed)) == Ok(key)
}

/// Gives a second descriptor the flag O_APPEND if the program's has it, and takes it away if not: the program may have changed
/// it by any descriptor of the same description. Returns false if the second descriptor is not as it was opened.
fn adjust(second: c_int, flags: c_int) -> bool {
    const COMPARED: c_int = libc::O_ACCMODE | libc::O_SYNC | libc::O_DIRECT;
    let there = file_sys::status_flags(second) as c_int;
    if there < 0 || there & COMPARED != libc::O_RDWR {
        return false;
    }
    let wanted = there & !libc::O_APPEND | flags & libc::O_APPEND;
    there == wanted || sys::fcntl(second, libc::F_SETFL, wanted as usize).is_ok()
}

/// Opens the second descriptor of a descriptor; returns its slot, counted as used.
fn open(fd: c_int, key: (u64, u64, u64), flags: c_int) -> Option<&'static Slot> {
    // Held until the slot is filled: whoever locks a part of the file closes the second descriptors that it finds.
    let _further = Further::begin(fd)?;
    let claim = |slot: &&Slot| slot.owner.compare_exchange(FREE, CLAIMED, SeqCst, Relaxed).is_ok();
    let slot = SLOTS.iter().find(claim)?;
    let Some(second) = open_high(fd, flags & libc::O_APPEND) else {
        slot.owner.store(FREE, SeqCst);
        return None;
    };
    for (to, from) in slot.key.iter().zip([key.0, key.1, key.2]) {
        to.store(from, Relaxed);
    }
    slot.second.store(second, Relaxed);
    if !leads_to(slot, key) {
        sys::close(second);
        slot.owner.store(FREE, SeqCst);
        return None;
    }
    ANY.store(true, SeqCst);
    slot.users.fetch_add(1, SeqCst);
    slot.owner.store(fd + 1, SeqCst);
    Some(slot)
}

/// Opens the file of a descriptor again, under a high number.
fn open_high(fd: c_int, append: c_int) -> Option<c_int> {
    let mut path = [0u8; 32];
    let length = sys::descriptor_path(fd, &mut path);
    let path = CStr::from_bytes_with_nul(&path[..=length]).ok()?;
    let opened = sys::open(path, libc::O_RDWR | append | libc::O_CLOEXEC | libc::O_NONBLOCK).ok()?;
    match sys::fcntl(opened, libc::F_DUPFD_CLOEXEC, DESCRIPTOR_MIN) {
        Ok(high) => {
            sys::close(opened);
            Some(high)
        }
        Err(_) => Some(opened),
    }
}

/// Empties a slot whose `owner` is this one when no thread uses it, and closes its second descriptor if `closes`.
fn empty(slot: &Slot, owner: c_int, closes: bool) {
    if slot.owner.compare_exchange(owner, CLAIMED, SeqCst, Relaxed).is_err() {
        return;
    }
    let word = AtomicU32::new(0);
    while slot.users.load(SeqCst) != 0 {
        sys::wait(&word, 0, LOOK_NS);
    }
    let second = slot.second.load(Relaxed);
    let [device, inode, born] = slot.key.each_ref().map(|word| word.load(Relaxed));
    // A number that the program has meanwhile is not closed.
    if closes && sys::identity(second) == Ok((device, inode, born)) {
        sys::close(second);
    }
    slot.owner.store(FREE, SeqCst);
}

/// Returns true if the process may have a second descriptor.
#[inline]
pub fn has_any() -> bool {
    ANY.load(Relaxed)
}

/// Returns true if a descriptor is a second one, which the program did not open and must not close.
pub fn is_second(fd: c_int) -> bool {
    has_any() && SLOTS.iter().any(|slot| slot.owner.load(SeqCst) > FREE && slot.second.load(Relaxed) == fd)
}

/// Closes the second descriptors of the descriptors `first..=last`, which are about to be closed or replaced, and forgets
/// those among them.
pub fn forget_range(first: u32, last: u32) {
    if !has_any() {
        return;
    }
    let covers = |fd: c_int| fd >= 0 && (first..=last).contains(&(fd as u32));
    for slot in &SLOTS {
        let (owner, second) = (slot.owner.load(SeqCst), slot.second.load(Relaxed));
        if owner > FREE && (covers(owner - 1) || covers(second)) {
            empty(slot, owner, !covers(second));
        }
    }
}

/// Closes the second descriptors of a file of which a part is about to be locked; of all files if `identity`, device and
/// inode number, is not known.
pub fn forget_file(identity: Option<(u64, u64)>) {
    if !has_any() {
        return;
    }
    for slot in &SLOTS {
        let owner = slot.owner.load(SeqCst);
        let of = (slot.key[0].load(Relaxed), slot.key[1].load(Relaxed));
        if owner > FREE && identity.is_none_or(|identity| identity == of) {
            empty(slot, owner, true);
        }
    }
}

/// Forgets the threads that used second descriptors in the parent of this forked child, which does not have them.
pub fn reset_child() {
    if !has_any() {
        return;
    }
    for slot in &SLOTS {
        slot.users.store(0, SeqCst);
        // What another thread was filling or emptying stays open, and is closed on exec.
        let _ = slot.owner.compare_exchange(CLAIMED, FREE, SeqCst, Relaxed);
    }
}
