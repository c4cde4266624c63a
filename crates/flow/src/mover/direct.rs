//! `direct`: several blocks at a time between registered buffers and the device, past the page cache.
//!
//! Each of up to [`DEPTH`] buffers is read into, then written from, in a turn of its own; the ring (io_uring) has all of them
//! under way. Writes go past the page cache (O_DIRECT); reads do where the page cache does not have the source anyway.
//! What is no whole number of the device's blocks, the end mostly, goes the usual way. Called with files and devices.

use super::{Job, Stop, reason};
use crate::end::{Reading, Writing};
use crate::error::Error;
use crate::memory::Memory;
use crate::plan;
use crate::sys;
use io_uring::{IoUring, opcode, types};
use rustix::event::PollFlags;
use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Blocks under way, as long as they are not too large.
const DEPTH: usize = 8;
/// Of what O_DIRECT asks for: of all devices there are, in all likelihood.
const ALIGNMENT: u64 = 4096;
/// Of descriptors that are registered: which is which.
const SOURCE: types::Fixed = types::Fixed(0);
const SINK: types::Fixed = types::Fixed(1);

/// One buffer, and what it is about.
#[derive(Clone, Copy, Default)]
struct Slot {
    read_at: u64,
    write_at: u64,
    bytes: usize,
    /// Of those, done in the turn that it is in.
    done: usize,
    writes: bool,
    busy: bool,
}

impl Slot {
    /// Bytes that may go past the page cache.
    fn aligned(&self) -> usize {
        if self.write_at.is_multiple_of(ALIGNMENT) { self.bytes - self.bytes % ALIGNMENT as usize } else { 0 }
    }
}

struct Engine<'a> {
    ring: IoUring,
    buffers: Memory,
    /// Whether the kernel knows the buffers beforehand.
    registered: bool,
    slots: Vec<Slot>,
    block: usize,
    from: &'a mut Reading,
    to: &'a mut Writing,
    under_way: usize,
}

pub(super) fn run(job: &mut Job<'_>, from: &mut Reading, to: &mut Writing) -> Result<(), Stop> {
    let block = job.block.next_multiple_of(ALIGNMENT as usize);
    let source = reopened(from.as_fd(), OFlags::RDONLY, reads_direct(from)).map_err(unfit)?;
    let sink = reopened(to.as_fd(), OFlags::WRONLY, true).map_err(unfit)?;
    reserve(job, from, to)?;
    let depth = super::buffers(DEPTH, block);
    let buffers = Memory::new(depth * block)?;
    let ring =
        IoUring::new(DEPTH as u32).map_err(|error| Stop::Unfit(format!("there is no io_uring: {error}")))?;
    let vectors: Vec<libc::iovec> = buffers
        .chunks(block)
        .map(|piece| libc::iovec { iov_base: piece.as_ptr().cast_mut().cast(), iov_len: piece.len() })
        .collect();
    // A user may have no more than so much memory locked (RLIMIT_MEMLOCK): then it is looked up for each block.
    // SAFETY: the buffers live as long as the ring: both are of `Engine`, which waits for everything that is under way.
    let registered = unsafe { ring.submitter().register_buffers(&vectors) }.is_ok();
    ring.submitter()
        .register_files(&[source.as_raw_fd(), sink.as_raw_fd()])
        .map_err(|error| Stop::Unfit(format!("io_uring does not take files: {error}")))?;
    let slots = vec![Slot::default(); depth];
    let mut engine = Engine { ring, buffers, registered, slots, block, from, to, under_way: 0 };
    let outcome = engine.run(job);
    engine.wait_for_all();
    outcome
}

fn unfit(error: Errno) -> Stop {
    Stop::Unfit(reason(error))
}

/// The same file once more, with flags of its own.
fn reopened(file: BorrowedFd<'_>, access: OFlags, direct: bool) -> Result<OwnedFd, Errno> {
    let flags = access | OFlags::CLOEXEC | if direct { OFlags::DIRECT } else { OFlags::empty() };
    rustix::fs::open(format!("/proc/self/fd/{}", file.as_raw_fd()), flags, Mode::empty())
}

/// Whether the source is read past the page cache: not what is in there.
fn reads_direct(from: &Reading) -> bool {
    let size = from.end.unwrap_or(0);
    let pages = crate::sys::cached_pages(from.as_fd(), size).unwrap_or(u64::MAX);
    plan::reads_direct(pages.saturating_mul(sys::page_bytes() as u64), size)
        && from.position.is_some_and(|position| position.is_multiple_of(ALIGNMENT))
}

/// Takes the blocks beforehand, so that a full disk says so at once, and writes need not wait for one another.
fn reserve(job: &Job<'_>, from: &Reading, to: &Writing) -> Result<(), Stop> {
    let (Some(left), Some(position)) = (from.left(), to.position) else { return Ok(()) };
    if job.keeps_holes || to.kind != crate::facts::Kind::File {
        return Ok(());
    }
    match rustix::fs::fallocate(to, FallocateFlags::empty(), position, left.min(job.left).max(1)) {
        Err(error @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) => Err(to.failed(error).into()),
        // A file system that cannot.
        _ => Ok(()),
    }
}

impl Engine<'_> {
    fn run(&mut self, job: &mut Job<'_>) -> Result<(), Stop> {
        let mut more = true;
        loop {
            while more && let Some(free) = self.slots.iter().position(|slot| !slot.busy) {
                more = self.begin(free, job)?;
            }
            if self.under_way == 0 {
                return Ok(());
            }
            self.turn(job)?;
        }
    }

    /// Begins to read the next block; false: there is none.
    fn begin(&mut self, number: usize, job: &mut Job<'_>) -> Result<bool, Error> {
        let Some(bytes) = job.next_at_most(self.from, self.to, self.block)? else { return Ok(false) };
        self.slots[number] = Slot {
            read_at: self.from.position.unwrap_or(0),
            write_at: self.to.position.unwrap_or(0),
            bytes,
            done: 0,
            writes: false,
            busy: true,
        };
        job.has_read(self.from, bytes);
        self.to.advance(bytes as u64);
        self.submit(number)?;
        Ok(true)
    }

    /// Hands what is left of a slot's turn to the kernel.
    fn submit(&mut self, number: usize) -> Result<(), Error> {
        let slot = self.slots[number];
        let at = self.buffers[number * self.block + slot.done..].as_mut_ptr();
        let done = slot.done as u64;
        let (bytes, offset) = if slot.writes {
            (slot.aligned() - slot.done, slot.write_at + done)
        } else {
            // A direct read is of whole blocks: there is room for them, and at the end of a file less comes.
            let whole = (slot.bytes - slot.done).next_multiple_of(ALIGNMENT as usize);
            (whole.min(self.block - slot.done), slot.read_at + done)
        };
        let (bytes, buffer) = (bytes as u32, number as u16);
        let entry = match (slot.writes, self.registered) {
            (true, true) => opcode::WriteFixed::new(SINK, at, bytes, buffer).offset(offset).build(),
            (true, false) => opcode::Write::new(SINK, at, bytes).offset(offset).build(),
            (false, true) => opcode::ReadFixed::new(SOURCE, at, bytes, buffer).offset(offset).build(),
            (false, false) => opcode::Read::new(SOURCE, at, bytes).offset(offset).build(),
        };
        // SAFETY: the buffer is this slot's own until the completion comes, and is waited for.
        unsafe { self.ring.submission().push(&entry.user_data(number as u64)) }
            .map_err(|error| Error::io("queue a block", std::io::Error::other(error)))?;
        self.under_way += 1;
        Ok(())
    }

    /// Submits what is queued, waits for something, and goes on with what has come.
    fn turn(&mut self, job: &mut Job<'_>) -> Result<(), Stop> {
        self.ring.submit().or_else(interrupted).map_err(|error| Error::io("submit blocks", error))?;
        if self.ring.completion().is_empty() {
            // SAFETY: the ring's descriptor, which lives as long as the ring.
            let ring = unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) };
            job.control.wait(ring, PollFlags::IN, None)?;
        }
        // One by one: what lies behind a block that has failed stays there, to be waited for.
        while let Some(entry) = self.next_completion() {
            self.under_way -= 1;
            self.completed(entry.user_data() as usize, entry.result(), job)?;
        }
        Ok(())
    }

    fn next_completion(&mut self) -> Option<io_uring::cqueue::Entry> {
        self.ring.completion().next()
    }

    fn completed(&mut self, number: usize, result: i32, job: &mut Job<'_>) -> Result<(), Stop> {
        let slot = &mut self.slots[number];
        let bytes = match usize::try_from(result) {
            Ok(bytes) => bytes,
            Err(_) if matches!(-result, libc::EINTR | libc::EAGAIN) => return Ok(self.submit(number)?),
            // A device that does not take it so: the usual way.
            Err(_) if slot.writes && -result == libc::EINVAL => return self.write_rest(number, job),
            Err(_) => {
                let error = Errno::from_raw_os_error(-result);
                return Err(if slot.writes { self.to.failed(error) } else { self.from.failed(error) }.into());
            }
        };
        if bytes == 0 {
            let error = if slot.writes { self.to.failed(Errno::NOSPC) } else { self.from.shrank() };
            return Err(error.into());
        }
        slot.done += bytes;
        if !slot.writes && slot.done >= slot.bytes {
            (slot.writes, slot.done) = (true, 0);
        }
        let wanted = if slot.writes { slot.aligned() } else { slot.bytes };
        // What a device leaves in the middle of one of its blocks goes the usual way too.
        match slot.done < wanted && (slot.done as u64).is_multiple_of(ALIGNMENT) {
            true => Ok(self.submit(number)?),
            false if slot.writes => self.write_rest(number, job),
            false => Err(self.from.shrank().into()),
        }
    }

    /// Writes what has not gone past the page cache, and is done with the slot.
    fn write_rest(&mut self, number: usize, job: &mut Job<'_>) -> Result<(), Stop> {
        let slot = &mut self.slots[number];
        let base = number * self.block;
        while slot.done < slot.bytes {
            let rest = &self.buffers[base + slot.done..base + slot.bytes];
            match rustix::io::pwrite(&self.to.descriptor, rest, slot.write_at + slot.done as u64) {
                Ok(0) => return Err(self.to.failed(Errno::NOSPC).into()),
                Ok(bytes) => slot.done += bytes,
                Err(Errno::INTR) => {}
                Err(error) => return Err(self.to.failed(error).into()),
            }
        }
        job.has_written(slot.bytes);
        slot.busy = false;
        Ok(())
    }

    /// The kernel must not write into memory that is gone.
    fn wait_for_all(&mut self) {
        while self.under_way > 0 {
            // An interruption is no reason to leave, and nothing else can fail here.
            let _ = self.ring.submit_and_wait(1);
            self.under_way -= self.ring.completion().count();
        }
    }
}

/// A signal came: the entries stay queued, and are submitted next time.
fn interrupted(error: std::io::Error) -> std::io::Result<usize> {
    match error.raw_os_error() {
        Some(libc::EINTR | libc::EAGAIN | libc::EBUSY) => Ok(0),
        _ => Err(error),
    }
}
