//! Inspects files and block devices and the abilities of their file systems, without changing anything.
//!
//! Invariant: an ability of a file system is tested by the system call itself, on the file or, for a file to
//! be created, on a nameless one in its folder. Called by the endpoints that are files.

use super::File;
use crate::end::{check_new_file, folder_of, kind_of, resolved, size_of, stat_endpoint};
use crate::error::Error;
use crate::facts::{End, FileSystem, Kind};
use crate::sys::{self, DONTCACHE};
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use std::io::IoSliceMut;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Returns the properties of a file as a source.
///
/// # Errors
/// [`Error::Io`] if the file does not exist or cannot be inspected; [`Error::Usage`] if it is a folder or a
/// socket.
pub(super) fn source(file: &File, name: &str) -> Result<End, Error> {
    let failed = |error: Errno| Error::io(format!("open {name}"), error);
    let Some(stat) = stat_endpoint(&file.path, name)? else { return Err(failed(Errno::NOENT)) };
    let kind = kind_of(&stat);
    if !kind.is_storage() {
        return Ok(End::new(name.to_owned(), kind));
    }
    let descriptor =
        rustix::fs::open(&file.path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map_err(failed)?;
    let end = opened_source(name, descriptor.as_fd()).map_err(failed)?;
    let size = end.size.map(|size| {
        let left = size.saturating_sub(file.offset.unwrap_or(0));
        file.length.map_or(left, |length| length.min(left))
    });
    Ok(End { size, ..end })
}

/// Returns the properties of an open descriptor as a source named `name`.
pub(in crate::endpoint) fn opened_source(name: &str, descriptor: BorrowedFd<'_>) -> Result<End, Errno> {
    let stat = rustix::fs::fstat(descriptor)?;
    let kind = kind_of(&stat);
    if !kind.is_storage() {
        return Ok(End::new(name.to_owned(), kind));
    }
    let size = size_of(descriptor, &stat)?;
    if kind == Kind::File && size == 0 {
        // Files of procfs have size 0 too, and are read to their end like streams.
        return Ok(End::new(name.to_owned(), Kind::Device));
    }
    Ok(End {
        size: Some(size),
        has_holes: kind == Kind::File && (stat.st_blocks as u64).saturating_mul(512) < size,
        file_system: Some(file_system(descriptor, stat.st_dev, None)),
        ..End::new(name.to_owned(), kind)
    })
}

/// Returns the properties of a file as a sink, or those that the file to be created will have.
///
/// # Errors
/// [`Error::Io`] if the file or its folder cannot be inspected or the file may not be replaced;
/// [`Error::Usage`] if it is a folder or a socket.
pub(super) fn sink(file: &File, name: &str) -> Result<End, Error> {
    let there = stat_endpoint(&file.path, name)?;
    let kind = there.as_ref().map_or(Kind::File, kind_of);
    if !kind.is_storage() {
        return Ok(End::new(name.to_owned(), kind));
    }
    let end = End { appends: file.append, ..End::new(name.to_owned(), kind) };
    if let (Some(stat), true) = (&there, kind == Kind::Block) {
        let descriptor = rustix::fs::open(&file.path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|error| Error::io(format!("open {name}"), error))?;
        return Ok(End { file_system: Some(file_system(descriptor.as_fd(), stat.st_rdev, None)), ..end });
    }
    // A symbolic link is followed to the place where the file will be created.
    let path = resolved(&file.path).map_err(|error| Error::io(format!("follow {name}"), error))?;
    if file.is_new() {
        check_new_file(&path)?;
    }
    let folder = folder_of(&path);
    let failed = |error: Errno| Error::io(format!("make {name} in the folder {}", folder.display()), error);
    let opened =
        rustix::fs::open(folder, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .map_err(failed)?;
    let device = rustix::fs::fstat(&opened).map_err(failed)?.st_dev;
    Ok(End { file_system: Some(file_system(opened.as_fd(), device, Some(folder))), ..end })
}

/// Tests the abilities of the file system that `descriptor` is on. If `folder` is given, a nameless file is
/// created there for the tests; else only O_DIRECT is tested, on `descriptor` itself.
pub(in crate::endpoint) fn file_system(
    descriptor: BorrowedFd<'_>,
    device: u64,
    folder: Option<&Path>,
) -> FileSystem {
    let magic = rustix::fs::fstatfs(descriptor).map_or(0, |system| system.f_type as u64);
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    let nameless: Option<OwnedFd> =
        folder.and_then(|folder| rustix::fs::open(folder, flags, Mode::RUSR | Mode::WUSR).ok());
    let probe = nameless.as_ref().map_or(descriptor, AsFd::as_fd);
    let is_device = rustix::fs::fstat(descriptor).is_ok_and(|stat| kind_of(&stat) == Kind::Block);
    FileSystem {
        name: if is_device { "the device".into() } else { name_of(magic) },
        device,
        reflinks: nameless.is_some() && takes_reflinks(probe),
        dontcache: nameless.is_some() && takes_dontcache(probe),
        direct_alignment: direct_alignment(probe),
    }
}

/// Tests FICLONERANGE by sharing nothing of a file with the file itself. A file system without that ability
/// refuses with another error than EINVAL.
fn takes_reflinks(probe: BorrowedFd<'_>) -> bool {
    matches!(sys::clone_range(probe, probe, 0, 0, 0), Ok(()) | Err(Errno::INVAL))
}

/// Tests RWF_DONTCACHE by a read from an empty file, since the kernel checks the flags before the size.
fn takes_dontcache(probe: BorrowedFd<'_>) -> bool {
    let mut byte = [0];
    rustix::io::preadv2(probe, &mut [IoSliceMut::new(&mut byte)], 0, DONTCACHE).is_ok()
}

/// Returns the alignment for O_DIRECT as statx(2) reports it (Linux 6.1), or else the sector size of a block
/// device, in bytes.
fn direct_alignment(probe: BorrowedFd<'_>) -> Option<u32> {
    let said = rustix::fs::statx(
        probe,
        c"",
        AtFlags::EMPTY_PATH,
        StatxFlags::from_bits_retain(libc::STATX_DIOALIGN),
    );
    let said = said.ok().map(|stat| stat.stx_dio_offset_align.max(stat.stx_dio_mem_align));
    said.filter(|alignment| *alignment > 0).or_else(|| rustix::fs::ioctl_blksszget(probe).ok())
}

/// Returns the name of a file system by its number in linux/magic.h.
fn name_of(magic: u64) -> String {
    const NAMES: [(u64, &str); 11] = [
        (0xEF53, "ext4"),
        (0x5846_5342, "xfs"),
        (0x9123_683E, "btrfs"),
        (0x0102_1994, "tmpfs"),
        (0x794C_7630, "overlayfs"),
        (0x6969, "nfs"),
        (0xF2F5_2010, "f2fs"),
        (0x2FC1_2FC1, "zfs"),
        (0xCA45_1A4E, "bcachefs"),
        (0x6573_5546, "fuse"),
        (0x9FA0, "proc"),
    ];
    NAMES
        .iter()
        .find(|known| known.0 == magic & 0xFFFF_FFFF)
        .map_or_else(|| format!("a file system 0x{magic:x}"), |known| known.1.into())
}
