//! A device, as the core uses it: whose turn it is, and whether it still answers.

use crate::core::Finished;
use crate::core::arenas::AtDevice;
use crate::core::client::{Client, Member};
use crate::core::order::{DeviceBox, DeviceReport, Reply};
use crate::core::work::{Origin, Slice, Work, slice_of};
use crate::schedule::{self, ByUser};
use bywash_device::{Command, Device, Done, Geometry, Operation, Pinned, RegionId, Span};
use bywash_protocol::report::Counts;
use bywash_volume::DeviceNumber;
use slab::Slab;
use std::sync::Arc;

/// A command that a device has.
struct Issued {
    work: usize,
    /// User whose window it counts against, and its bytes; none: it had no turn.
    user: Option<(schedule::Client, u64)>,
}

/// Client on whose behalf a command is submitted, or the server itself.
#[derive(Clone, Copy)]
pub(crate) struct Submitter<'a> {
    /// None: the server itself.
    pub(crate) client: Option<&'a Client>,
    /// Whose turn it is; none: it needs no turn.
    pub(crate) turn: Option<schedule::Member>,
    /// The client's arena, if the device has it registered.
    pub(crate) region: Option<RegionId>,
}

/// A device.
pub(crate) struct Disk {
    pub(crate) name: String,
    pub(crate) device: Box<dyn Device>,
    pub(crate) geometry: Geometry,
    /// Commands take less time whose memory was registered.
    pub(crate) registers: bool,
    /// Bytes of a command at most.
    pub(crate) slice: u64,
    /// Who wants something of it.
    pub(crate) schedule: ByUser,
    /// Commands that the device has, by their tokens.
    in_flight: Slab<Issued>,
    /// Clients, by the place that they have in the schedule.
    pub(crate) holders: Vec<usize>,
    /// It is among those that are looked at.
    pub(crate) is_active: bool,
    /// It takes no command now.
    pub(crate) is_full: bool,
    /// When something of it was done last, or it had nothing to do.
    pub(crate) progress_ns: u64,
    /// Nothing was done for so long that nobody is let wait for it.
    pub(crate) is_stuck: bool,
    pub(crate) counts: Counts,
    /// The user of whose file it is made; none: it is the server's own.
    pub(crate) owner: Option<u32>,
    /// Somebody wants it back.
    pub(crate) leaving: Option<Reply<Option<DeviceBox>>>,
}

impl Disk {
    pub(crate) fn new(name: String, device: Box<dyn Device>, owner: Option<u32>, now: u64) -> Disk {
        let geometry = device.geometry();
        Disk {
            name,
            geometry,
            registers: device.registers(),
            slice: slice_of(&geometry),
            in_flight: Slab::with_capacity(device.depth()),
            device,
            schedule: ByUser::new(),
            holders: Vec::new(),
            is_active: false,
            is_full: false,
            progress_ns: now,
            is_stuck: false,
            counts: Counts::default(),
            owner,
            leaving: None,
        }
    }

    /// Takes a client in that wants something for the first time of this device, which has number `device`.
    #[cold]
    pub(crate) fn take_in(
        &mut self,
        client: &mut Client,
        number: usize,
        device: usize,
    ) -> Result<Member, schedule::Error> {
        let turn = self.schedule.join(client.uid, client.limits)?;
        if self.holders.len() <= turn.index() {
            self.holders.resize(turn.index() + 1, usize::MAX);
        }
        self.holders[turn.index()] = number;
        if client.members.len() <= device {
            client.members.resize(device + 1, None);
        }
        Ok(*client.members[device].insert(Member { turn, arena: AtDevice::Unknown }))
    }

    /// Submits a slice of some work, a client's or the server's own; false: the device is full.
    #[expect(unsafe_code, reason = "a device is told where a request's memory is")]
    #[inline]
    pub(crate) fn submit(
        &mut self,
        by: Submitter<'_>,
        work: &mut Work,
        place: usize,
        slice: &Slice,
        now: u64,
        finished: &mut Vec<Finished>,
    ) -> bool {
        let channel = by.client.and_then(|client| client.channel.as_ref());
        let memory = match (&work.origin, channel) {
            (Origin::Client { request: Some(request), .. }, Some(channel)) => {
                channel.server.memory(request).as_ptr().wrapping_add(slice.memory)
            }
            _ => std::ptr::dangling_mut(),
        };
        let bytes = match slice.operation {
            Operation::CompareAndWrite => 2 * slice.length as usize,
            _ => slice.length as usize,
        };
        // SAFETY: where data goes, a client's request was taken whose buffer is within the client's arena (`channel`), and
        // the stretches were laid out within that buffer (`Work::take`). The arena is mapped as long as the owner lives
        // that goes along, or as the client does, if all is done when the command returns; and no reference ever leads there.
        let span = [unsafe { Span::new(memory, bytes) }];
        let spans = if slice.operation.moves_data() { span.as_slice() } else { &[] };
        let token = self.in_flight.vacant_key();
        let command = Command::new(token as u64, slice.operation, slice.place, slice.length, spans);
        let is_taken = match self.device.carry_out(&command) {
            Some(result) => {
                finished.push(Finished { work: place, result });
                true
            }
            None => self.queue(command, by, place, slice, now),
        };
        if is_taken {
            work.note_submitted(slice, now);
        }
        is_taken
    }

    /// Registers a client's arena, which is pinned, with the device.
    #[cold]
    pub(crate) fn register(&mut self, arena: &Arc<Pinned>) -> AtDevice {
        match self.device.register(arena) {
            Ok(region) => region.map_or(AtDevice::Refused, AtDevice::Registered),
            Err(error) => {
                tracing::debug!("device {} does without registered memory: {error}", self.name);
                AtDevice::Refused
            }
        }
    }

    /// Submits a command that takes its time; false: the device is full.
    fn queue(
        &mut self,
        command: Command<'_>,
        by: Submitter<'_>,
        work: usize,
        slice: &Slice,
        now: u64,
    ) -> bool {
        let command = match by.client.and_then(|client| client.channel.as_ref()) {
            Some(channel) => command.owner(channel.owner.clone()).region(by.region),
            None => command,
        };
        if self.device.under_way() == 0 {
            self.progress_ns = now;
        }
        if self.device.submit(command).is_err() {
            return false;
        }
        // What a command without data is worth does not grow with what it is about.
        let bytes = if slice.operation.moves_data() { slice.length } else { 0 };
        let user = by.turn.and_then(|member| self.schedule.submitted(member, bytes, now));
        // In the place whose key is the command's token.
        self.in_flight.insert(Issued { work, user: user.map(|user| (user, bytes)) });
        true
    }

    /// Asks the device what is done.
    #[inline]
    pub(crate) fn poll(&mut self, now: u64, finished: &mut Vec<Finished>) {
        if self.device.under_way() == 0 {
            return;
        }
        let Disk { device, in_flight, schedule, .. } = self;
        let count = device.poll(&mut |Done { token, result, .. }| {
            let Some(Issued { work, user }) = in_flight.try_remove(token as usize) else { return };
            if let Some((user, bytes)) = user {
                schedule.completed(user, bytes, now);
            }
            finished.push(Finished { work, result });
        });
        if count > 0 {
            self.note_progress(now);
        }
    }

    /// A client is gone.
    pub(crate) fn let_go(&mut self, member: Member) {
        self.schedule.leave(member.turn);
    }

    /// Something was done, or there is nothing to do.
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
            how: self.device.explain(),
            under_way: self.device.under_way(),
            is_stuck: self.is_stuck,
            counts: self.counts.clone(),
        }
    }
}
