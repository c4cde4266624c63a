//! Rights with which a log is recovered: those of its owner and no more.
//!
//! Whoever can write a log can forge records for any path. So the owner of a file, of a device's node or of a volume counts,
//! whatever the superblock says, and nobody else may be able to write it. The superblock's owner counts only for a device that is root's,
//! where nobody but root (and the group of disks, which can do the same in other ways) has written it.

use crate::error::Error;
use crate::log_file::LogFile;
use crate::sys;
use bywash_log::layout::Superblock;

/// Mode bits of writing by others than the owner, for files and volumes; for devices, whose group may be that of disks.
const FILE_WRITERS: u32 = 0o022;
const DEVICE_WRITERS: u32 = 0o002;

/// Returns the user id with whose rights a log's records may be written into files.
///
/// # Errors
/// [`Error::WritableByOthers`], [`Error::OtherOwner`] or [`Error::Io`].
pub fn owner(log_file: &LogFile, superblock: &Superblock) -> Result<u32, Error> {
    let (owner, mode) = log_file.owner_and_mode()?;
    let path = || log_file.path().to_owned();
    let is_device = log_file.device().is_some();
    let writers = if is_device { DEVICE_WRITERS } else { FILE_WRITERS };
    if mode & writers != 0 {
        return Err(Error::WritableByOthers(path()));
    }
    let stated = superblock.owner;
    if stated == owner || (is_device && owner == 0) {
        return Ok(stated);
    }
    Err(Error::OtherOwner { path: path(), stated, owner })
}

/// Gives up all rights but those of a log's owner, for good. Root only; the owner itself has nothing to give up.
///
/// # Errors
/// [`Error::Owner`] if this process is neither root's nor the owner's; [`Error::Io`].
pub fn become_owner(log_file: &LogFile, superblock: &Superblock) -> Result<(), Error> {
    let owner = owner(log_file, superblock)?;
    let user = rustix::process::geteuid().as_raw();
    if user == owner {
        return Ok(());
    }
    if user != 0 {
        return Err(Error::Owner { path: log_file.path().to_owned(), owner, or_root: true });
    }
    sys::become_user(owner).map_err(Error::io("take the rights of the owner of", log_file.path()))
}

/// Checks that this process is the owner's.
///
/// # Errors
/// [`Error::Owner`], and those of [`owner`].
pub fn check_owner(log_file: &LogFile, superblock: &Superblock) -> Result<(), Error> {
    let owner = owner(log_file, superblock)?;
    if rustix::process::geteuid().as_raw() == owner {
        return Ok(());
    }
    Err(Error::Owner { path: log_file.path().to_owned(), owner, or_root: false })
}
