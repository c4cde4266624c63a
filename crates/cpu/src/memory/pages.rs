//! Pages: the frame of each page that was touched, with what is permitted there.

use super::regions::Permissions;

/// Entry of the page table.
///
/// | bits  | meaning |
/// |-------|---------|
/// | 0..3  | permissions: read, write, execute |
/// | 3     | instructions were fetched: a store makes decoded instructions outdated |
/// | 4     | a line is reserved: a store may break a reservation |
/// | 8..32 | number of the frame, plus one; zero without a frame |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PageEntry(u32);

impl PageEntry {
    /// Greatest number of frames that entries can tell apart.
    pub const FRAME_LIMIT: u64 = (1 << 24) - 1;
    /// Bit of pages from which instructions were fetched.
    const CODE: u32 = 1 << 3;
    /// Bit of pages with reserved lines.
    const RESERVED: u32 = 1 << 4;

    /// Returns the entry of a page that has a frame.
    pub fn new(frame: u32, permissions: Permissions) -> PageEntry {
        PageEntry((frame + 1) << 8 | u32::from(permissions.bits()))
    }

    /// Returns the frame.
    pub fn frame(self) -> Option<u32> {
        (self.0 >> 8).checked_sub(1)
    }

    /// Returns whether the permissions include others.
    pub fn permits(self, needed: Permissions) -> bool {
        self.0 & u32::from(needed.bits()) == u32::from(needed.bits())
    }

    /// Returns whether instructions were fetched from the page.
    pub fn has_code(self) -> bool {
        self.0 & Self::CODE != 0
    }

    /// Returns whether lines of the page are reserved.
    pub fn is_reserved(self) -> bool {
        self.0 & Self::RESERVED != 0
    }

    /// Returns the entry with other permissions.
    pub fn with_permissions(self, permissions: Permissions) -> PageEntry {
        PageEntry(self.0 & !7 | u32::from(permissions.bits()))
    }

    /// Returns the entry with or without the mark of fetched instructions.
    pub fn with_code(self, has_code: bool) -> PageEntry {
        PageEntry(if has_code { self.0 | Self::CODE } else { self.0 & !Self::CODE })
    }

    /// Returns the entry with or without the mark of reserved lines.
    pub fn with_reserved(self, is_reserved: bool) -> PageEntry {
        PageEntry(if is_reserved { self.0 | Self::RESERVED } else { self.0 & !Self::RESERVED })
    }
}

/// Table of pages in two levels.
#[derive(Clone, Debug)]
pub(super) struct PageTable {
    /// Leaves, each with the entries of [`LEAF_PAGES`] pages; made when the first page is touched.
    leaves: Vec<Option<Box<[PageEntry]>>>,
}

/// Number of pages that a leaf covers: 64 MiB of addresses.
const LEAF_PAGES: u64 = 1 << 14;

impl PageTable {
    /// Makes a table without pages, for page numbers below a limit.
    pub fn new(page_limit: u64) -> PageTable {
        PageTable { leaves: vec![None; page_limit.div_ceil(LEAF_PAGES) as usize] }
    }

    /// Returns a page's entry, which is empty for a page that was never touched or is above the table.
    pub fn get(&self, page: u64) -> PageEntry {
        match self.leaves.get((page / LEAF_PAGES) as usize) {
            Some(Some(leaf)) => leaf[(page % LEAF_PAGES) as usize],
            _ => PageEntry::default(),
        }
    }

    /// Sets the entry of a page below the table's limit.
    pub fn set(&mut self, page: u64, entry: PageEntry) {
        let leaf = &mut self.leaves[(page / LEAF_PAGES) as usize];
        let leaf = leaf.get_or_insert_with(|| vec![PageEntry::default(); LEAF_PAGES as usize].into());
        leaf[(page % LEAF_PAGES) as usize] = entry;
    }

    /// Replaces the entries of touched pages between two page numbers by what a function returns for them.
    pub fn update(&mut self, first: u64, end: u64, mut change: impl FnMut(PageEntry) -> PageEntry) {
        let mut page = first;
        while page < end {
            let next = (page / LEAF_PAGES + 1) * LEAF_PAGES;
            if let Some(Some(leaf)) = self.leaves.get_mut((page / LEAF_PAGES) as usize) {
                let from = (page % LEAF_PAGES) as usize;
                let to = from + (next.min(end) - page) as usize;
                for entry in leaf[from..to].iter_mut().filter(|entry| entry.frame().is_some()) {
                    *entry = change(*entry);
                }
            }
            page = next;
        }
    }
}
