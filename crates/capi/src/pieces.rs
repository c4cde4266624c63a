//! Reads and writes of several volumes by one request, by calls that wait.

use crate::bytes::{to_copy, to_fill};
use crate::error::{Failure, answer};
use crate::storage::{bywash_storage, storage};
use crate::volume::{VOLUMES, bywash_volume};
use ::bywash_client::{Error, ReadPiece, Volume, WritePiece};
use std::ffi::{CStr, c_int};

/// Most pieces of a request to volumes.
pub const BYWASH_VOLUME_PIECES_MAX: usize = 32;

/// A part of a volume that is read.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct bywash_read_piece {
    /// Of which volume.
    pub volume: bywash_volume,
    /// From which byte on.
    pub offset: u64,
    /// Where it goes.
    pub to: *mut u8,
    /// How many bytes.
    pub length: usize,
}

/// A part of a volume that is written.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct bywash_write_piece {
    /// Of which volume.
    pub volume: bywash_volume,
    /// From which byte on.
    pub offset: u64,
    /// What is written.
    pub from: *const u8,
    /// How many bytes.
    pub length: usize,
}

/// As many as there may be, at a place that is not null.
///
/// # Safety
/// `pieces` is null, or leads to so many.
pub(crate) unsafe fn pieces_of<'a, P>(pieces: *const P, count: usize) -> Result<&'a [P], Failure> {
    const NULL: &CStr = c"the pointer to the pieces is null";
    if !(1..=BYWASH_VOLUME_PIECES_MAX).contains(&count) {
        return Err(Error::Pieces { asked: count, most: BYWASH_VOLUME_PIECES_MAX }.into());
    }
    if pieces.is_null() {
        return Err(Failure::null(NULL));
    }
    // SAFETY: not null; the rest is what the caller promises.
    Ok(unsafe { std::slice::from_raw_parts(pieces, count) })
}

fn opened(volume: bywash_volume) -> Result<Volume, Failure> {
    VOLUMES.look(volume, |volume| volume.clone())
}

/// Reads parts of several volumes of a connection by one request, 1 to BYWASH_VOLUME_PIECES_MAX (else
/// BYWASH_ERROR_PIECES), into memory that does not overlap. If something is wrong with one of them, nothing is read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_storage_read_many(
    storage: bywash_storage,
    pieces: *const bywash_read_piece,
    count: usize,
) -> c_int {
    let read = || {
        // SAFETY: the caller's array, or null.
        let given = unsafe { pieces_of(pieces, count) }?;
        let volumes = given.iter().map(|piece| opened(piece.volume)).collect::<Result<Vec<_>, _>>()?;
        let mut pieces = Vec::with_capacity(count);
        for (piece, volume) in given.iter().zip(&volumes) {
            // SAFETY: the caller's memory, which does not overlap, or null.
            let to = unsafe { to_fill(piece.to, piece.length) }?;
            pieces.push(ReadPiece { volume, offset: piece.offset, to });
        }
        Ok(self::storage(storage)?.read_many(&mut pieces)?)
    };
    answer(read())
}

/// Writes to parts of several volumes by one request, as bywash_storage_read_many(). If something is wrong with one of them,
/// nothing is written. With `durable` other than 0 all of it is durable when this returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_storage_write_many(
    storage: bywash_storage,
    pieces: *const bywash_write_piece,
    count: usize,
    durable: c_int,
) -> c_int {
    let write = || {
        // SAFETY: the caller's array, or null.
        let given = unsafe { pieces_of(pieces, count) }?;
        let volumes = given.iter().map(|piece| opened(piece.volume)).collect::<Result<Vec<_>, _>>()?;
        let mut pieces = Vec::with_capacity(count);
        for (piece, volume) in given.iter().zip(&volumes) {
            // SAFETY: the caller's bytes, or null.
            let from = unsafe { to_copy(piece.from, piece.length) }?;
            pieces.push(WritePiece { volume, offset: piece.offset, from });
        }
        let client = self::storage(storage)?;
        match durable {
            0 => Ok(client.write_many(&pieces)?),
            _ => Ok(client.write_many_durable(&pieces)?),
        }
    };
    answer(write())
}
