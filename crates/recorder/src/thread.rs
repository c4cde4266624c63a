//! The thread's word: the address of the chunk to which it adds its calls, 0 before its first call.
//!
//! One word of thread-local storage in the initial-exec model (a single load, no call), which stable Rust
//! reaches only by assembly. A forked child finds its parent's word; `note` tells by the chunk's process.

use core::arch::{asm, global_asm};

global_asm!(
    ".pushsection .tbss,\"awT\",@nobits",
    ".p2align 3",
    ".globl bywash_recorder_chunk",
    ".hidden bywash_recorder_chunk",
    ".type bywash_recorder_chunk,@object",
    ".size bywash_recorder_chunk, 8",
    "bywash_recorder_chunk: .zero 8",
    ".popsection",
);

/// Returns the thread's word.
#[inline(always)]
pub fn word() -> usize {
    let word: usize;
    // SAFETY: reads the calling thread's own eight bytes, whose offset the linker stores in the GOT.
    unsafe {
        asm!(
            "mov {word}, qword ptr [rip + bywash_recorder_chunk@GOTTPOFF]",
            "mov {word}, qword ptr fs:[{word}]",
            word = out(reg) word, options(nostack, readonly, preserves_flags),
        );
    }
    word
}

/// Sets the thread's word.
pub fn set_word(word: usize) {
    // SAFETY: writes the calling thread's own eight bytes, whose offset the linker stores in the GOT.
    unsafe {
        asm!(
            "mov {at}, qword ptr [rip + bywash_recorder_chunk@GOTTPOFF]",
            "mov qword ptr fs:[{at}], {word}",
            at = out(reg) _, word = in(reg) word, options(nostack, preserves_flags),
        );
    }
}
