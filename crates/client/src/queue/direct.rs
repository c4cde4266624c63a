//! Requests to direct volumes: submitted to the hardware that the client has to itself, and reaped from it.
//!
//! Invariant: a slot whose request the hardware has keeps the request's memory, until the request has completed or its
//! volume was closed. Called by `send`, `reap` and `volumes`.

use super::Queue;
use super::memory::{Completion, KeptMemory, SubmitError};
use super::volumes::OpenVolume;
use crate::direct::{Direct, DriverSettings, failed};
use crate::error::Error;
use crate::request::RequestHeader;
use crate::session::Grant;
use bywash_device::CommandError;
use std::sync::PoisonError;

/// Returns the hardware of a grant that this thread has to itself.
#[inline(always)]
fn hardware(opened: &mut Option<OpenVolume>) -> Option<(&mut Direct, u64)> {
    let grant = opened.as_mut()?.grant.as_mut().ok()?;
    let direct = grant.direct.as_mut()?.get_mut().unwrap_or_else(PoisonError::into_inner);
    Some((direct, grant.number))
}

/// Maps the arena of a channel for the hardware behind a volume, if the volume is direct.
pub(super) fn map_arena(grant: &mut Grant, channel: &bywash_channel::Client) {
    if let Some(direct) = &mut grant.direct {
        direct.get_mut().unwrap_or_else(PoisonError::into_inner).map_arena(&channel.buffers());
    }
}

impl Queue {
    /// Returns the settings of the driver of direct volumes: completions are polled for.
    pub(super) fn driver(&self) -> DriverSettings {
        DriverSettings { depth: self.slots.len(), interrupts: false, timeout: self.options.timeout }
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
        let Queue { volumes, slots, .. } = self;
        let slot = &mut slots[number as usize];
        slot.buffer = buffer;
        let memory =
            slot.buffer.as_ref().map_or((std::ptr::null_mut(), 0), |buffer| (buffer.as_ptr(), buffer.len()));
        let direct = volumes.get_mut(volume as usize).and_then(hardware);
        let is_submitted = direct.is_some_and(|(direct, _)| {
            // SAFETY: the slot keeps the buffer until the request has completed, or the queue was dropped, which drops the
            // hardware first. Nothing else accesses a buffer of a request in flight.
            unsafe { direct.submit(number.into(), &shape, memory.0, memory.1) }
        });
        if is_submitted {
            (slot.user_data, slot.shape, slot.volume, slot.keep) = (user_data, shape, volume, keep);
            self.direct_in_flight += 1;
            return Ok(());
        }
        let buffer = slot.buffer.take();
        self.free.push(number);
        let room = self.room_of(keep, buffer);
        Err(SubmitError::new(Error::Full { depth: self.depth() as u32 }, room))
    }

    /// Reaps a request of a direct volume, if it is the turn of these: the other requests have every other one.
    #[inline]
    pub(super) fn take_turn_of_direct(&mut self) -> Option<Completion> {
        if self.direct_done.is_empty() {
            self.poll_direct();
        }
        self.is_direct_next =
            !self.is_direct_next || self.slots.len() - self.free.len() == self.direct_in_flight;
        if !self.is_direct_next && self.in_flight() > self.direct_in_flight {
            return None;
        }
        self.take_direct()
    }

    /// Takes a request of a direct volume that is known to have completed.
    #[inline]
    pub(super) fn take_direct(&mut self) -> Option<Completion> {
        let (number, result) = self.direct_done.pop()?;
        Some(self.finish_direct(number, result))
    }

    /// Takes the completions of all direct volumes. Gives up hardware whose grant was revoked.
    #[inline]
    pub(super) fn poll_direct(&mut self) {
        if self.direct_in_flight == self.direct_done.len() {
            return;
        }
        let Queue { volumes, direct_done, session, .. } = self;
        for opened in volumes.iter_mut() {
            let Some((direct, _)) = hardware(opened) else { continue };
            // A token is the number of a slot.
            direct.reap(&mut |token, result| direct_done.push((token as u32, result)));
        }
        if !direct_done.is_empty() {
            return;
        }
        for (direct, grant) in volumes.iter_mut().filter_map(hardware) {
            if !session.is_valid(grant) {
                direct.give_up();
                direct.reap(&mut |token, result| direct_done.push((token as u32, result)));
            }
        }
        if direct_done.is_empty()
            && let Err(error) = session.check_server(1)
        {
            self.connection_ended(error);
        }
    }

    /// Frees the slot of a request that hardware has completed, and returns its completion.
    #[inline]
    fn finish_direct(&mut self, number: u32, result: Result<(), CommandError>) -> Completion {
        self.direct_in_flight -= 1;
        let slot = &mut self.slots[number as usize];
        let buffer = slot.buffer.take();
        let outcome = match result {
            Ok(()) => Ok(()),
            Err(error) => Err(self.error_of(number, error)),
        };
        self.settle(number, outcome, buffer, false)
    }

    #[cold]
    fn error_of(&self, number: u32, error: CommandError) -> Error {
        let slot = &self.slots[number as usize];
        match self.volumes.get(slot.volume as usize) {
            Some(Some(OpenVolume { grant: Ok(grant), .. })) => failed(grant, &slot.shape, error),
            _ => Error::Foreign { what: "volume", of: "queue" },
        }
    }

    /// Gives up all hardware, since the connection has ended with `error`. Requests that had completed count; the others
    /// fail with it.
    #[cold]
    pub(super) fn give_up_direct(&mut self, error: &Error) {
        let Queue { volumes, direct_done, .. } = self;
        for (direct, _) in volumes.iter_mut().filter_map(hardware) {
            direct.reap(&mut |token, result| direct_done.push((token as u32, result)));
            direct.give_up();
            direct.reap(&mut |token, result| direct_done.push((token as u32, result)));
        }
        while let Some((number, result)) = self.direct_done.pop() {
            let failed = result.is_err();
            let mut completion = self.finish_direct(number, result);
            if failed {
                completion.outcome = Err(error.clone());
            }
            self.ready.push_known(completion);
        }
    }
}
