//! The file systems that a test uses: tmpfs, and the disk that the build folder is on.
//!
//! Every run has a fresh folder there, which goes with it. Called by the tests' `main`.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A file system to run on.
#[derive(Clone, Debug)]
pub struct TestFolder {
    name: &'static str,
    root: PathBuf,
}

impl TestFolder {
    /// tmpfs at `/dev/shm`, and the disk: `BYWASH_TEST_DISK` if set, else `build_folder`.
    ///
    /// # Errors
    /// When one of the two is missing, or the disk is a tmpfs.
    pub fn all(build_folder: &Path) -> io::Result<Vec<TestFolder>> {
        let disk =
            std::env::var_os("BYWASH_TEST_DISK").map_or_else(|| build_folder.to_path_buf(), PathBuf::from);
        let memory = PathBuf::from("/dev/shm");
        if !is_tmpfs(&memory)? {
            return Err(io::Error::other("/dev/shm is no tmpfs: mount one there"));
        }
        if is_tmpfs(&disk)? {
            return Err(io::Error::other(format!(
                "{} is on a tmpfs: set BYWASH_TEST_DISK to a folder on a disk",
                disk.display()
            )));
        }
        Ok(vec![TestFolder { name: "tmpfs", root: memory }, TestFolder { name: "disk", root: disk }])
    }

    /// Returns the name of the place in reports.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// A fresh folder.
    ///
    /// # Errors
    /// The error of mkdir(2), for instance because the file system is full.
    pub fn folder(&self) -> io::Result<TempDir> {
        tempfile::Builder::new().prefix("bywash-behaviour-").tempdir_in(&self.root)
    }
}

fn is_tmpfs(path: &Path) -> io::Result<bool> {
    let name = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: `name` is a C string and `stat` is ours to fill; zero bytes are a valid value of it.
    unsafe {
        let mut stat: libc::statfs = std::mem::zeroed();
        if libc::statfs(name.as_ptr(), &raw mut stat) != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(stat.f_type == libc::TMPFS_MAGIC)
    }
}
