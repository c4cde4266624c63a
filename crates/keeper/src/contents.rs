//! Contents of a log that nobody writes: its files, and the records of each that are live.

use crate::error::Error;
use crate::log_file::{LogFile, Reader};
use bywash_log::head::Head;
use bywash_log::layout::{FileNumber, Superblock};
use bywash_log::read::{self, Files, ReadError};
use std::collections::BTreeMap;

/// Live records of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Live {
    /// Number of records.
    pub records: u64,
    /// Bytes of the file in them.
    pub bytes: u64,
    /// Greatest sequence number.
    pub newest: u64,
}

/// Contents of a log.
#[derive(Debug)]
pub struct Contents {
    /// All files that joined the log since it was emptied.
    pub files: Files,
    /// Files with live records.
    pub live: BTreeMap<FileNumber, Live>,
    /// End of the log.
    pub head: Head,
}

impl Contents {
    /// Reads and checks a log.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::UnknownFile`] or [`Error::Io`].
    pub fn read(log_file: &LogFile, superblock: &Superblock) -> Result<Contents, Error> {
        Contents::read_by(&mut Reader::new(log_file), log_file, superblock)
    }

    /// Reads and checks a log by a reader of it.
    ///
    /// # Errors
    /// Same as [`Contents::read`].
    pub(crate) fn read_by(
        reader: &mut Reader<'_>,
        log_file: &LogFile,
        superblock: &Superblock,
    ) -> Result<Contents, Error> {
        let files = read::files(reader, superblock).map_err(|error| failed(log_file, error))?;
        let mut live = BTreeMap::<FileNumber, Live>::new();
        let mut unknown = None;
        let head = read::batches(reader, superblock, |record, bytes| match files.get(&record.file) {
            None => unknown = unknown.or(Some(record.file.slot)),
            Some(file) if file.is_live(record.sequence) => {
                let live = live.entry(record.file).or_default();
                live.records += 1;
                live.bytes += bytes.len() as u64;
                live.newest = live.newest.max(record.sequence);
            }
            Some(_) => {}
        });
        let head = head.map_err(|error| failed(log_file, error))?;
        match unknown {
            Some(slot) => Err(Error::UnknownFile { path: log_file.path().to_owned(), slot }),
            None => Ok(Contents { files, live, head }),
        }
    }

    /// Returns the number of live records.
    pub fn live_records(&self) -> u64 {
        self.live.values().map(|live| live.records).sum()
    }

    /// Returns true if nothing was written since the log was emptied.
    pub fn is_untouched(&self, superblock: &Superblock) -> bool {
        self.files.is_empty() && self.head.number == superblock.tail_batch
    }
}

/// Returns the failure to read a log.
pub(crate) fn failed(log_file: &LogFile, error: ReadError<std::io::Error>) -> Error {
    let path = log_file.path().to_owned();
    match error {
        ReadError::Storage(error) => Error::io("read", &path)(error),
        ReadError::Superblock(damage) => Error::Superblock { path, damage },
        ReadError::Corruption(corruption) => Error::Corrupt { path, corruption },
    }
}
