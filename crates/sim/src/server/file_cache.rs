//! Cache of file pages in memory, which evicts the least recently used page. A replay decides with it which
//! calls need a disk.

use std::collections::{BTreeMap, HashMap};

/// Size of a page, in bytes.
const PAGE: u64 = 4096;

#[derive(Clone, Copy)]
struct Page {
    /// Value of the cache's clock at the last use.
    stamp: u64,
    is_dirty: bool,
}

/// Cache of file pages with a fixed capacity.
pub struct FileCache {
    pages: HashMap<(u32, u64), Page>,
    by_stamp: BTreeMap<u64, (u32, u64)>,
    clock: u64,
    most: usize,
}

/// Modified pages that were evicted and must be written to their file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evicted {
    /// Number of the file.
    pub file: u32,
    /// Bytes to write.
    pub bytes: u64,
}

impl FileCache {
    /// Returns an empty cache with a capacity of `bytes`, rounded down to whole pages. With capacity 0 it
    /// keeps nothing.
    pub fn new(bytes: f64) -> FileCache {
        let most = (bytes / PAGE as f64) as usize;
        FileCache { pages: HashMap::new(), by_stamp: BTreeMap::new(), clock: 0, most }
    }

    /// Returns true if the capacity is 0.
    pub fn is_disabled(&self) -> bool {
        self.most == 0
    }

    /// Reads a range. Returns true if all its pages were in the cache, and the modified pages that were
    /// evicted. A range larger than the cache is cut to as many pages as the cache holds.
    pub fn read(&mut self, file: u32, offset: u64, length: u64) -> (bool, Vec<Evicted>) {
        let mut evicted = Vec::new();
        let mut all_there = true;
        for page in pages(offset, length).take(self.most.max(1)) {
            all_there &= self.touch(file, page, false, &mut evicted);
        }
        (all_there && self.most > 0, evicted)
    }

    /// Writes a range, and returns the modified pages that were evicted.
    pub fn write(&mut self, file: u32, offset: u64, length: u64) -> Vec<Evicted> {
        let mut evicted = Vec::new();
        let all = pages(offset, length);
        let (from, count) = (*all.start(), all.end() - all.start() + 1);
        let passing = count.saturating_sub(self.most as u64);
        if passing > 0 {
            evicted.push(Evicted { file, bytes: passing * PAGE });
        }
        for page in from + passing..from + count {
            self.touch(file, page, true, &mut evicted);
        }
        evicted
    }

    /// Marks the file's pages as written, and returns the bytes of those that were modified.
    pub fn sync(&mut self, file: u32) -> u64 {
        let dirty = self.pages.iter_mut().filter(|((of, _), page)| *of == file && page.is_dirty);
        dirty.map(|(_, page)| page.is_dirty = false).count() as u64 * PAGE
    }

    /// Uses one page, which enters the cache if necessary. Returns true if the page was in the cache before.
    fn touch(&mut self, file: u32, number: u64, dirties: bool, evicted: &mut Vec<Evicted>) -> bool {
        if self.most == 0 {
            return false;
        }
        self.clock += 1;
        let key = (file, number);
        let before = self.pages.get(&key).copied();
        if let Some(page) = before {
            self.by_stamp.remove(&page.stamp);
        } else if self.pages.len() >= self.most
            && let Some((_, oldest)) = self.by_stamp.pop_first()
            && self.pages.remove(&oldest).is_some_and(|page| page.is_dirty)
        {
            match evicted.last_mut().filter(|last| last.file == oldest.0) {
                Some(last) => last.bytes += PAGE,
                None => evicted.push(Evicted { file: oldest.0, bytes: PAGE }),
            }
        }
        let is_dirty = dirties || before.is_some_and(|page| page.is_dirty);
        self.pages.insert(key, Page { stamp: self.clock, is_dirty });
        self.by_stamp.insert(self.clock, key);
        before.is_some()
    }
}

fn pages(offset: u64, length: u64) -> std::ops::RangeInclusive<u64> {
    offset / PAGE..=offset.saturating_add(length.max(1) - 1) / PAGE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_page_goes() {
        let mut cache = FileCache::new(3.0 * 4096.0);
        assert!(!cache.read(0, 0, 8192).0);
        assert!(cache.read(0, 100, 3000).0, "page 0 again");
        assert!(!cache.read(1, 0, 1).0);
        assert!(!cache.read(1, 4096, 1).0, "pushes page 1 of the first file out");
        assert!(cache.read(0, 0, 1).0 && !cache.read(0, 4096, 1).0);
    }

    #[test]
    fn what_was_written_is_written_back_once() {
        let mut cache = FileCache::new(4.0 * 4096.0);
        assert_eq!(cache.write(0, 0, 8000), []);
        assert_eq!((cache.sync(0), cache.sync(0), cache.sync(1)), (8192, 0, 0));
        cache.write(0, 0, 1);
        let (_, evicted) = cache.read(1, 0, 4 * 4096);
        assert_eq!(evicted, [Evicted { file: 0, bytes: 4096 }]);
    }

    #[test]
    fn without_memory_everything_passes() {
        let mut cache = FileCache::new(0.0);
        cache.read(0, 0, 4096);
        assert!(!cache.read(0, 0, 4096).0);
        assert!(cache.is_disabled());
        let mut small = FileCache::new(4096.0);
        assert_eq!(small.write(0, 0, 3 * 4096), [Evicted { file: 0, bytes: 2 * 4096 }]);
    }
}
