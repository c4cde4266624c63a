//! Finding of the file that an identity names, and of no other: the file at the recorded path, or another name of it in the
//! same folder, whose handle, file system and claim are the recorded ones.
//!
//! Everything here happens with the rights of the log's owner, who can forge an identity, but has no use for it.

use crate::problem::{Problem, ProblemKind};
use bywash_log::join::{self, CLAIM};
use bywash_log::layout::Identity;
use bywash_log::sys;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Conditions that a file must fulfil to be recovered.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Id of the log, which must claim the file.
    pub log: [u8; 16],
    /// Id of this boot.
    pub boot: [u8; 16],
    /// The page cache is lost, although the boot is the same.
    pub has_crashed: bool,
    /// An interrupted recovery of this boot may have written the file.
    pub may_be_newer: bool,
}

/// File that was found, and what is to be done with it.
#[derive(Debug)]
pub enum Found {
    /// Its records are written into it.
    Written(File),
    /// The page cache holds what was committed: it is only made durable.
    Synced(File),
    /// As `Synced`, but the file has another name by now, so its file system is made durable: a folder there.
    WithItsFileSystem(File),
    /// The log has no claim on it any more, which is how the log file's users make records dead that they cannot mark.
    Released,
    /// The user gives its records up.
    GivenUp,
}

/// Finds the file of an identity, and decides from the rules what is to be done with it.
///
/// # Errors
/// [`Problem`].
pub fn find(identity: &Identity<'_>, rules: &Rules) -> Result<Found, Problem> {
    let path = path(identity);
    let problem = |kind| Problem::new(&path, kind);
    let is_synced = identity.boot == rules.boot && !rules.has_crashed;
    let access = if is_synced { OFlags::RDONLY } else { OFlags::RDWR };
    let file = match open(identity, access) {
        Ok(Some(file)) => file,
        Ok(None) => {
            let folder = folder_of_file_system(identity).ok_or_else(|| problem(ProblemKind::NotMounted))?;
            return if is_synced {
                Ok(Found::WithItsFileSystem(folder))
            } else {
                Err(problem(ProblemKind::Missing))
            };
        }
        Err(error) => return Err(problem(ProblemKind::Io("open", error))),
    };
    if is_synced {
        return Ok(Found::Synced(file));
    }
    match sys::attribute(file.as_raw_fd(), CLAIM) {
        Ok(Some(claim)) if claim == rules.log => {}
        Ok(Some(_)) => return Err(problem(ProblemKind::Claimed)),
        Ok(None) => return Ok(Found::Released),
        Err(number) => {
            let error = io::Error::from_raw_os_error(number);
            return Err(problem(ProblemKind::Io("read the claim of", error)));
        }
    }
    let is_newer = is_newer(&file).map_err(|error| problem(ProblemKind::Io("look at", error)))?;
    if is_newer && !rules.may_be_newer && !rules.has_crashed {
        return Err(problem(ProblemKind::Newer));
    }
    Ok(Found::Written(file))
}

/// Removes the claim of a log from a file. A file that cannot be reached keeps a claim without meaning.
pub fn release(identity: &Identity<'_>, log: [u8; 16]) {
    if let Ok(Some(file)) = open(identity, OFlags::RDONLY) {
        release_file(&file, log);
    }
}

/// Removes the claim of a log from an open file.
pub(crate) fn release_file(file: &File, log: [u8; 16]) {
    if sys::attribute(file.as_raw_fd(), CLAIM) == Ok(Some(log)) {
        // A claim of a log without live records means nothing; another log's user is told of it.
        let _ = sys::remove_attribute(file.as_raw_fd(), CLAIM);
    }
}

/// Opens the file of an identity, at its path or under another name in the same folder; `None` if it is not there.
pub(crate) fn open(identity: &Identity<'_>, access: OFlags) -> io::Result<Option<File>> {
    let path = path(identity);
    if let Some(file) = open_if_same(&path, identity, access)? {
        return Ok(Some(file));
    }
    let Some(entries) = path.parent().and_then(|folder| folder.read_dir().ok()) else { return Ok(None) };
    for entry in entries.flatten().filter(|entry| entry.ino() == identity.inode) {
        if let Some(file) = open_if_same(&entry.path(), identity, access)? {
            return Ok(Some(file));
        }
    }
    Ok(None)
}

/// Opens a file if it is the one of an identity.
fn open_if_same(path: &Path, identity: &Identity<'_>, access: OFlags) -> io::Result<Option<File>> {
    let status = match std::fs::symlink_metadata(path) {
        Ok(status) => status,
        Err(error) if is_absent(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    // Nothing but the file itself is opened: a FIFO or a device could do anything.
    if !status.is_file() || status.ino() != identity.inode {
        return Ok(None);
    }
    let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(fd) => File::from(fd),
        Err(Errno::LOOP | Errno::NOENT) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let fd = file.as_raw_fd();
    let same_handle = join::handle(fd).is_ok_and(|(kind, bytes, length)| {
        kind == identity.handle_type && bytes[..length] == *identity.handle
    });
    let is_same = same_handle && join::filesystem(fd) == Ok(identity.filesystem);
    Ok(is_same.then_some(file))
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Returns the nearest folder above the file that is on its file system.
pub(crate) fn folder_of_file_system(identity: &Identity<'_>) -> Option<File> {
    let path = path(identity);
    path.ancestors().skip(1).find_map(|folder| {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = File::from(rustix::fs::open(folder, flags, Mode::empty()).ok()?);
        (join::filesystem(folder.as_raw_fd()) == Ok(identity.filesystem)).then_some(folder)
    })
}

/// Returns the recorded path.
pub(crate) fn path(identity: &Identity<'_>) -> PathBuf {
    Path::new(OsStr::from_bytes(identity.path)).to_owned()
}

/// Returns true if the inode was changed since this boot began.
fn is_newer(file: &File) -> io::Result<bool> {
    let status = file.metadata()?;
    let changed = Duration::new(status.ctime().max(0) as u64, status.ctime_nsec().max(0) as u32);
    let running = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let running = Duration::new(running.tv_sec.max(0) as u64, running.tv_nsec.max(0) as u32);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(changed > now.saturating_sub(running))
}
