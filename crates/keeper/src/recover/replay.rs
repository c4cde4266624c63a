//! Writing of live records into their files, in the order in which they were committed.

use super::find::Found;
use super::{Step, Steps, Task};
use crate::contents::{Contents, failed};
use crate::error::Error;
use crate::log_file::{LogFile, Reader};
use bywash_log::layout::{FileNumber, RecordHeader, Superblock};
use bywash_log::read;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Files that are written.
pub struct Replay<'a> {
    files: BTreeMap<FileNumber, Written<'a>>,
}

/// File that is written.
struct Written<'a> {
    file: &'a File,
    path: &'a Path,
    /// Size of the file, in bytes.
    size: u64,
}

impl<'a> Replay<'a> {
    /// Takes the files among the tasks that are to be written.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn new(tasks: &'a [Task]) -> Result<Replay<'a>, Error> {
        let mut files = BTreeMap::new();
        for task in tasks {
            let Found::Written(file) = &task.found else { continue };
            let path = task.path.as_path();
            let size = file.metadata().map_err(Error::io("look at", path))?.len();
            files.insert(task.number, Written { file, path, size });
        }
        Ok(Replay { files })
    }

    /// Writes all live records of these files.
    pub fn run(
        &mut self,
        reader: &mut Reader<'_>,
        log_file: &LogFile,
        superblock: &Superblock,
        (contents, steps): (&Contents, &mut Steps<'_, '_>),
    ) -> Result<(), Error> {
        let mut outcome = Ok(());
        let read = read::batches(reader, superblock, |record, bytes| {
            let is_live = contents.files.get(&record.file).is_some_and(|file| file.is_live(record.sequence));
            let Some(written) = self.files.get_mut(&record.file).filter(|_| is_live) else { return };
            if outcome.is_ok() {
                let step = steps.take(Step::Write);
                let path = written.path;
                outcome = step.and_then(|()| written.write(&record, bytes).map_err(Error::io("write", path)));
            }
        });
        read.map_err(|error| failed(log_file, error))?;
        outcome
    }
}

impl Written<'_> {
    fn write(&mut self, record: &RecordHeader, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, record.offset)?;
        self.size = self.size.max(record.offset + bytes.len() as u64);
        if self.size < record.size {
            self.file.set_len(record.size)?;
            self.size = record.size;
        }
        Ok(())
    }
}
