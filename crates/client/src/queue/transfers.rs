//! Transfers: requests that are prepared once, with their volume and their memory, and submitted many times.
//!
//! ```text
//!     prepare: volume, right, length, pages of the buffer ─► transfer
//!                                                               │
//!     submit:  offset, user data ──────────────────────────────►├─ direct:  command of the controller
//!                                                               ├─ channel: like any request
//!                                                               └─ mapped:  copied at once
//! ```
//!
//! A transfer of a direct volume takes a quarter of the instructions of another request, and up to twice those of the driver
//! alone; `bywash bench nvme` counts them. On other paths it is a request whose buffer needs not be passed each time.
//!
//! Invariant: the buffer of a transfer is in the transfer, unless the channel has it; hardware accesses it only while a request
//! by the transfer is in flight there. Called by programs, and by `reap` and `direct`, which complete requests by transfers.

use super::direct::is_last;
use super::memory::{Buffer, KeptMemory, RequestMemory, SubmitError};
use super::ready::ReadyKind;
use super::{Queue, VolumeId};
use crate::error::Error;
use crate::request::RequestHeader;
use crate::session::Right;
use bywash_protocol::layout::Opcode;
use std::fmt;

/// Bit of the token of a request by a transfer; the others have the transfer's index.
const TRANSFER: u64 = 1 << 63;

/// Returns the index of the transfer to whose request a token belongs.
#[inline(always)]
pub(super) fn as_transfer(token: u64) -> Option<u32> {
    (token & TRANSFER != 0).then_some(token as u32)
}

/// Operation of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TransferKind {
    /// Reads from the volume into the buffer.
    Read,
    /// Writes the buffer to the volume. It is durable after a later [`Queue::flush`].
    Write,
}

/// Identifies a transfer of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TransferId {
    index: u32,
    /// Number of the transfer among all of the queue, so that the id does not fit one that was made later.
    tag: u32,
}

/// Transfer of a driver for the hardware behind a volume.
#[derive(Clone, Copy, Debug)]
struct Prepared {
    /// Index of the volume; [`NOWHERE`] if the transfer is not prepared for hardware.
    hardware: u32,
    transfer: Option<bywash_nvme::TransferId>,
    /// Greatest offset in the volume, in bytes.
    last: u64,
    /// Size of the volume's block less one, in bytes.
    block_mask: u64,
}

const NOWHERE: Prepared = Prepared { hardware: u32::MAX, transfer: None, last: 0, block_mask: 0 };

struct Transfer {
    tag: u32,
    /// True if a request by the transfer was submitted and not reaped. A request to mapped memory is carried out at once.
    is_in_flight: bool,
    prepared: Prepared,
    /// User data and offset of the last request.
    user_data: u64,
    offset: u64,
    volume: VolumeId,
    kind: TransferKind,
    bytes: u64,
    /// Memory of the transfer, unless the channel has it, or it was lost with a device that missed its timeout.
    buffer: Option<Buffer>,
}

/// Transfers of a queue.
#[derive(Default)]
pub(super) struct Transfers {
    all: Vec<Option<Transfer>>,
    /// Number of transfers that were ever made, modulo 2^32.
    made: u32,
}

impl Transfers {
    fn get(&self, transfer: TransferId) -> Option<&Transfer> {
        self.all.get(transfer.index as usize)?.as_ref().filter(|found| found.tag == transfer.tag)
    }

    #[inline(always)]
    fn get_mut(&mut self, transfer: TransferId) -> Option<&mut Transfer> {
        self.all.get_mut(transfer.index as usize)?.as_mut().filter(|found| found.tag == transfer.tag)
    }

    /// Notes that the request in flight by a transfer is being reaped, and returns its user data, the index of its volume, and its
    /// shape.
    #[inline(always)]
    pub(super) fn end(&mut self, index: u32) -> (u64, u32, RequestHeader) {
        let Some(Some(transfer)) = self.all.get_mut(index as usize) else {
            unreachable!("a transfer in flight is not released")
        };
        transfer.is_in_flight = false;
        (transfer.user_data, transfer.volume.index, transfer.shape(transfer.offset))
    }

    /// Notes that the request in flight by a transfer, which the channel has had, is being reaped. Gives the transfer its
    /// buffer back, unless that was lost.
    pub(super) fn end_at_channel(&mut self, index: u32, buffer: Option<Buffer>) {
        if let Some(Some(transfer)) = self.all.get_mut(index as usize) {
            (transfer.is_in_flight, transfer.buffer) = (false, buffer);
        }
    }

    /// Forgets what was prepared for the hardware behind a volume.
    pub(super) fn forget_hardware(&mut self, volume: u32) {
        for transfer in self.all.iter_mut().flatten() {
            if transfer.volume.index == volume {
                transfer.prepared = NOWHERE;
            }
        }
    }
}

impl Transfer {
    fn shape(&self, offset: u64) -> RequestHeader {
        let opcode = match self.kind {
            TransferKind::Read => Opcode::Read,
            TransferKind::Write => Opcode::Write,
        };
        RequestHeader::new(opcode, false, offset, self.bytes)
    }

    fn right(&self) -> Right {
        match self.kind {
            TransferKind::Read => Right::Read,
            TransferKind::Write => Right::Write,
        }
    }
}

impl Queue {
    /// Prepares a read or write of as many bytes as `buffer` has, which is then submitted as often as wanted with
    /// [`Queue::submit_transfer`], one request at a time. The transfer keeps the buffer until [`Queue::release_transfer`]. At most as
    /// many transfers as the depth can be prepared.
    ///
    /// # Errors
    /// Each error comes with the buffer. [`Error::Foreign`] if the volume is not this queue's; [`Error::Denied`],
    /// [`Error::Misaligned`] or [`Error::OutOfBounds`] if the grant does not allow the operation, the buffer's length is no
    /// multiple of the block, or it is longer than the volume; [`Error::Full`] if there are as many transfers as the
    /// depth; [`Error::ArenaFull`] if a buffer of an earlier connection cannot be copied into the arena; the error that ended the
    /// connection.
    pub fn prepare(
        &mut self,
        volume: VolumeId,
        kind: TransferKind,
        buffer: Buffer,
    ) -> Result<TransferId, SubmitError> {
        let bytes = buffer.len() as u64;
        let tag = self.transfers.made.wrapping_add(1);
        let transfer = Transfer {
            tag,
            is_in_flight: false,
            prepared: NOWHERE,
            user_data: 0,
            offset: 0,
            volume,
            kind,
            bytes,
            buffer: Some(buffer),
        };
        let refused = |error, transfer: Transfer| SubmitError::new(error, transfer.buffer.map(Buffer::into));
        match self.check(volume, transfer.right(), &transfer.shape(0)) {
            Ok(grant) if bytes == 0 => {
                let (volume, block) = (grant.name.clone(), grant.block);
                return Err(refused(Error::Misaligned { volume, offset: 0, length: 0, block }, transfer));
            }
            Ok(_) => {}
            Err(error) => return Err(refused(error, transfer)),
        }
        let all = &self.transfers.all;
        let index = all.iter().position(Option::is_none).unwrap_or(all.len());
        if index >= self.depth() {
            return Err(refused(Error::Full { depth: self.depth() as u32 }, transfer));
        }
        self.transfers.made = tag;
        if index == self.transfers.all.len() {
            self.transfers.all.push(None);
        }
        self.transfers.all[index] = Some(transfer);
        // Fits, since an index is less than the depth.
        let transfer = TransferId { index: index as u32, tag };
        self.prepare_hardware(transfer);
        Ok(transfer)
    }

    /// Prepares a transfer for the hardware behind its volume, if there is hardware that can access its buffer.
    fn prepare_hardware(&mut self, id: TransferId) {
        let generation = self.session.generation;
        let volume = self.transfers.get(id).map(|transfer| transfer.volume);
        let Some(Ok(grant)) = volume.map(|volume| self.grant(volume)) else { return };
        let (volume_bytes, block) = (grant.bytes, grant.block);
        let Some(transfer) = self.transfers.get_mut(id) else { return };
        // The volume may have shrunk since the transfer was made.
        let Some(last) = volume_bytes.checked_sub(transfer.bytes) else { return };
        let Some(Some(direct)) = self.hardware.get_mut(transfer.volume.index as usize) else { return };
        let Some(buffer) = transfer.buffer.as_ref().filter(|buffer| buffer.generation == generation) else {
            return;
        };
        let is_write = transfer.kind == TransferKind::Write;
        // SAFETY: the transfer keeps the buffer until the hardware has no request by it any more, or was dropped, and gives it
        // out for reading and writing only meanwhile.
        let prepared = unsafe { direct.prepare(is_write, buffer.as_ptr(), buffer.len()) };
        if prepared.is_some() {
            let (hardware, block_mask) = (transfer.volume.index, u64::from(block) - 1);
            transfer.prepared = Prepared { hardware, transfer: prepared, last, block_mask };
        }
    }

    /// Submits a transfer at an offset of its volume. Its completion has `user_data`, and no memory: the buffer stays with the
    /// transfer.
    ///
    /// # Errors
    /// [`Error::Foreign`] if the queue has no such transfer, or its volume was closed; [`Error::Busy`] if a request by it is in
    /// flight; [`Error::BufferLost`] if a device that missed its timeout may still write to its buffer; else the same as [`Queue::read`].
    #[inline(always)]
    pub fn submit_transfer(
        &mut self,
        transfer: TransferId,
        offset: u64,
        user_data: u64,
    ) -> Result<(), Error> {
        let has_room = self.in_flight() < self.depth();
        let Queue { transfers, hardware, direct_in_flight, .. } = self;
        if has_room
            && let Some(found) = transfers.get_mut(transfer)
            && !found.is_in_flight
            && offset <= found.prepared.last
            && offset & found.prepared.block_mask == 0
            && let Some(Some(direct)) = hardware.get_mut(found.prepared.hardware as usize)
            && let Some(prepared) = found.prepared.transfer
            && direct.submit_transfer(prepared, TRANSFER | u64::from(transfer.index), offset)
        {
            (found.user_data, found.offset, found.is_in_flight) = (user_data, offset, true);
            *direct_in_flight += 1;
            return Ok(());
        }
        self.submit_other_transfer(transfer, offset, user_data)
    }

    /// Reaps a request by a transfer whose volume is direct, and returns its user data, if one that has succeeded is next. `None`
    /// tells nothing about other requests: [`Queue::try_reap`] has them. Takes fewer instructions than that, since it makes no
    /// [`Completion`](super::Completion).
    #[inline(always)]
    pub fn try_reap_transfer(&mut self) -> Option<u64> {
        if self.direct_in_flight == 0 {
            return None;
        }
        let direct = self.hardware.get_mut(self.next_hardware)?.as_mut()?;
        let (token, result) = direct.reap_one()?;
        match as_transfer(token) {
            Some(transfer) if result.is_ok() => {
                self.direct_in_flight -= 1;
                Some(self.transfers.end(transfer).0)
            }
            _ => {
                if is_last(&mut self.slots, token, result) {
                    self.direct_done.push((token, result));
                }
                None
            }
        }
    }

    /// Submits a transfer that is not prepared for hardware, or not any more, or that cannot be submitted.
    #[inline(never)]
    fn submit_other_transfer(&mut self, id: TransferId, offset: u64, user_data: u64) -> Result<(), Error> {
        let found = self.transfers.get(id).ok_or(Error::Foreign { what: "transfer", of: "queue" })?;
        let (volume, right, shape) = (found.volume, found.right(), found.shape(offset));
        let grant = self.check(volume, right, &shape)?;
        if found.is_in_flight {
            return Err(Error::Busy);
        }
        if let Some(memory) = &grant.memory {
            let buffer = found.buffer.as_ref().ok_or(Error::BufferLost)?;
            let (at, bytes) = (buffer.as_ptr(), buffer.len());
            let outcome = match found.kind {
                TransferKind::Read => {
                    // SAFETY: `at` has `bytes` bytes of the arena, which does not overlap a mapped grant.
                    unsafe { memory.read(offset, at, bytes) };
                    ReadyKind::Read(volume.index)
                }
                TransferKind::Write => {
                    // SAFETY: `at` has `bytes` bytes of the arena, which does not overlap a mapped grant.
                    unsafe { memory.write_from(offset, at, bytes) };
                    ReadyKind::Written(volume.index)
                }
            };
            self.push_ready(user_data, outcome, None);
            return Ok(());
        }
        if self.hardware[volume.index as usize].is_some() {
            if found.prepared.transfer.is_some() {
                // Hardware takes no more requests.
                return Err(Error::Full { depth: self.depth() as u32 });
            }
            // The hardware is new, or the transfer's buffer is not in its arena.
            self.renew_buffer(id)?;
            self.prepare_hardware(id);
            if self.transfers.get(id).is_some_and(|found| found.prepared.transfer.is_some()) {
                return self.submit_transfer(id, offset, user_data);
            }
        }
        self.renew_buffer(id)?;
        self.send_transfer(id, volume, shape, user_data)
    }

    /// Copies the buffer of a transfer into the current arena, if it belongs to an earlier one.
    fn renew_buffer(&mut self, id: TransferId) -> Result<(), Error> {
        let found = self.transfers.get(id).and_then(|found| found.buffer.as_ref());
        let buffer = found.ok_or(Error::BufferLost)?;
        if buffer.generation != self.session.generation {
            let copy = self.copied(buffer)?;
            if let Some(found) = self.transfers.get_mut(id) {
                found.buffer = Some(copy);
            }
        }
        Ok(())
    }

    /// Submits a request by a transfer, like any other.
    fn send_transfer(
        &mut self,
        id: TransferId,
        volume: VolumeId,
        shape: RequestHeader,
        user_data: u64,
    ) -> Result<(), Error> {
        let Some(found) = self.transfers.get_mut(id) else { return Ok(()) };
        found.is_in_flight = true;
        let (buffer, keep) = (found.buffer.take(), KeptMemory::Transfer(id.index));
        let sent = self.send(volume.index, shape, buffer.map(|buffer| buffer.inner), keep, user_data);
        sent.map_err(|refused| {
            let buffer = match refused.memory {
                Some(RequestMemory::Arena(buffer)) => Some(buffer),
                _ => None,
            };
            self.transfers.end_at_channel(id.index, buffer);
            refused.error
        })
    }

    /// Returns true if a request by a transfer is in flight.
    fn is_busy(&self, id: TransferId) -> bool {
        self.transfers.get(id).is_some_and(|found| found.is_in_flight)
    }

    /// Returns true if a request by a transfer of a volume is in flight.
    pub(super) fn has_busy_transfer(&self, volume: VolumeId) -> bool {
        let mut all = self.transfers.all.iter().flatten();
        all.any(|transfer| transfer.volume == volume && transfer.is_in_flight)
    }

    /// Returns the buffer of a transfer, to fill or to read it while no request by the transfer is in flight.
    ///
    /// # Errors
    /// [`Error::Foreign`] if the queue has no such transfer; [`Error::Busy`] if a request by it is in flight;
    /// [`Error::BufferLost`] if a device that missed its timeout may still write to it.
    pub fn transfer_buffer(&mut self, transfer: TransferId) -> Result<TransferBuffer<'_>, Error> {
        if self.is_busy(transfer) {
            return Err(Error::Busy);
        }
        let found =
            self.transfers.get_mut(transfer).ok_or(Error::Foreign { what: "transfer", of: "queue" })?;
        found.buffer.as_mut().map(TransferBuffer).ok_or(Error::BufferLost)
    }

    /// Ends a transfer, and returns its buffer; `None` if that was lost, since a device that missed its timeout may still write to it.
    ///
    /// # Errors
    /// [`Error::Foreign`] if the queue has no such transfer; [`Error::Busy`] if a request by it is in flight.
    pub fn release_transfer(&mut self, transfer: TransferId) -> Result<Option<Buffer>, Error> {
        if self.is_busy(transfer) {
            return Err(Error::Busy);
        }
        let found = self.transfers.get(transfer).ok_or(Error::Foreign { what: "transfer", of: "queue" })?;
        if let Some(Some(direct)) = self.hardware.get_mut(found.prepared.hardware as usize)
            && let Some(prepared) = found.prepared.transfer
        {
            direct.release(prepared);
        }
        Ok(self.transfers.all[transfer.index as usize].take().and_then(|transfer| transfer.buffer))
    }
}

/// Buffer of a transfer that has no request in flight. Its length does not change.
#[derive(Debug)]
pub struct TransferBuffer<'a>(&'a mut Buffer);

impl TransferBuffer<'_> {
    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if that number is 0, which it never is.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Copies `from` into the buffer at offset `at`, as far as it fits, and returns the number of bytes copied.
    pub fn write(&mut self, at: usize, from: &[u8]) -> usize {
        let room = self.len().saturating_sub(at).min(from.len());
        self.0.write(at, &from[..room])
    }

    /// Copies bytes of the buffer from offset `at` on to `to`, as many as exist, and returns their number.
    pub fn read(&self, at: usize, to: &mut [u8]) -> usize {
        self.0.read(at, to)
    }

    /// Borrows the bytes in place.
    ///
    /// # Errors
    /// [`bywash_channel::Error::NotMapped`] if the server is not trusted.
    pub fn map(&self) -> Result<&[u8], bywash_channel::Error> {
        self.0.map()
    }

    /// Borrows the bytes in place, like [`TransferBuffer::map`], for changing them.
    ///
    /// # Errors
    /// Same as [`TransferBuffer::map`].
    pub fn map_mut(&mut self) -> Result<&mut [u8], bywash_channel::Error> {
        self.0.map_mut()
    }
}

impl fmt::Debug for Transfers {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} transfers", self.all.iter().flatten().count())
    }
}
