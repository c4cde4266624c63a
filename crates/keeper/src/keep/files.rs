//! Files of a running log as the keeper reaches them: by their recorded identities, kept open while they have live records.
//!
//! A file that is open since before it was written tells of every failure to write it back (errseq, fsync(2)).

use crate::log_file::LogFile;
use crate::recover::find;
use bywash_log::join::CLAIM;
use bywash_log::layout::{FileNumber, Identity};
use bywash_log::shared::Shared;
use bywash_log::sys;
use rustix::fs::OFlags;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Greatest number of files that are kept open.
const OPEN_MAX: usize = 512;

/// File of an entry, or its file system if the file has another name by now.
#[derive(Debug)]
pub enum Reached {
    /// The file itself.
    File(File),
    /// A folder on the file's file system.
    FileSystem(File),
}

impl Reached {
    /// Makes the file durable. Returns true if it had lost its last name before.
    ///
    /// # Errors
    /// The kernel's reason: the file is not durable then.
    pub fn sync(&self) -> io::Result<bool> {
        match self {
            Reached::File(file) => {
                let is_unlinked = file.metadata()?.nlink() == 0;
                file.sync_all()?;
                Ok(is_unlinked)
            }
            Reached::FileSystem(folder) => {
                rustix::fs::syncfs(folder)?;
                Ok(false)
            }
        }
    }

    /// Removes the log's claim and makes that durable: the last resort if a mark cannot be written.
    ///
    /// # Errors
    /// The kernel's reason.
    pub fn disown(&self) -> io::Result<()> {
        let Reached::File(file) = self else { return Err(io::ErrorKind::NotFound.into()) };
        sys::remove_attribute(file.as_raw_fd(), CLAIM).map_err(io::Error::from_raw_os_error)?;
        file.sync_all()
    }
}

/// Files that are open.
#[derive(Debug)]
pub struct OpenFiles {
    log_file: Arc<LogFile>,
    shared: Shared,
    open: HashMap<FileNumber, Reached>,
}

impl OpenFiles {
    /// No file is open yet.
    pub fn new(log_file: Arc<LogFile>, shared: Shared) -> OpenFiles {
        OpenFiles { log_file, shared, open: HashMap::new() }
    }

    /// Returns the file with a number, opened if it is not open.
    ///
    /// # Errors
    /// The kernel's reason; `NotFound` if not even the file system is found.
    pub fn get(&mut self, number: FileNumber) -> io::Result<&Reached> {
        if self.open.len() >= OPEN_MAX && !self.open.contains_key(&number) {
            self.open.clear();
        }
        if !self.open.contains_key(&number) {
            let reached = self.reach(number)?;
            self.open.insert(number, reached);
        }
        self.open.get(&number).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn reach(&self, number: FileNumber) -> io::Result<Reached> {
        let block = read_identity(&self.log_file, &self.shared, number.slot)?;
        let identity = Identity::decode(&block).map_err(|_| io::ErrorKind::InvalidData)?;
        if identity.file != number {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let opened =
            find::open(&identity, OFlags::RDWR).or_else(|_| find::open(&identity, OFlags::RDONLY))?;
        match opened {
            Some(file) => Ok(Reached::File(file)),
            None => find::folder_of_file_system(&identity)
                .map(Reached::FileSystem)
                .ok_or_else(|| io::ErrorKind::NotFound.into()),
        }
    }

    /// Closes all files but those that `is_kept` names.
    pub fn retain(&mut self, is_kept: impl Fn(FileNumber) -> bool) {
        self.open.retain(|number, _| is_kept(*number));
    }

    /// Removes the log's claim from the file with a number, which has no live records.
    pub fn release(&mut self, number: FileNumber) {
        let id = self.shared.id();
        if let Ok(Reached::File(file)) = self.get(number) {
            find::release_file(file, id);
        }
        self.open.remove(&number);
    }
}

/// Reads the block with the identity of the file in a slot.
fn read_identity(log_file: &LogFile, shared: &Shared, slot: u32) -> io::Result<bywash_log::layout::Block> {
    let geometry = shared.geometry().ok_or(io::ErrorKind::InvalidData)?;
    log_file.read_block(geometry.identity(slot))
}

/// Returns the recorded path of the file in a slot.
pub fn recorded_path(log_file: &LogFile, shared: &Shared, slot: u32) -> Option<PathBuf> {
    let block = read_identity(log_file, shared, slot).ok()?;
    let identity = Identity::decode(&block).ok()?;
    (identity.epoch == shared.header().epoch.load(Relaxed)).then(|| find::path(&identity))
}
