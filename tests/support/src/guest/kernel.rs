//! Debian's kernel for virtual machines, downloaded once.
//!
//! The kernel is not installed, which would install a boot loader as well. Its package is downloaded and
//! unpacked into the target folder, and stays there. Invariant: the folder gets its name only when its
//! contents are complete.

use crate::guest::installed::{find, output};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Package that depends on the newest kernel of its kind.
const PACKAGE: &str = "linux-image-cloud-amd64";

/// A kernel and its modules.
#[derive(Debug)]
pub struct Kernel {
    /// Path of the kernel's image.
    pub image: PathBuf,
    /// Folder of its modules.
    pub modules: PathBuf,
}

/// Returns the kernel, and downloads it first if necessary.
///
/// # Panics
/// If the kernel cannot be downloaded, with what to do.
pub fn kernel() -> &'static Kernel {
    static KERNEL: OnceLock<Kernel> = OnceLock::new();
    KERNEL.get_or_init(|| {
        let folder = target().join("guest-kernel");
        if !folder.is_dir() {
            fetch(&folder);
        }
        let image = only_entry(&folder.join("boot"), "vmlinuz-");
        let modules = only_entry(&folder.join("lib/modules"), "").join("kernel");
        Kernel { image, modules }
    })
}

/// Returns the folder that cargo builds in. The test's path is `<target>/<profile>/deps/<test>`.
fn target() -> PathBuf {
    let test = std::env::current_exe().expect("the test's own path");
    test.ancestors()
        .nth(3)
        .unwrap_or_else(|| panic!("{} is not where cargo puts tests: use cargo test", test.display()))
        .to_owned()
}

fn only_entry(folder: &Path, prefix: &str) -> PathBuf {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let named =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix));
    entries.filter(named).max().unwrap_or_else(|| {
        panic!(
            "{} has no {prefix}*: remove the folder guest-kernel there, to be fetched anew",
            folder.display()
        )
    })
}

fn fetch(folder: &Path) {
    let names = output("apt-cache", &["depends", "--important", PACKAGE]);
    let name = names.lines().find_map(|line| line.trim().strip_prefix("Depends: ")).unwrap_or_else(|| {
        panic!("apt knows no package {PACKAGE}: run `apt-get update`, on Debian for amd64")
    });
    let parent = folder.parent().expect("a folder in the target folder");
    let scratch = tempfile::tempdir_in(parent).expect("a temporary folder in the target folder");
    let fetched = Command::new(find("apt-get"))
        .args(["download", "--quiet", name])
        .current_dir(&scratch)
        .output()
        .expect("apt-get runs");
    assert!(
        fetched.status.success(),
        "cannot fetch Debian's package {name}, which needs the network the first time (`apt-get update` if its \
         list is old): {}",
        String::from_utf8_lossy(&fetched.stderr)
    );
    let package = only_entry(scratch.path(), name);
    let unpacked = scratch.path().join("unpacked");
    output("dpkg", &["-x", &package.to_string_lossy(), &unpacked.to_string_lossy()]);
    // Another test may have renamed the same contents first.
    if let Err(error) = fs::rename(&unpacked, folder) {
        assert!(folder.is_dir(), "cannot name {}: {error}", folder.display());
    }
}
