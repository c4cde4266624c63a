//! The programs of a guest: busybox, e2fsprogs, the modules for its disk or network, a program of a test, and a script.
//!
//! The first program loads the modules, runs the script, and switches the machine off, whether or not the
//! script succeeds.

use crate::guest::archive::Archive;
use crate::guest::installed::{find, output};
use crate::guest::kernel::Kernel;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Modules to load, each after those that it needs.
const MODULES: [&str; 6] = [
    "drivers/virtio/virtio_ring",
    "drivers/virtio/virtio",
    "drivers/virtio/virtio_pci_legacy_dev",
    "drivers/virtio/virtio_pci_modern_dev",
    "drivers/virtio/virtio_pci",
    "drivers/block/virtio_blk",
];

/// Modules of a network card, which are loaded after [`MODULES`].
pub const NETWORK_MODULES: [&str; 3] =
    ["net/core/failover", "drivers/net/net_failover", "drivers/net/virtio_net"];

/// Programs of the host, copied with the libraries that they are linked to. A script calls them by their path
/// in /sbin, since busybox has some of the same names.
const PROGRAMS: [&str; 2] = ["mke2fs", "e2fsck"];

/// Greatest time that a guest runs, in s, even if no test is left to end it.
pub const SECONDS_MAX: u32 = 120;

/// Makes the archive of a guest's file system, for a kernel to unpack: with more modules, and with `program` as
/// `/sbin/guest`.
///
/// # Panics
/// If a program or library that belongs in it is not installed.
pub fn system(kernel: &Kernel, modules: &[&str], program: Option<&Path>, script: &str) -> Vec<u8> {
    let mut archive = Archive::new();
    for folder in ["bin", "dev", "lib", "lib64", "mnt", "modules", "proc", "sbin", "sys", "tmp"] {
        archive.folder(folder);
    }
    archive.console("dev/console");
    archive.program("bin/busybox", &read(&find("busybox")));
    archive.link("bin/sh", "busybox");
    let mut libraries = BTreeSet::new();
    let own = program.map(|program| ("guest", program.to_owned()));
    for (name, program) in PROGRAMS.map(|name| (name, find(name))).into_iter().chain(own) {
        archive.program(&format!("sbin/{name}"), &read(&program));
        libraries.extend(linked(&program));
    }
    for library in &libraries {
        let path = Path::new(library);
        // The loader must lie at the path that programs name; all other libraries in a folder that the loader
        // searches.
        let folder = if path.starts_with("/lib64") { "lib64" } else { "lib" };
        let name = path.file_name().expect("the path of a library").to_string_lossy();
        archive.program(&format!("{folder}/{name}"), &read(path));
    }
    let mut load = String::new();
    for module in MODULES.iter().chain(modules) {
        let name = module.rsplit('/').next().expect("the name of a module");
        archive.program(&format!("modules/{name}.ko"), &read(&kernel.modules.join(format!("{module}.ko"))));
        load += &format!("insmod /modules/{name}.ko || fail 'module {name}'\n");
    }
    archive.program("script", script.as_bytes());
    archive.program(
        "init",
        FIRST.replace("LOAD", &load).replace("SECONDS_MAX", &SECONDS_MAX.to_string()).as_bytes(),
    );
    archive.finish()
}

/// The first program. `say` prints a line for the host; `step` runs a command that has to succeed.
const FIRST: &str = r#"#!/bin/sh
export PATH=/bin
/bin/busybox --install -s /bin
say() { echo "guest: $*"; }
fail() { say "failed: $*"; dmesg | tail -n 20; poweroff -f; sleep 60; }
step() { "$@" > /tmp/step 2>&1 || { cat /tmp/step; fail "$*"; }; }
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys
(sleep SECONDS_MAX; poweroff -f) &
LOAD
. /script
say end
poweroff -f
sleep 60
"#;

fn read(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()))
}

/// Returns the paths of a program's libraries. ldd(1) prints `name => path (address)`, or `path (address)`
/// for the loader.
fn linked(program: &Path) -> Vec<String> {
    let said = output("ldd", &[&program.to_string_lossy()]);
    said.split_whitespace().filter(|word| word.starts_with('/')).map(str::to_owned).collect()
}
