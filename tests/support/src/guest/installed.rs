//! Paths of the host's programs, and the Debian packages that contain them.
//!
//! A test whose program is missing fails and names the package, since nobody would notice a skipped test.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Folders of Debian's programs.
const FOLDERS: [&str; 4] = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// Returns the path of the program `name`.
///
/// # Panics
/// If the program is not installed.
pub fn find(name: &str) -> PathBuf {
    FOLDERS.iter().map(|folder| Path::new(folder).join(name)).find(|path| path.is_file()).unwrap_or_else(|| {
        panic!(
            "{name} is not installed: Debian package {} (`make packages` installs all that the tests need)",
            package(name)
        )
    })
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
    let output = Command::new(find(name)).args(arguments).env("LC_ALL", "C").output();
    let output = output.unwrap_or_else(|error| panic!("cannot run {name}: {error}"));
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{name} {} ended with {}: {}{}",
        arguments.join(" "),
        output.status,
        said(&output.stdout),
        said(&output.stderr)
    );
    said(&output.stdout)
}
