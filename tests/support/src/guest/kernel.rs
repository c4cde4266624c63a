//! Debian's kernels for virtual machines, each downloaded once.
//!
//! A kernel is not installed, which would install a boot loader as well. Its package is downloaded and
//! unpacked into the target folder, and stays there. Invariant: the folder gets its name only when its
//! contents are complete.

use crate::guest::installed::{find, output};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// One of Debian's kernels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Release {
    /// The kernel that belongs to the release of Debian: Linux 6.1 or later.
    #[default]
    Stable,
    /// A kernel that Debian has for newer machines: Linux 6.12 or later.
    Recent,
}

impl Release {
    /// Returns the name of its folder, and packages of which each depends on the newest kernel of its kind: the first one
    /// that there is.
    fn names(self) -> (&'static str, &'static [&'static str]) {
        const STABLE: &str = "linux-image-cloud-amd64";
        match self {
            Release::Stable => ("guest-kernel", &[STABLE]),
            // Later releases of Debian have it as their own.
            Release::Recent => ("guest-kernel-recent", &["linux-image-6.12-cloud-amd64", STABLE]),
        }
    }
}

/// A kernel and its modules.
#[derive(Debug)]
pub struct Kernel {
    /// Path of the kernel's image.
    pub image: PathBuf,
    /// Folder of its modules.
    modules: PathBuf,
}

impl Kernel {
    /// Returns the contents of a module, named by its path below the folder of modules, without `.ko`.
    ///
    /// # Panics
    /// If there is no such module, or it cannot be read.
    pub fn module(&self, name: &str) -> Vec<u8> {
        let plain = self.modules.join(format!("{name}.ko"));
        let packed = self.modules.join(format!("{name}.ko.xz"));
        if !packed.exists() {
            return fs::read(&plain)
                .unwrap_or_else(|error| panic!("cannot read {}: {error}", plain.display()));
        }
        let unpacked = Command::new(find("xz")).args(["--decompress", "--stdout"]).arg(&packed).output();
        let unpacked = unpacked.unwrap_or_else(|error| panic!("cannot run xz: {error}"));
        assert!(unpacked.status.success(), "{} cannot be unpacked", packed.display());
        unpacked.stdout
    }
}

/// Returns a kernel, and downloads it first if necessary.
///
/// # Panics
/// If the kernel cannot be downloaded, with what to do.
pub fn kernel(release: Release) -> &'static Kernel {
    static KERNELS: [OnceLock<Kernel>; 2] = [const { OnceLock::new() }; 2];
    KERNELS[release as usize].get_or_init(|| {
        let (name, packages) = release.names();
        let folder = target().join(name);
        if !folder.is_dir() {
            fetch(&folder, packages);
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
            "{} has no {prefix}*: remove the kernel's folder in the target folder, to be fetched anew",
            folder.display()
        )
    })
}

/// Returns the name of the newest kernel among the packages that depend on one.
fn newest(packages: &[&str]) -> String {
    for package in packages {
        let asked = Command::new(find("apt-cache")).args(["depends", "--important", package]).output();
        let asked = asked.expect("apt-cache runs");
        let names = String::from_utf8_lossy(&asked.stdout).into_owned();
        // apt fails if it knows no such package.
        if let Some(name) = names.lines().find_map(|line| line.trim().strip_prefix("Depends: ")) {
            return name.to_owned();
        }
    }
    panic!("apt knows no package {}: run `apt-get update`, on Debian for amd64", packages.join(" or "))
}

fn fetch(folder: &Path, packages: &[&str]) {
    let name = newest(packages);
    let parent = folder.parent().expect("a folder in the target folder");
    let scratch = tempfile::tempdir_in(parent).expect("a temporary folder in the target folder");
    let fetched = Command::new(find("apt-get"))
        .args(["download", "--quiet", &name])
        .current_dir(&scratch)
        .output()
        .expect("apt-get runs");
    assert!(
        fetched.status.success(),
        "cannot fetch Debian's package {name}, which needs the network the first time (`apt-get update` if its \
         list is old): {}",
        String::from_utf8_lossy(&fetched.stderr)
    );
    let package = only_entry(scratch.path(), &name);
    let unpacked = scratch.path().join("unpacked");
    output("dpkg", &["-x", &package.to_string_lossy(), &unpacked.to_string_lossy()]);
    // Another test may have renamed the same contents first.
    if let Err(error) = fs::rename(&unpacked, folder) {
        assert!(folder.is_dir(), "cannot name {}: {error}", folder.display());
    }
}
