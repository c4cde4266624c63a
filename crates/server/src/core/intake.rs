//! Intake of requests: the next request of a client's ring is checked against the client's table of grants and laid out
//! as work.
//!
//! Invariant: the client may change a request's memory at any time, so only the encoded ranges are read from there, and each
//! just once.

use crate::core::client::Client;
use crate::core::clock::Clock;
use crate::core::disk::ServedDevice;
use crate::core::work::{DeviceSegment, Origin, RequestPool, RequestState};
use bywash_channel::{Request, RequestToken};
use bywash_protocol::layout::{self, GRANT_RANGE_BYTES, GrantRange, Opcode, Status};
use bywash_volume::{Bytes, DeviceRanges, GrantError, GrantNumber};
use slab::Slab;

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
            // No grant that the server makes has holes.
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
        // Borrowed, not moved out: a move would copy the whole request.
        let taken = channel.server.try_next();
        let request = match &taken {
            Ok(Some(request)) => request,
            Ok(None) => return NextRequest::Nothing,
            Err(_) => return NextRequest::Broken,
        };
        let (place, work) = works.take();
        self.active_ns = clock.now_or_read();
        self.in_flight += 1;
        let outcome = work.take(self, request, disks, self.active_ns);
        let request = taken.ok().flatten().map(RequestToken::from);
        work.origin = Origin::Client { client: number, request };
        if let Err(refused) = outcome {
            (work.status, work.value) = (refused.status, refused.value);
            return NextRequest::Refused { place };
        }
        for segment in &work.segments {
            self.states[segment.grant].in_flight += 1;
        }
        let Some(device) = work.next_device() else { return NextRequest::Empty { place } };
        self.current = Some(place);
        NextRequest::Work { device }
    }
}

impl RequestState {
    /// Turns this into the work of a client's request; the caller sets the origin. The client may change the
    /// request's memory at any time, so only the encoded pieces are read from there, and each just once.
    #[inline]
    pub(crate) fn take(
        &mut self,
        client: &Client,
        request: &Request,
        disks: &Slab<ServedDevice>,
        now: u64,
    ) -> Result<(), RequestRefusal> {
        let asked =
            layout::decode_request(request.opcode(), request.flags(), request.arguments(), request.len())
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
                self.segments.push(DeviceSegment {
                    device,
                    grant,
                    device_offset: 0,
                    length: 0,
                    buffer_offset: 0,
                });
            }
            Opcode::ReadRanges | Opcode::WriteRanges => {
                self.take_many(client, request, asked.pieces_bytes, asked.data_bytes, disks)?;
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
        disks: &Slab<ServedDevice>,
    ) -> Result<(), RequestRefusal> {
        let Some(channel) = &client.channel else { return Err(RequestRefusal::new(Status::Failed, 0)) };
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
        let pieces = client
            .table
            .check(grant, offset, length, self.wanted())
            .map_err(|refusal| RequestRefusal::from_grant(refusal, number))?;
        let device = pieces.device().0 as usize;
        let disk = disks.get(device).ok_or(RequestRefusal::new(Status::Failed, number))?;
        let block = u64::from(disk.geometry.block);
        let is_odd = (piece.offset | piece.length) & (block - 1) != 0;
        if is_odd || (self.opcode == Opcode::CompareAndWrite && piece.length != block) {
            return Err(RequestRefusal::new(Status::Malformed, number));
        }
        if disk.is_stuck {
            return Err(RequestRefusal::new(Status::TimedOut, number));
        }
        let grant = client.state_of(grant);
        match pieces.only() {
            Some(span) => self.segments.push(DeviceSegment::new(device, grant, span, memory)),
            None => self.add_pieces(device, grant, pieces, memory),
        }
        Ok(())
    }

    // Not inlined, because the code for several segments would slow down the common case of one.
    #[inline(never)]
    fn add_pieces(&mut self, device: usize, grant: usize, pieces: DeviceRanges<'_>, mut memory: usize) {
        for span in pieces {
            self.segments.push(DeviceSegment::new(device, grant, span, memory));
            memory += span.length.0 as usize;
        }
    }

    /// Adds the request to the counters of its client, its grants and its devices.
    #[inline]
    pub(crate) fn count(&self, client: &mut Client, disks: &mut Slab<ServedDevice>, now: u64) {
        self.note(&mut client.counts, self.value, now);
        let [segment] = self.segments.as_slice() else { return self.count_many(client, disks, now) };
        self.note(&mut client.states[segment.grant].counts, segment.length, now);
        self.note(&mut disks[segment.device].counts, segment.length, now);
    }

    /// Adds the request to the counters of its grants and devices: consecutive segments of one grant, and of
    /// one device, count as one request.
    #[inline(never)]
    fn count_many(&self, client: &mut Client, disks: &mut Slab<ServedDevice>, now: u64) {
        for segments in self.segments.chunk_by(|one, next| one.grant == next.grant) {
            self.note(&mut client.states[segments[0].grant].counts, bytes_of(segments), now);
        }
        for segments in self.segments.chunk_by(|one, next| one.device == next.device) {
            self.note(&mut disks[segments[0].device].counts, bytes_of(segments), now);
        }
    }
}

fn bytes_of(segments: &[DeviceSegment]) -> u64 {
    segments.iter().map(|segment| segment.length).sum()
}
