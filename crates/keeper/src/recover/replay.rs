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
    files: BTreeMap<FileNumber, (&'a File, &'a Path)>,
}

impl<'a> Replay<'a> {
    /// Takes the files among the tasks that are to be written.
    pub fn new(tasks: &'a [Task]) -> Replay<'a> {
        let files = tasks.iter().filter_map(|task| match &task.found {
            Found::Written(file) => Some((task.number, (file, task.path.as_path()))),
            _ => None,
        });
        Replay { files: files.collect() }
    }

    /// Writes all live records of these files.
    pub fn run(
        &self,
        log_file: &LogFile,
        superblock: &Superblock,
        contents: &Contents,
        steps: &mut Steps<'_, '_>,
    ) -> Result<(), Error> {
        let mut outcome = Ok(());
        let read = read::batches(&mut Reader::new(log_file), superblock, |record, bytes| {
            let is_live = contents.files.get(&record.file).is_some_and(|file| file.is_live(record.sequence));
            let Some((file, path)) = self.files.get(&record.file).filter(|_| is_live) else { return };
            if outcome.is_ok() {
                let step = steps.take(Step::Write);
                outcome = step.and_then(|()| write(file, &record, bytes).map_err(Error::io("write", path)));
            }
        });
        read.map_err(|error| failed(log_file, error))?;
        outcome
    }
}

fn write(file: &File, record: &RecordHeader, bytes: &[u8]) -> io::Result<()> {
    file.write_all_at(bytes, record.offset)?;
    if file.metadata()?.len() < record.size {
        file.set_len(record.size)?;
    }
    Ok(())
}
