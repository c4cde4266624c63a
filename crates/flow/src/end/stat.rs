//! Kind and size of files and descriptors, by stat(2).

use crate::error::Error;
use crate::facts::Kind;
use rustix::fs::{FileType, SeekFrom, Stat};
use rustix::io::Errno;
use std::os::fd::BorrowedFd;
use std::path::Path;

/// Returns the kind of a file or descriptor.
pub(crate) fn kind_of(stat: &Stat) -> Kind {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Kind::File,
        FileType::BlockDevice => Kind::Block,
        FileType::Fifo => Kind::Pipe,
        FileType::Socket => Kind::Stream,
        FileType::CharacterDevice if is_null(stat) => Kind::Null,
        _ => Kind::Device,
    }
}

fn is_null(stat: &Stat) -> bool {
    (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev)) == (1, 3)
}

/// Inspects `path`. Returns `None` if nothing exists there.
///
/// # Errors
/// [`Error::Usage`] if it is a folder or a socket; [`Error::Io`] if stat(2) fails.
pub(crate) fn stat_endpoint(path: &Path, name: &str) -> Result<Option<Stat>, Error> {
    match rustix::fs::stat(path) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => {
            Err(Error::Usage(format!("{name} is a folder: name a file in it")))
        }
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Socket => {
            Err(Error::Usage(format!("{name} is a socket: write unix:{}", path.display())))
        }
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(Error::io(format!("look at {name}"), error)),
    }
}

/// Returns the size of a regular file or block device, in bytes. Keeps the descriptor's offset.
pub(crate) fn size_of(descriptor: BorrowedFd<'_>, stat: &Stat) -> Result<u64, Errno> {
    match kind_of(stat) {
        Kind::Block => {
            let here = rustix::fs::seek(descriptor, SeekFrom::Current(0))?;
            let end = rustix::fs::seek(descriptor, SeekFrom::End(0))?;
            rustix::fs::seek(descriptor, SeekFrom::Start(here))?;
            Ok(end)
        }
        _ => Ok(stat.st_size as u64),
    }
}
