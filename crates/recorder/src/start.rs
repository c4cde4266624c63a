//! Start and end of a process.

use crate::{descriptors, note};
use bywash_session::recording::{Described, Function, Recording, VARIABLE};
use core::ffi::{CStr, c_char, c_int};

/// Entry for the dynamic loader, which calls [`begin`] before `main`.
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: unsafe extern "C" fn(c_int, *const *const c_char, *const *const c_char) = begin;

/// Entry for the dynamic loader, which calls [`end`] at exit(3) and when `main` returns.
#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;

/// Opens the recording that the environment names, and notes the start of the program.
///
/// # Safety
/// The arguments are those that the dynamic loader passes to a constructor.
unsafe extern "C" fn begin(_: c_int, _: *const *const c_char, environment: *const *const c_char) {
    // SAFETY: the loader passes a list of C strings that ends with a null.
    let Some(path) = (unsafe { variable(environment) }) else { return };
    let begun = note::begin();
    let Ok(recording) = Recording::open(path) else { return };
    note::set_long(recording.clock().1);
    // SAFETY: the loader calls this function once.
    unsafe { note::open(recording) };
    let mut name = [0u8; 512];
    // SAFETY: the path is a C string, and the length of the buffer is passed along.
    let length = unsafe { libc::readlink(c"/proc/self/exe".as_ptr(), name.as_mut_ptr().cast(), name.len()) };
    let name = &name[..usize::try_from(length).unwrap_or(0).min(512)];
    let program =
        recording.add_file(Described { mode: libc::S_IFREG, name, descriptor: -1, ..Described::default() });
    note::end(begun, Function::Start, -1, u64::from(program), 0);
    descriptors::forget_range(0, 2);
}

/// Notes the end of the process.
pub extern "C" fn end() {
    note::end(note::begin(), Function::Exit, -1, 0, 0);
}

/// Returns the value of [`VARIABLE`] in an environment.
///
/// # Safety
/// `at` is null or a list of C strings that ends with a null.
unsafe fn variable(mut at: *const *const c_char) -> Option<&'static CStr> {
    // SAFETY: the caller promises the list.
    unsafe {
        while !at.is_null() && !(*at).is_null() {
            let text = CStr::from_ptr(*at);
            let value =
                text.to_bytes().strip_prefix(VARIABLE.as_bytes()).and_then(|rest| rest.strip_prefix(b"="));
            if let Some(value) = value {
                return (!value.is_empty()).then(|| CStr::from_ptr(value.as_ptr().cast()));
            }
            at = at.add(1);
        }
    }
    None
}
