//! Calls that wait, as pread(2) and pwrite(2): one request at a time, done when the call returns.
//!
//! At a greater depth nothing changes for who is called: the requests are carried out one after the other as they are
//! submitted, which is what a program does that has many of them and these two calls.

use super::engine::{Engine, Request, Tag};
use super::workload::{Direction, Workload};
use crate::error::Error;
use rustix::fs::OFlags;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// Buffers begin at pages: O_DIRECT asks for no more anywhere.
pub(super) const PAGE: usize = 4096;

/// What is read and written by calls.
pub trait Called {
    /// Reads at an offset; answers how many bytes.
    ///
    /// # Errors
    /// That it was not done.
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> Result<usize, Error>;

    /// Writes at an offset; answers how many bytes.
    ///
    /// # Errors
    /// That it was not done.
    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<usize, Error>;
}

impl Called for File {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> Result<usize, Error> {
        FileExt::read_at(self, bytes, offset).map_err(failed)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<usize, Error> {
        FileExt::write_at(self, bytes, offset).map_err(failed)
    }
}

fn failed(error: std::io::Error) -> Error {
    Error::failed("a request", error.to_string())
}

/// A medium by two calls.
pub struct Calls<M> {
    medium: M,
    block: usize,
    memory: Vec<u8>,
    /// Where the first buffer begins in it.
    first: usize,
    done: Vec<Tag>,
}

impl Calls<File> {
    /// Over the file at `path`; `is_direct`: past the page cache.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open(path: &Path, is_direct: bool, workload: &Workload) -> Result<Calls<File>, Error> {
        Ok(Calls::over(open(path, is_direct)?, workload))
    }
}

impl<M> Calls<M> {
    /// Over `medium`.
    pub fn over(medium: M, workload: &Workload) -> Calls<M> {
        let memory = vec![0u8; stride(workload.block) * workload.depth + PAGE];
        let first = memory.as_ptr().align_offset(PAGE);
        Calls { medium, block: workload.block, memory, first, done: Vec::with_capacity(workload.depth) }
    }

    fn range(&self, tag: Tag) -> std::ops::Range<usize> {
        let begin = self.first + usize::from(tag) * stride(self.block);
        begin..begin + self.block
    }
}

/// A file to be read and written.
pub(super) fn open(path: &Path, is_direct: bool) -> Result<File, Error> {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    if is_direct {
        options.custom_flags(OFlags::DIRECT.bits() as i32);
    }
    options.open(path).map_err(|error| Error::io("open", path, error))
}

/// From one buffer to the next.
pub(super) fn stride(block: usize) -> usize {
    block.next_multiple_of(PAGE)
}

/// A request that the kernel, or a server, did not carry out as a whole.
pub(super) fn check(moved: usize, block: usize) -> Result<(), Error> {
    match moved == block {
        true => Ok(()),
        false => Err(Error::failed("a request", format!("of {block} bytes moved {moved}"))),
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
        for (depth, block, is_direct) in [(1, 4096, false), (8, 512, false), (3, 4096, true)] {
            let workload = Workload { block, ..workload(depth, Until::Requests(1)) };
            // A file system may know no O_DIRECT.
            let Ok(mut calls) = Calls::open(file.path(), is_direct, &workload) else { continue };
            holds_what_was_written(&mut calls, block, 1 << 20, depth);
        }
    }

    #[test]
    fn a_file_that_is_too_short_is_an_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let workload = Workload { direction: Direction::Read, ..workload(1, Until::Requests(1)) };
        let mut calls = Calls::open(file.path(), false, &workload).unwrap();
        let error = super::super::engine::drive(&mut calls, &workload).unwrap_err();
        assert_eq!(error.to_string(), "a request of 4096 bytes moved 0");
    }
}
