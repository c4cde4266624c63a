//! File systems of our own: XFS and ext4 (a file, a loop device over it, a mount), and tmpfs.
//!
//! Invariant: nothing of them outlives the bench, however it ends. They are mounted in a mount namespace of the thread that
//! makes them, which threads and programs that it starts later share, and which the kernel removes with the last of them; a
//! loop device is set to vanish with its last user as soon as it is mounted.

use crate::child;
use crate::error::{Attempt, Error};
use crate::programs::require;
use bywash_support::disks::enter_own_mount_namespace;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::mount::{UnmountFlags, unmount};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Size of an XFS in bytes, enough for every case; the file is sparse.
const XFS_BYTES: u64 = 3 << 30;

/// A mounted file system, unmounted when dropped.
pub struct Mount {
    at: PathBuf,
    image: Option<PathBuf>,
}

impl Mount {
    pub fn xfs(folder: &Path) -> Result<Mount, Error> {
        let (make, image) = (require("mkfs.xfs", "xfsprogs")?, folder.join("xfs.image"));
        fs::File::create(&image).and_then(|file| file.set_len(XFS_BYTES)).doing("size", &image)?;
        Mount::on_loop(make, "xfs", &["-q"], folder.join("xfs"), image)
    }

    /// Makes an ext4 of `bytes` on the file `image`, which gets all its blocks at once, and mounts it in `folder` as `name`.
    pub fn ext4(folder: &Path, name: &str, image: PathBuf, bytes: u64) -> Result<Mount, Error> {
        let make = require("mkfs.ext4", "e2fsprogs")?;
        let file = fs::File::create(&image).doing("create", &image)?;
        fallocate(file, FallocateFlags::empty(), 0, bytes).doing("make room for", &image)?;
        // Nothing is left to be done later, when it would be measured.
        let complete = ["-q", "-F", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"];
        Mount::on_loop(make, "ext4", &complete, folder.join(name), image)
    }

    /// Mounts a new tmpfs of `bytes` in `folder` as `name`; of huge pages, where the kernel has them.
    pub fn tmpfs(folder: &Path, name: &str, bytes: u64) -> Result<Mount, Error> {
        let with = |more: &str| {
            let options = format!("mode=0700,size={bytes}{more}");
            Mount::new(&["-t", "tmpfs", "-o", &options, "tmpfs"], folder.join(name), None)
        };
        match with(",huge=always") {
            Err(Error::Unavailable(_)) => with(""),
            made => made,
        }
    }

    fn on_loop(
        make: PathBuf,
        kind: &str,
        options: &[&str],
        at: PathBuf,
        image: PathBuf,
    ) -> Result<Mount, Error> {
        tool(Command::new(make).args(options).arg(&image))?;
        let device = attach(&image)?;
        let mounted = Mount::new(&["-t", kind, &device], at, Some(image));
        // Now the mount is the device's last user; without a mount it goes at once.
        tool(Command::new("losetup").arg("--detach").arg(&device))?;
        mounted
    }

    fn new(words: &[&str], at: PathBuf, image: Option<PathBuf>) -> Result<Mount, Error> {
        if !rustix::process::geteuid().is_root() {
            let why = format!("{} needs root to be mounted: run as root for this place", at.display());
            return Err(Error::Unavailable(why));
        }
        fs::create_dir_all(&at).doing("create", &at)?;
        enter_own_mount_namespace().map_err(Error::Unavailable)?;
        tool(Command::new("mount").args(words).arg(&at))?;
        Ok(Mount { at, image })
    }

    pub fn path(&self) -> &Path {
        &self.at
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // A program that still uses the file system keeps it until that program ends.
        let _ = unmount(&self.at, UnmountFlags::DETACH);
        let _ = self.image.as_ref().map(fs::remove_file);
    }
}

/// Attaches a loop device to `image`, without a second copy in the page cache where that can be had; returns its path.
pub fn attach(image: &Path) -> Result<String, Error> {
    let losetup =
        |extra: &[&str]| tool(Command::new("losetup").args(["--find", "--show"]).args(extra).arg(image));
    losetup(&["--direct-io=on"]).or_else(|_| losetup(&[])).map(|path| path.trim().to_owned())
}

fn tool(command: &mut Command) -> Result<String, Error> {
    child::run(command).map(|ended| ended.stdout).map_err(|error| match error {
        Error::Interrupted => Error::Interrupted,
        error => Error::Unavailable(error.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::file_system;

    /// Needs root; without it, the refusal has to say so.
    #[test]
    fn mounted_and_gone_again() {
        let folder = tempfile::tempdir().unwrap();
        let tmpfs = Mount::tmpfs(folder.path(), "memory", 64 << 20);
        let image = tmpfs.as_ref().map_or(folder.path(), Mount::path).join("image");
        // The one on top goes before the one that it lies on.
        let ext4 = Mount::ext4(folder.path(), "ext4", image.clone(), 32 << 20);
        for (mount, kind) in [(ext4, "ext4"), (tmpfs, "tmpfs"), (Mount::xfs(folder.path()), "xfs on disk")] {
            match mount {
                Ok(mount) => {
                    let at = mount.path().to_owned();
                    fs::write(at.join("file"), "x").unwrap();
                    assert_eq!(file_system(&at), kind);
                    drop(mount);
                    assert!(!at.join("file").exists() && !image.exists());
                }
                Err(error) => assert!(error.is_absence(), "{error}"),
            }
        }
        let host = fs::read_to_string(format!("/proc/{}/mounts", std::process::id())).unwrap();
        assert!(!host.contains(&*folder.path().to_string_lossy()), "{host}");
    }
}
