//! Making and removing a log.
//!
//! A file is written full once, so that no block is allocated when a commit is written: its size and its extents are durable
//! before the first one.

use crate::aligned::Aligned;
use crate::contents::Contents;
use crate::error::Error;
use crate::log_file::{Access, LogFile, VolumeFile, VolumeName, random_bytes, random_number};
use crate::{place, sys};
use bywash_log::layout::{BATCH_MAX, BLOCK, FILES_MAX, Geometry, Superblock};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
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

/// Makes a log at a path where nothing is, at an empty file, at a log without live records, on a block device, or on a volume
/// of a device server. Returns its geometry.
///
/// # Errors
/// [`Error::Occupied`], [`Error::Live`], [`Error::InUse`], [`Error::TooSmall`], [`Error::Volatile`], [`Error::CopyOnWrite`],
/// [`Error::NotDirect`], [`Error::DeviceBusy`] or [`Error::Io`]; for a volume those of [`LogFile::open`]. A file that was not
/// there before is not there then, either.
pub fn create(path: &Path, new: &NewLog) -> Result<Geometry, Error> {
    if let Some(name) = VolumeName::parse(path)? {
        return fill(&LogFile::open_volume(name, Access::Write)?, new);
    }
    let path = std::path::absolute(path).map_err(Error::io("find", path))?;
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
    match made {
        Ok(file) => {
            drop(file);
            fill_existing(&path, new).inspect_err(|_| {
                // The error that is reported says more than that of the removal.
                let _ = std::fs::remove_file(&path);
            })
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => fill_existing(&path, new),
        Err(error) => Err(Error::io("make", &path)(error)),
    }
}

/// Makes the log in a file or device that exists.
fn fill_existing(path: &Path, new: &NewLog) -> Result<Geometry, Error> {
    let real = path.canonicalize().map_err(Error::io("find", path))?;
    // A device is opened exclusively: the kernel refuses one that is mounted.
    let geometry = fill(&LogFile::open_at(real, OFlags::RDWR | OFlags::EXCL)?, new)?;
    sync_folder(path)?;
    Ok(geometry)
}

fn fill(log_file: &LogFile, new: &NewLog) -> Result<Geometry, Error> {
    let path = log_file.path();
    log_file.lock()?;
    check_replaceable(log_file, new)?;
    place::check(log_file, new.is_volatile_allowed)?;
    let bytes = match (size_of(log_file)?, new.bytes) {
        (None, bytes) => bytes.unwrap_or(DEFAULT_BYTES),
        (Some(all), bytes) => bytes.unwrap_or(all).min(all),
    };
    let geometry = geometry(bytes)?;
    write_full(log_file, &geometry)?;
    write_superblocks(log_file, geometry)?;
    if let Some(file) = log_file.file() {
        file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600))
            .map_err(Error::io("change the mode of", path))?;
    }
    log_file.sync().map_err(Error::io("sync", path))?;
    Ok(geometry)
}

/// Returns the size of a device or volume, in bytes; `None` for a file, whose size is chosen.
fn size_of(log_file: &LogFile) -> Result<Option<u64>, Error> {
    let device = log_file.device().map(sys::device_bytes).transpose();
    let device = device.map_err(Error::io("get the size of", log_file.path()))?;
    Ok(device.or_else(|| log_file.volume().map(VolumeFile::bytes)))
}

/// Checks that nothing of value is lost.
fn check_replaceable(log_file: &LogFile, new: &NewLog) -> Result<(), Error> {
    let path = || log_file.path().to_owned();
    let file_bytes = log_file.file().map(|file| file.metadata().map(|status| status.len())).transpose();
    let file_bytes = file_bytes.map_err(Error::io("look at", log_file.path()))?;
    match log_file.superblock() {
        Ok(superblock) => {
            log_file.check_unused(superblock.epoch)?;
            let records = Contents::read(log_file, &superblock)?.live_records();
            if records > 0 { Err(Error::Live { path: path(), records }) } else { Ok(()) }
        }
        Err(Error::NotALog(_)) if file_bytes.is_none() => {
            if new.overwrites_device || is_empty(log_file)? {
                return Ok(());
            }
            Err(Error::Occupied { path: path(), is_device: true })
        }
        Err(Error::NotALog(_)) if file_bytes == Some(0) => Ok(()),
        Err(Error::NotALog(_)) => Err(Error::Occupied { path: path(), is_device: false }),
        Err(error) => Err(error),
    }
}

/// Returns true if the beginning of a device is all zero.
fn is_empty(log_file: &LogFile) -> Result<bool, Error> {
    let mut bytes = Aligned::new(LOOKED_AT * BLOCK);
    let read = log_file.read_at(bytes.bytes(), 0).map_err(Error::io("read", log_file.path()))?;
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

/// Writes zeros: all of a file, and the table of files of a device or volume, whose blocks are there already.
fn write_full(log_file: &LogFile, geometry: &Geometry) -> Result<(), Error> {
    let path = log_file.path();
    let file = log_file.file();
    let end = BLOCK as u64 * if file.is_none() { geometry.area_start() } else { geometry.blocks };
    if let Some(file) = file {
        file.set_len(end).map_err(Error::io("set the size of", path))?;
        // Contiguous blocks, if the file system can.
        match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, end) {
            Ok(()) | Err(Errno::OPNOTSUPP) => {}
            Err(error) => return Err(Error::io("allocate", path)(error.into())),
        }
    }
    let mut zeros = Aligned::new(BATCH_MAX);
    let mut at = 0;
    while at < end {
        let length = (end - at).min(BATCH_MAX as u64);
        let bytes = &zeros.bytes()[..length as usize];
        log_file.write_at(bytes, at).map_err(|error| match error.raw_os_error() {
            Some(libc::EINVAL) => Error::NotDirect { path: path.to_owned(), source: error },
            _ => Error::io("write", path)(error),
        })?;
        at += length;
    }
    log_file.sync().map_err(Error::io("sync", path))
}

fn write_superblocks(log_file: &LogFile, geometry: Geometry) -> Result<(), Error> {
    let failed = || Error::io("get random bytes for", log_file.path());
    let (holder, _) = log_file.owner_and_mode()?;
    let user = rustix::process::geteuid().as_raw();
    let mut superblock = Superblock {
        id: random_bytes().map_err(failed())?,
        geometry,
        // The owner of the file, or of a device's node: whoever can write the log (`rights`).
        owner: if log_file.device().is_some() && holder == 0 { user } else { holder },
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

/// Removes a log without live records: deletes its file, or zeroes the beginning of a device or volume.
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
    if log_file.file().is_none() {
        log_file.write_block(0, &[0; BLOCK])?;
        log_file.write_block(1, &[0; BLOCK])?;
        // So that another log can be made there.
        let bytes = LOOKED_AT.min(superblock.geometry.blocks as usize) * BLOCK;
        log_file.write_at(Aligned::new(bytes).bytes(), 0).map_err(Error::io("write", log_file.path()))?;
        return match log_file.volume().map(|volume| volume.locks().1) {
            Some(locks) => std::fs::remove_file(locks).map_err(Error::io("remove", locks)),
            None => Ok(()),
        };
    }
    std::fs::remove_file(log_file.path()).map_err(Error::io("remove", log_file.path()))?;
    sync_folder(log_file.path())
}
