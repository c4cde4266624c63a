//! Memory at an address that O_DIRECT accepts.

use crate::sys;
use bywash_log::layout::BLOCK;

/// Size of a huge page, in bytes. A transfer to scattered small pages takes up to three times as long as one to a few large
/// ones.
const HUGE_PAGE: usize = 2 << 20;

/// Zeroed bytes that begin at a multiple of a block's size; larger memory begins at a huge page, and is made of such pages
/// where the kernel has them.
#[derive(Debug)]
pub struct Aligned {
    memory: Vec<u8>,
    start: usize,
    length: usize,
}

impl Aligned {
    /// Allocates `length` bytes.
    pub fn new(length: usize) -> Aligned {
        let alignment = if length < HUGE_PAGE { BLOCK } else { HUGE_PAGE };
        let memory = vec![0; length + alignment];
        // The distance is less than the alignment for a type of one byte.
        let start = memory.as_ptr().align_offset(alignment).min(alignment);
        let mut aligned = Aligned { memory, start, length };
        if alignment == HUGE_PAGE {
            sys::use_huge_pages(aligned.bytes());
        }
        aligned
    }

    /// Returns the bytes.
    pub fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_begins_at_a_block() {
        let mut aligned = Aligned::new(3 * BLOCK);
        assert!((aligned.bytes().as_ptr() as usize).is_multiple_of(BLOCK));
        assert_eq!(aligned.bytes().len(), 3 * BLOCK);
        let mut large = Aligned::new(HUGE_PAGE + BLOCK);
        assert!((large.bytes().as_ptr() as usize).is_multiple_of(HUGE_PAGE));
        assert!(large.bytes().iter().all(|byte| *byte == 0));
    }
}
