//! Buffers of a client or of a queue, which go along with its requests.
//!
//! A buffer's handle dies when it is submitted, since the server may write there then; the completion brings
//! the buffer back under a new one.

use crate::bytes::{BRIEF_BYTES, answer_copied, to_copy, to_fill};
use crate::channel_client::{bywash_channel_client, client};
use crate::error::bywash_error::{BYWASH_ERROR_TOO_LARGE, BYWASH_ERROR_UNFIT};
use crate::error::{Failure, answer};
use crate::handles::{DEAD, Table, consume, consume_live, handles, put};
use crate::path::check_place;
use ::bywash_channel::{Buffer, Error};
use std::ffi::{CStr, c_int};

/// Buffer for requests, in the arena of a channel's client or of a queue. Used by one thread at a time.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct bywash_buffer {
    /// Number of the handle; 0 is no handle.
    pub id: u64,
}

handles! { bywash_buffer }

pub(crate) static BUFFERS: Table<BufferSource> = Table::new();

/// Memory of a buffer, in the arena of a channel's client or of a queue.
pub(crate) enum BufferSource {
    Channel(Buffer),
    Queue(::bywash_client::Buffer),
}

/// Does the same with either.
macro_rules! either {
    ($memory:expr, $buffer:ident => $work:expr) => {
        match $memory {
            BufferSource::Channel($buffer) => $work,
            BufferSource::Queue($buffer) => $work,
        }
    };
}

impl BufferSource {
    fn len(&self) -> usize {
        either!(self, buffer => buffer.len())
    }

    fn capacity(&self) -> usize {
        either!(self, buffer => buffer.capacity())
    }

    fn resize(&mut self, length: usize) -> bool {
        either!(self, buffer => buffer.resize(length))
    }

    fn write(&mut self, at: usize, from: &[u8]) -> usize {
        either!(self, buffer => buffer.write(at, from))
    }

    fn read(&self, at: usize, to: &mut [u8]) -> usize {
        either!(self, buffer => buffer.read(at, to))
    }

    fn map_mut(&mut self) -> Result<&mut [u8], Error> {
        either!(self, buffer => buffer.map_mut())
    }
}

const OF_QUEUE: Failure = Failure::fixed(
    BYWASH_ERROR_UNFIT,
    c"the buffer is of a queue, and this is a channel; take one by bywash_buffer_alloc()",
);
const OF_CHANNEL: Failure = Failure::fixed(
    BYWASH_ERROR_UNFIT,
    c"the buffer is of a channel, and this is a queue; take one by bywash_queue_alloc()",
);

/// Takes a channel's buffer out of its table, and zeroes the handle at `place`.
///
/// # Safety
/// As [`consume`].
pub(crate) unsafe fn take_of_channel(place: *mut bywash_buffer) -> Result<Buffer, Failure> {
    // SAFETY: the caller keeps the contract in this function's Safety section.
    match unsafe { take(place, OF_QUEUE, |memory| matches!(memory, BufferSource::Channel(_))) }? {
        BufferSource::Channel(buffer) => Ok(buffer),
        BufferSource::Queue(_) => Err(OF_QUEUE),
    }
}

/// As [`take_of_channel`], of a queue's.
///
/// # Safety
/// As [`consume`].
pub(crate) unsafe fn take_of_queue(place: *mut bywash_buffer) -> Result<::bywash_client::Buffer, Failure> {
    // SAFETY: the caller keeps the contract in this function's Safety section.
    match unsafe { take(place, OF_CHANNEL, |memory| matches!(memory, BufferSource::Queue(_))) }? {
        BufferSource::Queue(buffer) => Ok(buffer),
        BufferSource::Channel(_) => Err(OF_CHANNEL),
    }
}

/// # Safety
/// As [`consume`].
unsafe fn take(
    place: *mut bywash_buffer,
    other: Failure,
    fits: impl FnOnce(&mut BufferSource) -> bool,
) -> Result<BufferSource, Failure> {
    check_place(place, c"the pointer to the buffer is null")?;
    // SAFETY: not null, so valid by the header's rule, and the handle is the caller's.
    let handle = unsafe { place.read() };
    if handle.id == 0 {
        return Err(DEAD);
    }
    // A handle stands for one value as long as it lives.
    if !BUFFERS.look(handle, fits)? {
        return Err(other);
    }
    // SAFETY: the header's rule: the caller keeps its pointers valid until the call returns.
    unsafe { consume_live(&BUFFERS, place) }
}

pub(crate) const NULL_BUFFER: &CStr = c"the pointer for the new buffer is null";
const NULL_LENGTH: &CStr = c"the pointer for the length is null";

/// Allocates a buffer of `bytes` bytes in a client's arena, which can be submitted repeatedly. The contents
/// are those of the last use of the memory, or zeros. The call never waits, and any thread may make it. Free
/// the buffer by bywash_buffer_free(), before or after the client is closed.
///
/// BYWASH_ERROR_TOO_LARGE: `bytes` exceeds the arena. BYWASH_ERROR_NO_ROOM: other buffers occupy the arena.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_buffer_alloc(
    client: bywash_channel_client,
    bytes: usize,
    buffer: *mut bywash_buffer,
) -> c_int {
    answer(check_place(buffer, NULL_BUFFER).and_then(|()| {
        let made = self::client(client)?.buffers.alloc(bytes)?;
        // SAFETY: not null, so valid by the header's rule, and the variable is the caller's.
        unsafe { put(buffer, BUFFERS.insert(BufferSource::Channel(made))?, NULL_BUFFER) }
    }))
}

/// Frees a buffer and zeroes the handle. A zero handle is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_buffer_free(buffer: *mut bywash_buffer) -> c_int {
    // SAFETY: the header's rule: a pointer is null or valid, here to a variable of the caller.
    answer(unsafe { consume(&BUFFERS, buffer) }.map(drop))
}

/// Returns the length of a buffer, in bytes: the part that a request includes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_buffer_length(buffer: bywash_buffer, length: *mut usize) -> c_int {
    let known = BUFFERS.look(buffer, |buffer| buffer.len());
    // SAFETY: the header's rule: a pointer is null or valid, here to a variable of the caller.
    answer(known.and_then(|known| unsafe { put(length, known, NULL_LENGTH) }))
}

/// Returns the capacity of a buffer, in bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_buffer_capacity(buffer: bywash_buffer, capacity: *mut usize) -> c_int {
    let known = BUFFERS.look(buffer, |buffer| buffer.capacity());
    // SAFETY: the header's rule: a pointer is null or valid, here to a variable of the caller.
    answer(known.and_then(|known| unsafe { put(capacity, known, c"the pointer for the capacity is null") }))
}

/// Sets the length of a buffer, up to its capacity (else BYWASH_ERROR_TOO_LARGE).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_buffer_resize(buffer: bywash_buffer, length: usize) -> c_int {
    answer(BUFFERS.try_look(buffer, |buffer| match buffer.resize(length) {
        true => Ok(()),
        false => {
            let most = buffer.capacity();
            let text = format!("{length} bytes do not fit into a buffer of {most}; allocate a larger one");
            Err(Failure::new(BYWASH_ERROR_TOO_LARGE, text))
        }
    }))
}

/// Copies, under the lock if that is brief.
fn copy(
    buffer: bywash_buffer,
    size: usize,
    copy: impl FnOnce(&mut BufferSource) -> Result<usize, Failure>,
) -> Result<usize, Failure> {
    if size <= BRIEF_BYTES { BUFFERS.try_look(buffer, copy) } else { BUFFERS.with(buffer, copy) }
}

/// Copies up to `size` bytes at `from` into a buffer from offset `at` on, as many as its length has room for,
/// and returns the number in `copied` (which may be null).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_buffer_write(
    buffer: bywash_buffer,
    at: usize,
    from: *const u8,
    size: usize,
    copied: *mut usize,
) -> c_int {
    // SAFETY: the header's rule: a pointer is null or valid, here to as many bytes as the length says.
    let from = unsafe { to_copy(from, size) };
    let done = from.and_then(|from| copy(buffer, size, |buffer| Ok(buffer.write(at, from))));
    // SAFETY: the header's rule: a pointer is null or valid, here to a variable of the caller.
    unsafe { answer_copied(done, copied) }
}

/// Copies the bytes of a buffer from offset `at` on to `to`, at most `size` bytes, and returns the number in
/// `copied` (which may be null). The server cannot change the copy after the program has checked it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_buffer_read(
    buffer: bywash_buffer,
    at: usize,
    to: *mut u8,
    size: usize,
    copied: *mut usize,
) -> c_int {
    // SAFETY: the header's rule: a pointer is null or valid, here to as many bytes as the length says.
    let to = unsafe { to_fill(to, size) };
    let done = to.and_then(|to| copy(buffer, size, |buffer| Ok(buffer.read(at, to))));
    // SAFETY: the header's rule: a pointer is null or valid, here to a variable of the caller.
    unsafe { answer_copied(done, copied) }
}

/// Returns the address and the length of a buffer's bytes. The program may read and write the bytes until the
/// buffer is submitted or freed. A completion returns the buffer at the same address. `length` may be null.
///
/// BYWASH_ERROR_NOT_MAPPED, and `bytes` becomes null: the server is not trusted, and could change the bytes.
/// Copy them with bywash_buffer_read() and bywash_buffer_write().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_buffer_map(
    buffer: bywash_buffer,
    bytes: *mut *mut u8,
    length: *mut usize,
) -> c_int {
    answer(check_place(bytes, c"the pointer for the bytes is null").and_then(|()| {
        let found = BUFFERS.try_look(buffer, |buffer| {
            let bytes = buffer.map_mut()?;
            Ok((bytes.as_mut_ptr(), bytes.len()))
        });
        let (at, count) = found.as_ref().map_or((std::ptr::null_mut(), 0), |found| *found);
        // SAFETY: valid by the header's rule for pointers; `length` is checked for null.
        unsafe {
            bytes.write(at);
            if !length.is_null() {
                length.write(count);
            }
        }
        found.map(drop)
    }))
}
