//! io_uring as whoever wants the most of it uses it: file and buffers registered, one thread that says so, completions
//! only when they are asked for, and one system call for all that is submitted and the first that is done.
//!
//! Without SQPOLL, which would be a second core, and without IOPOLL, which asks for a driver that polls.

use super::calls::{check, open, stride};
use super::engine::{Engine, Request, Tag};
use super::workload::{Direction, Workload};
use crate::error::Error;
use io_uring::{IoUring, opcode, types};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use vm_memory::{Bytes, MmapRegion, VolatileMemory};

const FILE: types::Fixed = types::Fixed(0);
/// All buffers are one piece of memory, registered once.
const BUFFER: u16 = 0;

/// A file by io_uring.
pub struct Uring {
    ring: IoUring,
    memory: MmapRegion,
    block: usize,
    _file: File,
}

impl Uring {
    /// Over the file at `path`; `is_direct`: past the page cache.
    ///
    /// # Errors
    /// [`Error::Unavailable`] where there is no io_uring; the kernel's.
    pub fn open(path: &Path, is_direct: bool, workload: &Workload) -> Result<Uring, Error> {
        let file = open(path, is_direct)?;
        let ring = make(workload.depth as u32)?;
        let memory = memory(stride(workload.block) * workload.depth)?;
        register(&ring, &file, &memory)
            .map_err(|error| Error::Unavailable(format!("io_uring registers no memory: {error}")))?;
        Ok(Uring { ring, memory, block: workload.block, _file: file })
    }

    fn at(&self, tag: Tag) -> usize {
        usize::from(tag) * stride(self.block)
    }
}

/// A ring whose thread is the only one to use it; without that on kernels before 6.1.
fn make(depth: u32) -> Result<IoUring, Error> {
    let entries = depth.next_power_of_two();
    IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .build(entries)
        .or_else(|_| IoUring::new(entries))
        .map_err(|error| Error::Unavailable(format!("there is no io_uring: {error}")))
}

/// Memory on pages of its own, all of them there.
pub(super) fn memory(bytes: usize) -> Result<MmapRegion, Error> {
    let region =
        MmapRegion::new(bytes).map_err(|error| Error::failed("memory for requests", error.to_string()))?;
    region.as_volatile_slice().copy_from(&vec![0x5au8; bytes]);
    Ok(region)
}

#[expect(unsafe_code, reason = "the kernel keeps what is registered")]
fn register(ring: &IoUring, file: &File, memory: &MmapRegion) -> std::io::Result<()> {
    ring.submitter().register_files(&[file.as_raw_fd()])?;
    let pages = [libc::iovec { iov_base: memory.as_ptr().cast(), iov_len: memory.size() }];
    // SAFETY: the mapping is as long as it says, and the kernel holds its pages from here on, whatever becomes of it.
    unsafe { ring.submitter().register_buffers(&pages) }
}

impl Engine for Uring {
    #[expect(unsafe_code, reason = "the entry names registered memory")]
    fn submit(&mut self, request: Request) -> Result<(), Error> {
        let at = self.memory.as_ptr().wrapping_add(self.at(request.tag));
        let bytes = self.block as u32;
        let entry = match request.direction {
            Direction::Read => opcode::ReadFixed::new(FILE, at, bytes, BUFFER).offset(request.offset).build(),
            Direction::Write => {
                opcode::WriteFixed::new(FILE, at, bytes, BUFFER).offset(request.offset).build()
            }
        };
        // SAFETY: the buffer is of the registered memory, whose pages the kernel holds, and no reference to it is made.
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
        let written = self.memory.as_volatile_slice().write(bytes, self.at(tag));
        assert_eq!(written.ok(), Some(bytes.len()), "a buffer of tag {tag}");
    }

    fn copy_out(&self, tag: Tag, bytes: &mut [u8]) {
        let read = self.memory.as_volatile_slice().read(bytes, self.at(tag));
        assert_eq!(read.ok(), Some(bytes.len()), "a buffer of tag {tag}");
    }
}

#[cfg(test)]
mod tests {
    use super::super::engine::tests::{holds_what_was_written, workload};
    use super::super::workload::Until;
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        let file = tempfile::NamedTempFile::new().unwrap();
        // All of it is there, so that no write has to wait for a journal.
        std::fs::write(file.path(), vec![0; 1 << 20]).unwrap();
        file.as_file().sync_all().unwrap();
        for (depth, block, is_direct) in [(1, 4096, false), (128, 512, false), (32, 4096, true)] {
            let workload = Workload { block, ..workload(depth, Until::Requests(1)) };
            match Uring::open(file.path(), is_direct, &workload) {
                Ok(mut ring) => holds_what_was_written(&mut ring, block, 1 << 20, depth),
                // A file system may know no O_DIRECT, and a machine no io_uring.
                Err(error) => assert!(is_direct || error.is_absence(), "{error}"),
            }
        }
    }
}
