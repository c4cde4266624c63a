//! Received messages: receive, map, unmap, copy out, free.
//!
//! A message is a list of pieces, each a [`Shipment`]: a ship that failed may have made a container of this
//! end's out of a small piece. What is mapped is kept beside the pieces until it is unmapped or the message
//! goes.

use crate::bytes::{BRIEF_BYTES, answer_copied, to_fill};
use crate::container::{NULL_RANGE, bywash_memory_range};
use crate::error::bywash_error::BYWASH_ERROR_ARGUMENT;
use crate::error::{Failure, answer};
use crate::handles::{Table, bywash_message, bywash_path, consume, consume_live, put};
use crate::path::{bywash_credentials, limit, path};
use ::bywash_container::{Credentials, MESSAGE_PIECES_MAX, Mapped, Message, Shipment};
use std::ffi::{CStr, c_int};
use std::ptr;

/// Greatest number of pieces in a message.
pub const BYWASH_PIECES_MAX: usize = 64;
const _: () = assert!(BYWASH_PIECES_MAX == MESSAGE_PIECES_MAX);

pub(crate) static MESSAGES: Table<StoredMessage> = Table::new();

/// A message that C has.
pub(crate) struct StoredMessage {
    /// Before the pieces, so that it is dropped first.
    mapped: Option<Mapped<'static>>,
    mapped_rest: Vec<Option<Mapped<'static>>>,
    pub(crate) origin: Credentials,
    pub(crate) first: Shipment,
    pub(crate) rest: Vec<Shipment>,
}

const NULL_LENGTH: &CStr = c"the pointer for the length is null";
const NULL_BYTES: &CStr = c"the pointer for the bytes is null";

impl StoredMessage {
    pub(crate) fn new(origin: Credentials, first: Shipment, rest: Vec<Shipment>) -> StoredMessage {
        StoredMessage { mapped: None, mapped_rest: Vec::new(), origin, first, rest }
    }

    /// None of no pieces.
    pub(crate) fn from_shipments(
        origin: Credentials,
        pieces: impl IntoIterator<Item = Shipment>,
    ) -> Option<StoredMessage> {
        let mut pieces = pieces.into_iter();
        let first = pieces.next()?;
        Some(StoredMessage::new(origin, first, pieces.collect()))
    }

    fn pieces(&self) -> impl Iterator<Item = &Shipment> {
        std::iter::once(&self.first).chain(&self.rest)
    }

    fn length(&self) -> usize {
        self.pieces().map(Shipment::len).sum()
    }

    fn no_piece(&self, number: usize) -> Failure {
        let there = 1 + self.rest.len();
        Failure::new(
            BYWASH_ERROR_ARGUMENT,
            format!("piece {number} of a message of {there}; they begin at 0"),
        )
    }

    fn piece(&self, number: usize) -> Result<&Shipment, Failure> {
        self.pieces().nth(number).ok_or_else(|| self.no_piece(number))
    }

    /// Mapping of a piece: none, for reading, or for writing.
    fn mapped_of(&self, number: usize) -> Option<&Mapped<'static>> {
        match number {
            0 => self.mapped.as_ref(),
            _ => self.mapped_rest.get(number - 1)?.as_ref(),
        }
    }

    /// Returns the entry of a piece's mapping; the piece must exist.
    fn mapped(&mut self, number: usize) -> &mut Option<Mapped<'static>> {
        if number == 0 {
            return &mut self.mapped;
        }
        if self.mapped_rest.len() < number {
            self.mapped_rest.resize_with(number, || None);
        }
        &mut self.mapped_rest[number - 1]
    }

    /// Makes a piece visible; answers where and how long it is.
    fn map(&mut self, number: usize) -> Result<(*const u8, usize), Failure> {
        if let Some(known) = self.mapped_of(number) {
            return Ok((known.as_ptr(), known.len()));
        }
        let mapped = match self.piece(number)? {
            Shipment::Own(container) => return Ok((container.as_ptr(), container.len())),
            Shipment::Received(received) => received.map()?,
        };
        // SAFETY: what it borrows from belongs to this value, which does not move while it is in its table
        // and drops what is mapped first. When it is taken out nobody looks at what is mapped any more.
        let mapped = unsafe { std::mem::transmute::<Mapped<'_>, Mapped<'static>>(mapped) };
        let place = (mapped.as_ptr(), mapped.len());
        *self.mapped(number) = Some(mapped);
        Ok(place)
    }

    /// As [`StoredMessage::map`], to be written.
    fn map_to_write(&mut self, number: usize) -> Result<(*mut u8, usize), Failure> {
        self.piece(number)?;
        *self.mapped(number) = None;
        let piece = if number == 0 { &mut self.first } else { &mut self.rest[number - 1] };
        let bytes = match piece {
            Shipment::Own(container) => &mut **container,
            Shipment::Received(received) => received.map_mut()?,
        };
        Ok((bytes.as_mut_ptr(), bytes.len()))
    }
}

fn copy_piece(piece: &Shipment, to: &mut [u8]) -> Result<usize, Failure> {
    match piece {
        Shipment::Received(received) => Ok(received.copy_to(to)?),
        Shipment::Own(container) => {
            let bytes = to.len().min(container.len());
            to[..bytes].copy_from_slice(&container[..bytes]);
            Ok(bytes)
        }
    }
}

fn copy_out(
    message: bywash_message,
    size: usize,
    copy: impl FnOnce(&mut StoredMessage) -> Result<usize, Failure>,
) -> Result<usize, Failure> {
    if size <= BRIEF_BYTES { MESSAGES.try_look(message, copy) } else { MESSAGES.with(message, copy) }
}

impl From<Message> for StoredMessage {
    fn from(message: Message) -> StoredMessage {
        let origin = message.origin();
        let mut pieces = message.into_pieces().map(Shipment::Received);
        let Some(first) = pieces.next() else { unreachable!("a message has a first container") };
        StoredMessage::new(origin, first, pieces.collect())
    }
}

/// Receives the next message, and waits up to `timeout_ns` nanoseconds for it (negative: for ever; 0: not at
/// all). bywash_message_free() returns the message to the peer, bywash_forward() ships it on.
///
/// BYWASH_ERROR_TIMED_OUT: no message arrived. BYWASH_ERROR_CLOSED: no message will arrive any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_receive(
    path: bywash_path,
    timeout_ns: i64,
    message: *mut bywash_message,
) -> c_int {
    if message.is_null() {
        return answer(Err(Failure::null(c"the pointer for the message is null")));
    }
    // SAFETY: not null, so valid by the header's rule, and the variable is the caller's.
    answer(receive(path, timeout_ns).and_then(|received| unsafe { put(message, received, c"") }))
}

fn receive(handle: bywash_path, timeout_ns: i64) -> Result<bywash_message, Failure> {
    let path = path(handle)?;
    let message = match limit(timeout_ns) {
        None => path.receive()?,
        Some(limit) if limit.is_zero() => path.try_receive()?.ok_or(Failure::NOT_NOW)?,
        Some(limit) => path.receive_within(limit)?,
    };
    MESSAGES.insert(message.into())
}

/// Returns the length of a message, in bytes: the sum of all pieces.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_message_length(message: bywash_message, length: *mut usize) -> c_int {
    let found = MESSAGES.look(message, |held| held.length());
    // SAFETY: the header's rule: a pointer is null or valid, here to a variable of the caller.
    answer(found.and_then(|found| unsafe { put(length, found, NULL_LENGTH) }))
}

/// Returns the credentials of the process that shipped a message to this one, as the kernel states them. That
/// may be another process than the one that filled the message.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_message_origin(
    message: bywash_message,
    origin: *mut bywash_credentials,
) -> c_int {
    let found = MESSAGES.look(message, |held| held.origin.into());
    // SAFETY: the header's rule: a pointer is null or valid, here to a variable of the caller.
    answer(found.and_then(|found| unsafe { put(origin, found, c"the pointer for the origin is null") }))
}

/// Returns descriptor, offset and length of the memory of piece `piece` of a message, for a process that maps it by
/// itself; see bywash_container_memory(). On a checked path the shipper may write there at any time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_message_memory(
    message: bywash_message,
    piece: usize,
    range: *mut bywash_memory_range,
) -> c_int {
    let found = MESSAGES.try_look(message, |held| Ok(held.piece(piece)?.memory()?.into()));
    // SAFETY: the header's rule: a pointer is null or valid, here to a variable of the caller.
    answer(found.and_then(|found: bywash_memory_range| unsafe { put(range, found, NULL_RANGE) }))
}

/// Returns the number of pieces of a message; pieces are numbered from 0. Most messages have one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_message_pieces(message: bywash_message, pieces: *mut usize) -> c_int {
    let found = MESSAGES.look(message, |held| 1 + held.rest.len());
    // SAFETY: the header's rule: a pointer is null or valid, here to a variable of the caller.
    answer(found.and_then(|found| unsafe { put(pieces, found, c"the pointer for the number is null") }))
}

/// Returns the length of a piece, in bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_piece_length(
    message: bywash_message,
    piece: usize,
    length: *mut usize,
) -> c_int {
    let found = MESSAGES.look(message, |held| held.piece(piece).map(Shipment::len));
    // SAFETY: the header's rule: a pointer is null or valid, here to a variable of the caller.
    answer(found.and_then(|found| unsafe { put(length, found?, NULL_LENGTH) }))
}

/// Maps a piece without copying it, and returns the address and the length of its bytes. The program may read
/// the bytes until bywash_unmap(), bywash_message_free() or a ship of the message. Mapping a piece twice
/// returns the same address. `length` may be null.
///
/// BYWASH_ERROR_NOT_MAPPED, and `bytes` becomes null: on a checked path, where the peer could change the
/// bytes (copy them out instead), and on a forward path. Pieces of up to 120 bytes are sent in the ring and
/// can be mapped on every path.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_map(
    message: bywash_message,
    piece: usize,
    bytes: *mut *const u8,
    length: *mut usize,
) -> c_int {
    if bytes.is_null() {
        return answer(Err(Failure::null(NULL_BYTES)));
    }
    let found = MESSAGES.try_look(message, |held| held.map(piece));
    let (at, count) = found.as_ref().map_or((ptr::null(), 0), |found| *found);
    // SAFETY: valid by the header's rule for pointers; `length` is checked for null.
    unsafe {
        bytes.write(at);
        if !length.is_null() {
            length.write(count);
        }
    }
    answer(found.map(drop))
}

/// Like bywash_map(), but the program may change the bytes in place before it ships the message back or on.
/// Both ends must have chosen BYWASH_CLASS_TRUSTED_TO_WRITE (else BYWASH_ERROR_NOT_MAPPED), except for pieces
/// of up to 120 bytes, which are sent as copies.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_map_to_write(
    message: bywash_message,
    piece: usize,
    bytes: *mut *mut u8,
    length: *mut usize,
) -> c_int {
    if bytes.is_null() {
        return answer(Err(Failure::null(NULL_BYTES)));
    }
    let found = MESSAGES.try_look(message, |held| held.map_to_write(piece));
    let (at, count) = found.as_ref().map_or((ptr::null_mut(), 0), |found| *found);
    // SAFETY: valid by the header's rule for pointers; `length` is checked for null.
    unsafe {
        bytes.write(at);
        if !length.is_null() {
            length.write(count);
        }
    }
    answer(found.map(drop))
}

/// Ends the mapping of a piece: the program must not use the bytes any more. A piece that is not mapped is
/// ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_unmap(message: bywash_message, piece: usize) -> c_int {
    answer(MESSAGES.try_look(message, |held| {
        held.piece(piece)?;
        *held.mapped(piece) = None;
        Ok(())
    }))
}

/// Copies a message, piece after piece, as much as fits into `size` bytes, and returns the number of bytes in
/// `copied` (which may be null). The peer cannot change the copy after the program has checked it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_copy_to(
    message: bywash_message,
    to: *mut u8,
    size: usize,
    copied: *mut usize,
) -> c_int {
    // SAFETY: the header's rule: a pointer is null or valid, here to a handle of a buffer.
    let done = unsafe { to_fill(to, size) }.and_then(|to| {
        copy_out(message, size, |held| {
            held.pieces().try_fold(0, |done, piece| Ok(done + copy_piece(piece, &mut to[done..])?))
        })
    });
    // SAFETY: the header's rule: a pointer is null or valid, here to a variable of the caller.
    unsafe { answer_copied(done, copied) }
}

/// Like bywash_copy_to(), but for one piece.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_piece_copy_to(
    message: bywash_message,
    piece: usize,
    to: *mut u8,
    size: usize,
    copied: *mut usize,
) -> c_int {
    // SAFETY: the header's rule: a pointer is null or valid, here to a handle of a buffer.
    let done = unsafe { to_fill(to, size) }
        .and_then(|to| copy_out(message, size, |held| copy_piece(held.piece(piece)?, to)));
    // SAFETY: the header's rule: a pointer is null or valid, here to a variable of the caller.
    unsafe { answer_copied(done, copied) }
}

/// Splits a message: each piece becomes a message of its own in `pieces`, which the program frees, keeps or
/// ships on. `most` is the capacity of `pieces` (BYWASH_PIECES_MAX is always enough); `count` becomes the
/// number of pieces. The handle of the whole message becomes zero; on failure it remains valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_message_split(
    message: *mut bywash_message,
    pieces: *mut bywash_message,
    most: usize,
    count: *mut usize,
) -> c_int {
    // SAFETY: the header's rule: each pointer is null or valid, here to a variable of the caller.
    answer(unsafe { split(message, pieces, most, count) })
}

/// # Safety
/// As [`bywash_message_split`] says, or null.
unsafe fn split(
    message: *mut bywash_message,
    pieces: *mut bywash_message,
    most: usize,
    count: *mut usize,
) -> Result<(), Failure> {
    if message.is_null() || pieces.is_null() || count.is_null() {
        return Err(Failure::null(c"a pointer is null; all three are needed"));
    }
    // SAFETY: not null, so valid by the header's rule, and the variable is the caller's.
    let there = MESSAGES.look(unsafe { message.read() }, |held| 1 + held.rest.len())?;
    if there > most {
        let text = format!("a message of {there} pieces, and room for {most}; make room for all");
        return Err(Failure::new(BYWASH_ERROR_ARGUMENT, text));
    }
    // SAFETY: the header's rule: the caller keeps its pointers valid until the call returns.
    let held = unsafe { consume_live(&MESSAGES, message) }?;
    let origin = held.origin;
    let StoredMessage { first, rest, .. } = held;
    for (number, piece) in std::iter::once(first).chain(rest).enumerate() {
        let handle = MESSAGES.insert(StoredMessage::new(origin, piece, Vec::new()))?;
        // SAFETY: `number` is less than `most`, for which the caller has room.
        unsafe { pieces.add(number).write(handle) };
    }
    // SAFETY: not null, so valid by the header's rule, and the variable is the caller's.
    unsafe { count.write(there) };
    Ok(())
}

/// Frees a message, which returns its containers to their owner, and zeroes the handle. A zero handle is
/// ignored. Free messages soon, since the peer cannot reuse containers that this end holds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_message_free(message: *mut bywash_message) -> c_int {
    // SAFETY: the header's rule: a pointer is null or valid, here to a variable of the caller.
    answer(unsafe { consume(&MESSAGES, message) }.map(drop))
}
