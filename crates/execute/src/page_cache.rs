//! Page cache: which pages of files are in the simulated memory, and with it which reads and writes need a
//! disk.
//!
//! The content of files is always in memory of the host ([`FileSystem`](crate::FileSystem)); the cache decides
//! about time only. A page is on its way from the disk, or cached, and then clean or dirty. The pages used
//! least recently leave when the cache is full.

use std::collections::BTreeMap;

use crate::machine::Tag;

/// Page of a file: the file's number, and the page's number in the file.
pub type PageKey = (u64, u64);

/// Least number of pages of a cache, so that a call's own pages are not evicted before it has copied them.
pub const PAGES_MIN: usize = 64;

/// State of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// Not cached.
    Missing,
    /// On its way from the disk, by a request.
    Reading(Tag),
    /// Cached.
    Cached,
}

/// Page in the cache.
#[derive(Clone, Copy, Debug)]
struct Page {
    /// Number of the latest use.
    used: u64,
    /// True if the disk does not have its content yet.
    is_dirty: bool,
    /// Request that reads it.
    reading: Option<Tag>,
}

/// Pages of files in memory.
#[derive(Clone, Debug)]
pub struct PageCache {
    /// Greatest number of pages.
    capacity: usize,
    /// Pages.
    pages: BTreeMap<PageKey, Page>,
    /// Pages by their latest use.
    by_use: BTreeMap<u64, PageKey>,
    /// Number of the latest use of any page.
    uses: u64,
    /// Number of dirty pages.
    dirty: usize,
}

impl PageCache {
    /// Makes an empty cache with room for a number of pages, at least [`PAGES_MIN`].
    pub fn new(pages: usize) -> PageCache {
        PageCache {
            capacity: pages.max(PAGES_MIN),
            pages: BTreeMap::new(),
            by_use: BTreeMap::new(),
            uses: 0,
            dirty: 0,
        }
    }

    /// Returns the state of a page.
    pub fn presence(&self, key: PageKey) -> Presence {
        match self.pages.get(&key) {
            None => Presence::Missing,
            Some(Page { reading: Some(tag), .. }) => Presence::Reading(*tag),
            Some(_) => Presence::Cached,
        }
    }

    /// Returns whether so many pages are dirty that some should be written: a quarter.
    pub fn is_too_dirty(&self) -> bool {
        self.dirty > self.capacity / 4
    }

    /// Makes a page the most recently used one.
    pub fn touch(&mut self, key: PageKey) {
        self.uses += 1;
        if let Some(page) = self.pages.get_mut(&key) {
            self.by_use.remove(&page.used);
            page.used = self.uses;
            self.by_use.insert(self.uses, key);
        }
    }

    /// Enters a page that a request reads, or, without one, a page whose content is there.
    ///
    /// Returns the page that had to leave if that was dirty: its content must be written.
    pub fn insert(&mut self, key: PageKey, reading: Option<Tag>) -> Option<PageKey> {
        let evicted = if self.pages.len() >= self.capacity && !self.pages.contains_key(&key) {
            self.evict()
        } else {
            None
        };
        self.pages.entry(key).or_insert(Page { used: 0, is_dirty: false, reading }).reading = reading;
        self.touch(key);
        evicted
    }

    /// Ends the reading of a page.
    pub fn complete(&mut self, key: PageKey) {
        if let Some(page) = self.pages.get_mut(&key) {
            page.reading = None;
        }
    }

    /// Marks a cached page as one whose content the disk does not have.
    pub fn mark_dirty(&mut self, key: PageKey) {
        if let Some(page) = self.pages.get_mut(&key).filter(|page| !page.is_dirty) {
            page.is_dirty = true;
            self.dirty += 1;
        }
    }

    /// Returns the dirty pages of a file in the order of their numbers, at most `limit`, and marks them clean:
    /// the caller writes them.
    pub fn take_dirty(&mut self, file: u64, limit: usize) -> Vec<PageKey> {
        let pages = self.pages.range_mut((file, 0)..=(file, u64::MAX));
        let dirty: Vec<PageKey> = pages
            .filter(|(_, page)| page.is_dirty)
            .take(limit)
            .map(|(&key, page)| {
                page.is_dirty = false;
                key
            })
            .collect();
        self.dirty -= dirty.len();
        dirty
    }

    /// Returns the files with dirty pages.
    pub fn files(&self) -> Vec<u64> {
        let mut files: Vec<u64> =
            self.pages.iter().filter(|(_, page)| page.is_dirty).map(|(&(file, _), _)| file).collect();
        files.dedup();
        files
    }

    /// Removes a file's pages from a page number on, written or not.
    pub fn remove(&mut self, file: u64, first: u64) {
        let keys: Vec<PageKey> =
            self.pages.range((file, first)..=(file, u64::MAX)).map(|(&key, _)| key).collect();
        for key in keys {
            self.forget(key);
        }
    }

    /// Removes the least recently used page that no request reads. Returns it if it was dirty.
    fn evict(&mut self) -> Option<PageKey> {
        let is_idle = |key: &PageKey| self.pages.get(key).is_some_and(|page| page.reading.is_none());
        let key = *self.by_use.values().find(|key| is_idle(key))?;
        self.forget(key).then_some(key)
    }

    /// Removes a page, and returns whether it was dirty.
    fn forget(&mut self, key: PageKey) -> bool {
        let Some(page) = self.pages.remove(&key) else { return false };
        self.by_use.remove(&page.used);
        self.dirty -= usize::from(page.is_dirty);
        page.is_dirty
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_page_leaves() {
        let mut cache = PageCache::new(0);
        for number in 0..PAGES_MIN as u64 {
            assert_eq!(cache.insert((1, number), None), None);
        }
        cache.touch((1, 0));
        cache.mark_dirty((1, 2));
        assert_eq!(cache.insert((2, 0), None), None);
        assert_eq!((cache.presence((1, 0)), cache.presence((1, 1))), (Presence::Cached, Presence::Missing));
        assert_eq!(cache.insert((2, 1), Some(Tag(1))), Some((1, 2)), "a dirty page is written");
        assert_eq!((cache.dirty, cache.pages.len()), (0, PAGES_MIN));
    }

    #[test]
    fn pages_on_their_way_stay_until_they_are_there() {
        let mut cache = PageCache::new(0);
        cache.insert((1, 0), Some(Tag(9)));
        for number in 0..200 {
            cache.insert((2, number), None);
        }
        assert_eq!(cache.presence((1, 0)), Presence::Reading(Tag(9)));
        cache.complete((1, 0));
        assert_eq!(cache.presence((1, 0)), Presence::Cached);
        cache.mark_dirty((1, 0));
        assert_eq!(cache.take_dirty(1, 10), [(1, 0)]);
        assert_eq!(cache.take_dirty(1, 10), []);
        cache.remove(1, 0);
        assert_eq!(cache.presence((1, 0)), Presence::Missing);
    }
}
