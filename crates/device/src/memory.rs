//! `mem:`: a device of memory, at full speed or with a simulated latency and bandwidth.
//!
//! ```text
//!   submit ──► copied at once ──► done at: ├── the pipe ──┼── latency ──┤
//!                                            bytes / bandwidth, one command behind the other
//! ```
//!
//! A command is carried out during its submission, or without one by [`Device::carry_out`]. If latency or
//! bandwidth are simulated, only its completion is delayed, in the order of submission. So commands always
//! take effect one after another. The memory belongs to [`Chunks`], which others may map, so no Rust
//! reference points into it. Discarding frees no memory.
//!
//! Further queues access the same memory. A command then claims its range while it copies, so that it takes effect
//! before or after the commands of other queues, and never while a chunk is replaced.

use crate::chunks::Chunks;
use crate::claims::Claims;
use crate::command::{Command, CommandError, Completion, Operation, QueueFull};
use crate::device::{Device, Geometry};
use crate::error::Error;
use crate::segment::{SEGMENTS_MAX, gather, gather_past_caches, scatter};
use bywash_link::{HugePages, Mapping};
use bywash_protocol::Access;
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::ptr;
use std::sync::Arc;
use std::time::Instant;

/// Size of a logical block, in bytes.
pub(crate) const BLOCK: usize = 512;
/// Greatest length of a command, in bytes; copying that much takes a processor some milliseconds.
const TRANSFER_MAX: u64 = 16 << 20;
/// Least length of a write that bypasses the caches, in bytes, on devices of at least `LARGE` bytes. An
/// ordinary store first reads the cache line that it overwrites. Measured on an EPYC with 32 MiB of cache and
/// a device of 736 MiB: a write of 64 KiB took 1.7 us past the caches and 2.4 us otherwise if the client's
/// memory was cached, and equally long if it was not. Reads gain nothing, since the client reads the bytes
/// next.
const PAST_CACHES: usize = 32 << 10;
/// Least size of a device that is much larger than any cache, in bytes.
const LARGE: u64 = 512 << 20;
/// Default depth of a device.
pub(crate) const DEPTH: usize = 1024;

/// Size and simulated speed of a memory device, and the pages that it uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryOptions {
    /// Size of the device, in bytes; a multiple of 512.
    pub bytes: u64,
    /// Simulated latency of a command, in nanoseconds, counted from the end of its transfer; 0 for none.
    pub latency_ns: u64,
    /// Simulated bandwidth, in bytes per second; `None` for full speed.
    pub bandwidth: Option<u64>,
    /// Page size of the memory.
    pub pages: HugePages,
    /// Size of a chunk, in bytes: a power of two from 2 MiB to 1 GiB. `None` chooses the size for about 256
    /// chunks.
    pub chunk: Option<u64>,
    /// Greatest number of commands in flight.
    pub depth: usize,
}

impl MemoryOptions {
    /// Options for a device of `bytes` bytes at full speed, on pages of 2 MiB where the kernel can provide
    /// them.
    pub fn new(bytes: u64) -> MemoryOptions {
        MemoryOptions {
            bytes,
            latency_ns: 0,
            bandwidth: None,
            pages: HugePages::Collapse,
            chunk: None,
            depth: DEPTH,
        }
    }
}

/// Device whose medium is memory.
#[derive(Debug)]
pub struct Memory {
    base: BaseAddress,
    /// Keeps the memory mapped.
    mapping: Arc<Mapping>,
    /// The memory's chunks; `None` for a further queue, since only the first one replaces chunks.
    chunks: Option<Chunks>,
    /// Ranges that commands are accessing; `None` if there is one queue.
    claims: Option<Arc<Claims>>,
    options: MemoryOptions,
    pipe: Option<Pipe>,
    /// Completions, each with the earliest time of its report, in nanoseconds since `pipe` was made (0
    /// without a pipe).
    done: VecDeque<(u64, Completion)>,
}

/// Address of the first byte of a device.
#[derive(Clone, Copy, Debug)]
struct BaseAddress(*mut u8);

// SAFETY: an address of memory that `Memory::mapping` keeps mapped, on whichever thread it is used; it is accessed by
// copying only.
unsafe impl Send for BaseAddress {}

impl Memory {
    /// Makes a device of zeroed memory.
    ///
    /// # Errors
    /// [`Error::Unfit`] if the size is zero or not a multiple of 512, the chunks have an invalid size or
    /// number, or the machine has too little memory; [`Error::Memory`] or [`Error::Io`] if the memory cannot
    /// be created, populated or mapped.
    pub fn new(options: MemoryOptions) -> Result<Memory, Error> {
        if options.bytes == 0 || !options.bytes.is_multiple_of(BLOCK as u64) {
            let reason = format!("give a multiple of {BLOCK} bytes, and at least one");
            return Err(Error::Unfit { what: format!("memory of {} bytes", options.bytes), reason });
        }
        let chunks = Chunks::new(options.bytes, options.chunk, options.pages)?;
        let modelled = options.latency_ns > 0 || options.bandwidth.is_some();
        let pipe = modelled.then(|| Pipe::new(options.latency_ns, options.bandwidth));
        let done = VecDeque::with_capacity(options.depth);
        let (base, mapping) = (BaseAddress(chunks.base()), chunks.mapping().clone());
        Ok(Memory { base, mapping, chunks: Some(chunks), claims: None, options, pipe, done })
    }

    /// Returns the address of the device's byte at `offset`.
    #[inline]
    fn at(&self, offset: u64) -> *mut u8 {
        debug_assert!(offset <= self.options.bytes);
        self.base.0.wrapping_add(offset as usize)
    }

    /// Returns true if others may map the memory. They may not if a speed is simulated, which they would
    /// bypass; nor on reserved pages: a process that may write can free such a page, and if another process
    /// takes it from the pool, the next access faults, in this process too.
    fn can_be_mapped(&self) -> bool {
        self.pipe.is_none() && self.options.pages != HugePages::Reserved
    }

    /// Carries out a command and returns the number of bytes of the device that it affected.
    #[inline]
    fn perform(&self, command: &Command<'_>) -> Result<u64, CommandError> {
        let bytes = command.check(&self.geometry())?;
        match &self.claims {
            None => self.apply(command, bytes),
            Some(claims) => self.apply_claimed(claims, command, bytes),
        }
    }

    /// Applies a checked command while no command of another queue that overlaps it takes effect.
    // Not inlined: a device with one queue does without.
    #[inline(never)]
    fn apply_claimed(&self, claims: &Claims, command: &Command<'_>, bytes: u64) -> Result<u64, CommandError> {
        if command.operation == Operation::Discard {
            return self.apply(command, bytes);
        }
        let range = command.offset..command.offset + bytes;
        let _claim = claims.claim(range, command.operation.is_write());
        self.apply(command, bytes)
    }

    /// Applies a checked command that affects `bytes` bytes of the device, and returns their number.
    #[inline(always)]
    fn apply(&self, command: &Command<'_>, bytes: u64) -> Result<u64, CommandError> {
        let (at, segments, length) = (self.at(command.offset), command.segments, bytes as usize);
        match command.operation {
            // SAFETY: `check` found the range within the device, and as many bytes in the segments, which are
            // mapped as `Segment::new` requires. A client's memory never overlaps the device's mapping in
            // this process.
            Operation::Read => unsafe { scatter(segments, 0, at, length) },
            Operation::Write | Operation::WriteDurable
                if length >= PAST_CACHES && self.options.bytes >= LARGE =>
            {
                // SAFETY: the range is within the device and the segments have `length` mapped bytes, as for
                // `Read`.
                unsafe { gather_past_caches(segments, at, length) }
            }
            // SAFETY: the range is within the device and the segments have `length` mapped bytes, as for
            // `Read`.
            Operation::Write | Operation::WriteDurable => unsafe { gather(segments, 0, at, length) },
            // SAFETY: `check` found the range within the device's memory.
            Operation::WriteZeroes => unsafe { ptr::write_bytes(at, 0, length) },
            Operation::CompareAndWrite => self.compare_and_write(command)?,
            // Memory has no volatile cache to flush, and a discard frees none of it.
            Operation::Flush | Operation::Discard => return Ok(0),
        }
        Ok(bytes)
    }

    // Not inlined: its buffers would enlarge the stack frame of all other commands.
    #[inline(never)]
    fn compare_and_write(&self, command: &Command<'_>) -> Result<(), CommandError> {
        let at = self.at(command.offset);
        let (mut given, mut there) = ([0u8; 2 * BLOCK], [0u8; BLOCK]);
        // The given blocks and the device's block are copied before the comparison, since others may write to
        // both.
        // SAFETY: `check` found two blocks in the segments, and one block of the device at the offset.
        unsafe {
            gather(command.segments, 0, given.as_mut_ptr(), 2 * BLOCK);
            ptr::copy_nonoverlapping(at.cast_const(), there.as_mut_ptr(), BLOCK);
        }
        if given[..BLOCK] != there {
            return Err(CommandError::Mismatch);
        }
        // SAFETY: the device has a whole block at the offset, as `check` found; `given` is a local array.
        unsafe { ptr::copy_nonoverlapping(given[BLOCK..].as_ptr(), at, BLOCK) };
        Ok(())
    }
}

impl Device for Memory {
    #[inline]
    fn geometry(&self) -> Geometry {
        Geometry {
            bytes: self.options.bytes,
            block: BLOCK as u32,
            optimal: bywash_link::PAGE as u32,
            transfer_max: TRANSFER_MAX,
            range_max: TRANSFER_MAX,
            segments_max: SEGMENTS_MAX,
            access: Access::ReadWrite,
        }
    }

    #[inline]
    fn submit<'a>(&mut self, command: Command<'a>) -> Result<(), QueueFull<'a>> {
        if self.done.len() >= self.options.depth {
            return Err(QueueFull(command));
        }
        let outcome = self.perform(&command);
        let due = self.pipe.as_mut().map_or(0, |pipe| pipe.due_after(outcome.unwrap_or(0)));
        self.done.push_back((due, command.done(outcome.map(|_| ()))));
        Ok(())
    }

    /// Carries out a command at once, unless a speed is simulated.
    fn carry_out(&mut self, command: &Command<'_>) -> Option<Result<(), CommandError>> {
        match self.pipe {
            None => Some(self.perform(command).map(|_| ())),
            Some(_) => None,
        }
    }

    #[inline]
    fn reap(&mut self, done: &mut dyn FnMut(Completion)) -> usize {
        if self.done.is_empty() {
            return 0;
        }
        let now = self.pipe.as_ref().map_or(0, Pipe::now);
        let mut count = 0;
        while self.done.front().is_some_and(|(due, _)| *due <= now)
            && let Some((_, next)) = self.done.pop_front()
        {
            done(next);
            count += 1;
        }
        count
    }

    fn arm(&mut self) -> bool {
        !self.done.is_empty()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn depth(&self) -> usize {
        self.options.depth
    }

    #[inline]
    fn in_flight(&self) -> usize {
        self.done.len()
    }

    fn chunks(&self) -> Option<&Chunks> {
        self.chunks.as_ref().filter(|_| self.can_be_mapped())
    }

    fn chunks_mut(&mut self) -> Option<&mut Chunks> {
        let can_be_mapped = self.can_be_mapped();
        self.chunks.as_mut().filter(|_| can_be_mapped)
    }

    /// Makes queues that access the memory directly, unless a speed is simulated, which is that of all queues together.
    fn more_queues(&mut self, count: usize) -> Result<Vec<Box<dyn Device>>, Error> {
        let Some(chunks) = self.chunks.as_mut().filter(|_| self.pipe.is_none()) else {
            return Ok(Vec::new());
        };
        let claims = self.claims.get_or_insert_with(|| Arc::new(Claims::new())).clone();
        chunks.share(claims.clone());
        let queue = || Memory {
            base: self.base,
            mapping: self.mapping.clone(),
            chunks: None,
            claims: Some(claims.clone()),
            options: self.options.clone(),
            pipe: None,
            done: VecDeque::with_capacity(self.options.depth),
        };
        Ok((0..count).map(|_| Box::new(queue()) as Box<dyn Device>).collect())
    }

    fn description(&self) -> String {
        let kind = match self.pipe {
            None => "as fast as it is".to_owned(),
            Some(Pipe { latency_ns, bandwidth: None, .. }) => format!("{latency_ns} ns a command"),
            Some(Pipe { latency_ns, bandwidth: Some(bandwidth), .. }) => {
                format!("{latency_ns} ns a command behind a pipe of {bandwidth} bytes a second")
            }
        };
        let bytes = self.options.bytes;
        let Some(chunks) = &self.chunks else { return format!("another queue of memory of {bytes} bytes") };
        let (huge, count, chunk) = (chunks.huge_bytes(), chunks.count(), chunks.chunk_bytes());
        let chunks = if count == 1 { "1 chunk".into() } else { format!("{count} chunks of {chunk} bytes") };
        format!("memory of {bytes} bytes in {chunks}, {huge} of them on pages of 2 MiB, {kind}")
    }
}

/// Simulated medium: a pipe of limited bandwidth, followed by a latency.
#[derive(Debug)]
struct Pipe {
    made: Instant,
    latency_ns: u64,
    bandwidth: Option<u64>,
    /// Time at which the pipe has transferred everything submitted so far, in nanoseconds since `made`.
    free_ns: u64,
}

impl Pipe {
    fn new(latency_ns: u64, bandwidth: Option<u64>) -> Pipe {
        Pipe { made: Instant::now(), latency_ns, bandwidth, free_ns: 0 }
    }

    fn now(&self) -> u64 {
        // 64 bits of nanoseconds last 584 years.
        self.made.elapsed().as_nanos() as u64
    }

    /// Returns the time at which a command of `bytes` bytes completes if it is submitted now, in nanoseconds
    /// since `made`.
    fn due_after(&mut self, bytes: u64) -> u64 {
        self.due(self.now(), bytes)
    }

    fn due(&mut self, now: u64, bytes: u64) -> u64 {
        // The quotient fits 64 bits: a command has at most 16 MiB, and the bandwidth is at least one byte per
        // second.
        let in_pipe =
            self.bandwidth.map_or(0, |rate| (u128::from(bytes) * 1_000_000_000).div_ceil(rate.max(1).into()));
        self.free_ns = self.free_ns.max(now).saturating_add(in_pipe as u64);
        self.free_ns.saturating_add(self.latency_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::Segment;
    use bywash_link::MemoryFile;

    #[test]
    fn commands_pass_the_pipe_one_behind_the_other() {
        let mut pipe = Pipe::new(1000, Some(1_000_000_000));
        assert_eq!(pipe.due(0, 4096), 4096 + 1000);
        assert_eq!(pipe.due(96, 4096), 8192 + 1000);
        // The pipe has been idle for a while.
        assert_eq!(pipe.due(20_000, 512), 20_512 + 1000);
        assert_eq!(pipe.due(20_000, 0), 20_512 + 1000);
    }

    #[test]
    fn without_a_bandwidth_nobody_waits_for_another() {
        let mut pipe = Pipe::new(300, None);
        assert_eq!((pipe.due(7, 1 << 20), pipe.due(7, 0)), (307, 307));
    }

    #[test]
    fn what_takes_no_longer_than_a_copy_is_carried_out_at_once() {
        let mut block = [7u8; BLOCK];
        // SAFETY: the block outlives all commands, and is read only when none is in flight.
        let segments = [unsafe { Segment::new(block.as_mut_ptr(), BLOCK) }];
        let mut memory = Memory::new(MemoryOptions::new(4096)).unwrap();
        assert_eq!(memory.carry_out(&Command::write(0, 512, &segments)), Some(Ok(())));
        assert_eq!(memory.carry_out(&Command::read(0, 1024, &segments)), Some(Ok(())));
        assert_eq!((block, memory.in_flight()), ([0; BLOCK], 0));
        assert_eq!(memory.carry_out(&Command::read(0, 512, &segments)), Some(Ok(())));
        assert_eq!(block, [7; BLOCK]);
        assert_eq!(memory.carry_out(&Command::read(0, 4096, &segments)), Some(Err(CommandError::OutOfRange)));
        let slow = MemoryOptions { latency_ns: 1, ..MemoryOptions::new(4096) };
        assert_eq!(Memory::new(slow).unwrap().carry_out(&Command::read(0, 0, &segments)), None);
    }

    #[test]
    fn its_memory_is_on_huge_pages_where_there_are_some() {
        // Finds out whether the kernel provides huge pages for memory that was written.
        let file = MemoryFile::create("test", 2 << 20, HugePages::No).unwrap();
        let mapping = file.map(true).unwrap();
        // SAFETY: the mapping has 2 MiB, and nobody else has it.
        unsafe { mapping.base().write_bytes(1, 2 << 20) };
        let possible = mapping.collapse() > 0;
        let memory = Memory::new(MemoryOptions::new(4 << 20)).unwrap();
        assert_eq!(memory.chunks.as_ref().unwrap().huge_bytes() > 0, possible, "{}", memory.description());
    }

    #[test]
    fn what_the_machine_does_not_have_is_refused_at_once() {
        for (bytes, why) in [(0, "at least one"), (513, "multiple of 512"), (1 << 60, "give less")] {
            let error = Memory::new(MemoryOptions::new(bytes)).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
