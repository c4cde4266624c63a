//! File systems of our own: XFS and ext4 (a file, a loop device over it, a mount), and tmpfs.
//!
//! Invariant: a mount that was made is removed when its guard is dropped; one whose process was killed is
//! removed by the next run ([`unmount_below`]). The loop device is set to vanish with its last user as soon
//! as it is mounted, so that only the mount has to be kept track of.

use crate::child;
use crate::error::Error;
use crate::programs::require;
use crate::say::say;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Enough for every case; the file is sparse.
const XFS_BYTES: u64 = 3 << 30;
/// How long a file system may stay busy after its last user went: a loop device lets go of its file a little later.
const BUSY: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(10);

/// A mounted file system, unmounted when dropped.
pub struct Mount {
    at: PathBuf,
    image: Option<PathBuf>,
}

impl Mount {
    /// Makes and mounts an XFS in `folder`, on a file there.
    ///
    /// # Errors
    /// [`Error::Unavailable`] or [`Error::Missing`] with the reason when this machine or user cannot.
    pub fn xfs(folder: &Path) -> Result<Mount, Error> {
        check_root("an XFS")?;
        require("mkfs.xfs", "xfsprogs")?;
        let image = folder.join("xfs.image");
        size(&image, XFS_BYTES)?;
        tool(Command::new("mkfs.xfs").arg("-q").arg(&image))?;
        Mount::on_loop("xfs", folder.join("xfs"), image)
    }

    /// Makes an ext4 of `bytes` on the file `image`, all of which it has from the start, and mounts it in `folder`, in
    /// which it is called `name`. Its loop device has blocks of 512 bytes.
    ///
    /// # Errors
    /// As [`Mount::xfs`].
    pub fn ext4(folder: &Path, name: &str, image: PathBuf, bytes: u64) -> Result<Mount, Error> {
        check_root("an ext4")?;
        require("mkfs.ext4", "e2fsprogs")?;
        let file = size(&image, bytes)?;
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes)
            .map_err(|errno| Error::io("make room for", &image, errno))?;
        drop(file);
        // Nothing is left to be done later, when it would be measured.
        let complete = ["-q", "-F", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"];
        tool(Command::new("mkfs.ext4").args(complete).arg(&image))?;
        Mount::on_loop("ext4", folder.join(name), image)
    }

    /// Mounts a new tmpfs of `bytes` in `folder`, in which it is called `name`; of huge pages, where the kernel has them.
    ///
    /// # Errors
    /// As [`Mount::xfs`].
    pub fn tmpfs(folder: &Path, name: &str, bytes: u64) -> Result<Mount, Error> {
        check_root("a tmpfs of the bench's own")?;
        let at = folder.join(name);
        create(&at)?;
        let mount = Mount { at, image: None };
        let with = |more: &str| {
            let options = format!("mode=0700,size={bytes}{more}");
            tool(Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(&mount.at))
        };
        match with(",huge=always") {
            Err(Error::Interrupted) => return Err(Error::Interrupted),
            Err(_) => with("")?,
            Ok(()) => {}
        }
        Ok(mount)
    }

    fn on_loop(kind: &str, at: PathBuf, image: PathBuf) -> Result<Mount, Error> {
        create(&at)?;
        let device = attach(&image)?;
        let mounted = tool(Command::new("mount").args(["-t", kind]).arg(&device).arg(&at));
        // Now the mount is the device's last user; without a mount it goes at once.
        let detached = tool(Command::new("losetup").arg("--detach").arg(&device));
        let mount = Mount { at, image: Some(image) };
        mounted?;
        detached?;
        Ok(mount)
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.at
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Not by way of `child`, which refuses to start anything after Ctrl-C.
        if is_mounted(&self.at) && !unmount(&self.at) {
            say(format_args!(
                "bywash bench: cannot unmount {}; the next run tries again, or: umount {0}",
                self.at.display()
            ));
        }
        if let Some(image) = &self.image {
            let _ = fs::remove_file(image);
        }
    }
}

fn check_root(what: &str) -> Result<(), Error> {
    match rustix::process::geteuid().is_root() {
        true => Ok(()),
        false => {
            Err(Error::Unavailable(format!("{what} needs root to be mounted: run as root for this place")))
        }
    }
}

fn create(folder: &Path) -> Result<(), Error> {
    fs::create_dir_all(folder).map_err(|error| Error::io("create", folder, error))
}

fn size(image: &Path, bytes: u64) -> Result<fs::File, Error> {
    let file = fs::File::create(image).map_err(|error| Error::io("create", image, error))?;
    file.set_len(bytes).map_err(|error| Error::io("size", image, error))?;
    Ok(file)
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
    let deadline = Instant::now() + BUSY;
    loop {
        let tried = Command::new("umount").arg(at).stderr(Stdio::piped()).output();
        if tried.as_ref().is_ok_and(|tried| tried.status.success()) {
            return true;
        }
        if Instant::now() > deadline {
            if let Ok(tried) = tried {
                say(String::from_utf8_lossy(&tried.stderr).trim_end());
            }
            return false;
        }
        std::thread::sleep(LOOK);
    }
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
        let tmpfs = Mount::tmpfs(folder.path(), "memory", 64 << 20);
        let image = tmpfs.as_ref().map_or_else(|_| folder.path().to_path_buf(), |tmpfs| tmpfs.path().into());
        let image = image.join("image");
        // The one on top goes before the one that it lies on.
        check(Mount::ext4(folder.path(), "ext4", image.clone(), 32 << 20), folder.path());
        assert!(!image.exists());
        check(tmpfs, folder.path());
        check(Mount::xfs(folder.path()), folder.path());
    }

    fn check(mount: Result<Mount, Error>, folder: &Path) {
        match mount {
            Ok(mount) => {
                let at = mount.path().to_path_buf();
                fs::write(at.join("file"), "x").unwrap();
                assert!(is_mounted(&at));
                drop(mount);
                assert!(!is_mounted(&at) && !at.join("file").exists());
            }
            Err(error) => {
                assert!(error.is_absence(), "{error}");
                assert!(!mounts().iter().any(|at| at.starts_with(folder)));
            }
        }
    }
}
