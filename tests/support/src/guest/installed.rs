//! Paths of the host's programs, and the Debian packages that contain them.
//!
//! A test whose program is missing fails and names the package, since nobody would notice a skipped test. A bench says why
//! it has no figures.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Folders of Debian's programs.
const FOLDERS: [&str; 4] = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// Returns the path of the program `name`.
///
/// # Panics
/// If the program is not installed.
pub fn find(name: &str) -> PathBuf {
    require(name)
        .unwrap_or_else(|missing| panic!("{missing} (`make packages` installs all that the tests need)"))
}

/// Returns the path of the program `name`.
///
/// # Errors
/// [`Missing`] if the program is not installed.
pub fn require(name: &str) -> Result<PathBuf, Missing> {
    let paths = FOLDERS.iter().map(|folder| Path::new(folder).join(name));
    let package = || Missing(format!("{name} is not installed: Debian package {}", package(name)));
    paths.into_iter().find(|path| path.is_file()).ok_or_else(package)
}

/// Reason why a guest cannot be started, with the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing(pub String);

impl fmt::Display for Missing {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// Returns the Debian 12 package that contains the program `name`.
fn package(name: &str) -> &str {
    match name {
        "busybox" => "busybox-static",
        "debugfs" | "e2fsck" | "mke2fs" => "e2fsprogs",
        "ldd" => "libc-bin",
        "qemu-storage-daemon" => "qemu-system-common",
        "qemu-system-x86_64" => "qemu-system-x86",
        "apt-cache" | "apt-get" => "apt",
        "xz" => "xz-utils",
        name => name,
    }
}

/// Runs the program `name` and returns its output.
///
/// # Panics
/// If the program is not installed, or fails, with its output.
pub fn output(name: &str, arguments: &[&str]) -> String {
    try_output(name, arguments).unwrap_or_else(|missing| panic!("{missing}"))
}

/// Runs the program `name` and returns its output.
///
/// # Errors
/// [`Missing`] if the program is not installed, or fails, with its output.
pub fn try_output(name: &str, arguments: &[&str]) -> Result<String, Missing> {
    let output = Command::new(require(name)?).args(arguments).env("LC_ALL", "C").output();
    let output = output.map_err(|error| Missing(format!("cannot run {name}: {error}")))?;
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        return Ok(said(&output.stdout));
    }
    let (words, status) = (arguments.join(" "), output.status);
    let all = format!("{}{}", said(&output.stdout), said(&output.stderr));
    Err(Missing(format!("{name} {words} ended with {status}: {all}")))
}
