//! The mapping of a recording, claiming chunks and entries, adding calls.
//!
//! Invariant: only words inside the mapping are touched, and adding a call makes no system call, takes no
//! lock and allocates nothing. The recorder calls it in every process of the run; the command creates.

use super::layout::{
    CHUNK_BYTES, CHUNK_CALLS, CHUNKS_AT, CHUNKS_MAX, CallSlot, ChunkHeader, FILES_MAX, FileEntry,
    HEADER_BYTES, Header, MAGIC, NAME_BYTES, VERSION,
};
use crate::memory::Error;
use alloc::ffi::CString;
use alloc::format;
use core::ffi::CStr;
use core::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

/// Returns the processor's time-stamp counter.
#[inline(always)]
pub fn ticks() -> u64 {
    // SAFETY: the instruction exists on every x86-64 processor and has no operands.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// A recording's memory, mapped in this process for as long as it runs.
#[derive(Clone, Copy)]
pub struct Recording {
    descriptor: i32,
    base: usize,
    chunks: u32,
}

/// Thread that claims a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Number of the process in the recording, from 1.
    pub process: u32,
    /// Process id.
    pub pid: u32,
    /// Thread id.
    pub thread: u32,
    /// Process id of the parent.
    pub parent: u32,
}

/// One call, as a thread adds it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Start, in ticks.
    pub start: u64,
    /// End, in ticks.
    pub end: u64,
    /// Offset in the file, in bytes; `u64::MAX` at the descriptor's position.
    pub offset: u64,
    /// Bytes moved, or what the kind says.
    pub length: u32,
    /// Index of the file's entry; 0 if there is none.
    pub file: u32,
    /// Time before the call in which the thread did not compute for the program, in units of 100 ns.
    pub away: u32,
    /// Number of the [`super::Function`], and [`super::layout::FAILED`].
    pub function: u32,
}

/// Facts about an open file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Described<'a> {
    /// Number of the process in the recording.
    pub process: u32,
    /// Type and permissions (`st_mode`).
    pub mode: u32,
    /// Flags of the opening (open(2)).
    pub flags: u32,
    /// Device that has the file.
    pub device: u64,
    /// Number of the inode.
    pub inode: u64,
    /// Size, in bytes.
    pub size: u64,
    /// Number of the descriptor.
    pub descriptor: i32,
    /// Path.
    pub name: &'a [u8],
}

/// A chunk of a recording, to which one thread adds calls.
#[derive(Clone, Copy)]
pub struct Chunk {
    header: &'static ChunkHeader,
}

impl Recording {
    /// Makes a recording with room for `chunks` chunks, in anonymous memory of which only what is written is
    /// taken. It is gone when the last process that has it mapped ends.
    ///
    /// # Errors
    /// The error of memfd_create(2), ftruncate(2) or mmap(2), if memory or descriptors are short.
    pub fn create(chunks: u32) -> Result<Recording, Error> {
        let chunks = chunks.clamp(1, CHUNKS_MAX);
        let bytes = CHUNKS_AT + chunks as usize * CHUNK_BYTES;
        // SAFETY: the name is a C string, and the descriptor that comes back is ours alone.
        let descriptor = unsafe {
            let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
            let descriptor = libc::memfd_create(c"bywash-recording".as_ptr(), flags);
            let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
            if descriptor < 0
                || libc::ftruncate(descriptor, bytes as libc::off_t) != 0
                || libc::fcntl(descriptor, libc::F_ADD_SEALS, seals) != 0
            {
                return Err(Error::last());
            }
            descriptor
        };
        let recording = Recording { descriptor, base: map(descriptor, bytes)?, chunks };
        let header = recording.header();
        header.chunks.store(chunks, Relaxed);
        header.version.store(VERSION, Relaxed);
        // Entry 0 stands for no file.
        header.files_claimed.store(1, Relaxed);
        // SYNC: recording-magic (release; `open` acquires).
        header.magic.store(MAGIC, Release);
        Ok(recording)
    }

    /// Opens and maps the recording that `path` names. Allocates nothing, and leaves no descriptor open.
    ///
    /// # Errors
    /// The kernel's error, or EPROTO if the file is no recording of this version.
    pub fn open(path: &CStr) -> Result<Recording, Error> {
        // SAFETY: `path` is a C string; the descriptor is closed below; an all-zero stat is a valid value.
        let (base, bytes) = unsafe {
            let flags = libc::O_RDWR | libc::O_CLOEXEC;
            let fd = libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0) as i32;
            if fd < 0 {
                return Err(Error::last());
            }
            let mut stat: libc::stat = core::mem::zeroed();
            let known = libc::fstat(fd, &raw mut stat) == 0;
            let bytes = usize::try_from(stat.st_size).unwrap_or(0);
            let base = if known && bytes >= CHUNKS_AT { map(fd, bytes) } else { Err(Error(libc::EPROTO)) };
            libc::syscall(libc::SYS_close, fd);
            (base?, bytes)
        };
        let chunks = ((bytes - CHUNKS_AT) / CHUNK_BYTES) as u32;
        let recording = Recording { descriptor: -1, base, chunks };
        let header = recording.header();
        // SYNC: recording-magic (acquire).
        if header.magic.load(Acquire) != MAGIC || header.version.load(Relaxed) != VERSION {
            return Err(Error(libc::EPROTO));
        }
        Ok(recording)
    }

    /// Returns the path under which other processes of this user open the recording while this one lives.
    pub fn path(&self) -> CString {
        // SAFETY: no arguments, no errors.
        let path = format!("/proc/{}/fd/{}", unsafe { libc::getpid() }, self.descriptor);
        CString::new(path).unwrap_or_default()
    }

    /// Gives the memory back to the system. The recording is empty from here on, and cannot be opened.
    pub fn discard(self) {
        let bytes = CHUNKS_AT + self.chunks as usize * CHUNK_BYTES;
        // SAFETY: the descriptor is the recording's own. The mapping stays, and reads as zeroes.
        unsafe {
            let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            libc::fallocate(self.descriptor, mode, 0, bytes as libc::off_t);
            libc::close(self.descriptor);
        }
    }

    /// Stores the duration of a tick, in nanoseconds times 2^32, and the number of ticks from which on a gap
    /// or a call is long.
    pub fn set_clock(&self, tick: u64, long: u64) {
        self.header().tick.store(tick, Relaxed);
        self.header().long.store(long, Relaxed);
    }

    /// Returns what [`Recording::set_clock`] stored.
    pub fn clock(&self) -> (u64, u64) {
        (self.header().tick.load(Relaxed), self.header().long.load(Relaxed))
    }

    /// Returns the number of a process that has not recorded yet, from 1.
    pub fn next_process(&self) -> u32 {
        self.header().processes.fetch_add(1, Relaxed).wrapping_add(1).max(1)
    }

    /// Claims a chunk for a thread at the time `now`, in ticks; `None` if the recording is full.
    pub fn claim_chunk(&self, owner: Owner, now: u64) -> Option<Chunk> {
        let claimed = &self.header().chunks_claimed;
        let index = claimed.fetch_add(1, Relaxed);
        if index >= self.chunks {
            claimed.store(self.chunks, Relaxed);
            return None;
        }
        let chunk = self.chunk(index);
        for (word, value) in [
            (&chunk.header.pid, owner.pid),
            (&chunk.header.thread, owner.thread),
            (&chunk.header.parent, owner.parent),
        ] {
            word.store(value, Relaxed);
        }
        chunk.header.claimed_at.store(now, Relaxed);
        chunk.header.last_end.store(now, Relaxed);
        chunk.header.looked_at.store(now, Relaxed);
        // SYNC: chunk-owner (release; `read` acquires).
        chunk.header.process.store(owner.process, Release);
        Some(chunk)
    }

    /// Counts a call that found no chunk.
    pub fn lose(&self) {
        self.header().lost.fetch_add(1, Relaxed);
    }

    /// Counts a call that came while its thread added another.
    pub fn leave_out(&self) {
        self.header().nested.fetch_add(1, Relaxed);
    }

    /// Adds an entry for an open file; returns its index, or 0 if there is no room.
    pub fn add_file(&self, file: Described<'_>) -> u32 {
        let claimed = &self.header().files_claimed;
        let index = claimed.fetch_add(1, Relaxed);
        if index >= FILES_MAX {
            claimed.store(FILES_MAX, Relaxed);
            return 0;
        }
        let entry = self.entry(index);
        entry.mode.store(file.mode, Relaxed);
        entry.process.store(file.process, Relaxed);
        entry.flags.store(file.flags, Relaxed);
        entry.device.store(file.device, Relaxed);
        entry.inode.store(file.inode, Relaxed);
        entry.size.store(file.size, Relaxed);
        entry.descriptor.store(file.descriptor, Relaxed);
        let kept = &file.name[file.name.len().saturating_sub(NAME_BYTES)..];
        for (cell, byte) in entry.name.iter().zip(kept) {
            cell.store(*byte, Relaxed);
        }
        entry.name_len.store(kept.len() as u32, Relaxed);
        // SYNC: file-entry (release; `read` acquires).
        entry.state.store(1, Release);
        index
    }

    pub(super) fn header(&self) -> &'static Header {
        // SAFETY: the mapping begins with the header, consists of atomics, and is never unmapped.
        unsafe { &*(self.base as *const Header) }
    }

    pub(super) fn chunks(&self) -> u32 {
        self.chunks
    }

    /// Returns the entry of this index, which is below [`FILES_MAX`].
    pub(super) fn entry(&self, index: u32) -> &'static FileEntry {
        let at = HEADER_BYTES + index.min(FILES_MAX - 1) as usize * size_of::<FileEntry>();
        // SAFETY: all entries lie in the mapping, which consists of atomics and is never unmapped.
        unsafe { &*((self.base + at) as *const FileEntry) }
    }

    /// Returns the chunk of this index, which is below the number of chunks.
    pub(super) fn chunk(&self, index: u32) -> Chunk {
        let at = CHUNKS_AT + index.min(self.chunks - 1) as usize * CHUNK_BYTES;
        // SAFETY: all chunks lie in the mapping, which consists of atomics and is never unmapped.
        Chunk { header: unsafe { &*((self.base + at) as *const ChunkHeader) } }
    }
}

impl Chunk {
    /// Returns the chunk at an address that [`Chunk::address`] returned in this process or in one that it was
    /// forked from.
    ///
    /// # Safety
    /// `address` is such an address.
    #[inline(always)]
    pub unsafe fn at(address: usize) -> Chunk {
        // SAFETY: the caller promises the address of a chunk, which is never unmapped.
        Chunk { header: unsafe { &*(address as *const ChunkHeader) } }
    }

    /// Returns the address of the chunk in this process.
    pub fn address(self) -> usize {
        core::ptr::from_ref(self.header) as usize
    }

    /// Returns the head of the chunk.
    #[inline(always)]
    pub fn header(self) -> &'static ChunkHeader {
        self.header
    }

    /// Returns true if no further call fits.
    #[inline(always)]
    pub fn is_full(self) -> bool {
        self.header.used.load(Relaxed) as usize >= CHUNK_CALLS
    }

    /// Adds a call; returns false if the chunk is full.
    #[inline(always)]
    pub fn push(self, sample: Sample) -> bool {
        let used = self.header.used.load(Relaxed);
        let Some(slot) = self.slot(used) else { return false };
        slot.start.store(sample.start, Relaxed);
        slot.end.store(sample.end, Relaxed);
        slot.offset.store(sample.offset, Relaxed);
        slot.length.store(sample.length, Relaxed);
        slot.file.store(sample.file, Relaxed);
        slot.away.store(sample.away, Relaxed);
        slot.function.store(sample.function, Relaxed);
        self.header.last_end.store(sample.end, Relaxed);
        // SYNC: chunk-used (release; `read` acquires).
        self.header.used.store(used + 1, Release);
        true
    }

    /// Returns the slot of this index, if the chunk has it.
    #[inline(always)]
    pub(super) fn slot(self, index: u32) -> Option<&'static CallSlot> {
        if index as usize >= CHUNK_CALLS {
            return None;
        }
        let at = self.address() + size_of::<ChunkHeader>() + index as usize * size_of::<CallSlot>();
        // SAFETY: the slot lies in the chunk, which consists of atomics and is never unmapped.
        Some(unsafe { &*(at as *const CallSlot) })
    }

    /// Returns the number of calls, which another process may have written.
    pub(super) fn used(self) -> u32 {
        // SYNC: chunk-used (acquire).
        self.header.used.load(Acquire).min(CHUNK_CALLS as u32)
    }

    /// Returns the word of the owner's process, acquired.
    pub(super) fn process(self) -> u32 {
        let word: &AtomicU32 = &self.header.process;
        // SYNC: chunk-owner (acquire).
        word.load(Acquire)
    }
}

fn map(descriptor: i32, bytes: usize) -> Result<usize, Error> {
    // SAFETY: a new mapping at an address of the kernel's choice.
    let at = unsafe {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
        libc::mmap(core::ptr::null_mut(), bytes, protection, flags, descriptor, 0)
    };
    if at == libc::MAP_FAILED { Err(Error::last()) } else { Ok(at as usize) }
}
