//! The recording disks: a process that serves each disk as a file of a FUSE file system and records its requests.
//!
//! It is a process of its own, which shares no descriptor with those that use the disks: were the server killed together
//! with a program that waits for a disk, and had that program the connection open, nobody could ever end the wait.
//!
//! A disk here has a volatile cache. A write is durable if a flush began after the write was completed, and at no other
//! time. So that no flush is credited with a write that was still under way when the flush was issued, flushes overtake:
//! whatever flush has arrived when a write is about to be completed is recorded before the write.

use crate::fuse::layout::{Answer, Operation, ROOT, Request, VERSION};
use crate::fuse::{Connection, PAGES_MAX, WRITE_BYTES_MAX};
use crate::recording::Recorder;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Serves the images as `0`, `1`, ... in the folder `at` and records in `index` and `data`, until the file system is
/// unmounted or the process that started this one ends. Calls `ready` once the files are there.
///
/// # Errors
/// An error of the file system or of the connection.
pub fn serve(at: &Path, index: &Path, data: &Path, images: &[&Path], ready: impl FnOnce()) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if getppid().is_none_or(|parent| parent.is_init()) {
        return Err(io::Error::other("the harness has ended"));
    }
    let mut disks = Vec::new();
    for image in images {
        let file = File::options().read(true).write(true).open(image)?;
        disks.push(Disk { bytes: file.metadata()?.len(), image: file });
    }
    let mut server =
        Server { connection: Connection::mount(at)?, recorder: Recorder::create(index, data)?, disks };
    ready();
    server.run()
}

struct Disk {
    image: File,
    bytes: u64,
}

struct Server {
    connection: Connection,
    recorder: Recorder,
    disks: Vec<Disk>,
}

impl Server {
    fn run(&mut self) -> io::Result<()> {
        loop {
            if !self.receive()? {
                return Ok(());
            }
            match self.connection.take_oldest() {
                Some(request) => self.handle(&request)?,
                None => self.connection.wait()?,
            }
        }
    }

    /// Takes the requests that have arrived, and records and answers the flushes among them at once. Returns false at the
    /// end of the session.
    fn receive(&mut self) -> io::Result<bool> {
        let mut flushes = Vec::new();
        let goes_on = self.connection.receive(|request, arrived| match request.operation {
            Operation::Fsync => flushes.push(request),
            _ => arrived.push_back(request),
        })?;
        for flush in flushes {
            if let Some(disk) = self.disk(&flush) {
                self.recorder.flush(disk)?;
            }
            self.connection.answer(Answer::new(flush.unique, 0))?;
        }
        Ok(goes_on)
    }

    fn disk(&self, request: &Request) -> Option<u32> {
        let disk = request.node.checked_sub(ROOT + 1)?;
        (disk < self.disks.len() as u64).then_some(disk as u32)
    }

    fn handle(&mut self, request: &Request) -> io::Result<()> {
        if matches!(request.operation, Operation::Forget | Operation::Interrupt) {
            return Ok(());
        }
        let answer = match self.execute(request)? {
            Ok(answer) => answer,
            Err(error) => Answer::new(request.unique, error.raw_os_error()),
        };
        self.connection.answer(answer)
    }

    fn execute(&mut self, request: &Request) -> io::Result<Result<Answer, Errno>> {
        let unique = request.unique;
        let disk = self.disk(request);
        Ok(Ok(match (request.operation, disk) {
            (Operation::Init, _) => {
                let Some((VERSION_MAJOR, minor)) = request.version() else { return Ok(Err(Errno::PROTO)) };
                Answer::init(unique, minor.min(VERSION.1), WRITE_BYTES_MAX as u32, PAGES_MAX)
            }
            (Operation::Lookup, None) => {
                let number = request.name().and_then(|name| name.parse::<usize>().ok());
                let Some(found) = number.filter(|number| *number < self.disks.len()) else {
                    return Ok(Err(Errno::NOENT));
                };
                Answer::entry(unique, ROOT + 1 + found as u64, self.disks[found].bytes)
            }
            (Operation::Attributes, None) => Answer::attr(unique, ROOT, 0),
            (Operation::Attributes, Some(disk)) => {
                Answer::attr(unique, request.node, self.disks[disk as usize].bytes)
            }
            (Operation::Open, Some(_)) => Answer::open(unique),
            (Operation::Statfs, _) => Answer::statfs(unique),
            (Operation::Granted, _) => Answer::new(unique, 0),
            (Operation::Read, Some(disk)) => return self.read(request, disk),
            (Operation::Write, Some(disk)) => return self.write(request, disk),
            (Operation::Fallocate, Some(disk)) => return self.zero(request, disk),
            _ => return Ok(Err(Errno::NOSYS)),
        }))
    }

    fn read(&mut self, request: &Request, disk: u32) -> io::Result<Result<Answer, Errno>> {
        let disk = &self.disks[disk as usize];
        let Some((offset, length)) = request.range().filter(|(offset, _)| *offset <= disk.bytes) else {
            return Ok(Err(Errno::INVAL));
        };
        let mut bytes = vec![0; length.min(disk.bytes - offset) as usize];
        disk.image.read_exact_at(&mut bytes, offset)?;
        Ok(Ok(Answer::with(request.unique, &bytes)))
    }

    fn write(&mut self, request: &Request, disk: u32) -> io::Result<Result<Answer, Errno>> {
        let Some((offset, bytes)) = self.inside(request, disk).zip(request.data()) else {
            return Ok(Err(Errno::INVAL));
        };
        self.disks[disk as usize].image.write_all_at(bytes, offset)?;
        self.receive()?;
        self.recorder.write(disk, offset, bytes)?;
        Ok(Ok(Answer::written(request.unique, bytes.len() as u32)))
    }

    /// Discards or zeroes a range. Afterwards it reads as zeroes, whichever of both was asked for.
    fn zero(&mut self, request: &Request, disk: u32) -> io::Result<Result<Answer, Errno>> {
        let is_zeroing = request.mode().is_some_and(|mode| mode & (PUNCH_HOLE | ZERO_RANGE) != 0);
        let range = self.inside(request, disk).zip(request.range());
        let Some((offset, (_, length))) = range.filter(|_| is_zeroing) else {
            return Ok(Err(Errno::OPNOTSUPP));
        };
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&self.disks[disk as usize].image, flags, offset, length)?;
        self.receive()?;
        self.recorder.zero(disk, offset, length)?;
        Ok(Ok(Answer::new(request.unique, 0)))
    }

    /// Returns the offset of a range that lies on the disk.
    fn inside(&self, request: &Request, disk: u32) -> Option<u64> {
        let (offset, length) = request.range()?;
        let end = offset.checked_add(length)?;
        (length > 0 && end <= self.disks[disk as usize].bytes).then_some(offset)
    }
}

/// First number of the protocol's version.
const VERSION_MAJOR: u32 = VERSION.0;
/// Mode bit FALLOC_FL_PUNCH_HOLE of fallocate(2).
const PUNCH_HOLE: u32 = 2;
/// Mode bit FALLOC_FL_ZERO_RANGE of fallocate(2).
const ZERO_RANGE: u32 = 16;
