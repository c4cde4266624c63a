//! Memory of contents: containers of one arena.
//!
//! An arena belongs to an end of a path. A server ships to nobody, so the other end of its path is in this process, has
//! no arena and maps nothing.
//!
//! A [`Chunk`] is a filled container. It is shared by a cache and by the responses that are being sent from it, and
//! its container is free for other contents when the last of them has dropped it.

use bytes::Bytes;
use bywash_container::{Container, Error, HugePages, Options, Path, socket_pair};
use std::ops::Range;
use std::sync::Arc;
use std::thread;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Arena from which containers are allocated.
#[derive(Debug)]
pub struct Memory {
    path: Path,
    _other_end: Path,
    freed: Arc<Notify>,
}

/// Container with contents that do not change any more.
#[derive(Debug)]
pub struct Chunk {
    // Dropped before the notice is given: fields are dropped in this order.
    container: Container,
    _notice: Notice,
}

/// Wakes those who wait for memory when it is dropped.
#[derive(Debug)]
struct Notice(Arc<Notify>);

impl Drop for Notice {
    fn drop(&mut self) {
        self.0.notify_waiters();
    }
}

impl Memory {
    /// Makes an arena of `bytes` bytes. [`HugePages::Collapse`] takes all of its memory at once.
    ///
    /// # Errors
    /// [`Error::Option`] if the arena is larger than arenas can be, [`Error::Io`] if the kernel has no memory or
    /// descriptors for it.
    pub fn new(bytes: usize, huge_pages: HugePages) -> Result<Memory, Error> {
        let (here, there) = socket_pair()?;
        let other = Options::new().forward().arena_bytes(0).peer_arena_bytes_max(bytes + ROUNDING_MAX);
        // Both ends wait for each other's handshake.
        let other_end = thread::spawn(move || Path::over(there, &other));
        let path = Path::over(here, &Options::new().arena_bytes(bytes).huge_pages(huge_pages));
        let other_end = match other_end.join() {
            Ok(other_end) => other_end,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        Ok(Memory { path: path?, _other_end: other_end?, freed: Arc::new(Notify::new()) })
    }

    /// Allocates a container; `None` if there is no room now.
    ///
    /// # Errors
    /// [`Error::TooLarge`] if the arena can never hold so many bytes.
    pub fn try_alloc(&self, bytes: usize) -> Result<Option<Container>, Error> {
        self.path.try_alloc(bytes)
    }

    /// Allocates a container. While there is no room, calls `make_room`, which says whether it has freed something,
    /// and then waits for chunks that are dropped, until `deadline`: `None`.
    ///
    /// # Errors
    /// Same as [`Memory::try_alloc`].
    pub async fn alloc(
        &self,
        bytes: usize,
        deadline: Instant,
        make_room: impl Fn() -> bool,
    ) -> Result<Option<Container>, Error> {
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            // From here on no notice is missed.
            freed.as_mut().enable();
            if let Some(container) = self.try_alloc(bytes)? {
                return Ok(Some(container));
            }
            if make_room() {
                continue;
            }
            if tokio::time::timeout_at(deadline, freed).await.is_err() {
                return self.try_alloc(bytes);
            }
        }
    }

    /// Returns a chunk of a filled container.
    pub fn chunk(&self, container: Container) -> Arc<Chunk> {
        Arc::new(Chunk { container, _notice: Notice(self.freed.clone()) })
    }

    /// Returns the size of the arena, and the part of it that is in containers, in bytes.
    pub fn usage(&self) -> (u64, u64) {
        let stats = self.path.stats();
        (stats.arena_bytes, stats.arena_held_bytes)
    }
}

impl Chunk {
    /// Returns a range of the contents as what can be handed to a socket. Nothing is copied: the container is kept from
    /// other uses until the last part of the result has been dropped.
    ///
    /// # Panics
    /// If the range is not within the container.
    pub fn bytes(self: &Arc<Chunk>, range: Range<usize>) -> Bytes {
        Bytes::from_owner(Contents { chunk: self.clone(), range })
    }
}

struct Contents {
    chunk: Arc<Chunk>,
    range: Range<usize>,
}

impl AsRef<[u8]> for Contents {
    fn as_ref(&self) -> &[u8] {
        &self.chunk.container[self.range.clone()]
    }
}

/// Greatest number of bytes by which an arena is larger than the one that was ordered.
const ROUNDING_MAX: usize = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn bytes_are_those_of_the_container() {
        let memory = Memory::new(2 << 20, HugePages::No).unwrap();
        let mut container = memory.try_alloc(1000).unwrap().unwrap();
        container.fill(7);
        let address = container.as_ptr();
        let chunk = memory.chunk(container);
        let part = chunk.bytes(10..20);
        assert_eq!(part.as_ptr(), address.wrapping_add(10));
        assert_eq!(*part, [7; 10]);
    }

    #[test]
    fn a_container_that_is_being_sent_is_not_used_again() {
        let memory = Memory::new(2 << 20, HugePages::No).unwrap();
        let mut container = memory.try_alloc(1 << 20).unwrap().unwrap();
        container.fill(1);
        let chunk = memory.chunk(container);
        let being_sent = chunk.bytes(0..100);
        drop(chunk);
        let mut others = Vec::new();
        while let Some(mut other) = memory.try_alloc(64 << 10).unwrap() {
            other.fill(2);
            others.push(other);
        }
        assert!(others.len() >= 8);
        assert_eq!(*being_sent, [1; 100]);
        drop(others);
        assert!(memory.usage().1 >= 1 << 20);
        drop(being_sent);
        assert_eq!(memory.usage().1, 0);
    }

    #[tokio::test]
    async fn who_waits_for_memory_gets_what_is_freed() {
        let memory = Arc::new(Memory::new(2 << 20, HugePages::No).unwrap());
        let all = memory.chunk(memory.try_alloc(2 << 20).unwrap().unwrap());
        let soon = Instant::now() + Duration::from_millis(20);
        assert!(memory.alloc(5000, soon, || false).await.unwrap().is_none());
        let waiting = tokio::spawn({
            let memory = memory.clone();
            async move { memory.alloc(5000, Instant::now() + Duration::from_secs(10), || false).await }
        });
        tokio::task::yield_now().await;
        drop(all);
        assert!(waiting.await.unwrap().unwrap().is_some());
    }
}
