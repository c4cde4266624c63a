//! Memory in which each word contains its own offset, so that copies of it can be recognised.

use bywash_support::peers::{FIXED, OFFERED, Words, memory};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::LazyLock;

/// Size of a malicious peer's arena, in bytes.
pub const ARENA: usize = 1 << 14;

/// Memory that nobody changes after it was filled, and a copy for comparisons.
pub struct Picture {
    /// The memfd, to be passed to the tested side.
    pub file: OwnedFd,
    bytes: Vec<u8>,
}

impl Picture {
    /// Makes memory of `bytes` bytes, all of whose words differ from those of other pictures, and adds seals
    /// to it.
    pub fn new(number: u64, bytes: usize, seals: i32) -> Picture {
        let file = memory(bytes, 0);
        let words = Words::map(&file, bytes);
        (0..words.count).for_each(|index| words.set(index, number << 32 | (index as u64 * 8)));
        let bytes = (0..words.count).flat_map(|index| (number << 32 | (index as u64 * 8)).to_le_bytes());
        let bytes = bytes.collect();
        drop(words);
        // SAFETY: the call takes an open descriptor and plain numbers.
        let sealed = unsafe { libc::fcntl(std::os::fd::AsRawFd::as_raw_fd(&file), libc::F_ADD_SEALS, seals) };
        assert_eq!(sealed, 0);
        Picture { file, bytes }
    }

    /// Returns the contents of a range.
    pub fn part(&self, offset: usize, length: usize) -> &[u8] {
        &self.bytes[offset..offset + length]
    }

    /// Returns true if `bytes`, at least eight, are a part of this memory that begins at a multiple of 64.
    fn has(&self, bytes: &[u8]) -> bool {
        let word = u64::from_le_bytes(bytes[..8].try_into().unwrap());
        let offset = (word & 0xffff_ffff) as usize;
        offset.is_multiple_of(64)
            && offset < self.bytes.len()
            && bytes.len() <= self.bytes.len() - offset
            && self.part(offset, bytes.len()) == bytes
    }
}

/// Returns the arena that every malicious peer has.
pub fn arena() -> &'static Picture {
    static ARENA_OF_ALL: LazyLock<Picture> = LazyLock::new(|| Picture::new(1, ARENA, FIXED));
    &ARENA_OF_ALL
}

/// Makes a memfd with the contents of the arena, as a client offers it to a server, which takes the right to
/// write to it from all other processes. Only the first `bytes` bytes are backed by pages.
pub fn offered_arena(bytes: usize) -> OwnedFd {
    let file = File::from(memory(ARENA, OFFERED));
    file.write_all_at(arena().part(0, bytes), 0).unwrap();
    file.into()
}

/// Returns an arena that a malicious peer claims to have from another peer.
pub fn other_arena() -> &'static Picture {
    static OTHER_ARENA: LazyLock<Picture> = LazyLock::new(|| Picture::new(2, ARENA / 2, FIXED));
    &OTHER_ARENA
}

/// Returns true if received bytes lie within memory that a malicious peer has.
pub fn is_in_a_picture(bytes: &[u8]) -> bool {
    [arena(), other_arena(), crate::files::frozen()].iter().any(|picture| picture.has(bytes))
}

/// Greatest number of bytes that the tested side fills at a time.
const FILLED_MAX: usize = 1 << 16;

/// Returns the bytes that the tested side fills its own memory with, which `seed` determines.
pub fn seeded(seed: u8, length: usize) -> &'static [u8] {
    static PATTERN: LazyLock<Vec<u8>> =
        LazyLock::new(|| (0..FILLED_MAX + 256).map(|at| (at % 251) as u8).collect());
    &PATTERN[usize::from(seed)..][..length]
}
