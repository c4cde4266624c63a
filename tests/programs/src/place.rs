//! The folders that scenarios run in.
//!
//! Invariant: every user can reach such a folder, since servers run as users of their own. It contains only
//! files of one test, and is removed after the test unless `BYWASH_TEST_KEEP` is set.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Kind of file system that a scenario runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSystemKind {
    /// A memory file system: `/dev/shm`.
    Tmpfs,
    /// A file system on a disk: `BYWASH_TEST_DISK`, or `/var/tmp`, which Debian keeps on the disk.
    Disk,
}

impl FileSystemKind {
    /// Returns the folder in which the tests make theirs.
    ///
    /// # Panics
    /// If that folder is not on a file system of this kind.
    pub fn root(self) -> PathBuf {
        let root = match self {
            FileSystemKind::Tmpfs => PathBuf::from("/dev/shm"),
            FileSystemKind::Disk => {
                std::env::var_os("BYWASH_TEST_DISK").map_or("/var/tmp".into(), PathBuf::from)
            }
        };
        let kind = rustix::fs::statfs(&root).unwrap_or_else(|error| {
            panic!("{} cannot be used: {error}; make it, or set BYWASH_TEST_DISK", root.display())
        });
        let is_tmpfs = kind.f_type == TMPFS_MAGIC;
        match self {
            FileSystemKind::Tmpfs => assert!(is_tmpfs, "/dev/shm is no tmpfs: mount -t tmpfs tmpfs /dev/shm"),
            FileSystemKind::Disk => assert!(
                !is_tmpfs,
                "{} is a tmpfs: set BYWASH_TEST_DISK to a folder on the disk",
                root.display()
            ),
        }
        root
    }
}

/// File system type of a tmpfs, as statfs(2) reports it.
const TMPFS_MAGIC: rustix::fs::FsWord = 0x0102_1994;

/// A folder for one test.
pub struct Folder {
    path: PathBuf,
    _removed_at_end: Option<tempfile::TempDir>,
}

impl Folder {
    /// Makes a folder in `place`.
    pub fn new(place: FileSystemKind) -> Folder {
        Folder::under(&place.root())
    }

    /// Makes a folder in the folder `root`.
    pub fn under(root: &Path) -> Folder {
        let made =
            tempfile::Builder::new().prefix("bywash-programs-").tempdir_in(root).expect("a temporary folder");
        fs::set_permissions(made.path(), Permissions::from_mode(0o755)).expect("permissions");
        if std::env::var_os("BYWASH_TEST_KEEP").is_some() {
            Folder { path: made.keep(), _removed_at_end: None }
        } else {
            Folder { path: made.path().to_owned(), _removed_at_end: Some(made) }
        }
    }

    /// Returns the path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }
}
