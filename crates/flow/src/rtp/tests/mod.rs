//! Receivers in simulated time: a sender with a clock of its own, and a network that delays, loses, repeats and reorders.
//!
//! No test waits, and none depends on how fast the machine is.

mod sound;
mod strangers;
mod video;

use super::format::RtpFormat;
use super::player::Concealment;
use super::raw_video::tests::noise;
use super::receiver::{Receiver, ReceiverOptions};
use super::rtcp::SenderReport;
use super::sdp::Description;
use crate::timing::{LiveStream, Reception};
use rtp_types::RtpPacketBuilder;
use std::net::SocketAddr;
use std::time::Duration;

pub(super) const MS: u64 = 1_000_000;
/// Time that packets wait in these tests.
pub(super) const BUFFER_MS: u64 = 100;

pub(super) fn address(port: u16) -> SocketAddr {
    ([192, 0, 2, 1], port).into()
}

/// A datagram on its path: the time of its arrival, by the receiver's clock, its sender and its bytes.
pub(super) type Arrival = (u64, SocketAddr, Vec<u8>);

/// A sender of packets.
#[derive(Clone, Copy)]
pub(super) struct Source {
    pub(super) address: SocketAddr,
    pub(super) ssrc: u32,
    pub(super) payload_type: u8,
    pub(super) sequence: u16,
    pub(super) timestamp: u32,
}

impl Source {
    pub(super) fn new(payload_type: u8) -> Source {
        Source { address: address(5), ssrc: 7, payload_type, sequence: 65_400, timestamp: u32::MAX - 100_000 }
    }

    /// Makes the packet with this number and time in ticks, both counted from the first packet.
    pub(super) fn packet(&self, number: u64, ticks: u64, payload: &[u8]) -> Vec<u8> {
        RtpPacketBuilder::<&[u8], &[u8]>::new()
            .payload_type(self.payload_type)
            .sequence_number(self.sequence.wrapping_add(number as u16))
            .timestamp(self.timestamp.wrapping_add(ticks as u32))
            .ssrc(self.ssrc)
            .payload(payload)
            .write_vec()
            .unwrap()
    }
}

/// A number from 0 to 1 that looks random, the same one for the same seed.
pub(super) fn chance(seed: u64) -> f64 {
    let bytes: [u8; 8] = noise(8, seed.wrapping_mul(0x9E37_79B9_7F4A_7C15)).try_into().unwrap();
    (u64::from_be_bytes(bytes) >> 11) as f64 / (1u64 << 53) as f64
}

pub(super) fn receiver(format: RtpFormat, concealment: Concealment) -> Receiver {
    let options = ReceiverOptions {
        description: Description { format, payload_type: 96 },
        buffer: Duration::from_millis(BUFFER_MS),
        timeout: Duration::from_secs(2),
        concealment,
    };
    Receiver::new(options, 1_700_000_000_000_000_000)
}

/// Units that a receiver played, each with its time.
pub(super) type Units = Vec<(u64, Vec<u8>)>;

/// Lets packets arrive and units be played, each at its time, until the stream has ended. `look` sees the receiver after each
/// unit.
pub(super) fn run(
    receiver: &mut Receiver,
    mut arrivals: Vec<Arrival>,
    mut look: impl FnMut(u64, &Receiver),
) -> Units {
    arrivals.sort_by_key(|arrival| arrival.0);
    let (mut arrivals, mut units) = (arrivals.into_iter().peekable(), Vec::new());
    let mut now = 0;
    loop {
        let arrival = arrivals.peek().map(|arrival| arrival.0);
        let due = receiver.due_ns().map(|due| due.max(now));
        match (arrival, due) {
            (Some(arrival), due) if due.is_none_or(|due| arrival <= due) => {
                now = arrival;
                let (_, from, bytes) = arrivals.next().unwrap();
                receiver.packet(now, from, &bytes);
            }
            (_, Some(due)) => {
                now = due;
                let mut unit = Vec::new();
                receiver.play(now, &mut unit);
                if !unit.is_empty() {
                    units.push((now, unit));
                }
                look(now, receiver);
            }
            (_, None) => now += 100 * MS,
        }
        if arrivals.peek().is_none() && receiver.is_over(now) {
            return units;
        }
        assert!(now < 100_000_000 * MS, "the stream does not end");
    }
}

pub(super) fn joined(units: &Units) -> Vec<u8> {
    units.iter().flat_map(|unit| unit.1.clone()).collect()
}

pub(super) fn account(receiver: &Receiver) -> (LiveStream, Reception) {
    let stream = receiver.account("x");
    let reception = stream.reception.clone().unwrap();
    (stream, reception)
}

/// A report of the source about the time `unix_ns`, which is that of the timestamp.
pub(super) fn report(source: &Source, unix_ns: u64, ticks: u64, is_goodbye: bool) -> Vec<u8> {
    let timestamp = source.timestamp.wrapping_add(ticks as u32);
    SenderReport { ssrc: source.ssrc, unix_ns, timestamp, packets: 0, payload_bytes: 0 }
        .encode("x", is_goodbye)
}
