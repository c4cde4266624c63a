//! Recorded requests of disks, in the order in which the disks completed them.
//!
//! Two files in memory hold a recording: an index of fixed entries and the data of the writes. The number of entries is the
//! recorder's clock: every disk of one recorder uses it, and a program reads it as the size of the index
//! (`st_size / ENTRY_BYTES`), without a lock.
//!
//! ```text
//!     index:  kind u32 | disk u32 | offset u64 | length u64 | place in the data file u64      (little-endian)
//! ```
//!
//! Invariant: an entry is complete when the size of the index covers it, since it is one aligned write within a page, and
//! the data of a write is there before its entry is. A request is answered only after its entry was added.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

/// Size of an entry of the index, in bytes.
pub const ENTRY_BYTES: usize = 32;

/// Number of requests that all disks of a recorder had completed at some moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position(pub u64);

/// Kind of a recorded request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Data were written.
    Write,
    /// A range was discarded or filled with zeroes; it reads as zeroes.
    Zero,
    /// Everything that was completed before is durable.
    Flush,
}

/// A recorded request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Kind of the request.
    pub kind: Kind,
    /// Index of the disk in the list of the recorder's disks.
    pub disk: u32,
    /// First byte on the disk; 0 for a flush.
    pub offset: u64,
    /// Length in bytes; 0 for a flush.
    pub length: u64,
    /// Offset of the written bytes in the data file; 0 where nothing was written.
    pub data: u64,
}

impl Record {
    fn encode(&self) -> [u8; ENTRY_BYTES] {
        let kind: u32 = match self.kind {
            Kind::Write => 1,
            Kind::Zero => 2,
            Kind::Flush => 3,
        };
        let mut bytes = [0; ENTRY_BYTES];
        bytes[..4].copy_from_slice(&kind.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.disk.to_le_bytes());
        for (place, value) in [(8, self.offset), (16, self.length), (24, self.data)] {
            bytes[place..place + 8].copy_from_slice(&value.to_le_bytes());
        }
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Record> {
        let long = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let short = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let kind = match short(0)? {
            1 => Kind::Write,
            2 => Kind::Zero,
            3 => Kind::Flush,
            _ => return None,
        };
        Some(Record { kind, disk: short(4)?, offset: long(8)?, length: long(16)?, data: long(24)? })
    }
}

/// Writer of a recording.
#[derive(Debug)]
pub struct Recorder {
    index: File,
    data: File,
    data_end: u64,
}

impl Recorder {
    /// Makes an empty recording of the files `index` and `data`.
    ///
    /// # Errors
    /// An error of the file system if a file cannot be created.
    pub fn create(index: &Path, data: &Path) -> io::Result<Recorder> {
        Ok(Recorder { index: File::create(index)?, data: File::create(data)?, data_end: 0 })
    }

    /// Adds a write.
    ///
    /// # Errors
    /// An error of the file system, such as a full memory.
    pub fn write(&mut self, disk: u32, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.data.write_all_at(bytes, self.data_end)?;
        let data = self.data_end;
        self.data_end += bytes.len() as u64;
        self.add(Record { kind: Kind::Write, disk, offset, length: bytes.len() as u64, data })
    }

    /// Adds a range that reads as zeroes from now on.
    ///
    /// # Errors
    /// An error of the file system, such as a full memory.
    pub fn zero(&mut self, disk: u32, offset: u64, length: u64) -> io::Result<()> {
        self.add(Record { kind: Kind::Zero, disk, offset, length, data: 0 })
    }

    /// Adds a flush.
    ///
    /// # Errors
    /// An error of the file system, such as a full memory.
    pub fn flush(&mut self, disk: u32) -> io::Result<()> {
        self.add(Record { kind: Kind::Flush, disk, offset: 0, length: 0, data: 0 })
    }

    fn add(&mut self, record: Record) -> io::Result<()> {
        self.index.write_all(&record.encode())
    }
}

/// A finished recording.
#[derive(Debug)]
pub struct Recording {
    /// All requests, in order.
    pub records: Vec<Record>,
    data: File,
}

impl Recording {
    /// Reads the recording in the files `index` and `data`.
    ///
    /// # Errors
    /// An error of the file system, or `InvalidData` if the index is not one.
    pub fn open(index: &Path, data: &Path) -> io::Result<Recording> {
        let entries = std::fs::read(index)?;
        let records: Option<Vec<Record>> = entries.chunks(ENTRY_BYTES).map(Record::decode).collect();
        let records = records.ok_or(io::ErrorKind::InvalidData)?;
        Ok(Recording { records, data: File::open(data)? })
    }

    /// Returns the bytes of a write.
    ///
    /// # Errors
    /// An error of the file system if they cannot be read.
    pub fn bytes(&self, record: &Record) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; record.length as usize];
        if record.kind == Kind::Write {
            self.data.read_exact_at(&mut bytes, record.data)?;
        }
        Ok(bytes)
    }

    /// Returns the position after the last request.
    pub fn end(&self) -> Position {
        Position(self.records.len() as u64)
    }

    /// Returns the index of the last flush of `disk` before `end`, or 0 if there is none.
    pub fn last_flush(&self, disk: u32, end: usize) -> usize {
        let is_flush = |record: &Record| record.kind == Kind::Flush && record.disk == disk;
        self.records[..end].iter().rposition(is_flush).unwrap_or(0)
    }
}

/// Returns the present position of the recorder whose index is open as `index`.
///
/// # Errors
/// An error of the file system if the index cannot be asked.
pub fn position(index: &File) -> io::Result<Position> {
    Ok(Position(index.metadata()?.size() / ENTRY_BYTES as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_as_written() {
        let folder = tempfile::tempdir().unwrap();
        let (index, data) = (folder.path().join("index"), folder.path().join("data"));
        let mut recorder = Recorder::create(&index, &data).unwrap();
        recorder.write(0, 4096, b"first").unwrap();
        recorder.flush(1).unwrap();
        recorder.zero(1, 512, 1024).unwrap();
        recorder.flush(0).unwrap();
        recorder.write(0, 0, b"second").unwrap();
        let recording = Recording::open(&index, &data).unwrap();
        assert_eq!(recording.end(), Position(5));
        assert_eq!(position(&File::open(&index).unwrap()).unwrap(), Position(5));
        let [first, .., last] = recording.records[..] else { panic!("{:?}", recording.records) };
        assert_eq!((first.offset, recording.bytes(&first).unwrap()), (4096, b"first".to_vec()));
        assert_eq!((last.offset, recording.bytes(&last).unwrap()), (0, b"second".to_vec()));
        assert_eq!(recording.bytes(&recording.records[2]).unwrap(), vec![0; 1024]);
        assert_eq!(
            (recording.last_flush(0, 5), recording.last_flush(1, 5), recording.last_flush(0, 3)),
            (3, 1, 0)
        );
    }
}
