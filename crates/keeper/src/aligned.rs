//! Memory at an address that O_DIRECT accepts.

use bywash_log::layout::BLOCK;

/// Zeroed bytes that begin at a multiple of a block's size.
#[derive(Debug)]
pub struct Aligned {
    memory: Vec<u8>,
    start: usize,
    length: usize,
}

impl Aligned {
    /// Allocates `length` bytes.
    pub fn new(length: usize) -> Aligned {
        let memory = vec![0; length + BLOCK];
        // The distance is less than a block for a type of one byte.
        let start = memory.as_ptr().align_offset(BLOCK).min(BLOCK);
        Aligned { memory, start, length }
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
    }
}
