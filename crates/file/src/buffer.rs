//! Buffers of the program, as its calls name them, and the copies between them and a mapping.

use crate::copy::{Fault, copy_unless_zero_ends, guarded_byte, guarded_copy};

/// One piece of a program's buffer.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Segment {
    /// Where.
    pub at: *mut u8,
    /// Bytes.
    pub length: usize,
}

/// A program's buffer.
#[derive(Clone, Copy, Debug)]
pub enum Buffer<'a> {
    /// In one piece, as `pread` has it.
    Whole(Segment),
    /// In several, as `preadv` has it.
    Pieces(&'a [Segment]),
}

impl Buffer<'_> {
    /// The bytes of all pieces; `None` when the kernel would refuse them or they are too many for us.
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

    /// Fills the first `length` bytes with those at `from`.
    ///
    /// # Safety
    /// As [`guarded_copy`] for each piece.
    pub unsafe fn fill(self, from: *const u8, length: usize) -> Result<(), Fault> {
        // SAFETY: promised by the caller.
        self.each(length, |piece, at, length| unsafe { guarded_copy(piece, from.wrapping_add(at), length) })
    }

    /// As [`Buffer::fill`] for `length > 0`, but if the last byte is zero it copies nothing and answers false.
    ///
    /// # Safety
    /// As [`Buffer::fill`].
    #[inline(always)]
    pub unsafe fn fill_unless_zero_ends(self, from: *const u8, length: usize) -> Result<bool, Fault> {
        // SAFETY: promised by the caller.
        unsafe {
            match self {
                Buffer::Whole(piece) => copy_unless_zero_ends(piece.at, from, length),
                Buffer::Pieces(_) if guarded_byte(from.wrapping_add(length - 1))? == 0 => Ok(false),
                Buffer::Pieces(_) => self.fill(from, length).map(|()| true),
            }
        }
    }

    /// Copies the first `length` bytes to `to`.
    ///
    /// # Safety
    /// As [`guarded_copy`] for each piece.
    pub unsafe fn copy_to(self, to: *mut u8, length: usize) -> Result<(), Fault> {
        // SAFETY: promised by the caller.
        self.each(length, |piece, at, length| unsafe { guarded_copy(to.wrapping_add(at), piece, length) })
    }

    /// Calls `copy` for each piece of the first `left` bytes, with where it is, how many bytes lie before it and how many it
    /// has.
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
        // SAFETY: all arrays are long enough, and used by nothing else meanwhile.
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
