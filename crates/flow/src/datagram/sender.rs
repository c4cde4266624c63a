//! The sending end of a sequenced transfer. The conversation is drawn in [`super::receiver`].
//!
//! Invariant: packets are numbered without gaps, and positions are those of the stream; the end is only said
//! to be well when the receiver reported that nothing is missing. At `--rate auto`, no more is under way than
//! a part of the receiver's buffer, and a report of loss lowers the rate. Called by the movers.

use super::accounting::Ledger;
use super::layout::{HEADER_BYTES, PAYLOAD_BYTES_MAX, PacketKind, Report};
use super::options::Rate;
use super::port::Port;
use super::probe::probe;
use super::voice::Voice;
use crate::block_io::Output;
use crate::control::Control;
use crate::error::Error;
use crate::rate_limiter::RateLimiter;
use std::time::{Duration, Instant};

/// How often the end is said, and how long each time is waited for an answer: ten seconds in all, for a
/// receiver that is still writing.
const END_TRIES_MAX: u32 = 200;
const END_EVERY: Duration = Duration::from_millis(50);
/// Most bytes under way at `--rate auto`, and which part of the receiver's buffer that may be. The kernel
/// counts a packet with everything around it, at worst as more than twice its payload.
const WINDOW_BYTES_MAX: u64 = 4 << 20;
const WINDOW_PART: u64 = 4;
/// How often a receiver that holds everything up is asked how far it is, and after what time it is given up.
const SYNC_EVERY: Duration = Duration::from_millis(20);
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// How often reports are looked for while data is sent.
const HEAR_EVERY: Duration = Duration::from_millis(2);
/// What loss does to the rate, and how often at most.
const LOWER: f64 = 0.8;
const LOWER_EVERY: Duration = Duration::from_millis(50);

/// A stream that is sent in sequenced packets.
pub(crate) struct SequencedOutput {
    voice: Voice,
    ledger: Ledger,
    size: usize,
    rate: Rate,
    pace: RateLimiter,
    has_begun: bool,
    sequence: u64,
    position: u64,
    /// Up to where the receiver saw the stream.
    seen: u64,
    window: u64,
    lost: u64,
    lowered: Instant,
    heard: Instant,
}

impl SequencedOutput {
    /// Sends `size` payload bytes a packet.
    pub(crate) fn new(port: Box<dyn Port>, size: usize, rate: Rate, ledger: Ledger) -> SequencedOutput {
        assert!(
            (1..=PAYLOAD_BYTES_MAX - HEADER_BYTES).contains(&size),
            "sizes are checked when ports are opened"
        );
        let now = Instant::now();
        SequencedOutput {
            voice: Voice::new(port),
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

    /// Before the first byte: finds the rate, if that was asked for.
    fn begin(&mut self, control: &Control) -> Result<(), Error> {
        if self.has_begun || self.rate != Rate::Auto {
            return Ok(());
        }
        let probing = probe(&mut self.voice, self.size, control)?;
        self.pace.set(probing.rate_chosen);
        let buffer = self.voice.heard().probe.map_or(0, |report| report.buffer);
        self.window = (buffer / WINDOW_PART).clamp(2 * self.size as u64, WINDOW_BYTES_MAX);
        self.ledger.open().probing = Some(probing);
        self.has_begun = true;
        Ok(())
    }

    /// Packets of the next call.
    fn packets(&self) -> usize {
        let most =
            Voice::packets_at_once(self.size).min((self.window / 2 / self.size as u64).max(1) as usize);
        self.pace.pieces(self.size, most)
    }

    /// Looks for reports if it is time.
    fn hear(&mut self) -> Result<(), Error> {
        if self.heard.elapsed() < HEAR_EVERY {
            return Ok(());
        }
        self.heard = Instant::now();
        while self.voice.hear()? {}
        self.heed();
        Ok(())
    }

    /// Does what the last report of progress asks for.
    fn heed(&mut self) {
        let Some(report) = self.voice.heard().progress else { return };
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

    /// Waits until so many bytes more may be under way.
    fn wait_for_window(&mut self, bytes: u64, control: &Control) -> Result<(), Error> {
        let (begin, mut asked) = (Instant::now(), None::<Instant>);
        while self.position + bytes > self.seen.saturating_add(self.window) {
            let now = Instant::now();
            if now > begin + SILENCE_MAX {
                return Err(Error::Lost(format!(
                    "{}: the receiver has not said for {} seconds that it took anything; {} bytes were sent",
                    self.voice.port.label(),
                    SILENCE_MAX.as_secs(),
                    self.position
                )));
            }
            // If what was under way is lost, nothing but an answer says so.
            let ask_at = asked.unwrap_or(begin) + SYNC_EVERY;
            if now >= ask_at {
                self.voice.tell(PacketKind::Sync, self.sequence, self.position, control)?;
                asked = Some(now);
            }
            self.voice.listen(ask_at.max(now + HEAR_EVERY), control)?;
            self.heed();
        }
        Ok(())
    }

    /// Says the end until the receiver has said what it has.
    fn settle(&mut self, control: &Control) -> Result<Option<Report>, Error> {
        for _ in 0..END_TRIES_MAX {
            self.voice.tell(PacketKind::End, self.sequence, self.position, control)?;
            let again = Instant::now() + END_EVERY;
            while Instant::now() < again {
                self.voice.listen(again, control)?;
                if let Some(report) = self.voice.heard().end {
                    // If this is not heard, the receiver stays a little longer.
                    let _ = self.voice.tell(PacketKind::Done, 0, 0, control);
                    return Ok(Some(report));
                }
            }
        }
        Ok(None)
    }

    fn publish(&self) {
        let ways = self.voice.port.ways();
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
            self.sequence += self.voice.say(PacketKind::Data, place, part, self.size, control)?;
            self.position += part.len() as u64;
            self.hear()?;
        }
        self.publish();
        control.check()
    }

    fn finish(&mut self, control: &Control) -> Result<(), Error> {
        let answer = self.settle(control);
        self.publish();
        let label = self.voice.port.label();
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
