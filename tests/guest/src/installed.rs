//! Where programs are and which Debian package brings them.
//!
//! A test whose program is missing fails and names the package: a test that skips is not noticed.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Where Debian keeps programs.
const FOLDERS: [&str; 4] = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// The path of the program `name`.
///
/// # Panics
/// When it is not installed.
pub fn find(name: &str) -> PathBuf {
    FOLDERS.iter().map(|folder| Path::new(folder).join(name)).find(|path| path.is_file()).unwrap_or_else(|| {
        panic!(
            "{name} is not installed: Debian package {} (`make packages` installs all that the tests need)",
            package(name)
        )
    })
}

/// The Debian 12 package that brings `name`.
fn package(name: &str) -> &str {
    match name {
        "busybox" => "busybox-static",
        "debugfs" | "e2fsck" | "mke2fs" => "e2fsprogs",
        "ldd" => "libc-bin",
        "qemu-storage-daemon" => "qemu-system-common",
        "qemu-system-x86_64" => "qemu-system-x86",
        "apt-cache" | "apt-get" => "apt",
        name => name,
    }
}

/// What the program `name` prints with these arguments.
///
/// # Panics
/// With what it says when it fails, or when it is not installed.
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
