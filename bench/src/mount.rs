//! An XFS of our own: a file, a loop device over it, a mount.
//!
//! Invariant: a mount that was made is removed when its guard is dropped; one whose process was killed is
//! removed by the next run ([`unmount_below`]). The loop device is set to vanish with its last user as soon
//! as it is mounted, so that only the mount has to be kept track of.

use crate::child;
use crate::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Enough for every case; the file is sparse.
const IMAGE_BYTES: u64 = 3 << 30;

/// A mounted XFS, unmounted when dropped.
pub struct Xfs {
    at: PathBuf,
    image: PathBuf,
}

impl Xfs {
    /// Makes and mounts one in `folder`.
    ///
    /// # Errors
    /// [`Error::Unavailable`] or [`Error::Missing`] with the reason when this machine or user cannot.
    pub fn mount(folder: &Path) -> Result<Xfs, Error> {
        if !rustix::process::geteuid().is_root() {
            return Err(Error::Unavailable(
                "an XFS needs root to be mounted: run as root for this place".into(),
            ));
        }
        if !crate::programs::installed("mkfs.xfs") {
            return Err(Error::Missing { what: "mkfs.xfs".into(), package: "xfsprogs" });
        }
        let (at, image) = (folder.join("xfs"), folder.join("xfs.image"));
        fs::create_dir_all(&at).map_err(|error| Error::io("create", &at, error))?;
        let file = fs::File::create(&image).map_err(|error| Error::io("create", &image, error))?;
        file.set_len(IMAGE_BYTES).map_err(|error| Error::io("size", &image, error))?;
        tool(Command::new("mkfs.xfs").arg("-q").arg(&image))?;
        let device = attach(&image)?;
        let mounted = tool(Command::new("mount").args(["-t", "xfs"]).arg(&device).arg(&at));
        // Now the mount is the device's last user; without a mount it goes at once.
        let detached = tool(Command::new("losetup").arg("--detach").arg(&device));
        let xfs = Xfs { at, image };
        mounted?;
        detached?;
        Ok(xfs)
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.at
    }
}

impl Drop for Xfs {
    fn drop(&mut self) {
        // Not by way of `child`, which refuses to start anything after Ctrl-C.
        if is_mounted(&self.at) && !unmount(&self.at) {
            eprintln!(
                "bywash bench: cannot unmount {}; the next run tries again, or: umount {0}",
                self.at.display()
            );
        }
        let _ = fs::remove_file(&self.image);
    }
}

/// A loop device over `image` that does not keep a second copy in the page cache, where that can be had.
pub fn attach(image: &Path) -> Result<String, Error> {
    let losetup = |extra: &[&str]| {
        let mut command = Command::new("losetup");
        child::run(command.args(["--find", "--show"]).args(extra).arg(image))
    };
    let finished = losetup(&["--direct-io=on"]).or_else(|_| losetup(&[]));
    match finished {
        Ok(finished) => Ok(finished.stdout.trim().to_owned()),
        Err(Error::Interrupted) => Err(Error::Interrupted),
        Err(error) => Err(Error::Unavailable(format!("no loop device can be had: {error}"))),
    }
}

fn tool(command: &mut Command) -> Result<(), Error> {
    match child::run(command) {
        Ok(_) => Ok(()),
        Err(Error::Interrupted) => Err(Error::Interrupted),
        Err(error) => Err(Error::Unavailable(error.to_string())),
    }
}

/// Unmounts everything mounted below `folder`, which a killed run left; what a program it started still uses
/// goes when that program ends.
pub fn unmount_below(folder: &Path) {
    for at in mounts().into_iter().rev().filter(|at| at.starts_with(folder)) {
        let _ = Command::new("umount").arg("--lazy").arg(&at).status();
    }
}

fn unmount(at: &Path) -> bool {
    Command::new("umount").arg(at).status().is_ok_and(|status| status.success())
}

fn is_mounted(at: &Path) -> bool {
    mounts().iter().any(|mount| mount == at)
}

/// Mount points, in the order in which they were mounted.
fn mounts() -> Vec<PathBuf> {
    let text = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    text.lines().filter_map(|line| line.split(' ').nth(1)).map(|at| PathBuf::from(unescape(at))).collect()
}

/// proc_pid_mounts(5) writes blanks and backslashes as three octal digits.
fn unescape(path: &str) -> String {
    let mut parts = path.split('\\');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                plain.push(char::from(byte));
                plain.push_str(&part[3..]);
            }
            None => {
                plain.push('\\');
                plain.push_str(part);
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_in_mount_points() {
        assert_eq!(unescape("/a\\040b\\134c"), "/a b\\c");
        assert_eq!(unescape("/plain"), "/plain");
    }

    #[test]
    fn the_root_is_mounted() {
        assert!(is_mounted(Path::new("/")) && !is_mounted(Path::new("/proc/self")));
    }

    /// Needs root; without it, the refusal has to say so.
    #[test]
    fn mounted_and_gone_again() {
        let folder = tempfile::tempdir().unwrap();
        match Xfs::mount(folder.path()) {
            Ok(xfs) => {
                let at = xfs.path().to_path_buf();
                fs::write(at.join("file"), "x").unwrap();
                assert!(is_mounted(&at));
                drop(xfs);
                assert!(!is_mounted(&at) && !at.join("file").exists());
            }
            Err(error) => {
                assert!(error.is_absence(), "{error}");
                assert!(!is_mounted(&folder.path().join("xfs")));
            }
        }
    }
}
