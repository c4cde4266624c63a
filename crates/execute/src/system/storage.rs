//! Pages of files: which calls need the disk, and the requests to it.

use super::{Caller, Flight, Served, Stop, System};
use crate::clock::Time;
use crate::descriptor::Object;
use crate::errno::Errno;
use crate::file::{FILE_PAGE_BYTES, Kind, NodeId};
use crate::machine::{Direction, Location, Path, Request, Tag, Work};
use crate::page_cache::{PageKey, Presence};
use crate::thread::Key;

/// Number of pages that one request to the disk transfers at most, and that a read at the beginning of a file or
/// behind a cached page reads ahead: 128 KiB.
pub(super) const READ_AHEAD_PAGES: u64 = 32;
/// Size of a disk's sector, in bytes.
const SECTOR_BYTES: u64 = 512;
/// Number of dirty pages that are written at once when too many are dirty.
const WRITEBACK_PAGES: usize = 256;

impl System {
    /// Makes sure that pages of a file are cached: first and last, at most [`READ_AHEAD_PAGES`] of them.
    ///
    /// # Errors
    ///
    /// [`Stop::Block`]: the pages are being read from the disk.
    pub(super) fn require_pages(
        &mut self,
        caller: &Caller,
        file: NodeId,
        first: u64,
        last: u64,
    ) -> Result<(), Stop> {
        let mut waits: Vec<Key> = Vec::new();
        let mut missing = Vec::new();
        for page in first..=last {
            match self.cache.presence((file, page)) {
                Presence::Cached => {
                    self.cache.touch((file, page));
                    self.work.push(Work::Path(Path::CacheHit));
                }
                Presence::Reading(tag) if !waits.contains(&Key::Completion(tag)) => {
                    waits.push(Key::Completion(tag))
                }
                Presence::Reading(_) => {}
                Presence::Missing => missing.push(page),
            }
        }
        if let Some(&start) = missing.first() {
            self.work.push(Work::Path(Path::CacheMiss));
            self.read_ahead(file, start, &mut missing);
            for run in runs(&missing) {
                waits.push(Key::Completion(self.read_pages(caller, file, run)));
            }
        }
        if waits.is_empty() { Ok(()) } else { Err(Stop::Block(waits)) }
    }

    /// Adds the pages behind those that a sequential reader misses.
    fn read_ahead(&self, file: NodeId, start: u64, missing: &mut Vec<u64>) {
        let is_sequential = start == 0 || self.cache.presence((file, start - 1)) == Presence::Cached;
        let Some(&last) = missing.last().filter(|_| is_sequential) else { return };
        let end = self.files.length(file).div_ceil(FILE_PAGE_BYTES).min(start + READ_AHEAD_PAGES);
        let ahead =
            (last + 1..end).take_while(|&page| self.cache.presence((file, page)) == Presence::Missing);
        missing.extend(ahead);
    }

    /// Submits the read of consecutive pages.
    fn read_pages(&mut self, caller: &Caller, file: NodeId, (first, last): (u64, u64)) -> Tag {
        let tag = self.next_tag();
        let pages: Vec<PageKey> = (first..=last).map(|page| (file, page)).collect();
        for &page in &pages {
            if let Some(evicted) = self.cache.insert(page, Some(tag)) {
                self.write_pages(evicted.0, (evicted.1, evicted.1));
            }
        }
        self.in_flight.insert(tag, Flight::Read(pages));
        self.submit_disk(tag, Direction::In, file, (first, last));
        let _ = caller;
        tag
    }

    /// Submits the write of consecutive pages, and returns its tag.
    fn write_pages(&mut self, file: NodeId, run: (u64, u64)) -> Tag {
        let tag = self.next_tag();
        self.in_flight.insert(tag, Flight::Write(file));
        self.submit_disk(tag, Direction::Out, file, run);
        tag
    }

    /// Submits a request to the disk.
    fn submit_disk(&mut self, tag: Tag, direction: Direction, file: NodeId, (first, last): (u64, u64)) {
        let offset = self.files.disk_offset(file, first);
        let bytes = (last - first + 1) * FILE_PAGE_BYTES;
        let memory = Location::Page { file, offset: first * FILE_PAGE_BYTES };
        let position = first * FILE_PAGE_BYTES;
        self.requests.push((tag, Request::Disk { direction, file, position, offset, bytes, memory }));
    }

    /// Lets the disk read bytes of a file into the program's memory, without the page cache. The bytes are those of one
    /// request, and none of their pages is cached.
    ///
    /// # Errors
    ///
    /// [`Stop::Block`]: the disk is reading.
    pub(super) fn read_directly(
        &mut self,
        caller: &Caller,
        file: NodeId,
        position: u64,
        bytes: u64,
        address: u64,
    ) -> Result<(), Stop> {
        if let Some(&tag) = self.call_of(caller.thread)?.requests.first() {
            if self.in_flight.contains_key(&tag) {
                return Err(Stop::Block(vec![Key::Completion(tag)]));
            }
            self.call_of(caller.thread)?.requests.clear();
            return Ok(());
        }
        let tag = self.next_tag();
        // A disk reads whole sectors.
        let begin = position - position % SECTOR_BYTES;
        let end = (position + bytes).next_multiple_of(SECTOR_BYTES);
        let page = self.files.disk_offset(file, begin / FILE_PAGE_BYTES);
        self.in_flight.insert(tag, Flight::Read(Vec::new()));
        let request = Request::Disk {
            direction: Direction::In,
            file,
            position: begin,
            offset: page + begin % FILE_PAGE_BYTES,
            bytes: end - begin,
            memory: Location::Program(address),
        };
        self.requests.push((tag, request));
        self.call_of(caller.thread)?.requests.insert(tag);
        Err(Stop::Block(vec![Key::Completion(tag)]))
    }

    /// Returns whether a page of a file, from the first to the last, is cached or being read.
    pub(super) fn has_cached(&self, file: NodeId, first: u64, last: u64) -> bool {
        (first..=last).any(|page| self.cache.presence((file, page)) != Presence::Missing)
    }

    /// Submits the write of all dirty pages of a file.
    fn write_dirty(&mut self, file: NodeId, limit: usize) {
        let pages: Vec<u64> = self.cache.take_dirty(file, limit).into_iter().map(|(_, page)| page).collect();
        for run in runs(&pages) {
            self.write_pages(file, run);
        }
    }

    /// Reads bytes of a file that are cached, the newest ones of shared mappings included.
    pub(super) fn read_file(&mut self, file: NodeId, offset: u64, bytes: &mut [u8]) -> Result<usize, Errno> {
        self.gather_mappings(file, offset, bytes.len() as u64)?;
        self.files.read(file, offset, bytes)
    }

    /// Writes bytes of a file whose partly overwritten pages are cached, and marks the pages as dirty.
    pub(super) fn write_file(
        &mut self,
        file: NodeId,
        offset: u64,
        bytes: &[u8],
        now: Time,
    ) -> Result<(), Errno> {
        self.files.write(file, offset, bytes, now)?;
        let last = (offset + bytes.len() as u64).saturating_sub(1) / FILE_PAGE_BYTES;
        for page in offset / FILE_PAGE_BYTES..=last {
            if let Some(evicted) = self.cache.insert((file, page), None) {
                self.write_pages(evicted.0, (evicted.1, evicted.1));
            }
            self.cache.mark_dirty((file, page));
        }
        let areas: Vec<_> = self.memory.areas_of(file, offset, bytes.len() as u64).collect();
        for area in areas {
            let from = (area.offset - offset) as usize;
            let part = &bytes[from..from + (area.end - area.start) as usize];
            self.memory.space.initialise(area.start, part).map_err(|_| Errno::EFAULT)?;
        }
        if self.cache.is_too_dirty() {
            self.write_dirty(file, WRITEBACK_PAGES);
        }
        Ok(())
    }

    /// Copies the shared mappings of a range of a file into the file.
    pub(super) fn gather_mappings(&mut self, file: NodeId, offset: u64, length: u64) -> Result<(), Errno> {
        let end = self.files.length(file);
        let areas: Vec<_> =
            self.memory.areas_of(file, offset, length).filter(|area| area.is_writable).collect();
        for area in areas {
            let mut page = [0; FILE_PAGE_BYTES as usize];
            let mut at = area.start;
            while at < area.end {
                let offset = area.offset + (at - area.start);
                let part = (area.end - at).min(FILE_PAGE_BYTES).min(end.saturating_sub(offset)) as usize;
                if part == 0 {
                    break;
                }
                // What the program cannot load it has not stored to either.
                if self.memory.read(at, &mut page[..part]).is_ok() {
                    let modified = self.files.node(file)?.modified;
                    let mut before = [0; FILE_PAGE_BYTES as usize];
                    self.files.read(file, offset, &mut before[..part])?;
                    if before[..part] != page[..part] {
                        self.files.write(file, offset, &page[..part], modified)?;
                        self.cache.insert((file, offset / FILE_PAGE_BYTES), None);
                        self.cache.mark_dirty((file, offset / FILE_PAGE_BYTES));
                    }
                }
                at += part as u64;
            }
        }
        Ok(())
    }

    /// Removes the cached pages of a file that was shortened or removed.
    pub(super) fn forget_pages(&mut self, file: NodeId, first: u64) {
        self.cache.remove(file, first);
    }

    /// Serves fsync(2), fdatasync(2) and sync_file_range(2): waits until all of a file that was written is on the
    /// disk.
    pub(super) fn fsync(&mut self, caller: &Caller) -> Served {
        let Object::Node(file) = self.descriptors.get(caller.descriptor(0))?.object else {
            return Err(Errno::EINVAL.into());
        };
        self.wait_for_writes(caller, Some(file))
    }

    /// Serves sync(2) and syncfs(2): waits until all that was written is on the disk.
    pub(super) fn sync(&mut self, caller: &Caller) -> Served {
        self.wait_for_writes(caller, None)
    }

    /// Writes the dirty pages of a file, or of all, and waits for all writes in flight.
    pub(super) fn wait_for_writes(&mut self, caller: &Caller, file: Option<NodeId>) -> Served {
        if !self.call_of(caller.thread)?.is_begun {
            let files: Vec<NodeId> = match file {
                Some(file) => vec![file],
                None => self.cache.files(),
            };
            for file in files {
                self.gather_mappings(file, 0, u64::MAX)?;
                self.write_dirty(file, usize::MAX);
            }
            let is_for =
                |flight: &Flight| matches!(flight, Flight::Write(of) if file.is_none_or(|file| file == *of));
            let tags =
                self.in_flight.iter().filter(|(_, flight)| is_for(flight)).map(|(&tag, _)| tag).collect();
            let call = self.call_of(caller.thread)?;
            call.requests = tags;
            call.is_begun = true;
        }
        let requests = self.call_of(caller.thread)?.requests.clone();
        // One key is enough: the thread looks again when that request is completed.
        match requests.into_iter().find(|tag| self.in_flight.contains_key(tag)) {
            Some(tag) => Err(Stop::Block(vec![Key::Completion(tag)])),
            None => Ok(0),
        }
    }

    /// Makes sure that a file's content is cached, part by part.
    pub(super) fn require_range(
        &mut self,
        caller: &Caller,
        file: NodeId,
        offset: u64,
        length: u64,
    ) -> Result<(), Stop> {
        let end = offset.saturating_add(length).min(self.files.length(file));
        let is_file = self.files.node(file).is_ok_and(|node| matches!(node.kind, Kind::File(_)));
        if end <= offset || !is_file {
            return Ok(());
        }
        let last = (end - 1) / FILE_PAGE_BYTES;
        let first = offset / FILE_PAGE_BYTES + self.call_of(caller.thread)?.progress;
        for start in (first..=last).step_by(READ_AHEAD_PAGES as usize) {
            self.require_pages(caller, file, start, last.min(start + READ_AHEAD_PAGES - 1))?;
            self.call_of(caller.thread)?.progress = start + READ_AHEAD_PAGES - offset / FILE_PAGE_BYTES;
        }
        Ok(())
    }
}

/// Returns the first and last numbers of each run of consecutive numbers, of at most [`READ_AHEAD_PAGES`].
fn runs(pages: &[u64]) -> Vec<(u64, u64)> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for &page in pages {
        match runs.last_mut() {
            Some((first, last)) if *last + 1 == page && page - *first < READ_AHEAD_PAGES => *last = page,
            _ => runs.push((page, page)),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_consecutive_and_bounded() {
        assert_eq!(runs(&[1, 2, 4, 6, 7]), [(1, 2), (4, 4), (6, 7)]);
        let many: Vec<u64> = (0..40).collect();
        assert_eq!(runs(&many), [(0, 31), (32, 39)]);
    }
}
