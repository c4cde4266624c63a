//! The record of chains in flight, in memory that outlives this process: the frontend keeps it, and passes it
//! to the next server of the disk.
//!
//! ```text
//!   for each ring, on a multiple of 64 bytes:
//!
//!     features 8 | version 2 | entries 2 | last given back 2 | used index 2
//!     for each descriptor:  in flight 1 | padding 5 | given back before it 2 | counter 8
//! ```
//!
//! Source: QEMU's docs/interop/vhost-user.rst, the region of a split virtqueue. If a server dies between any
//! two steps of [`Record::give_back`], [`Record::inherited`] can still tell which chains were returned. Invariant:
//! a value read from here is used only as a descriptor's number, after a check, or to order chains.

use crate::memory::{self, Map, Pages};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vm_memory::{Bytes, FileOffset, GuestAddress, GuestRegionMmap, MmapRegion};

const VERSION: u16 = 1;
const HEAD_BYTES: u64 = 16;
const STATE_BYTES: u64 = 16;
const ALIGNMENT: u64 = 64;

/// Offsets of the fields in a ring's part, in bytes.
const VERSION_AT: u64 = 8;
const ENTRIES_AT: u64 = 10;
const LAST_AT: u64 = 12;
const USED_AT: u64 = 14;
/// Offsets of the fields in a descriptor's state, in bytes.
const NEXT_AT: u64 = 6;
const COUNTER_AT: u64 = 8;

/// Returns the size of the record of `rings` rings with `entries` entries each, in bytes.
pub(crate) fn bytes_needed(rings: u16, entries: u16) -> u64 {
    u64::from(rings) * ring_bytes(entries)
}

fn ring_bytes(entries: u16) -> u64 {
    (HEAD_BYTES + STATE_BYTES * u64::from(entries)).next_multiple_of(ALIGNMENT)
}

/// Makes memory for a record, all zeros, which the frontend is to keep.
pub(crate) fn create(rings: u16, entries: u16) -> Result<File, String> {
    let made =
        memfd_create("bywash-record", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).and_then(|file| {
            ftruncate(&file, bytes_needed(rings, entries))?;
            fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
            Ok(File::from(file))
        });
    made.map_err(|error| format!("memory for what is in flight cannot be made: {error}"))
}

/// Maps a record that the frontend has passed, and returns the part of each ring.
pub(crate) fn adopt(file: File, offset: u64, rings: u16, entries: u16) -> Result<Vec<Record>, String> {
    let bytes = bytes_needed(rings, entries);
    if memory::check(&file, offset, bytes)? != Pages::Lasting {
        return Err(
            "the record of what is in flight is in huge pages: pass the one that was made here".into()
        );
    }
    let wrong =
        |error: &dyn std::fmt::Display| format!("memory for what is in flight cannot be mapped: {error}");
    let region = MmapRegion::from_file(FileOffset::new(file, offset), bytes as usize)
        .map_err(|error| wrong(&error))?;
    let region = GuestRegionMmap::new(region, GuestAddress(0)).ok_or_else(|| wrong(&"it has no end"))?;
    let map = Arc::new(Map::from_regions(vec![region]).map_err(|error| wrong(&error))?);
    (0..rings).map(|ring| Record::new(map.clone(), u64::from(ring) * ring_bytes(entries), entries)).collect()
}

/// The record of one ring.
#[derive(Debug)]
pub(crate) struct Record {
    map: Arc<Map>,
    base: u64,
    pub(crate) entries: u16,
    /// Counter of the next chain, by which chains can be sorted in the order in which they were taken.
    counter: u64,
}

impl Record {
    fn new(map: Arc<Map>, base: u64, entries: u16) -> Result<Record, String> {
        let record = Record { map, base, entries, counter: 0 };
        match (record.half(VERSION_AT), record.half(ENTRIES_AT)) {
            (0, _) => {
                record.put_half(ENTRIES_AT, entries);
                record.put_half(VERSION_AT, VERSION);
                Ok(record)
            }
            (VERSION, has) if has == entries => Ok(record),
            (version, has) => Err(format!(
                "the record of what is in flight has version {version} and {has} entries, and should have version \
                 {VERSION} and {entries}"
            )),
        }
    }

    /// Records that a chain was taken.
    pub(crate) fn take(&mut self, head: u16) {
        let Some(at) = self.state(head) else { return };
        self.put_long(at + COUNTER_AT, self.counter);
        self.counter = self.counter.wrapping_add(1);
        self.put_byte(at, 1);
    }

    /// Records that a chain was put back, as if it had not been taken.
    pub(crate) fn put_back(&self, head: u16) {
        self.forget(head);
    }

    /// Records that a chain is returned. `add` adds it to the used ring, and returns the ring's used index.
    pub(crate) fn give_back<E>(&self, head: u16, add: impl FnOnce() -> Result<u16, E>) -> Result<(), E> {
        if let Some(at) = self.state(head) {
            self.put_half(at + NEXT_AT, self.half(LAST_AT));
            self.put_half(LAST_AT, head);
        }
        let used = add()?;
        self.forget(head);
        self.put_half(USED_AT, used);
        Ok(())
    }

    /// Returns the chains that the earlier server of this ring took and did not return, in the order in which
    /// it took them. `used` is the ring's used index.
    pub(crate) fn inherited(&mut self, used: u16) -> Vec<u16> {
        // The earlier server may have added chains to the used ring and died before it updated the record.
        let mut head = self.half(LAST_AT);
        for _ in 0..used.wrapping_sub(self.half(USED_AT)).min(self.entries) {
            let Some(at) = self.state(head) else { break };
            self.forget(head);
            head = self.half(at + NEXT_AT);
        }
        self.put_half(USED_AT, used);
        let heads = (0..self.entries).filter_map(|head| Some((head, self.state(head)?)));
        let mut left: Vec<(u64, u16)> = heads
            .filter(|(_, at)| self.byte(*at) == 1)
            .map(|(head, at)| (self.long(at + COUNTER_AT), head))
            .collect();
        left.sort_unstable();
        self.counter = left.last().map_or(0, |(counter, _)| counter.wrapping_add(1));
        left.into_iter().map(|(_, head)| head).collect()
    }

    fn forget(&self, head: u16) {
        if let Some(at) = self.state(head) {
            self.put_byte(at, 0);
        }
    }

    /// Returns the offset of a descriptor's state; `None` if the ring has no such descriptor.
    fn state(&self, head: u16) -> Option<u64> {
        (head < self.entries).then(|| HEAD_BYTES + STATE_BYTES * u64::from(head))
    }

    // All accesses lie within the memory that `adopt` has mapped, and are aligned. A frontend that writes
    // there meanwhile harms only its own guest.

    fn byte(&self, at: u64) -> u8 {
        self.map.load(GuestAddress(self.base + at), Ordering::Acquire).unwrap_or_default()
    }

    fn half(&self, at: u64) -> u16 {
        self.map.load(GuestAddress(self.base + at), Ordering::Acquire).unwrap_or_default()
    }

    fn long(&self, at: u64) -> u64 {
        self.map.load(GuestAddress(self.base + at), Ordering::Acquire).unwrap_or_default()
    }

    fn put_byte(&self, at: u64, value: u8) {
        let put = self.map.store(value, GuestAddress(self.base + at), Ordering::Release);
        debug_assert!(put.is_ok());
    }

    fn put_half(&self, at: u64, value: u16) {
        let put = self.map.store(value, GuestAddress(self.base + at), Ordering::Release);
        debug_assert!(put.is_ok());
    }

    fn put_long(&self, at: u64, value: u64) {
        let put = self.map.store(value, GuestAddress(self.base + at), Ordering::Release);
        debug_assert!(put.is_ok());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Result<u16, ()> = Err(());

    fn record(file: &File) -> Record {
        adopt(file.try_clone().unwrap(), 0, 2, 8).unwrap().remove(1)
    }

    #[test]
    fn golden_record() {
        let file = create(2, 8).unwrap();
        assert_eq!((bytes_needed(2, 8), file.metadata().unwrap().len()), (384, 384));
        let mut record = record(&file);
        record.take(3);
        record.take(5);
        record.give_back(3, || Ok::<u16, ()>(0x1122)).unwrap();
        let mut bytes = [0u8; 192];
        record.map.read_slice(&mut bytes, GuestAddress(192)).unwrap();
        // Features, version, entries, last chain returned, used index.
        assert_eq!(bytes[..16], [0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 8, 0, 3, 0, 0x22, 0x11]);
        assert_eq!(bytes[16 + 3 * 16..][..16], [0; 16]);
        assert_eq!(bytes[16 + 5 * 16..][..16], [1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn what_was_left_comes_in_its_order() {
        let file = create(2, 8).unwrap();
        let mut before = record(&file);
        for head in [7, 2, 5, 0] {
            before.take(head);
        }
        before.give_back(2, || Ok::<u16, ()>(1)).unwrap();
        before.put_back(0);
        let mut after = record(&file);
        assert_eq!(after.inherited(1), [7, 5]);
        after.take(1);
        after.take(7);
        assert_eq!(record(&file).inherited(1), [5, 1, 7]);
    }

    #[test]
    fn a_death_in_the_middle_is_seen() {
        let file = create(2, 8).unwrap();
        let mut before = record(&file);
        before.take(4);
        before.take(6);
        before.give_back(6, || Ok::<u16, ()>(9)).unwrap();
        // The first server dies before it has added chain 4 to the used ring, the second server after that.
        before.give_back(4, || NOTHING).unwrap_err();
        assert_eq!(record(&file).inherited(9), [4]);
        before.give_back(4, || NOTHING).unwrap_err();
        assert!(record(&file).inherited(10).is_empty());
    }

    #[test]
    fn rubbish_leaves_descriptors_at_most() {
        let file = create(2, 8).unwrap();
        let mut record = record(&file);
        record.map.write_slice(&[1; 176], GuestAddress(record.base + 16)).unwrap();
        record.put_half(LAST_AT, 999);
        assert!(record.inherited(7).iter().all(|head| *head < 8));
        record.take(8);
        record.put_half(VERSION_AT, 2);
        let adopted = |entries| adopt(file.try_clone().unwrap(), 0, 2, entries).map(|_| ()).unwrap_err();
        assert!(adopted(8).contains("version 2"));
        assert!(adopted(1024).contains("384 bytes"));
    }
}
