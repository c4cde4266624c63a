//! Datagrams without anything of ours in them: their payloads, one behind the other, are the stream.
//!
//! Invariant: a block is cut into datagrams of the size that was asked for, and what is left of it goes as a
//! shorter one, so that nothing is kept back; an empty datagram means nothing. What is lost on the way is not
//! known here, but for what the kernel counts. Called by the movers.

use super::accounting::Ledger;
use super::outbox::{CUT_BYTES_MAX, SEGMENTS_MAX};
use super::port::Port;
use super::run::Run;
use crate::block_io::{Input, Output};
use crate::control::Control;
use crate::error::Error;
use crate::rate_limiter::RateLimiter;
use rustix::event::PollFlags;
use std::time::{Duration, Instant};

/// Payloads as they come.
pub(crate) struct PlainInput {
    port: Box<dyn Port>,
    ledger: Ledger,
    idle: Option<Duration>,
    heard: Option<Instant>,
    ready: Vec<u8>,
    taken: usize,
}

impl PlainInput {
    pub(crate) fn new(port: Box<dyn Port>, idle: Option<Duration>, ledger: Ledger) -> PlainInput {
        PlainInput { port, ledger, idle, heard: None, ready: Vec::new(), taken: 0 }
    }

    /// Fetches until something is ready (true) or nothing came for too long.
    fn fetch(&mut self, control: &Control) -> Result<bool, Error> {
        self.ready.clear();
        self.taken = 0;
        loop {
            control.check()?;
            let (ready, ledger) = (&mut self.ready, &self.ledger);
            let came = self.port.receive(&mut |runs| {
                let mut account = ledger.open();
                for run in runs {
                    ready.extend_from_slice(run.body());
                    account.packets_received += run.count() as u64;
                    account.bytes_received += run.body().len() as u64;
                }
            })?;
            if came {
                self.heard = Some(Instant::now());
            }
            if !self.ready.is_empty() {
                return Ok(true);
            }
            let until = self.heard.zip(self.idle).map(|(heard, idle)| heard + idle);
            if !came && !control.wait(self.port.descriptor(), PollFlags::IN, until)? {
                return Ok(false);
            }
        }
    }

    fn note_health(&mut self) {
        let (health, ways) = (self.port.health(), self.port.ways());
        let mut account = self.ledger.open();
        account.kernel_drops = health.drops;
        account.receive_buffer = health.buffer;
        account.engine = Some(ways.engine);
        account.fell_back = ways.fell_back;
    }
}

impl Input for PlainInput {
    fn next<'a>(&'a mut self, room: &'a mut [u8], control: &Control) -> Result<&'a [u8], Error> {
        if self.taken == self.ready.len() && !self.fetch(control)? {
            return Ok(&[]);
        }
        let from = self.taken;
        self.taken = self.ready.len().min(from + room.len());
        Ok(&self.ready[from..self.taken])
    }
}

impl Drop for PlainInput {
    fn drop(&mut self) {
        self.note_health();
    }
}

/// Blocks, cut into datagrams.
pub(crate) struct PlainOutput {
    port: Box<dyn Port>,
    ledger: Ledger,
    pace: RateLimiter,
    size: usize,
}

impl PlainOutput {
    /// Sends `size` bytes a datagram.
    pub(crate) fn new(port: Box<dyn Port>, size: usize, pace: RateLimiter, ledger: Ledger) -> PlainOutput {
        PlainOutput { port, ledger, pace, size }
    }
}

impl Output for PlainOutput {
    fn put(&mut self, block: &[u8], control: &Control) -> Result<(), Error> {
        let pieces = self.pace.pieces(self.size, datagrams_at_once(self.size));
        for part in block.chunks(pieces * self.size) {
            self.pace.wait(part.len() as u64, control)?;
            let run = Run::new(part, self.size);
            self.port.send(&[run], None, control)?;
            let mut account = self.ledger.open();
            account.packets_sent += run.count() as u64;
            account.bytes_sent += part.len() as u64;
        }
        control.check()
    }

    fn finish(&mut self, _: &Control) -> Result<(), Error> {
        let ways = self.port.ways();
        let mut account = self.ledger.open();
        account.engine = Some(ways.engine);
        account.fell_back = ways.fell_back;
        // An error that came back by ICMP is told by the next call, and there is none; so it is asked for.
        drop(account);
        self.port.receive(&mut |_| {}).map(drop)
    }
}

/// Datagrams of so many bytes that are sent by one call: as many as the kernel cuts from one.
pub(crate) fn datagrams_at_once(bytes: usize) -> usize {
    (CUT_BYTES_MAX / bytes.max(1)).clamp(1, SEGMENTS_MAX)
}
