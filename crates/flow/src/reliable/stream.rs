//! The two ends of a QUIC stream, and the confirmation of its end.
//!
//! Invariant: a stream that was not finished is reset before it is dropped. Otherwise the library would
//! finish the stream, and incomplete data would look complete. Called by the movers.

use super::errors::{self, DONE, GAVE_UP};
use super::handshake::OpenConnection;
use super::{ReliableOptions, Role};
use crate::block_io::{Input, Output};
use crate::control::Control;
use crate::error::Error;
use quinn::{Connection, ConnectionError, ReadExactError, RecvStream, SendStream, WriteError};
use std::time::Instant;

/// Size of the byte count that confirms a transfer, little-endian.
const COUNT_BYTES: usize = size_of::<u64>();

/// Sink that sends a QUIC stream.
pub(super) struct Sender {
    stream: SendStream,
    sent: u64,
    finished: bool,
    open: OpenConnection,
}

impl Sender {
    /// Opens the stream.
    ///
    /// # Errors
    /// [`Error::Io`] if the connection has ended; [`Error::Cancelled`] if the flow is cancelled.
    pub(super) fn open(open: OpenConnection, control: &Control) -> Result<Sender, Error> {
        let opened = open.engine.wait(control, None, open.connection.open_uni())?;
        let lost = |error| errors::broken(sending(&open.options), &open.options, Role::Sends, &error);
        // Without a deadline the wait always has a result.
        let stream = opened.unwrap_or(Err(ConnectionError::TimedOut)).map_err(lost)?;
        Ok(Sender { stream, sent: 0, finished: false, open })
    }
}

impl Output for Sender {
    fn put(&mut self, block: &[u8], control: &Control) -> Result<(), Error> {
        let written = self.open.engine.wait(control, None, self.stream.write_all(block))?;
        let options = &self.open.options;
        match written.unwrap_or(Err(WriteError::ClosedStream)) {
            Ok(()) => self.sent += block.len() as u64,
            Err(error) => return Err(errors::unwritten(sending(options), options, &error)),
        }
        Ok(())
    }

    /// Waits until the peer has confirmed that it has passed every byte on.
    fn finish(&mut self, control: &Control) -> Result<(), Error> {
        // The call fails if the peer has stopped the stream; the wait below then returns the reason.
        let _ = self.stream.finish();
        let options = &self.open.options;
        let heard = self.open.engine.wait(control, None, confirmation(&self.open.connection))?;
        match heard.unwrap_or(Err(ConnectionError::TimedOut)) {
            Ok(count) if count == self.sent => {}
            // The peer closes with this code only after all data has arrived, even if its count was lost.
            Err(ConnectionError::ApplicationClosed(close)) if close.error_code == DONE => {}
            Ok(count) => {
                let sent = self.sent;
                return Err(Error::Data(format!("{options}: the peer has {count} of {sent} bytes")));
            }
            Err(error) => return Err(errors::broken(sending(options), options, Role::Sends, &error)),
        }
        self.finished = true;
        self.open.code = DONE;
        Ok(())
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        if !self.finished {
            // The reset fails only if the stream or connection is closed already.
            let _ = self.stream.reset(GAVE_UP);
        }
    }
}

/// Receives the number of bytes that the peer says it has.
async fn confirmation(connection: &Connection) -> Result<u64, ConnectionError> {
    let mut stream = connection.accept_uni().await?;
    let mut count = [0; COUNT_BYTES];
    match stream.read_exact(&mut count).await {
        Ok(()) => Ok(u64::from_le_bytes(count)),
        Err(ReadExactError::ReadError(quinn::ReadError::ConnectionLost(error))) => Err(error),
        Err(_) => Err(ConnectionError::Reset),
    }
}

/// Source that receives a QUIC stream.
pub(super) struct Receiver {
    stream: Option<RecvStream>,
    received: u64,
    ended: bool,
    open: OpenConnection,
}

impl Receiver {
    pub(super) fn new(open: OpenConnection) -> Receiver {
        Receiver { stream: None, received: 0, ended: false, open }
    }

    /// Waits for the stream, which the receiver sees once the first byte has arrived.
    fn accept(open: &OpenConnection, control: &Control) -> Result<RecvStream, Error> {
        let accepted = open.engine.wait(control, None, open.connection.accept_uni())?;
        let lost = |error| errors::broken(receiving(&open.options), &open.options, Role::Receives, &error);
        accepted.unwrap_or(Err(ConnectionError::TimedOut)).map_err(lost)
    }

    /// Sends the number of received bytes to the sender, and waits until the sender has acknowledged it. A
    /// failure is the sender's error, not this side's, since all data is here; so only the cancellation of
    /// the flow is an error.
    fn confirm(&mut self, control: &Control) -> Result<(), Error> {
        self.open.code = DONE;
        let count = self.received.to_le_bytes();
        let connection = &self.open.connection;
        let told = async {
            let mut stream = connection.open_uni().await.ok()?;
            stream.write_all(&count).await.ok()?;
            stream.finish().ok()?;
            stream.stopped().await.ok()
        };
        let until = Instant::now() + self.open.options.timeout;
        self.open.engine.wait(control, Some(until), told).map(drop)
    }
}

impl Input for Receiver {
    fn next<'a>(&'a mut self, room: &'a mut [u8], control: &Control) -> Result<&'a [u8], Error> {
        if self.ended {
            return Ok(&[]);
        }
        assert!(!room.is_empty(), "a block has at least one byte");
        let Receiver { stream, open, .. } = self;
        let stream = match stream {
            Some(stream) => stream,
            none => none.insert(Receiver::accept(open, control)?),
        };
        let read = open.engine.wait(control, None, stream.read(room))?;
        match read.unwrap_or(Err(quinn::ReadError::ClosedStream)) {
            Ok(Some(length)) => {
                self.received += length as u64;
                Ok(&room[..length])
            }
            Ok(None) => {
                self.ended = true;
                self.confirm(control).map(|()| &room[..0])
            }
            Err(error) => Err(errors::unread(receiving(&open.options), &open.options, &error)),
        }
    }
}

fn sending(options: &ReliableOptions) -> String {
    format!("send by {options}")
}

fn receiving(options: &ReliableOptions) -> String {
    format!("receive by {options}")
}
