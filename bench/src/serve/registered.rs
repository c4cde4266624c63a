//! Measures what registering arenas with io_uring saves the server: CPU time of a command of its device, with memory
//! that is registered and with memory whose pages the kernel looks up each time.
//!
//! One device, of a file past the page cache on a loop device over memory; one thread with 32 commands under way. Both kinds
//! of commands take turns on the same memory. The time is that of the thread, which is what the server's core would spend;
//! work of the loop device is the same for both and not in it.

use super::contest::{House, medium_bytes};
use super::medium::Medium;
use super::part::Part;
use super::uring::memory;
use crate::error::Error;
use crate::interrupt;
use crate::row::Row;
use crate::statistics::Summary;
use bywash_device::{Command, Device, File, FileKind, FileOptions, PinnedRegion, Region, RegionId, Segment};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::{ClockId, clock_gettime};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use vm_memory::MmapRegion;

/// Bytes of memory, as many as the library's arenas have.
const ARENA: usize = 16 << 20;
/// Commands under way.
const DEPTH: usize = 32;
/// Bytes that a run moves, and runs of each kind.
const RUN: usize = 64 << 20;
const RUN_QUICK: usize = 4 << 20;
const RUNS_A_PAIR: usize = 8;
/// Least ratio that makes registering worth its while.
const GOAL: f64 = 1.03;

/// All rows.
pub fn parts() -> Vec<Part> {
    vec![Part::new("serve/registered", "CPU time of a command", measure)]
}

/// A device, and memory for its commands.
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

fn measure(house: &House<'_>) -> Result<Vec<Row>, Error> {
    let files = house.stage.media.files(Medium::LoopExt4, 1, medium_bytes(house.quick))?;
    let file = files.first().ok_or_else(|| Error::Unavailable("there is no file".into()))?;
    let mut bench = Bench::open(file)?;
    let mut rows = Vec::new();
    for (direction, is_read) in [("reads", true), ("writes", false)] {
        for bytes in [4 << 10, 64 << 10] {
            rows.push(bench.row(house, direction, is_read, bytes)?);
        }
    }
    Ok(rows)
}

impl Bench {
    fn open(file: &Path) -> Result<Bench, Error> {
        let unavailable = |error: bywash_device::Error| Error::Unavailable(error.to_string());
        let mut device = File::open(&FileOptions::new(FileKind::File, file)).map_err(unavailable)?;
        let memory = Arc::new(memory(ARENA)?);
        let pinned = Arc::new(pin(&memory).map_err(unavailable)?);
        let begin = Instant::now();
        let region = device.register(&pinned).map_err(unavailable)?;
        let took_us = begin.elapsed().as_secs_f64() * 1e6;
        let region = region.ok_or_else(|| Error::Unavailable(device.description()))?;
        Ok(Bench { device, memory, region, took_us, next: 0, _pinned: pinned })
    }

    fn row(&mut self, house: &House<'_>, direction: &str, is_read: bool, bytes: usize) -> Result<Row, Error> {
        let moved = if house.quick { RUN_QUICK } else { RUN };
        let mut run = |registered| self.run(is_read, bytes, moved / bytes, registered);
        run(true)?;
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for round in 0..house.pairs as usize * if house.quick { 1 } else { RUNS_A_PAIR } {
            interrupt::check()?;
            let first = round % 2 == 0;
            let times = [run(first)?, run(!first)?];
            ours.push(times[usize::from(!first)]);
            theirs.push(times[usize::from(first)]);
        }
        let ratios: Vec<f64> = ours.iter().zip(&theirs).map(|(ours, theirs)| theirs / ours).collect();
        let median = |values: &[f64]| Summary::of(values).map(|summary| summary.median);
        let row = Row {
            case: format!("{} KiB {direction}, {DEPTH} at a time", bytes >> 10),
            metric: "CPU time of a command".into(),
            unit: "ns".into(),
            ours: median(&ours),
            peer: "memory that is not registered".into(),
            peer_value: median(&theirs),
            runs: ratios.len() as u32,
            note: format!("registering {} MiB: {:.0} us of the core", ARENA >> 20, self.took_us),
            ..Row::default()
        };
        Ok(row.with_ratio(Summary::of(&ratios), Some(GOAL)))
    }

    /// CPU time of a command, in ns.
    fn run(&mut self, is_read: bool, bytes: usize, count: usize, registered: bool) -> Result<f64, Error> {
        let begin = cpu_ns();
        let (mut sent, mut done) = (0, 0);
        while done < count {
            while sent < count && sent - done < DEPTH {
                self.submit(is_read, bytes, registered)?;
                sent += 1;
            }
            let mut failure = None;
            let given_out = self.device.reap(&mut |one| failure = failure.or(one.result.err()));
            if let Some(failure) = failure {
                return Err(Error::failed("a command", failure.to_string()));
            }
            done += given_out;
            if given_out == 0 {
                self.sleep()?;
            }
        }
        Ok((cpu_ns() - begin) / count as f64)
    }

    #[expect(unsafe_code, reason = "a device is told where memory is")]
    fn submit(&mut self, is_read: bool, bytes: usize, registered: bool) -> Result<(), Error> {
        // A stride that comes by all pieces of the file, and does not follow them one by one.
        self.next = self.next.wrapping_add(7919);
        let places = self.device.geometry().bytes as usize / bytes;
        let (at, from) = (self.next % places * bytes, self.next % (ARENA / bytes) * bytes);
        // SAFETY: within the mapping, which goes along as the owner, and to which no reference is made.
        let span = [unsafe { Segment::new(self.memory.as_ptr().wrapping_add(from), bytes) }];
        let command = match is_read {
            true => Command::read(0, at as u64, &span),
            false => Command::write(0, at as u64, &span),
        };
        let command = command.owner(self.memory.clone()).region(registered.then_some(self.region));
        let submitted = self.device.submit(command);
        submitted.map_err(|_| Error::failed("a device", "takes no command at this depth".into()))
    }

    fn sleep(&mut self) -> Result<(), Error> {
        if self.device.arm() {
            return Ok(());
        }
        let descriptor = self.device.descriptor();
        let Some(descriptor) = descriptor else { return Ok(()) };
        let waited = poll(&mut [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)], None);
        waited.map(drop).map_err(|error| Error::failed("poll", error.to_string()))
    }
}

#[expect(unsafe_code, reason = "the kernel is told where memory is")]
fn pin(memory: &Arc<MmapRegion>) -> Result<PinnedRegion, bywash_device::Error> {
    // SAFETY: the mapping is as long as it says and lives as long as its owner, and no reference to it is made.
    unsafe { Region::new(memory.as_ptr(), memory.size(), memory.clone()) }.pin()
}

fn cpu_ns() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
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
            // A file system may know no O_DIRECT, and a machine no io_uring.
            Err(error) => return assert!(error.is_absence(), "{error}"),
        };
        for (is_read, registered) in [(true, true), (true, false), (false, true), (false, false)] {
            assert!(bench.run(is_read, 4096, 100, registered).unwrap() > 0.0);
        }
    }
}
