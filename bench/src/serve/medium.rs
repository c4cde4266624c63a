//! The kernel's ways to the same kind of memory, and to the disk, and the files on them.
//!
//! ```text
//!   tmpfs     a file of a tmpfs that is mounted for this
//!   ext4      a file of an ext4 on a loop device, whose own file is on such a tmpfs; past the page cache
//!   disk      a file of the folder's file system, past the page cache
//! ```
//!
//! Every client has a file of its own, so that none waits for another's lock of an inode. Files are written from one end
//! to the other before they are used: nothing is allocated while the clock runs. What was mounted is unmounted when this
//! is dropped; what a killed run left, by the next one ([`crate::workspace`]).

use crate::engine::uninterrupted as interruption;
use crate::error::Error;
use crate::mount::Mount;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Where a peer's bytes lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// A file system in memory, without a device.
    Tmpfs,
    /// ext4 on a loop device over memory.
    LoopExt4,
    /// The disk.
    Disk,
}

impl Medium {
    /// All of them.
    pub const ALL: [Medium; 3] = [Medium::Tmpfs, Medium::LoopExt4, Medium::Disk];

    /// Its name in rows.
    pub fn name(self) -> &'static str {
        match self {
            Medium::Tmpfs => "tmpfs",
            Medium::LoopExt4 => "ext4 on a loop device over memory",
            Medium::Disk => "the disk",
        }
    }

    /// Whether its files are opened with O_DIRECT. A tmpfs takes the flag since Linux 6.6, and does the same as without.
    pub fn is_direct(self) -> bool {
        self != Medium::Tmpfs
    }
}

/// The media that there are here; unmounted and removed when dropped.
pub struct Media {
    // In this order: what lies on another goes first.
    ext4: Result<Mount, Why>,
    below: Result<Mount, Why>,
    tmpfs: Result<Mount, Why>,
    disk: Result<PathBuf, Why>,
}

/// Why there is no such medium: it cannot be had here, or it was tried and failed.
#[derive(Clone)]
struct Why {
    words: String,
    is_absence: bool,
}

impl Why {
    fn not_wanted() -> Why {
        Why { words: "it was not asked for".into(), is_absence: true }
    }
}

/// What a file system needs for itself.
const EXTRA_BYTES: u64 = 64 << 20;

impl Media {
    /// Makes those of `wanted` in `folder`, each with room for files of `bytes` bytes in all. What cannot be had is told
    /// when it is asked for.
    ///
    /// # Errors
    /// [`Error::Interrupted`].
    pub fn make(folder: &Path, wanted: &[Medium], bytes: u64) -> Result<Media, Error> {
        let on = |medium, had: &dyn Fn() -> Result<Mount, Error>| match wanted.contains(&medium) {
            true => told(had()),
            false => Ok(Err(Why::not_wanted())),
        };
        // A file system keeps a twentieth for itself.
        let (inner, outer) = (bytes + bytes / 8 + EXTRA_BYTES, bytes + bytes / 4 + 2 * EXTRA_BYTES);
        let tmpfs = on(Medium::Tmpfs, &|| Mount::tmpfs(folder, "serve-tmpfs", bytes + EXTRA_BYTES))?;
        let below = on(Medium::LoopExt4, &|| Mount::tmpfs(folder, "serve-memory", outer))?;
        let ext4 = match &below {
            Ok(below) => {
                let image = below.path().join("image");
                told(Mount::ext4(folder, "serve-ext4", image, inner))?
            }
            Err(why) => Err(why.clone()),
        };
        let disk = match wanted.contains(&Medium::Disk) {
            true => told(disk(folder))?,
            false => Err(Why::not_wanted()),
        };
        Ok(Media { ext4, below, tmpfs, disk })
    }

    /// The folder of a medium.
    ///
    /// # Errors
    /// Why there is none.
    pub fn folder(&self, medium: Medium) -> Result<&Path, Error> {
        let had = match medium {
            Medium::Tmpfs => self.tmpfs.as_ref().map(Mount::path),
            Medium::LoopExt4 => self.below.as_ref().and(self.ext4.as_ref()).map(Mount::path),
            Medium::Disk => self.disk.as_deref(),
        };
        had.map_err(|why| match why.is_absence {
            true => Error::Unavailable(why.words.clone()),
            false => Error::failed(medium.name(), format!("cannot be made: {}", why.words)),
        })
    }

    /// Files of `bytes` bytes there, for so many clients; those that are there already are left as they are.
    ///
    /// # Errors
    /// Why there is no such medium; the kernel's.
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

    /// Removes the files, so that others have room.
    ///
    /// # Errors
    /// The kernel's.
    pub fn clear(&self) -> Result<(), Error> {
        for folder in Medium::ALL.iter().filter_map(|medium| self.folder(*medium).ok()) {
            for entry in fs::read_dir(folder).map_err(|error| Error::io("list", folder, error))?.flatten() {
                let (path, name) = (entry.path(), entry.file_name());
                if name.to_string_lossy().starts_with("client-") {
                    fs::remove_file(&path).map_err(|error| Error::io("remove", &path, error))?;
                }
            }
        }
        Ok(())
    }
}

/// Keeps a reason instead of an error, but for an interruption.
fn told<T>(had: Result<T, Error>) -> Result<Result<T, Why>, Error> {
    let had = interruption(had)?;
    Ok(had.map_err(|error| Why { words: error.to_string(), is_absence: error.is_absence() }))
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
    fn every_medium_is_there_or_says_why_and_is_gone_afterwards() {
        let folder = tempfile::tempdir().unwrap();
        let media = Media::make(folder.path(), &Medium::ALL, 8 << 20).unwrap();
        for medium in Medium::ALL {
            match media.files(medium, 2, 4 << 20) {
                Ok(files) => {
                    assert_eq!(files.len(), 2);
                    assert!(files.iter().all(|file| fs::metadata(file).unwrap().len() == 4 << 20));
                }
                Err(error) => assert!(error.is_absence() && !error.to_string().is_empty(), "{error}"),
            }
        }
        media.clear().unwrap();
        let is_empty = |folder: &Path| {
            fs::read_dir(folder)
                .unwrap()
                .flatten()
                .all(|entry| !entry.file_name().to_string_lossy().starts_with("client-"))
        };
        assert!(Medium::ALL.iter().filter_map(|medium| media.folder(*medium).ok()).all(is_empty));
        let mounted =
            |name: &str| folder.path().join(name).read_dir().is_ok_and(|mut all| all.next().is_some());
        drop(media);
        let left = fs::read_to_string("/proc/self/mounts").unwrap();
        assert!(!left.contains(folder.path().to_str().unwrap()), "{left}");
        assert!(!mounted("serve-memory") && !mounted("serve-ext4"));
    }

    #[test]
    fn what_was_not_asked_for_is_not_made() {
        let folder = tempfile::tempdir().unwrap();
        let media = Media::make(folder.path(), &[], 1 << 20).unwrap();
        for medium in Medium::ALL {
            assert!(media.folder(medium).unwrap_err().to_string().contains("not asked for"));
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
