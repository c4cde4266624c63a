//! Buffers of the program, as its calls describe them, and the copies between them and a mapping.

use crate::copy::{Fault, copy_unless_zero_ends, guarded_byte, guarded_copy};

/// One segment of a program's buffer, with the layout of `struct iovec`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Segment {
    /// Address of the first byte; may be invalid.
    pub at: *mut u8,
    /// Length in bytes.
    pub length: usize,
}

/// Buffer that a program passed to a read or write call.
#[derive(Clone, Copy, Debug)]
pub enum Buffer<'a> {
    /// One segment, as in `pread`.
    Whole(Segment),
    /// Several segments, as in `preadv`.
    Pieces(&'a [Segment]),
}

impl Buffer<'_> {
    /// Returns the length of all segments together, in bytes; `None` if the sum exceeds 2 GiB - 1 or there
    /// are more than 64 segments, so that the kernel must serve the call.
    #[inline(always)]
    pub fn bytes(self) -> Option<usize> {
        const SEGMENTS_MAX: usize = 64;
        let sum = match self {
            Buffer::Whole(piece) => piece.length,
            Buffer::Pieces(pieces) if pieces.len() > SEGMENTS_MAX => return None,
            Buffer::Pieces(pieces) => {
                pieces.iter().try_fold(0usize, |sum, piece| sum.checked_add(piece.length))?
            }
        };
        (sum <= i32::MAX as usize).then_some(sum)
    }

    /// Copies `length` bytes from `from` into the first `length` bytes of the buffer.
    ///
    /// # Errors
    /// [`Fault`] if a page of the source or of the buffer cannot be accessed; a part may have been copied.
    ///
    /// # Safety
    /// The conditions of [`guarded_copy`] hold for each segment and its part of the source.
    pub unsafe fn fill(self, from: *const u8, length: usize) -> Result<(), Fault> {
        // SAFETY: the caller promises the conditions of `guarded_copy` for each segment.
        self.each(length, |piece, at, length| unsafe { guarded_copy(piece, from.wrapping_add(at), length) })
    }

    /// Like [`Buffer::fill`] for `length > 0`, but copies nothing and returns false if the last source byte
    /// is zero.
    ///
    /// # Errors
    /// Same as [`Buffer::fill`].
    ///
    /// # Safety
    /// Same as [`Buffer::fill`], and `length` is greater than zero.
    #[inline(always)]
    pub unsafe fn fill_unless_zero_ends(self, from: *const u8, length: usize) -> Result<bool, Fault> {
        // SAFETY: the caller promises the conditions of `guarded_copy` for each segment, and a length above
        // zero.
        unsafe {
            match self {
                Buffer::Whole(piece) => copy_unless_zero_ends(piece.at, from, length),
                Buffer::Pieces(_) if guarded_byte(from.wrapping_add(length - 1))? == 0 => Ok(false),
                Buffer::Pieces(_) => self.fill(from, length).map(|()| true),
            }
        }
    }

    /// Copies the first `length` bytes of the buffer to `to`.
    ///
    /// # Errors
    /// [`Fault`] if a page of the buffer or of the target cannot be accessed; a part may have been copied.
    ///
    /// # Safety
    /// The conditions of [`guarded_copy`] hold for each segment and its part of the target.
    pub unsafe fn copy_to(self, to: *mut u8, length: usize) -> Result<(), Fault> {
        // SAFETY: the caller promises the conditions of `guarded_copy` for each segment.
        self.each(length, |piece, at, length| unsafe { guarded_copy(to.wrapping_add(at), piece, length) })
    }

    /// Calls `copy` for each segment of the first `left` bytes, with its address, the number of bytes before
    /// the segment, and the number of bytes to copy. Stops at the first fault.
    fn each(
        self,
        mut left: usize,
        copy: impl Fn(*mut u8, usize, usize) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let pieces = match &self {
            Buffer::Whole(piece) => core::slice::from_ref(piece),
            Buffer::Pieces(pieces) => pieces,
        };
        let mut at = 0;
        pieces.iter().try_for_each(|piece| {
            let length = piece.length.min(left);
            let copied = copy(piece.at, at, length);
            at += length;
            left -= length;
            copied
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_filled_and_copied_one_after_the_other() {
        let (mut first, mut second) = ([0u8; 3], [0u8; 4]);
        let pieces =
            [Segment { at: first.as_mut_ptr(), length: 3 }, Segment { at: second.as_mut_ptr(), length: 4 }];
        let buffer = Buffer::Pieces(&pieces);
        assert_eq!(buffer.bytes(), Some(7));
        let mut back = [9u8; 5];
        // SAFETY: all arrays are long enough, and nothing else uses them during the copies.
        unsafe {
            assert_eq!(buffer.fill_unless_zero_ends([1, 0].as_ptr(), 2), Ok(false));
            assert_eq!(buffer.fill_unless_zero_ends([1, 2, 3, 4, 5].as_ptr(), 5), Ok(true));
            assert_eq!(buffer.copy_to(back.as_mut_ptr(), 5), Ok(()));
        }
        assert_eq!((first, second, back), ([1, 2, 3], [4, 5, 0, 0], [1, 2, 3, 4, 5]));
    }

    #[test]
    fn what_the_kernel_would_refuse_has_no_length() {
        let piece = |length| Segment { at: core::ptr::null_mut(), length };
        assert_eq!(Buffer::Pieces(&[piece(usize::MAX), piece(2)]).bytes(), None);
        assert_eq!(Buffer::Whole(piece(1 << 31)).bytes(), None);
        assert_eq!(Buffer::Pieces(&[piece(1); 65]).bytes(), None);
        assert_eq!(Buffer::Whole(piece((1 << 31) - 1)).bytes(), Some((1 << 31) - 1));
    }
}
