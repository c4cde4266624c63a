//! Calls that change the address space.

use bywash_cpu::memory::PAGE_BYTES;

use super::{Caller, Served, Stop, System};
use crate::address_space::{Area, permissions, round_up};
use crate::descriptor::Object;
use crate::errno::Errno;
use crate::file::{FILE_PAGE_BYTES, Kind};
use crate::machine::{Path, Work};

/// Flags of mmap(2).
mod flag {
    pub const SHARED: u64 = 1;
    pub const PRIVATE: u64 = 2;
    pub const FIXED: u64 = 0x10;
    pub const ANONYMOUS: u64 = 0x20;
    pub const FIXED_NO_REPLACE: u64 = 0x10_0000;
}

/// Flags of mremap(2).
mod remap {
    pub const MAY_MOVE: u64 = 1;
    pub const FIXED: u64 = 2;
}

impl System {
    /// Serves brk(2).
    pub(super) fn brk(&mut self, caller: &Caller) -> Served {
        self.work.push(Work::Path(Path::Map { pages: 0 }));
        Ok(self.memory.set_break(caller.arguments[0]))
    }

    /// Serves mmap(2).
    pub(super) fn mmap(&mut self, caller: &Caller) -> Served {
        let [hint, length, protection, flags, _, offset] = caller.arguments;
        let is_fixed = flags & (flag::FIXED | flag::FIXED_NO_REPLACE) != 0;
        if length == 0 || !offset.is_multiple_of(PAGE_BYTES) || is_fixed && !hint.is_multiple_of(PAGE_BYTES) {
            return Err(Errno::EINVAL.into());
        }
        let length = round_up(length);
        if offset.checked_add(length).is_none_or(|end| end > i64::MAX as u64) {
            return Err(Errno::EOVERFLOW.into());
        }
        let file = match flags & 3 {
            flag::SHARED | flag::PRIVATE | 3 if flags & flag::ANONYMOUS == 0 => {
                Some(self.mapped_file(caller)?)
            }
            flag::SHARED | flag::PRIVATE => None,
            _ => return Err(Errno::EINVAL.into()),
        };
        if let Some(file) = file {
            self.require_range(caller, file, offset, length)?;
        }
        let start = if is_fixed { hint } else { self.memory.find_free(hint, length)? };
        if flags & flag::FIXED_NO_REPLACE != 0 && !self.memory.space.is_free(start, length) {
            return Err(Errno::EEXIST.into());
        }
        if is_fixed {
            self.flush_areas(start, start.saturating_add(length))?;
        }
        self.memory.map(start, length, permissions(protection))?;
        if let Some(file) = file {
            let is_shared = flags & 3 != flag::PRIVATE;
            self.fill(file, start, length, offset, is_shared && protection & 2 != 0, is_shared)?;
        }
        self.work.push(Work::Path(Path::Map { pages: length / PAGE_BYTES }));
        Ok(start)
    }

    /// Serves munmap(2).
    pub(super) fn munmap(&mut self, caller: &Caller) -> Served {
        let [start, length, ..] = caller.arguments;
        let length = round_up(length);
        self.flush_areas(start, start.saturating_add(length))?;
        self.memory.unmap(start, length)?;
        self.work.push(Work::Path(Path::Map { pages: length / PAGE_BYTES }));
        Ok(0)
    }

    /// Serves mprotect(2).
    pub(super) fn mprotect(&mut self, caller: &Caller) -> Served {
        let [start, length, protection, ..] = caller.arguments;
        if length == 0 {
            return Ok(0);
        }
        let length = round_up(length);
        self.memory.protect(start, length, permissions(protection))?;
        self.work.push(Work::Path(Path::Map { pages: length / PAGE_BYTES }));
        Ok(0)
    }

    /// Serves mremap(2).
    pub(super) fn mremap(&mut self, caller: &Caller) -> Served {
        let [start, old, new, flags, target, _] = caller.arguments;
        if flags & !(remap::MAY_MOVE | remap::FIXED) != 0 || new == 0 || old == 0 {
            return Err(Errno::EINVAL.into());
        }
        let to = (flags & remap::FIXED != 0).then_some(target);
        if to.is_some() && flags & remap::MAY_MOVE == 0 {
            return Err(Errno::EINVAL.into());
        }
        let new = round_up(new);
        self.work.push(Work::Path(Path::Map { pages: new / PAGE_BYTES }));
        Ok(self.memory.remap(start, round_up(old), new, flags & remap::MAY_MOVE != 0, to)?)
    }

    /// Serves madvise(2).
    pub(super) fn madvise(&mut self, caller: &Caller) -> Served {
        const DONT_NEED: u64 = 4;
        const FREE: u64 = 8;
        const REMOVE: u64 = 9;

        let [start, length, advice, ..] = caller.arguments;
        if length == 0 {
            return Ok(0);
        }
        match advice {
            DONT_NEED | FREE => self.memory.discard(start, round_up(length))?,
            REMOVE => return Err(Errno::EOPNOTSUPP.into()),
            0..=25 => {}
            _ => return Err(Errno::EINVAL.into()),
        }
        Ok(0)
    }

    /// Serves msync(2): shared mappings of files go to the file, and to the disk if that is requested.
    pub(super) fn msync(&mut self, caller: &Caller) -> Served {
        const SYNC: u64 = 4;

        let [start, length, flags, ..] = caller.arguments;
        let end = start.saturating_add(round_up(length));
        let files: Vec<u64> = self.memory.areas_between(start, end).iter().map(|area| area.file).collect();
        if flags & SYNC != 0 && !files.is_empty() {
            // All of a file's pages are written, of one file after the other.
            for file in files {
                self.wait_for_writes(caller, Some(file))?;
            }
            return Ok(0);
        }
        self.flush_areas(start, end)?;
        Ok(0)
    }

    /// Copies what the program has stored to shared mappings of files to the files.
    pub(crate) fn flush_areas(&mut self, start: u64, end: u64) -> Result<(), Errno> {
        for area in self.memory.areas_between(start, end) {
            self.gather_mappings(area.file, area.offset, area.end - area.start)?;
        }
        Ok(())
    }

    /// Returns the file of a call of mmap.
    fn mapped_file(&self, caller: &Caller) -> Result<u64, Stop> {
        let [_, _, protection, flags, ..] = caller.arguments;
        let description = self.descriptors.get(caller.descriptor(4))?;
        let Object::Node(file) = description.object else { return Err(Errno::ENODEV.into()) };
        if !matches!(self.files.node(file)?.kind, Kind::File(_)) {
            return Err(Errno::ENODEV.into());
        }
        let is_written = flags & 3 != flag::PRIVATE && protection & 2 != 0;
        if description.flags & 3 == 1 || is_written && description.flags & 3 != 2 {
            return Err(Errno::EACCES.into());
        }
        Ok(file)
    }

    /// Fills a new mapping with a file's content.
    fn fill(
        &mut self,
        file: u64,
        start: u64,
        length: u64,
        offset: u64,
        is_writable: bool,
        is_shared: bool,
    ) -> Result<(), Stop> {
        let content = self.files.length(file).saturating_sub(offset).min(length);
        let mut page = [0; FILE_PAGE_BYTES as usize];
        let mut done = 0;
        while done < content {
            let part = (content - done).min(FILE_PAGE_BYTES) as usize;
            self.read_file(file, offset + done, &mut page[..part])?;
            if page[..part].iter().any(|&byte| byte != 0) {
                self.memory.space.initialise(start + done, &page[..part]).map_err(|_| Errno::ENOMEM)?;
            }
            done += part as u64;
        }
        if is_shared {
            let area = Area { start, end: start + length, file, offset, is_writable };
            if let Err(errno) = self.memory.add_area(area) {
                self.memory.unmap(start, length)?;
                return Err(errno.into());
            }
        }
        Ok(())
    }
}
