//! Work: a request, turned into segments (contiguous ranges of devices) that are carried out slice by slice.
//!
//! ```text
//!   request ──► asked ──► checked against the client's table ──► segments ──► slices, one a turn ──► commands
//!    (rings)    (layout)     (right, bounds, alignment)          of devices      of a schedule        of a device
//! ```
//!
//! Invariant: a segment is a range that the client's table allowed, in whole blocks of its device, and its
//! memory lies within the buffer of the request. All checks are made before the first command is submitted.

use crate::core::copy::CopyMemory;
use crate::core::order::OnDone;
use bywash_channel::{RequestToken, RequestWords};
use bywash_device::{CommandError, Operation};
use bywash_protocol::layout::{Opcode, Status};
use bywash_protocol::report::{Counters, latency_bucket};
use bywash_volume::{Access, ByteRange, Bytes};
use std::sync::Arc;

/// Greatest size in bytes of a command other than a discard, unless a block is larger: no other client has a
/// turn meanwhile.
const SLICE: u64 = 256 << 10;

/// Number of segments that reusable work keeps memory for. A request to a scattered volume may have
/// thousands.
const SEGMENTS_KEPT: usize = 64;

/// Origin of some work, which is told how it ended.
#[derive(Debug)]
pub(crate) enum Origin {
    /// A client's request. `request` is `None` once it was completed, which for a late request is before its
    /// commands end.
    Client { client: usize, request: Option<RequestToken> },
    /// Work of the server's own.
    Server(Option<OnDone<Status>>),
}

/// Kind of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SegmentKind {
    /// Range of a device.
    Mapped,
    /// Hole of a thin volume that is read: zeros, without a command to the device.
    Zeros,
    /// Range of a thin volume that has to be allocated, copied or released before the request is submitted.
    Missing,
}

/// A contiguous range of a device, and the memory that its data is moved from or to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeviceSegment {
    pub(crate) device: usize,
    /// Index of the grant's [`GrantState`](crate::core::client::GrantState) in the client, or [`NO_GRANT`].
    pub(crate) grant: usize,
    /// Offset of the range in the grant, in bytes.
    pub(crate) grant_offset: u64,
    /// Offset of the range on the device, in bytes; 0 if the kind has none.
    pub(crate) device_offset: u64,
    pub(crate) length: u64,
    /// Offset of the data in the request's buffer, in bytes.
    pub(crate) buffer_offset: usize,
    pub(crate) kind: SegmentKind,
}

impl DeviceSegment {
    #[inline]
    pub(crate) fn new(
        device: usize,
        grant: usize,
        grant_offset: u64,
        span: ByteRange,
        memory: usize,
    ) -> DeviceSegment {
        DeviceSegment {
            device,
            grant,
            grant_offset,
            device_offset: span.start.0,
            length: span.length.0,
            buffer_offset: memory,
            kind: SegmentKind::Mapped,
        }
    }
}

/// Parameters of one command to be submitted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slice {
    pub(crate) operation: Operation,
    pub(crate) device_offset: u64,
    pub(crate) length: u64,
    pub(crate) buffer_offset: usize,
    /// True if the slice is a hole of a thin volume, which reads as zeros.
    pub(crate) is_zeros: bool,
    /// True if this slice is the last of its segment.
    is_last: bool,
}

/// State of a request that is being carried out.
#[derive(Debug)]
pub(crate) struct RequestState {
    pub(crate) origin: Origin,
    is_used: bool,
    pub(crate) opcode: Opcode,
    fua: bool,
    /// True if the request is one mapped segment of one slice, which moves data; [`RequestState::plain_segment`] has it.
    is_plain: bool,
    /// Operation of the commands. When all data is written, a flush may follow to make it durable.
    operation: Operation,
    pub(crate) segments: Vec<DeviceSegment>,
    /// Memory of a copy by the server itself, which has no client's memory.
    pub(crate) memory: Option<Arc<CopyMemory>>,
    /// Offset on the device to which the data is to be written, once it is read: the work is a copy.
    copy_to: Option<Bytes>,
    /// Index of the segment that the next slice belongs to, and number of its bytes that were submitted.
    next: usize,
    submitted: u64,
    /// Number of commands in flight.
    pub(crate) commands: u32,
    /// True while the request waits for a change of a thin volume's map.
    pub(crate) is_parked: bool,
    /// Number of times that the request was parked.
    pub(crate) parked: u32,
    /// Number of segments of the kind [`SegmentKind::Missing`].
    pub(crate) missing: u32,
    /// Status so far: done, or that of the first failure.
    pub(crate) status: Status,
    /// Value of the completion: number of bytes, or index of the refused piece.
    pub(crate) value: u64,
    /// Time at which the request was taken from the ring, in nanoseconds of the core's clock.
    pub(crate) began_ns: u64,
    /// Time at which a command of the request was last submitted or completed, in nanoseconds of the core's
    /// clock.
    pub(crate) moved_ns: u64,
}

/// Slots of work, reused together with the memory that they have allocated.
#[derive(Default)]
pub(crate) struct RequestPool {
    pub(crate) all: Vec<RequestState>,
    /// Fields of the request that was last taken from a ring.
    pub(crate) taken: RequestWords,
    free: Vec<usize>,
}

impl RequestPool {
    /// Takes an unused slot, and returns its index.
    #[inline]
    pub(crate) fn take(&mut self) -> usize {
        let place = match self.free.pop() {
            Some(place) => place,
            None => self.grow(),
        };
        self.all[place].is_used = true;
        place
    }

    #[cold]
    fn grow(&mut self) -> usize {
        self.all.push(RequestState::empty());
        self.all.len() - 1
    }

    #[inline]
    pub(crate) fn give(&mut self, place: usize) {
        let work = &mut self.all[place];
        work.is_used = false;
        if work.segments.capacity() > SEGMENTS_KEPT || work.memory.is_some() {
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

impl RequestState {
    /// Creates work that is unused and has allocated no memory.
    pub(crate) fn empty() -> RequestState {
        RequestState {
            origin: Origin::Server(None),
            is_used: false,
            opcode: Opcode::Flush,
            fua: false,
            is_plain: false,
            operation: Operation::Flush,
            segments: Vec::new(),
            memory: None,
            copy_to: None,
            next: 0,
            submitted: 0,
            commands: 0,
            is_parked: false,
            parked: 0,
            missing: 0,
            status: Status::Success,
            value: 0,
            began_ns: 0,
            moved_ns: 0,
        }
    }

    /// Releases the memory of a long list of segments, which few requests need, and of a copy.
    #[cold]
    fn forget_many(&mut self) {
        self.segments = Vec::new();
        (self.memory, self.copy_to) = (None, None);
    }

    #[inline(always)]
    pub(crate) fn begin(&mut self, opcode: Opcode, fua: bool, now: u64) {
        self.segments.clear();
        (self.opcode, self.fua, self.operation) = (opcode, fua, operation_of(opcode, fua));
        self.is_plain = false;
        (self.next, self.submitted, self.commands) = (0, 0, 0);
        (self.is_parked, self.parked, self.missing) = (false, 0, 0);
        (self.status, self.value) = (Status::Success, 0);
        (self.began_ns, self.moved_ns) = (now, now);
    }

    /// Turns this into work of the server's own: writes zeros to a range, durably.
    pub(crate) fn clear(&mut self, device: usize, place: u64, length: u64, reply: OnDone<Status>, now: u64) {
        self.begin(Opcode::WriteZeroes, true, now);
        self.origin = Origin::Server(Some(reply));
        let span = ByteRange::new(place, length);
        self.segments.push(DeviceSegment::new(device, NO_GRANT, 0, span, 0));
        self.value = length;
    }

    /// Turns this into work of the server's own: copies a range to the one that begins at byte `to`, through memory.
    pub(crate) fn copy(
        &mut self,
        device: usize,
        (from, to): (ByteRange, Bytes),
        memory: Arc<CopyMemory>,
        reply: OnDone<Status>,
        now: u64,
    ) {
        // With FUA set, the end of its commands is looked at in `turn_to_flush`.
        self.begin(Opcode::Write, true, now);
        self.operation = Operation::Read;
        (self.memory, self.copy_to) = (Some(memory), Some(to));
        self.origin = Origin::Server(Some(reply));
        self.segments.push(DeviceSegment::new(device, NO_GRANT, 0, from, 0));
    }

    /// Turns this into work of the server's own: makes all that was written durable.
    pub(crate) fn flush(&mut self, device: usize, reply: OnDone<Status>, now: u64) {
        self.begin(Opcode::Flush, false, now);
        self.origin = Origin::Server(Some(reply));
        self.segments.push(DeviceSegment::new(device, NO_GRANT, 0, ByteRange::new(0, 0), 0));
    }

    /// Returns true if the work may still access one of these ranges of a device. A parked request finds its ranges
    /// anew.
    pub(crate) fn touches(&self, device: usize, spans: &[ByteRange]) -> bool {
        let touches = |segment: &DeviceSegment| {
            let (start, end) = (segment.device_offset, segment.device_offset + segment.length);
            let is_common = |span: &ByteRange| start < span.start.0 + span.length.0 && span.start.0 < end;
            segment.kind == SegmentKind::Mapped && segment.device == device && spans.iter().any(is_common)
        };
        !self.is_parked && self.segments.iter().any(touches)
    }

    /// Returns true if the work may still write by one of these grants of its client.
    pub(crate) fn writes(&self, is_meant: impl Fn(usize) -> bool) -> bool {
        let is_by = |segment: &DeviceSegment| segment.kind == SegmentKind::Mapped && is_meant(segment.grant);
        !self.is_parked && self.wanted() != Access::Read && self.segments.iter().any(is_by)
    }

    /// Returns the access right that the operation needs.
    #[inline]
    pub(crate) fn wanted(&self) -> Access {
        match self.opcode {
            Opcode::Read | Opcode::ReadRanges | Opcode::Flush => Access::Read,
            Opcode::CompareAndWrite => Access::ReadWrite,
            Opcode::Write | Opcode::WriteRanges | Opcode::Discard | Opcode::WriteZeroes => Access::Write,
        }
    }

    /// Appends the only segment of a request to read or write one mapped range, which moves `segment.length` bytes;
    /// `slice` is the greatest size of a command.
    #[inline(always)]
    pub(crate) fn push_only(&mut self, segment: DeviceSegment, slice: u64) {
        self.is_plain = segment.length <= slice && matches!(self.opcode, Opcode::Read | Opcode::Write);
        self.segments.push(segment);
    }

    /// Returns the operation and the segment of a request with a single command, to this device, that was not submitted
    /// yet and moves the segment's bytes; `None` for any other request.
    #[inline(always)]
    pub(crate) fn plain_segment(&self, device: usize) -> Option<(Operation, DeviceSegment)> {
        let segment = self.segments.first()?;
        let is_new = self.is_plain && self.next == 0 && self.status == Status::Success;
        (is_new && segment.device == device).then_some((self.operation, *segment))
    }

    /// Notes that the only command of the request was submitted.
    #[inline(always)]
    pub(crate) fn note_plain_submitted(&mut self, now: u64) {
        (self.moved_ns, self.commands, self.next) = (now, 1, 1);
    }

    /// Returns the next command, of at most `transfer_max` bytes; a discard may have `range_max`.
    #[inline]
    pub(crate) fn next_slice(&self, transfer_max: u64, range_max: u64) -> Slice {
        let segment = &self.segments[self.next];
        let most = match self.operation {
            Operation::Flush => u64::MAX,
            Operation::Discard => range_max,
            _ => transfer_max,
        };
        let left = segment.length - self.submitted;
        Slice {
            operation: self.operation,
            device_offset: segment.device_offset + self.submitted,
            length: left.min(most),
            buffer_offset: segment.buffer_offset + self.submitted as usize,
            is_zeros: segment.kind == SegmentKind::Zeros,
            is_last: left <= most,
        }
    }

    /// Returns the device of the next command, or `None` if all commands were submitted or the work has
    /// failed.
    #[inline]
    pub(crate) fn next_device(&self) -> Option<usize> {
        match self.status {
            Status::Success => self.segments.get(self.next).map(|segment| segment.device),
            _ => None,
        }
    }

    /// Notes that the slice was submitted.
    #[inline]
    pub(crate) fn note_submitted(&mut self, slice: &Slice, now: u64) {
        self.moved_ns = now;
        self.commands += 1;
        (self.next, self.submitted) = match slice.is_last {
            true => (self.next + 1, 0),
            false => (self.next, self.submitted + slice.length),
        };
    }

    /// Notes that a command has completed.
    #[inline]
    pub(crate) fn note_done(&mut self, result: Result<(), CommandError>, now: u64) {
        self.moved_ns = now;
        self.commands -= 1;
        if let Err(failure) = result
            && self.status == Status::Success
        {
            self.status = status_of(failure);
        }
    }

    /// Switches to a flush of the device, if the request must be durable and its commands were not, or to the writes of a
    /// copy. Returns true if these commands are now to be submitted.
    #[inline]
    pub(crate) fn turn_to_flush(&mut self) -> bool {
        let by_flush = matches!(self.operation, Operation::WriteZeroes | Operation::CompareAndWrite);
        if !self.fua || self.status != Status::Success {
            return false;
        }
        if !by_flush {
            return self.copy_to.is_some() && self.turn_to_write();
        }
        // Such a request is on one device only, so a single flush covers it.
        let Some(last) = self.segments.len().checked_sub(1) else { return false };
        (self.operation, self.next, self.submitted) = (Operation::Flush, last, 0);
        true
    }

    /// Switches a copy to its writes, if it has read. Returns true if they are now to be submitted.
    #[cold]
    fn turn_to_write(&mut self) -> bool {
        let (Some(to), Some(segment)) = (self.copy_to.take(), self.segments.first_mut()) else {
            return false;
        };
        segment.device_offset = to.0;
        (self.operation, self.next, self.submitted) = (Operation::Write, 0, 0);
        true
    }

    /// Returns true if all commands were submitted.
    #[inline]
    pub(crate) fn is_submitted(&self) -> bool {
        self.next == self.segments.len()
    }

    /// Returns what counters record of the request, which ends now.
    #[inline]
    pub(crate) fn ended(&self, now: u64) -> EndedRequest {
        let latency_ns = now.saturating_sub(self.began_ns);
        let (opcode, status) = (self.opcode, self.status);
        EndedRequest { opcode, status, latency_ns, bucket: latency_bucket(latency_ns) }
    }
}

/// Part of an ended request that counters record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EndedRequest {
    opcode: Opcode,
    status: Status,
    latency_ns: u64,
    /// Index of the latency's bucket in [`Counters::latency`].
    bucket: usize,
}

impl EndedRequest {
    /// Adds the request with this number of bytes to one set of counters.
    #[inline]
    pub(crate) fn note(&self, counts: &mut Counters, bytes: u64) {
        match (self.opcode, self.status) {
            (Opcode::Read, Status::Success) => {
                counts.reads += 1;
                counts.bytes_read += bytes;
            }
            (Opcode::Write, Status::Success) => {
                counts.writes += 1;
                counts.bytes_written += bytes;
            }
            _ => self.note_other(counts, bytes),
        }
        counts.latency[self.bucket] += 1;
        counts.latency_ns += self.latency_ns;
    }

    #[inline(never)]
    fn note_other(&self, counts: &mut Counters, bytes: u64) {
        let is_read = matches!(self.opcode, Opcode::Read | Opcode::ReadRanges);
        match self.opcode {
            Opcode::Read | Opcode::ReadRanges => counts.reads += 1,
            Opcode::Flush => counts.flushes += 1,
            _ => counts.writes += 1,
        }
        match self.status {
            Status::Success if is_read => counts.bytes_read += bytes,
            Status::Success => counts.bytes_written += bytes,
            // A mismatch is not a failure: the device did what it was asked to.
            Status::Mismatch => {}
            _ => counts.failures += 1,
        }
    }
}

/// Value of [`DeviceSegment::grant`] for work of the server's own.
pub(crate) const NO_GRANT: usize = usize::MAX;

/// Returns the greatest size of a command on a device, in bytes: a multiple of its block.
pub(crate) fn slice_of(geometry: &bywash_device::Geometry) -> u64 {
    let block = u64::from(geometry.block);
    (SLICE / block * block).clamp(block, geometry.transfer_max.max(block))
}

/// Returns the device operation that moves the data of a request.
#[inline]
fn operation_of(opcode: Opcode, fua: bool) -> Operation {
    match opcode {
        Opcode::Read | Opcode::ReadRanges => Operation::Read,
        Opcode::Write | Opcode::WriteRanges if fua => Operation::WriteDurable,
        Opcode::Write | Opcode::WriteRanges => Operation::Write,
        Opcode::Flush => Operation::Flush,
        Opcode::Discard => Operation::Discard,
        Opcode::WriteZeroes => Operation::WriteZeroes,
        Opcode::CompareAndWrite => Operation::CompareAndWrite,
    }
}

fn status_of(failure: CommandError) -> Status {
    match failure {
        CommandError::Mismatch => Status::Mismatch,
        CommandError::ReadOnly => Status::AccessDenied,
        CommandError::Io(libc::ENOSPC | libc::EDQUOT) => Status::NoSpace,
        CommandError::Io(libc::EOPNOTSUPP) => Status::NotSupported,
        _ => Status::Failed,
    }
}
