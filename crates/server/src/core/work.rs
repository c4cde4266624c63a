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
use bywash_channel::{Memory, Request};
use bywash_device::{Failure, Operation};
use bywash_protocol::layout::{self, Opcode, PIECE_BYTES, Piece, Status};
use bywash_volume::{Access, Bytes, GrantNumber, Refusal};

/// Most bytes of a command: so long nobody else has a turn.
const SLICE: u64 = 256 << 10;

/// Stretches for which work has room when it is used again: of a scattered volume a request may have thousands.
const STRETCHES_KEPT: usize = 64;

/// Who gets to know what became of it.
#[derive(Debug)]
pub(crate) enum Origin {
    /// A client's request; none any more: it was answered before it was done, or the client is gone.
    Client { client: usize, request: Option<Request> },
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

/// A command to be submitted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slice {
    pub(crate) operation: Operation,
    pub(crate) device: usize,
    pub(crate) place: u64,
    pub(crate) length: u64,
    pub(crate) memory: usize,
}

/// A request that is being carried out.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) origin: Origin,
    pub(crate) opcode: Opcode,
    fua: bool,
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
    /// All data is there, and a flush of each device makes it durable.
    flushing: bool,
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

impl Work {
    /// Nothing yet: what is used again has room already.
    pub(crate) fn empty() -> Work {
        Work {
            origin: Origin::Server(None),
            opcode: Opcode::Flush,
            fua: false,
            stretches: Vec::new(),
            next: 0,
            submitted: 0,
            commands: 0,
            status: Status::Done,
            value: 0,
            began_ns: 0,
            moved_ns: 0,
            flushing: false,
        }
    }

    /// Gives the memory back that few requests need.
    #[inline]
    pub(crate) fn forget_many(&mut self) {
        if self.stretches.capacity() > STRETCHES_KEPT {
            self.stretches = Vec::new();
        }
    }

    fn begin(&mut self, origin: Origin, opcode: Opcode, fua: bool, now: u64) {
        self.stretches.clear();
        (self.origin, self.opcode, self.fua) = (origin, opcode, fua);
        (self.next, self.submitted, self.commands, self.flushing) = (0, 0, 0, false);
        (self.status, self.value) = (Status::Done, 0);
        (self.began_ns, self.moved_ns) = (now, now);
    }

    /// Zeroes of the server's own.
    pub(crate) fn clear(&mut self, device: usize, place: u64, length: u64, reply: Reply<Status>, now: u64) {
        self.begin(Origin::Server(Some(reply)), Opcode::WriteZeroes, true, now);
        self.stretches.push(Stretch { device, grant: NO_GRANT, place, length, memory: 0 });
        self.value = length;
    }

    /// What a client's request comes to. The request's memory may change at any time: of it only pieces are read, once.
    #[inline]
    pub(crate) fn take(
        &mut self,
        number: usize,
        client: &Client,
        request: &Request,
        memory: &Memory<'_>,
        disks: &slab::Slab<Disk>,
        now: u64,
    ) -> Result<(), Refused> {
        let asked = layout::asked(request.opcode(), request.flags(), request.arguments(), request.len())
            .map_err(|_| Refused::new(Status::Malformed, 0))?;
        let origin = Origin::Client { client: number, request: None };
        self.begin(origin, asked.opcode, asked.fua, now);
        match asked.opcode {
            Opcode::Flush => {
                let grant = GrantNumber::from_word(asked.piece.grant);
                let device = client.table.find(grant).map_err(|refusal| Refused::of(refusal, 0))?.device();
                let (device, grant) = (device.0 as usize, client.state_of(grant));
                self.stretches.push(Stretch { device, grant, place: 0, length: 0, memory: 0 });
            }
            Opcode::ReadMany | Opcode::WriteMany => {
                self.take_many(client, asked.piece.length, asked.head, asked.data, memory, disks)?;
            }
            _ => {
                self.lay_out(client, asked.piece, 0, 0, disks)?;
                self.value = asked.piece.length;
            }
        }
        Ok(())
    }

    fn take_many(
        &mut self,
        client: &Client,
        count: u64,
        head: usize,
        data: u64,
        memory: &Memory<'_>,
        disks: &slab::Slab<Disk>,
    ) -> Result<(), Refused> {
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
    #[inline]
    fn lay_out(
        &mut self,
        client: &Client,
        piece: Piece,
        mut memory: usize,
        number: u64,
        disks: &slab::Slab<Disk>,
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
        for span in pieces {
            self.stretches.push(Stretch {
                device,
                grant,
                place: span.start.0,
                length: span.length.0,
                memory,
            });
            memory += span.length.0 as usize;
        }
        Ok(())
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

    /// The next command; none if all were submitted, or it has failed.
    #[inline]
    pub(crate) fn next_slice(&self, disks: &slab::Slab<Disk>) -> Option<Slice> {
        if self.status != Status::Done {
            return None;
        }
        let stretch = self.stretches.get(self.next)?;
        let (device, length) = (stretch.device, stretch.length - self.submitted);
        let (operation, most) = self.operation(&disks[device]);
        let (place, memory) = (stretch.place + self.submitted, stretch.memory + self.submitted as usize);
        Some(Slice { operation, device, place, length: length.min(most), memory })
    }

    /// The device of the next command; none if there is none.
    #[inline]
    pub(crate) fn next_device(&self) -> Option<usize> {
        match self.status {
            Status::Done => self.stretches.get(self.next).map(|stretch| stretch.device),
            _ => None,
        }
    }

    /// How a slice is carried out, and how long it may be.
    #[inline]
    fn operation(&self, disk: &Disk) -> (Operation, u64) {
        if self.flushing {
            return (Operation::Flush, u64::MAX);
        }
        match self.opcode {
            Opcode::Read | Opcode::ReadMany => (Operation::Read, disk.slice),
            Opcode::Write | Opcode::WriteMany if self.fua => (Operation::WriteDurable, disk.slice),
            Opcode::Write | Opcode::WriteMany => (Operation::Write, disk.slice),
            Opcode::Flush => (Operation::Flush, u64::MAX),
            Opcode::Discard => (Operation::Discard, disk.geometry.transfer_max),
            Opcode::WriteZeroes => (Operation::WriteZeroes, disk.slice),
            Opcode::CompareAndWrite => (Operation::CompareAndWrite, disk.slice),
        }
    }

    /// The slice was submitted.
    #[inline]
    pub(crate) fn note_submitted(&mut self, slice: &Slice, now: u64) {
        self.moved_ns = now;
        self.commands += 1;
        self.submitted += slice.length;
        if self.flushing || self.submitted == self.stretches[self.next].length {
            (self.next, self.submitted) = (self.next + 1, 0);
        }
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
    pub(crate) fn turn_to_flush(&mut self) -> bool {
        let by_flush = matches!(self.opcode, Opcode::WriteZeroes | Opcode::CompareAndWrite);
        if self.flushing || !self.fua || !by_flush || self.status != Status::Done {
            return false;
        }
        // All of it is on one device.
        let Some(last) = self.stretches.len().checked_sub(1) else { return false };
        (self.flushing, self.next, self.submitted) = (true, last, 0);
        true
    }

    /// The device that it is at, or was at last.
    #[inline]
    pub(crate) fn device(&self) -> Option<usize> {
        self.stretches.get(self.next).or(self.stretches.last()).map(|stretch| stretch.device)
    }

    /// Bytes for the counts: of data that went, not of what was only cleared or given up.
    pub(crate) fn is_read(&self) -> bool {
        matches!(self.opcode, Opcode::Read | Opcode::ReadMany)
    }
}

/// Of a stretch of the server's own.
pub(crate) const NO_GRANT: usize = usize::MAX;

/// Bytes of a slice on a device.
pub(crate) fn slice_of(geometry: &bywash_device::Geometry) -> u64 {
    let block = u64::from(geometry.block);
    (SLICE / block * block).clamp(block, geometry.transfer_max.max(block))
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
