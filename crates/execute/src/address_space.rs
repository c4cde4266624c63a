//! Address space of the program: heap, mappings, and the operating system's own accesses to it.
//!
//! Pages of the program's memory are allocated by [`Space`] when they are first touched. Mappings of files are
//! filled when they are made. A shared mapping of a file is recorded as an [`Area`]: the memory has the file's
//! newest content there, and whoever reads the file through the operating system first copies it back
//! ([`AddressSpace::areas_of`]). As there is one process, nobody else can see a difference.
//!
//! Every access of the operating system checks the program's permissions and returns [`Errno::EFAULT`].

use std::collections::BTreeMap;

use bywash_cpu::memory::{Fault, MapError, PAGE_BYTES, Permissions, Space};

use crate::errno::Errno;

/// End of the stack.
pub const STACK_TOP: u64 = 0x3f_ffff_f000;
/// Length of the first thread's stack, in bytes (`ulimit -s`).
pub const STACK_BYTES: u64 = 8 << 20;
/// Address of the page with the code that returns from signal handlers.
pub const TRAMPOLINE: u64 = 0x3f_f000_0000;
/// Address at which a program for any address is loaded.
pub const PROGRAM_BASE: u64 = 0x2a_aaaa_a000;
/// Lowest address of mappings (`vm.mmap_min_addr`).
pub const LOWEST: u64 = 0x1_0000;
/// End of the addresses of mappings that name none.
pub const MAPPINGS_TOP: u64 = 0x3f_e000_0000;
/// Greatest length of the heap, in bytes.
pub const HEAP_LIMIT: u64 = 64 << 30;
/// Greatest number of shared mappings of files.
pub const AREA_LIMIT: usize = 4096;
/// Greatest number of pages that one change of mappings touches: 256 GiB, all there are.
const PAGES_LIMIT: u64 = bywash_cpu::memory::ADDRESS_LIMIT / PAGE_BYTES;

/// Shared mapping of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// First address.
    pub start: u64,
    /// End.
    pub end: u64,
    /// Number of the file.
    pub file: u64,
    /// Offset in the file of the first byte.
    pub offset: u64,
    /// True if the program may store to it.
    pub is_writable: bool,
}

/// Heap, mappings and memory of a program.
pub struct AddressSpace {
    /// Memory.
    pub space: Space,
    /// Beginning of the heap.
    heap_start: u64,
    /// End of the heap, as the program has set it.
    heap_end: u64,
    /// Shared mappings of files, by their first address.
    areas: BTreeMap<u64, Area>,
}

impl AddressSpace {
    /// Makes an address space of memory into which a program was loaded; the heap begins at `heap`.
    pub fn new(space: Space, heap: u64) -> AddressSpace {
        AddressSpace { space, heap_start: heap, heap_end: heap, areas: BTreeMap::new() }
    }

    /// Sets the end of the heap if that is possible, and returns it (brk(2)).
    pub fn set_break(&mut self, end: u64) -> u64 {
        if end < self.heap_start || end - self.heap_start > HEAP_LIMIT {
            return self.heap_end;
        }
        let (mapped, needed) = (round_up(self.heap_end), round_up(end));
        let is_done = if needed > mapped {
            self.space.is_free(mapped, needed - mapped)
                && self.space.map(mapped, needed - mapped, Permissions::READ | Permissions::WRITE).is_ok()
        } else {
            needed == mapped || self.space.unmap(needed, mapped - needed).is_ok()
        };
        if is_done {
            self.heap_end = end;
        }
        self.heap_end
    }

    /// Returns the address for a mapping of some pages: a wanted one if it is free, or the highest free one.
    ///
    /// # Errors
    ///
    /// [`Errno::ENOMEM`]: there are no addresses left.
    pub fn find_free(&self, hint: u64, length: u64) -> Result<u64, Errno> {
        let hint = hint / PAGE_BYTES * PAGE_BYTES;
        if hint >= LOWEST && self.space.is_free(hint, length) {
            return Ok(hint);
        }
        self.space.highest_free(length, LOWEST, MAPPINGS_TOP).ok_or(Errno::ENOMEM)
    }

    /// Maps pages of zeros; what was there before is lost.
    ///
    /// # Errors
    ///
    /// [`Errno::EINVAL`] and [`Errno::ENOMEM`]: the range is none, or there are too many mappings.
    pub fn map(&mut self, start: u64, length: u64, permissions: Permissions) -> Result<(), Errno> {
        check_range(start, length)?;
        self.cut_areas(start, start + length)?;
        self.space.map(start, length, permissions).map_err(errno_of)
    }

    /// Removes mappings (munmap(2)).
    ///
    /// # Errors
    ///
    /// As [`AddressSpace::map`].
    pub fn unmap(&mut self, start: u64, length: u64) -> Result<(), Errno> {
        check_range(start, length)?;
        self.cut_areas(start, start + length)?;
        self.space.unmap(start, length).map_err(errno_of)
    }

    /// Changes permissions (mprotect(2)).
    ///
    /// # Errors
    ///
    /// As [`AddressSpace::map`], and [`Errno::ENOMEM`] if a page is not mapped.
    pub fn protect(&mut self, start: u64, length: u64, permissions: Permissions) -> Result<(), Errno> {
        check_range(start, length)?;
        self.space.protect(start, length, permissions).map_err(errno_of)?;
        if permissions.bits() & Permissions::WRITE.bits() != 0 {
            for area in self.areas.values_mut().filter(|area| area.start < start + length && start < area.end)
            {
                area.is_writable = true;
            }
        }
        Ok(())
    }

    /// Fills pages with zeros (`MADV_DONTNEED`); shared mappings of files stay as they are.
    ///
    /// # Errors
    ///
    /// As [`AddressSpace::protect`].
    pub fn discard(&mut self, start: u64, length: u64) -> Result<(), Errno> {
        check_range(start, length)?;
        if self.areas.values().any(|area| area.start < start + length && start < area.end) {
            return Ok(());
        }
        self.space.discard(start, length).map_err(errno_of)
    }

    /// Moves or resizes an anonymous mapping, and returns its address (mremap(2)). `to` is its new address, or
    /// `None` if it may be moved only where `can_move` says so.
    ///
    /// # Errors
    ///
    /// [`Errno::EFAULT`] if the old pages are not mapped, [`Errno::ENOMEM`] if the new ones cannot be, and
    /// [`Errno::EINVAL`] for shared mappings of files and overlapping ranges.
    pub fn remap(
        &mut self,
        from: u64,
        old: u64,
        new: u64,
        can_move: bool,
        to: Option<u64>,
    ) -> Result<u64, Errno> {
        check_range(from, old)?;
        let permissions = self.space.permissions(from).ok_or(Errno::EFAULT)?;
        if self.areas.values().any(|area| area.start < from + old && from < area.end) {
            return Err(Errno::EINVAL);
        }
        if to.is_none() && new <= old {
            if new < old {
                self.unmap(from + new, old - new)?;
            }
            return Ok(from);
        }
        if to.is_none() && self.space.is_free(from + old, new - old) {
            self.map(from + old, new - old, permissions)?;
            return Ok(from);
        }
        if !can_move {
            return Err(Errno::ENOMEM);
        }
        let target = match to {
            Some(to) => to,
            None => self.find_free(0, new)?,
        };
        check_range(target, new)?;
        if target < from + old && from < target + new {
            return Err(Errno::EINVAL);
        }
        self.map(target, new, permissions)?;
        // The memory may be unreadable for the program; its content moves nonetheless.
        self.space.protect(from, old, Permissions::READ | Permissions::WRITE).map_err(errno_of)?;
        let mut page = [0; PAGE_BYTES as usize];
        for offset in (0..old.min(new)).step_by(PAGE_BYTES as usize) {
            self.space.read(from + offset, &mut page).map_err(fault)?;
            if page.iter().any(|&byte| byte != 0) {
                self.space.initialise(target + offset, &page).map_err(|_| Errno::ENOMEM)?;
            }
        }
        self.unmap(from, old)?;
        Ok(target)
    }

    /// Records a shared mapping of a file.
    ///
    /// # Errors
    ///
    /// [`Errno::ENODEV`] if a part of the file is mapped already, since two addresses cannot share memory
    /// here; [`Errno::ENOMEM`] at [`AREA_LIMIT`].
    pub fn add_area(&mut self, area: Area) -> Result<(), Errno> {
        let length = area.end - area.start;
        if self.areas_of(area.file, area.offset, length).next().is_some() {
            return Err(Errno::ENODEV);
        }
        if self.areas.len() >= AREA_LIMIT {
            return Err(Errno::ENOMEM);
        }
        self.areas.insert(area.start, area);
        Ok(())
    }

    /// Returns the shared mappings of a range of a file, each cut to the range.
    pub fn areas_of(&self, file: u64, offset: u64, length: u64) -> impl Iterator<Item = Area> + '_ {
        let end = offset.saturating_add(length);
        self.areas.values().filter(move |area| area.file == file).filter_map(move |area| {
            let area_end = area.offset + (area.end - area.start);
            let (first, last) = (area.offset.max(offset), area_end.min(end));
            (first < last).then(|| Area {
                start: area.start + (first - area.offset),
                end: area.start + (last - area.offset),
                offset: first,
                ..*area
            })
        })
    }

    /// Returns the shared mappings of files between two addresses, each cut to the range.
    pub fn areas_between(&self, start: u64, end: u64) -> Vec<Area> {
        let inside = self.areas.values().filter(|area| area.start < end && start < area.end);
        inside
            .map(|area| {
                let first = area.start.max(start);
                Area {
                    start: first,
                    end: area.end.min(end),
                    offset: area.offset + (first - area.start),
                    ..*area
                }
            })
            .collect()
    }

    /// Copies bytes out of the program's memory.
    ///
    /// # Errors
    ///
    /// [`Errno::EFAULT`]: an address cannot be loaded.
    pub fn read(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), Errno> {
        self.space.read(address, bytes).map_err(fault)
    }

    /// Copies bytes into the program's memory.
    ///
    /// # Errors
    ///
    /// [`Errno::EFAULT`]: an address cannot be stored to.
    pub fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), Errno> {
        self.space.write(address, bytes).map_err(fault)
    }

    /// Loads consecutive words of 64 bits.
    ///
    /// # Errors
    ///
    /// [`Errno::EFAULT`]: an address cannot be loaded.
    pub fn words<const N: usize>(&mut self, address: u64) -> Result<[u64; N], Errno> {
        let mut words = [0; N];
        for (index, word) in words.iter_mut().enumerate() {
            // Addresses wrap around, and nothing is mapped where they do.
            *word = u64::from_le_bytes(self.array(address.wrapping_add(8 * index as u64))?);
        }
        Ok(words)
    }

    /// Loads a word of 32 bits.
    ///
    /// # Errors
    ///
    /// [`Errno::EFAULT`]: the address cannot be loaded.
    pub fn word32(&mut self, address: u64) -> Result<u32, Errno> {
        Ok(u32::from_le_bytes(self.array(address)?))
    }

    /// Loads an array of bytes.
    ///
    /// # Errors
    ///
    /// [`Errno::EFAULT`]: an address cannot be loaded.
    pub fn array<const N: usize>(&mut self, address: u64) -> Result<[u8; N], Errno> {
        let mut bytes = [0; N];
        self.read(address, &mut bytes)?;
        Ok(bytes)
    }

    /// Stores consecutive words of 64 bits.
    ///
    /// # Errors
    ///
    /// [`Errno::EFAULT`]: an address cannot be stored to.
    pub fn set_words(&mut self, address: u64, words: &[u64]) -> Result<(), Errno> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.write(address, &bytes)
    }

    /// Loads a text that ends with a zero byte, of at most `limit` bytes.
    ///
    /// # Errors
    ///
    /// [`Errno::EFAULT`] if an address cannot be loaded, [`Errno::ENAMETOOLONG`] beyond the limit.
    pub fn text(&mut self, address: u64, limit: usize) -> Result<Vec<u8>, Errno> {
        let mut text = Vec::new();
        let mut at = address;
        loop {
            let part = (PAGE_BYTES - at % PAGE_BYTES).min(256) as usize;
            let mut bytes = [0; 256];
            self.read(at, &mut bytes[..part])?;
            if let Some(end) = bytes[..part].iter().position(|&byte| byte == 0) {
                text.extend_from_slice(&bytes[..end]);
                return if text.len() < limit { Ok(text) } else { Err(Errno::ENAMETOOLONG) };
            }
            text.extend_from_slice(&bytes[..part]);
            if text.len() >= limit {
                return Err(Errno::ENAMETOOLONG);
            }
            at = at.wrapping_add(part as u64);
        }
    }

    /// Removes a range from the shared mappings of files.
    fn cut_areas(&mut self, start: u64, end: u64) -> Result<(), Errno> {
        let touched: Vec<Area> =
            self.areas.values().filter(|area| area.start < end && start < area.end).copied().collect();
        if self.areas.len() + touched.len() > AREA_LIMIT {
            return Err(Errno::ENOMEM);
        }
        for area in touched {
            self.areas.remove(&area.start);
            if area.start < start {
                self.areas.insert(area.start, Area { end: start, ..area });
            }
            if area.end > end {
                let rest = Area { start: end, offset: area.offset + (end - area.start), ..area };
                self.areas.insert(end, rest);
            }
        }
        Ok(())
    }
}

/// Returns the permissions of the bits of mmap(2): 1 to read, 2 to write, 4 to execute.
///
/// As on RISC-V, what can be written can be read.
pub fn permissions(protection: u64) -> Permissions {
    let bit = |bit, permission| if protection & bit != 0 { permission } else { Permissions::NONE };
    bit(1 | 2, Permissions::READ) | bit(2, Permissions::WRITE) | bit(4, Permissions::EXECUTE)
}

/// Returns a length rounded up to whole pages; a length that cannot be is returned as one that no range has.
pub fn round_up(length: u64) -> u64 {
    length.checked_next_multiple_of(PAGE_BYTES).unwrap_or(u64::MAX / PAGE_BYTES * PAGE_BYTES)
}

/// Checks that a range consists of whole pages below the limit of addresses.
fn check_range(start: u64, length: u64) -> Result<(), Errno> {
    if !start.is_multiple_of(PAGE_BYTES) || length == 0 || !length.is_multiple_of(PAGE_BYTES) {
        return Err(Errno::EINVAL);
    }
    let limit = PAGES_LIMIT * PAGE_BYTES;
    if length > limit || start > limit - length { Err(Errno::ENOMEM) } else { Ok(()) }
}

/// Returns the error of a refused access.
fn fault(_: Fault) -> Errno {
    Errno::EFAULT
}

/// Returns the error of a refused change of mappings.
fn errno_of(error: MapError) -> Errno {
    match error {
        MapError::Range { .. } => Errno::EINVAL,
        MapError::Unmapped(_) | MapError::TooMany | MapError::OutOfMemory(_) => Errno::ENOMEM,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space() -> AddressSpace {
        AddressSpace::new(Space::new(16 << 20), 0x10_0000)
    }

    #[test]
    fn the_heap_grows_and_shrinks() {
        let mut memory = space();
        assert_eq!(memory.set_break(0), 0x10_0000);
        assert_eq!(memory.set_break(0x10_1800), 0x10_1800);
        memory.write(0x10_1fff, &[1]).unwrap();
        assert_eq!(memory.write(0x10_2000, &[1]), Err(Errno::EFAULT));
        assert_eq!(memory.set_break(0x10_0001), 0x10_0001);
        assert_eq!(memory.write(0x10_1000, &[1]), Err(Errno::EFAULT));
        assert_eq!(memory.set_break(u64::MAX), 0x10_0001);
    }

    #[test]
    fn a_mapping_that_moves_keeps_its_content() {
        let mut memory = space();
        memory.map(0x20_0000, 0x2000, permissions(3)).unwrap();
        memory.map(0x20_2000, 0x1000, permissions(1)).unwrap();
        memory.write(0x20_1ffc, &[1, 2, 3, 4]).unwrap();
        assert_eq!(memory.remap(0x20_0000, 0x2000, 0x3000, false, None), Err(Errno::ENOMEM));
        let to = memory.remap(0x20_0000, 0x2000, 0x3000, true, None).unwrap();
        assert_eq!(memory.array(to + 0x1ffc), Ok([1, 2, 3, 4]));
        assert_eq!(memory.array::<1>(0x20_0000), Err(Errno::EFAULT));
        assert_eq!(memory.array(to + 0x2fff), Ok([0]));
    }

    #[test]
    fn shared_mappings_are_cut_with_their_offsets() {
        let mut memory = space();
        let area = Area { start: 0x20_0000, end: 0x20_4000, file: 7, offset: 0x8000, is_writable: true };
        memory.map(area.start, 0x4000, permissions(3)).unwrap();
        memory.add_area(area).unwrap();
        assert_eq!(memory.add_area(Area { start: 0x30_0000, end: 0x30_1000, ..area }), Err(Errno::ENODEV));
        memory.unmap(0x20_1000, 0x1000).unwrap();
        let parts: Vec<_> =
            memory.areas_of(7, 0x8800, 0x2000).map(|area| (area.start, area.end, area.offset)).collect();
        assert_eq!(parts, [(0x20_0800, 0x20_1000, 0x8800), (0x20_2000, 0x20_2800, 0xa000)]);
    }

    #[test]
    fn hostile_ranges_are_refused() {
        let mut memory = space();
        for (start, length) in [(1, 4096), (0, 0), (4096, u64::MAX), (u64::MAX - 4095, 4096), (0, 1 << 62)] {
            assert!(memory.map(start, length, permissions(3)).is_err());
            assert!(memory.unmap(start, round_up(length)).is_err());
            assert!(memory.remap(start, length, 4096, true, None).is_err());
        }
        assert_eq!(memory.text(u64::MAX - 3, 100), Err(Errno::EFAULT));
    }
}
