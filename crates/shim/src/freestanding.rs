//! Parts that a library without Rust's standard library must provide: the panic handler, and functions that
//! compiled code refers to.
//!
//! Every process loads this library. The standard library would be most of it: its code, hundreds of
//! addresses for the dynamic loader to write, thread-local memory and a function that runs at each start, all
//! for code that is never called.

use core::alloc::{GlobalAlloc, Layout};
use core::arch::global_asm;
use core::fmt::{self, Write};

/// Standard error, written by system calls without a buffer.
struct StandardError;

impl Write for StandardError {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // SAFETY: the kernel reads the bytes of `text`, whose length is passed along.
        unsafe {
            let arguments = [2, text.as_ptr() as usize, text.len(), 0, 0, 0];
            bywash_file::sys::call(libc::SYS_write as usize, arguments);
        }
        Ok(())
    }
}

#[panic_handler]
fn broken(info: &core::panic::PanicInfo) -> ! {
    // A message that cannot be written is lost: nothing else can report it.
    let _ = writeln!(StandardError, "bywash: the library is broken, please report this: {info}");
    // SAFETY: `abort` has no arguments and ends the process.
    unsafe { libc::abort() }
}

/// Allocator that refuses every request: the library never allocates. Code of its crates that would allocate
/// runs only in the command.
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
