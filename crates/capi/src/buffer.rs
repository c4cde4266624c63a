//! Buffers of a client or of a queue, which go along with its requests.
//!
//! A buffer's handle dies when it is submitted, since the server may write there then; the completion brings the
//! buffer back under a new one.

use crate::bytes::{BRIEF_BYTES, answer_copied, to_copy, to_fill};
use crate::client::{bywash_client, client};
use crate::error::bywash_error::{BYWASH_ERROR_TOO_LARGE, BYWASH_ERROR_UNFIT};
use crate::error::{Failure, answer};
use crate::handles::{DEAD, Table, consume, consume_live, handles, put};
use crate::path::check_place;
use ::bywash_channel::{Buffer, Error};
use std::ffi::{CStr, c_int};

/// Memory of the arena of a client or a queue, to go along with requests. Used by one thread at a time.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct bywash_buffer {
    /// 0: none.
    pub id: u64,
}

handles! { bywash_buffer }

pub(crate) static BUFFERS: Table<Memory> = Table::new();

/// Whose arena it is of.
pub(crate) enum Memory {
    Channel(Buffer),
    Queue(::bywash_client::Buffer),
}

/// Does the same with either.
macro_rules! either {
    ($memory:expr, $buffer:ident => $work:expr) => {
        match $memory {
            Memory::Channel($buffer) => $work,
            Memory::Queue($buffer) => $work,
        }
    };
}

impl Memory {
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
    // SAFETY: what the caller promises.
    match unsafe { take(place, OF_QUEUE, |memory| matches!(memory, Memory::Channel(_))) }? {
        Memory::Channel(buffer) => Ok(buffer),
        Memory::Queue(_) => Err(OF_QUEUE),
    }
}

/// As [`take_of_channel`], of a queue's.
///
/// # Safety
/// As [`consume`].
pub(crate) unsafe fn take_of_queue(place: *mut bywash_buffer) -> Result<::bywash_client::Buffer, Failure> {
    // SAFETY: what the caller promises.
    match unsafe { take(place, OF_CHANNEL, |memory| matches!(memory, Memory::Queue(_))) }? {
        Memory::Queue(buffer) => Ok(buffer),
        Memory::Channel(_) => Err(OF_CHANNEL),
    }
}

/// # Safety
/// As [`consume`].
unsafe fn take(
    place: *mut bywash_buffer,
    other: Failure,
    fits: impl FnOnce(&mut Memory) -> bool,
) -> Result<Memory, Failure> {
    check_place(place, c"the pointer to the buffer is null")?;
    // SAFETY: the caller's handle, which is not null.
    let handle = unsafe { place.read() };
    if handle.id == 0 {
        return Err(DEAD);
    }
    // A handle stands for one value as long as it lives.
    if !BUFFERS.look(handle, fits)? {
        return Err(other);
    }
    // SAFETY: as above.
    unsafe { consume_live(&BUFFERS, place) }
}

pub(crate) const NULL_BUFFER: &CStr = c"the pointer for the new buffer is null";
const NULL_LENGTH: &CStr = c"the pointer for the length is null";

/// Takes a buffer of `bytes` from a client's arena, to be submitted again and again. What is in it is what was in
/// it when it was used last, or zeros. It never waits, and any thread may call it. Free it by
/// bywash_buffer_free(), before or after the client is closed.
///
/// BYWASH_ERROR_TOO_LARGE: larger than the arena. BYWASH_ERROR_NO_ROOM: other buffers have the arena.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_buffer_alloc(
    client: bywash_client,
    bytes: usize,
    buffer: *mut bywash_buffer,
) -> c_int {
    answer(check_place(buffer, NULL_BUFFER).and_then(|()| {
        let made = self::client(client)?.buffers.alloc(bytes)?;
        // SAFETY: the caller's variable, which is not null.
        unsafe { put(buffer, BUFFERS.insert(Memory::Channel(made))?, NULL_BUFFER) }
    }))
}

/// Frees a buffer and zeroes the handle. Zero is left alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_buffer_free(buffer: *mut bywash_buffer) -> c_int {
    // SAFETY: the caller's variable, or null.
    answer(unsafe { consume(&BUFFERS, buffer) }.map(drop))
}

/// Tells how many bytes of a buffer go along with a request.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_buffer_length(buffer: bywash_buffer, length: *mut usize) -> c_int {
    let known = BUFFERS.look(buffer, |buffer| buffer.len());
    // SAFETY: the caller's variable, or null.
    answer(known.and_then(|known| unsafe { put(length, known, NULL_LENGTH) }))
}

/// Tells how many bytes a buffer could have.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_buffer_capacity(buffer: bywash_buffer, capacity: *mut usize) -> c_int {
    let known = BUFFERS.look(buffer, |buffer| buffer.capacity());
    // SAFETY: the caller's variable, or null.
    answer(known.and_then(|known| unsafe { put(capacity, known, c"the pointer for the capacity is null") }))
}

/// Changes how many bytes of a buffer go along with a request, up to its capacity (else
/// BYWASH_ERROR_TOO_LARGE).
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
    copy: impl FnOnce(&mut Memory) -> Result<usize, Failure>,
) -> Result<usize, Failure> {
    if size <= BRIEF_BYTES { BUFFERS.try_look(buffer, copy) } else { BUFFERS.with(buffer, copy) }
}

/// Copies `size` bytes at `from` to a buffer's bytes from `at` on, as many as there is room for within its
/// length, and tells how many that were (`copied` may be null).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_buffer_write(
    buffer: bywash_buffer,
    at: usize,
    from: *const u8,
    size: usize,
    copied: *mut usize,
) -> c_int {
    // SAFETY: the caller's bytes, or null.
    let from = unsafe { to_copy(from, size) };
    let done = from.and_then(|from| copy(buffer, size, |buffer| Ok(buffer.write(at, from))));
    // SAFETY: the caller's variable, or null.
    unsafe { answer_copied(done, copied) }
}

/// Copies a buffer's bytes from `at` on, as many as there are and fit into the `size` bytes at `to`, and tells how
/// many that were (`copied` may be null). Nobody can change the copy after you have checked it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_buffer_read(
    buffer: bywash_buffer,
    at: usize,
    to: *mut u8,
    size: usize,
    copied: *mut usize,
) -> c_int {
    // SAFETY: the caller's memory, or null.
    let to = unsafe { to_fill(to, size) };
    let done = to.and_then(|to| copy(buffer, size, |buffer| Ok(buffer.read(at, to))));
    // SAFETY: the caller's variable, or null.
    unsafe { answer_copied(done, copied) }
}

/// Tells where the bytes of a buffer are, and how many there are. They are yours to read and write until the
/// buffer is submitted or freed; when it has come back they are where they were. `length` may be null.
///
/// BYWASH_ERROR_NOT_MAPPED, and `bytes` becomes null: the server is not trusted, and could change what you look
/// at. Copy, with bywash_buffer_read() and bywash_buffer_write().
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
        // SAFETY: the caller's variables, of which only `length` may be null.
        unsafe {
            bytes.write(at);
            if !length.is_null() {
                length.write(count);
            }
        }
        found.map(drop)
    }))
}
