//! Memory that replaces a chunk, and memory of a chunk that was replaced.
//!
//! Allocating and freeing memory takes far longer than exchanging one chunk for another, and needs no access
//! to the device, so a thread that must not block leaves both to another thread. Called by
//! [`Chunks`](crate::Chunks), and by servers that replace chunks of a device in use.

use crate::error::Error;
use bywash_link::{HugePages, Mapping, MemoryFile};
use rustix::fs::{FallocateFlags, Mode, fallocate, fchmod};

/// Size and page size that spare memory needs in order to replace a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkLayout {
    pub(crate) bytes: usize,
    pub(crate) pages: HugePages,
}

/// Memory that can replace a chunk: all pages are allocated and zeroed.
#[derive(Debug)]
pub struct SpareChunk {
    pub(crate) shape: ChunkLayout,
    pub(crate) file: MemoryFile,
    /// Mapping through which the old chunk's contents are copied into the spare memory.
    pub(crate) mapping: Mapping,
}

impl SpareChunk {
    /// Allocates spare memory. This takes half a millisecond per MiB, and more on a busy machine.
    ///
    /// # Errors
    /// [`Error::Unfit`] if the machine has too little memory left; [`Error::Memory`] if the memory cannot be
    /// created, populated or mapped; [`Error::Io`] if its access mode cannot be set.
    pub fn new(shape: ChunkLayout) -> Result<SpareChunk, Error> {
        check_available(shape.bytes as u64, shape.pages)?;
        let file = file(shape)?;
        let mapping = file.map(true)?;
        if shape.pages == HugePages::Collapse {
            mapping.collapse();
        }
        Ok(SpareChunk { shape, file, mapping })
    }
}

/// Memory of a chunk that was replaced. Dropping it frees the pages, even if another process still has them
/// mapped. A page that such a process touches afterwards is allocated anew.
#[derive(Debug)]
pub struct RetiredChunk(pub(crate) MemoryFile);

impl Drop for RetiredChunk {
    fn drop(&mut self) {
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let given_back = fallocate(self.0.descriptor(), hole, 0, self.0.bytes() as u64);
        // The file is not sealed against writing, and nothing else prevents punching a hole into a memfd.
        debug_assert_eq!(given_back, Ok(()));
    }
}

/// Creates the memfd of a chunk, with all pages allocated.
pub(crate) fn file(shape: ChunkLayout) -> Result<MemoryFile, Error> {
    let file = MemoryFile::create("bywash-device", shape.bytes, shape.pages)?;
    file.seal_size()?;
    // A new memfd has mode 0777. A process that was given a descriptor for reading could use that to open the
    // file anew for writing.
    fchmod(file.descriptor(), Mode::RUSR | Mode::WUSR)
        .map_err(|error| Error::io("keep memory from other users", error))?;
    file.populate()?;
    Ok(file)
}

/// Checks that /proc/meminfo reports enough available memory. Reserved huge pages are not checked.
pub(crate) fn check_available(bytes: u64, pages: HugePages) -> Result<(), Error> {
    // Reserved huge pages are not part of the available memory.
    match available().filter(|has| pages != HugePages::Reserved && *has < bytes) {
        None => Ok(()),
        Some(has) => {
            let reason = format!("the machine has {has} bytes left; give less");
            Err(Error::Unfit { what: format!("memory of {bytes} bytes"), reason })
        }
    }
}

/// Returns the available memory of the machine, in bytes, or `None` if /proc/meminfo does not tell.
fn available() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes << 10)
}
