//! The receiver of a stream, without its socket: packets go in with the time of their arrival, and units come out when
//! they are due.
//!
//! A unit is due a fixed time behind the moment at which its fastest packet could have come ([`super::drift`]), so that
//! the play-out follows the sender's clock and the buffer neither runs empty nor overflows. The play-out changes its pace
//! by at most [`SLEW`]. All times are nanoseconds from one start, so that tests need no clock. Invariant: whatever comes
//! from whomever, the receiver's memory is bounded and one call makes at most one unit.

use super::drift::Drift;
use super::jitter_buffer::{JitterBuffer, Placed};
use super::player::{Concealment, Player};
use super::rtcp::{self, SenderReport};
use super::sdp::Description;
use super::senders::{Senders, Verdict};
use crate::timing::{Jitter, LiveStream, Meter, Reception, Times};
use rtp_types::RtpPacket;
use std::net::SocketAddr;
use std::time::Duration;

/// Greatest change of the play-out's pace: 5 ms a second.
const SLEW: i64 = 200;
/// Greatest part of the buffer's time that the play-out is wrong by before it is set anew.
const SNAP: i64 = 2;
/// Difference of a transit time from the expected one, beyond the buffer's time, that shows that the sender's times
/// have changed, in nanoseconds.
const JUMP_NS: i64 = 2_000_000_000;
/// Packets in a row that show that the sender's numbers or times have changed.
const JUMPS: u32 = 2;
/// Least number of bytes that may wait.
const BUFFER_BYTES_MIN: usize = 8 << 20;
/// Times as many bytes as the stream has in the buffer's time may wait.
const BUFFER_SLACK: usize = 8;

/// What a receiver has to know.
#[derive(Clone, Debug)]
pub(crate) struct ReceiverOptions {
    pub(crate) description: Description,
    /// Time that packets wait, so that later ones are there in time.
    pub(crate) buffer: Duration,
    /// Silence after which the stream has ended.
    pub(crate) timeout: Duration,
    pub(crate) concealment: Concealment,
}

/// The receiver of a stream.
#[derive(Debug)]
pub(crate) struct Receiver {
    options: ReceiverOptions,
    delay_ns: i64,
    /// Time of the day at the start of the receiver's times, in nanoseconds since 1970.
    unix_ns: u64,
    senders: Senders,
    buffer: JitterBuffer,
    player: Player,
    drift: Drift,
    jitter: Jitter,
    /// Timestamp of tick 0.
    first_timestamp: u32,
    /// Greatest time in the stream that has come, in ticks; `None` before the first packet.
    newest: Option<i64>,
    /// Time from a unit's time in the stream until it is played, in nanoseconds.
    offset_ns: i64,
    /// Time in the stream up to which the offset has followed, in nanoseconds.
    followed_ns: i64,
    /// Packets in a row whose number or time is far from the others.
    jumps: u32,
    /// Time of the last packet.
    heard_ns: u64,
    has_said_goodbye: bool,
    report: Option<SenderReport>,
    meter: Meter,
    latency: Times,
    account: Reception,
}

impl Receiver {
    /// Makes a receiver. `unix_ns` is the time of the day at the start of its times.
    pub(crate) fn new(options: ReceiverOptions, unix_ns: u64) -> Receiver {
        let format = options.description.format;
        let in_time = format.bytes_per_s() * options.buffer.as_secs_f64();
        let bytes_max = (in_time as usize).saturating_mul(BUFFER_SLACK).max(BUFFER_BYTES_MIN);
        Receiver {
            delay_ns: i64::try_from(options.buffer.as_nanos()).unwrap_or(i64::MAX),
            unix_ns,
            senders: Senders::default(),
            buffer: JitterBuffer::new(bytes_max),
            player: Player::new(format, options.concealment),
            drift: Drift::default(),
            jitter: Jitter::default(),
            first_timestamp: 0,
            newest: None,
            offset_ns: 0,
            followed_ns: 0,
            jumps: 0,
            heard_ns: 0,
            has_said_goodbye: false,
            report: None,
            meter: Meter::new(),
            latency: Times::new(),
            account: Reception::default(),
            options,
        }
    }

    /// Takes a datagram that came from an address at `now_ns`.
    pub(crate) fn packet(&mut self, now_ns: u64, from: SocketAddr, bytes: &[u8]) {
        let packet = match RtpPacket::parse(bytes) {
            Ok(packet) if packet.payload_type() == self.options.description.payload_type => packet,
            _ => return self.account.packets_foreign += 1,
        };
        let (sequence, timestamp) = (packet.sequence_number(), packet.timestamp());
        match self.senders.judge(now_ns, (from, packet.ssrc()), sequence) {
            Verdict::Foreign => return self.account.packets_foreign += 1,
            Verdict::Begins => self.begin(timestamp),
            Verdict::Current => {}
        }
        if self.has_jumped(now_ns, timestamp) {
            self.jumps += 1;
            if self.jumps < JUMPS {
                return self.account.packets_foreign += 1;
            }
            self.begin(timestamp);
        }
        let mut ticks = self.ticks(timestamp);
        let mut placed = self.buffer.put(sequence, ticks, packet.payload());
        if placed == Placed::Jump {
            self.jumps += 1;
            if self.jumps < JUMPS {
                return self.account.packets_foreign += 1;
            }
            self.begin(timestamp);
            ticks = 0;
            placed = self.buffer.put(sequence, ticks, packet.payload());
        }
        self.jumps = 0;
        self.heard_ns = now_ns;
        self.account.packets += 1;
        match placed {
            Placed::InOrder | Placed::Jump => {}
            Placed::Reordered => self.account.packets_reordered += 1,
            Placed::Duplicate => return self.account.packets_duplicated += 1,
            Placed::Late => self.account.packets_late += 1,
            // It is counted as lost when its place is passed.
            Placed::Full => {}
        }
        self.note_time(now_ns, ticks);
    }

    /// Takes a packet of RTCP that came from an address.
    pub(crate) fn control_packet(&mut self, from: SocketAddr, bytes: &[u8]) {
        let known = self.senders.current().filter(|known| known.0.ip() == from.ip());
        let Some((_, ssrc)) = known else { return };
        let statements = rtcp::decode(bytes, ssrc);
        self.report = statements.report.or(self.report);
        self.has_said_goodbye |= statements.is_goodbye;
    }

    /// Returns the time at which the next unit is to be played; `None` if there is none until a packet comes.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        let ticks = self.player.next_ticks(&self.buffer)?;
        let due = self.media_ns(ticks).saturating_add(self.offset_ns);
        Some(u64::try_from(due).unwrap_or(0))
    }

    /// Returns true if the stream has ended: the sender said so or has been silent for long.
    fn has_ended(&self, now_ns: u64) -> bool {
        let timeout = u64::try_from(self.options.timeout.as_nanos()).unwrap_or(u64::MAX);
        self.newest.is_some() && (self.has_said_goodbye || now_ns.saturating_sub(self.heard_ns) >= timeout)
    }

    /// Returns true if the stream has ended and all of it was played.
    pub(crate) fn is_over(&self, now_ns: u64) -> bool {
        self.has_ended(now_ns) && self.buffer.next_ticks().is_none() && !self.player.has_rest()
    }

    /// Appends the unit that is due to `out`, at `now_ns`.
    pub(crate) fn play(&mut self, now_ns: u64, out: &mut Vec<u8>) {
        let (Some(ticks), Some(due_ns)) = (self.player.next_ticks(&self.buffer), self.due_ns()) else {
            return;
        };
        let has_ended = self.has_ended(now_ns);
        let played = self.player.play(&mut self.buffer, has_ended, &mut self.account, out);
        (0..played.dropped).for_each(|_| self.meter.dropped());
        if played.is_unit {
            self.meter.passed(Duration::from_nanos(now_ns.saturating_sub(due_ns)));
            if let Some(sampled_ns) = self.sampled_unix_ns(ticks) {
                let age = i128::from(self.unix_ns) + i128::from(now_ns) - i128::from(sampled_ns);
                self.latency.note(Duration::from_nanos(u64::try_from(age).unwrap_or(0)));
            }
        }
        self.follow(self.media_ns(ticks));
    }

    /// Returns the account of the stream at the end `name`.
    pub(crate) fn account(&self, name: &str) -> LiveStream {
        let mut account = self.meter.account(name, 0);
        account.jitter_seconds = self.jitter.seconds();
        account.reception = Some(Reception {
            drift_ppm: self.drift.ppm(),
            latency: self.latency.percentiles(),
            is_complete: self.has_said_goodbye,
            ..self.account.clone()
        });
        account
    }

    /// Begins a stream with a packet of this timestamp.
    fn begin(&mut self, timestamp: u32) {
        self.account.sender_restarts += u64::from(self.newest.is_some());
        self.account.packets_lost += self.buffer.restart();
        self.player.restart();
        self.drift = Drift::default();
        self.jitter.restart();
        (self.first_timestamp, self.newest) = (timestamp, None);
        (self.report, self.has_said_goodbye, self.jumps) = (None, false, 0);
    }

    /// Returns the time in the stream of a timestamp, in ticks: the nearest one to the newest.
    fn ticks(&self, timestamp: u32) -> i64 {
        let newest = self.newest.unwrap_or(0);
        let expected = self.first_timestamp.wrapping_add(newest as u32);
        newest + i64::from(timestamp.wrapping_sub(expected) as i32)
    }

    fn media_ns(&self, ticks: i64) -> i64 {
        let hz = i128::from(self.options.description.format.clock_hz());
        (i128::from(ticks) * 1_000_000_000 / hz) as i64
    }

    /// Returns true if a packet's transit time shows that the sender's times have changed.
    fn has_jumped(&self, now_ns: u64, timestamp: u32) -> bool {
        let media_ns = self.media_ns(self.ticks(timestamp));
        let transit_ns = now_ns as i64 - media_ns;
        let floor_ns = self.drift.floor_ns(media_ns);
        floor_ns.is_some_and(|floor| (transit_ns - floor).abs() > JUMP_NS + self.delay_ns)
    }

    /// Notes the time of a packet. Those of a frame are spread over its time, so that the first one alone is counted.
    fn note_time(&mut self, now_ns: u64, ticks: i64) {
        if self.newest.is_some_and(|newest| ticks <= newest) {
            return;
        }
        let media_ns = self.media_ns(ticks);
        let transit_ns = now_ns as i64 - media_ns;
        self.drift.note(media_ns, transit_ns);
        self.jitter.note(transit_ns);
        if self.newest.replace(ticks).is_none() {
            self.offset_ns = transit_ns + self.delay_ns;
            self.followed_ns = media_ns;
        }
    }

    /// Brings the play-out nearer to where it should be, as much as the time that has passed allows.
    fn follow(&mut self, media_ns: i64) {
        let passed = (media_ns - self.followed_ns).max(0);
        let Some(floor) = self.drift.floor_ns(media_ns).filter(|_| passed > 0) else { return };
        self.followed_ns = media_ns;
        let wrong = floor + self.delay_ns - self.offset_ns;
        let most = passed / SLEW;
        self.offset_ns += match wrong.abs() > self.delay_ns / SNAP {
            true => wrong,
            false => wrong.clamp(-most, most),
        };
    }

    /// Returns the time of the day at which a unit was sampled, by the sender's last report.
    fn sampled_unix_ns(&self, ticks: i64) -> Option<u64> {
        let report = self.report?;
        let since = self.media_ns(ticks - self.ticks(report.timestamp));
        u64::try_from(i128::from(report.unix_ns) + i128::from(since)).ok()
    }
}
