//! Checks of the place where a log is to lie: a log file that keeps what was written, and that is overwritten in place.

use crate::error::Error;
use crate::log_file::LogFile;
use rustix::fs::FsWord;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// File systems in memory (statfs(2)).
const MEMORY: [(FsWord, &str); 2] = [(0x0102_1994, "a tmpfs"), (0x8584_58f6, "a ramfs")];
/// File systems that never overwrite a block in place.
const COPY_ON_WRITE: [(FsWord, &str); 5] = [
    (0x9123_683e, "btrfs"),
    (0x2fc1_2fc1, "ZFS"),
    (0xca45_1a4e, "bcachefs"),
    (0x3434, "NILFS2"),
    (0xf2f5_2010, "F2FS"),
];

/// Checks a log file.
///
/// # Errors
/// [`Error::Volatile`] unless `is_volatile_allowed`; [`Error::CopyOnWrite`]; [`Error::Io`].
pub fn check(log_file: &LogFile, is_volatile_allowed: bool) -> Result<(), Error> {
    let path = log_file.path();
    let memory = if let Some(device) = log_file.device() {
        memory_device(device, path)?
    } else if let Some(volume) = log_file.volume() {
        volume.is_volatile().then_some("a volume on a memory device")
    } else {
        let Some(file) = log_file.file() else { return Ok(()) };
        let kind = rustix::fs::fstatfs(file).map_err(|error| Error::io("look at", path)(error.into()))?;
        let find = |kinds: &[(FsWord, &'static str)]| {
            kinds.iter().find(|(number, _)| *number == kind.f_type).map(|(_, name)| *name)
        };
        if let Some(what) = find(&COPY_ON_WRITE) {
            return Err(Error::CopyOnWrite { path: path.to_owned(), what });
        }
        find(&MEMORY)
    };
    match memory {
        Some(what) if !is_volatile_allowed => Err(Error::Volatile { path: path.to_owned(), what }),
        _ => Ok(()),
    }
}

/// Returns the kind of a block device that keeps its blocks in memory, by the name that sysfs(5) has for it.
fn memory_device(device: &File, path: &Path) -> Result<Option<&'static str>, Error> {
    let number = device.metadata().map_err(Error::io("look at", path))?.rdev();
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let link = format!("/sys/dev/block/{major}:{minor}");
    let named = std::fs::canonicalize(&link).map_err(Error::io("look at", link.as_ref()))?;
    let has = |prefix: &str| {
        named.components().any(|part| {
            let name = part.as_os_str().to_string_lossy();
            name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        })
    };
    Ok(if has("zram") {
        Some("a compressed RAM disk")
    } else if has("ram") {
        Some("a RAM disk")
    } else {
        None
    })
}
