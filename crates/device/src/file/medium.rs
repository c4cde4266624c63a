//! An open file or block device: its size and blocks, how it is accessed, and which requests it supports.
//!
//! Support for discards and for methods of writing zeros is found out by trying once, and remembered here.
//! Called by [`super::File`] and its slots.

use super::{FileKind, FileOptions};
use crate::device::Geometry;
use crate::error::Error;
use crate::pages::Pages;
use crate::segment::{SEGMENTS_MAX, Segment};
use bywash_protocol::Access;
use rustix::fs::{
    AtFlags, FallocateFlags, FileType, FlockOperation, Mode, OFlags, SeekFrom, StatxFlags, fallocate,
    fcntl_getfl, fcntl_setfl, flock, fstat, fstatfs, fsync, ftruncate, ioctl_blkpbszget, ioctl_blksszget,
    open, seek, statx, unlink,
};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Greatest length of a command, in bytes; below the 2 GiB - 4 KiB that the kernel transfers in one request.
const TRANSFER_MAX: u64 = 1 << 30;
/// Size of a logical block, in bytes, unless the medium has larger ones.
const BLOCK: u32 = 512;
/// Alignment for O_DIRECT, in bytes, if the kernel does not tell the file's own (Linux before 6.1).
const DIRECT_ALIGNMENT_DEFAULT: u32 = 4096;
/// Size of the shared memory of zeros, in bytes.
const ZEROES: usize = 64 << 10;
/// Greatest time to wait until another user has given up the file or device.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);
/// File system type of tmpfs in statfs(2); tmpfs keeps its data in the page cache alone.
pub(super) const TMPFS: i64 = 0x0102_1994;

/// Methods of writing zeros, best first for each kind of medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Zeroes {
    /// The BLKZEROOUT ioctl of a block device.
    Ioctl,
    /// fallocate(2) with FALLOC_FL_ZERO_RANGE.
    Range,
    /// fallocate(2) with FALLOC_FL_PUNCH_HOLE.
    Hole,
    /// Ordinary writes of zeros.
    Written,
}

impl Zeroes {
    /// Returns the next best method. `holes` tells if a hole is as good as zeros.
    pub(super) fn next(self, holes: bool) -> Zeroes {
        if self == Zeroes::Range && holes { Zeroes::Hole } else { Zeroes::Written }
    }
}

/// Open file or block device.
#[derive(Debug)]
pub(super) struct Medium {
    pub(super) file: OwnedFd,
    pub(super) geometry: Geometry,
    pub(super) is_block: bool,
    /// Alignment of memory for O_DIRECT, in bytes, or the reason for using the page cache.
    pub(super) direct: Result<u32, String>,
    pub(super) discards: bool,
    pub(super) zeroes: Zeroes,
    /// True if a hole is as good as zeros. It is not if others may truncate the file, since a hole does not
    /// extend it again.
    pub(super) holes: bool,
    /// Pages of zeros, which are never written to.
    zero_pages: Arc<Pages>,
}

impl Medium {
    /// Opens a file or block device by its path, and locks it against use by others.
    pub(super) fn open(options: &FileOptions) -> Result<Medium, Error> {
        match options.kind {
            FileKind::File => open_file(options),
            FileKind::Block => open_block(options),
        }
    }

    /// Wraps a regular file. `direct` tells if O_DIRECT is set on it, `holes` that nobody else truncates it.
    pub(super) fn from_file(
        file: OwnedFd,
        geometry: Geometry,
        direct: Result<u32, String>,
        holes: bool,
    ) -> Medium {
        let zero_pages = zero_pages(geometry.block);
        let (is_block, zeroes) = (false, Zeroes::Range);
        Medium { file, geometry, is_block, direct, discards: true, zeroes, holes, zero_pages }
    }

    /// Wraps a block device that was opened with the flags for its use.
    pub(super) fn from_block_device(
        file: OwnedFd,
        name: &str,
        cached: bool,
        access: Access,
    ) -> Result<Medium, Error> {
        let bytes = seek(&file, SeekFrom::End(0)).map_err(|error| failed("find the size of", name, error))?;
        let block =
            ioctl_blksszget(&file).map_err(|error| failed("find the blocks of", name, error))?.max(BLOCK);
        let optimal = ioctl_blkpbszget(&file).unwrap_or(block).max(block);
        let bytes = bytes - bytes % u64::from(block);
        if bytes == 0 {
            return Err(unfit(name, "it has no block; is there a medium in it?"));
        }
        let wish = statx(&file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN)
            .ok()
            .filter(|answer| StatxFlags::from_bits_retain(answer.stx_mask).contains(StatxFlags::DIOALIGN))
            .map(|answer| answer.stx_dio_mem_align)
            .filter(|alignment| *alignment > 0);
        let direct = if cached { Err("as asked".into()) } else { Ok(wish.unwrap_or(block)) };
        let geometry = geometry(bytes, block, optimal, access);
        let (is_block, zeroes, zero_pages) = (true, Zeroes::Ioctl, zero_pages(block));
        Ok(Medium { file, geometry, is_block, direct, discards: true, zeroes, holes: false, zero_pages })
    }

    /// Opens the medium once more for another queue: the same open file, and so the same lock.
    pub(super) fn duplicate(&self, name: &str) -> Result<Medium, Error> {
        let file = self.file.try_clone().map_err(|error| Error::io(format!("duplicate {name}"), error))?;
        let Medium { geometry, is_block, ref direct, discards, zeroes, holes, ref zero_pages, .. } = *self;
        let (direct, zero_pages) = (direct.clone(), zero_pages.clone());
        Ok(Medium { file, geometry, is_block, direct, discards, zeroes, holes, zero_pages })
    }

    /// Returns true if the medium accepts the memory of `segments`, without copying it through a bounce
    /// piece.
    pub(super) fn takes(&self, segments: &[Segment]) -> bool {
        let Ok(alignment) = self.direct else { return true };
        let block = self.geometry.block as usize;
        segments.iter().all(|segment| {
            (segment.base() as usize).is_multiple_of(alignment as usize)
                && segment.bytes().is_multiple_of(block)
        })
    }

    /// Returns a segment of zeros, of at most `most` bytes.
    pub(super) fn zeroes_segment(&self, most: u64) -> Segment {
        let bytes = most.min(self.zero_pages.bytes() as u64) as usize;
        // SAFETY: part of the zero pages, which `File::drop` frees only when no request uses them any more.
        unsafe { Segment::new(self.zero_pages.base(), bytes) }
    }
}

/// Returns zeros that all devices share; a device with blocks of more than `ZEROES` bytes gets its own.
fn zero_pages(block: u32) -> Arc<Pages> {
    static SHARED: OnceLock<Arc<Pages>> = OnceLock::new();
    match block as usize {
        ..=ZEROES => SHARED.get_or_init(|| Arc::new(Pages::new(ZEROES))).clone(),
        block => Arc::new(Pages::new(block)),
    }
}

pub(super) fn unfit(name: &str, reason: impl Into<String>) -> Error {
    Error::Unfit { what: name.to_owned(), reason: reason.into() }
}

pub(super) fn failed(what: &str, name: &str, error: Errno) -> Error {
    Error::io(format!("{what} {name}"), error)
}

fn flags(options: &FileOptions) -> OFlags {
    OFlags::CLOEXEC | if options.read_only { OFlags::RDONLY } else { OFlags::RDWR }
}

fn access(options: &FileOptions) -> Access {
    if options.read_only { Access::Read } else { Access::ReadWrite }
}

/// Repeats an attempt while another user has the file, for up to `LOCK_TIMEOUT`. After a server was killed,
/// the kernel needs some time to free its io_uring, which holds the file.
fn retry_while_busy<T>(mut attempt: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    let end = Instant::now() + LOCK_TIMEOUT;
    loop {
        match attempt() {
            Err(Errno::BUSY | Errno::WOULDBLOCK) if Instant::now() < end => {
                std::thread::sleep(LOCK_TIMEOUT / 100)
            }
            outcome => return outcome,
        }
    }
}

/// Opens a regular file, or creates one. A file that cannot be set up completely is removed again.
fn open_file(options: &FileOptions) -> Result<Medium, Error> {
    let (path, name) = (&options.path, &options.name());
    let is_made = options.bytes.is_some() && !options.read_only && !path.exists();
    // With O_EXCL, a file that somebody else creates meanwhile is not mistaken for a new one.
    let create = if is_made { OFlags::CREATE | OFlags::EXCL } else { OFlags::empty() };
    // With O_NONBLOCK, opening does not block if the path leads to a FIFO.
    let file =
        open(path, flags(options) | create | OFlags::NONBLOCK, Mode::RUSR | Mode::WUSR).map_err(|error| {
            match error {
                Errno::NOENT => unfit(name, "there is no such file; give size=BYTES, and it is made"),
                error => failed("open", name, error),
            }
        })?;
    let medium = whole_file(options, file, is_made);
    if medium.is_err() && is_made {
        // The file was created above; if removing fails, an unused file of no importance stays behind.
        let _ = unlink(path);
    }
    medium
}

/// Locks an open file for this device and sets its size.
fn whole_file(options: &FileOptions, file: OwnedFd, is_made: bool) -> Result<Medium, Error> {
    let (path, name) = (&options.path, &options.name());
    let status = fstat(&file).map_err(|error| failed("look at", name, error))?;
    match FileType::from_raw_mode(status.st_mode) {
        FileType::RegularFile => {}
        FileType::BlockDevice => {
            return Err(unfit(name, "it is a block device; write block: in place of file:"));
        }
        _ => return Err(unfit(name, "it is no file")),
    }
    retry_while_busy(|| flock(&file, FlockOperation::NonBlockingLockExclusive)).map_err(
        |error| match error {
            Errno::WOULDBLOCK => unfit(name, "somebody else has locked it; end the server that uses it"),
            error => failed("lock", name, error),
        },
    )?;
    wait_again(&file, name)?;
    let (direct, block) = past_the_cache(name, options.cached, &file)?;
    let bytes = sized(options, &file, status.st_size as u64, block)?;
    if is_made {
        // The name of a new file has to be durable as well, which needs an fsync of its folder.
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        fsync(&file)
            .and_then(|()| open(folder, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()))
            .and_then(fsync)
            .map_err(|error| failed("make", name, error))?;
    }
    let optimal = u32::try_from(status.st_blksize).unwrap_or(block).max(block);
    let geometry = geometry(bytes, block, optimal, access(options));
    Ok(Medium::from_file(file, geometry, direct, true))
}

/// Returns the geometry of a file, which has the limits of every file.
pub(super) fn geometry(bytes: u64, block: u32, optimal: u32, access: Access) -> Geometry {
    let (transfer_max, range_max) = (TRANSFER_MAX, TRANSFER_MAX);
    Geometry { bytes, block, optimal, transfer_max, range_max, segments_max: SEGMENTS_MAX, access }
}

/// Clears O_NONBLOCK, which was only needed for opening. With that flag, io_uring of older kernels completes
/// requests with EAGAIN, where it would otherwise let a worker thread wait.
pub(super) fn wait_again(file: &OwnedFd, name: &str) -> Result<(), Error> {
    fcntl_getfl(file)
        .and_then(|flags| fcntl_setfl(file, flags - OFlags::NONBLOCK))
        .map_err(|error| failed("open", name, error))
}

/// Sets O_DIRECT on the file if possible. Returns the alignment that memory needs then, in bytes, or the
/// reason for using the page cache; and the size of a logical block, in bytes.
pub(super) fn past_the_cache(
    name: &str,
    cached: bool,
    file: &OwnedFd,
) -> Result<(Result<u32, String>, u32), Error> {
    if cached {
        return Ok((Err("as asked".into()), BLOCK));
    }
    if fstatfs(file).is_ok_and(|status| status.f_type == TMPFS) {
        return Ok((Err("tmpfs is nothing else".into()), BLOCK));
    }
    let wish = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN)
        .ok()
        .filter(|answer| StatxFlags::from_bits_retain(answer.stx_mask).contains(StatxFlags::DIOALIGN));
    let (memory, block) = match wish {
        Some(wish) if wish.stx_dio_offset_align == 0 => {
            return Ok((Err("the file system does not let this file past it".into()), BLOCK));
        }
        Some(wish) => (wish.stx_dio_mem_align, wish.stx_dio_offset_align.max(BLOCK)),
        None => (DIRECT_ALIGNMENT_DEFAULT, DIRECT_ALIGNMENT_DEFAULT),
    };
    let flags = fcntl_getfl(file).map_err(|error| failed("look at", name, error))?;
    match fcntl_setfl(file, flags | OFlags::DIRECT) {
        Ok(()) => Ok((Ok(memory), block)),
        Err(error) => Ok((Err(format!("the file system has no O_DIRECT ({error})")), BLOCK)),
    }
}

/// Gives the file the size that the options ask for, and returns the size of the device, in bytes.
fn sized(options: &FileOptions, file: &OwnedFd, there: u64, block: u32) -> Result<u64, Error> {
    let name = &options.name();
    let Some(wished) = options.bytes else {
        return match there - there % u64::from(block) {
            0 => Err(unfit(name, format!("it has not one block of {block} bytes; give size=BYTES"))),
            bytes => Ok(bytes),
        };
    };
    if wished == 0 || !wished.is_multiple_of(block.into()) || i64::try_from(wished).is_err() {
        let reason = format!("its size would be {wished} bytes, and has to be a multiple of {block}");
        return Err(unfit(name, reason));
    }
    if there > wished {
        let reason =
            format!("it has {there} bytes already, more than {wished}; give its size, or another file");
        return Err(unfit(name, reason));
    }
    if options.read_only {
        return match there == wished {
            true => Ok(wished),
            false => Err(unfit(name, "it may only be read, so it cannot be made larger")),
        };
    }
    let failed = |error| failed(&format!("take {wished} bytes for"), name, error);
    if !options.sparse {
        // Allocates all blocks, so that missing space is an error now instead of during a write.
        match fallocate(file, FallocateFlags::empty(), 0, wished) {
            Ok(()) => return Ok(wished),
            // The file system has no fallocate(2).
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
            Err(error) => return Err(failed(error)),
        }
    }
    if there < wished {
        ftruncate(file, wished).map_err(failed)?;
    }
    Ok(wished)
}

fn open_block(options: &FileOptions) -> Result<Medium, Error> {
    let (path, name) = (&options.path, &options.name());
    let direct = if options.cached { OFlags::empty() } else { OFlags::DIRECT };
    let look = rustix::fs::stat(path).map_err(|error| failed("open", name, error))?;
    if FileType::from_raw_mode(look.st_mode) != FileType::BlockDevice {
        return Err(unfit(name, "it is no block device; write file: in place of block:"));
    }
    // O_EXCL without O_CREAT: the kernel refuses a block device that is mounted, part of another device, or
    // open with O_EXCL elsewhere.
    let open = || open(path, flags(options) | direct | OFlags::EXCL, Mode::empty());
    let file = retry_while_busy(open).map_err(|error| match error {
        Errno::BUSY => unfit(name, "it is mounted, or part of another device, or somebody has it open"),
        error => failed("open", name, error),
    })?;
    Medium::from_block_device(file, name, options.cached, access(options))
}
