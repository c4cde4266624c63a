//! Receiver of a sequenced transfer: returns the stream in order, and records what is missing.
//!
//! ```text
//!     sender                              receiver
//!       ask, probe ... ask        ───►                     only for `--rate auto`
//!                                 ◄───    report           one an ask
//!       data ...                  ───►
//!                                 ◄───    report           every 10 ms or 512 KiB
//!       end                       ───►                     repeated until it is answered
//!                                 ◄───    report           when all is there or given up
//!       done                      ───►                     so that the receiver need not stay
//! ```
//!
//! Invariant: every byte of the stream is returned at its position; the stream ends in order only if nothing
//! is missing, otherwise with [`Error::Lost`]. A receiver accepts packets of one transfer only. Called by the
//! movers.

use super::accounting::Ledger;
use super::assembly::{Accepted, Assembly};
use super::layout::{About, HEADER_BYTES, Header, PAYLOAD_BYTES_MAX, PacketKind, Report};
use super::name::Name;
use super::port::{Health, Port};
use super::run::Run;
use crate::block_io::Input;
use crate::control::Control;
use crate::error::Error;
use rustix::event::PollFlags;
use std::time::{Duration, Instant};

/// Time that a receiver waits for late packets after the end mark.
const END_GRACE: Duration = Duration::from_millis(200);
/// Time that a receiver stays after its last report, in case the report was lost.
const LINGER: Duration = Duration::from_millis(400);
/// Interval between reports of progress, in time and in bytes.
const REPORT_EVERY: Duration = Duration::from_millis(10);
const REPORT_EVERY_BYTES: u64 = 512 << 10;
/// Silence after which a sender counts as dead, so that another transfer may begin.
const SILENCE: Duration = Duration::from_secs(1);
/// Greatest number of reports that wait to be sent.
const ANSWERS_MAX: usize = 8;

/// Source that receives a sequenced transfer.
pub(crate) struct SequencedInput {
    port: Box<dyn Port>,
    ledger: Ledger,
    idle: Option<Duration>,
    state: State,
    /// Number of datagrams that the kernel dropped during probing, which were no data.
    probes_dropped: u64,
    lingered: bool,
}

/// State of the transfer.
struct State {
    assembly: Assembly,
    transfer: Option<u64>,
    sender: Option<Name>,
    heard: Instant,
    end: Option<EndMark>,
    is_over: bool,
    is_done: bool,
    restarted: bool,
    foreign: u64,
    probe: Step,
    /// Highest position of the stream that was received.
    position: u64,
    reported: (Instant, u64),
    answers: Vec<About>,
}

#[derive(Clone, Copy)]
struct EndMark {
    bytes: u64,
    packets: u64,
    said: Instant,
}

/// Packets received of one step of probes.
#[derive(Clone, Copy)]
struct Step {
    number: u64,
    packets: u64,
    first: Instant,
    last: Instant,
}

impl SequencedInput {
    pub(crate) fn new(port: Box<dyn Port>, idle: Option<Duration>, ledger: Ledger) -> SequencedInput {
        SequencedInput { port, ledger, idle, state: State::new(), probes_dropped: 0, lingered: false }
    }

    /// Receives the available packets and sends the reports that are due; waits if no packets are available.
    fn fetch(&mut self, control: &Control) -> Result<(), Error> {
        control.check()?;
        let state = &mut self.state;
        let came = self.port.receive(&mut |runs| state.take_all(runs, Instant::now()))?;
        let now = Instant::now();
        self.state.settle(now);
        self.answer(control)?;
        if self.state.restarted {
            return Err(Error::Lost(format!(
                "{}: the sender was started anew after {} bytes of a transfer that it did not end",
                self.port.label(),
                self.state.assembly.next()
            )));
        }
        if came || self.state.is_over {
            return Ok(());
        }
        let silent = self.idle.filter(|_| self.state.transfer.is_some()).map(|idle| self.state.heard + idle);
        if silent.is_some_and(|silent| silent <= now) {
            return Err(self.fell_silent());
        }
        let grace = self.state.end.map(|end| end.said + END_GRACE);
        let until = [silent, grace].into_iter().flatten().min();
        control.wait(self.port.descriptor(), PollFlags::IN, until).map(drop)
    }

    fn fell_silent(&mut self) -> Error {
        self.publish();
        Error::Lost(format!(
            "{}: the sender fell silent after {} bytes, without an end, for {} seconds: it was killed, or the way is gone (idle=SECONDS waits longer, idle=0 for ever)",
            self.port.label(),
            self.state.assembly.next(),
            self.idle.unwrap_or_default().as_secs_f32()
        ))
    }

    /// Sends the reports that are due.
    fn answer(&mut self, control: &Control) -> Result<(), Error> {
        let now = Instant::now();
        self.state.report_progress(now);
        if self.state.answers.is_empty() {
            return Ok(());
        }
        let (Some(transfer), Some(sender)) = (self.state.transfer, self.state.sender) else { return Ok(()) };
        let health = self.port.health();
        for about in std::mem::take(&mut self.state.answers) {
            if about == About::Probe {
                self.probes_dropped = health.drops;
            }
            let drops = health.drops.saturating_sub(self.probes_dropped);
            let report = self.state.report(about, Health { drops, ..health }).write();
            let header = Header {
                kind: PacketKind::Report,
                port: self.port.number(),
                length: report.len() as u16,
                transfer,
                sequence: 0,
                position: 0,
            };
            let mut head = [0; HEADER_BYTES];
            header.write(&mut head);
            let run = Run::with_heads(&head, HEADER_BYTES, &report, report.len());
            self.port.send(&[run], Some(&sender), control)?;
        }
        self.publish();
        Ok(())
    }

    /// Stays until the sender has acknowledged the last report, at most for [`LINGER`].
    fn linger(&mut self, control: &Control) -> Result<(), Error> {
        let until = Instant::now() + LINGER;
        while !self.state.is_done && Instant::now() < until {
            let state = &mut self.state;
            if !self.port.receive(&mut |runs| state.take_all(runs, Instant::now()))? {
                control.wait(self.port.descriptor(), PollFlags::IN, Some(until))?;
            }
            self.answer(control)?;
        }
        self.lingered = true;
        Ok(())
    }

    fn publish(&mut self) {
        let (health, ways) = (self.port.health(), self.port.engine_state());
        let (state, tally) = (&self.state, self.state.assembly.tally());
        let missing = state.assembly.missing();
        let mut account = self.ledger.open();
        account.engine = Some(ways.engine);
        account.fell_back = ways.fell_back;
        account.packets_received = tally.received;
        account.bytes_received = tally.received_bytes;
        account.duplicated = tally.duplicated;
        account.reordered = tally.reordered;
        account.late = tally.late;
        account.foreign = state.foreign + tally.absurd;
        account.kernel_drops = health.drops.saturating_sub(self.probes_dropped);
        account.receive_buffer = health.buffer;
        account.lost = state.lost();
        account.missing_bytes = missing.bytes();
        if let Some(end) = state.end {
            account.packets_sent = end.packets;
            account.bytes_sent = end.bytes;
        }
        if state.is_over {
            account.missing_ranges = missing.ranges().to_vec();
            account.missing_ranges_merged = missing.is_merged();
            account.whole = Some(missing.bytes() == 0);
        }
    }

    /// Returns the result of the transfer.
    ///
    /// # Errors
    /// [`Error::Lost`] if bytes are missing.
    fn verdict(&mut self) -> Result<(), Error> {
        self.publish();
        let account = self.ledger.open();
        let Some(first) = account.missing_ranges.first() else { return Ok(()) };
        let why = match account.kernel_drops {
            0 => String::new(),
            drops => format!("; the kernel dropped {drops} that were not fetched in time"),
        };
        Err(Error::Lost(format!(
            "{}: {} of {} packets are missing, {} bytes from {} on, filled with zeros{why}; send slower, or with --rate auto",
            self.port.label(),
            account.lost,
            account.packets_sent,
            account.missing_bytes,
            first.from,
        )))
    }
}

impl Input for SequencedInput {
    fn has_memory(&self) -> bool {
        true
    }

    fn next<'a>(&'a mut self, room: &'a mut [u8], control: &Control) -> Result<&'a [u8], Error> {
        while !self.state.assembly.is_ready() {
            if !self.state.is_over {
                self.fetch(control)?;
            } else {
                if !self.lingered {
                    self.linger(control)?;
                }
                return self.verdict().map(|()| &[][..]);
            }
        }
        match self.state.assembly.take(room.len()) {
            Accepted::Bytes(bytes) => Ok(bytes),
            Accepted::Zeros(count) => {
                room[..count].fill(0);
                Ok(&room[..count])
            }
            Accepted::Nothing => Ok(&[]),
        }
    }
}

impl State {
    fn new() -> State {
        let now = Instant::now();
        State {
            assembly: Assembly::new(),
            transfer: None,
            sender: None,
            heard: now,
            end: None,
            is_over: false,
            is_done: false,
            restarted: false,
            foreign: 0,
            probe: Step { number: 0, packets: 0, first: now, last: now },
            position: 0,
            reported: (now, 0),
            answers: Vec::with_capacity(ANSWERS_MAX),
        }
    }

    fn take_all(&mut self, runs: &[Run<'_>], now: Instant) {
        let mut sender = None;
        for run in runs {
            for packet in run.segments() {
                match Header::read(packet) {
                    Some((header, payload)) if self.is_ours(&header, now) => {
                        self.take(&header, payload, now);
                        sender = run.sender().or(sender);
                    }
                    _ => self.foreign += 1,
                }
            }
        }
        self.sender = sender.copied().or(self.sender);
    }

    /// Returns true if a packet belongs to the transfer, or begins it.
    fn is_ours(&mut self, header: &Header, now: Instant) -> bool {
        if matches!(header.kind, PacketKind::Report) {
            return false;
        }
        if self.transfer == Some(header.transfer) {
            return true;
        }
        let begins = header.kind != PacketKind::Done;
        let is_silent = self.transfer.is_none() || now.duration_since(self.heard) > SILENCE;
        if begins && is_silent && self.assembly.sequence_end() == 0 && self.end.is_none() {
            self.transfer = Some(header.transfer);
            return true;
        }
        self.restarted |= begins && is_silent && !self.is_over;
        false
    }

    fn take(&mut self, header: &Header, payload: &[u8], now: Instant) {
        self.heard = now;
        match header.kind {
            PacketKind::Data => {
                // Packets after the end are ignored.
                if !self.is_over {
                    self.assembly.offer(header.sequence, header.position, payload);
                    self.position = self.position.max(header.position.saturating_add(payload.len() as u64));
                }
            }
            PacketKind::End
                if header.position <= header.sequence.saturating_mul(PAYLOAD_BYTES_MAX as u64) =>
            {
                let (bytes, packets) = (header.position, header.sequence);
                self.end.get_or_insert(EndMark { bytes, packets, said: now });
                if self.is_over {
                    self.owe(About::End);
                }
            }
            PacketKind::Probe => {
                if self.probe.number != header.position {
                    self.probe = Step { number: header.position, packets: 0, first: now, last: now };
                }
                self.probe.packets += 1;
                self.probe.last = now;
            }
            PacketKind::Ask => {
                if self.probe.number != header.position {
                    self.probe = Step { number: header.position, packets: 0, first: now, last: now };
                }
                self.owe(About::Probe);
            }
            PacketKind::Sync => {
                self.position = self.position.max(header.position);
                self.owe(About::Progress);
            }
            PacketKind::Done => self.is_done = true,
            PacketKind::End | PacketKind::Report => self.foreign += 1,
        }
    }

    /// Ends the transfer if everything has arrived or the time for late packets has passed.
    fn settle(&mut self, now: Instant) {
        let Some(end) = self.end.filter(|_| !self.is_over) else { return };
        let is_whole = self.assembly.next() >= end.bytes;
        if is_whole || now >= end.said + END_GRACE {
            self.assembly.end(end.bytes);
            self.is_over = true;
            self.owe(About::End);
        }
    }

    fn owe(&mut self, about: About) {
        if !self.answers.contains(&about) && self.answers.len() < ANSWERS_MAX {
            self.answers.push(about);
        }
    }

    fn report_progress(&mut self, now: Instant) {
        let (when, position) = self.reported;
        let is_far = self.position >= position + REPORT_EVERY_BYTES;
        if is_far || (self.position > position && now.duration_since(when) >= REPORT_EVERY) {
            self.reported = (now, self.position);
            if !self.is_over {
                self.owe(About::Progress);
            }
        }
    }

    /// Returns the number of missing packets, as far as it is known.
    fn lost(&self) -> u64 {
        let packets = self.end.map_or(self.assembly.sequence_end(), |end| end.packets);
        packets.saturating_sub(self.assembly.tally().received)
    }

    fn report(&self, about: About, health: Health) -> Report {
        let (tally, probe) = (self.assembly.tally(), self.probe);
        let packets = if about == About::Probe { probe.packets } else { tally.received };
        Report {
            about,
            step: probe.number as u32,
            packets,
            lost: self.lost(),
            duplicated: tally.duplicated,
            kernel_drops: health.drops,
            span_ns: probe.last.duration_since(probe.first).as_nanos() as u64,
            position: self.position,
            buffer: health.buffer,
        }
    }
}
