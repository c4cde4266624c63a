//! The sender's side of a sequenced transfer on the wire: packets with headers out, reports in.
//!
//! Invariant: every packet carries the transfer's random name; reports of other transfers are not heard.
//! Called by [`super::sender`] and [`super::probe`].

use super::layout::{About, HEADER_BYTES, Header, PacketKind, Report};
use super::plain::datagrams_at_once;
use super::port::Port;
use super::run::Run;
use crate::control::Control;
use crate::error::Error;
use rustix::event::PollFlags;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Instant;

/// Says packets and hears reports.
pub(crate) struct Voice {
    pub(crate) port: Box<dyn Port>,
    transfer: u64,
    heads: Vec<u8>,
    heard: Heard,
}

/// The last report of each kind.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Heard {
    pub probe: Option<Report>,
    pub progress: Option<Report>,
    pub end: Option<Report>,
}

impl Voice {
    pub(crate) fn new(port: Box<dyn Port>) -> Voice {
        // The standard library seeds every one of these from the kernel's random numbers.
        let transfer = RandomState::new().build_hasher().finish();
        Voice { port, transfer, heads: Vec::new(), heard: Heard::default() }
    }

    /// Payloads of `size` bytes that go by one call.
    pub(crate) fn packets_at_once(size: usize) -> usize {
        datagrams_at_once(HEADER_BYTES + size)
    }

    /// Sends `body` in packets of `size` bytes; the number of the first one is given. Their positions follow
    /// each other by `stride` bytes a byte: 1 for data, 0 where the position means something else. How many
    /// packets it were.
    pub(crate) fn say(
        &mut self,
        kind: PacketKind,
        (sequence, position, stride): (u64, u64, u64),
        body: &[u8],
        size: usize,
        control: &Control,
    ) -> Result<u64, Error> {
        self.heads.clear();
        let count = body.len().div_ceil(size).max(1);
        for number in 0..count {
            let from = number * size;
            let header = Header {
                kind,
                port: self.port.number(),
                length: (body.len() - from).min(size) as u16,
                transfer: self.transfer,
                sequence: sequence + number as u64,
                position: position + stride * from as u64,
            };
            let mut head = [0; HEADER_BYTES];
            header.write(&mut head);
            self.heads.extend_from_slice(&head);
        }
        let run = Run::with_heads(&self.heads, HEADER_BYTES, body, size);
        self.port.send(&[run], None, control)?;
        Ok(count as u64)
    }

    /// Sends a packet without a payload.
    pub(crate) fn tell(
        &mut self,
        kind: PacketKind,
        sequence: u64,
        position: u64,
        control: &Control,
    ) -> Result<(), Error> {
        self.say(kind, (sequence, position, 0), &[], 1, control).map(drop)
    }

    /// Takes the reports that are there; whether any were.
    pub(crate) fn hear(&mut self) -> Result<bool, Error> {
        let (heard, transfer) = (&mut self.heard, self.transfer);
        self.port.receive(&mut |runs| {
            for packet in runs.iter().flat_map(Run::segments) {
                let Some((header, payload)) = Header::read(packet) else { continue };
                if header.kind == PacketKind::Report && header.transfer == transfer {
                    heard.note(payload);
                }
            }
        })
    }

    /// Waits for a report until then, and takes it.
    pub(crate) fn listen(&mut self, until: Instant, control: &Control) -> Result<bool, Error> {
        Ok(self.hear()?
            || (control.wait(self.port.descriptor(), PollFlags::IN, Some(until))? && self.hear()?))
    }

    pub(crate) fn heard(&self) -> &Heard {
        &self.heard
    }
}

impl Heard {
    fn note(&mut self, payload: &[u8]) {
        let Some(report) = Report::read(payload) else { return };
        match report.about {
            About::Probe => self.probe = Some(report),
            About::Progress => self.progress = Some(report),
            About::End => self.end = Some(report),
        }
    }
}
