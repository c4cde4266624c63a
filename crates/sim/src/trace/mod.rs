//! Traces: recorded I/O calls of programs, with time, process, file and range.
//!
//! ```
//! use bywash_sim::trace::{CallKind, TextFormat, Trace};
//!
//! let printed = "\
//! 1700000000.000000 openat(AT_FDCWD, \"/data/a\", O_RDONLY) = 3
//! 1700000000.000200 read(3, \"\\177ELF\"..., 4096) = 4096
//! 1700000000.000500 read(3, \"\"..., 4096) = 1024
//! 1700000000.000600 read(3, \"\", 4096) = 0
//! ";
//! let imported = Trace::import(printed)?;
//! assert_eq!(imported.form, TextFormat::Strace);
//! let last = &imported.trace.calls[1];
//! assert_eq!((last.kind, last.offset, last.length), (CallKind::Read, 4096, 1024));
//! assert_eq!(Trace::read(&imported.trace.write())?, imported.trace);
//! # Ok::<(), bywash_sim::trace::Error>(())
//! ```
//!
//! - `format`: the file format of a trace, CSV
//! - `strace`, `blkparse`: importers of the output of these programs
//! - `imported`: detection of a text's form, and the result of an import
//! - `releases`: the calls by which other processes end a wait
//!
//! Invariant: everything in a text that the trace omits is counted, with its first line. An importer skips
//! nothing silently, and never panics, because texts come from untrusted sources.

mod blkparse;
mod format;
mod imported;
#[cfg(test)]
mod mutation;
mod releases;
mod strace;

pub use imported::{Imported, Omission, TextFormat};
pub use releases::{CHILD, SLEEP, THREAD};

/// Kind of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallKind {
    /// Read from a file.
    Read,
    /// Write to a file.
    Write,
    /// Synchronisation of a file: makes its writes durable.
    Sync,
    /// Receive from the network.
    Receive,
    /// Send to the network.
    Send,
    /// Wait for another process or thread, or for a time: a pipe, a child, a lock, a sleep.
    Wait,
    /// Any other call: the kernel serves it, and it moves no data of a file.
    Other,
}

impl CallKind {
    /// All kinds.
    pub const ALL: [CallKind; 7] = [
        CallKind::Read,
        CallKind::Write,
        CallKind::Sync,
        CallKind::Receive,
        CallKind::Send,
        CallKind::Wait,
        CallKind::Other,
    ];

    /// Name of the kind in a trace.
    pub fn name(self) -> &'static str {
        match self {
            CallKind::Read => "read",
            CallKind::Write => "write",
            CallKind::Sync => "sync",
            CallKind::Receive => "receive",
            CallKind::Send => "send",
            CallKind::Wait => "wait",
            CallKind::Other => "other",
        }
    }
}

/// Times of a call that a recorder has measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timing {
    /// End of the call, in seconds since the first call of the trace.
    pub end: f64,
    /// Time that the thread computed between its previous call and this one, in seconds.
    pub computed: f64,
}

/// One recorded call.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// Time of the call, in seconds since the first call of the trace.
    pub at: f64,
    /// Number of the thread that made the call, as recorded; 0 if the recording does not name it.
    pub process: u32,
    /// Kind of the call.
    pub kind: CallKind,
    /// File of the call, as an index into [`Trace::files`].
    pub file: u32,
    /// Offset in the file, in bytes; 0 for the network.
    pub offset: u64,
    /// Number of bytes, at least 1. For a sync, length of the range, where 0 is the whole file; for a wait for a
    /// child, its process number; 0 for other calls that move nothing.
    pub length: u64,
    /// End of the call and computing before it; `None` if the recording does not tell.
    pub timing: Option<Timing>,
}

/// Recorded calls, in the order of their time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// Names of the files, in the order of their first calls. Calls refer to them by index.
    pub files: Vec<String>,
    /// Calls, in the order of their time.
    pub calls: Vec<Call>,
}

impl Trace {
    /// Returns true if the trace has calls and tells end and computing of each.
    pub fn is_timed(&self) -> bool {
        !self.calls.is_empty() && self.calls.iter().all(|call| call.timing.is_some())
    }
}

/// Error for a text that is not a trace and cannot be imported.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text is neither a trace, nor output of strace, nor output of blkparse.
    #[error(
        "this is neither a trace (its first line would be '{}') nor what strace or blkparse prints; record with \
         `strace -f -ttt -y -o FILE PROGRAM`, or with `blktrace -d DEVICE -o - | blkparse -i -`",
        format::HEADER
    )]
    Unknown,
    /// A line of a trace is invalid.
    #[error("line {line}: {reason}")]
    Line {
        /// Number of the line, from 1.
        line: u64,
        /// Description of the fault, and how to correct it.
        reason: String,
    },
    /// The output of strace has no times.
    #[error("no line has a time; record with `strace -f -ttt -y`")]
    NoTimes,
    /// More files than a 32-bit index supports.
    #[error("more than {} files; cut the recording into parts", u32::MAX)]
    TooManyFiles,
}
