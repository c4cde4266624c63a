//! A library without Rust's standard library: what a panic does, and the functions that compiled code names.
//!
//! Every process loads this library. The standard one would be nearly all of it: its text, hundreds of addresses for the
//! dynamic loader to write, thread-local memory and a function that runs at each start, for what is never called.

use core::alloc::{GlobalAlloc, Layout};
use core::arch::global_asm;
use core::fmt::{self, Write};

/// Standard error, written directly.
struct StandardError;

impl Write for StandardError {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // SAFETY: writes bytes of ours.
        unsafe {
            let arguments = [2, text.as_ptr() as usize, text.len(), 0, 0, 0];
            bywash_file::sys::call(libc::SYS_write as usize, arguments);
        }
        Ok(())
    }
}

#[panic_handler]
fn broken(info: &core::panic::PanicInfo) -> ! {
    // What cannot be written cannot be told.
    let _ = writeln!(StandardError, "bywash: the library is broken, please report this: {info}");
    // SAFETY: ends the process.
    unsafe { libc::abort() }
}

/// Has no memory: the library never allocates, and what its parts could is left to the command.
struct Nothing;

// SAFETY: no block is ever handed out.
unsafe impl GlobalAlloc for Nothing {
    unsafe fn alloc(&self, _: Layout) -> *mut u8 {
        core::ptr::null_mut()
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

#[global_allocator]
static NOTHING: Nothing = Nothing;

// The compiled parts of `core` name these for unwinding, which a library that aborts never does.
global_asm!(
    ".globl rust_eh_personality, _Unwind_Resume",
    ".hidden rust_eh_personality, _Unwind_Resume",
    "rust_eh_personality:",
    "_Unwind_Resume:",
    "ud2",
);
