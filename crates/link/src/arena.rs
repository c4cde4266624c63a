//! Arenas: memory that one party cuts blocks from, mapped once by both.

use crate::error::Error;
use crate::memory::{File, HUGE_PAGE, HugePages, Mapping, PAGE};

/// Most bytes of an arena.
pub const ARENA_BYTES_MAX: usize = 1 << 38;

/// Who may write an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writers {
    /// Whoever made it, through the mapping that it has; nobody else, for ever.
    Owner,
    /// Both parties.
    Both,
}

/// Memory that blocks are cut from: this end's own, or a peer's.
#[derive(Debug)]
pub struct Arena {
    /// Where it is.
    pub file: File,
    /// None: it is only passed on.
    pub mapping: Option<Mapping>,
    /// Whether this end may write it.
    pub writable: bool,
}

impl Arena {
    /// An arena of at least `bytes`, in whole pages, mapped for writing and sealed against resizing.
    ///
    /// # Errors
    /// What the kernel says, or [`Error::Option`].
    pub fn create(bytes: usize, huge_pages: HugePages, writers: Writers) -> Result<Arena, Error> {
        if bytes > ARENA_BYTES_MAX {
            let allowed = format!("{ARENA_BYTES_MAX} bytes at most");
            return Err(Error::Option { option: "the arena", value: bytes.to_string(), allowed });
        }
        let ordinary = bytes < HUGE_PAGE && huge_pages != HugePages::Reserved;
        let bytes = bytes.next_multiple_of(if ordinary { PAGE } else { HUGE_PAGE });
        let file = File::create("bywash-arena", bytes, huge_pages)?;
        let mapping = file.map(true)?;
        if huge_pages == HugePages::Collapse {
            mapping.collapse();
        }
        match writers {
            Writers::Both => file.fix_size()?,
            Writers::Owner => file.fix_writers()?,
        }
        Ok(Arena { file, mapping: Some(mapping), writable: true })
    }

    /// Whether there are `length` bytes from `offset` on.
    #[inline]
    pub fn contains(&self, offset: usize, length: usize) -> bool {
        offset <= self.file.bytes() && length <= self.file.bytes() - offset
    }

    /// Where a part of it is mapped, if it is.
    #[inline]
    pub fn at(&self, offset: usize) -> Option<*mut u8> {
        self.mapping.as_ref().map(|mapping| mapping.base().wrapping_add(offset))
    }
}
