//! Engines over a file: pread(2) and pwrite(2), and io_uring.
//!
//! [`Calls`] also drives everything else that has calls that wait. At a greater depth its requests are carried out one
//! after the other as they are submitted, as a program would do that has many of them and these two calls.
//!
//! [`Uring`] uses io_uring as a program that wants the most of it: file and buffers registered, one thread that declares
//! itself the only one, completions only when they are reaped, and one system call for all that is submitted and the first
//! completion. It uses neither SQPOLL, which would take a second core, nor IOPOLL, which needs a driver that polls.

use super::workload::{Direction, Engine, Request, Tag, Workload};
use crate::error::{Attempt, Error};
use io_uring::{IoUring, opcode, types};
use rustix::fs::OFlags;
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use vm_memory::{MmapRegion, VolatileMemory, VolatileSlice};

/// Alignment of buffers: O_DIRECT needs no more anywhere.
pub const PAGE: usize = 4096;

/// Opens a file to be read and written, past the page cache if `is_direct`.
pub fn open(path: &Path, is_direct: bool) -> Result<File, Error> {
    let flags = if is_direct { OFlags::DIRECT } else { OFlags::empty() };
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(flags.bits() as i32).open(path).doing("open", path)
}

/// Engine of pread(2) and pwrite(2) for a file that is open.
pub fn calls(file: File, workload: &Workload) -> impl Engine + use<> {
    Calls::new(workload, move |direction, bytes, offset| {
        let moved = match direction {
            Direction::Read => file.read_at(bytes, offset),
            Direction::Write => file.write_at(bytes, offset),
        };
        moved.map_err(|error| Error::failed("a request", error.to_string()))
    })
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

/// Engine of calls that wait: `call` moves bytes at an offset, and returns their number.
pub struct Calls<C> {
    call: C,
    block: usize,
    memory: Vec<u8>,
    /// Offset of the first buffer in the memory.
    first: usize,
    done: Vec<Tag>,
}

impl<C: FnMut(Direction, &mut [u8], u64) -> Result<usize, Error>> Calls<C> {
    pub fn new(workload: &Workload, call: C) -> Calls<C> {
        let memory = vec![0u8; stride(workload.block) * workload.depth + PAGE];
        let first = memory.as_ptr().align_offset(PAGE);
        Calls { call, block: workload.block, memory, first, done: Vec::with_capacity(workload.depth) }
    }

    fn range(&self, tag: Tag) -> std::ops::Range<usize> {
        let begin = self.first + usize::from(tag) * stride(self.block);
        begin..begin + self.block
    }
}

impl<C: FnMut(Direction, &mut [u8], u64) -> Result<usize, Error>> Engine for Calls<C> {
    fn submit(&mut self, request: Request) -> Result<(), Error> {
        let range = self.range(request.tag);
        let moved = (self.call)(request.direction, &mut self.memory[range], request.offset)?;
        check(moved, self.block)?;
        self.done.push(request.tag);
        Ok(())
    }

    fn reap(&mut self, _: usize, done: &mut Vec<Tag>) -> Result<(), Error> {
        done.append(&mut self.done);
        Ok(())
    }

    fn buffer(&mut self, tag: Tag) -> VolatileSlice<'_> {
        let range = self.range(tag);
        VolatileSlice::from(&mut self.memory[range])
    }
}

/// Buffers of all tags in memory that somebody else accesses too: the kernel, a server, or another thread.
pub struct Buffers {
    pub memory: MmapRegion,
    /// Offset of the first buffer in the memory.
    first: usize,
    block: usize,
}

impl Buffers {
    /// The buffers of `workload` in `memory`, from the offset `first` on.
    pub fn new(memory: MmapRegion, first: usize, workload: &Workload) -> Buffers {
        Buffers { memory, first, block: workload.block }
    }

    /// The buffers of `workload` in memory of their own.
    pub fn alone(workload: &Workload) -> Result<Buffers, Error> {
        let memory = populated(stride(workload.block) * workload.depth)?;
        Ok(Buffers::new(memory, 0, workload))
    }

    /// Offset of a tag's buffer in the memory.
    pub fn offset(&self, tag: Tag) -> usize {
        self.first + usize::from(tag) * stride(self.block)
    }

    /// Address of a tag's buffer.
    pub fn address(&self, tag: Tag) -> *mut u8 {
        self.memory.as_ptr().wrapping_add(self.offset(tag))
    }

    /// The bytes of a tag's buffer.
    pub fn buffer(&self, tag: Tag) -> VolatileSlice<'_> {
        let buffer = self.memory.get_slice(self.offset(tag), self.block);
        buffer.expect("the memory has a buffer for each tag")
    }
}

/// Makes memory on pages of its own, and allocates them.
pub fn populated(bytes: usize) -> Result<MmapRegion, Error> {
    let region =
        MmapRegion::new(bytes).map_err(|error| Error::failed("memory for requests", error.to_string()))?;
    region.as_volatile_slice().copy_from(&vec![0x5au8; bytes]);
    Ok(region)
}

/// Engine of io_uring.
pub struct Uring {
    ring: IoUring,
    buffers: Buffers,
    _file: File,
}

impl Uring {
    /// Opens the file at `path`, past the page cache if `is_direct`, for requests of `workload`.
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
        register(&ring, &file, &buffers.memory)
            .map_err(|error| Error::Unavailable(format!("io_uring registers no memory: {error}")))?;
        Ok(Uring { ring, buffers, _file: file })
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
    fn submit(&mut self, Request { tag, direction, offset }: Request) -> Result<(), Error> {
        let (address, bytes) = (self.buffers.address(tag), self.buffers.block as u32);
        // Numbers of what is registered.
        let (file, memory) = (types::Fixed(0), 0);
        let entry = match direction {
            Direction::Read => opcode::ReadFixed::new(file, address, bytes, memory).offset(offset).build(),
            Direction::Write => opcode::WriteFixed::new(file, address, bytes, memory).offset(offset).build(),
        };
        // SAFETY: the buffer lies in the registered memory, which outlives the ring's pins, and no reference to it exists.
        unsafe { self.ring.submission().push(&entry.user_data(u64::from(tag))) }
            .map_err(|_| Error::failed("io_uring", "has no room for a request at this depth".into()))
    }

    fn reap(&mut self, least: usize, done: &mut Vec<Tag>) -> Result<(), Error> {
        self.ring.submit_and_wait(least).map_err(|error| Error::failed("io_uring", error.to_string()))?;
        for completion in self.ring.completion() {
            let moved = usize::try_from(completion.result()).map_err(|_| {
                let error = std::io::Error::from_raw_os_error(-completion.result());
                Error::failed("a request", error.to_string())
            })?;
            check(moved, self.buffers.block)?;
            done.push(completion.user_data() as Tag);
        }
        Ok(())
    }

    fn buffer(&mut self, tag: Tag) -> VolatileSlice<'_> {
        self.buffers.buffer(tag)
    }
}
