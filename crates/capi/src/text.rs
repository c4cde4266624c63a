//! Texts that are as long as they are: plans and reports.

use crate::error::{Failure, answer};
use crate::handles::{Table, consume, handles, put};
use crate::path::check_place;
use std::ffi::{CStr, CString, c_char, c_int};

/// Text allocated by the library. Used by one thread at a time.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct bywash_text {
    /// Number of the handle; 0 is no handle.
    pub id: u64,
}

handles! { bywash_text }

static TEXTS: Table<CString> = Table::new();

pub(crate) const NULL_TEXT: &CStr = c"the pointer for the new text is null";

/// Keeps a text and tells C its handle.
///
/// # Safety
/// As [`put`].
pub(crate) unsafe fn hand_out(made: CString, place: *mut bywash_text) -> Result<(), Failure> {
    let handle = TEXTS.insert(made)?;
    // SAFETY: the caller keeps the contract in this function's Safety section.
    unsafe { put(place, handle, NULL_TEXT) }
}

/// Tells where the characters of a text are: UTF-8, with a zero behind the last one, until the text is freed.
/// `length` is their number without that zero, and may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_text_get(
    text: bywash_text,
    characters: *mut *const c_char,
    length: *mut usize,
) -> c_int {
    answer(check_place(characters, c"the pointer for the characters is null").and_then(|()| {
        // They stay where they are as long as the text is in its table.
        let (at, count) = TEXTS.look(text, |text| (text.as_ptr(), text.count_bytes()))?;
        // SAFETY: valid by the header's rule for pointers; `length` is checked for null.
        unsafe {
            characters.write(at);
            if !length.is_null() {
                length.write(count);
            }
        }
        Ok(())
    }))
}

/// Frees a text and zeroes the handle. Zero is left alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_text_free(text: *mut bywash_text) -> c_int {
    // SAFETY: the header's rule: a pointer is null or valid, here to a variable of the caller.
    answer(unsafe { consume(&TEXTS, text) }.map(drop))
}
