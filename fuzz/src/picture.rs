//! Memory whose contents tell where they were taken from: each word is its own place.

use bywash_peers::{FIXED, OFFERED, Words, memory};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::LazyLock;

/// Bytes of an arena of a liar's.
pub const ARENA: usize = 1 << 14;

/// Memory that nobody changes once it was filled, and a copy of it to compare with.
pub struct Picture {
    /// To be passed on.
    pub file: OwnedFd,
    bytes: Vec<u8>,
}

impl Picture {
    /// So many bytes, of which no word is in another picture, with seals.
    pub fn new(number: u64, bytes: usize, seals: i32) -> Picture {
        let file = memory(bytes, 0);
        let words = Words::map(&file, bytes);
        (0..words.count).for_each(|index| words.set(index, number << 32 | (index as u64 * 8)));
        let bytes = (0..words.count).flat_map(|index| (number << 32 | (index as u64 * 8)).to_le_bytes());
        let bytes = bytes.collect();
        drop(words);
        // SAFETY: a system call on a descriptor that lives.
        let sealed = unsafe { libc::fcntl(std::os::fd::AsRawFd::as_raw_fd(&file), libc::F_ADD_SEALS, seals) };
        assert_eq!(sealed, 0);
        Picture { file, bytes }
    }

    /// The part of it that is there.
    pub fn part(&self, offset: usize, length: usize) -> &[u8] {
        &self.bytes[offset..offset + length]
    }

    /// Whether these bytes, eight at least, are a part of it that begins at a multiple of 64.
    fn has(&self, bytes: &[u8]) -> bool {
        let word = u64::from_le_bytes(bytes[..8].try_into().unwrap());
        let offset = (word & 0xffff_ffff) as usize;
        offset.is_multiple_of(64)
            && offset < self.bytes.len()
            && bytes.len() <= self.bytes.len() - offset
            && self.part(offset, bytes.len()) == bytes
    }
}

/// The arena of every liar.
pub fn arena() -> &'static Picture {
    static ARENA_OF_ALL: LazyLock<Picture> = LazyLock::new(|| Picture::new(1, ARENA, FIXED));
    &ARENA_OF_ALL
}

/// The arena of every liar once more, as a client offers it to a server, which takes the right to write to it from
/// everybody else. What is behind so many bytes has no memory.
pub fn offered_arena(bytes: usize) -> OwnedFd {
    let file = File::from(memory(ARENA, OFFERED));
    file.write_all_at(arena().part(0, bytes), 0).unwrap();
    file.into()
}

/// An arena that a liar says it had from somebody else.
pub fn other_arena() -> &'static Picture {
    static OTHER_ARENA: LazyLock<Picture> = LazyLock::new(|| Picture::new(2, ARENA / 2, FIXED));
    &OTHER_ARENA
}

/// Whether what a victim received lies within memory that a liar has.
pub fn is_in_a_picture(bytes: &[u8]) -> bool {
    [arena(), other_arena(), crate::files::frozen()].iter().any(|picture| picture.has(bytes))
}

/// Most bytes that a victim fills at a time.
const FILLED_MAX: usize = 1 << 16;

/// What a victim fills its own memory with: bytes that follow from a seed.
pub fn seeded(seed: u8, length: usize) -> &'static [u8] {
    static PATTERN: LazyLock<Vec<u8>> =
        LazyLock::new(|| (0..FILLED_MAX + 256).map(|at| (at % 251) as u8).collect());
    &PATTERN[usize::from(seed)..][..length]
}
