//! The descriptors of one chain, as they are in the guest's memory (virtio 1.2, 2.7.5).
//!
//! Invariant: no more descriptors come out than the ring has entries, wherever the guest makes them lead, so that a
//! loop ends; each is read once. Called by `disk`, which has the number of the first from the ring or from the record
//! of what was under way.

use crate::memory::{self, Map};
use virtio_queue::desc::split::Descriptor;
use vm_memory::GuestAddress;

/// Bytes of a descriptor.
const DESCRIPTOR_BYTES: u64 = 16;

/// A chain. It ends where it makes no sense, with a descriptor that says that it goes on, or with none.
#[derive(Debug)]
pub(crate) struct Chain<'a> {
    map: &'a Map,
    table: u64,
    entries: u64,
    next: Option<u16>,
    /// How many more there may be.
    left: u16,
    /// It has been sent on to a table of its own, from which it cannot be sent on.
    indirect: bool,
}

impl<'a> Chain<'a> {
    /// The chain that begins with descriptor `head` of a ring's table.
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
            // It stands alone, and its table is whole descriptors (2.7.5.3.1).
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
