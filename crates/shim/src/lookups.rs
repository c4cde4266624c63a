//! `dlsym`: a program that looks up functions in the C library itself (ctypes, JNA, plug-ins) gets this
//! library's functions where they exist, as a linked program does.
//!
//! A function is exchanged only if it is the one that this library's own function would call. So another
//! preloaded library that looks up and calls functions below this one cannot end in an infinite loop.
//! Look-ups with `RTLD_DEFAULT` and `RTLD_NEXT` depend on the caller and find this library by the usual
//! order, so they are passed on.

use core::arch::naked_asm;
use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

unsafe extern "C" {
    fn dlvsym(handle: *mut c_void, name: *const c_char, version: *const c_char) -> *mut c_void;
}

/// Returns the address of the C library's own `dlsym`, which this library's `dlsym` hides.
extern "C" fn real_dlsym() -> usize {
    static ADDRESS: AtomicUsize = AtomicUsize::new(0);
    let known = ADDRESS.load(Relaxed);
    if known != 0 {
        return known;
    }
    // SAFETY: all arguments are C strings; the versions are those of `dlsym` on x86-64, the newer one first.
    let found = [c"GLIBC_2.34", c"GLIBC_2.2.5"]
        .into_iter()
        .map(|version| unsafe { dlvsym(libc::RTLD_NEXT, c"dlsym".as_ptr(), version.as_ptr()) as usize });
    let address = found.into_iter().find(|address| *address != 0).unwrap_or_else(|| {
        // SAFETY: `abort` ends the process; a C library without `dlsym` cannot have started it.
        unsafe { libc::abort() }
    });
    ADDRESS.store(address, Relaxed);
    address
}

/// Calls the C library's `dlsym`, without this library's exchange of functions; returns the address, 0 if the
/// name is not found.
///
/// # Safety
/// Same as dlsym(3): `handle` is valid.
pub unsafe fn look_up(handle: *mut c_void, name: &CStr) -> usize {
    // SAFETY: the address is that of `dlsym`, which has this type; the caller promises the handle.
    unsafe { core::mem::transmute::<usize, Dlsym>(real_dlsym())(handle, name.as_ptr()) as usize }
}

#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    // RTLD_DEFAULT is 0 and RTLD_NEXT is -1. For those the C library determines the caller by the return
    // address, so the stub jumps to it.
    naked_asm!(
        "lea rax, [rdi + 1]",
        "cmp rax, 1",
        "ja {in_handle}",
        "push rdi", "push rsi", "sub rsp, 8",
        "call {real}",
        "add rsp, 8", "pop rsi", "pop rdi",
        "jmp rax",
        in_handle = sym in_handle,
        real = sym real_dlsym,
    )
}

unsafe extern "C" fn in_handle(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    // SAFETY: the program keeps the contract of the C library's function that it called.
    let found = unsafe { core::mem::transmute::<usize, Dlsym>(real_dlsym())(handle, name) };
    if found.is_null() {
        return found;
    }
    // SAFETY: `dlsym` found the name, so it is a C string.
    let name = unsafe { CStr::from_ptr(name) };
    ours(name, found as usize).map_or(found, |address| address as *mut c_void)
}

/// Returns this library's function of that name, if `found` is the function that it would call.
fn ours(name: &CStr, found: usize) -> Option<usize> {
    // SAFETY: look-ups with valid handles and C strings; `told` is read only if `dladdr` filled it in.
    unsafe {
        let own = own_handle()?;
        let address = look_up(own, name);
        let mut told: libc::Dl_info = core::mem::zeroed();
        let here = libc::dladdr(address as *const c_void, &raw mut told) != 0
            && told.dli_fbase as usize == own_base();
        (here && look_up(libc::RTLD_NEXT, name) == found).then_some(address)
    }
}

/// Returns the address at which this library is loaded.
fn own_base() -> usize {
    static BASE: AtomicUsize = AtomicUsize::new(0);
    if BASE.load(Relaxed) == 0 {
        // SAFETY: `dladdr` gets an address of this library, for which it fills in the structure.
        unsafe {
            let mut told: libc::Dl_info = core::mem::zeroed();
            libc::dladdr(own_base as *const c_void, &raw mut told);
            BASE.store(told.dli_fbase as usize, Relaxed);
        }
    }
    BASE.load(Relaxed)
}

fn own_handle() -> Option<*mut c_void> {
    static HANDLE: AtomicUsize = AtomicUsize::new(0);
    if HANDLE.load(Relaxed) == 0 {
        // SAFETY: `dladdr` gets an address of this library; the name that it fills in is a C string of the
        // loader.
        unsafe {
            let mut told: libc::Dl_info = core::mem::zeroed();
            if libc::dladdr(own_base as *const c_void, &raw mut told) != 0 {
                let handle = libc::dlopen(told.dli_fname, libc::RTLD_LAZY | libc::RTLD_NOLOAD);
                HANDLE.store(handle as usize, Relaxed);
            }
        }
    }
    let handle = HANDLE.load(Relaxed);
    (handle != 0).then_some(handle as *mut c_void)
}
