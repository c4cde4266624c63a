//! Memory that a driver of the kernel made, such as a frame in a display adapter, mapped for writing.
//!
//! Invariant: there is no Rust reference to the bytes, since the device may write them and the driver may take them away.
//! They are filled by stores through a pointer, and never read. Called by `bywash-display`.

use crate::pool::MemoryRange;
use crate::store;
use bywash_link::{Error, Mapping};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Memory of a device, which a driver of the kernel made and this process has mapped for writing.
#[derive(Debug)]
pub struct DeviceMemory {
    mapping: Mapping,
    descriptor: OwnedFd,
    offset: usize,
    length: usize,
}

impl DeviceMemory {
    /// Maps `bytes` bytes of a device's file, from `offset` on, as its driver has named it.
    ///
    /// The driver must keep the memory for as long as it is mapped: behind the end of a file that shrinks, a store ends
    /// the process (SIGBUS).
    ///
    /// # Errors
    /// [`Error::Option`] if `bytes` is 0; [`Error::Io`] if the memory cannot be mapped.
    pub fn map(descriptor: BorrowedFd<'_>, offset: u64, bytes: usize) -> Result<DeviceMemory, Error> {
        if bytes == 0 {
            let allowed = "1 byte at least".to_owned();
            return Err(Error::Option { option: "the device's memory", value: bytes.to_string(), allowed });
        }
        let mapping = Mapping::device(descriptor, offset, bytes)?;
        let descriptor = descriptor.try_clone_to_owned().map_err(|error| {
            let what = "duplicate the descriptor of a device".to_owned();
            Error::io(what, error)
        })?;
        // Offsets of files are of 64 bits, and so are the addresses of the machines that this runs on.
        Ok(DeviceMemory { mapping, descriptor, offset: offset as usize, length: bytes })
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Returns false: the memory has at least one byte.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the descriptor of the device, and offset and length of the memory in its file.
    pub fn memory(&self) -> MemoryRange<'_> {
        MemoryRange { descriptor: self.descriptor.as_fd(), offset: self.offset, length: self.length }
    }

    /// Returns the address of the first byte, for a program that stores through pointers. The rules of this type hold for
    /// it: no reference to the bytes, and no store behind the end.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.mapping.base()
    }

    /// Copies `bytes` into the memory, from `offset` on.
    ///
    /// # Panics
    /// If they do not fit.
    #[inline]
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        let to = self.range(offset, bytes.len());
        // SAFETY: the range lies within the mapping, as `range` asserts, and this value alone stores there.
        unsafe { store::bytes(to, bytes) };
    }

    /// Stores words in little-endian order, from `offset` on, without reading what is there.
    ///
    /// # Panics
    /// If they do not fit.
    #[inline]
    pub fn write_words(&mut self, offset: usize, words: impl ExactSizeIterator<Item = u32>) {
        let count = words.len();
        let to = self.range(offset, count.saturating_mul(4));
        // SAFETY: as many words lie within the range that `range` asserted, and this value alone stores there.
        unsafe { store::words(to, count, words) };
    }

    #[inline]
    fn range(&self, offset: usize, length: usize) -> *mut u8 {
        assert!(
            offset <= self.length && length <= self.length - offset,
            "{length} bytes from {offset} on do not fit into {} bytes of a device",
            self.length
        );
        self.mapping.base().wrapping_add(offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bywash_link::{HugePages, MemoryFile, PAGE};

    #[test]
    fn stores_go_to_the_file_from_the_offset_on() {
        let file = MemoryFile::create("device", 3 * PAGE, HugePages::No).unwrap();
        let mut memory = DeviceMemory::map(file.descriptor(), PAGE as u64, PAGE + 8).unwrap();
        memory.write(0, b"abc");
        memory.write_words(PAGE, [0x0102_0304, 5].into_iter());
        let mut bytes = vec![0; 3 * PAGE];
        file.read_at(0, &mut bytes).unwrap();
        assert_eq!(&bytes[PAGE..][..4], b"abc\0");
        assert_eq!(&bytes[2 * PAGE..][..9], b"\x04\x03\x02\x01\x05\0\0\0\0");
        let range = memory.memory();
        assert_eq!((range.offset, range.length, memory.len()), (PAGE, PAGE + 8, PAGE + 8));
    }

    #[test]
    fn impossible_ranges_are_refused() {
        let file = MemoryFile::create("device", PAGE, HugePages::No).unwrap();
        assert!(matches!(DeviceMemory::map(file.descriptor(), 0, 0), Err(Error::Option { .. })));
        assert!(matches!(DeviceMemory::map(file.descriptor(), 7, 1), Err(Error::Io { .. })));
    }

    #[test]
    #[should_panic(expected = "do not fit")]
    fn a_write_beyond_the_end_panics() {
        let file = MemoryFile::create("device", PAGE, HugePages::No).unwrap();
        DeviceMemory::map(file.descriptor(), 0, 8).unwrap().write(1, &[0; 8]);
    }
}
