//! What a request comes to: stretches of devices, carried out slice by slice.
//!
//! ```text
//!   request ──► asked ──► checked against the client's table ──► stretches ──► slices, one a turn ──► commands
//!    (rings)    (layout)     (right, bounds, alignment)          of devices      of a schedule        of a device
//! ```
//!
//! Invariant: a stretch is what a table allowed, whole blocks of its device, and its memory lies within the buffer that
//! came with the request. All checks are made before the first command.

use crate::core::client::Client;
use crate::core::disk::Disk;
use crate::core::order::Reply;
use bywash_channel::{Request, Ticket};
use bywash_device::{Failure, Operation};
use bywash_protocol::layout::{self, Opcode, PIECE_BYTES, Piece, Status};
use bywash_protocol::report::Counts;
use bywash_volume::{Access, Bytes, GrantNumber, Pieces, Refusal, Span};
use slab::Slab;

/// Most bytes of a command: so long nobody else has a turn.
const SLICE: u64 = 256 << 10;

/// Stretches for which work has room when it is used again: of a scattered volume a request may have thousands.
const STRETCHES_KEPT: usize = 64;

/// Who gets to know what became of it.
#[derive(Debug)]
pub(crate) enum Origin {
    /// A client's request; none any more: it was answered before it was done, or the client is gone.
    Client { client: usize, request: Option<Ticket> },
    /// The server's own.
    Server(Option<Reply<Status>>),
}

/// A piece of a device, and the memory that goes there or comes from there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stretch {
    pub(crate) device: usize,
    /// What the client's state of the grant is kept as.
    pub(crate) grant: usize,
    pub(crate) place: u64,
    pub(crate) length: u64,
    /// Where its bytes are in the request's buffer.
    pub(crate) memory: usize,
}

impl Stretch {
    #[inline]
    fn new(device: usize, grant: usize, span: Span, memory: usize) -> Stretch {
        Stretch { device, grant, place: span.start.0, length: span.length.0, memory }
    }
}

/// A command to be submitted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slice {
    pub(crate) operation: Operation,
    pub(crate) place: u64,
    pub(crate) length: u64,
    pub(crate) memory: usize,
    /// Of its stretch.
    is_last: bool,
}

/// A request that is being carried out.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) origin: Origin,
    is_used: bool,
    pub(crate) opcode: Opcode,
    fua: bool,
    /// How its commands are carried out: when all data is there, a flush may make it durable.
    operation: Operation,
    pub(crate) stretches: Vec<Stretch>,
    /// The stretch of the next slice, and what of it was submitted.
    next: usize,
    submitted: u64,
    /// Commands under way.
    pub(crate) commands: u32,
    /// How it went so far.
    pub(crate) status: Status,
    /// Bytes, or which piece was refused.
    pub(crate) value: u64,
    /// When it was taken.
    pub(crate) began_ns: u64,
    /// When something of it was begun or done last.
    pub(crate) moved_ns: u64,
}

/// Why a request is not carried out: what the client is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) status: Status,
    pub(crate) value: u64,
}

impl Refused {
    fn new(status: Status, value: u64) -> Refused {
        Refused { status, value }
    }

    fn of(refusal: Refusal, piece: u64) -> Refused {
        match refusal {
            Refusal::Unknown { .. } => Refused::new(Status::NoGrant, piece),
            Refusal::Revoked { .. } => Refused::new(Status::Revoked, piece),
            Refusal::Right { .. } => Refused::new(Status::Denied, piece),
            Refusal::Overflow { .. } | Refusal::Bounds { .. } => Refused::new(Status::OutOfBounds, piece),
            Refusal::Scattered { served, .. } => Refused::new(Status::Scattered, served.0),
        }
    }
}

/// Work, in places that are used again with the memory that they have.
#[derive(Default)]
pub(crate) struct Works {
    pub(crate) all: Vec<Work>,
    free: Vec<usize>,
}

impl Works {
    /// One that nobody uses, and its place.
    #[inline]
    pub(crate) fn take(&mut self) -> (usize, &mut Work) {
        let place = match self.free.pop() {
            Some(place) => place,
            None => self.grow(),
        };
        let work = &mut self.all[place];
        work.is_used = true;
        (place, work)
    }

    #[cold]
    fn grow(&mut self) -> usize {
        self.all.push(Work::empty());
        self.all.len() - 1
    }

    #[inline]
    pub(crate) fn give(&mut self, place: usize) {
        let work = &mut self.all[place];
        work.is_used = false;
        if work.stretches.capacity() > STRETCHES_KEPT {
            work.forget_many();
        }
        self.free.push(place);
    }

    pub(crate) fn is_none_in_use(&self) -> bool {
        self.free.len() == self.all.len()
    }

    pub(crate) fn in_use(&self) -> impl Iterator<Item = usize> + '_ {
        self.all.iter().enumerate().filter_map(|(place, work)| work.is_used.then_some(place))
    }
}

impl Work {
    /// Nothing yet: what is used again has room already.
    pub(crate) fn empty() -> Work {
        Work {
            origin: Origin::Server(None),
            is_used: false,
            opcode: Opcode::Flush,
            fua: false,
            operation: Operation::Flush,
            stretches: Vec::new(),
            next: 0,
            submitted: 0,
            commands: 0,
            status: Status::Done,
            value: 0,
            began_ns: 0,
            moved_ns: 0,
        }
    }

    /// Gives the memory back that few requests need.
    #[cold]
    fn forget_many(&mut self) {
        self.stretches = Vec::new();
    }

    fn begin(&mut self, opcode: Opcode, fua: bool, now: u64) {
        self.stretches.clear();
        (self.opcode, self.fua, self.operation) = (opcode, fua, operation_of(opcode, fua));
        (self.next, self.submitted, self.commands) = (0, 0, 0);
        (self.status, self.value) = (Status::Done, 0);
        (self.began_ns, self.moved_ns) = (now, now);
    }

    /// Zeroes of the server's own.
    pub(crate) fn clear(&mut self, device: usize, place: u64, length: u64, reply: Reply<Status>, now: u64) {
        self.begin(Opcode::WriteZeroes, true, now);
        self.origin = Origin::Server(Some(reply));
        self.stretches.push(Stretch { device, grant: NO_GRANT, place, length, memory: 0 });
        self.value = length;
    }

    /// What a client's request comes to; whose it is is for the caller to note. The request's memory may change at any
    /// time: of it only pieces are read, once.
    #[inline]
    pub(crate) fn take(
        &mut self,
        client: &Client,
        request: &Request,
        disks: &Slab<Disk>,
        now: u64,
    ) -> Result<(), Refused> {
        let asked = layout::asked(request.opcode(), request.flags(), request.arguments(), request.len())
            .map_err(|_| Refused::new(Status::Malformed, 0))?;
        self.begin(asked.opcode, asked.fua, now);
        match asked.opcode {
            Opcode::Flush => {
                let grant = GrantNumber::from_word(asked.piece.grant);
                let device = client.table.find(grant).map_err(|refusal| Refused::of(refusal, 0))?.device();
                let (device, grant) = (device.0 as usize, client.state_of(grant));
                self.stretches.push(Stretch { device, grant, place: 0, length: 0, memory: 0 });
            }
            Opcode::ReadMany | Opcode::WriteMany => {
                self.take_many(client, request, asked.head, asked.data, disks)?;
            }
            _ => {
                self.lay_out(client, asked.piece, 0, 0, disks)?;
                self.value = asked.piece.length;
            }
        }
        Ok(())
    }

    #[inline(never)]
    fn take_many(
        &mut self,
        client: &Client,
        request: &Request,
        head: usize,
        data: u64,
        disks: &Slab<Disk>,
    ) -> Result<(), Refused> {
        let Some(channel) = &client.channel else { return Err(Refused::new(Status::Failed, 0)) };
        let count = (head / PIECE_BYTES) as u64;
        let memory = channel.server.memory(request);
        let mut passed = 0u64;
        for number in 0..count {
            let mut bytes = [0; PIECE_BYTES];
            memory.read(number as usize * PIECE_BYTES, &mut bytes);
            let piece = Piece::of_bytes(&bytes);
            let malformed = Refused::new(Status::Malformed, number);
            if piece.length > data - passed {
                return Err(malformed);
            }
            self.lay_out(client, piece, head + passed as usize, number, disks)?;
            passed += piece.length;
        }
        if passed != data {
            return Err(Refused::new(Status::Malformed, count));
        }
        self.value = data;
        Ok(())
    }

    /// Where a piece is on its device.
    // Inlined, so that what it answers stays in registers.
    #[inline(always)]
    fn lay_out(
        &mut self,
        client: &Client,
        piece: Piece,
        memory: usize,
        number: u64,
        disks: &Slab<Disk>,
    ) -> Result<(), Refused> {
        let grant = GrantNumber::from_word(piece.grant);
        let (offset, length) = (Bytes(piece.offset), Bytes(piece.length));
        let pieces = client
            .table
            .check(grant, offset, length, self.wanted())
            .map_err(|refusal| Refused::of(refusal, number))?;
        let device = pieces.device().0 as usize;
        let disk = disks.get(device).ok_or(Refused::new(Status::Failed, number))?;
        let block = u64::from(disk.geometry.block);
        let is_odd = (piece.offset | piece.length) & (block - 1) != 0;
        if is_odd || (self.opcode == Opcode::CompareAndWrite && piece.length != block) {
            return Err(Refused::new(Status::Malformed, number));
        }
        if disk.is_stuck {
            return Err(Refused::new(Status::TimedOut, number));
        }
        let grant = client.state_of(grant);
        match pieces.only() {
            Some(span) => self.stretches.push(Stretch::new(device, grant, span, memory)),
            None => self.add_pieces(device, grant, pieces, memory),
        }
        Ok(())
    }

    // A call: what is inlined for several would be in the way of the others, which have one.
    #[inline(never)]
    fn add_pieces(&mut self, device: usize, grant: usize, pieces: Pieces<'_>, mut memory: usize) {
        for span in pieces {
            self.stretches.push(Stretch::new(device, grant, span, memory));
            memory += span.length.0 as usize;
        }
    }

    /// What the grants must allow.
    #[inline]
    fn wanted(&self) -> Access {
        match self.opcode {
            Opcode::Read | Opcode::ReadMany | Opcode::Flush => Access::Read,
            Opcode::CompareAndWrite => Access::ReadWrite,
            Opcode::Write | Opcode::WriteMany | Opcode::Discard | Opcode::WriteZeroes => Access::Write,
        }
    }

    /// The next command, which is for this device: see [`Work::next_device`].
    #[inline]
    pub(crate) fn next_slice(&self, disk: &Disk) -> Slice {
        let stretch = &self.stretches[self.next];
        let most = match self.operation {
            Operation::Flush => u64::MAX,
            Operation::Discard => disk.geometry.transfer_max,
            _ => disk.slice,
        };
        let left = stretch.length - self.submitted;
        Slice {
            operation: self.operation,
            place: stretch.place + self.submitted,
            length: left.min(most),
            memory: stretch.memory + self.submitted as usize,
            is_last: left <= most,
        }
    }

    /// The device of the next command; none if all were submitted, or it has failed.
    #[inline]
    pub(crate) fn next_device(&self) -> Option<usize> {
        match self.status {
            Status::Done => self.stretches.get(self.next).map(|stretch| stretch.device),
            _ => None,
        }
    }

    /// The slice was submitted.
    #[inline]
    pub(crate) fn note_submitted(&mut self, slice: &Slice, now: u64) {
        self.moved_ns = now;
        self.commands += 1;
        (self.next, self.submitted) = match slice.is_last {
            true => (self.next + 1, 0),
            false => (self.next, self.submitted + slice.length),
        };
    }

    /// One of its commands is done.
    #[inline]
    pub(crate) fn note_done(&mut self, result: Result<(), Failure>, now: u64) {
        self.moved_ns = now;
        self.commands -= 1;
        if let Err(failure) = result
            && self.status == Status::Done
        {
            self.status = status_of(failure);
        }
    }

    /// Goes on to make durable what was written, if that is asked for and not what the commands did; true: there is more
    /// to be submitted.
    #[inline]
    pub(crate) fn turn_to_flush(&mut self) -> bool {
        let by_flush = matches!(self.operation, Operation::WriteZeroes | Operation::CompareAndWrite);
        if !self.fua || !by_flush || self.status != Status::Done {
            return false;
        }
        // All of it is on one device.
        let Some(last) = self.stretches.len().checked_sub(1) else { return false };
        (self.operation, self.next, self.submitted) = (Operation::Flush, last, 0);
        true
    }

    /// Every command was submitted that there is.
    #[inline]
    pub(crate) fn is_submitted(&self) -> bool {
        self.next == self.stretches.len()
    }

    /// Counts it for its client, its grants and its devices.
    #[inline]
    pub(crate) fn count(&self, client: &mut Client, disks: &mut Slab<Disk>, now: u64) {
        self.note(&mut client.counts, self.value, now);
        let [stretch] = self.stretches.as_slice() else { return self.count_many(client, disks, now) };
        self.note(&mut client.states[stretch.grant].counts, stretch.length, now);
        self.note(&mut disks[stretch.device].counts, stretch.length, now);
    }

    /// Counts it for its grants and its devices: stretches of one grant, and of one device, follow one another.
    #[inline(never)]
    fn count_many(&self, client: &mut Client, disks: &mut Slab<Disk>, now: u64) {
        for stretches in self.stretches.chunk_by(|one, next| one.grant == next.grant) {
            self.note(&mut client.states[stretches[0].grant].counts, bytes_of(stretches), now);
        }
        for stretches in self.stretches.chunk_by(|one, next| one.device == next.device) {
            self.note(&mut disks[stretches[0].device].counts, bytes_of(stretches), now);
        }
    }

    /// Counts it once more.
    #[inline]
    fn note(&self, counts: &mut Counts, bytes: u64, now: u64) {
        let is_read = matches!(self.opcode, Opcode::Read | Opcode::ReadMany);
        match self.opcode {
            Opcode::Read | Opcode::ReadMany => counts.reads += 1,
            Opcode::Flush => counts.flushes += 1,
            _ => counts.writes += 1,
        }
        match self.status {
            Status::Done if is_read => counts.bytes_read += bytes,
            Status::Done => counts.bytes_written += bytes,
            // The device did what it was asked.
            Status::Differs => {}
            _ => counts.failures += 1,
        }
        counts.note_latency(now.saturating_sub(self.began_ns));
    }
}

/// Of a stretch of the server's own.
pub(crate) const NO_GRANT: usize = usize::MAX;

/// Bytes of a slice on a device.
pub(crate) fn slice_of(geometry: &bywash_device::Geometry) -> u64 {
    let block = u64::from(geometry.block);
    (SLICE / block * block).clamp(block, geometry.transfer_max.max(block))
}

/// How the commands of a request are carried out that move its data.
#[inline]
fn operation_of(opcode: Opcode, fua: bool) -> Operation {
    match opcode {
        Opcode::Read | Opcode::ReadMany => Operation::Read,
        Opcode::Write | Opcode::WriteMany if fua => Operation::WriteDurable,
        Opcode::Write | Opcode::WriteMany => Operation::Write,
        Opcode::Flush => Operation::Flush,
        Opcode::Discard => Operation::Discard,
        Opcode::WriteZeroes => Operation::WriteZeroes,
        Opcode::CompareAndWrite => Operation::CompareAndWrite,
    }
}

fn bytes_of(stretches: &[Stretch]) -> u64 {
    stretches.iter().map(|stretch| stretch.length).sum()
}

fn status_of(failure: Failure) -> Status {
    match failure {
        Failure::Mismatch => Status::Differs,
        Failure::ReadOnly => Status::Denied,
        Failure::Io(libc::ENOSPC | libc::EDQUOT) => Status::NoSpace,
        Failure::Io(libc::EOPNOTSUPP) => Status::NotSupported,
        _ => Status::Failed,
    }
}
