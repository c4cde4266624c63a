//! Folder and name of a keeper's socket.
//!
//! The folder belongs to the log's owner alone: nobody else can put a socket there that pretends to be the keeper.

use crate::error::Error;
use crate::log_file::LogFile;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Returns the folders in which the socket of an owner's log can be, the best one first.
fn folders(owner: u32) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    // The variable may be another user's (sudo).
    let is_owners = |path: &Path| std::fs::metadata(path).is_ok_and(|status| status.uid() == owner);
    if let Some(runtime) = std::env::var_os("XDG_RUNTIME_DIR").filter(|path| is_owners(Path::new(path))) {
        folders.push(Path::new(&runtime).join("bywash"));
    }
    if owner == 0 {
        // Not /run/bywash, which is the folder of the device server's user.
        folders.push("/run/bywash-log".into());
    }
    folders.push(format!("/run/user/{owner}/bywash").into());
    folders.push(format!("/tmp/bywash-{owner}").into());
    folders
}

/// Returns true if a folder is the owner's alone.
///
/// # Errors
/// The kernel's reason; `NotFound` if there is none.
fn is_private(folder: &Path, owner: u32) -> io::Result<bool> {
    let status = std::fs::symlink_metadata(folder)?;
    Ok(status.is_dir() && status.uid() == owner && status.mode() & 0o077 == 0)
}

/// Returns the path at which this process listens as the keeper of its own log.
///
/// # Errors
/// [`Error::Runtime`] if somebody else has the folder; [`Error::Io`] if none can be made.
pub fn socket_to_listen(log_file: &LogFile, owner: u32) -> Result<PathBuf, Error> {
    let name = name(log_file)?;
    let mut last = None;
    for folder in folders(owner) {
        match std::fs::DirBuilder::new().mode(0o700).create(&folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => last = Some((folder, error)),
            _ => match is_private(&folder, owner) {
                Ok(true) => return Ok(folder.join(name)),
                _ => return Err(Error::Runtime { path: folder, owner }),
            },
        }
    }
    let (folder, error) = last.unwrap_or_else(|| ("/tmp".into(), io::ErrorKind::NotFound.into()));
    Err(Error::io("make the folder", &folder)(error))
}

/// Returns the paths at which the keeper of an owner's log may listen.
///
/// # Errors
/// [`Error::Io`].
pub fn sockets(log_file: &LogFile, owner: u32) -> Result<Vec<PathBuf>, Error> {
    let name = name(log_file)?;
    let private = folders(owner).into_iter().filter(|folder| is_private(folder, owner).unwrap_or(false));
    Ok(private.map(|folder| folder.join(&name)).collect())
}

/// Returns the name of a log's socket.
fn name(log_file: &LogFile) -> Result<String, Error> {
    let (device, inode) = log_file.identity()?;
    Ok(format!("log-{device:x}-{inode:x}"))
}
