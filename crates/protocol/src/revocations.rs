//! Page by which a client with mapped chunks learns which grants were revoked.
//!
//! A client that reads and writes a memory device in its own address space sends no requests, so the server
//! cannot refuse its accesses. For such a client the server has a page that only the server can write:
//!
//! ```text
//!     word n     the last tag of grants at place n that is not valid any more, or 0      u64, n < grants_max
//! ```
//!
//! A grant's number is `tag << 32 | index`, where the index selects the word. Each later grant at the same
//! index has a greater tag ([`index_of`], [`tag_of`]). The client checks the word *after* each access, and
//! considers the access done only if the grant is still valid.
//!
//! To revoke a grant, the server first writes the word. Then it issues a fence on all processors that run
//! processes which have registered for such fences (membarrier(2), `MEMBARRIER_CMD_GLOBAL_EXPEDITED`; a
//! client that has not registered issues a full fence before it checks the word). Last, it replaces the
//! revoked chunks by memory that the client has not mapped, and only then shows their contents to others. So
//! every access that the client considered done is part of these contents. A later access is not part of
//! them, and the client's check fails.

/// Returns the index of a grant's word in the page.
pub fn index_of(grant: u64) -> usize {
    grant as u32 as usize
}

/// Returns a grant's tag, which tells apart the grants that use the same word one after the other.
pub fn tag_of(grant: u64) -> u64 {
    grant >> 32
}

/// Returns true if a grant is valid, given the current value of its word.
#[inline]
pub fn is_valid(grant: u64, word: u64) -> bool {
    tag_of(grant) > word
}

/// Returns the size of the page for this number of grants, in bytes: a multiple of 4 KiB.
pub fn page_bytes(grants_max: u32) -> usize {
    (grants_max as usize * 8).next_multiple_of(4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_is_valid_until_its_tag_is_in_the_word() {
        let grant = 3 << 32 | 17;
        assert_eq!((index_of(grant), tag_of(grant)), (17, 3));
        assert!(is_valid(grant, 0) && is_valid(grant, 2) && !is_valid(grant, 3) && !is_valid(grant, 4));
        assert_eq!((page_bytes(1), page_bytes(512), page_bytes(513)), (4096, 4096, 8192));
    }
}
