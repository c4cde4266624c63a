//! The containers of one stream: allocated before it begins, used in turns, freed when it ends.
//!
//! A container is free, or it is being read into, or it is being sent. The end of the sending is the drop of the bytes that
//! were handed to the connection, which returns the container.

use bytes::Bytes;
use bywash_container::{Container, Error};
use bywash_example_http::Memory;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

/// Containers of a stream that are free.
#[derive(Debug)]
pub struct Buffers(Mutex<State>);

#[derive(Debug)]
struct State {
    free: Vec<Container>,
    waiting: Option<Waker>,
    returned_at: Instant,
}

/// Part of a container that is being sent.
struct Sending {
    /// `None` only while it is dropped.
    container: Option<Container>,
    range: Range<usize>,
    buffers: Arc<Buffers>,
}

impl Buffers {
    /// Allocates `count` containers of `bytes` bytes; `None` if there is not enough memory for all of them.
    ///
    /// # Errors
    /// [`Error::TooLarge`] if the arena can never hold such a container.
    pub fn new(memory: &Memory, count: usize, bytes: usize) -> Result<Option<Arc<Buffers>>, Error> {
        let mut free = Vec::with_capacity(count);
        for _ in 0..count {
            let Some(container) = memory.try_alloc(bytes)? else { return Ok(None) };
            free.push(container);
        }
        let state = State { free, waiting: None, returned_at: Instant::now() };
        Ok(Some(Arc::new(Buffers(Mutex::new(state)))))
    }

    /// Takes a free container. If there is none, the task is woken when one is returned.
    pub fn poll_take(&self, context: &mut Context<'_>) -> Poll<Container> {
        let mut state = self.lock();
        match state.free.pop() {
            Some(container) => Poll::Ready(container),
            None => {
                state.waiting = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Returns a range of a filled container as what can be handed to a connection. Nothing is copied. When the result is
    /// dropped, the container is free again.
    pub fn send(self: &Arc<Self>, container: Container, range: Range<usize>) -> Bytes {
        Bytes::from_owner(Sending { container: Some(container), range, buffers: self.clone() })
    }

    /// Returns the time at which a container was last sent.
    pub fn returned_at(&self) -> Instant {
        self.lock().returned_at
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsRef<[u8]> for Sending {
    fn as_ref(&self) -> &[u8] {
        self.container.as_ref().map_or(&[], |container| &container[self.range.clone()])
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        let mut state = self.buffers.lock();
        state.free.extend(self.container.take());
        state.returned_at = Instant::now();
        let waiting = state.waiting.take();
        drop(state);
        if let Some(waker) = waiting {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bywash_container::HugePages;

    #[test]
    fn a_stream_has_all_of_its_containers_or_none() {
        let memory = Memory::new(2 << 20, HugePages::No).unwrap();
        let one = Buffers::new(&memory, 2, 512 << 10).unwrap().unwrap();
        assert!(Buffers::new(&memory, 3, 512 << 10).unwrap().is_none());
        assert_eq!(memory.usage().1, 1 << 20);
        let two = Buffers::new(&memory, 2, 512 << 10).unwrap();
        assert!(two.is_some());
        drop((one, two));
        assert_eq!(memory.usage().1, 0);
    }

    #[test]
    fn a_container_that_was_sent_is_free_again() {
        let memory = Memory::new(2 << 20, HugePages::No).unwrap();
        let buffers = Buffers::new(&memory, 1, 4096).unwrap().unwrap();
        let context = &mut Context::from_waker(Waker::noop());
        let Poll::Ready(mut container) = buffers.poll_take(context) else { panic!("none is free") };
        container[10..13].copy_from_slice(b"abc");
        let bytes = buffers.send(container, 10..13);
        assert!(buffers.poll_take(context).is_pending());
        let rest = bytes.slice(1..);
        drop(bytes);
        assert!(buffers.poll_take(context).is_pending());
        assert_eq!(&rest[..], b"bc");
        drop(rest);
        assert!(buffers.poll_take(context).is_ready());
    }
}
