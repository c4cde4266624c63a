//! Datagrams without headers: their payloads in a row are the stream.
//!
//! Invariant: a block is split into datagrams of the configured size and a shorter last one, so that nothing
//! is held back; an empty datagram has no meaning. Loss is unknown, except for the drops that the kernel
//! counts. Called by the movers.

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

/// Source that returns payloads in the order in which they arrive.
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

    /// Receives until payload is available (true), or nothing has arrived for the idle time (false).
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
        let (health, ways) = (self.port.health(), self.port.engine_state());
        let mut account = self.ledger.open();
        account.kernel_drops = health.drops;
        account.receive_buffer = health.buffer;
        account.engine = Some(ways.engine);
        account.fell_back = ways.fell_back;
    }
}

impl Input for PlainInput {
    fn has_memory(&self) -> bool {
        true
    }

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

/// Sink that splits blocks into datagrams.
pub(crate) struct PlainOutput {
    port: Box<dyn Port>,
    ledger: Ledger,
    pace: RateLimiter,
    size: usize,
}

impl PlainOutput {
    /// Creates a sink with datagrams of `size` bytes.
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
        let ways = self.port.engine_state();
        let mut account = self.ledger.open();
        account.engine = Some(ways.engine);
        account.fell_back = ways.fell_back;
        // An error that returned by ICMP is reported by the next call on the socket, so one call is made
        // here.
        drop(account);
        self.port.receive(&mut |_| {}).map(drop)
    }
}

/// Returns the number of datagrams of this size that one call sends: as many as the kernel splits from one.
pub(crate) fn datagrams_at_once(bytes: usize) -> usize {
    (CUT_BYTES_MAX / bytes.max(1)).clamp(1, SEGMENTS_MAX)
}
