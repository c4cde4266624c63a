//! The descriptors of one chain, read from the guest's memory (virtio 1.2, 2.7.5).
//!
//! Invariant: the iterator returns at most as many descriptors as the ring has entries, wherever the guest
//! makes them point, so a loop ends. Each descriptor is read once. Called by `disk`, with the number of a
//! first descriptor from the ring or from the record of requests in flight.

use crate::memory::{self, Map};
use virtio_queue::desc::split::Descriptor;
use vm_memory::GuestAddress;

/// Size of a descriptor, in bytes.
const DESCRIPTOR_BYTES: u64 = 16;

/// Iterator over the descriptors of a chain. At an invalid descriptor the chain ends, with a last descriptor
/// that has its "next" flag set, or with no descriptor at all.
#[derive(Debug)]
pub(crate) struct Chain<'a> {
    map: &'a Map,
    table: u64,
    entries: u64,
    next: Option<u16>,
    /// Number of descriptors that may still be returned.
    left: u16,
    /// True once the chain continues in an indirect table, from which no further indirect table may be
    /// reached.
    indirect: bool,
}

impl<'a> Chain<'a> {
    /// Makes the chain that begins with descriptor `head` of a ring's table.
    pub(crate) fn new(map: &'a Map, table: u64, entries: u16, head: u16) -> Chain<'a> {
        Chain { map, table, entries: entries.into(), next: Some(head), left: entries, indirect: false }
    }

    fn read(&self, number: u16) -> Option<Descriptor> {
        let number = u64::from(number);
        let at = self.table.checked_add(number * DESCRIPTOR_BYTES).filter(|_| number < self.entries)?;
        memory::read(self.map, GuestAddress(at))
    }
}

impl Iterator for Chain<'_> {
    type Item = Descriptor;

    fn next(&mut self) -> Option<Descriptor> {
        let number = self.next.take()?;
        let mut descriptor = self.read(number)?;
        if descriptor.refers_to_indirect_table() {
            let bytes = u64::from(descriptor.len());
            // An indirect descriptor must have no "next" flag, and its table must consist of whole
            // descriptors (2.7.5.3.1).
            if self.indirect || descriptor.has_next() || !bytes.is_multiple_of(DESCRIPTOR_BYTES) {
                return None;
            }
            (self.table, self.entries, self.indirect) = (descriptor.addr().0, bytes / DESCRIPTOR_BYTES, true);
            descriptor = self.read(0).filter(|first| !first.refers_to_indirect_table())?;
        }
        self.left = self.left.checked_sub(1)?;
        self.next = descriptor.has_next().then(|| descriptor.next());
        Some(descriptor)
    }
}
