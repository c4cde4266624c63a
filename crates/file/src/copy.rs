//! Memory copies that return an error instead of dying when a page faults.
//!
//! A mapped file can lose a page during a copy (another process truncates the file, or the disk is full or
//! broken), and a program can pass a bad buffer. Both raise a signal inside [`guarded_copy`], and only there.
//! The signal handler (the shim's `signals`) asks [`resume_after_fault`] for the address to continue at, and
//! the copy returns `Err(Fault)`. The caller then makes the system call, which gives the program the exact
//! result.
//!
//! Invariant: the routine keeps all its state in registers that the resumed path overwrites or does not need,
//! so any instruction of the routine may fault. Bytes that were copied before the fault stay copied; the
//! system call that follows copies the same bytes again.

use bywash_sync::{AtomicU8, Ordering::Relaxed};
use core::arch::global_asm;
use core::arch::x86_64::__cpuid;

/// Error for a copy that met a page that is not backed by memory or not accessible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault;

// Lengths from 64 bytes to 4 KiB are copied in rounds of 128 bytes in AVX registers where the processor has
// them, else in rounds of 64 bytes in SSE registers. The last 128 or 64 bytes are copied from the end, and
// may overlap bytes that are copied already. Other lengths use the processor's string copy (`rep movsb`),
// which is as fast as a loop on long ranges and needs no tail. The checked copy tests the last source byte
// first.
global_asm!(
    ".pushsection .data.bywash_wide_copy,\"aw\",@progbits",
    ".globl bywash_wide_copy",
    ".hidden bywash_wide_copy",
    ".type bywash_wide_copy,@object",
    ".size bywash_wide_copy, 1",
    "bywash_wide_copy: .byte 0",
    ".popsection",
    ".pushsection .text.bywash_guarded_copy,\"ax\",@progbits",
    ".p2align 5",
    ".globl bywash_checked_copy",
    ".hidden bywash_checked_copy",
    ".type bywash_checked_copy,@function",
    "bywash_checked_copy:",
    "cmp byte ptr [rsi + rdx - 1], 0",
    "jne bywash_guarded_copy",
    "mov eax, 257",
    "ret",
    ".p2align 5",
    ".globl bywash_guarded_copy",
    ".hidden bywash_guarded_copy",
    ".type bywash_guarded_copy,@function",
    "bywash_guarded_copy:",
    "cmp rdx, 64",
    "jb 3f",
    "cmp rdx, 4096",
    "ja 3f",
    "cmp rdx, 128",
    "jb 1f",
    "cmp byte ptr [rip + bywash_wide_copy], 0",
    "je 1f",
    "lea r8, [rsi + rdx - 128]",
    "lea r9, [rdi + rdx - 128]",
    "4:",
    "vmovdqu ymm0, [rsi]",
    "vmovdqu ymm1, [rsi + 32]",
    "vmovdqu ymm2, [rsi + 64]",
    "vmovdqu ymm3, [rsi + 96]",
    "vmovdqu [rdi], ymm0",
    "vmovdqu [rdi + 32], ymm1",
    "vmovdqu [rdi + 64], ymm2",
    "vmovdqu [rdi + 96], ymm3",
    "add rsi, 128",
    "add rdi, 128",
    "cmp rsi, r8",
    "jb 4b",
    "vmovdqu ymm0, [r8]",
    "vmovdqu ymm1, [r8 + 32]",
    "vmovdqu ymm2, [r8 + 64]",
    "vmovdqu ymm3, [r8 + 96]",
    "vmovdqu [r9], ymm0",
    "vmovdqu [r9 + 32], ymm1",
    "vmovdqu [r9 + 64], ymm2",
    "vmovdqu [r9 + 96], ymm3",
    "vzeroupper",
    "xor eax, eax",
    "ret",
    "1:",
    "lea r8, [rsi + rdx - 64]",
    "lea r9, [rdi + rdx - 64]",
    "2:",
    "movups xmm0, [rsi]",
    "movups xmm1, [rsi + 16]",
    "movups xmm2, [rsi + 32]",
    "movups xmm3, [rsi + 48]",
    "movups [rdi], xmm0",
    "movups [rdi + 16], xmm1",
    "movups [rdi + 32], xmm2",
    "movups [rdi + 48], xmm3",
    "add rsi, 64",
    "add rdi, 64",
    "cmp rsi, r8",
    "jb 2b",
    "movups xmm0, [r8]",
    "movups xmm1, [r8 + 16]",
    "movups xmm2, [r8 + 32]",
    "movups xmm3, [r8 + 48]",
    "movups [r9], xmm0",
    "movups [r9 + 16], xmm1",
    "movups [r9 + 32], xmm2",
    "movups [r9 + 48], xmm3",
    "xor eax, eax",
    "ret",
    "3:",
    "xor eax, eax",
    "mov rcx, rdx",
    "rep movsb",
    "ret",
    ".globl bywash_guarded_load",
    ".hidden bywash_guarded_load",
    "bywash_guarded_load:",
    "mov rcx, [rdi]",
    "mov [rsi], rcx",
    "xor eax, eax",
    "ret",
    ".globl bywash_guarded_load_byte",
    ".hidden bywash_guarded_load_byte",
    "bywash_guarded_load_byte:",
    "movzx eax, byte ptr [rdi]",
    "ret",
    ".globl bywash_guarded_copy_end",
    ".hidden bywash_guarded_copy_end",
    "bywash_guarded_copy_end:",
    "mov eax, 256",
    "ret",
    ".size bywash_guarded_copy, . - bywash_guarded_copy",
    ".popsection",
);

/// Return value of the routines after a fault. Greater than any byte, so that it cannot be a loaded byte.
const FAULTED: u32 = 256;
/// Return value of the checked copy if the last source byte is zero; nothing was copied.
const ZERO: u32 = 257;

unsafe extern "C" {
    fn bywash_guarded_copy(to: *mut u8, from: *const u8, length: usize) -> u32;
    fn bywash_checked_copy(to: *mut u8, from: *const u8, length: usize) -> u32;
    fn bywash_guarded_load(from: *const u8, to: *mut u64) -> u32;
    fn bywash_guarded_load_byte(from: *const u8) -> u32;
    fn bywash_guarded_copy_end();
    /// 1 if the routine may use AVX registers, else 0.
    static bywash_wide_copy: AtomicU8;
}

/// Detects AVX. Must run before the first copy for copies to use AVX registers.
pub(crate) fn prepare() {
    // SAFETY: the byte is a static of this module and is written as an atomic; the routine reads it by one
    // instruction, so it sees the old value or the new one.
    unsafe { bywash_wide_copy.store(has_avx().into(), Relaxed) };
}

/// Returns true if the processor has AVX and the kernel saves its registers (Intel's Software Developer's
/// Manual, volume 1, 14.3).
fn has_avx() -> bool {
    const OSXSAVE_AND_AVX: u32 = 1 << 27 | 1 << 28;
    const SSE_AND_AVX_STATE: u32 = 1 << 1 | 1 << 2;
    if __cpuid(1).ecx & OSXSAVE_AND_AVX != OSXSAVE_AND_AVX {
        return false;
    }
    let state: u32;
    // SAFETY: the processor has XGETBV, because OSXSAVE was tested above; the instruction reads register 0
    // and writes only eax and edx.
    unsafe {
        core::arch::asm!("xgetbv", in("ecx") 0, out("eax") state, out("edx") _, options(nomem, nostack, preserves_flags));
    }
    state & SSE_AND_AVX_STATE == SSE_AND_AVX_STATE
}

/// Copies `length` bytes. A fault on either side is returned as an error and kills nothing, provided that the
/// signal handler is installed.
///
/// # Errors
/// [`Fault`] if a page of either range cannot be accessed; a part of the bytes may have been copied.
///
/// # Safety
/// Either range may be unmapped or protected, but memory that is mapped in `from` must be meant to be read,
/// and memory that is mapped in `to` must be meant to be written. The ranges do not overlap, and no Rust
/// reference covers them.
#[inline(always)]
pub unsafe fn guarded_copy(to: *mut u8, from: *const u8, length: usize) -> Result<(), Fault> {
    // SAFETY: the caller promises two ranges that do not overlap and may be read and written; faults are
    // caught.
    if unsafe { bywash_guarded_copy(to, from, length) } == FAULTED { Err(Fault) } else { Ok(()) }
}

/// Like [`guarded_copy`] for `length > 0`, but copies nothing and returns false if the last source byte is
/// zero.
///
/// # Errors
/// Same as [`guarded_copy`].
///
/// # Safety
/// Same as [`guarded_copy`], and `length` is greater than zero.
#[inline(always)]
pub unsafe fn copy_unless_zero_ends(to: *mut u8, from: *const u8, length: usize) -> Result<bool, Fault> {
    // SAFETY: the caller promises two ranges that do not overlap and may be read and written; faults are
    // caught.
    match unsafe { bywash_checked_copy(to, from, length) } {
        FAULTED => Err(Fault),
        answer => Ok(answer != ZERO),
    }
}

/// Loads the eight bytes at `from`, in the processor's byte order.
///
/// # Errors
/// [`Fault`] if a page of the eight bytes cannot be read.
///
/// # Safety
/// The eight bytes at `from` may be unmapped, but if they are mapped they are meant to be read.
#[inline]
pub unsafe fn guarded_word(from: *const u8) -> Result<u64, Fault> {
    let mut word = 0u64;
    // SAFETY: the target is a local variable; the caller promises that the source may be read, and faults are
    // caught.
    if unsafe { bywash_guarded_load(from, &raw mut word) } == 0 { Ok(word) } else { Err(Fault) }
}

/// Loads the byte at `from`.
///
/// # Errors
/// [`Fault`] if the page of the byte cannot be read.
///
/// # Safety
/// The byte at `from` may be unmapped, but if it is mapped it is meant to be read.
#[inline]
pub unsafe fn guarded_byte(from: *const u8) -> Result<u8, Fault> {
    // SAFETY: the caller promises that the byte may be read if it is mapped; a fault is caught.
    match unsafe { bywash_guarded_load_byte(from) } {
        FAULTED => Err(Fault),
        byte => Ok(byte as u8),
    }
}

/// Returns the address at which the signal handler continues if `instruction` faulted inside a guarded copy
/// or load; `None` if the instruction lies elsewhere.
pub fn resume_after_fault(instruction: usize) -> Option<usize> {
    let end = bywash_guarded_copy_end as *const () as usize;
    (bywash_checked_copy as *const () as usize..end).contains(&instruction).then_some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_every_length() {
        check_every_length();
        prepare();
        check_every_length();
    }

    fn check_every_length() {
        let from: Vec<u8> = (0..5000u32).map(|byte| (byte * 7 + byte / 256) as u8).collect();
        for length in (0..1100).chain([2048, 4095, 4096, 4097]) {
            let mut to = vec![0u8; length + 1];
            // SAFETY: both vectors are long enough for the copy and do not overlap.
            unsafe { guarded_copy(to.as_mut_ptr(), from.as_ptr().add(3), length).unwrap() };
            assert_eq!(to[..length], from[3..3 + length]);
            assert_eq!(to[length], 0, "length {length}");
        }
    }

    #[test]
    fn what_ends_in_zero_is_left_alone() {
        let from = [7u8, 0, 9, 0];
        let mut to = [1u8; 4];
        // SAFETY: both arrays are long enough for each copy and do not overlap.
        let answers = unsafe {
            [1, 2, 3, 4].map(|length| copy_unless_zero_ends(to.as_mut_ptr(), from.as_ptr(), length).unwrap())
        };
        assert_eq!((answers, to), ([true, false, true, false], [7, 0, 9, 1]));
    }

    #[test]
    fn only_the_copy_is_resumed() {
        assert_eq!(resume_after_fault(0), None);
        let start = bywash_guarded_copy as *const () as usize;
        assert!(resume_after_fault(start).is_some());
        assert_eq!(resume_after_fault(resume_after_fault(start).unwrap()), None);
    }
}
