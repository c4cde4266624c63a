//! Memory that commands read into and write from.
//!
//! Invariant: it is reached through raw pointers, since another process may write there at any time; what has to be
//! believed is copied out first. Called by the devices.

use std::any::Any;
use std::fmt;
use std::ptr;
use std::sync::Arc;

/// Most spans of a command.
pub const SPANS_MAX: usize = 16;

/// What keeps the memory of a command mapped: it goes along with the command and comes back when that is done.
pub type Owner = Arc<dyn Any + Send + Sync>;

/// A piece of memory that a command reads into or writes from.
///
/// It may be memory that another process can write at the same time. Then a write stores some bytes of what was there
/// and some of what came, each as it was at some moment; nothing worse happens.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Span(libc::iovec);

// SAFETY: an address and a length; who makes a span promises that the memory is there.
unsafe impl Send for Span {}
// SAFETY: as above.
unsafe impl Sync for Span {}

impl Span {
    /// The memory of `bytes` bytes from `base` on.
    ///
    /// # Safety
    /// From the time that a command with this span is submitted until it is done, that is, until its
    /// [`Done`](crate::Done) was given out or its device has been dropped, the memory is mapped for reading (and for
    /// writing, if the command is a read), and no Rust reference leads there. The command's [`Owner`] lives as long
    /// as that, so that what it keeps mapped need not be kept otherwise.
    pub const unsafe fn new(base: *mut u8, bytes: usize) -> Span {
        Span(libc::iovec { iov_base: base.cast(), iov_len: bytes })
    }

    /// Nothing.
    pub(crate) const EMPTY: Span = Span(libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 });

    /// Where it begins.
    #[inline]
    pub fn base(&self) -> *mut u8 {
        self.0.iov_base.cast()
    }

    /// Bytes.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.0.iov_len
    }

    /// What is left of it without its first `bytes` bytes.
    pub(crate) fn without(&self, bytes: usize) -> Span {
        debug_assert!(bytes <= self.bytes());
        Span(libc::iovec { iov_base: self.base().wrapping_add(bytes).cast(), iov_len: self.bytes() - bytes })
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} bytes at {:p}", self.bytes(), self.base())
    }
}

/// Copies `bytes` bytes of the memory of `spans`, without the first `skip`, to `to`.
///
/// # Safety
/// The spans have so much memory, as [`Span::new`] asks; `to` has room for it, and is not among it.
#[inline]
pub(crate) unsafe fn gather(spans: &[Span], skip: usize, to: *mut u8, bytes: usize) {
    // SAFETY: `pieces` stays within each span and within `bytes`; the rest is the caller's promise.
    pieces(spans, skip, bytes, |at, done, length| unsafe {
        ptr::copy_nonoverlapping(at.cast_const(), to.add(done), length);
    });
}

/// As [`gather`] of all, for what nobody looks at soon: the bytes do not go through the caches.
///
/// # Safety
/// As [`gather`].
#[inline(never)]
pub(crate) unsafe fn gather_past_caches(spans: &[Span], to: *mut u8, bytes: usize) {
    // SAFETY: `pieces` stays within each span and within `bytes`; the rest is the caller's promise.
    pieces(spans, 0, bytes, |at, done, length| unsafe { stream(at.cast_const(), to.add(done), length) });
}

/// Copies bytes past the caches, as far as they are whole lines of them.
///
/// # Safety
/// Both have `bytes` bytes, and neither is within the other.
#[cfg(all(target_arch = "x86_64", not(miri)))]
unsafe fn stream(from: *const u8, to: *mut u8, bytes: usize) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};
    const LINE: usize = 64;
    let lines = if to.addr().is_multiple_of(LINE) { bytes / LINE * LINE } else { 0 };
    for line in (0..lines).step_by(LINE) {
        // SAFETY: a line of each, as the caller promises; that of `to` is aligned.
        unsafe {
            let (from, to) = (from.add(line).cast::<__m128i>(), to.add(line).cast::<__m128i>());
            let words = [0, 1, 2, 3].map(|word| _mm_loadu_si128(from.add(word)));
            for (word, value) in words.into_iter().enumerate() {
                _mm_stream_si128(to.add(word), value);
            }
        }
    }
    // SAFETY: what is left of each.
    unsafe { ptr::copy_nonoverlapping(from.add(lines), to.add(lines), bytes - lines) };
    // Stores past the caches keep no order with others: whoever is told that it is done must find them.
    // SAFETY: every x86-64 has it.
    unsafe { _mm_sfence() };
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
unsafe fn stream(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { ptr::copy_nonoverlapping(from, to, bytes) };
}

/// Copies `bytes` bytes from `from` to the memory of `spans`, without the first `skip`.
///
/// # Safety
/// As [`gather`], the other way round.
#[inline]
pub(crate) unsafe fn scatter(spans: &[Span], skip: usize, from: *const u8, bytes: usize) {
    // SAFETY: as in `gather`.
    pieces(spans, skip, bytes, |at, done, length| unsafe {
        ptr::copy_nonoverlapping(from.add(done), at, length);
    });
}

/// Calls with each piece of `bytes` bytes behind the first `skip`: where it is, how much was before it, its length.
#[inline]
fn pieces(spans: &[Span], mut skip: usize, bytes: usize, mut piece: impl FnMut(*mut u8, usize, usize)) {
    if let ([span], 0) = (spans, skip) {
        debug_assert!(bytes <= span.bytes(), "the span has less memory than the command says");
        return piece(span.base(), 0, bytes);
    }
    let mut done = 0;
    for span in spans {
        if done == bytes {
            return;
        }
        let passed = skip.min(span.bytes());
        skip -= passed;
        let length = (span.bytes() - passed).min(bytes - done);
        if length > 0 {
            piece(span.base().wrapping_add(passed), done, length);
            done += length;
        }
    }
    debug_assert_eq!(done, bytes, "the spans have less memory than the command says");
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
            // SAFETY: parts of `from`, which outlives the spans.
            let spans = unsafe {
                let base = from.as_mut_ptr();
                [Span::new(base, first), Span::new(base.add(first), 4096 - first)]
            };
            // SAFETY: so many bytes are there, and `to` is elsewhere and has room for them.
            unsafe { gather_past_caches(&spans, to.as_mut_ptr().add(start), bytes) };
            assert_eq!(to[start..start + bytes], from[..bytes]);
            assert!(to[..start].iter().chain(&to[start + bytes..]).all(|byte| *byte == 0));
        }
    }

    #[test]
    fn bytes_go_across_spans() {
        let mut memory = *b"abcdefghij";
        let base = memory.as_mut_ptr();
        // SAFETY: parts of `memory`, which outlives the spans.
        let spans = unsafe { [Span::new(base.add(6), 3), Span::new(base, 0), Span::new(base.add(1), 4)] };
        let mut out = [0; 4];
        // SAFETY: seven bytes are there, and `out` is elsewhere.
        unsafe { gather(&spans, 2, out.as_mut_ptr(), 4) };
        assert_eq!(&out, b"ibcd");
        // SAFETY: as above.
        unsafe { scatter(&spans, 1, b"XYZ".as_ptr(), 3) };
        assert_eq!(&memory, b"aZcdefgXYj");
    }
}
