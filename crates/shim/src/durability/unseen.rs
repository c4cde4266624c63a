//! Writes that nobody notes: by streams of the C library, mappings, rings of requests, and programs without this library.
//! The syncs of such a file are the kernel's for good.

use super::WRITES_UNSEEN;
use super::changes::Change;
use super::descriptors::{self, flag};
use bywash_log::commit::Log;
use bywash_log::shared::Entry;
use bywash_log::sys;
use core::ffi::c_int;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

/// Leaves a file to the kernel for good, to which `fd` leads: its records are dead before this returns.
pub fn for_good(log: &Log, entry: &'static Entry, fd: c_int) {
    if entry.is_unloggable() && entry.oldest.load(Relaxed) == 0 {
        return;
    }
    // If the file cannot be made durable, its next sync is the kernel's, which reports it.
    if let Ok(change) = Change::begin(log, entry, fd) {
        change.for_good();
    }
    entry.want_kernel_for_good();
}

/// Notes that a call has made a descriptor.
#[inline]
pub fn made(fd: c_int) {
    let Some(log) = super::log() else { return };
    descriptors::forget(fd);
    if fd >= 0 && WRITES_UNSEEN.load(Relaxed) {
        written_unseen(log, fd);
    }
}

/// Notes that a descriptor has been made of another by duplicating it.
pub fn duplicated(new: c_int) {
    made(new);
    if let Some(log) = super::log()
        && (0..descriptors::STREAMS).contains(&new)
    {
        stream(log, new);
    }
}

/// Notes that a stream of the C library writes to a descriptor from now on.
pub fn stream(log: &Log, fd: c_int) {
    let target = descriptors::look(log, fd);
    if !target.is(flag::WRITABLE) {
        return;
    }
    descriptors::set_stream(fd);
    if let Some(entry) = target.entry {
        for_good(log, entry, fd);
    }
}

/// Leaves the file of a descriptor to the kernel for good, if it has an entry.
pub fn written_by_others(fd: c_int) {
    if let Some(log) = super::log()
        && let Some(entry) = descriptors::look(log, fd).entry
    {
        for_good(log, entry, fd);
    }
}

/// Leaves the file of a synchronous descriptor to the kernel for good, into which bytes are about to come that are durable
/// without a sync, over which no record of a commit meanwhile may be replayed; or whose position others move.
pub fn durable_by_themselves(fd: c_int) {
    if let Some(log) = super::log()
        && descriptors::look(log, fd).is(flag::SYNC)
    {
        written_unseen(log, fd);
    }
}

/// Leaves the file of a descriptor to the kernel for good, also if it has no entry yet: it gets one that says so.
pub fn written_unseen(log: &Log, fd: c_int) {
    let target = descriptors::look(log, fd);
    if target.is(flag::NEVER) || !target.is(flag::WRITABLE) {
        return;
    }
    let made = target.entry.or_else(|| log.shared().find_or_make(sys::identity(fd).ok()?));
    if let Some(entry) = made {
        for_good(log, entry, fd);
    }
}

/// Leaves every file that this process has open for writing to the kernel for good.
pub fn hand_over_all(log: &Log) {
    let highest = descriptors::known().last().unwrap_or(0);
    for fd in open_descriptors(highest) {
        written_unseen(log, fd);
    }
}

/// Leaves every file that has an entry and a descriptor in this process to the kernel for good: the descriptors are about to
/// be passed to a program without this library.
pub fn passes_descriptors() {
    let Some(log) = super::log() else { return };
    let highest = descriptors::known().last().unwrap_or(0);
    for fd in open_descriptors(highest) {
        let target = descriptors::look(log, fd);
        if target.is(flag::WRITABLE)
            && let Some(entry) = target.entry
        {
            for_good(log, entry, fd);
        }
    }
}

/// Notes that this process writes files unseen from now on, by a ring of requests.
pub fn begins_to_write_unseen() {
    let Some(log) = super::log() else { return };
    WRITES_UNSEEN.store(true, SeqCst);
    hand_over_all(log);
}

/// Returns the descriptors to look at: up to the highest that was noted, and some beyond, since descriptors are noted at
/// their first write.
fn open_descriptors(highest: c_int) -> impl Iterator<Item = c_int> {
    const BEYOND: c_int = 64;
    0..=highest + BEYOND
}
