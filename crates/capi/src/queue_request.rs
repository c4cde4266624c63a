//! What a queue is asked.

use crate::buffer::{BUFFERS, Memory, bywash_buffer, take_of_queue};
use crate::bytes::{to_copy, to_fill};
use crate::error::{Failure, answer};
use crate::pieces::pieces_of;
use crate::queue::{Note, bywash_queue, queue};
use ::bywash_client::{Buffer, Error, NotSubmitted, Queue, Range, Room, VolumeId};
use std::ffi::c_int;
use std::ptr::NonNull;

/// A part of a volume of a queue.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct bywash_range {
    /// Of which volume, as bywash_queue_open() has told.
    pub volume: u64,
    /// From which byte on.
    pub offset: u64,
    /// How many bytes.
    pub length: usize,
}

/// Submits something.
fn submit(
    queue: bywash_queue,
    user_data: u64,
    work: impl FnOnce(&mut Queue, u64) -> Result<(), NotSubmitted>,
) -> Result<(), Failure> {
    submit_noting(queue, Note { user_data, to: None }, work).map_err(|(failure, _)| failure)
}

/// As [`submit`]; gives back what was given along and not taken.
fn submit_noting(
    queue: bywash_queue,
    note: Note,
    work: impl FnOnce(&mut Queue, u64) -> Result<(), NotSubmitted>,
) -> Result<(), (Failure, Option<Room>)> {
    let end = self::queue(queue).map_err(|failure| (failure, None))?;
    let number = end.notes.insert(note);
    let mut back = None;
    let submitted = end.with(|queue| {
        work(queue, number).map_err(|refused| {
            back = refused.room;
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
    work: impl FnOnce(&mut Queue, Buffer, u64) -> Result<(), NotSubmitted>,
) -> Result<(), Failure> {
    // SAFETY: what the caller promises.
    let mut taken = Some(unsafe { take_of_queue(place) }?);
    let submitted = submit_noting(queue, Note { user_data, to: None }, |queue, number| {
        taken.take().map_or(Ok(()), |buffer| work(queue, buffer, number))
    });
    submitted.or_else(|(failure, back)| {
        let back = match (back, taken) {
            (Some(Room::Arena(buffer)), _) | (_, Some(buffer)) => Some(buffer),
            _ => None,
        };
        if let Some(buffer) = back {
            let handle = BUFFERS.insert(Memory::Queue(buffer))?;
            // SAFETY: as above; `take_of_queue` has found that it is not null.
            unsafe { place.write(handle) };
        }
        Err(failure)
    })
}

/// Submits a read of `length` bytes from `offset` on. The memory at `to` is the library's until the request was reaped or the
/// queue is closed; it has the bytes when the request was reaped.
///
/// BYWASH_ERROR_NO_ROOM, here and with every other request: as many are under way as may be, or the arena is used up.
/// Reap first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_queue_read(
    queue: bywash_queue,
    volume: u64,
    offset: u64,
    to: *mut u8,
    length: usize,
    user_data: u64,
) -> c_int {
    // SAFETY: the caller's memory, or null.
    answer(unsafe { to_fill(to, length) }.and_then(|to| {
        let (place, length) = (NonNull::from(&mut *to).cast(), to.len());
        // SAFETY: the caller's memory until the request was reaped, as the header says.
        submit(queue, user_data, |queue, user_data| unsafe {
            queue.read_to(VolumeId::of_word(volume), offset, place, length, user_data)
        })
    }))
}

/// As bywash_queue_read(), into a buffer of bywash_queue_alloc(), as many bytes as its length: nothing is copied where the
/// volume is not mapped. The buffer is the queue's then: its handle becomes zero, and it comes back with what is told of the
/// request. On failure it stays, under a new handle that takes the old one's place.
///
/// BYWASH_ERROR_UNFIT: the buffer is of a client.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_queue_read_buffer(
    queue: bywash_queue,
    volume: u64,
    offset: u64,
    buffer: *mut bywash_buffer,
    user_data: u64,
) -> c_int {
    // SAFETY: the caller's variable, or null.
    answer(unsafe {
        submit_buffer(queue, buffer, user_data, |queue, buffer, user_data| {
            queue.read(VolumeId::of_word(volume), offset, buffer, user_data)
        })
    })
}

/// Submits a write of the `length` bytes at `from`, which are copied now. With `durable` other than 0 they are durable when it
/// is completed.
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
    // SAFETY: the caller's bytes, or null.
    answer(unsafe { to_copy(from, length) }.and_then(|from| {
        submit(queue, user_data, |queue, user_data| {
            queue.write_from(VolumeId::of_word(volume), offset, from, durable != 0, user_data)
        })
    }))
}

/// As bywash_queue_write(), of what is in a buffer of bywash_queue_alloc(), which goes and comes back as with
/// bywash_queue_read_buffer().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_queue_write_buffer(
    queue: bywash_queue,
    volume: u64,
    offset: u64,
    buffer: *mut bywash_buffer,
    durable: c_int,
    user_data: u64,
) -> c_int {
    // SAFETY: the caller's variable, or null.
    answer(unsafe {
        submit_buffer(queue, buffer, user_data, |queue, buffer, user_data| {
            queue.write(VolumeId::of_word(volume), offset, buffer, durable != 0, user_data)
        })
    })
}

/// Submits what bywash_volume_flush() does, for what had been reaped before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_queue_flush(queue: bywash_queue, volume: u64, user_data: u64) -> c_int {
    answer(submit(queue, user_data, |queue, user_data| queue.flush(VolumeId::of_word(volume), user_data)))
}

/// Submits what bywash_volume_discard() does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_queue_discard(
    queue: bywash_queue,
    volume: u64,
    offset: u64,
    length: u64,
    user_data: u64,
) -> c_int {
    answer(submit(queue, user_data, |queue, user_data| {
        queue.discard(VolumeId::of_word(volume), offset, length, user_data)
    }))
}

/// Submits what bywash_volume_write_zeroes() does.
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
        queue.write_zeroes(VolumeId::of_word(volume), offset, length, durable != 0, user_data)
    }))
}

/// Submits what bywash_volume_compare_and_write() does; both are copied now.
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
    // SAFETY: the caller's bytes, or null.
    let both = unsafe { to_copy(expected, length).and_then(|one| Ok((one, to_copy(written, length)?))) };
    answer(both.and_then(|(expected, written)| {
        submit(queue, user_data, |queue, user_data| {
            queue.compare_and_write(VolumeId::of_word(volume), offset, expected, written, user_data)
        })
    }))
}

/// Bytes of ranges, all of which are within their volumes: no memory is taken for what cannot be read.
fn sum_of(queue: &Queue, ranges: &[bywash_range]) -> Result<usize, Error> {
    ranges.iter().try_fold(0usize, |sum, range| {
        let (length, bytes) = (range.length as u64, queue.len(VolumeId::of_word(range.volume))?);
        if length > bytes {
            let volume = "the volume".into();
            return Err(Error::OutOfBounds { volume, offset: range.offset, length, bytes });
        }
        Ok(sum.saturating_add(range.length))
    })
}

/// Submits a read of parts of several volumes by one request, 1 to BYWASH_VOLUME_PIECES_MAX (else BYWASH_ERROR_PIECES). They go
/// to `to`, one behind the other; that memory is the library's as with bywash_queue_read().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_queue_read_many(
    queue: bywash_queue,
    ranges: *const bywash_range,
    count: usize,
    to: *mut u8,
    user_data: u64,
) -> c_int {
    let read = || {
        // SAFETY: the caller's array, or null.
        let given = unsafe { pieces_of(ranges, count) }?;
        let sum = self::queue(queue)?.with(|queue| Ok(sum_of(queue, given)?))?;
        // SAFETY: the caller's memory, or null.
        let place = NonNull::from(&mut *unsafe { to_fill(to, sum) }?).cast();
        let ranges: Vec<Range> = given
            .iter()
            .map(|range| {
                let volume = VolumeId::of_word(range.volume);
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

/// Submits a write to parts of several volumes by one request, as bywash_queue_read_many(), of what is at `from`, one behind the
/// other, and copied now. `durable` as in bywash_queue_write().
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
        // SAFETY: the caller's array, or null.
        let given = unsafe { pieces_of(ranges, count) }?;
        let sum = self::queue(queue)?.with(|queue| Ok(sum_of(queue, given)?))?;
        // SAFETY: the caller's bytes, or null.
        let mut rest = unsafe { to_copy(from, sum) }?;
        let mut pieces = Vec::with_capacity(count);
        for range in given {
            let (bytes, others) = rest.split_at(range.length);
            pieces.push((VolumeId::of_word(range.volume), range.offset, bytes));
            rest = others;
        }
        submit(queue, user_data, |queue, number| queue.write_many(&pieces, durable != 0, number))
    };
    answer(write())
}
