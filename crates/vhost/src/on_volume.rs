//! A volume of a device server as a medium.
//!
//! ```text
//!                        ┌─ mapped:  copied ──► the volume's memory
//!   the guest's memory ◄─┤
//!                        └─ channel: copied ──► a buffer of the arena ◄── the queue ──► the device server
//! ```
//!
//! The disk is a client like any other: what it may do with the volume is held against every request by the server, or by
//! the processor where the volume is mapped. A request's bytes are copied once: between the guest's memory, which the server
//! has not, and what the guest has not. Invariant: a request is in `requests` from when the queue has taken it until it was
//! reaped, with what keeps the guest's memory mapped if that is still needed.

#![expect(
    unsafe_code,
    reason = "copies between the guest's memory and what a client has, both of which others may write"
)]

use crate::error::Error;
use crate::medium::{Done, Failure, Full, Geometry, Medium, Operation, Owner, Piece, Request};
use bywash_client::{Access, Buffer, Completion, Error as Refused, NotSubmitted, Queue, Room, VolumeId};
use slab::Slab;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr;

/// Most bytes of a request, if the arena has so many.
const TRANSFER_MAX: usize = 4 << 20;
/// An arena that has no more than this in one piece is none for a disk.
const TRANSFER_MIN: usize = 64 << 10;
/// Most pieces of a request. (Linux makes that of it which is allowed; QEMU allows its own disks as many.)
const PIECES_MAX: usize = 126;
/// Bytes for which each piece can be used, of those that a request may have.
const PIECE_BYTES: usize = 32 << 10;
/// Most bytes of a request to discard or to write zeros: the server works on them bit by bit.
const RANGE_MAX: u64 = 1 << 30;
/// Bytes of a page of the devices' caches.
const PAGE: u32 = 4096;

/// A volume that a queue has opened, as a medium.
pub struct OnVolume {
    queue: Queue,
    volume: VolumeId,
    geometry: Geometry,
    requests: Slab<UnderWay>,
    /// Requests that the queue has not taken and never will, until they are given out.
    failed: Vec<u64>,
}

/// A request that the queue has.
struct UnderWay {
    token: u64,
    /// Where what is read goes; nothing for other requests.
    pieces: Vec<Piece>,
    /// Keeps the pieces mapped; nothing where the bytes were copied already.
    _memory: Option<Owner>,
}

// SAFETY: the pieces are addresses that `_memory` keeps mapped, in whichever thread; all else may go to another one.
unsafe impl Send for UnderWay {}

impl OnVolume {
    /// Opens the volume `name`, to be read, or to be read and written.
    ///
    /// # Errors
    /// [`Error::Unfit`] with what the server says, or why the volume cannot be a disk.
    pub fn open(mut queue: Queue, name: &str, access: Access) -> Result<OnVolume, Error> {
        let unfit = |error: Refused| Error::Unfit(error.to_string());
        if access == Access::Write {
            return Err(Error::Unfit(format!("{name} is to be written only; open it to be read as well")));
        }
        let volume = queue.open(name, access).map_err(unfit)?;
        let (bytes, block) = (queue.len(volume).map_err(unfit)?, queue.block(volume).map_err(unfit)?);
        let mut transfer_max = TRANSFER_MAX;
        while let Err(error) = queue.alloc(transfer_max) {
            transfer_max /= 2;
            if transfer_max < TRANSFER_MIN {
                return Err(unfit(error));
            }
        }
        let geometry = Geometry {
            bytes,
            block,
            optimal: block.max(PAGE),
            transfer_max: transfer_max as u64,
            range_max: RANGE_MAX - RANGE_MAX % u64::from(block),
            pieces_max: (transfer_max / PIECE_BYTES).min(PIECES_MAX),
            read_only: access == Access::Read,
        };
        Ok(OnVolume { queue, volume, geometry, requests: Slab::new(), failed: Vec::new() })
    }

    /// Hands a request to the queue, which is to know it by `number`.
    fn hand_over(&mut self, request: &Request<'_>, is_mapped: bool, number: u64) -> Result<(), NotSubmitted> {
        let Request { operation, offset, length, pieces, .. } = *request;
        let (queue, volume) = (&mut self.queue, self.volume);
        let places = pieces.iter().map(|piece| (piece.base(), piece.bytes()));
        match operation {
            // SAFETY: the pieces are mapped while the request is submitted, and no reference leads there.
            Operation::Read if is_mapped => unsafe { queue.read_to_pieces(volume, offset, places, number) },
            Operation::Write | Operation::WriteDurable if is_mapped => {
                // SAFETY: as above. What is durable is what the medium is: its memory.
                unsafe { queue.write_from_pieces(volume, offset, places, number) }
            }
            Operation::Read => {
                let buffer = queue.alloc(length as usize)?;
                queue.read(volume, offset, buffer, number)
            }
            Operation::Write | Operation::WriteDurable => {
                let buffer = queue.alloc(length as usize)?;
                copy(&buffer, pieces, Towards::Arena);
                queue.write(volume, offset, buffer, operation == Operation::WriteDurable, number)
            }
            Operation::Flush => queue.flush(volume, number),
            Operation::Discard => queue.discard(volume, offset, length, number),
            Operation::WriteZeroes => queue.write_zeroes(volume, offset, length, false, number),
        }
    }
}

impl Medium for OnVolume {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn submit(&mut self, request: Request<'_>) -> Result<(), Full> {
        let is_mapped = self.queue.is_mapped(self.volume);
        let is_read_later = request.operation == Operation::Read && !is_mapped;
        let pieces = if is_read_later { request.pieces.to_vec() } else { Vec::new() };
        let _memory = is_read_later.then(|| request.memory.clone());
        let number = self.requests.insert(UnderWay { token: request.token, pieces, _memory });
        let Err(refused) = self.hand_over(&request, is_mapped, number as u64) else { return Ok(()) };
        self.requests.remove(number);
        if matches!(refused.error, Refused::Full { .. } | Refused::UsedUp { .. }) {
            return Err(Full);
        }
        self.failed.push(request.token);
        Ok(())
    }

    fn reap(&mut self, done: &mut dyn FnMut(Done)) {
        self.failed.drain(..).for_each(|token| done(Done { token, result: Err(Failure) }));
        while self.queue.under_way() > 0 {
            // A server that is gone is told of by the requests that were under way, each of them.
            let Ok(Some(completion)) = self.queue.try_reap() else { return };
            let Completion { user_data, outcome, room } = completion;
            let Some(UnderWay { token, pieces, .. }) = self.requests.try_remove(user_data as usize) else {
                continue;
            };
            if let (Ok(()), Some(Room::Arena(buffer))) = (&outcome, &room) {
                copy(buffer, &pieces, Towards::Guest);
            }
            done(Done { token, result: outcome.map_err(|_| Failure) });
        }
    }

    fn arm(&mut self) -> bool {
        // What went wrong is found out by reaping.
        !self.failed.is_empty() || self.queue.arm().unwrap_or(true)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.queue.as_fd())
    }

    fn under_way(&self) -> usize {
        self.queue.under_way() + self.failed.len()
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Towards {
    Arena,
    Guest,
}

/// Copies between a buffer and pieces, as much as both have.
fn copy(buffer: &Buffer, pieces: &[Piece], towards: Towards) {
    let mut at = 0;
    for piece in pieces {
        let bytes = piece.bytes().min(buffer.len() - at);
        let there = buffer.as_ptr().wrapping_add(at);
        // SAFETY: the buffer has as many bytes from `at` on; the piece is mapped, as its request's memory is kept; one is
        // of the arena and the other of the guest. Either may be written meanwhile by whoever it is shared with, so that
        // no reference leads there, and whatever comes out is what they get.
        unsafe {
            match towards {
                Towards::Arena => ptr::copy_nonoverlapping(piece.base().cast_const(), there, bytes),
                Towards::Guest => ptr::copy_nonoverlapping(there.cast_const(), piece.base(), bytes),
            }
        }
        at += bytes;
    }
}
