//! Memory of a frame: a container of a pool, or memory of a display adapter.

use bywash_container::{DeviceMemory, MemoryRange, PoolContainer, PoolShipment};

/// Memory of a frame that the program owns.
#[derive(Debug)]
pub(crate) enum Memory {
    /// Container of a pool, which a display server maps.
    Container(PoolContainer),
    /// Memory of a display adapter, which scans it out.
    Adapter(DeviceMemory),
}

/// Memory of a frame that the display server or the adapter has.
pub(crate) enum Shipped {
    Container(PoolShipment),
    Adapter(DeviceMemory),
}

impl Memory {
    #[inline]
    pub(crate) fn write(&mut self, offset: usize, bytes: &[u8]) {
        match self {
            Memory::Container(container) => container.write(offset, bytes),
            Memory::Adapter(memory) => memory.write(offset, bytes),
        }
    }

    #[inline]
    pub(crate) fn write_words(&mut self, offset: usize, words: impl ExactSizeIterator<Item = u32>) {
        match self {
            Memory::Container(container) => container.write_words(offset, words),
            Memory::Adapter(memory) => memory.write_words(offset, words),
        }
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut u8 {
        match self {
            Memory::Container(container) => container.as_mut_ptr(),
            Memory::Adapter(memory) => memory.as_mut_ptr(),
        }
    }

    /// Returns descriptor, offset and length.
    pub(crate) fn range(&self) -> MemoryRange<'_> {
        match self {
            Memory::Container(container) => container.memory(),
            Memory::Adapter(memory) => memory.memory(),
        }
    }

    /// Returns the bytes, if nobody else can write them.
    pub(crate) fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        match self {
            Memory::Container(container) => container.bytes_mut(),
            Memory::Adapter(_) => None,
        }
    }

    pub(crate) fn ship(self) -> Shipped {
        match self {
            Memory::Container(container) => Shipped::Container(container.ship()),
            Memory::Adapter(memory) => Shipped::Adapter(memory),
        }
    }
}

impl Shipped {
    /// Takes the memory back, which the display has returned.
    pub(crate) fn returned(self) -> Memory {
        match self {
            Shipped::Container(shipment) => Memory::Container(shipment.returned()),
            Shipped::Adapter(memory) => Memory::Adapter(memory),
        }
    }
}
