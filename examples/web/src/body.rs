//! Contents of responses: bytes of containers, which are handed to the socket where they are.

use crate::cache::{Cache, MEMORY_TIMEOUT, ReadError, Reader};
use crate::counters::Counters;
use bytes::Bytes;
use bywash_example_http::Chunk;
use hyper::body::{Frame, SizeHint};
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::task::JoinHandle;

/// The cache, and the counts of one thread that serves from it.
#[derive(Debug)]
pub struct Worker {
    /// The cache, which all threads share.
    pub cache: Arc<Cache>,
    /// Counts of this thread.
    pub counters: Arc<Counters>,
    /// Time for which a file is taken to be unchanged.
    pub check: Duration,
}

/// Contents of a response.
#[derive(Debug)]
pub enum Body {
    /// No contents, or all that is left of them.
    Rest(Bytes),
    /// Parts of a file, one after the other.
    Parts(Box<Parts>),
}

/// Range of a file, of which some parts are still to be sent.
#[derive(Debug)]
pub struct Parts {
    worker: Arc<Worker>,
    reader: Reader,
    left: Range<u64>,
    next: Next,
}

/// The part of a file that is sent next.
#[derive(Debug)]
enum Next {
    /// It is in a container.
    Here(Arc<Chunk>),
    /// It is being read. If it is read ahead of its turn, it does not wait for memory.
    Reading { task: JoinHandle<Result<Arc<Chunk>, ReadError>>, is_ahead: bool },
}

impl Body {
    /// Returns the contents `range` of a file, which is not empty, and whose first part is at hand.
    pub fn new(worker: &Arc<Worker>, reader: Reader, range: Range<u64>, first: Arc<Chunk>) -> Body {
        let part = first_part(&range, worker.cache.part_bytes());
        if (part.len() as u64) < range.end - range.start {
            let (worker, next) = (worker.clone(), Next::Here(first));
            return Body::Parts(Box::new(Parts { worker, reader, left: range, next }));
        }
        worker.counters.bytes.add(part.len() as u64);
        Body::Rest(first.bytes(part))
    }
}

/// Returns the bytes of a part of `part_bytes` bytes with which a range of a file begins.
fn first_part(range: &Range<u64>, part_bytes: u64) -> Range<usize> {
    let begin = range.start % part_bytes;
    let end = (begin + (range.end - range.start)).min(part_bytes);
    // Both lie within a container, so within memory.
    begin as usize..end as usize
}

impl Parts {
    /// Takes what is wanted of a chunk, which is the next part.
    fn take(&mut self, chunk: &Arc<Chunk>) -> Bytes {
        let part = first_part(&self.left, self.worker.cache.part_bytes());
        self.left.start += part.len() as u64;
        chunk.bytes(part)
    }

    /// Begins to read the next part.
    fn read(&mut self, is_ahead: bool) {
        let (worker, reader) = (self.worker.clone(), self.reader.clone());
        let index = self.left.start / worker.cache.part_bytes();
        let task = tokio::spawn(async move {
            let patience = if is_ahead { Duration::ZERO } else { MEMORY_TIMEOUT };
            worker.cache.part(&reader, index, patience, &worker.counters).await
        });
        self.next = Next::Reading { task, is_ahead };
    }

    fn poll_part(&mut self, context: &mut Context<'_>) -> Poll<Result<Bytes, ReadError>> {
        let chunk = loop {
            match &mut self.next {
                Next::Here(chunk) => break chunk.clone(),
                Next::Reading { task, is_ahead } => match (ready!(Pin::new(task).poll(context)), *is_ahead) {
                    (Ok(Ok(chunk)), _) => break chunk,
                    (Ok(Err(ReadError::NoMemory)), true) => self.read(false),
                    (Ok(Err(error)), _) => return Poll::Ready(Err(error)),
                    (Err(error), _) => return Poll::Ready(Err(std::io::Error::other(error).into())),
                },
            }
        };
        let bytes = self.take(&chunk);
        if !self.left.is_empty() {
            drop(chunk);
            self.read(true);
        }
        Poll::Ready(Ok(bytes))
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        if let Next::Reading { task, .. } = &self.next {
            task.abort();
        }
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Body {
        Body::Rest(bytes)
    }
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = ReadError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ReadError>>> {
        match self.get_mut() {
            Body::Rest(bytes) if bytes.is_empty() => Poll::Ready(None),
            Body::Rest(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Body::Parts(parts) if parts.left.is_empty() => Poll::Ready(None),
            Body::Parts(parts) => {
                let bytes = ready!(parts.poll_part(context));
                match &bytes {
                    Ok(bytes) => parts.worker.counters.bytes.add(bytes.len() as u64),
                    Err(_) => parts.worker.counters.broken.add(1),
                }
                Poll::Ready(Some(bytes.map(Frame::data)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Body::Rest(bytes) => bytes.is_empty(),
            Body::Parts(parts) => parts.left.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Body::Rest(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Body::Parts(parts) => SizeHint::with_exact(parts.left.end - parts.left.start),
        }
    }
}
