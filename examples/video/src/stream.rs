//! A stream: a range of a file that is read ahead into containers and handed to a connection by its schedule.
//!
//! hyper asks for the next chunk when the connection has taken the one before, and a chunk is handed over when its time has
//! come. When it has been handed over, the next read begins if a container is free, which is about two periods before its
//! chunk is sent. All reads are of whole blocks: the first chunk begins in the block of the first byte.
//!
//! *Late* is a chunk that is handed over after its deadline although the client had taken the one before in time: its read
//! was not done, or the thread did not come to it. A client that takes a chunk later than the next one's time delays
//! itself: its schedule moves by as much. So a player that pauses gets nothing in a burst afterwards.

use crate::admission::Ticket;
use crate::buffers::Buffers;
use crate::chunks::BLOCK;
use crate::reads::{Finished, Reading, Request};
use crate::schedule::{PREFILL, Schedule};
use crate::worker::Worker;
use bytes::Bytes;
use bywash_container::Container;
use bywash_example_http::Version;
use hyper::body::{Frame, SizeHint};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::time::Sleep;

/// Contents of a response.
#[derive(Debug)]
pub enum Body {
    /// No contents, or all that is left of them.
    Rest(Bytes),
    /// Contents that are sent by a schedule.
    Stream(Box<Stream>),
}

/// Failure to send a stream on.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// The file has another version than the one that is sent.
    #[error("the file changed while it was sent")]
    Changed,
    /// The kernel cannot read the file.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// What a stream is made of.
#[derive(Debug)]
pub struct Parts {
    /// Open file.
    pub file: Arc<OwnedFd>,
    /// Version that is sent.
    pub version: Version,
    /// Range of the file that is sent, not empty.
    pub range: Range<u64>,
    /// Rate, in bytes per second.
    pub rate: u64,
    /// Length of a chunk, in bytes: a multiple of a block.
    pub chunk_bytes: u64,
    /// Right to send at the rate.
    pub ticket: Ticket,
    /// Containers of at least a chunk each.
    pub buffers: Arc<Buffers>,
}

/// Stream that is being sent.
#[derive(Debug)]
pub struct Stream {
    worker: Arc<Worker>,
    parts: Parts,
    schedule: Schedule,
    begun: Instant,
    /// Range of the file that is not being read yet.
    unread: Range<u64>,
    /// Number of bytes that are not handed over yet.
    left: u64,
    /// Chunks that are being read, or have been, in order.
    ahead: VecDeque<Chunk>,
    /// Number of chunks that were handed over.
    sent: u64,
    /// Time at which the last of them was.
    handed_at: Instant,
    timer: Option<Pin<Box<Sleep>>>,
}

#[derive(Debug)]
struct Chunk {
    /// Part of the container that is sent.
    range: Range<usize>,
    contents: Contents,
}

#[derive(Debug)]
enum Contents {
    Reading(Reading),
    Read(Container),
}

impl Stream {
    /// Begins to read a stream, and returns it when its first chunk is in memory.
    ///
    /// # Errors
    /// [`StreamError::Changed`] if the file has another version by now, [`StreamError::Io`] if it cannot be read.
    pub async fn begin(worker: &Arc<Worker>, parts: Parts) -> Result<Stream, StreamError> {
        let first_bytes = parts.chunk_bytes - parts.range.start % BLOCK as u64;
        let schedule = Schedule::new(parts.rate, first_bytes, parts.chunk_bytes, parts.ticket.phase());
        let mut stream = Stream {
            worker: worker.clone(),
            unread: parts.range.clone(),
            left: parts.range.end - parts.range.start,
            parts,
            schedule,
            begun: Instant::now(),
            ahead: VecDeque::new(),
            sent: 0,
            handed_at: Instant::now(),
            timer: None,
        };
        poll_fn(|context| {
            stream.read_ahead(context);
            stream.poll_read(context)
        })
        .await?;
        Ok(stream)
    }

    /// Begins to read the next chunks, as far as there are containers.
    fn read_ahead(&mut self, context: &mut Context<'_>) {
        while !self.unread.is_empty() {
            let Poll::Ready(container) = self.parts.buffers.poll_take(context) else { return };
            let before = self.unread.start % BLOCK as u64;
            let offset = self.unread.start - before;
            let bytes = (self.unread.end - offset).min(self.parts.chunk_bytes);
            self.unread.start = offset + bytes;
            let file = self.parts.file.clone();
            // Both fit a container, so memory.
            let (begin, end) = (before as usize, bytes as usize);
            let reading = self.worker.reads.read(Request { file, container, offset, bytes: end });
            self.ahead.push_back(Chunk { range: begin..end, contents: Contents::Reading(reading) });
        }
    }

    /// Waits until the next chunk has been read, and checks that the file has not changed.
    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<Result<(), StreamError>> {
        let period = Schedule::period(self.parts.rate, self.parts.chunk_bytes);
        // Without a chunk, all containers are being sent: the task is woken when one returns.
        let Some(chunk) = self.ahead.front_mut() else { return Poll::Pending };
        let Contents::Reading(reading) = &mut chunk.contents else { return Poll::Ready(Ok(())) };
        let Finished { container, result, took } = ready!(reading.poll_end(context))?;
        let bytes = result?;
        if bytes < chunk.range.end || Version::read(&self.parts.file)? != self.parts.version {
            return Poll::Ready(Err(StreamError::Changed));
        }
        self.worker.note_read(bytes as u64, took > period / 2);
        chunk.contents = Contents::Read(container);
        Poll::Ready(Ok(()))
    }

    fn poll_chunk(&mut self, context: &mut Context<'_>) -> Poll<Result<Bytes, StreamError>> {
        self.read_ahead(context);
        let due = self.due();
        let now = Instant::now();
        if now < due {
            let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(due.into())));
            if timer.deadline() != due.into() {
                timer.as_mut().reset(due.into());
            }
            ready!(timer.as_mut().poll(context));
        }
        ready!(self.poll_read(context))?;
        let Some(Chunk { range, contents: Contents::Read(container) }) = self.ahead.pop_front() else {
            return Poll::Pending;
        };
        self.note_sent(due, range.len() as u64);
        Poll::Ready(Ok(self.parts.buffers.send(container, range)))
    }

    /// Returns the time of the next chunk. If the client took the one before later than that, all that follows is delayed.
    fn due(&mut self) -> Instant {
        let due = self.begun + self.schedule.release(self.sent);
        let taken = self.parts.buffers.returned_at();
        let by_client = taken.saturating_duration_since(due.max(self.handed_at));
        if self.sent < PREFILL || by_client < PAUSE_MIN {
            return due;
        }
        self.worker.counters().slow.add(1);
        self.schedule.pause(taken - due);
        taken
    }

    fn note_sent(&mut self, due: Instant, bytes: u64) {
        let now = Instant::now();
        let is_late = now > self.begun + self.schedule.deadline(self.sent);
        self.worker.note_sent(bytes, now.saturating_duration_since(due), is_late);
        self.handed_at = now;
        self.sent += 1;
        self.left -= bytes;
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Body {
        Body::Rest(bytes)
    }
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = StreamError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, StreamError>>> {
        match self.get_mut() {
            Body::Rest(bytes) if bytes.is_empty() => Poll::Ready(None),
            Body::Rest(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Body::Stream(stream) if stream.left == 0 => Poll::Ready(None),
            Body::Stream(stream) => {
                let bytes = ready!(stream.poll_chunk(context));
                if bytes.is_err() {
                    stream.worker.counters().broken.add(1);
                }
                Poll::Ready(Some(bytes.map(Frame::data)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Body::Rest(bytes) => bytes.is_empty(),
            Body::Stream(stream) => stream.left == 0,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Body::Rest(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Body::Stream(stream) => SizeHint::with_exact(stream.left),
        }
    }
}

/// Time behind the schedule from which on a client has delayed itself: less is the time for handing a chunk over.
const PAUSE_MIN: Duration = Duration::from_millis(20);
