//! One client's connection: bytes become requests, and replies become bytes.
//!
//! ```text
//!   socket ──one recvmsg──► input ──many requests──► engine ──► replies ──one sendmsg──► socket
//!                             └─► payload of a write that is not all there: received into its own buffer
//! ```
//!
//! Invariant: what a client can make this server keep is bounded: [`INPUT`] bytes of input, [`DEPTH`] requests
//! whose replies have not been sent, and the memory that [`Pool`](crate::buffer::Pool) gives out. When one of
//! these is used up, the connection *pauses*: nothing more is received, and the client has to wait. A client
//! that does not go on with a message, or does not receive its replies, is disconnected after some time
//! ([`PROGRESS_TIMEOUT`]). Called by `service`.

use crate::buffer::Buffer;
use crate::engine::{Engine, Task};
use crate::handshake::{Agreement, Handshake, Step};
use crate::layout::{PAYLOAD_MAX, REQUEST_BYTES, RequestHeader, command};
use crate::raw::Moved;
use crate::reply::Reply;
use crate::request::{Action, Refusal, check};
use crate::socket::Socket;
use crate::stats::Counters;
use crate::tls::Tls;
use bywash_export::Error;
use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Size of the input buffer of a connection, in bytes: 30 writes of 4 KiB.
const INPUT: usize = 128 << 10;
/// Greatest number of requests of a connection whose replies have not been sent.
pub(crate) const DEPTH: usize = 128;
/// Greatest number of replies that one system call sends.
const BATCH: usize = 64;
/// Interval in which a client has to move [`PROGRESS`] bytes, or all that there is to move.
pub(crate) const PROGRESS_TIMEOUT: Duration = Duration::from_secs(30);
/// Number of bytes that a client has to move in [`PROGRESS_TIMEOUT`] if there are so many.
const PROGRESS: u64 = 1 << 20;

/// A connection.
#[derive(Debug)]
pub(crate) struct Connection {
    /// Number of the connection since the start, for reports.
    pub(crate) number: u64,
    /// The socket; `None` when it is closed and requests are still in flight.
    socket: Option<Socket>,
    phase: Phase,
    input: Buffer,
    /// Bytes of `input` that were received and not yet consumed.
    filled: std::ops::Range<usize>,
    /// Write whose payload is being received.
    incoming: Option<IncomingWrite>,
    replies: VecDeque<Reply>,
    /// Bytes of the first reply that have been sent.
    sent: usize,
    /// Number of requests in the engine.
    pub(crate) in_flight: usize,
    /// Memory for payloads that the connection uses, in bytes.
    held: usize,
    /// True if nothing more is received, since the client has finished, or the server stops.
    is_ending: bool,
    /// True if the next request waits until the client has room for it: in flight, or in memory.
    is_paused: bool,
    opened: Instant,
    /// Time at which a check found that the client owes something, and the number of bytes that it had moved by
    /// then; `None` again as soon as it owes nothing.
    owing: Option<(Instant, u64)>,
    /// Bytes moved in all.
    moved: u64,
    /// Descriptors that the client has sent.
    pub(crate) descriptors: Vec<OwnedFd>,
}

#[derive(Debug)]
enum Phase {
    Handshake(Handshake),
    /// The reply to `STARTTLS` is sent, and TLS begins behind it, with this handshake.
    BeforeTls(Handshake),
    Transmission(Agreement),
}

/// A write whose payload has not been received wholly.
#[derive(Debug)]
struct IncomingWrite {
    header: RequestHeader,
    /// The task and its buffer, or the reason why the payload is discarded.
    fate: Result<(Task, Buffer), Refusal>,
    /// Bytes of the payload that were received.
    received: usize,
}

/// Result of receiving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// There may be more to receive at once.
    More,
    /// All was received that there was.
    All,
}

impl Connection {
    /// Takes an accepted client, and greets it.
    /// With `has_tls` nothing else is served before TLS.
    pub(crate) fn new(socket: Socket, number: u64, has_tls: bool) -> Connection {
        let mut greeting = Vec::new();
        Handshake::greet(&mut greeting);
        Connection {
            number,
            socket: Some(socket),
            phase: Phase::Handshake(Handshake::new(has_tls)),
            input: Buffer::new(INPUT),
            filled: 0..0,
            incoming: None,
            replies: VecDeque::from([Reply::bytes(greeting)]),
            sent: 0,
            in_flight: 0,
            held: 0,
            is_ending: false,
            is_paused: false,
            opened: Instant::now(),
            owing: None,
            moved: 0,
            descriptors: Vec::new(),
        }
    }

    /// Returns the socket to wait for, unless it is closed.
    pub(crate) fn socket(&self) -> Option<&Socket> {
        self.socket.as_ref()
    }

    /// Returns true if more is to be received.
    #[inline]
    pub(crate) fn receives(&self) -> bool {
        self.socket.is_some()
            && !self.is_ending
            && !self.is_paused
            && !matches!(self.phase, Phase::BeforeTls(_))
    }

    /// Returns true if replies wait to be sent.
    #[inline]
    pub(crate) fn sends(&self) -> bool {
        self.socket.as_ref().is_some_and(|socket| !self.replies.is_empty() || socket.wants_to_send())
    }

    /// Returns true if bytes wait of which poll(2) does not tell.
    #[inline]
    pub(crate) fn has_received(&self) -> bool {
        self.receives() && self.socket.as_ref().is_some_and(Socket::has_received)
    }

    /// Returns true if requests wait for depth or memory.
    #[inline]
    pub(crate) fn is_paused(&self) -> bool {
        self.is_paused && self.socket.is_some()
    }

    /// Returns true if all is done and the connection can be closed.
    pub(crate) fn is_over(&self) -> bool {
        let is_done = self.in_flight == 0 && !self.sends() && !self.is_paused;
        self.socket.is_none() || (self.is_ending && is_done)
    }

    /// Returns true if the client uses a disk. If it may still choose one, forgets what it has selected for this one.
    pub(crate) fn withdraw(&mut self, disk: usize) -> bool {
        match &mut self.phase {
            Phase::Handshake(handshake) | Phase::BeforeTls(handshake) => {
                handshake.forget(disk);
                false
            }
            Phase::Transmission(agreement) => agreement.disk == disk,
        }
    }

    /// Receives nothing more. Requests in flight complete, and their replies are sent.
    pub(crate) fn end(&mut self) {
        self.is_ending = true;
        self.is_paused = false;
    }

    /// Ends as the client has requested: whatever it has sent behind that is not looked at.
    fn finish_input(&mut self) {
        self.filled = 0..0;
        self.end();
    }

    /// Takes the socket to be closed, and gives all memory back that no request in flight uses.
    pub(crate) fn close(&mut self, engine: &mut Engine) -> Option<Socket> {
        self.end();
        if let Some(IncomingWrite { fate: Ok((_, buffer)), .. }) = self.incoming.take() {
            engine.pool.give(buffer, &mut self.held);
        }
        while let Some(reply) = self.replies.pop_front() {
            self.release(reply, engine);
        }
        let mut socket = self.socket.take();
        if let Some(socket) = &mut socket {
            socket.end_tls();
        }
        socket
    }

    /// Queues a reply of the engine.
    #[inline]
    pub(crate) fn finish(&mut self, reply: Reply, engine: &mut Engine) {
        self.in_flight -= 1;
        self.queue(reply, engine);
    }

    #[inline]
    fn queue(&mut self, reply: Reply, engine: &mut Engine) {
        if self.socket.is_some() {
            self.replies.push_back(reply);
        } else {
            self.release(reply, engine);
        }
    }

    #[inline]
    fn release(&mut self, reply: Reply, engine: &mut Engine) {
        if reply.lost_bytes > 0 {
            engine.pool.forget(reply.lost_bytes, &mut self.held);
        }
        if let Some(buffer) = reply.into_buffer() {
            engine.pool.give(buffer, &mut self.held);
        }
    }

    /// Receives once, as much as there is room for.
    ///
    /// # Errors
    /// [`Error::Peer`] if the client has sent descriptors; [`Error::Io`] if the system call fails.
    pub(crate) fn receive(
        &mut self,
        takes_descriptors: bool,
        counters: &Counters,
    ) -> Result<Received, Error> {
        let Some(socket) = &mut self.socket else { return Ok(Received::All) };
        if self.filled.is_empty() {
            self.filled = 0..0;
        } else if self.filled.start > 0 {
            // What is left is less than a message, so little is moved.
            self.input.bytes_mut().copy_within(self.filled.clone(), 0);
            self.filled = 0..self.filled.len();
        }
        let input = &mut self.input.bytes_mut()[self.filled.end..];
        let mut direct = 0;
        let moved = match &mut self.incoming {
            // Nothing is in the input before the payload is complete.
            Some(IncomingWrite { header, fate: Ok((_, buffer)), received }) => {
                let payload = &mut buffer.bytes_mut()[*received..header.length as usize];
                direct = payload.len();
                socket.receive(&mut [IoSliceMut::new(payload), IoSliceMut::new(input)], takes_descriptors)
            }
            _ => socket.receive(&mut [IoSliceMut::new(input)], takes_descriptors),
        };
        counters.socket_calls.add(1);
        let room = direct + INPUT - self.filled.end;
        match moved {
            Moved::Bytes(bytes) => {
                self.moved += bytes as u64;
                let first = bytes.min(direct);
                if let Some(incoming) = self.incoming.as_mut().filter(|_| first > 0) {
                    incoming.received += first;
                }
                self.filled.end += bytes - first;
                Ok(if bytes == room { Received::More } else { Received::All })
            }
            Moved::Blocked => Ok(Received::All),
            Moved::Closed => {
                self.end();
                Ok(Received::All)
            }
            Moved::Descriptors(descriptors) => {
                self.descriptors = descriptors;
                Err(Error::Peer("it has sent descriptors".into()))
            }
            Moved::Failed(error) => Err(Error::io("receive from a client", error)),
        }
    }

    /// Handles what was received. Returns true if anything was done.
    ///
    /// # Errors
    /// [`Error::Peer`] if the client has broken the protocol.
    #[inline]
    pub(crate) fn handle(&mut self, key: usize, engine: &mut Engine) -> Result<bool, Error> {
        self.is_paused = false;
        let before = (self.filled.len(), self.incoming.is_some());
        while self.socket.is_some() {
            let goes_on = match &mut self.phase {
                Phase::Handshake(_) => self.negotiate(engine)?,
                Phase::BeforeTls(_) => false,
                Phase::Transmission(agreement) => {
                    let agreement = *agreement;
                    self.request(key, agreement, engine)?
                }
            };
            if !goes_on {
                break;
            }
        }
        self.clear_owing();
        Ok(before != (self.filled.len(), self.incoming.is_some()))
    }

    /// Notes that the client owes nothing any more. Between two checks it may owe, go on, and owe again.
    #[inline]
    fn clear_owing(&mut self) {
        if self.owing.is_some() && !self.owes() {
            self.owing = None;
        }
    }

    /// Handles the next message of the handshake. Returns true if another one may follow.
    fn negotiate(&mut self, engine: &mut Engine) -> Result<bool, Error> {
        let Phase::Handshake(handshake) = &mut self.phase else { return Ok(false) };
        if self.replies.len() > 1 {
            // The client receives its replies before it is listened to again.
            self.is_paused = true;
            return Ok(false);
        }
        let mut out = Vec::new();
        let (consumed, step) =
            handshake.step(&self.input.bytes()[self.filled.clone()], &mut out, &engine.faces);
        self.filled.start += consumed;
        if !out.is_empty() {
            self.replies.push_back(Reply::bytes(out));
        }
        match step {
            Step::More => return Ok(false),
            Step::Again => {}
            Step::Transmission(agreement) => self.phase = Phase::Transmission(agreement),
            Step::StartTls if !self.filled.is_empty() => {
                return Err(Error::Peer("it has sent bytes behind STARTTLS before TLS had begun".into()));
            }
            Step::StartTls => {
                let within = handshake.within_tls();
                self.phase = Phase::BeforeTls(within);
            }
            Step::End => {
                self.finish_input();
                return Ok(false);
            }
            Step::Broken(reason) => return Err(Error::Peer(reason)),
        }
        Ok(true)
    }

    /// Handles the next request. Returns true if another one may follow.
    #[inline]
    fn request(&mut self, key: usize, agreement: Agreement, engine: &mut Engine) -> Result<bool, Error> {
        if self.incoming.is_some() && !self.receive_payload(engine) {
            return Ok(false);
        }
        let input = &self.input.bytes()[self.filled.clone()];
        let Some(header) = input.first_chunk::<REQUEST_BYTES>() else { return Ok(false) };
        let Some(header) = RequestHeader::decode(header) else {
            return Err(Error::Peer("a request does not begin with the magic number".into()));
        };
        if self.in_flight + self.replies.len() >= DEPTH {
            self.is_paused = true;
            return Ok(false);
        }
        let checked = check(&header, engine.geometry(agreement.disk), &agreement);
        if header.kind == command::WRITE {
            return self.begin_write(key, agreement, header, checked, engine);
        }
        let action = match checked {
            Ok(Action::Disconnect) => {
                self.finish_input();
                return Ok(false);
            }
            Ok(action) => action,
            Err(refusal) => {
                self.filled.start += REQUEST_BYTES;
                self.refuse(&header, agreement, refusal, engine);
                return Ok(true);
            }
        };
        let memory = match action {
            Action::Read if header.length > 0 => {
                let Some(buffer) = engine.pool.take(header.length as usize, &mut self.held) else {
                    self.is_paused = true;
                    return Ok(false);
                };
                Some(buffer)
            }
            _ => None,
        };
        self.filled.start += REQUEST_BYTES;
        self.start(Task { connection: key, agreement, header, action }, memory, engine);
        Ok(true)
    }

    #[inline]
    fn start(&mut self, task: Task, memory: Option<Buffer>, engine: &mut Engine) {
        match engine.start(task, memory) {
            Some(reply) => self.queue(reply, engine),
            None => self.in_flight += 1,
        }
    }

    /// Handles the header of a write, and its payload as far as it is there. Returns true if another request may
    /// follow.
    fn begin_write(
        &mut self,
        key: usize,
        agreement: Agreement,
        header: RequestHeader,
        checked: Result<Action, Refusal>,
        engine: &mut Engine,
    ) -> Result<bool, Error> {
        if header.length > PAYLOAD_MAX {
            let reason = format!("a write has {} bytes of payload, more than {PAYLOAD_MAX}", header.length);
            return Err(Error::Peer(reason));
        }
        let length = header.length as usize;
        let payload = self.filled.start + REQUEST_BYTES..self.filled.start + REQUEST_BYTES + length;
        let task = checked.map(|action| Task { connection: key, agreement, header, action });
        if let Ok(task) = task
            && payload.end <= self.filled.end
            && let Some(reply) = engine.write_in_place(task, &mut self.input, payload.clone())
        {
            self.filled.start = payload.end;
            self.queue(reply, engine);
            return Ok(true);
        }
        let fate = match task {
            Ok(task) => match engine.pool.take(length, &mut self.held) {
                Some(buffer) => Ok((task, buffer)),
                None => {
                    self.is_paused = true;
                    return Ok(false);
                }
            },
            Err(refusal) => Err(refusal),
        };
        self.filled.start = payload.start;
        self.incoming = Some(IncomingWrite { header, fate, received: 0 });
        Ok(true)
    }

    /// Moves payload from the input to the write that it belongs to. Returns true if the payload is complete.
    fn receive_payload(&mut self, engine: &mut Engine) -> bool {
        let Some(incoming) = &mut self.incoming else { return true };
        let left = incoming.header.length as usize - incoming.received;
        let bytes = left.min(self.filled.len());
        if let Ok((_, buffer)) = &mut incoming.fate {
            let from = &self.input.bytes()[self.filled.start..self.filled.start + bytes];
            buffer.bytes_mut()[incoming.received..incoming.received + bytes].copy_from_slice(from);
        }
        incoming.received += bytes;
        self.filled.start += bytes;
        if bytes < left {
            return false;
        }
        let Some(IncomingWrite { header, fate, .. }) = self.incoming.take() else { return true };
        match fate {
            Ok((task, buffer)) => self.start(task, Some(buffer), engine),
            Err(refusal) => {
                let Phase::Transmission(agreement) = self.phase else { return true };
                self.refuse(&header, agreement, refusal, engine);
            }
        }
        true
    }

    fn refuse(
        &mut self,
        header: &RequestHeader,
        agreement: Agreement,
        refusal: Refusal,
        engine: &mut Engine,
    ) {
        engine.counters.requests.add(1);
        engine.counters.refused.add(1);
        let Refusal { error, message } = refusal;
        self.replies.push_back(Reply::error(header.cookie, agreement.is_structured, error, message));
    }

    /// Sends replies, as many as the socket takes.
    ///
    /// # Errors
    /// [`Error::Io`] if the system call fails. A client that has closed the connection is no error.
    #[inline]
    pub(crate) fn send(&mut self, engine: &mut Engine) -> Result<(), Error> {
        if self.replies.is_empty()
            && let Some(socket) = self.socket.as_mut().filter(|socket| socket.wants_to_send())
        {
            // Sends what was encrypted before.
            return match socket.send(&mut []) {
                Moved::Failed(error) => Err(Error::io("send to a client", error)),
                Moved::Closed => {
                    self.abandon(engine);
                    Ok(())
                }
                _ => Ok(()),
            };
        }
        while let Some(socket) = self.socket.as_mut().filter(|_| !self.replies.is_empty()) {
            let mut parts = [IoSlice::new(&[]); 2 * BATCH];
            let (mut count, mut bytes) = (0, 0);
            for reply in self.replies.iter().take(BATCH) {
                for part in reply.parts().into_iter().filter(|part| !part.is_empty()) {
                    parts[count] = IoSlice::new(part);
                    count += 1;
                    bytes += part.len();
                }
            }
            let mut unsent = &mut parts[..count];
            IoSlice::advance_slices(&mut unsent, self.sent);
            let moved = socket.send(unsent);
            engine.counters.socket_calls.add(1);
            match moved {
                Moved::Bytes(sent) => {
                    let is_all = self.sent + sent == bytes;
                    self.has_sent(sent, engine);
                    if !is_all {
                        return Ok(());
                    }
                }
                Moved::Blocked => return Ok(()),
                Moved::Closed | Moved::Descriptors(_) => {
                    self.abandon(engine);
                    return Ok(());
                }
                Moved::Failed(error) => return Err(Error::io("send to a client", error)),
            }
        }
        Ok(())
    }

    /// Begins TLS if it was agreed on and the reply that says so was sent.
    ///
    /// # Errors
    /// [`Error::Tls`] if no session can be made.
    pub(crate) fn start_tls(&mut self, tls: Option<&Tls>) -> Result<(), Error> {
        if let (Phase::BeforeTls(within), true, Some(tls), Some(socket)) =
            (&mut self.phase, self.replies.is_empty(), tls, &mut self.socket)
        {
            socket.start_tls(tls)?;
            let within = std::mem::take(within);
            self.phase = Phase::Handshake(within);
        }
        Ok(())
    }

    /// Removes the replies that are sent wholly by another `bytes` bytes.
    #[inline]
    fn has_sent(&mut self, bytes: usize, engine: &mut Engine) {
        self.moved += bytes as u64;
        self.sent += bytes;
        while let Some(first) = self.replies.front()
            && first.len() <= self.sent
        {
            self.sent -= first.len();
            if let Some(reply) = self.replies.pop_front() {
                self.release(reply, engine);
            }
        }
        self.clear_owing();
    }

    /// Ends the connection of a client that receives nothing more: its replies are dropped.
    pub(crate) fn abandon(&mut self, engine: &mut Engine) {
        self.end();
        self.sent = 0;
        while let Some(reply) = self.replies.pop_front() {
            self.release(reply, engine);
        }
    }

    /// Returns true if the client has to do something: to go on with a message, or to receive replies.
    #[inline]
    pub(crate) fn owes(&self) -> bool {
        match &self.phase {
            _ if self.socket.is_none() => false,
            Phase::Handshake(_) | Phase::BeforeTls(_) => true,
            Phase::Transmission(_) => {
                let has_part = self.incoming.is_some() || !self.filled.is_empty();
                !self.replies.is_empty() || (has_part && self.receives())
            }
        }
    }

    /// Checks that the client does in time what it has to.
    ///
    /// # Errors
    /// [`Error::Peer`] if it does not.
    pub(crate) fn check_progress(&mut self, now: Instant, timeout: Duration) -> Result<(), Error> {
        if !self.owes() {
            self.owing = None;
            return Ok(());
        }
        if matches!(self.phase, Phase::Handshake(_) | Phase::BeforeTls(_)) {
            return match now.saturating_duration_since(self.opened) > timeout {
                true => Err(Error::Peer("it did not finish the handshake in time".into())),
                false => Ok(()),
            };
        }
        let (since, moved) = *self.owing.get_or_insert((now, self.moved));
        if now.saturating_duration_since(since) > timeout {
            if self.moved - moved < PROGRESS {
                let what =
                    if self.replies.is_empty() { "send the rest of a message" } else { "receive replies" };
                return Err(Error::Peer(format!("it did not {what} in time")));
            }
            self.owing = Some((now, self.moved));
        }
        Ok(())
    }
}
