//! CPU time that the server saves by registering arenas with io_uring: of a command of its device, with registered memory and
//! with memory whose pages the kernel looks up each time.
//!
//! One device, of a file past the page cache on a loop device over memory; one thread with 32 commands in flight. Both kinds of
//! commands take turns on the same memory. The time is that of the thread, which is what the server's core would spend; the
//! work of the loop device is the same for both, and not in it.

use super::contest::{Setup, medium_bytes};
use super::file::populated;
use super::medium::Medium;
use crate::campaign::Declared;
use crate::clock::thread_seconds;
use crate::engine::{Metric, Rounds, Side};
use crate::error::Error;
use crate::row::Row;
use bywash_device::{
    Command, Device, File, FileKind, FileOptions, PinnedRegion, Pinner, Region, RegionId, Segment,
};
use rustix::event::{PollFd, PollFlags, poll};
use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use vm_memory::MmapRegion;

/// Size of the memory: that of the library's arenas, in bytes.
const ARENA: usize = 16 << 20;
const DEPTH: usize = 32;
/// Bytes that a run moves, and runs for each round of other cases.
const RUN: usize = 64 << 20;
const RUN_QUICK: usize = 4 << 20;
const TURNS: u32 = 8;
/// Least ratio for which registering is worth its cost.
const GOAL: f64 = 1.03;

pub(super) fn cases() -> Vec<Declared<Setup>> {
    vec![Declared::new(Row::head("serve/registered", "CPU time of a command", ""), measure)]
}

fn measure(setup: &Setup, head: &Row) -> Result<Vec<Row>, Error> {
    let files = setup.media.files(Medium::LoopExt4, 1, medium_bytes(setup.quick))?;
    let bench = Bench::open(&files[0])?;
    let note = format!("registering {} MiB: {:.0} us of the core", ARENA >> 20, bench.took_us);
    let bench = RefCell::new(bench);
    let (moved, turns) = if setup.quick { (RUN_QUICK, 1) } else { (RUN, TURNS) };
    let time = Metric::cost("CPU time of a command", "ns", |ns: &f64| *ns);
    let mut rows = Vec::new();
    for (direction, is_read) in [("reads", true), ("writes", false)] {
        for bytes in [4 << 10, 64 << 10] {
            let run = |registered| bench.borrow_mut().run(is_read, bytes, moved / bytes, registered);
            let sides = vec![
                Side::new("registered memory", || run(true)).warm_up(|| run(true).map(drop)),
                Side::new("memory that is not registered", || run(false)),
            ];
            let runs = Rounds::new(setup.count * turns).run(sides)?;
            let case = format!("{} KiB {direction}, {DEPTH} at a time", bytes >> 10);
            let head = Row { case, note: note.clone(), ..head.clone() };
            rows.push(time.row(&head, &runs[0], &runs[1], Some(GOAL)));
        }
    }
    Ok(rows)
}

/// Device, and memory for its commands.
struct Bench {
    device: File,
    memory: Arc<MmapRegion>,
    region: RegionId,
    /// Time that the device's ring took to refer to the memory, in microseconds.
    took_us: f64,
    /// Number of the next command.
    next: usize,
    _pinned: Arc<PinnedRegion>,
}

impl Bench {
    fn open(file: &Path) -> Result<Bench, Error> {
        let unavailable = |error: bywash_device::Error| Error::Unavailable(error.to_string());
        let mut device = File::open(&FileOptions::new(FileKind::File, file)).map_err(unavailable)?;
        let memory = Arc::new(populated(ARENA)?);
        let pinner = device.pinner().ok_or_else(|| Error::Unavailable(device.description()))?;
        let pinned = Arc::new(pin(&memory, &*pinner).map_err(unavailable)?);
        let begin = Instant::now();
        let region = device.register(&pinned).map_err(unavailable)?;
        let took_us = begin.elapsed().as_secs_f64() * 1e6;
        let region = region.ok_or_else(|| Error::Unavailable(device.description()))?;
        Ok(Bench { device, memory, region, took_us, next: 0, _pinned: pinned })
    }

    /// Returns the CPU time of a command, in nanoseconds.
    fn run(&mut self, is_read: bool, bytes: usize, count: usize, registered: bool) -> Result<f64, Error> {
        let begin = thread_seconds();
        let (mut sent, mut done) = (0, 0);
        while done < count {
            while sent < count && sent - done < DEPTH {
                self.submit(is_read, bytes, registered)?;
                sent += 1;
            }
            let mut failure = None;
            let reaped = self.device.reap(&mut |one| failure = failure.or(one.result.err()));
            if let Some(failure) = failure {
                return Err(Error::failed("a command", failure.to_string()));
            }
            done += reaped;
            if reaped == 0
                && !self.device.arm()
                && let Some(descriptor) = self.device.descriptor()
            {
                let waited = poll(&mut [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)], None);
                waited.map_err(|error| Error::failed("poll", error.to_string()))?;
            }
        }
        Ok((thread_seconds() - begin) * 1e9 / count as f64)
    }

    #[expect(unsafe_code, reason = "a device is given an address")]
    fn submit(&mut self, is_read: bool, bytes: usize, registered: bool) -> Result<(), Error> {
        // A stride that reaches all blocks of the file, and not one after the other.
        self.next = self.next.wrapping_add(7919);
        let blocks = self.device.geometry().bytes as usize / bytes;
        let (at, from) = (self.next % blocks * bytes, self.next % (ARENA / bytes) * bytes);
        // SAFETY: the segment is within the mapping, which the command owns too, and no reference to it exists.
        let segment = [unsafe { Segment::new(self.memory.as_ptr().wrapping_add(from), bytes) }];
        let make = if is_read { Command::read } else { Command::write };
        let command = make(0, at as u64, &segment).owner(self.memory.clone());
        let submitted = self.device.submit(command.region(registered.then_some(self.region)));
        submitted.map_err(|_| Error::failed("a device", "takes no command at this depth".into()))
    }
}

#[expect(unsafe_code, reason = "the kernel is given an address")]
fn pin(memory: &Arc<MmapRegion>, pinner: &dyn Pinner) -> Result<PinnedRegion, bywash_device::Error> {
    // SAFETY: the mapping has this length and lives as long as its owner, and no reference to it exists.
    unsafe { Region::new(memory.as_ptr(), memory.size(), memory.clone()) }.pin(pinner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_commands_take_time() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), vec![0; 4 << 20]).unwrap();
        let mut bench = match Bench::open(file.path()) {
            Ok(bench) => bench,
            // A file system may not know O_DIRECT, and a machine no io_uring.
            Err(error) => return assert!(error.is_absence(), "{error}"),
        };
        for (is_read, registered) in [(true, true), (true, false), (false, true), (false, false)] {
            assert!(bench.run(is_read, 4096, 100, registered).unwrap() > 0.0);
        }
    }
}
