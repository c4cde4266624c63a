//! Segments of memory that commands read into and write from.
//!
//! Invariant: devices access this memory through raw pointers only, since another process may write to it at
//! any time. Data that a decision depends on is copied out first. Called by the devices.

use std::any::Any;
use std::fmt;
use std::ptr;
use std::sync::Arc;

/// Greatest number of segments in a command.
pub const SEGMENTS_MAX: usize = 16;

/// Reference-counted value that keeps a command's memory mapped. The command holds it; the completion returns
/// it.
pub type MemoryOwner = Arc<dyn Any + Send + Sync>;

/// Contiguous piece of memory that a command reads into or writes from.
///
/// Another process may write to the memory at the same time. A write then stores a mixture of old and new
/// bytes, each as it was at some moment; nothing worse happens.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Segment(libc::iovec);

// SAFETY: an address and a length; the maker of a segment promises that the memory stays mapped on whichever
// thread it is used (`Segment::new`).
unsafe impl Send for Segment {}
// SAFETY: a shared reference gives out only the address and length, which never change.
unsafe impl Sync for Segment {}

impl Segment {
    /// Describes the `bytes` bytes of memory from `base` on.
    ///
    /// # Safety
    /// From the submission of a command with this segment until its completion, that is, until its
    /// [`Completion`](crate::Completion) was reported or its device has been dropped, the memory is mapped for reading
    /// (and for writing, if the command is a read), and no Rust reference points into it. The device keeps
    /// the command's [`MemoryOwner`] alive for the same time, so memory that the owner keeps mapped needs nothing
    /// else.
    pub const unsafe fn new(base: *mut u8, bytes: usize) -> Segment {
        Segment(libc::iovec { iov_base: base.cast(), iov_len: bytes })
    }

    /// Segment of no bytes.
    pub(crate) const EMPTY: Segment = Segment(libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 });

    /// Returns the address of the first byte.
    #[inline]
    pub fn base(&self) -> *mut u8 {
        self.0.iov_base.cast()
    }

    /// Returns the length, in bytes.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.0.iov_len
    }

    /// Returns the segment without its first `bytes` bytes; `bytes` is at most its length.
    pub(crate) fn without(&self, bytes: usize) -> Segment {
        debug_assert!(bytes <= self.bytes());
        Segment(libc::iovec {
            iov_base: self.base().wrapping_add(bytes).cast(),
            iov_len: self.bytes() - bytes,
        })
    }
}

impl fmt::Debug for Segment {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} bytes at {:p}", self.bytes(), self.base())
    }
}

/// Copies `bytes` bytes from the memory of `segments` to `to`, after skipping the first `skip` bytes of the
/// segments.
///
/// # Safety
/// The segments have `skip + bytes` bytes that are mapped as [`Segment::new`] requires. `to` has room for `bytes`
/// bytes, and does not overlap the segments.
#[inline]
pub unsafe fn gather(segments: &[Segment], skip: usize, to: *mut u8, bytes: usize) {
    // SAFETY: `pieces` stays within each segment and within `bytes`; the caller promises that the memory is
    // mapped.
    pieces(segments, skip, bytes, |at, done, length| unsafe {
        ptr::copy_nonoverlapping(at.cast_const(), to.add(done), length);
    });
}

/// Like [`gather`] without skipping, but stores past the caches, for bytes that nobody reads soon.
///
/// # Safety
/// Same as [`gather`], with `skip` 0.
#[inline(never)]
pub(crate) unsafe fn gather_past_caches(segments: &[Segment], to: *mut u8, bytes: usize) {
    // SAFETY: `pieces` stays within each segment and within `bytes`; the caller promises that the memory is
    // mapped.
    pieces(segments, 0, bytes, |at, done, length| unsafe { stream(at.cast_const(), to.add(done), length) });
}

/// Copies bytes with non-temporal stores, which bypass the caches, as far as they are whole cache lines of an
/// aligned destination; the rest by ordinary stores.
///
/// # Safety
/// `from` and `to` have `bytes` bytes each, and do not overlap.
#[cfg(all(target_arch = "x86_64", not(miri)))]
unsafe fn stream(from: *const u8, to: *mut u8, bytes: usize) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};
    const LINE: usize = 64;
    let lines = if to.addr().is_multiple_of(LINE) { bytes / LINE * LINE } else { 0 };
    for line in (0..lines).step_by(LINE) {
        // SAFETY: `from` and `to` have 64 bytes at `line`, as the caller promises; `to` is aligned to 64
        // bytes.
        unsafe {
            let (from, to) = (from.add(line).cast::<__m128i>(), to.add(line).cast::<__m128i>());
            let words = [0, 1, 2, 3].map(|word| _mm_loadu_si128(from.add(word)));
            for (word, value) in words.into_iter().enumerate() {
                _mm_stream_si128(to.add(word), value);
            }
        }
    }
    // SAFETY: the bytes from `lines` on are the rest of both, which the caller promises not to overlap.
    unsafe { ptr::copy_nonoverlapping(from.add(lines), to.add(lines), bytes - lines) };
    // Non-temporal stores are not ordered with others; the fence makes them visible before the completion is.
    // SAFETY: every x86-64 processor has the instruction.
    unsafe { _mm_sfence() };
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
unsafe fn stream(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: the caller promises that both have `bytes` bytes and do not overlap.
    unsafe { ptr::copy_nonoverlapping(from, to, bytes) };
}

/// Copies `bytes` bytes from `from` to the memory of `segments`, after skipping the first `skip` bytes of the
/// segments.
///
/// # Safety
/// The segments have `skip + bytes` bytes that are mapped for writing, as [`Segment::new`] requires. `from` has
/// `bytes` bytes, and does not overlap the segments.
#[inline]
pub unsafe fn scatter(segments: &[Segment], skip: usize, from: *const u8, bytes: usize) {
    // SAFETY: `pieces` stays within each segment and within `bytes`; the caller promises that the memory is
    // mapped.
    pieces(segments, skip, bytes, |at, done, length| unsafe {
        ptr::copy_nonoverlapping(from.add(done), at, length);
    });
}

/// Splits the `bytes` bytes after the first `skip` bytes of `segments` at the segments' boundaries. Calls `piece`
/// with each part's address, the number of bytes before the part, and its length.
#[inline]
fn pieces(segments: &[Segment], mut skip: usize, bytes: usize, mut piece: impl FnMut(*mut u8, usize, usize)) {
    if let ([segment], 0) = (segments, skip) {
        debug_assert!(bytes <= segment.bytes(), "the segment has less memory than the command says");
        return piece(segment.base(), 0, bytes);
    }
    let mut done = 0;
    for segment in segments {
        if done == bytes {
            return;
        }
        let passed = skip.min(segment.bytes());
        skip -= passed;
        let length = (segment.bytes() - passed).min(bytes - done);
        if length > 0 {
            piece(segment.base().wrapping_add(passed), done, length);
            done += length;
        }
    }
    debug_assert_eq!(done, bytes, "the segments have less memory than the command says");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_go_past_the_caches_wherever_they_begin() {
        let mut from: Vec<u8> = (0..4096u32).map(|byte| (byte % 251) as u8).collect();
        for (first, skip, bytes) in [(0, 0, 4096), (1, 0, 4000), (64, 1, 130), (100, 7, 1000), (512, 63, 64)]
        {
            let mut to = vec![0u8; 8192];
            let start = to.as_ptr().align_offset(64) + skip;
            // SAFETY: parts of `from`, which outlives the segments and has no other reference meanwhile.
            let segments = unsafe {
                let base = from.as_mut_ptr();
                [Segment::new(base, first), Segment::new(base.add(first), 4096 - first)]
            };
            // SAFETY: the segments have `bytes` bytes; `to` does not overlap them and has room.
            unsafe { gather_past_caches(&segments, to.as_mut_ptr().add(start), bytes) };
            assert_eq!(to[start..start + bytes], from[..bytes]);
            assert!(to[..start].iter().chain(&to[start + bytes..]).all(|byte| *byte == 0));
        }
    }

    #[test]
    fn bytes_go_across_segments() {
        let mut memory = *b"abcdefghij";
        let base = memory.as_mut_ptr();
        // SAFETY: parts of `memory`, which outlives the segments and has no other reference meanwhile.
        let segments =
            unsafe { [Segment::new(base.add(6), 3), Segment::new(base, 0), Segment::new(base.add(1), 4)] };
        let mut out = [0; 4];
        // SAFETY: the segments have seven bytes; `out` does not overlap them and has room for four.
        unsafe { gather(&segments, 2, out.as_mut_ptr(), 4) };
        assert_eq!(&out, b"ibcd");
        // SAFETY: the segments have seven bytes, and the literal has three and does not overlap them.
        unsafe { scatter(&segments, 1, b"XYZ".as_ptr(), 3) };
        assert_eq!(&memory, b"aZcdefgXYj");
    }
}
