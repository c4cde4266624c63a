//! Requests that are submitted to a queue.

use crate::buffer::{BUFFERS, BufferSource, bywash_buffer, take_of_queue};
use crate::bytes::{to_copy, to_fill};
use crate::error::{Failure, answer};
use crate::pieces::pieces_of;
use crate::queue::{Note, bywash_queue, queue};
use ::bywash_client::{Buffer, Error, Queue, Range, RequestMemory, SubmitError, VolumeId};
use std::ffi::c_int;
use std::ptr::NonNull;

/// Range of a volume of a queue.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct bywash_range {
    /// Number of the volume, from bywash_queue_open().
    pub volume: u64,
    /// Offset of the first byte in the volume.
    pub offset: u64,
    /// Number of bytes.
    pub length: usize,
}

/// Submits something.
fn submit(
    queue: bywash_queue,
    user_data: u64,
    work: impl FnOnce(&mut Queue, u64) -> Result<(), SubmitError>,
) -> Result<(), Failure> {
    submit_noting(queue, Note { user_data, to: None }, work).map_err(|(failure, _)| failure)
}

/// As [`submit`]; gives back what was given along and not taken.
fn submit_noting(
    queue: bywash_queue,
    note: Note,
    work: impl FnOnce(&mut Queue, u64) -> Result<(), SubmitError>,
) -> Result<(), (Failure, Option<RequestMemory>)> {
    let end = self::queue(queue).map_err(|failure| (failure, None))?;
    let number = end.notes.insert(note);
    let mut back = None;
    let submitted = end.with(|queue| {
        work(queue, number).map_err(|refused| {
            back = refused.memory;
            refused.error.into()
        })
    });
    submitted.map_err(|failure| {
        end.notes.remove(number);
        (failure, back)
    })
}

/// Submits something with a buffer.
///
/// # Safety
/// `place` is null, or leads to a handle that this thread may write.
unsafe fn submit_buffer(
    queue: bywash_queue,
    place: *mut bywash_buffer,
    user_data: u64,
    work: impl FnOnce(&mut Queue, Buffer, u64) -> Result<(), SubmitError>,
) -> Result<(), Failure> {
    // SAFETY: the caller keeps the contract in this function's Safety section.
    let mut taken = Some(unsafe { take_of_queue(place) }?);
    let submitted = submit_noting(queue, Note { user_data, to: None }, |queue, number| {
        taken.take().map_or(Ok(()), |buffer| work(queue, buffer, number))
    });
    submitted.or_else(|(failure, back)| {
        let back = match (back, taken) {
            (Some(RequestMemory::Arena(buffer)), _) | (_, Some(buffer)) => Some(buffer),
            _ => None,
        };
        if let Some(buffer) = back {
            let handle = BUFFERS.insert(BufferSource::Queue(buffer))?;
            // SAFETY: valid by the caller's contract, and `take_of_queue` has checked that it is not null.
            unsafe { place.write(handle) };
        }
        Err(failure)
    })
}

/// Submits a read of `length` bytes from `offset` on. The memory at `to` belongs to the library until the
/// request is reaped or the queue is closed, and holds the bytes after the request was reaped.
///
/// BYWASH_ERROR_NO_ROOM, for this and every other request: the queue depth is reached, or the arena has no
/// free memory. Reap first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_queue_read(
    queue: bywash_queue,
    volume: u64,
    offset: u64,
    to: *mut u8,
    length: usize,
    user_data: u64,
) -> c_int {
    // SAFETY: the header's rule: a pointer is null or valid, here to as many bytes as the length says.
    answer(unsafe { to_fill(to, length) }.and_then(|to| {
        let (place, length) = (NonNull::from(&mut *to).cast(), to.len());
        // SAFETY: the caller's memory until the request was reaped, as the header says.
        submit(queue, user_data, |queue, user_data| unsafe {
            queue.read_to(VolumeId::from_word(volume), offset, place, length, user_data)
        })
    }))
}

/// Like bywash_queue_read(), but reads into a buffer of bywash_queue_alloc(), as many bytes as its length,
/// which avoids a copy unless the volume is mapped. The buffer then belongs to the queue: its handle becomes
/// zero, and the completion returns the buffer. On failure the program keeps the buffer, under a new handle
/// that replaces the old one.
///
/// BYWASH_ERROR_UNFIT: the buffer belongs to a channel's client.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_queue_read_buffer(
    queue: bywash_queue,
    volume: u64,
    offset: u64,
    buffer: *mut bywash_buffer,
    user_data: u64,
) -> c_int {
    // SAFETY: the header's rule: a pointer is null or valid, here to a variable of the caller.
    answer(unsafe {
        submit_buffer(queue, buffer, user_data, |queue, buffer, user_data| {
            queue.read(VolumeId::from_word(volume), offset, buffer, user_data)
        })
    })
}

/// Submits a write of the `length` bytes at `from`, which are copied during the call. With `durable` other
/// than 0 the bytes are durable when the request is completed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_queue_write(
    queue: bywash_queue,
    volume: u64,
    offset: u64,
    from: *const u8,
    length: usize,
    durable: c_int,
    user_data: u64,
) -> c_int {
    // SAFETY: the header's rule: a pointer is null or valid, here to as many bytes as the length says.
    answer(unsafe { to_copy(from, length) }.and_then(|from| {
        submit(queue, user_data, |queue, user_data| {
            queue.write_from(VolumeId::from_word(volume), offset, from, durable != 0, user_data)
        })
    }))
}

/// Like bywash_queue_write(), but writes the bytes of a buffer of bywash_queue_alloc(). The completion
/// returns the buffer as with bywash_queue_read_buffer().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_queue_write_buffer(
    queue: bywash_queue,
    volume: u64,
    offset: u64,
    buffer: *mut bywash_buffer,
    durable: c_int,
    user_data: u64,
) -> c_int {
    // SAFETY: the header's rule: a pointer is null or valid, here to a variable of the caller.
    answer(unsafe {
        submit_buffer(queue, buffer, user_data, |queue, buffer, user_data| {
            queue.write(VolumeId::from_word(volume), offset, buffer, durable != 0, user_data)
        })
    })
}

/// Submits a flush: when the request is completed, every write that was reaped before is durable; see
/// bywash_volume_flush().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_queue_flush(queue: bywash_queue, volume: u64, user_data: u64) -> c_int {
    answer(submit(queue, user_data, |queue, user_data| queue.flush(VolumeId::from_word(volume), user_data)))
}

/// Submits a discard; see bywash_volume_discard().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_queue_discard(
    queue: bywash_queue,
    volume: u64,
    offset: u64,
    length: u64,
    user_data: u64,
) -> c_int {
    answer(submit(queue, user_data, |queue, user_data| {
        queue.discard(VolumeId::from_word(volume), offset, length, user_data)
    }))
}

/// Submits a write of zeros; see bywash_volume_write_zeroes().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_queue_write_zeroes(
    queue: bywash_queue,
    volume: u64,
    offset: u64,
    length: u64,
    durable: c_int,
    user_data: u64,
) -> c_int {
    answer(submit(queue, user_data, |queue, user_data| {
        queue.write_zeroes(VolumeId::from_word(volume), offset, length, durable != 0, user_data)
    }))
}

/// Submits a compare-and-write; see bywash_volume_compare_and_write(). Both byte strings are copied during
/// the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_queue_compare_and_write(
    queue: bywash_queue,
    volume: u64,
    offset: u64,
    expected: *const u8,
    written: *const u8,
    length: usize,
    user_data: u64,
) -> c_int {
    // SAFETY: the header's rule: a pointer is null or valid, here to as many bytes as the length says.
    let both = unsafe { to_copy(expected, length).and_then(|one| Ok((one, to_copy(written, length)?))) };
    answer(both.and_then(|(expected, written)| {
        submit(queue, user_data, |queue, user_data| {
            queue.compare_and_write(VolumeId::from_word(volume), offset, expected, written, user_data)
        })
    }))
}

/// Bytes of ranges, all of which are within their volumes: no memory is taken for what cannot be read.
fn sum_of(queue: &Queue, ranges: &[bywash_range]) -> Result<usize, Error> {
    ranges.iter().try_fold(0usize, |sum, range| {
        let (length, bytes) = (range.length as u64, queue.len(VolumeId::from_word(range.volume))?);
        if length > bytes {
            let volume = "the volume".into();
            return Err(Error::OutOfBounds { volume, offset: range.offset, length, bytes });
        }
        Ok(sum.saturating_add(range.length))
    })
}

/// Submits a read of ranges of several volumes by one request: 1 to BYWASH_VOLUME_PIECES_MAX ranges (else
/// BYWASH_ERROR_PIECES). Their bytes are stored at `to`, one range after the other; see bywash_queue_read()
/// for the memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_queue_read_many(
    queue: bywash_queue,
    ranges: *const bywash_range,
    count: usize,
    to: *mut u8,
    user_data: u64,
) -> c_int {
    let read = || {
        // SAFETY: the header's rule: a pointer is null or valid, here to an array of `count` elements.
        let given = unsafe { pieces_of(ranges, count) }?;
        let sum = self::queue(queue)?.with(|queue| Ok(sum_of(queue, given)?))?;
        // SAFETY: the header's rule: a pointer is null or valid, here to as many bytes as the length says.
        let place = NonNull::from(&mut *unsafe { to_fill(to, sum) }?).cast();
        let ranges: Vec<Range> = given
            .iter()
            .map(|range| {
                let volume = VolumeId::from_word(range.volume);
                Range { volume, offset: range.offset, length: range.length }
            })
            .collect();
        let note = Note { user_data, to: Some(place) };
        let submitted =
            submit_noting(queue, note, |queue, number| queue.read_many(&ranges, vec![0; sum], number));
        submitted.map_err(|(failure, _)| failure)
    };
    answer(read())
}

/// Submits a write to ranges of several volumes by one request; see bywash_queue_read_many(). The bytes at
/// `from`, one range after the other, are copied during the call. See bywash_queue_write() for `durable`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_queue_write_many(
    queue: bywash_queue,
    ranges: *const bywash_range,
    count: usize,
    from: *const u8,
    durable: c_int,
    user_data: u64,
) -> c_int {
    let write = || {
        // SAFETY: the header's rule: a pointer is null or valid, here to an array of `count` elements.
        let given = unsafe { pieces_of(ranges, count) }?;
        let sum = self::queue(queue)?.with(|queue| Ok(sum_of(queue, given)?))?;
        // SAFETY: the header's rule: a pointer is null or valid, here to as many bytes as the length says.
        let mut rest = unsafe { to_copy(from, sum) }?;
        let mut pieces = Vec::with_capacity(count);
        for range in given {
            let (bytes, others) = rest.split_at(range.length);
            pieces.push((VolumeId::from_word(range.volume), range.offset, bytes));
            rest = others;
        }
        submit(queue, user_data, |queue, number| queue.write_many(&pieces, durable != 0, number))
    };
    answer(write())
}
