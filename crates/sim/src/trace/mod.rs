//! Recorded calls: what programs asked for, when, of which file.
//!
//! ```
//! use bywash_sim::trace::{Form, Kind, Trace};
//!
//! let printed = "\
//! 1700000000.000000 openat(AT_FDCWD, \"/data/a\", O_RDONLY) = 3
//! 1700000000.000200 read(3, \"\\177ELF\"..., 4096) = 4096
//! 1700000000.000500 read(3, \"\"..., 4096) = 1024
//! 1700000000.000600 read(3, \"\", 4096) = 0
//! ";
//! let imported = Trace::of(printed)?;
//! assert_eq!(imported.form, Form::Strace);
//! let last = &imported.trace.calls[1];
//! assert_eq!((last.kind, last.offset, last.length), (Kind::Read, 4096, 1024));
//! assert_eq!(Trace::read(&imported.trace.write())?, imported.trace);
//! # Ok::<(), bywash_sim::trace::Error>(())
//! ```
//!
//! - `format`: the trace's own form, CSV
//! - `strace`, `blkparse`: what those print, as a trace
//! - `imported`: which of them a text is, and what became of it
//!
//! Invariant: what a text says and a trace does not have is counted, with the first line where it was so. Nothing that an
//! importer meets is passed over in silence, and nothing is a reason to panic: texts come from anywhere.

mod blkparse;
mod format;
mod imported;
#[cfg(test)]
mod mutation;
mod strace;

pub use imported::{Form, Imported, Left};

/// What a program asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Bytes of a file.
    Read,
    /// To change bytes of a file.
    Write,
    /// That what was written to a file is durable.
    Sync,
    /// Bytes from the network.
    Receive,
    /// To send bytes to the network.
    Send,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 5] = [Kind::Read, Kind::Write, Kind::Sync, Kind::Receive, Kind::Send];

    /// What it is called in a trace.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Read => "read",
            Kind::Write => "write",
            Kind::Sync => "sync",
            Kind::Receive => "receive",
            Kind::Send => "send",
        }
    }
}

/// One call.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// Seconds since the first one.
    pub at: f64,
    /// Whose: a thread's number, as the recording has it; 0 where it does not say.
    pub process: u32,
    /// Which.
    pub kind: Kind,
    /// Which file: an index into [`Trace::files`].
    pub file: u32,
    /// Where in it, in bytes; 0 in the network.
    pub offset: u64,
    /// How many bytes, at least 1; for a sync: of which range, 0 the whole file.
    pub length: u64,
}

/// Calls in the order of their time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// Names of files, of which calls have the index; in the order of their first calls.
    pub files: Vec<String>,
    /// The calls.
    pub calls: Vec<Call>,
}

/// Why a text is no trace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// None of the three.
    #[error(
        "this is neither a trace (its first line would be '{}') nor what strace or blkparse prints; record with \
         `strace -f -ttt -y -o FILE PROGRAM`, or with `blktrace -d DEVICE -o - | blkparse -i -`",
        format::HEADER
    )]
    Unknown,
    /// A line of a trace in its own form.
    #[error("line {line}: {reason}")]
    Line {
        /// Counted from 1.
        line: u64,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// What strace printed says nothing about when.
    #[error("no line has a time; record with `strace -f -ttt -y`")]
    NoTimes,
    /// More names than an index can tell.
    #[error("more than {} files; cut the recording into parts", u32::MAX)]
    TooManyFiles,
}
