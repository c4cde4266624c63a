//! Making and removing a log.
//!
//! A file is written full once, so that no block is allocated when a commit is written: its size and its extents are durable
//! before the first one.

use crate::aligned::Aligned;
use crate::contents::Contents;
use crate::error::Error;
use crate::log_file::{Access, LogFile, random_bytes, random_number};
use crate::{place, sys};
use bywash_log::layout::{BATCH_MAX, BLOCK, FILES_MAX, Geometry, Superblock};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Blocks of a log for each entry of its table of files.
const BLOCKS_PER_FILE: u64 = 128;
/// Least number of entries of the table of files.
const FILES_MIN: u64 = 16;
/// Blocks at the beginning of a device that must be empty, unless it may be overwritten.
const LOOKED_AT: usize = 256;

/// Form of a new log.
#[derive(Clone, Copy, Debug, Default)]
pub struct NewLog {
    /// Size in bytes; `None` for [`DEFAULT_BYTES`], or the size of the device.
    pub bytes: Option<u64>,
    /// Accept a log file that forgets when the power fails.
    pub is_volatile_allowed: bool,
    /// Overwrite a device that holds other data.
    pub overwrites_device: bool,
}

/// Size of a log's file unless another is given, in bytes.
pub const DEFAULT_BYTES: u64 = 256 << 20;

/// Makes a log at a path where nothing is, at an empty file, at a log without live records, or on a block device. Returns
/// its geometry.
///
/// # Errors
/// [`Error::Occupied`], [`Error::Live`], [`Error::InUse`], [`Error::TooSmall`], [`Error::Volatile`], [`Error::CopyOnWrite`],
/// [`Error::NotDirect`], [`Error::DeviceBusy`] or [`Error::Io`]. A file that was not there before is not there then, either.
pub fn create(path: &Path, new: &NewLog) -> Result<Geometry, Error> {
    let path = std::path::absolute(path).map_err(Error::io("find", path))?;
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
    match made {
        Ok(file) => {
            drop(file);
            fill(&path, new).inspect_err(|_| {
                // The error that is reported says more than that of the removal.
                let _ = std::fs::remove_file(&path);
            })
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => fill(&path, new),
        Err(error) => Err(Error::io("make", &path)(error)),
    }
}

/// Makes the log in a file or device that exists.
fn fill(path: &Path, new: &NewLog) -> Result<Geometry, Error> {
    let real = path.canonicalize().map_err(Error::io("find", path))?;
    // A device is opened exclusively: the kernel refuses one that is mounted.
    let log_file = LogFile::open_at(real, OFlags::RDWR | OFlags::EXCL)?;
    log_file.lock()?;
    let there = log_file.file().metadata().map_err(Error::io("look at", path))?.len();
    check_replaceable(&log_file, there, new)?;
    place::check(&log_file, new.is_volatile_allowed)?;
    let bytes = match (log_file.is_device(), new.bytes) {
        (false, bytes) => bytes.unwrap_or(DEFAULT_BYTES),
        (true, bytes) => {
            let all = sys::device_bytes(log_file.file()).map_err(Error::io("get the size of", path))?;
            bytes.unwrap_or(all).min(all)
        }
    };
    let geometry = geometry(bytes)?;
    write_full(&log_file, &geometry)?;
    write_superblocks(&log_file, geometry)?;
    if !log_file.is_device() {
        log_file
            .file()
            .set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600))
            .map_err(Error::io("change the mode of", path))?;
    }
    log_file.file().sync_all().map_err(Error::io("sync", path))?;
    sync_folder(path)?;
    Ok(geometry)
}

/// Checks that nothing of value is lost.
fn check_replaceable(log_file: &LogFile, bytes: u64, new: &NewLog) -> Result<(), Error> {
    let path = || log_file.path().to_owned();
    match log_file.superblock() {
        Ok(superblock) => {
            log_file.check_unused(superblock.epoch)?;
            let records = Contents::read(log_file, &superblock)?.live_records();
            if records > 0 { Err(Error::Live { path: path(), records }) } else { Ok(()) }
        }
        Err(Error::NotALog(_)) if log_file.is_device() => {
            if new.overwrites_device || is_empty(log_file)? {
                return Ok(());
            }
            Err(Error::Occupied { path: path(), is_device: true })
        }
        Err(Error::NotALog(_)) if bytes == 0 => Ok(()),
        Err(Error::NotALog(_)) => Err(Error::Occupied { path: path(), is_device: false }),
        Err(error) => Err(error),
    }
}

/// Returns true if the beginning of a device is all zero.
fn is_empty(log_file: &LogFile) -> Result<bool, Error> {
    let mut bytes = Aligned::new(LOOKED_AT * BLOCK);
    let read = log_file.file().read_at(bytes.bytes(), 0).map_err(Error::io("read", log_file.path()))?;
    Ok(bytes.bytes()[..read].iter().all(|byte| *byte == 0))
}

/// Returns the geometry of a log of that size.
fn geometry(bytes: u64) -> Result<Geometry, Error> {
    let blocks = bytes / BLOCK as u64;
    let files = (blocks / BLOCKS_PER_FILE).clamp(FILES_MIN, FILES_MAX.into()) as u32;
    Geometry::new(blocks, files).ok_or_else(|| {
        let least = (0..).find(|blocks| Geometry::new(*blocks, FILES_MIN as u32).is_some());
        Error::TooSmall { bytes, least: least.unwrap_or_default() * BLOCK as u64 }
    })
}

/// Writes zeros: all of a file, and the table of files of a device, whose blocks are there already.
fn write_full(log_file: &LogFile, geometry: &Geometry) -> Result<(), Error> {
    let path = log_file.path();
    let end = BLOCK as u64 * if log_file.is_device() { geometry.area_start() } else { geometry.blocks };
    if !log_file.is_device() {
        log_file.file().set_len(end).map_err(Error::io("set the size of", path))?;
        // Contiguous blocks, if the file system can.
        match rustix::fs::fallocate(log_file.file(), rustix::fs::FallocateFlags::empty(), 0, end) {
            Ok(()) | Err(Errno::OPNOTSUPP) => {}
            Err(error) => return Err(Error::io("allocate", path)(error.into())),
        }
    }
    let mut zeros = Aligned::new(BATCH_MAX);
    let mut at = 0;
    while at < end {
        let length = (end - at).min(BATCH_MAX as u64);
        let bytes = &zeros.bytes()[..length as usize];
        log_file.file().write_all_at(bytes, at).map_err(|error| match error.raw_os_error() {
            Some(libc::EINVAL) => Error::NotDirect { path: path.to_owned(), source: error },
            _ => Error::io("write", path)(error),
        })?;
        at += length;
    }
    log_file.file().sync_all().map_err(Error::io("sync", path))
}

fn write_superblocks(log_file: &LogFile, geometry: Geometry) -> Result<(), Error> {
    let failed = || Error::io("get random bytes for", log_file.path());
    let (holder, _) = log_file.owner_and_mode()?;
    let user = rustix::process::geteuid().as_raw();
    let mut superblock = Superblock {
        id: random_bytes().map_err(failed())?,
        geometry,
        // The owner of the file, or of a device's node: whoever can write the log (`rights`).
        owner: if log_file.is_device() && holder == 0 { user } else { holder },
        writes: 0,
        epoch: random_number().map_err(failed())?,
        tail_block: 0,
        tail_batch: 1,
        recovery_boot: [0; 16],
    };
    log_file.update(&mut superblock, |_| {})?;
    log_file.update(&mut superblock, |_| {})
}

fn sync_folder(path: &Path) -> Result<(), Error> {
    let folder = path.parent().map_or_else(|| PathBuf::from("/"), Path::to_owned);
    File::open(&folder).and_then(|folder| folder.sync_all()).map_err(Error::io("sync", &folder))
}

/// Removes a log without live records: deletes its file, or zeroes the superblocks of a device.
///
/// # Errors
/// [`Error::Live`], [`Error::InUse`], [`Error::Orphaned`], those of [`LogFile::open`] and [`LogFile::superblock`], or
/// [`Error::Io`].
pub fn remove(path: &Path) -> Result<(), Error> {
    let log_file = LogFile::open(path, Access::Write)?;
    log_file.lock()?;
    let superblock = log_file.superblock()?;
    log_file.check_unused(superblock.epoch)?;
    let records = Contents::read(&log_file, &superblock)?.live_records();
    if records > 0 {
        return Err(Error::Live { path: log_file.path().to_owned(), records });
    }
    if log_file.is_device() {
        log_file.write_block(0, &[0; BLOCK])?;
        return log_file.write_block(1, &[0; BLOCK]);
    }
    std::fs::remove_file(log_file.path()).map_err(Error::io("remove", log_file.path()))?;
    sync_folder(log_file.path())
}
