//! A device, as the core uses it: whose turn it is, and whether it still answers.

use crate::core::Finished;
use crate::core::client::{Channel, Client, Member};
use crate::core::order::{DeviceBox, DeviceReport, Reply};
use crate::core::work::{Origin, Slice, Work, slice_of};
use crate::schedule::{self, Schedule};
use bywash_device::{Command, Device, Done, Geometry, Operation, Region, RegionId, Span};
use bywash_protocol::report::Counts;
use bywash_volume::DeviceNumber;

/// Larger arenas are not registered: the kernel takes all of their memory then, while requests wait.
const REGISTERED_MAX: usize = 16 << 20;

/// A device.
pub(crate) struct Disk {
    pub(crate) name: String,
    pub(crate) device: Box<dyn Device>,
    pub(crate) geometry: Geometry,
    /// Bytes of a command at most.
    pub(crate) slice: u64,
    /// Who wants something of it.
    pub(crate) schedule: Schedule,
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
    /// Somebody wants it back.
    pub(crate) leaving: Option<Reply<Option<DeviceBox>>>,
}

impl Disk {
    pub(crate) fn new(name: String, device: Box<dyn Device>, now: u64) -> Disk {
        let geometry = device.geometry();
        Disk {
            name,
            geometry,
            slice: slice_of(&geometry),
            device,
            schedule: Schedule::new(),
            holders: Vec::new(),
            is_active: false,
            is_full: false,
            progress_ns: now,
            is_stuck: false,
            counts: Counts::default(),
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
        let turn = self.schedule.join(client.limits)?;
        if self.holders.len() <= turn.index() {
            self.holders.resize(turn.index() + 1, usize::MAX);
        }
        self.holders[turn.index()] = number;
        if client.members.len() <= device {
            client.members.resize(device + 1, None);
        }
        let region = client.channel.as_ref().and_then(|channel| self.register(channel));
        Ok(*client.members[device].insert(Member { turn, region }))
    }

    /// Submits a slice of some work, a client's or the server's own; false: the device is full.
    #[expect(unsafe_code, reason = "a device is told where a request's memory is")]
    #[inline]
    pub(crate) fn submit(
        &mut self,
        client: Option<&Client>,
        work: &mut Work,
        place: usize,
        slice: &Slice,
        now: u64,
        finished: &mut Vec<Finished>,
    ) -> bool {
        let channel = client.and_then(|client| client.channel.as_ref());
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
        let command = Command::new(place as u64, slice.operation, slice.place, slice.length, spans);
        let is_taken = match self.device.carry_out(&command) {
            Some(result) => {
                finished.push(Finished { work: place, result });
                true
            }
            None => self.queue(command, client, slice.device, now),
        };
        if is_taken {
            work.note_submitted(slice, now);
        }
        is_taken
    }

    /// Submits a command that takes its time, to this device, which has number `device`; false: it is full.
    fn queue(&mut self, command: Command<'_>, client: Option<&Client>, device: usize, now: u64) -> bool {
        let command = match client.map(|client| (client.channel.as_ref(), client.region(device))) {
            Some((Some(channel), region)) => command.owner(channel.owner.clone()).region(region),
            _ => command,
        };
        if self.device.under_way() == 0 {
            self.progress_ns = now;
        }
        self.device.submit(command).is_ok()
    }

    /// Asks the device what is done.
    #[inline]
    pub(crate) fn poll(&mut self, now: u64, finished: &mut Vec<Finished>) {
        if self.device.under_way() == 0 {
            return;
        }
        let count = self.device.poll(&mut |Done { token, result, .. }| {
            finished.push(Finished { work: token as usize, result });
        });
        if count > 0 {
            self.note_progress(now);
        }
    }

    /// Prepares the device for a client's arena. Without that it works as well.
    #[expect(unsafe_code, reason = "a device is told where a client's arena is")]
    fn register(&mut self, channel: &Channel) -> Option<RegionId> {
        let arena = channel.memories.arena().filter(|arena| arena.len() <= REGISTERED_MAX)?;
        // SAFETY: the arena is mapped for reading and writing as long as the owner lives, and no reference leads there.
        let region = unsafe { Region::new(arena.as_ptr(), arena.len(), channel.memories.clone()) };
        let registered = self.device.register(region);
        registered.unwrap_or_else(|error| {
            tracing::debug!("device '{}' does without registered memory: {error}", self.name);
            None
        })
    }

    /// A client is gone.
    pub(crate) fn let_go(&mut self, member: Member) {
        self.schedule.leave(member.turn);
        if let Some(region) = member.region {
            self.device.unregister(region);
        }
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
