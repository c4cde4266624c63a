//! Media of the peers: file systems in memory and the disk, and the files on them.
//!
//! ```text
//!   tmpfs     a file of a tmpfs that is mounted for this
//!   ext4      a file of an ext4 on a loop device, whose own file is on such a tmpfs; past the page cache
//!   disk      a file of the folder's file system, past the page cache
//! ```
//!
//! Every client has a file of its own, so that none waits for another's inode lock. Files are written completely before they
//! are used, so that nothing is allocated while the clock runs. Mounts are removed when [`Media`] is dropped; those of a
//! killed run by the next one ([`crate::workspace`]).

use crate::engine::uninterrupted;
use crate::error::Error;
use crate::mount::Mount;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Medium of a peer's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    Tmpfs,
    /// ext4 on a loop device over memory.
    LoopExt4,
    Disk,
}

impl Medium {
    pub const ALL: [Medium; 3] = [Medium::Tmpfs, Medium::LoopExt4, Medium::Disk];

    /// Name in rows.
    pub fn name(self) -> &'static str {
        match self {
            Medium::Tmpfs => "tmpfs",
            Medium::LoopExt4 => "ext4 on a loop device over memory",
            Medium::Disk => "the disk",
        }
    }

    /// Returns whether files are opened with O_DIRECT. A tmpfs accepts the flag since Linux 6.6, and ignores it.
    pub fn is_direct(self) -> bool {
        self != Medium::Tmpfs
    }
}

/// Media that exist here; unmounted and removed when dropped.
pub struct Media {
    // Dropped in this order: ext4 lies on `below`.
    ext4: Result<Mount, Error>,
    below: Result<Mount, Error>,
    tmpfs: Result<Mount, Error>,
    disk: Result<PathBuf, Error>,
}

/// Space that a file system needs for itself, in bytes.
const EXTRA_BYTES: u64 = 64 << 20;

impl Media {
    /// Makes the media in `folder`, each with room for files of `bytes` bytes in all. The reason why one cannot be made is
    /// returned when it is used.
    ///
    /// # Errors
    /// [`Error::Interrupted`].
    pub fn make(folder: &Path, bytes: u64) -> Result<Media, Error> {
        // ext4 keeps a twentieth for itself.
        let (inner, outer) = (bytes + bytes / 8 + EXTRA_BYTES, bytes + bytes / 4 + 2 * EXTRA_BYTES);
        let tmpfs = uninterrupted(Mount::tmpfs(folder, "serve-tmpfs", bytes + EXTRA_BYTES))?;
        let below = uninterrupted(Mount::tmpfs(folder, "serve-memory", outer))?;
        let ext4 = match &below {
            Ok(below) => uninterrupted(Mount::ext4(folder, "serve-ext4", below.path().join("image"), inner))?,
            Err(error) => Err(again(error)),
        };
        Ok(Media { ext4, below, tmpfs, disk: disk(folder) })
    }

    /// Folder of a medium.
    ///
    /// # Errors
    /// The reason why it could not be made.
    pub fn folder(&self, medium: Medium) -> Result<&Path, Error> {
        let folder = match medium {
            Medium::Tmpfs => self.tmpfs.as_ref().map(Mount::path),
            Medium::LoopExt4 => self.below.as_ref().and(self.ext4.as_ref()).map(Mount::path),
            Medium::Disk => self.disk.as_deref(),
        };
        folder.map_err(again)
    }

    /// Makes a file of `bytes` bytes for each client; those that exist are left as they are.
    ///
    /// # Errors
    /// The reason why there is no such medium, or [`Error::Io`] with the path.
    pub fn files(&self, medium: Medium, clients: usize, bytes: u64) -> Result<Vec<PathBuf>, Error> {
        let folder = self.folder(medium)?;
        let files: Vec<PathBuf> =
            (0..clients).map(|number| folder.join(format!("client-{number}"))).collect();
        for file in &files {
            if fs::metadata(file).map(|data| data.len()).ok() != Some(bytes) {
                write(file, bytes).map_err(|error| Error::io("write", file, error))?;
            }
        }
        Ok(files)
    }
}

/// Makes an error of the same kind and text, for the next side that needs the medium.
fn again(error: &Error) -> Error {
    match error.is_absence() {
        true => Error::Unavailable(error.to_string()),
        false => Error::failed("a medium", format!("cannot be made: {error}")),
    }
}

fn disk(folder: &Path) -> Result<PathBuf, Error> {
    let disk = folder.join("serve-disk");
    fs::create_dir_all(&disk).map_err(|error| Error::io("create", &disk, error))?;
    if crate::place::file_system(&disk) == "tmpfs" {
        let why = format!("{} is on a tmpfs: name a folder on disk with --dir", folder.display());
        return Err(Error::Unavailable(why));
    }
    Ok(disk)
}

fn write(path: &Path, bytes: u64) -> std::io::Result<()> {
    let filling = vec![0xa5u8; 1 << 20];
    let mut file = File::create(path)?;
    let mut left = bytes;
    while left > 0 {
        let length = left.min(filling.len() as u64) as usize;
        file.write_all(&filling[..length])?;
        left -= length as u64;
    }
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_medium_exists_or_has_a_reason_and_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let media = Media::make(folder.path(), 8 << 20).unwrap();
        for medium in Medium::ALL {
            match media.files(medium, 2, 4 << 20) {
                Ok(files) => {
                    assert_eq!(files.len(), 2);
                    assert!(files.iter().all(|file| fs::metadata(file).unwrap().len() == 4 << 20));
                }
                Err(error) => assert!(error.is_absence() && !error.to_string().is_empty(), "{error}"),
            }
        }
        drop(media);
        let left = fs::read_to_string("/proc/self/mounts").unwrap();
        assert!(!left.contains(folder.path().to_str().unwrap()), "{left}");
        let has_files =
            |name: &str| folder.path().join(name).read_dir().is_ok_and(|mut all| all.next().is_some());
        assert!(!has_files("serve-memory") && !has_files("serve-ext4"));
    }
}
