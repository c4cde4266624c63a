//! Parts that a library without Rust's standard library must provide: the panic handler, the allocator, and
//! functions that compiled code refers to.

use core::alloc::{GlobalAlloc, Layout};
use core::arch::global_asm;

#[panic_handler]
fn broken(_: &core::panic::PanicInfo) -> ! {
    crate::real::say(b"bywash: the recorder is broken, please report this\n");
    // SAFETY: `abort` has no arguments and ends the process.
    unsafe { libc::abort() }
}

/// Allocator that refuses every request: the recorder never allocates.
struct Nothing;

// SAFETY: the allocator returns null always, so no block is ever handed out.
unsafe impl GlobalAlloc for Nothing {
    unsafe fn alloc(&self, _: Layout) -> *mut u8 {
        core::ptr::null_mut()
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

#[global_allocator]
static NOTHING: Nothing = Nothing;

// The compiled parts of `core` refer to these symbols for unwinding, which never happens in a library that
// aborts.
global_asm!(
    ".globl rust_eh_personality, _Unwind_Resume",
    ".hidden rust_eh_personality, _Unwind_Resume",
    "rust_eh_personality:",
    "_Unwind_Resume:",
    "ud2",
);
