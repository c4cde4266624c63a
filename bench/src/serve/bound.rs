//! Bounds: engines that no access path with the same requests can be faster than, measured in the same rounds as our paths.
//!
//! ```text
//!   copy         client ── copies the block ──► the volume's memory, mapped
//!   hand-over    client ── a cache line ──► another core ── copies the block ──► the volume's memory
//!                client ◄── a cache line ── another core
//!   staged       the same, and the client copies the block from its own memory to shared memory before
//! ```
//!
//! A bound has the workload, the loop, the volume and its pages, the sizes of the buffers and the cores of the path that it
//! bounds. It checks nothing, counts nothing, and serves one client: no program could use it as it is. The costs of a copy, a
//! cache line and a miss differ between machines, so that a goal against a bound is equally hard on each of them.
//!
//! The server of a hand-over is a thread on a core of its own that spins on cache lines:
//!
//! ```text
//!   client's thread    requests[turn % depth] = offset, tag, turn ──► spins there ──► copies     server's thread
//!                      spins there ◄── answers[turn % depth] = turn
//! ```
//!
//! SYNC: turn. A request's words are stored before its turn and loaded after it; what was copied is stored before the answer and
//! loaded after it. Requests are answered in the order of their submission, and at most as many as there are lines are in
//! flight, so a line is free when its turn comes again.

use super::contest::{CLIENT_CORE, SERVER_CORE, cores, only, run_on};
use super::file::{Buffers, Calls, PAGE};
use super::workload::{Direction, Engine, Request, Tag, Workload};
use crate::error::Error;
use bywash_client::{Access, Client, MappedMemory, Options, PathChoice, Volume};
use bywash_sync::{light_shared_fence, prepare_shared_fences, read_fence};
use serde::{Deserialize, Serialize};
use std::hint::{black_box, spin_loop};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::thread::JoinHandle;
use vm_memory::VolatileSlice;

/// Turn that ends the server's thread.
const END: u64 = u64::MAX;
/// Flag beside the 16 bits of a tag: a read.
const IS_READ: u64 = 1 << 16;

/// Work that a bound consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Bound {
    /// A copy between the client's buffer and the mapped volume.
    Copy,
    /// The same past the caches, which may be faster for large writes.
    CopyPastCaches,
    /// The same two on the core of our server, which copies for all clients.
    CopyOnOneCore,
    CopyPastCachesOnOneCore,
    /// A cache line to another core, its copy between a shared buffer and the mapped volume, and a cache line back.
    HandOver,
    /// The same, and the client copies between its own memory and the shared buffer besides.
    StagedHandOver,
}

impl Bound {
    /// Name in rows, and note of a row against this bound: the work that binds.
    pub fn texts(self) -> (&'static str, &'static str) {
        let (client, core) = ("the client copies the bytes", "one core copies the bytes of all clients");
        match self {
            Bound::Copy => ("bound: a bare copy", client),
            Bound::CopyPastCaches => ("bound: a bare copy past the caches", client),
            Bound::CopyOnOneCore => ("bound: a bare copy on one core", core),
            Bound::CopyPastCachesOnOneCore => ("bound: a bare copy past the caches on one core", core),
            Bound::HandOver => (
                "bound: a bare hand-over and a copy",
                "a cache line to the server's core, which copies the bytes, and one back",
            ),
            Bound::StagedHandOver => (
                "bound: a bare hand-over and two copies",
                "the client copies the bytes, a cache line to the server's core, which copies them again, and one back",
            ),
        }
    }

    /// Cores of the clients; none: any. A hand-over is unavailable on a machine with one core.
    pub fn cores(self, clients: usize) -> Result<Vec<usize>, Error> {
        match self {
            Bound::HandOver | Bound::StagedHandOver if cores() == 1 => {
                Err(Error::Unavailable("a hand-over takes two cores, and there is one".into()))
            }
            Bound::CopyOnOneCore | Bound::CopyPastCachesOnOneCore => Ok(only(SERVER_CORE)),
            Bound::Copy | Bound::CopyPastCaches if clients > 1 => Ok(Vec::new()),
            _ => Ok(only(CLIENT_CORE)),
        }
    }

    /// Opens a volume of the server at `socket` for requests of `workload`.
    #[expect(unsafe_code, reason = "see `Bare::copy`")]
    pub fn open(self, socket: &Path, volume: &str, workload: &Workload) -> Result<Box<dyn Engine>, Error> {
        let past_caches = matches!(self, Bound::CopyPastCaches | Bound::CopyPastCachesOnOneCore);
        let bare = Bare::open(socket, volume, workload, past_caches)?;
        if matches!(self, Bound::HandOver | Bound::StagedHandOver) {
            return Ok(Box::new(HandOver::start(bare, self == Bound::StagedHandOver, workload)?));
        }
        Ok(Box::new(Calls::new(workload, move |direction, bytes, offset| {
            // SAFETY: a slice of the program's own memory, outside of the volume.
            unsafe { bare.copy(direction, offset, bytes.as_mut_ptr(), bytes.len()) };
            Ok(bytes.len())
        })))
    }
}

/// Mapped memory of a volume, and nothing around it.
struct Bare {
    memory: MappedMemory,
    past_caches: bool,
    has_fences: bool,
    // The grant lasts as long as this.
    _volume: Volume,
}

impl Bare {
    fn open(socket: &Path, volume: &str, workload: &Workload, past_caches: bool) -> Result<Bare, Error> {
        let failed = |error: bywash_client::Error| Error::failed("a bound", error.to_string());
        let client = Client::connect(socket, Options::new().choice(PathChoice::Mapped)).map_err(failed)?;
        let volume = client.open(volume, Access::ReadWrite).map_err(failed)?;
        let memory = volume.map().map_err(failed)?;
        workload.check_size(memory.len() as u64)?;
        Ok(Bare { memory, past_caches, has_fences: prepare_shared_fences(), _volume: volume })
    }

    /// Copies a block to or from `buffer`, with the fences that a client of mapped memory needs.
    ///
    /// # Safety
    /// `buffer` has room for `length` bytes that nobody else accesses meanwhile, outside of the volume.
    #[inline]
    #[expect(unsafe_code, reason = "the bytes go to and from memory that is mapped")]
    unsafe fn copy(&self, direction: Direction, offset: u64, buffer: *mut u8, length: usize) {
        let (offset, bytes) = (offset as usize, self.memory.len());
        assert!(offset <= bytes && length <= bytes - offset, "the volume has the size of the workload");
        let block = self.memory.as_ptr().wrapping_add(offset);
        // SAFETY: the block is within the mapping, which `memory` keeps; the caller promises the buffer.
        unsafe {
            match direction {
                Direction::Read => block.cast_const().copy_to_nonoverlapping(buffer, length),
                Direction::Write if self.past_caches => copy_past_caches(buffer, block, length),
                Direction::Write => buffer.cast_const().copy_to_nonoverlapping(block, length),
            }
        }
        match direction {
            Direction::Read => read_fence(),
            Direction::Write => light_shared_fence(self.has_fences),
        }
    }
}

/// Copies with stores that bypass the caches where the processor has them, as far as the destination has whole lines.
///
/// # Safety
/// Both have `length` bytes and do not overlap.
#[expect(unsafe_code, reason = "such stores are instructions of their own")]
unsafe fn copy_past_caches(from: *const u8, to: *mut u8, length: usize) {
    let mut done = 0;
    #[cfg(target_arch = "x86_64")]
    if to.addr().is_multiple_of(PAGE) {
        use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};
        const LINE: usize = 4 * size_of::<__m128i>();
        while length - done >= LINE {
            // SAFETY: a line from `done` on is within both ranges, and that of `to` is aligned since it begins at a page.
            unsafe {
                let (source, destination) =
                    (from.add(done).cast::<__m128i>(), to.add(done).cast::<__m128i>());
                let four = [0, 1, 2, 3].map(|word| _mm_loadu_si128(source.add(word)));
                (0..4).for_each(|word| _mm_stream_si128(destination.add(word), four[word]));
            }
            done += LINE;
        }
        // SAFETY: every x86-64 processor has it.
        unsafe { _mm_sfence() };
    }
    // SAFETY: the rest of both ranges.
    unsafe { from.add(done).copy_to_nonoverlapping(to.add(done), length - done) };
}

/// A request or an answer: one cache line, aligned to two, which some processors fetch together.
#[repr(align(128))]
#[derive(Default)]
struct Line {
    turn: AtomicU64,
    offset: AtomicU64,
    /// Tag, with [`IS_READ`] if bytes go to the client.
    tag: AtomicU64,
}

/// Memory of both threads.
struct Shared {
    requests: Vec<Line>,
    answers: Vec<Line>,
    buffers: Buffers,
    block: usize,
}

impl Shared {
    /// Carries requests out, turn by turn, until the turn [`END`].
    #[expect(unsafe_code, reason = "the bytes go to and from memory that is mapped")]
    fn serve(&self, bare: &Bare) {
        let depth = self.requests.len() as u64;
        for turn in 1.. {
            let number = (turn % depth) as usize;
            let line = &self.requests[number];
            loop {
                match line.turn.load(Acquire) {
                    END => return,
                    now if now == turn => break,
                    _ => spin_loop(),
                }
            }
            let (offset, tag) = (line.offset.load(Relaxed), line.tag.load(Relaxed));
            // The next line may arrive while the bytes of this one are copied.
            black_box(self.requests[((turn + 1) % depth) as usize].turn.load(Relaxed));
            let direction = if tag & IS_READ == 0 { Direction::Write } else { Direction::Read };
            let buffer = self.buffers.address(tag as Tag);
            // SAFETY: the buffer of a request in flight, a block long, which the client does not access until the answer.
            unsafe { bare.copy(direction, offset, buffer, self.block) };
            self.answers[number].turn.store(turn, Release);
        }
    }
}

/// Client's end of a hand-over.
struct HandOver {
    shared: Arc<Shared>,
    /// The client's own memory of each tag, if requests are staged.
    own: Vec<Vec<u8>>,
    /// Tags in the order of their turns.
    tags: Vec<Tag>,
    submitted: u64,
    reaped: u64,
    server: Option<JoinHandle<()>>,
}

impl HandOver {
    fn start(bare: Bare, is_staged: bool, workload: &Workload) -> Result<HandOver, Error> {
        let depth = workload.depth;
        let shared = Arc::new(Shared {
            requests: (0..depth).map(|_| Line::default()).collect(),
            answers: (0..depth).map(|_| Line::default()).collect(),
            buffers: Buffers::alone(workload)?,
            block: workload.block,
        });
        let theirs = Arc::clone(&shared);
        let server = std::thread::Builder::new().spawn(move || {
            // Without this core the bound is slower, and easier to reach; `Bound::cores` excludes a single one.
            let _ = run_on(&[SERVER_CORE]);
            theirs.serve(&bare);
        });
        let server = server.map_err(|error| Error::failed("a bound's thread", error.to_string()))?;
        let own = if is_staged { vec![vec![0; workload.block]; depth] } else { Vec::new() };
        Ok(HandOver { shared, own, tags: vec![0; depth], submitted: 0, reaped: 0, server: Some(server) })
    }

    /// Copies between the client's own memory and the shared buffer, if requests are staged.
    #[inline]
    #[expect(unsafe_code, reason = "the buffer is memory that another thread accesses at other times")]
    fn stage(&mut self, tag: Tag, direction: Direction) {
        let Some(own) = self.own.get_mut(usize::from(tag)) else { return };
        let buffer = self.shared.buffers.address(tag);
        // SAFETY: both are a block long; the tag is not in flight, so the server's thread does not access the buffer.
        unsafe {
            match direction {
                Direction::Write => buffer.copy_from_nonoverlapping(own.as_ptr(), own.len()),
                Direction::Read => own.as_mut_ptr().copy_from_nonoverlapping(buffer, own.len()),
            }
        }
    }

    /// Takes the answer of the oldest request in flight, if it has arrived.
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
        self.submitted += 1;
        let number = (self.submitted % self.tags.len() as u64) as usize;
        let line = &self.shared.requests[number];
        let is_read = if request.direction == Direction::Read { IS_READ } else { 0 };
        line.offset.store(request.offset, Relaxed);
        line.tag.store(u64::from(request.tag) | is_read, Relaxed);
        line.turn.store(self.submitted, Release);
        self.tags[number] = request.tag;
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

    fn buffer(&mut self, tag: Tag) -> VolatileSlice<'_> {
        match self.own.get_mut(usize::from(tag)) {
            Some(own) => own.as_mut_slice().into(),
            None => self.shared.buffers.buffer(tag),
        }
    }
}

impl Drop for HandOver {
    fn drop(&mut self) {
        // The thread looks at the line of the next turn when it has carried out all before it.
        let next = (self.submitted + 1) % self.tags.len() as u64;
        self.shared.requests[next as usize].turn.store(END, Release);
        if let Some(server) = self.server.take() {
            // A panic of the thread has shown before, as an answer that did not arrive.
            let _ = server.join();
        }
    }
}
