//! A disk's image and the socket at which it is served, and a check that the image contains the files of a
//! guest.

use crate::guest::script;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Folder of a disk's image and socket.
#[derive(Debug)]
pub struct Disk {
    folder: PathBuf,
    _removed_at_end: Option<TempDir>,
}

impl Disk {
    /// Makes an image of `bytes` zero bytes. It lies on a disk, since memory file systems do not support
    /// direct I/O.
    ///
    /// # Panics
    /// If the folder or the image cannot be made.
    pub fn new(bytes: u64) -> Disk {
        let folder = tempfile::tempdir_in("/var/tmp").expect("a folder on the disk");
        let image = File::create(folder.path().join("image")).expect("an image is made");
        image.set_len(bytes).expect("an image has its size");
        Disk { folder: folder.path().to_owned(), _removed_at_end: Some(folder) }
    }

    /// Names the disk of another process, in this folder.
    pub fn at(folder: &Path) -> Disk {
        Disk { folder: folder.to_owned(), _removed_at_end: None }
    }

    /// Returns the path of the image.
    pub fn image(&self) -> PathBuf {
        self.folder.join("image")
    }

    /// Returns the path of the socket at which the disk is served.
    pub fn socket(&self) -> PathBuf {
        self.folder.join("socket")
    }

    /// Waits until the socket exists.
    ///
    /// # Panics
    /// If it does not exist after 20 s.
    pub fn wait_for_socket(&self) {
        let end = Instant::now() + Duration::from_secs(20);
        while !self.socket().exists() {
            assert!(Instant::now() < end, "nobody listens at {}", self.socket().display());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Checks that the guest of [`script::FILE_SYSTEM`] has read the same files that it had written, and that the
/// image contains them.
///
/// # Panics
/// If not, with the difference.
pub fn check_files(image: &Path, said: &[String]) {
    let hashes = |what: &str| -> BTreeMap<String, String> {
        let lines = said.iter().filter_map(|line| line.strip_prefix(what)?.strip_prefix(' '));
        lines
            .map(|line| line.split_once(' ').expect("a hash and a name"))
            .map(|(hash, name)| (name.to_owned(), hash.to_owned()))
            .collect()
    };
    let written = hashes("file");
    assert_eq!(written.len(), 1 + 4 + 58, "{said:?}");
    assert_eq!(hashes("again"), written);

    script::check_image(image);
    let copies = tempfile::tempdir().expect("a temporary folder");
    script::copy_out(image, "/files", copies.path());
    let found: BTreeMap<String, String> = fs::read_dir(copies.path().join("files"))
        .expect("the image has the folder")
        .map(|entry| {
            let entry = entry.expect("a folder can be read");
            let hash = Sha256::digest(fs::read(entry.path()).expect("a file can be read"));
            let hash = hash.iter().map(|byte| format!("{byte:02x}")).collect();
            (entry.file_name().to_string_lossy().into_owned(), hash)
        })
        .collect();
    assert_eq!(found, written);
}
