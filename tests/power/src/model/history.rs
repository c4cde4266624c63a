//! History of the model program: what each process did and when, kept where no power cut harms it.
//!
//! Every operation has two events, its begin and its end, in one file to which all processes append. Their order in the file
//! is the order in which they happened: an operation whose end comes before the begin of another was over by then.

use crate::recording::{self, Position};
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

/// Size of an event, in bytes: it divides that of a page, so that no kill leaves a part of one.
const EVENT_BYTES: usize = 64;

/// Kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Words are written in place, or behind the end of the file.
    Write = 1,
    /// The same, durable at its end (O_DSYNC).
    SyncedWrite = 2,
    /// The file gets the length `length`.
    Truncate = 3,
    /// The range becomes zeroes.
    Punch = 4,
    /// Everything that was over before its begin is durable at its end.
    Sync = 5,
    /// Bytes are appended (O_APPEND); the end of the operation knows at which offset.
    Append = 6,
    /// A file gets the version `offset`, of `length` bytes, by several calls; durable at its end.
    Version = 7,
}

/// File that an operation concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Target {
    /// Two files of words, which several processes write, sync, cut short and punch.
    Words = 1,
    /// The second of them.
    MoreWords = 2,
    /// A file to which several processes append.
    Appended = 3,
    /// A file that is replaced by renaming another one over it.
    Replaced = 4,
    /// A file that is unlinked and made anew, so that its inode number is used again.
    Reused = 5,
    /// A file that is written through a second name, which then takes the place of the first.
    Linked = 6,
    /// A file that is changed unseen, then made anew.
    Unseen = 7,
    /// A third file of words, which keeps its size and is written by calls that a log notes, so that a log keeps many records
    /// of it.
    Steady = 8,
}

impl Target {
    /// Files of words.
    pub const WORDS: [Target; 3] = [Target::Words, Target::MoreWords, Target::Steady];

    /// Returns the name of the file.
    pub fn name(self) -> &'static str {
        match self {
            Target::Words => "words",
            Target::MoreWords => "more-words",
            Target::Appended => "appended",
            Target::Replaced => "replaced",
            Target::Reused => "reused",
            Target::Linked => "linked",
            Target::Unseen => "unseen",
            Target::Steady => "steady",
        }
    }
}

/// Begin or end of an operation.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// Number of the operation, which is also what it writes.
    pub operation: u64,
    /// True at its end.
    pub is_end: bool,
    /// Kind of the operation.
    pub kind: Kind,
    /// File.
    pub target: Target,
    /// First byte, or the number of a version.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
    /// Size of the file afterwards if the operation changes it, else [`SAME_SIZE`].
    pub size: u64,
    /// Position of the recorder at this moment.
    pub position: Position,
}

/// Says that an operation does not change the size of its file.
pub const SAME_SIZE: u64 = u64::MAX;

impl Event {
    fn encode(&self) -> [u8; EVENT_BYTES] {
        let code = self.kind as u64 | (self.target as u64) << 8 | u64::from(self.is_end) << 16;
        let mut bytes = [0; EVENT_BYTES];
        let fields = [self.operation, code, self.offset, self.length, self.size, self.position.0];
        for (place, field) in bytes.chunks_mut(8).zip(fields) {
            place.copy_from_slice(&field.to_le_bytes());
        }
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Event> {
        let field =
            |index: usize| Some(u64::from_le_bytes(bytes.get(index * 8..index * 8 + 8)?.try_into().ok()?));
        let code = field(1)?;
        let kinds = [
            Kind::Write,
            Kind::SyncedWrite,
            Kind::Truncate,
            Kind::Punch,
            Kind::Sync,
            Kind::Append,
            Kind::Version,
        ];
        let targets = [
            Target::Words,
            Target::MoreWords,
            Target::Appended,
            Target::Replaced,
            Target::Reused,
            Target::Linked,
            Target::Unseen,
            Target::Steady,
        ];
        Some(Event {
            operation: field(0)?,
            is_end: code >> 16 & 1 == 1,
            kind: *kinds.iter().find(|kind| **kind as u64 == code & 0xff)?,
            target: *targets.iter().find(|target| **target as u64 == code >> 8 & 0xff)?,
            offset: field(2)?,
            length: field(3)?,
            size: field(4)?,
            position: Position(field(5)?),
        })
    }
}

/// Writer of events.
#[derive(Debug)]
pub struct Writer {
    events: File,
    index: File,
}

impl Writer {
    /// Opens the history `events` to append to it, and the recorder's index.
    ///
    /// # Errors
    /// An error of the file system if a file cannot be opened.
    pub fn open(events: &Path, index: &Path) -> io::Result<Writer> {
        let events = File::options().append(true).create(true).open(events)?;
        Ok(Writer { events, index: File::open(index)? })
    }

    /// Adds an event at this moment.
    ///
    /// # Errors
    /// An error of the file system, such as a full memory.
    pub fn add(&mut self, event: Event) -> io::Result<()> {
        let position = recording::position(&self.index)?;
        self.events.write_all(&Event { position, ..event }.encode())
    }
}

/// Reads all events of a history.
///
/// # Errors
/// An error of the file system, or `InvalidData` if the file is not a history.
pub fn read(events: &Path) -> io::Result<Vec<Event>> {
    let bytes = std::fs::read(events)?;
    let events: Option<Vec<Event>> = bytes.chunks(EVENT_BYTES).map(Event::decode).collect();
    events.ok_or_else(|| io::ErrorKind::InvalidData.into())
}
