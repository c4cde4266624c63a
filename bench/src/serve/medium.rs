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

use super::moved::FILLING;
use crate::engine::uninterrupted;
use crate::error::{Attempt, Error};
use crate::mount::Mount;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Medium of a peer's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Medium {
    Tmpfs,
    /// ext4 on a loop device over memory.
    LoopExt4,
    Disk,
}

impl Medium {
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

/// Media that exist here, or the reason why one cannot be made; unmounted and removed when dropped.
pub struct Media {
    // Dropped in this order: ext4 lies on `below`.
    ext4: Result<Mount, Error>,
    _below: Option<Mount>,
    tmpfs: Result<Mount, Error>,
    disk: Result<PathBuf, Error>,
}

/// Space that a file system needs for itself, in bytes.
const EXTRA_BYTES: u64 = 64 << 20;
/// Size of a write that fills a file, in bytes; files have a multiple of it.
const FILL_BYTES: usize = 1 << 20;

impl Media {
    /// Makes the media in `folder`, each with room for files of `bytes` bytes in all.
    pub fn make(folder: &Path, bytes: u64) -> Result<Media, Error> {
        // ext4 keeps a twentieth for itself.
        let (inner, outer) = (bytes + bytes / 8 + EXTRA_BYTES, bytes + bytes / 4 + 2 * EXTRA_BYTES);
        let tmpfs = uninterrupted(Mount::tmpfs(folder, "serve-tmpfs", bytes + EXTRA_BYTES))?;
        let (ext4, below) = match uninterrupted(Mount::tmpfs(folder, "serve-memory", outer))? {
            Err(error) => (Err(error), None),
            Ok(below) => {
                let ext4 = Mount::ext4(folder, "serve-ext4", below.path().join("image"), inner);
                (uninterrupted(ext4)?, Some(below))
            }
        };
        let disk = folder.join("serve-disk");
        fs::create_dir_all(&disk).doing("create", &disk)?;
        let is_on_disk = crate::place::file_system(&disk) != "tmpfs";
        let why = format!("{} is on a tmpfs: name a folder on disk with --dir", folder.display());
        let disk = if is_on_disk { Ok(disk) } else { Err(Error::Unavailable(why)) };
        Ok(Media { ext4, _below: below, tmpfs, disk })
    }

    /// Folder of a medium, or an error of the kind and text that it could not be made for.
    pub fn folder(&self, medium: Medium) -> Result<&Path, Error> {
        let folder = match medium {
            Medium::Tmpfs => self.tmpfs.as_ref().map(Mount::path),
            Medium::LoopExt4 => self.ext4.as_ref().map(Mount::path),
            Medium::Disk => self.disk.as_deref(),
        };
        folder.map_err(|error| match error.is_absence() {
            true => Error::Unavailable(error.to_string()),
            false => Error::failed("a medium", format!("cannot be made: {error}")),
        })
    }

    /// Makes a file of `bytes` bytes for each client; those that exist are left as they are.
    pub fn files(&self, medium: Medium, clients: usize, bytes: u64) -> Result<Vec<PathBuf>, Error> {
        let folder = self.folder(medium)?;
        let files: Vec<PathBuf> =
            (0..clients).map(|number| folder.join(format!("client-{number}"))).collect();
        for file in &files {
            if fs::metadata(file).map(|data| data.len()).ok() != Some(bytes) {
                write(file, bytes).doing("write", file)?;
            }
        }
        Ok(files)
    }
}

fn write(path: &Path, bytes: u64) -> std::io::Result<()> {
    let (mut file, filling) = (File::create(path)?, vec![FILLING; FILL_BYTES]);
    for _ in 0..bytes / FILL_BYTES as u64 {
        file.write_all(&filling)?;
    }
    file.sync_all()
}
