//! Reaping the completions of a queue, and its reaction to the death of the server.
//!
//! Invariant: while the queue lives, each submitted request yields exactly one completion, even if the server
//! dies. Called by programs and by `dispatch`.

use super::Queue;
use super::direct::take_hardware;
use super::memory::{Buffer, Completion, KeptMemory, RequestMemory};
use super::ready::ReadyKind;
use super::volumes::OpenVolume;
use crate::client::{connect_again, make_channel};
use crate::direct::SPINS;
use crate::error::Error;
use crate::mapped::fence_behind_reads;
use crate::options::Reconnect;
use crate::request::{RequestHeader, memory_is_lost, outcome};
use crate::session::{Grant, Session};
use bywash_channel::Incomplete;
use bywash_protocol::layout::{GRANT_RANGE_BYTES, GrantRange, Opcode, Status};
use std::ptr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Number of looks at hardware after which the other sources have a turn.
const TURNS_OF_HARDWARE: u32 = 16;

impl Queue {
    /// Reaps the next completed request without waiting; `None` if there is none.
    ///
    /// # Errors
    /// The error that has ended the queue, such as [`Error::Gone`], once all requests in flight have been
    /// reaped.
    #[inline]
    pub fn try_reap(&mut self) -> Result<Option<Completion>, Error> {
        if self.direct_in_flight > 0 {
            self.looks = self.looks.wrapping_add(1);
            // Hardware that has completions without end lets the other sources have a turn.
            if !self.looks.is_multiple_of(TURNS_OF_HARDWARE)
                && let Some(completion) = self.reap_direct()
            {
                return Ok(Some(completion));
            }
        }
        // A queue without requests to mapped volumes has one source.
        if self.ready.len() == 0 {
            return self.try_reap_channel();
        }
        // The two sources take turns, so that neither delays the other for ever.
        self.is_ready_next = !self.is_ready_next || self.in_flight_over_channel() == 0;
        if self.is_ready_next
            && let Some(user_data) = self.ready.pop_plain()
        {
            return Ok(Some(Completion { user_data, outcome: Ok(()), memory: None }));
        }
        self.try_reap_other()
    }

    /// Like [`Queue::try_reap`], if the first ready request has to be confirmed first, or has memory or an
    /// error.
    #[inline(never)]
    fn try_reap_other(&mut self) -> Result<Option<Completion>, Error> {
        if self.is_ready_next
            && let Some(completion) = self.take_ready()
        {
            return Ok(Some(completion));
        }
        self.try_reap_channel()
    }

    /// Like [`Queue::try_reap`], if it is the channel's turn or nothing is ready.
    #[inline(never)]
    fn try_reap_channel(&mut self) -> Result<Option<Completion>, Error> {
        if self.in_flight_over_channel() > 0 {
            match self.channel.try_reap() {
                Ok(Some(done)) => return Ok(Some(self.finish(done))),
                // A program that never waits finds out here that the server is gone.
                Ok(None) => {
                    if let Err(error) = self.session.check_server(1) {
                        self.connection_ended(error);
                    }
                }
                Err(error) => self.connection_ended_by(error),
            }
        }
        if self.ready.len() > 0 {
            self.is_ready_next = true;
            return self.try_reap_other();
        }
        if self.direct_in_flight > 0 {
            return Ok(self.reap_direct());
        }
        match self.slots.len() == self.free.len() {
            true => self.check_end().map(|()| None),
            false => Ok(None),
        }
    }

    /// Reaps the next completed request, waiting for it up to the options' timeout.
    ///
    /// # Errors
    /// Same as [`Queue::reap_within`].
    #[inline]
    pub fn reap(&mut self) -> Result<Completion, Error> {
        self.reap_within(self.options.timeout)
    }

    /// Reaps the next completed request, waiting for it up to `limit`; and, if the server dies, for the time
    /// that [`crate::Reconnect`] allows.
    ///
    /// # Errors
    /// [`Error::TimedOut`] if none completes in time; [`Error::Idle`] if no request is in flight; else the
    /// same as [`Queue::try_reap`].
    #[inline]
    pub fn reap_within(&mut self, limit: Duration) -> Result<Completion, Error> {
        match self.try_reap() {
            Ok(Some(completion)) => Ok(completion),
            Ok(None) => self.wait(limit),
            Err(error) => Err(error),
        }
    }

    /// Like [`Queue::reap_within`], if no request has completed yet.
    #[inline(never)]
    fn wait(&mut self, limit: Duration) -> Result<Completion, Error> {
        let end = Instant::now().checked_add(limit);
        let mut looks = 0u32;
        loop {
            if let Some(completion) = self.try_reap()? {
                return Ok(completion);
            }
            if self.in_flight() == 0 {
                return Err(Error::Idle);
            }
            let is_direct = self.direct_in_flight > 0;
            if self.in_flight_over_channel() == 0 && !is_direct {
                continue;
            }
            let left = end.map_or(limit, |end| end.saturating_duration_since(Instant::now()));
            if is_direct && !left.is_zero() {
                looks = looks.saturating_add(1);
                match looks >= SPINS && !self.arm()? {
                    true => self.sleep(left),
                    false => std::hint::spin_loop(),
                }
                continue;
            }
            match self.channel.reap_within(left) {
                _ if is_direct => return Err(Error::TimedOut { what: "a request", limit }),
                Ok(done) => return Ok(self.finish(done)),
                Err(bywash_link::Error::TimedOut) => {
                    return Err(Error::TimedOut { what: "a request", limit });
                }
                Err(error) => self.connection_ended_by(error),
            }
            // A server that dies again and again must not keep the caller waiting for ever.
            if left.is_zero() {
                return Err(Error::TimedOut { what: "a request", limit });
            }
        }
    }

    /// Waits until at least `least` requests can be reaped, or all that are in flight if they are fewer, but
    /// no longer than `limit`. A sleeping thread is then woken once for all of them. A program that waits for
    /// half of its requests in flight keeps the server busy with the other half.
    ///
    /// # Errors
    /// [`Error::TimedOut`] if fewer complete in time; those can be reaped. The death of the server is no
    /// error here: reaping reports it.
    pub fn wait_for(&mut self, least: usize, limit: Duration) -> Result<(), Error> {
        let end = Instant::now().checked_add(limit);
        let mut looks = 0u32;
        loop {
            self.poll_direct(least);
            let here = self.ready.len() + self.direct_done.len();
            let missing = least.min(self.in_flight()).saturating_sub(here);
            if missing == 0 {
                return Ok(());
            }
            let left = end.map_or(limit, |end| end.saturating_duration_since(Instant::now()));
            if self.direct_in_flight > self.direct_done.len() {
                if left.is_zero() {
                    return Err(Error::TimedOut { what: "a request", limit });
                }
                // What the channel has completed is not known before it is reaped: this thread does not wait for it.
                if self.in_flight_over_channel() > 0 {
                    return Ok(());
                }
                looks = looks.saturating_add(1);
                match looks >= SPINS && !self.arm_hardware() {
                    true => self.sleep(left),
                    false => std::hint::spin_loop(),
                }
                continue;
            }
            match self.channel.wait_for(missing, left) {
                Ok(()) => return Ok(()),
                Err(bywash_link::Error::TimedOut) => {
                    return Err(Error::TimedOut { what: "a request", limit });
                }
                Err(error) => self.connection_ended_by(error),
            }
        }
    }

    /// Calls `callback` for up to `most` completed requests, without waiting, and returns their number.
    ///
    /// # Errors
    /// Same as [`Queue::try_reap`].
    pub fn reap_each(&mut self, most: usize, mut callback: impl FnMut(Completion)) -> Result<usize, Error> {
        for reaped in 0..most {
            match self.try_reap()? {
                Some(completion) => callback(completion),
                None => return Ok(reaped),
            }
        }
        Ok(most)
    }

    /// Prepares to wait in an event loop. After `Ok(false)` the descriptor of [`AsFd`](std::os::fd::AsFd)
    /// becomes readable when a request completes or the server dies. `Ok(true)` means that a request can be
    /// reaped already, or that requests to a direct volume without interrupts are in flight, for which the program
    /// has to poll. While requests to direct volumes are in flight, the descriptor also becomes readable now and
    /// then, since a grant that was revoked signals nothing. It changes when [`Queue::reconnects`] does, and when a
    /// direct volume is opened.
    ///
    /// # Errors
    /// Same as [`Queue::try_reap`].
    pub fn arm(&mut self) -> Result<bool, Error> {
        if !self.direct_done.is_empty() || self.arm_hardware() {
            return Ok(true);
        }
        if self.ready.len() == 0 {
            self.check_end()?;
            match self.channel.arm() {
                Ok(armed) => return Ok(armed),
                Err(error) => self.connection_ended_by(error),
            }
        }
        if self.ready.len() == 0 { self.arm_anew() } else { Ok(true) }
    }

    /// Like [`Queue::arm`], after the queue has connected again and nothing has completed yet.
    #[cold]
    fn arm_anew(&mut self) -> Result<bool, Error> {
        self.check_end()?;
        self.channel.arm().map_err(|error| self.link_error(error))
    }

    /// Reaps the first ready request, confirming all ready ones before if necessary.
    #[inline(always)]
    fn take_ready(&mut self) -> Option<Completion> {
        if self.ready.is_unconfirmed() {
            self.confirm();
        }
        self.ready.pop()
    }

    /// Finds out which of the ready requests count, and marks the others as failed.
    #[inline(always)]
    fn confirm(&mut self) {
        let (mut is_fenced, mut is_flush) = (false, false);
        let mut valid = None;
        fence_behind_reads();
        for before in 0..self.ready.len() {
            let outcome = self.ready.outcome(before);
            let Some(volume) = outcome.volume() else { continue };
            is_flush |= matches!(outcome, ReadyKind::Flushed(_));
            if !is_fenced && !matches!(outcome, ReadyKind::Read(_)) {
                self.session.fence_behind_writes();
                (is_fenced, valid) = (true, None);
            }
            if valid == Some(volume) {
                continue;
            }
            match self.look_at(volume) {
                Ok(()) => valid = Some(volume),
                Err(error) => self.ready.fail(before, error),
            }
        }
        let looked = match is_flush {
            true => self.session.check_server_now(),
            false => self.session.check_server(self.ready.len() as u64),
        };
        if let Err(error) = looked {
            self.connection_ended(error);
        }
        self.ready.set_confirmed();
    }

    /// Checks that the grant of a volume is valid.
    #[inline]
    fn look_at(&self, volume: u32) -> Result<(), Error> {
        // A ready request keeps its volume open: see `close` and `over`.
        let grant = self.grant_at(volume).ok_or(Error::Foreign { what: "volume", of: "queue" })?;
        grant.check_revoked()
    }

    #[inline(always)]
    fn grant_at(&self, index: u32) -> Option<&Grant> {
        self.volumes.get(index as usize)?.as_ref()?.grant.as_ref().ok()
    }

    /// Frees the slot of a request that the channel has completed, and returns its completion.
    #[inline(always)]
    fn finish(&mut self, done: bywash_channel::Completion) -> Completion {
        // The user data is the one that `send` set, so it is the number of a slot.
        let number = done.user_data as u32;
        let slot = &mut self.slots[number as usize];
        // Most requests succeed, and move the bytes of the program's buffer, which is returned.
        if done.status == Status::Success as u16
            && done.value == slot.shape.length
            && matches!(slot.shape.opcode, Opcode::Read | Opcode::Write)
            && matches!(slot.keep, KeptMemory::Buffer)
        {
            slot.keep = KeptMemory::Nothing;
            let (user_data, generation) = (slot.user_data, self.session.generation);
            self.free.push(number);
            let memory = done.buffer.map(|inner| RequestMemory::Arena(Buffer { inner, generation }));
            return Completion { user_data, outcome: Ok(()), memory };
        }
        let slot = &self.slots[number as usize];
        let refused = |piece: u64| {
            let (volume, offset, length) = match slot.shape.opcode {
                Opcode::ReadRanges | Opcode::WriteRanges => {
                    let piece = slot.pieces.get(usize::try_from(piece).ok()?)?;
                    (piece.0, piece.1, piece.2 as u64)
                }
                _ => (slot.volume, slot.shape.offset, slot.shape.length),
            };
            self.grant_at(volume).map(|grant| (grant, offset, length))
        };
        let outcome = outcome(&slot.shape, done.status, done.value, refused);
        let is_lost = memory_is_lost(done.status);
        self.settle(number, outcome, done.buffer, is_lost)
    }

    /// Frees the slot of a request that has completed, and returns its completion. With `is_lost` a device may still write
    /// to the request's memory.
    #[inline]
    pub(super) fn settle(
        &mut self,
        number: u32,
        outcome: Result<(), Error>,
        buffer: Option<bywash_channel::Buffer>,
        is_lost: bool,
    ) -> Completion {
        let slot = &mut self.slots[number as usize];
        let keep = std::mem::take(&mut slot.keep);
        let from = match slot.shape.opcode {
            Opcode::ReadRanges => slot.pieces.len() * GRANT_RANGE_BYTES,
            _ => 0,
        };
        self.free.push(number);
        let (user_data, length) = (slot.user_data, slot.shape.length as usize);
        let room = match (keep, buffer) {
            (KeptMemory::Buffer, Some(inner)) if !is_lost => {
                Some(RequestMemory::Arena(Buffer { inner, generation: self.session.generation }))
            }
            (KeptMemory::Transfer(transfer), inner) => {
                let (inner, lost) = if is_lost { (None, inner) } else { (inner, None) };
                self.quarantined.extend(lost);
                let generation = self.session.generation;
                self.transfers.end_at_channel(transfer, inner.map(|inner| Buffer { inner, generation }));
                None
            }
            (KeptMemory::Own(mut bytes), Some(buffer)) => {
                if outcome.is_ok() {
                    buffer.read(from, &mut bytes);
                }
                self.quarantined.extend(is_lost.then_some(buffer));
                Some(RequestMemory::Own(bytes))
            }
            (KeptMemory::Lent(place), Some(buffer)) => {
                if outcome.is_ok() {
                    let length = length.min(buffer.len());
                    // SAFETY: the lender guarantees that `length` bytes are writable until now; the buffer
                    // has at least `length`.
                    unsafe {
                        ptr::copy_nonoverlapping(buffer.as_ptr().cast_const(), place.0.as_ptr(), length)
                    };
                }
                self.quarantined.extend(is_lost.then_some(buffer));
                None
            }
            (_, Some(buffer)) if is_lost => {
                self.quarantined.push(buffer);
                None
            }
            (KeptMemory::Own(bytes), None) => Some(RequestMemory::Own(bytes)),
            _ => None,
        };
        Completion { user_data, outcome, memory: room }
    }

    /// Ends the connection after an error of the channel.
    #[cold]
    fn connection_ended_by(&mut self, error: bywash_link::Error) {
        let error = self.link_error(error);
        self.connection_ended(error);
    }

    /// Reacts to the end of the connection: submits requests in flight over a new one, or ends them with the
    /// error.
    #[cold]
    pub(super) fn connection_ended(&mut self, error: Error) {
        // Requests that the server completed before it ended count.
        while self.in_flight_over_channel() > 0 {
            let Ok(Some(done)) = self.channel.try_reap() else { break };
            let completion = self.finish(done);
            self.ready.push_known(completion);
        }
        self.give_up_direct(&error);
        // Requests to mapped memory are lost with the server, whose memory it was.
        self.ready.fail_unknown(&error);
        let unanswered = self.channel.take_incomplete();
        // A device may still write to these buffers. No request uses their arena again: either the channel is
        // replaced, or the queue has ended.
        self.quarantined.clear();
        match self.reconnect(&error) {
            Ok(()) => unanswered.into_iter().for_each(|one| self.send_again(one)),
            Err(gone) => {
                for Incomplete { user_data, .. } in unanswered {
                    let caw = self.slots[user_data as usize].shape.opcode == Opcode::CompareAndWrite;
                    self.fail(user_data as u32, if caw { Error::OutcomeUnknown } else { gone.clone() });
                }
                self.end = Some(gone);
            }
        }
    }

    /// Connects again, if the options allow it, and opens all volumes again that can be opened.
    fn reconnect(&mut self, why: &Error) -> Result<(), Error> {
        let Reconnect::Within(within) = self.options.reconnect else { return Err(why.clone()) };
        let end = Instant::now() + within;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let generation = self.session.generation + 1;
            let session = connect_again(&self.socket, &self.options, generation, left, why)?;
            match self.take_over(session, end) {
                // The new server has died as well.
                Err(error) if error.is_end() && Instant::now() < end => {}
                outcome => return outcome,
            }
        }
    }

    fn take_over(&mut self, session: Session, end: Instant) -> Result<(), Error> {
        let driver = self.driver();
        let session = Arc::new(session);
        let channel = make_channel(&session, &self.options, end.max(Instant::now() + self.options.timeout))?;
        // The volumes are opened one after the other, each with the whole timeout.
        for index in 0..self.volumes.len() {
            self.forget_hardware(index as u32);
            let Some(OpenVolume { origin, grant, .. }) = &mut self.volumes[index] else { continue };
            *grant = session.open(origin, self.options.choice, driver, Instant::now() + self.options.timeout);
            match grant {
                Ok(grant) => self.hardware[index] = take_hardware(grant, &channel),
                Err(error) if error.is_end() => return Err(error.clone()),
                Err(_) => {}
            }
        }
        (self.session, self.channel) = (session, channel);
        self.join_descriptors()
    }

    /// Submits a request again that was not completed.
    fn send_again(&mut self, unanswered: Incomplete) {
        let number = unanswered.user_data as u32;
        if let Err(error) = self.try_send_again(number, unanswered.contents) {
            self.fail(number, error);
        }
    }

    fn try_send_again(&mut self, number: u32, contents: Option<Vec<u8>>) -> Result<(), Error> {
        let slot = &self.slots[number as usize];
        let shape: RequestHeader = slot.shape;
        let grant_of = |index: u32| match self.volumes.get(index as usize) {
            Some(Some(OpenVolume { grant: Ok(grant), .. })) => Ok(grant),
            Some(Some(OpenVolume { grant: Err(error), .. })) => Err(error.clone()),
            _ => Err(Error::Foreign { what: "volume", of: "queue" }),
        };
        let is_many = matches!(shape.opcode, Opcode::ReadRanges | Opcode::WriteRanges);
        let grant = match shape.opcode {
            Opcode::CompareAndWrite => return Err(Error::OutcomeUnknown),
            _ if is_many => 0,
            Opcode::Flush if grant_of(slot.volume)?.is_volatile => {
                return Err(Error::Gone { how: "its memory, which was to be flushed, went with it".into() });
            }
            _ => grant_of(slot.volume)?.number,
        };
        let mut submission = shape.submission(grant).user_data(u64::from(number));
        if let Some(mut contents) = contents {
            if is_many {
                for (place, piece) in contents.chunks_exact_mut(GRANT_RANGE_BYTES).zip(&slot.pieces) {
                    let grant = grant_of(piece.0)?.number;
                    let piece = GrantRange { grant, offset: piece.1, length: piece.2 as u64 };
                    place.copy_from_slice(&piece.to_bytes());
                }
            }
            let mut buffer = self.alloc_inner(contents.len())?;
            buffer.write(0, &contents);
            submission = submission.buffer(buffer);
        }
        self.channel.submit(submission).map(drop).map_err(|refused| self.link_error(refused.error))
    }

    /// Ends the request in slot `number` with an error.
    fn fail(&mut self, number: u32, error: Error) {
        let slot = &mut self.slots[number as usize];
        let user_data = slot.user_data;
        let room = match std::mem::take(&mut slot.keep) {
            KeptMemory::Own(bytes) => Some(RequestMemory::Own(bytes)),
            KeptMemory::Transfer(transfer) => {
                self.transfers.end_at_channel(transfer, None);
                None
            }
            _ => None,
        };
        self.free.push(number);
        self.ready.push_known(Completion { user_data, outcome: Err(error), memory: room });
    }
}
