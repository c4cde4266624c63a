//! `direct`: several blocks are in flight between registered buffers and the device, bypassing the page
//! cache.
//!
//! Each of up to [`DEPTH`] buffers is filled by a read and then written, independently of the others; one
//! io_uring ring has all of them in flight. Writes bypass the page cache (O_DIRECT); reads do unless most of
//! the source is cached. A length that is not a multiple of [`ALIGNMENT`], usually the end of the data, is
//! written through the page cache. Called for files and block devices.

use super::{Job, Stop, reason, submitted_later};
use crate::block_buffer::BlockBuffer;
use crate::end::{DescriptorSink, DescriptorSource};
use crate::error::Error;
use crate::plan;
use crate::sys;
use io_uring::{IoUring, opcode, types};
use rustix::event::PollFlags;
use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Greatest number of blocks in flight; fewer if the blocks are large.
const DEPTH: usize = 8;
/// Alignment of offsets and lengths for O_DIRECT, in bytes: in all likelihood enough for every device.
const ALIGNMENT: u64 = 4096;
/// Indices of the two registered descriptors.
const SOURCE: types::Fixed = types::Fixed(0);
const SINK: types::Fixed = types::Fixed(1);

/// State of one buffer.
#[derive(Clone, Copy, Default)]
struct Slot {
    read_at: u64,
    write_at: u64,
    bytes: usize,
    /// Bytes read or written in the current phase, out of `bytes`.
    done: usize,
    writes: bool,
    busy: bool,
}

impl Slot {
    /// Returns the number of bytes that may be written with O_DIRECT.
    fn aligned(&self) -> usize {
        if self.write_at.is_multiple_of(ALIGNMENT) { self.bytes - self.bytes % ALIGNMENT as usize } else { 0 }
    }
}

struct Engine<'a> {
    ring: IoUring,
    buffers: BlockBuffer,
    /// True if the buffers are registered with io_uring.
    registered: bool,
    slots: Vec<Slot>,
    block: usize,
    from: &'a mut DescriptorSource,
    to: &'a mut DescriptorSink,
    in_flight: usize,
}

pub(super) fn run(
    job: &mut Job<'_>,
    from: &mut DescriptorSource,
    to: &mut DescriptorSink,
) -> Result<(), Stop> {
    let block = job.block.next_multiple_of(ALIGNMENT as usize);
    let source = reopened(from.as_fd(), OFlags::RDONLY, reads_direct(from)).map_err(unfit)?;
    let sink = reopened(to.as_fd(), OFlags::WRONLY, true).map_err(unfit)?;
    reserve(job, from, to)?;
    let depth = super::buffers(DEPTH, block);
    let buffers = BlockBuffer::new(depth * block)?;
    let ring = IoUring::new(DEPTH as u32)
        .map_err(|error| Stop::Refused(format!("there is no io_uring: {error}")))?;
    let vectors: Vec<libc::iovec> = buffers
        .chunks(block)
        .map(|piece| libc::iovec { iov_base: piece.as_ptr().cast_mut().cast(), iov_len: piece.len() })
        .collect();
    // Registration fails beyond the limit of locked memory (RLIMIT_MEMLOCK); the kernel then pins the buffer
    // of each request.
    // SAFETY: `buffers` outlives the ring, and no request is left in flight when `run` returns:
    // `wait_for_all` runs last.
    let registered = unsafe { ring.submitter().register_buffers(&vectors) }.is_ok();
    ring.submitter()
        .register_files(&[source.as_raw_fd(), sink.as_raw_fd()])
        .map_err(|error| Stop::Refused(format!("io_uring does not take files: {error}")))?;
    let slots = vec![Slot::default(); depth];
    let mut engine = Engine { ring, buffers, registered, slots, block, from, to, in_flight: 0 };
    let outcome = engine.run(job);
    engine.wait_for_all();
    outcome
}

fn unfit(error: Errno) -> Stop {
    Stop::Refused(reason(error))
}

/// Opens the file of a descriptor once more, with access flags of its own.
fn reopened(file: BorrowedFd<'_>, access: OFlags, direct: bool) -> Result<OwnedFd, Errno> {
    let flags = access | OFlags::CLOEXEC | if direct { OFlags::DIRECT } else { OFlags::empty() };
    rustix::fs::open(format!("/proc/self/fd/{}", file.as_raw_fd()), flags, Mode::empty())
}

/// Returns true if the source should be read with O_DIRECT: most of it is not cached, and its position is
/// aligned.
fn reads_direct(from: &DescriptorSource) -> bool {
    let size = from.end.unwrap_or(0);
    let pages = crate::sys::cached_pages(from.as_fd(), size).unwrap_or(u64::MAX);
    plan::reads_direct(pages.saturating_mul(sys::page_bytes() as u64), size)
        && from.position.is_some_and(|position| position.is_multiple_of(ALIGNMENT))
}

/// Preallocates the blocks of the sink, so that a full disk is an error at once and writes need not wait for
/// each other's allocation.
///
/// # Errors
/// [`Stop::Failed`] if the file system has no room for the data.
fn reserve(job: &Job<'_>, from: &DescriptorSource, to: &DescriptorSink) -> Result<(), Stop> {
    let (Some(left), Some(position)) = (from.left(), to.position) else { return Ok(()) };
    if job.keeps_holes || to.kind != crate::facts::Kind::File {
        return Ok(());
    }
    match rustix::fs::fallocate(to, FallocateFlags::empty(), position, left.min(job.left).max(1)) {
        Err(error @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) => Err(to.failed(error).into()),
        // A file system without preallocation allocates while it writes.
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
            if self.in_flight == 0 {
                return Ok(());
            }
            self.turn(job)?;
        }
    }

    /// Starts to read the next block into buffer `number`. Returns false at the end of the data.
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
        job.record_read(self.from, bytes);
        self.to.advance(bytes as u64);
        self.submit(number)?;
        Ok(true)
    }

    /// Queues the rest of a slot's read or write.
    fn submit(&mut self, number: usize) -> Result<(), Error> {
        let slot = self.slots[number];
        let at = self.buffers[number * self.block + slot.done..].as_mut_ptr();
        let done = slot.done as u64;
        let (bytes, offset) = if slot.writes {
            (slot.aligned() - slot.done, slot.write_at + done)
        } else {
            // A direct read needs a whole number of blocks. The buffer has room for them, and at the end of a
            // file the read is short.
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
        // SAFETY: the buffer belongs to this slot until its completion, which `turn` or `wait_for_all` waits
        // for.
        unsafe { self.ring.submission().push(&entry.user_data(number as u64)) }
            .map_err(|error| Error::io("queue a block", std::io::Error::other(error)))?;
        self.in_flight += 1;
        Ok(())
    }

    /// Submits the queued entries, waits for a completion and handles all that have arrived.
    fn turn(&mut self, job: &mut Job<'_>) -> Result<(), Stop> {
        self.ring.submit().or_else(submitted_later).map_err(|error| Error::io("submit blocks", error))?;
        if self.ring.completion().is_empty() {
            // SAFETY: the descriptor belongs to the ring, which lives longer than this borrow.
            let ring = unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) };
            job.control.wait(ring, PollFlags::IN, None)?;
        }
        // Completions are taken one by one: if a block has failed, those behind it stay in the ring for
        // `wait_for_all`.
        while let Some(entry) = self.next_completion() {
            self.in_flight -= 1;
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
            // The device does not accept the direct write, so the page cache is used.
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
        // A request that ended at an unaligned offset is finished through the page cache too.
        match slot.done < wanted && (slot.done as u64).is_multiple_of(ALIGNMENT) {
            true => Ok(self.submit(number)?),
            false if slot.writes => self.write_rest(number, job),
            false => Err(self.from.shrank().into()),
        }
    }

    /// Writes the rest of a block through the page cache, and frees the slot.
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
        job.record_written(slot.bytes);
        slot.busy = false;
        Ok(())
    }

    /// Waits for all requests in flight, since the kernel must not write into buffers that have been
    /// unmapped.
    fn wait_for_all(&mut self) {
        while self.in_flight > 0 {
            // An error here is an interruption by a signal, and the wait is repeated.
            let _ = self.ring.submit_and_wait(1);
            self.in_flight -= self.ring.completion().count();
        }
    }
}
