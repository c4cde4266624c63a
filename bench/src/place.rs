//! The file systems that cases run on.
//!
//! What a write costs depends on the size of the page cache's folios, and that on how the file was first
//! written: in chunks of 4 KiB (small folios) or of 1 MiB (large ones). So a place is a file system and a
//! chunk, and every file that a case starts from is written by [`Place::write_file`] or [`Place::copy_tree`].

use crate::error::Error;
use crate::mount::Mount;
use crate::usage::BlockDevice;
use crate::workspace;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Begins the name of a run's folder in memory; the process id follows.
const MEMORY_PREFIX: &str = "bywash-bench-";

/// Kind of place that a case asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A file system in memory.
    Tmpfs,
    /// The disk's file system, files written in 4 KiB chunks.
    DiskSmall,
    /// The disk's file system, files written in 1 MiB chunks.
    DiskLarge,
    /// XFS on a loop device, files written in 1 MiB chunks.
    Xfs,
}

impl Kind {
    /// All of them.
    pub const ALL: &'static [Kind] = &[Kind::Tmpfs, Kind::DiskSmall, Kind::DiskLarge, Kind::Xfs];
    /// Those with a device.
    pub const DEVICES: &'static [Kind] = &[Kind::DiskSmall, Kind::DiskLarge, Kind::Xfs];
}

/// One of them, ready to be used.
pub struct Place {
    /// Which kind it is.
    pub kind: Kind,
    /// Its name in rows.
    pub name: String,
    /// A folder there that is this run's own.
    pub root: PathBuf,
    /// The device under it.
    pub device: Option<BlockDevice>,
    chunk: usize,
}

/// A place, or why there is none.
pub enum Offer {
    /// Ready.
    Here(Place),
    /// Cannot be had here.
    Absent {
        /// The kind.
        kind: Kind,
        /// The name that its rows would have.
        name: String,
        /// Why.
        why: String,
    },
}

impl Offer {
    /// The kind, had or not.
    pub fn kind(&self) -> Kind {
        match self {
            Offer::Here(place) => place.kind,
            Offer::Absent { kind, .. } => *kind,
        }
    }

    /// The name, had or not.
    pub fn name(&self) -> &str {
        match self {
            Offer::Here(place) => &place.name,
            Offer::Absent { name, .. } => name,
        }
    }
}

/// Every place of this machine; what was made for them is removed when this is dropped.
pub struct Places {
    /// One offer a kind, in the order of [`Kind::ALL`].
    pub offers: Vec<Offer>,
    memory: Option<PathBuf>,
    _xfs: Option<Mount>,
}

impl Places {
    /// Makes those of `wanted` that can be had and whose name contains `part`, the disk's in `folder`.
    ///
    /// # Errors
    /// [`Error::Interrupted`], or when `folder` cannot be used at all.
    pub fn make(folder: &Path, wanted: &[Kind], part: &str) -> Result<Places, Error> {
        let mut places = Places { offers: Vec::new(), memory: None, _xfs: None };
        for kind in wanted {
            let name = name_of(*kind, folder);
            if !name.contains(part) {
                continue;
            }
            let made = match kind {
                Kind::Tmpfs => places.make_tmpfs(),
                Kind::DiskSmall => disk(folder, "small", 4096),
                Kind::DiskLarge => disk(folder, "large", 1 << 20),
                Kind::Xfs => places.make_xfs(folder),
            };
            places.offers.push(match made {
                Ok((root, chunk)) => {
                    let device = BlockDevice::under(&root)?;
                    Offer::Here(Place { kind: *kind, name, root, device, chunk })
                }
                Err(Error::Interrupted) => return Err(Error::Interrupted),
                Err(error) => Offer::Absent { kind: *kind, name, why: error.to_string() },
            });
        }
        Ok(places)
    }

    fn make_tmpfs(&mut self) -> Result<(PathBuf, usize), Error> {
        let candidates = ["/dev/shm", "/tmp", "/run"];
        let Some(parent) = candidates.iter().map(Path::new).find(|path| is_writable_tmpfs(path)) else {
            return Err(Error::Unavailable(format!(
                "none of {} is a tmpfs that can be written: mount one at /dev/shm",
                candidates.join(", ")
            )));
        };
        workspace::sweep(parent, MEMORY_PREFIX);
        // One process may have several at once, as the tests have.
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let root = parent.join(format!("{MEMORY_PREFIX}{}/{number}", std::process::id()));
        fs::create_dir_all(&root).map_err(|error| Error::io("create", &root, error))?;
        self.memory = Some(root.clone());
        Ok((root, 4096))
    }

    fn make_xfs(&mut self, folder: &Path) -> Result<(PathBuf, usize), Error> {
        let xfs = Mount::xfs(folder)?;
        let root = xfs.path().to_path_buf();
        self._xfs = Some(xfs);
        Ok((root, 1 << 20))
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        if let Some(root) = &self.memory {
            let _ = fs::remove_dir_all(root);
            // The last one takes the process's folder with it.
            let _ = root.parent().map(fs::remove_dir);
        }
    }
}

/// The name that `kind` has in rows, with the disk's places in `folder`.
pub fn name_of(kind: Kind, folder: &Path) -> String {
    match kind {
        Kind::Tmpfs => "tmpfs".into(),
        Kind::DiskSmall => format!("{} small folios", file_system(folder)),
        Kind::DiskLarge => format!("{} large folios", file_system(folder)),
        Kind::Xfs => "xfs".into(),
    }
}

fn disk(folder: &Path, size: &str, chunk: usize) -> Result<(PathBuf, usize), Error> {
    let root = folder.join(size);
    if file_system(folder) == "tmpfs" {
        return Err(Error::Unavailable(format!(
            "{} is on a tmpfs: name a folder on disk with --dir",
            folder.display()
        )));
    }
    fs::create_dir_all(&root).map_err(|error| Error::io("create", &root, error))?;
    Ok((root, chunk))
}

/// The name of `path`'s file system, by its magic number in statfs(2).
pub(crate) fn file_system(path: &Path) -> String {
    match rustix::fs::statfs(path).map(|stat| stat.f_type as u32) {
        Ok(0xef53) => "ext4".into(),
        Ok(0x0102_1994) => "tmpfs".into(),
        Ok(0x5846_5342) => "xfs on disk".into(),
        Ok(0x9123_683e) => "btrfs".into(),
        Ok(0x794c_7630) => "overlayfs".into(),
        Ok(other) => format!("file system {other:#x}"),
        Err(_) => "unknown file system".into(),
    }
}

fn is_writable_tmpfs(path: &Path) -> bool {
    file_system(path) == "tmpfs" && rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok()
}

impl Place {
    /// Writes `bytes` bytes of noise (always the same for the same `seed`) to a new file, in this place's
    /// chunks, and brings them to the device.
    ///
    /// # Errors
    /// The kernel's, with the path.
    pub fn write_file(&self, path: &Path, bytes: u64, seed: u64) -> Result<(), Error> {
        let mut noise = Noise::new(seed);
        let mut buffer = vec![0u8; 1 << 20];
        self.write_new(path, |chunk| {
            let mut left = bytes;
            while left > 0 {
                let length = left.min(buffer.len() as u64) as usize;
                noise.fill(&mut buffer[..length]);
                chunk(&buffer[..length])?;
                left -= length as u64;
            }
            Ok(())
        })
    }

    /// Writes `content` to a new file, in this place's chunks, and brings it to the device.
    ///
    /// # Errors
    /// The kernel's, with the path.
    pub fn write_content(&self, path: &Path, content: &[u8]) -> Result<(), Error> {
        self.write_new(path, |chunk| content.chunks(1 << 20).try_for_each(chunk))
    }

    /// Makes `to` a copy of the folder `from`, every file written in this place's chunks and brought to the
    /// device. What was at `to` before is removed.
    ///
    /// # Errors
    /// The kernel's, with the path.
    pub fn copy_tree(&self, from: &Path, to: &Path) -> Result<(), Error> {
        if to.exists() {
            fs::remove_dir_all(to).map_err(|error| Error::io("remove", to, error))?;
        }
        self.copy_folder(from, to)
    }

    fn copy_folder(&self, from: &Path, to: &Path) -> Result<(), Error> {
        fs::create_dir_all(to).map_err(|error| Error::io("create", to, error))?;
        let access = fs::metadata(from).map_err(|error| Error::io("look at", from, error))?.permissions();
        fs::set_permissions(to, access).map_err(|error| Error::io("set the mode of", to, error))?;
        for entry in fs::read_dir(from).map_err(|error| Error::io("list", from, error))? {
            let entry = entry.map_err(|error| Error::io("list", from, error))?;
            let kind = entry.file_type().map_err(|error| Error::io("look at", &entry.path(), error))?;
            let target = to.join(entry.file_name());
            if kind.is_dir() {
                self.copy_folder(&entry.path(), &target)?;
            } else if kind.is_file() {
                self.copy_file(&entry.path(), &target)?;
            }
        }
        Ok(())
    }

    fn copy_file(&self, from: &Path, to: &Path) -> Result<(), Error> {
        let mut source = File::open(from).map_err(|error| Error::io("open", from, error))?;
        let mut buffer = vec![0u8; 1 << 20];
        self.write_new(to, |chunk| {
            loop {
                match source.read(&mut buffer)? {
                    0 => return Ok(()),
                    length => chunk(&buffer[..length])?,
                }
            }
        })?;
        let access = source.metadata().map_err(|error| Error::io("look at", from, error))?.permissions();
        fs::set_permissions(to, access).map_err(|error| Error::io("set the mode of", to, error))
    }

    /// Hands `fill` a way to append to the new file at `path`; what it appends is cut into this place's
    /// chunks.
    fn write_new(
        &self,
        path: &Path,
        fill: impl FnOnce(&mut dyn FnMut(&[u8]) -> std::io::Result<()>) -> std::io::Result<()>,
    ) -> Result<(), Error> {
        let written = File::create(path).and_then(|mut file| {
            fill(&mut |bytes| bytes.chunks(self.chunk).try_for_each(|chunk| file.write_all(chunk)))?;
            file.sync_all()
        });
        written.map_err(|error| Error::io("write", path, error))
    }

    /// Waits until everything written to this place's file system has reached the device.
    ///
    /// # Errors
    /// The kernel's, with the path.
    pub fn sync(&self) -> Result<(), Error> {
        let folder = File::open(&self.root).map_err(|error| Error::io("open", &self.root, error))?;
        rustix::fs::syncfs(&folder).map_err(|errno| Error::io("sync", &self.root, errno))
    }
}

/// Bytes that do not compress: xorshift64.
struct Noise(u64);

impl Noise {
    fn new(seed: u64) -> Noise {
        Noise((seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn fill(&mut self, buffer: &mut [u8]) {
        for part in buffer.chunks_mut(8) {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            part.copy_from_slice(&self.0.to_le_bytes()[..part.len()]);
        }
    }
}

/// A place in any folder, for the tests of cases.
#[cfg(test)]
pub fn in_folder(root: &Path) -> Place {
    Place { kind: Kind::Tmpfs, name: "test".into(), root: root.to_path_buf(), device: None, chunk: 4096 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_the_same_for_the_same_seed() {
        let folder = tempfile::tempdir().unwrap();
        let place = in_folder(folder.path());
        let write = |name: &str, seed| {
            let path = folder.path().join(name);
            place.write_file(&path, (1 << 20) + 77, seed).unwrap();
            fs::read(path).unwrap()
        };
        let one = write("one", 1);
        assert_eq!(one.len(), (1 << 20) + 77);
        assert_eq!(one, write("again", 1));
        assert_ne!(one, write("other", 2));
    }

    #[test]
    fn a_copied_tree_is_equal_and_replaces_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        fs::create_dir_all(from.join("inner")).unwrap();
        fs::write(from.join("inner/file"), vec![7u8; 10_000]).unwrap();
        fs::create_dir_all(&to).unwrap();
        fs::write(to.join("stale"), "x").unwrap();
        in_folder(folder.path()).copy_tree(&from, &to).unwrap();
        assert_eq!(fs::read(to.join("inner/file")).unwrap(), vec![7u8; 10_000]);
        assert!(!to.join("stale").exists());
    }

    #[test]
    fn every_wanted_place_is_there_or_says_why() {
        let folder = tempfile::tempdir().unwrap();
        let places = Places::make(folder.path(), &[Kind::Tmpfs, Kind::DiskSmall, Kind::Xfs], "s").unwrap();
        // Every name has an s in it.
        assert_eq!(places.offers.len(), 3);
        for offer in &places.offers {
            match offer {
                Offer::Here(place) => assert!(place.root.is_dir()),
                Offer::Absent { why, .. } => assert!(!why.is_empty()),
            }
        }
        let memory = places.memory.clone();
        drop(places);
        assert!(memory.is_none_or(|root| !root.exists()));
    }
}
