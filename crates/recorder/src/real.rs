//! The C library's own functions: the next definitions after this library's in the order of symbol look-up.

use core::ffi::CStr;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

unsafe extern "C" {
    fn dlvsym(
        handle: *mut core::ffi::c_void,
        name: *const core::ffi::c_char,
        version: *const core::ffi::c_char,
    ) -> *mut core::ffi::c_void;
}

/// Address of a function, looked up at the first call.
pub struct Symbol(AtomicUsize);

impl Symbol {
    /// Creates a symbol that was not looked up yet.
    pub const fn new() -> Symbol {
        Symbol(AtomicUsize::new(0))
    }

    /// Returns the address of the next definition of `name`; callers pass the same name each time. Ends the
    /// process with a message if there is none, because the call has no target then.
    #[inline(always)]
    pub fn address(&self, name: &CStr) -> usize {
        match self.0.load(Relaxed) {
            0 => self.look_up(name),
            address => address,
        }
    }

    #[cold]
    #[inline(never)]
    fn look_up(&self, name: &CStr) -> usize {
        // Of the functions of condition variables `dlsym` may find the version of before 2003, whose variable
        // has another layout; the newer one has a version of its own.
        let newer = name.to_bytes().starts_with(b"pthread_cond_").then_some(c"GLIBC_2.3.2");
        // SAFETY: the names are C strings, and RTLD_NEXT is valid in a shared library.
        let address = unsafe {
            let versioned =
                newer.map_or(0, |version| dlvsym(libc::RTLD_NEXT, name.as_ptr(), version.as_ptr()) as usize);
            if versioned == 0 { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) as usize } else { versioned }
        };
        if address == 0 {
            for part in [b"bywash: no library of this program has ".as_slice(), name.to_bytes(), b"\n"] {
                say(part);
            }
            // SAFETY: `abort` ends the process; a call without a target cannot continue.
            unsafe { libc::abort() };
        }
        self.0.store(address, Relaxed);
        address
    }
}

/// Writes to standard error, by a system call without a buffer.
pub fn say(text: &[u8]) {
    let arguments = [2, text.as_ptr() as usize, text.len(), 0, 0, 0];
    // SAFETY: the kernel reads the bytes of `text`, whose length is passed along.
    unsafe { bywash_syscall::call(libc::SYS_write as usize, arguments) };
}
