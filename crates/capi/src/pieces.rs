//! Reads and writes of several volumes by one request, by calls that wait.

use crate::bytes::{to_copy, to_fill};
use crate::client::{bywash_client, client};
use crate::error::{Failure, answer};
use crate::volume::{VOLUMES, bywash_volume};
use ::bywash_client::{Error, ReadPiece, Volume, WritePiece};
use std::ffi::{CStr, c_int};

/// Greatest number of pieces in a request to volumes.
pub const BYWASH_VOLUME_PIECES_MAX: usize = 32;

/// Range of a volume to be read, and memory for the bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct bywash_read_piece {
    /// Volume of the range.
    pub volume: bywash_volume,
    /// Offset of the first byte in the volume.
    pub offset: u64,
    /// Memory for the bytes that are read.
    pub to: *mut u8,
    /// Number of bytes.
    pub length: usize,
}

/// Range of a volume to be written, and the bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct bywash_write_piece {
    /// Volume of the range.
    pub volume: bywash_volume,
    /// Offset of the first byte in the volume.
    pub offset: u64,
    /// Bytes to be written.
    pub from: *const u8,
    /// Number of bytes.
    pub length: usize,
}

/// As many as there may be, at a place that is not null.
///
/// # Safety
/// `pieces` is null, or leads to so many.
pub(crate) unsafe fn pieces_of<'a, P>(pieces: *const P, count: usize) -> Result<&'a [P], Failure> {
    const NULL: &CStr = c"the pointer to the pieces is null";
    if !(1..=BYWASH_VOLUME_PIECES_MAX).contains(&count) {
        return Err(Error::PieceCount { asked: count, most: BYWASH_VOLUME_PIECES_MAX }.into());
    }
    if pieces.is_null() {
        return Err(Failure::null(NULL));
    }
    // SAFETY: not null, and the caller promises that it is valid then.
    Ok(unsafe { std::slice::from_raw_parts(pieces, count) })
}

fn opened(volume: bywash_volume) -> Result<Volume, Failure> {
    VOLUMES.look(volume, |volume| volume.clone())
}

/// Reads ranges of several volumes of a connection by one request: 1 to BYWASH_VOLUME_PIECES_MAX pieces (else
/// BYWASH_ERROR_PIECES), into memory that does not overlap. If one piece is invalid nothing is read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_client_read_many(
    client: bywash_client,
    pieces: *const bywash_read_piece,
    count: usize,
) -> c_int {
    let read = || {
        // SAFETY: the header's rule: a pointer is null or valid, here to an array of `count` elements.
        let given = unsafe { pieces_of(pieces, count) }?;
        let volumes = given.iter().map(|piece| opened(piece.volume)).collect::<Result<Vec<_>, _>>()?;
        let mut pieces = Vec::with_capacity(count);
        for (piece, volume) in given.iter().zip(&volumes) {
            // SAFETY: the caller's memory, which does not overlap, or null.
            let to = unsafe { to_fill(piece.to, piece.length) }?;
            pieces.push(ReadPiece { volume, offset: piece.offset, to });
        }
        Ok(self::client(client)?.read_many(&mut pieces)?)
    };
    answer(read())
}

/// Writes ranges of several volumes by one request; see bywash_client_read_many(). If one piece is invalid
/// nothing is written. With `durable` other than 0 all bytes are durable when the call returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_client_write_many(
    client: bywash_client,
    pieces: *const bywash_write_piece,
    count: usize,
    durable: c_int,
) -> c_int {
    let write = || {
        // SAFETY: the header's rule: a pointer is null or valid, here to an array of `count` elements.
        let given = unsafe { pieces_of(pieces, count) }?;
        let volumes = given.iter().map(|piece| opened(piece.volume)).collect::<Result<Vec<_>, _>>()?;
        let mut pieces = Vec::with_capacity(count);
        for (piece, volume) in given.iter().zip(&volumes) {
            // SAFETY: the header's rule: a pointer is null or valid, here to as many bytes as the length
            // says.
            let from = unsafe { to_copy(piece.from, piece.length) }?;
            pieces.push(WritePiece { volume, offset: piece.offset, from });
        }
        let client = self::client(client)?;
        match durable {
            0 => Ok(client.write_many(&pieces)?),
            _ => Ok(client.write_many_durable(&pieces)?),
        }
    };
    answer(write())
}
