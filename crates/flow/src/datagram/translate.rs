//! Translation of datagrams in a relay between plain and sequenced sides.
//!
//! | from | to | |
//! |---|---|---|
//! | plain | plain | unchanged |
//! | sequenced | sequenced | unchanged, or with another port in the header |
//! | plain | sequenced | the relay adds a header with a number |
//! | sequenced | plain | the header is removed; packets without data are dropped |
//!
//! Invariant: datagrams keep their boundaries and order; payloads are not copied. Called by [`super::relay`].

use super::layout::{HEADER_BYTES, Header, PacketKind, set_port};
use super::run::Run;
use crate::error::Error;
use std::hash::{BuildHasher, Hasher, RandomState};

/// Greatest number of datagrams translated at once.
const DATAGRAMS_MAX: usize = 64;
/// Number of end marks that a relay sends which numbers packets, since nobody waits for the answer.
const ENDS: usize = 3;

/// Callback that sends runs.
pub(crate) type Send<'a> = &'a mut dyn FnMut(&[Run<'_>]) -> Result<(), Error>;

/// Change made to datagrams.
pub(crate) enum Translation {
    Keep,
    Renumber { onwards: u16, back: u16 },
    Add(Numbers),
    Strip,
}

/// Counters of a relay that numbers packets.
pub(crate) struct Numbers {
    port: u16,
    transfer: u64,
    sequence: u64,
    position: u64,
    heads: Vec<u8>,
}

/// Properties of one side of a relay.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RelaySide {
    pub sequenced: bool,
    pub port: u16,
}

impl Translation {
    pub(crate) fn between(from: RelaySide, to: RelaySide) -> Translation {
        match (from.sequenced, to.sequenced) {
            (true, true) if from.port != to.port => {
                Translation::Renumber { onwards: to.port, back: from.port }
            }
            (true, true) | (false, false) => Translation::Keep,
            (true, false) => Translation::Strip,
            (false, true) => Translation::Add(Numbers {
                port: to.port,
                transfer: RandomState::new().build_hasher().finish(),
                sequence: 0,
                position: 0,
                heads: Vec::new(),
            }),
        }
    }

    /// Translates datagrams from source to sink. Adds those that cannot be translated to `unfit`.
    pub(crate) fn onwards(&mut self, runs: &[Run<'_>], unfit: &mut u64, send: Send<'_>) -> Result<(), Error> {
        match self {
            Translation::Keep => send(runs),
            Translation::Renumber { onwards, .. } => renumber(runs, *onwards, unfit, send),
            Translation::Add(numbers) => runs.iter().try_for_each(|run| numbers.add(run, send)),
            Translation::Strip => strip(runs, unfit, send),
        }
    }

    /// Translates datagrams from sink to source. If only one side has headers, nothing is sent back.
    pub(crate) fn back(&mut self, runs: &[Run<'_>], unfit: &mut u64, send: Send<'_>) -> Result<(), Error> {
        match self {
            Translation::Keep => send(runs),
            Translation::Renumber { back, .. } => renumber(runs, *back, unfit, send),
            Translation::Add(_) | Translation::Strip => Ok(()),
        }
    }

    /// Sends the end marks, if the relay has numbered the packets.
    pub(crate) fn end(&mut self, send: Send<'_>) -> Result<(), Error> {
        let Translation::Add(numbers) = self else { return Ok(()) };
        let mut head = [0; HEADER_BYTES];
        numbers.header(PacketKind::End, 0).write(&mut head);
        (0..ENDS).try_for_each(|_| send(&[Run::new(&head, HEADER_BYTES)]))
    }
}

impl Numbers {
    fn header(&self, kind: PacketKind, length: usize) -> Header {
        Header {
            kind,
            port: self.port,
            length: length as u16,
            transfer: self.transfer,
            sequence: self.sequence,
            position: self.position,
        }
    }

    fn add(&mut self, run: &Run<'_>, send: Send<'_>) -> Result<(), Error> {
        if run.body().is_empty() {
            return Ok(());
        }
        self.heads.clear();
        let mut size = 0;
        for segment in run.segments() {
            let mut head = [0; HEADER_BYTES];
            self.header(PacketKind::Data, segment.len()).write(&mut head);
            self.heads.extend_from_slice(&head);
            self.sequence += 1;
            self.position += segment.len() as u64;
            size = size.max(segment.len());
        }
        send(&[Run::with_heads(&self.heads, HEADER_BYTES, run.body(), size)])
    }
}

/// Replaces the port in each packet.
fn renumber(runs: &[Run<'_>], port: u16, unfit: &mut u64, send: Send<'_>) -> Result<(), Error> {
    let mut heads = [[0; HEADER_BYTES]; DATAGRAMS_MAX];
    in_pieces(runs, &mut |packets| {
        let mut rests = [&[][..]; DATAGRAMS_MAX];
        let mut count = 0;
        for packet in packets {
            match packet.split_first_chunk::<HEADER_BYTES>() {
                Some((head, _)) => {
                    heads[count] = *head;
                    set_port(&mut heads[count], port);
                    // The header's length excludes the bytes that Ethernet appends to a short frame.
                    rests[count] = Header::read(packet).map_or(&[][..], |(_, payload)| payload);
                    count += 1;
                }
                None => *unfit += 1,
            }
        }
        let mut changed = [Run::new(&[], 1); DATAGRAMS_MAX];
        for ((run, head), rest) in changed.iter_mut().zip(&heads).zip(rests).take(count) {
            *run = Run::with_heads(head, HEADER_BYTES, rest, rest.len());
        }
        send(&changed[..count])
    })
}

/// Sends only the payloads of data packets.
fn strip(runs: &[Run<'_>], unfit: &mut u64, send: Send<'_>) -> Result<(), Error> {
    in_pieces(runs, &mut |packets| {
        let mut left = [Run::new(&[], 1); DATAGRAMS_MAX];
        let mut count = 0;
        for packet in packets {
            match Header::read(packet) {
                Some((header, payload)) if header.kind == PacketKind::Data => {
                    left[count] = Run::new(payload, payload.len());
                    count += 1;
                }
                Some(_) => {}
                None => *unfit += 1,
            }
        }
        send(&left[..count])
    })
}

/// Passes on the datagrams of all runs, at most [`DATAGRAMS_MAX`] at once.
fn in_pieces<'a>(
    runs: &[Run<'a>],
    take: &mut impl FnMut(&[&'a [u8]]) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut packets: [&[u8]; DATAGRAMS_MAX] = [&[]; DATAGRAMS_MAX];
    let mut count = 0;
    for packet in runs.iter().flat_map(Run::segments) {
        packets[count] = packet;
        count += 1;
        if count == DATAGRAMS_MAX {
            take(&packets)?;
            count = 0;
        }
    }
    take(&packets[..count])
}
