//! Sender of a sequenced transfer. The protocol is drawn in [`super::receiver`].
//!
//! Invariant: packets are numbered without gaps, and positions are those of the stream; the stream ends
//! without an error only if the receiver reported that nothing is missing. At `--rate auto` the bytes in
//! flight are limited to a part of the receiver's buffer, and a report of loss lowers the rate. Called by the
//! movers.

use super::accounting::Ledger;
use super::layout::{HEADER_BYTES, PAYLOAD_BYTES_MAX, PacketKind, Report};
use super::options::Rate;
use super::packet_sender::PacketSender;
use super::port::Port;
use super::probe::probe;
use crate::block_io::Output;
use crate::control::Control;
use crate::error::Error;
use crate::rate_limiter::RateLimiter;
use std::time::{Duration, Instant};

/// Greatest number of end marks, and interval between them: ten seconds in all, for a receiver that is still
/// writing.
const END_TRIES_MAX: u32 = 200;
const END_EVERY: Duration = Duration::from_millis(50);
/// Greatest number of bytes in flight at `--rate auto`, and divisor of the receiver's buffer that also limits
/// them. The kernel counts a packet with its metadata, at worst as more than twice its payload.
const WINDOW_BYTES_MAX: u64 = 4 << 20;
const WINDOW_PART: u64 = 4;
/// Interval between requests to a receiver that reports no progress, and time after which it counts as dead.
const SYNC_EVERY: Duration = Duration::from_millis(20);
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// Interval between checks for reports while data is sent.
const HEAR_EVERY: Duration = Duration::from_millis(2);
/// Factor by which loss lowers the rate, and shortest interval between two reductions.
const LOWER: f64 = 0.8;
const LOWER_EVERY: Duration = Duration::from_millis(50);

/// Sink that sends a sequenced transfer.
pub(crate) struct SequencedOutput {
    packet_sender: PacketSender,
    ledger: Ledger,
    size: usize,
    rate: Rate,
    pace: RateLimiter,
    has_begun: bool,
    sequence: u64,
    position: u64,
    /// Highest position that the receiver has reported.
    seen: u64,
    window: u64,
    lost: u64,
    lowered: Instant,
    heard: Instant,
}

impl SequencedOutput {
    /// Creates a sender with packets of `size` payload bytes.
    pub(crate) fn new(port: Box<dyn Port>, size: usize, rate: Rate, ledger: Ledger) -> SequencedOutput {
        assert!(
            (1..=PAYLOAD_BYTES_MAX - HEADER_BYTES).contains(&size),
            "sizes are checked when ports are opened"
        );
        let now = Instant::now();
        SequencedOutput {
            packet_sender: PacketSender::new(port),
            ledger,
            size,
            rate,
            pace: RateLimiter::new(if let Rate::Fixed(rate) = rate { Some(rate) } else { None }),
            has_begun: false,
            sequence: 0,
            position: 0,
            seen: 0,
            window: u64::MAX,
            lost: 0,
            lowered: now,
            heard: now,
        }
    }

    /// Finds the rate before the first byte, if the user wants that.
    fn begin(&mut self, control: &Control) -> Result<(), Error> {
        if self.has_begun || self.rate != Rate::Auto {
            return Ok(());
        }
        let probing = probe(&mut self.packet_sender, self.size, control)?;
        self.pace.set(probing.rate_chosen);
        let buffer = self.packet_sender.heard().probe.map_or(0, |report| report.buffer);
        self.window = (buffer / WINDOW_PART).clamp(2 * self.size as u64, WINDOW_BYTES_MAX);
        self.ledger.open().probing = Some(probing);
        self.has_begun = true;
        Ok(())
    }

    /// Returns the number of packets of the next call.
    fn packets(&self) -> usize {
        let most = PacketSender::packets_at_once(self.size)
            .min((self.window / 2 / self.size as u64).max(1) as usize);
        self.pace.pieces(self.size, most)
    }

    /// Receives reports, if the interval has passed.
    fn hear(&mut self) -> Result<(), Error> {
        if self.heard.elapsed() < HEAR_EVERY {
            return Ok(());
        }
        self.heard = Instant::now();
        while self.packet_sender.hear()? {}
        self.heed();
        Ok(())
    }

    /// Applies the last report of progress to the window and the rate.
    fn heed(&mut self) {
        let Some(report) = self.packet_sender.heard().progress else { return };
        self.seen = self.seen.max(report.position);
        if self.rate == Rate::Auto && report.lost > self.lost && self.lowered.elapsed() > LOWER_EVERY {
            self.lowered = Instant::now();
            self.lost = report.lost;
            let rate = (self.pace.bytes_per_s().unwrap_or(0) as f64 * LOWER) as u64;
            self.pace.set(rate);
            if let Some(probing) = &mut self.ledger.open().probing {
                probing.rate_last = rate;
                probing.lowered += 1;
            }
        }
    }

    /// Waits until `bytes` more bytes may be in flight.
    fn wait_for_window(&mut self, bytes: u64, control: &Control) -> Result<(), Error> {
        let (begin, mut asked) = (Instant::now(), None::<Instant>);
        while self.position + bytes > self.seen.saturating_add(self.window) {
            let now = Instant::now();
            if now > begin + SILENCE_MAX {
                return Err(Error::Lost(format!(
                    "{}: the receiver has not said for {} seconds that it took anything; {} bytes were sent",
                    self.packet_sender.port.label(),
                    SILENCE_MAX.as_secs(),
                    self.position
                )));
            }
            // If all packets in flight were lost, only the answer to a request shows it.
            let ask_at = asked.unwrap_or(begin) + SYNC_EVERY;
            if now >= ask_at {
                self.packet_sender.tell(PacketKind::Sync, self.sequence, self.position, control)?;
                asked = Some(now);
            }
            self.packet_sender.listen(ask_at.max(now + HEAR_EVERY), control)?;
            self.heed();
        }
        Ok(())
    }

    /// Sends end marks until the receiver has reported; `None` after the last one.
    fn settle(&mut self, control: &Control) -> Result<Option<Report>, Error> {
        for _ in 0..END_TRIES_MAX {
            self.packet_sender.tell(PacketKind::End, self.sequence, self.position, control)?;
            let again = Instant::now() + END_EVERY;
            while Instant::now() < again {
                self.packet_sender.listen(again, control)?;
                if let Some(report) = self.packet_sender.heard().end {
                    // If this packet is lost, the receiver stays a little longer.
                    let _ = self.packet_sender.tell(PacketKind::Done, 0, 0, control);
                    return Ok(Some(report));
                }
            }
        }
        Ok(None)
    }

    fn publish(&self) {
        let ways = self.packet_sender.port.engine_state();
        let mut account = self.ledger.open();
        account.engine = Some(ways.engine);
        account.fell_back = ways.fell_back;
        account.packets_sent = self.sequence;
        account.bytes_sent = self.position;
    }

    fn note_report(&self, report: &Report) {
        let mut account = self.ledger.open();
        account.packets_received = report.packets;
        account.lost = report.lost;
        account.duplicated = report.duplicated;
        account.kernel_drops = report.kernel_drops;
        account.receive_buffer = report.buffer;
        account.whole = Some(report.lost == 0);
    }
}

impl Output for SequencedOutput {
    fn put(&mut self, block: &[u8], control: &Control) -> Result<(), Error> {
        self.begin(control)?;
        let mut left = block;
        while !left.is_empty() {
            let (part, rest) = left.split_at(left.len().min(self.packets() * self.size));
            left = rest;
            self.wait_for_window(part.len() as u64, control)?;
            self.pace.wait(part.len() as u64, control)?;
            let place = (self.sequence, self.position, 1);
            self.sequence += self.packet_sender.say(PacketKind::Data, place, part, self.size, control)?;
            self.position += part.len() as u64;
            self.hear()?;
        }
        self.publish();
        control.check()
    }

    fn finish(&mut self, control: &Control) -> Result<(), Error> {
        let answer = self.settle(control);
        self.publish();
        let label = self.packet_sender.port.label();
        match answer? {
            None => Err(Error::Lost(format!(
                "{label}: {} bytes were sent, but the receiver did not say what arrived",
                self.position
            ))),
            Some(report) => {
                self.note_report(&report);
                match report.lost {
                    0 => Ok(()),
                    lost => Err(Error::Lost(format!(
                        "{label}: the receiver misses {lost} of {} packets; send slower, or with --rate auto",
                        self.sequence
                    ))),
                }
            }
        }
    }
}
