//! Debian's kernels for virtual machines, each downloaded once.
//!
//! A kernel is not installed, which would install a boot loader as well. Its package is downloaded and unpacked into a folder
//! of its own in the target folder, or in another one, and stays there. Invariant: the folder gets its name only when its
//! contents are complete.

use crate::guest::installed::{Missing, require, try_output};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One of Debian's kernels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Release {
    /// The kernel that belongs to the release of Debian: Linux 6.1 or later.
    #[default]
    Stable,
    /// A kernel that Debian has for newer machines: Linux 6.12 or later.
    Recent,
    /// The kernel that belongs to the release of Debian, with all drivers: 70 MB to download.
    Complete,
    /// A kernel for newer machines with all drivers: 110 MB to download.
    RecentComplete,
}

impl Release {
    /// Returns the name of its folder, and packages of which each depends on the newest kernel of its kind: the first one
    /// that there is counts.
    fn names(self) -> (&'static str, &'static [&'static str]) {
        const STABLE: &str = "linux-image-cloud-amd64";
        const COMPLETE: &str = "linux-image-amd64";
        match self {
            Release::Stable => ("guest-kernel", &[STABLE]),
            // Later releases of Debian have it as their own.
            Release::Recent => ("guest-kernel-recent", &["linux-image-6.12-cloud-amd64", STABLE]),
            Release::Complete => ("guest-kernel-complete", &[COMPLETE]),
            Release::RecentComplete => {
                ("guest-kernel-recent-complete", &["linux-image-6.12-amd64", COMPLETE])
            }
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
    /// Returns true if a module, named as in [`Kernel::module`], is part of the kernel's image.
    pub fn has_built_in(&self, name: &str) -> bool {
        let list = fs::read_to_string(self.modules.with_file_name("modules.builtin")).unwrap_or_default();
        list.lines().any(|line| line.strip_prefix("kernel/") == Some(&format!("{name}.ko")))
    }

    /// Returns the contents of a module, named by its path below the folder of modules, without `.ko`.
    ///
    /// # Errors
    /// [`Missing`] if there is no such module, or it cannot be read or unpacked.
    pub fn module(&self, name: &str) -> Result<Vec<u8>, Missing> {
        let plain = self.modules.join(format!("{name}.ko"));
        let packed = self.modules.join(format!("{name}.ko.xz"));
        if !packed.exists() {
            return fs::read(&plain)
                .map_err(|error| Missing(format!("cannot read {}: {error}", plain.display())));
        }
        let failed = |why: String| Missing(format!("cannot unpack {}: {why}", packed.display()));
        let mut unpack = Command::new(require("xz")?);
        let unpacked = unpack.args(["--decompress", "--stdout"]).arg(&packed).output();
        let unpacked = unpacked.map_err(|error| failed(error.to_string()))?;
        match unpacked.status.success() {
            true => Ok(unpacked.stdout),
            false => Err(failed(String::from_utf8_lossy(&unpacked.stderr).into_owned())),
        }
    }
}

/// Returns the kernel of a release in a folder, and downloads it first if necessary.
///
/// # Errors
/// [`Missing`] if the kernel cannot be downloaded, with what to do.
pub fn kernel(release: Release, parent: &Path) -> Result<Kernel, Missing> {
    let (name, packages) = release.names();
    let folder = parent.join(name);
    if !folder.is_dir() {
        fetch(parent, &folder, packages)?;
    }
    let image = only_entry(&folder.join("boot"), "vmlinuz-")?;
    let modules = only_entry(&folder.join("lib/modules"), "")?.join("kernel");
    Ok(Kernel { image, modules })
}

/// Returns the folder that cargo builds in. The path of a test is `<target>/<profile>/deps/<test>`.
///
/// # Panics
/// If the program lies elsewhere.
pub fn target() -> PathBuf {
    let test = std::env::current_exe().expect("the test's own path");
    test.ancestors()
        .nth(3)
        .unwrap_or_else(|| panic!("{} is not where cargo puts tests: use cargo test", test.display()))
        .to_owned()
}

fn only_entry(folder: &Path, prefix: &str) -> Result<PathBuf, Missing> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let named =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix));
    entries.filter(named).max().ok_or_else(|| {
        Missing(format!(
            "{} has no {prefix}*: remove the kernel's folder, to be fetched anew",
            folder.display()
        ))
    })
}

/// Returns the name of the newest kernel's package: what the first of these depends on that apt knows.
fn newest(packages: &[&str]) -> Result<String, Missing> {
    let depends = |package: &&str| {
        let names = try_output("apt-cache", &["depends", "--important", package]).ok()?;
        names.lines().find_map(|line| line.trim().strip_prefix("Depends: ")).map(str::to_owned)
    };
    packages.iter().find_map(depends).ok_or_else(|| {
        let packages = packages.join(" or ");
        Missing(format!("apt knows no package {packages}: run `apt-get update`, on Debian for amd64"))
    })
}

fn fetch(parent: &Path, folder: &Path, packages: &[&str]) -> Result<(), Missing> {
    let name = newest(packages)?;
    let io = |error| Missing(format!("cannot fetch a kernel into {}: {error}", parent.display()));
    fs::create_dir_all(parent).map_err(io)?;
    let scratch = tempfile::tempdir_in(parent).map_err(io)?;
    let mut fetch = Command::new(require("apt-get")?);
    let fetched = fetch.args(["download", "--quiet", &name]).current_dir(&scratch).output().map_err(io)?;
    if !fetched.status.success() {
        return Err(Missing(format!(
            "cannot fetch Debian's package {name}, which needs the network the first time (`apt-get update` if its \
             list is old): {}",
            String::from_utf8_lossy(&fetched.stderr)
        )));
    }
    let package = only_entry(scratch.path(), &name)?;
    let unpacked = scratch.path().join("unpacked");
    try_output("dpkg", &["-x", &package.to_string_lossy(), &unpacked.to_string_lossy()])?;
    // Another process may have renamed the same contents first.
    match fs::rename(&unpacked, folder) {
        Err(error) if !folder.is_dir() => Err(io(error)),
        _ => Ok(()),
    }
}
