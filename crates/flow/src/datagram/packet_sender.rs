//! Sender's side of the protocol of a sequenced transfer: sends packets with headers, receives reports.
//!
//! Invariant: every packet carries the transfer's random number; reports of other transfers are ignored.
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

/// Sends packets and receives reports.
pub(crate) struct PacketSender {
    pub(crate) port: Box<dyn Port>,
    transfer: u64,
    heads: Vec<u8>,
    heard: LastReports,
}

/// Last report about each subject.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LastReports {
    pub probe: Option<Report>,
    pub progress: Option<Report>,
    pub end: Option<Report>,
}

impl PacketSender {
    pub(crate) fn new(port: Box<dyn Port>) -> PacketSender {
        // The standard library seeds each `RandomState` from the kernel's random numbers.
        let transfer = RandomState::new().build_hasher().finish();
        PacketSender { port, transfer, heads: Vec::new(), heard: LastReports::default() }
    }

    /// Returns the number of packets with payloads of `size` bytes that one call sends.
    pub(crate) fn packets_at_once(size: usize) -> usize {
        datagrams_at_once(HEADER_BYTES + size)
    }

    /// Sends `body` in packets of `size` bytes. The number and position of the first one are given; positions
    /// advance by `stride` for each byte: 1 for data, 0 if the position has another meaning. Returns the
    /// number of packets.
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

    /// Receives the available reports. Returns true if there were any datagrams.
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

    /// Waits for a report until the time `until`, and receives it. Returns true if a datagram arrived.
    pub(crate) fn listen(&mut self, until: Instant, control: &Control) -> Result<bool, Error> {
        Ok(self.hear()?
            || (control.wait(self.port.descriptor(), PollFlags::IN, Some(until))? && self.hear()?))
    }

    pub(crate) fn heard(&self) -> &LastReports {
        &self.heard
    }
}

impl LastReports {
    fn note(&mut self, payload: &[u8]) {
        let Some(report) = Report::read(payload) else { return };
        match report.about {
            About::Probe => self.probe = Some(report),
            About::Progress => self.progress = Some(report),
            About::End => self.end = Some(report),
        }
    }
}
