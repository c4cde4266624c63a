//! Requests and completions, behind the same calls as messages.
//!
//! The first process is the client and the second one the server. The client trusts the server and works in
//! the buffer in place; the server copies out before it believes.

use super::exchange::{Failure, Wire, check_length};
use super::words::{fill, sum};
use bywash_channel::{Buffer, Client, Options, Request, Server, ServerOptions, Submission, Wait};
use std::os::fd::OwnedFd;

/// The server answers in the buffer.
const ANSWER: u8 = 1;
/// The server completes at once.
const TAKE: u8 = 2;
/// Requests that can be in flight.
const DEPTH: u32 = 256;

/// Opens the end of the client; `answers`: every request is to be answered.
#[expect(unsafe_code, reason = "to trust the peer is the caller's promise")]
pub fn client(socket: OwnedFd, bytes: usize, wait: Wait, answers: bool) -> Result<Requesting, Failure> {
    let arena = (bytes.next_power_of_two() * DEPTH as usize).min(4 << 20).max(bytes * 8);
    let options = Options::new().wait(wait).depth(DEPTH).arena_bytes(arena);
    // SAFETY: the server is this program, which does not reach around the library.
    let client = Client::over(socket, &unsafe { options.trusted() })?;
    Ok(Requesting { client, answers })
}

pub fn server(socket: OwnedFd, bytes: usize, wait: Wait) -> Result<Serving, Failure> {
    let server = Server::over(socket, &ServerOptions::new().wait(wait))?;
    Ok(Serving { server, received: None, copy: vec![0; bytes] })
}

pub struct Requesting {
    client: Client,
    answers: bool,
}

impl Requesting {
    /// A buffer, when need be one that comes back first.
    fn buffer(&mut self, bytes: usize) -> Result<Buffer, Failure> {
        loop {
            match self.client.alloc(bytes) {
                Err(bywash_channel::Error::ArenaFull { .. }) if self.client.in_flight() > 0 => {
                    drop(self.client.reap()?)
                }
                buffer => return Ok(buffer?),
            }
        }
    }

    fn submit(&mut self, opcode: u8, buffer: Buffer) -> Result<(), Failure> {
        while self.client.in_flight() == self.client.depth() {
            self.client.reap()?;
        }
        self.client.submit(Submission::new(opcode).buffer(buffer))?;
        Ok(())
    }
}

impl Wire for Requesting {
    fn send(&mut self, bytes: usize, seed: u64) -> Result<u64, Failure> {
        let mut buffer = self.buffer(bytes)?;
        let sum = fill(buffer.map_mut()?, seed);
        self.submit(if self.answers { ANSWER } else { TAKE }, buffer)?;
        Ok(sum)
    }

    fn receive(&mut self, bytes: usize) -> Result<u64, Failure> {
        if !self.answers {
            // First what is in flight, and then something that can be answered.
            while self.client.in_flight() > 0 {
                self.client.reap()?;
            }
            let buffer = self.buffer(bytes)?;
            self.submit(ANSWER, buffer)?;
        }
        let done = self.client.reap()?;
        check_length(done.value as usize, bytes)?;
        let buffer = done.buffer.ok_or("an answer came without its buffer")?;
        Ok(sum(&buffer.map()?[..bytes]))
    }
}

pub struct Serving {
    server: Server,
    /// Request that is answered next.
    received: Option<Request>,
    copy: Vec<u8>,
}

impl Wire for Serving {
    fn send(&mut self, bytes: usize, seed: u64) -> Result<u64, Failure> {
        let request = self.received.take().map_or_else(|| self.server.next(), Ok)?;
        let sum = fill(&mut self.copy[..bytes], seed);
        self.server.memory(&request).write(0, &self.copy[..bytes]);
        self.server.complete(request, 0, bytes as u64)?;
        Ok(sum)
    }

    fn receive(&mut self, bytes: usize) -> Result<u64, Failure> {
        let request = self.server.next()?;
        check_length(request.len(), bytes)?;
        self.server.memory(&request).read(0, &mut self.copy[..bytes]);
        if request.opcode() == TAKE {
            self.server.complete(request, 0, 0)?;
        } else {
            self.received = Some(request);
        }
        Ok(sum(&self.copy[..bytes]))
    }
}
