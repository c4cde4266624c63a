//! The file systems that cases run on.
//!
//! What a write costs depends on the size of the page cache's folios, and that on how the file was first
//! written: in chunks of 4 KiB (small folios) or of 1 MiB (large ones). So a place is a file system and a
//! chunk, and every file that a case starts from is written by [`Place::write_file`] or [`Place::copy_tree`].

use crate::error::{Attempt, Error};
use crate::mount::Mount;
use crate::usage::BlockDevice;
use crate::workspace;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use tempfile::{Builder, TempDir};

/// Begins the name of a run's folder in memory; the process id follows.
const MEMORY_PREFIX: &str = "bywash-bench-";
/// Folders that may be a tmpfs.
const MEMORY: [&str; 3] = ["/dev/shm", "/tmp", "/run"];

/// Size of a file system over memory, in bytes.
const LOOP_BYTES: u64 = 768 << 20;

/// Kind of place that a case asks for: a file system in memory, the disk's with files written in chunks of 4 KiB or 1 MiB,
/// XFS on a loop device with chunks of 1 MiB, or ext4 on a loop device over memory with chunks of 4 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Tmpfs,
    DiskSmall,
    DiskLarge,
    Xfs,
    LoopExt4,
}

impl Kind {
    pub const ALL: &'static [Kind] = &[Kind::Tmpfs, Kind::DiskSmall, Kind::DiskLarge, Kind::Xfs];
    /// Those with a device.
    pub const DEVICES: &'static [Kind] = &[Kind::DiskSmall, Kind::DiskLarge, Kind::Xfs];
}

pub struct Place {
    pub name: String,
    /// A folder there that is this run's own.
    pub root: PathBuf,
    pub device: Option<BlockDevice>,
    chunk: usize,
}

/// A place, or the reason for which there is none.
pub struct Offer {
    pub kind: Kind,
    pub name: String,
    pub place: Result<Place, String>,
}

impl Offer {
    pub fn place(&self) -> Result<&Place, Error> {
        self.place.as_ref().map_err(|why| Error::Unavailable(why.clone()))
    }
}

/// Every place of this machine; what was made for them is removed when this is dropped.
pub struct Places {
    pub offers: Vec<Offer>,
    memory: Option<TempDir>,
    /// The one on top first: they are unmounted in this order.
    mounts: Vec<Mount>,
}

impl Places {
    /// Makes those of `wanted` that can be had and whose name contains `part`, the disk's in `folder`.
    pub fn make(folder: &Path, wanted: &[Kind], part: &str) -> Result<Places, Error> {
        let mut places = Places { offers: Vec::new(), memory: None, mounts: Vec::new() };
        for kind in wanted.iter().copied() {
            let name = name_of(kind, folder);
            if !name.contains(part) {
                continue;
            }
            let made = match kind {
                Kind::Tmpfs => in_memory().map(|at| places.memory.insert(at).path().into()),
                Kind::DiskSmall => on_disk(folder, "small"),
                Kind::DiskLarge => on_disk(folder, "large"),
                Kind::Xfs => Mount::xfs(folder).map(|xfs| places.keep(vec![xfs])),
                Kind::LoopExt4 => loop_ext4(folder).map(|mounts| places.keep(mounts)),
            };
            let chunk = if matches!(kind, Kind::DiskLarge | Kind::Xfs) { 1 << 20 } else { 4096 };
            let place = match made {
                Ok(root) => Ok(Place { name: name.clone(), device: BlockDevice::under(&root)?, root, chunk }),
                Err(Error::Interrupted) => return Err(Error::Interrupted),
                Err(error) => Err(error.to_string()),
            };
            places.offers.push(Offer { kind, name, place });
        }
        Ok(places)
    }

    /// Keeps mounts until this is dropped; returns the folder of the first one.
    fn keep(&mut self, mounts: Vec<Mount>) -> PathBuf {
        let folder = mounts[0].path().to_owned();
        self.mounts.extend(mounts);
        folder
    }

    pub fn find(&self, kind: Kind) -> Result<&Place, Error> {
        let offer = self.offers.iter().find(|offer| offer.kind == kind);
        offer.ok_or_else(|| Error::Unavailable(format!("{kind:?} was not made")))?.place()
    }
}

/// The name that `kind` has in rows, with the disk's places in `folder`.
pub fn name_of(kind: Kind, folder: &Path) -> String {
    match kind {
        Kind::Tmpfs => "tmpfs".into(),
        Kind::DiskSmall => format!("{} small folios", file_system(folder)),
        Kind::DiskLarge => format!("{} large folios", file_system(folder)),
        Kind::Xfs => "xfs".into(),
        Kind::LoopExt4 => "ext4 over memory".into(),
    }
}

fn in_memory() -> Result<TempDir, Error> {
    let can_be_had = |path: &&Path| {
        file_system(path) == "tmpfs" && rustix::fs::access(*path, rustix::fs::Access::WRITE_OK).is_ok()
    };
    let parent = MEMORY.iter().map(Path::new).find(can_be_had).ok_or_else(|| {
        let all = MEMORY.join(", ");
        Error::Unavailable(format!("none of {all} is a tmpfs that can be written: mount one at /dev/shm"))
    })?;
    workspace::sweep(parent, MEMORY_PREFIX);
    let name = format!("{MEMORY_PREFIX}{}-", std::process::id());
    Builder::new().prefix(&name).tempdir_in(parent).doing("make a folder in", parent)
}

/// An ext4 and the tmpfs that it lies on.
fn loop_ext4(folder: &Path) -> Result<Vec<Mount>, Error> {
    let below = Mount::tmpfs(folder, "loop-memory", LOOP_BYTES + LOOP_BYTES / 8)?;
    Ok(vec![Mount::ext4(folder, "loop-ext4", below.path().join("image"), LOOP_BYTES)?, below])
}

fn on_disk(folder: &Path, name: &str) -> Result<PathBuf, Error> {
    if file_system(folder) == "tmpfs" {
        let folder = folder.display();
        return Err(Error::Unavailable(format!("{folder} is on a tmpfs: name a folder on disk with --dir")));
    }
    let root = folder.join(name);
    fs::create_dir_all(&root).doing("create", &root)?;
    Ok(root)
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

impl Place {
    /// Writes `bytes` bytes that do not compress (always the same for the same `seed`) to a new file, in this place's
    /// chunks, and brings them to the device.
    pub fn write_file(&self, path: &Path, bytes: u64, seed: u64) -> Result<(), Error> {
        let mut noise = (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut word = move || {
            noise = xorshift(noise);
            noise.to_le_bytes()
        };
        let chunks = (0..bytes).step_by(self.chunk).map(|at| {
            let length = (bytes - at).min(self.chunk as u64) as usize;
            std::iter::repeat_with(&mut word).flatten().take(length).collect()
        });
        write_new(path, chunks)
    }

    /// Writes `content` to a new file, in this place's chunks, and brings it to the device.
    pub fn write_content(&self, path: &Path, content: &[u8]) -> Result<(), Error> {
        write_new(path, content.chunks(self.chunk).map(<[u8]>::to_vec))
    }

    /// Makes `to` a copy of the folder `from`, every file written in this place's chunks and brought to the device.
    pub fn copy_tree(&self, from: &Path, to: &Path) -> Result<(), Error> {
        fs::create_dir_all(to).doing("create", to)?;
        for entry in fs::read_dir(from).doing("list", from)? {
            let entry = entry.doing("list", from)?;
            let (from, to) = (entry.path(), to.join(entry.file_name()));
            let kind = entry.file_type().doing("look at", &from)?;
            if kind.is_dir() {
                self.copy_tree(&from, &to)?;
            } else if kind.is_file() {
                self.write_content(&to, &fs::read(&from).doing("read", &from)?)?;
                copy_mode(&from, &to)?;
            }
        }
        copy_mode(from, to)
    }

    /// Waits until everything written to this place's file system has reached the device.
    pub fn sync(&self) -> Result<(), Error> {
        let folder = File::open(&self.root).doing("open", &self.root)?;
        rustix::fs::syncfs(&folder).doing("sync", &self.root)
    }
}

/// Writes each of `chunks` at once to a new file.
fn write_new(path: &Path, mut chunks: impl Iterator<Item = Vec<u8>>) -> Result<(), Error> {
    let write = |mut file: File| {
        chunks.try_for_each(|chunk| file.write_all(&chunk))?;
        file.sync_all()
    };
    File::create(path).and_then(write).doing("write", path)
}

fn copy_mode(from: &Path, to: &Path) -> Result<(), Error> {
    let mode = fs::metadata(from).doing("look at", from)?.permissions();
    fs::set_permissions(to, mode).doing("set the mode of", to)
}

/// The number after `state` in the sequence of xorshift64.
pub(crate) fn xorshift(mut state: u64) -> u64 {
    state ^= state << 13;
    state ^= state >> 7;
    state ^ (state << 17)
}

/// A place in any folder, for the tests of cases.
#[cfg(test)]
pub fn in_folder(root: &Path) -> Place {
    Place { name: "test".into(), root: root.to_path_buf(), device: None, chunk: 4096 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_a_place_are_the_same_for_the_same_seed_and_in_a_copied_tree() {
        let folder = tempfile::tempdir().unwrap();
        let place = in_folder(folder.path());
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        fs::create_dir_all(from.join("inner")).unwrap();
        for (name, seed) in [("inner/one", 1), ("again", 1), ("other", 2)] {
            place.write_file(&from.join(name), (1 << 20) + 77, seed).unwrap();
        }
        place.copy_tree(&from, &to).unwrap();
        let [one, again, other] =
            ["inner/one", "again", "other"].map(|name| fs::read(to.join(name)).unwrap());
        assert!(one.len() == (1 << 20) + 77 && one == again && one != other);
        assert!(fs::read(from.join("inner/one")).unwrap() == one);
    }

    #[test]
    fn every_wanted_place_is_there_or_says_why() {
        let folder = tempfile::tempdir().unwrap();
        let places = Places::make(folder.path(), &[Kind::Tmpfs, Kind::DiskSmall, Kind::Xfs], "s").unwrap();
        // Every name has an s in it.
        assert_eq!(places.offers.len(), 3);
        let is_there = |offer: &Offer| {
            offer.place.as_ref().map_or_else(|why| !why.is_empty(), |place| place.root.is_dir())
        };
        assert!(places.offers.iter().all(is_there));
        let memory = places.find(Kind::Tmpfs).map(|place| place.root.clone());
        drop(places);
        assert!(memory.is_ok_and(|root| !root.exists()));
    }
}
