//! Engines over a file: pread(2) and pwrite(2), and io_uring.
//!
//! [`Calls`] also drives everything else that has calls that wait. At a greater depth its requests are carried out one
//! after the other as they are submitted, as a program would do that has many of them and these two calls.
//!
//! [`Uring`] uses io_uring as a program that wants the most of it: file and buffers registered, one thread that declares
//! itself the only one, completions only when they are reaped, and one system call for all that is submitted and the first
//! completion. It uses neither SQPOLL, which would take a second core, nor IOPOLL, which needs a driver that polls.

use super::workload::{Direction, Engine, Request, Tag, Workload};
use crate::error::Error;
use io_uring::{IoUring, opcode, types};
use rustix::fs::OFlags;
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use vm_memory::{Bytes, MmapRegion, VolatileMemory};

/// Alignment of buffers: O_DIRECT needs no more anywhere.
pub const PAGE: usize = 4096;

/// Opens a file to be read and written, past the page cache if `is_direct`.
///
/// # Errors
/// [`Error::Io`] with the path.
pub fn open(path: &Path, is_direct: bool) -> Result<File, Error> {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    if is_direct {
        options.custom_flags(OFlags::DIRECT.bits() as i32);
    }
    options.open(path).map_err(|error| Error::io("open", path, error))
}

/// Returns the distance between two buffers, in bytes.
pub fn stride(block: usize) -> usize {
    block.next_multiple_of(PAGE)
}

/// Checks that a request has moved a whole block.
fn check(moved: usize, block: usize) -> Result<(), Error> {
    match moved == block {
        true => Ok(()),
        false => Err(Error::failed("a request", format!("of {block} bytes moved {moved}"))),
    }
}

/// Medium with two calls that wait and return the number of bytes that they have moved.
pub trait Called {
    /// # Errors
    /// If nothing was read.
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> Result<usize, Error>;

    /// # Errors
    /// If nothing was written.
    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<usize, Error>;
}

impl Called for File {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> Result<usize, Error> {
        FileExt::read_at(self, bytes, offset).map_err(|error| Error::failed("a request", error.to_string()))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<usize, Error> {
        FileExt::write_at(self, bytes, offset).map_err(|error| Error::failed("a request", error.to_string()))
    }
}

/// Engine of calls that wait.
pub struct Calls<M> {
    medium: M,
    block: usize,
    memory: Vec<u8>,
    /// Offset of the first buffer in the memory.
    first: usize,
    done: Vec<Tag>,
}

impl<M> Calls<M> {
    /// Makes an engine for requests of `workload` to `medium`.
    pub fn new(medium: M, workload: &Workload) -> Calls<M> {
        let memory = vec![0u8; stride(workload.block) * workload.depth + PAGE];
        let first = memory.as_ptr().align_offset(PAGE);
        Calls { medium, block: workload.block, memory, first, done: Vec::with_capacity(workload.depth) }
    }

    fn range(&self, tag: Tag) -> std::ops::Range<usize> {
        let begin = self.first + usize::from(tag) * stride(self.block);
        begin..begin + self.block
    }
}

impl<M: Called> Engine for Calls<M> {
    fn submit(&mut self, request: Request) -> Result<(), Error> {
        let range = self.range(request.tag);
        let buffer = &mut self.memory[range];
        let moved = match request.direction {
            Direction::Read => self.medium.read_at(buffer, request.offset),
            Direction::Write => self.medium.write_at(buffer, request.offset),
        };
        check(moved?, self.block)?;
        self.done.push(request.tag);
        Ok(())
    }

    fn reap(&mut self, _: usize, done: &mut Vec<Tag>) -> Result<(), Error> {
        done.append(&mut self.done);
        Ok(())
    }

    fn fill(&mut self, tag: Tag, bytes: &[u8]) {
        let range = self.range(tag);
        self.memory[range].copy_from_slice(bytes);
    }

    fn copy_out(&self, tag: Tag, bytes: &mut [u8]) {
        bytes.copy_from_slice(&self.memory[self.range(tag)]);
    }
}

/// Buffers of all tags in memory that somebody else accesses too: the kernel, a server, or another thread.
pub struct Buffers {
    memory: MmapRegion,
    /// Offset of the first buffer in the memory.
    first: usize,
    stride: usize,
}

impl Buffers {
    /// The buffers of `workload` in `memory`, from the offset `first` on.
    pub fn new(memory: MmapRegion, first: usize, workload: &Workload) -> Buffers {
        Buffers { memory, first, stride: stride(workload.block) }
    }

    /// The buffers of `workload` in memory of their own.
    ///
    /// # Errors
    /// [`Error::Failed`] if there is no memory.
    pub fn alone(workload: &Workload) -> Result<Buffers, Error> {
        let memory = populated(stride(workload.block) * workload.depth)?;
        Ok(Buffers::new(memory, 0, workload))
    }

    pub fn memory(&self) -> &MmapRegion {
        &self.memory
    }

    /// Offset of a tag's buffer in the memory.
    pub fn offset(&self, tag: Tag) -> usize {
        self.first + usize::from(tag) * self.stride
    }

    /// Address of a tag's buffer.
    pub fn address(&self, tag: Tag) -> *mut u8 {
        self.memory.as_ptr().wrapping_add(self.offset(tag))
    }

    /// As [`Engine::fill`].
    pub fn fill(&self, tag: Tag, bytes: &[u8]) {
        let written = self.memory.as_volatile_slice().write(bytes, self.offset(tag));
        assert_eq!(written.ok(), Some(bytes.len()), "the buffer of tag {tag} holds a block");
    }

    /// As [`Engine::copy_out`].
    pub fn copy_out(&self, tag: Tag, bytes: &mut [u8]) {
        let read = self.memory.as_volatile_slice().read(bytes, self.offset(tag));
        assert_eq!(read.ok(), Some(bytes.len()), "the buffer of tag {tag} holds a block");
    }
}

/// Makes memory on pages of its own, and allocates them.
///
/// # Errors
/// [`Error::Failed`] if there is no memory.
pub fn populated(bytes: usize) -> Result<MmapRegion, Error> {
    let region =
        MmapRegion::new(bytes).map_err(|error| Error::failed("memory for requests", error.to_string()))?;
    region.as_volatile_slice().copy_from(&vec![0x5au8; bytes]);
    Ok(region)
}

const REGISTERED_FILE: types::Fixed = types::Fixed(0);
/// Number of the registered memory, which holds all buffers.
const REGISTERED_MEMORY: u16 = 0;

/// Engine of io_uring.
pub struct Uring {
    ring: IoUring,
    buffers: Buffers,
    block: usize,
    _file: File,
}

impl Uring {
    /// Opens the file at `path`, past the page cache if `is_direct`, for requests of `workload`.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if there is no io_uring; [`Error::Io`] with the path.
    pub fn open(path: &Path, is_direct: bool, workload: &Workload) -> Result<Uring, Error> {
        let file = open(path, is_direct)?;
        let entries = (workload.depth as u32).next_power_of_two();
        // Kernels before 6.1 do not know the two flags.
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .build(entries)
            .or_else(|_| IoUring::new(entries))
            .map_err(|error| Error::Unavailable(format!("there is no io_uring: {error}")))?;
        let buffers = Buffers::alone(workload)?;
        register(&ring, &file, buffers.memory())
            .map_err(|error| Error::Unavailable(format!("io_uring registers no memory: {error}")))?;
        Ok(Uring { ring, buffers, block: workload.block, _file: file })
    }
}

#[expect(unsafe_code, reason = "the kernel keeps what is registered")]
fn register(ring: &IoUring, file: &File, memory: &MmapRegion) -> std::io::Result<()> {
    ring.submitter().register_files(&[file.as_raw_fd()])?;
    let pages = [libc::iovec { iov_base: memory.as_ptr().cast(), iov_len: memory.size() }];
    // SAFETY: the address and length are those of the mapping, whose pages the kernel pins here for the ring.
    unsafe { ring.submitter().register_buffers(&pages) }
}

impl Engine for Uring {
    #[expect(unsafe_code, reason = "the entry names registered memory")]
    fn submit(&mut self, request: Request) -> Result<(), Error> {
        let (address, bytes) = (self.buffers.address(request.tag), self.block as u32);
        let (file, memory) = (REGISTERED_FILE, REGISTERED_MEMORY);
        let entry = match request.direction {
            Direction::Read => {
                opcode::ReadFixed::new(file, address, bytes, memory).offset(request.offset).build()
            }
            Direction::Write => {
                opcode::WriteFixed::new(file, address, bytes, memory).offset(request.offset).build()
            }
        };
        // SAFETY: the buffer lies in the registered memory, which outlives the ring's pins, and no reference to it exists.
        unsafe { self.ring.submission().push(&entry.user_data(u64::from(request.tag))) }
            .map_err(|_| Error::failed("io_uring", "has no room for a request at this depth".into()))
    }

    fn reap(&mut self, least: usize, done: &mut Vec<Tag>) -> Result<(), Error> {
        self.ring.submit_and_wait(least).map_err(|error| Error::failed("io_uring", error.to_string()))?;
        for completion in self.ring.completion() {
            let moved = usize::try_from(completion.result()).map_err(|_| {
                let error = std::io::Error::from_raw_os_error(-completion.result());
                Error::failed("a request", error.to_string())
            })?;
            check(moved, self.block)?;
            done.push(completion.user_data() as Tag);
        }
        Ok(())
    }

    fn fill(&mut self, tag: Tag, bytes: &[u8]) {
        self.buffers.fill(tag, bytes);
    }

    fn copy_out(&self, tag: Tag, bytes: &mut [u8]) {
        self.buffers.copy_out(tag, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::super::workload::tests::{holds_what_was_written, workload};
    use super::super::workload::{Until, drive};
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        let file = tempfile::NamedTempFile::new().unwrap();
        // All blocks are allocated, so that no write has to wait for a journal.
        std::fs::write(file.path(), vec![0; 1 << 20]).unwrap();
        file.as_file().sync_all().unwrap();
        for (depth, block, is_direct) in [(1, 4096, false), (128, 512, false), (32, 4096, true)] {
            let workload = Workload { block, ..workload(depth, Until::Requests(1)) };
            match Uring::open(file.path(), is_direct, &workload) {
                Ok(mut ring) => holds_what_was_written(&mut ring, block, 1 << 20, depth),
                // A file system may not know O_DIRECT, and a machine no io_uring.
                Err(error) => assert!(is_direct || error.is_absence(), "{error}"),
            }
            let Ok(file) = open(file.path(), is_direct) else { continue };
            holds_what_was_written(&mut Calls::new(file, &workload), block, 1 << 20, depth);
        }
    }

    #[test]
    fn a_file_that_is_too_short_is_an_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let workload = Workload { direction: Direction::Read, ..workload(1, Until::Requests(1)) };
        let mut calls = Calls::new(open(file.path(), false).unwrap(), &workload);
        assert_eq!(drive(&mut calls, &workload).unwrap_err().to_string(), "a request of 4096 bytes moved 0");
    }
}
