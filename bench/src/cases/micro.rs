//! pread and pwrite in a loop of our own, also through O_DIRECT.
//!
//! The file is written beforehand; the driver warms it with the same kind of call. Only its small-folio or
//! large-folio shape and its size persist from run to run: what a write stores follows from its place, so
//! every run leaves the same content.

use super::{Amount, Case, Done, Metric, NOT_SLOWER, Native, Stage, Workload, parse_done};
use crate::error::Error;
use crate::launch::{Run, Side};
use crate::place::Kind;
use crate::{child, number, programs};
use std::fs::File;
use std::path::PathBuf;

const MIB: u64 = 1 << 20;
/// Beyond the processor's private caches, so that a warm access is one to memory.
const FILE_BYTES: u64 = 64 * MIB;
const FILE_BYTES_QUICK: u64 = 8 * MIB;
/// Stays in the processor's private caches.
const TIGHT_BYTES: u64 = MIB;

/// Calls of one size on one file.
pub struct Micro {
    /// `read` or `write`.
    pub operation: &'static str,
    /// Bytes a call.
    pub bytes: u64,
    /// `random` or `sequential`.
    pub pattern: &'static str,
    /// Threads.
    pub threads: u64,
    /// The part of the file that is used, from its start; at most the whole file.
    pub span: u64,
    /// The file's size.
    pub file_bytes: u64,
    /// The file's size with `--quick`.
    pub file_bytes_quick: u64,
    /// Further words for the driver: `direct`, `cold` (no warm-up).
    pub flags: &'static [&'static str],
    /// Whether the file is dropped from the page cache before each run.
    pub drop_cache: bool,
}

/// Size of the file that look-ups are spread over, in bytes: short runs read few of its pages twice.
const LARGE_BYTES: u64 = 200 * MIB;
/// A file that is read from its start to its end some times.
const STREAMED_BYTES: u64 = 32 * MIB;

/// Copies from a mapping of the same file in the same loop: what no data path at user level can beat.
const COPY_BOUND: Native = Native::rival("copies from a mapping", 0.9);

impl Default for Micro {
    fn default() -> Micro {
        Micro {
            operation: "read",
            bytes: 4096,
            pattern: "random",
            threads: 1,
            span: u64::MAX,
            file_bytes: FILE_BYTES,
            file_bytes_quick: FILE_BYTES_QUICK,
            flags: &[],
            drop_cache: false,
        }
    }
}

impl Micro {
    fn size(&self, stage: &Stage) -> u64 {
        if stage.quick { self.file_bytes_quick } else { self.file_bytes }
    }

    fn path(&self, stage: &Stage) -> PathBuf {
        stage.folder.join(format!("data-{}", self.size(stage)))
    }
}

impl Workload for Micro {
    fn prepare(&mut self, stage: &Stage) -> Result<(), Error> {
        stage.programs.executable(&programs::MICRO)?;
        let path = self.path(stage);
        if !path.exists() {
            stage.place.write_file(&path, self.size(stage), 1)?;
        }
        Ok(())
    }

    /// Clean pages, or none.
    fn reset(&mut self, stage: &Stage) -> Result<(), Error> {
        let path = self.path(stage);
        let file = File::open(&path).map_err(|error| Error::io("open", &path, error))?;
        file.sync_all().map_err(|error| Error::io("sync", &path, error))?;
        if self.drop_cache {
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)
                .map_err(|errno| Error::io("drop from the cache", &path, errno))?;
        }
        Ok(())
    }

    fn run(&mut self, stage: &Stage, run: &Run, operations: u64) -> Result<Done, Error> {
        let mut command = run.command(stage.programs.executable(&programs::MICRO)?);
        command.arg(self.path(stage)).arg(self.operation).arg(self.bytes.to_string()).arg(self.pattern);
        let span = self.span.min(self.size(stage));
        command.args([self.threads, operations, span, 1].map(|number| number.to_string())).args(self.flags);
        command.args((run.side() == Side::Native).then_some("mapped"));
        parse_done("micro", &child::run(&mut command)?.stdout)
    }
}

/// `512 B`, `4 KiB`, ...
pub fn size_name(bytes: u64) -> String {
    if bytes < 1024 { format!("{bytes} B") } else { format!("{} KiB", bytes / 1024) }
}

fn case(bench: &'static str, name: String, goal: f64, seconds: f64, in_quick: bool, micro: Micro) -> Case {
    Case {
        bench,
        name,
        metrics: vec![Metric::rate("op/s", goal)],
        places: Kind::ALL,
        amount: Amount::For { first: 2000, seconds },
        native: None,
        in_quick,
        work: Box::new(micro),
    }
}

/// The `micro` bench.
pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for bytes in [512, 4096] {
        let name = format!("pread {} in a tight loop (1 MiB)", size_name(bytes));
        let micro = Micro { bytes, span: TIGHT_BYTES, ..Micro::default() };
        let case = case("micro", name, NOT_SLOWER, 0.3, true, micro);
        cases.push(Case { native: Some(COPY_BOUND), ..case });
    }
    for (pattern, threads) in [("random", 1), ("random", 2), ("sequential", 1)] {
        for bytes in [512, 4096, 16_384, 65_536] {
            let in_quick = bytes == 4096 && (pattern == "random") == (threads == 1);
            let plural = if threads == 1 { "thread" } else { "threads" };
            let name = format!("pread {} {pattern}, {threads} {plural}", size_name(bytes));
            let micro = Micro { bytes, pattern, threads, ..Micro::default() };
            cases.push(case("micro", name, NOT_SLOWER, 0.15, in_quick, micro));
        }
    }
    // What it costs a write to be left to the kernel.
    for bytes in [512, 4096] {
        let name = format!("pwrite {} random, 1 thread", size_name(bytes));
        let micro = Micro { operation: "write", bytes, ..Micro::default() };
        cases.push(case("micro", name, NOT_SLOWER, 0.15, bytes == 4096, micro));
    }
    cases
}

/// The `lengths` bench: programs that open a cached file, read it for a while and end. Whatever the library does before
/// it gains is in the time.
pub fn length_cases() -> Vec<Case> {
    let length = |name: String, pattern, file_bytes, operations| {
        let micro = Micro {
            pattern,
            file_bytes,
            file_bytes_quick: file_bytes / 8,
            flags: &["cold"],
            ..Micro::default()
        };
        // Always so many operations.
        let amount = Amount::For { first: operations, seconds: 0.0 };
        Case { amount, ..case("lengths", name, NOT_SLOWER, 0.0, operations < 100_000, micro) }
    };
    let mut cases: Vec<Case> = [8000, 60_000, 200_000]
        .map(|operations| {
            let name = format!("{} look-ups of 4 KiB in 200 MiB", number::grouped(operations));
            length(name, "random", LARGE_BYTES, operations)
        })
        .into();
    let passes = 10;
    let name = format!("32 MiB read {passes} times in 4 KiB");
    cases.push(length(name, "sequential", STREAMED_BYTES, passes * STREAMED_BYTES / 4096));
    cases
}

/// The `direct` bench.
pub fn direct_cases() -> Vec<Case> {
    ["read", "write"]
        .map(|operation| {
            let name = format!("p{operation} 4 KiB random, O_DIRECT");
            let micro = Micro { operation, flags: &["direct", "cold"], ..Micro::default() };
            let amount = Amount::For { first: 500, seconds: 0.4 };
            let in_quick = operation == "read";
            Case { places: Kind::DEVICES, amount, ..case("direct", name, NOT_SLOWER, 0.0, in_quick, micro) }
        })
        .into()
}
