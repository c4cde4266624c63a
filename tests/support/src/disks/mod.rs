//! Loop devices and mounted file systems for a single test, which disappear with the test however it ends.
//!
//! ```no_run
//! use bywash_support::disks::{FileSystem, LoopDevice};
//!
//! let disk = LoopDevice::new(8 << 20).expect("a loop device");
//! println!("a block device of 8 MiB: {}", disk.path().display());
//! let xfs = FileSystem::new("xfs", 320 << 20).expect("an XFS");
//! std::fs::write(xfs.path().join("file"), "text").expect("write a file");
//! ```
//!
//! - [`LoopDevice`]: a block device over a temporary file
//! - [`FileSystem`]: a file system on a temporary file, mounted for the thread that made it and for the
//!   programs that it starts afterwards
//!
//! Invariant: no destructor needs to run. A loop device is set to detach when its last descriptor closes, and
//! this process holds one. A file system is mounted in a mount namespace of the thread's own, which the
//! kernel removes with the last process in it. So a test that is killed leaves neither a mount nor a loop
//! device, only a temporary file.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use rustix::mount::MountPropagationFlags;
use rustix::thread::UnshareFlags;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::{NamedTempFile, TempDir};

/// A block device over a temporary file, detached when this value is dropped or the process ends.
#[derive(Debug)]
pub struct LoopDevice {
    path: PathBuf,
    // Declared before the image: the descriptor must be closed before the file below the device is removed.
    _open: File,
    _image: NamedTempFile,
}

impl LoopDevice {
    /// Makes a device of `bytes` zero bytes.
    ///
    /// # Errors
    /// A sentence that says why the device cannot be made: the user is not root, or `losetup` failed or is
    /// missing.
    pub fn new(bytes: u64) -> Result<LoopDevice, String> {
        check_root("a loop device")?;
        let image = NamedTempFile::new().expect("a temporary file");
        image.as_file().set_len(bytes).expect("the size of a temporary file");
        let made = tool(Command::new("losetup").args(["--find", "--show"]).arg(image.path()))?;
        let path = PathBuf::from(made.trim());
        let open = File::open(&path);
        // The device is in use, so it stays attached until the descriptor closes (losetup(8), lazy device
        // loop destruction).
        tool(Command::new("losetup").arg("--detach").arg(&path))?;
        let open = open.map_err(|error| format!("cannot open {}: {error}", path.display()))?;
        Ok(LoopDevice { path, _open: open, _image: image })
    }

    /// Returns the path of the device, such as `/dev/loop0`.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// A mounted file system on a temporary file. The thread that makes it leaves the mount namespace that it
/// shared with the rest of its process; other threads do not see the mount.
#[derive(Debug)]
pub struct FileSystem {
    at: PathBuf,
    // Declared last, so that the folder with the image and the mount point is removed after the unmount.
    folder: TempDir,
}

impl FileSystem {
    /// Makes a file system of `kind` ("ext4", "xfs", "btrfs") and `bytes` by `mkfs.KIND`, and mounts it.
    ///
    /// # Errors
    /// A sentence that says why it cannot be made: the user is not root, or a tool failed or is missing.
    pub fn new(kind: &str, bytes: u64) -> Result<FileSystem, String> {
        FileSystem::with_options(kind, bytes, &[], "loop")
    }

    /// Makes a file system like [`FileSystem::new`], with further arguments for `mkfs.KIND` and with mount(8)
    /// options, which must contain `loop`.
    ///
    /// # Errors
    /// Same as [`FileSystem::new`].
    pub fn with_options(kind: &str, bytes: u64, mkfs: &[&str], mount: &str) -> Result<FileSystem, String> {
        check_root("a mounted file system")?;
        let folder = TempDir::new().expect("a temporary folder");
        let (image, at) = (folder.path().join("image"), folder.path().join("mnt"));
        File::create(&image).and_then(|file| file.set_len(bytes)).expect("an image in a temporary folder");
        std::fs::create_dir(&at).expect("a folder in a temporary folder");
        tool(Command::new(format!("/sbin/mkfs.{kind}")).arg("-q").args(mkfs).arg(&image))?;
        enter_own_mount_namespace()?;
        tool(Command::new("mount").args(["-t", kind, "-o", mount]).arg(&image).arg(&at))?;
        Ok(FileSystem { at, folder })
    }

    /// Returns the mount point.
    pub fn path(&self) -> &Path {
        &self.at
    }

    /// Returns the folder that holds the mount point, which lies on the file system of temporary files.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for FileSystem {
    fn drop(&mut self) {
        // A program that still uses the file system keeps it until that program ends. An error is ignored,
        // since the kernel unmounts everything with the namespace.
        let _ = rustix::mount::unmount(&self.at, rustix::mount::UnmountFlags::DETACH);
    }
}

/// Puts the calling thread into a mount namespace of its own, from which nothing propagates to the host's. Threads and
/// programs that it starts later share it.
///
/// # Errors
/// A sentence that says that the kernel refused, as it does without root.
pub fn enter_own_mount_namespace() -> Result<(), String> {
    // SAFETY: a mount namespace, with the root, working directory and umask that are unshared with it,
    // concerns the calling thread alone. The table of descriptors stays shared, so no descriptor of another
    // thread becomes invalid.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }
        .map_err(|error| format!("cannot make a mount namespace: {error}"))?;
    rustix::mount::mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .map_err(|error| format!("cannot make the mount namespace private: {error}"))
}

fn check_root(what: &str) -> Result<(), String> {
    match rustix::process::geteuid().is_root() {
        true => Ok(()),
        false => Err(format!("only root can make {what}")),
    }
}

/// Runs a tool and returns its output.
fn tool(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().display().to_string();
    let output = command.output().map_err(|error| format!("cannot run {name}: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("{name}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;
    use std::time::{Duration, Instant};

    fn mounts_of_the_process() -> String {
        std::fs::read_to_string(format!("/proc/{}/mountinfo", std::process::id())).expect("mounts")
    }

    /// Returns the names of all files that loop devices are backed by.
    fn backing_files() -> String {
        let devices = std::fs::read_dir("/sys/block").expect("block devices").flatten();
        devices
            .filter_map(|device| std::fs::read_to_string(device.path().join("loop/backing_file")).ok())
            .collect()
    }

    fn wait_until(what: &str, holds: impl Fn() -> bool) {
        let end = Instant::now() + Duration::from_secs(20);
        while !holds() {
            assert!(Instant::now() < end, "{what}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn a_file_system_is_seen_by_its_thread_and_goes_when_dropped() {
        let made = match FileSystem::new("ext4", 8 << 20) {
            Ok(made) => made,
            Err(why) => return println!("left out: {why}"),
        };
        std::fs::write(made.path().join("file"), "x").expect("a file");
        let at = made.path().display().to_string();
        let seen = tool(Command::new("findmnt").arg("-no").arg("FSTYPE").arg(&at));
        assert_eq!(seen.as_deref().map(str::trim), Ok("ext4"), "a program that the thread starts sees it");
        let folder = made.folder().display().to_string();
        drop(made);
        wait_until("the loop device stays", || !backing_files().contains(&folder));
    }

    #[test]
    fn a_loop_device_goes_when_dropped() {
        let made = match LoopDevice::new(1 << 20) {
            Ok(made) => made,
            Err(why) => return println!("left out: {why}"),
        };
        let image = made._image.path().display().to_string();
        assert!(backing_files().contains(&image) && made.path().exists());
        drop(made);
        wait_until("the loop device stays", || !backing_files().contains(&image));
    }

    /// Tests the invariant: starts this program once more, which makes a device and a file system and is
    /// killed.
    #[test]
    fn nothing_is_left_of_a_process_that_was_killed() {
        if let Err(why) = check_root("either") {
            return println!("left out: {why}");
        }
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "tests::makes_both_and_waits", "--nocapture", "--ignored"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program once more");
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
        let images: Vec<String> =
            lines.filter_map(|line| line.strip_prefix("image ").map(Into::into)).take(2).collect();
        assert!(images.iter().all(|image| backing_files().contains(image)), "{images:?}");
        child.kill().expect("kill the child");
        child.wait().expect("wait for the child");
        for image in &images {
            wait_until("a loop device stays", || !backing_files().contains(image));
            assert!(!mounts_of_the_process().contains(image));
            let left = Path::new(image);
            let _ = std::fs::remove_file(left).or_else(|_| std::fs::remove_dir_all(left));
        }
    }

    #[test]
    #[ignore = "part of nothing_is_left_of_a_process_that_was_killed"]
    fn makes_both_and_waits() {
        let disk = LoopDevice::new(1 << 20).expect("a loop device");
        let mounted = FileSystem::new("ext4", 8 << 20).expect("an ext4");
        println!("image {}\nimage {}", disk._image.path().display(), mounted.folder().display());
        std::thread::sleep(Duration::from_secs(60));
    }
}
