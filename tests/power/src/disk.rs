//! Disks of a machine, and the file systems on them.

use std::fs::File;
use std::path::Path;
use std::process::Command;

/// File system on a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// ext4, 4 KiB blocks.
    Ext4,
    /// XFS.
    Xfs,
    /// No file system: the disk is used as it is.
    Raw,
}

/// Description of a disk.
#[derive(Clone, Copy, Debug)]
pub struct Disk {
    /// Name, which is that of its mount point, too.
    pub name: &'static str,
    /// Size in bytes.
    pub bytes: u64,
    /// File system.
    pub format: Format,
    /// Number of bytes that are written whole or not at all when the power fails, a multiple of 512.
    pub tear_bytes: usize,
}

impl Disk {
    /// Describes a disk of a usual size, torn at sectors of 512 bytes; an XFS at its blocks, since XFS cannot repair its
    /// own metadata if a block of them is torn.
    pub fn new(name: &'static str, format: Format) -> Disk {
        let (mebibytes, tear_bytes) = match format {
            Format::Ext4 => (64, 512),
            Format::Xfs => (64, 4096),
            Format::Raw => (16, 512),
        };
        Disk { name, bytes: mebibytes << 20, format, tear_bytes }
    }

    /// Returns the disk with another size.
    pub fn with_bytes(self, bytes: u64) -> Disk {
        Disk { bytes, ..self }
    }

    /// Makes the disk, as the file `image`, with an empty file system.
    ///
    /// # Errors
    /// A sentence of the tool that failed.
    pub(crate) fn make(&self, image: &Path) -> Result<(), String> {
        File::create(image).and_then(|file| file.set_len(self.bytes)).map_err(|error| at(image, error))?;
        let mut command = Command::new(match self.format {
            Format::Ext4 => "/sbin/mkfs.ext4",
            Format::Xfs => "/sbin/mkfs.xfs",
            Format::Raw => return Ok(()),
        });
        let options: &[&str] = match self.format {
            // Nothing is left to a thread of the kernel that would write at any time.
            Format::Ext4 => &["-q", "-F", "-b", "4096", "-E", "lazy_itable_init=0,lazy_journal_init=0"],
            // Without the last option it wants 300 MiB.
            _ => &["-q", "-f", "--unsupported"],
        };
        tool(command.args(options).arg(image)).map(drop)
    }
}

/// Says what happened to a path.
pub(crate) fn at(path: &Path, error: impl std::fmt::Display) -> String {
    format!("{}: {error}", path.display())
}

/// Runs a tool and returns its output.
pub(crate) fn tool(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().display().to_string();
    let output = command.output().map_err(|error| format!("cannot run {name}: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("{name}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}
