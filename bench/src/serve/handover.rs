//! The barest server: a thread on a core of its own that looks at cache lines, copies, and writes cache lines.
//!
//! ```text
//!   client's thread    requests[turn % depth] = place, buffer, turn ──► spins there ──► copies     server's thread
//!                      spins there ◄── answers[turn % depth] = turn
//! ```
//!
//! SYNC: turn. The request's words are stored before its turn and loaded behind it, and what was copied is stored before the
//! answer and loaded behind it. Requests are answered in the order in which they were submitted, and at most as many as there
//! are lines are under way, so that a line is free when its turn comes again.

use super::bound::Bare;
use super::calls::stride;
use super::engine::{Engine, Request, Tag};
use super::uring::memory;
use super::workload::{Direction, Workload};
use crate::error::Error;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::hint::{black_box, spin_loop};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::thread::JoinHandle;
use vm_memory::{Bytes, MmapRegion, VolatileMemory};

/// Turn of the request that ends the server's thread.
const END: u64 = u64::MAX;
/// In the word of a tag, which has 16 bits: a read.
const IS_READ: u64 = 1 << 16;

/// A request: one cache line. Aligned to two, which some processors fetch together.
#[repr(align(128))]
#[derive(Default)]
struct Asked {
    turn: AtomicU64,
    offset: AtomicU64,
    /// The tag, with [`IS_READ`] if bytes go to the client.
    tag: AtomicU64,
}

/// An answer: one cache line.
#[repr(align(128))]
#[derive(Default)]
struct Answered {
    turn: AtomicU64,
}

/// What both threads see.
struct Shared {
    requests: Vec<Asked>,
    answers: Vec<Answered>,
    /// Buffers of the tags, one after the other.
    buffers: MmapRegion,
    block: usize,
}

/// The client's end of a bare hand-over.
pub(super) struct HandOver {
    shared: Arc<Shared>,
    /// Memory of the client's own, of each tag, if requests are staged.
    own: Vec<Vec<u8>>,
    /// Tags in the order of their turns.
    tags: Vec<Tag>,
    submitted: u64,
    reaped: u64,
    server: Option<JoinHandle<()>>,
}

impl HandOver {
    /// Starts the server's thread on `core`, for requests of `workload` to the memory of `bare`. If `is_staged`, the client
    /// copies between its own memory and the buffers that are handed over.
    ///
    /// # Errors
    /// The kernel's, if there is no memory or no thread.
    pub(super) fn start(
        bare: Bare,
        is_staged: bool,
        core: usize,
        workload: &Workload,
    ) -> Result<HandOver, Error> {
        let depth = workload.depth;
        let shared = Arc::new(Shared {
            requests: (0..depth).map(|_| Asked::default()).collect(),
            answers: (0..depth).map(|_| Answered::default()).collect(),
            buffers: memory(stride(workload.block) * depth)?,
            block: workload.block,
        });
        let theirs = Arc::clone(&shared);
        let server = std::thread::Builder::new().spawn(move || {
            let mut set = CpuSet::new();
            set.set(core);
            // Where it may not run there it stays where it is, and the bound is the worse for it.
            let _ = sched_setaffinity(None, &set);
            theirs.serve(&bare);
        });
        let server = server.map_err(|error| Error::failed("a bound's thread", error.to_string()))?;
        let own = if is_staged { vec![vec![0; workload.block]; depth] } else { Vec::new() };
        Ok(HandOver { shared, own, tags: vec![0; depth], submitted: 0, reaped: 0, server: Some(server) })
    }
}

impl Shared {
    /// Where the buffer of a tag begins in the memory of all.
    fn at(&self, tag: Tag) -> usize {
        usize::from(tag) * stride(self.block)
    }

    /// The server's thread: carries out what is asked for, turn by turn.
    #[expect(unsafe_code, reason = "the bytes go to and from memory that is mapped")]
    fn serve(&self, bare: &Bare) {
        let depth = self.requests.len() as u64;
        for turn in 1.. {
            let number = (turn % depth) as usize;
            let Asked { turn: asked, offset, tag } = &self.requests[number];
            loop {
                match asked.load(Acquire) {
                    END => return,
                    now if now == turn => break,
                    _ => spin_loop(),
                }
            }
            let (offset, tag) = (offset.load(Relaxed), tag.load(Relaxed));
            // The next one's line may come while this one's bytes are copied.
            black_box(self.requests[((turn + 1) % depth) as usize].turn.load(Relaxed));
            let direction = if tag & IS_READ == 0 { Direction::Write } else { Direction::Read };
            let buffer = self.buffers.as_ptr().wrapping_add(self.at(tag as Tag));
            // SAFETY: a buffer of the region, a block long, which the client leaves alone until the answer.
            unsafe { bare.copy(direction, offset, buffer, self.block) };
            self.answers[number].turn.store(turn, Release);
        }
    }
}

impl HandOver {
    /// Copies between the client's own memory and the buffer that is handed over.
    #[inline]
    #[expect(unsafe_code, reason = "the buffer is memory that another thread has at other times")]
    fn stage(&mut self, tag: Tag, direction: Direction) {
        let Some(own) = self.own.get_mut(usize::from(tag)) else { return };
        let buffer = self.shared.buffers.as_ptr().wrapping_add(self.shared.at(tag));
        // SAFETY: a block of each, the buffer within its region; nothing is under way of the tag, so the server's thread
        // leaves it alone.
        unsafe {
            match direction {
                Direction::Write => buffer.copy_from_nonoverlapping(own.as_ptr(), own.len()),
                Direction::Read => own.as_mut_ptr().copy_from_nonoverlapping(buffer, own.len()),
            }
        }
    }

    /// The answer of the oldest request under way, if it is there.
    #[inline]
    fn take(&mut self) -> Option<Tag> {
        let turn = self.reaped + 1;
        let number = (turn % self.tags.len() as u64) as usize;
        if self.reaped == self.submitted || self.shared.answers[number].turn.load(Acquire) != turn {
            return None;
        }
        self.reaped = turn;
        let tag = self.tags[number];
        if self.shared.requests[number].tag.load(Relaxed) & IS_READ != 0 {
            self.stage(tag, Direction::Read);
        }
        Some(tag)
    }
}

impl Engine for HandOver {
    fn submit(&mut self, request: Request) -> Result<(), Error> {
        if request.direction == Direction::Write {
            self.stage(request.tag, Direction::Write);
        }
        let turn = self.submitted + 1;
        let number = (turn % self.tags.len() as u64) as usize;
        let asked = &self.shared.requests[number];
        let is_read = if request.direction == Direction::Read { IS_READ } else { 0 };
        asked.offset.store(request.offset, Relaxed);
        asked.tag.store(u64::from(request.tag) | is_read, Relaxed);
        asked.turn.store(turn, Release);
        self.tags[number] = request.tag;
        self.submitted = turn;
        Ok(())
    }

    fn reap(&mut self, least: usize, done: &mut Vec<Tag>) -> Result<(), Error> {
        let wanted = done.len() + least.max(1);
        loop {
            match self.take() {
                Some(tag) => done.push(tag),
                None if done.len() >= wanted => return Ok(()),
                None => spin_loop(),
            }
        }
    }

    fn fill(&mut self, tag: Tag, bytes: &[u8]) {
        match self.own.get_mut(usize::from(tag)) {
            Some(own) => own.copy_from_slice(bytes),
            None => {
                let written = self.shared.buffers.as_volatile_slice().write(bytes, self.shared.at(tag));
                assert_eq!(written.ok(), Some(bytes.len()), "a buffer of tag {tag}");
            }
        }
    }

    fn copy_out(&self, tag: Tag, bytes: &mut [u8]) {
        match self.own.get(usize::from(tag)) {
            Some(own) => bytes.copy_from_slice(own),
            None => {
                let read = self.shared.buffers.as_volatile_slice().read(bytes, self.shared.at(tag));
                assert_eq!(read.ok(), Some(bytes.len()), "a buffer of tag {tag}");
            }
        }
    }
}

impl Drop for HandOver {
    fn drop(&mut self) {
        // The thread looks at the line of the next turn once it has carried out all before it.
        let next = (self.submitted + 1) % self.tags.len() as u64;
        self.shared.requests[next as usize].turn.store(END, Release);
        if let Some(server) = self.server.take() {
            // It could only have panicked, and then there was no answer either.
            let _ = server.join();
        }
    }
}
