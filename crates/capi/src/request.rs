//! Requests that a server has taken: their memory, and their end.
//!
//! A request ends by being completed, and by nothing else: its client waits for that, and what a status means
//! is the service's to say, so that the library could not do it in the service's place. There is no function
//! that frees one and forgets it.

use crate::bytes::{BRIEF_BYTES, answer_copied, to_copy, to_fill};
use crate::channel_server::ServerEnd;
use crate::error::{Failure, answer};
use crate::handles::{Table, consume_live, handles};
use crate::path::check_place;
use ::bywash_channel::{Request, RequestBuffer};
use std::ffi::c_int;
use std::sync::Arc;

/// Request that a server has taken and must complete by bywash_request_complete(). Any thread may use it, one
/// at a time.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct bywash_request {
    /// Number of the handle; 0 is no handle.
    pub id: u64,
}

handles! { bywash_request }

/// A request that C has.
pub(crate) struct StoredRequest {
    pub(crate) request: Request,
    /// Keeps the client's memory where it is.
    pub(crate) end: Arc<ServerEnd>,
}

pub(crate) static REQUESTS: Table<StoredRequest> = Table::new();

impl StoredRequest {
    fn memory(&self) -> RequestBuffer<'_> {
        self.end.memories.buffer(&self.request)
    }
}

/// Copies, under the lock if that is brief.
fn copy(
    request: bywash_request,
    size: usize,
    copy: impl FnOnce(RequestBuffer<'_>) -> usize,
) -> Result<usize, Failure> {
    let copy = |asked: &mut StoredRequest| Ok(copy(asked.memory()));
    if size <= BRIEF_BYTES { REQUESTS.try_look(request, copy) } else { REQUESTS.with(request, copy) }
}

/// Copies the bytes of a request's buffer from offset `at` on to `to`, at most `size` bytes, and returns the
/// number in `copied` (which may be null). The client can change its buffer at any time, but not the copy:
/// check the copy, then use the copy.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_request_read(
    request: bywash_request,
    at: usize,
    to: *mut u8,
    size: usize,
    copied: *mut usize,
) -> c_int {
    // SAFETY: the header's rule: a pointer is null or valid, here to as many bytes as the length says.
    let to = unsafe { to_fill(to, size) };
    let done = to.and_then(|to| copy(request, size, |memory| memory.read(at, to)));
    // SAFETY: the header's rule: a pointer is null or valid, here to a variable of the caller.
    unsafe { answer_copied(done, copied) }
}

/// Copies up to `size` bytes at `from` into a request's buffer from offset `at` on, as many as fit, and
/// returns the number in `copied` (which may be null).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_request_write(
    request: bywash_request,
    at: usize,
    from: *const u8,
    size: usize,
    copied: *mut usize,
) -> c_int {
    // SAFETY: the header's rule: a pointer is null or valid, here to as many bytes as the length says.
    let from = unsafe { to_copy(from, size) };
    let done = from.and_then(|from| copy(request, size, |memory| memory.write(at, from)));
    // SAFETY: the header's rule: a pointer is null or valid, here to a variable of the caller.
    unsafe { answer_copied(done, copied) }
}

/// Returns the address and the length of a request's buffer, for a system call or a device; null if the
/// request has none (`length` may be null). The buffer remains mapped until the request is completed. The
/// client can change the bytes at any time: do not check them in place and use them afterwards.
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
        // SAFETY: valid by the header's rule for pointers; `length` is checked for null.
        unsafe {
            bytes.write(at);
            if !length.is_null() {
                length.write(count);
            }
        }
        Ok(())
    }))
}

/// Completes a request: the client receives the completion, owns the buffer again, and may reuse the tag. A
/// status of 0 is success; the service defines other numbers, and the value. The call never waits; threads
/// that complete at the same time take turns. The handle becomes zero, and the request ends, with every
/// result except BYWASH_ERROR_HANDLE, BYWASH_ERROR_BUSY and BYWASH_ERROR_ARGUMENT.
///
/// If the client has ended the completion is discarded, without an error. BYWASH_ERROR_CLOSED: the server was
/// closed before, and the call only frees the request.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_request_complete(
    request: *mut bywash_request,
    status: u16,
    value: u64,
) -> c_int {
    // SAFETY: the header's rule: a pointer is null or valid, here to a variable of the caller.
    let taken = unsafe { consume_live(&REQUESTS, request) };
    answer(taken.and_then(|StoredRequest { request, end }| end.complete(request, status, value)))
}
