//! The page that says which grants were taken back.
//!
//! Who reads and writes a medium in its own memory asks nobody, so that nobody can refuse. For such a client the server
//! has a page, which only the server can write:
//!
//! ```text
//!     word n     the last tag of grants at place n that is not valid any more, or 0      u64, n < grants_max
//! ```
//!
//! A grant's number is `tag << 32 | place`, and tags of a place grow ([`place_of`], [`tag_of`]). The client looks *behind*
//! each access, and takes it for done only if the grant is still valid. The server writes the word first. Then it makes
//! a fence that reaches all processors of the processes that have asked for such fences (`membarrier(2)`,
//! `MEMBARRIER_CMD_GLOBAL_EXPEDITED`; a client that has not makes a full fence before it looks), and lets nobody
//! else see the medium's contents before it has put memory that the client does not have in its place. So what the
//! client was told is done is in what the others see; an access that comes later is not, and the client knows.

/// Where a grant's word is.
pub fn place_of(grant: u64) -> usize {
    grant as u32 as usize
}

/// Which of the place's grants it is.
pub fn tag_of(grant: u64) -> u64 {
    grant >> 32
}

/// Whether a grant is valid, by the word at its place.
#[inline]
pub fn is_valid(grant: u64, word: u64) -> bool {
    tag_of(grant) > word
}

/// Bytes of the page for so many grants: whole pages of 4 KiB.
pub fn bytes(grants_max: u32) -> usize {
    (grants_max as usize * 8).next_multiple_of(4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_is_valid_until_its_tag_is_in_the_word() {
        let grant = 3 << 32 | 17;
        assert_eq!((place_of(grant), tag_of(grant)), (17, 3));
        assert!(is_valid(grant, 0) && is_valid(grant, 2) && !is_valid(grant, 3) && !is_valid(grant, 4));
        assert_eq!((bytes(1), bytes(512), bytes(513)), (4096, 4096, 8192));
    }
}
