//! The programs in the virtual machine: they read by each path, between marks that the plugin counts at.
//!
//! Each series is announced by a line of the guest, and begins with the mark NEXT, so that the host knows the series of the
//! plugin's samples by their numbers. A path that cannot be taken is told with its reason.
//!
//! - [`kernel`]: the kernel's paths; `rings`: those of io_uring; `streams`: 23 streams
//! - [`driver`]: our driver alone
//! - [`channel`]: our server, and a client of it; [`vhost`]: our server, and a frontend of a disk that it exports; `batches`:
//!   reads that another process carries out
//! - [`direct`]: a client that our server has granted a virtual function
//!
//! Nothing here counts time or waits for anything that it counts: a path that polls is asked for its completion when it
//! certainly has one.

mod batches;
mod channel;
mod direct;
mod driver;
mod kernel;
mod rings;
mod streams;
mod vhost;

pub use streams::READS as STREAM_READS;

use super::mark;
use crate::error::{Attempt, Error};
use std::fmt::Display;
use std::fs;
use std::io::Write;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

/// Size of each disk, in bytes.
pub const DISK_BYTES: u64 = 64 << 20;
/// Size of a read of the paths, in bytes.
const BLOCK: usize = 4096;
/// Size of a read of the streams, in bytes.
const STREAM_BLOCK: usize = 64 << 10;
/// Number of streams.
pub const STREAMS: usize = 23;
/// Number of first operations of a series that are not kept.
const WARM_UP: usize = 16;
/// Serial numbers of the disk that completes a read at once, and of that which takes a millisecond.
pub const FAST: &str = "fast";
pub const SLOW: &str = "slow";
/// PCI address of the controller with a virtual function.
pub const PRIMARY: &str = "0000:01:00.0";
/// PCI address of the fast disk.
pub const ADDRESS: &str = "0000:00:04.0";
/// Option of the kernel of the virtual machine, by which these programs know that they are in it.
pub const INSIDE: &str = "bywash.bench=nvme";
/// Byte of memory that was not read into; the disks have zeros.
const UNREAD: u8 = 0x5a;
/// Greatest number of looks for a completion, a millisecond each.
const LOOKS_MAX: usize = 2000;

/// Runs one of the programs, with its number of operations in a series.
///
/// # Errors
/// [`Error::Usage`] outside the virtual machine, and for words that name no program; else the reason why something does not
/// work that does not depend on the kernel.
pub fn run(words: &[&str]) -> Result<(), Error> {
    let line = fs::read_to_string("/proc/cmdline").doing("read", Path::new("/proc/cmdline"))?;
    if !line.split_whitespace().any(|word| word == INSIDE) {
        return Err(Error::Usage("this is a program of the virtual machine of `bywash bench nvme`".into()));
    }
    let number = |word: &str| {
        word.parse::<usize>().map_err(|_| Error::Usage(format!("'{word}' stands where a number has to be")))
    };
    match words {
        ["kernel", operations] => kernel::run(number(operations)?),
        ["driver", operations] => driver::run(number(operations)?),
        ["serve"] => channel::serve(),
        ["client", operations] => channel::client(number(operations)?),
        ["serve-vhost"] => vhost::serve(),
        ["frontend", operations] => vhost::client(number(operations)?),
        ["grant"] => direct::serve(),
        ["direct", operations] => direct::client(number(operations)?),
        _ => Err(Error::Usage(format!("'{}' is no program of the virtual machine", words.join(" ")))),
    }
}

/// Prints a line for the host.
fn tell(text: impl Display) -> Result<(), Error> {
    let mut out = std::io::stdout().lock();
    let told = writeln!(out, "guest: {text}").and_then(|()| out.flush());
    told.doing("write to", Path::new("the console"))
}

/// Begins a series.
fn series(name: &str) -> Result<(), Error> {
    tell(format_args!("series {name}"))?;
    mark::next();
    Ok(())
}

/// Tells that a path cannot be taken, unless `measured` has worked.
fn absent_unless(name: &str, measured: Result<(), Error>) -> Result<(), Error> {
    measured.or_else(|error| tell(format_args!("absent {name}: {}", error.to_string().replace('\n', " "))))
}

fn failed(what: &str, why: impl Display) -> Error {
    Error::failed(what, format!("failed: {why}"))
}

/// Offsets in a disk, at random.
struct Offsets(u64);

impl Offsets {
    fn new() -> Offsets {
        Offsets(0x9e37_79b9_7f4a_7c15)
    }

    /// Returns the offset of some block (xorshift).
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) % (DISK_BYTES / BLOCK as u64) * BLOCK as u64
    }

    fn some(&mut self, count: usize) -> Vec<u64> {
        (0..count).map(|_| self.next()).collect()
    }
}

/// Waits until a disk that completes at once certainly has completed what it was given.
fn settle() {
    std::thread::sleep(Duration::from_millis(1));
}

/// Keeps the sample of operation `number` of a series, if it is not one of the first.
fn keep(number: usize, is_second: bool) {
    match (number < WARM_UP, is_second) {
        (true, _) => mark::give_up(),
        (false, false) => mark::keep(),
        (false, true) => mark::keep_second(),
    }
}

/// Memory on pages of its own, which nothing was read into yet.
struct Memory {
    base: *mut u8,
    bytes: usize,
}

// SAFETY: an address range that belongs to this value alone, and which is accessed by copies only.
#[expect(unsafe_code, reason = "memory that the kernel and disks write to")]
unsafe impl Send for Memory {}
// SAFETY: as above; shared references only give out the address.
#[expect(unsafe_code, reason = "memory that the kernel and disks write to")]
unsafe impl Sync for Memory {}

impl Memory {
    #[expect(unsafe_code, reason = "memory that the kernel and disks write to")]
    fn new(bytes: usize) -> Result<Memory, Error> {
        use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at an address that the kernel chooses changes no existing memory.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, protection, flags) };
        let base = base.doing("allocate", Path::new("memory for reads"))?.cast::<u8>();
        // SAFETY: the mapping that was just made has so many bytes.
        unsafe { base.write_bytes(UNREAD, bytes) };
        Ok(Memory { base, bytes })
    }

    fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset < self.bytes);
        self.base.wrapping_add(offset)
    }

    /// Checks that the disk's zeros have been read into a range, so that the bytes were moved.
    #[expect(unsafe_code, reason = "memory that the kernel and disks write to")]
    fn check_read(&self, range: Range<usize>) -> Result<(), Error> {
        assert!(range.end <= self.bytes);
        // SAFETY: the range lies in the mapping, and no read into it is in flight.
        let is_zero = |at: usize| unsafe { self.base.add(at).read_volatile() } == 0;
        if range.into_iter().all(is_zero) { Ok(()) } else { Err(failed("a read", "it has read nothing")) }
    }
}

impl Drop for Memory {
    #[expect(unsafe_code, reason = "memory that the kernel and disks write to")]
    fn drop(&mut self) {
        // SAFETY: `new` made this mapping, and nothing is read into it any more.
        let _ = unsafe { rustix::mm::munmap(self.base.cast(), self.bytes) };
    }
}
