//! Intake of requests: the next request of a client's ring is checked against the client's table of grants and laid out
//! as work.
//!
//! Invariant: the client may change a request's memory at any time, so only the encoded ranges are read from there, and each
//! just once.

use crate::core::client::Client;
use crate::core::clock::Clock;
use crate::core::disk::ServedDevice;
use crate::core::work::{DeviceSegment, EndedRequest, Origin, RequestPool, RequestState, SegmentKind};
use bywash_channel::RequestWords;
use bywash_protocol::layout::{self, GRANT_RANGE_BYTES, GrantRange, Opcode, Status};
use bywash_volume::{Access, ByteRange, Bytes, DeviceRanges, GrantError, GrantNumber, PIECES_MAX, RangePart};
use slab::Slab;

/// Greatest number of parts of a thin volume that a request without data may touch: a GiB in clusters of 256 KiB.
const THIN_PARTS_MAX: usize = 8192;

/// Result of taking the next request from a client's ring.
#[derive(Clone, Copy)]
pub(crate) enum NextRequest {
    Nothing,
    /// A request to be carried out, whose first command is for this device.
    Work {
        device: usize,
    },
    /// A request of no bytes, which needs no command.
    Empty {
        place: usize,
    },
    /// A request that needs a change of a thin volume's map first.
    Missing {
        place: usize,
    },
    /// A request that the server refuses; its work holds the status.
    Refused {
        place: usize,
    },
    /// The channel was closed or broke the protocol.
    Broken,
}

/// Status and value by which a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestRefusal {
    pub(crate) status: Status,
    pub(crate) value: u64,
}

impl RequestRefusal {
    fn new(status: Status, value: u64) -> RequestRefusal {
        RequestRefusal { status, value }
    }

    fn from_grant(refusal: GrantError, piece: u64) -> RequestRefusal {
        match refusal {
            GrantError::Unknown { .. } => RequestRefusal::new(Status::NoGrant, piece),
            GrantError::Revoked { .. } => RequestRefusal::new(Status::Revoked, piece),
            GrantError::Right { .. } => RequestRefusal::new(Status::AccessDenied, piece),
            GrantError::Overflow { .. } | GrantError::Bounds { .. } => {
                RequestRefusal::new(Status::OutOfBounds, piece)
            }
            // Requests to holes do not come here: they are parked.
            GrantError::Unmapped { .. } => RequestRefusal::new(Status::Failed, piece),
            GrantError::Scattered { served, .. } => RequestRefusal::new(Status::TooFragmented, served.0),
        }
    }
}

impl Client {
    /// Takes the next request from the client's ring, checks it, and turns it into work.
    pub(crate) fn take(
        &mut self,
        number: usize,
        works: &mut RequestPool,
        disks: &Slab<ServedDevice>,
        clock: &mut Clock,
    ) -> NextRequest {
        let Some(channel) = &mut self.channel else { return NextRequest::Nothing };
        let token = match channel.server.try_next_into(&mut works.taken) {
            Ok(Some(token)) => token,
            Ok(None) => return NextRequest::Nothing,
            Err(_) => return NextRequest::Broken,
        };
        let now = clock.now_or_read();
        self.active_ns = now;
        self.in_flight += 1;
        let place = works.take();
        let (work, words) = (&mut works.all[place], &works.taken);
        work.origin = Origin::Client { client: number, request: Some(token) };
        let Some((device, grant)) = work.take_transfer(self, words, disks, now) else {
            return self.take_other(place, works, disks, now);
        };
        self.states[grant].in_flight += 1;
        self.current = Some(place);
        NextRequest::Work { device }
    }

    /// Checks a request that is not as most are, and turns it into work.
    #[inline(never)]
    fn take_other(
        &mut self,
        place: usize,
        works: &mut RequestPool,
        disks: &Slab<ServedDevice>,
        now: u64,
    ) -> NextRequest {
        let (work, words) = (&mut works.all[place], &works.taken);
        if let Err(refused) = work.take(self, words, disks, now) {
            (work.status, work.value) = (refused.status, refused.value);
            return NextRequest::Refused { place };
        }
        for segment in &work.segments {
            self.states[segment.grant].in_flight += 1;
        }
        let Some(device) = work.next_device() else { return NextRequest::Empty { place } };
        if work.missing > 0 {
            return NextRequest::Missing { place };
        }
        self.current = Some(place);
        NextRequest::Work { device }
    }
}

impl RequestState {
    /// Turns this into the work of a request to read or write a range of a grant that is one extent of its device, as most
    /// are. Returns the device, and the index of the grant's state. `None` if the request is another one or is to be refused:
    /// [`RequestState::take`] finds out.
    #[inline(always)]
    fn take_transfer(
        &mut self,
        client: &Client,
        words: &RequestWords,
        disks: &Slab<ServedDevice>,
        now: u64,
    ) -> Option<(usize, usize)> {
        let (opcode, fua, range) =
            layout::decode_transfer(words.opcode(), words.flags(), words.arguments(), words.len())?;
        let wanted = if opcode == Opcode::Read { Access::Read } else { Access::Write };
        let (grant, length) = (GrantNumber::from_word(range.grant), Bytes(range.length));
        let (device, start) = client.table.check_flat(grant, Bytes(range.offset), length, wanted)?;
        let device = device.0 as usize;
        let disk = disks.get(device)?;
        self.begin(opcode, fua, now);
        self.check_disk(&range, 0, Some(disk)).ok()?;
        let grant = client.state_of(grant);
        let segment = DeviceSegment::new(device, grant, range.offset, ByteRange { start, length }, 0);
        self.push_only(segment, disk.slice);
        self.value = range.length;
        Some((device, grant))
    }

    /// Turns this into the work of a client's request; the caller sets the origin. The client may change the
    /// request's memory at any time, so only the encoded pieces are read from there, and each just once.
    pub(crate) fn take(
        &mut self,
        client: &Client,
        words: &RequestWords,
        disks: &Slab<ServedDevice>,
        now: u64,
    ) -> Result<(), RequestRefusal> {
        let asked = layout::decode_request(words.opcode(), words.flags(), words.arguments(), words.len())
            .map_err(|_| RequestRefusal::new(Status::Malformed, 0))?;
        self.begin(asked.opcode, asked.fua, now);
        match asked.opcode {
            Opcode::Flush => {
                let grant = GrantNumber::from_word(asked.piece.grant);
                let device = client
                    .table
                    .find(grant)
                    .map_err(|refusal| RequestRefusal::from_grant(refusal, 0))?
                    .device();
                let (device, grant) = (device.0 as usize, client.state_of(grant));
                self.segments.push(DeviceSegment::new(device, grant, 0, ByteRange::new(0, 0), 0));
            }
            Opcode::ReadRanges | Opcode::WriteRanges => {
                self.take_many(client, asked.pieces_bytes, asked.data_bytes, disks)?;
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
        head: usize,
        data: u64,
        disks: &Slab<ServedDevice>,
    ) -> Result<(), RequestRefusal> {
        let (Some(channel), Origin::Client { request: Some(request), .. }) = (&client.channel, &self.origin)
        else {
            return Err(RequestRefusal::new(Status::Failed, 0));
        };
        let count = (head / GRANT_RANGE_BYTES) as u64;
        let memory = channel.server.memory(request);
        let mut passed = 0u64;
        for number in 0..count {
            let mut bytes = [0; GRANT_RANGE_BYTES];
            memory.read(number as usize * GRANT_RANGE_BYTES, &mut bytes);
            let piece = GrantRange::from_bytes(&bytes);
            let malformed = RequestRefusal::new(Status::Malformed, number);
            if piece.length > data - passed {
                return Err(malformed);
            }
            self.lay_out(client, piece, head + passed as usize, number, disks)?;
            passed += piece.length;
        }
        if passed != data {
            return Err(RequestRefusal::new(Status::Malformed, count));
        }
        self.value = data;
        Ok(())
    }

    /// Checks one piece against the client's table and appends its segments.
    // Inlined, so that the result stays in registers.
    #[inline(always)]
    fn lay_out(
        &mut self,
        client: &Client,
        piece: GrantRange,
        memory: usize,
        number: u64,
        disks: &Slab<ServedDevice>,
    ) -> Result<(), RequestRefusal> {
        let grant = GrantNumber::from_word(piece.grant);
        let (offset, length) = (Bytes(piece.offset), Bytes(piece.length));
        let pieces = match client.table.check(grant, offset, length, self.wanted()) {
            Ok(pieces) if self.opcode != Opcode::Discard => pieces,
            Ok(pieces) if client.states[client.state_of(grant)].thin.is_none() => pieces,
            Err(error) if !self.may_be_thin(client, grant, error) => {
                return Err(RequestRefusal::from_grant(error, number));
            }
            Ok(_) | Err(_) => return self.lay_out_thin(client, piece, memory, number, disks),
        };
        let device = pieces.device().0 as usize;
        self.check_disk(&piece, number, disks.get(device))?;
        let grant = client.state_of(grant);
        match pieces.only() {
            Some(span) => {
                self.segments.push(DeviceSegment::new(device, grant, piece.offset, span, memory));
            }
            None => self.add_pieces(device, grant, piece.offset, pieces, memory),
        }
        Ok(())
    }

    /// Refuses a piece that is not in whole blocks of its device, or whose device is stuck.
    #[inline(always)]
    fn check_disk(
        &self,
        piece: &GrantRange,
        number: u64,
        disk: Option<&ServedDevice>,
    ) -> Result<(), RequestRefusal> {
        let disk = disk.ok_or(RequestRefusal::new(Status::Failed, number))?;
        let block = u64::from(disk.geometry.block);
        let is_odd = (piece.offset | piece.length) & (block - 1) != 0;
        if is_odd || (self.opcode == Opcode::CompareAndWrite && piece.length != block) {
            return Err(RequestRefusal::new(Status::Malformed, number));
        }
        if disk.is_stuck {
            return Err(RequestRefusal::new(Status::TimedOut, number));
        }
        Ok(())
    }

    // Not inlined, because the code for several segments would slow down the common case of one.
    #[inline(never)]
    fn add_pieces(
        &mut self,
        device: usize,
        grant: usize,
        mut offset: u64,
        pieces: DeviceRanges<'_>,
        mut memory: usize,
    ) {
        for span in pieces {
            self.segments.push(DeviceSegment::new(device, grant, offset, span, memory));
            offset += span.length.0;
            memory += span.length.0 as usize;
        }
    }

    /// Checks one piece against a grant of a thin volume that touches a hole, writes what other volumes have, too, or that
    /// is discarded, and appends its segments. Holes that are read are zeros; those that are discarded or zeroed need
    /// nothing; all others have to be allocated. What is shared has to be copied before it is written. Whole clusters that
    /// are discarded are to be released, if one of them is allocated.
    #[cold]
    fn lay_out_thin(
        &mut self,
        client: &Client,
        piece: GrantRange,
        memory: usize,
        number: u64,
        disks: &Slab<ServedDevice>,
    ) -> Result<(), RequestRefusal> {
        let grant = GrantNumber::from_word(piece.grant);
        let (offset, length) = (Bytes(piece.offset), Bytes(piece.length));
        let parts = client
            .table
            .check_parts(grant, offset, length, self.wanted(), self.parts_max())
            .map_err(|refusal| RequestRefusal::from_grant(refusal, number))?;
        let device = parts.device().0 as usize;
        self.check_disk(&piece, number, disks.get(device))?;
        let state = client.state_of(grant);
        // No overflow: the piece lies within the grant.
        let (start, end) = (piece.offset, piece.offset + piece.length);
        let inner = match (&client.states[state].thin, self.opcode) {
            (Some(thin), Opcode::Discard) => {
                let cluster = thin.cluster_bytes;
                (start.next_multiple_of(cluster), end / cluster * cluster)
            }
            _ => (end, end),
        };
        let inner = if inner.0 < inner.1 { inner } else { (end, end) };
        let mut is_released = false;
        for part in parts {
            // A part that is discarded may begin before the whole clusters, and end behind them.
            for (from, to, is_inner) in
                [(start, inner.0, false), (inner.0, inner.1, true), (inner.1, end, false)]
            {
                let Some(part) = within(part, from, to) else { continue };
                if !is_inner {
                    self.add_part(device, state, part, memory + (part.offset.0 - start) as usize);
                } else {
                    is_released |= part.mapped.is_some();
                }
            }
        }
        if is_released {
            let (offset, length) = (Bytes(inner.0), Bytes(inner.1 - inner.0));
            let range = RangePart { offset, length, mapped: None, is_shared: false };
            self.add_missing(device, state, range, 0);
        }
        Ok(())
    }

    /// Returns true if an error of the check may be due to the grant's volume being thin: it has holes or shares blocks, or
    /// has many extents where a request without data is allowed more.
    #[cold]
    fn may_be_thin(&self, client: &Client, grant: GrantNumber, error: GrantError) -> bool {
        match error {
            GrantError::Unmapped { .. } => true,
            GrantError::Scattered { .. } => {
                self.parts_max() > PIECES_MAX && client.states[client.state_of(grant)].thin.is_some()
            }
            _ => false,
        }
    }

    /// Returns the greatest number of parts of a request to a thin volume. Requests without data are long, and a thin
    /// volume may have an extent for each cluster.
    fn parts_max(&self) -> usize {
        match self.opcode {
            Opcode::Discard | Opcode::WriteZeroes => THIN_PARTS_MAX,
            _ => PIECES_MAX,
        }
    }

    /// Appends the segment of a part of a request to a thin volume.
    fn add_part(&mut self, device: usize, grant: usize, part: RangePart, memory: usize) {
        match (part.mapped, self.opcode) {
            // A discard is a hint: what is shared keeps its contents for the others.
            (Some(_), Opcode::Discard) if part.is_shared => {}
            (Some(_), _) if part.is_shared && self.wanted() != Access::Read => {
                self.add_missing(device, grant, part, memory);
            }
            (Some(span), _) => {
                self.segments.push(DeviceSegment::new(device, grant, part.offset.0, span, memory));
            }
            (None, Opcode::Discard | Opcode::WriteZeroes) => {}
            (None, Opcode::Read | Opcode::ReadRanges) => {
                let zeros = ByteRange { start: Bytes(0), length: part.length };
                let segment = DeviceSegment::new(device, grant, part.offset.0, zeros, memory);
                self.segments.push(DeviceSegment { kind: SegmentKind::Zeros, ..segment });
            }
            (None, _) => self.add_missing(device, grant, part, memory),
        }
    }

    fn add_missing(&mut self, device: usize, grant: usize, part: RangePart, memory: usize) {
        let nowhere = ByteRange { start: Bytes(0), length: part.length };
        let segment = DeviceSegment::new(device, grant, part.offset.0, nowhere, memory);
        self.segments.push(DeviceSegment { kind: SegmentKind::Missing, ..segment });
        self.missing += 1;
    }

    /// Finds the segments of thin volumes anew, after a change of a map. Those that were to be released are done.
    pub(crate) fn resolve(&mut self, client: &mut Client) -> Result<(), RequestRefusal> {
        self.missing = 0;
        let mut refusal = Ok(());
        for segment in std::mem::take(&mut self.segments) {
            let state = &client.states[segment.grant];
            if state.thin.is_none() || refusal.is_err() {
                self.segments.push(segment);
                continue;
            }
            let before = self.segments.len();
            let is_released = self.opcode == Opcode::Discard && segment.kind == SegmentKind::Missing;
            let (offset, length) = (Bytes(segment.grant_offset), Bytes(segment.length));
            match client.table.check_parts(state.number, offset, length, self.wanted(), self.parts_max()) {
                Ok(_) if is_released => {}
                Ok(parts) => parts.for_each(|part| {
                    let memory = segment.buffer_offset + (part.offset.0 - offset.0) as usize;
                    self.add_part(segment.device, segment.grant, part, memory);
                }),
                Err(error) => {
                    self.segments.push(segment);
                    refusal = Err(RequestRefusal::from_grant(error, 0));
                }
            }
            let added = (self.segments.len() - before) as u32;
            client.states[segment.grant].in_flight += added;
            client.end_segment(segment.grant);
        }
        refusal
    }

    /// Adds the request to the counters of its client, its grants and its devices.
    #[inline]
    pub(crate) fn count(&self, client: &mut Client, disks: &mut Slab<ServedDevice>, now: u64) {
        let ended = self.ended(now);
        ended.note(&mut client.counts, self.value);
        let [segment] = self.segments.as_slice() else { return self.count_many(client, disks, ended) };
        ended.note(&mut client.states[segment.grant].counts, segment.length);
        ended.note(&mut disks[segment.device].counts, segment.length);
    }

    /// Adds the request to the counters of its grants and devices: consecutive segments of one grant, and of
    /// one device, count as one request.
    #[inline(never)]
    fn count_many(&self, client: &mut Client, disks: &mut Slab<ServedDevice>, ended: EndedRequest) {
        for segments in self.segments.chunk_by(|one, next| one.grant == next.grant) {
            ended.note(&mut client.states[segments[0].grant].counts, bytes_of(segments));
        }
        for segments in self.segments.chunk_by(|one, next| one.device == next.device) {
            ended.note(&mut disks[segments[0].device].counts, bytes_of(segments));
        }
    }
}

/// Returns the part of a part within the bytes `from..to` of the grant; `None` if there is none.
fn within(part: RangePart, from: u64, to: u64) -> Option<RangePart> {
    let start = part.offset.0.max(from);
    let end = (part.offset.0 + part.length.0).min(to);
    let skipped = start - part.offset.0;
    (start < end).then(|| RangePart {
        offset: Bytes(start),
        length: Bytes(end - start),
        mapped: part.mapped.map(|range| ByteRange::new(range.start.0 + skipped, end - start)),
        is_shared: part.is_shared,
    })
}

fn bytes_of(segments: &[DeviceSegment]) -> u64 {
    segments.iter().map(|segment| segment.length).sum()
}
