//! Copies that survive a fault.
//!
//! A mapped file can lose the page under a copy (somebody truncated it, the disk is full or broken), and a
//! program's buffer can be bad. Both show up as a signal inside [`guarded_copy`], and only there: the signal
//! handler (the shim's `signals`) asks [`resume_after_fault`] where to go on, and the copy answers
//! `Err(Fault)`. The caller then makes the system call, which gives the program the exact result.
//!
//! Invariant: the routine keeps no state outside registers that the resumed path does not overwrite, so any
//! instruction of it may fault. What it copied before the fault stays copied; the system call that follows
//! does the same bytes again.

use bywash_sync::{AtomicU8, Ordering::Relaxed};
use core::arch::global_asm;
use core::arch::x86_64::__cpuid;

/// A copy met a page that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault;

// Lengths from 64 bytes to 4 KiB: 128 bytes a round in AVX registers where the processor has them, else 64 a
// round in SSE registers, then the last ones once more from the end (they may overlap what is already
// there). Other lengths: the processor's own string copy, which on long runs is as fast as any loop and
// needs no tail. The checked form looks at the last byte first.
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

/// What the routines answer after a fault: more than any byte.
const FAULTED: u32 = 256;
/// What the checked copy answers when the last byte is zero; nothing was copied.
const ZERO: u32 = 257;

unsafe extern "C" {
    fn bywash_guarded_copy(to: *mut u8, from: *const u8, length: usize) -> u32;
    fn bywash_checked_copy(to: *mut u8, from: *const u8, length: usize) -> u32;
    fn bywash_guarded_load(from: *const u8, to: *mut u64) -> u32;
    fn bywash_guarded_load_byte(from: *const u8) -> u32;
    fn bywash_guarded_copy_end();
    /// Whether the routine may use AVX registers.
    static bywash_wide_copy: AtomicU8;
}

/// Finds out what the processor can; to be called before the first copy, or copies are narrower.
pub(crate) fn prepare() {
    // SAFETY: a byte of ours, written as an atomic; the routine reads it by one instruction.
    unsafe { bywash_wide_copy.store(has_avx().into(), Relaxed) };
}

/// Whether the processor has AVX, and the kernel keeps its registers (Intel's Software Developer's Manual, volume 1,
/// 14.3).
fn has_avx() -> bool {
    const OSXSAVE_AND_AVX: u32 = 1 << 27 | 1 << 28;
    const SSE_AND_AVX_STATE: u32 = 1 << 1 | 1 << 2;
    if __cpuid(1).ecx & OSXSAVE_AND_AVX != OSXSAVE_AND_AVX {
        return false;
    }
    let state: u32;
    // SAFETY: the instruction is there where OSXSAVE is; it reads register 0 and writes eax and edx.
    unsafe {
        core::arch::asm!("xgetbv", in("ecx") 0, out("eax") state, out("edx") _, options(nomem, nostack, preserves_flags));
    }
    state & SSE_AND_AVX_STATE == SSE_AND_AVX_STATE
}

/// Copies `length` bytes; a fault on either side is an error and not a signal, as long as the handler is
/// installed.
///
/// # Safety
/// Either range may be unmapped or protected, but what is mapped there must be meant to be read (`from`) or
/// written (`to`). The ranges do not overlap, and no Rust reference covers them.
#[inline(always)]
pub unsafe fn guarded_copy(to: *mut u8, from: *const u8, length: usize) -> Result<(), Fault> {
    // SAFETY: promised by the caller.
    if unsafe { bywash_guarded_copy(to, from, length) } == FAULTED { Err(Fault) } else { Ok(()) }
}

/// As [`guarded_copy`] for `length > 0`, but if the last byte is zero it copies nothing and answers false.
///
/// # Safety
/// As [`guarded_copy`].
#[inline(always)]
pub unsafe fn copy_unless_zero_ends(to: *mut u8, from: *const u8, length: usize) -> Result<bool, Fault> {
    // SAFETY: promised by the caller.
    match unsafe { bywash_checked_copy(to, from, length) } {
        FAULTED => Err(Fault),
        answer => Ok(answer != ZERO),
    }
}

/// The eight bytes at `from`, or the fault that reading them met.
///
/// # Safety
/// As [`guarded_copy`] for eight bytes from `from`.
#[inline]
pub unsafe fn guarded_word(from: *const u8) -> Result<u64, Fault> {
    let mut word = 0u64;
    // SAFETY: the target is ours; the source is the caller's promise.
    if unsafe { bywash_guarded_load(from, &raw mut word) } == 0 { Ok(word) } else { Err(Fault) }
}

/// The byte at `from`, or the fault that reading it met.
///
/// # Safety
/// As [`guarded_copy`] for one byte from `from`.
#[inline]
pub unsafe fn guarded_byte(from: *const u8) -> Result<u8, Fault> {
    // SAFETY: the caller's promise.
    match unsafe { bywash_guarded_load_byte(from) } {
        FAULTED => Err(Fault),
        byte => Ok(byte as u8),
    }
}

/// For the signal handler: where to go on when `instruction` faulted inside the copy; `None` when the fault
/// is not ours.
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
            // SAFETY: both vectors are long enough.
            unsafe { guarded_copy(to.as_mut_ptr(), from.as_ptr().add(3), length).unwrap() };
            assert_eq!(to[..length], from[3..3 + length]);
            assert_eq!(to[length], 0, "length {length}");
        }
    }

    #[test]
    fn what_ends_in_zero_is_left_alone() {
        let from = [7u8, 0, 9, 0];
        let mut to = [1u8; 4];
        // SAFETY: both arrays are long enough.
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
