//! The programs of a guest: busybox, e2fsprogs, the modules and programs that a test names, and a script.
//!
//! The first program loads the modules, runs the script, and switches the machine off, whether or not the
//! script succeeds.

use crate::guest::archive::Archive;
use crate::guest::installed::{Missing, require, try_output};
use crate::guest::kernel::Kernel;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Modules for a virtio disk, each after those that it needs.
pub const VIRTIO_DISK: [&str; 6] = [
    "drivers/virtio/virtio_ring",
    "drivers/virtio/virtio",
    "drivers/virtio/virtio_pci_legacy_dev",
    "drivers/virtio/virtio_pci_modern_dev",
    "drivers/virtio/virtio_pci",
    "drivers/block/virtio_blk",
];

/// Modules of a virtio network card, which are loaded after those of [`VIRTIO_DISK`].
pub const NETWORK: [&str; 3] = ["net/core/failover", "drivers/net/net_failover", "drivers/net/virtio_net"];

/// Programs of the host, copied with the libraries that they are linked to. A script calls them by their path
/// in /sbin, since busybox has some of the same names.
const PROGRAMS: [&str; 2] = ["mke2fs", "e2fsck"];

/// Modules that hand PCI functions to processes, each after those that it needs.
pub const VFIO: [&str; 6] = [
    "virt/lib/irqbypass",
    "drivers/vfio/vfio",
    "drivers/vfio/vfio_virqfd",
    "drivers/vfio/vfio_iommu_type1",
    "drivers/vfio/pci/vfio-pci-core",
    "drivers/vfio/pci/vfio-pci",
];

/// Modules and programs of a guest, beside those that every guest has.
#[derive(Clone, Debug, Default)]
pub struct Contents {
    /// Modules to load: their paths below the kernel's modules, without `.ko`, each after those that it needs.
    pub modules: Vec<String>,
    /// Modules that the script loads, as `/modules/NAME.ko`.
    pub later_modules: Vec<String>,
    /// Programs of the host: the name in `/sbin`, and the path.
    pub programs: Vec<(String, PathBuf)>,
}

/// Greatest time that a guest runs, in s, even if no test is left to end it; a test can set another.
pub const SECONDS_MAX: u32 = 120;

/// Makes the archive of a guest's file system, for a kernel to unpack.
///
/// # Errors
/// [`Missing`] if a program or library that belongs in it is not installed, or cannot be read.
pub fn system(
    kernel: &Kernel,
    contents: &Contents,
    script: &str,
    seconds_max: u32,
) -> Result<Vec<u8>, Missing> {
    let mut archive = Archive::new();
    for folder in ["bin", "dev", "lib", "lib64", "mnt", "modules", "proc", "sbin", "sys", "tmp"] {
        archive.folder(folder);
    }
    archive.console("dev/console");
    archive.program("bin/busybox", &read(&require("busybox")?)?);
    archive.link("bin/sh", "busybox");
    let mut libraries = BTreeSet::new();
    let mut programs = contents.programs.clone();
    for name in PROGRAMS {
        programs.push((name.to_owned(), require(name)?));
    }
    for (name, program) in programs {
        archive.program(&format!("sbin/{name}"), &read(&program)?);
        libraries.extend(linked(&program)?);
    }
    for library in &libraries {
        let path = Path::new(library);
        // The loader must lie at the path that programs name; all other libraries in a folder that the loader
        // searches.
        let folder = if path.starts_with("/lib64") { "lib64" } else { "lib" };
        let name = path.file_name().expect("the path of a library").to_string_lossy();
        archive.program(&format!("{folder}/{name}"), &read(path)?);
    }
    let mut load = String::new();
    for module in contents.modules.iter().chain(&contents.later_modules) {
        if kernel.has_built_in(module) {
            continue;
        }
        let name = module.rsplit('/').next().expect("the name of a module");
        archive.program(&format!("modules/{name}.ko"), &kernel.module(module)?);
        if contents.modules.contains(module) {
            load += &format!("insmod /modules/{name}.ko || fail 'module {name}'\n");
        }
    }
    archive.program("script", script.as_bytes());
    archive.program(
        "init",
        FIRST.replace("LOAD", &load).replace("SECONDS_MAX", &seconds_max.to_string()).as_bytes(),
    );
    Ok(archive.finish())
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

fn read(path: &Path) -> Result<Vec<u8>, Missing> {
    fs::read(path).map_err(|error| Missing(format!("cannot read {}: {error}", path.display())))
}

/// Returns the paths of a program's libraries. ldd(1) prints `name => path (address)`, or `path (address)`
/// for the loader.
fn linked(program: &Path) -> Result<Vec<String>, Missing> {
    let said = try_output("ldd", &[&program.to_string_lossy()])?;
    Ok(said.split_whitespace().filter(|word| word.starts_with('/')).map(str::to_owned).collect())
}
