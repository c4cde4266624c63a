//! Memory that takes the place of a chunk, and memory that had one.
//!
//! To make memory and to give it back takes far longer than to exchange one for the other, and needs no device: whoever
//! must not be kept waiting has it done by another thread. Called by [`Chunks`](crate::Chunks), and by whoever renews
//! chunks of a device that is in use.

use crate::error::Error;
use bywash_link::{File, HugePages, Mapping};
use rustix::fs::{FallocateFlags, Mode, fallocate, fchmod};

/// What memory has to be like that takes the place of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub(crate) bytes: usize,
    pub(crate) pages: HugePages,
}

/// Memory that can take the place of a chunk: all of it is there, and all zeros.
#[derive(Debug)]
pub struct Spare {
    pub(crate) shape: Shape,
    pub(crate) file: File,
    /// For the contents to come in.
    pub(crate) mapping: Mapping,
}

impl Spare {
    /// Makes it, which takes half a millisecond for a MiB, and more on a busy machine.
    ///
    /// # Errors
    /// The machine has not so much memory for the time being, or what the kernel says.
    pub fn new(shape: Shape) -> Result<Spare, Error> {
        check_available(shape.bytes as u64, shape.pages)?;
        let file = file(shape)?;
        let mapping = file.map(true)?;
        if shape.pages == HugePages::Collapse {
            mapping.collapse();
        }
        Ok(Spare { shape, file, mapping })
    }
}

/// What was a chunk. Its memory is given back when this is dropped, whoever still has it mapped, but for what he touches
/// anew.
#[derive(Debug)]
pub struct Retired(pub(crate) File);

impl Drop for Retired {
    fn drop(&mut self) {
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let given_back = fallocate(self.0.descriptor(), hole, 0, self.0.bytes() as u64);
        // It is not sealed against writing, and nothing else stands against a hole in memory.
        debug_assert_eq!(given_back, Ok(()));
    }
}

/// A file for a chunk, of which all memory is taken.
pub(crate) fn file(shape: Shape) -> Result<File, Error> {
    let file = File::create("bywash-device", shape.bytes, shape.pages)?;
    file.fix_size()?;
    // Whoever is given a descriptor for reading could open the file anew through it: memfds are everybody's at first.
    fchmod(file.descriptor(), Mode::RUSR | Mode::WUSR)
        .map_err(|error| Error::io("keep memory from other users", error))?;
    file.populate()?;
    Ok(file)
}

/// Whether the machine has so much memory left, as far as it says.
pub(crate) fn check_available(bytes: u64, pages: HugePages) -> Result<(), Error> {
    // Pages that were reserved are none of those that are left.
    match available().filter(|has| pages != HugePages::Reserved && *has < bytes) {
        None => Ok(()),
        Some(has) => {
            let reason = format!("the machine has {has} bytes left; give less");
            Err(Error::Unfit { what: format!("memory of {bytes} bytes"), reason })
        }
    }
}

/// Bytes that the machine can still give, if it says so.
fn available() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes << 10)
}
