//! Counters and latencies of commits: of a log since it was opened, in the memory that its users share, and of one run, in
//! memory that the run's processes share.
//!
//! Adding is one atomic addition to each of the two, without a lock. Latencies go into a histogram whose buckets grow with
//! what they count: 16 to each power of two, so a percentile is at most one sixteenth too high.

use crate::sys::{self, Errno};
use core::ffi::{CStr, c_int};
use core::ptr::NonNull;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Counters of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Counter {
    /// Commits that the log made durable.
    Commits = 0,
    /// Commits that found nothing written since the last one.
    Clean,
    /// Batches written.
    Batches,
    /// Bytes of batches written.
    BatchBytes,
    /// Bytes of files in records.
    Bytes,
    /// Syncs left to the kernel: the first of a file.
    KernelFirst,
    /// Syncs left to the kernel: the file was changed in a way that ranges do not tell.
    KernelChanged,
    /// Syncs left to the kernel: more was written than a batch holds.
    KernelLarge,
    /// Syncs left to the kernel: the log is full.
    KernelFull,
    /// Syncs left to the kernel: the log's file has failed, or its keeper has ended.
    KernelStopped,
    /// Syncs left to the kernel: the file or the descriptor cannot be logged, or the process cannot write the log.
    KernelUnsuited,
    /// Marks written.
    Marks,
    /// Files made durable by the keeper.
    Checkpoints,
    /// Syncs left to the kernel: not a regular file of a file system that is logged.
    KernelElsewhere,
    /// Syncs left to the kernel: it was faster than the log.
    KernelFaster,
}

impl Counter {
    /// Reasons for which syncs are left to the kernel.
    pub const KERNEL: [Counter; 8] = [
        Counter::KernelFirst,
        Counter::KernelChanged,
        Counter::KernelLarge,
        Counter::KernelFull,
        Counter::KernelStopped,
        Counter::KernelUnsuited,
        Counter::KernelElsewhere,
        Counter::KernelFaster,
    ];

    /// Returns the counter's name in JSON.
    pub fn key(self) -> &'static str {
        row(self).1
    }

    /// Returns what the counter counts, in words.
    pub fn words(self) -> &'static str {
        row(self).2
    }
}

/// Counters, their names in JSON, and their names in words.
pub const NAMES: [(Counter, &str, &str); 15] = [
    (Counter::Commits, "commits", "commits absorbed by the log"),
    (Counter::Clean, "clean", "syncs with nothing to make durable"),
    (Counter::Bytes, "bytes", "bytes of files logged"),
    (Counter::Batches, "batches", "writes to the log"),
    (Counter::BatchBytes, "batch_bytes", "bytes written to the log"),
    (Counter::Marks, "marks", "files marked as newer than their records"),
    (Counter::Checkpoints, "checkpoints", "files made durable by the keeper"),
    (
        Counter::KernelFirst,
        "kernel_first",
        "left to the kernel: first sync of a file, or one of three of a file just made",
    ),
    (
        Counter::KernelChanged,
        "kernel_changed",
        "left to the kernel: file truncated, mapped or changed unseen",
    ),
    (Counter::KernelLarge, "kernel_large", "left to the kernel: more written than a commit holds"),
    (Counter::KernelFull, "kernel_full", "left to the kernel: log full"),
    (Counter::KernelStopped, "kernel_stopped", "left to the kernel: log failed, or its keeper has ended"),
    (
        Counter::KernelUnsuited,
        "kernel_unsuited",
        "left to the kernel: file or process that cannot be logged, such as O_DIRECT",
    ),
    (
        Counter::KernelElsewhere,
        "kernel_elsewhere",
        "left to the kernel: changed folder, or file not on ext4 or XFS",
    ),
    (Counter::KernelFaster, "kernel_faster", "left to the kernel: faster there than by the log"),
];

fn row(counter: Counter) -> &'static (Counter, &'static str, &'static str) {
    // The table has every counter, which a test holds.
    NAMES.iter().find(|(there, ..)| *there == counter).unwrap_or(&NAMES[0])
}

/// Number of counters that there is room for.
const COUNTERS: usize = 32;
/// Number of buckets to each power of two.
const FINE: usize = 16;
const FINE_BITS: u32 = FINE.trailing_zeros();
/// Logarithm of the least latency that has a bucket of its own, about a microsecond in nanoseconds.
const LEAST_BITS: u32 = 10;
/// Logarithm of the latency from which on all are in the last bucket, 17 seconds in nanoseconds.
const MOST_BITS: u32 = 34;
const BUCKETS: usize = (MOST_BITS - LEAST_BITS) as usize * FINE + 1;

/// Counters and latencies. All zero: nothing was counted.
#[repr(C)]
#[derive(Debug)]
pub struct Counts {
    counters: [AtomicU64; COUNTERS],
    /// Numbers of commits by their latencies.
    buckets: [AtomicU64; BUCKETS],
}

/// Percentiles of latencies, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latencies {
    /// Median.
    pub p50_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// Percentile 99.9.
    pub p99_9_ns: u64,
}

impl Counts {
    /// Adds to a counter.
    pub fn add(&self, counter: Counter, amount: u64) {
        self.counters[counter as usize].fetch_add(amount, Relaxed);
    }

    /// Returns the value of a counter.
    pub fn get(&self, counter: Counter) -> u64 {
        self.counters[counter as usize].load(Relaxed)
    }

    /// Adds the latency of a commit.
    pub fn add_latency(&self, ns: u64) {
        self.buckets[bucket(ns)].fetch_add(1, Relaxed);
    }

    /// Returns percentiles of the commits' latencies; `None` if there was no commit.
    pub fn latencies(&self) -> Option<Latencies> {
        let counts: [u64; BUCKETS] = core::array::from_fn(|number| self.buckets[number].load(Relaxed));
        let all: u64 = counts.iter().sum();
        // Least latency that is not less than that of so many commits of a thousand.
        let percentile = |mille: u64| {
            let wanted = (all * mille).div_ceil(1000).max(1);
            let mut sum = 0;
            counts.iter().position(|count| {
                sum += count;
                sum >= wanted
            })
        };
        Some(Latencies {
            p50_ns: end_ns(percentile(500)?),
            p99_ns: end_ns(percentile(990)?),
            p99_9_ns: end_ns(percentile(999)?),
        })
        .filter(|_| all > 0)
    }
}

/// Returns the number of the bucket of a latency.
fn bucket(ns: u64) -> usize {
    let bits = ns.max(1).ilog2();
    if bits < LEAST_BITS {
        return 0;
    }
    let fine = (ns >> (bits - FINE_BITS)) as usize % FINE;
    (1 + (bits - LEAST_BITS) as usize * FINE + fine).min(BUCKETS - 1)
}

/// Returns the latency at which a bucket ends, in nanoseconds.
fn end_ns(bucket: usize) -> u64 {
    let (bits, fine) = (LEAST_BITS + (bucket / FINE) as u32, (bucket % FINE) as u64);
    (1 << bits) + (fine << (bits - FINE_BITS))
}

/// `BYWASHLR`, little-endian.
const MAGIC: u64 = u64::from_le_bytes(*b"BYWASHLR");
/// Version of the layout of a run's memory.
const VERSION: u64 = 1;

/// Memory of a run.
#[repr(C)]
struct RunMemory {
    magic: AtomicU64,
    version: AtomicU64,
    counts: Counts,
}

/// Size of the memory of a run, in bytes.
pub const RUN_BYTES: usize = size_of::<RunMemory>().next_multiple_of(4096);

/// Prepares the memory of a run, which is all zero and has [`RUN_BYTES`] bytes, under the descriptor `fd`. It stays mapped as
/// long as the process lives.
///
/// # Errors
/// The error number of mmap(2).
pub fn prepare_run(fd: c_int) -> Result<&'static Counts, Errno> {
    let memory = map(fd)?;
    memory.version.store(VERSION, Relaxed);
    // SYNC: run-magic (release; `open_run` acquires).
    memory.magic.store(MAGIC, Release);
    Ok(&memory.counts)
}

/// Opens the memory of a run that [`prepare_run`] has prepared in another process.
///
/// # Errors
/// The kernel's error number; EPROTO if the file is no memory of a run or one of another version.
pub fn open_run(path: &CStr) -> Result<&'static Counts, Errno> {
    let fd = sys::open(path, libc::O_RDWR | libc::O_CLOEXEC)?;
    let memory = match sys::status(fd) {
        Ok(status) if status.size == RUN_BYTES as u64 => map(fd),
        Ok(_) => Err(libc::EPROTO),
        Err(error) => Err(error),
    };
    sys::close(fd);
    let memory = memory?;
    // SYNC: run-magic (acquire).
    let is_known = memory.magic.load(Acquire) == MAGIC && memory.version.load(Relaxed) == VERSION;
    if is_known { Ok(&memory.counts) } else { Err(libc::EPROTO) }
}

fn map(fd: c_int) -> Result<&'static RunMemory, Errno> {
    let memory = NonNull::new(sys::map_shared(fd, RUN_BYTES)?.cast::<RunMemory>()).ok_or(libc::ENOMEM)?;
    // SAFETY: the memory stays mapped for good, has the size of the structure, and consists of atomics.
    Ok(unsafe { memory.as_ref() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::boxed::Box;
    use std::vec::Vec;

    fn counts() -> Box<Counts> {
        Box::new(Counts {
            counters: core::array::from_fn(|_| AtomicU64::new(0)),
            buckets: core::array::from_fn(|_| AtomicU64::new(0)),
        })
    }

    #[test]
    fn every_counter_has_names_of_its_own() {
        let numbers: Vec<usize> = (0..NAMES.len()).collect();
        let mut there: Vec<usize> = NAMES.iter().map(|(counter, ..)| *counter as usize).collect();
        there.sort_unstable();
        assert_eq!(there, numbers);
        for (counter, key, words) in NAMES {
            assert_eq!((counter.key(), counter.words()), (key, words));
            assert_eq!(key.starts_with("kernel_"), Counter::KERNEL.contains(&counter));
        }
    }

    #[test]
    fn percentiles_are_those_of_the_commits() {
        let counts = counts();
        assert_eq!(counts.latencies(), None);
        for ns in (1..=1000).map(|number| number * 10_000) {
            counts.add_latency(ns);
        }
        let Latencies { p50_ns, p99_ns, p99_9_ns } = counts.latencies().unwrap();
        for (found, exact) in [(p50_ns, 5_000_000), (p99_ns, 9_900_000), (p99_9_ns, 9_990_000)] {
            assert!(exact <= found && found <= exact + exact / 16, "{found} for {exact}");
        }
    }

    #[test]
    fn the_least_and_the_longest_latency_have_buckets() {
        for (ns, end) in [(0, 1 << 10), (1023, 1 << 10), (1024, 1088), (u64::MAX, 1 << 34)] {
            assert_eq!(end_ns(bucket(ns)), end, "{ns}");
        }
    }

    /// Prints what counting adds to a commit; see CONTRIBUTING.md for how to run what is ignored.
    #[test]
    #[ignore = "measures"]
    fn costs() {
        const COMMITS: u32 = 1_000_000;
        let both = [counts(), counts()];
        let begun = std::time::Instant::now();
        for _ in 0..COMMITS {
            let begun_ns = sys::monotonic_ns();
            for counts in &both {
                counts.add(Counter::Bytes, 100);
                counts.add(Counter::Batches, 1);
                counts.add(Counter::BatchBytes, 4096);
                counts.add(Counter::Commits, 1);
            }
            let latency_ns = sys::monotonic_ns() - begun_ns;
            both.iter().for_each(|counts| counts.add_latency(latency_ns));
        }
        std::println!("{:.0} ns", begun.elapsed().as_nanos() as f64 / f64::from(COMMITS));
    }

    proptest! {
        #[test]
        fn a_bucket_ends_close_behind_what_it_counts(ns in 1024u64..1 << 34) {
            let end = end_ns(bucket(ns));
            prop_assert!(ns < end && end - ns <= ns / 16 + 1, "{ns} {end}");
        }
    }
}
