//! Requests to direct volumes: submitted to the hardware that the client has to itself, and reaped from it.
//!
//! Invariant: a slot or transfer whose request the hardware has keeps the request's memory, until the request has completed or
//! the hardware was dropped. Called by `send`, `transfers`, `reap` and `volumes`.

use super::memory::{Completion, KeptMemory, SubmitError};
use super::transfers::as_transfer;
use super::volumes::OpenVolume;
use super::{Queue, Slot};
use crate::direct::{Direct, DriverSettings, failed};
use crate::error::Error;
use crate::request::RequestHeader;
use crate::session::Grant;
use bywash_device::CommandError;
use bywash_protocol::layout::{GRANT_RANGE_BYTES, Opcode};
use std::sync::PoisonError;

/// Returns the hardware of a grant, with the arena of a channel mapped for it, if the volume is direct.
pub(super) fn take_hardware(grant: &mut Grant, channel: &bywash_channel::Client) -> Option<Direct> {
    let mut direct = grant.direct.take()?.into_inner().unwrap_or_else(PoisonError::into_inner);
    direct.map_arena(&channel.buffers());
    Some(direct)
}

impl Queue {
    /// Returns the settings of the driver of direct volumes: transfers have slots beside those of other requests.
    pub(super) fn driver(&self) -> DriverSettings {
        DriverSettings { depth: 2 * self.slots.len(), timeout: self.options.timeout }
    }

    /// Submits a request to the hardware behind a volume, with the free slot `number`.
    #[inline]
    pub(super) fn send_direct(
        &mut self,
        number: u32,
        volume: u32,
        shape: RequestHeader,
        buffer: Option<bywash_channel::Buffer>,
        keep: KeptMemory,
        user_data: u64,
    ) -> Result<(), SubmitError> {
        let Queue { hardware, slots, .. } = self;
        let slot = &mut slots[number as usize];
        slot.buffer = buffer;
        let memory =
            slot.buffer.as_ref().map_or((std::ptr::null_mut(), 0), |buffer| (buffer.as_ptr(), buffer.len()));
        let direct = hardware.get_mut(volume as usize).and_then(Option::as_mut);
        let is_submitted = direct.is_some_and(|direct| {
            // SAFETY: the slot keeps the buffer until the request has completed, or the queue was dropped, which drops the
            // hardware first. Nothing else accesses a buffer of a request in flight.
            unsafe { direct.submit(number.into(), &shape, memory.0, memory.1) }
        });
        if is_submitted {
            (slot.user_data, slot.shape, slot.volume, slot.keep) = (user_data, shape, volume, keep);
            slot.commands = 1;
            self.direct_slots += 1;
            self.direct_in_flight += 1;
            return Ok(());
        }
        let buffer = slot.buffer.take();
        self.free.push(number);
        let room = self.room_of(keep, buffer);
        Err(SubmitError::new(Error::Full { depth: self.depth() as u32 }, room))
    }

    /// Submits a request of several ranges to the hardware behind their volumes, by a command for each. The ranges are noted in
    /// the slot that the request takes; their data lies in the buffer behind room for their descriptors.
    pub(super) fn send_many_direct(
        &mut self,
        shape: RequestHeader,
        buffer: bywash_channel::Buffer,
        keep: KeptMemory,
        user_data: u64,
    ) -> Result<(), SubmitError> {
        let full = Error::Full { depth: self.depth() as u32 };
        let Some(number) = self.free.pop() else {
            return Err(SubmitError::new(full, self.room_of(keep, Some(buffer))));
        };
        let Queue { hardware, slots, .. } = self;
        let slot = &mut slots[number as usize];
        // Each of the pieces may belong to the same hardware.
        let has_room = |piece: &(u32, u64, usize)| {
            let direct = hardware.get(piece.0 as usize).and_then(Option::as_ref);
            direct.is_some_and(|direct| direct.room() >= slot.pieces.len())
        };
        if !slot.pieces.iter().all(has_room) {
            self.free.push(number);
            return Err(SubmitError::new(full, self.room_of(keep, Some(buffer))));
        }
        let mut at = slot.pieces.len() * GRANT_RANGE_BYTES;
        let opcode = if shape.opcode == Opcode::ReadRanges { Opcode::Read } else { Opcode::Write };
        (slot.user_data, slot.shape, slot.volume, slot.keep) = (user_data, shape, slot.pieces[0].0, keep);
        (slot.commands, slot.failure) = (0, None);
        for &(volume, offset, length) in &slot.pieces {
            let piece = RequestHeader { opcode, offset, length: length as u64, ..shape };
            let memory = buffer.as_ptr().wrapping_add(at);
            at += length;
            let Some(direct) = &mut hardware[volume as usize] else { continue };
            // SAFETY: the buffer has the sum of the lengths behind the descriptors, as the caller has allocated it. The slot
            // keeps it until the last command has completed, or the queue was dropped, which drops the hardware first.
            let is_submitted = unsafe { direct.submit(number.into(), &piece, memory, length) };
            debug_assert!(is_submitted, "there is room for all");
            slot.commands += usize::from(is_submitted);
        }
        slot.buffer = Some(buffer);
        self.direct_slots += 1;
        self.direct_in_flight += 1;
        Ok(())
    }

    /// Reaps a request of a direct volume, if one has completed.
    #[inline(always)]
    pub(super) fn reap_direct(&mut self) -> Option<Completion> {
        if let Some(Some(direct)) = self.hardware.get_mut(self.next_hardware)
            && let Some((token, result)) = direct.reap_one()
        {
            match as_transfer(token) {
                Some(transfer) if result.is_ok() => {
                    self.direct_in_flight -= 1;
                    let (user_data, ..) = self.transfers.end(transfer);
                    return Some(Completion { user_data, outcome: Ok(()), memory: None });
                }
                _ if is_last(&mut self.slots, token, result) => {
                    return Some(self.finish_direct(token, result));
                }
                _ => {}
            }
        }
        self.reap_other_direct()
    }

    /// Reaps a request of a direct volume, if one is known to have completed, or if any hardware has completed one.
    #[inline(never)]
    fn reap_other_direct(&mut self) -> Option<Completion> {
        if self.direct_done.is_empty() {
            self.poll_direct(1);
        }
        let (token, result) = self.direct_done.pop()?;
        Some(self.finish_direct(token, result))
    }

    /// Takes completions of all hardware, until `least` are known. If there is none, gives up hardware whose grant was
    /// revoked.
    pub(super) fn poll_direct(&mut self, least: usize) {
        if self.direct_in_flight == self.direct_done.len() {
            return;
        }
        let Queue { volumes, hardware, slots, direct_done, session, next_hardware, .. } = self;
        for _ in 0..hardware.len() {
            *next_hardware = if *next_hardware + 1 < hardware.len() { *next_hardware + 1 } else { 0 };
            let Some(direct) = &mut hardware[*next_hardware] else { continue };
            while direct_done.len() < least
                && let Some((token, result)) = direct.reap_one()
            {
                if is_last(slots, token, result) {
                    direct_done.push((token, result));
                }
            }
            if direct_done.len() >= least {
                break;
            }
        }
        if !direct_done.is_empty() {
            return;
        }
        for (direct, opened) in hardware.iter_mut().zip(volumes) {
            let (Some(direct), Some(OpenVolume { grant: Ok(grant), .. })) = (direct, opened) else {
                continue;
            };
            if !session.is_valid(grant.number) {
                direct.give_up();
                reap_all(direct, slots, direct_done);
            }
        }
        if direct_done.is_empty()
            && let Err(error) = session.check_server(1)
        {
            self.connection_ended(error);
        }
    }

    /// Returns the completion of a request for which hardware has completed the last command, and frees its slot, unless it
    /// belongs to a transfer.
    #[inline(never)]
    fn finish_direct(&mut self, token: u64, result: Result<(), CommandError>) -> Completion {
        self.direct_in_flight -= 1;
        if let Some(transfer) = as_transfer(token) {
            let (user_data, volume, shape) = self.transfers.end(transfer);
            let outcome = result.map_err(|error| self.error_of(volume, &shape, error));
            return Completion { user_data, outcome, memory: None };
        }
        // The token of another request is the number of its slot.
        let number = token as u32;
        self.direct_slots -= 1;
        let slot = &mut self.slots[number as usize];
        let (buffer, volume, shape) = (slot.buffer.take(), slot.volume, slot.shape);
        let result = slot.failure.take().map_or(result, Err);
        let outcome = result.map_err(|error| self.error_of(volume, &shape, error));
        self.settle(number, outcome, buffer, false)
    }

    #[cold]
    fn error_of(&self, volume: u32, shape: &RequestHeader, error: CommandError) -> Error {
        match self.volumes.get(volume as usize) {
            Some(Some(OpenVolume { grant: Ok(grant), .. })) => failed(grant, shape, error),
            _ => Error::Foreign { what: "volume", of: "queue" },
        }
    }

    /// Gives up all hardware, since the connection has ended with `error`. Requests that had completed count; the others
    /// fail with it.
    #[cold]
    pub(super) fn give_up_direct(&mut self, error: &Error) {
        let Queue { hardware, slots, direct_done, .. } = self;
        for direct in hardware.iter_mut().flatten() {
            reap_all(direct, slots, direct_done);
            direct.give_up();
            reap_all(direct, slots, direct_done);
        }
        while let Some((token, result)) = self.direct_done.pop() {
            let mut completion = self.finish_direct(token, result);
            if completion.outcome.is_err() {
                completion.outcome = Err(error.clone());
            }
            self.ready.push_known(completion);
        }
    }

    /// Drops the hardware behind a volume, and forgets what was prepared for it. Nothing of it is in flight.
    pub(super) fn forget_hardware(&mut self, volume: u32) {
        self.transfers.forget_hardware(volume);
        self.hardware[volume as usize] = None;
    }
}

/// Notes that hardware has completed a command. Returns true if it was the last one of its request.
#[inline]
pub(super) fn is_last(slots: &mut [Slot], token: u64, result: Result<(), CommandError>) -> bool {
    if as_transfer(token).is_some() {
        return true;
    }
    let slot = &mut slots[token as u32 as usize];
    slot.commands -= 1;
    if slot.commands > 0 {
        slot.failure = slot.failure.or(result.err());
    }
    slot.commands == 0
}

/// Reaps all requests that hardware has completed.
fn reap_all(direct: &mut Direct, slots: &mut [Slot], done: &mut Vec<(u64, Result<(), CommandError>)>) {
    while let Some((token, result)) = direct.reap_one() {
        if is_last(slots, token, result) {
            done.push((token, result));
        }
    }
}
