//! A device as the core uses it: its schedule, its commands in flight, and whether it still completes them.

use crate::core::CompletedCommand;
use crate::core::client::{Channel, Client, DeviceMember, Registration};
use crate::core::order::{BoxedDevice, DeviceReport, OnDone};
use crate::core::pins::RegisteredArena;
use crate::core::work::{DeviceSegment, Origin, RequestState, Slice, slice_of};
use crate::schedule::{self, ByUser, CommandCosts};
use bywash_channel::RequestBuffer;
use bywash_device::{
    Command, Completion, Device, Geometry, Operation, PinnedRegion, Pinner, RegionId, Segment,
};
use bywash_protocol::report::Counters;
use bywash_volume::DeviceNumber;
use slab::Slab;
use std::sync::Arc;

/// A command in flight on a device.
pub(crate) struct InFlight {
    pub(crate) work: usize,
    /// User whose window the command counts against, and its number of bytes; `None` if it had no turn.
    pub(crate) user: Option<(schedule::ClientKey, u64)>,
}

/// Client on whose behalf a command is submitted, or the server itself.
#[derive(Clone, Copy)]
pub(crate) struct Submitter<'a> {
    /// The client; `None` for the server itself.
    pub(crate) client: Option<&'a Client>,
    /// User whose turn it is; `None` if the command needs no turn.
    pub(crate) user: Option<schedule::ClientKey>,
    /// Region of the client's arena, if it is registered with the device.
    pub(crate) region: Option<RegionId>,
}

/// Result of submitting a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Submitted {
    /// The command has completed.
    AtOnce,
    /// The command is in flight; this number of bytes counts against its user's window.
    InFlight { bytes: u64 },
    /// The device accepts no further command before one has completed.
    Full,
}

/// A device with its schedule and its commands in flight.
pub(crate) struct ServedDevice {
    pub(crate) name: String,
    pub(crate) device: Box<dyn Device>,
    pub(crate) geometry: Geometry,
    /// Pinner of memory that is registered with the device; `None` if commands are not cheaper then.
    pub(crate) pinner: Option<Arc<dyn Pinner>>,
    /// True if the log says that memory cannot be pinned for the device.
    pub(crate) has_warned: bool,
    /// Greatest size of a command, in bytes.
    pub(crate) slice: u64,
    /// Schedule of the clients that are in line for a turn.
    pub(crate) schedule: ByUser,
    /// Commands in flight, by their tokens.
    in_flight: Slab<InFlight>,
    /// Slot of the client behind each member of the schedule, by the member's index.
    pub(crate) holders: Vec<usize>,
    /// True if the device is among those that the core polls.
    pub(crate) is_active: bool,
    /// True if the device accepts no further command before one has completed.
    pub(crate) is_full: bool,
    /// Time at which a command last completed, or at which the device was last seen idle, in nanoseconds of
    /// the core's clock.
    pub(crate) progress_ns: u64,
    /// True if no command has completed for longer than the request timeout: new requests to the device fail.
    pub(crate) is_stuck: bool,
    pub(crate) counts: Counters,
    /// User whose client has passed the device's file; `None` for a device of the server's own.
    pub(crate) owner: Option<u32>,
    /// Reply to an order to remove the device, sent when no command is in flight.
    pub(crate) leaving: Option<OnDone<Option<BoxedDevice>>>,
}

impl ServedDevice {
    pub(crate) fn new(name: String, device: Box<dyn Device>, owner: Option<u32>, now: u64) -> ServedDevice {
        let geometry = device.geometry();
        ServedDevice {
            name,
            geometry,
            pinner: device.pinner(),
            has_warned: false,
            slice: slice_of(&geometry),
            in_flight: Slab::with_capacity(device.depth()),
            device,
            schedule: ByUser::new(),
            holders: Vec::new(),
            is_active: false,
            is_full: false,
            progress_ns: now,
            is_stuck: false,
            counts: Counters::default(),
            owner,
            leaving: None,
        }
    }

    /// Adds a client to the schedule that uses this device for the first time; `device` is the device's
    /// number.
    #[cold]
    pub(crate) fn add_member(
        &mut self,
        client: &mut Client,
        number: usize,
        device: usize,
    ) -> Result<DeviceMember, schedule::Error> {
        let turn = self.schedule.join(client.uid, client.limits)?;
        let user = self.schedule.user(turn).ok_or(schedule::Error::Full)?;
        if self.holders.len() <= turn.index() {
            self.holders.resize(turn.index() + 1, usize::MAX);
        }
        self.holders[turn.index()] = number;
        if client.members.len() <= device {
            client.members.resize(device + 1, None);
        }
        Ok(*client.members[device].insert(DeviceMember { turn, user, arena: Registration::Unknown }))
    }

    /// Returns the next command of work, which is for this device: see [`RequestState::next_device`].
    #[inline]
    pub(crate) fn next_slice(&self, work: &RequestState) -> Slice {
        work.next_slice(self.slice, self.geometry.range_max)
    }

    /// Submits a slice of some work, a client's or the server's own.
    #[expect(unsafe_code, reason = "a device is told where a request's memory is")]
    #[inline]
    pub(crate) fn submit(
        &mut self,
        by: Submitter<'_>,
        work: &mut RequestState,
        place: usize,
        slice: &Slice,
        now: u64,
        finished: &mut Vec<CompletedCommand>,
    ) -> Submitted {
        let channel = by.client.and_then(|client| client.channel.as_ref());
        let memory = match (&work.origin, channel) {
            (Origin::Client { request: Some(request), .. }, Some(channel)) => {
                channel.server.memory(request).as_ptr().wrapping_add(slice.buffer_offset)
            }
            (Origin::Server(_), _) => match &work.memory {
                Some(memory) => memory.base().wrapping_add(slice.buffer_offset),
                None => std::ptr::dangling_mut(),
            },
            _ => std::ptr::dangling_mut(),
        };
        let bytes = match slice.operation {
            Operation::CompareAndWrite => 2 * slice.length as usize,
            _ => slice.length as usize,
        };
        // If data moves, the request's buffer lies within the client's arena, as `bywash_channel` has checked,
        // and the slice within the buffer, as `RequestState::take` has checked. The memory of a copy is as long
        // as its range at least, as `Core::copy` has checked. The command's owner keeps the arena or this memory
        // mapped; for a command that ends before `carry_out` returns, the borrowed client or work does.
        // SAFETY: the memory is so mapped for reading and writing while the command uses it; nothing refers to it.
        let span = [unsafe { Segment::new(memory, bytes) }];
        let spans = if slice.operation.moves_data() { span.as_slice() } else { &[] };
        if slice.is_zeros {
            if let (Origin::Client { request: Some(request), .. }, Some(channel)) = (&work.origin, channel) {
                write_zeros(&channel.server.memory(request), slice.buffer_offset, bytes);
            }
            finished.push(CompletedCommand { work: place, result: Ok(()) });
            work.note_submitted(slice, now);
            return Submitted::AtOnce;
        }
        let token = self.in_flight.vacant_key();
        let command = Command::new(token as u64, slice.operation, slice.device_offset, slice.length, spans);
        if let Some(result) = self.device.carry_out(&command) {
            finished.push(CompletedCommand { work: place, result });
            work.note_submitted(slice, now);
            return Submitted::AtOnce;
        }
        let command = match (channel, &work.memory) {
            (Some(channel), _) => command.owner(channel.owner.clone()).region(by.region),
            (None, Some(memory)) => command.owner(memory.clone()),
            (None, None) => command,
        };
        if self.in_flight.is_empty() {
            self.progress_ns = now;
        }
        if self.device.submit(command).is_err() {
            return Submitted::Full;
        }
        // Commands without data cost the same whatever the length of their range.
        let bytes = if slice.operation.moves_data() { slice.length } else { 0 };
        // `insert` uses the vacant key that became the command's token.
        self.in_flight.insert(InFlight { work: place, user: by.user.map(|user| (user, bytes)) });
        work.note_submitted(slice, now);
        Submitted::InFlight { bytes }
    }

    /// Submits the only command of a client's request, which moves the bytes of one segment; `region` is the registered
    /// region with the memory of the request.
    #[expect(unsafe_code, reason = "a device is told where a request's memory is")]
    #[inline(always)]
    pub(crate) fn submit_plain(
        &mut self,
        (channel, memory): (&Channel, &RequestBuffer<'_>),
        (operation, segment): (Operation, DeviceSegment),
        region: Option<RegionId>,
        in_flight: InFlight,
        now: u64,
        finished: &mut Vec<CompletedCommand>,
    ) -> Submitted {
        // The buffer lies within the client's arena, as `bywash_channel` has checked, and is as long as the segment, as
        // `RequestState::take` has checked. The command's owner keeps the arena mapped or, for a command that ends before
        // `carry_out` returns, the borrowed channel does.
        // SAFETY: the memory is so mapped for reading and writing while the command uses it; nothing refers to it.
        let span = [unsafe { Segment::new(memory.as_ptr(), segment.length as usize) }];
        let token = self.in_flight.vacant_key() as u64;
        let command = Command::new(token, operation, segment.device_offset, segment.length, &span);
        if let Some(result) = self.device.carry_out(&command) {
            finished.push(CompletedCommand { work: in_flight.work, result });
            return Submitted::AtOnce;
        }
        if self.in_flight.is_empty() {
            self.progress_ns = now;
        }
        if self.device.submit(command.owner(channel.owner.clone()).region(region)).is_err() {
            return Submitted::Full;
        }
        // `insert` uses the vacant key that became the command's token.
        self.in_flight.insert(in_flight);
        Submitted::InFlight { bytes: segment.length }
    }

    /// Registers a client's pinned arena with the device.
    #[cold]
    pub(crate) fn register(&mut self, arena: &Arc<PinnedRegion>) -> Registration {
        match self.device.register(arena) {
            Ok(Some(region)) => Registration::Registered(RegisteredArena::new(region, arena)),
            Ok(None) => Registration::Refused,
            Err(error) => {
                tracing::debug!("device {} does without registered memory: {error}", self.name);
                Registration::Refused
            }
        }
    }

    /// Reaps the device's completed commands.
    #[inline]
    pub(crate) fn poll(&mut self, now: u64, finished: &mut Vec<CompletedCommand>) {
        // The flush before the server ends is not among the commands in flight.
        if self.in_flight.is_empty() && self.device.in_flight() == 0 {
            return;
        }
        let ServedDevice { device, in_flight, schedule, .. } = self;
        // Commands of one user that complete one after the other, which are counted together.
        let mut counted: Option<(schedule::ClientKey, CommandCosts)> = None;
        let count = device.reap(&mut |Completion { token, result, .. }| {
            let Some(InFlight { work, user }) = in_flight.try_remove(token as usize) else { return };
            finished.push(CompletedCommand { work, result });
            let Some((user, bytes)) = user else { return };
            match &mut counted {
                Some((counted, costs)) if *counted == user => costs.add(bytes),
                _ => {
                    if let Some((user, costs)) = counted.replace((user, CommandCosts::one(bytes))) {
                        schedule.completed_all(user, costs, now);
                    }
                }
            }
        });
        if let Some((user, costs)) = counted {
            schedule.completed_all(user, costs, now);
        }
        if count > 0 {
            self.note_progress(now);
        }
    }

    /// Removes a client from the schedule.
    pub(crate) fn remove_member(&mut self, member: DeviceMember) {
        self.schedule.leave(member.turn);
    }

    /// Notes that a command has completed or that the device is idle.
    #[inline]
    pub(crate) fn note_progress(&mut self, now: u64) {
        (self.progress_ns, self.is_stuck, self.is_full) = (now, false, false);
    }

    pub(crate) fn report(&self, number: usize) -> DeviceReport {
        DeviceReport {
            number: DeviceNumber(number as u32),
            name: self.name.clone(),
            bytes: self.geometry.bytes,
            block: self.geometry.block,
            how: self.device.description(),
            in_flight: self.device.in_flight(),
            is_stuck: self.is_stuck,
            counts: self.counts.clone(),
        }
    }
}

/// Fills a part of a request's buffer with zeros.
#[cold]
fn write_zeros(memory: &RequestBuffer<'_>, mut at: usize, bytes: usize) {
    static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
    let end = at + bytes;
    while at < end {
        at += memory.write(at, &ZEROS[..ZEROS.len().min(end - at)]).max(1);
    }
}
