//! A volume of a device server as a medium.
//!
//! ```text
//!                        ┌─ mapped:  copied ──► the volume's memory
//!   the guest's memory ◄─┤
//!                        └─ channel: copied ──► a buffer of the arena ◄── the queue ──► the device server
//! ```
//!
//! The disk is a client like any other: its right to the volume is enforced on every request by the server
//! or, where the volume is mapped, by the processor. A request's bytes are copied once: between the guest's
//! memory, to which the device server has no access, and memory to which the guest has none. Invariant: a
//! request is in `requests` from its submission to the queue until it is reaped, together with the owner of
//! the guest's memory if that is still needed.

#![expect(
    unsafe_code,
    reason = "copies between the guest's memory and what a client has, both of which others may write"
)]

use crate::error::Error;
use crate::medium::{
    Completion, Failure, Full, Geometry, GuestSegment, MappingOwner, Operation, Request, Storage,
};
use bywash_client::{
    Access, Buffer, Completion as VolumeCompletion, Error as Refused, Queue, RequestMemory, SubmitError,
    VolumeId,
};
use slab::Slab;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr;

/// Greatest size of a request, in bytes, if the arena can allocate so much at once.
const TRANSFER_MAX: usize = 4 << 20;
/// Least size of a block, in bytes, that the arena must be able to allocate for a disk.
const TRANSFER_MIN: usize = 64 << 10;
/// Greatest number of pieces of a request. QEMU allows its own disks the same number, and Linux adjusts to
/// it.
const PIECES_MAX: usize = 126;
/// Bytes of the greatest request for each piece that a request may have: a smaller arena allows fewer pieces.
const PIECE_BYTES: usize = 32 << 10;
/// Greatest size of a request to discard or to write zeros, in bytes, since the server works on them in small
/// steps.
const RANGE_MAX: u64 = 1 << 30;
/// Size of a page of the devices' page cache, in bytes.
const PAGE: u32 = 4096;

/// A volume that a queue has opened, as a medium.
pub struct OnVolume {
    queue: Queue,
    volume: VolumeId,
    geometry: Geometry,
    requests: Slab<InFlight>,
    /// Tokens of requests that the queue refused for good, until they are reported as failed.
    failed: Vec<u64>,
}

/// A request in flight in the queue.
struct InFlight {
    token: u64,
    /// Destination of the bytes read over the channel; empty for other requests.
    pieces: Vec<GuestSegment>,
    /// Owner of the pieces' mapping; `None` where the bytes were already copied.
    _memory: Option<MappingOwner>,
}

// SAFETY: the pieces are addresses, which `_memory` keeps mapped on whichever thread they are used; the other
// fields are `Send` themselves.
unsafe impl Send for InFlight {}

impl OnVolume {
    /// Opens the volume `name`, for reading, or for reading and writing.
    ///
    /// # Errors
    /// [`Error::Unfit`] if `access` is write-only, if the server refuses to open the volume, or if the arena
    /// is too small.
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

    /// Submits a request to the queue with `number` as its user data.
    fn hand_over(&mut self, request: &Request<'_>, is_mapped: bool, number: u64) -> Result<(), SubmitError> {
        let Request { operation, offset, length, pieces, .. } = *request;
        let (queue, volume) = (&mut self.queue, self.volume);
        let places = pieces.iter().map(|piece| (piece.base(), piece.bytes()));
        match operation {
            // SAFETY: the request's owner keeps the pieces mapped during this call, at other addresses than a
            // volume, and no reference points into guest memory.
            Operation::Read if is_mapped => unsafe { queue.read_to_pieces(volume, offset, places, number) },
            Operation::Write | Operation::WriteDurable if is_mapped => {
                // SAFETY: the owner keeps the pieces mapped during this call, at other addresses than a
                // volume. A mapped volume is the server's memory, so its writes need no flush.
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

impl Storage for OnVolume {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn submit(&mut self, request: Request<'_>) -> Result<(), Full> {
        let is_mapped = self.queue.is_mapped(self.volume);
        let is_read_later = request.operation == Operation::Read && !is_mapped;
        let pieces = if is_read_later { request.pieces.to_vec() } else { Vec::new() };
        let _memory = is_read_later.then(|| request.memory.clone());
        let number = self.requests.insert(InFlight { token: request.token, pieces, _memory });
        let Err(refused) = self.hand_over(&request, is_mapped, number as u64) else { return Ok(()) };
        self.requests.remove(number);
        if matches!(refused.error, Refused::Full { .. } | Refused::ArenaFull { .. }) {
            return Err(Full);
        }
        self.failed.push(request.token);
        Ok(())
    }

    fn reap(&mut self, done: &mut dyn FnMut(Completion)) {
        self.failed.drain(..).for_each(|token| done(Completion { token, result: Err(Failure) }));
        while self.queue.in_flight() > 0 {
            // If the server has died, each request that was in flight reports that when it is reaped.
            let Ok(Some(completion)) = self.queue.try_reap() else { return };
            let VolumeCompletion { user_data, outcome, memory: room } = completion;
            let Some(InFlight { token, pieces, .. }) = self.requests.try_remove(user_data as usize) else {
                continue;
            };
            if let (Ok(()), Some(RequestMemory::Arena(buffer))) = (&outcome, &room) {
                copy(buffer, &pieces, Towards::Guest);
            }
            done(Completion { token, result: outcome.map_err(|_| Failure) });
        }
    }

    fn arm(&mut self) -> bool {
        // An error means that the queue has ended, which reaping finds out.
        !self.failed.is_empty() || self.queue.arm().unwrap_or(true)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.queue.as_fd())
    }

    fn in_flight(&self) -> usize {
        self.queue.in_flight() + self.failed.len()
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Towards {
    Arena,
    Guest,
}

/// Copies bytes between a buffer and pieces, as many as both have.
fn copy(buffer: &Buffer, pieces: &[GuestSegment], towards: Towards) {
    let mut at = 0;
    for piece in pieces {
        let bytes = piece.bytes().min(buffer.len() - at);
        let there = buffer.as_ptr().wrapping_add(at);
        // SAFETY: the buffer has `bytes` bytes from `at` on. The request's owner keeps the piece mapped. The
        // arena and the guest's memory do not overlap. The server or the guest may write either meanwhile, so
        // no reference points there, and the copy may mix old and new bytes.
        unsafe {
            match towards {
                Towards::Arena => ptr::copy_nonoverlapping(piece.base().cast_const(), there, bytes),
                Towards::Guest => ptr::copy_nonoverlapping(there.cast_const(), piece.base(), bytes),
            }
        }
        at += bytes;
    }
}
