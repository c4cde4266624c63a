//! A disk's image and the socket at which it is served, and whether the image has the files that a guest has written.

use crate::script;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A folder for both.
#[derive(Debug)]
pub struct Disk {
    folder: PathBuf,
    _removed_at_end: Option<TempDir>,
}

impl Disk {
    /// With an image of `bytes`, all zeros. It is on the disk: memory file systems know no direct I/O.
    ///
    /// # Panics
    /// When it cannot be made there.
    pub fn new(bytes: u64) -> Disk {
        let folder = tempfile::tempdir_in("/var/tmp").expect("a folder on the disk");
        let image = File::create(folder.path().join("image")).expect("an image is made");
        image.set_len(bytes).expect("an image has its size");
        Disk { folder: folder.path().to_owned(), _removed_at_end: Some(folder) }
    }

    /// The disk of another process, in this folder.
    pub fn at(folder: &Path) -> Disk {
        Disk { folder: folder.to_owned(), _removed_at_end: None }
    }

    /// The image.
    pub fn image(&self) -> PathBuf {
        self.folder.join("image")
    }

    /// Where it is to be served.
    pub fn socket(&self) -> PathBuf {
        self.folder.join("socket")
    }

    /// Waits until somebody serves it.
    ///
    /// # Panics
    /// When nobody does.
    pub fn wait_for_socket(&self) {
        let end = Instant::now() + Duration::from_secs(20);
        while !self.socket().exists() {
            assert!(Instant::now() < end, "nobody listens at {}", self.socket().display());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Whether the guest of [`script::FILE_SYSTEM`] has read what it had written, and whether the same is in the image.
///
/// # Panics
/// When not, with the difference.
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
