//! Buffer of a block, with the end of the block before in front of it.
//!
//! ```text
//!   page                       page
//!   |....... history ..........| block ........................... |
//! ```
//!
//! A filter needs the last samples of the block before. They are copied in front of the block, so that the kernel sees one
//! run of samples, and the block begins at a page all the same.

use crate::error::Error;
use crate::memory::Memory;
use std::ops::Range;

/// Buffer in the memory of the processor.
#[derive(Debug)]
pub(super) struct Buffer {
    memory: Memory,
    /// Offset of the block in the memory, in bytes.
    start: usize,
    history_bytes: usize,
}

impl Buffer {
    /// Allocates a buffer for a block of `bytes` bytes and a history, which is zero at first.
    ///
    /// # Errors
    /// [`Error::Memory`].
    pub(super) fn new(bytes: usize, history_bytes: usize) -> Result<Buffer, Error> {
        let start = history_bytes.next_multiple_of(rustix::param::page_size());
        // Too large a sum is refused by the memory.
        let memory = Memory::new(start.saturating_add(bytes))?;
        Ok(Buffer { memory, start, history_bytes })
    }

    /// Returns the size of the block, in bytes.
    pub(super) fn length(&self) -> usize {
        self.memory.bytes().len() - self.start
    }

    /// Returns the block.
    pub(super) fn block(&self) -> &[u8] {
        &self.memory.bytes()[self.start..]
    }

    /// Returns the block, to be changed.
    pub(super) fn block_mut(&mut self) -> &mut [u8] {
        &mut self.memory.bytes_mut()[self.start..]
    }

    /// Returns the history and the first `bytes` of the block.
    pub(super) fn with_history(&self, bytes: usize) -> &[u8] {
        &self.memory.bytes()[self.start - self.history_bytes..self.start + bytes]
    }

    /// Copies the end of another buffer, of whose block `bytes` bytes are filled, to be the history of this one. Returns the
    /// number of bytes.
    pub(super) fn continue_from(&mut self, before: &Buffer, bytes: usize) -> usize {
        let history: Range<usize> = self.start - self.history_bytes..self.start;
        self.memory.bytes_mut()[history].copy_from_slice(&before.with_history(bytes)[bytes..]);
        self.history_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_continues_the_one_before() {
        let (mut one, mut two) = (Buffer::new(6, 4).unwrap(), Buffer::new(6, 4).unwrap());
        assert!((one.block().as_ptr() as usize).is_multiple_of(4096));
        assert_eq!(one.length(), 6);
        one.block_mut().copy_from_slice(&[1, 2, 3, 4, 5, 6]);
        assert_eq!(one.with_history(6), [0, 0, 0, 0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(two.continue_from(&one, 6), 4);
        two.block_mut()[..2].copy_from_slice(&[7, 8]);
        assert_eq!(two.with_history(2), [3, 4, 5, 6, 7, 8]);
        // The history of a short block reaches beyond it.
        one.continue_from(&two, 2);
        assert_eq!(one.with_history(0), [5, 6, 7, 8]);
    }
}
