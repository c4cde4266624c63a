//! Requests that a server has taken: their memory, and their end.
//!
//! A request ends by being completed, and by nothing else: its client waits for that, and what a status means is
//! the service's to say, so that the library could not do it in the service's place. There is no function that
//! frees one and forgets it.

use crate::bytes::{BRIEF_BYTES, answer_copied, to_copy, to_fill};
use crate::error::{Failure, answer};
use crate::handles::{Table, consume_live, handles};
use crate::path::check_place;
use crate::server::End;
use ::bywash_channel::{Memory, Request};
use std::ffi::c_int;
use std::sync::Arc;

/// A request that a server has taken, to be completed by bywash_request_complete(). Used by one thread at a time,
/// whichever.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct bywash_request {
    /// 0: none.
    pub id: u64,
}

handles! { bywash_request }

/// A request that C has.
pub(crate) struct Asked {
    pub(crate) request: Request,
    /// Keeps the client's memory where it is.
    pub(crate) end: Arc<End>,
}

pub(crate) static REQUESTS: Table<Asked> = Table::new();

impl Asked {
    fn memory(&self) -> Memory<'_> {
        self.end.memories.of(&self.request)
    }
}

/// Copies, under the lock if that is brief.
fn copy(
    request: bywash_request,
    size: usize,
    copy: impl FnOnce(Memory<'_>) -> usize,
) -> Result<usize, Failure> {
    let copy = |asked: &mut Asked| Ok(copy(asked.memory()));
    if size <= BRIEF_BYTES { REQUESTS.try_look(request, copy) } else { REQUESTS.with(request, copy) }
}

/// Copies the bytes from `at` on of the memory that came with a request, as many as there are and fit into the
/// `size` bytes at `to`, and tells how many that were (`copied` may be null). The client can change its memory at
/// any time, and not the copy: copy, then check and believe the copy.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_request_read(
    request: bywash_request,
    at: usize,
    to: *mut u8,
    size: usize,
    copied: *mut usize,
) -> c_int {
    // SAFETY: the caller's memory, or null.
    let to = unsafe { to_fill(to, size) };
    let done = to.and_then(|to| copy(request, size, |memory| memory.read(at, to)));
    // SAFETY: the caller's variable, or null.
    unsafe { answer_copied(done, copied) }
}

/// Copies `size` bytes at `from` to the bytes from `at` on of the memory that came with a request, as many as
/// there is room for, and tells how many that were (`copied` may be null).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_request_write(
    request: bywash_request,
    at: usize,
    from: *const u8,
    size: usize,
    copied: *mut usize,
) -> c_int {
    // SAFETY: the caller's bytes, or null.
    let from = unsafe { to_copy(from, size) };
    let done = from.and_then(|from| copy(request, size, |memory| memory.write(at, from)));
    // SAFETY: the caller's variable, or null.
    unsafe { answer_copied(done, copied) }
}

/// Tells where the memory is that came with a request, for a system call or a device, and how many bytes there
/// are (`length` may be null); null where none came along. It is there until the request is completed. The client
/// can change it at any time: do not check what is there and believe it afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_request_memory(
    request: bywash_request,
    bytes: *mut *mut u8,
    length: *mut usize,
) -> c_int {
    answer(check_place(bytes, c"the pointer for the bytes is null").and_then(|()| {
        let (at, count) = REQUESTS.look(request, |asked| {
            let memory = asked.memory();
            let at = if memory.is_empty() { std::ptr::null_mut() } else { memory.as_ptr() };
            (at, memory.len())
        })?;
        // SAFETY: the caller's variables, of which only `length` may be null.
        unsafe {
            bytes.write(at);
            if !length.is_null() {
                length.write(count);
            }
        }
        Ok(())
    }))
}

/// Completes a request: its client hears of it, has its memory again, and may use the tag again. A status of 0 is
/// success; the rest, and the value, are the service's. It never waits; threads that complete at the same time
/// take turns. The handle becomes zero, and the request is gone whatever this answers but BYWASH_ERROR_HANDLE,
/// BYWASH_ERROR_BUSY and BYWASH_ERROR_ARGUMENT.
///
/// A client that is gone does not hear of it, and that is no error. BYWASH_ERROR_CLOSED: the server was closed
/// before; this only frees the request.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_request_complete(
    request: *mut bywash_request,
    status: u16,
    value: u64,
) -> c_int {
    // SAFETY: the caller's variable, or null.
    let taken = unsafe { consume_live(&REQUESTS, request) };
    answer(taken.and_then(|Asked { request, end }| end.complete(request, status, value)))
}
