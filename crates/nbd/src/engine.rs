//! Requests at work: commands are submitted to devices, and completions become replies.
//!
//! ```text
//!   start ──► carried out at once? ──► reply
//!               └─► parts ──► submitted ──► reaped ──► next part, flush ──► reply
//!                     └─► waiting, while the device is full
//! ```
//!
//! A request becomes one command, or several if it is longer than a command of its device. Invariant: a request
//! is in `requests` until all its commands have completed, and then becomes exactly one reply; its buffer lives
//! as long. A request has at most [`PARTS_MAX`] commands in flight. Called by `service` and `connection`.

use crate::buffer::{Buffer, LentBuffer, Pool};
use crate::disk::{Disk, Face};
use crate::handshake::Agreement;
use crate::layout::{RequestHeader, check, errno, flag};
use crate::order::OrderReply;
use crate::reply::{Failure, Reply};
use crate::request::{Action, error_value};
use crate::stats::Counters;
use bywash_device::{Command, CommandError, Device, Geometry, Operation};
use rustix::event::{PollFd, PollFlags};
use slab::Slab;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// Greatest number of commands of one request that are in flight.
const PARTS_MAX: u32 = 8;
/// Size of the memory of zeros that is written where no hole may come to be, in bytes.
const ZEROES: usize = 256 << 10;
/// Token of a flush that follows the commands of a request.
const FLUSH: u32 = u32::MAX;

/// A request that passed its checks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Task {
    /// Number of the connection.
    pub(crate) connection: usize,
    pub(crate) agreement: Agreement,
    pub(crate) header: RequestHeader,
    pub(crate) action: Action,
}

/// A request whose commands are in flight or wait to be submitted.
#[derive(Debug)]
struct Request {
    task: Task,
    memory: Option<LentBuffer>,
    memory_bytes: usize,
    /// Bytes of the range that have been submitted.
    submitted: u64,
    in_flight: u32,
    failures: Vec<Failure>,
    /// True if a flush is still to be submitted when all else has completed.
    flushes: bool,
    /// True if the request is in the queue of its device.
    is_waiting: bool,
}

/// A device, and the requests that it had no room for.
struct Served {
    device: Box<dyn Device>,
    geometry: Geometry,
    waiting: VecDeque<usize>,
    /// Reply to the order to withdraw the disk, sent when none of its requests is in flight.
    leaving: Option<OrderReply>,
}

/// A reply, and the connection that it is for.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) connection: usize,
    pub(crate) reply: Reply,
}

/// Devices, and the requests for them.
pub(crate) struct Engine {
    served: Slab<Served>,
    /// The disks that clients can choose; one that is withdrawn is only in `served`.
    pub(crate) faces: Vec<Face>,
    requests: Slab<Request>,
    pub(crate) pool: Pool,
    zeroes: Option<LentBuffer>,
    pub(crate) counters: Arc<Counters>,
    /// Completions that were just reaped; empty between calls.
    reaped: Vec<(u64, Result<(), CommandError>)>,
    /// Replies of requests that were not carried out at once.
    pub(crate) finished: Vec<Finished>,
}

impl Engine {
    /// Takes the devices, and the memory for payloads.
    pub(crate) fn new(disks: Vec<Disk>, pool: Pool, counters: Arc<Counters>) -> Engine {
        let mut engine = Engine {
            served: Slab::new(),
            faces: Vec::new(),
            requests: Slab::new(),
            pool,
            zeroes: None,
            counters,
            reaped: Vec::new(),
            finished: Vec::new(),
        };
        disks.into_iter().for_each(|disk| engine.add(disk));
        engine
    }

    /// Adds a disk, which clients can choose from now on.
    pub(crate) fn add(&mut self, Disk { device, face }: Disk) {
        let (geometry, waiting) = (face.geometry, VecDeque::new());
        let number = self.served.insert(Served { device, geometry, waiting, leaving: None });
        self.faces.push(Face { number, ..face });
    }

    /// Withdraws the disk `name`: no client can choose it any more. Returns its number; the caller disconnects the
    /// clients that use it, and then calls [`Engine::remove_withdrawn`].
    pub(crate) fn withdraw(&mut self, name: &str, reply: OrderReply) -> Result<usize, OrderReply> {
        let Some(at) = self.faces.iter().position(|face| face.name == name) else { return Err(reply) };
        let number = self.faces.remove(at).number;
        self.served[number].leaving = Some(reply);
        Ok(number)
    }

    /// Closes the devices of withdrawn disks that have no request in flight any more. Returns true if others are
    /// left.
    pub(crate) fn remove_withdrawn(&mut self) -> bool {
        let requests = &self.requests;
        let is_used = |number| requests.iter().any(|(_, request)| request.task.agreement.disk == number);
        let mut is_left = false;
        for number in self.disks() {
            let withdrawn = self.served.get_mut(number).filter(|served| served.leaving.is_some());
            match withdrawn.is_some().then(|| is_used(number)) {
                Some(true) => is_left = true,
                Some(false) => {
                    let Served { device, leaving, .. } = self.served.remove(number);
                    drop(device);
                    leaving.into_iter().for_each(|reply| reply.send(Ok(())));
                }
                None => {}
            }
        }
        is_left
    }

    /// Looks again at the size of the disk `name`. Clients are told of it when they choose the disk; requests of others are
    /// carried out within it.
    pub(crate) fn refresh(&mut self, name: &str) {
        let Some(face) = self.faces.iter_mut().find(|face| face.name == name) else { return };
        let served = &mut self.served[face.number];
        let now = served.device.refresh();
        if check(&now).is_ok() {
            (served.geometry.bytes, face.geometry.bytes) = (now.bytes, now.bytes);
        }
    }

    /// Returns the geometry of a disk that a client uses.
    #[inline]
    pub(crate) fn geometry(&self, disk: usize) -> &Geometry {
        &self.served[disk].geometry
    }

    /// Returns a range that has the numbers of all disks.
    fn disks(&self) -> Range<usize> {
        0..self.served.iter().next_back().map_or(0, |(number, _)| number + 1)
    }

    /// Carries out a request, with the memory that it reads into or writes from. Returns the reply, or `None`
    /// if it will be in `finished` later.
    #[inline]
    pub(crate) fn start(&mut self, task: Task, memory: Option<Buffer>) -> Option<Reply> {
        let Task { header, action, .. } = task;
        self.counters.requests.add(1);
        match action {
            Action::BlockStatus => return Some(Reply::status(header.cookie, header.length)),
            Action::Flush | Action::Disconnect => {}
            _ if header.length == 0 => return Some(nothing(&task, memory)),
            _ => {}
        }
        let mut memory = memory;
        match self.try_at_once(&task, memory.as_mut()) {
            Some(result) => Some(self.reply_at_once(&task, memory, result)),
            None => {
                self.insert(task, memory);
                None
            }
        }
    }

    /// Carries out a write at once whose payload is a part of `input`, if the device can. `None` if nothing was
    /// done.
    #[inline]
    pub(crate) fn write_in_place(
        &mut self,
        task: Task,
        input: &mut Buffer,
        range: Range<usize>,
    ) -> Option<Reply> {
        let served = &mut self.served[task.agreement.disk];
        let fits = u64::from(task.header.length) <= served.geometry.transfer_max;
        if !fits || !served.waiting.is_empty() || range.is_empty() {
            return None;
        }
        let operation = operation(&task.action)?;
        let result = input.carry_out(&mut *served.device, operation, task.header.offset, range)?;
        self.counters.requests.add(1);
        Some(self.reply_at_once(&task, None, result))
    }

    fn try_at_once(&mut self, task: &Task, memory: Option<&mut Buffer>) -> Option<Result<(), CommandError>> {
        let Task { agreement, header, action, .. } = *task;
        let served = &mut self.served[agreement.disk];
        let length = u64::from(header.length);
        if !served.waiting.is_empty() || flushes_behind(&action) {
            return None;
        }
        let operation = operation(&action)?;
        if let Some(buffer) = memory {
            let fits = length <= served.geometry.transfer_max;
            let range = 0..header.length as usize;
            return fits.then(|| buffer.carry_out(&mut *served.device, operation, header.offset, range))?;
        }
        if operation.moves_data() {
            // Zeros that are written as data; their memory is lent to commands in flight.
            return None;
        }
        let fits = length <= served.geometry.range_max;
        let command = Command::new(0, operation, header.offset, length, &[]);
        fits.then(|| served.device.carry_out(&command))?
    }

    #[inline]
    fn reply_at_once(
        &mut self,
        task: &Task,
        memory: Option<Buffer>,
        result: Result<(), CommandError>,
    ) -> Reply {
        let Task { agreement, header, action, .. } = *task;
        if let Err(error) = result {
            self.counters.failed.add(1);
            let range = header.offset..header.offset + u64::from(header.length);
            let mut failures = [Failure { range, error: error_value(error), message: error.to_string() }];
            return failed(task, memory, 0, &mut failures);
        }
        match (action, memory) {
            (Action::Read, Some(buffer)) => {
                self.counters.bytes_read.add(header.length.into());
                let offset = agreement.is_structured.then_some(header.offset);
                Reply::data(header.cookie, offset, buffer, header.length as usize)
            }
            (Action::Write { .. }, memory) => {
                self.counters.bytes_written.add(header.length.into());
                Reply::done(header.cookie, memory)
            }
            (_, memory) => Reply::done(header.cookie, memory),
        }
    }

    fn insert(&mut self, task: Task, memory: Option<Buffer>) {
        let memory_bytes = memory.as_ref().map_or(0, Buffer::len);
        let memory = match task.action {
            Action::WriteZeroes { is_written: true, .. } => Some(self.zeroes()),
            _ => memory.map(Buffer::lend),
        };
        let key = self.requests.insert(Request {
            task,
            memory,
            memory_bytes,
            submitted: 0,
            in_flight: 0,
            failures: Vec::new(),
            flushes: task.action == Action::Flush || flushes_behind(&task.action),
            is_waiting: false,
        });
        let served = &mut self.served[task.agreement.disk];
        if served.waiting.is_empty() {
            self.settle(key);
        } else {
            self.requests[key].is_waiting = true;
            served.waiting.push_back(key);
        }
    }

    /// Returns zeros, which nobody ever writes to.
    fn zeroes(&mut self) -> LentBuffer {
        self.zeroes.get_or_insert_with(|| Buffer::new(ZEROES).lend()).clone()
    }

    /// Submits what the request still needs, or finishes it. Queues it if the device is full.
    fn settle(&mut self, key: usize) {
        let disk = self.requests[key].task.agreement.disk;
        if self.submit(key, disk) {
            if self.requests[key].in_flight == 0 {
                self.finish(key);
            }
            return;
        }
        if self.served[disk].device.in_flight() > 0 {
            self.requests[key].is_waiting = true;
            self.served[disk].waiting.push_back(key);
            return;
        }
        // The device has nothing in flight and still does not take this command, so waiting would not help.
        let request = &mut self.requests[key];
        let range = request.task.header.offset..request.task.header.offset;
        let message = "the device takes no command".to_owned();
        request.failures.push(Failure { range, error: errno::EIO, message });
        self.finish(key);
    }

    /// Submits commands of a request until it needs none or has enough in flight. Returns false if the device
    /// is full.
    fn submit(&mut self, key: usize, disk: usize) -> bool {
        let Served { device, geometry, .. } = &mut self.served[disk];
        let (request, device) = (&mut self.requests[key], &mut **device);
        let token = |part: u32| (key as u64) << 32 | u64::from(part);
        let header = request.task.header;
        while let Some(operation) = request.next_operation() {
            if operation == Operation::Flush {
                let command = Command::new(token(FLUSH), operation, 0, 0, &[]);
                if device.submit(command).is_err() {
                    return false;
                }
                request.flushes = false;
                request.in_flight += 1;
                continue;
            }
            let (size, part) = request.part(geometry);
            let offset = header.offset + request.submitted;
            let is_submitted = match &request.memory {
                Some(memory) => {
                    let first = match request.task.action {
                        // Each part is written from the same zeros.
                        Action::WriteZeroes { .. } => 0,
                        _ => request.submitted as usize,
                    };
                    memory.submit(device, token(part), operation, offset, first..first + size as usize)
                }
                None => device.submit(Command::new(token(part), operation, offset, size, &[])).is_ok(),
            };
            if !is_submitted {
                return false;
            }
            request.submitted += size;
            request.in_flight += 1;
        }
        true
    }

    /// Reaps all devices. Replies of requests that are over are in `finished` afterwards. Returns the number of
    /// completions.
    pub(crate) fn reap(&mut self) -> usize {
        let mut count = 0;
        for disk in self.disks() {
            let busy = |served: &&mut Served| served.device.in_flight() > 0;
            let Some(served) = self.served.get_mut(disk).filter(busy) else { continue };
            let reaped = &mut self.reaped;
            served.device.reap(&mut |completion| reaped.push((completion.token, completion.result)));
            count += self.reaped.len();
            let mut reaped = std::mem::take(&mut self.reaped);
            reaped.drain(..).for_each(|(token, result)| self.complete(token, result));
            self.reaped = reaped;
            self.submit_waiting(disk);
        }
        count
    }

    fn complete(&mut self, token: u64, result: Result<(), CommandError>) {
        let (key, part) = ((token >> 32) as usize, token as u32);
        // A device that reports an unknown token is faulty, and the report is ignored.
        let Some(request) = self.requests.get_mut(key).filter(|request| request.in_flight > 0) else {
            return;
        };
        request.in_flight -= 1;
        if let Err(error) = result {
            let geometry = &self.served[request.task.agreement.disk].geometry;
            let range = request.range_of(part, geometry);
            request.failures.push(Failure { range, error: error_value(error), message: error.to_string() });
        }
        if !request.is_waiting {
            self.settle(key);
        }
    }

    /// Submits requests that the device had no room for, in their order.
    fn submit_waiting(&mut self, disk: usize) {
        while let Some(key) = self.served[disk].waiting.pop_front() {
            self.requests[key].is_waiting = false;
            if !self.submit(key, disk) {
                if self.served[disk].device.in_flight() > 0 {
                    self.requests[key].is_waiting = true;
                    self.served[disk].waiting.push_front(key);
                    return;
                }
                self.settle(key);
            } else if self.requests[key].in_flight == 0 {
                self.finish(key);
            }
        }
    }

    fn finish(&mut self, key: usize) {
        let Request { task, memory, memory_bytes, mut failures, .. } = self.requests.remove(key);
        let is_own = memory_bytes > 0;
        let buffer = memory.filter(|_| is_own).and_then(LentBuffer::take_back);
        let lost = if is_own && buffer.is_none() { memory_bytes } else { 0 };
        if lost > 0 && failures.is_empty() && task.action == Action::Read {
            let range = task.header.offset..task.header.offset;
            let message = "the device still uses the memory of a completed command".to_owned();
            failures.push(Failure { range, error: errno::EIO, message });
        }
        let reply = if failures.is_empty() {
            self.reply_at_once(&task, buffer, Ok(())).lost(lost)
        } else {
            self.counters.failed.add(1);
            failed(&task, buffer, lost, &mut failures)
        };
        self.finished.push(Finished { connection: task.connection, reply });
    }

    /// Returns true if requests are in flight.
    pub(crate) fn is_busy(&self) -> bool {
        !self.requests.is_empty()
    }

    /// Prepares the descriptors of devices for sleeping. Returns true if the caller has to poll instead.
    pub(crate) fn arm(&mut self) -> bool {
        let served = self.served.iter_mut().map(|(_, served)| served);
        let busy = served.filter(|served| served.device.in_flight() > 0);
        // Each device is armed, though one of them suffices to stay awake.
        busy.fold(false, |awake, served| {
            awake | (served.device.arm() || served.device.descriptor().is_none())
        })
    }

    /// Appends the descriptors of devices with commands in flight.
    pub(crate) fn descriptors<'a>(&'a self, waiting: &mut Vec<PollFd<'a>>) {
        let served = self.served.iter().map(|(_, served)| served);
        let busy = served.filter(|served| served.device.in_flight() > 0);
        let descriptors = busy.filter_map(|served| served.device.descriptor());
        waiting.extend(descriptors.map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN)));
    }
}

impl Request {
    /// Returns the operation of the next command; `None` if none is needed now.
    fn next_operation(&self) -> Option<Operation> {
        let has_failed = !self.failures.is_empty() && self.task.action != Action::Read;
        if self.in_flight >= PARTS_MAX || has_failed {
            return None;
        }
        match operation(&self.task.action) {
            Some(Operation::Flush) | None => {}
            operation if self.submitted < u64::from(self.task.header.length) => return operation,
            _ => {}
        }
        (self.flushes && self.in_flight == 0).then_some(Operation::Flush)
    }

    /// Returns the greatest size of a part, in bytes: a multiple of the block.
    fn part_max(&self, geometry: &Geometry) -> u64 {
        let most = match (&self.memory, self.task.action) {
            (_, Action::WriteZeroes { is_written: true, .. }) => geometry.transfer_max.min(ZEROES as u64),
            (Some(_), _) => geometry.transfer_max,
            (None, _) => geometry.range_max,
        };
        // `layout::check` has found that the device takes at least a block.
        most - most % u64::from(geometry.block)
    }

    /// Returns the size of the next part, in bytes, and its number.
    fn part(&self, geometry: &Geometry) -> (u64, u32) {
        let most = self.part_max(geometry);
        let left = u64::from(self.task.header.length) - self.submitted;
        // A part has at least 512 bytes, so the number of parts fits.
        (left.min(most), (self.submitted / most) as u32)
    }

    /// Returns the range of a part, as offsets in the export.
    fn range_of(&self, part: u32, geometry: &Geometry) -> Range<u64> {
        let header = &self.task.header;
        if part == FLUSH {
            return header.offset..header.offset;
        }
        let (most, end) = (self.part_max(geometry), header.offset + u64::from(header.length));
        let first = header.offset + u64::from(part) * most;
        first..(first + most).min(end)
    }
}

/// Returns the operation that carries out a request; `None` for those that need no command.
#[inline]
fn operation(action: &Action) -> Option<Operation> {
    Some(match action {
        Action::Read => Operation::Read,
        Action::Write { is_durable: true } | Action::WriteZeroes { is_durable: true, is_written: true } => {
            Operation::WriteDurable
        }
        Action::Write { is_durable: false } | Action::WriteZeroes { is_durable: false, is_written: true } => {
            Operation::Write
        }
        Action::Flush => Operation::Flush,
        Action::Trim { .. } => Operation::Discard,
        Action::WriteZeroes { is_written: false, .. } => Operation::WriteZeroes,
        Action::BlockStatus | Action::Disconnect => return None,
    })
}

/// Returns true if the request's durability needs a flush, since no command has it by itself.
#[inline]
fn flushes_behind(action: &Action) -> bool {
    matches!(
        action,
        Action::Trim { is_durable: true } | Action::WriteZeroes { is_durable: true, is_written: false }
    )
}

/// Makes the reply of a request with an empty range.
fn nothing(task: &Task, memory: Option<Buffer>) -> Reply {
    match task.action {
        Action::Read if task.agreement.is_structured => Reply::none(task.header.cookie),
        _ => Reply::done(task.header.cookie, memory),
    }
}

/// Makes the reply of a request that has failed.
fn failed(task: &Task, memory: Option<Buffer>, lost_bytes: usize, failures: &mut [Failure]) -> Reply {
    let Task { agreement, header, action, .. } = *task;
    let lost_bytes = lost_bytes + memory.as_ref().map_or(0, Buffer::len);
    let has_parts = failures.iter().all(|failure| !failure.range.is_empty());
    let reply = match (action, &memory) {
        (Action::Read, Some(buffer)) if agreement.is_structured && has_parts => {
            let range = header.offset..header.offset + u64::from(header.length);
            let is_whole = header.flags & flag::DF != 0;
            Reply::partial(header.cookie, range, is_whole, buffer.bytes(), failures)
        }
        _ => {
            let Failure { error, message, .. } = &failures[0];
            Reply::error(header.cookie, agreement.is_structured, *error, message)
        }
    };
    reply.lost(lost_bytes)
}
